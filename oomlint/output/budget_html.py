"""A budget as one page that can be kept and sent: the stacked bar against the limit, the rows, the moments, the verdict."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from oomlint import __version__
from oomlint.amounts import readable
from oomlint.budget import table
from oomlint.budget.report import at_peak
from oomlint.budget.row import IN_WORKERS, MAIN_PROCESS, SHARED
from oomlint.budget.sizes import labels
from oomlint.output import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.budget.report import Budget

    Named = Callable[[str], str]

_COLOURS: Final = {MAIN_PROCESS: "var(--after)", IN_WORKERS: "var(--mild)", SHARED: "var(--open)"}
_WIDTH, _HEIGHT = 800, 46
_STYLE: Final = """
svg { width: 100%; height: auto; display: block } svg text { font: 12px system-ui, sans-serif; fill: var(--ink) }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; vertical-align: -1px }
.fits { color: var(--good) } .short { color: var(--bad) }
""".strip()


def text(budgets: Sequence[Budget], name: Named) -> str:
    """The page."""
    body = ["<h1>oomlint budget</h1>\n"]
    for one in budgets:
        body.extend(_of(one, name))
    body.append(f'<p class="soft">oomlint {escape(__version__)}. Nothing was run: the figures are added up from the code.</p>\n')
    return page.whole("oomlint budget", _STYLE, "".join(body))


def _of(budget: Budget, name: Named) -> Iterator[str]:
    verdict = budget.verdict
    yield f"<h2>{escape(table.title(budget, name))}</h2>\n"
    outcome = "fits" if verdict.fits else "short"
    given, judged, *more = (page.prose(line) for line in table.verdict(budget, name))
    yield f'<p class="outcome {outcome}" data-peak="{verdict.peak.bytes}">' + "</p>\n<p>".join((judged, given, *more)) + "</p>\n"
    yield from _bar(budget)
    head = "".join(
        f"<th{' class=' + chr(34) + 'number' + chr(34) if word == 'Bytes' else ''}>{word}</th>" for word in ("Who", "Formula", "Bytes", "Known", "Place")
    )
    yield f'<div class="scroll"><table class="rows">\n<tr>{head}</tr>\n'
    for group, heading in table.GROUPS.items():
        here = [row for row in budget.worth_showing if row.group == group]
        if here:
            yield f'<tr><th colspan="5">{heading}</th></tr>\n'
        for row in here:
            known = "" if row.bytes is None else f' data-bytes="{row.bytes}"'
            yield (
                f"<tr><td>{page.prose(row.what)}</td><td><code>{escape(str(row.size))}</code></td>"
                f'<td class="number"{known}>{table.amount(row)}</td><td>{row.known}</td><td><code>{escape(table.spot(row.place, name))}</code></td></tr>\n'
            )
    yield '</table></div>\n<div class="scroll"><table class="moments">\n<tr><th>Moment</th>'
    yield "".join(f'<th class="number">{word}</th>' for word in ("In all", "Of it /dev/shm", "Device")) + "<th>Left out</th></tr>\n"
    for one in verdict.totals:
        cells = "".join(f'<td class="number" data-bytes="{size}">{readable(size)}</td>' for size in (one.bytes, one.shared, one.device))
        missing = escape(", ".join(labels((*one.missing, *one.device_missing))))
        yield f"<tr><td>{one.moment}</td>{cells}<td>{missing}</td></tr>\n"
    yield "</table></div>\n"


def _bar(budget: Budget) -> Iterator[str]:
    """Who holds the peak, against the limit."""
    shares = [(group, size) for group, size in at_peak(budget) if size]
    limit = budget.limits.ram.size if budget.limits.ram is not None else None
    scale = _WIDTH / max(sum(size for _, size in shares), limit or 0, 1)
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="who holds the peak">\n'
    at = 0.0
    for group, size in shares:
        yield f'<rect x="{at:.1f}" y="0" width="{size * scale:.1f}" height="24" fill="{_COLOURS[group]}" data-bytes="{size}"/>\n'
        at += size * scale
    if limit is not None:
        x = limit * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="30" stroke="var(--bad)" stroke-width="2"/>\n'
        yield f'<text x="{min(x, _WIDTH - 4):.1f}" y="43" text-anchor="end">limit {readable(limit)}</text>\n'
    yield "</svg>\n<p>"
    yield "".join(f'<span class="key" style="background: {_COLOURS[group]}"></span>{table.GROUPS[group]} {readable(size)}' for group, size in shares)
    yield f", at the moment <code>{budget.verdict.peak.moment}</code></p>\n"
