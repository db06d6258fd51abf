"""What counts: the number of a round, of what was kept so far, of the batch that a framework hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.model import arguments, names
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Event
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

_COUNTS: Final = frozenset({"range", "trange", "xrange", "count", "arange"})
_STEPS_SO_FAR: Final = frozenset({"global_step", "global_iter"})  # what trainers count themselves
_NUMBER_AT: Final = 2  # of the parameters of a framework's step: the object, the batch, its number
_SIZES: Final = frozenset({"len", "size", "shape", "numel"})
_DEEPEST: Final = 4  # assignments and calls that a number comes through


def counts_up(node: cst.BaseExpression) -> bool:
    """Whether a loop goes over numbers, behind a progress bar or not."""
    while isinstance(node, cst.Call) and node.args:
        if names.last_name(node.func) in _COUNTS:
            return True
        node = node.args[0].value
    return False


def numbered(node: cst.CSTNode) -> set[str]:
    """The name of the number that ``enumerate`` gives a round, or a range beside its data."""
    if not isinstance(node, cst.For | cst.CompFor) or not isinstance(node.target, cst.Tuple) or not isinstance(node.target.elements[0].value, cst.Name):
        return set()
    here = node.iter
    while isinstance(here, cst.Call) and here.args:
        called = names.last_name(here.func)
        if called == "enumerate" or (called == "zip" and counts_up(here.args[0].value)):
            return {node.target.elements[0].value.value}
        here = here.args[0].value
    return set()


def counts_rounds(loop: cst.CSTNode, name: str) -> bool:
    """Whether a name of a loop's target is a number that goes up: that of ``range``, or the one that ``enumerate`` gives."""
    return name in numbered(loop) or (isinstance(loop, cst.For | cst.CompFor) and isinstance(loop.target, cst.Name) and counts_up(loop.iter))


class TestSpot(Struct, frozen=True):
    """Where a test stands: a function, the loop whose rounds matter where it stands in one, and the call that led to the function."""

    module: Module
    scope: Scope
    node: cst.CSTNode
    loop: cst.CSTNode | None = None  # one of this function
    called: tuple[TestSpot, cst.Call] | None = None
    is_step: bool = False  # a framework calls the function for each batch

    def repeats(self, effect: Effect) -> bool:
        """Whether a round does something: it stands in the loop. A function that the rounds call does all of its own in each."""
        return self.loop is not None and (effect.statement is self.loop or self.loop in self.module.walk.ancestors(effect.statement))


def spots_of(event: Event, loop: cst.CSTNode | None = None) -> list[TestSpot]:
    """Where each round does something: in the loop itself, then in the functions that it calls. What is around the loop says nothing of its rounds."""
    found: list[TestSpot] = []
    called: tuple[TestSpot, cst.Call] | None = None
    for module, node, call in (*((via.module, via.call, via.call) for via in event.via), (event.module, event.node, None)):
        inside = loop is not None and (node is loop or loop in module.walk.ancestors(node))
        if not found and not inside and isinstance(loop, cst.For | cst.While):
            continue
        whole = None if isinstance(loop, cst.For | cst.While) else module.walk.scope_at(node).node
        here = TestSpot(
            module, module.walk.scope_at(node), node, loop if inside else whole if not found else None, called, is_step=not found and whole is not None
        )
        found.append(here)
        called = (here, call) if call is not None else None
    return found


def counts(node: cst.BaseExpression, spot: TestSpot, depth: int = 0) -> bool:
    """Whether an expression says how many rounds there were, or how much is kept: a length, the number of a round, what each round adds to."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Call):
        if names.last_name(node.func) == "sum" and node.args:
            return any(isinstance(part, cst.Call) and names.last_name(part.func) == "len" for part in descend(node.args[0].value))
        return names.last_name(node.func) == "len" and bool(node.args) and _lasts(node.args[0].value, spot, depth)
    if isinstance(node, cst.BinaryOperation):
        sums = isinstance(node.operator, cst.Add | cst.Multiply)
        return sums and (counts(node.left, spot, depth + 1) or counts(node.right, spot, depth + 1))
    if isinstance(node, cst.Attribute):
        at = spot.module.walk.scope_at
        return node.attr.value in _STEPS_SO_FAR or any(_adds(effect) for effect in _changes(node, spot) if at(effect.statement).name != "__init__")
    if not isinstance(node, cst.Name):
        return False
    effects = _own_effects(node.value, spot)
    repeated = [effect for effect in effects if spot.repeats(effect)]
    if repeated and all(_adds(effect) for effect in repeated):
        return True
    if spot.loop is not None and any(_numbers(effect.statement, node.value, spot) for effect in effects):
        return True
    values = [effect.value for effect in effects if effect.kind == "assign" and not effect.index and effect.value is not None]
    if values and len(values) == len(effects):
        return any(counts(value, spot, depth + 1) for value in values)
    given = _given(node.value, spot)
    if given is not None:
        return counts(given[0], given[1], depth + 1)
    return not effects and spot.called is None and spot.is_step and names.is_method(spot.scope) and _place(node.value, spot) == _NUMBER_AT


def _numbers(loop: cst.CSTNode, name: str, spot: TestSpot) -> bool:
    """Whether a name is the number of a round: of the loop, or of one around it that numbers its data. An outer range says how often all is done again."""
    if not isinstance(loop, cst.For) or spot.loop is None:
        return False
    if loop is spot.loop:
        return counts_rounds(loop, name)
    return name in numbered(loop) and loop in spot.module.walk.ancestors(spot.loop)


def _lasts(node: cst.BaseExpression, spot: TestSpot, depth: int) -> bool:
    """Whether a container is there for all rounds: none of them binds its name, so its length is what they have put in."""
    if not isinstance(node, cst.Name):
        return isinstance(node, cst.Attribute | cst.Subscript)
    if any(spot.repeats(effect) for effect in _own_effects(node.value, spot) if effect.kind in {"assign", "for", "with"}):
        return False
    given = _given(node.value, spot)
    return given is None or (depth <= _DEEPEST and _lasts(given[0], given[1], depth + 1))


def _own_effects(name: str, spot: TestSpot) -> list[Effect]:
    """What binds a name, in the function or in the one around it whose name it is."""
    here: Scope | None = spot.scope
    while here is not None:
        found = [effect for effect in here.effects.get(name, ()) if not effect.path]
        if found or name in names.takes(here):
            return found
        here = here.parent
    return []


def _changes(node: cst.Attribute, spot: TestSpot) -> Iterator[Effect]:
    """What changes an attribute of the object, in any method of its class."""
    owner = spot.scope.parent if isinstance(node.value, cst.Name) and node.value.value == names.self_name(spot.scope) else None
    for scope in (spot.scope,) if owner is None else owner.children:
        root = names.self_name(scope) if owner is not None else node.value.value if isinstance(node.value, cst.Name) else None
        yield from (effect for effect in scope.effects.get(root or "", ()) if effect.path == (("attr", node.attr.value),))


def _adds(effect: Effect) -> bool:
    """Whether a statement adds a number of things: one, a size, a number that somebody has set."""
    if effect.kind == "augment":
        adds = isinstance(effect.node, cst.AugAssign) and isinstance(effect.node.operator, cst.AddAssign)
        return adds and effect.value is not None and _is_size(effect.value)
    value = effect.value
    if effect.kind != "assign" or not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return False
    own = str(effect.path[-1][1]) if effect.path else effect.root
    for one, other in ((value.left, value.right), (value.right, value.left)):
        if isinstance(one, cst.Name | cst.Attribute) and names.last_name(one) == own:
            return _is_size(other)
    return False


def _is_size(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Integer | cst.Name):
        return True
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    return (isinstance(node, cst.Call) and names.last_name(node.func) in _SIZES) or (isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name))


def _place(name: str, spot: TestSpot) -> int:
    """Which parameter of the function a name is; -1 where it is none."""
    parameters = names.parameter_names(spot.scope)
    return parameters.index(name) if name in parameters else -1


def _given(name: str, spot: TestSpot) -> tuple[cst.BaseExpression, TestSpot] | None:
    """What the call that led to the function gives a parameter, and where that stands."""
    place = _place(name, spot)
    if place < 0 or spot.called is None:
        return None
    caller, call = spot.called
    place -= names.is_method(spot.scope)
    found = arguments.argument_for(call, name, place=place)
    return None if found is None else (found, caller)


def switched(node: cst.BaseExpression, spot: TestSpot) -> bool:
    """Whether a name or attribute is one that a round itself makes true, for all later ones: ``if not done:`` with ``done = True`` in the loop."""
    if isinstance(node, cst.Attribute):
        effects = [effect for effect in _changes(node, spot) if spot.module.walk.scope_at(effect.statement) is spot.scope]
    elif isinstance(node, cst.Name):
        effects = [effect for effect in _own_effects(node.value, spot) if spot.repeats(effect)]
    else:
        return False
    return bool(effects) and all(_makes_true(effect, spot) for effect in effects)


def _makes_true(effect: Effect, spot: TestSpot) -> bool:
    """Whether a statement makes what it changes true: it says so, asks a count, or puts something in."""
    if effect.kind != "assign":
        return effect.kind in {"append", "extend", "augment", "setitem"}
    value = effect.value
    if isinstance(value, cst.Comparison):
        return counts(value.left, spot) or any(counts(each.comparator, spot) for each in value.comparisons)
    return isinstance(value, cst.Name) and value.value == "True"
