"""Builds loaders of the user's own making over stand-in data, and iterates them."""

from __future__ import annotations

import gc
import inspect
import os
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import data

from oomlint.verify.child.loading import stubs
from oomlint.verify.child.measuring import digests
from oomlint.verify.child.server.exceptions import swapped
from oomlint.verify.child.synthesis.symbolic_sweep import SAMPLES, Need, Opaque, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EPOCHS: Final = 2
BATCH: Final = 4
MOST_BATCHES: Final = 64  # of a sampler without end
WORKERS: Final = 2
ALONE: Final = {"persistent_workers": False, "prefetch_factor": None, "timeout": 0, "multiprocessing_context": None}  # as they have to be without workers
EVERY: Final = "*"  # for the option that the finding speaks of: nothing is left out without workers
SEED: Final = 1234


class Samples:
    """A map-style dataset whose samples tell their index. Anything else that is asked of it is unknown."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return KINDS[self.kind](range(SAMPLES)[int(index)])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Opaque(f"dataset.{name}", {})


def _full(index: int, *shape: int) -> torch.Tensor:
    return torch.full(shape, float(index))


KINDS: Final[dict[str, Callable[[int], Any]]] = {  # the likeliest first
    "number": lambda index: torch.tensor(float(index)),
    "pair": lambda index: (_full(index, 3, 8, 8), index),
    "triple": lambda index: (_full(index, 3, 8, 8), _full(index, 4), index),
    "dict": lambda index: {"image": _full(index, 3, 8, 8), "label": index, "id": str(index)},
    "vector": lambda index: _full(index, 5),
    "boxes": lambda index: (_full(index, 3, 8, 8), {"boxes": _full(index, 2, 4), "labels": torch.tensor([index, index])}),
    "texts": lambda index: (f"text {index}", index),
    "text": lambda index: f"text {index}",
}


class Stage:
    """The DataLoader class while the user's call is run: it fills in what is not known, and remembers what it was given."""

    def __init__(self, own: str, counts: list[int], samples: Samples, method: str | None, *, replace: bool, known: dict[str, Any]) -> None:
        self.own = own  # the option that the finding speaks of
        self.counts = counts  # of workers, where the number is not known
        self.samples = samples
        self.method = method  # the start method to put in where there are workers
        self.replace = replace  # functions of the user's are replaced by the defaults
        self.known = known
        self.given: dict[str, Any] = {}
        self.keywords: dict[str, Any] = {}
        self.functions: dict[str, Any] = {}
        self.entered = False
        self.calls = ""  # a file in which calls of `worker_init_fn` are counted
        self.notes: list[str] = []
        self.made: Any = None

    def settle(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they can be run. Raises Need."""
        found = {name: self._known(name, value) for name, value in keywords.items()}
        found["dataset"] = self.samples
        workers = found.get("num_workers", 0)
        self.functions = {name: found.get(name) for name in ("collate_fn", "worker_init_fn")}
        self.keywords = found
        for name in ("collate_fn", "worker_init_fn"):
            if found.get(name) is not None and self.replace:
                self.notes.append(f"{name}: the default in its place, since it needs the real samples")
                found[name] = None
        self.given = {name: plain(value) for name, value in found.items() if name != "dataset"}
        if isinstance(found.get("batch_size"), int) and found["batch_size"] > 2 * BATCH:
            found["batch_size"] = BATCH
        if self.calls and found.get("worker_init_fn") is not None:
            found["worker_init_fn"] = Counted(found["worker_init_fn"], self.calls)
        if found.get("pin_memory"):
            found["pin_memory"] = False
            self.notes.append("pin_memory: left out, which changes no batch")
        if not isinstance(workers, int):
            return found
        if workers > WORKERS:
            self.notes.append(f"num_workers: {WORKERS} in place of {workers}")
            found["num_workers"] = WORKERS
        if not workers and self.own != EVERY:
            for name, value in ALONE.items():
                if name != self.own and name in found and found[name] != value:
                    self.notes.append(f"{name}: left out without workers, so that one cause is seen at a time")
                    del found[name]
        elif self.method is not None:
            found["multiprocessing_context"] = self.method
        return found

    def _known(self, name: str, value: Any) -> Any:
        text = text_of(value) or (f"{value!r}" if isinstance(value, stubs.Stub) else "")
        if not text:
            return value
        if text in self.known:
            return self.known[text]
        domains: dict[str, list[Any]] = {
            "num_workers": self.counts,
            "prefetch_factor": [2],
            "batch_size": [BATCH],
            "timeout": [30] if self.own == "timeout" else [0],
            "persistent_workers": [True, False],
            "shuffle": [True, False],
            "multiprocessing_context": ["spawn"] if self.own == name else [None],
        }
        if name in domains:
            raise Need(text, domains[name])
        return self._thing(name, text)

    def _thing(self, name: str, text: str) -> Any:
        self.notes.append(f"{name}: `{text[:60]}` is not known, replaced by a stand-in")
        match name:
            case "sampler":
                return data.RandomSampler(self.samples)
            case "batch_sampler":
                return data.BatchSampler(data.RandomSampler(self.samples), BATCH, drop_last=False)
            case "drop_last" | "pin_memory" | "in_order":
                return name == "in_order"
            case "pin_memory_device":
                return ""
        return None


class Counted:
    """A function that leaves a mark in a file each time that it is called, in whatever process."""

    def __init__(self, function: Any, path: str) -> None:
        self.function = function
        self.path = path

    def __call__(self, *args: Any) -> Any:
        """Mark and call."""
        with open(self.path, "ab") as file:
            file.write(b".")
        return self.function(*args)


def staged(stage: Stage, call: Callable[[], Any]) -> Any:
    """Run the user's call with the loader's class prepared. Gives back what the call does."""
    original = data.DataLoader.__init__
    names = [name for name in inspect.signature(original).parameters if name != "self"]

    def prepared(self: Any, *args: Any, **keywords: Any) -> None:
        given = dict(zip(names, args)) | keywords  # noqa: B905 -- fewer positions than names
        stage.made, stage.entered = self, True
        original(self, **stage.settle(given))

    with swapped((data.DataLoader, "__init__", prepared)):
        return call()


def plain(value: Any) -> Any:
    """A value as JSON, for people where it is none."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", None) or type(value).__name__


def words(error: BaseException) -> dict[str, str]:
    """An exception: its type, and the line of its message that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[0] if lines else ""
    if message.startswith("Caught ") and len(lines) > 1:
        message = f"{message} {lines[-1]}"
    message = message.replace(".<locals>.<lambda>.<locals>.", ".<locals>.")  # without the function that the harness has put around it
    return {"type": type(error).__name__, "message": message[:300]}


def epochs(loader: Any, count: int = EPOCHS, most: int = MOST_BATCHES) -> Iterator[tuple[str, Any]]:
    """Iterate. Yields a digest of each epoch's batches, and the iterator, while its workers live."""
    for _ in range(count):
        found = []
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            found.append(digests.digest(batch))
            if number + 1 >= most:
                break
        yield digests.digest(found), iterator


def settings(loader: Any) -> dict[str, Any]:
    """How the loader is set, read back."""
    context: Any = getattr(loader, "multiprocessing_context", None)
    return {
        "num_workers": int(loader.num_workers),
        "batch_size": plain(getattr(loader, "batch_size", None)),
        "prefetch_factor": plain(getattr(loader, "prefetch_factor", None)),
        "timeout": plain(getattr(loader, "timeout", 0)),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "multiprocessing_context": plain(context.get_start_method() if hasattr(context, "get_start_method") else context),
        "drop_last": bool(getattr(loader, "drop_last", False)),
        "sampler": type(getattr(loader, "sampler", None)).__name__,
    }


def observed(loader: Any) -> dict[str, Any]:
    """Two epochs of a loader: digests, whether its workers were kept, and where the generators are afterwards."""
    answer: dict[str, Any] = {"error": None, "epochs": [], "tail": ""}
    workers: list[list[int]] = []
    try:
        answer["settings"] = settings(loader)
        iterator = None
        for digest, iterator in epochs(loader):
            answer["epochs"].append(digest)
            workers.append(sorted({process.pid for process in getattr(iterator, "_workers", ())}))
        answer["kept"] = workers[0] == workers[1] != []
        answer["tail"] = digests.generators()
        stop(iterator)
    except Exception as error:  # noqa: BLE001 -- whatever the user's program raises is an answer
        answer["error"] = words(error)
    gc.collect()
    return answer


def stop(iterator: Any) -> None:
    """End the workers of an iterator that would be kept."""
    ending = getattr(iterator, "_shutdown_workers", None)
    if ending is not None and getattr(iterator, "_workers", None):
        ending()


def processors(host: int = WORKERS, allowed: int = WORKERS) -> None:
    """So many processors, wherever this runs: worker counts that are worked out from them are the same everywhere."""
    os.cpu_count = lambda: host
    for name, few in (("sched_getaffinity", lambda _pid: set(range(allowed))), ("process_cpu_count", lambda: allowed)):
        if hasattr(os, name):
            setattr(os, name, few)
