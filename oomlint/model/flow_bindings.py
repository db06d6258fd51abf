"""What assignments bind, and what they add to: names, attributes, elements, running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import JOINS
from oomlint.model import arguments, names
from oomlint.model.flow_calls import FlowCalls
from oomlint.model.flow_values import named_size
from oomlint.model.tensor_shapes import shape_of
from oomlint.model.tensor_state import MAP, PLAIN, UNKNOWN, Graph, SampleSize, TensorState, ValueKind, join, mixed, pack
from oomlint.model.torch_tables import VIEWS
from oomlint.model.values import External, Instance
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend, parts_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.flow_state import State
    from oomlint.model.tensor_state import Path
    from oomlint.model.values import FunctionRef


_JOINS: Final = JOINS | {"hstack"}  # put tensors one behind the other


class FlowBindings(FlowCalls):
    """Binds targets."""

    def assign(self, target: cst.BaseExpression, held: TensorState, state: State, expression: cst.BaseExpression | None, statement: cst.CSTNode) -> None:
        """Bind a target."""
        if isinstance(target, cst.Tuple | cst.List):
            self._unpack(target, held, state, statement)
            return
        if isinstance(target, cst.StarredElement):
            self.assign(target.value, TensorState(ValueKind.PACK, inside=held), state, None, statement)
            return
        if isinstance(target, cst.Name | cst.Attribute) and self._becomes_module(target, held):
            held = TensorState(ValueKind.MODULE)
        if isinstance(target, cst.Name):
            path = self.act.path(target.value)
            bound = expression is not None and _cuts(expression, target.value)
            if held.home != path and (bound or not isinstance(statement, cst.For | cst.CompFor)):
                self.was_reset(statement, state, path, bound=bound, network=_builds(target.value, held, expression))
            self._put(path, named_size(target.value, held), state)
        elif isinstance(target, cst.Attribute):
            base = self.value(target.value, state)
            if base.home:
                self._assign_attribute(target, base, held, state, expression, statement)
        elif isinstance(target, cst.Subscript):
            base = self.value(target.value, state)
            if base.home:
                self._assign_element(target, base, held, state, expression, statement)

    def _becomes_module(self, target: cst.Name | cst.Attribute, held: TensorState) -> bool:
        """Whether something unknown is put under a name that the file treats as a module: ``model = build(args).to(device)``."""
        if not (held.tensorlike or held.kind is ValueKind.UNKNOWN):
            return False
        return self.is_module_name(target)

    def _assign_attribute(
        self, target: cst.Attribute, base: TensorState, held: TensorState, state: State, expression: cst.BaseExpression | None, statement: cst.CSTNode
    ) -> None:
        word = target.attr.value
        path = (*base.home, word)
        self.was_reset(statement, state, path, bound=expression is not None and _cuts(expression, word), network=_builds(word, held, expression))
        self._put(path, named_size(word, held), state)
        if (base.tensorlike or base.kind is ValueKind.UNKNOWN) and held.all_tags:  # a batch with fields: whoever is given it is given what is put there
            state.env[base.home] = base.having(tags=base.tags | held.all_tags, sources=base.sources | held.all_sources)
        if base.frozen and held.kind is ValueKind.MODULE and not held.frozen:
            state.env[base.home] = base.having(frozen=False)  # a new part learns
        if word == "requires_grad" and expression is not None and names.dotted(expression) != "False":
            self.used(statement, state, "gradients")

    def _assign_element(
        self, target: cst.Subscript, base: TensorState, held: TensorState, state: State, expression: cst.BaseExpression | None, statement: cst.CSTNode
    ) -> None:
        key = _key_of(target)
        path = (*base.home, key)
        if base.tensorlike or base.kind is ValueKind.UNKNOWN:
            self.wrote(statement, state, base.home, held, base)
        if base.tensorlike:
            # Writing into a tensor that was there before.
            written = mixed([base, held]).having(kind=base.kind, home=base.home, tags=base.tags | held.tags)
            few = base.size is SampleSize.SMALL and base.dims >= MAP  # made with so many numbers, which does not change
            state.env[base.home] = written.having(size=base.size, dims=base.dims) if few else written
            if base.kind is ValueKind.OPAQUE and isinstance(key, str) and key != "*":  # a dictionary of results, of which this entry is known from now on
                state.env[path] = held
            return
        if isinstance(target.slice[0].slice, cst.Slice):
            self.was_reset(statement, state, base.home, bound=True)
        elif key == "*":
            self.stored(statement, state, "item", base.home, held, expression, base)
        else:
            if "*" in base.home:  # a field of one row of many
                self.stored(statement, state, "item", base.home, held, expression, base)
            self.was_reset(statement, state, path)
        named = named_size(key, held) if isinstance(key, str) and key != "*" else held
        self._put(path, named, state)
        self._note_in_container(path, named.having(tags=named.tags | {id(statement)}) if key == "*" else named, state)

    @staticmethod
    def _put(path: Path, held: TensorState, state: State) -> None:
        """Bind a path, and forget the parts of the object that it replaces, unless it is the same: ``results = score(results)``."""
        size = len(path)
        for other in [other for other in state.env if len(other) > size and other[:size] == path] if held.home != path else ():
            del state.env[other]
        state.env[path] = held if held.home else held.having(home=path)

    def _unpack(self, target: cst.Tuple | cst.List, held: TensorState, state: State, statement: cst.CSTNode) -> None:
        count = len(target.elements)
        for number, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                self.assign(
                    element.value,
                    TensorState(ValueKind.PACK, inside=held.any() if held.kind is ValueKind.PACK else self.element_of(held)),
                    state,
                    None,
                    statement,
                )
                continue
            part: TensorState | None = None
            if held.kind is ValueKind.PACK:
                known = [item for key, item in held.items if isinstance(key, int)]
                part = known[number] if held.exact and len(known) == count else held.item(number) or held.inside
            elif held.tensorlike:
                part = held.having(home=())
                if number and held.size is SampleSize.SCALAR and held.graph is Graph.YES:
                    part = part.having(
                        kind=ValueKind.UNKNOWN, graph=Graph.MAYBE, sure=False
                    )  # behind the loss: its parts, scores, numbers, with a graph or not
            elif held.kind is ValueKind.PLAIN:
                part = PLAIN
            elif held.kind is ValueKind.UNKNOWN:
                part = UNKNOWN.having(graph=held.graph, sources=held.sources, tags=held.tags)
            self.assign(element.value, part or UNKNOWN, state, None, statement)

    def delete(self, node: cst.Del, state: State) -> None:
        """Run a ``del``."""
        targets = parts_of(node.target)
        for target in targets:
            if isinstance(target, cst.Subscript):
                base = self.value(target.value, state)
                self.was_reset(node, state, base.home, bound=True)
            elif isinstance(target, cst.Name):
                state.env.pop(self.act.path(target.value), None)

    # -- what adds to itself -------------------------------------------------------------------------------------------

    def assignment(self, node: cst.Assign, state: State) -> None:
        """Run ``x = y``."""
        for target in node.targets:
            if self._adds_to_itself(node, target.target, node.value, state) or self._adds_side_by_side(node, target.target, state):
                return
            if self._adds_row_by_row(node, target.target, state) or self._joins_to_itself(node, target.target, node.value, state):
                return
        held = self.value(node.value, state)
        for target in node.targets:
            self.assign(target.target, held, state, node.value, node)
            self._count_axes(target.target, node.value, state)

    def _count_axes(self, target: cst.BaseExpression, value: cst.BaseExpression, state: State) -> None:
        """``n, depth, height, width = x.shape``: so many axes has ``x`` from now on, else the program ends here."""
        measured = shape_of(value)
        if (
            not isinstance(measured, cst.Name)
            or not isinstance(target, cst.Tuple | cst.List)
            or any(isinstance(one, cst.StarredElement) for one in target.elements)
        ):
            return
        held = self.value(measured, state)
        if held.tensorlike and held.dims < len(target.elements):
            state.env[self.act.path(measured.value)] = held.having(dims=len(target.elements))

    def _adds_side_by_side(self, node: cst.Assign, target: cst.BaseExpression, state: State) -> bool:
        """``a, b = a + x, b + y``: each adds to itself, or is something else."""
        if not isinstance(target, cst.Tuple) or not isinstance(node.value, cst.Tuple) or len(target.elements) != len(node.value.elements):
            return False
        pairs = [(one.value, other.value) for one, other in zip(target.elements, node.value.elements, strict=True)]
        adding = [len(_summands(part)) > 1 and self._mentions(part, self.code(one)) for one, part in pairs]
        if not any(adding):
            return False
        # All of the right side is computed before any of it is bound.
        values = [None if adds else self.value(part, state) for adds, (_, part) in zip(adding, pairs, strict=True)]
        for held, (one, part) in zip(values, pairs, strict=True):
            if held is None and not self._adds_to_itself(part, one, part, state):
                self.assign(one, self.value(part, state), state, part, node)
        for held, (one, part) in zip(values, pairs, strict=True):
            if held is not None:
                self.assign(one, held, state, part, node)
        return True

    def _adds_row_by_row(self, node: cst.Assign, target: cst.BaseExpression, state: State) -> bool:
        """``sums = {key: sums[key] + x for key, x in parts.items()}``: each entry adds to itself, or a multiple of it."""
        value = node.value
        if not isinstance(target, cst.Name | cst.Attribute) or not isinstance(value, cst.DictComp | cst.ListComp):
            return False
        element, code = value.value if isinstance(value, cst.DictComp) else value.elt, self.code(target)
        if isinstance(element, cst.IfExp):  # `sums[key] + x if key in sums else x`
            element = max((element.body, element.orelse), key=lambda side: len(_summands(side)))
        own = [part for part in descend(element) if self._is_entry(part, code) or self.code(part) in self._rows_of(value.for_in, code)]
        entries = {self.code(part) for part in own}
        parts = _summands(element)
        others = [part for part in parts if not any(_is_scaled(part, entry, self.code) for entry in entries)]
        if not others or len(others) != len(parts) - 1:
            return False
        before = self.value(target, state)
        made = self.value(value, state)
        path = self._home_of(target, before, state)
        self.stored(node, state, "augment", path, made.any(), others[0] if len(others) == 1 else None, before)
        self._bind(target, made.having(tags=made.tags | {id(node)}, home=path), state, path)
        if isinstance(target, cst.Name):
            state.env[self.act.path(target.value)] = made.having(tags=made.tags | {id(node)}, home=path)
        return True

    def _is_entry(self, node: cst.CSTNode, code: str) -> bool:
        """Whether an expression is an entry of what is written like this: ``sums[key]``, ``sums.get(key, 0)``."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "get":
            return self.code(node.func.value) == code
        return isinstance(node, cst.Subscript) and self.code(node.value) == code

    def _rows_of(self, loop: cst.CompFor, code: str) -> set[str]:
        """Names of a comprehension that stand for the entries of what is written like this: ``value`` of ``for key, value in sums.items()``."""
        over = loop.iter
        targets = parts_of(loop.target)
        if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and over.func.attr.value in {"items", "values"}:
            return {self.code(targets[-1])} if self.code(over.func.value) == code else set()
        if isinstance(over, cst.Call) and names.last_name(over.func) == "zip" and len(over.args) == len(targets):
            return {self.code(target) for target, arg in zip(targets, over.args, strict=True) if self.code(arg.value) == code}
        return {self.code(loop.target)} if self.code(over) == code else set()

    def _adds_to_itself(self, node: cst.CSTNode, target: cst.BaseExpression, value: cst.BaseExpression, state: State) -> bool:
        """``acc = acc + e``, ``acc = a * acc + b * e``: a running sum, or a list that gets longer; also where it is what a test chooses."""
        if not isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
            return False
        if isinstance(value, cst.IfExp):
            code = self.code(target)
            longer, other = sorted((value.body, value.orelse), key=lambda side: (self._mentions(side, code), len(_summands(side))), reverse=True)
            if not self._adds_to_itself(node, target, longer, state):
                return False
            self.value(other, state)
            return True
        if isinstance(value, cst.List | cst.Tuple):
            return self._repeats_itself(node, target, value, state)
        summands = _summands(value)
        if len(summands) == 1:
            return False
        code = self.code(target)
        own: list[cst.BaseExpression] = []
        others: list[cst.BaseExpression] = []
        for part in summands:
            (own if self._mentions(part, code) or self._looks_up(part, target) else others).append(part)
        if len(own) != 1 or not others or not (_is_scaled(own[0], code, self.code) or self._looks_up(own[0], target)):
            return False
        before = self.value(target, state)
        found = [self._added(part, state) for part in others]
        others, parts = [part for part, _ in found], [held for _, held in found]
        added = mixed(parts) if len(parts) > 1 else parts[0]
        lengthens = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
        if lengthens and len(parts) == 1 and added.kind is ValueKind.PACK and before.kind in {ValueKind.PACK, ValueKind.UNKNOWN}:
            self._lengthen(node, target, before, added, _alone(others[0]), state)
            return True
        kind = "concat" if before.kind is ValueKind.PACK else "augment"
        self._accumulate(node, target, kind, before, added, others[0] if len(others) == 1 else None, state)
        return True

    def _repeats_itself(self, node: cst.CSTNode, target: cst.BaseExpression, value: cst.List | cst.Tuple, state: State) -> bool:
        """``rows = [*rows, x]``: a list that gets longer."""
        code = self.code(target)
        own = [one for one in value.elements if isinstance(one, cst.StarredElement) and self.code(one.value) == code]
        others = [one for one in value.elements if one not in own]
        if len(own) != 1 or not others:
            return False
        before = self.value(target, state)
        held = [self.row_of(found) if isinstance(one, cst.StarredElement) else found for one in others for found in [self.value(one.value, state)]]
        if before.kind not in {ValueKind.PACK, ValueKind.UNKNOWN}:
            return False
        self._lengthen(node, target, before, pack(enumerate(held)), others[0].value if len(others) == 1 else None, state)
        return True

    def _joins_to_itself(self, node: cst.CSTNode, target: cst.BaseExpression, value: cst.BaseExpression, state: State) -> bool:
        """``history = torch.cat([history, loss[None]])``: one number more each round, with all that it was computed from."""
        listed = value.args[0].value if isinstance(value, cst.Call) and names.last_name(value.func) in _JOINS and value.args else None
        if not isinstance(value, cst.Call) or not isinstance(target, cst.Name | cst.Attribute) or not isinstance(listed, cst.List | cst.Tuple):
            return False
        code = self.code(target)
        others = [element.value for element in listed.elements if self.code(element.value) != code]
        if len(others) != 1 or len(listed.elements) == 1 or self._mentions(others[0], code):
            return False
        if any(isinstance(part, cst.Call) and names.last_name(part.func) not in VIEWS for part in descend(others[0])):
            return False
        if not any(isinstance(alt.value, External) and alt.value.name.startswith("torch.") for alt in self.evaluator.values(value.func, self.act.frame)[:2]):
            return False
        added = self.value(others[0], state)
        if not added.tensorlike or not added.carries or added.size is not SampleSize.SCALAR:
            return False
        self._accumulate(node, target, "concat", self.value(target, state), added, others[0], state)
        return True

    def _added(self, node: cst.BaseExpression, state: State) -> tuple[cst.BaseExpression, TensorState]:
        """What is added in the rounds that add something: of ``loss if ok else 0`` the loss."""
        sides = [(side, self.value(side, state)) for side in ((node.body, node.orelse) if isinstance(node, cst.IfExp) else (node,))]
        return max(sides, key=lambda side: (side[1].carries, side[1].kind is not ValueKind.PLAIN))

    def _looks_up(self, node: cst.BaseExpression, target: cst.BaseExpression) -> bool:
        """Whether an expression is ``sums.get(key, 0)`` where the target is ``sums[key]``."""
        index = target.slice[0].slice if isinstance(target, cst.Subscript) and len(target.slice) == 1 else None
        if not isinstance(target, cst.Subscript) or not isinstance(index, cst.Index) or not isinstance(node, cst.Call) or not node.args:
            return False
        return self._is_entry(node, self.code(target.value)) and self.code(node.args[0].value) == self.code(index.value)

    def _mentions(self, node: cst.CSTNode, code: str) -> bool:
        """Whether a name, attribute or element that is written like this stands in an expression."""
        if code not in self.code(node):
            return False
        words = {part.attr for part in descend(node) if isinstance(part, cst.Attribute)}  # `loss` of `self.loss` is no `loss`
        return any(isinstance(part, cst.Name | cst.Attribute | cst.Subscript) and part not in words and self.code(part) == code for part in descend(node))

    def augment(self, node: cst.AugAssign, state: State) -> None:
        """Run ``x += y`` and its like."""
        before = self.value(node.target, state)
        added = self.value(node.value, state)
        if isinstance(node.operator, cst.AddAssign | cst.SubtractAssign):
            if added.kind is ValueKind.PACK and (before.kind in {ValueKind.PACK, ValueKind.UNKNOWN}):
                self._lengthen(node, node.target, before, added, _alone(node.value), state)
                return
            if before.kind is ValueKind.PACK and isinstance(node.operator, cst.AddAssign):
                self._extend(node, before, added, state)
                return
            self._accumulate(node, node.target, "augment", before, added, node.value, state)
            return
        self.assign(node.target, mixed([before, added]), state, None, node)

    def _lengthen(
        self, node: cst.CSTNode, target: cst.BaseExpression, before: TensorState, added: TensorState, shown: cst.BaseExpression | None, state: State
    ) -> None:
        """Note that a list got longer: ``rows += [x]``, ``rows = rows + [x]``; what is ``shown`` is all that was added."""
        path = self._home_of(target, before, state)
        self.stored(node, state, "append", path, added.any(), shown, before)
        if path:
            state.env[path] = before.having(kind=ValueKind.PACK, inside=join(before.inside, added.any()), tags=before.tags | {id(node)}, exact=False, home=path)

    def _extend(self, node: cst.AugAssign, before: TensorState, added: TensorState, state: State) -> None:
        """Note that a list got the elements of something that is no display: ``rows += batch.tolist()``, which is no sum."""
        path = self._home_of(node.target, before, state)
        row = self.row_of(added)
        self.stored(node, state, "extend", path, row, node.value, before)
        if path:
            state.env[path] = before.having(inside=join(before.inside, row), tags=before.tags | {id(node)}, exact=False, home=path)

    def _accumulate(
        self,
        node: cst.CSTNode,
        target: cst.BaseExpression,
        kind: str,
        before: TensorState,
        added: TensorState,
        expression: cst.BaseExpression | None,
        state: State,
    ) -> None:
        """Note that a value was added to what a target holds."""
        path = self._home_of(target, before, state)
        this = before.value if before.kind is ValueKind.OBJECT and isinstance(before.value, Instance) else None
        if this is not None:
            method = self.evaluator.method(this, "__iadd__") or self.evaluator.method(this, "__add__")
            if method is not None and expression is not None:
                call = self._as_call(node, target, method, expression)
                self.run_function(method, call, [added], {names.parameters(method.scope)[-1].name.value: added}, before.home, state)
            return
        self.stored(node, state, kind, path, added, expression, before)
        total = mixed([before, added]) if before.kind is not ValueKind.UNKNOWN else added.having(sure=False)
        if before.kind is ValueKind.PLAIN and added.tensorlike:
            total = added
        tags = before.all_tags | added.all_tags | {id(node)}
        self._bind(target, total.having(tags=tags, home=(), moved=""), state, path)

    def _as_call(self, statement: cst.CSTNode, target: cst.BaseExpression, method: FunctionRef, expression: cst.BaseExpression) -> cst.Call:
        """The call that ``total += loss`` is where the class has a method for it."""
        known = self.known.operators.get(statement)
        if known is None:
            written = cst.Call(cst.Attribute(target, cst.Name(method.scope.name)), [cst.Arg(expression)])
            known = self.known.operators[statement] = self.act.module.tree.stand_in(written, statement)
        return known

    def _home_of(self, target: cst.BaseExpression, before: TensorState, state: State) -> Path:
        """Where what a target holds lives."""
        if isinstance(target, cst.Name):
            path = self.act.path(target.value)
            if path in state.env or target.value in self.act.scope.effects:
                home = before.home
                return home if home and before.kind in {ValueKind.PACK, ValueKind.OBJECT} else path
            return before.home or path
        if isinstance(target, cst.Attribute):
            base = self.value(target.value, state)
            return (*base.home, target.attr.value) if base.home else ()
        if isinstance(target, cst.Subscript):
            base = self.value(target.value, state)
            key = _key_of(target)
            return (*base.home, key) if base.home else ()
        return ()

    def _bind(self, target: cst.BaseExpression, held: TensorState, state: State, path: Path) -> None:
        if not path:
            return
        state.env[path] = held if held.home else held.having(home=path)
        if isinstance(target, cst.Subscript):
            self._note_in_container(path, held, state)

    def _note_in_container(self, path: Path, held: TensorState, state: State) -> None:
        """What a container holds, where an element of it was set."""
        outer = state.env.get(path[:-1])
        if outer is not None and outer.kind is ValueKind.PACK:
            key = path[-1]
            state.env[path[:-1]] = (
                outer.with_item(key, held.having(home=())) if key != "*" else outer.having(inside=join(outer.inside, held.having(home=())), exact=False)
            )


def _cuts(expression: cst.BaseExpression, name: str) -> bool:
    """Whether an expression is a slice of the same name: ``x = x[-100:]``."""
    return isinstance(expression, cst.Subscript) and isinstance(expression.slice[0].slice, cst.Slice) and names.last_name(expression.value) == name


def _builds(name: str, held: TensorState, expression: cst.BaseExpression | None) -> bool:
    """Whether a new module is made: not the one that there is, moved, wrapped or copied."""
    if held.kind is not ValueKind.MODULE or not isinstance(expression, cst.Call) or names.last_name(expression.func) in {"deepcopy", "copy"}:
        return False
    return not uses_name(expression, (name,))


def _alone(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The list that is written, where it has one element."""
    return node if isinstance(node, cst.List) and len(node.elements) == 1 else None


def _summands(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The parts of a sum: of ``a + b - c``, ``(a * n + b) / (n + 1)``, ``sum([a, b, c])``, ``torch.add(a, b)``; of something else, that alone."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        return [*_summands(node.left), *_summands(node.right)]
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        parts = _summands(node.left)
        return parts if len(parts) > 1 else [node]
    if not isinstance(node, cst.Call):
        return [node]
    given = arguments.plain(node)
    if names.dotted(node.func) == "sum" and len(given) == 1 and isinstance(given[0], cst.List | cst.Tuple):
        return [part for element in given[0].elements for part in _summands(element.value)] or [node]
    if names.dotted(node.func) == "torch.add" and len(given) > 1:
        return [part for one in given[:2] for part in _summands(one)]
    return [node]


def _is_scaled(node: cst.BaseExpression, code: str, render: Callable[[cst.CSTNode], str]) -> bool:
    """Whether a summand is the accumulator itself, or a multiple of it."""
    if render(node) == code:
        return True
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply | cst.Divide):
        return _is_scaled(node.left, code, render) or _is_scaled(node.right, code, render)
    return False


def _key_of(target: cst.Subscript) -> object:
    """The constant key of an element, or ``*``."""
    if len(target.slice) != 1 or not isinstance(target.slice[0].slice, cst.Index):
        return "*"
    key = constant_key(target.slice[0].slice.value)
    return key if key is not UNKNOWN_KEY and isinstance(key, str | int) else "*"
