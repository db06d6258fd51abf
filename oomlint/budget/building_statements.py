"""The statements of constructors, one after the other. One that may be run or not spoils what it sets."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.api_names import FACTS, SAME_MODEL
from oomlint.budget.building_calls import WRAPPERS
from oomlint.budget.building_expressions import BuildingExpressions
from oomlint.budget.building_objects import GaveUp, Returned, RoundEnd
from oomlint.budget.building_operators import applied, truth
from oomlint.budget.object_state import forget
from oomlint.budget.parts import MOST_ROUNDS, Class, Function, Layer, Library, Made, Missing, ParameterTensor, PlainValue, Rest, items_of, text_of
from oomlint.model import names
from oomlint.model.freezing import has_no_parameters
from oomlint.model.values import ClassRef
from oomlint.syntax.nodes import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.parts import Names

_LOOK_ONLY: Final = frozenset({"isinstance", "len", "print", "hasattr", "type", "id", "str", "range", "enumerate", "zip", "super"})
_DEEPEST_UNSURE: Final = 8  # calls, in code that may be run or not
_HARMLESS: Final = ("torch.nn.init.", "torch.nn.functional.", "logging.", "warnings.", "torch.distributed.", "os.", "json.")
_SETS: Final[frozenset[type]] = frozenset(
    {cst.Del, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr, cst.FunctionDef, cst.ClassDef, cst.Yield, cst.Call}
)
_MOST_STEPS: Final = 60_000  # expressions and statements, of one model
_AUGMENTED: Final[dict[type[cst.CSTNode], type[cst.CSTNode]]] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.FloorDivideAssign: cst.FloorDivide,
    cst.PowerAssign: cst.Power,
    cst.ModuloAssign: cst.Modulo,
}


@lru_cache(maxsize=1024)
def _setting(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """What sets, fills or calls something below a node. A function that many branches call is asked for each of them."""
    return tuple(inner for inner in descend(node, into_scopes=False) if inner.__class__ in _SETS)


class Statements(BuildingExpressions):
    """Statements of what is run."""

    def block(self, body: object, around: Names) -> None:
        """Run statements."""
        statements = block_of(body)
        for place, statement in enumerate(statements):
            self.step()
            try:
                self.statement(statement, around)
            except (Returned, RoundEnd) as end:
                for other in statements[place + 1 :] if not end.sure else ():
                    self.unsure(other, around)
                raise

    def step(self) -> None:
        """Count a step. Raises GaveUp where there are too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise GaveUp

    def statement(self, node: cst.CSTNode, around: Names) -> None:
        """Run a statement."""
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
                self.entered_with(node, around)
                self.block(node.body, around)
            case cst.Try():
                self._try(node, around)
            case cst.Match():
                self._spoil(node, around)
            case cst.Del():
                self._delete(node.target, around)
            case cst.FunctionDef() | cst.ClassDef() if around.scope.parent is None:
                self._define(node, around)
            case cst.FunctionDef():
                around.known[node.name.value] = self.defined(node, around)
            case cst.Break() | cst.Continue():
                raise RoundEnd(isinstance(node, cst.Break))
            case cst.Raise():
                raise GaveUp

    def _define(self, node: cst.FunctionDef | cst.ClassDef, around: Names) -> None:
        """A function or a class of a module, which the whole program knows; one that is decorated may be registered, or replaced."""
        around.known.pop(node.name.value, None)
        scope = next((child for child in around.scope.children if child.node is node), None)
        if scope is not None:
            self.settle(around.module, scope)
        if scope is not None and node.decorators:
            value = Function(around.module, scope) if scope.is_function else Class(ClassRef(around.module, scope))
            found = self.decorated(value, around)
            if not isinstance(found, Missing | Function) and found != value:
                around.known[node.name.value] = found

    def entered_with(self, node: cst.With, around: Names) -> None:
        """Give values to the names of a ``with``."""
        for item in node.items:
            if item.asname is not None:
                self.assign(item.asname.name, Missing(text_of(item.item, around.module)), around)

    def _try(self, node: cst.Try, around: Names) -> None:
        before = dict(around.known)
        try:
            self.block(node.body, around)
        except GaveUp:
            self.step()
            self.unsure(node.body, around)
        for handler in node.handlers:  # what a module that is not there leads to, nobody knows
            self.unsure(handler.body, around)
        if all(isinstance(block_of(handler.body)[-1], cst.Raise) for handler in node.handlers):
            before = {}
        for word in before:
            if around.known.get(word) is not before[word]:
                around.known[word] = Missing(word)  # nobody knows how far it came
        for last in (node.orelse, node.finalbody):
            if last is not None:
                self.block(last.body, around)

    def _delete(self, target: cst.BaseExpression, around: Names) -> None:
        """Take a name, an attribute or an entry away."""
        if isinstance(target, cst.Name):
            around.known.pop(target.value, None)
        elif isinstance(target, cst.Attribute):
            self.remove(self.eval(target.value, around), target.attr.value, text_of(target, around.module))
        elif isinstance(target, cst.Subscript):
            self.remove(self.eval(target.value, around), self.key(target, around), text_of(target, around.module))

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
            if self._round(node, around):
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
                if node.orelse is not None:
                    self.block(node.orelse.body, around)
                return
            if self._round(node, around):
                return
        raise GaveUp

    def _round(self, node: cst.For | cst.While, around: Names) -> bool:
        """Run a round of a loop. Gives whether it was the last."""
        try:
            self.block(node.body, around)
        except RoundEnd as end:
            if not end.sure:
                self.unsure(node, around)
            return bool(end.value) or not end.sure
        except Returned as end:
            if not end.sure:
                self.unsure(node, around)
            raise
        return False

    def _spoil(self, node: cst.CSTNode, around: Names) -> None:
        """Code that may be run or not, and may end the function or a round of the loop that it stands in."""
        self.unsure(node, around)
        inner = [one for loop in descend(node, into_scopes=False) if isinstance(loop, cst.For | cst.While) for one in descend(loop, into_scopes=False)]
        for one in descend(node, into_scopes=False):
            if isinstance(one, cst.Return):
                raise Returned(Missing(around.scope.name), sure=False)
        if any(isinstance(one, cst.Break | cst.Continue) and one not in inner for one in descend(node, into_scopes=False)):
            raise RoundEnd(sure=False)

    def unsure(self, node: cst.CSTNode, around: Names, *, calls: bool = True) -> None:
        """Code that may be run or not: nobody knows any longer what it sets or fills; with ``calls``, what the functions do that it calls."""
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.assign(node.name, Missing(node.name.value), around)
            return
        for inner in _setting(node):
            self.step()
            missing = Missing(text_of(inner, around.module))
            targets: list[cst.BaseExpression] = []
            if isinstance(inner, cst.Del) and isinstance(inner.target, cst.Name | cst.Attribute):
                targets = [inner.target]
            elif isinstance(inner, cst.Assign):
                targets = [one.target for one in inner.targets]
                missing = self._one_of(inner.value, targets, around)
            elif isinstance(inner, cst.AugAssign | cst.For | cst.NamedExpr) or (isinstance(inner, cst.AnnAssign) and inner.value is not None):
                targets = [inner.target]
            elif isinstance(inner, cst.FunctionDef | cst.ClassDef) and inner is not node:
                targets = [inner.name]
            elif isinstance(inner, cst.Yield) and around.given is not None:
                around.given.append(Rest(missing.text))
            for target in targets:
                if not (isinstance(inner, cst.Assign) and self._same(target, inner.value, around)):
                    self.assign(target, missing, around)
            if isinstance(inner, cst.Call):
                self._unsure_call(inner, around, missing, calls=calls)

    def _one_of(self, value: cst.BaseExpression, targets: Sequence[cst.BaseExpression], around: Names) -> Missing:
        """What ``targets`` may stand for from here on. Where one is a part already, it may still be that."""
        plain = isinstance(value, cst.BaseNumber | cst.BaseString) or (isinstance(value, cst.Attribute) and value.attr.value in FACTS)
        if isinstance(value, cst.Call) and _is_path(value.func):
            called = self.eval(value.func, around)
            plain = isinstance(called, Library) and has_no_parameters(called.name)
        plain = plain and not any(isinstance(self.eval(one, around), Layer | Made | ParameterTensor) for one in targets if not isinstance(one, cst.Tuple))
        return (PlainValue if plain else Missing)(text_of(value, around.module))

    def _unsure_call(self, node: cst.Call, around: Names, missing: Missing, *, calls: bool) -> None:
        if isinstance(node.func, cst.Attribute) and _is_path(node.func.value):
            self.fill(self.eval(node.func.value, around), node.func.attr.value, missing)
        if not calls or names.last_name(node.func) in _LOOK_ONLY | WRAPPERS or ".init." in names.dotted(node.func):
            return
        called = self.eval(node.func, around) if _is_path(node.func) else missing
        if isinstance(called, Class):
            called = self.of_super(self.blank(called.ref), "__init__", 0)
        values = [self.eval(arg.value, around) if _is_path(arg.value) else Missing(missing.text) for arg in node.args]
        if isinstance(called, Function) and not any(arg.star for arg in node.args) and self._deep < _DEEPEST_UNSURE:
            named = {arg.keyword.value: value for arg, value in zip(node.args, values, strict=True) if arg.keyword is not None}
            inner = self.entered(called, [value for arg, value in zip(node.args, values, strict=True) if arg.keyword is None], named)
            self._deep += 1
            self.unsure(called.scope.suite, inner)
            self._deep -= 1
            return
        if isinstance(called, Library) and called.name.startswith(_HARMLESS):
            return
        if isinstance(called, Library) and called.name in {"setattr", "delattr"} and len(values) > 1:
            key = self.eval(node.args[1].value, around)
            if isinstance(key, str):
                self.set_attribute(values[0], key, missing)
                return
            if isinstance(values[0], Made) and values[0].module:
                forget(values[0], missing.text)
        self.spoil_given(values, missing.text, settings=isinstance(called, Function) or (isinstance(called, Library) and called.name == "setattr"))
        if isinstance(called, Function) and isinstance(called.this, Made):
            called.this.missing.append(missing.text)

    def _same(self, target: cst.BaseExpression, value: cst.BaseExpression, around: Names) -> bool:
        """Whether a target is given what it has: ``model = model.cuda()``."""
        if not isinstance(value, cst.Call) or names.last_name(value.func) not in SAME_MODEL | WRAPPERS:
            return False
        if not all(_is_path(one) for one in (target, value.func, *(arg.value for arg in value.args[:1] if names.last_name(value.func) in WRAPPERS))):
            return False
        found = self.eval(value, around)
        return isinstance(found, Layer | Made) and found is self.eval(target, around)

    def assign(self, target: cst.BaseExpression, value: Any, around: Names) -> None:
        """Give a value to a name, to several, to an attribute or an entry."""
        match target:
            case cst.Name():
                self._holder(target.value, around).known[target.value] = value
            case cst.Tuple() | cst.List():
                self._unpack(target.elements, value, around)
            case cst.Attribute():
                self.set_attribute(self.eval(target.value, around), target.attr.value, value)
            case cst.Subscript():
                self.set_entry(self.eval(target.value, around), self.key(target, around), value, text_of(target, around.module))

    def _holder(self, word: str, around: Names) -> Names:
        """The names that a name belongs to that is set."""
        if word in around.scope.outer:
            return self.root(around.module)
        here: Names | None = around.around if word in around.scope.enclosing else around
        while here is not None and word in around.scope.enclosing and word not in here.known:
            here = here.around
        return here or around

    def _unpack(self, targets: Sequence[cst.BaseElement], value: Any, around: Names) -> None:
        items = items_of(value)
        starred = [place for place, one in enumerate(targets) if isinstance(one, cst.StarredElement)]
        if items is not None and len(starred) == 1 and len(items) >= len(targets) - 1:
            end = starred[0] + len(items) - len(targets) + 1
            items = [*items[: starred[0]], items[starred[0] : end], *items[end:]]
        elif items is not None and (starred or len(items) != len(targets)):
            items = None
        for place, one in enumerate(targets):
            self.assign(one.value, items[place] if items is not None else Missing(text_of(one.value, around.module)), around)

    def _augment(self, node: cst.AugAssign, around: Names) -> None:
        old, more = self.eval(node.target, around), self.eval(node.value, around)
        kind = _AUGMENTED.get(type(node.operator))
        whole = text_of(node.target, around.module)
        if isinstance(old, list | Layer) and kind is cst.Add:
            self.method(old, "extend", [more], {}, text_of(node.value, around.module))
        else:
            self.assign(node.target, applied(kind, old, more, whole) if kind is not None else Missing(whole), around)


def _is_path(node: cst.BaseExpression) -> bool:
    """Whether a name leads there, and nothing is called on the way."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    return isinstance(node, cst.Name)
