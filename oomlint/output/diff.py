"""Unified diffs of what fixes change, as ``patch -p0`` reads them; of a notebook those of its cells, for people to read."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from oomlint.source import FileKind, kind_of, read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.fixing import Change
    from oomlint.output.view import Line, View

_BETWEEN_BYTES: Final = ("utf-8", "surrogateescape")  # any bytes become text and the same bytes again
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}
_QUOTED: Final = re.compile(r'["\\\x00-\x1f\x7f\ud800-\udfff]')
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def lines(changes: Iterable[Change], view: View) -> Iterator[Line]:
    """The diffs, one after the other, for people."""
    return _lines(changes, view)


def patch(changes: Iterable[Change], view: View) -> bytes:
    """The diffs for a program: the rows of a file are the bytes that are in it."""
    rows = ("".join(text for text, _ in line) + "\n" for line in _lines(changes, view, _BETWEEN_BYTES))
    return "".join(rows).encode(*_BETWEEN_BYTES)


def _lines(changes: Iterable[Change], view: View, codec: tuple[str, str] | None = None) -> Iterator[Line]:
    for change in changes:
        name = _QUOTED.sub(_escaped, view.name(change.path))
        quoted = name != view.name(change.path)
        name = f'"{name}"' if quoted else name
        if kind_of(change.path) is FileKind.PYTHON:
            name += "\t" if " " in name and not quoted else ""  # as git does: without a quote or a tab, the name would end at the space
            yield from _diff(name, *(_rows(data.decode(*(codec or (change.encoding, "replace")))) for data in (change.before, change.after)))
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
    text = text.encode("utf-8", "backslashreplace").decode()  # JSON may hold halves of characters
    return _rows(text if text.endswith("\n") or not text else f"{text}\n")


def _escaped(match: re.Match[str]) -> str:
    """A character of a file's name as git writes it between quotes."""
    character = match[0]
    if character in _ESCAPES:
        return _ESCAPES[character]
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"))
