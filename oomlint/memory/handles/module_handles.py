"""Handles in variables of a module or a class body, which the methods of a dataset or the functions of a loader read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import AttributeFact, ContentKind, Message, ReadFact, Told
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.facts import class_fact, loader_fact, opening_fact
from oomlint.memory.handles.dataset_handles import handles_of, in_with
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact
    from oomlint.memory.datasets.dataset_readers import Readers
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


def opened_on_import(module: Module, project: Project) -> Iterator[Told]:
    """Files that a module opens when it is imported, and that a dataset or a function of a loader reads."""
    kept = {handle.opening.call for handle in handles_of(project).of(module)}
    for opening in openings_of(project).of(module):
        if opening.kind is not Opens.H5 or opening.name.startswith("h5pickle.") or opening.call in kept or in_with(module, opening.call):
            continue
        if opening.scope.parent is None or opening.scope.is_class:
            found = _shared(opening, project)
            if found is not None:
                yield found


def _shared(opening: Opening, project: Project) -> Told | None:
    module, scope = opening.module, opening.scope
    if any(scope.is_function for scope in _around(scope)):
        return None
    for name in _names(opening, project):
        for here, root, local in _places(opening, name, project):
            for reader in here.walk.scopes:
                node = _read_in(reader, local, root) if reader.is_function else None
                user = _user(here, reader, project, 0) if node is not None else None
                if node is None or user is None or user[1].alone:
                    continue
                words, readers, datasets = user
                related = (here.place(node, f"`{local}` is read here"), *readers.places())
                confidence = confidence_of(0 if readers.helped is not None else 1)
                message = Message(f"`{name}` is opened {_when(opening)} and read by {words}", _harm(opening))
                loaders = dict.fromkeys(loader_fact(one.loader, methods=one.methods) for one in readers.busy)
                kept = AttributeFact(name, scope.qualname if scope.is_class else "", ContentKind.H5, place=module.place(opening.call))
                facts: tuple[Fact, ...] = (opening_fact(opening), kept, ReadFact(here.place(node)), *datasets, *loaders)
                return Told(module.place(opening.call), message, confidence=confidence, related=related, facts=facts)
    return None


def _places(opening: Opening, name: str, project: Project) -> Iterator[tuple[Module, Scope, str]]:
    """The variable in its own module, and under the names by which others import it."""
    module = opening.module
    yield module, opening.scope, name
    if opening.scope.is_class or module.path.endswith(".ipynb"):
        return
    handles = handles_of(project)
    stem = os.path.basename(module.path).removesuffix(".py")
    for other in project.mentioning([name.encode(), os.fsencode(stem)], module.path):
        if other is module:
            continue
        for local, effects in other.root.effects.items():
            if any(e.kind == "from" and isinstance(e.node, cst.ImportAlias) and names.dotted(e.node.name) == name for e in effects):
                found = handles.evaluator.resolve(local, (), handles.evaluator.module_frame(other), None)
                if any(origin.call is opening.call for origin in handles.origins(found)):
                    yield other, other.root, local


def _around(scope: Scope) -> Iterator[Scope]:
    here: Scope | None = scope
    while here is not None:
        yield here
        here = here.parent


def _names(opening: Opening, project: Project) -> list[str]:
    """Names of the scope that hold the file or an object of it."""
    handles = handles_of(project)
    frame = handles.evaluator.calls.plain_frame(opening.module, opening.scope)
    found = []
    for name, effects in opening.scope.effects.items():
        for effect in effects:
            if effect.kind != "assign" or effect.path or effect.index or effect.value is None:
                continue
            if any(origin.call is opening.call for origin in handles.origins(handles.evaluator.values(effect.value, frame))):
                found.append(name)
    return list(dict.fromkeys(found))


def _read_in(reader: Scope, name: str, scope: Scope) -> cst.CSTNode | None:
    """Where a function reads the variable of the module, or of the class through its object."""
    if scope.is_class:
        if scope not in _around(reader):
            return None
        this = {names.self_name(reader) or "", scope.name, "cls"}
        return next(
            (n for n in reader.nodes() if isinstance(n, cst.Attribute) and n.attr.value == name and isinstance(n.value, cst.Name) and n.value.value in this),
            None,
        )
    for here in _around(reader):
        if here.is_function and ((name in here.effects and name not in here.outer) or name in names.takes(here)):
            return None
    if name in reader.outer and reader.sets(name):
        return None  # opened again by each process that needs it
    return next((node for _, node in reader.mentions(name)), None)


def _user(module: Module, reader: Scope, project: Project, depth: int) -> tuple[str, Readers, tuple[Fact, ...]] | None:
    """The method of a dataset, or the function of a loader, that the code belongs to, who reads it, and the dataset's class."""
    readers = readers_of(project)
    if reader.parent is not None and reader.parent.is_class:
        cls = ClassRef(module, reader.parent)
        return (f"`{cls.scope.name}.{reader.name}`", readers.of(cls), (class_fact(cls),)) if readers.is_dataset(cls) else None
    given = readers.given(module, reader)
    if given is not None:
        return f"`{given[0]}={reader.name}`", given[1], ()
    if depth < 2:  # noqa: PLR2004 - a helper of a helper
        evaluator = readers.evaluator
        for site in evaluator.calls.sites(module, reader, most=8):
            found = _user(site.module, site.scope, project, depth + 1) if site.scope.is_function else None
            if found is not None:
                return found
    return None


def _when(opening: Opening) -> str:
    if opening.module.path.endswith(".ipynb"):
        return "in a cell"
    if _guarded(opening):
        return "under `if __name__ == ...`"
    return "on import"


def _guarded(opening: Opening) -> bool:
    """Whether only the main program gets there."""
    module = opening.module
    return any("__name__" in module.code(test) for test, _ in path_conditions(module.walk, opening.scope, opening.call))


def _harm(opening: Opening) -> str:
    shared = "forked workers share one handle"
    if opening.module.path.endswith(".ipynb"):
        return shared
    if _guarded(opening):
        return f"{shared}, and spawned workers raise NameError"
    return f"each spawned worker opens it again, and {shared}"
