"""Unified diffs of what fixes change, as ``patch -p0`` reads them; of a notebook those of its cells, for people to read."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from oomlint.source import Kind, kind_of, read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.fixing import Change
    from oomlint.output.view import Line, View

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def lines(changes: Iterable[Change], view: View) -> Iterator[Line]:
    """The diffs, one after the other."""
    for change in changes:
        name = view.name(change.path)
        if kind_of(change.path) is Kind.PYTHON:
            yield from _diff(name, *(_rows(data.decode(change.encoding, "replace")) for data in (change.before, change.after)))
            continue
        before, after = ({cell.number: cell.source for cell in read_source(change.path, data).cells} for data in (change.before, change.after))
        for number, text in before.items():
            yield from _diff(f"{name}:cell {number}", _cell_rows(text), _cell_rows(after.get(number, "")))


def _diff(name: str, before: list[str], after: list[str]) -> Iterator[Line]:
    for number, row in enumerate(difflib.unified_diff(before, after, name, name)):
        if number < 2:  # noqa: PLR2004 - the two rows that name the file
            yield ((row.removesuffix("\n"), "bold"),)
            continue
        yield ((row.removesuffix("\n"), _STYLES.get(row[0], "")),)
        if not row.endswith("\n"):
            yield (("\\ No newline at end of file", ""),)


def _rows(text: str) -> list[str]:
    """Rows with their line ends. Only a line feed ends a row of a patch; a carriage return stays in it as it is in the file."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _cell_rows(text: str) -> list[str]:
    """Rows of a cell, the last one with a line end too: whether it has one there says nothing."""
    return _rows(text if text.endswith("\n") or not text else f"{text}\n")
