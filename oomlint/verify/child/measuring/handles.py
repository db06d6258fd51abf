"""What a process holds open: HDF5 identifiers and file descriptors, whether an object can be pickled, and what an exception in the middle leaves open."""

from __future__ import annotations

import ast
import gc
import itertools
import os
import re
import sys
import types
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.measuring.line_coverage import Rows
from oomlint.verify.child.server.exceptions import swapped, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEW: Final = 20  # items of an iterator that are read
DEEPEST: Final = 6
PROJECT: Final = "<project>"
PLACE: Final = "<data>"  # stands in samples for the folder of the data, which has another name in each run


class Interrupted(BaseException):  # no Exception: it must get past the user's handlers
    """Raised in the middle of the user's code, to see what that leaves open."""


def opened() -> dict[str, int]:
    """HDF5 identifiers and file descriptors of this process. The identifiers are exact; HDF5 shares descriptors, other files have nothing else."""
    h5py = sys.modules.get("h5py")
    ids = int(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL)) if h5py is not None and hasattr(h5py, "h5f") else 0
    return {"ids": ids, "descriptors": len(os.listdir("/proc/self/fd")) - 1 if os.path.isdir("/proc/self/fd") else 0}


def since(then: dict[str, int]) -> dict[str, int]:
    """How many more are open than there were."""
    return {name: count - then[name] for name, count in opened().items()}


def pickled(value: object) -> str:
    """Why a loader cannot send an object to a worker that it spawns; empty where it can."""
    try:
        ForkingPickler.dumps(value)
    except Exception as error:  # noqa: BLE001 -- whatever the user's classes raise is the answer
        return words(error)
    return ""


@contextmanager
def reads() -> Iterator[list[int]]:
    """Counts the reads of HDF5 datasets: the list holds one number."""
    count = [0]
    try:
        import h5py  # type: ignore[import-untyped] # noqa: PLC0415 -- the user's environment may lack it
    except ImportError:
        yield count
        return
    plain = h5py.Dataset.__getitem__

    def read(self: object, *rest: Any, **named: Any) -> Any:
        count[0] += 1
        return plain(self, *rest, **named)

    with swapped((h5py.Dataset, "__getitem__", read)):
        yield count


def placeless(text: str, folder: str) -> str:
    """A text in which the folder of the data, with the number of the subject, has one name; so has the folder of the project."""
    if folder:
        text = text.replace(os.getcwd(), PROJECT)
    return re.sub(re.escape(folder) + r"(/\d+\b)?", PLACE, text) if folder and folder in text else text


def settled(value: Any, folder: str, *, loose: bool = False, depth: int = 0) -> Any:
    """A value that can be compared with that of another run: what is lazy is read, and the folder of the data has one name.

    ``loose`` leaves the types out: numbers and texts of NumPy are those of Python, tuples are lists, tensors are arrays, all floats have four bytes.
    """
    h5py = sys.modules.get("h5py")
    if depth > DEEPEST:
        return value
    if isinstance(value, (str, os.PathLike)) and not isinstance(value, bytes):
        text = os.fspath(value)
        text = placeless(text, folder) if isinstance(text, str) else text
        return text if loose or type(value) is str else (type(value).__name__, text)
    if h5py is not None and hasattr(h5py, "h5f"):
        if isinstance(value, h5py.Dataset):
            return ("h5py.Dataset", settled(value[()], folder, loose=loose, depth=depth + 1))
        if isinstance(value, (h5py.File, h5py.Group)):
            return (type(value).__name__, sorted(value.keys()))
    if isinstance(value, (types.GeneratorType, map, filter, zip)):
        return ("iterator", [settled(item, folder, loose=loose, depth=depth + 1) for item in itertools.islice(value, FEW)])
    if hasattr(value, "_mmap") and type(value).__name__ == "memmap":
        value = sys.modules["numpy"].asarray(value)  # a loader makes the same of both
    if loose and hasattr(value, "dtype") and hasattr(value, "shape") and type(value).__module__ in {"numpy", "torch"}:
        return _numbers(value)
    if type(value) in (tuple, list):
        items = [settled(item, folder, loose=loose, depth=depth + 1) for item in value]
        return items if loose or type(value) is list else tuple(items)
    if type(value) is dict:
        return {key: settled(item, folder, loose=loose, depth=depth + 1) for key, item in value.items()}
    return value


def _numbers(value: Any) -> Any:
    """An array or a tensor without its type."""
    import numpy as np  # noqa: PLC0415

    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        elif array.dtype.kind in "iu":
            array = array.astype(np.int64)
    except (TypeError, ValueError, RuntimeError):
        return value
    return array if array.shape else array.item()


def outline(value: Any, depth: int = 0) -> str:
    """Types and shapes without values."""
    if depth > DEEPEST:
        return "..."
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__}{tuple(value.shape)} {value.dtype}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {outline(item, depth + 1)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{', '.join(outline(item, depth + 1) for item in value)}]"
    return type(value).__name__


def interrupted(call: Callable[[], object], path: str, function: str) -> dict[str, Any]:
    """The most that stays open because an exception comes while a function of a file has HDF5 files open, as long as that exception is kept.

    ``function`` is the function's own name. The exception is raised at each row in turn that begins with more identifiers open than there were when the
    function was entered. What an undisturbed call leaves open as well, such as a file that the object keeps, does not count. ``call`` gives back what it
    has made, so that it lives until all is counted.
    """
    path = os.path.realpath(path)
    headers = _headers(path)
    usual = _Interruption(path, function, 0, headers).run(call)
    gc.collect()
    most = {"raised": 0, "ids": 0, "descriptors": 0}
    for number in range(1, FEW + 1):
        one = _Interruption(path, function, number, headers)
        last = one.run(call)[-1]
        row, entered = one.raised, one.entered
        del one
        gc.collect()
        if not row:
            break
        kept = usual[entered] if entered < len(usual) else {"ids": 0, "descriptors": 0}
        found = {"raised": row, **{name: last[name] - max(kept[name], 0) for name in last}}
        most = max(most, found, key=lambda item: (item["ids"], item["raised"] > 0))
    return most


def _headers(path: str) -> set[int]:
    """Rows of `with` itself: what is raised there, as the block ends, comes before the file is closed, which no exception of a program does."""
    with open(path, "rb") as stream:
        tree = ast.parse(stream.read())
    return {row for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith)) for row in range(node.lineno, node.body[0].lineno)}


class _Interruption:
    """Runs a call and interrupts it at the row of that number at which the function has files open; with 0 it only counts."""

    def __init__(self, path: str, function: str, number: int, headers: set[int]) -> None:
        self.raised = 0  # the row
        self.entered = -1  # the number of the entry into the function in which it was
        self._place = (path, function)
        self._left = number
        self._headers = headers
        self._kept: object = None
        self._starts: list[dict[str, int]] = []  # what was open at each entry

    def run(self, call: Callable[[], object]) -> list[dict[str, int]]:
        """What each entry into the function has left open when the next began, or at the end."""
        gc.collect()
        sys.settrace(self._trace)
        try:
            self._kept = call()
        except BaseException as error:  # noqa: BLE001 -- to be kept, as a debugger or a log would
            self.raised = self.raised if isinstance(error, Interrupted) else 0
            self._kept = error
        finally:
            sys.settrace(None)
        ends = [*self._starts[1:], opened()]
        return [{name: end[name] - start[name] for name in end} for start, end in zip(self._starts, ends, strict=False)] or [{"ids": 0, "descriptors": 0}]

    def _trace(self, frame: types.FrameType, _event: str, _argument: object) -> Any:
        if (frame.f_code.co_filename, frame.f_code.co_name) != self._place or self.raised:
            return None
        self._starts.append(opened())
        return self._inside

    def _inside(self, frame: types.FrameType, event: str, _argument: object) -> Any:
        if event == "line" and not self.raised and frame.f_lineno not in self._headers and opened()["ids"] > self._starts[-1]["ids"]:
            self._left -= 1
            if self._left == 0:
                self.raised, self.entered = frame.f_lineno, len(self._starts) - 1
                raise Interrupted
        return self._inside


def rows_run(call: Callable[[], object], path: str, rows: list[int]) -> list[int]:
    """Which rows of a file are run by a call."""
    rows_of = Rows(os.path.realpath(path))
    sys.settrace(rows_of.trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return sorted({row for _, row in rows_of.seen}.intersection(rows))
