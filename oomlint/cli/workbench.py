"""What ``oomlint verify`` and ``oomlint check --verify`` share: the interpreter, the limits, the store of verdicts, and the bar that shows how far it is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint import amounts
from oomlint.cli.ending import ending_in_order
from oomlint.config import ConfigError
from oomlint.verify import workshop
from oomlint.verify.bench import Options
from oomlint.verify.jobs import Limits
from oomlint.verify.run import Surroundings, verdicts
from oomlint.verify.store import VerdictStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from oomlint.config import Settings
    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import View
    from oomlint.verify.case import Case


_OF_A_SHELL: Final = re.compile(r"[|&;<>$`*?(){}~\n]")
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
_PYTHON: Final = re.compile(r"python(\d(\.\d+)?)?")
_BUILTIN: Final = frozenset({".", ":", "cd", "command", "eval", "exec", "export", "set", "source", "time", "trap", "ulimit", "umask", "unset"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line says of the run; where it says nothing the settings do."""

    python: str | None = None
    time_limit: float | None = None  # seconds
    memory_cap: int | None = None  # bytes
    repeat: int | None = None
    command: str | None = None
    factory: str | None = None
    unsandboxed: bool = False
    keep: str | None = None
    cache: bool = True


def surroundings(settings: Settings, root: str, asked: Asked) -> Surroundings:
    """How all cases of a run are run."""
    known = settings.verify
    limits = Limits(
        seconds=amounts.seconds(known.time_limit) if asked.time_limit is None else asked.time_limit,
        memory=amounts.size(known.memory_cap) if asked.memory_cap is None else asked.memory_cap,
    )
    options = Options(limits, asked.repeat or known.repeat, asked.factory or known.factory, asked.command or known.command, known.prepare)
    python = interpreter(asked.python, known.python, root)
    refuse_command("--command" if asked.command else "verify.command", options, root, python)

    def elsewhere(settings: Settings, root: str) -> Surroundings:
        # A command and a function that a line names are those of the project that the run is about.
        return surroundings(settings, root, replace(asked, command=None, factory=None))

    return Surroundings(root, settings, options, python, asked.unsandboxed, asked.keep, elsewhere)


def interpreter(option: str | None, setting: str | None, root: str) -> str:
    """The interpreter to run code under: as asked for, else the project's, else the one in use, else this one. Raises ConfigError."""
    for given, name, folder in ((option, "--python", os.getcwd()), (setting, "verify.python", root)):
        if given is None:
            continue
        path = os.path.join(folder, os.path.expanduser(given))
        if os.path.isdir(path):
            path = os.path.join(path, "bin", "python")  # a virtual environment
        found = shutil.which(path if os.path.dirname(given) or os.path.isfile(path) else given)
        if found is None:
            raise ConfigError(f"{name}: {given!r} is not a program")
        return found
    return workshop.interpreter(root)


def refuse_command(label: str, options: Options, root: str, python: str) -> None:
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
    program = words[0]
    places = os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])
    if not (
        program in _BUILTIN or _PYTHON.fullmatch(program) or shutil.which(os.path.join(root, program) if os.path.dirname(program) else program, path=places)
    ):
        plain = program.endswith(".py") and os.path.isfile(os.path.join(root, program))
        if not plain:
            raise ConfigError(f"{label}: there is no program {program!r}")
    file = next((word for word in words[1:2] if word.endswith(".py")), None)
    if file is not None and _PYTHON.fullmatch(os.path.basename(program)) and not os.path.isfile(os.path.join(root, file)):
        raise ConfigError(f"{label}: there is no file {file!r} in {os.path.relpath(root)}")


def shown_python(python: str, view: View) -> str:
    """The interpreter as a report names it: from the current folder where it lies below it."""
    return view.name(python) if python.startswith(os.path.join(view.folder, "")) else python


def verified(
    cases: Sequence[Case], around: Surroundings, view: View, *, cache: bool, bar: bool, tell: Callable[[Item], None] | None = None
) -> Generator[Item, None, None]:
    """The cases with their verdicts. ``tell`` is called with each as it comes, while the bar is out of the way. Raises WorkshopError."""
    folder = os.path.join(around.root, around.settings.cache_dir) if cache else None
    store = VerdictStore(folder, around)
    with ending_in_order(), Bar(len(cases), view, shown=bar) as progress, closing(_stream(cases, around, store, progress)) as found:
        try:
            for item in found:
                if tell is not None:
                    progress.hide()
                    tell(item)
                yield item
        finally:
            store.save()


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
