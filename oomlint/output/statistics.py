"""How often each rule fires, instead of the findings."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from oomlint.finding import Safety
from oomlint.output.concise import STYLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Finding, Severity
    from oomlint.output.view import Line

_KEYS: Final = ("code", "name", "severity", "count", "fixable")


def lines(findings: Iterable[Finding]) -> Iterator[Line]:
    """Number, code and name, the most frequent first, and how many have a fix that can be applied."""
    rows = _rows(findings)
    width = max((len(str(number)) for *_, number, _ in rows), default=0)
    for code, name, severity, number, fixable in rows:
        yield ((f"{number:>{width}}  ", ""), (code or "-", STYLES[severity]), (f"  {name}{f' (up to {fixable} fixable)' if fixable else ''}", ""))


def text(findings: Iterable[Finding], *, rows: bool = False) -> str:
    """The same as a JSON array, or as JSON in rows."""
    entries = [dict(zip(_KEYS, row, strict=True)) for row in _rows(findings)]
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries) if rows else json.dumps(entries, indent=2) + "\n"


def _rows(findings: Iterable[Finding]) -> list[tuple[str | None, str, Severity, int, int]]:
    """Code, name, gravest severity, number of findings, and how many of them have a fix that can be applied."""
    tally: Counter[tuple[str | None, str]] = Counter()
    fixable: Counter[tuple[str | None, str]] = Counter()
    gravest: dict[tuple[str | None, str], Severity] = {}
    for item in findings:
        key = (item.code, item.name)
        tally[key] += 1
        fixable[key] += item.fix is not None and bool(item.fix.edits) and item.fix.safety is not Safety.DISPLAY
        gravest[key] = min(gravest.get(key, item.severity), item.severity, key=lambda severity: severity.rank)
    order = sorted(tally, key=lambda key: (-tally[key], key[0] or ""))
    return [(*key, gravest[key], tally[key], fixable[key]) for key in order]
