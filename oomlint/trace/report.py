"""All that a trace has come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from oomlint.trace.explaining import Explanation, explain, next_steps
from oomlint.trace.growth_verdicts import growths

if TYPE_CHECKING:
    from oomlint.trace.deepening import AllocationLine
    from oomlint.trace.growth_verdicts import GrowthVerdict
    from oomlint.trace.timeline import Trace


class Predicted(Struct, frozen=True):
    """What ``oomlint budget`` says of the command."""

    bytes: int
    moment: str
    complete: bool  # whether nothing is left out
    given: tuple[str, ...] = ()  # what it was told, as it was seen
    advice: tuple[str, ...] = ()  # whether it fits and what would, where the OOM killer has ended something


class TraceReport(Struct, frozen=True):
    """What was seen, what is said of it, and what explains it."""

    trace: Trace
    growths: tuple[GrowthVerdict, ...] = ()
    explanation: Explanation = field(default_factory=Explanation)
    next: tuple[str, ...] = ()
    lines: tuple[AllocationLine, ...] = ()  # of the program, whose memory grows
    deep: bool = False
    predicted: Predicted | None = None


def report(trace: Trace, lines: tuple[AllocationLine, ...] = (), *, deep: bool = False, isolated: bool = False) -> TraceReport:
    """Judge a trace, and have the code checked that it is of."""
    found = growths(trace)
    explanation = explain(trace, found, isolated=isolated)
    return TraceReport(trace, tuple(found), explanation, tuple(next_steps(trace, explanation, lines, deep=deep)), lines, deep)
