"""Runs the autograd function of a finding by itself: what its context keeps shows once backward has run and the graph is kept."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import LoopPlan
from oomlint.source import SourceError
from oomlint.verify.ast_location import spot
from oomlint.verify.case import Outcome, Part, Verdict
from oomlint.verify.strategies.change_coverage import Reach
from oomlint.verify.strategies.loop_verdict import Runs, Way, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.verify.session import Session

_RUN: Final = 15.0  # seconds
_KEPT: Final = "the graph of every step is kept after its backward pass, as by a sum of losses"


def verify(session: Session) -> Verdict:
    """Judge a finding on a context."""
    case = session.case
    try:
        source = case.source(Part.BEFORE)
        row = source.program_row(case.finding.place)
        cls = spot(ast.parse(source.text), row).cls
    except (SourceError, SyntaxError, ValueError, RecursionError) as error:
        return Verdict(Outcome.INCONCLUSIVE, f"the program cannot be taken apart: {error}")
    if not cls:
        return Verdict(Outcome.INCONCLUSIVE, "the finding stands in no class")
    reach = Reach(case, dict.fromkeys(Part, cls))
    first = _measure(session, Part.BEFORE, cls, row, None, reach)
    state = first.get("state")
    if not first.get("ok") or state is None:
        return Verdict(Outcome.INCONCLUSIVE, f"the function does not run on synthesised tensors: {first.get('exception')}")
    runs = Runs(first)
    if case.mended:
        second, after = (_measure(session, part, cls, row, state, reach) for part in Part)
        reach.note({item for part, answer in zip(Part, (second, after), strict=True) for item in reach.ran(session, part, answer)})
        runs = Runs(first, second, after)
    shapes = ", ".join(f"{name}: {'tensor ' + str(tuple(value)) if isinstance(value, list) else value}" for name, value in state["arguments"])
    stubbed = tuple(session.stood_in(case.finding.place.path, cls, first))
    way = Way(state, assumed=(f"stand-ins for what goes in: {shapes}", *first.get("assumed", ())), stubbed=stubbed)
    verdict = judge(case, case.plan.loop or LoopPlan(), way, runs)
    if case.mended and verdict.outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT} and reach.gap:
        verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reach.gap)
    return replace(verdict, readings=tuple(replace(item, under=_KEPT) for item in verdict.readings))


def _measure(session: Session, part: Part, cls: str, row: int, state: Any, reach: Reach) -> Mapping[str, Any]:
    arguments = {"path": session.path(part), "root": session.folder(part), "cls": cls, "row": row, "state": state, "asked": reach.asked(session, part)}
    done = session.run(part, "measuring.autograd_context:measure", arguments, seconds=_RUN)
    return done.answer if isinstance(done.answer, dict) else {"ok": False, "exception": done.failure}
