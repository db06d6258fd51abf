"""``oomlint budget``: what HDF5 keeps of the chunks that are read through objects of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from commands import runs
from test_budget import table

from oomlint.memory.handles.h5_options import DEFAULT_CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

MIB: Final = 1 << 20
READS: Final = """
import glob
import h5py
from torch.utils.data import DataLoader, Dataset

class Reads(Dataset):
    def __init__(self, path, paths=(), **options):
        self.path = path
        self.data = None
        {built}

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        {read}

for batch in DataLoader(Reads("x.h5", glob.glob("*.h5")), batch_size=4, num_workers={workers}):
    pass
"""
KEPT: Final = 'self.data = h5py.File(path, "r")["x"]'
ONE: Final = ("chunk cache of `data` of Reads", 8 * MIB, "at most")


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def caches(budget: Budget, built: str, read: str = "return self.data[i]", workers: int = 0, *options: str) -> dict[str, list[tuple[str, int | None, str]]]:
    """The rows of chunk caches, by who holds them."""
    Path("train.py").write_text(READS.format(built=built, read=read, workers=workers))
    found: dict[str, list[tuple[str, int | None, str]]] = {}
    for row in table(budget, "train.py", "--start-method", "fork", *options)["rows"]:
        if row["what"].startswith("chunk cache"):
            found.setdefault(row["holder"], []).append((row["what"], row["bytes"], row["known"]))
    return found


def test_an_object_of_a_file_has_one_in_each_process_that_reads(budget: Budget) -> None:
    assert caches(budget, KEPT) == {"main": [ONE]}
    assert caches(budget, KEPT, workers=3) == {"workers": [(ONE[0], 3 * 8 * MIB, "at most")]}


def test_one_that_a_worker_opens_has_it_there(budget: Budget) -> None:
    late = 'if self.data is None:\n            self.data = h5py.File(self.path, "r")["x"]\n        return self.data[i]'
    assert caches(budget, "", late, 2) == {"workers": [(ONE[0], 2 * 8 * MIB, "at most")]}


@pytest.mark.parametrize(
    ("given", "size"),
    [("rdcc_nbytes=2**20", MIB), ("rdcc_nbytes=None", 8 * MIB), ("rdcc_nslots=1009", 8 * MIB), ("**{'rdcc_nbytes': 4096}", 4096)],
)
def test_the_code_gives_its_bytes(budget: Budget, given: str, size: int) -> None:
    assert caches(budget, KEPT.replace('"r"', f'"r", {given}')) == {"main": [(ONE[0], size, "at most")]}


def test_a_cache_of_no_bytes_has_no_row(budget: Budget) -> None:
    assert caches(budget, KEPT.replace('"r"', '"r", rdcc_nbytes=0')) == {}


def test_bytes_that_nobody_knows_are_a_name(budget: Budget) -> None:
    built = 'import os\n        self.data = h5py.File(path, "r", rdcc_nbytes=int(os.environ["CACHE"]))["x"]'
    assert caches(budget, built) == {"main": [(ONE[0], None, "unknown")]}
    assert caches(budget, built, "return self.data[i]", 0, "--set", "rdcc_nbytes=2MiB") == {"main": [(ONE[0], 2 * MIB, "at most")]}


def test_each_object_counts(budget: Budget) -> None:
    built = 'file = h5py.File(path, "r")\n        self.data, self.other = file["x"], file["y"]\n        self.pair = [file["u"], file["v"]]'
    assert [(what, size) for what, size, _ in caches(budget, built)["main"]] == [
        (ONE[0], 8 * MIB),
        ("chunk cache of `other` of Reads", 8 * MIB),
        ("chunk cache of `pair` of Reads", 16 * MIB),
    ]


def test_a_container_has_one_for_each_of_its_files(budget: Budget) -> None:
    built, read = 'self.all = [h5py.File(one, "r")["x"] for one in paths]', "return self.all[i][0]"
    assert caches(budget, built, read, 2) == {"workers": [("chunk cache of `all` of Reads", None, "unknown")]}
    assert caches(budget, built, read, 2, "--set", "len(all)=50")["workers"] == [("chunk cache of `all` of Reads", 2 * 50 * 8 * MIB, "at most")]


@pytest.mark.parametrize(
    ("built", "read"),
    [
        ("", 'with h5py.File(self.path, "r") as file:\n            return file["x"][i]'),
        ("", 'file = h5py.File(self.path, "r")\n        row = file["x"][i]\n        file.close()\n        return row'),
        ('self.data = h5py.File(path, "r")', 'return self.data["x"][i]'),
        ('self.data = h5py.File(path, "r")["train"]', 'return self.data["x"][i]'),
        ('self.data = h5py.File(path, "r")["x"][:]', "return self.data[i]"),
    ],
    ids=["opened for each sample", "closed by hand", "only the file", "a group", "read whole"],
)
def test_what_keeps_no_object_has_none(budget: Budget, built: str, read: str) -> None:
    assert caches(budget, built, read) == {}


def written(name: str, **chunks: tuple[int, ...] | None) -> None:
    """A file with arrays of 1,000 numbers of eight bytes, in chunks or in one piece."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(name, "w") as file:
        for key, each in chunks.items():
            file.create_dataset(key, shape=(1000,), dtype="f8", chunks=each)


def test_a_cache_holds_no_more_than_the_chunks_of_the_data(budget: Budget) -> None:
    written("x.h5", x=(300,), y=(1000,))
    whole = [("chunk cache of `data` of Reads", 1200 * 8, "at most")]
    assert caches(budget, KEPT, "return self.data[i]", 0, "--data", "x.h5") == {"main": whole}
    assert caches(budget, KEPT.replace('"r"', '"r", rdcc_nbytes=4096'), "return self.data[i]", 0, "--data", "x.h5")["main"][0][1] == 4096
    many = 'file = h5py.File(path, "r")\n        self.data = {str(i): file[str(i)] for i in range(200)}'
    assert caches(budget, many, 'return self.data["0"][i]', 2, "--data", "x.h5") == {"workers": [(ONE[0], 2 * (1200 + 1000) * 8, "at most")]}
    pair = 'self.data = [h5py.File(path, "r")["x"], h5py.File("other.h5", "r")["x"]]'
    assert caches(budget, pair, "return self.data[0][i]", 0, "--data", "x.h5") == {"main": [(ONE[0], 16 * MIB, "at most")]}
    each = 'self.data = [h5py.File(one, "r")["x"] for one in paths]'
    assert caches(budget, each, "return self.data[0][i]", 0, "--data", "x.h5") == {"main": [(ONE[0], None, "unknown")]}


def test_data_in_one_piece_have_no_cache(budget: Budget) -> None:
    written("x.h5", x=None)
    assert caches(budget, KEPT, "return self.data[i]", 0, "--data", "x.h5") == {}


def test_what_may_be_next_to_nothing_decides_nothing(budget: Budget) -> None:
    Path("train.py").write_text(READS.format(built=KEPT, read="return self.data[i]", workers=8))
    given = ("train.py", "--start-method", "fork", "--set", "sample=8", "--shm", "1GiB")
    done = budget(*given, "--ram", "270MiB")
    assert done.status == 0
    assert "It fits: about 226.0 MiB, at the moment `first epoch`.\nWith chunk caches of at most 64.0 MiB it may not fit.\n" in done.out
    assert "chunk cache of `data` of Reads" in done.out
    assert table(budget, *given, "--ram", "270MiB")["verdict"]["chunk_caches"] == 64 * MIB
    assert "it may not fit" not in budget(*given, "--ram", "300MiB").out
    assert table(budget, *given, "--ram", "300MiB")["verdict"]["chunk_caches"] == 0
    short = budget(*given, "--ram", "200MiB")
    assert short.status == 1
    assert "It does not fit: at the moment `start of workers` it takes 226.0 MiB of memory." in short.out
    assert "it may not fit" not in short.out


def test_the_default_is_that_of_the_library(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        kept = file.create_dataset("x", shape=(4, 4), dtype="f4", chunks=(1, 4))
        size = kept.id.get_access_plist().get_chunk_cache()[1]
    assert size == (DEFAULT_CACHE if h5py.version.hdf5_version_tuple >= (2, 0, 0) else MIB)
