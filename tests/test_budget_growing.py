"""``oomlint budget``: what loops, buffers and caches keep where no rule finds fault, and arrays that are joined of pieces."""

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

LOOP: Final = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EVERY = 25

def main():
    loader = DataLoader(TensorDataset(torch.ones(1010, 100)), batch_size=10)
    model = nn.Linear(100, 50)
    kept = []
    for epoch in range(3):
        FRESH
        for step, (x,) in enumerate(loader):
            y = model(x)
            STORED
    torch.save(kept, "kept.pt")

main()
"""
SAMPLES: Final = """
import functools
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Shuffled(IterableDataset):
    def __init__(self, size=500):
        self.size = size

    def __iter__(self):
        pool = []
        for i in range(100000):
            if len(pool) < self.size:
                pool.append(torch.zeros(3, 8, 8))
            else:
                place = random.randrange(self.size)
                yield pool[place]
                pool[place] = torch.zeros(3, 8, 8)

class Cached(Dataset):
    def __init__(self):
        self.cache, self.first = {}, {}
        self.names = [f"{i}.npy" for i in range(5000)]

    def __len__(self):
        return len(self.names)

    @functools.lru_cache(maxsize=1000)
    def load(self, i):
        return np.zeros((64, 64), np.float32)

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = np.ones((16, 16), np.float32)
        if len(self.first) < 20:
            self.first[i] = np.ones((8, 8), np.float64)
        return self.cache[i] + self.load(i)[:16, :16]

for batch in DataLoader(DATASET(), batch_size=4, num_workers=2):
    pass
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def formula(found: dict[str, Any], what: str) -> str:
    (row,) = (row for row in found["rows"] if what in row["what"])
    return str(row["formula"])


@pytest.mark.parametrize(
    ("fresh", "stored", "expected"),
    [
        ("pass", "kept.append(y.detach())", "3 * (1010 / 10) * kept a step"),
        ("pass", "kept.append(y.detach().cpu())", "3 * (1010 / 10) * kept a step"),
        ("kept = []", "kept.append(y.detach())", "(1010 / 10) * kept a step"),
        ("pass", "kept.append(x.clone())", "3 * (1010 / 10) * kept a step"),
        ("pass", "kept.append(torch.zeros(7, 7))", f"3 * (1010 / 10) * {7 * 7 * 4}"),
        ("pass", "kept.append(x)", "3 * (1010 / 10) * 10 * 100 * 4"),
        ("pass", "kept.append(x)\n            if len(kept) == 20:\n                kept.clear()", "20 * 10 * 100 * 4"),
        ("pass", "kept.append(x)\n            if len(kept) > 20:\n                kept = []", "21 * 10 * 100 * 4"),
        ("pass", "kept.append(x)\n            if step % EVERY == 0:\n                kept.clear()", "25 * 10 * 100 * 4"),
        ("pass", "kept.append(x)\n            if not (step + 1) % 30:\n                del kept[:]", "30 * 10 * 100 * 4"),
    ],
)
def test_what_a_loop_keeps_is_counted_by_its_rounds(budget: Budget, fresh: str, stored: str, expected: str) -> None:
    Path("train.py").write_text(LOOP.replace("FRESH", fresh).replace("STORED", stored))
    assert formula(table(budget, "train.py"), "`kept`").replace("(kept a step)", "kept a step") == expected


def test_what_is_kept_by_key_is_one_for_each_key(budget: Budget) -> None:
    stored = "if len(y) not in kept:\n                kept[len(y)] = torch.zeros(7, 7)"
    Path("train.py").write_text(LOOP.replace("FRESH", "pass").replace("STORED", stored).replace("kept = []", "kept = {}"))
    assert formula(table(budget, "train.py"), "`kept`") == f"len(kept) * {7 * 7 * 4}"


def test_a_list_of_one_call_keeps_nothing(budget: Budget) -> None:
    gathers = "parts = []\n        while len(parts) < 8:\n            parts.append(np.ones((16, 16), np.float32))\n        return parts[0]"
    Path("train.py").write_text(SAMPLES.replace("DATASET", "Cached").replace("return self.cache[i] + self.load(i)[:16, :16]", gathers))
    assert not [row for row in table(budget, "train.py")["rows"] if "`parts`" in row["what"]]


def test_code_under_an_option_that_is_not_given_keeps_nothing(budget: Budget) -> None:
    evaluates = "def evaluate(loader):\n    outputs = []\n    for (x,) in loader:\n        outputs.append(torch.zeros(7, 7))\n    return outputs\n\ndef main():"
    options = "    import argparse\n    p = argparse.ArgumentParser()\n    p.add_argument('--test', action='store_true')\n    args = p.parse_args()\n"
    program = LOOP.replace("FRESH", "pass").replace("STORED", "pass").replace("def main():", evaluates)
    chosen = "    if args.test:\n        evaluate(loader)\n    torch.save"
    Path("train.py").write_text(program.replace("main():\n", f"main():\n{options}").replace("    torch.save", chosen))
    for command, count in (("python train.py", 0), ("python train.py --test", 1)):
        assert len([row for row in table(budget, command)["rows"] if "`outputs`" in row["what"]]) == count


UNDER: Final = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--more", action="store_true")

def main():
    args = parser.parse_args()
    loader = DataLoader(TensorDataset(torch.zeros(1010, 100)), batch_size=10)
    model = torch.nn.Linear(100, 10).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    if TEST:
        model.load_state_dict(torch.load("a.pt"))
        average = torch.optim.swa_utils.AveragedModel(model)
        table = torch.zeros(1000, 1000)
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
        if TEST:
            kept.append(x.clone())

main()
"""


@pytest.mark.parametrize(("command", "test", "known"), [("", "args.more", None), ("--more", "args.more", "exact"), ("", "unknown()", "at most")])
def test_statements_under_an_option_that_is_not_given_hold_nothing(budget: Budget, command: str, test: str, known: str | None) -> None:
    Path("train.py").write_text(UNDER.replace("TEST", test))
    rows = table(budget, f"python train.py {command}")["rows"]
    found = {word: row["known"] for row in rows for word in ("checkpoint", "copies", "`table`", "`kept`") if word in row["what"]}
    assert (found.get("copies"), found.get("`table`")) == (known, known)
    assert ("checkpoint" in found, "`kept`" in found) == (known is not None, known is not None)


def test_a_function_that_is_named_under_a_failed_test_alone_keeps_nothing(budget: Budget) -> None:
    keeps = "def {0}(loader):\n    {0}_rows = []\n    for (x,) in loader:\n        {0}_rows.append(x.clone())\n    return {0}_rows\n\n"
    chooses = "if args.more:\n        step = first\n    else:\n        step = second\n    step(loader)\n    hooks = {'third': third}"
    functions = "".join(keeps.format(name) for name in ("first", "second", "third"))
    program = UNDER.replace("def main():", f"{functions}def main():").replace("kept = []", chooses).replace("kept.append(x.clone())", "pass")
    Path("train.py").write_text(program.replace("TEST", "args.more"))
    for command, chosen in (("python train.py", "second"), ("python train.py --more", "first")):
        rows = table(budget, command)["rows"]
        assert {name for name in ("first", "second", "third") for row in rows if f"{name}_rows" in row["what"]} == {chosen, "third"}


def test_a_last_batch_that_is_not_full_is_a_step(budget: Budget) -> None:
    Path("train.py").write_text(LOOP.replace("FRESH", "pass").replace("STORED", "kept.append(torch.zeros(7))").replace("batch_size=10", "batch_size=100"))
    (row,) = (row for row in table(budget, "train.py")["rows"] if "`kept`" in row["what"])
    assert (row["formula"], row["bytes"]) == ("3 * ceil(1010 / 100) * 28", 3 * 11 * 28)


def test_what_is_emptied_in_each_round_grows_not(budget: Budget) -> None:
    Path("train.py").write_text(LOOP.replace("FRESH", "pass").replace("STORED", "kept = []\n            kept.append(y.detach())"))
    assert not [row for row in table(budget, "train.py")["rows"] if "`kept`" in row["what"]]


def test_a_shuffle_buffer_is_in_each_worker(budget: Budget) -> None:
    Path("train.py").write_text(SAMPLES.replace("DATASET", "Shuffled"))
    assert formula(table(budget, "train.py"), "`pool`") == f"2 * 500 * {3 * 8 * 8 * 4}"


def test_caches_with_a_bound_are_in_each_worker(budget: Budget) -> None:
    Path("train.py").write_text(SAMPLES.replace("DATASET", "Cached"))
    found = table(budget, "train.py")
    assert formula(found, "`load`") == f"2 * 1000 * {64 * 64 * 4}"
    assert formula(found, "`self.first`") == f"2 * 20 * {8 * 8 * 8}"
    assert formula(found, "a cache of what is read") == f"2 * 5000 * {16 * 16 * 4}"


JOINED: Final = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Joined(Dataset):
    def __init__(self):
        a, b = np.zeros((300, 64), np.float32), np.zeros((100, 64), np.float32)
        c = np.zeros((300, 64), np.float64)
        rows = []
        for i in range(500):
            rows.append(np.zeros((16, 16), np.float32))
        self.x = VALUE

    def __len__(self):
        return 300

    def __getitem__(self, i):
        return self.x[i]

loader = DataLoader(Joined(), batch_size=4)
for batch in loader:
    pass
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("np.concatenate([a, b])", "400 * 64 * 4"),
        ("torch.from_numpy(np.concatenate((a, b)))", "400 * 64 * 4"),
        ("np.stack(rows)", "500 * 16 * 16 * 4"),
        ("np.concatenate([a, a], axis=1)", "300 * 128 * 4"),
        ("np.concatenate([a, c])", "600 * 64 * 8"),
        ("np.concatenate([a, b.astype(np.float64)])", "400 * 64 * 8"),
        ("np.concatenate([a, unknown()])", "x"),
    ],
)
def test_an_array_that_is_joined_has_the_shape_of_its_pieces(budget: Budget, value: str, expected: str) -> None:
    Path("train.py").write_text(JOINED.replace("VALUE", value))
    found = table(budget, "train.py")
    assert formula(found, "`x` of Joined") == expected
    pieces = [row for row in found["rows"] if row["moments"] == ["construction"]]
    mixed = {"600 * 64 * 8": str(300 * 64 * 4 + 300 * 64 * 8), "400 * 64 * 8": str(300 * 64 * 4 + 100 * 64 * 8)}
    assert [row["formula"] for row in pieces] == ([mixed.get(expected, expected)] if expected != "x" else [])


FLUSHED: Final = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def write(first, second):
    torch.save((torch.cat(first), torch.cat(second)), "part.pt")

def main():
    loader = DataLoader(TensorDataset(torch.ones(1000, 100)), batch_size=10)
    model = nn.Linear(100, 50).eval()
    kept, others = [], []
    with torch.no_grad():
        for step, (x,) in enumerate(loader):
            y = model(x)
            kept.append(y.cpu())
            others.append(y.half().cpu())
            if (step + 1) % 20 == 0:
                JOINED
                kept.clear()
                others.clear()

main()
"""


@pytest.mark.parametrize(
    ("joined", "known"),
    [
        ("write(kept, others)", "exact"),
        ("write(second=others, first=kept)", "exact"),
        ("torch.save((torch.cat(kept), torch.cat(others)), str(step))", "exact"),
        ("torch.save(torch.cat(kept), str(step)); torch.save(torch.cat(others), str(step))", "at most"),  # one after another
        ("torch.save((kept, others), str(step))", None),
    ],
)
def test_what_is_emptied_in_time_is_there_twice_where_it_is_joined(budget: Budget, joined: str, known: str | None) -> None:
    Path("train.py").write_text(FLUSHED.replace("JOINED", joined), encoding="utf-8")
    found = table(budget, "train.py", "--set", "kept a step=2000", "--set", "others a step=1000")
    rows = {row["what"]: (row["bytes"], row["known"]) for row in found["rows"]}
    assert rows["what `kept` keeps of the steps"][0] == 20 * 2000
    twice = {what.split("`")[1]: row for what, row in rows.items() if "once more where it is joined" in what}
    assert twice == ({"kept": (20 * 2000, known), "others": (20 * 1000, known)} if known is not None else {})


PART: Final = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

data = TensorDataset(torch.ones(40000, 100))
MADE
net = nn.Linear(100, 10)
outs = []
with torch.no_grad():
    for (x,) in DataLoader(val, batch_size=40):
        outs.append(torch.ones(1000, 1000))
"""


@pytest.mark.parametrize(
    ("made", "rounds"),
    [
        ("train, val = random_split(data, [36000, 4000])", "(4000 / 40)"),
        ("sizes = [36000, 4000]\nval = random_split(data, sizes)[1]", "(4000 / 40)"),
        ("train, val = random_split(data, [0.75, 0.25])", "(10000 / 40)"),
        ("val = Subset(data, range(36000, 40000))", "(4000 / 40)"),
        ("val = Subset(data, list(range(50)))", "ceil(50 / 40)"),
        ("val = Subset(data, torch.load('indices'))", "steps"),
        ("val = data", "(40000 / 40)"),
    ],
)
def test_a_loop_over_a_part_has_its_rounds(budget: Budget, made: str, rounds: str) -> None:
    Path("train.py").write_text(PART.replace("MADE", made))
    found = [row["formula"] for row in table(budget, "train.py")["rows"] if "`outs`" in row["what"]]
    assert [one.split(" * 4000000")[0].strip("()") for one in found] == [rounds.strip("()")]


OUTSIDE: Final = """
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def check(model, loader):
    guesses = np.array([])
    with torch.no_grad():
        for (x,) in loader:
            guesses = np.append(guesses, model(x).cpu().numpy())
    return guesses.mean()

def draw(history):
    for name in history[0]:
        plt.figure()
        plt.plot([one[name] for one in history])
        plt.savefig(name)

def main():
    loader = DataLoader(TensorDataset(torch.ones(1010, 100)), batch_size=10, shuffle=True)
    later = DataLoader(TensorDataset(torch.ones(90, 100)), batch_size=10)
    model = nn.Linear(100, 50)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    history = []
    for epoch in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        history.append({"score": check(model, later)})
    draw(history)

main()
"""


def test_what_an_evaluation_joins_is_no_peak_of_the_construction(budget: Budget) -> None:
    Path("train.py").write_text(OUTSIDE)
    moments = [row["moments"] for row in table(budget, "train.py")["rows"] if row["what"] == "the array, beside the one that is a round longer"]
    assert moments == [["evaluation"]]


def test_rounds_of_a_loop_beside_the_training_are_no_steps(budget: Budget) -> None:
    Path("train.py").write_text(OUTSIDE)
    row = OUTSIDE[: OUTSIDE.index("for name in")].count("\n") + 1
    formulas = [one["formula"] for one in table(budget, "train.py")["rows"] if "keeps grows" in one["what"]]
    assert formulas == [f"(rounds of train.py:{row}) * 2097152"]
