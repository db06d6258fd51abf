"""The cells of a notebook, and the one program that those in Python make: one below the other, every row in its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from oomlint.notebooks.magics import Mask, as_python
from oomlint.patterns import pattern
from oomlint.rows import ROW_END, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER_KERNELS: Final = pattern(r"(?:ir|julia|bash|javascript|deno|scala|sos|octave|matlab|xcpp|clojure|ruby|perl|rust|go|\.net)\b", re.IGNORECASE)
_SURROGATE: Final = pattern("[\ud800-\udfff]")
_NO_CHARACTER: Final = "\ufffd"  # what stands for half a pair of surrogates
_BEHIND_ROW_END: Final = pattern(r"\n(?=[^\n])")
_OWN_NAMES: Final = frozenset({"python", "python3", "timeit"})  # magics whose names no other cell sees


class NotebookError(Exception):
    """What is wrong with a notebook, or with an edit of it, in a line; and where."""

    def __init__(self, message: str, cell: int = 0, row: int = 1, column: int = 1) -> None:
        """Give the cause and the place."""
        super().__init__(message, cell, row, column)
        self.message = message
        self.cell = cell
        self.row = row
        self.column = column

    def __str__(self) -> str:
        """The cause alone."""
        return self.message


class ShellLine(Struct, frozen=True):
    """A command of a notebook: what follows ``!``, ``%run`` (as ``run ...``), or a line of a ``%%bash`` cell. Continued rows are joined."""

    cell: int
    row: int
    text: str


class Cell(NamedTuple):
    """A code cell that is part of the program. Columns of the file count the indentation of the whole cell, those of the program do not."""

    number: int  # 1-based over all cells of the notebook
    start: int  # the program row of its first row
    rows: int
    source: str  # as written, unmasked
    indent: str  # what IPython takes off the rows of a cell that begins indented
    magic: str  # `time` for a cell under `%%time`
    masks: tuple[Mask, ...]

    @property
    def apart(self) -> bool:
        """Whether other cells do not see the names that this one binds."""
        return self.magic in _OWN_NAMES

    def shift(self, row: int) -> int:
        """Characters that the program's ``row`` of this cell has lost on its left."""
        return len(self.indent) if self.indent and row_of(self.source, row).startswith(self.indent) else 0

    def column(self, row: int, column: int) -> int:
        """The column of the file behind one of the program. Behind what is masked it is the end of the row."""
        lead = next((mask.lead for mask in self.masks if mask.row == row), None)
        return column + self.shift(row) if lead is None or column <= lead + 1 else len(row_of(self.source, row)) + 1

    def edit(self, row: int, column: int, end_row: int, end_column: int, content: str) -> tuple[tuple[int, int, int, int], str]:
        """The edit of the cell behind an edit of the program: its rows and columns, and the content as this cell must hold it.

        What reaches into the next cell has rows that this one has not.
        """
        first, last = row - self.start + 1, end_row - self.start + 1
        column, end_column = self.column(first, column), self.column(last, end_column)
        if self.indent:
            content = _BEHIND_ROW_END.sub(lambda match: match[0] + self.indent, content)
            if content.endswith("\n") and self.shift(last):
                content += self.indent  # for what is left of the last row: its own stays in front of the content
        if (last, end_column) == (self.rows + 1, 1) and not self.source.endswith(("\n", "\r")):
            # The last row has no end here, as it has in the program.
            last, end_column, content = self.rows, len(row_of(self.source, self.rows)) + 1, content.removesuffix("\n")
            if first > last:
                first, column, content = last, end_column, f"\n{content}"
        return (first, column, last, end_column), content


class Notebook(NamedTuple):
    """What a notebook holds."""

    text: str  # the program
    cells: tuple[Cell, ...]
    shell: tuple[ShellLine, ...]


def read_notebook(raw: str) -> Notebook:
    """Read the JSON of a notebook. Raises NotebookError."""
    program: list[str] = []
    cells: list[Cell] = []
    shell: list[ShellLine] = []
    row = 1
    for number, source in _code_cells(_loaded(raw)):
        found = as_python(source)
        shell += (ShellLine(number, *command) for command in found.commands)
        text = ROW_END.sub("\n", found.text)  # a carriage return must not meet the line feed of the next cell
        if not text.strip():
            continue
        if not source.endswith(("\n", "\r")):  # the text of an indented cell may have lost what stood behind its last row end
            text += "\n"  # every cell starts on a new row
        rows = text.count("\n")
        cells.append(Cell(number, row, rows, source, found.indent, found.magic, found.masks))
        program.append(text)
        row += rows
    return Notebook("".join(program), tuple(cells), tuple(shell))


def readable(source: str) -> str:
    """A cell's source with a character of its own for each lone surrogate, which is none."""
    return source if source.isascii() else _SURROGATE.sub(_NO_CHARACTER, source)


def _loaded(raw: str) -> object:
    import json  # noqa: PLC0415 - only notebooks need it

    try:
        content: object = json.loads(raw)
    except json.JSONDecodeError as error:
        raise NotebookError(f"not valid JSON at row {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise NotebookError("not a notebook: nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python converts
        raise NotebookError(f"not valid JSON: {str(error).partition(';')[0]}") from None
    return content


def _code_cells(content: object) -> Iterator[tuple[int, str]]:
    """The number (over all cells) and the source of every Python cell."""
    if not isinstance(content, dict):
        raise NotebookError("not a notebook: no JSON object")
    listed = _listed_cells(content)
    if not _speaks_python(_language(content)):
        return
    for number, cell in enumerate(listed, 1):
        if not isinstance(cell, dict):
            raise NotebookError("not a notebook: a cell that is no JSON object", number)
        if cell.get("cell_type") == "code" and _speaks_python(_cell_language(cell)):
            yield number, _cell_source(number, cell.get("source", cell.get("input", "")))


def _listed_cells(content: dict[str, object]) -> list[object]:
    """All cells: nbformat 4 lists them at the top, 3 and 2 in worksheets."""
    listed = content.get("cells")
    sheets = content.get("worksheets")
    if listed is None and isinstance(sheets, list):
        listed = [sheet.get("cells") or [] for sheet in sheets if isinstance(sheet, dict)]
        listed = [cell for cells in listed for cell in cells] if all(isinstance(cells, list) for cells in listed) else None
    if not isinstance(listed, list):
        raise NotebookError("not a notebook: no list of cells")
    return listed


def _cell_source(number: int, source: object) -> str:
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise NotebookError("not a notebook: a code cell whose source is no text", number)
    if "\0" in source:
        raise NotebookError("contains NUL characters", number, len(ROW_END.findall(source[: source.index("\0")])) + 1)
    return readable(source)


def _language(content: dict[str, object]) -> str:
    """The language that the notebook's metadata name; Python where they name none."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(table)
        if isinstance(entry, dict) and isinstance(entry.get(key), str):
            return str(entry[key])
    kernel = metadata.get("kernelspec")
    name = kernel.get("name") if isinstance(kernel, dict) else None
    return name if isinstance(name, str) and _OTHER_KERNELS.match(name) else "python"


def _cell_language(cell: dict[str, object]) -> str:
    """The language of one cell: nbformat 3 writes it there, and VS Code in the cell's metadata."""
    metadata = cell.get("metadata")
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    language = editor.get("languageId") if isinstance(editor, dict) else cell.get("language")
    return language if isinstance(language, str) else "python"


def _speaks_python(language: str) -> bool:
    return language.lower().startswith(("python", "ipython"))
