"""Loops of a run: what they go through, what each round is given, and comprehensions, which are loops, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, COLLECTIONS, ITERATORS, RANGES, STACKS
from oomlint.model import names
from oomlint.model.events import Loop
from oomlint.model.flow_bindings import FlowBindings
from oomlint.model.flow_definitions import batch
from oomlint.model.loops import FEW
from oomlint.model.tensor_state import SOME_LOADER, TensorState, ValueKind
from oomlint.model.values import Display, External, SourceExpression, Unknown, greatest
from oomlint.scout.telling_names import LOADER_NAME
from oomlint.syntax.nodes import constant_key, descend

if TYPE_CHECKING:
    from oomlint.model.flow_state import State
    from oomlint.model.tensor_state import Path

_COMPREHENSION: Final = 4  # steps that a comprehension costs: a loop with one statement, run twice
_KEEPS_ALL: Final = STACKS | COLLECTIONS | AS_ARRAY  # calls that keep all of what they are given, or make one array of it
_METHODS: Final = frozenset({"join", "extend", "update", "writelines"})  # of strings, containers and files, which go through what they are given


class FlowLoops(FlowBindings):
    """Opens loops."""

    def loop_over(self, node: cst.For | cst.CompFor, state: State) -> tuple[Loop, TensorState, TensorState]:
        """A loop, what it goes through, and what each round is given of that."""
        iterable = self.value(node.iter, state)
        each = self.element_of(iterable)
        name, inner = iterated(node.iter)
        loader = (
            iterable.loader
            if iterable.loader not in {None, SOME_LOADER}
            else (self.loader_of(inner, self.act.module, self.act.scope, self.act.frame) if LOADER_NAME.search(name) else None)
        )
        named = iterable.loader is not None or (iterable.kind is not ValueKind.PLAIN and LOADER_NAME.search(name) is not None)
        if named and iterable.kind in {ValueKind.UNKNOWN, ValueKind.OBJECT} and each.kind is ValueKind.UNKNOWN:
            each = batch()
        elif each.kind is ValueKind.UNKNOWN and self.holds_modules(inner):
            each = TensorState(ValueKind.MODULE)
        loop = Loop(node, self.act.module, self.act.scope, name, loader, named or loader is not None, state.evaluating, self.act.loops, self.act.via)
        # Parts of what one pass gives: a round for each is no round of data.
        loop.short = self._is_short(node.iter, iterable, state) or (iterable.tensorlike and self.passed(iterable))
        loop.generated = iterable.moved == "yielded"
        loop.counts = iterable.kind is ValueKind.ITERABLE and each.kind is ValueKind.PLAIN
        loop.of_parts = loop.counts and self._ends_with_length(inner)
        return loop, iterable, each

    def literals(self, node: cst.For) -> list[dict[str, cst.BaseExpression]]:
        """What the names of a loop's target stand for, round by round, where it goes over a display of literals."""
        found = self.evaluator.values(node.iter, self.act.frame)
        display = found[0].value if len(found) == 1 else None
        if not isinstance(display, Display) or not isinstance(display.node, cst.List | cst.Tuple):
            return []
        return [_named_literals(node.target, element.value) for element in display.node.elements]

    def _is_short(self, node: cst.BaseExpression, iterable: TensorState, state: State) -> bool:
        """Whether a loop is known to go round a few times at most: over a short display, or a range of a known small number."""
        if iterable.exact and iterable.kind in {ValueKind.PACK, ValueKind.ITERABLE}:
            return len(iterable.items) <= FEW
        while isinstance(node, cst.Call) and node.args:
            if names.last_name(node.func) in RANGES:
                ends = [self._number(arg.value) for arg in node.args[:2] if arg.keyword is None]
                return all(end is not None for end in ends) and ends[-1] - (ends[0] if len(ends) > 1 else 0) <= FEW  # type: ignore[operator] # no None is left
            node = node.args[0].value
        if isinstance(node, cst.List | cst.Tuple):
            return len(node.elements) <= FEW
        if not isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
            return False
        held = state.env.get(self.act.path(node.value)) if isinstance(node, cst.Name) else None
        if held is not None:
            return held.kind is ValueKind.PACK and held.exact and len(held.items) <= FEW
        # A default tells, too, where nobody knows of a caller, and what a settings file may say instead is as long as that.
        known = [alt.value for alt in self.evaluator.values(node, self.act.frame) if not isinstance(alt.value, Unknown)]
        displays = [value.node if isinstance(value, Display) else None for value in known]
        return bool(displays) and all(isinstance(one, cst.List | cst.Tuple) and 0 < len(one.elements) <= FEW for one in displays)

    def _ends_with_length(self, node: cst.BaseExpression) -> bool:
        """Whether a range ends with how much something holds, also by a name or attribute for that: ``range(len(layers))``."""
        if not isinstance(node, cst.Call) or names.last_name(node.func) not in RANGES or not node.args:
            return False
        found = self.evaluator.values(node.args[:2][-1].value, self.act.frame)
        lengths = (alt.value.node for alt in found if isinstance(alt.value, SourceExpression))
        return any(isinstance(length, cst.Call) and names.dotted(length.func) == "len" for length in lengths)

    def _number(self, node: cst.BaseExpression) -> int | None:
        """The greatest whole number that an expression can be, where all that it can be is known."""
        return greatest(self.evaluator.values(node, self.act.frame))

    def comprehension(self, node: cst.BaseSimpleComp | cst.DictComp, state: State) -> TensorState:
        """What a comprehension or a generator gives."""
        each = self._each_round(node, state)
        if isinstance(node, cst.GeneratorExp):
            return TensorState(ValueKind.ITERABLE, each=each, inside=each)
        # Who goes backward through it goes through what was kept here.
        return TensorState(ValueKind.PACK, inside=each, sure=True, moved="" if isinstance(node, cst.DictComp) else "list", tags=frozenset({id(node)}))

    def _each_round(self, node: cst.BaseSimpleComp | cst.DictComp, state: State) -> TensorState:
        """What a comprehension makes in each round of its loops, and keeps until all of them are over.

        A generator that nobody goes through at once runs later, in another mode it may be, and is no loop here.
        """
        self.spent += _COMPREHENSION
        runs = not isinstance(node, cst.GeneratorExp) or self._runs_at_once(node)
        inner = state.copy()
        outer = self.act.loops
        here: cst.CompFor | None = node.for_in
        while here is not None:
            loop, _, each = self.loop_over(here, inner)
            self.assign(here.target, each, inner, None, here)
            if runs:
                self.act.loops = (*self.act.loops, loop)
            if runs and self.recording:
                self.record.loops.append(loop)
            for condition in here.ifs:
                self.value(condition.test, inner)
                loop.short = loop.short or _lets_few(condition.test, here)
            here = here.inner_for_in
        element = node.value if isinstance(node, cst.DictComp) else node.elt
        found = self.value(element, inner)
        path = self._bound_to(node, state) if self.recording and not isinstance(node, cst.GeneratorExp) else ()
        self.stored(node, inner, "append", path, found, element, TensorState(ValueKind.PACK, sure=True, moved="list"))
        self.act.loops = outer
        return found

    def _runs_at_once(self, node: cst.GeneratorExp) -> bool:
        """Whether what a generator is given to goes through all of it now, in this mode: a function of a library that gives no other iterator."""
        parents = self.act.module.walk.parents
        inner: cst.CSTNode = node
        while isinstance(above := parents.get(inner), cst.Arg) and isinstance(call := parents.get(above), cst.Call):
            word = names.last_name(call.func)
            if above.star:
                return True
            if word not in ITERATORS:
                found = [alt.value for alt in self.evaluator.values(call.func, self.act.frame)[:2]]
                return word in _METHODS if not found or isinstance(found[0], Unknown) else word != "next" and all(isinstance(one, External) for one in found)
            inner = call
        return False

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


def _lets_few(test: cst.BaseExpression, loop: cst.CompFor) -> bool:
    """Whether a condition lets the first few rounds through: ``if number < 4``, of ``for number, x in enumerate(loader)``."""
    counted = isinstance(loop.iter, cst.Call) and names.last_name(loop.iter.func) == "enumerate" and isinstance(loop.target, cst.Tuple)
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not counted or not isinstance(loop.target, cst.Tuple):
        return False
    limit, number = constant_key(test.comparisons[0].comparator), loop.target.elements[0].value
    least = isinstance(test.comparisons[0].operator, cst.LessThan | cst.LessThanEqual) and isinstance(limit, int) and limit <= FEW
    return least and isinstance(test.left, cst.Name) and test.left.value == names.last_name(number)


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
    here = node.value if isinstance(node, cst.NamedExpr) else node
    while isinstance(here, cst.Call) and here.args:
        inner = here.args[0].value
        inner = inner.value if isinstance(inner, cst.NamedExpr) else inner  # `enumerate(bar := tqdm(loader))`
        if names.last_name(here.func) in {"range", "trange", "arange", "len", "items", "keys"}:
            break
        if not isinstance(inner, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
            break
        here = inner
    if isinstance(here, cst.Subscript):
        key = constant_key(here.slice[0].slice.value) if isinstance(here.slice[0].slice, cst.Index) else None
        base = names.last_name(here.value)
        return (f"{base}_{key}" if isinstance(key, str) else base), here
    if isinstance(here, cst.Call):
        return names.last_name(here.func), here
    return names.last_name(here), here
