"""The words of a command as a file has them: each with its place, its quotes and its variables."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.beside_code import Beside, beside
from oomlint.finding import Edit, Place
from oomlint.model.command_texts import TOKEN, VARIABLE, CommandText, Number, Word, plain
from oomlint.patterns import pattern
from oomlint.rows import span_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.model.container_files import Service
    from oomlint.model.environments import Setting
    from oomlint.model.project import Project
    from oomlint.model.shell_runs import ShellState
    from oomlint.source import Source

_WHOLE_QUOTE: Final = pattern(r"(?:--?[\w-]+=)?(['\"])(.*)\1", re.DOTALL)
_DEFAULT: Final = pattern(r"\$\{(\w+):?[-=](\d+)\}")
_MOST_TURNS: Final = 8  # of a loop
_LONGEST_WAY: Final = 4  # from a variable to the one that it is set to
_PIPED: Final = pattern(r"[\"']?[ \t]*\|[ \t]*(\S+)")
_PRINTS: Final = frozenset({"echo", "printf", ":", "tee", "cat"})
_ENTERS: Final = pattern(
    r"""(?:^|[;&|({'"])[ \t]*(?:cd|pushd)[ \t]+(?:--[ \t]+)?
        (?:"((?:[^"$\n]|\$\([^()]*\)|\$)*)" | '([^'\n]*)' | ((?:\$\([^()\n]*\)|[^\s;&|()'"])+))
    |^[ \t]*(popd)\b""",
    re.MULTILINE | re.VERBOSE,
)
_WORKS_IN: Final = pattern(r"(?m)^[ \t]*WORKDIR[ \t]+(\S+)")
_MOVES: Final = pattern(r"""(?m)^[ \t]*(?:%cd|cd)[ \t]+["']?([^\s"']+)|\bos\.chdir\([ \t]*(?:["']([^"'\n]*)["'][ \t]*\)|(.))""")  # in a notebook
_CLOSED: Final = pattern(r"(?<!\$)\([^()]*\)")
_OF_FILE: Final = pattern(r"\$\(dirname[^()]*\)|\$\{(?:BASH_SOURCE|0)[^{}]*\}|\$\{\{[^{}]*\}\}")
_ARGUMENTS: Final = pattern(r"\$\{?([@*]|[1-9])\}?")
_LISTED: Final = pattern(r"\"?\$\{(\w+)\[[@*]\]\}\"?")
_OTHERWISE: Final = pattern(r"\$\{(\w+)(:?[-=+?])([^{}$]*)\}")
_WHOLE_NUMBER: Final = pattern(r"-?\d{1,18}")  # more digits say nothing, and Python reads only so many


class Command(Struct, frozen=True, eq=False, dict=True):
    """One command."""

    text: CommandText
    parts: tuple[Word, ...]
    service: Service | None = None  # that it belongs to
    outer: tuple[Word, ...] = ()  # the words in front of it, where it stands in quotes
    written: tuple[int, int] = (0, 0)  # its characters, where words of it are what variables are set to
    turn: tuple[int, ...] = ()  # of the loops that set variables of it

    @cached_property
    def words(self) -> list[str]:
        """The words as the program gets them, variables as they are written."""
        return [part.text for part in self.parts]

    @property
    def place(self) -> Place:
        """All of it."""
        return self.text.place(self.start, self.written[1] or self.parts[-1].end)

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.written[0] if self.written[1] else self.parts[0].start

    @property
    def run(self) -> object:
        """What tells its run from those of other commands, and of other turns."""
        return (self.place, *self.turn) if self.turn else self.place

    def spread(self) -> Iterator[Command]:
        """The command with the words that its variables are set to, once for each turn of the loops around it."""
        parts: list[list[tuple[Word, ...]]] = []
        for before, part in zip((None, *self.parts), self.parts, strict=False):
            named = VARIABLE.fullmatch(part.text) if part.text.startswith("$") else None
            turns = [one for one in self.text.turns.get(named[1] or named[3] or "", ()) if one.start < part.start] if named is not None else []
            # What a Dockerfile sets, whoever starts the container may set to something else.
            words = self.text.words_before(part) if beside(self.text.path) is not Beside.DOCKER else None
            if words is not None and len(words) > 1 and before is not None and before.text.startswith("-") and not words[0].text.startswith("-"):
                words = None  # one word is wanted there, as a rule
            parts.append([(one,) for one in turns] if 0 < len(turns) <= _MOST_TURNS else [tuple(words) if words is not None else (part,)])
        if all(len(ways) == 1 and ways[0] == (part,) for ways, part in zip(parts, self.parts, strict=True)):
            yield self
            return
        names = {part.text for part, ways in zip(self.parts, parts, strict=True) if len(ways) > 1}
        for number in range(max(map(len, parts)) if len(names) == 1 else 1):
            if len(names) > 1:
                chosen = [ways[0] if len(ways) == 1 else (part,) for part, ways in zip(self.parts, parts, strict=True)]
            else:
                chosen = [ways[number if len(ways) > 1 else 0] for ways in parts]
            found = tuple(word for words in chosen for word in words)
            if found:
                turn = (number,) if len(names) == 1 else ()
                yield replace(self, parts=found, written=(self.start, self.parts[-1].end), turn=turn)

    @property
    def prints(self) -> bool:
        """Whether it only prints what looks like a command."""
        first = (self.outer or self.parts)[0].text
        into = _PIPED.match(self.text.content, (self.written[1] or self.parts[-1].end))
        return first.lstrip("@-+") in _PRINTS and not (into is not None and os.path.basename(into[1]) not in _PRINTS)

    def places(self, bases: Sequence[str]) -> Iterator[str]:
        """The folders that it may be in, as its file goes into them from where that is started: one of the bases, the folder of the file among them.

        Of a folder that begins at the root, or with a variable, the end may be one of the project's.
        """
        parts = self.entered.replace("\\", "/").split("/")
        if self.starts_at_file:
            first = next(place for place in range(len(parts) + 1) if ")" not in (rest := "/".join(parts[place:])) and "}" not in rest)
            yield os.path.normpath(os.path.join(os.path.dirname(self.text.path), *parts[first:]))
            return
        unknown = max((place for place, part in enumerate(parts) if "$" in part or part == "~"), default=-1)
        if not os.path.isabs(self.entered) and unknown < 0:
            yield from (os.path.normpath(os.path.join(base, *parts)) for base in bases)
            return
        if unknown < 0:
            yield self.entered
        ends = [part for part in parts[unknown + 1 :] if part]
        for start in range(len(ends) + 1):
            yield from (os.path.normpath(os.path.join(base, *ends[start:])) for base in bases)

    @cached_property
    def entered(self) -> str:
        """The folder that the file goes into in front of the command, from the one in which it starts; empty where it stays."""
        kind, content, start = beside(self.text.path), self.text.content, self.start
        above = content[:start]
        if kind in {Beside.MAKE, Beside.DOCKER}:  # each row has a shell of its own
            row = max((match.end() for match in re.finditer(r"(?<!\\)\n", above)), default=0)
            found = [match[1] for match in _WORKS_IN.finditer(above)] if kind is Beside.DOCKER else []
            above = above[row:]
        else:
            found = [self.text.moved] if self.text.moved else []
        while (inner := _CLOSED.sub(lambda match: " " * len(match[0]), above)) != above:
            above = inner
        for match in _ENTERS.finditer(above):
            if match[4] or match[3] == "-":
                found = found[:-1]
            else:
                found.append(next(one for one in match.groups() if one is not None))
        return os.path.join("", *found)

    @cached_property
    def starts_at_file(self) -> bool:
        """Whether what ``entered`` says is counted from the folder of the file, wherever that is started."""
        return bool(_OF_FILE.match(self.entered))

    def filled(self, arguments: Sequence[str] | None) -> list[str]:
        """The words with what the file sets their variables to. ``arguments`` are those of the file, where they are known.

        What is not in quotes may become several words, or none. A variable that nobody knows stays as it is written.
        """
        found: list[str] = []
        for part in self.parts:
            written = self.text.content[part.start : part.end] if self.text.exact else part.text
            if "$" not in part.text or written.startswith("'") or "\\$" in written:
                found.append(part.text)
                continue
            if self._state is not None:
                arguments = self._state.arguments
            whole, listed = _ARGUMENTS.fullmatch(part.text), _LISTED.fullmatch(written)
            if whole is not None and whole[1] in "@*" and arguments is not None:
                found += arguments
                continue
            if listed is not None and self._state is not None and (all_of_it := self._state.lists.get(listed[1])) is not None:
                found += all_of_it
                continue
            text = self._substituted(part, arguments)
            found += [text] if '"' in written or "=" in written.partition("$")[0] else text.split()
        return found

    def _substituted(self, part: Word, arguments: Sequence[str] | None) -> str:
        text = part.text
        for _ in range(_LONGEST_WAY if "$$" not in text else 0):  # which is for a shell that is started yet
            before = text
            text = VARIABLE.sub(lambda match: self._value(match[1] or match[2] or match[3], part.start, match[0], arguments), text)
            text = _OTHERWISE.sub(lambda match: self._or_default(match, part.start, arguments), text)
            if text == before:
                break
        return text

    @cached_property
    def _state(self) -> ShellState | None:
        """The variables of the shell in front of the command, where it is known with which environment that is started."""
        return self.text.run.at(self.start) if self.text.run is not None else None

    def _value(self, name: str, index: int, written: str, arguments: Sequence[str] | None) -> str:
        if self._state is not None:
            return self._noted(name, self._state.variable(name), written) if not written.startswith("$(") else written
        if name.isdigit() and arguments is not None and 0 < int(name) <= len(arguments):
            return arguments[int(name) - 1]
        given = self.text.set_before(name, index) if name in self.text.assigned else self.text.told_by_job.get(name)
        if given is None and self.text.outer is not None:
            outer = self.text.make(name) if self.text.make is not None else self.text.outer.says(name)
            return self._noted(name, outer, written)
        return given.text if given is not None and not (written.startswith("$(") and beside(self.text.path) is not Beside.MAKE) else written

    def _noted(self, name: str, said: Setting, written: str) -> str:
        """What a variable is. Where that holds only unless the user's shell sets it, that shell keeps its name."""
        outer = self._state.inherited if self._state is not None else self.text.outer
        if said.assumed and outer is not None:
            outer.user.lacking[name] = None
        return said.text if said.text is not None else written

    def _or_default(self, match: re.Match[str], index: int, arguments: Sequence[str] | None) -> str:
        """What a variable with a default stands for: the default holds only where nothing sets the variable."""
        name, how, default = match.groups()
        if self._state is not None:
            return self._noted(name, self._state.copy().or_other(name, how, default), match[0])
        if how[-1] in "+?" or (self.text.outer is not None and self.text.outer.says(name).unknown):
            return match[0]
        found = self._value(name, index, match[0], arguments)
        given = self.text.assigned.get(name)
        if found == match[0] and (given.text == match[0] if given is not None else name not in self.text.assigned and not self.text.may_be_told(name)):
            return default
        return found

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
            named, default = VARIABLE.fullmatch(here.text), _DEFAULT.fullmatch(here.text)
            name = default[1] if default is not None else named[1] or named[2] or named[3] if named is not None else ""
            if name in self.text.assigned:
                given = self.text.set_before(name, here.start)
                if given is None:
                    return None
                if given.start != here.start:  # else it is set to its own value, or to a default
                    here = given
                    continue
            elif name in self.text.told_by_job:
                # What the job asks for is for more than this: the number is where it is used.
                return Number(int(self.text.told_by_job[name].text), self.text.place(word.start, word.end))
            elif self.text.may_be_told(name):
                return None
            return Number(int(default[2]), self.text.place(here.start, here.end)) if default is not None else None
        return None


def scanned(text: CommandText, start: int, end: int, service: Service | None = None, *, folded: bool = False) -> Iterator[Command]:
    """The commands between two characters. Quotes do not go on in the next row, so that one that is left open spoils no more. ``folded`` rows are one."""
    words: list[Word] = []
    for match in TOKEN.finditer(text.content, start, end):
        kind, written = match.lastgroup, match[0]
        if kind == "word":
            quoted = _WHOLE_QUOTE.fullmatch(written) if ".py" in written and " " in written else None
            if quoted is not None:  # as `bash -c "python train.py"` has it
                begin = next((word.end for word in words if os.path.basename(word.text) == "sbatch"), None)
                wrapped = begin is not None and (written.startswith("--wrap=") or words[-1].text == "--wrap")
                own = replace(text, submitted=(begin, match.start())) if begin is not None and wrapped else text
                inner = scanned(own, match.start() + quoted.start(2), match.start() + quoted.end(2), service)
                yield from (replace(one, outer=(*(() if wrapped else words), *one.outer)) for one in inner)
            words.append(Word(plain(written), match.start(), match.end()))
        elif kind == "end" and not (folded and written == "\n"):
            if words:
                yield Command(text, tuple(words), service)
            words = []
    if words:
        yield Command(text, tuple(words), service)


def command_in(path: str, cell: int, row: int, line: str, written: str, moved: str = "") -> list[Command]:
    """The commands of a line of a notebook; ``written`` is the row that it begins in, ``moved`` the folder that the notebook is in by then."""
    column = written.find(line)
    text = CommandText(path, line if column >= 0 else written, cell, row, max(0, column) + 1, exact=column >= 0, moved=moved)
    if column >= 0:
        return list(scanned(text, 0, len(line)))
    known = CommandText(path, line)  # continued rows are joined: where the words stand nobody knows
    return [Command(text, tuple(Word(part.text, 0, 0) for part in one.parts)) for one in scanned(known, 0, len(line))]


def commands_in(source: Source) -> list[Command]:
    """The commands that the cells of a notebook hand to a shell."""
    found: list[Command] = []
    for line in source.shell:
        above = [cell.source for cell in source.cells if cell.number < line.cell]
        above += ["".join(cell.source.splitlines(keepends=True)[: line.row - 1]) for cell in source.cells if cell.number == line.cell]
        moves = [match[1] or match[2] or ("" if match[3] is None else "$") for match in _MOVES.finditer("\n".join(above))]
        found += command_in(source.path, line.cell, line.row, line.text, source.line(line.row, line.cell), os.path.join("", *moves))
    return found


def number_edit(project: Project, place: Place, number: str) -> Edit | None:
    """The edit that puts another number in a file beside the code; ``None`` where what is written at the place is no plain number."""
    text = project.raw(place.path).decode("utf-8-sig", "replace")
    try:
        start, end = span_of(text, starts_of(text), place)
    except ValueError:
        return None
    written = re.fullmatch(r"(['\"]?)\d+\1", text[start:end]) if not place.cell else None
    known = CommandText(place.path, text)
    given = [*known.assigned.items(), *((name, word) for (_, name), word in known.of_targets.items())]
    given += ((name, word) for name, words in known.turns.items() for word in words)
    name = next((name for name, word in given if word is not None and word.start <= start < word.end), "")
    if name and len(re.findall(rf"\$[{{(]?{name}\b", text)) != 1:  # as others of the value's words, where it is one of several
        return None  # others may read it
    return Edit(place, f"{written[1]}{number}{written[1]}") if written is not None else None


def names_program(words: list[str]) -> bool:
    """Whether a command runs Python's code."""
    return "-m" in words or any(word.endswith(".py") for word in words)


def is_named(words: Iterable[str], script: str) -> bool:
    """Whether one of the words is the path of a script, by its name."""
    base = os.path.basename(script)
    return any(word == base or word.endswith(("/" + base, "\\" + base)) for word in words)
