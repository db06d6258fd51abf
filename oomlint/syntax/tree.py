"""A parsed file: its source, its tree, and the spans of its nodes in the original text."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from oomlint.ast_trees import tree_of
from oomlint.rows import ROW_END, starts_of
from oomlint.source import SourceError
from oomlint.syntax import quick
from oomlint.syntax.positions import Located, Positions
from oomlint.syntax.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.finding import Place
    from oomlint.source import Source
    from oomlint.syntax.positions import Span

# A form feed before code resets the column for Python, and libcst drops it when it writes: cut it away and remember by how much.
_FORM_FEED: Final = re.compile(r"[ \t\f]*\f")
# CPython lets tabs follow spaces as long as the columns agree; libcst does not.
_TABS: Final = re.compile(r"[ \t]*\t[ \t]*")
_OF_STRINGS: Final = frozenset({"STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"})

_MOST_EXPECTED = 4
_BRACKET: Final = re.compile(r"[()\[\]{}]")
_DEEPEST: Final = 1000  # brackets in one another: libcst ends the process at twice as many, and CPython itself refuses 200


class Tree:
    """One file that libcst has read. Its rows are those of :mod:`oomlint.rows`, each ended by a line feed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._shifts: dict[int, int] = {}  # characters that a row has lost on its left, for libcst's sake
        self._stand_ins: dict[cst.CSTNode, cst.CSTNode] = {}
        self._codes: dict[cst.CSTNode, str] = {}  # the same tests are asked for again and again
        self._text = ROW_END.sub("\n", source.text)
        self._parsed_text = self._without_form_feeds() if "\f" in source.text else self._text
        if _depth(self._parsed_text) > _DEEPEST:
            raise SourceError(source.path, "nested too deeply to be parsed")
        try:
            with quick.parsing():
                self.module = self._parse()
        except cst.ParserSyntaxError as error:
            row, column = error.raw_line, error.raw_column + 1
            spot = source.place(row, column, row, column)
            what = "valid Python, but libcst cannot read it" if _is_python(self._text) else "not valid Python 3"
            raise SourceError(source.path, f"{what}: {_cause(error)}", spot.cell, spot.row, spot.column) from None
        except (RecursionError, MemoryError):
            raise SourceError(source.path, "nested too deeply to be parsed") from None
        self.walk = Walk(self.module)

    def _parse(self) -> cst.Module:
        try:
            return cst.parse_module(self._parsed_text)
        except cst.ParserSyntaxError:
            if "\t" not in self._parsed_text:
                raise
            self._parsed_text = self._with_indents(self._parsed_text, _TABS, lambda indent: indent.expandtabs(8))
            return cst.parse_module(self._parsed_text)

    def _without_form_feeds(self) -> str:
        return self._with_indents(self._text, _FORM_FEED, lambda _: "")

    def _with_indents(self, text: str, pattern: re.Pattern[str], change: Callable[[str], str]) -> str:
        """The text with other indents. Rows that begin inside of a string have none, and stay."""
        rows = text.split("\n")
        found = [(row, match) for row, line in enumerate(rows, 1) if (match := pattern.match(line))]
        inside = _rows_inside_strings(text) if found else frozenset()
        for row, match in found:
            if row not in inside:
                indent = change(match[0])
                self._shifts[row] = self._shifts.get(row, 0) + len(match[0]) - len(indent)
                rows[row - 1] = indent + rows[row - 1][match.end() :]
        return "\n".join(rows)

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self.module, self.walk.parents, self._parsed_text)

    @cached_property
    def _all_positions(self) -> dict[cst.CSTNode, Span]:
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        found = wrapper.resolve(PositionProvider)
        return {node: (s.start.line, s.start.column, s.end.line, s.end.column) for node, s in found.items()}

    @cached_property
    def _rendered(self) -> tuple[str, list[int]]:
        """What libcst's positions are about: its own rendering, and where the rows of that begin."""
        code = self.module.code
        return code, starts_of(code)

    @cached_property
    def _starts(self) -> list[int]:
        return starts_of(self._text)

    @cached_property
    def _rows(self) -> dict[int, int] | None:
        """Row in libcst's rendering to row in the file, where the two differ: it drops blank rows, and nothing else."""
        rendered = self._rendered[0]
        if rendered == self._parsed_text:
            return None
        theirs, ours = _written_rows(rendered), _written_rows(self._parsed_text)
        if [line for _, line in theirs] != [line for _, line in ours]:
            raise self._misread(next((own[0] for one, own in zip(theirs, ours, strict=False) if one[1] != own[1]), 1))
        return {row: other for (row, _), (other, _) in zip(theirs, ours, strict=True)}

    def span(self, node: cst.CSTNode) -> tuple[int, int, int, int]:
        """Row, column, end row, end column in the program text: 1-based, in characters, end exclusive.

        SourceError where the file has another text there than the tree: nothing may be said of such a file, and nothing edited in it.
        """
        node = self._stand_ins.get(node, node)
        located = self._positions.of(node) or self._search(node)
        row, column, end_row, end_column = located.span
        column, end_column = column + self._shifts.get(row, 0), end_column + self._shifts.get(end_row, 0)
        known = located.text
        found = self._text[self._starts[row - 1] + column : self._starts[end_row - 1] + end_column] if known else ""
        if known != found and known.split() != found.split():
            raise self._misread(row)
        return row, column + 1, end_row, end_column + 1

    def stand_in(self, call: cst.Call, statement: cst.CSTNode) -> cst.Call:
        """Let a call that nobody wrote, of an operator's method, stand where its statement does."""
        self._stand_ins[call] = statement
        self.walk.parents[call] = self.walk.parents[statement]
        return call

    def _search(self, node: cst.CSTNode) -> Located:
        """Where a node stands, by having libcst write the whole file."""
        first, left, last, right = self._all_positions[node]
        row, end_row = (first, last) if self._rows is None else (self._rows.get(first, first), self._rows.get(last, last))
        code, starts = self._rendered
        return Located((row, left, end_row, right), code[starts[first - 1] + left : starts[last - 1] + right])

    def _misread(self, row: int) -> SourceError:
        spot = self.source.place(row, 1, row, 1)
        return SourceError(self.source.path, "its rows are read in two ways, so that no place in it is certain", spot.cell, spot.row, spot.column)

    def place(self, node: cst.CSTNode, message: str = "") -> Place:
        """Where ``node`` stands in the file, without the parentheses around it."""
        return self.source.place(*self.span(node), message)

    def code(self, node: cst.CSTNode) -> str:
        """The node's code as libcst writes it; the same for the same expression, whatever stands around it."""
        known = self._codes.get(node)
        if known is None:
            # Most are names, which need nobody to write them.
            known = self._codes[node] = node.value if isinstance(node, cst.Name) and not node.lpar else self.module.code_for_node(node)
        return known


def _depth(text: str) -> int:
    """The most brackets that are open at once, those in strings counted, too."""
    if text.count("(") + text.count("[") + text.count("{") <= _DEEPEST:
        return 0
    depth = most = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        most = max(most, depth)
    return most


def _is_python(text: str) -> bool:
    """Whether the interpreter reads what libcst does not, such as a raw f-string that a backslash carries on into the next row."""
    try:
        tree_of(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _cause(error: cst.ParserSyntaxError) -> str:
    message = " ".join(error.message.split())
    expected = re.search(r"expected (.*)$", message)
    if expected is None:
        return message or "invalid syntax"
    # Behind a whole expression any operator could stand: to list them says nothing.
    return f"expected {expected.group(1)}" if expected.group(1).count(",") < _MOST_EXPECTED else "invalid syntax"


def _written_rows(text: str) -> list[tuple[int, str]]:
    """The rows that are not blank, with their numbers."""
    return [(row, line) for row, line in enumerate(text.split("\n"), 1) if line.strip()]


def _rows_inside_strings(text: str) -> frozenset[int]:
    """The rows that begin inside of a string. Of a text that is no program, those up to where that shows."""
    import io  # noqa: PLC0415 - only for rare files
    import tokenize  # noqa: PLC0415

    inside: set[int] = set()
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if tokenize.tok_name[token.type] in _OF_STRINGS:
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
    return frozenset(inside)
