"""Runs jobs in child processes of the checked project's interpreter, in a sandbox, within limits of time, memory and processes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from oomlint.verify import folders, leftovers, process_tree, signals
from oomlint.verify.disk import Disk, free
from oomlint.verify.environment import links_of, of_job, of_server
from oomlint.verify.jobs import MEBIBYTE, Done, Ended, Limits, Moment, Ready, Sandbox, SandboxError
from oomlint.verify.sandbox.view import View, of_interpreter, private_of_system

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from oomlint.verify.jobs import Job

_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_LAUNCH: Final = os.path.join(_HERE, "sandbox", "launch.py")
_SERVE: Final = os.path.join(_HERE, "child", "server", "serve.py")
_START_SECONDS: Final = 180.0  # importing torch from a slow disk
_END_SECONDS: Final = 15.0  # a server that has not removed a job by then is removed itself
_TAIL: Final = 64 * 1024  # bytes kept of what a job prints
_LONGEST_FAILURE: Final = 2000  # characters
_LONGEST_LINE: Final = MEBIBYTE  # bytes of what a server says at a time
_LARGEST_ANSWER: Final = 256 * MEBIBYTE  # bytes
_FLOOD: Final = 32 * MEBIBYTE  # bytes of output from which its beginning is thrown away
_PATIENCE: Final = 4  # times its limit is what a job may wait for a processor, at most
_LITTLE: Final = 0.4  # of the cap
_RELAXED: Final = 3  # times as long
_EXACT_EVERY: Final = 5  # readings: the cheap bound is looked at every time, the exact figure now and then
_SHARED: Final = "/dev/shm"  # noqa: S108
_DISK_EVERY: Final = 25  # likewise


class SandboxRunner:
    """A server under one interpreter, and the jobs that it forks. One job at a time; as many runners as there are processors."""

    def __init__(
        self,
        python: str | None = None,
        *,
        unsandboxed: bool = False,
        view: View | None = None,
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
        view = view or View()
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
        self._server: _Server | None = None
        try:
            leftovers.remove()
            with signals.held():
                self._top, self._alive = leftovers.own_folder()
                self.place = os.path.join(self._top, "jobs")
                os.mkdir(self.place)
            self.ready = self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

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
            running = _Running(job, os.path.join(self.place, str(self._count)))
            try:
                done = running.watch(server)
            except _Gone:
                server.close()
                self._server = None
                done = running.done(Ended.SIGNAL, -signal.SIGKILL, 0, "the server of jobs has died with it")
            except BaseException:
                self.close()
                raise
            folders.remove(running.place)
            return done

    def _restarted(self) -> _Server:
        self.ready = self._start()
        if self._server is None:
            raise SandboxError("the runner is closed")
        return self._server

    def _start(self) -> Ready:
        try:
            with signals.held():
                self._server = _Server(self.python, self._top, self._request, of_server(self.place, self._pass_env))
            return self._server.greeting()
        except BaseException:
            with signals.held():
                server, self._server = self._server, None
                if server is not None:
                    server.close(0.0)  # it has done nothing yet
            raise


class _Gone(Exception):  # noqa: N818 -- it never leaves this file
    """The server has ended of itself."""


class _Server:
    """The process, and the two pipes to it."""

    def __init__(self, python: str, top: str, request: Mapping[str, Any], environment: Mapping[str, str], command: Sequence[str] = ()) -> None:
        place = os.path.join(top, "jobs")
        self.python = python
        self.sandbox = Sandbox()
        self._errors = os.path.join(top, "server.err")
        self._mark = f"OOMLINT_PLACE={place}"
        self._buffer = b""
        if not hasattr(os, "fork"):
            raise SandboxError("jobs are forked: Linux or macOS is needed")
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

    def greeting(self) -> Ready:
        """What the server says first. Raises SandboxError."""
        try:
            message = self.receive_sandbox() or self.receive(_START_SECONDS)
        except _Gone:
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
            raise SandboxError(f"no {message['missing']} in {self.python}; `--python` or the setting `verify.python` names another interpreter")
        if "ready" not in message:
            raise SandboxError(f"{self.python}: {message.get('error', 'an answer that makes no sense')}")
        said = message["ready"]
        names = ("python", "torch", "h5py", "numpy")
        if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in names):
            raise SandboxError(f"{self.python}: an answer that makes no sense")
        return Ready(**{name: said[name] for name in names}, sandbox=self.sandbox)

    def receive_sandbox(self) -> dict[str, Any] | None:
        """Note what the launcher says of the sandbox. Gives what came in its place, if something else came. Raises _Gone."""
        message = self.receive(_START_SECONDS)
        if message is not None and "sandbox" in message:
            self.sandbox = Sandbox(**message["sandbox"])
            return None
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Raises _Gone."""
        try:
            os.write(self._orders, (json.dumps(message) + "\n").encode())
        except OSError:
            raise _Gone from None

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message, or None where none comes in time. Raises _Gone."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([self._reply], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self._reply, 65536)
            if not data:
                raise _Gone
            self._buffer += data
            if len(self._buffer) > _LONGEST_LINE or time.monotonic() > deadline + _END_SECONDS:
                raise _Gone  # it is no server of ours
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
        with contextlib.suppress(process_tree.NotHere):
            return next((each for each in process_tree.tree(self._process.pid) if process_tree.inside(each) == pid), 0)
        return 0

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
        try:
            found = set(process_tree.marked(self._mark))
            if self._process.poll() is None:
                found.update(process_tree.tree(self._process.pid))
        except process_tree.NotHere:
            return set()
        return found


class _Running:
    """One job, from its file to its end."""

    def __init__(self, job: Job, place: str) -> None:
        self.job = job
        self.place = place
        self._peak = 0
        self._readings = 0
        self._shared = free(_SHARED)
        self._disk = Disk([job.folder, place, *job.writable], job.limits.disk)
        self._bound = 0  # bytes, at most, at the latest reading
        self._moments: list[Moment] = []
        self._kept = {"out": b"", "err": b""}
        self._start = time.monotonic()
        os.mkdir(place)  # none that an earlier job may have put there
        # Held open: the job may put other files in their places, and links to those of the user.
        self._folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._streams = {name: os.open(name, flags, 0o600, dir_fd=self._folder) for name in self._kept}
        home, temporary = os.path.join(place, "home"), os.path.join(place, "tmp")
        self._message = {
            "call": job.call,
            "arguments": dict(job.arguments),
            "folder": job.folder,
            "writable": [job.folder, place, *job.writable],
            "fresh": job.fresh,
            "descriptors": job.limits.descriptors,
            "file_bytes": job.limits.disk,
            "environment": of_job(home, temporary),
            "folders": [home, temporary],
            "links": links_of(home),
            **{name: os.path.join(place, name) for name in ("out", "err", "answer", "file")},
        }

    def watch(self, server: _Server) -> Done:
        """Start it and wait for its end. Raises _Gone where the server dies."""
        limits = self.job.limits
        server.send({"job": self._message})
        started = server.receive(_END_SECONDS)
        if started is None:
            raise _Gone
        inside = _number(started, "started")
        pid = server.outside(inside)
        self._start = time.monotonic()
        deadline = self._start + limits.seconds
        ended = Ended.EXIT
        while (message := server.receive(self._pause())) is None:
            if ended is not Ended.EXIT:
                if time.monotonic() > deadline:
                    raise _Gone
                continue
            ended = Ended.TIME if time.monotonic() > deadline and self._late(pid) else self._look(pid, server.sandbox)
            if ended is not Ended.EXIT:
                deadline = time.monotonic() + _END_SECONDS
                server.send({"end": inside})
        status = _number(message, "status")
        return self.done(Ended.SIGNAL if ended is Ended.EXIT and status < 0 else ended, status, _number(message, "left"))

    def _pause(self) -> float:
        """Seconds until the next reading. What takes little is looked at less often: it cannot get to the cap in that time."""
        return process_tree.INTERVAL if self.job.timeline or self._bound > self.job.limits.memory * _LITTLE else _RELAXED * process_tree.INTERVAL

    def _late(self, pid: int) -> bool:
        """Whether it has had its time. On a busy machine the time that it waited for a processor is not its own: a verdict must not depend on others."""
        seconds = self.job.limits.seconds
        try:
            delay = process_tree.delayed(process_tree.family(pid))
        except process_tree.NotHere:
            delay = 0.0
        return time.monotonic() - self._start > seconds + min(delay, _PATIENCE * seconds)

    def _look(self, pid: int, sandbox: Sandbox) -> Ended:
        """Read the tree, as cheaply as will do."""
        limits = self.job.limits
        self._trim()
        self._readings += 1
        if not sandbox.files and self._shared - free(_SHARED) > limits.memory:  # its own has a size
            return Ended.MEMORY
        try:
            pids = process_tree.family(pid)
            if len(pids) - 1 > limits.processes:
                return Ended.PROCESSES
            if self.job.timeline:
                now = process_tree.sample(pid)
                self._moments.append(Moment(time.monotonic() - self._start, now.memory, now.processes, now.descriptors))
                memory = now.memory
            else:
                self._bound = process_tree.resident(pids)
            if self._disk.is_full(pids, certain=not self._readings % _DISK_EVERY):
                return Ended.DISK
            if not self.job.timeline:
                if self._readings % _EXACT_EVERY and self._bound <= limits.memory:
                    return Ended.EXIT
                memory = process_tree.total(pids)
        except process_tree.NotHere:
            return Ended.EXIT
        self._peak = max(self._peak, memory)
        return Ended.MEMORY if memory > limits.memory else Ended.EXIT

    def done(self, ended: Ended, status: int, left: int, cause: str = "") -> Done:
        """What came of it."""
        seconds = time.monotonic() - self._start
        answer, failure = None, ""
        try:
            written = json.loads(self._written("answer"))
            answer, failure = written["answer"], written["failure"]
            if not isinstance(failure, str) or (answer is None) != bool(failure):
                raise TypeError  # noqa: TRY301 -- what a job has made of it itself is no answer
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            answer, failure = None, cause or self._failure(ended, status)
        printed, errors = (self._tail(name) for name in self._kept)
        for handle in (*self._streams.values(), self._folder):
            os.close(handle)
        return Done(ended, status, answer, failure[:_LONGEST_FAILURE], printed, errors, seconds, self._peak, left, tuple(self._moments))

    def _failure(self, ended: Ended, status: int) -> str:
        limits = self.job.limits
        match ended:
            case Ended.TIME:
                return f"not at its end after {limits.seconds:g} s"
            case Ended.MEMORY:
                return f"more than {limits.memory // MEBIBYTE:,} MiB of memory"
            case Ended.DISK:
                return f"more than {limits.disk // MEBIBYTE:,} MiB on the disk"
            case Ended.PROCESSES:
                return f"more than {limits.processes} processes"
            case Ended.SIGNAL:
                with contextlib.suppress(ValueError):
                    return f"killed by {signal.Signals(-status).name}"
                return f"killed by signal {-status}"
            case _:
                return f"the process ended itself with status {status}"

    def _trim(self) -> None:
        """Throw away the beginning of a flood of output. The job appends, so a shorter file is no harm."""
        for name, handle in self._streams.items():
            if os.fstat(handle).st_size > _FLOOD:
                self._kept[name] = _end_of(handle)
                os.ftruncate(handle, 0)

    def _written(self, name: str) -> bytes:
        """A file that the job has made, and nothing else: no link to a file of the user's, nothing that blocks. Raises OSError."""
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        with open(handle, "rb") as file:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST_ANSWER:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
            return file.read()

    def _tail(self, name: str) -> str:
        self._kept[name] += _end_of(self._streams[name])
        return self._kept[name][-_TAIL:].decode("utf-8", "replace")


def _number(message: Mapping[str, Any], name: str) -> int:
    """Raises _Gone where a server does not say what it should."""
    value = message.get(name)
    if not isinstance(value, int):
        raise _Gone
    return value


def _end_of(handle: int) -> bytes:
    return os.pread(handle, _TAIL, max(0, os.fstat(handle).st_size - _TAIL))


def inspect() -> Sandbox:
    """What keeps jobs in on this machine. Nothing but the launcher is run."""
    with tempfile.TemporaryDirectory(prefix="oomlint-") as folder, signals.held():
        top = os.path.realpath(folder)
        request = {"must_hold": False, "writable": [], "readable": [], "hidden": [], "shared_memory": MEBIBYTE}
        server = _Server("/bin/true", top, request, {}, ["/bin/true"])
        try:
            server.receive_sandbox()
        except _Gone:
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
