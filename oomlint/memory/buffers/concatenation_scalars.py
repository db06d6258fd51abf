"""Whether a round of a loop adds no more than a few numbers to what it grows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import AS_ARRAY, REDUCTIONS
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.training_loops import within
from oomlint.model import arguments, names
from oomlint.model.tensor_state import MAP, SampleSize

if TYPE_CHECKING:
    from oomlint.memory.shared.training_loops import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.model.tensor_state import TensorState
    from oomlint.syntax.scopes import Effect, Scope

_SCALAR_NAME = re.compile(
    r"(^|_)(loss|losses|acc|accs|accuracy|accuracies|lr|lrs|err|error|errors|metric|metrics|history|log|logs|epoch|step|time|times|mse|mae|rmse|psnr|ssim|iou|miou|"
    r"dice|auc|f1|reward|rewards|return|returns|score|kl|count|counts|best|avg|mean)(_?(epochs?|train|val|test|history|list|all|per_epoch|curve))?\d*$",
    re.IGNORECASE,
)
_NUMBERS = frozenset({"float", "int", "len", "time", "perf_counter"})
_REDUCTIONS = REDUCTIONS | {"nanmean"}


def _parts(project: Project, added: tuple[cst.BaseExpression, ...], scope: Scope, module: Module) -> list[TensorState]:
    """What a round adds, by the run of the function; nothing where that does not tell how much each is for a sample."""
    found = [held for node in added if (held := runs_of(project).part(node, module, scope)) is not None and held.tensorlike]
    return found if len(found) == len(added) and all(not held.is_vague for held in found) else []


def adds_few(project: Project, added: tuple[cst.BaseExpression, ...], scope: Scope, module: Module, *, flat: bool) -> bool:
    """Whether a round adds a few numbers for each sample, as far as the axes of what it adds are known; what becomes ``flat`` has none that is seen."""
    parts = _parts(project, added, scope, module)
    if flat:
        return all(held.dims < MAP for held in parts)
    return bool(parts) and all(held.size is SampleSize.SMALL and 0 < held.dims < MAP for held in parts)


def scalars(project: Project, added: tuple[cst.BaseExpression, ...], loop: Loop, scope: Scope, module: Module, *, epochs: bool, into: Path) -> bool:
    """Whether a round adds no more than a few numbers; where no run tells, by names."""
    parts = _parts(project, added, scope, module)
    if parts:
        return all(held.size is SampleSize.SCALAR for held in parts)
    if epochs and _SCALAR_NAME.search(str(into[1][-1][1]) if into[1] else into[0]):
        return True
    return all(_scalar(node, loop, scope, module, 0, epochs=epochs) for node in added)


def _scalar(node: cst.BaseExpression, loop: Loop, scope: Scope, module: Module, depth: int, *, epochs: bool) -> bool:
    if isinstance(node, cst.Integer | cst.Float | cst.BaseString) or depth > 3:  # noqa: PLR2004 - deeper is another story
        return depth <= 3  # noqa: PLR2004
    if isinstance(node, cst.List | cst.Tuple | cst.Dict):
        return all(_scalar(e.value, loop, scope, module, depth + 1, epochs=epochs) for e in node.elements if isinstance(e, cst.Element | cst.DictElement))
    if isinstance(node, cst.Name):
        if _SCALAR_NAME.search(node.value):
            return True
        inside = [e for e in scope.effects.get(node.value, ()) if e.kind == "assign" and not e.path and within(e.statement, loop, module)]
        return bool(inside) and all(e.value is not None and _one_number(e, loop, scope, module, depth + 1, epochs=epochs) for e in inside)
    if isinstance(node, cst.Attribute):
        return _SCALAR_NAME.search(node.attr.value) is not None
    if isinstance(node, cst.UnaryOperation):
        return _scalar(node.expression, loop, scope, module, depth + 1, epochs=epochs)
    if isinstance(node, cst.BinaryOperation):
        return _scalar(node.left, loop, scope, module, depth + 1, epochs=epochs) and _scalar(node.right, loop, scope, module, depth + 1, epochs=epochs)
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Name | cst.Attribute) and _SCALAR_NAME.search(names.last_name(node.value)) is not None
    return isinstance(node, cst.Call) and _scalar_call(node, loop, scope, module, depth, epochs=epochs)


def _one_number(effect: Effect, loop: Loop, scope: Scope, module: Module, depth: int, *, epochs: bool) -> bool:
    return not effect.index and effect.value is not None and _scalar(effect.value, loop, scope, module, depth, epochs=epochs)


def _scalar_call(node: cst.Call, loop: Loop, scope: Scope, module: Module, depth: int, *, epochs: bool) -> bool:
    name = names.last_name(node.func)
    dims = arguments.has(node, "dim", "axis")
    base = node.func.value if isinstance(node.func, cst.Attribute) else None
    if base is None or names.last_name(base) in {"np", "torch", "numpy", "math", "time"}:
        if name in _NUMBERS or (name in _REDUCTIONS and not dims and len(node.args) == 1):
            return True
    elif name == "item" or (name in _REDUCTIONS and not node.args):
        return True
    if name in {"DataFrame", "Series"}:
        row = node.args[0].value if node.args else None
        one = isinstance(arguments.named(node, "index"), cst.List)
        return one or (isinstance(row, cst.List) and len(row.elements) == 1) or epochs
    if name in AS_ARRAY | {"Tensor"} and node.args:
        return _scalar(node.args[0].value, loop, scope, module, depth + 1, epochs=epochs)
    if isinstance(node.func, cst.Attribute) and name in {"detach", "cpu", "numpy", "unsqueeze", "reshape", "view", "to", "clone", "float", "double", "squeeze"}:
        return _scalar(node.func.value, loop, scope, module, depth + 1, epochs=epochs)
    if name in _REDUCTIONS:
        return False  # along an axis
    # What an unknown function gives per epoch is a number more often than not.
    return (epochs and isinstance(node.func, cst.Name)) or _SCALAR_NAME.search(name) is not None or "loss" in name or name in {"criterion", "cross_entropy"}
