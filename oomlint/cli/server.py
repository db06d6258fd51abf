"""``oomlint server``."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from oomlint.cli.check import say
from oomlint.cli.options import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Serve an editor over standard input and output: the Language Server Protocol. Needs the extra `lsp`."""

    allow_run: bool = flag(
        "Offer to verify the fix of a finding, which runs code of the project in a sandbox. Without it, nothing is executed.", "What is offered"
    )
    stdio: bool = flag("Serve over standard input and output, as it always does: editors give this option.", "What is offered")


def perform(arguments: Arguments) -> int:
    """Serve until the editor ends it."""
    try:
        from oomlint.lsp.server import serve  # noqa: PLC0415 - brings an extra's libraries
    except ModuleNotFoundError as error:
        say(f"error: `oomlint server` needs the extra `lsp` ({error.name} is missing): pip install 'oomlint[lsp]'")
        return 2
    gc.set_threshold(50_000, 20, 50)  # as in a check: trees are no garbage
    return serve(allow_run=arguments.allow_run)
