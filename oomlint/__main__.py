"""The command ``oomlint``: runs the command line, and keeps what goes wrong in it apart from findings."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERNAL_ERROR: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
READER_GONE: Final = 141  # 128 + SIGPIPE


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0 clean, 1 findings, 2 for what is no finding."""
    words = sys.argv[1:] if words is None else words
    try:
        status = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What reads the output has had enough (`oomlint check | head`). Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except Exception as error:
        if os.environ.get("OOMLINT_DEBUG"):
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"oomlint: internal error: {cause} (OOMLINT_DEBUG=1 shows where)\n")
        return INTERNAL_ERROR
    return status


def _run(words: Sequence[str]) -> int:
    if list(words) == ["--version"]:
        from oomlint import __version__  # noqa: PLC0415 - nothing else is needed

        sys.stdout.write(f"oomlint {__version__}\n")
        return 0
    from oomlint.cli import run  # noqa: PLC0415 - an error in an import below is reported like any other

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
