"""Workers beyond need and without effect: the verdicts on OOM106, OOM120, OOM121 and OOM122."""

from __future__ import annotations

import importlib.util
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

from oomlint import registry
from oomlint.config import load_settings
from oomlint.engine import RunOptions as Running
from oomlint.engine import run
from oomlint.model.project import Project
from oomlint.rule import page
from oomlint.verify.case import Case, Outcome
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import dataset_metrics, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.verify.case import Verdict
    from oomlint.verify.sandbox_runner import SandboxRunner

CODES: Final = [code for code, _ in registry.catalogue() if registry.load(code).measured_as.workers is not None]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="needs torch, and Linux")


@pytest.fixture
def verify(tmp_path: Path, runner: SandboxRunner) -> Callable[..., Verdict]:
    def verdict(text: str, code: str, instead: str | None = None) -> Verdict:
        """The verdict on the first finding of a program, and on another program in its place."""
        file = tmp_path / "train.py"
        file.write_text(dedent(text), encoding="utf-8")
        settings, _ = load_settings(None, True, tmp_path)  # noqa: FBT003 -- isolated
        settings = settings.with_overrides(select=[code], preview=True, severity="note", min_confidence="low")
        finding = run([str(file)], settings, tmp_path, Running(cache=False)).findings[0]
        changes = {} if instead is None else {str(file): (file.read_bytes(), dedent(instead).encode())}
        case = Case(finding, str(tmp_path), changes)
        with Base(str(tmp_path), within=runner.place) as base, Trees(base, case.changes) as trees:
            return workers.verify(Session(case, Project(tmp_path, settings), settings, VerifyOptions(), runner, trees))

    return verdict


@pytest.mark.parametrize("code", CODES)
def test_what_the_page_says_is_confirmed(verify: Callable[..., Verdict], code: str) -> None:
    told = page(registry.load(code))
    verdict = verify(told.example, code, told.remedy)
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason


@pytest.mark.parametrize("code", CODES)
def test_without_a_mend_the_symptom_is_shown(verify: Callable[..., Verdict], code: str) -> None:
    verdict = verify(page(registry.load(code)).example, code)
    assert verdict.outcome is Outcome.SHOWN, verdict.reason


def test_dropping_the_worker_function_is_no_mend(verify: Callable[..., Verdict]) -> None:
    example = page(registry.load("OOM106")).example
    verdict = verify(example, "OOM106", example.replace(", worker_init_fn=open_file", ""))
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_workers_for_the_worker_function_are_a_mend(verify: Callable[..., Verdict]) -> None:
    example = page(registry.load("OOM106")).example
    verdict = verify(example, "OOM106", example.replace("batch_size=32", "batch_size=32, num_workers=2"))
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason


LOADERS = """
    from torch.utils.data import DataLoader

    def make(dataset, other):
        first = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=3, persistent_workers=True)
        second = DataLoader(other, batch_size=4, shuffle=True, num_workers=3, persistent_workers=True)
        return first, second
"""


def test_workers_of_a_shuffled_loader_cannot_just_be_let_go(verify: Callable[..., Verdict]) -> None:
    """Its batches are others from the second epoch on."""
    patch = LOADERS.replace(
        "second = DataLoader(other, batch_size=4, shuffle=True, num_workers=3, persistent_workers=True)", "second = DataLoader(other, 4, True, num_workers=3)"
    )
    verdict = verify(LOADERS, "OOM122", patch)
    assert verdict.outcome is Outcome.REGRESSED, verdict.reason
    assert verdict.readings[0].before == (4.0,)
    assert verdict.readings[0].after == (2.0,)


def test_an_own_number_of_workers_decides(verify: Callable[..., Verdict]) -> None:
    program = """
        import argparse
        import os
        from torch.utils.data import DataLoader

        def main(dataset):
            parser = argparse.ArgumentParser()
            parser.add_argument("--workers", type=int, default=32)
            args = parser.parse_args()
            return DataLoader(dataset, batch_size=8, num_workers=args.workers)
    """
    verdict = verify(program, "OOM120", program.replace("default=32", "default=8"))
    assert verdict.readings[0].before == (32.0,)
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason
    assert verdict.readings[0].after == (8.0,)


def test_an_option_that_keeps_workers(verify: Callable[..., Verdict]) -> None:
    program = """
        from torch.utils.data import DataLoader

        def make(dataset, other, keep=True):
            first = DataLoader(dataset, batch_size=4, num_workers=3, persistent_workers=True)
            second = DataLoader(other, batch_size=4, num_workers=3, persistent_workers=keep)
            return first, second

        make(range(8), range(8))
    """
    verdict = verify(program, "OOM122", program.replace("keep=True", "keep=False"))
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason


def test_nothing_is_copied_where_data_takes_less_than_none() -> None:
    assert dataset_metrics.copied([7_000_000, 3_000_000], [5_000_000]) == [2e6, 0.0]
