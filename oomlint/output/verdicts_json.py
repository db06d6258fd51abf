"""A JSON array of findings with their verdicts, for other programs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from oomlint.output import json_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.output.verdicts_numbers import Item, Points
    from oomlint.output.view import View
    from oomlint.verify.case import Reading, Timeline


def text(items: Iterable[Item], view: View, python: str) -> str:
    """The array, in ASCII, so that any encoding of the stream holds it."""
    return json.dumps([_entry(item, view, python) for item in items], indent=2) + "\n"


def rows(items: Iterable[Item], view: View, python: str) -> str:
    """The same entries, each on a line."""
    return "".join(json.dumps(_entry(item, view, python), separators=(",", ":")) + "\n" for item in items)


def _entry(item: Item, view: View, python: str) -> dict[str, object]:
    return {**json_array.entry(item[0].finding, view), "verdict": verdict_entry(item, python)}


def verdict_entry(item: Item, python: str) -> dict[str, object]:
    """A verdict as plain values."""
    case, verdict = item
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "next_step": verdict.next_step or None,
        "mended": case.mended,
        "fidelity": verdict.fidelity.value if verdict.fidelity else None,
        "readings": [_reading(reading) for reading in verdict.readings],
        "timelines": [_timeline(timeline) for timeline in verdict.timelines],
        "assumptions": list(verdict.assumptions),
        "left_out": list(verdict.left_out),
        "python": python,
        "seconds": round(verdict.seconds, 3),
        "sandbox": verdict.sandbox or None,
        "cached": verdict.cached,
    }


def _reading(reading: Reading) -> dict[str, object]:
    return {"name": reading.name, "unit": reading.unit, "under": reading.under, "before": _numbers(reading.before), "after": _numbers(reading.after)}


def _timeline(timeline: Timeline) -> dict[str, object]:
    return {"name": timeline.name, "unit": timeline.unit, "axis": timeline.axis, "before": _points(timeline.before), "after": _points(timeline.after)}


def _points(points: Points) -> list[list[float | None]]:
    return [_numbers(point) for point in points]


def _numbers(values: Sequence[float]) -> list[float | None]:
    """JSON knows no infinity."""
    return [value if math.isfinite(value) else None for value in values]
