"""A trace as one page that can be kept and sent: the timeline, the peak and who held it, what grew, and what explains it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from oomlint import __version__
from oomlint.output import page, trace_svg, trace_words, verdicts_svg
from oomlint.output.trace_svg import ChartLayer, Spots
from oomlint.output.view import one_line
from oomlint.trace.growth_verdicts import JudgedSubject, epochs_of
from oomlint.trace.timeline import MarkKind, ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.output.view import View
    from oomlint.trace.explaining import Explained
    from oomlint.trace.report import TraceReport
    from oomlint.trace.timeline import Trace

_LAYERS: Final = 5  # processes with a layer of their own; the rest are one
_STYLE: Final = """
.grows { color: var(--bad) } .quiet { color: var(--good) } .note { margin: .2rem 0 }
""".strip()


def text(report: TraceReport, view: View) -> str:
    """The page."""
    trace = report.trace
    body = [f"<h1>oomlint trace</h1>\n<pre>{escape(trace_words.command(trace))}</pre>\n"]
    body.append(f'<p id="ending">{escape(trace_words.ending(trace))}</p>\n')
    body += (f'<p class="grows">{page.prose(sentence)}</p>\n' for sentence in trace_words.deaths(trace))
    body.append(f'<p class="soft">{escape(trace_words.readings(trace))}</p>\n')
    if trace.peak is not None:
        body += _memory(report)
        body += _growth(report)
    body += _explanation(report, view)
    body += _list("Notes", [*trace_words.notes(report)])
    body.append(f'<p class="soft">oomlint {escape(__version__)}. Figures are of this run, on this machine.</p>\n')
    return page.whole("oomlint trace", f"{verdicts_svg.STYLE}\n{trace_svg.STYLE}\n{_STYLE}", "".join(body))


def _spots(trace: Trace) -> Spots:
    phases = [(mark.at, mark.until if mark.until is not None else mark.at) for mark in trace.of_kind(MarkKind.PHASE)]
    return Spots(epochs_of(trace), phases, [kill.at for kill in trace.kills])


def _memory(report: TraceReport) -> Iterator[str]:
    trace = report.trace
    peak = trace.peak
    if peak is None:
        return
    spots = _spots(trace)
    yield (
        f'<h2>Memory</h2>\n<p>At most <strong id="peak" data-bytes="{peak.total}">{trace_words.size(peak.total)}</strong> ({trace.measure}), '
        f"{escape(trace_words.place(trace, peak.at))}.</p>\n"
    )
    if report.predicted is not None:
        yield f'<p id="predicted" data-bytes="{report.predicted.bytes}">{page.prose(trace_words.predicted(report))}.</p>\n'
        if report.predicted.advice:
            yield f'<p id="advice">{page.prose(trace_words.advice(report))}</p>\n'
    times = [sample.at for sample in trace.samples]
    yield trace_svg.layers(times, _layers(trace), "bytes", spots, trace.group_limit) + "\n"
    what = "epochs" if trace.of_kind(MarkKind.EPOCH) else "passes over loaders, told from the workers that start"
    if spots.epochs:
        yield f'<p class="soft">Dotted lines: {what}.</p>\n'
    yield "<h3>Who held the peak</h3>\n"
    rows = trace_words.holders(trace, peak)
    head = "<th>Process</th>" + "".join(f'<th class="number">{name}</th>' for name in ("Anonymous", "Shared", "Private dirty", "Descriptors"))
    yield f'<div class="scroll"><table id="holders">\n<tr>{head}</tr>\n'
    for name, anonymous, shared, dirty, descriptors in rows:
        cells = "".join(f'<td class="number" data-bytes="{value}">{trace_words.size(value)}</td>' for value in (anonymous, shared, dirty))
        yield f'<tr><td>{page.prose(name)}</td>{cells}<td class="number">{descriptors}</td></tr>\n'
    yield "</table></div>\n"
    for title, quantity in (("Descriptors of the process that has most", ""), ("Charged to the cgroup, page cache included", "group"), ("Device", "device")):
        points = trace.of_tree(quantity) if quantity else _most_descriptors(trace)
        if any(value for _, value in points):
            unit = "bytes" if quantity else ""
            yield f"<details><summary>{title}</summary>\n{trace_svg.line(points, title, unit, spots)}</details>\n"


def _most_descriptors(trace: Trace) -> tuple[tuple[float, float], ...]:
    return tuple((sample.at, float(max(each.descriptors for each in sample.processes.values()))) for sample in trace.samples if sample.processes)


def _layers(trace: Trace) -> list[ChartLayer]:
    """The processes that held most, the workers together, and what is left; shared memory is a layer of its own."""
    workers = frozenset(trace.of_role(ProcessRole.WORKER))
    most: dict[int, int] = {}
    for sample in trace.samples:
        for index, figures in sample.processes.items():
            if index not in workers:
                most[index] = max(most.get(index, 0), figures.anonymous)
    named = sorted(most, key=lambda index: -most[index])[: _LAYERS - 2]
    rest = frozenset(most) - frozenset(named)
    found = [ChartLayer(trace.name(index), _anonymous(trace, frozenset([index]))) for index in named]
    if workers:
        found.append(ChartLayer("workers", _anonymous(trace, workers)))
    if rest:
        found.append(ChartLayer("other processes", _anonymous(trace, rest)))
    found.append(ChartLayer("shared memory", [float(sum(each.shared for each in sample.processes.values())) for sample in trace.samples]))
    return [layer for layer in found if any(layer.values)]


def _anonymous(trace: Trace, indices: frozenset[int]) -> list[float]:
    return [float(sum(each.anonymous for index, each in sample.processes.items() if index in indices)) for sample in trace.samples]


def _growth(report: TraceReport) -> Iterator[str]:
    yield '<h2>Growth</h2>\n<div class="scroll"><table id="growth">\n<tr><th>What</th><th>Verdict</th><th></th></tr>\n'
    for growth in report.growths:
        known = growth.trend
        style = "grows" if known.shape.grows else "quiet"
        figures = f'data-shape="{escape(known.shape.value)}" data-rise="{known.rise:.0f}" data-minute="{known.a_minute:.0f}"'
        said = page.prose(trace_words.trend(growth, report.trace))
        who = one_line(growth.who) + (" descriptors" if growth.subject is JudgedSubject.DESCRIPTORS else "")
        yield f'<tr><td>{escape(who)}</td><td class="outcome {style}" {figures}>{escape(known.shape.value)}</td><td>{said}</td></tr>\n'
    yield "</table></div>\n"


def _explanation(report: TraceReport, view: View) -> Iterator[str]:
    explained = report.explanation.explained
    rest = [*trace_words.unexplained(report)]
    if not (explained or rest or report.next or report.lines):
        return
    yield "<h2>What explains it</h2>\n"
    for each in explained:
        yield _finding(each, view)
    yield from (f"<p>{page.prose(sentence)}</p>\n" for sentence in rest)
    if report.lines:
        rows = "".join(
            f"<tr><td><code>{escape(one_line(view.name(line.path)))}:{line.row}</code></td><td>{page.prose(line.who)}</td>"
            f'<td class="number">{trace_words.size(line.last)}</td><td class="number">{trace_words.size(line.a_minute)}</td></tr>\n'
            for line in report.lines
        )
        yield f'<table>\n<tr><th>Line</th><th>Process</th><th class="number">Held</th><th class="number">A minute</th></tr>\n{rows}</table>\n'
    yield from _list("Next", report.next)


def _finding(each: Explained, view: View) -> str:
    finding = each.finding
    return (
        f'<p class="finding"><code>{escape(view.spot(finding.place))}</code> <strong>{escape(finding.code or "")}</strong> {page.prose(finding.message)} '
        f'<span class="soft">({page.prose(trace_words.explains(each))})</span></p>\n'
    )


def _list(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield f"<h3>{title}</h3>\n<ul>" + "".join(f"<li>{page.prose(row)}</li>" for row in rows) + "</ul>\n"
