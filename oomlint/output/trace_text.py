"""A trace as lines for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from oomlint.output import concise, trace_words
from oomlint.output.view import one_line, visible
from oomlint.trace.growth import Shape
from oomlint.trace.growth_verdicts import JudgedSubject, epochs_of
from oomlint.trace.timeline import MarkKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.output.view import Line, View
    from oomlint.trace.growth_verdicts import GrowthVerdict
    from oomlint.trace.report import TraceReport
    from oomlint.trace.timeline import Points, TimelineSample, Trace

_WIDTH, _HEIGHT = 64, 8
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = "  ..::##"
_ROWS: Final = 10  # processes of a table
_STYLES: Final = {Shape.STEADY: "red", Shape.STAIRS: "red", Shape.EPOCHS: "red", Shape.WAVES: "yellow", Shape.KEPT: "yellow", Shape.FLAT: "green"}


def lines(report: TraceReport, view: View, *, plain: bool = False) -> Iterator[Line]:
    """The report. ``plain``: without block characters, for a stream that has none."""
    trace = report.trace
    yield ((f"{trace_words.command(trace)}: ", "bold"), (trace_words.ending(trace), "bold"))
    yield from (((visible(sentence), "red"),) for sentence in trace_words.deaths(trace))
    yield ((trace_words.readings(trace), ""),)
    if trace.peak is not None:
        yield from _memory(trace, trace.peak, plain=plain)
        if report.predicted is not None:
            yield ((f"  {trace_words.predicted(report)}", ""),)
            if report.predicted.advice:
                yield ((f"  {trace_words.advice(report)}", ""),)
        yield (("", ""),)
        yield (("growth", "bold"),)
        told = [growth for growth in report.growths if growth.trend.shape is not Shape.SHORT] or report.growths[:1]
        yield from (_growth(growth, trace) for growth in told)
    yield from _explanation(report, view)
    notes = list(trace_words.notes(report))
    if notes:
        yield (("", ""),)
        yield from (((f"note: {visible(note)}", ""),) for note in notes)


def _memory(trace: Trace, peak: TimelineSample, *, plain: bool) -> Iterator[Line]:
    total = tuple((sample.at, float(sample.total)) for sample in trace.samples)
    yield (("", ""),)
    yield (("memory", "bold"), (f" ({trace.measure}), at most {trace_words.size(peak.total)}, {trace_words.place(trace, peak.at)}", ""))
    for row in plot(total, trace.pace.seconds, plain=plain):
        yield ((row, ""),)
    marks = _mark_row(trace)
    if marks:
        yield ((marks, ""),)
    rows = trace_words.holders(trace, peak)
    width = max(len("at the peak"), *(len(name) for name, *_ in rows[:_ROWS]))
    yield ((f"  {'at the peak':<{width}}  {'anonymous':>10}  {'shared':>10}  {'dirty':>10}  {'descriptors':>11}", "bold"),)
    for name, anonymous, shared, dirty, descriptors in rows[:_ROWS]:
        cells = "  ".join(f"{trace_words.size(value):>10}" for value in (anonymous, shared, dirty))
        yield ((f"  {visible(name):<{width}}  {cells}  {descriptors:>11}", ""),)
    if len(rows) > _ROWS:
        rest = sum(anonymous + shared for _, anonymous, shared, *_ in rows[_ROWS:])
        yield ((f"  {len(rows) - _ROWS} more hold {trace_words.size(rest)}", ""),)


def plot(points: Points, end: float, *, plain: bool = False) -> Iterator[str]:
    """Rows of blocks over time, the highest value of each part of it; an axis from 0 at the left."""
    columns = [0.0] * _WIDTH
    filled = [False] * _WIDTH
    for at, value in points:
        column = min(int(at / end * _WIDTH), _WIDTH - 1) if end > 0 else 0
        columns[column] = max(columns[column], value)
        filled[column] = True
    for column in range(1, _WIDTH):
        if not filled[column] and any(filled[column:]):
            columns[column] = columns[column - 1]
    most = max(columns) or 1.0
    levels = _PLAIN if plain else _EIGHTHS
    for row in range(_HEIGHT, 0, -1):
        cells = "".join(_cell(value / most * _HEIGHT - (row - 1), levels) for value in columns)
        label = trace_words.size(most) if row == _HEIGHT else trace_words.size(most / 2) if row == _HEIGHT // 2 else ""
        yield f"{label:>10} {'|' if plain else '▏'}{cells.rstrip()}"
    yield f"{'0':>10} {'+' if plain else '▔'}{trace_words.moment(end):>{_WIDTH}}"


def _cell(filling: float, levels: str) -> str:
    top = len(levels) - 1
    return levels[min(max(math.ceil(filling * top), 0), top)]


def _mark_row(trace: Trace) -> str:
    """Where epochs begin, or passes over loaders where nobody marks epochs."""
    epochs, end = epochs_of(trace), trace.pace.seconds
    if not epochs or not end:
        return ""
    row = [" "] * _WIDTH
    for at in epochs:
        row[min(max(int(at / end * _WIDTH), 0), _WIDTH - 1)] = "^"
    what = "epochs" if trace.of_kind(MarkKind.EPOCH) else "passes over loaders"
    return f"{'':>12}{''.join(row).rstrip()} {what}"


def _growth(growth: GrowthVerdict, trace: Trace) -> Line:
    style = _STYLES.get(growth.trend.shape, "") if growth.subject is not JudgedSubject.COPIES else "yellow"
    what = " descriptors" if growth.subject is JudgedSubject.DESCRIPTORS else ""
    return ((f"  {visible(growth.who)}{what}: ", ""), (trace_words.trend(growth, trace), style))


def _explanation(report: TraceReport, view: View) -> Iterator[Line]:
    explained = report.explanation.explained
    open_ = list(trace_words.unexplained(report))
    if explained or open_ or report.next or report.lines:
        yield (("", ""),)
        yield (("what explains it", "bold"),)
    for each in explained:
        for line in concise.lines([each.finding], view):
            yield (("  ", ""), *line)
        yield ((f"      {visible(trace_words.explains(each))}; `oomlint rule {each.finding.code}` says more", ""),)
    yield from (((f"  {sentence}", ""),) for sentence in open_)
    for place in report.lines:
        speed = f"{trace_words.size(place.a_minute)} a minute"
        said = (
            f"holds {trace_words.size(place.last)} in {place.blocks} blocks, {trace_words.size(place.last - place.first)} more than after the warm-up, {speed}"
        )
        yield ((f"  {one_line(view.name(place.path))}:{place.row}: {said} ({visible(place.who)})", ""),)
    yield from (((f"  next: {visible(sentence)}", ""),) for sentence in report.next)


def holds(stream_encoding: str | None) -> bool:
    """Whether a stream can show the blocks of the plot."""
    try:
        (_EIGHTHS + "▏▔").encode(stream_encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
