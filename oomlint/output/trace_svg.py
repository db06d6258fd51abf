"""Charts of a trace as SVG: what is held over time, in layers, with marks and limits."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.output.verdicts_numbers import amount
from oomlint.output.verdicts_svg import WIDTH, beside_axis, svg, ticks
from oomlint.output.view import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.trace.timeline import Points

_COLOURS: Final = 6
STYLE: Final = """
:root { --c0: #2f7f86; --c1: #c8553d; --c2: #8a6100; --c3: #7a3fa0; --c4: #1a7f37; --c5: #5c6670 }
@media (prefers-color-scheme: dark) { :root { --c0: #58b4bb; --c1: #e07a5f; --c2: #d8a53a; --c3: #c694e8; --c4: #4cc26a; --c5: #9aa5b0 } }
svg .c0 { fill: var(--c0) } svg .c1 { fill: var(--c1) } svg .c2 { fill: var(--c2) } svg .c3 { fill: var(--c3) } svg .c4 { fill: var(--c4) }
svg .c5 { fill: var(--c5) } svg polygon { opacity: .82 } svg .epoch { stroke: var(--ink); stroke-dasharray: 2 3; opacity: .5 }
svg .limit { stroke: var(--bad); stroke-width: 2 } svg .phase { fill: var(--ink); opacity: .08 } svg .kill { stroke: var(--bad); stroke-width: 2 }
""".strip()
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 84, 16, 12, 40, 260
_MOST: Final = 400  # points of a layer
_LEGEND: Final = 20  # a row of the legend
_MOST_MARKS: Final = 60


class ChartLayer(NamedTuple):
    """What one part of the tree holds, at the moments of the chart."""

    name: str
    values: Sequence[float]


class Spots(NamedTuple):
    """What is marked over the time: seconds."""

    epochs: Sequence[float] = ()
    phases: Sequence[tuple[float, float]] = ()
    kills: Sequence[float] = ()


def layers(times: Sequence[float], found: Sequence[ChartLayer], unit: str, spots: Spots, limit: float | None = None) -> str:
    """Areas that stand on each other, over one axis of seconds. A limit is drawn where it is not far above."""
    end = times[-1] if times else 0.0
    totals = [sum(layer.values[number] for layer in found) for number in range(len(times))]
    most = max(totals, default=0.0)
    shown = limit if limit is not None and most < limit <= 1.6 * most else None  # else it would press the chart flat
    high = list(ticks(max(most, shown or 0.0), unit))
    top = max(high[-1], most, shown or 0.0) or 1.0

    def x(at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (at / end if end else 0.0)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(max(value / top, 0.0), 1.0))

    parts = [f'<rect class="phase" x="{x(a):.1f}" y="{_TOP}" width="{max(x(b) - x(a), 1):.1f}" height="{_HEIGHT - _TOP - _BOTTOM}"/>' for a, b in spots.phases]
    for value in high:
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text class="small" x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(beside_axis(value, unit))}</text>')
    parts += [f'<text class="small" x="{x(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:.4g}</text>' for value in ticks(end)]
    parts.append(f'<text class="small" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">seconds</text>')
    below = [0.0] * len(times)
    for number, layer in enumerate(found):
        above = [low + value for low, value in zip(below, layer.values, strict=True)]
        kept = _kept(above)
        outline = [f"{x(times[place]):.1f},{y(above[place]):.1f}" for place in kept]
        outline += [f"{x(times[place]):.1f},{y(below[place]):.1f}" for place in reversed(kept)]
        parts.append(f'<polygon class="c{number % _COLOURS}" points="{" ".join(outline)}"><title>{escape(one_line(layer.name))}</title></polygon>')
        below = above
    low, up = _HEIGHT - _BOTTOM, _TOP
    for name, places in (("epoch", spots.epochs[:_MOST_MARKS]), ("kill", spots.kills)):
        parts += [f'<line class="{name}" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{up}" y2="{low}"/>' for at in places]
    if shown is not None:
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(shown):.1f}" y2="{y(shown):.1f}"><title>limit</title></line>')
    parts += _legend([layer.name for layer in found])
    return svg(_HEIGHT + _LEGEND * ((len(found) + 1) // 2), f"up to {amount(most, unit)} in {amount(end, 'seconds')}", parts)


def _legend(names: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        left, top = _LEFT + number % 2 * 270, _HEIGHT + 6 + number // 2 * _LEGEND
        square = f'<rect class="c{number % _COLOURS}" x="{left}" y="{top}" width="12" height="8"/>'
        yield f'{square}<text x="{left + 18}" y="{top + 9}">{escape(one_line(name))}</text>'


def _kept(values: Sequence[float]) -> list[int]:
    """At most so many places as the chart has room for; of each group the highest, and both ends."""
    group = -(-len(values) // _MOST) or 1
    found = [max(range(start, min(start + group, len(values))), key=values.__getitem__) for start in range(0, len(values), group)]
    return sorted({*found, 0, len(values) - 1}) if values else []


def line(points: Points, name: str, unit: str, spots: Spots) -> str:
    """One series as an area."""
    return layers([at for at, _ in points], [ChartLayer(name, [value for _, value in points])], unit, spots)
