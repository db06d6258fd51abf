"""The whole story of a finding: its code with a caret, the places that its values came through, and its fix as a small diff."""

from __future__ import annotations

import difflib
import unicodedata
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.finding import Safety
from oomlint.output.concise import STYLES, headline
from oomlint.output.view import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Edit, Finding, Place
    from oomlint.output.view import Line, Span, View
    from oomlint.source import Source

TAB: Final = 4  # columns between tab stops
WIDEST: Final = 180  # columns of a source line that are shown
TALLEST: Final = 8  # rows of a span that are shown
_BEFORE: Final = 60  # columns kept to the left of a caret where a line is cut
MOST_RELATED: Final = 3  # places that tell the story of a finding, unless all are asked for
LONGEST: Final = 24  # rows of a fix that are shown, unless all are asked for
_RUN: Final = 3  # rows taken away, put in or kept in between that are shown of each run of a longer one: many fixes indent a body
_NEAR: Final = 2  # rows between edits that are shown as one piece

_FRAME: Final = "blue"
_FIXES: Final = {Safety.SAFE: ("safe fix", "bold green"), Safety.UNSAFE: ("unsafe fix", "bold yellow")}


def lines(findings: Iterable[Finding], view: View, *, every_place: bool = False) -> Iterator[Line]:
    """The findings, with an empty line after each that shows code. Each has a few of its related places and rows of its fix, or ``every_place`` and row."""
    for finding in findings:
        yield headline(finding, view)
        if finding.code is not None:
            yield from _body(finding, view, None if every_place else MOST_RELATED)
            yield ()


def _body(finding: Finding, view: View, most: int | None) -> Iterator[Line]:
    fix, related = finding.fix, finding.related[:most]
    places = [finding.place, *related, *(edit.place for edit in (fix.edits if fix else ()))]
    gutter = _Gutter(len(str(max(place.end_row for place in places) + 1)))
    source = view.source(finding.place.path)
    if finding.consequence:
        yield (("  ", ""), (one_line(finding.consequence), ""))
    if source is not None:
        yield gutter.empty()
        yield from _primary(finding.place, source, gutter, STYLES[finding.severity])
    for place in related:
        yield gutter.empty()
        message = f": {visible(place.message)}" if place.message else ""
        yield gutter.mark(":::", (view.spot(place), "bold"), (message, ""))
        story = view.source(place.path)
        if story is not None:
            yield gutter.empty()
            yield from _underlined(place, story, gutter, "-", "bold blue")
    if len(related) < len(finding.related):
        yield gutter.empty()
        more = len(finding.related) - len(related)
        yield gutter.mark(":::", (f"{more} more related place{'s' if more > 1 else ''} (--verbose)", ""))
    if finding.help:
        yield gutter.empty()
        safety = _FIXES.get(fix.safety) if fix is not None and fix.edits else None
        label = ((" (", ""), safety, (")", "")) if safety else ()
        yield gutter.mark("=", ("help", "bold cyan"), (f": {one_line(finding.help)}", ""), *label)
    if fix is not None:
        rows = list(_diff(fix.edits, finding.place, view, gutter))
        if most is None or len(rows) <= LONGEST:
            yield from rows
        else:
            yield from islice(_diff(fix.edits, finding.place, view, gutter, _RUN), LONGEST)
            yield gutter.under(("... all rows of the fix: --verbose", _FRAME))


class _Gutter:
    """The column of row numbers on the left."""

    def __init__(self, digits: int) -> None:
        self.blank = " " * digits

    def empty(self) -> Line:
        """A row of the frame alone."""
        return ((f"{self.blank} |", _FRAME),)

    def row(self, number: int, *spans: Span, bar: Span = ("|", _FRAME)) -> Line:
        """A row of source."""
        return ((f"{number:>{len(self.blank)}} ", _FRAME), bar, *_trimmed((" ", ""), *spans))

    def under(self, *spans: Span) -> Line:
        """What stands below a row of source."""
        return ((f"{self.blank} |", _FRAME), *_trimmed((" ", ""), *spans))

    def mark(self, sign: str, *spans: Span) -> Line:
        """A row that begins something new."""
        return ((f"{self.blank} ", ""), (sign, _FRAME), (" ", ""), *spans)


def _trimmed(*spans: Span) -> tuple[Span, ...]:
    """The spans without blanks at the end of the line."""
    kept = list(spans)
    while kept and not kept[-1][0].strip():
        kept.pop()
    if kept:
        kept[-1] = (kept[-1][0].rstrip(), kept[-1][1])
    return tuple(kept)


# -- code with carets --------------------------------------------------------------------------------------------


def _primary(place: Place, source: Source, gutter: _Gutter, style: str) -> Iterator[Line]:
    """The rows of a span, underlined or, where there are several, bracketed."""
    if place.end_column == 1 and place.end_row > place.row:
        above = place.end_row - 1  # it ends with the line end of the row above
        place = replace(place, end_row=above, end_column=len(source.line(above, place.cell)) + 1)
    if place.end_row <= place.row:
        yield from _underlined(place, source, gutter, "^", style)
        return
    first = _Row(source.line(place.row, place.cell))
    rows: list[int | None] = list(range(place.row + 1, place.end_row + 1))
    if len(rows) >= TALLEST:
        rows = [*rows[: TALLEST - 3], None, rows[-1]]
    if source.line(place.row, place.cell)[: place.column - 1].strip():
        yield gutter.row(place.row, ("  ", ""), (first.cut(), ""))
        yield gutter.under((" " + "_" * (min(first.column(place.column), WIDEST) + 1) + "^", style))
    else:
        yield gutter.row(place.row, ("/ ", style), (first.cut(), ""))
    for number in rows:
        if number is None:
            yield gutter.under(("| ...", style))
        else:
            yield gutter.row(number, ("| ", style), (_Row(source.line(number, place.cell)).cut(), ""))
    last = _Row(source.line(place.end_row, place.cell))
    yield gutter.under(("|" + "_" * min(max(last.column(place.end_column), 1), WIDEST) + "^", style))


def _underlined(place: Place, source: Source, gutter: _Gutter, sign: str, style: str) -> Iterator[Line]:
    """One row, with a line of signs below the span. Where the span goes on below, it is underlined to the end of the row."""
    text = source.line(place.row, place.cell)
    row = _Row(text)
    start = row.column(place.column)
    end = row.column(place.end_column if place.end_row == place.row else len(text.rstrip()) + 1)
    left = start - _BEFORE if row.width > WIDEST and start > WIDEST - _BEFORE else 0
    shown, left = row.window(left)
    yield gutter.row(place.row, (shown, ""))
    yield gutter.under((" " * (start - left), ""), (sign * max(1, min(end, left + WIDEST) - start), style))


class _Row:
    """A row of source as a terminal shows it: tabs as blanks, wide characters in two columns, nothing that moves the cursor."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._columns = [0]
        for char in visible(text):
            shown, width = char, 1
            if char == "\t":
                width = TAB - self._columns[-1] % TAB
                shown = " " * width
            elif char > "\x7f":
                width = _width(char)
            parts.append(shown)
            self._columns.append(self._columns[-1] + width)
        self._parts = parts

    @property
    def width(self) -> int:
        """Columns of the whole row."""
        return self._columns[-1]

    def column(self, column: int) -> int:
        """The 0-based column on the screen of a 1-based character."""
        return self._columns[min(max(column, 1), len(self._columns)) - 1]

    def cut(self) -> str:
        """The beginning of the row."""
        return self.window(0)[0]

    def window(self, left: int) -> tuple[str, int]:
        """What is shown from column ``left`` on, and the column that it really begins at."""
        begin = next((n for n, column in enumerate(self._columns) if column >= left), 0)
        left = self._columns[begin]
        end = next((n for n, column in enumerate(self._columns) if column > left + WIDEST), len(self._columns)) - 1
        text = "".join(self._parts[begin:end])
        if begin:
            text = "..." + text[3:]
        return (text + " ..." if end < len(self._parts) else text), left


def _width(char: str) -> int:
    """Columns that a terminal gives a character."""
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# -- the fix -----------------------------------------------------------------------------------------------------


def _diff(edits: Sequence[Edit], primary: Place, view: View, gutter: _Gutter, most: int | None = None) -> Iterator[Line]:
    """The edits as rows taken away and put in, at the ``most`` so many in a run. Another file, and another cell, is named."""
    by_file: dict[tuple[str, int], list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: ((edit.place.path, edit.place.cell) != (primary.path, primary.cell), edit.place)):
        by_file.setdefault((edit.place.path, edit.place.cell), []).append(edit)
    for (path, cell), items in by_file.items():
        source = view.source(path)
        if source is None:
            continue
        yield gutter.empty()
        if (path, cell) != (primary.path, primary.cell):
            yield gutter.mark(":::", (view.spot(items[0].place), "bold"))
            yield gutter.empty()
        shift = 0
        for number, piece in enumerate(_pieces(items)):
            if number:
                yield gutter.under(("...", _FRAME))
            first, last = piece[0].place.row, max(edit.place.end_row for edit in piece)
            old = [source.line(row, cell) for row in range(first, last + 1)]
            new = _patched(old, first, piece)
            yield from _rows(old, new, first, shift, gutter, most)
            shift += len(new) - len(old)


def _pieces(edits: Sequence[Edit]) -> Iterator[list[Edit]]:
    """Edits that stand close together."""
    piece: list[Edit] = []
    for edit in edits:
        if piece and edit.place.row > max(item.place.end_row for item in piece) + _NEAR:
            yield piece
            piece = []
        piece.append(edit)
    if piece:
        yield piece


def _patched(rows: Sequence[str], first: int, edits: Sequence[Edit]) -> list[str]:
    """Rows of a file, the first of which has number ``first``, with the edits made."""
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row) + 1)
    text = "\n".join(rows)
    for edit in sorted(edits, key=lambda edit: edit.place, reverse=True):
        place = edit.place
        start, end = starts[place.row - first] + place.column - 1, starts[place.end_row - first] + place.end_column - 1
        text = text[:start] + edit.content + text[end:]
    return text.split("\n")


def _rows(old: Sequence[str], new: Sequence[str], first: int, shift: int, gutter: _Gutter, most: int | None) -> Iterator[Line]:
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = range(a, b if tag != "equal" else a), range(c, d)
        bar, style = (("+", "green"), "green") if tag != "equal" else (("|", _FRAME), "")
        for number in gone[:most]:
            yield gutter.row(first + number, (_Row(old[number]).cut(), "red"), bar=("-", "red"))
        if gone[:most] != gone:
            yield gutter.under(("...", _FRAME))
        for number in come[:most]:
            yield gutter.row(first + shift + number, (_Row(new[number]).cut(), style), bar=bar)
        if come[:most] != come:
            yield gutter.under(("...", _FRAME))
