"""What was seen of the user's command: what each rule speaks of, and whether the program after does the same as the one before."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import LoopPlan, Trait
from oomlint.verify.case import QuantityReading, Timeline
from oomlint.verify.strategies.dataset_runs import Sign
from oomlint.verify.strategies.growth_metrics import readings, seen, timeline
from oomlint.verify.thresholds import LEAST, WARM_UP, Sameness, close_text, first_difference, human, spread, worker_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oomlint.measurement import Measurement
    from oomlint.verify.jobs import Done
    from oomlint.verify.strategies.growth_metrics import Seen

    Answer = Mapping[str, Any]  # of command:run


LEAST_BYTES: Final = 2**16
SHARE: Final = 0.02  # of what a process takes: bytes that were counted, not sampled
READS: Final = 0.2  # of what a step reads


# -- growth ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grown:
    """The growth that was seen in one loop, or from one run of the finding's row to the next."""

    found: tuple[Seen, ...]
    readings: tuple[QuantityReading, ...]
    timelines: tuple[Timeline, ...]
    stream: Answer
    at_row: bool = False

    @property
    def shown(self) -> list[Seen]:
        """What shows the symptom."""
        return [item for item in self.found if item.shows]

    @property
    def enough(self) -> bool:
        """Whether there were steps enough to tell."""
        return any(item.before.enough and (item.after is None or item.after.enough) for item in self.found)


def growth(measured: Measurement, before: Answer, after: Answer | None) -> list[Grown]:
    """What grew at each loop, in the order in which they were first run, and at the row of the finding."""
    plan = measured.command_loop or LoopPlan()
    results = []
    for number, stream in enumerate(before["streams"]):
        other = None
        if after is not None:
            if number >= len(after["streams"]):
                continue
            other = after["streams"][number]
        results.append(_grown(plan, stream, other, by_epoch=False))
        if Trait.BY_EPOCH in measured.traits and not results[-1].shown and len(stream["epochs"]) > WARM_UP + LEAST:
            results.append(_grown(plan, stream, other, by_epoch=True))
    if before["row"] and (after is None or after["row"]):
        results.append(replace(_grown(plan, before["row"], after and after["row"], by_epoch=False), at_row=True))
    return results


def _grown(plan: LoopPlan, stream: Answer, other: Answer | None, *, by_epoch: bool) -> Grown:
    old = _columns(stream, by_epoch=by_epoch)
    new = None if other is None else _columns(other, by_epoch=by_epoch)
    found = tuple(replace(item, per="epoch") if by_epoch else item for item in seen(plan, old, new))
    ordered = sorted(found, key=lambda item: not item.shows)
    under = f"{stream['workers']} workers" if stream["workers"] else ""
    return Grown(found, readings(ordered, under), tuple(timeline(plan, item, old, new) for item in ordered[:3]), stream)


def _columns(stream: Answer, *, by_epoch: bool) -> dict[str, Any]:
    """As `loops:measure` answers: differences of what was counted, and the values of what belongs to a step."""
    steps = [step for step in stream["steps"] if "nodes" in step] or stream["steps"]
    if by_epoch:
        size = max(len(stream["steps"]) // max(len(stream["epochs"]), 1), 1)
        steps = steps[::size]
    levels = {name: [step[name] for step in steps] for name in ("storages", "storage_bytes", "nodes", "python_bytes", "device_bytes") if _has(steps, name)}
    answer: dict[str, Any] = {"deltas": {name: [new - old for old, new in pairwise(values)] for name, values in levels.items()}}
    for name in ("descriptors", "ids", "loaders", "processes"):
        if _has(steps, name):
            answer[name] = [step[name] for step in steps]
    if _has(steps, "saved"):
        answer["saved_bytes"] = [step["saved"] for step in steps]
        answer["copied_bytes"] = [new - old for old, new in pairwise([0, *(step["copied"] for step in steps)])]
    return answer


def _has(steps: Sequence[Answer], name: str) -> bool:
    return bool(steps) and all(name in step for step in steps)


# -- memory ------------------------------------------------------------------------------------------------------------


def workers(before: Sequence[Answer], after: Sequence[Answer]) -> Sign | None:
    """What the workers of the command's loaders add to the memory of the process. ``None`` where no worker was seen."""
    old, new = ([_added(answer) for answer in runs] for runs in (before, after))
    if not any(old):
        return None
    saving = worker_memory(old, new or [0.0], 0.0, 0)
    count = max(stream["workers"] for stream in before[0]["streams"])
    enough = saving.saved >= max(saving.needed, SHARE * saving.before)
    words = f"{saving.words}" if new else f"workers add {human(saving.before)}"
    figures = QuantityReading("memory that workers add", "bytes", tuple(old), tuple(new), f"{count} workers, {before[0]['streams'][0]['method']}")
    return Sign(bool(new) and enough, enough, words, figures, worse=bool(new) and saving.more)


def _added(answer: Answer) -> float:
    """The most that was added since a pass over a loader with workers began."""
    most = 0
    for stream in answer["streams"]:
        built = [epoch["built"].get("memory", 0) for epoch in stream["epochs"] if epoch["built"]]
        held = [step["tree"]["memory"] for step in stream["steps"] if step.get("tree")]
        if built and held and (stream["workers"] or max(step["tree"]["processes"] for step in stream["steps"] if step.get("tree")) > 1):
            most = max(most, max(held) - built[0])
    return float(most)


def held(before: Sequence[Answer], after: Sequence[Answer]) -> list[Sign]:
    """The most that the process held at a time, and what it holds when its first loop begins: counted, not sampled."""
    signs = []
    for name, read in (("most memory at a time", lambda answer: answer["peak"] or None), ("memory held at the first batch", _first)):
        old, new = ([read(answer) for answer in runs] for runs in (before, after))
        if any(item is None for item in (*old, *new)):
            continue
        signs.append(_fell(name, [float(item or 0) for item in old], [float(item or 0) for item in new], SHARE))
    return signs


def read(before: Sequence[Answer], after: Sequence[Answer]) -> Sign | None:
    """Bytes that are read from files for a step."""
    old, new = ([_read(answer) for answer in runs] for runs in (before, after))
    if not old or any(item is None for item in (*old, *new)):
        return None
    return _fell("bytes read for a step", [item or 0.0 for item in old], [item or 0.0 for item in new], READS)


def peak(before: Sequence[Done], after: Sequence[Done]) -> tuple[QuantityReading, Timeline]:
    """The memory of the process tree while the command ran, for the report."""
    old, new = (tuple(float(done.peak) for done in runs) for runs in (before, after))
    curves = [runs[0].timeline if runs else () for runs in (before, after)]
    return QuantityReading("peak memory of all processes", "bytes", old, new), Timeline("memory of all processes", "bytes", "seconds", *curves)


def _fell(name: str, old: list[float], new: list[float], share: float) -> Sign:
    needed = max(LEAST_BYTES, share * median(old), 3 * max(spread(old), spread(new)))
    change = median(old) - median(new) if new else 0.0
    words = f"{name}: {human(median(old))} before, {human(median(new))} after" if new else f"{name}: {human(median(old))}"
    return Sign(change >= needed, change >= needed, words, QuantityReading(name, "bytes", tuple(old), tuple(new)), worse=-change >= needed)


def _first(answer: Answer) -> int | None:
    for stream in answer["streams"]:
        for step in stream["steps"][:1]:
            if "python_bytes" in step:
                return int(step["python_bytes"] + step["storage_bytes"])
    return None


def _read(answer: Answer) -> float | None:
    """Of the loop that reads most."""
    most = None
    for stream in answer["streams"]:
        begun = [epoch["built"].get("read", 0) for epoch in stream["epochs"] if epoch["built"]]
        done = [(number, step["tree"]["read"]) for number, step in enumerate(stream["steps"], 1) if step.get("tree")]
        per_epoch = len(stream["steps"]) // max(len(stream["epochs"]), 1)
        within = [(number, count) for number, count in done if number <= per_epoch]
        if begun and within:
            most = max(most or 0.0, (within[-1][1] - begun[0]) / within[-1][0])
    return most


# -- whether it did the same -------------------------------------------------------------------------------------------


_QUANTITY: Final = r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?"
_MASKS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (r"\b0x[0-9a-f]{6,}\b", "<address>"),
        (r"\b\d{4}[-/_.]\d{2}[-/_.]\d{2}(?:[T _-]?\d{2}[:_-]?\d{2}(?:[:_-]?\d{2}(?:[.,]\d+)?)?)?Z?\b", "<date>"),
        (r"\b(?:mon|tue|wed|thu|fri|sat|sun)\w*,? +(?:\w{3} +\d+|\d+ +\w{3})\b", "<date>"),
        (r"\b\d{1,3}(?:days?,? )?:\d{2}(?::\d{2})?(?:\.\d+)?\b", "<time>"),
        (rf"{_QUANTITY} *(?:it|its|iters?|batch(?:es)?|samples?|imgs?|images?|steps?|tokens?|examples?|items?)? */ *s(?:ec(?:ond)?)?\b", "<speed>"),
        (rf"{_QUANTITY} *s(?:ec(?:ond)?s?)? */ *(?:it|iter|batch|sample|step|epoch|img|image)\b", "<speed>"),
        (rf"{_QUANTITY} *(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)\b", "<time>"),
        (rf"{_QUANTITY} *(?:[kmgt]i?b|bytes)\b", "<size>"),
        (rf"\b((?:time|took|elapsed|eta|duration|speed|throughput|latency|mem|memory|rss|usage|pid)\w*[^\w\n]{{0,4}}){_QUANTITY}", r"\1<quantity>"),
        (r"/tmp/[\w./-]+", "<file>"),  # noqa: S108 - a pattern
    )
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the command."""

    answer: Answer
    printed: str  # standard output

    @property
    def lines(self) -> list[str]:
        """What was printed, without times, dates, speeds and sizes."""
        return [masked(line) for line in self.printed.replace("\r", "\n").splitlines() if line.strip()]


def masked(text: str) -> str:
    """A line without what differs from run to run by its nature."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text.rstrip()


def compare(first: Ran, second: Ran, after: Ran, *, again: bool = False) -> Sameness:
    """Compare the runs. ``first`` and ``second`` are of the program before: only what they agree in is compared.

    ``again`` says that the fix asks a loader once more where it was asked once: only the first batches are compared then, and no generators.
    """
    batches = _batches(first.answer, second.answer, after.answer, again=again)
    if batches.same is not True:
        return batches
    notes = [*batches.left_out]
    for found in (_printed(first.lines, second.lines, after.lines), _files(first.answer, second.answer, after.answer)):
        notes += found.left_out
        if not found.same:
            return found
    if first.answer["status"] != after.answer["status"]:
        return Sameness(same=False, words=f"it exits with status {first.answer['status']} before, {after.answer['status']} after")
    ends = [run.answer["generators"] for run in (first, second, after)]
    if all(ends) and ends[0] == ends[1] != ends[2] and batches.words != "workers" and not again:
        return Sameness(same=False, words="the generators of random numbers stand elsewhere at its end")
    return Sameness(same=True, left_out=tuple(dict.fromkeys(notes)))


def _batches(first: Answer, second: Answer, after: Answer, *, again: bool) -> Sameness:
    """What the loaders handed out."""
    old, repeated, new = ([[step["digest"] for step in stream["steps"]] for stream in answer["streams"]] for answer in (first, second, after))
    if old != repeated:
        return Sameness(same=None, words="two runs of your command before the fix do not get the same batches: with fixed seeds they would")
    if again:
        new = [batches[: len(earlier)] for earlier, batches in zip(old, new, strict=False)]
    counts = [[stream["workers"] for stream in answer["streams"]] for answer in (first, after)]
    if old == new:
        opaque = any(step["opaque"] for stream in first["streams"] for step in stream["steps"])
        notes = ("batches hold objects that cannot be compared: their tensors and arrays are",) if opaque else ()
        return Sameness(same=True, words="workers" if counts[0] != counts[1] else "", left_out=notes)
    if counts[0] != counts[1] and list(map(len, old)) == list(map(len, new)):
        return Sameness(same=None, words="the number of workers differs after the fix, and so do the batches: what is drawn at random depends on it")
    for number, (one, other) in enumerate(zip_longest(old, new)):
        if one != other:
            place = _place((first if one is not None else after)["streams"][number])
            if one is None or other is None:
                return Sameness(same=False, words=f"the loop{place} is run {'after' if one is None else 'before'} the fix only")
            if len(one) != len(other):
                return Sameness(same=False, words=f"the loop{place} gets {len(one)} batches before, {len(other)} after")
            at = next(step for step, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            difference = first_difference(*(answer["streams"][number]["steps"][at]["shown"] for answer in (first, after)))
            return Sameness(same=False, words=f"batch {at + 1} of the loop{place} differs: {difference or 'in its later parts'}")
    return Sameness(same=True)


def _place(stream: Answer) -> str:
    return f" at {stream['where'][0][0]}:{stream['where'][0][2]}" if stream["where"] else ""


def _printed(first: Sequence[str], second: Sequence[str], after: Sequence[str]) -> Sameness:
    if len(first) != len(second):
        return Sameness(same=True, left_out=("what it prints differs from run to run and is not compared",))
    stable = [number for number, (one, other) in enumerate(zip(first, second, strict=True)) if one == other]
    notes = [f"{len(first) - len(stable)} of {len(first)} printed lines differ from run to run and are not compared"] if len(stable) < len(first) else []
    if len(first) != len(after):
        added, gone = Counter(after) - Counter(first), Counter(first) - Counter(after)
        line = next(iter([*gone, *added]), "")
        return Sameness(same=False, words=f"it prints {len(first)} lines before, {len(after)} after: `{line[:80]}` is {'missing' if gone else 'new'}")
    old, new = ([lines[number] for number in stable] for lines in (first, after))
    differing = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
    if all(close_text(one, other) for one, other in differing):
        return Sameness(same=True, left_out=(*notes, *(["printed numbers agree but for rounding"] if differing else [])))
    return Sameness(
        same=False, words=f"it prints something else: {first_difference(*zip(*(pair for pair in differing if not close_text(*pair)), strict=True))}"
    )


def _files(first: Answer, second: Answer, after: Answer) -> Sameness:
    """What it wrote into its folder."""
    old, again, new = first["files"], second["files"], after["files"]
    stable = {name for name in old if again.get(name) == old[name]}
    notes = (f"{len(old) - len(stable)} of {len(old)} written files differ from run to run and are not compared",) if len(stable) < len(old) else ()
    for name in sorted(stable):
        if new.get(name) != old[name]:
            return Sameness(same=False, words=f"the file {name} is {'not written' if name not in new else 'another'} after the fix")
    if len(stable) == len(old) == len(again):
        for name in sorted(new.keys() - old.keys()):
            return Sameness(same=False, words=f"the file {name} is written after the fix only")
    return Sameness(same=True, left_out=notes)
