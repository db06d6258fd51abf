"""What is put in the place of functions of torch while a piece runs: code for CUDA runs on the CPU, loaders have as many workers as the measurement wants."""

from __future__ import annotations

import contextlib
import inspect
import io
import multiprocessing.process
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from oomlint.verify.child.loading import stubs
from oomlint.verify.child.measuring.tensor_census import tensors
from oomlint.verify.child.server import exceptions
from oomlint.verify.child.synthesis import deferred_value, stub_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.verify.child.synthesis.stub_registry import Book

FunctionMode: Any = import_module("torch.overrides").TorchFunctionMode
TYPES: Final = "FloatTensor LongTensor IntTensor DoubleTensor ByteTensor BoolTensor HalfTensor".split()
QUIET: Final = "synchronize empty_cache set_device ipc_collect manual_seed manual_seed_all reset_peak_memory_stats reset_max_memory_allocated init".split()
_OPEN: Final = "/proc/self/fd"
_SHARED: Final = "/dev/shm/torch_"  # noqa: S108 -- how torch names a tensor's file
LOADING: Final = frozenset("prefetch_factor persistent_workers multiprocessing_context timeout".split())  # of no use without workers
LARGE: Final = 64  # samples in a batch; a program may well depend on the size that it asks for, but larger ones take too long


class OnCpu(FunctionMode):  # type: ignore[misc] # torch's class is not typed
    """Devices that are not there become the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        del types
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name == "pin_memory":
            return args[0].clone()
        if name == "is_cuda" or (name == "to" and len(args) > 1) or (kwargs and "device" in kwargs):
            args = (args[0], *(_here(item) for item in args[1:])) if args else args
            kwargs = {key: _here(item) for key, item in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


def _here(item: Any) -> Any:
    if isinstance(item, torch.device):
        return torch.device("cpu") if item.type != "meta" else item
    if isinstance(item, str) and item.startswith(("cuda", "mps", "xpu", "npu")):
        return "cpu"
    if isinstance(item, deferred_value.Late):
        return torch.device("cpu")
    return item


@contextmanager
def patched(book: Book, counts: Counts, *, device: bool) -> Iterator[None]:
    """Put it all in place. ``device``: a pretended one answers for CUDA."""
    with ExitStack() as stack:
        _put_all(partial(exceptions.put, stack), book, counts, device=device)
        stack.enter_context(nullcontext() if device else OnCpu())
        yield


def _put_all(put: Callable[[Any, str, Any], None], book: Book, counts: Counts, *, device: bool) -> None:
    def number(*_: Any, **__: Any) -> int:
        return 0

    if not device:
        put(torch.nn.Module, "cuda", lambda self, *_, **__: self)
        for name in QUIET:
            put(torch.cuda, name, number)
        for name in TYPES:
            put(torch.cuda, name, getattr(torch, name))
        put(torch.cuda, "memory_allocated", number)
        put(torch.cuda, "max_memory_allocated", number)
        put(torch.cuda, "device", lambda *_, **__: nullcontext())
    put_loaders(put, book, counts)
    _shell(put)
    installed = [getattr(sys.modules.get(name), "LightningModule", None) for name in ("pytorch_lightning", "lightning", "lightning.pytorch")]
    for owner in {id(item): item for item in (stubs.Lightning, *installed) if isinstance(item, type)}.values():
        for name in ("log", "log_dict"):
            put(owner, name, _log)
    _checkpoints(put, book)
    clock = iter(range(1, 2**31))
    start = time.time()
    for name in ("time", "perf_counter"):
        put(time, name, lambda: start + next(clock) / 1000)


def _log(_: Any, *args: Any, **__: Any) -> None:
    """What a framework's module reports counts as printed."""
    sys.stdout.write(f"logged: {', '.join(str(deferred_value.settled(item)) for item in args)}\n")


def _shell(put: Callable[[Any, str, Any], None]) -> None:
    """Commands of the shell are not run: they fetch, copy and remove files, and have no part in what a loop keeps."""

    def done(*args: Any, **options: Any) -> Any:
        text = bool(options.get("text") or options.get("universal_newlines"))
        return subprocess.CompletedProcess(args, 0, "" if text else b"", "" if text else b"")

    put(os, "system", lambda *_: 0)
    put(os, "popen", lambda *_: io.StringIO(""))
    put(subprocess, "run", done)
    put(subprocess, "call", lambda *_, **__: 0)
    put(subprocess, "check_call", lambda *_, **__: 0)
    put(subprocess, "check_output", lambda *_, **options: "" if options.get("text") else b"")
    put(subprocess, "Popen", _refused)


def _refused(*_: Any, **__: Any) -> Any:
    raise OSError("commands are not run here")


def _checkpoints(put: Callable[[Any, str, Any], None], book: Book) -> None:
    """A file of weights that is not there is replaced by a stand-in; a module takes it and stays as it is."""
    read, take = torch.load, torch.nn.Module.load_state_dict

    def load(*args: Any, **options: Any) -> Any:
        try:
            return read(*args, **options)
        except (OSError, TypeError, AttributeError):
            return deferred_value.late(book, "torch.load()", "config")

    def accept(self: Any, state: Any, *args: Any, **options: Any) -> Any:
        if isinstance(state, (deferred_value.Late, stub_objects.Learning, stub_objects.Thing)):
            return take(self, self.state_dict())
        return take(self, state, *args, **options)

    put(torch, "load", load)
    put(torch.nn.Module, "load_state_dict", accept)


# -- loaders: as many workers as the measurement wants, and batches where the dataset is replaced by a stand-in -----------------


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
