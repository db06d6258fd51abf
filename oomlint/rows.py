"""Rows of a text: what ends one, where each begins, and the characters that a place covers.

Only a line feed, a carriage return and the pair of them end a row, as for Python itself: a form feed or a line separator does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.finding import Place

ROW_END: Final = re.compile(r"\r\n|\r|\n")


def row_of(text: str, row: int) -> str:
    """A row of a text, counted from 1, without its line end; empty where there is no such row."""
    rows = ROW_END.split(text)
    return rows[row - 1] if 1 <= row <= len(rows) else ""


def rows_of(text: str) -> list[tuple[str, str]]:
    """Rows with their line ends. Behind the last line end there is no further row."""
    rows = []
    start = 0
    for match in ROW_END.finditer(text):
        rows.append((text[start : match.start()], match[0]))
        start = match.end()
    if start < len(text):
        rows.append((text[start:], ""))
    return rows


def starts_of(text: str) -> list[int]:
    """The index of the first character of every row."""
    return [0, *(match.end() for match in ROW_END.finditer(text))]


def span_of(text: str, starts: Sequence[int], place: Place) -> tuple[int, int]:
    """The characters that a place covers in a text whose rows begin at ``starts``. ValueError outside of the text."""
    ends = []
    for row, column in ((place.row, place.column), (place.end_row, place.end_column)):
        if not 1 <= row <= len(starts):
            raise ValueError(f"row {row} is outside of the file")
        begin = starts[row - 1]
        width = len(text[begin : starts[row] if row < len(starts) else None].rstrip("\r\n"))
        if not 1 <= column <= width + 1:
            raise ValueError(f"column {column} is outside of row {row}")
        ends.append(begin + column - 1)
    if ends[0] > ends[1]:
        raise ValueError(f"the span in row {place.row} ends before it begins")
    return ends[0], ends[1]


def dominant_newline(text: str) -> str:
    """The line end that a text uses most; a line feed where it has none."""
    if "\r" not in text:
        return "\n"
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=lambda newline: counts[newline])
