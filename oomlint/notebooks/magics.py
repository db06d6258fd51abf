"""IPython's own syntax in a cell: magics, shell commands and help are masked row by row, so that what is left parses as Python."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from oomlint.patterns import pattern
from oomlint.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_PYTHON_CELL_MAGICS = frozenset({"capture", "prun", "python", "python3", "time", "timeit"})
_SHELL_CELL_MAGICS = frozenset({"!", "bash", "sh", "shell", "sx", "system", "script bash", "script sh"})
_SHELL_LINE_MAGICS = frozenset({"sx", "system"})  # the long names of `!!` and `!`
# Magics and aliases that IPython runs without their `%` where they are all of a cell and no variable has the name.
_AUTOMATIC_MAGICS = frozenset(
    "alias bookmark cat cd conda config cp debug edit env gui history ldir less lf lk ll load loadpy ls lx magic man mamba matplotlib micromamba mkdir more mv "
    "notebook pdb pinfo pip precision prun psearch pwd pylab recall rehashx reload_ext rerun reset rm rmdir run save sc set_env store sx system tb time "
    "timeit uv who whos xdel xmode".split()
)
_AUTOMATIC = pattern(r"([a-z_]+)[ \t]+[^\s!=()<>,+*/%^&|].*(?:\r?\n|\r)?")  # what an operator follows is Python for IPython, too
_FIRST_INDENT = pattern(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*([ \t]+)[^\s#]")
_MASKABLE = pattern(r"(?:^|[\r\n])[ \t]*[%!?,;/]|=[ \t]*[%!]|\?[ \t]*(?:[\r\n]|\Z)")
_ASSIGNED = pattern(r"""([ \t]*[^\W\d](?:[\w.,* \t]|\[(?:"[^"\\]*"|'[^'\\]*'|[\w.]+)\])*=[ \t]*)([%!].*)""")
_HELP = pattern(r"[ \t]*(?:[\w., \t]+=[ \t]*)?%{0,2}(?!\d)[\w*]+(?:\.[\w*]+|\[-?\d+\])*\?{1,2}[ \t]*")
_INERT = "get_ipython()"  # what IPython itself puts there; its value is unknown, as it should be
_LEXEME = pattern(r"""'''|\"{3}|'|"|#|[(\[{]|[)\]}]|\\$""")
_CLOSE = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""', "'", '"')}


class Mask(NamedTuple):
    """A row that is IPython's and not Python's."""

    row: int  # within the cell, from 1
    lead: int  # characters on its left that are Python all the same: indentation, the name that a command's output goes to


class CellProgram(NamedTuple):
    """A cell as Python sees it."""

    text: str  # its rows in their places; nothing for a cell that is not Python
    indent: str = ""  # what IPython takes off the rows of a cell that begins indented
    magic: str = ""  # `time` for a cell under `%%time`
    masks: tuple[Mask, ...] = ()
    commands: tuple[tuple[int, str], ...] = ()  # what it hands to the shell, and the row where that begins


def as_python(source: str) -> CellProgram:
    """The program of a cell's source."""
    if _is_automatic(source):
        command = _shell_command(f"%{source.strip()}")
        return CellProgram("pass\n" if source[-1] in "\r\n" else "pass", masks=(Mask(1, 0),), commands=((1, command),) if command else ())
    match = _FIRST_INDENT.match(source)
    indent = match[1] if match else ""
    if not indent and not _MASKABLE.search(source):
        return CellProgram(source)
    rows = rows_of(source)
    if indent:
        rows = [(row.removeprefix(indent), end) for row, end in rows]
    first = next((index for index, (row, _) in enumerate(rows) if row.strip()), 0)
    name, masks = "", []
    if rows[first][0].startswith("%%"):
        words = rows[first][0][2:].split()
        name = " ".join(words[: 2 if words[:1] == ["script"] else 1])
        if name not in _PYTHON_CELL_MAGICS:
            return CellProgram("", "", name, (), tuple(_script(rows, first + 1)) if name in _SHELL_CELL_MAGICS else ())
        masks.append(Mask(first + 1, 0))
        rows[first] = ("", rows[first][1])
    commands = _mask(rows, masks)
    # What is masked may be empty: a carriage return in front of it and a line feed behind it would be one row end.
    return CellProgram("".join(f"{row}\n" if end else row for row, end in rows), indent, name, tuple(masks), tuple(commands))


def _is_automatic(source: str) -> bool:
    """Whether the one row of a cell is a magic without its ``%``, as in ``cd ..``, and no Python.

    Source: ``InteractiveShell.transform_cell`` of IPython asks for such magics only in cells of one row.
    """
    match = _AUTOMATIC.fullmatch(source)
    if match is None or match[1] not in _AUTOMATIC_MAGICS:
        return False
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return True
    return False


def _script(rows: list[tuple[str, str]], start: int) -> Iterator[tuple[int, str]]:
    """The commands of a shell cell's rows, comments left out."""
    index = start
    while index < len(rows):
        last = _last_continued(rows, index)
        text = _command(rows, index, last)
        if text and not text.startswith("#"):
            yield index + 1, text
        index = last + 1


def _mask(rows: list[tuple[str, str]], masks: list[Mask]) -> list[tuple[int, str]]:
    """Mask IPython's own syntax in place, so that the rows parse, and note what is masked; give the commands found on the way.

    Only the beginning of a statement is looked at: within brackets and strings ``%`` and ``!`` are Python's.
    """
    commands = []
    scanner = _Scanner()
    index = 0
    while index < len(rows):
        row = rows[index][0]
        body = row.lstrip(" \t\f")
        lead, inert, magic = len(row) - len(body), "", ""
        if scanner.at_statement and body:
            assigned = _ASSIGNED.fullmatch(row)
            if body[0] in "%!?,;/":
                inert, magic = "pass", body
            elif assigned:
                lead, inert, magic = len(assigned[1]), _INERT, assigned[2]
            elif body.endswith(("?", "? ", "?\t")) and _HELP.fullmatch(row):
                inert = "pass"
        if not inert:
            scanner.feed(row)
            index += 1
            continue
        last = _last_continued(rows, index)
        command = _shell_command(" ".join(filter(None, (magic.rstrip(" \t\\"), _command(rows, index + 1, last)))))
        if command:
            commands.append((index + 1, command))
        rows[index] = (row[:lead] + inert, rows[index][1])
        masks.append(Mask(index + 1, lead))
        for hidden in range(index + 1, last + 1):
            rows[hidden] = ("", rows[hidden][1])
            masks.append(Mask(hidden + 1, 0))
        index = last + 1
    return commands


def _last_continued(rows: list[tuple[str, str]], index: int) -> int:
    """The last row of the command that begins at ``index``: a backslash at the end of a row carries it on."""
    while index + 1 < len(rows) and rows[index][0].rstrip().endswith("\\"):
        index += 1
    return index


def _command(rows: list[tuple[str, str]], first: int, last: int) -> str:
    parts = (rows[index][0].strip().rstrip("\\").strip() for index in range(first, last + 1))
    return " ".join(part for part in parts if part)


def _shell_command(magic: str) -> str:
    """What a magic line runs as a command; empty where it runs none."""
    if magic.startswith("!"):
        return magic.lstrip("!").strip()
    if magic.startswith("%"):
        name, _, arguments = magic[1:].strip().partition(" ")
        if name == "run":
            return f"run {arguments.strip()}"
        if name in _SHELL_LINE_MAGICS:
            return arguments.strip()
    return ""


class _Scanner:
    """Follows strings, brackets and backslashes from row to row, to know where a statement begins."""

    __slots__ = ("_carried", "_depth", "_quote")

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._carried = False

    @property
    def at_statement(self) -> bool:
        """Whether the next row begins a statement."""
        return not (self._depth or self._quote or self._carried)

    def feed(self, row: str) -> None:
        """Take in one row, without its line end."""
        position = 0
        self._carried = False
        while position <= len(row):
            if self._quote:
                position = self._leave_string(row, position)
                continue
            match = _LEXEME.search(row, position)
            if match is None:
                return
            position = match.end()
            lexeme = match[0]
            if lexeme == "#":
                return
            if lexeme == "\\":
                self._carried = True
                return
            if lexeme in "([{":
                self._depth += 1
            elif lexeme in ")]}":
                self._depth = max(0, self._depth - 1)
            else:
                self._quote = lexeme

    def _leave_string(self, row: str, position: int) -> int:
        """The position after the string's end; past the row's end where it goes on, or was never closed."""
        for match in _CLOSE[self._quote].finditer(row, position):
            if match[0] == self._quote:
                self._quote = ""
                return match.end()
        if len(self._quote) == 1 and not row.endswith("\\"):
            self._quote = ""  # an unclosed string: a syntax error that must not swallow the rows below
        return len(row) + 1
