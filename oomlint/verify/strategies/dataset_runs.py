"""A dataset or a function on the session: found once, then built and read, or called, again and again, before and after the fix."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from oomlint.verify.case import Fidelity, Part
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import locate_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject

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
class Runs:
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
            failure = f"{part.value} the fix: {done.failure}" if self.session.case.mended else done.failure
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


def found(session: Session, subject: Subject, *, at_row: bool, part: Part = Part.BEFORE) -> Runs | str:
    """A dataset that can be built, that of the user's function where there is one, or why it cannot."""
    if session.options.factory:
        return by_factory(session)
    place = locate_subject.witness(session, subject, at_row=at_row)
    rows = locate_subject.statement(session, place) if place is not None and place.path == subject.path and part is Part.BEFORE else []
    answer = searched(session, subject, "dataset", rows, part)
    return f"`{subject.name}` could not be made: {answer}" if isinstance(answer, str) else Runs.of(session, subject, answer)


def scaled(runs: Runs, state: Any, size: int) -> Any:
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


def by_factory(session: Session) -> Runs:
    """The dataset of the user's own function."""
    return Runs(session, None, fidelity=Fidelity.FACTORY)
