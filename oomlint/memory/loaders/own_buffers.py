"""Shuffle buffers that a project writes itself: a stream that fills a list up to some length and gives random elements of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import RANDOM
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of, is_positive
from oomlint.memory.shared.content_kinds import PAYLOAD
from oomlint.model import names
from oomlint.model.values import Display, Each, Frame, FunctionRef, Instance, PartOfEach, SourceExpression, Unknown
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.model.project import Project
    from oomlint.model.values import Alternative

_DEEPEST: Final = 3  # generators that call others
_MOST_STEPS: Final = 12  # from a sample to where it is read, through streams around streams


class Filled(Struct, frozen=True):
    """A buffer of decoded samples, with its length."""

    given: Alternative
    fills: Place


def filled(stream: Instance, project: Project) -> Iterator[Filled]:
    """The buffers that an object fills while its samples are read."""
    evaluator = evaluator_of(project)
    entry = evaluator.method(stream, "__iter__")
    for function in _generators(entry, project) if entry is not None else ():
        scope, module = function.scope, function.module
        if not scope.yields or not any(names.last_name(call.func) in RANDOM for call in scope.calls):
            continue
        frame = Frame(module, scope, None, function.this)
        for call in scope.calls:
            if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "append" or len(call.args) != 1:
                continue
            held = module.code(call.func.value)
            given = _length(held, frame, project) if _gives_from(held, frame) else None
            if given is not None and _is_decoded(call.args[0].value, frame, project):
                yield Filled(given, module.place(call, "this fills the buffer, with samples that are decoded"))


def _generators(entry: FunctionRef, project: Project, depth: int = 0) -> Iterator[FunctionRef]:
    """A method, and the generators that it calls."""
    yield entry
    frame = Frame(entry.module, entry.scope, None, entry.this)
    for call in entry.scope.calls if depth < _DEEPEST else ():
        for alt in evaluator_of(project).values(call.func, frame)[:2]:
            if isinstance(alt.value, FunctionRef) and alt.value.scope.yields and alt.value.scope is not entry.scope:
                yield from _generators(alt.value, project, depth + 1)


def _length(held: str, frame: Frame, project: Project) -> Alternative | None:
    """What the length of the container is compared with, where that is a known number."""
    found: list[Alternative] = []
    for node in frame.scope.nodes(inner=False):
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            sides = [node.left, node.comparisons[0].comparator]
            for length, limit in (sides, sides[::-1]):
                if isinstance(length, cst.Call) and frame.module.code(length) == f"len({held})":
                    found += [alt for alt in evaluator_of(project).values(limit, frame) if is_positive(alt.value)]
    return max(found, key=lambda alt: (not alt.reach, -alt.doubt), default=None)


def _gives_from(held: str, frame: Frame) -> bool:
    """Whether elements of the container are taken out one by one."""
    code = frame.module.code
    return any(
        (isinstance(node, cst.Subscript) and code(node.value) == held)
        or (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "pop" and code(node.func.value) == held)
        for node in frame.scope.nodes(inner=False)
    )


def _is_decoded(node: cst.BaseExpression, frame: Frame, project: Project, depth: int = 0) -> bool:
    """Whether a sample has arrays or tensors: as they are written, or as the stream gives them that it comes from."""
    if depth > _MOST_STEPS:
        return False
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        return any(_is_decoded(one.value, frame, project, depth + 1) for one in node.elements)
    if datasets_of(project).contents.of(node, frame).kind in PAYLOAD:
        return True
    evaluator = evaluator_of(project)
    if isinstance(node, cst.Call) and names.dotted(node.func) == "next" and node.args:
        return _gives_decoded(node.args[0].value, frame, project, depth)
    if isinstance(node, cst.Call) and all(type(alt.value) in {Unknown, SourceExpression} for alt in evaluator.values(node.func, frame)):
        return any(_is_decoded(arg.value, frame, project, depth + 1) for arg in node.args)  # what is applied to an array makes another one of it
    for alt in evaluator.values(node, frame)[:4]:
        value = alt.value.whole if isinstance(alt.value, PartOfEach) else alt.value
        if isinstance(value, Display) and value.node is not node and _is_decoded(value.node, value.frame, project, depth + 1):
            return True
        if isinstance(value, Each) and _gives_decoded(value.iterable, value.frame, project, depth):
            return True
    return False


def _gives_decoded(stream: cst.BaseExpression, frame: Frame, project: Project, depth: int) -> bool:
    """Whether another stream of the project yields decoded samples."""
    evaluator = evaluator_of(project)
    for alt in evaluator.values(stream, frame)[:4]:
        inner = evaluator.method(alt.value, "__iter__") if isinstance(alt.value, Instance) else None
        for function in _generators(inner, project) if inner is not None else ():
            around = Frame(function.module, function.scope, None, function.this)
            for node in descend(function.scope.suite):
                if isinstance(node, cst.Yield) and isinstance(node.value, cst.BaseExpression) and _is_decoded(node.value, around, project, depth + 1):
                    return True
    return False
