"""Finds in a program what a place of a finding stands in, and finds it again after a fix has moved the rows."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_names import first_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


_SHOWN: Final = 60  # characters of code


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a row of a program stands: dotted names, empty for the module itself."""

    cls: str  # the innermost class: "Outer.Inner"
    function: str  # the outermost function or method around it, with its classes: "Inner.__init__"
    inner: str  # the innermost function, dotted through all that hold it: "build.helper"


def scopes(tree: ast.Module) -> Iterator[tuple[str, Scope]]:
    """Every class and function of a program with its dotted name, outer ones first. Decorators belong to what they decorate."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        name, node = waiting.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}" if name else child.name
                yield inner, child
                waiting.append((inner, child))
            else:
                waiting.append((name, child))


def rows(node: Scope) -> tuple[int, int]:
    """First and last row, decorators included."""
    return first_row(node), node.end_lineno or node.lineno


def spot(tree: ast.Module, row: int) -> Spot:
    """Where a row stands."""
    cls = function = inner = ""
    for name, node in scopes(tree):
        first, last = rows(node)
        if first <= row <= last:
            if isinstance(node, ast.ClassDef):
                cls = name
            else:
                function = function or name
                inner = name
    return Spot(cls, function, inner)


def named(tree: ast.Module, name: str) -> Scope | None:
    """The last definition of that dotted name: the one that holds at run time."""
    return next((node for other, node in reversed(list(scopes(tree))) if other == name), None)


def quoted(code: str) -> str:
    """The first row of some code for a reader, in backticks and as long as he bears."""
    row = code.partition("\n")[0].strip()
    return f"`{row if len(row) <= _SHOWN else f'{row[: _SHOWN - 3]}...'}`"


def callee(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def statement_rows(tree: ast.Module, row: int) -> tuple[int, int] | None:
    """First and last row of the innermost statement at a row; of one with a body those before it."""
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            if row <= last or last < node.lineno:
                found = node.lineno, max(last, node.lineno)
    return found
