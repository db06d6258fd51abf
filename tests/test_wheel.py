"""What is built and installed works: the wheel and the sdist, in empty environments, under each interpreter that is there."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from oomlint.cli.version import COMMIT, checked_out

ROOT: Final = Path(__file__).parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")  # those that pyproject.toml names
FIXTURE: Final = ROOT / "fixtures" / "incidents" / "voxel_colab"
LIMIT: Final = 300  # seconds


def interpreter(version: str) -> str | None:
    """An interpreter of that version: this one, one in PATH, or one of pyenv."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    folder = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    there = [*sorted(glob.glob(os.path.join(folder, "versions", f"{version}.*", "bin", "python"))), shutil.which(f"python{version}")]
    # A shim of pyenv is there also where the version that it stands for is not.
    works = (each for each in there if each and subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0)
    return next(works, None)


def call(*words: str | Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}} | more
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)


def has_index(folder: Path) -> bool:
    """Whether packages can be fetched."""
    return call(sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "hatchling", folder=folder).returncode == 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the sdist as an installer does, and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"oomlint"}
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "oomlint").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {name for name in names if name.startswith("oomlint/")} == wanted | ({f"oomlint/{COMMIT}"} if (ROOT / ".git").exists() else set())


def test_the_sdist_has_what_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "tests/conftest.py", "skills/oomlint/SKILL.md"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".git/", ".venv"))]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_checks_a_project(version: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    made = call(python, "-m", "venv", "--without-pip", tmp_path / "venv", folder=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    place = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    # An environment without pip is made in a tenth of the time, and most of what is compiled would not be used.
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", place / "python")
    installed = call(*pip, "install", "--no-compile", built[0], folder=tmp_path)
    if installed.returncode and not has_index(tmp_path):
        pytest.skip("the package index cannot be reached, from which oomlint's dependencies are installed")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    project = shutil.copytree(FIXTURE, tmp_path / "project")
    done = call(place / "oomlint", "check", "--select", "OOM101", "--output-format", "json", ".", folder=project)
    assert (done.returncode, done.stderr) == (1, "")
    commit = checked_out(str(ROOT))
    assert call(place / "oomlint", "--version", folder=project).stdout.endswith(f" ({commit[:9]})\n" if commit else "\n")
    assert [(each["code"], each["filename"]) for each in json.loads(done.stdout)] == [("OOM101", "data/mesh_dataset.py")]
    assert call(place / "oomlint", "rule", "OOM101", folder=project).returncode == 0
    for command, extra in (("server", "lsp"), ("mcp", "mcp")):
        done = call(place / "oomlint", command, folder=project)
        assert done.returncode == 2
        assert f"pip install 'oomlint[{extra}]'" in done.stderr


@pytest.mark.parametrize("installer", ["uvx", "pipx"])
def test_the_wheel_runs_as_a_tool(installer: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    """As the README has it: without an environment that the user has made."""
    program = shutil.which(installer, path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
    if program is None:
        pytest.skip(f"there is no {installer}: it comes with the group dev of pyproject.toml")
    folders = {"UV_CACHE_DIR": "cache", "UV_TOOL_DIR": "tools", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
    environment = {name: str(tmp_path / folder) for name, folder in folders.items()} | {"UV_PYTHON": sys.executable, "PIPX_DEFAULT_PYTHON": sys.executable}
    project = shutil.copytree(FIXTURE, tmp_path / "project")
    begin: list[str | Path] = [program, "--from", built[0], "oomlint"]
    if not has_index(tmp_path):
        pytest.skip("the package index cannot be reached, from which oomlint's dependencies are installed")
    if installer == "pipx":
        installed = call(program, "install", built[0], folder=tmp_path, **environment)
        assert installed.returncode == 0, installed.stdout + installed.stderr
        begin = [tmp_path / "bin" / "oomlint"]
    done = call(*begin, "check", "--select", "OOM101", "--output-format", "json", ".", folder=project, **environment)
    assert done.returncode == 1, done.stderr
    assert [each["code"] for each in json.loads(done.stdout)] == ["OOM101"]
