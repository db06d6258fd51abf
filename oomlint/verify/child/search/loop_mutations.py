"""What to change in the stand-ins after a trial has failed: the message of the exception says what did not fit, the order of use says where to try first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.search import loop_error_mutations, shape_mutations
from oomlint.verify.child.synthesis import name_heuristics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    State = dict[str, Any]
    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it

COSTLY: Final = 0.4  # seconds of processor time of one trial
PATIENCE: Final = 10  # changes of stand-ins that are tried before a value of the program's own is given up


class Failed:
    """What a trial reported."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.kind: str = report["kind"]
        self.message: str = report["message"]
        self.key: str = report["key"]
        self.recent: list[str] = list(reversed(report["touched"]))
        self.names: list[str] = report["names"]  # read by the statement that failed
        self.report = report


def moves(state: State, failed: Failed) -> Iterator[State]:
    """States to try next, the likeliest first."""
    seen: set[str] = set()
    structure = _structure(state, failed)
    # Where the loop could not go on to its next item, what it goes over is at fault; and a model of the program's own that takes so long leaves no time.
    if failed.report["head"] or (failed.report["deep"] and failed.report["cost"] > COSTLY):
        yield from structure
    for count, edit in enumerate(edits(state["specs"], failed)):
        text = repr(sorted(edit.items(), key=lambda item: item[0]))
        if text not in seen:
            seen.add(text)
            yield _edited(state, edit)
        if count == (PATIENCE // 2 if failed.report["deep"] else PATIENCE):
            yield from structure
    yield from structure


def _edited(state: State, edit: Edit) -> State:
    specs = {path: spec for path, spec in state["specs"].items() if path not in edit and not any(_below(path, other) for other in edit)}
    return {**state, "specs": specs | {path: spec for path, spec in edit.items() if spec is not None}}


def _below(path: str, other: str) -> bool:
    return path.startswith(other) and path[len(other) : len(other) + 1] in (".", "[", "(")


def _structure(state: State, failed: Failed) -> Iterator[State]:
    """Changes of what is run."""
    if failed.kind == "NameError" and (found := re.search(r"name '(\w+)' is not defined", failed.message)) and found[1] not in state["globals"]:
        yield {**state, "globals": [*state["globals"], found[1]]}
    if failed.kind in ("UnboundLocalError", "NotImplementedError", "Exception", "ValueError", "AssertionError", "KeyError", "NameError"):
        for path, spec in state["specs"].items():
            for text in failed.report["choices"].get(name_heuristics.last(path), ()):
                if spec["kind"] == "const" and isinstance(spec["value"], str) and spec["value"] != text:
                    yield _edited(state, {path: {"kind": "const", "value": text}})
        if failed.kind == "UnboundLocalError" and not state["force"]:
            yield {**state, "force": True}
    if "'Namespace' object has no attribute" in failed.message:  # the options that the main block sets are not those that go in here
        for name in failed.names:
            if name_heuristics.CONFIG.search(name) and name not in state["open"]:
                yield {**state, "open": [*state["open"], name]}
    if failed.report["head"] and not state["loader"]:
        yield {**state, "loader": True}
    for name in failed.names:
        if name in failed.report["defaults"] and name not in state["open"]:
            yield {**state, "open": [*state["open"], name]}
    # A value that the program made itself before the loop may be what does not fit: a stand-in then.
    for keys in failed.report["makers"]:
        new = [key for key in keys if key not in state["skips"]]
        if new:
            yield {**state, "skips": [*state["skips"], *new]}
    if failed.key and failed.key not in state["skips"] and failed.report["dispensable"]:
        yield {**state, "skips": [*state["skips"], failed.key]}


def edits(specs: dict[str, Spec], failed: Failed) -> Iterator[Edit]:
    """Changes of specs that the message suggests."""
    paths = [path for path in failed.recent if path in specs] + [path for path in specs if path not in failed.recent]
    paths.sort(key=lambda path: _variable(specs, path) not in failed.names)  # what the failing statement names comes first
    for pattern, make in loop_error_mutations.RULES:
        found = re.search(pattern, f"{failed.kind}: {failed.message}", re.DOTALL)
        if found:
            for edit in make(found, specs, paths):
                yield edit
                wider = _alike(specs, edit, failed.names)
                if len(wider) > len(edit):
                    yield wider
    if failed.kind in ("RuntimeError", "IndexError", "ValueError", "TypeError"):
        yield from shape_mutations.anything(specs, paths)


def _alike(specs: dict[str, Spec], edit: Edit, names: list[str]) -> Edit:
    """The same change for the other tensors of that shape which the failing statement names: an input and its target have to stay alike."""
    wider = dict(edit)
    for path, spec in edit.items():
        if spec is None or spec["kind"] != "tensor" or specs.get(path, {}).get("kind") != "tensor" or spec["shape"] == specs[path]["shape"]:
            continue
        old, new = ([size for size in shape if size != "B"] for shape in (specs[path]["shape"], spec["shape"]))
        for other, its in specs.items():
            if other not in wider and its["kind"] == "tensor" and _variable(specs, other) in names and [size for size in its["shape"] if size != "B"] == old:
                wider |= shape_mutations.batched(specs, other, new)
    return wider


def _variable(specs: dict[str, Spec], path: str) -> str:
    """The variable that a part of a batch was unpacked to, or its key."""
    if path.endswith("]") and not path.endswith("']"):
        parent, _, index = path[:-1].rpartition("[")
        names = specs.get(parent, {}).get("names", ())
        return names[int(index)] if index.isdigit() and int(index) < len(names) else ""
    return name_heuristics.last(path) or name_heuristics.last(path.removesuffix("()"))
