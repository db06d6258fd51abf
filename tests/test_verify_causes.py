"""Inconclusive verdicts: the same words in each run, and a next step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from verify_cases import judge, told

from oomlint import registry
from oomlint.rule import page
from oomlint.verify.case import Outcome
from oomlint.verify.causes import steady, step
from oomlint.verify.jobs import Limits
from oomlint.verify.session import VerifyOptions

if TYPE_CHECKING:
    from oomlint.verify.sandbox_runner import SandboxRunner

WRONG: Final = Path(__file__).parent.parent / "fixtures" / "verify" / "wrong"
TIMES: Final = 2
SHORT: Final = VerifyOptions(Limits(seconds=1))
DATASET: Final = """\
import tempfile
import time
import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, path):
        LINE
        self.images = h5py.File(path)["images"]  # finding: OOM301

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index])


loader = DataLoader(Scans("scans.h5"), num_workers=2)
"""
LINES: Final = {
    "names made at random": "raise RuntimeError(f'{object()} is not in {tempfile.mkdtemp()} at {time.time()} s')",
    "too long": "time.sleep(60)",
    "another file": "open('/nowhere/at/all/notes.txt').close()",
}


def programs(name: str) -> tuple[str, str, str]:
    """Before, after, and the code where no place is marked."""
    if name.startswith("OOM"):
        text = page(registry.load(name))
        return text.example, text.remedy, name
    if name in LINES:
        before = DATASET.replace("LINE", LINES[name])
        return before, before.replace('["images"]', '["images"][:]'), ""
    return (WRONG / name / "before.py").read_text(), (WRONG / name / "after.py").read_text(), ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("OOM218", "oomlint trace"),
        ("line_that_no_run_reaches", "--command"),
        ("workers_under_random_augmentation", "--command"),
        ("names made at random", "--"),
        ("too long", "--"),
        ("another file", "--factory"),
    ],
)
def test_the_reason_is_the_same_in_each_run(name: str, hint: str, runner: SandboxRunner, tmp_path: Path) -> None:
    before, after, code = programs(name)
    options = SHORT if name == "too long" else None
    said = [judge(runner, tmp_path / str(number), before, after, options, code=code) for number in range(TIMES)]
    assert {verdict.outcome for verdict in said} == {Outcome.INCONCLUSIVE}, told(said[0])
    assert len({(verdict.reason, verdict.next_step) for verdict in said}) == 1, "\n".join(verdict.reason for verdict in said)
    assert str(tmp_path) not in said[0].reason
    assert hint in said[0].next_step


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OSError: /tmp/oomlint-x1/3/home/scans.h5 is gone", "OSError: scans.h5 is gone"),
        ("<object object at 0x7f12ab34cd56>", "<object object at 0x...>"),
        ("no folder tmpab12_cd9", "no folder tmp..."),
        ("killed after 2.3417 s, pid 4711", "killed after ... s, pid ..."),
        ("none of 212 trials worked", "none of some trials worked"),
        ("not at its end after 20 s: data/train.h5 is read 3 times", "not at its end after 20 s: data/train.h5 is read 3 times"),
    ],
)
def test_what_differs_from_run_to_run_is_left_out(reason: str, words: str) -> None:
    assert steady(reason) == words


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("ModuleNotFoundError: No module named 'nibabel.nifti'", "the module `nibabel`"),
        ("pandas.read_csv is needed, and pandas is not installed", "the module `pandas`"),
        ("after the fix: not at its end after 20 s", "--time-limit"),
        ("more than 2,048 MiB of memory", "--memory-cap"),
        ("no data was found that Rows reads: KeyError: 'x'", "--factory"),
        ("the row of the finding was not reached", "--command"),
        ("autograd nodes fall; but the patch adds OOM219 at train.py:9: ...", "fix what the patch adds"),
        ("what OOM501 speaks of is not measured: that takes an accelerator, and code is run without one", "`oomlint trace -- python YOUR_SCRIPT.py`"),
    ],
)
def test_each_kind_has_a_next_step(reason: str, hint: str) -> None:
    assert hint in step(reason)
    assert bool(step(reason)) is bool(hint)


GUARDED: Final = "\nif __name__ == '__main__':\n    print(1)\n"


@pytest.mark.parametrize(
    ("files", "more", "script"),
    [
        ({}, "", "YOUR_SCRIPT.py"),
        ({"run_all.py": f"import program\n{GUARDED}"}, "", "run_all.py"),
        ({"run_all.py": "import program\n\nprint(program.train)\n"}, "", "run_all.py"),
        ({"names.py": "import program\n\ntrain = program.train\n"}, "", "YOUR_SCRIPT.py"),
        # What it imports does not run it, also where that can be started by itself.
        ({"parts.py": f"WIDTH = 3\n{GUARDED}"}, "import parts\n\nprint(parts.WIDTH)\n", "program.py"),
        ({"parts.py": f"WIDTH = 3\n{GUARDED}"}, "import parts\n\nWIDTH = parts.WIDTH\n", "YOUR_SCRIPT.py"),
    ],
)
def test_the_next_step_names_a_script_that_runs_it(files: dict[str, str], more: str, script: str, runner: SandboxRunner, tmp_path: Path) -> None:
    before, after, code = programs("line_that_no_run_reaches")
    verdict = judge(runner, tmp_path / "project", f"{before}\n\n{more}", f"{after}\n\n{more}", code=code, files=files)
    assert f'--command "python {script}"' in verdict.next_step, told(verdict)
