"""What the nouns of this room are as the facts of a finding: names, places and numbers, and nothing of a tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.finding import (
    AllocationFact,
    AttributeFact,
    ByteSize,
    ContentKind,
    DatasetFact,
    HandleFact,
    LoaderFact,
    LoopFact,
    LoopKind,
    RanksFact,
    ReadFact,
    Resource,
    StoreFact,
    StoreKind,
    WorkerCount,
)
from oomlint.memory.handles.openings import Opens
from oomlint.memory.shared.array_bytes import Bytes, commented
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model.values import Const, External, ExternalCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.finding import Fact, Place
    from oomlint.memory.arrays.full_reads import WholeRead
    from oomlint.memory.arrays.kept_state import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.memory.buffers.concatenation import SelfConcatenation as Concat
    from oomlint.memory.buffers.growth import Growth
    from oomlint.memory.buffers.rejoined import Rejoin
    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.memory.handles.open_file_collections import OpenFileCollection
    from oomlint.memory.handles.openings import Opening
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.memory.ranks.ranks import Ranks
    from oomlint.memory.shared.byte_size import Size
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.memory.shared.loop_kinds import LoaderLike
    from oomlint.memory.shared.start_methods import StartMethods
    from oomlint.model.events import Store
    from oomlint.model.project import Module
    from oomlint.model.values import Alternative, ClassRef

_STORES: Final = {kind.value: kind for kind in StoreKind}
_DICTS: Final = re.compile(r"dict|json|record|annotation|coco")


# -- loaders -----------------------------------------------------------------------------------------------------------


def loader_fact(loader: Loader, workers: Iterable[Alternative] = (), option: str = "", methods: StartMethods | None = None) -> LoaderFact:
    """A loader, with the worker counts that a finding is about."""
    known = tuple(sorted(methods.counted)) if methods is not None else ()
    counts = tuple(dict.fromkeys(worker_count(one) for one in workers))
    return LoaderFact(loader.module.place(loader.call), loader.written, option, counts, known, methods is not None and methods.known)


def like_facts(like: LoaderLike) -> tuple[LoaderFact, ...]:
    """The loader behind an expression, where its call was found."""
    return (loader_fact(like.loader, like.workers),) if like.loader is not None else ()


def worker_count(alt: Alternative) -> WorkerCount:
    """One alternative of `num_workers`."""
    value = alt.value
    count = int(value.value) if isinstance(value, Const) and isinstance(value.value, int) else None
    places = [(step.kind, _bare(place)) for step in alt.story if step.kind != "missing" and (place := step.place()) is not None]
    last = places[-1][1] if places else None
    given = next((place for kind, place in places if kind in {"shell", "settings"}), None)  # what follows is where the code takes it
    per_processor = "cpu_count" in getattr(value, "name", "") if isinstance(value, External | ExternalCall) else False
    return WorkerCount(count, per_processor, not alt.reach, given or last, last if given not in {None, last} else None)


def ranks_fact(ranks: Ranks) -> RanksFact:
    """The processes that run a piece of code, each for itself."""
    return RanksFact(ranks.count, _bare(ranks.place))


# -- datasets ----------------------------------------------------------------------------------------------------------


def class_fact(ref: ClassRef) -> DatasetFact:
    """A class of a dataset."""
    return DatasetFact(ref.module.place(ref.scope.node), ref.scope.qualname)


def dataset_facts(*datasets: Dataset | None) -> tuple[DatasetFact, ...]:
    """The classes of datasets and of those that they wrap, as far as they are the project's."""
    found: list[DatasetFact] = []
    for one in datasets:
        if one is not None:
            found += [class_fact(one.instance.cls)] if one.instance is not None else []
            found += dataset_facts(*one.inner)
    return tuple(dict.fromkeys(found))


def holding_fact(holding: Holding, dataset: Dataset | None = None, copied_under: Iterable[str] = ()) -> AttributeFact:
    """An attribute of a dataset and what it holds."""
    content = holding.content
    place = holding.module.place(holding.effect.node) if holding.effect is not None else None
    if place is None and content.module is not None and content.node is not None:
        place = content.module.place(content.node)
    owner = dataset.instance.cls.scope.qualname if dataset is not None and dataset.instance is not None else ""
    kind, size = ContentKind[content.kind.name], size_of(content.size)
    return AttributeFact(holding.name, owner, kind, items_of(content), content.count, size, tuple(sorted(copied_under)), place)


def items_of(content: Content) -> str:
    """What a container of Python objects has in it; empty where it is not known, or is no such container."""
    if content.kind not in {PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY}:
        return ""
    if content.strings:
        return "strings"
    if content.kind is PayloadKind.OBJECT_ARRAY:
        return ""
    if content.numbers:
        return "numbers"
    return "dicts" if _DICTS.search(content.words) else ""


def keeper_fact(keeper: Keeper) -> AttributeFact:
    """Who keeps data."""
    name = keeper.attribute or ".".join(keeper.names[-1:])
    return AttributeFact(name, keeper.owner.scope.qualname if keeper.owner is not None else "", place=keeper.module.place(keeper.node))


def keeper_facts(*keepers: Keeper) -> tuple[Fact, ...]:
    """Who keeps data, and the datasets among them."""
    owners = dict.fromkeys(class_fact(one.owner) for one in keepers if one.owner is not None and not one.live)
    return (*(keeper_fact(one) for one in keepers), *owners)


# -- loops and what grows ----------------------------------------------------------------------------------------------


def loop_fact(module: Module, node: cst.CSTNode, kind: LoopKind = LoopKind.ROUND, over: str = "", runs: Iterable[Place] = ()) -> LoopFact:
    """A loop; ``over`` is how the iterated thing is called, by default as it is written, and ``runs`` are the calls of modules that matter."""
    if not over and isinstance(node, cst.For | cst.CompFor):
        over = " ".join(module.code(node.iter).split())
    return LoopFact(module.place(node), kind, over, tuple(place.saying("") for place in runs))


def store_fact(store: Store) -> StoreFact:
    """A statement that puts something into a container."""
    node, module, target = store.node, store.module, store.target
    return StoreFact(module.place(node), module.code(target).strip() if target is not None else "", _STORES[store.kind])


def growth_facts(growth: Growth) -> tuple[Fact, ...]:
    """What grows with the rounds of a loop."""
    loop = growth.loop
    stores = tuple(dict.fromkeys(store_fact(store) for store in growth.stores))
    if isinstance(loop.node, cst.FunctionDef):
        return stores  # the loop is the framework's
    kind = LoopKind.BATCH if loop.batches else LoopKind.ROUND
    return (loop_fact(loop.module, loop.node, kind, loop.name), *stores)


def concat_facts(module: Module, growths: Iterable[Concat]) -> tuple[Fact, ...]:
    """What is copied whole in each round."""
    listed = list(growths)
    stores = [StoreFact(module.place(one.statement), one.written, StoreKind.CONCAT) for one in listed]
    site = listed[0].site
    return (loop_fact(site.module if site is not None else module, listed[0].loop, LoopKind.ROUND), *stores)


def rejoin_facts(module: Module, found: Sequence[Rejoin]) -> tuple[Fact, ...]:
    """What each round of a loop joins again."""
    stores = (StoreFact(module.place(one.call), one.written, StoreKind.CONCAT) for one in found)
    return (loop_fact(module, found[0].loop, LoopKind.ROUND), *stores)


# -- handles, reads and arrays -------------------------------------------------------------------------------------------


def opening_fact(opening: Opening, cache: int | None = None, *, in_core: bool = False) -> HandleFact:
    """A call that opens a file."""
    size = ByteSize(cache) if cache is not None else None
    return HandleFact(opening.module.place(opening.call), opening.kind.name.lower(), size, in_core)


def handle_facts(handle: Handle, cache: int | None = None, *, in_core: bool = False) -> tuple[Fact, ...]:
    """A handle that an object of a dataset's class keeps."""
    place = handle.module.place(handle.effect.node) if handle.effect is not None else None
    holds = ContentKind.H5 if handle.opening.kind is Opens.H5 else ContentKind.HANDLE
    attribute = AttributeFact(handle.attribute, handle.owner.scope.qualname, holds, place=place)
    loaders = [loader_fact(one.loader, [one.helped] if one.helped is not None else (), methods=one.methods) for one in handle.readers.busy]
    classes = dict.fromkeys((class_fact(handle.dataset), class_fact(handle.owner)))
    return (opening_fact(handle.opening, cache, in_core=in_core), attribute, *classes, *dict.fromkeys(loaders))


def container_facts(kept: OpenFileCollection) -> tuple[Fact, ...]:
    """A container of open files."""
    holds = ContentKind.H5 if kept.opening.kind is Opens.H5 else ContentKind.HANDLE
    place = kept.store.module.place(kept.store.node)
    owner = kept.owner.scope.qualname if kept.owner is not None else ""
    attribute = AttributeFact(kept.name, owner, holds, count=kept.count, place=place)
    return (opening_fact(kept.opening), attribute, StoreFact(place, kept.name, StoreKind.ITEM), *([class_fact(kept.owner)] if kept.owner is not None else []))


def load_facts(load: Load) -> tuple[Fact, ...]:
    """Reads whose result a dataset keeps."""
    what = load.read.name if load.read is not None else load.whole.what.store.value if load.whole is not None else ""
    size = bytes_of(commented(load.module, load.node))
    gives = load.read.gives if load.read is not None else Resource.RECORDS if "Python objects" in load.words else Resource.ARRAYS
    within = next((module.place(node) for module, node in load.read.within), None) if load.read is not None else None
    beside = [ReadFact(load.module.place(node), what, gives=gives) for node in load.beside]
    return (ReadFact(load.module.place(load.node), what, size, gives=gives, within=within), *beside, *keeper_facts(*load.keepers))


def whole_read_fact(read: WholeRead, node: cst.CSTNode | None = None) -> ReadFact:
    """A read of a whole array, or what reads it: ``node``."""
    module = read.frame.module
    return ReadFact(module.place(node or read.node), read.what.store.value, opened=read.what.module.place(read.what.call), gives=Resource.ARRAYS)


def file_fact(read: FileRead) -> ReadFact:
    """A call that reads a file."""
    return ReadFact(read.module.place(read.node), read.name, gives=read.gives)


def allocation_fact(module: Module, node: cst.CSTNode, size: Bytes | Size | ByteSize | None = None) -> AllocationFact:
    """An expression that makes an array."""
    if isinstance(size, ByteSize):
        return AllocationFact(module.place(node), size)
    return AllocationFact(module.place(node), bytes_of(size) if isinstance(size, Bytes) else size_of(size) if size is not None else ByteSize())


def bytes_of(size: Bytes | None) -> ByteSize:
    """Bytes of an array by its dimensions: a number, or a formula where one of them is not known."""
    if size is None or size.item is None:
        return ByteSize()
    if size.exact is not None:
        return ByteSize(size.exact)
    return ByteSize(None, size.formula, size.least if size.least > size.item else None)


def size_of(size: Size) -> ByteSize:
    """Bytes of what an expression holds."""
    return ByteSize(size.exact)


def _bare(place: Place | None) -> Place | None:
    """Without its words: facts have none."""
    return replace(place, message="") if place is not None else None
