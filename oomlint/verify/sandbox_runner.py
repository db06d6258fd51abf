"""Runs jobs in child processes of the checked project's interpreter, in a sandbox, within limits of time, memory and processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from oomlint.verify import folders, leftovers, signals
from oomlint.verify.environment import of_server
from oomlint.verify.jobs import MEBIBYTE, Done, JobEnd, Limits, Sandbox, SandboxError
from oomlint.verify.running_job import Running
from oomlint.verify.sandbox.view import SandboxView, of_interpreter, private_of_system
from oomlint.verify.sandbox_server import Gone, SandboxServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from oomlint.verify.jobs import Job


class SandboxRunner(AbstractContextManager["SandboxRunner"]):
    """A server under one interpreter, and the jobs that it forks. One job at a time; as many runners as there are processors."""

    def __init__(
        self,
        python: str | None = None,
        *,
        unsandboxed: bool = False,
        view: SandboxView | None = None,
        pass_env: Sequence[str] = (),
        shared_memory: int = 2 * Limits().memory,  # what jobs of spawned workers may take
    ) -> None:
        """Start the server. Jobs see ``view`` beside the interpreter and ``place``, and are given the environment variables that ``pass_env`` names.

        ``shared_memory`` is the size of /dev/shm in bytes. Raises SandboxError where no job can be run.
        """
        self.python = _executable(python or sys.executable)
        self.unsandboxed = unsandboxed
        self.place = ""  # what jobs may write to lies here; it goes when the runner closes, or when this process dies
        self._top = ""  # ours: what we write and read again lies here, or is held open
        view = view or SandboxView()
        self._request = {
            "must_hold": not unsandboxed,
            "writable": list(view.writable),
            "readable": [*of_interpreter(self.python), *view.readable],
            "hidden": [*private_of_system(), *view.hidden],
            "shared_memory": shared_memory,
        }
        self._pass_env = tuple(pass_env)
        self._count = 0
        self._lock = threading.Lock()
        self._server: SandboxServer | None = None
        try:
            leftovers.remove()
            with signals.held():
                self._top, self._alive = leftovers.own_folder()
                self.place = os.path.join(self._top, "jobs")
                os.mkdir(self.place)
            self.sandbox = self._start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the server and all that it has started, and remove its folders."""
        with signals.held():
            server, self._server = self._server, None
            if server is not None:
                server.close()
            if self._top:
                folders.remove(self._top)
                with contextlib.suppress(OSError):
                    os.close(self._alive)

    def run(self, job: Job) -> Done:
        """Do a job to its end. Raises SandboxError only where no server can be started."""
        with self._lock:
            server = self._server or self._restarted()
            self._count += 1
            running = Running(job, os.path.join(self.place, str(self._count)))
            try:
                done = running.watch(server)
            except Gone:
                server.close()
                self._server = None
                done = running.done(JobEnd.SIGNAL, -signal.SIGKILL, 0, "the server of jobs has died with it")
            except BaseException:
                self.close()
                raise
            folders.remove(running.place)
            return done

    def _restarted(self) -> SandboxServer:
        self.sandbox = self._start()
        if self._server is None:
            raise SandboxError("the runner is closed")
        return self._server

    def _start(self) -> Sandbox:
        try:
            with signals.held():
                self._server = SandboxServer(self.python, self._top, self._request, of_server(self.place, self._pass_env))
            return self._server.greeting()
        except BaseException:
            with signals.held():
                server, self._server = self._server, None
                if server is not None:
                    server.close(0.0)  # it has done nothing yet
            raise


def inspect() -> Sandbox:
    """What keeps jobs in on this machine. Nothing but the launcher is run."""
    with tempfile.TemporaryDirectory(prefix="oomlint-") as folder, signals.held():
        top = os.path.realpath(folder)
        request = {"must_hold": False, "writable": [], "readable": [], "hidden": [], "shared_memory": MEBIBYTE}
        server = SandboxServer("/bin/true", top, request, {}, ["/bin/true"])
        try:
            server.receive_sandbox()
        except Gone:
            pass
        finally:
            server.close(0.0)
        return server.sandbox


def _executable(python: str) -> str:
    """Absolute, without following links: a link is what makes a virtual environment."""
    if os.path.isdir(python):
        python = os.path.join(python, "bin", "python")
    found = python if os.sep in python else shutil.which(python)
    if found is None or not os.path.exists(found):
        raise SandboxError(f"there is no interpreter {python}")
    if not os.access(found, os.X_OK) or os.path.isdir(found):
        raise SandboxError(f"{found} is not executable")
    return os.path.abspath(found)
