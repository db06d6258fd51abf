"""Changes of a state one thing after the other, where no message helps."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import argument_guesses, file_specs_h5, file_specs_plain
from oomlint.verify.child.synthesis.spec_paths import arrays, at, changed, fresh, given, inside, ranked, recent, replaced, structured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.verify.child.synthesis.file_specs_plain import Hints


State = dict[str, Any]
Place = list[Any]  # the keys that lead to a specification
FIRST: Final = 4  # values for an argument that are tried early
CELLS: Final = ("int", "float", "str", "row", "words")


def general(state: State, result: State, options: dict[str, list[Any]], hints: Hints) -> Iterator[State]:
    """One thing after the other, the likeliest first."""
    log: list[list[str]] = result.get("log", [])
    slots = arrays(state, log)
    yield from _listings(state, log, hints, "\n".join(result.get("rows", [])) + str(result.get("error")))
    yield from structures(state, log, hints)
    for key in recent(state, log, "text")[:2]:
        for kind in CELLS:
            yield changed(state, ["files", key], columns=[kind] * len(state["files"][key]["columns"]))
    yield from ranks(state, slots[:8], (1, 3, 4, 2, 0))
    for place, spec in given(state):
        if spec["is"] == "settings":
            yield from settings(state, place, hints)
    yield from _others(state, options, FIRST)
    yield from _dtypes(state, log, slots[:6])
    yield from _images(state, log)
    yield from folders(state, log, hints)
    yield from _shapes(state, slots[:5], hints)
    yield from _presence(state)
    for number in (16, 24, 64):
        yield {**state, "n": number}
    yield from _others(state, options, None)
    yield from _pairs_of_ranks(state, slots)


def structures(state: State, log: list[list[str]], hints: Hints) -> Iterator[State]:
    """Other structures in the files that were read last."""
    for stands, value in structured(state, log, most=2):
        yield from (replaced(state, stands, shape) for shape in file_specs_plain.shapes(hints) if shape != value)


def ranks(state: State, slots: list[Place], wanted: Iterable[int]) -> Iterator[State]:
    """Arrays with other numbers of axes, no fewer than they are subscripted with."""
    for place in slots:
        entry = at(state, place)
        for rank in wanted:
            if rank != len(entry["shape"]) and rank >= entry.get("rank", 0):
                yield changed(state, place, shape=ranked(entry["shape"], rank))


def sized(state: State, place: Place, axis: int, size: int) -> State:
    """An array with another size of one axis."""
    shape = at(state, place)["shape"]
    return changed(state, place, shape=[*shape[:axis], size, *shape[axis + 1 :]])


def _dtypes(state: State, log: list[list[str]], slots: list[Place]) -> Iterator[State]:
    for place in slots:
        for dtype in ("i8", "u1", "S", "b1"):
            if dtype != at(state, place).get("dtype"):
                yield changed(state, place, dtype=dtype)
    for stands, value in structured(state, log, most=2):
        for kind, other in itertools.product(("int", "float", "str", "floats"), ("str", "int", "float", "floats")):
            if kind != other:
                yield from (changed(state, [*stands, *inner], t=other) for inner in inside(value, kind)[:6])


def _images(state: State, log: list[list[str]]) -> Iterator[State]:
    for key in recent(state, log, "image")[:2]:
        for mode in ("L", "RGBA"):
            yield changed(state, ["files", key], mode=mode)
        for side in (64, 256):
            yield changed(state, ["files", key], size=[side, side])


def _shapes(state: State, slots: list[Place], hints: Hints) -> Iterator[State]:
    for place in slots:
        shape = at(state, place)["shape"]
        if len(shape) > 1:
            yield sized(state, place, len(shape) - 1, 3)
            yield changed(state, place, shape=[*shape[1:], shape[0]])
        if shape:
            for number in (1, 64, 256, *hints.numbers[:3]):
                yield sized(state, place, 0, number)
        for number in (32, *hints.numbers[:4]):
            for axis in range(1, len(shape)):
                yield sized(state, place, axis, number)


def _presence(state: State) -> Iterator[State]:
    """Files that are empty taken away, files that are not there made."""
    other = {"empty": "absent", "absent": "empty"}
    for key, spec in state["files"].items():
        if spec["kind"] in other:
            yield replaced(state, ["files", key], {"kind": other[spec["kind"]]})


def _pairs_of_ranks(state: State, slots: list[Place]) -> Iterator[State]:
    """Two arrays changed at once."""
    for number, first in enumerate(slots[:3]):
        for second in slots[number + 1 : 4]:
            for axes in itertools.product((1, 3), (1, 3)):
                yield with_axes(state, [first, second], axes)


def with_axes(state: State, slots: Iterable[Place], axes: Iterable[int]) -> State:
    """Several arrays with other numbers of axes."""
    for place, rank in zip(slots, axes, strict=False):
        if place[0] == "files" and place[1] not in state["files"]:
            continue  # forgotten, as a file of a like name was changed
        entry = at(state, place)
        state = changed(state, place, shape=ranked(entry["shape"], max(rank, entry.get("rank", 0))))
    return state


def _listings(state: State, log: list[list[str]], hints: Hints, said: str) -> Iterator[State]:
    """Names in groups of HDF5, and attributes that the row which failed speaks of."""
    words = [word for word in hints.words if re.fullmatch(r"[A-Za-z_]{1,12}", word)][:6]
    heads = [word for word in hints.words if re.fullmatch(r"[0-9A-Za-z]+[_\-]", word)][:3]
    for key in recent(state, log, "h5"):
        for like, entry in state["files"][key]["nodes"].items():
            stands = ["files", key, "nodes", like]
            if "listed" in entry:
                used = _children(state["files"][key], like)
                if used and used != entry.get("keys"):
                    yield changed(state, stands, keys=used)
                for form in (*(word + "{}" for word in (*words, *heads)), "{}_0"):
                    yield changed(state, stands, keys={"form": form, "count": "n"})
            for name, kind in entry["attrs"].items():
                for other in file_specs_h5.ATTRIBUTES:
                    if other != kind and name in said:
                        yield changed(state, [*stands, "attrs"], **{name: other})


def _children(spec: Any, like: str) -> list[str]:
    """The members of a group that were asked for by name."""
    head = like.rstrip("/") + "/"
    found = [path[len(head) :] for path in spec.get("seen", []) if path.startswith(head) and "/" not in path[len(head) :] and path != head]
    return [name for name in found if name]


def settings(state: State, place: Place, hints: Hints, only: str = "") -> Iterator[State]:
    """Other values for the entries of a configuration."""
    for name, spec in reversed(list(at(state, place)["has"].items())):
        for other in argument_guesses.guesses(name, "", hints)[:6] if only in ("", name) else ():
            if other != spec:
                yield {**changed(state, [*place, "has"], **{name: other}), "files": {}}


def folders(state: State, log: list[list[str]], hints: Hints) -> Iterator[State]:
    """Other names in folders."""
    for key in recent(state, log, "folder", "pattern"):
        for names in file_specs_plain.names(hints):
            if state["files"][key].get("names") != names:
                yield changed(state, ["files", key], names=names, set=True)


def _others(state: State, options: dict[str, list[Any]], most: int | None) -> Iterator[State]:
    """Other arguments."""
    for place, spec in given(state):
        for other in options.get(".".join(place), [])[:most]:
            if other != spec:
                yield fresh(state, place, other)
