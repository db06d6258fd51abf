"""Programs of every layout: `--fix` changes the bytes of the fixed spans, no other, and comes to rest."""

from __future__ import annotations

import ast
import codecs
import json
import tempfile
import warnings
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomlint import engine
from oomlint.config import Settings
from oomlint.engine import RunOptions

IMPORT: Final = "from torch.utils.data import DataLoader; a = b = f = x = range(4)"  # behind a name that nothing binds, nothing is fixed
CALLS: Final = {
    "DataLoader(x, num_workers=0, persistent_workers=True)": "DataLoader(x, num_workers=0)",
    "DataLoader(x, persistent_workers=True, num_workers=0)": "DataLoader(x, num_workers=0)",
    "DataLoader(x, num_workers=0, prefetch_factor=2)": "DataLoader(x, num_workers=0)",
}
LETTERS: Final = {
    "utf-8": "é表ソ\U0001f600\u2028\x85",
    "utf-8-sig": "é表\U0001f600\ufeff",
    "latin-1": "éÿ\x85\xa0",
    "cp1252": "é€…",
    "shift_jis": "表ソ能ｱ",
    "euc-jp": "表ソ能ｱ",
    "koi8-r": "жЯ─",
}
ENDS: Final = st.sampled_from(["\n", "\r\n", "\r", "\r\r\n"])
# `%` is the call, `é` a letter of the encoding; rows end with a line feed.
STATEMENTS: Final = st.sampled_from(
    [
        "%",
        "a = %  # é \f \v noqa",
        "s = 'é\v\f'; %; b = 'é'",
        "s = f'é{a!r:>{b}}é{{' 'é', %",
        "a = \\\n    %",
        "f(  # é\n\f  [(a,\n\n %)], \f b)",
        "if a:\n    s = 'é'; a = %\n\f\n    b",
        "if a:\n\tif b:\n\t    a = %\n\tb\n",
        "if a:\n  if b:\n  \ta = '''é\n\f \t''', %\n  \n  # é\n  b",
        "def f(a):\n    '''é\n\f\té\\\n    '''\n\n    return %\n\n    # the end",
        "\f%",
        "if a:\n  \f  % ; b",
        "'''\f\n\f\n\té''' ; %",
        "class A:\n\f\n    a: int = %  # é\n\n\n",
        "a = '\\\né', %",
        "(\n\f%\n)",
        "\f \n\t\f\n # é\n%",
    ]
)


@st.composite
def programs(draw: st.DrawFn, letters: str) -> str:
    """A program with some calls that can be fixed."""
    letter = st.sampled_from(letters)
    end = st.sampled_from([draw(ENDS)]) if draw(st.booleans()) else ENDS
    statements = draw(st.lists(STATEMENTS, min_size=1, max_size=4))
    rows = [IMPORT, *(each.replace("%", draw(st.sampled_from(sorted(CALLS)))).replace("é", draw(letter)) for each in statements)]
    text = ""
    for row in "\n".join(rows).split("\n"):
        newline = draw(end)
        text += row + ("\r\n" if row.endswith("\\") and newline == "\r\r\n" else newline)  # one row goes on in the next
    return text if draw(st.booleans()) else text.rstrip("\r\n")


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The bytes of a file of Python."""
    encoding = draw(st.sampled_from(sorted(LETTERS)))
    declared = "" if encoding.startswith("utf-8") else f"# coding: {encoding}" + draw(ENDS)
    return (declared + draw(programs(LETTERS[encoding]))).encode(encoding)


@st.composite
def notebooks(draw: st.DrawFn) -> bytes:
    """The bytes of a notebook."""
    cells = []
    for text in draw(st.lists(programs(LETTERS["utf-8"]), min_size=1, max_size=3)):
        lead = draw(st.sampled_from(["", "%%time\n", "!ls é\n", "  \n%cd x\n"]))
        source = lead + text
        cells.append({"cell_type": "code", "metadata": {}, "outputs": [], "source": source.splitlines(keepends=True) if draw(st.booleans()) else source})
    content = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}, indent=draw(st.sampled_from([None, 1, 4])), ensure_ascii=draw(st.booleans()))
    return (codecs.BOM_UTF8 if draw(st.booleans()) else b"") + content.encode()


def fixed(name: str, before: bytes) -> bytes:
    """What a file has become, once and for all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(before)
        options = RunOptions(fix=True, cache=False, processes=1)
        first = engine.run([str(path)], Settings(preview=True), folder, options)
        assert (first.failures, first.notices) == ((), ())
        assert [item for item in first.findings if item.code is None] == []
        after = path.read_bytes()
        again = engine.run([str(path)], Settings(preview=True), folder, options)
        assert (again.changes, again.findings) == ((), first.findings)
        assert path.read_bytes() == after
    return after


def expected(before: bytes) -> bytes:
    for call, result in CALLS.items():
        before = before.replace(call.encode(), result.encode())
    return before


exhaustive = settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@exhaustive
@given(files())
def test_only_the_fixed_spans_of_a_file_change(before: bytes) -> None:
    after = fixed("a.py", before)
    assert after == expected(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(after)


@exhaustive
@given(notebooks())
def test_only_the_fixed_spans_of_a_notebook_change(before: bytes) -> None:
    assert fixed("a.ipynb", before) == expected(before)
