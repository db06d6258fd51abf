"""Fixes that are wrong on purpose: none is confirmed, and none is said to do no harm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import UNPROVEN, judge, told

from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from oomlint.verify.sandbox_runner import SandboxRunner

FOLDER: Final = Path(__file__).parent.parent / "fixtures" / "verify" / "wrong"
WRONG: Final = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
CAUGHT: Final = 30  # at the least, that are seen to change what the program does


@pytest.fixture(scope="module")
def outcomes(runner: SandboxRunner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Outcome, str]]:
    folder = tmp_path_factory.mktemp("wrong")
    said = {}
    for name in WRONG:
        before, after = ((FOLDER / name / f"{part}.py").read_text(encoding="utf-8") for part in ("before", "after"))
        verdict = judge(runner, folder / name, before, after)
        said[name] = (verdict.outcome, told(verdict))
    return said


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fix_is_not_let_through(name: str, outcomes: dict[str, tuple[Outcome, str]]) -> None:
    outcome, words = outcomes[name]
    assert outcome in UNPROVEN, words


def test_most_are_seen_to_change_the_program(outcomes: dict[str, tuple[Outcome, str]]) -> None:
    assert sum(outcome is Outcome.REGRESSED for outcome, _ in outcomes.values()) >= CAUGHT, "\n\n".join(
        f"{name}\n{words}" for name, (_, words) in outcomes.items()
    )
