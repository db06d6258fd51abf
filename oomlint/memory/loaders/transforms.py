"""The bytes that a chain of torchvision's transforms gives for one picture, where it says what size it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import Display, ExternalCall, Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Project
    from oomlint.model.values import Alternative, Instance, Value

_CROPS: Final = frozenset({"CenterCrop", "RandomCrop", "RandomResizedCrop"})  # one number is a square
_ITEM: Final = {"ToTensor": 4, "PILToTensor": 1, "ToImage": 1}  # bytes of a number behind it
_COLOURED: Final = frozenset({"torchvision.datasets.ImageFolder", "torchvision.datasets.ImageNet"})  # they read pictures as RGB
_MOST: Final = 8


def picture_bytes(project: Project, dataset: Value) -> int | None:
    """Bytes of the picture in a sample: of a library's folder of pictures, or of a class that gives what a chain makes of a picture; the most of all ways."""
    if isinstance(dataset, ExternalCall) and names.canonical(dataset.name) in _COLOURED:
        given = arguments.argument_for(dataset.call, "transform", place=1)
        return max(_sizes(project, given, dataset.frame, 3), default=None) if given is not None else None
    return None


def transformed_bytes(project: Project, instance: Instance) -> int | None:
    """The same of a class of the project, whose ``__getitem__`` runs the chain."""
    item = evaluator_of(project).method(instance, "__getitem__")
    if item is None:
        return None
    frame = Frame(item.module, item.scope, None, instance)
    returned = {node.value for one in item.scope.returns if one.value is not None for node in _names(one.value)}
    colours = 3 if any(_converts(call) for call in item.scope.calls) else 1
    found: list[int] = []
    for call in item.scope.calls:
        holder = item.module.walk.parents.get(call)
        target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
        if (isinstance(target, cst.Name) and target.value in returned) or isinstance(holder, cst.Return | cst.Element | cst.DictElement):
            found.extend(_sizes(project, call.func, frame, colours))
    return max(found, default=None)


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, cst.Tuple | cst.List | cst.Dict):
        for element in node.elements:
            yield from _names(element.value)


def _converts(call: cst.Call) -> bool:
    """Whether a call makes a picture of three colours: ``convert("RGB")``."""
    first = call.args[0].value if call.args else None
    return names.last_name(call.func) == "convert" and isinstance(first, cst.SimpleString) and first.evaluated_value == "RGB"


def _sizes(project: Project, node: cst.BaseExpression, frame: Frame, colours: int) -> Iterator[int]:
    """Bytes that each chain which an expression may be gives for a picture."""
    evaluator = evaluator_of(project)
    for alt in evaluator.values(node, frame)[:_MOST]:
        value = alt.value
        if not isinstance(value, ExternalCall) or not _is(value, "Compose") or not value.call.args:
            continue
        for steps in evaluator.values(value.call.args[0].value, value.frame)[:2]:
            shown = steps.value
            if isinstance(shown, Display) and isinstance(shown.node, cst.List | cst.Tuple):
                yield from _of_chain(project, shown, colours)


def _of_chain(project: Project, chain: Display, colours: int) -> Iterator[int]:
    evaluator = evaluator_of(project)
    pixels: list[int] = []
    item = 0
    for element in chain.node.elements if isinstance(chain.node, cst.List | cst.Tuple) else ():
        step = next((alt.value for alt in evaluator.values(element.value, chain.frame)[:1]), None)
        if not isinstance(step, ExternalCall) or not step.name.startswith("torchvision."):
            return
        last = step.name.rpartition(".")[2]
        if last == "Grayscale":
            colours = 1
        item = item or _ITEM.get(last, 0)
        if (last in _CROPS or last == "Resize") and step.call.args:
            pixels = list(_pixels(project, evaluator.values(step.call.args[0].value, step.frame), square=last != "Resize"))
        elif last in {"Pad", "FiveCrop", "TenCrop", "Lambda"}:
            return
    for number in pixels if item else ():
        yield colours * item * number


def _pixels(project: Project, found: list[Alternative], *, square: bool) -> Iterator[int]:
    """The pixels of a size: two numbers, or one where it is a square."""
    for alt in found[:_MOST]:
        value = alt.value
        if isinstance(alt.const, int) and square:
            yield alt.const**2
        elif isinstance(value, Display) and isinstance(value.node, cst.List | cst.Tuple) and len(value.node.elements) == len(("height", "width")):
            high, wide = (_numbers(project, side.value, value.frame) for side in value.node.elements)
            yield from (h * w for h, w in zip(high, wide, strict=False))


def _numbers(project: Project, node: cst.BaseExpression, frame: Frame) -> list[int]:
    return [alt.const for alt in evaluator_of(project).values(node, frame)[:_MOST] if isinstance(alt.const, int) and not alt.reach]


def _is(value: ExternalCall, name: str) -> bool:
    return value.name.startswith("torchvision.transforms.") and value.name.rpartition(".")[2] == name
