"""The flow of tensors through a function and what it calls: an abstract run, statement by statement, that notes what is stored where and in which mode.

A root function is run once for each way that leads to it. Calls of the project's own functions are run in place, so that a helper that returns `.item()`, a
meter that adds, or a callee that switches gradients off are seen as they are. A loop's body is run twice: once to learn what comes around, once to note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.events import Loop, Record
from oomlint.model.flow_definitions import batch
from oomlint.model.flow_loops import FlowLoops
from oomlint.model.flow_state import BUDGET, Activation, State, joined
from oomlint.model.freezing import frozen_by
from oomlint.model.loops import decide
from oomlint.model.tensor_state import PLAIN, UNKNOWN, Device, Graph, Storage, TensorState, ValueKind, either, join
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.tensor_state import LaterMode, Mode
    from oomlint.model.values import Frame

_MOST_UNROLLED: Final = 8  # elements of a container that a loop is run for one by one


class Flow(FlowLoops):
    """One abstract run of one root function."""

    def run(self, frame: Frame, entry: Mode | LaterMode, evaluating: bool | None, *, batch_of: str = "") -> Record:  # noqa: FBT001 - yes, no, nobody knows
        """Run the function of a frame and say what happened.

        ``batch_of`` names the parameter that takes a batch where a framework calls the function once for each: it is the body of a loop, on the device.
        """
        self.record = Record(frame=frame)
        self.spent, self.numbers, self.limit, self.turns = 0, 0, BUDGET, {}
        self.act = Activation(0, frame, (), ())
        this = names.self_name(frame.scope)
        state = State({}, entry, evaluating)
        if this is not None:
            self.act.this = self.act.path(this)
            held = TensorState(ValueKind.OBJECT, value=frame.this, home=self.act.this)
            if frame.this is not None:
                held = self.object_of(frame.this).having(home=self.act.this)
            self.act.params[this] = held
        if batch_of and isinstance(frame.scope.node, cst.FunctionDef):
            loop = Loop(frame.scope.node, frame.module, frame.scope, frame.scope.name, evaluating=evaluating, batches=True, proven=True)
            self.act.loops = (loop,)
            self.record.loops.append(loop)
            self.device = Device.ACCELERATOR
            self.act.params[batch_of] = batch().having(device=self.device, storage=Storage.OWN)
        self.stack = [frame.scope]
        self.block(frame.module.walk.body(frame.scope), state)
        self.record.returned = self.act.returned or PLAIN
        self.record.complete = self.spent <= self.limit
        decide(self.record)
        return self.record

    # -- statements ----------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[cst.CSTNode], state: State | None) -> State | None:
        """Run statements one after the other; ``None`` where control does not come out at the end."""
        for statement in statements:
            if state is None or self.spent > self.limit:
                return None if state is None else state
            self.spent += 1
            self.evaluator.project.steps.take()
            state = self.statement(statement, state)
        return state

    def statement(self, node: cst.CSTNode, state: State) -> State | None:
        """Run one statement."""
        if isinstance(node, cst.Expr):
            self.value(node.value, state)
        elif isinstance(node, cst.Assign):
            self.assignment(node, state)
        elif isinstance(node, cst.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value, state), state, node.value, node)
        elif isinstance(node, cst.AugAssign):
            self.augment(node, state)
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
            self.act.returned = held if self.act.returned is None else join(self.act.returned, held)
            if not self.act.via:
                self.record.returns[node] = join(self.record.returns.get(node), held)
            state.mode = self.act.outside or state.mode
            self.act.left = joined(self.act.left, state)
            return None
        elif isinstance(node, cst.Raise | cst.Continue | cst.Break):
            return None
        elif isinstance(node, cst.Del):
            self.delete(node, state)
        elif isinstance(node, cst.Assert):
            self.value(node.test, state)
        return state

    # -- branches ------------------------------------------------------------------------------------------------------

    def _if(self, node: cst.If, state: State) -> State | None:
        self.value(node.test, state)
        verdicts = self.verdicts(node.test, state)
        act = self.act
        then: State | None = None
        other: State | None = None
        sure = len(verdicts) == 1
        if True in verdicts:
            tests = act.tests
            act.tests = tests if sure else (*tests, node.body)
            then = self.block(block_of(node.body), self.assuming(node.test, state.copy(), came_out=True))
            act.tests = tests
        if False in verdicts:
            tests = act.tests
            act.tests = tests if sure else (*tests, node.orelse or node)
            rest = node.orelse
            other = self.assuming(node.test, state if rest is None else state.copy(), came_out=False)
            if rest is not None:
                other = self._if(rest, other) if isinstance(rest, cst.If) else self.block(block_of(rest.body), other)
            act.tests = tests
        return self._chosen(then, other)

    @staticmethod
    def _chosen(then: State | None, other: State | None) -> State | None:
        """What holds behind an ``if``: a name that one way gives a batch on the device, and the other as the loader gave it, has that on the device."""
        out = joined(then, other)
        if out is not None and then is not None and other is not None:
            for path, held in then.env.items():
                known, found = other.env.get(path), out.env[path]
                if known is not None and known is not held and len(path) == 1 and either(known, held).device is Device.ACCELERATOR:
                    out.env[path] = found.having(device=Device.ACCELERATOR)
        return out

    def _try(self, node: cst.Try | cst.TryStar, state: State) -> State | None:
        start, left = state.copy(), self._take_left()
        out = self.block(block_of(node.body), state)
        if node.orelse is not None and out is not None:
            out = self.block(block_of(node.orelse.body), out)
        for handler in node.handlers:
            out = joined(out, self.block(block_of(handler.body), start.copy()))
        returned = self._take_left()
        if node.finalbody is None:
            self.act.left = joined(left, returned)
            return out
        if returned is not None:
            returned = self.block(block_of(node.finalbody.body), returned.copy())
        after = self.block(block_of(node.finalbody.body), out or start)
        self.act.left = joined(joined(left, returned), self._take_left())
        return after if out is not None else None

    def _take_left(self) -> State | None:
        """The state in which the function is left so far, and nothing from now on."""
        left, self.act.left = self.act.left, None
        return left

    def _with(self, node: cst.With, state: State) -> State | None:
        before, around = state.mode, self.act.outside
        self.act.outside = around or before
        for item in node.items:
            mode = self.gradients.context(item.item, self.act.frame)
            held = UNKNOWN
            if mode is not None:
                state.mode = mode
            elif isinstance(item.item, cst.Call):
                held = self.value(item.item, state)
                if names.last_name(item.item.func) == "scale_loss" and item.item.args:
                    held = self.value(item.item.args[0].value, state)
            if item.asname is not None and isinstance(item.asname.name, cst.BaseExpression):
                self.assign(item.asname.name, held, state, None, node)
        out = self.block(block_of(node.body), state)
        self.act.outside = around
        if out is not None:
            out.mode = before
        return out

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _for(self, node: cst.For, state: State) -> State | None:
        self._freezes(node, state)
        loop, iterable, each = self.loop_over(node, state)

        def begin(here: State) -> None:
            self.assign(node.target, each, here, None, node)

        known = [item for _, item in iterable.items] if iterable.exact and 0 < len(iterable.items) <= _MOST_UNROLLED and not loop.named else []
        return self._rounds(loop, node, state, begin, known)

    def _freezes(self, node: cst.For, state: State) -> None:
        """``for p in model.parameters(): p.requires_grad = False``: nothing of the model asks for gradients."""
        known = self.known.freezing
        frozen = known[node] if node in known else known.setdefault(node, frozen_by(node))
        if frozen is not None:
            held = self.value(frozen, state)
            if held.home:
                state.env[held.home] = held.having(kind=ValueKind.MODULE, frozen=True, sure=True)

    def _while(self, node: cst.While, state: State) -> State | None:
        loop = Loop(node, self.act.module, self.act.scope, "while", evaluating=state.evaluating, around=self.act.loops, via=self.act.via)

        def begin(here: State) -> None:
            self.value(node.test, here)

        return self._rounds(loop, node, state, begin)

    def _rounds(self, loop: Loop, node: cst.For | cst.While, state: State, begin: Callable[[State], None], known: Sequence[TensorState] = ()) -> State | None:
        """Run the body: once to learn what comes around, once with notes; for each element where all of them are known."""
        act = self.act
        outer, tests = act.loops, act.tests
        act.loops = (*outer, loop)
        entered = state.copy()
        recording = self.recording
        if recording:
            # What comes around: run once without notes.
            self.recording = False
            begin(entered)
            around = self.block(block_of(node.body), entered)
            self.recording = True
            again = joined(state.copy(), around) or state.copy()
            again.evaluating, again.modules = state.evaluating, state.modules
            self.record.loops.append(loop)
            if known and isinstance(node, cst.For):
                out: State | None = again
                told, before = self.literals(node), act.rounds
                for number, item in enumerate(known):
                    if out is not None:
                        act.rounds = {**before, **told[number]} if len(told) == len(known) else before
                        self.assign(node.target, item, out, None, node)
                        out = self.block(block_of(node.body), out.copy()) or out
                act.rounds = before
            else:
                begin(again)
                out = self.block(block_of(node.body), again)
        else:
            begin(entered)
            out = self.block(block_of(node.body), entered)
        act.loops, act.tests = outer, tests
        # The loop may end before its first round; who reads what it sets then fails, or has the number that it began with, so what it set is what counts.
        after = joined(state, out) or state
        if out is not None and isinstance(node, cst.For):
            bound = ((path, held, old) for path, held in out.env.items() if (old := state.env.get(path)) is not None and old is not held)
            after.env.update(
                {path: held for path, held, old in bound if old.kind is ValueKind.PLAIN or (old.carries is not Graph.YES and held.carries is Graph.YES)}
            )
        if out is not None:
            after.evaluating, after.modules, after.mode = out.evaluating, out.modules, out.mode
        if node.orelse is not None:
            return self.block(block_of(node.orelse.body), after)
        return after
