"""What several findings say of the same thing is said once, and what is said of fixes is what is applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = """\
import numpy as np
from torch.utils.data import Dataset


class Clips(Dataset):
    def __init__(self):
        self.clips = np.load("clips.npy")

    def __getitem__(self, index):
        return self.clips[index]
"""
TRAIN = """\
from torch.utils.data import DataLoader

from data import Clips

train = DataLoader(Clips(), num_workers=8)
test = DataLoader(Clips(), num_workers=8, batch_size=4)
"""
EVAL = TRAIN.replace("test = ", "\n\ntest = ")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    for name, text in {"data.py": DATA, "train.py": TRAIN, "eval.py": EVAL}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "check", "--isolated", "--select", "OOM114", "--unsafe-fixes")


def test_a_finding_that_stands_for_others_has_the_edits_of_all(run: Callable[..., Done], tmp_path: Path) -> None:
    (found,) = json.loads(run("--output-format", "json").out)
    edits = {(edit["filename"], edit["location"]["row"]) for edit in found["fix"]["edits"]}
    said = run("--output-format", "full").out
    (log,) = json.loads(run("--output-format", "sarif").out)["runs"]
    changed = {(name, row) for name in ("train.py", "eval.py") for row, line in enumerate((tmp_path / name).read_text().splitlines(), 1) if "8" in line}
    assert edits == changed
    assert {each["artifactLocation"]["uri"] for each in log["results"][0]["fixes"][0]["artifactChanges"]} == {"train.py", "eval.py"}
    assert said.count("\n5 - ") + said.count("\n6 - ") + said.count("\n8 - ") == len(edits)
    done = run("--fix", "--show-fixes", "--output-format", "concise")
    rows = "  1 OOM114 workers-over-in-memory-dataset (at 2 places)\n"
    assert done.out == f"eval.py:\n{rows}train.py:\n{rows}Fixed 1 finding in 2 files.\n"
    assert "8)" not in (tmp_path / "train.py").read_text() + (tmp_path / "eval.py").read_text()


def test_edits_of_files_that_are_not_checked_are_not_promised(run: Callable[..., Done], tmp_path: Path) -> None:
    (found,) = json.loads(run("--output-format", "json", "train.py").out)
    assert {edit["filename"] for edit in found["fix"]["edits"]} == {"train.py"}
    run("--fix", "train.py")
    assert (tmp_path / "eval.py").read_text() == EVAL


HANDLE = """\
import h5py
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, path):
        self.scans = h5py.File(path, "r")

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return self.scans["x"][index]


loader = DataLoader(Scans("scans.h5"), num_workers=2COLLATED)
"""


@pytest.mark.parametrize(("select", "collated", "codes"), [
    ("OOM1,OOM3", "", ["OOM301"]),
    ("OOM111", "", ["OOM111"]),
    ("OOM1,OOM3", ", collate_fn=lambda rows: rows", ["OOM111", "OOM301"]),
])  # fmt: skip
def test_a_handle_that_a_dataset_keeps_is_told_once(
    select: str, collated: str, codes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scans.py").write_text(HANDLE.replace("COLLATED", collated))
    monkeypatch.chdir(tmp_path)
    found = json.loads(runs(capsys, "check", "--isolated", "--select", select, "--output-format", "json")("scans.py").out)
    assert sorted(item["code"] for item in found) == codes


def test_a_handle_of_a_base_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    derived = "class Few(Scans):\n    def __len__(self):\n        return 3\n\n\nloader = DataLoader(Few("
    (tmp_path / "scans.py").write_text(HANDLE.replace("COLLATED", "").replace("loader = DataLoader(Scans(", derived))
    monkeypatch.chdir(tmp_path)
    found = json.loads(runs(capsys, "check", "--isolated", "--select", "OOM1,OOM3", "--output-format", "json")("scans.py").out)
    assert [item["code"] for item in found] == ["OOM301"]


EVALUATED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def describe(net, images):
    return net(images).argmax(1).tolist()


def compare(first, second, third):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    net.load_state_dict(torch.load("net.pt"))
    net.eval()
    for images, _ in DataLoader(first, batch_size=64):
        print(describe(net, images))
    for images, _ in DataLoader(second, batch_size=64):
        print(describe(net, images))
    for images, _ in DataLoader(third, batch_size=64):
        print(net(images).argmax(1).tolist())
"""


def test_loops_that_run_a_model_by_the_same_function_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compare.py").write_text(EVALUATED)
    monkeypatch.chdir(tmp_path)
    found = json.loads(runs(capsys, "check", "--isolated", "--select", "OOM204", "--output-format", "json")("compare.py").out)
    rows = [(item["location"]["row"], [place["location"]["row"] for place in item["related"]]) for item in found]
    assert rows == [(14, [7, 16, 15]), (18, [19])]


CHAIN = """\
import h5py
import numpy as np
import torch
from torch.utils.data import Dataset


def load(paths):
    parts = []
    for path in paths:
        with h5py.File(path) as file:
            parts.append(file["data"][:])
    return np.concatenate(parts)


class Clouds(Dataset):
    def __init__(self, paths):
        self.data = load(paths)

    def __getitem__(self, index):
        return torch.from_numpy(self.data[index])

    def __len__(self):
        return len(self.data)
"""
READERS = """\
import numpy as np
from torch.utils.data import Dataset


def load(path):
    return np.load(path)["points"]


class Train(Dataset):
    def __init__(self):
        self.points = load("train.npz")

    def __getitem__(self, index):
        return self.points[index]


class Test(Dataset):
    def __init__(self):
        self.points = load("test.npz")

    def __getitem__(self, index):
        return self.points[index]
"""


@pytest.mark.parametrize(
    ("text", "codes", "told", "row", "also"),
    [
        (CHAIN, "OOM305,OOM401", "OOM305", 11, 12),  # what is read into a list, and where the list is joined
        (READERS, "OOM402", "OOM402", 11, 19),  # one function that reads for two datasets
    ],
)
def test_one_way_of_the_same_data_is_one_finding(
    text: str, codes: str, told: str, row: int, also: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.py").write_text(text)
    run = runs(capsys, "check", "--isolated", "--no-cache", "--select", codes, "--output-format", "json")
    (found,) = json.loads(run(str(tmp_path)).out)
    assert (found["code"], found["location"]["row"]) == (told, row)
    assert also in [place["location"]["row"] for place in found["related"][:4]]


BY_MODE = """\
import json

from torch.utils.data import DataLoader, Dataset


class Questions(Dataset):
    def __init__(self, mode):
        if mode == "train":
            self.entries = json.load(open("train.json"))
        else:
            self.entries = json.load(open("other.json"))

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        return self.entries[index]["text"]


train = DataLoader(Questions("train"), num_workers=4)
test = DataLoader(Questions("test"), num_workers=4)
"""


def test_loaders_of_one_class_are_one_finding_though_branches_fill_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.py").write_text(BY_MODE)
    (found,) = json.loads(runs(capsys, "check", "--isolated", "--no-cache", "--select", "OOM110", "--output-format", "json")(str(tmp_path)).out)
    assert found["location"]["row"] == 20
    assert 21 in [place["location"]["row"] for place in found["related"]]


EVALUATION = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def evaluate(dataset):
    model = nn.Linear(16, 1).eval()
    losses = LOSSES
    for rows, wanted in DataLoader(dataset):
        loss = nn.functional.mse_loss(model(rows), wanted)
        KEPT
    return losses
"""


@pytest.mark.parametrize(("losses", "kept", "code"), [("[]", "losses.append(loss)", "OOM202"), ("0.0", "losses += loss", "OOM201")])
def test_what_keeps_the_graph_of_an_evaluation_is_told_with_it(
    losses: str, kept: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evaluate.py").write_text(EVALUATION.replace("LOSSES", losses).replace("KEPT", kept))
    (found,) = json.loads(runs(capsys, "check", "--isolated", "--no-cache", "--select", f"OOM204,{code}")("--output-format", "json", "evaluate.py").out)
    assert (found["code"], found["severity"], found["location"]["row"]) == ("OOM204", "error", 9)
    assert (11, "keeps its graph") in {(place["location"]["row"], place["message"]) for place in found["related"]}
    (alone,) = json.loads(runs(capsys, "check", "--isolated", "--no-cache", "--select", code)("--output-format", "json", "evaluate.py").out)
    assert (alone["code"], alone["location"]["row"]) == (code, 11)


# Rows of the findings of a rule in a program that has one cause for several places.
RECORDS = """\
import json
from torch.utils.data import DataLoader, Dataset

class Turns(Dataset):
    def __init__(self, path):
        self.turns = json.load(open(path))

    def __getitem__(self, index):
        return self.turns[index]["words"]

class LongTurns(Turns):
    def __len__(self):
        return len(self.turns)

class Batches(DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)

"""
BY_CLASS = "from records import Batches, Turns\none = Batches(Turns('a.json'), num_workers=8)\ntwo = Batches(Turns('b.json'), num_workers=8)\n"
BY_HEIRS = BY_CLASS.replace("Batches", "DataLoader").replace("Turns('b", "LongTurns('b").replace(", Turns\n", ", LongTurns, Turns\n")
BY_NUMBER = """\
import numpy as np
from torch.utils.data import DataLoader, TensorDataset

one = DataLoader(np.load("a.npy"), num_workers=8)
two = DataLoader(np.load("b.npy"), num_workers=8)
"""
BRANCHES = """\
import torch

def draw(model, loader, plain):
    found = None
    if plain:
        for batch in loader:
            found = model.sample(batch) if found is None else torch.cat((found, model.sample(batch)), dim=0)
    else:
        for batch in loader:
            found = model.draw(batch) if found is None else torch.cat((found, model.draw(batch)), dim=0)
    return found
"""
TWO_PASSES = """\
import torch
from torch import nn

def fit(loader, steps, seen, unseen):
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3))
    best = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(steps):
        net.train()
        for x, y in loader:
            nn.functional.mse_loss(net(x), y).backward()
            best.step()
        net.eval()
        guess = net(seen)
        print(guess.mean().item())
        guess = net(unseen)
        print(guess.mean().item())
"""


@pytest.mark.parametrize(
    ("code", "text", "rows"),
    [
        pytest.param("OOM110", BY_CLASS, [2, 3], id="loaders of a class of the project"),
        pytest.param("OOM110", BY_HEIRS, [2, 3], id="datasets that derive from the class that holds it"),
        pytest.param("OOM120", BY_NUMBER.replace("8", "64"), [4, 5], id="the same number at each loader of a file"),
        pytest.param("OOM209", BRANCHES, [7, 10], id="branches that grow the same array"),
        pytest.param("OOM204", TWO_PASSES, [13, 15], id="passes behind one eval()"),
    ],
)
def test_one_cause_is_told_once(
    code: str, text: str, rows: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "records.py").write_text(RECORDS)
    monkeypatch.chdir(tmp_path)
    (found,) = json.loads(runs(capsys, "check", "--isolated", "--select", code)("--output-format", "json").out)
    told = [found["location"]["row"], *(place["location"]["row"] for place in found["related"])]
    assert set(rows) <= set(told)
