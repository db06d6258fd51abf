"""The verdict on a loop from what was measured of it; pure, nothing is run here.

- The program before is run twice. What does not repeat is not compared; where nothing repeats the verdict is *inconclusive*.
- An exception that only the program after raises, and a result, a printed text or a state of the random generators that differs, is a *regression*.
  Two things are none. Numbers that agree but for rounding, where the fix says that numerics may change or only turns gradients off: other kernels run
  then. And other numbers from a fix that says so and does what it should (a recurrent state that is cut off learns something else): that is for the
  author to judge, so it is *inconclusive*.
- What a fix empties on purpose, as the list of a finding that is said to be cleared, is not compared, and that is said.
- Where the symptom was shown before and stays, the verdict is *inconclusive*: another line may keep the same things. It is *no effect* only where the
  symptom was not shown, the row of the finding was reached, and nothing that could have shown it was replaced by a stand-in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import Safety
from oomlint.measurement import Trait
from oomlint.verify.case import Fidelity, Outcome, Verdict
from oomlint.verify.strategies.equivalence import compare, unnumbered
from oomlint.verify.strategies.growth_metrics import Ask, MetricKind, readings, seen, timeline
from oomlint.verify.strategies.locate_loop import left_out
from oomlint.verify.strategies.unseen_changes import asked_of, own
from oomlint.verify.thresholds import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oomlint.measurement import LoopPlan
    from oomlint.verify.case import Case
    from oomlint.verify.strategies.equivalence import Behaviour
    from oomlint.verify.strategies.growth_metrics import Seen

    Answer = Mapping[str, Any]

NEW_FAILURE: Final = "the program after raises"
SHORT: Final = "the loop took too few steps to tell"
_ROUNDED: Final = "results that agree to 5 digits are the same: sums of numbers and of float32 tensors are rounded in different places"
_HARMLESS: Final = frozenset(
    {"PIL", "colorama", "cv2", "hydra", "loguru", "matplotlib", "mlflow", "omegaconf", "pandas", "rich", "scipy", "seaborn"}
    | {"sklearn", "tensorboard", "tensorboardX", "termcolor", "tqdm", "visdom", "wandb", "yaml"}
)  # stand-ins for these hide no growth of tensors
_SAID: Final = frozenset({Outcome.CONFIRMED, Outcome.NO_EFFECT, Outcome.SHOWN, Outcome.NOT_SHOWN})
_STOOD_IN: Final = "what the finding is about was not run: a stand-in took the place of {}"
_TWICE: Final = "backward through the graph a second time"
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class Way:
    """A way to call the function that holds the loop, as the search found it."""

    state: Any
    whole: bool = True
    assumed: tuple[str, ...] = ()
    stubbed: tuple[str, ...] = ()  # "scipy: replaced by a stand-in"
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Answer, stubbed: Sequence[str]) -> Way:
        """From what loops:find has given back."""
        assumed, skipped = (tuple(str(item) for item in answer.get(name) or ()) for name in ("assumed", "skipped"))
        return cls(answer.get("state"), bool(answer.get("whole", True)), assumed, tuple(stubbed), skipped)

    @property
    def doubtful(self) -> str:
        """A library that was replaced by a stand-in and may have hidden the symptom; empty where there is none."""
        return next((name for name in self.stubbed if name.strip("` ").split(".")[0].split(":")[0] not in _HARMLESS), "")


@dataclass(frozen=True, slots=True)
class LoopRuns:
    """What was measured: the program before, twice, and the program after, if there is one.

    Where epochs are counted the results are those of one epoch: the second may well differ, as the fix is to bring about.
    """

    first: Answer
    second: Answer | None = None
    after: Answer | None = None  # where there is no fix: a run in which each backward pass frees its graph
    epochs: tuple[Answer, Answer] | None = None  # before and after, over several epochs


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run has to do before its silence says something."""

    graphs: bool = False  # the program nowhere turns gradients off: some graph is recorded
    hidden: str = ""  # what the row reads and was replaced by a stand-in, so that it may have hidden the symptom
    function: str = ""  # the outermost one around the loop; empty for the module itself
    emptied: frozenset[str] = frozenset()  # names of what the fix may empty


def judge(case: Case, plan: LoopPlan, way: Way, runs: LoopRuns, expected: Expected = Expected()) -> Verdict:
    """The verdict, with its evidence."""
    verdict = _judge(case, plan, way, runs, expected)
    if verdict.outcome in {Outcome.NO_EFFECT, Outcome.NOT_SHOWN}:
        missing = _missing(case.plan.traits, runs.epochs[0] if runs.epochs else runs.first, expected)
        if missing:
            verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=missing)
    if verdict.outcome in _SAID and (gap := left_out(case, expected.function, runs.first)):
        verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=_STOOD_IN.format(gap), readings=(), timelines=())
    sharing = tuple(str(name) for name in runs.first.get("sharing") or ())
    doubt = _doubt(case, sharing)
    if doubt and verdict.outcome is Outcome.REGRESSED and not verdict.reason.startswith(NEW_FAILURE):
        verdict = replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"{verdict.reason}; {doubt}")
    return replace(
        verdict,
        fidelity=Fidelity.SYNTHETIC if way.whole else Fidelity.SLICED,
        assumptions=(*way.assumed, *verdict.assumptions),
        left_out=(*way.skipped, *way.stubbed, *((f"{', '.join(sharing)}: each steps all models",) if sharing else ()), *verdict.left_out),
    )


def _doubt(case: Case, sharing: Sequence[str]) -> str:
    """Why other results after a fix by hand need not be its doing; empty where they are."""
    if not case.by_hand:
        return ""
    if sharing:
        return "but it is not known which optimizer steps which model"
    return (
        "fewer loaders draw fewer random numbers, and whether other batches alone make the difference is not measured"
        if Trait.FEWER_PASSES in case.plan.traits
        else ""
    )


def _judge(case: Case, plan: LoopPlan, way: Way, runs: LoopRuns, expected: Expected) -> Verdict:
    failed = _failure(runs.first)
    if failed:
        return _after_failure(case, failed, runs)
    if runs.first.get("reached") is False:
        return Verdict(Outcome.INCONCLUSIVE, "the row of the finding was not reached")
    if runs.after is None or runs.second is None:
        return _symptom(plan, way, runs.first, runs.after)
    old, new = runs.epochs or (runs.first, runs.after)
    failed = new_failure(runs.first, runs.after) or new_failure(old, new)
    if failed and runs.after.get("missing"):
        return Verdict(Outcome.INCONCLUSIVE, f"a statement was left out before that the fix has changed; after it the program raises {failed}")
    if failed:
        return Verdict(Outcome.REGRESSED, f"{NEW_FAILURE} {failed}")
    behaviour = _behaviour(case, runs.first, runs.second, runs.after, expected)
    found = seen(plan, old, new)
    verdict = _compared(case, way, found, behaviour)
    told = (*verdict.assumptions, *_forgiven(case, behaviour)) if verdict.outcome is not Outcome.REGRESSED else ()
    return replace(verdict, assumptions=told, left_out=behaviour.left_out, **_evidence(plan, found, old, new))


def _forgiven(case: Case, behaviour: Behaviour) -> tuple[str, ...]:
    """What differs after a fix by hand and is taken for the same."""
    if behaviour.plain:
        return (f"{behaviour.plain}: a number after, where it was a tensor of one number; what uses it takes either",)
    return (_ROUNDED,) if behaviour.rounding and case.by_hand else ()


def behaves(case: Case, runs: LoopRuns, expected: Expected = Expected()) -> bool:
    """Whether both programs run to their end and do the same, but for rounding and what a fix changes on purpose."""
    if runs.after is None or runs.second is None or _failure(runs.first) or new_failure(runs.first, runs.after):
        return False
    behaviour = _behaviour(case, runs.first, runs.second, runs.after, expected)
    return (
        bool(behaviour.same)
        or behaviour.rounding
        or bool(behaviour.plain and case.by_hand and Trait.NUMBERS in case.plan.traits)
        or (behaviour.same is not None and Trait.LEARNS in case.plan.traits)
    )


def _behaviour(case: Case, first: Answer, second: Answer, after: Answer, expected: Expected) -> Behaviour:
    found = compare(
        first, second, after, emptied=expected.emptied, draws=Trait.FEWER_PASSES not in case.plan.traits, types=Trait.RETYPES not in case.plan.traits
    )
    if not found.objects or not (found.rounding or found.plain):
        return found
    if not {name.strip("`") for name in found.objects} <= own(case):  # one that the caller has as well
        return replace(found, rounding=False, plain="", dtypes="")
    return replace(found, left_out=(*found.left_out, *(f"{name}: an object, of which only what comes of it was compared" for name in found.objects)))


def _missing(traits: frozenset[Trait], answer: Answer, expected: Expected) -> str:
    """What did not happen in a run that shows nothing, though the finding speaks of it; empty where all did."""
    if Trait.RECORDS_GRAPH in traits and expected.graphs and not any(answer.get("saved_bytes") or ()):
        return "no graph was recorded on synthesised data"
    if Trait.COPIES_BYTES in traits and not any(answer.get("copied_bytes") or ()):
        return "nothing was seen to be copied on synthesised data"
    if Trait.STARTS_WORKERS in traits and "processes" in answer and not any(answer["processes"]):
        return "no worker was started"
    return f"nothing was seen, but `{expected.hidden}` was replaced by a stand-in and may have hidden it" if expected.hidden else ""


def _failure(answer: Answer) -> str:
    """The exception that ended a run; empty where it came to its end."""
    if answer.get("ok"):
        return ""
    if not answer.get("exception"):
        return "nothing, but the loop takes no step"
    return " ".join(str(answer["exception"]).split())


def new_failure(before: Answer, after: Answer) -> str:
    """An exception that only the program after raises; a statement that could not be run is passed over in both. Its numbers may differ."""
    ended = _failure(after)
    if ended:
        return ended
    known = {unnumbered(str(item)) for item in before.get("failures") or ()}
    return next((" ".join(str(item).split()) for item in after.get("failures") or () if unnumbered(str(item)) not in known), "")


def _after_failure(case: Case, failed: str, runs: LoopRuns) -> Verdict:
    """A program that fails before the fix: for a state that drags its graph along, that is the symptom."""
    if Trait.RAISES in case.plan.traits and _TWICE in failed:
        if runs.after is None:
            return Verdict(Outcome.SHOWN, f"the second step raises {failed.partition(' (')[0]}")
        if not _failure(runs.after) and case.by_hand:
            words = f"the second step raises {failed.partition(' (')[0]} before, and all steps run after; what they compute has nothing to be compared with"
            return Verdict(Outcome.INCONCLUSIVE, words)
        if not _failure(runs.after):
            return Verdict(Outcome.CONFIRMED, f"the second step raises {failed.partition(' (')[0]} before; all steps run after")
    return Verdict(Outcome.INCONCLUSIVE, f"the loop does not run on synthesised data: {failed}")


# -- no fix ------------------------------------------------------------------------------------------------------------


def _symptom(plan: LoopPlan, way: Way, answer: Answer, freed: Answer | None) -> Verdict:
    failed = _failure(freed) if freed is not None else ""
    if _TWICE in failed:
        return Verdict(Outcome.NOT_SHOWN, "the graph is used again: without `retain_graph` a later backward pass raises")
    if failed:
        return Verdict(Outcome.INCONCLUSIVE, f"without `retain_graph` the loop raises {failed}")
    found = seen(plan, answer, freed)
    evidence = _evidence(plan, found, answer, freed)
    if freed is not None:  # it is no program of the user's
        evidence = {name: tuple(replace(item, after=()) for item in items) for name, items in evidence.items()}
    shown = [item for item in found if item.shows]
    if shown and shown[0].signal.ask is Ask.EASE:
        return Verdict(Outcome.INCONCLUSIVE, f"{shown[0].words}; how much of it is needed shows only with a fix", **evidence)
    if shown and freed is not None and shown[0].after is not None:
        left = amount(shown[0].after.a_step, shown[0].signal.unit)
        return Verdict(Outcome.SHOWN, f"{replace(shown[0], after=None).words}, {left} where backward frees its graph", **evidence)
    if shown:
        return Verdict(Outcome.SHOWN, f"{shown[0].words}{_thousand(shown[0])}", **evidence)
    outcome, reason = _silent(way, found)
    return Verdict(Outcome.NOT_SHOWN if outcome is Outcome.NO_EFFECT else outcome, reason, **evidence)


def _thousand(item: Seen) -> str:
    if item.signal.kind not in {MetricKind.DELTA, MetricKind.LEVEL}:
        return ""
    total = amount(item.before.a_step * _THOUSAND, item.signal.unit)
    return f": {total} in {_THOUSAND} {item.per}s on this synthesised data"


# -- with a fix --------------------------------------------------------------------------------------------------------


def _compared(case: Case, way: Way, found: Sequence[Seen], behaviour: Behaviour) -> Verdict:
    if behaviour.same is None:
        return Verdict(Outcome.INCONCLUSIVE, behaviour.words)
    shown = [item for item in found if item.shows]
    easing = any(item.signal.ask is Ask.EASE for item in shown)
    fixed = any(item.fixed for item in shown) if easing else bool(shown) and all(item.fixed for item in shown)
    note = ""
    if not behaviour.same:
        unsafe = case.finding.fix is None or case.finding.fix.safety is not Safety.SAFE
        if behaviour.dtypes:
            return Verdict(Outcome.REGRESSED, f"the dtype differs: {behaviour.dtypes}")
        if behaviour.rounding and (unsafe or case.by_hand or Trait.OTHER_KERNELS in case.plan.traits):
            note = "; the results agree to 5 digits, not to the last bit"
        elif behaviour.plain and case.by_hand and Trait.NUMBERS in case.plan.traits:
            asked = asked_of(case, behaviour.plain)
            if asked:
                return Verdict(Outcome.INCONCLUSIVE, f"{behaviour.plain}: a number after, where it was a tensor of one number, and {asked}")
            note = "; the results are numbers where they were tensors of one number"
        elif fixed and unsafe and Trait.LEARNS in case.plan.traits:
            return Verdict(Outcome.INCONCLUSIVE, f"{shown[0].words}; whether what else changes is meant is for you to say: {behaviour.words}")
        else:
            return Verdict(Outcome.REGRESSED, behaviour.words)
    if not shown:
        outcome, reason = _silent(way, found)
        return Verdict(outcome, f"{reason}{note}")
    worse = next((item for item in found if item.signal.ask is Ask.ALSO and item.signal.unit == "bytes" and item.worse), None)
    if worse is not None and fixed:
        return Verdict(Outcome.INCONCLUSIVE, f"{shown[0].words}, but {worse.words}")
    if fixed:
        return Verdict(Outcome.CONFIRMED, f"{next(item for item in shown if item.fixed).words}{note}")
    stays = next(item for item in shown if not item.fixed)
    if stays.signal.ask is Ask.EASE and not stays.worse:
        return Verdict(Outcome.INCONCLUSIVE, f"on synthesised data what is kept is as large as what it is cut from: {stays.words}{note}")
    end = "lessens it and does not end it" if stays.eased else "does not end it"
    return Verdict(Outcome.INCONCLUSIVE, f"the fix {end}: {stays.words}; another line may keep the same things")


def _silent(way: Way, found: Sequence[Seen]) -> tuple[Outcome, str]:
    """What it means that nothing was shown."""
    if not any(item.before.enough for item in found):
        return Outcome.INCONCLUSIVE, SHORT if found else "what the finding speaks of could not be measured here"
    if any(item.signal.ask is not Ask.ALSO and item.before.hints for item in found):
        return Outcome.INCONCLUSIVE, "something is kept in a few steps, too few to tell whether it grows"
    if any(item.signal.ask is Ask.EASE for item in found):
        return Outcome.INCONCLUSIVE, "on synthesised data too little is kept to tell a part from the whole"
    kind = found[0].signal.kind
    nothing = {MetricKind.EACH: "no step saves anything for backward", MetricKind.REST: "a step leaves nothing more"}.get(
        kind, "nothing grows from step to step"
    )
    if way.doubtful:
        return Outcome.INCONCLUSIVE, f"{nothing}, but {way.doubtful.split(':')[0]} was replaced by a stand-in and may have hidden it"
    return Outcome.NO_EFFECT, f"{nothing} before the fix"


# -- evidence ----------------------------------------------------------------------------------------------------------


def _evidence(plan: LoopPlan, found: Sequence[Seen], before: Answer, after: Answer | None) -> dict[str, Any]:
    """Readings and curves, the one that decides first."""
    under = ", ".join(
        text
        for text in (
            "simulated device" if plan.simulated else "",
            f"{plan.workers} workers" if plan.workers else "",
            f"{plan.epochs} epochs" if plan.epochs > 1 else "",
        )
        if text
    )
    ordered = sorted(found, key=lambda item: not item.shows)
    return {
        "readings": readings(ordered, under),
        "timelines": tuple(timeline(plan, item, before, after) for item in ordered[:3]),
    }
