"""Findings below the name of their file."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from oomlint.finding import Safety
from oomlint.output.concise import told
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View


def lines(findings: Iterable[Finding], view: View, fixable: Collection[Safety] = (Safety.SAFE,)) -> Iterator[Line]:
    """The files, each with its findings, a line each, and an empty line."""
    yield from by_file(((finding, told(finding, fixable)) for finding in findings), view)


def by_file(items: Iterable[tuple[Finding, Line]], view: View) -> Iterator[Line]:
    """The files, each with what is said of its findings."""
    for path, group in groupby(items, key=lambda item: item[0].place.path):
        yield ((f"{visible(view.name(path))}:", "bold"),)
        rows = [(f"{f'cell {item.place.cell}:' if item.place.cell else ''}{item.place.row}:{item.place.column}", line) for item, line in group]
        width = max(len(spot) for spot, _ in rows)
        for spot, line in rows:
            yield ((f"  {spot:<{width}}  ", ""), *line)
        yield ()
