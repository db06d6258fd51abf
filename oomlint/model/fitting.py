"""Which of several classes a call can be of: one whose constructor cannot take what the call gives raises an error, and is none that a run has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.model import arguments, names
from oomlint.model.classes import Classes
from oomlint.model.displays import is_grown
from oomlint.model.values import FREE, Bound, ClassRef, Display, External, Frame, FunctionRef, Instance
from oomlint.syntax.nodes import constant_key

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.model.values import Alternatives, Picks
    from oomlint.syntax.scopes import Scope

# Library classes that leave the constructor to the project's, and call none of its methods.
PLAIN_BASES: Final = frozenset(
    {"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol", "torch.utils.data.Dataset", "torch.utils.data.IterableDataset"}
)
_DEEPEST: Final = 6  # constructors that hand their keywords on


class _Words(Struct, frozen=True):
    """What a call is known to give: how many arguments by position, which by keyword, and whether that is all."""

    place: int
    words: frozenset[str]
    whole: bool


class Fitting(Classes):
    """Lays what a call gives beside what constructors take."""

    def callees(self, call: cst.Call, frame: Frame) -> Alternatives:
        """What a call may call; of several, no class that cannot be made with its arguments."""
        found = self.values(call.func, frame)
        if len(found) < 2 or not any(isinstance(alt.value, ClassRef) for alt in found):  # noqa: PLR2004 - of several
            return found
        bound = Bound(tuple(call.args), frame, call)
        return [alt for alt in found if not isinstance(alt.value, ClassRef) or self._takes(alt.value, self._given(bound, alt.picks))]

    def fits(self, call: cst.Call, value: ClassRef | FunctionRef, frame: Frame) -> bool:
        """Whether a function or a class of the project can take what a call gives; yes where nobody knows."""
        given = self._given(Bound(tuple(call.args), frame, call), FREE)
        if isinstance(value, ClassRef):
            return self._takes(value, given)
        node = value.scope.node
        if not isinstance(node, cst.FunctionDef) or node.decorators or names.is_method(value.scope):
            return True
        return self._fits(Frame(value.module, value.scope), given, 0)

    def _given(self, bound: Bound, picks: Picks) -> _Words:
        place, words, whole = 0, set[str](), True
        for arg in bound.args:
            if arg.star == "**":
                known, every = self._keys(arg.value, bound.frame, picks)
                words |= known
                whole = whole and every
            elif arg.star:
                whole = False
            elif arg.keyword is not None:
                words.add(arg.keyword.value)
            else:
                place += 1
        return _Words(place, frozenset(words), whole)

    def _keys(self, node: cst.BaseExpression, frame: Frame, picks: Picks) -> tuple[frozenset[str], bool]:
        """Keywords that ``**node`` gives for certain, and whether there are no others."""
        rest = _rest_of(frame.scope)
        if isinstance(node, cst.Name) and node.value == rest:
            if frame.bound is None or handed_on(frame.module, frame.scope, rest) is None:
                return frozenset(), False
            given = [self._given(layer, picks) for layer in frame.bound]
            own = set(names.parameter_names(frame.scope))
            return frozenset(word for layer in given for word in layer.words) - own, all(layer.whole for layer in given)
        values = [alt.value for alt in self.values(node, frame) if alt.under(picks) is not None]
        known = [_keys_of(value) if isinstance(value, Display) and not is_grown(value, sets=False) else None for value in values]
        told = [keys for keys in known if keys is not None]
        if not told or len(told) < len(known):
            return frozenset(), False
        return frozenset.intersection(*told), len(set(told)) == 1 and not any(isinstance(value, Display) and is_grown(value) for value in values)

    def _takes(self, cls: ClassRef, given: _Words) -> bool:
        """Whether an object of the class can be made with this; yes where nobody knows."""
        init = self._constructor(cls)
        return init is None or self._fits(init, given, 0)

    def _constructor(self, cls: ClassRef) -> Frame | None:
        """The ``__init__`` of the project that a call of the class runs; ``None`` where something else may come first."""
        node, this = cls.scope.node, Instance(cls, None)
        if not isinstance(node, cst.ClassDef) or node.decorators or node.keywords:
            return None
        for base in self.lineage(cls):
            if isinstance(base, External):
                if base.name not in PLAIN_BASES:
                    return None
            elif base.scope.child("__new__") is not None:
                return None
            elif (scope := base.scope.child("__init__")) is not None:
                return Frame(base.module, scope, None, this) if isinstance(scope.node, cst.FunctionDef) and not scope.node.decorators else None
        return None

    def _fits(self, init: Frame, given: _Words, depth: int) -> bool:
        node = init.scope.node
        if not isinstance(node, cst.FunctionDef) or depth > _DEEPEST:
            return True
        params = node.params
        ordered = [*params.posonly_params, *params.params][names.is_method(init.scope) :]
        if given.place > len(ordered) and not isinstance(params.star_arg, cst.Param):
            return False
        filled = {param.name.value for param in ordered[: given.place]}
        free = [param for param in (*ordered[given.place :], *params.kwonly_params) if param not in params.posonly_params]
        if given.words & filled or (given.whole and any(param.default is None and param.name.value not in given.words for param in free)):
            return False
        over = given.words - {param.name.value for param in free}
        if not over:
            return True
        rest = _rest_of(init.scope)
        return rest is not None and self._hands_on(init, rest, over, depth)

    def _hands_on(self, init: Frame, rest: str, over: frozenset[str], depth: int) -> bool:
        """Whether a constructor can take keywords for which it has only ``**rest``: where it only hands them to that of a base class, as that one can."""
        calls = handed_on(init.module, init.scope, rest)
        if calls is None or len(calls) != 1:
            return True
        base = self.super_init(calls[0], init)
        if base is None or base.bound is None or not self._are_known(init, base):
            return True
        args = base.bound[-1].args
        words = {arg.keyword.value for arg in args if arg.keyword is not None}
        if words & over:
            return False
        certain = len(arguments.positionals(base.bound[-1]))
        return self._fits(base, _Words(certain, frozenset(words | over), whole=False), depth + 1)

    def _are_known(self, init: Frame, base: Frame) -> bool:
        """Whether no constructor of a library comes between two of the project."""
        for one in self.lineage(init.this.cls) if init.this is not None else ():
            if isinstance(one, ClassRef) and one.scope is base.scope.parent:
                return True
            if isinstance(one, External) and one.name not in PLAIN_BASES:
                return False
        return False


def _rest_of(scope: Scope) -> str | None:
    """The name of ``**kwargs``."""
    rest = scope.node.params.star_kwarg if isinstance(scope.node, cst.FunctionDef | cst.Lambda) else None
    return rest.name.value if rest is not None else None


def handed_on(module: Module, scope: Scope, name: str) -> list[cst.Call] | None:
    """The calls that a function gives all of ``**name``; ``None`` where it does anything else with it, and may take out of it or add to it."""
    calls: list[cst.Call] = []
    for node in scope.nodes():
        if isinstance(node, cst.Name) and node.value == name:
            arg = module.walk.parents.get(node)
            call = module.walk.parents.get(arg) if isinstance(arg, cst.Arg) and arg.value is node and arg.star == "**" else None
            if isinstance(arg, cst.Arg) and arg.keyword is node:
                continue
            if not isinstance(call, cst.Call):
                return None
            calls.append(call)
    return calls


def _keys_of(value: Display) -> frozenset[str] | None:
    """The keys of a dictionary that is written in full."""
    node = value.node
    if isinstance(node, cst.Call):
        return frozenset(arguments.by_name(node)) if len(arguments.by_name(node)) == len(node.args) else None
    if not isinstance(node, cst.Dict):
        return None
    keys = [constant_key(one.key) if isinstance(one, cst.DictElement) else None for one in node.elements]
    return frozenset(key for key in keys if isinstance(key, str)) if all(isinstance(key, str) for key in keys) else None
