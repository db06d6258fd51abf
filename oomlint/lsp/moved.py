"""Where findings stand after an edit, as long as nothing newer is known: while a program does not parse, what was found before it broke stays."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Finding, Place


def moved(findings: Iterable[Finding], path: str, before: str, after: str) -> Iterator[Finding]:
    """The findings of a file whose rows are as they were, where these are now. They have no fix until they are found again."""
    blocks = SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False).get_matching_blocks()
    rows = {block.a + number + 1: block.b + number + 1 for block in blocks for number in range(block.size)}

    def place_of(place: Place) -> Place | None:
        if place.path != path:
            return place
        found = [rows.get(row) for row in range(place.row, place.end_row + 1)]
        start = found[0]
        if start is None or found != list(range(start, start + len(found))):
            return None
        return replace(place, row=start, end_row=start + len(found) - 1)

    for finding in findings:
        here = place_of(finding.place)
        if here is not None:
            related = tuple(found for place in finding.related if (found := place_of(place)) is not None)
            yield replace(finding, place=here, related=related, fix=None)
