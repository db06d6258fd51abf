"""Backward calls, and the code that one step runs around them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.frameworks import BACKWARDS, TRAINING_STEP
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.model import arguments, names

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

Loop = cst.For | cst.While

_DEEPEST: Final = 3


class Region(Struct, frozen=True):
    """The code of one step: a loop (the innermost one), or a function that a loop calls."""

    module: Module
    scope: Scope
    loop: Loop | None
    whole: cst.CSTNode  # the outermost loop, or the function
    call: cst.Call  # the backward, or the call that leads to it

    def holds(self, node: cst.CSTNode) -> bool:
        """Whether the node lies in the innermost loop or in the function."""
        inner = self.loop if self.loop is not None else self.scope.node
        return node is inner or inner in self.module.walk.ancestors(node)


def loss_of(call: cst.Call) -> cst.BaseExpression | None:
    """What a backward starts from; ``None`` where the call is no backward."""
    word = names.last_name(call.func)
    if word not in BACKWARDS or not isinstance(call.func, cst.Attribute):
        return None
    owner = names.dotted(call.func.value)
    given = next(iter(arguments.plain(call)), None)
    if word == "manual_backward" or re.search(r"(^|\.)(accelerator|fabric|autograd|engine)$", owner):
        return given
    return call.func.value


def flag(call: cst.Call, keyword: str) -> bool:
    """Whether the backward is called with ``keyword=True``, or ``loss.backward(None, True)``."""
    place = {"retain_graph": 1, "create_graph": 2}[keyword] if names.last_name(call.func) == "backward" else -1
    return names.dotted(arguments.argument_for(call, keyword, place=place)) == "True"


def regions_of(call: cst.Call, module: Module, scope: Scope, project: Project, depth: int = 0) -> list[Region]:
    """The code that one step runs around a backward: the loop around it, or its function and the loops that call it."""
    loops = list(loops_around(call, module, scope))
    if loops:
        return [Region(module, scope, loops[0], loops[-1], call)]
    if not isinstance(scope.node, cst.FunctionDef) or depth >= _DEEPEST:
        return []
    here = Region(module, scope, None, scope.node, call)
    if scope.name == TRAINING_STEP and scope.parent is not None and scope.parent.is_class:
        return [here]
    sites = evaluator_of(project).calls.sites(module, scope)
    outer = [region for site in sites[:4] for region in regions_of(site.call, site.module, site.scope, project, depth + 1)[:2]]
    return [here, *outer] if outer and len(sites) <= 4 else []  # noqa: PLR2004 - who is called from everywhere is a tool, not a step
