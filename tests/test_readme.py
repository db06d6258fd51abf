"""The README and the page for runs that were killed are true: they show what the tool prints and finds, and figures that were measured."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs
from rule_cases import FIXTURES, cases, put

from oomlint import registry

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
KILLED = (ROOT / "docs" / "killed.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (oomlint check .*)$", KILLED, re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a project of its own, in place of this whole repository."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys)


def test_the_first_screen_shows_a_finding_and_how_to_install() -> None:
    screen = "\n".join(README.splitlines()[:30])
    (excerpt, install) = re.findall(r"```console\n(.*?)```", screen, re.DOTALL)
    assert excerpt.startswith("$ oomlint check ")
    assert excerpt.count("\n") <= 10
    assert all(way in install for way in ("$ uvx ", "$ pipx install ", "$ pip install "))


def test_the_figures_of_the_families_are_those_that_were_measured() -> None:
    measured = json.loads((ROOT / "docs" / "measured.json").read_text(encoding="utf-8"))["rules"]
    rows = re.findall(r"^\| \[OOM\dxx\].*\| ([^|]*) \|$", README, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        (code,) = re.findall(r"OOM\d{3}", row)
        for figure in re.findall(r"\d[\d.]*(?: [KMG]iB)?", row.replace(code, "")):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", measured[code]["reason"]), (code, figure)


def test_each_section_has_a_cause_a_command_and_a_fix() -> None:
    sections = KILLED.split("\n## ")[1:-1]
    assert len(sections) == len(COMMANDS) == 7
    for section in sections:
        heads = re.findall(r"^\*\*([\w ]+)\.\*\*", section, re.MULTILINE)
        assert heads in (["Cause", "Command", "Fix", "Until then"], ["Cause", "Command and fix", "Until then"])


def test_a_bus_error_leads_to_what_the_container_lacks(project: Path, run: Callable[..., Done]) -> None:
    """Which is a note, and stands in no Python."""
    shutil.copytree(FIXTURES / "OOM150" / "bad_compose_size", project, dirs_exist_ok=True)
    (command,) = [command for command in COMMANDS if "OOM150" in command]
    _, *arguments = shlex.split(command)
    assert " OOM150 " in run(*arguments, "--output-format", "concise").out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_a_killed_run_finds_what_its_section_names(command: str, project: Path, run: Callable[..., Done]) -> None:
    """Each code is looked for where it is known to be, with the options of the page."""
    section = next(part for part in KILLED.split("\n## ") if command in part)
    _, *arguments = shlex.split(command)
    (codes,) = [argument for argument in arguments if argument.startswith("OOM")]
    assert set(codes.split(",")) == set(re.findall(r"rules/(OOM\d{3})\.md", section))
    assert set(codes.split(",")) <= {code for code, _ in registry.catalogue()}
    for case in (case for code in codes.split(",") for case in cases("bad", code)[:4]):
        (folder := project / case.parent.name / case.stem).mkdir(parents=True)
        put(case, folder)
    done = run(*(argument for argument in arguments if argument != "--fix"), "--output-format", "concise")
    assert {code for code in codes.split(",") if f" {code} " in done.out} == set(codes.split(","))
