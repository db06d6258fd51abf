"""Reads the process tree of a command: who is there, what each of them is, and what it holds.

On Linux from /proc. Elsewhere psutil says what it can: unique set sizes, which count nothing that is shared.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from oomlint import cgroups
from oomlint.trace.roles import About, is_python, role_of
from oomlint.trace.timeline import Kill, Process, ProcessFigures, ProcessRole, TimelineSample
from oomlint.verify import process_tree

if TYPE_CHECKING:
    from oomlint.trace.devices import Devices
    from oomlint.trace.timeline import Trace

_TOGETHER = 2.0  # seconds between the starts of two workers of one set; spawned ones take that long to begin
_STATUS = 49  # the place of `exit_code` in /proc/PID/stat, after the name
_SETTLING = 5  # readings after which the command line of a new process is final: between fork and exec it has that of its parent


class System(Protocol):
    """Where the figures come from."""

    measure: str  # what is measured

    def below(self) -> list[int]:
        """The processes below this one."""

    def begun(self, pid: int) -> float:
        """When a process was started, in any unit. Raises ProcessLookupError where it is gone."""

    def about(self, pid: int) -> About:
        """What it is. Raises ProcessLookupError."""

    def parent(self, pid: int) -> int:
        """Its parent; 0 where it is gone."""

    def ended_by(self, pid: int) -> int:
        """The signal that has ended a process whose status nobody has taken yet; 0 where none has, or it is gone."""

    def figures(self, pid: int) -> tuple[ProcessFigures, int]:
        """What it holds, and the largest resident set that it has had. Raises ProcessLookupError."""

    def update(self, pid: int, figures: ProcessFigures) -> tuple[ProcessFigures, int]:
        """The same at less cost, from its figures before. Raises ProcessLookupError."""


class Linux:
    """By /proc."""

    measure = "PSS"

    def below(self) -> list[int]:
        """The processes below this one. Orphans are among them: this process adopts them."""
        return sorted(pid for pid in process_tree.family(os.getpid()) if pid != os.getpid())

    def begun(self, pid: int) -> float:
        """When a process was started, in ticks."""
        try:
            return process_tree.begun(pid)
        except (IndexError, ValueError):
            raise ProcessLookupError(pid) from None

    def about(self, pid: int) -> About:
        """What it is."""
        return About(process_tree.called(pid), process_tree.thread_name(pid), process_tree.variables(pid), process_tree.folder(pid))

    def parent(self, pid: int) -> int:
        """Its parent."""
        return process_tree.parent(pid)

    def ended_by(self, pid: int) -> int:
        """The signal that has ended a process, by the status that waits for its parent."""
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            return int(fields[_STATUS]) & 0x7F if fields[0] == "Z" else 0
        except (OSError, IndexError, ValueError):
            return 0

    def figures(self, pid: int) -> tuple[ProcessFigures, int]:
        """What it holds."""
        memory = process_tree.memory(pid)
        descriptors = process_tree.descriptors(pid)
        return ProcessFigures(memory.anonymous, memory.shared, memory.dirty, memory.mapped, memory.resident, descriptors), process_tree.highest(pid)

    def update(self, pid: int, figures: ProcessFigures) -> tuple[ProcessFigures, int]:
        """What it has taken since is its own, and so is what it has given back, if it had that much; what it has copied waits for a full reading."""
        resident, mapped = process_tree.in_memory(pid)
        more = mapped - figures.mapped
        if min(figures.dirty, figures.anonymous) + more < 0:  # pages that others still map are gone: only a full reading tells whose they are now
            return self.figures(pid)
        now = ProcessFigures(figures.anonymous + more, figures.shared, figures.dirty + more, mapped, resident, process_tree.descriptors(pid))
        return now, process_tree.highest(pid)


class Portable:
    """By psutil."""

    measure = "USS"

    def __init__(self) -> None:
        import psutil  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - of an extra

        self._psutil: Any = psutil

    def _asked(self, pid: int, *questions: str) -> list[Any]:
        try:
            process = self._psutil.Process(pid)
            return [getattr(process, question)() for question in questions]
        except self._psutil.Error:
            raise ProcessLookupError(pid) from None

    def below(self) -> list[int]:
        """The processes below this one."""
        found = self._psutil.Process().children(recursive=True)
        return [each.pid for each in found if each.is_running() and each.status() != self._psutil.STATUS_ZOMBIE]

    def begun(self, pid: int) -> float:
        """When a process was started, in seconds."""
        return float(self._asked(pid, "create_time")[0])

    def about(self, pid: int) -> About:
        """What it is. Others' environments may not be read: ranks are not told then."""
        words = tuple(self._asked(pid, "cmdline")[0])
        try:
            return About(words, "", self._asked(pid, "environ")[0])
        except ProcessLookupError:
            return About(words)

    def parent(self, pid: int) -> int:
        """Its parent."""
        try:
            return int(self._asked(pid, "ppid")[0])
        except ProcessLookupError:
            return 0

    def ended_by(self, pid: int) -> int:  # noqa: ARG002 - it is not told
        """Nothing."""
        return 0

    def figures(self, pid: int) -> tuple[ProcessFigures, int]:
        """What it holds."""
        memory, descriptors = self._asked(pid, "memory_full_info", "num_handles" if sys.platform == "win32" else "num_fds")
        return ProcessFigures(memory.uss, 0, memory.uss, memory.uss, memory.rss, descriptors), getattr(memory, "peak_wset", memory.rss)

    def update(self, pid: int, figures: ProcessFigures) -> tuple[ProcessFigures, int]:  # noqa: ARG002 - there is nothing cheaper
        """What it holds."""
        return self.figures(pid)


def system() -> System:
    """What this machine tells. Raises NotHere where it tells nothing."""
    try:
        process_tree.memory(os.getpid())
    except (process_tree.NotHere, ProcessLookupError):
        try:
            return Portable()
        except ImportError:
            raise process_tree.NotHere("memory is read from /proc of Linux 5.9 or newer; elsewhere psutil is needed (`pip install psutil`)") from None
    return Linux()


class ProcessReader:
    """Reads again and again, and knows the processes of the readings before."""

    def __init__(self, trace: Trace, system: System, first: int, devices: Devices | None = None, apart: int = 0) -> None:
        self._trace = trace
        self._system = system
        self._first = first  # the number of the command's first process
        self._apart = apart  # of a process below this one that is none of the command's
        self._devices = devices
        self._known: dict[tuple[int, float], int] = {}
        self._seen: dict[int, int] = {}  # readings, by index
        self._about: dict[int, About] = {}  # by number of the process
        self._own = About((), "", dict(os.environ))
        self._shm = _shm()
        self._group: cgroups.Cgroup | None = None
        self._kills = 0
        self._machine_kills = cgroups.machine_kills()

    def read(self, at: float, *, light: bool = False) -> TimelineSample:
        """The tree as it is now. ``light``: without the proportional shares of processes that are known from the reading before."""
        pids = self._below()
        before = self._trace.samples[-1].processes if light and self._trace.samples else {}
        if {self._trace.processes[index].pid for index in before} != set(pids):
            before = {}  # who comes or goes changes the shares of all others
        processes: dict[int, ProcessFigures] = {}
        group = cgroups.group_of(self._first)
        for pid in pids:
            try:
                index = self._index(pid, at)
                known = before.get(index)
                processes[index], highest = self._system.figures(pid) if known is None else self._system.update(pid, known)
            except ProcessLookupError:
                continue
            process = self._trace.processes[index]
            process.until = at
            process.highest = max(process.highest, highest)
        # A process that has ended is in no cgroup of its own any more: only what was asked before it was seen alive counts.
        if any(self._trace.processes[index].pid == self._first for index in processes):
            self._follow(group)
        shm = _shm()
        charged = self._group.current() if self._group else None
        self._trace.group_most = max(self._trace.group_most, charged or 0)
        sample = TimelineSample(
            at,
            processes,
            charged,
            self._kills,
            None if shm is None or self._shm is None else max(shm - self._shm, 0),
            self._devices.used({self._trace.processes[index].pid for index in processes}) if self._devices else None,
            bool(before),
        )
        if self._trace.samples:
            for index in self._trace.samples[-1].processes.keys() - processes.keys():
                self._trace.processes[index].signal = self._system.ended_by(self._trace.processes[index].pid)
        self._note_kills(sample)
        promote(self._trace)
        return sample

    def gone(self, at: float) -> None:
        """The command has ended: look once more for what has ended it."""
        self._note_kills(TimelineSample(at, {}))
        if self._group is not None:
            self._trace.group_peak = self._group.peak()

    def left(self, at: float) -> tuple[int, ...]:
        """The processes that are still there, those that no reading has seen among them."""
        found = []
        for pid in self._below():
            with suppress(ProcessLookupError):
                found.append(self._index(pid, at))
        return tuple(found)

    def _below(self) -> list[int]:
        return [pid for pid in self._system.below() if pid != self._apart]

    # -- who it is -------------------------------------------------------------------------------------------------

    def _index(self, pid: int, at: float) -> int:
        key = (pid, self._system.begun(pid))
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self._trace.processes)
            self._trace.processes.append(Process(pid, self._system.parent(pid), at, at))
        self._seen[index] = self._seen.get(index, 0) + 1
        if self._seen[index] <= _SETTLING:
            self._describe(index, at)
        return index

    def _describe(self, index: int, at: float) -> None:
        process = self._trace.processes[index]
        about = self._about[process.pid] = self._system.about(process.pid)
        parent = self._about.get(process.parent, self._own)
        if not about.words or (about.words == process.words and process.role in {ProcessRole.MAIN, ProcessRole.RANK, ProcessRole.HELPER}):
            return
        was = process.role
        process.words, process.folder = about.words, about.folder or process.folder
        process.role, process.start_method, process.rank = role_of(about, parent)
        if process.role is ProcessRole.WORKER and was is not ProcessRole.WORKER:
            process.slot, process.generation = self._place_of(process, at)

    def _place_of(self, process: Process, at: float) -> tuple[int, int]:
        """The slot and the generation of a new worker. Those of a generation are started together; the first comes when all before it have gone, or later."""
        siblings = [each for each in self._trace.processes if each.parent == process.parent and each.role is ProcessRole.WORKER and each is not process]
        alive = [each for each in siblings if each.until >= at or os.path.exists(f"/proc/{each.pid}")]
        taken = {each.slot for each in alive}
        last = max(siblings, key=lambda each: each.since, default=None)
        together = last is not None and bool(alive) and process.since - last.since <= _TOGETHER
        generation = 0 if last is None else last.generation + (0 if together else 1)
        return next(number for number in range(len(taken) + 1) if number not in taken), generation

    # -- who has ended it ------------------------------------------------------------------------------------------

    def _follow(self, group: cgroups.Cgroup | None) -> None:
        if group is not None and group != self._group:
            self._group, self._kills = group, group.kills()
            self._trace.group_limit, self._trace.group_most = group.limit(), 0

    def _note_kills(self, now: TimelineSample) -> None:
        before = self._trace.samples[-1] if self._trace.samples else None
        gone = tuple(index for index in before.processes if index not in now.processes) if before else ()
        if before is None or not gone:
            return
        in_group = self._group.kills() - self._kills if self._group else 0
        on_machine = cgroups.machine_kills() - self._machine_kills
        self._kills += in_group
        self._machine_kills += on_machine
        if in_group > 0 or on_machine > 0:
            by = "cgroup" if in_group > 0 and self._trace.group_limit is not None else "machine"
            self._trace.kills.append(Kill(now.at, by, max(in_group, on_machine), gone, before))


def promote(trace: Trace) -> None:
    """Find the main process: no launcher and no worker, and the one that holds the most. Processes that have loader workers of their own are ranks."""
    with_workers = {each.parent for each in trace.processes if each.role is ProcessRole.WORKER}
    for each in trace.processes:
        if each.role is ProcessRole.WORKER and each.pid in with_workers and each.start_method != "fork":
            each.role, each.rank = ProcessRole.RANK, each.slot
    if any(each.role is ProcessRole.RANK for each in trace.processes):
        for each in trace.processes:
            if each.role is ProcessRole.MAIN:
                each.role = ProcessRole.OTHER
        return
    candidates = [each for each in trace.processes if each.role in {ProcessRole.MAIN, ProcessRole.OTHER}]
    python = [each for each in candidates if is_python(each.words)]
    best = max(python or candidates, key=lambda each: each.highest, default=None)
    for each in candidates:
        each.role = ProcessRole.MAIN if each is best else ProcessRole.OTHER


def _shm() -> int | None:
    """Bytes in the file system of shared memory."""
    try:
        known = os.statvfs("/dev/shm")  # noqa: S108 - asked how full it is
    except (OSError, AttributeError):
        return None
    return (known.f_blocks - known.f_bfree) * known.f_frsize
