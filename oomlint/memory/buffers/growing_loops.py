"""The loops over batches in which a buffer grows: it is not made again in them, and each batch adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.frameworks import LOSS_METHODS
from oomlint.memory.buffers.buffer_readers import mentions
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind as Content
from oomlint.model import names
from oomlint.model.counters import spots_of
from oomlint.model.lifetime import only_at_first
from oomlint.model.rounds import dependents
from oomlint.model.tensor_state import ValueKind
from oomlint.syntax.nodes import descend, names_in, parts_of, path_of

if TYPE_CHECKING:
    from oomlint.model.events import Loop, Record, Reset, Store, Via
    from oomlint.model.lifetime import Path as LexicalPath
    from oomlint.model.project import Project
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

_PLACES = frozenset({Content.ARRAY, Content.TENSOR})


def growing_loops(store: Store, record: Record) -> list[Loop]:
    """The loops over batches during which the target is not made again, the outermost first."""
    root = store.path[0]
    if (isinstance(store.loops[0].node, cst.FunctionDef) or _is_step(record)) and len(store.path) == 1 and isinstance(root, tuple) and isinstance(root[0], int):
        return []  # a name of a step, which ends with it
    found: list[Loop] = []
    resets = _resets_of(store, record)
    again = False  # whether a loop over data around it makes it again with each batch: what repeats steps inside of that ends soon
    for loop in store.loops:
        renewed = _is_renewed(store, record, loop, resets)
        if renewed:
            found.clear()  # what begins again with each of its rounds has nothing left of a round outside
        if not renewed and (loop.batches or (loop.steps and not again)):
            found.append(loop)
        again = again or (renewed and loop.batches)
    return found


def _is_step(record: Record) -> bool:
    """Whether a framework calls the function once for each batch: its loops go over parts of that."""
    return record.frame is not None and record.frame.scope.name in LOSS_METHODS and names.is_method(record.frame.scope)


def unrenewed_epochs(store: Store, record: Record) -> Loop | None:
    """The innermost loop over epochs around a store, where no loop makes the target again or empties it; ``None`` where there is none."""
    outer = [loop for loop in store.loops if loop.epochs and not loop.short]
    if not outer or store.loops[-1] is outer[-1]:
        return None
    resets = _resets_of(store, record)
    renewed = any(_is_renewed(store, record, loop, resets) for loop in store.loops)
    return None if renewed or is_flushed(store, record, list(store.loops)) else outer[-1]


def is_renewed(store: Store, record: Record, loop: Loop) -> bool:
    """Whether each round of a loop makes the target again."""
    return _is_renewed(store, record, loop, _resets_of(store, record))


def _is_renewed(store: Store, record: Record, loop: Loop, resets: list[Reset]) -> bool:
    root = store.path[0]
    made = record.made.get(root[0], ()) if isinstance(root, tuple) and isinstance(root[0], int) else ()
    return loop in made or any(_renews(reset, loop) for reset in resets)


def handing_call(store: Store) -> Via | None:
    """The call of a function that adds to what it is given: ``add_to(results, key, value)``."""
    via = store.via[-1] if store.via else None
    target = store.way
    while isinstance(target, cst.Attribute | cst.Subscript):
        target = target.value
    if via is None or via.callee is None or not isinstance(target, cst.Name):
        return None
    own = names.self_name(via.callee)
    return via if target.value != own and target.value in names.takes(via.callee) else None


def _resets_of(store: Store, record: Record) -> list[Reset]:
    """What makes the target again whenever the store is run."""
    same = (reset for reset in record.resets if reset.path == store.path[: len(reset.path)])
    return [reset for reset in same if not reset.bound and reset.node is not store.node and set(reset.tests) <= set(store.tests)]


def _renews(reset: Reset, loop: Loop) -> bool:
    """Whether each round of a loop makes the target again, ahead of the loops over batches inside it."""
    if loop not in reset.loops or _at_first(reset, loop):
        return False
    return not any(other.batches for other in reset.loops[reset.loops.index(loop) + 1 :])


def _at_first(reset: Reset, loop: Loop) -> bool:
    """Whether the rounds of a loop make the target again only where there is none yet, there or in the functions that they call."""
    root, *parts = reset.path
    known: list[LexicalPath] = [(str(root[1] if isinstance(root, tuple) else root), tuple(("attr", part) for part in parts))]
    node = reset.node.func if isinstance(reset.node, cst.Call) else reset.node
    targets = [node.value] if isinstance(node, cst.Attribute) else [one.target for one in node.targets] if isinstance(node, cst.Assign) else []
    known += [path for target in targets for part in parts_of(target) if (path := path_of(part)) is not None]
    return any(only_at_first(spot.node, path, spot.loop or spot.scope.node, spot.module) for spot in spots_of(reset, loop.node) for path in known)


def is_flushed(store: Store, record: Record, loops: list[Loop]) -> bool:
    """Whether the target is emptied or cut now and then."""
    return any(
        (reset.path == store.path[: len(reset.path)] or store.path == reset.path[: len(store.path)])
        and any(loop in reset.loops and not _at_first(reset, loop) for loop in loops)
        and reset.node is not store.node
        for reset in record.resets
    )


def accumulates(store: Store, record: Record, loop: Loop) -> bool:
    """Whether a sum starts again with each step of the optimizer, which is made now and then: what gradient accumulation adds up."""
    walk = loop.module.walk
    steps = [use.node for use in record.uses if use.what == "step"]
    clearing = set(filter(_clears, descend(loop.repeated)))
    for reset in record.resets:
        if reset.path != store.path or reset.node is store.node or reset.module is not loop.module or loop not in reset.loops:
            continue
        for here in walk.ancestors(reset.node):
            if here is loop.node:
                break
            if not isinstance(here, cst.If):
                continue
            if (
                any(map(_at_step, descend(here.test)))
                or any(here in walk.ancestors(step) for step in steps)
                or (clearing and clearing <= set(descend(here.body)))
            ):
                return True
    return False


def _clears(node: cst.CSTNode) -> bool:
    """Whether it is a call that clears gradients, whatever made the optimizer."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "zero_grad"


def _at_step(node: cst.CSTNode) -> bool:
    """Whether a test asks Accelerate whether this is a round in which the optimizer makes a step."""
    return isinstance(node, cst.Attribute) and node.attr.value == "sync_gradients"


def has_new_key(store: Store, loop: Loop) -> bool:
    """Whether the key of ``d[k] = v`` differs from batch to batch."""
    statement = store.node
    if isinstance(statement, cst.Call) and statement.args:  # `d.update({k: v for k, v in zip(names, outputs)})`
        given = statement.args[0].value
        if isinstance(given, cst.Dict):  # `d.update({k: v})`
            return any(mentions(one.key, _derived(store, loop)) for one in given.elements if isinstance(one, cst.DictElement))
        keys = given.for_in.iter if isinstance(given, cst.DictComp) else given.args[0].value if isinstance(given, cst.Call) and given.args else None
        return keys is not None and mentions(keys, _derived(store, loop))
    if not isinstance(statement, cst.Assign):
        return False
    target = statement.targets[0].target
    key = target.slice[0].slice if isinstance(target, cst.Subscript) else None
    if not isinstance(target, cst.Subscript) or not isinstance(key, cst.Index):
        return False
    derived = _bound_by(loop.node)
    if isinstance(target.value, cst.Subscript) and not mentions(key.value, derived):
        key = target.value.slice[0].slice  # `table[key]["scores"] = v`: one for each row of the table
        if not isinstance(key, cst.Index):
            return False
    elif store.before.kind is not ValueKind.PACK or store.before.moved == "list":
        return False
    parts = parts_of(key.value)
    places = [part for part in parts if not any(map(_wraps, descend(part)))]
    if not places:
        return False  # a ring of places
    roots = {name for part in places for name in names_in(part)}
    walk, scope = store.module.walk, store.scope
    if scope is not loop.scope:
        return bool(roots)
    if roots & derived:
        return True
    derived = _derived(store, loop)
    for name in roots:
        for effect in scope.effects.get(name, ()):
            if loop.node not in walk.ancestors(effect.statement):
                continue
            if effect.kind == "augment":
                return not _starts_over(name, scope, loop, walk)
            if effect.kind == "for" and effect.value is not None:
                written = effect.value
                if not mentions(written, derived):
                    continue
                if isinstance(written, cst.Call):
                    word = names.last_name(written.func)
                    if word in {"items", "keys", "range"} or (word == "enumerate" and effect.index[:1] == (0,)):
                        continue
                return True
            if effect.kind == "assign" and effect.value is not None and mentions(effect.value, derived):
                return True
    return False


def into_array(store: Store, project: Project) -> bool:
    """Whether a key holds an array of places or a slice, so that it is part of an array that is written to, which copies: ``pool[places, step] = x[:, 0]``."""
    target = store.node.targets[0].target if isinstance(store.node, cst.Assign) else None
    if not isinstance(target, cst.Subscript):
        return False
    if any(isinstance(part.slice, cst.Slice) for part in target.slice):
        return True
    frame = evaluator_of(project).calls.plain_frame(store.module, store.scope)
    contents = datasets_of(project).contents
    return any(isinstance(part.slice, cst.Index) and contents.of(part.slice.value, frame).kind in _PLACES for part in target.slice)


def _wraps(node: cst.CSTNode) -> bool:
    """Whether a number comes back to where it was: ``step % places``, no text that is filled in."""
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo) and not isinstance(node.left, cst.BaseString)


def _starts_over(name: str, scope: Scope, loop: Loop, walk: Walk) -> bool:
    """Whether a round may set a counter back to a number."""
    number = (effect for effect in scope.effects.get(name, ()) if effect.kind == "assign" and not effect.path and isinstance(effect.value, cst.BaseNumber))
    return any(loop.node in walk.ancestors(effect.statement) for effect in number)


def _derived(store: Store, loop: Loop) -> frozenset[str]:
    """Names that depend on what a loop sets in each round."""
    return dependents(store.scope, _bound_by(loop.node))


def _bound_by(loop: cst.For | cst.While | cst.FunctionDef | cst.CompFor) -> frozenset[str]:
    """Names that a loop sets in each round."""
    if isinstance(loop, cst.FunctionDef):
        return frozenset(param.name.value for param in loop.params.params[1:])
    return frozenset(names_in(loop.target)) if not isinstance(loop, cst.While) else frozenset()
