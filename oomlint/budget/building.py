"""Follows the constructors of a model with what is known of their arguments, as Python would run them.

What a layer is given, and how many there are of it, often depends on what the constructor has done before: ``self.width *= 2``, a list that grows in a
loop. A question for the value of an expression has no answer there, a walk through the statements has. Nothing of the project is executed: what is not
a number, a string, a container or a layer is a ``Missing``, and so is all that depends on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.building_calls import BUILT_IN
from oomlint.budget.building_layers import layer as layer_of
from oomlint.budget.building_statements import GaveUp, Left, Returned, Statements
from oomlint.budget.parts import Class, Function, Library, Made, Missing, Names, Outside, Partly, Rest, text_of
from oomlint.model import names
from oomlint.model.displays import is_grown
from oomlint.model.values import (
    ClassRef,
    Const,
    Display,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Namespace,
    Options,
    Partial,
    Settings,
    Written,
    is_usual,
)
from oomlint.model.values import External as ExternalValue
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Value

_DEEPEST: Final = 60  # calls

_OUTSIDE: Final = (Options, Settings, Namespace)


class Building(Statements):
    """Runs constructors of one project."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._deep = 0
        self._known: dict[object, Any] = {}

    def values(self, node: cst.BaseExpression, frame: Frame) -> list[Any]:
        """What an expression stands for in a frame; several things where nobody knows which of them."""
        self.steps, self._deep, self._known = 0, 0, {}
        if isinstance(node, cst.Call):
            value = self._guarded(node, frame.module, lambda: self.eval(node, _outer(frame)))
            if not isinstance(value, Missing):
                return [value]
        usual = _usual(self.evaluator.values(node, frame))
        found = [self._guarded(node, frame.module, partial(self._converted, alt.value, node, frame)) for alt in usual]
        return found or [Missing(text_of(node, frame.module))]

    @staticmethod
    def _guarded(node: cst.BaseExpression, module: Module, walk: Callable[[], Any]) -> Any:
        try:
            return walk()
        except (GaveUp, RecursionError):
            return Missing(text_of(node, module))

    # -- names -------------------------------------------------------------------------------------------------------------

    def named(self, node: cst.Name, around: Names) -> Any:
        """What a name stands for: in the function that is run, around it, in its module."""
        here: Names | None = around
        while here is not None and here.frame is None:
            if node.value in here.known:
                return here.known[node.value]
            if here.around is None:
                break
            here = here.around
        frame = here.frame if here is not None and here.frame is not None else None
        if frame is None:
            imported = any(effect.kind in DEFINES for effect in around.scope.effects.get(node.value, ()))
            if around.scope.sets(node.value) and not imported:
                return Missing(node.value)  # on a way that was not gone
            frame = self.evaluator.calls.plain_frame(around.module, around.scope)
        found = self.outside(node, frame)
        return Library(node.value) if isinstance(found, Missing) and node.value in BUILT_IN else found

    def outside(self, node: cst.BaseExpression, frame: Frame) -> Any:
        """What the whole program knows of an expression: the value of a plain run."""
        found = _usual(self.evaluator.values(node, frame))
        if not found:
            return Missing(text_of(node, frame.module))
        if len({_kind(alt.value) for alt in found}) > 1 and not all(isinstance(alt.value, Const) and _by_options(alt) for alt in found):
            return Missing(text_of(node, frame.module))
        return self._converted(found[0].value, node, frame)

    def _converted(self, value: Value, node: cst.BaseExpression, frame: Frame) -> Any:
        match value:
            case Const():
                return value.value
            case FunctionRef():
                outer = value.scope.parent
                closure = outer is not None and outer.is_function
                around = Names(value.module, outer, frame=self.evaluator.calls.plain_frame(value.module, outer)) if outer is not None and closure else None
                this = self._once((value.this.call, value.this.at), lambda: self._instance(value.this)) if value.this is not None else None
                return Function(value.module, value.scope, this if isinstance(this, Made) else None, around)
            case ClassRef():
                return Class(value)
            case ExternalValue():
                return Library(names.canonical(value.name))
            case Instance() if value.call is not None and value.at is not None:
                return self._once((value.call, value.at), lambda: self._instance(value))
            case ExternalCall() if value.call is not node:
                return self._once((value.call, value.frame), lambda: self._library_call(value))
            case Display() if not (is_grown(value) and isinstance(value.node, cst.List | cst.Dict)):
                return self._once((value.node, value.frame), lambda: self.eval(value.node, _outer(value.frame)))
            case Written() if value.node is not None and value.frame is not None and value.node is not node:
                return self.eval(value.node, _outer(value.frame))
            case Partial():
                bound = value.bound
                plain, named = self.arguments(bound.call, _outer(bound.frame))
                return Partly(self._converted(value.func, node, frame), tuple(plain[1:]), named)
        return Outside(value) if isinstance(value, _OUTSIDE) else Missing(text_of(node, frame.module))

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        """One object for one call in one frame, however often it is asked for."""
        if key not in self._known:
            self._known[key] = Missing("itself")
            self._known[key] = make()
        return self._known[key]

    def _instance(self, value: Instance | None) -> Any:
        if value is None or value.call is None or value.at is None:
            return Missing("an object")
        plain, named = self.arguments(value.call, _outer(value.at))
        return self.construct(value.cls, plain, named)

    def _library_call(self, value: ExternalCall) -> Any:
        plain, named = self.arguments(value.call, _outer(value.frame))
        return self.call(Library(names.canonical(value.name)), plain, named, value.call, _outer(value.frame))

    def inside(self, whole: Outside, accessor: tuple[str, object], node: cst.BaseExpression, around: Names) -> Any:
        """An attribute or entry of options or settings, in a plain run."""
        found = _usual(self.evaluator.into_value(whole.value, (accessor,)))
        return self._converted(found[0].value, node, _frame(self, around)) if found else Missing(text_of(node, around.module))

    def of_class(self, cls: Class, word: str) -> Any:
        """An attribute of a class: the first of its lineage that has it."""
        for base in self.evaluator.lineage(cls.ref):
            scope = base.scope.child(word) if isinstance(base, ClassRef) else None
            if scope is not None and scope.is_function and isinstance(base, ClassRef):
                return Function(base.module, scope)
            if isinstance(base, ClassRef) and word in base.scope.effects:
                return self._of_class(Class(base), word)
        return Missing(word)

    def _of_class(self, cls: Class, word: str) -> Any:
        effects = cls.ref.scope.effects.get(word, ())
        if len(effects) != 1 or effects[0].value is None or effects[0].kind != "assign" or effects[0].path or effects[0].index:
            return Missing(word)
        return self.eval(effects[0].value, _outer(self.evaluator.calls.plain_frame(cls.ref.module, cls.ref.scope)))

    # -- functions and classes -----------------------------------------------------------------------------------------------

    def run(self, function: Function, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a function of the project gives for some arguments."""
        node = function.scope.node
        if function.scope.yields or self._deep > _DEEPEST or not isinstance(node, cst.FunctionDef | cst.Lambda):
            return Missing(function.scope.name)
        if isinstance(node, cst.FunctionDef) and node.decorators and not names.is_static(function.scope) and not names.is_property(function.scope):
            known = {"classmethod", "no_grad", "register_model", "override"}
            if any(names.written_as(one.decorator) not in known for one in node.decorators):
                return Missing(function.scope.name)
        around = Names(function.module, function.scope, around=function.around, this=function.this)
        self._bind(node.params, function, plain, named, around)
        self._deep += 1
        try:
            if isinstance(node, cst.Lambda):
                return self.eval(node.body, around)
            self.block(node.body, around)
        except Returned as end:
            return end.value
        except Left:
            return Missing(function.scope.name)
        finally:
            self._deep -= 1
        return None

    def _bind(self, params: cst.Parameters, function: Function, plain: Sequence[Any], named: dict[str, Any], around: Names) -> None:
        given = list(plain)
        if function.this is not None and names.is_method(function.scope):
            given.insert(0, function.this)
        left = dict(named)
        outer = Names(function.module, function.module.root, frame=self.evaluator.calls.plain_frame(function.module, function.module.root))
        for place, param in enumerate([*params.posonly_params, *params.params]):
            word = param.name.value
            if place < len(given):
                around.known[word] = given[place]
            else:
                around.known[word] = self._given(param, left, outer)
        for param in params.kwonly_params:
            around.known[param.name.value] = self._given(param, left, outer)
        if isinstance(params.star_arg, cst.Param):
            around.known[params.star_arg.name.value] = tuple(given[len(params.posonly_params) + len(params.params) :])
        if params.star_kwarg is not None:
            rest: dict[Any, Any] = {Rest(word) if word == "**" else word: value for word, value in left.items()}
            around.known[params.star_kwarg.name.value] = rest

    def _given(self, param: cst.Param, left: dict[str, Any], outer: Names) -> Any:
        if param.name.value in left:
            return left.pop(param.name.value)
        if "**" in left:
            return Missing(param.name.value)
        return self.eval(param.default, outer) if param.default is not None else Missing(param.name.value)

    def construct(self, cls: ClassRef, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """An object of a class of the project."""
        lineage = self.evaluator.lineage(cls)
        libraries = [base.name for base in lineage if isinstance(base, ExternalValue)]
        module = any(name.startswith(("torch.nn.", "pytorch_lightning.", "lightning.")) for name in libraries)
        made = Made(cls, module)
        if self._deep > _DEEPEST or any(not name.startswith(("torch.nn.", "abc.", "object", "typing.")) for name in libraries):
            made.missing.append(cls.scope.name)
        fields = [one for one in lineage if isinstance(one, ClassRef)] if not libraries and not self._own_method(made, "__init__") else []
        for base in reversed(fields):
            for word in base.scope.effects:
                made.attributes[word] = named.get(word, self._of_class(Class(base), word))
        for word, value in zip(made.attributes, plain, strict=False):
            made.attributes[word] = value
        self.initialize(made, 0, plain, named)
        return made

    def initialize(self, made: Made, start: int, plain: Sequence[Any], named: dict[str, Any]) -> None:
        """Run ``__init__`` of the first class of an object's lineage from ``start`` on that has one."""
        for base in self.evaluator.lineage(made.cls)[start:]:
            if isinstance(base, ExternalValue):
                library, _, layer = names.canonical(base.name).rpartition(".")
                if library.startswith("torch.nn") and layer != "Module":
                    made.attributes[f"({layer})"] = layer_of(layer, plain, named, layer)
                return
            scope = base.scope.child("__init__")
            if scope is not None and isinstance(scope.node, cst.FunctionDef):
                around = self.run(Function(base.module, scope, made), plain, named)
                if isinstance(around, Missing):
                    made.missing.append(base.scope.name)
                return

    def _own_method(self, made: Made, word: str) -> Function | None:
        for base in self.evaluator.lineage(made.cls):
            scope = base.scope.child(word) if isinstance(base, ClassRef) else None
            if scope is not None and isinstance(scope.node, cst.FunctionDef) and isinstance(base, ClassRef):
                return Function(base.module, scope, None if names.is_static(scope) else made)
        return None

    def after(self, made: Made, around: Names) -> int:
        """The place in an object's lineage behind the class whose method is run: where ``super()`` looks on."""
        lineage = self.evaluator.lineage(made.cls)
        here = around.scope
        while not here.is_class and here.parent is not None:
            here = here.parent
        return next((place + 1 for place, base in enumerate(lineage) if isinstance(base, ClassRef) and base.scope is here), len(lineage))

    def of_super(self, made: Made, word: str, around: Names) -> Any:
        """A method that ``super()`` finds."""
        for base in self.evaluator.lineage(made.cls)[self.after(made, around) :]:
            scope = base.scope.child(word) if isinstance(base, ClassRef) else None
            if scope is not None and isinstance(base, ClassRef):
                return Function(base.module, scope, made)
        return Missing(word)


def _outer(frame: Frame) -> Names:
    return Names(frame.module, frame.scope, frame=frame)


def _frame(building: Building, around: Names) -> Frame:
    return around.frame or building.evaluator.calls.plain_frame(around.module, around.module.root)


def _usual(found: Sequence[Alternative]) -> list[Alternative]:
    """What a plain run has."""
    return [alt for alt in found if not alt.reach and is_usual(alt.picks)] or [alt for alt in found if not alt.reach]


def _by_options(alt: Alternative) -> bool:
    """Whether a value differs from others by the options of a command only: the first is that of a plain run."""
    return bool(alt.picks) and all(isinstance(key, tuple) and key[:1] in {("option",), ("launch",)} for key, _ in alt.picks)


def _kind(value: Value) -> object:
    """Alternatives of one kind differ in their story only."""
    return (type(value), value.call) if isinstance(value, Instance | ExternalCall) else value
