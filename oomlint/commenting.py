"""New comments that silence findings: where each can stand, and what is written there."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import Beside, beside
from oomlint.finding import Edit, Place
from oomlint.rows import ROW_END
from oomlint.suppress import NOWHERE, UNUSED, Suppressions, place_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from oomlint.finding import Finding
    from oomlint.source import Source
    from oomlint.suppress import Comment, Directive, Scan

_OF_SHELL: Final = {Beside.MAKE: re.compile(r"\t"), Beside.DOCKER: re.compile(r"\s*(?:RUN|CMD|ENTRYPOINT)\s+(?![\s\[])", re.IGNORECASE)}


def comments_for(source: Source, findings: Iterable[Finding], reason: str = "") -> list[Edit]:
    """Edits that put ``oomlint: ignore`` comments beside findings, at the end of a row each. For some there may be no such row.

    The row is one that the finding covers, if it can have a comment, else the first or the last one of its logical line. A comment of that form that stands
    there already gets the codes.
    """
    suppressions = Suppressions.from_source(source)
    scan = suppressions.scan
    closed = _without_comments(source) if scan.exact else _closed_beside(source, scan) if beside(source.path) is not None else None
    wanted: dict[int, set[str]] = {}
    for finding in findings:
        first = source.program_row(finding.place)
        line = scan.line_of(first)
        if closed is None or line == NOWHERE or finding.code in {None, UNUSED}:
            continue
        begin, end = scan.lines[line]
        rows = (*range(first, min(first + finding.place.end_row - finding.place.row, end) + 1), end, begin)
        row = next((row for row in rows if row not in closed), None)
        if row is not None:
            wanted.setdefault(row, set()).add(finding.code or "")
    known = {each.comment.row: each for each in suppressions.directives if each.codes and not each.noqa and each.row and not each.comment.alone}
    there = {comment.row: comment for comment in scan.comments}
    return [_beside(source, row, sorted(codes), there.get(row), known.get(row), reason) for row, codes in sorted(wanted.items())]


def _closed_beside(source: Source, scan: Scan) -> set[int]:
    """The same of a file beside the code: rows that go on below, and in Makefiles and Dockerfiles all but those that a shell reads."""
    rows = ROW_END.sub("\n", source.text).split("\n")
    kind = beside(source.path)
    shell = _OF_SHELL.get(kind) if kind is not None else None
    closed = {number for number, row in enumerate(rows, 1) if row.endswith("\\")}
    for first, last in scan.lines:
        if shell is not None and not shell.match(rows[first - 1]):
            closed.update(range(first, last + 1))
    return closed


def _without_comments(source: Source) -> set[int]:
    """The rows of a program that can have no comment at their end: within a string, before a continued row, and those of IPython's own."""
    import tokenize  # noqa: PLC0415 - as above

    text = ROW_END.sub("\n", source.text)
    rows = {row for row, line in enumerate(text.split("\n"), 1) if line.endswith("\\")}
    rows |= {cell.start + mask.row - 1 for cell in source.cells for mask in cell.masks}
    begun: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):  # of an f-string, from Python 3.12 on
            begun.append(token.start[0])
        first = begun.pop() if name.endswith("STRING_END") else token.start[0]
        if "STRING" in name:
            rows.update(range(first, token.end[0]))
    return rows


def _beside(source: Source, row: int, codes: Collection[str], comment: Comment | None, known: Directive | None, reason: str) -> Edit:
    """The comment of a row, with the codes."""
    if known is not None:
        end = known.codes[-1].end
        text = known.comment.text
        return Edit(place_in(source, known, 0, len(text)), f"{text[:end]}{''.join(f', {code}' for code in codes)}{text[end:]}")
    words = f"# oomlint: ignore[{', '.join(codes)}]{' ' if reason else ''}{reason}"
    if comment is not None:
        place = source.place(row, comment.column, row, comment.column + len(comment.text))
        return Edit(place, f"{comment.text.rstrip()}  {words}")
    place = source.place(row, 1, row, 1)
    line = source.line(place.row, place.cell)
    return Edit(Place(place.path, place.cell, place.row, len(line.rstrip(" \t")) + 1, place.row, len(line) + 1), f"  {words}")
