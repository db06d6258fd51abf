"""The server under the interpreter of the checked project: imports torch once, then forks a process for every job.

The parent writes commands to its standard input, a JSON line each, and reads answers from a pipe. One job at a time. The parent watches clock and memory and
tells when to end a job; the server only starts, waits, removes what is left, and removes everything when its standard input ends: then the parent is gone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import process_tree, signals
from oomlint.verify.child.server.exceptions import words
from oomlint.verify.child.server.job import begin

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRACE: Final = 0.25  # seconds that helpers of a job (a fork server, a tracker of resources) have to see that it has ended


def serve(reply: int) -> None:
    """Say what is here, then do jobs until the parent goes."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        _import()
        _say(reply, {"ready": True})
    except ModuleNotFoundError as error:
        _say(reply, {"missing": "torch"} if error.name == "torch" else {"error": f"torch cannot be imported: {words(error)}"})
        return
    except Exception as error:  # noqa: BLE001 -- whatever an import raises
        _say(reply, {"error": f"torch cannot be imported: {words(error)}"})
        return
    server = _Server(reply)
    try:
        server.run()
    finally:
        server.end()
        os._exit(0)  # what libraries do at the end of an interpreter is of no use to anybody


def _import() -> None:
    """What most jobs need is there before the first is forked. Raises what importing torch raises."""
    import torch  # noqa: PLC0415 -- of the user

    torch.set_num_threads(1)  # a pool of threads does not live through a fork
    for name in ("numpy", "h5py", "torch.utils.data", "torch.utils._python_dispatch", "multiprocessing.resource_sharer", "multiprocessing.spawn"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first optimizer imports the compiler


class _Server:
    """Waits for commands and for the end of the job, whichever comes first."""

    def __init__(self, reply: int) -> None:
        self._reply = reply
        self._job: dict[str, Any] = {}
        self._pid = 0
        self._before = set(_forgotten())

    def run(self) -> None:
        signals.adopt_orphans()
        awake, waker = os.pipe()
        for end in (awake, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        gc.collect()
        gc.freeze()  # nothing made so far is looked at again: its pages stay common
        waiting = b""
        while True:
            seen, _, _ = select.select([0, awake], [], [])
            if awake in seen:
                with contextlib.suppress(BlockingIOError):
                    os.read(awake, 4096)
                self._reap()
            if 0 in seen:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def _obey(self, command: dict[str, Any]) -> None:
        if "job" in command:
            self._job = command["job"]
            server = os.getpid()
            self._pid = os.fork()
            if self._pid == 0:
                begin(self._job, server, self._reply)
            _say(self._reply, {"started": self._pid})
        elif command.get("end") == self._pid != 0:
            self.end()
            self._reap()

    def end(self) -> None:
        """Kill the job with all that it has started."""
        _remove_descendants()
        if self._pid:  # where the tree cannot be read, its session
            _signal(self._pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Collect the dead; where the job is among them, remove what it has left and say so."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._pid = 0
                left = _remove_descendants(_GRACE if os.WIFEXITED(status) else 0.0)
                for name in set(_forgotten()) - self._before:
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join("/dev/shm", name))  # noqa: S108
                _say(self._reply, {"status": os.waitstatus_to_exitcode(status), "left": left})


def _forgotten() -> list[str]:
    """Segments of shared memory that processes of torch have made and not removed, and that are gone themselves."""
    try:
        names = os.listdir("/dev/shm")  # noqa: S108
    except OSError:
        return []
    return [name for name in names if name.startswith("torch_") and not os.path.exists(f"/proc/{name.split('_')[1]}")]


def _remove_descendants(grace: float = 0.0) -> int:
    """Kill all that this process has started, directly or not. How many there were after ``grace`` seconds."""
    this = os.getpid()
    deadline = time.monotonic() + grace
    while (alive := _below(this)) and time.monotonic() < deadline:
        time.sleep(0.005)
    found = set(alive)
    stopped: set[int] = set()
    while fresh := set(alive) - stopped:  # stopped first: what stands still starts nothing
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh
        alive = _below(this)
        found.update(alive)
    end = time.monotonic() + 10
    while (alive := _below(this)) and time.monotonic() < end:
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        found.update(alive)
        time.sleep(0.002)
    return len(found)


def _below(pid: int) -> list[int]:
    return [each for each in process_tree.tree(pid) if each != pid]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _say(descriptor: int, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, (json.dumps(message) + "\n").encode())
