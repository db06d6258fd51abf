"""Edits of cells, written into the JSON of the notebook: only the rows that change are spelt again, in the style of the file.

What is IPython's own comes back as it was, and a cell that is a program on its own stays one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from oomlint.notebooks.cells import NotebookError, readable
from oomlint.notebooks.magics import as_python
from oomlint.notebooks.spans import written_sources
from oomlint.rows import ROW_END, row_of, starts_of
from oomlint.untouched import Code, HarmError, check, mistake_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oomlint.notebooks.cells import Cell
    from oomlint.notebooks.magics import CellProgram
    from oomlint.notebooks.spans import CellSource
    from oomlint.untouched import Replacement

_ESCAPED: Final = re.compile(r"(\\+)u(?!00[0-7])[0-9a-fA-F]{4}")  # of what is not ASCII; with two backslashes the first escapes the second


def edited(raw: str, cells: Iterable[Cell], wanted: Mapping[int, Sequence[Replacement]]) -> str:
    """The JSON of a notebook with the replacements made, which are in order and do not overlap. Raises NotebookError where one must not be made."""
    for cell in cells:
        if cell.number in wanted:
            _refuse_harm(cell, wanted[cell.number])
    ascii_only = any(not content.isascii() for items in wanted.values() for _, _, content in items) and _writes_ascii(raw)
    pieces: list[Replacement] = []  # of the JSON
    for number, written in written_sources(raw, set(wanted)).items():
        pieces += _pieces(raw, number, written, wanted[number], ascii_only=ascii_only)
    return replaced(raw, pieces)


def replaced(text: str, replacements: Iterable[Replacement]) -> str:
    """A text with the replacements made, which are in order."""
    parts: list[str] = []
    index = 0
    for start, end, content in replacements:
        parts += (text[index:start], content)
        index = end
    return "".join([*parts, text[index:]])


# -- what must not be done ------------------------------------------------------------------------------------------------


def _refuse_harm(cell: Cell, replacements: Sequence[Replacement]) -> None:
    """Raise NotebookError for what changes more of a cell than its Python."""
    source = replaced(cell.source, replacements)
    before, after = as_python(cell.source), as_python(source)
    if before.magic != after.magic:
        raise NotebookError(f"it would stand before `%%{before.magic}`, which must come first" if before.magic else "it would make a magic of the cell")
    if before.indent != after.indent and source.strip():
        raise NotebookError("it would change how the cell is indented")
    lost = next((row for row, other in zip(*_masked(cell.source, before, source, after), strict=True) if row != other), None)
    if lost is not None:
        raise NotebookError(f"it would change the line `{lost.strip()}`, which is IPython's own" if lost else "it would add a line that is IPython's own")
    if mistake_in(after.text) is not None and mistake_in(before.text) is None:
        raise NotebookError("the cell would not parse on its own")
    try:
        check(_code(cell.source, before), _code(source, after), replacements)
    except HarmError as error:
        raise NotebookError(str(error)) from None


def _code(source: str, program: CellProgram) -> Code:
    rows = ROW_END.split(source)
    indents = tuple(len(program.indent) if row.startswith(program.indent) else 0 for row in rows) if program.indent else ()
    return Code(program.text, source, indents)


def _masked(source: str, program: CellProgram, other_source: str, other: CellProgram) -> tuple[list[str], list[str]]:
    """The rows of two sources that are IPython's, as many of each: a row that is missing is empty."""
    rows = [row_of(source, mask.row) for mask in program.masks]
    others = [row_of(other_source, mask.row) for mask in other.masks]
    return rows + [""] * (len(others) - len(rows)), others + [""] * (len(rows) - len(others))


# -- the JSON -------------------------------------------------------------------------------------------------------------


def _writes_ascii(raw: str) -> bool:
    """Whether the file escapes what is not ASCII."""
    return raw.isascii() and any(len(match[1]) % 2 for match in _ESCAPED.finditer(raw))


def _pieces(raw: str, number: int, written: CellSource, replacements: Sequence[Replacement], *, ascii_only: bool) -> list[Replacement]:
    """What changes in the JSON: the strings that the replacements touch, and where rows come and go, what stands between them."""
    parts = written.parts
    if readable("".join(part.text for part in parts)) != "".join(part.text for part in parts) and any("\ufffd" in content for _, _, content in replacements):
        raise NotebookError(f"cell {number} holds half a pair of surrogates, which the fix would copy wrongly")
    found: list[Replacement] = []
    for first, last, strings in _runs(written, replacements, ascii_only=ascii_only):
        start, end = parts[first].start, parts[last].end
        if not strings and first == 0 and last == len(parts) - 1:
            start, end = written.start + 1, written.end - 1
        elif not strings and last + 1 < len(parts):
            end = parts[last + 1].start
        elif not strings:
            start = parts[first - 1].end
        found.append((start, end, _separator(raw, written, first).join(f'"{string}"' for string in strings)))
    return found


def _separator(raw: str, written: CellSource, index: int) -> str:
    """What stands between the strings of a list, as close to one of them as can be."""
    parts = written.parts
    if len(parts) > 1:
        index = min(index, len(parts) - 2)
        return raw[parts[index].end : parts[index + 1].start]
    lead = raw[written.start + 1 : parts[0].start]
    if "\n" in lead or "\r" in lead:
        return f",{lead}"
    return ", " if raw[written.start - 1].isspace() else ","  # as the file puts a blank behind its colons, or none


def _runs(written: CellSource, replacements: Sequence[Replacement], *, ascii_only: bool) -> Iterator[tuple[int, int, list[str]]]:
    """First and last of the strings that change side by side, and those that take their place, spelt as JSON."""
    parts = written.parts
    text = "".join(part.text for part in parts)
    letters = [letter for part in parts for letter in part.letters]
    starts = [0, *accumulate(len(part.text) for part in parts)]

    def holder(index: int) -> int:
        return min(bisect_right(starts, index), len(parts)) - 1

    touched: set[int] = set()
    for start, end, _ in replacements:
        # A row that may have lost its end goes on in the next string.
        last = holder(end) if text[end - 1 : end] in {"\n", "\r"} and end > start else holder(max(start, end - 1))
        touched.update(range(holder(start), last + 1))
    for first in sorted(touched - {index + 1 for index in touched}):
        last = next(index for index in range(first, len(parts)) if index + 1 not in touched)
        begin, stop = starts[first], starts[last + 1]
        new_text, new_letters = "", []
        for start, end, content in (item for item in replacements if first <= holder(item[0]) <= last):
            new_text += text[begin:start] + content
            new_letters += letters[begin:start] + [json.dumps(character, ensure_ascii=ascii_only)[1:-1] for character in content]
            begin = end
        new_text += text[begin:stop]
        new_letters += letters[begin:stop]
        yield first, last, _strings(new_text, new_letters) if written.listed else ["".join(new_letters)]


def _strings(text: str, letters: Sequence[str]) -> list[str]:
    """The rows of a text, each spelt as JSON."""
    starts = starts_of(text)
    return [spelt for begin, end in pairwise([*starts, len(text)]) if (spelt := "".join(letters[begin:end]))]
