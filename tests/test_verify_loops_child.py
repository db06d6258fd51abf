"""Loops of programs that cannot be run as they stand: cut out, replaced by a stand-in, measured."""

from __future__ import annotations

import importlib
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from verify_cases import answer

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

pytest.importorskip("torch")


class Loops(NamedTuple):
    """Loops of programs in a folder."""

    runner: SandboxRunner
    folder: Path

    def answer(self, text: str, function: str, known: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """What is said of the row marked `# here`."""
        program = dedent(text)
        path = self.folder / "train.py"
        path.write_text(program)
        row = next(number for number, line in enumerate(program.splitlines(), 1) if "# here" in line)
        where: dict[str, Any] = {"path": str(path), "function": function, "row": row}
        said = {"find": answer(self.runner, "driving.loop_job:find", self.folder, **where, known=known or {}, seconds=20)}
        if said["find"]["found"]:
            said["measure"] = answer(self.runner, "driving.loop_job:measure", self.folder, **where, state=said["find"]["state"], **options)
        return said

    def measured(self, text: str, function: str, **options: Any) -> dict[str, Any]:
        said = self.answer(text, function, **options)
        assert said["find"]["found"], said["find"]
        result: dict[str, Any] = said["measure"]
        assert result["ok"], result
        return result


@pytest.fixture
def loops(runner: SandboxRunner, tmp_path: Path) -> Loops:
    return Loops(runner, tmp_path)


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


def test_a_loop_that_keeps_nothing_has_differences_of_exactly_zero(loops: Loops) -> None:
    result = loops.measured(CLASSIFY.format("loss.item()"), "train")
    assert result["steps"] == 12
    assert result["reached"]
    for name in ("storages", "storage_bytes", "nodes"):
        assert growth(result, name) == {0}
    assert len(result["deltas"]["nodes"]) == 12


def test_a_sum_of_losses_keeps_their_graphs(loops: Loops) -> None:
    result = loops.measured(CLASSIFY.format("loss"), "train")
    (nodes,) = growth(result, "nodes")
    assert nodes > 0


def test_what_is_trained_is_part_of_the_result(loops: Loops) -> None:
    one = loops.measured(CLASSIFY.format("loss.item()"), "train")
    other = loops.measured(CLASSIFY.format("loss.item()").replace("optimizer.step()", "pass"), "train")
    lines = [{line.partition(":")[0]: line for line in result["result"]} for result in (one, other)]
    assert lines[0].keys() == lines[1].keys()
    assert lines[0]["parameters of model 0"] != lines[1]["parameters of model 0"]
    assert one["numbers_by"]["returned"] != other["numbers_by"]["returned"]


def test_a_complex_number_is_told_from_its_conjugate(loops: Loops) -> None:
    program = """
    import torch

    def train(loader):
        spectra = []
        for images in loader:
            spectra.append(torch.fft.fft(images.float()){})  # here
        return spectra
    """
    one, other = (loops.measured(program.format(text), "train") for text in ("", ".conj()"))
    numbers, others = (result["numbers_by"]["returned"] for result in (one, other))
    assert numbers[::2] == others[::2]
    assert numbers[1::2] == [-number for number in others[1::2]]
    assert numbers != others


def test_twice_the_same(loops: Loops) -> None:
    one, other = (loops.measured(CLASSIFY.format("loss"), "train") for _ in range(2))
    assert one["result"] == other["result"]
    assert one["generators"] == other["generators"]
    assert one["deltas"]["nodes"] == other["deltas"]["nodes"]


def test_what_fails_beside_the_loop_is_stood_in_for(loops: Loops) -> None:
    said = loops.answer(
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


def test_a_method_whose_constructor_needs_what_is_not_there(loops: Loops) -> None:
    result = loops.measured(
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


def test_the_cells_of_a_notebook(loops: Loops) -> None:
    said = loops.answer(
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


def test_a_branch_around_the_loop_is_taken(loops: Loops) -> None:
    said = loops.answer(
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


def test_what_is_known_is_used(loops: Loops) -> None:
    text = """
        def run(model, loader, k):
            outs = []
            for x in loader:  # here
                outs.append(model(x).topk(k)[0])
            return outs
        """
    said = loops.answer(text, "run", {"k": 5})
    assert said["find"]["state"]["specs"]["k"]["value"] == 5


def test_workers_are_started(loops: Loops) -> None:
    result = loops.measured(
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


def test_a_function_without_a_loop_is_a_step(loops: Loops) -> None:
    result = loops.measured(
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


def test_no_stand_ins(loops: Loops) -> None:
    said = loops.answer(
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


def test_commands_are_not_run(tmp_path: Path, loops: Loops) -> None:
    loops.measured(
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
