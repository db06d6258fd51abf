"""Changes of a state that the words of an exception suggest."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.search.generic_mutations import folders, ranks, sized, structures, with_axes
from oomlint.verify.child.synthesis import argument_guesses, file_specs, file_specs_lmdb, file_specs_plain
from oomlint.verify.child.synthesis.spec_paths import arrays, at, called, changed, fresh, given, inside, ranked, recent, replaced, structured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.file_specs_plain import Hints

    Changes = Callable[["Clue", re.Match[str]], Iterator["State"]]


State = dict[str, Any]
LARGEST: Final = 4096  # of an axis
MODEL: Final = "state_dict|load_state_dict|parameters|named_parameters|modules|named_modules|children|named_children|zero_grad|train|eval|requires_grad_"
PATHS: Final = (
    "exists|is_file|is_dir|iterdir|glob|rglob|joinpath|stem|suffix|parent|parents|read_text|read_bytes|with_suffix|relative_to|resolve|as_posix|mkdir"
)


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
    yield from file_specs_lmdb.changes(state, log)
    for pattern, changes in CHANGES:
        if match := pattern.search(error):
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


def _become(*specs: dict[str, Any], owners: tuple[str, ...] = ("arguments", "owner")) -> Changes:
    """Arguments that the failing rows speak of are of another kind."""

    def change(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
        for spec, (place, old) in itertools.product(specs, called(clue.state, clue.names)):
            if place[0] in owners and old["is"] != spec["is"]:
                yield fresh(clue.state, place, {**spec, "name": place[1]} if "end" in spec else spec)

    return change


_used: Final = _become(argument_guesses.SOFT)
_objects: Final = _become(argument_guesses.SOFT, {"is": "settings", "has": {}})


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
    for stands, value in structured(state, log, most=2):
        for place, kind in itertools.product(inside(value, "str"), ("int", "float")):
            yield changed(state, [*stands, *place], t=kind)


def _arrays(most: int, *forms: dict[str, Any]) -> Changes:
    """The arrays that were read last hold something else."""

    def change(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
        for place, form in itertools.product(clue.slots[:most], forms):
            yield changed(clue.state, place, **form)

    return change


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


def _longer(clue: Clue, match: re.Match[str]) -> Iterator[State]:
    wanted = int(match.group(1)) + 1
    for place in clue.slots[:5]:
        shape = at(clue.state, place)["shape"]
        for axis in range(1, len(shape)):
            if isinstance(shape[axis], int) and shape[axis] < wanted:
                yield sized(clue.state, place, axis, wanted)
        if shape and wanted > clue.state["n"]:
            yield sized(clue.state, place, 0, wanted * 2)


def _archives(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    for key in recent(clue.state, clue.log, "npy")[:2]:
        yield replaced(clue.state, ["files", key], file_specs.default("npz", clue.hints, key))
        for shape in file_specs_plain.shapes(clue.hints)[:8]:
            yield replaced(clue.state, ["files", key], {"kind": "npy", "value": shape})


def _kinds(clue: Clue, _match: re.Match[str]) -> Iterator[State]:
    files = clue.state["files"]
    for key in [key for key, _ in reversed(clue.log) if key in files][:2]:
        for kind in ("json", "pickle", "torch", "npy", "text", "npz", "image", "folder", "jsonl"):
            if kind != files[key]["kind"]:
                yield replaced(clue.state, ["files", key], file_specs.default(kind, clue.hints, key))


def _width_of(clue: Clue, slots: list[list[Any]], width: int) -> Iterator[State]:
    """Rows of so many things."""
    state = clue.state
    for key in recent(state, clue.log, "text")[:2]:
        columns, own = state["files"][key]["columns"], state["files"][key].get("delimiter")
        made = [*columns, *(["int"] * width)][:width]
        for mark in dict.fromkeys((own or " ", ",", " ", "\t")):
            if made != columns or mark != own:
                yield changed(state, ["files", key], columns=made, delimiter=mark)
    for stands, _ in structured(state, clue.log, most=2):
        for of in ({"t": "int"}, {"t": "str"}, {"t": "array", "shape": ["n", 8], "dtype": "f4"}, {"t": "list", "n": "n", "of": {"t": "int"}}):
            for shape in (_list("n", _list(width, of)), _list(width, _list("n", of)), _list(width, of)):
                yield replaced(state, stands, shape)
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


CHANGES: Final[tuple[tuple[re.Pattern[str], Changes], ...]] = tuple(
    (re.compile(pattern), changes)
    for pattern, changes in (
        (r"unpack \(expected (?:at least )?(\d+)", lambda clue, match: _width_of(clue, clue.slots[:4], int(match.group(1)))),
        (r"ValueError|RuntimeError|AssertionError|NotImplementedError|Exception|KeyError", _said),
        (rf"has no attribute '({PATHS})'", _become({"is": "pathlib", "end": ""}, owners=("arguments",))),
        (rf"has no attribute '({MODEL})'", _become({"is": "model"}, owners=("arguments",))),
        (
            r"'(?:str|int|NoneType|float|bool|list|numpy.ndarray|TensorDataset|Tensor)' object has no attribute '(\w+)'",
            _become(argument_guesses.SOFT, {"is": "settings", "has": {}}),
        ),
        (
            r"cannot unpack non-iterable|object is not (subscriptable|iterable)|has no len\(\)|PathLike object, not|values to unpack",
            _become(argument_guesses.SOFT),
        ),
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
            lambda clue, _: structures(clue.state, clue.log, clue.hints),
        ),
        (
            r"(?i)str|bytes|concatenat|decode|startswith|endswith|replace|split|unhashable|lower|strip|encode|PathLike|join",
            _arrays(4, {"dtype": "S", "shape": ["n"]}),
        ),
        (
            (
                r"expected scalar type Long|must be of integer|only integer|one of.*integer|tensors used as indices|Expected .*(Long|Int)|"
                r"LongTensor|'numpy.float|float object|integer argument|'float' object|cannot safely cast|bincount|truth value"
            ),
            _arrays(6, {"dtype": "i8"}, {"dtype": "i8", "shape": ["n"]}),
        ),
        (r"expected scalar type Float|can only be.*float|floating point|mean\(\): could not infer", _arrays(6, {"dtype": "f4"})),
        (
            (
                r"too many ind(ices|exing)|dimension|dims?\b|shape|axis|axes|broadcast|"
                r"size of tensor|permute|transpose|reshape|stack expects|multiplied|[0-5]D|ndim|rank"
            ),
            _axes,
        ),
        (r"ndex (\d+)\)? (?:is )?out of (?:bounds|range)", _longer),
        (r"list index out of range|IndexError", lambda clue, _: itertools.chain(_width_of(clue, [], 2), _width_of(clue, [], 4))),
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
            lambda clue, _: folders(clue.state, clue.log, clue.hints),
        ),
    )
)
