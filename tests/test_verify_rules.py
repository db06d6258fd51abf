"""The rules under their own judge: what a page calls wrong is run, and what it says to write instead; the figures of the documentation are those.

The words of the findings are garbled: they were not when the documentation was measured, and decide nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from verify_cases import example, garbled, told, verify

from oomlint import registry
from oomlint.finding import Severity
from oomlint.rule import page
from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from oomlint.verify.sandbox_runner import SandboxRunner

MEASURED: Final[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "docs" / "measured.json").read_text(encoding="utf-8"))
RULES: Final = [rule.code for rule in registry.all_rules() if rule.code != "OOM001"]  # which is about comments
# What cannot be shown here: the catalogue's exception (its cost does not always show in a short run), figures of a library that `verify` does not drive,
# what an accelerator does, what several ranks do, and what goes at the end of each step.
EXCEPTIONS: Final = frozenset({"OOM115", "OOM116", "OOM221", "OOM224", "OOM307", "OOM502", "OOM507", "OOM601", "OOM603", "OOM604"})
LIBRARIES: Final = {"OOM213": "torchmetrics", "OOM215": "lightning"}  # what they speak of


@pytest.mark.parametrize("code", RULES)
def test_what_the_page_says_to_write_instead_fixes_what_it_calls_wrong(code: str, runner: SandboxRunner, tmp_path: Path) -> None:
    if code in LIBRARIES:
        pytest.importorskip(LIBRARIES[code])
    rule = registry.load(code)
    case = example(code, tmp_path)
    verdict = verify(runner, replace(case, finding=garbled(case.finding)))
    assert verdict.outcome.value == MEASURED["rules"][code]["outcome"], told(verdict)
    if verdict.outcome is Outcome.CONFIRMED:
        return
    if verdict.outcome is Outcome.NO_EFFECT:
        assert "no effect" in page(rule).text
    # Harm that cannot be shown is no more than a note.
    assert rule.severity is Severity.NOTE or code in EXCEPTIONS, told(verdict)
