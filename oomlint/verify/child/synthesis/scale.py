"""More samples for a state."""

from __future__ import annotations

import copy
import re
from collections import Counter
from typing import Any, Final

from oomlint.verify.child.synthesis import file_specs, file_specs_lmdb, file_specs_plain, spec_paths

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
