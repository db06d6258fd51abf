"""What a budget is asked about: a script, a folder, a command, or a file that holds commands, with the limits that it sets."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import Beside, beside
from oomlint.budget import command, manifests
from oomlint.budget.limits import Given, Limit
from oomlint.budget.mistakes import BudgetError
from oomlint.memory.loaders import job_limits
from oomlint.model.command_lines import commands_of
from oomlint.model.commands import commands_in
from oomlint.model.yaml_nodes import member
from oomlint.source import SourceError, is_special, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.commands import Command

    Named = Callable[[str], str]

_CELL: Final = re.compile(r"(.+\.ipynb):(\d+)")
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "sbatch", "source", "."})
_COPIES: Final = frozenset({"cp", "ln", "mv", "rsync", "install"})
_TYPED: Final = "command.sh"  # a command of the command line is read as a script of one line
_FUNCTION: Final = re.compile(r"^[ \t]*(?:function[ \t]+)?[\w:-]+[ \t]*\([ \t]*\)", re.MULTILINE)  # in which `$1` is something else
_COUNT: Final = re.compile(r"[1-9]\d{0,8}")
_ULIMIT: Final = re.compile(r"(?:^|[;&|({'\"])[ \t]*ulimit[ \t]+-[SH]*n[ \t]+(\d+)", re.MULTILINE)
_MOST_CHARACTERS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that is asked about."""

    path: str
    options: tuple[str, ...] = ()
    ranks: int | None = None
    cell: int = 0
    command: bool = False
    ranks_open: bool = False  # the command starts several processes, and nobody says how many
    given: Given = field(default_factory=Given)
    asked: str = ""  # the file that the command stands in
    variables: tuple[tuple[str, str | None], ...] = ()  # of the environment, that the command sets; None where nobody knows to what


def targets(paths: Sequence[str], folder: str, name: Named) -> list[Target]:
    """What the words of the command line ask about. Raises BudgetError, whose message says what is wrong."""
    if len(paths) > 1:
        raise BudgetError("one script, folder or command at a time; a command stands in quotes")
    word = paths[0] if paths else "."
    if os.path.exists(word):
        return _of_path(os.path.abspath(word), folder, name)
    cell = _CELL.fullmatch(word)
    if cell and os.path.isfile(cell[1]):
        return [Target(os.path.abspath(cell[1]), cell=int(cell[2]))]
    words = word.split()
    if len(words) < 2:  # noqa: PLR2004 - a command has a script, too
        raise BudgetError(f"{word or repr(word)}: there is no such file or folder")
    if words[0] in _SHELLS and os.path.isfile(words[1]):
        return _of_path(os.path.abspath(words[1]), folder, name, words[2:])
    command.refuse_shell(word)
    command.words_of(word)
    typed = commands_of(_TYPED, word)
    found = list(_started([(one, None) for one in typed], "", folder, name))
    if found:
        return found
    place = next(_places(typed[0], "", folder)) if typed else folder
    run = command.read(shlex.join(typed[0].words) if typed else word, place)  # which says what is wrong
    return [Target(run.script, run.options, run.ranks, command=True, ranks_open=run.ranks_open)]


def _of_path(path: str, folder: str, name: Named, arguments: Sequence[str] = ()) -> list[Target]:
    kind = beside(path)
    if os.path.isdir(path) or (kind is None and not path.endswith(".ipynb")):
        return [Target(path)]
    if is_special(path):
        raise BudgetError(f"{name(path)}: not a regular file")
    if path.endswith(".ipynb"):
        return [Target(path), *_started(_cells(path), path, folder, name)]
    content = _content(path, name)
    commands = manifests.commands(name(path), content) if kind is Beside.SETTINGS else [(one, None) for one in commands_of(path, content)]
    handed = arguments if kind is Beside.SHELL and not _FUNCTION.search(content) else None
    found = list(_started(commands, path, folder, name, handed))
    if not found:
        raise BudgetError(f"{name(path)}: no command there starts a Python script that can be found")
    return found


def _content(path: str, name: Named) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_CHARACTERS).decode("utf-8-sig", "replace")
    except OSError as error:
        raise BudgetError(f"{name(path)}: {error.strerror or error}") from None


def _cells(path: str) -> list[tuple[Command, None]]:
    """The commands of a notebook's cells."""
    try:
        source = read_source(path)
    except SourceError:
        return []  # said where it is read as a script
    return [(one, None) for one in commands_in(source)]


def _started(found: Sequence[tuple[Command, Given | None]], path: str, folder: str, name: Named, arguments: Sequence[str] | None = None) -> Iterator[Target]:
    """The scripts that commands start, each with what the job gives it. A path is that from the folder that the command is in by then.

    ``arguments`` are those that the file is started with, where they are known.
    A script that a command before has copied to where it is started is the one that was copied.
    """
    seen: set[object] = set()
    copied: dict[str, str] = {}
    for one, told in found:
        if one.words[0] in _COPIES:
            copied |= {os.path.basename(word): word for word in one.words if word.endswith(".py")}
            continue
        written = one.filled(arguments)
        copies = [copied.get(os.path.basename(word), word) if word.endswith(".py") else word for word in written]
        places = dict.fromkeys(_places(one, path, folder))
        run = next((run for words in (written, copies) for place in places if (run := command.of_words(words, place)) is not None), None)
        if run is None:
            continue
        ranks = run.ranks or job_limits.tasks(one)
        variables = tuple(one.variables.items())
        target = Target(
            run.script, run.options, ranks, command=True, ranks_open=run.ranks_open, given=told or _given(one, name), asked=path, variables=variables
        )
        given = target.given
        key = (run, variables, ranks, *(limit.size if limit is not None else None for limit in (given.ram, given.shm)), given.cores)
        if key not in seen:
            seen.add(key)
            yield target


def _places(one: Command, path: str, folder: str) -> Iterator[str]:
    """The folders that a command may be in: what the file goes into, from where it starts. Scripts start in the current folder, other files in theirs.

    Of a folder that begins at the root, or with a variable, the end may be one of the project's.
    """
    own = os.path.dirname(path)
    near = (own, os.path.dirname(own))
    bases = (folder,) if not path else (folder, *near) if beside(path) is Beside.SHELL else (*near, folder)
    parts = one.entered.replace("\\", "/").split("/")
    if one.starts_at_file:
        first = next(place for place in range(len(parts) + 1) if ")" not in (rest := "/".join(parts[place:])) and "}" not in rest)
        yield os.path.normpath(os.path.join(own, *parts[first:]))
        return
    unknown = max((place for place, part in enumerate(parts) if "$" in part or part == "~"), default=-1)
    if not os.path.isabs(one.entered) and unknown < 0:
        yield from (os.path.normpath(os.path.join(base, *parts)) for base in bases)
        return
    if unknown < 0:
        yield one.entered
    ends = [part for part in parts[unknown + 1 :] if part]
    for start in range(len(ends) + 1):
        yield from (os.path.normpath(os.path.join(base, *ends[start:])) for base in bases)


def _given(one: Command, name: Named) -> Given:
    ram, shm, cores = job_limits.memory(one), job_limits.shared_memory(one), job_limits.processors(one)
    return Given(_limit(ram, name), _limit(shm, name), cores.amount if cores is not None else None, files=_files(one, name))


def _files(one: Command, name: Named) -> Limit | None:
    """The descriptors that a process may have: by the service, by the container, by ``ulimit -n`` in front of the command."""
    if one.service is not None:
        node = member(member(one.service.node, "ulimits"), "nofile")
        node = member(node, "soft") or node
        text = str(getattr(node, "value", ""))
        return Limit(int(text), _spot(one.service.place_of(node), name), text) if _COUNT.fullmatch(text) else None
    words = [word.text for word in (*one.outer, *one.parts)]
    given = [after if word == "--ulimit" else word.partition("=")[2] for word, after in pairwise([*words, ""]) if word.startswith("--ulimit")]
    soft = next((text.partition("=")[2].partition(":")[0] for text in given if text.startswith("nofile=")), "")
    written = _ULIMIT.findall(one.text.content[: one.parts[0].start])
    text = soft or (written[-1] if written else "")
    return Limit(int(text), _spot(one.place, name), text) if _COUNT.fullmatch(text) else None


def _limit(found: job_limits.Limit | None, name: Named) -> Limit | None:
    if found is None:
        return None
    place = found.place
    if place.path == _TYPED:
        return Limit(int(found.amount), "what a container has that is told nothing" if found.default else "the command")
    where = _spot(place, name)
    return Limit(int(found.amount), f"what a container has that is told nothing, {where}" if found.default else where)


def _spot(place: Place, name: Named) -> str:
    return "the command" if place.path == _TYPED else f"{name(place.path)}:{f'{place.cell}:' if place.cell else ''}{place.row}"
