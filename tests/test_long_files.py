"""Long files cost what they are long: calls are counted, no clock is asked."""

from __future__ import annotations

import sys
import tracemalloc
from typing import TYPE_CHECKING

import libcst as cst
import pytest

from oomlint import registry
from oomlint.config import Settings
from oomlint.model.arithmetic import computed
from oomlint.model.project import Project
from oomlint.model.values import Const

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

HEAD = "from torch.utils.data import DataLoader\na0 = DataLoader(range(8), num_workers=0)\n"


def chain(number: int) -> str:
    return HEAD + "".join(f"a{i + 1} = DataLoader(a{i}, num_workers=0)\n" for i in range(number))


def chain_of_one_name(number: int) -> str:
    return HEAD + "a0 = DataLoader(a0, num_workers=0)\n" * number


def chain_of_data(number: int) -> str:
    return HEAD + "".join(f"a{i + 1} = DataLoader(a{i}.dataset, num_workers=0)\n" for i in range(number))


def factories(number: int) -> str:
    made = "".join(f"def make{i}(ds, n=0):\n    return DataLoader(ds, num_workers=n)\n\n" for i in range(number))
    return HEAD + made + "".join(f"make{i}(range(8))\n" for i in range(number))


def told_by_tests(number: int) -> str:
    """Settings that functions of the file put into another form, whichever one they have."""
    made = "def renamed(cfg, word):\n    out = {}\n    for key, value in cfg.items():\n        out[key.replace(word, '')] = value\n    return out\n\n\n"
    forms = "".join(f"    {'el' if i else ''}if 'word{i}' in cfg:\n        cfg = renamed(cfg, 'word{i}')\n" for i in range(number))
    parts = "".join(f"    cfg = cfg.get('part{i}', cfg)\n" for i in range(3))
    return f"{HEAD}{made}def make(ds, cfg):\n{parts}{forms}    return DataLoader(ds, num_workers=cfg.get('workers'), persistent_workers=True)\n"


def calls(path: Path, text: str) -> int:
    """How many Python functions a rule calls to check a program."""
    path.write_text(text, encoding="utf-8")
    project = Project(path.parent, Settings())
    module = project.module(str(path))
    rule = registry.load("OOM101")
    number = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal number
        del frame
        number += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        list(rule.check(module, project))
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("text", [chain, chain_of_one_name, chain_of_data, factories])
def test_four_times_the_length_is_four_times_the_work(text: Callable[[int], str], tmp_path: Path) -> None:
    calls(tmp_path / "warm.py", text(10))
    first, second = (calls(tmp_path / f"{number}.py", text(number)) for number in (60, 240))
    assert second < 5.5 * first


def test_what_a_name_stands_for_is_asked_once_while_it_is_found_out_what_calls_change(tmp_path: Path) -> None:
    calls(tmp_path / "warm.py", told_by_tests(1))
    first, second = (calls(tmp_path / f"{number}.py", told_by_tests(number)) for number in (4, 16))
    assert first < 100_000
    assert second < 5.5 * first


def walks(number: int) -> str:
    """A method that calls itself in several directions, and changes the object that it is a method of."""
    steps = "".join(
        f"        if place[{i}] not in self.seen:\n            self.workers = place[{i}]\n            self.walk(place[{i}])\n" for i in range(number)
    )
    made = f"class Walker:\n    def __init__(self, workers=0):\n        self.workers = workers\n        self.seen = {{}}\n\n    def walk(self, place):\n{steps}"
    return f"{HEAD}{made}\n\nwalker = Walker()\nwalker.walk([0, 1])\nDataLoader(range(8), num_workers=walker.workers, persistent_workers=True)\n"


def test_each_direction_of_a_recursion_is_followed_once(tmp_path: Path) -> None:
    calls(tmp_path / "warm.py", walks(1))
    first, second = (calls(tmp_path / f"{number}.py", walks(number)) for number in (2, 8))
    assert second < 5.5 * first


SEARCHES = """\
import torch
from torch import nn


def search(network, state, width):
    score = width
{steps}
    return network(state) * score


def evaluate(network, loader, judge):
    network.eval()
    best = {{}}
    for names, images in loader:
        for width in ["1", "2", "3", "4"]:
            if width == judge:
                best[names] = search(network, images, int(width)).argmax()
            else:
                best[names] = search(network, images, int(width) + 1).argmax()
    return best
"""


@pytest.mark.parametrize("steps", [50, 800])
def test_the_rest_of_a_function_is_seen_where_the_turns_of_a_loop_call_long_ones(steps: int, tmp_path: Path) -> None:
    path = tmp_path / "evaluate.py"
    path.write_text(SEARCHES.format(steps="\n".join("    score = score + 1" for _ in range(steps))), encoding="utf-8")
    project = Project(tmp_path, Settings())
    assert [found.code for found in registry.load("OOM204").check(project.module(str(path)), project)] == ["OOM204"]


TEXTS = [(cst.Multiply, b"x", 400_000_000), (cst.Multiply, 400_000_000, "x"), (cst.Multiply, "line", 100_000_000), (cst.Modulo, "%400000000d", 1)]


@pytest.mark.parametrize(("sign", "left", "right"), TEXTS)
def test_long_text_that_code_makes_is_not_made(sign: type, left: object, right: object) -> None:
    tracemalloc.start()
    try:
        computed(sign, Const(left), Const(right))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000  # bytes


BOXES = """
import torch


class Boxes:
    def __init__(self, rows):
        self.rows = torch.as_tensor(rows)

    def __len__(self):
        return self.rows.shape[0]

    def __getitem__(self, index):
        return self.rows[index]

    @classmethod
    def joined(cls, parts):
        return cls(torch.cat([part.rows for part in parts], dim=0))
"""
HYDRA = """
import hydra

network = hydra.utils.instantiate({"_target_": "networks.Network"})
"""


def steps_of(folder: Path, code: str, file: str) -> int:
    """How many steps of the engines a rule takes for a file of a project."""
    project = Project(folder, Settings())
    before = project.steps.left
    assert list(registry.load(code).check(project.module(str(folder / file)), project))
    return before - project.steps.left


def test_objects_that_no_settings_have_hydra_make_are_looked_for_in_no_call(tmp_path: Path) -> None:
    (tmp_path / "boxes.py").write_text(BOXES)
    taken = []
    for number in (1, 16):
        uses = "".join(f"print(use(made({i})))\n" for i in range(number))
        (tmp_path / "uses.py").write_text(
            f"{HYDRA}\n\ndef made(i):\n    return list(range(i))\n\n\ndef use(kept):\n    return kept.joined(kept.rows)\n\n\n{uses}"
        )
        taken.append(steps_of(tmp_path, "OOM401", "boxes.py"))
    assert taken[0] == taken[1]
