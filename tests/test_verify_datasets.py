"""Fixes of datasets and of functions that read files are told apart by what they do: programs are run before and after, right fixes and wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from verify_cases import FILE, PATIENT, found, judge, told, verify

from oomlint.config import load_settings
from oomlint.finding import Confidence, Edit, Finding, Fix, Place, Safety, Severity
from oomlint.model.project import Project
from oomlint.verify.case import Case, Fidelity, Outcome, Verdict
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies import datasets, functions

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

HEAD: Final = """\
import functools
import os

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Base(Dataset):
    def __len__(self):
        return 64


def write(folder, size=16384):
    path = os.path.join(folder, "data.h5")
    with h5py.File(path, "w") as file:
        file["x"] = np.random.default_rng(0).random((64, size), dtype=np.float32)
    return path


"""
MAKE: Final = "\n\ndef make(folder):\n    return Rows(write(folder))\n"
ROW: Final = len(HEAD.splitlines()) + 1


@dataclass(frozen=True)
class Example:
    """A class before a fix, and after it. The finding is at the row with ``# here``, or at the first of the class."""

    name: str
    code: str
    outcome: Outcome
    before: str
    after: str = ""
    make: str = MAKE
    safety: Safety = Safety.SAFE
    words: str = ""


def run(runner: SandboxRunner, folder: Path, example: Example, *, factory: bool = True) -> Verdict:
    path = folder / "data.py"
    before, after = (HEAD + dedent(text) + example.make if text else "" for text in (example.before, example.after))
    path.write_text(before, encoding="utf-8")
    row = next((number for number, line in enumerate(before.splitlines(), 1) if "# here" in line), ROW)
    place = Place(str(path), 0, row, 1, row, 2)
    fix = Fix(example.safety, "", (Edit(place, ""),)) if after else None
    finding = Finding(example.code, "", "", Severity.WARNING, Confidence.HIGH, place, fix=fix)
    settings, root = load_settings(None, True, folder)  # noqa: FBT003 - the signature of the package
    case = Case(finding, str(folder), {str(path): (before.encode(), after.encode())} if after else {})
    project = Project(root, settings, {})
    with Base(str(folder), within=runner.place) as base, Trees(base, case.changes) as trees:
        session = Session(case, project, settings, VerifyOptions(repeat=1, factory="data:make" if factory else None), runner, trees)
        return datasets.verify(session) if factory else functions.verify(session)


HANDLE: Final = """
class Rows(Base):
    def __init__(self, path):
        self.file = h5py.File(path, "r")  # here
        self.scale = 2.0

    def __getitem__(self, index):
        return self.file["x"][index] * self.scale
"""
LAZY: Final = """
class Rows(Base):
    def __init__(self, path):
        self.path = path
        self.file = None  # here
        self.scale = 2.0

    def __getstate__(self):
        return {state}

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["x"][index] * self.scale
"""
RIGHT_STATE: Final = '{**self.__dict__, "file": None}'
ITEM: Final = """
class Rows(Base):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, index):
        with h5py.File(self.path, "r") as file:
            return {read}  # here
"""
LOCAL: Final = """
class Rows(Base):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, index):
        file = h5py.File(self.path, "r")  # here
        row = file["x"][index]
        return row * 2
"""
INIT: Final = """
class Rows(Base):
    def __init__(self, path):
        self.path = path
        {statement}  # here

    def __getitem__(self, index):
        return torch.as_tensor({item})
"""
FILES: Final = """

def make(folder):
    for number in range(64):
        np.save(os.path.join(folder, f"{number}.npy"), np.full(16384, number, dtype=np.float32))
    return Rows(folder)
"""
TENSORS: Final = """

def make(folder):
    torch.save(torch.arange(64 * 16384, dtype=torch.float32).reshape(64, -1), os.path.join(folder, "x.pt"))
    return Rows(os.path.join(folder, "x.pt"))
"""
WORDS: Final = """
class Rows(Dataset):
    def __init__(self, words):
        self.words = {words}

    def __len__(self):
        return len(self.words) // 16

    def __getitem__(self, index):
        return sum(len(word) for word in self.words[16 * index : 16 * index + 16])
"""
MANY: Final = """

def make(folder):
    return Rows([f"{number:09}" + "x" * 100 for number in range(30_000)])
"""


def init(statement: str, item: str) -> str:
    return INIT.format(statement=statement, item=item)


EXAMPLES: Final = [
    Example("handle", "OOM301", Outcome.CONFIRMED, HANDLE, LAZY.format(state=RIGHT_STATE), words="cannot be pickled"),
    Example("handle-attribute-forgotten", "OOM301", Outcome.REGRESSED, HANDLE, LAZY.format(state='{"path": self.path, "file": None}'), words="scale"),
    Example("handle-closed-too-early", "OOM301", Outcome.REGRESSED, HANDLE, HANDLE.replace("self.scale = 2.0", "self.scale = 2.0\n        self.file.close()")),
    Example("handle-lazy-only", "OOM301", Outcome.INCONCLUSIVE, HANDLE, LAZY.format(state="self.__dict__"), words="does not end it"),
    Example("lazy", "OOM303", Outcome.CONFIRMED, LAZY.format(state="self.__dict__"), LAZY.format(state=RIGHT_STATE)),
    Example(
        "lambda",
        "OOM111",
        Outcome.CONFIRMED,
        init("self.change = lambda x: x + 1", "self.change(index)"),
        init("self.change = (1).__add__", "self.change(index)"),
    ),
    Example("whole", "OOM304", Outcome.CONFIRMED, ITEM.format(read='file["x"][()][index]'), ITEM.format(read='file["x"][index]'), words="bytes read"),
    Example("whole-not", "OOM304", Outcome.NO_EFFECT, ITEM.format(read='file["x"][index]'), ITEM.format(read='file["x"][index, :]')),
    Example("whole-unsorted", "OOM304", Outcome.REGRESSED, ITEM.format(read='file["x"][()][[index, 0]]'), ITEM.format(read='file["x"][[index, 0]]')),
    Example(
        "elements",
        "OOM308",
        Outcome.CONFIRMED,
        ITEM.format(read='torch.tensor(file["x"])[index]'),
        ITEM.format(read='torch.from_numpy(file["x"][()])[index]'),
        make=MAKE.replace("folder)", "folder, 64)", 2).replace("make(folder, 64)", "make(folder)"),
        safety=Safety.UNSAFE,
    ),
    Example(
        "unclosed",
        "OOM307",
        Outcome.CONFIRMED,
        LOCAL,
        LOCAL.replace('file = h5py.File(self.path, "r")', 'with h5py.File(self.path, "r") as file:').replace("        row =", "            row ="),
        words="exception",
    ),
    Example(
        "unclosed-one-expression",
        "OOM307",
        Outcome.NO_EFFECT,
        ITEM.format(read='h5py.File(self.path, "r")["x"][index]'),
        ITEM.format(read='file["x"][index]'),
        words="CPython",
    ),
    Example(
        "unclosed-handed-on",
        "OOM307",
        Outcome.REGRESSED,
        LOCAL.replace("[index]\n        return row * 2", "\n        return row"),
        LOCAL.replace('file = h5py.File(self.path, "r")', 'with h5py.File(self.path, "r") as file:')
        .replace("        row =", "            row =")
        .replace("[index]\n        return row * 2", "\n        return row"),
    ),
    Example(
        "kept-files",
        "OOM312",
        Outcome.CONFIRMED,
        init("self.files = [h5py.File(path) for _ in range(20)]", 'self.files[0]["x"][index]'),
        init("self.files = [path for _ in range(20)]", 'h5py.File(self.files[0])["x"][index]'),
        safety=Safety.UNSAFE,
    ),
    Example("read-at-once", "OOM305", Outcome.SHOWN, init('self.rows = h5py.File(path)["x"][()]', "self.rows[index]")),
    Example("not-read-at-once", "OOM305", Outcome.NOT_SHOWN, init('self.rows = h5py.File(path)["x"][:2]', "self.rows[0]")),
    Example("in-memory-file", "OOM309", Outcome.SHOWN, init('self.file = h5py.File(path, driver="core")', 'self.file["x"][index]')),
    Example(
        "stack",
        "OOM401",
        Outcome.CONFIRMED,
        init('self.rows = np.stack([np.load(f"{path}/{i}.npy") for i in range(64)])', "self.rows[index]"),
        init('self.rows = np.empty((64, 16384), np.float32)\n        for i in range(64): self.rows[i] = np.load(f"{path}/{i}.npy")', "self.rows[index]"),
        FILES,
        words="most memory",
    ),
    Example(
        "eager",
        "OOM402",
        Outcome.CONFIRMED,
        init('self.rows = [np.load(f"{path}/{i}.npy") for i in range(64)]', "self.rows[index]"),
        init("pass", 'np.load(f"{self.path}/{index}.npy")'),
        FILES,
    ),
    Example(
        "eager-other-file",
        "OOM402",
        Outcome.REGRESSED,
        init('self.rows = [np.load(f"{path}/{i}.npy") for i in range(64)]', "self.rows[index]"),
        init("pass", 'np.load(f"{self.path}/{(index + 1) % 64}.npy")'),
        FILES,
        words="sample 0 differs",
    ),
    Example(
        "type",
        "OOM403",
        Outcome.CONFIRMED,
        init("self.rows = np.ones((64, 16384)).astype(np.float32)", "self.rows[index]"),
        init("self.rows = np.ones((64, 16384), dtype=np.float32)", "self.rows[index]"),
        safety=Safety.UNSAFE,
    ),
    Example(
        "copy",
        "OOM404",
        Outcome.CONFIRMED,
        init("self.rows = torch.tensor(np.ones((64, 16384), np.float32))", "self.rows[index]"),
        init("self.rows = torch.from_numpy(np.ones((64, 16384), np.float32))", "self.rows[index]"),
        safety=Safety.UNSAFE,
    ),
    Example(
        "lists",
        "OOM405",
        Outcome.CONFIRMED,
        init("self.rows = np.ones((64, 4096), np.float32).tolist()", "self.rows[index]"),
        init("self.rows = np.ones((64, 4096), np.float32)", "self.rows[index]"),
        safety=Safety.UNSAFE,
    ),
    Example(
        "map",
        "OOM406",
        Outcome.CONFIRMED,
        init("self.rows = torch.load(path)", "self.rows[index]"),
        init("self.rows = torch.load(path, mmap=True)", "self.rows[index]"),
        TENSORS,
        safety=Safety.UNSAFE,
    ),
    Example("large-array", "OOM407", Outcome.SHOWN, init("self.rows = np.zeros((64, 65536))", "self.rows[index]")),
    Example(
        "cache",
        "OOM214",
        Outcome.CONFIRMED,
        init("self.cache = {}", 'self.cache.setdefault(index, np.load(f"{self.path}/{index}.npy"))'),
        init("self.cache = {}", 'np.load(f"{self.path}/{index}.npy")'),
        FILES,
    ),
    Example("words", "OOM110", Outcome.CONFIRMED, WORDS.format(words="words"), WORDS.format(words="np.array(words)"), MANY, safety=Safety.UNSAFE),
]


@pytest.mark.parametrize("example", [pytest.param(item, id=f"{item.code}-{item.name}") for item in EXAMPLES])
def test_a_dataset_is_judged_by_what_it_does(example: Example, tmp_path: Path, runner: SandboxRunner) -> None:
    verdict = run(runner, tmp_path, example)
    assert verdict.outcome is example.outcome, verdict
    assert example.words in verdict.reason
    assert verdict.readings or verdict.outcome is Outcome.REGRESSED


FUNCTION: Final = """
def load(path):
    file = h5py.File(path, "r")  # here
    rows = file["x"]
    return rows{read}
"""
WITH: Final = """
def load(path):
    with h5py.File(path, "r") as file:
        rows = file["x"]
        return rows{read}
"""


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        pytest.param("[:4].sum()", "[:4].sum()", Outcome.CONFIRMED, id="closed"),
        pytest.param("[:4].sum()", "[1:5].sum()", Outcome.REGRESSED, id="other-rows"),
        pytest.param("", "", Outcome.REGRESSED, id="closed-too-early"),
    ],
)
def test_a_function_is_judged_by_what_it_gives_back_and_leaves_open(before: str, after: str, outcome: Outcome, tmp_path: Path, runner: SandboxRunner) -> None:
    example = Example("", "OOM307", outcome, FUNCTION.format(read=before), WITH.format(read=after))
    verdict = run(runner, tmp_path, example, factory=False)
    assert verdict.outcome is outcome, verdict


WEIGHTS: Final = """
def {name}(path, net):
    file = h5py.File(path, "{mode}")  # here
    for name, value in net.state_dict().items():
        {body}
"""
SAVE, LOAD = "file.create_dataset(name, data=value.numpy())", "value.copy_(torch.from_numpy(np.asarray(file[name])))"


@pytest.mark.parametrize(("name", "mode", "body"), [("save", "w", SAVE), ("load", "r", LOAD)])
def test_weights_are_saved_and_loaded(name: str, mode: str, body: str, tmp_path: Path, runner: SandboxRunner) -> None:
    before = WEIGHTS.format(name=name, mode=mode, body=body)
    lines = before.rstrip().splitlines()
    lines[2] = f'    with h5py.File(path, "{mode}") as file:'
    after = "\n".join([*lines[:3], *(f"    {line}" for line in lines[3:])]) + "\n"
    verdict = run(runner, tmp_path, Example("", "OOM307", Outcome.CONFIRMED, before, after), factory=False)
    assert verdict.outcome is Outcome.CONFIRMED, verdict
    assert any("net is a small linear layer" in line for line in verdict.assumptions)


SHOWN: Final = """
class Rows(Base):
    def __init__(self, path):
        self.path = path
        {handle}  # here
{names}
    def __getitem__(self, index):
        return h5py.File(self.path, "r")["x"][index]

    def total(self):
        return {total}
"""
READ_OFF: Final = MAKE + "\n\ndef weigh():\n    rows = Rows('a.h5')\n    return np.bincount(rows.labels) * rows.total()\n"
OPEN: Final = SHOWN.format(handle="self.file = h5py.File(path)", names="        self.labels = np.arange(64)\n", total="self.labels.sum()")


@pytest.mark.parametrize(
    ("names", "total", "outcome"),
    [
        pytest.param("        self.labels = list(range(64))\n", "sum(self.labels)", Outcome.CONFIRMED, id="the-same"),
        pytest.param("\n    @property\n    def labels(self):\n        return np.arange(64)\n", "2016", Outcome.CONFIRMED, id="a-property"),
        pytest.param("        self.classes = np.arange(64)\n", "self.classes.sum()", Outcome.REGRESSED, id="gone"),
        pytest.param("        self.labels = np.arange(64)[::-1]\n", "self.labels.sum()", Outcome.REGRESSED, id="another-order"),
        pytest.param("        self.labels = np.arange(64)\n", "self.lables.sum()", Outcome.REGRESSED, id="a-method-that-fails"),
    ],
)
def test_what_others_read_off_a_dataset_stays(names: str, total: str, outcome: Outcome, tmp_path: Path, runner: SandboxRunner) -> None:
    after = SHOWN.format(handle="self.file = None", names=names, total=total)
    verdict = run(runner, tmp_path, Example("", "OOM301", outcome, OPEN, after, READ_OFF))
    assert verdict.outcome is outcome, verdict


SMALL: Final = """
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, path):
        self.rows = np.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def main():
    for batch in DataLoader(Waves("waves.npy"), num_workers=2, multiprocessing_context="spawn"):
        print(batch)
"""


def test_data_too_few_to_tell_are_replaced_by_others(tmp_path: Path, runner: SandboxRunner) -> None:
    np.save(tmp_path / "waves.npy", np.zeros((64, 16), dtype=np.float32))
    was = (tmp_path / "waves.npy").read_bytes()
    after = SMALL.replace("np.load(path)", "torch.from_numpy(np.load(path))").replace("\nimport", "\nimport torch\nimport", 1)
    after = after.replace("return self.rows[index]", "return self.rows[index].numpy()")
    verdict = judge(runner, tmp_path, SMALL, after, code="OOM112")
    assert (verdict.outcome, verdict.fidelity) == (Outcome.CONFIRMED, Fidelity.SYNTHETIC), told(verdict)
    assert "the project's own data are too few to tell: others are made up in their place" in verdict.assumptions
    assert (tmp_path / "waves.npy").read_bytes() == was


# -- fixes by hand -----------------------------------------------------------------------------------------------------

TEXTS: Final = """\
import json

import numpy as np
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, captions, words):
        self.captions = captions
        self.names = list(captions.keys())
        self.words = words
        CHECK

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.captions[self.names[index]]


def read(path):
    with open(path) as file:
        return json.load(file)


def build(path, words):
    return DataLoader(Texts(read(path), words), batch_size=4, num_workers=4, shuffle=True)
"""
PACKED: Final = (
    (
        "        self.captions = captions\n        self.names = list(captions.keys())\n",
        "        self.names = np.array(list(captions.keys()))\n"
        + (8 * " ")
        + "texts = [text.encode() for text in captions.values()]\n        self.ends = np.cumsum([0] + [len(text) for text in texts])\n"
        "        self.captions = np.frombuffer(b''.join(texts), dtype=np.uint8)\n",
    ),
    ("self.captions[self.names[index]]", "self.captions[self.ends[index] : self.ends[index + 1]].tobytes().decode()"),
)
CHECK: Final = "assert words.table['pad'] == 7 and words.unknown == 'unk'"
FACTORY: Final = """\
from types import SimpleNamespace

from program import Texts

WORDS = SimpleNamespace(table={"pad": 7}, unknown="unk")


def few():
    return Texts({str(i): f"text {i}" for i in range(4)}, WORDS)


def many():
    return Texts({f"video{i}": f"{i} is a text of this length" for i in range(60000)}, WORDS)
"""


@pytest.mark.parametrize(
    ("factory", "outcome", "words"),
    [
        (None, Outcome.INCONCLUSIVE, "`Texts` could not be made"),
        ("making:few", Outcome.INCONCLUSIVE, "are needed to see it"),
        ("making:many", Outcome.CONFIRMED, "the samples are the same"),
    ],
)
def test_a_fixed_class_is_not_judged_on_what_stands_in_for_another(
    factory: str | None, outcome: Outcome, words: str, tmp_path: Path, runner: SandboxRunner
) -> None:
    program, before = tmp_path / FILE, TEXTS.replace("CHECK", CHECK)
    after = before
    for old, new in PACKED:
        assert old in after
        after = after.replace(old, new)
    program.write_text(before)
    (tmp_path / "making.py").write_text(FACTORY)
    case = Case(found(program, "OOM110"), str(tmp_path), {str(program): (before.encode(), after.encode())}, by_hand=True)
    verdict = verify(runner, case, VerifyOptions(limits=PATIENT, factory=factory))
    assert verdict.outcome is outcome, told(verdict)
    assert words in verdict.reason
    assert (verdict.fidelity is Fidelity.FACTORY) is (factory is not None), told(verdict)
    assert factory or "--factory" in verdict.next_step


def test_what_a_class_is_given_may_be_what_a_mend_changes(tmp_path: Path, runner: SandboxRunner) -> None:
    program, before = tmp_path / FILE, TEXTS.replace("CHECK", "pass")
    after = before.replace("return json.load(file)", "return dict(json.load(file))").replace("self.captions = captions", "self.captions = dict(captions)")
    program.write_text(before)
    case = Case(found(program, "OOM110"), str(tmp_path), {str(program): (before.encode(), after.encode())}, by_hand=True)
    verdict = verify(runner, case)
    assert verdict.outcome is Outcome.INCONCLUSIVE, told(verdict)
    assert "`return json.load(file)`: `Texts` is given something else after" in verdict.reason
    assert "--factory" in verdict.next_step
