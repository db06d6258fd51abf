"""Launches: the values that command lines give to a script's options, those of files beside the code, of notebooks and of other scripts of the project."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Literal

import libcst as cst
from msgspec.structs import replace

from oomlint.beside_code import Beside, beside
from oomlint.model.command_lines import commands_of
from oomlint.model.commands import commands_in, is_named
from oomlint.model.container_files import services_of, started_by_image
from oomlint.model.given_command import DeclaredOption, constant_of, is_known, read
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.values import Alternative, Const, ProvenanceStep, Unknown, picked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Place
    from oomlint.model.commands import Command
    from oomlint.model.container_files import Service
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project

_MOST_LAUNCHES = 8
_MOST_DEFAULTS = 4  # command lines that leave an option out, beside some that do not
_Given = tuple[int | str, str, "Place"]  # a value, how it is written behind the option, and where
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")  # more digits say nothing, and Python reads only so many


# What starts a script in several processes, and the options that say in how many.
_LAUNCHERS = frozenset({"torchrun", "torch.distributed.launch", "torch.distributed.run", "accelerate", "deepspeed"})
_MPI = frozenset({"mpirun", "mpiexec", "horovodrun"})
_RANK = re.compile(r"(--)?\w*rank\b", re.IGNORECASE)
_SETTINGS = re.compile(r"[\w./-]+\.(?:ya?ml|json)")
_MPI_COUNTS = re.compile(r"--?(n|np|num-proc)")
_COUNTS = re.compile(r"--(nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|ntasks[_-]per[_-]node)")


class Launches:
    """Finds the command lines that call a script."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator
        self._lines: AnswerMemory[str, list[Command]] = AnswerMemory(project.readings)
        self._starting: AnswerMemory[str, list[Command]] = AnswerMemory(project.readings)
        self._built: AnswerMemory[str, list[tuple[Place, Service]]] = AnswerMemory(project.readings)  # what services start whose image says it

    def values(self, flags: list[str], script: Module, key: object, step: ProvenanceStep, defaults: list[Alternative]) -> list[Alternative]:
        """What an option of this script is by default, and what command lines of the project give it."""
        found = self._launched(flags, script, key, step, defaults, _known)
        return [*found, *self._by_python({flag for flag in flags if flag.startswith("-")}, os.path.basename(script.path), script, key, step)[:_MOST_LAUNCHES]]

    def switched(self, flags: list[str], script: Module, key: object, step: ProvenanceStep, defaults: list[Alternative], *, given: bool) -> list[Alternative]:
        """The same of an option without a value, which is ``given`` where a command line has it."""
        return self._launched(flags, script, key, step, defaults, lambda command, number, equals: (given, "", command.place_of(number)))  # noqa: ARG005

    def _launched(
        self,
        flags: list[str],
        script: Module,
        key: object,
        step: ProvenanceStep,
        defaults: list[Alternative],
        read: Callable[[Command, int, bool], _Given | None],
    ) -> list[Alternative]:
        """One command line has started a run: what it gives to one option goes with what it gives to others, and with the defaults of those it leaves out."""
        spelt, run = {flag for flag in flags if flag.startswith("-")}, ("launch", script.path)
        found: list[Alternative] = []
        unknown: list[Alternative] = []
        others: list[Command] = []
        for command in self.of_script(script)[:_MOST_LAUNCHES]:
            named = [number for number, word in enumerate(command.words) if word.partition("=")[0] in spelt]
            given = read(command, named[-1], "=" in command.words[named[-1]]) if named else None  # the last one counts
            if given is not None:
                value, text, place = given
                at = ProvenanceStep(None, None, f"launched with `{command.words[named[-1]].partition('=')[0]}{text}`", place, kind="shell")
                alt = Alternative(Const(value), (at, step), frozenset({(run, command.run)}))
                found.append(picked(alt, key, ("launch", command.run)))
            elif named:
                alt = Alternative(Unknown(f"`{command.words[named[-1]]}` of a command line"), (step,), frozenset({(run, command.run)}), reach=True)
                unknown.append(picked(alt, key, ("launch", command.run)))
            else:
                others.append(command)
        if not found and not unknown:
            return defaults
        apart = [picked(alt, run, command.run) for command in others[:_MOST_DEFAULTS] for alt in defaults]
        return [*(picked(alt, run, None) for alt in defaults), *found, *apart, *unknown]

    def of_script(self, script: Module) -> list[Command]:
        """The command lines of the project that start a script."""
        known = self._starting.get(script.path)
        if known is None:
            found = self.commands(script)
            known = [one for one in found if self._starts(one, script)]
            self._starting[script.path] = known
        return known

    def commanded(self, flags: list[str], key: object, step: ProvenanceStep) -> list[Alternative] | None:
        """What the command that is asked about gives to an option: nothing where it leaves it out; ``None`` where no command is asked about."""
        asked = self.project.command
        if asked is None:
            return None
        found = read(asked.words, [DeclaredOption("", frozenset(flags), "?")])
        words = found.given.get("")
        if words is None:
            return [Alternative(Unknown(f"`{flags[0]}` of the command"), (step,))] if found.opened else []
        text = "".join(words) or "True"
        at = asked.gives(f"{flags[0]} {text}")
        value = Const(constant_of(text)) if is_known(text) else Unknown(text)
        return [picked(Alternative(value, (at, step)), key, "command")]

    def _by_python(self, spelt: set[str], base: str, script: Module, key: object, step: ProvenanceStep) -> list[Alternative]:
        """Values that another script of the project puts behind the option in a list of arguments."""
        found: list[Alternative] = []
        longest = max(spelt, key=len, default="")
        if not longest.startswith("--"):
            return found
        for flag in sorted(f for f in spelt if f.startswith("--")):
            for module in self.project.mentioning([flag.encode(), os.fsencode(base)], script.path):
                if module is script:
                    continue
                for node in module.walk.root.nodes():
                    if not isinstance(node, cst.List):
                        continue
                    elements = [e.value for e in node.elements]
                    for number, element in enumerate(elements[:-1]):
                        if isinstance(element, cst.SimpleString) and element.evaluated_value == flag:
                            found.extend(self._passed_on(module, elements[number + 1], flag, key, step))
        return found

    def _passed_on(self, module: Module, node: cst.BaseExpression, flag: str, key: object, step: ProvenanceStep) -> list[Alternative]:
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(node))
        found: list[Alternative] = []
        seen: set[str] = set()
        for alt in self.evaluator.values(node, frame):
            text = str(alt.const) if isinstance(alt.value, Const) else ""
            if _WHOLE_NUMBER.fullmatch(text) and text not in seen:
                seen.add(text)
                at = ProvenanceStep(module, node, f"launched with `{flag} {text}`", kind="shell")
                picks = (key, ("launch", module.path, text))
                found.append(picked(Alternative(Const(int(text)), (at, *alt.story, step), reach=True), *picks))
        return found

    def processes(self, script: Module) -> list[tuple[int | None, Place]]:
        """How many processes on a machine the command lines of the project start the script in; ``None`` where they leave that open."""
        base = os.path.basename(script.path)
        found = []
        for command in (*self.of_script(script), *(one for one in self._told() if self._starts(one, script))):
            count = processes_of(command.filled(None), base)
            if count is not False:
                found.append((count, command.place))
        return found

    def by_itself(self, script: Module) -> bool:
        """Whether there are command lines that start the script, and none of them, nor a page of the project, has a launcher or gives it a rank."""
        commands = self.of_script(script)
        words = {word for command in commands for word in command.words}
        started = words | {os.path.basename(word) for word in words}
        launched = bool(started & (_LAUNCHERS | _MPI | {"srun"})) or any(_RANK.match(word) for word in words)
        return bool(commands) and not launched and not any(self._starts(one, script) for one in self._told())

    def starts(self, script: Module) -> Iterator[tuple[Command, int]]:
        """The command lines of files beside the code that start the script, and in how many processes on a machine each task of theirs does."""
        for command in self.of_script(script):
            if command.turn:
                continue  # one of several, and nobody knows which
            named = next((word for word in command.words if is_named([word], script.path)), "")
            if named and not script.path.endswith(os.sep + os.sep.join(part for part in _plain_parts(named) if part != os.pardir)):
                continue  # a script of that name somewhere else
            yield command, _ranks(command, script.path)
            for service in self._services_of(command):
                yield replace(command, service=service), _ranks(command, script.path)

    def _services_of(self, command: Command) -> list[Service]:
        """The services of compose files that start a command of a Dockerfile: they are built from it, and say nothing else."""
        if beside(command.text.path) is not Beside.DOCKER:
            return []
        known = self._built.get("")
        if known is None:
            known = self._built[""] = list(self._images())
        # What a service sets, the variables of the image are not.
        return [one for place, one in known if place == command.place and not (one.sets_variables and any("$" in word for word in command.words))]

    def _images(self) -> Iterator[tuple[Place, Service]]:
        """What each service starts whose image says it."""
        files = self.project.launch_files()
        for path in files:
            if beside(path) is not Beside.COMPOSE:
                continue
            for service in services_of(path, self._content(path)):
                image = service.image
                if image is not None and image[0] in files:
                    yield from ((one.place, service) for one in started_by_image(image[0], self._content(image[0]), image[1]))

    def _content(self, path: str) -> str:
        return self.project.raw(path).decode("utf-8-sig", "replace")

    def _starts(self, command: Command, script: Module) -> bool:
        """Whether a command line starts the script."""
        return any(is_named([word], script.path) and self._means(word, script, command) for word in command.words) or _runs_module(
            command.words, script, self.project
        )

    def _means(self, word: str, script: Module, command: Command) -> bool:
        """Whether a path in a command line is that of the script, which may not be the only one of its name.

        It is what the path leads to from the folder that the line was preceded by a ``cd`` to, from that of its file, or from one above. A path that
        leads to no file means the one whose end is written so, if there is just one.
        """
        programs = self.project.search(_programs, (os.path.basename(script.path),), script.path)
        parts = _plain_parts(word)
        alike: list[str] = []
        while parts and not alike:
            tail = os.sep + os.sep.join(part for part in parts if part != os.pardir)
            alike = [path for path in programs if path.endswith(tail)]
            if not alike:
                parts = parts[1:]
        if len(alike) < 2 or script.path not in alike:  # noqa: PLR2004 - itself
            return script.path in alike
        bases = [os.path.dirname(command.text.path)]
        while bases[-1] not in {self.project.top, os.path.dirname(bases[-1])}:
            bases.append(os.path.dirname(bases[-1]))
        paths = (os.path.normpath(os.path.join(folder, *parts)) for folder in (*command.places(bases), *bases))
        return next((path == script.path for path in paths if path in alike), False)

    def _told(self) -> list[Command]:
        """Command lines with a launcher that the project's own pages show."""
        known = self._lines.get("pages")
        if known is None:
            known = []
            for path in sorted(self._pages()):
                self.project.readings.read(path)
                text = self.project.raw(path).decode("utf-8", "replace")
                known.extend(command for command in commands_of(path, text) if any(word in _LAUNCHERS for word in command.words))
            self._lines["pages"] = known
        return known

    def _pages(self) -> list[str]:
        try:
            return [os.path.join(self.project.top, name) for name in os.listdir(self.project.top) if name.lower().startswith("readme") and name.endswith(".md")]
        except OSError:
            return []

    def commands(self, script: Module) -> list[Command]:
        """Command lines of files beside the code, and of notebooks."""
        notebooks = self.project.search(_notebooks, (), script.path)
        known = self._lines.get("")
        if known is None:
            known = []
            for path in self.project.launch_files():
                known.extend(commands_of(path, self._content(path)))
            for path in notebooks:
                module = self.project.find(path)
                if module is not None:
                    known.extend(commands_in(module.source))
            self._lines[""] = known
        return known


def _known(command: Command, number: int, equals: bool) -> _Given | None:  # noqa: FBT001 - as they are read
    """The whole number that a command line gives to the option in a word, or the settings file that it names."""
    given = command.number_in(number) if equals else command.number_at(number + 1)
    if given is not None:
        return given.value, f" {given.value}", given.place
    text = command.words[number].partition("=")[2] if equals else command.words[number + 1] if number + 1 < len(command.words) else ""
    return (text, f" {text}", command.place_of(number)) if _SETTINGS.fullmatch(text) else None


@finder
def _programs(path: str, data: bytes, base: str) -> str:
    del data
    return FOUND if os.path.basename(path) == base else ""


def _plain_parts(path: str) -> list[str]:
    """The parts of a path that are known: what a variable stands for is left out."""
    return [part for part in re.split(r"[/\\]", re.sub(r"\$\([^()]*\)|\$\{[^{}]*\}", "$", path)) if part not in {"", "."} and "$" not in part]


@finder
def _notebooks(path: str, data: bytes) -> str:
    """A notebook that may run a script, by its content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest() if path.endswith(".ipynb") and b".py" in data else ""


def processes_of(words: list[str], base: str) -> int | Literal[False] | None:
    """How many processes a command line starts a script in. ``False`` where no launcher stands before it, or nothing says that there are several."""
    end = next((n for n, word in enumerate(words) if word == base or word.endswith("/" + base)), len(words))
    before = words[:end]
    launcher = next((base for base in map(os.path.basename, before) if base in _LAUNCHERS | _MPI or base == "srun"), "")
    if not launcher:
        return False
    counts = _MPI_COUNTS if launcher in _MPI else _COUNTS
    for number, word in enumerate(before):
        flag, equals, given = word.partition("=")
        if counts.fullmatch(flag):
            text = given if equals else (before[number + 1] if number + 1 < len(before) else "")
            return int(text) if _WHOLE_NUMBER.fullmatch(text) and int(text) > 0 else None
    several = launcher == "deepspeed" or (launcher == "accelerate" and "--multi_gpu" in before)
    return None if several else False


def _ranks(command: Command, script: str) -> int:
    """How many processes a launcher starts the script in; 1 where there is none, or where it leaves that open."""
    words = command.words
    if not any(os.path.basename(word) in _LAUNCHERS for word in words):
        return 1
    for number, word in enumerate(words):
        if is_named([word], script):
            break
        flag, equals, _ = word.partition("=")
        if _COUNTS.fullmatch(flag) and not flag.startswith("--ntasks"):
            given = command.number_in(number) if equals else command.number_at(number + 1)
            return max(1, given.value) if given is not None else 1
    return 1


def _runs_module(words: list[str], script: Module, project: Project) -> bool:
    if "-m" not in words or words.index("-m") + 1 >= len(words):
        return False
    dotted = words[words.index("-m") + 1]
    relative = os.path.relpath(script.path, project.root)
    module = re.sub(r"(/__main__|/__init__)?\.py$", "", relative).replace(os.sep, ".")
    return module == dotted or module.endswith("." + dotted)
