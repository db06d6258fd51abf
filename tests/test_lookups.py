"""Classes whose names are computed when the program runs, and methods that another file calls by their base class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from commands import runs

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = """
import json
from torch.utils.data import Dataset


class RowsDataset(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.records = json.load(file)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]["x"]
"""
_TRAIN = """
import argparse
import importlib
import sys

import kinds
import os
from kinds.rows import RowsDataset
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--kind", {option})
parser.add_argument("--path")
args = parser.parse_args()
for batch in DataLoader({made}(args.path), num_workers=4):
    print(batch)
"""


def _checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str, option: str, more: str = "") -> str:
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "__init__.py").write_text("from .rows import RowsDataset as rows\nfrom .rows import *\n" + more)
    (tmp_path / "kinds" / "rows.py").write_text(_ROWS)
    (tmp_path / "train.py").write_text(_TRAIN.format(made=made, option=option))
    done = runs(capsys, "check", "--isolated", "--no-cache", "--output-format", "concise", "--select", "OOM110")(str(tmp_path))
    return done.out


@pytest.mark.parametrize("option", ['default="rows"', "required=True"])
@pytest.mark.parametrize(
    "made", ["getattr(kinds, args.kind)", 'eval("kinds." + args.kind)', 'eval(f"kinds.{args.kind}")', "kinds.__dict__[args.kind]", "vars(kinds)[args.kind]"]
)
def test_a_class_of_a_module_is_found_by_a_computed_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str, option: str) -> None:
    assert "copies `records`" in _checked(tmp_path, capsys, made, option)


@pytest.mark.parametrize(
    "made",
    [
        "eval(args.kind)",
        "globals()[args.kind]",
        "getattr(sys.modules[__name__], args.kind)",
        'getattr(importlib.import_module("kinds.rows"), args.kind)',
        'getattr(kinds, args.kind.replace("x", "") + "Dataset")',
    ],
)
def test_a_class_is_found_by_its_whole_name_or_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str) -> None:
    assert "copies `records`" in _checked(tmp_path, capsys, made, 'default="RowsDataset"')


@pytest.mark.parametrize("made", ["getattr(os, args.kind)", "eval(args.kind)", 'getattr(kinds, args.kind + "Other")', "importlib.import_module(args.kind)"])
def test_a_name_that_nobody_knows_is_no_class(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str) -> None:
    assert "OOM110" not in _checked(tmp_path, capsys, made, "required=True")


@pytest.mark.parametrize(
    "made", ['getattr(kinds, "%sDataset" % args.kind)', 'getattr(kinds, "{}Dataset".format(args.kind))', 'getattr(kinds, f"{args.kind}Dataset")']
)
def test_a_name_that_ends_otherwise_is_another_class(tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str) -> None:
    more = _ROWS.replace("RowsDataset", "RowsCache").replace('["x"]', '["y"]').replace("records", "cached")
    out = _checked(tmp_path, capsys, made, "required=True", more)
    assert "copies `records`" in out
    assert "cached" not in out


def test_a_name_that_another_branch_has_taken_is_not_looked_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = '(getattr(kinds, args.kind) if args.kind not in {"rows", "RowsDataset"} else list)'
    assert "OOM110" in _checked(tmp_path, capsys, made, "required=True")  # a set of names is not read
    made = '(list if args.kind == "rows" else list if args.kind == "RowsDataset" else getattr(kinds, args.kind))'
    (tmp_path / "kinds").rename(tmp_path / "others")
    assert "OOM110" not in _checked(tmp_path, capsys, made, "required=True")


def test_a_class_that_cannot_be_made_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    abstract = _ROWS.replace("    def __len__", "    @abstractmethod\n    def kind(self):\n        pass\n\n    def __len__").replace("RowsDataset", "Base")
    more = "from abc import abstractmethod\n" + abstract.replace("records", "cached")
    assert "cached" not in _checked(tmp_path, capsys, "getattr(kinds, args.kind)", "required=True", more)


def test_one_name_of_many_classes_is_none_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "".join(f"class Kind{number}:\n    pass\n" for number in range(20))
    assert "OOM110" not in _checked(tmp_path, capsys, "getattr(kinds, args.kind)", "required=True", many)


def test_a_base_class_in_another_file_calls_what_a_derived_one_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "base.py").write_text(
        "from torch.utils.data import Dataset\n\n\nclass Base(Dataset):\n    def __init__(self, root):\n        self.root = root\n"
        "        self.data = self.load()\n\n    def load(self):\n        raise NotImplementedError\n\n    def __len__(self):\n        return len(self.data)\n\n"
        "    def __getitem__(self, index):\n        return self.data[index]\n"
    )
    (tmp_path / "rows.py").write_text(
        'import numpy as np\nfrom base import Base\n\n\nclass Rows(Base):\n    def load(self):\n        return np.load(self.root + "/rows.npy")\n'
    )
    done = runs(capsys, "check", "--isolated", "--no-cache", "--output-format", "concise")(str(tmp_path))
    assert "rows.py:7:16: OOM402" in done.out
