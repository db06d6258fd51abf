"""Functions and classes of the project, as they are run: arguments, constructors, base classes, attributes of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.budget.parts import Class, Function, Library, Made, Missing, Names, Partly, Rest, ValueMethod
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef
from oomlint.model.values import External as ExternalValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 60  # calls
_SAME: Final = frozenset(
    {
        "abstractmethod",
        "cached_property",
        "classmethod",
        "no_grad",
        "inference_mode",
        "register_model",
        "override",
        "dataclass",
        "rank_zero_only",
        "final",
        "typechecked",
    }
)
_LITERALS: Final = (cst.Integer, cst.Float, cst.SimpleString, cst.List, cst.Dict)
_MODULES: Final = ("torch.nn.", "pytorch_lightning.", "lightning.")
_PLAIN_BASES: Final = ("torch.nn.", "abc.", "object", "typing.", "enum.")


class WalkEnd(Exception):  # noqa: N818 - nothing is wrong
    """How a walk ends before its last statement. Where it is not ``sure``, it may go on as well."""

    def __init__(self, value: Any = None, *, sure: bool = True) -> None:
        self.value = value
        self.sure = sure


class GaveUp(WalkEnd):
    """The walk is too long, or comes to what cannot be."""


class Returned(WalkEnd):
    """How a function ends."""


class RoundEnd(WalkEnd):
    """How a round of a loop ends, or the loop, where its value is true."""


class Objects(ABC):
    """Runs functions and constructors."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.steps = self._deep = 0
        self._known: dict[object, Any] = {}
        self._statics: dict[tuple[Scope, str], Any] = {}  # what is written to classes

    # -- what later parts answer ---------------------------------------------------------------------------------------------

    @abstractmethod
    def root(self, module: Module) -> Names:
        """The names of a module, as far as its code has been run."""

    @abstractmethod
    def around_of(self, function: Function) -> Names:
        """The names that the defaults of a function are evaluated with."""

    @abstractmethod
    def body_of(self, cls: ClassRef) -> Names:
        """The names of the body of a class."""

    @abstractmethod
    def spoil_given(self, given: Sequence[Any], text: str, *, settings: bool = False) -> None:
        """Nobody knows what becomes of what is handed to something unknown. ``settings`` are changed by what belongs to the project only."""

    @abstractmethod
    def call(self, called: Any, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        """What a call gives."""

    @staticmethod
    @abstractmethod
    def set_base(made: Made, name: str, plain: Sequence[Any], named: dict[str, Any]) -> None:
        """Give an object what the constructor of a library's base makes of it."""

    @abstractmethod
    def eval(self, node: cst.BaseExpression, around: Names) -> Any:
        """The value of an expression."""

    @abstractmethod
    def arguments(self, node: cst.Call, around: Names) -> tuple[list[Any], dict[str, Any]]:
        """What a call is given."""

    @abstractmethod
    def assign(self, target: cst.BaseExpression, value: Any, around: Names) -> None:
        """Give a value to a name, to several, to an attribute or an entry."""

    @abstractmethod
    def step(self) -> None:
        """Count a step of the walk."""

    @abstractmethod
    def block(self, body: object, around: Names) -> None:
        """Run statements."""

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """One object for one call in one frame, however often it is asked for."""
        if key not in self._known:
            self._known[key] = Missing("itself")
            self._known[key] = make()
        return self._known[key]

    # -- attributes of classes ---------------------------------------------------------------------------------------------

    def of_class(self, cls: Class, word: str) -> Any:
        """An attribute of a class: the first of its lineage that has it."""
        for base in self.evaluator.lineage(cls.ref):
            if not isinstance(base, ClassRef):
                continue
            if (base.scope, word) in self._statics:
                return self._statics[base.scope, word]
            scopes = [child for child in base.scope.children if child.name == word]
            scope = next(filter(names.is_property, scopes), scopes[-1] if scopes else None)
            if scope is not None and scope.is_function:
                return Function(base.module, scope)
            if scope is not None:
                return Class(ClassRef(base.module, scope))
            if word in base.scope.effects:
                found = self.once((base.scope, word), lambda: self._of_body(base, word))  # noqa: B023 - it is called at once
                return self._member(base, word, found) if self.evaluator.is_enum(cls.ref) else found
        return Missing(word)

    def _of_body(self, base: ClassRef, word: str) -> Any:
        effects = [one for one in base.scope.effects[word] if one.kind != "declare"]
        if len(effects) != 1 or effects[0].value is None or effects[0].kind != "assign" or effects[0].path or effects[0].index:
            return Missing(word)
        return self.eval(effects[0].value, self.body_of(base))

    def _member(self, base: ClassRef, word: str, value: Any) -> Any:
        """A member of an enumeration, which is equal to itself only."""
        plain = any(isinstance(one, ExternalValue) and one.name == "enum.Enum" for one in self.evaluator.lineage(base))
        return self.once((base.scope, word, "member"), lambda: Made(base, module=False, attributes={"name": word, "value": value})) if plain else Missing(word)

    def setter(self, made: Made, word: str) -> Function | None:
        """The method that sets an attribute of an object."""
        for base in self.evaluator.lineage(made.cls):
            for scope in base.scope.children if isinstance(base, ClassRef) else ():
                node = scope.node
                setters = [one for one in getattr(node, "decorators", ()) if names.dotted(one.decorator) == f"{word}.setter"]
                if isinstance(base, ClassRef) and setters:
                    return Function(base.module, scope, made)
        return None

    def set_static(self, cls: ClassRef, word: str, new: Any) -> None:
        """Set an attribute of a class."""
        self._statics[cls.scope, word] = new

    # -- functions -----------------------------------------------------------------------------------------------------------

    def run(self, function: Function, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a function of the project gives for some arguments."""
        node, scope = function.scope.node, function.scope
        if self._deep > _DEEPEST:
            raise GaveUp
        if not isinstance(node, cst.FunctionDef | cst.Lambda):
            self.spoil_given([*plain, *named.values(), function.this], scope.name)
            return Missing(scope.name)
        if isinstance(node, cst.FunctionDef) and self._is_wrapped(function):
            self.spoil_given([*plain, *named.values(), function.this], scope.name)
            return Missing(scope.name)
        around = self.entered(function, plain, named)
        around.given = [] if scope.yields else None
        self._deep += 1
        try:
            if isinstance(node, cst.Lambda):
                return self.eval(node.body, around)
            self.block(node.body, around)
        except Returned as end:
            return around.given if scope.yields and not isinstance(end.value, Missing) else end.value
        except RoundEnd:
            return Missing(scope.name)
        finally:
            self._deep -= 1
        return around.given

    def _is_wrapped(self, function: Function) -> bool:
        """Whether a decorator may have put something else in the place of a function."""
        node = function.scope.node
        words = [names.written_as(one.decorator) for one in getattr(node, "decorators", ())]
        if all(word in {*_SAME, "staticmethod", "property", "setter"} for word in words):
            return False
        found = self.decorated(function, self.around_of(function))
        return not (isinstance(found, Function) and found.scope is function.scope)

    def decorated(self, value: Function | Class, around: Names) -> Any:
        """What decorators of the project make of a function or a class; of a class, others make nothing else."""
        scope = value.scope if isinstance(value, Function) else value.ref.scope

        def made() -> Any:
            found: Any = value
            for one in reversed(scope.node.decorators if isinstance(scope.node, cst.FunctionDef | cst.ClassDef) else ()):
                decorator = self.eval(one.decorator, around)
                if isinstance(decorator, Function):
                    found = self.run(decorator, [found], {})
                elif isinstance(value, Function) and names.written_as(one.decorator) not in _SAME:
                    found = Missing(scope.name)
            return found

        return self.once((scope, "decorated"), made)

    def entered(self, function: Function, plain: Sequence[Any], named: dict[str, Any]) -> Names:
        """The names of a function where its code begins."""
        this, given = function.this, list(plain)
        if names.is_method(function.scope) and not names.is_static(function.scope):
            if this is None and given and isinstance(given[0], Made | Class):  # `Base.__init__(self, 3)`
                this = given[0]
            elif this is not None:
                given.insert(0, this)
        around = Names(function.module, function.scope, around=function.around, this=this if isinstance(this, Made) else None)
        node = function.scope.node
        assert isinstance(node, cst.FunctionDef | cst.Lambda)  # noqa: S101 - only these are called
        self._bind(node.params, function, given, dict(named), around)
        return around

    def _bind(self, params: cst.Parameters, function: Function, given: list[Any], left: dict[str, Any], around: Names) -> None:
        for place, param in enumerate([*params.posonly_params, *params.params]):
            around.known[param.name.value] = given[place] if place < len(given) else self._given(param, left, function)
        for param in params.kwonly_params:
            around.known[param.name.value] = self._given(param, left, function)
        if isinstance(params.star_arg, cst.Param):
            around.known[params.star_arg.name.value] = tuple(given[len(params.posonly_params) + len(params.params) :])
        if params.star_kwarg is not None:
            rest: dict[Any, Any] = {Rest(word) if word == "**" else word: value for word, value in left.items()}
            around.known[params.star_kwarg.name.value] = rest

    def settle(self, module: Module, scope: Scope) -> None:
        """Evaluate defaults and what stands in the body of a class, where they are defined."""
        for inner in scope.children if scope.is_class else [scope]:
            for param in names.parameters(inner):
                if param.default is not None and not isinstance(param.default, _LITERALS) and isinstance(inner.node, cst.FunctionDef):
                    self._given(param, {}, Function(module, inner))
        cls = ClassRef(module, scope)
        for word, effects in scope.effects.items() if scope.is_class else ():
            if len(effects) == 1 and effects[0].value is not None and not isinstance(effects[0].value, _LITERALS):
                self.once((scope, word), partial(self._of_body, cls, word))

    def _given(self, param: cst.Param, left: dict[str, Any], function: Function) -> Any:
        default = param.default
        if param.name.value in left:
            return left.pop(param.name.value)
        if "**" in left or default is None:
            return Missing(param.name.value)
        if param.name.value in function.defaults:
            return function.defaults[param.name.value]
        return self.once((default, function.around), lambda: self.eval(default, self.around_of(function)))

    # -- objects -------------------------------------------------------------------------------------------------------------

    def construct(self, cls: ClassRef, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """An object of a class of the project."""
        made = self.blank(cls)
        fields = self.evaluator.fields(cls) if self.method_of(made, "__init__") is None else None
        if self.method_of(made, "__new__") is not None:
            made.missing.append(cls.scope.name)
        left = dict(named)
        for place, (word, default, _) in enumerate(fields or ()):
            if place < len(plain):
                made.attributes[word] = plain[place]
            elif word in left or "**" in left or default is None:
                made.attributes[word] = left.get(word, Missing(word))
            else:
                made.attributes[word] = self.eval(default, self.body_of(self._declaring(cls, word)))
        if fields is not None:
            after = self.method_of(made, "__post_init__")
            if after is not None:
                self.run(after, [], {})
            return made
        first = self.of_super(made, "__init__", 0)
        value = self.run(first, plain, named) if isinstance(first, Function) else None
        if isinstance(first, Partly):
            self.set_base(made, first.func.name, plain, named)
        if isinstance(value, Missing):
            made.missing.append(cls.scope.name)
        return made

    def _declaring(self, cls: ClassRef, word: str) -> ClassRef:
        return next((base for base in self.evaluator.lineage(cls) if isinstance(base, ClassRef) and word in base.scope.effects), cls)

    def blank(self, cls: ClassRef) -> Made:
        """An object before its ``__init__``."""
        libraries = [base.name for base in self.evaluator.lineage(cls) if isinstance(base, ExternalValue)]
        made = Made(cls, any(name.startswith(_MODULES) for name in libraries))
        if self._deep > _DEEPEST or any(not name.startswith(_PLAIN_BASES) for name in libraries):
            made.missing.append(cls.scope.name)
        return made

    def method_of(self, made: Made, word: str) -> Function | None:
        """A method that a class of the project gives its objects."""
        found = self.of_class(Class(made.cls), word)
        return Function(found.module, found.scope, made) if isinstance(found, Function) else None

    def after(self, made: Made, around: Names, given: Any = None) -> int:
        """The place in an object's lineage behind the class whose method is run, or that ``super`` is given: where ``super()`` looks on."""
        lineage = self.evaluator.lineage(made.cls)
        here = around.scope
        while not here.is_class and here.parent is not None:
            here = here.parent
        scope = given.ref.scope if isinstance(given, Class) else here
        return next((place + 1 for place, base in enumerate(lineage) if isinstance(base, ClassRef) and base.scope is scope), len(lineage))

    def of_super(self, made: Made, word: str, after: int) -> Any:
        """A method that ``super()`` finds."""
        for base in self.evaluator.lineage(made.cls)[after:]:
            scope = base.scope.child(word) if isinstance(base, ClassRef) else None
            if scope is not None and isinstance(base, ClassRef):
                return Function(base.module, scope, made)
            if isinstance(base, ExternalValue) and base.name.startswith(_MODULES):
                name = names.canonical(base.name)
                layer = made.attributes.get(f"({name.rpartition('.')[2]})", made)
                return Partly(Library(f"{name}.{word}"), (made,), {}) if word == "__init__" else ValueMethod(layer, word)
        return Missing(word)


def called(value: Any, plain: list[Any], named: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """What a call runs in the end, and all that it is given."""
    while isinstance(value, Partly):
        plain, named, value = [*value.plain, *plain], {**value.named, **named}, value.func
    return value, plain, named
