"""The README is true: its excerpts are what the tool prints, its table is the catalogue."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from oomlint import registry, rule

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXCERPTS = [block for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if block.count("\n") > 1 and "\n$" not in block]


def table() -> str:
    """The rows that the README shows for the rules."""
    return "\n".join(f"| {one.code} | `{one.slug}` | {rule.page(one).summary} |" for one in registry.all_rules())


def test_the_table_names_every_rule() -> None:
    assert table() in README


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda block: block.split("\n")[0])
def test_an_excerpt_is_what_the_command_prints(excerpt: str) -> None:
    command, _, expected = excerpt.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "oomlint"
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", *arguments, "--no-cache", "--color", "never"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == expected.strip()


def test_there_is_an_excerpt() -> None:
    assert len(EXCERPTS) == 1
