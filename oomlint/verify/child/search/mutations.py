"""Changes of a state that may bring a trial further: first what the message of its exception asks for, then one thing after the other."""

from __future__ import annotations

import ast
import copy
import itertools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading import import_names
from oomlint.verify.child.search.error_mutations import steered
from oomlint.verify.child.search.generic_mutations import general, ranks, settings
from oomlint.verify.child.synthesis import argument_specs, file_specs_plain, sizes
from oomlint.verify.child.synthesis.spec_paths import STRUCTURED, arrays, at, below, called, changed, fired, fresh, given, inside, recent, replaced, structured

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Sequence

    from oomlint.verify.child.synthesis.file_specs_plain import Hints


State = dict[str, Any]
ASKS: Final = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"})  # whether there is a file
PLAIN: Final[tuple[Any, ...]] = (True, False, None, 0, 1, 2)

Move = tuple[State, bool]  # a changed state, and whether the message asks for just that


def moves(state: State, result: State, options: dict[str, list[Any]], hints: Hints, module: types.ModuleType) -> Iterator[Move]:
    """Changed states, the likeliest first."""
    error = result.get("error") or result.get("crash") or ""
    if re.search(sizes.SLOW, error):
        yield from ((made, False) for made in sizes.states(state, module))
    yield from ((made, True) for made in _exact(state, result, error))
    for made in (*_rows_say(state, result, hints, error), *steered(state, result, hints, error), *_spoken(state, result, options, hints)):
        yield made, False
    yield from ((made, False) for made in general(state, result, options, hints))


def _exact(state: State, result: State, error: str) -> Iterator[State]:
    """What the message names outright."""
    log: list[list[str]] = result.get("log", [])
    if result.get("settled"):
        yield copy.deepcopy(state)  # what was asked for last is a leaf now
    for whole in (False, True):  # what was used is as it was used; then all that was not known
        if fired(made := copy.deepcopy(state), whole=whole):
            yield made
    for path in result.get("outside", [])[-2:]:
        yield from _outside(state, path, result)
    if match := re.search(r"KeyError: [\"']+([^'\"]+?)( is not a file in the archive)?[\"']", error):
        yield from _key(state, log, match.group(1))
    if re.search(r"KeyError: (-?\d+)$", error):
        for stands, value in structured(state, log, "npy"):
            for place in inside(value, "map"):
                yield changed(state, [*stands, *place], whole=True)
    if match := re.search(r"KeyError: '(\w+)'$", error):
        for key in recent(state, log, "text")[:3]:
            yield changed(state, ["files", key], columns=[match.group(1), *state["files"][key]["columns"][1:]])
    if match := re.search(r"(\S+)::(\S+) used as group and dataset", error):
        yield changed(state, ["files", match.group(1), "nodes", match.group(2)], **{"is": "group"})
    if re.search(
        r"for /: '(str|NoneType)'|'str' object has no attribute '(r?glob|exists|iterdir|joinpath|open|stem|parent|name|is_dir|is_file|mkdir)",
        error,
    ):
        yield from _paths(state, result)
    if "Ran out of input" in error:
        for key in recent(state, log, "pickle")[:1]:
            yield changed(state, ["files", key], objects=state["files"][key].get("objects", 1) + 1)


def _paths(state: State, result: State) -> Iterator[State]:
    """Paths as objects instead of text: those that the row speaks of, else all."""
    for only in (True, False):
        made = copy.deepcopy(state)
        texts = [spec for (_, name), spec in given(made) if spec["is"] == "path" and not spec.get("list") and (not only or name in result.get("names", []))]
        for spec in texts:
            spec["is"] = "pathlib"
        if texts:
            yield made


def _outside(state: State, path: str, result: State) -> Iterator[State]:
    """A path of the author's machine: where a global or an argument holds it, a path of ours."""
    for name, value in result.get("paths", {}).items():
        if path.startswith(value.rstrip("/")):
            made = copy.deepcopy(state)
            end = value.rpartition("/")[2]
            made.setdefault("globals", {})[name] = f"{file_specs_plain.FOLDER}/{name.rpartition('.')[2]}" + (f".{end.rpartition('.')[2]}" if "." in end else "")
            yield made
    for place, spec in given(state):
        if spec["is"] in ("path", "pathlib") and not spec.get("whole") and f"{file_specs_plain.FOLDER}/{spec['name']}" in path:
            yield changed(state, place, whole=True)


def _key(state: State, log: list[list[str]], name: str) -> Iterator[State]:
    leaf = file_specs_plain.leaf(name)
    for key in recent(state, log, "npz", *STRUCTURED, "text", "npy"):
        spec = state["files"][key]
        if spec["kind"] == "npz":
            if name not in spec["arrays"]:
                yield changed(state, ["files", key, "arrays"], **{name: {"shape": ["n", 8], "dtype": "f4"}})
        elif spec["kind"] == "text":
            if spec.get("header") is not None and name not in spec["header"]:
                yield changed(state, ["files", key], header=[*spec["header"], name])
        elif "value" in spec:
            for place in [*inside(spec["value"], "dict"), *inside(spec["value"], "map")]:
                stands = ["files", key, "value", *place]
                here = at(state, stands)
                if here["t"] == "dict" and name not in here["keys"]:
                    first: Any = leaf if place or len(spec["value"]["keys"]) == 0 else next(iter(here["keys"].values()))
                    for item in (first, {"t": "list", "n": "n", "of": leaf}, {"t": "map", "n": "n", "of": {"t": "int"}}):
                        yield changed(state, [*stands, "keys"], **{name: item})
                elif here["t"] == "map":
                    yield replaced(state, stands, {"t": "dict", "keys": {name: here["of"]}})
    for stands, spec in given(state):
        if spec["is"] == "value":
            for place in inside(spec["value"], "dict"):
                yield changed(state, [*stands, "value", *place, "keys"], **{name: leaf})
        elif spec["is"] == "json" and isinstance(spec["value"], (dict, str)):
            yield replaced(state, stands, {"is": "settings", "has": {}})


def _rows_say(state: State, result: State, hints: Hints, error: str) -> Iterator[State]:
    """What the row that failed says of the data."""
    log: list[list[str]] = result.get("log", [])
    rows = "\n".join(result.get("rows", [])[:1])
    if "object is not callable" in error:
        yield from _functions(state, result.get("names", []))
    if re.search(r"IndexError|unpack|KeyError: ''", error) and (marks := re.search(r"split\(['\"]([^'\"]+)['\"]", rows)):
        yield from _parted(state, log, marks.group(1))
    if match := re.search(r"(?:transpose|permute)\(.*?((?:-?\d+\s*,\s*)+-?\d+)", rows):
        yield from ranks(state, arrays(state, log)[:8], [match.group(1).count(",") + 1])
    if not re.search(
        r"has no attribute|subscriptable|iterable|indices must|not callable|unhashable|KeyError|"
        r"unpack|concatenate|unsupported operand|index out of range|must be|expected|argument",
        error,
    ):
        return
    said = re.findall(r"[\"'](\w+)[\"']", rows)
    keyed = {"t": "dict", "keys": {key: file_specs_plain.leaf(key) for key in hints.keys[:16] if key not in said}}
    arrayed = {"t": "array", "shape": [8], "dtype": "f4"}
    kinds: list[Any] = [
        {"t": "map", "n": "n", "of": {"t": "int"}},
        {"t": "list", "n": "n", "of": keyed},
        {"t": "map", "n": "n", "of": {"t": "list", "n": 4, "of": keyed}},
        {"t": "map", "n": "n", "of": keyed},
        keyed,
        {"t": "int"},
        {"t": "str"},
        {"t": "list", "n": "n", "of": {"t": "str"}},
        {"t": "list", "n": "n", "of": {"t": "int"}},
        {"t": "list", "n": "n", "of": {"t": "list", "n": 4, "of": {"t": "int"}}},
        {"t": "list", "n": "n", "of": arrayed},
    ]
    arguments = (([*stands, "value"], spec["value"]) for stands, spec in given(state) if spec["is"] == "value")
    for stands, value in (*structured(state, log, "npy", most=3), *arguments):
        for place, kind in itertools.product(below(value, said), kinds):
            yield replaced(state, [*stands, *place], kind)


def _functions(state: State, spoken: list[str]) -> Iterator[State]:
    """Arguments that are called."""
    for place, spec in given(state):
        if spec["is"] in (("value", "path", "json", "array") if place[1] in spoken else ("value",)) and spec != {"is": "json", "value": None}:
            for kind in ("same", "totensor", "tokenizer"):
                yield fresh(state, place, {"is": kind})


def _parted(state: State, log: list[list[str]], mark: str) -> Iterator[State]:
    """Texts that can be split at a mark."""
    form = mark.join(("a", "b", "c", "id{}"))
    for key in recent(state, log, "text"):
        columns = state["files"][key]["columns"]
        for made in (form, f"a{mark}{{}}"):
            yield changed(state, ["files", key], columns=[made, *columns[1:]])
    for stands, value in structured(state, log):
        for place in inside(value, "str"):
            yield changed(state, [*stands, *place], form=form)


def _spoken(state: State, result: State, options: dict[str, list[Any]], hints: Hints) -> Iterator[State]:
    """Other values for the arguments that the rows which failed speak of."""
    nothing = "None" in (result.get("error") or "")
    for name in result.get("names", []):
        for owner in ("arguments", "owner"):
            for place, spec in called({owner: state.get(owner, {})}, [name]):
                if nothing or spec["is"] != "default":
                    yield from (fresh(state, place, other) for other in options.get(".".join(place), [])[:7] if other != spec)
            for other, spec in state.get(owner, {}).items():
                if spec["is"] == "settings" and name in spec["has"]:
                    yield from settings(state, [owner, other], hints, name)


# -- so that a row behind a condition runs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a row stands behind."""

    names: frozenset[str]  # that it speaks of, attributes among them
    constants: tuple[Any, ...]  # that it compares with


def guards(path: str, rows: Sequence[int]) -> list[Guard]:
    """The conditions around some rows of a file, the outermost first."""
    if not rows:
        return []
    try:
        tree = ast.parse(import_names.text(path))
    except SyntaxError:
        return []
    found: list[Guard] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any(node.lineno <= row <= (node.end_lineno or row) for row in rows):
            inner = list(ast.walk(node.test))
            spoken = {item.id for item in inner if isinstance(item, ast.Name)} | {item.attr for item in inner if isinstance(item, ast.Attribute)}
            constants = [item.value for item in inner if isinstance(item, ast.Constant) and isinstance(item.value, str | int | float | None)]
            found.append(Guard(frozenset(spoken | {name for constant in constants if isinstance(constant, str) for name in [constant]}), tuple(constants)))
    return found


def reaching(state: State, conditions: list[Guard]) -> Iterator[State]:
    """States in which what a condition speaks of is what it compares with."""
    for guard in conditions:
        if guard.names & ASKS:
            yield from _without(state)
        for place, spec in given(state):
            if {place[1], place[1].strip("_")} & guard.names:
                yield from _others(state, place, guard)
            if spec["is"] == "settings":
                for entry in [entry for entry in spec["has"] if entry in guard.names]:
                    yield from _others(state, [*place, "has", entry], guard)


def _others(state: State, place: list[Any], guard: Guard) -> Iterator[State]:
    name = place[-1]
    ends = [constant for constant in guard.constants if isinstance(constant, str) and constant.startswith(".") and len(constant) > 1]
    for value in (*guard.constants, *PLAIN):
        yield fresh(state, place, argument_specs.path_spec(name, value) if value in ends else {"is": "json", "value": value})
    yield fresh(state, place, argument_specs.path_spec(name))


def _without(state: State) -> Iterator[State]:
    """States without one of the files, what was asked for last first: that is what the program itself makes."""
    for key, spec in reversed(list(state["files"].items())):
        if spec["kind"] != "absent":
            folder = {os.path.dirname(key): {"kind": "empty"}} if os.path.dirname(key) else {}
            yield {**state, "files": {**folder, **state["files"], key: {"kind": "absent"}}}
