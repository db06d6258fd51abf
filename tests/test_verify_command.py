"""The user's own command before and after a fix: growth, failures, memory, and what counts as the same."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.config import Settings
from oomlint.finding import Confidence, Finding, Place, Severity
from oomlint.model.project import Project
from oomlint.verify.case import Case, Fidelity, Outcome, Verdict
from oomlint.verify.child.driving.command import parse
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import command as strategy
from oomlint.verify.strategies.command_metrics import masked

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

if not all(map(importlib.util.find_spec, ("torch", "numpy", "h5py"))) or sys.platform != "linux":
    pytest.skip("the command is run with torch, numpy and h5py, on Linux", allow_module_level=True)

PLAIN = "python train.py"

TRAIN = """\
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

def train(steps):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(240, 8), torch.randn(240, 4))
    loader = DataLoader(data, batch_size=10, shuffle=True)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, losses = 0.0, []
    for epoch in range(2):
        start = time.time()
        for number, (x, y) in enumerate(loader):
            if number == steps:
                break
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
            # HERE
        print(f"epoch {epoch} loss {float(total):.4f} took {time.time() - start:.5f} s")
    torch.save(model.state_dict(), "model.pt")

if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
"""


@dataclass
class Harness:
    runner: SandboxRunner
    settings: Settings

    def verify(self, folder: Path, code: str, before: str, after: str | None, mark: str = "# HERE", command: str = PLAIN, **files: str) -> Verdict:
        path = folder / "train.py"
        path.write_text(before, encoding="utf-8")
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        row = next(number for number, line in enumerate(before.splitlines(), 1) if mark in line)
        finding = Finding(code, "a-rule", "it does", Severity.ERROR, Confidence.HIGH, Place(str(path), 0, row, 1, row, 2))
        changes = {} if after is None else {str(path): (before.encode(), after.encode())}
        case = Case(finding, str(folder), changes)
        with Base(str(folder), within=self.runner.place) as base, Trees(base, changes) as trees:
            session = Session(case, Project(str(folder), self.settings, {}), self.settings, VerifyOptions(command=command), self.runner, trees)
            return strategy.verify(session)


@pytest.fixture(scope="module")
def harness(runner: SandboxRunner) -> Harness:
    return Harness(runner, Settings())


def reading(verdict: Verdict, name: str) -> Any:
    return next(item for item in verdict.readings if item.name == name)


LEAKY = TRAIN.replace("total += float(loss)\n            # HERE", "total += loss  # HERE")
CURED = TRAIN.replace("total += float(loss)\n            # HERE", "total += loss.detach()  # HERE")


def test_a_graph_that_grows_and_is_cut(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED)
    assert (verdict.outcome, verdict.fidelity) == (Outcome.CONFIRMED, Fidelity.COMMAND), verdict
    assert verdict.reason == "autograd nodes grow by 6 a step before, by 0 after; batches, output and files are the same"
    nodes = reading(verdict, "autograd nodes a step")
    assert (nodes.before, nodes.after) == ((6.0,), (0.0,))
    assert [item.axis for item in verdict.timelines] == ["step", "step", "step", "seconds"]
    assert len(reading(verdict, "peak memory of all processes").before) == 2


def test_without_a_fix_the_symptom_is_shown(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, None)
    assert (verdict.outcome, verdict.reason) == (Outcome.SHOWN, "autograd nodes grow by 6 a step")
    verdict = harness.verify(tmp_path, "OOM201", CURED, None)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_SHOWN, "nothing grows from step to step")


def test_what_is_no_leak_is_no_effect(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM201", CURED, CURED.replace("loss.detach()", "loss.item()"))
    assert verdict.outcome is Outcome.NO_EFFECT, verdict


def test_what_changes_the_training_is_a_regression(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED.replace("lr=0.1", "lr=0.2"))
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.reason.startswith("it prints something else: `epoch 0 loss ")
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED.replace("shuffle=True", "shuffle=False"))
    assert verdict.reason.startswith("batch 1 of the loop at train.py:14 differs")
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED.replace("torch.save(model.state_dict()", "torch.save(optimizer.state_dict()"))
    assert verdict.reason == "the file model.pt is another after the fix"
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED.replace("total += loss", "total += losses[0]"))
    assert (verdict.outcome, verdict.reason) == (
        Outcome.REGRESSED,
        "your command fails after the fix: IndexError: list index out of range (train.py:21)",
    )


def test_what_cannot_be_known_is_inconclusive(harness: Harness, tmp_path: Path) -> None:
    wild = "torch.seed()\n    data ="
    verdict = harness.verify(tmp_path, "OOM201", LEAKY.replace("data =", wild), CURED.replace("data =", wild))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason.endswith("but two runs of your command before the fix do not get the same batches: with fixed seeds they would")
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED, command="python train.py 3")
    assert verdict.reason == "your command takes too few steps to tell (8; 10 are needed)"
    verdict = harness.verify(tmp_path, "OOM201", LEAKY + "\ndef other(total, loss):\n    total += loss  # THERE\n", CURED, mark="# THERE")
    assert verdict.reason == "your command does not run row 29"
    verdict = harness.verify(tmp_path, "OOM201", "raise ValueError('no data')  # HERE\n", CURED)
    assert verdict.reason == "your command fails before the fix: ValueError: no data (train.py:1)"
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, CURED, command="python nowhere.py")
    assert "No such file" in verdict.reason


LISTED = """\
import threading
import torch

model = torch.nn.Linear(8, 4)
batches = [torch.randn(10, 8) for _ in range(24)]


def train(kept):
    for x in batches:
        loss = model(x).square().mean()
        kept.append(loss)  # HERE
    print(len(kept))


CALL
"""


def test_a_row_that_runs_in_a_loop_over_no_loader(harness: Harness, tmp_path: Path) -> None:
    before = LISTED.replace("CALL", "train([])")
    verdict = harness.verify(tmp_path, "OOM202", before, None)
    assert (verdict.outcome, verdict.reason) == (Outcome.SHOWN, "autograd nodes grow by 4 a step"), verdict
    moved = before.replace("for x in batches:", "for x in batches:\n        assert len(x)").replace(
        "append(loss)", "append(\n            loss.item()\n        )"
    )
    verdict = harness.verify(tmp_path, "OOM202", before, moved)
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert reading(verdict, "autograd nodes a step").after == (0.0,)
    verdict = harness.verify(tmp_path, "OOM202", LISTED.replace("CALL", "threading.Thread(target=train, args=([],)).start()"), None)
    assert verdict.reason.startswith("your command runs the row in no process or thread where steps are counted"), verdict
    assert "loader" in verdict.reason


def test_that_nothing_is_pinned_without_an_accelerator_is_told(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM201", LEAKY.replace("shuffle=True", "pin_memory=True"), None)
    assert verdict.outcome is Outcome.SHOWN
    assert any("pin_memory" in item for item in verdict.assumptions), verdict


def test_a_meter_in_another_file(harness: Harness, tmp_path: Path) -> None:
    meter = "class Meter:\n    def __init__(self):\n        self.total = 0\n    def update(self, value):\n        self.total = self.total + value\n"
    program = TRAIN.replace("import torch\n", "import torch\nfrom meter import Meter\n", 1).replace("total, losses = 0.0, []", "total, meter = 0.0, Meter()")
    leaky = program.replace("# HERE", "meter.update(loss)  # HERE")
    verdict = harness.verify(tmp_path, "OOM203", leaky, leaky.replace("update(loss)", "update(loss.item())"), meter=meter)
    assert verdict.outcome is Outcome.CONFIRMED, verdict


RANDOM = """\
import random, torch
from torch.utils.data import DataLoader

class Noise:
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.tensor([random.random()])

kept, weight = [], torch.ones(1, requires_grad=True)
for x in DataLoader(Noise(), 2, num_workers=2):
    kept.append((weight * x).sum())  # HERE
print(float(sum(kept).detach()), random.random())
"""


def test_what_is_drawn_at_random_repeats(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM202", RANDOM, RANDOM.replace(".sum())", ".sum().detach())"))
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert not verdict.left_out


def test_a_script_of_the_shell(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("set -e\ncd .\npython -u train.py 20 | tee log.txt\n", encoding="utf-8")
    verdict = harness.verify(tmp_path, "OOM201", LEAKY, None, command="bash run.sh")
    assert (verdict.outcome, verdict.reason) == (Outcome.SHOWN, "autograd nodes grow by 6 a step")


def test_evaluation_with_gradients(harness: Harness, tmp_path: Path) -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\n"
    loop = "for x in DataLoader(torch.ones(60, 4), 5):\n    out = model(x)  # HERE\nprint(out.sum().item())\n"
    after = head + "with torch.no_grad():\n    " + loop.replace("\n    ", "\n        ")
    verdict = harness.verify(tmp_path, "OOM204", head + loop, after)
    assert (verdict.outcome, verdict.reason) == (
        Outcome.CONFIRMED,
        "a step saves 160 B for backward before, 0 B after; batches, output and files are the same",
    )


def test_a_loader_that_raises(harness: Harness, tmp_path: Path) -> None:
    before = (
        "import torch\nfrom torch.utils.data import DataLoader\nfor x in DataLoader(torch.ones(8), 2, persistent_workers=True):  # HERE\n    print(x.sum())\n"
    )
    after = before.replace("persistent_workers=True", "persistent_workers=False")
    verdict = harness.verify(tmp_path, "OOM101", before, after)
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.reason == (
        "your command fails with ValueError: persistent_workers option needs num_workers > 0 (train.py:3) before, and runs to its end after"
    )
    assert harness.verify(tmp_path, "OOM101", before, None).outcome is Outcome.SHOWN
    assert harness.verify(tmp_path, "OOM101", after, after + "\n").outcome is Outcome.NO_EFFECT
    assert harness.verify(tmp_path, "OOM101", after, before).outcome is Outcome.REGRESSED
    assert harness.verify(tmp_path, "OOM102", before, after).outcome is Outcome.INCONCLUSIVE


HDF5 = """\
import h5py, torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = h5py.File(path)  # HERE
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.from_numpy(self.file["x"][index])

if __name__ == "__main__":
    with h5py.File("data.h5", "w") as file:
        file["x"] = [[1.0, 2.0]] * 8
    for batch in DataLoader(Images("data.h5"), 2, num_workers=1, multiprocessing_context="spawn"):
        print(batch.sum().item())
"""
LAZY = HDF5.replace("self.file = h5py.File(path)  # HERE", "self.file = None").replace(
    "        return torch", "        if self.file is None:\n            self.file = h5py.File(self.path)\n        return torch"
)


def test_a_handle_that_cannot_be_sent_to_workers(harness: Harness, tmp_path: Path) -> None:
    verdict = harness.verify(tmp_path, "OOM301", HDF5, LAZY)
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert "h5py objects cannot be pickled" in verdict.reason
    forked = [text.replace(', multiprocessing_context="spawn"', "") for text in (HDF5, LAZY)]
    verdict = harness.verify(tmp_path, "OOM301", *forked)
    assert (verdict.outcome, verdict.reason) == (
        Outcome.INCONCLUSIVE,
        "your command does not fail before the fix: it starts no worker by `spawn` or `forkserver`",
    )


def test_handles_that_stay_open(harness: Harness, tmp_path: Path) -> None:
    before = HDF5.replace("self.file = h5py.File(path)  # HERE", "self.files = []").replace(', num_workers=1, multiprocessing_context="spawn"', "")
    before = before.replace('Images("data.h5"), 2', 'Images("data.h5"), 1').replace("return 8", "return 20").replace("]] * 8", "]] * 20")
    before = before.replace(
        "        return torch", "        self.file = h5py.File(self.path)\n        self.files.append(self.file)  # HERE\n        return torch"
    )
    verdict = harness.verify(tmp_path, "OOM307", before, before.replace("self.files.append(self.file)", "pass"))
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert verdict.reason.startswith("HDF5 identifiers grow by 1 a step before, by 0 after")


COPIED = """\
import torch
from torch.utils.data import DataLoader, Dataset

class Names(Dataset):
    def __init__(self):
        self.items = [{"name": f"image number {number}", "label": number + 0.5} for number in range(60_000)]
    def __len__(self):
        return len(self.items)
    def __getitem__(self, index):
        return self.items[index]["label"]

if __name__ == "__main__":
    for batch in DataLoader(Names(), 1000, shuffle=True, num_workers=2):  # HERE
        pass
    print(batch.shape)
"""


def test_what_workers_copy(harness: Harness, tmp_path: Path) -> None:
    after = COPIED.replace('self.items = [{"name"', 'import numpy as np\n        items = [{"name"').replace(
        "range(60_000)]", 'range(60_000)]\n        self.items = np.array([item["label"] for item in items])'
    )
    after = after.replace('self.items[index]["label"]', "float(self.items[index])")
    verdict = harness.verify(tmp_path, "OOM110", COPIED, after)
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    figures = reading(verdict, "memory that workers add")
    assert len(figures.before) == len(figures.after) == 3
    assert min(figures.before) > max(figures.after) + 5e6


def test_what_is_read_for_every_step(harness: Harness, tmp_path: Path) -> None:
    text = HDF5.replace(', num_workers=1, multiprocessing_context="spawn"', "").replace("[[1.0, 2.0]] * 8", "[[1.0] * 20_000] * 8")
    before = text.replace('self.file["x"][index])', 'self.file["x"][:][index])  # THERE')
    verdict = harness.verify(tmp_path, "OOM304", before, text, mark="# THERE")
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert verdict.reason.startswith("bytes read for a step: 2.5 MiB before, 3")


def test_what_is_held(harness: Harness, tmp_path: Path) -> None:
    text = "import numpy as np\nfrom torch.utils.data import DataLoader\n"
    before = f"{text}data = np.stack([np.ones(1000) for _ in range(500)]).tolist()  # HERE\nfor x in DataLoader(range(20), 2):\n    print(data[x[0]][:3])\n"
    verdict = harness.verify(tmp_path, "OOM405", before, before.replace(".tolist()", "").replace("[:3]", "[:3].tolist()"))
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert verdict.reason.startswith("most memory at a time: ")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 0.1", ({}, "train.py", "", ("--lr", "0.1"))),
        ("CUDA_VISIBLE_DEVICES=0 python3 -u -W ignore train.py 'a b'", ({"CUDA_VISIBLE_DEVICES": "0"}, "train.py", "", ("a b",))),
        ("/usr/bin/python3.11 -m pkg.train -x", ({}, "", "pkg.train", ("-x",))),
        ("uv run python train.py", ({}, "train.py", "", ())),
        ("bash run.sh", ({}, "", "", ())),
        ("python -c 'print(1)'", ({}, "", "", ())),
        ("python train.py > log", ({}, "", "", ())),
        ("torchrun --nproc-per-node 2 train.py", ({}, "", "", ())),
        ("python train.py --name 'x > y'", ({}, "train.py", "", ("--name", "x > y"))),
        ("python -O train.py", ({}, "", "", ())),
        ("'unbalanced", ({}, "", "", ())),
    ],
)
def test_commands_are_taken_apart(command: str, expected: tuple[dict[str, str], str, str, tuple[str, ...]]) -> None:
    assert tuple(parse(command)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss 0.123 acc 45.6%", "loss 0.123 acc 45.6%"),
        ("epoch 3 took 12.31 s", "epoch 3 took <time>"),
        ("epoch 3 took 12.31", "epoch 3 took <quantity>"),
        ("12.3 it/s, 0.2s/it, 100 samples/s", "<speed>, <speed>, <speed>"),
        ("2024-05-01 12:30:11,123 INFO loss 3", "<date> INFO loss 3"),
        ("[00:12<01:30]", "[<time><<time>]"),
        ("GPU memory: 123.4 MB", "GPU memory: <size>"),
        ("<object at 0x7f3a12bc>", "<object at <address>>"),
        ("step 5 size 3", "step 5 size 3"),
    ],
)
def test_what_no_two_runs_share_is_masked(line: str, expected: str) -> None:
    assert masked(line) == expected
