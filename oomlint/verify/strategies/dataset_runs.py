"""One dataset on the session: found once, then built and read again and again, before and after the fix."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.case import Fidelity, Part
from oomlint.verify.strategies import locate_subject

if TYPE_CHECKING:
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject

SECONDS: Final = 6.0  # for a search
TRIALS: Final = 150
SCALED: Final = 8 * 2**20  # bytes of data, where memory is measured


class Stopped(Exception):  # noqa: N818 -- nothing is wrong with the harness
    """It cannot be found out; the message says why."""


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
    """A dataset that was found, and what has been measured of it."""

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

    def arguments(self, part: Part) -> dict[str, Any]:
        """What the child has to know."""
        root = self.session.folder(part)
        if self.subject is None:
            return {"root": root, "factory": self.session.options.factory, "watched": self.session.path(part, self.watched or None)}
        watched = self.session.path(part, self.watched or None)
        return {
            "path": self.session.path(part, self.subject.path),
            "root": root,
            "cls": self.subject.name,
            "state": self.state,
            "watched": watched,
        }

    def ask(
        self, part: Part, call: str, repetition: int = 0, *, seconds: float = 20.0, alone: bool = False, fresh: bool = False, **named: Any
    ) -> dict[str, Any]:
        """Measure something. Raises Broken where the user's code raises, Stopped where there is no answer.

        ``alone`` runs it without the dataset, ``fresh`` in a fresh interpreter.
        """
        key = json.dumps([part, call, repetition, alone, fresh, named], sort_keys=True)
        if key not in self._known:
            subject = None if alone else self.arguments(part)
            done = self.session.run(part, call if ":" in call else f"driving.dataset_job:{call}", {"subject": subject, **named}, seconds=seconds, fresh=fresh)
            self._known[key] = (
                done.answer if done.answer is not None else Stopped(f"{part.value} the fix: {done.failure}" if self.session.case.mended else done.failure)
            )
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


def found(session: Session, subject: Subject, *, at_row: bool) -> Runs | str:
    """A dataset that can be built, or why it cannot."""
    path, root = session.path(Part.BEFORE, subject.path), session.folder(Part.BEFORE)
    reason = ""
    place = locate_subject.witness(session, subject, at_row=at_row)
    rows = locate_subject.statement(session, place) if place is not None and place.path == subject.path else []
    for known in [listed(subject.known), {}] if subject.known else [{}]:
        arguments = {"path": path, "root": root, "cls": subject.name, "known": known, "seconds": SECONDS, "trials": TRIALS, "rows": rows}
        done = session.run(Part.BEFORE, "search.find_inputs:dataset", arguments, seconds=2 * SECONDS + 5)
        answer = done.answer
        if answer and answer.get("found"):
            fidelity = Fidelity.DATA if answer.get("fidelity") == "data" else Fidelity.SYNTHETIC
            left_out = [*answer.get("skipped", ()), *(f"{name}: stood in for" for name in answer.get("stubbed", ()))]
            return Runs(session, subject, answer["state"], fidelity, list(answer.get("assumed", ())), left_out, reached=bool(answer.get("reached")))
        reason = reason or (str(answer.get("reason", "")) if answer else done.failure)
    return f"`{subject.name}` could not be made: {reason}"


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
