"""What a process is, what its cgroup says, what devices hold, and what scripts mark: read right, also from systems that are not this one."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from oomlint import cgroups
from oomlint.config import Settings
from oomlint.projects import Projects
from oomlint.trace import deepening, devices, scripts
from oomlint.trace.marks import VARIABLE, watch
from oomlint.trace.reading import Linux, ProcessReader, promote
from oomlint.trace.roles import About, role_of, script_of
from oomlint.trace.timeline import MOST_SAMPLES, Process, ProcessFigures, ProcessRole, TimelineSample, Trace
from oomlint.verify import process_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
TRAIN: Final = ("python", "train.py")
SPAWNED: Final = (
    "/usr/bin/python3.12",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
)
SERVER: Final = ("/usr/bin/python3.12", "-c", "from multiprocessing.forkserver import main; main(7, 8, ['__main__'])")
TRACKER: Final = ("/usr/bin/python3.12", "-c", "from multiprocessing.resource_tracker import main;main(16)")


@pytest.mark.parametrize(
    ("process", "parent", "wanted"),
    [
        (About(TRAIN), About(("bash",)), (ProcessRole.OTHER, "", None)),
        (About(TRAIN), About(TRAIN), (ProcessRole.WORKER, "fork", None)),
        (About(("bash", "run.sh")), About(("bash", "run.sh")), (ProcessRole.OTHER, "", None)),
        (About(SPAWNED), About(TRAIN), (ProcessRole.WORKER, "spawn", None)),
        (About(SERVER), About(TRAIN), (ProcessRole.HELPER, "", None)),
        (About(SERVER), About(SERVER), (ProcessRole.WORKER, "forkserver", None)),
        (About(TRACKER), About(TRAIN), (ProcessRole.HELPER, "", None)),
        (About(("train",), "pt_data_worker"), About(("train",)), (ProcessRole.WORKER, "fork", None)),
        (About(TRAIN, "", {"RANK": "3"}), About(("python", "/usr/bin/torchrun")), (ProcessRole.RANK, "", 3)),
        (About(TRAIN, "", {"RANK": "3"}), About(TRAIN, "", {"RANK": "3"}), (ProcessRole.WORKER, "fork", None)),
        (About(TRAIN, "", {"SLURM_PROCID": "0"}), About((), "", {"SLURM_PROCID": "0"}), (ProcessRole.OTHER, "", None)),
    ],
)
def test_roles(process: About, parent: About, wanted: object) -> None:
    assert role_of(process, parent) == wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("python train.py --epochs 3", ("train.py", "")),
        ("python3.12 -u -X dev train.py", ("train.py", "")),
        ("/opt/bin/python -m pack.train --lr 1", ("", "pack.train")),
        ("python -c 'print()'", ("", "")),
        ("python", ("", "")),
        ("bash train.sh", ("", "")),
    ],
)
def test_scripts(words: str, wanted: tuple[str, str]) -> None:
    assert script_of(words.split(" ")) == wanted


def test_the_main_process_is_the_one_that_holds_most() -> None:
    trace = Trace(("sh",), "/")
    trace.processes = [
        Process(1, 0, 0, 1, ("sh", "run.sh"), highest=10**9),
        Process(2, 1, 0, 1, TRAIN, highest=10**8),
        Process(3, 1, 0, 1, ("python", "log.py"), highest=10**7),
        Process(4, 2, 0, 1, TRAIN, role=ProcessRole.WORKER, start_method="fork"),
    ]
    promote(trace)
    assert [each.role for each in trace.processes] == [ProcessRole.OTHER, ProcessRole.MAIN, ProcessRole.OTHER, ProcessRole.WORKER]
    assert [trace.name(index) for index in range(4)] == ["sh", "main process", "python", "worker 0"]
    trace.processes += [Process(5, 2, 0, 1, SERVER, role=ProcessRole.HELPER), Process(6, 2, 0, 1, TRACKER, role=ProcessRole.HELPER)]
    assert [trace.name(index) for index in (4, 5)] == ["forkserver", "resource tracker"]


def test_spawned_processes_with_workers_of_their_own_are_ranks() -> None:
    trace = Trace(("python",), "/")
    trace.processes = [
        Process(1, 0, 0, 1, TRAIN),
        Process(2, 1, 0, 1, SPAWNED, role=ProcessRole.WORKER, start_method="spawn", slot=0),
        Process(3, 1, 0, 1, SPAWNED, role=ProcessRole.WORKER, start_method="spawn", slot=1),
        Process(4, 2, 0, 1, SPAWNED, role=ProcessRole.WORKER, start_method="fork"),
        Process(5, 3, 0, 1, SPAWNED, role=ProcessRole.WORKER, start_method="fork"),
    ]
    promote(trace)
    assert [trace.name(index) for index in range(5)] == ["python", "rank 0", "rank 1", "worker 0 of rank 0", "worker 0 of rank 1"]


def test_a_trace_of_days_stays_small() -> None:
    trace = Trace(("x",), "/", processes=[Process(1, 0, 0, 1)])
    for number in range(5 * MOST_SAMPLES):
        trace.add(TimelineSample(float(number), {0: ProcessFigures(10**9 if number == 777 else number, 0, 0, 0, 0, 3)}))
    assert len(trace.samples) <= MOST_SAMPLES
    assert max(sample.total for sample in trace.samples) == 10**9
    assert trace.peak is not None
    assert trace.peak.at == 777
    assert trace.samples[-1].at == 5 * MOST_SAMPLES - 1
    assert [sample.at for sample in trace.samples] == sorted(sample.at for sample in trace.samples)


# -- cgroups -----------------------------------------------------------------------------------------------------------


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def fake(tmp_path: Path, line: str) -> tuple[str, str]:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(line)
    return str(tmp_path / "cgroup"), str(tmp_path / "proc")


def test_a_cgroup_of_version_2(tmp_path: Path) -> None:
    root, proc = fake(tmp_path, "0::/job/step\n")
    write(tmp_path / "cgroup" / "job", memory__current=9, memory__max=4096)
    write(tmp_path / "cgroup" / "job" / "step", memory__current=1024, memory__max="max", memory__peak=2048, memory__events="low 0\noom 3\noom_kill 2")
    group = cgroups.group_of(7, root, proc)
    assert group is not None
    assert (group.version, group.current(), group.peak(), group.limit(), group.kills()) == (2, 1024, 2048, 4096, 2)


def test_a_cgroup_of_version_1(tmp_path: Path) -> None:
    root, proc = fake(tmp_path, "5:cpu,memory:/docker/abc\n0::/\n")
    write(tmp_path / "cgroup" / "memory", memory__usage_in_bytes=5, memory__limit_in_bytes=9223372036854771712, memory__oom_control="oom_kill 1")
    outside = cgroups.group_of(7, root, proc)  # in a container the path is one of the host
    assert outside is not None
    assert (outside.version, outside.current(), outside.limit(), outside.kills()) == (1, 5, None, 1)


def test_no_cgroup(tmp_path: Path) -> None:
    root, proc = fake(tmp_path, "0::/\n")
    assert cgroups.group_of(7, root, proc) is None
    assert cgroups.group_of(8, root, proc) is None
    assert cgroups.machine_kills(proc) == 0
    assert cgroups.machine_memory(proc) is None


class FakeSystem:
    """Processes that are what the test says."""

    measure = "PSS"

    def __init__(self) -> None:
        self.alive: dict[int, ProcessFigures] = {}

    def below(self) -> list[int]:
        return list(self.alive)

    def begun(self, pid: int) -> float:
        return float(pid)

    def about(self, pid: int) -> About:
        return About((*TRAIN, str(pid)))

    def parent(self, pid: int) -> int:
        return 1 if pid == 7 else 7

    def ended_by(self, pid: int) -> int:
        return 9 if pid == 8 else 0

    def figures(self, pid: int) -> tuple[ProcessFigures, int]:
        return self.alive[pid], 0

    def update(self, pid: int, figures: ProcessFigures) -> tuple[ProcessFigures, int]:
        return (figures, 0) if pid in self.alive else (held(0), 0)


def held(size: int) -> ProcessFigures:
    return ProcessFigures(size, 0, size, size, size, 3)


def test_a_light_reading_takes_no_more_off_than_was_the_process_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 900 MB, 600 are shared with two forked workers, so 500 count: 300 of its own, and 200."""
    before = ProcessFigures(500, 0, 300, 900, 950, 3)
    truth = ProcessFigures(430, 0, 300, 690, 740, 3)  # what a full reading would find
    now = {"mapped": 0}
    monkeypatch.setattr(process_tree, "in_memory", lambda _: (now["mapped"] + 50, now["mapped"]))
    monkeypatch.setattr(process_tree, "descriptors", lambda _: 3)
    monkeypatch.setattr(process_tree, "highest", lambda _: 950)
    system = Linux()
    monkeypatch.setattr(system, "figures", lambda _: (truth, 950))
    for mapped, wanted in {1000: (600, 400), 700: (300, 100), 600: (200, 0), 500: (430, 300), 0: (430, 300)}.items():
        now["mapped"] = mapped
        found, _ = system.update(7, before)
        assert (found.anonymous, found.dirty) == wanted, mapped


@pytest.mark.parametrize("by", ["cgroup", "machine"])
def test_a_kill_by_the_oom_killer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    root, proc = fake(tmp_path, "0::/job\n")
    write(tmp_path / "cgroup" / "job", memory__current=500, memory__max=1000, memory__events="oom_kill 4")
    (tmp_path / "proc" / "vmstat").write_text("oom_kill 10\n")
    group_of, machine_kills = cgroups.group_of, cgroups.machine_kills
    monkeypatch.setattr(cgroups, "group_of", lambda pid: group_of(pid, root, proc))
    monkeypatch.setattr(cgroups, "machine_kills", lambda: machine_kills(proc))
    trace, system = Trace(("x",), "/"), FakeSystem()
    reader = ProcessReader(trace, system, 7)
    system.alive = {7: held(100), 8: held(300)}
    trace.add(reader.read(0.0))
    assert not trace.kills
    if by == "cgroup":
        write(tmp_path / "cgroup" / "job", memory__events="oom_kill 5")
    else:
        (tmp_path / "proc" / "vmstat").write_text("oom_kill 11\n")
    del system.alive[8]
    trace.add(reader.read(1.0))
    assert [(kill.by, kill.count, kill.gone, kill.before.total) for kill in trace.kills] == [(by, 1, (1,), 400)]
    assert (trace.group_limit, trace.group_most) == (1000, 500)
    assert [each.signal for each in trace.processes] == [0, 9]
    system.alive = {}
    reader.gone(2.0)
    assert len(trace.kills) == 1  # the rest has ended by itself


# -- devices -----------------------------------------------------------------------------------------------------------


class FakeNvml:
    """As much of NVML as is asked for: one device, whose processes the test names."""

    def __init__(self, processes: Sequence[tuple[int, int]], used: int) -> None:
        self.processes, self.used = processes, used

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = number + 1
        return 0

    def nvmlDeviceGetName(self, _: object, text: Any, size: int) -> int:  # noqa: N802
        text.value = b"Fake 9000"[: size - 1]
        return 0

    def nvmlDeviceGetMemoryInfo(self, _: object, memory: Any) -> int:  # noqa: N802
        memory._obj.used = self.used
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _: object, count: Any, rows: Any) -> int:  # noqa: N802
        count._obj.value = len(self.processes)
        for row, (pid, used) in zip(rows, self.processes, strict=False):
            row.pid, row.used = pid, used
        return 0


def test_devices() -> None:
    library = FakeNvml([(7, 300), (9, 500)], 900)
    found = devices.find(library)
    assert found is not None
    assert found.name == "Fake 9000"
    assert found.used({7, 8}) == 300
    library.used = 1100
    assert found.used({1, 2}) == 200  # numbers of another namespace: what came since the start
    library.processes = [(7, ctypes.c_ulonglong(-1).value)]
    assert found.used({7}) == 200
    assert devices.find(SimpleNamespace(nvmlInit_v2=lambda: 9)) is None


# -- marks -------------------------------------------------------------------------------------------------------------


def said(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_marks_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "marks"))
    with watch() as marks:
        for _ in marks.epochs(range(2)):
            assert list(marks.steps("abc")) == ["a", "b", "c"]
        with marks.phase("validation"):
            pass
    found = said(tmp_path / "marks")
    assert [each["number"] for each in found if each["mark"] == "epoch"] == [0, 1]
    assert max(each["number"] for each in found if each["mark"] == "step") == 6
    assert [each["mark"] for each in found if "name" in each] == ["begin", "end"]
    looks = [each for each in found if each["mark"] == "allocators"]
    assert looks
    assert looks[-1]["blocks"] > 0
    assert {each["pid"] for each in found} == {os.getpid()}


def test_marks_cost_nothing_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with watch() as marks, marks.phase("x"):
        assert sum(marks.steps(marks.epochs(range(100)))) == 4950
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone" / "marks"))
    with watch() as marks:
        marks.epoch()  # a file that cannot be written ends no training
    assert not list(tmp_path.iterdir())


def test_importing_watch_loads_next_to_nothing() -> None:
    program = (
        "import sys; from oomlint.trace import watch; print(*sorted(name for name in sys.modules if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"__main__", "oomlint", "oomlint.trace", "oomlint.trace.marks"}


def test_lightning_marks(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    program = """
import warnings; warnings.simplefilter("ignore")
import torch, lightning.pytorch as L
from oomlint.trace.lightning import TraceCallback
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, _): return self.layer(batch).mean()
    def validation_step(self, batch, _): self.layer(batch)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                    callbacks=[TraceCallback()], num_sanity_val_steps=0)
trainer.fit(Net(), data, data)
"""
    environment = {**os.environ, VARIABLE: str(tmp_path / "marks"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = said(tmp_path / "marks")
    assert [each["number"] for each in found if each["mark"] == "epoch"] == [0, 1]
    assert max(each["number"] for each in found if each["mark"] == "step") == 6
    assert [each["mark"] for each in found if "name" in each] == ["begin", "end"] * 2


def test_transformers_marks(tmp_path: Path) -> None:
    """The callbacks of its trainer are called by name, with what the trainer has as keywords."""
    (tmp_path / "transformers.py").write_text("class TrainerCallback: pass\n")
    program = """
from oomlint.trace.transformers import TraceCallback
callback = TraceCallback()
for _ in range(2):
    callback.on_epoch_begin("args", "state", "control", model=None)
    for _ in range(3): callback.on_step_end("args", "state", "control", model=None)
callback.on_train_end("args", "state", "control")
"""
    environment = {**os.environ, VARIABLE: str(tmp_path / "marks"), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    found = said(tmp_path / "marks")
    assert [each["number"] for each in found if each["mark"] == "epoch"] == [0, 1]
    assert max(each["number"] for each in found if each["mark"] == "step") == 6


# -- files of a command ------------------------------------------------------------------------------------------------


def test_the_files_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    for name, content in {
        "train.py": "import os, torch\nfrom pack import data\nimport helper\n",
        "helper.py": "x = 1\n",
        "other.py": "x = 1\n",
        "pack/__init__.py": "",
        "pack/data.py": "from . import deep\n",
        "pack/deep.py": "import train\n",
    }.items():
        (tmp_path / name).write_text(content)
    trace = Trace(("sh", "x.sh"), "/", processes=[Process(2, 1, 0, 1, ("sh", "x.sh")), Process(3, 2, 0, 1, ("python", "train.py"), str(tmp_path))])
    found = scripts.scripts_of(trace)
    assert found == [str(tmp_path / "train.py")]
    project = Projects(str(tmp_path), Settings(), {}, ()).of(found[0])
    names = {os.path.relpath(path, tmp_path) for path in scripts.closure(project, found)}
    assert names == {"train.py", "helper.py", "pack/__init__.py", "pack/data.py", "pack/deep.py"}


# -- which lines grow --------------------------------------------------------------------------------------------------


def lines_of(tmp_path: Path, totals: dict[int, Sequence[float]]) -> dict[int, deepening.AllocationLine]:
    """What is said of the lines of one process that held these megabytes at one look after the other."""
    looks = zip(*totals.values(), strict=True)
    said = (
        json.dumps({"at": 0.5 * place, "lines": [("train.py", row, int(1e6 * size), 1) for row, size in zip(totals, each, strict=True) if size]})
        for place, each in enumerate(looks)
    )
    (tmp_path / "7.jsonl").write_text("\n".join(said))
    return {line.row: line for line in deepening.read(str(tmp_path), Trace(("x",), "/", processes=[Process(7, 1, 0, 1, TRAIN)]))}


def test_a_line_of_a_function_that_has_returned_is_named(tmp_path: Path) -> None:
    found = lines_of(tmp_path, {4: [*range(0, 60, 5), 2, 0, 0], 9: [30] * 15})
    assert set(found) == {4}
    assert (found[4].first, found[4].last) == (20_000_000, 55_000_000)


def test_a_line_that_took_all_at_the_start_is_not_named(tmp_path: Path) -> None:
    found = lines_of(tmp_path, {729: [0, 5, 10, 15, 20, 25, 30, *[31] * 11], 9: range(18)})
    assert set(found) == {9}


def test_lines_are_not_told_from_two_looks(tmp_path: Path) -> None:
    assert not lines_of(tmp_path, {4: [0, 50]})
    assert not lines_of(tmp_path, {4: []})
