"""Parts of a tensor: what an index leaves of it."""

from __future__ import annotations

import re
from math import prod
from typing import Final

import libcst as cst

from oomlint.model import names
from oomlint.model.tensor_state import MAP, SampleSize, Storage, TensorState, ValueKind

_FEW_OF_AXIS: Final = 128  # elements along one axis
FEW_OF_SAMPLE: Final = 81  # numbers of one sample, such as a pose
_PLANE: Final = 2  # axes of a map
_MANY: Final = 1 << 20  # elements of an axis whose length nobody knows
_WIDE: Final = re.compile(r"hidden|token|feat|embed|state|attn|latent", re.IGNORECASE)  # what still is an array for each sample when one index is fixed


def part(node: cst.Subscript, base: TensorState, indices: list[cst.BaseSlice], index: list[TensorState]) -> TensorState:
    """Part of a tensor: basic indices give a view, masks and lists of indices a copy."""
    copies = any(held.kind in {ValueKind.TENSOR, ValueKind.ARRAY, ValueKind.PACK, ValueKind.OPAQUE} for held in index)
    whole = all(
        (isinstance(item, cst.Slice) and item.lower is None and item.upper is None)
        or (isinstance(item, cst.Index) and isinstance(item.value, cst.Ellipsis))
        or (isinstance(item, cst.Index) and isinstance(item.value, cst.Name) and item.value.value == "None")
        for item in indices
    )
    if copies:
        # A mask or a list of indices takes rows of what was there, each with its other axes; several lists together take one element a row.
        lists = sum(held.kind is not ValueKind.PLAIN for held in index)
        unknown = not base.dims or any(map(_makes_tuple, indices))  # as many indices as nobody sees
        return base.having(storage=Storage.OWN, view=False, moved="", home=(), dims=0 if unknown else max(base.dims - lists + 1, 0))
    drops = [n for n, item in enumerate(indices) if isinstance(item, cst.Index) and not (isinstance(item.value, cst.Ellipsis) or names.adds_axis(item.value))]
    named = [item for item in indices if not isinstance(item, cst.Index) or (not isinstance(item.value, cst.Ellipsis) and not names.adds_axis(item.value))]
    between = any(isinstance(item, cst.Index) and isinstance(item.value, cst.Ellipsis) for item in indices)
    cuts = sum(isinstance(item, cst.Slice) for item in named)
    least = len(named) + (between and cuts >= _PLANE)  # who cuts rows and columns, wherever they are, has more axes than these
    dims = max(max(base.dims, least) - sum(n > 0 for n in drops), 0)  # one sample of a batch has the axes of a batch of one
    # Axes that are named are there, whatever it is called; those of a few elements make nothing large.
    long = sum(isinstance(item, cst.Slice) and (_count(item) or _MANY) > _FEW_OF_AXIS for item in named)
    size = SampleSize.DENSE if long >= MAP and dims >= MAP and base.size is not SampleSize.SCALAR else base.size
    if drops and drops[-1] > 0 and size is SampleSize.DENSE and dims < MAP and not _WIDE.search(names.last_name(node.value)):
        size = SampleSize.UNKNOWN  # one column of each sample
    if drops and size is SampleSize.SMALL:
        size = SampleSize.SCALAR
    counts = [_count(item) for item in indices[1:] if isinstance(item, cst.Slice)]
    if len(counts) > 1 and prod(_MANY if count is None else count for count in counts) <= FEW_OF_SAMPLE:
        size, dims = min(size, SampleSize.SMALL), 0  # a few numbers of each sample: `poses[:, :3, :3]`
    whole = whole or all(isinstance(item, cst.Slice) and _trims(item) for item in indices)
    return base.having(view=base.view or (not whole and base.size >= SampleSize.UNKNOWN), size=size, home=(), dims=dims)


def picks_places(indices: list[cst.BaseSlice]) -> bool:
    """Whether an index is one of an array: one for each of several axes, as they are written or as a call makes a tuple of them."""
    return len(indices) > 1 or any(map(_makes_tuple, indices))


def _makes_tuple(item: cst.BaseSlice) -> bool:
    """Whether an index is what a call makes a tuple of: ``x[tuple(places)]``."""
    return isinstance(item, cst.Index) and isinstance(item.value, cst.Call) and names.last_name(item.value.func) == "tuple"


def _count(item: cst.Slice) -> int | None:
    """How many elements a slice leaves at most, where it is written: ``:2``, ``-1:``."""
    if isinstance(item.upper, cst.Integer):
        return int(item.upper.evaluated_value)
    last = item.lower.expression if item.upper is None and isinstance(item.lower, cst.UnaryOperation) else None
    return int(last.evaluated_value) if isinstance(last, cst.Integer) else None


def names_axes(indices: list[cst.BaseSlice]) -> bool:
    """Whether an index is one of an array with several axes: ``[:, 0]``, ``[:, :, 1:]``."""
    return len(indices) > 1 and any(isinstance(item, cst.Slice) for item in indices)


def _trims(item: cst.Slice) -> bool:
    """Whether a slice leaves out an element or two at an end: ``[:-1]``, ``[1:]``."""
    if item.step is not None:
        return False
    if item.upper is None:
        return isinstance(item.lower, cst.Integer) and len(item.lower.value) == 1
    return item.lower is None and isinstance(item.upper, cst.UnaryOperation)
