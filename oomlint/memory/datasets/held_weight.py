"""How much of what a dataset holds matters to its workers: what is small, light beside the samples, large, or wholly in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.name_uses import loads_itself, names_files, only_names_files
from oomlint.memory.datasets.sample_body import SampleBody
from oomlint.memory.datasets.sample_uses import holds_containers, is_looked_into, is_numpy
from oomlint.memory.datasets.samples import held_bytes
from oomlint.memory.facts import items_of
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.byte_size import Size
from oomlint.memory.shared.content_kinds import IN_MEMORY, PAYLOAD, Form, PayloadKind
from oomlint.model.tensor_state import ROWS
from oomlint.model.values import ClassRef, FunctionRef, Instance

if TYPE_CHECKING:
    from oomlint.config import Settings
    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.evaluate import Evaluator

MOST_STORAGES: Final = 200  # forkserver refuses 246 file descriptors at once; each tensor of its own takes one
_UNSEEN: Final = frozenset({PayloadKind.OBJECTS, PayloadKind.BLOB})  # what a file is thought to hold of which nobody sees more
_OF_CONTAINERS: Final = 2  # containers around what nobody knows: tuples in a list


def as_used(holding: Holding, dataset: Dataset, loader: Loader) -> Holding:
    """The same with its bytes, where they are known; what a file of torch is thought to hold are arrays where the samples are taken for such."""
    content = holding.content
    if holding.read and content.kind in PAYLOAD and not content.size.known:
        size = held_bytes(loader.module.project, owner_of(dataset, holding), holding)
        content = replace(content, size=Size(size)) if size is not None else content
        holding = replace(holding, content=content)
    if content.kind is PayloadKind.TENSORS and is_numpy(owner_of(dataset, holding), holding.name, datasets_of(loader.module.project).evaluator):
        return replace(holding, content=replace(content, kind=PayloadKind.ARRAYS, words=content.words.replace("tensors", "arrays")))
    return holding


def is_small(content: Content, settings: Settings) -> bool:
    """Whether it is proven small."""
    if content.size.exact is not None and content.kind is not PayloadKind.MEMMAP:
        return content.size.exact < settings.small_bytes
    if content.count is not None and content.kind not in {PayloadKind.ARRAYS, PayloadKind.TENSORS}:
        return content.count < settings.small_elements
    if content.count is not None:
        # Few elements can still be big, but not where they are what one sample is.
        return content.count < MOST_STORAGES
    return False


def owner_of(dataset: Dataset, holding: Holding) -> Dataset:
    """The dataset that has the attribute: the loader's own, or one that it wraps."""
    mine = (holding.name, holding.effect, holding.content.node)  # its bytes may have become known since
    inner = (one for one in dataset.inner if any((h.name, h.effect, h.content.node) == mine for h in one.every()))
    return next((owner_of(one, holding) for one in inner), dataset)


def extent(holding: Holding, dataset: Dataset, loader: Loader) -> int:
    """How many axes what is held has, by what is seen of it: one of numbers, more of containers of containers."""
    content, datasets = holding.content, datasets_of(loader.module.project)
    if content.numbers:
        return 1
    instance = owner_of(dataset, holding).instance
    seen = datasets.seen.of_attribute(datasets.evaluator.lineage(instance.cls), holding.name).least if instance is not None else 0
    depth, inner = 1, content.element
    while inner is not None:
        depth, inner = depth + 1, inner.element
    return max(seen, depth, ROWS)


def is_option(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether it is something of which nobody says what it holds, and that no sample takes an element of: a number of the settings."""
    evaluator = datasets_of(loader.module.project).evaluator
    unknown = holding.effect is not None and holding.content.kind in _UNSEEN and holding.content.element is None
    return unknown and not is_looked_into(dataset, holding.name, evaluator)


def may_hold_arrays(content: Content) -> bool:
    """Whether it is a container of tuples or lists of which nobody says what they hold, or of what a pickle gives, however deep that lies."""
    leaf, depth = content, 0
    while leaf.kind is PayloadKind.OBJECTS and leaf.element is not None:
        leaf, depth = leaf.element, depth + 1
    return (leaf.kind is PayloadKind.UNKNOWN and depth == _OF_CONTAINERS) or (leaf.kind is PayloadKind.BLOB and leaf.form is Form.PICKLED and depth > 0)


def is_light(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether a container of which nobody says how much it holds has a number or a few, a name, or a record with the path of its file, for each sample."""
    content = holding.content
    if content.count is not None or content.size.known:
        return False
    items, evaluator = items_of(content), datasets_of(loader.module.project).evaluator
    if items == "numbers" or names_files(dataset.instance, holding.name, evaluator) or only_names_files(dataset.instance, holding.name, evaluator):
        return True
    record = content.element
    if record is not None and isinstance(record.node, cst.Tuple) and items_of(record) == "numbers":
        return True  # a place in the data: the number of the file, and that of the window in it
    if is_beside(content, dataset, holding.name, evaluator) and (
        dataset.opens_files or any(one.content.kind in PAYLOAD for one in dataset.every() if one.read)
    ):
        return True  # a table says something of each sample, which is somewhere else
    if record is not None and record.dataset is not None:
        return loads_itself(record.dataset, evaluator) or names_files(dataset.instance, holding.name, evaluator, records=True)
    alike = record is not None and (items_of(record) in {"strings", "numbers", ""} or isinstance(record.node, cst.BaseComp))  # what is in it is all of one kind
    return alike and names_files(dataset.instance, holding.name, evaluator, records=True)


def is_aside(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether records of unknown number describe samples that are read from files: what a few workers copy of them is little beside those."""
    content = holding.content
    of_files = content.count is None and not content.size.known and content.form is not Form.ANNOTATIONS
    return of_files and (dataset.opens_files or _collates_files(dataset, loader))


def _collates_files(dataset: Dataset, loader: Loader) -> bool:
    """Whether the function that puts samples together reads their files: what the loader is given for it, or what its own class sets."""
    loaders = loaders_of(loader.module.project)
    found = loaders.argument(loader, "collate_fn", loaders.evaluator.calls.plain_frame(loader.module, loader.scope))
    if loader.inherited and loader.scope.parent is not None:
        found = [*found, *loaders.evaluator.attribute(Instance(ClassRef(loader.module, loader.scope.parent), None), "collate_fn", ())]
    functions = [alt.value for alt in found if isinstance(alt.value, FunctionRef)]
    return dataset.instance is not None and any(SampleBody(loaders.evaluator, dataset.instance, function).reads_files for function in functions)


def is_beside(content: Content, dataset: Dataset, name: str, evaluator: Evaluator) -> bool:
    """Whether a container has a value of a table for each sample, or a field of a record that nobody looks into."""
    of = content.element.form if content.element is not None else None
    return of is Form.CELL or (of is Form.FIELD and not holds_containers(dataset, name, evaluator))


def is_large(content: Content, settings: Settings) -> bool:
    """Whether an array is proven large, or is all that an HDF5 file has under a name, which is seldom little."""
    size = content.size.exact
    return size >= settings.array_bytes if size is not None else content.form is Form.WHOLE_HDF5


def wholly_held(dataset: Dataset, held: list[Holding]) -> list[Holding]:
    """What a dataset that is wholly in memory reads its samples from; nothing where it reads files, too."""
    if dataset.iterable or dataset.opens_files:
        return []
    whole = [h for h in held if h.read and h.content.kind in IN_MEMORY]
    if all(h.content.kind is PayloadKind.ARRAY and h.content.numbers for h in whole):
        return []  # a number for each sample, which comes from elsewhere
    return [] if dataset.unknown and all(h.content.kind is PayloadKind.FRAME for h in whole) else whole  # a table of file names is not the data
