"""What a budget is asked about: a script, a folder, a command, or a file that holds commands, with the limits that it sets."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.beside_code import Beside, beside
from oomlint.budget import command, jobs, manifests
from oomlint.budget.environments import of_command, option_of, shell_text, through, written_by
from oomlint.budget.limits import JobResources, Limit
from oomlint.budget.makefiles import OF_MAKE_FLAGS, Makefile, environment_wins
from oomlint.budget.mistakes import BudgetError
from oomlint.finding import Place
from oomlint.model.command_lines import commands_in_text, commands_of
from oomlint.model.command_texts import CommandText
from oomlint.model.commands import commands_in, names_program
from oomlint.model.environments import Environment, Setting
from oomlint.source import SourceError, is_special, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from oomlint.model.commands import Command
    from oomlint.model.environments import UsersShell
    from oomlint.model.shell_runs import ShellState
    from oomlint.source import Source

    Named = Callable[[str], str]

_CELL: Final = re.compile(r"(.+\.ipynb):(\d+)")
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "sbatch", "source", "."})
_FILES: Final = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "docker compose": ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
    "docker-compose": ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
}
_RUN_FILES: Final = frozenset({*_SHELLS, *(one.split()[0] for one in _FILES)})
_RULE: Final = re.compile(r"(?m)^([\w./% -]+?)[ \t]*:(?!=)[ \t]*([^\n#;]*)")
_SETS_FOR_TARGET: Final = re.compile(r"(?:(?:export|override|private)[ \t]+)*[\w.-]+[ \t]*[?:+!]*=")  # a variable, of a Makefile
_SEVERAL: Final = re.compile(r"[;&|]")  # commands
_SETS: Final = re.compile(r"[A-Za-z_]\w*=")  # a variable, in front of a command
_INTO_THIS: Final = frozenset({"source", "."})  # run by the shell itself: no other program starts them
_SAYS: Final = frozenset({"echo", "printf"})
_COPIES: Final = frozenset({"cp", "ln", "mv", "rsync", "install"})
_MOST_CHARACTERS: Final = 1_000_000


class BudgetTarget(Struct, frozen=True):
    """One thing that is asked about."""

    path: str
    options: tuple[str, ...] = ()
    ranks: int | None = None
    cell: int = 0
    command: bool = False
    ranks_open: bool = False  # the command starts several processes, and nobody says how many
    launcher: str = ""  # of torch, that stays beside them
    refused: str = ""  # what that ends with an error for
    given: JobResources = field(default_factory=JobResources)
    place: Place | None = None  # of the command
    environment: Environment = field(default_factory=Environment)


class _Outside(Struct, frozen=True):
    """What a file with commands is started with."""

    environment: Environment
    shell: ShellState | None = None  # that reads it itself: `. train.sh`
    pinned: Mapping[str, str] = field(default_factory=dict)  # variables of a Makefile that its command sets
    within: tuple[str, ...] = ()  # the files that the command stands in, each in the one before


def targets(paths: Sequence[str], folder: str, name: Named, user: UsersShell) -> list[BudgetTarget]:
    """What the words of the command line ask about. Raises BudgetError, whose message says what is wrong."""
    outside = _Outside(Environment(user=user))
    if len(paths) > 1:
        raise BudgetError("one script, folder or command at a time; a command stands in quotes")
    word = paths[0] if paths else "."
    if os.path.exists(word):
        return _of_path(os.path.abspath(word), folder, name, outside)
    cell = _CELL.fullmatch(word)
    if cell and os.path.isfile(cell[1]):
        return [BudgetTarget(os.path.abspath(cell[1]), cell=int(cell[2]), environment=outside.environment)]
    words = word.split()
    typed_place = Place(jobs.TYPED, 0, 1, 1, 1, len(word) + 1)
    given = replace(outside, environment=through(words, outside.environment, folder, typed_place))
    found = _of_file(words, folder, name, given) if not _SEVERAL.search(word) else []
    if found:
        return found
    if len(words) < 2:  # noqa: PLR2004 - a command has a script, too
        raise BudgetError(f"{word or repr(word)}: there is no such file or folder")
    command.words_of(word)
    text = shell_text(jobs.TYPED, word, outside.environment, folder, None)
    found = list(_started([(one, None) for one in commands_in_text(text)], "", folder, name, outside))
    if found:
        return found
    typed = commands_of(jobs.TYPED, word)
    place = next(_places(typed[0], "", folder)) if typed else folder
    run = command.read(shlex.join(typed[0].words) if typed else word, place)  # which says what is wrong
    return [_of_command(run, outside.environment)]


def _of_command(run: command.ReadCommand, environment: Environment) -> BudgetTarget:
    return BudgetTarget(
        run.script,
        run.options,
        run.ranks,
        command=True,
        ranks_open=run.ranks_open,
        launcher=run.launcher,
        refused=run.refused,
        environment=environment,
    )


def _of_file(words: list[str], folder: str, name: Named, outside: _Outside, by: str = "the command") -> list[BudgetTarget]:
    """What a command starts that runs a file with commands: a shell, ``sbatch``, ``make``, ``docker compose``; nothing for other commands.

    ``by``: what the command is called.
    """
    asked = " ".join(words[:2]) if words[:1] == ["docker"] else "".join(words[:1])
    at = next((number for number, word in enumerate(words) if number and os.path.isfile(os.path.join(folder, word))), 0)
    if asked in _SHELLS and at and not any(word in {"-c", "--wrap"} for word in words[:at]):
        memory = jobs.memory_of(command.options_of(words[:at])) if asked == "sbatch" else None
        found = _of_path(os.path.normpath(os.path.join(folder, words[at])), folder, name, outside, words[at + 1 :])
        limit = Limit(memory, by) if memory is not None else None
        return [replace(one, given=replace(one.given, ram=limit)) if limit is not None else one for one in found]
    path = words[at] if at else next((one for one in _FILES.get(asked, ()) if os.path.isfile(os.path.join(folder, one))), "")
    if not path or asked not in _FILES:
        return []
    plain = [word for word in words[1:] if word not in {path, "-f"} and not word.startswith("-") and "=" not in word]
    if asked == "make":
        sets = dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))
        wins = environment_wins(word for word in words[1:] if word.startswith("-"))
        environment = outside.environment.having({OF_MAKE_FLAGS: Setting("e")}) if wins else outside.environment
        outside = replace(outside, environment=environment, pinned=sets)
        return _of_path(os.path.normpath(os.path.join(folder, path)), folder, name, outside, chosen=lambda content: _recipes(content, plain))
    listed = plain[plain.index("up") + 1 :] if "up" in plain else []
    if "run" in plain:
        sets = dict(pair for one in option_of(words, ("-e", "--env")) if len(pair := one.split("=", 1)) > 1)
        outside, listed = replace(outside, pinned=sets), [plain[-1]] if plain[-1] != "run" else []
    return _of_path(os.path.normpath(os.path.join(folder, path)), folder, name, outside, chosen=lambda content: manifests.started(name(path), content, listed))


def _of_path(
    path: str,
    folder: str,
    name: Named,
    outside: _Outside,
    arguments: Sequence[str] = (),
    chosen: Callable[[str], Collection[str | int]] | None = None,
) -> list[BudgetTarget]:
    """What a path asks about. ``chosen``: by the content of the file, the rules or services of it that the command starts."""
    kind = beside(path)
    if os.path.isdir(path) or (kind is None and not path.endswith(".ipynb")):
        return [BudgetTarget(path, environment=outside.environment)]
    if path in outside.within:
        return []
    if is_special(path):
        raise BudgetError(f"{name(path)}: not a regular file")
    if path.endswith(".ipynb"):
        source, cells = _cells(path)
        inside = replace(outside, environment=written_by(outside.environment, [source]))
        return [BudgetTarget(path, environment=outside.environment), *_started(cells, path, folder, name, inside)]
    content = _content(path, name)
    if kind is Beside.SHELL:
        if outside.shell is not None and arguments:
            outside.shell.arguments = tuple(arguments)
        text = shell_text(path, content, outside.environment, folder, arguments, outside.shell)
    elif kind is Beside.MAKE:
        make = Makefile(outside.environment, outside.pinned)
        content = _set(content, {name: one.text for name, one in make.pinned.items() if one.text is not None})
        make.read(path, content)
        text = CommandText(path, content, outer=outside.environment, make=make.value)
    else:
        text = CommandText(path, content, outer=outside.environment)
    commands = manifests.commands(name(path), text, outside.environment, folder) if kind is Beside.SETTINGS else [(one, None) for one in commands_in_text(text)]
    if chosen is not None:
        wanted = chosen(content)
        commands = [(one, told) for one, told in commands if _group(content, one) in wanted]
    found = list(_started(commands, path, folder, name, outside))
    if not found:
        raise BudgetError(f"{name(path)}: no command there starts a Python script that can be found")
    return found


def _set(content: str, given: Mapping[str, str]) -> str:
    """A Makefile with the variables that its command sets, also where it sets them for a target."""
    for word, text in given.items():
        written = rf"(?m)^((?:[^\s#:=][^#:=\n]*:[ \t]*(?:(?:export|private)[ \t]+)*)?{re.escape(word)})[ \t]*(?:[:?+]|::)?=.*"
        content = re.sub(written, lambda found, text=text: f"{found[1]}={text}", content)  # type: ignore[misc]
    return content


def _group(content: str, one: Command) -> str | int:
    """Where the service begins that a command is one of; the targets of the rule of a Makefile that it is in."""
    if one.service is not None:
        return int(one.service.node.start_mark.index)
    return next((match[1] for match in reversed(list(_RULE.finditer(content, 0, one.parts[0].start)))), "")


def _recipes(content: str, asked: Sequence[str]) -> set[str]:
    """The targets that ``make`` makes, with those that they need: the first of the file where it is told none."""
    found = [match for match in _RULE.finditer(content) if not match[1].startswith(".") and not _SETS_FOR_TARGET.match(match[2])]
    rules = {match[1]: match[2].split() for match in found}
    wanted = [one for one in rules if set(one.split()) & set(asked)] if asked else list(rules)[:1]
    for one in wanted:
        wanted += [other for other in rules if other not in wanted and set(other.split()) & set(rules[one])]
    return set(wanted)


def _content(path: str, name: Named) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_CHARACTERS).decode("utf-8-sig", "replace")
    except OSError as error:
        raise BudgetError(f"{name(path)}: {error.strerror or error}") from None


def _cells(path: str) -> tuple[Source | None, list[tuple[Command, None]]]:
    """A notebook, and the commands of its cells."""
    try:
        source = read_source(path)
    except SourceError:
        return None, []  # said where it is read as a script
    return source, [(one, None) for one in commands_in(source)]


def _started(
    found: Sequence[tuple[Command, JobResources | None]],
    path: str,
    folder: str,
    name: Named,
    outside: _Outside,
) -> Iterator[BudgetTarget]:
    """The scripts that commands start, each with what the job gives it. A path is that from the folder that the command is in by then.

    A script that a command before has copied to where it is started is the one that was copied.
    """
    seen: set[object] = set()
    copied: dict[str, str] = {}
    user = outside.environment.user
    for one, told in found:
        if one.words[0] in _SAYS or (one.outer and one.outer[0].text in _SAYS):
            continue
        if one.words[0] in _COPIES:
            copied |= {os.path.basename(word): word for word in one.words if word.endswith(".py")}
            continue
        if not names_program(one.words) and not any(os.path.basename(word) in _RUN_FILES or beside(word) is Beside.SHELL for word in one.words):
            continue
        before, user.lacking = user.lacking, {}
        written = one.filled(None)
        lacking, user.lacking = user.lacking, before
        copies = [copied.get(os.path.basename(word), word) if word.endswith(".py") else word for word in written]
        places = dict.fromkeys(_places(one, path, folder))
        environment = of_command(one, outside.environment, folder, outside.pinned)
        shell = one.text.run.at(one.start).copy() if one.text.run is not None and one.words[0] in _INTO_THIS else None
        inner = _Outside(environment, shell, within=(*outside.within, path))
        targets = _of_files(written, places, name, inner, jobs.spot(one.place, name)) or _of_script((written, copies), places, environment)
        for target in targets:
            whole = replace(
                target,
                environment=target.environment.assuming(lacking),
                ranks=target.ranks or jobs.tasks(one),
                given=target.given.within(told or jobs.given(one, name)),
                place=target.place or (told.place if told is not None else None) or one.place,
            )
            sizes = (limit.size if limit is not None else None for limit in (whole.given.ram, whole.given.shm))
            apart = (whole.place,) if environment.user.hidden else ()
            key = (*apart, whole.path, whole.options, whole.ranks, whole.ranks_open, whole.launcher, _settings(whole), *sizes, whole.given.cores)
            if key not in seen:
                seen.add(key)
                yield whole


def _settings(target: BudgetTarget) -> tuple[object, ...]:
    """What tells its environment from that of another command."""
    found = target.environment
    return (tuple((name, one.text, one.unset) for name, one in sorted(found.settings.items())), found.opened, found.alone, found.by_system)


def _of_script(written: Sequence[list[str]], places: Iterable[str], environment: Environment) -> list[BudgetTarget]:
    """The script of Python that a command starts; none where it is not there."""
    if not names_program(written[0]):
        return []
    run = next((run for words in written for place in places if (run := command.of_words(words, place)) is not None), None)
    if run is None:
        return []
    return [_of_command(run, environment)]


def _of_files(words: list[str], places: Iterable[str], name: Named, outside: _Outside, by: str) -> list[BudgetTarget]:
    """What a command starts that runs a shell script, also behind variables and launchers; of one that is typed, all that such a file may be."""
    first = next((number for number, word in enumerate(words) if not _SETS.match(word)), 0)
    for number in range(first, len(words)):
        word = os.path.basename(words[number])
        if number > first and (word not in _SHELLS or word in _INTO_THIS):
            continue
        for place in places:
            asked = [word, *words[number + 1 :]] if word in _RUN_FILES else ["bash", *words[number:]]
            script = next((one for one in asked[1:] if os.path.isfile(os.path.join(place, one))), "")
            alone = beside(script) is Beside.SHELL and (asked[1] == script or word in _SHELLS)
            if alone or (outside.within == ("",) and word in _RUN_FILES - _SHELLS):
                with suppress(BudgetError):
                    found = _of_file(asked, place, name, outside, by)
                    if found:
                        return found
    return []


def _places(one: Command, path: str, folder: str) -> Iterator[str]:
    """The folders that a command may be in. Scripts start in the current folder, other files in theirs."""
    own = os.path.dirname(path)
    near = (own, os.path.dirname(own))
    return one.places((folder,) if not path else (folder, *near) if beside(path) is Beside.SHELL else (*near, folder))
