"""The values of expressions in constructors, as Python has them."""

from __future__ import annotations

import ast
import operator
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.building_calls import Calls
from oomlint.budget.parts import MOST_ROUNDS, Array, Class, Function, Layer, Library, Made, Missing, Names, Outside, Partly, items_of, text_of
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.model.values import Frame

_LARGEST: Final = 2**62
_MOST_ITEMS: Final = 100_000

_BINARY: Final[dict[type[cst.CSTNode], Callable[[Any, Any], Any]]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod,
    cst.Power: operator.pow,
}
_COMPARED: Final[dict[type[cst.CSTNode], Callable[[Any, Any], Any]]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.In: lambda left, right: left in right,
    cst.NotIn: lambda left, right: left not in right,
}


class Expressions(Calls):
    """Expressions of what is run."""

    @abstractmethod
    def step(self) -> None:
        """Count a step of the walk."""

    @abstractmethod
    def named(self, node: cst.Name, around: Names) -> Any:
        """What a name stands for."""

    @abstractmethod
    def outside(self, node: cst.BaseExpression, frame: Frame) -> Any:
        """What the whole program knows of an expression."""

    @abstractmethod
    def inside(self, whole: Outside, accessor: tuple[str, object], node: cst.BaseExpression, around: Names) -> Any:
        """An attribute or entry of options or settings."""

    @abstractmethod
    def assign(self, target: cst.BaseExpression, value: Any, around: Names) -> None:
        """Give a value to a name, to several, to an attribute or an entry."""

    @abstractmethod
    def initialize(self, made: Made, start: int, plain: Sequence[Any], named: dict[str, Any]) -> None:
        """Run the first ``__init__`` of an object's lineage from ``start`` on."""

    @abstractmethod
    def after(self, made: Made, around: Names) -> int:
        """The place in an object's lineage where ``super()`` looks on."""

    @abstractmethod
    def of_super(self, made: Made, word: str, around: Names) -> Any:
        """A method that ``super()`` finds."""

    def eval(self, node: cst.BaseExpression, around: Names) -> Any:
        """The value of an expression."""
        self.step()
        match node:
            case cst.Name(value="None" | "True" | "False"):
                return {"None": None, "True": True, "False": False}[node.value]
            case cst.Name():
                return self.named(node, around)
            case cst.Integer() | cst.Float():
                return ast.literal_eval(node.value)
            case cst.SimpleString() | cst.ConcatenatedString():
                return node.evaluated_value
            case cst.FormattedString():
                return self._formatted(node, around)
            case cst.List() | cst.Tuple() | cst.Set():
                items = list(self._elements(node.elements, around))
                return items if isinstance(node, cst.List) else tuple(items)
            case cst.Dict():
                return self._dict(node, around)
            case cst.ListComp() | cst.GeneratorExp():
                return self._comprehension(node.for_in, around, lambda inner: self.eval(node.elt, inner), text_of(node, around.module))
            case cst.DictComp():
                found = self._comprehension(
                    node.for_in, around, lambda inner: (self.eval(node.key, inner), self.eval(node.value, inner)), text_of(node, around.module)
                )
                return dict(found) if isinstance(found, list) and all(hashable(key) for key, _ in found) else Missing(text_of(node, around.module))
            case cst.Attribute():
                return self._attribute(node, around)
            case cst.Subscript():
                return self._subscript(node, around)
            case cst.Call():
                return self._call(node, around)
            case cst.BinaryOperation():
                left, right = self.eval(node.left, around), self.eval(node.right, around)
                return applied(type(node.operator), left, right, text_of(node, around.module))
            case cst.UnaryOperation():
                return self._unary(node, around)
            case cst.BooleanOperation():
                return self._boolean(node, around)
            case cst.Comparison() if len(node.comparisons) == 1:
                return self._compared(node, around)
            case cst.IfExp():
                verdict = truth(self.eval(node.test, around))
                if verdict is None:
                    return Missing(text_of(node, around.module))
                return self.eval(node.body if verdict else node.orelse, around)
            case cst.Lambda():
                scope = next((child for child in around.scope.children if child.node is node), None)
                return Function(around.module, scope, None, around) if scope is not None else Missing("lambda")
        return Missing(text_of(node, around.module))

    def _elements(self, elements: Sequence[cst.BaseElement], around: Names) -> Iterator[Any]:
        for one in elements:
            value = self.eval(one.value, around)
            if isinstance(one, cst.StarredElement):
                items = items_of(value)
                yield from items if items is not None else [Missing(text_of(one.value, around.module))]
            else:
                yield value

    def _dict(self, node: cst.Dict, around: Names) -> Any:
        found: dict[Any, Any] = {}
        for one in node.elements:
            value = self.eval(one.value, around)
            if isinstance(one, cst.DictElement):
                key = self.eval(one.key, around)
                if not hashable(key):
                    return Missing(text_of(node, around.module))
                found[key] = value
            elif isinstance(value, dict):
                found.update(value)
            else:
                return Missing(text_of(node, around.module))
        return found

    def _comprehension(self, over: cst.CompFor, around: Names, each: Callable[[Names], Any], text: str) -> Any:
        inner = Names(around.module, around.scope, around.known.copy(), around.around, around.frame, around.this)
        if around.frame is not None:  # names of the rounds go before those of the frame
            inner = Names(around.module, around.scope, {}, around, None, around.this)
        found: list[Any] = []
        return found if self._rounds(over, inner, lambda: found.append(each(inner))) else Missing(text)

    def _rounds(self, over: cst.CompFor, inner: Names, do: Callable[[], None]) -> bool:
        items = items_of(self.eval(over.iter, inner))
        if items is None:
            return False
        for item in items:
            self.step()
            self.assign(over.target, item, inner)
            verdicts = [truth(self.eval(one.test, inner)) for one in over.ifs]
            if None in verdicts:
                return False
            if not all(verdicts):
                continue
            if over.inner_for_in is None:
                do()
            elif not self._rounds(over.inner_for_in, inner, do):
                return False
        return True

    def _attribute(self, node: cst.Attribute, around: Names) -> Any:
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute):
            root = root.value
        if isinstance(root, cst.Name) and around.frame is not None:
            found = self.outside(node, around.frame)
            if not isinstance(found, Missing):
                return found
        value = self.eval(node.value, around)
        if isinstance(value, Outside):
            return self.inside(value, ("attr", node.attr.value), node, around)
        return self.attribute(value, node.attr.value, text_of(node, around.module))

    def _key(self, node: cst.Subscript, around: Names) -> Any:
        if len(node.slice) != 1:
            return Missing(text_of(node, around.module))
        part = node.slice[0].slice
        if isinstance(part, cst.Index):
            return self.eval(part.value, around)
        if not isinstance(part, cst.Slice):
            return Missing(text_of(node, around.module))
        bounds = [self.eval(one, around) if one is not None else None for one in (part.lower, part.upper, part.step)]
        return slice(*bounds) if all(one is None or isinstance(one, int) for one in bounds) else Missing(text_of(node, around.module))

    def _subscript(self, node: cst.Subscript, around: Names) -> Any:
        missing = Missing(text_of(node, around.module))
        if around.frame is not None:
            found = self.outside(node, around.frame)
            if not isinstance(found, Missing):
                return found
        whole, key = self.eval(node.value, around), self._key(node, around)
        if isinstance(key, Missing):
            return missing
        if isinstance(whole, Outside):
            return self.inside(whole, ("item", key), node, around)
        if isinstance(whole, Layer) and whole.parts and not whole.missing:
            inner = list(whole.parts.values())
            if isinstance(key, str):
                return whole.parts.get(key, missing)
            if isinstance(key, slice):
                return Layer(parts={str(place): one for place, one in enumerate(inner[key])})
            return inner[key] if isinstance(key, int) and -len(inner) <= key < len(inner) else missing
        if isinstance(whole, range) or items_of(whole) is not None:
            try:
                return operator.getitem(whole, key)
            except (TypeError, KeyError, IndexError):
                return missing
        return missing

    def _call(self, node: cst.Call, around: Names) -> Any:
        func = node.func
        if isinstance(func, cst.Name) and func.value == "super":
            return Missing("super()")
        if isinstance(func, cst.Attribute) and isinstance(func.value, cst.Call) and names.dotted(func.value.func) == "super":
            this = self._self(around)
            if this is None:
                return Missing(text_of(node, around.module))
            plain, named = self.arguments(node, around)
            if func.attr.value == "__init__":
                self.initialize(this, self.after(this, around), plain, named)
                return None
            return self.call(self.of_super(this, func.attr.value, around), plain, named, node, around)
        called = self.eval(func, around)
        plain, named = self.arguments(node, around)
        return self.call(called, plain, named, node, around)

    @staticmethod
    def _self(around: Names) -> Made | None:
        here: Names | None = around
        while here is not None and here.this is None:
            here = here.around
        return here.this if here is not None else None

    def arguments(self, node: cst.Call, around: Names) -> tuple[list[Any], dict[str, Any]]:
        """What a call is given, by place and by name; under ``**`` what nobody knows the names of."""
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for arg in node.args:
            value = self.eval(arg.value, around)
            if arg.keyword is not None:
                named[arg.keyword.value] = value
            elif arg.star == "*":
                items = items_of(value)
                plain += items if items is not None else [Missing(text_of(arg.value, around.module))]
            elif arg.star == "**":
                if isinstance(value, dict) and all(isinstance(key, str) for key in value):
                    named.update(value)
                else:
                    named["**"] = Missing(text_of(arg.value, around.module))
            else:
                plain.append(value)
        return plain, named

    def _formatted(self, node: cst.FormattedString, around: Names) -> Any:
        text = ""
        for part in node.parts:
            value = part.value if isinstance(part, cst.FormattedStringText) else None
            if isinstance(part, cst.FormattedStringExpression) and part.format_spec is None and part.conversion is None:
                value = self.eval(part.expression, around)
            if not isinstance(value, str | int | float):
                return Missing(text_of(node, around.module))
            text += str(value)
        return text

    def _unary(self, node: cst.UnaryOperation, around: Names) -> Any:
        value = self.eval(node.expression, around)
        if isinstance(node.operator, cst.Not):
            verdict = truth(value)
            return Missing(text_of(node, around.module)) if verdict is None else not verdict
        if isinstance(node.operator, cst.Minus) and isinstance(value, int | float):
            return -value
        return Missing(text_of(node, around.module))

    def _boolean(self, node: cst.BooleanOperation, around: Names) -> Any:
        left = self.eval(node.left, around)
        verdict = truth(left)
        if verdict is None:
            right = self.eval(node.right, around)
            decided = isinstance(right, bool) and right is isinstance(node.operator, cst.Or)
            return right if decided else Missing(text_of(node, around.module))
        return left if verdict is isinstance(node.operator, cst.Or) else self.eval(node.right, around)

    def _compared(self, node: cst.Comparison, around: Names) -> Any:
        left, right = self.eval(node.left, around), self.eval(node.comparisons[0].comparator, around)
        kind = node.comparisons[0].operator
        missing = Missing(text_of(node, around.module))
        if isinstance(left, Missing | Outside) or isinstance(right, Missing | Outside):
            return missing
        if isinstance(kind, cst.Is | cst.IsNot):
            if left is None or right is None or isinstance(left, bool):
                return (left is right) is isinstance(kind, cst.Is)
            same = left == right if isinstance(left, Class | Library) else left is right
            return same is isinstance(kind, cst.Is)
        operation = _COMPARED.get(type(kind))
        if operation is None or any(isinstance(one, Missing) for side in (left, right) for one in (items_of(side) or ())):
            return missing
        try:
            return operation(left, right)
        except TypeError:
            return missing


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where nobody knows."""
    if isinstance(value, Missing | Outside):
        return None
    if isinstance(value, Layer) and (value.parts or value.missing):
        return bool(value.parts)
    return True if isinstance(value, Made | Layer | Array | Function | Class | Library | Partly) else bool(value)


def hashable(value: Any) -> bool:
    """Whether a value can be a key."""
    return isinstance(value, str | int | float | bool | Class | Library) or value is None


def applied(kind: type[cst.CSTNode], left: Any, right: Any, text: str) -> Any:
    """Arithmetic on numbers, strings and lists; on an array and a number, the array."""
    operation = _BINARY.get(kind)
    if isinstance(left, Array) or isinstance(right, Array):
        one, other = (left, right) if isinstance(left, Array) else (right, left)
        return Array(one.shape, one.item) if isinstance(other, int | float) else Missing(text)
    if isinstance(left, Layer) and isinstance(right, Layer) and operation is operator.add:  # lists of layers
        parts = [*left.parts.values(), *right.parts.values()]
        return Layer(parts={str(place): one for place, one in enumerate(parts)}, missing=[*left.missing, *right.missing])
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
