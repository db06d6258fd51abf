"""Verdicts on loops: by what is measured of them, and on programs that are run."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.config import load_settings
from oomlint.finding import Confidence, Finding, Fix, Place, Safety, Severity
from oomlint.model.project import Project
from oomlint.verify.case import Case, Fidelity, Outcome, Verdict, plan_of
from oomlint.verify.jobs import Limits
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import loops
from oomlint.verify.strategies.known_constants import known_in, modes
from oomlint.verify.strategies.locate_loop import LoopTarget, followed
from oomlint.verify.strategies.loop_verdict import Expected, LoopRuns, Way, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.measurement import LoopPlan
    from oomlint.verify.sandbox_runner import SandboxRunner


def plan(code: str) -> LoopPlan:
    loop = plan_of(code).loop
    assert loop is not None
    return loop


def finding(code: str, path: Path | str = "/p/train.py", row: int = 1, safety: Safety | None = Safety.SAFE) -> Finding:
    place = Place(str(path), 0, row, 1, row, 2)
    fix = None if safety is None else Fix(safety, "fix it")
    return Finding(code, "a-rule", "what it says", Severity.WARNING, Confidence.HIGH, place, fix=fix)


def case(code: str, safety: Safety | None = Safety.SAFE) -> Case:
    return Case(finding(code, safety=safety), "/p", {} if safety is None else {"/p/train.py": (b"1", b"2")})


def answer(**columns: Any) -> dict[str, Any]:
    """What a run of twelve steps without growth gives, and what is said otherwise."""
    deltas = {name: columns.pop(name, [0] * 12) for name in ("nodes", "storages", "storage_bytes", "python_bytes", "device_bytes")}
    plain = {"ok": True, "result": ["total: 1f3a"], "printed": {"digest": "0", "text": ""}, "generators": "ab", "exception": None, "reached": True}
    return {**plain, "saved_bytes": [0] * 12, "copied_bytes": [0] * 12, "descriptors": [9] * 12, "deltas": deltas, **columns}


def judged(code: str, before: dict[str, Any], after: dict[str, Any] | None = None, safety: Safety | None = Safety.SAFE, **way: Any) -> Verdict:
    if after is None:
        return judge(case(code, None), plan(code), Way(None, **way), LoopRuns(before))
    return judge(case(code, safety), plan(code), Way(None, **way), LoopRuns(before, before, after))


GROWS = answer(nodes=[5] * 12, storages=[3] * 12, storage_bytes=[1120] * 12)


# -- what was measured -------------------------------------------------------------------------------------------------


def test_a_graph_that_goes_is_confirmed() -> None:
    verdict = judged("OOM201", GROWS, answer())
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.reason == "autograd nodes grow by 5 a step before, by 0 after"
    assert verdict.fidelity is Fidelity.SYNTHETIC
    assert list(verdict.readings[0].before) == [5]
    assert list(verdict.timelines[0].before[-1]) == [12, 60]


def test_tensors_without_a_graph_may_stay_in_their_list() -> None:
    assert judged("OOM202", GROWS, answer(storages=[1] * 12, storage_bytes=[160] * 12)).outcome is Outcome.CONFIRMED


def test_a_fix_that_keeps_more_is_not_confirmed() -> None:
    verdict = judged("OOM202", GROWS, answer(storages=[1] * 12, storage_bytes=[5000] * 12))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "bytes of tensors grow by 1.1 KiB a step before, by 4.9 KiB after" in verdict.reason


def test_what_stays_is_inconclusive() -> None:
    verdict = judged("OOM201", GROWS, GROWS)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "does not end it" in verdict.reason
    assert "lessens" in judged("OOM201", GROWS, answer(nodes=[2] * 12)).reason


def test_no_growth_is_no_effect() -> None:
    verdict = judged("OOM201", answer(), answer())
    assert verdict.outcome is Outcome.NO_EFFECT
    assert verdict.reason == "nothing grows from step to step before the fix"


def test_no_growth_says_nothing_where_a_library_was_stood_in_for() -> None:
    verdict = judged("OOM201", answer(), answer(), stubbed=("tqdm", "pointnet2_ops"))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "pointnet2_ops was replaced by a stand-in" in verdict.reason
    assert judged("OOM201", answer(), answer(), stubbed=("tqdm",)).outcome is Outcome.NO_EFFECT


def test_a_row_that_was_not_reached_says_nothing() -> None:
    verdict = judged("OOM201", answer(reached=False), answer())
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == "the row of the finding was not reached"


def test_a_run_without_any_graph_says_nothing_of_graphs() -> None:
    silent = LoopRuns(answer(), answer(), answer())
    verdict = judge(case("OOM201"), plan("OOM201"), Way(None), silent, Expected(graphs=True))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == "no graph was recorded on synthesised data"
    learns = answer(saved_bytes=[64] * 12)
    assert judge(case("OOM201"), plan("OOM201"), Way(None), LoopRuns(learns, learns, learns), Expected(graphs=True)).outcome is Outcome.NO_EFFECT


def test_what_was_not_run_has_no_effect_on_anything() -> None:
    assert judged("OOM209", answer(), answer(), Safety.UNSAFE).reason == "nothing was seen to be copied on synthesised data"
    assert judged("OOM209", answer(copied_bytes=[100] * 12), answer(), Safety.UNSAFE).outcome is Outcome.NO_EFFECT
    assert judged("OOM207", answer(processes=[0] * 12), answer()).reason == "no worker was started"
    assert judged("OOM207", answer(processes=[2] * 12), answer()).outcome is Outcome.NO_EFFECT


def test_what_is_kept_now_and_then_is_not_called_harmless() -> None:
    seldom = answer(nodes=[0] * 5 + [5, 0, 0, 0, 0, 5, 0])
    assert judged("OOM201", seldom, answer()).outcome is Outcome.INCONCLUSIVE


def test_too_few_steps_say_nothing() -> None:
    short = answer(nodes=[5] * 4, storages=[3] * 4, storage_bytes=[9] * 4)
    assert judged("OOM201", short, answer(nodes=[0] * 4, storages=[0] * 4, storage_bytes=[0] * 4)).outcome is Outcome.INCONCLUSIVE


def test_a_new_exception_is_a_regression() -> None:
    verdict = judged("OOM201", GROWS, {"ok": False, "exception": "AttributeError: 'float' object has no attribute 'detach'"})
    assert verdict.outcome is Outcome.REGRESSED
    assert "AttributeError" in verdict.reason


def test_a_failure_that_differs_by_its_clock_is_the_same() -> None:
    failures = [[f"line {row}: FileNotFoundError: 'runs/2026-11-29T{hour}:59:09.47/log.txt'"] for row, hour in ((91, 21), (92, 22))]
    before, after = (grown | {"failures": failed} for grown, failed in zip((GROWS, answer()), failures, strict=True))
    assert judged("OOM201", before, after).outcome is Outcome.CONFIRMED
    verdict = judged("OOM201", GROWS, after)
    assert verdict.outcome is Outcome.REGRESSED
    assert "FileNotFoundError" in verdict.reason


def test_another_result_is_a_regression() -> None:
    verdict = judged("OOM201", GROWS, answer(result=["total: 77"]))
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.reason == "the result differs: `total: 1f3a` before, `total: 77` after"


def test_variables_of_the_function_may_come_and_go() -> None:
    before = {**GROWS, "result": ["returned: 1", "`found`: 2", "parameters of model 0: 3"]}
    assert judged("OOM201", before, answer(result=["returned: 1", "`parts`: 4", "parameters of model 0: 3"])).outcome is Outcome.CONFIRMED
    assert judged("OOM201", before, answer(result=["returned: 1", "`found`: 4", "parameters of model 0: 3"])).outcome is Outcome.REGRESSED
    assert judged("OOM201", before, answer(result=["returned: 1", "`found`: 2"])).outcome is Outcome.REGRESSED


def test_another_printed_text_is_a_regression() -> None:
    verdict = judged("OOM201", GROWS, answer(printed={"digest": "1", "text": "done"}))
    assert verdict.outcome is Outcome.REGRESSED
    assert "printed text" in verdict.reason


def test_a_graph_that_is_no_longer_printed_is_none() -> None:
    before = {**GROWS, "printed": {"digest": "1", "text": "tensor(1.5, grad_fn=<AddBackward0>)"}}
    assert judged("OOM201", before, answer(printed={"digest": "2", "text": "tensor(1.5)"})).outcome is Outcome.CONFIRMED


@pytest.mark.parametrize(("text", "outcome"), [("-20.74716655107645", Outcome.CONFIRMED), ("-20.7374", Outcome.REGRESSED), ("tensor", Outcome.REGRESSED)])
def test_a_number_that_is_printed_in_place_of_a_tensor_is_compared_as_far_as_it_is_printed(text: str, outcome: Outcome) -> None:
    before = {**GROWS, "printed": {"digest": "1", "text": "mean tensor(-20.7472, device='cuda:0')"}}
    assert judged("OOM201", before, answer(printed={"digest": "2", "text": f"mean {text}"})).outcome is outcome


def test_other_random_numbers_are_a_regression() -> None:
    assert judged("OOM201", GROWS, answer(generators="cd")).outcome is Outcome.REGRESSED


def test_what_does_not_repeat_is_inconclusive() -> None:
    runs = LoopRuns(GROWS, {**GROWS, "result": ["total: 2"]}, answer())
    assert judge(case("OOM201"), plan("OOM201"), Way(None), runs).outcome is Outcome.INCONCLUSIVE


def test_times_in_the_printed_text_do_not_count() -> None:
    printing = ((GROWS, "took 0.12 s"), (GROWS, "took 0.31 s"), (answer(), "took 0.4 s"))
    first, second, after = ({**item, "printed": {"digest": text, "text": text}} for item, text in printing)
    runs = LoopRuns(first, second, after)
    verdict = judge(case("OOM201"), plan("OOM201"), Way(None), runs)
    assert verdict.outcome is Outcome.CONFIRMED
    assert any("were not compared" in item for item in verdict.left_out)


def test_other_kernels_without_gradients_are_no_regression() -> None:
    before = answer(saved_bytes=[4096] * 12, numbers_by={"total": [0.5, 2.0]})
    verdict = judged("OOM204", before, answer(result=["total: 77"], numbers_by={"total": [0.5000001, 2.0]}))
    assert verdict.outcome is Outcome.CONFIRMED
    assert "a step saves 4.0 KiB for backward before, 0 B after" in verdict.reason
    assert "not to the last bit" in verdict.reason
    assert judged("OOM204", before, answer(result=["total: 77"], numbers_by={"total": [0.6, 2.0]})).outcome is Outcome.REGRESSED


def test_rounding_of_a_safe_fix_is_a_regression() -> None:
    changed = answer(result=["total: 77"], numbers_by={"total": [0.5000001]})
    assert judged("OOM201", {**GROWS, "numbers_by": {"total": [0.5]}}, changed).outcome is Outcome.REGRESSED
    assert judged("OOM201", {**GROWS, "numbers_by": {"total": [0.5]}}, changed, Safety.UNSAFE).outcome is Outcome.CONFIRMED


def test_a_state_that_is_cut_off_learns_something_else() -> None:
    verdict = judged("OOM212", GROWS, answer(result=["w: 9"]), Safety.UNSAFE)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "for you to say" in verdict.reason


def test_a_second_backward_is_the_symptom_of_a_dragged_state() -> None:
    fails = {"ok": False, "exception": "RuntimeError: Trying to backward through the graph a second time"}
    assert judged("OOM212", fails, answer(), Safety.UNSAFE).outcome is Outcome.CONFIRMED
    assert judged("OOM212", fails).outcome is Outcome.SHOWN
    assert judged("OOM201", fails, answer()).outcome is Outcome.INCONCLUSIVE


def test_epochs_are_counted_where_a_list_outlives_them() -> None:
    before, after = answer(storages=[1, 1] * 9), answer(storages=[1, -1] * 9)
    verdict = judged("OOM206", before, after)
    assert verdict.outcome is Outcome.CONFIRMED
    assert "live tensors grow by 2 an epoch before, by 0 after" in verdict.reason


def test_descriptors_of_workers() -> None:
    verdict = judged("OOM207", answer(descriptors=list(range(9, 33, 2))), answer())
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.reason == "open descriptors grow by 2 a step before, by 0 after"
    assert verdict.readings[0].under == "2 workers"


def test_a_small_part_instead_of_the_whole() -> None:
    assert judged("OOM208", answer(storage_bytes=[4000] * 12), answer(storage_bytes=[100] * 12), Safety.UNSAFE).outcome is Outcome.CONFIRMED
    same = judged("OOM208", answer(storage_bytes=[100] * 12), answer(storage_bytes=[100] * 12), Safety.UNSAFE)
    assert same.outcome is Outcome.INCONCLUSIVE  # the stand-in's shape decides that
    assert "as large as what it is cut from" in same.reason


def test_copies_of_all_so_far() -> None:
    verdict = judged("OOM209", answer(copied_bytes=[100 * step for step in range(12)]), answer(), Safety.UNSAFE)
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.reason == "each step copies 100 B more than the one before it; after the fix no more"


def test_without_a_fix_the_symptom_is_shown_or_not() -> None:
    verdict = judged("OOM219", answer(storage_bytes=[2000] * 12, storages=[1] * 12))
    assert verdict.outcome is Outcome.SHOWN
    assert verdict.reason == "bytes of tensors grow by 2.0 KiB a step: 1.9 MiB in 1000 steps on this synthesised data"
    assert judged("OOM219", answer()).outcome is Outcome.NOT_SHOWN
    assert judged("OOM220", answer(device_bytes=[64] * 12)).readings[0].under == "simulated device"


# -- where the loop is -------------------------------------------------------------------------------------------------

LOOP = "import torch\n\n\ndef test(model, loader):\n    total = 0\n    for x in loader:\n        total += model(x)\n    return total\n"
WRAPPED = LOOP.replace("    for x in loader:\n        total", "    with torch.no_grad():\n        for x in loader:\n            total")


@pytest.mark.parametrize(
    ("after", "row"),
    [
        pytest.param(LOOP.replace("def test", "@torch.no_grad()\ndef test"), 8, id="decorated"),
        pytest.param(LOOP.replace("model(x)\n", "model(x).detach()\n"), 7, id="changed in its line"),
        pytest.param(WRAPPED, 8, id="wrapped"),
        pytest.param(LOOP.replace("        total += model(x)", "        y = model(x)\n        total += y"), 7, id="taken apart"),
        pytest.param("def helper(): ...\n" + LOOP, 8, id="moved down"),
    ],
)
def test_the_loop_is_found_again(after: str, row: int) -> None:
    assert followed(LOOP, after, LoopTarget("test", 7)) == LoopTarget("test", row)


def test_a_function_that_is_gone_is_not_found() -> None:
    assert followed(LOOP, LOOP.replace("def test", "def other"), LoopTarget("test", 7)) is None
    assert followed(LOOP, "def test(model, loader):\n    return sum(map(model, loader))\n", LoopTarget("test", 7)) is None


def test_constants_that_a_function_reads(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        dedent("""\
        import argparse

        CLASSES = 10


        def train(model, args, size, train=True, name=None, kind=None):
            for step in range(3):
                model(CLASSES, args.lr, size, name, kind)


        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.1)
        args = parser.parse_args()
        train(None, args, size=4, name="one", kind="all")
        train(None, args, size=4, kind="some")
        """),
        encoding="utf-8",
    )
    settings, _ = load_settings(None, isolated=True, start=tmp_path)
    known = known_in(Project(tmp_path, settings), str(path), "train")
    assert known == {"CLASSES": 10, "args.lr": 0.1, "size": 4, "kind": "all"}, "a name that one caller leaves out may be left out"


def test_modes_of_a_function() -> None:
    assert modes("def run(model, train, phase): ...", "run") == ([{"train": False, "phase": "val"}], [{"train": True, "phase": "train"}])
    assert modes("def run(model): ...", "run") == ([], [])


# -- programs that are run ---------------------------------------------------------------------------------------------


class Program:
    """A program with the row of its finding marked by ``# here``, and what fixes make of it."""

    def __init__(self, code: str, text: str, *fixes: tuple[str, str], safety: Safety = Safety.SAFE) -> None:
        self.code = code
        self.text = dedent(text)
        self.fixes = fixes
        self.safety = safety

    @property
    def row(self) -> int:
        return next(row for row, line in enumerate(self.text.splitlines(), 1) if "# here" in line)

    def fixed(self) -> str:
        text = self.text
        for old, new in self.fixes:
            assert old in text
            text = text.replace(old, new)
        return text


@pytest.fixture
def verified(runner: SandboxRunner, tmp_path: Path) -> Callable[[Program], Verdict]:
    def verify(program: Program) -> Verdict:
        path = tmp_path / "program.py"
        path.write_text(program.text, encoding="utf-8")
        changes = {str(path): (program.text.encode(), program.fixed().encode())} if program.fixes else {}
        told = Case(finding(program.code, path, program.row, program.safety if program.fixes else None), str(tmp_path), changes)
        settings, _ = load_settings(None, isolated=True, start=tmp_path)
        with Base(str(tmp_path), within=runner.place) as base, Trees(base, told.changes) as trees:
            return loops.verify(Session(told, Project(tmp_path, settings), settings, VerifyOptions(limits=Limits(seconds=60)), runner, trees))

    return verify


TRAIN = """\
import torch
from torch import nn


def train(model, loader, optimizer):
    criterion = nn.CrossEntropyLoss()
    total = 0.0
    history = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        {line}  # here
    return total, [float(item) for item in history]
"""

EVALUATE = """\
import torch


def evaluate(model, loader):
    model.eval()
    right = 0
    kept = []
    for images, labels in loader:{loop}
        logits = model(images)
        right += (logits.argmax(dim=1) == labels).sum().item()
        {line}
    return right, len(kept)
"""

STATE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, x, h=None):
        return self.rnn(x, h)


def evaluate(loader):
    net = Net()
    h = None
    total = 0.0
    for x in loader:
        y, h = net(torch.ones(2, 3, 8), h)  # here
        total += y.mean().item()
    return total
"""

RIGHT = {
    "sum": Program("OOM201", TRAIN.format(line="total += loss"), ("total += loss ", "total += loss.detach() ")),
    "decorated": Program("OOM204", EVALUATE.format(loop="  # here", line=""), ("def evaluate", "@torch.no_grad()\ndef evaluate")),
    "part": Program(
        "OOM208", EVALUATE.format(loop="", line="kept.append(logits.detach()[0])  # here"), ("detach()[0]", "detach()[0].clone()"), safety=Safety.UNSAFE
    ),
    "state": Program("OOM212", STATE, ("total += y.mean().item()", "total += y.mean().item()\n        h = h.detach()"), safety=Safety.UNSAFE),
    "worker": Program("OOM207", EVALUATE.format(loop="", line="kept.append(labels)  # here"), ("append(labels)", "append(labels.clone())")),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_fix_is_confirmed(name: str, verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(RIGHT[name])
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason
    assert verdict.readings[0].before[0] > 0
    assert verdict.timelines


SUMS = TRAIN.format(line="total += loss")
WRONG = {
    "changes the sum": (Program("OOM201", SUMS, ("total += loss ", "total += loss.detach() * 2 ")), Outcome.REGRESSED),
    "raises": (Program("OOM201", SUMS, ("total += loss ", "total += loss.detached() ")), Outcome.REGRESSED),
    "draws numbers": (Program("OOM201", SUMS, ("total += loss ", "total += loss.detach() + 0 * torch.rand(()) ")), Outcome.REGRESSED),
    "ends nothing": (Program("OOM202", TRAIN.format(line="history.append(loss)"), ("append(loss)", "append(loss.clone())")), Outcome.INCONCLUSIVE),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fix_is_not_confirmed(name: str, verified: Callable[[Program], Verdict]) -> None:
    program, outcome = WRONG[name]
    verdict = verified(program)
    assert verdict.outcome is outcome, verdict.reason


HARMLESS = {
    "a number": Program("OOM201", TRAIN.format(line="total += loss.item()"), ("loss.item()", "float(loss.detach())")),
    "no gradients": Program(
        "OOM204",
        EVALUATE.format(loop="  # here", line="").replace("def evaluate", "@torch.inference_mode()\ndef evaluate"),
        ("@torch.inference_mode()", "@torch.no_grad()"),
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_was_harmless_has_no_effect(name: str, verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(HARMLESS[name])
    assert verdict.outcome is Outcome.NO_EFFECT, verdict.reason


SHOWN = {
    "outputs": Program("OOM219", EVALUATE.format(loop="", line="kept.append(logits.detach().cpu())  # here")),
    "snapshots": Program(
        "OOM217",
        """\
        import copy


        def train(model, optimizer, loader, epochs):
            history = []
            for epoch in range(epochs):
                for images, labels in loader:
                    optimizer.zero_grad()
                    model(images).sum().backward()
                    optimizer.step()
                history.append(copy.deepcopy(model.state_dict()))  # here
            return len(history)
        """,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_without_a_fix_the_symptom_is_shown(name: str, verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(SHOWN[name])
    assert verdict.outcome is Outcome.SHOWN, verdict.reason


def test_without_a_fix_a_harmless_loop_shows_nothing(verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(Program("OOM219", EVALUATE.format(loop="", line="kept = [logits]  # here")))
    assert verdict.outcome is Outcome.NOT_SHOWN, verdict.reason


HOOK = """
def train(model, loader, optimizer):
    kept = []
    model.layer4.register_forward_hook(lambda module, inputs, output: {line})  # here
    for x, y in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""

CONTEXT = """
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        {line}  # here
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad, None
"""

RETAINS = """
def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = model(x).sigmoid().mean()
        {line}  # here
        optimizer.step()
"""

FEEDS = """
from torch.utils.data import DataLoader


def train(model, dataset, epochs):
    loader = DataLoader(dataset, batch_size=4, num_workers=2)
    batches = iter(loader)
    for step in range(epochs):
        batch = {line}  # here
        model.step(batch)
"""


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        pytest.param(Program("OOM211", HOOK.format(line="kept.append(output.detach())")), Outcome.SHOWN, id="a hook that appends"),
        pytest.param(Program("OOM211", HOOK.format(line="kept.append(tuple(output.shape)[:0])")), Outcome.NOT_SHOWN, id="a hook that keeps no tensor"),
        pytest.param(Program("OOM216", CONTEXT.format(line="ctx.x = x * 2")), Outcome.SHOWN, id="an attribute of a context"),
        pytest.param(Program("OOM216", CONTEXT.format(line="ctx.scale = scale")), Outcome.NOT_SHOWN, id="a number on a context"),
        pytest.param(Program("OOM210", RETAINS.format(line="loss.backward(retain_graph=True)")), Outcome.SHOWN, id="a graph that is kept"),
        pytest.param(
            Program("OOM210", RETAINS.format(line="loss.backward(retain_graph=True); (2 * loss).backward()")),
            Outcome.NOT_SHOWN,
            id="a graph that is used again",
        ),
        pytest.param(Program("OOM124", FEEDS.format(line="next(iter(loader))")), Outcome.SHOWN, id="workers started each step"),
        pytest.param(Program("OOM124", FEEDS.format(line="next(batches)")), Outcome.NOT_SHOWN, id="workers started once"),
    ],
)
def test_what_advice_is_about(program: Program, outcome: Outcome, verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(program)
    assert verdict.outcome is outcome, verdict.reason


def test_a_stand_in_for_what_the_row_feeds_says_nothing(verified: Callable[[Program], Verdict]) -> None:
    program = "def train(model, loader, meter):\n    for x, y in loader:\n        loss = model(x).mean()\n        meter.update(loss)  # here\n"
    verdict = verified(Program("OOM203", program, ("update(loss)", "update(loss.detach())")))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "`meter` was replaced by a stand-in" in verdict.reason


METRIC = """
from torchmetrics import CatMetric


def evaluate(model, loader):
    scores = CatMetric()
    for images, labels in loader:
        scores.update(model(images).mean())  # here
    return scores.compute()
"""


def test_a_metric_that_keeps_what_it_is_fed(verified: Callable[[Program], Verdict]) -> None:
    pytest.importorskip("torchmetrics")
    verdict = verified(Program("OOM213", METRIC, ("mean())", "mean().detach())")))
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason


LISTED = """
import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.losses = []

    def fit(self, loader, epochs=2):
        means = []
        for epoch in range(epochs):
            for images in loader:
                self.losses.append(self.model(images).mean().detach())  # here
            means.append(float(torch.stack(self.losses).mean()))
        return means
"""
APPENDED = "means.append(float(torch.stack(self.losses).mean()))\n"


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        pytest.param(f"{APPENDED}            self.losses.clear()\n", Outcome.CONFIRMED, id="once an epoch"),
        pytest.param(f"self.losses.clear()\n            {APPENDED.replace('stack', 'tensor')}", Outcome.REGRESSED, id="before it is read"),
    ],
)
def test_a_list_that_is_cleared(after: str, outcome: Outcome, verified: Callable[[Program], Verdict]) -> None:
    verdict = verified(Program("OOM206", LISTED, (APPENDED, after)))
    assert verdict.outcome is outcome, verdict.reason
    if outcome is Outcome.CONFIRMED:
        assert "`self.losses` is emptied on purpose: it was not compared" in verdict.left_out


def test_what_cannot_be_saved_before_and_after_is_no_regression(verified: Callable[[Program], Verdict]) -> None:
    text = """\
import datetime
import logging
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

folder = os.path.join("runs", datetime.datetime.now().isoformat())
logger = logging.getLogger()
logger.addHandler(logging.FileHandler(os.path.join("runs", "log.txt")))
model = torch.nn.Linear(4, 1)
loader = DataLoader(TensorDataset(torch.zeros(64, 4), torch.zeros(64, 1)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total = 0
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss  # here
        logger.info("%f", loss.item())
    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
"""
    verdict = verified(Program("OOM201", text, ("total += loss", "total += loss.detach()")))
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert any("'runs/log.txt'" in item for item in verdict.left_out), verdict.left_out  # named as in the project
    assert any("runs/2" in item for item in verdict.left_out), verdict.left_out


@pytest.mark.parametrize(
    ("phases", "assumed"),
    [
        pytest.param('["train", "valid"]', "loops around it begin with their second turn: in the first one the statement is not reached", id="second"),
        pytest.param('("train", "train", "valid")', "the branch of line 12 is taken", id="third"),
    ],
)
def test_a_statement_of_a_later_turn_of_the_loop_around_it_is_reached(phases: str, assumed: str, verified: Callable[[Program], Verdict]) -> None:
    text = f"""\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 1))
loaders = {{"train": DataLoader(data, batch_size=4), "valid": DataLoader(data, batch_size=4)}}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for phase in {phases}:
    total = 0
    for x, y in loaders[phase]:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if phase == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            total += loss  # here
"""
    verdict = verified(Program("OOM201", text, ("total += loss", "total += loss.item()"), safety=Safety.UNSAFE))
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert assumed in verdict.assumptions


def test_a_rising_and_falling_quantity_does_not_grow() -> None:
    turns = [1, -1] * 6
    assert judged("OOM219", answer(storages=turns, storage_bytes=[512 * item for item in turns])).outcome is Outcome.NOT_SHOWN


def test_a_kept_graph_is_told_by_what_a_step_leaves() -> None:
    verdict = judged("OOM210", answer(storage_bytes=[4000, *[0] * 11]), answer(storage_bytes=[1000, *[0] * 11]), Safety.UNSAFE)
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.reason == "a step leaves 3.9 KiB of tensors before, 1000 B after"


def test_verdicts_repeat(verified: Callable[[Program], Verdict]) -> None:
    first, second = (replace(verified(RIGHT["sum"]), seconds=0.0) for _ in range(2))
    assert first == second
