"""Builds a dataset of the user and reads it in this process.

A subject is a JSON object: ``path``, ``root``, ``name`` and ``state`` of a dataset that was found by search, or ``factory`` ("package.module:function")
and ``root``, or ``kind`` and the rest that :mod:`oomlint.verify.child.synthesis.held_data` takes. Each function makes it again. What the user's code raises is
an answer too: ``failed``, see :func:`told`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import inspect
import operator
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from torch.utils.data import IterableDataset

from oomlint.verify import process_tree
from oomlint.verify.child.driving.trial import Target
from oomlint.verify.child.loading import tolerant_import
from oomlint.verify.child.measuring import handles
from oomlint.verify.child.measuring.digests import digest, generators, write
from oomlint.verify.child.server.exceptions import seed, words
from oomlint.verify.child.synthesis import file_specs, held_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_Asked = ParamSpec("_Asked")

SAMPLES: Final = 64  # that are compared
STEPS: Final = 20
LONGEST: Final = 65_536  # samples of an epoch that is only read


class Failed(Exception):  # noqa: N818 -- what went wrong is the user's code
    """The user's code raised: at which stage, and what."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.told = {"stage": stage, "error": words(error)}


# -- the dataset ------------------------------------------------------------------------------------------------------


def folder() -> str:
    """Where the data of all subjects lie."""
    path = os.path.join(os.path.realpath(tempfile.gettempdir()), "data")
    os.makedirs(path, exist_ok=True)
    return path


def fresh() -> str:
    """A folder for the data of one subject: what an earlier one has open is not written to."""
    path = os.path.join(folder(), str(len(os.listdir(folder()))))
    os.makedirs(path)
    return path


def made(subject: dict[str, Any]) -> Any:
    """The dataset. Raises Failed."""
    seed()
    try:
        if subject.get("factory"):
            return from_factory(subject["factory"], subject["root"])
        return held_data.dataset(subject) if subject.get("kind") else prepared(subject)()
    except (Exception, SystemExit) as error:
        raise Failed("build", error) from error


_PREPARED: dict[str, Callable[[], Any]] = {}


def prepared(subject: dict[str, Any]) -> Callable[[], Any]:
    """What makes the dataset of a search: the files are there, and the module is imported. Raises what the import raises."""
    key = f"{subject['path']} {subject['name']}"
    if key not in _PREPARED:
        state = subject["state"]
        file_specs.materialise(state)
        target = Target(subject["path"], subject["root"], subject["name"], dataset=True)
        _PREPARED[key] = lambda: target.make(state)
    return _PREPARED[key]


def from_factory(name: str, root: str) -> Any:
    """What a function of the user gives back. One parameter without a default gets an empty folder."""
    module, _, function = name.partition(":")
    tolerant_import.install(root)
    call = operator.attrgetter(function)(importlib.import_module(module))
    wanted = [
        item
        for item in inspect.signature(call).parameters.values()
        if item.default is item.empty and item.kind in {item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD}
    ]
    return call(fresh()) if len(wanted) == 1 else call()


def iterable(dataset: Any) -> bool:
    """Whether it has no indices."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def length(dataset: Any) -> int | None:
    """How long it says it is; ``None`` where it does not. Raises Failed."""
    if not hasattr(dataset, "__len__"):
        return None
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        if iterable(dataset):
            return None
        raise


def read(dataset: Any, index: int) -> Any:
    """A sample, the generators set again before it. Raises Failed."""
    seed(1000 + index)
    try:
        return dataset[index]
    except Exception as error:
        raise Failed(f"sample {index}", error) from error


def samples(dataset: Any, count: int) -> Iterator[Any]:
    """The first samples; they begin again at the end. Raises Failed."""
    if not iterable(dataset):
        size = length(dataset)
        for index in range(count):
            yield read(dataset, index % size if size else index)
        return
    seen = 0
    while seen < count:
        seed(1000)
        try:
            iterator = iter(dataset)
        except Exception as error:
            raise Failed("iter", error) from error
        fresh = 0
        while seen < count:
            try:
                sample = next(iterator)
            except StopIteration:
                break
            except Exception as error:
                raise Failed(f"sample {fresh}", error) from error
            fresh += 1
            seen += 1
            yield sample
        if not fresh:
            return


def lasting(sample: Any, place: str, index: int) -> Any:
    """A sample that can be compared: what it holds of files is read, as whoever uses it would. Raises Failed."""
    try:
        return handles.settled(sample, place)
    except Exception as error:
        raise Failed(f"reading what sample {index} holds", error) from error


def told(measure: Callable[_Asked, dict[str, Any]]) -> Callable[_Asked, dict[str, Any]]:
    """A measurement that says in ``failed`` how the user's code failed, where it did."""

    @functools.wraps(measure)
    def tell(*args: _Asked.args, **named: _Asked.kwargs) -> dict[str, Any]:
        try:
            return {"failed": None, **measure(*args, **named)}
        except Failed as error:
            return {"failed": error.told}

    return tell


# -- in this process --------------------------------------------------------------------------------------------------


@told
def look(subject: dict[str, Any], rows: list[int] | None = None) -> dict[str, Any]:
    """Length, digests of the first samples, what is open and read at each step, and whether samples are drawn at random."""
    me = os.getpid()
    start = handles.opened()
    before = process_tree.read_bytes(me)
    with handles.reads() as reads:
        dataset = made(subject)
        built = {"bytes_read": process_tree.read_bytes(me) - before, "reads": reads[0], "opened": handles.since(start)}
        try:
            size = length(dataset)
        except Exception as error:
            raise Failed("len", error) from error
        place = folder()
        exact: list[str] = []
        loose: list[str] = []
        outlines: list[str] = []
        shown: list[list[str]] = []
        number = SAMPLES if size is None else min(SAMPLES, size)
        for index, sample in enumerate(samples(dataset, number)):
            settled = lasting(sample, place, index)
            written = write(settled)
            exact.append(written.hash)
            loose.append(digest(handles.settled(settled, place, loose=True)))
            outlines.append(handles.outline(settled))
            if len(shown) < 3:  # noqa: PLR2004 -- enough for a reader
                shown.append(written.told)
        steps = _steps(dataset, reads)
        gc.collect()
        kept = handles.since(start)
    return {
        "length": size,
        "samples": exact,
        "loose": loose,
        "outlines": outlines,
        "shown": shown,
        "built": built,
        "kept": kept,
        "iterable": iterable(dataset),
        **steps,
        **_random(dataset),
        "rows": _run(subject, rows or []),
    }


def _steps(dataset: Any, reads: list[int]) -> dict[str, Any]:
    """Bytes read and handles open, step by step, with the garbage collector off: what only it can free counts as open."""
    me = os.getpid()
    ids, descriptors, sizes, calls = [], [], [], []
    gc.collect()
    gc.disable()
    try:
        stream = samples(dataset, STEPS)
        while True:
            before, count = process_tree.read_bytes(me), reads[0]
            sample = next(stream, stream)
            if sample is stream:
                break
            sizes.append(process_tree.read_bytes(me) - before)
            calls.append(reads[0] - count)
            del sample
            now = handles.opened()
            ids.append(now["ids"])
            descriptors.append(now["descriptors"])
    finally:
        gc.enable()
    return {"ids": ids, "descriptors": descriptors, "bytes_read": sizes, "reads": calls}


def _random(dataset: Any) -> dict[str, Any]:
    """Whether two readings of one sample differ, and whether reading draws from the generators."""
    if iterable(dataset):
        return {"random": False, "draws": False}
    place = folder()
    before = generators()
    first = digest(handles.settled(dataset[0], place))
    draws = generators() != before
    return {"random": digest(handles.settled(dataset[0], place)) != first, "draws": draws}


def _run(subject: dict[str, Any], rows: list[int]) -> list[int]:
    if not rows:
        return []

    def again() -> None:
        dataset = made(subject)
        for sample in samples(dataset, 3):
            handles.settled(sample, "")

    return handles.rows_run(again, subject.get("watched") or subject["path"], rows)


def trim() -> None:
    """Give the system back what the allocator has kept."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def size_of(state: dict[str, Any] | None) -> int:
    """Bytes of the files that were made up, or those of the latest subject of a factory."""
    if state is not None:
        return sum(os.path.getsize(name) for name in state.get("files", {}) if os.path.isfile(name))
    count = len(os.listdir(folder()))
    latest = os.path.join(folder(), str(count - 1)) if count else folder()
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(latest) for name in names)


@told
def pickling(subject: dict[str, Any]) -> dict[str, Any]:
    """Why the dataset cannot be sent to a worker: as it is built, and after this process has read a sample of it."""
    untouched = handles.pickled(made(subject))
    dataset = made(subject)
    list(samples(dataset, 2))
    return {"untouched": untouched, "touched": handles.pickled(dataset)}


@told
def interrupted(subject: dict[str, Any], path: str, function: str) -> dict[str, Any]:
    """What an exception in the middle of a method leaves open."""

    def call() -> object:
        dataset = made(subject)
        for _ in samples(dataset, 2):
            pass
        return dataset

    return handles.interrupted(call, path, function)


SCALARS: Final = (bool, int, float, complex, str, bytes, type(None))
MOST: Final = 1_000_000  # items that are looked at one by one
DEEPEST: Final = 6


@told
def face(subject: dict[str, Any], attributes: list[str], methods: list[str]) -> dict[str, Any]:
    """Each attribute of a dataset that was just built, and what each method gives on one that was just built."""
    dataset = made(subject)
    found = {name: _shown(dataset, name, call=False) for name in attributes}
    return {"attributes": found, "methods": {name: _shown(made(subject), name, call=True) for name in methods}}


def _shown(dataset: Any, name: str, *, call: bool) -> dict[str, Any]:
    """A digest of the value where it is plain data, an exception, or only that it is there."""
    seed()
    try:
        value = getattr(dataset, name)
        if call:
            value = value()
    except Exception as error:  # noqa: BLE001 -- whatever the user's code raises is the answer
        return {"error": words(error)}
    if not _plain(value):
        return {"error": "", "digest": "", "none": False}
    written = write(_listed(handles.settled(value[()] if _lazy(value) else value, folder(), loose=True)))
    return {"error": "", "digest": written.hash, "none": value is None, "shown": written.told}


def _lazy(value: Any) -> bool:
    h5py = sys.modules.get("h5py")
    return h5py is not None and hasattr(h5py, "h5f") and isinstance(value, h5py.Dataset)


def _array(value: Any) -> bool:
    """Whether it is an array, a tensor or a number of such."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and type(value).__module__.partition(".")[0] in {"numpy", "torch"}


def _plain(value: Any, depth: int = 0) -> bool:
    """Whether it is data through and through."""
    if isinstance(value, SCALARS) or _array(value) or _lazy(value):
        return True
    if depth > DEEPEST or (hasattr(value, "__len__") and len(value) > MOST):
        return False
    if isinstance(value, dict):
        return all(_plain(item, depth + 1) for pair in value.items() for item in pair)
    return isinstance(value, (list, tuple, set, frozenset)) and all(_plain(item, depth + 1) for item in value)


def _listed(value: Any, depth: int = 0) -> Any:
    """Lists in place of arrays: whether a row of numbers is the one or the other is no matter of its values."""
    if _array(value):
        size = 1
        for number in value.shape:
            size *= number
        return value.tolist() if hasattr(value, "tolist") and size <= MOST else value
    if isinstance(value, (list, tuple)) and depth <= DEEPEST:
        return [_listed(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth <= DEEPEST:
        return {key: _listed(item, depth + 1) for key, item in value.items()}
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
