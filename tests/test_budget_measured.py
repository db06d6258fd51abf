"""What ``oomlint budget`` says of a forked worker, against one that runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from oomlint.budget.costs import WORKER
from oomlint.memory.handles.h5_options import DEFAULT_CACHE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
MIB: Final = 1 << 20
OWN: Final = """
def own():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(row.split()[1]) for row in file if row.startswith(("Private_Clean", "Private_Dirty"))) * 1024
"""
WORKERS: Final = """
from torch.utils.data import DataLoader, Dataset

class Nothing(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return own()

if __name__ == "__main__":
    print(max(int(batch.max()) for batch in DataLoader(Nothing(), batch_size=4, num_workers=2, multiprocessing_context="fork")))
"""
READERS: Final = """
import os
import h5py

for keeps in (False, True):
    file = h5py.File("rows.h5", "r")
    kept = file["x"] if keeps else None
    if os.fork() == 0:
        before = own()
        for i in range(4096):
            (kept if keeps else file["x"])[i]
        print(own() - before, flush=True)
        os._exit(0)
    os.wait()
"""


def printed(program: str, folder: Path) -> list[int]:
    (folder / "program.py").write_text(OWN + program)
    done = subprocess.run([sys.executable, "-W", "ignore", "program.py"], cwd=folder, capture_output=True, text=True, check=True, timeout=240)
    return [int(line) for line in done.stdout.split()]


def test_a_forked_worker_that_holds_nothing(tmp_path: Path) -> None:
    (base,) = printed(WORKERS, tmp_path)
    assert WORKER["fork"] / 2 < base < 2 * WORKER["fork"]


def test_an_object_of_a_file_comes_to_hold_its_chunk_cache(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:  # here: pages that the program itself has freed would count as its own again
        file.create_dataset("x", shape=(4096, 1024), dtype="f4", chunks=(1, 1024))[:] = 1
    looked_up, kept = printed(READERS, tmp_path)
    cache = DEFAULT_CACHE if h5py.version.hdf5_version_tuple >= (2, 0, 0) else MIB
    assert cache / 2 < kept - looked_up < 1.5 * cache
