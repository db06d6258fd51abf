"""Arrays that constructors make: parameters and buffers before they are that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from oomlint.budget.costs import FLOAT
from oomlint.budget.parts import MOST_ROUNDS, Library, Missing, ParameterTensor
from oomlint.memory.shared.byte_size import ITEM_BYTES
from oomlint.memory.shared.shaped import MOVES, ShapedArray, certain, moved

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE_SHAPE: Final = frozenset({"zeros", "ones", "empty", "rand", "randn", "Tensor", "FloatTensor"})  # dimensions by place, or a tuple of them


_AS_LARGE: Final = frozenset("contiguous clone detach abs normal_ uniform_ fill_ zero_ mul_ add_ sqrt exp log div_ trunc_normal_ requires_grad_ clamp".split())


def item_of(value: Library) -> int | None:
    """Bytes of a number of a type."""
    library, _, word = value.name.rpartition(".")
    return ITEM_BYTES.get(word) if library == "torch" else FLOAT


def shape_of(plain: Sequence[Any]) -> tuple[int, ...] | None:
    """Dimensions that are given one by one, or together."""
    given = plain[0] if len(plain) == 1 and isinstance(plain[0], tuple | list) else plain
    return tuple(given) if given and all(isinstance(one, int) for one in given) else None


def array(word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """What ``torch.zeros`` and its like give."""
    dtype = named.get("dtype")
    item = item_of(dtype) if isinstance(dtype, Library) else FLOAT if dtype is None else None
    if word == "Size" and plain:
        return tuple(plain[0]) if isinstance(plain[0], tuple | list) else Missing(text)
    if word == "manual_seed" or item is None:
        return Missing(text)
    shape = None
    if word in {"Tensor", "FloatTensor"} and plain and isinstance(plain[0], list):
        shape = _nested(plain[0])
    elif word in _ONE_SHAPE:
        shape = shape_of(plain or [named.get("size")])
    elif word == "full" or word in {"normal", "randint"}:
        given = [one for one in (*plain, named.get("size")) if isinstance(one, tuple | list)]
        shape = shape_of(given[:1]) if given else None
        item = 8 if word == "randint" and dtype is None else item
    elif word == "eye" and plain and isinstance(plain[0], int):
        shape = (plain[0], plain[1] if len(plain) > 1 and isinstance(plain[1], int) else plain[0])
    elif word in {"arange", "linspace"} and all(isinstance(one, int | float) for one in plain) and plain:
        steps = plain[2] if word == "linspace" and len(plain) > 2 else None  # noqa: PLR2004 - start, end, steps
        count = steps if word == "linspace" else len(range(*map(int, plain))) if all(float(one).is_integer() for one in plain) else None
        whole = word == "arange" and dtype is None and all(isinstance(one, int) for one in plain)
        shape, item = ((count,) if isinstance(count, int) else None), 8 if whole else item
    elif word in {"tensor", "as_tensor"} and plain and isinstance(plain[0], list | tuple | int | float):
        shape = _nested(plain[0])
        item = item if isinstance(dtype, Library) or _first(plain[0], float) else 8
    elif word in {"zeros_like", "ones_like", "randn_like", "rand_like", "empty_like"} and plain and isinstance(plain[0], ParameterTensor):
        shape = plain[0].shape
    return ParameterTensor(shape, item) if shape is not None else Missing(text)


def method_of_array(of: ParameterTensor, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """What a method of an array gives."""
    if word in _AS_LARGE:
        return ParameterTensor(of.shape, of.item)
    if word in {"float", "cuda", "cpu"} or (word == "to" and plain and not isinstance(plain[0], Library)):
        return ParameterTensor(of.shape, FLOAT if word == "float" else of.item)
    known = shape_of(plain)
    if word in MOVES and (known is not None or not plain) and not named:
        shape = moved(word, ShapedArray(of.shape, "", "torch"), known or (), None)
        return ParameterTensor(tuple(certain(shape)), of.item) if shape is not None and len(certain(shape)) == len(shape) else Missing(text)
    if word in {"new_zeros", "new_ones", "new_empty"}:
        return ParameterTensor(known, of.item) if known is not None else Missing(text)
    if word == "size":
        return of.shape if not plain else of.shape[known[0]] if known is not None and -len(of.shape) <= known[0] < len(of.shape) else Missing(text)
    if word == "numel":
        return math.prod(of.shape)
    if word == "tolist" and len(of.shape) == 1 and of.shape[0] <= MOST_ROUNDS:
        return [Missing(text) for _ in range(of.shape[0])]
    return ParameterTensor(of.shape, ITEM_BYTES[word]) if word in {"half", "double", "long", "int", "bool"} else Missing(text)


def _nested(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple):
        return () if isinstance(value, int | float) else None
    inner = _nested(value[0]) if value else ()
    return (len(value), *inner) if inner is not None else None


def _first(value: Any, kind: type) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, kind)
