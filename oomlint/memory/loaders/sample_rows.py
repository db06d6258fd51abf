"""Bytes of samples that are rows of tensors and arrays in memory: of a ``TensorDataset``, or of a dataset that indexes an array of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst

from oomlint.api_names import AS_ARRAY
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_shapes import allocation
from oomlint.memory.shared.byte_size import allocated, item_bytes
from oomlint.model import arguments, names
from oomlint.model.values import Element, ExternalCall, Written

if TYPE_CHECKING:
    from oomlint.model.project import Project
    from oomlint.model.questions import Questions
    from oomlint.model.values import Frame, Value

_TENSORS: Final = "torch.utils.data.TensorDataset"
_PARTS: Final = frozenset({"torch.utils.data.Subset", "torch.utils.data.random_split"})
_FLOATS: Final = {"float": 4, "double": 8, "half": 2, "bfloat16": 2}
_CASTS: Final = {**_FLOATS, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1, "bool": 1}
_TYPED: Final = frozenset({"astype", "to", "type"})
_SAME: Final = frozenset(
    "copy clone contiguous detach cpu numpy share_memory_ pin_memory requires_grad_ zero_ fill_ normal_ uniform_ random_".split()
)  # methods that change neither the shape nor the type
_PLAIN: Final = frozenset({"dtype", "copy", "device", "requires_grad"})  # arguments that leave the shape
_DEEPEST: Final = 8


class Row(NamedTuple):
    """Bytes of what a sample takes of arrays, and how much had to be assumed."""

    bytes: int
    ways: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """An array, or a row of one. ``sure``: all of it follows from constants, the number of rows perhaps not."""

    dimensions: tuple[int | str, ...]
    item: int
    sure: bool
    row: bool = False

    def one(self) -> _Shape:
        """One row of it."""
        return replace(self, dimensions=self.dimensions[1:], row=True)

    def size(self) -> Row | None:
        """Its bytes, where all of its dimensions are known."""
        known = [each for each in self.dimensions if isinstance(each, int)]
        return Row(prod(known) * self.item, int(not self.sure)) if len(known) == len(self.dimensions) else None


def tensor_rows(project: Project, dataset: Value, depth: int = 0) -> Row | None:
    """What a sample of a ``TensorDataset``, or of a part of one, takes at least; ``None`` for other datasets, and where no shape is known."""
    evaluator = evaluator_of(project)
    made = dataset.whole if isinstance(dataset, Element) else dataset
    if not isinstance(made, ExternalCall) or depth > _DEEPEST or arguments.has_stars(made.call):
        return None
    name = names.canonical(made.name)
    if name in _PARTS and made.call.args:
        found = evaluator.values(made.call.args[0].value, made.frame)
        return tensor_rows(project, found[0].value, depth + 1) if len(found) == 1 else None
    if name != _TENSORS or made is not dataset:
        return None
    shapes = [shape for arg in made.call.args if (shape := _shape(arg.value, made.frame, evaluator)) is not None]
    rows = [row for shape in shapes if not shape.row and (row := shape.one().size()) is not None]
    return Row(sum(row.bytes for row in rows), max(row.ways for row in rows)) if rows else None


def indexed_row(node: cst.BaseExpression, frame: Frame, evaluator: Questions) -> Row | None:
    """What ``self.images[index]`` takes, which ``__getitem__`` returns: as it stands, as a tensor, of another type, or under a name."""
    shape = _shape(node, frame, evaluator)
    return shape.size() if shape is not None and shape.row else None


def _shape(node: cst.BaseExpression, frame: Frame, evaluator: Questions, depth: int = 0) -> _Shape | None:
    """The shape of an array, or of a row that the index of a sample picks; ``None`` where something on the way is not known."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, cst.Subscript):
        whole = _shape(node.value, frame, evaluator, depth + 1)
        if whole is None or whole.row or len(node.slice) != 1:
            return None
        part = node.slice[0].slice
        if isinstance(part, cst.Index):
            return whole.one() if _is_index(part.value, frame) else None
        return replace(whole, dimensions=("rows", *whole.dimensions[1:]))
    if isinstance(node, cst.BinaryOperation):  # a number leaves the type of what is cast to floats
        cast = isinstance(node.left, cst.Call) and isinstance(node.left.func, cst.Attribute) and node.left.func.attr.value in _FLOATS
        return _shape(node.left, frame, evaluator, depth + 1) if cast and isinstance(node.right, cst.Integer | cst.Float) else None
    if isinstance(node, cst.Name):
        effects = frame.scope.effects.get(node.value, ())
        if len(effects) == 1 and effects[0].kind == "assign" and not effects[0].path and not effects[0].index and effects[0].value is not None:
            return _shape(effects[0].value, frame, evaluator, depth + 1)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME | _CASTS.keys() | _TYPED:
        return _typed(_shape(node.func.value, frame, evaluator, depth + 1), _after(node, node.func.attr.value))
    found = evaluator.values(node, frame)
    if len(found) != 1:
        return None
    value = found[0].value
    if isinstance(value, Written) and value.node is not None and value.node is not node and value.frame is not None:
        return _shape(value.node, value.frame, evaluator, depth + 1)
    return _of_call(value, evaluator, depth) if isinstance(value, ExternalCall) else None


def _of_call(value: ExternalCall, evaluator: Questions, depth: int) -> _Shape | None:
    """The shape of what a function of numpy or torch makes."""
    name, call = names.canonical(value.name), value.call
    last = name.rpartition(".")[2]
    if arguments.has_stars(call):
        return None
    if last in AS_ARRAY and name.startswith(("numpy.", "torch.")):
        first = arguments.plain(call)
        if len(first) != 1 or not arguments.by_name(call).keys() <= _PLAIN:
            return None
        dtype = arguments.named(call, "dtype")
        return _typed(_shape(first[0], value.frame, evaluator, depth + 1), item_bytes(dtype, 0))
    made = allocation(name, call, evaluator, value.frame)
    if made is None or made.item is None or (last == "full" and not arguments.has(call, "dtype")):  # the type is that of what it is filled with
        return None
    if len(made.dimensions) == 1 and isinstance(made.dimensions[0], str):
        return None  # a number, or a whole shape
    return _Shape(made.dimensions, made.item, allocated(name, call, evaluator, value.frame).known)


def _typed(shape: _Shape | None, item: int | None) -> _Shape | None:
    """The same with elements of so many bytes; of as many as before where that is 0."""
    return None if shape is None or item is None else replace(shape, item=item or shape.item)


def _after(node: cst.Call, method: str) -> int | None:
    """Bytes of an element behind a method; 0 where it leaves the type, ``None`` where nobody knows."""
    if method in _SAME:
        return 0
    if method in _CASTS:
        return _CASTS[method]
    given = [*arguments.plain(node), *filter(None, [arguments.named(node, "dtype")])]
    if method == "to" and len(given) == 1 and isinstance(given[0], cst.SimpleString):
        return 0  # a device
    return next((item for each in given if (item := item_bytes(each, 0))), None)


def _is_index(node: cst.BaseExpression, frame: Frame) -> bool:
    """Whether it is the index that ``__getitem__`` is asked for, or that within the length: ``index % len(self.images)``."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        node = node.left
    function = frame.scope.node
    given = function.params.params if isinstance(function, cst.FunctionDef) else ()
    return isinstance(node, cst.Name) and len(given) == len(("self", "index")) and node.value == given[1].name.value
