"""Names: what an import, a definition or a builtin means, and how arguments meet parameters."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from oomlint.model.values import Bound
    from oomlint.syntax.walk import Scope

BUILTINS = frozenset(dir(builtins))

# One library under several names, one class under several paths.
_ALIASES = {
    "lightning.pytorch": "pytorch_lightning",
    "lightning": "pytorch_lightning",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.multiprocessing": "multiprocessing",
    "torchdata.stateful_dataloader.stateful_dataloader": "torchdata.stateful_dataloader",
    "h5py._hl.files": "h5py",
    "absl.flags.FLAGS": "absl.flags.FLAGS",
}
# What `from torch.utils.data import *` and its like bring in.
STAR_EXPORTS = {
    "torch.utils.data": frozenset(
        {"DataLoader", "Dataset", "IterableDataset", "TensorDataset", "ConcatDataset", "Subset", "random_split", "Sampler", "RandomSampler", "get_worker_info"},
    ),
}


def canonical(name: str) -> str:
    """The one name that we use for a library's object."""
    head = name
    tail = ""
    while head:
        alias = _ALIASES.get(head)
        if alias is not None:
            return alias + tail
        head, dot, last = head.rpartition(".")
        if not dot:
            return name
        tail = f".{last}{tail}"
    return name


def dotted(node: cst.CSTNode | None) -> str:
    """``a.b.c`` as text; empty where the node is something else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    parts.append(node.value)
    return ".".join(reversed(parts))


def is_main(test: cst.BaseExpression) -> bool:
    """``__name__ == "__main__"``."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not isinstance(test.comparisons[0].operator, cst.Equal):
        return False
    sides = (test.left, test.comparisons[0].comparator)
    return any(dotted(side) == "__name__" for side in sides) and any(
        isinstance(side, cst.SimpleString) and side.evaluated_value == "__main__" for side in sides
    )


def last_name(node: cst.CSTNode) -> str:
    """The name that a call is written with: ``c`` of ``a.b.c(...)``."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def parameters(scope: Scope) -> list[cst.Param]:
    """Positional parameters, then keyword-only ones, without the starred."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return []
    params = scope.node.params
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def is_static(scope: Scope) -> bool:
    """Whether a method is a ``staticmethod``."""
    return isinstance(scope.node, cst.FunctionDef) and any(dotted(d.decorator) == "staticmethod" for d in scope.node.decorators)


def is_property(scope: Scope) -> bool:
    """Whether reading the attribute calls the function."""
    return isinstance(scope.node, cst.FunctionDef) and any(
        dotted(d.decorator).rpartition(".")[2] in {"property", "cached_property"} for d in scope.node.decorators
    )


def is_method(scope: Scope) -> bool:
    """Whether the first parameter is the object or the class."""
    return scope.parent is not None and scope.parent.is_class and isinstance(scope.node, cst.FunctionDef) and not is_static(scope)


def self_name(scope: Scope) -> str | None:
    """The name of the first parameter of a method."""
    if not is_method(scope):
        return None
    params = parameters(scope)
    return params[0].name.value if params else None


class Given:
    """The argument that a call gives to one parameter."""

    __slots__ = ("bound", "node")

    def __init__(self, node: cst.Arg, bound: Bound) -> None:
        self.node = node
        self.bound = bound


def positional(bound: tuple[Bound, ...]) -> list[Given] | None:
    """Positional arguments of all layers; ``None`` where a starred one hides how many there are."""
    found: list[Given] = []
    for layer in bound:
        for arg in layer.args:
            if arg.star == "*":
                handed = _handed_through(arg, layer)
                if handed is None:
                    return None
                found.extend(handed)
            elif arg.star == "" and arg.keyword is None:
                found.append(Given(arg, layer))
    return found


def _handed_through(arg: cst.Arg, layer: Bound) -> list[Given] | None:
    """What ``*args`` stands for where it is the rest parameter of the function around the call."""
    scope, outer = layer.frame.scope, layer.frame.bound
    if not isinstance(scope.node, cst.FunctionDef) or not isinstance(arg.value, cst.Name) or outer is None:
        return None
    rest = scope.node.params.star_arg
    if not isinstance(rest, cst.Param) or rest.name.value != arg.value.value:
        return None
    given = positional(outer)
    if given is None:
        return None
    params = scope.node.params
    own = len(params.posonly_params) + len(params.params) - is_method(scope)
    return given[own:]


def keyword(bound: tuple[Bound, ...], name: str) -> Given | None:
    """The keyword argument of that name, from the outermost layer that gives it."""
    for layer in reversed(bound):
        for arg in layer.args:
            if arg.keyword is not None and arg.keyword.value == name:
                return Given(arg, layer)
    return None


def starred(bound: tuple[Bound, ...]) -> list[Given]:
    """The ``**mapping`` arguments, the one that wins first."""
    return [Given(arg, layer) for layer in reversed(bound) for arg in reversed(layer.args) if arg.star == "**"]


def argument_for(scope: Scope, name: str, bound: tuple[Bound, ...], *, skip_first: bool) -> Given | None:
    """The explicit argument that ``bound`` gives to parameter ``name`` of a function, by position or keyword."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return None
    found = keyword(bound, name)
    if found is not None:
        return found
    params = scope.node.params
    ordered = [p.name.value for p in (*params.posonly_params, *params.params)]
    if skip_first:
        ordered = ordered[1:]
    if name not in ordered:
        return None
    place = ordered.index(name)
    given = positional(bound)
    if given is None:
        leading: list[Given] = []
        for layer in bound:
            for arg in layer.args:
                if arg.star == "*":
                    return leading[place] if place < len(leading) else None
                if arg.star == "" and arg.keyword is None:
                    leading.append(Given(arg, layer))
        return None
    return given[place] if place < len(given) else None


def hides_positionals(bound: tuple[Bound, ...]) -> bool:
    """Whether a ``*args`` in the call may fill any parameter."""
    return positional(bound) is None
