"""What a part of a batch is, where the dataset behind the loader says what its samples are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.content_kinds import Kind
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.model import names
from oomlint.model.values import Absent, Const, Frame
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.events import Loop
    from oomlint.model.project import Project

    Keys = tuple[object, ...]

_COLLATED = frozenset({Kind.TENSOR, Kind.ARRAY, Kind.SCALAR})  # of which the default `collate_fn` makes tensors


def gives_tensor(project: Project, loop: Loop, expression: cst.BaseExpression) -> bool:
    """Whether a part of a batch is a tensor that the default ``collate_fn`` makes, by what ``__getitem__`` of all datasets of the loader returns."""
    if isinstance(expression, cst.Tuple | cst.List | cst.Dict):
        return any(gives_tensor(project, loop, one.value) for one in expression.elements)
    like = loop.loader
    keys = _keys(loop, expression)
    if not isinstance(like, LoaderLike) or like.loader is None or keys is None:
        return False
    loaders = loaders_of(project)
    if any(not isinstance(alt.value, Absent) and alt.value != Const(None) for alt in loaders.argument(like.loader, "collate_fn", like.frame)):
        return False
    found = datasets_of(project).of(loaders, like.loader, like.frame)
    return bool(found) and all(_is_collated(project, one, keys) for one in found)


def _keys(loop: Loop, expression: cst.BaseExpression) -> Keys | None:
    """The way from a sample to what is meant: ``(1,)`` for ``y`` of ``for x, y in loader``; None where it is no part of the batch of this loop."""
    rest: list[object] = []
    while isinstance(expression, cst.Subscript):
        index = expression.slice[0].slice if len(expression.slice) == 1 else None
        key = constant_key(index.value) if isinstance(index, cst.Index) else UNKNOWN_KEY
        if key is UNKNOWN_KEY:
            return None
        rest.insert(0, key)
        expression = expression.value
    if not isinstance(expression, cst.Name) or not isinstance(loop.node, cst.For):
        return None
    target: cst.BaseExpression = loop.node.target
    iterable = loop.node.iter
    while isinstance(iterable, cst.Call) and names.last_name(iterable.func) in {"enumerate", "tqdm"} and iterable.args:
        if names.last_name(iterable.func) == "enumerate":
            parts = target.elements if isinstance(target, cst.Tuple) else ()
            if len(parts) != 2:  # noqa: PLR2004 - the number of a round, and what it is for
                return None
            target = parts[1].value
        iterable = iterable.args[0].value
    found = next((keys for keys, name in _names(target, ()) if name == expression.value), None)
    return (*found, *rest) if found is not None else None


def _names(target: cst.BaseExpression, keys: Keys) -> Iterator[tuple[Keys, str]]:
    if isinstance(target, cst.Name):
        yield keys, target.value
    elif isinstance(target, cst.Tuple | cst.List) and not any(isinstance(one, cst.StarredElement) for one in target.elements):
        for place, one in enumerate(target.elements):
            yield from _names(one.value, (*keys, place))


def _is_collated(project: Project, dataset: Dataset, keys: Keys) -> bool:
    while dataset.instance is None and len(dataset.inner) == 1 and not dataset.holdings:
        dataset = dataset.inner[0]  # `Subset`, `random_split`
    if isinstance(dataset.node, cst.Call) and names.last_name(dataset.node.func) == "TensorDataset":
        return len(keys) == 1
    datasets = datasets_of(project)
    item = datasets.evaluator.method(dataset.instance, "__getitem__") if dataset.instance is not None else None
    if item is None or not item.scope.returns:
        return False
    frame = Frame(item.module, item.scope, None, dataset.instance)
    for statement in item.scope.returns:
        node = statement.value
        for key in keys:
            node = _part(node, key)
        content = datasets.contents.of(node, frame) if node is not None else None
        if content is None or content.kind not in _COLLATED or content.doubt:
            return False
    return True


def _part(node: cst.BaseExpression | None, key: object) -> cst.BaseExpression | None:
    """An element of a tuple, or an entry of a dictionary, as it is written."""
    if isinstance(node, cst.Tuple | cst.List) and isinstance(key, int) and -len(node.elements) <= key < len(node.elements):
        return node.elements[key].value if not any(isinstance(one, cst.StarredElement) for one in node.elements) else None
    if isinstance(node, cst.Dict):
        entries = (one for one in node.elements if isinstance(one, cst.DictElement))
        return next((one.value for one in entries if constant_key(one.key) == key), None)
    return None
