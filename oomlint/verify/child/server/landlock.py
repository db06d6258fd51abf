"""Landlock: a process gives up rights on files, for itself and for all children to come. Works for every user, and in containers."""

from __future__ import annotations

import ctypes
import glob
import os
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_NEW_PRIVS: Final = 38
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same numbers on every architecture

# Rights by the version of the interface that brought them (linux/landlock.h): execute, write and read a file, list a folder, remove (folder, file), make
# (character device, folder, file, socket, fifo, block device, link); move or link to another folder; truncate; control a device.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REFER, _TRUNCATE, _CONTROL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
_CHANGE: Final = ((1, _WRITE_FILE | sum(1 << bit for bit in range(4, 13))), (2, _REFER), (3, _TRUNCATE), (5, _CONTROL))
_LOOK: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _CONTROL
_NET_SINCE, _SCOPE_SINCE = 4, 6
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/dxg")  # of graphics processors, too


def version() -> int:
    """Of the kernel's interface; 0 where there is none."""
    if sys.platform != "linux" or "landlock" in turned_off():
        return 0
    found: int = libc().syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    return max(found, 0)


def turned_off() -> frozenset[str]:
    """What OOMLINT_NO_SANDBOX names, for tests: ``namespaces``, ``processes`` of these, ``landlock``, ``seccomp``; anything else is all of them."""
    words = frozenset(os.environ.get("OOMLINT_NO_SANDBOX", "").replace(",", " ").split())
    every = frozenset({"namespaces", "processes", "landlock", "seccomp"})
    return every if words - every else words


def confine(writable: Iterable[str], readable: Iterable[str] | None = None, listed: Iterable[str] = (), *, network: bool = True) -> bool:
    """Refuse, from here on, every write and delete outside of some files and folders, and signals to processes that came before.

    With ``readable``, reading elsewhere is refused too, but for the names below the folders that are ``listed``; without ``network``, TCP. False where the
    kernel has no Landlock.
    """
    interface = version()
    if not interface:
        return False
    system = libc()
    change = sum(right for since, right in _CHANGE if interface >= since)
    rights = change | (0 if readable is None else _LOOK)
    net = 3 if interface >= _NET_SINCE and not network else 0  # binding and connecting
    scope = 3 if interface >= _SCOPE_SINCE else 0  # abstract sockets and signals
    size = 24 if interface >= _SCOPE_SINCE else 16 if interface >= _NET_SINCE else 8
    rules = system.syscall(_CREATE, struct.pack("QQQ", rights, net, scope)[:size], ctypes.c_size_t(size), 0)
    if rules < 0:
        return False
    devices = [path for pattern in DEVICES for path in glob.glob(pattern)]
    for path in (*writable, "/dev/shm", *devices):  # noqa: S108
        _allow(rules, path, rights)
    for path in readable or ():
        _allow(rules, path, rights & _LOOK)
    for path in listed:
        _allow(rules, path, rights & _READ_DIR)
    system.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    held = bool(system.syscall(_RESTRICT, rules, 0) == 0)
    os.close(rules)
    return held


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    allowed = rights if os.path.isdir(path) else rights & _OF_FILES
    libc().syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, handle), 0)
    os.close(handle)


def libc() -> ctypes.CDLL:
    """The library of C, for what Python has no function for."""
    return ctypes.CDLL(None, use_errno=True)
