"""Where a place stands in the bytes of its file: also of a notebook, whose cells are strings of a JSON document."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from oomlint.notebooks.spans import written_sources
from oomlint.rows import ROW_END
from oomlint.source import FileKind

if TYPE_CHECKING:
    from oomlint.finding import Place
    from oomlint.output.view import View
    from oomlint.source import Source


class Span(NamedTuple):
    """Characters of a file's text, and its bytes."""

    start: int
    end: int
    byte_start: int
    byte_end: int


def physical(place: Place, view: View) -> Place:
    """The place with rows and columns of the file itself. What cannot be found there is the beginning of the file."""
    if not place.cell:
        return place
    source = view.source(place.path)
    found = _in_notebook(source, place) if source is not None else None
    if source is None or found is None:
        return replace(place, cell=0, row=1, column=1, end_row=1, end_column=1)
    raw = _raw(source)
    start, end = (_row_and_column(raw, index) for index in found)
    return replace(place, cell=0, row=start[0], column=start[1], end_row=end[0], end_column=end[1])


def span(place: Place, view: View) -> Span | None:
    """The characters and bytes that a place covers; ``None`` where the file cannot be read any more, or has no such place."""
    source = view.source(place.path)
    if source is None:
        return None
    if source.kind is FileKind.NOTEBOOK:
        found, raw = _in_notebook(source, place), _raw(source)
        mark = len(source.data) - len(raw.encode())
        return None if found is None else Span(*found, *(mark + len(raw[:index].encode()) for index in found))
    try:
        return Span(*source.span(place), *source.offsets(place))
    except ValueError:
        return None


def _in_notebook(source: Source, place: Place) -> tuple[int, int] | None:
    """The characters of the JSON that spell those of a cell."""
    try:
        start, end = source.offsets(place)
        parts = written_sources(_raw(source), {place.cell})[place.cell].parts
    except (ValueError, LookupError):
        return None
    begins: list[int] = []
    ends: list[int] = []
    for part in parts:
        bounds = list(accumulate(map(len, part.letters), initial=part.start + 1))
        begins += bounds[:-1]
        ends += bounds[1:]
    if not begins:
        return None
    first = begins[start] if start < len(begins) else ends[-1]
    return first, first if end == start else ends[end - 1]


def _raw(source: Source) -> str:
    return source.data.decode("utf-8-sig")


def _row_and_column(text: str, index: int) -> tuple[int, int]:
    rows = ROW_END.split(text[:index])
    return len(rows), len(rows[-1]) + 1
