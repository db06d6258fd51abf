"""When the loaders of a program are at work: what the loops over them are for, and which of them run at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget.nouns import Moment
from oomlint.finding import is_inside
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import LoaderLike, loader_like
from oomlint.memory.shared.loop_phases import has_backward
from oomlint.model import names
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.nouns import LoaderNoun
    from oomlint.finding import Place
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.events import Loop
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope


class _Pass(Struct, frozen=True):
    """A loop over a loader, or a look at its first batch."""

    loader: LoaderLike
    node: cst.CSTNode
    scope: Scope
    around: tuple[Loop, ...]
    moment: Moment | None  # None where nobody knows what it is for


class Phases:
    """The loops over loaders in some modules."""

    def __init__(self, project: Project, modules: Sequence[Module]) -> None:
        runs = runs_of(project)
        self._project = project
        self._modules = {module.path: module for module in modules}
        self._passes: list[_Pass] = []
        self._moments: dict[cst.CSTNode, tuple[Loop, Moment | None]] = {}  # of all loops whose round is a batch
        for record in (record for module in modules for record in runs.of(module)):
            for loop in record.loops:
                known = isinstance(loop.loader, LoaderLike) and loop.loader.loader is not None
                if known or (loop.steps and not loop.trains):
                    trains = loop.steps or has_backward(record, loop)
                    looks = not loop.scope.yields and runs.looks(record, loop)  # what a generator goes through is for whoever asks it
                    moment = Moment.TRAINING if trains else Moment.EVALUATION if looks else None
                    self._moments[loop.node] = loop, moment
                    if isinstance(loop.loader, LoaderLike) and known:
                        self._passes.append(_Pass(loop.loader, loop.node, loop.scope, loop.around, moment))
        self._passes += [one for module in modules for one in self._looks(module)]

    def _looks(self, module: Module) -> Iterator[_Pass]:
        """Where a first batch is taken, ``next(iter(loader))``, and the workers end with that. In no loop over batches, no other loader is at work."""
        for call, scope in module.calls_of(("iter",)):
            above = module.walk.parents.get(module.walk.parents[call])
            taken = isinstance(above, cst.Call) and names.dotted(above.func) == "next" and names.dotted(call.func) == "iter" and len(call.args) == 1
            like = loader_like(self._project, call.args[0].value, module, scope) if taken else None
            if like is None or like.loader is None:
                continue
            inner = next(self._around(call, module, scope), None)
            around = (*inner[0].around, inner[0]) if inner is not None else ()
            yield _Pass(like, call, scope, around, inner[1] if inner is not None else Moment.EVALUATION)

    def _around(self, node: cst.CSTNode, module: Module, scope: Scope) -> Iterator[tuple[Loop, Moment | None]]:
        """The loops over batches that a node stands in, or the calls that lead to it, near ones first."""
        ways = [module.walk.ancestors(node)]
        for frame in evaluator_of(self._project).calls.frames(module, scope):
            ways += [layer.frame.module.walk.ancestors(layer.call) for layer in reversed(frame.bound or ())]
        yield from (self._moments[one] for way in ways for one in way if one in self._moments)

    def at(self, place: Place) -> Moment | None:
        """When the code at a place runs, where it does so in a loop over batches whose purpose is known."""
        module = self._modules.get(place.path)
        for call, scope in module.walk.calls if module is not None else ():
            if module is not None and is_inside(module.place(call), place):
                return next((moment for _, moment in self._around(call, module, scope)), None)
        return None

    def told(self, noun: LoaderNoun, loader: Loader, frame: Frame) -> LoaderNoun:
        """A loader, with the moments at which loops go through it, and whether no other one is at work meanwhile."""
        mine = self._of(loader, frame)
        moments = {one.moment for one in mine if one.moment is not None}
        if Moment.TRAINING in moments:
            moments = {Moment.TRAINING}  # what it takes is the same whenever it is gone through
        if any(_inside(other, one) and other.moment is Moment.EVALUATION for one in mine for other in self._passes):
            moments.add(Moment.EVALUATION)  # it waits while another one is gone through
        beside = any(_inside(other, one) or _inside(one, other) for one in mine for other in self._passes)
        return replace(noun, moments=frozenset(moments), alone=bool(mine) and not beside)

    def ends_where_made(self, loader: Loader) -> bool:
        """Whether the function that makes a loader goes through it itself, and keeps it nowhere."""
        bound = list(loader.module.walk.bound_to(loader.call))
        kept = {root for root, _ in bound}
        given = (node for one in loader.scope.returns if one.value is not None for node in descend(one.value))
        if any(path for _, path in bound) or any(isinstance(node, cst.Name) and node.value in kept for node in given):
            return False
        return any(one.scope is loader.scope for one in self._passes if one.loader.loader is not None and one.loader.loader.call is loader.call)

    def _of(self, loader: Loader, frame: Frame) -> list[_Pass]:
        same = [one for one in self._passes if one.loader.loader is not None and one.loader.loader.call is loader.call]
        exact = [one for one in same if one.loader.frame == frame]
        return exact or (same if len({one.loader.frame for one in same}) == 1 else [])


def _inside(inner: _Pass, outer: _Pass) -> bool:
    return any(one.node is outer.node for one in inner.around)
