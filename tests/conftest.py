"""What several test files share: a process that runs programs with torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNER: Final = Path(__file__).parent / "run_programs.py"
LIMIT: Final = 60  # seconds for one program
ONE_THREAD: Final = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}


class Run(Protocol):
    """Runs files in folders at the same time, and says what each has come to: see tests/run_programs.py."""

    def __call__(self, *programs: tuple[Path, str], limit: float = LIMIT) -> list[dict[str, Any]]: ...


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Each program runs in a fork of one process, which has imported torch."""
    if not all(map(importlib.util.find_spec, ("torch", "numpy"))):
        pytest.skip("programs are run with torch and numpy: pip install -c constraints.txt -e '.[verify]'")
    if not hasattr(os, "fork"):
        pytest.skip("programs are run in forks, which this system has not")
    environment = {**os.environ, **ONE_THREAD, "PYTHONHASHSEED": "0"}
    with subprocess.Popen([sys.executable, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        asked, answers = server.stdin, server.stdout
        assert asked
        assert answers

        def ask(*programs: tuple[Path, str], limit: float = LIMIT) -> list[dict[str, Any]]:
            print(json.dumps({"programs": [(str(folder), file) for folder, file in programs], "limit": limit}), file=asked, flush=True)
            line = answers.readline()
            assert line, "tests/run_programs.py has ended; standard error says why"
            outcomes: list[dict[str, Any]] = json.loads(line)
            return outcomes

        yield ask
        asked.close()
