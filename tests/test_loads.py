"""What is said of data that is read whole: who keeps it, for how long, and what worker processes do with it."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from oomlint import engine
from oomlint.config import Settings
from oomlint.finding import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.finding import Finding

GRAPHS = """
import pickle
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __init__(self, path):
        with open(path, "rb") as file:
            self.graphs = pickle.load(file)

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        return self.graphs[index]


"""


def found(tmp_path: Path, text: str, *codes: str) -> tuple[Finding, ...]:
    """What the rules say of a file."""
    (tmp_path / "data.py").write_text(dedent(text), encoding="utf-8")
    settings = Settings(select=codes, preview=True, severity=Severity.NOTE)
    return engine.run([str(tmp_path / "data.py")], settings, tmp_path, engine.RunOptions(cache=False, processes=1)).findings


@pytest.mark.parametrize(
    ("loader", "clause"),
    [
        pytest.param('DataLoader(Graphs("graphs.pkl"), num_workers=4)', "; each of 4 workers copies the objects it reads", id="a loader with workers"),
        pytest.param('DataLoader(Graphs("graphs.pkl"))', "", id="a loader without"),
        pytest.param("", "", id="no loader that is seen"),
        pytest.param("def loader(graphs):\n    return DataLoader(graphs, num_workers=4)", "", id="a loader of something else"),
    ],
)
def test_workers_copy_objects_only_where_a_loader_with_workers_reads_them(loader: str, clause: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, GRAPHS + loader + "\n", "OOM402")
    assert finding.consequence == f"it stays in `graphs` of `Graphs`{clause}"


@pytest.mark.parametrize(
    ("use", "mapped"),
    [
        pytest.param(
            "for graph, _, label in self.rows:\n            self.seen.append((networkx.to_edgelist(graph), label == 'tree'))", False, id="graphs and texts"
        ),
        pytest.param("for image, label in self.rows:\n            self.seen.append((image.mean(), label == 'tree'))", True, id="images with a text"),
        pytest.param("self.seen = len(self.rows)", True, id="nothing that is seen"),
    ],
)
def test_a_file_without_tensors_is_not_to_be_mapped(use: str, mapped: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    text = f"""
import networkx
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.rows = torch.load(path)
        self.seen = []
        {use}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
"""
    (finding,) = found(tmp_path, text, "OOM406")
    assert (finding.fix is not None) is mapped
    assert ("mmap" in finding.help) is mapped
