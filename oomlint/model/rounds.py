"""What comes from a round of a loop: its target, what the target picks out of something, what the body draws again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import DRAWS
from oomlint.model import names
from oomlint.model.counters import counts_up, numbered
from oomlint.model.tensor_shapes import rows_of
from oomlint.model.torch_tables import CASTS, PAIRS, PLAIN_METHODS, REDUCTIONS, SMALL_METHODS, TO_DEVICE, VIEWS
from oomlint.syntax.nodes import children_of, descend, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.events import Forward, Loop
    from oomlint.syntax.scopes import Scope

_DRAWS: Final = DRAWS | {"randperm", "rand_like", "randn_like", "choice"}  # another thing in each call
_MAKERS: Final = frozenset({"torch", "np", "numpy", "int", "float", "str", "len", "range", "print"})  # of tensors and numbers, from a number
# Methods without arguments that change a tensor, or ask what it or a module is.
_SAME: Final = (
    PLAIN_METHODS
    | SMALL_METHODS
    | REDUCTIONS
    | VIEWS
    | CASTS
    | TO_DEVICE
    | PAIRS
    | frozenset("clone detach cpu numpy copy eval train parameters named_parameters state_dict items values modules children sigmoid softmax time now".split())
)
_DEEPEST: Final = 5  # functions between a loop and the call of a module
_MOST_PASSES: Final = 4  # of the statements of a body, until no more names depend on the target

# What a block binds: names and attributes, the expressions that they are bound to, and the loop whose targets they are.
Flows = list[tuple[frozenset[str], tuple[cst.CSTNode, ...], cst.CSTNode | None]]


class Round(Struct, frozen=True):
    """Names that hold data of a round, and names that hold its number."""

    data: frozenset[str]
    numbers: frozenset[str]

    def gives(self, node: cst.CSTNode) -> bool:
        """Whether an expression is data of the round."""
        return _depends(node, self.data) or (bool(self.numbers) and _picks(node, self.numbers))

    def spread(self, flows: Flows, inner: Iterable[cst.CSTNode]) -> Round:
        """The same with all names that depend on these, directly or through each other; not through the targets of the loops ``inner``."""
        data, numbers = set(self.data), set(self.numbers)
        skipped = set(inner)
        for _ in range(_MOST_PASSES):
            size = len(data) + len(numbers)
            here = Round(frozenset(data), frozenset(numbers))
            for bound, values, loop in flows:
                if loop in skipped or bound <= data:
                    continue
                if any(here.gives(value) for value in values):
                    data |= bound
                elif here.numbers and any(_depends(value, here.numbers) for value in values):
                    numbers |= bound
            if len(data) + len(numbers) == size:
                break
        return Round(frozenset(data), frozenset(numbers - data))


def is_chained(loop: Loop, event: Forward) -> bool:
    """Whether a module's call goes on from what it gave in the round before: all that the loop does are steps of one chain."""
    level = len(loop.via)
    if loop.loader is not None or level > len(event.via):
        return False
    call = event.via[level].call if level < len(event.via) else event.node
    return isinstance(call, cst.Call) and body_of(loop).carried(call, body_of(loop).spread(()))


def takes(loop: Loop, event: Forward) -> bool:
    """Whether a module's call is given something that comes from the loop's round."""
    chain = [*event.via, None]
    level = len(loop.via)
    if len(chain) - level > _DEEPEST or level >= len(chain):
        return False
    inner = {other.node for other in event.loops[event.loops.index(loop) + 1 :]}
    body = body_of(loop)
    here = body.spread(inner)
    for via in chain[level:]:
        call = event.node if via is None else via.call
        if not isinstance(call, cst.Call):
            return False
        if via is None or via.callee is None:
            return _given(call, here, body.targets) or any(_is_noise(part) for arg in call.args for part in descend(arg))
        flows = _flows(via.callee.suite, via.callee)
        here = _handed(call, via.callee, here)
        here = Round(here.data | _noise(via.callee, flows), here.numbers)
        here = here.spread(flows, inner)
    return False


def dependents(scope: Scope, given: Iterable[str]) -> frozenset[str]:
    """Names and attributes of a function that depend on these, and these."""
    return Round(frozenset(given), frozenset()).spread(_flows(scope.suite, scope), ()).data


def body_of(loop: Loop) -> Body:
    """What the names of a loop's body depend on, worked out once."""
    if loop.body is None:
        loop.body = Body(loop)
    return loop.body  # type: ignore[return-value]


class Body:
    """What the names of a loop's body depend on."""

    def __init__(self, loop: Loop) -> None:
        node = loop.node
        self.scope, self.passes = loop.scope, loop.passes
        self.node, self.repeated = node, loop.repeated
        self.flows = _flows(loop.repeated, loop.scope)
        targets = set(_bound(node.target)) if isinstance(node, cst.For | cst.CompFor) else set()
        self.targets = frozenset(targets)
        iterable = loop.iterable
        numbers = targets if iterable is not None and (loop.counts or counts_up(iterable)) else numbered(node)
        if isinstance(node, cst.While):
            numbers = {part.target.value for part in descend(node.body) if isinstance(part, cst.AugAssign) and isinstance(part.target, cst.Name)}
        numbers = numbers | self._advanced(loop.repeated)
        data = targets - numbers
        if not data or not uses_name(loop.repeated, data):
            data = data | self._drawn()
        if loop.counts and iterable is not None:
            data = data | _as_long(iterable, loop.scope)
        self.round = Round(frozenset(data), frozenset(numbers))
        self._spread: dict[frozenset[cst.CSTNode], Round] = {}

    def spread(self, inner: Iterable[cst.CSTNode]) -> Round:
        """What comes from the round, but not through the targets of the loops ``inner``."""
        key = frozenset(inner)
        known = self._spread.get(key)
        if known is None:
            known = self._spread[key] = self.round.spread(self.flows, key)
        return known

    def _advanced(self, body: cst.CSTNode) -> set[str]:
        """Ends of slices that the body moves on by itself: ``start += size``, or ``end = start + size`` and then ``start = end``."""
        slices = [part for part in descend(body, into_scopes=False) if isinstance(part, cst.Slice)]
        ends = {word for part in slices for end in (part.lower, part.upper) if end is not None for word in _mentioned(end)}
        if not ends:
            return set()
        stepped = {word for part in descend(body, into_scopes=False) if isinstance(part, cst.AugAssign) for word in _bound(part.target)}
        return {word for word in ends if word in stepped or word in self._sources(word)[0]}

    def _drawn(self) -> set[str]:
        """Names that get another thing in each round, whatever the loop goes over; what a loop inside draws for passes of its own is a round of that."""
        found: set[str] = set()
        apart = self._apart()
        own = frozenset().union(*(bound for bound, _, loop in self.flows if not isinstance(loop, cst.Expr)))
        for bound, values, loop in self.flows:
            if loop is None and apart.isdisjoint(values) and any(self._draws(part, own) for value in values for part in descend(value, into_scopes=False)):
                found |= bound
        return found

    def _apart(self) -> set[cst.CSTNode]:
        """What stands in loops inside that run a module."""
        inside = (list(descend(node)) for node in descend(self.repeated, into_scopes=False) if isinstance(node, cst.For | cst.While) and node is not self.node)
        return {part for parts in inside if not self.passes.isdisjoint(parts) for part in parts}

    def _draws(self, node: cst.CSTNode, own: frozenset[str]) -> bool:
        """Whether a call gives another thing each time; so does an object that is asked the same in each round: ``loader.get_batch(split)``."""
        if _draws(node, own):
            return True
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or not node.args or node in self.passes:
            return False
        root = names.dotted(node.func.value).partition(".")[0]
        if not root or node.func.attr.value in _SAME or _is_imported(root, self.scope):
            return False
        return not any(_depends(part, own) for part in (node.func.value, *(arg.value for arg in node.args)))

    def carried(self, call: cst.Call, here: Round) -> bool:
        """Whether a call is given what an earlier round made, and besides no more than the number of the round: a recurrence, a chain of steps."""
        given = {word for arg in call.args for word in _mentioned(arg.value)}
        around = {name for name in given if name not in self.targets and self._comes_around(name)}
        if not around:
            return False
        every = here.data | here.numbers
        picked = (bound for bound, values, loop in self.flows if loop is None and any(_picks(value, every) and not _fills(value) for value in values))
        fresh = {name for bound in picked for name in bound}
        parts = (arg.value for arg in call.args if not isinstance(arg.value, cst.Name))
        return not ((given - around) & (fresh - around)) and not any(_depends(node, self.targets & here.data) for node in parts)

    def _comes_around(self, name: str) -> bool:
        """Whether what a name holds depends on what it held the round before, by a call."""
        more, values = self._sources(name)
        return name in more and self._read_first(name) and any(isinstance(part, cst.Call) for value in values for part in descend(value))

    def _sources(self, name: str) -> tuple[set[str], list[cst.CSTNode]]:
        """Names that what a name is bound to depends on, directly or not, and the expressions that say so."""
        reach: set[str] = {name}
        values: list[cst.CSTNode] = []
        more: set[str] = set()
        for _ in range(_MOST_PASSES):
            values = [value for bound, given, loop in self.flows if loop is None and bound & reach for value in given]
            more = {word for value in values for word in _mentioned(value)}
            if more <= reach:
                break
            reach |= more
        return more, values

    def _read_first(self, name: str) -> bool:
        """Whether a round reads a name ahead of binding it."""
        for bound, values, _ in self.flows:
            if any(name in _mentioned(value) for value in values):
                return True
            if name in bound:
                return False
        return False


def _as_long(node: cst.BaseExpression, scope: Scope) -> set[str]:
    """What a loop goes round for each row of: ``range(len(x))``, ``range(x.shape[0])``, also by a name for that number."""
    end = node.args[-1].value if isinstance(node, cst.Call) and len(node.args) == 1 and names.last_name(node.func) in {"range", "trange"} else None
    if isinstance(end, cst.Name):
        bound = [effect.value for effect in scope.effects.get(end.value, ()) if not effect.path and not effect.index]
        end = bound[0] if len(bound) == 1 else None
    whole = rows_of(end)
    return set(_bound(whole)) if whole is not None else set()


def _picks(node: cst.CSTNode, numbers: frozenset[str]) -> bool:
    """Whether an expression is what a number picks: an element, a slice, what a function gives for it that is no maker of tensors."""
    for part in descend(node, into_scopes=False):
        if isinstance(part, cst.Subscript) and any(_depends(index, numbers) for index in _rows(part)):
            return True
        if (
            isinstance(part, cst.Call)
            and names.dotted(part.func).partition(".")[0] not in _MAKERS
            and not (isinstance(part.func, cst.Attribute) and _depends(part.func.value, numbers))
            and any(_depends(arg.value, numbers) for arg in part.args)
        ):
            return True
    return False


def _fills(node: cst.CSTNode) -> bool:
    """Whether a tensor is made of one number: ``torch.full((b,), steps[i])``."""
    return isinstance(node, cst.Call) and names.last_name(node.func) in {"full", "full_like"}


def _draws(node: cst.CSTNode, own: frozenset[str]) -> bool:
    """Whether a call gives another thing each time: ``next(it)``, ``sample()``, ``video.read()``, fresh noise; not what a body asks of its ``own`` things."""
    if not isinstance(node, cst.Call):
        return False
    word = names.last_name(node.func)
    if word == "next":
        return bool(node.args) and not isinstance(node.args[0].value, cst.Call)
    if word in _DRAWS:
        return True
    if node.args or word[:1].isupper() or (isinstance(node.func, cst.Attribute) and (word in _SAME or _depends(node.func.value, own))):
        return False
    return isinstance(node.func, cst.Name | cst.Attribute)


def _is_noise(node: cst.CSTNode) -> bool:
    """Whether a call draws random numbers."""
    return isinstance(node, cst.Call) and names.last_name(node.func).rstrip("_") in _DRAWS


def _noise(scope: Scope, flows: Flows) -> frozenset[str]:
    """Names of a function that hold what each call of it draws again, in place (``z.sample_()``) or not."""
    drawn = {name for bound, values, _ in flows if any(_is_noise(part) for value in values for part in descend(value)) for name in bound}
    for call in scope.calls:
        if isinstance(call.func, cst.Attribute) and not call.args and (call.func.attr.value == "sample_" or _is_noise(call)):
            drawn.update(_bound(call.func.value))
    return frozenset(drawn)


def _given(call: cst.Call, here: Round, targets: frozenset[str]) -> bool:
    """Whether an argument of a module's call is data of the round; a bare target behind another argument only picks a part of the module."""
    for number, arg in enumerate(call.args):
        if here.gives(arg.value) and not (number and isinstance(arg.value, cst.Name) and arg.value.value in targets and len(targets) == 1):
            return True
    return isinstance(call.func, cst.Attribute) and not call.args and here.gives(call.func.value)


def _handed(call: cst.Call, callee: Scope, here: Round) -> Round:
    """Parameters of a function that hold data of the round, or its number."""
    data: set[str] = set()
    numbers: set[str] = set()
    own = names.self_name(callee)
    free = [param.name.value for param in names.parameters(callee) if param.name.value != own]
    for arg in call.args:
        into = data if here.gives(arg.value) else numbers if _depends(arg.value, here.numbers) else set()
        if arg.star:
            into.update(free)
        elif arg.keyword is not None:
            into.add(arg.keyword.value)
        elif free:
            into.add(free.pop(0))
    if own is not None and isinstance(call.func, cst.Attribute) and here.gives(call.func.value):
        data.add(own)
    return Round(frozenset(data), frozenset(numbers))


def _depends(node: cst.CSTNode, taken: frozenset[str]) -> bool:
    return bool(taken) and not taken.isdisjoint(_mentioned(node))


def _mentioned(node: cst.CSTNode) -> Iterator[str]:
    """Names and attributes that the data of an expression comes from: not what is called, nor the index that picks a column."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, cst.Name):
            yield here.value
        elif isinstance(here, cst.Attribute):
            code = names.dotted(here)
            if code:
                parts = code.split(".")
                yield from (".".join(parts[: n + 1]) for n in range(len(parts)))
            else:
                stack.append(here.value)
        elif isinstance(here, cst.Call):
            stack.extend(arg.value for arg in here.args)
            if isinstance(here.func, cst.Attribute):
                stack.append(here.func.value)
            elif not isinstance(here.func, cst.Name):
                stack.append(here.func)
        elif isinstance(here, cst.Subscript):
            stack.append(here.value)
            stack.extend(_rows(here))
        elif isinstance(here, cst.BaseComp):
            own = {word for part in descend(here) if isinstance(part, cst.CompFor) for word in _bound(part.target)}
            yield from (word for part in children_of(here) for word in _mentioned(part) if word.partition(".")[0] not in own)
        elif not isinstance(here, cst.Lambda):
            stack.extend(children_of(here))


def _rows(node: cst.Subscript) -> list[cst.BaseSlice]:
    """The index along the first axis: what comes later picks columns. Behind all of the first, a window is one of a sequence: ``ids[:, i : i + width]``."""
    found = [element.slice for element in node.slice]
    given = [index for index in found if not (isinstance(index, cst.Index) and isinstance(index.value, cst.Name) and index.value.value == "None")]
    if len(given) > 1 and _is_all(given[0]) and isinstance(given[1], cst.Slice) and given[1].lower is not None and given[1].upper is not None:
        return given
    return given[:1]


def _is_all(index: cst.BaseSlice) -> bool:
    return isinstance(index, cst.Slice) and index.lower is index.upper is None


def _flows(body: cst.CSTNode, scope: Scope) -> Flows:
    """What the statements of a block bind to what, in their order; worked out once."""
    known = scope.flows.get(body)
    if known is None:
        known = scope.flows[body] = _bindings(body, scope)
    return known  # type: ignore[return-value]


def _bindings(body: cst.CSTNode, scope: Scope) -> Flows:
    found: Flows = []
    for node in descend(body, into_scopes=False):
        if isinstance(node, cst.Assign):
            found.append((frozenset(word for target in node.targets for word in _bound(target.target)), (node.value,), None))
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr | cst.AugAssign) and node.value is not None:
            found.append((frozenset(_bound(node.target)), (node.value,), None))
        elif isinstance(node, cst.For | cst.CompFor):
            found.append((frozenset(_bound(node.target)), (node.iter,), node))
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            found.append((frozenset(_bound(node.asname.name)), (node.item,), None))
        elif isinstance(node, cst.Expr) and isinstance(node.value, cst.Call) and isinstance(node.value.func, cst.Attribute) and node.value.args:
            # `model.set_input(batch)`: the object has it from now on. A module has not: `torch.save(weights, path)`.
            target = _written(node.value.func.value)
            if not _is_imported(names.dotted(target).partition(".")[0], scope):
                found.append((frozenset(_bound(target)), tuple(arg.value for arg in node.value.args), node))
    return found


def _written(node: cst.BaseExpression) -> cst.BaseExpression:
    """What a method changes, ahead of methods that give the same tensor back, and of its data: ``x`` of ``x.data.resize_(size).copy_(y)``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_"):
        node = node.func.value
    return node.value if isinstance(node, cst.Attribute) and node.attr.value == "data" else node


def _is_imported(name: str, scope: Scope) -> bool:
    """Whether a name is that of an imported module."""
    here: Scope | None = scope
    while here is not None:
        if here.sets(name):
            return all(effect.kind == "import" for effect in here.effects[name] if not effect.path)
        here = here.parent
    return False


def _bound(target: cst.CSTNode) -> Iterator[str]:
    """Names and attributes that a target binds."""
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, cst.Attribute):
        code = names.dotted(target)
        if code:
            yield code
    elif isinstance(target, cst.Subscript | cst.StarredElement):
        yield from _bound(target.value)
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _bound(element.value)
