"""``oomlint budget``: files that hold commands and limits, profiles, what is trained, and the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import ARRAY, MIB, SAMPLE, table
from test_trace import BROWSERS, environment

from oomlint.budget import profiles
from oomlint.budget.layers import LAYERS, MORE_STATES, STATES, kept_beside, numbers_of, options_of, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

ROOT: Final = Path(__file__).resolve().parent.parent
GIB: Final = 1 << 30


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ARRAY)
    return runs(capsys, "budget")


# -- files that hold commands --------------------------------------------------------------------------------------------

BATCH: Final = "#!/bin/bash\n#SBATCH --mem=12G\n#SBATCH --cpus-per-task=6\n#SBATCH --ntasks-per-node=2\nsrun python train.py --num-workers 4\n"
COMPOSE: Final = """
services:
  train:
    image: x
    shm_size: "256m"
    mem_limit: 8g
    cpus: 3
    command: python train.py --num-workers 3
"""
MANIFEST: Final = """
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: train
          image: x
          command: ["bash", "-c", "python train.py --num-workers 5"]
          resources:
            limits: {memory: 16Gi, cpu: "4"}
          volumeMounts:
            - {name: shm, mountPath: /dev/shm}
      volumes:
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: 2Gi}
"""


@pytest.mark.parametrize(
    ("name", "content", "workers", "ranks", "ram", "shm", "cores"),
    [
        ("job.sbatch", BATCH, 4, 2, 12 * GIB, None, 6),
        ("job.slurm", BATCH.replace("--mem=12G", "--mem-per-cpu=512"), 4, 2, 512 * MIB * 6 * 2, None, 6),
        ("job.sh", BATCH.replace("--mem=12G", "--mem=0"), 4, 2, None, None, 6),
        ("run.sh", "N=7\ntorchrun --nproc_per_node 2 train.py --num-workers 7\n", 7, 2, None, None, None),
        ("run.sh", "docker run -m 4g --shm-size 1g --cpus 2 image python train.py\n", 1, 1, 4 * GIB, GIB, 2),
        ("compose.yaml", COMPOSE, 3, 1, 8 * GIB, 256 * MIB, 3),
        ("job.yaml", MANIFEST, 5, 1, 16 * GIB, 2 * GIB, 4),
        (
            "job.yaml",
            MANIFEST.replace("            - {name: shm, mountPath: /dev/shm}\n", "").replace("          volumeMounts:\n", ""),
            5,
            1,
            16 * GIB,
            64 * MIB,
            4,
        ),
        ("Makefile", "train:\n\tpython train.py --num-workers 2\n", 2, 1, None, None, None),
        ("job.sbatch", BATCH.replace("--ntasks-per-node=2", "--ntasks=8\n#SBATCH -N 2"), 4, 4, 12 * GIB, None, 6),
        ("job.sbatch", BATCH.replace("srun", "srun --mem=5G"), 4, 2, 5 * GIB, None, 6),
        ("job.sbatch", BATCH.replace("--mem=12G", "--mem-per-gpu=3G --gres=gpu:a100:4"), 4, 2, 12 * GIB, None, 6),
        ("job.sbatch", BATCH.replace("workers 4", "workers $SLURM_CPUS_PER_TASK"), 6, 2, 12 * GIB, None, 6),
        ("run.sh", 'sbatch --mem=8G --wrap "python train.py --num-workers 2"\n', 2, 1, 8 * GIB, None, None),
        ("run.sh", 'echo "python train.py --num-workers 9"\npython train.py --num-workers 2\n', 2, 1, None, None, None),
        ("stack.yml", COMPOSE, 3, 1, 8 * GIB, 256 * MIB, 3),
        ("job.yaml", MANIFEST.replace("16Gi", "1e9"), 5, 1, 1_000_000_000, 2 * GIB, 4),
    ],
    ids=[
        *("batch", "per cpu", "all of the node", "shell", "docker", "compose", "kubernetes", "kubernetes without shm", "make"),
        *("two nodes", "a step", "per device", "a variable of the job", "wrapped", "said", "compose by content", "an exponent"),
    ],
)
def test_a_file_gives_the_command_and_its_limits(
    budget: Budget, name: str, content: str, workers: int, ranks: int, ram: int | None, shm: int | None, cores: float | None
) -> None:
    Path(name).write_text(content)
    found = table(budget, name)
    assert (found["loaders"][0]["workers"], found["ranks"], found["limits"]["cores"]) == (workers, ranks, cores)
    for wanted, key in ((ram, "memory"), (shm, "shm")):
        limit = found["limits"][key]
        if wanted is None:
            assert name not in limit["source"]
        else:
            assert limit["bytes"] == wanted
            assert name in limit["source"] or "pod" in limit["source"]
    assert table(budget, name, "--ram", "1GiB")["limits"]["memory"]["bytes"] == GIB


def test_a_shell_that_runs_a_file(budget: Budget) -> None:
    Path("job.sbatch").write_text(BATCH)
    assert table(budget, "sbatch job.sbatch")["limits"]["memory"]["bytes"] == 12 * GIB


def test_several_commands_have_a_table_each(budget: Budget) -> None:
    Path("run.sh").write_text("python train.py --num-workers 2\npython train.py --num-workers 3\npython gone.py\n")
    found = json.loads(budget("run.sh", "--output-format", "json").out)
    assert [one["loaders"][0]["workers"] for one in found] == [2, 3]


def test_a_script_that_is_copied_before_it_is_started(budget: Budget) -> None:
    Path("run.sh").write_text("mkdir -p $1\ncp train.py $1\npython $1/train.py --num-workers 2\n")
    (only,) = json.loads(budget("run.sh", "--output-format", "json").out)
    assert (only["filename"], [one["workers"] for one in only["loaders"]]) == ("train.py", [2])


@pytest.mark.parametrize(
    ("content", "workers", "ranks"),
    [
        ("bash inner.sh 6\n", [6], 1),
        ("cd sub\nbash inner.sh 6\n", [5], 1),
        ("cd $(dirname $0) && ./inner.sh 6\n", [6], 1),
        ("source inner.sh 6\n", [6], 1),
        ("X=1 nohup /bin/bash inner.sh 6 > log 2>&1 &\n", [6], 1),
        ("python train.py --num-workers 2\nbash inner.sh 6\npython train.py --num-workers 3\n", [2, 6, 3], 1),
        ("for n in 6 7; do\n  bash inner.sh $n\ndone\n", [6, 7], 1),
        ("NAME=inner.sh\nsh $NAME 6\n", [6], 1),
        ("srun --ntasks=4 bash inner.sh 6\n", [6], 4),
        ("bash between.sh 6\n", [6], 1),
        ("bash run.sh\nbash inner.sh 6\n", [6], 1),
        ("bash gone.sh\nbash says.sh\npython train.py --num-workers 2\n", [2], 1),
        ("echo bash inner.sh 6\nchmod +x inner.sh\ncp inner.sh other.sh\npython train.py --num-workers 2\n", [2], 1),
    ],
)
def test_a_script_that_starts_another_one(budget: Budget, content: str, workers: list[int], ranks: int) -> None:
    Path("sub").mkdir()
    Path("sub", "train.py").write_text(ARRAY)
    Path("sub", "inner.sh").write_text("python train.py --num-workers 5\n")
    Path("inner.sh").write_text("python train.py --num-workers $1\n")
    Path("between.sh").write_text("bash inner.sh $@\nbash between.sh $@\n")
    Path("says.sh").write_text("echo hello\n")
    Path("run.sh").write_text(content)
    found = json.loads(budget("run.sh", "--output-format", "json").out)
    assert ([one["loaders"][0]["workers"] for one in found], {one["ranks"] for one in found}) == (workers, {ranks})


def test_what_a_job_has_is_had_by_the_scripts_that_it_starts(budget: Budget) -> None:
    Path("inner.sh").write_text("python train.py --num-workers 2\n")
    Path("job.sbatch").write_text("#!/bin/bash\n#SBATCH --mem=12G\nexport KEY=1\nbash inner.sh\n")
    assert table(budget, "job.sbatch")["limits"]["memory"]["bytes"] == 12 * GIB
    Path("job.sbatch").write_text("sbatch --mem=8G inner.sh\n")
    found = table(budget, "job.sbatch")["limits"]["memory"]
    assert (found["bytes"], found["source"]) == (8 * GIB, "job.sbatch:1")


def test_the_same_script_with_other_limits_has_a_table_too(budget: Budget) -> None:
    run = "docker run -m {} --shm-size 1g image {} train.py\n"
    Path("run.sh").write_text(
        run.format("8g", "python") + run.format("2g", "python") + run.format("2g", "torchrun --nproc_per_node 2") + run.format("8g", "python")
    )
    found = json.loads(budget("run.sh", "--output-format", "json").out)
    assert [(one["limits"]["memory"]["bytes"], one["ranks"]) for one in found] == [(8 * GIB, 1), (2 * GIB, 1), (2 * GIB, 2)]


@pytest.mark.parametrize("launcher", ["torchrun --nproc_per_node=gpu", "deepspeed", "accelerate launch --multi_gpu"])
def test_a_launcher_that_leaves_the_ranks_open_is_told(budget: Budget, launcher: str) -> None:
    said = "(of how many, nobody says: --ranks)"
    Path("run.sh").write_text(f"{launcher} train.py\n")
    assert said in budget(f"{launcher} train.py").out
    assert said in budget("run.sh").out
    assert said not in budget(f"{launcher} train.py", "--ranks", "2").out


def test_a_cell_that_starts_a_script(budget: Budget) -> None:
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "source": ["!python train.py --num-workers 6\n"], "metadata": {}, "outputs": [], "execution_count": None}
    ]
    Path("run.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    assert table(budget, "run.ipynb")["loaders"][0]["workers"] == 6


def test_workers_above_cores_are_told(budget: Budget) -> None:
    Path("job.sbatch").write_text(BATCH.replace("=6", "=2"))
    assert "More workers than cores: 4 for 2." in budget("job.sbatch").out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.sh", "echo hello\n", "run.sh: no command there starts a Python script that can be found"),
        ("run.sh", "python gone.py\n", "run.sh: no command there starts a Python script that can be found"),
        ("job.yaml", "containers: [\n", "job.yaml:2: not valid YAML: "),
        ("settings.json", "{}", "settings.json: no command there"),
        ("data.yaml", "a: &a [*a]\ncontainers: 3\n", "data.yaml: no command there"),
    ],
)
def test_files_without_a_command(budget: Budget, name: str, content: str, said: str) -> None:
    Path(name).write_text(content)
    done = budget(name)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


# -- profiles ------------------------------------------------------------------------------------------------------------


def test_a_profile_stands_for_the_machine(budget: Budget) -> None:
    found = table(budget, "train.py", "--profile", "kaggle-t4x2")
    assert (found["limits"]["cores"], found["limits"]["device"]["bytes"], found["limits"]["shm"]["bytes"]) == (4, 15 * GIB, None)
    assert table(budget, "train.py", "--profile", "docker", "--shm", "1GiB")["limits"]["shm"]["bytes"] == GIB
    done = budget("train.py", "--profile", "nowhere")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "colab-free" in done.err


def test_every_profile_has_a_source_and_a_date_and_stands_on_the_page() -> None:
    assert all(one.source and re.fullmatch(r"\d{4}-\d\d-\d\d", one.seen) for one in profiles.PROFILES.values())
    assert profiles.table() in (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")


# -- what is trained -----------------------------------------------------------------------------------------------------

BUILDS: Final[dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "Linear": [((5, 7), {}), ((5, 7), {"bias": False})],
    "Bilinear": [((3, 4, 5), {})],
    **{f"Conv{n}d": [((4, 6, 3), {}), ((4, 6), {"kernel_size": (2,) * n, "groups": 2, "bias": False})] for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": [((4, 6, 3), {}), ((4, 6, 2), {"groups": 2})] for n in (1, 2, 3)},
    "Embedding": [((11, 5), {})],
    "EmbeddingBag": [((11, 5), {})],
    **{f"BatchNorm{n}d": [((9,), {}), ((9,), {"affine": False}), ((9,), {"track_running_stats": False})] for n in (1, 2, 3)},
    "SyncBatchNorm": [((9,), {})],
    **{f"InstanceNorm{n}d": [((9,), {}), ((9,), {"affine": True})] for n in (1, 2, 3)},
    "GroupNorm": [((3, 9), {}), ((3, 9), {"affine": False})],
    "LayerNorm": [((9,), {}), (([3, 4],), {"bias": False}), ((9,), {"elementwise_affine": False})],
    "RMSNorm": [((9,), {}), (([3, 4],), {}), ((9,), {"elementwise_affine": False})],
    **{name: [((5, 7), {}), ((5, 7, 3), {"bidirectional": True, "bias": False})] for name in ("RNN", "GRU", "LSTM")},
    **{f"{name}Cell": [((5, 7), {}), ((5, 7), {"bias": False})] for name in ("RNN", "GRU", "LSTM")},
    "MultiheadAttention": [((8, 2), {}), ((8, 2), {"kdim": 3, "vdim": 5, "bias": False}), ((8, 2), {"add_bias_kv": True})],
    "TransformerEncoderLayer": [((8, 2), {}), ((8, 2, 16), {"bias": False})],
    "TransformerDecoderLayer": [((8, 2), {"dim_feedforward": 16})],
    "PReLU": [((), {}), ((4,), {})],
}


def test_layers_hold_what_torch_says() -> None:
    nn = pytest.importorskip("torch").nn
    assert BUILDS.keys() == LAYERS.keys()
    for name, cases in BUILDS.items():
        for plain, named in cases:
            layer = getattr(nn, name)(*plain, **named)
            told = numbers_of(name, plain, named), kept_beside(name, plain, named)
            wanted = sum(one.numel() for one in layer.parameters()), sum(one.nbytes for one in layer.buffers())
            assert told == wanted, (name, plain, named)
            shapes = shapes_of(name, options_of(name, plain, named))
            assert not shapes or sum(prod(shape) for shape in shapes.values() if shape is not None) == wanted[0], (name, plain, named)
    assert numbers_of("LSTM", (5, 7), {"proj_size": 3}) == sum(one.numel() for one in nn.LSTM(5, 7, proj_size=3).parameters())
    assert numbers_of("ReLU", (), {}) == 0
    assert numbers_of("LazyLinear", (3,), {}) is None
    assert numbers_of("Linear", (5, None), {}) is None


def test_optimizers_keep_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    for name, least in STATES.items():
        for option, more in (("", 0), *MORE_STATES.items()):
            given = {option: 0.9 if option == "momentum" else True} if option else {}
            weight = torch.nn.Parameter(torch.zeros(1000))
            try:
                optimizer = getattr(torch.optim, name)([weight], lr=0.1, **given)
            except TypeError:
                continue  # an option that it does not have
            weight.grad = torch.ones(1000) if name != "SparseAdam" else torch.ones(1000).to_sparse()
            optimizer.step()
            kept = sum(one.numel() for one in optimizer.state[weight].values() if torch.is_tensor(one) and one.numel() > 1)
            assert kept == (least + more) * 1000, (name, option)


MODEL: Final = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

class Net(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.token = nn.Parameter(torch.zeros(1, width))
        self.head = nn.Linear(width, 10)

def main():
    net = Net(depth=4).to("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader([1], batch_size=2, pin_memory=True)

main()
"""


def test_a_model_is_counted_by_its_layers(budget: Budget) -> None:
    torch = pytest.importorskip("torch")
    Path("train.py").write_text(MODEL)
    space: dict[str, Any] = {"__name__": "model"}
    exec(MODEL.replace('.to("cuda")', "").replace("\nmain()", ""), space)
    count = sum(one.numel() for one in space["Net"](depth=4).parameters())
    assert torch
    rows = {row["what"]: row["bytes"] for row in table(budget, "train.py")["rows"] if row["holder"] == "device"}
    assert rows["parameters of `net`"] == rows["gradients of `net`"] == 4 * count
    assert rows["state of AdamW of `net`"] == 8 * count
    assert rows["activations of `net`"] is None


def test_what_may_be_frozen_is_trained_at_most(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace("\nmain()", "\nfor one in Net().head.parameters():\n    one.requires_grad = False\nmain()"))
    known = {row["what"].partition(" of ")[0]: row["known"] for row in table(budget, "train.py")["rows"] if row["holder"] == "device"}
    assert (known["parameters"], known["gradients"], known["state"]) == ("exact", "at most", "at most")


def test_the_device_has_a_limit_of_its_own(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace("width=16", "width=4096"))
    found = table(budget, "train.py", "--vram", "1GiB")
    assert (found["verdict"]["fits"], found["verdict"]["short_of"]) == (False, "device")
    assert table(budget, "train.py")["verdict"]["fits"]


def test_activations_that_nobody_knows_leave_the_verdict_open(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY + MODEL.partition("def main")[0] + "model = Net().cuda()\ntorch.optim.SGD(model.parameters())\n")
    words = ("train.py", "--ram", "64GiB", "--vram", "64GiB", "--shm", "8GiB")
    given = ("--set", "activations of model=1GiB")
    assert not table(budget, *words)["verdict"]["complete"]
    assert "As far as it is known, it fits: " in budget(*words).out
    assert table(budget, *words, *given)["verdict"]["complete"]
    assert "\nIt fits: " in budget(*words, *given).out


def test_without_a_device_the_model_is_in_the_main_process(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace('.to("cuda")', ""))
    assert [row["holder"] for row in table(budget, "train.py")["rows"] if row["what"] == "parameters of `net`"] == ["main"]


def test_a_pinned_batch_is_rounded_up(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY.replace("shuffle=True", "shuffle=True, pin_memory=True") + MODEL.replace("\nmain()", "\nmodel = Net().cuda()\n"))
    Path("train.py").write_text(Path("train.py").read_text() + "torch.optim.SGD(model.parameters())\n")
    found = table(budget, "train.py")
    assert [row["bytes"] for row in found["rows"] if "pinned" in row["what"]] == [8 * MIB]  # 4 samples of 1.2 MB


def test_layers_of_unknown_sizes_are_names(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace("depth=4", "depth=unknown()"))
    rows = [row for row in table(budget, "train.py")["rows"] if row["what"].startswith("parameters of `net`")]
    assert sorted(row["known"] for row in rows) == ["at least", "unknown"]


def test_an_optimizer_that_torch_does_not_have_keeps_nobody_knows_how_much(budget: Budget) -> None:
    Path("train.py").write_text(
        MODEL.replace("torch.optim.AdamW(net", "FusedAdam(net").replace("import torch\n", "import torch\nfrom apex.optimizers import FusedAdam\n", 1)
    )
    rows = {row["what"]: row["known"] for row in table(budget, "train.py")["rows"] if row["holder"] == "device"}
    assert (rows["parameters of `net`"], rows["state of FusedAdam of `net`"]) == ("exact", "unknown")


def test_a_model_that_nobody_trains_is_on_the_device_all_the_same(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace("    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)\n", ""))
    rows = [row["what"] for row in table(budget, "train.py")["rows"] if row["holder"] == "device"]
    assert "parameters of `net`" in rows
    assert not any(what.startswith("gradients") for what in rows)


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("srun -n 4 python train.py", 4),
        ("mpirun -np 3 python train.py", 3),
        ("mpiexec -n 2 python train.py", 2),
        ("sh -c 'python train.py'", 1),
    ],
)
def test_a_typed_command_is_read_as_one_of_a_script(budget: Budget, words: str, ranks: int) -> None:
    assert table(budget, words)["ranks"] == ranks


@pytest.mark.parametrize(
    ("typed", "workers", "ranks"),
    [
        ("CUDA_VISIBLE_DEVICES=0 python train.py --num-workers 3", 3, 1),
        ("env X=1 nohup python train.py --num-workers 3 > log 2>&1 &", 3, 1),
        ("python train.py --num-workers 3 | tee log", 3, 1),
        ("cd sub && python train.py", 7, 1),
        ("cd sub && bash train.sh --seed 1", 6, 1),
        ("cd sub && make", 9, 1),
        ("cd sub && docker compose up", 8, 1),
        ("cd sub; bash train.sh | tee log", 6, 1),
        ("source Makefile && python train.py", 1, 1),
        ("srun --ntasks=8 --nodes=2 python train.py", 1, 4),
        ("make", 4, 1),
        ("make train N=5", 5, 1),
        ("make all", 4, 1),
        ("docker compose up", 3, 1),
    ],
)
def test_a_typed_command_may_be_one_for_a_shell(budget: Budget, typed: str, workers: int, ranks: int) -> None:
    Path("sub").mkdir()
    Path("sub", "train.py").write_text(ARRAY.replace("default=1", "default=7"))
    Path("sub", "train.sh").write_text("python train.py --num-workers 6 $@\n")
    Path("sub", "compose.yaml").write_text(COMPOSE.replace("--num-workers 3", "--num-workers 8"))
    Path("sub", "Makefile").write_text("train:\n\tpython train.py --num-workers 9\n")
    Path("Makefile").write_text("N=4\ntrain:\n\tpython train.py --num-workers $(N)\nother:\n\tpython train.py --num-workers 8\nall: train\n")
    Path("compose.yaml").write_text(COMPOSE)
    found = table(budget, typed)
    assert (found["loaders"][0]["workers"], found["ranks"]) == (workers, ranks)


@pytest.mark.parametrize(("asked", "workers"), [("", [3, 7, 5]), ("other", [7]), ("-d needs", [7, 5]), ("train other", [3, 7])])
def test_of_a_compose_file_those_services_count_that_are_started(budget: Budget, asked: str, workers: list[int]) -> None:
    others = "  other:\n    command: python train.py --num-workers 7\n  needs:\n    command: python train.py --num-workers 5\n    depends_on: [other]\n"
    Path("compose.yaml").write_text(COMPOSE + others)
    done = budget(f"docker compose up {asked}", "--output-format", "json")
    assert [one["loaders"][0]["workers"] for one in json.loads(done.out)] == workers


def test_a_service_that_is_not_there_is_told(budget: Budget) -> None:
    Path("compose.yaml").write_text(COMPOSE)
    done = budget("docker compose up gone")
    assert (done.status, done.err) == (2, "oomlint: error: compose.yaml: no service is called gone; there are train\n")


@pytest.mark.parametrize("typed", ["srun --mem=3G python train.py", "sbatch --mem=3G --wrap 'python train.py'", "sbatch --mem=3G job.sbatch"])
def test_the_memory_that_a_typed_job_asks_for(budget: Budget, typed: str) -> None:
    Path("job.sbatch").write_text(BATCH)
    limit = table(budget, typed)["limits"]["memory"]
    assert (limit["bytes"], limit["source"]) == (3 * GIB, "the command")


def test_a_typed_container_has_the_memory_that_it_is_given(budget: Budget) -> None:
    out = budget("docker run -m 4g --shm-size 1g image python train.py").out
    assert "Limits: memory 4.0 GiB (the command), /dev/shm 1.0 GiB (the command)" in out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.head = nn.Linear(width, 10)", "self.head = nn.Linear(width, 10, dtype=torch.float64)"),
        ('.to("cuda")', ".to('cuda')\n    net.head.half()"),
        ("lr=1e-3)", "lr=1e-3)\n    net.half()"),
    ],
)
def test_numbers_of_a_model_that_nobody_knows_are_not_exact(budget: Budget, before: str, after: str) -> None:
    assert before in MODEL
    Path("train.py").write_text(MODEL.replace(before, after))
    rows = [row for row in table(budget, "train.py")["rows"] if row["what"].startswith("parameters of `net`")]
    assert "unknown" in [row["known"] for row in rows]
    assert "exact" not in [row["known"] for row in rows]


@pytest.mark.parametrize("given", ["filter(lambda one: one.requires_grad, net.parameters())", "[one for one in net.parameters() if one.requires_grad]"])
def test_of_parameters_that_are_chosen_all_may_be_trained(budget: Budget, given: str) -> None:
    Path("train.py").write_text(MODEL.replace("net.parameters()", given))
    rows = {row["what"]: row["known"] for row in table(budget, "train.py")["rows"]}
    assert (rows["parameters of `net`"], rows["gradients of `net`"], rows["state of AdamW of `net`"]) == ("exact", "at most", "at most")


@pytest.mark.parametrize("cast", [".to('cuda', torch.bfloat16)", ".to('cuda').half()", ".to('cuda')\n    net.half()"])
def test_a_model_of_another_type_has_other_bytes(budget: Budget, cast: str) -> None:
    Path("train.py").write_text(MODEL)
    before = {row["what"]: row["bytes"] for row in table(budget, "train.py")["rows"]}
    Path("train.py").write_text(MODEL.replace('.to("cuda")', cast))
    after = {row["what"]: row["bytes"] for row in table(budget, "train.py")["rows"]}
    for what in ("parameters of `net`", "gradients of `net`", "state of AdamW of `net`"):
        assert after[what] * 2 == before[what]


def test_a_model_of_a_library_has_one_name(budget: Budget) -> None:
    Path("train.py").write_text(
        MODEL.replace("Net(depth=4)", "torchvision.models.resnet50(num_classes=1000)").replace("import torch\n", "import torch\nimport torchvision\n")
    )
    left = next(one["device_missing"] for one in table(budget, "train.py")["totals"] if one["moment"] == "first epoch")
    assert [name for name in left if name != "sample"] == ["parameters of net", "activations of net"]


def test_a_model_without_an_optimizer_has_parameters(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace('.to("cuda")', ".eval()").replace("    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)\n", ""))
    found = table(budget, "train.py")
    assert {row["what"] for row in found["rows"] if "`net`" in row["what"]} == {"parameters of `net`", "activations of `net`"}
    assert not [row for row in found["rows"] if row["holder"] == "device"]


def test_a_program_without_a_loader_has_what_can_be_seen(budget: Budget) -> None:
    Path("train.py").write_text(MODEL.replace("    loader = DataLoader([1], batch_size=2, pin_memory=True)\n", "    table = torch.ones(50000, 1000)\n"))
    found = table(budget, "train.py")
    rows = {row["what"]: row["bytes"] for row in found["rows"]}
    assert rows["`table`"] == 50000 * 1000 * 4
    assert rows["parameters of `net`"]
    assert "batches" in next(one["missing"] for one in found["totals"] if one["moment"] == "first epoch")
    assert not found["verdict"]["complete"]
    assert table(budget, "train.py", "--set", "batches=1MiB")["loaders"] == []


# -- the bar and the page ------------------------------------------------------------------------------------------------


def test_the_bar_shows_who_holds_the_peak(budget: Budget) -> None:
    bar = next(line for line in budget("train.py", "--ram", "4GiB").out.splitlines() if line.startswith("peak"))
    assert re.search(r"main process 1\.3 GiB, .* workers \d+\.\d MiB, .* shared memory 13\.7 MiB; \d+% of the limit$", bar)
    assert 58 <= len(bar.split("  ")[1]) <= 62


def test_a_browser_reads_the_page(budget: Budget, tmp_path: Path) -> None:
    found = table(budget, "train.py", "--ram", "4GiB", "--shm", "64MiB")
    page = budget("train.py", "--ram", "4GiB", "--shm", "64MiB", "--output-format", "html").out
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.findall(r"https?://|<script|<img|<link|url\(", page)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here (Debian: apt-get install chromium)")
    (tmp_path / "page.html").write_text(page)
    line = [browser, "--headless", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'user'}", "--dump-dom"]
    done = subprocess.run([*line, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [int(size) for size in re.findall(r'</code></td><td class="number" data-bytes="(\d+)">', done.stdout)]
    assert rows == [row["bytes"] for row in found["rows"]]
    peak = max(one["bytes"] for one in found["totals"])
    assert int(re.findall(r'data-peak="(\d+)"', done.stdout)[0]) == peak
    assert sum(int(size) for size in re.findall(r'<rect [^>]*data-bytes="(\d+)"', done.stdout)) == peak
    assert SAMPLE * 3 * 4 in rows


# -- what would fit ------------------------------------------------------------------------------------------------------


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "oomlint", "budget", *words]


def test_a_setting_that_would_fit_and_its_change(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY.replace("default=1", "default=40"))
    limits = ("--ram", "2GiB", "--shm", "1GiB", "--start-method", "fork")
    found = table(budget, "python train.py", *limits)
    named = {one["name"]: one for one in found["verdict"]["settings"]}
    most = named["num_workers"]["most"]
    assert 10 < most < 40
    assert [place["row"] for place in named["num_workers"]["places"]] == [18]
    for name, one in named.items():
        assert table(budget, "python train.py", *limits, "--set", f"{name}={one['most']}")["verdict"]["fits"], name
        assert not table(budget, "python train.py", *limits, "--set", f"{name}={one['most'] + 1}")["verdict"]["fits"], name
    assert f"What would fit, each alone: num_workers={most}" in budget("python train.py", *limits).out
    done = subprocess.run(_command("python train.py", *limits, "--diff"), capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}] == [
        '-    parser.add_argument("--num-workers", type=int, default=40)',
        f'+    parser.add_argument("--num-workers", type=int, default={most})',
    ]
    done = subprocess.run(_command("python train.py --num-workers 40", *limits, "--diff"), capture_output=True, text=True, check=False, env=environment())
    assert f'+    parser.add_argument("--batch", type=int, default={named["batch_size"]["most"]})\n' in done.stdout  # the command gives the workers
    done = subprocess.run(_command("python train.py --num-workers 1", *limits, "--diff"), capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing to change: it fits" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize(
    "words",
    [
        ["budget", "job.sh"],
        ["budget", "train.py"],
        ["budget", "--data", "pipe.npy", "there.py"],
        ["check", "train.py"],
        ["check", "--baseline", "pipe.npy", "there.py"],
    ],
    ids=" ".join,
)
def test_a_pipe_is_not_waited_for(words: list[str], tmp_path: Path) -> None:
    for name in ("job.sh", "train.py", "pipe.npy"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "there.py").write_text("from torch.utils.data import DataLoader, TensorDataset\nloader = DataLoader(TensorDataset())\n")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    done = subprocess.run([sys.executable, "-m", "oomlint", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert "not a regular file" in done.stdout + done.stderr
    assert done.returncode == (1 if words == ["check", "train.py"] else 2)
