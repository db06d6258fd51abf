"""Objects that keep a file open, each one of its own: readers, and datasets of one file, that somebody makes for each path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.handles.h5_api import Grip
from oomlint.memory.handles.lazy_open import cached
from oomlint.memory.handles.resource_flow import trail_from, trail_of
from oomlint.memory.handles.resource_state import End, ResourceStore
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.lifetime import endings
from oomlint.model.values import ClassRef, Instance
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_MOST: Final = 6
_DEEPEST: Final = 4  # functions that return the file, and objects that keep one another
_ENDS: Final = frozenset({"__del__", "__exit__", "__getstate__", "__reduce__"})  # of the object, or of its copy


def objects_with(opening: Opening, project: Project) -> Iterator[tuple[ResourceStore, tuple[ResourceStore, ...]]]:
    """Where objects are put each of which keeps the file that a call opens for as long as it lives, or an object that does; and what keeps it."""
    evaluator = evaluator_of(project)
    queue: list[tuple[cst.Call, Module, Scope, int, tuple[ResourceStore, ...]]] = [(opening.call, opening.module, opening.scope, 0, ())]
    seen: set[cst.CSTNode] = set()
    while queue:
        call, module, scope, depth, by = queue.pop(0)
        if call in seen or depth > _DEEPEST:
            continue
        seen.add(call)
        trail = trail_of(opening, project) if call is opening.call else trail_from(call, module, scope, opening.kind, project)
        if End.CLOSED in trail.ends:
            continue
        if by:
            yield from ((store, by) for store in trail.stores)
        keeps = {name: store for store in trail.stores if (name := _attribute(store)) is not None}
        if End.RETURNED in trail.ends or (End.HANDED_OUT in trail.ends and cached(scope)):
            if cached(scope):
                keeps[scope.name] = ResourceStore(module, scope, call, Grip.FILE)
            elif scope.is_function:
                queue += [(site.call, site.module, site.scope, depth + 1, by) for site in evaluator.calls.sites(module, scope, most=_MOST)]
        cls = ClassRef(module, scope.parent) if keeps and scope.parent is not None and scope.parent.is_class else None
        if cls is None or not _while_it_lives(cls, scope, project) or any(_closes(cls, name, project) for name in keeps):
            continue
        kept = (*by, *list(keeps.values())[:1])
        queue += [(made, where, around, depth + 1, kept) for made, where, around in _made(cls, project)]


def _made(cls: ClassRef, project: Project) -> Iterator[tuple[cst.Call, Module, Scope]]:
    """Calls that make such objects, also by a function that says which class is meant: `reader_for(kind)(path)`."""
    calls = evaluator_of(project).calls
    for made in calls.instances(cls.module, cls.scope)[:_MOST]:
        if made.call is not None and made.at is not None:
            yield made.call, made.at.module, made.at.scope
    for one in (cls, *calls.subclasses(cls)[:_MOST]):
        for module in project.mentioning((one.scope.name.encode(),), one.module.path):
            for scope in module.walk.scopes:
                if not any(isinstance(each.value, cst.Name) and each.value.value == one.scope.name for each in scope.returns):
                    continue
                for site in calls.sites(module, scope, most=_MOST):
                    above = site.module.walk.parents.get(site.call)
                    if isinstance(above, cst.Call) and above.func is site.call:
                        yield above, site.module, site.scope


def _attribute(store: ResourceStore) -> str | None:
    """The attribute of the own object that a statement sets to the file."""
    this, node = names.self_name(store.scope), store.node
    own = is_attribute_of(node, this)
    return node.attr.value if own and isinstance(node, cst.Attribute) else None


def _while_it_lives(cls: ClassRef, scope: Scope, project: Project) -> bool:
    """Whether the object gets the file when it is made, or while samples are read."""
    if cached(scope) or readers(project, cls.module, scope):
        return True
    classes = [cls, *evaluator_of(project).calls.subclasses(cls)[:_MOST]]
    return any(frame.scope is scope for one in classes for frame in datasets_of(project).building_frames(Instance(one, None)))


def _closes(cls: ClassRef, name: str, project: Project) -> bool:
    """Whether a method that somebody calls closes the file of the object, or forgets it."""
    evaluator = evaluator_of(project)
    for one in evaluator.line(cls):
        for method in one.scope.children:
            this = names.self_name(method)
            if this is None or method.name in _ENDS or not _ends(one.module, method, this, name):
                continue
            if method.name == "__getitem__" or evaluator.calls.sites(one.module, method, most=_MOST):
                return True
    return False


def _ends(module: Module, method: Scope, this: str, name: str) -> bool:
    """Whether a method closes, deletes or empties an attribute."""
    if method.name != "__init__" and any(ending.lets_go for ending in endings((this, (("attr", name),)), module, method)):
        return True
    wanted = f"{this}.{name}.close"
    return any(isinstance(node, cst.Attribute) and names.dotted(node) == wanted for node in descend(method.node))
