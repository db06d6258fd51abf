"""Lines as pylint writes them, which many tools read: ``path:row: [OOM101(name)] message``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.output.physical import physical
from oomlint.output.view import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.view import View


def rows(findings: Iterable[Finding], view: View, remark: Callable[[Finding], Remark | None] = lambda _: None) -> Iterator[str]:
    """The findings, each on a line. Of a notebook the row is that of its JSON."""
    for item in findings:
        place = item.place
        name = f"{item.code}({item.name})" if item.code else item.name
        cell = f"cell {place.cell}, {place.row}:{place.column}: " if place.cell else ""
        said = remark(item)
        message = one_line(f"{item.message}{f' ({said.title})' if said else ''}")
        yield f"{visible(view.name(place.path))}:{physical(place, view).row}: [{name}] {cell}{message}"
