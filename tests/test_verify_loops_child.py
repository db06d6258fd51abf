"""Loops of programs that cannot be run as they stand: cut out, replaced by a stand-in, measured."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHILD = """
import json, sys
from importlib import import_module
loops = import_module("oomlint.verify.child.driving.loop_job")
path, root, function, row, known, options = json.loads(sys.argv[1])
found = loops.find(path, root, function, row, known, seconds=20)
answer = {"find": found}
if found["found"]:
    answer["measure"] = loops.measure(path, root, function, row, found["state"], **options)
sys.stdout.write("\\n" + json.dumps(answer))
"""


def answer(folder: Path, text: str, function: str, known: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """What a process of its own says of the row marked `# here`."""
    program = dedent(text)
    path = folder / "train.py"
    path.write_text(program)
    row = next(number for number, line in enumerate(program.splitlines(), 1) if "# here" in line)
    argument = json.dumps([str(path), str(folder), function, row, known or {}, options])
    environment = {**os.environ, "PYTHONPATH": HERE, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, argument], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def measured(folder: Path, text: str, function: str, **options: Any) -> dict[str, Any]:
    said = answer(folder, text, function, **options)
    assert said["find"]["found"], said["find"]
    result: dict[str, Any] = said["measure"]
    assert result["ok"], result
    return result


def growth(result: dict[str, Any], name: str) -> set[int]:
    """The differences after warming up, each once."""
    return set(result["deltas"][name][3:-1])


CLASSIFY = """
    import torch
    import torch.nn.functional as F

    def train(model, loader, optimizer, device):
        model.train()
        total = 0
        for batch in loader:
            images, labels = batch["image"].to(device), batch["label"].to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += {}  # here
        return total / len(loader)
"""


def test_a_loop_that_keeps_nothing_has_differences_of_exactly_zero(tmp_path: Path) -> None:
    result = measured(tmp_path, CLASSIFY.format("loss.item()"), "train")
    assert result["steps"] == 12
    assert result["reached"]
    for name in ("storages", "storage_bytes", "nodes"):
        assert growth(result, name) == {0}
    assert len(result["deltas"]["nodes"]) == 12


def test_a_sum_of_losses_keeps_their_graphs(tmp_path: Path) -> None:
    result = measured(tmp_path, CLASSIFY.format("loss"), "train")
    (nodes,) = growth(result, "nodes")
    assert nodes > 0


def test_what_is_trained_is_part_of_the_result(tmp_path: Path) -> None:
    one = measured(tmp_path, CLASSIFY.format("loss.item()"), "train")
    other = measured(tmp_path, CLASSIFY.format("loss.item()").replace("optimizer.step()", "pass"), "train")
    lines = [{line.partition(":")[0]: line for line in result["result"]} for result in (one, other)]
    assert lines[0].keys() == lines[1].keys()
    assert lines[0]["parameters of model 0"] != lines[1]["parameters of model 0"]
    assert one["numbers_by"]["returned"] != other["numbers_by"]["returned"]


def test_a_complex_number_is_told_from_its_conjugate(tmp_path: Path) -> None:
    program = """
    import torch

    def train(loader):
        spectra = []
        for images in loader:
            spectra.append(torch.fft.fft(images.float()){})  # here
        return spectra
    """
    one, other = (measured(tmp_path, program.format(text), "train") for text in ("", ".conj()"))
    numbers, others = (result["numbers_by"]["returned"] for result in (one, other))
    assert numbers[::2] == others[::2]
    assert numbers[1::2] == [-number for number in others[1::2]]
    assert numbers != others


def test_twice_the_same(tmp_path: Path) -> None:
    one, other = (measured(tmp_path, CLASSIFY.format("loss"), "train") for _ in range(2))
    assert one["result"] == other["result"]
    assert one["generators"] == other["generators"]
    assert one["deltas"]["nodes"] == other["deltas"]["nodes"]


def test_what_fails_beside_the_loop_is_stood_in_for(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        """
        import argparse
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset

        class Points(Dataset):
            def __init__(self, folder):
                self.rows = open(folder + "/rows.txt").read().split()

            def __len__(self):
                return len(self.rows)

            def __getitem__(self, index):
                return self.rows[index], 1

        class Net(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.layer = nn.Conv1d(3, width, 1)

            def forward(self, x):
                return self.layer(x).mean(2)

        def main(args):
            loader = DataLoader(Points(args.root), batch_size=args.batch_size, num_workers=8)
            model = Net(args.width)
            model.load_state_dict(torch.load(args.checkpoint))
            outputs = []
            for points, label in loader:  # here
                outputs.append(model(points.permute(0, 2, 1)))
            return torch.cat(outputs)

        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--width", type=int, default=6)
            main(parser.parse_args())
        """,
        "main",
    )
    assert said["find"]["found"], said["find"]
    assert not said["find"]["whole"]
    assert any("rows.txt" in line for line in said["find"]["skipped"])
    result = said["measure"]
    assert result["ok"]
    assert "float32 (47, 6)" in result["result"][0]  # the last batch is smaller
    assert min(growth(result, "nodes")) > 0


def test_a_method_whose_constructor_needs_what_is_not_there(tmp_path: Path) -> None:
    result = measured(
        tmp_path,
        """
        import torch.nn.functional as F
        from library_that_nobody_has import Tracker

        class Trainer:
            def __init__(self, args, train_loader, model):
                self.args = args
                self.tracker = Tracker(args.name)
                self.model = model
                self.table = open(args.table).read()
                self.loader = train_loader
                self.losses = []

            def fit(self):
                for epoch in range(self.args.epochs):
                    for x, y in self.loader:
                        loss = F.mse_loss(self.model(x), y)
                        self.losses.append(loss)  # here
                        self.tracker.log(loss)
        """,
        "Trainer.fit",
    )
    assert min(growth(result, "nodes")) > 0
    assert any(line.startswith("self.losses: ") and "list of 12" in line for line in result["result"])


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        """
        import torch
        import torch.nn.functional as F
        data = open("/content/drive/data.csv").read()
        train_loader = make_loader(data)
        model = torch.nn.Linear(5, 2)
        train_loss = 0
        for step, batch in enumerate(train_loader):
            x, y = batch
            loss = F.cross_entropy(model(x), y)
            train_loss += loss  # here
        print(train_loss / 10)
        """,
        "",
    )
    assert said["find"]["found"], said["find"]
    assert not said["find"]["whole"]
    assert min(growth(said["measure"], "nodes")) > 0
    assert any(line.startswith("`train_loss`") for line in said["measure"]["result"])


def test_a_branch_around_the_loop_is_taken(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        """
        def run(model, loader, args):
            if args.mode == "never":
                return None
            elif args.verbose:
                outs = []
                for x in loader:  # here
                    outs.append(model(x))
                return outs
        """,
        "run",
    )
    assert said["find"]["found"], said["find"]
    assert said["measure"]["steps"] == 12


def test_what_is_known_is_used(tmp_path: Path) -> None:
    text = """
        def run(model, loader, k):
            outs = []
            for x in loader:  # here
                outs.append(model(x).topk(k)[0])
            return outs
        """
    said = answer(tmp_path, text, "run", {"k": 5})
    assert said["find"]["state"]["specs"]["k"]["value"] == 5


def test_workers_are_started(tmp_path: Path) -> None:
    result = measured(
        tmp_path,
        """
        def gather(loader):
            kept = []
            for x, label in loader:
                kept.append(label.reshape(-1))  # here
            return kept
        """,
        "gather",
        workers=2,
    )
    assert set(result["processes"]) == {2}
    first = result["descriptors"][0]
    assert result["descriptors"] == [first + step for step in range(12)]  # whichever worker is first, and when they end


def test_a_function_without_a_loop_is_a_step(tmp_path: Path) -> None:
    result = measured(
        tmp_path,
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)
                self.outputs = []

            def training_step(self, batch, batch_idx):
                x, y = batch
                out = self.layer(x)
                self.outputs.append(out)  # here
                return out.sum()
        """,
        "Net.training_step",
    )
    assert growth(result, "nodes") == {2}


def test_no_stand_ins(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        """
        def run(loader):
            for x in loader:  # here
                raise RuntimeError("never")
        """,
        "run",
    )
    assert not said["find"]["found"]
    assert said["find"]["reason"].endswith("train.py:4: RuntimeError: never")


def test_a_program_that_fails_after_a_fix_is_said_to(tmp_path: Path) -> None:
    loops = importlib.import_module("oomlint.verify.child.driving.loop_job")
    text = "def run(model, loader):\n    outs = []\n    for x in loader:\n        outs.append(model(x){})\n    return outs\n"
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(text.format(""))
    after.write_text(text.format(".detach().no_such_method()"))
    found = loops.find(str(before), str(tmp_path), "run", 4, {}, seconds=20)
    assert found["found"]
    assert found["whole"]
    result = loops.measure(str(after), str(tmp_path), "run", 4, found["state"])
    assert not result["ok"]
    assert result["exception"] == "AttributeError: 'Tensor' object has no attribute 'no_such_method' (after.py, line 4)"


def test_commands_are_not_run(tmp_path: Path) -> None:
    measured(
        tmp_path,
        """
        import os
        import subprocess

        def run(model, loader):
            os.system("touch made")
            subprocess.run(["touch", "made"])
            outs = []
            for x in loader:  # here
                outs.append(model(x))
            return outs
        """,
        "run",
    )
    assert not (tmp_path / "made").exists()
