"""Files become programs, places lead back to bytes, and what is not edited is not touched."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oomlint.finding import Edit, Place
from oomlint.notebooks.cells import ShellLine
from oomlint.source import (
    PYTHON_LIMIT,
    FileKind,
    Source,
    SourceError,
    apply_edits,
    read_source,
)

FIXTURES = Path(__file__).parent.parent / "fixtures"
BROKEN = FIXTURES / "broken"
NOTEBOOKS = FIXTURES / "notebooks"

# cell, row, column, cause
REFUSED = {
    "binary.ipynb": (0, 1, 1, "not valid UTF-8 at byte 0: not a notebook"),
    "binary.py": (0, 1, 8, "contains NUL bytes: not a text file"),
    "binary_without_nul.py": (0, 1, 1, "not valid UTF-8 at byte 0 (no encoding declared)"),
    "blank.ipynb": (0, 1, 1, "empty file: not a notebook"),
    "bom_and_declaration.py": (0, 1, 1, "declares the encoding 'latin-1' but begins with a UTF-8 byte order mark"),
    "bom_then_latin1.py": (0, 4, 11, "not valid UTF-8 at byte 44 (it begins with a UTF-8 byte order mark)"),
    "cell_not_an_object.ipynb": (1, 1, 1, "not a notebook: a cell that is no JSON object"),
    "cells_not_a_list.ipynb": (0, 1, 1, "not a notebook: no list of cells"),
    "declared_utf16.py": (0, 1, 1, "unusable encoding declared: 'utf-16'"),
    "empty.ipynb": (0, 1, 1, "empty file: not a notebook"),
    "huge_number.ipynb": (0, 1, 1, "not valid JSON: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits"),
    "invalid.ipynb": (0, 1, 1, "not valid JSON at row 3, column 1: Expecting property name enclosed in double quotes"),
    "list.ipynb": (0, 1, 1, "not a notebook: no JSON object"),
    "no_cells.ipynb": (0, 1, 1, "not a notebook: no list of cells"),
    "no_text_encoding.py": (0, 1, 1, "unknown encoding declared: 'hex'"),
    "not_utf8.py": (0, 4, 11, "not valid UTF-8 at byte 41 (no encoding declared)"),
    "nul.ipynb": (1, 2, 1, "contains NUL characters"),
    "nul.py": (0, 2, 6, "contains NUL bytes: not a text file"),
    "source_not_text.ipynb": (2, 1, 1, "not a notebook: a code cell whose source is no text"),
    "truncated_utf8.py": (0, 1, 4, "not valid UTF-8 at byte 5 (no encoding declared)"),
    "unknown_encoding.py": (0, 1, 1, "unknown encoding declared: 'utf-9'"),
    "utf16.py": (0, 1, 1, "UTF-16 text, which Python does not read: save it as UTF-8"),
    "wrong_declaration.py": (0, 3, 6, "not valid ascii at byte 59 (declared in row 2)"),
}
# encoding, byte order mark, line end, rows
READ = {
    "bom.py": ("utf-8", True, "\n", 5),
    "cp1252_second_row.py": ("cp1252", False, "\n", 4),
    "cr.py": ("utf-8", False, "\r", 5),
    "crlf.py": ("utf-8", False, "\r\n", 5),
    "empty.py": ("utf-8", False, "\n", 1),
    "form_feed.py": ("utf-8", False, "\n", 9),
    "iso2022_jp.py": ("iso2022_jp", False, "\n", 4),
    "latin1.py": ("iso8859-1", False, "\n", 3),
    "line_separators.py": ("utf-8", False, "\n", 4),
    "mixed_line_ends.py": ("utf-8", False, "\r\n", 5),
    "no_newline_at_the_end.py": ("utf-8", False, "\n", 2),
    "only_blank_lines.py": ("utf-8", False, "\n", 5),
    "only_bom.py": ("utf-8", True, "\n", 1),
    "shift_jis.py": ("shift_jis", False, "\n", 3),
    "tabs.py": ("utf-8", False, "\n", 5),
    "utf8_declared_the_emacs_way.py": ("utf-8", False, "\n", 3),
}
NO_PYTHON = {
    "bad_indentation.py",
    "deep_expression.py",
    "deep_nesting.py",
    "merge_conflict.py",
    "mixed_tabs.py",
    "python2.py",
    "syntax_error.py",
    "unclosed.py",
}


def of(text: str | bytes, path: str = "/x.py") -> Source:
    return read_source(path, text if isinstance(text, bytes) else text.encode())


def notebook(*cells: str) -> Source:
    listed = [{"cell_type": "code", "source": cell} for cell in cells]
    return read_source("/x.ipynb", json.dumps({"cells": listed, "nbformat": 4}).encode())


def span(source: Source, row: int, column: int, end_column: int, content: str) -> Edit:
    return Edit(source.place(row, column, row, end_column), content)


# Bad input


def test_every_broken_file_is_accounted_for() -> None:
    files = {path.name for path in BROKEN.iterdir()} - {"README.md", ".gitattributes"}
    assert files == REFUSED.keys() | READ.keys() | NO_PYTHON


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_has_one_cause(name: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(BROKEN / name)
    error = caught.value
    assert (error.cell, error.row, error.column, str(error)) == REFUSED[name]
    assert error.path == str(BROKEN / name)
    assert "\n" not in error.message


@pytest.mark.parametrize("name", READ)
def test_an_odd_file_is_read_as_python_reads_it(name: str) -> None:
    source = read_source(BROKEN / name)
    encoding, bom, newline, rows = READ[name]
    assert (source.encoding, source.bom, source.newline) == (encoding, bom, newline)
    assert source.line(rows) == source.line(rows).rstrip("\r\n")
    assert source.offsets(source.place(rows, 1, rows, 1))
    with pytest.raises(ValueError, match="outside"):
        source.offsets(source.place(rows + 1, 1, rows + 1, 1))
    assert ast.dump(ast.parse(source.text)) == ast.dump(ast.parse(source.data))


@pytest.mark.parametrize("name", sorted(NO_PYTHON))
def test_what_is_no_python_is_read_all_the_same(name: str) -> None:
    assert read_source(BROKEN / name).text == (BROKEN / name).read_text(encoding="utf-8")


def test_a_path_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "dead.py").symlink_to("gone.py")
    (tmp_path / "circle.py").symlink_to("circle.py")
    (tmp_path / "folder.py").mkdir()
    causes = {
        "dead.py": "dead symbolic link: 'gone.py' does not exist",
        "circle.py": "circular symbolic link",
        "folder.py": "is a folder",
        "missing.py": "No such file or directory",
        "n\0l.py": "not a usable path: embedded null byte",
        "x" * 300 + ".py": "File name too long",
    }
    for name, cause in causes.items():
        with pytest.raises(SourceError) as caught:
            read_source(tmp_path / name)
        assert str(caught.value) == cause


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    (tmp_path / "secret.py").write_text("x = 1\n")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match=r"^Permission denied$"):
        read_source(tmp_path / "secret.py")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of Unix")
def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(SourceError, match="not a regular file"):
        read_source(tmp_path / "pipe.py")


def test_a_file_of_ten_megabytes_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_bytes(b"x = [\n" + b"    1.0, 2.0, 3.0,\n" * 550_000 + b"]\n")
    with pytest.raises(SourceError, match=r"^10\.0 MiB: larger than the limit of 8 MiB$"):
        read_source(path)
    with pytest.raises(SourceError, match="larger than the limit"):
        of(b"#" * (PYTHON_LIMIT + 1))
    assert len(of(b"#" * PYTHON_LIMIT).text) == PYTHON_LIMIT


def test_a_notebook_may_be_large_but_not_its_program() -> None:
    picture = '{"cell_type": "code", "source": "x", "outputs": "' + "A" * (PYTHON_LIMIT + 1) + '"}'
    assert of(f'{{"cells": [{picture}]}}', "/x.ipynb").text == "x\n"
    with pytest.raises(SourceError, match="larger than the limit"):
        notebook("#" * PYTHON_LIMIT)


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(SourceError, match="not a notebook"):
        of("[" * 100_000 + "]" * 100_000, "/x.ipynb")


def test_an_error_crosses_process_borders() -> None:
    error = pickle.loads(pickle.dumps(SourceError("/x.py", "empty", 1, 2, 3)))
    assert (error.path, str(error), error.cell, error.row, error.column) == ("/x.py", "empty", 1, 2, 3)


# Encodings and lines


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"# coding: latin-1\n", "iso8859-1"),
        (b"# coding=latin-1-unix\n", "iso8859-1"),
        (b"#!/bin/python\n# -*- coding: cp1251 -*-\n", "cp1251"),
        (b"\f  # vim: fileencoding=utf_8\n", "utf-8"),
        (b"x = 1\n# coding: latin-1\n", "utf-8"),
        (b"\n\n# coding: latin-1\n", "utf-8"),
        (b"\r# coding: latin-1\r", "iso8859-1"),
        (b"'# coding: latin-1'\n", "utf-8"),
        (b"\xef\xbb\xbf# coding: utf-8\n", "utf-8"),
    ],
    ids=["first row", "name for Emacs", "second row", "underscore", "after code", "third row", "old Mac", "in a string", "mark and declaration"],
)
def test_declared_encoding(data: bytes, encoding: str) -> None:
    assert of(data).encoding == encoding


@pytest.mark.parametrize(("text", "newline"), [("", "\n"), ("a\r\n", "\r\n"), ("a\r\nb\nc\n", "\n"), ("a\rb", "\r"), ("a\r\nb\r\nc\n", "\r\n")])
def test_the_line_end_that_is_used_most(text: str, newline: str) -> None:
    assert of(text).newline == newline


def test_only_line_ends_end_lines() -> None:
    source = of("a\x0cb\x0bc\x1cd\x85e\u2028f\r\ng\rh\n")
    assert [source.line(row) for row in range(6)] == ["", "a\x0cb\x0bc\x1cd\x85e\u2028f", "g", "h", "", ""]


@pytest.mark.parametrize("spot", [(0, 1, 1, 1), (3, 1, 3, 1), (1, 0, 1, 1), (1, 4, 1, 4), (1, 2, 1, 1), (2, 1, 1, 1)])
def test_a_place_outside_of_the_file(spot: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"outside|before"):
        of("ab\r\n").offsets(Place("/x.py", 0, *spot))


def test_paths_become_absolute_and_kinds_follow_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_source("a.py", b"").path == str(tmp_path / "a.py")
    assert read_source("script", b"").kind is FileKind.PYTHON
    assert read_source("A.IPYNB", b'{"cells": []}').kind is FileKind.NOTEBOOK


# Edits


@pytest.mark.parametrize("name", sorted(READ.keys() - {"empty.py", "only_bom.py"}))
def test_an_edit_changes_its_span_alone(name: str) -> None:
    source = read_source(BROKEN / name)
    row = READ[name][3]
    width = len(source.line(row))
    result = apply_edits(source, [span(source, row, width + 1, width + 1, "pass\n# end")])
    added = f"pass{source.newline}# end".encode()
    start, _ = source.offsets(source.place(row, width + 1, row, width + 1))
    assert result == source.data[:start] + added + source.data[start:]


@pytest.mark.parametrize(
    ("name", "row", "column", "end", "before"),
    [
        ("bom.py", 4, 8, 12, "café"),
        ("crlf.py", 4, 8, 12, "café"),
        ("latin1.py", 2, 18, 22, "déjà"),
        ("cp1252_second_row.py", 3, 10, 13, "5 €"),
        ("shift_jis.py", 2, 9, 12, "ソース"),
        ("iso2022_jp.py", 3, 1, 5, "size"),
        ("utf8_declared_the_emacs_way.py", 2, 9, 13, "中文 😀"),
        ("line_separators.py", 3, 1, 2, "c"),
    ],
)
def test_a_span_is_counted_in_characters_and_found_in_bytes(name: str, row: int, column: int, end: int, before: str) -> None:
    source = read_source(BROKEN / name)
    place = source.place(row, column, row, end)
    start, stop = source.offsets(place)
    assert source.data[start:stop].decode(source.encoding) == before
    result = apply_edits(source, [Edit(place, "N")])
    assert result == source.data[:start] + b"N" + source.data[stop:]


def test_edits_in_an_encoding_with_shift_states_are_refused_where_they_would_tear_it() -> None:
    source = read_source(BROKEN / "iso2022_jp.py")
    with pytest.raises(SourceError, match="cannot be edited in place"):
        apply_edits(source, [span(source, 2, 10, 11, "N")])


@pytest.mark.parametrize(
    ("text", "row", "content", "cause"),
    [
        ("#!/bin/python\n# coding: latin-1\nx = 'é'\n", 1, "import os\n", "it would move the row that declares the encoding latin-1"),
        ("# coding: utf-8\nx = 1\n", 1, "\n\n", None),
        ("import os\n# coding: latin-1\n", 1, "# coding: cp1252\n", "it would declare another encoding"),
        ("x = 1\n", 1, "\0", "the result would not be read as it is written"),
    ],
    ids=["moved", "moved in vain", "another", "unreadable"],
)
def test_an_edit_that_changes_how_the_rest_is_read_is_refused(text: str, row: int, content: str, cause: str | None) -> None:
    source = read_source("/a.py", text.encode("latin-1"))
    edit = span(source, row, 1, 1, content)
    if cause is None:
        assert apply_edits(source, [edit]) == (content + text).encode("latin-1")
        return
    with pytest.raises(SourceError) as caught:
        apply_edits(source, [edit])
    assert caught.value.message == cause


@pytest.mark.parametrize(("encoding", "name"), [("utf-32", "UTF-32"), ("utf-16", "UTF-16")])
@pytest.mark.parametrize("end", ["le", "be"])
def test_text_that_python_does_not_read_is_named(encoding: str, name: str, end: str) -> None:
    with pytest.raises(SourceError, match=f"{name} text, which Python does not read"):
        read_source("/a.py", "\ufeffx = 1\n".encode(f"{encoding}-{end}"))


def test_edits_apply_in_order_and_may_touch() -> None:
    source = of("f(a, b)\n")
    edits = [span(source, 1, 6, 7, "B"), span(source, 1, 3, 4, "A"), span(source, 1, 7, 7, ", c"), span(source, 1, 7, 7, ", d")]
    assert apply_edits(source, edits) == b"f(A, B, c, d)\n"
    assert apply_edits(source, []) == source.data


def test_overlapping_edits_are_refused() -> None:
    source = of("f(a, b)\n")
    for second in (span(source, 1, 5, 7, ""), span(source, 1, 3, 6, ""), span(source, 1, 4, 4, "x")):
        with pytest.raises(ValueError, match="overlapping edits in row 1"):
            apply_edits(source, [span(source, 1, 3, 6, "x"), second])


def test_edits_that_cannot_be_applied() -> None:
    source = of(b"# coding: ascii\nx = 1\n")
    with pytest.raises(SourceError, match="cannot be written in the file's encoding ascii"):
        apply_edits(source, [span(source, 2, 1, 2, "é")])
    with pytest.raises(ValueError, match="cannot be applied"):
        apply_edits(source, [Edit(Place("/other.py", 0, 1, 1, 1, 1), "")])


texts = st.text(st.sampled_from("ab é中😀\t\f'\n\r\u2028"), max_size=30)


@given(texts, texts, texts, st.sampled_from(["utf-8", "gb18030", "utf-8-sig"]))
@example("\r", "", "\n", "utf-8")
def test_bytes_in_bytes_out(before: str, old: str, after: str, encoding: str) -> None:
    head = "# coding: gb18030\n" if encoding == "gb18030" else ""
    text = head + before + old + after
    source = of(text.encode(encoding))
    assert source.text == text
    start, end = len(head + before), len(head + before + old)
    if text[start - 1 : start + 1] == "\r\n" or text[end - 1 : end + 1] == "\r\n":
        return  # between the two characters of a line end there is no place
    rows = [len(source_rows(text[:index])) for index in (start, end)]
    columns = [len(source_rows(text[:index])[-1]) + 1 for index in (start, end)]
    place = source.place(rows[0], columns[0], rows[1], columns[1])
    first, last = source.offsets(place)
    assert source.data[first:last].decode(source.encoding) == old
    result = apply_edits(source, [Edit(place, "new")])
    assert result == source.data[:first] + b"new" + source.data[last:]


def source_rows(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


# Notebooks


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_every_notebook_is_a_program(name: str) -> None:
    source = read_source(NOTEBOOKS / name)
    ast.parse(source.text)
    assert source.kind is FileKind.NOTEBOOK
    assert source.path == str(NOTEBOOKS / name)


@pytest.mark.parametrize("name", ["julia.ipynb", "r_without_language.ipynb", "markdown_only.ipynb", "no_cells_at_all.ipynb"])
def test_a_notebook_without_python_is_empty(name: str) -> None:
    source = read_source(NOTEBOOKS / name)
    assert (source.text, source.shell, source.cells) == ("", (), ())
    assert source.place(1, 1, 1, 1).cell == 1
    with pytest.raises(ValueError, match="no part of the program"):
        source.offsets(source.place(1, 1, 1, 1))


def test_places_of_a_notebook() -> None:
    source = read_source(NOTEBOOKS / "training.ipynb")
    rows = source.text.splitlines()
    row = rows.index("loader = DataLoader(") + 1
    place = source.place(row, 10, row + 4, 2)
    assert (place.cell, place.row, place.column, place.end_row, place.end_column) == (5, 1, 10, 5, 2)
    assert source.line(4, 5) == "    persistent_workers=True,"
    assert source.line(9, 5) == source.line(1, 99) == ""
    assert source.program_row(place) == row
    start, end = source.offsets(place)
    assert (start, end) == (9, 83)
    assert source.line(5, 4) == "    %cd data"  # as written, not as masked


def test_a_place_ends_with_its_cell() -> None:
    source = notebook("if x:\n    y", "z")
    place = source.place(1, 1, 3, 1)
    assert (place.cell, place.row, place.end_row, place.end_column) == (1, 1, 2, 6)
    assert source.offsets(place) == (0, 11)


def test_commands_of_a_notebook() -> None:
    assert read_source(NOTEBOOKS / "training.ipynb").shell == (
        ShellLine(2, 3, "pip install -q torch h5py"),
        ShellLine(2, 4, "nvidia-smi"),
        ShellLine(4, 3, "ls data"),
        ShellLine(7, 1, "python train.py --batch_size 32 --num_workers 4"),
        ShellLine(7, 3, "run evaluate.py --num_workers 0"),
    )
    assert read_source(NOTEBOOKS / "colab.ipynb").shell == (
        ShellLine(1, 2, "git clone https://example.org/repo.git"),
        ShellLine(2, 3, "export CUDA_VISIBLE_DEVICES=0"),
        ShellLine(2, 4, "python train.py --num_workers 8 --epochs 10"),
    )


def test_version_3_counts_cells_over_all_worksheets() -> None:
    source = read_source(NOTEBOOKS / "version3.ipynb")
    assert source.text == "import torch\npass\nx = torch.zeros(3)\nx\n"
    assert [cell.number for cell in source.cells] == [2, 3]


@pytest.mark.parametrize(
    ("cell", "program"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1\n"),
        ("if x:\n\t!ls -l \\\n\t  /tmp\n\ty()", "if x:\n\tpass\n\n\ty()\n"),
        ("names = !ls *.py", "names = get_ipython()\n"),
        ("a, d['k'] = %sql SELECT 1", "a, d['k'] = get_ipython()\n"),
        ("?print\nprint?\nnp.*load*??\nx = y.z?", "pass\npass\npass\npass\n"),
        ("!!ls\n,f a b\n;f a b\n/f a", "pass\npass\npass\npass\n"),
        ("x = (a\n  % b\n  != c)", "x = (a\n  % b\n  != c)\n"),
        ("x = a \\\n  % b", "x = a \\\n  % b\n"),
        ("s = '''\n!ls\n'''\n!ls", "s = '''\n!ls\n'''\npass\n"),
        ('s = r"\\\\"\n!ls', 's = r"\\\\"\npass\n'),
        ('s = "it\'s ("  # ) "\n!ls', 's = "it\'s ("  # ) "\npass\n'),
        ("s = 'open\n!ls", "s = 'open\npass\n"),
        ("print('a=%d' % x)\nx != y\nx = 'really?'\ny = 1  # why?", None),
        ("x %= 2\nassert x == 1, 'x=!'", None),
        ("# comment\n%%time", "# comment\npass\n"),
        ("\n%%time\nx = 1", "\n\nx = 1\n"),
        ("%%timeit -n 10\r\nx = 1\r\n", "\nx = 1\n"),
        ("a\r%%time\r\n!b \\\r\n\n", "a\npass\npass\n\n"),
        ("%%capture out --no-stderr\n%cd x", "\npass\n"),
        ("%%javascript\nalert(1)", ""),
        ("%%writefile x.py\nx = 1", ""),
        ("%%\nx = 1", ""),
        ("", ""),
        ("x = 1;", "x = 1;\n"),
        ("cd ../..", "pass\n"),
        ("rm -r $made\n", "pass\n"),
        ("cd ..\nx = 1", None),  # IPython looks for magics without a sign in cells of one row
        ("ls -l", None),  # Python, too
        ("print $made", None),  # no magic
        ("  # note\nx = 1\nif x:\n    y = 2\n%cd ..", "  # note\nx = 1\nif x:\n    y = 2\npass\n"),
    ],
)
def test_masks_keep_rows_and_indentation(cell: str, program: str | None) -> None:
    assert notebook(cell).text == (cell + "\n" if program is None else program)


PIECES = st.sampled_from(["x", "=", " ", "    ", "%", "!", "?", "%%", "time", "\n", "\r\n", "\\", "'", '"""', "(", ")", "#", "é", "\f"])


@given(st.lists(PIECES, max_size=12).map("".join))
@example(" x\n ")
def test_masks_keep_rows_whatever_the_cell(cell: str) -> None:
    source = notebook(cell, "last = 1")
    if cell and source.cells[0].number == 1:
        rows = source_rows(source.text)
        assert len(rows) == len(source_rows(cell if cell.endswith("\n") else cell + "\n")) + 1
        assert rows[-2] == "last = 1"
    assert source.place(len(source_rows(source.text)) - 1, 1, 1, 1).cell == 2


def test_a_cell_that_is_indented_as_a_whole() -> None:
    source = notebook("x = 0", "\n    y = 1\n    if y:\n        z = '''\n  text'''")
    assert source.text == "x = 0\n\ny = 1\nif y:\n    z = '''\n  text'''\n"
    place = source.place(5, 5, 6, 10)
    assert (place.row, place.column, place.end_row, place.end_column) == (4, 9, 5, 10)
    assert source.line(4, 2)[place.column - 1] == "z"


@pytest.mark.parametrize("magic", ["bash", "sh", "script bash", "!", "system"])
def test_commands_of_a_shell_cell(magic: str) -> None:
    source = notebook(f"%%{magic}\n\n# no\ncd x\npython a.py \\\n  --b 1\n")
    assert source.text == ""
    assert source.shell == (ShellLine(1, 4, "cd x"), ShellLine(1, 5, "python a.py --b 1"))


def test_line_magics_that_run_commands() -> None:
    assert [line.text for line in notebook("!! ls\n%sx ls -l\n%run  a.py -x\n%time f()\n!\n%").shell] == ["ls", "ls -l", "run a.py -x"]


def test_a_magic_without_its_sign_runs_a_command() -> None:
    assert [line.text for line in notebook("run train.py --num_workers 4").shell] == ["run train.py --num_workers 4"]


def test_lone_surrogates_become_one_character_each() -> None:
    source = read_source("/x.ipynb", rb'{"cells": [{"cell_type": "code", "source": "x = \"\ud800\" + \"\ud83d\ude00\""}]}')
    assert source.text == 'x = "\ufffd" + "\U0001f600"\n'


def test_a_source_crosses_process_borders() -> None:
    source = read_source(NOTEBOOKS / "training.ipynb")
    assert pickle.loads(pickle.dumps(source)) == source


def test_reading_python_imports_neither_json_nor_tokenize() -> None:
    code = "import sys; from oomlint.source import read_source; read_source('/x.py', b'x'); print({'json', 'tokenize', 'pathlib'} & sys.modules.keys())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FIXTURES.parent)
    assert "json" not in child.stdout
    assert "pathlib" not in child.stdout


def test_async_as_a_keyword_argument_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    data = b"x = x.cuda(async=True)\ny = f(async = 1)\nasync == 2\n"
    path.write_bytes(data)
    source = read_source(path)
    ast.parse(source.text.splitlines()[0])
    assert len(source.text) == len(data)
    edit = source.edit(2, 1, 2, 2, source.text.splitlines()[0])
    assert apply_edits(source, [edit]) == b"x = x.cuda(async=True)\nx = x.cuda(async=True) = f(async = 1)\nasync == 2\n"
