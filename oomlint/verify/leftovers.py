"""Folders of runs that were killed before they could remove them: the next run does."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from typing import Final

from oomlint.verify import folders

PREFIX: Final = "oomlint-"
_NAME: Final = re.compile(r"oomlint-[a-z0-9_]{8}")
_LOCK: Final = "lock"
_AGE: Final = 60.0  # seconds: a run that is being ended removes its own


def own_folder() -> tuple[str, int]:
    """A fresh folder for this run that no job can write to, and the descriptor that says that the run lives.

    It is closed when this process ends, whatever has ended it.
    """
    folder = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
    handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _is_free(handle)
    return folder, handle


def remove() -> None:
    """Remove folders of this user's that no living run holds."""
    top = tempfile.gettempdir()
    with contextlib.suppress(OSError), os.scandir(top) as found:
        for entry in found:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove(entry)


def _remove(entry: os.DirEntry[str]) -> None:
    about = entry.stat(follow_symlinks=False)
    if not entry.is_dir(follow_symlinks=False) or about.st_uid != os.geteuid() or time.time() - about.st_mtime < _AGE:
        return
    handle = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if _is_free(handle):
            folders.remove(entry.path)
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    """Whether no other process holds the lock; from here on this one does."""
    import fcntl  # noqa: PLC0415 -- not on every system

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
