"""Objects that read what belongs to them when somebody asks for it the first time, and keep it: one of many samples, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import names
from oomlint.model.lifetime import is_about, says_first
from oomlint.model.reach import path_conditions
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    import libcst as cst

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_MOST_SITES: Final = 8


def filled_when_asked(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> str:
    """The attribute of a plain object that a method fills with what it reads where nothing is there yet; empty where it reads at another time."""
    owner, set_here = scope.parent, set_by(scope)
    if owner is None or not set_here:
        return ""
    cls = ClassRef(module, owner)
    bases = evaluator_of(project).lineage(cls)
    if any(isinstance(base, External) and not base.name.startswith(("builtins.", "abc.")) for base in bases) or constructions_of(project).is_dataset(cls):
        return ""
    if scope in constructions_of(project).building(cls) or _asked_elsewhere(project, module, scope):
        return ""
    tests = [test for test, _ in path_conditions(module.walk, scope, node)]
    for effect in set_here:
        path = (effect.root, effect.path)
        if any(is_about(test, path) and says_first(test, path, module) for test in tests):
            return str(effect.path[0][1])
    return ""


def set_by(scope: Scope) -> list[Effect]:
    """The statements of a method that set an attribute of its object: what sets none fills none."""
    effects = scope.effects.get(names.self_name(scope) or "", ())
    return [effect for effect in effects if effect.kind == "assign" and len(effect.path) == 1 and effect.path[0][0] == "attr"]


def ways_to_ask(scope: Scope) -> frozenset[str]:
    """The method itself, and those of its class that lead to it."""
    found = {scope.name}
    methods = scope.parent.children if scope.parent is not None else ()
    grown = True
    while grown:
        grown = False
        for method in methods:
            this = names.self_name(method)
            if this is None or method.name in found:
                continue
            if any(is_attribute_of(node, this) and node.attr.value in found for node in method.nodes()):
                found.add(method.name)
                grown = True
    return frozenset(found)


def _asked_elsewhere(project: Project, module: Module, scope: Scope) -> bool:
    """Whether code that runs for no sample is seen to ask: it may ask all of them."""
    asked = ways_to_ask(scope)
    for method in scope.parent.children if scope.parent is not None else ():
        if method.name not in asked:
            continue
        for site in evaluator_of(project).calls.sites(module, method, most=_MOST_SITES):
            if site.scope.parent is not scope.parent and not constructions_of(project).per_item(site.module, site.scope):
                return True
    return False
