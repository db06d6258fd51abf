"""Where in a state a specification stands, and changed copies of a state."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import file_specs_h5

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

State = dict[str, Any]
STRUCTURED: Final = ("json", "pickle", "torch", "jsonl")


def at(state: State, place: list[Any]) -> Any:
    """The specification at a place."""
    for key in place:
        state = state[key]
    return state


def given(state: State) -> Iterator[tuple[list[Any], Any]]:
    """Every argument, of the object that a method belongs to as well: where it stands, and its specification."""
    for owner in ("arguments", "owner"):
        for name, spec in state.get(owner, {}).items():
            yield [owner, name], spec


def called(state: State, names: Iterable[str]) -> Iterator[tuple[list[Any], Any]]:
    """The arguments with some names, name by name."""
    return (argument for name in names for argument in given(state) if argument[0][1] == name)


def changed(state: State, place: list[Any], **new: Any) -> State:
    """A copy with some entries of one specification changed. Files of like names follow."""
    made = copy.deepcopy(state)
    at(made, place).update(copy.deepcopy(new))
    return _forget(made, place)


def replaced(state: State, place: list[Any], new: Any) -> State:
    """A copy with one specification replaced."""
    made = copy.deepcopy(state)
    if place[0] == "files" and place[2:3] == ["value"]:
        made["files"][place[1]].pop("clay", None)
    at(made, place[:-1])[place[-1]] = copy.deepcopy(new)
    return _forget(made, place)


def fresh(state: State, place: list[Any], spec: Any) -> State:
    """Another argument, with no files: they may be others."""
    made = replaced(state, place, spec)
    made["files"] = {}
    return made


def _forget(made: State, place: list[Any]) -> State:
    if place[0] == "files" and len(place) > 1:
        like = re.sub(r"\d+", "#", place[1])
        for other in list(made["files"]):
            if other != place[1] and re.sub(r"\d+", "#", other) == like:
                del made["files"][other]
        if made["files"][place[1]]["kind"] in ("folder", "pattern"):
            head = re.split(r"[^/]*[*?\[]", place[1])[0].rstrip("/")
            for other in list(made["files"]):
                if other != place[1] and other.startswith(head + "/"):
                    del made["files"][other]
    return made


def arrays(state: State, log: list[list[str]]) -> list[list[Any]]:
    """Every array of a state, the latest used first."""
    found: list[list[Any]] = []
    likes: set[str] = set()
    known = [[key, ""] for key in state["files"]]
    for key, node in [*reversed(log), *known]:
        spec = state["files"].get(key)
        like = f"{re.sub(r'[0-9]+', '#', key)}::{node}"
        if spec is None or like in likes:
            continue
        likes.add(like)
        if spec["kind"] == "npy" and "value" not in spec:
            found.append(["files", key])
        elif spec["kind"] == "npz":
            found.extend(["files", key, "arrays", name] for name in reversed(spec["arrays"]))
        elif spec["kind"] == "h5" and node and node in spec["nodes"] and spec["nodes"][node]["is"] in ("dataset", "?") and node != "/":
            found.append(["files", key, "nodes", node])
        elif "value" in spec:
            found.extend(["files", key, "value", *inner] for inner in inside(spec["value"], "array"))
    for place, spec in given(state):
        if spec["is"] in ("array", "tensor"):
            found.append(place)
        elif spec["is"] == "value":
            found.extend([*place, "value", *inner] for inner in inside(spec["value"], "array"))
    return found


def parts(value: Any) -> list[tuple[list[Any], str, Any]]:
    """What a value is made of: where in it each part stands, the name that it has there, and its specification."""
    match value["t"]:
        case "list" | "map":
            return [(["of"], "", value["of"])]
        case "row":
            return [(["of", place], name, value["of"][place]) for place, name in enumerate(value["names"])]
        case "dict":
            return [(["keys", name], name, item) for name, item in value["keys"].items()]
        case _:
            return []


def inside(value: Any, kind: str) -> list[list[Any]]:
    """Where in a value something of a kind stands."""
    return [[]] if value["t"] == kind else [[*where, *rest] for where, _, item in parts(value) for rest in inside(item, kind)]


def below(value: Any, names: Collection[str]) -> list[list[Any]]:
    """Where in a value something stands under one of some names."""
    direct = [where for where, name, _ in parts(value) if name in names]
    return direct + [[*where, *rest] for where, _, item in parts(value) for rest in below(item, names)]


def structured(state: State, log: list[list[str]], *kinds: str, most: int | None = None) -> Iterator[tuple[list[Any], Any]]:
    """The structured values in the files that were read last, and where they stand."""
    for key in recent(state, log, *STRUCTURED, *kinds)[:most]:
        if "value" in state["files"][key]:
            yield ["files", key, "value"], state["files"][key]["value"]


def recent(state: State, log: list[list[str]], *kinds: str) -> list[str]:
    """Files of some kinds, the latest used first; one of each likeness."""
    found: list[str] = []
    likes: set[str] = set()
    for key, _ in reversed(log):
        like = re.sub(r"\d+", "#", key)
        if like not in likes and key in state["files"] and state["files"][key]["kind"] in kinds:
            likes.add(like)
            found.append(key)
    return found


def ranked(shape: list[Any], rank: int) -> list[Any]:
    """A shape with so many axes."""
    return [*shape[:rank], *([8] * (rank - len(shape)))] if shape else ["n", *([8] * (rank - 1))][:rank]


def fired(state: State, *, whole: bool = True) -> bool:
    """Make what is clay what it was used as. Gives whether there was any. What was not used at all stays clay unless the state is ``whole``."""
    waiting: list[Any] = [*state["files"].values(), *(spec for _, spec in given(state))]
    soft = False
    while waiting:
        spec = waiting.pop()
        if whole and spec.get("clay") and spec.get("kind") == "torch" and spec["value"]["t"] == "?":
            spec["value"] = {"t": "map", "n": "n", "of": {"t": "array", "shape": [64], "dtype": "f4"}}
        if whole or not spec.get("clay") or spec["value"]["t"] != "?":
            soft |= bool(spec.pop("clay", False))
        waiting += spec.get("has", {}).values()
    return soft


def closed(state: State) -> bool:
    """Let the listings of groups hold all that was asked for by name. Gives whether anything is new."""
    new = False
    for spec in state["files"].values():
        for like, entry in list(spec["nodes"].items()) if spec["kind"] == "h5" else []:
            if more := file_specs_h5.unlisted(spec, like, state["n"]):
                keys = entry.get("keys", [])
                entry["keys"] = [*keys, *more] if isinstance(keys, list) else {**keys, "more": [*keys.get("more", []), *more]}
                new = True
    return new
