"""When the loaders of a program are at work: what the loops over them are for, and which of them run at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget.nouns import Moment
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.memory.shared.loop_phases import has_backward, is_evaluation
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.nouns import LoaderNoun
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.events import Loop
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame


class _Pass(Struct, frozen=True):
    """A loop over a loader."""

    loader: LoaderLike
    loop: Loop
    moment: Moment | None  # None where nobody knows what it is for


class Phases:
    """The loops over loaders in some modules."""

    def __init__(self, project: Project, modules: Sequence[Module]) -> None:
        runs = runs_of(project)
        self._passes: list[_Pass] = []
        for record in (record for module in modules for record in runs.of(module)):
            for loop in record.loops:
                if isinstance(loop.loader, LoaderLike) and loop.loader.loader is not None:
                    trains = loop.steps or has_backward(record, loop)
                    looks = not loop.scope.yields and is_evaluation(record, loop)  # what a generator goes through is for whoever asks it
                    moment = Moment.TRAINING if trains else Moment.EVALUATION if looks else None
                    self._passes.append(_Pass(loop.loader, loop, moment))

    def told(self, noun: LoaderNoun, loader: Loader, frame: Frame) -> LoaderNoun:
        """A loader, with the moments at which loops go through it, and whether no other one is at work meanwhile."""
        mine = self._of(loader, frame)
        moments = {one.moment for one in mine if one.moment is not None}
        if Moment.TRAINING in moments:
            moments = {Moment.TRAINING}  # what it takes is the same whenever it is gone through
        if any(_inside(other.loop, one.loop) and other.moment is Moment.EVALUATION for one in mine for other in self._passes):
            moments.add(Moment.EVALUATION)  # it waits while another one is gone through
        beside = any(_inside(other.loop, one.loop) or _inside(one.loop, other.loop) for one in mine for other in self._passes)
        return replace(noun, moments=frozenset(moments), alone=bool(mine) and not beside)

    def ends_where_made(self, loader: Loader) -> bool:
        """Whether the function that makes a loader goes through it itself, and keeps it nowhere."""
        bound = list(loader.module.walk.bound_to(loader.call))
        kept = {root for root, _ in bound}
        given = (node for one in loader.scope.returns if one.value is not None for node in descend(one.value))
        if any(path for _, path in bound) or any(isinstance(node, cst.Name) and node.value in kept for node in given):
            return False
        return any(one.loop.scope is loader.scope for one in self._passes if one.loader.loader is not None and one.loader.loader.call is loader.call)

    def _of(self, loader: Loader, frame: Frame) -> list[_Pass]:
        same = [one for one in self._passes if one.loader.loader is not None and one.loader.loader.call is loader.call]
        exact = [one for one in same if one.loader.frame == frame]
        return exact or (same if len({one.loader.frame for one in same}) == 1 else [])


def _inside(inner: Loop, outer: Loop) -> bool:
    return any(one.node is outer.node for one in inner.around)
