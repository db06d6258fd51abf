"""What a fix changes has to be run before anything is said of it: the comparison of two programs, and verdicts on what hides in branches."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import FILE, judge, judge_by_hand, marked, told, verify

from oomlint.verify.case import Case, Outcome
from oomlint.verify.session import VerifyOptions
from oomlint.verify.strategies.changed_statements import changed, readers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.verify.case import Verdict
    from oomlint.verify.sandbox_runner import SandboxRunner

    Judge = Callable[[str, str], Verdict]

BEFORE: Final = """
import torch


def train(model, loader, debug=False):
    total = 0.0
    for x in loader:
        total += model(x).mean()
        if debug: print(total)
    if debug:
        return total.clone()
    return float(total)
"""


def rows(after: str) -> tuple[list[int], list[int]]:
    gone, come = changed(dedent(BEFORE), dedent(after), script=False)
    return [item.row for item in gone], [item.row for item in come]


@pytest.mark.parametrize(
    ("old", "new", "gone", "come"),
    [
        pytest.param("import torch", "import torch\nimport math", [], [], id="an import"),
        pytest.param("import torch", "import torch\nLIMIT = 3", [], [], id="what an import of the module runs"),
        pytest.param("    total = 0.0\n", '    """Train."""\n    # begin at nothing\n    total = 0.0\n', [], [], id="words"),
        pytest.param("mean()\n", "mean().detach()\n", [8], [8], id="a line"),
        pytest.param("print(total)", "print(total.item())", [9], [9], id="in the row of its condition"),
        pytest.param("def train", "@torch.no_grad()\ndef train", [5], [6], id="a decorator"),
        pytest.param("    for x in", "    if False:\n        total = None\n    for x in", [], [7], id="a branch that cannot be taken"),
        pytest.param("    return float(total)", "    return float(total)\n    print(total)", [], [], id="behind a return"),
        pytest.param("        if debug: print(total)\n", "", [9, 9], [], id="taken out"),
    ],
)
def test_statements_that_a_mend_changes(old: str, new: str, gone: list[int], come: list[int]) -> None:
    assert old in BEFORE
    assert rows(BEFORE.replace(old, new)) == (gone, come)


def test_a_statement_in_another_block_has_changed() -> None:
    moved = BEFORE.replace("        total += model(x).mean()\n", "        with torch.no_grad():\n            total += model(x).mean()\n")
    assert rows(moved) == ([8], [8, 9])


def test_what_reads_a_changed_name() -> None:
    after = BEFORE.replace("mean()\n", "mean().item()\n")
    come = changed(BEFORE, after, script=False)[1]
    assert [item.row for item in readers(after, come, script=False)] == [9, 11, 12]


@pytest.fixture
def judged(runner: SandboxRunner, tmp_path: Path) -> Judge:
    return lambda before, after: judge(runner, tmp_path / "project", dedent(before), dedent(after))


def fixed(judged: Judge, program: str, *changes: tuple[str, str]) -> Verdict:
    after = program
    for old, new in changes:
        assert old in after
        after = after.replace(old, new)
    return judged(program, after)


STEP: Final = """
import torch


def train(model, loader, criterion, optimizer{parameters}):
    total = 0.0
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss  # finding: OOM201
        {more}
    {end}
"""
SUM: Final = ("total += loss ", "total += loss.detach() ")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(STEP.format(parameters="", more="", end="return float(total)"), "by 0 after", id="nothing hidden"),
        pytest.param(STEP.format(parameters=", verbose=False", more="if verbose: print(float(total))", end="return float(total)"), "by 0 after", id="a flag"),
        pytest.param(
            STEP.format(parameters=", meter=None", more="if meter is not None: meter.update(total.detach())", end="return float(total)"),
            "by 0 after",
            id="a stand-in for what is left out by default",
        ),
        pytest.param(
            STEP.format(parameters="", more="if (step + 1) % 500 == 0: print(float(total))", end="return float(total)"), "by 0 after", id="a rare branch"
        ),
    ],
)
def test_a_right_mend_is_confirmed_where_branches_have_to_be_taken(program: str, words: str, judged: Judge) -> None:
    verdict = fixed(judged, program, SUM)
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert words in verdict.reason
    assert not any("was not run" in line for line in verdict.left_out), told(verdict)


ROUNDS: Final = """
import torch


def train(model, batch, criterion, optimizer, rounds=50000):
    total, done = 0.0, 0
    while done < rounds:
        images, labels = batch()
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss  # finding: OOM201
        done += images.shape[0]
    return float(total)
"""


@pytest.mark.parametrize("rounds", ["2 * rounds", "rounds // 2"])
def test_the_end_of_a_loop_that_no_run_comes_to_is_not_judged(runner: SandboxRunner, tmp_path: Path, rounds: str) -> None:
    fixed = ROUNDS.replace(*SUM)
    assert judge_by_hand(runner, tmp_path, ROUNDS, fixed).outcome is Outcome.CONFIRMED
    verdict = judge_by_hand(runner, tmp_path, ROUNDS, fixed.replace("< rounds", f"< {rounds}"))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "the patch has to do with when the loop ends, and no run came to its end")


def test_a_changed_line_in_a_rare_branch_is_run(judged: Judge) -> None:
    program = STEP.format(parameters="", more="if (step + 1) % 500 == 0: print(float(total) / 2)", end="return float(total)")
    verdict = fixed(judged, program, SUM, ("float(total) / 2", "float(total) * 0.5"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)


def test_a_changed_line_that_no_run_comes_to(judged: Judge) -> None:
    program = STEP.format(parameters="", more="while total is None: total = 0.0", end="return float(total)")
    verdict = fixed(judged, program, SUM, ("total is None: total = 0.0", "total is None: total = 1.0"))
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert "line 13, `total = 1.0`, which the fix changes, was not run" in verdict.reason


def test_a_mend_of_another_function_is_told_and_does_not_stand_in_the_way(judged: Judge) -> None:
    other = "\n\ndef evaluate(model, loader):\n    total = 0.0\n    for x in loader:\n        total += model(x).mean()\n    return total\n"
    program = STEP.format(parameters="", more="", end="return float(total)") + other
    verdict = fixed(judged, program, SUM, ("model(x).mean()", "model(x).mean().item()"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert verdict.left_out == ("line 20, `total += model(x).mean().item()`: the fix changes it as well, and it was not run",)


def test_a_decorated_function_has_run_though_a_statement_of_it_is_left_out(judged: Judge) -> None:
    """The last statement cannot be run on stand-ins, before as after."""
    program = """
    import torch


    def test(model, loader, names):
        hits = 0
        for images, labels in loader:
            hits += (model(images).argmax(1) == labels).sum().item()  # finding: OOM204
        print("%s %d" % (names["last"].upper() + 1, hits))
    """
    verdict = fixed(judged, program, ("def test(", "@torch.no_grad()\n    def test("))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)


def test_what_reads_a_changed_value_and_is_not_run_is_told(judged: Judge) -> None:
    verdict = fixed(judged, STEP.format(parameters="", more="while total is None: print(total)", end="return float(total)"), SUM)
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert "line 13, `print(total)`: reads what the fix changes, and was not run" in verdict.left_out


def test_batches_are_of_equal_size_where_the_loop_bears_no_other(judged: Judge) -> None:
    program = STEP.format(parameters="", more="state = images if step == 0 else state + images", end="return float(total)")
    verdict = fixed(judged, program, SUM)
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert "batches of equal size: the loop does not bear a last one that is smaller" in verdict.assumptions


FEW: Final = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def train():
    model = torch.nn.Linear(4, 1)
    total = 0.0
    for (x,) in DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=4):
        total = total + model(x).mean()  # finding: OOM205
    return float(total)
"""


def test_a_loop_with_few_items_goes_over_them_again(judged: Judge) -> None:
    verdict = fixed(judged, FEW, ("model(x).mean()", "model(x).mean().detach()"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert "the loop goes over its items again, as they are too few to tell" in verdict.assumptions


OUTPUTS: Final = """
def train(model, loader, optimizer):
    kept = []
    for images, labels in loader:
        scores, maps = model(images)
        optimizer.zero_grad()
        scores.mean().backward()
        optimizer.step()
        kept.append(maps)  # finding: OOM202
    return kept
"""


def test_an_output_that_nothing_looks_at_is_a_tensor(judged: Judge) -> None:
    verdict = fixed(judged, OUTPUTS, ("append(maps)", "append(maps.detach())"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert fixed(judged, OUTPUTS, ("append(maps)", "append(maps.detach() + 1)")).outcome is Outcome.REGRESSED


SCORES: Final = """
import torch
from torch import nn

from pieces import packed


def evaluate(model: nn.Module, head: nn.Module, loader):
    model.eval()
    total = 0.0
    for batch in loader:
        rows = packed(batch["rows"])
        if rows.shape[1] > 512:
            raise ValueError(rows)
        scores = model(rows["a"][0], int(open("scale").read()))
        hidden = head(batch["features"])
        total += hidden.exp().mean().item()
    return total
"""


def test_a_forward_pass_that_was_left_out_confirms_nothing(runner: SandboxRunner, tmp_path: Path) -> None:
    patch = SCORES.replace("def evaluate", "@torch.no_grad()\ndef evaluate")
    verdict = judge(runner, tmp_path / "project", SCORES, patch, code="OOM204")
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert verdict.reason.startswith("what the finding is about was not run: a stand-in took the place of line 15: `scores = model(")
    assert not verdict.readings


SEEDED: Final = """
import torch
from torch import nn, ones

seed = 3
torch.manual_seed(seed)

model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
batches = [ones(2, 4)] * 20
kept = []
for batch in batches:
    kept.append(model(batch).exp().sum().item())
"""


def test_a_fix_that_is_the_first_to_name_torch_leaves_the_generators_as_they_are(runner: SandboxRunner, tmp_path: Path) -> None:
    fix = SEEDED.replace("for batch in batches:\n    kept", "with torch.no_grad():\n    for batch in batches:\n        kept")
    assert fix != SEEDED
    verdict = judge(runner, tmp_path / "project", SEEDED, fix, code="OOM204")
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)


MADE: Final = """
import os

import torch
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        if "NO_SUCH_LICENCE" not in os.environ:
            raise RuntimeError("no licence")
        super().__init__(3, 3)


def evaluate(loader):
    kept = []
    for batch in loader:
        model = Net().eval()
        kept.append(model(batch).cpu())
    return torch.cat(kept)
"""


def test_a_model_that_cannot_be_made_in_the_loop_confirms_nothing(runner: SandboxRunner, tmp_path: Path) -> None:
    patch = MADE.replace("def evaluate", "@torch.no_grad()\ndef evaluate")
    verdict = judge(runner, tmp_path / "project", MADE, patch, code="OOM204")
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert "`model = Net().eval()`" in verdict.reason


def test_a_loss_that_was_left_out_confirms_nothing(judged: Judge) -> None:
    program = STEP.format(parameters="", more="", end="return float(total)")
    program = program.replace("criterion(model(images), labels)", "model(int(open('scale').read()), images)")
    verdict = fixed(judged, program, SUM)
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert not verdict.readings


def test_what_stays_at_nothing_is_no_evidence(judged: Judge) -> None:
    verdict = fixed(judged, STEP.format(parameters="", more="", end="return float(total)"), SUM)
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert all(any((*item.before, *item.after)) for item in verdict.readings), told(verdict)


def test_a_command_that_does_not_come_to_the_finding_is_named_before_all(runner: SandboxRunner, tmp_path: Path) -> None:
    program = STEP.format(parameters="", more="", end="return float(total)")
    (path := tmp_path / FILE).write_text(program)
    case = Case(marked(path), str(tmp_path), {str(path): (program.encode(), program.replace(*SUM).encode())})
    verdict = verify(runner, case, VerifyOptions(command=f"python {FILE}"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert verdict.reason.startswith("your command does not run row 12; your code on synthesised data was run instead: autograd nodes grow"), told(verdict)
