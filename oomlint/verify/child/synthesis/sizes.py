"""How much data a state describes: smaller numbers in the user's code, where its own make more than a test may, and more samples where too few tell nothing."""

from __future__ import annotations

import copy
import re
import types
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import file_specs, file_specs_lmdb, file_specs_plain, spec_paths

if TYPE_CHECKING:
    from collections.abc import Iterator


SMALLEST: Final = 256  # a number from which on it may be what makes the data large
FACTORS: Final = (256, 16, 2**16)
MOST: Final = 3  # numbers that are tried one by one
SLOW: Final = r"took more than|MemoryError|[Uu]nable to allocate|allocate memory|out of memory|DefaultCPUAllocator"

_BEFORE: Final[list[tuple[Any, str, Any]]] = []  # what was changed in this process: object, attribute, its value


def numbers(module: types.ModuleType) -> list[int]:
    """The large whole numbers in the functions, classes and globals of a module, the largest first."""
    found: set[int] = set()
    for _, _, value in _places(module):
        found.update(_within(value))
    return sorted((number for number in found if number >= SMALLEST), reverse=True)


def states(state: dict[str, Any], module: types.ModuleType) -> Iterator[dict[str, Any]]:
    """States in which such numbers are smaller: one of them, then all."""
    known: dict[str, int] = state.get("shrunk", {})
    large = [number for number in numbers(module) if str(number) not in known]
    for number in large[:MOST]:
        for factor in FACTORS:
            yield {**state, "shrunk": {**known, str(number): small(number, factor)}}
    yield {**state, "shrunk": {**known, **{str(number): small(number, FACTORS[0]) for number in large}}}
    for (where, name), spec in spec_paths.given(state):
        if spec["is"] == "json" and type(spec["value"]) is int and spec["value"] >= SMALLEST:
            yield {**state, where: {**state[where], name: {"is": "json", "value": small(spec["value"], FACTORS[0])}}}


def small(number: int, factor: int) -> int:
    """A smaller number; powers of two stay such."""
    return max(number // factor, 16)


def apply(module: types.ModuleType, shrunk: dict[str, int]) -> None:
    """Put smaller numbers in the place of large ones; what an earlier state changed in this process is as it was."""
    while _BEFORE:
        thing, name, value = _BEFORE.pop()
        setattr(thing, name, value)
    if not shrunk:
        return
    table = {int(number): value for number, value in shrunk.items()}
    for thing, name, value in list(_places(module)):
        new = _replaced(value, table)
        if new is not value:
            _BEFORE.append((thing, name, value))
            setattr(thing, name, new)


def _places(module: types.ModuleType) -> Iterator[tuple[Any, str, Any]]:
    """Where numbers stand: an object, its attribute, and the value."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, item in list(vars(value).items()):
                item = item.fget if isinstance(item, property) else getattr(item, "__func__", item)  # noqa: PLW2901 -- what is below a decorator
                yield from _function(item) if isinstance(item, types.FunctionType) else [(value, inner, item)] if _plain(item) else []
        elif isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            yield from _function(value)
        elif _plain(value) and not name.startswith("__"):
            yield module, name, value


def _function(function: types.FunctionType) -> Iterator[tuple[Any, str, Any]]:
    yield function, "__code__", function.__code__
    if function.__defaults__:
        yield function, "__defaults__", function.__defaults__
    if function.__kwdefaults__:
        yield function, "__kwdefaults__", function.__kwdefaults__


def _plain(value: object) -> bool:
    return type(value) is int or (isinstance(value, (tuple, list)) and all(type(item) is int for item in value))


def _within(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _within(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _within(item)
    elif isinstance(value, types.CodeType):
        yield from _within(value.co_consts)


def _replaced(value: Any, table: dict[int, int]) -> Any:
    """The value with other numbers; itself where it has none of them."""
    if type(value) is int:
        return table.get(value, value)
    if type(value) in (tuple, list):
        made = [_replaced(item, table) for item in value]
        return type(value)(made) if any(new is not old for new, old in zip(made, value, strict=True)) else value
    if type(value) is dict:
        entries = {name: _replaced(item, table) for name, item in value.items()}
        return entries if any(entries[name] is not value[name] for name in value) else value
    if isinstance(value, types.CodeType):
        constants = _replaced(value.co_consts, table)
        return value if constants is value.co_consts else value.replace(co_consts=constants)
    return value


# -- more samples ------------------------------------------------------------------------------------------------------


State = dict[str, Any]
READ: Final = 64  # items that a trial reads: only files that are read are known
EACH: Final = 4  # files of like names from which on each holds a sample of its own


def scale_to(state: State, size: int) -> State:
    """The state with so many samples that its files and arguments describe ``size`` bytes. Many files of one sample each stay few, or are longer."""
    made = copy.deepcopy(state)
    if _lengthened(made, size):
        return made
    small, large = (_bytes({**made, "n": count}) for count in (64, 128))
    each = max((large - small) / 64, 0.0)
    if not each:
        return made
    most = 2000 if any(spec["kind"] in ("folder", "pattern") for spec in made["files"].values()) else 2_000_000
    made["n"] = int(max(made["n"], min(most, size / each + 1)))
    return made


def _lengthened(made: State, size: int) -> bool:
    """Make the arrays of files longer that are named after samples and listed nowhere, or hold many samples each. Gives whether there are such files."""
    likes = Counter(_like(key) for key, spec in made["files"].items() if spec["kind"] in ("npy", "npz", "h5"))
    many = {like for like, count in likes.items() if count >= EACH}
    long = [entry for key, spec in made["files"].items() if _like(key) in many for entry in _entries(spec) if "n" in entry.get("shape", ())]
    listed = any(spec["kind"] in ("folder", "pattern") for spec in made["files"].values())
    if not many or (listed and not long):
        return False
    count = made["n"] if listed else READ  # files that are listed: more of them would be read for each sample of each
    made["n"] = count
    for entry in long:
        entry["shape"][entry["shape"].index("n")] = max(READ, size // (count * _array_bytes(entry, 1)))
    return True


def _like(key: str) -> str:
    return re.sub(r"\d+", "#", key)


def _entries(spec: Any) -> list[Any]:
    return list(spec["nodes"].values()) if spec["kind"] == "h5" else list(spec["arrays"].values()) if spec["kind"] == "npz" else [spec]


def _bytes(state: State) -> int:
    """What the files and arguments of a state hold, roughly."""
    count = state["n"]
    total = 0
    for key, spec in state["files"].items():
        if spec["kind"] == "h5":
            alone = len({path for path in spec.get("seen", []) if path != "/"}) if any("listed" in entry for entry in spec["nodes"].values()) else 0
            total += sum(_array_bytes(entry, count) for entry in spec["nodes"].values() if entry["is"] != "group") * (count if alone else 1)
        elif spec["kind"] == "lmdb":
            total += file_specs_lmdb.size(spec, count)
        elif spec["kind"] not in ("folder", "empty", "absent", "pattern"):
            total += len(file_specs.content(spec, key, count))
    for (_, name), spec in spec_paths.given(state):
        if spec["is"] in ("array", "tensor"):
            total += file_specs_plain.array(spec, name, count).nbytes
        elif spec["is"] in ("range", "texts"):
            total += 60 * count
        elif spec["is"] == "value":
            total += len(repr(file_specs_plain.value(spec["value"], name, count)))
    return total


def _array_bytes(entry: Any, count: int) -> int:
    product = 4
    for side in entry["shape"]:
        product *= count if side == "n" else int(side)
    return product
