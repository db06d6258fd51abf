"""libcst with less overhead, and the same trees.

Five things that libcst does in Python for each node cost a third of a run, and change nothing for trees that come from its parser:

- Nodes are compared and hashed by identity, by methods written in Python: those of ``object`` do the same.
- Its classes are abstract base classes, so that ``isinstance`` asks ``ABCMeta`` whether a class was registered. None ever is.
- Each node is validated when it is made. What the parser makes is valid.
- The value of a literal is read again each time that it is asked for.
- Two nodes in five are blanks, each an object of its own. The same blanks are one: nobody asks where a blank stands.
"""

from __future__ import annotations

import ast
import gc
import sys
from abc import ABCMeta
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_DIGITS: Final = 4300  # Python reads no longer number; `int` and `ast` refuse it


class _Plain(ABCMeta):
    """Classes whose instances are known by inheritance alone."""

    __instancecheck__ = type.__instancecheck__  # the same, without the registry
    __subclasscheck__ = type.__subclasscheck__


def _classes(top: type) -> Iterator[type]:
    yield top
    found: list[type] = type.__subclasses__(top)
    for below in found:
        yield from _classes(below)


@lru_cache(maxsize=1 << 14)
def _read(literal: str) -> object:
    return ast.literal_eval(literal)


def _evaluated(node: Any) -> object:
    """What a string or number stands for. A number that Python does not read is at least larger than all that is asked for."""
    if len(node.value) > MOST_DIGITS and isinstance(node, cst.Integer):
        return sys.maxsize
    return _read(node.value)


def _quicken() -> None:
    kinds: set[Any] = set(_classes(cst.CSTNode))
    for kind in kinds:
        if type(kind) is ABCMeta:
            kind.__class__ = _Plain
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


def _valid(node: cst.CSTNode) -> None:
    """In place of a validation."""


@contextmanager
def parsing() -> Iterator[None]:
    """While libcst's parser makes nodes: they are not validated, and the garbage collector does not look for cycles among them: trees have none."""
    collects, validated = gc.isenabled(), cst.CSTNode.__post_init__
    gc.disable()
    cst.CSTNode.__post_init__ = _valid  # type: ignore[method-assign, assignment]
    cst.SimpleWhitespace = _blank  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        cst.CSTNode.__post_init__ = validated  # type: ignore[method-assign]
        cst.SimpleWhitespace = _plain  # type: ignore[misc]
        if collects:
            gc.enable()


_quicken()
