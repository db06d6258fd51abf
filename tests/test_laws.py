"""Laws that no room can show alone: nothing of the checked code runs, and any program at all comes through unharmed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oomlint import engine
from oomlint.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

NOTES = Settings(preview=True).with_overrides(severity="note", min_confidence="low")


def test_nothing_of_the_checked_project_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    shout = f"open({str(witness)!r}, 'w').write('ran')\n"
    for name in ("train.py", "settings.py", "sitecustomize.py", "conftest.py", "__init__.py", "setup.py", "torch.py", "yaml.py"):
        body = "from torch.utils.data import DataLoader\nimport settings\nDataLoader(1, num_workers=settings.n, persistent_workers=True)\nn = 0\n"
        (tmp_path / name).write_text(shout + body, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", "check", "--fix", "--unsafe-fixes", "--no-cache", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "Fixed 7 findings" in done.stdout
    assert not witness.exists()


# -- programs made at random from the words that the model looks for ----------------------------------------------------------

NAMES = ["nw", "loader", "args", "kwargs", "dataset", "cfg", "self", "flag"]
CONSTANTS = ["0", "1", "8", "None", "True", "False", "'spawn'", "-1"]
KEYWORDS = ["num_workers", "persistent_workers", "prefetch_factor", "timeout", "batch_size", "collate_fn", "multiprocessing_context"]

atoms = st.sampled_from([*NAMES, *CONSTANTS, "args.num_workers", "cfg['num_workers']", "cfg.get('num_workers', 0)", "os.cpu_count()"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" > ", " and ", " or ", " + ", " // ", " == ", " | "]), inner).map("".join),
        st.tuples(inner, inner, inner).map(lambda x: f"({x[0]} if {x[1]} else {x[2]})"),
        st.tuples(inner, inner).map(lambda x: f"min({x[0]}, {x[1]})"),
        st.tuples(inner, inner).map(lambda x: f"{{'num_workers': {x[0]}, 'persistent_workers': {x[1]}}}"),
        inner.map(lambda x: f"[{x} for nw in range(9)]"),
        inner.map(lambda x: f"list({x})"),
        inner.map(lambda x: f"(lambda batch: {x})"),
    ),
    max_leaves=5,
)
calls = st.tuples(
    st.sampled_from(["DataLoader", "make", "itertools.cycle"]),
    expressions,
    st.lists(st.tuples(st.sampled_from(KEYWORDS), expressions), max_size=3, unique_by=lambda x: x[0]),
).map(lambda x: f"{x[0]}({x[1]}{''.join(f', {k}={v}' for k, v in x[2])}, **kwargs)" if x[0] != "itertools.cycle" else f"itertools.cycle({x[1]})")
simple = st.one_of(
    st.tuples(st.sampled_from(NAMES), expressions).map(lambda x: f"{x[0]} = {x[1]}"),
    st.tuples(st.sampled_from(NAMES), calls).map(lambda x: f"{x[0]} = {x[1]}"),
    expressions.map(lambda x: f"kwargs['num_workers'] = {x}"),
    expressions.map(lambda x: f"kwargs.update(persistent_workers={x})"),
    st.sampled_from(["return loader", "del kwargs", "nw += 1", "raise ValueError", "loader.append(nw)"]),
)


def block(statements: list[str], indent: str) -> str:
    return "".join(f"{indent}{line}\n" for text in statements for line in text.split("\n"))


statements = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(expressions, st.lists(inner, min_size=1, max_size=3), st.lists(inner, min_size=1, max_size=2)).map(
            lambda x: f"if {x[0]}:\n{block(x[1], '    ')}else:\n{block(x[2], '    ')}".rstrip()
        ),
        st.tuples(expressions, st.lists(inner, min_size=1, max_size=3)).map(lambda x: f"for epoch in {x[0]}:\n{block(x[1], '    ')}".rstrip()),
        st.lists(inner, min_size=1, max_size=2).map(lambda x: f"try:\n{block(x, '    ')}except ImportError:\n    pass"),
    ),
    max_leaves=6,
)
programs = st.lists(statements, min_size=1, max_size=6).map(
    lambda body: (
        "import itertools\nimport os\nfrom torch.utils.data import DataLoader\n\n\n"
        f"def make(dataset, nw=0, flag=True, args=None, cfg=None, loader=None, self=None, **kwargs):\n{block(body, '    ')}\n\nmake(1, nw=0)\n"
    )
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(program=programs)
def test_any_program_comes_through_and_its_fixes_hold(tmp_path: Path, program: str) -> None:
    try:
        compile(program, "train.py", "exec")
    except SyntaxError:
        assume(condition=False)
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    options = engine.RunOptions(fix=True, unsafe_fixes=True, cache=False, processes=1)
    report = engine.run([str(path)], NOTES, tmp_path, options)
    assert not report.failures
    fixed = path.read_text(encoding="utf-8")
    compile(fixed, "train.py", "exec")
    engine.run([str(path)], NOTES, tmp_path, options)
    assert path.read_text(encoding="utf-8") == fixed
