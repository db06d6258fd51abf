"""What there is: the memory that a job may take, and the room for shared memory."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import astuple

from oomlint.amounts import readable
from oomlint.cgroups import group_of, machine_memory

if TYPE_CHECKING:
    from oomlint.finding import Place

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
    proc = os.path.join(root, "proc")
    group, total = group_of("self", os.path.join(root, "sys/fs/cgroup"), proc), _total(proc)
    limit = group.limit() if group is not None else None
    if limit is not None and (total is None or limit < total):
        return Limit(limit, "cgroup limit")
    return Limit(total, "the machine's memory")


def _total(proc: str) -> int | None:
    found = machine_memory(proc)
    if found is None:
        with suppress(OSError, ValueError, AttributeError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return found


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
