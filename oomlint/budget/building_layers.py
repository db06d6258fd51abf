"""Layers of ``torch.nn``, by what their constructors are given, and copies of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomlint.budget.costs import FLOAT
from oomlint.budget.layers import attributes_of, kept_beside, numbers_of, options_of, shapes_of
from oomlint.budget.parts import CONTAINERS, Class, ForeignOptions, Function, Layer, Library, Made, Missing, ParameterTensor, ValueMethod, is_part, items_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DICTS: Final = frozenset({"ModuleDict", "ParameterDict"})
_ENCODERS: Final = frozenset({"TransformerEncoder", "TransformerDecoder"})
_OF_ENCODERS: Final = ("encoder_layer", "decoder_layer")
_PARAMETERS: Final = frozenset({"ParameterList", "ParameterDict"})


def layer(word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """A layer of ``torch.nn``."""
    if word in CONTAINERS:
        return _container(word, [*plain, *(named[key] for key in ("modules", "values", "parameters") if key in named)], text)
    if word == "Module":
        return Layer("Module")
    if word in _ENCODERS:
        given = {**dict(zip((next((key for key in _OF_ENCODERS if key in named), "encoder_layer"), "num_layers", "norm"), plain, strict=False)), **named}
        one, times, norm = next((given[key] for key in _OF_ENCODERS if key in given), None), given.get("num_layers"), given.get("norm")
        if not isinstance(times, int) or not is_part(one):
            return Layer(word, missing=[text])
        layers = Layer("ModuleList", parts={str(place): copied(one) for place in range(min(times, 200))})
        return Layer(word, parts={"layers": layers, **({"norm": norm} if is_part(norm) else {})})
    given_plain = [_given(one) for one in plain]
    words = {key: _given(value) for key, value in named.items() if key not in {"device", "**"}}
    dtype = named.get("dtype")
    known = (dtype is None or dtype == Library("torch.float32")) and "**" not in named
    count = numbers_of(word, given_plain, words) if known else None
    if count is None:
        return Layer(word, missing=[text])
    options = options_of(word, given_plain, words)
    found = Layer(word, count, kept_beside(word, given_plain, words), options=attributes_of(word, options))
    shapes = shapes_of(word, options)
    if shapes:
        found.own = {key: ParameterTensor(shape, FLOAT, parameter=True) if shape is not None else None for key, shape in shapes.items()}
        found.numbers = 0
    return found


def _given(value: Any) -> Any:
    """An argument of a layer; what is no number has no number of its own."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Missing | ForeignOptions | ValueMethod):
        return _UNKNOWN
    return None if isinstance(value, Library | Layer | Made | Function | Class) else value


class _Unknown:
    """An argument that nobody knows: what needs it cannot be computed, what does not can."""

    def __bool__(self) -> bool:
        """Raise TypeError, as all arithmetic with it does."""
        raise TypeError("unknown")


_UNKNOWN: Final = _Unknown()


def _container(word: str, plain: Sequence[Any], text: str) -> Layer:
    found = Layer(word)
    items: list[Any] | None = list(plain)
    if word in _DICTS or (word == "Sequential" and len(plain) == 1 and isinstance(plain[0], dict | list)):
        whole = plain[0] if plain else {}
        if isinstance(whole, list) and all(isinstance(one, tuple | list) and len(one) == 2 for one in whole):  # noqa: PLR2004 - a name and a layer
            whole = dict(whole)
        if isinstance(whole, dict):
            found.parts = {str(key): as_entry(word, value) for key, value in whole.items()}
            return found
        items = None
    elif word != "Sequential" and plain:
        items = items_of(plain[0])
    if items is None:
        found.missing.append(text)
    for place, one in enumerate(items or ()):
        found.parts[str(place)] = as_entry(word, one)
    return found


def as_entry(kind: str, value: Any) -> Any:
    """What a container of torch makes of what is put in: a tensor becomes a parameter in those that hold parameters."""
    return (
        ParameterTensor(value.shape, value.item, parameter=True)
        if kind in _PARAMETERS and isinstance(value, ParameterTensor) and not value.parameter
        else value
    )


def copied(value: Any, known: dict[int, Any] | None = None, *, deep: bool = True) -> Any:
    """A copy of what is made; in a deep one, what was one object is one in the copy."""
    known = {} if known is None else known

    def inner(each: Any) -> Any:
        return copied(each, known) if deep else each

    if not deep and isinstance(value, Layer):  # torch keeps parts in dictionaries, which a flat copy shares
        return Layer(value.kind, value.numbers, value.kept, value.parts, value.missing, value.own, value.options)
    if not deep and isinstance(value, Made) and value.module:
        return Made(value.cls, value.module, value.attributes, value.missing)
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, Layer):
        twin = known[id(value)] = Layer(value.kind, value.numbers, value.kept, {}, list(value.missing), {}, value.options)
        twin.own.update({key: inner(one) for key, one in value.own.items()})
        twin.parts.update({key: inner(one) for key, one in value.parts.items()})
        return twin
    if isinstance(value, Made):
        other = known[id(value)] = Made(value.cls, value.module, {}, list(value.missing))
        other.attributes.update({key: inner(one) for key, one in value.attributes.items()})
        return other
    if isinstance(value, ParameterTensor):
        return known.setdefault(id(value), ParameterTensor(value.shape, value.item, value.parameter, value.kept))
    if isinstance(value, ForeignOptions):
        return ForeignOptions(value.value, dict(value.changed))
    if isinstance(value, list | tuple):
        return type(value)(inner(one) for one in value)
    return {key: inner(one) for key, one in value.items()} if isinstance(value, dict) else value
