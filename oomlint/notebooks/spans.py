"""Where the sources of the cells stand in the JSON of a notebook, and how each of their characters is written there.

What is read here has been read by ``json.loads`` before, and every value is read by the same decoder again: what it skips, it skips exactly.
Of keys that an object has twice the last one counts, as it does for everyone who reads notebooks.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_LETTER: Final = re.compile(  # one character: a pair of surrogates, another escape, or the character itself
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


class Literal(NamedTuple):
    """A string of the JSON: its span, quotes included, and the spelling of each of its characters."""

    start: int
    end: int
    text: str
    letters: list[str]


class CellSource(NamedTuple):
    """The source of a cell: its span in the JSON, and the strings that it consists of."""

    start: int
    end: int
    listed: bool  # a list of strings, a row each as a rule; else one string
    parts: list[Literal]


def written_sources(raw: str, numbers: set[int]) -> dict[int, CellSource]:
    """The sources of the cells with these numbers (1-based, over all cells) in the JSON of a notebook that has been read."""
    return {number: _written(raw, start) for number, start in enumerate(_cells(raw), 1) if number in numbers}


def _cells(raw: str) -> list[int]:
    """Where the cells begin."""
    top = _members(raw, _behind_space(raw, 0))
    start = top.get("cells")
    if start is not None and raw[start] == "[":
        return _items(raw, start)
    sheets = [_members(raw, sheet) for sheet in _items(raw, top["worksheets"]) if raw[sheet] == "{"]
    listed = [sheet["cells"] for sheet in sheets if "cells" in sheet and raw[sheet["cells"]] == "["]
    return [cell for cells in listed for cell in _items(raw, cells)]


def _written(raw: str, cell: int) -> CellSource:
    members = _members(raw, cell)
    start = members["source" if "source" in members else "input"]
    listed = raw[start] == "["
    return CellSource(start, _end(raw, start), listed, [_literal(raw, part) for part in (_items(raw, start) if listed else [start])])


def _literal(raw: str, start: int) -> Literal:
    text, end = _DECODER.raw_decode(raw, start)
    return Literal(start, end, text, _LETTER.findall(raw, start + 1, end - 1))


def _members(raw: str, start: int) -> dict[str, int]:
    """Where the values of an object begin, by their keys."""
    found: dict[str, int] = {}
    index = _behind_space(raw, start + 1)
    while raw[index] != "}":
        key, index = _DECODER.raw_decode(raw, index)
        index = _behind_space(raw, _behind_space(raw, index) + 1)  # the colon
        found[key] = index
        index = _behind_value(raw, index)
    return found


def _items(raw: str, start: int) -> list[int]:
    """Where the items of an array begin."""
    found: list[int] = []
    index = _behind_space(raw, start + 1)
    while raw[index] != "]":
        found.append(index)
        index = _behind_value(raw, index)
    return found


def _behind_value(raw: str, start: int) -> int:
    """The beginning of what follows a value of an object or array, or the bracket that ends it."""
    index = _behind_space(raw, _end(raw, start))
    return _behind_space(raw, index + 1) if raw[index] == "," else index


def _end(raw: str, start: int) -> int:
    return _DECODER.raw_decode(raw, start)[1]


def _behind_space(raw: str, start: int) -> int:
    match = _SPACE.match(raw, start)
    return match.end() if match else start
