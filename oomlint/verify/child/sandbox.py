"""Keeps a job in: it writes to its own folders only, reaches no network, and cannot outlive its server.

Two layers, each used where the kernel has it. Namespaces, entered once by the server: a network of its own with nothing but a loopback, shared memory of its
own. Landlock, entered by every job: writes and deletes are refused everywhere else, signals to other processes too.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

OFF: Final = os.environ.get("OOMLINT_NO_SANDBOX", "")  # for tests: "namespaces" leaves Landlock, anything else turns all off

_PDEATHSIG, _NO_NEW_PRIVS, _SUBREAPER = 1, 38, 36
_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_MS_REC, _MS_SLAVE, _MS_NOSUID, _MS_NODEV = 0x4000, 0x80000, 2, 4
_SIOCSIFFLAGS, _IFF_UP_RUNNING, _AF_INET, _SOCK_DGRAM = 0x8914, 0x41, 2, 2
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same numbers on every architecture
_CAPABILITIES: Final = 0xDF  # of root: the file permissions, and to change users; nothing that reaches the machine

# Rights of Landlock: write, remove (folder, file), make (character device, folder, file, socket, fifo, block device, link), move, truncate.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_RIGHTS: Final = ((1, _WRITE_FILE | sum(1 << bit for bit in range(4, 13))), (2, 1 << 13), (3, _TRUNCATE))
_NET_SINCE, _SCOPE_SINCE = 4, 6
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/nvidia*", "/dev/dri/*", "/dev/kfd")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock() -> int:
    """Version of Landlock's interface; 0 where there is none."""
    if sys.platform != "linux" or (OFF and OFF != "namespaces"):
        return 0
    version: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    return max(version, 0)


def isolate() -> bool:
    """Enter a network and a shared memory of one's own, with all children to come. Only while there is one thread. False where that is not allowed."""
    if sys.platform != "linux" or OFF:
        return False
    libc, user, group = _libc(), os.geteuid(), os.getegid()
    own = _NEWNET | _NEWNS | _NEWIPC
    if libc.unshare(own) != 0:
        if not _try_in_child(own | _NEWUSER, user, group) or libc.unshare(own | _NEWUSER) != 0:
            return False
        _map_ids(user, group)
    libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    libc.mount(b"shm", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=1777")  # where it refuses, the common one serves
    socket = libc.socket(_AF_INET, _SOCK_DGRAM, 0)
    if socket >= 0:  # a loopback of its own, for programs that talk to themselves
        libc.ioctl(socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP_RUNNING))
        os.close(socket)
    return True


def _try_in_child(flags: int, user: int, group: int) -> bool:
    """A namespace of users that cannot be mapped would leave us nobody: try it in a process that does not matter."""
    pid = os.fork()
    if pid == 0:
        fine = False
        try:
            fine = _libc().unshare(flags) == 0 and _map_ids(user, group)
        finally:
            os._exit(0 if fine else 1)
    return os.waitpid(pid, 0)[1] == 0


def _map_ids(user: int, group: int) -> bool:
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError:
        return False
    return True


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended."""
    if sys.platform == "linux":
        _libc().prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """End when the parent ends."""
    if sys.platform == "linux":
        _libc().prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def limit(descriptors: int, file_bytes: int) -> None:
    """Bounds of this process and all that it starts: no core dumps, files and descriptors."""
    import resource  # noqa: PLC0415 -- not on every system

    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, descriptors), (resource.RLIMIT_FSIZE, file_bytes)):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("900")  # where the machine runs out of memory, the job is the first to go


def confine(writable: Iterable[str], *, isolated: bool) -> bool:
    """Refuse every write and delete outside of some files and folders, from here on, for all children to come. False where Landlock is missing."""
    version = landlock()
    if not version:
        return False
    libc = _libc()
    rights = sum(right for since, right in _RIGHTS if version >= since)
    net = 3 if version >= _NET_SINCE and not isolated else 0  # binding and connecting
    scope = 3 if version >= _SCOPE_SINCE else 0  # abstract sockets and signals
    size = 24 if version >= _SCOPE_SINCE else 16 if version >= _NET_SINCE else 8
    attributes = struct.pack("QQQ", rights, net, scope)[:size]
    rules = libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return False
    devices = (path for pattern in _DEVICES for path in glob.glob(pattern))
    for path in (*writable, "/dev/shm", *devices):  # noqa: S108
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights if os.path.isdir(path) else rights & (_WRITE_FILE | _TRUNCATE)
        libc.syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, handle), 0)
        os.close(handle)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    held = bool(libc.syscall(_RESTRICT, rules, 0) == 0)
    os.close(rules)
    keep = _CAPABILITIES if os.geteuid() == 0 else 0
    low = struct.pack("III", keep, keep, 0) + struct.pack("III", 0, 0, 0)
    libc.capset(struct.pack("Ii", 0x20080522, 0), low)
    return held


def words(*, isolated: bool, held: bool) -> str:
    """What keeps a job in; empty where nothing refuses its writes."""
    if not held:
        return ""
    return "Landlock, " + ("no network" if isolated else "no TCP" if landlock() >= _NET_SINCE else "network open")
