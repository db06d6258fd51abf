"""One job of a sandbox while it runs: what it says, what it holds, and when it has to end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import time
from typing import TYPE_CHECKING, Final

from oomlint.verify import process_tree
from oomlint.verify.environment import links_of, of_job
from oomlint.verify.jobs import MEBIBYTE, Done, JobEnd, Sandbox
from oomlint.verify.sandbox_server import Gone, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.verify.jobs import Job
    from oomlint.verify.sandbox_server import SandboxServer


_END_SECONDS: Final = 15.0  # a server that has not removed a job by then is removed itself
_TAIL: Final = 64 * 1024  # bytes kept of what a job prints
_LONGEST_FAILURE: Final = 2000  # characters
_LARGEST_ANSWER: Final = 256 * MEBIBYTE  # bytes
_FLOOD: Final = 32 * MEBIBYTE  # bytes of output from which its beginning is thrown away
_PATIENCE: Final = 4  # times its limit is what a job may wait for a processor, at most
_LITTLE: Final = 0.4  # of the cap
_RELAXED: Final = 3  # times as long
_EXACT_EVERY: Final = 5  # readings: the cheap bound is looked at every time, the exact figure now and then
_SHARED: Final = "/dev/shm"  # noqa: S108
_DISK_EVERY: Final = 25  # likewise


def _end_of(handle: int) -> bytes:
    return os.pread(handle, _TAIL, max(0, os.fstat(handle).st_size - _TAIL))


class Running:
    """One job, from its file to its end."""

    def __init__(self, job: Job, place: str) -> None:
        self.job = job
        self.place = place
        self._peak = 0
        self._readings = 0
        self._shared = free(_SHARED)
        self._disk = Disk([job.folder, place, *job.writable], job.limits.disk)
        self._bound = 0  # bytes, at most, at the latest reading
        self._timeline: list[tuple[float, float]] = []
        self._kept = {"out": b"", "err": b""}
        self._start = time.monotonic()
        os.mkdir(place)  # none that an earlier job may have put there
        # Held open: the job may put other files in their places, and links to those of the user.
        self._folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._streams = {name: os.open(name, flags, 0o600, dir_fd=self._folder) for name in self._kept}
        home, temporary = os.path.join(place, "home"), os.path.join(place, "tmp")
        self._message = {
            "call": job.call,
            "arguments": dict(job.arguments),
            "folder": job.folder,
            "writable": [job.folder, place, *job.writable],
            "fresh": job.fresh,
            "descriptors": job.limits.descriptors,
            "file_bytes": job.limits.disk,
            "environment": of_job(home, temporary),
            "folders": [home, temporary],
            "links": links_of(home),
            **{name: os.path.join(place, name) for name in ("out", "err", "answer", "file")},
        }

    def watch(self, server: SandboxServer) -> Done:
        """Start it and wait for its end. Raises Gone where the server dies."""
        limits = self.job.limits
        server.send({"job": self._message})
        started = server.receive(_END_SECONDS)
        if started is None:
            raise Gone
        inside = number_of(started, "started")
        pid = server.outside(inside)
        self._start = time.monotonic()
        deadline = self._start + limits.seconds
        ended = JobEnd.EXIT
        while (message := server.receive(self._pause())) is None:
            if ended is not JobEnd.EXIT:
                if time.monotonic() > deadline:
                    raise Gone
                continue
            ended = JobEnd.TIME if time.monotonic() > deadline and self._late(pid) else self._look(pid, server.sandbox)
            if ended is not JobEnd.EXIT:
                deadline = time.monotonic() + _END_SECONDS
                server.send({"end": inside})
        status = number_of(message, "status")
        if ended is JobEnd.EXIT and self._disk.is_full((), certain=True):  # on a busy machine a job can write all that between two readings
            ended = JobEnd.DISK
        return self.done(JobEnd.SIGNAL if ended is JobEnd.EXIT and status < 0 else ended, status, number_of(message, "left"))

    def _pause(self) -> float:
        """Seconds until the next reading. What takes little is looked at less often: it cannot get to the cap in that time."""
        return process_tree.INTERVAL if self.job.timeline or self._bound > self.job.limits.memory * _LITTLE else _RELAXED * process_tree.INTERVAL

    def _late(self, pid: int) -> bool:
        """Whether it has had its time. On a busy machine the time that it waited for a processor is not its own: a verdict must not depend on others."""
        seconds = self.job.limits.seconds
        return time.monotonic() - self._start > seconds + min(process_tree.delayed(process_tree.family(pid)), _PATIENCE * seconds)

    def _look(self, pid: int, sandbox: Sandbox) -> JobEnd:
        """Read the tree, as cheaply as will do."""
        limits = self.job.limits
        self._trim()
        self._readings += 1
        if not sandbox.files and self._shared - free(_SHARED) > limits.memory:  # its own has a size
            return JobEnd.MEMORY
        try:
            pids = process_tree.family(pid)
            if len(pids) - 1 > limits.processes:
                return JobEnd.PROCESSES
            if not self.job.timeline:
                self._bound = process_tree.resident(pids)
            if self._disk.is_full(pids, certain=not self._readings % _DISK_EVERY):
                return JobEnd.DISK
            if not self.job.timeline and self._readings % _EXACT_EVERY and self._bound <= limits.memory:
                return JobEnd.EXIT
            memory = process_tree.total(process_tree.tree(pid) if self.job.timeline else pids)
            if self.job.timeline:
                self._timeline.append((time.monotonic() - self._start, float(memory)))
        except process_tree.NotHere:
            return JobEnd.EXIT
        self._peak = max(self._peak, memory)
        return JobEnd.MEMORY if memory > limits.memory else JobEnd.EXIT

    def done(self, ended: JobEnd, status: int, left: int, cause: str = "") -> Done:
        """What came of it."""
        seconds = time.monotonic() - self._start
        answer, failure = None, ""
        try:
            written = json.loads(self._written("answer"))
            answer, failure = written["answer"], written["failure"]
            if ended is JobEnd.DISK or not isinstance(failure, str) or (answer is None) != bool(failure):
                raise TypeError  # noqa: TRY301 -- what a job has made of it itself is no answer
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            answer, failure = None, cause or self._failure(ended, status)
        printed, errors = (self._tail(name) for name in self._kept)
        for handle in (*self._streams.values(), self._folder):
            os.close(handle)
        return Done(ended, status, answer, failure[:_LONGEST_FAILURE], printed, errors, seconds, self._peak, left, tuple(self._timeline))

    def _failure(self, ended: JobEnd, status: int) -> str:
        limits = self.job.limits
        match ended:
            case JobEnd.TIME:
                return f"not at its end after {limits.seconds:g} s"
            case JobEnd.MEMORY:
                return f"more than {limits.memory // MEBIBYTE:,} MiB of memory"
            case JobEnd.DISK:
                return f"more than {limits.disk // MEBIBYTE:,} MiB on the disk"
            case JobEnd.PROCESSES:
                return f"more than {limits.processes} processes"
            case JobEnd.SIGNAL:
                with contextlib.suppress(ValueError):
                    return f"killed by {signal.Signals(-status).name}"
                return f"killed by signal {-status}"
            case _:
                return f"the process ended itself with status {status}"

    def _trim(self) -> None:
        """Throw away the beginning of a flood of output. The job appends, so a shorter file is no harm."""
        for name, handle in self._streams.items():
            if os.fstat(handle).st_size > _FLOOD:
                self._kept[name] = _end_of(handle)
                os.ftruncate(handle, 0)

    def _written(self, name: str) -> bytes:
        """A file that the job has made, and nothing else: no link to a file of the user's, nothing that blocks. Raises OSError."""
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        with open(handle, "rb") as file:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST_ANSWER:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
            return file.read()

    def _tail(self, name: str) -> str:
        self._kept[name] += _end_of(self._streams[name])
        return self._kept[name][-_TAIL:].decode("utf-8", "replace")


_BLOCK: Final = 512  # bytes, of st_blocks


class Disk:
    """What is written below some folders, by files that are new or have changed since this was made, and by files without a name that are open."""

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        """The first folder tells the disk. ``limit`` is in bytes."""
        self._folders = folders
        self._limit = limit
        self._since = time.time_ns()
        self._free = free(folders[0])

    def is_full(self, pids: Iterable[int], *, certain: bool) -> bool:
        """Whether the processes have written more than they may. Where not ``certain``, files are counted only where the disk has lost much of its room."""
        if not certain and self._free - free(self._folders[0]) < self._limit // 2:
            return False
        written = 0
        for about in (*self._files(), *_unnamed(pids)):
            written += about.st_blocks * _BLOCK
            if written > self._limit:
                return True
        return False

    def _files(self) -> Iterator[os.stat_result]:
        waiting = list(self._folders)
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
                for entry in found:
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif (about := entry.stat(follow_symlinks=False)).st_ctime_ns >= self._since:  # no program can set it back
                            yield about


def free(folder: str) -> int:
    """Bytes that are free on the disk of a folder."""
    with contextlib.suppress(OSError):
        about = os.statvfs(folder)
        return about.f_bavail * about.f_frsize
    return 0


def _unnamed(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Files that are open and have no name any more, or never had one."""
    seen = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    about = os.stat(f"/proc/{pid}/fd/{name}")
                    if about.st_nlink == 0 and (about.st_dev, about.st_ino) not in seen:
                        seen.add((about.st_dev, about.st_ino))
                        yield about
