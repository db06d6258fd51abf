"""Loaders of a program that is run with stand-ins: as many workers as the measurement wants, and batches where the dataset is replaced by a stand-in."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing.process
import os
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from oomlint.verify.child.loading import stubs
from oomlint.verify.child.measuring.tensor_census import tensors
from oomlint.verify.child.synthesis import deferred_value, stub_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.verify.child.synthesis.stub_registry import Book

_OPEN: Final = "/proc/self/fd"
_SHARED: Final = "/dev/shm/torch_"  # noqa: S108 -- how torch names a tensor's file
LOADING: Final = frozenset("prefetch_factor persistent_workers multiprocessing_context timeout".split())  # of no use without workers
LARGE: Final = 64  # samples in a batch; a program may well depend on the size that it asks for, but larger ones take too long


class Counts:
    """How many loaders, their iterators and processes the piece has made."""

    def __init__(self) -> None:
        self.loaders = self.iterators = self.processes = 0
        self.running: WeakSet[Any] = WeakSet()  # iterators
        self.capped = False
        self.pinned = False  # whether one is to pin its batches, and copies them instead


def put_loaders(put: Callable[[Any, str, Any], None], book: Book, counts: Counts) -> None:
    """Replace what makes and starts loaders; all are counted."""
    make, go, start, signature = DataLoader.__init__, DataLoader.__iter__, multiprocessing.process.BaseProcess.start, inspect.signature(DataLoader.__init__)

    def init(self: Any, *args: Any, **options: Any) -> None:
        if isinstance(self, stub_objects.StubLoader):  # of our own making
            make(self, *args, **options)
            return
        given = {name: deferred_value.settled(value) for name, value in signature.bind(self, *args, **options).arguments.items() if name != "self"}
        given.update(given.pop("kwargs", {}))
        counts.loaders += 1
        asked = given.get("num_workers", 0)
        workers = min(asked, book.workers) if isinstance(asked, int) else book.workers
        counts.capped |= workers != asked
        given["num_workers"] = workers
        if not workers:
            given = {name: value for name, value in given.items() if name not in LOADING}
        path = _path(given.get("dataset"))
        if path:
            given = _stood_in(self, book, path, given)
        make(self, **given)

    def iterate(self: Any) -> Any:
        counts.iterators += 1
        about = self.__dict__.get("_unsettled")
        iterator = go(self) if about is None else stub_objects.unsettled(*about)
        if self.pin_memory and not getattr(iterator, "_pin_memory", True):  # without an accelerator torch pins nothing
            counts.pinned = True
            _pin(iterator)
        counts.running.add(iterator)
        return iterator

    def begin(self: Any) -> None:
        counts.processes += 1
        start(self)

    put(DataLoader, "__init__", init)
    put(DataLoader, "__iter__", iterate)
    put(multiprocessing.process.BaseProcess, "start", begin)


def _pin(iterator: Any) -> None:
    """Copy each batch, as pinning it does: out of the memory that a worker shares."""
    following = iterator._next_data  # noqa: SLF001 - where a batch is at last

    def pinned() -> Any:
        return pin_memory(following(), None)  # type: ignore[no-untyped-call]

    if not hasattr(following, "pins"):  # an iterator with workers that are kept comes again
        pinned.pins = True  # type: ignore[attr-defined]
        iterator._next_data = pinned  # noqa: SLF001 - likewise


def tensor_files(running: Iterable[Any]) -> int:
    """Open files of tensors that workers made, less those of batches that came before their turn and wait in the ``running`` iterators.

    What waits depends on how busy the machine is, and the workers' pipes go at the end of a pass: neither is kept by the program.
    """
    count = 0
    for name in os.listdir(_OPEN) if os.path.isdir(_OPEN) else ():
        with contextlib.suppress(OSError):  # closed since: that of the list itself
            count += os.readlink(f"{_OPEN}/{name}").startswith(_SHARED)
    return count - len({file for iterator in running for file in _waiting(iterator)})


def _waiting(iterator: Any) -> Iterator[int]:
    """Where the storages of batches lie that an iterator has got and not given out. It notes a batch as (worker,), with the data once they are there."""
    for _, *data in list(getattr(iterator, "_task_info", {}).values()):
        yield from (item.untyped_storage().data_ptr() for item in tensors(data) if item.is_shared())


def _path(dataset: Any) -> str:
    """Under what path the book knows a dataset that is replaced by a stand-in; empty for one of the program's own."""
    if isinstance(dataset, deferred_value.Late):
        return deferred_value.about(dataset)[1]
    if isinstance(dataset, stub_objects.Thing):
        return str(dataset.__dict__["_stand_in"][1])
    return f"{dataset.__dict__['_name']}".replace("()", "") if isinstance(dataset, stubs.Stub) else ""


def _stood_in(loader: Any, book: Book, path: str, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments for a loader over synthesised samples. While nothing is known of its batches they take their structure from use."""
    if path not in book.specs:
        book.learn(path, {"kind": "object"})
    size = given.get("batch_size", 1)
    if type(size) is int and 1 <= size <= LARGE and not given.get("batch_sampler"):
        book.batch = size
    tree = book.tree(f"{path}[*]")
    if tree is None:
        loader.__dict__["_unsettled"] = (book, path)
        tree = {"kind": "tensor", "path": path, "shape": [], "dtype": "float32"}
    samples = stub_objects.StubSamples(tree, book.samples)
    samples.told = book, path
    kept = {name: given[name] for name in ("num_workers", "drop_last", "pin_memory", *LOADING) if isinstance(given.get(name), (bool, int, float, str))}
    shuffle = given.get("shuffle") is True and "sampler" not in given
    return {**kept, "dataset": samples, "batch_size": book.batch, "shuffle": shuffle, "collate_fn": stub_objects.Collate(tree)}
