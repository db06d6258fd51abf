"""Which findings of a check explain what grew: their weight and their facts say what they hold, what multiplies it, and where."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint import engine, registry
from oomlint.config import ConfigError, load_settings
from oomlint.finding import AllocationFact, AttributeFact, Consequence, HandleFact, LoopFact, LoopKind, Multiplier, ReadFact, Resource, StoreFact, StoreKind
from oomlint.measurement import Quantity
from oomlint.projects import Projects
from oomlint.trace.growth import Shape
from oomlint.trace.growth_verdicts import GrowthVerdict, JudgedSubject, sends
from oomlint.trace.scripts import closure, scripts_of
from oomlint.trace.timeline import ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.finding import Finding, Weight
    from oomlint.trace.deepening import AllocationLine
    from oomlint.trace.growth import Trend
    from oomlint.trace.timeline import Trace

MOST: Final = 3  # findings that are shown
_SHARE: Final = 0.3  # of the peak, or of a rise: who holds it explains it
_DATA: Final = frozenset({Resource.IMAGES, Resource.ARRAYS, Resource.TENSORS, Resource.RECORDS, Resource.NAMES, Resource.UNKNOWN})
_KEPT: Final = frozenset({*_DATA, Resource.GRAPH, Resource.FIGURE})
_LOOPS: Final = frozenset({Multiplier.STEPS, Multiplier.EPOCHS, Multiplier.PREFETCH})
_REPEATS: Final = frozenset({Multiplier.STEPS, Multiplier.EPOCHS, Multiplier.SAMPLES})


class Explained(Struct, frozen=True):
    """A finding, and what it explains."""

    finding: Finding
    growths: tuple[GrowthVerdict, ...]

    @property
    def grows(self) -> bool:
        """Whether it explains something that grows."""
        return any(growth.trend.shape.grows for growth in self.growths)


class Explanation(Struct, frozen=True):
    """What a check says of what was seen."""

    explained: tuple[Explained, ...] = ()
    open: tuple[GrowthVerdict, ...] = ()  # what nothing explains
    files: tuple[str, ...] = ()  # that were checked
    trouble: str = ""  # why there was no check


def explain(trace: Trace, growths: Sequence[GrowthVerdict], *, isolated: bool = False) -> Explanation:
    """Check what the command ran, and take what fits. Nothing is checked where nothing asks for a cause."""
    asked = causes_wanted(trace, growths)
    if not asked:
        return Explanation()
    scripts = scripts_of(trace)
    if not scripts:
        growing = _growing(asked)
        return Explanation(open=growing, trouble="the command runs no Python script that could be checked" if growing else "")
    findings: list[Finding] = []
    files: list[str] = []
    trouble = ""
    for script in scripts:
        try:
            settings, root = load_settings(None, isolated, Path(script).parent, [code for code, _ in registry.catalogue()])
        except ConfigError as error:
            trouble = str(error)
            continue
        project = Projects(str(root), settings, {}, ()).of(script)
        members = closure(project, [script])
        report = engine.run(members, settings, root, engine.RunOptions(causes=False))
        findings += [item for item in report.findings if item.code is not None and item not in findings]
        files += [path for path in members if path not in files]
    return _matched(trace, asked, findings, tuple(files), trouble)


def causes_wanted(trace: Trace, growths: Sequence[GrowthVerdict]) -> list[GrowthVerdict]:
    """What asks for a cause: what grows, what rises and falls, and who holds a large part of the peak."""
    peak = trace.peak.total if trace.peak else 0
    found = []
    for growth in growths:
        if growth.subject is JudgedSubject.TREE:
            continue
        moves = growth.trend.shape.grows or (growth.trend.shape is Shape.WAVES and not sends(growth, trace))
        holds = growth.subject.unit == "bytes" and growth.held >= _SHARE * peak and growth.trend.shape is not Shape.KEPT
        if moves or growth.subject is JudgedSubject.COPIES or (holds and peak > 0):
            found.append(growth)
    return found


def _matched(trace: Trace, asked: Sequence[GrowthVerdict], findings: Sequence[Finding], files: tuple[str, ...], trouble: str) -> Explanation:
    alone = not trace.of_role(ProcessRole.WORKER)
    killed = bool(trace.kills)
    explained: list[Explained] = []
    unexplained = []
    for growth in asked:
        # Who was killed before it could be judged has hardly been flat.
        grown = replace(growth, trend=replace(growth.trend, shape=Shape.STEADY)) if killed and growth.trend.shape is Shape.SHORT else growth
        fitting = sorted((item for item in findings if fits(grown, item, alone=alone)), key=lambda item: item.weight_key)
        for item in fitting:
            known = next((place for place, each in enumerate(explained) if each.finding is item), None)
            if known is None:
                explained.append(Explained(item, (growth,)))
            elif growth.trend.shape.grows or not explained[known].grows:
                explained[known] = Explained(item, (*explained[known].growths, growth))
        if not fitting:
            unexplained.append(growth)
    # What grows comes before what only holds; within both the gravest and heaviest first.
    explained.sort(key=lambda each: (not each.grows, each.finding.weight_key))
    return Explanation(tuple(explained[:MOST]), _growing(unexplained), files, trouble)


def _growing(growths: Iterable[GrowthVerdict]) -> tuple[GrowthVerdict, ...]:
    return tuple(each for each in growths if each.trend.shape.grows)


def fits(growth: GrowthVerdict, finding: Finding, *, alone: bool) -> bool:
    """Whether a finding is of a kind that makes such a growth. ``alone``: no workers ran, so what is theirs was in the main process."""
    weight = finding.weight
    if weight is None or finding.code is None or (weight.consequence is Consequence.CRASHES and weight.of is not Resource.HANDLE):
        return False
    by = {factor.by for factor in weight.factors}
    counted = _counted(finding.code)
    # What a loop over a loader keeps, directly or in a graph, came from workers in shared memory, each tensor with a descriptor.
    batches = any(fact.kind is LoopKind.BATCH for fact in finding.of_noun(LoopFact))
    from_workers = not alone and batches and weight.of in {Resource.GRAPH, Resource.TENSORS} and weight.consequence is Consequence.GROWS
    moves = growth.trend.shape.grows or growth.trend.shape is Shape.WAVES
    match growth.subject:
        case JudgedSubject.DESCRIPTORS:
            opens = weight.of is Resource.HANDLE or bool(finding.of_noun(HandleFact))
            return opens or from_workers or bool(counted & {Quantity.DESCRIPTORS, Quantity.IDENTIFIERS})
        case JudgedSubject.SHARED:
            whole = any(fact.kind is StoreKind.WHOLE for fact in finding.of_noun(StoreFact)) and weight.of is Resource.TENSORS
            return Multiplier.PREFETCH in by or whole or from_workers or (Quantity.DESCRIPTORS in counted and weight.of is Resource.TENSORS)
        case JudgedSubject.COPIES:
            return weight.of in _DATA and Multiplier.WORKERS in by and weight.consequence is Consequence.MULTIPLIED and not by & _REPEATS
        case JudgedSubject.WORKERS:
            if moves:
                return Multiplier.WORKERS in by and bool(by & {*_REPEATS, Multiplier.FILES}) and weight.of is not Resource.PROCESS
            spawned = "fork" not in growth.methods
            return Multiplier.WORKERS in by and (weight.of is Resource.PROCESS or (spawned and weight.of in _DATA))
        case JudgedSubject.DEVICE:
            return weight.of in {Resource.GRAPH, Resource.TENSORS} and (bool(by & _REPEATS) or Quantity.DEVICE_BYTES in counted or not moves)
        case _:
            return _in_main(weight, finding, by, moves=moves, alone=alone)


def _in_main(weight: Weight, finding: Finding, by: set[Multiplier], *, moves: bool, alone: bool) -> bool:
    """Whether it is the main process that pays."""
    if weight.of not in _KEPT or (Multiplier.WORKERS in by and not alone):
        return False
    if moves:
        kept = bool(finding.of_noun(StoreFact) or finding.of_noun(LoopFact) or finding.of_noun(AttributeFact))
        return weight.consequence is Consequence.GROWS or (bool(by & _REPEATS) and kept and not finding.of_noun(ReadFact))
    # It holds much and grows no more: what is read or made up front.
    held = bool(finding.of_noun(ReadFact) or finding.of_noun(AllocationFact) or finding.of_noun(AttributeFact))
    return held and weight.consequence is not Consequence.GROWS and not by & _LOOPS


def _counted(code: str) -> frozenset[Quantity]:
    """What the verifier counts to see the symptom of a rule."""
    measured = registry.load(code).measured_as
    plans = [plan for plan in (measured.loop, measured.growth) if plan is not None]
    return frozenset(quantity for plan in plans for quantity in (*plan.ends, *plan.eases))


def next_steps(trace: Trace, explanation: Explanation, lines: Sequence[AllocationLine] = (), *, deep: bool) -> list[str]:
    """What to look at where nothing explains what grew. ``lines`` are those that a deep look has found."""
    command = shlex.join(trace.command)
    said = []
    for growth in explanation.open[:2]:
        if growth.subject is JudgedSubject.DESCRIPTORS:
            said.append(f"{growth.who}: `ls -l /proc/PID/fd` while it runs shows what the descriptors lead to")
        elif growth.subject is JudgedSubject.DEVICE:
            said.append("`torch.cuda.memory._record_memory_history()` in the script keeps where each block of the device was taken")
        elif growth.subject is JudgedSubject.SHARED:
            said.append("`ls -l /dev/shm` while it runs shows the files; tensors from a loader that are kept hold theirs")
        elif not deep:
            said.append(f"`oomlint trace --deep -- {command}` shows the lines whose Python and NumPy memory grows in {growth.who}; tensors of torch on the CPU")
            said[-1] += " are seen by `memray run --native`"
        elif not _takes_most(lines, growth.trend):
            part = f"most of what grows in {growth.who} is" if lines else f"what grows in {growth.who} is"
            said.append(f"{part} none of Python's objects: `memray run --native` sees what libraries take, tensors of torch too")
        else:
            said.append(f"the lines that grow say where what grows in {growth.who} is taken; who keeps it, `gc.get_referrers` of one such object tells")
    return said


def _takes_most(lines: Sequence[AllocationLine], trend: Trend) -> bool:
    """Whether lines take most of what grows: by their pace where it has one, since looks begin later than readings."""
    if trend.a_minute:
        return sum(line.a_minute for line in lines) >= _SHARE * trend.a_minute
    return sum(line.last - line.first for line in lines) >= _SHARE * trend.rise
