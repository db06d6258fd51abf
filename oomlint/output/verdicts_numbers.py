"""Readings as people read them: amounts with units, bars and lines of blocks, and the words for outcomes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Final

from oomlint.amounts import readable
from oomlint.output.summary import count
from oomlint.output.view import one_line
from oomlint.verify.case import Case, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Item = tuple[Case, Verdict]
Points = tuple[tuple[float, float], ...]

_SHORT: Final = {Outcome.SHOWN: "shown", Outcome.NOT_SHOWN: "not shown"}
_BLOCKS: Final = "▏▎▍▌▋▊▉█"
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_LEVELS: Final = "_.:-=+*#"
_THOUSAND: Final = 1000


def amount(value: float, unit: str) -> str:
    """A value with its unit: ``141.6 MiB``, ``0.25 s``, ``3 storages``."""
    if not math.isfinite(value):
        return "unknown"
    if unit == "bytes":
        return readable(value)
    if unit == "seconds":
        return f"{value * _THOUSAND:.3g} ms" if 0 < abs(value) < 1 else f"{value:,.1f} s"
    whole = f"{value:,.0f}" if abs(value - round(value)) < 1e-9 or abs(value) >= _THOUSAND else f"{value:.3g}"  # noqa: PLR2004 - what arithmetic leaves
    one = whole == "1" and unit.endswith("s") and not unit.endswith("ss")
    return f"{whole} {unit[:-1] if one else unit}".rstrip()


def middle(values: Sequence[float]) -> float:
    """The median of the repetitions."""
    return statistics.median(values)


def measured(values: Sequence[float], unit: str) -> str:
    """The median, and half the range where the repetitions differ."""
    if not values:
        return "not measured"
    spread = (max(values) - min(values)) / 2
    return amount(middle(values), unit) + (f" ±{amount(spread, unit)}" if spread > 0 else "")


def bar(value: float, most: float, width: int, *, plain: bool = False) -> str:
    """A bar as long as the value is, where ``most`` fills the width. It never vanishes: nothing measured is not a value of 0."""
    eighths = max(round(8 * width * value / most), 0) if most > 0 and math.isfinite(value) else 0
    if plain:
        return "#" * round(eighths / 8) or "|"
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_BLOCKS[rest - 1] if rest else "") or _BLOCKS[0]


def sparkline(points: Points, end: float, most: float, width: int, *, plain: bool = False) -> str:
    """A row of blocks, one for each part of the axis from 0 to ``end``; each as high as the highest value in its part, where ``most`` is the full height."""
    columns: list[float | None] = [None] * width
    last = 0
    for x, y in finite(points):
        last = min(max(int(x / end * width), 0), width - 1) if end > 0 else 0
        known = columns[last]
        columns[last] = y if known is None else max(known, y)
    levels = _PLAIN_LEVELS if plain else _LEVELS
    row, value = "", next((each for each in columns if each is not None), 0.0)
    for column in columns[: last + 1]:
        value = value if column is None else column
        share = value / most if most > 0 else 0.0
        row += levels[min(max(math.ceil(share * len(levels)) - 1, 0), len(levels) - 1)]
    return row


def finite(points: Points) -> Points:
    """The points that have a place."""
    return tuple(point for point in points if all(map(math.isfinite, point)))


def bounds(lines: Iterable[Points]) -> tuple[float, float]:
    """Where the axis ends, and the highest value."""
    points = [point for line in lines for point in finite(line)]
    return max((x for x, _ in points), default=0.0), max((y for _, y in points), default=0.0)


def title(case: Case, verdict: Verdict) -> str:
    """The outcome in a few words that stand alone."""
    if not case.has_fix:
        return verdict.outcome.value
    return f"fix {'has ' if verdict.outcome is Outcome.NO_EFFECT else ''}{verdict.outcome.value}"


def how(verdict: Verdict, python: str) -> str:
    """What was run, under which interpreter, for how long; empty where nothing was."""
    parts = [verdict.fidelity.value] if verdict.fidelity else []
    return "" if not parts and not verdict.seconds else ", ".join([*parts, one_line(python), amount(verdict.seconds, "seconds")])


def total(items: Sequence[Item]) -> str:
    """``12 fixes verified: 8 confirmed, 2 no effect, 2 inconclusive; 3 findings without a fix: 2 shown, 1 not shown``."""
    parts = []
    for fixed in (True, False):
        tally = Counter(verdict.outcome for case, verdict in items if case.has_fix is fixed)
        if not tally:
            continue
        number = sum(tally.values())
        said = ", ".join(f"{tally[outcome]} {_SHORT.get(outcome, outcome.value)}" for outcome in Outcome if tally[outcome])
        what = f"{number} {'fix' if number == 1 else 'fixes'} verified" if fixed else f"{count(number, 'finding')} without a fix"
        parts.append(f"{what}: {said}")
    cached = sum(verdict.cached for _, verdict in items)
    return "; ".join(parts) + (f" ({cached} cached)" if cached else "") + "."
