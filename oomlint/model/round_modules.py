"""Loops over modules: each round calls what it is given, a layer or a member of an ensemble. Their rounds are parts of one pass, not batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.rounds import body_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.model.events import Forward, Loop
    from oomlint.syntax.scopes import Scope


def calls_target(loop: Loop, event: Forward) -> bool:
    """Whether the module that is called is what the loop's round goes over, or an element or attribute of it, also through the arguments of helpers."""
    chain = [*event.via, None]
    taken = body_of(loop).targets
    for via in chain[len(loop.via) :]:
        call = event.node if via is None else via.call
        if not taken or not isinstance(call, cst.Call):
            return False
        if via is None or via.callee is None:
            return _root(call.func) in taken
        taken = _handed(call, via.callee, taken)
    return False


def _root(node: cst.BaseExpression) -> str:
    """The name that an element, an attribute or what either holds is taken from: ``block`` of ``block.layers[0]``."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _handed(call: cst.Call, callee: Scope, taken: Iterable[str]) -> frozenset[str]:
    """Parameters of a function that are given something that is taken from these names."""
    own = names.self_name(callee)
    free = [param.name.value for param in names.parameters(callee) if param.name.value != own]
    found: set[str] = set()
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else free.pop(0) if free and not arg.star else ""
        if name and _root(arg.value) in taken:
            found.add(name)
    if own is not None and isinstance(call.func, cst.Attribute) and _root(call.func.value) in taken:
        found.add(own)
    return frozenset(found)
