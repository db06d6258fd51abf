"""Watches a program that runs as it stands: what its loaders hand out, what its loops keep, how often a row is run, what stops it.

Nothing of the program is changed. Loaders note each batch, and the row of the finding each time that it is run, as not every loop goes over a loader; workers
stay as they are. All notes go to files: what is kept in memory would be measured.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.abc
import importlib.util
import json
import os
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import process_tree
from oomlint.verify.child.server.exceptions import place, words

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Sequence

VARIABLE: Final = "OOMLINT_WATCH"
MEASURED: Final = 400  # steps after which growth is no longer counted: it slows a program down
RUNS: Final = 40  # of the row, after which it is no longer traced, for the same reason
FRAMES: Final = 6
STACK: Final = 60  # frames that are looked at to find those of the project
COLUMNS: Final = ("storages", "storage_bytes", "nodes", "python_bytes", "saved", "copied", "peak", "python_peak", "device_storages", "device_bytes")
NOTED: Final = "_oomlint"  # of an iterator: its loop, batches so far, batches in all
LONGEST: Final = 2000  # characters of what an exception says
DATALOADER: Final = "torch.utils.data.dataloader"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be watched."""

    folder: str  # for notes
    root: str  # of the project, a real path
    path: str = ""  # the file of the finding
    rows: tuple[int, int] = (0, 0)  # first and last of its statement, in that file; 0 for none
    probe: str = ""  # "" counts no growth, "steps" from the first batch on, "start" from the start of the program on
    saved: bool = False  # also count what is saved for a backward pass
    memory: bool = False  # read the process tree

    def text(self) -> str:
        """For the environment of processes below."""
        return json.dumps(asdict(self))


def listen() -> None:
    """Called by every Python that starts below the command."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    random.seed(0)
    watcher = Watcher(Wanted(**json.loads(text)))
    sys.meta_path.insert(0, _Finder({DATALOADER: watcher.patch_loaders, "torch": _seed_torch, "numpy": lambda: sys.modules["numpy"].random.seed(0)}))
    watcher.begin(alone=False)
    atexit.register(watcher.end)
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace_back: types.TracebackType | None) -> None:
        watcher.raised(error)
        previous(kind, error, trace_back)

    sys.excepthook = hook


def read(folder: str) -> dict[str, Any]:
    """What all processes have noted."""
    streams: dict[Any, dict[str, Any]] = {}
    answer: dict[str, Any] = {"exception": None, "reached": False, "peak": 0, "generators": [], "row": None}
    for name in sorted(os.listdir(folder), key=lambda item: (os.path.getctime(os.path.join(folder, item)), item)):
        if name.startswith("reached"):
            answer["reached"] = True
        elif name.endswith(".jsonl"):
            for note in _lines(os.path.join(folder, name)):
                _take(note, name, streams, answer)
    return {**answer, "streams": list(streams.values())}


def _take(note: dict[str, Any], process: str, streams: dict[Any, dict[str, Any]], answer: dict[str, Any]) -> None:
    match note.pop("kind"):
        case "exception":
            answer["exception"] = answer["exception"] or note
        case "peak":
            answer["peak"] = max(answer["peak"], note["bytes"])
        case "end":
            answer["generators"].append(note["generators"])
        case "stream":
            streams.setdefault((process, note["stream"]), {**note, "process": process, "steps": [], "epochs": []})
        case "row":
            answer["row"] = answer["row"] or {"process": process, "where": [], "workers": 0, "method": "", "steps": [], "epochs": []}
            if answer["row"]["process"] == process:
                answer["row"]["steps"].append(note)
        case "epoch":
            streams[process, note["stream"]]["epochs"].append(note)
        case "step":
            streams[process, note["stream"]]["steps"].append(note)


def _lines(path: str) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return  # the process was killed while it wrote


class Watcher:
    """The notes of one process."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._process = os.getpid()
        self._file: Any = None
        self._streams: dict[Any, int] = {}
        self._counts = [0, 0]  # loaders made, processes started
        self._growth: Any = None
        self._measured = 0

    # -- the program --------------------------------------------------------------------------------------------------------

    def begin(self, *, alone: bool = True) -> None:
        """Before the first statement of the program. ``alone``: this process is the command itself."""
        if self.wanted.path and self.wanted.rows[0]:
            self._trace_row()
        _count_processes(self._counts)
        if alone and self.wanted.probe == "start":
            self._measure()

    def end(self) -> None:
        """After the last one."""
        self._finish_growth()
        if self._streams and os.getpid() == self._process:
            from oomlint.verify.child.measuring import digests  # noqa: PLC0415 - after torch

            self._note(kind="end", generators=digests.generators())

    def raised(self, error: BaseException) -> None:
        """The program ends with an exception."""
        if os.getpid() != self._process or isinstance(error, SystemExit):
            return
        text = words(error, LONGEST).partition(": ")[2]
        self._note(kind="exception", type=type(error).__name__, text=text, place=place(error, self.wanted.root))

    def _trace_row(self) -> None:
        """Leave a mark when a row of the finding is run, in whichever process. Trace no more then, unless growth is counted: at each run of the row, too."""
        path, (first, last) = os.path.realpath(self.wanted.path), self.wanted.rows
        mark = os.path.join(self.wanted.folder, "reached")
        known: dict[str, bool] = {}
        within = runs = 0  # the frame that is in the statement: all rows of it are one run

        def inside(frame: types.FrameType, event: str, _: Any) -> Any:
            nonlocal within, runs
            if event != "line":
                return inside
            was, within = within, id(frame) if first <= frame.f_lineno <= last else within * (within != id(frame))
            if within == was or not first <= frame.f_lineno <= last:
                return inside
            runs += 1
            with open(mark, "w", encoding="utf-8"):
                pass
            if self.wanted.probe == "steps" and self._ours() and runs <= RUNS and self._measured < MEASURED:
                if self._growth is None:
                    self._measure()
                self._note(kind="row", **self._counted())
                return inside
            sys.settrace(None)
            threading.settrace(None)
            return None

        def enter(frame: types.FrameType, _: str, __: Any) -> Any:
            name = frame.f_code.co_filename
            ours = known.get(name)
            if ours is None:
                ours = known[name] = os.path.realpath(name) == path
            return inside if ours else None

        sys.settrace(enter)
        threading.settrace(enter)

    # -- loaders ------------------------------------------------------------------------------------------------------------

    def patch_loaders(self) -> None:
        """Make loaders note what they hand out."""
        module: Any = importlib.import_module(DATALOADER)
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter  # noqa: SLF001 - patched so that loaders stay of their types
        make, begin, following = loader.__init__, loader.__iter__, iterator.__next__
        watcher = self

        def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807 - in the place of it
            make(self, *args, **options)
            watcher._counts[0] += 1

        def __iter__(self: Any) -> Any:  # noqa: N807 - likewise
            if not watcher._ours():
                return begin(self)
            stream = watcher._stream(self, sys._getframe(1))  # noqa: SLF001 - who iterates
            built = watcher._tree() if watcher.wanted.memory else {}
            it = begin(self)
            unpinned = bool(getattr(self, "pin_memory", False)) and not getattr(it, "_pin_memory", True)
            watcher._note(kind="epoch", stream=stream, built=built, unpinned=unpinned)
            setattr(it, NOTED, [stream, 0, _length(self)])
            return it

        def __next__(self: Any) -> Any:  # noqa: N807 - likewise
            data = following(self)
            about = getattr(self, NOTED, None)
            if about is not None and watcher._ours():
                watcher._step(about, data)
            return data

        functions: list[tuple[Any, str, Callable[..., Any]]] = [
            (loader, "__init__", __init__),
            (loader, "__iter__", __iter__),
            (iterator, "__next__", __next__),
        ]
        for owner, name, function in functions:
            function.__wrapped__ = getattr(owner, name)  # type: ignore[attr-defined]  # for those who ask for a signature
            setattr(owner, name, function)

    def _ours(self) -> bool:
        return os.getpid() == self._process and threading.current_thread() is threading.main_thread() and not _is_worker()

    def _stream(self, loader: Any, frame: types.FrameType | None) -> int:
        """The number of the loop that iterates a loader. Loops count in the order in which they first run."""
        stack = list(self._frames(frame))
        key = tuple(stack[:1]) or id(type(loader))
        if key not in self._streams:
            number = self._streams[key] = len(self._streams)
            self._note(
                kind="stream",
                stream=number,
                where=[list(item) for item in stack],
                workers=int(getattr(loader, "num_workers", 0) or 0),
                method=_method(loader),
            )
        if self.wanted.probe and self._growth is None:
            self._measure()
        return self._streams[key]

    def _frames(self, frame: types.FrameType | None) -> Iterator[tuple[str, str, int]]:
        """File, function and row of the project's frames, innermost first."""
        found = looked = 0
        while frame is not None and found < FRAMES and looked < STACK:
            name = os.path.realpath(frame.f_code.co_filename)
            if name.startswith(self.wanted.root + os.sep):
                yield os.path.relpath(name, self.wanted.root), getattr(frame.f_code, "co_qualname", frame.f_code.co_name), frame.f_lineno
                found += 1
            frame = frame.f_back
            looked += 1

    def _step(self, about: list[Any], data: Any) -> None:
        """A batch is about to be handed out."""
        note = {"stream": about[0], **self._counted()}
        about[1] += 1
        from oomlint.verify.child.measuring import digests  # noqa: PLC0415 - after torch

        written = digests.write(data)
        note["digest"], note["opaque"], note["shown"] = written.hash, not written.comparable, written.told
        last = about[1] == about[2]
        if self.wanted.memory and (last or about[1] & (about[1] - 1) == 0):
            note["tree"] = self._tree()
        self._note(kind="step", **note)

    def _counted(self) -> dict[str, Any]:
        """What a step may have kept: all that is there now."""
        note: dict[str, Any] = {}
        if self._growth is not None and self._measured < MEASURED:
            self._growth.step()
            for name in COLUMNS:
                note[name] = self._growth.last()[name]
            self._measured += 1
            if self._measured == MEASURED and self.wanted.probe == "steps":
                self._finish_growth()
        with contextlib.suppress(ProcessLookupError, process_tree.NotHere):
            note["descriptors"] = process_tree.descriptors(self._process)
        note["loaders"], note["processes"] = self._counts
        h5py: Any = sys.modules.get("h5py")
        if h5py is not None:
            note["ids"] = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_ALL)
        return note

    # -- measuring ----------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        from oomlint.verify.child.measuring.tensor_census import StepGrowth  # noqa: PLC0415 - it imports torch

        self._growth = StepGrowth(MEASURED + 1, saved=self.wanted.saved)
        self._growth.__enter__()

    def _finish_growth(self) -> None:
        if self._growth is not None and os.getpid() == self._process:
            if self.wanted.probe == "start":
                self._note(kind="peak", bytes=self._growth.highest())
            self._growth.__exit__(None, None, None)
            self._growth = None

    def _tree(self) -> dict[str, int]:
        """Memory of the process and its workers, and bytes that they have read."""
        try:
            pids = process_tree.tree(self._process)
            reads = 0
            for pid in pids:
                try:
                    reads += process_tree.read_bytes(pid)
                except ProcessLookupError:
                    continue
            return {"memory": process_tree.total(pids), "read": reads, "processes": len(pids)}
        except process_tree.NotHere:
            return {}

    def _note(self, **note: Any) -> None:
        if self._file is None:
            name = f"{self._process}-{time.monotonic_ns()}.jsonl"
            self._file = open(os.path.join(self.wanted.folder, name), "a", buffering=1, encoding="utf-8")  # noqa: SIM115 - open to the end
        self._file.write(json.dumps(note) + "\n")


class _Finder(importlib.abc.MetaPathFinder):
    """Does something when a module has been imported."""

    def __init__(self, then: dict[str, Callable[[], None]]) -> None:
        self._then = then
        self._busy = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None) -> Any:  # noqa: ARG002 - the protocol
        """The import system asks this for every module."""
        if self._busy or name not in self._then:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        loader: Any = spec and spec.loader
        if loader is None:
            return None
        execute, then = loader.exec_module, self._then.pop(name)

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            then()

        loader.exec_module = exec_module
        return spec


def _is_worker() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _method(loader: Any) -> str:
    """How its workers are started."""
    import multiprocessing  # noqa: PLC0415 - only with loaders

    context = getattr(loader, "multiprocessing_context", None)
    try:
        return str((context or multiprocessing).get_start_method())
    except (AttributeError, ValueError):
        return ""


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 - of the user's dataset
        return -1


def _count_processes(counts: list[int]) -> None:
    import multiprocessing.process  # noqa: PLC0415 - before the program does

    start = multiprocessing.process.BaseProcess.start

    def counting(self: Any) -> None:
        start(self)
        counts[1] += 1

    multiprocessing.process.BaseProcess.start = counting  # type: ignore[method-assign]


def _seed_torch() -> None:
    sys.modules["torch"].manual_seed(0)
    sys.modules["torch"].set_num_threads(1)
