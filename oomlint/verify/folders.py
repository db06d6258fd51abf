"""Folders and files that others have made: walked, read and removed without going where they lead, however deep or odd they are."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/sys")  # programs, libraries, devices


def walk(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk from the top down: names taken out of the folders are not entered. It needs no deeper stack for deeper folders."""
    waiting = [top]
    while waiting:
        here = waiting.pop()
        folders: list[str] = []
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(here) as found:
            for entry in found:
                (folders if entry.is_dir() else names).append(entry.name)
        yield here, folders, names
        waiting += [path for name in reversed(folders) if not os.path.islink(path := os.path.join(here, name))]


def content(path: str, most: int) -> bytes:
    """Of a regular file, and of nothing that blocks: at most so many bytes. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(most)


def remove(path: str) -> None:
    """Remove a file, a link, or a folder with all that is in it, whatever rights it has. Errors are passed over, also that it is gone."""
    with contextlib.suppress(OSError):
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            return
        number = 0
        folders = True
        while folders:  # what lies in the folders comes up, until there are none: no path gets too long
            folders = False
            os.chmod(path, stat.S_IRWXU)
            for entry in list(os.scandir(path)):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                folders = True
                os.chmod(entry.path, stat.S_IRWXU)
                for inner in list(os.scandir(entry.path)):
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, stat.S_IRWXU)  # a folder that is moved is written to
                        os.rename(inner.path, os.path.join(path, f".{number}.oomlint"))
                        number += 1
                    else:
                        os.unlink(inner.path)
                os.rmdir(entry.path)
        os.rmdir(path)
