"""The command line: options, exit status, streams, bad input."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from commands import Done, runs

import oomlint
from oomlint import registry
from oomlint.__main__ import main
from oomlint.cli import app, check, checking, clean, rule, verify
from oomlint.cli.check import Arguments
from oomlint.cli.options import OptionKind, options_of, read, spelling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

ROOT = Path(__file__).parent.parent
BAD = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, num_workers=0, persistent_workers=True)\n"
FIXED = BAD.replace(", persistent_workers=True", "")
GOOD = FIXED
PLACE = "3:10: OOM101 error"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a project, with no colour from outside."""
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM001", "OOM101"]\n')
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "OOMLINT_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys)


def child(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "oomlint", *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)} | (env or {}), timeout=60)


# -- exit status ------------------------------------------------------------------------------------------------------


def test_a_clean_project(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(GOOD)
    assert run("check") == (0, "No findings in 1 file.\n", "")


def test_findings(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    status, out, err = run("check", ".")
    assert (status, err) == (1, "")
    assert out.startswith(f"a.py:{PLACE} ")
    assert out.endswith("\nFound 1 error in 1 file; up to 1 fixable with --fix.\nMore about a rule: oomlint rule OOM101\n")


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ((), "1 warning and 1 note not shown (--severity note)."),
        (("--severity", "warning"), "1 note not shown (--severity note)."),
        (("--severity", "note"), "More about a rule: oomlint rule CODE"),
        (("--fix",), "1 warning and 1 note not shown (--severity note)."),
    ],
)
def test_what_is_hidden_is_counted(folder: Path, run: Callable[..., Done], options: tuple[str, ...], last: str) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101", "OOM120"]\nseverity = "error"\n')
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text("from torch.utils.data import DataLoader\n\nDataLoader(a, num_workers=24)\nDataLoader(b, num_workers=64)\n")
    (folder / "c.py").write_text(GOOD)
    assert run("check", *options).out.splitlines()[-1] == last
    assert "not shown" not in run("check", "-q", *options).out


def test_the_command_that_says_more_is_named_once_and_in_full_alone(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text("x = (\nDataLoader\n")
    words = "oomlint rule OOM101"
    assert run("check", ".").out.count(words) == 1
    assert "oomlint rule" not in run("check", "b.py").out
    for options in (("-q",), ("--statistics",), ("--output-format", "concise"), ("--output-format", "grouped"), ("--diff",), ("--fix", "a.py")):
        assert words not in run("check", *options).out


def test_hidden_notes_leave_the_exit_status(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "pyproject.toml").write_text("[tool.oomlint]\n")
    (folder / "a.py").write_text("from torch.utils.data import DataLoader\n\nDataLoader(a, num_workers=24)\n")
    shown = "No findings in 1 file.\n1 note not shown (--severity note).\n"
    assert run("check") == run("check", "--output-format", "concise") == (0, shown, "")
    assert run("check", "--output-format", "json") == (0, "[]\n", "")
    assert run("check", "-q") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--exit-zero",), 0),
        (("--fix",), 0),
        (("--fix", "--exit-non-zero-on-fix"), 1),
        (("--diff",), 1),
        (("--diff", "--exit-zero"), 0),
        (("--statistics",), 1),
        (("--ignore", "OOM1"), 0),
        (("--select", "OOM001"), 0),
        (("--output-format", "json"), 1),
    ],
)
def test_the_status_of_a_file_with_a_finding(folder: Path, run: Callable[..., Done], words: tuple[str, ...], status: int) -> None:
    (folder / "a.py").write_text(BAD)
    assert run("check", *words).status == status


def test_a_path_that_does_not_exist(run: Callable[..., Done]) -> None:
    assert run("check", "gone.py") == (1, "gone.py:1:1: cannot check: No such file or directory\n1 file could not be checked.\n", "")


def test_a_row_behind_a_path_is_told(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(GOOD)
    said = "No such file or directory; `oomlint verify` takes rows of a file, `oomlint check` whole files"
    assert run("check", "a.py:3") == (1, f"a.py:3:1:1: cannot check: {said}\n1 file could not be checked.\n", "")
    assert "verify" not in run("check", "gone.py:3").out


def test_an_empty_path_is_not_the_current_folder(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    line = "'':1:1: cannot check: No such file or directory: the path is empty\n"
    assert run("check", "--fix", "-q", "") == (1, line, "")
    assert (folder / "a.py").read_text() == BAD
    assert run("check", "--fix", "-q", "", "a.py") == (1, line, "")
    assert (folder / "a.py").read_text() == FIXED
    assert run("verify", "") == (2, "", "oomlint: error: '': No such file or directory: the path is empty\n")


def test_no_python_files_is_a_warning(run: Callable[..., Done]) -> None:
    assert run("check", ".") == (0, "", "oomlint: warning: no Python files under .\n")
    assert run("check", "-q", ".") == (0, "", "")
    assert run("check", "--output-format", "json").out == "[]\n"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("check", "--fux"), "No such option: --fux"),
        (("check", "--severity", "fatal"), "oomlint: error: --severity: 'fatal' is not one of error, warning, note"),
        (("check", "--select"), "requires an argument"),
        (("check", "--select", "OOM9"), "oomlint: error: select: unknown rule or prefix 'OOM9'"),
        (("check", "--ignore", "E501"), "oomlint: error: ignore: 'E501' is not a rule code"),
        (("check", "--per-file-ignores", "x.py"), "oomlint: error: per-file-ignores: 'x.py' is not of the form 'pattern:CODE'"),
        (("check", "--config", "gone.toml"), "oomlint: error: gone.toml: No such file or directory"),
        (("check", "--config", "pyproject.toml", "--isolated"), "exclude each other"),
        (("check", "-", "a.py"), "oomlint: error: standard input (`-`) is checked alone"),
        (("check", "a.py", "--stdin-filename", "b.py"), "oomlint: error: --stdin-filename names standard input"),
        (("check", "--output-file", "gone/report.txt"), "oomlint: error: gone/report.txt: No such file or directory"),
        (("chek",), "No such command"),
        (("rule", "OOM101", "--all"), "oomlint: error: --all goes without the names of rules"),
        (("rule", "OOM101", "OOM999"), "oomlint: error: unknown rule 'OOM999'"),
        (("rule", "OOM999"), "oomlint: error: unknown rule 'OOM999'; `oomlint rule` lists them all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_options(run: Callable[..., Done], words: tuple[str, ...], cause: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert cause in " ".join(re.sub("[│╭╮╰╯─]", "", err).split())


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ("slect = []", "unknown key 'slect'; did you mean 'select'?"),
        ('select = ["OOM9"]', "select: unknown rule or prefix 'OOM9'"),
        ('worker-limit = "16"', "worker-limit: '16' is not a whole number"),
        ("= 1", "not valid TOML"),
    ],
)
def test_wrong_settings_are_one_line(folder: Path, run: Callable[..., Done], table: str, cause: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.oomlint]\n{table}\n")
    status, out, err = run("check")
    assert (status, out) == (2, "")
    assert err.startswith("oomlint: error: pyproject.toml: ")
    assert cause in err
    assert err.count("\n") == 1
    assert run("check", "--isolated").status == 0


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Module, project: Project) -> Sequence[Finding]:  # noqa: ARG001
        raise KeyError("line one\nline two")

    monkeypatch.setattr(registry.load("OOM101"), "check", fail)


def test_a_rule_that_fails_is_one_line_and_no_finding(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text("x = 1  # oomlint: ignore[OOM101]\n")
    failing(monkeypatch)
    status, out, err = run("check", "--output-format", "concise", "-q", "--exit-zero", "--no-cache")
    assert status == 2
    assert out.startswith("b.py:1:8: OOM001 warning"), "the other files are reported"
    assert err == "oomlint: internal error: OOM101 failed on a.py: KeyError: 'line one\\nline two' (OOMLINT_DEBUG=1 shows where)\n"
    monkeypatch.setenv("OOMLINT_DEBUG", "1")
    assert "Traceback" in run("check", "--no-cache").err


def test_an_error_of_oomlint_is_one_line_and_no_finding(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("twice\nover")

    monkeypatch.setattr(checking, "run", fail)
    assert run("check") == (2, "", "oomlint: internal error: ZeroDivisionError: twice over (OOMLINT_DEBUG=1 shows where)\n")
    monkeypatch.setenv("OOMLINT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["check"])


def test_an_interruption(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "run", interrupt)
    assert run("check") == (130, "", "")


def test_a_reader_that_goes_away(folder: Path) -> None:
    for number in range(400):
        (folder / f"a{number}.py").write_text(BAD)
    with subprocess.Popen(
        [sys.executable, "-m", "oomlint", "check", "--no-cache"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


# -- both readers of the command line ---------------------------------------------------------------------------------

VALUES = {"severity": "note", "min_confidence": "low", "output_format": "json", "sort": "weight", "color": "never"}


@pytest.mark.parametrize("command", [check, verify, rule, clean])
def test_both_readers_know_every_option(command: Any) -> None:
    words: list[str] = []
    for name, (option, _) in options_of(command.Arguments).items():
        value = VALUES.get(name, "OOM101")
        words += {OptionKind.FLAG: [spelling(name)], OptionKind.WORDS: ["a.py"], OptionKind.LIST: [spelling(name), "x:A", f"{spelling(name)}=B"]}.get(
            option.kind, [spelling(name), value]
        )
    arguments = read(command.Arguments, words)
    assert arguments is not None
    name = command.__name__.rpartition(".")[2]
    parsed: Any = app.parse([name, *words])
    assert parsed.args == (arguments,)
    assert parsed.func == command.perform
    default = command.Arguments()
    assert all(getattr(arguments, each.name) != getattr(default, each.name) for each in fields(arguments)), "every option is in the line"
    default_by_typer: Any = app.parse([name])
    assert default_by_typer.args == (default,) == (read(command.Arguments, []),)


@pytest.mark.parametrize(
    "words",
    [
        ["--select"],
        ["--select", "--fix"],
        ["--fix=yes"],
        ["--fux"],
        ["-h"],
        ["-qq"],
        ["--", "-strange-.py"],
        ["--fi"],
    ],
    ids=" ".join,
)
def test_what_is_unusual_is_left_to_typer(words: list[str]) -> None:
    assert read(Arguments, words) is None


def test_a_file_that_begins_with_a_hyphen(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "-x.py").write_text(BAD)
    assert run("check", "--output-format", "concise", "-q", "--", "-x.py").out.startswith(f"-x.py:{PLACE}")


# -- help and version -------------------------------------------------------------------------------------------------


def test_the_version(run: Callable[..., Done]) -> None:
    status, out, err = run("--version")
    assert (status, err) == (0, "")
    assert out.startswith(f"oomlint {oomlint.__version__}")
    assert child("--version").stdout.decode().splitlines() == out.splitlines()
    assert run("version").out == out


def test_help(run: Callable[..., Done]) -> None:
    for words in (["--help"], ["check", "--help"], ["check", "-h"], ["verify", "--help"], ["rule", "--help"]):
        status, out, _ = run(*words)
        assert status == 0
        assert "Usage: oomlint" in out
    assert "check" in run().out
    assert run().status == 2


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_formats(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    assert run("check", "--output-format", "concise", "-q").out.count("\n") == 1
    (entry,) = json.loads(run("check", "--output-format", "json").out)
    assert (entry["code"], entry["filename"], entry["location"], entry["cell"]) == ("OOM101", "a.py", {"row": 3, "column": 10}, None)
    assert run("check", "--output-format", "github").out.startswith("::error title=oomlint (OOM101),file=a.py,line=3,col=10,")
    assert re.search(r"^3 \| loader.*\n  \|\s+\^+$", run("check", "--output-format", "full").out, re.MULTILINE)


def test_names_are_relative_to_the_current_folder(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "src").mkdir()
    (folder / "a.py").write_text(BAD)
    (folder / "src" / "b.py").write_text(BAD)
    monkeypatch.chdir(folder / "src")
    out = run("check", "--output-format", "concise", "-q", str(folder)).out
    assert [line.split(":")[0] for line in out.splitlines()] == ["../a.py", "b.py"]


def test_statistics(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD + "loader = DataLoader(data, num_workers=0, persistent_workers=True)  # again\n")
    assert run("check", "--statistics", "-q").out == "2  OOM101  persistent-without-workers (up to 2 fixable)\n"
    assert json.loads(run("check", "--statistics", "--output-format", "json").out)[0]["count"] == 2


def test_the_report_can_go_to_a_file(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    assert run("check", "--output-file", "-", "--output-format", "concise", "-q") == run("check", "--output-format", "concise", "-q")
    assert run("check", "--output-file", "report.txt", "--output-format", "concise", "-q") == (1, "", "")
    assert (folder / "report.txt").read_text().startswith(f"a.py:{PLACE}")


def test_colour(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(BAD)
    assert "\x1b[" not in run("check").out
    assert "\x1b[1;31mOOM101 error\x1b[0m" in run("check", "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("check").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("check").out


def test_names_that_no_encoding_holds_do_not_end_the_run(folder: Path) -> None:
    name = os.fsencode(folder) + b"/\xff\xe5\x90\x8d.py"
    try:
        Path(os.fsdecode(name)).write_text(BAD)
    except OSError:
        pytest.skip("the file system takes no such name")
    for encoding in ("ascii", "utf-8"):
        for form in ("full", "json", "github"):
            done = child("check", "--no-cache", "--output-format", form, env={"PYTHONIOENCODING": encoding})
            assert (done.returncode, done.stderr) == (1, b"")
            assert b"OOM101" in done.stdout


# -- settings and options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words", "found"),
    [
        ('ignore = ["OOM101"]', (), False),
        ('ignore = ["OOM101"]', ("--ignore", "OOM001"), False),
        ('ignore = ["OOM101"]', ("--extend-select", "OOM101"), True),
        ('ignore = ["OOM101"]', ("--select", "OOM101"), True),
        ('select = ["OOM001"]', (), False),
        ('select = ["OOM001"]', ("--extend-select", "OOM101"), True),
        ('select = ["OOM101"]', ("--ignore", "OOM101"), False),
        ('select = ["OOM101"]', ("--select", "OOM001", "--select", "OOM101"), True),
        ('select = ["OOM101"]', ("--select", "OOM001,OOM101", "--ignore", "OOM001"), True),
        ('select = ["OOM101"]\nper-file-ignores = {"a.py" = ["OOM101"]}', (), False),
        ('select = ["OOM101"]', ("--per-file-ignores", "*.py:OOM101"), False),
        ('select = ["OOM101"]\nexclude = ["a.py"]', (), False),
        ('select = ["OOM101"]\nexclude = ["a.py"]', ("a.py",), True),
        ('select = ["OOM101"]\nexclude = ["a.py"]', ("a.py", "--force-exclude"), False),
        ('select = ["OOM101"]\nmin-confidence = "high"', (), True),
    ],
)
def test_options_and_settings_together(folder: Path, run: Callable[..., Done], settings: str, words: tuple[str, ...], found: bool) -> None:  # noqa: FBT001
    (folder / "a.py").write_text(BAD)
    (folder / "pyproject.toml").write_text(f"[tool.oomlint]\n{settings}\n")
    assert ("OOM101" in run("check", *words).out) is found


def test_settings_come_from_the_folder_of_the_paths(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text(BAD)
    (project / "oomlint.toml").write_text('ignore = ["OOM101"]\nselect = ["OOM101"]\n')
    assert run("check", "project/src/a.py").status == 0
    assert run("check").status == 1
    assert run("check", "--config", "project/oomlint.toml").status == 0
    monkeypatch.chdir("/")
    assert run("check", str(project / "src")).status == 0


# -- fixes ------------------------------------------------------------------------------------------------------------


def test_fix(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(GOOD)
    assert run("check", "--fix", "--show-fixes") == (0, "a.py:\n  1 OOM101 persistent-without-workers\nFixed 1 finding in 1 file.\n", "")
    assert (folder / "a.py").read_text() == FIXED


def test_a_diff_of_nothing_says_what_it_leaves(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "bad.py").write_text("import os\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=os.cpu_count())\n")
    assert run("check", "--select", "OOM120", "--diff", "bad.py") == (0, "", "oomlint: no fix to show for 1 finding\n")
    assert run("check", "--select", "OOM120", "--diff", "-q", "bad.py") == (0, "", "")


def test_diff(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "broken.py").write_text("num_workers = (\n")
    status, out, err = run("check", "--diff")
    assert status == 1
    assert err.startswith("oomlint: would fix 1 finding in 1 file\nbroken.py:1:")
    assert (folder / "a.py").read_text() == BAD
    if shutil.which("patch"):
        subprocess.run(["patch", "-p0"], input=out, text=True, check=True, capture_output=True)
        assert (folder / "a.py").read_text() == FIXED
        (folder / "broken.py").unlink()
        assert run("check", "--diff") == (0, "", "")


@pytest.mark.skipif(not shutil.which("patch") or sys.platform == "win32", reason="this system has no patch, or not these names")
@pytest.mark.parametrize(
    ("name", "encoding", "words"),
    [
        ("a.py", "utf-8", ()),
        ("a.py", "utf-8-sig", ()),
        ("a.py", "cp1252", ()),
        ("a.py", "latin-1", ("--output-file", "changes")),
        *((name, "latin-1", ()) for name in ("a b.py", "tab\t.py", "line\nend.py", '"quoted".py', "back\\slash.py", "é.py", "\udce9.py", 'a"\\\t\a\x01 b.py')),
    ],
)
def test_a_diff_applies_whatever_the_encoding_and_the_name(folder: Path, name: str, encoding: str, words: tuple[str, ...]) -> None:
    mark = "" if encoding.startswith("utf-8") else f"# coding: {encoding}\n"
    before, after = ((f"{mark}# é ü\r\n" + text + "# ß").encode(encoding) for text in (BAD.replace("data,", "größe,"), FIXED.replace("data,", "größe,")))
    (folder / name).write_bytes(before)
    done = child("check", "--diff", "-q", "--no-cache", *words, ".", env={"PYTHONIOENCODING": "ascii" if name == "a.py" else "utf-8"})
    assert (done.returncode, done.stderr) == (1, b"")
    changes = (folder / "changes").read_bytes() if words else done.stdout
    subprocess.run(["patch", "-p0", "--binary"], input=changes, check=True, capture_output=True)
    assert (folder / name).read_bytes() == after


def test_a_notebook_is_checked_and_fixed(folder: Path, run: Callable[..., Done]) -> None:
    cells = [{"cell_type": "code", "source": "%matplotlib inline\n"}, {"cell_type": "code", "source": BAD}]
    notebook = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    (folder / "a.ipynb").write_text(notebook)
    status, out, err = run("check", "--output-format", "concise", "-q")
    assert status == 1
    assert out.startswith(f"a.ipynb:cell 2:{PLACE} ")
    assert err == ""
    assert run("check", "--fix") == (0, "Fixed 1 finding in 1 file.\n", "")
    assert (folder / "a.ipynb").read_text() == notebook.replace(", persistent_workers=True", "")


def test_a_file_with_several_names_is_left_alone(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    os.link(folder / "a.py", folder / "second")
    assert run("check", "--fix").err == "oomlint: a.py: fixes are not applied: the file has 2 hard links, and writing it would part them\n"
    assert (folder / "a.py").read_text() == BAD


# -- standard input ---------------------------------------------------------------------------------------------------


def test_standard_input(folder: Path) -> None:
    done = child("check", "-", "--output-format", "concise", "-q", stdin=BAD.encode())
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.decode().startswith(f"-:{PLACE}")
    named = child("check", "-", "--stdin-filename", "src/a.py", "--output-format", "json", stdin=BAD.encode())
    assert json.loads(named.stdout)[0]["filename"] == "src/a.py"
    assert child("check", "--stdin-filename", "a.py", stdin=GOOD.encode()).stdout == b"No findings in 1 file.\n"
    assert not list(folder.rglob("*.py"))


@pytest.mark.parametrize("name", ["training", "fixable_version3", "fixable_one_row"])
def test_a_notebook_on_standard_input_needs_no_name(name: str) -> None:
    """Most are valid Python as well, of one dictionary in which nothing could be found."""
    notebook = (ROOT / "fixtures" / "notebooks" / f"{name}.ipynb").read_bytes()
    told = json.loads(child("check", "-", "--output-format", "json", "--isolated", stdin=notebook).stdout)
    named = json.loads(child("check", "-", "--stdin-filename", "a.ipynb", "--output-format", "json", "--isolated", stdin=notebook).stdout)
    assert told
    assert [(item["code"], item["cell"], item["location"]) for item in told] == [(item["code"], item["cell"], item["location"]) for item in named]
    assert child("check", "-", "--fix", stdin=notebook).stdout == child("check", "--fix", "--stdin-filename", "a.ipynb", stdin=notebook).stdout
    assert b"cannot check: not valid JSON" in child("check", "-", stdin=notebook[:-9]).stdout


def test_a_dictionary_on_standard_input_is_no_notebook() -> None:
    assert child("check", "-", stdin=b'{"cells_of": []}\n').stdout == b"No findings in 1 file.\n"
    assert child("check", "-", "-q", "--output-format", "concise", stdin=b'NAMES = {"cells": 1}\n' + BAD.encode()).stdout.startswith(b"-:4:10: OOM101")


@pytest.mark.parametrize("text", [BAD, GOOD, "x = (\n"], ids=["bad", "good", "broken"])
def test_fixed_standard_input_goes_to_standard_output(text: str) -> None:
    source = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    done = child("check", "-", "--fix", stdin=source)
    assert done.returncode == 0
    assert done.stdout == source.replace(b", persistent_workers=True", b"")
    assert done.stderr.endswith(b".\n")


def test_the_diff_of_standard_input_goes_to_standard_output() -> None:
    done = child("check", "-", "--diff", "--stdin-filename", "a.py", stdin=BAD.encode())
    assert done.returncode == 1
    assert done.stdout.startswith(b"--- a.py\n+++ a.py\n")
    assert done.stderr == b"oomlint: would fix 1 finding in 1 file\n"


# -- bad input --------------------------------------------------------------------------------------------------------

BROKEN: dict[str, bytes] = {
    "syntax": b"loader = DataLoader(num_workers=\n",
    "encoding": b"# -*- coding: klingon -*-\nnum_workers = 1\n",
    "latin": b"# num_workers \xe9\n",
    "declared": b"# coding: ascii\n# num_workers \xc3\xa9\n",
    "utf16": "num_workers = 1\n".encode("utf-16"),
    "nul": b"num_workers = 1\0\n",
    "binary": bytes(range(256)) * 4,
    "deep": b"num_workers = " + b"(" * 3000 + b")" * 3000 + b"\n",
    "unary": b"num_workers = " + b"-" * 20_000 + b"1\n",
    "sum": b"num_workers = DataLoader(" + b"+".join([b"1"] * 30_000) + b")\n",
    "big": b"num_workers = 1\n" * 700_000,
    "escape": b"x = '\\N{NO SUCH}' # num_workers\n",
    "indent": b"if num_workers:\n\tx = 1\n        y = 2\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_program_is_one_line(folder: Path, run: Callable[..., Done], name: str) -> None:
    (folder / "a.py").write_bytes(BROKEN[name])
    (folder / "b.py").write_text(BAD)
    status, out, err = run("check", "--output-format", "concise", "-q", "--no-cache")
    assert (status, err) == (1, "")
    first, second = out.splitlines()
    assert re.match(r"a\.py:\d+:\d+: cannot check: \S.{5,150}$", first)
    assert second.startswith(f"b.py:{PLACE}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xef\xbb\xbf",
        b"\n\n",
        b"\x0c\n",
        b"# coding: latin-1\n# num_workers \xe9\n",
        b"\xef\xbb\xbfnum_workers = 1\r\n",
        b"num_workers = 1\rx = 2",
    ],
    ids=["empty", "mark", "blank", "form feed", "latin", "mark and line ends", "old line ends"],
)
def test_a_file_that_is_odd_but_a_program_is_clean(folder: Path, run: Callable[..., Done], data: bytes) -> None:
    (folder / "a.py").write_bytes(data)
    assert run("check") == (0, "No findings in 1 file.\n", "")


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"cells": 1}', '{"cells": [{"cell_type": "code", "source": "num_workers = ("}]}', "null"])
def test_a_notebook_that_is_none_is_one_line(folder: Path, run: Callable[..., Done], text: str) -> None:
    (folder / "a.ipynb").write_text(text)
    status, out, err = run("check", "--output-format", "concise", "-q")
    assert (status, err) == (1, "")
    assert re.match(r"a\.ipynb:(cell \d+:)?\d+:\d+: cannot check: \S.*\n$", out)


def test_links_and_folders_that_lead_nowhere(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "dead.py").symlink_to("gone.py")
    (folder / "ring.py").symlink_to("ring.py")
    (folder / "inner").mkdir()
    (folder / "inner" / "loop").symlink_to("..")
    (folder / "b.py").write_text(BAD)
    status, out, _ = run("check", "--output-format", "concise", "-q", ".", "inner", "inner/loop/b.py")
    assert status == 1
    assert [line.split(": ")[0] for line in out.splitlines()] == ["b.py:3:10", "dead.py:1:1", "inner/loop/b.py:3:10", "ring.py:1:1"]


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="nothing is unreadable to root")
def test_what_may_not_be_read(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "closed").mkdir()
    (folder / "a.py").chmod(0)
    (folder / "closed").chmod(0)
    out = run("check", "--output-format", "concise", "-q").out
    (folder / "closed").chmod(0o755)
    assert out.count("Permission denied") == 2


def test_a_report_that_may_not_be_written_to_is_kept(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "report.txt").write_text("kept")
    (folder / "report.txt").chmod(0o444)
    usual = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: usual(path, mode) and not (mode == os.W_OK and str(path).endswith("report.txt")))  # root may write
    assert run("check", "--output-file", "report.txt") == (2, "", "oomlint: error: report.txt: Permission denied\n")
    assert (folder / "report.txt").read_text() == "kept"


# -- oomlint rule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["OOM101", "oom101", "persistent-without-workers"])
def test_a_rule_is_explained(run: Callable[..., Done], name: str) -> None:
    status, out, err = run("rule", name)
    assert (status, err) == (0, "")
    assert out.startswith("# persistent-without-workers (OOM101)\n\nSeverity: **error**, in places warning · Fix: **safe**\n")
    assert out == (ROOT / "docs" / "rules" / "OOM101.md").read_text(encoding="utf-8").partition("\n\n")[2].partition("\n## Measured")[0]
    assert "\x1b[" in run("rule", name, "--color", "always").out


def test_a_rule_as_json(run: Callable[..., Done]) -> None:
    entry = json.loads(run("rule", "OOM101", "--output-format", "json").out)
    assert (entry["code"], entry["name"], entry["severity"], entry["fix"]) == ("OOM101", "persistent-without-workers", "error", "safe")
    assert "## Why is this bad" in entry["explanation"]
    assert (ROOT / entry["url"]).is_file()


def test_all_rules(run: Callable[..., Done]) -> None:
    assert [each["code"] for each in json.loads(run("rule", "OOM102", "OOM101", "--output-format", "json").out)] == ["OOM102", "OOM101"]
    both = run("rule", "OOM101", "oom102").out
    assert both == run("rule", "OOM101").out + "\n" + run("rule", "OOM102").out
    lines = run("rule").out.splitlines()
    for prefix, start in (("OOM3", "OOM3"), ("oom30", "OOM30"), ("OOM3xx", "OOM3")):
        listed = run("rule", prefix).out.splitlines()
        assert [line[:6] for line in listed] == [line[:6] for line in lines if line.startswith(start)]
    assert run("rule") == run("rule", "--all", "--output-format", "concise")
    entries = json.loads(run("rule", "--all", "--output-format", "json").out)
    assert [(entry["code"], entry["name"]) for entry in entries] == list(registry.catalogue())
    assert run("rule", "--all").out.count("\n## References\n") == len(entries)


@pytest.mark.parametrize(("shell", "said"), [("zsh", "#compdef oomlint"), ("bash", "_oomlint_completion()"), ("fish", "complete --command oomlint")])
def test_completion_is_that_of_the_shell_that_is_named(run: Callable[..., Done], shell: str, said: str) -> None:
    assert run("--show-completion", shell) == run(f"--show-completion={shell}")
    assert said in run("--show-completion", shell).out
    assert run("--show-completion", "tcsh") == (2, "", "oomlint: error: --show-completion: 'tcsh' is none of bash, zsh, fish, powershell, pwsh\n")


# -- hooks ------------------------------------------------------------------------------------------------------------


def test_the_hooks_are_command_lines_that_work() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["oomlint", "oomlint-fix"]
    for hook in hooks:
        program, command, *words = hook["entry"].split()
        assert (program, command) == ("oomlint", "check")
        assert read(Arguments, [*words, "a.py"]) is not None


# -- what --fix would do ----------------------------------------------------------------------------------------------


def test_fixes_are_counted_by_the_option_that_applies_them(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(BAD)
    out = run("check").out
    assert out.splitlines()[-2] == "Found 2 errors in 2 files; up to 2 fixable with --fix."
    assert [item["fixed_by"] for item in json.loads(run("check", "--output-format", "json").out)] == ["--fix", "--fix"]
    assert run("check").out == out  # from the cache
    assert "Fixed 2 findings in 2 files." in run("check", "--fix").out


@pytest.mark.parametrize("options", [(), ("--unsafe-fixes",)])
def test_what_is_counted_is_what_is_fixed(options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Done]) -> None:
    shutil.copytree(ROOT / "fixtures" / "incidents", tmp_path / "incidents")
    monkeypatch.chdir(tmp_path)
    entries = json.loads(run("check", "--isolated", "--no-cache", "--output-format", "json").out)
    wanted = {"--fix"} | {"--fix --unsafe-fixes" for _ in options}
    count = sum(entry["fixed_by"] in wanted for entry in entries)
    assert count
    assert f"Fixed {count} findings" in run("check", "--isolated", "--no-cache", "--fix", *options).out
