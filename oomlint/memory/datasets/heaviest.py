"""Which of several containers weighs most, where their bytes are not known: by how many elements they have, and what one of these is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import PUTS_IN, WRAPPERS
from oomlint.memory.facts import items_of
from oomlint.memory.shared.content_kinds import Form, PayloadKind
from oomlint.model import names
from oomlint.syntax.nodes import is_attribute_of, names_in

if TYPE_CHECKING:
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.syntax.scopes import Scope

# Where nobody knows: an element for each sample, and a few in each container of these.
_SAMPLES: Final = 100_000
_INNER: Final = 8
_NESTED: Final = 2  # loops around what puts one object in again and again
_ROWS: Final = frozenset({Form.LIST, Form.TUPLE})
_PLAIN: Final = frozenset({PayloadKind.UNKNOWN, PayloadKind.TEXT, PayloadKind.SCALAR, PayloadKind.PATHS})
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
    return count * (_REFERENCE + _each(content))


def _each(content: Content) -> int:
    """Bytes of an element of a container, beside the reference to it."""
    if _refers(content):
        return 0
    if content.element is not None and _is_row(content.element):
        # What a dictionary has in a list under a key is of several samples: as much as a record, unless it is references.
        return max(_one(content.element), _RECORD if content.form is Form.DICT and not _refers(content.element) else 0)
    if content.element is not None and content.element.form is Form.FIELD:  # a text, or a list of such
        return _LIST + _INNER * (_REFERENCE + _STRING)
    return _RECORD if _is_record(content) else _one(content.element) if content.element is not None else _flat(content)


def _is_record(content: Content) -> bool:
    """Whether it is what was read from a file, an object of a class, or a container of dictionaries."""
    return content.kind in {PayloadKind.BLOB, PayloadKind.DATASET} or items_of(content) == "dicts"


def _is_row(content: Content) -> bool:
    """Whether it is a list or tuple in a container, whatever is in it."""
    return content.kind is PayloadKind.OBJECTS and content.element is not None and content.form in _ROWS


def _one(content: Content) -> int:
    """Bytes of an element. In a list or tuple of its own there are names and numbers, or parts of a record that another container holds."""
    if content.size.exact is not None:
        return content.size.exact
    inner = content.element
    if inner is None or not _is_row(content):
        if _is_record(content):
            return _RECORD
        if content.kind not in {PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY}:
            return _NUMBER if content.kind is PayloadKind.SCALAR else _STRING
    part = 0 if _refers(content) else _one(inner) if inner is not None and _is_row(inner) else _flat(content)
    return _LIST + (content.count or _INNER) * (_REFERENCE + part)


def _refers(content: Content) -> bool:
    """Whether its elements are there anyway: a name or number that each round of a loop puts in again, or an element of what the object holds."""
    module, node = content.module, content.node
    value, loops = _put(content)
    if module is None or node is None or not isinstance(value, cst.Name):
        return False
    scope = module.walk.scope_at(node)
    if any(_is_held(scope, loop.iter) for loop in loops if value.value in names_in(loop.target)):
        return True
    around = [here for here in module.walk.ancestors(node) if isinstance(here, cst.For | cst.While)]
    given = [effect.statement for effect in scope.effects.get(value.value, ()) if not effect.path]
    plain = content.element is None or content.element.kind in _PLAIN  # else it is put in here alone, under several keys
    if isinstance(node, cst.BaseComp) or len(around) < _NESTED or not given or not plain:
        return False
    return not any(one is around[0] or around[0] in module.walk.ancestors(one) for one in given)


def _put(content: Content) -> tuple[cst.BaseExpression | None, list[cst.For | cst.CompFor]]:
    """What is put into a container again and again, and the loops that may give it its name."""
    node = content.node
    if isinstance(node, cst.ListComp | cst.SetComp | cst.DictComp):
        loops = [node.for_in]
        while loops[-1].inner_for_in is not None:
            loops.append(loops[-1].inner_for_in)
        return (node.value if isinstance(node, cst.DictComp) else node.elt), [*loops]
    if content.module is None or not isinstance(node, cst.Call) or len(node.args) != 1 or names.last_name(node.func) not in PUTS_IN:
        return None, []
    return node.args[0].value, [here for here in content.module.walk.ancestors(node) if isinstance(here, cst.For)]


def _is_held(scope: Scope, iterable: cst.BaseExpression) -> bool:
    """Whether a loop goes through what an attribute of the object holds: ``self.rows``, ``self.rows.items()``."""
    inner = names.iterated(iterable, WRAPPERS)
    if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) and inner.func.attr.value in {"items", "values", "keys"}:
        inner = inner.func.value
    return is_attribute_of(inner, names.self_name(scope))


def _flat(content: Content) -> int:
    """Bytes of one of the strings or numbers of a container."""
    return _STRING if content.strings or content.element is not None else _NUMBER
