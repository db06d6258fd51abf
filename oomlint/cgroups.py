"""The memory cgroup of a process: what it is charged with, what it may have, and whom the OOM killer has ended in it. Versions 1 and 2."""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

ROOT: Final = "/sys/fs/cgroup"
_UNLIMITED: Final = 1 << 60  # version 1 writes the largest number of pages where there is no limit
_NAMES: Final = {  # of version 2, and of version 1
    "current": ("memory.current", "memory.usage_in_bytes"),
    "limit": ("memory.max", "memory.limit_in_bytes"),
    "peak": ("memory.peak", "memory.max_usage_in_bytes"),
    "events": ("memory.events", "memory.oom_control"),
}


class Cgroup(Struct, frozen=True):
    """The folder of a cgroup, and those above it."""

    folders: tuple[str, ...]  # its own first
    version: int

    def current(self) -> int | None:
        """Bytes that it is charged with: page cache too, which the kernel gives up first."""
        return _number(self._path(self.folders[0], "current"))

    def peak(self) -> int | None:
        """The most that it was charged with since it was made."""
        return _number(self._path(self.folders[0], "peak"))

    def limit(self) -> int | None:
        """The lowest limit that holds for it, in bytes."""
        found = [value for folder in self.folders if (value := _number(self._path(folder, "limit"))) is not None and value < _UNLIMITED]
        return min(found, default=None)

    def kills(self) -> int:
        """Processes of it that the OOM killer has ended so far."""
        for line in _text(self._path(self.folders[0], "events")).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.strip().isdecimal():
                return int(value)
        return 0

    def _path(self, folder: str, what: str) -> str:
        return os.path.join(folder, _NAMES[what][0 if self.version == 2 else 1])  # noqa: PLR2004


def group_of(pid: int | str, root: str = ROOT, proc: str = "/proc") -> Cgroup | None:
    """The memory cgroup of a process, or of this one ("self"); None where there is none, or it cannot be seen from here."""
    two: Cgroup | None = None
    for line in _text(os.path.join(proc, str(pid), "cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found = _folders(os.path.join(root, "memory"), path, "memory.usage_in_bytes")
            if found:
                return Cgroup(found, 1)
        elif number == "0" and not controllers:
            for top in (root, os.path.join(root, "unified")):
                found = _folders(top, path, "memory.current")
                if found:
                    two = Cgroup(found, 2)
                    break
    return two


def machine_kills(proc: str = "/proc") -> int:
    """Processes that the OOM killer has ended on the whole machine since it was started."""
    for line in _text(os.path.join(proc, "vmstat")).splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def machine_memory(proc: str = "/proc") -> int | None:
    """Bytes of memory that the machine has."""
    for line in _text(os.path.join(proc, "meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _folders(top: str, path: str, file: str) -> tuple[str, ...]:
    """The folder of a cgroup and those above it, up to the top. In a container the path may be one of outside: the top is its own then."""
    parts = [part for part in path.split("/") if part and part != ".."]
    if not os.path.isdir(os.path.join(top, *parts)):
        parts = []
    found = (os.path.join(top, *parts[:length]) for length in range(len(parts), -1, -1))
    return tuple(folder for folder in found if os.path.exists(os.path.join(folder, file)))


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
