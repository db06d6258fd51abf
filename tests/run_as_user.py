"""Runs a program of Python as a user without rights: for root, who may become one. ``run_as_user.py PROGRAM ARGUMENT...``

The interpreter and this repository may lie in a folder that others cannot enter, such as root's home: in a file system of its own they see what they need.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

NOBODY = 65534
_NEWNS, _BIND, _REC, _PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


def main(words: list[str]) -> None:
    needed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__)))}
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.unshare(_NEWNS))
    checked(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None))
    for top in {closed(path) for path in needed} - {""}:
        inside = [(path, os.open(path, os.O_PATH)) for path in needed if path.startswith(top + os.sep)]
        checked(libc.mount(b"opened", os.fsencode(top), b"tmpfs", 0, b"mode=755"))
        for path, handle in inside:
            os.makedirs(path)
            checked(libc.mount(f"/proc/self/fd/{handle}".encode(), os.fsencode(path), None, _BIND | _REC, None))
            os.close(handle)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execv(sys.executable, [sys.executable, *words])


def closed(path: str) -> str:
    """The topmost folder above a path that others cannot enter."""
    parts = path.split(os.sep)
    above = [os.sep.join(parts[:number]) for number in range(2, len(parts))]
    return next((folder for folder in above if not os.stat(folder).st_mode & stat.S_IXOTH), "")


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[1:])
