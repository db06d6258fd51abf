"""``oomlint budget --data``: what is read from a file is as large as it is in a run, in whichever way the code reads it."""

from __future__ import annotations

import json
import runpy
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import table

from oomlint.budget import headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

np, torch, h5py = pytest.importorskip("numpy"), pytest.importorskip("torch"), pytest.importorskip("h5py")

CODE: Final = """
import os
import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
import helper

class Kept(Dataset):
    def __init__(self, path):
        {body}
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return {sample}

data = Kept({file!r})
loader = DataLoader(data, batch_size=2, num_workers=2)
"""
HELPER: Final = """
import h5py, numpy as np, torch

def one(path, key="y"):
    with h5py.File(path, "r") as file:
        rows = file[key][:]
    return rows

def both(path):
    with h5py.File(path, "r") as file:
        return file["y"][()], file["g"]["y"][:]

def converted(path):
    read = np.load(path)
    read = read.astype(np.float32)
    return read

def part(path):
    return np.load(path)[:30]
"""
BODIES: Final = {
    "d.h5": [
        "self.f = h5py.File(path, 'r'); self.x = self.f['y'][:]",
        "f = h5py.File(path, 'r'); self.x = f['y'][()]",
        "f = h5py.File(path, 'r'); self.x = f['y'][:100]",
        "f = h5py.File(path, 'r'); self.x = f['y'][5:100:2, 3]",
        "f = h5py.File(path, 'r'); self.x = f['y'][-50:]",
        "f = h5py.File(path, 'r'); self.x = f['y'][:100000]",
        "f = h5py.File(path, 'r'); self.x = f['g/y'][...]",
        "f = h5py.File(path, 'r'); self.x = f['g']['y'][...]",
        "f = h5py.File(path, 'r'); self.x = np.array(f['y'])",
        "f = h5py.File(path, 'r'); self.x = np.array(f['y'], dtype=np.float64)",
        "f = h5py.File(path, 'r'); self.x = f['y'].astype('float64')[:]",
        "f = h5py.File(path, 'r'); self.x = f['y'][:].astype(np.float64)",
        "f = h5py.File(path, 'r'); self.x = f['y'][:][:100].copy()",
        "f = h5py.File(path, 'r'); self.x = f['y'][:][:100]",
        "f = h5py.File(path, 'r'); self.x = f['y'][:] / 255.0",
        "f = h5py.File(path, 'r'); self.x = np.transpose(f['y'][:], (0, 2, 1))",
        "f = h5py.File(path, 'r'); self.x = torch.tensor(f['g/y'][:]).float(); self.y = torch.from_numpy(f['g/y'][:]).long()",
        "f = h5py.File(path, 'r'); self.x = np.zeros((len(f['y']), 3)); self.y = np.empty(f['y'].shape, dtype=f['y'].dtype)",
        "self.x = helper.one(path)",
        "self.x = helper.one(path, 'g/y')",
        "self.x, self.y = helper.both(path)",
    ],
    "d.npy": [
        "self.x = np.load(path)[:30].astype(np.float32)",
        "self.x = helper.converted(path)",
        "self.x = helper.part(path)",
        "self.x = np.array(np.load(path, mmap_mode='r')[:30])",
        "self.x = np.load(path, mmap_mode='r') / 2",
    ],
    "s.npy": ["self.x = np.load(path)"],
    "d.npz": [
        "self.x = np.load(path)['x'][:10]",
        "self.x = np.load(path)['x'].astype(np.float64)",
        "self.x = torch.from_numpy(np.load(path)['x'])",
        "z = np.load(path); self.x, self.y = z['x'], z['y']",
        "key = 'x'; self.x = np.load(path)[key]",
    ],
    "d.pt": [
        "self.x = torch.load(path)['x']",
        "d = torch.load(path); self.x, self.y = d['x'], d['inner']['y'].half()",
        "self.x = torch.load(path)['x'][:10].clone()",
    ],
    "l.pt": ["self.x, self.y = torch.load(path)"],
}


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "helper", raising=False)
    with h5py.File("d.h5", "w") as file:
        file["y"], file["g/y"] = np.zeros((500, 30, 7), np.float32), np.zeros((300, 11), np.int16)
    np.save("d.npy", np.zeros((40, 9, 5)))
    np.save("s.npy", np.array(["abcd", "ef"] * 9))
    np.savez("d.npz", x=np.zeros((200, 33), np.float32), y=np.zeros(200, np.int64))
    torch.save({"x": torch.zeros(70, 9), "inner": {"y": torch.nn.Parameter(torch.zeros(70))}, "n": 3}, "d.pt")
    torch.save([torch.zeros(8, 3), torch.zeros(8, dtype=torch.uint8)], "l.pt")
    Path("helper.py").write_text(HELPER)
    return runs(capsys, "budget")


def in_memory(value: Any) -> int:
    """A view keeps all of its array."""
    if isinstance(value, torch.Tensor):
        return int(value.untyped_storage().nbytes())
    while isinstance(value.base, np.ndarray):
        value = value.base
    return int(value.nbytes)


@pytest.mark.parametrize(("file", "body"), [(file, body) for file, bodies in BODIES.items() for body in bodies])
def test_what_is_read_is_as_large_as_in_a_run(budget: Budget, file: str, body: str) -> None:
    Path("train.py").write_text(CODE.format(body=body.replace("; ", "\n        "), file=file, sample="self.x[i]"))
    kept = runpy.run_path("train.py")["data"].__dict__
    found = table(budget, "train.py", "--data", file)
    rows = {row["what"]: (row["bytes"], row["known"]) for row in found["rows"] if row["what"].endswith("` of Kept")}
    assert rows == {f"`{name}` of Kept": (in_memory(value), "exact") for name, value in kept.items() if isinstance(value, torch.Tensor | np.ndarray)}
    assert not found["data_files"]


@pytest.mark.parametrize(
    ("file", "body", "sample", "size"),
    [
        ("d.h5", "self.f = h5py.File(path, 'r')", "self.f['y'][i]", 30 * 7 * 4),
        ("d.h5", "self.f = h5py.File(path, 'r'); self.y = self.f['g/y']", "torch.from_numpy(self.y[i]).float()", 11 * 4),
        ("d.npy", "self.m = np.load(path, mmap_mode='r')", "np.array(self.m[i])", 9 * 5 * 8),
    ],
)
def test_a_sample_that_is_read_from_a_file(budget: Budget, file: str, body: str, sample: str, size: int) -> None:
    Path("train.py").write_text(CODE.format(body=body.replace("; ", "\n        "), file=file, sample=sample))
    rows = table(budget, "train.py", "--data", file)["rows"]
    (flying,) = (row for row in rows if row["what"] == "batches in flight of `loader`")
    assert flying["bytes"] == (2 * 2 + 1) * 2 * size


def test_a_dictionary_of_tensors_is_all_of_its_file(budget: Budget) -> None:
    body = "self.d = torch.load(path)\n        self.x = self.d['x']\n        self.y = self.d['x'].double()"
    Path("train.py").write_text(CODE.format(body=body, file="d.pt", sample="self.x[i]"))
    rows = table(budget, "train.py", "--data", "d.pt")["rows"]
    assert {row["what"]: row["bytes"] for row in rows if "of Kept" in row["what"]} == {"`d` of Kept": 71 * 10 * 4 - 40, "`y` of Kept": 70 * 9 * 8}


def test_one_of_several_files_that_nobody_can_choose(budget: Budget) -> None:
    np.save("e.npy", np.zeros(3))
    body = "name = 'd.npy' if os.getpid() % 2 else 'e.npy'\n        self.x = np.load(name)"
    Path("train.py").write_text(CODE.format(body=body, file="d.npy", sample="self.x[i]"))
    rows = table(budget, "train.py", "--data", "d.npy", "--data", "e.npy")["rows"]
    assert [row["bytes"] for row in rows if "of Kept" in row["what"]] == [None]


def test_a_file_that_is_given_is_not_offered(budget: Budget) -> None:
    Path("train.py").write_text(CODE.format(body="self.x = helper.unknown(np.load(path)['x'])", file="d.npz", sample="self.x[i]"))
    assert "which is there" not in budget("train.py", "--data", "d.npz").out
    Path("train.py").write_text(CODE.format(body="self.x = np.load(path)['x'][:10]", file="d.npz", sample="self.x[i]"))
    assert "The code reads d.npz, which is there: `--data d.npz`" in budget("train.py").out
    assert "which is there" not in budget("train.py", "--data", "d.npz").out


@pytest.mark.parametrize(
    ("described", "shape", "said"),
    [
        ("<f4", "(1.5,)", "(1.5,) is no shape"),
        ("<f4", "('a',)", "('a',) is no shape"),
        ("<f4", "(True,)", "(True,) is no shape"),
        ("<z9", "(3,)", "'<z9' is no type"),
    ],
)
def test_a_header_that_numpy_would_not_read(budget: Budget, described: str, shape: str, said: str) -> None:
    header = f"{{'descr': {described!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    Path("odd.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    Path("train.py").write_text(CODE.format(body="self.x = np.load(path)", file="odd.npy", sample="self.x[i]"))
    done = budget("train.py", "--data", "odd.npy")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert said in done.err


@pytest.mark.parametrize("data", [b"", b"\x80\x02R.", b"\x80\x02]q\x00h\x00a.", b"\x80\x02]q\x00(h\x05e."])
def test_a_pickle_that_is_none_says_how_much_there_is(budget: Budget, data: bytes) -> None:
    with zipfile.ZipFile("odd.pt", "w") as archive:
        archive.writestr("odd/data.pkl", data)
        archive.writestr("odd/data/0", bytes(120))
    Path("train.py").write_text(CODE.format(body="self.x = torch.load(path)['x']", file="odd.pt", sample="self.x[i]"))
    rows = table(budget, "train.py", "--data", "odd.pt")["rows"]
    assert [(row["bytes"], row["known"]) for row in rows if row["what"] == "`x` of Kept"] == [(120, "at most")]
    contains_itself = data.endswith(b"h\x00a.")  # which Python reads
    assert ("--data odd.pt: its pickle is broken" in budget("train.py", "--data", "odd.pt").err) is not contains_itself


def test_a_selection_of_a_table_may_be_less_than_the_file(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "read", lambda path: headers.DataFile(path, "parquet", held=1000, count=10))
    for body, known in (("self.x = pd.read_parquet(path)", (1000, "at least")), ("t = pd.read_parquet(path); self.x = t[t.a > 0]", (None, "unknown"))):
        code = CODE.replace("import h5py", "import pandas as pd").format(body=body.replace("; ", "\n        "), file="a.parquet", sample="self.x.iloc[i]")
        Path("train.py").write_text(code)
        rows = table(budget, "train.py", "--data", "a.parquet")["rows"]
        assert [(row["bytes"], row["known"]) for row in rows if row["what"] == "`x` of Kept"] in ([known], [known] * (known[0] is not None))


class _Loud:
    """What would say so if it was called."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("called"),))


def test_nothing_of_a_pickle_is_called(budget: Budget) -> None:
    torch.save({"loud": _Loud(), "x": torch.zeros(5, 3)}, "odd.pt")
    Path("train.py").write_text(CODE.format(body="self.x = torch.load(path, weights_only=False)['x']", file="odd.pt", sample="self.x[i]"))
    rows = table(budget, "train.py", "--data", "odd.pt")["rows"]
    assert [(row["what"], row["bytes"]) for row in rows if "of Kept" in row["what"]] == [("`x` of Kept", 60)]
    assert not Path("called").exists()


FOLDER: Final = {
    'np.load(os.path.join(root, "d.npy"))': (40 * 9 * 5 * 8, "exact"),
    'np.load(Path(root) / "d.npy")': (40 * 9 * 5 * 8, "exact"),
    'np.load(f"{root}/sub/e.npy")': (24, "exact"),
    'h5py.File(root + "/d.h5")["y"][:]': (500 * 30 * 7 * 4, "exact"),
    'torch.load(os.path.join(root, "d.pt"))["x"]': (70 * 9 * 4, "exact"),
    'np.load(root + "d.npy")': (None, "unknown"),
}


@pytest.mark.parametrize(("made", "expected"), FOLDER.items())
def test_what_is_read_from_a_folder(budget: Budget, made: str, expected: tuple[int | None, str]) -> None:
    Path("sub").mkdir()
    np.save("sub/e.npy", np.zeros(3))
    code = CODE.format(body=f"root = os.environ['ROOT']\n        self.x = {made}", file="d.npy", sample="self.x[i]")
    Path("train.py").write_text(code.replace("import h5py", "import h5py\nfrom pathlib import Path"))
    rows = table(budget, "train.py", "--data", ".")["rows"]
    assert [(row["bytes"], row["known"]) for row in rows if "of Kept" in row["what"]] == [expected]


def test_the_kinds_of_files_in_a_folder_are_told(budget: Budget) -> None:
    Path("cut.npy").write_bytes(Path("d.npy").read_bytes()[:-9])
    Path("train.py").write_text(CODE.format(body="self.x = np.load(path)", file="d.npy", sample="self.x[i]"))
    told = budget("train.py", "--data", ".").out
    assert "of 1 the header cannot be read" in told
    assert "      2 .npy, 14.3 KiB in their arrays\n" in told
    assert "      1 .h5, 416.6 KiB in their arrays\n" in told


def _tensors(left_out: int) -> bytes:
    header = json.dumps({"x": {"dtype": "F32", "shape": [70, 9], "data_offsets": [0, 2520]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(2520 - left_out)


@pytest.mark.parametrize("name", ["d.npy", "d.safetensors"])
def test_a_file_that_is_cut_short(budget: Budget, name: str) -> None:
    Path("d.safetensors").write_bytes(_tensors(0))
    Path("train.py").write_text(CODE.format(body="self.x = np.load(path)", file="d.npy", sample="self.x[i]"))
    assert budget("train.py", "--data", name).status == 0
    Path(name).write_bytes(Path(name).read_bytes()[:-1])
    done = budget("train.py", "--data", name)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "it is cut short" in done.err


def test_a_file_of_annotations_that_is_not_there_is_not_called_settings(budget: Budget) -> None:
    code = CODE.format(body="self.x = json.load(open(path))", file="annotations.json", sample="self.x[i]").replace("import h5py", "import json\nimport h5py", 1)
    Path("train.py").write_text(code)
    (line,) = [line for line in budget("train.py").err.splitlines() if "annotations.json" in line]
    assert line.startswith("oomlint: warning: annotations.json: there is no such file; the program reads it, so that it may say what is unknown: ")
