"""Lines as pylint writes them, which many tools read: ``path:row: [OOM101(name)] message``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.output.physical import physical
from oomlint.output.view import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View


def lines(findings: Iterable[Finding], view: View) -> Iterator[Line]:
    """The findings, each on a line. Of a notebook the row is that of its JSON."""
    for item in findings:
        place = item.place
        name = f"{item.code}({item.name})" if item.code else item.name
        cell = f"cell {place.cell}, {place.row}:{place.column}: " if place.cell else ""
        message = one_line(item.message)
        yield ((f"{visible(view.name(place.path))}:{physical(place, view).row}: [{name}] {cell}{message}", ""),)
