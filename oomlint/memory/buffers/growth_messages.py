"""The sentences that the rules of growing state share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Role, Told
from oomlint.memory.buffers.growing_loops import handing_call
from oomlint.memory.buffers.joined_behind import joins_of
from oomlint.memory.facts import growth_facts
from oomlint.model import arguments, names
from oomlint.model.flow_loops import iterated
from oomlint.model.names import short
from oomlint.model.values import ExternalCall

if TYPE_CHECKING:
    from oomlint.finding import Message, Place, Weighs
    from oomlint.memory.buffers.growth import Growth
    from oomlint.model.events import Loop, Store, Via
    from oomlint.model.project import Module

_LONGEST: Final = 50  # characters of what is iterated


def loop_of(growth: Growth) -> str:
    """How the loop is called: by what it goes through."""
    node = growth.loop.node
    if isinstance(node, cst.FunctionDef):
        return f"the loop around `{node.name.value}`"
    return f"the loop over `{over(growth.loop)}`" if growth.loop.iterable is not None else "the loop"


def over(loop: Loop) -> str:
    """What a loop goes through, without progress bars and the like around it; the test of a ``while``."""
    node = loop.node
    if isinstance(node, cst.FunctionDef):
        return loop.name
    if isinstance(node, cst.While):
        return short(loop.module.code(node.test), _LONGEST)
    # By a function that is given a model and a loader, or a method that is given a size: what it is given is not what is gone through.
    whole = loop.generated or loop.loader is None
    return short(loop.module.code(names.iterated(node.iter) if whole else iterated(node.iter)[1]), _LONGEST)


def target_of(store: Store) -> str:
    """What is added to, as it is written."""
    if store.target is not None:
        return short(_written(store.target, store))
    root, *rest = store.path
    bound = isinstance(store.node, cst.Return | cst.BaseComp | cst.BinaryOperation | cst.Call) and isinstance(root, tuple)
    return ".".join(map(str, (root[1], *rest))) if bound and isinstance(root, tuple) else "it"


def what_of(store: Store) -> str:
    """What is added, as it is written."""
    added = store.node.value if store.expression is None and isinstance(store.node, cst.AugAssign) else store.expression
    if store.kind == "metric" and isinstance(store.node, cst.Call) and store.node.args:
        added = store.node.args[0].value
    return short(_written(added, store), 50) if added is not None else "what is added"


def deleted_late(growth: Growth) -> str:
    """A half sentence for a program that deletes what grew when the loop is over; empty where it does not."""
    target = target_of(growth.store)
    walk = growth.loop.module.walk
    scope = walk.scope_at(growth.loop.node)
    for effect in scope.effects.get(target, ()) if scope.is_function else ():
        if effect.kind == "delete" and not effect.path and growth.loop.node not in walk.ancestors(effect.node):
            return "; `del` of the local comes too late"
    return ""


def _written(node: cst.CSTNode, store: Store) -> str:
    """The code of a node; of a parameter, what it is given by the call that is told of, and of an object's own attribute, that of the object."""
    via = handing_call(store) or _meter_call(store)
    root = node
    while isinstance(root, cst.Attribute | cst.Subscript):
        root = root.value
    if via is not None and via.callee is not None and isinstance(root, cst.Name):
        params = names.parameter_names(via.callee)[names.is_method(via.callee) :]
        given = arguments.argument_for(via.call, root.value, place=params.index(root.value) if root.value in params else -1)
        if given is not None:
            return via.module.code(given).strip()
        if root.value == names.self_name(via.callee) and isinstance(via.call.func, cst.Attribute):
            return via.module.code(via.call.func.value).strip() + store.module.code(node).strip().removeprefix(root.value)
    return store.module.code(node).strip()


def _meter_call(store: Store) -> Via | None:
    """The call of a method of another object, which keeps what it is given."""
    via = store.via[-1] if store.via else None
    return via if via is not None and via.this and store.path[: len(via.this)] == via.this and store.scope is via.callee else None


def advice(growth: Growth) -> str:
    """What to do about a metric that keeps all; empty where the rule's own words hold."""
    return "give the metric `thresholds`, so that it counts, or reduce the maps first" if growth.facts.get("metric") else ""


def kept(growth: Growth) -> str:
    """What stays of each step's graph."""
    if growth.freed:
        return "backward frees activations, but the graph nodes of every step stay"
    return "no backward frees it, so the activations of every step stay in memory"


def _related(growth: Growth, module: Module) -> list[Place]:
    """The loop's other statements of the same rule and what the loop keeps besides."""
    found = [module.place(node).saying("here, too", Role.AGAIN) for node in growth.others]
    beside = growth.facts.get("beside")
    if isinstance(beside, list):
        found += [module.place(store.node, "kept as well") for store in beside]
    made = growth.store.before.value if growth.facts.get("metric") else None
    if isinstance(made, ExternalCall):
        found.append(made.frame.module.place(made.call, "it keeps all until it is reset"))
    if growth.code in {"OOM219", "OOM220"}:
        calls = joins_of(growth.stores, growth.loop)
        rows = {module.place(call).row: call for call in reversed(calls)}  # one place a row
        joined = (module.place(rows[row], "joined here: until the list is gone, all of it is in memory twice") for row in sorted(rows))
        found[len(growth.others) :] = [*joined, *found[len(growth.others) :]]
    return found


def told(growth: Growth, module: Module, message: Message, weighs: Weighs | None = None) -> Told:
    """Where a growth is, how grave and how sure that is, what belongs to it, and what is known of it."""
    related = tuple(_related(growth, module))
    return Told(module.place(growth.node), message, growth.severity, growth.confidence, related, facts=growth_facts(growth), weighs=weighs)
