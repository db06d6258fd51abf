"""How far `oomlint budget` is off: runs two of the incidents, scaled down, and compares what was measured with the table.

usage: python benchmarks/budget.py [nyu_colab|voxel_colab ...]

Measured is the proportional share of anonymous memory of the process tree, and the files in /dev/shm that it has open: a batch that waits there is mapped by
nobody. It needs Linux, torch, h5py and 1.5 GB of disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from oomlint.verify.process_tree import memory, tree  # noqa: E402 - of this checkout

MIB: Final = 1 << 20
SHM: Final = "/dev/shm"  # noqa: S108 - where Linux has it
CASES: Final = ((0, "fork"), (2, "fork"), (4, "fork"), (2, "spawn"))
BETWEEN: Final = 0.01  # seconds between two looks

_START: Final = """
import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--start_method", default="fork")
    return parser.parse_args()
"""
_NYU: Final = """
from nyu.dataset import NYUDepthV2Dataset


def main():
    args = options()
    torch.set_num_threads(1)
    dataset = NYUDepthV2Dataset("data/nyu_depth_v2.h5")
    context = args.start_method if args.num_workers else None
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=args.num_workers, multiprocessing_context=context)
    for epoch in range(2):
        for number, batch in enumerate(loader):
            if number == epoch == 0 and args.num_workers:
                time.sleep(20)  # until all batches that may wait do


if __name__ == "__main__":
    main()
"""
_VOXEL: Final = """
from random import random

from data.mesh_dataset import VoxelMeshDataset


def main():
    args = options()
    torch.set_num_threads(1)
    dataset = VoxelMeshDataset("nowhere")
    dataset.samples = [
        {
            "name": f"mesh_{i:04d}.off",
            "voxels": np.ones((32, 32, 32), dtype=np.float32),
            "vertices": [(random(), random(), random()) for _ in range(500)],
            "faces": [(j, j + 1, j + 2) for j in range(500)],
        }
        for i in range(2000)
    ]
    context = args.start_method if args.num_workers else None
    loader = DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0, multiprocessing_context=context
    )
    for _ in range(8):  # until each worker has read nearly all
        for batch in loader:
            pass


if __name__ == "__main__":
    main()
"""
PROGRAMS: Final[dict[str, tuple[str, list[str], list[str]]]] = {
    "nyu_colab": (
        _START + _NYU,
        ["make_data.py", "data", "--num", "300", "--width", "640", "--height", "480"],
        ["--data", "data/nyu_depth_v2.h5", "--set", "sample=802816"],
    ),
    # The tuples of 2000 meshes take 275 MiB: what the process gained, less the grids.
    "voxel_colab": (_START + _VOXEL, [], ["--set", "samples=275MiB", "--set", "len(samples)=2000"]),
}


def measured(command: list[str], folder: Path) -> dict[str, int]:
    """The most that was seen: of all, of the workers' private memory, of shared memory."""
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = {"all": 0, "workers": 0, "shared": 0}
    while run.poll() is None:
        here = workers = 0
        pids = tree(run.pid)
        for pid in pids:
            try:
                held = memory(pid)
            except ProcessLookupError:
                continue
            here += held.anonymous
            workers += held.private if pid != run.pid else 0
        shared = _shared(pids)
        for key, value in (("all", here + shared), ("workers", workers), ("shared", shared)):
            most[key] = max(most[key], value)
        time.sleep(BETWEEN)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {run.returncode}")
    return most


def _shared(pids: list[int]) -> int:
    """Bytes of the files in /dev/shm that some processes have open: each once, also where its name is gone."""
    room, found = os.stat(SHM).st_dev, {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    about = os.stat(f"/proc/{pid}/fd/{name}")
                    if about.st_dev == room:
                        found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def predicted(command: str, method: str, options: list[str], folder: Path) -> dict[str, int]:
    """The same by the table."""
    words = [sys.executable, "-m", "oomlint", "budget", command, "--start-method", method, "--output-format", "json", *options]
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(done.stderr)
    (budget,) = json.loads(done.stdout)
    return {"all": max(one["bytes"] for one in budget["totals"]), **{key: _held(budget, key) for key in ("workers", "shared")}}


def _held(budget: dict[str, Any], holder: str) -> int:
    return sum(row["bytes"] or 0 for row in budget["rows"] if row["holder"] == holder and "first epoch" in row["moments"])


def main(names: list[str]) -> None:
    """Print a row for each case."""
    print("| program | workers | what | predicted MiB | measured MiB | error |\n| --- | --- | --- | --- | --- | --- |")
    for name in names or list(PROGRAMS):
        program, data, options = PROGRAMS[name]
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top) / name
            shutil.copytree(ROOT / "fixtures" / "incidents" / name, folder)
            (folder / "run.py").write_text(program, encoding="utf-8")
            if data:
                subprocess.run([sys.executable, *data], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            for workers, method in CASES:
                given = ["run.py", "--num_workers", str(workers), "--start_method", method]
                said = predicted(" ".join(["python", *given]), method, options, folder)
                seen = measured([sys.executable, "-W", "ignore", *given], folder)
                for key in ("all", "workers", "shared"):
                    if said[key] > 8 * MIB or seen[key] > 8 * MIB:
                        error = f"{100 * (said[key] - seen[key]) / seen[key]:+.0f} %" if seen[key] else "-"
                        print(f"| {name} | {workers}, {method} | {key} | {said[key] / MIB:.0f} | {seen[key] / MIB:.0f} | {error} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
