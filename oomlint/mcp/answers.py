"""What a tool answers: JSON that is never larger than a reader can take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST: Final = 40_000  # characters of an answer
_TEXT: Final = 2_000  # characters of one text in what is too large as it is
_ITEMS: Final = 8  # entries of one list in it


def bounded(name: str, entries: Sequence[dict[str, Any]], limit: int, most: int = MOST) -> str:
    """An object with the first of the entries, at most ``limit`` and as many as there is room for, and with how many there are in all."""
    shown: list[dict[str, Any]] = []
    room = most - 200
    for entry in entries[: max(limit, 0)]:
        if len(json.dumps(entry)) > most // 2:
            entry = {**_cut(entry), "cut": True}  # noqa: PLW2901 - the same entry, with less in it
        room -= len(json.dumps(entry)) + 2
        if room < 0:
            break
        shown.append(entry)
    left = len(entries) - len(shown)
    answer: dict[str, Any] = {"total": len(entries), name: shown}
    if left:
        answer["left_out"] = left
        answer["hint"] = "name fewer paths, or select rules, to see the others"
    return json.dumps(answer)


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value[:_ITEMS]]
    return value[:_TEXT] + "..." if isinstance(value, str) and len(value) > _TEXT else value
