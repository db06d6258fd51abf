"""What a patch adds is a regression, whatever it ends: findings of a check, memory, reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import FILE, marked, told, verify

from oomlint.config import Settings
from oomlint.model.project import Project
from oomlint.verify import recheck
from oomlint.verify.case import Case, Outcome, Part, Verdict
from oomlint.verify.jobs import Done, JobEnd
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import command, new_costs
from oomlint.verify.thresholds import Price

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

BEFORE: Final = """\
import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, path):
        file = h5py.File(path, "r")
        self.images = file["images"]  # finding: OOM111

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index])


loader = DataLoader(Scans("scans.h5"), batch_size=4, num_workers=2, multiprocessing_context="spawn")
"""
WHOLE: Final = BEFORE.replace('file["images"]  # finding: OOM111', 'file["images"][:]')
GRAVE: Final = "    def __getitem__(self, index):\n        whole = h5py.File('scans.h5')['images'][:]\n        return torch.from_numpy(whole[index])\n"
ENDED: Final = Verdict(Outcome.CONFIRMED, "pickling fails before, works after")


def session(folder: Path, after: str, before: str = BEFORE, **others: tuple[str, str]) -> Session:
    path = folder / FILE
    path.write_text(before)
    changes = {str(path): (before.encode(), after.encode())}
    for name, (old, new) in others.items():
        other = folder / f"{name}.py"
        other.write_text(old)
        changes[str(other)] = (old.encode(), new.encode())
    settings = Settings()
    case = Case(marked(path), str(folder), changes, by_hand=True)
    return Session(case, Project(str(folder), settings), settings, VerifyOptions(), None, None)  # type: ignore[arg-type] # nothing is run


@pytest.mark.parametrize("comment", ["", "  # noqa: OOM304", "  # oomlint: ignore[OOM304]"])
def test_a_new_finding_as_grave_is_a_regression_that_names_its_place(comment: str, tmp_path: Path) -> None:
    start = BEFORE.index("    def __getitem__")
    after = BEFORE[:start] + GRAVE.replace("[:]", f"[:]{comment}")
    verdict = recheck.judged(session(tmp_path, after), ENDED)
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.reason.startswith(f"the patch adds OOM304 at {FILE}:15: ")


def test_a_new_finding_that_is_less_grave_leaves_it_open(tmp_path: Path) -> None:
    verdict = recheck.judged(session(tmp_path, WHOLE), ENDED)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "OOM305" in verdict.reason


def test_a_finding_in_a_file_that_imports_what_is_changed_counts(tmp_path: Path) -> None:
    call = "DataLoader(data, num_workers=WORKERS, persistent_workers=True)"
    program = f"from counts import WORKERS\nfrom torch.utils.data import DataLoader\n\n\ndef load(data):\n    return {call}\n"
    (tmp_path / "train.py").write_text(program)
    one = session(tmp_path, BEFORE + "\nprint(len(loader))\n", counts=("WORKERS = 2\n", "WORKERS = 0\n"))
    verdict = recheck.judged(one, ENDED)
    assert (verdict.outcome, verdict.reason.partition(": ")[0]) == (Outcome.REGRESSED, "the patch adds OOM101 at train.py:6")


def test_what_moves_to_another_file_is_not_new(tmp_path: Path) -> None:
    reads = "import h5py\nimport torch\nfrom torch.utils.data import Dataset\n\n\nclass Other(Dataset):\n" + GRAVE
    verdict = recheck.judged(session(tmp_path, "from moved import Other\n" + BEFORE, BEFORE + "\n\n" + reads, moved=("", reads)), ENDED)
    assert verdict == ENDED


def test_a_patch_without_new_findings_keeps_its_verdict(tmp_path: Path) -> None:
    assert recheck.judged(session(tmp_path, BEFORE + "\nprint(len(loader))\n"), ENDED) == ENDED


# -- prices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "dearer"),
    [
        ((1000.0,), (1000.0,), False),
        ((1000.0,), (1400.0,), False),  # within the share
        ((100_000.0,), (151_000.0,), False),  # within the margin
        ((100_000.0,), (250_000.0,), True),
        ((100_000.0, 160_000.0), (300_000.0,), False),  # two runs of one program differ as much
        ((100_000.0,), (250_000.0, 120_000.0), False),  # and so may those of the other
        ((), (250_000.0,), False),
    ],
)
def test_a_price_is_higher_only_beyond_share_margin_and_noise(before: tuple[float, ...], after: tuple[float, ...], dearer: bool) -> None:  # noqa: FBT001
    assert Price("memory", before, after, 1.5, 65_536).dearer is dearer


def test_a_dearer_program_is_a_regression_whatever_was_said_of_it(tmp_path: Path) -> None:
    one = session(tmp_path, BEFORE)
    one.prices.append(Price("memory held", (100_000.0,), (900_000.0,), 1.5, 65_536))
    verdict = new_costs.judged(one, ENDED)
    assert (verdict.outcome, verdict.reason) == (Outcome.REGRESSED, "the patch takes more: memory held: 97.7 KiB before, 878.9 KiB after")
    assert (verdict.readings[0].before, verdict.readings[0].after) == ((100_000.0,), (900_000.0,))


@dataclass
class Sampled:
    """Stands for the runs of a command, with the memory that was sampled of each."""

    done: dict[Part, list[Done]]
    last: int

    def run(self, part: Part) -> Done:
        self.done[part].append(sampled(self.last))
        return self.done[part][-1]


def sampled(peak: int) -> Done:
    return Done(JobEnd.EXIT, 0, {"status": 0, "exception": None, "bytes_read": 0}, "", "", "", 1.0, peak)


@pytest.mark.parametrize(("last", "dearer"), [(136_000_000, False), (250_000_000, True)])
def test_a_command_that_seems_dearer_once_is_run_again(last: int, *, dearer: bool) -> None:
    runs = Sampled({Part.BEFORE: [sampled(135_000_000), sampled(136_000_000)], Part.AFTER: [sampled(250_000_000)]}, last)
    assert any(price.dearer for price in command._prices(runs)) is dearer  # type: ignore[arg-type]


def steps(python_bytes: list[int]) -> dict[str, object]:
    still = [0] * len(python_bytes)
    deltas = {"storage_bytes": still, "python_bytes": python_bytes}
    return {"deltas": deltas, "peak_bytes": still, "python_peak_bytes": still, "read": still}


# As they were measured, where workers start in some rounds.
QUIET: Final = [293_539, 1360, 2016, 1680, 2144, 1252, 2158, 2094, 1644, 2142]


@pytest.mark.parametrize(
    ("after", "dearer"),
    [
        pytest.param([293_791, 1640, -13_532, 17_660, 3432, -6004, 10_236, 5056, 4584, 1720], False, id="freed and taken again"),
        pytest.param([293_791, 1640, 2680, 1832, 3048, 2104, 62_128, 2056, 1584, 1848], False, id="once"),
        pytest.param([293_791, 1640, 12_680, 11_832, 13_048, 12_104, 12_128, 12_056, 4584, 11_848], True, id="in each step"),
    ],
)
def test_what_steps_keep_is_dearer_where_each_of_them_keeps_more(after: list[int], *, dearer: bool) -> None:
    kept = new_costs.of_loop([steps(QUIET), steps(QUIET)], steps(after))[0]
    assert kept.name == "memory kept by each step"
    assert kept.dearer is dearer


TRAIN: Final = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(240, 8), torch.randn(240, 4)), batch_size=10)
model = torch.nn.Linear(8, 4)
total, kept = 0, None
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    total += loss  # finding: OOM201
print(f"{float(total):.3f}")
"""
FALSE_ECONOMIES: Final = {
    "peak memory of all processes": "total += loss.item(); kept = kept if kept is not None else torch.ones(100_000_000)",
    "bytes read by all processes": "total += loss.item(); kept = [len(open('/dev/zero', 'rb').read(2**24)) for _ in range(4)]",
}


@pytest.mark.parametrize("what", FALSE_ECONOMIES)
def test_what_your_command_takes_more_of_is_a_regression(what: str, runner: SandboxRunner, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("import torch\ntorch.manual_seed(0)\n" + TRAIN)
    before = path.read_text()
    after = before.replace("total += loss  # finding: OOM201", FALSE_ECONOMIES[what])
    case = Case(marked(path), str(tmp_path), {str(path): (before.encode(), after.encode())})
    verdict = verify(runner, case, VerifyOptions(command=f"python {FILE}"))
    assert verdict.outcome is Outcome.REGRESSED, told(verdict)
    assert verdict.reason.startswith(f"the patch takes more: {what}: "), told(verdict)
