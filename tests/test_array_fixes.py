"""What a fix may make of an array or a list that a dataset keeps, and what it has to leave alone (OOM110, OOM112, OOM113)."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from oomlint import engine
from oomlint.config import Settings
from oomlint.finding import Safety, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.finding import Finding

KEPT = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Kept(Dataset):
    def __init__(self, path, n):
        self.rows = {value}

    def __len__(self):
        return {n}

    def __getitem__(self, i):
        {before}
        return {item}

{after}
loader = DataLoader(Kept("rows.npy", 9), num_workers=2, multiprocessing_context="spawn")
"""
LOAD = "np.load(path)"


def kept(value: str = LOAD, *, item: str = "self.rows[i]", before: str = "pass", after: str = "", n: str = "len(self.rows)") -> str:
    return KEPT.format(value=value, item=item, before=before, after=after, n=n)


def found(tmp_path: Path, code: str, text: str) -> Finding:
    (tmp_path / "kept.py").write_text(dedent(text), encoding="utf-8")
    report = engine.run(
        [str(tmp_path / "kept.py")], Settings(select=(code,), preview=True, severity=Severity.NOTE), tmp_path, engine.RunOptions(cache=False, processes=1)
    )
    assert [finding.code for finding in report.findings] == [code], report
    return report.findings[0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(kept(item="torch.from_numpy(self.rows[i])"), id="from numpy"),
        pytest.param(kept(item="self.transform(self.rows[i])"), id="a transform that nobody knows"),
        pytest.param(kept(item="self.rows[i].astype(np.float32)"), id="method of arrays"),
        pytest.param(kept(before="row = self.rows[i].copy()\n        row -= 1", item="row"), id="a copy is written"),
        pytest.param(kept("np.array(path)", item="torch.from_numpy(self.rows[i])"), id="a tensor is made of it, so it is numbers"),
        pytest.param(kept("np.stack(path).astype(np.float32)"), id="numbers by their type"),
        pytest.param(kept("np.fromfile(path, dtype='<f4').reshape(-1, 8)"), id="numbers by a type that is written as text"),
    ],
)
def test_an_array_of_numbers_that_is_only_read_is_kept_as_a_tensor(text: str, tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM112", text).fix
    assert fix is not None
    assert fix.safety is Safety.UNSAFE
    assert "return self._rows.numpy()" in "".join(edit.content for edit in fix.edits)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(kept(before="row = self.rows[i]\n        row -= 1", item="row"), id="a row is written"),
        pytest.param(kept(before="row, _ = self.rows[i], 0\n        row[0] = 1", item="row"), id="a part of a row is written"),
        pytest.param(kept(before="self.rows[i] = 0"), id="the array is written"),
        pytest.param(kept(before="self.rows = self.rows[1:]"), id="set again"),
        pytest.param(kept(before="np.clip(self.rows[i], 0, 1, out=self.rows[i])"), id="out"),
        pytest.param(kept(item="torch.from_numpy(self.rows[i]).mul_(2)"), id="in place"),
        pytest.param(kept(before="np.random.shuffle(self.rows)"), id="shuffled"),
        pytest.param(kept(after="Kept.extra = 1\ndef trim(kept):\n    kept.rows = kept.rows[:5]\n"), id="set from outside"),
        pytest.param(kept("np.load(path, allow_pickle=True)"), id="objects"),
        pytest.param(kept("np.load(path)[::-1].copy()"), id="backwards"),
        pytest.param(kept("np.flip(np.load(path), 0)"), id="flipped"),
        pytest.param(kept("np.array(path)"), id="of something unknown"),
        pytest.param(kept("np.load(path).astype(str)"), id="strings"),
        pytest.param(kept("np.load(path).astype('>f4')"), id="another order of bytes"),
        pytest.param(kept(after="class More(Kept):\n    def __getattr__(self, name):\n        return name\n"), id="own ways with attributes"),
        pytest.param(kept(after="class More(Kept):\n    def other(self):\n        self._rows = 1\n"), id="the name is taken"),
        pytest.param(kept(after="class More(Kept):\n    rows = None\n"), id="a subclass has it on its class"),
    ],
)
def test_an_array_is_left_alone_where_a_tensor_could_be_told_from_it(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, "OOM112", text).fix is None


LISTS = """
import json
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Lists(Dataset):
    def __init__(self, path, n):
        self.rows = {value}
        {built}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        {before}
        return {item}

{after}
loader = DataLoader(Lists("rows.npy", 900), batch_size={batch}, num_workers=2{more})
"""
HALVES = "[len(line) * 0.5 for line in open(path)]"
PARTS = "[torch.load(f'{path}{k}') for k in range(n)]"


def lists(value: str, item: str = "self.rows[i]", *, built: str = "pass", before: str = "pass", after: str = "", batch: str = "4", more: str = "") -> str:
    return LISTS.format(value=value, item=item, built=built, before=before, after=after, batch=batch, more=more)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(lists(HALVES, "torch.tensor(self.rows[i])"), ["np.asarray(", ".item()"], id="an element"),
        pytest.param(lists(HALVES, "torch.tensor(self.rows[i : i + 3])"), ["np.asarray(", ".tolist()"], id="a slice"),
        pytest.param(lists(HALVES, built="self.top = max(self.rows)"), ["np.asarray(", ".tolist()", ".item()"], id="read as it is built"),
    ],
)
def test_a_list_becomes_an_array_and_is_read_as_before(text: str, words: list[str], tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM110", text).fix
    assert fix is not None
    assert fix.safety is Safety.UNSAFE
    written = " ".join(edit.content for edit in fix.edits)
    assert all(word in written for word in words), written


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lists(HALVES, built="self.rows.append(1.0)"), id="appended to"),
        pytest.param(lists(HALVES, built="random.shuffle(self.rows)", before="self.rows[i] = 0.0"), id="set"),
        pytest.param(lists(HALVES, "self.rows.index(i)"), id="searched"),
        pytest.param(lists(HALVES, "(self.rows[i], i in self.rows)"), id="asked"),
        pytest.param(lists(HALVES, after="print(json.dumps(Lists('a', 1).rows))\n"), id="read outside"),
        pytest.param(lists(HALVES, after="class More(Lists):\n    def first(self):\n        return self.rows + [1]\n"), id="added to in a subclass"),
    ],
)
def test_a_list_that_is_used_as_a_list_gets_advice(text: str, tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM110", text).fix
    assert fix is not None
    assert fix.safety is Safety.DISPLAY


def test_texts_are_packed_and_not_padded_to_the_longest(tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM110", lists("open(path).readlines()")).fix
    assert fix is not None
    assert fix.safety is Safety.DISPLAY
    assert "byte buffer" in fix.message


@pytest.mark.parametrize(
    ("value", "built", "advice"),
    [
        pytest.param("[]", "self.rows.extend(float(line) for line in open(path))", "store the numbers in one NumPy array, which workers share", id="numbers"),
        pytest.param("[(float(line), 0.5) for line in open(path)]", "pass", "where rows differ in length", id="tuples of numbers"),
        pytest.param("[[int(word) for word in line.split()] for line in open(path)]", "pass", "where rows differ in length", id="lists of numbers"),
        pytest.param("[(line, 0.5) for line in open(path)]", "pass", "byte buffer", id="tuples of strings and numbers"),
        pytest.param("{row: float(line) for row, line in enumerate(open(path))}", "pass", "byte buffer", id="a dictionary of numbers"),
    ],
)
def test_advice_for_numbers_is_an_array(value: str, built: str, advice: str, tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM110", lists(value, built=built)).fix
    assert fix is not None
    assert fix.safety is Safety.DISPLAY
    assert advice in fix.message


@pytest.mark.parametrize(
    ("text", "safety"),
    [
        pytest.param(lists(PARTS, more=", multiprocessing_context='forkserver'"), Safety.UNSAFE, id="stacked by the loader in any case"),
        pytest.param(lists(PARTS, "(self.rows[i], i)", more=", multiprocessing_context='forkserver'"), Safety.UNSAFE, id="in a tuple"),
        pytest.param(lists("[torch.zeros(3, 4) for _ in range(n)]", "self.rows[i].sum()"), Safety.UNSAFE, id="made of one shape"),
        pytest.param(lists("[torch.zeros(3, k) for k in range(n)]", "self.rows[i].sum()"), Safety.DISPLAY, id="made of many shapes"),
        pytest.param(lists(PARTS, "self.rows[i][:5]"), Safety.DISPLAY, id="cut to one shape"),
        pytest.param(lists(PARTS, more=", collate_fn=pad", after="def pad(batch):\n    return batch\n"), Safety.DISPLAY, id="padded"),
        pytest.param(lists(PARTS, batch="1"), Safety.DISPLAY, id="batches of one"),
        pytest.param(lists(PARTS, before="torch.cat(self.rows)"), Safety.DISPLAY, id="joined"),
        pytest.param(lists(PARTS, built="self.rows.extend([])"), Safety.DISPLAY, id="extended"),
    ],
)
def test_tensors_are_stacked_where_they_have_one_shape_and_no_list_is_needed(text: str, safety: Safety, tmp_path: Path) -> None:
    fix = found(tmp_path, "OOM113", text).fix
    assert fix is not None
    assert fix.safety is safety


COUNTED = """
import torch
from torch.utils.data import DataLoader, Dataset

WORKERS = 8


class Points(Dataset):
    def __init__(self, n):
        self.points = torch.randn(n, 8)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return self.points[i]


def loaders(other, n=3_000_000):
    points = Points(n)
    return DataLoader(points, batch_size=64, num_workers=WORKERS), {more}
"""


@pytest.mark.parametrize(
    ("more", "safety"),
    [
        pytest.param("None", Safety.UNSAFE, id="one loader"),
        pytest.param("DataLoader(Points(n), num_workers=WORKERS)", Safety.UNSAFE, id="two loaders of the same kind"),
        pytest.param("n // WORKERS", Safety.DISPLAY, id="something is divided by it"),
        pytest.param("DataLoader(other, num_workers=WORKERS, persistent_workers=True)", Safety.DISPLAY, id="a loader that needs its workers"),
    ],
)
def test_a_count_of_workers_is_changed_only_where_nothing_else_reads_it(more: str, safety: Safety, tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(COUNTED.format(more=more), encoding="utf-8")
    report = engine.run([str(tmp_path / "kept.py")], Settings(select=("OOM114",)), tmp_path, engine.RunOptions(cache=False, processes=1))
    assert report.findings
    assert {finding.fix.safety for finding in report.findings if finding.fix is not None} == {safety}


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        pytest.param("np.full((n, 64), -1).astype(np.float32)", True, id="a float takes any number"),
        pytest.param("np.full((n, 64), 7).astype(np.uint8)", True, id="in its range"),
        pytest.param("np.full((n, 64), -1).astype(np.uint8)", False, id="NumPy refuses it"),
        pytest.param("np.random.default_rng(0).random((n, 64)).astype(np.float32)", True, id="drawn in single precision"),
        pytest.param("np.random.default_rng(0).random((n, 64)).astype(np.float16)", False, id="no generator draws halves"),
    ],
)
def test_a_type_moves_into_a_call_that_takes_it(made: str, fixed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    text = kept(made, item="self.rows[i]").replace("path, n)", "path, n=3_000_000)").replace('"rows.npy", 9', '"rows.npy"')
    assert (found(tmp_path, "OOM403", text).fix is not None) is fixed


def test_a_file_that_is_asked_for_its_name_is_not_opened_lazily_for_safe(tmp_path: Path) -> None:
    text = """
        import h5py
        from torch.utils.data import DataLoader, Dataset


        class Pictures(Dataset):
            def __init__(self, path):
                self.file = h5py.File(path, "r")

            def __len__(self):
                return len(self.file["x"])

            def __getitem__(self, i):
                return self.file["x"][i], {name}


        loader = DataLoader(Pictures("x.h5"), num_workers=2)
    """
    fixes = [found(tmp_path, "OOM301", text.replace("{name}", name)).fix for name in ("i", "self.file.filename")]
    assert [fix and fix.safety for fix in fixes] == [Safety.SAFE, Safety.UNSAFE]


@pytest.mark.parametrize(
    ("built", "fixed"),
    [
        pytest.param("rows = np.load(path)\n        self.rows = torch.tensor(rows)", True, id="nobody reads the array again"),
        pytest.param(
            "rows = np.load(path)\n        self.rows = torch.tensor(rows)\n        self.n = len(rows) + rows.shape[1]", True, id="its size is asked for"
        ),
        pytest.param("loaded = np.load(path)\n        self.rows = torch.tensor(loaded)\n        loaded -= 1", False, id="written later"),
        pytest.param("rows = np.load(path)\n        self.raw = rows\n        self.rows = torch.tensor(rows)", False, id="another name"),
        pytest.param(
            "rows = np.load(path)\n        self.rows = torch.tensor(rows, dtype=torch.float32)\n        np.random.shuffle(rows)", False, id="shuffled"
        ),
    ],
)
def test_a_copy_is_left_out_where_nobody_has_the_array_it_is_made_of(built: str, fixed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    text = kept().replace("self.rows = np.load(path)", built)
    (tmp_path / "kept.py").write_text(text, encoding="utf-8")
    report = engine.run(
        [str(tmp_path / "kept.py")], Settings(select=("OOM404",), severity=Severity.NOTE), tmp_path, engine.RunOptions(cache=False, processes=1)
    )
    assert [finding.fix is not None for finding in report.findings] == [fixed]


SAVED = """
import torch
from torch.utils.data import Dataset

FILE = "train.pt"


class Fields(Dataset):
    def __init__(self, path):
        fields = torch.load(path)
        self.x, self.y = fields["x"], fields["y"]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


data = Fields(FILE)
torch.save({{"x": data.x, "y": data.y}}, {target})
"""


@pytest.mark.parametrize(("target", "fixed"), [("FILE", False), ('"train.pt"', False), ('"other.pt"', True)])
def test_a_file_that_the_program_writes_is_not_mapped(target: str, fixed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    assert (found(tmp_path, "OOM406", SAVED.format(target=target)).fix is not None) is fixed
