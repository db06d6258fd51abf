"""Forms of syntax that the scout looks for: what is filled, joined, cached, kept."""

from __future__ import annotations

import ast
from math import prod
from typing import TYPE_CHECKING

from oomlint.api_names import ALLOCATORS, GOES_OVER, SCALARS, SIZES, STACKS, TAKES_OUT
from oomlint.frameworks import BACKWARDS
from oomlint.scout.telling_names import FLOAT_TENSORS, FLOATS, IN_PLACE, LARGE_NUMBER, MAKERS, STATES, is_table

if TYPE_CHECKING:
    from collections.abc import Iterable

JOINS = STACKS | {"append"}
_PLAIN = frozenset({"range", "reversed", "sorted", "list", "tuple", "set", "map", "filter", "iter", "zip", "enumerate", "len"})
_DICTS = frozenset({"dict", "OrderedDict", "defaultdict"})
FILLERS = frozenset({"__init__", "__setstate__", "__setitem__"})
KEEPS = frozenset({"append", "add", "appendleft"})
SMALL_RETURNS = SCALARS | {"Path", "None"}
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


def fills_itself(node: ast.FunctionDef) -> bool:
    """Whether a method adds to a list of its object."""
    own = first_parameter(node)
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in {"append", "extend"}
        and isinstance(part.func.value, ast.Attribute)
        and isinstance(part.func.value.value, ast.Name)
        and part.func.value.value.id == own
        for part in ast.walk(node)
    )


def keeps_state(node: ast.ClassDef, *, buffers: bool) -> bool:
    """Whether a class makes a tensor when it is built, and a method of it writes into one. ``buffers`` says whether the text registers any."""
    makes = writes = False
    methods = sorted((item for item in node.body if isinstance(item, FUNCTIONS)), key=lambda item: item.name not in FILLERS)
    for method in methods:
        own, built = first_parameter(method), method.name in FILLERS
        if not built and not makes and not buffers:
            return False  # all that could make one has been looked at
        for part in ast.walk(method):
            if isinstance(part, ast.Call):
                makes = makes or name_of(part.func) == "register_buffer"
                writes = writes or (name_of(part.func) in IN_PLACE and _root_of(part.func) == own)
            elif built and isinstance(part, ast.Assign) and isinstance(part.value, ast.Call):
                makes = makes or name_of(part.value.func) in STATES
            elif isinstance(part, ast.AugAssign) and not built:
                writes = writes or (not isinstance(part.target, ast.Name) and _root_of(part.target) == own)
            elif isinstance(part, ast.Assign) and not built:
                writes = writes or any(
                    _root_of(target) == own and (isinstance(target, ast.Subscript) or name_of(target) in names_in(part.value)) for target in part.targets
                )
    return makes and writes


def _root_of(node: ast.expr) -> str:
    """The name that a chain of attributes, elements and calls starts at."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


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


def makes_array(node: ast.AST) -> bool:
    """Whether an array is made in an expression, other than for weights, which are what a model is."""
    if isinstance(node, ast.Call):
        if name_of(node.func) == "Parameter":
            return False
        if name_of(node.func) in MAKERS and not _is_small(node):
            return True
    return any(makes_array(part) for part in ast.iter_child_nodes(node))


def makes_room(node: ast.Call) -> bool:
    """Whether a call makes an array of a given shape, as it is or in another form: ``torch.zeros(shape).float()``."""
    inner: ast.expr = node
    while isinstance(inner, ast.Call):
        if name_of(inner.func) in ALLOCATORS:
            return not _is_small(inner)
        inner = (
            inner.func.value
            if isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Call)
            else inner.args[0]
            if inner.args
            else inner.func
        )
    return False


def converts(node: ast.Call) -> bool:
    """Whether an array is made that is not known to be small, and converted at once: ``np.ones(shape).astype(kind)``."""
    name, inner = name_of(node.func), node.args[0] if len(node.args) == 1 else None
    if isinstance(node.func, ast.Attribute) and name == "astype":
        inner = node.func.value
    elif isinstance(node.func, ast.Attribute) and name in FLOATS:
        inner = node.func.value.args[0] if isinstance(node.func.value, ast.Call) and node.func.value.args else None
    elif name not in FLOAT_TENSORS:
        return False
    return isinstance(inner, ast.Call) and name_of(inner.func) in MAKERS and not _is_small(inner)


def cuts(rounds: ast.stmt | ast.expr) -> bool:
    """Whether what is done again and again takes a part with two bounds out of something, along any axis: ``series[i : i + width]``."""
    for node in ast.walk(rounds):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else (node.slice,)
            if any(isinstance(part, ast.Slice) and part.lower is not None and part.upper is not None for part in axes):
                return True
    return False


def is_fixed(index: ast.expr) -> bool:
    """Whether an index is the same wherever it stands: a number, a string, all of it."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    return isinstance(first, ast.Constant) or (isinstance(first, ast.Slice) and first.lower is first.upper is None)


def takes_out(node: ast.ClassDef) -> set[str]:
    """Attributes of an object out of which its own methods take something again: ``self.cache.pop(key)``, ``del self.cache[key]``."""
    found: set[str] = set()
    for method in node.body:
        if not isinstance(method, FUNCTIONS) or any(name_of(part) == "staticmethod" for part in method.decorator_list):
            continue
        own = first_parameter(method)
        for part in _own_parts(method):
            kept: ast.expr | None = None
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in TAKES_OUT:
                kept = part.func.value
            elif isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Del):
                kept = part.value
            if own and isinstance(kept, ast.Attribute) and isinstance(kept.value, ast.Name) and kept.value.id == own:
                found.add(kept.attr)
    return found


def _own_parts(node: ast.AST) -> Iterable[ast.AST]:
    """What a function does itself: not the functions and classes in it."""
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield part
            yield from _own_parts(part)


def first_parameter(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The first parameter of a function; empty where it has none."""
    return next((arg.arg for arg in (*node.args.posonlyargs, *node.args.args)), "")


def may_keep_much(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> bool:
    """Whether a function whose results are all kept has many of them, and does not say that each is small."""
    params = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)][method:]
    returns = node.returns
    return bool(params) and name_of(returns) not in SMALL_RETURNS if returns is not None else bool(params)


def _is_small(maker: ast.Call) -> bool:
    """Whether the shape of an array is written in numbers, and small."""
    sizes = [size for arg in maker.args for size in (arg.elts if isinstance(arg, ast.Tuple | ast.List) else [arg])]
    numbers = [size.value for size in sizes if isinstance(size, ast.Constant) and type(size.value) is int]
    shaped = not any(keyword.arg in {None, "size", "shape"} for keyword in maker.keywords)
    return shaped and bool(maker.args) and len(numbers) == len(sizes) and prod(max(1, number) for number in numbers) <= LARGE_NUMBER


def runs_backward(node: ast.AST) -> bool:
    """Whether gradients are computed in a function."""
    return any(isinstance(part, ast.Call) and name_of(part.func) in BACKWARDS for part in ast.walk(node))


def counts(node: ast.expr | None) -> bool:
    """Whether a loop over that counts, or waits (``while``), and does not go over the length of anything."""
    if node is None:
        return True
    return isinstance(node, ast.Call) and name_of(node.func) in {"range", "trange", "count"} and not any("len" in names_in(part) for part in node.args)


def joins(target: ast.expr, value: ast.expr) -> bool:
    """Whether a thing is set to itself and more: ``x = torch.cat([x, y])``, ``x = np.r_[x, y]``, ``table = table.append(y)``."""
    wanted = ""
    for join in (value, *((value.body, value.orelse) if isinstance(value, ast.IfExp) else ())):
        inputs = _joined(join)
        if len(inputs) > 1:
            wanted = wanted or written(target)
            if sum(written(item) == wanted for item in inputs) == 1:
                return True
    return False


def _joined(value: ast.expr) -> list[ast.expr]:
    """What is made one."""
    if isinstance(value, ast.Subscript) and name_of(value.value) in {"r_", "c_"} and isinstance(value.slice, ast.Tuple):
        return value.slice.elts
    if not isinstance(value, ast.Call) or not value.args or name_of(value.func) not in JOINS:
        return []
    if name_of(value.func) == "append":
        return [*value.args, *(k.value for k in value.keywords), *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
    first = value.args[0]
    return first.elts if isinstance(first, ast.List | ast.Tuple) else []


def goes_on(loop: ast.stmt, statement: ast.Assign) -> bool:
    """Whether a loop reads what the statement grows, or sets it again, so that it is no collection that waits for the end of the loop."""
    target = written(statement.targets[0])
    return any(_takes_up(item, statement, target, plain=True) for item in getattr(loop, "body", ()))


def _takes_up(node: ast.AST, statement: ast.Assign, target: str, *, plain: bool) -> bool:
    """Whether a part of the loop does so. ``plain`` says that it runs in every round."""
    if node is statement or isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return False
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and written(node.targets[0]) == target:
        if joins(node.targets[0], node.value):
            return False
        return plain or _takes_up(node.value, statement, target, plain=False)
    inside = plain and isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.With)
    for name, value in ast.iter_fields(node):
        asks = _asks_for_size(node, name)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load) and not asks and written(part) == target:
                return True
            if isinstance(part, ast.AST) and _takes_up(part, statement, target, plain=inside):
                return True
    return False


def _asks_for_size(node: ast.AST, name: str) -> bool:
    """Whether what stands in that field is looked at from outside: its size, whether it is empty; or filled in part."""
    if isinstance(node, ast.Subscript):
        return name == "value" and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Attribute):
        return node.attr in SIZES
    if isinstance(node, ast.Call):
        return name != "func" and name_of(node.func) in {"len", "print"}
    return isinstance(node, ast.Compare | ast.UnaryOp | ast.IfExp) or (isinstance(node, ast.If) and name == "test")


def written(node: ast.expr) -> str:
    """An expression as it could stand in a program."""
    return ast.unparse(node)


def gives_batches(node: ast.expr) -> bool:
    """Whether a loop goes over the windows of a long sequence, or over what a function gives."""
    while isinstance(node, ast.Call) and node.args and name_of(node.func) in GOES_OVER:
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
