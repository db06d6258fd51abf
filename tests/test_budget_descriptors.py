"""``oomlint budget``: open files of a process, against what `ulimit -n` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import ARRAY, table
from test_budget_targets import COMPOSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

FILES: Final = """
import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __init__(self, paths):
        self.one = h5py.File("one.h5", "r")
        self.table = self.one["table"]
        self.files = [h5py.File(path, "r") for path in paths]
        self.maps = [np.load(path, mmap_mode="r") for path in paths]
        self.late = None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        if self.late is None:
            self.late = h5py.File("late.h5", "r")
        return self.files[i]["x"][:]

import glob
for batch in DataLoader(Files(glob.glob("*.h5")), batch_size=4, num_workers=4):
    pass
"""
COUNTED: Final = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Many(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        return torch.zeros(8), torch.zeros(8), torch.zeros(8)

if __name__ == "__main__":
    before = len(os.listdir("/proc/self/fd"))
    loader = DataLoader(Many(), batch_size=4, num_workers=1)
    batches = iter(loader)
    kept = [next(batches) for _ in range(3)]
    print(len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ARRAY)
    return runs(capsys, "budget")


def counts(found: dict[str, Any]) -> dict[str, int | None]:
    return {row["what"]: row["count"] for row in found["descriptors"]}


def test_files_that_a_dataset_keeps_open_have_rows(budget: Budget) -> None:
    Path("files.py").write_text(FILES)
    found = table(budget, "files.py", "--set", "len(files)=700", "--set", "batch_tensors=2", "--descriptors", "1024")
    assert counts(found) == {
        "interpreter and torch": 6,
        "`one` of Files": 1,  # its table is no other file
        "`files` of Files": 700,
        "`maps` of Files": None,
        "`late` of Files": 1,
        "pipes and batches in flight of `DataLoader`": 2 + 4 * 4 + 9 * 2,
    }
    assert found["verdict"]["fits"]
    assert "maps" not in " ".join(row["what"] for row in found["rows"])  # mapped files take no memory of their own
    over = table(budget, "files.py", "--set", "len(files)=700", "--set", "len(maps)=700", "--descriptors", "1024")
    assert (over["verdict"]["fits"], over["verdict"]["short_of"]) == (False, "descriptors")
    shown = budget("files.py", "--set", "len(files)=700", "--set", "len(maps)=700", "--descriptors", "1024")
    assert "a process has 1,407 files open" in shown.out
    assert "descriptors 1,024 (--descriptors)" in shown.out


@pytest.mark.parametrize(
    ("built", "kept"),
    [
        ('file = h5py.File("one.h5", "r")\n        self.files = {str(i): file[str(i)] for i in range(2000)}', {"files": 1}),
        ('file = h5py.File("one.h5", "r")\n        self.files = [file["x"], file["y"]]\n        self.other = h5py.File("one.h5", "r")', {"files": 1}),
        ('self.files = [h5py.File("one.h5", "r")[key] for key in ("x", "y")]', {"files": 1}),
        ('self.files = [h5py.File("one.h5", "r")["x"], h5py.File("two.h5", "r")["y"]]', {"files": 2}),
        ('self.files = [h5py.File(path, "r")["x"] for path in ("one.h5", "two.h5")]', {"files": 2}),
        ('self.files = [self.opened(path)["x"] for path in ("one.h5", "two.h5")]', {"files": 2}),
        ("self.files = []\n        for path in paths:\n            self.add(path)", {"files": None}),
    ],
    ids=["objects", "opened twice", "opened for each", "two files", "one each", "by a method", "by a method that keeps it"],
)
def test_objects_of_one_file_are_one_descriptor(budget: Budget, built: str, kept: dict[str, int | None]) -> None:
    start, _, rest = FILES.partition('self.one = h5py.File("one.h5", "r")')
    methods = {
        "opened": '    def opened(self, path):\n        return h5py.File(path, "r")\n',
        "add": '    def add(self, path):\n        file = h5py.File(path, "r")\n        self.files.append(file["x"])\n',
    }
    more = "\n".join(code for name, code in methods.items() if f"self.{name}(" in built)
    Path("files.py").write_text(f"{start}{built}\n{more}{rest[rest.index('    def __len__') - 1 :]}".replace("self.late is None", "False"))
    found = counts(table(budget, "files.py", "--descriptors", "1024"))
    assert {what.split("`")[1]: count for what, count in found.items() if "of Files" in what and "late" not in what} == kept


def test_a_plain_program_shows_no_row_for_a_few_pipes(budget: Budget) -> None:
    assert "open files" not in budget("train.py").out
    assert "open files" in budget("train.py", "--descriptors", "64").out


def test_workers_are_bound_by_descriptors_too(budget: Budget) -> None:
    found = table(budget, "python train.py --num-workers 12", "--descriptors", "40", "--ram", "900GiB", "--shm", "900GiB")
    assert found["verdict"]["short_of"] == "descriptors"
    (setting,) = (one for one in found["verdict"]["settings"] if one["name"] == "num_workers")
    assert setting["most"] == 5  # 6 + 2 + 4 * 5 + (2 * 5 + 1) is 39


def test_tensors_that_are_shared_by_name_keep_no_file_open(budget: Budget) -> None:
    Path("named.py").write_text(ARRAY.replace("def main():", "import torch\ntorch.multiprocessing.set_sharing_strategy('file_system')\n\ndef main():"))
    assert counts(table(budget, "named.py"))["pipes and batches in flight of `loader`"] == 2 + 4


@pytest.mark.parametrize(
    ("name", "content", "limit"),
    [
        ("run.sh", "ulimit -n 4096\npython train.py\n", 4096),
        ("run.sh", "python train.py\nulimit -n 4096\n", None),
        ("run.sh", "docker run --ulimit nofile=2048:4096 image python train.py\n", 2048),
        ("compose.yaml", COMPOSE.replace("    cpus: 3\n", "    ulimits: {nofile: 512}\n"), 512),
        ("compose.yaml", COMPOSE.replace("    cpus: 3\n", "    ulimits:\n      nofile: {soft: 256, hard: 512}\n"), 256),
        ("", "bash -c 'ulimit -n 128; python train.py'", 128),
    ],
    ids=["shell", "behind the command", "docker", "compose", "compose, soft and hard", "typed"],
)
def test_the_limit_of_what_starts_the_program(budget: Budget, name: str, content: str, limit: int | None) -> None:
    if name:
        Path(name).write_text(content)
    found = table(budget, name or content)["limits"]["descriptors"]
    assert (found["count"] == limit) if limit is not None else "ulimit -n" in found["source"]


def test_a_number_of_descriptors_that_is_none(budget: Budget) -> None:
    done = budget("train.py", "--descriptors", "many")
    assert (done.status, done.err) == (2, "oomlint: error: --descriptors: 'many' is no number of files from 1 to 999999999\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts in /proc")
def test_a_run_has_as_many_open(budget: Budget) -> None:
    Path("many.py").write_text(COUNTED)
    found = table(budget, "many.py", "--set", "batch_tensors=3", "--start-method", "fork")
    done = subprocess.run([sys.executable, "many.py"], capture_output=True, text=True, check=True, timeout=120)
    assert counts(found)["pipes and batches in flight of `loader`"] == int(done.stdout)  # three batches: as many as may wait
