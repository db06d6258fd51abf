"""How much memory a dataset of the user takes. Subjects are those of :mod:`oomlint.verify.child.driving.dataset_job`."""

from __future__ import annotations

import bisect
import functools
import gc
import itertools
import os
import sys
import time
import tracemalloc
import types
import weakref
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from oomlint.verify import process_tree
from oomlint.verify.child.driving.dataset_job import STEPS, length, made, prepared, read, samples, size_of, told, trim
from oomlint.verify.child.measuring import handles
from oomlint.verify.child.server.exceptions import swapped

if TYPE_CHECKING:
    from types import TracebackType


SPREAD: Final = 2000  # samples that are read from all over
EPOCH: Final = 8192  # samples of an epoch at most
PRICED: Final = 256  # samples that are read, and then as many more
PAGE: Final = 4096  # bytes
CHUNK: Final = 2**16  # bytes
ENLARGED: Final = 2**25  # bytes: more than a cache of usual size
MANY: Final = 3_000_000  # objects that are counted
PLAIN: Final = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.FrameType, types.CodeType)


def _read_before(subject: dict[str, Any]) -> None:
    """Make and read it once: what is imported on the way is no part of the dataset."""
    for sample in samples(made(subject), 3):
        del sample


def _anonymous() -> int:
    """Bytes of this process that are in no file, once what is free is given back."""
    gc.collect()
    trim()
    return process_tree.memory(os.getpid()).anonymous


@told
def memory(subject: dict[str, Any], epochs: int = 0, *, objects: bool = False) -> dict[str, Any]:
    """Bytes that the object holds once it is built, the most while that was done, the most for a sample, and what it holds after each epoch.

    ``objects`` also asks for the bytes of those Python objects in it that are written to by whoever reads them.
    """
    _read_before(subject)
    plain = _anonymous()
    with LiveBytes() as held:
        start = time.perf_counter()
        dataset = made(subject)
        seconds = time.perf_counter() - start
        peak, live, tensors = held.peak, held.live, held.tensors
        grown = []
        held.begin()
        most = []
        for sample in samples(dataset, 3):
            most.append(held.peak - live)
            del sample
            held.begin()
        for _ in range(epochs):
            for sample in samples(dataset, min(length(dataset) or STEPS, EPOCH)):
                del sample
            grown.append(held.live)
    anonymous = _anonymous() - plain
    return {
        "held": live, "tensors": tensors, "peak": peak, "sample": max(most, default=0), "grown": grown, "anonymous": anonymous,
        "data": size_of(subject.get("state")), "length": length(dataset), "seconds": seconds, "objects": counted(dataset) if objects else 0,
    }  # fmt: skip


@told
def taken(subject: dict[str, Any]) -> dict[str, Any]:
    """What a dataset takes of memory and reads of files when it is built and read: for its price after a fix, whatever the fix is about."""
    _read_before(subject)
    me = os.getpid()
    start = process_tree.read_bytes(me)
    dataset = made(subject)
    size = length(dataset)
    reads = [process_tree.read_bytes(me)]
    for sample in samples(dataset, min(size or STEPS, STEPS)):
        del sample
        reads.append(process_tree.read_bytes(me))
    del dataset
    with LiveBytes() as held:
        dataset = made(subject)
        built = held.live
        step = min(size or STEPS, PRICED)
        stream = samples(dataset, 2 * step)
        levels = []
        for _ in range(2):
            for sample in itertools.islice(stream, step):
                del sample
            levels.append(held.live)
        peak = held.peak
    grown = (levels[1] - levels[0]) / step if size is None or size >= 2 * step else 0.0  # a second time the same samples cost nothing
    return {
        "data": size_of(subject.get("state")), "length": size, "held": max(built, *levels), "peak": peak, "grown": grown,
        "read": reads[0] - start, "reads": [new - old for old, new in itertools.pairwise(reads)],
    }  # fmt: skip


def counted(value: object) -> int:
    """Bytes of the Python objects that something holds, up to a page of each: a reader writes to their reference counts. Payloads of arrays are none."""
    seen: set[int] = set()
    waiting: list[Any] = [value]
    size = 0
    while waiting and len(seen) < MANY:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, PLAIN):
            continue
        seen.add(id(one))
        size += min(sys.getsizeof(one, 0), PAGE)
        waiting.extend(one.ravel().tolist() if isinstance(one, np.ndarray) and one.dtype == object else gc.get_referents(one))
    return size


@told
def cached(subject: dict[str, Any]) -> dict[str, Any]:
    """Bytes of memory of this process that building the dataset and reading samples all over it takes and that stay. HDF5 files are made large before."""
    if subject.get("state"):
        prepared(subject)
        _enlarge([name for name in subject["state"].get("files", {}) if os.path.isfile(name)])
    _read_before(subject)
    plain = _anonymous()
    dataset = made(subject)
    size = length(dataset) or STEPS
    start = process_tree.read_bytes(os.getpid())
    for index in range(0, size, max(1, size // SPREAD)):
        handles.settled(read(dataset, index), "")
    amount = process_tree.read_bytes(os.getpid()) - start
    return {"read": amount, "kept": _anonymous() - plain, "data": size_of(subject.get("state"))}


def _enlarge(names: list[str]) -> None:
    """Repeat what HDF5 files hold, and store it in chunks of some 64 KiB: only such are cached."""
    import h5py  # type: ignore[import-untyped] # noqa: PLC0415 -- the user's environment may lack it

    found = [(name, key) for name in names if h5py.is_hdf5(name) for key in _arrays(name)]
    total = 0
    for name, key in found:
        with h5py.File(name, "r") as file:
            total += file[key].nbytes
    times = -(-ENLARGED // max(total, 1))
    for name, key in found:
        with h5py.File(name, "r+") as file:
            values, attributes = file[key][()], dict(file[key].attrs)
            rows = max(1, CHUNK * len(values) // max(values.nbytes, 1))
            del file[key]
            values = np.concatenate([values] * times)
            file.create_dataset(key, data=values, chunks=(min(rows, len(values)), *values.shape[1:])).attrs.update(attributes)


def _arrays(name: str) -> list[str]:
    """The names of the arrays in an HDF5 file."""
    import h5py  # noqa: PLC0415 -- the user's environment may lack it

    found: list[str] = []
    with h5py.File(name, "r") as file:
        file.visititems(lambda key, item: found.append(key) if isinstance(item, h5py.Dataset) and item.ndim and item.size else None)
    return found


StorageWeakRef: Final = import_module("torch.multiprocessing.reductions").StorageWeakRef
DispatchMode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
LARGE: Final = 2**16  # bytes
AGE: Final = 1.0  # seconds
LENDING: Final = ("from_numpy", "as_tensor", "tensor")


class LiveBytes(DispatchMode):  # type: ignore[misc] # PyTorch gives it no types
    """Counts while it is entered. ``live`` is what is held now, ``peak`` the most since :meth:`begin`, both in bytes above the start."""

    def __init__(self) -> None:
        super().__init__()
        self._large: dict[int, tuple[Any, int]] = {}  # looked through at each note
        self._small: dict[int, tuple[Any, int]] = {}  # only where somebody asks
        self._own: dict[int, float] = {}  # addresses that lay in no map of a file, and when that was seen
        self._borrowed: dict[int, weakref.ref[Any]] = {}  # memory of arrays by its address: tracemalloc counts it already
        self._stack = ExitStack()
        self._base = 0
        self._peak = 0

    def __enter__(self) -> LiveBytes:  # noqa: PYI034 -- Self is of Python 3.11
        self._stack.enter_context(swapped(*((torch, name, self._lending(getattr(torch, name))) for name in LENDING)))
        super().__enter__()
        torch.zeros(1)  # the first operation imports hundreds of modules
        gc.collect()
        tracemalloc.start(1)
        self.begin()
        self._base = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        tracemalloc.stop()
        super().__exit__(kind, error, trace)
        self._stack.close()

    def _lending(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def lend(value: Any, *rest: Any, **named: Any) -> Any:
            if isinstance(value, np.ndarray):
                self._borrowed[value.__array_interface__["data"][0]] = weakref.ref(value)
            return plain(value, *rest, **named)

        return lend

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type == "cpu":
                self._meet(leaf.untyped_storage())
        return out

    def _meet(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        kept = self._large if size >= LARGE else self._small
        known = kept.get(address)
        lent = self._borrowed.get(address)
        if address and (lent is None or lent() is None) and (known is None or known[0].expired()) and not (size >= LARGE and self._is_mapped(address)):
            kept[address] = (StorageWeakRef(storage), size)
            if kept is self._large:
                self._note()

    def _is_mapped(self, address: int) -> bool:
        """Whether it lies in the map of a file. The allocator gives the same addresses again and again, and to ask takes a millisecond."""
        now = time.monotonic()
        if now - self._own.get(address, -AGE) < AGE:
            return False
        if _mapped([address]):
            return True
        self._own[address] = now
        return False

    def _tensors(self) -> int:
        self._large = {address: item for address, item in self._large.items() if not item[0].expired()}
        return sum(size for _, size in self._large.values())

    def _now(self) -> int:
        return self._tensors() + tracemalloc.get_traced_memory()[0]

    def _note(self) -> None:
        tensors = self._tensors() - self._base
        self._peak = max(self._peak, tensors + tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    def begin(self) -> None:
        """Forget the peak so far."""
        gc.collect()
        self._peak = 0
        tracemalloc.reset_peak()

    @property
    def tensors(self) -> int:
        """Bytes of tensors that are held now."""
        gc.collect()
        self._small = {address: item for address, item in self._small.items() if not item[0].expired()}
        self._borrowed = {address: item for address, item in self._borrowed.items() if item() is not None}  # else it counts as the program's
        mapped = _mapped(list(self._small))
        return self._tensors() + sum(size for address, (_, size) in self._small.items() if address not in mapped)

    @property
    def live(self) -> int:
        """Bytes held now."""
        return self.tensors + tracemalloc.get_traced_memory()[0] - self._base

    @property
    def peak(self) -> int:
        """The most bytes that were held at a time since :meth:`begin`."""
        self._note()
        return self._peak


def _mapped(addresses: list[int]) -> set[int]:
    """Those that lie in the map of a file on a disk."""
    if not addresses or not os.path.exists("/proc/self/maps"):
        return set()
    found = set()
    waiting = sorted(addresses)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            parts = line.split(maxsplit=5)
            if parts[4] != "0" and not parts[-1].startswith("/dev/shm"):  # noqa: S108 -- there lies what is shared with workers
                first, last = (int(item, 16) for item in parts[0].split("-"))
                found.update(waiting[bisect.bisect_left(waiting, first) : bisect.bisect_left(waiting, last)])
    return found
