"""The hooks of this repository, run by the real pre-commit and the real prek in a repository with staged files."""

from __future__ import annotations

import operator
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import yaml

from oomlint.beside_code import SETTINGS_SUFFIXES, SHELL_SUFFIXES, beside
from oomlint.discovery import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
HOOKS: Final = ROOT / ".pre-commit-hooks.yaml"
LIMIT: Final = 300  # seconds; the first run of a tool installs the hook's environment

SETTINGS: Final = "WORKERS = 0\n"
BAD: Final = """from torch.utils.data import DataLoader

from settings import WORKERS

loader = DataLoader([1], num_workers=WORKERS, persistent_workers=True)
"""
GOOD: Final = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1], num_workers=2, persistent_workers=True)\n"
CLIPS: Final = """import json

from torch.utils.data import Dataset


class Clips(Dataset):
    def __init__(self, path):
        self.clips = json.load(open(path))

    def __getitem__(self, index):
        return self.clips[index]
"""
TRAIN: Final = """from torch.utils.data import DataLoader

from datasets import Clips

loader = DataLoader(Clips("clips.json"), num_workers=8)
"""
OPTION: Final = """import argparse

from torch.utils.data import DataLoader

from datasets import Clips

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
loader = DataLoader(Clips("clips.json"), num_workers=args.workers)
"""


class Tool(NamedTuple):
    words: Sequence[str]
    home: str  # the variable that names where environments are kept
    install: Sequence[str]


TOOLS: Final = {
    "pre-commit": Tool((sys.executable, "-m", "pre_commit"), "PRE_COMMIT_HOME", ("install-hooks",)),
    "prek": Tool((sys.executable, "-m", "prek"), "PREK_HOME", ("prepare-hooks",)),
}


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def index_is_reached(folder: Path) -> bool:
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "hatchling"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """This repository as it stands, also where it is not committed, and the revision to take."""
    folder = tmp_path_factory.mktemp("oomlint")
    shutil.copytree(ROOT / "oomlint", folder / "oomlint", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (HOOKS.name, "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder, git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", TOOLS)
def test_hooks_find_and_fix_what_is_staged(name: str, source: tuple[Path, str], tmp_path: Path) -> None:
    tool = TOOLS[name]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key.startswith("GIT_SSL")}
    environment |= {tool.home: str(tmp_path / "home"), "NO_COLOR": "1"}
    project = tmp_path / "project"
    project.mkdir()

    def call(*more: str) -> tuple[int, str]:
        done = subprocess.run([*tool.words, *more], cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
        return done.returncode, done.stdout.decode()

    hooks = [{"id": "oomlint"}, {"id": "oomlint-fix"}]
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": str(source[0]), "rev": source[1], "hooks": hooks}]}))
    for path, text in {"settings.py": SETTINGS, "old.py": BAD, "datasets.py": "class Clips:\n    pass\n", "train.py": TRAIN}.items():
        (project / path).write_text(text)
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "what was there before")
    status, said = call(*tool.install)
    if status and not index_is_reached(tmp_path):
        pytest.skip("the package index cannot be reached, from which the environment of the hook is installed")
    assert status == 0, said

    (project / "bad.py").write_text(BAD)
    (project / "good.py").write_text(GOOD)
    git(project, "add", "--all")
    status, said = call("run", "oomlint")
    assert status == 1, said
    assert "bad.py:5:10: OOM101" in said
    assert "settings.py:1" in said, "where the value comes from, which is not staged"
    assert "Found 1 error in 1 file (2 checked)" in said, "only what is staged is checked"

    status, said = call("run", "oomlint-fix")
    assert status == 1, said
    assert (project / "bad.py").read_text() == BAD.replace("=True", "=WORKERS > 0")
    assert (project / "old.py").read_text() == BAD
    git(project, "add", "--all")
    for hook in ("oomlint", "oomlint-fix"):
        status, said = call("run", hook)
        assert status == 0, said
    git(project, "commit", "--quiet", "--message", "good")

    (project / "datasets.py").write_text(CLIPS)
    git(project, "add", "--all")
    status, said = call("run", "oomlint")
    assert status == 1, said
    assert "datasets.py:8:9: OOM110" in said, "what a staged file causes in another one"
    assert "train.py:5:10: it happens here" in said
    git(project, "commit", "--quiet", "--no-verify", "--message", "clips")

    (project / "train.py").write_text(OPTION)
    (project / "datasets.py").write_text(CLIPS.replace("import json", "import numpy as np").replace("json.load(open(path))", "np.load(path)"))
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--no-verify", "--message", "an option")
    (project / "sweep.sbatch").write_text("#!/bin/bash\nsrun python train.py --workers 16\n")
    git(project, "add", "--all")
    status, said = call("run", "oomlint")
    assert status == 1, said
    assert "sweep.sbatch:2:" in said, "a file that has no type of pre-commit's"


@pytest.mark.parametrize("hook", yaml.safe_load(HOOKS.read_text()), ids=operator.itemgetter("id"))
def test_hooks_see_all_files_that_a_check_reads(hook: dict[str, str]) -> None:
    wanted = [f"a{suffix}" for suffix in (*SUFFIXES, *SHELL_SUFFIXES, *SETTINGS_SUFFIXES)]
    wanted += ["Makefile", "GNUmakefile", "a.mk", "Dockerfile", "Dockerfile.cuda", "Containerfile", "a.dockerfile", ".vscode/launch.json", "compose.yaml"]
    assert [name for name in wanted if not (re.search(hook["files"], name) and re.search(hook["files"], f"b/{name}"))] == []
    assert [name for name in wanted if beside(name) is None] == [f"a{suffix}" for suffix in SUFFIXES]
    for name in ("README.md", "a.txt", "a.pyc", "a.npy", "makefiles/a", "Dockerfiles"):
        assert not re.search(hook["files"], name)


def test_the_manifest_is_valid() -> None:
    done = subprocess.run([sys.executable, "-m", "pre_commit", "validate-manifest", HOOKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
