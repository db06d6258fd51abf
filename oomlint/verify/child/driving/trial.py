"""One run of a dataset or a function of the user's, and what is learnt from it."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import re
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import IterableDataset, default_collate

from oomlint.verify.child.loading import import_names, stubs
from oomlint.verify.child.loading.tolerant_import import LoadError, install, load
from oomlint.verify.child.server.exceptions import place, rows, seed, words
from oomlint.verify.child.synthesis import argument_guesses, argument_specs, file_specs_plain, inferred_value, on_demand_files, sizes
from oomlint.verify.child.synthesis import source_hints as hinted

if TYPE_CHECKING:
    import traceback

    from oomlint.verify.child.loading.tolerant_import import Loaded
    from oomlint.verify.child.synthesis.file_specs_plain import Hints

SCRIPT: Final = "<module>"  # in place of a name: the file is run as a script
READ: Final = 64  # items that are read at most
YIELDED: Final = 20  # values that a generator of the user's gives at most
WORKS: Final = 5  # the stage from which a dataset or function works

State = dict[str, Any]


class Target:
    """What is to run: a dataset class, a function or a method."""

    def __init__(self, path: str, root: str, name: str, *, dataset: bool) -> None:
        self.path, self.root, self.name, self.dataset = os.path.realpath(path), os.path.realpath(root), name, dataset
        self.loaded: Loaded = load(path, root)
        self.module: types.ModuleType = self.loaded.module
        self.owner: Any = None
        self.rows: list[int] = []  # one of them had better run
        self.thing: Any = self.module
        for part in name.split(".") if name != SCRIPT else ():
            self.owner, self.thing = self.thing, vars(self.thing).get(part, getattr(self.thing, part, None))
            if self.thing is None:
                raise LoadError(self._undefined(part))
        if name == SCRIPT:
            self.thing = self._script
        self.method = isinstance(self.owner, type) and not dataset
        if self.method:
            self.static = isinstance(self.thing, (staticmethod, classmethod))
            self.thing = getattr(self.owner, name.rpartition(".")[2])
        self.hints: Hints = hinted.read(self._files(), name)

    def _script(self) -> None:
        """The whole file, as the main module and without a command line."""
        before, words = sys.modules["__main__"], sys.argv
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__, sys.argv = self.path, [self.path]
        try:
            exec(compile(import_names.text(self.path), self.path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 -- the user's own program, fenced in
        except SystemExit as left:
            if left.code:
                raise
        finally:
            sys.modules["__main__"], sys.argv = before, words

    def _undefined(self, part: str) -> str:
        last = self.loaded.skipped[0] if self.loaded.skipped else "it is not at the top level of the file"
        return f"{part} is not defined: {last}"

    def _files(self) -> list[str]:
        bases = getattr(self.thing if self.dataset else self.owner, "__mro__", ())
        places = [getattr(sys.modules.get(base.__module__), "__file__", None) or "" for base in bases]
        return list(dict.fromkeys([self.path, *(place for place in places if place.startswith(self.root + os.sep))]))

    def first(self, known: dict[str, list[Any]]) -> tuple[State, dict[str, list[Any]]]:
        """The state to begin with, and what else its arguments may be."""
        state: State = {"n": file_specs_plain.SAMPLES, "arguments": {}, "owner": {}, "files": {}, "globals": {}}
        options: dict[str, list[Any]] = {}
        parts = [("arguments", self.thing, int(self.method and not self.static))]
        if self.method and not self.static:
            parts.append(("owner", self.owner, 0))
        for where, function, skip in parts:
            state[where], others = argument_guesses.initial(function, known, self.hints, skip=skip)
            options |= {f"{where}.{name}": items for name, items in others.items()}
        return state, options

    def guess(self, name: str) -> Any:
        """A first value for an entry of a configuration."""
        return argument_guesses.guesses(name, "", self.hints, inner=True)[0]

    def make(self, state: State, *, guessing: bool = False) -> Any:
        """The dataset, or the callable that has no arguments left."""
        for name, value in state.get("globals", {}).items():
            module, _, tail = name.rpartition(".")
            setattr(sys.modules[module], tail, value)
        sizes.apply(self.module, state.get("shrunk", {}))
        guess = self.guess if guessing else None
        if self.dataset:
            return argument_specs.construct(self.thing, self._fitting(self.thing, state["arguments"]), state, self.module, guess)
        bound = self.thing
        if self.method and not self.static:
            owner = argument_specs.construct(self.owner, self._fitting(self.owner, state["owner"]), state, self.module, guess)
            bound = getattr(owner, self.name.rpartition(".")[2])
        positional, keywords = argument_specs.values(bound, state["arguments"], state, self.module, guess)
        return lambda: bound(*positional, **keywords)

    def _fitting(self, cls: Any, specs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a state for a class whose parameters a fix may have changed: a new one is as the file's own call of the class has it."""
        found = argument_specs.parameters(cls)
        new = [item.name for item in found if item.default is item.empty and item.name not in specs]
        if not new and all(name in {item.name for item in found} for name in specs):
            return specs
        called = hinted.called(self.path, self.name.partition(".")[0], [item.name for item in found])
        kept = {name: spec for name, spec in specs.items() if any(item.name == name for item in found)} if found else specs
        return {**kept, **{name: {"is": "json", "value": called[name]} for name in new if name in called}}

    def run(self, state: State, progress: State, *, guessing: bool = False) -> None:
        """Make it and run it; ``progress`` says how far it came."""
        install(self.root).revive()
        made = self.make(state, guessing=guessing)
        progress["stage"] = 1
        if self.dataset:
            read(made, progress)
            return
        result = made()
        if hasattr(result, "__next__"):
            result = list(itertools.islice(result, YIELDED))
        honest(result)
        progress["stage"] = WORKS + 1


def honest(value: Any, depth: int = 3) -> None:
    """Raise where a result is made of stand-ins for libraries."""
    if isinstance(value, stubs.Stub):
        stubs.missing(value._name)  # noqa: SLF001 -- of the same stand-in, or there is no public way
    if depth and isinstance(value, (list, tuple)):
        for item in value[:8]:
            honest(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in list(value.values())[:8]:
            honest(item, depth - 1)


def read(dataset: Any, progress: State) -> None:
    """Read a dataset as a loader does; ``progress`` says how far it went."""
    if isinstance(dataset, IterableDataset):
        items = list(itertools.islice(iter(dataset), READ))
        progress["length"] = len(items)
        if not items:
            raise ValueError("it yields nothing")
    else:
        length = len(dataset)
        if length < 1:
            raise ValueError("empty dataset: its length is 0")
        progress |= {"stage": 2, "length": length}
        items = [_item(dataset, 0)]
        progress["stage"] = 3
        for number in [*range(1, min(length, 3)), length - 1]:
            _item(dataset, number)
            progress["items"] = number
        progress["stage"] = 4
        for number in range(min(length, READ)):
            items.append(_item(dataset, number))
            progress["items"] = number
    for item in items[:2]:
        honest(item)
    progress["stage"] = WORKS
    collate = next((found for name in ("collate_fn", "collate", "collater") if callable(found := getattr(dataset, name, None))), default_collate)
    try:
        collate([items[0], items[-1]])
    except Exception as error:  # noqa: BLE001 -- the user's code raises what it likes
        progress["error"] = words(error)
    else:
        progress["stage"] = WORKS + 1


def _item(dataset: Any, number: int) -> Any:
    item = dataset[number]
    if item is None:
        raise ValueError(f"item {number} is None")
    return item


def trial(target: Target, state: State, *, real: bool = False) -> State:
    """Run it once in this process, which has to end afterwards. ``real``: on what lies there, with nothing replaced by a stand-in."""
    progress: State = {"stage": 0, "lines": 0}
    seed()
    ran: set[tuple[str, int]] = set()
    unset: list[str] = []
    world = on_demand_files.World(state, os.getcwd(), target.root, target.hints)
    error: BaseException | None = None
    inferred_value.RECENT.clear()
    if not real:
        os.makedirs(file_specs_plain.FOLDER, exist_ok=True)  # the program may make a file of its own there
        on_demand_files.enter(world)

    def trace(frame: types.FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(target.root):
            return None
        if event == "line":
            row = (frame.f_code.co_filename, frame.f_lineno)
            if row not in ran:
                ran.add(row)
                unset.extend(_unset(frame))
        return trace

    before = list(stubs.CALLED)
    sys.settrace(trace)
    try:
        target.run(state, progress, guessing=not real)
    except BaseException as raised:  # noqa: BLE001 -- the user's code raises what it likes
        error = raised
    finally:
        sys.settrace(None)
    answer = {
        **progress,
        "works": progress["stage"] >= WORKS,
        "lines": len(ran),
        "reached": not target.rows or any((target.path, row) in ran for row in target.rows),
        "unset": unset,
        "state": state,
        "log": world.log,
        "outside": world.outside,
    }
    answer["paths"] = _paths(target) if world.outside else {}
    answer["used"] = list(world.used)
    answer["needs"] = [name for name in stubs.CALLED if name not in before]
    if error is not None:
        answer["error"] = words(error)
        answer["settled"] = "Clay" in answer["error"] and inferred_value.settle(answer["error"])
        answer["missing"] = isinstance(error, stubs.NotInstalledError)
        frames = rows(error, target.root)
        answer["names"] = _names(frames)
        answer["rows"] = [frame.line or "" for frame in reversed(frames[-2:])]
        answer["place"] = place(error, target.root)
    return answer


def _unset(frame: types.FrameType) -> list[str]:
    """Tensors of as many numbers as a sample says, none of them set: `torch.LongTensor(self.labels[i])` where that is a number. They differ in each run."""
    found = re.findall(r"torch\.\w*Tensor\(((?:self\.)?\w+\[[\w.]+\])\)", linecache.getline(frame.f_code.co_filename, frame.f_lineno))
    made = []
    for text in found:
        with contextlib.suppress(Exception):
            value = eval(text, frame.f_globals, frame.f_locals)  # noqa: S307 -- the user's own words, in a child that is fenced in
            made += [text] if not hasattr(value, "__len__") else []
    return made


def _names(frames: list[traceback.FrameSummary]) -> list[str]:
    """What the rows that failed speak of, the innermost first."""
    return list(dict.fromkeys(name for frame in reversed(frames[-4:]) for name in re.findall(r"[A-Za-z_]\w*", frame.line or "")))


def _paths(target: Target) -> dict[str, str]:
    """Globals of the project that hold absolute paths."""
    return {
        f"{module.__name__}.{name}": value
        for module in list(sys.modules.values())
        if (getattr(module, "__file__", None) or "").startswith(target.root)
        for name, value in list(vars(module).items())
        if isinstance(value, str) and not name.startswith("__") and value.startswith(("/", "~"))
    }
