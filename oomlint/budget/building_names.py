"""Follows the constructors of a model with what is known of their arguments, as Python would run them.

What a layer is given, and how many there are of it, often depends on what the constructor has done before: ``self.width *= 2``, a list that grows in a
loop. A question for the value of an expression has no answer there, a walk through the statements has. Nothing of the project is executed: what is not
a number, a string, a container or a layer is a ``Missing``, and so is all that depends on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.building_objects import Objects, WalkEnd
from oomlint.budget.parts import Class, ForeignOptions, Function, Library, Made, Missing, Names, Partly, Rest, hashable, text_of
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
    Merged,
    ModuleRef,
    Namespace,
    ParsedOptions,
    Partial,
    SettingsNode,
    SourceExpression,
    is_usual,
)
from oomlint.model.values import External as ExternalValue
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.project import Module
    from oomlint.model.values import Alternative, Value
    from oomlint.syntax.scopes import Scope

_OUTSIDE: Final = (ParsedOptions, SettingsNode, Merged, Namespace)


class BuildingNames(Objects):
    """What names stand for, and what the whole program knows."""

    def alternatives(self, node: cst.BaseExpression, frame: Frame) -> list[Any]:
        """What an expression stands for in a frame, whatever is run before it; several things where nobody knows which of them."""
        if isinstance(node, cst.Call):
            value = guarded(node, frame.module, lambda: self.eval(node, _outer(frame)))
            if not isinstance(value, Missing):
                return [value]
        found = [guarded(node, frame.module, partial(self._converted, alt.value, frame, node)) for alt in _usual(self.evaluator.values(node, frame))]
        return found or [Missing(text_of(node, frame.module))]

    # -- names -------------------------------------------------------------------------------------------------------------

    main: Module | None = None  # the module that is started

    def place_of(self, word: str, around: Names) -> Names | Frame | None:
        """The names that have a name; the frame in which the whole program is asked for it; None where nobody knows."""
        here = around
        while word not in here.known or word in here.scope.outer:
            if here.frame is not None or here.around is None:
                break
            here = here.around
        else:
            return here
        if not self._bound(word, around.scope) and word in self.root(around.module).known:
            return self.root(around.module)
        imported = any(effect.kind in DEFINES for effect in around.scope.effects.get(word, ()))
        if here.frame is None and around.scope.sets(word) and not imported and word not in around.scope.outer:
            return None
        return here.frame or self.evaluator.calls.plain_frame(around.module, around.scope)

    @staticmethod
    def _bound(word: str, scope: Scope) -> bool:
        """Whether a function, or one around it, binds a name."""
        here: Scope | None = scope
        while here is not None and here.parent is not None and word not in here.outer:
            bound = any(not effect.path for effect in here.effects.get(word, ()))
            if (bound and (here.is_function or here is scope)) or (here.is_function and word in names.takes(here)):
                return True
            here = here.parent
        return False

    def around_of(self, function: Function) -> Names:
        """The names that the defaults of a function are evaluated with."""
        parent = function.scope.parent
        if function.around is not None or parent is None:
            return function.around or self.root(function.module)
        return Names(function.module, parent, frame=self.evaluator.calls.plain_frame(function.module, parent))

    def body_of(self, cls: ClassRef) -> Names:
        """The names of the body of a class."""
        return Names(cls.module, cls.scope, frame=self.evaluator.calls.plain_frame(cls.module, cls.scope))

    # -- the whole program -------------------------------------------------------------------------------------------------

    def outside(self, node: cst.BaseExpression, frame: Frame) -> Any:
        """What the whole program knows of an expression: the value of a plain run."""
        found = _usual(self.evaluator.values(node, frame))
        if not found:
            return Missing(text_of(node, frame.module))
        if len({_kind(alt.value) for alt in found}) > 1 and not all(isinstance(alt.value, Const) and _by_options(alt) for alt in found):
            return Missing(text_of(node, frame.module))
        return self._converted(found[0].value, frame, node)

    def _converted(self, value: Value, frame: Frame | None, node: cst.BaseExpression | None, text: str = "") -> Any:
        match value:
            case Const():
                return value.value
            case FunctionRef():
                outer = value.scope.parent
                closure = outer is not None and outer.is_function
                around = Names(value.module, outer, frame=self.evaluator.calls.plain_frame(value.module, outer)) if outer is not None and closure else None
                this = self._made_at(value.this.call, value.this.at, partial(self._instance, value.this)) if value.this is not None else None
                return Function(value.module, value.scope, this if isinstance(this, Made) else None, around)
            case ClassRef():
                return Class(value)
            case ModuleRef() if value.module is not None:
                return self.root(value.module)
            case ExternalValue():
                return Library(names.canonical(value.name).removeprefix("builtins."))
            case Instance() if value.call is not None and value.at is not None:
                return self._made_at(value.call, value.at, partial(self._instance, value))
            case ExternalCall() if value.call is not node:
                return self._made_at(value.call, value.frame, partial(self._library_call, value))
            case Display() if not (is_grown(value) and isinstance(value.node, cst.List | cst.Dict)) or value.frame.scope.parent is None:
                return self._made_at(value.node, value.frame, lambda: self.eval(value.node, _outer(value.frame)))
            case SourceExpression() if value.node is not node:
                return self.eval(value.node, _outer(value.frame))
            case Partial():
                bound = value.bound
                plain, named = self.arguments(bound.call, _outer(bound.frame))
                return Partly(self._converted(value.func, frame, node, text), tuple(plain[1:]), named)
        if isinstance(value, _OUTSIDE):
            return self.once(("outside", value), lambda: ForeignOptions(value))
        return Missing(text_of(node, frame.module) if node is not None and frame is not None else text)

    def _made_at(self, node: cst.CSTNode | None, frame: Frame | None, make: Callable[[], Any]) -> Any:
        """What an expression has made. That of a module's code is made by running the module."""
        if frame is not None and frame.scope.parent is None:
            self.root(frame.module)
        return self.once((node, frame), make)

    def _instance(self, value: Instance) -> Any:
        if value.call is None or value.at is None:
            return Missing("an object")
        plain, named = self.arguments(value.call, _outer(value.at))
        return self.construct(value.cls, plain, named)

    def _library_call(self, value: ExternalCall) -> Any:
        plain, named = self.arguments(value.call, _outer(value.frame))
        return self.call(Library(names.canonical(value.name)), plain, named, value.call, _outer(value.frame))

    def member(self, module: Names, word: str, text: str) -> Any:
        """An attribute of a module."""
        if word in module.known:
            return module.known[word]
        found = _usual(self.evaluator.module_member(ModuleRef(module.module.path, module.module), word, ()))
        return self._converted(found[0].value, None, None, text) if len({_kind(alt.value) for alt in found}) == 1 else Missing(text)

    def inside(self, whole: ForeignOptions, accessor: tuple[str, object], text: str) -> Any:
        """An attribute or entry of options or settings, in a plain run."""
        word = accessor[1]
        if not hashable(word) or (word not in whole.changed and any(isinstance(one, Rest) for one in whole.changed)):
            return Missing(text)
        if word not in whole.changed:
            found = _usual(self.evaluator.into_value(whole.value, (accessor,))) if whole.value is not None else []
            first = found[0].value if found else None
            value = Missing(text) if first is None else self._converted(first, None, None, text)
            if isinstance(first, Display):  # which nobody else has changed
                value = self.eval(first.node, _outer(first.frame))
            if not isinstance(value, ForeignOptions | list | dict):
                return value
            whole.changed[word] = value
        return whole.changed[word]

    def entries(self, whole: ForeignOptions) -> dict[Any, Any]:
        """All that options or settings hold, by name; under a ``Rest`` what else they may."""
        words: list[str] = []
        known = not isinstance(whole.value, Namespace | Merged)
        if isinstance(whole.value, ParsedOptions):
            words, known = self.evaluator.options.words(whole.value)
        elif isinstance(whole.value, SettingsNode):
            words = [str(key.value) for key, _ in getattr(whole.value.node, "value", ()) if hasattr(key, "value")]
            known = "<<" not in words
        found: dict[Any, Any] = {word: self.inside(whole, ("item", word), word) for word in words}
        return {**found, **whole.changed, **({} if known else {Rest("more"): None})}

    def unknown(self, given: Sequence[Any], node: cst.Call, around: Names) -> Any:
        """What something gives that nobody can run: options and settings, or nobody knows what. What it is given is no longer known."""
        frame = around.frame or self.evaluator.calls.plain_frame(around.module, around.scope)
        found = _usual(self.evaluator.values(node, frame))
        value = found[0].value if found else None
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "set_defaults" and any(arg.star == "**" for arg in node.args):
            self._known["defaults"] = Rest(text_of(node, around.module))
        if isinstance(value, ParsedOptions) and "defaults" in self._known:
            return ForeignOptions(value, {self._known["defaults"]: None})
        if isinstance(value, _OUTSIDE):
            whole = ForeignOptions(value, by_code=given[0] is not None) if isinstance(value, ParsedOptions) and given else self._converted(value, frame, node)
            words = given[0] if given and isinstance(given[0], list) else ()
            if isinstance(value, ParsedOptions) and given and given[0] is not None:
                for word in [one for one in words if isinstance(one, str) and one.startswith("--")]:
                    whole.changed[word.removeprefix("--").partition("=")[0].replace("-", "_")] = Missing(word)
                if not isinstance(given[0], list | tuple) or any(not isinstance(one, str) for one in given[0]):
                    whole.changed[Rest("the command")] = None
            return whole
        self.spoil_given(given, text_of(node, around.module))
        return Missing(text_of(node, around.module))


def guarded(node: cst.CSTNode, module: Module, walk: Callable[[], Any]) -> Any:
    """What a walk gives, or nobody knows."""
    try:
        return walk()
    except (WalkEnd, RecursionError):
        return Missing(text_of(node, module))


def _outer(frame: Frame) -> Names:
    return Names(frame.module, frame.scope, frame=frame)


def _usual(found: Sequence[Alternative]) -> list[Alternative]:
    """What a plain run has."""
    return [alt for alt in found if not alt.reach and is_usual(alt.picks)] or [alt for alt in found if not alt.reach]


def _by_options(alt: Alternative) -> bool:
    """Whether a value differs from others by the options of a command only: the first is that of a plain run."""
    return bool(alt.picks) and all(isinstance(key, tuple) and key[:1] in {("option",), ("launch",)} for key, _ in alt.picks)


def _kind(value: Value) -> object:
    """Alternatives of one kind differ in their story only."""
    return (type(value), value.call) if isinstance(value, Instance | ExternalCall) else value
