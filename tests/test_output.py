"""Findings to text, in every format."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from oomlint import facts
from oomlint.finding import (
    AllocationFact,
    AttributeFact,
    ByteSize,
    Confidence,
    Consequence,
    ContentKind,
    DatasetFact,
    Edit,
    Factor,
    Finding,
    Fix,
    HandleFact,
    LoaderFact,
    LoopFact,
    LoopKind,
    Multiplier,
    Place,
    RanksFact,
    ReadFact,
    Resource,
    Safety,
    Severity,
    StoreFact,
    StoreKind,
    Weight,
    WorkerCount,
)
from oomlint.fixing import Change
from oomlint.output import concise, diff, full, github, json_array, statistics, summary
from oomlint.output.json_schema import schema
from oomlint.output.printer import Printer, wants_color
from oomlint.output.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oomlint.output.view import Line

TRAIN = """\
import torch
from torch.utils.data import DataLoader

from cli import args

loader = DataLoader(dataset, num_workers=args.workers, persistent_workers=True)
"""
CLI = """\
parser = argparse.ArgumentParser()
parser.add_argument("--workers", default=0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    (tmp_path / "cli.py").write_text(CLI)
    return tmp_path


@pytest.fixture
def view(folder: Path) -> View:
    return View(str(folder))


@pytest.fixture
def finding(folder: Path) -> Finding:
    train = str(folder / "src" / "train.py")
    return Finding(
        "OOM101",
        "persistent-without-workers",
        "`persistent_workers=True` requires `num_workers > 0`",
        Severity.ERROR,
        Confidence.HIGH,
        Place(train, 0, 6, 10, 6, 80),
        (Place(str(folder / "cli.py"), 0, 2, 34, 2, 43, "`--workers` is 0 by default"),),
        Fix(Safety.SAFE, "Keep workers alive only where there are some", (Edit(Place(train, 0, 6, 75, 6, 79), "args.workers > 0"),)),
        consequence="`DataLoader` fails",
        help="Keep workers alive only where there are some",
    )


def of(folder: Path, text: str | bytes, place: tuple[int, int, int, int], *, name: str = "x.py", cell: int = 0, fix: Fix | None = None) -> Finding:
    """A finding in a file of its own."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    help_ = fix.message if fix is not None else ""
    return Finding("OOM901", "made-up", "message", Severity.WARNING, Confidence.MEDIUM, Place(str(path), cell, *place), (), fix, help=help_)


def unreadable(folder: Path) -> Finding:
    return Finding(None, "cannot-check", "not valid Python 3: invalid syntax", Severity.ERROR, Confidence.HIGH, Place(str(folder / "x.py"), 0, 3, 7, 3, 7))


def plain(lines: Iterable[Line]) -> str:
    stream = io.StringIO()
    Printer(stream, color=False).lines(lines)
    return stream.getvalue()


# -- full -------------------------------------------------------------------------------------------------------------


def test_full_tells_the_whole_story(finding: Finding, view: View) -> None:
    assert plain(full.lines([finding], view)) == snapshot("""\
src/train.py:6:10: OOM101 error `persistent_workers=True` requires `num_workers > 0`
  `DataLoader` fails
  |
6 | loader = DataLoader(dataset, num_workers=args.workers, persistent_workers=True)
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  ::: cli.py:2:34: `--workers` is 0 by default
  |
2 | parser.add_argument("--workers", default=0)
  |                                  ---------
  |
  = help: Keep workers alive only where there are some (safe fix)
  |
6 - loader = DataLoader(dataset, num_workers=args.workers, persistent_workers=True)
6 + loader = DataLoader(dataset, num_workers=args.workers, persistent_workers=args.workers > 0)

""")


def test_full_says_why_a_file_cannot_be_checked_in_one_line(folder: Path, view: View) -> None:
    assert plain(full.lines([unreadable(folder)], view)) == snapshot("x.py:3:7: cannot check: not valid Python 3: invalid syntax\n")


def test_a_span_of_several_rows_is_bracketed(folder: Path, view: View) -> None:
    call = of(folder, "loader = DataLoader(\n    dataset,\n    num_workers=0,\n)\n", (1, 10, 4, 2))
    whole = of(folder, "for batch in loader:\n    losses.append(loss)\n", (1, 1, 2, 24), name="y.py")
    assert plain(full.lines([call, whole], view)) == snapshot("""\
x.py:1:10: OOM901 warning message
  |
1 |   loader = DataLoader(
  |  __________^
2 | |     dataset,
3 | |     num_workers=0,
4 | | )
  | |_^

y.py:1:1: OOM901 warning message
  |
1 | / for batch in loader:
2 | |     losses.append(loss)
  | |_______________________^

""")


def test_a_long_span_is_folded(folder: Path, view: View) -> None:
    rows = "".join(f"    option_{number}={number},\n" for number in range(20))
    assert plain(full.lines([of(folder, f"loader = DataLoader(\n{rows})\n", (1, 10, 22, 2))], view)) == snapshot("""\
x.py:1:10: OOM901 warning message
   |
 1 |   loader = DataLoader(
   |  __________^
 2 | |     option_0=0,
 3 | |     option_1=1,
 4 | |     option_2=2,
 5 | |     option_3=3,
 6 | |     option_4=4,
   | | ...
22 | | )
   | |_^

""")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("\tif x:\n", (1, 5, 1, 6)),
        ("a\tb = x\n", (1, 7, 1, 8)),
        ("名前 = '値'; x\n", (1, 11, 1, 12)),
        ("e\u0301 = x\n", (1, 6, 1, 7)),
        ("\U0001f642 = x\n", (1, 5, 1, 6)),
        ("\x1b[2J\u202ex\n", (1, 6, 1, 7)),
        ("\x0c\x00x\n", (1, 3, 1, 4)),
    ],
    ids=["tab", "tab inside", "wide", "combining", "emoji", "control characters", "form feed"],
)
def test_a_caret_stands_below_its_character(folder: Path, view: View, text: str, place: tuple[int, int, int, int]) -> None:
    from rich.cells import cell_len  # noqa: PLC0415 - a second opinion on the width of characters

    view = View(str(folder), {str(folder / "x.py"): text.replace("\x00", "\x01").encode()})
    shown = plain(full.lines([of(folder, text, place)], view)).splitlines()
    row, carets = next((row, shown[number + 1]) for number, row in enumerate(shown) if row.startswith("1 |"))
    assert carets.count("^") == 1
    assert cell_len(row[: row.rindex("x")]) == carets.index("^")
    assert all(char.isprintable() for char in row)


def test_a_very_long_row_is_cut_around_its_caret(folder: Path, view: View) -> None:
    shown = plain(full.lines([of(folder, "x" * 500 + "HERE" + "y" * 500, (1, 501, 1, 505))], view)).splitlines()
    assert max(map(len, shown)) < full.WIDEST + 20
    assert shown[2][shown[3].index("^") : shown[3].rindex("^") + 1] == "HERE"


def test_a_place_in_a_notebook_names_its_cell(folder: Path, view: View) -> None:
    cells = [{"cell_type": "markdown", "source": "# x"}, {"cell_type": "code", "source": ["import x\n", "loader = 1"]}]
    notebook = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    fix = Fix(Safety.UNSAFE, "Fix it", (Edit(Place(str(folder / "x.ipynb"), 2, 2, 10, 2, 11), "2"),))
    assert plain(full.lines([of(folder, notebook, (2, 1, 2, 7), name="x.ipynb", cell=2, fix=fix)], view)) == snapshot("""\
x.ipynb:cell 2:2:1: OOM901 warning message
  |
2 | loader = 1
  | ^^^^^^
  |
  = help: Fix it (unsafe fix)
  |
2 - loader = 1
2 + loader = 2

""")


def test_a_fix_in_several_places_and_files_is_one_small_diff(folder: Path, view: View) -> None:
    x, cli = str(folder / "x.py"), str(folder / "cli.py")
    edits = (
        Edit(Place(x, 0, 1, 1, 1, 1), "import os\n"),
        Edit(Place(x, 0, 5, 1, 6, 1), ""),
        Edit(Place(x, 0, 6, 3, 6, 3), "ix"),
        Edit(Place(cli, 0, 2, 42, 2, 43), "4"),
    )
    found = of(folder, "import re\n2\n3\n4\nfive\nsix\n", (6, 1, 6, 4), fix=Fix(Safety.UNSAFE, "Do otherwise", edits))
    assert plain(full.lines([found], view)) == snapshot("""\
x.py:6:1: OOM901 warning message
  |
6 | six
  | ^^^
  |
  = help: Do otherwise (unsafe fix)
  |
1 + import os
2 | import re
  | ...
5 - five
6 - six
6 + siixx
  |
  ::: cli.py:2:42
  |
2 - parser.add_argument("--workers", default=0)
2 + parser.add_argument("--workers", default=4)

""")


def test_help_without_edits_is_a_line(folder: Path, view: View) -> None:
    found = of(folder, "x\n", (1, 1, 1, 2), fix=Fix(Safety.DISPLAY, "Pack the strings into one array"))
    assert plain(full.lines([found], view)) == snapshot("""\
x.py:1:1: OOM901 warning message
  |
1 | x
  | ^
  |
  = help: Pack the strings into one array

""")


def test_a_file_that_is_gone_takes_only_its_code_along(finding: Finding, folder: Path, view: View) -> None:
    for name in ("src/train.py", "cli.py"):
        (folder / name).unlink()
    assert plain(full.lines([finding], view)) == snapshot("""\
src/train.py:6:10: OOM101 error `persistent_workers=True` requires `num_workers > 0`
  `DataLoader` fails
  |
  ::: cli.py:2:34: `--workers` is 0 by default
  |
  = help: Keep workers alive only where there are some (safe fix)

""")


# -- other formats ----------------------------------------------------------------------------------------------------


def test_concise_is_one_line_a_finding(finding: Finding, folder: Path, view: View) -> None:
    odd = of(folder, "", (1, 1, 1, 1), name="new\nline.py")
    assert plain(concise.lines([finding, unreadable(folder), odd], view)) == snapshot("""\
src/train.py:6:10: OOM101 error [*] `persistent_workers=True` requires `num_workers > 0`: `DataLoader` fails
x.py:3:7: cannot check: not valid Python 3: invalid syntax
new␊line.py:1:1: OOM901 warning message
""")


def test_json_holds_everything(finding: Finding, view: View) -> None:
    assert json.loads(json_array.text([finding], view)) == snapshot(
        [
            {
                "code": "OOM101",
                "name": "persistent-without-workers",
                "message": "`persistent_workers=True` requires `num_workers > 0`: `DataLoader` fails",
                "headline": "`persistent_workers=True` requires `num_workers > 0`",
                "consequence": "`DataLoader` fails",
                "help": "Keep workers alive only where there are some",
                "severity": "error",
                "confidence": "high",
                "filename": "src/train.py",
                "cell": None,
                "location": {"row": 6, "column": 10},
                "end_location": {"row": 6, "column": 80},
                "related": [
                    {
                        "filename": "cli.py",
                        "cell": None,
                        "location": {"row": 2, "column": 34},
                        "end_location": {"row": 2, "column": 43},
                        "message": "`--workers` is 0 by default",
                    }
                ],
                "fix": {
                    "safety": "safe",
                    "message": "Keep workers alive only where there are some",
                    "edits": [
                        {
                            "filename": "src/train.py",
                            "cell": None,
                            "location": {"row": 6, "column": 75},
                            "end_location": {"row": 6, "column": 79},
                            "content": "args.workers > 0",
                        }
                    ],
                },
                "facts": [],
                "weight": None,
                "url": "docs/rules/OOM101.md",
                "fixed_by": "--fix",
            }
        ]
    )


def test_json_is_what_its_schema_says(finding: Finding, view: View, folder: Path) -> None:
    Draft202012Validator.check_schema(schema())
    validator = Draft202012Validator(schema())
    place = Place(str(folder / "cli.py"), 0, 2, 1, 2, 5)
    told = (
        LoaderFact(place, "DataLoader", "timeout", (WorkerCount(0, place=place), WorkerCount(None, per_processor=True, usual=False)), ("fork", "spawn")),
        DatasetFact(place, "Outer.Inner"),
        AttributeFact("items", "Inner", ContentKind.OBJECTS, "strings", 3, ByteSize(None, "N * 4"), ("spawn",), place),
        LoopFact(place, LoopKind.EPOCH, "range(3)"),
        StoreFact(place, "losses", StoreKind.APPEND),
        ReadFact(place, "np.load", ByteSize(12), place),
        AllocationFact(place, ByteSize(12)),
        HandleFact(place, "h5", ByteSize(1), in_core=False),
        RanksFact(8, place),
    )
    assert {fact.noun for fact in told} == set(facts.NOUNS)
    weight = Weight(Consequence.MULTIPLIED, Resource.ARRAYS, ByteSize(None, "N * 4", 400), (Factor(Multiplier.WORKERS, 8), Factor(Multiplier.STEPS)))
    for one in (finding, replace(finding, facts=told, weight=weight), replace(finding, fix=None), unreadable(folder)):
        written = json.loads(json_array.text([one], view))
        validator.validate(written)
        assert [item["noun"] for item in written[0]["facts"]] == [fact.noun for fact in one.facts]
        assert not validator.is_valid([{**written[0], "colour": "red"}])
    (entry,) = json.loads(json_array.text([replace(finding, weight=weight)], view))
    assert entry["weight"] == {
        "consequence": "multiplied",
        "of": "arrays",
        "bytes": {"exact": None, "formula": "N * 4", "least": 400},
        "factors": [{"by": "workers", "count": 8}, {"by": "steps", "count": None}],
        "total": 3200,
    }
    broken = json.loads(json_array.text([replace(finding, facts=told)], view))
    broken[0]["facts"][0]["workers"][0]["count"] = "none"
    assert not validator.is_valid(broken)


def test_json_of_a_file_that_cannot_be_checked(folder: Path, view: View) -> None:
    (entry,) = json.loads(json_array.text([unreadable(folder)], view))
    assert (entry["code"], entry["message"], entry["fix"], entry["url"]) == (None, "not valid Python 3: invalid syntax", None, None)


def test_json_of_a_notebook_has_the_cell(folder: Path, view: View) -> None:
    found = of(folder, "{}", (2, 1, 2, 7), name="x.ipynb", cell=3)
    assert json.loads(json_array.text([found], view))[0]["cell"] == 3


def test_json_of_nothing_is_an_empty_array(view: View) -> None:
    assert json_array.text([], view) == "[]\n"


def test_json_is_ascii_so_that_any_stream_takes_it(folder: Path, view: View) -> None:
    found = of(folder, "", (1, 1, 1, 1), name="名\udcff.py")
    text = json_array.text([found], view)
    assert text.isascii()
    assert json.loads(text)[0]["filename"] == "名\udcff.py"


def test_a_name_outside_of_the_folder_goes_up(finding: Finding, folder: Path) -> None:
    (entry,) = json.loads(json_array.text([finding], View(str(folder / "src"))))
    assert (entry["filename"], entry["related"][0]["filename"]) == ("train.py", "../cli.py")


def test_github_annotates_relative_to_the_repository(finding: Finding, folder: Path) -> None:
    (folder / ".git").mkdir()
    rows = of(folder, "a\nb\n", (1, 1, 2, 2), name="50%,a:b.py")
    cell = of(folder, "{}", (2, 1, 2, 7), name="x.ipynb", cell=3)
    said = github.text([finding, unreadable(folder), rows, cell], View(str(folder / "src")))
    assert said == snapshot("""\
::error title=oomlint (OOM101),file=src/train.py,line=6,col=10,endLine=6,endColumn=80::`persistent_workers=True` requires `num_workers > 0`: `DataLoader` fails\
%0Ahelp: Keep workers alive only where there are some (safe fix)
::error title=oomlint,file=x.py,line=3,col=7,endLine=3,endColumn=7::cannot check: not valid Python 3: invalid syntax
::warning title=oomlint (OOM901),file=50%25%2Ca%3Ab.py,line=1,endLine=2::message
::warning title=oomlint (OOM901),file=x.ipynb,line=1::cell 3, 2:1: message
""")


def test_github_escapes_what_would_end_a_command(folder: Path, view: View) -> None:
    found = Finding("OOM901", "x", "100%\r\n::error::", Severity.NOTE, Confidence.LOW, Place(str(folder / "x.py"), 0, 1, 1, 1, 2))
    assert github.text([found], view).endswith("::100%25%0D%0A::error::\n")
    assert github.text([found], view).startswith("::notice ")


def test_statistics_count_by_rule(finding: Finding, folder: Path) -> None:
    found = [finding, *[of(folder, "", (1, 1, 1, 1))] * 11, unreadable(folder)]
    assert plain(statistics.lines(found)) == snapshot("""\
11  OOM901  made-up
 1  -  cannot-check
 1  OOM101  persistent-without-workers (up to 1 fixable)
""")
    assert json.loads(statistics.text(found))[0] == {"code": "OOM901", "name": "made-up", "severity": "warning", "count": 11, "fixable": 0}


def test_a_diff_is_one_that_patch_reads(folder: Path, view: View) -> None:
    path = str(folder / "src" / "train.py")
    change = Change(path, "utf-8", b"a\r\n-- x\nend", b"a\r\nb\nend!")
    assert plain(diff.lines([change], view)) == snapshot("""\
--- src/train.py
+++ src/train.py
@@ -1,3 +1,3 @@
 a\r
--- x
-end
\\ No newline at end of file
+b
+end!
\\ No newline at end of file
""")


# -- summary ----------------------------------------------------------------------------------------------------------


def graded(folder: Path, severity: Severity, safety: Safety | None = None) -> Finding:
    place = Place(str(folder / "x.py"), 0, 1, 1, 1, 2)
    fix = Fix(safety, "", (Edit(place, ""),)) if safety else None
    return Finding("OOM901", "made-up", "", severity, Confidence.HIGH, place, (), fix)


@pytest.mark.parametrize(
    ("what", "options", "text"),
    [
        ([], {"files": 12}, "No findings in 12 files."),
        ([(Severity.ERROR, None)], {}, "Found 1 error in 1 file (3 checked)."),
        (
            [(Severity.ERROR, Safety.SAFE), (Severity.ERROR, None), (Severity.NOTE, None)],
            {},
            "Found 2 errors and 1 note in 1 file (3 checked); up to 1 fixable with --fix.",
        ),
        (
            [(Severity.ERROR, Safety.SAFE), (Severity.WARNING, Safety.UNSAFE), (Severity.NOTE, Safety.DISPLAY)],
            {},
            "Found 1 error, 1 warning and 1 note in 1 file (3 checked); up to 1 fixable with --fix, 1 more with --unsafe-fixes.",
        ),
        ([(Severity.WARNING, Safety.UNSAFE)], {}, "Found 1 warning in 1 file (3 checked); up to 1 fixable with --fix --unsafe-fixes."),
        (
            [(Severity.WARNING, Safety.SAFE), (Severity.WARNING, Safety.UNSAFE)],
            {"tried": [Safety.SAFE]},
            "Found 2 warnings in 1 file (3 checked); up to 1 fixable with --fix --unsafe-fixes.",
        ),
        (None, {}, "1 file could not be checked."),
    ],
)
def test_the_summary_counts(folder: Path, what: list[tuple[Severity, Safety | None]] | None, options: dict[str, Any], text: str) -> None:
    found = [unreadable(folder)] if what is None else [graded(folder, *each) for each in what]
    given: dict[str, Any] = {"files": 3, **options}
    assert plain(summary.lines(found, **given)) == text + "\n"


def test_the_summary_of_a_fixed_run(folder: Path, view: View) -> None:
    fixed = [graded(folder, Severity.ERROR, Safety.SAFE)] * 2
    assert plain(summary.lines([], 3, fixed=fixed, left_out=2)) == "Fixed 2 findings in 1 file; 2 fixes left out.\n"
    assert plain(summary.fixed_lines(fixed, view)) == "x.py:\n  2 OOM901 made-up\n"


# -- colour -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_when_there_is_colour(monkeypatch: pytest.MonkeyPatch, choice: str, environment: dict[str, str], terminal: bool, wanted: bool) -> None:  # noqa: FBT001
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(choice, Terminal() if terminal else io.StringIO()) is wanted


def test_colour_changes_nothing_but_colour(finding: Finding, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # decided before, and not asked again
    stream = io.StringIO()
    Printer(stream, color=True).lines([*full.lines([finding], view), (("[tool.oomlint] " * 20, "bold"),)])
    text = stream.getvalue()
    assert "\x1b[1;31mOOM101 error\x1b[0m" in text
    bare = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert bare == plain(full.lines([finding], view)) + "[tool.oomlint] " * 20 + "\n"
