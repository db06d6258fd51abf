"""What a trace is made of: processes, what they hold at each reading, marks, and how the command ended."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Points = tuple[tuple[float, float], ...]  # seconds since the start, and a value
MOST_SAMPLES: Final = 4000  # a trace of days must not be what fills the memory
OVERHEAD: Final = 0.02  # of one core that readings may take, where nobody says more
_LAST: Final = 64  # samples that are kept as they are: the last picture before an end


class ProcessRole(StrEnum):
    """What a process is there for."""

    MAIN = "main process"
    RANK = "rank"  # of a distributed training
    WORKER = "worker"  # started by multiprocessing
    HELPER = "helper"  # of multiprocessing: a forkserver, a resource tracker
    OTHER = "process"  # a shell, a launcher


class Process(Struct):
    """A process of the traced tree."""

    pid: int
    parent: int
    since: float  # seconds since the start of the trace
    until: float
    words: tuple[str, ...] = ()  # its command line
    folder: str = ""  # that it was in when it was first seen
    role: ProcessRole = ProcessRole.OTHER
    start_method: str = ""  # of a worker: fork, spawn or forkserver
    rank: int | None = None
    slot: int = 0  # of a worker: its number among those of its parent that live at a time
    generation: int = 0  # of a worker: how many sets of them its parent has had before
    highest: int = 0  # bytes: the largest resident set, as the kernel knows it
    signal: int = 0  # that has ended it, where it was seen before its parent took its status


class ProcessFigures(NamedTuple):
    """What one process holds at one moment. Bytes, but for the descriptors."""

    anonymous: int  # proportional share of anonymous pages
    shared: int  # proportional share of shared memory
    dirty: int  # private pages that were written
    mapped: int  # anonymous pages, those shared with others counted whole
    resident: int
    descriptors: int

    @property
    def held(self) -> int:
        """Its share of what the tree holds."""
        return self.anonymous + self.shared


class TimelineSample(Struct, frozen=True):
    """All processes at one moment."""

    at: float  # seconds since the start
    processes: dict[int, ProcessFigures]  # by the index of the process in the trace
    group: int | None = None  # bytes that the cgroup is charged with, page cache included
    kills: int = 0  # of the OOM killer in the cgroup, so far
    shm: int | None = None  # bytes in /dev/shm, whoever has put them there
    device: int | None = None  # bytes
    light: bool = False  # told from the full reading before and from what is resident since

    @property
    def total(self) -> int:
        """Proportional share of anonymous and shared memory of all processes, in bytes."""
        return sum(each.held for each in self.processes.values())


class MarkKind(StrEnum):
    """What a mark says."""

    EPOCH = "epoch"
    STEP = "step"
    PHASE = "phase"
    PASS = "pass"  # noqa: S105 - over a loader: seen from outside, by the workers that it starts


class Mark(Struct, frozen=True):
    """A moment that has a name: set by the script, or told from the process tree."""

    at: float
    kind: MarkKind
    number: int = 0
    name: str = ""
    until: float | None = None  # of a phase


class Allocators(NamedTuple):
    """What the allocators of a process say from inside."""

    at: float
    pid: int
    free: int | None  # bytes that glibc keeps free
    blocks: int  # that Python's own allocator has given out
    device_used: int | None = None  # bytes of torch's allocator
    device_reserved: int | None = None


class Kill(Struct, frozen=True):
    """The OOM killer has ended something of the tree."""

    at: float
    by: str  # "cgroup" or "machine"
    count: int
    gone: tuple[int, ...]  # indices of processes that were there at the reading before
    before: TimelineSample  # the last picture


class Ending(Struct, frozen=True):
    """How the command ended."""

    status: int  # as a shell has it
    signal: int = 0  # that killed it
    interrupted: int = 0  # the signal that was sent to it through oomlint, or by the terminal
    highest: int = 0  # bytes: the largest resident set of the first process and those that it has waited for, by the account of the kernel
    left: tuple[int, ...] = ()  # indices of processes that still run
    asked: float | None = None  # seconds since the start: when that signal was sent


class Pace(Struct):
    """How often it was read, and what that took."""

    asked: float  # seconds between two readings
    most: float = OVERHEAD  # of one core that readings may take
    readings: int = 0
    full: int = 0  # of them: with proportional shares
    longest: float = 0.0  # seconds between two readings
    cost: float = 0.0  # seconds of processor time that all readings took
    seconds: float = 0.0  # that were watched

    @property
    def share(self) -> float:
        """Of one core."""
        return self.cost / self.seconds if self.seconds else 0.0

    @property
    def mean(self) -> float:
        """Seconds between two readings."""
        return self.seconds / self.readings if self.readings else self.asked


class Trace(Struct):
    """All that was seen of one command."""

    command: tuple[str, ...]
    folder: str
    processes: list[Process] = field(default_factory=list)
    samples: list[TimelineSample] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    allocators: list[Allocators] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    peak: TimelineSample | None = None
    group_limit: int | None = None  # bytes
    group_most: int = 0  # bytes that it was charged with at a reading
    group_peak: int | None = None  # the same by the kernel's own account, since the cgroup was made
    machine: int | None = None  # bytes of memory that the machine has
    device: str = ""  # its name
    measure: str = "PSS"  # or USS, where the system tells no proportional shares
    pace: Pace = field(default_factory=lambda: Pace(0.0))
    ending: Ending | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, sample: TimelineSample) -> None:
        """Take a reading. Where there are many, of two neighbours the larger stays."""
        self.samples.append(sample)
        if self.peak is None or sample.total > self.peak.total:
            self.peak = sample
        if len(self.samples) > MOST_SAMPLES:
            old, last = self.samples[:-_LAST], self.samples[-_LAST:]
            pairs = (old[start : start + 2] for start in range(0, len(old), 2))
            self.samples = [*(max(pair, key=lambda each: each.total) for pair in pairs), *last]

    def name(self, index: int) -> str:
        """What a process is called in a report."""
        process = self.processes[index]
        if process.role is ProcessRole.RANK:
            return f"rank {process.rank}"
        if process.role is ProcessRole.WORKER:
            whose = next((each for each in self.processes if each.pid == process.parent), None)
            of = f" of rank {whose.rank}" if whose is not None and whose.role is ProcessRole.RANK else ""
            return f"worker {process.slot}{of}"
        if process.role is ProcessRole.MAIN:
            return process.role.value
        if process.role is ProcessRole.HELPER:
            return "forkserver" if "forkserver" in " ".join(process.words) else "resource tracker"
        return process.words[0].rpartition("/")[2] if process.words else process.role.value

    def of_role(self, *roles: ProcessRole) -> tuple[int, ...]:
        """The indices of processes with one of these roles."""
        return tuple(index for index, each in enumerate(self.processes) if each.role in roles)

    def series(self, index: int, quantity: str) -> Points:
        """What one process has of something, over time."""
        return tuple((sample.at, float(getattr(sample.processes[index], quantity))) for sample in self.samples if index in sample.processes)

    def sums(self, indices: Iterable[int], quantity: str) -> Points:
        """The same of several together, for as long as one of them is there."""
        return tuple(self._sums(frozenset(indices), quantity))

    def _sums(self, indices: frozenset[int], quantity: str) -> Iterator[tuple[float, float]]:
        for sample in self.samples:
            found = [getattr(figures, quantity) for index, figures in sample.processes.items() if index in indices]
            if found:
                yield sample.at, float(sum(found))

    def of_tree(self, quantity: str) -> Points:
        """A figure of the sample itself, where it is known."""
        found = ((sample.at, getattr(sample, quantity)) for sample in self.samples)
        return tuple((at, float(value)) for at, value in found if value is not None)

    def of_kind(self, kind: MarkKind) -> list[Mark]:
        """The marks of one kind, in their order."""
        return [mark for mark in self.marks if mark.kind is kind]
