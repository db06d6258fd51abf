"""Code that runs once a sample, and what in it depends on which sample it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import READS_ONE
from oomlint.memory.arrays.full_reads import own_code, whole_reads_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.shared.loop_kinds import is_epoch_loop
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import Bound, ClassRef, Instance
from oomlint.syntax.nodes import children_of, descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_CACHES: Final = re.compile(r"cache|memoi[sz]e|lazy", re.IGNORECASE)
_DEEPEST: Final = 3
_MOST: Final = 8
_FEW: Final = 16  # rounds of a loop that do not matter


class Context(Struct, frozen=True, eq=False):
    """Code that runs once a sample, and what in it depends on which sample it is.

    ``dependent`` holds names, and attributes of ``self`` with a dot in front. ``loop`` is set where a loop makes it run often.
    """

    module: Module
    scope: Scope
    dependent: frozenset[str]
    loop: cst.CSTNode | None = None
    call: cst.BaseExpression | None = None  # how ``outer`` gets here
    outer: Context | None = None

    @property
    def root(self) -> Context:
        """The code that is run once a sample from outside."""
        return self if self.outer is None else self.outer.root


class ItemContexts:
    """Finds that code. It remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.whole = whole_reads_of(project)
        self.evaluator = self.whole.evaluator
        self._contexts: AnswerMemory[Scope, list[Context]] = AnswerMemory(project.readings)

    def contexts(self, module: Module, scope: Scope, depth: int = 0) -> list[Context]:
        """The ways in which the code of a function runs once a sample."""
        known = self._contexts.get(scope)
        if known is None:
            self._contexts.assume(scope, [])  # a circle leads nowhere
            known = self._contexts_of(module, scope, depth)
            self._contexts[scope] = known
        return known

    def _contexts_of(self, module: Module, scope: Scope, depth: int) -> list[Context]:
        if not isinstance(scope.node, cst.FunctionDef) or any(_CACHES.search(module.code(d.decorator)) for d in scope.node.decorators):
            return []
        if self._is_item(module, scope):
            own = names.self_name(scope)
            return [Context(module, scope, frozenset(p.name.value for p in names.parameters(scope) if p.name.value != own))]
        if scope.name == "__len__" and scope.parent is not None and scope.parent.is_class:
            return [Context(module, scope, frozenset())]
        if depth >= _DEEPEST or scope.name == "__init__":
            return []
        found: list[Context] = []
        for other, caller, node in self._callers(module, scope):
            above = [*self.loops(other, caller, node, frozenset()), *self.contexts(other, caller, depth + 1)]
            found.extend(Context(module, scope, self._handed(scope, node, context), None, node, context) for context in above[:_MOST])
        return found[:_MOST]

    def _is_item(self, module: Module, scope: Scope) -> bool:
        if scope.parent is None or not scope.parent.is_class:
            return False
        if scope.name in READS_ONE:
            return True
        return scope.name == "get" and self.evaluator.derives(ClassRef(module, scope.parent), "torch_geometric.data.Dataset")

    def _callers(self, module: Module, scope: Scope) -> Iterator[tuple[Module, Scope, cst.BaseExpression]]:
        """Calls of a function, and the places that read a property."""
        if names.is_property(scope) and scope.parent is not None:
            cls = ClassRef(module, scope.parent)
            for owner in [cls, *self.evaluator.calls.subclasses(cls)]:
                for method in owner.scope.children:
                    this = names.self_name(method)
                    if this is None or method is scope:
                        continue
                    for node in own_code(method):
                        if is_attribute_of(node, this) and node.attr.value == scope.name:
                            yield owner.module, method, node
            return
        for site in self.evaluator.calls.sites(module, scope, most=_MOST):
            yield site.module, site.scope, site.call

    def _handed(self, scope: Scope, node: cst.BaseExpression, context: Context) -> frozenset[str]:
        """What depends on the sample inside of a function that is called from ``context``."""
        known = self.closure(context)
        found = {name for name in known if name.startswith(".")}
        if isinstance(node, cst.Call):
            frame = self.evaluator.calls.plain_frame(context.module, context.scope)
            bound = (Bound(tuple(node.args), frame, node),)
            for param in names.parameters(scope):
                given = arguments.given_to(scope, param.name.value, bound)
                if given is not None and mentions(given.node.value, known, names.self_name(context.scope)):
                    found.add(param.name.value)
        return frozenset(found)

    def loops(self, module: Module, scope: Scope, node: cst.CSTNode, more: frozenset[str]) -> list[Context]:
        """Loops of the scope in which the node is evaluated again and again."""
        child = node
        targets: set[str] = set(more)
        loop: cst.CSTNode | None = None
        for here in module.walk.ancestors(node):
            if here is scope.node:
                break
            if isinstance(here, cst.For) and child is here.body and not is_epoch_loop(here, module) and not self._is_short(here.iter, module, scope):
                targets |= names_in(here.target)
                loop = here
            elif isinstance(here, cst.BaseComp) and child is not here.for_in and not self._is_short(here.for_in.iter, module, scope):
                for row in descend(here.for_in):
                    targets |= names_in(row.target) if isinstance(row, cst.CompFor) else set()
                loop = here
            child = here
        return [Context(module, scope, frozenset(targets), loop)] if loop is not None else []

    def _is_short(self, node: cst.BaseExpression, module: Module, scope: Scope) -> bool:
        """Whether a loop over it makes only a few rounds, for all that is known."""
        count = datasets_of(self.evaluator.project).contents.containers.count(node, self.evaluator.calls.plain_frame(module, scope))
        return count is not None and count <= _FEW

    def closure(self, context: Context, without: frozenset[str] = frozenset()) -> frozenset[str]:
        """All names of the scope that depend on which sample it is, but for what depends on it through ``without``."""
        scope, this = context.scope, names.self_name(context.scope)
        found = set(context.dependent) - without
        rows = [node for node in own_code(scope) if isinstance(node, cst.CompFor)]
        effects = [effect for listed in scope.effects.values() for effect in listed if effect.value is not None]
        for _ in range(_MOST):
            before = len(found)
            for effect in effects:
                key = effect.root
                if key == this and effect.path[:1] and effect.path[0][0] == "attr":
                    key = f".{effect.path[0][1]}"
                if key not in found and key not in without and effect.value is not None and mentions(effect.value, found, this):
                    found.add(key)
            for row in rows:
                if mentions(row.iter, found, this):
                    found |= names_in(row.target) - without
            found |= self._set_by_methods(context, found, this)
            if len(found) == before:
                break
        return frozenset(found)

    def _set_by_methods(self, context: Context, known: set[str], this: str | None) -> set[str]:
        """Attributes that a method sets which is told the sample: ``self._open(index)``."""
        found: set[str] = set()
        cls = context.scope.parent
        if this is None or cls is None:
            return found
        for call in context.scope.calls:
            func = call.func
            if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Name) or func.value.value != this:
                continue
            if not any(mentions(arg.value, known, this) for arg in call.args):
                continue
            method = self.evaluator.method(Instance(ClassRef(context.module, cls), None), func.attr.value)
            own = names.self_name(method.scope) if method is not None else None
            if method is None or own is None:
                continue
            found |= {f".{effect.path[0][1]}" for effect in method.scope.effects.get(own, ()) if effect.path and effect.path[0][0] == "attr"}
        return found


def mentions(node: cst.CSTNode, known: frozenset[str] | set[str], this: str | None) -> bool:
    """Whether an expression uses one of the names or attributes."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, cst.Attribute):
            if isinstance(here.value, cst.Name) and here.value.value == this:
                if f".{here.attr.value}" in known:
                    return True
                continue
            stack.append(here.value)
            continue
        if isinstance(here, cst.Name):
            if here.value in known:
                return True
            continue
        if isinstance(here, cst.Arg):
            stack.append(here.value)
            continue
        stack += children_of(here)
    return False
