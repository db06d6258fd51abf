"""Command lines as files beside the code hold them: shell scripts, Makefiles, Dockerfiles, compose files, the launches of an editor, cells of notebooks.

All become words with their places, so that one reader serves them all. What is broken gives no command.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oomlint.beside_code import Beside, beside
from oomlint.finding import Edit, Place
from oomlint.model import shell_scripts
from oomlint.rows import span_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.project import Project

_MOST_CHARACTERS: Final = 1_000_000  # who launches a training writes less
_MOST_OF_YAML: Final = 200_000  # it takes long to read
_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\r?\n)+)
    |(?P<end>[\n;&|()`])
    |(?P<comment>\#[^\n]*)
    |(?P<word>(?:\\[^\r\n]|'[^'\n]*'|"(?:\\.|[^"\\\n])*"|\$\([^()\n]*\)|\$\{[^{}\n]*\}|[^\s;&|()`'"\\]|['"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED: Final = re.compile(r"\\(.)|'([^'\n]*)'|\"((?:\\.|[^\"\\\n])*)\"", re.DOTALL)
_WHOLE_QUOTE: Final = re.compile(r"(?:--?[\w-]+=)?(['\"])(.*)\1", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")
_DEFAULT: Final = re.compile(r"\$\{(\w+):?-(\d+)\}")
_LONGEST_WAY: Final = 4  # from a variable to the one that it is set to
_CPUS_OF_TASK: Final = "SLURM_CPUS_PER_TASK"
_ASSIGNED: Final = re.compile(
    r"^[ \t]*(?:export[ \t]+|readonly[ \t]+|declare[ \t]+|local[ \t]+|ENV[ \t]+|ARG[ \t]+)?(\w+)[ \t]*[?:]{0,2}=[ \t]*([^\s;#]*)", re.MULTILINE
)
_STAGE: Final = re.compile(r"(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?", re.IGNORECASE)
_INSTRUCTION: Final = re.compile(r"^[ \t]*(FROM|CMD|ENTRYPOINT|RUN)[ \t]+((?:[^\n]*\\[ \t]*\r?\n)*[^\n]*)", re.MULTILINE | re.IGNORECASE)
_STRING: Final = re.compile(r'"((?:\\.|[^"\\\n])*)"')
_COMMENT: Final = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_NO_JSON: Final = re.compile(rf'("(?:\\.|[^"\\\n])*")|{_COMMENT}|,(?=(?>(?:\s|{_COMMENT})*)[\]}}])|\t', re.DOTALL)
_WHOLE_NUMBER: Final = re.compile(r"-?\d{1,18}")  # more digits say nothing, and Python reads only so many


class Word(NamedTuple):
    """A word of a command, as the program gets it, and the characters of the file that it is."""

    text: str
    start: int
    end: int


class Number(NamedTuple):
    """A whole number that a command line gives, and where the file writes it."""

    value: int
    place: Place


@dataclass(frozen=True, eq=False)
class Text:
    """A file with command lines, or a row of a notebook."""

    path: str
    content: str = field(repr=False)
    cell: int = 0
    row: int = 1  # that the first row of the content is
    column: int = 1
    exact: bool = True  # whether places are those of characters; else all are the whole

    @cached_property
    def _starts(self) -> list[int]:
        return starts_of(self.content)

    def place(self, start: int, end: int) -> Place:
        """The place of characters of the content."""
        if not self.exact:
            start, end = 0, len(self.content)
        (row, column), (end_row, end_column) = self._spot(start), self._spot(end)
        return Place(self.path, self.cell, row, column, end_row, end_column)

    def _spot(self, index: int) -> tuple[int, int]:
        row = bisect_right(self._starts, index)
        return self.row + row - 1, index - self._starts[row - 1] + (self.column if row == 1 else 1)

    @cached_property
    def assigned(self) -> dict[str, Word | None]:
        """Variables that the file sets, with what it sets them to; ``None`` where that happens more than once, or is not plain."""
        if self._is_script:
            return {name: Word(*given) if given is not None else None for name, given in shell_scripts.assigned(self.content).items()}
        found: dict[str, Word | None] = {}
        for match in _ASSIGNED.finditer(self.content):
            found[match[1]] = None if match[1] in found else Word(match[2].strip("\"'"), match.start(2), match.end(2))
        return found

    @cached_property
    def batch_processors(self) -> Word | None:
        """The processors of a task that a script asks SLURM for; ``None`` where it does not say so just once."""
        found = [given for name, given in self.batch_options if name in {"--cpus-per-task", "-c"}]
        return found[0] if len(found) == 1 and re.fullmatch(r"\d{1,9}", found[0].text) else None

    @cached_property
    def batch_options(self) -> tuple[tuple[str, Word], ...]:
        """The options that a script gives to SLURM."""
        return tuple((name, Word(*given)) for name, given in shell_scripts.batch_options(self.content)) if not self.cell else ()

    @property
    def _is_script(self) -> bool:
        return not self.cell and beside(self.path) is Beside.SHELL

    def set_before(self, name: str, index: int) -> Word | None:
        """What a variable is set to for a command at an index; ``None`` where that is not known."""
        given = self.assigned.get(name)
        return None if given is None or (self._is_script and given.start > index) else given


@dataclass(frozen=True, eq=False)
class Service:
    """A service of a compose file."""

    text: Text
    node: Any = field(repr=False)  # of YAML

    def place_of(self, node: Any) -> Place:
        """The place of a node; of a mapping, that of its first entry."""
        first, last = node.value[0] if entries(node) else (node, node)
        return self.text.place(first.start_mark.index, last.end_mark.index)

    @property
    def image(self) -> tuple[str, str] | None:
        """The Dockerfile that says what it starts, and the stage; ``None`` where it says so itself, or has no such file."""
        build = member(self.node, "build")
        if build is None or any(member(self.node, key) is not None for key in ("command", "entrypoint", "extends")):
            return None
        parts = [getattr(member(build, key), "value", "") for key in ("context", "dockerfile", "target")] if entries(build) else [build.value, "", ""]
        if not all(isinstance(part, str) for part in parts):
            return None
        context, name, target = parts
        return os.path.normpath(os.path.join(os.path.dirname(self.text.path), context, name or "Dockerfile")), target

    @property
    def sets_variables(self) -> bool:
        """Whether it sets variables for its program."""
        return any(member(self.node, key) is not None for key in ("environment", "env_file"))


@dataclass(frozen=True, eq=False)
class Command:
    """One command."""

    text: Text
    parts: tuple[Word, ...]
    service: Service | None = None  # that it belongs to
    outer: tuple[Word, ...] = ()  # the words in front of it, where it stands in quotes

    @cached_property
    def words(self) -> list[str]:
        """The words as the program gets them, variables as they are written."""
        return [part.text for part in self.parts]

    @property
    def place(self) -> Place:
        """All of it."""
        return self.text.place(self.parts[0].start, self.parts[-1].end)

    def place_of(self, number: int) -> Place:
        """One word."""
        return self.text.place(self.parts[number].start, self.parts[number].end)

    def number_at(self, number: int) -> Number | None:
        """The whole number that a word is, or that the file sets its variable to."""
        return self.number(self.parts[number]) if number < len(self.parts) else None

    def number_in(self, number: int) -> Number | None:
        """The whole number behind the ``=`` of a word."""
        return self.number(self.given_in(self.parts[number]))

    def given_in(self, word: Word) -> Word:
        """What stands behind the ``=`` of a word."""
        given = word.text.partition("=")[2]
        start = self.text.content.rfind(given, word.start, word.end)
        return Word(given, start, start + len(given)) if start >= 0 else word._replace(text=given)

    def number(self, word: Word) -> Number | None:
        """The whole number that a word is, or that the file sets its variable to. ``None`` where that is not known."""
        here = word
        for _ in range(_LONGEST_WAY):
            if _WHOLE_NUMBER.fullmatch(here.text):
                return Number(int(here.text), self.text.place(here.start, here.end))
            named, default = _VARIABLE.fullmatch(here.text), _DEFAULT.fullmatch(here.text)
            name = default[1] if default is not None else named[1] or named[2] or named[3] if named is not None else ""
            if name in self.text.assigned:
                given = self.text.set_before(name, here.start)
                if given is None:
                    return None
                if given.start != here.start:  # else it is set to its own value, or to a default
                    here = given
                    continue
            elif name == _CPUS_OF_TASK and self.text.batch_processors is not None:
                # What the job asks for is for more than this: the number is where it is used.
                return Number(int(self.text.batch_processors.text), self.text.place(word.start, word.end))
            return Number(int(default[2]), self.text.place(here.start, here.end)) if default is not None else None
        return None


@lru_cache(maxsize=256)  # an editor asks after each edit
def commands_of(path: str, content: str) -> tuple[Command, ...]:
    """The commands of a file that run Python."""
    if len(content) > _MOST_CHARACTERS or not (".py" in content or "-m" in content or "module" in content):
        return ()
    text, kind = Text(path, content), beside(path)
    if kind is Beside.DOCKER:
        found = _of_dockerfile(text)
    elif kind in {Beside.COMPOSE, Beside.EDITOR}:
        if len(content) > _MOST_OF_YAML:
            return ()
        try:
            found = list(_of_compose(text) if kind is Beside.COMPOSE else _of_editor(text))
        except Exception:  # noqa: BLE001 - a broken file is simply not known
            return ()
    else:
        found = list(_scanned(text, 0, len(content)))
    return tuple(one for one in found if _names_program(one.words))


def command_in(path: str, cell: int, row: int, line: str, written: str) -> list[Command]:
    """The commands of a line of a notebook; ``written`` is the row that it begins in."""
    column = written.find(line)
    text = Text(path, line if column >= 0 else written, cell, row, max(0, column) + 1, exact=column >= 0)
    if column >= 0:
        return list(_scanned(text, 0, len(line)))
    known = Text(path, line)  # continued rows are joined: where the words stand nobody knows
    return [Command(text, tuple(Word(part.text, 0, 0) for part in one.parts)) for one in _scanned(known, 0, len(line))]


def _names_program(words: list[str]) -> bool:
    return "-m" in words or any(word.endswith(".py") for word in words)


def number_edit(project: Project, place: Place, number: str) -> Edit | None:
    """The edit that puts another number in a file beside the code; ``None`` where what is written at the place is no plain number."""
    text = project.raw(place.path).decode("utf-8-sig", "replace")
    try:
        start, end = span_of(text, starts_of(text), place)
    except ValueError:
        return None
    written = re.fullmatch(r"(['\"]?)\d+\1", text[start:end]) if not place.cell else None
    name = next((name for name, word in Text(place.path, text).assigned.items() if word is not None and word.start == start), "")
    if name and len(re.findall(rf"\$[{{(]?{name}\b", text)) != 1:
        return None  # others may read it
    return Edit(place, f"{written[1]}{number}{written[1]}") if written is not None else None


# -- the shell's words ---------------------------------------------------------------------------------------------------


def _scanned(text: Text, start: int, end: int, service: Service | None = None, *, folded: bool = False) -> Iterator[Command]:
    """The commands between two characters. Quotes do not go on in the next row, so that one that is left open spoils no more. ``folded`` rows are one."""
    words: list[Word] = []
    for match in _TOKEN.finditer(text.content, start, end):
        kind, written = match.lastgroup, match[0]
        if kind == "word":
            quoted = _WHOLE_QUOTE.fullmatch(written) if ".py" in written and " " in written else None
            if quoted is not None:  # as `bash -c "python train.py"` has it
                inner = _scanned(text, match.start() + quoted.start(2), match.start() + quoted.end(2), service)
                yield from (replace(one, outer=(*words, *one.outer)) for one in inner)
            words.append(Word(_plain(written), match.start(), match.end()))
        elif kind == "end" and not (folded and written == "\n"):
            if words:
                yield Command(text, tuple(words), service)
            words = []
    if words:
        yield Command(text, tuple(words), service)


def _plain(written: str) -> str:
    """A word without its quotes."""
    if not any(mark in written for mark in "\\'\""):
        return written
    return _QUOTED.sub(lambda match: next((part for part in match.groups() if part is not None), ""), written)


# -- Docker ----------------------------------------------------------------------------------------------------------------


def _of_dockerfile(text: Text) -> list[Command]:
    """``CMD``, ``ENTRYPOINT`` and ``RUN``; the words of a ``CMD`` follow those of the entry point of its stage."""
    return [command for stage in _stages(text) for command in (*stage.commands, *stage.whole)]


@dataclass(slots=True)
class _Stage:
    """A stage of a Dockerfile."""

    name: str = ""
    base: str = ""
    commands: list[Command] = field(default_factory=list)  # as each instruction has them
    entry: list[Command] = field(default_factory=list)
    default: list[Command] = field(default_factory=list)  # what `CMD` says
    shell: bool = False  # whether the entry point is a text for a shell, which takes no more words

    @property
    def whole(self) -> list[Command]:
        """The entry point with the words of ``CMD``."""
        if self.shell or not self.entry or not self.default:
            return []
        return [Command(self.entry[0].text, (*self.entry[0].parts, *self.default[-1].parts))]

    @property
    def starts(self) -> list[Command]:
        """The commands that a container of this stage starts; nothing where the stage says none."""
        return self.whole or self.entry or self.default


def _stages(text: Text) -> list[_Stage]:
    found = [_Stage()]
    for match in _INSTRUCTION.finditer(text.content):
        name, start, end = match[1].upper(), match.start(2), match.end(2)
        if name == "FROM":
            said = _STAGE.match(match[2])
            found.append(_Stage(said[2] or "", said[1]) if said is not None else _Stage())
            continue
        stage = found[-1]
        listed = match[2].lstrip().startswith("[")
        if listed:
            words = tuple(Word(one[1], one.start(1), one.end(1)) for one in _STRING.finditer(text.content, start, end))
            inner = [command for word in words if " " in word.text for command in _scanned(text, word.start, word.end)]
            own = [*([Command(text, words)] if words else []), *inner]
        else:
            own = list(_scanned(text, start, end))
        stage.commands += own
        if name == "ENTRYPOINT":
            stage.entry, stage.shell = own, not listed
        elif name == "CMD":
            stage.default = own
    return found


def started_by_image(path: str, content: str, target: str = "") -> list[Command]:
    """The commands of a Dockerfile that a container of its last stage, or of the one that is named, starts with."""
    stages = _stages(Text(path, content))
    stage = next((one for one in stages if one.name.lower() == target.lower()), None) if target else stages[-1]
    for _ in stages:
        if stage is None or stage.starts:
            break
        stage = next((one for one in stages if one.name and one.name.lower() == stage.base.lower()), None)
    return [one for one in stage.starts if _names_program(one.words)] if stage is not None else []


# -- files of YAML and JSON --------------------------------------------------------------------------------------------------


def services_of(path: str, content: str) -> list[Service]:
    """The services of a compose file; none where it is broken."""
    if len(content) > _MOST_OF_YAML:
        return []
    try:
        return _services(Text(path, content))
    except Exception:  # noqa: BLE001 - a broken file is simply not known
        return []


def _services(text: Text) -> list[Service]:
    import yaml  # noqa: PLC0415 - most runs meet no such file

    return [Service(text, node) for _, node in entries(member(yaml.compose(text.content, Loader=yaml.SafeLoader), "services"))]


def _of_compose(text: Text) -> Iterator[Command]:
    """``command`` and ``entrypoint`` of each service."""
    import yaml  # noqa: PLC0415

    for service in _services(text):
        parts = [word for key in ("entrypoint", "command") for word in _listed(text, member(service.node, key))]
        if parts:
            yield Command(text, tuple(parts), service)
        for key in ("entrypoint", "command"):
            node = member(service.node, key)
            for scalar in node.value if isinstance(node, yaml.SequenceNode) else [node]:
                if isinstance(scalar, yaml.ScalarNode) and (" " in scalar.value or "\n" in scalar.value):
                    start, end = _inner(text, scalar)
                    yield from _scanned(text, start, end, service, folded=scalar.style != "|")


def _listed(text: Text, node: Any) -> Iterator[Word]:
    """The words of a list of strings."""
    import yaml  # noqa: PLC0415

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            if isinstance(item, yaml.ScalarNode):
                yield Word(item.value, *_inner(text, item))


def _inner(text: Text, node: Any) -> tuple[int, int]:
    """The characters of a scalar without its quotes, or without the row that begins a block."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in {"'", '"'}:
        return start + 1, end - 1
    return (text.content.find("\n", start) + 1 if node.style in {"|", ">"} else start), end


def _of_editor(text: Text) -> Iterator[Command]:
    """The configurations of ``launch.json``, which is JSON with comments."""
    import yaml  # noqa: PLC0415

    plain = _NO_JSON.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text.content)
    for one in getattr(member(yaml.compose(plain, Loader=yaml.SafeLoader), "configurations"), "value", ()):
        program, module, args = (member(one, key) for key in ("program", "module", "args"))
        head: list[Word] = []
        if isinstance(program, yaml.ScalarNode):
            head = [Word(program.value, *_inner(text, program))]
        elif isinstance(module, yaml.ScalarNode):
            head = [Word("-m", *_inner(text, module)), Word(module.value, *_inner(text, module))]
        given = [*_listed(text, args)]
        if isinstance(args, yaml.ScalarNode):
            given = [word for command in _scanned(text, *_inner(text, args)) for word in command.parts]
        if head:
            yield Command(text, (*head, *given))


def entries(node: Any) -> list[tuple[str, Any]]:
    """The keys of a node of YAML, with theirs."""
    import yaml  # noqa: PLC0415

    return [(str(key.value), value) for key, value in node.value] if isinstance(node, yaml.MappingNode) else []


def member(node: Any, name: str, deepest: int = 4) -> Any:
    """What stands at a key of a node of YAML, or of one that is merged into it; ``None`` where there is no such key."""
    own = entries(node)
    merged = (value for key, value in own if key == "<<" and deepest)
    bases = (base for value in merged for base in ([value] if entries(value) else value.value))
    return next((value for key, value in own if key == name), None) or next((found for base in bases if (found := member(base, name, deepest - 1))), None)


def documents(content: str) -> list[Any]:
    """The nodes of the documents in a file of YAML; none where it is broken."""
    import yaml  # noqa: PLC0415

    try:
        return list(yaml.compose_all(content, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return []


def is_named(words: Iterable[str], script: str) -> bool:
    """Whether one of the words is the path of a script, by its name."""
    base = os.path.basename(script)
    return any(word == base or word.endswith(("/" + base, "\\" + base)) for word in words)
