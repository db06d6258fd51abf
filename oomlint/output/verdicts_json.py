"""Verdicts as plain values, for other programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.output.verdicts_numbers import Item, Points
    from oomlint.verify.case import QuantityReading, Timeline


def verdict_entry(item: Item, python: str) -> dict[str, object]:
    """A verdict as plain values."""
    case, verdict = item
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "next_step": verdict.next_step or None,
        "has_fix": case.has_fix,
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


def _reading(reading: QuantityReading) -> dict[str, object]:
    return {"name": reading.name, "unit": reading.unit, "under": reading.under, "before": _numbers(reading.before), "after": _numbers(reading.after)}


def _timeline(timeline: Timeline) -> dict[str, object]:
    return {"name": timeline.name, "unit": timeline.unit, "axis": timeline.axis, "before": _points(timeline.before), "after": _points(timeline.after)}


def _points(points: Points) -> list[list[float | None]]:
    return [_numbers(point) for point in points]


def _numbers(values: Sequence[float]) -> list[float | None]:
    """JSON knows no infinity."""
    return [value if math.isfinite(value) else None for value in values]
