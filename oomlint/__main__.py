"""The command ``oomlint``: runs the command line, and keeps what goes wrong in it apart from findings."""

from __future__ import annotations

import errno
import os
import sys

try:
    _HERE = os.getcwd()
except OSError:  # it has been removed
    _HERE = ""
if __name__ == "__main__" and sys.path and sys.path[0] in {"", _HERE}:
    del sys.path[0]  # `python -m` puts the current folder first: modules of the checked project would be run
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
READER_GONE: Final = 141  # 128 + SIGPIPE
_NO_MORE_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status: 0 clean, 1 findings, 2 for what is no finding."""
    words = sys.argv[1:] if words is None else words
    closed = _open_what_is_closed()
    try:
        status = _run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("OOMLINT_DEBUG") and not isinstance(error, BrokenPipeError):
            raise
        return _status_of(error, closed)
    except SystemExit as end:
        # rich and click have their own way to end where the reader is gone, with a status that means findings.
        if not _is_of_a_closed_pipe(end):
            raise
        return _status_of(BrokenPipeError(), closed)
    return status


def _status_of(error: Exception, closed: Sequence[str]) -> int:
    """Say what has ended a run, and give its exit status. What is still to be written is given up: Python would complain of it once more."""
    from oomlint.writing import give_up  # noqa: PLC0415 - few runs end so

    give_up(sys.stdout)
    gone = isinstance(error, BrokenPipeError)
    if gone and "stdout" not in closed:  # what reads the output has had enough (`oomlint check | head`), and need not be told
        give_up(sys.stderr)
        return READER_GONE
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    full = isinstance(error, OSError) and error.errno in _NO_MORE_ROOM and error.filename is None
    said = f"error: the output cannot be written: {getattr(error, 'strerror', '')}" if full else f"internal error: {cause} (OOMLINT_DEBUG=1 shows where)"
    if gone:
        said = "error: standard output is closed"
    try:
        sys.stderr.write(f"oomlint: {said}\n")
        sys.stderr.flush()
    except OSError:  # nobody can be told
        give_up(sys.stderr)
    return READER_GONE if gone else ERROR


def _is_of_a_closed_pipe(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__context__
    return False


def _open_what_is_closed() -> list[str]:
    """Give closed standard streams a pipe that nobody reads: writing to it fails like any other, and no file takes the place of the stream."""
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        reader, writer = os.pipe()
        os.close(reader)
        number = ("stdin", "stdout", "stderr").index(name)
        if writer != number:
            os.dup2(writer, number)
            os.close(writer)
        setattr(sys, name, open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115 - open to the end
    return closed


def _run(words: Sequence[str]) -> int:
    if list(words) == ["--version"]:
        from oomlint.cli.version import text  # noqa: PLC0415 - nothing else is needed

        sys.stdout.write(f"{text()}\n")
        return 0
    from oomlint.cli import run  # noqa: PLC0415 - an error in an import below is reported like any other

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
