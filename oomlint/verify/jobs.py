"""What a child process is asked to do, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MEBIBYTE: Final = 2**20
NO_TCP_SINCE: Final = 4  # version of Landlock, as the next
SCOPES_SINCE: Final = 6  # abstract sockets and signals


class JobEnd(StrEnum):
    """How a job came to its end."""

    EXIT = "exit"  # by itself, whatever its status
    SIGNAL = "signal"  # killed by a signal that the harness did not send: a segmentation fault, the system's killer
    TIME = "time"  # over its time
    MEMORY = "memory"  # over the cap of memory
    PROCESSES = "processes"  # more processes than any loader has
    DISK = "disk"  # more on the disk than it may write


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may take; all its descendants count."""

    seconds: float = 5.0
    memory: int = 2048 * MEBIBYTE  # bytes of anonymous and shared memory of the whole process tree
    disk: int = 2048 * MEBIBYTE  # bytes that all files together take which it writes
    descriptors: int = 1024  # a process
    processes: int = 64


@dataclass(frozen=True, slots=True)
class Job:
    """A call of a function of :mod:`oomlint.verify.child` in a process of its own.

    ``call`` is "room.module:function" ("driving.dataset_job:measure"). The function takes the keywords of ``arguments`` (plain JSON) and gives back plain JSON.
    ``folder`` is its current folder, the copy of the project; it and ``writable`` are all that it may write to.
    """

    call: str
    arguments: Mapping[str, Any]
    folder: str
    limits: Limits = field(default_factory=Limits)
    writable: tuple[str, ...] = ()
    fresh: bool = False  # in a fresh interpreter, not forked from the server
    timeline: bool = False  # read the memory of the tree all the while


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job. ``answer`` is ``None`` where the function did not come to its end."""

    ended: JobEnd
    status: int  # exit status; minus the signal
    answer: Any  # what the function gave back
    failure: str  # one line: why there is no answer; empty where there is one
    printed: str  # standard output, at most the last 64 KiB
    errors: str  # standard error, likewise
    seconds: float
    peak: int = 0  # bytes of anonymous and shared memory of the whole process tree (Pss_Anon + Pss_Shmem), the highest seen
    left: int = 0  # descendants that were still running when it ended, and were removed
    timeline: tuple[tuple[float, float], ...] = ()  # seconds since it began, and such bytes


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What keeps jobs in on this machine, as the launcher has found it."""

    files: bool = False  # a file system of their own: what they may see, read-only, and their folders
    processes: bool = False  # they see and reach their own processes only
    network: bool = False  # a network of their own
    landlock: int = 0  # version of its interface; 0 where there is none
    filter: bool = False  # of system calls
    held: bool = False  # whether an attempt to write elsewhere was refused

    def __str__(self) -> str:
        """In words; empty where nothing refuses their writes."""
        if not self.held:
            return ""
        parts = [
            "own file system" if self.files else "",
            "own processes" if self.processes else "",
            f"Landlock {self.landlock}" if self.landlock else "",
            "filtered system calls" if self.filter else "",
            "no network" if self.network or self.filter else "no TCP" if self.landlock >= NO_TCP_SINCE else "network open",
        ]
        return ", ".join(part for part in parts if part)


class SandboxError(Exception):
    """No job can be run; the message is one line that names the interpreter and the cause."""
