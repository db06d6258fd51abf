"""What requirements say of torch decides what a fix and an advice may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oomlint import engine
from oomlint.config import Settings
from oomlint.finding import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.finding import Finding

PREFETCH = """from torch.utils.data import DataLoader


def loader(dataset, num_workers=0):
    return DataLoader(dataset, num_workers=num_workers, prefetch_factor=4)
"""
BY_POSITION = PREFETCH.replace("DataLoader(dataset, ", "DataLoader(").replace("=4)", "=4, *[dataset])")
LOADED = """import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, path):
        self.frames = torch.load(path)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i]


loader = DataLoader(Frames("frames.pt"))
"""
GUARD, MAPPING = "prefetch_factor=4 if num_workers > 0 else None)", '**({"prefetch_factor": 4} if num_workers > 0 else {}))'


def finding(folder: Path, code: str, text: str) -> Finding:
    (folder / "train.py").write_text(text)
    return the_only(folder, "", code)


def the_only(root: Path, folder: str, code: str) -> Finding:
    report = engine.run([str(root / folder / "train.py")], Settings(), root, engine.RunOptions(cache=False, processes=1))
    (found,) = [item for item in report.findings if item.code == code]
    return found


@pytest.mark.parametrize(
    ("name", "text", "older"),
    [
        ("requirements.txt", "numpy\ntorch==1.13.1\n", True),
        ("requirements.txt", "torch==2.0.1+cu118\n", False),
        ("requirements.txt", "pytorch-lightning==1.9\ntorch\n", False),
        ("requirements.txt", "# torch==1.13.1\n", False),
        ("requirements-gpu.txt", "torch @ https://example.org/whl/torch-1.11.0%2Bcu113-cp38-linux_x86_64.whl\n", True),
        ("environment.yml", "dependencies:\n  - pytorch::pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0\n", True),
        ("setup.py", "setup(install_requires=['torch>=1.7', 'numpy'])\n", True),
        ("setup.py", "# Needs PyTorch 1.7\nsetup(install_requires=['torch>=2.0,<3'])\n", False),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^1.13"\n', True),
        ("pyproject.toml", '[project]\ndependencies = ["torch<2"]\n', True),
        ("README.md", "torch==1.13.1\n", False),
    ],
)
def test_a_guard_is_one_that_the_oldest_torch_asked_for_allows(tmp_path: Path, name: str, text: str, older: bool) -> None:  # noqa: FBT001
    (tmp_path / name).write_text(text)
    fix = finding(tmp_path, "OOM102", PREFETCH).fix
    assert fix is not None
    assert fix.edits
    assert (MAPPING if older else GUARD)[:-1].endswith(fix.edits[0].content)


def test_requirements_of_the_folder_come_before_those_above(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("torch==1.13.1\n")
    (inner := tmp_path / "inner").mkdir()
    (inner / "train.py").write_text(PREFETCH)
    fix = the_only(tmp_path, "inner", "OOM102").fix
    assert fix is not None
    assert "**(" in fix.message
    (inner / "requirements.txt").write_text("torch==2.1\n")
    fix = the_only(tmp_path, "inner", "OOM102").fix
    assert fix is not None
    assert "else None" in fix.message


def test_no_mapping_goes_before_what_comes_by_position(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.13.1\n")
    fix = finding(tmp_path, "OOM102", BY_POSITION).fix
    assert fix is not None
    assert not fix.edits
    assert "**(" in fix.message


@pytest.mark.parametrize(("asked", "maps"), [("torch==2.1.0", True), ("torch==2.0.1", False), ("torch>=1.8", False)])
def test_a_file_is_mapped_where_torch_can(tmp_path: Path, asked: str, maps: bool) -> None:  # noqa: FBT001
    (tmp_path / "requirements.txt").write_text(asked)
    found = finding(tmp_path, "OOM406", LOADED)
    assert (found.fix is not None) == maps
    assert ("mmap" in found.help) == maps


SENT = """import threading

from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self):
        self.lock = threading.Lock()

    def __getitem__(self, i):
        return i

    def __len__(self):
        return 1_000


loader = DataLoader(Frames(), num_workers=2)
"""


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({}, "warning"),
        ({"requirements.txt": "torch==1.13.1\n"}, "warning"),  # on which system, nobody says
        ({"run.sh": "python train.py\n"}, "warning"),
        ({"run.sh": "python train.py\n", "requirements.txt": "torch==1.13.1\n"}, "note"),
        ({"run.sh": "python train.py\n", "requirements.txt": "torch>=2.0\n"}, "warning"),
        ({"run.sh": "python train.py\n", "environment.yml": "dependencies:\n  - python=3.8\n"}, "note"),
        ({"run.sh": "python train.py\n", "environment.yml": "dependencies:\n  - python=3.14\n"}, "warning"),
        ({"run.sh": "python train.py\n", "README.md": "    conda create -n frames python=3.9\n"}, "note"),
        ({"run.sh": "python train.py\n", "README.md": "It needs Python >= 3.9.\n"}, "warning"),
        ({"run.sh": "python train.py\n", "pyproject.toml": '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.9,<3.13"\n'}, "note"),
        ({"run.sh": "python train.py\n", "setup.py": 'setup(python_requires=">=3.9")\n'}, "warning"),
        ({"Dockerfile": "FROM python:3.11-slim\nCMD python train.py\n"}, "note"),
        ({"run.bat": "python train.py\n", "requirements.txt": "torch==1.13.1\n"}, "warning"),
    ],
)
def test_what_fails_only_when_it_is_sent_is_a_note_where_the_project_forks(files: dict[str, str], severity: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(SENT)
    settings = Settings().having(severity=Severity.NOTE)
    report = engine.run([str(tmp_path / "train.py")], settings, tmp_path, engine.RunOptions(cache=False, processes=1))
    assert [item.severity for item in report.findings if item.code == "OOM111"] == [severity]
