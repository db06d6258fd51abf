"""Runs the autograd function of a finding by itself: what its context keeps shows once backward has run and the graph is kept."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import LoopPlan
from oomlint.source import SourceError
from oomlint.verify.case import Outcome, Part, Verdict
from oomlint.verify.recipes.loops_judge import Runs, Way, judge
from oomlint.verify.recipes.loops_reach import Reach
from oomlint.verify.recipes.loops_signals import plan_for
from oomlint.verify.targets import spot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.verify.bench import Bench

_RUN: Final = 15.0  # seconds
_KEPT: Final = "the graph of every step is kept after its backward pass, as by a sum of losses"


def verify(bench: Bench) -> Verdict:
    """Judge a finding on a context."""
    case = bench.case
    try:
        source = case.source(Part.BEFORE)
        row = source.program_row(case.finding.place)
        cls = spot(ast.parse(source.text), row).cls
    except (SourceError, SyntaxError, ValueError, RecursionError) as error:
        return Verdict(Outcome.INCONCLUSIVE, f"the program cannot be taken apart: {error}")
    if not cls:
        return Verdict(Outcome.INCONCLUSIVE, "the finding stands in no class")
    reach = Reach(case, dict.fromkeys(Part, cls))
    first = _measure(bench, Part.BEFORE, cls, row, None, reach)
    state = first.get("state")
    if not first.get("ok") or state is None:
        return Verdict(Outcome.INCONCLUSIVE, f"the function does not run on synthesised tensors: {first.get('exception')}")
    runs = Runs(first)
    if case.mended:
        second, after = (_measure(bench, part, cls, row, state, reach) for part in Part)
        reach.note({item for part, answer in zip(Part, (second, after), strict=True) for item in reach.ran(bench, part, answer)})
        runs = Runs(first, second, after)
    shapes = ", ".join(f"{name}: {'tensor ' + str(tuple(value)) if isinstance(value, list) else value}" for name, value in state["arguments"])
    way = Way(state, assumed=(f"stand-ins for what goes in: {shapes}", *first.get("assumed", ())), stubbed=tuple(first.get("stubbed", ())))
    verdict = judge(case, plan_for(case.plan.loop or LoopPlan()), way, runs)
    if case.mended and verdict.outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT} and reach.gap:
        verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reach.gap)
    return replace(verdict, readings=tuple(replace(item, under=_KEPT) for item in verdict.readings))


def _measure(bench: Bench, part: Part, cls: str, row: int, state: Any, reach: Reach) -> Mapping[str, Any]:
    arguments = {"path": bench.path(part), "root": bench.folder(part), "cls": cls, "row": row, "state": state, "asked": reach.asked(bench, part)}
    done = bench.run(part, "contexts:measure", arguments, seconds=_RUN)
    return done.answer if isinstance(done.answer, dict) else {"ok": False, "exception": done.failure}
