"""Times `oomlint check` against TorchFix: the same files, one run.

    python benchmarks/against_torchfix.py

Needs Python 3.11 or later and a package index. It makes one virtual environment for each tool in a temporary folder, unpacks timm 1.0.31, and runs

- both tools over the whole of timm: user CPU of all processes, once each;
- both over one file of about 300 lines (training code of `fixtures/incidents`, joined): the median of the wall times of five runs each.

TorchFix reads with every rule on (`--select=ALL`), oomlint without its cache. The first figure takes about three minutes, all but a few seconds of it TorchFix.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCHFIX = "torchfix==0.7.0"
CORPUS = "timm==1.0.31"
PARTS = ("fewshot_detector/src/training/trainer.py", "voxel_colab/data/mesh_dataset.py", "nyu_colab/nyu/loaders.py")
RUNS = 5


def environment(folder: Path, *packages: str) -> Path:
    """A virtual environment with packages; returns its folder of programs."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
    return programs


def corpus(programs: Path, folder: Path) -> Path:
    """The unpacked wheel of timm."""
    subprocess.run([programs / "python", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder, CORPUS], check=True)
    target = folder / "timm"
    with zipfile.ZipFile(next(folder.glob("timm-*.whl"))) as wheel:
        wheel.extractall(target)
    return target


def one_file(folder: Path) -> Path:
    """Training code of about 300 lines in one file."""
    folder.mkdir()
    target = folder / "train.py"
    target.write_text("\n\n".join((ROOT / "fixtures" / "incidents" / part).read_text(encoding="utf-8") for part in PARTS), encoding="utf-8")
    return target


def measure(command: list[str | Path], where: Path) -> tuple[float, float]:
    """Seconds of user CPU (children included) and of wall time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    done = subprocess.run(command, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode not in {0, 1}:
        raise SystemExit(f"{command[0]} failed with {done.returncode}: {done.stderr.strip()[-500:]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, wall


def row(name: str, ours: float, theirs: float) -> None:
    """One line of the table."""
    print(f"{name:42}{ours:10.2f} s{theirs:10.2f} s{theirs / ours:9.1f} x")


def main() -> None:
    """Set up, measure, print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = environment(folder / "oomlint", str(ROOT)) / "oomlint"
        theirs = environment(folder / "torchfix", TORCHFIX) / "torchfix"
        timm, single = corpus(theirs.parent, folder), one_file(folder / "single")
        lines = len(single.read_text(encoding="utf-8").splitlines())
        check: list[str | Path] = [ours, "check", "--no-cache", "--isolated"]
        fix: list[str | Path] = [theirs, "--select=ALL"]
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors")
        print(f"{'':42}{'oomlint':>12}{'TorchFix':>12}{'ratio':>11}", flush=True)
        short = [[measure([*command, single], single.parent)[1] for _ in range(RUNS)] for command in (check, fix)]
        row(f"one file of {lines} lines, wall time", statistics.median(short[0]), statistics.median(short[1]))
        row(f"{CORPUS}, user CPU", measure([*check, "."], timm)[0], measure([*fix, "."], timm)[0])


if __name__ == "__main__":
    main()
