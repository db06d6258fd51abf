"""The closing lines of a report: how much was found, what of it can be fixed, what was fixed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oomlint.finding import Safety, Severity
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View


def lines(findings: Sequence[Finding], files: int, *, fixed: Sequence[Finding] = (), mending: bool = False, unsafe: bool = False) -> Iterator[Line]:
    """The closing line. ``mending`` and ``unsafe`` say which fixes this run has applied."""
    if fixed:
        yield ((f"Fixed {count(len(fixed), 'finding')} in {count(len({item.place.path for item in fixed}), 'file')}.", "green"),)
    if not findings:
        if not fixed:
            yield ((f"No findings in {count(files, 'file')}.", ""),)  # plain: rich would double the time of a clean run
        return
    tally = Counter(item.severity for item in findings if item.code is not None)
    parts = [count(tally[severity], severity.value) for severity in Severity if tally[severity]]
    text = f"Found {_listed(parts)} in {count(files, 'file')}" if parts else ""
    unreadable = sum(item.code is None for item in findings)
    if unreadable:
        text += f"{'; ' if text else ''}{count(unreadable, 'file')} could not be checked"
    yield ((f"{text}{_fixable(findings, mending=mending, unsafe=unsafe)}.", "bold"),)


def fixed_lines(fixed: Sequence[Finding], view: View) -> Iterator[Line]:
    """What was fixed, by file and rule."""
    by_file: dict[str, Counter[tuple[str, str]]] = {}
    for item in sorted(fixed, key=lambda item: item.sort_key):
        by_file.setdefault(item.place.path, Counter())[item.code or "", item.name] += 1
    for path, tally in by_file.items():
        yield ((f"{visible(view.name(path))}:", "bold"),)
        for (code, name), number in sorted(tally.items()):
            yield ((f"  {number} ", ""), (code, "bold green"), (f" {name}", ""))


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _fixable(findings: Sequence[Finding], *, mending: bool, unsafe: bool) -> str:
    """The hint at the options that would fix what is left."""
    tally = Counter(item.fix.safety for item in findings if item.fix is not None and item.fix.edits)
    safe = 0 if mending else tally[Safety.SAFE]
    more = 0 if mending and unsafe else tally[Safety.UNSAFE]
    if safe and more:
        return f"; {safe} fixable with --fix, {more} more with --unsafe-fixes"
    if safe:
        return f"; {safe} fixable with --fix"
    return f"; {more} fixable with --fix --unsafe-fixes" if more else ""
