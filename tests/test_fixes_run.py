"""A safe fix keeps what a program computes: to the last bit, before and after, in programs that are run.

A fixture can be run where it has a ``main()`` that needs no arguments and ends with ``print(main())``. All safe fixes are applied to a copy, and what
``main()`` returns and prints, and where it leaves the generators of random numbers, is compared. tests/run_programs.py runs the programs.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pytest
from rule_cases import EVALUATES, KEEPS_GRAPH

from oomlint import engine, registry
from oomlint.config import load_settings
from oomlint.finding import Safety

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Run

    from oomlint.rule import Rule

FIXTURES: Final = Path(__file__).parent.parent / "fixtures" / "rules"
SHOWS: Final = "if __name__ == '__main__':\n    print(main())"
EXEMPT: Final = ("OOM0", "OOM1")  # families whose fixtures need not run: what they find are comments, or ends the program at once
LEAST_RUN: Final = 3


# -- programs that can be run ------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """A file with a ``main()``, in a fixture."""

    case: Path
    file: str  # relative to the folder of the case, or to the one that the case is in

    @property
    def code(self) -> str:
        return self.case.parent.name

    @property
    def name(self) -> str:
        return f"{self.code}-{self.case.stem}"


class Main(NamedTuple):
    """The ``main()`` of a file."""

    program: Program
    shown: bool  # the file ends with `print(main())`


def mains() -> Iterator[Main]:
    """Every ``main()`` that needs no arguments, in fixtures that hold a pattern."""
    for case in sorted(FIXTURES.glob("*/bad*")):
        for file in sorted(case.rglob("*.py")) if case.is_dir() else [case]:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            if any(isinstance(item, ast.FunctionDef) and item.name == "main" and needs_nothing(item.args) for item in tree.body):
                program = Program(case, file.relative_to(case if case.is_dir() else case.parent).as_posix())
                yield Main(program, ast.unparse(tree.body[-1]) == SHOWS)


def needs_nothing(args: ast.arguments) -> bool:
    return len(args.posonlyargs + args.args) == len(args.defaults) and None not in args.kw_defaults


MAINS: Final = list(mains())
RUNNABLE: Final = [item.program for item in MAINS if item.shown]
SAFE_RULES: Final = [rule for rule in registry.all_rules() if rule.fixable is Safety.SAFE]


def has_to_run(rule: Rule) -> bool:
    return not rule.code.startswith(EXEMPT) or any(program.code == rule.code for program in RUNNABLE)


# -- fixing and running -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A program before and after its safe fixes."""

    before: Path
    after: Path
    fixed: frozenset[str | None]

    @property
    def changed(self) -> bool:
        return bool(self.fixed)


class Fix(Protocol):
    def __call__(self, program: Program) -> Pair: ...


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Fix:
    """Lays out a program twice, and applies to the second all safe fixes of its family."""
    known: dict[Path, Pair] = {}

    def pair(program: Program) -> Pair:
        if program.case not in known:
            folder = tmp_path_factory.mktemp(program.name)
            known[program.case] = Pair(folder / "before", folder / "after", apply(program, folder / "before", folder / "after"))
        return known[program.case]

    return pair


def apply(program: Program, before: Path, after: Path) -> frozenset[str | None]:
    for folder in (before, after):
        if program.case.is_dir():
            shutil.copytree(program.case, folder, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir()
            shutil.copy(program.case, folder)
    settings, root = load_settings(None, False, after)  # noqa: FBT003 - the engine's own signature
    ignored = [EVALUATES] if program.code in KEEPS_GRAPH else []
    settings = settings.with_overrides(select=[program.code[: len("OOM1")]], ignore=ignored, preview=True, severity="note", min_confidence="low", exclude=[])
    report = engine.run([str(after)], settings, root, engine.RunOptions(fix=True, cache=False, processes=1))
    assert not report.failures, "\n".join(failure.trace for failure in report.failures)
    assert bool(report.changes) == bool(report.fixed)
    return frozenset(item.code for item in report.fixed)


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [pytest.param(program, id=program.name) for program in RUNNABLE])
def test_a_safe_fix_keeps_what_a_program_computes(program: Program, patch: Fix, run: Run) -> None:
    pair = patch(program)
    before, *after = run(*((folder, program.file) for folder in (pair.before, pair.after)[: 1 + pair.changed]))
    assert before["error"] is None, before["error"]
    assert before["result"] != [": NoneType None"], "main() returns what a user would look at"
    for outcome in after:
        assert outcome["error"] is None, outcome["error"]
        assert outcome["result"] == before["result"]
        assert outcome["printed"] == before["printed"]
        assert outcome["random"] == before["random"]


@pytest.mark.parametrize("rule", [rule for rule in SAFE_RULES if has_to_run(rule)], ids=lambda rule: rule.code)
def test_a_rule_with_a_safe_fix_has_programs_that_show_it(rule: Rule, patch: Fix) -> None:
    shown = {program.name for program in RUNNABLE if program.code == rule.code and rule.code in patch(program).fixed}
    assert len(shown) >= LEAST_RUN, f"fixed and run: {sorted(shown)}"


def test_a_main_that_needs_no_arguments_can_be_run() -> None:
    fixed = {rule.code for rule in SAFE_RULES if has_to_run(rule)}
    silent = [item.program.name for item in MAINS if not item.shown and item.program.code in fixed]
    assert silent == [], f"a fixture that can be run ends with\n{SHOWS}"


# -- what is compared --------------------------------------------------------------------------------------------------

DIFFERENT = {
    "the last bit of a float": ("0.3", "0.1 + 0.2"),
    "the sign of zero": ("0.0", "-0.0"),
    "an int and a float": ("1", "1.0"),
    "an int and a bool": ("1", "True"),
    "nothing and zero": ("None", "0"),
    "a string": ("'a'", "'b'"),
    "a list and a tuple": ("[1]", "(1,)"),
    "the order of a list": ("[1, 2]", "[2, 1]"),
    "the length of a list": ("[1]", "[1, 1]"),
    "the order of a dict": ("{1: 0, 2: 0}", "{2: 0, 1: 0}"),
    "the kind of a key": ("{1: 0}", "{'1': 0}"),
    "a set": ("{1, 2}", "{1, 3}"),
    "the last bit of a tensor": ("torch.tensor([0.1 + 0.2], dtype=torch.float64)", "torch.tensor([0.3], dtype=torch.float64)"),
    "the sign of zero in a tensor": ("torch.zeros(3)", "-torch.zeros(3)"),
    "the last of many elements": ("torch.arange(1000)", "torch.cat([torch.arange(999), torch.tensor([0])])"),
    "the type of a tensor": ("torch.zeros(2)", "torch.zeros(2).double()"),
    "the shape of a tensor": ("torch.zeros(2)", "torch.zeros(1, 2)"),
    "the shape of an empty tensor": ("torch.zeros(0, 2)", "torch.zeros(0, 3)"),
    "a tensor of one element and its value": ("torch.tensor(1.0)", "1.0"),
    "a tensor and an array": ("torch.zeros(2)", "np.zeros(2, dtype=np.float32)"),
    "the device of a tensor": ("torch.zeros(2)", "torch.zeros(2, device='meta')"),
    "an array": ("np.array([1.0, np.nan])", "np.array([1.0, 2.0])"),
    "the type of an array": ("np.zeros(2)", "np.zeros(2, dtype=np.float32)"),
    "an array of objects": ("np.array([None, [1]], dtype=object)", "np.array([None, [2]], dtype=object)"),
    "a number of numpy and one of Python": ("np.float64(1)", "1.0"),
    "deep down": ("{'a': [(torch.ones(1), 2)]}", "{'a': [(torch.ones(1), 3)]}"),
    "an attribute": ("Meter(torch.ones(1))", "Meter(torch.zeros(1))"),
    "the weights of a module": ("torch.nn.Linear(2, 2)", "torch.nn.Linear(2, 2).requires_grad_(False).apply(lambda m: m.weight.zero_())"),
    "the mode of a module": ("torch.nn.Dropout()", "torch.nn.Dropout().eval()"),
    "what is printed": ("print('a')", "print('b')"),
    "what another process prints": ("os.system('echo a')", "os.system('echo b')"),
    "the generator of torch": ("1 if torch.rand(1) < 2 else 0", "1"),
    "the generator of numpy": ("1 if np.random.rand() < 2 else 0", "1"),
    "the generator of Python": ("1 if random.random() < 2 else 0", "1"),
}
ALIKE = {
    "not a number": ("float('nan')", "-float('nan')"),
    "sets, whatever their order": ("{8, 16, 'a'}", "{'a', 16, 8}"),
    "a tensor that wants a gradient": ("torch.ones(2, requires_grad=True)", "torch.ones(2)"),
    "a tensor with a history": ("torch.ones(2, requires_grad=True) * 2", "torch.ones(2) * 2"),
    "a parameter": ("torch.nn.Parameter(torch.ones(2))", "torch.ones(2)"),
    "strides": ("torch.arange(6).reshape(2, 3).T.contiguous()", "torch.arange(6).reshape(2, 3).T"),
    "a tensor of no elements": ("torch.ones(0)", "torch.zeros(0)"),
    "half precision": ("torch.ones(2, dtype=torch.bfloat16)", "torch.ones(2).to(torch.bfloat16)"),
    "complex numbers": ("torch.ones(2, dtype=torch.complex64).conj().conj()", "torch.ones(2, dtype=torch.complex64)"),
    "how long it took": ("print(-time.time() + time.time())", "print(-time.time() + time.time())"),
    "what is drawn": ("(torch.rand(3), np.random.rand(3), random.random())", "(torch.rand(3), np.random.rand(3), random.random())"),
    "a loader with workers": ("list(DataLoader(range(8), num_workers=2, shuffle=True))", "list(DataLoader(range(8), num_workers=2, shuffle=True))"),
}
HEAD = """
    import os, random, socket, time
    import numpy as np
    import torch
    from torch.utils.data import DataLoader
    class Meter:
        def __init__(self, total):
            self.total = total
"""


def returning(folder: Path, name: str, value: str) -> tuple[Path, str]:
    """A program whose ``main()`` returns the value of an expression."""
    (folder / name).write_text(f"{dedent(HEAD)}\ndef main():\n    return {value}\n", encoding="utf-8")
    return folder, name


@pytest.mark.parametrize(
    ("values", "same"),
    [pytest.param(values, same, id=name) for same, table in ((False, DIFFERENT), (True, ALIKE)) for name, values in table.items()],
)
def test_what_differs_and_nothing_else_is_told_apart(values: tuple[str, str], same: bool, run: Run, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    one, two = run(returning(tmp_path, "one.py", values[0]), returning(tmp_path, "two.py", values[1]))
    assert (one["error"], two["error"]) == (None, None)
    assert (one == two) == same


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(value, says, id=name)
        for name, value, says in (
            ("an exception", "1 / 0", "ZeroDivisionError"),
            ("an exit", "exit()", "SystemExit"),
            ("a crash", "os.abort()", "ended with status -6"),
            ("too long", "[None for _ in iter(int, 1)]", "not done after 1 s"),
            ("the network", "socket.create_connection(('127.0.0.1', 9))", "no network here"),
            ("a name on the network", "socket.gethostbyname_ex('localhost') and socket.getaddrinfo('localhost', 80)", "no network here"),
            ("a value that cannot be compared", "[lambda: 0]", "cannot be compared"),
            ("a value that holds itself", "(lambda x: x.append(x) or x)([])", "holds itself"),
        )
    ],
)
def test_a_program_that_does_not_come_to_its_end_is_an_error(value: str, says: str, run: Run, tmp_path: Path) -> None:
    broken, sound = run(returning(tmp_path, "one.py", value), returning(tmp_path, "two.py", "7"), limit=1)
    assert says in broken["error"]
    assert (sound["error"], sound["result"]) == (None, [": int 7"])
