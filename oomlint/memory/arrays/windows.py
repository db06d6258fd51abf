"""Windows that overlap, cut out of an array round after round: which expression is one, and the arrays that are made of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, JOINS, SHARES, TENSOR_TYPES
from oomlint.memory.arrays.cut_bounds import ends_before_next
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.kept_calls import KEEPS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.operand_kinds import operand
from oomlint.model import arguments, names
from oomlint.model.loops import set_in
from oomlint.model.values import ExternalCall
from oomlint.syntax.nodes import constant_key, names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

Rounds = cst.For | cst.While | cst.ListComp
# Functions of NumPy and torch that give all of what they are given.
_WHOLE: Final = KEEPS | SHARES | TENSOR_TYPES | {"tensor", "expand_dims", "nan_to_num", "detach"}

_PUTS: Final = frozenset({"assign", "augment"})
_ROWS: Final = AS_ARRAY | frozenset("arange linspace sort unique concatenate".split())


def changing(module: Module, scope: Scope, rounds: Rounds) -> frozenset[str]:
    """Names that a loop, or one around it in the same function, sets."""
    return frozenset().union(*(set_in(loop, module.walk, scope) for loop in (rounds, *loops_around(rounds, module, scope))))


def parts(module: Module, scope: Scope, node: cst.BaseExpression, rounds: Rounds) -> Iterator[tuple[cst.CSTNode, bool]]:
    """The parts of an expression and of what its names are set to in the loop, but no indices; and whether a function makes something else of them."""
    seen: set[str] = set()
    todo: list[tuple[cst.CSTNode, bool]] = [(node, False)]
    while todo:
        here, other = todo.pop()
        yield here, other
        inner: list[cst.CSTNode] = []
        match here:
            case cst.Subscript():
                other = other or _is_one_row(scope, here)
                inner = [here.value]
            case cst.Call():
                other = other or names.last_name(here.func) not in _WHOLE
                inner = [*(arg.value for arg in here.args), *([here.func.value] if isinstance(here.func, cst.Attribute) else [])]
            case cst.Attribute():
                inner = [here.value] if here.attr.value not in {"shape", "size", "ndim"} else []
            case cst.Name() if here.value not in seen:
                seen.add(here.value)
                # Also what is added to it, or written into a part of it: `row[:n] = signal[a:b]`.
                effects = (e for e in scope.effects.get(here.value, ()) if e.kind in _PUTS and rounds in module.walk.ancestors(e.statement))
                inner = [effect.value for effect in effects if effect.value is not None]
            case _:
                inner = [child for child in here.children if isinstance(child, cst.BaseExpression | cst.Element)]
        todo += [(one, other) for one in inner]


def _is_one_row(scope: Scope, node: cst.Subscript) -> bool:
    """Whether an index is one number, by how it is computed: what is left of a window overlaps with nothing."""
    index = node.slice[0].slice.value if isinstance(node.slice[0].slice, cst.Index) else None
    if isinstance(index, cst.Name):
        bound = [effect for effect in scope.effects.get(index.value, ()) if not effect.path]
        index = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index else None
    if isinstance(index, cst.UnaryOperation):
        index = index.expression
    return isinstance(index, cst.Integer) or (
        isinstance(index, cst.BinaryOperation) and isinstance(index.operator, cst.FloorDivide) and not isinstance(index.left, cst.Call)
    )


def is_window(project: Project, module: Module, scope: Scope, node: cst.Subscript, rounds: Rounds) -> bool:
    """Whether an expression takes rows, or steps of a later axis, between two bounds that move with the rounds, and need not begin where the last ended."""
    part = next((one.slice for one in node.slice if not _is_all(one.slice)), node.slice[0].slice)
    if not _is_there(module, scope, node.value, rounds):
        return False
    if isinstance(part, cst.Index) and isinstance(part.value, cst.BinaryOperation) and isinstance(part.value.operator, cst.Add | cst.Subtract):
        # `rows[i + offsets]`: as many rows as there are offsets
        fixed = [side for side in (part.value.left, part.value.right) if not _moves(module, scope, side, rounds)]
        return len(fixed) == 1 and _is_array(project, module, scope, fixed[0])
    if not isinstance(part, cst.Slice) or part.lower is None or part.upper is None:
        return False
    if not all(_moves(module, scope, bound, rounds) for bound in (part.lower, part.upper)):
        return False
    apart = ends_before_next(module, scope, part, rounds) or _apart(module, part)
    return not (apart or _side_by_side(module, scope, node, part, rounds) or _by_library(project, module, scope, part, rounds))


def _is_all(part: cst.BaseSlice) -> bool:
    """Whether an index takes all of an axis: ``:``, or ``...`` for several."""
    return part.lower is part.upper is part.step is None if isinstance(part, cst.Slice) else isinstance(part.value, cst.Ellipsis)  # type: ignore[attr-defined]


def _is_there(module: Module, scope: Scope, node: cst.BaseExpression, rounds: Rounds) -> bool:
    """Whether it is the same array in each round."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    if not isinstance(node, cst.Name):
        return False
    made = (effect for effect in scope.effects.get(node.value, ()) if not effect.path)
    return not any(effect.statement is rounds or rounds in module.walk.ancestors(effect.statement) for effect in made)


def _moves(module: Module, scope: Scope, node: cst.BaseExpression, rounds: Rounds) -> bool:
    moving = changing(module, scope, rounds)
    return uses_name(node, moving)


def _is_array(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether an expression is an array of NumPy, by what the function itself or one that calls it has made it with."""
    if isinstance(node, cst.BaseNumber):
        return False
    what = operand(project, module, scope, node)
    if what is not None:
        return what.kind is PayloadKind.ARRAY
    evaluator = evaluator_of(project)
    every = (alt.value for frame in evaluator.calls.frames(module, scope, most=2) for alt in evaluator.values(node, frame)[:2])
    return any(isinstance(one, ExternalCall) and one.name.startswith("numpy.") and one.name.rpartition(".")[2] in _ROWS for one in every)


def _apart(module: Module, part: cst.Slice) -> bool:
    """Whether the parts of two rounds have nothing in common.

    ``a[i * n : (i + 1) * n]``, ``a[i * n : i * n + n]``, whatever moves ``i``.
    """
    lower, upper = part.lower, part.upper
    if isinstance(upper, cst.BinaryOperation) and isinstance(upper.right, cst.Integer) and upper.right.value == "1" and lower is not None:
        return isinstance(upper.operator, cst.Add) and upper.left.deep_equals(lower)  # one row
    if isinstance(lower, cst.BinaryOperation) and isinstance(lower.operator, cst.Multiply) and isinstance(upper, cst.BinaryOperation):
        factors = {module.code(side).strip() for side in (lower.left, lower.right)}
        if isinstance(upper.operator, cst.Add) and upper.left.deep_equals(lower) and module.code(upper.right).strip() in factors:
            return True
    if isinstance(lower, cst.BinaryOperation) and isinstance(upper, cst.BinaryOperation):
        times = isinstance(lower.operator, cst.Multiply) and isinstance(upper.operator, cst.Multiply)
        sides = {module.code(side).strip() for side in (lower.left, lower.right)}
        return times and any(module.code(side).strip() in sides for side in (upper.left, upper.right))
    return False


def _side_by_side(module: Module, scope: Scope, node: cst.CSTNode, part: cst.Slice, rounds: Rounds) -> bool:
    """Whether each part begins where the last one ended: whatever cuts ``a[start:i]`` sets ``start = i``, and nothing else in the loop sets it."""
    lower, upper = part.lower, part.upper
    if not isinstance(lower, cst.Name) or upper is None:
        return False
    effects = [e for e in scope.effects.get(lower.value, ()) if not e.path and rounds in module.walk.ancestors(e.statement)]
    around = set(module.walk.ancestors(node))
    return bool(effects) and all(
        e.kind == "assign" and e.value is not None and e.value.deep_equals(upper) and module.walk.parents.get(module.walk.parents[e.statement]) in around
        for e in effects
    )


def _by_library(project: Project, module: Module, scope: Scope, part: cst.Slice, rounds: Rounds) -> bool:
    """Whether a library gives both bounds, ``for start, end in librosa.effects.split(sound)``: what it cuts out need not overlap."""
    if isinstance(rounds, cst.While) or not isinstance(part.lower, cst.Name) or not isinstance(part.upper, cst.Name):
        return False
    around = rounds.for_in if isinstance(rounds, cst.ListComp) else rounds
    if not {part.lower.value, part.upper.value} <= names_in(around.target):
        return False
    evaluator = evaluator_of(project)
    found = evaluator.plainly(around.iter, module, scope)
    return any(isinstance(alt.value, ExternalCall) and not alt.value.name.startswith(("builtins.", "numpy.")) for alt in found[:2])


def gathered(module: Module, project: Project) -> Iterator[tuple[cst.Call, cst.Subscript, Keeper]]:
    """Calls that make one array of all windows which rounds have put into a list, a window of each, and who keeps the array."""
    kept = kept_of(project)
    seen: set[cst.CSTNode] = set()
    for scope in module.walk.scopes:
        if scope.is_class or not (scope.loops or scope.rows) or constructions_of(project).per_item(module, scope):
            continue
        for element in _elements(scope):
            around = kept.gathering(module, element)
            window = _window_of(project, module, scope, element, around) if isinstance(around, Rounds) else None
            if window is None or _is_small(project, module, scope, window.value):
                continue
            for keeper in kept.filled(module, window):
                join = next((one.node for one in keeper.passed if one.does is DataTransform.JOINS and one.module is module and not keeper.hazy), None)
                if isinstance(join, cst.Call) and join not in seen and not _as_columns(window, join):
                    seen.add(join)
                    yield join, window, keeper
                    break


def _as_columns(window: cst.Subscript, join: cst.Call) -> bool:
    """Whether windows of columns are joined to columns again: ``np.concatenate(parts, 1)`` of ``table[:, a:b]`` gives each sample some of its own numbers."""
    if names.last_name(join.func) not in JOINS:
        return False
    cut = next((place for place, one in enumerate(window.slice) if not _is_all(one.slice)), 0)
    axis = arguments.argument_for(join, "axis", place=1) or arguments.named(join, "dim")
    return cut > 0 and axis is not None and constant_key(axis) == cut


def _elements(scope: Scope) -> Iterator[cst.BaseExpression]:
    """What may be put into a list in each round."""
    yield from (row.elt for row in scope.rows)
    for call in scope.calls:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "append" and len(call.args) == 1:
            yield call.args[0].value


def _window_of(project: Project, module: Module, scope: Scope, element: cst.BaseExpression, rounds: Rounds) -> cst.Subscript | None:
    for node, other in parts(module, scope, element, rounds):
        if not other and isinstance(node, cst.Subscript) and is_window(project, module, scope, node, rounds):
            return node
    return None


def _is_small(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether what windows are cut from is known to be so small that all of them are."""
    what = operand(project, module, scope, node)
    return what is not None and what.size.exact is not None and what.size.exact < project.settings.small_bytes // 64
