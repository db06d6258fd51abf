"""The statements of constructors, one after the other. One that may be run or not spoils what it sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.building_expressions import Expressions, applied, hashable, truth
from oomlint.budget.parts import MOST_ROUNDS, Function, Layer, Made, Method, Missing, Rest, items_of, text_of
from oomlint.model import names
from oomlint.syntax.nodes import block_of, descend

if TYPE_CHECKING:
    from oomlint.budget.parts import Names
    from oomlint.model.project import Project

_LOOK_ONLY: Final = frozenset({"isinstance", "len", "print", "hasattr", "type", "id", "str", "range", "enumerate", "zip", "super"})
_MOST_STEPS: Final = 60_000  # expressions and statements, of one model
_AUGMENTED: Final[dict[type[cst.CSTNode], type[cst.CSTNode]]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.FloorDivideAssign: cst.FloorDivide,
    cst.PowerAssign: cst.Power,
}


class GaveUp(Exception):  # noqa: N818 - it ends a walk, nothing is wrong
    """The walk is too long, or comes to what cannot be."""


class Returned(Exception):  # noqa: N818 - nothing is wrong
    """How a function ends."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Left(Exception):  # noqa: N818 - nothing is wrong
    """How a round of a loop ends, or the loop."""

    def __init__(self, *, loop: bool) -> None:
        self.loop = loop


class Statements(Expressions):
    """Statements of what is run."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self.steps = 0

    def block(self, body: object, around: Names) -> None:
        """Run statements."""
        for statement in block_of(body):
            self.step()
            self._statement(statement, around)

    def step(self) -> None:
        """Count a step. Raises GaveUp where there are too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise GaveUp

    def _statement(self, node: cst.CSTNode, around: Names) -> None:
        match node:
            case cst.Expr():
                self.eval(node.value, around)
            case cst.Assign():
                value = self.eval(node.value, around)
                for target in node.targets:
                    self.assign(target.target, value, around)
            case cst.AnnAssign() if node.value is not None:
                self.assign(node.target, self.eval(node.value, around), around)
            case cst.AugAssign():
                self._augment(node, around)
            case cst.Return():
                raise Returned(self.eval(node.value, around) if node.value is not None else None)
            case cst.If():
                self._if(node, around)
            case cst.For():
                self._for(node, around)
            case cst.While():
                self._while(node, around)
            case cst.With():
                for item in node.items:
                    if item.asname is not None:
                        self.assign(item.asname.name, Missing(text_of(item.item, around.module)), around)
                self.block(node.body, around)
            case cst.Try():
                self.block(node.body, around)
                for handler in node.handlers:  # what a module that is not there leads to, nobody knows
                    self._spoil(handler.body, around)
                for last in (node.orelse, node.finalbody):
                    if last is not None:
                        self.block(last.body, around)
            case cst.Match():
                self._spoil(node, around)
            case cst.Del():
                self._delete(node.target, around)
            case cst.FunctionDef():
                scope = next((child for child in around.scope.children if child.node is node), None)
                around.known[node.name.value] = Function(around.module, scope, None, around) if scope is not None else Missing(node.name.value)
            case cst.Break() | cst.Continue():
                raise Left(loop=isinstance(node, cst.Break))
            case cst.Raise():
                raise GaveUp

    def _delete(self, target: cst.BaseExpression, around: Names) -> None:
        """Take a name or an attribute away; of what an entry is taken from, nobody knows the rest."""
        if isinstance(target, cst.Name):
            around.known.pop(target.value, None)
        elif isinstance(target, cst.Attribute):
            owner = self.eval(target.value, around)
            if isinstance(owner, Made):
                owner.attributes.pop(target.attr.value, None)
            elif isinstance(owner, Layer):
                owner.parts.pop(target.attr.value, None)
        elif isinstance(target, cst.Subscript):
            self.fill(self.eval(target.value, around), "update", Missing(text_of(target, around.module)))

    def _if(self, node: cst.If, around: Names) -> None:
        verdict = truth(self.eval(node.test, around))
        if verdict is None:
            self._spoil(node, around)
        elif verdict:
            self.block(node.body, around)
        elif isinstance(node.orelse, cst.If):
            self._if(node.orelse, around)
        elif node.orelse is not None:
            self.block(node.orelse.body, around)

    def _for(self, node: cst.For, around: Names) -> None:
        over = items_of(self.eval(node.iter, around))
        if over is None:
            self._spoil(node, around)
            return
        for item in over:
            self.step()
            self.assign(node.target, item, around)
            try:
                self.block(node.body, around)
            except Left as end:
                if end.loop:
                    return
        if node.orelse is not None:
            self.block(node.orelse.body, around)

    def _while(self, node: cst.While, around: Names) -> None:
        for _ in range(MOST_ROUNDS):
            verdict = truth(self.eval(node.test, around))
            if verdict is None:
                self._spoil(node, around)
                return
            if not verdict:
                return
            try:
                self.block(node.body, around)
            except Left as end:
                if end.loop:
                    return
        raise GaveUp

    def _spoil(self, node: cst.CSTNode, around: Names) -> None:
        """Code that may be run or not: nobody knows any longer what it sets or fills."""
        for inner in descend(node, into_scopes=False):
            missing = Missing(text_of(inner, around.module))
            targets: list[cst.BaseExpression] = []
            if isinstance(inner, cst.Return):
                raise Returned(Missing(around.scope.name))
            if isinstance(inner, cst.Break | cst.Continue):
                raise GaveUp
            if isinstance(inner, cst.Del):
                targets = [inner.target] if isinstance(inner.target, cst.Name | cst.Attribute) else []
            if isinstance(inner, cst.Call) and names.last_name(inner.func) not in _LOOK_ONLY and ".init." not in names.dotted(inner.func):
                self.spoil_given([self.eval(arg.value, around) for arg in inner.args if isinstance(arg.value, cst.Name | cst.Attribute)], missing.text)
            if isinstance(inner, cst.Assign):
                targets = [one.target for one in inner.targets]
                missing = Missing(text_of(inner.value, around.module))
            elif isinstance(inner, cst.AnnAssign | cst.AugAssign | cst.For):
                targets = [inner.target]
            for target in targets:
                self.assign(target, missing, around)
            if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
                self.fill(self.eval(inner.func.value, around), inner.func.attr.value, missing)
                self._spoil_by(self.eval(inner.func, around), missing.text)

    @staticmethod
    def _spoil_by(called: object, text: str) -> None:
        """A method that may be run or not, and puts something on its object."""
        if isinstance(called, Function) and called.this is not None:
            called.this.missing.append(text)

    def assign(self, target: cst.BaseExpression, value: Any, around: Names) -> None:
        """Give a value to a name, to several, to an attribute or an entry."""
        match target:
            case cst.Name():
                around.known[target.value] = value
            case cst.Tuple() | cst.List():
                items = items_of(value)
                plain = not any(isinstance(one, cst.StarredElement) for one in target.elements)
                fits = items is not None and plain and len(items) == len(target.elements)
                for place, one in enumerate(target.elements):
                    self.assign(one.value, items[place] if fits and items is not None else Missing(text_of(one.value, around.module)), around)
            case cst.Attribute():
                self.set_attribute(self.eval(target.value, around), target.attr.value, value)
            case cst.Subscript():
                whole, key = self.eval(target.value, around), self._key(target, around)
                if isinstance(whole, Layer):
                    inner = list(whole.parts)
                    at = inner[key] if isinstance(key, int) and -len(inner) <= key < len(inner) else key
                    whole.parts[str(at)] = value
                    whole.missing += [] if isinstance(key, int | str) else [text_of(target, around.module)]
                elif isinstance(whole, Made):
                    whole.missing.append(text_of(target, around.module))
                elif isinstance(whole, Method) and isinstance(whole.of, Layer | Made):  # `self._modules[name] = layer`
                    whole.of.missing.append(text_of(target, around.module))
                elif isinstance(whole, dict) and not hashable(key):
                    whole[Rest(text_of(target, around.module))] = value
                elif isinstance(whole, list | dict):
                    try:
                        whole[key] = value
                    except (TypeError, IndexError, ValueError):
                        raise GaveUp from None

    def _augment(self, node: cst.AugAssign, around: Names) -> None:
        old, more = self.eval(node.target, around), self.eval(node.value, around)
        kind = _AUGMENTED.get(type(node.operator))
        if isinstance(old, list) and kind is cst.Add:
            items = items_of(more)
            old.extend(items if items is not None else [Rest(text_of(node.value, around.module))])
            return
        whole = text_of(node.target, around.module)
        self.assign(node.target, applied(kind, old, more, whole) if kind is not None else Missing(whole), around)
