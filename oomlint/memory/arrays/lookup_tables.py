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
    """Whether a method asks for a key that it was given, and takes an entry that it names; one that fills the table asks what is in it already."""
    asked = fallback = filled = False
    for node in method.nodes():
        if isinstance(node, cst.Comparison) and not isinstance(node.left, cst.SimpleString):  # else it asks which columns there are
            asked = asked or any(isinstance(one.operator, cst.In | cst.NotIn) and names.dotted(one.comparator) == table for one in node.comparisons)
        elif isinstance(node, cst.Subscript) and names.dotted(node.value) == table:
            index = node.slice[0].slice
            fallback = fallback or (isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString))
        elif isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Subscript) and names.dotted(node.target.value) == table:
            filled = True
        elif isinstance(node, cst.Call) and names.dotted(node.func) == f"{table}.get" and _gives_default(node):
            return True
    return asked and fallback and not filled


def _gives_default(call: cst.Call) -> bool:
    return len(call.args) == _WITH_DEFAULT and names.dotted(call.args[1].value) != "None"
