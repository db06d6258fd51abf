"""Symptoms as they are measured before and after a fix, whatever is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomlint.verify import thresholds
from oomlint.verify.case import Reading, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HANDLES = (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors"))


@dataclass(frozen=True, slots=True)
class Sign:
    """A symptom: whether it was seen before, whether it is gone after, and the figures."""

    shown: bool
    gone: bool  # whether it is no longer there after the fix; without meaning where it was not shown
    words: str  # of both parts: "8.1 MB are read for a sample before, 0.3 MB after"
    reading: Reading
    timeline: Timeline | None = None
    strict: bool = False  # an error or a leak: as long as it is there, nothing is confirmed
    worse: bool = False  # there is more of it after the fix


def quantity(name: str, values: Sequence[float], *, shown: bool, gone: bool, unit: str = "bytes", verb: str = "", strict: bool = False) -> Sign:
    """One number for each part."""
    words = f"{verb or name}: {thresholds.amount(values[0], unit)}" + (f" before, {thresholds.amount(values[1], unit)} after" if len(values) > 1 else "")
    worse = len(values) > 1 and values[1] > max(values[0], 0)
    return Sign(shown, gone, words, Reading(name, unit, (values[0],), tuple(values[1:])), strict=strict, worse=worse)


def failure(title: str, name: str, errors: Sequence[str], under: str) -> Sign:
    """Whether something fails, and with what."""
    reading = Reading(name, "errors", (float(bool(errors[0])),), tuple(float(bool(item)) for item in errors[1:]), under)
    words = f"{title}: {errors[0] or 'works'}" + (f" before, {errors[1] or 'works'} after" if len(errors) > 1 else "")
    mended = len(errors) > 1
    return Sign(bool(errors[0]), mended and not errors[1], words, reading, strict=True, worse=mended and bool(errors[1]) and not errors[0])


def left_open(answers: Sequence[dict[str, Any]], of: str, under: str, told: str = "") -> Iterator[Sign]:
    """What each sample or call leaves open. ``told`` is added to the words."""
    for key, name in HANDLES:
        found = thresholds.handles(name, *(answer[key] for answer in answers))
        rates = [found.before.a_step, *([found.after.a_step] if found.after else [])]
        reading = Reading(f"{name} that a {of} leaves open", name, (rates[0],), tuple(rates[1:]), under)
        line = Timeline(f"{name} open{told}", name, "step", *(tuple(enumerate(map(float, answer[key]))) for answer in answers))
        yield Sign(found.shown, found.ended, f"{found.words}{told}", reading, line, strict=True, worse=len(rates) > 1 and rates[1] > max(rates[0], 0))
