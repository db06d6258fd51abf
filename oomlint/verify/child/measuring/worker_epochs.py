"""Reads a dataset of the user through a loader with workers. Subjects are those of :mod:`oomlint.verify.child.driving.dataset_job`."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from oomlint.verify import process_tree
from oomlint.verify.child.driving.dataset_job import LONGEST, SAMPLES, Failed, folder, iterable, length, made, samples, told, trim
from oomlint.verify.child.measuring import handles
from oomlint.verify.child.measuring.digests import digest
from oomlint.verify.child.server.exceptions import seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH: Final = 8
MANY: Final = 64  # samples of a batch where nothing but memory is looked at
PARTING: Final = 5.0  # seconds for workers to end
LATER: Final = 3  # samples that are read once workers have run
COMPARED: Final = SAMPLES  # of an epoch that is compared


class Told(Dataset[Any]):
    """Reads samples of another dataset and hands on what can be told of them: index and digests."""

    def __init__(self, inner: Any, size: int, place: str) -> None:
        self.inner = inner
        self.size = size
        self.place = place

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, str, str]:
        seed(1000 + index)
        _, exact, loose = _told(index, self.inner[index], self.place)
        # What a copy in a worker has lost shows in its length too.
        return index, f"{exact} of {len(self.inner)}", f"{loose} of {len(self.inner)}"


class ToldStream(IterableDataset[Any]):
    """The same for a dataset without indices."""

    def __init__(self, inner: Any, place: str) -> None:
        self.inner = inner
        self.place = place

    def __iter__(self) -> Iterator[tuple[int, str, str]]:
        seed(1000)
        for index, sample in enumerate(itertools.islice(iter(self.inner), COMPARED)):
            yield _told(index, sample, self.place)


def _told(index: int, sample: Any, place: str) -> tuple[int, str, str]:
    settled = handles.settled(sample, place)
    return index, digest(settled), digest(handles.settled(settled, place, loose=True))


class Only(Dataset[Any]):
    """Reads samples of another dataset, if there is one, and hands on nothing."""

    def __init__(self, inner: Any, size: int) -> None:
        self.inner = inner
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if self.inner is not None:
            self.inner[index]
        return index


class Several(Dataset[Any]):
    """Several datasets as one."""

    def __init__(self, inner: list[Any], each: int) -> None:
        self.inner = inner
        self.each = each

    def __getitem__(self, index: int) -> Any:
        return self.inner[index // self.each][index % self.each]


def nothing(_batch: list[Any]) -> int:
    """A batch of which nothing is kept."""
    return 0


def gather(batch: list[Any]) -> list[Any]:
    """A batch as it comes."""
    return batch


def _loader(inner: Any, workers: int, method: str, batch: int, collate: Callable[[list[Any]], Any] = gather) -> DataLoader[Any]:
    options: dict[str, Any] = {"multiprocessing_context": method or None, "persistent_workers": True} if workers else {}
    if not isinstance(inner, IterableDataset):
        options.update(shuffle=True, generator=torch.Generator().manual_seed(7))
    return DataLoader(inner, batch_size=batch, num_workers=workers, collate_fn=collate, **options)


@told
def compared(subject: dict[str, Any], workers: int = 2, method: str = "fork", *, touched: bool = False) -> dict[str, Any]:
    """Read two shuffled epochs through a loader: digests. ``touched`` reads two samples in this process first."""
    dataset = made(subject)
    if touched:
        list(samples(dataset, 2))
    stream = iterable(dataset)
    inner: Any = ToldStream(dataset, folder()) if stream else Told(dataset, min(length(dataset) or 0, COMPARED), folder())
    found: list[Any] = []
    try:
        loader = _loader(inner, workers, method, BATCH)
        for _ in range(2):
            for batch in loader:
                found.extend(batch)
    except Exception as error:
        raise Failed("iterate", error) from error
    found.extend(_later(inner))
    return {"order": [item[0] for item in found], "samples": [item[1] for item in found], "loose": [item[2] for item in found]}


def _later(inner: Any) -> list[Any]:
    """Samples that this process reads once workers have run: sending the dataset may have changed it here."""
    if isinstance(inner, ToldStream):
        return []
    try:
        return [inner[index] for index in range(min(len(inner), LATER))]
    except Exception as error:
        raise Failed("reading in this process after workers have run", error) from error


@told
def tree(
    subject: dict[str, Any] | None, workers: int = 2, method: str = "fork", size: int = 0, repeat: int = 1, times: int = 1, *, empty: bool = True
) -> dict[str, Any]:
    """What workers that have read two shuffled epochs add to the memory of the process tree, in bytes: again and again with nothing to read, then with it.

    ``size`` is the number of samples where there is nothing to read, which ``empty=False`` leaves out. ``times`` builds the dataset so often and reads all
    of them as one.
    """
    # What is spawned has its copy before it reads anything.
    longest = LONGEST if method == "fork" else MANY
    size = min(size, longest)
    if repeat > 1:
        _added(Only(None, MANY), workers, method, MANY)  # the first epoch imports
    plain = [_added(Only(None, size), workers, method, size)[0] for _ in range(repeat if empty else 0)]
    if subject is None:
        return {"empty": plain, "added": plain, "readings": []}
    inner = [made(subject) for _ in range(times)]
    each = length(inner[0]) or 0
    number = min(each * times, longest)
    dataset: Any = inner[0] if iterable(inner[0]) else Only(Several(inner, each), number)
    found = [_added(dataset, workers, method, number, watched=not index) for index in range(repeat)]
    return {"empty": plain, "added": [added for added, _ in found], "readings": found[0][1]}


def _added(dataset: Any, workers: int, method: str, size: int, *, watched: bool = False) -> tuple[int, list[tuple[int, int]]]:
    """What two epochs add while the workers live, and how it came to that, by samples, where it is ``watched``: each look takes milliseconds."""
    gc.collect()
    trim()
    me = os.getpid()
    _part()
    built = process_tree.settled([me])
    readings: list[tuple[int, int]] = []
    batch = max(MANY, size // MANY)
    count, every = 0, max(batch, size // 4)
    try:
        loader = _loader(dataset, workers, method, batch, nothing)
        for _ in range(2):
            for _ in loader:
                count += batch
                if watched and count // every > len(readings):
                    readings.append((count, process_tree.total(process_tree.tree(me)) - built))
        trim()  # what this process has freed is no part of it: an array that has moved to shared memory
        steady = process_tree.settled(process_tree.tree(me))
    except Exception as error:
        raise Failed("iterate", error) from error
    return steady - built, readings


def _part() -> None:
    """Wait until the workers of the loader before are gone: as long as one lives it has its share of the pages, and this process seems to hold less."""
    until = time.monotonic() + PARTING
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.005)
