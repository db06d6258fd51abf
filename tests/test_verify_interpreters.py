"""The interpreter that jobs run under: which it is, why one cannot be used, and that nothing of it outlives us."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oomlint.verify import interpreters, process_tree
from oomlint.verify.jobs import SandboxError
from oomlint.verify.sandbox_runner import SandboxRunner

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="jobs need torch, and these tests Linux")

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0  # seconds: other tests may run beside


def test_the_interpreter_is_the_one_with_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").touch()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "train.py"], check=True)
    told: list[str] = []

    def interpreter(root: str) -> str:
        return interpreters.interpreter(root, told.append)

    assert interpreter(str(tmp_path)) == sys.executable
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert interpreter(str(tmp_path)) == sys.executable
    (tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "torch").mkdir(parents=True)
    assert interpreter(str(tmp_path)) == str(python)
    shutil.move(tmp_path / "venv", tmp_path / "other")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    assert interpreter(str(tmp_path)) == str(tmp_path / "other" / "bin" / "python")
    assert told == []


def refused(python: str) -> str:
    with pytest.raises(SandboxError) as caught:
        SandboxRunner(python)
    message = str(caught.value)
    assert "\n" not in message
    return message


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    assert refused(str(tmp_path / "gone")) == f"there is no interpreter {tmp_path / 'gone'}"
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert refused(str(plain)) == f"{plain} is not executable"
    plain.chmod(0o755)
    assert refused(str(plain)) == f"{plain} cannot be started: Exec format error"
    python = script(tmp_path, "echo what do you want")
    assert refused(python) == f"{python} is no Python that jobs can be run with: what do you want"
    assert refused(script(tmp_path, "exit 9")) == f"{python} is no Python that jobs can be run with: it ended with status 9"
    assert (
        refused(script(tmp_path, f"exec {sys.executable} -c 'import os, sys; os.write(int(sys.argv[4]), b\"hello\\n\")' $@"))
        == f"{python}: an answer that makes no sense"
    )


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    how = "install it there (the extra `verify` of oomlint brings it), or name another interpreter: `oomlint verify --python`, or the setting `verify.python`"
    assert refused(str(python)) == f"no torch in {python}: {how}"
    assert refused(str(tmp_path / "empty")) == f"no torch in {python}: {how}"
    library = next((tmp_path / "empty" / "lib").iterdir()) / "site-packages" / "torch"
    library.mkdir()
    (library / "__init__.py").write_text("import ctypes\nctypes.CDLL('libcudart.so.99')\n")
    assert refused(str(python)).startswith(f"{python}: torch cannot be imported: OSError: libcudart.so.99")


def test_an_interpreter_that_is_too_old(tmp_path: Path) -> None:
    program = "import sys, runpy; sys.version_info = (3, 8, 18); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    python = script(tmp_path, f'shift; exec {sys.executable} -c "{program}" "$@"')
    assert refused(python) == f"{python}: Python 3.8 is too old: jobs need 3.10 or newer"


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9"])
def test_real_interpreters_that_are_too_old(version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-V"], capture_output=True, check=False).returncode:
        pytest.skip("not here")
    assert refused(python) == f"{python}: Python {version} is too old: jobs need 3.10 or newer"


# -- when we are ended ourselves ------------------------------------------------------------

MAIN = """
import sys
from oomlint.verify.jobs import Job, Limits
from oomlint.verify.sandbox.view import SandboxView
from oomlint.verify.sandbox_runner import SandboxRunner
with SandboxRunner(unsandboxed=True, view=SandboxView(writable=(sys.argv[2],))) as runner:
    print(runner.place, flush=True)
    runner.run(Job("loading.run_script:run", {"path": sys.argv[1]}, sys.argv[2], Limits(seconds=60)))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_when_we_are_ended(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, time\nos.fork()\nos.setsid() if os.fork() == 0 else None\nopen('started', 'a').close()\ntime.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, program, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        place = process.stdout.readline().strip()
        wait_for(lambda: os.path.exists(tmp_path / "started"))
        assert len(process_tree.marked(place)) > 2
        process.send_signal(number)
        process.wait(PATIENCE)
    wait_for(lambda: not process_tree.marked(place))
    wait_for(lambda: not os.path.exists(place))


def wait_for(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
