"""A file system of its own for a process: what it may see, read-only, and its own folders. Entered once, before anything of the project runs.

Whatever is not named is not there: neither the rest of the home folder, nor the folders in which services have their sockets. What is there and is not the
job's own cannot be changed in any way: not its content, mode, owner, times or attributes.
"""

from __future__ import annotations

import ctypes
import glob
import os
import stat
import struct
from typing import TYPE_CHECKING, Final

from oomlint.verify.child.server.landlock import DEVICES, libc
from oomlint.verify.folders import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEVICES: Final = (*DEVICES, "/dev/random", "/dev/urandom")
_STREAMS: Final = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_HIDDEN: Final = "/.hidden"  # an empty file and an empty folder that nobody may open, in place of what must not be read
_MOST_LINKS: Final = 40  # as the kernel

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
_DETACH: Final = 2
_MOUNT_SETATTR: Final = 442  # the same on every architecture; Linux 5.12
_FROM_HERE, _RECURSIVE = -100, 0x8000
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}


def enter(folder: str, *, writable: Sequence[str], readable: Sequence[str], hidden: Sequence[str], shared_memory: int, own_processes: bool) -> None:
    """Change over to the new file system, which is built on ``folder``. ``shared_memory`` is the size of /dev/shm in bytes.

    With ``own_processes`` /proc shows those of this process's namespace only. Raises OSError where the kernel refuses a step.
    """
    _mount("none", "/", "", _REC | _PRIVATE)
    os.makedirs(folder, exist_ok=True)
    _mount("view", folder, "tmpfs", _NOSUID | _NODEV, "mode=755,size=4m")
    view = _View(folder)
    for path in SYSTEM:
        view.show(path)
    view.devices(shared_memory)
    for path in ("/tmp", "/var/tmp", "/run", "/proc"):  # noqa: S108 - empty ones
        os.makedirs(folder + path, exist_ok=True)
    for path in sorted({*readable, *writable}):  # a folder comes before what is in it
        view.show(path, read_only=path not in writable)
    for path in hidden:
        view.hide(path)
    if own_processes:
        _mount("proc", folder + "/proc", "proc", _NOSUID | _NODEV | _NOEXEC | _RDONLY)
    else:
        _mount("/proc", folder + "/proc", "", _BIND | _REC)
        _protect(folder + "/proc", _RDONLY)
    _protect(folder, _RDONLY, recursive=False)
    os.chdir(folder)
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError("this architecture is not known")
    _checked(libc().syscall(number, b".", b"."))
    _checked(libc().umount2(b".", _DETACH))
    os.chdir("/")


def devices() -> list[str]:
    """Those that a program may need, as far as they are here."""
    return sorted({path for pattern in _DEVICES for path in glob.glob(pattern)})


class _View:
    """A file system in the making: a folder that becomes the root."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._shown: list[tuple[str, bool]] = []  # path, and whether it is read-only
        os.makedirs(folder + _HIDDEN)
        os.mkdir(folder + _HIDDEN + "/folder", 0)
        os.close(os.open(folder + _HIDDEN + "/file", os.O_WRONLY | os.O_CREAT, 0))

    def show(self, path: str, *, read_only: bool = True, left: int = _MOST_LINKS) -> None:
        """Make a file or folder be there under its own path, whatever links lead to it. What does not exist is passed over."""
        reached = ""
        for part in os.path.normpath(path).split(os.sep)[1:]:
            reached = f"{reached}/{part}"
            if os.path.islink(reached) and left:
                aim = os.readlink(reached)
                if not self._is_shown(os.path.dirname(reached)) and not os.path.lexists(self._folder + reached):
                    os.makedirs(os.path.dirname(self._folder + reached), exist_ok=True)
                    os.symlink(aim, self._folder + reached)
                rest = os.path.normpath(path)[len(reached) :].lstrip(os.sep)
                self.show(os.path.join(os.path.dirname(reached), aim, rest), read_only=read_only, left=left - 1)
                return
        path = os.path.normpath(path)
        if path == os.sep or not os.path.exists(path) or (self._is_shown(path) and (read_only or (path, False) in self._shown)):
            return
        target = self._folder + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _mount(path, target, "", _BIND | _REC)
        _protect(target, _NOSUID | _NODEV | (_RDONLY if read_only else 0))
        self._shown.append((path, read_only))

    def hide(self, path: str) -> None:
        """Put something empty in the place of a file or folder, where it is shown."""
        try:
            kind = os.lstat(self._folder + path).st_mode
        except OSError:
            return
        if not stat.S_ISLNK(kind):
            _mount(self._folder + _HIDDEN + ("/folder" if stat.S_ISDIR(kind) else "/file"), self._folder + path, "", _BIND)

    def devices(self, shared_memory: int) -> None:
        """The few that a program needs, and graphics processors."""
        os.makedirs(self._folder + "/dev/shm")  # noqa: S108
        for name, aim in _STREAMS.items():
            os.symlink(f"/proc/self/{aim}", f"{self._folder}/dev/{name}")
        for path in devices():
            target = self._folder + path
            if os.path.isdir(path):
                os.makedirs(target)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            _mount(path, target, "", _BIND | _REC)
        _mount("shm", self._folder + "/dev/shm", "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={shared_memory}")  # noqa: S108

    def _is_shown(self, path: str) -> bool:
        return any(path == shown or path.startswith(shown + os.sep) for shown, _ in self._shown)


def _protect(target: str, attributes: int, *, recursive: bool = True) -> None:
    """Add attributes to a mount and those below it; what they have already stays."""
    # The attributes of mount_setattr have the numbers of the old flags for these three.
    packed = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = _RECURSIVE if recursive else 0
    _checked(libc().syscall(_MOUNT_SETATTR, _FROM_HERE, os.fsencode(target), flags, packed, ctypes.c_size_t(len(packed))))


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _checked(libc().mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None), target)


def _checked(result: int, path: str = "") -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
