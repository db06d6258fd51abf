"""``oomlint verify`` as a process of its own: what is wrong with options and settings, code that misbehaves, and what is left when it is ended."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from commands import Done

from oomlint.verify import process_tree
from oomlint.verify.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.sandbox_runner import SandboxRunner

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="jobs need torch, and these tests Linux")

ROOT = Path(__file__).parent.parent
PATIENCE = 300.0  # seconds: other tests may run beside
BAD = """\
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


loader = DataLoader(Rows(), num_workers=0, persistent_workers=True)
"""
LINES = """\
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self):
        with open("rows.csv") as file:
            self.rows = [line.split(",") for line in file.readlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return len(self.rows[index])


class Makers:
    @staticmethod
    def make():
        return Lines()


if __name__ == "__main__":
    loader = DataLoader(Lines(), num_workers=2)
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """The folder for temporary files, in which nothing is to be left; nor is a process to be left that knows of it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    assert os.listdir(folder) == []
    assert process_tree.marked(str(folder)) == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.oomlint]\n")
    (folder / "data.py").write_text(BAD)
    return folder


def start(project: Path, temporary: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OOMLINT", "TORCHINDUCTOR"))}
    environment |= {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "GIT_CEILING_DIRECTORIES": str(project.parent)}
    line = [sys.executable, "-m", "oomlint", "verify", *words]
    return subprocess.Popen(line, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(project: Path, temporary: Path, *words: str) -> Done:
    with start(project, temporary, *words, "--python", sys.executable) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return Done(process.returncode, out, err)


def concise(project: Path, temporary: Path, *words: str) -> Done:
    return run(project, temporary, "--output-format", "concise", *words)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and ".oomlint_cache" not in path.parts
    }


# -- what a user names ------------------------------------------------------------------------------------------------


def test_a_factory_that_raises_is_an_error_before_any_verdict(project: Path, temporary: Path) -> None:
    with (project / "data.py").open("a") as file:
        file.write("\n\ndef make():\n    raise ValueError('no rows')\n")
    assert run(project, temporary, "--factory", "data:make") == (2, "", "oomlint: error: --factory: `data:make` raises ValueError: no rows (data.py:16)\n")


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("python -c 'import sys; sys.exit(\\\"no disk\\\")'", "exits with 1: no disk"),
        ("nowhere --all", "cannot be started: nowhere: No such file or directory"),
    ],
)
def test_a_preparation_that_fails_is_an_error_before_any_verdict(project: Path, temporary: Path, command: str, cause: str) -> None:
    (project / "pyproject.toml").write_text(f'[tool.oomlint.verify]\nprepare = "{command}"\n')
    status, out, err = run(project.parent, temporary, "--trust", "project")
    assert (status, out) == (2, "")
    assert err.startswith("oomlint: error: project: verify.prepare: `")
    assert err.endswith(f"` {cause}\n")


def test_a_factory_on_prepared_data(project: Path, temporary: Path) -> None:
    (project / "data.py").write_text(LINES)
    (project / "prepare.py").write_text("with open('rows.csv', 'w') as file:\n    file.write('some,words,of,text,here\\n' * 60_000)\n")
    (project / "pyproject.toml").write_text('[tool.oomlint.verify]\nprepare = "python prepare.py"\nfactory = "data:Makers.make"\nrepeat = 1\n')
    done = run(project, temporary, "--output-format", "json", "--no-cache", "--trust", "--select", "OOM110")
    (entry,) = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert (entry["code"], entry["verdict"]["fidelity"], entry["verdict"]["outcome"]) == ("OOM110", "your factory", "symptom shown")
    assert not (project / "rows.csv").exists()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("gone:make", "there is no module `gone`"),
        ("parts.gone:make", "there is no module `parts.gone`"),
        ("parts.broken:make", "`parts.broken` cannot be imported: SyntaxError: "),
        ("parts.makers:gone", "`parts.makers` has no `gone`"),
        ("parts.makers:LATE", "`parts.makers` has no `LATE` (line 5: FileNotFoundError: "),
        ("parts.makers:NUMBER", "`parts.makers:NUMBER` is not a function"),
        ("parts.makers:fail", "`parts.makers:fail` raises KeyError: 'rows' (parts/makers.py:9)"),
        ("parts.makers:leave", "`parts.makers:leave` raises SystemExit: no (parts/makers.py:12)"),
        ("parts.makers:nothing", "`parts.makers:nothing` gives None, and a dataset is wanted"),
        ("parts.makers:pair", "`parts.makers:pair` gives several datasets, and one is wanted"),
        ("parts.makers:loader", "`parts.makers:loader` gives a DataLoader, and a dataset is wanted"),
        ("parts.makers:stream", ""),
        ("parts.makers:numbers", ""),
        ("parts.makers:Inner.make", ""),
        ("parts.makers:in_folder", ""),
    ],
)
def test_what_is_wrong_with_a_factory(runner: SandboxRunner, tmp_path: Path, name: str, cause: str) -> None:
    makers = """
        import os
        from torch.utils.data import DataLoader, IterableDataset, TensorDataset

        LATE = open("gone.txt")
        NUMBER = 3

        def fail():
            return {}["rows"]

        def leave():
            raise SystemExit("no")

        def nothing():
            pass

        def pair():
            return TensorDataset(), TensorDataset()

        def loader():
            return DataLoader(numbers())

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))

        def stream():
            return Stream()

        def numbers():
            return [1, 2, 3]

        class Inner:
            make = staticmethod(numbers)

        def in_folder(path):
            return [os.path.isdir(path)]
        """
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").touch()
    (tmp_path / "parts" / "broken.py").write_text("x = (\n")
    (tmp_path / "parts" / "makers.py").write_text(dedent(makers))
    done = runner.run(Job("server.preflight:factory", {"name": name, "root": str(tmp_path)}, str(tmp_path)))
    assert done.failure == ""
    found = done.answer["cause"]
    assert found == cause if not cause.endswith(": ") else found.startswith(cause)


# -- code that misbehaves ---------------------------------------------------------------------------------------------


def test_a_module_that_never_ends_that_writes_and_that_calls(project: Path, temporary: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        came: list[Any] = []
        over = threading.Event()

        def wait() -> None:
            while not over.is_set():
                try:
                    came.append(listener.accept()[1])
                except TimeoutError:
                    continue

        head = f"""
            import os, socket, time

            def write():
                for name in (__file__, "beside.txt", {str(project / "data.py")!r}, {str(project / "beside.txt")!r}):
                    try:
                        with open(name, "w") as file:
                            file.write("x = 1")
                    except OSError:
                        pass

            def call():
                socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), timeout=3)

            def spin():
                while True:
                    try:
                        time.sleep(0.01)
                    except Exception:
                        pass

            A = write()
            B = call()
            C = spin()
            """
        (project / "data.py").write_text(dedent(head) + BAD)
        before = contents(project)
        thread = threading.Thread(target=wait)
        thread.start()
        try:
            done = run(project, temporary)
        finally:
            over.set()
            thread.join()
    assert (done.status, done.err) == (0, "")
    assert "OOM101 confirmed" in done.out
    assert "ConnectionRefusedError" in done.out
    assert "takes more than 2 s" in done.out
    assert came == []
    assert contents(project) == before


def test_a_command_that_writes_to_its_own_program_finds_it_anew_each_time(project: Path, temporary: Path) -> None:
    (project / "data.py").write_text("with open(__file__, 'a') as file:\n    file.write('\\nraise KeyError(1)')\n" + BAD)
    before = contents(project)
    done = concise(project, temporary, "--command", "python data.py")
    assert (done.status, done.err) == (0, "")
    assert "OOM101 confirmed: your command fails with ValueError: persistent_workers" in done.out
    assert contents(project) == before


def test_a_module_that_forks_again_and_again(project: Path, temporary: Path) -> None:
    fork = """
        import os, time

        def fork():
            for _ in range(200):
                if os.fork() == 0:
                    time.sleep(600)
                    os._exit(0)

        A = fork()
        """
    (project / "data.py").write_text(dedent(fork) + BAD)
    done = concise(project, temporary, "--strict", "--no-cache")
    assert (done.status, done.err) == (1, "")
    assert "OOM101 inconclusive: more than 64 processes" in done.out


# -- projects of all kinds --------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    person = {f"GIT_{role}_{what}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    line = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *words]
    subprocess.run(line, cwd=folder, env={**own, **person, "GIT_CONFIG_GLOBAL": os.devnull}, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_worktree_with_a_submodule_and_files_that_are_not_committed(project: Path, temporary: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    (other / "__init__.py").write_text("")
    git(other, "init", "--quiet")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "--message", "one")
    git(project, "init", "--quiet")
    git(project, "submodule", "--quiet", "add", str(other), "library")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "one")
    tree = project.parent / "tree"
    git(project, "worktree", "add", "--quiet", str(tree))
    git(tree, "submodule", "--quiet", "update", "--init")
    (tree / "library" / "late.py").write_text("x = 1\n")
    (tree / "untracked.py").write_text("from library import late\n")
    (tree / "data.py").write_text(f"import untracked\n{BAD}")
    before = contents(tree)
    done = concise(tree, temporary, "--command", "python data.py")
    assert (done.status, done.err) == (0, "")
    assert "OOM101 confirmed: your command fails with ValueError: persistent_workers" in done.out
    assert contents(tree) == before


def test_a_project_that_cannot_be_written_to(project: Path, temporary: Path) -> None:
    for path in (project / "data.py", project):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        done = concise(project, temporary)
    finally:
        project.chmod(0o755)
    assert (done.status, done.err) == (0, "")
    assert "OOM101 confirmed" in done.out


def test_two_paths_one_of_them_a_notebook_into_a_file(project: Path, temporary: Path) -> None:
    cells = [{"cell_type": "code", "source": part} for part in BAD.split("\n\n\n")]
    (project / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    done = run(project, temporary, "a.ipynb:3:1", "data.py", "--output-format", "json", "--output-file", "report.json")
    assert done == (0, "", "")
    found = [(entry["filename"].rpartition("/")[2], entry["verdict"]["outcome"]) for entry in json.loads((project / "report.json").read_text())]
    assert sorted(found) == [("a.ipynb", "confirmed"), ("data.py", "confirmed")]


# -- the end ----------------------------------------------------------------------------------------------------------


def begun(process: subprocess.Popen[str], temporary: Path) -> None:
    """Wait until it runs code of others."""
    deadline = time.monotonic() + PATIENCE
    while not process_tree.marked(f"OOMLINT_PLACE={temporary}"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("files", "number", "status", "delay"),
    [(1, signal.SIGINT, 130, 3.0), (1, signal.SIGTERM, 143, 0.0), (2, signal.SIGINT, 130, 0.0), (2, signal.SIGTERM, 143, 3.0)],
    ids=["one process, interrupted", "one process, terminated at its start", "several, interrupted at their start", "several, terminated"],
)
def test_ended_in_the_middle(project: Path, temporary: Path, files: int, number: signal.Signals, status: int, delay: float) -> None:
    spin = "while len(str()) < 1:\n    pass\n"  # behind `while True` nothing is found
    for name in ("data.py", "more.py")[:files]:
        (project / name).write_text(spin.replace("pass", "x = 1") + BAD)
    with start(project, temporary, "--python", sys.executable, "--command", f"python -c '{spin}'", "--no-cache") as process:
        begun(process, temporary)
        time.sleep(delay)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (status, "", "")


def test_killed_it_takes_all_with_it(project: Path, temporary: Path) -> None:
    (project / "more.py").write_text(BAD)
    with start(project, temporary, "--python", sys.executable, "--command", "python -c 'while True: pass'", "--no-cache") as process:
        begun(process, temporary)
        process.kill()
        process.communicate(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while (os.listdir(temporary) or process_tree.marked(str(temporary))) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_reader_that_has_had_enough(project: Path, temporary: Path) -> None:
    with start(project, temporary, "--python", sys.executable) as process:
        assert process.stdout
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (141, "")


def test_an_interpreter_that_is_none(project: Path, temporary: Path) -> None:
    with start(project, temporary, "--python", shutil.which("true") or "") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert "is no Python that jobs can be run with" in err
