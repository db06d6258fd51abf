"""The loop over batches that a statement stands in, and whether the statement runs in each of its rounds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import batch_loader, loops_around
from oomlint.memory.shared.training_loops import trains

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEVICE = re.compile(r"cuda|device|gpu|is_available|\bmps\b|\bxpu\b", re.IGNORECASE)
_COUNTER = re.compile(r"%|<|>|epoch|step|iter|rank|memory|batch", re.IGNORECASE)


def batch_loop(project: Project, node: cst.CSTNode, module: Module, scope: Scope) -> cst.For | cst.While | None:
    """The loop over batches that holds the node: one over a loader, or one whose own body makes optimizer steps."""
    for loop in loops_around(node, module, scope):
        if runs_of(project).epochs(loop, module, scope):
            return None
        over_loader = isinstance(loop, cst.For) and batch_loader(project, loop.iter, module, scope) is not None
        if over_loader or trains(loop, module, itself=True):
            return loop
    return None


def runs_each_round(node: cst.CSTNode, loop: cst.For | cst.While, module: Module) -> bool:
    """Whether nothing but a test for the device decides if the node runs in a round of the loop; what an exception leads to is no round."""
    child = node
    for here in module.walk.ancestors(node):
        if here is loop:
            return True
        if isinstance(here, cst.ExceptHandler | cst.ExceptStarHandler | cst.Finally | cst.Match | cst.IfExp | cst.BooleanOperation):
            return False
        if isinstance(here, cst.If) and child is not here.test:
            test = module.code(here.test)
            if child is not here.body or not _DEVICE.search(test) or _COUNTER.search(test):
                return False
        child = here
    return False
