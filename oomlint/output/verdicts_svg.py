"""Charts of readings as SVG, for a page that needs nothing else: bars, and lines over time or steps."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

from oomlint.output.verdicts_numbers import amount, bounds, finite, measured, middle
from oomlint.output.view import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.output.verdicts_numbers import Points
    from oomlint.verify.case import QuantityReading, Timeline

STYLE: Final = """
svg { display: block; width: 100%; max-width: 44rem; height: auto; margin: .5rem 0 1rem; font: 13px system-ui, sans-serif }
svg text { fill: var(--ink) }
svg .axis { stroke: var(--line); stroke-width: 1 }
svg .small { fill: var(--soft); font-size: 12px }
svg .before { fill: var(--before) }
svg .after { fill: var(--after) }
svg .mark { stroke: var(--ink); stroke-width: 1; opacity: .55 }
svg polyline { fill: none; stroke-width: 2; stroke-linejoin: round }
svg polyline.before { fill: none; stroke: var(--before) }
svg polyline.after { fill: none; stroke: var(--after); stroke-dasharray: 6 3 }
""".strip()

WIDTH: Final = 640
_LABEL: Final = 56  # left of the bars
_BAR: Final = 400  # the longest
_ROW: Final = 26
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 84, 16, 26, 40, 240  # of a chart of lines
_TICKS: Final = 4
_SCALES: Final = (1 << 40, 1 << 30, 1 << 20, 1 << 10)
_MOST_POINTS: Final = 600
_SHORT: Final = frozenset({"", "bytes", "seconds"})  # units that stand beside their numbers as a few letters


def bars(reading: QuantityReading) -> str:
    """Two bars to one scale; each repetition is a mark on its bar."""
    rows = [(name, values) for name, values in (("before", reading.before), ("after", reading.after)) if values]
    most = max((value for _, values in rows for value in values if math.isfinite(value)), default=0.0)
    scale = _BAR / most if most > 0 else 0.0
    parts = []
    for number, (name, values) in enumerate(rows):
        top = number * _ROW + 4
        length = max(_clean(middle(values)) * scale, 1.5)
        parts.append(f'<text x="0" y="{top + 13}">{name}</text>')
        parts.append(f'<rect class="{name}" x="{_LABEL}" y="{top}" width="{length:.1f}" height="18" rx="2"/>')
        if len(set(values)) > 1:
            parts += [f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 3}" y2="{top + 15}"/>' for x in (_LABEL + _clean(v) * scale for v in values)]
        end = _LABEL + max(length, max(_clean(value) for value in values) * scale) + 8
        parts.append(f'<text x="{end:.1f}" y="{top + 13}">{escape(measured(values, reading.unit))}</text>')
    return svg(_ROW * len(rows) + 4, _spoken(reading), parts)


def lines(timeline: Timeline) -> str:
    """Both lines over one pair of axes."""
    end, most = bounds((timeline.before, timeline.after))
    width, height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    high = list(ticks(most, timeline.unit))
    top = max(high[-1], most) or 1.0
    parts = []
    for value in high:
        y = _TOP + height * (1 - value / top)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(beside_axis(value, timeline.unit))}</text>')
    if timeline.unit not in _SHORT:
        parts.append(f'<text class="small" x="{WIDTH - _RIGHT}" y="13" text-anchor="end">{escape(one_line(timeline.unit))}</text>')
    for value in ticks(end):
        x = _LEFT + width * (value / end if end else 0.0)
        parts.append(f'<text class="small" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:.4g}</text>')
    parts.append(f'<text class="small" x="{_LEFT + width / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(one_line(timeline.axis))}</text>')
    for number, (name, points) in enumerate((("before", timeline.before), ("after", timeline.after))):
        if not points:
            continue
        spots = " ".join(
            f"{_LEFT + width * (x / end if end else 0.0):.1f},{_TOP + height * (1 - min(max(y / top, 0.0), 1.0)):.1f}" for x, y in _thinned(points)
        )
        parts.append(f'<polyline class="{name}" points="{spots}"/>')
        parts.append(f'<rect class="{name}" x="{_LEFT + number * 90}" y="6" width="12" height="6"/><text x="{_LEFT + 18 + number * 90}" y="13">{name}</text>')
    return svg(_HEIGHT, f"{one_line(timeline.name)}: up to {amount(most, timeline.unit)}", parts)


def svg(height: int, spoken: str, parts: Sequence[str]) -> str:
    """A drawing of parts; ``spoken`` is what is read aloud."""
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(spoken)}</title>{"".join(parts)}</svg>'


def _spoken(reading: QuantityReading) -> str:
    after = f", {measured(reading.after, reading.unit)} after" if reading.after else ""
    return f"{one_line(reading.name)}: {measured(reading.before, reading.unit)} before{after}"


def beside_axis(value: float, unit: str) -> str:
    """A value as it stands beside a line of a chart: with its unit where that is short, since there is little room."""
    return amount(value, unit if unit in _SHORT else "")


def ticks(most: float, unit: str = "") -> Iterator[float]:
    """Round numbers from 0 up to the first that is not below ``most`` by more than a part.

    Of bytes they are round in a binary unit, and of things that are counted they are whole.
    """
    scale = next((scale for scale in _SCALES if most / _TICKS >= scale / 2), 1) if unit == "bytes" else 1
    yield from (number * scale for number in _round(most / scale, 0.0 if unit in _SHORT else 1.0))


def _round(most: float, least: float) -> Iterator[float]:
    if not most > 0:
        yield 0.0
        return
    rough = most / _TICKS
    power: float = 10 ** math.floor(math.log10(rough))
    step = max(least, next(each * power for each in (1, 2, 5, 10) if each * power >= rough))
    for number in range(_TICKS + 2):
        if number * step <= most * 1.0001:
            yield number * step


def _thinned(points: Points) -> Points:
    """At most so many points as the chart has room for; of each group the highest."""
    group = math.ceil(len(points) / _MOST_POINTS)
    clean = finite(points)
    return tuple(max(clean[start : start + group], key=lambda point: point[1]) for start in range(0, len(clean), group)) if group > 1 else clean


def _clean(value: float) -> float:
    return max(value, 0.0) if math.isfinite(value) else 0.0
