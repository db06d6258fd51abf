"""``oomlint budget``: an array keeps its shape and its type on the way to where it is kept, counts once by all its names; a fix leaves what runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import npy, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

HEAD: Final = (
    "import argparse\nimport numpy as np\nimport torch\nfrom torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset, random_split\n"
)
KEPT: Final = """
class Frames(Dataset):
    def __init__(self, count):
        {kept}
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return self.x[i]
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def kept(found: dict[str, Any], what: str) -> list[tuple[int | None, str]]:
    return [(row["bytes"], row["known"]) for row in found["rows"] if what in row["what"] and row["holder"] == "main"]


@pytest.mark.parametrize(
    ("cast", "item"),
    [("", 4), (".astype('float64')", 8), (".astype(np.float16)", 2), (".astype(np.float32)", 4), (" * 2.0", 4), (" @ other", None), ("[:2]", 4)],
)
def test_a_file_that_becomes_an_array_of_another_type(budget: Budget, cast: str, item: int | None) -> None:
    Path("x.npy").write_bytes(npy((50, 30)))
    Path("train.py").write_text(HEAD + KEPT.format(kept=f"self.x = np.load('x.npy'){cast}") + "loader = DataLoader(Frames(1), num_workers=2)\n")
    found = table(budget, "train.py", "--data", "x.npy")
    assert kept(found, "`x` of Frames") == [(None, "unknown") if item is None else (1500 * item, "exact")]
    assert kept(found, "as it is read, until it has its type") == ([] if item in {4, None} else [(1500 * 4, "exact")])


@pytest.mark.parametrize(
    ("made", "size"),
    [
        ("np.array([[0.5, 0, 1], [0, 1, 2]])", 48),
        ("np.array([[0.5, 0], [0, 1]], dtype=np.float32)", 16),
        ("torch.tensor([[1, 2.5], [3, 4]])", 16),
        ("np.array([[1, 2], [3, 4], [5, 6]])", 48),
        ("np.array([[[1, 0.5]], [[2, 3]]])", 32),
        ("np.array([True, 2.5])", 16),
    ],
)
def test_an_array_of_written_numbers(budget: Budget, made: str, size: int) -> None:
    Path("train.py").write_text(HEAD + KEPT.format(kept=f"self.x = {made}") + "loader = DataLoader(Frames(1), num_workers=2)\n")
    assert kept(table(budget, "train.py"), "`x` of Frames") == [(size, "exact")]


def test_parts_of_one_file_are_no_more_than_the_file(budget: Budget, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(1100)
    torch.save({"x": whole[:1000].view(100, 10), "y": whole[1000:]}, tmp_path / "d.pt")  # each keeps all of it
    held = "d = torch.load('d.pt')\n        self.x, self.z = d['x'], d['y']"
    Path("train.py").write_text(HEAD + KEPT.format(kept=held) + "loader = DataLoader(Frames(1), num_workers=2)\n")
    found = table(budget, "train.py", "--data", "d.pt")
    assert kept(found, "`x, z` of Frames") == [(4400, "at most")]
    assert len(kept(found, "of Frames")) == 1
    assert len(kept(table(budget, "train.py"), "of Frames")) > 1  # whether they are all of the file, nobody knows


ONCE: Final = {
    "in another dataset": "class Other(Dataset):\n    def __init__(self, base):\n        self.y = base.x\n    def __getitem__(self, i):\n"
    "        return self.y[i]\nfirst = Frames(50)\nmade = first, Other(first)\n",
    "twice in one": "first = Frames(50)\nmade = first, ConcatDataset([first, first])\n",
    "as tensors": "data = torch.zeros(50, 3000)\nmade = TensorDataset(data), TensorDataset(data), TensorDataset(data[:, :1])\n",
    "in a part": "data = torch.zeros(50, 3000)\na, b = random_split(TensorDataset(data), [20, 30])\nmade = a, ConcatDataset([b, b])\n",
}


@pytest.mark.parametrize("code", ONCE.values(), ids=ONCE)
def test_one_array_under_several_names_counts_once(budget: Budget, code: str) -> None:
    loaders = "".join(
        f"loader{n} = DataLoader(made[{n}], batch_size=2, num_workers=1)\nfor x in loader{n}:\n    pass\n" for n in range(code.count("TensorDataset(d") or 2)
    )
    Path("train.py").write_text(HEAD + KEPT.format(kept="self.x = np.zeros((count, 3000), np.float32)") + code + loaders)
    assert sum(size or 0 for size, _ in kept(table(budget, "train.py"), "` of ")) == 50 * 3000 * 4


def test_two_arrays_of_one_class_are_two(budget: Budget) -> None:
    made = "".join(f"loader{n} = DataLoader(Frames({n}0), batch_size=2)\nfor x in loader{n}:\n    pass\n" for n in (1, 2))
    Path("train.py").write_text(HEAD + KEPT.format(kept="self.x = np.zeros((count, 3000), np.float32)") + made)
    assert kept(table(budget, "train.py"), "`x` of Frames") == [(10 * 12000, "exact"), (20 * 12000, "exact")]


@pytest.mark.parametrize("given", ["Frames(40)", "Frames(count=N)", "Frames(a.n)"])
def test_a_shape_that_arguments_give_is_a_shape_still(budget: Budget, given: str) -> None:
    parser = "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=40)\na = p.parse_args()\nN = 40\n"
    code = KEPT.format(kept="self.x = np.zeros((count, 300), np.float32)") + parser + f"loader = DataLoader({given}, batch_size=2, num_workers=1)\n"
    Path("train.py").write_text(HEAD + code)
    rows = {row["what"]: row["formula"] for row in table(budget, "train.py")["rows"]}
    assert rows["`x` of Frames"] == "40 * 300 * 4"
    assert rows["batches in flight of `loader`"] == "(2 * 1 + 1) * 2 * 300 * 4"


def test_a_loader_that_takes_its_turn_is_left_out_where_nobody_knows_it(budget: Budget) -> None:
    loops = "for x in DataLoader(Frames(50), batch_size=2):\n    pass\nfor x in DataLoader(TensorDataset(torch.load('x')), batch_size=2):\n    pass\n"
    Path("train.py").write_text(HEAD + KEPT.format(kept="self.x = np.zeros((count, 3000), np.float32)") + loops)
    found = table(budget, "train.py")
    assert "sample" in found["totals"][-1]["missing"]


# -- what would fit ------------------------------------------------------------------------------------------------------

GUARDED: Final = "prefetch_factor=4 if a.workers > 0 else None, persistent_workers=a.workers > 0"


@pytest.mark.parametrize(
    ("workers", "ahead", "wanted"),
    [
        ("a.workers", "prefetch_factor=4, persistent_workers=True", f"num_workers=a.workers, {GUARDED}"),
        ("a.workers", GUARDED, ""),
        ("8", "prefetch_factor=4, persistent_workers=True", "num_workers=0, prefetch_factor=None, persistent_workers=False"),
        ("a.workers", "**{'prefetch_factor': 4}", None),
    ],
)
def test_no_workers_are_proposed_with_what_only_workers_may_have(budget: Budget, workers: str, ahead: str, wanted: str | None) -> None:
    parser = "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=8)\na = p.parse_args()\n"
    code = KEPT.format(kept="self.x = np.ones((count, 50_000_000), np.uint8)") + parser
    Path("train.py").write_text(HEAD + code + f"loader = DataLoader(Frames(10), batch_size=1, num_workers={workers}, {ahead})\n")
    limits = ("--ram", f"{146 + 477 + 1000}MiB", "--shm", "2GiB", "--start-method", "spawn")
    found = table(budget, "python train.py", *limits)
    (setting,) = (one for one in found["verdict"]["settings"] if one["name"] == "num_workers")
    assert setting["most"] == 0
    assert bool(setting["places"]) is (wanted is not None)
    change = subprocess.run(
        [sys.executable, "-m", "oomlint", "budget", "python train.py", *limits, "--diff"], capture_output=True, text=True, check=False
    ).stdout
    assert (wanted or "") in change


# -- what cannot be priced -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept_by", "name"),
    [
        ("parts = [np.load(f'{i}.npy') for i in range(4)]\n        self.x = np.concatenate(parts)", "x"),
        ("self.rows = [np.load(f'{i}.npy') for i in range(4)]\n        self.x = {len(r): r for r in self.rows}", "x"),
        ("self.x = []\n        for path in open('list'):\n            self.x.append({'name': path, 'array': np.load(path)})", "x"),
        ("self.x = []\n        for i in range(count):\n            self.x.append({'name': str(i), 'array': np.load(f'{i}.npy')})", "arrays in one of x"),
    ],
)
def test_an_attribute_that_nobody_can_price_has_a_name(budget: Budget, kept_by: str, name: str) -> None:
    Path("train.py").write_text(HEAD + KEPT.format(kept=kept_by) + "loader = DataLoader(Frames(50), num_workers=1)\n")
    found = table(budget, "train.py")
    assert name in found["totals"][0]["missing"]


LOOSE: Final = """
def main():
    loader = DataLoader(TensorDataset(torch.ones(100, 1000)), batch_size=50)
    keep = []
    table = torch.ones(50000, 1000)
    for (x,) in loader:
        KEPT
main()
"""


@pytest.mark.parametrize(
    ("kept_by", "missing", "said"),
    [
        ("keep.append(torch.ones(10_000_000))", [], "It fits"),
        ("keep.append(torch.relu(x))", ["keep a step"], "What is known fits"),
        ("keep.append(x.shape)", [], "It fits"),
    ],
)
def test_what_the_script_itself_keeps_has_rows(budget: Budget, kept_by: str, missing: list[str], said: str) -> None:
    Path("train.py").write_text(HEAD + LOOSE.replace("KEPT", kept_by))
    found = table(budget, "train.py")
    assert kept(found, "`table`") == [(200_000_000, "exact")]
    assert kept(found, "`keep`") == ([(80_000_000, "exact")] if "ones" in kept_by else [(None, "unknown")] if missing else [])
    assert next(one["missing"] for one in found["totals"] if one["moment"] == "first epoch") == missing
    assert said in budget("train.py", "--ram", "4GiB").out


@pytest.mark.parametrize("cap", ["", " --max_samples 50"])
def test_a_limit_of_samples_takes_no_row_away(budget: Budget, cap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent / "fixtures" / "incidents")
    rows = {row["what"]: row["formula"] for row in table(budget, f"python voxel_colab/train.py{cap}")["rows"]}
    assert rows["`arrays in samples` of VoxelMeshDataset"] == ("50 * 131072" if cap else "len(samples) * 131072")
    assert "`samples` of VoxelMeshDataset" in rows


def test_two_datasets_that_a_function_reads_apart_are_two(budget: Budget) -> None:
    read = "def read(part):\n    return np.load(f'{part}.npy'), np.load('labels.npy')\n"
    made = "".join(f"loader{n} = DataLoader(Frames('{n}'), batch_size=2)\nfor x in loader{n}:\n    pass\n" for n in (1, 2))
    Path("train.py").write_text(HEAD + read + KEPT.format(kept="self.x, self.z = read(count)") + made)
    assert len(kept(table(budget, "train.py"), "`x` of Frames")) == 2


@pytest.mark.parametrize("way", ["torch.from_numpy(raw.astype(np.float16))", "torch.from_numpy(raw).half().clone()", "np.asarray(raw, np.float16)"])
def test_a_file_that_is_read_into_a_name_first_is_offered_and_followed(budget: Budget, way: str) -> None:
    Path("raw.npy").write_bytes(npy((50, 30)))
    code = KEPT.format(kept=f"raw = np.load('raw.npy')\n        self.x = {way}")
    Path("train.py").write_text(HEAD + code + "loader = DataLoader(Frames(1), num_workers=2)\n")
    assert "--data raw.npy" in budget("train.py").out
    assert kept(table(budget, "train.py", "--data", "raw.npy"), "`x` of Frames") == [(1500 * 2, "exact")]


def test_a_script_of_a_folder_that_is_beyond_counting_takes_no_table_away(budget: Budget) -> None:
    loader = "loader = DataLoader(Frames(50), batch_size=2)\n"
    Path("train.py").write_text(HEAD + KEPT.format(kept="self.x = np.zeros((count, 3000), np.float32)") + loader)
    Path("huge.py").write_text(HEAD + KEPT.format(kept="self.x = np.zeros((10**12, 10**12), np.float32)") + loader)
    done = budget(".")
    assert "train.py: 0 workers" in done.out
    assert "error: huge.py:" in done.err
    assert "1000000000000 * 1000000000000 * 4 is 4.0e+24 bytes" in done.err
    assert budget("huge.py").status == 2


@pytest.mark.parametrize(
    ("kept_by", "kept"), [("read['user'].max() + 1", False), ("read['user'].nunique()", True), ("read.sum(axis=1)", True), ("read['user']", True)]
)
def test_a_number_of_a_table_has_no_row(budget: Budget, kept_by: str, kept: bool) -> None:  # noqa: FBT001 - one of two outcomes
    """``nunique`` is one, too, and no reduction that is known: then the row has a name."""
    code = KEPT.format(kept="read = pd.read_csv('x.csv'); self.x = read.values.tolist(); self.most = " + kept_by)
    Path("train.py").write_text(f"import pandas as pd\n{HEAD}{code}\nfor x in DataLoader(Frames(1)):\n    pass\n", encoding="utf-8")
    found = table(budget, "train.py")
    assert any("`most`" in row["what"] for row in found["rows"]) is kept
    assert any("`x`" in row["what"] for row in found["rows"])


@pytest.mark.parametrize(
    ("given", "batch"),
    [
        ("batch_sampler=BatchSampler(RandomSampler(frames), 32, True)", 32),
        ("batch_sampler=BatchSampler(RandomSampler(frames), batch_size=32, drop_last=True)", 32),
        ("batch_sampler=drawn", 16),
        ("batch_sampler=BatchSampler(RandomSampler(frames), options.batch, True)", None),
        ("batch_sampler=options.sampler", None),
        ("batch_sampler=options.sampler, batch_size=8", 8),
        ("batch_sampler=None, batch_size=8", 8),
        ("batch_sampler=None", 1),
    ],
)
@pytest.mark.parametrize("imported", ["BatchSampler, RandomSampler, SequentialSampler", "*"])
def test_what_draws_batches_says_how_large_they_are(budget: Budget, given: str, batch: int | None, imported: str) -> None:
    code = HEAD + f"from torch.utils.data import {imported}\noptions = argparse.ArgumentParser().parse_args()\n"
    code += (
        KEPT.format(kept="self.x = np.zeros((count, 10), np.float32)") + "frames = Frames(100)\ndrawn = BatchSampler(SequentialSampler(frames), 16, False)\n"
    )
    Path("train.py").write_text(code + f"loader = DataLoader(frames, num_workers=1, {given})\n")
    sizes = [row["bytes"] for row in table(budget, "train.py")["rows"] if "in flight" in row["what"]]
    assert sizes == [3 * batch * 40 if batch is not None else None]


@pytest.mark.parametrize(
    ("made", "more"),
    [
        ("torch.from_numpy(self.x)", 0),
        ("torch.as_tensor(self.x)", 0),
        ("np.asarray(self.x)", 0),
        ("self.x.view('i4')", 0),
        ("self.x.astype('f4', copy=False)", 0),
        ("self.x[..., 0]", 0),
        ("self.x.T[0]", 0),
        ("torch.from_numpy(self.x.T)", 0),
        ("self.x.astype('f4')", 4000),
        ("self.x.astype('f8', copy=False)", 8000),
        ("np.asarray(self.x, np.float64)", 8000),
        ("torch.tensor(self.x)", 4000),
        ("self.x.copy()", 4000),
        ("torch.from_numpy(self.x.copy())", 4000),
    ],
)
@pytest.mark.parametrize("kept_in", ["the object", "its class"])
def test_one_buffer_under_several_names_counts_once(budget: Budget, made: str, more: int, kept_in: str) -> None:
    first = "np.zeros((100, 10), np.float32)"
    code = KEPT.format(kept=f"self.x = {first if kept_in == 'the object' else 'self.shared'}\n        self.z = {made}")
    code = code.replace("(Dataset):\n", f"(Dataset):\n    shared = {first}\n") if kept_in == "its class" else code
    Path("train.py").write_text(HEAD + code + "loader = DataLoader(Frames(1), num_workers=2)\n")
    assert sum(size or 0 for size, _ in kept(table(budget, "train.py"), "of Frames")) == 4000 + more


@pytest.mark.parametrize(("kept_as", "sample"), [("[..., 0]", 7 * 4), (".T[0]", 7 * 4), ("", 21 * 4)])
def test_a_sample_of_a_view_that_keeps_a_whole_file(budget: Budget, kept_as: str, sample: int) -> None:
    Path("x.npy").write_bytes(npy((7, 7, 3)))
    Path("train.py").write_text(HEAD + KEPT.format(kept=f"self.x = np.load('x.npy'){kept_as}") + "loader = DataLoader(Frames(1), num_workers=1)\n")
    found = table(budget, "train.py", "--data", "x.npy")
    assert kept(found, "`x` of Frames") == [(7 * 7 * 3 * 4, "exact")]
    assert [row["bytes"] for row in found["rows"] if "in flight" in row["what"]] == [3 * sample]
