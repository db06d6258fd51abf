"""Jobs run in copies that are as the project is; the project itself is read and never touched."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from oomlint.source import SourceError
from oomlint.verify.case import Part
from oomlint.verify.copier import LARGE, listed
from oomlint.verify.project_copy import Base, Trees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEFORE, AFTER = Part.BEFORE, Part.AFTER


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "train.py": "import package.model\n",
        "package/__init__.py": "",
        "package/model.py": "x = 1\n",
        "run.sh": "#!/bin/sh\n",
        "data/small.csv": "1,2\n",
        "data/large.bin": "x" * (LARGE + 1),
        "logs/old.txt": "old\n",
        "build/made.py": "y = 1\n",
        ".venv/pyvenv.cfg": "",
        ".venv/lib/thing.py": "",
        "conda/conda-meta/history": "",
        "node_modules/thing.js": "",
        "__pycache__/train.pyc": "",
        ".git/HEAD": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "empty").mkdir()
    (root / "run.sh").chmod(0o755)
    (tmp_path / "elsewhere.py").write_text("z = 1\n")
    os.symlink("package/model.py", root / "alias.py")
    os.symlink("../elsewhere.py", root / "other.py")
    os.symlink("nowhere", root / "dead")
    return root


@pytest.fixture
def base(project: Path) -> Iterator[Base]:
    before = state(project)
    with Base(str(project)) as made:
        yield made
    assert not os.path.exists(made.place)
    assert state(project) == before, "the project was touched"


def state(root: Path) -> dict[str, tuple[int, int, int, int]]:
    found = {}
    for folder, _, files in os.walk(root):
        for name in files:
            about = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return found


def shown(folder: str) -> dict[str, str]:
    """Every file below a folder: its content, or what it links to."""
    found = {}
    for current, folders, files in os.walk(folder):
        for name in [*files, *folders]:
            path = os.path.join(current, name)
            relative = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[relative] = f"-> {os.readlink(path)}"
            elif name in files:
                with open(path, encoding="utf-8") as file:
                    found[relative] = file.read()
            elif not os.listdir(path):
                found[relative] = "empty"
    return found


def test_small_files_are_copied_and_large_ones_linked(base: Base, project: Path) -> None:
    folder = Trees(base, {}).folder(BEFORE)
    assert os.path.basename(folder) == "project"
    assert shown(folder) == {
        "train.py": "import package.model\n",
        "package/__init__.py": "",
        "package/model.py": "x = 1\n",
        "run.sh": "#!/bin/sh\n",
        "data/small.csv": "1,2\n",
        "data/large.bin": f"-> {project / 'data/large.bin'}",
        "logs/old.txt": "old\n",
        "build": f"-> {project / 'build'}",
        "empty": "empty",
        "alias.py": "-> package/model.py",
        "other.py": f"-> {project / '../elsewhere.py'}",
        "dead": "-> nowhere",
    }
    assert os.access(os.path.join(folder, "run.sh"), os.X_OK)
    with open(os.path.join(folder, "other.py"), encoding="utf-8") as file:
        assert file.read() == "z = 1\n"


def test_before_and_after_differ_by_the_fix(base: Base, project: Path) -> None:
    model = str(project / "package" / "model.py")
    trees = Trees(base, {model: (b"x = 1\n", b"x = 2\n")})
    folders = {part: trees.folder(part) for part in Part}
    before, after = shown(folders[BEFORE]), shown(folders[AFTER])
    assert {name for name in before if before[name] != after[name]} == {"package/model.py"}
    assert after["package/model.py"] == "x = 2\n"
    assert len(folders[BEFORE]) == len(folders[AFTER])
    assert trees.program(AFTER, model) == os.path.join(folders[AFTER], "package/model.py")


def test_the_next_case_finds_the_project_as_it_is(base: Base, project: Path) -> None:
    train, model = str(project / "train.py"), str(project / "package" / "model.py")
    with Trees(base, {train: (b"one", b"two"), model: (b"x = 1\n", b"x = 3\n")}) as trees:
        first = shown(trees.folder(BEFORE)), shown(trees.folder(AFTER))
    assert (first[0]["train.py"], first[1]["train.py"], first[1]["package/model.py"]) == ("one", "two", "x = 3\n")
    with Trees(base, {model: (b"x = 1\n", b"x = 4\n")}) as trees:
        second = shown(trees.folder(BEFORE)), shown(trees.folder(AFTER))
    assert second[0]["train.py"] == second[1]["train.py"] == "import package.model\n"
    assert second[1]["package/model.py"] == "x = 4\n"


def test_what_a_job_has_written_is_undone(base: Base, project: Path) -> None:
    trees = Trees(base, {str(project / "train.py"): (b"one", b"two")})
    folder = trees.folder(AFTER)
    was = shown(folder)
    paths = {name: os.path.join(folder, name) for name in ("train.py", "data/small.csv", "package", "logs", "new", "run.sh", "alias.py", "data/large.bin")}
    with open(paths["train.py"], "a", encoding="utf-8") as file:
        file.write("more")
    times = os.stat(paths["data/small.csv"])
    with open(paths["data/small.csv"], "w", encoding="utf-8") as file:
        file.write("3,4\n")
    os.utime(paths["data/small.csv"], ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(paths["package"], paths["new"])
    os.remove(os.path.join(paths["logs"], "old.txt"))
    os.chmod(paths["logs"], 0)
    os.chmod(paths["run.sh"], 0o600)
    os.remove(paths["alias.py"])
    os.makedirs(os.path.join(paths["alias.py"], "deep", "er"))
    os.remove(paths["data/large.bin"])
    assert shown(trees.folder(AFTER)) == was
    assert os.access(os.path.join(folder, "run.sh"), os.X_OK)


def test_what_is_written_to_the_pristine_copy_every_case_finds(base: Base) -> None:
    with open(os.path.join(base.folder, "prepared.txt"), "w", encoding="utf-8") as file:
        file.write("yes")
    trees = Trees(base, {})
    assert shown(trees.folder(BEFORE))["prepared.txt"] == shown(trees.folder(AFTER))["prepared.txt"] == "yes"


def test_the_data_of_the_user_are_gone_for_a_while(base: Base) -> None:
    trees = Trees(base, {})
    was = shown(trees.folder(BEFORE))
    data = {"data/small.csv", "data/large.bin"}
    with trees.without_data():
        folder = trees.folder(BEFORE)
        assert was.keys() - shown(folder).keys() == data
        with open(os.path.join(folder, "data", "small.csv"), "w", encoding="utf-8") as file:
            file.write("5,6\n")
        assert was.keys() - shown(trees.folder(BEFORE)).keys() == data
    assert shown(trees.folder(BEFORE)) == was


def test_a_notebook_becomes_a_program_beside_it(base: Base, project: Path) -> None:
    def notebook(*cells: str) -> bytes:
        found: list[dict[str, object]] = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
        return json.dumps({"cells": found, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()

    path = project / "sub.ipynb"
    trees = Trees(base, {str(path): (notebook("%pip install x\na = 1"), notebook("a = 2"))})
    for part, number in ((BEFORE, "1"), (AFTER, "2")):
        program = trees.program(part, str(path))
        assert program == os.path.join(trees.folder(part), "sub_ipynb.py")
        with open(program, encoding="utf-8") as file:
            text = file.read()
        compile(text, program, "exec")
        assert f"a = {number}" in text
    with pytest.raises(SourceError):
        Trees(base, {}).program(BEFORE, str(project / "gone.ipynb"))


def test_a_file_that_was_linked_or_left_out_can_be_changed(base: Base, project: Path) -> None:
    made, thing = str(project / "build" / "made.py"), str(project / ".venv" / "lib" / "thing.py")
    trees = Trees(base, {made: (b"y = 1\n", b"y = 2\n"), thing: (b"", b"z = 2\n")})
    after = shown(trees.folder(AFTER))
    assert (after["build/made.py"], after[".venv/lib/thing.py"]) == ("y = 2\n", "z = 2\n")
    assert (project / "build" / "made.py").read_text() == "y = 1\n"
    assert Trees(base, {}).program(AFTER, made).endswith("new/project/build/made.py")


def test_a_file_from_elsewhere_has_its_place(base: Base, project: Path) -> None:
    other = str(project.parent / "elsewhere.py")
    trees = Trees(base, {other: (b"z = 1\n", b"z = 2\n")})
    with open(trees.program(AFTER, other), encoding="utf-8") as file:
        assert file.read() == "z = 2\n"


def test_folders_full_of_data_are_linked(project: Path) -> None:
    for name, suffix in (("images", "png"), ("many", "py")):
        (project / name).mkdir()
        for number in range(600):
            (project / name / f"{number}.{suffix}").touch()
    with Base(str(project)) as base:
        folder = Trees(base, {}).folder(BEFORE)
        assert os.path.islink(os.path.join(folder, "images"))
        assert len(os.listdir(os.path.join(folder, "many"))) == 600


def test_kept_trees_stay_one_pair_for_a_case(project: Path) -> None:
    keep = project / "kept"
    with Base(str(project), str(keep)) as base:
        for number in (1, 2):
            trees = Trees(base, {str(project / "train.py"): (b"", f"{number}".encode())})
            trees.folder(BEFORE)
            trees.folder(AFTER)
    assert sorted(path.relative_to(keep).as_posix() for path in keep.rglob("train.py")) == [
        "001/new/project/train.py", "001/old/project/train.py", "002/new/project/train.py", "002/old/project/train.py",
    ]  # fmt: skip
    assert (keep / "002/new/project/train.py").read_text() == "2"


# -- in a repository --------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    root = tmp_path / "repository"
    for name, text in {
        ".gitignore": "data/\n*.log\n",
        "dist/package/a.py": "a = 1\n",
        "data/x.csv": "1\n",
        "data/deep/y.csv": "2\n",
        "run.log": "log\n",
        "new.py": "b = 1\n",
        "gone.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    try:
        for words in (["init", "-q"], ["add", "dist", "gone.py", ".gitignore"]):
            subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    except OSError:
        pytest.skip("no git here")
    (root / "gone.py").unlink()
    return root


def test_a_repository_says_what_belongs_to_it(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(str(repository)) == {".gitignore", "dist/package/a.py", "new.py", "gone.py"}
    assert listed(str(repository / "dist")) == {"package/a.py"}
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    assert listed(str(repository)) is not None
    monkeypatch.setenv("PATH", "")
    assert listed(str(repository)) is None


@pytest.mark.parametrize("git", [True, False], ids=["with git", "without git"])
def test_ignored_data_is_found_too(repository: Path, monkeypatch: pytest.MonkeyPatch, git: bool) -> None:  # noqa: FBT001
    if not git:
        monkeypatch.setenv("PATH", "")
    with Base(str(repository)) as base:
        found = shown(Trees(base, {}).folder(BEFORE))
    expected = {".gitignore": "data/\n*.log\n", "data/x.csv": "1\n", "data/deep/y.csv": "2\n", "run.log": "log\n", "new.py": "b = 1\n"}
    expected |= {"dist/package/a.py": "a = 1\n"} if git else {"dist": f"-> {repository / 'dist'}"}
    assert found == expected


def test_a_hook_of_the_repository_is_not_run(repository: Path) -> None:
    witness = repository.parent / "witness"
    hook = repository / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {witness}\n")
    hook.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(hook)], cwd=repository, check=True)
    assert listed(str(repository))
    assert not witness.exists()
