"""``oomlint budget`` of the five incidents: its rows are the figures that measurement puts in place of those of the post-mortems (``INCIDENT.md``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

INCIDENTS: Final = Path(__file__).resolve().parent.parent / "fixtures" / "incidents"
SKETCHES, CHECKSUMS, CHILDREN = 192 * 12 * 768 * 2, 147_456, 14_155_776  # bytes of a batch in two bytes a number
VIDEOS: Final = 25  # that all workers have met; each keeps 500 frames of 448 * 448 * 3 bytes


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(INCIDENTS)
    return runs(capsys, "budget")


@pytest.mark.parametrize(
    ("asked", "told", "rows"),
    [
        pytest.param(
            "nyu_colab/train.ipynb:5",
            {"N": 1449, "sample": 802_816},
            {
                "`images` of NYUDepthV2Dataset": 1_335_398_400,
                "`depths` of NYUDepthV2Dataset": 1_780_531_200,
                "`scenes` of NYUDepthV2Dataset": 11_592,
                "batches in flight of `train_loader`": 924_844_032,
            },
            id="arrays that fork shares",
        ),
        pytest.param(
            "voxel_colab/train.py",
            {"sample": 16_384, "batch_size": 4, "samples": 1000 << 20},
            {"batches in flight of `train_loader`": 589_824, "`samples` of VoxelMeshDataset, copied as it is read": 4 * 600 << 20},
            id="a list of dictionaries",
        ),
        pytest.param(
            "fmri_h5/Train_MindEye.py",
            {"sample": 11_167_500},
            {"batches in flight of `train_dl`": 3_216_240_000},
            id="batches in flight",
        ),
        pytest.param(
            "bash fewshot_detector/train_stage_2.sh",
            {"cache at refdet_dataset.py:46": VIDEOS * 301_056_000, "all_pred_bboxes a step": 32 * 100 * 16},
            {"a cache of what is read": 60_211_200_000, "`all_pred_bboxes` grows with the steps": 1_024_000},
            id="a cache in each worker",
        ),
        pytest.param(
            "streaming_encoder/encode_v1.py",
            {"steps": 9937, "all_children a step": CHILDREN, "all_sketches a step": 2 * SKETCHES, "all_checksums a step": 2 * CHECKSUMS},
            {
                "`all_children` grows with the steps": 140_654_370_816,
                "what `all_sketches` keeps of the steps": 73_257_484_800 - 9937 * 2 * CHECKSUMS,
                "what `all_checksums` keeps of the steps": 9937 * 2 * CHECKSUMS,
            },
            id="results of all batches",
        ),
        pytest.param(
            "streaming_encoder/encode_v2.py",
            {"cpu_children a step": CHILDREN, "cpu_sketches a step": SKETCHES, "cpu_checksums a step": CHECKSUMS},
            {
                "what `cpu_sketches` keeps of the steps": 707_788_800,
                "what `cpu_checksums` keeps of the steps": 29_491_200,
                "what `cpu_children` keeps of the steps": 2_831_155_200,
                "`cpu_children`, once more where it is joined": 2_831_155_200,
            },
            id="results of 200 batches, and their copy",
        ),
    ],
)
def test_rows_are_the_figures_of_the_incident(budget: Budget, asked: str, told: dict[str, int], rows: dict[str, int]) -> None:
    if asked.startswith("bash "):
        asked = f"cd {asked.split()[1].partition('/')[0]} && bash {asked.rpartition('/')[2]}"
    given = [word for name, number in told.items() for word in ("--set", f"{name}={number}")]
    found = table(budget, asked, "--start-method", "fork", *given)
    seen = {row["what"]: row["bytes"] for row in found["rows"]}
    assert {what: seen.get(what) for what in rows} == pytest.approx(rows, rel=1e-3)  # the last batch of an incident is not full
