"""Comments silence the findings beside them, and are reported where they silence nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import runs
from hypothesis import given
from hypothesis import strategies as st

from oomlint.finding import Confidence, Edit, Finding, Place, Safety, Severity
from oomlint.source import Source, apply_edits, read_source
from oomlint.suppress import UNUSED, Suppressions, apply

SELECTED = ("OOM001", "OOM101", "OOM102", "OOM201")
KNOWN = ("OOM101", "OOM102", "OOM201", "OOM301")


def of(text: str) -> Source:
    return read_source("/x.py", text.encode())


def finding(row: int, code: str | None = "OOM101", *, end_row: int | None = None, cell: int = 0) -> Finding:
    place = Place("/x.py", cell, row, 1, end_row or row, 2)
    return Finding(code, "x", "m", Severity.WARNING, Confidence.HIGH, place)


def kept(text: str, *findings: Finding) -> list[Finding]:
    """The findings that stay, without reports of unused comments."""
    return list(apply(findings, Suppressions.from_source(of(text)), SELECTED[1:], KNOWN))


def unused(text: str, *findings: Finding, selected: tuple[str, ...] = SELECTED, known: tuple[str, ...] = KNOWN) -> list[Finding]:
    return [each for each in apply(findings, Suppressions.from_source(of(text)), selected, known) if each.code == UNUSED]


def fixed(text: str, *findings: Finding) -> str:
    """The text after the fixes of all reports."""
    source = of(text)
    edits: list[Edit] = [edit for each in unused(text, *findings) if each.fix for edit in each.fix.edits]
    return apply_edits(source, edits).decode()


# Which comments


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NoQA",
        "# noqa : OOM101",
        "# noqa:oom101",
        "# noqa: E501, OOM101",
        "# noqa: E501 OOM1",
        "# noqa: OOM101 because h5py2 is slow",
        "# noqa: persistent-without-workers",
        "# noqa: E501, Persistent-Without-Workers, OOM2 reason",
        "# ruff: noqa: persistent-without-workers",
        "# noqa: no code at all, so like flake8 it silences everything",
        "# type: ignore  # noqa: OOM101",
        "# oomlint: ignore[OOM101]",
        "#oomlint:ignore [ E501 , oom1 ] a reason",
        "# oomlint: ignore",
        "# fmt: skip # oomlint: ignore[OOM]",
        "# oomlint: file-ignore[OOM101]",
        "# flake8: noqa: E501, OOM101",
        "# ruff: noqa: OOM101",
    ],
)
def test_a_comment_that_silences(comment: str) -> None:
    assert kept(f"x = 1  {comment}\n", finding(1)) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501",
        "# noqa: OOM102",
        "# noqa: OOM1010",
        "# noqa: prefetch-without-workers",
        "# noqaX",
        "# the word noqa",
        "# flake8: noqa",
        "# ruff: noqa",
        "# ruff: noqa: E501",
        "# oomlint: ignore[OOM2]",
        "# oomlint: ignore[]",
        "# oomlint: ignored",
        "# oomlint: file-ignore[OOM102]",
        "# Oomlint: ignore",
        "; y = '# noqa'",
    ],
)
def test_a_comment_that_does_not(comment: str) -> None:
    assert kept(f"x = 1  {comment}\n", finding(1)) == [finding(1)]


def test_a_file_that_cannot_be_read_keeps_its_finding() -> None:
    broken = finding(1, None)
    assert kept("def f(:  # noqa\n", broken) == [broken]


def test_comments_to_other_linters_count_for_the_whole_file_with_codes_of_ours() -> None:
    text = "# ruff: noqa: OOM101\nx = 1\n# flake8: noqa: E501, OOM2\n"
    assert kept(text, finding(2), finding(2, "OOM201"), finding(2, "OOM102")) == [finding(2, "OOM102")]
    assert [each.message for each in unused(text)] == [f"Unused suppression: no finding of {code} here" for code in ("OOM101", "OOM2")]
    assert fixed(text) == "x = 1\n# flake8: noqa: E501\n"


# Where they count

CALL = """\
first = 1
loader = DataLoader(  {open}
    dataset,  {inside}
    {alone}
    persistent_workers=True,  {covered}
)  {close}
last = 1
"""


@pytest.mark.parametrize(
    ("spot", "silent"),
    [("open", True), ("close", True), ("covered", True), ("inside", False), ("alone", True)],
)
def test_the_first_and_the_last_line_count_and_those_that_the_finding_covers(spot: str, silent: bool) -> None:  # noqa: FBT001
    places = dict.fromkeys(("open", "inside", "alone", "covered", "close"), "")
    text = CALL.format(**places | {spot: "# oomlint: ignore[OOM101]"})
    keyword = finding(5)
    assert kept(text, finding(1), keyword, finding(7)) == [finding(1), *([] if silent else [keyword]), finding(7)]
    call = finding(2, end_row=6)
    assert kept(text, call) == []


def test_an_entry_has_its_own_comment() -> None:
    text = (
        "loaders = {\n    'a': DataLoader(d),  # noqa: OOM101\n    # oomlint: ignore[OOM101]\n    'b': DataLoader(\n        d),\n    'c': DataLoader(d),\n}\n"
    )
    assert kept(text, finding(2), finding(4, end_row=5), finding(6)) == [finding(6)]


@pytest.mark.parametrize("above", ["# oomlint: ignore[OOM101]\n", "# oomlint: ignore[OOM101]\n# why\n\n"])
def test_a_line_of_its_own_speaks_of_the_whole_logical_line_below(above: str) -> None:
    row = above.count("\n") + 1
    text = f"{above}loader = DataLoader(\n    d,\n    persistent_workers=True)\nlast = 1\n"
    assert kept(text, finding(row), finding(row + 1), finding(row + 2), finding(row + 3)) == [finding(row + 3)]


def test_noqa_on_a_line_of_its_own_speaks_of_nothing() -> None:
    assert kept("# noqa\nx = 1\n", finding(2)) == [finding(2)]
    assert [each.place.row for each in unused("# noqa: OOM101\nx = 1\n", finding(2))] == [1]


def test_of_a_compound_statement_the_header_counts() -> None:
    text = "for batch in DataLoader(\n    d):\n    x.append(batch)  # noqa\n    y = 1\n"
    assert kept(text, finding(1, end_row=4), finding(3)) == [finding(1, end_row=4)]
    text = "for batch in DataLoader(\n    d):  # noqa\n    x.append(batch)\n"
    assert kept(text, finding(1, end_row=3), finding(3)) == [finding(3)]


def test_strings_and_backslashes_belong_to_their_line() -> None:
    text = 'x = f("""\n# noqa\n""")  # noqa: OOM101\ny = 1 + \\\n    2  # noqa: OOM101\n"""\n# oomlint: file-ignore\n"""\nz = 1\n'
    assert kept(text, finding(1), finding(4), finding(9)) == [finding(9)]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends(end: str) -> None:
    text = end.join(["\ufeff# déjà", "x = 1  # noqa: OOM101", "", "\f# oomlint: ignore[OOM101]", "y = f(", "  2)", "z = 3"])
    assert kept(text, finding(2), finding(5), finding(6), finding(7)) == [finding(7)]


def test_what_is_no_program_is_read_line_by_line() -> None:
    text = "x = (  # noqa: OOM101\ny = 1\n# oomlint: ignore[OOM101]\nz = 2\n\tw = '''  # noqa: OOM102\n"
    assert kept(text, finding(1), finding(2), finding(4)) == [finding(2)]
    assert unused(text) == []  # a comment may be the inside of a string: nothing is said of it


def test_a_notebook() -> None:
    cells = ["    # oomlint: ignore[OOM101]", "!ls", "    x = 1  # noqa: OOM102", "%%html\n# noqa", "x = 1\ny = 2  # oomlint: ignore[OOM101]"]
    data = json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})
    source = read_source("/x.ipynb", data.encode())
    findings = [finding(1, cell=3), finding(1, cell=5), finding(2, cell=5)]
    result = apply(findings, Suppressions.from_source(source), SELECTED, KNOWN)
    assert [(each.code, each.place.cell, each.place.row, each.place.column) for each in result] == [
        ("OOM101", 3, 1, 1),
        ("OOM101", 5, 1, 1),
        ("OOM001", 1, 1, 5),
        ("OOM001", 3, 1, 12),
    ]


# Reports


def test_an_unused_comment_is_reported_with_a_safe_fix() -> None:
    (report,) = unused("x = 1\ny = 2  # noqa: OOM101\n", finding(1))
    assert (report.name, report.severity, report.confidence) == ("unused-suppression", Severity.WARNING, Confidence.HIGH)
    assert report.message == "Unused suppression: no finding of OOM101 here"
    assert (report.place.row, report.place.column, report.place.end_column) == (2, 8, 22)
    assert report.fix is not None
    assert report.fix.safety is Safety.SAFE


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # noqa\n",
        "x = 1  # noqa: E501\n",
        "x = 1  # noqa: OOM301\n",
        "x = 1  # noqa: OOM3\n",
        "x = 1  # noqa: OOM\n",
        "x = 1  # oomlint: ignore\n",
        "x = 1  # oomlint: ignore[OOM301]\n",
        "x = 1  # noqa: OOM001\n",
        "x = 1  # noqa: OOM101, OOM001\n",
        "x = 1  # noqa: OOM101  # noqa\n",
        "# oomlint: file-ignore[OOM001]\nx = 1  # noqa: OOM101\n",
        "x = '# noqa: OOM101'\n",
    ],
    ids=lambda text: text.strip(),
)
def test_nothing_is_said_of(text: str) -> None:
    assert unused(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1  # oomlint: ignore[] why\n", [(1, Severity.WARNING)]),
        ("x = 1  # oomlint: noqa\n# oomlint: disable=OOM101\n", [(1, Severity.WARNING), (2, Severity.WARNING)]),
        ("x = 1  # oomlint: ignore OOM101\n", [(1, Severity.WARNING)]),
        ("# ruff: noqa: E501\n# ruff: noqa\nx = 1\n# flake8: noqa\n", [(2, Severity.NOTE)]),
        ("# ruff: noqa: E501\n# oomlint: a linter\nx = 1\n", []),
        ("x = 1  # noqa: persistent-without-workers\n", [(1, Severity.WARNING)]),
    ],
)
def test_what_asks_for_nothing_is_told(text: str, said: list[tuple[int, Severity]]) -> None:
    assert [(each.place.row, each.severity) for each in unused(text)] == said


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("# oomlint: ignore\nimport a\nx = 1\n", []),
        ('#!/usr/bin/env python\n# oomlint: ignore -- generated\n\n"about"\nx = 1\n', []),
        ("# oomlint: ignore[OOM101]\nimport a\nx = 1\n", [3]),
        ("import a\n# oomlint: ignore\n\n\nimport b\nx = 1\n", [6]),
        ("import a  # oomlint: ignore\nx = 1\n", [2]),
        ("y = [\n    # oomlint: ignore\n    1,\n]\nx = 1\n", [5]),
        ("# oomlint: ignore-file\nx = 1\n", [2]),
        ("# oomlint: ignore_all\nx = 1\n", [2]),
    ],
)
def test_a_comment_above_the_first_statement_is_for_the_file_as_mypy_has_it(text: str, rows: list[int]) -> None:
    row = text.split("\n").index("x = 1") + 1
    assert [item.place.row for item in kept(text, finding(row))] == rows


def test_what_was_meant_for_the_file_is_told() -> None:
    (told,) = unused("# oomlint: ignore[OOM101]\nimport a\nx = 1\n")
    assert told.help == "remove what silences nothing, or write `file-ignore` for the whole file"
    assert [item.severity for item in unused("# oomlint: ignore-file\nx = 1\n")] == [Severity.WARNING]
    for text in ("# ruff: noqa\nx = 1\n", "# flake8: noqa\nx = 1\n"):
        assert [item.severity for item in unused(text)] == [Severity.NOTE]
        assert [item.severity for item in unused(text, finding(2))] == [Severity.WARNING], "it may have been meant for what is found"


def test_a_comment_over_a_finding_is_in_use_wherever_it_stands() -> None:
    for text in ("# oomlint: file-ignore[OOM101, OOM1]\nx = 1  # noqa: OOM101\n", "#\nx = 1  # noqa: OOM1  # oomlint: ignore[OOM101]\n"):
        assert unused(text, finding(2)) == []


def test_nothing_is_reported_where_the_report_is_not_selected() -> None:
    assert unused("x = 1  # noqa: OOM101\n", selected=("OOM101",)) == []


def test_prefixes_are_unused_where_every_rule_of_theirs_ran() -> None:
    assert len(unused("x = 1  # noqa: OOM1\n")) == 1
    assert unused("x = 1  # noqa: OOM1\n", selected=("OOM001", "OOM101")) == []
    assert len(unused("x = 1  # noqa: OOM1\n", selected=("OOM001", "OOM101"), known=())) == 1


def test_codes_that_do_not_exist_are_reported() -> None:
    (report,) = unused("x = 1  # oomlint: ignore[OOM999, workers, OOM101, E501]\n")
    assert report.message == "Unused suppression: no finding of OOM101 here, and no rule is named OOM999, WORKERS"
    assert unused("x = 1  # oomlint: ignore[LAB101]\n") == [], "a plugin may have it that is not here"
    assert unused("x = 1  # oomlint: ignore[OOM999, workers]\n", known=()) == []
    assert unused("x = 1  # noqa: OOM999\n")[0].message == "Unused suppression: no rule is named OOM999"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # noqa: OOM101\n", "x = 1\n"),
        ("x = 1  # noqa: OOM101", "x = 1"),
        ("x = 1\t#noqa:OOM101, OOM102\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = 1  # noqa: E501,OOM101,W291\n", "x = 1  # noqa: E501,W291\n"),
        ("x = 1  # noqa: OOM101 OOM102 E501\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # noqa: E501, oom101, OOM102\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # type: ignore  # noqa: OOM101\n", "x = 1  # type: ignore\n"),
        ("x = 1  # noqa: OOM101  # type: ignore\n", "x = 1  # type: ignore\n"),
        ("x = 1  # a  # oomlint: ignore[OOM101]  # b\n", "x = 1  # a  # b\n"),
        ("x = 1  # oomlint: ignore[OOM101] the set is tiny\n", "x = 1  # the set is tiny\n"),
        ("if x:\n    # oomlint: ignore[OOM101]\n    y = 1\n", "if x:\n    y = 1\n"),
        ("x = 1\n# oomlint: file-ignore[OOM101]", "x = 1\n"),
        ("f(\n    # oomlint: ignore[OOM101]\n    x)\n", "f(\n    x)\n"),
        ("é = '中'  # noqa: OOM101\n", "é = '中'\n"),
        ("\fx = 1  # noqa: OOM101\n\f\n", "\fx = 1\n\f\n"),
    ],
)
def test_the_fix_takes_away_what_is_unused_and_nothing_else(before: str, after: str) -> None:
    assert fixed(before) == after
    assert fixed(after) == after


def test_the_fix_keeps_the_codes_in_use() -> None:
    assert fixed("x = 1  # oomlint: ignore[OOM102, OOM101]\n", finding(1)) == "x = 1  # oomlint: ignore[OOM101]\n"


# Cost


def test_files_without_such_comments_are_not_read_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomlint.suppress._by_tokens", lambda _: pytest.fail("read as tokens"))
    assert kept("x = 1  # VQA, squad\n", finding(1)) == [finding(1)]
    assert unused("x = 1  # noqa: E501\nroom = 'zoom'  # noqa\n") == []


def test_the_search_finds_every_spelling() -> None:
    for comment in ("# nOqA: oOm101", "# NOQA:OOM101", "# oomlint : ignore[oom101]"):
        assert Suppressions.from_source(of(f"x = 1  {comment}\n")).reportable
    assert not Suppressions.from_source(of("x = 1  # noqa: E501\n")).reportable
    assert not Suppressions.from_source(of((Path(__file__).parent.parent / "oomlint/finding.py").read_text(encoding="utf-8"))).present


LINES = st.lists(
    st.sampled_from(["x = 1", "if x:", "    y = (", "  )", "'''", "# noqa: OOM101", "# oomlint: ignore[OOM101, OOM102]", "\\", "\t", "\f", "é"]), max_size=8
)


@given(LINES, st.integers(1, 9), st.sampled_from(["\n", "\r\n", "  "]))
def test_whatever_the_text_it_is_read_and_its_fixes_apply(lines: list[str], row: int, end: str) -> None:
    text = end.join(lines)
    result = apply([finding(row)], Suppressions.from_source(of(text)), SELECTED, KNOWN)
    assert len([each for each in result if each.code == "OOM101"]) <= 1
    again = text
    for _ in range(20):  # a comment may hold several requests: one of them goes in a round
        reports = [each for each in unused(again) if each.fix]
        if not reports:
            break
        assert reports[0].fix is not None
        again = apply_edits(of(again), reports[0].fix.edits).decode()
    assert unused(again) == []


def test_a_comment_at_another_place_of_a_problem_silences_that_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from torch.utils.data import DataLoader\ndef train(model, data, optimizer):\n    kept, others = [], []\n    for x in DataLoader(data):\n"
        "        loss = model(x).sum()\n        loss.backward()\n        optimizer.step()\n        kept.append(loss)\n"
        "        others.append(loss)  # oomlint: ignore[OOM202]\n    return kept, others\n"
    )
    done = runs(capsys, "check", "--isolated", "--no-cache", str(tmp_path))("--fix")
    assert "OOM001" not in done.out
    text = (tmp_path / "a.py").read_text()
    assert "kept.append(loss.detach())" in text
    assert "others.append(loss)  # oomlint: ignore[OOM202]" in text
