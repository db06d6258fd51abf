"""What statements and expressions read and bind, and small pieces of program to put in their place."""

from __future__ import annotations

import ast
import copy
import re
from typing import Any, Final

from oomlint.verify.ast_names import root, stored

_SYSTEM: Final = re.compile(r"\bsys\.platform\b|\bos\.name\b|\bplatform\.system\b")


class Putter(ast.NodeTransformer):
    """Puts the stand-in for the dataset's expression, and asks for leaves by name."""

    def __init__(self, dataset: str, leaves: frozenset[str]) -> None:
        self.dataset = dataset
        self.leaves = leaves

    def visit(self, node: ast.AST) -> ast.AST:  # noqa: D102 -- of the base class
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not isinstance(node, ast.Constant):
            text = ast.unparse(node)
            if text == self.dataset:
                return ast.Name("__dataset__", ast.Load())
            if text in self.leaves:
                return ast.Call(ast.Name("__leaf__", ast.Load()), [ast.Constant(text), lazy(copied(node))], [])
        seen: ast.AST = super().visit(node)
        return seen


def copied(node: ast.AST) -> Any:
    """A copy that may be changed."""
    return copy.deepcopy(node)


def lazy(node: ast.AST) -> ast.Lambda:
    """``lambda: node``."""
    assert isinstance(node, ast.expr)  # noqa: S101 -- only expressions are made lazy
    return ast.Lambda(ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), node)


def unknown(name: str) -> ast.stmt:
    """``name = __opaque__("name")``."""
    return ast.Assign([ast.Name(name, ast.Store())], ast.Call(ast.Name("__opaque__", ast.Load()), [ast.Constant(name)], []))


def tried(body: list[ast.stmt], names: list[str]) -> ast.stmt:
    """Statements that may fail: what they define is unknown then."""
    handler = ast.ExceptHandler(
        ast.Tuple([ast.Name("Exception", ast.Load()), ast.Name("SystemExit", ast.Load())], ast.Load()), None, [unknown(name) for name in names] or [ast.Pass()]
    )
    return ast.Try(body, [handler], [], [])


def reads(node: ast.AST) -> set[str]:
    """Names that are read."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and not item.id.startswith("__")}


def texts(node: ast.AST) -> set[str]:
    """Names and dotted names that are read, as they are written."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (ast.Name, ast.Attribute, ast.Subscript)) and root(item):
            found.add(ast.unparse(item))
        elif isinstance(item, ast.Call):
            waiting += [*item.args, *item.keywords]
            if not isinstance(item.func, ast.Name):
                waiting += list(ast.iter_child_nodes(item.func))
        else:
            waiting += list(ast.iter_child_nodes(item))
    return found


def all_names(body: list[ast.stmt]) -> set[str]:
    """Names that are read or bound."""
    return {item.id for statement in body for item in ast.walk(statement) if isinstance(item, ast.Name) and not item.id.startswith("__")}


def changed(statement: ast.stmt) -> set[str]:
    """Names that a plain statement binds or changes: also ``x[...] = y``, ``x.a = y`` and ``x.update(...)``."""
    found = set(stored(statement))
    for item in ast.walk(statement):
        if isinstance(item, (ast.Subscript, ast.Attribute)) and isinstance(item.ctx, (ast.Store, ast.Del)):
            found.add(root(item))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
        found.add(root(statement.value.func))
    return found - {""}


def header(statement: ast.stmt) -> set[str]:
    """Names that a compound statement reads before its blocks."""
    parts = [getattr(statement, name, None) for name in ("test", "iter")] + [item.context_expr for item in getattr(statement, "items", ())]
    return {name for part in parts if part is not None for name in reads(part)}


def ends(statement: ast.stmt) -> bool:
    """Whether a statement ends the program."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in {"sys.exit", "exit", "os._exit"}


def asks_the_system(test: ast.expr) -> bool:
    """Whether a condition depends on the system that the program runs on: another one decides otherwise."""
    return bool(_SYSTEM.search(ast.unparse(test)))
