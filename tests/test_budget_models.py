"""What ``oomlint budget`` counts of a model beside what torch counts: each program of ``budget_models.txt`` is run, and read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

BEFORE: Final = """
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

class Sub(nn.Module):
    def __init__(self, n, m=None):
        super().__init__()
        self.l = nn.Linear(n, m or n)

    def forward(self, x):
        return self.l(x)

"""
AFTER: Final = "\noptimizer = torch.optim.Adam(model.parameters())\nloader = DataLoader([1], batch_size=2)\n"
PROGRAMS: Final = re.findall(r"^### (\w+): ([a-z ]+)\n(.*?)(?=^###|\Z)", (Path(__file__).parent / "budget_models.txt").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def parameters(budget: Budget) -> tuple[int, list[str]]:
    """Bytes that are told, and the names of what is missing."""
    rows = [row for row in table(budget, "train.py")["rows"] if row["what"].startswith("parameters of `model`")]
    assert rows
    return sum(row["bytes"] or 0 for row in rows), [name for row in rows for name in row["missing"]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("certainty", "program"), [one[1:] for one in PROGRAMS], ids=[one[0] for one in PROGRAMS])
def test_a_model_has_the_parameters_that_torch_counts(budget: Budget, certainty: str, program: str) -> None:
    pytest.importorskip("torch")
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(BEFORE + program + AFTER, space)
    wanted = sum(one.numel() * one.element_size() for one in space["model"].parameters())
    Path("train.py").write_text(BEFORE + program + AFTER)
    told, missing = parameters(budget)
    if certainty == "exact":
        assert (told, missing) == (wanted, [])
    else:
        assert missing
        assert told <= wanted


def test_there_are_programs() -> None:
    assert len(PROGRAMS) > 70


def test_a_model_with_many_unknown_layers_has_one_name_for_them(budget: Budget) -> None:
    layers = "\n".join(f"        self.l{n} = nn.Linear(3, unknown({n}))" for n in range(9))
    Path("train.py").write_text(f"{BEFORE}class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n{layers}\nmodel = M()\n{AFTER}")
    assert parameters(budget)[1] == ["parameters of the rest of model"]


def test_an_optimizer_that_nobody_knows_is_one_that_makes_steps(budget: Budget) -> None:
    making = "import importlib, sys\nmake = importlib.import_module(sys.argv[1]).make\nmodel = nn.Linear(3, 4).cuda()\nhelper = make(model.parameters())\n"
    using = "loader = DataLoader([1], batch_size=2)\nfor x in loader:\n    model(x).sum().backward()\n    helper.step()\n"
    Path("train.py").write_text(BEFORE + making + using)
    rows = {row["what"]: (row["bytes"], row["missing"]) for row in table(budget, "train.py")["rows"] if row["holder"] == "device"}
    assert rows["gradients of `model`"] == (64, [])
    assert rows["state of the optimizer of `model`"] == (None, ["state of the optimizer"])
    Path("train.py").write_text(BEFORE + making + using.replace("helper.step()", "print(helper)"))
    assert not any("optimizer" in row["what"] for row in table(budget, "train.py")["rows"])


@pytest.mark.parametrize("loop", ["while True:\n            pass", "for i in range(10 ** 12):\n            self.n = i", "self.n = 9 ** 9 ** 9", "M()"])
def test_a_constructor_without_end_is_not_followed_to_it(budget: Budget, loop: str) -> None:
    Path("train.py").write_text(f"{BEFORE}class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {loop}\nmodel = M()\n{AFTER}")
    assert parameters(budget)[0] == 0
