"""Bytes and encoding: a file becomes the text of a program.

The text keeps the line ends of a Python file (that of a notebook has line feeds), so every row and every column (characters, 1-based) stays where the reader
sees it.
A notebook becomes one program: its code cells one below the other, with IPython's own syntax masked row by row.
Way back, a place is a span of the original bytes, and whatever is not edited is not touched.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import re
import stat
from bisect import bisect_right
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.finding import Edit, Place
from oomlint.notebooks.cells import NotebookError, read_notebook
from oomlint.rows import ROW_END, dominant_newline, row_of, span_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.notebooks.cells import Cell, ShellLine

MEBIBYTE = 1024 * 1024
PYTHON_LIMIT = 8 * MEBIBYTE  # bytes; a program of this size is generated data, and its syntax tree takes gigabytes
NOTEBOOK_LIMIT = 64 * MEBIBYTE  # bytes; most of a big notebook is pictures in its outputs

# `async` was a name until Python 3.6, and `x.cuda(async=True)` what everybody wrote: a name of the same length stands for it.
_ASYNC = "async"
_STAND_IN = "asynC"
_ASYNC_GIVEN = re.compile(rf"\b{_ASYNC}(?=[ \t]*=(?!=))")

ENCODING_DECLARATION = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
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


class FileKind(StrEnum):
    """What a file is."""

    PYTHON = "python"
    NOTEBOOK = "notebook"


class Source(Struct, frozen=True, dict=True):
    """A file as the rooms above see it: ``text`` is the program, and every place in it leads back to ``data``."""

    path: str  # absolute
    kind: FileKind
    data: bytes  # as on disk
    text: str  # without the byte order mark; of a Python file, with its own line ends
    encoding: str
    bom: bool
    newline: str  # the line end that the file uses most
    shell: tuple[ShellLine, ...] = ()
    cells: tuple[Cell, ...] = ()

    def place(self, row: int, column: int, end_row: int, end_column: int, message: str = "") -> Place:
        """The span of the file behind a span of the program. What runs past its notebook cell ends with the cell."""
        if self.kind is FileKind.PYTHON:
            return Place(self.path, 0, row, column, end_row, end_column, message)
        cell = self.cell_at(row)
        if cell is None:
            return Place(self.path, 1, 1, 1, 1, 1, message)
        first, last = row - cell.start + 1, end_row - cell.start + 1
        end_column = cell.column(last, end_column) if last <= cell.rows else len(row_of(cell.source, cell.rows)) + 1
        return Place(self.path, cell.number, first, cell.column(first, column), min(last, cell.rows), end_column, message)

    def edit(self, row: int, column: int, end_row: int, end_column: int, content: str) -> Edit:
        """The edit of the file behind an edit of the program.

        One that reaches from one notebook cell into another has a place that no cell has, and cannot be applied.
        """
        cell = self.cell_at(row)
        if cell is None:
            return Edit(self.place(row, column, end_row, end_column), content)
        span, content = cell.edit(row, column, end_row, end_column, content)
        return Edit(Place(self.path, cell.number, *span), content)

    def cell_at(self, row: int) -> Cell | None:
        """The notebook cell that holds a row of the program."""
        return self.cells[max(0, bisect_right(self.cells, row, key=_start_of) - 1)] if self.cells else None

    def program_row(self, place: Place) -> int:
        """The row of the program where ``place`` begins. The inverse of :meth:`place`."""
        for cell in self.cells:
            if cell.number == place.cell:
                return cell.start + place.row - 1
        return place.row

    def line(self, place_row: int, cell: int = 0) -> str:
        """A row of the file as written, without its line end; empty where there is no such row."""
        if self.kind is FileKind.PYTHON:
            starts = self._row_starts
            if not 1 <= place_row <= len(starts):
                return ""
            end = starts[place_row] if place_row < len(starts) else len(self.text)
            return self.text[starts[place_row - 1] : end].rstrip("\r\n")
        return next((row_of(each.source, place_row) for each in self.cells if each.number == cell), "")

    def offsets(self, place: Place) -> tuple[int, int]:
        """The span of ``data`` in bytes; for a notebook the span of the cell's source in characters. ValueError outside of the file."""
        if self.kind is FileKind.NOTEBOOK:
            source = next((cell.source for cell in self.cells if cell.number == place.cell), None)
            if source is None:
                raise ValueError(f"cell {place.cell} is no part of the program")
            return span_of(source, starts_of(source), place)
        start, end = self.span(place)
        return self._byte_offset(start), self._byte_offset(end)

    def span(self, place: Place) -> tuple[int, int]:
        """The characters of ``text`` that a place of a Python file covers. ValueError outside of the file."""
        return span_of(self.text, self._row_starts, place)

    @cached_property
    def _row_starts(self) -> list[int]:
        """The index in ``text`` of the first character of every row."""
        return starts_of(self.text)

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


def kind_of(path: str) -> FileKind:
    """What a file is, by its name."""
    return FileKind.NOTEBOOK if path.lower().endswith(".ipynb") else FileKind.PYTHON


def content_digest(path: str, data: bytes) -> str:
    """What stands for a file's content, read as what its name says it is."""
    return hashlib.blake2b(data, digest_size=16, person=b"notebook" if path.lower().endswith(".ipynb") else b"").hexdigest()


def read_source(path: str | os.PathLike[str], data: bytes | None = None) -> Source:
    """Read a file, or the given ``data`` under its name. Raises SourceError with one clear cause."""
    path = os.path.abspath(path)
    notebook = kind_of(path) is FileKind.NOTEBOOK
    limit = NOTEBOOK_LIMIT if notebook else PYTHON_LIMIT
    if data is None:
        data = read_bytes(path, limit)
    _refuse_too_large(path, len(data), limit)
    return _notebook(path, data) if notebook else _python(path, data)


def apply_edits(source: Source, edits: Sequence[Edit]) -> bytes:
    r"""The file's bytes with the edits in place; the other bytes are the ones that were there.

    ``\n`` in an edit becomes the line end of the file, or of the notebook's cell. Edits may touch; insertions at one point stay in the order given.
    ValueError where two overlap or one lies outside of the file; SourceError where the file's encoding cannot hold the new text, and where more of a
    notebook would change than the Python of one cell.
    """
    for edit in edits:
        if edit.place.path != source.path:
            raise ValueError(f"an edit of {edit.place.path} cannot be applied to {source.path}")
    return _edited_notebook(source, edits) if source.kind is FileKind.NOTEBOOK else _edited_python(source, edits)


def _edited_python(source: Source, edits: Sequence[Edit]) -> bytes:
    text, data = [], []
    index = offset = 0
    for start, end, content in replacements_of(source, edits):
        try:
            encoded = as_written(content).encode(source.encoding)
        except UnicodeError:
            raise SourceError(source.path, f"the fix cannot be written in the file's encoding {source.encoding}") from None
        text += [source.text[index:start], content]
        data += [source.data[offset : source._byte_offset(start)], encoded]  # noqa: SLF001
        index, offset = end, source._byte_offset(end)  # noqa: SLF001
    text.append(source.text[index:])
    data.append(source.data[offset:])
    result = b"".join(data)
    try:
        again = _python(source.path, result)
        same = (again.text, again.encoding) == ("".join(text), source.encoding)
    except SourceError:
        same = False
    if same:
        return result
    declared = _declared_encoding(source.data)[0]
    if declared != _declared_encoding(result)[0]:
        raise SourceError(source.path, f"it would move the row that declares the encoding {declared}" if declared else "it would declare another encoding")
    if source.encoding == "utf-8":
        raise SourceError(source.path, "the result would not be read as it is written")
    raise SourceError(source.path, f"files in the encoding {source.encoding} cannot be edited in place")  # it has shift states


def _edited_notebook(source: Source, edits: Sequence[Edit]) -> bytes:
    from oomlint.notebooks.edits import edited, replaced  # noqa: PLC0415 - brings json and ast, which most runs need not

    by_cell: dict[int, list[Edit]] = {}
    for edit in edits:
        by_cell.setdefault(edit.place.cell, []).append(edit)
    spans = {}
    for number, own in by_cell.items():
        cell = next((cell for cell in source.cells if cell.number == number), None)
        if cell is None:
            raise ValueError(f"cell {number} is no part of the program")
        starts, newline = starts_of(cell.source), dominant_newline(cell.source)
        if any(edit.place.row <= len(starts) < edit.place.end_row for edit in own):
            raise SourceError(source.path, f"it reaches from cell {number} into another")
        contents = [newline.join(ROW_END.split(edit.content)) for edit in own]
        spans[number] = _in_order([(*span_of(cell.source, starts, edit.place), content) for edit, content in zip(own, contents, strict=True)], starts)
    mark = _mark_length(bom=source.bom)
    try:
        result = edited(source.data[mark:].decode(), source.cells, spans)
        again = read_notebook(result).cells
    except NotebookError as error:
        raise SourceError(source.path, error.message, error.cell) from None
    expected = {cell.number: replaced(cell.source, spans.get(cell.number, ())) for cell in source.cells}
    if any(cell.source != expected.get(cell.number) for cell in again):
        raise SourceError(source.path, "it would change more of the notebook than the cells that are edited")
    return source.data[:mark] + result.encode()


def replacements_of(source: Source, edits: Sequence[Edit]) -> list[tuple[int, int, str]]:
    """The spans of a Python file's text and what takes their place, in order. ValueError where two overlap or one lies outside of the file."""
    spans = [(*source.span(edit.place), ROW_END.sub(lambda _: source.newline, edit.content)) for edit in edits]
    return _in_order(spans, source._row_starts)  # noqa: SLF001


def _in_order(spans: Sequence[tuple[int, int, str]], starts: Sequence[int]) -> list[tuple[int, int, str]]:
    """Spans of a text and what takes their place, in order. ValueError where two overlap."""
    ordered = sorted(spans, key=lambda span: span[:2])  # stable: insertions at one point keep their order
    index = 0
    for start, end, _ in ordered:
        if start < index:
            raise ValueError(f"overlapping edits in row {bisect_right(starts, start)}")
        index = end
    return ordered


def is_special(path: str) -> bool:
    """Whether a path is there and is neither a file nor a folder: who reads a pipe waits for whoever writes to it."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def cause_of(path: str, error: OSError) -> str:
    """Why the operating system refuses a path, in a line without the path."""
    if error.errno == errno.ELOOP:
        return "circular symbolic link"
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"dead symbolic link: {os.readlink(path)!r} does not exist"
    return error.strerror or str(error)


# Bytes


def read_bytes(path: str, limit: int) -> bytes:
    """The content of a file of at most ``limit`` bytes. Raises SourceError."""
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
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # first: one of them begins with a mark of UTF-16
        raise SourceError(path, "UTF-32 text, which Python does not read: save it as UTF-8")
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
    if _ASYNC in text:
        text = _ASYNC_GIVEN.sub(_STAND_IN, text)
    return Source(path, FileKind.PYTHON, data, text, encoding, bom, dominant_newline(text))


def as_written(code: str) -> str:
    """Code of a program as the file has it."""
    return code.replace(_STAND_IN, _ASYNC) if _STAND_IN in code else code


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


# Notebooks


def _start_of(cell: Cell) -> int:
    return cell.start


def _notebook(path: str, data: bytes) -> Source:
    raw = _notebook_text(path, data)
    try:
        text, cells, shell = read_notebook(raw)
    except NotebookError as error:
        raise SourceError(path, error.message, error.cell, error.row, error.column) from None
    _refuse_too_large(path, len(text), PYTHON_LIMIT)
    return Source(path, FileKind.NOTEBOOK, data, text, "utf-8", data.startswith(codecs.BOM_UTF8), dominant_newline(raw), shell, cells)


def _notebook_text(path: str, data: bytes) -> str:
    if not data.strip():
        raise SourceError(path, "empty file: not a notebook")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = error.start + _mark_length(bom=data.startswith(codecs.BOM_UTF8))
        raise SourceError(path, f"not valid UTF-8 at byte {where}: not a notebook") from None
