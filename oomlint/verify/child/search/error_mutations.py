"""Changes of a state that the words of an exception suggest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.search.generic_mutations import folders
from oomlint.verify.child.synthesis import file_specs, file_specs_lmdb, file_specs_plain
from oomlint.verify.child.synthesis.spec_paths import STRUCTURED, arrays, at, changed, fresh, inside, ranked, recent, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.child.synthesis.file_specs_plain import Hints


State = dict[str, Any]
LARGEST: Final = 4096  # of an axis
Pair = tuple[str, State]  # what is changed, and the state
MODEL: Final = "state_dict|load_state_dict|parameters|named_parameters|modules|named_modules|children|named_children|zero_grad|train|eval|requires_grad_"
PATHS: Final = (
    "exists|is_file|is_dir|iterdir|glob|rglob|joinpath|stem|suffix|parent|parents|read_text|read_bytes|with_suffix|relative_to|resolve|as_posix|mkdir"
)


@dataclass(frozen=True, slots=True)
class Clue:
    """What a failed trial leaves: the state, what happened, and the words of the exception."""

    state: State
    result: State
    hints: Hints
    error: str
    log: list[list[str]]  # files that were read, the latest last
    slots: list[list[Any]]  # arrays that were read, likewise
    numbers: list[int]  # in the words

    @property
    def names(self) -> list[str]:
        """What the failing rows speak of."""
        names: list[str] = self.result.get("names", [])
        return names

    def arguments(self, *, but: str) -> list[str]:
        """Arguments that the failing rows speak of and that are of another kind."""
        given = self.state["arguments"]
        return [name for name in self.names if name in given and given[name]["is"] != but]


def steered(state: State, result: State, hints: Hints, error: str) -> Iterator[Pair]:
    """What the words of an exception may mean: each row of the table that fits proposes its changes, in the order of the table."""
    log: list[list[str]] = result.get("log", [])
    numbers = [int(text) for text in re.findall(r"(?<![\w.])(\d{1,4})(?![\w.])", error.partition(": ")[2])]
    clue = Clue(state, result, hints, error, log, arrays(state, log), numbers)
    yield from file_specs_lmdb.changes(state, log)
    for pattern, changes in CHANGES:
        if match := pattern.search(error):
            yield from changes(clue, match)


# -- arguments -----------------------------------------------------------------------------------------------------------


def _unpacked(clue: Clue, match: re.Match[str]) -> Iterator[Pair]:
    yield from width_of(clue.state, clue.log, clue.slots, int(match.group(1)))


def _said(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    """The exception names a word of the code: an argument may have to be that word."""
    words = [word for word in clue.hints.words if len(word) > 1 and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", clue.error)][:4]
    for name, spec in clue.state["arguments"].items() if words else ():
        if spec["is"] == "json" or (spec["is"] == "path" and not re.search(r"path|dir|root|file|folder", name)):
            for word in words:
                yield f"{name} is {word!r}", replaced(clue.state, ["arguments", name], {"is": "json", "value": word})
        elif spec["is"] == "settings":
            for entry in [entry for entry in spec["has"] if entry in clue.names or re.search(rf"\b{re.escape(entry)}\b", clue.error)]:
                for word in words:
                    yield f"{name}.{entry} is {word!r}", replaced(clue.state, ["arguments", name, "has", entry], {"is": "json", "value": word})


def _paths(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for name in clue.arguments(but="pathlib"):
        yield f"{name} is a path", fresh(clue.state, ["arguments", name], {"is": "pathlib", "name": name, "end": ""})


def _models(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for name in clue.arguments(but="model"):
        yield f"{name} is a model", fresh(clue.state, ["arguments", name], {"is": "model"})


def _objects(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    yield from _soft(clue.state, clue.result)
    for name in clue.names:
        for owner in ("arguments", "owner"):
            if name in clue.state.get(owner, {}) and clue.state[owner][name]["is"] != "settings":
                yield f"{name} is an object", fresh(clue.state, [owner, name], {"is": "settings", "has": {}})


def _used(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    yield from _soft(clue.state, clue.result)


def _arrays_by_name(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    keyed = {"t": "dict", "keys": {key: {"t": "array", "shape": ["n", 8], "dtype": "f4"} for key in clue.hints.keys[:12]}}
    for owner in ("arguments", "owner"):
        for name, spec in clue.state.get(owner, {}).items():
            if spec["is"] in ("array", "tensor", "samples", "range", "texts", "path") and clue.hints.keys:
                for extra in ({"tensors": True}, {}):
                    yield f"{name} holds arrays by name", replaced(clue.state, [owner, name], {"is": "value", "value": {**extra, **keyed}})


# -- what files and arrays hold ------------------------------------------------------------------------------------------


def _numeric(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    state, log = clue.state, clue.log
    for key in recent(state, log, "text")[:2]:
        columns = state["files"][key]["columns"]
        for kind in ("int", "float"):
            yield f"{key} holds {kind}", changed(state, ["files", key], columns=[kind] * len(columns))
            for number in range(len(columns)):
                yield f"{key} column {number} is {kind}", changed(state, ["files", key], columns=[*columns[:number], kind, *columns[number + 1 :]])
        for mark in (",", " ", "\t"):
            if mark != state["files"][key].get("delimiter"):
                yield f"{key} is parted by {mark!r}", changed(state, ["files", key], delimiter=mark)
    for key in recent(state, log, *STRUCTURED)[:2]:
        for place in inside(state["files"][key]["value"], "str"):
            for kind in ("int", "float"):
                yield f"{key} {place} is {kind}", changed(state, ["files", key, "value", *place], t=kind)


def _structures(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for key in recent(clue.state, clue.log, *STRUCTURED)[:2]:
        for number, shape in enumerate(file_specs_plain.shapes(clue.hints)):
            yield f"{key} holds shape {number}", replaced(clue.state, ["files", key, "value"], shape)


def _bytes(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for place in clue.slots[:4]:
        yield f"{place} holds bytes", changed(clue.state, place, dtype="S", shape=["n"])


def _whole_numbers(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for place in clue.slots[:6]:
        yield f"{place} holds whole numbers", changed(clue.state, place, dtype="i8")
        yield f"{place} holds a row of whole numbers", changed(clue.state, place, dtype="i8", shape=["n"])


def _fractions(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for place in clue.slots[:6]:
        yield f"{place} holds fractions", changed(clue.state, place, dtype="f4")


def _axes(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    state, slots = clue.state, clue.slots
    for place in slots[:5]:
        shape = at(state, place)["shape"]
        for rank in (3, 2, 1, 4):
            if rank != len(shape) and rank >= at(state, place).get("rank", 0):
                yield f"{place} has {rank} axes", changed(state, place, shape=ranked(shape, rank))
        for number in dict.fromkeys(clue.numbers):
            if 1 <= number <= LARGEST:
                for axis in range(1, len(shape)):
                    yield f"{place} axis {axis} is {number}", changed(state, place, shape=[*shape[:axis], number, *shape[axis + 1 :]])
                if shape:
                    yield f"{place} begins with {number}", changed(state, place, shape=[number, *shape[1:]])
    for count in (2, 3, 4):
        for rank in (1, 3) if len(slots) >= count else ():
            made = state
            for place in slots[:count]:
                made = changed(made, place, shape=ranked(at(made, place)["shape"], max(rank, at(made, place).get("rank", 0))))
            yield f"the last {count} arrays have {rank} axes", made
    for name, spec in state["arguments"].items():
        if spec["is"] == "json" and isinstance(spec["value"], int) and not isinstance(spec["value"], bool):
            for number in dict.fromkeys(clue.numbers):
                if number != spec["value"]:
                    yield f"{name} is {number}", changed(state, ["arguments", name], value=number)


def _longer(clue: Clue, match: re.Match[str]) -> Iterator[Pair]:
    wanted = int(match.group(1)) + 1
    for place in clue.slots[:5]:
        shape = at(clue.state, place)["shape"]
        for axis in range(1, len(shape)):
            if isinstance(shape[axis], int) and shape[axis] < wanted:
                yield f"{place} axis {axis} is {wanted}", changed(clue.state, place, shape=[*shape[:axis], wanted, *shape[axis + 1 :]])
        if shape and wanted > clue.state["n"]:
            yield f"{place} begins with {wanted * 2}", changed(clue.state, place, shape=[wanted * 2, *shape[1:]])


def _wider(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    yield from width_of(clue.state, clue.log, [], 2)
    yield from width_of(clue.state, clue.log, [], 4)


def _archives(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    for key in recent(clue.state, clue.log, "npy")[:2]:
        yield f"{key} is an archive of arrays", replaced(clue.state, ["files", key], file_specs.default("npz", clue.hints, key))
        for number, shape in enumerate(file_specs_plain.shapes(clue.hints)[:8]):
            yield f"{key} holds an object of shape {number}", replaced(clue.state, ["files", key], {"kind": "npy", "value": shape})


def _kinds(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    files = clue.state["files"]
    for key in [key for key, _ in reversed(clue.log) if key in files][:2]:
        for kind in ("json", "pickle", "torch", "npy", "text", "npz", "image", "folder", "jsonl"):
            if kind != files[key]["kind"]:
                yield f"{key} is of kind {kind}", replaced(clue.state, ["files", key], file_specs.default(kind, clue.hints, key))


def _folders(clue: Clue, _match: re.Match[str]) -> Iterator[Pair]:
    yield from folders(clue.state, clue.log, clue.hints)


def _soft(state: State, result: State) -> Iterator[Pair]:
    """Arguments that the failing rows speak of become what they are used as."""
    for name in result.get("names", []):
        for owner in ("arguments", "owner"):
            if name in state.get(owner, {}) and state[owner][name]["is"] != "value":
                yield f"{name} is what it is used as", fresh(state, [owner, name], {"is": "value", "value": {"t": "?"}, "clay": True})


def width_of(state: State, log: list[list[str]], slots: list[list[Any]], width: int) -> Iterator[Pair]:
    """Rows of so many things."""
    for key in recent(state, log, "text")[:2]:
        columns = state["files"][key]["columns"]
        for mark in dict.fromkeys((state["files"][key].get("delimiter", " "), ",", " ", "\t")):
            made = [*columns, *(["int"] * width)][:width]
            if made != columns or mark != state["files"][key].get("delimiter"):
                yield f"{key} has {width} columns parted by {mark!r}", changed(state, ["files", key], columns=made, delimiter=mark)
    for key in recent(state, log, *STRUCTURED)[:2]:
        for of in ({"t": "int"}, {"t": "str"}, {"t": "array", "shape": ["n", 8], "dtype": "f4"}, {"t": "list", "n": "n", "of": {"t": "int"}}):
            yield f"{key} holds rows of {width}", replaced(state, ["files", key, "value"], {"t": "list", "n": "n", "of": {"t": "list", "n": width, "of": of}})
            yield f"{key} holds {width} things", replaced(state, ["files", key, "value"], {"t": "list", "n": width, "of": {"t": "list", "n": "n", "of": of}})
            yield f"{key} holds {width} things of that kind", replaced(state, ["files", key, "value"], {"t": "list", "n": width, "of": of})
    for place in slots[:4]:
        shape = at(state, place)["shape"]
        yield f"{place} has {width} axes", changed(state, place, shape=ranked(shape, width))
        if len(shape) > 1:
            yield f"{place} ends with {width}", changed(state, place, shape=[*shape[:-1], width])
    for owner in ("arguments", "owner"):
        for name, spec in state.get(owner, {}).items():
            if spec["is"] in ("json", "range", "texts", "value"):
                rows = {"t": "list", "n": "n", "of": {"t": "list", "n": width, "of": {"t": "int"}}}
                yield f"{name} holds rows of {width}", replaced(state, [owner, name], {"is": "value", "value": rows})


CHANGES: Final = tuple(
    (re.compile(pattern), changes)
    for pattern, changes in (
        (r"unpack \(expected (?:at least )?(\d+)", _unpacked),
        (r"ValueError|RuntimeError|AssertionError|NotImplementedError|Exception|KeyError", _said),
        (rf"has no attribute '({PATHS})'", _paths),
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
                r"unhashable type: '(list|dict)|(list|string|tuple) ind(ices|ex) must be|object is not (subscriptable|iterable|callable)|"
                r"has no attribute '(items|keys|values|append|get|split|strip|shape|numpy|size|lower|index|iloc|dim|astype|tolist)|not a mapping"
            ),
            _structures,
        ),
        (r"(?i)str|bytes|concatenat|decode|startswith|endswith|replace|split|unhashable|lower|strip|encode|PathLike|join", _bytes),
        (
            (
                r"expected scalar type Long|must be of integer|only integer|one of.*integer|tensors used as indices|Expected .*(Long|Int)|"
                r"LongTensor|'numpy.float|float object|integer argument|'float' object|cannot safely cast|bincount|truth value"
            ),
            _whole_numbers,
        ),
        (r"expected scalar type Float|can only be.*float|floating point|mean\(\): could not infer", _fractions),
        (
            (
                r"too many ind(ices|exing)|dimension|dims?\b|shape|axis|axes|broadcast|"
                r"size of tensor|permute|transpose|reshape|stack expects|multiplied|[0-5]D|ndim|rank"
            ),
            _axes,
        ),
        (r"ndex (\d+)\)? (?:is )?out of (?:bounds|range)", _longer),
        (r"list index out of range|IndexError", _wider),
        (
            (
                r"dictionary update|only integers, slices|has no attribute '(item|files|keys|items|values|get)'|"
                r"unhashable|iteration over a 0-d|can only convert an array of size 1"
            ),
            _archives,
        ),
        (
            (
                r"Expecting value|Unpickling|pickle|BadZipFile|magic|codec can't decode|UnicodeDecode|EOFError|"
                r"cannot identify|invalid load key|NotADirectory|IsADirectory|RuntimeError: PytorchStream"
            ),
            _kinds,
        ),
        (
            r"empty|length 0|len\(\)|[Ff]ound 0|\b0 (images|files|samples|items)|num_samples=0|no items|StopIteration|No .*(found|files)|ZeroDivision|positive",
            _folders,
        ),
    )
)
