"""How much memory a dataset of the user takes. Subjects are those of :mod:`oomlint.verify.child.driving.dataset_job`."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import time
import types
from typing import Any, Final

import numpy as np

from oomlint.verify import process_tree
from oomlint.verify.child.driving.dataset_job import STEPS, length, made, prepared, read, samples, size_of, told, trim
from oomlint.verify.child.measuring import handles

SPREAD: Final = 2000  # samples that are read from all over
EPOCH: Final = 8192  # samples of an epoch at most
PRICED: Final = 256  # samples that are read, and then as many more
PAGE: Final = 4096  # bytes
CHUNK: Final = 2**16  # bytes
ENLARGED: Final = 2**25  # bytes: more than a cache of usual size
MANY: Final = 3_000_000  # objects that are counted
PLAIN: Final = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.FrameType, types.CodeType)


@told
def memory(subject: dict[str, Any], epochs: int = 0, *, objects: bool = False) -> dict[str, Any]:
    """Bytes that the object holds once it is built, the most while that was done, the most for a sample, and what it holds after each epoch.

    ``objects`` also asks for the bytes of those Python objects in it that are written to by whoever reads them.
    """
    from oomlint.verify.child.measuring.object_size import Held  # noqa: PLC0415 -- it imports a good part of torch

    # What is imported on the way is no part of the dataset: it is made and read once before.
    for sample in samples(made(subject), 3):
        del sample
    gc.collect()
    trim()
    plain = process_tree.memory(os.getpid()).anonymous
    with Held() as held:
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
    gc.collect()
    trim()
    anonymous = process_tree.memory(os.getpid()).anonymous - plain
    return {
        "held": live, "tensors": tensors, "peak": peak, "sample": max(most, default=0), "grown": grown, "anonymous": anonymous,
        "data": size_of(subject.get("state")), "length": length(dataset), "seconds": seconds, "objects": counted(dataset) if objects else 0,
    }  # fmt: skip


@told
def taken(subject: dict[str, Any]) -> dict[str, Any]:
    """What a dataset takes of memory and reads of files when it is built and read: for its price after a fix, whatever the fix is about."""
    from oomlint.verify.child.measuring.object_size import Held  # noqa: PLC0415 -- it imports a good part of torch

    for sample in samples(made(subject), 3):  # as above
        del sample
    me = os.getpid()
    start = process_tree.read_bytes(me)
    dataset = made(subject)
    size = length(dataset)
    reads = [process_tree.read_bytes(me)]
    for sample in samples(dataset, min(size or STEPS, STEPS)):
        del sample
        reads.append(process_tree.read_bytes(me))
    del dataset
    with Held() as held:
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
    for sample in samples(made(subject), 3):
        del sample
    gc.collect()
    trim()
    plain = process_tree.memory(os.getpid()).anonymous
    dataset = made(subject)
    size = length(dataset) or STEPS
    start = process_tree.read_bytes(os.getpid())
    for index in range(0, size, max(1, size // SPREAD)):
        handles.settled(read(dataset, index), "")
    amount = process_tree.read_bytes(os.getpid()) - start
    gc.collect()
    trim()
    return {"read": amount, "kept": process_tree.memory(os.getpid()).anonymous - plain, "data": size_of(subject.get("state"))}


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
