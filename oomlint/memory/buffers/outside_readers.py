"""Who reads a buffer out of sight of its loop: callers, and whoever it is handed to, so that nobody can say what a value without its graph would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.events import AS_JSON
from oomlint.model.tensor_state import ValueKind
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.shared.flow_runs import Runs
    from oomlint.model.events import Loop, Record, Store
    from oomlint.model.tensor_state import TensorState
    from oomlint.syntax.walk import Walk

_MOST_SITES: Final = 4
# Calls that look at what they are given and let it go again.
_LOOKS: Final = frozenset(
    "len sum print float int str min max sorted enumerate zip range isinstance mean stack cat concat vstack hstack median std var round abs any all array "
    "asarray log info debug warning write add_scalar set_postfix set_description format item".split(),
)


def escapes(store: Store, loop: Loop) -> bool:
    """Whether the buffer is more than a name of the loop's own function that only this function reads."""
    root = store.path[0]
    if not isinstance(root, tuple) or root[0] != 0 or not isinstance(root[1], str) or root[1] in {"self", "cls"}:
        return True
    if not store.via and _on_attribute(store.node):
        return True
    name, scope, walk = root[1], loop.scope, loop.module.walk
    if name not in scope.effects or name in scope.outer or name in scope.enclosing or name in names.takes(scope):
        return True
    if scope.parent is None and any(other.named(name) and name not in other.effects for other in walk.scopes if other is not scope and not other.is_class):
        return True
    if not all(_plainly_made(effect.statement) for effect in scope.effects[name] if effect.kind == "assign" and not effect.path):
        return True
    return any(walk.scope_at(node) is not scope or _leaves(node, walk) for node in scope.named(name))


def runs_of_callers(store: Store, record: Record, runs: Runs) -> Iterator[Record]:
    """Runs of the functions that get what is collected."""
    frame = record.frame
    if frame is not None and id(store.node) in record.returned.all_tags:
        for site in runs.evaluator.calls.sites(frame.module, frame.scope, most=_MOST_SITES):
            yield from runs.records(site.module, site.scope)


def written_as_json(store: Store, record: Record, runs: Runs) -> bool:
    """Whether what is collected is written as JSON, which takes numbers and strings, and no tensor or array."""
    uses = (use for run in (record, *runs_of_callers(store, record, runs)) for use in run.uses if use.what == AS_JSON)
    return any(id(store.node) in _as_they_are(use.value) for use in uses)


def _as_they_are(held: TensorState) -> Iterator[int]:
    """Statements that stored what a container holds, other than the numbers that were worked out of it."""
    if not all(leaf.kind is ValueKind.PLAIN for leaf in held.leaves()):
        yield from held.tags
        for part in (*(part for _, part in held.items), held.inside):
            yield from _as_they_are(part) if part is not None else ()


def _on_attribute(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.AugAssign):
        return isinstance(node.target, cst.Attribute)
    if isinstance(node, cst.Assign):
        return isinstance(node.targets[0].target, cst.Attribute)
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Attribute)


def _plainly_made(statement: cst.CSTNode) -> bool:
    """Whether one statement gives the object to one name: ``a = b = []`` gives it two."""
    return not isinstance(statement, cst.Assign) or len(statement.targets) == 1


def _leaves(node: cst.Name, walk: Walk) -> bool:
    """Whether a use of the name hands the object itself to something else."""
    above = walk.parents.get(node)
    if isinstance(above, cst.Arg):
        call = walk.parents.get(above)
        return not (isinstance(call, cst.Call) and names.last_name(call.func) in _LOOKS)
    if isinstance(above, cst.Element | cst.DictElement):
        statement = walk.statement_of(node)
        return isinstance(statement, cst.Assign) and not any(part is above for target in statement.targets for part in descend(target))
    if isinstance(above, cst.Assign):
        return above.value is node
    return isinstance(above, cst.Yield | cst.Lambda | cst.NamedExpr | cst.IfExp | cst.StarredElement | cst.AnnAssign)
