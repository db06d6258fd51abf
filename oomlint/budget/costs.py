"""What processes and containers were measured to cost: torch 2.13 for the CPU, CPython 3.11, Linux. ``docs/budget.md`` says how."""

from __future__ import annotations

from typing import Final

from oomlint.finding import ContentKind as Kind
from oomlint.memory.shared.start_methods import FORKED_MIB, SPAWNED_MIB

MAIN: Final = 146 << 20  # bytes: private memory of an interpreter that has imported torch and numpy
WORKER: Final = {"fork": FORKED_MIB << 20, "spawn": SPAWNED_MIB << 20, "forkserver": SPAWNED_MIB << 20}  # bytes: of a worker that holds nothing
PREFETCHED: Final = 2  # batches for each worker, unless the loader says otherwise

# The share of a container of Python objects that a forked worker has copied once it has read it all, by what is in it: reading writes reference counts.
_OBJECTS: Final = {"strings": 0.93, "numbers": 0.75, "dicts": 0.60}
_OTHER: Final = 0.60
_COPIED: Final = {Kind.OBJECT_ARRAY: 0.93, Kind.PATHS: 0.93, Kind.BLOB: _OTHER, Kind.TENSORS: 0.27}
# What the main process holds more at the peak of pickling: an array as bytes, kept until all are written, and once more in what is written; objects in
# their shorter form, and in the table of those that were met.
_PICKLED: Final = {"strings": 0.9, "numbers": 0.6, "dicts": 0.5}
_PICKLED_OTHER: Final = 0.5
_PICKLED_ARRAY: Final = 2.0
_LEAST: Final = {"strings": 57, "numbers": 32, "dicts": 72}  # bytes of one, with its place in the list
SHAREABLE: Final = frozenset({Kind.TENSOR, Kind.TENSORS})  # moved to shared memory once, where a worker is sent them
IN_FILE: Final = frozenset({Kind.MEMMAP})  # no memory of its own, until it is sent
ONE_ARRAY: Final = frozenset({Kind.ARRAY, Kind.TENSOR, Kind.MEMMAP})  # whose first dimension is the number of samples
FLOAT: Final = 4  # bytes of the numbers that samples are computed in

# Making a sample takes and frees pieces as large as what is read for it. What is kept of it goes where a larger piece was, and the next such piece no
# longer fits there: glibc comes to hold many. That does not happen where the sample is as large as the pieces, nor above 32 MiB, where each is given back.
LARGEST_KEPT: Final = 32 << 20  # bytes
PIECES: Final = 12  # that come to be kept, whatever the batch: 3 to 30 were measured, more the longer a worker lives
PIECES_GIVEN_BACK: Final = 3
COUNTED: Final = frozenset(
    {Kind.ARRAY, Kind.ARRAYS, Kind.TENSOR, Kind.TENSORS, Kind.OBJECTS, Kind.OBJECT_ARRAY, Kind.BLOB, Kind.FRAME, Kind.PATHS, Kind.MEMMAP}
)


def copied_by_fork(kind: Kind, items: str) -> float:
    """The share of a container that each forked worker comes to own by reading it; 0 where the pages stay shared."""
    return _OBJECTS.get(items, _OTHER) if kind is Kind.OBJECTS else _COPIED.get(kind, 0.0)


def pickled(kind: Kind, items: str) -> float:
    """How much of a container the main process holds more at the peak of pickling it for a worker."""
    return _PICKLED.get(items, _PICKLED_OTHER) if kind is Kind.OBJECTS else _PICKLED["strings"] if kind is Kind.PATHS else _PICKLED_ARRAY


def least_of_one(items: str) -> int | None:
    """Bytes that one element of a container of Python objects takes at least."""
    return _LEAST.get(items)
