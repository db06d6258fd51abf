"""Runs a command and watches it until it has ended, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from oomlint import cgroups
from oomlint.trace import devices
from oomlint.trace.bystander import Bystander
from oomlint.trace.marks import VARIABLE
from oomlint.trace.reading import ProcessReader, system
from oomlint.trace.timeline import Allocators, Ending, Mark, MarkKind, Pace, ProcessRole, Trace
from oomlint.verify import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

GRACE: Final = 1.0  # seconds that the rest of the tree has to end after the command
_RECENT: Final = 8  # readings whose cost counts
_MOST_STEPS: Final = 4000  # marks of steps that are kept
_STANDARD_ERROR: Final = 2  # its descriptor
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have it
_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_TELLING: Final = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))  # that time is nearly up, as SLURM does
_PASSED_ON: Final = (*_ENDING, *_TELLING)


class StartError(Exception):
    """The command cannot be started; the message says why, ``status`` is what a shell would give."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run(
    command: Sequence[str],
    pace: Pace,
    tell: Callable[[Trace], None] = lambda _: None,
    *,
    follow: bool = False,
    extra: Mapping[str, str] | None = None,
    aside: bool = False,
) -> Trace:
    """Run the command to its end. ``tell`` is called after each reading; ``follow`` watches what it leaves running, too.

    ``aside``: what the command writes to standard output goes to standard error.

    Raises StartError, and NotHere where the system tells nothing of processes.
    """
    source = system()
    trace = Trace(tuple(command), os.getcwd(), measure=source.measure, machine=cgroups.machine_memory(), pace=pace)
    signals.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="oomlint-trace-") as folder, Bystander(_PASSED_ON) as bystander, _signals() as arrived:
        path = os.path.join(folder, "marks")
        gpus = devices.find()
        trace.device = gpus.name if gpus else ""
        start = time.monotonic()
        process = _start(command, {**os.environ, **(extra or {}), VARIABLE: path}, aside=aside)
        with arrived.blocked():
            reader = ProcessReader(trace, source, process.pid, gpus, apart=bystander.pid)
            watch = _Watch(trace, process, reader, _Marks(path, start, trace), start, bystander)
            watch.until_end(arrived, tell, follow=follow)
    return trace


def _start(command: Sequence[str], environment: Mapping[str, str], *, aside: bool) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment, stdout=_STANDARD_ERROR if aside else None)  # noqa: S603 - it is what the user asks for
    except FileNotFoundError as error:
        raise StartError(_not_found(command, error), NOT_FOUND) from None
    except OSError as error:
        raise StartError(f"{command[0]} cannot be run: {error.strerror or error}", NOT_EXECUTABLE) from None


def _largest() -> int:
    """The largest resident set of this process so far, in the unit of ``wait4``; 0 where there is none."""
    if not hasattr(os, "wait4"):
        return 0
    import resource  # noqa: PLC0415 - where there is one

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _not_found(command: Sequence[str], error: FileNotFoundError) -> str:
    """What to say of a command that is not there: often it is a line that only a shell understands."""
    word = command[0]
    if any(character in word for character in "|&;<>$`") or (len(command) == 1 and " " in word.strip()):
        return f"{word!r} is no program. A line for a shell is run by one: `oomlint trace -- sh -c {word!r}`"
    if "=" in word.partition("/")[0]:
        return f"{word!r} is no program. Variables are set by env: `oomlint trace -- env {word} ...`"
    if os.path.exists(word) and "/" not in word:  # the folder is not on the PATH
        start = "./" if os.access(word, os.X_OK) else "python " if word.endswith(".py") else "sh "
        return f"{word}: there is no such program, but a file here: `oomlint trace -- {start}{word}`"
    if os.path.exists(word):
        return f"{word} cannot be run: the interpreter that its first line names is not there"
    return f"{word}: {error.strerror or 'No such file or directory'}"


class _Watch:
    """The readings of one run."""

    def __init__(self, trace: Trace, process: subprocess.Popen[bytes], reader: ProcessReader, marks: _Marks, start: float, bystander: Bystander) -> None:
        self._trace = trace
        self._process = process
        self._bystander = bystander
        self._reader = reader
        self._marks = marks
        self._start = start
        self._costs: deque[float] = deque(maxlen=_RECENT)  # of light readings, in seconds
        self._full = 0.0  # seconds that the last full reading took
        self._highest = 0
        self._own = _largest()
        self._interrupted = 0
        self._asked: float | None = None  # when, in seconds since the start
        self._stopped = False  # watching what was left behind is over

    def until_end(self, arrived: _Arrived, tell: Callable[[Trace], None], *, follow: bool) -> None:
        """Read, wait, and read again."""
        last = self._start
        while True:
            self._read()
            now = time.monotonic()
            self._trace.pace.longest = max(self._trace.pace.longest, now - last)
            last = now
            tell(self._trace)
            self._wait(arrived, self._pause())
            if self._ended():
                break
        status = self._process.returncode
        self._settle(arrived, tell, follow=follow)
        at = time.monotonic() - self._start
        self._trace.pace.seconds = at
        self._reader.gone(at)
        self._marks.read()
        _passes(self._trace)
        if not status:
            # The machine's count is of all that runs on it, and what ended here ended in order.
            self._trace.kills = [kill for kill in self._trace.kills if kill.by == "cgroup"]
        self._trace.ending = Ending(
            128 - status if status < 0 else status,
            max(-status, 0),
            self._interrupted,
            self._highest,
            self._reader.left(at),
            self._asked,
        )

    def _read(self) -> None:
        """A full reading where that is within the share, a light one between those."""
        pace = self._trace.pace
        at = time.monotonic() - self._start
        before = time.thread_time()
        sample = self._reader.read(at, light=pace.cost + self._full > pace.most * at and pace.full > 0)
        self._marks.read()
        if sample.processes:
            self._trace.add(sample)
        cost = time.thread_time() - before
        if sample.light:
            self._costs.append(cost)
        else:
            self._full = cost
            pace.full += 1
        pace.readings += 1
        pace.cost += cost

    def _pause(self) -> float:
        """Seconds until the next reading: those asked for, or more where light ones alone would take half of the share."""
        light = sum(self._costs) / len(self._costs) if self._costs else 0.0
        return max(self._trace.pace.asked, light / (self._trace.pace.most / 2))

    def _wait(self, arrived: _Arrived, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            number = arrived.wait(rest)
            if number == getattr(signal, "SIGCHLD", 0) and self._ended():
                return
            if number in _PASSED_ON:
                if number in _ENDING and not self._interrupted:
                    self._interrupted, self._asked = number, time.monotonic() - self._start
                if self._process.returncode is not None:
                    if number in _TELLING:
                        continue  # there is nobody left to tell
                    self._stopped = True
                    return
                if not self._bystander.shares(number, self._process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(self._process.pid, number)

    def _ended(self) -> bool:
        """Whether the command has; its status is taken then, with what the kernel says of its memory."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "wait4"):
            return self._process.poll() is not None
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            # Until it becomes the program, a new process is as large as the one that starts it, and the kernel counts that, too.
            self._highest = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) if usage.ru_maxrss > self._own else 0
        return pid != 0

    def _settle(self, arrived: _Arrived, tell: Callable[[Trace], None], *, follow: bool) -> None:
        """Let what the command has started end, too. What it leaves running is read once more, so that the report has its size."""
        until = time.monotonic() + GRACE
        while (left := self._reap()) and not self._stopped and (follow or time.monotonic() < until):
            if follow:
                self._read()
                tell(self._trace)
            self._wait(arrived, self._pause() if follow else 0.05)
        if left and not follow:
            self._read()

    def _reap(self) -> bool:
        """Take the status of adopted processes that have ended; whether others are left."""
        for process in self._trace.processes:
            if process.pid != self._process.pid:
                with suppress(ChildProcessError, OSError):
                    pid, status = os.waitpid(process.pid, os.WNOHANG)
                    process.signal = status & 0x7F if pid else process.signal
        return bool(self._reader.left(time.monotonic() - self._start))


# -- marks -------------------------------------------------------------------------------------------------------------


class _Marks:
    """Reads what the script has written so far."""

    def __init__(self, path: str, start: float, trace: Trace) -> None:
        self._path = path
        self._start = start
        self._trace = trace
        self._place = 0
        self._open: dict[tuple[int, str], float] = {}

    def read(self) -> None:
        """Take the lines that are new. One that is not written to its end waits."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                data = file.read()
        except OSError:
            return
        whole, _, _ = data.rpartition(b"\n")
        self._place += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                self._take(json.loads(line))
        steps = [mark for mark in self._trace.marks if mark.kind is MarkKind.STEP]
        if len(steps) > _MOST_STEPS:
            dropped = set(map(id, steps[:-1:2]))
            self._trace.marks = [mark for mark in self._trace.marks if id(mark) not in dropped]

    def _take(self, said: dict[str, Any]) -> None:
        at, pid, kind = float(said["at"]) - self._start, int(said["pid"]), said["mark"]
        if kind in {"epoch", "step"}:
            self._trace.marks.append(Mark(at, MarkKind(kind), int(said["number"])))
        elif kind == "begin":
            self._open[pid, str(said["name"])] = at
        elif kind == "end":
            name = str(said["name"])
            self._trace.marks.append(Mark(self._open.pop((pid, name), at), MarkKind.PHASE, 0, name, at))
        elif kind == "allocators":
            self._trace.allocators.append(Allocators(at, pid, said.get("free"), int(said["blocks"]), said.get("device_used"), said.get("device_reserved")))


def _passes(trace: Trace) -> None:
    """Passes over loaders, told from the sets of workers that they start."""
    first: dict[tuple[int, int], float] = {}
    for each in trace.processes:
        if each.role is ProcessRole.WORKER and each.until > each.since:  # what is seen once may be on its way to another program
            key = (each.parent, each.generation)
            first[key] = min(first.get(key, each.since), each.since)
    trace.marks += [Mark(at, MarkKind.PASS, number) for number, at in enumerate(sorted(first.values()))]
    trace.marks.sort(key=lambda mark: mark.at)


# -- signals -----------------------------------------------------------------------------------------------------------


class _Arrived:
    """Waits for signals."""

    def __init__(self, numbers: frozenset[int]) -> None:
        self._numbers = numbers
        self._waiting: list[int] = []
        self._waits = hasattr(signal, "sigtimedwait")

    def take(self, number: int, _: object) -> None:
        """A handler that only remembers."""
        self._waiting.append(number)

    def wait(self, seconds: float) -> int:
        """The signal that has come; 0 where none has come in that time."""
        if self._waiting:
            return self._waiting.pop(0)
        if not self._waits:
            time.sleep(min(seconds, 0.05))
            return self._waiting.pop(0) if self._waiting else getattr(signal, "SIGCHLD", 0)
        found = signal.sigtimedwait(self._numbers, seconds)
        return found.si_signo if found else 0

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Keep the signals for :meth:`wait`. The command is there by then: it does not inherit this."""
        if not self._waits:
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _signals() -> Iterator[_Arrived]:
    """Signals that end a process do not end this one: the report is still to be written. What is ignored, as under nohup, stays so for the command, too."""
    wanted = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    child = [signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else []
    arrived = _Arrived(frozenset([*wanted, *child]))
    known = {number: signal.signal(number, arrived.take) for number in wanted}
    if child:
        known[child[0]] = signal.signal(child[0], lambda *_: None)
    try:
        yield arrived
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)
