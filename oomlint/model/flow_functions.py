"""Functions of the project, run in place: their arguments, their activation, what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.events import Via
from oomlint.model.flow_libraries import FlowLibraries
from oomlint.model.flow_state import DEEPEST, FORWARD_BUDGET, Activation, Output, State, joined
from oomlint.model.tensor_state import NOWHERE, PLAIN, UNKNOWN, Graph, Mode, TensorState, ValueKind, join_all, pack, sources_of, tags_of
from oomlint.model.values import Bound, Const, Frame, Instance
from oomlint.scout.telling_names import MODES
from oomlint.syntax.nodes import block_of, constant_key, descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.tensor_state import Path
    from oomlint.model.values import ClassRef, FunctionRef
    from oomlint.syntax.scopes import Scope

_MOST_WAYS: Final = 4  # of derived classes to fill in a method
_OWN_CONSTRUCTION: Final = ("__init__", "__post_init__")  # code that decides what an object of a dataclass holds


def _without_local_home(held: TensorState, number: int) -> TensorState:
    """A value that a function gives back, where its own names for it end with the call."""
    local = bool(held.home) and isinstance(held.home[0], tuple) and held.home[0][0] == number
    return held.having(home=NOWHERE) if local else held


class FlowFunctions(FlowLibraries):
    """Runs functions of the project."""

    def call_function(self, function: FunctionRef, node: cst.Call, args: list[TensorState], this: Path, state: State) -> TensorState:
        """What a call of a function of the project gives; of an unknown result, what goes in may come out."""
        # A method that only says that there is one is what the derived classes make of it.
        ways = self.evaluator.filled_in(function, function.scope.name)[:_MOST_WAYS]
        found = join_all([self.run_function(one, node, args, bound_arguments(one.scope, node, args), this, state) for one in ways])
        if found.kind is ValueKind.UNKNOWN:
            live = any(held.carries for held in args)
            return found.having(
                graph=max(found.graph, Graph.MAYBE if live else Graph.NO), sources=found.sources | sources_of(args), tags=found.tags | tags_of(args)
            )
        return found

    def run_function(
        self, function: FunctionRef, node: cst.Call, args: list[TensorState], params: dict[str, TensorState], this: Path, state: State
    ) -> TensorState:
        """Run a function in place: what it stores and which mode it sets is seen as it is."""
        scope = function.scope
        if scope in self.stack or len(self.stack) > DEEPEST or self.spent > self.limit:
            self.record.handed |= sources_of(args)
            return UNKNOWN
        outer = self.act
        turn = (scope, node, outer.number, outer.loops)
        if (earlier := self._earlier(turn)) is not None:
            return earlier
        receiver = function.this
        enclosing = self._enclosing(function)
        key = (scope, node, id(outer.frame), id(receiver), id(enclosing))  # all of them live as long as the frame
        frame = self.known.frames.get(key)
        if frame is None:
            frame = self.known.frames[key] = Frame(function.module, scope, (Bound(tuple(node.args), outer.frame, node),), receiver, enclosing)
        self.numbers += 1
        via = Via(outer.module, node, this, tuple(zip(node.args, args, strict=True)), scope)
        act = Activation(self.numbers, frame, outer.loops, (*outer.via, via), this, tests=outer.tests, entered=outer.loops)
        self.record.made[self.numbers] = outer.loops
        act.params = dict(params)
        own = names.self_name(scope)
        if own is not None and own not in params:
            held = self.object_of(receiver) if receiver is not None else TensorState(ValueKind.OBJECT)
            act.params[own] = held.having(home=this)
        self.act = act
        self.stack.append(scope)
        before = state.mode
        try:
            if isinstance(scope.node, cst.Lambda):
                return self.value(scope.node.body, state)
            mode = self.gradients.decorated(scope, function.module)
            if mode is not None:
                state.mode = mode
            act.params.update(_defaults(scope, act.params))
            through = self.block(function.module.walk.body(scope), state.copy())
            after = joined(through, act.left)
            if after is not None:
                state.env.update({path: held for path, held in after.env.items() if path and not (isinstance(path[0], tuple) and path[0][0] == act.number)})
                state.evaluating, state.modules = after.evaluating, after.modules
                if mode is None and not scope.yields:
                    before = after.mode  # what a statement switches stays switched
            if scope.yields:
                each = act.yielded or UNKNOWN
                return TensorState(ValueKind.ITERABLE, each=each, tags=each.tags, loader=act.source, moved="yielded")
            found = act.returned if act.returned is not None else PLAIN
            if through is None or act.returned is None or isinstance(block_of(scope.node.body)[-1], cst.Return):
                found = found.throughout(lambda held: _without_local_home(held, act.number)) if found.holds else found
                found = _without_local_home(found, act.number)
            return self._noted(turn, found)
        finally:
            state.mode = before
            self.act = outer
            self.stack.pop()

    def _noted(self, turn: tuple[object, ...], found: TensorState) -> TensorState:
        """What a call gives, kept for the next turns of its loop where all of it was seen."""
        if self.spent <= self.limit:
            self.turns[*turn, self.recording] = found
        return found

    def _earlier(self, turn: tuple[object, ...]) -> TensorState | None:
        """What a call gave in an earlier turn of its loop, where many steps are spent: what it does is noted, and the rest of the function is to be seen."""
        if self.spent <= self.limit // 2:
            return None
        noted = self.turns.get((*turn, True))
        return noted if noted is not None or self.recording else self.turns.get((*turn, False))

    def output_of(self, method: FunctionRef, given: dict[str, TensorState], mode: Mode, call: cst.Call | None = None) -> Output:
        """What `forward` of a class returns in a mode; learnt once for each shape of arguments, apart from what is going on.

        What a call turns on or off, as in `model(x, features=True)`, or leaves to its default, is part of the shape.
        """
        shape = tuple(sorted((name, held.kind.value, int(held.carries), held.dims) for name, held in given.items()))
        cls = method.this.cls if method.this is not None else None
        switches = self._switches(method, call, given) if call is not None and not arguments.has_stars(call) else None
        bound = Bound(tuple(call.args), self.act.frame, call) if call is not None and switches is not None else None
        frame = Frame(method.module, method.scope, (bound,) if bound is not None else None, method.this)
        flags = self._flags(method, frame)
        key = (method.scope, cls, mode, shape, switches, frozenset(flags.items()))
        if key in self.known.outputs:
            return self.known.outputs[key]
        self.known.outputs.assume(key, Output())  # a module that calls itself
        if len(self.stack) > DEEPEST or method.scope in self.stack:
            return Output()
        inner = type(self)(self.evaluator, self.gradients, self.loader_of, self.known)
        inner.recording = False
        inner.act = Activation(0, frame, (), ())
        inner.act.decided.update(flags)
        own = names.self_name(method.scope)
        inner.act.params = {name: held.having(home=NOWHERE, tags=frozenset(), sources=frozenset()) for name, held in given.items()}
        inner.act.this = inner.act.path(own or "self")
        if own is not None and method.this is not None:
            inner.act.params[own] = self.object_of(method.this).having(home=inner.act.this)
        inner.stack = [*self.stack, method.scope]
        inner.limit = FORWARD_BUDGET
        inner.act.params.update(_defaults(method.scope, inner.act.params))
        mode = self.gradients.decorated(method.scope, method.module) or mode
        inner.block(method.module.walk.body(method.scope), State({}, mode))
        found = inner.act.returned
        if inner.asks:
            self.known.asking[method.scope] = frozenset(inner.asks)
        if method.scope.yields or inner.spent > inner.limit:
            found = None
        off = inner.modes == {Mode.OFF} or self._is_switched_off(method, frame)
        output = self.known.outputs[key] = Output(found, off and found is not None and found.carries is Graph.NO)
        return output

    def _flags(self, method: FunctionRef, frame: Frame) -> dict[object, frozenset[bool]]:
        """What the constructor has set that a method tests which may switch gradients off: ``if self.frozen: with torch.no_grad():``."""
        own, nodes = names.self_name(method.scope), list(method.scope.nodes(inner=False))
        if method.this is None or own is None or not any(isinstance(node, cst.Name) and node.value in MODES for node in nodes):
            return {}
        tests = [test for node in nodes for test in _tests(node)]
        asked = (part for test in tests for part in (test, *descend(test)) if is_attribute_of(part, own))
        told = ((part, frozenset(verdict for verdict, _, _ in self.evaluator.truth(part, frame))) for part in asked)
        return {part: verdicts for part, verdicts in told if len(verdicts) == 1}

    def _switches(self, method: FunctionRef, call: cst.Call, given: dict[str, TensorState]) -> frozenset[tuple[str, object]]:
        """What the arguments of a call are that are no tensors, by parameter: tests of the method come out by them."""
        found: set[tuple[str, object]] = set()
        for arg in call.args:
            name = arguments.parameter_of(method, call, arg)
            if name is not None and name in given and not given[name].tensorlike:
                values = frozenset(one.value if isinstance(one.value, Const) else type(one.value) for one in self.evaluator.values(arg.value, self.act.frame))
                found.add((name, values))
        return frozenset(found)

    def _is_switched_off(self, method: FunctionRef, frame: Frame) -> bool:
        """Whether all that a function does, but for what it returns then, stands in one block without gradients."""
        body = method.module.walk.body(method.scope)
        done = [node for node in body if not isinstance(node, cst.Return | cst.Expr)]
        block = done[0] if len(done) == 1 and isinstance(done[0], cst.With) else None
        return block is not None and any(self.gradients.context(item.item, frame) is Mode.OFF for item in block.items)

    def construct(self, cls: ClassRef, node: cst.Call, args: list[TensorState]) -> TensorState:
        """A new object of a class of the project, which holds what it is given: a dataclass or named tuple, or one that puts its arguments into attributes."""
        value = Instance(cls, (Bound(tuple(node.args), self.act.frame, node),), node, self.act.frame)
        found = self.object_of(value)
        own = self.evaluator.method(value, _OWN_CONSTRUCTION[0]) if found.kind is ValueKind.OBJECT else None
        if own is not None:
            given = {name: held for name, held in bound_arguments(own.scope, node, args).items() if held.tensorlike}
            return found.having(items=pack(_put(own.scope, given)).items) if given else found
        fields = self.evaluator.fields(cls) if found.kind is ValueKind.OBJECT else None
        if not fields or any(self.evaluator.method(value, name) for name in _OWN_CONSTRUCTION):
            return found
        return _holding(found, (name for name, _, _ in fields), node, args)

    def _enclosing(self, function: FunctionRef) -> Frame | None:
        """The frame of the function that a closure stands in, where that one is running."""
        parent = function.scope.parent
        here: Frame | None = self.act.frame
        while here is not None and parent is not None and parent.is_function:
            if here.scope is parent:
                return here
            here = here.outer
        return None


def _tests(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The test of an ``if``, the context managers of a ``with``."""
    return [node.test] if isinstance(node, cst.If) else [item.item for item in node.items] if isinstance(node, cst.With) else []


def record_of(made: cst.Call, node: cst.Call, args: list[TensorState]) -> TensorState:
    """An object of a type that ``namedtuple`` has made, which holds what it is given."""
    told = arguments.argument_for(made, "field_names", place=1)
    written = str(told.evaluated_value).replace(",", " ").split() if isinstance(told, cst.SimpleString) else ()
    listed = (constant_key(part.value) for part in told.elements) if isinstance(told, cst.List | cst.Tuple) else written
    return _holding(TensorState(ValueKind.OBJECT), (name for name in listed if isinstance(name, str)), node, args)


def _holding(made: TensorState, fields: Iterator[str], node: cst.Call, args: list[TensorState]) -> TensorState:
    """A new object with what its fields are given, in their order or by name."""
    if arguments.has_stars(node):
        return made
    given = ((arg.keyword.value if arg.keyword is not None else next(fields, ""), held) for arg, held in zip(node.args, args, strict=True))
    return made.having(items=pack((name, held.having(home=NOWHERE)) for name, held in given if name).items)


def _put(scope: Scope, given: dict[str, TensorState]) -> Iterator[tuple[object, TensorState]]:
    """The attributes that a constructor puts its arguments into as they are, each written once."""
    for effect in scope.effects.get(names.self_name(scope) or "", ()):
        held = given.get(effect.value.value) if isinstance(effect.value, cst.Name) else None
        plain = effect.kind == "assign" and len(effect.path) == 1 and not effect.index
        if held is not None and plain and isinstance(effect.value, cst.Name) and not scope.sets(effect.value.value):
            yield effect.path[0][1], held.having(home=NOWHERE)


def _defaults(scope: Scope, given: dict[str, TensorState]) -> dict[str, TensorState]:
    """What the parameters hold that a call leaves out, where their defaults are constants."""
    found: dict[str, TensorState] = {}
    for param in names.parameters(scope):
        default = param.default
        if default is None or param.name.value in given:
            continue
        if isinstance(default, cst.Integer | cst.Float | cst.SimpleString) or names.dotted(default) in {"None", "True", "False"}:
            found[param.name.value] = PLAIN
    return found


def bound_arguments(scope: Scope, node: cst.Call, args: list[TensorState]) -> dict[str, TensorState]:
    """Arguments by the names of the parameters."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return {}
    params: dict[str, TensorState] = {}
    own = scope.node.params
    free = [p.name.value for p in (*own.posonly_params, *own.params)]
    if names.is_method(scope):
        free = free[1:]
    rest: list[TensorState] = []
    named: list[tuple[object, TensorState]] = []
    for arg, held in zip(node.args, args, strict=True):
        if arg.star == "*":
            spread = [item for _, item in held.items] if held.kind is ValueKind.PACK and held.exact else []
            if not spread and held.kind in {ValueKind.OPAQUE, ValueKind.PACK}:
                spread = [held.any() if held.kind is ValueKind.PACK else held.having(home=NOWHERE)] * len(free)
            params.update(zip(free, spread, strict=False))
            free = free[len(spread) :]
        elif arg.star:
            continue
        elif arg.keyword is not None:
            params[arg.keyword.value] = held
            named.append((arg.keyword.value, held))
        elif free:
            params[free.pop(0)] = held
        else:
            rest.append(held)
    if isinstance(own.star_arg, cst.Param):
        params[own.star_arg.name.value] = pack(enumerate(rest))
    if isinstance(own.star_kwarg, cst.Param):
        known = set(names.parameter_names(scope))
        params[own.star_kwarg.name.value] = pack((key, held) for key, held in named if key not in known)
    return params
