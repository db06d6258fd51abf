"""What a part of a batch is, where the dataset behind the loader says what its samples are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.datasets.samples import batches_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.memory.shared.shaped import Array, Group
from oomlint.model import names
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.shared.shaped import Part
    from oomlint.model.events import Loop
    from oomlint.model.project import Project

    Keys = tuple[object, ...]


def gives_tensor(project: Project, loop: Loop, expression: cst.BaseExpression) -> bool:
    """Whether a part of a batch is a tensor, by what ``__getitem__`` of all datasets of the loader returns and how that is collated."""
    if isinstance(expression, cst.Tuple | cst.List | cst.Dict):
        return any(gives_tensor(project, loop, one.value) for one in expression.elements)
    like = loop.loader
    keys = _keys(loop, expression)
    if not isinstance(like, LoaderLike) or like.loader is None or keys is None:
        return False
    found = [way for _, ways in batches_of(project, like.loader, like.frame, 1) for way in ways]
    return bool(found) and all(isinstance(part := _at(way.part, keys), Array) and part.of == "torch" for way in found)


def _at(part: Part, keys: Keys) -> Part:
    for key in keys:
        part = part.at(key) if isinstance(part, Group) else None
    return part


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
