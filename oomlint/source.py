"""Bytes, encoding, lines, notebook cells, shell commands: a file becomes the text of a program.

The text keeps the file's own line ends, so every row and every column (characters, 1-based) stays where the reader sees it.
A notebook becomes one program: its code cells one below the other, with IPython's own syntax masked row by row.
Way back, a place is a span of the original bytes, and whatever is not edited is not touched.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from oomlint.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Edit

MEBIBYTE = 1024 * 1024
PYTHON_LIMIT = 8 * MEBIBYTE  # bytes; a program of this size is generated data, and its syntax tree takes gigabytes
NOTEBOOK_LIMIT = 64 * MEBIBYTE  # bytes; most of a big notebook is pictures in its outputs

ENCODING_DECLARATION = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
ROW_END = re.compile(r"\r\n|\r|\n")
_ROW_END_BYTES = re.compile(rb"\r\n|\r|\n")
_BLANK = re.compile(rb"[ \t\f]*(?:#|$)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class SourceError(Exception):
    """A file that cannot be read as a program, for one cause that ``message`` gives in a line without the path."""

    def __init__(self, path: str, message: str, cell: int = 0, row: int = 1, column: int = 1) -> None:
        """Name the file, the cause, and where in the file it shows."""
        super().__init__(path, message, cell, row, column)  # all arguments, so that it crosses process borders
        self.path = path
        self.message = message
        self.cell = cell
        self.row = row
        self.column = column

    def __str__(self) -> str:
        """The cause alone."""
        return self.message


class Kind(StrEnum):
    """What a file is."""

    PYTHON = "python"
    NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A command of a notebook: what follows ``!``, ``%run`` (as ``run ...``), or a line of a ``%%bash`` cell. Continued rows are joined."""

    cell: int
    row: int
    text: str


class _Cell(NamedTuple):
    """A code cell that is part of the program."""

    number: int  # 1-based over all cells of the notebook
    start: int  # the program row of its first row
    rows: int
    source: str  # as written, unmasked
    indent: str  # what IPython takes off the rows of a cell that begins indented

    def shift(self, row: int) -> int:
        """Characters that the program's ``row`` of this cell has lost on its left."""
        return len(self.indent) if self.indent and _row(self.source, row).startswith(self.indent) else 0


@dataclass(frozen=True)
class Source:
    """A file as the rooms above see it: ``text`` is the program, and every place in it leads back to ``data``."""

    path: str  # absolute
    kind: Kind
    data: bytes = field(repr=False)  # as on disk
    text: str = field(repr=False)  # without the byte order mark, with the file's own line ends
    encoding: str
    bom: bool
    newline: str  # the line end that the file uses most
    shell: tuple[ShellLine, ...] = ()
    cells: tuple[_Cell, ...] = field(default=(), repr=False)

    def place(self, row: int, column: int, end_row: int, end_column: int, message: str = "") -> Place:
        """The span of the file behind a span of the program. What runs past its notebook cell ends with the cell."""
        if self.kind is Kind.PYTHON:
            return Place(self.path, 0, row, column, end_row, end_column, message)
        if not self.cells:
            return Place(self.path, 1, 1, 1, 1, 1, message)
        cell = self.cells[max(0, bisect_right(self.cells, row, key=_start_of) - 1)]
        first, last = row - cell.start + 1, end_row - cell.start + 1
        if last > cell.rows:
            last = cell.rows
            end_column = len(_row(cell.source, last)) + 1
        else:
            end_column += cell.shift(last)
        return Place(self.path, cell.number, first, column + cell.shift(first), last, end_column, message)

    def program_row(self, place: Place) -> int:
        """The row of the program where ``place`` begins. The inverse of :meth:`place`."""
        for cell in self.cells:
            if cell.number == place.cell:
                return cell.start + place.row - 1
        return place.row

    def line(self, place_row: int, cell: int = 0) -> str:
        """A row of the file as written, without its line end; empty where there is no such row."""
        if self.kind is Kind.PYTHON:
            starts = self._row_starts
            if not 1 <= place_row <= len(starts):
                return ""
            end = starts[place_row] if place_row < len(starts) else len(self.text)
            return self.text[starts[place_row - 1] : end].rstrip("\r\n")
        return next((_row(each.source, place_row) for each in self.cells if each.number == cell), "")

    def offsets(self, place: Place) -> tuple[int, int]:
        """The span of ``data`` in bytes; for a notebook the span of the cell's source in characters. ValueError outside of the file."""
        if self.kind is Kind.NOTEBOOK:
            source = next((cell.source for cell in self.cells if cell.number == place.cell), None)
            if source is None:
                raise ValueError(f"cell {place.cell} is no part of the program")
            return _span(source, [0, *(match.end() for match in ROW_END.finditer(source))], place)
        start, end = self.span(place)
        return self._byte_offset(start), self._byte_offset(end)

    def span(self, place: Place) -> tuple[int, int]:
        """The characters of ``text`` that a place of a Python file covers. ValueError outside of the file."""
        return _span(self.text, self._row_starts, place)

    @cached_property
    def _row_starts(self) -> list[int]:
        """The index in ``text`` of the first character of every row."""
        return [0, *(match.end() for match in ROW_END.finditer(self.text))]

    @cached_property
    def _one_byte_each(self) -> bool:
        return len(self.data) - _mark_length(bom=self.bom) == len(self.text)

    @cached_property
    def _byte_starts(self) -> list[int]:
        """The offset of every character in ``data``, found byte by byte: such an encoding need not give back the bytes it was read from."""
        decoder = codecs.getincrementaldecoder(self.encoding)()
        starts: list[int] = []
        begin = 0
        for offset in range(len(self.data)):
            produced = decoder.decode(self.data[offset : offset + 1])
            if produced:
                starts.extend([begin] * len(produced))
                begin = offset + 1
        return [*starts, len(self.data)]

    def _byte_offset(self, index: int) -> int:
        if self._one_byte_each:
            return _mark_length(bom=self.bom) + index
        if self.encoding == "utf-8":
            return _mark_length(bom=self.bom) + len(self.text[:index].encode())
        return self._byte_starts[index]


def read_source(path: str | os.PathLike[str], data: bytes | None = None) -> Source:
    """Read a file, or the given ``data`` under its name. Raises SourceError with one clear cause."""
    path = os.path.abspath(path)
    notebook = path.lower().endswith(".ipynb")
    limit = NOTEBOOK_LIMIT if notebook else PYTHON_LIMIT
    if data is None:
        data = _read(path, limit)
    _refuse_too_large(path, len(data), limit)
    return _notebook(path, data) if notebook else _python(path, data)


def apply_edits(source: Source, edits: Sequence[Edit]) -> bytes:
    r"""The file's bytes with the edits in place; the other bytes are the ones that were there.

    ``\n`` in an edit becomes the file's own line end. Edits may touch; insertions at one point stay in the order given. ValueError where two
    overlap or one lies outside of the file; SourceError for a notebook, and where the file's encoding cannot hold the new text.
    """
    if source.kind is Kind.NOTEBOOK:
        raise SourceError(source.path, "fixing notebooks is not supported yet")
    spans = []
    for edit in edits:
        if edit.place.path != source.path:
            raise ValueError(f"an edit of {edit.place.path} cannot be applied to {source.path}")
        spans.append((*source.span(edit.place), ROW_END.sub(lambda _: source.newline, edit.content)))
    spans.sort(key=lambda span: span[:2])  # stable: insertions at one point keep their order
    text, data = [], []
    index = offset = 0
    for start, end, content in spans:
        if start < index:
            row = bisect_right(source._row_starts, start)  # noqa: SLF001
            raise ValueError(f"overlapping edits in row {row}")
        try:
            encoded = content.encode(source.encoding)
        except UnicodeError:
            raise SourceError(source.path, f"the fix cannot be written in the file's encoding {source.encoding}") from None
        text += [source.text[index:start], content]
        data += [source.data[offset : source._byte_offset(start)], encoded]  # noqa: SLF001
        index, offset = end, source._byte_offset(end)  # noqa: SLF001
    text.append(source.text[index:])
    data.append(source.data[offset:])
    result = b"".join(data)
    if result[_mark_length(bom=source.bom) :].decode(source.encoding, "replace") != "".join(text):  # encodings with shift states
        raise SourceError(source.path, f"files in the encoding {source.encoding} cannot be edited in place")
    return result


def cause_of(path: str, error: OSError) -> str:
    """Why the operating system refuses a path, in a line without the path."""
    if error.errno == errno.ELOOP:
        return "circular symbolic link"
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"dead symbolic link: {os.readlink(path)!r} does not exist"
    return error.strerror or str(error)


# Bytes


def _read(path: str, limit: int) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a named pipe must not block
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        message = "is a folder" if os.path.isdir(path) else cause_of(path, error)
        raise SourceError(path, message) from None
    except ValueError as error:
        raise SourceError(path, f"not a usable path: {error}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise SourceError(path, "is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(path, "not a regular file")
        _refuse_too_large(path, status.st_size, limit)
        with open(descriptor, "rb", buffering=0, closefd=False) as stream:
            return stream.read()
    except OSError as error:
        raise SourceError(path, cause_of(path, error)) from None
    finally:
        os.close(descriptor)


def _refuse_too_large(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise SourceError(path, f"{size / MEBIBYTE:.1f} MiB: larger than the limit of {limit // MEBIBYTE} MiB")


# Python


def _python(path: str, data: bytes) -> Source:
    bom = data.startswith(codecs.BOM_UTF8)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(path, "UTF-16 text, which Python does not read: save it as UTF-8")
    if b"\0" in data:
        raise _at_byte(path, data, data.index(b"\0"), "contains NUL bytes: not a text file")
    declared, row = _declared_encoding(data)
    encoding, story = _chosen_encoding(path, declared, row, bom=bom)
    try:
        text = (data[_mark_length(bom=True) :] if bom else data).decode(encoding)
    except UnicodeDecodeError as error:
        where = error.start + _mark_length(bom=bom)
        raise _at_byte(path, data, where, f"not valid {_shown(encoding)} at byte {where} ({story})") from None
    except (UnicodeError, ValueError) as error:
        raise SourceError(path, f"not valid {encoding} ({story}): {error}", row=row) from None
    if encoding != "utf-8" and ("\0" in text or _SURROGATE.search(text)):
        raise SourceError(path, f"the declared encoding {declared!r} does not fit the file", row=row)
    return Source(path, Kind.PYTHON, data, text, encoding, bom, _dominant_newline(text))


def _declared_encoding(data: bytes) -> tuple[str, int]:
    """The encoding that a comment in the first two rows declares, and its row; ('', 1) without one."""
    start = _mark_length(bom=data.startswith(codecs.BOM_UTF8))
    for row in (1, 2):
        end = _ROW_END_BYTES.search(data, start)
        line = data[start : end.start() if end else len(data)]
        match = ENCODING_DECLARATION.match(line)
        if match:
            return match[1].decode("ascii"), row
        if end is None or not _BLANK.match(line):
            break
        start = end.end()
    return "", 1


def _chosen_encoding(path: str, declared: str, row: int, *, bom: bool) -> tuple[str, str]:
    """The codec to decode with, and the words that say why it is this one."""
    if not declared:
        return "utf-8", "it begins with a UTF-8 byte order mark" if bom else "no encoding declared"
    plain = declared.lower().replace("_", "-")  # as the interpreter reads it: `utf-8-unix` and the like are Emacs's
    if plain == "utf-8" or plain.startswith("utf-8-"):
        encoding = "utf-8"
    elif plain in {"latin-1", "iso-8859-1", "iso-latin-1"} or plain.startswith(("latin-1-", "iso-8859-1-", "iso-latin-1-")):
        encoding = "iso8859-1"
    else:
        try:
            encoding = codecs.lookup(declared).name
            usable = b"#".decode(declared) == "#"  # else the declaration itself would not be read: UTF-16, EBCDIC
        except LookupError:  # also for what is no text encoding, `hex` for one
            raise SourceError(path, f"unknown encoding declared: {declared!r}", row=row) from None
        except ValueError:
            usable = False
        if not usable:
            raise SourceError(path, f"unusable encoding declared: {declared!r}", row=row)
    if bom and encoding != "utf-8":
        raise SourceError(path, f"declares the encoding {declared!r} but begins with a UTF-8 byte order mark", row=row)
    return encoding, f"declared in row {row}"


def _at_byte(path: str, data: bytes, where: int, message: str) -> SourceError:
    rows = _ROW_END_BYTES.split(data[:where])
    last = rows[-1].removeprefix(codecs.BOM_UTF8)
    return SourceError(path, message, row=len(rows), column=len(last.decode("utf-8", "replace")) + 1)


def _shown(encoding: str) -> str:
    return "UTF-8" if encoding == "utf-8" else encoding


def _mark_length(*, bom: bool) -> int:
    return len(codecs.BOM_UTF8) if bom else 0


def _dominant_newline(text: str) -> str:
    if "\r" not in text:
        return "\n"
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=lambda newline: counts[newline])


def _row(text: str, row: int) -> str:
    """A row of a text, without its line end."""
    rows = ROW_END.split(text)
    return rows[row - 1] if 1 <= row <= len(rows) else ""


def _span(text: str, starts: Sequence[int], place: Place) -> tuple[int, int]:
    ends = []
    for row, column in ((place.row, place.column), (place.end_row, place.end_column)):
        if not 1 <= row <= len(starts):
            raise ValueError(f"row {row} is outside of the file")
        begin = starts[row - 1]
        width = len(text[begin : starts[row] if row < len(starts) else None].rstrip("\r\n"))
        if not 1 <= column <= width + 1:
            raise ValueError(f"column {column} is outside of row {row}")
        ends.append(begin + column - 1)
    if ends[0] > ends[1]:
        raise ValueError(f"the span in row {place.row} ends before it begins")
    return ends[0], ends[1]


# Notebooks

_PYTHON_CELL_MAGICS = frozenset({"capture", "prun", "python", "python3", "time", "timeit"})
_SHELL_CELL_MAGICS = frozenset({"!", "bash", "sh", "shell", "sx", "system", "script bash", "script sh"})
_SHELL_LINE_MAGICS = frozenset({"sx", "system"})  # the long names of `!!` and `!`
_OTHER_KERNELS = re.compile(r"(?:ir|julia|bash|javascript|deno|scala|sos|octave|matlab|xcpp|clojure|ruby|perl|rust|go|\.net)\b", re.IGNORECASE)
_FIRST_INDENT = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*([ \t]+)[^\s#]")
_MASKABLE = re.compile(r"(?:^|[\r\n])[ \t]*[%!?,;/]|=[ \t]*[%!]|\?[ \t]*(?:[\r\n]|\Z)")
_ASSIGNED = re.compile(r"""([ \t]*[^\W\d](?:[\w.,* \t]|\[(?:"[^"\\]*"|'[^'\\]*'|[\w.]+)\])*=[ \t]*)([%!].*)""")
_HELP = re.compile(r"[ \t]*(?:[\w., \t]+=[ \t]*)?%{0,2}(?!\d)[\w*]+(?:\.[\w*]+|\[-?\d+\])*\?{1,2}[ \t]*")
_INERT = "get_ipython()"  # what IPython itself puts there; its value is unknown, as it should be
_LEXEME = re.compile(r"""'''|\"{3}|'|"|#|[(\[{]|[)\]}]|\\$""")
_CLOSE = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""', "'", '"')}


def _start_of(cell: _Cell) -> int:
    return cell.start


def _notebook(path: str, data: bytes) -> Source:
    raw = _notebook_text(path, data)
    program: list[str] = []
    cells: list[_Cell] = []
    shell: list[ShellLine] = []
    row = 1
    for number, written in _code_cells(path, _notebook_json(path, raw)):
        text, indent, commands = _as_python(number, written)
        shell += commands
        if not text.strip():
            continue
        if not written.endswith(("\n", "\r")):
            text += "\n"  # every cell starts on a new row
        rows = len(ROW_END.findall(text))
        cells.append(_Cell(number, row, rows, written, indent))
        program.append(text)
        row += rows
    joined = "".join(program)
    _refuse_too_large(path, len(joined), PYTHON_LIMIT)
    return Source(path, Kind.NOTEBOOK, data, joined, "utf-8", data.startswith(codecs.BOM_UTF8), _dominant_newline(raw), tuple(shell), tuple(cells))


def _notebook_text(path: str, data: bytes) -> str:
    if not data.strip():
        raise SourceError(path, "empty file: not a notebook")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = error.start + _mark_length(bom=data.startswith(codecs.BOM_UTF8))
        raise SourceError(path, f"not valid UTF-8 at byte {where}: not a notebook") from None


def _notebook_json(path: str, text: str) -> object:
    import json  # noqa: PLC0415 - only notebooks need it

    try:
        content: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise SourceError(path, f"not valid JSON at row {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise SourceError(path, "not a notebook: nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python converts
        raise SourceError(path, f"not valid JSON: {str(error).partition(';')[0]}") from None
    return content


def _code_cells(path: str, content: object) -> Iterator[tuple[int, str]]:
    """The number (over all cells) and the source of every Python cell."""
    if not isinstance(content, dict):
        raise SourceError(path, "not a notebook: no JSON object")
    listed = _listed_cells(path, content)
    if not _speaks_python(_language(content)):
        return
    for number, cell in enumerate(listed, 1):
        if not isinstance(cell, dict):
            raise SourceError(path, "not a notebook: a cell that is no JSON object", number)
        if cell.get("cell_type") == "code" and _speaks_python(_cell_language(cell)):
            yield number, _cell_source(path, number, cell.get("source", cell.get("input", "")))


def _listed_cells(path: str, content: dict[str, object]) -> list[object]:
    """All cells: nbformat 4 lists them at the top, 3 and 2 in worksheets."""
    listed = content.get("cells")
    sheets = content.get("worksheets")
    if listed is None and isinstance(sheets, list):
        listed = [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or ()]
    if not isinstance(listed, list):
        raise SourceError(path, "not a notebook: no list of cells")
    return listed


def _cell_source(path: str, number: int, source: object) -> str:
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise SourceError(path, "not a notebook: a code cell whose source is no text", number)
    if "\0" in source:
        raise SourceError(path, "contains NUL characters", number, len(ROW_END.findall(source[: source.index("\0")])) + 1)
    return source if source.isascii() else _SURROGATE.sub("\ufffd", source)  # a lone surrogate is no character


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


def _as_python(number: int, source: str) -> tuple[str, str, list[ShellLine]]:
    """A cell's program with its rows in place, the indentation taken off it, and its shell commands. No text for a cell that is not Python."""
    match = _FIRST_INDENT.match(source)
    indent = match[1] if match else ""
    if not indent and not _MASKABLE.search(source):
        return source, "", []
    rows = _split_rows(source)
    if indent:
        rows = [(row.removeprefix(indent), end) for row, end in rows]
    first = next((index for index, (row, _) in enumerate(rows) if row.strip()), 0)
    if rows[first][0].startswith("%%"):
        words = rows[first][0][2:].split()
        name = " ".join(words[: 2 if words[:1] == ["script"] else 1])
        if name not in _PYTHON_CELL_MAGICS:
            return "", "", [ShellLine(number, *command) for command in _script(rows, first + 1)] if name in _SHELL_CELL_MAGICS else []
        rows[first] = ("", rows[first][1])
    commands = [ShellLine(number, *command) for command in _mask(rows)]
    return "".join(row + end for row, end in rows), indent, commands


def _split_rows(text: str) -> list[tuple[str, str]]:
    """Rows with their line ends."""
    rows = []
    start = 0
    for match in ROW_END.finditer(text):
        rows.append((text[start : match.start()], match[0]))
        start = match.end()
    if start < len(text):
        rows.append((text[start:], ""))
    return rows


def _script(rows: list[tuple[str, str]], start: int) -> Iterator[tuple[int, str]]:
    """The commands of a shell cell's rows, comments left out."""
    index = start
    while index < len(rows):
        last = _last_continued(rows, index)
        text = _command(rows, index, last)
        if text and not text.startswith("#"):
            yield index + 1, text
        index = last + 1


def _mask(rows: list[tuple[str, str]]) -> list[tuple[int, str]]:
    """Mask IPython's own syntax in place, so that the rows parse; give the commands (row, text) found on the way.

    Only the beginning of a statement is looked at: within brackets and strings ``%`` and ``!`` are Python's.
    """
    commands = []
    scanner = _Scanner()
    index = 0
    while index < len(rows):
        row = rows[index][0]
        body = row.lstrip(" \t\f")
        masked = None
        if scanner.at_statement and body:
            assigned = _ASSIGNED.fullmatch(row)
            if body[0] in "%!?,;/":
                masked, magic = row[: len(row) - len(body)] + "pass", body
            elif assigned:
                masked, magic = assigned[1] + _INERT, assigned[2]
            elif body.endswith(("?", "? ", "?\t")) and _HELP.fullmatch(row):
                masked, magic = row[: len(row) - len(body)] + "pass", ""
        if masked is None:
            scanner.feed(row)
            index += 1
            continue
        last = _last_continued(rows, index)
        command = _shell_command(" ".join(filter(None, (magic.rstrip(" \t\\"), _command(rows, index + 1, last)))))
        if command:
            commands.append((index + 1, command))
        rows[index] = (masked, rows[index][1])
        for hidden in range(index + 1, last + 1):
            rows[hidden] = ("", rows[hidden][1])
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
