"""The closing lines of a report: how much was found, what of it can be fixed, what was fixed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from oomlint.amounts import readable
from oomlint.finding import Safety, Severity
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View

_TOLD: Final = 1 << 20  # bytes that are worth a word
_HEAVIEST: Final = 3  # findings that are named


def lines(findings: Sequence[Finding], files: int, *, fixed: Sequence[Finding] = (), tried: Collection[Safety] = (), left_out: int = 0) -> Iterator[Line]:
    """The closing line. ``tried`` are the fixes that this run has applied where it could, ``left_out`` says where it could not."""
    if fixed:
        edited = {path for item in fixed for path in _edited(item)}
        yield ((f"Fixed {count(len(fixed), 'finding')} in {count(len(edited), 'file')}{leaving(left_out)}.", "green"),)
    if not findings:
        if not fixed:
            yield ((f"No findings in {count(files, 'file')}.", ""),)  # plain: rich would double the time of a clean run
        return
    known = [item for item in findings if item.code is not None]
    text = f"Found {counts(known)} in {where(known, files)}" if known else ""
    unreadable = len(findings) - len(known)
    if unreadable:
        text += f"{'; ' if text else ''}{count(unreadable, 'file')} could not be checked"
    yield ((f"{text}{_fixable(findings, tried)}.", "bold"),)


def counts(findings: Iterable[Finding]) -> str:
    """How many findings there are of each severity."""
    tally = Counter(item.severity for item in findings)
    parts = [count(tally[severity], severity.value) for severity in Severity if tally[severity]]
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def where(findings: Iterable[Finding], files: int) -> str:
    """How many files have findings, and how many were checked where that is another number."""
    found = len({item.place.path for item in findings})
    return count(found, "file") + (f" ({files} checked)" if files != found else "")


def explained(findings: Iterable[Finding]) -> Iterator[Line]:
    """The command that says more of what was found, once for all of it."""
    codes = {item.code for item in findings if item.code is not None}
    if codes:
        yield ((f"More about a rule: oomlint rule {'CODE' if len(codes) > 1 else min(codes)}", ""),)


def hidden(findings: Sequence[Finding]) -> Iterator[Line]:
    """What is not shown because of its severity, and the option that shows it."""
    lowest = max((item.severity for item in findings), key=lambda severity: severity.rank)
    yield ((f"{counts(findings)} not shown (--severity {lowest.value}).", ""),)


def heaviest(findings: Sequence[Finding], view: View) -> Iterator[Line]:
    """The findings of the most bytes, on a line, where there are more of them. One whose bytes are not known cannot be said to weigh more than another."""
    weighed = sorted((item for item in findings if _total(item) >= _TOLD), key=lambda item: (-_total(item), item.sort_key))
    if weighed and len(findings) > _HEAVIEST:
        yield ((f"Heaviest: {', '.join(_heavy(item, view) for item in weighed[:_HEAVIEST])}.", ""),)


def _heavy(item: Finding, view: View) -> str:
    """``OOM110 data.py:12:5 (16.8 GiB)``: the bytes in all."""
    least = "" if item.weight is not None and item.weight.bytes.exact is not None else "at least "
    return f"{item.code} {view.spot(item.place)} ({least}{readable(_total(item))})"


def _total(item: Finding) -> int:
    """The bytes in all, as far as they are known."""
    return (item.weight.total if item.weight else None) or 0


def fixed_lines(fixed: Sequence[Finding], view: View) -> Iterator[Line]:
    """What was fixed, by file and rule: one finding may stand for places in several files."""
    by_file: dict[str, Counter[tuple[str, str]]] = {}
    places: Counter[tuple[str, str, str]] = Counter()
    for item in fixed:
        for path, number in _edited(item).items():
            by_file.setdefault(path, Counter())[item.code or "", item.name] += 1
            places[path, item.code or "", item.name] += number
    for path, tally in sorted(by_file.items()):
        yield ((f"{visible(view.name(path))}:", "bold"),)
        for (code, name), number in sorted(tally.items()):
            edited = places[path, code, name]
            yield ((f"  {number} ", ""), (code, "bold green"), (f" {name}{f' (at {edited} places)' if edited > number else ''}", ""))


def _edited(item: Finding) -> Counter[str]:
    """How many places of which files the fix of a finding changes."""
    return Counter(edit.place.path for edit in item.fix.edits) if item.fix is not None else Counter()


def count(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def leaving(left_out: int) -> str:
    """How many fixes were tried and not applied, behind how many were."""
    return f"; {count(left_out, 'fix', 'fixes')} left out" if left_out else ""


def _fixable(findings: Sequence[Finding], tried: Collection[Safety]) -> str:
    """The hint at the options that would fix what is left. Which fixes do harm, and are left out, shows only when they are tried.

    To try them would take several times as long as the check.
    """
    tally = Counter(item.fix.safety for item in findings if item.fix and item.fix.edits)
    safe, more = (0 if safety in tried else tally[safety] for safety in (Safety.SAFE, Safety.UNSAFE))
    parts = [f"up to {safe} fixable with --fix"] if safe else []
    if more:
        parts.append(f"{more} more with --unsafe-fixes" if safe else f"up to {more} fixable with --fix --unsafe-fixes")
    return f"; {', '.join(parts)}" if parts else ""
