"""What several test files share: a process that runs programs with torch."""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest
from hypothesis import HealthCheck, settings
from rule_cases import looks

from oomlint.verify.sandbox.view import SandboxView
from oomlint.verify.sandbox_runner import SandboxRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rule_cases import Look

QUICK: Final = frozenset(
    "baseline beside causes config discovery engine fixing formats ignoring layers mistakes options plugins preview project "
    "registry rules scout source suppress syntax weight".split()
)
SLOW: Final = frozenset(  # tests in the same files
    "test_the_scout_hides_nothing test_all_of_the_incidents_are_silenced test_the_examples_are_typed test_what_it_finds_can_be_verified "
    "test_findings_do_not_depend_on_how_many_trees_are_kept".split()
)
EVERY: Final = 20  # of the tests of fixtures, one in so many is quick
PACKAGE: Final = Path(__file__).parent.parent / "oomlint"
RUNNER: Final = Path(__file__).parent / "run_programs.py"
READER: Final = Path(__file__).parent / "run_datasets.py"
LIMIT: Final = 60  # seconds for one program
ONE_THREAD: Final = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}

# A busy machine is no failure.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell has what it starts in the background ignore interrupts, and the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run(Protocol):
    """Runs files in folders at the same time, and says what each has come to: see tests/run_programs.py."""

    def __call__(self, *programs: tuple[Path, str], limit: float = LIMIT) -> list[dict[str, Any]]: ...


class Read(Protocol):
    """Builds the datasets of programs and reads their samples: see tests/run_datasets.py."""

    def __call__(self, **wanted: Any) -> dict[str, Any]: ...


@contextlib.contextmanager
def server(script: Path, *libraries: str) -> Iterator[Callable[[Any], Any]]:
    """A process that has imported torch and answers lines of JSON."""
    if not all(map(importlib.util.find_spec, libraries)):
        pytest.skip(f"programs are run with {', '.join(libraries)}: pip install -c constraints.txt -e '.[verify]'")
    if not hasattr(os, "fork"):
        pytest.skip("programs are run in forks, which this system has not")
    environment = {**os.environ, **ONE_THREAD, "PYTHONHASHSEED": "0"}
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        asked, answers = process.stdin, process.stdout
        assert asked
        assert answers

        def ask(wanted: Any) -> Any:
            print(json.dumps(wanted), file=asked, flush=True)
            line = answers.readline()
            assert line, f"{script.name} has ended; standard error says why"
            return json.loads(line)

        yield ask
        asked.close()


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package: many processes are started, and those of the verifier, which write no bytecode, would compile it again each time."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(PACKAGE, quiet=2)


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Each program runs in a fork of one process, which has imported torch."""
    with server(RUNNER, "torch", "numpy") as ask:

        def runs(*programs: tuple[Path, str], limit: float = LIMIT) -> list[dict[str, Any]]:
            outcomes: list[dict[str, Any]] = ask({"programs": [(str(folder), file) for folder, file in programs], "limit": limit})
            return outcomes

        yield runs


@pytest.fixture(scope="session")
def read() -> Iterator[Read]:
    """Each request is worked on in a fork of one process, which has imported torch."""
    with server(READER, "torch", "numpy", "h5py") as ask:

        def reads(**wanted: Any) -> dict[str, Any]:
            answer: dict[str, Any] = ask(wanted)
            return answer

        yield reads


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what takes little time: the engines, and some of the fixtures of each rule")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    stem = collection_path.stem
    return True if config.getoption("quick") and stem.startswith("test_") and stem.removeprefix("test_") not in QUICK else None


def keep_quick(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most tests of fixtures: of each function one in so many stays, be it what it will."""
    counts: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        function = getattr(item, "originalname", item.name)
        of_many = item.path.stem == "test_rules" and counts[function] % EVERY
        (left if of_many or function in SLOW else kept).append(item)
        counts[function] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests stay with one process where there are several: those of a file that share what is costly to set up, and those of a rule's fixtures."""
    if config.getoption("quick"):
        keep_quick(config, items)
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if any(found[-1].scope == "module" for found in item._fixtureinfo.name2fixturedefs.values()):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
        elif "look" in item.fixturenames:
            codes = [value.parent.name if isinstance(value, Path) else getattr(value, "code", value) for value in item.callspec.params.values()]
            item.add_marker(pytest.mark.xdist_group(next((code for code in codes if isinstance(code, str) and code.startswith("OOM")), item.path.name)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where groups are lost, nothing fails, and each process sets up again what is costly."""
    if session.config.getoption("loadgroup", default=False):
        lost = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        assert not lost, f"this pytest-xdist does not see groups of this pytest: {lost[0]}"


@pytest.fixture(autouse=True)
def nobody(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the user of this machine has configured or allowed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "nobody"))


@pytest.fixture(scope="session")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """Each fixture of a rule is checked once, for all tests that fix nothing, or first want to know what there is to fix."""
    return looks(tmp_path_factory)


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxRunner]:
    """Runs jobs under this interpreter: its server imports torch once, and forks. A test has its files below one folder, which jobs may be told to run in."""
    with SandboxRunner(sys.executable, unsandboxed=True, view=SandboxView(writable=(str(tmp_path_factory.getbasetemp()),))) as opened:
        yield opened
