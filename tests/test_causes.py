"""What a named file causes in another one is shown, at the place that causes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

from oomlint import engine
from oomlint.cli import picks
from oomlint.config import Settings
from oomlint.engine import CheckReport, RunOptions
from oomlint.finding import Safety
from oomlint.model.project import Project
from oomlint.model.users import _links_of, around, users_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLIPS = """import json

from torch.utils.data import Dataset


class Clips(Dataset):
    def __init__(self, path):
        self.clips = [json.loads(line) for line in open(path).readlines()]

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        return self.clips[index]


def helper():
    return 1
"""
LOADER = "from torch.utils.data import DataLoader\n"
TRAIN = LOADER + 'from datasets import Clips\nloader = DataLoader(Clips("clips.jsonl"), batch_size=8, num_workers=8)\n'
FACTORY = LOADER + "def get_loader(dataset, workers):\n    return DataLoader(dataset, batch_size=8, num_workers=workers)\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def check(folder: Path, *names: str, **options: bool) -> CheckReport:
    settings = Settings().with_overrides(select=("OOM101", "OOM110"))
    return engine.run([str(folder / name) for name in names], settings, folder, RunOptions(processes=1, **{"cache": False, **options}))  # type: ignore[arg-type]


def places(report: CheckReport) -> list[tuple[str | None, str, int, list[tuple[str, int]]]]:
    return [
        (item.code, os.path.basename(item.place.path), item.place.row, [(os.path.basename(place.path), place.row) for place in item.related])
        for item in report.findings
    ]


def test_a_loader_elsewhere_is_told_at_the_dataset(tmp_path: Path) -> None:
    write(tmp_path, {"datasets.py": CLIPS, "train.py": TRAIN})
    assert places(check(tmp_path, "train.py", "datasets.py")) == [("OOM110", "train.py", 3, [("datasets.py", 8)])]
    report = check(tmp_path, "datasets.py")
    assert (report.files, places(report)) == (1, [("OOM110", "datasets.py", 8, [("train.py", 3)])])
    assert report.findings[0].related[0].message == "it happens here"


def test_fixes_that_files_around_would_have_are_not_counted(tmp_path: Path) -> None:
    bad = "DataLoader([], num_workers=0, persistent_workers=True)\n"
    write(tmp_path, {"datasets.py": CLIPS + LOADER + bad, "train.py": TRAIN + bad})
    report = check(tmp_path, "datasets.py", fix=True)
    assert ([item.place.row for item in report.fixed], report.left_out) == ([20], 0)
    assert (tmp_path / "train.py").read_text() == TRAIN + bad


WAYS = {
    "a module": {"train.py": LOADER + 'import datasets\nloader = DataLoader(datasets.Clips("a"), num_workers=8)\n'},
    "a star": {"train.py": LOADER + 'from datasets import *\nloader = DataLoader(Clips("a"), num_workers=8)\n'},
    "a package that hands it on": {
        "pack/__init__.py": "from .inner import Kind\n",
        "pack/inner.py": "from datasets import (\n    Clips as Kind,\n)\n",
        "train.py": LOADER + 'from pack import Kind\nloader = DataLoader(Kind("a"), num_workers=8)\n',
    },
    "a function that makes it": {
        "make.py": "def make():\n    from datasets import Clips\n    return Clips('a')\n",
        "train.py": LOADER + "from make import make\nloader = DataLoader(make(), num_workers=8)\n",
    },
    "a function that takes it": {
        "train.py": "from datasets import Clips\nfrom loaders import get_loader\nloader = get_loader(Clips('a'), 8)\n",
        "loaders.py": FACTORY,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_is_followed_to_its_loader_by(way: str, tmp_path: Path) -> None:
    write(tmp_path, {"datasets.py": CLIPS, **WAYS[way]})
    assert [found[:3] for found in places(check(tmp_path, "datasets.py"))] == [("OOM110", "datasets.py", 8)]


def test_a_caller_is_followed_to_the_loader_that_it_gives_workers_to(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"train.py": "from loaders import get_loader\nloader = get_loader(load(), 0)\n", "loaders.py": FACTORY.replace("workers)", "workers, timeout=3)")},
    )
    settings = Settings().with_overrides(select=("OOM103",))
    report = engine.run([str(tmp_path / "train.py")], settings, tmp_path, RunOptions(processes=1, cache=False))
    assert [found[:3] for found in places(report)] == [("OOM103", "train.py", 2)]


def test_nothing_else_of_another_file_is_told(tmp_path: Path) -> None:
    mine = "DataLoader([], num_workers=0, persistent_workers=True)\n"
    write(tmp_path, {"datasets.py": CLIPS, "train.py": TRAIN + mine, "other.py": LOADER + mine, "broken.py": TRAIN + "DataLoader(\n"})
    assert [found[:3] for found in places(check(tmp_path, "datasets.py"))] == [("OOM110", "datasets.py", 8)]
    assert places(check(tmp_path, "datasets.py", causes=False)) == []


def test_several_loaders_of_one_dataset_are_told_once(tmp_path: Path) -> None:
    write(tmp_path, {"datasets.py": CLIPS, "train.py": TRAIN, "test.py": TRAIN.replace("8)", "4)")})
    assert places(check(tmp_path, "datasets.py")) == [("OOM110", "datasets.py", 8, [("train.py", 3), ("test.py", 3)])]
    assert places(check(tmp_path, "datasets.py", "test.py"))[0][:3] == ("OOM110", "test.py", 3), "a named file comes first"


def test_a_comment_where_it_happens_silences_it(tmp_path: Path) -> None:
    write(tmp_path, {"datasets.py": CLIPS, "train.py": TRAIN.replace("num_workers=8)", "num_workers=8)  # noqa: OOM110")})
    assert places(check(tmp_path, "datasets.py")) == []


def test_a_fix_writes_no_file_that_was_not_named(tmp_path: Path) -> None:
    bad = 'DataLoader(Clips("a"), num_workers=0, persistent_workers=True)\n'
    write(tmp_path, {"datasets.py": CLIPS + LOADER + bad, "train.py": TRAIN + bad})
    before = (tmp_path / "train.py").read_bytes()
    report = check(tmp_path, "datasets.py", fix=True)
    assert [(item.code, item.place.path) for item in report.fixed] == [("OOM101", str(tmp_path / "datasets.py"))]
    assert [found[:3] for found in places(report)] == [("OOM110", "datasets.py", 8)]
    assert (tmp_path / "train.py").read_bytes() == before


def test_the_cache_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"datasets.py": CLIPS, "train.py": TRAIN})
    first = check(tmp_path, "datasets.py", cache=True)
    assert places(check(tmp_path, "datasets.py", cache=True)) == places(first)
    assert places(check(tmp_path, "train.py", cache=True)) == [("OOM110", "train.py", 3, [("datasets.py", 8)])]


def test_names_are_followed_and_not_files(tmp_path: Path) -> None:
    """Who imports only what has nothing to do with a name is not looked at for its sake."""
    write(
        tmp_path,
        {
            "datasets.py": CLIPS,
            "make.py": "from datasets import Clips\ndef make():\n    return Clips('a')\ndef other():\n    return 1\n",
            "train.py": "from make import make\nmake()\n",
            "far.py": "from make import other\nother()\n",
            "book.ipynb": '{"cells": [{"cell_type": "code", "source": ["%time\\n", "from make import make\\n"]}], "nbformat": 4, "metadata": {}}',
            "same_name.py": "import somewhere.datasets\n",
        },
    )
    found = [os.path.basename(path) for path in around(Project(tmp_path, Settings()), [str(tmp_path / "datasets.py")])]
    assert found == ["make.py", "book.ipynb", "train.py"]


GUARDED = LOADER + "\n\ndef make(data, workers):\n    return DataLoader(data, num_workers=workers, persistent_workers=True)\n"
CALLER = "from mod import make\n\nloader = make([], 0)\n"


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gives no workers to a loader of another one."""
    write(tmp_path, {"mod.py": GUARDED, "a.py": CALLER, "oomlint.toml": 'select = ["OOM101", "OOM001"]\n'})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--no-cache", "--output-format", "concise")


def test_a_fix_of_a_file_that_was_not_named_is_advice(caller: Path, run: Callable[..., Done]) -> None:
    done = run("a.py")
    assert done.out.startswith("a.py:3:19: OOM101 error `persistent_workers=True`"), "no mark"
    assert "fixable" not in done.out
    assert "(run --fix on mod.py)" in run("a.py", "--output-format", "full").out
    assert "[*]" in run("a.py", "mod.py").out
    assert run("a.py", "--fix").out == done.out
    assert (caller / "mod.py").read_text() == GUARDED


def test_a_comment_where_it_is_told_silences_it_there_and_is_in_use(caller: Path, run: Callable[..., Done]) -> None:
    (caller / "a.py").write_text(CALLER.replace("0)", "0)  # noqa: OOM101"))
    assert run("a.py").status == 0
    done = run(".")
    assert "mod.py:5:12: OOM101" in done.out
    assert "OOM001" not in done.out
    (caller / "mod.py").write_text(GUARDED.replace("True", "workers > 0"))
    assert "OOM001" in run(".").out


def test_a_comment_for_what_is_hidden_by_its_severity_is_in_use(caller: Path, run: Callable[..., Done]) -> None:
    write(caller, {"mod.py": GUARDED.replace(", persistent_workers=True", ""), "oomlint.toml": 'select = ["OOM120", "OOM001"]\n'})
    (caller / "a.py").write_text(CALLER.replace("0)", "24)  # noqa: OOM120"))
    assert run(".").out.splitlines() == ["No findings in 2 files.", "1 note not shown (--severity note)."]
    assert "not shown" not in run("a.py").out


def test_a_comment_is_added_where_it_is_told(caller: Path, run: Callable[..., Done]) -> None:
    assert "silenced 1 finding" in run("a.py", "--add-ignore").err
    assert (caller / "a.py").read_text() == CALLER.replace("0)", "0)  # oomlint: ignore[OOM101]")
    assert run("a.py").status == 0


@pytest.mark.usefixtures("caller")
def test_what_is_told_in_a_file_goes_to_the_baseline(run: Callable[..., Done]) -> None:
    assert "wrote 1 finding" in run("a.py", "--write-baseline", "--baseline", "known.json").err
    for path in ("a.py", "mod.py", "."):
        assert run(path, "--baseline", "known.json").status == 0, path


def test_a_place_where_something_is_told_picks_it(caller: Path) -> None:
    report = engine.run([str(caller / "a.py")], Settings().with_overrides(select=("OOM101",)), caller, RunOptions(processes=1, cache=False))
    (item,) = picks.picked(report.findings, picks.read(["a.py:3"]))
    assert (item.as_found.place.path, item.as_found.fix is not None and item.as_found.fix.safety) == (str(caller / "mod.py"), Safety.SAFE)


def test_the_editor_keeps_a_comment_that_is_in_use(caller: Path) -> None:
    from oomlint.lsp.open_project import OpenProject  # noqa: PLC0415 - an extra

    path, text = str(caller / "a.py"), CALLER.replace("0)", "0)  # noqa: OOM101")
    opened = OpenProject(Settings().with_overrides(select=("OOM101", "OOM001")), str(caller), path)
    plain, contents = {path: CALLER.encode()}, {path: text.encode()}
    assert [item.place.row for item in opened.caused(path, plain, opened.causes(path, plain))] == [3]
    assert opened.caused(path, contents, opened.causes(path, contents)) == ()
    assert opened.findings(path, contents) == ()
    assert opened.fixed_content(path, contents) is None


def test_who_only_has_the_name_of_a_file_in_an_import_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "reading").mkdir()
    (tmp_path / "datasets.py").write_text(CLIPS)
    (tmp_path / "train.py").write_text("import datasets\nclips = datasets.Clips('a')\n")
    for number in range(9):
        (tmp_path / "reading" / f"use_{number}.py").write_text(f"from datasets.arrow_{number} import table\nrows = {number}\n")
    before = _links_of.cache_info().misses
    assert [os.path.basename(path) for path in users_of(Project(tmp_path, Settings()), str(tmp_path / "datasets.py"))] == ["train.py"]
    assert _links_of.cache_info().misses - before <= 2
