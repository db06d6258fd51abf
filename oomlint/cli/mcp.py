"""``oomlint mcp``."""

from __future__ import annotations

from dataclasses import dataclass

from oomlint.cli.check import say
from oomlint.cli.options import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Serve an agent over standard input and output: the Model Context Protocol. Needs the extra `mcp`."""

    allow_run: bool = flag("Offer the tool `verify`, too, which runs code of the project in a sandbox. Without it, nothing is executed.", "What is offered")


def perform(arguments: Arguments) -> int:
    """Serve until the agent ends it."""
    try:
        from oomlint.mcp.server import make  # noqa: PLC0415 - brings an extra's libraries
    except ModuleNotFoundError as error:
        say(f"error: `oomlint mcp` needs the extra `mcp` ({error.name} is missing): pip install 'oomlint[mcp]'")
        return 2
    make(allow_run=arguments.allow_run).run("stdio")
    return 0
