"""Files that are written whole or not at all, and what is left of runs that were killed while they wrote."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from contextlib import suppress
from typing import Final

LEFTOVER: Final = re.compile(r"\.oomlint-(?:(?P<process>\d+)-)?[a-z0-9_]{8}\.tmp")
OLD: Final = 60  # seconds; no writing takes as long

_UNNAMED: Final[int] = getattr(os, "O_TMPFILE", 0)
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)


def write_whole(path: str, data: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None, durable: bool = False) -> None:
    """Put a file in the place of ``path``: another process sees the old one or the new one, never a half. OSError where that cannot be.

    A link in that place is replaced, not followed. ``owner`` (user and group) is set where the system allows it; ``durable`` outlasts a power cut.
    """
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".oomlint-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        try:
            _make(temporary, data, mode, owner, durable=durable, unnamed=True)
        except OSError:  # not every file system has files without a name; where it is full, the next line says so
            _make(temporary, data, mode, owner, durable=durable, unnamed=False)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)


def sweep(folder: str, names: re.Pattern[str] = LEFTOVER) -> None:
    """Remove what killed runs of this user have left in a folder. What a run may still be writing stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = names.fullmatch(entry.name)
            if match is None:
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                process = match.groupdict().get("process")
                over = time.time() - status.st_mtime > OLD or (process is not None and not _is_alive(int(process)))
                if over and stat.S_ISREG(status.st_mode) and is_own(status):
                    os.unlink(entry.path)


def is_own(status: os.stat_result) -> bool:
    """Whether a file is this user's."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _make(temporary: str, data: bytes, mode: int, owner: tuple[int, int] | None, *, durable: bool, unnamed: bool) -> None:
    """Make the new file. Without a name until it is complete, there is nothing for a kill to leave behind."""
    if unnamed and not _UNNAMED:
        raise OSError
    folder = os.path.dirname(temporary)
    handle = os.open(folder, _UNNAMED | os.O_WRONLY, 0o600) if unnamed else os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _BINARY, 0o600)
    with open(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        spot: str | int = handle if os.chmod in os.supports_fd else temporary
        if owner is not None and hasattr(os, "chown"):
            with suppress(OSError):
                os.chown(spot, *owner)
        os.chmod(spot, mode)
        if durable:
            os.fsync(handle)
        if unnamed:
            _name(handle, temporary)


def _name(handle: int, path: str) -> None:
    """Give an unnamed file its name."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{handle}", os.path.basename(path), dst_dir_fd=folder)  # given a folder, `link` follows the link of /proc
    finally:
        os.close(folder)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # no signal only asks there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: str) -> None:
    """Make the renaming last through a power cut, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
