"""The first look at a file: what no rule can start from is not parsed."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from oomlint.scout.triage import triage


def lets_through(text: str) -> bool:
    """Whether the scout has a file parsed."""
    return triage(f"import torch\nfrom torch import nn\n\n\n{dedent(text)}").parse


LOOP = """
    def collect(files, model, kept):
        for path in files:
            out = model(path)
            {statement}
            kept = torch.cat([kept, out])
        return kept
"""


@pytest.mark.parametrize(
    ("statement", "parsed"),
    [
        ("pass", True),
        ("print(kept)", True),
        ("if kept.shape[0] > 5: pass", True),
        ("if len(kept): pass", True),
        ("out = model(out, kept)", False),
        ("out = kept[0]", False),
        ("use = lambda: kept", True),
        ("kept = torch.zeros(0)", False),
        ("if kept is None: kept = out", True),
    ],
)
def test_what_a_loop_reads_is_no_collection(statement: str, *, parsed: bool) -> None:
    assert lets_through(LOOP.format(statement=statement)) is parsed


@pytest.mark.parametrize(
    ("statement", "parsed"),
    [
        ("self.register_buffer('bank', torch.zeros(rows, 128))", True),
        ("self.bank = torch.zeros(rows, 128)", True),
        ("self.bank: object = torch.zeros(rows, 128)", True),
        ("self.bank = torch.zeros(1, 128)", False),
        ("self.bank = torch.zeros((50_000, 4096))", True),
        ("self.bank = nn.Parameter(torch.zeros(rows, 128))", False),
        ("rates = torch.linspace(0, 1, rows) + torch.zeros(rows)", False),
    ],
)
def test_what_a_module_makes_has_to_be_kept_and_large(statement: str, *, parsed: bool) -> None:
    code = f"class Bank(nn.Module):\n    def __init__(self, rows=1_000_000):\n        super().__init__()\n        {statement}\n"
    assert lets_through(code) is parsed


@pytest.mark.parametrize(
    ("method", "call", "parsed"),
    [
        ("forward", "self.cell(x, self.state)", True),
        ("__post_init__", "self.cell(x, self.state)", False),
        ("forward", "torch.where(x, self.state)", False),
        ("forward", "max(x, self.state)", False),
    ],
)
def test_a_state_goes_around_where_a_module_is_called_for_each_batch(method: str, call: str, *, parsed: bool) -> None:
    assert lets_through(f"class Net(nn.Module):\n    def {method}(self, x):\n        self.state = {call}\n") is parsed


@pytest.mark.parametrize(("other", "parsed"), [("return self.kept", True), ("self.kept.clear()", False), ("del self.kept[0]", False)])
def test_what_is_taken_out_again_is_no_cache(other: str, *, parsed: bool) -> None:
    lines = [
        "class Frames:",
        "    def __init__(self):",
        "        self.kept = {}",
        "    def take(self, key):",
        "        self.kept[key] = read(key)",
        "    def other(self):",
        indent(other, "        "),
    ]
    assert lets_through("\n".join(lines)) is parsed


@pytest.mark.parametrize(("header", "parsed"), [("f(path)", True), ("f()", False), ("f(path) -> bool", False), ("f(path) -> object", True)])
def test_a_cached_function_may_keep_much(header: str, *, parsed: bool) -> None:
    assert lets_through(f"from functools import lru_cache\n\n\n@lru_cache(maxsize=None)\ndef {header}:\n    return 1\n") is parsed
