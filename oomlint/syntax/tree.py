"""A parsed file: its source, its tree, and the spans of its nodes in the original text."""

from __future__ import annotations

import difflib
import re
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from oomlint.source import SourceError
from oomlint.syntax.walk import Walk

if TYPE_CHECKING:
    from oomlint.finding import Place
    from oomlint.source import Source

# A form feed before code resets the column for Python, and libcst drops it when it writes: cut it away and remember by how much.
_INDENT = re.compile(r"(?m)^[ \t]*\t[ \t]*")
_FORM_FEED = re.compile(r"(?m)^[ \t\f]*\f")


class Tree:
    """One file that libcst has read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._shifts: dict[int, int] = {}
        self._codes: dict[cst.CSTNode, str] = {}  # the same tests are asked for again and again
        text = source.text
        if "\f" in text:
            text = _FORM_FEED.sub(self._cut, text)
        self._parsed_text = text
        try:
            self.module = self._parse(text)
        except cst.ParserSyntaxError as error:
            row, column = error.raw_line, error.raw_column + 1
            spot = source.place(row, column, row, column)
            raise SourceError(source.path, f"not valid Python 3: {_cause(error)}", spot.cell, spot.row, spot.column) from None
        except (RecursionError, MemoryError):
            raise SourceError(source.path, "nested too deeply to be parsed") from None
        self.walk = Walk(self.module)

    def _parse(self, text: str) -> cst.Module:
        try:
            return cst.parse_module(text)
        except cst.ParserSyntaxError:
            # CPython lets tabs follow spaces as long as the columns agree; libcst does not.
            if "\t" not in text:
                raise
            self._parsed_text = _INDENT.sub(self._expand, text)
            return cst.parse_module(self._parsed_text)

    def _expand(self, match: re.Match[str]) -> str:
        row = match.string.count("\n", 0, match.start()) + 1
        wide = match.group().expandtabs(8)
        self._shifts[row] = self._shifts.get(row, 0) + len(match.group()) - len(wide)
        return wide

    def _cut(self, match: re.Match[str]) -> str:
        row = match.string.count("\n", 0, match.start()) + 1
        self._shifts[row] = match.end() - match.start()
        return ""

    @cached_property
    def _positions(self) -> dict[cst.CSTNode, tuple[int, int, int, int]]:
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        found = wrapper.resolve(PositionProvider)
        return {node: (s.start.line, s.start.column, s.end.line, s.end.column) for node, s in found.items()}

    @cached_property
    def _rows(self) -> dict[int, int] | None:
        """Row in libcst's rendering to row in the file, where the two differ."""
        rendered = self.module.code
        if rendered == self._parsed_text:
            return None
        ours, theirs = re.split(r"\r\n|\r|\n", rendered), re.split(r"\r\n|\r|\n", self._parsed_text)
        rows: dict[int, int] = {}
        for block in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            rows.update({block.a + n + 1: block.b + n + 1 for n in range(block.size)})
        return rows

    def span(self, node: cst.CSTNode) -> tuple[int, int, int, int]:
        """Row, column, end row, end column in the program text: 1-based, in characters, end exclusive."""
        row, column, end_row, end_column = self._positions[node]
        if self._rows is not None:
            row, end_row = self._rows.get(row, row), self._rows.get(end_row, end_row)
        column += self._shifts.get(row, 0)
        end_column += self._shifts.get(end_row, 0)
        return row, column + 1, end_row, end_column + 1

    def place(self, node: cst.CSTNode, message: str = "") -> Place:
        """Where ``node`` stands in the file, without the parentheses around it."""
        return self.source.place(*self.span(node), message)

    def code(self, node: cst.CSTNode) -> str:
        """The node's code as libcst writes it; the same for the same expression, whatever stands around it."""
        known = self._codes.get(node)
        if known is None:
            known = self._codes[node] = self.module.code_for_node(node)
        return known


def _cause(error: cst.ParserSyntaxError) -> str:
    message = " ".join(error.message.split())
    expected = re.search(r"expected (one of .*|.*)$", message)
    return f"expected {expected.group(1)}" if expected else (message or "syntax error")
