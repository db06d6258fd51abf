"""HDF5 files that a function opens and nobody closes, or that are left open on some way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import H5PY, PYTABLES
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.handles.openings import Opens
from oomlint.memory.handles.resource_flow import trail_of
from oomlint.memory.handles.resource_state import SETTLES, End
from oomlint.memory.handles.unclosed_paths import left_open
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, FunctionRef
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.memory.handles.openings import Opening
    from oomlint.memory.handles.resource_state import Trail
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 4  # callers of callers


def unclosed(opening: Opening, project: Project) -> Trail | None:
    """The trail of an HDF5 file that a function opens and nobody closes; ``None`` where somebody does or may."""
    if opening.kind is not Opens.H5 or opening.name not in H5PY | PYTABLES or _in_memory(opening):
        return None
    if opening.name in PYTABLES and "close_all" in opening.module.source.text:
        return None  # its register is emptied
    hides = _hides_with(opening)
    if not hides and not (opening.scope.is_function and isinstance(opening.scope.node, cst.FunctionDef | cst.Lambda)):
        return None
    trail = trail_of(opening, project)
    if trail.left_open:
        return trail
    return trail if set(trail.ends) & SETTLES == {End.CLOSED} and passed_by(opening, trail) is not None else None


def passed_by(opening: Opening, trail: Trail) -> cst.CSTNode | None:
    """Where a file that is closed somewhere is left open all the same: behind a loop that opens many, or on a way that does not pass the closing."""
    if End.CLOSED not in trail.ends:
        return None
    return closed_after_loop(opening, trail) or left_open(opening, trail, trail.ends[End.CLOSED])


def closed_after_loop(opening: Opening, trail: Trail) -> cst.CSTNode | None:
    """The close behind a loop that opens a file in each round: it closes the last one only."""
    walk = opening.module.walk
    statement = walk.statement_of(opening.call)
    holder = walk.parents.get(walk.parents.get(statement, statement))
    loop = walk.parents.get(holder) if isinstance(holder, cst.IndentedBlock) else None
    if not isinstance(loop, cst.For) or loop.body is not holder:
        return None
    if any(isinstance(node, cst.Break | cst.Return) for node in descend(loop.body, into_scopes=False)):
        return None
    closers = trail.ends.get(End.CLOSED, [])
    inside = set(descend(loop))
    return closers[0] if closers and not any(node in inside for node in closers) else None


def opened_once(opening: Opening, project: Project) -> bool:
    """Whether a program opens the file just once, as far as all callers are known, and no dataset does."""
    return not _repeats(opening.module, opening.scope, opening.call, project, _DEEPEST)


def ends_with_function(opening: Opening, trail: Trail, project: Project) -> bool:
    """Whether a function lets go of its one file where a ``with`` would close it: behind the last use nothing runs that takes long."""
    module, scope = opening.module, opening.scope
    inside = {*SETTLES, End.MAYBE_KEPT, End.HANDED_OUT, End.MAYBE_OUT, End.UNKNOWN} & trail.ends.keys()
    if inside or trail.captured or not trail.uses or not isinstance(scope.node, cst.FunctionDef):
        return False
    if any(isinstance(here, cst.For | cst.While | cst.BaseComp | cst.With | cst.Try) for here in module.walk.between(opening.call, scope.node)):
        return False
    above = [set(module.walk.ancestors(use)) for use in trail.uses]
    body = list(scope.node.body.body)
    last = max((place for place, one in enumerate(body) if any(one in around for around in above)), default=len(body))
    behind = [part for one in body[last + 1 :] for part in descend(one)]
    calls = [part for part in behind if isinstance(part, cst.Call)]
    evaluator = evaluator_of(project)
    own = (alt.value for call in calls for alt in evaluator.plainly(call.func, module, scope))
    return not any(isinstance(part, cst.For | cst.While | cst.BaseComp) for part in behind) and not any(isinstance(one, FunctionRef) for one in own)


def runs_for_samples(opening: Opening, project: Project) -> bool:
    """Whether the function that opens the file runs for every sample of a dataset, or is handed on to whoever may call it so."""
    module, scope = opening.module, opening.scope
    if readers(project, module, scope):
        return True
    if names.self_name(scope) is not None:
        return False
    called = {id(call.func) for call, _ in module.walk.calls}
    return any(id(node) not in called and module.walk.parents.get(node) is not scope.node for node in module.walk.root.named(scope.name))


def _repeats(module: Module, scope: Scope, node: cst.CSTNode, project: Project, deepest: int) -> bool:
    """Whether a node may be evaluated more than once, or for a dataset."""
    if any(isinstance(here, cst.For | cst.While | cst.BaseComp) for here in module.walk.between(node, scope.node)):
        return True
    if scope.parent is None:
        return False
    if scope.parent.is_class and readers_of(project).is_dataset(ClassRef(module, scope.parent)):
        return True
    sites = evaluator_of(project).calls.sites(module, scope) if deepest else []
    return not sites or any(_repeats(site.module, site.scope, site.call, project, deepest - 1) for site in sites)


def _in_memory(opening: Opening) -> bool:
    """Whether there is no file behind it."""
    given = set(arguments.by_name(opening.call))
    code = opening.module.code(opening.path) if opening.path is not None else ""
    return not given.isdisjoint({"backing_store", "driver_core_backing_store"}) or "BytesIO" in code or "fileobj" in given


def _hides_with(opening: Opening) -> bool:
    """Whether it takes the name of the `with` that it stands in."""
    walk = opening.module.walk
    bound = {root for root, path in walk.bound_to(opening.call) if not path}
    for here in walk.ancestors(opening.call):
        if here is opening.scope.node:
            break
        if isinstance(here, cst.With):
            for item in here.items:
                name = item.asname.name if item.asname is not None else None
                if isinstance(name, cst.Name) and name.value in bound and isinstance(item.item, cst.Call) and names.last_name(item.item.func) == "File":
                    return True
    return False
