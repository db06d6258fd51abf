"""What a loop leaves behind beside its result: in objects of the program's classes, optimizers, schedulers, globals of its module and files.

Each part is a digest of its structure and the numbers in it, apart: a number is the same whether it is kept as a tensor, with or without a graph, or not.
"""

from __future__ import annotations

import ast
import enum
import functools
import math
import os
import re
import sys
import tempfile
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import data

from oomlint.verify.ast_names import FILLING
from oomlint.verify.child.driving.piece_runner import BATCH
from oomlint.verify.child.measuring import written_files
from oomlint.verify.child.measuring.digests import hashed
from oomlint.verify.child.measuring.handles import PROJECT
from oomlint.verify.child.synthesis import deferred_value, stub_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.driving.piece_runner import Outcome, Program

    Part = tuple[str, list[float | None]]  # digest of the structure, and the numbers

DEPTH: Final = 7
NUMBERS: Final = 4096  # of a part that are given back
LEAVES: Final = 20_000  # of a part that are looked at
TEXT: Final = 2**20  # bytes of a text whose numbers are compared as such
PLAIN: Final = (bool, int, float, str, bytes, type(None), list, dict, tuple, set, frozenset, deque, torch.Tensor)
OPAQUE: Final = (torch.nn.Module, data.Dataset, data.DataLoader, data.Sampler)  # compared elsewhere, or nothing that a loop is to leave behind
SAVED: Final = (".pt", ".pth", ".ckpt", ".bin", ".tar")
LOADED: Final = 2**24  # bytes of a file of torch's whose values are compared
UNREAD: Final = (".pkl", ".pickle", ".joblib")  # whether a tensor has a graph is in their bytes
_GRAPH: Final = re.compile(r", (?:grad_fn=<\w+>|requires_grad=True)")
_NUMBER: Final = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


class Left:
    """What there is before a run, and what is left after it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._root = os.path.join(program.root, "")
        inside = os.path.join(os.path.realpath(os.getcwd()), "").startswith(self._root)
        # Elsewhere nothing is known to be a copy, and other programs write.
        self._tops = [os.getcwd(), os.path.realpath(tempfile.gettempdir())] if inside else []
        self._files = written_files.files(self._tops)
        self._globals = dict(self._module())

    def parts(self, outcome: Outcome) -> dict[str, Part]:
        """By name."""
        found = dict(self._held(outcome))
        for name, part in self._module():
            if name not in self._globals or self._globals[name] != part:
                found[f"global {name}"] = part
        found.update(self._written())
        return found

    def _module(self) -> Iterator[tuple[str, Part]]:
        """Globals of a module. Those of a script are its variables: only what is its own in another way is compared."""
        names = self._program.loaded.module.__dict__
        for name, value in list(names.items()):
            if name.startswith(("_oomlint", "__")) or isinstance(value, (deferred_value.Late, stub_objects.Thing)):
                continue
            if (self._program.function and isinstance(value, PLAIN)) or self._kept(value):
                part = self._part(value)
                if part is not None:
                    yield name, part

    def _held(self, outcome: Outcome) -> Iterator[tuple[str, Part]]:
        """What arguments, variables and the object hold."""
        code = outcome.piece.arguments
        arguments = {item.arg for item in (*code.posonlyargs, *code.args, *code.kwonlyargs)} if code else set()
        for name, given in outcome.guide.locals.items():
            value = deferred_value.real(given)
            wanted = self._kept(value) or (
                name in arguments and name not in outcome.piece.watched and isinstance(value, (list, dict, set, deque, stub_objects.Thing))
            )
            if value is outcome.self_object or not wanted or (outcome.piece.kind == "calls" and name in BATCH):
                continue
            firm = name in arguments or _trains(value)
            part = self._part(value)
            if part is not None:
                yield f"{'state of' if firm else 'variable'} `{name}`", part
        if outcome.self_object is None:
            return
        for name, given in list(getattr(outcome.self_object, "__dict__", {}).items()):
            value = deferred_value.real(given)
            if f"self.{name}" not in self._program.text or (name[:1] != "_" and isinstance(value, (list, dict, float, int, torch.Tensor))):
                continue  # not set by the program, or compared as a result
            if self._kept(value) or isinstance(value, (*PLAIN, stub_objects.Thing)):
                part = self._part(value)
                if part is not None:
                    yield f"self.{name}", part

    def _kept(self, value: Any) -> bool:
        return _trains(value) or self._own(value)

    def _own(self, value: Any) -> bool:
        """Whether it is an object of a class of the program."""
        if isinstance(value, (*OPAQUE, type, BaseException, types.ModuleType, deferred_value.Late, stub_objects.Thing)):
            return False
        if isinstance(value, types.SimpleNamespace):
            return True
        file = getattr(sys.modules.get(type(value).__module__), "__file__", None) or ""
        return os.path.realpath(file).startswith(self._root) and "site-packages" not in file and hasattr(value, "__dict__")

    def _part(self, value: Any) -> Part | None:
        walk = _Walk(self._own)
        walk.add(value, "", 0, ())
        return walk.part() if walk.lines else None

    def _written(self) -> Iterator[tuple[str, Part]]:
        for path in written_files.changed(self._files, self._tops):
            name = written_files.named(path, self._tops[-1]).removeprefix(f"{PROJECT}/")
            try:
                part = self._saved(path) or _text(path) or (written_files.content(path), [])
                start = self._files.get(path, (0, 0, 0))[1]
                added = _text(path, start) if 0 < start < os.path.getsize(path) else None
            except Exception:  # noqa: BLE001 -- a reader of a file that was not finished may raise anything
                part, added = ("cannot be read", []), None
            yield f"file {name}", part
            if added:
                yield f"added to {name}", added

    def _saved(self, path: str) -> Part | None:
        """Of a file of torch's or numpy's its values; of one that cannot be compared that it is there."""
        if path.endswith(UNREAD):
            return "is there", []
        if path.endswith(SAVED) and os.path.getsize(path) <= LOADED:
            return self._part(torch.load(path, map_location="cpu", weights_only=False))  # what this very program has saved
        if path.endswith(written_files.ARRAYS):
            return self._part(written_files.arrays(path))
        return None


def uses(tree: ast.AST) -> dict[str, list[str]]:
    """By kind, the names of what the program fills somewhere, and of what it reads beside that."""
    filled: set[str] = set()
    passed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (*FILLING, "clear"):
            passed.add(id(node.func.value))
            filled |= {ast.unparse(node.func.value)} if node.func.attr in FILLING else set()
        elif isinstance(node, ast.AugAssign):
            filled.add(ast.unparse(node.target))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            passed.add(id(node.value))
            filled.add(ast.unparse(node.value))
    held = [node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and id(node) not in passed]
    return {"fills": sorted(filled), "reads": sorted({ast.unparse(node) for node in held})}


def numbers(value: Any) -> list[float | None]:
    """All numbers in a value, in order, those of the program's objects aside."""
    walk = _Walk(lambda _: False)
    walk.add(value, "", 0, ())
    return walk.numbers[:NUMBERS]


def _trains(value: Any) -> bool:
    """Whether it is an optimizer, a scheduler or a scaler."""
    name = type(value).__module__
    return isinstance(value, torch.optim.Optimizer) or (name.startswith(("torch.optim.", "torch.amp", "torch.cuda.amp")) and hasattr(value, "state_dict"))


def _text(path: str, start: int = 0) -> Part | None:
    """The text of a file and the numbers in it; ``None`` where it is no text."""
    if os.path.getsize(path) - start > TEXT:
        return None
    with open(path, "rb") as stream:
        stream.seek(start)
        try:
            text = _GRAPH.sub("", stream.read().decode())
        except UnicodeDecodeError:
            return None
    if "\0" in text:
        return None
    numbers: list[float | None] = [_finite(float(item)) for item in _NUMBER.findall(text)]
    return hashed(_NUMBER.sub("#", text)), numbers[:NUMBERS]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


class _Walk:
    """Goes through a value. Of a stand-in only what the program has set in it is looked at: the rest depends on what is asked of it."""

    def __init__(self, own: Callable[[Any], bool]) -> None:
        self.lines: list[str] = []
        self.numbers: list[float | None] = []
        self._own = own

    def part(self) -> Part:
        """What it has come to."""
        return hashed("\n".join(self.lines)), self.numbers[:NUMBERS]

    def add(self, value: Any, path: str, depth: int, around: tuple[int, ...]) -> None:
        """A value and all that is in it."""
        value = deferred_value.real(value)
        if len(self.lines) > LEAVES:
            return
        if isinstance(value, stub_objects.Thing):
            if id(value) not in around and depth < DEPTH:
                self._set_in(value, path, depth, (*around, id(value)))
        elif isinstance(value, deferred_value.Late):
            return
        elif type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc":
            self.add(torch.as_tensor(value), path, depth, around)
        elif isinstance(value, torch.Tensor):
            self._tensor(value, path)
        elif isinstance(value, enum.Enum) or value is None or isinstance(value, (str, bytes)):
            self.lines.append(f"{path} {value!r}")
        elif isinstance(value, (bool, int, float)):
            self.lines.append(f"{path} number")
            self.numbers.append(_finite(float(value)))
        elif id(value) in around or depth >= DEPTH:
            self.lines.append(f"{path} {type(value).__name__}")
        else:
            self._compound(value, path, depth + 1, (*around, id(value)))

    def _tensor(self, value: torch.Tensor, path: str) -> None:
        self.lines.append(f"{path} numbers {tuple(value.shape)}" if value.dim() else f"{path} number")
        if not value.is_meta and len(self.numbers) < NUMBERS:
            plain = value.detach().cpu()
            plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
            self.numbers += [_finite(float(item)) for item in plain.reshape(-1)[:NUMBERS].tolist()]

    def _compound(self, value: Any, path: str, depth: int, around: tuple[int, ...]) -> None:
        if isinstance(value, stub_objects.Learning):
            self._learned(value, path, depth, around)
        elif isinstance(value, dict):
            self.lines.append(f"{path} {len(value)}")
            for key, item in list(value.items()):
                self.add(item, f"{path}[{key if isinstance(key, (str, int, float, bool)) else type(key).__name__}]", depth, around)
        elif isinstance(value, (list, tuple, deque)):
            self.lines.append(f"{path} {len(value)}")
            for index, item in enumerate(list(value)):
                self.add(item, f"{path}[{index}]", depth, around)
        elif isinstance(value, (set, frozenset)):
            self.lines.append(f"{path} {sorted(repr(item) if isinstance(item, PLAIN) else type(item).__name__ for item in value)}")
        elif _trains(value):
            self.add(value.state_dict(), path, depth, around)
        elif self._own(value):
            self.lines.append(f"{path} {type(value).__name__}")
            for name, item in list(vars(value).items()):
                self.add(item, f"{path}.{name}", depth, around)
        elif isinstance(value, functools.partial) or callable(value):
            self.lines.append(f"{path} callable")
        else:
            self.lines.append(f"{path} {type(value).__name__}")

    def _set_in(self, value: stub_objects.Thing, path: str, depth: int, around: tuple[int, ...]) -> None:
        book, place, _, _ = value.__dict__["_stand_in"]
        for name, item in list(value.__dict__.items()):
            spec = book.specs.get(f"{place}.{name}")
            if name != "_stand_in":
                self._perhaps(item, spec, f"{path}.{name}", depth + 1, around)

    def _learned(self, value: stub_objects.Learning, path: str, depth: int, around: tuple[int, ...]) -> None:
        book, place, _, _ = value._about  # noqa: SLF001 -- of this package
        for key, item in list(value.items()):
            self._perhaps(item, book.specs.get(f"{place}[{key!r}]"), f"{path}[{key!r}]", depth, around)

    def _perhaps(self, item: Any, spec: dict[str, Any] | None, path: str, depth: int, around: tuple[int, ...]) -> None:
        """A value in a stand-in: one that was made up counts for what the program has set in it, and a constant where it is another by now."""
        item = deferred_value.real(item)
        if spec is None:
            self.add(item, path, depth, around)
        elif spec["kind"] == "const":
            if not (type(item) is type(spec["value"]) and item == spec["value"]):
                self.add(item, path, depth, around)
        elif isinstance(item, (list, tuple)) and spec["kind"] in ("list", "tuple") and len(item) == spec.get("n"):
            for index, inner in enumerate(item):
                inner = deferred_value.real(inner)  # noqa: PLW2901 -- what a stand-in has become
                if isinstance(inner, (stub_objects.Thing, stub_objects.Learning)):
                    self.add(inner, f"{path}[{index}]", depth, around)
        elif spec["kind"] not in ("tensor", "strings", "loader", "path", "device"):
            self.add(item, path, depth, around)
