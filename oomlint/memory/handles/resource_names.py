"""The way of an opened file through the names of one function: which uses mean it, and what outlives the function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.handles.h5_api import Grip
from oomlint.memory.handles.resource_state import End, ResourceStore, Trail
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.uses import NameUses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.handles.openings import Opens
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)
# Methods of h5py objects, and functions that call what they are given at once.
_AT_ONCE = frozenset("visit visititems visit_links visititems_links sorted map filter min max any all sum sort list".split())


class TrailNames(ABC):
    """Follows one value through the names of one function, and says what a part asks of those that build on it.

    The parts are a chain of classes, from names over expressions up to the calls of ``trail.py``; each asks those before it by inheritance.
    """

    def __init__(self, module: Module, scope: Scope, evaluator: Evaluator, kind: Opens, depth: int = 0) -> None:
        self.kind = kind
        self.module = module
        self.scope = scope
        self.walk = module.walk
        self.evaluator = evaluator
        self.frame = evaluator.calls.plain_frame(module, scope)
        self.depth = depth
        self.trail = Trail()
        self.todo: list[tuple[str, Effect | None, Grip]] = []
        self.done: set[tuple[object, Grip]] = set()
        self.uses: dict[str, NameUses] = {}
        self.generators: set[cst.CSTNode] = set()
        self.start: cst.CSTNode | None = None  # the opening, where it is in this function

    @abstractmethod
    def follow(self, node: cst.CSTNode, grip: Grip) -> None:
        """Follow a value from the expression that gives it to what it is used for."""

    @abstractmethod
    def lazily(self, node: cst.CSTNode) -> None:
        """A generator expression reads the file only when something goes through it."""

    def finish(self) -> Trail:
        """Follow the names that are still to be followed."""
        while self.todo:
            name, effect, grip = self.todo.pop()
            for load in self._loads(name, effect):
                self.trail.uses.append(load)
                self.follow(load, grip)
                self.lazily(load)
            # `f = None` gives the file up on purpose.
            for other in self.scope.effects.get(name, ()) if grip is Grip.FILE and effect is not None else ():
                gives_up = other.kind == "delete" or (other.kind == "assign" and isinstance(other.value, cst.Name) and other.value.value == "None")
                if not other.path and gives_up and effect in self._uses(name).bindings(other.statement):
                    self.trail.add(End.CLOSED, other.node)
        return self.trail

    def bind(self, name: str, effect: Effect | None, grip: Grip) -> None:
        """Give the value to a binding of a name; ``None`` is the parameter of that name."""
        if (name in self.scope.outer or name in self.scope.enclosing) and grip is not Grip.KEYS:
            self.trail.add(End.KEPT, self.scope.node)
            return
        if grip is Grip.FILE and name not in self.trail.names:
            self.trail.names.append(name)
        key = (effect if effect is not None else name, grip)
        if key not in self.done:
            self.done.add(key)
            self.todo.append((name, effect, grip))

    def put(self, target: cst.CSTNode, grip: Grip) -> None:
        """Give the value to a target of an assignment or a loop."""
        if isinstance(target, cst.Tuple | cst.List):
            for number, element in enumerate(target.elements):
                if grip is Grip.PAIR and isinstance(element.value, cst.Tuple):
                    self.put(element.value, grip)  # `for i, (name, group) in enumerate(f.items())`
                elif grip is not Grip.PAIR or number:
                    self.put(element.value, Grip.OBJECT if grip in {Grip.VIEW, Grip.ITEMS, Grip.PAIR} else grip)
            return
        if isinstance(target, cst.Name):
            effect = next((e for e in self.scope.effects.get(target.value, ()) if e.node is target), None)
            if effect is None:
                effect = next((e for e in self.scope.effects.get(target.value, ()) if not e.path and e.statement is self.walk.statement_of(target)), None)
            if effect is not None:
                self.bind(target.value, effect, grip)
            return
        self.stored(target, grip, local=isinstance(target, cst.Subscript) and self.is_local(target.value))

    def is_local(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is a local variable, or a place in one."""
        while isinstance(node, cst.Subscript):
            node = node.value
        return (
            isinstance(node, cst.Name)
            and self.scope.sets(node.value)
            and node.value not in self.scope.outer | self.scope.enclosing
            and node.value not in names.takes(self.scope)
        )

    def stored(self, node: cst.CSTNode, grip: Grip, *, local: bool, at: cst.CSTNode | None = None) -> None:
        """Note that the value goes into an attribute or a container."""
        self.trail.stores.append(ResourceStore(self.module, self.scope, at or node, grip))
        if grip is Grip.MAYBE:
            self.trail.add(End.MAYBE_OUT, node)
        elif grip is Grip.KEYS or (local and grip is not Grip.FILE):
            self.trail.add(End.HANDED_OUT, node)
        elif grip is not Grip.FILE and self._by_test(node):
            self.trail.add(End.MAYBE_KEPT, node)
        else:
            self.trail.add(End.KEPT, node)

    def _by_test(self, node: cst.CSTNode) -> bool:
        """Whether a test behind the opening decides if control gets there."""
        opened = path_conditions(self.walk, self.scope, self.start) if self.start is not None else ()
        return any(condition not in opened for condition in path_conditions(self.walk, self.scope, node))

    def _uses(self, name: str) -> NameUses:
        known = self.uses.get(name)
        if known is None:
            known = self.uses[name] = NameUses(self.walk, self.scope, name)
        return known

    def _loads(self, name: str, effect: Effect | None) -> Iterator[cst.Name]:
        """Uses of the name that may mean this binding."""
        for node in self._uses(name).of(effect):
            inner = self.walk.scope_at(node)
            if inner is not self.scope:
                self.trail.captured = True
                if not self._stays(inner):
                    self.trail.add(End.KEPT, node)
            yield node

    def _stays(self, inner: Scope) -> bool:
        """Whether an inner function does not outlive this one: it is only called here, or given to what calls it at once."""
        if isinstance(inner.node, cst.ClassDef):
            return False
        mentions: list[cst.CSTNode] = [inner.node]
        if isinstance(inner.node, cst.FunctionDef):
            if inner.parent is not self.scope:
                return False
            mentions = [node for node in self.scope.named(inner.name) if node is not inner.node.name]
        for node in mentions:
            above = self.walk.parents.get(node)
            if isinstance(above, cst.Call) and above.func is node:
                continue
            call = self.walk.parents.get(above) if isinstance(above, cst.Arg) else None
            if not (isinstance(call, cst.Call) and names.last_name(call.func) in _AT_ONCE):
                return False
        return True
