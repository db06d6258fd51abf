"""Whether a round of a loop adds no more than a few numbers to what it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import AS_ARRAY
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import arguments, names
from oomlint.model.tensor_state import MAP, SampleSize, ValueKind
from oomlint.model.torch_tables import CASTS, SCALAR_NAME, TO_DEVICE, VIEWS
from oomlint.syntax.nodes import parts_of

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.tensor_state import TensorState
    from oomlint.syntax.scopes import Scope


_FEW = 16  # numbers
_AS_MANY = (VIEWS - {"expand", "expand_as"}) | CASTS | TO_DEVICE | {"to", "detach", "cpu", "numpy", "clone"}  # methods that leave as many numbers


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


def may_be_few(project: Project, added: tuple[cst.BaseExpression, ...], scope: Scope, module: Module) -> bool:
    """Whether a round adds classes of which nobody knows how many axes they have."""
    parts = _parts(project, added, scope, module)
    return bool(parts) and all(held.size is SampleSize.SMALL and held.dims < MAP for held in parts)


def adds_labels(project: Project, added: tuple[cst.BaseExpression, ...], scope: Scope, module: Module) -> bool:
    """Whether a round adds tensors or arrays that have a class, a hit or an identifier for each sample."""
    parts = _parts(project, added, scope, module)
    return bool(parts) and all(held.size is SampleSize.SMALL and held.kind is not ValueKind.OPAQUE and held.dims < MAP for held in parts)


def scalars(project: Project, added: tuple[cst.BaseExpression, ...], scope: Scope, module: Module, *, epochs: bool) -> bool:
    """Whether a round adds no more than a few numbers; where no run tells, by names."""
    parts = _parts(project, added, scope, module)
    if parts:
        return all(held.size is SampleSize.SCALAR for held in parts)
    return all(_is_few(project, node, scope, module, epochs=epochs) for node in added)


def _is_few(project: Project, node: cst.BaseExpression, scope: Scope, module: Module, *, epochs: bool) -> bool:
    """Whether something is a number, a few of them, or one row of a table; by its name where nothing else tells."""
    held = runs_of(project).part(node, module, scope)
    if held is not None and (held.kind is ValueKind.PLAIN or (held.tensorlike and not held.is_vague)):
        return held.kind is ValueKind.PLAIN or held.size is SampleSize.SCALAR
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _AS_MANY:
        return _is_few(project, node.func.value, scope, module, epochs=epochs)
    if isinstance(node, cst.List | cst.Tuple):
        return len(node.elements) <= _FEW and all(_is_few(project, part, scope, module, epochs=epochs) for part in parts_of(node))
    content = datasets_of(project).contents.of(node, evaluator_of(project).calls.plain_frame(module, scope))
    if content.kind in {PayloadKind.SCALAR, PayloadKind.TEXT}:
        return True
    made = content.node
    if content.kind is PayloadKind.FRAME and isinstance(made, cst.Call):
        rows = made.args[0].value if made.args else None
        return epochs or isinstance(arguments.named(made, "index"), cst.List) or (isinstance(rows, cst.List) and len(rows.elements) == 1)
    if isinstance(node, cst.Call) and names.last_name(node.func) in AS_ARRAY | {"Tensor"} and node.args:
        return _is_few(project, node.args[0].value, scope, module, epochs=epochs)
    return SCALAR_NAME.search(names.last_name(node.func if isinstance(node, cst.Call) else node)) is not None
