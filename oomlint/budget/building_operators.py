"""Arithmetic, comparisons and truth of what is known."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.parts import (
    CONTAINERS,
    MOST_ROUNDS,
    Class,
    ForeignOptions,
    Function,
    Layer,
    Library,
    Made,
    Missing,
    ParameterTensor,
    Partly,
    ValueMethod,
    counted,
    items_of,
)
from oomlint.model.arithmetic import ARITHMETIC, COMPARE

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST: Final = 2**62
_MOST_ITEMS: Final = 100_000

_BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {**ARITHMETIC, cst.RightShift: operator.rshift, cst.BitAnd: operator.and_, cst.BitOr: operator.or_}
_COMPARED: Final[dict[type, Callable[[Any, Any], Any]]] = {
    **COMPARE,
    cst.In: lambda left, right: left in right,
    cst.NotIn: lambda left, right: left not in right,
}


def compared(kind: cst.BaseCompOp, left: Any, right: Any) -> bool | None:
    """What a comparison says; None where nobody knows."""
    if any(isinstance(one, Missing | ForeignOptions | ValueMethod) for one in (left, right)):
        return None
    if isinstance(kind, cst.Is | cst.IsNot):
        same = left == right if isinstance(left, Class | Library | int) else left is right
        return same is isinstance(kind, cst.Is)
    if any(isinstance(one, Made) and not one.module and one.attributes.keys() != {"name", "value"} for one in (left, right)):
        return None  # its class says what it is equal to
    operation = _COMPARED.get(type(kind))
    held = [items_of(side) for side in (left, right) if isinstance(side, list | tuple | dict | Layer)]
    if operation is None or any(items is None or any(isinstance(one, Missing | ForeignOptions | ValueMethod) for one in items) for items in held):
        return None
    try:
        return bool(operation(left.parts if isinstance(left, Layer) else left, right.parts if isinstance(right, Layer) else right))
    except TypeError:
        return None


def either(first: Any, second: Any, text: str) -> Any:
    """One of two, nobody knows which: a layer where both have as many numbers."""
    one, other = counted(first), counted(second)
    known = one == other and not one.missing and all(isinstance(each, Layer) or (isinstance(each, Made) and each.module) for each in (first, second))
    return Layer(numbers=one.numbers, kept=one.kept) if known else Missing(text)


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where nobody knows."""
    if isinstance(value, Missing | ForeignOptions | ValueMethod) or (isinstance(value, Layer) and value.missing):
        return None
    if isinstance(value, Layer) and value.kind in CONTAINERS:
        return bool(value.parts)
    if isinstance(value, Made) and any(isinstance(one, Layer) and str(key).startswith("(") for key, one in value.attributes.items()):
        return None
    if isinstance(value, list | tuple | dict) and items_of(value) is None:
        return None
    return True if isinstance(value, Made | Layer | ParameterTensor | Function | Class | Library | Partly) else bool(value)


def applied(kind: type[cst.CSTNode], left: Any, right: Any, text: str) -> Any:
    """Arithmetic on numbers, strings and lists; on an array and a number, the array."""
    operation = _BINARY.get(kind)
    if isinstance(left, ParameterTensor) or isinstance(right, ParameterTensor):
        one, other = (left, right) if isinstance(left, ParameterTensor) else (right, left)
        other = 0 if isinstance(other, ParameterTensor) and other.shape == one.shape else other
        return ParameterTensor(one.shape, one.item) if isinstance(other, int | float) else Missing(text)
    if isinstance(left, Layer) and isinstance(right, Layer) and operation is operator.add:  # lists of layers
        parts = [*left.parts.values(), *right.parts.values()]
        return Layer(left.kind, parts={str(place): one for place, one in enumerate(parts)}, missing=[*left.missing, *right.missing])
    plain = (int, float, str, list, tuple)
    if operation is None or not isinstance(left, plain) or not isinstance(right, plain):
        return Missing(text)
    if operation is operator.pow and not (abs(_number(left)) <= 2**16 and abs(_number(right)) <= 64):  # noqa: PLR2004 - what a size may be
        return Missing(text)
    if operation is operator.mul and (isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple)):
        times = left if isinstance(left, int) else right
        if not isinstance(times, int) or times > MOST_ROUNDS:
            return Missing(text)
    if isinstance(left, str) and operation is operator.mod:
        right = tuple(right) if isinstance(right, list) else right
    try:
        value = operation(left, right)
    except (TypeError, ValueError, ArithmeticError):
        return Missing(text)
    if isinstance(value, int | float) and abs(value) > _LARGEST:
        return Missing(text)
    return Missing(text) if isinstance(value, list | tuple | str) and len(value) > _MOST_ITEMS else value


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else _LARGEST
