"""What a part of a batch is, where the dataset behind the loader says what its samples are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.datasets.samples import batches_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.memory.shared.seen_axes import SAME_AXES
from oomlint.memory.shared.shaped import ShapedArray, ShapedGroup
from oomlint.model import names
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.memory.shared.shaped import Part
    from oomlint.model.events import Loop
    from oomlint.model.project import Project

    Keys = tuple[object, ...]

_AS_LARGE: Final = SAME_AXES | {"tolist"}


def gives_tensor(project: Project, loops: Sequence[Loop], expression: cst.BaseExpression) -> bool:
    """Whether a part of a batch is a tensor, by what ``__getitem__`` of all datasets of the loader returns and how that is collated."""
    return any(bool(ways) and all(isinstance(part, ShapedArray) and part.of == "torch" for part in ways) for ways in parts_given(project, loops, expression))


def parts_given(project: Project, loops: Sequence[Loop], expression: cst.BaseExpression) -> Iterator[list[Part]]:
    """What an expression takes of a batch of the first loop, part by part, and each in all ways in which the datasets give it."""
    if isinstance(expression, cst.Tuple | cst.List | cst.Dict):
        for one in expression.elements:
            yield from parts_given(project, loops, one.value)
        return
    loop, *inner = loops
    like = loop.loader
    if not isinstance(like, LoaderLike) or like.loader is None:
        return
    expression = _as_large(_named(_as_large(expression), loop))
    batch = next((whole for one in inner if (whole := _whose_value(one, expression)) is not None), None)
    keys = keys_of(loop, expression if batch is None else batch)
    if keys is None:
        return
    found = [_at(way.part, keys) for _, ways in batches_of(project, like.loader, like.frame, 1) for way in ways]
    if batch is None:
        yield found
        return
    for part in found:
        yield from ([value] for _, value in (part.parts if isinstance(part, ShapedGroup) else ()))


def is_whole(loop: Loop, expression: cst.BaseExpression) -> bool:
    """Whether an expression has all of a batch, brought to a device say: ``batch.cuda()``, ``(images.cuda(), labels)``."""
    expression = _as_large(_named(_as_large(expression), loop))
    if isinstance(expression, cst.DictComp | cst.ListComp):
        over, rows = expression.for_in.iter, expression.for_in
        whole = over.func.value if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and over.func.attr.value in {"items", "values"} else over
        return not rows.ifs and rows.inner_for_in is None and keys_of(loop, whole) == ()
    if isinstance(expression, cst.Tuple | cst.List | cst.Dict):
        target = _batch_of(loop)
        given = {keys for keys, _ in _names(target, ())} if target is not None else set()
        return len(given) > 1 and {keys_of(loop, _as_large(_named(_as_large(one.value), loop))) for one in expression.elements} >= given
    return keys_of(loop, expression) == ()


def _named(expression: cst.BaseExpression, loop: Loop) -> cst.BaseExpression:
    """What a name stands for that only one statement of the loop sets."""
    effects = loop.scope.effects.get(expression.value, ()) if isinstance(expression, cst.Name) else ()
    only = effects[0] if len(effects) == 1 else None
    plain = only is not None and only.kind == "assign" and not only.path and not only.index and loop.node in loop.module.walk.ancestors(only.statement)
    return only.value if plain and only is not None and only.value is not None else expression


def _as_large(expression: cst.BaseExpression) -> cst.BaseExpression:
    """What is brought into another form that holds as many numbers."""
    while isinstance(expression, cst.Call) and isinstance(expression.func, cst.Attribute) and expression.func.attr.value in _AS_LARGE:
        expression = expression.func.value
    return expression


def _whose_value(loop: Loop, expression: cst.BaseExpression) -> cst.BaseExpression | None:
    """The dictionary through whose values a loop goes, where they have that name: ``for key, value in batch.items()``."""
    over = loop.iterable
    if not isinstance(loop.node, cst.For | cst.CompFor) or not isinstance(over, cst.Call) or not isinstance(over.func, cst.Attribute):
        return None
    place: Keys | None = {"items": (1,), "values": ()}.get(over.func.attr.value)
    named = isinstance(expression, cst.Name) and place is not None and (place, expression.value) in _names(loop.node.target, ())
    return over.func.value if named else None


def _at(part: Part, keys: Keys) -> Part:
    for key in keys:
        part = part.at(key) if isinstance(part, ShapedGroup) else None
    return part


def keys_of(loop: Loop, expression: cst.BaseExpression) -> Keys | None:
    """The way from a sample to what is meant: ``(1,)`` for ``y`` of ``for x, y in loader``; None where it is no part of the batch of this loop."""
    rest: list[object] = []
    while isinstance(expression, cst.Subscript):
        index = expression.slice[0].slice if len(expression.slice) == 1 else None
        key = constant_key(index.value) if isinstance(index, cst.Index) else UNKNOWN_KEY
        if key is UNKNOWN_KEY:
            return None
        rest.insert(0, key)
        expression = expression.value
    target = _batch_of(loop)
    if not isinstance(expression, cst.Name) or target is None:
        return None
    found = next((keys for keys, name in _names(target, ()) if name == expression.value), None)
    return (*found, *rest) if found is not None else None


def _batch_of(loop: Loop) -> cst.BaseExpression | None:
    """The target that gets the batches, without the number of each."""
    if not isinstance(loop.node, cst.For | cst.CompFor):
        return None
    return names.gone_through(loop.node)[1]


def _names(target: cst.BaseExpression, keys: Keys) -> Iterator[tuple[Keys, str]]:
    if isinstance(target, cst.Name):
        yield keys, target.value
    elif isinstance(target, cst.Tuple | cst.List) and not any(isinstance(one, cst.StarredElement) for one in target.elements):
        for place, one in enumerate(target.elements):
            yield from _names(one.value, (*keys, place))
