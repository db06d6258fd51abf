"""Tables that are looked up by a key which may be missing: vectors of words, and not samples, of which a dataset knows which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names

if TYPE_CHECKING:
    from oomlint.syntax.scopes import Scope

_WITH_DEFAULT: Final = 2  # arguments of `table.get(key, default)`


def stands_in_for_missing(owner: Scope, attribute: str) -> bool:
    """Whether a method takes an entry of its own for keys that an attribute does not have: ``table[word] if word in table else table["unk"]``."""
    return any(_has_entry_for_missing(method, f"{this}.{attribute}") for method in owner.children if (this := names.self_name(method)) is not None)


def _has_entry_for_missing(method: Scope, table: str) -> bool:
    asked = fallback = False
    for node in method.nodes():
        if isinstance(node, cst.ComparisonTarget) and isinstance(node.operator, cst.In | cst.NotIn):
            asked = asked or names.dotted(node.comparator) == table
        elif isinstance(node, cst.Subscript) and names.dotted(node.value) == table:
            index = node.slice[0].slice
            fallback = fallback or (isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString))
        elif isinstance(node, cst.Call) and names.dotted(node.func) == f"{table}.get" and _gives_default(node):
            return True
    return asked and fallback


def _gives_default(call: cst.Call) -> bool:
    return len(call.args) == _WITH_DEFAULT and names.dotted(call.args[1].value) != "None"
