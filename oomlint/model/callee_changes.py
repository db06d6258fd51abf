"""What the functions that a scope calls change of what it sees: an object that it hands them, one whose method it calls, a name that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.model import arguments, names
from oomlint.model.outside import Outside
from oomlint.model.questions import NO_ANSWER, UNKNOWN, calls_itself, parted
from oomlint.model.values import ABSENT, FREE, Alternative, Alternatives, Bound, ClassRef, External, Frame, FunctionRef, Instance, Partial
from oomlint.syntax.nodes import UNKNOWN_KEY, names_in, path_of
from oomlint.syntax.scopes import CHANGES, DEFINES, REBINDS, Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

    # By a name, the calls that are given it, each with the argument and what leads there from it (None for a method of it); and the ways to what is called.
    Handing = tuple[dict[str, list[tuple[cst.Call, cst.Arg | None, tuple[Accessor, ...]]]], set[tuple[str, tuple[Accessor, ...]]]]

_DEEPEST: Final = 6  # calls
_RUNS_FUNCTIONS: Final = (  # these run in this process what they are handed: sooner, later or never
    "builtins.filter", "builtins.map", "builtins.max", "builtins.min", "builtins.sorted", "functools.", "threading.",
)  # fmt: skip
_CONSTANTS: Final = frozenset({"None", "True", "False"})
_WHOLE: Final = object()  # stands for the name itself among what is changed
_NOTHING: Final[frozenset[object]] = frozenset()
_LAST: Final = object()  # for the elements of a list that are counted from its end
_ANEW: Final = DEFINES | REBINDS - {"augment"} | {"unknown"}  # what gives a name another object
SETS: Final = REBINDS | {"unknown", "delete"}
FILLS: Final = CHANGES - {"augment", "append", "extend"} | {"merge"}


class Change(Struct, frozen=True):
    """A call after which an object may be another one: ``name`` is how the function calls it, ``path`` leads to it from the caller's name.

    ``shared`` are names that both see: a global, or one of a function around. ``layers`` are arguments that ``partial`` gave before the call.
    """

    call: cst.Call
    function: FunctionRef
    name: str
    path: tuple[Accessor, ...] = ()
    shared: bool = False
    layers: tuple[Bound, ...] = ()
    may: bool = False  # whether the call is handed the function, too, and may call it with the object or not


class CalleeChanges(Outside):
    """Finds calls that change what a name stands for, and what they leave."""

    def changes(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> list[Change]:
        """Calls of a scope that change what is asked for. What is called there by just that way is taken for a method, which nobody sets."""
        if (root, accessors) in self._handing(frame.scope)[1]:
            return []
        return [one for one in self._changes(root, frame) if self._touches(one, accessors)]

    def left_by(self, change: Change, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a call leaves of what is asked for: what the function makes of it, else what was there before."""
        if change.may:
            return [Alternative(UNKNOWN)]
        call, where = change.call, self._called(change, frame)
        if calls_itself(where) and sum(one.function.scope is where.scope for one in self._changes(root, frame)) > 1:
            return [Alternative(UNKNOWN)]  # it goes in several directions from each round, not back along one
        rest = accessors[len(change.path) :]
        key = ("left", call, change.name, rest, frame)
        if where.depth > _DEEPEST or key in self.active:
            self.given_up += 1
            return NO_ANSWER
        self.active.add(key)
        try:
            return self.reaching(change.name, rest, where, None, start=lambda: self.resolve(root, accessors, frame, call))
        finally:
            self.active.discard(key)

    def _called(self, change: Change, frame: Frame) -> Frame:
        """The frame of the function that a call runs."""
        call, function = change.call, change.function
        above = self.super_init(call, frame) if function.scope.name == "__init__" else None
        if above is not None:
            return above
        functions = (self._function(alt.value) for alt in self.values(call.func, frame))
        function, layers = next((one for one in functions if one is not None and one[0].scope is function.scope), (function, change.layers))
        outer = frame if function.scope.parent is frame.scope and frame.scope.is_function else None
        return Frame(function.module, function.scope, (*layers, Bound(tuple(call.args), frame, call)), function.this, outer)

    def handed(self, root: str, path: tuple[Accessor, ...], frame: Frame) -> Iterator[tuple[Frame, str]]:
        """The functions that change an object which a scope hands them, in their frames, each with its name for it."""
        for change in self._changes(root, frame):
            if change.path == path and not change.shared and not change.may and change.function.this is None:
                yield self._called(change, frame), change.name

    def is_shared(self, root: str, module: Module) -> bool:
        """Whether a function of a module changes what a name of the module, or of a function around it, stands for."""
        return root in self._shared(module)

    def seen_by_caller(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives | None:
        """What a name that functions change stands for where a function is called that does not bind it; ``None`` where nobody knows the call."""
        bound = frame.bound[-1] if frame.bound else None
        if bound is None or bound.frame.module is not frame.module or not self.is_shared(root, frame.module):
            return None
        return self.resolve(root, accessors, bound.frame, bound.call) if _owner(bound.frame.scope, root) is _owner(frame.scope, root) else None

    def _self(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What an object has when its method is called, where somebody has set it since it was built."""
        owner = self._owner_of(frame) if accessors and accessors[0][0] == "attr" else None
        if owner is not None:
            root, path, where, at = owner
            wanted = (*path, *accessors)
            set_there = any(one.path and one.path == wanted[: len(one.path)] for one in where.scope.effects.get(root, ()))
            key = ("owner", accessors, where, at)
            if key not in self.active and (set_there or root == names.self_name(where.scope) or self.changes(root, wanted, where)):
                self.active.add(key)
                try:
                    found, this = self.resolve(root, wanted, where, at), frame.this
                    ways = self.where(this.call, where) if at is None and this is not None and this.call is not None else [FREE]
                    return [alt for alt in found if any(alt.under(picks) is not None for picks in ways)]
                finally:
                    self.active.discard(key)
        return super()._self(accessors, frame)

    def _owner_of(self, frame: Frame) -> tuple[str, tuple[Accessor, ...], Frame, cst.CSTNode | None] | None:
        """The name by which the caller of a method has its object, and where; of one that a library calls, the name that the object was given."""
        this, bound = frame.this, frame.bound[-1] if frame.bound else None
        if this is None or this.call is None or this.at is None or frame.scope.name == "__init__" or names.takes_class(frame.scope):
            return None
        if bound is None:
            found = this.at.module.walk.bound_to(this.call)
            return (*found[0], this.at, None) if found and all(key is not UNKNOWN_KEY for _, key in found[0][1]) else None
        of = bound.call.func.value if isinstance(bound.call.func, cst.Attribute) else None
        way = path_of(of) if of is not None else None
        if of is None or way is None or any(key is UNKNOWN_KEY for _, key in way[1]):
            return None
        return (*way, bound.frame, bound.call) if [alt.value for alt in self.values(of, bound.frame)] == [this] else None

    def set_by_functions(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What functions set a name to, or a part of it, which is that of a scope around them: whether before it is read, nobody knows."""
        found: Alternatives = []
        for scope in self._shared(frame.module).get(root, ()) if root in frame.scope.effects else ():
            function = FunctionRef(frame.module, scope, self.calls.plain_frame(frame.module, scope).this)
            # What stands under a key that only a call says, as in a registry, is asked for elsewhere.
            named = not accessors or not {accessors[0][1], _WHOLE}.isdisjoint(self._touched(function, root, shared=True))
            if named and _owner(scope, root) is frame.scope and self._is_touched(function, root, accessors, shared=True):
                found += parted(self.reaching(root, accessors, self.calls.plain_frame(frame.module, scope), None, start=lambda: [Alternative(ABSENT)]))[0]
        return found

    def aliases(self, root: str, scope: Scope) -> list[Effect]:
        """What a scope does to what goes by a name, by another name that it has given it: ``self.args = args``, then ``self.args.size = 4``."""
        known = self.aliased.get(scope)
        if known is None:
            known = self.aliased[scope] = _aliases(scope)
        return known.get(root, [])

    # -- which calls -------------------------------------------------------------------------------------------------------

    def _changes(self, root: str, frame: Frame) -> tuple[Change, ...]:
        """The calls of a scope by which functions of the project may change what a name stands for, in source order."""
        scope, module = frame.scope, frame.module
        given, _ = self._handing(scope)
        shared = self._shared(module).get(root)
        calls = [*given.get(root, ())]
        if shared:
            words = {word for one in shared for word in _called_as(one, module)}
            calls += [(call, None, ()) for call in scope.calls if names.last_name(call.func) in words]
        if not calls:
            return ()  # nearly always: to find out where a node stands costs more
        this = frame.this if names.is_method(scope) else None
        key = ("changes", scope, root, this.cls if this is not None else None)
        known = self.changed.get(key)
        if known is not None:
            return known
        if key in self.active:
            self.assumed += 1
            return ()
        plain = self.calls.plain_frame(module, scope)
        if this is not None:
            plain = Frame(module, scope, None, Instance(this.cls, None), plain.outer)
        found: dict[tuple[cst.Call, str], Change] = {}
        self.active.add(key)
        self.meanwhile.append({})
        assumed, given_up = self.assumed, self.given_up
        try:
            for call, arg, path in calls:
                for one in self._changed_by(call, arg, path, root, shared or set(), plain):
                    found.setdefault((call, one.name), one)
        finally:
            self.meanwhile.pop()
            self.active.discard(key)
        span = module.tree.span
        changes = tuple(sorted(found.values(), key=lambda one: span(one.call)[:2])) if len(found) > 1 else tuple(found.values())
        self.assumed = assumed  # what was asked on the way was where the functions are that are called, and is over
        if self.given_up == given_up:
            self.changed[key] = changes
        return changes

    def _handing(self, scope: Scope) -> Handing:
        known = self.given.get(scope)
        if known is None:
            known = self.given[scope] = _given(scope)
        return known

    def _changed_by(self, call: cst.Call, arg: cst.Arg | None, path: tuple[Accessor, ...], root: str, shared: set[Scope], frame: Frame) -> Iterator[Change]:
        """How a call may change an object that it is given as an argument, or whose method it is; or a name that the function shares."""
        if arg is None and not shared and (root in frame.module.root.effects and root not in frame.scope.effects):
            return  # a method of something of a module: of a library most often
        above = self.super_init(call, frame) if path == () and root == names.self_name(frame.scope) else None
        if above is not None:
            yield Change(call, FunctionRef(above.module, above.scope, above.this), names.self_name(above.scope) or "")
            return
        callee = self.values(call.func, frame)[:1]
        if arg is not None and any(isinstance(alt.value, External) and alt.value.name.startswith(_RUNS_FUNCTIONS) for alt in callee):
            yield from self._may_be_changed_by(call, arg, path, frame)
        for alt in callee if arg is None or path_of(arg.value) is not None else ():
            function, layers = self._function(alt.value) or (None, ())
            if function is None:
                continue
            if arg is not None:
                name = arguments.parameter_of(function, call, arg, filled=sum(len(arguments.positionals(layer)) for layer in layers))
            elif function.scope in shared:
                if _owner(function.scope, root) is _owner(frame.scope, root):
                    yield Change(call, function, root, shared=True, layers=layers)
                continue
            elif isinstance(alt.value, FunctionRef):
                name = names.self_name(function.scope) if function.this is not None or names.takes_class(function.scope) else None
            else:
                continue
            if name is not None:
                yield Change(call, function, name, path, layers=layers)

    def _may_be_changed_by(self, call: cst.Call, arg: cst.Arg, path: tuple[Accessor, ...], frame: Frame) -> Iterator[Change]:
        """How an object may be changed that a call is handed beside a function of the project: ``Thread(target=fill, args=(options,))``."""
        for other in call.args:
            if other is not arg and (isinstance(other.value, cst.Lambda) or _may_name_function(other.value, frame.scope)):
                function, _ = self._function(next((alt.value for alt in self.values(other.value, frame)), None)) or (None, ())
                if function is not None and function.scope.name != "__init__":
                    yield from (Change(call, function, name, path, may=True) for name in sorted(names.takes(function.scope)))

    def _function(self, value: object) -> tuple[FunctionRef, tuple[Bound, ...]] | None:
        """The function of the project that a call runs, of a class what makes its objects, and the arguments that ``partial`` has given it before."""
        layers: tuple[Bound, ...] = ()
        while isinstance(value, Partial):
            layers = (value.bound, *layers)
            value = value.func
        if isinstance(value, ClassRef | Instance):
            value = self.method(Instance(value, None), "__init__") if isinstance(value, ClassRef) else self.method(value, "__call__")
        return (value, layers) if isinstance(value, FunctionRef) and not value.scope.yields else None

    # -- what they change --------------------------------------------------------------------------------------------------

    def _touches(self, change: Change, accessors: tuple[Accessor, ...]) -> bool:
        depth = len(change.path)
        if accessors[:depth] != change.path or (depth == len(accessors) and not change.shared):
            return False
        return self._is_touched(change.function, change.name, accessors[depth:], shared=change.shared)

    def _is_touched(self, function: FunctionRef, name: str, accessors: tuple[Accessor, ...], *, shared: bool) -> bool:
        """Whether a function may set what is asked for."""
        keys = self._touched(function, name, shared=shared)
        key = accessors[0][1] if accessors else _WHOLE
        from_end = _LAST in keys and isinstance(key, int) and key < 0
        return _WHOLE in keys or key in keys or from_end or (bool(accessors) and UNKNOWN_KEY in keys)

    def _touched(self, function: FunctionRef, name: str, *, shared: bool = False) -> frozenset[object]:
        """The attributes and keys of an object that a function may set, or have set by those that it calls."""
        key = ("touched", function.scope, name, function.this.cls if function.this is not None else None)
        known = self.touched.get(key)
        if known is not None:
            return known
        if key in self.active:
            return _NOTHING  # whoever asks first looks into it
        self.active.add(key)
        assumed = self.assumed
        found: set[object] = set()
        seen: set[object] = set()
        ways = [(function, name, shared)]
        try:
            while ways:
                here, word, free = ways.pop()
                if (here.scope, word) in seen:
                    continue
                seen.add((here.scope, word))
                effects = [*here.scope.effects.get(word, ()), *self.aliases(word, here.scope)]
                # What is changed once the name is given something else may be another object.
                if not free and word != names.self_name(here.scope) and any(not one.path and one.kind in _ANEW and not _may_keep(one) for one in effects):
                    continue
                found.update(key for one in effects for key in keys_of(one, shared=free))
                plain = self.calls.plain_frame(here.module, here.scope)
                where = Frame(here.module, here.scope, None, here.this, plain.outer) if here.this is not None else plain
                for one in self._changes(word, where):
                    if not one.path:
                        ways.append((one.function, one.name, one.shared))
                    elif self._touched(one.function, one.name, shared=one.shared):
                        found.add(one.path[0][1])
        finally:
            self.active.discard(key)
        if self.assumed == assumed:
            self.touched[key] = frozenset(found)
        return frozenset(found)

    def _shared(self, module: Module) -> dict[str, set[Scope]]:
        """Names that functions of a module change, which are not their own; each with those functions, and with those that call them."""
        known = self.shared.get(module)
        if known is None:
            known = self.shared[module] = {}
            for scope in module.walk.scopes:
                for root, effects in scope.effects.items() if scope.is_function else ():
                    if is_free(root, scope) and any(key is not _LAST for one in effects for key in keys_of(one, shared=True)):
                        known.setdefault(root, set()).add(scope)
            fills = {word for one in module.walk.scopes if _fills_given(one) for word in _called_as(one, module)}
            for scope in module.walk.scopes if fills else ():
                handed = self._handing(scope)[0].items() if scope.is_function and any(names.last_name(call.func) in fills for call in scope.calls) else ()
                for root, calls in handed:
                    if is_free(root, scope, bound=True) and any(arg is not None and names.last_name(call.func) in fills for call, arg, _ in calls):
                        known.setdefault(root, set()).add(scope)
            functions = [one for one in module.walk.scopes if one.is_function] if known else []
            called = {one: {names.last_name(call.func) for call in one.calls} for one in functions}
            for root, changing in known.items():
                more = list(changing)
                while more:
                    words = _called_as(more.pop(), module)
                    above = [one for one in functions if not words.isdisjoint(called[one]) and one not in changing and is_free(root, one, bound=True)]
                    changing.update(above)
                    more += above
        return known


def keys_of(effect: Effect, *, shared: bool) -> list[object]:
    """What an effect sets of what a name stands for: a key of it; all of it, where the name is not the function's own."""
    if effect.kind in FILLS:
        return [effect.path[0][1] if effect.path else UNKNOWN_KEY]
    if effect.kind in {"append", "extend"} and not effect.path:
        return [_LAST]
    if effect.kind not in SETS:
        return []
    return [effect.path[0][1]] if effect.path else [_WHOLE] if shared else []


def _may_name_function(node: cst.BaseExpression, scope: Scope) -> bool:
    """Whether a name may be that of a function, as far as the nearest scope says that gives it something."""
    way, here = path_of(node), scope
    while way is not None and way[0] not in here.effects and here.parent is not None:
        here = here.parent
    return way is not None and any(one.kind in DEFINES or isinstance(one.value, cst.Lambda) for one in here.effects.get(way[0], ()))


def _called_as(scope: Scope, module: Module) -> set[str]:
    """The last words of the calls that run a function: its name; of a lambda, what that is given to."""
    if not isinstance(scope.node, cst.Lambda):
        return {scope.name}
    return {str(path[-1][1]) if path else root for root, path in module.walk.bound_to(scope.node)}


def _fills_given(scope: Scope) -> bool:
    """Whether a function sets a part of what a parameter stands for."""
    given = names.takes(scope) if scope.is_function else ()
    return any(keys_of(one, shared=False) for root in given if root != names.self_name(scope) for one in scope.effects.get(root, ()))


def _may_keep(effect: Effect) -> bool:
    """Whether a name may stand for what it did before: ``options = options or {}``."""
    return isinstance(effect.value, cst.BooleanOperation | cst.IfExp) and effect.root in names_in(effect.value)


def is_free(root: str, scope: Scope, *, bound: bool = False) -> bool:
    """Whether a name of a function is not its own; ``bound`` where it need not set anything of it."""
    if root in scope.outer or root in scope.enclosing:
        return True
    effects = scope.effects.get(root, ())
    return (bound or bool(effects)) and all(one.path or one.kind not in _ANEW | {"augment"} for one in effects) and not names.is_parameter(scope, root)


def _aliases(scope: Scope) -> dict[str, list[Effect]]:
    """Effects on what has two names, by the other one."""
    found: dict[str, list[Effect]] = {}
    for root, effects in scope.effects.items():
        for one in effects:
            others = {name for name in _same_as(one) if name != root and name not in _CONSTANTS}
            if not others or any(each.path == one.path and each.kind in _ANEW for each in effects if each is not one):
                continue
            depth = len(one.path)
            for other in others:
                for each in effects:
                    if each.path[:depth] == one.path and (len(each.path) > depth or each.kind in FILLS):
                        found.setdefault(other, []).append(replace(each, root=other, path=each.path[depth:]))
                for each in scope.effects.get(other, ()) if not depth and one.kind == "assign" else ():
                    if each.path or each.kind in FILLS:
                        found.setdefault(root, []).append(replace(each, root=root))
    return found


def _same_as(effect: Effect) -> Iterator[str]:
    """The names whose object a name is given: by an assignment, or by a loop over them."""
    if effect.kind == "assign" and not effect.index and isinstance(effect.value, cst.Name):
        yield effect.value.value
    elif effect.kind == "for" and not effect.index and isinstance(effect.value, cst.List | cst.Tuple):
        yield from (one.value.value for one in effect.value.elements if isinstance(one.value, cst.Name))


def _owner(scope: Scope, root: str) -> Scope:
    """The scope whose name it is: the function itself, one around it, or the module."""
    here = scope
    while here.parent is not None and (here.is_class or root in here.outer or is_free(root, here, bound=True)):
        here = here.parent
    return here


def _given(scope: Scope) -> Handing:
    """The calls of a scope that are given what goes by a name, or are methods of it, and the ways to what is called."""
    found: dict[str, list[tuple[cst.Call, cst.Arg | None, tuple[Accessor, ...]]]] = {}
    ways: set[tuple[str, tuple[Accessor, ...]]] = set()
    this = names.self_name(scope)
    for call in scope.calls:
        for arg in call.args:
            way = path_of(arg.value) if not arg.star else None
            if way is not None and all(key is not UNKNOWN_KEY for _, key in way[1]):
                found.setdefault(way[0], []).append((call, arg, way[1]))
            elif isinstance(arg.value, cst.List | cst.Tuple) and len(call.args) > 1:
                inner = (path_of(one.value) for one in arg.value.elements if isinstance(one.value, cst.Name | cst.Attribute))
                for each in (one for one in inner if one is not None):
                    found.setdefault(each[0], []).append((call, arg, each[1]))
        of = path_of(call.func)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__" and this is not None:
            of = this, (("attr", "__init__"),)  # of a base class
        if of is not None and of[1] and all(key is not UNKNOWN_KEY for _, key in of[1]):
            ways.add(of)
            if of[0] in scope.effects or names.is_parameter(scope, of[0]):
                found.setdefault(of[0], []).append((call, None, of[1][:-1]))
    return found, ways
