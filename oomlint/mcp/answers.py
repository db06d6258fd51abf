"""What a tool answers: JSON that is never larger than a reader can take."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST: Final = 40_000  # characters of an answer
_TEXT: Final = 2_000  # characters of one text in what is too large as it is
_ITEMS: Final = 8  # entries of one list in it


def bounded(name: str, entries: Sequence[dict[str, Any]], limit: int, most: int = MOST, warnings: Sequence[str] = ()) -> str:
    """An object with the first of the entries, at most ``limit`` and as many as there is room for, and with how many there are in all and of each severity.

    ``warnings`` are what the command has said beside them, as far as it said anything.
    """
    shown: list[dict[str, Any]] = []
    told = [_cut(warning) for warning in warnings[:_ITEMS]]
    room = most - 300 - len(json.dumps(told))
    for entry in entries[: max(limit, 0)]:
        if len(json.dumps(entry)) > most // 2:
            entry = {**_cut(entry), "cut": True}  # noqa: PLW2901 - the same entry, with less in it
        room -= len(json.dumps(entry)) + 2
        if room < 0:
            break
        shown.append(entry)
    left = len(entries) - len(shown)
    severities = Counter(entry["severity"] for entry in entries if "severity" in entry)
    answer: dict[str, Any] = {"total": len(entries), **({"severities": severities} if severities else {}), name: shown}
    if told:
        answer["warnings"] = told
    if left:
        answer["left_out"] = left
        answer["hint"] = "name fewer paths, select rules, or ask for a higher severity, to see the others"
    return json.dumps(answer)


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value[:_ITEMS]]
    return value[:_TEXT] + "..." if isinstance(value, str) and len(value) > _TEXT else value
