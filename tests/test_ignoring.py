"""`--add-ignore`: comments that silence what is found, and change nothing else."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
IMPORT = "from torch.utils.data import DataLoader\n"
CALL = "DataLoader(data, num_workers=0, persistent_workers=True)"
IGNORE = "  # oomlint: ignore[OOM101]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101", "OOM102", "OOM001"]\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--no-cache", "--output-format", "concise")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"x = {CALL}\n", f"x = {CALL}{IGNORE}\n"),
        (f"x = {CALL}", f"x = {CALL}{IGNORE}"),
        (f"x = {CALL} \t\n", f"x = {CALL}{IGNORE}\n"),
        (f"x = {CALL}  # why\n", f"x = {CALL}  # why{IGNORE}\n"),
        (f"x = {CALL}  # type: ignore[no-any]  # noqa: E501\n", f"x = {CALL}  # type: ignore[no-any]  # noqa: E501{IGNORE}\n"),
        (f"x = {CALL}  # oomlint: ignore[OOM102] words\n", f"x = {CALL}  # oomlint: ignore[OOM102, OOM101] words\n"),
        ("x = DataLoader(\n    data,  # rows\n    num_workers=0,\n    persistent_workers=True,\n)\n", None),
        ("x = DataLoader(data, num_workers=0, persistent_workers=True, generator='''\n''')\n", None),
        ("x = \\\n    DataLoader(data, num_workers=0, persistent_workers=True) \\\n    or None\n", None),
        (f"x = {CALL}; y = {CALL}\n", f"x = {CALL}; y = {CALL}{IGNORE}\n"),
        (f"if {CALL}:\n    pass\n", f"if {CALL}:{IGNORE}\n    pass\n"),
        (f"x = f'''\n{{{CALL}}}\n'''\n", f"x = f'''\n{{{CALL}}}\n'''{IGNORE}\n"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_comment_silences_and_changes_nothing_else(folder: Path, run: Callable[..., Done], before: str, after: str | None, ends: str) -> None:
    path = folder / "a.py"
    data = (IMPORT + before).replace("\n", ends).encode()
    path.write_bytes(data)
    assert run("-q").status == 1
    status, out, err = run("--add-ignore", "--select", "OOM101")
    assert (status, out) == (0, "No findings in 1 file.\n")
    assert err.startswith("oomlint: silenced ")
    text = path.read_bytes().decode()
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(data))
    if after is not None:
        assert text == (IMPORT + after).replace("\n", ends)
    assert run("--select", "OOM101").status == 0
    again = run("--add-ignore", "--select", "OOM101")
    assert again == (0, "No findings in 1 file.\n", "oomlint: silenced 0 findings by comments in 0 files\n")
    assert path.read_bytes().decode() == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_encodings_stay(folder: Path, run: Callable[..., Done], encoding: str) -> None:
    mark = "# coding: latin-1\n" if encoding == "latin-1" else ""
    text = f"{mark}{IMPORT}größe = {CALL}  # é\n"
    (folder / "a.py").write_bytes(text.encode(encoding))
    assert run("--add-ignore=é ist alt").status == 0
    assert (folder / "a.py").read_bytes() == text.replace("  # é", f"  # é{IGNORE} é ist alt").encode(encoding)


def test_blanks_around_a_reason_are_left_out(folder: Path, run: Callable[..., Done]) -> None:
    for given, after in (("  known ", f"{IGNORE} known"), ("  ", IGNORE)):
        (folder / "a.py").write_text(f"{IMPORT}x = {CALL}\n")
        assert run(f"--add-ignore={given}").status == 0
        assert (folder / "a.py").read_text() == f"{IMPORT}x = {CALL}{after}\n"


def test_a_reason_that_the_encoding_cannot_hold_is_a_line(folder: Path, run: Callable[..., Done]) -> None:
    data = f"# coding: latin-1\n{IMPORT}x = {CALL}\n".encode()
    (folder / "a.py").write_bytes(data)
    status, _, err = run("--add-ignore=名")
    assert status == 1
    assert err.splitlines()[-1] == "oomlint: a.py: comments are not added: the fix cannot be written in the file's encoding iso8859-1"
    assert (folder / "a.py").read_bytes() == data


def test_a_notebook_gets_comments_in_its_cells(folder: Path, run: Callable[..., Done]) -> None:
    cells = [
        {"cell_type": "code", "source": ["%cd data\n", IMPORT], "outputs": [{"x": 1}], "metadata": {}},
        {"cell_type": "code", "source": ["  x = " + CALL + "  # why\n", "  y = " + CALL], "outputs": [], "metadata": {}},
    ]
    text = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}, indent=3)
    (folder / "a.ipynb").write_text(text)
    assert run("--add-ignore") == (0, "No findings in 1 file.\n", "oomlint: silenced 2 findings by comments in 1 file\n")
    after = text.replace("  # why", f"  # why{IGNORE}").replace(f"y = {CALL}", f"y = {CALL}{IGNORE}")
    assert (folder / "a.ipynb").read_text() == after


def test_what_cannot_be_read_or_silenced_stays(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(f"{IMPORT}x = {CALL}\n")
    (folder / "b.py").write_text("num_workers = (\n")
    (folder / "c.py").write_text("x = 1  # noqa: OOM101\n")
    status, out, err = run("--add-ignore", "-q")
    assert (status, err) == (1, "")
    assert [line.split(": ")[1][:12] for line in out.splitlines()] == ["cannot check", "OOM001 warni"]
    assert (folder / "c.py").read_text() == "x = 1  # noqa: OOM101\n"


def test_a_file_that_must_not_be_written_is_a_line(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(f"{IMPORT}x = {CALL}\n")
    os.link(folder / "a.py", folder / "other")
    status, out, err = run("--add-ignore", "-q")
    assert status == 1
    assert out.startswith("a.py:2:5: OOM101")
    assert err == "oomlint: a.py: comments are not added: the file has 2 hard links, and writing it would part them\n"


def test_links_to_a_file_silence_it_once(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(f"{IMPORT}x = {CALL}\n")
    (folder / "b.py").symlink_to("a.py")
    assert run("--add-ignore").err == "oomlint: silenced 2 findings by comments in 1 file\n"
    assert (folder / "a.py").read_text() == f"{IMPORT}x = {CALL}{IGNORE}\n"
    assert run().status == 0


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--add-ignore", "--fix"), "--add-ignore goes without --fix, --diff and --write-baseline: one after the other"),
        (("--add-ignore", "-"), "--add-ignore needs files: standard input is none"),
        (("--add-ignore=two\nlines",), "--add-ignore: the reason has to stand on a line"),
        (
            ("--add-ignore", "known since 2024", "."),
            '--add-ignore: there is no file "known since 2024"; a reason stands behind `=`: --add-ignore="known since 2024"',
        ),
        (("--add-ignore=src/",), "--add-ignore=src/: that is a path, and no reason; write `--add-ignore src/`"),
        (("--add-ignore=train.py", "."), "--add-ignore=train.py: that is a path, and no reason; write `--add-ignore train.py`"),
        (("--add-ignore=legacy", "."), "--add-ignore=legacy: that is a path, and no reason; write `--add-ignore legacy`"),
        (("a.py:27", "--add-ignore"), "--add-ignore: a.py:27: No such file or directory"),
        (("--add-ignore", "missing.py"), "--add-ignore: missing.py: No such file or directory"),
        (("--add-ignore=known", "missing"), "--add-ignore: missing: No such file or directory"),
    ],
)
def test_wrong_options(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], cause: str) -> None:
    (folder / "legacy").mkdir()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert run(*words) == (2, "", f"oomlint: error: {cause}\n")


def test_all_of_the_incidents_are_silenced(folder: Path) -> None:
    shutil.copytree(ROOT / "fixtures" / "incidents", folder / "incidents")
    command = [sys.executable, "-m", "oomlint", "check", "--isolated", "--no-cache", "-q", "--severity", "note", "--min-confidence", "low"]
    assert subprocess.run([*command, "--add-ignore"], capture_output=True, check=False).returncode == 0
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--isolated", "."], check=True, capture_output=True)
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""
