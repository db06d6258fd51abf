"""Verdicts for people: what came of each fix, with its evidence as small charts; or one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.output.grouped import by_file
from oomlint.output.verdicts_numbers import amount, bar, bounds, how, measured, middle, sparkline, total
from oomlint.output.view import one_line
from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import Line, View
    from oomlint.verify.case import QuantityReading, Timeline

STYLES: Final = {
    Outcome.CONFIRMED: "bold green",
    Outcome.NO_EFFECT: "bold yellow",
    Outcome.REGRESSED: "bold red",
    Outcome.INCONCLUSIVE: "bold magenta",
    Outcome.SHOWN: "bold yellow",
    Outcome.NOT_SHOWN: "bold cyan",
}
_BEFORE, _AFTER = "red", "green"
_WIDTH: Final = 32  # columns of a chart
_MOST_ROWS: Final = 5  # of what is listed
_MOST_TIMELINES: Final = 2
_UNRUN: Final = "was not run"  # how a note of `change_coverage` ends


def concise(items: Iterable[Item], view: View) -> Iterator[Line]:
    """A line a verdict: ``path:row:column: OOM204 confirmed: reason``."""
    for item in items:
        yield (*_head(item, view), (one_line(item[1].reason), ""))


def grouped(items: Iterable[Item], view: View) -> Iterator[Line]:
    """The same below the names of the files."""
    yield from by_file(((item[0].finding, (*_outcome(item), (one_line(item[1].reason), ""))) for item in items), view)


def full(items: Iterable[Item], view: View, python: str, *, plain: bool = False) -> Iterator[Line]:
    """Each verdict with its evidence. ``plain`` draws charts in ASCII."""
    for item in items:
        case, verdict = item
        yield (*_head(item, view), (one_line(case.finding.headline), ""))
        yield (("  ", ""), (one_line(verdict.reason), ""))
        if verdict.next_step:
            yield (("  next: ", "cyan"), (one_line(verdict.next_step), ""))
        for number, reading in enumerate(verdict.readings[: _MOST_ROWS + 1]):
            yield from _chart(reading, plain=plain) if number == 0 else _row(reading, plain=plain)
        yield from _more(len(verdict.readings) - _MOST_ROWS - 1, "readings")
        for timeline in [line for line in verdict.timelines if _tells(line)][:_MOST_TIMELINES]:
            yield from _timeline(timeline, plain=plain)
        if how(verdict, python):
            yield (("  run: ", "cyan"), (how(verdict, python), ""))
        yield from _listed("assumed", verdict.assumptions)
        # What the fix concerns and nobody ran is what a reader has to know before the rest.
        unrun = [row for row in verdict.left_out if row.endswith(_UNRUN)]
        yield from _listed("left out", [*unrun, *(row for row in verdict.left_out if row not in unrun)], most=max(_MOST_ROWS, len(unrun)))
        yield ()


def summary(items: Sequence[Item]) -> Line:
    """The closing line."""
    return ((total(items), "bold"),)


def _head(item: Item, view: View) -> Line:
    return ((f"{view.spot(item[0].finding.place)}: ", "bold"), *_outcome(item))


def _outcome(item: Item) -> Line:
    case, verdict = item
    cached = " (cached)" if verdict.cached else ""
    return ((f"{case.code} {verdict.outcome.value}", STYLES[verdict.outcome]), (f"{cached}: ", ""))


def _named(reading: QuantityReading) -> str:
    return one_line(f"{reading.name}, {reading.under}" if reading.under else reading.name)


def _chart(reading: QuantityReading, *, plain: bool) -> Iterator[Line]:
    """Two bars to one scale."""
    rows = [(name, values, style) for name, values, style in (("before", reading.before, _BEFORE), ("after", reading.after, _AFTER)) if values]
    most = max((middle(values) for _, values, _ in rows), default=0.0)
    times = max((len(values) for _, values, _ in rows), default=0)
    yield ((f"  {_named(reading)}" + (f" (median of {times})" if times > 1 else ""), ""),)
    for name, values, style in rows:
        yield ((f"    {name:<6} ", ""), (bar(middle(values), most, _WIDTH, plain=plain), style), (f" {_value(values, reading.unit, plain=plain)}", ""))


def _row(reading: QuantityReading, *, plain: bool) -> Iterator[Line]:
    before = _value(reading.before, reading.unit, plain=plain)
    after = f" before, {_value(reading.after, reading.unit, plain=plain)} after" if reading.after else ""
    yield ((f"  {_named(reading)}: {before}{after}", ""),)


def _value(values: Sequence[float], unit: str, *, plain: bool) -> str:
    text = measured(values, unit)
    return text.replace("±", "+/-") if plain else text


def _tells(timeline: Timeline) -> bool:
    """Whether its rows of blocks would show a difference: between before and after, or from one step to another."""
    end, most = bounds((timeline.before, timeline.after))
    return len(set(sparkline(timeline.before, end, most, _WIDTH) + sparkline(timeline.after, end, most, _WIDTH))) > 1


def _timeline(timeline: Timeline, *, plain: bool) -> Iterator[Line]:
    end, most = bounds((timeline.before, timeline.after))
    reach = amount(end, "seconds") if timeline.axis == "seconds" else f"{end:,.0f} steps"
    yield ((f"  {one_line(timeline.name)}, over {reach}, up to {amount(most, timeline.unit)}", ""),)
    for name, points, style in (("before", timeline.before, _BEFORE), ("after", timeline.after, _AFTER)):
        if points:
            yield ((f"    {name:<6} ", ""), (sparkline(points, end, most, _WIDTH, plain=plain), style))


def _listed(label: str, rows: Sequence[str], most: int = _MOST_ROWS) -> Iterator[Line]:
    for number, row in enumerate(rows[:most]):
        yield ((f"  {label}: " if number == 0 else " " * (len(label) + 4), "cyan"), (one_line(row), ""))
    yield from _more(len(rows) - most, "(all of it by `--output-format json`)")


def _more(number: int, what: str) -> Iterator[Line]:
    if number > 0:
        yield ((f"    and {number} more {what}".rstrip(), ""),)
