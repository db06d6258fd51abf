"""``oomlint budget``: copies of a model, and what of it lies on the host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

NUMBERS: Final = 128 * 256 + 256
PROGRAM: Final = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Average:
    def __init__(self, net):
        self.net, self.shadow = net, {}
        for name, p in self.net.named_parameters():
            self.shadow[name] = p.data.clone()

    def update(self):
        for name, p in self.net.named_parameters():
            self.shadow[name] = (0.9 * self.shadow[name] + 0.1 * p.data).clone()

def main():
    loader = DataLoader(TensorDataset(torch.rand(1000, 128)), batch_size=32)
    model = nn.Linear(128, 256).to("cuda")
    KEPT
    optimizer = torch.optim.Adam(model.parameters())
    for (x,) in loader:
        model(x.to("cuda")).sum().backward()
        optimizer.step()

main()
"""
FSDP: Final = "from torch.distributed.fsdp import FullyShardedDataParallel, CPUOffload; model = FullyShardedDataParallel(model{})"


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def of_model(found: dict[str, Any], holder: str) -> dict[str, int | None]:
    rows = (row for row in found["rows"] if row["holder"] == holder and "of `model`" in row["what"])
    return {row["what"].replace(" of `model`", ""): row["bytes"] for row in rows}


@pytest.mark.parametrize(
    ("kept", "device", "host"),
    [
        ("teacher = copy.deepcopy(model)", 1, 0),
        ("teacher = copy.deepcopy(model).eval().cpu()", 0, 1),
        ("average = torch.optim.swa_utils.AveragedModel(model)", 1, 0),
        ("shadow = {k: v.clone() for k, v in model.state_dict().items()}", 1, 0),
        ("shadow = [p.detach().clone() for p in model.parameters()]", 1, 0),
        ("best = {k: v.cpu() for k, v in model.state_dict().items()}", 0, 1),
        ("best = copy.deepcopy(model.state_dict())", 1, 0),
        ("average = Average(model)", 1, 0),
        ("names = [name for name, _ in model.named_parameters()]", 0, 0),
        ("torch.save({k: v.cpu() for k, v in model.state_dict().items()}, 'm.pt')", 0, 0),
    ],
)
def test_copies_of_a_model_count_where_they_lie(budget: Budget, kept: str, device: int, host: int) -> None:
    program = PROGRAM.replace("KEPT", kept)
    Path("train.py").write_text(program if "Average(" in kept else program.replace("self.net.named_parameters()", "{}.items()"))
    found = table(budget, "train.py")
    assert of_model(found, "device").get("copies", 0) == device * NUMBERS * 4
    assert of_model(found, "main") == ({"copies on the host": NUMBERS * 4} if host else {})


@pytest.mark.parametrize(
    ("offload", "holder"),
    [("", "device"), (", cpu_offload=CPUOffload(offload_params=True)", "main"), (", cpu_offload=CPUOffload()", "device")],
)
def test_ranks_that_shard_a_model_have_a_part_each(budget: Budget, offload: str, holder: str) -> None:
    Path("train.py").write_text(PROGRAM.replace("KEPT", FSDP.format(offload)))
    ranks = 4 if holder == "main" else 1  # the host has the parts of all
    rows = of_model(table(budget, "train.py", "--ranks", "4"), holder)
    assert {name: rows[name] for name in ("parameters", "gradients", "state of Adam")} == {
        "parameters": NUMBERS * ranks,
        "gradients": NUMBERS * ranks,
        "state of Adam": 2 * NUMBERS * ranks,
    }


def test_a_model_that_is_sharded_in_another_way_is_unknown(budget: Budget) -> None:
    Path("train.py").write_text(PROGRAM.replace("KEPT", FSDP.format(", sharding_strategy=chosen")))
    assert set(of_model(table(budget, "train.py"), "device").values()) == {None}


ZERO: Final = PROGRAM.replace('.to("cuda")\n    KEPT\n    optimizer = torch.optim.Adam(model.parameters())', "\n    KEPT")
HALF: Final = '"fp16": {"enabled": true}, '
CPU: Final = '{"device": "cpu"}'


@pytest.mark.parametrize(
    ("settings", "device", "host"),
    [
        ('"zero_optimization": {"stage": 1}', {"parameters": 4, "gradients": 4, "state of AdamW": 2}, {}),
        (f'{HALF}"zero_optimization": {{"stage": 2}}', {"parameters": 2, "gradients": 0.5, "state of AdamW": 2, "a copy in float32": 1}, {}),
        (
            f'{HALF}"zero_optimization": {{"stage": 2, "offload_optimizer": {CPU}}}',
            {"parameters": 2},
            {"gradients": 4, "state of AdamW": 8, "a copy in float32": 4},
        ),
        (
            f'{HALF}"zero_optimization": {{"stage": 3, "offload_optimizer": {CPU}, "offload_param": {CPU}}}',
            {},
            {"parameters": 2, "gradients": 4, "state of AdamW": 8, "a copy in float32": 4},
        ),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_what_deepspeed_shares_out_and_offloads(budget: Budget, settings: str, device: dict[str, float], host: dict[str, float], inline: bool) -> None:  # noqa: FBT001
    content = f'{{"optimizer": {{"type": "AdamW"}}, {settings}}}'
    Path("ds.json").write_text(content)
    config = content.replace("true", "True") if inline else "'ds.json'"
    given = f"import deepspeed; engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={config})"
    Path("train.py").write_text(ZERO.replace("KEPT", given))
    found = table(budget, "deepspeed --num_gpus 4 train.py")  # the host has the parts of all four
    assert of_model(found, "main") == {what: size * NUMBERS for what, size in host.items()}
    rows = of_model(found, "device")
    assert {what: size for what, size in rows.items() if what != "activations"} == {what: size * NUMBERS for what, size in device.items()}


def test_settings_of_deepspeed_on_the_command_line_or_nowhere(budget: Budget) -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
    given = "import deepspeed; optimizer = torch.optim.Adam(model.parameters()); engine, *_ = deepspeed.initialize(args, model, optimizer)"
    Path("train.py").write_text(ZERO.replace("KEPT", given))
    assert of_model(table(budget, "deepspeed --num_gpus 1 train.py --deepspeed_config ds.json"), "main")["state of Adam"] == 2 * NUMBERS * 4
    assert set(of_model(table(budget, "deepspeed --num_gpus 1 train.py"), "device").values()) == {None}


def test_activations_that_are_saved_on_the_host(budget: Budget) -> None:
    saved = PROGRAM.replace("        model(x", "        with torch.autograd.graph.save_on_cpu(pin_memory=True):\n            model(x")
    Path("train.py").write_text(saved.replace("    KEPT\n", ""))
    found = table(budget, "train.py", "--set", "activations of model=100MiB")
    assert of_model(found, "main") == {"activations, saved on the host": 100 << 20}


TRAINER: Final = """
import torch
import transformers

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(128, 256)

class Own(transformers.Trainer):
    pass

def main():
    args = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses()[0]
    Own(model=Net(), args=args, train_dataset=[1, 2]).train()

if __name__ == "__main__":
    main()
"""


def rows_of_trainer(budget: Budget, *command: str) -> dict[str, tuple[int | None, str]]:
    Path("train.py").write_text(TRAINER)
    found = {row["what"].replace("`Net()`", "it"): (row["bytes"], row["holder"]) for row in table(budget, *command)["rows"]}
    return {what: told for what, told in found.items() if what.endswith("of it") and not what.startswith("activations")}


def test_a_trainer_of_transformers_makes_the_optimizer(budget: Budget) -> None:
    states = {"parameters of it": (4 * NUMBERS, "device"), "gradients of it": (4 * NUMBERS, "device"), "state of AdamW of it": (8 * NUMBERS, "device")}
    assert rows_of_trainer(budget, "python train.py --output_dir x") == states


def test_a_trainer_of_transformers_with_settings_of_deepspeed(budget: Budget) -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
    found = rows_of_trainer(budget, "torchrun --nproc_per_node 4 train.py --deepspeed ds.json")
    assert found["parameters of it"] == (4 * NUMBERS, "device")
    assert found["state of AdamW of it"] == (8 * NUMBERS, "main")  # a fourth of it on each of four ranks
