"""What the strategies for datasets and for functions share: one candidate after the other is tried, and what is seen of it becomes a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from oomlint.verify.case import Fidelity, Outcome, Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.dataset_runs import Broken, TooSmall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.dataset_runs import Runs
    from oomlint.verify.strategies.locate_subject import Subject
    from oomlint.verify.strategies.signs import Sign


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
