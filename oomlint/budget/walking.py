"""Runs a program up to the places where models are asked for: what was written to settings, to a model, to a list counts as it does in Python.

The way leads from the code of a module through the calls up to such a place. What stands before it is run; a condition on the way is taken to hold, and a
loop to be in one of its rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.building_names import guarded
from oomlint.budget.building_objects import GaveUp, WalkEnd, called
from oomlint.budget.building_statements import Statements
from oomlint.budget.parts import Class, ForeignOptions, Function, Made, Missing, Names, items_of, text_of
from oomlint.model import names
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame

_MOST_STEPS: Final = 400_000  # of all that is run


class Walking(Statements):
    """Runs programs of one project."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._roots: dict[Module, Names] = {}
        self._wanted: dict[cst.CSTNode, Any] = {}
        self._all_steps = 0

    def values(self, nodes: Sequence[cst.BaseExpression], frame: Frame) -> list[Any]:
        """What expressions of one scope stand for, each where it is evaluated, in source order; a ``Missing`` where nobody knows."""
        self.steps = self._deep = self._all_steps = 0
        self._known, self._statics, self._roots = {}, {}, {}
        self._wanted = dict.fromkeys(nodes)
        first = started(frame)
        self.main = first.module if first.scope.parent is None else None
        around = guarded(nodes[-1], frame.module, lambda: self._names(frame, nodes[-1]))
        if isinstance(around, Missing):
            return [around for _ in nodes]
        self.steps = 0
        return [self._wanted[node] or guarded(node, frame.module, lambda node=node: self.eval(node, around)) for node in nodes]  # type: ignore[misc]

    def eval(self, node: cst.BaseExpression, around: Names) -> Any:
        """The value of an expression. What is asked for is noted, and what a module makes has one value for all who ask for it later."""
        value = super().eval(node, around)
        if node in self._wanted:
            self._wanted[node] = value
        if around.frame is not None and around is self._roots.get(around.module) and isinstance(node, cst.Call | cst.List | cst.Dict):
            self._known[node, around.frame] = value
        return value

    # -- the way -------------------------------------------------------------------------------------------------------------

    def root(self, module: Module) -> Names:
        """The names of a module. One that the way does not lead through is run as a whole, as for an import."""
        found = self._roots.get(module)
        if found is None:
            found = self._begun(module)
            steps, deep = self.steps, self._deep
            self._whole(module.root.node, found)
            self.steps, self._deep = steps, deep
        return found

    def _begun(self, module: Module) -> Names:
        frame = self.evaluator.calls.plain_frame(module, module.root)
        self._roots[module] = found = Names(module, module.root, frame=frame)
        return found

    def _names(self, frame: Frame, node: cst.CSTNode) -> Names:
        """The names of a scope as they are where ``node`` is evaluated."""
        around = self._entered(frame)
        way = {node, *frame.module.walk.ancestors(node)}
        self._until(frame.scope.suite, around, way)
        return around

    def _entered(self, frame: Frame) -> Names:
        """The names of a scope where its code begins."""
        if frame.scope.parent is None:
            return self._begun(frame.module)
        if frame.bound:
            bound = frame.bound[0]
            caller = self._names(bound.frame, bound.call)
            function, plain, named = called(self.callee(bound.call.func, caller), *self.arguments(bound.call, caller))
            if isinstance(function, Class):
                function = self.of_super(self.blank(function.ref), "__init__", 0)
            if isinstance(function, Function) and function.scope is frame.scope:
                return self._filled(self.entered(function, plain, named), frame)
        around = Names(frame.module, frame.scope, frame=frame)
        this, word = frame.this, names.self_name(frame.scope)
        if word is not None and this is not None and this.call is not None and this.at is not None:
            made = self.eval(this.call, self._names(this.at, this.call))
            if isinstance(made, Made):
                around.known[word] = around.this = made
        return around

    def _filled(self, around: Names, frame: Frame) -> Names:
        """The names of a function whose settings a library hands over."""
        for word in [word for word, value in around.known.items() if isinstance(value, Missing)]:
            for alt in self.evaluator.settings.entry_parameter(frame, word, ()) or ():
                around.known[word] = ForeignOptions(alt.value)
        return around

    def _until(self, body: object, around: Names, way: set[cst.CSTNode]) -> None:
        for statement in block_of(body):
            if statement in way:
                self._enter(statement, around, way)
                return
            self._safely(statement, around)

    def _safely(self, statement: cst.CSTNode, around: Names) -> None:
        """Run a statement. What ends the walk too early may have done anything of what it says."""
        self._all_steps += self.steps
        self.steps, deep = 0, self._deep
        if self._all_steps > _MOST_STEPS:
            raise GaveUp
        try:
            self.statement(statement, around)
        except (WalkEnd, RecursionError):
            self.steps, self._deep = 0, deep
            self.unsure(statement, around)

    def _enter(self, node: cst.CSTNode, around: Names, way: set[cst.CSTNode]) -> None:
        """Go into a statement that the way leads through."""
        match node:
            case cst.If() if node.body not in way and node.orelse in way:
                self._enter(node.orelse, around, way)
            case cst.For() | cst.While() if node.body in way:
                self.unsure(node.body, around, calls=False)  # what a round before it has left
                if isinstance(node, cst.For):
                    items = items_of(self.eval(node.iter, around))
                    self.assign(node.target, items[0] if items is not None and len(items) == 1 else Missing(text_of(node.target, around.module)), around)
            case cst.With() if node.body in way:
                self.entered_with(node, around)
            case cst.Try() if node.body not in way:
                for handler in node.handlers:
                    if handler in way:
                        self.unsure(node.body, around)
                        self._until(handler.body, around, way)
                        return
                self._whole(node.body, around)
                for last in (node.orelse, node.finalbody):
                    if last in way and last is not None:
                        self._until(last.body, around, way)
                return
        body = getattr(node, "body", None)
        if body in way and not isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._until(body, around, way)

    def _whole(self, body: object, around: Names) -> None:
        for statement in block_of(body):
            self._safely(statement, around)


def started(frame: Frame) -> Frame:
    """Where the way to a scope begins."""
    while frame.bound or (frame.this is not None and frame.this.at is not None):
        frame = frame.bound[0].frame if frame.bound else frame.this.at  # type: ignore[union-attr,assignment] # it is given
    return frame
