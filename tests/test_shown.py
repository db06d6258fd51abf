"""Every command that the README and the pages show is run, and gives what is shown below it.

A command about `fixtures/` runs in a folder that has those of this repository which the pages speak of, any other one in a project of its own. Where a page
shows files, each below its name, they are in that project. In what is shown, `...` stands for any text, and on a row of its own for any rows.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LIMIT: Final = 240  # seconds

# What is not run, and why.
NOT_RUN: Final = {
    r"pip install |\.venv/bin/python -m pip install |python3 -m venv |uvx |pipx ": "it fetches packages; test_wheel.py installs what is built",
    r"\.ci/test$": "it runs this very test",
    r"python docs/measure\.py <code>": "a placeholder, and it takes minutes",
    r"python benchmarks/|git status|python -m build": "a step of a release; test_wheel.py builds, and test_diff_findings.py compares",
    r"python docs/generate\.py": "it writes into the repository; test_layers.py runs it with --check",
    r"oomlint rule LAB101|oomlint check --output-format concise train\.py": "the project has rules of its own; test_plugins.py runs it and reads what is shown",
}
# What is shown below these differs from run to run: the command is run, what it prints is not compared.
VARIES: Final = {"oomlint trace -- python train.py": "prints what one machine has measured; the finding in it is compared below"}

PROGRAM: Final = """\
import argparse

from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--num_workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
"""
IMPORT: Final = "from torch.utils.data import DataLoader\n"
FINDING: Final = "    return DataLoader([1, 2], num_workers=0, persistent_workers=True)\n"


class Shown(NamedTuple):
    """A command on a page, and what the page says that it prints."""

    page: str
    command: str
    output: str

    @property
    def reason(self) -> str:
        """Why it is not run; empty where it is."""
        return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, self.command)), "")


def shown() -> Iterator[Shown]:
    for path in PAGES:
        for block in re.findall(r"^ *```console\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for entry in re.split(r"^ *\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = entry.partition("\n")
                *before, last = re.sub(r"\s{2,}# .*", "", line).split(" && ")
                yield from (Shown(path.name, command, "") for command in before)
                yield Shown(path.name, last, output)


SHOWN: Final = list(shown())
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra verify is not installed")


def marks(one: Shown) -> list[pytest.MarkDecorator]:
    runs = re.match(r"\S*oomlint (verify|trace)|.*--verify", one.command) is not None
    return [needs_torch, pytest.mark.skipif(sys.platform != "linux", reason="code is run on Linux")] if runs else []


CASES: Final = [pytest.param(one, marks=marks(one), id=f"{one.page}: {one.command}") for one in SHOWN if not one.reason]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with all that the pages speak of: the finding of `train.py:88`, and that of `train.ipynb:3:12`."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    head = PROGRAM + "\n" * (86 - PROGRAM.count("\n")) + "def loaders():\n" + FINDING
    (folder / "train.py").write_text(head)
    (folder / "src" / "train.py").write_text(head)
    cells = ["import argparse\n", "from torch.utils.data import DataLoader\n", "\n" * 10 + "def loaders():\n" + FINDING]
    written: list[dict[str, Any]] = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None} for cell in cells]
    (folder / "train.ipynb").write_text(json.dumps({"cells": written, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (folder / "train.sh").write_text("#!/bin/sh\nexec python train.py\n")
    (folder / "train.sh").chmod(0o755)
    (folder / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --mem=16G\n#SBATCH --cpus-per-task=4\nsrun python train.py --num_workers 4\n")
    (folder / "oomlint-baseline.json").write_text('{"version": 1, "findings": []}\n')
    return folder


def run(command: str, folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell whose `oomlint` and `python` are those of this test."""
    programs.mkdir()
    for name, words in (("oomlint", "-m oomlint"), ("python", ""), ("torchrun", "-m torch.distributed.run")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OOMLINT_", "FORCE_COLOR", "GITHUB_"))}
    environment = {**kept, "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"NO_COLOR": "1", "OOMLINT_CACHE_DIR": str(programs / "cache"), "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    line = command.removeprefix(".venv/bin/")
    return subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)


def matches(expected: str, found: str) -> bool:
    """Whether text is what is shown, in which `...` stands for what is left out."""
    rows = [r"(?:.*\n)*?" if row == "..." else re.escape(row).replace(re.escape("..."), ".*") + r"\n" for row in expected.strip("\n").split("\n")]
    return re.fullmatch("".join(rows), found.strip("\n") + "\n") is not None


@pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="the commands are for bash")
@pytest.mark.parametrize("one", CASES)
def test_a_command_gives_what_is_shown(one: Shown, project: Path, tmp_path: Path) -> None:
    if " trace " in one.command:  # whichever program it is; torch alone takes a minute under --deep
        (project / "train.py").write_text(PROGRAM.replace(IMPORT, ""))
    page = next(path for path in PAGES if path.name == one.page).read_text(encoding="utf-8")
    for name, content in re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    if "fixtures/" in one.command:
        (project := tmp_path / "fixtures").mkdir()
        for part in ("incidents", "fixed", *re.findall(r"fixtures/(rules/\w+)", one.command)):
            shutil.copytree(ROOT / "fixtures" / part, project / "fixtures" / part)
    done = run(one.command, project, tmp_path / "bin")
    assert done.returncode in {0, 1}, done.stderr
    assert "error:" not in done.stderr
    if one.output and one.command not in VARIES:
        assert matches(one.output, done.stdout), done.stdout


def test_a_reason_belongs_to_a_command() -> None:
    for pattern in NOT_RUN:
        assert any(re.match(pattern, one.command) for one in SHOWN), pattern
    assert set(VARIES) <= {one.command for one in SHOWN}


def test_the_finding_of_the_watched_run_is_that_of_a_check(project: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    (place,) = re.findall(r"^  (train\.py:\d+:\d+): (OOM\d+) (.*)$", page, re.MULTILINE)
    program = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert program
    (project / "train.py").write_text(program[1])
    done = run("oomlint check --quiet --output-format json train.py", project, tmp_path / "bin")
    (found,) = (each for each in json.loads(done.stdout) if each["code"] == place[1])
    at = found["location"]
    assert (f"train.py:{at['row']}:{at['column']}", f"{found['severity']} {found['message']}") == (place[0], place[2])
