"""Notebooks are fixed: the sources of the cells that change, in the style of the file, and not one byte of the rest."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import Done, runs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomlint.finding import Edit, Place
from oomlint.notebooks.cells import read_notebook
from oomlint.notebooks.edits import edited
from oomlint.notebooks.spans import written_sources
from oomlint.source import Source, SourceError, apply_edits, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIXTURES = Path(__file__).parent.parent / "fixtures" / "notebooks"
RULES = "OOM001,OOM101,OOM102,OOM111,OOM201,OOM204,OOM212"

TRAIN = {
    2: "%matplotlib inline\n!pip install -q torch\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset",
    4: '%%time\n!nvidia-smi\nloader = DataLoader(\n    dataset,  # "größer" <b> 🙂\n    batch_size=32,\n)',
    8: """\
model.eval()
correct = 0
with torch.no_grad():
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
print("☃", correct)
""",
}
INDENTED = """\
    def _collate(b):
        return ('''
      x''')


    # moved out of a function
    loader = DataLoader(
        ds,
        persistent_workers=True,
        collate_fn=_collate,
        num_workers=2, multiprocessing_context='spawn')
    if loader:
        %cd ..
"""
# What --fix makes of the cells that it changes. One notebook in nine styles, and two with what no tool writes.
FIXED: dict[str, dict[int, str]] = {
    **dict.fromkeys(("ascii", "colab", "compact", "crlf", "jupyter", "one_row", "strings", "tabs", "version3"), TRAIN),
    "indented": {2: INDENTED, 3: "a = DataLoader(ds)\nb = '\ud800'", 4: "    c = DataLoader(\n        ds)"},
    "odd": {2: "from torch.utils.data import DataLoader\nds = [1]\nloader = DataLoader(\n    ds, batch_size=2)\nlen(loader)"},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--isolated", "--no-cache", "--select", RULES)


# -- a second reader of the JSON, to judge the first one by ------------------------------------------------------------

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


def values(raw: str) -> dict[tuple[str | int, ...], tuple[int, int]]:
    """The span of every value of a JSON text, by the keys and numbers that lead to it; of keys that stand twice, the last."""
    tokens = [(match[0], match.start(), match.end()) for match in TOKEN.finditer(raw)]
    found: dict[tuple[str | int, ...], tuple[int, int]] = {}

    def value(index: int, path: tuple[str | int, ...]) -> int:
        token, start, end = tokens[index]
        for known in [known for known in found if known[: len(path)] == path]:
            del found[known]
        index += 1
        number = 0
        if token in {"[", "{"}:
            while tokens[index][0] not in {"]", "}"}:
                key: str | int = number
                if token == "{":
                    key, index = json.loads(tokens[index][0]), index + 2
                index = value(index, (*path, key))
                number += 1
                index += tokens[index][0] == ","
            end = tokens[index][2]
            index += 1
        found[path] = (start, end)
        return index

    value(0, ())
    return found


def sources(raw: str) -> list[tuple[int, int]]:
    """The spans of the cells' sources."""
    spans = values(raw)
    cells: list[tuple[str | int, ...]] = [path for path in spans if path[:1] == ("cells",) and len(path) == 2]
    cells = cells or [path for path in spans if path[:1] == ("worksheets",) and path[2:3] == ("cells",) and len(path) == 4]
    cells.sort(key=lambda path: [part for part in path if isinstance(part, int)])
    return [spans.get((*path, "source"), spans.get((*path, "input"), (0, 0))) for path in cells]


def around(raw: str, changed: set[int]) -> list[str]:
    """The text around the sources of the cells with these numbers."""
    edges = sorted(edge for number, span in enumerate(sources(raw), 1) if number in changed for edge in span)
    return [raw[begin:end] for begin, end in zip([0, *edges[1::2]], [*edges[::2], len(raw)], strict=True)]


def contents(raw: str) -> list[Any]:
    return [json.loads(raw[start:end] or "[]") for start, end in sources(raw)]


def assert_only_sources_differ(before: str, after: str, fixed: dict[int, str]) -> None:
    assert around(before, set(fixed)) == around(after, set(fixed))
    for number, (old, new) in enumerate(zip(contents(before), contents(after), strict=True), 1):
        assert type(old) is type(new)
        assert "".join(new) == fixed.get(number, "".join(old))


# -- files ------------------------------------------------------------------------------------------------------------


def test_every_notebook_to_be_fixed_is_accounted_for() -> None:
    assert {path.name for path in FIXTURES.glob("fixable_*")} == {f"fixable_{name}.ipynb" for name in FIXED}


@pytest.mark.parametrize("name", FIXED)
def test_only_the_sources_of_fixed_cells_change(folder: Path, check: Callable[..., Done], name: str) -> None:
    path = folder / "a.ipynb"
    before = (FIXTURES / f"fixable_{name}.ipynb").read_bytes()
    path.write_bytes(before)
    done = check("--fix")
    assert (done.status, done.err) == (0, "")
    assert done.out == "Fixed 3 findings in 1 file.\n" if name != "odd" else "Fixed 2 findings in 1 file.\n"
    after = path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf") == before.startswith(b"\xef\xbb\xbf")
    assert_only_sources_differ(before.decode("utf-8-sig"), after.decode("utf-8-sig"), FIXED[name])
    assert check("--fix").out == "No findings in 1 file.\n"
    assert path.read_bytes() == after


@pytest.mark.parametrize("name", ["ascii", "colab", "crlf", "jupyter", "tabs", "version3"])
def test_of_a_list_only_the_rows_that_differ_are_written(folder: Path, check: Callable[..., Done], name: str) -> None:
    """They look like the rows around them: the same indentation, line end and spelling of what is not ASCII."""
    path = folder / "a.ipynb"
    shutil.copy(FIXTURES / f"fixable_{name}.ipynb", path)
    before = path.read_bytes().split(b"\n")
    check("--fix")
    after = path.read_bytes().split(b"\n")
    gone, come = [row for row in before if row not in after], [row for row in after if row not in before]
    assert [row.strip() for row in gone] == [
        b'"    persistent_workers=True,\\n",',
        b'"    prefetch_factor=4,\\n",',
        b'"for x, y in loader:\\n",',
        b'"    correct += (model(x).argmax(1) == y).sum().item()\\n",',
    ]
    assert [row.strip() for row in come] == [
        b'"import torch\\n",',
        b'"with torch.no_grad():\\n",',
        b'"    for x, y in loader:\\n",',
        b'"        correct += (model(x).argmax(1) == y).sum().item()\\n",',
    ]
    frame = {(row[: len(row) - len(row.lstrip())], row[len(row.rstrip()) :]) for row in gone}
    assert frame == {(row[: len(row) - len(row.lstrip())], row[len(row.rstrip()) :]) for row in come}


# -- cells made for a test ---------------------------------------------------------------------------------------------


def book(*cells: str, **style: Any) -> str:
    """A notebook as Jupyter writes it. A cell that begins with `#md` is text."""
    listed: list[dict[str, Any]] = []
    for source in cells:
        rows = source.splitlines(keepends=True)
        if source.startswith("#md"):
            listed.append({"cell_type": "markdown", "metadata": {}, "source": rows})
        else:
            listed.append({"cell_type": "code", "execution_count": 7, "metadata": {}, "outputs": [], "source": rows})
    style.setdefault("indent", 1)
    return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, **style) + "\n"


IMPORTS = "from torch import nn\nfrom torch.utils.data import DataLoader"
SETUP = "model = nn.Linear(3, 2)\nval_loader = DataLoader(pairs, batch_size=8)"
EVALUATE = "model.eval()\nfor x, y in val_loader:\n    right += (model(x).argmax(1) == y).sum().item()"
EVALUATED = "model.eval()\nwith torch.no_grad():\n    for x, y in val_loader:\n        right += (model(x).argmax(1) == y).sum().item()"
LAMBDA = 'a = DataLoader(ds, num_workers=2, multiprocessing_context="spawn", collate_fn=lambda b: b[0])'
FUNCTION = "def _collate(b):\n    return b[0]\n\n\n"
NAMED = LAMBDA.replace("lambda b: b[0]", "_collate")
BAD = "DataLoader(ds, persistent_workers=True)"
GOOD = "DataLoader(ds)"


@pytest.mark.parametrize(
    ("cells", "fixed"),
    [
        (["#md text", "!pip install torch", IMPORTS, SETUP, EVALUATE], {3: f"import torch\n{IMPORTS}", 5: EVALUATED}),
        (["import os", IMPORTS, SETUP, EVALUATE], {2: f"import torch\n{IMPORTS}", 4: EVALUATED}),
        (
            ["import os", "%pip install torch\nimport mine", SETUP.replace("nn.", "mine."), EVALUATE],
            {2: "%pip install torch\nimport torch\nimport mine", 4: EVALUATED},
        ),
        (["x = 1", "import os\nfrom torch.utils.data import DataLoader\n" + SETUP.replace("nn.", "m."), EVALUATE], None),
        ([SETUP.replace("nn.", "m."), f"%matplotlib inline\n# note\n{EVALUATE}", "import os"], {2: f"%matplotlib inline\n# note\nimport torch\n\n{EVALUATED}"}),
        ([IMPORTS, SETUP, f"%%time\n{EVALUATE}"], {1: f"import torch\n{IMPORTS}", 3: f"%%time\n{EVALUATED}"}),
        ([IMPORTS, SETUP, f"%%timeit -n 1\n{EVALUATE}"], {3: f"%%timeit -n 1\nimport torch\n\n{EVALUATED}"}),
        ([f"%%timeit\n{IMPORTS}", IMPORTS, SETUP, EVALUATE], {2: f"import torch\n{IMPORTS}", 4: EVALUATED}),
        ([f"from __future__ import annotations\n{IMPORTS}\n{SETUP}\n{EVALUATE}"], None),
    ],
    ids=["same library", "not the first", "behind an installation", "others", "its own cell", "time", "own names", "names of others", "future"],
)
def test_an_import_goes_where_it_runs_before_it_is_needed(folder: Path, check: Callable[..., Done], cells: list[str], fixed: dict[int, str] | None) -> None:
    before = book(*cells)
    (folder / "a.ipynb").write_text(before)
    assert check("--fix", "--unsafe-fixes").err == ""
    after = (folder / "a.ipynb").read_text()
    if fixed is not None:
        assert_only_sources_differ(before, after, fixed)
        return
    number = next(number for number, source in enumerate(cells, 1) if "from torch" in source)
    text = "".join(contents(after)[number - 1])
    assert text.index("import torch\nfrom torch") > text.find("__future__")
    assert EVALUATED in "".join("".join(source) for source in contents(after))


def test_edits_in_several_cells_are_made_together(folder: Path, check: Callable[..., Done]) -> None:
    dataset = """\
%%time
class Frames(Dataset):
    def __init__(self, path):
        self.h5 = h5py.File(path, "r")

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return torch.from_numpy(self.h5["x"][i])"""
    imports = "import h5py\nimport torch\nfrom torch.utils.data import DataLoader, Dataset"
    loader = 'loader = DataLoader(Frames("a.h5"), num_workers=4, multiprocessing_context="spawn")'
    before = book(imports, "!ls", "#md text", dataset, loader)
    (folder / "a.ipynb").write_text(before)
    assert check("--fix") == (0, "Fixed 1 finding in 1 file.\n", "")
    after = (folder / "a.ipynb").read_text()
    fixed = "".join(contents(after)[3])
    assert fixed.startswith("%%time\nclass Frames(Dataset):\n    def __init__(self, path):\n        self._h5_path = os.path.abspath(path)\n")
    assert_only_sources_differ(before, after, {1: f"import os\n{imports}", 4: fixed})


@pytest.mark.parametrize("cells", [[IMPORTS, SETUP, EVALUATE, "import torch"], [f"%%timeit\nimport torch\n{IMPORTS}", IMPORTS, SETUP, EVALUATE]])
def test_an_import_that_has_not_run_yet_or_elsewhere_is_not_relied_on(folder: Path, check: Callable[..., Done], cells: list[str]) -> None:
    (folder / "a.ipynb").write_text(book(*cells))
    assert check("--fix", "--unsafe-fixes").status == 1
    assert (folder / "a.ipynb").read_text() == book(*cells)


@pytest.mark.parametrize(
    ("cells", "fixed"),
    [
        (["# the end of it", LAMBDA], {2: FUNCTION + NAMED}),
        (["x = 1", f"%%time\n{LAMBDA}"], {2: f"%%time\n{FUNCTION}{NAMED}"}),
        (["x = 1", f"# why\n{LAMBDA}"], {2: f"{FUNCTION}# why\n{NAMED}"}),
        (["x = 1", f"#@title Loader\n# why\n{LAMBDA}"], {2: f"#@title Loader\n\n\n{FUNCTION}# why\n{NAMED}"}),
        (["x = 1", f"%cd data\n{LAMBDA}\n!ls"], {2: f"%cd data\n\n\n{FUNCTION}{NAMED}\n!ls"}),
    ],
    ids=["comment above", "magic", "comment", "title", "magics"],
)
def test_a_function_goes_into_the_cell_that_uses_it(folder: Path, check: Callable[..., Done], cells: list[str], fixed: dict[int, str]) -> None:
    before = book("from torch.utils.data import DataLoader", *cells)
    (folder / "a.ipynb").write_text(before)
    assert check("--fix").err == ""
    assert_only_sources_differ(before, (folder / "a.ipynb").read_text(), {number + 1: source for number, source in fixed.items()})


def test_of_cells_that_are_alike_each_is_fixed_on_its_own(folder: Path, check: Callable[..., Done]) -> None:
    cells = ["from torch.utils.data import DataLoader", BAD, f"#md {BAD}", BAD, f"# oomlint: ignore\n{BAD}", GOOD, BAD]
    (folder / "a.ipynb").write_text(book(*cells))
    assert check("--fix").out == "Fixed 3 findings in 1 file.\n"
    assert (folder / "a.ipynb").read_text() == book(cells[0], GOOD, f"#md {BAD}", GOOD, *cells[4:6], GOOD)


def test_a_loss_is_detached(folder: Path, check: Callable[..., Done]) -> None:
    cells = ["import torch\nfrom torch import nn", "model = nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\ntotal = 0"]
    train = """\
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss
"""
    (folder / "a.ipynb").write_text(book(*cells, train))
    check("--fix", "--unsafe-fixes")
    assert (folder / "a.ipynb").read_text() == book(*cells, train.replace("+= loss", "+= loss.detach()"))


def test_a_row_behind_the_last_one_of_a_cell_stays_in_the_cell(folder: Path, check: Callable[..., Done]) -> None:
    setup = "import torch\ncell = torch.nn.GRUCell(1, 8)\nopt = torch.optim.SGD(cell.parameters(), 0.1)\nh = torch.zeros(1, 8)"
    train = "for x, y in loader:\n    h = cell(x, h)\n    loss = (h.mean() - y).abs()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()  # done"
    loader = "from torch.utils.data import DataLoader\nloader = DataLoader(ds, batch_size=1)"
    (folder / "a.ipynb").write_text(book(setup, loader, train, "last = 1"))
    assert check("--fix", "--unsafe-fixes") == (0, "Fixed 1 finding in 1 file.\n", "")
    assert (folder / "a.ipynb").read_text() == book(setup, loader, f"{train}\n    h = h.detach()", "last = 1")


def test_a_suppression_that_goes_leaves_no_trace(folder: Path, check: Callable[..., Done]) -> None:
    cells = ["x = 1  # noqa: OOM101", "# oomlint: ignore[OOM101]\nx = 2", "# oomlint: ignore[OOM101]"]
    (folder / "a.ipynb").write_text(book(*cells))
    assert check("--fix").out == "Fixed 3 findings in 1 file.\n"
    assert contents((folder / "a.ipynb").read_text()) == [["x = 1"], ["x = 2"], []]


# -- what is left alone ------------------------------------------------------------------------------------------------


def test_a_loop_with_a_line_of_ipythons_own_is_left_with_a_line(folder: Path, check: Callable[..., Done]) -> None:
    before = book(IMPORTS, SETUP, EVALUATE.replace("\n    right", "\n    !nvidia-smi\n    right"))
    (folder / "a.ipynb").write_text(before)
    cause = "it cannot be applied: it would change the line `!nvidia-smi`, which is IPython's own"
    assert check("--fix").err == f"oomlint: a.ipynb: the fix of OOM204 at cell 3:2:1 is left out: {cause}\n"
    assert (folder / "a.ipynb").read_text() == before


def test_a_call_in_two_cells_is_left_with_a_line(folder: Path, check: Callable[..., Done]) -> None:
    before = book("from torch.utils.data import DataLoader\nDataLoader(ds, persistent_workers=True,", "\nbatch_size=2)", f"x = {BAD}")
    (folder / "a.ipynb").write_text(before)
    done = check("--fix")
    assert done.err == "oomlint: a.ipynb: the fix of OOM101 at cell 1:2:1 is left out: it cannot be applied: it reaches from cell 1 into another\n"
    assert_only_sources_differ(before, (folder / "a.ipynb").read_text(), {3: f"x = {GOOD}"})


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": []}',
        '{"cells": null, "worksheets": []}',
        '{"worksheets": [{"cells": []}, 1, {}]}',
        '{"cells": [], "cells": [{"cell_type": "code"}]}',
        book("#md text", "", "\n \n"),
    ],
)
def test_a_notebook_without_code(folder: Path, check: Callable[..., Done], text: str) -> None:
    (folder / "a.ipynb").write_text(text)
    assert check("--fix") == (0, "No findings in 1 file.\n", "")
    assert (folder / "a.ipynb").read_text() == text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (r'{"cells": [{"cell_type": "code", "source": "DataLoader(x, persistent_workers=True) # \u12"}]}', r"Invalid \\uXXXX escape"),
        ('{"worksheets": [{"cells": 5}]}', "no list of cells"),
        (book(BAD)[:-3], "Expecting ',' delimiter"),
    ],
)
def test_what_is_no_notebook_is_one_line(folder: Path, check: Callable[..., Done], text: str, cause: str) -> None:
    (folder / "a.ipynb").write_text(text)
    done = check("--fix", "--output-format", "concise", "-q")
    assert done.status == 1
    assert re.fullmatch(rf"a\.ipynb:1:1: cannot check: .*{cause}.*\n", done.out)
    assert (folder / "a.ipynb").read_text() == text


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_mode_and_a_symbolic_link_stay_and_nothing_is_left_beside(folder: Path, check: Callable[..., Done]) -> None:
    path, link = folder / "a.ipynb", folder / "b" / "link.ipynb"
    path.write_text(book("from torch.utils.data import DataLoader", BAD))
    path.chmod(0o640)
    link.parent.mkdir()
    link.symlink_to("../a.ipynb")
    assert check("--fix", str(link)).out == "Fixed 1 finding in 1 file.\n"
    assert path.read_text() == book("from torch.utils.data import DataLoader", GOOD)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(os.listdir(folder)) == ["a.ipynb", "b"]


def test_a_notebook_with_hard_links_is_left_alone(folder: Path, check: Callable[..., Done]) -> None:
    (folder / "a.ipynb").write_text(book("from torch.utils.data import DataLoader", BAD))
    os.link(folder / "a.ipynb", folder / "second")
    assert "the file has 2 hard links" in check("--fix").err
    assert (folder / "a.ipynb").read_text() == book("from torch.utils.data import DataLoader", BAD)


def test_standard_input() -> None:
    text = book("from torch.utils.data import DataLoader", BAD, indent=None)
    words = ["check", "--isolated", "--select", RULES, "-", "--stdin-filename", "a.IPYNB", "--fix"]
    done = subprocess.run(
        [sys.executable, "-m", "oomlint", *words],
        input=text.encode(),
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(FIXTURES.parent.parent)},
    )
    assert done.stdout.decode() == text.replace(BAD, GOOD)


def test_the_diff_names_the_cell_and_shows_its_rows(folder: Path, check: Callable[..., Done]) -> None:
    (folder / "sub").mkdir()
    before = book("#md text", f"%cd x\n{IMPORTS}", SETUP, f"{EVALUATE}\nlast = {BAD}")
    (folder / "sub" / "train.ipynb").write_text(before)
    done = check("--diff")
    assert (done.status, done.err) == (1, "oomlint: would fix 2 findings in 1 file\n")
    assert (
        done.out
        == """\
--- sub/train.ipynb:cell 2
+++ sub/train.ipynb:cell 2
@@ -1,3 +1,4 @@
 %cd x
+import torch
 from torch import nn
 from torch.utils.data import DataLoader
--- sub/train.ipynb:cell 4
+++ sub/train.ipynb:cell 4
@@ -1,4 +1,5 @@
 model.eval()
-for x, y in val_loader:
-    right += (model(x).argmax(1) == y).sum().item()
-last = DataLoader(ds, persistent_workers=True)
+with torch.no_grad():
+    for x, y in val_loader:
+        right += (model(x).argmax(1) == y).sum().item()
+last = DataLoader(ds)
"""
    )
    assert (folder / "sub" / "train.ipynb").read_text() == before


def test_a_cell_that_becomes_empty_is_a_diff(folder: Path, check: Callable[..., Done]) -> None:
    (folder / "a.ipynb").write_text(book("# oomlint: ignore[OOM101]"))
    assert check("--diff").out == "--- a.ipynb:cell 1\n+++ a.ipynb:cell 1\n@@ -1 +0,0 @@\n-# oomlint: ignore[OOM101]\n"


# -- one edit ----------------------------------------------------------------------------------------------------------


def source(*cells: str, **style: Any) -> Source:
    return read_source("/x.ipynb", book(*cells, **style).encode())


def applied(found: Source, *edits: Edit) -> list[str]:
    return ["".join(cell) for cell in contents(apply_edits(found, edits).decode())]


@pytest.mark.parametrize(
    ("cells", "spot", "content", "fixed"),
    [
        (["a\nb", "c"], (3, 1, 3, 1), "x\n", ["a\nb", "x\nc"]),
        (["a\nb", "c"], (2, 2, 2, 2), "\nx", ["a\nb\nx", "c"]),
        (["a\nb", "c"], (2, 1, 3, 1), "x\n", ["a\nx", "c"]),
        (["a\nb\n", "c"], (2, 1, 3, 1), "x\n", ["a\nx\n", "c"]),
        (["a\nb\n", "c"], (2, 1, 3, 1), "", ["a\n", "c"]),
        (["a", "c"], (3, 1, 3, 1), "x\n", ["a", "c\nx"]),
        (["a", "c\n"], (3, 1, 3, 1), "x\n", ["a", "c\nx\n"]),
        (["a\r\nb"], (2, 1, 2, 1), "x\ny\n", ["a\r\nx\r\ny\r\nb"]),
        (["  if a:\n    b\n  c"], (2, 1, 2, 1), "  x\n", ["  if a:\n    x\n    b\n  c"]),
        (["  a\n  c"], (1, 1, 1, 1), "x\n\ny\n", ["  x\n\n  y\n  a\n  c"]),
        (["  a\n  c"], (2, 1, 3, 1), "x\ny\n", ["  a\n  x\n  y"]),
        (["%cd x\na"], (1, 1, 1, 1), "y\n", ["y\n%cd x\na"]),
        (["if a:\n    !ls -l\nb"], (2, 9, 2, 9), "\n    y", ["if a:\n    !ls -l\n    y\nb"]),
        (["a = !ls\nb"], (1, 1, 1, 1), "y\n", ["y\na = !ls\nb"]),
        (["é = '🙂'\nb"], (1, 6, 1, 7), "ü", ["é = 'ü'\nb"]),
    ],
)
def test_an_edit_of_the_program_is_one_of_a_cell(cells: list[str], spot: tuple[int, int, int, int], content: str, fixed: list[str]) -> None:
    found = source(*cells)
    assert applied(found, found.edit(*spot, content)) == fixed


def test_a_place_in_a_masked_row_ends_with_the_row() -> None:
    place = source("x = 1\nnames = !ls").place(2, 9, 2, 22)
    assert (place.row, place.column, place.end_row, place.end_column) == (2, 9, 2, 12)


@pytest.mark.parametrize(
    ("cell", "spot", "content", "cause"),
    [
        ("if a:\n    %cd x", (2, 1, 2, 1), "  ", "it would change the line `%cd x`"),
        ("%cd x\na", (1, 1, 1, 5), "y", "it would change the line `%cd x`"),
        ("%%time\na", (1, 1, 1, 1), "y\n", "it would stand before `%%time`"),
        ("\n%%time\na", (1, 1, 1, 1), "y\n", "it would stand before `%%time`"),
        ("!a \\\n  b\nc", (1, 5, 1, 5), "\nx", r"it would change the line `b`"),
        ("!a \\\n  b\nc", (2, 1, 2, 1), "x\n", r"it would change the line `b`"),
        ("a", (1, 1, 1, 1), "%cd x\n", "it would add a line that is IPython's own"),
        ("a", (1, 1, 1, 1), "%%time\n", "it would make a magic of the cell"),
        ("a", (1, 1, 1, 1), "  ", "it would change how the cell is indented"),
        ("a\n!b", (1, 2, 1, 2), " = '''", "it would change the line `!b`"),
        ("if a:\n    b", (2, 1, 2, 6), "", "the cell would not parse on its own"),
        ("a + b", (1, 1, 1, 2), "c\n# ", "it would change what stands around it"),
        ("  %cd x\n  a + b", (2, 1, 2, 2), "c; #", "it would change what stands around it"),
        ("a", (1, 1, 2, 2), "b", "it reaches from cell 1 into another"),
        ("a", (1, 1, 3, 1), "b", "it reaches from cell 1 into another"),
    ],
)
def test_an_edit_that_changes_more_than_the_python_of_a_cell_is_refused(cell: str, spot: tuple[int, int, int, int], content: str, cause: str) -> None:
    found = source(cell, "last")
    with pytest.raises(SourceError, match=re.escape(cause)):
        apply_edits(found, [found.edit(*spot, content)])


def test_what_does_not_parse_before_need_not_parse_after() -> None:
    found = source("if a:\n    b", "else:\n    c")
    assert applied(found, found.edit(4, 5, 4, 6, "d")) == ["if a:\n    b", "else:\n    d"]


def test_edits_that_do_not_fit() -> None:
    found = source("ab", "#md c")
    with pytest.raises(ValueError, match="overlapping edits in row 1"):
        apply_edits(found, [found.edit(1, 1, 1, 3, "x"), found.edit(1, 2, 1, 3, "y")])
    for cell in (0, 2, 3):
        with pytest.raises(ValueError, match=f"cell {cell} is no part of the program"):
            apply_edits(found, [Edit(Place("/x.ipynb", cell, 1, 1, 1, 1), "x")])
    with pytest.raises(ValueError, match="cannot be applied"):
        apply_edits(found, [Edit(Place("/y.ipynb", 1, 1, 1, 1, 1), "x")])


def test_half_a_pair_of_surrogates_stays_and_is_not_copied() -> None:
    raw = r'{"cells": [{"cell_type": "code", "source": "x = \"\uD800\" \"\ud83d\ude00\" y"}]}'
    found = read_source("/x.ipynb", raw.encode())
    assert apply_edits(found, [found.edit(1, 13, 1, 14, "z")]).decode() == raw.replace(" y", " z")
    with pytest.raises(SourceError, match="half a pair of surrogates"):
        apply_edits(found, [found.edit(1, 13, 1, 14, '"\ufffd"')])


@pytest.mark.parametrize(
    ("raw", "fixed"),
    [
        (r'{"cells":[{"cell_type":"code","source":["é\n","a"]}]}', r'{"cells":[{"cell_type":"code","source":["é\n","a","ü\n","b"]}]}'),
        (r'{"cells": [{"cell_type": "code", "source": ["\u00e9"]}]}', r'{"cells": [{"cell_type": "code", "source": ["\u00e9\n", "\u00fc\n", "b"]}]}'),
        (r'{"cells": [{"cell_type": "code", "source": ["\\u00e9"]}]}', r'{"cells": [{"cell_type": "code", "source": ["\\u00e9\n", "ü\n", "b"]}]}'),
        ('{"cells": [{"cell_type": "code", "source":[\n "a"\n]}]}', '{"cells": [{"cell_type": "code", "source":[\n "a\\n",\n "ü\\n",\n "b"\n]}]}'),
        ('{"cells": [{"cell_type": "code", "source": [ "a" ] }]}', '{"cells": [{"cell_type": "code", "source": [ "a\\n", "ü\\n", "b" ] }]}'),
    ],
    ids=["in one string", "escaped", "a backslash", "a row each", "blanks"],
)
def test_new_rows_are_written_as_the_file_writes_rows(raw: str, fixed: str) -> None:
    cell = read_notebook(raw).cells[0]
    if "\\n" in raw:
        fixed = fixed.replace('"a","ü', '"a\\n","ü')
    assert edited(raw, [], {1: [(len(cell.source), len(cell.source), "\nü\nb")]}) == fixed


# -- any notebook ------------------------------------------------------------------------------------------------------

letters = st.sampled_from([*"ab  =()#'\"\\/<é中\t", "\n", "\n", "\r\n", "🙂", "\ud800", "\udc00", "\u2028"])
texts = st.lists(letters, max_size=12).map("".join)
metadata = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["source", "input", "cells", "a"]), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def cells(draw: st.DrawFn) -> dict[str, Any]:
    """A cell whose source is a text, or a list of texts that are rows or not."""
    text = draw(texts)
    form = draw(st.sampled_from(["text", "rows", "any"]))
    rows: Any = text if form == "text" else text.splitlines(keepends=True) if form == "rows" else draw(st.lists(texts, max_size=4))
    cell = {"cell_type": draw(st.sampled_from(["code", "code", "raw"])), "source": rows, "metadata": draw(metadata), "outputs": [draw(metadata)]}
    return {key: cell[key] for key in draw(st.permutations(list(cell)))}


@st.composite
def notebooks(draw: st.DrawFn) -> str:
    """The JSON of a notebook, however it is written."""
    listed = draw(st.lists(cells(), min_size=1, max_size=4))
    if draw(st.booleans()):
        top: dict[str, Any] = {"metadata": draw(metadata), "cells": listed, "nbformat": 4}
    else:
        for cell in listed:
            cell["input" if draw(st.booleans()) else "source"] = cell.pop("source")
        number = draw(st.integers(0, len(listed)))
        top = {"nbformat": 3, "worksheets": [{"cells": listed[:number]}, {"metadata": draw(metadata)}, {"cells": listed[number:]}]}
    if draw(st.booleans()):
        style = random.Random(draw(st.integers(0, 99)))
        return "".join(scrawled(top, style))
    text = json.dumps(
        top,
        indent=draw(st.sampled_from([None, 0, 1, 2, 4, "\t"])),
        ensure_ascii=draw(st.booleans()),
        sort_keys=draw(st.booleans()),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
    )
    text = re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)  # what UTF-8 cannot hold
    return draw(st.sampled_from(["", "\n", " "])) + (text.replace("\n", "\r\n") if draw(st.booleans()) else text)


def scrawled(value: Any, style: random.Random) -> Iterator[str]:
    """A value with blanks and escapes here and there, and keys that stand twice."""

    def blank() -> str:
        return style.choice(["", "", " ", "\n\t", "\r\n  "])

    yield blank()
    if isinstance(value, dict):
        pairs = list(value.items())
        if pairs and style.random() < 0.3:
            pairs.insert(0, (style.choice(pairs)[0], style.choice([1, "x", ["x"], {"source": []}])))
        yield "{"
        for number, (key, item) in enumerate(pairs):
            yield from ("," * bool(number), blank(), *scrawled(key, style), ":", *scrawled(item, style))
        yield blank() + "}"
    elif isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            yield from ("," * bool(number), *scrawled(item, style))
        yield blank() + "]"
    elif isinstance(value, str):
        plain = [json.dumps(char, ensure_ascii=style.random() < 0.3 or "\ud7ff" < char < "\ue000")[1:-1] for char in value]
        odd = [
            f"\\u{ord(char):04X}" if char < "\uffff" and style.random() < 0.1 else "\\/" if char == "/" else text
            for char, text in zip(value, plain, strict=True)
        ]
        yield f'"{"".join(odd)}"'
    else:
        yield json.dumps(value)
    yield blank()


def joined(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else value


@settings(max_examples=300)
@given(notebooks(), st.data())
def test_any_source_is_found_and_changed_alone(raw: str, data: st.DataObject) -> None:
    before = contents(raw)
    found = written_sources(raw, set(range(1, len(before) + 1)))
    assert [(written.start, written.end) for written in found.values()] == sources(raw)
    assert ["".join(part.text for part in written.parts) for written in found.values()] == [joined(source) for source in before]
    numbers = [number for number, source in enumerate(before, 1) if joined(source)]
    wanted: dict[int, list[tuple[int, int, str]]] = {}
    fixed = {}
    for number in data.draw(st.sets(st.sampled_from(numbers), max_size=2)) if numbers else ():
        text = joined(before[number - 1])
        ends = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=4)))
        new = st.sampled_from(["", "x", "x\n", "\nx", "ü\r\n\ny", '"\\'])
        wanted[number] = [(start, end, data.draw(new)) for start, end in zip(ends[::2], ends[1::2], strict=False)]
        fixed[number] = text
        for start, end, content in reversed(wanted[number]):
            fixed[number] = fixed[number][:start] + content + fixed[number][end:]
        fixed[number] = json.loads(json.dumps(fixed[number]))  # two halves of a character that come to stand side by side are one
    after = edited(raw, [], wanted)
    assert_only_sources_differ(raw, after, fixed)
    after.encode()
    for number, source in enumerate(before, 1):
        if isinstance(source, list) and all(row.endswith(("\n", "\r")) for row in source[:-1]) and all(source):
            assert all(re.search(r"[\r\n]\Z", row) for row in contents(after)[number - 1][:-1])
            assert all(contents(after)[number - 1])


@settings(max_examples=100)
@given(notebooks())
@example('{"cells": [{"cell_type": "code", "source": ["a\\n", "b"]}]}')
def test_nothing_to_change_changes_nothing(raw: str) -> None:
    assert edited(raw, [], {}) == raw
    before = [joined(source) for source in contents(raw)]
    everywhere = {number: [(0, 0, ""), (len(text), len(text), "")] for number, text in enumerate(before, 1) if text}
    assert [joined(source) for source in contents(edited(raw, [], everywhere))] == before
