"""The user's own command, run as it stands before and after a fix: the most faithful case there is.

It is run twice before and once after, what is measured with noise as often as asked. What the two runs before do not agree in is not compared; where they do
not even get the same batches, it is not known whether the behaviour is the same, and that is said.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import Safety
from oomlint.measurement import CommandSign, Trait
from oomlint.verify.ast_names import statement_rows
from oomlint.verify.case import Fidelity, Outcome, Part, QuantityReading, Verdict
from oomlint.verify.jobs import JobEnd
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import command_metrics as signs
from oomlint.verify.strategies.command_metrics import Ran, compare
from oomlint.verify.strategies.locate_loop import target_of
from oomlint.verify.thresholds import PLENTY, TOTAL, TWICE, Price

if TYPE_CHECKING:
    from oomlint.verify.jobs import Done
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.command_metrics import Grown
    from oomlint.verify.strategies.dataset_runs import Sign
    from oomlint.verify.thresholds import Sameness

SECONDS: Final = 120.0  # for one run, unless more are allowed
_SAME: Final = "; batches, output and files are the same"
_UNPINNED: Final = "`pin_memory=True` copies no batch here, as there is no accelerator"
_PROBED: Final = "growth is counted within the command, which makes it slower"


@dataclass(slots=True)
class CommandRuns:
    """The runs of one case."""

    session: Session
    done: dict[Part, list[Done]] = field(default_factory=lambda: {Part.BEFORE: [], Part.AFTER: []})

    def run(self, part: Part) -> Done:
        """Run the command once more."""
        plan = self.session.case.plan
        watch: dict[str, Any] = {
            "probe": "start" if CommandSign.PROCESS_MEMORY in plan.command else "steps" if plan.command_loop else "",
            "saved": Trait.SAVES in plan.traits,
            "memory": bool({CommandSign.WORKER_MEMORY, CommandSign.READS} & set(plan.command)),
        }
        watch |= {"path": self.session.path(part), "rows": _rows(self.session, part)}
        seconds = max(SECONDS, self.session.options.limits.seconds)
        done = self.session.run(part, "driving.command:run", {"command": self.session.options.command, "watch": watch}, seconds=seconds, timeline=True)
        self.done[part].append(done)
        return done

    def answers(self, part: Part) -> list[Any]:
        """What came of all runs of a part."""
        return [done.answer for done in self.done[part]]


def verify(session: Session) -> Verdict:
    """Run the command, and judge."""
    runs = CommandRuns(session)
    try:
        verdict = _judge(runs)
    except Stopped as stopped:
        verdict = Verdict(Outcome.INCONCLUSIVE, str(stopped))
    before, after = runs.done[Part.BEFORE], runs.done[Part.AFTER]
    if len(before) > 1 and after and not any(map(_failed, (*before, *after))):
        session.prices += _prices(runs)
    figures, curve = signs.peak(before, after)
    plan = session.case.plan
    assumed: tuple[str, ...] = (_PROBED,) if plan.command_loop or CommandSign.PROCESS_MEMORY in plan.command else ()
    if any(epoch["unpinned"] for answer in runs.answers(Part.BEFORE) if answer for stream in answer["streams"] for epoch in stream["epochs"]):
        assumed += (_UNPINNED,)
    return replace(
        verdict,
        fidelity=Fidelity.COMMAND,
        readings=(*verdict.readings, figures),
        timelines=(*verdict.timelines, curve) if curve.before else verdict.timelines,
        assumptions=(*verdict.assumptions, *assumed),
    )


def _prices(runs: CommandRuns) -> list[Price]:
    """What all processes took. Their memory is sampled: a short run may end before its peak is seen, so what looks dearer is run once more."""
    found = _taken(runs)
    if any(price.dearer for price in found) and len(runs.done[Part.AFTER]) == 1 and not _failed(runs.run(Part.AFTER)):
        found = _taken(runs)
    return found


def _taken(runs: CommandRuns) -> list[Price]:
    before, after = runs.done[Part.BEFORE], [done for done in runs.done[Part.AFTER] if not _failed(done)]
    figures, _ = signs.peak(before, after)
    old, new = (tuple(float(done.answer["bytes_read"]) for done in side) for side in (before, after))
    return [Price(figures.name, figures.before, figures.after, TOTAL, PLENTY), Price("bytes read by all processes", old, new, TWICE, PLENTY)]


def _judge(runs: CommandRuns) -> Verdict:
    case = runs.session.case
    first = runs.run(Part.BEFORE)
    if first.answer is None:
        raise Stopped(f"your command: {_harness(first)}")
    if _failed(first):
        return _after_failure(runs, first)
    after = None
    if case.has_fix:
        after = runs.run(Part.AFTER)
        if _failed(after) and _failed(runs.run(Part.AFTER)):
            return Verdict(Outcome.REGRESSED, f"your command fails after the fix: {_failure(after)}")
        if _failed(after):
            raise Stopped(f"your command fails after the fix in one run of two: {_failure(after)}")
    if not first.answer["reached"]:
        raise Stopped(f"your command does not run row {case.finding.place.row}")
    if after is None:
        return _symptom(runs)
    again = runs.run(Part.BEFORE)
    if _failed(again):
        raise Stopped(f"your command fails in one run of two before the fix: {_failure(again)}")
    same = compare(*(Ran(done.answer, done.printed) for done in (first, again, after)), again=Trait.AGAIN in case.plan.traits)
    if same.same is not False:
        return replace(_fixed(runs, same), left_out=same.left_out)
    unsafe = case.finding.fix is not None and case.finding.fix.safety is not Safety.SAFE
    if unsafe and Trait.MEANT in case.plan.traits and (verdict := _fixed(runs, same)).outcome is Outcome.CONFIRMED:
        seen = verdict.reason.removesuffix(_SAME)
        reason = f"{seen}; whether what else changes is meant is for you to say: {same.words}"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reason, left_out=same.left_out)
    return Verdict(Outcome.REGRESSED, same.words, left_out=same.left_out)


# -- it fails ----------------------------------------------------------------------------------------------------------


def _failed(done: Done) -> bool:
    return done.answer is None or done.answer["status"] != 0 or done.answer["exception"] is not None


def _failure(done: Done) -> str:
    """Why a run failed, on one line."""
    if done.answer is None:
        return _harness(done)
    error = done.answer["exception"]
    if error is None:
        return f"it ends with status {done.answer['status']}"
    text = error["text"][:160] + ("..." if len(error["text"]) > 160 else "")  # noqa: PLR2004 - a line
    return f"{error['type']}: {text}" + (f" ({error['place']})" if error["place"] else "")


def _harness(done: Done) -> str:
    """Why the harness ended a run."""
    if done.ended is JobEnd.TIME:
        return f"{done.failure}; one that takes fewer steps is enough"
    return done.failure


def _after_failure(runs: CommandRuns, first: Done) -> Verdict:
    """The command fails before the fix: that may be the symptom."""
    pattern = runs.session.case.plan.error
    error = first.answer["exception"]
    if error is None or not pattern or not re.search(pattern, f"{error['type']}: {error['text']}"):
        raise Stopped(f"your command fails before the fix: {_failure(first)}" if runs.session.case.has_fix else f"your command fails: {_failure(first)}")
    shown = f"your command fails with {_failure(first)}"
    if not runs.session.case.has_fix:
        return Verdict(Outcome.SHOWN, shown, readings=(QuantityReading.of("failures", "failures", [1]),))
    after = runs.run(Part.AFTER)
    if not _failed(after):
        return Verdict(Outcome.CONFIRMED, f"{shown} before, and runs to its end after", readings=(QuantityReading.of("failures", "failures", [1, 0]),))
    other = after.answer["exception"] if after.answer is not None else None
    if other is not None and other["type"] == error["type"] and other["text"] == error["text"]:
        return Verdict(Outcome.NO_EFFECT, f"{shown} before and after", readings=(QuantityReading.of("failures", "failures", [1, 1]),))
    raise Stopped(f"{shown} before, and after the fix with {_failure(after)}")


# -- it does not -------------------------------------------------------------------------------------------------------


def _symptom(runs: CommandRuns) -> Verdict:
    """There is no fix: only what the finding says is looked for."""
    plan = runs.session.case.plan
    if plan.command_loop:
        found = signs.growth(plan, runs.answers(Part.BEFORE)[0], None)
        grown = _chosen(runs.session, found)
        if grown is not None and grown.shown:
            return Verdict(Outcome.SHOWN, grown.shown[0].words, readings=grown.readings, timelines=grown.timelines)
        if grown is not None and _around(runs.session, grown) and grown.enough and not _hidden(plan.traits, grown):
            return Verdict(Outcome.NOT_SHOWN, "nothing grows from step to step", readings=grown.readings, timelines=grown.timelines)
        raise Stopped(_little(plan.traits, grown))
    if plan.error:
        raise Stopped("your command does not fail")
    raise Stopped("your command runs; without a fix there is nothing to compare its memory with")


def _fixed(runs: CommandRuns, same: Sameness) -> Verdict:
    """What the fix has done to the symptom, where the command comes to its end in both parts."""
    plan = runs.session.case.plan
    first, after = runs.answers(Part.BEFORE)[0], runs.answers(Part.AFTER)[0]
    verdict: Verdict | None = None
    if plan.command_loop:
        verdict = _growth(runs, signs.growth(plan, first, after))
    elif plan.command:
        verdict = _memory(runs)
    if verdict is None:
        if _exercised(plan.traits, first):
            verdict = Verdict(Outcome.NO_EFFECT, "your command does not fail before the fix either, and does the same")
        else:
            raise Stopped("your command does not fail before the fix: it starts no worker by `spawn` or `forkserver`")
    if verdict.outcome is Outcome.CONFIRMED and same.same is None:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"{verdict.reason.removesuffix(_SAME)}; but {same.words}")
    if verdict.outcome is Outcome.NO_EFFECT and same.same is None:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=same.words)
    return verdict


def _exercised(traits: frozenset[Trait], answer: Any) -> bool:
    """Whether what raises would have raised. Arguments are looked at by every loader; pickling needs a worker that is not forked."""
    return Trait.RAISES_FIRST in traits or any(stream["workers"] and stream["method"] in {"spawn", "forkserver"} for stream in answer["streams"])


def _growth(runs: CommandRuns, found: list[Grown]) -> Verdict | None:
    """The verdict on what grows from step to step."""
    plan = runs.session.case.plan
    grown = _chosen(runs.session, found)
    if grown is None:
        raise Stopped(_little(plan.traits, grown))
    evidence: dict[str, Any] = {"readings": grown.readings, "timelines": grown.timelines}
    shown = grown.shown
    if shown:
        left = [item for item in shown if not item.fixed]
        worse = [item for item in grown.found if item.worse]
        if not left and not worse:
            return Verdict(Outcome.CONFIRMED, f"{shown[0].words}{_SAME}", **evidence)
        item = (left or worse)[0]
        end = "lessens it and does not end it" if item.eased else "does not end it"
        return Verdict(Outcome.INCONCLUSIVE, f"the fix {end}: {item.words}; another line of your command may keep the same things", **evidence)
    if grown.enough and any(item.worse and item.signal.limit < item.before.a_step + 1 for item in grown.found):
        return Verdict(Outcome.REGRESSED, next(item for item in grown.found if item.worse).words, **evidence)
    if plan.error and not grown.enough:
        return None
    if grown.enough and _around(runs.session, grown) and not _hidden(plan.traits, grown):
        return Verdict(Outcome.NO_EFFECT, "nothing grows from step to step in your command before the fix, and it does the same", **evidence)
    raise Stopped(_little(plan.traits, grown))


def _memory(runs: CommandRuns) -> Verdict:
    """The verdict on what processes take."""
    wanted = runs.session.case.plan.command
    if CommandSign.WORKER_MEMORY in wanted:
        for _ in range(max(runs.session.options.repeat, 1) - 1):
            runs.run(Part.AFTER)
        for _ in range(max(runs.session.options.repeat, 1) - 2):
            runs.run(Part.BEFORE)
    before, after = runs.answers(Part.BEFORE), runs.answers(Part.AFTER)
    if any(answer is None for answer in (*before, *after)):
        raise Stopped("your command does not run to its end every time")
    found: list[Sign | None] = []
    if CommandSign.WORKER_MEMORY in wanted:
        found.append(signs.workers(before, after))
    if CommandSign.PROCESS_MEMORY in wanted:
        found += signs.held(before, after)
    if CommandSign.READS in wanted:
        found.append(signs.read(before, after))
    seen = [item for item in found if item is not None]
    if not seen:
        raise Stopped("your command starts no worker" if CommandSign.WORKER_MEMORY in wanted else "what your command takes could not be counted")
    readings = tuple(item.reading for item in sorted(seen, key=lambda item: not item.shown))
    gone = [item for item in seen if item.shown and item.gone]
    worse = [item for item in seen if item.worse]
    if gone and not worse:
        return Verdict(Outcome.CONFIRMED, f"{gone[0].words}{_SAME}", readings=readings)
    if worse and not gone:
        return Verdict(Outcome.REGRESSED, worse[0].words, readings=readings)
    if gone:
        return Verdict(Outcome.INCONCLUSIVE, f"{gone[0].words}, but {worse[0].words}", readings=readings)
    return Verdict(Outcome.INCONCLUSIVE, f"the data of your command is too small to tell: {seen[0].words}", readings=readings)


# -- which loop --------------------------------------------------------------------------------------------------------


def _chosen(session: Session, found: list[Grown]) -> Grown | None:
    """The loop that speaks for the finding: one around it that shows something, one that shows something, one around it, any."""
    return next(iter(sorted(found, key=lambda item: (not item.shown, not _around(session, item), not item.enough))), None)


def _around(session: Session, grown: Grown) -> bool:
    """Whether the finding stands in the very loop."""
    if grown.at_row:
        return True
    tree = session.case.tree(Part.BEFORE)
    where = grown.stream["where"]
    if tree is None or not where or not session.path(Part.BEFORE).endswith(where[0][0]):
        return False
    row = _program_row(session)
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
    return any(loop.lineno <= where[0][2] <= loop.body[0].lineno and loop.lineno <= row <= (loop.end_lineno or row) for loop in loops)


def _hidden(traits: frozenset[Trait], grown: Grown) -> bool:
    """Whether what the finding speaks of happens out of sight here."""
    if Trait.IN_WORKERS in traits:
        return bool(grown.stream["workers"])
    return Trait.ON_DEVICE in traits and not any(step.get("device_storages") for step in grown.stream["steps"])


def _little(traits: frozenset[Trait], grown: Grown | None) -> str:
    """Why it is not known whether something grows."""
    if grown is None:
        return "your command runs the row in no process or thread where steps are counted: its main one, and those that iterate a loader"
    if _hidden(traits, grown):
        return "your command uses no device here" if Trait.ON_DEVICE in traits else "the handles are opened in workers, which are not looked into"
    if not grown.enough:
        return f"your command takes too few steps to tell ({len(grown.stream['steps'])}; 10 are needed)"
    return "nothing grows from step to step in your command, but the finding is not in the loop over a loader"


def _rows(session: Session, part: Part) -> tuple[int, int]:
    """First and last row of the statement that the finding is in, without the body of a compound one; of the program after that in the same loop."""
    row, tree = _program_row(session), session.case.tree(part)
    if part is Part.AFTER and tree is not None:
        target = target_of(session.case, part)
        row = target.row if target is not None else 0
    return (statement_rows(tree, row) if tree is not None else None) or (row, row)


def _program_row(session: Session) -> int:
    return session.case.source(Part.BEFORE).program_row(session.case.finding.place)
