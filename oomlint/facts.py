"""Facts and weights of findings as plain values, and back: what the cache on the disk and the JSON of a report hold of them.

The classes of :mod:`oomlint.finding` are the one description: their fields give the names, the types and the schema.
"""

from __future__ import annotations

import types
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from oomlint.finding import Fact, Place, Weight

if TYPE_CHECKING:
    from collections.abc import Callable

    Plain = Callable[[Place], Any]

NOUNS: Final[dict[str, Any]] = {cls.noun: cls for cls in get_args(Fact)}


def entry(fact: Fact, place: Plain) -> dict[str, Any]:
    """A fact under the names of its fields, after its noun. ``place`` says what becomes of a place."""
    return {"noun": fact.noun, **_named(fact, place)}


def row(fact: Fact, place: Plain) -> list[Any]:
    """A fact as its noun and the values of its fields, in their order."""
    return [fact.noun, *_values(fact, place)]


def of_row(known: Any, place: Callable[[Any], Place]) -> Fact:
    """The fact of a row. Raises ValueError, TypeError or LookupError where it is none."""
    noun, *values = known
    fact: Fact = _made(NOUNS[noun], values, place)
    return fact


def weight_entry(weight: Weight) -> dict[str, Any]:
    """A weight under the names of its fields, with its bytes in all."""
    return {**_named(weight, _nowhere), "total": weight.total}


def weight_row(weight: Weight) -> list[Any]:
    """A weight as the values of its fields."""
    return _values(weight, _nowhere)


def weight_of_row(known: Any) -> Weight:
    """The weight of a row. Raises as :func:`of_row`."""
    weight: Weight = _made(Weight, known, _nowhere)
    return weight


def _nowhere(_: Any) -> Any:
    """A weight has no place."""
    raise TypeError


def _named(value: Any, place: Plain) -> dict[str, Any]:
    return {name: _plain(getattr(value, name), place, _named) for name, _ in _fields(value.__class__)}


def _values(value: Any, place: Plain) -> list[Any]:
    return [_plain(getattr(value, name), place, _values) for name, _ in _fields(value.__class__)]


def _plain(value: Any, place: Plain, of_object: Callable[[Any, Plain], Any]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value.value if isinstance(value, StrEnum) else value
    if isinstance(value, tuple):
        return [_plain(item, place, of_object) for item in value]
    return place(value) if isinstance(value, Place) else of_object(value, place)


def _made(cls: Any, values: list[Any], place: Callable[[Any], Place]) -> Any:
    known = _fields(cls)
    return cls(*(_read(hint, value, place) for (_, hint), value in zip(known, values, strict=True)))


def _read(hint: Any, value: Any, place: Callable[[Any], Place]) -> Any:
    """A value of the type that a field has. It may come from a file that anybody has written."""
    if get_origin(hint) in {Union, types.UnionType}:
        return None if value is None else _read(next(one for one in get_args(hint) if one is not type(None)), value, place)
    if get_origin(hint) is tuple:
        if type(value) is not list:
            raise TypeError
        return tuple(_read(get_args(hint)[0], item, place) for item in value)
    if hint is Place:
        return place(value)
    if issubclass(hint, StrEnum):
        return hint(value)
    if hint in {bool, int, str}:
        if type(value) is not hint:
            raise TypeError
        return value
    return _made(hint, value, place)


@cache
def _fields(cls: Any) -> tuple[tuple[str, Any], ...]:
    """The names and the types of a class's fields."""
    hints = get_type_hints(cls)
    return tuple((name, hints[name]) for name in cls.__struct_fields__)


# -- the schema --------------------------------------------------------------------------------------------------------


def schema(place: str) -> dict[str, Any]:
    """A JSON Schema for each noun, by its name. ``place`` is the reference that stands for a place."""
    return {
        noun: {
            "type": "object",
            "description": _summary(cls),
            "properties": {"noun": {"const": noun}, **_properties(cls, place)},
            "required": ["noun", *(name for name, _ in _fields(cls))],
            "additionalProperties": False,
        }
        for noun, cls in NOUNS.items()
    }


def weight_schema() -> dict[str, Any]:
    """The JSON Schema of a weight."""
    known: dict[str, Any] = _schema(Weight, "")
    total = {"type": ["integer", "null"], "description": "bytes in all, at least: those of one, as often as is known"}
    return {**known, "properties": {**known["properties"], "total": total}, "required": [*known["required"], "total"]}


def _properties(cls: Any, place: str) -> dict[str, Any]:
    return {name: _schema(hint, place) for name, hint in _fields(cls)}


def _schema(hint: Any, place: str) -> dict[str, Any]:
    if get_origin(hint) in {Union, types.UnionType}:
        return {"anyOf": [_schema(one, place) for one in get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0], place)}
    if hint is Place:
        return {"$ref": place}
    plain = {type(None): "null", bool: "boolean", int: "integer", str: "string"}
    if hint in plain:
        return {"type": plain[hint]}
    if issubclass(hint, StrEnum):
        return {"enum": [one.value for one in hint]}
    names = [name for name, _ in _fields(hint)]
    return {"type": "object", "description": _summary(hint), "properties": _properties(hint, place), "required": names, "additionalProperties": False}


def _summary(cls: Any) -> str:
    return (cls.__doc__ or "").partition("\n")[0]
