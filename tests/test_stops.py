"""No warning on code that control never comes to, nor on a loop whose rounds raise before there is another one; names that may still come leave a note."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Final

import pytest

from oomlint.config import Settings
from oomlint.engine import RunOptions, run

if TYPE_CHECKING:
    from pathlib import Path

# Evaluates with a graph: a warning, where control comes to it.
EVALUATION: Final = """\
from torch import nn
from torch.utils.data import DataLoader
{imports}

def evaluate(model: nn.Module, loader: DataLoader):
    hits = 0
    {before}
    for x, y in loader:
        {first}
        hits += (model(x).argmax(1) == y).sum().item()
        {last}
    return hits

{main}
"""


def found(folder: Path, files: dict[str, str], severity: str = "warning") -> list[str]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    settings = Settings().with_overrides(select=["OOM204", "OOM402", "OOM114"], severity=severity)
    report = run([str(folder)], settings, folder, RunOptions(cache=False, processes=1))
    assert not report.failures
    return [str(item.code) for item in report.findings]


def script(imports: str = "", before: str = "pass", first: str = "pass", last: str = "pass", main: str = "") -> str:
    return EVALUATION.format(imports=imports, before=before, first=first, last=last, main=main)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"before": "if hits: unknown"},
        {"before": "print(hits or unknown)"},
        {"before": "names = [unknown for _ in ()]"},
        {"before": "check = lambda: unknown"},
        {"before": "hits: unknown = 0"},
        {"before": "print(given, __file__)", "imports": "from somewhere import *"},
        {"before": "print(given)", "main": "def start():\n    global given\n    given = 1"},
        {"before": "globals()['given'] = 1; print(given)"},
        {"before": "x = raw_input()"},
        {"before": "hits = y = 0", "last": "if hits: raise ValueError"},
        {"first": "if hits: continue", "last": "pass"},
        {"before": "import contextlib\n    with contextlib.suppress(NameError): unknown"},
        {"main": "evaluate(1, 2)"},
        {"main": "import sys\n\ndef stop():\n    sys.exit()\n\nif __name__ == '__main__':\n    stop()"},
        {"main": "def evaluate_all(old):\n    if old:\n        evaluate(1)\n    evaluate(1, 2)"},
        {"before": "if hits: evaluate(1)"},
        {"before": "try:\n        unknown\n    except NameError:\n        pass"},
        {"before": "import logging\n    logging.error('none')"},
    ],
)
def test_code_that_may_run_is_spoken_of(said: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, {"train.py": script(**said)}) == ["OOM204"]


@pytest.mark.parametrize(
    "said",
    [
        {"before": "print(unknown)"},
        {"before": "unknown[0] = hits"},
        {"before": "x = unknown if hits else 1; print(other)"},
        {"before": "with open('log') as log: log.write(unknown)"},
        {"before": "if hits: return 1\n    else: raise ValueError"},
        {"before": "while True: pass"},
        {"before": "assert False, 'not yet'"},
        {"imports": "import sys", "before": "sys.exit(0)"},
        {"before": "exit()"},
        {"first": "stop"},
        {"last": "stop"},
        {"last": "raise SystemExit"},
        {"imports": "raise ImportError('old')"},
        {"imports": "def check():\n    raise SystemExit\n\ncheck()"},
        {"imports": "def check(a, *, b):\n    return a + b\n\ncheck(1)"},
        {"imports": "def check(a):\n    return a\n\ncheck(1, 2)"},
        {"imports": "def check(a):\n    return a\n\ncheck(1, more=2)"},
        {"imports": "class Settings:\n    def __init__(self, path):\n        self.path = path\n\nsettings = Settings()"},
        {"main": "evaluate()"},
        {"main": "def evaluate_all():\n    evaluate(1)"},
        {"main": "raise SystemExit\nevaluate(1, 2)"},
    ],
)
def test_nothing_is_said_of_code_that_cannot_run(said: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, {"train.py": script(**said)}) == []


@pytest.mark.parametrize(
    ("said", "notes"),
    [
        ({"before": "print(unknown)"}, 1),
        ({"imports": "def check():\n    print(unknown)\n\ncheck()"}, 1),
        ({"before": "print(unknown)\n    raise SystemExit"}, 0),
        ({"before": "raise SystemExit"}, 0),
    ],
)
def test_code_that_lacks_a_name_may_get_it(said: dict[str, str], notes: int, tmp_path: Path) -> None:
    files = {"train.py": script(**said)}
    assert found(tmp_path, files) == []
    assert found(tmp_path, files, "note") == ["OOM204"] * notes


@pytest.mark.parametrize(
    ("imports", "helper", "runs"),
    [
        ("from helpers import missing", "x = 1\n", False),
        ("from helpers import x", "x = 1\n", True),
        ("from helpers import missing", "from numpy import *\n", True),
        ("from helpers import missing", "from .made_by_the_build import *\n", True),
        ("from helpers import missing", "def __getattr__(name):\n    return name\n", True),
        ("from helpers import missing", "globals().update(missing=1)\n", True),
        ("try:\n    from helpers import missing\nexcept ImportError:\n    missing = None", "x = 1\n", True),
        ("from helpers import *\nprint(x)", "x = 1\n", True),
        ("from helpers import *\nprint(z)", "from made import *\nfrom train import *\n", True),
        ("from helpers import *\nprint(z)", "exec('z = 1')\n", True),
        ("import sys\nsys.path.insert(0, '../other')\nfrom helpers import missing", "x = 1\n", True),
        ("from helpers import __version__", "x = 1\n", True),
        ("from helpers import *\nprint(y)", "x = 1\n", False),
        ("print(given)", "import train\n\ntrain.given = 1\n", True),
        ("from helpers import stop\nstop()", "import sys\n\ndef stop():\n    sys.exit()\n", False),
        ("from helpers import stop\nstop()", "class Base:\n    pass\n\ndef stop():\n    raise NotImplementedError\n", True),
    ],
)
def test_what_an_import_brings(imports: str, helper: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    assert found(tmp_path, {"train.py": script(imports=imports), "helpers.py": helper}) == ["OOM204"] * runs


@pytest.mark.parametrize(("use", "runs"), [("native.run(1)", True), ("native(1)", False), ("print(other)", True)])
def test_what_a_package_may_hold_is_built(use: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    files = {
        "train.py": script(imports=f"from ops import native\n{use}" if "native" in use else f"from ops import *\n{use}"),
        "ops/__init__.py": "__all__ = ['other']\n",
        "ops/other.py": "x = 1\n",
    }
    assert found(tmp_path, files) == ["OOM204"] * runs


IMAGES: Final = """\
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, paths):
        self.images = [np.load(path) for path in paths]
        {init}

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        {item}
        return self.images[index]

    {more}

loader = DataLoader(Images(["a.npy", "b.npy"] * 50_000), num_workers=16)
"""


@pytest.mark.parametrize(
    ("init", "item", "more", "runs"),
    [
        ("pass", "pass", "", True),
        ("pass", "index = index + offset", "", False),
        ("self.names = names", "pass", "", False),
        ("self.prepare()", "pass", "def prepare(self):\n        self.names = names", False),
        ("self.prepare()", "pass", "def prepare(self):\n        raise NotImplementedError", True),
        ("pass", "if index is None: index = offset", "", True),
    ],
)
def test_a_dataset_that_gives_nothing_is_none(init: str, item: str, more: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    assert bool(found(tmp_path, {"train.py": IMAGES.format(init=init, item=item, more=more)})) is runs


def test_a_loader_of_what_gives_nothing_starts_no_workers(tmp_path: Path) -> None:
    text = IMAGES.format(init="pass", item="index = index + offset", more="").replace("[np.load(path) for path in paths]", "paths")
    loader = "loader = DataLoader(Images(['a.npy']), num_workers=4, worker_init_fn=lambda number: print(number))\n"
    settings = Settings().with_overrides(select=["OOM111"], severity="warning")
    (tmp_path / "train.py").write_text(text + loader)
    assert not run([str(tmp_path)], settings, tmp_path, RunOptions(cache=False, processes=1)).findings
    (tmp_path / "train.py").write_text(text.replace("+ offset", "+ 1") + loader)
    assert len(run([str(tmp_path)], settings, tmp_path, RunOptions(cache=False, processes=1)).findings) == 1


def test_a_command_of_the_project_runs(tmp_path: Path) -> None:
    main = "if __name__ == '__main__':\n    evaluate()"
    assert found(tmp_path / "a", {"train.py": script(main=main)}) == []
    assert found(tmp_path / "b", {"train.py": script(main=main), "pyproject.toml": "[project.scripts]\nscore = 'train:evaluate'\n"}) == ["OOM204"]


def test_a_fragment_has_its_names_from_elsewhere(tmp_path: Path) -> None:
    text = "from torch.utils.data import DataLoader, TensorDataset\n\nprint(made)\nloader = DataLoader(TensorDataset(points), num_workers=64)\n"
    settings = Settings().with_overrides(select=["OOM120"], severity="warning")
    for more, count in (("", 1), ("\n\ndef show(x):\n    print(x)\n", 0)):
        (tmp_path / "train.py").write_text(text + more)
        assert len(run([str(tmp_path)], settings, tmp_path, RunOptions(cache=False, processes=1)).findings) == count


def test_cells_run_one_by_one(tmp_path: Path) -> None:
    text = script(imports="raise SystemExit\n\n# %%", before="print(unknown)")
    assert found(tmp_path, {"train.py": text}) == ["OOM204"]


SPLITS: Final = """\
from glob import glob

import numpy as np
from kinds import Kind
from torch.utils.data import Dataset


class Splits({base}):
    def __init__(self, root, test=False, both=False):
        super().__init__()
        if test:
            self.images = self.read_test(root)
        else:
            self.images = self.read(root)
            if both:
                more = self.read_more(root)
                self.images = np.concatenate([self.images, more])

    def read(self, root):
        return np.stack([np.load(path) for path in glob(root + "/*.npy")])

    def read_test(self, root):
        return np.load(root + "/test.npy").reshape(-1, 12, 12)

    def read_more(self, root):
        rows = np.load(root + "/more.npy")
        patches = [row.reshape(12, 12) for row in rows]
        return np.stack(patches)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]
"""
OFF: Final = "from splits import Splits\n\ndef show(root):\n    print(Splits(root)[0], Splits(root, both=False)[0], Splits(root, test=True)[0])\n"


@pytest.mark.parametrize(
    ("base", "train", "rows"),
    [
        ("Dataset", OFF, [20]),
        ("Kind, Dataset", OFF, [20, 28]),
        ("Dataset", OFF.replace("False", "True"), [17, 20, 28]),
        ("Dataset", OFF.replace("False", "bool(root)"), [17, 20, 28]),
        ("Dataset", f"{OFF}\nKINDS = [Splits]\n", [17, 20, 28]),
        ("Dataset", f"{OFF}\nclass More(Splits):\n    pass\n\nMore('root', False, True)\n", [17, 20, 28]),
        ("Dataset", f"{OFF}\ndef more(splits):\n    return splits.read_more('root')\n", [20, 28]),
        ("Dataset", f"{OFF}\nNAMES = ['read_more']\n", [20, 28]),
    ],
)
def test_a_switch_that_all_calls_of_a_constructor_leave_off(base: str, train: str, rows: list[int], tmp_path: Path) -> None:
    (tmp_path / "splits.py").write_text(SPLITS.format(base=base))
    (tmp_path / "train.py").write_text(train)
    settings = Settings().with_overrides(select=["OOM401"])
    report = run([str(tmp_path)], settings, tmp_path, RunOptions(cache=False, processes=1))
    assert [item.place.row for item in report.findings] == rows


NOTEBOOK: Final = [
    "import torch\nfrom net import Net\nfrom torch.utils.data import DataLoader",
    "options = {'width': 8, 'depth': 3}",
    "model = Net(**options)",
    "{before}",
    "hits = 0\nloader = DataLoader(range(64), batch_size=8)",
    "model.eval()\nfor x, y in loader:\n    hits += (model(x).argmax(1) == y).sum().item()",
]
NET: Final = "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, {}):\n        super().__init__()\n        self.net = nn.Conv2d(3, 64, 3)\n"


def notebook(cells: list[str]) -> str:
    code: list[dict[str, object]] = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    ("takes", "before", "runs"),
    [
        ("options", "", False),
        ("width", "", False),
        ("width, depth", "", True),
        ("width, **more", "", True),
        ("options", "options['kind'] = 'small'", False),
        ("width", "del options['depth']", True),
        ("width", "options.pop('depth')", True),
        ("options", "model = Net(options)", True),
        ("options", "model = model.eval()", False),
        ("options", "model = torch.load('model.pt')", True),
        ("options", "if options: model = None", True),
        ("options", "%run prepare.py", True),
        ("options", "exec('model = Net(options)')", True),
        ("options", "from net import *", True),
        ("options", "def make():\n    global model\n    model = Net(options)", True),
        ("options", "Net()", False),
        ("width, depth", "Net()", True),
        ("width, depth", "Net()\nmodel = 1", True),
    ],
)
def test_a_cell_lacks_what_another_one_fails_to_make(takes: str, before: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    cells = [cell.format(before=before) if cell == "{before}" else cell for cell in NOTEBOOK]
    assert found(tmp_path, {"net.py": NET.format(takes), "train.ipynb": notebook(cells)}) == ["OOM204"] * runs


@pytest.mark.parametrize(
    ("cell", "runs"),
    [
        ("print(evaluate(model, loader))", True),
        ("raise SystemExit\nprint(evaluate(model, loader))", False),
        ("print(evaluate(loader))", False),
        ("print(evaluate(evaluate(model, loader)))", True),  # arguments come first
        ("print(unknown(evaluate(model, loader)))", True),
        ("", True),
    ],
)
def test_a_function_of_a_notebook_is_run_by_its_cells(cell: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    cells = [script(), "from net import Net\nmodel = Net(8)\nloader = DataLoader(range(64), batch_size=8)", cell]
    assert found(tmp_path, {"net.py": NET.format("width"), "train.ipynb": notebook(cells)}) == ["OOM204"] * runs


UNFIT: Final = {"main.py": "from train import evaluate\n\nprint(evaluate(1))\n"}


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        (UNFIT, False),
        ({"main.py": "from train import evaluate\n\nprint(evaluate(1, 2))\n"}, True),
        ({"main.py": "from train import evaluate\n\nprint(evaluate(1))\nprint(evaluate(1, 2))\n"}, False),
        ({"main.py": "from train import evaluate\n\ndef old():\n    return evaluate(1)\n\nprint(evaluate(1, 2))\n"}, True),
        ({"main.py": "import train\n\nprint(train.evaluate(1))\n"}, False),
        ({"main.py": "from train import evaluate as check\n\nprint(check(1))\n"}, True),
        ({"main.py": "from train import evaluate\n\nKINDS = [evaluate]\nevaluate(1)\n"}, True),
        ({"main.py": "from train import evaluate\n\nKINDS = ['evaluate']\nevaluate(1)\n"}, True),
        ({"main.py": "import sys\nimport train\n\nprint(getattr(train, sys.argv[1]), train.evaluate(1))\n"}, True),
        ({**UNFIT, "other.py": "from train import evaluate\n\nprint(evaluate(1, 2))\n"}, True),
        ({**UNFIT, "other.py": "from train import *\n\nprint(evaluate(1, 2))\n"}, True),
        ({**UNFIT, "other.py": "from train import evaluate\nprint evaluate(1, 2)\n"}, True),  # of Python 2
        ({**UNFIT, "other.py": "from train import evaluate\nprint(evaluate(1, 2))\nx = = 1\n"}, False),
        ({**UNFIT, "other.py": "def evaluate(a, b):\n    return a\n\nprint(evaluate(1, 2))\n"}, False),
        ({**UNFIT, "other.py": "from library import Model\n\nprint(Model().evaluate(1, 2))\n"}, False),
        ({**UNFIT, "kit/__init__.py": "from train import evaluate\n"}, True),
        ({**UNFIT, "setup.py": "from setuptools import setup\nsetup(entry_points={'console_scripts': ['check = train:evaluate']})\n"}, True),
        ({**UNFIT, "try.ipynb": "notebook"}, True),
    ],
)
def test_a_function_is_run_by_calls_of_other_files(files: dict[str, str], runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    cells = notebook(["from train import evaluate", "evaluate(1, 2)"])
    texts = {name: cells if text == "notebook" else text for name, text in files.items()}
    assert found(tmp_path, {"train.py": script(), **texts}) == ["OOM204"] * runs


def test_a_function_whose_callers_lack_a_name_may_run_again(tmp_path: Path) -> None:
    files = {"train.py": script(), "main.py": "from train import evaluate, gone\n\nprint(evaluate(gone, 2))\n"}
    assert found(tmp_path, files) == []
    assert found(tmp_path, files, "note") == ["OOM204"]


@pytest.mark.parametrize(
    ("main", "runs"),
    [
        ("print(Splits('root')[0])\n", True),
        ("raise SystemExit\nprint(Splits('root')[0])\n", False),
        ("print(Splits()[0])\n", False),
        ("print(Splits()[0] if Splits('root') else 1)\n", True),
    ],
)
def test_a_dataset_that_only_dead_code_makes_reads_nothing(main: str, runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    (tmp_path / "splits.py").write_text(SPLITS.format(base="Dataset"))
    (tmp_path / "main.py").write_text(f"from splits import Splits\n{main}")
    report = run([str(tmp_path)], Settings().with_overrides(select=["OOM401"]), tmp_path, RunOptions(cache=False, processes=1))
    assert bool(report.findings) is runs


@pytest.mark.parametrize(
    ("imports", "more", "runs"),
    [
        ("from kit.gone import Net", {}, False),
        ("from .gone import Net", {}, False),
        ("from kit.net import Net", {}, True),
        ("from gone.net import Net", {}, True),  # of a library
        ("from kit.gone import Net", {"other/kit/gone.py": "Net = 1\n"}, True),
        ("from kit.gone import Net", {"kit/gone.pyx": ""}, True),
        ("from kit.gone import Net", {"setup.py": "from setuptools import Extension\nparts = [Extension('kit.gone', ['gone.c'])]\n"}, True),
        ("from kit.gone import Net", {"kit/__init__.py": "__path__.append('/opt/kit')\n"}, True),
        ("from kit._version import Net", {}, True),
        ("from bare.gone import Net", {"bare/net.py": "Net = 1\n"}, True),  # a library may have that name
        ("from bare.net import Net\nfrom bare.gone import More", {"bare/net.py": "Net = 1\n"}, False),
        ("import sys\nsys.path.append('/opt')\nfrom kit.gone import Net", {}, True),
        ("try:\n    from kit.gone import Net\nexcept ImportError:\n    Net = None", {}, True),
    ],
)
def test_what_imports_a_module_that_its_package_lacks(imports: str, more: dict[str, str], runs: bool, tmp_path: Path) -> None:  # noqa: FBT001 - the case
    files = {"kit/__init__.py": "", "kit/net.py": "Net = 1\n", "train.py": script(imports=imports), **more}
    assert found(tmp_path, files) == ["OOM204"] * runs
    assert found(tmp_path, files, "note") == ["OOM204"]
