"""Data that a network takes whole, in one pass: the code needs them at once, and beside the activations of that pass they are small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model.readings import AnswerMemory

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project


class WholePasses:
    """Which reads end in such a pass. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._networks: AnswerMemory[Module, frozenset[cst.CSTNode]] = AnswerMemory(project.readings)

    def take(self, module: Module, node: cst.BaseExpression) -> bool:
        """Whether a network is given all of what an expression reads, which is read once; not what was gathered of its parts."""
        kept = kept_of(self.project)
        for met in () if kept.repeats(module, node) else kept.met(module, node):
            going = met.going
            parts = going.collected or going.rebuilt or going.listed or going.retyped or going.cut or going.put is not None
            if isinstance(met.node, cst.Call) and not parts and met.node in self._forwards(met.module):
                return True
        return False

    def _forwards(self, module: Module) -> frozenset[cst.CSTNode]:
        """The calls of a module that run a network, and not on a batch."""
        known = self._networks.get(module)
        if known is None:
            events = [event for record in runs_of(self.project).of(module) for event in record.forwards if event.network and event.known]
            batches = {event.node for event in events if any(loop.batches for loop in event.loops)}
            known = self._networks[module] = frozenset(event.node for event in events) - batches
        return known
