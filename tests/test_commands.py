"""Commands and options around the check: clean, watch, completion, the version, the list of rules."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

import oomlint
from oomlint import registry
from oomlint.cli import version

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
BAD = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, num_workers=0, persistent_workers=True)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\n')
    (tmp_path / "a.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys)


# -- clean ------------------------------------------------------------------------------------------------------------


def test_clean_removes_caches_and_nothing_else(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "inner" / ".git").mkdir(parents=True)
    (folder / "inner" / "b.py").write_text(BAD)
    run("check")
    run("check", "--isolated", "inner")
    (folder / "other" / ".oomlint_cache").mkdir(parents=True)
    (folder / "other" / ".oomlint_cache" / "mine.txt").write_text("not a cache")
    (folder / "link").mkdir()
    (folder / "link" / ".oomlint_cache").symlink_to(folder / ".oomlint_cache")
    assert run("clean") == (0, "removed .oomlint_cache\nremoved inner/.oomlint_cache\n", "")
    assert (folder / "other" / ".oomlint_cache" / "mine.txt").is_file()
    assert run("clean") == (0, "", "")


def test_clean_finds_the_cache_of_the_project_from_within(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\ncache-dir = "build/lint"\n')
    (folder / "src").mkdir()
    run("check", "--exit-zero")
    monkeypatch.chdir(folder / "src")
    assert run("clean", "-q") == (0, "", "")
    assert not (folder / "build" / "lint").exists()


@pytest.mark.parametrize(("path", "cause"), [("gone", "No such file or directory"), ("a.py", "Not a directory")])
def test_clean_needs_folders(run: Callable[..., Done], path: str, cause: str) -> None:
    assert run("clean", path) == (2, "", f"oomlint: error: {path}: {cause}\n")


# -- watch ------------------------------------------------------------------------------------------------------------


def until(stream: Path, words: str, change: Callable[[int], object] = lambda _: None) -> None:
    """Wait for words in a file, and change something again and again: what changes before somebody watches is not seen."""
    for rows in range(120):
        change(rows)
        for _ in range(10):
            if words in stream.read_text():
                return
            time.sleep(0.1)
    raise AssertionError(stream.read_text())


def test_watch_checks_again(folder: Path) -> None:
    pytest.importorskip("watchfiles")
    logs = folder.parent / f"{folder.name}.log"
    command = [sys.executable, "-m", "oomlint", "check", "--watch", "--output-format", "concise", "-q"]
    with (
        logs.open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(ROOT), "WATCHFILES_FORCE_POLLING": "1"}) as process,
    ):
        try:
            until(logs, "waiting")
            assert logs.read_text().startswith("a.py:3:10: OOM101")
            until(logs, "a.py:7:10: OOM101", lambda rows: (folder / "a.py").write_text(BAD + "\n" + BAD + "\n" * rows))
            until(logs, "oomlint: error: pyproject.toml", lambda rows: (folder / "pyproject.toml").write_text("[tool.oomlint]\nslect = []\n" + "\n" * rows))
        finally:
            process.terminate()
    assert process.returncode in {130, 143}  # watchfiles makes an interruption of any signal


def test_watch_is_an_extra(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert run("check", "--watch") == (2, "", "oomlint: error: --watch needs watchfiles: pip install 'oomlint[watch]'\n")
    assert run("check", "--watch", "-") == (2, "", "oomlint: error: --watch needs files: standard input is none\n")


# -- completion, version, rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [("oomlint veri", "verify"), ("oomlint check --output-fo", "--output-format"), ("oomlint check --output-format sa", "sarif")],
)
def test_the_shell_is_told_what_may_follow(line: str, word: str) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT), "_OOMLINT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run([sys.executable, "-m", "oomlint"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [word]


def test_the_version_names_the_commit_of_a_checkout(run: Callable[..., Done]) -> None:
    assert re.fullmatch(rf"oomlint {re.escape(oomlint.__version__)}( \([0-9a-f]{{9}}\))?\n", run("--version").out)


def test_commits_are_found_in_plain_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    git = folder / ".git"
    git.mkdir()
    (git / "HEAD").write_text(f"{commit}\n")
    monkeypatch.setattr(version, "_PACKAGE", str(folder / "oomlint"))
    assert version.text() == f"oomlint {oomlint.__version__} (012345678)"
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    assert version.text().endswith(" (012345678)")
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text(f"f{commit[1:]}\n")
    assert version.text().endswith(" (f12345678)")
    tree = folder / "tree"
    tree.mkdir()
    (git / "worktrees" / "tree").mkdir(parents=True)
    (git / "worktrees" / "tree" / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees" / "tree" / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {git}/worktrees/tree\n")
    monkeypatch.setattr(version, "_PACKAGE", str(tree / "oomlint"))
    assert version.text().endswith(" (f12345678)")
    (folder / "site" / "oomlint").mkdir(parents=True)
    monkeypatch.setattr(version, "_PACKAGE", str(folder / "site" / "oomlint"))
    assert version.text() == f"oomlint {oomlint.__version__}"
    (folder / "site" / "oomlint" / version.COMMIT).write_text(commit)
    assert version.text().endswith(" (012345678)")


def test_rules_are_listed_a_line_each(run: Callable[..., Done]) -> None:
    status, out, err = run("rule", "--all", "--output-format", "concise")
    assert (status, err) == (0, "")
    assert [tuple(line.split()[:2]) for line in out.splitlines()] == list(registry.catalogue())
    (line,) = run("rule", "OOM101", "--output-format", "concise").out.splitlines()
    assert line.split("  ")[:4] == ["OOM101", "persistent-without-workers", "error, in places warning", "safe"]
