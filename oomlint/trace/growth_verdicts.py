"""What of a trace is judged: who grows, by how much, and who holds the peak."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.trace.growth import LEAST_BYTES, LEAST_DESCRIPTORS, Course, Shape, Trend, judge, with_allocators
from oomlint.trace.timeline import MarkKind, ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.trace.timeline import Points, Trace

_LEAST_COPIED: Final = 24 * 2**20  # bytes in a worker: about ten megabytes any forked worker writes to
_PART: Final = 0.1  # of the peak: less is not worth a word
_LARGE: Final = 64 * 2**20  # bytes of which a word is said even where nothing grows
_LONG: Final = 0.5  # of the longest life among workers
_ENDING: Final = 0.3  # of a run: without workers for longer, it is still at work


class JudgedSubject(StrEnum):
    """What is judged."""

    TREE = "all processes"
    MAIN = "main process"  # or a rank
    WORKERS = "workers"  # what they take themselves
    COPIES = "copies in workers"  # pages of the parent that they have written to
    OTHER = "another process"
    SHARED = "shared memory"
    DEVICE = "device"
    DESCRIPTORS = "descriptors"

    @property
    def unit(self) -> str:
        """Of its amounts."""
        return "descriptors" if self is JudgedSubject.DESCRIPTORS else "bytes"


class GrowthVerdict(Struct, frozen=True):
    """What is said of one subject."""

    subject: JudgedSubject
    who: str  # for people
    trend: Trend
    held: float  # at the peak of the trace: by itself, whoever shares it; of descriptors, the most
    processes: tuple[int, ...] = ()  # indices
    methods: tuple[str, ...] = ()  # by which workers were started


def growths(trace: Trace) -> list[GrowthVerdict]:
    """All that is judged, the whole first, then by what grew most."""
    if not trace.samples:
        return []
    found = [each for each in _all(trace) if each is not None]
    return sorted(found, key=lambda each: (each.subject is not JudgedSubject.TREE, not each.trend.shape.grows, -each.trend.rise, -each.held))


def epochs_of(trace: Trace) -> tuple[float, ...]:
    """When epochs begin: as the script says, else as the passes over its loaders say."""
    marks = trace.of_kind(MarkKind.EPOCH) or trace.of_kind(MarkKind.PASS)
    return tuple(sorted(mark.at for mark in marks))


def steps_of(trace: Trace) -> Points:
    """How many steps were done by a time. Where several ranks count, the furthest."""
    done: list[tuple[float, float]] = []
    for mark in sorted(trace.of_kind(MarkKind.STEP), key=lambda mark: mark.at):
        if not done or mark.number > done[-1][1]:
            done.append((mark.at, float(mark.number)))
    return tuple(done)


def course_of(trace: Trace) -> Course:
    """What marks, workers and signals say of when it was at work."""
    seen = [trace.processes[index] for index in trace.of_role(ProcessRole.WORKER) if trace.processes[index].until > trace.processes[index].since]
    end = trace.samples[-1].at if trace.samples else 0.0
    gone = max((each.until for each in seen), default=end)
    asked = trace.ending.asked if trace.ending is not None and trace.ending.asked is not None else end
    over = min(asked, gone if end - gone <= _ENDING * end else end)
    return Course(epochs_of(trace), steps_of(trace), min((each.since for each in seen), default=None), over if over < end else None)


def _all(trace: Trace) -> Iterator[GrowthVerdict | None]:
    course = course_of(trace)
    peak = trace.peak or trace.samples[-1]
    members = [each for each in _members(trace, course) if each is not None]
    everybody = tuple(range(len(trace.processes)))
    whole = judge(_totals(trace), course)
    summed = [each.trend for each in members if each.subject not in {JudgedSubject.DESCRIPTORS, JudgedSubject.DEVICE}]
    if whole.shape.grows and not any(trend.shape.grows for trend in summed):
        # Nobody grows alone: several do together, or come one after the other. If not, they have only started.
        together = max(_groups(trace, course), key=lambda each: each.trend.rise, default=None)
        if together is not None:
            members = [together, *(each for each in members if not (each.subject is JudgedSubject.WORKERS is together.subject))]
        elif any(trend.shape is Shape.SHORT for trend in summed):
            whole = Trend(Shape.SHORT)
        else:
            since = max((trend.since for trend in summed if trend.shape is Shape.SETTLED), default=None)
            whole = replace(whole, shape=Shape.FLAT) if since is None else replace(whole, shape=Shape.SETTLED, since=since)
    yield GrowthVerdict(JudgedSubject.TREE, "all processes", whole, peak.total, everybody)
    yield from members


def _groups(trace: Trace, course: Course) -> Iterator[GrowthVerdict]:
    """What grows of processes of a kind, taken together: their proportional shares, however many of them there are."""
    kinds: dict[tuple[JudgedSubject, str], list[int]] = {}
    for index, process in enumerate(trace.processes):
        if process.role is ProcessRole.WORKER:
            kinds.setdefault((JudgedSubject.WORKERS, "workers"), []).append(index)
        elif process.role in {ProcessRole.MAIN, ProcessRole.RANK}:
            kinds.setdefault((JudgedSubject.MAIN, "ranks"), []).append(index)
        else:
            kinds.setdefault((JudgedSubject.OTHER, f"processes of {trace.name(index)}"), []).append(index)
    for (subject, what), indices in kinds.items():
        points = trace.sums(indices, "held")
        trend = judge(points, course)
        if len(indices) > 1 and trend.shape.grows:
            methods = tuple(sorted({trace.processes[index].start_method for index in indices} - {""}))
            yield GrowthVerdict(
                subject,
                f"{len(indices)} {what}" + (f" ({', '.join(methods)})" if methods else ""),
                trend,
                max(value for _, value in points),
                tuple(indices),
                methods,
            )


def _members(trace: Trace, course: Course) -> Iterator[GrowthVerdict | None]:
    peak = trace.peak or trace.samples[-1]
    for index, process in enumerate(trace.processes):
        if process.role not in {ProcessRole.WORKER, ProcessRole.HELPER}:
            subject = JudgedSubject.OTHER if process.role is ProcessRole.OTHER else JudgedSubject.MAIN
            points = trace.series(index, "mapped")
            if len(points) > 1:
                free = tuple((each.at, float(each.free)) for each in trace.allocators if each.pid == process.pid and each.free is not None)
                trend = with_allocators(judge(points, course), points, free)
                # What it shares with forked workers is its own; its proportional share would be a part of that.
                held = peak.processes[index].mapped if index in peak.processes else 0
                if subject is JudgedSubject.MAIN or trend.shape.grows or held > _PART * peak.total:
                    yield GrowthVerdict(subject, trace.name(index), trend, held, (index,))
    yield from _workers(trace, course)
    yield _shared(trace, course)
    yield _descriptors(trace, course)
    device = trace.of_tree("device")
    if any(value for _, value in device):
        yield GrowthVerdict(JudgedSubject.DEVICE, trace.device, judge(device, course), max(value for _, value in device))


def _totals(trace: Trace) -> Points:
    return tuple((sample.at, float(sample.total)) for sample in trace.samples)


def _workers(trace: Trace, course: Course) -> Iterator[GrowthVerdict]:
    """The workers: what they hold, and what each of them copies of its parent."""
    every = trace.of_role(ProcessRole.WORKER)
    if not every:
        return
    peak = trace.peak or trace.samples[-1]
    methods = tuple(sorted({trace.processes[index].start_method for index in every}))
    held = sum(figures.dirty for index, figures in peak.processes.items() if index in every)
    together = _longest(trace, every)
    points = _while_all(trace, together)
    if points:
        who = f"{len(together)} workers" if len(together) > 1 else "1 worker"
        yield GrowthVerdict(JudgedSubject.WORKERS, f"{who} ({', '.join(methods)})", judge(points, course), held, together, methods)
    copied = _copied(trace, tuple(index for index in together if trace.processes[index].start_method == "fork"))
    if copied and (most := max(value for _, value in copied)) >= _LEAST_COPIED * len(together):
        begin = copied[0][1]
        trend = judge(copied)
        shape = trend.shape if trend.shape.grows else Shape.SETTLED
        known = Trend(shape, max(most - begin, 0.0) if begin > most / 2 else most, trend.a_minute if trend.shape.grows else 0.0, since=trend.since)
        yield GrowthVerdict(JudgedSubject.COPIES, f"{len(together)} workers", known, most, together, methods)


def _longest(trace: Trace, every: Sequence[int]) -> tuple[int, ...]:
    """The workers that were there together with the one that has lived longest, whoever has started them, for most of its life."""
    best = max((trace.processes[index] for index in every), key=lambda each: each.until - each.since)

    def shared(index: int) -> float:
        each = trace.processes[index]
        return min(each.until, best.until) - max(each.since, best.since)

    return tuple(index for index in every if shared(index) >= _LONG * (best.until - best.since))


def _while_all(trace: Trace, indices: Sequence[int]) -> Points:
    """What some processes have mapped, for as long as all of them are there."""
    return tuple(
        (sample.at, float(sum(sample.processes[index].mapped for index in indices)))
        for sample in trace.samples
        if indices and all(index in sample.processes for index in indices)
    )


def _copied(trace: Trace, workers: Sequence[int]) -> Points:
    """Pages of their parent that forked workers have a copy of: private ones, less what they have taken themselves since they were forked."""
    before = {index: _of_parent(trace, index) for index in workers}
    found = []
    for sample in trace.samples:
        if workers and not sample.light and all(index in sample.processes for index in workers):
            value = 0
            for index in workers:
                figures = sample.processes[index]
                value += max(figures.dirty - max(figures.mapped - before[index], 0), 0)
            found.append((sample.at, float(value)))
    return tuple(found)


def _of_parent(trace: Trace, index: int) -> int:
    """Anonymous pages of the parent when it forked a worker: those of the nearest reading."""
    process = trace.processes[index]
    parent = next((number for number, each in enumerate(trace.processes) if each.pid == process.parent), None)
    near = [sample for sample in trace.samples if parent is not None and parent in sample.processes]
    if not near or parent is None:
        return 0
    return min(near, key=lambda sample: abs(sample.at - process.since)).processes[parent].mapped


def _shared(trace: Trace, course: Course) -> GrowthVerdict | None:
    """Shared memory that the processes map. Its file system may have more, of theirs or of others."""
    points = tuple((sample.at, float(sum(each.shared for each in sample.processes.values()))) for sample in trace.samples if not sample.light)
    most = max((value for _, value in points), default=0.0)
    if most < LEAST_BYTES:
        return None
    trend = judge(points, course)
    peak = trace.peak or trace.samples[-1]
    told = trend.shape.grows or most >= min(_LARGE, _PART * peak.total)
    return GrowthVerdict(JudgedSubject.SHARED, "shared memory", trend, most) if told else None


def _descriptors(trace: Trace, course: Course) -> GrowthVerdict | None:
    """The process whose descriptors grow most."""
    best: GrowthVerdict | None = None
    for index in range(len(trace.processes)):
        points = trace.series(index, "descriptors")
        if len(points) > 1:
            trend = judge(points, course, least=LEAST_DESCRIPTORS)
            if trend.shape.grows and (best is None or trend.rise > best.trend.rise):
                best = GrowthVerdict(JudgedSubject.DESCRIPTORS, trace.name(index), trend, max(value for _, value in points), (index,))
    return best


def sends(growth: GrowthVerdict, trace: Trace) -> bool:
    """Whether it rises and falls with the start of workers that are not forked: what they are sent is pickled by the process that starts them."""
    methods = {trace.processes[index].start_method for index in trace.of_role(ProcessRole.WORKER)}
    moving = growth.subject is JudgedSubject.MAIN and growth.trend.shape is Shape.WAVES
    return moving and bool(methods - {"fork"}) and growth.trend.times <= len(trace.of_kind(MarkKind.PASS))


def setup_seen(trace: Trace) -> tuple[str, int, int]:
    """How workers were started, the most of one set of them, and how many ranks there were; empty and 0 for what was not seen, or in more than one way."""
    sets: dict[tuple[int, int], int] = {}
    methods = set()
    for index in trace.of_role(ProcessRole.WORKER):
        each = trace.processes[index]
        if each.until > each.since:
            sets[each.parent, each.generation] = sets.get((each.parent, each.generation), 0) + 1
            methods.add(each.start_method)
    return methods.pop() if len(methods) == 1 else "", max(sets.values(), default=0), len(trace.of_role(ProcessRole.RANK))


def in_files(trace: Trace) -> int:
    """Bytes that the file system of shared memory got fuller by, beyond what the processes mapped; 0 where that is little."""
    most = max((sample.shm or 0 for sample in trace.samples), default=0)
    mapped = max((value for _, value in trace.sums(range(len(trace.processes)), "shared")), default=0.0)
    return most if most - mapped >= _LARGE else 0


def overlooked(trace: Trace) -> list[tuple[int, int, int]]:
    """Processes that were larger between two readings than at any: index, the most that a reading saw, the most that the kernel knows."""
    seen: dict[int, int] = {}
    for sample in trace.samples:
        for index, figures in sample.processes.items():
            seen[index] = max(seen.get(index, 0), figures.resident)
    found = []
    for index, most in seen.items():
        highest = trace.processes[index].highest
        if trace.ending is not None and len(trace.processes) == 1:  # it is that of its descendants, too
            highest = max(highest, trace.ending.highest)
        if highest - most >= max(LEAST_BYTES * 8, _PART * most):
            found.append((index, most, highest))
    return found


def gaps(trace: Trace, *, full: bool = False) -> float:
    """The longest time between two readings, or two full ones, that followed each other, in seconds."""
    times = [sample.at for sample in trace.samples if not (full and sample.light)]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)
