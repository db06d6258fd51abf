"""The flow of tensors through a function and what it calls: an abstract run, statement by statement, that notes what is stored where and in which mode.

A root function is run once for each way that leads to it. Calls of the project's own functions are run in place, so that a helper that returns `.item()`, a
meter that adds, or a callee that switches gradients off are seen as they are. A loop's body is run twice: once to learn what comes around, once to note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, COLLECTIONS, GOES_OVER, STACKS
from oomlint.model import names
from oomlint.model.events import Loop, Record
from oomlint.model.flow_bindings import FlowBindings
from oomlint.model.flow_definitions import batch
from oomlint.model.flow_state import BUDGET, Activation, State, joined
from oomlint.model.freezing import frozen_by
from oomlint.model.held import PLAIN, SOME_LOADER, UNKNOWN, Device, Graph, Held, Kind, Storage, join
from oomlint.model.loops import FEW, decide
from oomlint.model.values import Const, Display, Unknown
from oomlint.scout.telling import LOADER_NAME
from oomlint.syntax.nodes import block_of, constant_key, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.held import Mode, Path
    from oomlint.model.values import Frame

_COMPREHENSION: Final = 4  # steps that a comprehension costs: a loop with one statement, run twice
_KEEPS_ALL: Final = STACKS | COLLECTIONS | AS_ARRAY  # calls that keep all of what they are given, or make one array of it
_ITERATORS: Final = GOES_OVER | frozenset("map filter chain from_iterable cycle starmap chunked takewhile dropwhile".split())  # give the elements later
_MOST_UNROLLED: Final = 8  # elements of a container that a loop is run for one by one


class Flow(FlowBindings):
    """One abstract run of one root function."""

    def run(self, frame: Frame, entry: Mode, evaluating: bool | None, *, batch_of: str = "") -> Record:  # noqa: FBT001 - yes, no, nobody knows
        """Run the function of a frame and say what happened.

        ``batch_of`` names the parameter that takes a batch where a framework calls the function once for each: it is the body of a loop, on the device.
        """
        self.record = Record(frame=frame)
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
        verdicts = self.verdicts(node.test)
        act = self.act
        then: State | None = None
        other: State | None = None
        sure = len(verdicts) == 1
        if True in verdicts:
            guards, tests = act.guards, act.tests
            act.guards, act.tests = (*guards, (len(act.loops), node.test)), tests if sure else (*tests, node.body)
            then = self.block(block_of(node.body), self.assuming(node.test, state.copy(), came_out=True))
            act.guards, act.tests = guards, tests
        if False in verdicts:
            tests = act.tests
            act.tests = tests if sure else (*tests, node.orelse or node)
            rest = node.orelse
            other = self.assuming(node.test, state if rest is None else state.copy(), came_out=False)
            if rest is not None:
                other = self._if(rest, other) if isinstance(rest, cst.If) else self.block(block_of(rest.body), other)
            act.tests = tests
        return joined(then, other)

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

    def _loop_over(self, node: cst.For | cst.CompFor, state: State) -> tuple[Loop, Held, Held]:
        """A loop, what it goes through, and what each round is given of that."""
        iterable = self.value(node.iter, state)
        each = self.element_of(iterable)
        name, inner = iterated(node.iter)
        loader = (
            iterable.loader
            if iterable.loader not in {None, SOME_LOADER}
            else (self.loader_of(inner, self.act.module, self.act.scope, self.act.frame) if LOADER_NAME.search(name) else None)
        )
        named = iterable.loader is not None or (iterable.kind is not Kind.PLAIN and LOADER_NAME.search(name) is not None)
        if named and iterable.kind in {Kind.UNKNOWN, Kind.OBJECT} and each.kind is Kind.UNKNOWN:
            each = batch()
        elif each.kind is Kind.UNKNOWN and self.holds_modules(inner):
            each = Held(Kind.MODULE)
        loop = Loop(node, self.act.module, self.act.scope, name, loader, named or loader is not None, state.evaluating, self.act.loops, self.act.via)
        loop.short = self._is_short(node.iter, iterable, state)
        loop.generated = iterable.moved == "yielded"
        loop.counts = iterable.kind is Kind.ITERABLE and each.kind is Kind.PLAIN
        return loop, iterable, each

    def _for(self, node: cst.For, state: State) -> State | None:
        self._freezes(node, state)
        loop, iterable, each = self._loop_over(node, state)

        def begin(here: State) -> None:
            self.assign(node.target, each, here, None, node)

        known = [item for _, item in iterable.items] if iterable.exact and 0 < len(iterable.items) <= _MOST_UNROLLED and not loop.named else []
        return self._rounds(loop, node, state, begin, known)

    def _literals(self, node: cst.For) -> list[dict[str, cst.BaseExpression]]:
        """What the names of a loop's target stand for, round by round, where it goes over a display of literals."""
        found = self.evaluator.values(node.iter, self.act.frame)
        display = found[0].value if len(found) == 1 else None
        if not isinstance(display, Display) or not isinstance(display.node, cst.List | cst.Tuple):
            return []
        return [_named_literals(node.target, element.value) for element in display.node.elements]

    def _is_short(self, node: cst.BaseExpression, iterable: Held, state: State) -> bool:
        """Whether a loop is known to go round a few times at most: over a short display, or a range of a known small number."""
        if iterable.exact and iterable.kind in {Kind.PACK, Kind.ITERABLE}:
            return len(iterable.items) <= FEW
        while isinstance(node, cst.Call) and node.args:
            if names.last_name(node.func) in {"range", "trange"}:
                ends = [self._number(arg.value) for arg in node.args[:2] if arg.keyword is None]
                return all(end is not None for end in ends) and ends[-1] - (ends[0] if len(ends) > 1 else 0) <= FEW  # type: ignore[operator] # no None is left
            node = node.args[0].value
        if isinstance(node, cst.List | cst.Tuple):
            return len(node.elements) <= FEW
        if not isinstance(node, cst.Name):
            return False
        held = state.env.get(self.act.path(node.value))
        if held is not None:
            return held.kind is Kind.PACK and held.exact and len(held.items) <= FEW
        # A default tells, too, where nobody knows of a caller.
        known = [alt.value for alt in self.evaluator.values(node, self.act.frame) if not isinstance(alt.value, Unknown)]
        displays = [value.node if isinstance(value, Display) else None for value in known]
        return bool(displays) and all(isinstance(one, cst.List | cst.Tuple) and 0 < len(one.elements) <= FEW for one in displays)

    def _number(self, node: cst.BaseExpression) -> int | None:
        """The greatest whole number that an expression can be, where all that it can be is known."""
        found = [alt.value.value if isinstance(alt.value, Const) else None for alt in self.evaluator.values(node, self.act.frame)]
        known = [number for number in found if isinstance(number, int)]
        return max(known) if known and len(known) == len(found) else None

    def _freezes(self, node: cst.For, state: State) -> None:
        """``for p in model.parameters(): p.requires_grad = False``: nothing of the model asks for gradients."""
        frozen = frozen_by(node)
        if frozen is not None:
            held = self.value(frozen, state)
            if held.home:
                state.env[held.home] = held.having(kind=Kind.MODULE, frozen=True, sure=True)

    def comprehension(self, node: cst.BaseSimpleComp | cst.DictComp, state: State) -> Held:
        """What a comprehension or a generator gives."""
        each = self._each_round(node, state)
        if isinstance(node, cst.GeneratorExp):
            return Held(Kind.ITERABLE, each=each, inside=each)
        # Who goes backward through it goes through what was kept here.
        return Held(Kind.PACK, inside=each, sure=True, moved="" if isinstance(node, cst.DictComp) else "list", tags=frozenset({id(node)}))

    def _each_round(self, node: cst.BaseSimpleComp | cst.DictComp, state: State) -> Held:
        """What a comprehension makes in each round of its loops, and keeps until all of them are over.

        A generator that nobody goes through at once runs later, in another mode it may be, and is no loop here.
        """
        self.spent += _COMPREHENSION
        runs = not isinstance(node, cst.GeneratorExp) or self._runs_at_once(node)
        inner = state.copy()
        outer = self.act.loops
        here: cst.CompFor | None = node.for_in
        while here is not None:
            loop, _, each = self._loop_over(here, inner)
            self.assign(here.target, each, inner, None, here)
            if runs:
                self.act.loops = (*self.act.loops, loop)
            if runs and self.recording:
                self.record.loops.append(loop)
            for condition in here.ifs:
                self.value(condition.test, inner)
                loop.short = loop.short or _lets_few(condition.test)
            here = here.inner_for_in
        element = node.value if isinstance(node, cst.DictComp) else node.elt
        found = self.value(element, inner)
        path = self._bound_to(node, state) if self.recording and not isinstance(node, cst.GeneratorExp) else ()
        self.stored(node, inner, "append", path, found, element, Held(Kind.PACK, sure=True, moved="list"))
        self.act.loops = outer
        return found

    def _runs_at_once(self, node: cst.GeneratorExp) -> bool:
        """Whether what a generator is given to goes through all of it now: not where that is another iterator which somebody keeps."""
        parents = self.act.module.walk.parents
        inner: cst.CSTNode = node
        while isinstance(above := parents.get(inner), cst.Arg) and isinstance(call := parents.get(above), cst.Call):
            if above.star or names.last_name(call.func) not in _ITERATORS:
                return bool(above.star) or names.last_name(call.func) != "next"
            inner = call
        return isinstance(above, cst.For)

    def _bound_to(self, node: cst.BaseComp, state: State) -> Path:
        """The name or attribute that a comprehension is bound to, or what a call makes of all of it: ``rows = torch.cat([...])``.

        Empty where there is none, and where it is made of what the name stood for.
        """
        parents = self.act.module.walk.parents
        here: cst.CSTNode | None = parents.get(node)
        while isinstance(here, cst.Arg) or (isinstance(here, cst.Call) and names.last_name(here.func) in _KEEPS_ALL):
            here = parents.get(here)
        target = here.targets[0].target if isinstance(here, cst.Assign) and len(here.targets) == 1 else here.target if isinstance(here, cst.AnnAssign) else None
        if not isinstance(target, cst.Name | cst.Attribute):
            return ()
        code = self.code(target)
        if any(isinstance(part, cst.Name | cst.Attribute) and self.code(part) == code for part in descend(node)):
            return ()
        home = self.value(target.value, state).home if isinstance(target, cst.Attribute) else ()
        return self.act.path(target.value) if isinstance(target, cst.Name) else (*home, target.attr.value) if home else ()

    def _while(self, node: cst.While, state: State) -> State | None:
        loop = Loop(node, self.act.module, self.act.scope, "while", evaluating=state.evaluating, around=self.act.loops, via=self.act.via)

        def begin(here: State) -> None:
            self.value(node.test, here)

        return self._rounds(loop, node, state, begin)

    def _rounds(self, loop: Loop, node: cst.For | cst.While, state: State, begin: Callable[[State], None], known: Sequence[Held] = ()) -> State | None:
        """Run the body: once to learn what comes around, once with notes; for each element where all of them are known."""
        act = self.act
        outer, tests, guards = act.loops, act.tests, act.guards
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
                told, before = self._literals(node), act.rounds
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
        act.loops, act.tests, act.guards = outer, tests, guards
        # The loop may end before its first round; who reads what it sets then fails, or has the number that it began with, so what it set is what counts.
        after = joined(state, out) or state
        if out is not None and isinstance(node, cst.For):
            bound = ((path, held, state.env[path]) for path, held in out.env.items() if path in state.env)
            after.env.update({path: held for path, held, old in bound if old.kind is Kind.PLAIN or (old.carries is Graph.NO and held.carries is Graph.YES)})
        if out is not None:
            after.evaluating, after.modules, after.mode = out.evaluating, out.modules, out.mode
        if node.orelse is not None:
            return self.block(block_of(node.orelse.body), after)
        return after


def _lets_few(test: cst.BaseExpression) -> bool:
    """Whether a condition of a comprehension lets the first few rounds through: ``if number < 4``."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    limit = constant_key(test.comparisons[0].comparator)
    return isinstance(test.comparisons[0].operator, cst.LessThan | cst.LessThanEqual) and isinstance(limit, int) and limit <= FEW


def _named_literals(target: cst.BaseExpression, value: cst.BaseExpression) -> dict[str, cst.BaseExpression]:
    """Names of a target that stand for literals."""
    if isinstance(target, cst.Name):
        return {target.value: value} if isinstance(value, cst.SimpleString | cst.Integer) else {}
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple | cst.List) and len(target.elements) == len(value.elements):
        pairs = zip(target.elements, value.elements, strict=True)
        return {name: literal for one, other in pairs for name, literal in _named_literals(one.value, other.value).items()}
    return {}


def iterated(node: cst.BaseExpression) -> tuple[str, cst.BaseExpression]:
    """The name and the expression of what a loop goes through, without `enumerate`, `tqdm` and their like."""
    here = node
    while isinstance(here, cst.Call) and here.args and isinstance(here.args[0].value, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        if names.last_name(here.func) in {"range", "trange", "arange", "len", "items", "keys"}:
            break
        here = here.args[0].value
    if isinstance(here, cst.Subscript):
        key = constant_key(here.slice[0].slice.value) if isinstance(here.slice[0].slice, cst.Index) else None
        base = names.last_name(here.value)
        return (f"{base}_{key}" if isinstance(key, str) else base), here
    if isinstance(here, cst.Call):
        return names.last_name(here.func), here
    return names.last_name(here), here
