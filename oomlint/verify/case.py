"""The nouns of a verification: a case, what was read of it, and the verdict."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Self

from oomlint import registry
from oomlint.measurement import UNMEASURED
from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oomlint.finding import Finding, Place
    from oomlint.measurement import Measurement
    from oomlint.source import Source

Number = int | float  # what is counted stays whole, in a report and in a cache


class Part(StrEnum):
    """Which of the two programs."""

    BEFORE = "before"
    AFTER = "after"


class Outcome(StrEnum):
    """What came of a verification."""

    CONFIRMED = "confirmed"  # the symptom was shown before, is gone after, and the behaviour is the same
    NO_EFFECT = "no effect"  # the symptom was not shown before; the behaviour is the same
    REGRESSED = "regressed"  # the behaviour differs, or there is a new failure
    INCONCLUSIVE = "inconclusive"  # it could not be found out; the reason says why
    SHOWN = "symptom shown"  # there is no fix to apply; the code does what the finding says
    NOT_SHOWN = "symptom not shown"  # there is no fix to apply; the code did not do it here


class Fidelity(StrEnum):
    """What was run, best first."""

    COMMAND = "your command"
    FACTORY = "your factory"
    DATA = "your code on your data"
    SYNTHETIC = "your code on synthesised data"
    SLICED = "a piece cut out of your code"


@dataclass(frozen=True, slots=True)
class Case:
    """A finding, and the project before and after its fix.

    ``changes`` holds the whole content of every file that the fix touches, before and after, by absolute path. It is empty where there is no fix to
    apply: only the symptom can be measured then.
    """

    finding: Finding
    root: str  # the project's, absolute
    changes: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    by_hand: bool = False  # the changes are not a fix of oomlint's
    others: tuple[Place, ...] = ()  # of other findings that changes by hand are for as well: those nearest to one of them are judged with it
    beside: tuple[str, ...] = ()  # rules whose fixes are made both before and after: without them this one is not seen
    not_fixed: str = ""  # why there are no changes although a fix by hand was asked for: nothing is run then

    @property
    def code(self) -> str:
        """The rule's."""
        return self.finding.code or ""

    @property
    def plan(self) -> Measurement:
        """How the rule says that it is measured."""
        return plan_of(self.finding.code)

    @property
    def has_fix(self) -> bool:
        """Whether there is something to compare with."""
        return bool(self.changes)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Before, and after where there is something to compare with."""
        return tuple(Part) if self.has_fix else (Part.BEFORE,)

    def source(self, part: Part, path: str | None = None) -> Source:
        """A file of the project as it stands in one part; the finding's own by default. Raises SourceError."""
        path = path or self.finding.place.path
        pair = self.changes.get(path)
        return read_source(path, None if pair is None else pair[part is Part.AFTER])

    def tree(self, part: Part, path: str | None = None) -> ast.Module | None:
        """The program of a file in one part, by default of the finding's own; ``None`` where it is none."""
        try:
            return ast.parse(self.source(part, path).text)
        except (SourceError, OSError, SyntaxError, ValueError, RecursionError):
            return None


@cache
def plan_of(code: str | None) -> Measurement:
    """What a rule has declared; nothing for what is no rule."""
    return registry.load(code).measured_as if code in dict(registry.catalogue()) else UNMEASURED


@dataclass(frozen=True, slots=True)
class QuantityReading:
    """One quantity, before and after: a value for each repetition. ``after`` is empty where there is no fix.

    ``unit`` is "bytes", "seconds" or what is counted, in the plural ("nodes", "descriptors"). ``under`` says how it was run ("2 workers, spawn").
    """

    name: str
    unit: str
    before: tuple[Number, ...]
    after: tuple[Number, ...] = ()
    under: str = ""

    @classmethod
    def of(cls, name: str, unit: str, values: Iterable[float], under: str = "") -> Self:
        """From one value of each part: there is but one where there is no fix."""
        before, *after = map(float, values)
        return cls(name, unit, (before,), tuple(after), under)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A quantity over time or steps, for the charts: pairs of seconds or step, and value."""

    name: str
    unit: str
    axis: str  # "seconds" or "step"
    before: tuple[tuple[Number, Number], ...]
    after: tuple[tuple[Number, Number], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification has come to, with its evidence."""

    outcome: Outcome
    reason: str  # one sentence without a full stop: what was seen, or why nothing could be
    fidelity: Fidelity | None = None
    readings: tuple[QuantityReading, ...] = ()  # the one that decided comes first
    timelines: tuple[Timeline, ...] = ()
    assumptions: tuple[str, ...] = ()  # what was put in for what could not be known: "`num_workers` swept over 0 and 2"
    left_out: tuple[str, ...] = ()  # what of the user's code was not run: "line 12: failed with FileNotFoundError", "tqdm: replaced by a stand-in"
    seconds: float = 0.0
    sandbox: str = ""  # what kept the code in; empty where nothing did, or nothing was run
    next_step: str = ""  # of an inconclusive one: what would tell more
    cached: bool = field(default=False, compare=False)
