"""What oomlint fixes safely in the fixtures that can be run is confirmed, or was harmless there; and a verdict does not depend on the day.

With OOMLINT_ALL_FIXTURES=1 every such fixture is verified, else the first of each rule; and what is run again and again is run ten times, else four.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import pytest
from test_fixes_run import RUNNABLE
from verify_cases import judge, marked, told, verify

from oomlint import engine, registry
from oomlint.config import load_settings
from oomlint.finding import Safety
from oomlint.rule import page
from oomlint.verify.case import Case, Outcome
from oomlint.verify.run import cases_of

if TYPE_CHECKING:
    from pathlib import Path

    from test_fixes_run import Program

    from oomlint.verify.sandbox_runner import SandboxRunner

ALL: Final = os.environ.get("OOMLINT_ALL_FIXTURES") == "1"
# What `verify` does not measure, such as ranks, is run before and after its fixes by test_fixes_run.py alone.
SAFE: Final = [rule.code for rule in registry.all_rules() if rule.fixable is Safety.SAFE and rule.measured_as.strategies]
CHOSEN: Final = [
    program
    for code in SAFE
    for number, program in enumerate(program for program in RUNNABLE if program.code == code)
    if ALL or number == 0
]  # fmt: skip
TIMES: Final = 10 if ALL else 4
# The least that has to be known of what is run; of all of them two are inconclusive so far, loops that also train a model.
KNOWN: Final = 0.95


def cases(program: Program, folder: Path) -> list[Case]:
    """A case for each safe fix of a fixture, laid out as a project."""
    if program.case.is_dir():
        shutil.copytree(program.case, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
        shutil.copy(program.case, folder)
    settings, _ = load_settings(None, True, folder)  # noqa: FBT003 - the engine's own signature
    settings = settings.with_overrides(select=[program.code], preview=True, severity="note", min_confidence="low", exclude=[])
    report = engine.run([str(folder)], settings, folder, engine.RunOptions(cache=False, processes=1))
    found = [item for item in report.findings if item.fix and item.fix.safety is Safety.SAFE]
    return list(cases_of(found, str(folder)))


def test_no_safe_fix_of_a_fixture_is_seen_to_do_harm(runner: SandboxRunner, tmp_path: Path) -> None:
    said = [(program.name, verify(runner, case)) for program in CHOSEN for case in cases(program, tmp_path / program.name)[: None if ALL else 1]]
    harmful = [f"{name}: {told(verdict)}" for name, verdict in said if verdict.outcome is Outcome.REGRESSED]
    assert not harmful, "\n\n".join(harmful)
    known = [name for name, verdict in said if verdict.outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT}]
    assert len(known) >= KNOWN * len(said), "\n\n".join(f"{name}: {told(verdict)}" for name, verdict in said if name not in known)


@pytest.mark.parametrize("code", ["OOM101", "OOM201"])
def test_every_run_gives_the_same_verdict(code: str, runner: SandboxRunner, tmp_path: Path) -> None:
    rule = registry.load(code)
    said = [judge(runner, tmp_path / str(number), page(rule).example, page(rule).remedy, code=code) for number in range(TIMES)]
    assert {(verdict.outcome, verdict.reason) for verdict in said} == {(said[0].outcome, said[0].reason)}
    assert said[0].outcome is Outcome.CONFIRMED


def test_a_marked_line_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("x = 1\ny = 2  # finding: OOM201\n", encoding="utf-8")
    assert (marked(path).code, marked(path).place.row) == ("OOM201", 2)
