"""Reports that go to a file."""

from __future__ import annotations

import os
import stat

from oomlint.config import ConfigError
from oomlint.writing import write_whole


def is_special(path: str) -> bool:
    """Whether it is there and no regular file, such as `/dev/stdout`: it is written to as it is."""
    return os.path.exists(path) and not os.path.isfile(path)


def write_report(path: str, text: str) -> None:
    """Write a file as a whole or not at all, unless it is a special one. Raises ConfigError."""
    data = text.encode("utf-8", "backslashreplace")
    target = os.path.realpath(path)
    try:
        if is_special(path):
            with open(path, "wb") as stream:
                stream.write(data)
        else:
            write_whole(target, data, mode=stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o666 & ~_umask())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
