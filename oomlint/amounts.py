"""Times and sizes as people write them, in settings and on the command line."""

from __future__ import annotations

import re
from typing import Final

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)", re.ASCII)
_SECONDS: Final = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1, "b": 1, **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}} | {
    f"{prefix}{end}": 1024**power for power, prefix in enumerate("kmgt", 1) for end in ("", "i", "ib")
}
_SCALE: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_ROUNDED: Final = 1 - 0.05 / 1024  # of a unit: what the unit below would show as 1024.0
_EXACT: Final = 10  # bytes, below which a fraction of one is shown
LONGEST: Final = 7 * 24 * 3600  # seconds
LARGEST: Final = 2**60  # bytes
SMALLEST: Final = 2**20  # bytes


class TooLargeError(ValueError):
    """A size beyond what is counted."""


def seconds(text: str) -> float:
    """The seconds of a time such as ``5s``, ``500ms`` or ``2m``; a number alone is in seconds. Raises ValueError, whose message says what is wrong."""
    number, unit = _parts(text)
    value = number * _SECONDS.get(unit, 0.0)
    if not 0 < value <= LONGEST:
        raise ValueError(f"{_shown(text)} is not a time such as '5s', '500ms' or '2m'")
    return value


def size(text: str) -> int:
    """The bytes of a size such as ``2GiB``, ``512MiB`` or ``1.5GB``; a number alone is in bytes. Raises ValueError, whose message says what is wrong."""
    number, unit = _parts(text)
    value = number * _BYTES.get(unit, 0)
    if value > LARGEST:
        raise TooLargeError(f"{_shown(text)} is more than {LARGEST >> 40:,} TiB, the most that is counted")
    if not value >= 1:
        raise ValueError(f"{_shown(text)} is not a size such as '2GiB', '512MiB' or '1.5GB'")
    return int(value)


def cap(text: str) -> int:
    """The same for what a job may take, which is ``SMALLEST`` at least: ``3`` is meant as gigabytes, and would be three bytes."""
    value = size(text)
    if value < SMALLEST:
        raise ValueError(f"{_shown(text)} is {value:,} bytes, too small for anything to run in; a size is written with its unit, such as '2GiB'")
    return value


def readable(count: float) -> str:
    """A number of bytes with a binary unit, as all that people read has it: ``1.3 MiB``."""
    for unit, scale in _SCALE:
        if abs(count) >= scale * _ROUNDED:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.2g} B" if 0 < abs(count) < _EXACT else f"{count:.0f} B"


def _parts(text: str) -> tuple[float, str]:
    """Number and unit in small letters; 0 where the text is no amount."""
    found = _AMOUNT.fullmatch(text.strip())
    return (float(found[1]), found[2].lower()) if found else (0.0, "")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")  # noqa: PLR2004 - one line
