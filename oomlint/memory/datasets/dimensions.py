"""The numbers that shapes are made of, and what an index leaves of an array."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.datasets.array_calls import ArrayCalls
from oomlint.memory.shared.shaped import Least, Many, ShapedArray, ShapedGroup, counted, elements, joined, smallest, stacked
from oomlint.model import names
from oomlint.model.arithmetic import ARITHMETIC
from oomlint.model.tensor_shapes import length_of, shape_of
from oomlint.model.values import Const, Display, ExternalCall, SourceExpression, Unknown, assumptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.memory.shared.shaped import Part, Shape
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

_LONGEST: Final = 40  # characters of the word for a dimension
_LARGEST: Final = 1 << 40
_REST: Final = "..."
_DEEPEST: Final = 8


class Sizes(ArrayCalls):
    """Numbers and indices, by values."""

    given: dict[tuple[Scope, str], Part]  # what the parameters are that a function is called with
    left: int  # how many questions may still be asked
    lengths: dict[tuple[cst.BaseExpression, Frame], int | str]  # what has been answered

    def number(self, node: cst.BaseExpression, frame: Frame) -> int | str:
        """A number, or how it is written."""
        found = self.length(node, frame)
        return _written(node, frame) if isinstance(found, Least) else found

    def length(self, node: cst.BaseExpression, frame: Frame) -> int | str:
        """The same of a dimension, which may be one of several: of these the smallest."""
        asked, key = (node, frame), ("number", node, frame)
        if asked in self.lengths and not self.given:
            return self.lengths[asked]
        if key in self.active or self.left <= 0:
            return _written(node, frame)
        self.active.add(key)
        found = self.usual(node, frame)
        one = smallest([self._way(alt.value, node, frame) for alt in found] or [self._way(Unknown(), node, frame)])
        self.active.discard(key)
        if isinstance(one, str):
            one = _written(node, frame)
        else:
            self.assume((max if isinstance(one, Least) else min)(map(assumptions, found), default=0))
        if not self.given:
            self.lengths[asked] = one
        return one

    def _way(self, value: Value, node: cst.BaseExpression, frame: Frame) -> int | str:
        """One number of several that an expression may be."""
        if isinstance(value, Const):
            return value.value if isinstance(value.value, int) else _REST
        self.left -= 1
        if isinstance(value, SourceExpression) and value.node is not node:
            return self.length(value.node, value.frame)
        if isinstance(value, ExternalCall):
            node, frame = value.call, value.frame
        found = self._computed(node, frame)
        return _REST if found is None else found

    def _computed(self, node: cst.BaseExpression, frame: Frame) -> int | None:
        """A number that follows from the shape of an array, and what arithmetic makes of it."""
        match node:
            case cst.BinaryOperation(left=left, operator=operator, right=right) if type(operator) in ARITHMETIC:
                grows = isinstance(operator, cst.Add | cst.Multiply)  # with both sides; any other operator with the left one at most
                a, b = self.length(left, frame), (self.length if grows else self.number)(right, frame)
                if not isinstance(a, int) or not isinstance(b, int) or abs(a) >= _LARGEST or not 0 <= b < _LARGEST:
                    return None
                by_nothing = int(b) == 0 and isinstance(operator, cst.FloorDivide | cst.Divide | cst.Modulo)
                wraps = isinstance(a, Least) and isinstance(operator, cst.Modulo)
                if by_nothing or wraps or isinstance(operator, cst.Power | cst.LeftShift):
                    return None
                return counted(int(ARITHMETIC[type(operator)](a, b)), a, b)
            case cst.Call(func=cst.Name(value="len"), args=[cst.Arg(value=whole)]):
                return elements(self.of(whole, frame))[1]
            case cst.Call(func=cst.Name(value="int"), args=[cst.Arg(value=whole)]):
                found = self.length(whole, frame)
                return found if isinstance(found, int) else None
        measured = length_of(node)
        return self._side(*measured, frame) if measured is not None else None

    def _side(self, array: cst.BaseExpression, axis: cst.BaseExpression, frame: Frame) -> int | None:
        one, place = self.of(array, frame), self.number(axis, frame)
        shape = one.shape if isinstance(one, ShapedArray) and one.shape is not None else ()
        found = shape[place] if isinstance(place, int) and -len(shape) <= place < len(shape) else None
        return found if isinstance(found, int) else None

    def shape(self, nodes: Sequence[cst.BaseExpression], frame: Frame) -> Shape | None:
        """The dimensions that a call is given: one by one, or in a tuple; ``None`` where nobody knows how many."""
        if len(nodes) == 1:
            return self._dimensions(nodes[0], frame, frozenset())
        return tuple(self.length(node, frame) for node in nodes)

    def _dimensions(self, node: cst.BaseExpression, frame: Frame, seen: frozenset[cst.CSTNode]) -> Shape | None:
        """The dimensions of a tuple, those of tuples inside it included, or one number."""
        match node:
            case _ if node in seen:
                return None
            case _ if (array := shape_of(node)) is not None:
                one = self.of(array, frame)
                return one.shape if isinstance(one, ShapedArray) else None
            case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
                number = self.length(node, frame)
                a, b = (self._dimensions(one, frame, seen | {node}) for one in (left, right))
                return (number,) if isinstance(number, int) else (*a, *b) if a is not None and b is not None else None
        found: list[Shape | None] = []
        for alt in self.usual(node, frame):
            value = alt.value
            if isinstance(value, Display) and isinstance(value.node, cst.Tuple | cst.List):
                found.append(self._listed(value.node, value.frame, seen | {node}))
            elif isinstance(value, SourceExpression) and value.node is not node:
                found.append(self._dimensions(value.node, value.frame, seen | {node}))
            else:
                number = self._way(value, node, frame)
                found.append((number,) if isinstance(number, int) else None)
        one = joined([ShapedArray(shape) if shape is not None else None for shape in found])
        return one.shape if isinstance(one, ShapedArray) else None

    def _listed(self, node: cst.Tuple | cst.List, frame: Frame, seen: frozenset[cst.CSTNode]) -> Shape | None:
        sides: list[int | str] = []
        for element in node.elements:
            starred = self._dimensions(element.value, frame, seen) if isinstance(element, cst.StarredElement) else ()
            if starred is None:
                return None
            sides += starred if isinstance(element, cst.StarredElement) else (self.length(element.value, frame),)
        return tuple(sides)

    # -- indices -----------------------------------------------------------------------------------------------------------

    def indexed(self, base: ShapedArray, items: Sequence[cst.BaseSlice], frame: Frame) -> ShapedArray:
        """What an index leaves of an array."""
        unknown = replace(base, shape=None)
        if len(items) == 1 and isinstance(items[0], cst.Index) and isinstance(items[0].value, cst.Tuple):
            items = [cst.Index(one.value) for one in items[0].value.elements]
        kinds = [self._kind(one, frame) for one in items]
        taken = sum(kind is None or isinstance(kind, tuple) for kind in kinds)
        if base.shape is None or _REST in kinds or taken > len(base.shape):
            return unknown
        left: list[int | str] = list(base.shape)
        shape: list[int | str] = []
        for item, kind in zip(items, kinds, strict=True):
            if kind == "new":
                shape.append(1)
            elif kind == "all":
                count = len(left) - sum(one is None or isinstance(one, tuple) for one in kinds[kinds.index("all") :])
                shape += left[:count]
                left = left[count:]
            elif isinstance(item, cst.Slice):
                shape.append(self.span(item, left.pop(0), frame))
            else:
                left.pop(0)
                shape += kind if isinstance(kind, tuple) else ()
        return replace(base, shape=(*shape, *left))

    def shows(self, items: Sequence[cst.BaseSlice], frame: Frame) -> bool:
        """Whether an index of an array in memory copies nothing: slices, numbers, new axes."""
        if len(items) == 1 and isinstance(items[0], cst.Index) and isinstance(items[0].value, cst.Tuple):
            items = [cst.Index(one.value) for one in items[0].value.elements]
        return all(self._kind(one, frame) in {None, "all", "new", ()} for one in items)

    def _kind(self, item: cst.BaseSlice, frame: Frame) -> str | tuple[int | str, ...] | None:
        """What an index does: a new axis, all axes between, the shape that it puts in place of an axis; ``None`` for a slice, "..." for what nobody knows."""
        if not isinstance(item, cst.Index):
            return None
        if isinstance(item.value, cst.Ellipsis):
            return "all"
        if names.adds_axis(item.value):
            return "new"
        one: Part = self.of(item.value, frame)
        one = stacked(one, 0) if isinstance(one, ShapedGroup | Many) else one
        whole = isinstance(one, ShapedArray) and one.shape is not None and len(one.shape) < len(("row", "column")) and one.dtype != "bool"
        return one.shape if whole and isinstance(one, ShapedArray) and one.shape is not None else _REST

    def span(self, part: cst.Slice, size: int | str, frame: Frame) -> int | str:
        """How many elements a slice leaves."""
        lower, upper = (self.number(one, frame) if one is not None else None for one in (part.lower, part.upper))
        step = self.number(part.step, frame) if part.step is not None else 1
        if not isinstance(step, int) or step == 0:
            return _REST
        if not isinstance(lower, str) and not isinstance(upper, str):
            if isinstance(size, int):
                return _left(slice(lower, upper, step), size)
            if (lower or 0) == 0 and upper is None and step == 1:
                return size
            self.assume()  # that there are so many
            from_end = lower is not None and lower < 0 and upper is None
            whole = -lower if from_end and lower is not None else upper - (lower or 0) if upper is not None and upper >= 0 <= (lower or 0) else 0
            return -(-whole // abs(step)) if whole > 0 else _REST
        if part.lower is None or part.upper is None:
            return _REST
        above, below = (self._terms(one, frame) for one in (part.upper, part.lower))
        above.subtract(below)
        distance = above.pop("", 0)
        length = -(-distance // abs(step)) if distance > 0 and not any(above.values()) else 0
        return (min(length, size) if isinstance(size, int) else length) or _REST

    def _terms(self, node: cst.BaseExpression, frame: Frame, depth: int = 0) -> Counter[str]:
        """A sum by its terms, each with how often it stands there; numbers under no word."""
        number = self.number(node, frame)
        if isinstance(number, int):
            return Counter({"": number})
        if isinstance(node, cst.Name) and depth < _DEEPEST:
            found = [alt.value for alt in self.usual(node, frame)]
            value = found[0] if len(found) == 1 else None
            if isinstance(value, SourceExpression) and isinstance(value.node, cst.BinaryOperation) and value.frame == frame:
                node = value.node
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract) and depth < _DEEPEST:
            total, right = self._terms(node.left, frame, depth + 1), self._terms(node.right, frame, depth + 1)
            (total.subtract if isinstance(node.operator, cst.Subtract) else total.update)(right)
            return total
        return Counter({frame.module.code(node): 1})


def _left(part: slice[int | None, int | None, int], size: int) -> int | str:
    """How many elements a slice leaves of so many, or of so many at least: that grows with them unless it counts from both ends, or backwards."""
    found, most = (len(range(*part.indices(count))) for count in (int(size), _LARGEST))
    if not isinstance(size, Least) or (found == most and (part.start or 0) >= 0):
        return found
    from_both = part.start is not None and part.start < 0 and part.stop is not None and part.stop >= 0
    return _REST if from_both or part.step < 0 else Least(found)


def _written(node: cst.BaseExpression, frame: Frame) -> str:
    """How a number is written that nobody knows."""
    code = " ".join(frame.module.code(node).split())
    return code if len(code) <= _LONGEST else names.last_name(node) or _REST
