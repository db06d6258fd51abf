"""Methods of layers and objects, of containers, strings, arrays and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomlint.api_names import SAME_MODEL
from oomlint.budget.building_arrays import item_of, method_of_array
from oomlint.budget.building_layers import as_entry
from oomlint.budget.costs import FLOAT
from oomlint.budget.object_state import TABLES, ObjectState, base_of
from oomlint.budget.parts import (
    ForeignOptions,
    Function,
    Layer,
    Library,
    Made,
    Missing,
    ParameterTensor,
    Rest,
    ValueMethod,
    all_parts,
    is_part,
    items_of,
    parts_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ITEMS: Final = {"half": 2, "bfloat16": 2, "double": 8, "float": FLOAT}  # bytes of a number, of methods that change it
_TYPES: Final = frozenset({"to", "type"})
_OF_LISTS: Final = frozenset({"append", "extend", "insert", "pop", "index", "count", "copy", "reverse", "remove", "clear", "sort"})
_OF_DICTS: Final = frozenset({"items", "keys", "values", "get", "pop", "update", "copy", "setdefault", "clear"})
_OF_STRINGS: Final = frozenset(
    "format find title rstrip lstrip rsplit zfill isnumeric lower upper split startswith endswith replace strip join isdigit".split()
)
_LOOKS_AT_SETTINGS: Final = frozenset({"freeze", "defrost", "dump", "to_dict", "clone"})
# Methods that change no part.
_LOOKS: Final = frozenset(
    "parameters named_parameters state_dict load_state_dict modules named_modules children named_children buffers named_buffers size dim numel zero_grad "
    "get_parameter get_submodule forward __call__ __class__ training register_forward_hook register_backward_hook weight bias data extra_repr keys values "
    "items __len__ save_hyperparameters reset_parameters _reset_parameters log print".split()
)


class Methods(ObjectState):
    """Methods of values."""

    def method(self, of: Any, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
        """What a method gives."""
        if isinstance(of, ValueMethod):
            if of.name in TABLES and word in {"pop", "values", "items", "keys", "update"}:
                return self._of_module(of.of, word, plain, named, text)
            return Missing(text)
        if isinstance(of, Layer | Made):
            return self._of_module(of, word, plain, named, text)
        if isinstance(of, ParameterTensor):
            return method_of_array(of, word, plain, named, text)
        if isinstance(of, ForeignOptions):
            return self._of_settings(of, word, plain, named, text)
        known = _OF_LISTS if isinstance(of, list | tuple) else _OF_DICTS if isinstance(of, dict) else _OF_STRINGS
        if word not in known or any(isinstance(one, Missing | ForeignOptions) for one in plain[:1] if word not in {"append", "insert", "setdefault"}):
            self.spoil_given([of], text)
            return Missing(text)
        if items_of(of) is None and word not in {"append", "clear"}:
            return Missing(text)
        if isinstance(of, list) and word == "extend":
            items = items_of(plain[0]) if plain else None
            of.extend(items if items is not None else [Rest(text)])
            return None
        if isinstance(of, dict) and word in {"items", "keys", "values"}:
            return list(getattr(of, word)())
        if isinstance(of, str) and any(not isinstance(one, str | int | float | list | tuple) for one in (*plain, *named.values())):
            return Missing(text)
        try:
            return getattr(of, word)(*plain, **named)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            if isinstance(of, list):
                of[:] = [Rest(text)]
            return Missing(text)

    def _of_settings(self, of: ForeignOptions, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
        held = self.entries(of)
        if word in {"get", "pop", "setdefault"} and plain:
            known = not any(isinstance(one, Rest) for one in held) and plain[0] not in held
            return (plain[1] if len(plain) > 1 else None) if known else self.inside(of, ("item", plain[0]), text)
        if word in {"items", "keys", "values", "copy"}:
            return self.method(held, word, plain, named, text)
        given = [self.entries(one) if isinstance(one, ForeignOptions) else one for one in plain]
        if word == "update" and all(isinstance(one, dict) for one in given):
            for one in (*given, named):
                of.changed.update(one)
        elif word not in _LOOKS_AT_SETTINGS:
            of.changed[Rest(text)] = None
        return Missing(text)

    def _of_module(self, of: Layer | Made, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
        base = base_of(of) if isinstance(of, Made) else None
        whole = of if base is None else base  # what a container is
        parts = whole.parts if isinstance(whole, Layer) else whole.attributes
        typed = [item_of(one) for one in (*plain, *named.values()) if isinstance(one, Library)] if word in _TYPES else []
        item = _ITEMS.get(word, typed[0] if typed else FLOAT)
        if item is None:
            of.missing.append(text)
            return of
        if word in _ITEMS or typed:
            of.item = item
            return of
        if word == "apply" and plain:
            for one in list(all_parts(of)) if isinstance(plain[0], Function) and _whole(of) else ():
                if isinstance(one, Layer | Made):
                    self.run(plain[0], [one], {})
            if not isinstance(plain[0], Function) or not _whole(of):
                self.spoil_given([] if isinstance(plain[0], Function) else [of], text)
            return of
        if word in SAME_MODEL or word in {"requires_grad_", "share_memory"}:
            return of
        if isinstance(whole, Layer) and word in {"append", "insert", "extend", "__iadd__"} and plain:
            _put(whole, word, plain, text)
            return of
        if word in {"add_module", "register_module", "register_parameter"}:
            name, part, *_ = [*plain, *named.values(), Missing(text), Missing(text)]
            if isinstance(name, str):
                self.set_attribute(of, name, part)
            else:
                parts[f"{len(parts)}?"] = part
            return None
        if word == "register_buffer":
            value = plain[1] if len(plain) > 1 else named.get("tensor")
            if isinstance(value, ParameterTensor) and plain and isinstance(plain[0], str):
                parts[plain[0]] = ParameterTensor(value.shape, value.item, kept=True)
            return None
        if word in {"children", "modules", "named_children", "named_modules"}:
            return _listed(of, word, parts, text) if _whole(of) else Missing(text)
        if isinstance(whole, Layer) and word == "update" and plain:
            given: Any = plain[0].parts if isinstance(plain[0], Layer) else plain[0]
            items = list(given.items()) if isinstance(given, dict) else items_of(given)
            if items is not None and all(isinstance(one, tuple | list) and len(one) == 2 and isinstance(one[0], str) for one in items):  # noqa: PLR2004 - a name and a layer
                parts.update(items)
                return None
        if word in {"keys", "values", "items"} and not whole.missing:
            return list(getattr({key: one for key, one in parts.items() if is_part(one)}, word)())
        if word in {"pop", "clear", "popitem", "__delitem__", "__delattr__"}:
            gone = self.entry(whole, plain[0], text) if plain and isinstance(whole, Layer) else Missing(text)
            self.remove(whole, plain[0] if plain else slice(None) if word == "clear" else -1, text)
            return gone
        if word == "__setattr__" and len(plain) > 1 and isinstance(plain[0], str):
            self.set_attribute(of, plain[0], plain[1])
            return None
        if word not in _LOOKS:
            of.missing.append(text)
        return Missing(text)


def _put(whole: Layer, word: str, plain: Sequence[Any], text: str) -> None:
    """Put layers into a container."""
    items: list[Any] | None = items_of(plain[0]) if word in {"extend", "__iadd__"} else [plain[-1]]
    held = list(whole.parts.values())
    at = plain[0] if word == "insert" and isinstance(plain[0], int) else len(held)
    whole.missing += [text] if items is None or (word == "insert" and not isinstance(plain[0], int)) else []
    held[at:at] = [as_entry(whole.kind, one) for one in items or ()]
    names = map(str, range(len(held))) if word == "insert" else [*whole.parts, *map(str, range(at, len(held)))]
    whole.parts = dict(zip(names, held, strict=False))


def _listed(of: Layer | Made, word: str, parts: Mapping[Any, Any], text: str) -> list[Any]:
    """The modules in a module."""
    if word == "named_children":
        return [(name, one) for name, one in parts.items() if is_part(one) and not isinstance(one, ParameterTensor)]
    found = list(all_parts(of)) if "modules" in word else [one for one in parts_of(of) if not isinstance(one, ParameterTensor)]
    return [(Missing(text), one) for one in found] if word.startswith("named") else found


def _whole(value: Any) -> bool:
    """Whether all parts of a module are known."""
    inner = list(all_parts(value))
    held = [one for each in inner if isinstance(each, Layer | Made) for one in (each.parts if isinstance(each, Layer) else each.attributes).values()]
    return not any(isinstance(one, Missing) for one in held) and not any(one.missing for one in inner if isinstance(one, Layer | Made))
