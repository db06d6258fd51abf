"""What objects, layers, containers, arrays and settings have, and what is written to them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from oomlint.budget.building_layers import as_entry
from oomlint.budget.building_names import BuildingNames
from oomlint.budget.parts import (
    CONTAINERS,
    Class,
    ForeignOptions,
    Function,
    Layer,
    Library,
    Made,
    Missing,
    Names,
    ParameterTensor,
    Partly,
    PlainValue,
    Rest,
    ValueMethod,
    hashable,
    is_part,
    items_of,
)
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence


_FILLS: Final = frozenset({"append", "extend", "insert", "add_module", "register_module", "register_parameter", "update", "pop", "setdefault"})
TABLES: Final = frozenset({"_modules", "_parameters", "_buffers"})


class ObjectState(BuildingNames):
    """Attributes and entries."""

    def spoil_given(self, given: Sequence[Any], text: str, *, settings: bool = False) -> None:
        """Nobody knows what becomes of what is handed to something unknown. ``settings`` are changed by what belongs to the project only."""
        for one in given:
            if isinstance(one, Made) and settings and not one.module:
                one.attributes[Rest(text)] = None
            elif isinstance(one, Made | Layer):
                one.missing.append(text)
            elif isinstance(one, ValueMethod):
                self.spoil_given([one.of], text)
            elif isinstance(one, list):
                self.spoil_given([each for each in one if not isinstance(each, list | dict)], text)
                one.append(Rest(text))
            elif isinstance(one, dict):
                one[Rest(text)] = None
            elif isinstance(one, ForeignOptions) and settings:
                one.changed[Rest(text)] = None

    # -- attributes ----------------------------------------------------------------------------------------------------------

    def attribute(self, value: Any, word: str, text: str) -> Any:
        """An attribute of a value."""
        match value:
            case Made():
                return self._of_object(value, word, text)
            case Class():
                found = self._bound_to(self.of_class(value, word), value) if word != "__name__" else value.ref.scope.name
                return PlainValue(text) if isinstance(found, Missing) and self._makes_functions(value) else found
            case Library() if word == "__name__":
                return value.name.rpartition(".")[2]
            case Layer() if word == "__class__" and value.kind:
                return Library(f"torch.nn.{value.kind}")
            case Library():
                return math.pi if value.name == "math" and word == "pi" else Library(f"{value.name}.{word}")
            case Layer():
                found = next((held[word] for held in (value.own, value.parts, value.options) if word in held), None)
                return _without(value, word) if found is None and word not in value.own else found
            case ParameterTensor():
                known = {
                    "shape": value.shape,
                    "ndim": len(value.shape),
                    "data": ParameterTensor(value.shape, value.item),
                    "T": ParameterTensor(value.shape[::-1], value.item),
                }
                return known.get(word, ValueMethod(value, word))
            case Names():
                return value if word == "__dict__" else self.member(value, word, text)
            case ForeignOptions():
                found = self.inside(value, ("attr", word), text)
                return value if word == "__dict__" else ValueMethod(value, word) if isinstance(found, Missing) else found
            case Partly():
                return {"func": value.func, "args": value.plain, "keywords": dict(value.named)}.get(word, Missing(text))
            case list() | tuple() | dict() | str() | ValueMethod():
                return ValueMethod(value, word)
        return Missing(text)

    def _of_object(self, value: Made, word: str, text: str) -> Any:
        held = list(value.attributes)
        lost = max((place for place, key in enumerate(held) if isinstance(key, Rest)), default=-1)
        if word in value.attributes and held.index(word) > lost:
            return value.attributes[word]
        if word == "training" and value.module:
            return True
        if word in {"__dict__", "__class__"}:
            return Class(value.cls) if word == "__class__" else dict(value.attributes) if value.module else value.attributes
        found = self._bound_to(self.of_class(Class(value.cls), word), value)
        if lost >= 0 and not isinstance(found, Function):
            return Missing(text)
        base = base_of(value)
        if isinstance(found, Missing) and base is not None:
            found = self.attribute(base, word, text)
        if isinstance(found, Missing) and self._has(value, "__getattr__"):
            return Missing(text)
        return _without(value, word) if isinstance(found, Missing | ValueMethod) and value.module else found

    def _makes_functions(self, value: Class) -> bool:
        """Whether what a class has of its library is a function: the ``apply`` of a function of autograd."""
        return self.evaluator.derives(value.ref, "torch.autograd.Function", "torch.autograd.function.Function")

    def _has(self, value: Made, word: str) -> bool:
        return isinstance(self.of_class(Class(value.cls), word), Function)

    def _bound_to(self, found: Any, this: Made | Class) -> Any:
        if not isinstance(found, Function) or names.is_static(found.scope):
            return found
        if any(names.dotted(one.decorator) == "classmethod" for one in getattr(found.scope.node, "decorators", ())):
            return Function(found.module, found.scope, Class(this.cls) if isinstance(this, Made) else this)
        if isinstance(this, Class):
            return found
        bound = Function(found.module, found.scope, this)
        return self.run(bound, [], {}) if names.is_property(found.scope) else bound

    def set_attribute(self, value: Any, word: str, new: Any) -> None:
        """Set an attribute of an object, or the weight of a layer, which is another one's from then on."""
        if isinstance(new, ValueMethod) and isinstance(new.of, Layer) and ("weight" in new.name or "bias" in new.name):
            new = Missing(new.name)
        if isinstance(value, Made):
            base = base_of(value)
            if base is not None and (word in base.own or word in base.parts or word in {"weight", "bias"}):
                self.set_attribute(base, word, new)
                return
            if base is not None and base.kind not in CONTAINERS and not base.own and base.numbers and (new is None or is_part(new)):
                forget(value, f"the rest of {base.kind}")  # it may have been a part of the layer that the class derives from
            setter = self.setter(value, word)
            if setter is not None:
                self.run(setter, [new], {})
                return
            if self._has(value, "__setattr__"):
                value.missing.append(word)
                new = new if value.module else Missing(word)
            if not value.module:  # what is set last is known again
                value.attributes.pop(word, None)
            value.attributes[word] = new
        elif isinstance(value, Layer):
            if word in value.own or (word in {"weight", "bias"} and not value.numbers):
                value.own[word] = new if new is None or (isinstance(new, ParameterTensor) and new.parameter) else Missing(f"a {word} that is replaced")
            elif "weight" in word or "bias" in word:
                value.missing.append(f"a {word} that is replaced")
                value.numbers = 0
            elif word in value.parts or (is_part(new) and not (isinstance(new, Missing) and value.numbers)):  # a plain layer has no parts: it is an option
                value.parts[word] = new
            else:
                value.options = {**value.options, word: new}
        elif isinstance(value, Class):
            self.set_static(value.ref, word, new)
        elif isinstance(value, ForeignOptions):
            value.changed[word] = new
        elif isinstance(value, Names):
            value.known[word] = new
        elif isinstance(value, ParameterTensor) and word == "data":
            value.shape, value.item = (new.shape, new.item) if isinstance(new, ParameterTensor) else (value.shape, 0)

    def remove(self, value: Any, key: Any, text: str) -> None:
        """Take an attribute or an entry away."""
        if isinstance(value, ValueMethod) and value.name in TABLES:
            value = value.of
        if isinstance(value, Made):
            base = base_of(value)
            if isinstance(key, str) and key in value.attributes:
                del value.attributes[key]
            elif base is not None:
                self.remove(base, key, text)
            else:
                forget(value, text)
        elif isinstance(value, Layer) and isinstance(key, str) and key in value.own:
            del value.own[key]
        elif isinstance(value, Layer):
            keys = list(value.parts)
            gone = _chosen(keys, key)
            if gone is None:
                value.missing.append(text)
            left = [(name, one) for name, one in value.parts.items() if gone is not None and name not in gone]
            numbered = value.kind in {"Sequential", "ModuleList", "ParameterList"} and not isinstance(key, str)
            value.parts = {str(place) if numbered and name.isdigit() else name: one for place, (name, one) in enumerate(left)}
        elif isinstance(value, list | dict):
            try:
                del value[key]
            except (TypeError, KeyError, IndexError):
                value.clear()
                self.spoil_given([value], text)
        elif isinstance(value, ForeignOptions):
            value.changed[key if hashable(key) else Rest(text)] = Missing(text)

    # -- entries -------------------------------------------------------------------------------------------------------------

    def entry(self, whole: Any, key: Any, text: str) -> Any:
        """What stands in a container under a key."""
        missing = Missing(text)
        if isinstance(key, Missing | ForeignOptions | ValueMethod):
            return missing
        if isinstance(whole, ForeignOptions):
            return self.inside(whole, ("item", key), text)
        if isinstance(whole, Names) and isinstance(key, str):
            return self.member(whole, key, text)
        if isinstance(whole, ValueMethod) and whole.name in TABLES and isinstance(key, str):
            return self.attribute(whole.of, key, text)
        if isinstance(whole, Made):
            own = self._bound_to(self.of_class(Class(whole.cls), "__getitem__"), whole)
            if isinstance(own, Function):
                return self.run(own, [key], {})
            whole = base_of(whole)
        if isinstance(whole, ParameterTensor) and isinstance(key, int) and whole.shape:
            return ParameterTensor(whole.shape[1:], whole.item)
        if isinstance(whole, Layer) and whole.parts and not whole.missing:
            keys = _chosen(list(whole.parts), key)
            if keys is None:
                return missing
            return Layer(whole.kind, parts={str(place): whole.parts[one] for place, one in enumerate(keys)}) if isinstance(key, slice) else whole.parts[keys[0]]
        if isinstance(whole, range) or (isinstance(whole, list | tuple | dict | str) and items_of(whole) is not None):
            try:
                return whole[key]
            except (TypeError, KeyError, IndexError):
                return missing
        return missing

    def set_entry(self, whole: Any, key: Any, value: Any, text: str) -> None:
        """Put something into a container under a key."""
        if isinstance(whole, ValueMethod) and whole.name in TABLES:
            whole = whole.of
            if isinstance(key, str):
                self.set_attribute(whole, key, value)
                return
        if isinstance(whole, Made):
            base = base_of(whole)
            if base is None:
                whole.missing.append(text)
            whole = base
        if isinstance(whole, Layer):
            at = _chosen(list(whole.parts), key)
            whole.parts[at[0] if at else str(key)] = as_entry(whole.kind, value)
            whole.missing += [] if isinstance(key, int | str) else [text]
        elif isinstance(whole, ForeignOptions):
            whole.changed[key if hashable(key) else Rest(text)] = value
        elif isinstance(whole, dict):
            whole[key if hashable(key) else Rest(text)] = value
        elif isinstance(whole, list):
            try:
                whole[key] = value
            except (TypeError, IndexError, ValueError):
                whole[:] = [Rest(text)]

    def fill(self, value: Any, word: str, more: Any) -> None:
        """Say that a method may have put something on a container."""
        if word not in _FILLS:
            return
        if isinstance(value, Layer | Made):
            value.missing.append(more.text)
            if word == "pop" and isinstance(value, Layer):
                value.parts.clear()
        elif isinstance(value, list):
            value.append(Rest(more.text))
        elif isinstance(value, dict):
            value[Rest(more.text)] = more
        elif isinstance(value, ForeignOptions) and word in {"update", "pop", "setdefault"}:
            value.changed[Rest(more.text)] = more


def _without(value: Layer | Made, word: str) -> Any:
    """What a module gives for an attribute that it does not have: a method, or itself where a wrapper, which is taken for what it wraps, is asked for it."""
    return value if word == "module" else ValueMethod(value, word)


def base_of(value: Made) -> Layer | None:
    """The layer of a library that the class of an object derives from."""
    return next((one for key, one in value.attributes.items() if isinstance(key, str) and key.startswith("(") and isinstance(one, Layer)), None)


def _chosen(keys: list[str], key: Any) -> list[str] | None:
    """The names that a key of a container chooses."""
    try:
        return keys[key] if isinstance(key, slice) else [keys[key]] if isinstance(key, int) else [keys[keys.index(key)]]
    except (IndexError, TypeError, ValueError):
        return None


def forget(value: Made, text: str) -> None:
    """Any part of an object may be gone."""
    value.attributes = {word: one for word, one in value.attributes.items() if not is_part(one)}
    value.missing.append(text)
