"""Forms of syntax that the scout looks for: what is filled, joined, cached, kept."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from oomlint.scout.telling import is_table

if TYPE_CHECKING:
    from collections.abc import Iterable

_JOINS = frozenset("cat concat concatenate vstack hstack dstack stack column_stack row_stack append".split())
_WRAPPERS = frozenset({"enumerate", "tqdm", "zip", "islice", "trange", "track", "notebook", "progress_bar"})
_PLAIN = frozenset({"range", "reversed", "sorted", "list", "tuple", "set", "map", "filter", "iter", "zip", "enumerate", "len"})
_DICTS = frozenset({"dict", "OrderedDict", "defaultdict"})
FILLERS = frozenset({"__init__", "__setstate__", "__setitem__"})
KEEPS = frozenset({"append", "add", "appendleft"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_empty(node: ast.expr) -> bool:
    """Whether a cache may start like that: ``{}``, ``dict()``, ``[None] * n``, ``[None for _ in x]``."""
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.Call):
        return name_of(node.func) in _DICTS
    return isinstance(node, ast.ListComp) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List))


def fills(call: ast.Call) -> bool:
    """Whether an ``update`` is given entries, a number of rounds, or belongs to a table."""
    if not call.args or isinstance(call.args[0], ast.Dict | ast.DictComp | ast.Constant):
        return True
    return isinstance(call.func, ast.Attribute) and is_table(name_of(call.func.value))


def names_in(node: ast.AST) -> Iterable[str]:
    """Names, attributes and texts inside an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.keyword) and part.arg:
            yield part.arg


def keeps_exception(handler: ast.ExceptHandler) -> bool:
    """Whether a handler puts what it caught into a container."""
    return handler.name is not None and any(
        (isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and name_of(item.value.func) in KEEPS)
        or (isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Subscript))
        for item in handler.body
    )


def sets_on_first(node: ast.FunctionDef) -> bool:
    """Whether a static method sets attributes of its first parameter."""
    params = [*node.args.posonlyargs, *node.args.args]
    first = params[0].arg if params else ""
    return first not in {"", "self"} and any(
        isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name) and part.value.id == first
        for part in ast.walk(node)
    )


def caches(node: ast.ClassDef) -> bool:
    """Whether a method keeps something under a key that is computed."""
    for method in node.body:
        if not isinstance(method, FUNCTIONS) or method.name in FILLERS:
            continue
        for part in ast.walk(method):
            if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store) and not isinstance(part.slice, ast.Constant | ast.Slice):
                base: ast.expr = part
                while isinstance(base, ast.Subscript):
                    base = base.value
                if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
                    return True
            if isinstance(part, ast.Call) and name_of(part.func) == "setdefault" and len(part.args) > 1:
                return True
    return False


def unbounded(node: ast.expr) -> bool:
    """Whether a decorator may keep all that a function has given: ``@cache``, ``@lru_cache(maxsize=None)``. Without a size, the latter keeps 128."""
    if not isinstance(node, ast.Call):
        return name_of(node) in {"cache", "memoize"}
    sizes = [*node.args, *(k.value for k in node.keywords)]
    return name_of(node.func) == "lru_cache" and any(not isinstance(size, ast.Constant) or size.value is None for size in sizes)


def counts(node: ast.expr | None) -> bool:
    """Whether a loop over that counts, or waits (``while``), and does not go over the length of anything."""
    if node is None:
        return True
    return isinstance(node, ast.Call) and name_of(node.func) in {"range", "trange", "count"} and not any("len" in names_in(part) for part in node.args)


def joins(target: ast.expr, value: ast.expr) -> bool:
    """Whether a thing is set to itself and more: ``x = torch.cat([x, y])``."""
    wanted = ""
    for call in (value, *((value.body, value.orelse) if isinstance(value, ast.IfExp) else ())):
        if isinstance(call, ast.Call) and call.args and name_of(call.func) in _JOINS:
            first = call.args[0]
            pair = [*call.args, *(k.value for k in call.keywords)] if name_of(call.func) == "append" else []
            inputs = first.elts if isinstance(first, ast.List | ast.Tuple) else pair
            if len(inputs) > 1:
                wanted = wanted or written(target)
                if sum(written(item) == wanted for item in inputs) == 1:
                    return True
    return False


def written(node: ast.expr) -> str:
    """An expression as it could stand in a program."""
    return ast.unparse(node)


def gives_batches(node: ast.expr) -> bool:
    """Whether a loop goes over the windows of a long sequence, or over what a function gives."""
    while isinstance(node, ast.Call) and node.args and name_of(node.func) in _WRAPPERS:
        node = node.args[0]
    if not isinstance(node, ast.Call):
        return False
    if name_of(node.func) == "range":
        return len(node.args) == 3 and not isinstance(node.args[2], ast.Constant)  # noqa: PLR2004 - start, end, width
    return isinstance(node.func, ast.Name) and node.func.id not in _PLAIN


def row_names(node: ast.expr) -> Iterable[str]:
    """Names and attributes that stand in rows: ``a, (b, self.c)``."""
    if isinstance(node, ast.Tuple | ast.List):
        for item in node.elts:
            yield from row_names(item)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield f"{node.value.id}.{node.attr}"


def name_of(node: ast.expr) -> str:
    """The last name of a dotted one; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
