"""Who of a trace is said to grow: on traces of made-up processes, whose answer is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from oomlint.cli.trace import Arguments
from oomlint.cli.tracing import predicted
from oomlint.output import trace_words
from oomlint.trace.deepening import AllocationLine
from oomlint.trace.explaining import Explanation, explain, next_steps
from oomlint.trace.growth import Shape
from oomlint.trace.growth_verdicts import GrowthVerdict, JudgedSubject, growths
from oomlint.trace.report import Predicted, TraceReport
from oomlint.trace.timeline import Ending, Kill, Mark, MarkKind, Process, ProcessFigures, ProcessRole, TimelineSample, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

MB: Final = 10**6
TRAIN: Final = ("python", "train.py")
MAIN: Final = Process(7, 1, 0.0, 0.0, TRAIN, role=ProcessRole.MAIN)
WORKER: Final = Process(0, 7, 0.0, 0.0, TRAIN, role=ProcessRole.WORKER, start_method="fork")
RANK: Final = Process(0, 1, 0.0, 0.0, TRAIN, role=ProcessRole.RANK)

Life = tuple[Process, float, float, "Callable[[float], float]"]  # who, from when, until when, and the megabytes of its own at a time


def traced(*lives: Life, every: float = 0.2) -> Trace:
    """A trace of processes that hold what is said, each its own."""
    end = max(until for _, _, until, _ in lives)
    processes = [replace(who, pid=who.pid or 100 + place, since=since, until=until) for place, (who, since, until, _) in enumerate(lives)]
    trace = Trace(("x",), "/", processes=processes)
    for number in range(int(end / every) + 1):
        at = number * every
        sizes = {place: int(MB * size(at)) for place, (_, since, until, size) in enumerate(lives) if since <= at <= until}
        trace.add(TimelineSample(at, {place: ProcessFigures(size, 0, size, size, size, 3) for place, size in sizes.items()}))
    trace.marks = [Mark(each.since, MarkKind.PASS, place) for place, each in enumerate(each for each in processes if each.role is ProcessRole.WORKER)]
    trace.ending = Ending(0)
    return trace


def told(trace: Trace) -> dict[str, Shape]:
    return {each.who: each.trend.shape for each in growths(trace)}


def about(trace: Trace, subject: JudgedSubject) -> GrowthVerdict:
    return next(each for each in growths(trace) if each.subject is subject)


def test_a_start_that_takes_most_of_the_run_is_no_growth() -> None:
    trace = traced((MAIN, 0, 20, lambda at: 150 * min(at / 12.4, 1)), (WORKER, 12.5, 16, lambda _: 14), (WORKER, 12.5, 16, lambda _: 14))
    assert told(trace) == {"all processes": Shape.FLAT, "main process": Shape.FLAT, "2 workers (fork)": Shape.FLAT}


def test_a_run_that_ends_with_its_start_is_too_short() -> None:
    trace = traced((MAIN, 0, 2.2, lambda at: 150 * min(at / 1.3, 1)), (WORKER, 1.4, 2.2, lambda at: 20 * (at - 1.3)))
    assert set(told(trace).values()) == {Shape.SHORT}


def test_what_a_run_does_at_its_end_hides_no_growth() -> None:
    """A rank that keeps every batch until its workers are gone, and one that keeps none; the end takes as long as an interpreter with torch does."""
    trace = traced(
        (RANK, 0, 30, lambda at: 200 + 5 * min(at, 24)),
        (replace(RANK, rank=1), 0, 30, lambda _: 200),
        (replace(WORKER, parent=100), 3, 24, lambda _: 10),
        (replace(WORKER, parent=101), 3, 24, lambda _: 10),
    )
    trace.processes[0].rank = 0
    assert told(trace) == {"all processes": Shape.STEADY, "rank 0": Shape.STEADY, "rank 1": Shape.FLAT, "2 workers (fork)": Shape.FLAT}


def test_what_comes_after_an_interrupt_hides_no_growth() -> None:
    trace = traced((MAIN, 0, 20, lambda at: 7 * min(at, 12)))
    assert told(trace)["main process"] is Shape.SETTLED
    trace.ending = Ending(130, 0, 2, asked=12.0)
    assert told(trace)["main process"] is Shape.STEADY


def test_a_share_that_comes_back_from_workers_is_no_growth() -> None:
    """Pages of the main process count a third in each while two workers are there, and whole when they have ended."""
    trace = traced((MAIN, 0, 20, lambda _: 150), (WORKER, 2, 14, lambda _: 12), (WORKER, 2, 14, lambda _: 12))
    for sample in trace.samples:
        if len(sample.processes) == 3:
            sample.processes.update(
                {
                    0: ProcessFigures(50 * MB, 0, 5 * MB, 150 * MB, 150 * MB, 3),
                    **dict.fromkeys((1, 2), ProcessFigures(62 * MB, 0, 12 * MB, 162 * MB, 162 * MB, 3)),
                }
            )
    assert set(told(trace).values()) == {Shape.FLAT}


@pytest.mark.parametrize(
    ("who", "name"), [(WORKER, "23 workers (fork)"), (Process(0, 7, 0, 0, ("/bin/encode",)), "23 processes of encode")], ids=["workers", "programs"]
)
def test_somebody_is_named_where_all_processes_grow(who: Process, name: str) -> None:
    """Processes that are started one after the other and stay, none of which grows."""
    found = growths(traced((MAIN, 0, 26, lambda _: 60), *((who, start, 26, lambda _: 15) for start in range(1, 24))))
    assert [(each.who, each.trend.shape.grows) for each in found[:3]] == [("all processes", True), (name, True), ("main process", False)]


def test_workers_of_all_ranks_are_told_together() -> None:
    found = about(
        traced(
            *((replace(RANK, rank=rank), 0, 20, lambda _: 200.0) for rank in range(2)),
            *((replace(WORKER, parent=100 + rank), 2 + 0.1 * rank, 10, lambda _: 14.0) for rank in range(2)),
            *((replace(WORKER, parent=100 + rank, generation=1), 11, 18, lambda _: 14.0) for rank in range(2)),
        ),
        JudgedSubject.WORKERS,
    )
    assert (found.who, len(found.processes), found.held) == ("2 workers (fork)", 2, 28 * MB)


def test_a_finding_explains_who_was_killed_before_it_could_be_judged() -> None:
    """Workers that cache what they read, in a run of two seconds."""
    folder = Path(__file__).parent.parent / "fixtures" / "rules" / "OOM214"
    script = str(min(folder.glob("bad*.py")))
    trace = traced((replace(MAIN, words=("python", script), folder=str(folder)), 0, 2.2, lambda _: 60), (WORKER, 1, 2.2, lambda at: 300 * at))
    assert not [each.finding.code for each in explain(trace, growths(trace), isolated=True).explained]
    trace.kills.append(Kill(2.2, "cgroup", 1, (1,), trace.samples[-1]))
    assert [each.finding.code for each in explain(trace, growths(trace), isolated=True).explained] == ["OOM214"]


def test_a_command_for_a_shell_is_quoted_in_what_to_look_at_next() -> None:
    trace = traced((MAIN, 0, 20, lambda at: 30 * at))
    trace.command = ("sh", "-c", "python train.py > log")
    steps = next_steps(trace, Explanation(open=tuple(growths(trace)[1:])), deep=False)
    assert steps[0].startswith("`oomlint trace --deep -- sh -c 'python train.py > log'` shows")


def test_lines_that_grow_as_fast_as_the_process_say_where() -> None:
    """The looks begin when libraries are imported, and a third of them is warm-up: what the lines have gained is less than what the process has."""
    trace = traced((MAIN, 0, 20, lambda at: 30 * at))
    line = AllocationLine("train.py", 4, "main process", 400 * MB, 500 * MB, 60.0 * 29 * MB, 90)
    (said,) = next_steps(trace, Explanation(open=tuple(growths(trace)[1:])), (line,), deep=True)
    assert said.startswith("the lines that grow say where")
    (said,) = next_steps(trace, Explanation(open=tuple(growths(trace)[1:])), (replace(line, a_minute=60.0 * 2 * MB),), deep=True)
    assert said.startswith("most of what grows in main process is none of Python's objects")


def test_a_budget_is_told_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each spawned worker has an interpreter and the data of its own; a forked one shares them."""
    (tmp_path / "train.py").write_text(
        "import sys\nimport torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\n"
        "if __name__ == '__main__':\n    data = TensorDataset(torch.zeros(100_000, 500))\n"
        "    for (x,) in DataLoader(data, batch_size=400, num_workers=2, multiprocessing_context=sys.argv[1]):\n        x.sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = Arguments(command=("python", "train.py", "spawn"), isolated=True)
    told = {}
    for method in ("fork", "spawn"):
        told[method] = predicted(arguments, traced((MAIN, 0, 9, lambda _: 60), *[(replace(WORKER, start_method=method), 2, 9, lambda _: 60.0)] * 2))
    forked, spawned = told["fork"], told["spawn"]
    assert forked
    assert spawned
    assert (forked.given, spawned.given) == (("start method fork",), ("start method spawn",))
    assert spawned.bytes > forked.bytes + 2 * 50 * MB
    assert "for what was seen: start method spawn" in trace_words.predicted(TraceReport(traced((MAIN, 0, 1, lambda _: 1)), predicted=spawned))


def test_where_the_killer_has_ended_a_run_the_budget_says_what_would_have_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        "import numpy as np\nfrom torch.utils.data import DataLoader, Dataset\n\n\n"
        "class Rows(Dataset):\n    def __init__(self):\n        self.rows = np.zeros((400_000, 500), np.float32)\n\n"
        "    def __len__(self):\n        return len(self.rows)\n\n    def __getitem__(self, index):\n        return self.rows[index]\n\n\n"
        "if __name__ == '__main__':\n"
        "    for x in DataLoader(Rows(), batch_size=400, num_workers=6, multiprocessing_context='spawn'):\n        x.sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = Arguments(command=("python", "train.py"), isolated=True)
    trace = traced((MAIN, 0, 3, lambda _: 900), (replace(WORKER, start_method="spawn"), 1, 2, lambda _: 900))
    trace.group_limit = 5 * 10**9
    unharmed = predicted(arguments, trace)
    assert unharmed is not None
    assert unharmed.advice == ()
    trace.kills.append(Kill(2.2, "cgroup", 1, (1,), trace.samples[-1]))
    killed = predicted(arguments, trace)
    assert killed is not None
    said = trace_words.advice(TraceReport(trace, predicted=killed))
    most = re.search(r"It does not fit: .* Workers that fit: up to (\d) under spawn", said)
    assert most is not None, said
    assert 1 <= int(most[1]) < 6


def test_a_main_process_that_was_killed_is_named_first_and_what_fits_explains_no_kill() -> None:
    trace = traced((MAIN, 0, 2, lambda _: 100), *[(WORKER, 0.5, 2, lambda _: 300)] * 5)
    trace.group_limit, trace.group_most = 4 * 10**9, 3 * 10**9
    trace.ending = Ending(137, 9)
    trace.kills.append(Kill(2.2, "cgroup", 1, (1, 2, 3, 4, 5, 0), trace.samples[-1]))
    (death,) = trace_words.deaths(trace)
    assert re.search(r"ended one of main process \(95\.4 MiB\), worker \d .* and 2 more after", death), death
    told = Predicted(10**9, "first epoch", True, (), ("It fits: 1 GB at most.",))  # noqa: FBT003
    said = trace_words.advice(TraceReport(trace, predicted=told))
    assert "does not explain the kill" in said
    assert "Beside the command, 1.3 GiB of it were taken" in said
