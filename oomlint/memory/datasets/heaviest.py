"""Which of several containers weighs most, where their bytes are not known: by how many elements they have, and what one of these is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.memory.facts import items_of
from oomlint.memory.shared.content_kinds import PayloadKind

if TYPE_CHECKING:
    from oomlint.memory.shared.content_kinds import Content

# Where nobody knows: an element for each sample, and a few in each container of these.
_SAMPLES: Final = 100_000
_INNER: Final = 8
# Bytes of one object (CPython 3.11, `sys.getsizeof`, rounded): a list or tuple without its elements, a reference, a number, a short string, and a
# dictionary with texts, as a line of a file has one.
_LIST: Final = 56
_REFERENCE: Final = 8
_NUMBER: Final = 32
_STRING: Final = 64
_RECORD: Final = 1024


def likely_bytes(content: Content) -> int:
    """Bytes that a container takes where each sample has an element, to lay it beside others; those that are known, where they are."""
    if content.size.exact is not None:
        return content.size.exact
    count = content.count if content.count is not None else _SAMPLES
    return count * (_REFERENCE + (_RECORD if _is_record(content) else _one(content.element) if content.element is not None else _flat(content)))


def _is_record(content: Content) -> bool:
    """Whether it is what was read from a file, an object of a class, or a container of dictionaries."""
    return content.kind in {PayloadKind.BLOB, PayloadKind.DATASET} or items_of(content) == "dicts"


def _one(content: Content) -> int:
    """Bytes of an element. In a list or tuple of its own there are names and numbers, or parts of a record that another container holds."""
    if content.size.exact is not None:
        return content.size.exact
    if _is_record(content):
        return _RECORD
    if content.kind in {PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY}:
        return _LIST + (content.count or _INNER) * (_REFERENCE + _flat(content))
    return _NUMBER if content.kind is PayloadKind.SCALAR else _STRING


def _flat(content: Content) -> int:
    """Bytes of one of the strings or numbers of a container."""
    return _STRING if content.strings or content.element is not None else _NUMBER
