"""Ways through a function that pass by the closing of a file: an early return, a branch that does not close.

Only what runs in a straight line from the opening counts. Where the opening itself stands under a test or in a loop, nobody can say which later test goes
with it, and an exception is no way of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model.reach import terminates
from oomlint.syntax.nodes import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.memory.handles.openings import Opening
    from oomlint.memory.handles.resource_state import Trail

_ABOUT: Final = re.compile(r"clos|own|open|handle|keep|exist|none", re.IGNORECASE)  # a test of these decides about the file itself


class _Ways:
    """Walks the statements behind an opening."""

    def __init__(self, opening: Opening, trail: Trail, closing: Iterable[cst.CSTNode]) -> None:
        self.module = opening.module
        self.names = set(trail.names)
        self.closing = set(closing)
        self.left: list[cst.CSTNode] = []  # where the function is left with the file open

    def block(self, statements: Sequence[cst.CSTNode]) -> bool:
        """Whether the file is still open behind the block; not where nothing runs on from there."""
        return all(self._statement(statement) for statement in statements)

    def _closes(self, node: cst.CSTNode) -> bool:
        return any(part in self.closing for part in descend(node))

    def _statement(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Return):
            if not self._closes(node):
                self.left.append(node)
            return False
        if isinstance(node, cst.If):
            return self._if(node)
        if isinstance(node, cst.Try | cst.TryStar):
            if node.finalbody is not None and self._closes(node.finalbody):
                return False
            return self.block(block_of(node.body)) and (node.orelse is None or self.block(block_of(node.orelse.body)))
        if isinstance(node, cst.With):
            return not any(self._closes(item) for item in node.items) and self.block(block_of(node.body))
        if isinstance(node, cst.For | cst.While):
            if self._closes(node):
                return False
            self.block(block_of(node.body))
            return True
        return not self._closes(node) and not terminates((node,))

    def _if(self, node: cst.If) -> bool:
        about = _ABOUT.search(self.module.code(node.test)) is not None or self._is_the_file(node.test)
        before = len(self.left)
        then = self.block(block_of(node.body))
        rest = node.orelse
        other = True if rest is None else self._if(rest) if isinstance(rest, cst.If) else self.block(block_of(rest.body))
        if about:
            del self.left[before:]
            return (then and other) or not self._closes(node)
        return then or other

    def _is_the_file(self, test: cst.BaseExpression) -> bool:
        node = test.expression if isinstance(test, cst.UnaryOperation) else test.left if isinstance(test, cst.Comparison) else test
        return isinstance(node, cst.Name) and node.value in self.names


def left_open(opening: Opening, trail: Trail, closing: Iterable[cst.CSTNode]) -> cst.CSTNode | None:
    """Where the function is left without passing the closing: a ``return``, or its last statement. ``None`` where no such way is sure."""
    walk, scope = opening.module.walk, opening.scope
    if not isinstance(scope.node, cst.FunctionDef):
        return None
    ways = _Ways(opening, trail, closing)
    here = walk.statement_of(opening.call)
    if any(part in ways.closing for part in descend(here)):
        return None
    while True:
        holder = walk.parents.get(here)
        if isinstance(holder, cst.SimpleStatementLine):
            holder = walk.parents.get(holder)
        if not isinstance(holder, cst.IndentedBlock):
            return None
        statements = block_of(holder)
        place = next((n for n, item in enumerate(statements) if item is here), None)
        if place is None:
            return None
        above = walk.parents.get(holder)
        if isinstance(above, cst.Try | cst.TryStar) and above.finalbody is not None and any(part in ways.closing for part in descend(above.finalbody)):
            return None
        runs_on = ways.block(statements[place + 1 :])
        if ways.left:
            return ways.left[0]
        if not runs_on:
            return None
        if above is scope.node:
            return statements[-1]
        if not isinstance(above, cst.With) and not (isinstance(above, cst.Try) and above.body is holder):
            return None
        here = above
