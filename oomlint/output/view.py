"""What every format asks: how a file is called, and what stands in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.finding import Place
    from oomlint.source import Source

# Unicode has pictures of the control characters below 0x20, and one of DEL. Tabs are for the formats to expand.
_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20) if code != ord("\t")}
    | {0x7F: 0x2421}
    | dict.fromkeys((*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
)

Span = tuple[str, str]  # text and its style, in rich's words; "" is plain
Line = tuple[Span, ...]


class View(Struct, frozen=True):
    """The folder that names are relative to, and the contents that stand in for files (standard input)."""

    folder: str
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    _sources: dict[str, Source | None] = field(default_factory=dict)

    def name(self, path: str) -> str:
        """The path relative to the folder, with ``/``. On another drive of Windows it stays absolute. An empty path is shown as a pair of quotes."""
        if not path:
            return "''"
        try:
            name = os.path.relpath(path, self.folder)
        except ValueError:
            name = path
        return name.replace(os.sep, "/")

    def spot(self, place: Place) -> str:
        """``path:row:column``, with the cell in a notebook."""
        cell = f"cell {place.cell}:" if place.cell else ""
        return f"{visible(self.name(place.path))}:{cell}{place.row}:{place.column}"

    def source(self, path: str) -> Source | None:
        """The file, or ``None`` where it cannot be read any more."""
        if path not in self._sources:
            try:
                self._sources[path] = read_source(path, self.overlay.get(path))
            except SourceError:
                self._sources[path] = None
        return self._sources[path]


def one_line(text: str) -> str:
    """A text of somebody else's on one line, with nothing in it that moves the cursor."""
    return " ".join(visible(" ".join(text.split())).split())


def visible(text: str) -> str:
    """The text without characters that would move the cursor, hide something or turn the direction of writing. Its length stays."""
    return text if text.isprintable() else text.translate(_PICTURES)
