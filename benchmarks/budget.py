"""How far `oomlint budget` is off: runs the five incidents, scaled down, watched by `oomlint trace`, and compares what was measured with the table.

usage: python benchmarks/budget.py [--write FILE] [--keep FOLDER] [--runs 3] [--case "2, fork" ...]
    [nyu_colab|voxel_colab|fmri_h5|fewshot_detector|streaming_encoder ...]

Each run is made twice: with 500 MiB of data and more, and with next to none. What the second takes with as many workers is taken off from each moment of the
first, and the rows for interpreters and empty workers from the table. Main process: all that its pages hold, those that workers share with it too. Workers:
what is theirs alone.
Shared: what has come to /dev/shm; for root that is one of its own, else nobody else should fill it meanwhile. It needs Linux, torch, h5py and 3 GB of disk.
What the allocator keeps differs from run to run: of several (`--runs`), the table has the median, and from what to what they go where that is a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
MIB: Final = 1 << 20
SMALLEST: Final = 32 * MIB  # rows where neither figure is larger are left out
HEADER: Final = "| program | workers | what | predicted MiB | known | measured MiB | error |"
HOLDERS: Final = ("main", "workers", "shared")
BASE: Final = ("interpreter", "torchrun", "forked processes", "processes started by")  # rows that the empty run stands for
APART: Final = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=90% shm /dev/shm && exec "$@"', "sh"] if os.geteuid() == 0 else []

# What workers copy is seen by full readings alone, and they live for seconds: half a core may go into reading.
WATCH: Final = """
import json, sys
from oomlint.trace.running import run
from oomlint.trace.timeline import Pace

def moment(processes, shm):
    own = [one for number, one in processes.items() if number in workers]
    main = sum(one.mapped for number, one in processes.items() if number not in workers)
    return len(own), sum(one.anonymous for one in processes.values()), main, shm or 0

trace = run(sys.argv[2:], Pace(0.05, 0.5))
workers = {number for number, one in enumerate(trace.processes) if one.role.value == "worker"}
with open(sys.argv[1], "w") as file:
    json.dump([moment(sample.processes, sample.shm) for sample in trace.samples], file)
sys.exit(trace.ending.status if trace.ending else 1)
"""


class Case(NamedTuple):
    """One way to run an incident."""

    workers: int
    method: str
    ranks: int = 1

    @property
    def words(self) -> str:
        """As the table has it."""
        return f"{self.workers}, {self.method}" + (f", {self.ranks} ranks" if self.ranks > 1 else "")

    @property
    def command(self) -> str:
        """As a user types it."""
        start = f"torchrun --nproc_per_node {self.ranks}" if self.ranks > 1 else "python"
        return f"{start} run.py --num_workers {self.workers} --start_method {self.method}"


class Incident(NamedTuple):
    """How its data are made, whole and empty, and what the table is told."""

    data: str
    empty: str
    told: tuple[str, ...] = ()


CASES: Final = (Case(0, "fork"), Case(2, "fork"), Case(4, "fork"), Case(2, "spawn"), Case(2, "forkserver"), Case(2, "fork", 2))
INCIDENTS: Final[dict[str, Incident]] = {
    "nyu_colab": Incident(
        "make_data.py data --num 360 --width 640 --height 480", "make_data.py empty --num 2", ("--data", "data/nyu_depth_v2.h5", "--set", "sample=802816")
    ),
    # The tuples of 2000 meshes take 275 MiB: what the process gained, less the grids.
    "voxel_colab": Incident("", "", ("--set", "samples=275MiB")),
    # A volume of 150 * 150 * 100 and a picture of 425 * 425 * 3 numbers of four bytes.
    "fmri_h5": Incident(
        "make_data.py data --sessions 8 --trials 28 --volume 150 150 100 --picture 425", "make_data.py empty --sessions 2", ("--set", "sample=11167500")
    ),
    # Two pictures of 640 * 640 * 3 numbers of four bytes; all frames that the training reads, as they are stored.
    "fewshot_detector": Incident(
        "make_data.py data --videos 12 --frames 55 --size 640",
        "make_data.py empty --size 16",
        ("--set", "sample=9830400", "--set", "cache at refdet_dataset.py:46={frames}"),
    ),
    # A batch of 32 children of 12 * 4 * 768 numbers of two bytes.
    "streaming_encoder": Incident(
        "make_data.py data --num 7040 --size 16", "", ("--set", "steps=220", "--set", "all_children a step=2359296", "--set", "sample=768")
    ),
}


class Moment(NamedTuple):
    """What was seen at a time, in bytes."""

    living: int  # workers
    total: int  # of all processes, beside shared memory
    main: int  # of it in all but workers
    shared: int


def watched(command: str, folder: Path, *, empty: bool) -> list[Moment]:
    """Run a command as ``oomlint trace`` does; what that says of the code afterwards is left out."""
    report = folder / "report.json"
    program = command.split() + ["--empty"] * empty
    program = [sys.executable, "-W", "ignore", *(["-m", "torch.distributed.run", *program[1:]] if program[0] == "torchrun" else program[1:])]
    words = [*APART, sys.executable, "-c", WATCH, str(report), *program]
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} ended with status {done.returncode}: {done.stderr[-2000:]}")
    return [Moment(*one) for one in json.loads(report.read_text(encoding="utf-8"))]


def beyond(whole: list[Moment], empty: list[Moment]) -> dict[str, int]:
    """The most that was seen of each holder, and of all together, beyond what the empty run takes with as many workers."""
    bases: dict[int, Moment] = {}
    for one in empty:
        bases[one.living] = Moment(one.living, *(max(pair) for pair in zip(one[1:], bases.get(one.living, one)[1:], strict=True)))
    # A worker comes to take more when its collector goes over all objects, and that may be when others have ended.
    each = max(((one.total - one.main) // one.living for one in empty if one.living), default=0)
    most = dict.fromkeys((*HOLDERS, "all"), 0)
    for one in whole:
        base = bases[min(bases, key=lambda living: abs(living - one.living))]
        main, workers, shared = one.main - base.main, one.total - one.main - each * one.living, one.shared - base.shared
        here = {"main": main, "workers": workers, "shared": shared, "all": main + workers + shared}
        most = {key: max(most[key], here[key]) for key in most}
    return most


def predicted(case: Case, options: list[str], folder: Path) -> dict[str, tuple[int, str]]:
    """The same by the table, without what the empty run stands for, and whether it says that it may be more."""
    words = [sys.executable, "-m", "oomlint", "budget", case.command, "--start-method", case.method, "--output-format", "json", *options]
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(done.stderr)
    (budget,) = json.loads(done.stdout)
    base = [row for row in budget["rows"] if row["what"].startswith(BASE)]
    main = sum(row["bytes"] for row in base if row["holder"] == "main")
    workers = max((row["bytes"] for row in base if row["holder"] == "workers"), default=0)  # of loaders that take turns, one is at work
    most = dict.fromkeys((*HOLDERS, "all"), (0, "about"))
    for one in budget["totals"]:
        own = max(0, one["workers"] - workers)
        here = {"main": one["bytes"] - one["workers"] - one["shared"] - main, "workers": own, "shared": one["shared"]}
        here["all"] = sum(here.values())
        least = {row["holder"] for row in budget["rows"] if row["known"] == "at least" and row["bytes"] >= SMALLEST and one["moment"] in row["moments"]}
        said = {key: (size, "at least" if least and (key == "all" or key in least) else "about") for key, size in here.items()}
        most = {key: max(most[key], said[key]) for key in most}
    return most


def prepare(name: str, top: Path) -> tuple[Path, list[str]]:
    """A copy of an incident with its data, and what the table is told."""
    incident, folder = INCIDENTS[name], top / name
    if not folder.exists():
        shutil.copytree(ROOT / "fixtures" / "incidents" / name, folder)
        for line in filter(None, (incident.data, incident.empty)):
            subprocess.run([sys.executable, *line.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    shutil.copy(ROOT / "benchmarks" / "budget_runs" / "common.py", folder)
    shutil.copy(ROOT / "benchmarks" / "budget_runs" / f"{name}.py", folder / "run.py")
    frames = sum(path.stat().st_size for path in sorted((folder / "data" / "videos").glob("00[0-7]/*.npy"))) if name == "fewshot_detector" else 0
    return folder, [word.format(frames=frames) for word in incident.told]


def measured(case: Case, folder: Path, number: int) -> dict[str, int]:
    """What one of several runs of a case takes beyond an empty one."""
    known = folder / f"measured {case.words}{f' {number + 1}' * (number > 0)}.json"
    if not known.exists():
        known.write_text(json.dumps([watched(case.command, folder, empty=empty) for empty in (False, True)]), encoding="utf-8")
    return beyond(*([Moment(*one) for one in run] for run in json.loads(known.read_text(encoding="utf-8"))))


def with_table(page: str, lines: list[str]) -> str:
    """A page with another table in the place of the one that has the same header."""
    before, header, rest = page.partition(f"{HEADER}\n")
    if not header:
        raise SystemExit("the page has no such table")
    _, end, behind = rest.partition("\n\n")
    return "\n".join([before + lines[0], *lines[1:]]) + end + behind


def main() -> None:
    """Run all cases, and print the rows, the worst first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *INCIDENTS])
    parser.add_argument("--keep", type=Path, help="the folder that data and measurements stay in: what was measured before is not run again")
    parser.add_argument("--runs", type=int, default=1, help="how often each case is run; the table has the median")
    parser.add_argument("--case", action="append", choices=[case.words for case in CASES], help="run this one alone, or several; else all")
    parser.add_argument("--write", type=Path, help="the page whose table this one takes the place of: docs/budget.md")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        top = given.keep or Path(scratch)
        for name in given.names or INCIDENTS:
            folder, told = prepare(name, top)
            for case in (each for each in CASES if not given.case or each.words in given.case):
                runs = [measured(case, folder, number) for number in range(given.runs)]
                said = predicted(case, told, folder)
                for key in ("all", *HOLDERS):
                    (wanted, claim), each = said[key], sorted(run[key] for run in runs)
                    got = int(statistics.median(each))
                    if max(wanted, got) >= SMALLEST:
                        rows.append((wanted / got - 1 if got > 0 else float("inf"), name, case.words, key, wanted, claim, got, each))
                    print(f"{name} {case.words} {key}: {wanted / MIB:.0f} MiB predicted, {got / MIB:.0f} MiB measured", file=sys.stderr, flush=True)
    lines = [HEADER, "| --- | --- | --- | --- | --- | --- | --- |"]
    for error, name, words, key, wanted, claim, got, each in sorted(rows, key=lambda row: -abs(row[0])):
        spread = f" ({each[0] / MIB:.0f} to {each[-1] / MIB:.0f})" if each[-1] - each[0] >= got / 10 else ""
        lines.append(f"| {name} | {words} | {key} | {wanted / MIB:.0f} | {claim} | {got / MIB:.0f}{spread} | {100 * error:+.0f} % |")
    print("\n".join(lines))
    if given.write is not None:
        given.write.write_text(with_table(given.write.read_text(encoding="utf-8"), lines), encoding="utf-8")


if __name__ == "__main__":
    main()
