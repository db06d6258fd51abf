"""What is left of an open file in what a method keeps: nothing, or a part that stays open with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import FACTS, H5_FACTS
from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from oomlint.syntax.scopes import Scope

# Functions that take numbers, strings and arrays out of what they are given.
_TAKES_OUT: Final = frozenset("len int float str bool bytes sum max min abs round repr range print isinstance hash any all".split())
_COLLECTS: Final = frozenset("list tuple set frozenset sorted enumerate zip reversed dict map filter".split())
_LIBRARIES: Final = frozenset("np numpy torch json pickle math struct int float".split())
_TELLS: Final = FACTS | H5_FACTS | {"attrs"}
_METHODS: Final = frozenset(
    "tolist item astype sum mean std max min copy decode encode split strip stat info entries reshape flatten ravel read asstr read_direct index format".split()
)
_OBJECTS: Final = frozenset({"values", "items"})  # of a file or group: what they give is open


class _Values:
    """Judges expressions of one method; ``tainted`` are its variables that may be part of what is open."""

    def __init__(self, this: str, lazy: frozenset[str]) -> None:
        self.this = this
        self.lazy = lazy
        self.tainted: set[str] = set()

    def mentions(self, node: cst.CSTNode) -> bool:
        return any(self._names(here) for here in descend(node))

    def _names(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Name):
            return node.value in self.tainted
        return is_attribute_of(node, self.this) and node.attr.value in self.lazy

    def closed(self, node: cst.CSTNode) -> bool:
        """Whether nothing of the value is open any more: plain data, proven by the way it is written."""
        if not self.mentions(node):
            return True
        match node:
            case cst.Call():
                return self._call(node)
            case cst.Subscript():
                # A slice, an empty tuple or an ellipsis reads data; a key leads to what is open.
                reads = any(not isinstance(e.slice, cst.Index) or isinstance(e.slice.value, cst.Ellipsis | cst.Tuple) for e in node.slice)
                return reads or self.closed(node.value)
            case cst.Attribute():
                return node.attr.value in _TELLS or (not self._names(node) and self.closed(node.value))
            case cst.BinaryOperation() | cst.BooleanOperation():
                return self.closed(node.left) and self.closed(node.right)
            case cst.Comparison() | cst.FormattedString():
                return True
            case cst.UnaryOperation():
                return self.closed(node.expression)
            case cst.IfExp():
                return self.closed(node.body) and self.closed(node.orelse)
            case cst.List() | cst.Tuple() | cst.Set():
                return all(self.closed(element.value) for element in node.elements)
            case cst.Dict():
                return all(self.closed(element.value) for element in node.elements)
            case cst.ListComp() | cst.SetComp() | cst.GeneratorExp():
                return self._comprehension(node.for_in, node.elt)
            case cst.DictComp():
                return self._comprehension(node.for_in, node.value)
            case _:
                return False

    def _call(self, node: cst.Call) -> bool:
        name = names.last_name(node.func)
        if isinstance(node.func, cst.Name):
            if name in _COLLECTS:
                return all(self.goes_through_data(arg.value) for arg in node.args)
            return name in _TAKES_OUT
        if names.dotted(node.func).partition(".")[0] in _LIBRARIES:
            return True
        return isinstance(node.func, cst.Attribute) and (name in _METHODS or self.closed(node.func.value))

    def _comprehension(self, loop: cst.CompFor, element: cst.CSTNode) -> bool:
        here: cst.CompFor | None = loop
        while here is not None:
            if not self.goes_through_data(here.iter):
                return False
            here = here.inner_for_in
        return self.closed(element)

    def goes_through_data(self, node: cst.CSTNode) -> bool:
        """Whether the elements of an iterable are data: keys of a file, rows of a dataset."""
        if not self.mentions(node):
            return True
        if isinstance(node, cst.Call):
            if isinstance(node.func, cst.Attribute) and node.func.attr.value == "keys":
                return True
            return names.last_name(node.func) not in _OBJECTS and self._call(node)
        if isinstance(node, cst.Subscript | cst.Attribute | cst.Name):
            return True
        return self.closed(node)


def keeps_a_part(scope: Scope, this: str, lazy: frozenset[str]) -> bool:
    """Whether a method keeps, in another attribute, what may be part of one of these: a group, a dataset, a transaction."""
    values = _followed(scope, this, lazy)
    for effect in scope.effects.get(this, ()):
        if effect.value is None or not effect.path or effect.path[0][1] in lazy:
            continue
        if not values.closed(effect.value):
            return True
    # What a cached property gives is kept under its name.
    return _is_cached(scope) and not all(one.value is None or values.closed(one.value) for one in scope.returns)


def _is_cached(scope: Scope) -> bool:
    decorators = scope.node.decorators if isinstance(scope.node, cst.FunctionDef) else ()
    words = [names.last_name(here.decorator.func if isinstance(here.decorator, cst.Call) else here.decorator).lower() for here in decorators]
    return any("cache" in word or "lazy" in word or "memo" in word for word in words)


def _followed(scope: Scope, this: str, lazy: frozenset[str]) -> _Values:
    """The values of a method, with its variables that may be part of what is open."""
    values = _Values(this, lazy)
    before = -1
    while len(values.tainted) != before:
        before = len(values.tainted)
        for name, effects in scope.effects.items():
            for effect in effects:
                if effect.path or effect.value is None:
                    continue
                data = values.goes_through_data(effect.value) if effect.kind == "for" else values.closed(effect.value)
                if not data:
                    values.tainted.add(name)
    return values
