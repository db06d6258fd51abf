"""A JSON array of findings, for other programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from oomlint import facts
from oomlint.finding import Safety
from oomlint.output.urls import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oomlint.finding import Finding, Fix, Place
    from oomlint.output.view import View

_FIXED_BY: Final = {Safety.SAFE: "--fix", Safety.UNSAFE: "--fix --unsafe-fixes"}


def text(findings: Iterable[Finding], view: View, more: Callable[[Finding], dict[str, object]] = lambda _: {}) -> str:
    """The array, in ASCII, so that any encoding of the stream holds it. ``more`` gives what else there is to say of a finding."""
    return json.dumps([{**entry(finding, view), **more(finding)} for finding in findings], indent=2) + "\n"


def rows(findings: Iterable[Finding], view: View, more: Callable[[Finding], dict[str, object]] = lambda _: {}) -> str:
    """The same entries, each on a line."""
    return "".join(json.dumps({**entry(finding, view), **more(finding)}, separators=(",", ":")) + "\n" for finding in findings)


def entry(finding: Finding, view: View) -> dict[str, object]:
    """A finding as plain values."""
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "headline": finding.headline,
        "consequence": finding.consequence,
        "help": finding.help,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        **_place(finding.place, view),
        "related": [{**_place(place, view), "message": place.message} for place in finding.related],
        "fix": _fix(finding.fix, view) if finding.fix else None,
        "facts": [facts.entry(fact, lambda place: _place(place, view)) for fact in finding.facts],
        "weight": facts.weight_entry(finding.weight) if finding.weight else None,
        "url": page_of(finding.code) if finding.code else None,
        "fixed_by": _FIXED_BY.get(finding.fix.safety) if finding.fix and finding.fix.edits else None,
    }


def _place(place: Place, view: View) -> dict[str, object]:
    return {
        "filename": view.name(place.path),
        "cell": place.cell or None,
        "location": {"row": place.row, "column": place.column},
        "end_location": {"row": place.end_row, "column": place.end_column},
    }


def _fix(fix: Fix, view: View) -> dict[str, object]:
    return {
        "safety": fix.safety.value,
        "message": fix.message,
        "edits": [{**_place(edit.place, view), "content": edit.content} for edit in fix.edits],
    }
