"""The command line. One file a command: a record of its options, and what it does with them.

A well-formed line is read by :mod:`oomlint.cli.options` alone. typer, whose import takes longer than a check of a clean project, comes in for help, for
errors, and for whatever is written in a less usual way; it is built from the same records.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Final

from oomlint.cli.options import read

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = ("check", "baseline", "verify", "budget", "trace", "rule", "config", "clean", "server", "mcp", "version")


def run(words: Sequence[str]) -> int:
    """Run a command line and return its exit status."""
    if words and words[0] in COMMANDS:
        command = importlib.import_module(f"oomlint.cli.{words[0]}")
        try:
            arguments = read(command.Arguments, words[1:])
        except ValueError as error:
            sys.stderr.write(f"oomlint: error: {error}\n")
            return 2
        if arguments is not None:
            status: int = command.perform(arguments)
            return status
    from oomlint.cli.app import parse  # noqa: PLC0415 - see above

    parsed = parse(words)
    return parsed if isinstance(parsed, int) else parsed()
