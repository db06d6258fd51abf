"""Where the nodes of a tree stand, found for the nodes that are asked for.

libcst knows positions only after it has written the whole file once more. CPython's parser gives the statements' positions at once; libcst then writes the
one statement that a node belongs to, without the blocks below it.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState

from oomlint.ast_trees import tree_of
from oomlint.rows import starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Span = tuple[int, int, int, int]  # row from 1, column from 0, end row, end column; in characters, end exclusive

_BLOCKS: Final = (cst.Module, cst.IndentedBlock)
# Statements that CPython gives a position, by its name for them.
_COMPOUND: Final[Mapping[type, tuple[str, ...]]] = {
    cst.FunctionDef: ("FunctionDef", "AsyncFunctionDef"),
    cst.ClassDef: ("ClassDef",),
    cst.For: ("For", "AsyncFor"),
    cst.While: ("While",),
    cst.If: ("If",),
    cst.With: ("With", "AsyncWith"),
    cst.Try: ("Try",),
    cst.TryStar: ("TryStar",),
    cst.Match: ("Match",),
    cst.ExceptHandler: ("ExceptHandler",),
    cst.ExceptStarHandler: ("ExceptHandler",),
}


class Located(NamedTuple):
    """Where a node stands, and what libcst writes there; that is empty for a statement with a block below it."""

    span: Span
    text: str


class _EndError(Exception):
    """The header of a statement is written; its block follows."""


class _State(CodegenState):
    """Notes where nodes begin and end while libcst writes them, from row 1."""

    def __init__(self, module: cst.Module, indents: Sequence[str]) -> None:
        super().__init__(default_indent=module.default_indent, default_newline=module.default_newline, indent_tokens=list(indents))
        self.begins: dict[cst.CSTNode, int] = {}  # offsets in what is written
        self.ends: dict[cst.CSTNode, int] = {}
        self._open: list[int] = []
        self._size = 0

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self._size += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        if type(node) is cst.IndentedBlock:
            raise _EndError
        self._open.append(self._size)

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._open.pop()
        if node not in self.ends:
            self.begins[node], self.ends[node] = start, self._size

    @contextmanager
    def record_syntactic_position(self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None) -> Iterator[None]:
        self.begins[node] = self._size
        yield  # where the block below is left out, an exception comes through here
        if start_node is not None:
            self.begins[node] = self.begins[start_node]
        self.ends[node] = self._size if end_node is None else self.ends[end_node]


class Positions:
    """Positions in one tree. ``text`` is what libcst has read."""

    def __init__(self, module: cst.Module, parents: Mapping[cst.CSTNode, cst.CSTNode], text: str) -> None:
        self._module = module
        self._parents = parents
        self._lines = text.split("\n")
        self._known: dict[cst.CSTNode, Located] = {}
        self._blocks: dict[cst.CSTNode, dict[cst.CSTNode, ast.AST] | None] = {}
        self._parsed: ast.Module | None = None
        try:
            self._parsed = tree_of(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # newer than this interpreter, say
            return

    def of(self, node: cst.CSTNode) -> Located | None:
        """Where a node stands. ``None`` where CPython and libcst do not agree, or one of them cannot tell."""
        known = self._known.get(node)
        if known is None and self._parsed is not None:
            owner: cst.CSTNode | None = node
            while owner is not None and type(owner) is not cst.SimpleStatementLine and type(owner) not in _COMPOUND:
                if type(owner) in {cst.Else, cst.Finally, cst.MatchCase, cst.IndentedBlock}:
                    return None
                owner = self._parents.get(owner)
            if owner is not None:
                self._write(owner)
                known = self._known.get(node)
        return known

    def _write(self, owner: cst.CSTNode) -> None:
        """Have libcst write a statement, and note where the nodes in it are."""
        anchor = self._read(owner)
        if anchor is None:
            return
        state = _State(self._module, self._indents(owner))
        try:
            if self._is_elif(owner):
                owner._codegen(state, is_elif=True)  # noqa: SLF001 - libcst has no other way to write a part of a file
            else:
                owner._codegen(state)  # noqa: SLF001
        except _EndError:
            pass
        if owner not in state.begins:
            return
        written = "".join(state.tokens)
        starts = starts_of(written)
        row, column = _row_of(starts, state.begins[owner])
        if column != self._column(anchor.lineno, anchor.col_offset):
            return
        shift = anchor.lineno - row
        for node, end in state.ends.items():
            begin = state.begins[node]
            first, left = _row_of(starts, begin)
            last, right = _row_of(starts, end)
            self._known[node] = Located((first + shift, left, last + shift, right), written[begin:end])
        if owner not in state.ends and anchor.end_lineno is not None and anchor.end_col_offset is not None:
            span = (anchor.lineno, column, anchor.end_lineno, self._column(anchor.end_lineno, anchor.end_col_offset))
            self._known[owner] = Located(span, "")

    def _column(self, row: int, offset: int) -> int:
        """CPython counts bytes."""
        line = self._lines[row - 1]
        return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))

    def _is_elif(self, node: cst.CSTNode) -> bool:
        above = self._parents.get(node)
        return type(above) is cst.If and above.orelse is node

    def _indents(self, node: cst.CSTNode) -> list[str]:
        found: list[str] = []
        here = self._parents.get(node)
        while here is not None:
            if type(here) is cst.IndentedBlock:
                found.append(self._module.default_indent if here.indent is None else here.indent)
            here = self._parents.get(here)
        return found[::-1]

    # -- which statement of CPython's is which of libcst's -----------------------------------------------------------------

    def _read(self, node: cst.CSTNode) -> ast.stmt | ast.excepthandler | None:
        """What CPython has read where libcst has read a statement, or the clause of one."""
        above = self._parents.get(node)
        found: ast.AST | None = None
        if isinstance(above, _BLOCKS):
            found = self._paired(above).get(node)
        elif isinstance(above, cst.If) and above.orelse is node:
            outer = self._read(above)
            found = outer.orelse[0] if isinstance(outer, ast.If) and outer.orelse else None
        elif isinstance(above, cst.Try | cst.TryStar) and isinstance(node, cst.ExceptHandler | cst.ExceptStarHandler):
            outer = self._read(above)
            place = next((n for n, handler in enumerate(above.handlers) if handler is node), -1)
            handlers: Sequence[ast.AST] = getattr(outer, "handlers", ())
            found = handlers[place] if 0 <= place < len(handlers) else None
        kinds = _COMPOUND.get(type(node))
        if kinds is not None and type(found).__name__ not in kinds:
            return None
        return found if isinstance(found, ast.stmt | ast.excepthandler) else None

    def _paired(self, block: cst.CSTNode) -> Mapping[cst.CSTNode, ast.AST]:
        """Statements of a block, as libcst and as CPython has read them."""
        if block not in self._blocks:
            self._blocks[block] = self._pair(block)
        return self._blocks[block] or {}

    def _pair(self, block: cst.CSTNode) -> dict[cst.CSTNode, ast.AST] | None:
        theirs = self._block(block)
        pairs: dict[cst.CSTNode, ast.AST] = {}
        place = 0
        for node in block.body if isinstance(block, _BLOCKS) else ():
            if place >= len(theirs):
                return None
            pairs[node] = theirs[place]
            place += len(node.body) if type(node) is cst.SimpleStatementLine else 1
        return pairs if place == len(theirs) else None

    def _block(self, block: cst.CSTNode) -> Sequence[ast.AST]:
        """The statements that CPython has read in a block."""
        if self._parsed is None:
            return ()
        if isinstance(block, cst.Module):
            return self._parsed.body
        holder = self._parents.get(block)
        if isinstance(holder, cst.Else | cst.Finally | cst.MatchCase):
            outer = self._parents.get(holder)
            above = self._read(outer) if outer is not None else None
            if isinstance(holder, cst.Else):
                return getattr(above, "orelse", ())
            if isinstance(holder, cst.Finally):
                return getattr(above, "finalbody", ())
            place = next((n for n, case in enumerate(outer.cases) if case is holder), -1) if isinstance(outer, cst.Match) else -1
            return above.cases[place].body if isinstance(above, ast.Match) and 0 <= place < len(above.cases) else ()
        return getattr(self._read(holder), "body", ()) if holder is not None else ()


def _row_of(starts: Sequence[int], offset: int) -> tuple[int, int]:
    """Row from 1 and column from 0 of an offset."""
    row = bisect_right(starts, offset)
    return row, offset - starts[row - 1]
