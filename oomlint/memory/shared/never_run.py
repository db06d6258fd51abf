"""Findings on code that control never comes to, or that is run once where it would have to be run again: nothing is paid there.

Names that nothing binds are less sure than the rest: they may come from where nobody looks, and who types a program has not bound all of them yet.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.beside_code import beside
from oomlint.finding import AllocationFact, DatasetFact, LoaderFact, LoopFact, ReadFact, StoreFact, is_inside
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments
from oomlint.model.values import Instance
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.finding import Finding, Place
    from oomlint.model.project import Module, Project
    from oomlint.model.stops import Stops


class Reached(Enum):
    """Whether control comes to what a finding is about, and, where a loop makes it grow, to a second round."""

    YES = auto()
    WITH_NAMES = auto()  # once names are bound that nothing is seen to bind
    NEVER = auto()


def reached(finding: Finding, project: Project) -> Reached:
    """Whether control comes to what a finding is about."""
    evaluator = evaluator_of(project)
    if not _is_never_run(finding, project, evaluator.stops):
        return Reached.YES
    return Reached.NEVER if _is_never_run(finding, project, evaluator.sure_stops) else Reached.WITH_NAMES


def _is_never_run(finding: Finding, project: Project, stops: Stops) -> bool:
    if _is_never(finding.place, project, stops):
        return True
    for noun in (LoaderFact, ReadFact, StoreFact, AllocationFact):
        places = [fact.place for fact in finding.facts if isinstance(fact, noun)]
        if places and all(_is_never(place, project, stops) for place in places):
            return True
    classes = finding.of_noun(DatasetFact)
    if classes and all(_is_broken(one.place, project, stops) for one in classes):
        return True
    loaders = [fact.place for fact in finding.of_noun(LoaderFact)]
    if loaders and all(_reads_nothing(place, project, stops) for place in loaders):
        return True
    loop = next(iter(finding.of_noun(LoopFact)), None)
    if loop is None:
        return False
    inside = [run for run in loop.runs if is_inside(run, loop.place)]
    if inside and all(_is_never(run, project, stops) for run in inside):
        return True
    grows = inside or ([finding.place] if is_inside(finding.place, loop.place) else [])
    return bool(grows) and all(_is_once(loop.place, place, project, stops) for place in grows)


def _is_never(place: Place, project: Project, stops: Stops) -> bool:
    found = _at(place, project)
    return found is not None and stops.never(*found)


def _is_broken(cls: Place, project: Project, stops: Stops) -> bool:
    """Whether no object of a class can be made, or none gives anything when it is indexed."""
    found = _at(cls, project)
    return found is not None and isinstance(found[1], cst.ClassDef) and stops.broken(*found)


def _reads_nothing(loader: Place, project: Project, stops: Stops) -> bool:
    """Whether the dataset that a call is given is of such a class."""
    found = _at(loader, project)
    if found is None:
        return False
    module, statement = found
    evaluator = evaluator_of(project)
    calls = (node for node in descend(statement, into_scopes=False) if isinstance(node, cst.Call) and module.place(node) == loader)
    given = [arguments.argument_for(call, "dataset", place=0) for call in calls]
    made = [alt.value for node in given if node is not None for alt in evaluator.plainly(node, module, module.walk.scope_at(node))]
    return bool(made) and all(isinstance(one, Instance) and stops.broken(one.cls.module, one.cls.scope.node) for one in made)


def _is_once(loop: Place, place: Place, project: Project, stops: Stops) -> bool:
    around, inner = _at(loop, project), _at(place, project)
    if around is None or inner is None or around[0] is not inner[0]:
        return False
    return stops.once(inner[0], around[1], inner[1])


def _at(place: Place, project: Project) -> tuple[Module, cst.CSTNode] | None:
    """The innermost statement at a place, and its file."""
    module = project.find(place.path) if beside(place.path) is None else None
    node = evaluator_of(project).stops.at(module, place) if module is not None else None
    return (module, node) if module is not None and node is not None else None
