"""Bytes of one sample: by the shapes of what ``__getitem__`` returns, or by the rows of arrays that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY
from oomlint.budget.casts import bytes_of
from oomlint.budget.sizes import Factor, Name, Size, Sum
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model import names
from oomlint.model.values import Display, Frame, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.nouns import Container
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.project import Project

_SAME: Final = AS_ARRAY | {"copy", "clone"}  # what gives as many bytes
_DEEPEST: Final = 4
_NUMBER: Final = 8  # bytes of a number, which a batch has as a tensor


def sample_of(project: Project, dataset: Dataset | None, containers: Sequence[Container], owner: str) -> Size:
    """Bytes of a sample of a dataset; a name where a part of it is not known."""
    known = _known(project, dataset, containers) if dataset is not None else None
    return known if known is not None else Size((Name("sample", owner),))


def _known(project: Project, dataset: Dataset, containers: Sequence[Container]) -> Size | None:
    """The largest of what ``__getitem__`` returns, where all parts of all of it are known; for a ``TensorDataset``, a row of each tensor."""
    if isinstance(dataset.node, cst.Call) and names.last_name(dataset.node.func) == "TensorDataset":
        rows = [_row_of(one) for one in containers]
        known = [row for row in rows if row is not None]
        return _together(known) if known and len(known) == len(dataset.holdings) else None
    item = evaluator_of(project).method(dataset.instance, "__getitem__") if dataset.instance is not None else None
    if item is None or not item.scope.returns:
        return None
    frame = Frame(item.module, item.scope, None, dataset.instance)
    sizes = []
    for statement in item.scope.returns:
        parts = _parts(statement.value, frame, project, containers, 0) if statement.value is not None else None
        if not parts:
            return None
        whole = _together(parts)
        if whole is None:
            return None
        sizes.append(whole)
    return max(sizes, key=lambda size: size.value or 0)


def _together(parts: Sequence[Size]) -> Size | None:
    """The sum of some sizes; None where one of them is not known."""
    known = [size.value for size in parts if size.value is not None]
    if len(known) != len(parts):
        return None
    return parts[0] if len(parts) == 1 else Size((Sum(f"({' + '.join(map(str, parts))})", sum(known)),))


def _row_of(kept: Container) -> Size | None:
    """One row of an array whose shape is known."""
    rest: tuple[Factor, ...] = kept.size.factors[1:]
    return Size(rest) if rest and all(isinstance(part, int) for part in rest) else None


def _parts(node: cst.BaseExpression, frame: Frame, project: Project, containers: Sequence[Container], depth: int) -> list[Size] | None:
    """The arrays and numbers of a sample; None where one of them is not known."""
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        found: list[Size] = []
        for part in node.elements:
            if isinstance(part, cst.StarredElement | cst.StarredDictElement) or depth > _DEEPEST:
                return None
            inner = _parts(part.value, frame, project, containers, depth + 1)
            if inner is None:
                return None
            found += inner
        return found
    row = _row(node, frame, project, containers, 0)
    if row is not None:
        return [row]
    evaluator = evaluator_of(project)
    content = datasets_of(project).contents.of(node, frame)
    if content.kind in {Kind.ARRAY, Kind.TENSOR}:
        exact = bytes_of(content, node, frame, evaluator)
        return [Size((exact,))] if exact is not None else None
    if isinstance(node, cst.Name):
        displays = [alt.value for alt in evaluator.values(node, frame) if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.Tuple)]
        if displays:
            return _parts(displays[0].node, displays[0].frame, project, containers, depth + 1) if len(displays) == 1 and depth <= _DEEPEST else None
    index = frame.scope.node.params.params[-1].name.value if isinstance(frame.scope.node, cst.FunctionDef) and frame.scope.node.params.params else ""
    number = content.kind is Kind.SCALAR or (isinstance(node, cst.Name) and node.value == index)
    return [Size((_NUMBER,))] if number or (isinstance(node, cst.Call) and names.dotted(node.func) in {"int", "float", "len", "bool"}) else None


def _row(node: cst.BaseExpression, frame: Frame, project: Project, containers: Sequence[Container], depth: int) -> Size | None:
    """One row of an array of the dataset: ``self.x[i]``, also as a tensor, or under a name."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, cst.Call):
        called = node.func.value if isinstance(node.func, cst.Attribute) and not node.args else None
        inner = called if called is not None else node.args[0].value if node.args else None
        return _row(inner, frame, project, containers, depth + 1) if inner is not None and not node.args[1:] and names.last_name(node.func) in _SAME else None
    if isinstance(node, cst.Subscript):
        whole = node.value
        own = isinstance(whole, cst.Attribute) and isinstance(whole.value, cst.Name) and whole.value.value == names.self_name(frame.scope)
        if not own or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        kept = next((one for one in containers if one.name == names.last_name(whole)), None)
        return _row_of(kept) if kept is not None else None
    if isinstance(node, cst.Name):
        found: set[Size | None] = set()
        for alt in evaluator_of(project).values(node, frame)[:_DEEPEST]:
            value = alt.value
            if isinstance(value, Written) and value.node is not None and value.node is not node and value.frame is not None:
                found.add(_row(value.node, value.frame, project, containers, depth + 1))
            else:
                found.add(None)
        return found.pop() if len(found) == 1 else None
    return None
