"""How many axes of a tensor an operation leaves, as far as its call tells."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.tensor_parts import FEW_OF_SAMPLE
from oomlint.model.tensor_state import MAP, SampleSize
from oomlint.model.torch_tables import AXIS_ORDERS
from oomlint.syntax.nodes import constant_key, descend, parts_of

if TYPE_CHECKING:
    from oomlint.model.tensor_state import TensorState

_DIMS: Final = frozenset({"dim", "axis"})
_ADDS_UP: Final = frozenset({"sum", "norm"})
_LEAST: Final = 3
_ROW: Final = 2
_MODES: Final[dict[object, int]] = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}  # of `interpolate`, with the axes that each takes

CONVOLVED: Final = {f"conv{kind}{axes}d": axes + 2 for kind in ("", "_transpose") for axes in (1, 2, 3)}  # functions, with the axes of what they give
SPECTRA: Final = {"stft": 3, "istft": 2}  # functions, with the axes of what they give for a batch: spectra over time, and waves
POOLS: Final = re.compile(r"(adaptive_)?(avg|max)_pool[123]d")  # functions
PIXELS: Final = "uint8"


def pixels(held: TensorState) -> TensorState:
    """What becomes whole numbers from 0 to 255: pictures, where it is more than a label for each sample."""
    return held.having(dims=max(held.dims, MAP)) if held.size is SampleSize.DENSE else held


def shape_of(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """The array of which an expression gives all lengths: ``x`` of ``x.shape`` and ``x.size()``."""
    match node:
        case cst.Attribute(value=array, attr=cst.Name(value="shape")) | cst.Call(func=cst.Attribute(value=array, attr=cst.Name(value="size")), args=[]):
            return array
    return None


def length_of(node: cst.CSTNode | None) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The array, and the axis, whose length an expression is: ``x.shape[1]``, ``x.size(1)``, ``x.size()[1]``."""
    match node:
        case cst.Subscript(value=lengths, slice=[cst.SubscriptElement(slice=cst.Index(value=axis))]) if (array := shape_of(lengths)) is not None:
            return array, axis
        case cst.Call(func=cst.Attribute(value=array, attr=cst.Name(value="size")), args=[cst.Arg(value=axis)]):
            return array, axis
    return None


def measured_axis(node: cst.CSTNode) -> object:
    """The axis whose length an expression is, where that is written: 1 for ``x.shape[1]``; else ``None``."""
    found = length_of(node)
    return constant_key(found[1]) if found is not None else None


def rows_of(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """What has as many rows as an expression says: ``x`` of ``x.shape[0]``, ``x.size(0)`` and ``len(x)``."""
    if isinstance(node, cst.Call) and names.dotted(node.func) == "len" and len(node.args) == 1:
        return node.args[0].value
    found = length_of(node)
    return found[0] if found is not None and constant_key(found[1]) == 0 else None


def axes_of(node: cst.Call, before: int) -> int | None:
    """How many axes a reduction takes away; ``None`` where it takes all, or nobody knows. The first ``before`` arguments are no axes."""
    plain = arguments.plain(node)[before:]
    kept = names.dotted(arguments.named(node, "keepdim", "keepdims")) == "True"
    for told in [*filter(None, [arguments.named(node, *_DIMS)]), *plain[:1]]:
        if isinstance(told, cst.Integer | cst.UnaryOperation | cst.Name):
            return 0 if kept else 1
        if isinstance(told, cst.Tuple | cst.List):
            return len(told.elements)  # an axis of one is as good as none
    return None


def reduced_along(held: TensorState, node: cst.Call, before: int) -> TensorState:
    """What a sum, a mean, a greatest value along some axes gives; one number where it is along all of them."""
    axes = axes_of(node, before)
    if axes is None:
        return held.having(size=SampleSize.SCALAR, dims=0)
    if held.size is SampleSize.DENSE and held.dims >= MAP and names.last_name(node.func) in _ADDS_UP and goes_along_first(node, before):
        return held  # the channels of one sample are added up: its rows and columns are left
    dims = max(held.dims - axes, 0)
    if axes >= MAP and _all_behind_first(node, before):
        return held.having(dims=1, size=min(held.size, SampleSize.SMALL))
    left = SampleSize.UNKNOWN if held.dims else SampleSize.LEFT
    return held.having(dims=dims, size=left if held.size is SampleSize.DENSE and dims < MAP else held.size)


def _all_behind_first(node: cst.Call, before: int) -> bool:
    """Whether a reduction goes along all axes from the second on: a number is left of each sample."""
    told = [*filter(None, [arguments.named(node, *_DIMS)]), *arguments.plain(node)[before:]]
    axes = [constant_key(part.value) for part in told[0].elements] if told and isinstance(told[0], cst.Tuple | cst.List) else []
    return axes == list(range(1, len(axes) + 1))


def goes_along_first(node: cst.Call, before: int) -> bool:
    """Whether a reduction goes along the first axis alone."""
    told = [*filter(None, [arguments.named(node, *_DIMS)]), *arguments.plain(node)[before:]]
    return bool(told) and constant_key(told[0]) == 0


def viewed(method: str, node: cst.Call, before: int, dims: int) -> int:
    """How many axes a view of a tensor with ``dims`` axes has at least; 0 where nobody knows. The first ``before`` arguments are no sizes."""
    given = arguments.positionals(node)[before:]
    match method:
        case "view" | "reshape" | "expand":
            only = given[0].value if len(given) == 1 else None
            sizes = _sizes(given)
            if arguments.has_stars(node) or any(isinstance(part, cst.StarredElement) for part in getattr(only, "elements", ())):
                return 0
            if method != "expand" and sizes and is_rest(sizes[0]):
                if len(sizes) == _ROW and dims > MAP and not isinstance(sizes[1], cst.Subscript | cst.Call) and not _reorders(node):
                    return _ROW  # maps become one row for each sample, in front of a linear layer; as many columns as there are channels leave all rows
                return max(dims, len(sizes))  # what was one sample is many rows now: all of it is still there
            return len(sizes) if not isinstance(only, cst.Name | cst.Attribute | cst.Call | cst.BinaryOperation) else 0
        case "permute":
            return max(dims, len(_sizes(given)))
        case "transpose" | "swapaxes" | "swapdims" | "movedim":
            return max(dims, *(_reach(arg.value) for arg in given)) if given else dims
        case "unsqueeze":
            return dims + 1 if dims else 0
        case "squeeze" | "select" | "unbind" | "diagonal":
            return max(dims - 1, 0)
        case "flatten" | "ravel":
            first = constant_key(given[0].value) if given else None
            return first + 1 if isinstance(first, int) and first > 0 and len(given) == 1 else 2 if given else dims
        case "unflatten":
            return dims + 1 if dims else 0
        case "unfold" | "view_as" | "expand_as":
            return 0
    return dims


def _reorders(node: cst.Call) -> bool:
    """Whether the axes are put in another order on the way to a view: its rows are the places of a map."""
    return any(isinstance(part, cst.Call) and names.last_name(part.func) in AXIS_ORDERS for part in descend(node))


def is_flat(method: str, node: cst.Call, before: int) -> bool:
    """Whether a view lays all numbers in one row: whoever writes it has several axes."""
    sizes = _sizes(arguments.positionals(node)[before:])
    return (method in {"flatten", "ravel"} and not sizes) or (method in {"view", "reshape"} and len(sizes) == 1 and is_rest(sizes[0]))


def is_spread(method: str, node: cst.Call, before: int) -> bool:
    """Whether a view is of several rows for each sample, or several columns: at least three of its sizes may be more than one. An `expand` adds no numbers."""
    sizes = _sizes(arguments.positionals(node)[before:]) if method in {"view", "reshape"} else []
    return sum(constant_key(size) != 1 for size in sizes) >= MAP


def is_few(method: str, node: cst.Call, before: int) -> bool:
    """Whether a view is of a few numbers in rows and columns, as many as the code says, for each sample: ``reshape(-1, 3, 2)``."""
    sizes = [constant_key(size) for size in _sizes(arguments.positionals(node)[before:])[1:]] if method in {"view", "reshape"} else []
    known = [size for size in sizes if isinstance(size, int) and size > 0]
    return len(sizes) >= _ROW and len(known) == len(sizes) and prod(known) <= FEW_OF_SAMPLE


def _sizes(given: list[cst.Arg]) -> list[cst.BaseExpression]:
    """The sizes that a view is given, one by one or in a tuple."""
    return parts_of(given[0].value) if len(given) == 1 else [arg.value for arg in given]


def resized(node: cst.Call) -> int:
    """How many axes ``interpolate`` proves what it is given to have: samples, channels, and at least one behind them."""
    for arg in node.args:
        if arg.keyword is not None and arg.keyword.value == "mode":
            return _MODES.get(constant_key(arg.value), _LEAST)
    size = next((arg.value for arg in node.args[1:] if arg.keyword is None or arg.keyword.value in {"size", "scale_factor"}), None)
    return len(size.elements) + 2 if isinstance(size, cst.Tuple | cst.List) else _LEAST


def pooled(node: cst.Call, dims: int) -> int:
    """How many axes of more than one place a pooling leaves at least; none where it may make one number of each channel: its window is not a number."""
    if names.last_name(node.func).startswith("adaptive"):
        return _ROW if pools_all(node, 1) else dims
    window = arguments.argument_for(node, "kernel_size", place=1)
    return dims if window is not None and all(isinstance(constant_key(size), int) for size in parts_of(window)) else 0


def pools_all(node: cst.Call, place: int) -> bool:
    """Whether an adaptive pooling, or the call that makes such a layer, leaves one number of each channel."""
    left = arguments.argument_for(node, "output_size", place=place)
    return left is not None and all(constant_key(size) == 1 for size in parts_of(left))


def is_rest(node: cst.BaseExpression) -> bool:
    """Whether a size is ``-1``: what the others leave."""
    return isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)


def _reach(node: cst.BaseExpression) -> int:
    """How many axes there are at least where a number names one of them."""
    key = constant_key(node)
    return 0 if not isinstance(key, int) else key + 1 if key >= 0 else -key
