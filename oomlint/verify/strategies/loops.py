"""Runs the loop of a finding before and after its fix, on stand-ins for what the function needs, and looks at what grows from step to step.

The function is called with what the model of the project knows of parameters and globals and, where it has a parameter for that, in training and in
evaluation: one of them shows the symptom, and none of them may behave otherwise after the fix. Inputs that the program after cannot take are given up
where there are others that both programs can take.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import LoopPlan, Trait
from oomlint.source import SourceError
from oomlint.verify.case import Outcome, Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import new_costs
from oomlint.verify.strategies.change_coverage import Call, ChangeCoverage
from oomlint.verify.strategies.growth_metrics import Ask, seen, signals
from oomlint.verify.strategies.known_constants import known_in, modes
from oomlint.verify.strategies.locate_loop import read_at, stood_in, target_of
from oomlint.verify.strategies.loop_verdict import NEW_FAILURE, SHORT, Expected, LoopRuns, Way, behaves, judge, new_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_loop import LoopTarget

    Answer = Mapping[str, Any]

_SEARCH: Final = 6.0  # seconds
_TRIALS: Final = 200
_LONGER: Final = 4  # times the steps, before a loop is said to keep nothing
_GRACE: Final = 4.0  # seconds on top, to load the file
_RUN: Final = 15.0  # seconds, for one run of the loop
_GRADLESS: Final = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad|enable_grad")
_HIDING: Final = ("object",)  # kinds of stand-ins that may hide the symptom
_ALSO_HIDING: Final = ("object", "model")  # where the state of a model matters, none of them knows it
_MORE: Final = (4, 4)  # dimensions
_STEPS: Final = 4  # of an epoch whose results are compared
_SETTLED: Final = frozenset({Outcome.CONFIRMED, Outcome.SHOWN})
_SOUND: Final = frozenset({Outcome.CONFIRMED, Outcome.NO_EFFECT})  # said of a fix that changes no behaviour
_TRIES: Final = 4  # ways to call the function, for its runs to come to all that is changed
_REPEATED: Final = "the loop goes over its items again, as they are too few to tell"
_CUT: Final = "the fix changes `drop_last`, and no run came to the last batch"
_KEPT: Final = "the graph of every step is kept after its backward pass, as by a sum of losses"
_ENDLESS: Final = "the patch has to do with when the loop ends, and no run came to its end"


def verify(session: Session) -> Verdict:
    """Judge a finding on a loop."""
    try:
        old = target_of(session.case, Part.BEFORE)
        new = target_of(session.case, Part.AFTER) if session.case.has_fix else old
    except (SourceError, SyntaxError, ValueError, RecursionError) as error:
        return _unknown(f"the program cannot be taken apart: {error}")
    if old is None or new is None:
        return _unknown("the loop of the finding is not found again after the fix")
    verdict = _Trial(session, old, new).verdict()
    if Trait.OF_CONTEXT not in session.case.plan.traits:
        return verdict
    return replace(verdict, readings=tuple(replace(item, under=_KEPT) for item in verdict.readings))


def _unknown(reason: str) -> Verdict:
    return Verdict(Outcome.INCONCLUSIVE, reason)


class _Trial:
    """One finding's loop, run in several ways until one of them shows something."""

    def __init__(self, session: Session, old: LoopTarget, new: LoopTarget) -> None:
        self._session = session
        self._plan = session.case.plan.loop or LoopPlan()
        self._traits = session.case.plan.traits
        self._targets = {Part.BEFORE: old, Part.AFTER: new}
        self._path = session.case.finding.place.path
        self._has_fix = session.case.has_fix
        text = session.case.source(Part.BEFORE).text
        self._names = read_at(text, old.row)
        emptied = self._names if Trait.EMPTIES in self._traits else ()
        self._expected = Expected(graphs=not _GRADLESS.search(text), emptied=frozenset(emptied), function=old.function)
        self._reach = ChangeCoverage(session.case, {part: target.function for part, target in self._targets.items()})
        self._cut = False

    def verdict(self) -> Verdict:
        """What most is to be said for; a regression in any way to call the function counts before all."""
        best: Verdict | None = None
        used: dict[str, Any] = {}
        for known, counts in self._ways():
            if best is not None and best.outcome in _SETTLED and not self._has_fix:
                break
            verdict = self._attempt(Call(known))
            if verdict.outcome is Outcome.REGRESSED:
                return verdict
            if counts and (best is None or _weight(verdict) > _weight(best)):
                best, used = verdict, known
        best = best or _unknown("there is no way to call the function")
        return self._reached(best, used) if self._has_fix and best.outcome in _SOUND else best

    def _reached(self, best: Verdict, known: Mapping[str, Any]) -> Verdict:
        """A verdict that runs have come to all that is changed for."""
        for _, call in zip(range(_TRIES), self._reach.calls(known), strict=False):
            verdict = self._attempt(call)
            if verdict.outcome is Outcome.REGRESSED and call.taken:  # in a branch that may never be taken
                return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"where a branch is taken that was not reached by itself, {verdict.reason}")
            if verdict.outcome is Outcome.REGRESSED:
                return verdict
        unseen = (_CUT if self._reach.drops else _ENDLESS if self._reach.ends else "") if self._cut else ""
        gap = self._reach.gap or unseen or self._reach.unknown(best.left_out)
        if gap:
            return replace(best, outcome=Outcome.INCONCLUSIVE, reason=gap)
        return replace(best, left_out=(*best.left_out, *self._reach.notes))

    def _ways(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """What to call the function with, and whether what is seen then can be what the finding speaks of."""
        function = self._targets[Part.BEFORE].function
        if Trait.OF_CONTEXT in self._traits:  # what it is applied to is found by search
            yield {}, True
            return
        known = known_in(self._session.project, self._path, function)
        evaluating, training = modes(self._session.case.source(Part.BEFORE).text, function)
        told = not (Trait.EVALUATES in self._traits and evaluating)
        if told:
            yield known, True
        yield from (({**known, **more}, True) for more in evaluating if not (told and more.items() <= known.items()))
        yield from (({**known, **more}, told) for more in training if not (told and more.items() <= known.items()))

    def _attempt(self, call: Call) -> Verdict:
        try:
            way, reason = self._find(Part.BEFORE, call)
            if way is None:
                return self._only_after(call, reason)
            verdict = self._judged(way)
            if verdict.outcome is Outcome.INCONCLUSIVE and verdict.reason == SHORT:
                longer = self._judged(replace(way, state={**way.state, "again": True}, assumed=(*way.assumed, _REPEATED)))
                verdict = verdict if longer.outcome is Outcome.INCONCLUSIVE else longer
            if verdict.outcome in {Outcome.NO_EFFECT, Outcome.NOT_SHOWN} and not self._plan.workers and self._seldom(way):
                return self._judged(way, longer=_LONGER)
            if verdict.outcome is Outcome.INCONCLUSIVE and signals(self._plan)[0].ask is Ask.EASE:
                other = self._judged(replace(way, state=wider(way.state)))
                return other if other.outcome in _SETTLED else verdict
            if verdict.outcome is Outcome.REGRESSED and verdict.reason.startswith(NEW_FAILURE):
                return self._other_way(call, way, verdict)
        except Stopped as stop:
            return _unknown(str(stop))
        return verdict

    def _judged(self, way: Way, longer: int = 1) -> Verdict:
        kinds = _ALSO_HIDING if Trait.MODEL_HIDES in self._traits else _HIDING
        hidden = replace(self._expected, hidden=stood_in(self._names, way.state, kinds))
        runs = self._runs(way, longer)
        verdict = judge(self._session.case, self._plan, way, runs, hidden)
        if self._has_fix and self._plan.workers and verdict.outcome in _SOUND and way.state.get("uneven"):
            first, second, after = (self._measure(part, way, longer, alone=True) for part in (Part.BEFORE, *Part))
            alone = LoopRuns(first, second, after)
            uneven = judge(self._session.case, self._plan, way, alone, hidden)
            verdict = uneven if uneven.outcome is Outcome.REGRESSED else verdict
        if self._reach.moves and verdict.outcome in _SOUND and (refused := self._refused(way)):
            return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"on a simulated device the program after raises {refused}")
        if runs.after is not None and runs.second is not None and runs.after.get("ok") and runs.first.get("ok"):
            self._session.prices += new_costs.of_loop((runs.first, runs.second), runs.after)
        if self._has_fix and (verdict.outcome in _SOUND or behaves(self._session.case, runs, hidden)):
            answers = [(Part.BEFORE, runs.first), (Part.BEFORE, runs.second), (Part.AFTER, runs.after), *zip(Part, runs.epochs or (), strict=False)]
            self._reach.note({item for part, answer in answers if answer for item in self._reach.ran(self._session, part, answer)})
            self._cut |= bool(runs.first.get("cut"))
        return verdict

    def _refused(self, way: Way) -> str:
        """What a device refuses of the program after and not of the one before, such as to add a tensor of the host to one of the device."""
        before, after = (self._measure(part, way, 1, device=True) for part in Part)
        failed = new_failure(before, after) if before.get("ok") else ""
        return failed if "cuda" in failed else ""

    def _seldom(self, way: Way) -> bool:
        """Whether a longer run of the program before keeps something every ten steps or so."""
        found = seen(self._plan, self._measure(Part.BEFORE, way, _LONGER, several=self._plan.epochs > 1), None)
        return any(item.shows or item.before.hints for item in found)

    def _only_after(self, call: Call, reason: str) -> Verdict:
        """Where the program before runs with no input: does the one after, and how does the one before fail there?"""
        if not self._has_fix or Trait.RAISES not in self._traits:
            return _unknown(reason)
        way, _ = self._find(Part.AFTER, call)
        if way is None:
            return _unknown(reason)
        verdict = self._judged(way)
        return verdict if verdict.outcome in _SETTLED else replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reason)

    def _other_way(self, call: Call, first: Way, verdict: Verdict) -> Verdict:
        """A stand-in may be what the program after cannot work with. An input that it does take decides, if the program before takes it too.

        One with which it does only where more of it is left out decides nothing: what fails is left out then.
        """
        way, _ = self._find(Part.AFTER, call)
        if way is None or not _left_out(way) <= _left_out(first):
            return verdict
        other = self._judged(way)
        if other.outcome in _SETTLED:
            return replace(other, assumptions=(*other.assumptions, f"inputs that the program after takes; with others {verdict.reason}"))
        return verdict if other.outcome is Outcome.REGRESSED else replace(verdict, outcome=Outcome.INCONCLUSIVE)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _find(self, part: Part, call: Call) -> tuple[Way | None, str]:
        arguments = {**self._place(part), **asdict(call), "seconds": _SEARCH, "trials": _TRIALS}
        done = self._session.run(part, "driving.loop_job:find", arguments, seconds=_SEARCH + _GRACE)
        if not isinstance(done.answer, dict):
            return None, f"the search for inputs ended without a result: {done.failure}"
        if not done.answer.get("found") and not (done.answer.get("state") and Trait.RAISES in self._traits):
            return None, str(done.answer.get("reason") or "no inputs were found with which the function runs")
        return Way.of(done.answer, self._session.stood_in(self._path, self._targets[part].function, done.answer)), ""

    def _runs(self, way: Way, longer: int) -> LoopRuns:
        several = self._plan.epochs > 1
        first = self._measure(Part.BEFORE, way, longer, several=several and not self._has_fix)
        if not self._has_fix:
            return LoopRuns(first, None, self._measure(Part.BEFORE, way, longer, release=True) if self._plan.against and first.get("ok") else None)
        if not first.get("ok"):
            return LoopRuns(first, None, self._measure(Part.AFTER, way, longer))
        second, after = (self._measure(part, way, longer) for part in Part)
        epochs = None
        if several and after.get("ok"):
            epochs = self._measure(Part.BEFORE, way, longer, several=True), self._measure(Part.AFTER, way, longer, several=True)
        return LoopRuns(first, second, after, epochs)

    def _measure(self, part: Part, way: Way, longer: int, *, several: bool = False, release: bool = False, alone: bool = False, device: bool = False) -> Answer:
        """``several``: as many epochs as the plan has, with the plan's steps; else one epoch. ``alone``: without workers, and with a smaller last batch.

        ``device``: on a simulated one, whatever the plan says.
        """
        plan = self._plan
        steps = max(plan.steps, 1 if several else _STEPS) * longer
        if self._session.case.by_hand and not several:
            steps += 1 - steps % 2  # an odd number: what is done every other step is left over at the end
        workers = 0 if alone else plan.workers
        how = {"steps": steps, "workers": workers, "epochs": plan.epochs if several else 1, "simulate_device": plan.simulated or device, "release": release}
        state = {**way.state, "look": True} if self._reach.drops else way.state
        arguments = {**self._place(part), "state": state, **how, "asked": self._reach.asked(self._session, part)}
        return self._session.answer(part, "driving.loop_job:measure", arguments, seconds=_RUN)

    def _place(self, part: Part) -> dict[str, Any]:
        target = self._targets[part]
        context = target.function if Trait.OF_CONTEXT in self._traits else ""
        return {"path": self._session.path(part), "root": self._session.folder(part), "function": target.function, "row": target.row, "context": context}


def _left_out(way: Way) -> set[str]:
    """What of a program a way leaves out."""
    return {*way.state.get("skips", ()), *(["loader"] if way.state.get("loader") else [])}


def wider(state: Any) -> Any:
    """A state whose batches have more dimensions: a part of one is a view then, where it was a number."""
    specs = state.get("specs", {})
    wide = {path: {**spec, "shape": [*spec["shape"], *_MORE]} for path, spec in specs.items() if "[*]" in path and spec.get("dtype") == "float32"}
    return {**state, "specs": {**specs, **wide}}


def _weight(verdict: Verdict) -> int:
    """How much a verdict says."""
    if verdict.outcome in _SETTLED:
        return 4
    return (0 if verdict.outcome is Outcome.INCONCLUSIVE else 2) + bool(verdict.readings)
