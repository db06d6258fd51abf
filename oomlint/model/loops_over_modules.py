"""Loops over modules: each round calls what it is given, a layer or a member of an ensemble. Their rounds are parts of one pass, not batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.rounds import body_of

if TYPE_CHECKING:
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
            return _is_taken(call.func, taken)
        taken = _handed(call, via.callee, taken)
    return False


def _is_taken(node: cst.BaseExpression, taken: frozenset[str]) -> bool:
    """Whether it is taken from what one of these names stands for, or picked by it: ``block.layers[0]`` of ``block``, ``models[number]`` by ``number``."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
        if isinstance(index, cst.Index) and isinstance(index.value, cst.Name) and index.value.value in taken:
            return True
        node = node.value
    return isinstance(node, cst.Name) and node.value in taken


def _handed(call: cst.Call, callee: Scope, taken: frozenset[str]) -> frozenset[str]:
    """Parameters of a function that are given something that is taken from these names."""
    own = names.self_name(callee)
    free = [param.name.value for param in names.parameters(callee) if param.name.value != own]
    found: set[str] = set()
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else free.pop(0) if free and not arg.star else ""
        if name and _is_taken(arg.value, taken):
            found.add(name)
    if own is not None and isinstance(call.func, cst.Attribute) and _is_taken(call.func.value, taken):
        found.add(own)
    return frozenset(found)
