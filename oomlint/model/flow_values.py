"""What expressions hold: names, attributes, subscripts, operators, displays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import CONSTANTS, VIEW_ATTRIBUTES
from oomlint.model import names
from oomlint.model.flow_definitions import FlowDefinitions, batch
from oomlint.model.flow_state import State, instance_of, module_of, part_of
from oomlint.model.freezing import frozen_names
from oomlint.model.narrowing import plain_names
from oomlint.model.tensor_parts import names_axes, part, picks_places
from oomlint.model.tensor_state import (
    MAP,
    PLAIN,
    ROWS,
    SOME_LOADER,
    TOLD_PLAIN,
    UNKNOWN,
    Graph,
    Mode,
    SampleSize,
    TensorState,
    ValueKind,
    compared,
    either,
    join,
    known_mode,
    mixed,
    pack,
)
from oomlint.model.torch_tables import (
    DENSE_NAME,
    FROZEN_NAME,
    INTEGRAL_NAME,
    MODULE_NAME,
    PLAIN_ATTRIBUTES,
    SCALAR_NAME,
    SMALL_NAME,
    STATES,
    STATES_OF_LAYERS,
    SUMMARY_NAME,
)
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, ModuleRef
from oomlint.scout.telling_names import LOADER_NAME
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from oomlint.model.tensor_state import Path


class _Given(cst.CSTTransformer):
    """Puts literals where names stand."""

    def __init__(self, given: dict[str, cst.BaseExpression]) -> None:
        super().__init__()
        self.given = given

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802 - libcst's word
        """Give the literal of a name."""
        del original_node
        return self.given.get(updated_node.value, updated_node)


_EITHER: Final = frozenset({True, False})


class FlowValues(FlowDefinitions):
    """Evaluates expressions."""

    def value(self, node: cst.BaseExpression, state: State) -> TensorState:
        """What an expression holds."""
        if isinstance(node, cst.Name):
            return self._name(node, state)
        if isinstance(node, cst.Attribute):
            return self._attribute(node, state)
        if isinstance(node, cst.Call):
            found = self.call(node, state)
            return _as_recorded(found, state)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, state)
        if isinstance(node, cst.BaseNumber | cst.BaseString):
            return PLAIN
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node, state)
        if isinstance(node, cst.UnaryOperation):
            operand = self.value(node.expression, state)
            return PLAIN if isinstance(node.operator, cst.Not) else mixed([operand]) if operand.tensorlike else operand
        if isinstance(node, cst.Comparison):
            return self._comparison(node, state)
        if isinstance(node, cst.BooleanOperation):
            return join(self.value(node.left, state), self.value(node.right, state))
        if isinstance(node, cst.IfExp):
            return self._conditional(node, state)
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return self._display(node, state)
        if isinstance(node, cst.Dict):
            return self._dictionary(node, state)
        if isinstance(node, cst.BaseSimpleComp | cst.DictComp):
            return self.comprehension(node, state)
        if isinstance(node, cst.NamedExpr):
            held = self.value(node.value, state)
            self.assign(node.target, held, state, node.value, node)
            return held
        if isinstance(node, cst.Await):
            return self.value(node.expression, state)
        if isinstance(node, cst.Yield):
            given = self._yielded(node.value, state)
            self.act.yielded = join(self.act.yielded, given) if given is not None else self.act.yielded
            inner = self.act.loops[len(self.act.entered) :]
            self.act.source = self.act.source or next((loop.loader or SOME_LOADER for loop in inner if loop.named), None)
            return UNKNOWN
        return UNKNOWN

    def _binary(self, node: cst.BinaryOperation, state: State) -> TensorState:
        if isinstance(node.operator, cst.Multiply) and _has_no_content(node.left):
            return TensorState(ValueKind.PACK, sure=True)  # `[None] * n`: places that are filled later
        left, right = self.value(node.left, state), self.value(node.right, state)
        if ValueKind.TENSOR in {left.kind, right.kind} or ValueKind.OPAQUE is left.kind is right.kind:
            self.note_tensor(node.left, left)
            self.note_tensor(node.right, right)
        if isinstance(node.operator, cst.Multiply) and isinstance(node.left, cst.List):
            return TensorState(ValueKind.PACK, sure=True, inside=left.any())  # `[0] * n`
        found = _arithmetic(left, right)
        return _as_recorded(found, state)

    def _conditional(self, node: cst.IfExp, state: State) -> TensorState:
        self.value(node.test, state)
        verdicts = self.verdicts(node.test, state)
        if len(verdicts) == 1:
            return self.value(node.body if True in verdicts else node.orelse, state)
        sides = ((node.body, True), (node.orelse, False))
        then, other = (self.value(side, self.assuming(node.test, state, came_out=way)) for side, way in sides)
        return either(then, other)

    def _comparison(self, node: cst.Comparison, state: State) -> TensorState:
        operands = [node.left, *(part.comparator for part in node.comparisons)]
        parts = [self.value(operand, state) for operand in operands]
        if any(held.kind is ValueKind.TENSOR for held in parts):
            for operand, held in zip(operands, parts, strict=True):
                self.note_tensor(operand, held)
        if any(isinstance(part.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn) for part in node.comparisons):
            return PLAIN
        found = mixed(parts)
        return compared(found.without_graph()) if found.tensorlike else PLAIN

    def _yielded(self, node: cst.BaseExpression | cst.From | None, state: State) -> TensorState | None:
        """What a ``yield`` hands over; ``None`` where it goes through something unknown."""
        if isinstance(node, cst.From):
            return self.value(node.item, state).each
        return self.value(node, state) if node is not None else PLAIN

    def arguments(self, node: cst.Call, state: State) -> list[TensorState]:
        """What the arguments of a call hold."""
        return [self.value(arg.value, state) for arg in node.args]

    # -- tests ---------------------------------------------------------------------------------------------------------

    def assuming(self, test: cst.BaseExpression, state: State, *, came_out: bool) -> State:
        """The state where a test has come out so: what it says is a number or a text is one there."""
        told = {self.act.path(name): TOLD_PLAIN for name in plain_names(test, came_out=came_out)}
        return State({**state.env, **told}, state.mode, state.evaluating, state.modules) if told else state

    def verdicts(self, test: cst.BaseExpression, state: State) -> frozenset[bool]:
        """How a test can come out in this activation, where constants of the call decide, or the mode of a module; both where anything else does."""
        if isinstance(test, cst.Attribute) and (trains := self._trains(test, state)) is not None:
            return frozenset({trains})
        if isinstance(test, cst.UnaryOperation | cst.BooleanOperation) and not self._decidable(test):
            return self._of_parts(test, state)
        rounds = self.act.rounds
        given = {part.value: rounds[part.value] for part in descend(test) if isinstance(part, cst.Name) and part.value in rounds} if rounds else {}
        key = (test, *given.values()) if given else test
        known = self.act.decided.get(key)
        if known is None:
            known = _EITHER
            asked = test.visit(_Given(given)) if given else test
            if isinstance(asked, cst.BaseExpression) and self._decidable(asked):
                found = frozenset(verdict for verdict, _, _ in self.evaluator.truth(asked, self.act.frame))
                known = found or known
            self.act.decided[key] = known
        return known

    def _of_parts(self, test: cst.UnaryOperation | cst.BooleanOperation, state: State) -> frozenset[bool]:
        """How a test comes out of which a part is decided: ``if not evaluates and options.half:``."""
        if isinstance(test, cst.UnaryOperation):
            return frozenset(not verdict for verdict in self.verdicts(test.expression, state)) if isinstance(test.operator, cst.Not) else _EITHER
        settles = isinstance(test.operator, cst.Or)
        left, right = self.verdicts(test.left, state), self.verdicts(test.right, state)
        return (left | right) & {settles} | (left & right & {not settles})

    def _trains(self, test: cst.Attribute, state: State) -> bool | None:
        """How a test for the mode of a module comes out, `if model.training:`; ``None`` for any other, and where nobody knows the mode."""
        if test.attr.value != "training":
            return None
        home = self.value(test.value, state).home
        evaluates = state.evaluates(home) if any(home[:end] in state.modules for end in range(1, len(home) + 1)) else None
        return None if evaluates is None else not evaluates

    def _decidable(self, test: cst.BaseExpression) -> bool:
        """Whether only parameters and constants stand in a test: what they are cannot change from pass to pass."""
        if isinstance(test, cst.UnaryOperation):
            return self._decidable(test.expression)
        if isinstance(test, cst.BooleanOperation):
            return self._decidable(test.left) and self._decidable(test.right)
        if isinstance(test, cst.Comparison):
            return self._decidable(test.left) and all(self._decidable(part.comparator) for part in test.comparisons)
        if isinstance(test, cst.Name):
            if test.value in CONSTANTS:
                return True
            return self.act.scope.parent is not None and test.value in names.takes(self.act.scope)
        return isinstance(test, cst.SimpleString | cst.Integer)

    # -- names and attributes ------------------------------------------------------------------------------------------

    def _name(self, node: cst.Name, state: State) -> TensorState:
        path = self.act.path(node.value)
        known = state.env.get(path)
        if known is not None:
            if known.kind in {ValueKind.PACK, ValueKind.OBJECT} and known.home != path and known.home in state.env:
                return state.env[known.home]  # another name of the same object
            return self._by_name(known, node, path) if known.kind is ValueKind.UNKNOWN else known
        if node.value in self.act.params:
            return self.act.params[node.value]
        if node.value in CONSTANTS:
            return PLAIN
        local = self.is_local(node.value)
        found = UNKNOWN if local else self.static(node, self.act.frame)
        own = local or node.value in names.takes(self.act.scope)
        home = path if own else (("global", node.value),)
        return self.as_frozen(self._by_name(found, node, home), node)

    def as_frozen(self, held: TensorState, node: cst.BaseExpression) -> TensorState:
        """A module that goes by a name of the file, frozen where the file freezes it."""
        module = self.act.module
        if held.kind is not ValueKind.MODULE or held.frozen or not isinstance(node, cst.Name) or self.is_local(node.value) or node.value in self.act.params:
            return held
        frozen = node.value in self.known.frozen_names.answer(module.path, lambda: frozen_names(module))
        return held.having(frozen=True, sure=True) if frozen else held

    def is_local(self, name: str) -> bool:
        """Whether the scope itself binds the name to data: then only the run tells what it holds."""
        scope = self.act.scope
        known = self.known.bound.get((scope, name))
        if known is None:
            effects = scope.effects.get(name, ())
            known = self.known.bound[scope, name] = (
                not (name in scope.outer or name in scope.enclosing or name in names.takes(scope))
                and all(effect.kind not in DEFINES for effect in effects)
                and any(not effect.path and effect.kind in {"assign", "for", "with"} for effect in effects)
            )
        return known

    def _by_name(self, found: TensorState, node: cst.BaseExpression, home: Path) -> TensorState:
        """What the name of something unknown says of it, and where it lives."""
        if (
            found.kind is ValueKind.OBJECT
            and not isinstance(found.value, FunctionRef | ClassRef | External | ModuleRef)
            and LOADER_NAME.search(names.last_name(node))
        ):
            found = found.having(kind=ValueKind.ITERABLE, each=batch(), loader=SOME_LOADER)
        elif found.kind is ValueKind.UNKNOWN or (
            isinstance(found.value, ExternalCall) and not found.value.name.startswith(("torch.", "torchmetrics.", "builtins."))
        ):
            word = names.last_name(node)
            if self.is_module_name(node) or MODULE_NAME.search(word):
                found = module_of(frozen=FROZEN_NAME.search(word) is not None, home=found.home)
            elif LOADER_NAME.search(word):
                found = TensorState(ValueKind.ITERABLE, each=batch(), loader=SOME_LOADER)
            elif found.value is None and (size := _size_by_name(word, found.size)) is not found.size:
                found = found.having(size=size)
        return found if found.home else found.having(home=home)

    def _attribute(self, node: cst.Attribute, state: State) -> TensorState:
        base = self.value(node.value, state)
        word = node.attr.value
        path = (*base.home, word) if base.home else ()
        known = state.env.get(path) if path else None
        if known is not None:
            return known
        if word in {"param_groups", "training", "lr"}:
            return PLAIN
        if base.items and (item := base.item(word)) is not None:
            return item
        if base.kind in {ValueKind.TENSOR, ValueKind.ARRAY}:
            if word in PLAIN_ATTRIBUTES:
                return PLAIN
            if word in {"data", "grad"}:
                return base.without_graph()
            if word in VIEW_ATTRIBUTES:
                return base.having(home=())
            return base if word not in {"values", "indices"} else _of_pair(base, word)
        if base.kind is ValueKind.OPAQUE:
            if word in PLAIN_ATTRIBUTES:
                return PLAIN
            if word in {"data", "grad"}:
                return base.without_graph()
            return _field_of_output(base, word, path)
        if base.kind is ValueKind.PLAIN:
            return PLAIN
        if base.kind is ValueKind.MODULE and word == "module":
            return base
        if base.kind is ValueKind.MODULE and word == "_modules":
            return TensorState(ValueKind.PACK, inside=part_of(base), sure=True)
        this = instance_of(base)
        if this is not None and (path or base.items) and not base.frozen:
            getter = self.evaluator.method(this, word)
            if getter is not None and names.is_property(getter.scope):
                own = names.self_name(getter.scope) if base.items else None
                return self.run_function(getter, cst.Call(node), [], {own: base} if own else {}, base.home, state)
        found = self.member(base, word)
        if base.kind is ValueKind.UNKNOWN and base.sources and found is UNKNOWN:
            found = UNKNOWN.having(graph=base.graph, sources=base.sources, tags=base.tags)
        if base.kind is ValueKind.MODULE and found.kind is ValueKind.UNKNOWN and instance_of(base) is None and word in {"training", "device", "dtype"}:
            return PLAIN
        return self._by_name(found, node, path)

    # -- subscripts ----------------------------------------------------------------------------------------------------

    def _subscript(self, node: cst.Subscript, state: State) -> TensorState:
        base = self.value(node.value, state)
        indices = [element.slice for element in node.slice]
        index = [self.value(item.value, state) for item in indices if isinstance(item, cst.Index)]
        key = constant_key(indices[0].value) if len(indices) == 1 and isinstance(indices[0], cst.Index) else UNKNOWN_KEY
        path = (*base.home, key if key is not UNKNOWN_KEY else "*") if base.home else ()
        if path and path in state.env and base.kind is not ValueKind.PACK:
            return state.env[path]
        if base.kind is ValueKind.PACK:
            if len(indices) == 1 and isinstance(indices[0], cst.Slice):
                return base.having(home=())
            if isinstance(key, int) and key < 0 and base.exact:
                key = len(base.items) + key
            item = base.item(key) if key is not UNKNOWN_KEY else None
            found = item if item is not None else base.inside if key is not UNKNOWN_KEY and base.inside is not None and not base.exact else base.any()
            if found.kind in {ValueKind.UNKNOWN, ValueKind.OBJECT} and self.is_module_name(node) and instance_of(found) is None:
                found = module_of(home=path)
            return found if found.home or not path else found.having(home=path)
        if base.kind is ValueKind.UNKNOWN and names_axes(indices):
            base = base.having(kind=ValueKind.TENSOR if base.graph else ValueKind.ARRAY)  # nothing else is asked for parts along several axes
        if base.kind is ValueKind.OPAQUE and (picks_places(indices) or any(held.kind in {ValueKind.TENSOR, ValueKind.ARRAY} for held in index)):
            return part(node, base.having(kind=ValueKind.TENSOR, sure=True), indices, index)
        if base.kind is ValueKind.OPAQUE:
            return _field_of_output(base, key if isinstance(key, str) else "", path)
        if base.kind in {ValueKind.TENSOR, ValueKind.ARRAY}:
            return part(node, base, indices, index)
        if base.kind is ValueKind.PLAIN:
            return PLAIN
        if base.kind is ValueKind.ITERABLE:
            return base.each or UNKNOWN
        if base.kind is ValueKind.MODULE:
            return module_of(home=path, frozen=base.frozen)
        if self.is_module_name(node):
            return module_of(home=path)
        found = _by_key(key) if isinstance(key, str) and base.kind is ValueKind.UNKNOWN else UNKNOWN
        if found.kind is ValueKind.UNKNOWN and base.kind is ValueKind.UNKNOWN and base.sources:
            found = found.having(graph=base.graph, sources=base.sources, tags=base.tags)
        return found if found.home or not path else found.having(home=path)

    # -- operators and displays ----------------------------------------------------------------------------------------

    def _display(self, node: cst.Tuple | cst.List | cst.Set, state: State) -> TensorState:
        parts: list[tuple[object, TensorState]] = []
        inside: TensorState | None = None
        for number, element in enumerate(node.elements):
            held = self.value(element.value, state)
            if isinstance(element, cst.StarredElement):
                inside = join(inside, held.any() if held.kind is ValueKind.PACK else held.each or held)
            else:
                parts.append((number, held))
        found = pack(parts)
        if isinstance(node, cst.List):
            found = found.having(moved="list")
        return found.having(inside=inside, exact=False) if inside is not None or len(parts) != len(found.items) else found

    def _dictionary(self, node: cst.Dict, state: State) -> TensorState:
        parts: list[tuple[object, TensorState]] = []
        inside: TensorState | None = None
        for element in node.elements:
            held = self.value(element.value, state)
            if isinstance(element, cst.DictElement):
                key = constant_key(element.key)
                if key is UNKNOWN_KEY:
                    inside = join(inside, held)
                else:
                    parts.append((key, held))
            else:
                inside = join(inside, held.any() if held.kind is ValueKind.PACK else UNKNOWN)
        found = pack(parts)
        return found.having(inside=inside, exact=False) if inside is not None else found

    def row_of(self, held: TensorState) -> TensorState:
        """What is put where all elements of a value are: numbers where it is nothing but numbers, as `tolist()` gives."""
        if held.kind is ValueKind.PACK:
            return held.any()
        return held if held.kind is ValueKind.PLAIN else self.element_of(held)

    @staticmethod
    def element_of(held: TensorState) -> TensorState:
        """What going through a value gives."""
        if held.each is not None:
            return held.each
        if held.kind is ValueKind.PACK:
            return held.any().having(home=(*held.home, "*") if held.home else ())
        if held.kind is ValueKind.ARRAY and held.size in {SampleSize.SMALL, SampleSize.SCALAR}:
            return PLAIN  # the elements of a vector are numbers of their own
        if held.kind in {ValueKind.TENSOR, ValueKind.ARRAY}:
            return held.having(view=held.view or held.size is SampleSize.DENSE, home=(), size=SampleSize.SCALAR if held.size is SampleSize.SMALL else held.size)
        if held.kind is ValueKind.OPAQUE:
            return held.having(home=())
        if held.kind is ValueKind.MODULE:  # only modules that hold others can be gone through
            return TensorState(ValueKind.MODULE, frozen=held.frozen, sure=held.sure)
        return UNKNOWN

    # -- what only a tensor can be -------------------------------------------------------------------------------------

    def note_tensor(self, node: cst.BaseExpression, held: TensorState) -> None:
        """Note that an element of a batch is used as only a tensor can be."""
        if held.kind is ValueKind.OPAQUE and isinstance(node, cst.Name | cst.Subscript | cst.Attribute):
            self.record.proven.add((self.act.scope, self.code(node).strip()))

    def note_tensors(self, node: cst.Call, given: list[TensorState]) -> None:
        """The same of all arguments of a call."""
        for arg, held in zip(node.args, given, strict=True):
            if not arg.star:
                self.note_tensor(arg.value, held)


def _as_recorded(found: TensorState, state: State) -> TensorState:
    """What an operation gives in the mode of a state, which is not asked for where no graph is in question."""
    if state.mode is Mode.ON or (found.carries is Graph.NO and not found.all_sources):
        return found
    return found.unrecorded() if known_mode(state.mode) is Mode.OFF else found


def _of_pair(base: TensorState, word: str) -> TensorState:
    """``.values`` and ``.indices`` of a (values, indices) result that was not taken apart."""
    return base if word == "values" else base.without_graph(size=SampleSize.SMALL)


def _by_key(key: str) -> TensorState:
    """What the key says of an element of something unknown."""
    return UNKNOWN.having(size=_size_by_name(key, UNKNOWN.size))


def _arithmetic(left: TensorState, right: TensorState) -> TensorState:
    """What an operator makes of two values: a tensor, or a longer container."""
    if left.kind is ValueKind.PACK or right.kind is ValueKind.PACK:
        packs = [held for held in (left, right) if held.kind is ValueKind.PACK]
        if len(packs) == 2:  # noqa: PLR2004 - both sides: a longer list
            return TensorState(ValueKind.PACK, inside=join(left.any(), right.any()), sure=True, tags=left.all_tags | right.all_tags)
        other = right if left.kind is ValueKind.PACK else left
        if other.kind is ValueKind.PLAIN:
            return packs[0].having(home=())
        if other.kind is ValueKind.UNKNOWN:
            return packs[0].having(home=(), sure=False)
    return mixed([left, right])


def _field_of_output(base: TensorState, word: str, path: Path) -> TensorState:
    """A field of what a network gives: as large as that, but for those whose names are known or say that they are small."""
    if word in STATES or word in STATES_OF_LAYERS:
        found = base.having(kind=ValueKind.TENSOR, size=SampleSize.DENSE, dims=MAP, sure=True, home=())
        return found if word in STATES else TensorState(ValueKind.PACK, inside=found)
    return base.having(size=_size_by_name(word, base.size), home=path)


def _size_by_name(word: str, otherwise: SampleSize) -> SampleSize:
    """How much a name says that there is for each sample."""
    if not word:
        return otherwise
    if SCALAR_NAME.search(word):
        return SampleSize.SCALAR
    if SMALL_NAME.search(word):
        return SampleSize.SMALL
    if DENSE_NAME.search(word):
        return SampleSize.DENSE if otherwise in {SampleSize.UNKNOWN, SampleSize.LEFT} else otherwise
    return otherwise


def named_size(word: str, held: TensorState) -> TensorState:
    """A value under the name that it is given: `loss` is one number, `labels` one a sample.

    Over one letter all that is known wins.
    """
    if len(word) == 1 and held.size is SampleSize.DENSE:
        return held
    if held.kind is ValueKind.OPAQUE and held.graph is Graph.YES and INTEGRAL_NAME.search(word):
        # One of several results of a module, by its name labels, lengths or indices: those have no graph.
        return held.having(size=SampleSize.SMALL, graph=Graph.MAYBE)
    if held.kind is ValueKind.OPAQUE or (held.kind is ValueKind.TENSOR and held.is_vague):
        return held.having(size=_size_by_name(word, held.size))
    if held.kind is ValueKind.TENSOR and held.size is SampleSize.DENSE and held.dims < MAP and (SCALAR_NAME.search(word) or SMALL_NAME.search(word)):
        if held.dims >= ROWS and SUMMARY_NAME.search(word):
            return held  # a row for each sample is no summary, though it may be one of labels
        return held.having(size=_size_by_name(word, held.size))
    return held


def _has_no_content(node: cst.BaseExpression) -> bool:
    """Whether it is a list of one ``None``."""
    only = node.elements[0].value if isinstance(node, cst.List) and len(node.elements) == 1 else None
    return isinstance(only, cst.Name) and only.value == "None"
