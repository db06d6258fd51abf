"""Fixes by hand of what adds up losses: optimizers of any name make steps, rounding is forgiven, and what the CPU does not show is told."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import judge_by_hand, told

from oomlint.verify.case import Outcome
from oomlint.verify.child.search import loop_errors
from oomlint.verify.strategies.unseen_changes import precision

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.verify.case import Verdict
    from oomlint.verify.sandbox_runner import SandboxRunner

    Judge = Callable[[str, str], Verdict]

TRAIN: Final = """
import torch
import torch.nn.functional as F


def train(model, loader, opt):
    running = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        running += loss  # finding: OOM201
    return model, float(running)
"""


@pytest.fixture
def judged(runner: SandboxRunner, tmp_path: Path) -> Judge:
    return partial(judge_by_hand, runner, tmp_path)


def summed(program: str, more: str = "") -> str:
    return program.replace("running += loss  #", f"running += loss{more}  #")


@pytest.mark.parametrize("name", ["opt", "o", "model_opt", "sgd"])
def test_a_step_that_is_taken_out_is_seen_whatever_the_optimizer_is_called(name: str, judged: Judge) -> None:
    program = re.sub(r"\bopt\b", name, TRAIN)
    wrong = judged(program, summed(program, ".detach()").replace(f"        {name}.step()\n", ""))
    assert wrong.outcome is Outcome.REGRESSED, told(wrong)
    right = judged(program, summed(program, ".detach()"))
    assert right.outcome is Outcome.CONFIRMED, told(right)


def test_sums_of_numbers_are_rounded_elsewhere_and_that_is_told(judged: Judge) -> None:
    verdict = judged(TRAIN, summed(TRAIN, ".item()"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert any("5 digits" in line for line in verdict.assumptions)
    assert judged(TRAIN, summed(TRAIN, ".item() * 1.001")).outcome is Outcome.REGRESSED


def test_a_number_in_place_of_a_tensor(judged: Judge) -> None:
    program = TRAIN.replace("float(running)", "running")
    verdict = judged(program, summed(program, ".item()"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert any("returned: a number after" in line for line in verdict.assumptions)
    asking = f"{program}\n\ndef main(model, loader, opt):\n    _, total = train(model, loader, opt)\n    print(total.item())\n"
    assert judged(asking, summed(asking, ".item()")).outcome is Outcome.INCONCLUSIVE


def test_mixed_precision_that_is_taken_out_is_not_confirmed(judged: Judge) -> None:
    line = "        loss = F.mse_loss(model(x), y)\n"
    program = TRAIN.replace(line, f'        with torch.autocast("cuda"):\n    {line}')
    verdict = judged(program, summed(TRAIN, ".detach()"))
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert "autocast" in verdict.reason


@pytest.mark.parametrize(
    "message", ["mat1 and mat2 must have the same dtype, but got Long and Float", "input must have 3 dimensions, got 2", "must be at least 2-D", "3D tensor"]
)
def test_messages_without_numbers_suggest_something_or_nothing(message: str) -> None:
    specs = {"x": {"kind": "tensor", "shape": [8], "dtype": "int64"}}
    for pattern, make in loop_errors.RULES:
        found = re.search(pattern, message)
        if found:
            list(make(found, specs, ["x"]))


KEPT: Final = """
import torch


def evaluate(model, loader, device):
    outs, ys = [], []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        outs.append(model(x))  # finding: OOM202
        ys.append(y)
    return (torch.cat(outs).argmax(1) == torch.cat(ys)).sum().item()
"""


def test_tensors_of_the_host_and_of_the_device(judged: Judge) -> None:
    one = KEPT.replace("model(x))", "model(x).detach().cpu())")
    both = one.replace("ys.append(y)", "ys.append(y.cpu())")
    verdict = judged(KEPT, one)
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert "on the same device" in verdict.reason
    verdict = judged(KEPT, both)
    assert "device" not in verdict.reason, told(verdict)
    assert not precision(KEPT, one)


PINNED: Final = """
from torch.utils.data import DataLoader, TensorDataset
import torch


def labels_of(pinned=PIN):
    loader = DataLoader(TensorDataset(torch.randn(96, 3), torch.arange(96)), batch_size=4, num_workers=2, pin_memory=pinned)
    kept = []
    for _, labels in loader:
        kept.append(labels)  # finding: OOM207
    return torch.cat(kept)
"""


@pytest.mark.parametrize(("pin", "outcome"), [("False", Outcome.CONFIRMED), ("True", Outcome.NO_EFFECT)])
def test_batches_that_a_loader_pins_are_copies(pin: str, outcome: Outcome, judged: Judge) -> None:
    before = PINNED.replace("PIN", pin)
    verdict = judged(before, before.replace("append(labels)", "append(labels.clone())"))
    assert verdict.outcome is outcome, told(verdict)
    assert any("instead of pinning" in item for item in verdict.assumptions) is (pin == "True"), told(verdict)


MISSING: Final = """
import not_there_at_all
from not_there_at_all.scores import psnr

WEIGHTS = not_there_at_all.Weights(2)


def scaled(x):
    return x * 2


def train(model, loader, optimizer):
    losses = []
    for x, y in loader:
        loss = (model(scaled(x)) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)  # finding: OOM202
    return losses


def evaluate(path):
    return psnr(not_there_at_all.load(path), WEIGHTS)
"""


@pytest.mark.parametrize("used", [False, True])
def test_a_library_that_is_missing_matters_where_the_code_leads_to_it(used: bool, judged: Judge) -> None:  # noqa: FBT001 - a parameter
    before = MISSING.replace("return x * 2", "return x * WEIGHTS(2)") if used else MISSING
    verdict = judged(before, before.replace("append(loss)", "append(loss.detach())").replace("zero_grad()", "zero_grad(set_to_none=True)"))
    assert verdict.outcome is (Outcome.INCONCLUSIVE if used else Outcome.CONFIRMED), told(verdict)
    assert any("not_there_at_all: replaced by a stand-in" in item for item in (*verdict.left_out, verdict.reason)) is used, told(verdict)
