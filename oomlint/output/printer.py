"""Writes lines of styled spans: as they are, or through rich where there is colour."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from oomlint.output.view import Line


class Printer:
    """A stream that takes lines. rich is imported for the first coloured one: it costs more than a short run."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._console: Console | None = None

    def line(self, *spans: tuple[str, str]) -> None:
        """Write one line."""
        if not self._color or not any(style for _, style in spans):
            self._stream.write("".join(text for text, _ in spans) + "\n")
            return
        from rich.text import Text  # noqa: PLC0415 - only for colour

        if self._console is None:
            from rich.console import Console  # noqa: PLC0415 - only for colour

            # The sixteen colours of the reader's own theme. `no_color` is decided already; rich would ask NO_COLOR again.
            self._console = Console(file=self._stream, force_terminal=True, color_system="standard", no_color=False, highlight=False, markup=False, emoji=False)
        self._console.print(Text.assemble(*spans), soft_wrap=True)

    def lines(self, lines: Iterable[Line]) -> None:
        """Write lines."""
        for line in lines:
            self.line(*line)


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to colour what goes to the stream. ``choice`` is ``auto``, ``always`` or ``never``; see no-color.org and force-color.org."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
