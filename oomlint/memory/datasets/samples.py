"""What one sample of a dataset is, and one batch of a loader: tuples, lists and dictionaries of arrays, with their shapes, types and bytes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.finding import ByteSize
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_values import Parts, collated
from oomlint.memory.datasets.torchvision_data import torchvision_data
from oomlint.memory.loaders.loader_calls import evaluator_of, loaders_of
from oomlint.memory.shared.shaped import NUMBER, TENSOR, Many, ShapedArray, ShapedText, certain, elements, group, leaves
from oomlint.model import arguments, names
from oomlint.model.values import Absent, Const, External, ExternalCall, Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.shaped import Part
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value

    PartsMaker = Callable[[Evaluator, Contents, Mapping[str, ShapedArray] | None, object], Parts]

_MOST_FRAMES: Final = 4
_WIDEST: Final = 8  # bytes of a number of which nobody knows the type


class Sample(Struct, frozen=True):
    """One way in which a dataset gives a sample, or a loader a batch of them; ``doubt`` counts what was assumed."""

    part: Part
    doubt: int = 0

    @property
    def arrays(self) -> list[ShapedArray | None]:
        """The arrays and numbers that it is made of, each as often as it is there; ``None`` for what nobody knows."""
        return [leaf if isinstance(leaf, ShapedArray) else None for leaf in leaves(self.part)]

    @property
    def at_least(self) -> int:
        """Bytes that it has at least."""
        return sum(leaf.at_least for leaf in self.arrays if leaf is not None)

    @property
    def exact(self) -> bool:
        """Whether it has just so many, and not perhaps more."""
        return all(isinstance(leaf, ShapedText) or (isinstance(leaf, ShapedArray) and leaf.exact is not None) for leaf in leaves(self.part))


def samples_of(
    project: Project, dataset: Dataset, known: Mapping[str, ShapedArray] | None = None, launch: object = None, make: PartsMaker = Parts
) -> Iterator[Sample]:
    """Each way in which a dataset gives a sample; ``known`` are attributes of it of which somebody knows more, ``make`` gives who knows more of expressions."""
    if dataset.instance is None and not dataset.holdings and dataset.inner:
        for inner in dataset.inner:
            yield from samples_of(project, inner, known, launch, make)
        return
    datasets = datasets_of(project)
    if dataset.instance is None:
        parts = make(datasets.evaluator, datasets.contents, known, launch)
        yield Sample(_row(parts, dataset), parts.doubt)
        return
    item = datasets.evaluator.method(dataset.instance, "__iter__" if dataset.iterable else "__getitem__")
    if item is None:
        return
    frame = Frame(item.module, item.scope, None, dataset.instance)
    for statement in item.scope.nodes(inner=False):
        value = statement.value if isinstance(statement, cst.Yield if dataset.iterable else cst.Return) else None
        if isinstance(value, cst.BaseExpression) and datasets.evaluator.where(statement, frame):
            parts = make(datasets.evaluator, datasets.contents, known, launch)
            yield Sample(parts.of(value, frame), parts.doubt)


def length_of(project: Project, dataset: Dataset, launch: object = None) -> int | None:
    """How many samples a dataset says that it has; ``None`` where nobody knows."""
    datasets = datasets_of(project)
    method = datasets.evaluator.method(dataset.instance, "__len__") if dataset.instance is not None else None
    if method is None or len(method.scope.returns) != 1 or method.scope.returns[0].value is None:
        return None
    parts = Parts(datasets.evaluator, datasets.contents, None, launch)
    found = parts.number(method.scope.returns[0].value, Frame(method.module, method.scope, None, dataset.instance))
    return found if isinstance(found, int) and found > 0 else None


def held_bytes(project: Project, dataset: Dataset, holding: Holding) -> int | None:
    """Bytes of the arrays that a dataset holds in an attribute, or is; ``None`` where they are not known for sure."""
    datasets = datasets_of(project)
    parts = Parts(datasets.evaluator, datasets.contents)
    if dataset.instance is not None:
        held = parts.attribute(dataset.instance, holding.name)
    elif dataset.frame is not None and isinstance(dataset.node, cst.Call) and names.last_name(dataset.node.func) == "TensorDataset":
        place = next((n for n, one in enumerate(dataset.holdings) if one is holding), len(dataset.node.args))
        held = parts.of(dataset.node.args[place].value, dataset.frame) if place < len(dataset.node.args) else None
    else:
        held = parts.of(dataset.node, dataset.frame) if dataset.frame is not None and isinstance(dataset.node, cst.BaseExpression) else None
    sizes = [leaf.exact if isinstance(leaf, ShapedArray) and leaf.of != "python" else None for leaf in leaves(held)]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes and not parts.doubt else None


def made_bytes(project: Project, module: Module, node: cst.BaseExpression) -> ByteSize:
    """Bytes of the array that an expression makes, whoever calls the function around it: so many where they are known for sure, else so many at least."""
    evaluator, scope = evaluator_of(project), module.walk.scope_at(node)
    frames = evaluator.calls.frames(module, scope, most=_MOST_FRAMES) or [evaluator.calls.plain_frame(module, scope)]
    found: list[tuple[int | None, int]] = []
    for frame in frames:
        parts = Parts(evaluator, datasets_of(project).contents)
        made = parts.of(node, frame)
        array = made if isinstance(made, ShapedArray) and made.of != "python" else ShapedArray()
        found.append((array.exact if not parts.doubt else None, array.at_least))
    sizes = [exact for exact, _ in found if exact is not None]
    least = min(least for _, least in found)
    return ByteSize(max(sizes)) if len(sizes) == len(found) else ByteSize(least=least if least >= project.settings.small_bytes else None)


def row_bytes(project: Project, module: Module, node: cst.BaseExpression) -> int | None:
    """Bytes of each array of a list, whoever calls the function around it, of the largest; ``None`` where they are not known for sure."""
    evaluator, scope = evaluator_of(project), module.walk.scope_at(node)
    most = 0
    for frame in evaluator.calls.frames(module, scope, most=_MOST_FRAMES) or [evaluator.calls.plain_frame(module, scope)]:
        parts = Parts(evaluator, datasets_of(project).contents)
        one = elements(parts.of(node, frame))[0]
        if not isinstance(one, ShapedArray) or one.shape is None or one.of == "python" or len(certain(one.shape)) < len(one.shape) or parts.doubt:
            return None
        most = max(most, prod(certain(one.shape)) * (one.item or _WIDEST))
    return most


def _row(parts: Parts, dataset: Dataset) -> Part:
    """A row of each tensor of a ``TensorDataset``, an element of a list."""
    node, frame = dataset.node, dataset.frame
    if frame is None or not isinstance(node, cst.BaseExpression):
        return None
    if isinstance(node, cst.Call) and names.last_name(node.func) == "TensorDataset":
        whole = [] if arguments.has_stars(node) else [parts.of(arg.value, frame) for arg in node.args]
        return group([elements(one)[0] if isinstance(one, ShapedArray) and one.shape else TENSOR for one in whole])
    return elements(parts.of(node, frame))[0]


def _of_library(project: Project, value: Value, launch: object) -> Iterator[Sample]:
    """A sample of a dataset of torchvision: a picture and a number."""
    known = torchvision_data(value.name) if isinstance(value, ExternalCall) else None
    transform = arguments.argument_for(value.call, "transform", place=known.place) if known is not None and isinstance(value, ExternalCall) else None
    if known is None or transform is None or not isinstance(value, ExternalCall):
        return
    for alt in evaluator_of(project).values(transform, value.frame):
        parts = Parts(evaluator_of(project), datasets_of(project).contents, None, launch)
        made = parts.applied(alt.value, known.picture)
        yield Sample(group([made, NUMBER]), parts.doubt)


def batches_of(project: Project, loader: Loader, frame: Frame, count: int, launch: object = None) -> Iterator[tuple[Dataset | None, list[Sample]]]:
    """What a loader gives for so many samples, by the dataset that it may read; ``None`` for one of a library."""
    loaders = loaders_of(project)
    datasets = datasets_of(project)
    found: list[tuple[Dataset | None, list[Sample]]] = [
        (dataset, list(samples_of(project, dataset, None, launch))) for dataset in datasets.of(loaders, loader, frame)
    ]
    found += [(None, list(_of_library(project, alt.value, launch))) for alt in loaders.argument(loader, "dataset", frame)]
    functions = [alt.value for alt in loaders.argument(loader, "collate_fn", frame) if not alt.reach]
    for dataset, samples in found:
        yield dataset, [_batch(project, sample, function, count, launch) for sample in samples for function in functions]


def _batch(project: Project, sample: Sample, function: Value, count: int, launch: object) -> Sample:
    """So many samples, put together by a function, else by the default one."""
    rows = Many(sample.part, count)
    if isinstance(function, Absent) or function == Const(None):
        return Sample(collated(rows), sample.doubt)
    parts = Parts(evaluator_of(project), datasets_of(project).contents, None, launch)
    made = collated(rows) if isinstance(function, External) and function.name.endswith(".default_collate") else parts.applied(function, rows)
    return Sample(made, max(sample.doubt, parts.doubt))
