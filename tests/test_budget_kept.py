"""``oomlint budget``: all that a dataset keeps has a row, with the number that it takes or with a name."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from commands import runs
from test_budget import npy, table

from oomlint.budget.python_objects import dict_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

CODE: Final = """
import argparse
import json
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from somewhere import anything

lines = open("lines").readlines()
options = argparse.ArgumentParser()
options.add_argument("--folder", default="data")
given = options.parse_args()

class Kept(Dataset):
    def __init__(self):
        self.x = {}
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return self.x[i]

for batch in DataLoader(Kept(), batch_size=1, num_workers=0):
    pass
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def kept(budget: Budget, expression: str) -> list[tuple[int | None, str]]:
    """What is said of an attribute of a dataset."""
    Path("train.py").write_text(CODE.replace("{}", expression))
    return [(row["bytes"], row["known"]) for row in table(budget, "train.py")["rows"] if "of Kept" in row["what"]]


@pytest.mark.parametrize("expression", ["np.zeros((-5, 1000))", "torch.zeros(10, -3)", "np.zeros((-5, -1000))"])
def test_nothing_has_a_length_below_zero(budget: Budget, expression: str) -> None:
    assert kept(budget, expression) == [(None, "unknown")]


@pytest.mark.parametrize("shape", [(-5, 1000), (-5, -5), (10**12, 10**12), (10**19,)])
def test_a_header_with_a_shape_that_no_array_has(budget: Budget, shape: tuple[int, ...]) -> None:
    Path("train.py").write_text(CODE)
    Path("a.npy").write_bytes(npy(shape))
    about = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
    Path("a.safetensors").write_bytes(struct.pack("<Q", len(about)) + about)
    for file in ("a.npy", "a.safetensors"):
        done = budget("train.py", "--data", file)
        assert done.status == 2
        assert done.err.count("\n") == 1
        assert f"{file}: its header cannot be read: no array has the shape ({shape[0]}" in done.err


def test_a_total_with_measured_rows_is_about_so_much(budget: Budget) -> None:
    Path("train.py").write_text(CODE.replace("{}", "np.zeros((1000, 1000))"))
    assert "It fits: about 153." in budget("train.py", "--ram", "4GiB").out


@pytest.mark.parametrize(
    ("expression", "size", "known"),
    [
        ("b'x' * 5_000_000_000", 5_000_000_000, "exact"),
        ("'\u4e00' * 1_000_000", 2_000_000, "exact"),
        ("[0] * 500_000_000", 4_000_000_000, "exact"),
        ("[0, None] * 500_000_000", 8_000_000_000, "exact"),
        ("3_000_000 * [0.5]", 24_000_000, "exact"),
        ("[np.zeros(1000000)] * 100", 8_000_800, "about"),
        ("dict.fromkeys(range(10**6))", 10**6 * 32 + 41_943_032, "about"),
        ("np.zeros((100000, 1000)).T", 800_000_000, "exact"),
        ("np.zeros((100000, 1000)).T.copy()", 800_000_000, "exact"),
        ("np.zeros((2, 300)) @ np.zeros((300, 400))", 2 * 400 * 8, "exact"),
        ("torch.zeros(5, 2, 300) @ torch.zeros(300, 400)", 5 * 2 * 400 * 4, "exact"),
        ("np.zeros((2000, 300)) @ np.zeros(300)", 2000 * 8, "exact"),
        ("np.zeros(300) @ np.zeros((300, 4000))", 4000 * 8, "exact"),
        ("torch.zeros(2, 300) @ anything()", None, "unknown"),
        ("np.abs(np.zeros((1000, 5), np.complex64))", 1000 * 5 * 4, "exact"),
        ("torch.zeros(1000, 5, dtype=torch.complex128).abs()", 1000 * 5 * 8, "exact"),
        ("np.zeros((1000, 5), np.complex64).real.copy()", 1000 * 5 * 4, "exact"),
        ("np.zeros((1000, 5), np.complex64).imag", 1000 * 5 * 8, "exact"),
        ("np.abs(np.zeros((1000, 5), np.int16))", 1000 * 5 * 2, "exact"),
        ("np.zeros((1000, 5), np.complex64).sum(1)", 1000 * 8, "exact"),
        ("np.zeros((1000, 7, 3), np.float32)[..., 0]", 1000 * 21 * 4, "exact"),
        ("np.zeros((1000, 7), np.float32).T[0]", 1000 * 7 * 4, "exact"),
        ("np.zeros((1000, 7), np.float32)[[1, 2]]", 2 * 7 * 4, "exact"),
        ("torch.from_numpy(np.zeros((1000, 7), np.float32).T[0])", 1000 * 7 * 4, "exact"),
        ("np.zeros(10**9).tolist()", 40 * 10**9, "about"),
        ("np.arange(10**8).tolist()", 40 * 10**8, "at most"),
        ("np.zeros((10**6, 10)).tolist()", 10**7 * 40 + 10**6 * 80, "about"),
        ("np.zeros(10**6, bool).tolist()", 8 * 10**6, "about"),
        ("torch.zeros(10**8).tolist()", 40 * 10**8, "about"),
        ("list(np.zeros(10**8))", 40 * 10**8, "about"),
        ("list(np.zeros((10**6, 10)))", 80 * 10**6 + 136 * 10**6, "about"),
        ("torch.zeros(10000, 1).expand(10000, 1000)", 40_000, "exact"),
        ("np.broadcast_to(np.zeros((1, 1000)), (10000, 1000))", 8000, "exact"),
    ],
)
def test_what_python_makes_of_numbers_and_arrays(budget: Budget, expression: str, size: int | None, known: str) -> None:
    assert kept(budget, expression) == [(size, known)]


@pytest.mark.parametrize("expression", ["[None] * len(lines)", "[0] * len(open('f').readlines())", "'x' * len(lines)", "[anything()] * 10"])
def test_so_many_of_one_value_have_a_name(budget: Budget, expression: str) -> None:
    assert kept(budget, expression) == [(None, "unknown")]
    assert "What is known fits" in budget("train.py", "--ram", "4GiB").out


def test_a_sample_of_a_view_has_the_shape_of_the_view(budget: Budget) -> None:
    Path("train.py").write_text(CODE.replace("{}", "torch.zeros(10000, 1).expand(10000, 1000)"))
    rows = {row["what"]: row["formula"] for row in table(budget, "train.py")["rows"]}
    assert rows["two batches of `DataLoader`"] == "2 * 1 * 1000 * 4"


@pytest.mark.parametrize("count", [5, 1000, 10_000, 100_000, 1_000_000])
def test_the_table_of_a_dictionary(count: int) -> None:
    assert dict_bytes(count) == pytest.approx(sys.getsizeof(dict.fromkeys(range(count))), abs=160)


@pytest.mark.parametrize(
    "expression",
    ["anything(lines)", "json.loads(lines[0])['rows']", "anything", "[0 for _ in lines]", "{line: anything(line) for line in lines}", "'-'.join(lines)"],
)
def test_what_is_kept_and_nobody_can_size_has_a_name(budget: Budget, expression: str) -> None:
    assert kept(budget, expression) == [(None, "unknown")]
    assert "What is known fits" in budget("train.py", "--ram", "4GiB").out


@pytest.mark.parametrize("expression", ["given.folder", "len(lines)", "None", "{'a': 1}", "f'{given.folder}/x'", "lambda n: n", "[1, 2, 3]"])
def test_what_is_small_has_no_row(budget: Budget, expression: str) -> None:
    assert kept(budget, expression) == []


def test_what_is_only_called_is_no_data(budget: Budget) -> None:
    Path("train.py").write_text(CODE.replace("{}", "transforms.Compose([])").replace("self.x[i]", "self.x(i)"))
    assert not [row for row in table(budget, "train.py")["rows"] if "of Kept" in row["what"]]


@pytest.mark.parametrize(
    ("given", "size", "known"),
    [
        ('load_file("a.safetensors")["w"]', 400, "exact"),
        ('read["w"]', 400, "exact"),
        ("w", 400, "exact"),
        ('torch.load("a.pt")["x"]', 4000, "exact"),
        ('torch.load("a.pt").get("y").double()', 800, "exact"),
        ('torch.load("a.pt")', 4400, "exact"),
        ('torch.load("b.pt")["x"]', None, "unknown"),
    ],
)
def test_tensors_of_a_file_whose_header_was_read(budget: Budget, given: str, size: int | None, known: str) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"x": torch.zeros(100, 10), "y": torch.zeros(100)}, "a.pt")
    parts = {"w": {"dtype": "F32", "shape": [10, 10], "data_offsets": [0, 400]}, "v": {"dtype": "F32", "shape": [5], "data_offsets": [400, 420]}}
    about = json.dumps(parts).encode()
    Path("a.safetensors").write_bytes(struct.pack("<Q", len(about)) + about)
    head = "import torch\nfrom safetensors.torch import load_file\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    read = 'read = load_file("a.safetensors")\nw = read["w"]\n'
    Path("train.py").write_text(f"{head}{read}for batch in DataLoader(TensorDataset({given}), batch_size=2):\n    pass\n")
    rows = table(budget, "train.py", "--data", "a.pt", "--data", "a.safetensors")["rows"]
    assert [(row["bytes"], row["known"]) for row in rows if "of TensorDataset" in row["what"]] == [(size, known)]
