"""What a name that is computed may be, by the parts of it that are written: ``getattr(self, "read_" + kind)``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.syntax.nodes import beginning, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.syntax.scopes import Scope

MOST: Final = 12  # classes or methods that one name may be; of a module with more, nobody knows which


def asked_for(key: cst.BaseExpression, of: Iterable[str]) -> list[str]:
    """Those names that a computed one may be: the one that it says, or those that begin and end as it does; none where nothing of it is known."""
    known, start, end = constant_key(key), beginning(key), ending(key)
    if isinstance(known, str):
        return [name for name in of if name == known]
    found = [name for name in of if start + end and name.startswith(start) and name.endswith(end)]
    return found if len(found) <= MOST else []


def ending(node: cst.BaseExpression) -> str:
    """The text that a computed string ends with: ``Dataset`` of ``name + "Dataset"``, as `beginning` says how it begins."""
    if isinstance(node, cst.FormattedString):
        last = node.parts[-1] if node.parts else None
        return last.value if isinstance(last, cst.FormattedStringText) else ""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        return re.split(r"%[sdr]", ending(node.left))[-1]
    if isinstance(node, cst.BinaryOperation):
        return ending(node.right)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        return ending(node.func.value).rpartition("}")[2]
    known = constant_key(node)
    return known if isinstance(known, str) else ""


def key_of(function: cst.BaseExpression, scope: Scope) -> cst.BaseExpression | None:
    """The name by which `getattr` looks up what is called, where it is called or where it got a local name; ``None`` for what is not looked up so."""
    looked_up: cst.BaseExpression | None = function
    if isinstance(function, cst.Name):
        given = scope.effects.get(function.value, ())
        looked_up = next((one.value for one in given if one.kind == "assign" and not (one.path or one.index) and isinstance(one.value, cst.Call)), None)
    if isinstance(looked_up, cst.Call) and names.last_name(looked_up.func) == "getattr" and len(looked_up.args) > 1:
        return looked_up.args[1].value
    return None
