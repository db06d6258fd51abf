"""The first process of a server: it enters the sandbox, says what holds, and becomes the interpreter of the checked project.

``launch.py FILE`` is run by oomlint's own interpreter, without its libraries; FILE holds a request, see :func:`main`. Nothing of the project has run before the
last line of :func:`_become`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if __name__ == "__main__":  # the package is where this file is, not where the interpreter would look for it
    _HERE: Final = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [*(item for item in sys.path if os.path.abspath(item) != _HERE), os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))]

from oomlint.verify import folders, process_tree
from oomlint.verify.child.server import landlock
from oomlint.verify.folders import SYSTEM
from oomlint.verify.sandbox import mounts, seccomp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PDEATHSIG, _DROP_BOUND, _SECURE_BITS, _SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 1, 24, 28, 36, 38, 47
_LOOKS: Final = 100
_NO_ROOT_LOCKED: Final = 0x3  # being root gives no rights when a program starts, for good
_CAPABILITY_VERSION: Final = 0x20080522
_MOST_CAPABILITIES: Final = 64
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_SIOCSIFFLAGS, _IFF_UP_RUNNING, _AF_INET, _SOCK_DGRAM = 0x8914, 0x41, 2, 2
_GRACE: Final = 20  # seconds for the server to put its things away when oomlint has gone
# Best first. Without the right to mount, a namespace of users gives it; where /proc cannot be mounted, as in many containers, processes are common ones.
_OWN: Final = _NEWNS | _NEWIPC | _NEWNET
_LEVELS: Final = tuple((_OWN | processes | users, bool(processes)) for processes in (_NEWPID, 0) for users in (0, _NEWUSER))


def main(path: str) -> int:
    """Start what the request asks for and wait for its end.

    The request has ``reply`` (a descriptor), ``command``, ``environment``, ``top`` (oomlint's own folder), ``folder`` in it (the current one, writable),
    ``writable``, ``readable`` and ``hidden`` (paths), ``shared_memory`` (bytes), and ``must_hold`` (whether nothing is to be run where nothing refuses writes).
    """
    with open(path, "rb") as file:
        request: dict[str, Any] = json.load(file)
    os.unlink(path)  # the environment of a user may hold secrets
    request |= {"user": os.geteuid(), "group": os.getegid()}
    parent = os.getppid()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("900")  # where the machine runs out of memory, jobs are the first to go
    _prctl(_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        return 1
    status = _started(request)
    if os.getppid() != parent:  # which would have removed it
        folders.remove(request["top"])
    return status


def _started(request: dict[str, Any]) -> int:
    """Start the server on the best level that there is. Its exit status."""
    if sys.platform == "linux" and "namespaces" not in landlock.turned_off() and os.uname().machine in _CLONE:
        for flags, own_processes in _LEVELS:
            if own_processes and "processes" in landlock.turned_off():
                continue
            status = _status_of(request, flags, own_processes=own_processes)
            if status is not None:
                return status
    return _status_of(request, 0, own_processes=False) or 0


def _status_of(request: dict[str, Any], flags: int, *, own_processes: bool) -> int | None:
    """Start the server and wait for its end: its exit status, or None where it could not enter the sandbox, and nothing of the project has run."""
    told, failed = os.pipe()  # not the exit status: the interpreter could choose it, to be started again in less of a sandbox
    pid = _clone(flags) if flags else os.fork()
    if pid == 0:
        _become(request, flags, failed, own_processes=own_processes)
    os.close(failed)
    if pid < 0:
        os.close(told)
        return None

    def end(*_: object) -> None:  # oomlint has gone: the server sees it too
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
        signal.alarm(_GRACE)

    signal.signal(signal.SIGTERM, end)
    _prctl(_SUBREAPER, 1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for _ in range(_LOOKS):  # where processes are common ones, some may have outlived the server
        left = [each for each in process_tree.tree(os.getpid()) if each != os.getpid()]
        for each in left:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        if not left:
            break
    if os.read(told, 1):
        return None
    return status if status >= 0 else 128 - status


def _become(request: dict[str, Any], flags: int, failed: int, *, own_processes: bool) -> NoReturn:
    """Enter the sandbox and go over to the interpreter. Where namespaces cannot be entered, say so to ``failed``, which the interpreter does not get."""
    status = 1
    try:
        _prctl(_PDEATHSIG, int(signal.SIGKILL))
        report: dict[str, Any] = {"files": bool(flags), "processes": own_processes, "network": bool(flags)}
        if flags:
            try:
                _enter_namespaces(request, flags, own_processes=own_processes)
            except OSError:
                os.write(failed, b"x")
                os._exit(1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        report |= _give_up(request, isolated=bool(flags))
        report["held"] = _is_held(request)
        if request["must_hold"] and not report["held"]:
            _say(request["reply"], {"unsafe": True})
            os._exit(0)
        _say(request["reply"], {"sandbox": report})
        os.chdir(request["folder"])
        os.set_inheritable(request["reply"], True)  # noqa: FBT003 - its own signature
        os.execve(request["command"][0], request["command"], request["environment"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        _say(request["reply"], {"unstartable": error.strerror or str(error)})
    finally:
        os._exit(status)


def _enter_namespaces(request: dict[str, Any], flags: int, *, own_processes: bool) -> None:
    if flags & _NEWUSER:
        user, group = request["user"], request["group"]
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    libc = landlock.libc()
    socket = libc.socket(_AF_INET, _SOCK_DGRAM, 0)
    if socket >= 0:  # a loopback of its own, for programs that talk to themselves
        libc.ioctl(socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP_RUNNING))
        os.close(socket)
    mounts.enter(
        os.path.join(request["top"], "view"),
        writable=[request["folder"], *request["writable"]],
        readable=request["readable"],
        hidden=request["hidden"],
        shared_memory=request["shared_memory"],
        own_processes=own_processes,
    )


def _give_up(request: dict[str, Any], *, isolated: bool) -> dict[str, Any]:
    """Capabilities first: with those of root, the rest could be undone."""
    _drop_capabilities()
    writable = [request["folder"], *request["writable"]]
    parted: list[str] = []
    shown = [*SYSTEM, *mounts.devices(), "/dev/fd", "/proc", *request["readable"], *writable]
    readable = None if isolated else list(_without(shown, request["hidden"], parted))
    held = landlock.confine(writable, readable, parted, network=isolated)
    filtered = seccomp.install(network=isolated, attributes=isolated)
    return {"landlock": landlock.version() if held else 0, "filter": filtered}


def _drop_capabilities() -> None:
    """All of them, and the way to get them back."""
    for number in range(_MOST_CAPABILITIES):
        _prctl(_DROP_BOUND, number)
    _prctl(_SECURE_BITS, _NO_ROOT_LOCKED)
    _prctl(_AMBIENT, 4)  # clears all
    landlock.libc().capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))
    _prctl(_NO_NEW_PRIVS, 1)


def _without(readable: Sequence[str], hidden: Sequence[str], parted: list[str]) -> Iterator[str]:
    """The readable paths with the folders that hold something hidden, which go to ``parted``, taken apart: Landlock can only allow."""
    for path in readable:
        top = os.path.realpath(path)
        if path in hidden or top in hidden:
            continue
        if not any(each.startswith(os.path.join(top, "")) for each in hidden):
            yield path
            continue
        parted.append(top)
        with contextlib.suppress(OSError), os.scandir(top) as found:  # a link gives no right to what it leads to
            yield from _without([entry.path for entry in found if not entry.is_symlink()], hidden, parted)


def _is_held(request: dict[str, Any]) -> bool:
    """Whether an attempt to write where that is not allowed is refused: what a kernel says it does is not believed."""
    outside = os.path.join(request["top"], "outside")
    try:
        os.close(os.open(outside, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return True
    with contextlib.suppress(OSError):
        os.unlink(outside)
    return False


def _clone(flags: int) -> int:
    """A fork into new namespaces; -1 where that is not allowed. The lock of the interpreter is kept, so that the child has it too."""
    libc = ctypes.PyDLL(None)
    libc.syscall.restype = ctypes.c_long
    pid: int = libc.syscall(_CLONE[os.uname().machine], ctypes.c_ulong(flags | signal.SIGCHLD), 0, 0, 0, 0)
    return pid


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        landlock.libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _say(descriptor: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
