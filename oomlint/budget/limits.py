"""What there is: the memory that a job may take, and the room for shared memory."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import astuple

from oomlint.amounts import readable

if TYPE_CHECKING:
    from oomlint.finding import Place

_UNLIMITED: Final = 2**60  # bytes: version 1 of cgroups writes about 2**63 where there is no limit
_SHM: Final = "/dev/shm"  # noqa: S108 - where Linux has it


class Limit(Struct, frozen=True):
    """A number of bytes, and who says it."""

    size: int | None
    source: str
    written: str = ""  # as the user wrote it

    @property
    def words(self) -> str:
        """For people; a decimal unit is said in a binary one too."""
        if self.size is None:
            return f"unknown ({self.source})"
        shown = readable(self.size)
        decimal = re.search(r"[kmgt]b$", self.written.strip(), re.IGNORECASE)
        return f"{self.written.strip()} = {shown} ({self.source})" if decimal else f"{shown} ({self.source})"


class JobResources(Struct, frozen=True):
    """What a file or a profile says that a job has; None where it does not."""

    ram: Limit | None = None
    shm: Limit | None = None
    cores: float | None = None
    vram: Limit | None = None
    files: Limit | None = None  # descriptors, of each process
    place: Place | None = None  # of the words of the command, where a manifest has them

    def within(self, outer: JobResources) -> JobResources:
        """What a job has that is started by another one: its own, else what that one has."""
        return JobResources(*(own if own is not None else other for own, other in zip(astuple(self), astuple(outer), strict=True)))


def of_ram(root: str = "/") -> Limit:
    """The limit of the control group that this process is in, or of one around it; else the memory of the machine."""
    found = [one for one in (*_version_2(root), *_version_1(root)) if one.size is not None]
    total = Limit(_total(root), "the machine's memory")
    return min([*found, total] if total.size is not None else found, key=lambda one: one.size or 0, default=total)


def of_shm(path: str = _SHM) -> Limit:
    """The size of the file system of shared memory."""
    with suppress(OSError, AttributeError):
        about = os.statvfs(path)
        return Limit(about.f_frsize * about.f_blocks, "the size of /dev/shm")
    return Limit(None, "there is no /dev/shm")


def of_files() -> Limit | None:
    """The descriptors that a process may have; None where there is no limit."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limit(most, "`ulimit -n` of this shell") if most != resource.RLIM_INFINITY else None


def _version_2(root: str) -> list[Limit]:
    place = next((line.partition("::")[2] for line in _lines(root, "proc/self/cgroup") if line.startswith("0::")), None)
    return [] if place is None else _upwards(root, "sys/fs/cgroup", place, "memory.max")


def _version_1(root: str) -> list[Limit]:
    parts = (line.split(":", 2) for line in _lines(root, "proc/self/cgroup"))
    place = next((part[2] for part in parts if len(part) == 3 and "memory" in part[1].split(",")), None)  # noqa: PLR2004 - number, names, path
    return [] if place is None else _upwards(root, "sys/fs/cgroup/memory", place, "memory.limit_in_bytes")


def _upwards(root: str, top: str, place: str, name: str) -> list[Limit]:
    """The limits of a group and of all around it. In a container the path may be that of the host: then the top is its own."""
    found: list[Limit] = []
    here = place.strip("/")
    while True:
        lines = _lines(root, f"{top}/{here}/{name}")
        found.extend(Limit(int(line), "cgroup limit") for line in lines if line.isdigit() and int(line) < _UNLIMITED)
        if not here:
            return found
        here = os.path.dirname(here)


def _total(root: str) -> int | None:
    for line in _lines(root, "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _lines(root: str, path: str) -> list[str]:
    try:
        with open(os.path.join(root, path), encoding="ascii", errors="replace") as file:
            return [line.strip() for line in file]
    except OSError:
        return []
