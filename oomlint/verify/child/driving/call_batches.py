"""The batches that an expression over a whole loader keeps alive, over stand-in data."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils import data

from oomlint.verify.child.driving import loader_runs
from oomlint.verify.child.loading import tolerant_import
from oomlint.verify.child.measuring import digests
from oomlint.verify.child.server.exceptions import seed

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
