"""Elements of lists, dictionaries and comprehensions as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import CONTAINERS
from oomlint.model import names
from oomlint.model.questions import UNKNOWN, Questions, parted
from oomlint.model.registries import registered
from oomlint.model.values import (
    ABSENT,
    Alternative,
    Alternatives,
    Const,
    Display,
    Frame,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key
from oomlint.syntax.scopes import CHANGES

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor


_MOST: Final = 12  # elements of which any may be meant


def unpacked(value: cst.BaseExpression | None, index: tuple[int, ...]) -> cst.BaseExpression | None:
    """What one of several targets is given: ``[]`` for ``b`` of ``a, b = 0, []``; ``None`` where that is not written out."""
    for place in index:
        value = value.elements[place].value if isinstance(value, cst.Tuple | cst.List) and 0 <= place < len(value.elements) else None
    return value


def is_new(node: cst.BaseExpression | None) -> bool:
    """Whether an expression is a container that is made there."""
    return isinstance(node, cst.List | cst.Dict) or (isinstance(node, cst.Call) and names.last_name(node.func) in CONTAINERS)


def is_empty_list(node: cst.BaseExpression | None) -> bool:
    """Whether an expression is a list with nothing in it."""
    return (isinstance(node, cst.List) and not node.elements) or (isinstance(node, cst.Call) and names.last_name(node.func) == "list" and not node.args)


class Displays(Questions):
    """Looks a key up in what is written as a container."""

    def inside(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """An element of a display."""
        _kind, key = accessors[0]
        rest = accessors[1:]
        if isinstance(node, cst.Call):  # dict(a=1, **b), Namespace(a=1)
            return self.inside_call(node, accessors, frame)
        if isinstance(node, cst.Dict):
            return self._inside_dict(node, accessors, frame)
        if isinstance(node, cst.List | cst.Tuple):
            elements = node.elements
            if isinstance(node, cst.List) and (key is UNKNOWN_KEY or not elements):
                later = appended(Display(node, frame))
                if later and isinstance(key, int) and 0 <= key < len(later):
                    return self.access(later[key], rest, frame)
                if later:
                    return [a for e in later for a in self.access(e, rest, frame)]
            if isinstance(key, int) and not any(isinstance(e, cst.StarredElement) for e in elements) and -len(elements) <= key < len(elements):
                return self.access(elements[key].value, rest, frame)
            if key is UNKNOWN_KEY:
                return [a for e in elements[:_MOST] if isinstance(e, cst.Element) for a in self.access(e.value, rest, frame)] or [Alternative(UNKNOWN)]
            return [Alternative(UNKNOWN)]
        if isinstance(node, cst.DictComp):
            return self.access(node.value, rest, frame)
        if isinstance(node, cst.ListComp | cst.GeneratorExp):
            return self.access(node.elt, rest, frame)
        return [Alternative(UNKNOWN)]

    def _inside_dict(self, node: cst.Dict, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        key = accessors[0][1]
        rest = accessors[1:]
        out: Alternatives = []
        if not node.elements:
            classes = registered(Display(node, frame), key)
            if classes:
                return [found for alt in classes for found in self.reach_into(alt, rest)]
        if key is UNKNOWN_KEY:
            return [a for e in node.elements[:_MOST] if isinstance(e, cst.DictElement) for a in self.access(e.value, rest, frame)] or [Alternative(UNKNOWN)]
        unknown_keys = False
        for element in reversed(node.elements):
            if isinstance(element, cst.DictElement):
                known = constant_key(element.key)
                if known is UNKNOWN_KEY:
                    known = self._one_constant(element.key, frame)
                if known is UNKNOWN_KEY:
                    unknown_keys = True
                elif known == key and type(known) is type(key):
                    return [*out, *self.access(element.value, rest, frame)]
                continue
            there, absent = parted(self.access(element.value, accessors, frame))
            out.extend(there)
            if not absent:
                return out
        out.append(Alternative(UNKNOWN if unknown_keys else ABSENT))
        return out

    def _one_constant(self, node: cst.BaseExpression, frame: Frame) -> object:
        found = self.values(node, frame)
        return found[0].const if len(found) == 1 and isinstance(found[0].value, Const) else UNKNOWN_KEY

    def inside_call(self, node: cst.Call, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """An element of ``dict(a=1, **b)`` and its like."""
        key = accessors[0][1]
        out: Alternatives = []
        for arg in reversed(node.args):
            if arg.keyword is not None:
                if arg.keyword.value == key:
                    return [*out, *self.access(arg.value, accessors[1:], frame)]
                continue
            into: tuple[Accessor, ...] = (("item", 0), *accessors) if arg.star == "*" else accessors  # `dict(*args)`: one mapping, or none
            there, absent = parted(self.access(arg.value, into, frame))
            out.extend(there)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]


def is_grown(value: Display, *, sets: bool = True) -> bool:
    """Whether a list or dictionary is bound to a name and filled afterwards; ``sets``: also where entries are set alone, which takes none away."""
    for path in value.frame.module.walk.bound_to(value.node):
        if path[1] and path[0] == names.self_name(value.frame.scope):
            return True  # some method may fill it
        for effect in value.frame.scope.effects.get(path[0], ()):
            deeper = len(effect.path) > len(path[1])
            fills = effect.kind in CHANGES or (deeper and (effect.kind == "delete" or (sets and effect.kind == "assign")))
            if fills and effect.path[: len(path[1])] == path[1]:
                return True
    return False


def appended(value: Display) -> list[cst.BaseExpression]:
    """What the same scope appends to a list after it was written."""
    found: list[cst.BaseExpression] = []
    for root, path in value.frame.module.walk.bound_to(value.node):
        effects = value.frame.scope.effects.get(root, ())
        found.extend(e.value for e in effects if e.kind == "append" and e.path == path and e.value is not None)
    return found[:6]


def display_truth(value: Display) -> bool | None:
    """Whether a container counts as true; ``None`` where nobody knows."""
    node = value.node
    if is_grown(value):
        return None
    if isinstance(node, cst.List | cst.Tuple | cst.Set | cst.Dict):
        if not node.elements:
            return False
        return True if any(isinstance(e, cst.Element | cst.DictElement) for e in node.elements) else None
    return None
