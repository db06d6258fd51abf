"""Statements: which one stands at a place, and what each evaluates whenever control comes to it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.syntax.nodes import children_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

BLOCKS: Final = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)
_SWALLOWS: Final = frozenset({"suppress", "raises", "warns", "assertRaises", "assertRaisesRegex", "assertWarns", "ExitStack", "AsyncExitStack", "subTest"})


def _blocks_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for part in children_of(node):
        if isinstance(part, BLOCKS):
            yield part
        elif isinstance(part, cst.Else | cst.Finally | cst.ExceptHandler | cst.ExceptStarHandler | cst.MatchCase | cst.If):
            yield from _blocks_of(part)


def innermost(module: Module, place: Place) -> cst.CSTNode | None:
    """The innermost statement at a place."""
    found: cst.CSTNode | None = None
    blocks: list[cst.CSTNode] = [module.tree.module]
    while blocks:
        inside = (one for block in blocks if (one := _last_before(module, module.walk.block(block)[0], place)) is not None)
        inner = next((one for one in inside if _ends_behind(module.place(one), place)), None)
        if inner is None:
            break
        found = inner
        blocks = [*_blocks_of(inner)]
    return found


def call_at(module: Module, place: Place) -> tuple[cst.Call, Scope] | None:
    """The call at a place, and the scope that it stands in. To find out where all calls of a file are takes long."""
    holder = innermost(module, place)
    within = (pair for pair in module.walk.calls if _laid_out(module, pair[0]) is holder)
    return next((pair for pair in within if module.place(pair[0]) == place), None)


def _laid_out(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    """The statement of a block that a node stands in: one behind ``elif`` is part of the ``if``."""
    found = module.walk.statement_of(node)
    while isinstance(above := module.walk.parents.get(found), cst.If) and above.orelse is found:
        found = above
    return found


def _last_before(module: Module, statements: Sequence[cst.CSTNode], place: Place) -> cst.CSTNode | None:
    """The last one of some statements that begins ahead of a place, or there."""
    number = bisect_right(statements, (place.cell, place.row, place.column), key=lambda one: _begin(module.place(one)))
    return statements[number - 1] if number else None


def _begin(spot: Place) -> tuple[int, int, int]:
    return spot.cell, spot.row, spot.column


def _ends_behind(spot: Place, place: Place) -> bool:
    return spot.cell == place.cell and (place.row, place.column) <= (spot.end_row, spot.end_column)


def headers(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What a statement evaluates whenever control comes to it."""
    if isinstance(node, cst.If | cst.While):
        yield node.test
    elif isinstance(node, cst.For):
        yield node.iter
    elif isinstance(node, cst.With):
        yield from (item.item for item in node.items[:1])
    elif isinstance(node, cst.FunctionDef):
        yield from (one.decorator for one in node.decorators)
        yield from (part.default for part in descend(node.params) if isinstance(part, cst.Param) and part.default is not None)
    elif isinstance(node, cst.ClassDef):
        yield from (one.decorator for one in node.decorators)
        yield from (one.value for one in (*node.bases, *node.keywords))
    elif isinstance(node, cst.Assign):
        yield node.value
        yield from (part.target.value for part in node.targets if isinstance(part.target, cst.Attribute | cst.Subscript))
    elif isinstance(node, cst.AnnAssign | cst.AugAssign | cst.Return | cst.Expr):
        if node.value is not None:
            yield node.value
    elif isinstance(node, cst.Match):
        yield node.subject


def evaluated(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Names that an expression reads whatever comes of its parts, and the calls that it makes."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, cst.Name):
            yield here
        elif isinstance(here, cst.Attribute | cst.Arg | cst.NamedExpr):
            stack.append(here.value)
        elif isinstance(here, cst.BooleanOperation):
            stack.append(here.left)
        elif isinstance(here, cst.IfExp):
            stack.append(here.test)
        elif isinstance(here, cst.BaseComp):
            stack.append(here.for_in.iter)
        elif isinstance(here, cst.Comparison):
            stack += [here.left, here.comparisons[0].comparator]
        elif isinstance(here, cst.Lambda):
            continue
        else:
            if isinstance(here, cst.Call):
                yield here
            stack += children_of(here)


def may_swallow(item: cst.WithItem) -> bool:
    """Whether a context may end what raises in it."""
    return not isinstance(item.item, cst.Call) or names.last_name(item.item.func) in _SWALLOWS


def is_true(node: cst.BaseExpression) -> bool:
    """Whether a test is written to come out so."""
    return (isinstance(node, cst.Name) and node.value == "True") or (isinstance(node, cst.Integer) and node.value == "1")


def is_false(node: cst.BaseExpression) -> bool:
    """Whether a test is written not to come out so."""
    return (isinstance(node, cst.Name) and node.value == "False") or (isinstance(node, cst.Integer) and node.value == "0")
