"""Recurrent states that go from one batch into the next with the graph of all batches before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import FACTS
from oomlint.finding import Fix, Safety
from oomlint.frameworks import BACKWARDS, TRAINING_STEP
from oomlint.memory.buffers.recurrent_state import steps_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import records_graph, runs_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.training_loops import rounds
from oomlint.model import names
from oomlint.model.lifetime import only_at_first, runs_once
from oomlint.model.loops import FEW
from oomlint.model.values import ClassRef
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend, path_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.memory.buffers.recurrent_state import RecurrentStep
    from oomlint.model.lifetime import Path
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

Loop = cst.For | cst.While

_DETACHES: Final = frozenset({"detach", "detach_"})


class Carried(Struct, frozen=True):
    """A state that enters each batch with the graph of the ones before."""

    step: RecurrentStep
    loop: Loop | None  # None: over the calls of a method
    trains: bool  # whether a backward runs for each batch


def carried_in(module: Module, project: Project) -> Iterator[Carried]:
    """States of the module that nobody cuts off from one batch to the next."""
    for scope in module.walk.scopes:
        if scope.is_class or isinstance(scope.node, cst.Lambda):
            continue

        def matters(statement: cst.Assign, states: Iterable[str], scope: Scope = scope) -> bool:
            loops = list(loops_around(statement, module, scope))
            own = f"{names.self_name(scope)}."
            return any(has_backward(loop) or _goes_over_batches(loop, module, scope, project) for loop in loops) or (
                not loops and all(state.startswith(own) for state in states)
            )

        for step in steps_of(module, scope, project, matters):
            found = _over_loops(step, module, scope, project)
            if found is None and all("." in state for state in step.states):
                found = _over_calls(step, module, scope, project)
            if found is not None:
                yield found


# -- loops ---------------------------------------------------------------------------------------------------------------


def _over_loops(step: RecurrentStep, module: Module, scope: Scope, project: Project) -> Carried | None:
    for loop in loops_around(step.statement, module, scope):
        if any(_is_cut(step, effect, loop, module) for root, _ in step.paths for effect in scope.effects.get(root, ())) or _cuts(step, loop, module):
            return None
        trains = has_backward(loop)
        if not trains and not _goes_over_batches(loop, module, scope, project, step.call):
            continue
        if not trains and (has_backward(scope.suite) or not records_graph(step.statement, module, scope, project) or _is_short(loop, module, scope, project)):
            return None
        return Carried(step, loop, trains)
    return None


def _is_short(loop: Loop, module: Module, scope: Scope, project: Project) -> bool:
    """Whether the code says that a loop goes round a few times: its rounds are the steps of one sequence."""
    count = rounds(project, loop, module, scope)
    return count is not None and count <= FEW


def has_backward(node: cst.CSTNode) -> bool:
    """Whether a backward runs inside."""
    return any(isinstance(n, cst.Call) and names.last_name(n.func) in BACKWARDS for n in descend(node, into_scopes=False))


def _goes_over_batches(loop: Loop, module: Module, scope: Scope, project: Project, own: cst.Call | None = None) -> bool:
    """Whether a loop is over a loader, or over windows of a long sequence that it takes: ``range(0, n, width)``."""
    if not isinstance(loop, cst.For):
        return False
    iterated = names.iterated(loop.iter)
    if isinstance(iterated, cst.Call) and names.last_name(iterated.func) == "range":
        wide = len(iterated.args) == 3 and not isinstance(iterated.args[2].value, cst.Integer | cst.UnaryOperation)  # noqa: PLR2004
        return wide and scope.name != "forward" and _takes_window(loop, own)
    return runs_of(project).over_batches(loop, module, scope)


def _takes_window(loop: cst.For, own: cst.Call | None) -> bool:
    """Whether a round takes its part of the data, by a slice or by a function other than its ``own`` one: a decoder that counts its steps takes none."""
    target = names.dotted(loop.target)
    for node in descend(loop.body):
        if isinstance(node, cst.Slice) and any(names.dotted(part) == target for bound in (node.lower, node.upper) if bound for part in descend(bound)):
            return True
        if isinstance(node, cst.Call) and node is not own and any(names.dotted(arg.value) == target for arg in node.args):
            return True
    return False


def _is_cut(step: RecurrentStep, effect: Effect, loop: Loop, module: Module) -> bool:
    """Whether the loop gives the state a new value that does not come from the recurrent call."""
    if effect.statement is step.statement or not _concerns(step, effect) or effect.kind in {"append", "extend", "pop", "update"}:
        return False
    inside = effect.statement is loop or loop in module.walk.ancestors(effect.statement)
    again = effect.value is not None and uses_name(effect.value, {root for root, _ in step.paths} - {"self"})
    return inside and (again or not _starts(effect, step.paths, loop, module)) and not _hands_on(step, effect, module)


def _concerns(step: RecurrentStep, effect: Effect) -> bool:
    return any(effect.root == root and effect.path[: len(path)] == path[: len(effect.path)] for root, path in step.paths)


def _starts(effect: Effect, paths: Iterable[Path], around: cst.CSTNode, module: Module) -> bool:
    """Whether a test lets a state start only where there is none yet, or where the size of the batch changes."""
    tests = (here.test for here in module.walk.between(effect.statement, around) if isinstance(here, cst.If))
    asked = (part for test in tests for part in descend(test) if isinstance(part, cst.Attribute) and part.attr.value in FACTS)
    known = set(paths)
    return any(path_of(part.value) in known for part in asked) or any(only_at_first(effect.statement, path, around, module) for path in known)


def _hands_on(step: RecurrentStep, effect: Effect, module: Module) -> bool:
    """Whether the assignment is another call that takes the state beside its input and gives it back."""
    call = effect.value
    if not isinstance(call, cst.Call) or len(call.args) < 2 or not effect.index:  # noqa: PLR2004 - an input and a state
        return False
    given = {module.code(n) for arg in call.args for n in descend(arg.value) if isinstance(n, cst.Name | cst.Attribute)}
    return any(state in given for state in step.states) and not any(isinstance(n, cst.Attribute) and n.attr.value in _DETACHES for n in descend(call))


def _cuts(step: RecurrentStep, loop: Loop, module: Module) -> bool:
    """Whether the loop cuts the graph in place (``h.detach_()``), or gives the state to somebody who may."""
    roots = {root for root, _ in step.paths}
    for node in descend(loop.body, into_scopes=False):
        if isinstance(node, cst.Attribute) and node.attr.value == "detach_":
            return True
        if not isinstance(node, cst.Call) or node is step.call:
            continue
        alone = isinstance(module.walk.parents.get(node), cst.Expr)
        if alone and any(isinstance(arg.value, cst.Name) and arg.value.value in roots - {"self"} for arg in node.args):
            return True
    return False


# -- attributes ------------------------------------------------------------------------------------------------------------


def _over_calls(step: RecurrentStep, module: Module, scope: Scope, project: Project) -> Carried | None:
    """A state on ``self`` that a method takes up where its last call left it."""
    own = names.self_name(scope)
    cls = scope.parent
    if own is None or cls is None or any(root != own or len(path) != 1 for root, path in step.paths):
        return None
    trains = has_backward(scope.suite)
    if not trains and scope.name not in {"forward", TRAINING_STEP} and not _called_per_batch(module, scope, project):
        return None
    if any(isinstance(here, Loop) for here in module.walk.ancestors(step.statement) if not isinstance(here, cst.Module)):
        return None  # a loop over time steps inside the method
    if not trains and not records_graph(step.statement, module, scope, project):
        return None
    for _, path in step.paths:
        if _set_elsewhere(str(path[0][1]), step, scope, cls, module, project):
            return None
    return Carried(step, None, trains or scope.name == TRAINING_STEP)


def _called_per_batch(module: Module, scope: Scope, project: Project) -> bool:
    for site in evaluator_of(project).calls.sites(module, scope, most=6):
        for loop in loops_around(site.call, site.module, site.scope):
            if has_backward(loop) or _goes_over_batches(loop, site.module, site.scope, project, site.call):
                return True
    return False


def _set_elsewhere(attribute: str, step: RecurrentStep, scope: Scope, cls: Scope, module: Module, project: Project) -> bool:
    """Whether anybody sets, resets or detaches the attribute, except ``__init__`` and what only ``__init__`` calls."""
    for other in [module, *project.mentioning([attribute.encode()], module.path)]:
        for where in other.walk.scopes:
            for effects in where.effects.values():
                for effect in effects:
                    if ("attr", attribute) not in effect.path or effect.statement is step.statement:
                        continue
                    if other is module and where.parent is cls and runs_once(where, ClassRef(module, cls), project):
                        continue
                    if where is scope and isinstance(effect.statement, cst.Assign) and _starts(effect, [(effect.root, effect.path[:1])], where.node, other):
                        continue
                    return True
        for node in other.walk.root.nodes():
            if isinstance(node, cst.Attribute) and node.attr.value in {*_DETACHES, "data"} and f".{attribute}" in other.code(node.value):
                return True
    return False


# -- the fix ---------------------------------------------------------------------------------------------------------------


def cut_at_the_end(carried: Carried, module: Module) -> Fix:
    """Detach the state as the last statement of the loop; advice where the loop or the state is not plain."""
    step, loop = carried.step, carried.loop
    advice = Fix(Safety.DISPLAY, f"detach {' and '.join(f'`{state}`' for state in step.states)} once per batch, or run the evaluation under `torch.no_grad()`")
    if loop is None or not step.shape or not isinstance(loop.body, cst.IndentedBlock) or not loop.body.body:
        return advice
    if any(isinstance(node, cst.Continue) for node in descend(loop.body, into_scopes=False)):
        return advice
    scope = module.walk.scope_at(loop)
    cut = [f"tuple(part.detach() for part in {state})" if step.shape == "tuple" or _is_tuple(state, scope) else f"{state}.detach()" for state in step.states]
    line = f"{', '.join(step.states)} = {', '.join(cut)}"
    text = Text(module.tree)
    first = loop.body.body[0]
    row, column = text.spot(text.span(first.body[0] if isinstance(first, cst.SimpleStatementLine) else first)[0])
    indent = text.text[text.starts[row - 1] : text.starts[row - 1] + column - 1]
    if indent.strip():
        return advice
    last = loop.body.body[-1]
    row, _ = text.spot(text.span(last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last)[1])
    begin = text.starts[row - 1]
    spot = begin + len(text.text[begin : text.starts[row] if row < len(text.starts) else None].rstrip("\r\n"))
    return Fix(Safety.UNSAFE, f"detach at the end of each batch: `{line}`", (text.replaced(spot, spot, f"\n{indent}{line}"),))


def _is_tuple(state: str, scope: Scope) -> bool:
    """Whether a state starts as several tensors."""
    return any(effect.kind == "assign" and not effect.index and isinstance(effect.value, cst.Tuple) for effect in scope.effects.get(state, ()))
