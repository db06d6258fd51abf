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
from oomlint.verify.child.search.generic_mutations import general, ranks, settings, sized, with_axes
from oomlint.verify.child.synthesis import argument_specs, file_specs_plain, sizes
from oomlint.verify.child.synthesis.spec_paths import STRUCTURED, arrays, at, called, changed, fired, fresh, given, inside, ranked, recent, replaced

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.verify.child.synthesis.file_specs_plain import Hints

    Changes = Callable[["Clue", re.Match[str]], Iterator["State"]]


State = dict[str, Any]
ASKS: Final = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"})  # whether there is a file
PLAIN: Final[tuple[Any, ...]] = (True, False, None, 0, 1, 2)
LARGEST: Final = 4096  # of an axis
MODEL: Final = "state_dict|load_state_dict|parameters|named_parameters|modules|named_modules|children|named_children|zero_grad|train|eval|requires_grad_"

Move = tuple[State, bool]  # a changed state, and whether the message asks for just that


def moves(state: State, result: State, options: dict[str, list[Any]], hints: Hints, module: types.ModuleType) -> Iterator[Move]:
    """Changed states, the likeliest first."""
    error = result.get("error") or result.get("crash") or ""
    if re.search(sizes.SLOW, error):
        yield from ((made, False) for made in sizes.states(state, module))
    yield from ((made, True) for made in _exact(state, result, error))
    for made in (*_rows_say(state, result), *steered(state, result, hints, error), *_spoken(state, result, options, hints)):
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
    if re.search(
        r"for /: '(str|NoneType)'|'str' object has no attribute '(r?glob|exists|iterdir|joinpath|open|stem|parent|name|is_dir|is_file|mkdir)",
        error,
    ):
        yield from _paths(state, result)


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


def _rows_say(state: State, result: State) -> Iterator[State]:
    """What the row that failed says of the axes of arrays."""
    rows = "\n".join(result.get("rows", [])[:1])
    if match := re.search(r"(?:transpose|permute)\(.*?((?:-?\d+\s*,\s*)+-?\d+)", rows):
        yield from ranks(state, arrays(state, result.get("log", []))[:8], [match.group(1).count(",") + 1])


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


# -- what the words of an exception suggest ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clue:
    """What a failed trial leaves: the state, what happened, and the words of the exception."""

    state: State
    names: list[str]  # what the failing rows speak of
    hints: Hints
    error: str
    log: list[list[str]]  # files that were read, the latest last
    slots: list[list[Any]]  # arrays that were read, likewise
    numbers: list[int]  # in the words


def steered(state: State, result: State, hints: Hints, error: str) -> Iterator[State]:
    """What the words of an exception may mean: each row of the table that fits proposes its changes, in the order of the table."""
    log: list[list[str]] = result.get("log", [])
    numbers = [int(text) for text in re.findall(r"(?<![\w.])(\d{1,4})(?![\w.])", error.partition(": ")[2])]
    clue = Clue(state, result.get("names", []), hints, error, log, arrays(state, log), list(dict.fromkeys(numbers)))
    for pattern, changes in CHANGES:
        if match := re.search(pattern, error):
            yield from changes(clue, match)


# -- arguments -----------------------------------------------------------------------------------------------------------


def _said(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    """The exception names a word of the code: an argument may have to be that word."""
    words = [word for word in clue.hints.words if len(word) > 1 and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", clue.error)][:4]
    for name, spec in clue.state["arguments"].items() if words else ():
        places = []
        if spec["is"] == "json" or (spec["is"] == "path" and not re.search(r"path|dir|root|file|folder", name)):
            places = [["arguments", name]]
        elif spec["is"] == "settings":
            places = [["arguments", name, "has", entry] for entry in spec["has"] if entry in clue.names or re.search(rf"\b{re.escape(entry)}\b", clue.error)]
        for place, word in itertools.product(places, words):
            yield replaced(clue.state, place, {"is": "json", "value": word})


def _models(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    """Arguments that the failing rows speak of are models."""
    for place, old in called(clue.state, clue.names):
        if place[0] == "arguments" and old["is"] != "model":
            yield fresh(clue.state, place, {"is": "model"})


def _used(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    """Arguments that the failing rows speak of become what they are used as."""
    for place, spec in called(clue.state, clue.names):
        if spec["is"] != "value":
            yield fresh(clue.state, place, {"is": "value", "value": {"t": "?"}, "clay": True})


def _objects(clue: Clue, match: re.Match[str]) -> Iterator[State]:
    yield from _used(clue, match)
    for place, spec in called(clue.state, clue.names):
        if spec["is"] != "settings":
            yield fresh(clue.state, place, {"is": "settings", "has": {}})


def _arrays_by_name(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    keyed = {"t": "dict", "keys": {key: {"t": "array", "shape": ["n", 8], "dtype": "f4"} for key in clue.hints.keys[:12]}}
    for place, spec in given(clue.state) if clue.hints.keys else ():
        if spec["is"] in ("array", "tensor", "samples", "range", "texts", "path"):
            for extra in ({"tensors": True}, {}):
                yield replaced(clue.state, place, {"is": "value", "value": {**extra, **keyed}})


# -- what files and arrays hold ------------------------------------------------------------------------------------------


def _numeric(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    state, log = clue.state, clue.log
    for key in recent(state, log, "text")[:2]:
        columns = state["files"][key]["columns"]
        for kind in ("int", "float"):
            yield changed(state, ["files", key], columns=[kind] * len(columns))
            for number in range(len(columns)):
                yield changed(state, ["files", key], columns=[*columns[:number], kind, *columns[number + 1 :]])
        for mark in (",", " ", "\t"):
            if mark != state["files"][key].get("delimiter"):
                yield changed(state, ["files", key], delimiter=mark)
    for key in recent(state, log, *STRUCTURED)[:2]:
        for place in inside(state["files"][key]["value"], "str"):
            for kind in ("int", "float"):
                yield changed(state, ["files", key, "value", *place], t=kind)


def _axes(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    state, slots = clue.state, clue.slots
    for place in slots[:5]:
        yield from ranks(state, [place], (3, 2, 1, 4))
        count = len(at(state, place)["shape"])
        for number in clue.numbers:
            if 1 <= number <= LARGEST:
                for axis in (*range(1, count), *range(min(count, 1))):
                    yield sized(state, place, axis, number)
    for count in (2, 3, 4):
        for rank in (1, 3) if len(slots) >= count else ():
            yield with_axes(state, slots[:count], [rank] * count)
    for name, spec in state["arguments"].items():
        if spec["is"] == "json" and type(spec["value"]) is int:
            for number in clue.numbers:
                if number != spec["value"]:
                    yield changed(state, ["arguments", name], value=number)


def _width_of(clue: Clue, slots: list[list[Any]], width: int) -> Iterator[State]:
    """Rows of so many things."""
    state = clue.state
    for key in recent(state, clue.log, "text")[:2]:
        columns, own = state["files"][key]["columns"], state["files"][key].get("delimiter")
        made = [*columns, *(["int"] * width)][:width]
        for mark in dict.fromkeys((own or " ", ",", " ", "\t")):
            if made != columns or mark != own:
                yield changed(state, ["files", key], columns=made, delimiter=mark)
    for key in recent(state, clue.log, *STRUCTURED)[:2]:
        for of in ({"t": "int"}, {"t": "str"}, {"t": "array", "shape": ["n", 8], "dtype": "f4"}, {"t": "list", "n": "n", "of": {"t": "int"}}):
            for shape in (_list("n", _list(width, of)), _list(width, _list("n", of)), _list(width, of)):
                yield replaced(state, ["files", key, "value"], shape)
    for place in slots:
        shape = at(state, place)["shape"]
        yield changed(state, place, shape=ranked(shape, width))
        if len(shape) > 1:
            yield sized(state, place, len(shape) - 1, width)
    for place, spec in given(state):
        if spec["is"] in ("json", "range", "texts", "value"):
            yield replaced(state, place, {"is": "value", "value": _list("n", _list(width, {"t": "int"}))})


def _list(count: Any, of: Any) -> dict[str, Any]:
    return {"t": "list", "n": count, "of": of}


CHANGES: Final[tuple[tuple[str, Changes], ...]] = (
    (r"unpack \(expected (?:at least )?(\d+)", lambda clue, match: _width_of(clue, clue.slots[:4], int(match.group(1)))),
    (r"ValueError|RuntimeError|AssertionError|NotImplementedError|Exception|KeyError", _said),
    (rf"has no attribute '({MODEL})'", _models),
    (r"'(?:str|int|NoneType|float|bool|list|numpy.ndarray|TensorDataset|Tensor)' object has no attribute '(\w+)'", _objects),
    (r"cannot unpack non-iterable|object is not (subscriptable|iterable)|has no len\(\)|PathLike object, not|values to unpack", _used),
    (r"only integers, slices|ind(ices|ex) must be integers|too many indices for tensor", _arrays_by_name),
    (
        (
            r"could not convert string to float|real number is required|invalid literal for int|isnumeric|"
            r"unsupported operand type.*'str'|must be real number, not str|must be str|not 'str'|str' object cannot be interpreted"
        ),
        _numeric,
    ),
    (
        (
            r"too many ind(ices|exing)|dimension|dims?\b|shape|axis|axes|broadcast|"
            r"size of tensor|permute|transpose|reshape|stack expects|multiplied|[0-5]D|ndim|rank"
        ),
        _axes,
    ),
)
