"""Classes whose names are computed when the program runs."""

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


def test_one_name_of_many_classes_is_none_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "".join(f"class Kind{number}:\n    pass\n" for number in range(20))
    assert "OOM110" not in _checked(tmp_path, capsys, "getattr(kinds, args.kind)", "required=True", many)
