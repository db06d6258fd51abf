"""The flow of tensors through a function and what it calls: an abstract run, statement by statement, that notes what is stored where and in which mode.

A root function is run once for each way that leads to it. Calls of the project's own functions are run in place, so that a helper that returns `.item()`, a
meter that adds, or a callee that switches gradients off are seen as they are. A loop's body is run twice: once to learn what comes around, once to note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.events import Loop, Record, Via
from oomlint.model.flow_calls import FlowCalls
from oomlint.model.flow_state import BUDGET, DEEPEST, FORWARD_BUDGET, Activation, State, joined
from oomlint.model.flow_values import NAMED, batch, named_size
from oomlint.model.held import NOWHERE, PLAIN, UNKNOWN, Graph, Held, Kind, Mode, Path, meet, mixed
from oomlint.model.torch_tables import BATCHES_NAME
from oomlint.model.values import Bound, Frame, FunctionRef, Instance
from oomlint.scout import LOADER_NAME
from oomlint.syntax.walk import UNKNOWN_KEY, block_of, constant_key, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST_UNROLLED = 8  # elements of a container that a loop is run for one by one


class Flow(FlowCalls):
    """One abstract run of one root function."""

    def run(self, frame: Frame, entry: Mode, evaluating: bool | None, *, batch_of: str = "") -> Record:
        """Run the function of a frame and say what happened. ``batch_of`` names the parameter that takes a batch where the function is called once for each."""
        self.record = Record(entry=entry, frame=frame)
        self.spent, self.numbers, self.limit = 0, 0, BUDGET
        self.act = Activation(0, frame, (), ())
        this = names.self_name(frame.scope)
        state = State({}, entry, evaluating)
        if this is not None:
            self.act.this = self.act.path(this)
            held = Held(Kind.OBJECT, value=frame.this, home=self.act.this)
            if frame.this is not None:
                held = self.object_of(frame.this).having(home=self.act.this)
            self.act.params[this] = held
        if batch_of:
            self.every = True
            self.act.params[batch_of] = batch()
        self.stack = [frame.scope]
        self.block(frame.module.walk.body(frame.scope), state)
        self.record.returned = self.act.returned or PLAIN
        self.record.complete = self.spent <= self.limit
        return self.record

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[cst.CSTNode], state: State | None) -> State | None:
        """Run statements one after the other; ``None`` where control does not come out at the end."""
        for statement in statements:
            if state is None or self.spent > self.limit:
                return None if state is None else state
            self.spent += 1
            state = self.statement(statement, state)
        return state

    def statement(self, node: cst.CSTNode, state: State) -> State | None:
        """Run one statement."""
        if isinstance(node, cst.Expr):
            self.value(node.value, state)
        elif isinstance(node, cst.Assign):
            self._assignment(node, state)
        elif isinstance(node, cst.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value, state), state, node.value, node)
        elif isinstance(node, cst.AugAssign):
            self._augment(node, state)
        elif isinstance(node, cst.If):
            return self._if(node, state)
        elif isinstance(node, cst.For):
            return self._for(node, state)
        elif isinstance(node, cst.While):
            return self._while(node, state)
        elif isinstance(node, cst.With):
            return self._with(node, state)
        elif isinstance(node, cst.Try | cst.TryStar):
            return self._try(node, state)
        elif isinstance(node, cst.Match):
            self.value(node.subject, state)
            out: State | None = state.copy()
            for case in node.cases:
                out = joined(out, self.block(block_of(case.body), state.copy()))
            return out
        elif isinstance(node, cst.Return):
            held = self.value(node.value, state) if node.value is not None else PLAIN
            self.act.returned = held if self.act.returned is None else meet(self.act.returned, held)
            return None
        elif isinstance(node, cst.Raise | cst.Continue | cst.Break):
            return None
        elif isinstance(node, cst.Del):
            self._delete(node, state)
        elif isinstance(node, cst.Assert):
            self.value(node.test, state)
        return state

    def _delete(self, node: cst.Del, state: State) -> None:
        targets = [e.value for e in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
        for target in targets:
            if isinstance(target, cst.Subscript):
                base = self.value(target.value, state)
                self.was_reset(node, state, base.home, bound=True)
            elif isinstance(target, cst.Name):
                state.env.pop(self.act.path(target.value), None)

    # -- branches ------------------------------------------------------------------------------------------------------

    def _if(self, node: cst.If, state: State) -> State | None:
        self.value(node.test, state)
        verdicts = self.verdicts(node.test)
        act = self.act
        then: State | None = None
        other: State | None = None
        sure = len(verdicts) == 1
        if True in verdicts:
            guards, tests = act.guards, act.tests
            act.guards, act.tests = (*guards, (len(act.loops), node.test)), tests + (not sure)
            then = self.block(block_of(node.body), state.copy())
            act.guards, act.tests = guards, tests
        if False in verdicts:
            tests = act.tests
            act.tests = tests + (not sure)
            rest = node.orelse
            if rest is None:
                other = state
            elif isinstance(rest, cst.If):
                other = self._if(rest, state.copy())
            else:
                other = self.block(block_of(rest.body), state.copy())
            act.tests = tests
        return joined(then, other)

    def _try(self, node: cst.Try | cst.TryStar, state: State) -> State | None:
        start = state.copy()
        out = self.block(block_of(node.body), state)
        if node.orelse is not None and out is not None:
            out = self.block(block_of(node.orelse.body), out)
        for handler in node.handlers:
            out = joined(out, self.block(block_of(handler.body), start.copy()))
        if node.finalbody is not None:
            after = self.block(block_of(node.finalbody.body), out or start)
            return after if out is not None else None
        return out

    def _with(self, node: cst.With, state: State) -> State | None:
        before = state.mode
        changed = False
        for item in node.items:
            mode = self.gradients.context(item.item, self.act.frame)
            held = UNKNOWN
            if mode is not None:
                state.mode, changed = mode, True
            elif isinstance(item.item, cst.Call):
                held = self.value(item.item, state)
                if names.last_name(item.item.func) == "scale_loss" and item.item.args:
                    held = self.value(item.item.args[0].value, state)
            if item.asname is not None and isinstance(item.asname.name, cst.BaseExpression):
                self.assign(item.asname.name, held, state, None, node)
        out = self.block(block_of(node.body), state)
        del changed
        if out is not None:
            out.mode = before
        return out

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _for(self, node: cst.For, state: State) -> State | None:
        iterable = self.value(node.iter, state)
        each = self.element_of(iterable)
        name, inner = _iterated(node.iter)
        loader = (
            iterable.loader
            if iterable.loader not in {None, NAMED}
            else (self.loader_of(inner, self.act.module, self.act.scope, self.act.frame) if LOADER_NAME.search(name) else None)
        )
        named = iterable.loader is not None or (iterable.kind is not Kind.PLAIN and BATCHES_NAME.search(name) is not None)
        if named and iterable.kind in {Kind.UNKNOWN, Kind.OBJECT} and each.kind is Kind.UNKNOWN:
            each = batch()
        self._freezes(node, state)
        loop = Loop(node, self.act.module, self.act.scope, name, loader, named or loader is not None, state.mode, state.evaluating, len(self.act.via))

        def begin(here: State) -> None:
            self.assign(node.target, each, here, None, node)

        known = [item for _, item in iterable.items] if iterable.exact and 0 < len(iterable.items) <= _MOST_UNROLLED and not named else []
        return self._rounds(loop, node, state, begin, known)

    def _freezes(self, node: cst.For, state: State) -> None:
        """``for p in model.parameters(): p.requires_grad = False``: nothing of the model asks for gradients."""
        iterated = node.iter
        if not (isinstance(iterated, cst.Call) and isinstance(iterated.func, cst.Attribute) and iterated.func.attr.value in {"parameters", "named_parameters"}):
            return
        statements = block_of(node.body)
        if len(statements) != 1:
            return
        code = self.code(statements[0])
        if "requires_grad = False" in code or "requires_grad_(False)" in code:
            held = self.value(iterated.func.value, state)
            if held.home:
                state.env[held.home] = held.having(kind=Kind.MODULE, frozen=True, sure=True)

    def _while(self, node: cst.While, state: State) -> State | None:
        loop = Loop(node, self.act.module, self.act.scope, "while", None, False, state.mode, state.evaluating, len(self.act.via))  # noqa: FBT003

        def begin(here: State) -> None:
            self.value(node.test, here)

        return self._rounds(loop, node, state, begin)

    def _rounds(self, loop: Loop, node: cst.For | cst.While, state: State, begin: Callable[[State], None], known: Sequence[Held] = ()) -> State | None:
        """Run the body: once to learn what comes around, once with notes; for each element where all of them are known."""
        act = self.act
        outer, tests, guards = act.loops, act.tests, act.guards
        act.loops, act.tests = (*outer, loop), 0
        entered = state.copy()
        recording = self.recording
        if recording:
            # What comes around: run once without notes.
            self.recording = False
            begin(entered)
            around = self.block(block_of(node.body), entered)
            self.recording = True
            again = joined(state.copy(), around) or state.copy()
            again.evaluating = state.evaluating
            self.record.loops.append(loop)
            if known and isinstance(node, cst.For):
                out: State | None = again
                for item in known:
                    if out is not None:
                        self.assign(node.target, item, out, None, node)
                        out = self.block(block_of(node.body), out.copy()) or out
            else:
                begin(again)
                out = self.block(block_of(node.body), again)
        else:
            begin(entered)
            out = self.block(block_of(node.body), entered)
        act.loops, act.tests, act.guards = outer, tests, guards
        # The loop may end before its first round; who reads what it sets then fails, so what it set is what counts.
        after = joined(state, out) or state
        if out is not None:
            after.evaluating = out.evaluating
            after.mode = out.mode
        if node.orelse is not None:
            return self.block(block_of(node.orelse.body), after)
        return after

    # -- bindings ------------------------------------------------------------------------------------------------------

    def _assignment(self, node: cst.Assign, state: State) -> None:
        for target in node.targets:
            if self._adds_to_itself(node, target.target, state):
                return
        held = self.value(node.value, state)
        for target in node.targets:
            self.assign(target.target, held, state, node.value, node)

    def _adds_to_itself(self, node: cst.Assign, target: cst.BaseExpression, state: State) -> bool:
        """``acc = acc + e``, ``acc = a * acc + b * e``, ``x = cat((x, e))``: a running sum or a growing array."""
        code = self.code(target)
        value = node.value
        if not isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
            return False
        if isinstance(value, cst.BinaryOperation):
            operands = _summands(value)
            own = [part for part in operands if self._mentions(part, code)]
            others = [part for part in operands if not self._mentions(part, code)]
            if len(own) != 1 or not others or not isinstance(value.operator, cst.Add | cst.Subtract):
                return False
            if not all(_is_scaled(part, code, self.code) for part in own):
                return False
            before = self.value(target, state)
            parts = [self.value(part, state) for part in others]
            added = mixed(parts) if len(parts) > 1 else parts[0]
            kind = "concat" if before.kind is Kind.PACK else "augment"
            self._accumulate(node, target, kind, before, added, others[0] if len(others) == 1 else None, state)
            return True
        return False

    def _mentions(self, node: cst.CSTNode, code: str) -> bool:
        if code not in self.code(node):
            return False
        return any(isinstance(part, cst.Name | cst.Attribute | cst.Subscript) and self.code(part) == code for part in descend(node))

    def _augment(self, node: cst.AugAssign, state: State) -> None:
        before = self.value(node.target, state)
        added = self.value(node.value, state)
        if isinstance(node.operator, cst.AddAssign | cst.SubtractAssign):
            if added.kind is Kind.PACK and (before.kind in {Kind.PACK, Kind.UNKNOWN}):
                shown = node.value if isinstance(node.value, cst.List | cst.Tuple) else None
                self.stored(node, state, "append", self._home_of(node.target, before, state), added.any(), shown, before)
                path = self._home_of(node.target, before, state)
                if path:
                    state.env[path] = before.having(
                        kind=Kind.PACK, inside=meet(before.inside, added.any()), tags=before.tags | frozenset({id(node)}), exact=False, home=path
                    )
                return
            self._accumulate(node, node.target, "augment", before, added, node.value, state)
            return
        self.assign(node.target, mixed([before, added]), state, None, node)

    def _accumulate(
        self, node: cst.CSTNode, target: cst.BaseExpression, kind: str, before: Held, added: Held, expression: cst.BaseExpression | None, state: State
    ) -> None:
        path = self._home_of(target, before, state)
        this = before.value if before.kind is Kind.OBJECT and isinstance(before.value, Instance) else None
        if this is not None:
            method = self.evaluator.method(this, "__iadd__") or self.evaluator.method(this, "__add__")
            if method is not None and expression is not None:
                self.run_function(method, cst.Call(expression), [], {names.parameters(method.scope)[-1].name.value: added}, before.home, state)
            return
        self.stored(node, state, kind, path, added, expression, before)
        total = mixed([before, added]) if before.kind is not Kind.UNKNOWN else added.having(sure=False)
        if before.kind is Kind.PLAIN and added.tensorlike:
            total = added
        tags = before.all_tags | added.all_tags | frozenset({id(node)})
        self._bind(target, total.having(tags=tags, home=(), moved=""), state, path)

    def _home_of(self, target: cst.BaseExpression, before: Held, state: State) -> Path:
        if isinstance(target, cst.Name):
            path = self.act.path(target.value)
            if path in state.env or target.value in self.act.scope.effects:
                home = before.home
                return home if home and before.kind in {Kind.PACK, Kind.OBJECT} else path
            return before.home or path
        if isinstance(target, cst.Attribute):
            base = self.value(target.value, state)
            return (*base.home, target.attr.value) if base.home else ()
        if isinstance(target, cst.Subscript):
            base = self.value(target.value, state)
            key = _key_of(target)
            return (*base.home, key) if base.home else ()
        return ()

    def _bind(self, target: cst.BaseExpression, held: Held, state: State, path: Path) -> None:
        if not path:
            return
        state.env[path] = held if held.home else held.having(home=path)
        if isinstance(target, cst.Subscript):
            self._note_in_container(path, held, state)

    def _note_in_container(self, path: Path, held: Held, state: State) -> None:
        """What a container holds, where an element of it was set."""
        outer = state.env.get(path[:-1])
        if outer is not None and outer.kind is Kind.PACK:
            key = path[-1]
            state.env[path[:-1]] = (
                outer.with_item(key, held.having(home=())) if key != "*" else outer.having(inside=meet(outer.inside, held.having(home=())), exact=False)
            )

    def assign(self, target: cst.BaseExpression, held: Held, state: State, expression: cst.BaseExpression | None, statement: cst.CSTNode) -> None:
        """Bind a target."""
        if isinstance(target, cst.Tuple | cst.List):
            self._unpack(target, held, state, statement)
            return
        if isinstance(target, cst.StarredElement):
            self.assign(target.value, Held(Kind.PACK, inside=held), state, None, statement)
            return
        if isinstance(target, cst.Name):
            path = self.act.path(target.value)
            named = named_size(target.value, held)
            if expression is not None and self._cut_of(expression, target.value):
                self.was_reset(statement, state, path, bound=True)
            elif not isinstance(statement, cst.For | cst.CompFor):
                self.was_reset(statement, state, path)
            self._forget(path, state)
            state.env[path] = named if named.home else named.having(home=path)
            return
        if isinstance(target, cst.Attribute):
            base = self.value(target.value, state)
            if not base.home:
                return
            path = (*base.home, target.attr.value)
            named = named_size(target.attr.value, held)
            bound = expression is not None and self._cut_of(expression, target.attr.value)
            self.was_reset(statement, state, path, bound=bound)
            self._forget(path, state)
            state.env[path] = named if named.home else named.having(home=path)
            if base.kind is Kind.OBJECT and target.attr.value == "requires_grad":
                self.used(statement, state, "gradients")
            elif target.attr.value == "requires_grad" and expression is not None and names.dotted(expression) != "False":
                self.used(statement, state, "gradients")
            return
        if isinstance(target, cst.Subscript):
            base = self.value(target.value, state)
            if not base.home:
                return
            if base.kind in {Kind.TENSOR, Kind.ARRAY, Kind.OPAQUE}:
                # Writing into a tensor that was there before.
                state.env[base.home] = mixed([base, held]).having(kind=base.kind, home=base.home, tags=base.tags | held.tags)
                return
            key = _key_of(target)
            path = (*base.home, key)
            if key == "*" and not isinstance(target.slice[0].slice, cst.Slice):
                self.stored(statement, state, "item", base.home, held, expression, base)
            elif isinstance(target.slice[0].slice, cst.Slice):
                self.was_reset(statement, state, base.home, bound=True)
            else:
                self.was_reset(statement, state, path)
            named = named_size(key, held) if isinstance(key, str) and key != "*" else held
            self._forget(path, state)
            state.env[path] = named if named.home else named.having(home=path)
            tagged = named.having(tags=named.tags | frozenset({id(statement)})) if key == "*" else named
            self._note_in_container(path, tagged, state)

    @staticmethod
    def _forget(path: Path, state: State) -> None:
        """What was known of the parts of an object that is replaced."""
        size = len(path)
        for other in [other for other in state.env if len(other) > size and other[:size] == path]:
            del state.env[other]

    def _cut_of(self, expression: cst.BaseExpression, name: str) -> bool:
        """Whether an expression is a slice of the same name: ``x = x[-100:]``."""
        return isinstance(expression, cst.Subscript) and isinstance(expression.slice[0].slice, cst.Slice) and names.last_name(expression.value) == name

    def _unpack(self, target: cst.Tuple | cst.List, held: Held, state: State, statement: cst.CSTNode) -> None:
        count = len(target.elements)
        for number, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                self.assign(element.value, Held(Kind.PACK, inside=held.any() if held.kind is Kind.PACK else self.element_of(held)), state, None, statement)
                continue
            part: Held | None = None
            if held.kind is Kind.PACK:
                known = [item for key, item in held.items if isinstance(key, int)]
                part = known[number] if held.exact and len(known) == count else held.item(number) or (held.inside if held.inside is not None else None)
            elif held.kind is Kind.OPAQUE:
                part = held.having(home=())
            elif held.tensorlike:
                part = held.having(home=())
            elif held.kind is Kind.PLAIN:
                part = PLAIN
            elif held.kind is Kind.UNKNOWN:
                part = UNKNOWN.having(graph=held.graph, sources=held.sources, tags=held.tags)
            self.assign(element.value, part or UNKNOWN, state, None, statement)

    # -- functions of the project --------------------------------------------------------------------------------------

    def run_function(self, function: FunctionRef, node: cst.Call, args: list[Held], params: dict[str, Held], this: Path, state: State) -> Held:
        """Run a function of the project in place."""
        scope = function.scope
        if scope in self.stack or len(self.stack) > DEEPEST or self.spent > self.limit:
            return UNKNOWN
        outer = self.act
        receiver = function.this
        frame = Frame(function.module, scope, (Bound(tuple(node.args), outer.frame, node),), receiver, self._enclosing(function))
        self.numbers += 1
        via = Via(outer.module, node, this, tuple(zip(node.args, args, strict=True)))
        act = Activation(self.numbers, frame, outer.loops, (*outer.via, via), this, tests=outer.tests, guards=outer.guards)
        self.record.made[self.numbers] = outer.loops
        act.params = dict(params)
        own = names.self_name(scope)
        if own is not None:
            held = self.object_of(receiver) if receiver is not None else Held(Kind.OBJECT)
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
            self._defaults(scope, act)
            after = self.block(function.module.walk.body(scope), state.copy())
            if after is not None:
                state.env.update({path: held for path, held in after.env.items() if path and not (isinstance(path[0], tuple) and path[0][0] == act.number)})
                if after.evaluating is not state.evaluating:
                    state.evaluating = after.evaluating
            if scope.yields:
                each = act.yielded or UNKNOWN
                return Held(Kind.ITERABLE, each=each, tags=each.tags)
            found = act.returned if act.returned is not None else PLAIN
            if after is not None and act.returned is not None and not isinstance(block_of(scope.node.body)[-1], cst.Return):
                return found
            local = bool(found.home) and isinstance(found.home[0], tuple) and found.home[0][0] == act.number
            return found.having(home=NOWHERE) if local else found
        finally:
            state.mode = before
            self.act = outer
            self.stack.pop()

    def output_of(self, method: FunctionRef, given: dict[str, Held], mode: Mode) -> Held | None:
        """What `forward` of a class returns in a mode; learnt once for each shape of arguments, apart from what is going on."""
        shape = tuple(sorted((name, held.kind.value, int(held.carries)) for name, held in given.items()))
        cls = method.this.cls if method.this is not None else None
        key = (method.scope, cls, mode, shape)
        if key in self.known.outputs:
            return self.known.outputs[key]
        self.known.outputs[key] = None  # a module that calls itself
        if len(self.stack) > DEEPEST or method.scope in self.stack:
            return None
        inner = type(self)(self.evaluator, self.gradients, self.loader_of, self.known)
        inner.recording = False
        frame = Frame(method.module, method.scope, None, method.this)
        inner.act = Activation(0, frame, (), ())
        own = names.self_name(method.scope)
        inner.act.params = {name: held.having(home=NOWHERE, tags=frozenset(), sources=frozenset()) for name, held in given.items()}
        inner.act.this = inner.act.path(own or "self")
        if own is not None and method.this is not None:
            inner.act.params[own] = self.object_of(method.this).having(home=inner.act.this)
        inner.stack = [*self.stack, method.scope]
        inner.limit = FORWARD_BUDGET
        inner._defaults(method.scope, inner.act)
        mode = self.gradients.decorated(method.scope, method.module) or mode
        inner.block(method.module.walk.body(method.scope), State({}, mode))
        found = inner.act.returned
        if inner.asks:
            self.known.asking.add(method.scope)
        if method.scope.yields or inner.spent > inner.limit:
            found = None
        self.known.outputs[key] = found
        return found

    def _enclosing(self, function: FunctionRef) -> Frame | None:
        parent = function.scope.parent
        here: Frame | None = self.act.frame
        while here is not None and parent is not None and parent.is_function:
            if here.scope is parent:
                return here
            here = here.outer
        return None

    def _defaults(self, scope: object, act: Activation) -> None:
        """Parameters that the call leaves out hold their defaults."""
        del scope
        for param in names.parameters(act.scope):
            name = param.name.value
            if name not in act.params and param.default is not None:
                if isinstance(param.default, cst.Integer | cst.Float | cst.SimpleString) or names.dotted(param.default) in {"None", "True", "False"}:
                    act.params[name] = PLAIN


def _summands(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _is_scaled(node: cst.BaseExpression, code: str, render: object) -> bool:
    """Whether a summand is the accumulator itself, or a multiple of it."""
    if render(node) == code:  # type: ignore[operator]
        return True
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply | cst.Divide):
        return _is_scaled(node.left, code, render) or _is_scaled(node.right, code, render)
    return False


def _key_of(target: cst.Subscript) -> object:
    if len(target.slice) != 1 or not isinstance(target.slice[0].slice, cst.Index):
        return "*"
    key = constant_key(target.slice[0].slice.value)
    return key if key is not UNKNOWN_KEY and isinstance(key, str | int) else "*"


def _iterated(node: cst.BaseExpression) -> tuple[str, cst.BaseExpression]:
    """The name of what a loop goes through, without `enumerate`, `tqdm` and their like."""
    here = node
    while isinstance(here, cst.Call) and here.args and isinstance(here.args[0].value, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        if names.last_name(here.func) in {"range", "len", "items", "keys"}:
            break
        here = here.args[0].value
    if isinstance(here, cst.Subscript):
        key = constant_key(here.slice[0].slice.value) if isinstance(here.slice[0].slice, cst.Index) else None
        base = names.last_name(here.value)
        return (f"{base}_{key}" if isinstance(key, str) else base), here
    if isinstance(here, cst.Call):
        return names.last_name(here.func), here
    return names.last_name(here), here


__all__ = ["Flow", "Graph"]
