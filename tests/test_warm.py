"""What is known from earlier runs is used where it holds, and what comes out is what a run without it finds."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from oomlint import checking, engine
from oomlint.checking import Checker, Linted, Looked
from oomlint.config import Settings
from oomlint.finding import Severity

ROOT: Final = Path(__file__).parent.parent
LOADER: Final = "from torch.utils.data import DataLoader, Dataset\n"
NOTES: Final = Settings(preview=True, severity=Severity.NOTE)

BASE: Final = LOADER + "import h5py\nclass Base(Dataset):\n    def __init__(self, path):\n        self.{} = {}\n    def __len__(self):\n        return 9\n"
LOOP: Final = (
    LOADER + "def train(model, loader):\n    total = 0\n    for batch in loader:\n        loss = model(batch)\n        loss.backward()\n        total += {}\n"
)
DERIVED: Final = LOADER + "from base import Base\nclass Derived(Base):\n    def __getitem__(self, index):\n        return self.file['x'][index]\n"
READS: Final = LOADER + "import yaml\nwith open('train.yaml') as stream:\n    config = yaml.safe_load(stream)\n"

# What each file of the project may hold; None: it is not there.
FILES: Final[dict[str, tuple[str | None, ...]]] = {
    "options.py": ("WORKERS = 0\n", "WORKERS = 4\n", None),
    "lib/options.py": (None, "WORKERS = 4\n", "WORKERS = 0\n"),
    "lib/__init__.py": (None, ""),
    "loaders.py": (
        LOADER + "from options import WORKERS\ndef build(data):\n    return DataLoader(data, num_workers=WORKERS, persistent_workers=True)\n",
        LOADER + "from lib.options import WORKERS\ndef build(data):\n    return DataLoader(data, num_workers=WORKERS, prefetch_factor=2)\n",
    ),
    "factory.py": (LOADER + "def make(data, workers):\n    return DataLoader(data, num_workers=workers, prefetch_factor=4)\n",),
    "caller.py": (
        "from factory import make\nmake(range(9), 0)\n",
        "from factory import make\nmake(range(9), 2)\n",
        "import factory\nfactory.make([], 0)\n",
        None,
    ),
    "other.py": (None, "from factory import make\nmake([], workers=0)\n", "print('make it')\n"),
    "base.py": (BASE.format("file", "h5py.File(path)"), BASE.format("path", "path")),
    "derived.py": (DERIVED + "loader = DataLoader(Derived('a'), num_workers=4)\n", "class Derived:\n    pass\n", None),
    "train.py": (READS + "loader = DataLoader(range(9), num_workers=config['workers'], persistent_workers=True)\n",),
    "train.yaml": ("workers: 0\n", "workers: 4\n", None),
    ".gitignore": (None, "other.py\n", "caller.py\nderived.py\n"),
    "loop.py": (LOOP.format("loss"), LOOP.format("loss.item()")),
    "run.py": (None, "from loop import train\nfrom loaders import build\nimport torch\ntrain(torch.nn.Linear(1, 1), build([]))\n"),
}


class Tree:
    """The files of the project in a folder, all of them written some time ago."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1_700_000_000
        (folder / "pyproject.toml").write_text("")
        for name, (first, *_) in FILES.items():
            self.put(name, first)

    def put(self, name: str, content: str | None) -> None:
        path = self.folder / name
        if content is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        self.now += 10
        os.utime(path, (self.now, self.now))

    def check(self, *, cache: bool, **options: bool) -> engine.CheckReport:
        return engine.run([str(self.folder)], NOTES, self.folder, engine.RunOptions(cache=cache, processes=1, **options))  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    os.utime(tmp_path, (1_700_000_000, 1_700_000_000))
    made = Tree(tmp_path)
    os.utime(tmp_path / "pyproject.toml", (made.now, made.now))
    return made


@pytest.fixture
def linted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that the rules are asked about, as it happens."""
    seen: list[str] = []
    real = Checker.lint

    def lint(self: Checker, looked: Looked) -> Linted:
        seen.append(os.path.basename(looked.path))
        return real(self, looked)

    monkeypatch.setattr(checking.Checker, "lint", lint)
    return seen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_warm_run_finds_what_a_cold_one_finds(tree: Tree, seed: int) -> None:
    chance = random.Random(seed)
    assert tree.check(cache=True) == tree.check(cache=False)
    for _ in range(15):
        names = chance.sample([name for name, contents in FILES.items() if len(contents) > 1], chance.choice([1, 1, 2]))
        for name in names:
            tree.put(name, chance.choice(FILES[name]))
        assert tree.check(cache=True) == tree.check(cache=False), names


@pytest.mark.parametrize(
    ("name", "again", "spared"),
    [
        ("options.py", "loaders.py", {"factory.py", "train.py", "loop.py"}),
        ("loop.py", "loop.py", {"factory.py", "train.py", "loaders.py"}),
        ("base.py", "derived.py", {"factory.py", "train.py", "loop.py"}),
        ("caller.py", "factory.py", {"train.py"}),  # what it imports is in use: where that is told, the rest is asked for it, too
    ],
)
def test_an_edit_is_checked_with_what_has_read_it(tree: Tree, linted: list[str], name: str, again: str, spared: set[str]) -> None:
    expected = tree.check(cache=True)
    linted.clear()
    assert tree.check(cache=True) == expected
    assert linted == []
    tree.put(name, f"{FILES[name][0]}# one more row\n")
    assert tree.check(cache=True).findings == expected.findings
    assert again in linted
    assert spared.isdisjoint(linted)


def test_a_file_that_is_renamed_is_another_one(tree: Tree) -> None:
    tree.check(cache=True)
    (tree.folder / "options.py").rename(tree.folder / "settings.py")
    assert tree.check(cache=True) == tree.check(cache=False)
    (tree.folder / "settings.py").rename(tree.folder / "options.py")
    assert tree.check(cache=True) == tree.check(cache=False)


IMPORTS: Final = f"{LOADER}from options import WORKERS\nDataLoader(range(9), num_workers=WORKERS, persistent_workers=True)\n"
LOADS: Final = f"{LOADER}import yaml\nwith open('{{}}') as file:\n    config = yaml.safe_load(file)\nDataLoader([], num_workers=config['workers'], timeout=9)\n"
CALLED: Final = {"factory.py": FILES["factory.py"][0] or "", "sub/caller.py": "from factory import make\nmake(range(9), 0)\n"}
LMDB: Final = (
    LOADER
    + "import lmdb\nclass Images(Dataset):\n    def __init__(self, path):\n        self.env = lmdb.open(path)\n    def __len__(self):\n        return 3\n"
    "    def __getitem__(self, index):\n        return self.env.begin().get(b'a')\nDataLoader(Images('a'), num_workers=4)\n"
)


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        pytest.param(CALLED | {".git/info/exclude": ""}, {".git/info/exclude": "caller.py\n"}, id="a file is excluded by the repository"),
        pytest.param(CALLED | {"../.git/HEAD": "", "../.gitignore": ""}, {"../.gitignore": "caller.py\n"}, id="a file is ignored from above"),
        pytest.param(CALLED, {"sub/conda-meta/": None}, id="a folder becomes an environment"),
        pytest.param({"a.py": LMDB}, {"lmdb/": None}, id="a folder has the name of a library"),
        *(
            pytest.param({"a.py": LOADS.format(path), path: content}, {path: now}, id=f"{path} {what}")
            for path in ("train.yaml", ".hidden/train.yaml", "../train.yaml", "train.odd", "train")
            for what, content, now in (("changes", "workers: 4", "workers: 0"), ("comes", None, "workers: 0"), ("goes", "workers: 0", None))
        ),
        *(
            pytest.param(
                {"a.py": f"import sys\nsys.path.insert(0, '{path}')\n{IMPORTS}", f"{path}/z.py": "", **files}, {f"{path}/options.py": "WORKERS = 0\n"}, id=what
            )
            for path in (".hidden", "site-packages", "lib")
            for what, files in ((f"{path} changes", {f"{path}/options.py": "WORKERS = 4\n"}), (f"{path} comes", {"options.py": "WORKERS = 4\n"}))
        ),
    ],
)
def test_what_a_look_over_the_project_does_not_see_is_seen(tmp_path: Path, files: dict[str, str | None], changes: dict[str, str | None]) -> None:
    root = tmp_path / "around" / "project"
    clock = iter(range(1_700_000_000, 1_800_000_000, 10))

    def put(name: str, content: str | None) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        elif content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content)
            os.utime(path, (now := next(clock), now))

    def findings(*, cache: bool) -> tuple[object, ...]:
        return engine.run([str(root)], NOTES, root, engine.RunOptions(cache=cache, processes=1)).findings

    put("pyproject.toml", "")
    for name, content in files.items():
        put(name, content)
    before = findings(cache=True)
    for name, content in changes.items():
        put(name, content)
    after = findings(cache=False)
    assert after != before, "the change says nothing"
    assert findings(cache=True) == after


def test_what_was_written_just_now_tells_on_no_more_than_has_read_it(tree: Tree, linted: list[str]) -> None:
    tree.check(cache=True)
    (tree.folder / "loop.py").write_text(FILES["loop.py"][1] or "")
    linted.clear()
    for _ in range(2):
        report = tree.check(cache=True)
        assert report == tree.check(cache=False)
    assert linted.count("loop.py") == 4
    assert linted.count("train.py") == 2, "only without a cache"


def test_fixes_after_a_warm_run_are_those_after_a_cold_one(tree: Tree) -> None:
    tree.check(cache=True)
    tree.put("options.py", FILES["options.py"][1])
    warm, cold = (tree.check(cache=cache, fix=True, write=False, unsafe_fixes=True) for cache in (True, False))
    assert warm == cold
    assert warm.changes


def test_fixes_come_after_a_warm_run_in_a_process_of_its_own(tree: Tree) -> None:
    """What the first run has looked for is looked for again by functions that nobody has imported yet."""
    tree.put("reader.py", "import h5py\ndef read_it(path):\n    with h5py.File(path) as file:\n        return file['x'][:]\n")
    tree.put("caller.py", LOADER + "from reader import read_it\nopen_it(1)\nloader = DataLoader(read_it('a'), num_workers=0, persistent_workers=True)\n")
    command = [sys.executable, "-m", "oomlint", "check", "-q", "--exit-zero"]
    for words in ([], ["--fix"]):
        done = subprocess.run([*command, *words], cwd=tree.folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    kept = json.loads((tree.folder / ".oomlint_cache" / "basis.json").read_bytes().partition(b"\n")[2])
    assert any(finder.count(".") > 2 for _, finder, *_ in kept["content"]["searches"]), "of a module in a folder"
    assert "persistent" not in (tree.folder / "caller.py").read_text()


def test_what_is_new_in_a_folder_that_is_named_where_a_file_is_meant_tells_nothing(tree: Tree, linted: list[str]) -> None:
    tree.put("train.py", f"{LOADS.format('.')}")
    tree.check(cache=True)
    (tree.folder / "notes.txt").write_text("")
    linted.clear()
    tree.check(cache=True)
    assert linted == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of Unix")
def test_a_pipe_beside_the_code_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOADER + "loader = DataLoader([1], persistent_workers=True)\n")
    command = [sys.executable, "-m", "oomlint", "check", "train.py"]
    os.mkfifo(tmp_path / "pipe.py")
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (first.returncode, first.stdout, first.stderr) == (second.returncode, second.stdout, second.stderr)
    assert "OOM101" in first.stdout
