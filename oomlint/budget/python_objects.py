"""What lists, dictionaries and strings take that an expression makes of numbers, arrays and one value many times."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.nouns import Certainty
from oomlint.budget.sizes import Name, SizeProduct, Sum
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.shaped import Many, ShapedArray, certain
from oomlint.model.values import Const, Display, ExternalCall, SourceExpression

if TYPE_CHECKING:
    from oomlint.memory.datasets.sample_values import Parts
    from oomlint.model.values import Frame, Value

    Sized = tuple[SizeProduct, Certainty]

# Bytes, measured with CPython 3.11, NumPy 2.4 and torch 2.13 on Linux: private memory of a process with four million of each. `sys.getsizeof` says 24 of a
# float and 28 of an integer; the allocator rounds both up to 32. Small integers and truth values are shared.
SLOT: Final = 8  # a place in a list
NUMBER: Final = 32  # a float, an integer, a scalar of NumPy
_LIST: Final = 72  # an empty list, as the garbage collector has it
VIEW: Final = {"numpy": 128, "torch": 640}  # a row of an array, which keeps the array
_SHARED: Final = frozenset({"bool", "uint8"})
_WHOLE: Final = ("int", "uint")
# A dictionary has a power of two places, of which two thirds are entries (`USABLE_FRACTION` of CPython): 41.94 bytes a key were measured with a million.
_ENTRY: Final = 24
_LEAST_ENTRY: Final = 29
_NARROW, _SHORT = 1 << 8, 1 << 16  # places that an index of one byte, of two can tell apart
_LATIN, _PLANE = 1 << 8, 1 << 16  # characters that a string of one byte, of two bytes a character has
_LIGHT: Final = frozenset({PayloadKind.SCALAR, PayloadKind.FUNCTION})


class PythonObjects:
    """Answers for expressions; ``parts`` knows the arrays in them."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.evaluator = parts.evaluator
        self.contents = parts.contents

    def of(self, node: cst.BaseExpression, frame: Frame, name: Name, length: Name) -> Sized | None:
        """Bytes of what an expression makes; None where it is none of these. ``name`` stands for all of it, ``length`` for the number of its elements."""
        node, frame = self._written(node, frame)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            return self._repeated(node.left, node.right, frame, name, length) or self._repeated(node.right, node.left, frame, name, length)
        if not isinstance(node, cst.Call):
            return None
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "tolist" and not node.args:
            return self._numbers(node.func.value, frame, name)
        if isinstance(node.func, cst.Name) and node.func.value in {"list", "tuple", "sorted"} and len(node.args) == 1:
            return self._elements(node.args[0].value, frame, name)
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        if len(found) == 1 and isinstance(found[0], ExternalCall) and found[0].name == "builtins.dict.fromkeys" and node.args:
            return self._keys(node, frame, name, length)
        return None

    def _written(self, node: cst.BaseExpression, frame: Frame) -> tuple[cst.BaseExpression, Frame]:
        """The expression that a name stands for."""
        effects = frame.scope.effects.get(node.value, ()) if isinstance(node, cst.Name) else ()
        if len(effects) == 1 and effects[0].kind == "assign" and not effects[0].path and not effects[0].index and effects[0].value is not None:
            return effects[0].value, frame
        found = [alt.value for alt in self.evaluator.values(node, frame)] if isinstance(node, cst.Name) else []
        one = found[0] if len(found) == 1 else None
        return (one.node, one.frame) if isinstance(one, SourceExpression) else (node, frame)

    # -- one value many times ------------------------------------------------------------------------------------------------

    def _repeated(self, whole: cst.BaseExpression, times: cst.BaseExpression, frame: Frame, name: Name, length: Name) -> Sized | None:
        """``[0] * n``: a list of places for one object, however large that is; a string or bytes so many times."""
        found = [alt.value for alt in self.evaluator.values(whole, frame)]
        one = found[0] if len(found) == 1 else None
        count = self.parts.number(times, frame)
        if isinstance(one, Const) and isinstance(one.value, str | bytes) and one.value:
            size: tuple[int | Name, ...] = (len(one.value) * count,) if isinstance(count, int) else (length,)
            return _product(*size, _width(one.value)), Certainty.EXACT
        if not isinstance(one, Display) or not isinstance(one.node, cst.List | cst.Tuple) or not one.node.elements:
            return None
        elements = [element.value for element in one.node.elements if isinstance(element, cst.Element)]
        sizes = [self._once(element, one.frame, name) for element in elements]
        if len(elements) < len(one.node.elements) or None in sizes:
            return SizeProduct((name,)), Certainty.EXACT
        once = sum(size or 0 for size in sizes)
        if not isinstance(count, int):
            return _product(length, SLOT), Certainty.AT_LEAST if once else Certainty.EXACT
        places = max(0, count) * len(elements)
        if not once or not places:
            return _product(places, SLOT), Certainty.EXACT
        return SizeProduct((Sum(f"({places} * {SLOT} + {once})", places * SLOT + once),)), Certainty.ABOUT

    def _once(self, node: cst.BaseExpression, frame: Frame, name: Name) -> int | None:
        """Bytes of an object that is there once; 0 where it is not worth counting."""
        content = self.contents.of(node, frame)
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        if content.kind in _LIGHT or (found and all(isinstance(one, Const) for one in found)):
            return 0
        inner = self.of(node, frame, name, name)
        if inner is not None:
            return inner[0].value
        array = self.parts.of(node, frame)
        return array.exact if isinstance(array, ShapedArray) and min(certain(array.shape or ()), default=0) >= 0 else None

    # -- lists of arrays -----------------------------------------------------------------------------------------------------

    def _array(self, node: cst.BaseExpression, frame: Frame) -> ShapedArray | None:
        found = self.parts.of(node, frame)
        return found if isinstance(found, ShapedArray) and found.of in {"numpy", "torch"} else None

    def _numbers(self, of: cst.BaseExpression, frame: Frame, name: Name) -> Sized | None:
        """``array.tolist()``: a place and an object of Python for each number, and a list for each row."""
        array = self._array(of, frame)
        if array is None:
            return None
        if array.exact is None or not array.shape or min(certain(array.shape)) < 0:
            return SizeProduct((name,)), Certainty.EXACT
        shape = certain(array.shape)
        one = SLOT if array.dtype in _SHARED else SLOT + NUMBER
        # Integers up to 256 are shared: nobody knows which of them are.
        certainty = Certainty.AT_MOST if array.dtype.startswith(_WHOLE) and array.dtype not in _SHARED else Certainty.ABOUT
        rows = sum(prod(shape[:axis]) for axis in range(1, len(shape)))
        if not rows:
            return _product(*shape, one), certainty
        total = prod(shape) * one + rows * (SLOT + _LIST)
        return SizeProduct((Sum(f"({' * '.join(map(str, shape))} * {one} + {rows} * {SLOT + _LIST})", total),)), certainty

    def _elements(self, of: cst.BaseExpression, frame: Frame, name: Name) -> Sized | None:
        """``list(array)``: a scalar for each number of a row, or a view for each row, which keeps the array."""
        array = self._array(of, frame)
        if array is None:
            return None
        if array.exact is None or not array.shape or min(certain(array.shape)) < 0:
            return SizeProduct((name,)), Certainty.EXACT
        first, *rest = certain(array.shape)
        if not rest and array.of == "numpy":
            return _product(first, SLOT if array.dtype == "bool" else SLOT + NUMBER), Certainty.ABOUT
        view = SLOT + VIEW[array.of]
        return SizeProduct((Sum(f"({array.exact} + {first} * {view})", array.exact + first * view),)), Certainty.ABOUT

    def references(self, node: cst.BaseExpression, frame: Frame) -> dict[Value, int] | None:
        """The arrays that a list holds by their names, each once, with their bytes; None where it is none, or one of them is made there."""
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        one = found[0] if len(found) == 1 else None
        if not isinstance(one, Display | SourceExpression):
            return None
        written = one.node
        if isinstance(written, cst.BinaryOperation) and isinstance(written.operator, cst.Multiply):
            written = written.left
        listed = written.elements if isinstance(written, cst.List | cst.Tuple) else ()
        refs: dict[Value, int] = {}
        for part in [element.value for element in listed] or ([written.elt] if isinstance(written, cst.ListComp) else []):
            made = [alt.value for alt in self.evaluator.values(part, one.frame)] if isinstance(part, cst.Name | cst.Attribute) else []
            array = self._array(part, one.frame)
            if len(made) != 1 or not isinstance(made[0], ExternalCall) or array is None or array.exact is None:
                return None
            refs[made[0]] = array.exact
        return refs or None

    # -- dictionaries --------------------------------------------------------------------------------------------------------

    def _keys(self, call: cst.Call, frame: Frame, name: Name, length: Name) -> Sized:
        """``dict.fromkeys(range(n))``: the table of the dictionary, its keys, and one value."""
        keys = self.parts.of(call.args[0].value, frame)
        once = self._once(call.args[1].value, frame, name) if len(call.args) > 1 else 0
        if not isinstance(keys, Many) or not isinstance(keys.element, ShapedArray) or keys.element.of != "python" or once is None:
            return SizeProduct((name,)), Certainty.EXACT
        if keys.count is None:
            return _product(length, _LEAST_ENTRY), Certainty.AT_LEAST
        total = keys.count * NUMBER + dict_bytes(keys.count) + once
        return SizeProduct((Sum(f"({keys.count} * {NUMBER} + {dict_bytes(keys.count) + once})", total),)), Certainty.ABOUT


def dict_bytes(count: int) -> int:
    """The table of a dictionary with so many keys that were put in one by one."""
    places = 8
    while places * 2 // 3 < count:
        places *= 2
    return places * 2 // 3 * _ENTRY + places * (1 if places <= _NARROW else 2 if places <= _SHORT else 4)


def _width(text: str | bytes) -> int:
    """Bytes of a character: the widest decides."""
    widest = ord(max(text)) if isinstance(text, str) else 0
    return 1 if widest < _LATIN else 2 if widest < _PLANE else 4


def _product(*factors: int | Name) -> SizeProduct:
    return SizeProduct(factors)
