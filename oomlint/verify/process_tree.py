"""Reads a process tree from outside: who belongs to it, and what it holds.

Standard library only: the parent, the children and the tracer of a command all use it. The figure that counts is the proportional share of anonymous and
shared memory: resident sets count a page once for every process that maps it, and with them a list cannot be told from an array.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


INTERVAL: Final = 0.02  # seconds between two readings: with it a cap of 600 MB stops at 604 to 668 MB

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_KIBIBYTE: Final = 1024
_LOOKS: Final = 3
_BETWEEN: Final = 0.01  # seconds between them
_SHORT: Final = 2048  # bytes: what is shorter than half a page came in one piece


class NotHere(Exception):  # noqa: N818 -- it says what the system lacks, nothing has gone wrong
    """This system does not tell; the message says what is missing."""


class ProcessMemory(NamedTuple):
    """What one process holds, in bytes."""

    anonymous: int  # proportional share of anonymous pages: a page that two processes share counts half in each
    shared: int  # proportional share of shared memory
    private: int  # pages that nobody else maps
    resident: int  # all pages in memory, whoever else maps them
    dirty: int  # private pages that were written
    mapped: int  # anonymous pages, those shared with a parent counted whole: it grows with what the process itself takes, not when it copies


def tree(pid: int) -> list[int]:
    """The process and all its live descendants, itself first. Zombies are left out; orphans belong to the sub-reaper that has taken them."""
    below: dict[int, list[int]] = {}
    alive = set()
    for name in _listed("/proc"):
        if name.isdigit() and (about := _stat(int(name))):
            below.setdefault(about[1], []).append(int(name))
            if about[0] not in "ZX":
                alive.add(int(name))
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop(0)
        if current in alive:
            found.append(current)
        waiting += below.get(current, ())
    return found


def family(pid: int) -> list[int]:
    """As :func:`tree`, at a tenth of the cost. It may miss a process that starts or ends just now: good enough to look at again soon."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        about = _stat(current)
        if about is None:
            continue
        if about[0] not in "ZX":
            found.append(current)
        with contextlib.suppress(ProcessLookupError, OSError):
            for task in os.listdir(f"/proc/{current}/task"):
                waiting += map(int, _read(current, f"task/{task}/children").split())
    return found or tree(pid)


def inside(pid: int) -> int:
    """The number that a process has in its own namespace; 0 where it is gone."""
    with contextlib.suppress(ProcessLookupError):
        return int(_told(pid, "status", b"NSpid:")[-1])
    return 0


def memory(pid: int) -> ProcessMemory:
    """What one process holds. Raises ProcessLookupError where it is gone."""
    figures: dict[bytes, int] = {}
    for line in _read(pid, "smaps_rollup").splitlines()[1:]:
        key, _, value = line.partition(b":")
        figures[key] = int(value.split()[0]) * _KIBIBYTE
    if not figures:
        raise ProcessLookupError(pid)
    if b"Pss_Anon" not in figures:
        raise NotHere("the kernel does not tell proportional shares of anonymous memory (Pss_Anon): Linux 5.9 or newer is needed")
    return ProcessMemory(
        figures[b"Pss_Anon"],
        figures.get(b"Pss_Shmem", 0),
        figures.get(b"Private_Clean", 0) + figures.get(b"Private_Dirty", 0),
        figures.get(b"Rss", 0),
        figures.get(b"Private_Dirty", 0),
        figures.get(b"Anonymous", 0),
    )


def descriptors(pid: int) -> int:
    """How many file descriptors a process has open. Raises ProcessLookupError where it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        _check_system()
        raise ProcessLookupError(pid) from None


def highest(pid: int) -> int:
    """The largest resident set that a process has had so far, in bytes: the kernel misses no peak. Raises ProcessLookupError where it is gone."""
    return int(_told(pid, "status", b"VmHWM:")[0]) * _KIBIBYTE


def in_memory(pid: int) -> tuple[int, int]:
    """Bytes of a process that are in memory, and those of them that are anonymous: a hundredth of the cost of :func:`memory`, and no proportional shares."""
    try:
        resident, shared = _read(pid, "statm").split()[1:3]
    except ValueError:
        raise ProcessLookupError(pid) from None
    return int(resident) * _PAGE, (int(resident) - int(shared)) * _PAGE


def begun(pid: int) -> int:
    """When a process was started, in ticks since the machine was: with its number it tells it from one that has the number later."""
    return int(_read(pid, "stat").rpartition(b")")[2].split()[19])


def parent(pid: int) -> int:
    """The parent of a process; 0 where it is gone."""
    return (_stat(pid) or ("", 0))[1]


def called(pid: int) -> tuple[str, ...]:
    """The words that a process was started with. Raises ProcessLookupError where it is gone."""
    return tuple(_read(pid, "cmdline").decode("utf-8", "replace").split("\0")[:-1])


def thread_name(pid: int) -> str:
    """What the main thread of a process calls itself. Raises ProcessLookupError where it is gone."""
    return _read(pid, "comm").decode("utf-8", "replace").strip()


def folder(pid: int) -> str:
    """The folder that a process is in; empty where that is not known."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with. Raises ProcessLookupError where it is gone."""
    pairs = (item.partition("=") for item in _read(pid, "environ").decode("utf-8", "replace").split("\0"))
    return {name: value for name, _, value in pairs if name}


def read_bytes(pid: int) -> int:
    """Bytes that a process has read so far, from the page cache or a disk. Raises ProcessLookupError where it is gone."""
    return int(_told(pid, "io", b"rchar:")[0])


def delayed(pids: Iterable[int]) -> float:
    """Seconds that the one of them which had to wait longest was ready to run and got no processor; 0 where the kernel does not count."""
    longest = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, IndexError, ValueError):
            longest = max(longest, int(_read(pid, "schedstat").split()[1]))
    return longest / 1e9


def total(pids: Iterable[int]) -> int:
    """Proportional share of anonymous and shared memory of some processes, in bytes; who is gone counts nothing."""
    held = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            now = memory(pid)
            held += now.anonymous + now.shared
    return held


def settled(pids: Iterable[int]) -> int:
    """As :func:`total`, the most of a few looks: a process that has ended has its share of the pages for as long as somebody else looks at it."""
    known = list(pids)
    found = [total(known)]
    for _ in range(_LOOKS - 1):
        time.sleep(_BETWEEN)
        found.append(total(known))
    return max(found)


def resident(pids: Iterable[int]) -> int:
    """Sum of the resident sets, in bytes: an upper bound of :func:`total` that costs a hundredth of it."""
    held = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            held += in_memory(pid)[0]
    return held


def marked(mark: str) -> list[int]:
    """Processes that were started with that text in their environment: they are found whoever their parent is by now."""
    found = []
    for name in _listed("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                if mark.encode() in _read(int(name), "environ"):
                    found.append(int(name))
    return found


def _stat(pid: int) -> tuple[str, int] | None:
    """State and parent of a process."""
    try:
        fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return (fields[0].decode(), int(fields[1])) if len(fields) > 1 else None


def _told(pid: int, name: str, key: bytes) -> list[bytes]:
    """The words behind a key in a file of a process. Raises ProcessLookupError where it is not there."""
    for line in _read(pid, name).splitlines():
        if line.startswith(key):
            return line.split()[1:]
    raise ProcessLookupError(pid)


def _read(pid: int, name: str) -> bytes:
    """A file of a process. Raises ProcessLookupError where it is gone, or is not ours to read."""
    try:
        return _content(f"/proc/{pid}/{name}")
    except OSError:
        _check_system()
        raise ProcessLookupError(pid) from None


def _content(path: str) -> bytes:
    """All of it. The bare system calls take half the time of a file object."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(handle, 65536):
            parts.append(part)
            if len(part) < _SHORT:
                break
    finally:
        os.close(handle)
    return b"".join(parts)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        _check_system()
        raise


def _check_system() -> None:
    if sys.platform != "linux" or not os.path.exists("/proc/self/stat"):
        raise NotHere("process trees are read from /proc, which is not here: Linux is needed")
