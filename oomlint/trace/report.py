"""All that a trace has come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from oomlint.trace.explaining import Explanation, explain, next_steps
from oomlint.trace.judging import growths

if TYPE_CHECKING:
    from oomlint.trace.deepening import Line
    from oomlint.trace.judging import Growth
    from oomlint.trace.timeline import Trace


class Predicted(Struct, frozen=True):
    """What ``oomlint budget`` says of the command."""

    bytes: int
    moment: str
    complete: bool  # whether nothing is left out
    given: tuple[str, ...] = ()  # what it was told, as it was seen


class Report(Struct, frozen=True):
    """What was seen, what is said of it, and what explains it."""

    trace: Trace
    growths: tuple[Growth, ...] = ()
    explanation: Explanation = field(default_factory=Explanation)
    next: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()  # of the program, whose memory grows
    deep: bool = False
    predicted: Predicted | None = None


def report(trace: Trace, lines: tuple[Line, ...] = (), *, deep: bool = False, isolated: bool = False) -> Report:
    """Judge a trace, and have the code checked that it is of."""
    found = growths(trace)
    explanation = explain(trace, found, isolated=isolated)
    return Report(trace, tuple(found), explanation, tuple(next_steps(trace, explanation, lines, deep=deep)), lines, deep)
