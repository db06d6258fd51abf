"""``oomlint check --watch``: checks again whenever something has changed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import beside
from oomlint.cli.check import say
from oomlint.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CODE: Final = (".py", ".pyi", ".ipynb", ".gitignore")
_PASSED_BY: Final = frozenset({".git", ".oomlint_cache", "__pycache__", "node_modules", ".venv"})
_CLEAR: Final = "\x1b[2J\x1b[H"


def watch(paths: Sequence[str], check: Callable[[], int]) -> None:
    """Check, wait for a change of what is below the paths, and check again, until somebody interrupts. Raises ConfigError."""
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError("--watch needs watchfiles: pip install 'oomlint[watch]'") from None
    gone = next((path for path in paths if not os.path.exists(path)), None)
    if gone is not None:
        raise ConfigError(f"{gone}: No such file or directory")
    _round(check)
    for _ in watchfiles.watch(*paths, watch_filter=lambda _, path: tells(path), raise_interrupt=True):
        _round(check)


def tells(path: str) -> bool:
    """Whether a change of a file may tell on findings."""
    return (path.endswith(_CODE) or beside(path) is not None) and _PASSED_BY.isdisjoint(path.split(os.sep))


def _round(check: Callable[[], int]) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    try:
        check()
    except ConfigError as error:  # it may be fixed in the next round
        say(f"error: {error}")
    say("waiting for changes")
    sys.stdout.flush()
    sys.stderr.flush()
