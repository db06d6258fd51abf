"""Fixes by hand of loaders: nothing is said of what they change beside the workers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import found, judge_by_hand, told, verify

from oomlint.cli import edited_cases
from oomlint.verify.case import Outcome
from oomlint.verify.child.synthesis import stub_optimizer, symbolic_sweep
from oomlint.verify.strategies.changed_statements import changed
from oomlint.verify.strategies.unseen_changes import beyond, hidden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.verify.case import Verdict
    from oomlint.verify.sandbox_runner import SandboxRunner

    Judge = Callable[[str, str], Verdict]

LOADER: Final = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

DEFAULTS = dict(batch_size=4, pin_memory=False)


class Balanced(Sampler):
    def __init__(self, labels):
        self.labels = np.asarray(labels)

    def __len__(self):
        return len(self.labels)

    def __iter__(self):
        return iter(np.argsort(self.labels, kind="stable").tolist())


def collate(batch):
    return torch.stack([item + 1 for item in batch])


def loader_of(data, labels, workers, **more):
    options = {**DEFAULTS, **more}
    sampler = Balanced(labels)
    return DataLoader(data, sampler=sampler, collate_fn=collate, num_workers=workers, persistent_workers=True, **options)  # finding: OOM101


def main(workers=0):
    labels = torch.arange(24) % 3
    loader = loader_of(TensorDataset(torch.randn(24, 4)), labels, workers, batch_size=8)
"""
ALWAYS: Final = "persistent_workers=True"
GUARDED: Final = LOADER.replace(ALWAYS, "persistent_workers=workers > 0")


@pytest.fixture
def judged(runner: SandboxRunner, tmp_path: Path) -> Judge:
    return partial(judge_by_hand, runner, tmp_path)


@pytest.mark.parametrize("named", [False, True], ids=["in the call", "under a name"])
def test_a_mend_of_the_workers_alone_is_confirmed(named: bool, judged: Judge) -> None:  # noqa: FBT001 - a parameter
    other = LOADER.replace(ALWAYS, "persistent_workers=persistent").replace("    sampler =", "    persistent = workers > 0\n    sampler =")
    verdict = judged(LOADER, other if named else GUARDED)
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        pytest.param("sampler=sampler", "shuffle=True", "", id="another sampler"),
        pytest.param("    sampler =", "    torch.manual_seed(0)\n    sampler =", "torch.manual_seed(0)", id="a seed"),
        pytest.param("{**DEFAULTS, **more}", "{**more, **DEFAULTS}", "unpacks", id="options in another order"),
        pytest.param("collate_fn=collate, ", "", "", id="no collate function"),
        pytest.param("item + 1", "item", "", id="another collate function"),
        pytest.param("DataLoader(data, ", "DataLoader(data[:8], ", "dataset", id="other data"),
        pytest.param("return DataLoader(", "return iter(DataLoader(", "another call", id="an iterator"),
        pytest.param("data, labels, workers, **more)", "labels, data, workers, **more)", "parameters", id="other parameters"),
    ],
)
def test_what_is_changed_beside_the_workers_is_not_let_through(old: str, new: str, word: str, judged: Judge) -> None:
    assert old in GUARDED
    after = GUARDED.replace(old, new, 1)
    verdict = judged(LOADER, after.replace("**options)", "**options))") if "iter(D" in new else after)
    assert verdict.outcome in {Outcome.INCONCLUSIVE, Outcome.REGRESSED}, told(verdict)
    assert word in verdict.reason


GAN: Final = """
import torch
import torch.nn.functional as F


def train(G, D, loader, opt_g, opt_d):
    losses = []
    for real in loader:
        fake = G(torch.randn(4, 3))
        d_loss = F.softplus(D(fake)).mean() + F.softplus(-D(real)).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = F.softplus(-D(G(torch.randn(4, 3)))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        losses.append(g_loss)  # finding: OOM202
    return losses
"""


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        pytest.param("G(torch.randn(4, 3))\n", "G(torch.randn(4, 3)).detach()\n", Outcome.CONFIRMED, id="the generator has no part in it"),
        pytest.param("D(fake)", "D(fake.detach())", Outcome.INCONCLUSIVE, id="and its graph is kept for nothing"),
        pytest.param("opt_g.step()", "opt_d.step()", Outcome.REGRESSED, id="the generator is not trained"),
    ],
)
def test_each_optimizer_steps_its_own_model(old: str, new: str, outcome: Outcome, judged: Judge) -> None:
    verdict = judged(GAN, GAN.replace(old, new).replace("append(g_loss)", "append(g_loss.detach())"))
    assert verdict.outcome is outcome, told(verdict)


ACCUMULATED: Final = """
import torch.nn.functional as F


def train(model, loader, opt, every=2):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        (loss / every).backward()
        if (i + 1) % every == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
        total += loss  # finding: OOM201
    return float(total)
"""


def test_the_steps_that_are_left_over_at_the_end_count(judged: Judge) -> None:
    fixed = ACCUMULATED.replace("total += loss", "total += loss.detach()")
    right = judged(ACCUMULATED, fixed)
    assert right.outcome is Outcome.CONFIRMED, told(right)
    wrong = judged(ACCUMULATED, fixed.replace(" or i + 1 == len(loader)", ""))
    assert wrong.outcome is Outcome.REGRESSED, told(wrong)


TRAIN: Final = """
def train(model, loader, opt, accelerator):
    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = 0.0
    for x, y in loader:
        loss = model(x, y)
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
        total += loss
    return total
"""


def first_beyond(after: str, row: int) -> str:
    every = [item for found in changed(TRAIN, after, script=False) for item in found]
    return beyond(TRAIN, after, ("train", "train"), row, every)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("+= loss\n", "+= loss.item()\n", "", id="the statement itself"),
        pytest.param("def train(model, loader, opt, accelerator):\n", "def train(model, loader, opt, accelerator):\n    'Train.'\n", "", id="words"),
        pytest.param("        total +=", "        value = loss.detach()\n        total +=", "", id="a name for a number"),
        pytest.param("        total += loss\n", "        with torch.no_grad():\n            total += loss\n", "", id="a context around it"),
        pytest.param("backward(loss)", "backward(loss.detach())", "line 7, `accelerator.backward(loss)`", id="a gradient less"),
        pytest.param("backward(loss)", "backward(loss / 2)", "line 7, `accelerator.backward(loss)`", id="another gradient"),
        pytest.param("        opt.zero_grad()\n", "", "line 9, `opt.zero_grad()`", id="taken out"),
        pytest.param("        total +=", "        opt.step()\n        total +=", "line 10, `opt.step()`", id="put in"),
    ],
)
def test_what_a_mend_does_beside_the_finding(old: str, new: str, words: str) -> None:
    assert old in TRAIN
    assert first_beyond(TRAIN.replace(old, new), 10) == words


def test_the_finding_may_be_about_the_loop_around() -> None:
    assert not first_beyond(TRAIN.replace("+= loss\n", "+= loss.item()\n"), 5)


@pytest.mark.parametrize(
    ("line", "hides"),
    [
        ("line 26: `model.load_state_dict(state)` was left out", True),
        ("line 18: TypeError: cannot unpack non-iterable Linear object", True),
        ("accelerate: replaced by a stand-in", True),
        ("tqdm: replaced by a stand-in", False),
        ("line 28: the call of print, not run", False),
        ("the state of the random generators was not compared", False),
    ],
)
def test_what_hides_an_effect(line: str, hides: bool) -> None:  # noqa: FBT001 - a parameter
    assert bool(hidden([line])) is hides


def test_owners_of_parameters_are_read_off_the_program() -> None:
    text = "opt_g = torch.optim.Adam(self.netG.parameters(), lr=1)\nself.optim_d = AdamW(params=D.module.parameters())\nx = f(y.parameters())\n"
    assert stub_optimizer.owners(text) == {"opt_g": "netG", "optim_d": "D"}


@pytest.mark.parametrize(
    ("name", "many"), [("labels", True), ("args.class_weights", True), ("ys", True), ("num_classes", False), ("batch_size", False), ("n", False)]
)
def test_what_has_a_value_for_each_sample_is_told_by_its_name(name: str, many: bool) -> None:  # noqa: FBT001 - a parameter
    assert bool(symbolic_sweep.rows(name)) is many


TWO: Final = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4, num_workers=0, persistent_workers=True)
losses = []
for (x,) in loader:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
print(len(losses))
"""


def test_edits_for_two_findings_are_judged_one_by_one(runner: SandboxRunner, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    program, after = tmp_path / "project" / "train.py", tmp_path / "after.py"
    program.write_text(TWO)
    after.write_text(TWO.replace(", " + ALWAYS, "").replace("append(loss)", "append(loss.detach())"))
    findings = [found(program, code) for code in ("OOM101", "OOM202")]
    for case, other in zip(edited_cases.cases(str(after), findings, findings, str(program.parent), []), ("line 14, `losses", "line 7, `loader"), strict=True):
        verdict = verify(runner, case)
        assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
        assert any(item.startswith(other) and "another finding" in item for item in verdict.assumptions), told(verdict)
    wrong = after.read_text().replace("optimizer.step()", "pass")
    after.write_text(wrong)
    (case,) = edited_cases.cases(str(after), findings[1:], findings, str(program.parent), [])
    assert verify(runner, case).outcome is Outcome.REGRESSED


def test_what_a_call_does_not_lead_to_is_told_and_does_not_block(judged: Judge) -> None:
    train = "\n\ndef train(model, loader):\n    total = 0.0\n    for x in loader:\n        total += model(x)\n    return total\n"
    verdict = judged(LOADER + train, GUARDED + train.replace("model(x)", "model(x).detach()"))
    assert verdict.outcome is Outcome.CONFIRMED, told(verdict)
    assert any("total += model(x).detach()" in item and "was not run" in item for item in verdict.left_out), told(verdict)
