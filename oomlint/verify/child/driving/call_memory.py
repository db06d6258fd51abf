"""What loaders over stand-in data hold: the memory of workers over data of one kind, and the batches that an expression over a whole loader keeps alive."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import weakref
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils import data

from oomlint.verify import process_tree
from oomlint.verify.child.driving import loader_runs
from oomlint.verify.child.loading import tolerant_import
from oomlint.verify.child.measuring import digests
from oomlint.verify.child.server.exceptions import seed

if TYPE_CHECKING:
    from collections.abc import Callable


BATCH: Final = 64
_TEXT: Final = "x" * 92  # strings of a length that paths and sentences have
_ROW: Final = 1024  # float32 values of one array in a list
_COLUMNS: Final = 256


class InMemoryDataset:
    """A dataset that holds all its samples. Reading one touches what it is made of, as any use of it would."""

    def __init__(self, data: Any, length: int) -> None:
        self.data = data
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> float:
        return float(index) if self.data is None else 1000.0 * index + _touched(self.data[index])


class Shuffled:
    """Indices in an order of their own in each epoch. It makes no objects that would count as memory: what is measured does not depend on the length."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = 0
        self.orders: Any = [torch.empty(length, dtype=torch.int32) for _ in range(loader_runs.EPOCHS)]
        generator = torch.Generator()
        generator.manual_seed(loader_runs.SEED)
        for order in self.orders:
            order.copy_(torch.randperm(length, generator=generator, dtype=torch.int32))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = self.orders[self.epoch]
        self.epoch += 1
        for start in range(0, self.length, BATCH):
            yield from order[start : start + BATCH].tolist()


def collate(samples: list[float]) -> Any:
    """A batch: one number a sample, so that what is measured is the reading and not the batching."""
    return torch.tensor(samples, dtype=torch.float64)


def _touched(item: Any) -> float:
    """A number that depends on the sample."""
    if isinstance(item, dict):
        return sum(_touched(value) for value in item.values())
    if isinstance(item, (list, tuple)):
        return sum(_touched(value) for value in item)
    if isinstance(item, str):
        return float(len(item))
    if hasattr(item, "ravel"):
        return float(item.ravel()[0])
    return float(item)


def _array(size: int) -> Any:
    rows = size // (4 * _COLUMNS)
    return np.arange(rows * _COLUMNS, dtype=np.float32).reshape(rows, _COLUMNS)


def _arrays(size: int) -> list[Any]:
    return [np.full(_ROW, float(number), dtype=np.float32) for number in range(size // (4 * _ROW))]


def _tensor(size: int) -> Any:
    return torch.from_numpy(_array(size))


def _tensors(size: int) -> list[Any]:
    return [torch.full((_ROW,), float(number)) for number in range(size // (4 * _ROW))]


def _strings(size: int) -> list[str]:
    return [f"{number:08d}{_TEXT}" for number in range(size // 157)]  # bytes: 100 characters, the object and its place in the list


def _objects(size: int) -> Any:
    return np.array(_strings(size), dtype=object)


_MAKERS: Final[dict[str, Callable[[int], Any]]] = {
    "strings": _strings,
    "numbers": lambda size: [float(number) + 0.5 for number in range(size // 32)],
    "dicts": lambda size: [{"id": number + 1000, "path": f"images/{number:08d}.jpg", "caption": f"{number} {_TEXT}"} for number in range(size // 520)],
    "lists": lambda size: [[f"{number} {word} of a sentence" for word in range(6)] for number in range(size // 560)],
    "objects": _objects,
    "arrays": _arrays,
    "array": _array,
    "tensor": _tensor,
    "tensors": _tensors,
}


def measure(kind: str, size: int, workers: int, method: str | None, path: str = "", root: str = "", expression: str = "", count: int = 0) -> dict[str, Any]:
    """What workers add to the memory of the process tree, in bytes, at the end of the second epoch, over what the parent had before.

    ``expression`` makes of ``__data__`` what the dataset holds; names in it are those of the program at ``path``. ``count`` samples instead of ``size`` bytes.
    With the kind "nothing" the dataset is empty.
    """
    made = None if kind == "nothing" else _MAKERS[kind](size)
    held = made[:count] if count and made is not None else made
    length = count or (len(held) if held is not None else size // 256)
    if expression:
        scope = dict(vars(tolerant_import.load(path, root).module)) | {"__data__": held}
        held = eval(expression, scope)  # noqa: S307 -- the user's own program, in a child that is fenced in
    del made
    seed(loader_runs.SEED)
    context: dict[str, Any] = {"multiprocessing_context": method} if workers and method else {}
    dataset: Any = InMemoryDataset(held, length)
    # Workers that are kept are started once: to start them is most of the time under spawn.
    loader: Any = data.DataLoader(dataset, BATCH, sampler=Shuffled(length), num_workers=workers, persistent_workers=workers > 0, collate_fn=collate, **context)
    size = _size(held)
    del held
    gc.collect()
    start = process_tree.settled([os.getpid()])
    read = batches = 0
    try:
        for _ in range(loader_runs.EPOCHS):
            for number, batch in enumerate(loader):
                batches = zlib.crc32(batch.numpy().tobytes(), batches)  # keeps nothing
                if number + 1 == len(loader):
                    read = process_tree.settled(process_tree.tree(os.getpid()))
    except Exception as error:  # noqa: BLE001 -- what a start method raises is an answer
        return {"error": loader_runs.words(error), "added": 0, "size": size, "batches": 0}
    return {"error": None, "added": read - start, "size": size, "batches": batches}


def _size(held: Any) -> int:
    if held is None:
        return 0
    if hasattr(held, "nbytes"):
        return int(held.nbytes)
    if isinstance(held, list):
        return sys.getsizeof(held) + sum(_size(item) for item in held)
    if isinstance(held, dict):
        return sys.getsizeof(held) + sum(_size(item) for item in held.values())
    return sys.getsizeof(held)


EPOCHS: Final = 3
BATCHES: Final = 6  # an epoch
_WIDTH: Final = 256  # float32 values of a sample


class _Rows:
    def __len__(self) -> int:
        return BATCHES * loader_runs.BATCH

    def __getitem__(self, index: int) -> Any:
        return torch.full((_WIDTH,), float(range(len(self))[index]))


class _Watch:
    """Makes batches, and knows which of them are alive."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.made = 0
        self.most = 0

    def collate(self, samples: list[Any]) -> Any:
        """One batch."""
        batch = torch.stack(samples)
        self.alive.add(batch)
        self.made += 1
        self.most = max(self.most, len(self.alive))
        return batch


def batches(path: str, root: str, source: str) -> dict[str, Any]:
    """Run ``source``, which sets ``__result__`` and makes its loaders by ``__loader__()``, and take three epochs from an iterator that it gives.

    Counts of live batches after each epoch, their bytes, and a digest of each epoch.
    """
    scope: dict[str, Any] = dict(vars(tolerant_import.load(path, root).module))
    watch = _Watch()

    def loader() -> Any:
        rows: Any = _Rows()
        return data.DataLoader(rows, loader_runs.BATCH, shuffle=True, collate_fn=watch.collate)

    scope |= {"__loader__": loader, "__kept__": []}
    seed(loader_runs.SEED)
    try:
        exec(source, scope)  # noqa: S102 -- the user's own program, in a child that is fenced in
        result = scope.pop("__result__")
        answer = _taken(result, watch)
    except Exception as error:  # noqa: BLE001 -- whatever the user's program raises is an answer
        return {"error": loader_runs.words(error), "alive": [], "epochs": [], "most": 0, "made": 0, "value": "", "bytes": 0}
    return answer | {"error": None, "made": watch.made, "bytes": 4 * _WIDTH * loader_runs.BATCH}


def _taken(result: Any, watch: _Watch) -> dict[str, Any]:
    if isinstance(result, tuple) and result and all(isinstance(item, Iterator) for item in result):
        result = result[0]  # of `tee`: the others are not read
    if not isinstance(result, Iterator):
        gc.collect()
        return {"alive": [len(watch.alive)], "epochs": [], "most": watch.most, "value": result if isinstance(result, (int, float)) else type(result).__name__}
    alive, epochs, samples = [], [], []
    for _ in range(EPOCHS):
        batches = list(map(_seen, itertools.islice(result, BATCHES)))
        gc.collect()
        epochs.append(digests.digest([batch for batch, _ in batches]))
        samples.append(sorted(sample for _, several in batches for sample in several))
        alive.append(len(watch.alive))
    return {"alive": alive, "epochs": epochs, "samples": samples, "most": watch.most, "value": type(result).__name__}


def _seen(batch: Any) -> tuple[str, list[str]]:
    """What stands for a batch, and for each of its samples, once it is let go of."""
    rows = batch if hasattr(batch, "shape") else batch[0] if isinstance(batch, (list, tuple)) and batch else []
    return digests.digest(batch), [digests.digest(row) for row in rows]
