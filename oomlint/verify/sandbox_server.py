"""The process that runs jobs one after the other: how it is started, spoken to and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import process_tree
from oomlint.verify.jobs import MEBIBYTE, Sandbox, SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_LAUNCH: Final = os.path.join(_HERE, "sandbox", "launch.py")
_SERVE: Final = os.path.join(_HERE, "child", "server", "serve.py")
_START_SECONDS: Final = 180.0  # importing torch from a slow disk
_END_SECONDS: Final = 15.0  # a server that has not removed a job by then is removed itself
_TAIL: Final = 64 * 1024  # bytes kept of what a job prints
_LONGEST_LINE: Final = MEBIBYTE  # bytes of what a server says at a time


class Gone(Exception):  # noqa: N818 - no mistake of ours
    """The server has ended of itself."""


class SandboxServer:
    """The process, and the two pipes to it."""

    def __init__(self, python: str, top: str, request: Mapping[str, Any], environment: Mapping[str, str], command: Sequence[str] = ()) -> None:
        place = os.path.join(top, "jobs")
        self.python = python
        self.sandbox = Sandbox()
        self._errors = os.path.join(top, "server.err")
        self._mark = f"OOMLINT_PLACE={place}"
        self._buffer = b""
        if sys.platform != "linux":
            raise SandboxError("jobs are forked, and watched in /proc: Linux is needed")
        os.makedirs(place, exist_ok=True)
        self._reply, given = os.pipe()
        orders, self._orders = os.pipe()
        command = command or [python, "-B", _SERVE, "server", str(given)]
        try:
            asked = os.path.join(top, "request.json")
            with open(asked, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                json.dump({**request, "reply": given, "command": command, "environment": dict(environment), "top": top, "folder": place}, file)
            with open(self._errors, "ab") as errors:
                self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter, until the sandbox is entered
                    [sys.executable, "-I", "-S", "-B", _LAUNCH, asked],
                    stdin=orders,
                    stdout=errors,
                    stderr=errors,
                    pass_fds=(given,),
                    cwd=place,
                    env={name: os.environ[name] for name in ("OOMLINT_NO_SANDBOX",) if name in os.environ},
                    start_new_session=True,  # a Ctrl-C at the terminal is for us alone
                )
        except OSError as error:
            os.close(self._reply)
            os.close(self._orders)
            raise SandboxError(f"{sys.executable} cannot be started: {error.strerror or error}") from None
        finally:
            os.close(given)
            os.close(orders)

    def greeting(self) -> Sandbox:
        """Wait until the server can take jobs, and say in what. Raises SandboxError."""
        try:
            message = self.receive_sandbox() or self.receive(_START_SECONDS)
        except Gone:
            self._process.wait()
            with open(self._errors, "rb") as file:
                lines = file.read()[-_TAIL:].decode("utf-8", "replace").strip().splitlines() or [f"it ended with status {self._process.returncode}"]
            raise SandboxError(f"{self.python} is no Python that jobs can be run with: {lines[-1].strip()[:200]}") from None
        if message is None:
            raise SandboxError(f"{self.python} gives no answer within {_START_SECONDS:.0f} s")
        if "unstartable" in message:
            raise SandboxError(f"{self.python} cannot be started: {message['unstartable']}")
        if "unsafe" in message:
            raise SandboxError("the sandbox is not available here (neither namespaces nor Landlock): nothing is run without --unsandboxed")
        if "missing" in message:
            other = "name another interpreter: `oomlint verify --python`, or the setting `verify.python`"
            raise SandboxError(f"no {message['missing']} in {self.python}: install it there (the extra `verify` of oomlint brings it), or {other}")
        if "ready" not in message:
            raise SandboxError(f"{self.python}: {message.get('error', 'an answer that makes no sense')}")
        return self.sandbox

    def receive_sandbox(self) -> dict[str, Any] | None:
        """Note what the launcher says of the sandbox. Gives what came in its place, if something else came. Raises Gone."""
        message = self.receive(_START_SECONDS)
        if message is not None and "sandbox" in message:
            self.sandbox = Sandbox(**message["sandbox"])
            return None
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Raises Gone."""
        try:
            os.write(self._orders, (json.dumps(message) + "\n").encode())
        except OSError:
            raise Gone from None

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message, or None where none comes in time. Raises Gone."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([self._reply], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self._reply, 65536)
            if not data:
                raise Gone
            self._buffer += data
            if len(self._buffer) > _LONGEST_LINE or time.monotonic() > deadline + _END_SECONDS:
                raise Gone  # it is no server of ours
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return message if isinstance(message, dict) else {}

    def outside(self, pid: int) -> int:
        """The number that a process of the server's has here, where it may have another there; 0 where it is gone."""
        if not self.sandbox.processes:
            return pid
        return next((each for each in process_tree.tree(self._process.pid) if process_tree.inside(each) == pid), 0)

    def close(self, seconds: float = _END_SECONDS) -> None:
        """Let it remove what it has started, then make sure."""
        os.close(self._orders)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for _ in range(100):
                pids = self._descendants()
                for pid in pids:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                if not pids:
                    break
                time.sleep(0.01)
            self._process.kill()
            self._process.wait()
            os.close(self._reply)

    def _descendants(self) -> set[int]:
        """By parentage, and by environment: the server may have died before them."""
        return {*process_tree.marked(self._mark), *(process_tree.tree(self._process.pid) if self._process.poll() is None else ())}


def number_of(message: Mapping[str, Any], name: str) -> int:
    """Raises Gone where a server does not say what it should."""
    value = message.get(name)
    if not isinstance(value, int):
        raise Gone
    return value
