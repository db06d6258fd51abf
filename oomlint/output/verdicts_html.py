"""Verdicts as one page that can be kept and sent: a table, and the evidence of each with its charts. It loads nothing and runs nothing."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from oomlint import __version__
from oomlint.fixing import Change
from oomlint.output import diff, page
from oomlint.output.verdicts_numbers import amount, how, measured, total
from oomlint.output.verdicts_svg import STYLE, bars, lines
from oomlint.output.view import visible
from oomlint.source import SourceError
from oomlint.verify.case import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import View
    from oomlint.verify.case import Case, QuantityReading, Verdict

_DIFF_CLASSES: Final = {"green": "added", "red": "removed", "cyan": "soft"}
_OPEN_ROWS: Final = 5  # a longer list is folded


def text(items: Sequence[Item], view: View, python: str) -> str:
    """The page."""
    summary = total(items) if items else "Nothing to verify."
    body = [f"<h1>oomlint verify</h1>\n<p>{escape(summary)}</p>\n", *_table(items, view)]
    for number, item in enumerate(items, 1):
        body += _section(number, item, view, python)
    foot = f'<p class="soft">oomlint {escape(__version__)}. Figures hold for what was run here; they promise nothing of other inputs and machines.</p>\n'
    return page.whole("oomlint verify", STYLE, "".join(body) + foot)


def _table(items: Sequence[Item], view: View) -> Iterator[str]:
    if not items:
        return
    yield '<div class="scroll"><table>\n<tr><th>Finding</th><th>Rule</th><th>Verdict</th><th>Why</th><th class="number">Time</th></tr>\n'
    for number, (case, verdict) in enumerate(items, 1):
        yield (
            f'<tr><td class="place"><a href="#v{number}"><code>{escape(view.spot(case.finding.place))}</code></a></td><td>{escape(case.code)}</td>'
            f'<td>{_outcome(verdict)}</td><td class="prose">{page.prose(verdict.reason)}</td>'
            f'<td class="number">{escape(amount(verdict.seconds, "seconds")) if verdict.seconds else ""}</td></tr>\n'
        )
    yield "</table></div>\n"


def _outcome(verdict: Verdict) -> str:
    name = verdict.outcome.value
    return f'<span class="outcome {name.replace(" ", "-")}">{name}</span>' + (' <span class="soft">(cached)</span>' if verdict.cached else "")


def _section(number: int, item: Item, view: View, python: str) -> Iterator[str]:
    case, verdict = item
    finding = case.finding
    yield f'<section id="v{number}">\n<h2><code>{escape(view.spot(finding.place))}</code> {escape(case.code)} {_outcome(verdict)}</h2>\n'
    yield f'<p class="soft">{page.prose(finding.message)}</p>\n<p>{page.prose(verdict.reason)}</p>\n'
    if verdict.next_step:
        yield f"<p>Next: {page.prose(verdict.next_step)}</p>\n"
    for reading in verdict.readings[:1]:
        yield f"<h3>{_name(reading)}</h3>\n{bars(reading)}\n"
    yield from _readings(verdict.readings)
    for timeline in verdict.timelines:
        if not any(y for _, y in (*timeline.before, *timeline.after)):
            continue  # nothing but zeros
        yield f"<h3>{page.prose(timeline.name)}</h3>\n{lines(timeline)}\n"
    if how(verdict, python):
        yield f"<h3>How it was run</h3>\n<p>{escape(how(verdict, python))}</p>\n"
    yield from _list("Assumed", verdict.assumptions)
    yield from _list("Left out", verdict.left_out)
    yield from _difference(case, view)
    yield "</section>\n"


def _name(reading: QuantityReading) -> str:
    return page.prose(reading.name) + (f' <span class="soft">{page.prose(reading.under)}</span>' if reading.under else "")


def _readings(readings: Sequence[QuantityReading]) -> Iterator[str]:
    if len(readings) <= 1:
        return
    runs = 2 if any(reading.after for reading in readings) else 1  # without a fix there is none after it
    heads = "".join(f'<th class="number">{word}</th>' for word in ("Before", "After")[:runs])
    yield f'<div class="scroll"><table>\n<tr><th>Reading</th>{heads}</tr>\n'
    for reading in readings:
        measures = (reading.before, reading.after)[:runs]
        cells = "".join(f'<td class="number">{escape(measured(values, reading.unit)) if values else ""}</td>' for values in measures)
        yield f"<tr><td>{_name(reading)}</td>{cells}</tr>\n"
    yield "</table></div>\n"


def _list(title: str, rows: Sequence[str]) -> Iterator[str]:
    if not rows:
        return
    listed = "<ul>" + "".join(f"<li>{page.prose(row)}</li>" for row in rows) + "</ul>\n"
    if len(rows) > _OPEN_ROWS:
        yield f"<details><summary>{title} ({len(rows)})</summary>\n{listed}</details>\n"
    else:
        yield f"<h3>{title}</h3>\n{listed}"


def _difference(case: Case, view: View) -> Iterator[str]:
    """What the fix changes."""
    rows: list[str] = []
    for path, (before, after) in sorted(case.changes.items()):
        try:
            encoding = case.source(Part.BEFORE, path).encoding
            shown = list(diff.lines([Change(path, encoding, before, after)], view))
        except (SourceError, LookupError):
            continue
        for line in shown:
            style = next((_DIFF_CLASSES[name] for _, name in line if name in _DIFF_CLASSES), "")
            said = escape(visible("".join(part for part, _ in line)))
            rows.append(f'<span class="{style}">{said}</span>' if style else said)
    if rows:
        yield "<h3>The fix</h3>\n<pre>" + "\n".join(rows) + "</pre>\n"
