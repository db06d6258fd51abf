"""`--deep`: which lines of a program the growing memory was taken in, by tracemalloc in each of its Python processes."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from oomlint.trace.growth import LEAST_BYTES, theil_sen

if TYPE_CHECKING:
    from oomlint.trace.timeline import Trace

BOOTSTRAP: Final = str(Path(__file__).parent / "deep")
VARIABLE: Final = "OOMLINT_TRACE_DEEP"  # the folder that snapshots go to
_MOST: Final = 5
_ENOUGH: Final = 3  # snapshots after the warm-up
_PART: Final = 0.05  # of what all lines grew by
_MOSTLY: Final = 0.7  # of the snapshots
_GOES_ON: Final = 0.2  # of a rise: in the second half of the time


class AllocationLine(Struct, frozen=True):
    """A line of the program, and the bytes that were taken there and are still held."""

    path: str
    row: int
    who: str  # the process
    first: int
    last: int
    a_minute: float
    blocks: int


def variables(folder: str) -> dict[str, str]:
    """What the environment of the command has in addition."""
    path = os.environ.get("PYTHONPATH")
    return {VARIABLE: folder, "PYTHONPATH": os.pathsep.join([BOOTSTRAP, path] if path else [BOOTSTRAP])}


def read(folder: str, trace: Trace) -> tuple[AllocationLine, ...]:
    """The lines that grew most, over all processes."""
    found: list[AllocationLine] = []
    for name in sorted(os.listdir(folder)):
        pid = int(name.partition(".")[0])
        index = max((number for number, each in enumerate(trace.processes) if each.pid == pid), default=None)
        found += _lines(_snapshots(os.path.join(folder, name)), trace.name(index) if index is not None else f"process {pid}")
    grown = sum(line.last - line.first for line in found)
    found = [line for line in found if line.last - line.first >= max(LEAST_BYTES / 4, _PART * grown)]
    return tuple(sorted(found, key=lambda line: line.first - line.last)[:_MOST])


def _snapshots(path: str) -> list[dict[str, Any]]:
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                found.append(json.loads(line))
            except ValueError:  # the process ended while it was writing
                continue
    return found


def _lines(snapshots: list[dict[str, Any]], who: str) -> list[AllocationLine]:
    """The lines of one process, up to when it held the most: who ends gives back what it has. The first third of the time is warm-up."""
    if not snapshots:
        return []
    fullest = max(snapshots[len(snapshots) // 2 :], key=lambda each: sum(size for _, _, size, _ in each["lines"]))
    begin, end = snapshots[0]["at"], fullest["at"]
    rest = [each for each in snapshots if begin + (end - begin) / 3 <= each["at"] <= end]
    if len(rest) < _ENOUGH:
        return []
    held: list[dict[tuple[str, int], tuple[int, int]]] = [{(path, row): (size, count) for path, row, size, count in each["lines"]} for each in rest]
    middle = sum(each["at"] <= (rest[0]["at"] + end) / 2 for each in rest) - 1
    found = []
    for place, (size, count) in held[-1].items():
        values = [each.get(place, (0, 0))[0] for each in held]
        rising = sum(later >= earlier for earlier, later in pairwise(values))
        # An import takes much, too, and is over at some time.
        if rising >= _MOSTLY * (len(values) - 1) and size - values[middle] >= _GOES_ON * (size - values[0]):
            points = tuple((float(each["at"]), float(value)) for each, value in zip(rest, values, strict=True))
            found.append(AllocationLine(*place, who, values[0], size, 60 * theil_sen(points), count))
    return found
