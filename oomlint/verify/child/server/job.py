"""One job in its own process: from the fork to the answer in a file, and no further."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback
import types
import warnings
from typing import Any, Final

from oomlint.verify import signals
from oomlint.verify.child import FOLDER
from oomlint.verify.child.server import landlock
from oomlint.verify.child.server.exceptions import located, seed, words

_EXIT_SECONDS: Final = 2.0  # what a library has registered to be done at the end may take so long


def read_job(path: str) -> dict[str, Any]:
    """What was written for a job in a fresh interpreter."""
    with open(path, "rb") as file:
        job: dict[str, Any] = json.load(file)
    return job


def begin(job: dict[str, Any], server: int, reply: int) -> None:
    """From the fork to the call; does not come back."""
    try:
        os.close(reply)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        signals.end_with(server, signal.SIGKILL)
        signals.adopt_orphans()
        for target, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, job["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            (2, job["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            handle = os.open(path, flags, 0o600)
            os.dup2(handle, target)
            os.close(handle)
        for path in (*job["folders"], *map(os.path.dirname, job["links"])):
            os.makedirs(path, exist_ok=True)
        for path, aim in job["links"].items():
            os.symlink(aim, path)
        _limit(job["descriptors"], job["file_bytes"])
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        landlock.confine(job["writable"])
        if job["fresh"]:
            with open(job["file"], "w", encoding="utf-8") as file:
                json.dump(job, file)
            serve = os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve.py")
            os.execv(sys.executable, [sys.executable, "-B", serve, "job", job["file"]])  # noqa: S606 -- no shell is wanted
        perform(job)
    except BaseException as error:  # noqa: BLE001 -- nothing may get back into the server's loop
        _answer(job, None, f"the job could not be started: {words(error)}")
    finally:
        os._exit(1)


def _limit(descriptors: int, file_bytes: int) -> None:
    """Bounds of this process and all that it starts: no core dumps, files and descriptors."""
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, descriptors), (resource.RLIMIT_FSIZE, file_bytes)):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))


def perform(job: dict[str, Any]) -> None:
    """Call the function, write its answer, and end the process."""
    answer, failure = None, ""
    try:
        _prepare(job)
        module, _, function = job["call"].partition(":")
        answer = getattr(importlib.import_module(f"oomlint.verify.child.{module}"), function)(**job["arguments"])
        json.dumps(answer)
    except BaseException as error:  # noqa: BLE001 -- the user's code may raise anything, SystemExit too
        answer, failure = None, located(error, job["folder"], FOLDER)
        with contextlib.suppress(Exception):
            traceback.print_exception(type(error), error, error.__traceback__)
    _answer(job, answer, failure)
    _finish()


def _prepare(job: dict[str, Any]) -> None:
    """The same start for every job."""
    tempfile.tempdir = None  # asked for while torch was imported: the server's
    sys.dont_write_bytecode = True
    sys.argv = [str(job["arguments"].get("path", ""))]
    sys.modules["__main__"] = types.ModuleType("__main__")  # spawn would run the server's file again
    os.environ["OOMLINT_ROOT"] = job["folder"]  # for workers only: in a fresh interpreter the function decides what loader there is
    _use_copy(job["folder"])
    warnings.simplefilter("ignore")
    with contextlib.suppress(ImportError):
        import torch  # noqa: PLC0415 -- of the user

        torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401, ICN001, PLC0415 -- imported, so that its generator is seeded too
    seed()


def _use_copy(folder: str) -> None:
    """A project that is installed "editable", or is on PYTHONPATH, points at the original: let it point at the copy."""
    try:
        with open(os.path.join(os.path.dirname(folder), "origin"), encoding="utf-8") as file:
            origin = file.read()
    except OSError:
        return

    def moved(path: str) -> str:
        real = os.path.realpath(path) if path else ""
        if real != origin and not real.startswith(origin + os.sep):
            return path
        copy = os.path.normpath(os.path.join(folder, os.path.relpath(real, origin)))
        return copy if os.path.isdir(copy) and not os.path.islink(copy) else path

    sys.path[:] = [moved(path) for path in sys.path]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):  # a finder that knows packages by name; what is on the path goes first
            mapping = getattr(module, "MAPPING", None)
            for package in mapping.values() if isinstance(mapping, dict) else ():
                copy = moved(os.path.dirname(str(package)))
                if copy not in sys.path and copy != os.path.dirname(str(package)):
                    sys.path.insert(0, copy)
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = os.pathsep.join(moved(path) for path in os.environ["PYTHONPATH"].split(os.pathsep))
    sys.path_importer_cache.clear()


def _answer(job: dict[str, Any], answer: object, failure: str) -> None:
    """Write the file that the parent reads, in one go."""
    part = job["answer"] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump({"answer": answer, "failure": failure}, file)
    os.replace(part, job["answer"])


def _finish() -> None:
    """End as an interpreter ends, but not later than in two seconds: workers are joined, buffers are written."""

    def enough(*_: object) -> None:
        os._exit(0)

    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGALRM, enough)
        signal.setitimer(signal.ITIMER_REAL, _EXIT_SECONDS)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if threading.current_thread() is threading.main_thread():
            atexit._run_exitfuncs()  # noqa: SLF001 -- what os._exit leaves out, the end of multiprocessing above all
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    os._exit(0)
