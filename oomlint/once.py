"""What several findings say of the same container is said once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from oomlint.finding import AttributeFact, LoaderFact, Safety

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oomlint.finding import Finding, Place

_MOST_RELATED = 8


class Once(NamedTuple):
    """Findings that each say something of their own."""

    findings: list[Finding]
    stands_for: Mapping[Finding, Finding]  # by one that is given, the one that says it now


def said_once(findings: Iterable[Finding]) -> Once:
    """Findings on the loaders of one container become one: the gravest of them, with the calls of the other loaders as related places."""
    groups: dict[object, list[Finding]] = {}
    for item in findings:
        groups.setdefault(_subject(item) or item, []).append(item)
    kept: list[Finding] = []
    stands_for: dict[Finding, Finding] = {}
    for group in groups.values():
        first = min(group, key=_weight)
        if len(group) > 1:
            first = _with_others(first, [item for item in group if item is not first])
            stands_for.update(dict.fromkeys(group, first))
        kept.append(first)
    return Once(kept, stands_for)


def _subject(finding: Finding) -> object:
    """The code, and the container, or the function, that a finding on a loader is about; ``None`` for any other one."""
    held, loaders = finding.of_noun(AttributeFact), finding.of_noun(LoaderFact)
    if not loaders or loaders[0].place != finding.place:
        return None
    if not held and len(loaders) == 1 and loaders[0].option.endswith("_fn") and finding.related:
        # Without a fix to apply to each, the scripts of a project that repeat the same function are one.
        return finding.code, finding.related[0] if finding.fix is not None else finding.message
    return (finding.code, held[0].place) if held and held[0].place is not None else None


def _weight(finding: Finding) -> tuple[object, ...]:
    """What comes first: what is grave and sure, what has a fix, many workers; then the order of files and rows."""
    counts = [one.count or 0 for one in finding.of_noun(LoaderFact)[0].workers] if finding.of_noun(LoaderFact) else []
    mends = finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety is not Safety.DISPLAY
    return finding.severity.rank, finding.confidence.rank, not mends, -max(counts, default=0), finding.sort_key


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    """A finding with the places of others behind its own first one, which is that of the container."""
    calls = [item.place.saying("this loader has it, too") for item in sorted(others, key=lambda item: item.sort_key)]
    related = [*first.related[:1], *calls, *first.related[1:]]
    unique: dict[tuple[str, int, int], Place] = {(first.place.path, first.place.cell, first.place.row): first.place}
    for place in related:
        unique.setdefault((place.path, place.cell, place.row), place)
    shown = tuple(unique.values())[1 : _MOST_RELATED + 1]
    more = len(calls) - len([place for place in shown if place in calls])
    return replace(first, message=f"{first.message}; {more} more loaders have it" if more else first.message, related=shown)
