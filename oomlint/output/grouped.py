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
    for path, group in groupby(findings, key=lambda item: item.place.path):
        yield ((f"{visible(view.name(path))}:", "bold"),)
        items = [(f"{f'cell {item.place.cell}:' if item.place.cell else ''}{item.place.row}:{item.place.column}", item) for item in group]
        width = max(len(spot) for spot, _ in items)
        for spot, item in items:
            yield ((f"  {spot:<{width}}  ", ""), *told(item, fixable))
        yield ()
