"""What ``oomlint verify`` and ``oomlint check --verify`` share: the interpreter, the limits, the store of verdicts, and the bar that shows how far it is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomlint import amounts
from oomlint.cli import trust
from oomlint.cli.check import say
from oomlint.cli.ending import ending_in_order
from oomlint.cli.user_config import Own, absolute, inside, program
from oomlint.config import VARIABLES, ConfigError, VerifySettings, settings_file
from oomlint.verify import interpreters
from oomlint.verify.jobs import Limits
from oomlint.verify.run import verdicts
from oomlint.verify.sandbox.report import still_open
from oomlint.verify.sandbox_runner import inspect
from oomlint.verify.session import Surroundings, VerifyOptions, nearest
from oomlint.verify.store import VerdictStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from oomlint.config import Settings
    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import View
    from oomlint.verify.case import Case


_OF_A_SHELL: Final = re.compile(r"[|&;<>$`*?(){}~\n]")
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
_PYTHON: Final = re.compile(r"python(\d(\.\d+)?)?")
_BUILTIN: Final = frozenset({".", ":", "cd", "command", "eval", "exec", "export", "set", "source", "time", "trap", "ulimit", "umask", "unset"})


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What a command line says of the run; where it says nothing the settings do."""

    python: str | None = None
    time_limit: float | None = None  # seconds
    memory_cap: int | None = None  # bytes
    disk_cap: int | None = None  # bytes
    repeat: int | None = None
    command: str | None = None
    factory: str | None = None
    pass_env: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    unsandboxed: bool = False
    keep: str | None = None
    cache: bool = True
    config: str | None = None  # the settings file, where the line names one
    start: str | None = None  # the folder from which settings are looked for, where it is not the root
    isolated: bool = False
    trust: bool = False  # the project's settings and environment may name what is run
    over: Mapping[str, Any] = field(default_factory=dict)  # settings that go over those of files, by field


def surroundings(settings: Settings, root: str, asked: VerifyRequest) -> Surroundings:
    """How all cases of a run are run. Raises ConfigError."""
    for name in asked.pass_env:
        if not VARIABLES.fullmatch(name):
            raise ConfigError(f"--pass-env: {name!r} is not the name of an environment variable")
    for path in asked.read:
        if not os.path.exists(absolute(path, os.getcwd())):
            raise ConfigError(f"--read: {path}: No such file or directory")
    return _surroundings(settings, root, asked, Own(root, isolated=asked.isolated))


def _surroundings(settings: Settings, root: str, asked: VerifyRequest, own: Own) -> Surroundings:
    known = _known(settings.verify, root, asked, own)
    limits = Limits(
        seconds=amounts.seconds(known.time_limit) if asked.time_limit is None else asked.time_limit,
        memory=amounts.size(known.memory_cap) if asked.memory_cap is None else asked.memory_cap,
        disk=amounts.size(known.disk_cap) if asked.disk_cap is None else asked.disk_cap,
    )
    options = VerifyOptions(limits, asked.repeat or known.repeat, asked.factory or known.factory, asked.command or known.command, known.prepare)
    python = interpreter(asked.python, known.python, root, trusted=asked.trust)
    refuse_command("--command" if asked.command else "verify.command", options, root, python)
    read = (*(path for path in known.read if os.path.exists(path)), *(absolute(path, os.getcwd()) for path in asked.read))
    found: dict[str, Surroundings] = {}

    def elsewhere(settings: Settings, root: str) -> Surroundings:
        # A command and a function that a line names are those of the project that the run is about.
        if root not in found:  # nobody is asked twice
            found[root] = _surroundings(settings, root, replace(asked, command=None, factory=None, start=None), own)
        return found[root]

    return Surroundings(
        root,
        settings.having(verify=known),
        options,
        python,
        asked.unsandboxed,
        asked.keep,
        pass_env=tuple(dict.fromkeys((*known.pass_env, *asked.pass_env))),
        read=tuple(dict.fromkeys(map(os.path.abspath, read))),
        elsewhere=elsewhere,
    )


def _known(given: VerifySettings, root: str, asked: VerifyRequest, own: Own) -> VerifySettings:
    """What settings say of the run: those of the project as far as the user allows, over the user's own. Paths to read are absolute."""
    origin = None if asked.isolated else settings_file(Path(asked.config) if asked.config else None, Path(asked.start or root))
    fields = {**({name: getattr(given, name) for name in origin[1]} if origin else {}), **asked.over}
    if origin and not asked.trust and (asked.config is None or inside(str(origin[0]), interpreters.repository(root) or root)):
        taken = {name for name in ("python", "command", "factory") if getattr(asked, name)} | {*asked.over}  # the line says something else
        values = {name: fields[name] for name in trust.GUARDED if fields.get(name) and name not in taken}
        for name in trust.refused(str(origin[0]), values, root, own):
            del fields[name]
    personal = own.settings()
    joined = {
        "pass_env": (*personal.get("pass_env", ()), *fields.get("pass_env", ())),
        "read": (*personal.get("read", ()), *(absolute(path, root) for path in fields.get("read", ()))),
    }
    return VerifySettings(**{**personal, **fields, **joined})


def interpreter(option: str | None, setting: str | None, root: str, *, trusted: bool = False) -> str:
    """The interpreter to run code under: as asked for, else the project's, else the one in use, else this one. Raises ConfigError."""
    for given, name, folder in ((option, "--python", os.getcwd()), (setting, "verify.python", root)):
        if given is None:
            continue
        found = program(given, folder)
        if found is None:
            raise ConfigError(f"{name}: {given!r} is not a program")
        return found
    return interpreters.interpreter(root, say, trusted=trusted)


def refuse_command(label: str, options: VerifyOptions, root: str, python: str) -> None:
    """Raise ConfigError for a command that cannot be run, as far as that is seen without running it."""
    command = options.command
    if not command:
        return
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{label}: `{command}`: {str(error).lower()}") from None
    if options.prepare or _OF_A_SHELL.search(command):
        return  # a file may come to be, and a shell reads it in its own way
    while words and _VARIABLE.match(words[0]):
        words.pop(0)
    if not words:
        raise ConfigError(f"{label}: `{command}` runs no program")
    first = words[0]
    places = os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])
    if not (first in _BUILTIN or _PYTHON.fullmatch(first) or shutil.which(os.path.join(root, first) if os.path.dirname(first) else first, path=places)):
        plain = first.endswith(".py") and os.path.isfile(os.path.join(root, first))
        if not plain:
            raise ConfigError(f"{label}: there is no program {first!r}")
    file = next((word for word in words[1:2] if word.endswith(".py")), None)
    if file is not None and _PYTHON.fullmatch(os.path.basename(first)) and not os.path.isfile(os.path.join(root, file)):
        raise ConfigError(f"{label}: there is no file {file!r} in {os.path.relpath(root)}, the project's root, where commands are run")


def shown_python(python: str, view: View) -> str:
    """The interpreter as a report names it: from the current folder where it lies below it."""
    return view.name(python) if python.startswith(os.path.join(view.folder, "")) else python


def verified(
    cases: Sequence[Case], around: Surroundings, view: View, *, cache: bool, bar: bool, tell: Callable[[Item], None] | None = None
) -> Generator[Item, None, None]:
    """The cases with their verdicts. ``tell`` is called with each as it comes, while the bar is out of the way. Raises SandboxError."""
    if around.elsewhere is not None:  # what is to be asked of the user is asked here: later there are several processes
        for root in dict.fromkeys(case.root for case in cases if case.root != around.root):
            around.elsewhere(nearest(root)[0], root)
    folder = os.path.join(around.root, around.settings.cache_dir) if cache else None
    store = VerdictStore(folder, around)
    with ending_in_order(), Bar(len(cases), view, shown=bar) as progress, closing(_stream(cases, around, store, progress)) as found:
        try:
            told = False
            for item in found:
                if item[1].sandbox and not item[1].cached and not told:
                    told = True
                    progress.hide()
                    _tell_open()
                if tell is not None:
                    progress.hide()
                    tell(item)
                yield item
        finally:
            store.save()


def _tell_open() -> None:
    """One line where the sandbox of this machine lacks something."""
    missing = still_open(inspect())
    if missing:
        say(f"warning: the sandbox is not whole on this machine: code could {', '.join(missing)} (--explain-sandbox)")


def _stream(cases: Sequence[Case], around: Surroundings, store: VerdictStore, progress: Bar) -> Generator[Item, None, None]:
    yield from verdicts(cases, around, store, progress.begin)


class Bar:
    """A line on standard error that says which case is being run, where that is a terminal."""

    def __init__(self, total: int, view: View, *, shown: bool) -> None:
        self._view = view
        self._total = total
        self._number = 0
        self._bar: Any = None
        if shown and total and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console  # noqa: PLC0415 - only in a terminal
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

            columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            console = Console(stderr=True, highlight=False)
            self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Bar:  # noqa: PYI034 - subclasses are not meant
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def begin(self, case: Case) -> None:
        """Show the case that is next."""
        self._number += 1
        if self._bar is not None:
            place = case.finding.place
            cell = f"cell {place.cell}:" if place.cell else ""
            text = f"{self._number}/{self._total} {case.code} {self._view.name(place.path)}:{cell}{place.row}"
            self._bar.update(self._task, description=text, completed=self._number - 1)
            self._bar.start()

    def hide(self) -> None:
        """Take the line away, until the next case begins."""
        if self._bar is not None:
            self._bar.stop()
