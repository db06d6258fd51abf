"""Bytes of one sample: by the shapes of what ``__getitem__`` returns, or by the rows of arrays that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.sizes import Factor, Name, Size, Sum
from oomlint.memory.loaders.in_flight import sample_bytes
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import Frame, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.nouns import Container
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.project import Project

_SAME: Final = frozenset({"from_numpy", "as_tensor", "tensor", "array", "asarray", "copy", "clone"})  # what gives as many bytes
_DEEPEST: Final = 4


def sample_of(project: Project, dataset: Dataset | None, containers: Sequence[Container], owner: str) -> Size:
    """Bytes of a sample of a dataset, at least; a name where they are not known."""
    if dataset is not None:
        known = sample_bytes(project, dataset)
        if known is not None:
            return Size((known,))
        taken = _rows(project, dataset, containers)
        if taken is not None:
            return taken
    return Size((Name("sample", owner),))


def _rows(project: Project, dataset: Dataset, containers: Sequence[Container]) -> Size | None:
    """The rows of arrays that the one ``return`` of ``__getitem__`` gives, as they are stored."""
    item = evaluator_of(project).method(dataset.instance, "__getitem__") if dataset.instance is not None else None
    if item is None or len(item.scope.returns) != 1 or (given := item.scope.returns[0].value) is None:
        return None
    frame = Frame(item.module, item.scope, None, dataset.instance)
    parts = [part.value for part in given.elements] if isinstance(given, cst.Tuple | cst.List | cst.Dict) else [given]
    sizes = [row for part in parts if (row := _row(part, frame, project, containers, 0)) is not None]
    if len(sizes) == 1:
        return sizes[0]
    numbers = [size.value for size in sizes]
    known = [number for number in numbers if number is not None]
    return Size((Sum(f"({' + '.join(map(str, sizes))})", sum(known)),)) if known and len(known) == len(sizes) else None


def _row(node: cst.BaseExpression, frame: Frame, project: Project, containers: Sequence[Container], depth: int) -> Size | None:
    """One row of an array of the dataset: ``self.x[i]``, also as a tensor, or under a name."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, cst.Call):
        called = node.func.value if isinstance(node.func, cst.Attribute) and not node.args else None
        inner = called if called is not None else node.args[0].value if node.args else None
        return _row(inner, frame, project, containers, depth + 1) if inner is not None and names.last_name(node.func) in _SAME else None
    if isinstance(node, cst.Subscript):
        whole = node.value
        own = isinstance(whole, cst.Attribute) and isinstance(whole.value, cst.Name) and whole.value.value == names.self_name(frame.scope)
        if not own or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        kept = next((one for one in containers if one.name == names.last_name(whole)), None)
        rest: tuple[Factor, ...] = kept.size.factors[1:] if kept is not None else ()
        return Size(rest) if rest and all(isinstance(part, int) for part in rest) else None
    if isinstance(node, cst.Name):
        for alt in evaluator_of(project).values(node, frame)[:2]:
            value = alt.value
            if isinstance(value, Written) and value.node is not None and value.node is not node and value.frame is not None:
                return _row(value.node, value.frame, project, containers, depth + 1)
    return None
