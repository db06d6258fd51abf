"""More samples for a state."""

from __future__ import annotations

import copy
from typing import Any

from oomlint.verify.child import files, files_plain

State = dict[str, Any]


def scale_to(state: State, size: int) -> State:
    """The state with so many samples that its files and arguments describe ``size`` bytes. Many files of one sample each stay few."""
    made = copy.deepcopy(state)
    small, large = (_bytes({**made, "n": count}) for count in (64, 128))
    each = max((large - small) / 64, 0.0)
    if not each:
        return made
    most = 2000 if any(spec["kind"] in ("folder", "pattern") for spec in made["files"].values()) else 2_000_000
    made["n"] = int(max(made["n"], min(most, size / each + 1)))
    return made


def _bytes(state: State) -> int:
    """What the files and arguments of a state hold, roughly."""
    count = state["n"]
    total = 0
    for key, spec in state["files"].items():
        if spec["kind"] == "h5":
            alone = len({path for path in spec.get("seen", []) if path != "/"}) if any("listed" in entry for entry in spec["nodes"].values()) else 0
            total += sum(_array_bytes(entry, count) for entry in spec["nodes"].values() if entry["is"] != "group") * (count if alone else 1)
        elif spec["kind"] not in ("folder", "empty", "absent", "pattern"):
            total += len(files.content(spec, key, count))
    for where in ("arguments", "owner"):
        for name, spec in state[where].items():
            if spec["is"] in ("array", "tensor"):
                total += files.array(spec, name, count).nbytes
            elif spec["is"] in ("range", "texts"):
                total += 60 * count
            elif spec["is"] == "value":
                total += len(repr(files_plain.value(spec["value"], name, count)))
    return total


def _array_bytes(entry: Any, count: int) -> int:
    product = 4
    for side in entry["shape"]:
        product *= count if side == "n" else int(side)
    return product
