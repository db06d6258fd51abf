"""``oomlint budget``: how a training is told where neither its optimizer nor its model is named by the code."""

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

CHOSEN: Final = """
import argparse
import torch
from torch.utils.data import DataLoader

KINDS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}

def kind_of(name):
    return KINDS[name]

parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="adam")
args = parser.parse_args()
model = torch.nn.DataParallel(torch.nn.Linear(1000, 1000))
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer = WHICH(model.module.parameters(), lr=1e-3)
for x in DataLoader([1]):
    pass
"""
OUT_OF_SIGHT: Final = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from helpers import progress
from steps_of_somebody import step_for

frozen = torch.nn.Linear(10, 10)
frozen.eval()
nets = __import__(sys.argv[1])
model = nets.Net().to("cuda")
train = step_for(model)
loader = DataLoader(TensorDataset(torch.zeros(100, 10)), batch_size=4, num_workers=2, shuffle=True)
for number, (x,) in enumerate(progress(loader)):
    model.train()
    train(x)
    if number % 100 == 0:
        model.eval()
        print(frozen(x).sum())
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


@pytest.mark.parametrize(
    ("which", "state"),
    [
        ("kind_of(args.kind)", "state of Adam"),
        ("KINDS[args.kind]", "state of Adam"),
        ("getattr(torch.optim, 'Adam')", "state of Adam"),
        ("kind_of(open('kind.txt').read())", "state of Adam or SGD"),
    ],
)
def test_an_optimizer_is_one_by_what_it_is(budget: Budget, which: str, state: str) -> None:
    Path("train.py").write_text(CHOSEN.replace("WHICH", which), encoding="utf-8")
    rows: list[dict[str, Any]] = [row for row in table(budget, "train.py")["rows"] if "`model.module`" in row["what"]]
    assert [row["what"] for row in rows[:3]] == ["parameters of `model.module`", "gradients of `model.module`", f"{state} of `model.module`"]
    assert [row["bytes"] for row in rows[:3]] == [1001000 * 4, 1001000 * 4, None if " or " in state else 2 * 1001000 * 4]


def test_a_loop_that_begins_with_train_is_no_evaluation(budget: Budget) -> None:
    Path("helpers.py").write_text("def progress(items):\n    for item in items:\n        yield item\n", encoding="utf-8")
    Path("train.py").write_text(OUT_OF_SIGHT, encoding="utf-8")
    (row,) = [row for row in table(budget, "train.py")["rows"] if row["what"].startswith("batches in flight")]
    assert row["moments"] == ["first epoch"]


def test_the_optimizer_that_a_function_makes_is_counted_where_it_is_called(budget: Budget) -> None:
    made = "def build(parameters, kind):\n    if kind == 'sgd':\n        return torch.optim.SGD(parameters)\n    return torch.optim.Adam(parameters)\n"
    Path("train.py").write_text(
        f"import torch\nfrom torch.utils.data import DataLoader\n\n{made}\nmodel = torch.nn.Linear(1000, 1000)\n"
        "optimizer = build(model.parameters(), 'adam')\nfor x in DataLoader([1]):\n    pass\n",
        encoding="utf-8",
    )
    rows: list[dict[str, Any]] = table(budget, "train.py")["rows"]
    assert [(row["what"], row["bytes"]) for row in rows if row["what"].startswith(("parameters", "state"))] == [
        ("parameters of `model`", 1001000 * 4),
        ("state of Adam of `model`", 2 * 1001000 * 4),
    ]


def test_models_of_several_functions_are_several(budget: Budget) -> None:
    """What one function has made is gone when the next one is looked at: a part of its model is none that was counted before."""
    layers = "".join(f"        self.layer{number} = nn.Linear(10, {number + 1})\n" for number in range(30))
    made = "".join(f"def train{n}():\n    model{n} = Net()\n    return torch.optim.SGD(model{n}.parameters(), 0.1)\n\ntrain{n}()\n" for n in range(12))
    loader = "loader = torch.utils.data.DataLoader([1], batch_size=2)\n"
    net = f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n{layers}\n"
    Path("train.py").write_text(f"import torch\nfrom torch import nn\n\n{net}{made}{loader}")
    sizes = [row["bytes"] for row in table(budget, "train.py")["rows"] if row["what"].startswith("parameters of")]
    assert sizes == [4 * sum(11 * (number + 1) for number in range(30))] * 12


PROPERTIES: Final = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Data:
    def __init__(self, workers):
        self.workers = workers

    @property
    def train(self):
        return DataLoader(TensorDataset(torch.zeros(1000, 10)), batch_size=4, shuffle=True, num_workers=self.workers)

    @property
    def unused(self):
        return DataLoader(TensorDataset(torch.zeros(1000, 10)), batch_size=4, num_workers=7)

KINDS = {"own": Data}
"""
READS: Final = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from data import KINDS

def main():
    data = KINDS["own"](3)
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for (x,) in data.train:
            model(x).sum().backward()
            optimizer.step()
    test = DataLoader(TensorDataset(torch.zeros(500, 10)), batch_size=4, num_workers=1)
    with torch.no_grad():
        for (x,) in test:
            model(x)

main()
"""


def test_a_loader_that_a_property_makes_is_one_of_the_program(budget: Budget) -> None:
    Path("data.py").write_text(PROPERTIES)
    Path("train.py").write_text(READS)
    found = table(budget, "train.py")
    assert sorted(row["formula"] for row in found["rows"] if row["what"].startswith("forked processes")) == ["1 * 10485760", "3 * 10485760"]


def test_what_an_imported_file_shows_by_itself_is_no_loader_of_the_program(budget: Budget) -> None:
    shows = "if __name__ == '__main__':\n    loader = DataLoader(Rows(), batch_size=8, num_workers=4)\n"
    rows = "from torch.utils.data import DataLoader, Dataset\n\nclass Rows(Dataset):\n    def __getitem__(self, i):\n        return i\n\n"
    Path("rows.py").write_text(rows + shows)
    trains = "import torch\nfrom transformers import Trainer\nfrom rows import Rows\n\nmodel = torch.nn.Linear(10, 10)\n"
    Path("train.py").write_text(trains + "Trainer(model=model, train_dataset=Rows()).train()\n")
    done = budget("train.py")
    assert "train.py: no loader" in done.out
    assert "state of AdamW of `model`" in done.out
    assert "rows.py: 4 workers" in budget("rows.py").out
