"""What to change in the stand-ins after a trial has failed: the message of the exception says what did not fit, the order of use says where to try first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.search import loop_errors
from oomlint.verify.child.synthesis import name_heuristics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    State = dict[str, Any]
    Error = dict[str, Any]  # as oomlint.verify.child.search.loop_search tells it
    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it

COSTLY: Final = 0.4  # seconds of processor time of one trial
PATIENCE: Final = 10  # changes of stand-ins that are tried before a value of the program's own is given up


def moves(state: State, error: Error) -> Iterator[State]:
    """States to try next, the likeliest first. ``error``: what a trial has reported."""
    seen: set[str] = set()
    structure = _structure(state, error)
    # Where the loop could not go on to its next item, what it goes over is at fault; and a model of the program's own that takes so long leaves no time.
    if error["head"] or (error["deep"] and error["cost"] > COSTLY):
        yield from structure
    for count, edit in enumerate(edits(state["specs"], error)):
        text = repr(sorted(edit.items(), key=lambda item: item[0]))
        if text not in seen:
            seen.add(text)
            yield _edited(state, edit)
        if count == (PATIENCE // 2 if error["deep"] else PATIENCE):
            yield from structure
    yield from structure


def _edited(state: State, edit: Edit) -> State:
    specs = {path: spec for path, spec in state["specs"].items() if path not in edit and not any(_below(path, other) for other in edit)}
    return {**state, "specs": specs | {path: spec for path, spec in edit.items() if spec is not None}}


def _below(path: str, other: str) -> bool:
    return path.startswith(other) and path[len(other) : len(other) + 1] in (".", "[", "(")


def _structure(state: State, error: Error) -> Iterator[State]:
    """Changes of what is run."""
    if error["kind"] == "NameError" and (found := re.search(r"name '(\w+)' is not defined", error["message"])) and found[1] not in state["globals"]:
        yield {**state, "globals": [*state["globals"], found[1]]}
    if error["kind"] in ("UnboundLocalError", "NotImplementedError", "Exception", "ValueError", "AssertionError", "KeyError", "NameError"):
        for path, spec in state["specs"].items():
            for text in error["choices"].get(name_heuristics.last(path), ()):
                if spec["kind"] == "const" and isinstance(spec["value"], str) and spec["value"] != text:
                    yield _edited(state, {path: {"kind": "const", "value": text}})
        if error["kind"] == "UnboundLocalError" and not state["force"]:
            yield {**state, "force": True}
    if "'Namespace' object has no attribute" in error["message"]:  # the options that the main block sets are not those that go in here
        for name in error["names"]:
            if name_heuristics.CONFIG.search(name) and name not in state["open"]:
                yield {**state, "open": [*state["open"], name]}
    if error["head"] and not state["loader"]:
        yield {**state, "loader": True}
    for name in error["names"]:
        if name in error["defaults"] and name not in state["open"]:
            yield {**state, "open": [*state["open"], name]}
    # A value that the program made itself before the loop may be what does not fit: a stand-in then.
    for keys in error["makers"]:
        new = [key for key in keys if key not in state["skips"]]
        if new:
            yield {**state, "skips": [*state["skips"], *new]}
    if error["key"] and error["key"] not in state["skips"] and error["dispensable"]:
        yield {**state, "skips": [*state["skips"], error["key"]]}


def edits(specs: dict[str, Spec], error: Error) -> Iterator[Edit]:
    """Changes of specs that the message suggests."""
    recent = error["touched"][::-1]
    paths = [path for path in recent if path in specs] + [path for path in specs if path not in recent]
    paths.sort(key=lambda path: _variable(specs, path) not in error["names"])  # what the failing statement names comes first
    for pattern, make in loop_errors.RULES:
        found = re.search(pattern, f"{error['kind']}: {error['message']}", re.DOTALL)
        if found:
            for edit in make(found, specs, paths):
                yield edit
                wider = _alike(specs, edit, error["names"])
                if len(wider) > len(edit):
                    yield wider
    if error["kind"] in ("RuntimeError", "IndexError", "ValueError", "TypeError"):
        yield from loop_errors.anything(specs, paths)


def _alike(specs: dict[str, Spec], edit: Edit, names: list[str]) -> Edit:
    """The same change for the other tensors of that shape which the failing statement names: an input and its target have to stay alike."""
    wider = dict(edit)
    for path, spec in edit.items():
        if spec is None or spec["kind"] != "tensor" or specs.get(path, {}).get("kind") != "tensor" or spec["shape"] == specs[path]["shape"]:
            continue
        old, new = (loop_errors.inner(shape) for shape in (specs[path]["shape"], spec["shape"]))
        for other, its in specs.items():
            if other not in wider and its["kind"] == "tensor" and _variable(specs, other) in names and loop_errors.inner(its["shape"]) == old:
                wider[other] = {**its, "shape": loop_errors.batched(its["shape"], new)}
    return wider


def _variable(specs: dict[str, Spec], path: str) -> str:
    """The name that stands for a path; of what a call gives that of what is called."""
    return name_heuristics.variable(specs, path) or name_heuristics.last(path.removesuffix("()"))
