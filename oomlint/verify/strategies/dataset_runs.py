"""A dataset or a function on the session: found once, then built and read, or called, again and again, before and after the fix.

One candidate after the other is tried, and what is seen of it, as signs of the symptom, becomes a verdict.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from oomlint.verify import thresholds
from oomlint.verify.case import Fidelity, Outcome, Part, QuantityReading, Timeline, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import locate_subject
from oomlint.verify.strategies.growth_metrics import MetricKind, Signal, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject
    from oomlint.verify.thresholds import Price


SECONDS: Final = 6.0  # for a search
TRIALS: Final = 150
SCALED: Final = 8 * 2**20  # bytes of data, where memory is measured


class TooSmall(Stopped):
    """There are too few data to tell."""


class Broken(Exception):  # noqa: N818 -- the same
    """The user's code raised; the message says what, and where."""

    def __init__(self, part: Part, told: dict[str, Any]) -> None:
        super().__init__(f"{told['error']} ({told['stage']})")
        self.part = part
        self.told = told


@dataclass(slots=True)
class DatasetRuns:
    """What was found, a dataset here, and what has been measured of it."""

    job: ClassVar[str] = "driving.dataset_job"

    session: Session
    subject: Subject | None  # ``None`` with a factory of the user
    state: Any = None
    fidelity: Fidelity = Fidelity.SYNTHETIC
    assumed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # of the finding's statement, in the program before
    watched: str = ""  # the file that they stand in
    reached: bool = False  # whether the search has seen them run
    withheld: list[str] = field(default_factory=list)  # optional parameters that the program passes something for, and these runs do not
    small: bool = False  # whether the data turned out to be too few to tell
    _known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session, subject: Subject, answer: dict[str, Any]) -> Self:
        """From what the search has answered."""
        fidelity = Fidelity.DATA if answer.get("fidelity") == "data" else Fidelity.SYNTHETIC
        left_out = [*answer.get("skipped", ()), *session.stood_in(subject.path, "" if subject.name == locate_subject.SCRIPT else subject.name, answer)]
        return cls(session, subject, answer["state"], fidelity, list(answer.get("assumed", ())), left_out, reached=bool(answer.get("reached")))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Before, and after where there is a fix."""
        return self.session.case.parts

    def arguments(self, part: Part) -> dict[str, Any]:
        """What the child has to know."""
        where = {"root": self.session.folder(part), "watched": self.session.path(part, self.watched or None)}
        if self.subject is None:
            return {"subject": {**where, "factory": self.session.options.factory}}
        return {"subject": {**where, "path": self.session.path(part, self.subject.path), "name": self.subject.name, "state": self.state}}

    def ask(
        self, part: Part, call: str, repetition: int = 0, *, seconds: float = 20.0, alone: bool = False, fresh: bool = False, **named: Any
    ) -> dict[str, Any]:
        """Measure something. Raises Broken where the user's code raises, Stopped where there is no answer.

        ``alone`` runs it without the dataset, ``fresh`` in a fresh interpreter.
        """
        key = json.dumps([part, call, repetition, alone, fresh, named], sort_keys=True)
        if key not in self._known:
            arguments = {"subject": None} if alone else self.arguments(part)
            done = self.session.run(part, call if ":" in call else f"{self.job}:{call}", {**arguments, **named}, seconds=seconds, fresh=fresh)
            failure = f"{part.value} the fix: {done.failure}" if self.session.case.has_fix else done.failure
            self._known[key] = Stopped(failure) if done.answer is None else done.answer
        answer: dict[str, Any] | Stopped = self._known[key]
        if isinstance(answer, Stopped):
            raise answer
        if answer["failed"]:
            raise Broken(part, answer["failed"])
        return answer

    def grow(self, state: Any) -> None:
        """Go on with other data."""
        if state is not self.state:
            self.state = state
            self._known.clear()

    def look(self, part: Part, repetition: int = 0, *, seconds: float = 20.0) -> dict[str, Any]:
        """What reading the first samples in the main process tells."""
        return self.ask(part, "look", repetition, seconds=seconds, rows=self.rows if part is Part.BEFORE and not self.reached else [])

    def memory(self, part: Part, **named: Any) -> dict[str, Any]:
        """Bytes that it holds, and takes on the way there."""
        return self.ask(part, "measuring.dataset_memory:memory", **named)


def listed(known: dict[str, Any]) -> dict[str, list[Any]]:
    """Known arguments as the search takes them: a list of values for each."""
    return {name: [value] for name, value in known.items()}


def searched(session: Session, subject: Subject, kind: str, rows: Sequence[int] = (), part: Part = Part.BEFORE) -> dict[str, Any] | str:
    """What the search for data and arguments of a "dataset" or a "function" answers, or why nothing was found."""
    reason = ""
    for known in [listed(subject.known), {}] if subject.known else [{}]:
        arguments = {"path": session.path(part, subject.path), "root": session.folder(part), "name": subject.name, "known": known, "rows": list(rows)}
        done = session.run(part, f"search.find_inputs:{kind}", {**arguments, "seconds": SECONDS, "trials": TRIALS}, seconds=2 * SECONDS + 5)
        if done.answer and done.answer.get("found"):
            answer: dict[str, Any] = done.answer
            return answer
        reason = reason or (str(done.answer.get("reason", "")) if done.answer else done.failure)
    return reason


def found(session: Session, subject: Subject, *, at_row: bool, part: Part = Part.BEFORE) -> DatasetRuns | str:
    """A dataset that can be built, that of the user's function where there is one, or why it cannot."""
    if session.options.factory:
        return DatasetRuns(session, None, fidelity=Fidelity.FACTORY)
    place = locate_subject.witness(session, subject, at_row=at_row)
    rows = locate_subject.statement(session, place) if place is not None and place.path == subject.path and part is Part.BEFORE else []
    answer = searched(session, subject, "dataset", rows, part)
    return f"`{subject.name}` could not be made: {answer}" if isinstance(answer, str) else DatasetRuns.of(session, subject, answer)


def scaled(runs: DatasetRuns, state: Any, size: int) -> Any:
    """A state with about so many bytes of data; ``None`` where the program does not bear it."""
    if runs.subject is None:
        return None
    arguments = {
        "path": runs.session.path(Part.BEFORE, runs.subject.path),
        "root": runs.session.folder(Part.BEFORE),
        "cls": runs.subject.name,
        "state": state,
        "size": size,
    }
    answer = runs.session.run(Part.BEFORE, "search.find_inputs:scaled", arguments, seconds=2 * SECONDS).answer
    return answer["state"] if answer and answer.get("found") else None


def by_factory(session: Session) -> DatasetRuns:
    """The dataset of the user's own function."""
    return DatasetRuns(session, None, fidelity=Fidelity.FACTORY)


# -- the verdict -------------------------------------------------------------------------------------------------------


_Tried = TypeVar("_Tried", bound="DatasetRuns")


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


def first(every: Iterable[_Tried | str], judged: Callable[[_Tried], Verdict], again: Callable[[_Tried, Broken], object], none: str) -> Verdict:
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


def _broken(runs: _Tried, error: Broken, again: Callable[[_Tried, Broken], object]) -> Verdict:
    """A verdict on an exception of the user's code: it is the fix's where the program before has run twice without it."""
    if error.part is Part.BEFORE:
        return evidence(runs, Outcome.INCONCLUSIVE, f"the program itself fails on the data: {error}")
    try:
        again(runs, error)
    except (Stopped, Broken) as other:
        return evidence(runs, Outcome.INCONCLUSIVE, f"the fixed program fails ({error}), and so does the program before: {other}")
    return evidence(runs, Outcome.REGRESSED, f"after the fix: {error}")


def evidence(runs: DatasetRuns, outcome: Outcome, reason: str, signs: Sequence[Sign] = (), deciding: Sequence[Sign] = ()) -> Verdict:
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


def concluded(runs: DatasetRuns, difference: Callable[[], str], judged: Callable[[], Verdict], prices: Callable[[], list[Price]], what: str) -> Verdict:
    """The verdict. Where there is a fix the behaviour comes before it, and then what both programs take; ``what`` says of what that may not be known."""
    if not runs.session.case.has_fix:
        return judged()
    other = difference()
    verdict = evidence(runs, Outcome.REGRESSED, other) if other else judged()
    try:
        runs.session.prices += prices() if verdict.outcome is not Outcome.REGRESSED else ()
    except (Broken, Stopped) as error:
        return replace(verdict, left_out=(*verdict.left_out, f"what {what}: {error}"))
    return verdict


def weighed(runs: DatasetRuns, signs: Sequence[Sign], plain: str, same: str, difference: Callable[[], str] = str) -> Verdict:
    """The verdict on what was measured. ``plain`` says what is so where nothing was seen, ``same`` what is the same after.

    ``difference`` looks closer before anything is confirmed: how the behaviour differs, empty where it does not.
    """
    seen = [item for item in signs if item.shown]
    if not runs.session.case.has_fix:
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


# -- signs -------------------------------------------------------------------------------------------------------------


HANDLES = (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors"))


@dataclass(frozen=True, slots=True)
class Sign:
    """A symptom: whether it was seen before, whether it is gone after, and the figures."""

    shown: bool
    gone: bool  # whether it is no longer there after the fix; without meaning where it was not shown
    words: str  # of both parts: "8.1 MB are read for a sample before, 0.3 MB after"
    reading: QuantityReading
    timeline: Timeline | None = None
    strict: bool = False  # an error or a leak: as long as it is there, nothing is confirmed
    worse: bool = False  # there is more of it after the fix


def quantity(name: str, values: Sequence[float], *, shown: bool, gone: bool, unit: str = "bytes", verb: str = "", strict: bool = False) -> Sign:
    """One number for each part."""
    words = f"{verb or name}: {thresholds.amount(values[0], unit)}" + (f" before, {thresholds.amount(values[1], unit)} after" if len(values) > 1 else "")
    worse = len(values) > 1 and values[1] > max(values[0], 0)
    return Sign(shown, gone, words, QuantityReading.of(name, unit, values), strict=strict, worse=worse)


def failure(title: str, name: str, errors: Sequence[str], under: str) -> Sign:
    """Whether something fails, and with what."""
    reading = QuantityReading.of(name, "errors", map(bool, errors), under)
    words = f"{title}: {errors[0] or 'works'}" + (f" before, {errors[1] or 'works'} after" if len(errors) > 1 else "")
    fixed = len(errors) > 1
    return Sign(bool(errors[0]), fixed and not errors[1], words, reading, strict=True, worse=fixed and bool(errors[1]) and not errors[0])


def left_open(answers: Sequence[dict[str, Any]], of: str, under: str, told: str = "") -> Iterator[Sign]:
    """What each sample or call leaves open. ``told`` is added to the words."""
    for key, name in HANDLES:
        found = measured(Signal(key, name, name, MetricKind.LEVEL), *(answer[key] for answer in answers))
        rates = found.rates
        reading = QuantityReading.of(f"{name} that a {of} leaves open", name, rates, under)
        line = Timeline(f"{name} open{told}", name, "step", *(tuple(enumerate(map(float, answer[key]))) for answer in answers))
        yield Sign(found.shown, found.ended, f"{found.words}{told}", reading, line, strict=True, worse=len(rates) > 1 and rates[1] > max(rates[0], 0))
