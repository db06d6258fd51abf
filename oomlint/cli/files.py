"""Reports that go to a file."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from oomlint.cli.options import STANDARD
from oomlint.config import ConfigError
from oomlint.discovery import discover
from oomlint.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oomlint.config import Settings


def current_folder() -> str:
    """The folder that names are relative to. Raises ConfigError where it has been removed."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError(f"the current folder cannot be told: {error.strerror or error}") from None


def refuse_unwritable(option: str, given: str | None, paths: Sequence[str], settings: Settings, root: str | Path, *, force_exclude: bool) -> None:
    """Raise ConfigError where a report cannot go to the file that an option names, or would overwrite one that is checked: now, not after all the work."""
    if given in {None, STANDARD}:
        return
    if not given:
        raise ConfigError(f"{option}: it is empty")
    if os.path.isdir(given):
        raise ConfigError(f"{given}: Is a directory")
    if _stream_of(given) is not None or _is_special(given):
        return
    import tempfile  # noqa: PLC0415 - few runs need it

    target = os.path.realpath(given)
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise ConfigError(f"{given}: {os.strerror(errno.EACCES)}")  # it would be replaced, which the folder alone decides
    try:
        tempfile.TemporaryFile(dir=os.path.dirname(target)).close()
    except OSError as error:
        raise ConfigError(f"{given}: {error.strerror or error}") from None
    if os.path.exists(target) and any(os.path.realpath(path) == target for path in discover(paths, settings, root, force_exclude).files):
        raise ConfigError(f"{option}: {given} is one of the files to check, and would be overwritten")


def write_report(path: str, report: str | bytes) -> None:
    """Write a file as a whole or not at all, unless it is a standard stream or no regular file. Raises ConfigError."""
    data = report.encode("utf-8", "backslashreplace") if isinstance(report, str) else report
    target = os.path.realpath(path)
    stream = _stream_of(path)
    try:
        if stream is not None:  # what else goes there stays: it may lead to a file
            (sys.stdout if stream == 1 else sys.stderr).flush()
            with open(stream, "wb", closefd=False) as output:
                output.write(data)
        elif _is_special(path):
            with open(path, "wb") as output:
                output.write(data)
        elif os.path.exists(target):
            write_whole(target, data, keep=True)
        else:
            write_whole(target, data, mode=0o666 & ~_umask())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _stream_of(path: str) -> int | None:
    """The descriptor of the standard stream that leads to the same file, such as that of `/dev/stdout`."""
    for number in (1, 2):
        try:
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return number
        except (OSError, ValueError):  # it is not there yet; the stream is closed
            continue
    return None


def _is_special(path: str) -> bool:
    """Whether it is there and no regular file, such as `/dev/null`: it is written to as it is."""
    return os.path.exists(path) and not os.path.isfile(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
