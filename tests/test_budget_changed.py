"""``oomlint budget``: what a program changes before its loader is at work is as it is in a run, or told as unknown."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")

CODE: Final = """
import argparse
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Base(Dataset):
    def __init__(self, n):
        self.base = np.zeros((n, 5), dtype=np.float32)

class Data(Base):
    def __init__(self, n, keep=None):
        {parent}
        self.x = np.zeros((n, 64), dtype=np.float32)
        {built}
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return self.x[i]
    def clear(self):
        self.p = None

{code}
for batch in loader:
    pass
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])
    return runs(capsys, "budget")


def arrays(value: Any) -> dict[int, int]:
    """Bytes of the arrays in a value, by where they lie: a view keeps all of its array."""
    if isinstance(value, torch.Tensor):
        return {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()}
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return {value.__array_interface__["data"][0]: value.nbytes}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return {place: size for one in inner for place, size in arrays(one).items()}


def compared(budget: Budget, code: str) -> tuple[int, list[dict[str, Any]], Any]:
    """Bytes of what the dataset keeps in a run, the rows that say so, and the loader."""
    Path("train.py").write_text(code)
    loader = runpy.run_path("train.py", run_name="__main__")["loader"]
    found = table(budget, "train.py")
    assert found["loaders"][0]["workers"] == loader.num_workers
    return sum(arrays(vars(loader.dataset)).values()), [row for row in found["rows"] if row["what"].endswith("` of Data")], loader


def program(code: str, built: str = "pass", parent: str = "pass") -> str:
    lines = (text.replace("; ", "\n        ") for text in (built, parent))
    return CODE.format(code=code, **dict(zip(("built", "parent"), lines, strict=True)))


LOADER: Final = "loader = DataLoader(Data(1000), batch_size=4)"
GIVEN: Final = "g = {'n': 1000}\n"
TAKEN: Final = "loader = DataLoader(Data(g['n']))"
PARSED: Final = "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=1000)\nargs = p.parse_args()\n"


@pytest.mark.parametrize(
    "code",
    [
        "def scale(g):\n    g['n'] *= 3\ng = {'n': 1000}\nscale(g)\nloader = DataLoader(Data(g['n']))",
        f"def scale(args):\n    args.n *= 4\n{PARSED}scale(args)\nloader = DataLoader(Data(args.n))",
        f"def scale(args):\n    args.n = 30\n    return args\n{PARSED}args = scale(args)\nloader = DataLoader(Data(args.n))",
        "def scale(c):\n    c.n += 30\nc = SimpleNamespace(n=1000)\nscale(c)\nloader = DataLoader(Data(c.n))",
        "N = 1000\ndef grow():\n    global N\n    N *= 2\ngrow()\nloader = DataLoader(Data(N))",
        "N = 1000\ndef grow():\n    global N\n    N *= 2\ndef main():\n    grow()\n    return DataLoader(Data(N))\nloader = main()",
        "def main():\n    n = 1000\n    def grow():\n        nonlocal n\n        n += 5\n    grow()\n    return DataLoader(Data(n))\nloader = main()",
        "d = Data(1000)\nd.a = np.zeros((1000, 32))\nloader = DataLoader(d)",
        "d = Data(1000)\nsetattr(d, 'a', np.zeros((1000, 32)))\nloader = DataLoader(d)",
        "d = Data(1000)\nfor name in ('a', 'b'):\n    setattr(d, name, np.zeros((1000, 32)))\nloader = DataLoader(d)",
        "def fill(d):\n    d.a = np.zeros((1000, 32))\nd = Data(1000)\nfill(d)\nloader = DataLoader(d)",
        "d = Data(1000)\nd.x = d.x[:10].copy()\nloader = DataLoader(d)",
        "d = Data(1000)\nd.y = np.zeros(100)\ndel d.y\nloader = DataLoader(d)",
        "d = Data(1000)\nd.y = np.zeros(100)\nd.y = None\nloader = DataLoader(d)",
        "loader = DataLoader(Data(1000))\nloader.num_workers = 2\nloader.prefetch_factor = 3",
        "loader = DataLoader(Data(1000), num_workers=2)\nloader.num_workers = 0",
        f"{GIVEN}def scale(a, g):\n    g['n'] *= a\npartial(scale, 3)(g)\n{TAKEN}",
        f"{GIVEN}def scale(g, a):\n    g['n'] *= a\nscaled = partial(scale, a=3)\nscaled(g)\n{TAKEN}",
        f"{GIVEN}scale = lambda g: g.update(n=3000)\nscale(g)\n{TAKEN}",
        f"{GIVEN}(lambda g: g.__setitem__('n', 3000))(g)\n{TAKEN}",
        f"{GIVEN}def scale(g):\n    g['n'] = 3000\nscaled = lambda: scale(g)\nscaled()\n{TAKEN}",
        f"{GIVEN}class Scale:\n    def __call__(self, g):\n        g['n'] = 3000\nscale = Scale()\nscale(g)\n{TAKEN}",
        "loader = DataLoader(Data(1000))\nloader.dataset.a = np.zeros((1000, 32))",
        "loader = DataLoader(Data(1000))\nloader.dataset.x = loader.dataset.x[:10].copy()",
        "loader = DataLoader(Data(1000))\ndata = loader.dataset\ndata.a = np.zeros((1000, 32))",
        "def make():\n    return DataLoader(Data(1000))\nloader = make()\nloader.dataset.a = np.zeros((1000, 32))",
        "def fill(loader):\n    setattr(loader.dataset, 'a', np.zeros((1000, 32)))\nloader = DataLoader(Data(1000))\nfill(loader)",
    ],
)
def test_what_is_changed_on_the_way_is_as_in_a_run(budget: Budget, code: str) -> None:
    size, rows, _ = compared(budget, program(code))
    assert {row["known"] for row in rows} == {"exact"}
    assert sum(row["bytes"] for row in rows) == size


@pytest.mark.parametrize(
    ("built", "parent"),
    [
        ("self.p = np.zeros((n, 8)); del self.p", "pass"),
        ("self.p = np.zeros((n, 8)); delattr(self, 'p')", "pass"),
        ("self.p = np.zeros((n, 8)); self.p = None", "pass"),
        ("self.p = np.zeros((n, 8)); self.clear()", "pass"),
        ("self.base = self.base[:10]", "super().__init__(n)"),
        ("self.base = self.base[:10].copy()", "super().__init__(n)"),
        ("self.base = self.base[np.arange(20)]", "super().__init__(n)"),
        ("self.base = self.base.astype(np.float64)", "super().__init__(n)"),
        ("self.base = np.concatenate([self.base, self.base])", "Base.__init__(self, n)"),
        ("del self.base", "super().__init__(n)"),
        ("self.base = None", "super().__init__(n)"),
        ("pass", "self.base = None; super().__init__(n)"),
        ("self.x = self.x[np.random.permutation(n)[:100]]", "pass"),
        ("self.a = np.zeros((n, 8)); self.g = [self.a] * 3", "pass"),
        ("self.a = np.zeros((n, 8)); self.g = [self.a, self.a]", "pass"),
        ("self.a = np.zeros((n, 8)); self.g = [self.a for _ in range(4)]", "pass"),
    ],
)
def test_what_is_changed_while_a_dataset_is_built(budget: Budget, built: str, parent: str) -> None:
    size, rows, _ = compared(budget, program(LOADER, built, parent))
    assert {row["known"] for row in rows} == {"exact"}
    assert sum(row["bytes"] for row in rows) == size


@pytest.mark.parametrize(
    "built",
    [
        "self.x = self.x[np.arange(n) % 4 == 0]",
        "self.x = np.delete(self.x, [1, 2], axis=0)",
        "self.g = [np.zeros(900) for _ in range(10)]; del self.g[5:]",
        "self.g = [np.zeros(900) for i in range(10) if i % 2]",
        "self.g = [np.zeros(900), np.zeros(9)]; self.g.pop()",
        "self.g = {'a': np.zeros(900)}; self.g.update(b=np.zeros(9))",
    ],
)
def test_what_nobody_can_follow_is_unknown(budget: Budget, built: str) -> None:
    _, rows, _ = compared(budget, program(LOADER, built))
    assert (None, "unknown") in {(row["bytes"], row["known"]) for row in rows}


@pytest.mark.parametrize(
    "built",
    [
        "self.g = []; self.g += [np.zeros(9000)]; self.g += [np.zeros(900)]",
        "self.g = [np.zeros(9000)]; self.g.extend([np.zeros(900), np.zeros(90)])",
        "self.g = []\n        for _ in range(9):\n            self.g += [np.zeros(9000), np.zeros(900)]",
        "self.g = {k: np.zeros(9000) for k in ('a', 'b', 'c')}",
        "self.g = [np.zeros(9000) for _ in list(range(5))]",
        "self.g = tuple(np.zeros(9000) for _ in range(5))",
        "self.g = [np.zeros(9000)] + [np.zeros(90)]",
        "self.g = {'a': np.zeros(9000)}; self.g['b'] = np.zeros(900); self.g['a'] = np.zeros(90)",
        "self.g = {}; self.g.setdefault('a', np.zeros(9000))",
        "rows = []\n        for _ in range(9):\n            rows += [np.zeros(9000)]\n        self.g = np.stack(rows)",
    ],
)
def test_lists_of_arrays_are_about_as_large_as_in_a_run(budget: Budget, built: str) -> None:
    size, rows, _ = compared(budget, program(LOADER, built))
    assert sum(row["bytes"] for row in rows) == pytest.approx(size, rel=0.02)


def test_what_a_test_decides_is_told_as_the_least(budget: Budget) -> None:
    code = "def scale(g):\n    if torch.rand(1) > 2:\n        g['n'] *= 3\ng = {'n': 1000}\nscale(g)\nloader = DataLoader(Data(g['n']))"
    _, rows, _ = compared(budget, program(code))
    assert [(row["bytes"], row["known"]) for row in rows] == [(1000 * 64 * 4, "at least")]


@pytest.mark.parametrize(
    "code",
    [
        "def scale(g, a):\n    g['n'] *= a\nscaled = partial(scale, g)\nscaled(3)",
        "def scale(g):\n    g['n'] = 3000\nlist(map(scale, [g]))",
        "def scale(g):\n    g['n'] = 3000\nthread = threading.Thread(target=scale, args=(g,))\nthread.start()\nthread.join()",
    ],
)
def test_what_a_library_may_have_changed_is_unknown(budget: Budget, code: str) -> None:
    _, rows, _ = compared(budget, program(f"{GIVEN}{code}\n{TAKEN}"))
    assert [(row["bytes"], row["known"]) for row in rows] == [(None, "unknown")]


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ("from settings import kept\ndef grow():\n    kept['n'] *= 3\n", "from other import grow\ngrow()\nloader = DataLoader(Data(kept['n']))"),
        ("from settings import kept as k\nk['n'] = 3000\n", "import other\nloader = DataLoader(Data(kept['n']))"),
        ("from settings import kept\ndef size():\n    return kept['n']\n", "from other import size\nkept['n'] = 3000\nloader = DataLoader(Data(size()))"),
        ("from settings import Kept\ndef grow():\n    Kept.n *= 3\n", "from other import grow\ngrow()\nloader = DataLoader(Data(Kept.n))"),
        (
            "import settings\ndef size():\n    return settings.N\n",
            "import settings\nfrom other import size\nsettings.N = 30\nloader = DataLoader(Data(size()))",
        ),
        ("import settings as s\ndef grow():\n    s.N = 30\n", "import settings\nfrom other import grow\ngrow()\nloader = DataLoader(Data(settings.N))"),
        ("import settings\ndef grow():\n    settings.kept['n'] = 30\n", "from other import grow\ngrow()\nloader = DataLoader(Data(kept['n']))"),
        ("import settings\ndef grow():\n    settings.kept.update(n=30)\n", "from other import grow\ngrow()\nloader = DataLoader(Data(kept['n']))"),
        (
            "def grow():\n    import settings\n    setattr(settings, 'N', 30)\n",
            "import settings\nimport other\nother.grow()\nloader = DataLoader(Data(settings.N))",
        ),
    ],
)
def test_what_another_file_of_the_program_changes_is_unknown(budget: Budget, monkeypatch: pytest.MonkeyPatch, other: str, code: str) -> None:
    monkeypatch.syspath_prepend(".")
    Path("settings.py").write_text("N = 1000\nkept = {'n': 1000}\nclass Kept:\n    n = 1000\n")
    Path("other.py").write_text(other)
    for name in ("settings", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    _, rows, _ = compared(budget, program(f"from settings import Kept, kept\n{code}"))
    assert [(row["bytes"], row["known"]) for row in rows] == [(None, "unknown")]


def test_what_another_file_changes_by_the_name_of_a_package_is_unknown(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("kit").mkdir()
    Path("kit/__init__.py").write_text("")
    Path("kit/settings.py").write_text("N = 1000\nM = 5\n")
    for changed, known in (("N", "unknown"), ("M", "exact")):
        Path("other.py").write_text(f"import kit.settings\ndef grow():\n    kit.settings.{changed} = 30\n")
        for name in ("kit", "kit.settings", "other"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        _, rows, _ = compared(budget, program("import kit.settings\nimport other\nother.grow()\nloader = DataLoader(Data(kit.settings.N))"))
        assert [row["known"] for row in rows] == [known]


def test_what_another_file_changes_of_something_else_is_not_changed(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("settings.py").write_text("N = 1000\nM = 5\nkept = {'n': 1000}\n")
    Path("other.py").write_text("import settings\ndef grow():\n    settings.M = 3\n    settings.kept['m'] = settings.N\n")
    for name in ("settings", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for size in ("settings.N", "settings.kept['n']"):
        held, rows, _ = compared(budget, program(f"import other\nimport settings\nother.grow()\nloader = DataLoader(Data({size}))"))
        assert [(row["bytes"], row["known"]) for row in rows] == [(held, "exact")]


def test_what_another_script_changes_is_not_changed(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("settings.py").write_text("kept = {'n': 1000}\n")
    Path("evaluate.py").write_text("from settings import kept\nkept['n'] = 3000\n")
    monkeypatch.delitem(sys.modules, "settings", raising=False)
    size, rows, _ = compared(budget, program("from settings import kept\nloader = DataLoader(Data(kept['n']))"))
    assert [(row["bytes"], row["known"]) for row in rows] == [(size, "exact")]


def test_what_torch_refuses_to_change_is_told(budget: Budget) -> None:
    Path("train.py").write_text(program(f"{LOADER}\nloader.batch_size = 8"))
    assert "torch refuses to set `batch_size` of a DataLoader" in budget("train.py").err


def test_an_array_that_nobody_can_make_is_told(budget: Budget) -> None:
    code = program("parser = argparse.ArgumentParser()\nparser.add_argument('--n', type=int)\nloader = DataLoader(Data(parser.parse_args().n))")
    Path("train.py").write_text(code)
    (line,) = [line for line in budget("python train.py --n -5").err.splitlines() if "no array" in line]
    assert line == "oomlint: warning: train.py:18: no array has the shape (-5, 64): the run ends there"
    assert "no array" not in budget("python train.py --n 5").err


@pytest.mark.parametrize(("given", "refused"), [("four", True), ("-1", True), ("0", True), ("2", False), ("gpu", False), ("$N", False)])
def test_a_number_of_processes_that_torchrun_refuses_is_told(budget: Budget, given: str, *, refused: bool) -> None:
    Path("train.py").write_text(program(LOADER))
    assert (f"torchrun refuses `--nproc_per_node {given}`" in budget(f"torchrun --nproc_per_node {given} train.py").err) is refused


def test_a_row_that_is_known_in_part_can_be_told_in_whole(budget: Budget) -> None:
    Path("train.py").write_text(program(LOADER, "self.rows = [{'name': str(i), 'box': [i, i, i]} for i in range(30_000)]"))
    told = [row for row in table(budget, "train.py")["rows"] if row["what"] == "`rows` of Data"]
    assert [row["known"] for row in told] == ["at least"]
    told = [row for row in table(budget, "train.py", "--set", "rows=5MiB")["rows"] if row["what"] == "`rows` of Data"]
    assert [(row["bytes"], row["known"]) for row in told] == [(5 << 20, "exact")]
