"""The values of expressions in constructors, as Python has them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.api_names import FACTS
from oomlint.budget.building_calls import BUILT_IN, BuildingCalls
from oomlint.budget.building_operators import applied, compared, either, truth
from oomlint.budget.parts import (
    ForeignOptions,
    Function,
    Library,
    Made,
    Missing,
    Names,
    PlainValue,
    ValueMethod,
    hashable,
    items_of,
    text_of,
)
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ENVIRONMENT: Final = Library("os.environ")


class BuildingExpressions(BuildingCalls):
    """Expressions of what is run."""

    def named(self, node: cst.Name, around: Names) -> Any:
        """What a name stands for: in the function that is run, around it, in its module."""
        word, place = node.value, self.place_of(node.value, around)
        if place is None:
            return Missing(word)  # on a way that was not gone
        if isinstance(place, Names):
            value = place.known[word]
            return self._told(node, value, around) if isinstance(value, Missing) else value
        if word == "__name__":
            return "__main__" if place.module is self.main else place.module.path
        found = self.outside(node, place)
        return Library(word) if isinstance(found, Missing) and word in BUILT_IN else found

    def _told(self, node: cst.Name, value: Missing, around: Names) -> Any:
        """A number of which the walk does not know what it is made of, where the whole program knows it; not the default of a parameter, which was given."""
        frame = around.frame or self.evaluator.calls.plain_frame(around.module, around.scope)
        picks = [key for alt in self.evaluator.values(node, frame) for key, _ in alt.picks] if around.this is None else []
        if around.this is not None or any(isinstance(key, tuple) and key[:1] == ("parameter",) for key in picks):
            return value
        found = self.outside(node, frame)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else value

    def eval(self, node: cst.BaseExpression, around: Names) -> Any:  # noqa: C901, PLR0912 - a case for each kind of node
        """The value of an expression."""
        self.step()
        match node:
            case cst.Name(value="None" | "True" | "False"):
                return {"None": None, "True": True, "False": False}[node.value]
            case cst.Name():
                return self.named(node, around)
            case cst.Attribute():
                return self._attribute(node, around)
            case cst.Subscript():
                return self._subscript(node, around)
            case cst.Call():
                return self._call(node, around)
            case cst.Integer() | cst.Float():
                return ast.literal_eval(node.value)
            case cst.SimpleString() | cst.ConcatenatedString():
                return node.evaluated_value
            case cst.FormattedString():
                return self._formatted(node, around)
            case cst.List() | cst.Tuple() | cst.Set():
                items = list(self._elements(node.elements, around))
                if isinstance(node, cst.Set) and all(hashable(one) for one in items):
                    items = list(dict.fromkeys(items))
                return items if isinstance(node, cst.List) else tuple(items)
            case cst.Dict():
                return self._dict(node, around)
            case cst.ListComp() | cst.GeneratorExp():
                return self._comprehension(node.for_in, around, lambda inner: self.eval(node.elt, inner), text_of(node, around.module))
            case cst.SetComp() | cst.DictComp():
                return self._keyed(node, around)
            case cst.BinaryOperation():
                left, right = self.eval(node.left, around), self.eval(node.right, around)
                return applied(type(node.operator), left, right, text_of(node, around.module))
            case cst.UnaryOperation():
                return self._unary(node, around)
            case cst.BooleanOperation():
                return self._boolean(node, around)
            case cst.Comparison():
                return self._compared(node, around)
            case cst.NamedExpr():
                value = self.eval(node.value, around)
                self.assign(node.target, value, around)
                return value
            case cst.IfExp():
                verdict = truth(self.eval(node.test, around))
                if verdict is None:
                    return either(self.eval(node.body, around), self.eval(node.orelse, around), text_of(node, around.module))
                return self.eval(node.body if verdict else node.orelse, around)
            case cst.Yield() if around.given is not None and node.value is not None:
                if isinstance(node.value, cst.From):
                    self.method(around.given, "extend", [self.eval(node.value.item, around)], {}, text_of(node, around.module))
                else:
                    around.given.append(self.eval(node.value, around))
            case cst.Lambda():
                return self.defined(node, around)
        return Missing(text_of(node, around.module))

    def _keyed(self, node: cst.SetComp | cst.DictComp, around: Names) -> Any:
        """A set, as a tuple, or a dictionary, out of a comprehension."""
        text = text_of(node, around.module)
        if isinstance(node, cst.SetComp):
            found = self._comprehension(node.for_in, around, lambda inner: self.eval(node.elt, inner), text)
            return tuple(dict.fromkeys(found)) if isinstance(found, list) and all(hashable(one) for one in found) else Missing(text)
        found = self._comprehension(node.for_in, around, lambda inner: (self.eval(node.key, inner), self.eval(node.value, inner)), text)
        return dict(found) if isinstance(found, list) and all(hashable(key) for key, _ in found) else Missing(text)

    def defined(self, node: cst.Lambda | cst.FunctionDef, around: Names) -> Any:
        """A function, with the defaults that it has where it is defined."""
        scope = next((child for child in around.scope.children if child.node is node), None)
        if scope is None:
            return Missing(text_of(node, around.module))
        defaults = {one.name.value: self.eval(one.default, around) for one in names.parameters(scope) if one.default is not None}
        return Function(around.module, scope, None, around, defaults)

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
        return self._part(node, around, lambda value: self.attribute(value, node.attr.value, text_of(node, around.module)))

    def _part(self, node: cst.Attribute | cst.Subscript, around: Names, take: Callable[[Any], Any]) -> Any:
        """A part of a value; of options or settings that were changed in a way that a walk does not follow, what the whole program knows of it."""
        value = self.eval(node.value, around)
        if value == _ENVIRONMENT:
            return self.outside(node, around.frame or self.evaluator.calls.plain_frame(around.module, around.scope))
        if isinstance(value, Missing):
            return self._asked(node, around)
        found = take(value)
        if not isinstance(value, ForeignOptions) or value.by_code or not value.changed or not isinstance(found, Missing | ValueMethod):
            return found
        known = self.outside(node, around.frame or self.evaluator.calls.plain_frame(around.module, around.scope))
        return found if isinstance(known, Missing | ForeignOptions) else known

    def _asked(self, node: cst.Attribute | cst.Subscript, around: Names) -> Any:
        """What the whole program knows of a part of something that nothing has run."""
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute | cst.Subscript):
            root = root.value
        place = self.place_of(root.value, around) if isinstance(root, cst.Name) and around.frame is not None else None
        found = Missing(text_of(node, around.module)) if place is None or isinstance(place, Names) else self.outside(node, place)
        plain = isinstance(found, Missing) and isinstance(node, cst.Attribute) and node.attr.value in FACTS
        return PlainValue(found.text) if plain else found

    def key(self, node: cst.Subscript, around: Names) -> Any:
        """What stands between brackets."""
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
        return self._part(node, around, lambda value: self.entry(value, self.key(node, around), text_of(node, around.module)))

    def _call(self, node: cst.Call, around: Names) -> Any:
        called = self.callee(node.func, around)
        plain, named = self.arguments(node, around)
        return self.call(called, plain, named, node, around)

    def callee(self, func: cst.BaseExpression, around: Names) -> Any:
        """What a call calls."""
        if not (isinstance(func, cst.Attribute) and isinstance(func.value, cst.Call) and names.dotted(func.value.func) == "super"):
            return self.eval(func, around)
        this, given = self._self(around), func.value.args
        if this is None:
            return Missing(text_of(func, around.module))
        return self.of_super(this, func.attr.value, self.after(this, around, self.eval(given[0].value, around) if given else None))

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
                held = self.entries(value) if isinstance(value, ForeignOptions) else value
                if isinstance(held, dict):
                    named.update({key: one for key, one in held.items() if isinstance(key, str)})
                if not isinstance(held, dict) or not all(isinstance(key, str) for key in held):
                    named["**"] = Missing(text_of(arg.value, around.module))
            else:
                plain.append(value)
        return plain, named

    def _formatted(self, node: cst.FormattedString, around: Names) -> Any:
        text = ""
        for part in node.parts:
            value = part.value if isinstance(part, cst.FormattedStringText) else None
            spec = ""
            if isinstance(part, cst.FormattedStringExpression) and part.conversion is None:
                value = self.eval(part.expression, around)
                spec = "".join(one.value if isinstance(one, cst.FormattedStringText) else "{" for one in part.format_spec or ())
            try:
                text += format(value, spec) if isinstance(value, str | int | float) else f"{value:no}"
            except (TypeError, ValueError):
                return Missing(text_of(node, around.module))
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
        left, missing = self.eval(node.left, around), Missing(text_of(node, around.module))
        for one in node.comparisons:
            right = self.eval(one.comparator, around)
            whole = right == _ENVIRONMENT and len(node.comparisons) == 1
            known = self.outside(node, around.frame or self.evaluator.calls.plain_frame(around.module, around.scope)) if whole else None
            verdict = known if isinstance(known, bool) else compared(one.operator, left, right)
            if verdict is None:
                return missing
            if not verdict:
                return False
            left = right
        return True
