"""What counts: the number of a round, of what was kept so far, of the batch that a framework hands over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Event
    from oomlint.model.project import Module
    from oomlint.syntax.walk import Effect, Scope

_COUNTS: Final = frozenset({"range", "trange", "xrange", "count", "arange"})
_STEPS_SO_FAR: Final = frozenset({"global_step", "global_iter"})  # what trainers count themselves
_NUMBER_AT: Final = 2  # the parameters of a framework's step: the object, the batch, its number
_MADE: Final = frozenset({"__init__", "__post_init__"})
_DEEPEST: Final = 4  # assignments and calls that a number comes through


def counts_up(node: cst.BaseExpression) -> bool:
    """Whether a loop goes over numbers, behind a progress bar or not."""
    while isinstance(node, cst.Call) and node.args:
        if names.last_name(node.func) in _COUNTS:
            return True
        node = node.args[0].value
    return False


def numbered(node: cst.CSTNode) -> set[str]:
    """The name of the number that ``enumerate`` gives a round."""
    if not isinstance(node, cst.For) or not isinstance(node.target, cst.Tuple) or not isinstance(node.target.elements[0].value, cst.Name):
        return set()
    here = node.iter
    while isinstance(here, cst.Call) and here.args:
        if names.last_name(here.func) == "enumerate":
            return {node.target.elements[0].value.value}
        here = here.args[0].value
    return set()


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a test stands: a function, the loop whose rounds matter where it stands in one, and the call that led to the function."""

    module: Module
    scope: Scope
    node: cst.CSTNode
    loop: cst.CSTNode | None = None  # one of this function
    called: tuple[Spot, cst.Call] | None = None
    is_step: bool = False  # a framework calls the function for each batch


def spots_of(event: Event, loop: cst.CSTNode | None = None) -> list[Spot]:
    """Where an event happens, and the calls that led to it, the outermost first."""
    found: list[Spot] = []
    called: tuple[Spot, cst.Call] | None = None
    for module, node, call in (*((via.module, via.call, via.call) for via in event.via), (event.module, event.node, None)):
        scope = module.walk.scope_at(node)
        inside = loop is not None and (node is loop or loop in module.walk.ancestors(node))
        here = Spot(module, scope, node, loop if inside else None, called, is_step=not found and isinstance(loop, cst.FunctionDef | None))
        found.append(here)
        called = (here, call) if call is not None else None
    return found


def counts(node: cst.BaseExpression, spot: Spot, depth: int = 0) -> bool:
    """Whether an expression says how many rounds there were, or how much is kept: a length, the number of a round, what each round adds to."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Call):
        return names.last_name(node.func) == "len"
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, cst.Add | cst.Multiply) and counts(node.left, spot, depth)
    if isinstance(node, cst.Attribute):
        return node.attr.value in _STEPS_SO_FAR or any(_adds(effect) for effect in _changes(node, spot))
    if not isinstance(node, cst.Name):
        return False
    effects = _own_effects(node.value, spot)
    for effect in effects:
        statement = effect.statement
        if spot.loop is None or statement is spot.loop or spot.loop in spot.module.walk.ancestors(statement):
            if _adds(effect):
                return True
            if isinstance(statement, cst.For) and (node.value in numbered(statement) or (isinstance(statement.target, cst.Name) and counts_up(statement.iter))):
                return True
    values = [effect.value for effect in effects if effect.kind == "assign" and not effect.index and effect.value is not None]
    if values and len(values) == len(effects):
        return any(counts(value, spot, depth + 1) for value in values)
    return _is_given(node.value, spot, depth)


def _own_effects(name: str, spot: Spot) -> list[Effect]:
    """What binds a name, in the function or in the one around it whose name it is."""
    here: Scope | None = spot.scope
    while here is not None:
        found = [effect for effect in here.effects.get(name, ()) if not effect.path]
        if found or any(param.name.value == name for param in names.parameters(here)):
            return found
        here = here.parent
    return []


def _changes(node: cst.Attribute, spot: Spot) -> Iterator[Effect]:
    """What changes an attribute of the object, in any method of its class."""
    owner = spot.scope.parent if isinstance(node.value, cst.Name) and node.value.value == names.self_name(spot.scope) else None
    for scope in (spot.scope,) if owner is None else owner.children:
        root = names.self_name(scope) if owner is not None else node.value.value if isinstance(node.value, cst.Name) else None
        yield from (effect for effect in scope.effects.get(root or "", ()) if effect.path == (("attr", node.attr.value),))


def _adds(effect: Effect) -> bool:
    """Whether a statement adds to a number."""
    if effect.kind == "augment":
        return isinstance(effect.node, cst.AugAssign) and isinstance(effect.node.operator, cst.AddAssign)
    value = effect.value
    return (
        effect.kind == "assign"
        and isinstance(value, cst.BinaryOperation)
        and isinstance(value.operator, cst.Add)
        and isinstance(value.right, cst.Integer)
        and names.last_name(value.left) == (effect.path[-1][1] if effect.path else effect.root)
    )


def _is_given(name: str, spot: Spot, depth: int) -> bool:
    """Whether the call that led to the function gives a parameter a count, or a framework numbers its batches by it."""
    parameters = [param.name.value for param in names.parameters(spot.scope)]
    if name not in parameters:
        return False
    place = parameters.index(name)
    if spot.called is None:
        return spot.is_step and names.is_method(spot.scope) and place >= _NUMBER_AT
    caller, call = spot.called
    place -= names.is_method(spot.scope)
    given = next((arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)
    if given is None:
        plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        given = plain[place] if 0 <= place < len(plain) else None
    return given is not None and counts(given, caller, depth + 1)


def switched(node: cst.BaseExpression, spot: Spot) -> bool:
    """Whether a name or attribute is one that the rounds themselves change: ``if not done:`` with ``done = True`` in the loop, ``if not self.first:``."""
    if isinstance(node, cst.Attribute):
        return any(spot.module.walk.scope_at(effect.statement).name not in _MADE for effect in _changes(node, spot))
    if not isinstance(node, cst.Name):
        return False
    return any(spot.loop is None or spot.loop in spot.module.walk.ancestors(effect.statement) for effect in _own_effects(node.value, spot))
