"""Layers of ``torch.nn``, by what their constructors are given, and copies of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomlint.budget.layers import kept_beside, numbers_of, options_of, without_weight
from oomlint.budget.parts import Array, Class, Function, Layer, Library, Made, Missing, Outside, is_part, items_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_LISTS: Final = frozenset({"Sequential", "ModuleList", "ParameterList"})
_DICTS: Final = frozenset({"ModuleDict", "ParameterDict"})
_ENCODERS: Final = frozenset({"TransformerEncoder", "TransformerDecoder"})


def layer(word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """A layer of ``torch.nn``."""
    if word in _LISTS or word in _DICTS:
        return _listed_layer(word, plain, text)
    if word == "Module":
        return Layer()
    if word in _ENCODERS and plain and isinstance(plain[0], Layer):
        times = plain[1] if len(plain) > 1 else named.get("num_layers")
        more = [one for one in (*plain[2:], named.get("norm")) if is_part(one)]
        if not isinstance(times, int):
            return Layer(missing=[text])
        return Layer(parts={str(place): one for place, one in enumerate([*(copied(plain[0]) for _ in range(min(times, 200))), *more])})
    given = [_given(one) for one in plain]
    words = {key: _given(value) for key, value in named.items() if key not in {"device", "**"}}
    known = "dtype" not in words and "**" not in named
    count = numbers_of(word, given, words) if known else None
    if count is None:
        return Layer(missing=[text])
    return Layer(count, kept_beside(word, given, words), without_weight=without_weight(word, given, words), options=options_of(word, given, words))


def _given(value: Any) -> Any:
    """An argument of a layer; what is no number has no number of its own."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Missing | Outside):
        return _UNKNOWN
    return None if isinstance(value, Library | Layer | Made | Function | Class) else value


class _Unknown:
    """An argument that nobody knows: what needs it cannot be computed, what does not can."""

    def __bool__(self) -> bool:
        """Raise TypeError, as all arithmetic with it does."""
        raise TypeError("unknown")


_UNKNOWN: Final = _Unknown()


def _listed_layer(word: str, plain: Sequence[Any], text: str) -> Layer:
    found = Layer()
    items: list[Any] | None = list(plain)
    if word in _DICTS or (word == "Sequential" and len(plain) == 1 and isinstance(plain[0], dict | list)):
        whole = plain[0] if plain else {}
        if isinstance(whole, list) and all(isinstance(one, tuple | list) and len(one) == 2 for one in whole):  # noqa: PLR2004 - a name and a layer
            whole = dict(whole)
        if isinstance(whole, dict):
            found.parts = {str(key): value for key, value in whole.items()}
            return found
        items = None
    elif word != "Sequential" and plain:
        items = items_of(plain[0])
    if items is None:
        found.missing.append(text)
    for place, one in enumerate(items or ()):
        found.parts[str(place)] = one
    return found


def copied(value: Any, known: dict[int, Any] | None = None) -> Any:
    """A deep copy of what is made: what was one object is one in the copy."""
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Layer):
        twin = known[id(value)] = Layer(value.numbers, value.kept, {}, list(value.missing), value.without_weight, value.options)
        twin.parts.update({key: copied(one, known) for key, one in value.parts.items()})
        return twin
    if isinstance(value, Made):
        other = known[id(value)] = Made(value.cls, value.module, {}, list(value.missing))
        other.attributes.update({key: copied(one, known) for key, one in value.attributes.items()})
        return other
    if isinstance(value, Array):
        return known.setdefault(id(value), Array(value.shape, value.item, value.parameter, value.kept))
    if isinstance(value, list | tuple):
        return type(value)(copied(one, known) for one in value)
    return {key: copied(one, known) for key, one in value.items()} if isinstance(value, dict) else value
