"""Syntax that the interpreter does not read: newer programs are checked, programs of Python 2 are told of in one line, mistakes stay mistakes."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

from oomlint.__main__ import main
from oomlint.scout.unparsable import is_python_2

if TYPE_CHECKING:
    from pathlib import Path

LOADER = "from torch.utils.data import DataLoader\n"
BAD = "loader = DataLoader(data, num_workers=0, persistent_workers=True)\n"
OLD = "import torch.utils.data\n\ndef load(num_workers):\n    print 'num_workers', num_workers\n"

NEWER = {
    "type statement": "type Rows = list[int]\n",
    "generic function": "def first[T](rows: list[T]) -> T:\n    return rows[0]\n",
    "generic class": "class Rows[T: int]:\n    pass\n",
    "default of a type": "class Rows[T = int]:\n    pass\n",
    "quotes in an f-string": 'name = f"{names["a"]}"\n',
    "backslash in an f-string": "name = f\"{'\\n'.join(names)}\"\n",
    "comment in an f-string": 'name = f"{\n    names # all\n}"\n',
    "several exceptions": "try:\n    pass\nexcept KeyError, ValueError:\n    pass\n",
    "template string": 'name = t"{names}"\n',
    "exception group": "try:\n    pass\nexcept* ValueError:\n    pass\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a project."""
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], list[str]]:
    """Status, and the lines of both streams."""
    status = main(("check", *words))
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


def test_a_forgotten_comma_is_named_where_it_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text(f"{LOADER}x = {{\n    'a': len('')\n    'b' : len(''),\n    'c': 1,\n    'd' : 2 ,\n}}\n{BAD}")
    _, out, _ = check(capsys, "--output-format", "concise")
    assert out[0] == "a.py:3:10: cannot check: not valid Python 3.11: invalid syntax. Perhaps you forgot a comma?".replace(
        "3.11", ".".join(map(str, sys.version_info[:2]))
    )


@pytest.mark.parametrize("form", NEWER)
def test_newer_syntax_is_checked(form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text(f"{LOADER}{NEWER[form]}{BAD}")
    (folder / "b.py").write_text(f"num_workers = 1\n{NEWER[form]}")
    status, out, err = check(capsys, "--output-format", "concise")
    row = 2 + NEWER[form].count("\n")
    assert (status, err) == (1, [])
    assert [line for line in out if "OOM" in line or "cannot" in line] == [line for line in out if line.startswith(f"a.py:{row}:10: OOM101 error ")]
    assert len(out) == 2
    assert check(capsys, "--fix")[0] == 0
    assert (folder / "a.py").read_text() == f"{LOADER}{NEWER[form]}{BAD.replace(', persistent_workers=True', '')}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x = 1\nloader = = 2\n", "2:10"),
        ("type Rows = int\nclass A[T]:\n    pass\nloader = = 2\n", r"4:\d+"),
        ("loader = (1,\nx = 2\n", "1:10"),
        ("if loader:\nx = 1\n", "2:1"),
        ("x = '\\N{NO SUCH}'  # num_workers\n", r"1:\d+"),
    ],
)
def test_a_mistake_stays_one(text: str, place: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text(text)
    status, out, err = check(capsys, "--output-format", "concise", "-q")
    assert (status, err, len(out)) == (1, [], 1)
    assert re.match(rf"a\.py:{place}: cannot check: not valid Python 3", out[0])


def test_what_only_the_parser_cannot_read_is_no_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text(f'{LOADER}{BAD}name = rf"one\\\ntwo"\n')
    status, out, err = check(capsys, "--output-format", "concise", "-q")
    assert (status, err, len(out)) == (1, [], 1)
    assert "cannot check: valid Python, but libcst cannot read it: " in out[0]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, "p0.py is Python 2 and was not checked"),
        (2, "2 files are Python 2 and were not checked: p0.py and p1.py"),
        (5, "5 files are Python 2 and were not checked: p0.py, p1.py and 3 others"),
    ],
)
def test_files_of_python_2_are_one_line_and_no_error(number: int, told: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in range(number):
        (folder / f"p{each}.py").write_text(OLD)
    assert check(capsys) == (0, [], [f"oomlint: {told}"])
    (folder / "good.py").write_text(LOADER)
    for _ in range(2):  # the second time from the cache
        assert check(capsys) == (0, ["No findings in 1 file."], [f"oomlint: {told}"])
    assert check(capsys, "--fix") == (0, ["No findings in 1 file."], [f"oomlint: {told}"])
    assert check(capsys, "-q") == (0, [], [])
    status, out, err = check(capsys, "--output-format", "json")
    assert (status, json.loads("".join(out)), err) == (0, [], [f"oomlint: {told}"])


def test_a_file_of_python_2_that_is_named_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "old.py").write_text(OLD)
    (folder / "other.py").write_text(OLD)
    status, out, err = check(capsys, "old.py", ".", "--output-format", "concise", "-q")
    assert (status, err, len(out)) == (1, [], 1)
    assert re.match(r"old\.py:4:5: cannot check: not valid Python 3\.\d+: Missing parentheses in call to 'print'", out[0])
    assert check(capsys, ".", "old.py")[2] == ["oomlint: other.py is Python 2 and was not checked"]


def test_a_fixed_file_does_not_hide_behind_python_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the old habit in a program that is plainly of Python 3 is a mistake."""
    (folder / "a.py").write_text(f"{LOADER}def load(path: str) -> None:\n    print f'{{path}}'\n")
    assert check(capsys, "-q")[0] == 1


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("print 'a'\n", True),
        ("print >>log, a\n", True),
        ("if a: print a\n", True),
        ("if a: print 'a'\nelse: b[5] = 1\n", True),
        ("print ('%d') % a\n", True),
        ("exec 'a = 1' in names\n", True),
        ("try:\n    a()\nexcept (IOError, OSError), error:\n    raise\n", True),
        ("raise ValueError, 'a'\n", True),
        ("a <> b\n", True),
        ("a = `b`\n", True),
        ("a = 0777\n", True),
        ("a = 10L\n", True),
        ("a = ur'b'\n", True),
        ("def f((a, b)):\n    pass\n", True),
        ("'''\nprint 'a'\n'''\na = = 1\n", False),
        ("# print 'a'\na = = 1\n", False),
        ("a = 'print b'\nb = = 1\n", False),
        ("print(a\n", False),
        ("print in a b\n", False),
        ("print = a b\n", False),
        ("print 'a'\nprint(f'{a}')\n", False),
        ("print 'a'\nasync def f():\n    pass\n", False),
        ("print 'a'\na: int = 1\n", False),
        ("'''" + '"""' * 10_000, False),
    ],
)
def test_what_is_python_2(text: str, old: bool) -> None:  # noqa: FBT001
    assert is_python_2(text) is old
