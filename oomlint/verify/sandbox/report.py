"""What of a machine and of a user's things is closed to jobs, by which mechanism, and what stays open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.verify.jobs import NO_TCP_SINCE, SCOPES_SINCE, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE: Final = Sandbox(files=True, processes=True, network=True, landlock=SCOPES_SINCE, filter=True, held=True)
LANDLOCK_ALONE: Final = Sandbox(landlock=SCOPES_SINCE, filter=True, held=True)

_LIMITS: Final = "limits, read while it runs"


def still_open(sandbox: Sandbox) -> tuple[str, ...]:
    """What nothing keeps a job from."""
    return tuple(what for what, by in rows(sandbox) if not by)


def text(sandbox: Sandbox) -> str:
    """For a terminal."""
    width = max(len(what) for what, _ in rows(sandbox))
    lines = [f"{what:<{width}}  {by or 'OPEN'}" for what, by in rows(sandbox)]
    head = f"Sandbox here: {sandbox}." if sandbox.held else "There is no sandbox here: nothing is run without --unsandboxed."
    return "\n".join([head, "", *lines, ""])


def rows(has: Sandbox) -> Iterator[tuple[str, str]]:
    """What a job might do, and what keeps it from that on a machine with this sandbox; empty where nothing does."""
    files, landlock = has.files, bool(has.landlock)
    scopes = has.landlock >= SCOPES_SINCE
    yield "write, delete or move files outside of its copy", "read-only mounts" if files else "Landlock" if landlock else ""
    attributes = "read-only mounts" if files else "filtered system calls: taken and not done, in the copy too" if has.filter else ""
    yield "change mode, owner, times or attributes of other files", attributes
    yield "read files that neither the project nor the user names", "own file system" if files else "Landlock" if landlock else ""
    secrets = "not copied, and covered up" if files else "not copied, and Landlock" if landlock else ""
    yield "read secrets in the project (`.env`, keys, credentials)", secrets
    yield "read environment variables that nobody names", "allow-list"
    yield "talk to sockets of other programs by path (docker, ssh-agent)", "own file system" if files else ""
    yield "talk to abstract sockets of other programs", "own network" if has.network else "Landlock" if scopes else ""
    tcp = "Landlock: TCP alone" if has.landlock >= NO_TCP_SINCE else ""
    yield "reach a network", "own network" if has.network else "filtered system calls" if has.filter else tcp
    yield "see that other processes run", "own processes" if has.processes else ""
    yield "send signals to other processes", "own processes" if has.processes else "Landlock" if scopes else ""
    yield "read memory or variables of other processes", "own processes" if has.processes else "Landlock" if landlock else ""
    yield "use rights of root", "no capabilities, no new privileges"
    yield "trace, mount, load modules, use keys, make namespaces", "filtered system calls" if has.filter else "no capabilities: not all of it"
    yield "fill the disk", _LIMITS
    yield "fill the shared memory", "own /dev/shm of a fixed size" if files else _LIMITS
    yield "reach the shared memory of other programs (/dev/shm)", "own /dev/shm" if files else ""
    yield "take memory, time, processes or descriptors without end", _LIMITS
