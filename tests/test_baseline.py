"""The baseline: what is known is neither shown nor fixed, whatever becomes of the rows around it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

from oomlint import basis, registry
from oomlint.config import load_settings
from oomlint.settings import BASELINE as NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IMPORT = "from torch.utils.data import DataLoader\n"
DATA = "from given import data\n"
BAD = "loader = DataLoader(data, num_workers=0, persistent_workers=True)\n"
HOW = f'; with `baseline = "{NAME}"` in oomlint.toml or [tool.oomlint], runs and hooks leave these findings out\n'
NEW = "def fit(data):\n    return DataLoader(data, num_workers=0, persistent_workers=True, batch_size=8)\n"
FIXED = BAD.replace(", persistent_workers=True", "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\n')
    (tmp_path / "a.py").write_text(IMPORT + BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--output-format", "concise")


@pytest.fixture
def known(run: Callable[..., Done]) -> Callable[..., Done]:
    """A run with the baseline that was written first."""
    assert run("--write-baseline") == (0, "", f"oomlint: wrote 1 finding to {NAME}{HOW}")

    def call(*words: str) -> Done:
        return run("--baseline", NAME, *words)

    return call


def test_what_is_known_is_not_shown(folder: Path, known: Callable[..., Done], run: Callable[..., Done]) -> None:
    assert known() == (0, "No findings in 1 file.\n1 known finding not shown.\n", "")
    assert known("-q") == (0, "", "")
    assert run().status == 1
    (entry,) = json.loads((folder / NAME).read_text())["findings"]
    assert {**entry, "fingerprint": ""} == {
        "file": "a.py",
        "definition": "",
        "code": "OOM101",
        "name": "persistent-without-workers",
        "severity": "error",
        "confidence": "high",
        "fingerprint": "",
    }


def test_a_command_writes_it_too(folder: Path, run: Callable[..., Done], capsys: pytest.CaptureFixture[str]) -> None:
    run("--write-baseline")
    written = (folder / NAME).read_text()
    (folder / NAME).unlink()
    baseline = runs(capsys, "baseline")
    assert baseline() == (0, "", f"oomlint: wrote 1 finding to {NAME}{HOW}")
    assert (folder / NAME).read_text() == written
    assert baseline("--ignore=OOM101", "--baseline", "other.json").err == "oomlint: wrote 0 findings to other.json\n"
    assert baseline("--fix").status == 2


def test_what_is_new_is_shown(folder: Path, known: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(IMPORT + "\n\n# more\n" + NEW + BAD)
    status, out, err = known()
    assert (status, err) == (1, "")
    assert out.startswith("a.py:6:12: OOM101 error [*] ")
    assert out.endswith("Found 1 error in 1 file; up to 1 fixable with --fix.\n1 known finding not shown.\n")
    (folder / "a.py").write_text(IMPORT + BAD + BAD)
    assert known().out.startswith("a.py:3:10: OOM101 error")


def test_a_formatter_brings_nothing_up(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(
        f"{IMPORT}def fit ( data ) :\n  if data : return ( DataLoader ( data , num_workers = 0 , persistent_workers = True , generator = 'x' 'y' ) ) ; x ( )\n"
    )
    cell: dict[str, object] = {
        "cell_type": "code",
        "source": (IMPORT + BAD).replace("data,", "( data ) ,"),
        "outputs": [],
        "metadata": {},
        "execution_count": None,
    }
    (folder / "b.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    run("--write-baseline")
    before = (folder / "a.py").read_text(), (folder / "b.ipynb").read_text()
    subprocess.run([sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "30", "."], check=True, capture_output=True)
    assert (folder / "a.py").read_text() != before[0]
    assert (folder / "b.ipynb").read_text() != before[1]
    assert run("--baseline", NAME) == (0, "No findings in 2 files.\n2 known findings not shown.\n", "")


def test_what_is_gone_is_said_in_a_line(folder: Path, known: Callable[..., Done], run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(IMPORT + FIXED)
    line = f"oomlint: 1 finding of {NAME} is gone; --write-baseline takes it out\n"
    assert known() == (0, "No findings in 1 file.\n", line)
    assert known("--select", "OOM102").err == ""
    (folder / "b.py").write_text("")
    assert known("b.py").err == "", "nobody has looked"
    (folder / "a.py").unlink()
    assert known("b.py").err == ""
    assert known().err == line
    assert run("--write-baseline").err == f"oomlint: wrote 0 findings to {NAME}{HOW}"
    assert (folder / NAME).read_text() == '{\n "version": 1,\n "findings": []\n}\n'
    assert known() == (0, "No findings in 1 file.\n", "")


def test_what_a_run_does_not_look_at_stays(folder: Path, known: Callable[..., Done], run: Callable[..., Done]) -> None:
    (folder / "b.py").write_text(IMPORT + NEW)
    assert run("--write-baseline", "b.py").err == f"oomlint: wrote 1 finding to {NAME}{HOW}"
    assert run("--write-baseline", "--select", "OOM102").err == f"oomlint: wrote 0 findings to {NAME}{HOW}"
    assert known() == (0, "No findings in 2 files.\n2 known findings not shown.\n", "")


@pytest.mark.parametrize("words", [("--per-file-ignores", "*.py:OOM101"), ("--per-file-ignores=a.py:ALL",), ("--config", "small-elements = 9")])
def test_what_a_run_asks_otherwise_is_not_gone(folder: Path, known: Callable[..., Done], run: Callable[..., Done], words: tuple[str, ...]) -> None:
    assert known(*words).err == ""
    (folder / "a.py").write_text(IMPORT + FIXED)
    assert known(*words).err == ""
    run("--write-baseline", *words)
    (folder / "a.py").write_text(IMPORT + BAD)
    assert known() == (0, "No findings in 1 file.\n1 known finding not shown.\n", "")


def test_what_a_broken_file_had_is_not_gone(folder: Path, known: Callable[..., Done], run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(IMPORT + BAD + "x = (\n")
    assert known("-q").status == 1
    assert known().err == ""
    assert run("--write-baseline").err == f"oomlint: wrote 0 findings to {NAME}{HOW}"
    (folder / "a.py").write_text(IMPORT + BAD)
    assert known() == (0, "No findings in 1 file.\n1 known finding not shown.\n", "")


def test_nothing_is_written_where_a_rule_fails(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(registry.load("OOM101"), "check", fail)
    status, _, err = run("--write-baseline", "--no-cache")
    assert status == 2
    assert err.splitlines()[0] == f"oomlint: {NAME} is not written: nobody knows what a rule that failed would have found"
    assert not (folder / NAME).exists()


def test_writing_it_leaves_the_cache_as_good_as_it_was(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis, "FRESH", 0)
    settings = load_settings(None, False, folder)[0].as_table()  # noqa: FBT003
    before = basis.state_of(str(folder), "", settings, ())
    run("--write-baseline", "--no-cache")
    assert (folder / NAME).is_file()
    assert before is not None
    after = basis.state_of(str(folder), "", settings, ())
    assert after is not None
    assert after.files == before.files


def test_what_is_known_is_not_fixed(folder: Path, known: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(IMPORT + DATA + BAD + NEW)
    status, out, err = known("--fix")
    assert (status, err) == (0, "")
    assert out == "Fixed 1 finding in 1 file.\n1 known finding neither shown nor fixed.\n"
    assert (folder / "a.py").read_text() == IMPORT + DATA + BAD + NEW.replace(", persistent_workers=True", "")
    (folder / "a.py").write_text(IMPORT + DATA + BAD + NEW)
    status, out, _ = known("--diff")
    assert (status, out.count("\n-"), out.count("\n+")) == (1, 1, 2)


def test_what_cannot_be_read_is_not_written(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "b.py").write_text("num_workers = (\n")
    status, out, err = run("--write-baseline")
    assert (status, err) == (1, f"oomlint: wrote 1 finding to {NAME}{HOW}")
    assert out.startswith("b.py:1:15: cannot check"), "what cannot be read is never known"


def test_settings_name_the_baseline(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\nbaseline = "old/known.json"\n')
    assert run() == (2, "", "oomlint: error: baseline: old/known.json: No such file or directory; --write-baseline makes it\n")
    (folder / "old").mkdir()
    monkeypatch.chdir(folder / "old")
    assert run("--write-baseline", "..").err == "oomlint: wrote 1 finding to known.json\n"
    monkeypatch.chdir(folder)
    assert run().status == 0
    assert json.loads((folder / "old" / "known.json").read_text())["findings"][0]["file"] == "../a.py"


def test_findings_that_are_told_once_are_known_one_by_one(folder: Path, run: Callable[..., Done]) -> None:
    for name in "bcdefg":
        (folder / f"{name}.py").write_text(f"{IMPORT}def f(data):\n    {BAD}")
    (folder / "a.py").unlink()
    assert run("--write-baseline").err == f"oomlint: wrote 1 finding at 6 places to {NAME}{HOW}", "as many as a check shows"
    assert len(json.loads((folder / NAME).read_text())["findings"]) == 6
    (folder / "b.py").unlink()
    assert run("--baseline", NAME).out == "No findings in 5 files.\n1 known finding not shown.\n"


LOOP = (
    "from torch.utils.data import DataLoader\ndef train(model, data, optimizer):\n    kept, others = [], []\n    for x in DataLoader(data):\n"
    "        loss = model(x).sum()\n        loss.backward()\n        optimizer.step()\nSTORES    return kept, others\n"
)
KNOWN, ADDED = "        kept.append(loss)\n", "        others.append(loss)\n"


@pytest.mark.parametrize("stores", [KNOWN + ADDED, ADDED + KNOWN], ids=["behind", "before"])
def test_a_new_place_of_a_known_problem_is_shown(folder: Path, run: Callable[..., Done], stores: str) -> None:
    (folder / "a.py").write_text(LOOP.replace("STORES", KNOWN))
    words = ("--select", "OOM202", "--baseline", NAME)
    assert run(*words, "--write-baseline").status == 0
    assert run(*words).status == 0
    (folder / "a.py").write_text(LOOP.replace("STORES", stores))
    done = run(*words)
    assert (done.status, done.err) == (1, "")  # and nothing is gone
    assert "Found 1 warning in 1 file" in done.out
    (folder / "a.py").write_text(LOOP.replace("STORES", KNOWN))
    assert run(*words).status == 0


@pytest.mark.usefixtures("known")
def test_standard_input_has_known_findings() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", "check", "--baseline", NAME, "-q", "--stdin-filename", "a.py", "-"],
        input=IMPORT + "\n" + BAD,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "not a baseline of oomlint: not valid JSON at row 1, column 1: Expecting value"),
        ("<<<<<<< HEAD\n", "not a baseline of oomlint: not valid JSON at row 1, column 1: Expecting value"),
        ("[]", "not a baseline of oomlint: no list of findings"),
        ('{"version": 9, "findings": []}', "not a baseline of oomlint that this version reads: its format is 9, not 1"),
        ('{"version": 1, "findings": [1]}', "not a baseline of oomlint: entry 1 of its findings does not fit"),
        ('{"version": 1, "findings": [{"file": "a.py"}]}', "not a baseline of oomlint: entry 1 of its findings does not fit"),
        ("\xff", "not a baseline of oomlint: not valid JSON"),
        (None, "No such file or directory; --write-baseline makes it"),
    ],
)
def test_a_baseline_that_is_none_is_one_line(folder: Path, run: Callable[..., Done], content: str | None, cause: str) -> None:
    if content is not None:
        (folder / "x.json").write_bytes(content.encode("latin-1"))
    status, out, err = run("--baseline", "x.json", "--fix")
    assert (status, out) == (2, "")
    assert err.startswith("oomlint: error: ")
    assert "x.json: " + cause in err
    assert err.count("\n") == 1
    assert (folder / "a.py").read_text() == IMPORT + BAD
    if content is not None and content.startswith('{"version": 1') | (not content):
        assert run("--baseline", "x.json", "--write-baseline").status == 0
        assert run("--baseline", "x.json").status == 0
    elif content is not None:
        assert run("--baseline", "x.json", "--write-baseline").status == 2, "it may be anything"
        assert (folder / "x.json").read_bytes() == content.encode("latin-1")


def test_a_conflict_is_resolved_by_writing_again(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "b.py").write_text(IMPORT + BAD)
    run("--write-baseline")
    head, first, second, *tail = (folder / NAME).read_text().split("\n  ")
    sides = f"<<<<<<< HEAD\n  {first}\n=======\n  {second}".replace("\n ]\n}\n", "")
    (folder / NAME).write_text(f"{head}\n{sides}\n>>>>>>> other\n ]\n}}\n" + "".join(tail))
    assert run("--baseline", NAME).status == 2
    assert run("a.py", "--write-baseline").status == 0
    assert run("--baseline", NAME).status == 0, "what the run did not look at is kept"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--write-baseline", "--fix"), "--write-baseline goes without --fix: one after the other"),
        (("--write-baseline", "--diff"), "--write-baseline writes a file, and --diff writes nothing"),
        (("--write-baseline", "--baseline", "no/x.json"), "no/x.json: No such file or directory"),
        (("--write-baseline", "--baseline", "a.py"), "--baseline: a.py is one of the files to check, and would be overwritten"),
        (("--baseline", "."), "--baseline: .: Is a directory"),
    ],
)
def test_wrong_options(folder: Path, run: Callable[..., Done], words: tuple[str, ...], cause: str) -> None:
    assert run(*words) == (2, "", f"oomlint: error: {cause}\n")
    assert (folder / "a.py").read_text() == IMPORT + BAD


def test_what_a_setting_knows_is_shown_where_that_is_asked_for(folder: Path, run: Callable[..., Done]) -> None:
    run("--write-baseline")
    (folder / "pyproject.toml").write_text(f'[tool.oomlint]\nselect = ["OOM101"]\nbaseline = "{NAME}"\n')
    assert run().out == "No findings in 1 file.\n1 known finding not shown (--no-baseline).\n"
    assert run("--fix").out == "No findings in 1 file.\n1 known finding neither shown nor fixed (--no-baseline).\n"
    assert run("--no-baseline").status == 1
    assert run("--output-format", "json") == (0, "[]\n", "oomlint: 1 known finding not shown; --no-baseline shows them\n")
    assert run("--no-baseline", "--baseline", NAME).status == 2


def test_a_baseline_is_not_written_for_a_path_that_is_not_there(folder: Path, run: Callable[..., Done]) -> None:
    assert run("--write-baseline", "b.json") == (
        2,
        "",
        "oomlint: error: --write-baseline: b.json: No such file or directory; --baseline names the file that is written\n",
    )
    assert not (folder / NAME).exists()
