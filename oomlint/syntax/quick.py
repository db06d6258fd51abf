"""libcst with less overhead, and the same trees.

What libcst does in Python for each node costs a third of a run, and changes nothing for trees that come from its parser:

- Nodes are compared and hashed by identity, by methods written in Python: those of ``object`` do the same.
- Its classes are abstract base classes, so that ``isinstance`` asks ``ABCMeta`` whether a class was registered. None ever is. Plain classes, which they become
  unless somebody has imported libcst before, answer at once.
- Each attribute of a node is set past a check that forbids to set it.
- The methods of its classes are written, and compiled, each by itself, whenever they are imported.
- Each node is validated when it is made. What the parser makes is valid.
- The value of a literal is read again each time that it is asked for.
- Two nodes in five are blanks, each an object of its own. The same blanks are one: nobody asks where a blank stands.
"""

from __future__ import annotations

import abc
import ast
import dataclasses
import gc
import sys
from abc import ABC, ABCMeta
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Chosen(type):
    """Makes the classes of libcst plain ones, and those of others what they ask for."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        own = body["__module__"].partition(".")[0] == "libcst"
        chosen = tuple((object if own else ABC) if isinstance(base, _Chosen) else base for base in bases)
        return (type if own else ABCMeta)(name, chosen, body)


_MISSING: Final = dataclasses.MISSING
_now: Final[dict[str, Any]] = {"validates": True}
_written: Final = set[Any]()


def _initializer(kind: type) -> Any:
    """An ``__init__`` that is written when the first node is made: half of the kinds are in no file."""

    def first(self: Any, *given: Any, **named: Any) -> None:
        own: Any = next(one for one in type(self).__mro__ if one.__dict__.get("__init__") is first)
        own.__init__ = _written_initializer(kind)
        own.__init__(self, *given, **named)

    _written.add(first)
    return first


def _written_initializer(kind: type) -> Any:
    """What ``dataclass`` writes as ``__init__``, for a class whose attributes may be set."""
    parameters, rows, given = [], [], {}
    for one in dataclasses.fields(kind):
        name, value = one.name, one.name
        if one.default is not _MISSING:
            given[f"default_{name}"] = one.default
            name += f"=default_{name}"
        elif one.default_factory is not _MISSING:
            given[f"make_{name}"] = one.default_factory
            name, value = f"{name}=missing", f"make_{name}() if {name} is missing else {name}"
        parameters.append(name)
        rows.append(f" self.{one.name} = {value}\n")
    head = f"def {kind.__name__}({', '.join(given)}):\n def __init__(self, {', '.join(parameters)}):\n"
    body = "".join(f" {row}" for row in (*rows, " if now['validates']:\n", "  self._validate()\n"))
    made: dict[str, Any] = {}
    exec(f"{head}{body} return __init__", {"now": _now, "missing": _MISSING}, made)  # noqa: S102 - as dataclasses do
    return made[kind.__name__](**given)


def _recorded(kind: Any = None, **options: Any) -> Any:
    """In place of ``dataclass``: nodes of libcst get no methods but the one that makes them. To write the others takes a fifth of the time of a start."""
    if kind is None:
        return partial(_recorded, **options)
    kind.__doc__ = kind.__doc__ or kind.__name__  # else ``dataclass`` works out how its initializer is called
    if kind.__module__.partition(".")[0] != "libcst" or not hasattr(kind, "_validate"):
        return _dataclass(kind, **options)
    noted = _dataclass(kind, init=False, repr=False, eq=False)
    if "__init__" not in kind.__dict__:
        noted.__init__ = _initializer(noted)
    return noted


# The kind of a class, and its methods, are settled when it is made.
_dataclass = dataclasses.dataclass
abc.ABC = type.__new__(_Chosen, "ABC", (), {})  # type: ignore[assignment, misc]
dataclasses.dataclass = _recorded
try:
    import libcst as cst
finally:
    abc.ABC, dataclasses.dataclass = ABC, _dataclass  # type: ignore[misc]

MOST_DIGITS: Final = 4300  # Python reads no longer number; `int` and `ast` refuse it


def _classes(top: type) -> Iterator[type]:
    yield top
    found: list[type] = type.__subclasses__(top)
    for below in found:
        yield from _classes(below)


@lru_cache(maxsize=1 << 14)
def _read(literal: str) -> object:
    mark = literal[0]
    if mark in "'\"" and "\\" not in literal and literal[1:3] != mark * 2:
        return literal[1:-1]  # as nearly all are
    return ast.literal_eval(literal)


def _evaluated(node: Any) -> object:
    """What a string or number stands for. A number that Python does not read is at least larger than all that is asked for."""
    if len(node.value) > MOST_DIGITS and isinstance(node, cst.Integer):
        return sys.maxsize
    return _read(node.value)


def _quicken() -> None:
    kinds: set[Any] = set(_classes(cst.CSTNode))
    ours = {None, *_written}
    for kind in kinds:
        # A check for each attribute that is set costs more than all else that a node takes.
        for method in {"__setattr__", "__delattr__"} & kind.__dict__.keys():
            delattr(kind, method)
        if kind.__dict__.get("__init__") not in ours and "__dataclass_fields__" in kind.__dict__:
            kind.__init__ = _initializer(kind)
        if "__hash__" in kind.__dict__:
            kind.__hash__ = object.__hash__
        if "__eq__" in kind.__dict__:
            kind.__eq__ = object.__eq__
    for literal in (cst.SimpleString, cst.Integer, cst.Float):
        literal.evaluated_value = property(_evaluated)  # type: ignore[method-assign, assignment]


_plain = cst.SimpleWhitespace
_blanks: dict[str, cst.SimpleWhitespace] = {}


def _blank(value: str) -> cst.SimpleWhitespace:
    """In place of the class, which the parser looks up by its name."""
    known = _blanks.get(value)
    if known is None:
        known = _blanks[value] = _plain(value)
    return known


@contextmanager
def parsing() -> Iterator[None]:
    """While libcst's parser makes nodes: they are not validated, and the garbage collector does not look for cycles among them: trees have none."""
    collects = gc.isenabled()
    gc.disable()
    _now["validates"] = False
    cst.SimpleWhitespace = _blank  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        _now["validates"] = True
        cst.SimpleWhitespace = _plain  # type: ignore[misc]
        if collects:
            gc.enable()


_quicken()
