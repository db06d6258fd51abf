"""``oomlint budget``: datasets that others join, by what each object holds; numbers that are no memory; names as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

CLASS = """
import h5py
import json
import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset

class Frames(Dataset):
    def __init__(self, n):
        self.x = np.zeros((n, 3000), dtype=np.float32)
        self.words = open("words.txt").read().split()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.words[i]

"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def held(budget: Budget, program: str, *, of: str = "main") -> list[tuple[str, str, int | None]]:
    Path("train.py").write_text(CLASS + program, encoding="utf-8")
    rows: list[dict[str, Any]] = table(budget, "train.py")["rows"]
    return [(row["what"], row["formula"], row["bytes"]) for row in rows if row["holder"] == of and "of Frames" in row["what"]]


X, Y = 1000 * 3000 * 4, 500 * 3000 * 4
WORDS = [("`words` of Frames", "len(words) * 57", None), ("`words` of Frames", "len(words)#2 * 57", None)]


def test_each_dataset_that_is_joined_is_counted(budget: Budget) -> None:
    found = held(budget, "for x in DataLoader(ConcatDataset([Frames(1000), Frames(500)]), batch_size=4):\n    pass\n")
    assert [size for what, _, size in found if what == "`x` of Frames"] == [X, Y]
    assert [one for one in found if "words" in one[0]] == WORDS


def test_a_dataset_that_two_loaders_read_is_counted_once(budget: Budget) -> None:
    program = """
train, val = Frames(1000), Frames(500)
both = DataLoader(ConcatDataset([train, val]), batch_size=4)
again = DataLoader(val, batch_size=4)
for x in both:
    pass
for x in again:
    pass
"""
    found = held(budget, program)
    assert [size for what, _, size in found if what == "`x` of Frames"] == [X, Y]
    assert [one for one in found if "words" in one[0]] == WORDS


def test_a_dataset_that_is_repeated_is_counted_once(budget: Budget) -> None:
    found = held(budget, "data = Frames(1000)\nfor x in DataLoader(ConcatDataset([data, data, data]), batch_size=4):\n    pass\n")
    assert [size for what, _, size in found if what == "`x` of Frames"] == [X]
    assert [one for one in found if "words" in one[0]] == WORDS[:1]


def test_the_size_of_an_array_is_no_array(budget: Budget) -> None:
    program = CLASS.replace('open("words.txt").read().split()', 'h5py.File("a.h5")["x"][:]').replace(
        "    def __len__",
        "        self.words = torch.from_numpy(self.words)\n        self.width = self.words.size(2)\n        self.all = self.words.sum()\n\n    def __len__",
    )
    Path("train.py").write_text(program + "for x in DataLoader(Frames(1000)):\n    pass\n", encoding="utf-8")
    rows = table(budget, "train.py")["rows"]
    assert [row["what"] for row in rows if "of Frames" in row["what"]] == ["`x` of Frames", "`words` of Frames"]


def test_names_stand_as_they_are_written(budget: Budget) -> None:
    program = """
class Both:
    def __init__(self):
        self.loaders, self.scores = {}, {"loss": [], "logits": []}
        for split in open("splits.txt"):
            self.loaders[split] = DataLoader(Frames(1000), batch_size=4, num_workers=2)

both = Both()
model = torch.nn.Linear(3, 3)
with torch.no_grad():
    for split in both.loaders:
        for x, words in both.loaders[split]:
            both.scores["logits"].append(model(x).cpu().numpy())
"""
    Path("train.py").write_text(CLASS + program, encoding="utf-8")
    done = budget("train.py")
    assert "forked processes of `self.loaders[...]`" in done.out
    assert "object at" not in done.out
    assert "``" not in done.out
    assert "both.scores['logits'] a step" in done.out or 'both.scores["logits"] a step' in done.out
