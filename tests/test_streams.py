"""Where the output goes: a full device, a closed stream, a reader that has gone, standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FIXABLE = b"from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n"
BROKEN = b"from torch.utils.data import DataLoader\ndef f(:\n    DataLoader(x)\n"
FULL = "oomlint: error: the output cannot be written: No space left on device\n"
CLOSED = "oomlint: error: standard output is closed\n"

needs_a_shell = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")


def oomlint(folder: Path, words: str, around: str = "", stdin: bytes = b"") -> tuple[int, str, str]:
    """The exit status and the output of a command line with redirections."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OOMLINT_DEBUG": ""}
    command = ["sh", "-c", f"exec '{sys.executable}' -m oomlint {words} {around}"]
    done = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(FIXABLE)
    return tmp_path


PRINTS = [
    *(f"check a.py --no-cache --output-format {name}" for name in ("full", "concise", "json", "github")),
    "check a.py --no-cache --color always",
    "check a.py --no-cache --statistics",
    "check a.py --no-cache -q --diff",
    "rule OOM101",
    "rule OOM101 --color always",
    "rule --all --output-format json",
    "verify --isolated --help",
    "--version",
    "--help",
    "check --help",
]


@needs_a_shell
@pytest.mark.parametrize("words", PRINTS)
def test_a_full_device_and_a_closed_output_are_told_apart_from_findings(folder: Path, words: str) -> None:
    assert oomlint(folder, words, ">/dev/full") == (2, "", FULL)
    assert oomlint(folder, words, ">&-") == (141, "", CLOSED)


@needs_a_shell
def test_where_nobody_can_be_told_the_exit_status_speaks(folder: Path) -> None:
    words = "check a.py --no-cache"
    assert oomlint(folder, words, ">&- 2>&-") == (141, "", "")
    assert oomlint(folder, words, ">/dev/full 2>/dev/full") == (2, "", "")
    assert oomlint(folder, words, ">/dev/full 2>&-") == (2, "", "")


@needs_a_shell
def test_the_status_of_a_command_that_is_watched_outlives_its_report(folder: Path) -> None:
    told = "oomlint: error: the report is not written: {}No space left on device\n"
    words = "trace -q --isolated {} -- sh -c 'exit 3'"
    assert oomlint(folder, words.format("--output-format json"), ">/dev/full") == (3, "", told.format(""))
    assert oomlint(folder, words.format("-o /dev/full"), "") == (3, "", told.format("/dev/full: "))
    assert oomlint(folder, words.format(""), "2>/dev/full") == (3, "", "")


@needs_a_shell
def test_what_standard_error_cannot_take(folder: Path) -> None:
    assert oomlint(folder, "check --nope", "2>/dev/full") == (2, "", "")
    assert oomlint(folder, "check --nope", "2>&-") == (141, "", "")
    assert oomlint(folder, "check --select NOPE", "2>&-") == (141, "", "")
    assert oomlint(folder, "rule NOPE", "2>/dev/full") == (2, "", "")
    assert oomlint(folder, "check -q a.py --no-cache --output-format concise", "2>&-")[0] == 1, "there is nothing to say"


@needs_a_shell
@pytest.mark.parametrize("name", ["full", "concise", "json", "github"])
def test_a_report_that_cannot_be_written_to_its_file(folder: Path, name: str) -> None:
    words = f"check a.py --no-cache --output-format {name} --output-file"
    assert oomlint(folder, f"{words} /dev/full") == (2, "", "oomlint: error: /dev/full: No space left on device\n")
    assert oomlint(folder, f"{words} nowhere/report") == (2, "", "oomlint: error: nowhere/report: No such file or directory\n")
    assert oomlint(folder, f"{words} /dev/stdout", ">&-") == (141, "", CLOSED)


def test_a_report_takes_the_place_of_the_one_before(folder: Path) -> None:
    (folder / "report").write_text("x" * 100_000)
    assert oomlint(folder, "check a.py --no-cache -q --output-format concise --output-file report") == (1, "", "")
    assert (folder / "report").read_text().startswith("a.py:2:")


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="this system has no names for its streams")
@pytest.mark.parametrize(("name", "number"), [("/dev/stdout", 1), ("/dev/stderr", 2), ("log", 1)])
def test_a_report_that_goes_to_a_stream_leaves_what_is_there(folder: Path, name: str, number: int) -> None:
    line = f"'{sys.executable}' -m oomlint check a.py -q --no-cache --output-format concise --output-file {name}"
    script = f"{{ echo before >&{number}; {line}; echo after >&{number}; }} {number}> log"
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    rows = (folder / "log").read_text().splitlines()
    assert (rows[0], rows[1][:7], rows[2:], done.stdout, done.stderr) == ("before", "a.py:2:", ["after"], b"", b"")


@pytest.mark.parametrize("words", ["check --fix a.py", "check --fix .", "check --diff a.py", "check - --stdin-filename a.py", "verify --isolated a.py"])
def test_a_report_never_takes_the_place_of_a_file_that_is_checked(folder: Path, words: str) -> None:
    (folder / "link").symlink_to("a.py")
    for name in ("a.py", "./a.py", "link"):
        line = f"oomlint: error: --output-file: {name} is one of the files to check, and would be overwritten\n"
        assert oomlint(folder, f"{words} --no-cache --output-file {name}", stdin=FIXABLE) == (2, "", line)
    if words.startswith("verify"):
        assert oomlint(folder, f"{words} --no-cache --html a.py")[2].startswith("oomlint: error: --html: a.py is one of the files")
    assert (folder / "a.py").read_bytes() == FIXABLE


@pytest.mark.parametrize("command", ["check --fix", "verify --isolated"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_done(folder: Path, command: str) -> None:
    words = f"{command} a.py --no-cache --output-file"
    assert oomlint(folder, f"{words} nowhere/x") == (2, "", "oomlint: error: nowhere/x: No such file or directory\n")
    assert oomlint(folder, f"{words} .") == (2, "", "oomlint: error: .: Is a directory\n")
    assert oomlint(folder, f"{words} ''") == (2, "", "oomlint: error: --output-file: it is empty\n")
    assert (folder / "a.py").read_bytes() == FIXABLE


@pytest.mark.skipif(sys.platform == "win32", reason="a folder that is in use cannot be removed there")
@pytest.mark.parametrize("command", ["check --isolated", "check --isolated -", "check --fix", "verify --isolated", "verify"])
def test_a_current_folder_that_has_been_removed_is_one_line(folder: Path, command: str) -> None:
    (folder / "gone").mkdir()
    script = f"cd gone && rmdir ../gone && exec '{sys.executable}' -m oomlint {command}"
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, input=FIXABLE, capture_output=True, check=False)
    line = b"oomlint: error: the current folder cannot be told: No such file or directory\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", line)


def test_standard_input_that_is_closed(folder: Path) -> None:
    assert oomlint(folder, "check -", "<&-") == (2, "", "oomlint: error: standard input is closed\n")
    assert oomlint(folder, "check a.py --no-cache -q --output-format concise", "<&-")[0] == 1


@pytest.mark.parametrize("name", ["", "--stdin-filename b.py"])
def test_a_syntax_error_on_standard_input_is_one_as_in_a_file(folder: Path, name: str) -> None:
    (folder / "b.py").write_bytes(BROKEN)
    status, out, _ = oomlint(folder, "check b.py --no-cache")
    assert status == 1
    (folder / "b.py").unlink()
    shown = "b.py" if name else "-"
    assert oomlint(folder, f"check {name} -", stdin=BROKEN) == (1, out.replace("b.py", shown), "")
    assert oomlint(folder, f"check --fix {name} -", stdin=BROKEN) == (1, BROKEN.decode(), out.replace("b.py", shown))
    line = f"{shown}:2:7: cannot check: not valid Python 3.{sys.version_info[1]}: invalid syntax\n"
    assert oomlint(folder, f"check --diff {name} -", stdin=BROKEN) == (1, "", line)


def test_why_a_file_was_not_written_is_said_also_where_little_is(folder: Path) -> None:
    os.link(folder / "a.py", folder / "b.txt")
    status, _, err = oomlint(folder, "check --fix -q --no-cache a.py")
    assert (status, err) == (1, "oomlint: a.py: fixes are not applied: the file has 2 hard links, and writing it would part them\n")
    assert (folder / "a.py").read_bytes() == FIXABLE
