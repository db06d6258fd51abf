"""Statements of a program: what tells one from another, the names that it binds and reads, and where it stands. The parent and the children ask this."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


FILLING: Final = frozenset("append extend update add insert setdefault appendleft".split())  # methods that put something into their object


def key_of(statement: ast.stmt) -> str:
    """What tells a statement from others, whatever row it stands in: of a compound one the head alone."""
    text = ast.unparse(statement)
    if isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.AsyncFor, ast.AsyncWith)):
        text = head(statement)
    elif isinstance(statement, ast.Try):
        text = "try: " + head(statement.body[0])
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def head(statement: ast.stmt) -> str:
    """The first line of a statement."""
    return ast.unparse(statement).split("\n", 1)[0].strip()


def stored(node: ast.AST) -> list[str]:
    """Names that a statement binds, those of nested functions left out."""
    found: dict[str, None] = {}
    for inner in within(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found[inner.id] = None
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[inner.name] = None
        elif isinstance(inner, ast.alias):
            found[(inner.asname or inner.name).partition(".")[0]] = None
    found.pop("*", None)
    return list(found)


def bound(statement: ast.stmt) -> list[str]:
    """Names and attributes that a statement sets: "model", "self.model"."""
    attributes = [ast.unparse(item) for item in within(statement) if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)]
    return [*stored(statement), *dict.fromkeys(attributes)]


def loaded(node: ast.AST) -> set[str]:
    """Names that a statement reads, in functions inside of it as well."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}


def within(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it in the same scope."""
    waiting = [node]
    while waiting:
        item = waiting.pop(0)
        yield item
        if item is node or not isinstance(
            item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            waiting.extend(ast.iter_child_nodes(item))


def around(tree: ast.AST, row: int) -> list[ast.AST]:
    """The statements that a row stands in, outermost first."""
    found: list[ast.AST] = []
    node = tree
    while True:
        inner = next((item for block in blocks(node) for item in block if first_row(item) <= row <= (item.end_lineno or item.lineno)), None)
        if inner is None:
            return found
        found.append(inner)
        node = inner


def first_row(item: ast.stmt) -> int:
    """The row that a statement begins at, decorators included."""
    decorators: list[ast.expr] = getattr(item, "decorator_list", [])
    return min(item.lineno, *(decorator.lineno for decorator in decorators)) if decorators else item.lineno


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements right below a node."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def heads_of(node: ast.AST) -> list[ast.AST]:
    """The expressions of a statement; of a compound one those of its head."""
    return [item for item in ast.iter_child_nodes(node) if not isinstance(item, (ast.stmt, ast.ExceptHandler, ast.match_case))]


def filled_names(node: ast.AST) -> list[str]:
    """Names of what a statement appends to, adds to or sets items of."""
    found: list[str] = []
    for inner in ast.walk(node):
        base: ast.expr | None = None
        if isinstance(inner, ast.AugAssign):
            base = inner.target
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in FILLING:
            base = inner.func.value
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store):
            base = inner.value
        elif (
            isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name) and inner.targets[0].id in loaded(inner.value)
        ):
            base = inner.targets[0]
        found.append(root(base))
    return [name for name in dict.fromkeys(found) if name not in ("", "self")]


def root(node: ast.AST | None, *, calls: bool = False) -> str:
    """The name that a path of attributes and items begins with, of ``calls`` too where that is asked for; empty without one."""
    while isinstance(node, (ast.Attribute, ast.Subscript)) or (calls and isinstance(node, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Parameters that may be left out, and what they are then."""
    positional = [*arguments.posonlyargs, *arguments.args]
    left_out = [*positional[len(positional) - len(arguments.defaults) :], *arguments.kwonlyargs]
    return {item.arg: value for item, value in zip(left_out, [*arguments.defaults, *arguments.kw_defaults], strict=True) if value is not None}


def is_main(test: ast.expr) -> bool:
    """Whether a condition asks for the program itself to be run."""
    text = ast.unparse(test)
    return "__name__" in text and "__main__" in text


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
