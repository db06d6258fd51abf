"""The README and the page for runs that were killed are true: they show what the tool prints and finds, and figures that were measured."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from oomlint import registry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
KILLED = (ROOT / "docs" / "killed.md").read_text(encoding="utf-8")
FIRST = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
EXCERPTS = [block for block in re.findall(r"```console\n(.*?)```", README + FIRST, re.DOTALL) if block.count("\n") > 1 and "\n$" not in block]
COMMANDS = re.findall(r"^\$ (oomlint check .*)$", KILLED, re.MULTILINE)


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", *arguments, "--no-cache", "--color", "never"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda block: block.split("\n")[0])
def test_an_excerpt_is_what_the_command_prints(excerpt: str) -> None:
    command, _, expected = excerpt.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "oomlint"
    assert run(*arguments).strip() == expected.strip()


def test_there_is_an_excerpt_in_the_readme_and_on_the_first_page() -> None:
    assert len(EXCERPTS) == 2


def test_the_figures_of_the_families_are_those_that_were_measured() -> None:
    measured = json.loads((ROOT / "docs" / "measured.json").read_text(encoding="utf-8"))["rules"]
    rows = re.findall(r"^\| \[OOM\dxx\].*\| ([^|]*) \|$", README, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        (code,) = re.findall(r"OOM\d{3}", row)
        for figure in re.findall(r"\d[\d.]*(?: [KMG]iB)?", row.replace(code, "")):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", measured[code]["reason"]), (code, figure)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_a_killed_run_finds_what_its_section_names(command: str) -> None:
    """Each code is looked for where it is known to be, with the options of the page."""
    section = next(part for part in KILLED.split("\n## ") if command in part)
    _, *arguments = shlex.split(command)
    (codes,) = [argument for argument in arguments if argument.startswith("OOM")]
    assert set(codes.split(",")) == set(re.findall(r"rules/(OOM\d{3})\.md", section))
    assert set(codes.split(",")) <= {code for code, _ in registry.catalogue()}
    options = [argument for argument in arguments if argument not in (".", "--fix")]
    places = [str(path) for code in codes.split(",") for path in sorted((ROOT / "fixtures" / "rules" / code).glob("bad*"))[:4]]
    found = run(*options, *places, "--output-format", "concise")
    assert {code for code in codes.split(",") if f" {code} " in found} == set(codes.split(","))
