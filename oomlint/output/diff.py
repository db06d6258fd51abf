"""Unified diffs of what fixes change, as ``patch -p0`` reads them."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.fixing import Change
    from oomlint.output.view import Line, View

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def lines(changes: Iterable[Change], view: View) -> Iterator[Line]:
    """The diffs, one after the other."""
    for change in changes:
        name = view.name(change.path)
        before, after = _rows(change.before, change.encoding), _rows(change.after, change.encoding)
        for number, row in enumerate(difflib.unified_diff(before, after, name, name)):
            if number < 2:  # noqa: PLR2004 - the two rows that name the file
                yield ((row.removesuffix("\n"), "bold"),)
                continue
            yield ((row.removesuffix("\n"), _STYLES.get(row[0], "")),)
            if not row.endswith("\n"):
                yield (("\\ No newline at end of file", ""),)


def _rows(data: bytes, encoding: str) -> list[str]:
    """Rows with their line ends. Only a line feed ends a row of a patch; a carriage return stays in it as it is in the file."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode(encoding, "replace"))
