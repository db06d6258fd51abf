"""How much a job has written to the disk, and to files that lie in memory."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BLOCK: Final = 512  # bytes, of st_blocks


class Disk:
    """What is written below some folders, by files that are new or have changed since this was made, and by files without a name that are open."""

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        """The first folder tells the disk. ``limit`` is in bytes."""
        self._folders = folders
        self._limit = limit
        self._since = time.time_ns()
        self._free = free(folders[0])

    def is_full(self, pids: Iterable[int], *, certain: bool) -> bool:
        """Whether the processes have written more than they may. Where not ``certain``, files are counted only where the disk has lost much of its room."""
        if not certain and self._free - free(self._folders[0]) < self._limit // 2:
            return False
        written = 0
        for about in (*self._files(), *_unnamed(pids)):
            written += about.st_blocks * _BLOCK
            if written > self._limit:
                return True
        return False

    def _files(self) -> Iterator[os.stat_result]:
        waiting = list(self._folders)
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
                for entry in found:
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif (about := entry.stat(follow_symlinks=False)).st_ctime_ns >= self._since:  # no program can set it back
                            yield about


def free(folder: str) -> int:
    """Bytes that are free on the disk of a folder."""
    with contextlib.suppress(OSError):
        about = os.statvfs(folder)
        return about.f_bavail * about.f_frsize
    return 0


def _unnamed(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Files that are open and have no name any more, or never had one."""
    seen = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    about = os.stat(f"/proc/{pid}/fd/{name}")
                    if about.st_nlink == 0 and (about.st_dev, about.st_ino) not in seen:
                        seen.add((about.st_dev, about.st_ino))
                        yield about
