"""Changes of a state one thing after the other, where no message helps."""

from __future__ import annotations

import copy
import itertools
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import argument_guesses, file_specs_h5, file_specs_plain
from oomlint.verify.child.synthesis.spec_paths import STRUCTURED, arrays, at, changed, inside, ranked, recent, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.child.synthesis.file_specs_plain import Hints


State = dict[str, Any]
Place = list[Any]  # the keys that lead to a specification
Pair = tuple[str, State]  # what is changed, and the state
FIRST: Final = 4  # values for an argument that are tried early
CELLS: Final = ("int", "float", "str", "row", "words")


def general(state: State, result: State, options: dict[str, list[Any]], hints: Hints) -> Iterator[Pair]:
    """One thing after the other, the likeliest first."""
    log: list[list[str]] = result.get("log", [])
    slots = arrays(state, log)
    yield from _listings(state, log, hints, "\n".join(result.get("rows", [])) + str(result.get("error")))
    yield from _contents(state, log, hints)
    yield from _ranks(state, slots[:8])
    for owner in ("arguments", "owner"):
        for name, spec in state.get(owner, {}).items():
            if spec["is"] == "settings":
                yield from settings(state, [owner, name], hints)
    yield from others(state, options, fresh=True)
    yield from _dtypes(state, log, slots[:6])
    yield from _images(state, log)
    yield from folders(state, log, hints)
    yield from _shapes(state, slots[:5], hints)
    yield from _presence(state)
    for number in (16, 24, 64):
        made = copy.deepcopy(state)
        made["n"] = number
        yield f"{number} samples", made
    yield from others(state, options, fresh=False)
    yield from _pairs_of_ranks(state, slots)


def _contents(state: State, log: list[list[str]], hints: Hints) -> Iterator[Pair]:
    """Other things in the files that were read last: other structures, cells of another kind."""
    for key in recent(state, log, *STRUCTURED)[:2]:
        for number, shape in enumerate(file_specs_plain.shapes(hints)):
            if shape != state["files"][key]["value"]:
                yield f"{key} holds shape {number}", replaced(state, ["files", key, "value"], shape)
    for key in recent(state, log, "text")[:2]:
        for kind in CELLS:
            yield f"{key} holds {kind}", changed(state, ["files", key], columns=[kind] * len(state["files"][key]["columns"]))


def _ranks(state: State, slots: list[Place]) -> Iterator[Pair]:
    for place in slots:
        entry = at(state, place)
        for rank in (1, 3, 4, 2, 0):
            if rank != len(entry["shape"]) and rank >= entry.get("rank", 0):
                yield f"{place} has {rank} axes", changed(state, place, shape=ranked(entry["shape"], rank))


def _dtypes(state: State, log: list[list[str]], slots: list[Place]) -> Iterator[Pair]:
    for place in slots:
        for dtype in ("i8", "u1", "S", "b1"):
            if dtype != at(state, place).get("dtype"):
                yield f"{place} is {dtype}", changed(state, place, dtype=dtype)
    for key in recent(state, log, *STRUCTURED)[:2]:
        for kind, other in itertools.product(("int", "float", "str", "floats"), ("str", "int", "float", "floats")):
            if kind != other:
                for inner in inside(state["files"][key]["value"], kind)[:6]:
                    yield f"{key} {inner} is {other}", changed(state, ["files", key, "value", *inner], t=other)


def _images(state: State, log: list[list[str]]) -> Iterator[Pair]:
    for key in recent(state, log, "image")[:2]:
        for mode in ("L", "RGBA"):
            yield f"{key} is {mode}", changed(state, ["files", key], mode=mode)
        for side in (64, 256):
            yield f"{key} is {side} wide", changed(state, ["files", key], size=[side, side])


def _shapes(state: State, slots: list[Place], hints: Hints) -> Iterator[Pair]:
    for place in slots:
        shape = at(state, place)["shape"]
        if len(shape) > 1:
            yield f"{place} ends with 3", changed(state, place, shape=[*shape[:-1], 3])
            yield f"{place} has samples last", changed(state, place, shape=[*shape[1:], shape[0]])
        if shape:
            yield f"{place} begins with 1", changed(state, place, shape=[1, *shape[1:]])
            for number in (64, 256, *hints.numbers[:3]):
                yield f"{place} begins with {number}", changed(state, place, shape=[number, *shape[1:]])
        for number in (32, *hints.numbers[:4]):
            for axis in range(1, len(shape)):
                yield f"{place} axis {axis} is {number}", changed(state, place, shape=[*shape[:axis], number, *shape[axis + 1 :]])


def _presence(state: State) -> Iterator[Pair]:
    """Files that are empty taken away, files that are not there made."""
    for key, spec in state["files"].items():
        if spec["kind"] == "empty":
            yield f"{key} is not there", replaced(state, ["files", key], {"kind": "absent"})
        elif spec["kind"] == "absent":
            yield f"{key} is there", replaced(state, ["files", key], {"kind": "empty"})


def _pairs_of_ranks(state: State, slots: list[Place]) -> Iterator[Pair]:
    """Two arrays changed at once."""

    def with_axes(base: State, place: Place, axes: int) -> State:
        entry = at(state, place)
        return changed(base, place, shape=ranked(entry["shape"], max(axes, entry.get("rank", 0))))

    for number, first in enumerate(slots[:3]):
        for second in slots[number + 1 : 4]:
            for one, two in itertools.product((1, 3), (1, 3)):
                yield f"{first} {one}, {second} {two}", with_axes(with_axes(state, first, one), second, two)


def _listings(state: State, log: list[list[str]], hints: Hints, said: str) -> Iterator[Pair]:
    """Names in groups of HDF5, and attributes that the row which failed speaks of."""
    for key in recent(state, log, "h5"):
        nodes = state["files"][key]["nodes"]
        for like, entry in nodes.items():
            stands = ["files", key, "nodes", like]
            if "listed" in entry:
                used = _children(state["files"][key], like)
                if used and used != entry.get("keys"):
                    yield f"{like} lists what is used", changed(state, stands, keys=used)
                words = [word for word in hints.words if re.fullmatch(r"[A-Za-z_]{1,12}", word)]
                for word in words[:6]:
                    yield f"{like} lists {word}0, {word}1", changed(state, stands, keys={"form": f"{word}{{}}", "count": "n"})
                for word in [word for word in hints.words if re.fullmatch(r"[0-9A-Za-z]+[_\-]", word)][:3]:
                    yield f"{like} lists {word}", changed(state, stands, keys={"form": word + "{}", "count": "n"})
                yield f"{like} lists 0_0, 1_0", changed(state, stands, keys={"form": "{}_0", "count": "n"})
            for name, kind in entry["attrs"].items():
                for other in file_specs_h5.ATTRIBUTES:
                    if other != kind and name in said:
                        yield f"{like}@{name} is {other}", changed(state, [*stands, "attrs"], **{name: other})


def _children(spec: Any, like: str) -> list[str]:
    """The members of a group that were asked for by name."""
    head = like.rstrip("/") + "/"
    found = [path[len(head) :] for path in spec.get("seen", []) if path.startswith(head) and "/" not in path[len(head) :] and path != head]
    return [name for name in found if name]


def settings(state: State, place: list[Any], hints: Hints, only: str = "") -> Iterator[Pair]:
    """Other values for the entries of a configuration."""
    for name, spec in reversed(list(at(state, place)["has"].items())):
        if only not in ("", name):
            continue
        for other in argument_guesses.guesses(name, "", hints)[:6]:
            if other != spec:
                made = changed(state, [*place, "has"], **{name: other})
                made["files"] = {}
                yield f"{place[-1]}.{name} is {other}", made


def folders(state: State, log: list[list[str]], hints: Hints) -> Iterator[Pair]:
    """Other names in folders."""
    for key in recent(state, log, "folder", "pattern"):
        for names in file_specs_plain.names(hints):
            if state["files"][key].get("names") != names:
                yield f"{key.strip()} holds {names}", changed(state, ["files", key], names=names, set=True)


def others(state: State, options: dict[str, list[Any]], *, fresh: bool) -> Iterator[Pair]:
    """Other arguments."""
    for owner in ("arguments", "owner"):
        for name in state.get(owner, {}):
            for place, spec in enumerate(options.get(f"{owner}.{name}", [])):
                if spec != state[owner][name] and (not fresh or place < FIRST):
                    made = replaced(state, [owner, name], spec)
                    made["files"] = {}
                    yield f"{name} is {spec}", made
