"""Runs the user's own command as it stands, watched from within, and says what came of it.

The command runs in a process below this one, which lives on whatever happens to it: a program that ends itself with `os._exit` or is killed has its files and
its records all the same. A plain `python file.py` or `python -m module` is run in a fork, where torch is imported already; everything else is started as the
shell would start it.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import threading
import traceback
from typing import Any, Final, NamedTuple

from oomlint.verify import process_tree
from oomlint.verify.child import FOLDER
from oomlint.verify.child.driving import program_tracer
from oomlint.verify.child.driving.program_tracer import Wanted
from oomlint.verify.child.loading import run_script
from oomlint.verify.child.measuring import written_files

PYTHON: Final = re.compile(r"python(\d(\.\d+)?)?")
SHELL: Final = re.compile(r"[|&;<>$`*?(){}~\n]")  # what a shell would do something with
RUNNERS: Final = (("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("rye", "run"))  # the environment is chosen already
ALONE: Final = frozenset({"-u", "-B", "-b", "-s", "-E"})  # options of Python that change nothing here
WITH_VALUE: Final = frozenset({"-W", "-X"})
SITE: Final = "sitecustomize.py"


class Parsed(NamedTuple):
    """A command, taken apart. Neither ``path`` nor ``module`` where it is no plain program of Python."""

    environment: dict[str, str]
    path: str
    module: str
    arguments: tuple[str, ...]


def run(command: str, watch: dict[str, Any]) -> dict[str, Any]:
    """Run a command in the current folder; ``watch`` is what :class:`Wanted` holds.

    Answers ``status`` (minus the signal), ``exception`` (None, or its ``type``, ``text`` and ``place``), ``reached`` (whether a watched row was run),
    ``streams`` (what was seen at each loader), ``files`` (digest by name, of what was written) and ``bytes_read`` (by all processes).
    """
    root = os.getcwd()
    before = written_files.files([root])
    notes = tempfile.mkdtemp(prefix="oomlint-watch-")
    wanted = Wanted(folder=notes, root=os.path.realpath(root), **watch)
    _prepare(wanted)
    parsed = parse(command)
    size = process_tree.read_bytes(os.getpid())
    child = os.fork()
    if child == 0:
        _go(parsed, command, wanted)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    size = process_tree.read_bytes(os.getpid()) - size  # what a process has read is its parent's, once that has waited for it
    try:
        seen = program_tracer.read(notes)
    finally:
        shutil.rmtree(notes, ignore_errors=True)
    return {
        "status": status, "bytes_read": size, **seen,
        "files": written_files.written(before, [root], ""),
    }  # fmt: skip


def parse(command: str) -> Parsed:
    """Tell a plain program of Python from everything else."""
    other = Parsed({}, "", "", ())
    try:
        words = shlex.split(command)
    except ValueError:
        return other
    bare = re.sub(r"'[^']*'", "", command)
    if SHELL.search(bare):
        return other
    environment: dict[str, str] = {}
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if tuple(words[:2]) in RUNNERS:
        words = words[2:]
    if not words:
        return other
    if words[0].endswith(".py") and os.path.isfile(words[0]):
        return Parsed(environment, words[0], "", tuple(words[1:]))
    if not PYTHON.fullmatch(os.path.basename(words[0])):
        return other
    words.pop(0)
    while words and (words[0] in ALONE or words[0] in WITH_VALUE):
        words = words[2 if words[0] in WITH_VALUE else 1 :]
    if len(words) > 1 and words[0] == "-m":
        return Parsed(environment, "", words[1], tuple(words[2:]))
    if words and not words[0].startswith("-"):
        return Parsed(environment, words[0], "", tuple(words[1:]))
    return other


def _prepare(wanted: Wanted) -> None:
    """What every Python below this process finds when it starts: the watcher, and not the tolerant loader of the harness."""
    bootstrap = os.path.join(FOLDER, "bootstrap", SITE)
    folder = os.path.join(wanted.folder, "start")
    os.mkdir(folder)
    with open(os.path.join(folder, SITE), "w", encoding="utf-8") as file:
        file.write(
            "import sys\n"
            "from importlib.util import module_from_spec, spec_from_file_location\n"
            f"sys.path[:] = [item for item in sys.path if item != {folder!r}]\n"
            f"spec = spec_from_file_location('sitecustomize', {bootstrap!r})\n"
            "module = module_from_spec(spec)\n"
            "sys.modules['sitecustomize'] = module\n"
            "spec.loader.exec_module(module)\n"
            "try:\n"
            "    from oomlint.verify.child.driving import program_tracer\n"
            "    program_tracer.listen()\n"
            "except Exception as error:\n"
            "    sys.stderr.write('the command is not watched: {!r}\\n'.format(error))\n"
        )
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (os.pathsep + path if path else "")
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    os.environ["OOMLINT_ROOT"] = ""
    os.environ[program_tracer.VARIABLE] = wanted.text()


def _go(parsed: Parsed, command: str, wanted: Wanted) -> None:
    """In the process of the command; does not come back."""
    status = 1
    try:
        os.environ.update(parsed.environment)
        if parsed.path or parsed.module:
            status = _in_process(parsed, wanted)
        else:
            os.execvp("/bin/sh", ["/bin/sh", "-c", command])  # noqa: S606 - as the user would
    except OSError as error:
        sys.stderr.write(f"the command cannot be started: {error}\n")
        status = 127
    finally:
        os._exit(status)


def _in_process(parsed: Parsed, wanted: Wanted) -> int:
    """A program of Python, to its end as an interpreter would end it."""
    status = 1
    random.seed(0)  # forking has seeded it again
    watcher = program_tracer.Watcher(wanted)
    watcher.patch_loaders()
    watcher.begin()
    try:
        status = run_script.run(parsed.path, parsed.arguments, parsed.module)["status"] & 0xFF
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        watcher.raised(error)
        traceback.print_exception(type(error), error, error.__traceback__)
    for finish in (getattr(threading, "_shutdown", None), atexit._run_exitfuncs, watcher.end, sys.stdout.flush, sys.stderr.flush):  # noqa: SLF001 - no other way
        try:
            if finish is not None:
                finish()
        except Exception:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
    return status
