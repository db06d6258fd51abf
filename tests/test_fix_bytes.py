"""What ``--fix`` leaves of the bytes of a file, whatever its line ends, form feeds, tabs and encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oomlint import engine
from oomlint.config import Settings
from oomlint.engine import RunOptions
from oomlint.source import SourceError, read_source
from oomlint.syntax.tree import Tree
from oomlint.untouched import Code, HarmError, check

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.engine import CheckReport

IMPORT = b"from torch.utils.data import DataLoader\n"
CALL = b"DataLoader(x, num_workers=0, persistent_workers=True)"
FIXED = b"DataLoader(x, num_workers=0)"


def fix(path: Path) -> CheckReport:
    return engine.run([str(path)], Settings(), path.parent, RunOptions(fix=True, cache=False, processes=1))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(IMPORT.replace(b"\n", b"\r") + b"x=1\n\x0c%s\n", id="a carriage return above a form feed"),
        pytest.param(IMPORT.replace(b"\n", b"\r\r\n") + b"x=1\r\r\n\x0c%s\r\r\n", id="two carriage returns and a line feed"),
        pytest.param(IMPORT + b"if x:\r  \x0c  %s\n  y\r", id="a form feed within the indentation"),
        pytest.param(IMPORT + b"if x:\r  if y:\r  \t%s\r\n  z\n", id="a tab behind blanks"),
        pytest.param(IMPORT + b"s = '''\n\x0c''' ; %s\n", id="a form feed in a string"),
        pytest.param(IMPORT + b"if x:\n  if y:\n  \ts = '''\n \t a''', %s\n  z\n", id="tabs in a string"),
        pytest.param(IMPORT + b"\x0c\ns = (1,\n\x0c %s)\n", id="a form feed between brackets"),
        pytest.param(IMPORT + b"if x:\n    if y:\n        %s\n\n    # the end\n", id="a blank line that libcst drops"),
        pytest.param(b"\xef\xbb\xbf" + IMPORT + "s = f'\U0001f600 {1}'; %s".encode(), id="a byte order mark and a wide character"),
        pytest.param(b"# coding: shift_jis\r" + IMPORT + "s = '表ソ'\r\x0c%s  # 能".encode("shift_jis"), id="an encoding of two bytes"),
    ],
)
def test_only_the_fixed_span_changes(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(before.replace(b"%s", CALL))
    report = fix(path)
    assert (report.findings, report.failures, report.notices) == ((), (), ())
    assert path.read_bytes() == before.replace(b"%s", FIXED)


def test_a_tree_that_is_not_the_text_names_no_place(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"a = 1\nb = 2\n")
    tree = Tree(read_source(path))
    tree._text = tree._text.replace("b", "\u00a0b")
    with pytest.raises(SourceError, match="read in two ways"):
        tree.span(tree.module.body[1])


@pytest.mark.parametrize(
    ("spot", "content"),
    [
        pytest.param((1, 1), "b", id="a name grows"),
        pytest.param((3, 4), "'''", id="a string swallows the rest"),
        pytest.param((0, 0), "# ", id="a comment swallows the rest"),
        pytest.param((1, 3), "", id="two names become one"),
        pytest.param((0, 4), "b # ", id="what follows becomes a comment"),
    ],
)
def test_tokens_around_an_edit_stay(spot: tuple[int, int], content: str) -> None:
    text = "a; b; c\nd''''''\n"
    with pytest.raises(HarmError):
        check(Code(text), Code(text[: spot[0]] + content + text[spot[1] :]), [(*spot, content)])


def test_what_is_put_in_front_of_a_form_feed_indents_nothing() -> None:
    text = "if a:\n    b\n\f    c\n"
    with pytest.raises(HarmError, match="form feed"):
        check(Code(text), Code(text[:12] + "    " + text[12:]), [(12, 12, "    ")])
    for content in ("    d\n", "    d;"):
        check(Code(text), Code(text[:12] + content + text[12:]), [(12, 12, content)])


@pytest.mark.parametrize("content", ["", "x; ", "f(\n1)\n    ", "'''\n'''; ", "pass # c\n    "])
def test_tokens_may_move(content: str) -> None:
    text = "if a:\n    b; b\n    c  # d\n\nif b:\n  e\n"
    check(Code(text), Code(text[:10] + content + text[10:]), [(10, 10, content)])
