"""The sliced call: a loader's call is cut out of the user's function and run over stand-in data, before and after, with all values of its unknowns."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import LoaderFact
from oomlint.measurement import CallCheck, DatasetSign
from oomlint.verify.case import Fidelity, Outcome, Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import call_sites, call_verdict, calls_frameworks, calls_loops, held_data, unverified_changes
from oomlint.verify.strategies.call_sites import domain, measured, site_in, targets
from oomlint.verify.strategies.slicing import cut, sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.measurement import Measurement
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.call_sites import Domain, LoaderTarget
    from oomlint.verify.strategies.slicing import Cut, SliceSite

_FUNCTIONS: Final = frozenset({"collate_fn", "worker_init_fn"})  # arguments of a loader that its workers are sent
_OPTIONS: Final = frozenset({CallCheck.OPTION, CallCheck.OPTION_ZERO})
_JUDGES: Final = {
    CallCheck.HELD: held_data.judge,
    CallCheck.CYCLE: calls_loops.judge,
    CallCheck.WHOLE: calls_loops.judge,
    CallCheck.PREDICT: calls_frameworks.judge_predictions,
    CallCheck.TRAINER: calls_frameworks.judge_arguments,
}
_MOST_WAYS: Final = 4  # other calls of the function that are run


def verify(session: Session) -> Verdict:
    """Verify one finding about a loader."""
    wanted = session.case.plan.call
    try:
        judged = _JUDGES[wanted](session) if wanted in _JUDGES else _calls(session)
        if wanted is CallCheck.HELD and DatasetSign.WORKERS in session.case.plan.dataset and judged.outcome is Outcome.CONFIRMED:
            judged = _still_runs(session, judged)
    except Stopped as stop:
        judged = Verdict(Outcome.INCONCLUSIVE, str(stop))
    return replace(judged, fidelity=Fidelity.SLICED)


def _calls(session: Session) -> Verdict:
    loader = next(iter(session.case.finding.of_noun(LoaderFact)), None)
    pickled = session.case.plan.call is CallCheck.PICKLED
    if pickled and (loader is None or loader.option not in _FUNCTIONS):
        raise Stopped("what cannot be sent is in the dataset, which a cut-out call stands in for")
    found = targets(session)
    if not found:
        raise Stopped("the call of the loader was not found in the program")
    judged = call_verdict.together([_one(session, target) for target in found])
    if not session.case.by_hand or pickled or judged.outcome not in {Outcome.CONFIRMED, Outcome.NO_EFFECT}:
        return judged
    gap, aside = unverified_changes.of_calls(session, _pieces(session, found))
    return replace(judged, outcome=Outcome.INCONCLUSIVE, reason=gap) if gap else replace(judged, left_out=(*judged.left_out, *aside))


def _pieces(session: Session, found: Sequence[LoaderTarget]) -> dict[Part, list[Cut]]:
    """What is run of the program, before and after."""
    pieces: dict[Part, list[Cut]] = {part: [] for part in Part}
    for target in found:
        leaves = domain(target).leaves
        here = site_in(session, Part.AFTER, target.site, target.path)
        for part, sites_of in ((Part.BEFORE, [target.site]), (Part.AFTER, [*([here] if here else []), *_other_ways(session, target)])):
            pieces[part] += [cut(site, leaves, inherited=target.loader.inherited) for site in sites_of]
    return pieces


def _still_runs(session: Session, judged: Verdict) -> Verdict:
    """The memory was measured on stand-in data: the user's own call has to work without workers as well, or nothing is gained."""
    finding = session.case.finding
    for target in targets(session, (finding.place,)):
        known = domain(target)
        values = replace(known, values=[{text: value if isinstance(value, dict) else 0 for text, value in row.items()} for row in known.values[:1]])
        after = measured(session, Part.AFTER, target, values, own="*", counts=[2, 0])
        runs = [run for run in after["runs"] if run["reached"] and run.get("settings", {}).get("num_workers", 0) == 0]
        failed = next((run["error"] for run in runs if run.get("error")), None)
        if not runs:
            return Verdict(Outcome.INCONCLUSIVE, "the loader's call could not be run without workers", readings=judged.readings)
        if failed and ((failed["type"] in {"ValueError", "AssertionError"} and "worker" in failed["message"]) or "timeout" in failed["message"]):
            return Verdict(Outcome.REGRESSED, f"without workers the call fails: {call_verdict.cause(failed)}", readings=judged.readings)
        if failed:
            return Verdict(Outcome.INCONCLUSIVE, f"the cut-out call cannot be run: {call_verdict.cause(failed)}", readings=judged.readings)
    return judged


def _one(session: Session, target: LoaderTarget) -> Verdict:
    """One loader, before and after."""
    try:
        return _compared(session, target)
    except Stopped as stop:
        return Verdict(Outcome.INCONCLUSIVE, str(stop))


def _compared(session: Session, target: LoaderTarget) -> Verdict:
    """As above. Raises Stopped."""
    plan = session.case.plan
    least = 1 if plan.call in {CallCheck.OPTION_ZERO, CallCheck.PICKLED} else 0
    counts = _counts_of(session, target) if plan.call in _OPTIONS and not least else ()
    values = domain(target, *filter(None, [plan.option]), least=least, counts=counts)
    methods: list[str | None] = ["fork", "spawn"] if plan.call is CallCheck.PICKLED else [None]
    how: dict[str, Any] = {"own": plan.option, "counts": [2] if least else [2, 0, *counts], "methods": methods}
    before = measured(session, Part.BEFORE, target, values, **how)
    after: dict[str, Any] | None = None
    if session.case.has_fix:
        after = measured(session, Part.AFTER, target, values, **how)
        if any(not run["reached"] for run in after["runs"]):
            others = [replace(target, site=site) for site in _other_ways(session, target)]
            ways = [measured(session, Part.AFTER, other, values, here=True, **how)["runs"] for other in others]
            after["runs"] = call_verdict.otherwise(before["runs"], after["runs"], ways)
    judged = _judged(plan, before["runs"], after["runs"] if after else None)
    if judged.outcome is Outcome.REGRESSED and after and not any(run.get("error") for run in after["runs"]):
        again = measured(session, Part.BEFORE, target, values, **how)
        if [run.get("epochs") for run in again["runs"]] != [run.get("epochs") for run in before["runs"]]:
            judged = Verdict(Outcome.INCONCLUSIVE, "the loader does not repeat itself: two runs before the fix differ", readings=judged.readings)
    notes = [note for run in (*before["runs"], *(after["runs"] if after else ())) for note in run.get("notes", ())]
    assumptions = (*values.assumptions, "a stand-in dataset that returns its indices", *_swept(before["runs"], values), *dict.fromkeys(notes))
    left = (*before["skipped"], *session.stood_in(target.path, target.site.function, before))
    return replace(judged, assumptions=tuple(dict.fromkeys(assumptions)), left_out=left)


def _judged(plan: Measurement, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]] | None) -> Verdict:
    if plan.call is CallCheck.PICKLED:
        return call_verdict.unpicklable(before, after)
    return call_verdict.exceptions(plan.option, before, after, zero=plan.call is CallCheck.OPTION_ZERO)


def _swept(runs: Sequence[dict[str, Any]], values: Domain) -> list[str]:
    """What was tried for values that the child found to be unknown."""
    tried: dict[str, list[str]] = {}
    for run in runs:
        for text, value in run["values"].items():
            if text not in values.leaves and value not in tried.setdefault(text, []):
                tried[text].append(value)
    return [f"`{text}` swept over {' and '.join(found)}" if len(found) > 1 else f"`{text}` taken as {found[0]}" for text, found in tried.items()]


def _counts_of(session: Session, target: LoaderTarget) -> tuple[int, ...]:
    """Numbers of workers that tell the two parts apart, beside none and two."""
    if not session.case.has_fix:
        return ()
    trees = [session.case.tree(part, target.path) for part in Part]
    return call_sites.told_apart([tree for tree in trees if tree is not None])


def _other_ways(session: Session, target: LoaderTarget) -> list[SliceSite]:
    """Calls of the same class in the same function after the fix."""
    here = site_in(session, Part.AFTER, target.site, target.path)
    if here is None:
        return []
    written = ast.unparse(here.call.func)
    found = [site for site in sites(here.tree) if site.function == here.function and site.ordinal != here.ordinal and ast.unparse(site.call.func) == written]
    return found[:_MOST_WAYS]
