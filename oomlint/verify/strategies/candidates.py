"""What the strategies for datasets and for functions share: one candidate after the other is tried, and what is seen of it becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from oomlint.verify import thresholds
from oomlint.verify.case import Fidelity, Outcome, Part, Reading, Timeline, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.dataset_runs import Broken, TooSmall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.dataset_runs import Runs
    from oomlint.verify.strategies.locate_subject import Subject


_Tried = TypeVar("_Tried", bound="Runs")


def candidates(session: Session, every: Iterable[Subject], found: Callable[[Subject], _Tried | str]) -> Iterator[_Tried | str]:
    """Each subject with data that it runs on; again with others, made up, where the user's own are too few to tell."""
    for subject in every:
        runs = found(subject)
        yield runs
        if isinstance(runs, str) or runs.fidelity is not Fidelity.DATA or not runs.small:
            continue
        with session.without_data():
            other = found(subject)
            if not isinstance(other, str) and other.fidelity is Fidelity.SYNTHETIC:
                other.assumed.append("the project's own data are too few to tell: others are made up in their place")
                yield other


def first(every: Iterable[_Tried | str], judged: Callable[[_Tried], Verdict], again: Callable[[_Tried, Broken], None], none: str) -> Verdict:
    """The verdict on the first candidate that says something; else all reasons why none does, ``none`` where there was no candidate.

    A candidate that is a text could not be made: it is the reason. ``again`` runs the program before twice where the one after has raised.
    """
    reasons: list[str] = []
    best: Verdict | None = None
    for runs in every:
        if isinstance(runs, str):
            reasons.append(runs)
            continue
        try:
            verdict = judged(runs)
        except Stopped as stop:
            runs.small = isinstance(stop, TooSmall)
            verdict = evidence(runs, Outcome.INCONCLUSIVE, str(stop))
        except Broken as error:
            verdict = _broken(runs, error, again)
        if verdict.outcome is not Outcome.INCONCLUSIVE:
            return verdict
        reasons.append(verdict.reason)
        best = max(best or verdict, verdict, key=lambda item: len(item.readings))
    reason = "; ".join(dict.fromkeys(reasons))
    return Verdict(Outcome.INCONCLUSIVE, reason or none) if best is None else replace(best, reason=reason)


def _broken(runs: _Tried, error: Broken, again: Callable[[_Tried, Broken], None]) -> Verdict:
    """A verdict on an exception of the user's code: it is the fix's where the program before has run twice without it."""
    if error.part is Part.BEFORE:
        return evidence(runs, Outcome.INCONCLUSIVE, f"the program itself fails on the data: {error}")
    try:
        again(runs, error)
    except (Stopped, Broken) as other:
        return evidence(runs, Outcome.INCONCLUSIVE, f"the fixed program fails ({error}), and so does the program before: {other}")
    return evidence(runs, Outcome.REGRESSED, f"after the fix: {error}")


def evidence(runs: Runs, outcome: Outcome, reason: str, signs: Sequence[Sign] = (), deciding: Sequence[Sign] = ()) -> Verdict:
    """A verdict with all that was read. What decided comes first: else the signs that were shown."""
    found = list(deciding or [item for item in signs if item.shown])
    every = [*found, *(item for item in signs if item not in found)]
    name = f"{runs.subject.title}: " if runs.subject is not None and outcome is Outcome.INCONCLUSIVE else ""
    return Verdict(
        outcome,
        f"{name}{reason}",
        runs.fidelity,
        readings=tuple(item.reading for item in every),
        timelines=tuple(item.timeline for item in every if item.timeline is not None),
        assumptions=tuple(dict.fromkeys(runs.assumed)),
        left_out=tuple(dict.fromkeys(runs.left_out)),
    )


def weighed(runs: Runs, signs: Sequence[Sign], plain: str, same: str, difference: Callable[[], str] = str) -> Verdict:
    """The verdict on what was measured. ``plain`` says what is so where nothing was seen, ``same`` what is the same after.

    ``difference`` looks closer before anything is confirmed: how the behaviour differs, empty where it does not.
    """
    seen = [item for item in signs if item.shown]
    if not runs.session.case.mended:
        return evidence(runs, Outcome.SHOWN if seen else Outcome.NOT_SHOWN, seen[0].words if seen else plain, signs)
    failing = next((item for item in signs if item.strict and item.worse), None)
    if failing is not None:
        return evidence(runs, Outcome.REGRESSED, failing.words, signs)
    gone = [item for item in seen if item.gone]
    rest = next((item for item in seen if item.strict and not item.gone), None if gone else next(iter(seen), None))
    if rest is not None:
        return evidence(runs, Outcome.INCONCLUSIVE, f"the fix does not end it here: {rest.words}", signs)
    if not gone:
        return evidence(runs, Outcome.NO_EFFECT, f"{plain}; {same}", signs)
    other = difference()
    if other:
        return evidence(runs, Outcome.REGRESSED, other, signs)
    return evidence(runs, Outcome.CONFIRMED, f"{gone[0].words}; {same}", signs, gone)


HANDLES = (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors"))


@dataclass(frozen=True, slots=True)
class Sign:
    """A symptom: whether it was seen before, whether it is gone after, and the figures."""

    shown: bool
    gone: bool  # whether it is no longer there after the fix; without meaning where it was not shown
    words: str  # of both parts: "8.1 MB are read for a sample before, 0.3 MB after"
    reading: Reading
    timeline: Timeline | None = None
    strict: bool = False  # an error or a leak: as long as it is there, nothing is confirmed
    worse: bool = False  # there is more of it after the fix


def quantity(name: str, values: Sequence[float], *, shown: bool, gone: bool, unit: str = "bytes", verb: str = "", strict: bool = False) -> Sign:
    """One number for each part."""
    words = f"{verb or name}: {thresholds.amount(values[0], unit)}" + (f" before, {thresholds.amount(values[1], unit)} after" if len(values) > 1 else "")
    worse = len(values) > 1 and values[1] > max(values[0], 0)
    return Sign(shown, gone, words, Reading(name, unit, (values[0],), tuple(values[1:])), strict=strict, worse=worse)


def failure(title: str, name: str, errors: Sequence[str], under: str) -> Sign:
    """Whether something fails, and with what."""
    reading = Reading(name, "errors", (float(bool(errors[0])),), tuple(float(bool(item)) for item in errors[1:]), under)
    words = f"{title}: {errors[0] or 'works'}" + (f" before, {errors[1] or 'works'} after" if len(errors) > 1 else "")
    mended = len(errors) > 1
    return Sign(bool(errors[0]), mended and not errors[1], words, reading, strict=True, worse=mended and bool(errors[1]) and not errors[0])


def left_open(answers: Sequence[dict[str, Any]], of: str, under: str, told: str = "") -> Iterator[Sign]:
    """What each sample or call leaves open. ``told`` is added to the words."""
    for key, name in HANDLES:
        found = thresholds.handles(name, *(answer[key] for answer in answers))
        rates = [found.before.a_step, *([found.after.a_step] if found.after else [])]
        reading = Reading(f"{name} that a {of} leaves open", name, (rates[0],), tuple(rates[1:]), under)
        line = Timeline(f"{name} open{told}", name, "step", *(tuple(enumerate(map(float, answer[key]))) for answer in answers))
        yield Sign(found.shown, found.ended, f"{found.words}{told}", reading, line, strict=True, worse=len(rates) > 1 and rates[1] > max(rates[0], 0))
