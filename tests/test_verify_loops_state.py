"""What a loop leaves behind beside its result is compared: objects of the program's classes, globals, optimizers, schedulers and files."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import judge

from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

PROGRAM: Final = """
import csv

import torch

HISTORY = []


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def push(self, value, count):
        self.total += float(value) * count
        self.count += count


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.meter = Meter()
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)

    def train(self):
        total = 0.0
        for images, labels in self.loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            total += loss  # finding: OOM201
            self.meter.push(loss.detach(), len(images))
            HISTORY.append(len(images))
        self.scheduler.step(total)
        torch.save(self.model.state_dict(), "last.pt")
        with open("log.csv", "w", newline="") as file:
            csv.writer(file).writerow([f"{float(total):.3f}"])
"""
RIGHT: Final = ("total += loss ", "total += loss.item() ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("", "", "", id="all of it"),
        pytest.param("push(loss.detach(),", "push(loss.item(),", "", id="a number for a tensor"),
        pytest.param("            self.meter.push(loss.detach(), len(images))\n", "", "self.meter", id="an object"),
        pytest.param("            HISTORY.append(len(images))\n", "", "global HISTORY", id="a global"),
        pytest.param("scheduler.step(total)", "scheduler.step(2 * total)", "self.scheduler", id="a scheduler"),
        pytest.param('        torch.save(self.model.state_dict(), "last.pt")\n', "", "file last.pt", id="a file"),
        pytest.param("writerow([", "writerow([0, ", "file log.csv", id="what a file says"),
    ],
)
def test_what_a_loop_leaves_behind(runner: SandboxRunner, tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in PROGRAM
    before = dedent(PROGRAM)
    verdict = judge(runner, tmp_path / "project", before, before.replace(*RIGHT).replace(old, new) if old else before.replace(*RIGHT))
    assert verdict.outcome is (Outcome.REGRESSED if words else Outcome.CONFIRMED), verdict.reason
    assert words in verdict.reason
