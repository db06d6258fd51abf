"""Changes of a piece for a run to come where it would not by itself: branches that are taken in any case, loops that go over their items again."""

from __future__ import annotations

import ast
import copy
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

GUIDE: Final = "__oomlint__"  # as oomlint.verify.child.slicing.slicer has it
ONCE: Final = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # what cannot stand in a function of its own, or must not be done twice
PRIVATE: Final = re.compile(r"\.__\w*[^_\W]\b|\bsuper\(")


def located(node: ast.AST, row: int = 1, column: int = 0) -> None:
    """Give nodes without a place the beginning of what they stand in: of that row alone, for them not to look like rows of the program that were run."""
    if "lineno" in node._attributes:  # noqa: SLF001 -- documented: what a node of this class can tell of its place
        if hasattr(node, "lineno"):
            row, column = node.lineno, node.col_offset  # type: ignore[attr-defined] # there are such
        else:
            for name, value in (("lineno", row), ("end_lineno", row), ("col_offset", column), ("end_col_offset", column)):
                setattr(node, name, value)
    for child in ast.iter_child_nodes(node):
        located(child, row, column)


class _Branches(ast.NodeTransformer):
    def __init__(self, wanted: dict[str, bool]) -> None:
        self.wanted = wanted

    def visit_If(self, node: ast.If) -> ast.AST:
        text = ast.unparse(node.test)
        self.generic_visit(node)
        if text in self.wanted:
            asked = ast.Attribute(ast.Name(GUIDE, ast.Load()), "branch", ast.Load())
            call = ast.Call(asked, [node.test, ast.Constant(self.wanted[text]), ast.Constant(node.lineno)], [])
            made = ast.copy_location(ast.If(call, node.body, node.orelse), node)
            ast.copy_location(call, node.test)
            return ast.fix_missing_locations(made)
        return node


def taken(tree: ast.Module, branches: Iterable[tuple[str, bool]]) -> ast.Module:
    """A copy of a program in which branches with these conditions are taken, or not."""
    wanted = {text: bool(way) for text, way in branches}
    if not wanted:
        return tree
    made: ast.Module = _Branches(wanted).visit(copy.deepcopy(tree))
    return made


def endless(code: ast.Module) -> None:
    """Tell the guide of each loop how its items are made, so that it can go over them again."""
    for node in ast.walk(code):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "loop"):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == GUIDE and isinstance(node.args[-1], ast.Constant)):
            continue
        text: Any = node.args[-1].value
        items = ast.parse(text, mode="eval").body
        if not PRIVATE.search(text) and not any(isinstance(item, ONCE) for item in ast.walk(items)):
            nothing = ast.arguments([], [], None, [], [], None, [])
            node.args.append(ast.fix_missing_locations(ast.copy_location(ast.Lambda(nothing, items), node)))
