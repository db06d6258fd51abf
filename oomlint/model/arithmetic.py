"""What arithmetic makes of constants."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.model.questions import UNKNOWN
from oomlint.model.values import Const
from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.values import Value

COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.Is: operator.is_,
    cst.IsNot: operator.is_not,
}
ARITHMETIC: Final[dict[type, Callable[[Any, Any], Any]]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.Divide: operator.truediv,
    cst.Modulo: operator.mod,
    cst.Power: operator.pow,
    cst.LeftShift: operator.lshift,
}
# The operators of ``x += y`` and its like.
IN_PLACE: Final[dict[type, type]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.FloorDivideAssign: cst.FloorDivide,
    cst.DivideAssign: cst.Divide,
    cst.ModuloAssign: cst.Modulo,
    cst.PowerAssign: cst.Power,
    cst.LeftShiftAssign: cst.LeftShift,
}
_MOST_BITS: Final = 64
_WIDE: Final = pattern(r"\d{4}")  # of a place in a text: `%4000d`
_LONGEST: Final = 10_000  # characters or elements of a constant that arithmetic makes


def computed(sign: type, left: Value, right: Value) -> Value:
    """What arithmetic makes of two constants."""
    act = ARITHMETIC.get(sign)
    if act is None or not isinstance(left, Const) or not isinstance(right, Const) or not _affordable(sign, left.value, right.value):
        return UNKNOWN
    try:
        number = act(left.value, right.value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, MemoryError):
        return UNKNOWN
    return Const(number) if not isinstance(number, str | bytes | list | tuple) or len(number) < _LONGEST else UNKNOWN


def _affordable(sign: type, left: object, right: object) -> bool:
    """Whether the result is small enough to be worked out: a power or a repetition can fill any memory."""
    if sign in {cst.Power, cst.LeftShift}:
        return isinstance(left, int | float) and isinstance(right, int | float) and abs(right) <= _MOST_BITS and abs(left) <= _LONGEST
    if sign is cst.Multiply:
        texts = [one for one in (left, right) if isinstance(one, str | bytes)]
        return not texts or any(isinstance(one, int) and one * len(texts[0]) < _LONGEST for one in (left, right))
    if sign is cst.Modulo and isinstance(left, str | bytes):
        text = left if isinstance(left, str) else left.decode("latin-1")
        return "*" not in text and not _WIDE.search(text)
    return True
