"""Loaders that nobody goes through: a function gives them back beside others, and every caller throws them away. No worker of theirs is ever started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of

if TYPE_CHECKING:
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.calls import CallSite
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def is_dropped(loader: Loader) -> bool:
    """Whether every caller of the function that makes a loader throws it away: ``train, _ = build(data)``."""
    index = _place_in_result(loader)
    sites = evaluator_of(loader.module.project).calls.sites(loader.module, loader.scope) if index is not None else []
    return bool(sites) and all(_is_unused(site, index) for site in sites if index is not None)


def _place_in_result(loader: Loader) -> int | None:
    """At which place of what its function gives back a loader is, where that is all that becomes of it."""
    walk, scope = loader.module.walk, loader.scope
    holder = walk.parents.get(loader.call)
    uses: list[cst.CSTNode] = [loader.call]
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1 and isinstance(holder.targets[0].target, cst.Name) and scope.is_function:
        uses = _reads(loader.module, scope, holder.targets[0].target.value)
    places = {_place_in_return(loader, use) for use in uses}
    return places.pop() if len(places) == 1 else None


def _place_in_return(loader: Loader, use: cst.CSTNode) -> int | None:
    parents = loader.module.walk.parents
    element = parents.get(use)
    whole = parents.get(element) if isinstance(element, cst.Element) else None
    if not isinstance(whole, cst.Tuple | cst.List) or not isinstance(parents.get(whole), cst.Return):
        return None
    if any(isinstance(one, cst.StarredElement) for one in whole.elements):
        return None
    return next(number for number, one in enumerate(whole.elements) if one is element)


def _is_unused(site: CallSite, index: int) -> bool:
    """Whether the place of a result is one that its caller takes no notice of."""
    holder = site.module.walk.parents.get(site.call)
    if isinstance(holder, cst.Subscript):
        taken = holder.slice[0].slice if len(holder.slice) == 1 else None
        return isinstance(taken, cst.Index) and isinstance(taken.value, cst.Integer) and int(taken.value.value) != index
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    if not isinstance(target, cst.Tuple | cst.List) or any(isinstance(one, cst.StarredElement) for one in target.elements) or index >= len(target.elements):
        return False
    name = target.elements[index].value
    if not isinstance(name, cst.Name) or name.value in site.scope.outer:
        return False
    # What a module binds may be read by whoever imports it.
    return (site.scope.is_function or name.value.startswith("_")) and not _reads(site.module, site.scope, name.value)


def _reads(module: Module, scope: Scope, name: str) -> list[cst.CSTNode]:
    """Where code of a scope reads a name."""
    return [node for node in scope.named(name) if not module.walk.is_target(node)]
