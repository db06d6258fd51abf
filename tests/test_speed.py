"""benchmarks/speed.py runs, and its tables have figures in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parent.parent / "benchmarks" / "speed.py"


@pytest.mark.skipif(sys.platform != "linux", reason="it counts as Linux does")
def test_the_benchmark_fills_its_tables(tmp_path: Path) -> None:
    if not SCRIPT.exists():
        pytest.skip("the benchmarks are not part of this distribution")
    repository, package = tmp_path / "corpus" / "repository", tmp_path / "package"
    for folder in (repository, package):
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n", encoding="utf-8")
    words = ["--research", str(repository.parent), "--packages", str(package), "--only", "corpora"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for line in done.stdout.splitlines() if len(cells := line.split("|")) > 2}
    assert rows["research"][:2] == ["1", "2"]
    assert rows["research"][-2:] == ["2 (100%)", "1 in 1 calls"]
    assert all(float(rows[name][number].split()[0]) > 0 for name in ("research", "packages") for number in (2, 3, 4, 7))
    assert all(float(rows[name][number].split()[0]) >= 0 for name in ("research", "packages") for number in (5, 6))  # ruff needs less than is shown
