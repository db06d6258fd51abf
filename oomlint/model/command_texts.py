"""The text that commands stand in: where its characters are, what its variables are set to, and what it asks a batch system for."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from oomlint.beside_code import Beside, beside
from oomlint.finding import Place
from oomlint.model import shell_scripts
from oomlint.patterns import pattern
from oomlint.rows import starts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.environments import Environment, Setting
    from oomlint.model.shell_runs import ShellRun

TOKEN: Final = pattern(
    r"""(?P<blank>(?:[ \t\r]|\\\r?\n)+)
    |(?P<end>[\n;&|()`])
    |(?P<comment>\#[^\n]*)
    |(?P<word>(?:\\[^\r\n]|'[^'\n]*'|"(?:\\.|[^"\\\n])*"|\$\([^()\n]*\)|\$\{[^{}\n]*\}|[^\s;&|()`'"\\]|['"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED: Final = pattern(r"\\(.)|'([^'\n]*)'|\"((?:\\.|[^\"\\\n])*)\"", re.DOTALL)
VARIABLE: Final = pattern(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")
_ASSIGNED: Final = pattern(
    r"^[ \t]*(?:export[ \t]+|readonly[ \t]+|declare[ \t]+|local[ \t]+|ENV[ \t]+|ARG[ \t]+)?(\w+)[ \t]*[?:]{0,2}=[ \t]*([^\s;#]*)", re.MULTILINE
)
_BY_MAKE: Final = r"(?:(?:export|override|private)[ ]+)*(\w+)[ \t]*[?:]{0,3}=[ \t]*((?:[^\\\n#]|\\\n)*?)[ \t]*(?=\r?$|#)"
_ASSIGNED_BY_MAKE: Final = pattern(rf"^[ ]*{_BY_MAKE}", re.MULTILINE)
_RULE: Final = pattern(r"^([^\s#:=][^#:=\n]*):(?!=)", re.MULTILINE)
_ASSIGNED_FOR_TARGET: Final = pattern(rf"^([^\s#:=][^#:=\n]*):[ \t]*{_BY_MAKE}", re.MULTILINE)
TOLD_BY_JOB: Final = {  # the variables that SLURM sets by an option, where the job gives that
    "SLURM_CPUS_PER_TASK": ("--cpus-per-task", "-c"),
    "SLURM_NTASKS": ("--ntasks", "-n"),
    "SLURM_NPROCS": ("--ntasks", "-n"),
    "SLURM_NTASKS_PER_NODE": ("--ntasks-per-node",),
}
_ARRAY: Final = pattern(r"\"?\$\{(\w+)\[[@*]\]\}\"?")


class Word(NamedTuple):
    """A word of a command, as the program gets it, and the characters of the file that it is."""

    text: str
    start: int
    end: int


class Number(NamedTuple):
    """A whole number that a command line gives, and where the file writes it."""

    value: int
    place: Place


class CommandText(Struct, frozen=True, eq=False, dict=True):
    """A file with command lines, or a row of a notebook."""

    path: str
    content: str
    cell: int = 0
    row: int = 1  # that the first row of the content is
    column: int = 1
    exact: bool = True  # whether places are those of characters; else all are the whole
    moved: str = ""  # the folder that a notebook goes into in front of the row
    submitted: tuple[int, int] | None = None  # the characters of the options with which a line hands the command to SLURM
    outer: Environment | None = None  # that the file is started with, where somebody asks for it
    run: ShellRun | None = None  # of a script of a shell, where the environment is known that it is started with
    make: Callable[[str], Setting] | None = None  # what variables of a Makefile stand for, by the same

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
        for match in (_ASSIGNED_BY_MAKE if self._is_makefile else _ASSIGNED).finditer(self.content):
            found[match[1]] = None if match[1] in found else Word(match[2].strip("\"'"), match.start(2), match.end(2))
        return found

    @cached_property
    def of_targets(self) -> dict[tuple[str, str], Word | None]:
        """The same of what a Makefile sets for one target alone, by the target and the name."""
        found: dict[tuple[str, str], Word | None] = {}
        for match in _ASSIGNED_FOR_TARGET.finditer(self.content) if self._is_makefile else ():
            for target in match[1].split():
                key = (target, match[2])
                found[key] = None if key in found else Word(match[3], match.start(3), match.end(3))
        return found

    @cached_property
    def turns(self) -> dict[str, list[Word]]:
        """Variables that a loop over words sets, with these words."""
        return {name: [Word(*one) for one in found] for name, found in shell_scripts.loops(self.content).items()} if self._is_script else {}

    @property
    def batch_processors(self) -> Word | None:
        """The processors of a task that a script asks SLURM for; ``None`` where it does not say so just once."""
        return self.told_by_job.get("SLURM_CPUS_PER_TASK")

    @cached_property
    def told_by_job(self) -> dict[str, Word]:
        """The variables that SLURM sets to a number that the script asks it for, just once."""
        found = {name: [given for option, given in self.batch_options if option in options] for name, options in TOLD_BY_JOB.items()}
        return {name: given[0] for name, given in found.items() if len(given) == 1 and re.fullmatch(r"\d{1,9}", given[0].text)}

    def may_be_told(self, name: str) -> bool:
        """Whether SLURM may set a variable to what nobody knows: it does so with most of its own, and with some only where the job gives an option."""
        options = TOLD_BY_JOB.get(name)
        if not self.batch_options or not name.startswith("SLURM_"):
            return False
        return options is None or any(option in options for option, _ in self.batch_options)

    @cached_property
    def batch_options(self) -> tuple[tuple[str, Word], ...]:
        """The options that a script gives to SLURM."""
        if self.submitted is not None:
            return tuple((name, Word(*given)) for name, given in shell_scripts.options(self.content, *self.submitted))
        return tuple((name, Word(*given)) for name, given in shell_scripts.batch_options(self.content)) if not self.cell else ()

    @property
    def _is_makefile(self) -> bool:
        return not self.cell and beside(self.path) is Beside.MAKE

    @property
    def _is_script(self) -> bool:
        return not self.cell and beside(self.path) is Beside.SHELL

    def set_before(self, name: str, index: int) -> Word | None:
        """What a variable is set to for a command at an index; ``None`` where that is not known."""
        if self._is_makefile:
            rules = [match[1].split() for match in _RULE.finditer(self.content, 0, index)]
            own = [given for key, given in self.of_targets.items() if key[1] == name and rules and key[0] in rules[-1]]
            if own:
                return own[0]
        given = self.assigned.get(name)
        if given is None or (self._is_script and (given.start > index or given.text.startswith("("))):
            return None
        said = self.run.at(index).variable(name) if self.run is not None else self.make(name) if self.make is not None else None
        return given if said is None or said.text == given.text or (said.text is not None and "$" in given.text) else None

    def words_before(self, part: Word) -> list[Word] | None:
        """The words that a shell or ``make`` makes of one that is a variable as a whole; ``None`` where it is none, or they are not known."""
        written = self.content[part.start : part.end] if self.exact else ""
        array, named = _ARRAY.fullmatch(written), VARIABLE.fullmatch(written)
        if array is not None:
            given = self.assigned.get(array[1])
            given = given if given is not None and given.start < part.start and given.text.startswith("(") else None
            if self.run is not None and self.run.at(part.start).lists.get(array[1]) is None:
                return None
        elif named is not None and (named[2] is None) is not self._is_makefile:
            given = self.set_before(named[1] or named[2] or named[3], part.start)
        else:
            return None
        if given is None:
            return None
        start, end = given.start, given.end
        if self.content[start : start + 1] in {"(", '"', "'"}:
            start, end = start + 1, end - 1
        found = []
        for match in TOKEN.finditer(self.content, start, end):
            if match.lastgroup == "word":
                found.append(Word(plain(match[0]), *match.span()))
            elif match.lastgroup != "blank" and not (array is not None and (match[0] == "\n" or match.lastgroup == "comment")):
                return None
        return found


def plain(written: str) -> str:
    """A word without its quotes."""
    if not any(mark in written for mark in "\\'\""):
        return written
    return _QUOTED.sub(lambda match: next((part for part in match.groups() if part is not None), ""), written)
