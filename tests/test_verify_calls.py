"""The sliced call: what is cut out of a function, and the verdicts that come of running it before and after."""

from __future__ import annotations

import ast
import importlib.util
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.config import load_settings
from oomlint.engine import RunOptions as Running
from oomlint.engine import run
from oomlint.model.project import Project
from oomlint.verify.case import Case, Outcome
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.run import cases_of
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import call_verdict, calls
from oomlint.verify.strategies.slicing import counterpart, cut, sites

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.verify.case import Verdict
    from oomlint.verify.sandbox_runner import SandboxRunner

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="needs torch, and Linux")


def loader_call(text: str) -> Any:
    tree = ast.parse(dedent(text))
    return next(site for site in sites(tree) if ast.unparse(site.call.func) == "DataLoader")


# -- cutting out ---------------------------------------------------------------------------------------------------------


def test_cut_keeps_what_the_arguments_hang_on() -> None:
    site = loader_call("""
        def make(path, cuda, workers):
            print(path)
            data = Files(path)
            kwargs = {"batch_size": 4}
            if cuda:
                kwargs.update(num_workers=workers)
                announce(path)
            return DataLoader(data, **kwargs)
    """)
    source = cut(site, frozenset()).source
    assert "kwargs.update(num_workers=workers)" in source
    assert "Files" not in source, "the dataset is replaced by a stand-in"
    assert "print" not in source
    assert "announce" not in source


def test_cut_keeps_the_way_to_the_call() -> None:
    site = loader_call("""
        def make(data, workers, verbose):
            if verbose:
                return None
            if workers == 0:
                return None
            return DataLoader(data, num_workers=workers)
    """)
    source = cut(site, frozenset()).source
    assert source.count("__elsewhere__") == 1, "what does not concern the call is taken to let it be reached"
    assert "workers == 0" in source


def test_cut_asks_for_leaves_by_name() -> None:
    site = loader_call("def make(data, args):\n    return DataLoader(data, num_workers=args.workers, persistent_workers=args.workers > 0)\n")
    piece = cut(site, frozenset({"args.workers"}))
    assert piece.source.count("__leaf__('args.workers'") == 2
    assert piece.parameters == ("args",)


def test_counterpart_is_found_although_rows_have_moved() -> None:
    site = loader_call("def make(data):\n    return DataLoader(data, collate_fn=lambda x: x)\n")
    after = ast.parse("def _collate(x):\n    return x\n\n\ndef make(data):\n    return DataLoader(data, collate_fn=_collate)\n")
    found = counterpart(site, after)
    assert found is not None
    assert ast.unparse(found.call) == "DataLoader(data, collate_fn=_collate)"


# -- judging -------------------------------------------------------------------------------------------------------------


def ran(error: str = "", *, workers: int = 2, epochs: str = "ab", **settings: object) -> dict[str, Any]:
    return {
        "values": {"n": str(workers)},
        "method": None,
        "reached": True,
        "error": {"type": "ValueError", "message": error} if error else None,
        "epochs": list(epochs),
        "tail": "",
        "kept": False,
        "settings": {"num_workers": workers, **settings},
    }


FAILS = "persistent_workers option needs num_workers > 0"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        pytest.param([ran(FAILS, workers=0), ran()], [ran(workers=0), ran()], Outcome.CONFIRMED, id="gone-and-the-same-elsewhere"),
        pytest.param([ran(FAILS, workers=0), ran()], [ran(workers=0), ran(epochs="ac")], Outcome.REGRESSED, id="other-batches-in-the-second-epoch"),
        pytest.param([ran(prefetch_factor=4)], [ran(prefetch_factor=2)], Outcome.REGRESSED, id="an-option-dropped-where-it-worked"),
        pytest.param([ran(FAILS, workers=0), ran()], [ran(workers=0), ran("other")], Outcome.REGRESSED, id="a-new-failure"),
        pytest.param([ran(workers=0), ran()], [ran(workers=0), ran()], Outcome.NO_EFFECT, id="never-failed"),
        pytest.param([ran()], [ran()], Outcome.INCONCLUSIVE, id="never-without-workers"),
        pytest.param([ran(FAILS, workers=0)], [ran(FAILS, workers=0)], Outcome.INCONCLUSIVE, id="still-fails"),
        pytest.param([ran("needs a file")], [ran("needs a file")], Outcome.INCONCLUSIVE, id="fails-for-another-cause"),
    ],
)
def test_exceptions(before: list[dict[str, Any]], after: list[dict[str, Any]], outcome: Outcome) -> None:
    assert call_verdict.exceptions("persistent_workers", before, after).outcome is outcome


# -- whole verifications ---------------------------------------------------------------------------------------------------


@pytest.fixture
def verify(tmp_path: Path, runner: SandboxRunner) -> Callable[..., Verdict]:
    def verdict(text: str, code: str, *, instead: Callable[[str], str] | None = None) -> Verdict:
        """The verdict on the only finding of a program; ``instead`` writes another fix than the rule's."""
        file = tmp_path / "train.py"
        file.write_text(dedent(text), encoding="utf-8")
        settings, _ = load_settings(None, True, tmp_path)  # noqa: FBT003 -- isolated
        settings = settings.with_overrides(select=[code], preview=True)
        report = run([str(file)], settings, tmp_path, Running(cache=False))
        (case,) = cases_of(report.findings, str(tmp_path))
        if instead is not None:
            data = file.read_bytes()
            case = Case(case.finding, case.root, {str(file): (data, instead(data.decode()).encode())})
        with Base(str(tmp_path), within=runner.place) as base, Trees(base, case.changes) as trees:
            return calls.verify(Session(case, Project(tmp_path, settings), settings, VerifyOptions(), runner, trees))

    return verdict


MAKE = """
    from torch.utils.data import DataLoader

    def make(dataset, num_workers=0):
        return DataLoader(dataset, batch_size=4, shuffle=True, num_workers=num_workers, persistent_workers=True)
"""


@needs_torch
def test_guard_is_confirmed(verify: Callable[..., Verdict]) -> None:
    verdict = verify(MAKE, "OOM101")
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.readings[0].before == (1.0,)
    assert verdict.readings[0].after == (0.0,)


@needs_torch
def test_removal_is_a_regression(verify: Callable[..., Verdict]) -> None:
    text = MAKE.replace("num_workers=0", "num_workers=4") + "\n    make(range(8), num_workers=0)\n    make(range(8), num_workers=4)\n"
    verdict = verify(text, "OOM101", instead=lambda program: program.replace(", persistent_workers=True", ""))
    assert verdict.outcome is Outcome.REGRESSED


@needs_torch
def test_keywords_made_in_statements(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        import torch
        from torch.utils.data import DataLoader

        def make(dataset, cfg):
            kwargs = {"batch_size": cfg["batch_size"], "num_workers": 0}
            if torch.cuda.is_available():
                kwargs["pin_memory"] = True
            kwargs["persistent_workers"] = True
            return DataLoader(dataset, **kwargs)
        """,
        "OOM101",
    )
    assert verdict.outcome is Outcome.CONFIRMED


@needs_torch
def test_lambda_for_spawned_workers(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        from torch.utils.data import DataLoader

        def make(dataset):
            return DataLoader(dataset, batch_size=4, num_workers=2, collate_fn=lambda batch: batch)
        """,
        "OOM111",
    )
    assert verdict.outcome is Outcome.CONFIRMED, verdict.reason


@needs_torch
def test_cycle_keeps_one_epoch(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        import itertools
        from torch.utils.data import DataLoader

        def train(dataset, steps):
            loader = DataLoader(dataset, batch_size=8, shuffle=True)
            for batch in itertools.islice(itertools.cycle(loader), steps):
                print(batch)
        """,
        "OOM130",
    )
    assert verdict.outcome is Outcome.CONFIRMED
    assert verdict.readings[0].before == (6.0,)
    assert verdict.readings[0].after == (1.0,)


@needs_torch
def test_counting_a_loader(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        from torch.utils.data import DataLoader

        def train(dataset, epochs):
            loader = DataLoader(dataset, batch_size=8)
            return len(list(loader)) * epochs
        """,
        "OOM131",
    )
    assert verdict.outcome is Outcome.CONFIRMED


@needs_torch
def test_strings_copied_by_forked_workers(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        import json
        from torch.utils.data import DataLoader, Dataset

        class Stories(Dataset):
            def __init__(self, path):
                with open(path) as file:
                    self.records = [json.loads(line) for line in file]

            def __len__(self):
                return len(self.records)

            def __getitem__(self, index):
                return len(self.records[index])

        loader = DataLoader(Stories("stories.jsonl"), num_workers=2)
        """,
        "OOM110",
    )
    assert verdict.outcome is Outcome.SHOWN, verdict.reason


@needs_torch
@pytest.mark.parametrize("option", ["dataloader_persistent_workers=True", "dataloader_prefetch_factor=4", "dataloader_multiprocessing_context='spawn'"])
def test_training_arguments(verify: Callable[..., Verdict], option: str) -> None:
    text = f"""
        from transformers import TrainingArguments

        args = TrainingArguments(output_dir="out", {option})
    """
    assert verify(text, "OOM140").outcome is Outcome.CONFIRMED


@needs_torch
def test_arguments_of_an_own_class_may_have_other_defaults(verify: Callable[..., Verdict]) -> None:
    verdict = verify(
        """
        from dataclasses import dataclass

        from transformers import TrainingArguments

        @dataclass
        class Arguments(TrainingArguments):
            rank: int = 8

        args = Arguments(output_dir="out", dataloader_persistent_workers=True)
        """,
        "OOM140",
    )
    assert verdict.outcome is (Outcome.INCONCLUSIVE if importlib.util.find_spec("transformers") is None else Outcome.CONFIRMED)


COUNTED = """
    import argparse

    from torch.utils.data import DataLoader

    def make(dataset):
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=0)
        args = parser.parse_args()
        return DataLoader(dataset, batch_size=4, shuffle=True, num_workers=args.workers, persistent_workers=True)
"""
WITHOUT = "    if args.workers == 0:\n        return DataLoader(dataset, batch_size={size}, shuffle=True)\n    return DataLoader(dataset, batch_size=4"


@needs_torch
@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        pytest.param("persistent_workers=True", "persistent_workers=args.workers > 0", Outcome.CONFIRMED, id="right"),
        pytest.param("persistent_workers=True", "persistent_workers=args.workers > 1", Outcome.REGRESSED, id="not-with-one"),
        pytest.param(
            "args.workers, persistent_workers=True", "min(args.workers, 4), persistent_workers=args.workers > 0", Outcome.REGRESSED, id="fewer-than-asked-for"
        ),
        pytest.param("    return D", "    if args.workers == 0:\n        return None\n    return D", Outcome.INCONCLUSIVE, id="no-loader-any-more"),
        pytest.param("    return DataLoader(dataset, batch_size=4", WITHOUT.format(size=4), Outcome.CONFIRMED, id="another-way"),
        pytest.param("    return DataLoader(dataset, batch_size=4", WITHOUT.format(size=2), Outcome.INCONCLUSIVE, id="another-way-and-other-batches"),
    ],
)
def test_every_count_still_gives_its_loader(old: str, new: str, outcome: Outcome, verify: Callable[..., Verdict]) -> None:
    verdict = verify(COUNTED, "OOM101", instead=lambda program: program.replace(old, new))
    assert verdict.outcome is outcome, verdict
