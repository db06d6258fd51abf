"""Files beside the code give numbers to loaders: what is found is told there, and all that a run does with a finding works there."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

import pytest
from commands import runs

from oomlint import engine
from oomlint.config import load_settings
from oomlint.finding import LoaderFact, Safety, Severity
from oomlint.model.command_lines import commands_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.engine import CheckReport

TRAIN: Final = """import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--num_workers", type=int, default=0)
args = parser.parse_args()
dataset = TensorDataset(torch.load("features.pt"), torch.load("labels.pt"))
loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=args.num_workers)
"""
SCRIPT: Final = "#!/bin/bash\npython train.py --num_workers 8\n"
LOADER_ROW: Final = 10


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script that trains, over data in memory."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    return folder


def check(project: Path, *paths: str, fix: bool = False, cache: bool = False, **changed: object) -> CheckReport:
    settings, _ = load_settings(None, True, project)  # noqa: FBT003 - the engine's own signature
    settings = settings.with_overrides(**{"select": ["OOM114"], **changed})
    options = engine.RunOptions(fix=fix, unsafe_fixes=fix, cache=cache, processes=1)
    report = engine.run([str(project / path) for path in paths or (".",)], settings, project, options)
    assert not report.failures, "\n".join(failure.trace for failure in report.failures)
    return report


def told(report: CheckReport, project: Path) -> list[tuple[str, int]]:
    return [(os.path.relpath(item.place.path, project), item.place.row) for item in report.findings]


def write(project: Path, name: str, text: str) -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("run.sh", "python b/train.py --num_workers 8"),
        ("run.sh", "cd b && python train.py --num_workers 8"),
        ("run.sh", "cd b\npython -u ./train.py --num_workers 8"),
        ("b/run.sh", "python train.py --num_workers 8"),
        ("b/run.sh", 'cd "$(dirname "$0")"\npython train.py --num_workers 8'),
        ("b/Makefile", "train:\n\tpython train.py --num_workers 8"),
    ],
)
def test_of_two_scripts_of_one_name_the_one_is_meant_that_the_path_leads_to(name: str, line: str, project: Path) -> None:
    for folder in "ab":
        write(project, f"{folder}/train.py", TRAIN.replace("features", folder))
    (project / "train.py").unlink()
    write(project, name, f"{line}\n")
    (found,) = check(project).findings
    assert any(place.path == str(project / "b" / "train.py") for place in found.related)
    assert not any(place.path == str(project / "a" / "train.py") for place in found.related)
    assert not check(project, "a").findings


# -- kinds of files --------------------------------------------------------------------------------------------------

FILES: Final = {
    "train.sh": ("python train.py --num_workers 8\n", 1, 31),
    "job.sbatch": ("srun python -u train.py \\\n  --num_workers=8\n", 2, 17),
    "Makefile": ("train:\n\tpython train.py --num_workers 8\n", 2, 32),
    "rules.mk": ("N := 8\ntrain:\n\t@python train.py --num_workers $(N)\n", 1, 6),
    "Dockerfile": ('FROM x\nCMD ["python", "train.py", "--num_workers", "8"]\n', 2, 46),
    "gpu.dockerfile": ("FROM x\nCMD python train.py --num_workers 8\n", 2, 35),
    "compose.yaml": ("services:\n  a:\n    command: |\n      python train.py \\\n        --num_workers 8\n", 5, 23),
    ".vscode/launch.json": (
        '{\n// one\n"configurations": [{"program": "${workspaceFolder}/train.py", "args": ["--num_workers", "8",]},]}\n',
        3,
        90,
    ),
    "run.ipynb": (
        json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "source": ["!python train.py --num_workers 8\n"], "outputs": [], "execution_count": 1}],
                    "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        1,
        32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_finding_stands_at_the_number(name: str, project: Path) -> None:
    text, row, column = FILES[name]
    write(project, name, text)
    (item,) = check(project).findings
    assert (os.path.relpath(item.place.path, project), item.place.row, item.place.column) == (name, row, column)
    assert (os.path.basename(item.related[0].path), item.related[0].row) == ("train.py", LOADER_ROW)


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".ipynb")])
def test_the_fix_edits_the_number(name: str, project: Path) -> None:
    text, _, _ = FILES[name]
    write(project, name, text)
    report = check(project, fix=True)
    assert [item.fix.safety for item in report.fixed if item.fix] == [Safety.UNSAFE]
    assert (project / name).read_text() == text.replace("8", "0", 1)
    assert (project / "train.py").read_text() == TRAIN
    assert not report.findings
    assert not report.notices


def test_a_number_that_others_read_is_left_alone(project: Path) -> None:
    text = "N=8\nOMP_NUM_THREADS=$N python train.py --num_workers $N\n"
    write(project, "train.sh", text)
    report = check(project, fix=True)
    assert told(report, project) == [("train.sh", 1)]
    assert (project / "train.sh").read_text() == text


def test_line_ends_and_other_bytes_stay(project: Path) -> None:
    data = "# größer\r\npython train.py --num_workers 8\r\n".encode()
    (project / "train.sh").write_bytes(data)
    check(project, fix=True)
    assert (project / "train.sh").read_bytes() == data.replace(b"8\r", b"0\r")


# -- where it is told --------------------------------------------------------------------------------------------------


def test_a_loader_and_a_cause_are_told_once(project: Path) -> None:
    write(project, "a.sh", "python train.py --num_workers 8\n")
    write(project, "b.sh", "python train.py --num_workers 12\n")
    (item,) = check(project).findings
    assert item.message.startswith("12 workers")
    assert [(os.path.basename(place.path), place.row) for place in item.related][:2] == [("train.py", LOADER_ROW), ("a.sh", 1)]


def test_the_number_said_is_the_one_that_is_given_where_it_is_told(project: Path) -> None:
    write(project, "a.sh", "python train.py --num_workers 8\n")
    write(project, "b.sh", "python train.py --num_workers 24\n")
    for paths, words in ((("a.sh",), "8 workers"), (("b.sh",), "24 workers"), (("a.sh", "train.py"), "8 workers"), (("train.py",), "24 workers")):
        (item,) = check(project, *paths).findings
        assert item.message.startswith(words), paths
    write(project, "b.sh", "python train.py --num_workers 24  # noqa: OOM114\n")
    (item,) = check(project).findings
    assert (item.message[:9], told(check(project), project)) == ("8 workers", [("a.sh", 1)])
    check(project, "a.sh", fix=True)
    assert (project / "a.sh").read_text() == "python train.py --num_workers 0\n"


def test_each_script_that_asks_for_no_prefetching_is_told(project: Path) -> None:
    option = 'parser.add_argument("--prefetch", type=int, default=2)\nargs ='
    write(project, "train.py", TRAIN.replace("args =", option, 1).replace("=args.num_workers)", "=args.num_workers, prefetch_factor=args.prefetch)"))
    for name, workers in (("a.sh", 2), ("b.sh", 8), ("fine.sh", 0)):
        write(project, name, f"python train.py --num_workers {workers} --prefetch 0\n")
    write(project, "more.sh", "python train.py --num_workers 4 --prefetch 4\n")
    for name in ("a.sh", "b.sh"):
        assert told(check(project, name, select=["OOM105"]), project) == [(name, 1)]
    for name in ("fine.sh", "more.sh"):
        assert told(check(project, name, select=["OOM105"]), project) == []
    (item,) = check(project, select=["OOM105"]).findings
    assert {os.path.basename(place.path) for place in (item.place, *item.related)} == {"a.sh", "b.sh", "train.py"}
    write(project, "a.sh", "python train.py --num_workers 2 --prefetch 0  # noqa: OOM105\n")
    assert told(check(project, select=["OOM105"]), project) == [("b.sh", 1)]
    write(project, "a.sh", "python train.py --num_workers 2 --prefetch 0\n")
    assert check(project, select=["OOM105"], fix=True).findings == ()
    assert [(project / name).read_text().split()[-1] for name in ("a.sh", "b.sh", "fine.sh")] == ["1", "1", "0"]


def test_two_loaders_of_one_number_are_one_finding(project: Path) -> None:
    write(project, "train.py", TRAIN + TRAIN.splitlines()[-1].replace("loader =", "second =") + "\n")
    write(project, "train.sh", SCRIPT)
    (item,) = check(project).findings
    assert item.related[0].row == LOADER_ROW
    assert LOADER_ROW + 1 in [place.row for place in item.related]


def test_what_the_default_causes_stays_in_python(project: Path) -> None:
    write(project, "train.py", TRAIN.replace("default=0", "default=4"))
    write(project, "train.sh", SCRIPT)
    assert told(check(project), project) == [("train.py", LOADER_ROW)]


@pytest.mark.parametrize("paths", [("train.sh",), ("train.sh", "train.py")], ids=str)
def test_a_script_that_is_named_is_asked_about(paths: tuple[str, ...], project: Path) -> None:
    write(project, "train.sh", SCRIPT)
    report = check(project, *paths)
    assert told(report, project) == [("train.sh", 2)]
    assert report.files == len(paths)


def test_a_notebook_that_is_named_is_asked_about(project: Path) -> None:
    write(project, "run.ipynb", FILES["run.ipynb"][0])
    (item,) = check(project, "run.ipynb").findings
    assert (os.path.basename(item.place.path), item.place.cell, item.place.row) == ("run.ipynb", 1, 1)


def test_what_a_script_causes_goes_to_the_baseline(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "a.sh", "python train.py --num_workers 8\n")
    monkeypatch.chdir(project)
    run = runs(capsys, "check", "--no-cache", "--isolated", "--select", "OOM114", "--baseline", "known.json", "--output-format", "concise")
    assert "wrote 1 finding" in run("a.sh", "--write-baseline").err
    assert [run(path).status for path in ("a.sh", "train.py", ".")] == [0, 0, 0]
    write(project, "b.sh", "python train.py --num_workers 24\n")
    assert run().out.startswith("b.sh:1:31: OOM114"), "another script is another matter"
    assert [run(path).status for path in ("a.sh", "b.sh")] == [0, 1]
    (project / "b.sh").unlink()
    write(project, "a.sh", "python train.py\n")
    assert "1 finding of known.json is gone" in run().err


def test_where_the_script_is_not_asked_about_it_stays_at_the_loader(project: Path) -> None:
    write(project, "train.sh", SCRIPT)
    assert told(check(project, "train.py"), project) == [("train.py", LOADER_ROW)]


def test_a_settings_file_that_is_named_is_asked_about(project: Path) -> None:
    text = TRAIN.replace("args = parser.parse_args()", 'args = OmegaConf.load("config.yaml")').replace("import argparse", "from omegaconf import OmegaConf")
    write(project, "train.py", text.replace('parser = argparse.ArgumentParser()\nparser.add_argument("--num_workers", type=int, default=0)\n', "\n\n"))
    write(project, "config.yaml", "lr: 1\nnum_workers: 8\n")
    assert told(check(project, "config.yaml"), project) == [("config.yaml", 2)]
    assert told(check(project), project) == [("config.yaml", 2)]
    write(project, "other.yaml", "num_workers: 8\n")
    assert told(check(project, "other.yaml"), project) == []


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --num_workers 8  # noqa\n",
        "python train.py --num_workers 8  # oomlint: ignore[OOM114] measured\n",
        "# oomlint: ignore[OOM1]\npython train.py \\\n  --num_workers 8\n",
        "# oomlint: file-ignore[OOM114]\necho\npython train.py --num_workers 8\n",
    ],
)
def test_comments_silence_it_there(text: str, project: Path) -> None:
    write(project, "train.sh", text)
    assert told(check(project), project) == []
    assert told(check(project, "train.py"), project) == []


def test_a_comment_for_another_row_does_not(project: Path) -> None:
    write(project, "train.sh", "echo  # noqa: OOM114\npython train.py --num_workers 8  # noqa: OOM101\n")
    assert told(check(project), project) == [("train.sh", 2)]


def test_a_silent_place_leaves_the_others(project: Path) -> None:
    write(project, "a.sh", "python train.py --num_workers 12  # noqa: OOM114\n")
    write(project, "b.sh", SCRIPT)
    report = check(project, fix=True)
    assert [(os.path.relpath(item.place.path, project), item.place.row) for item in report.fixed] == [("b.sh", 2)]
    assert (project / "a.sh").read_text() == "python train.py --num_workers 12  # noqa: OOM114\n"
    assert (project / "b.sh").read_text() == SCRIPT.replace("8", "0")


@pytest.mark.parametrize("name", FILES)
def test_a_comment_is_added_where_it_is_told(name: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILES[name][0]
    write(project, name, text)
    monkeypatch.chdir(project)
    run = runs(capsys, "check", "--no-cache", "--isolated", "--select", "OOM114")
    status = run("--add-ignore").status
    commented = name in {"train.sh", "job.sbatch", "Makefile", "gpu.dockerfile"}
    assert (project / name).read_text() == (f"{text[:-1]}  # oomlint: ignore[OOM114]\n" if commented else text), "what is no comment there is not written"
    assert (project / "train.py").read_text() == TRAIN
    assert (status, run().status) == ((0, 0) if commented else (1, 1))
    write(project, "more.sh", "python train.py --num_workers 24\n")
    assert run().status == 1, "another script is another matter"


def test_a_comment_of_a_notebook_silences_it(project: Path) -> None:
    write(project, "run.ipynb", FILES["run.ipynb"][0].replace("num_workers 8", "num_workers 8  # noqa: OOM114"))
    assert told(check(project), project) == []


def test_settings_silence_it(project: Path) -> None:
    write(project, "train.sh", SCRIPT)
    assert told(check(project, per_file_ignores={"*.sh": ("OOM114",)}), project) == []
    assert told(check(project, extend_exclude=("train.sh",)), project) == []


# -- the rest of a run -------------------------------------------------------------------------------------------------


def test_the_cache_sees_a_change_of_the_script(project: Path) -> None:
    def age(name: str) -> None:
        os.utime(project / name, (1_600_000_000, 1_600_000_000))

    write(project, "Makefile", "train:\n\tpython train.py --num_workers 8\n")
    for name in ("train.py", "Makefile"):
        age(name)
    assert told(check(project, cache=True), project) == [("Makefile", 2)]
    assert told(check(project, cache=True), project) == [("Makefile", 2)]
    write(project, "Makefile", "train:\n\tpython train.py --num_workers 10\n")
    age("Makefile")
    (item,) = check(project, cache=True).findings
    assert item.message.startswith("10 workers")


# -- command lines that go together ------------------------------------------------------------------------------------


def test_what_two_command_lines_give_does_not_go_together(project: Path) -> None:
    text = TRAIN.replace("args = ", 'parser.add_argument("--persistent", action="store_true")\nargs = ').replace("default=0", "default=4")
    write(project, "train.py", text.replace("shuffle=True", "persistent_workers=args.persistent"))
    write(project, "a.sh", "python train.py --num_workers 0\n")
    write(project, "b.sh", "python train.py --num_workers 4 --persistent\n")
    settings, root = load_settings(None, True, project)  # noqa: FBT003
    settings, options = settings.with_overrides(select=["OOM101"]), engine.RunOptions(cache=False, processes=1)
    (item,) = engine.run([str(project)], settings, root, options).findings
    assert item.severity is Severity.WARNING, "it can be, and neither of the two does it"
    write(project, "b.sh", "python train.py --num_workers 0 --persistent\n")
    (item,) = engine.run([str(project)], settings, root, options).findings
    assert item.message.startswith("`persistent_workers=True`")


# -- bad input ---------------------------------------------------------------------------------------------------------

BROKEN: Final = {
    "compose.yaml": b"services: [\n  command: python train.py --num_workers 8\n",
    "docker-compose.yml": b"services:\n  a: &a\n    b: *a\n    command: python train.py\n",
    ".vscode/launch.json": b'{"configurations": [{"program": "train.py", "args": ["--num_workers", \n/* no end',
    "Makefile": b"train:\n\t\xff\xfe\x00python train.py --num_workers \xff8\n",
    "Dockerfile": b'CMD ["python", "train.py", "--num_workers", \\\n',
    "train.sh": b"python train.py --num_workers\n\"python train.py --num_workers '8\n$(python train.py --num_workers ${",
    "empty.sh": b"",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_breaks_nothing(name: str, project: Path) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_bytes(BROKEN[name])
    for paths in ((".",), (name,)):
        report = check(project, *paths, fix=True)
        assert {item.place.path for item in report.findings if item.code is None} <= {str(project / path) for path in paths}
        assert (project / name).read_bytes() == BROKEN[name]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("compose.yaml", b"broken: [", "1:10: not valid YAML: expected the node content, but found '<stream end>'"),
        ("cfg.yaml", b"a: 1\nname: [a", "2:9: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("x.json", b'{"a": ', "1:7: not valid JSON: Expecting value"),
        (".vscode/launch.json", b"{,,", "1:2: not valid JSON: Expecting property name enclosed in double quotes"),
        ("x.toml", b"a = \n", "1:5: not valid TOML: Invalid value"),
        ("run.sh", b"a\0b", "1:2: contains NUL bytes: not a text file"),
        ("run.sh", b'echo "it\'s"\npython train.py "$A', '2:17: the quote " is never closed'),
        ("run.sh", b"x=$(date '+%F)\n", "1:10: the quote ' is never closed"),
        ("run.sh", "python train.py".encode("utf-16"), "1:1: UTF-16 text: save it as UTF-8"),
        ("x.yaml", "a: 1".encode("utf-16"), "1:1: UTF-16 text: save it as UTF-8"),
        ("x.yaml", b"a: \xe9\n", "1:4: not valid UTF-8 at byte 3"),
        ("x.ini", b"[a]\nb = 1\n[c\n", "3:1: not valid INI: a section without its `]`"),
        ("Makefile", b"ifeq (a,b\n", "1:6: the `(` of `ifeq` is never closed"),
        ("Makefile", b"ifdef A\nB = 1\n", "1:1: a condition without `endif`"),
        ("Makefile", b"all:\n\tpython train.py $(W\n", "2:18: a reference to a variable is never closed"),
    ],
)
def test_a_named_file_that_is_broken_is_told(project: Path, name: str, content: bytes, said: str) -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    (found,) = check(project, name).findings
    assert (found.code, f"{found.place.row}:{found.place.column}: {found.message}") == (None, said)
    assert not check(project).findings, "it is merely found"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chart.yaml", b"{{ if .x }}\na: [\n"),
        ("several.yaml", b"a: 1\n---\nb: !Ref c\n"),
        ("tsconfig.json", b'{// why\n\t"a": 1,\n}'),
        ("rows.json", b'{"a": 1}\n{"a": 2}\n'),
        ("empty.json", b""),
        ("run.sh", b"# \xe9\nif\n"),
        ("run.sh", b'cat <<\'EOF\'\nit\'s\nEOF\n# don\'t\necho $\'it\\\'s\' "${A:-"b"}" "$(echo "c")" $((1 << 2)) \\"\n'),
        ("run.sh", b"#!/usr/bin/env python\n# it's\nprint(1)  #'\nx='''\n"),
        ("Makefile", b"# $(\nA = $(shell echo ')') $$( # ${\ndefine B\n$(\nendef\nifeq ($(A),)\nendif\n"),
        ("x.ini", b"a = 1\na = \xe9\n b = [\n"),
    ],
)
def test_a_named_file_that_others_can_read_is_not_told(project: Path, name: str, content: bytes) -> None:
    (project / name).write_bytes(content)
    assert not check(project, name).findings


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("compose.yaml", b"services:\n  a:\n    command: [python, train.py\n", "compose.yaml:4: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("run.sh", "python train.py\n".encode("utf-16"), "run.sh:1: UTF-16 text: save it as UTF-8"),
        ("run.sh", b"echo\n", "run.sh: no command there starts a Python script that can be found"),
    ],
)
def test_a_budget_says_why_a_file_has_no_command(
    project: Path, name: str, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / name).write_bytes(content)
    monkeypatch.chdir(project)
    assert runs(capsys)("budget", name).err == f"oomlint: error: {said}\n"


READS: Final = """import configparser
import json

import yaml
from train import dataset
from torch.utils.data import DataLoader

parser = configparser.ConfigParser()
parser.read("cfg.ini")
loader = DataLoader(dataset, num_workers=yaml.safe_load(open("cfg.yaml"))["workers"])
loader = DataLoader(dataset, num_workers=json.load(open("cfg.json"))["workers"])
loader = DataLoader(dataset, num_workers=parser.getint("a", "workers"))
"""


@pytest.mark.parametrize(
    ("name", "content", "row", "said"),
    [
        ("compose.yaml", "services:\n  a:\n    command: [python, train.py\n", 4, "not valid YAML: expected ',' or ']', but got '<stream end>'"),
        (".vscode/launch.json", '{"configurations": [{"module": "train",\n', 2, "not valid JSON: Expecting property name enclosed in double quotes"),
        ("run.sh", 'python train.py "$A\n', 1, 'the quote " is never closed'),
        ("Makefile", "all:\n\tpython -m train $(W\n", 2, "a reference to a variable is never closed"),
        ("cfg.yaml", "workers: [\n", 2, "not valid YAML: expected the node content, but found '<stream end>'"),
        ("cfg.json", '{"workers"', 1, "not valid JSON: Expecting ':' delimiter"),
        ("cfg.ini", "workers = 8\n", 1, "not valid INI: a value in front of the first section"),
    ],
)
def test_a_broken_file_that_the_code_asks_for_is_told_in_a_line(project: Path, name: str, content: str, row: int, said: str) -> None:
    write(project, "other.py", READS)
    write(project, name, content)
    for cache in (False, True, True):
        report = check(project, cache=cache)
        assert [(os.path.relpath(one.path, project), one.row, one.message) for one in report.notices] == [(name, row, said)]
        assert not any(item.code is None for item in report.findings)


def test_a_broken_file_is_told_where_it_may_be_about_the_program(tmp_path: Path) -> None:
    """Many programs of a repository are called train.py."""
    for folder in ("one/src", "one/scripts", "two/deploy"):
        (tmp_path / folder).mkdir(parents=True)
    program = "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int)\nloader = DataLoader(range(9), num_workers=p.parse_args().workers)\n"
    write(tmp_path, "one/src/train.py", f"import argparse\n\nfrom torch.utils.data import DataLoader\n\n{program}")
    for name in ("one/compose.yaml", "two/compose.yaml", "two/deploy/compose.yaml"):
        write(tmp_path, name, "services:\n  a:\n    command: [python, train.py\n")
    write(tmp_path, "one/scripts/compose.yaml", "services:\n  a:\n    working_dir: /app/src\n    command: [python, train.py\n")
    report = check(tmp_path, cache=False)
    assert sorted(os.path.relpath(one.path, tmp_path) for one in report.notices) == ["one/compose.yaml", "one/scripts/compose.yaml"]


def test_a_broken_file_is_told_where_what_it_may_start_is_checked(tmp_path: Path) -> None:
    """To find out what a function is given, all programs of the project that call it are read, with their commands."""
    for name in ("shared", "one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path, f"{name}/compose.yaml", f"services:\n  a:\n    command: [python, {name}.py\n")
        parsed = "p = argparse.ArgumentParser()\np.add_argument('--workers', type=int)\nloader_of(p.parse_args())\n"
        write(tmp_path, f"{name}/{name}.py", f"import argparse\n\nfrom shared.loaders import loader_of\n\n{parsed}")
    write(tmp_path, "shared/shared.py", "")
    maker = "def loader_of(args):\n    return DataLoader(range(9), num_workers=args.workers)\n"
    write(tmp_path, "shared/loaders.py", f"from torch.utils.data import DataLoader\n\n\n{maker}")

    def told_of(*paths: str) -> list[str]:
        return [os.path.relpath(notice.path, tmp_path) for notice in check(tmp_path, *paths).notices]

    assert told_of("shared", "one") == ["one/compose.yaml"]
    assert told_of("shared", "two") == ["two/compose.yaml"]
    assert told_of(".") == ["one/compose.yaml", "two/compose.yaml"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("unused.yaml", "a: ["), ("compose.yaml", "services: [other.py"), ("run.sh", 'echo "'), ("Makefile", "all:\n\techo $(W\n"), ("cfg.ini", "[a")],
)
def test_a_broken_file_that_nobody_asks_for_is_not(project: Path, name: str, content: str) -> None:
    write(project, name, content)
    assert not check(project).notices


def test_json_may_have_tabs(project: Path) -> None:
    write(
        project,
        "train.py",
        TRAIN.replace("num_workers=args", 'num_workers=json.load(open("cfg.json"))["a"]["w"], timeout=args').replace("import a", "import json\nimport a"),
    )
    write(project, "cfg.json", '{\n\t"a": {\n\t\t"w": 8\n\t}\n}\n')
    assert told(check(project), project) == [("cfg.json", 3)]


LONG: Final[dict[str, Callable[[], str]]] = {
    "train.sh": lambda: "python train.py --num_workers 8\n" * 330_000,
    "quotes.sh": lambda: "python train.py '" + "\"'$(${" * 100_000,
    "row.sh": lambda: "python train.py " + "x" * 900_000,
    ".vscode/launch.json": lambda: '{"configurations": [' + "/*" * 20_000 + ",/**/" * 20_000 + ', "train.py"',
    "compose.yaml": lambda: "services: " + "[" * 20_000 + "train.py",
    "Dockerfile": lambda: "CMD train.py \\\n" * 50_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_file_takes_no_long_time(name: str) -> None:
    text, begin = LONG[name](), time.process_time()
    commands_of(f"/project/{name}", text)
    assert time.process_time() - begin < 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_script_is_passed_by(project: Path) -> None:
    write(project, "train.sh", SCRIPT)
    (project / "train.sh").chmod(0)
    assert told(check(project), project) == []


# -- variables of scripts ------------------------------------------------------------------------------------------------

USED: Final = "python train.py --num_workers $NW\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NW=64\n" + USED, 64),
        ('export NW="64"  # many\n' + USED, 64),
        ("#NW=8\n# it is read, and NW=2 is too few\nNW=64\n" + USED, 64),
        ("num_workers=64\npython train.py \\\n  num_workers=$num_workers --num_workers $num_workers\n", 64),
        ("NW=64\nsetup() {\n  echo $NW\n}\nsetup\n" + USED, 64),
        (USED + "NW=64\n", None),
        ("setup() {\n  local NW=64\n}\n" + USED, None),
        ("function setup\n{\n  NW=64\n}\n" + USED, None),
        ('echo "usage:\nNW=64\n"\n' + USED, None),
        ("cat > settings <<'END'\nNW=64\nEND\n" + USED, None),
        ("NW=64\nread -r NW\n" + USED, None),
        ("NW=64\nfor NW in 1 2; do\n" + USED + "done\n", None),
        ("NW=64\nunset NW\n" + USED, None),
        ('NW=64\n[ -n "$SMALL" ] && NW=2\n' + USED, None),
        ("NW=64\n((NW = 2))\n" + USED, None),
        ("NW=64 " + USED, None),
        ('export NW="64 32"\n' + USED, None),
        ("N=2\nNW=64 echo\n" + USED.replace("$NW", "${NW:-8}"), None),
    ],
)
def test_a_variable_counts_where_one_assignment_before_the_command_sets_it(text: str, value: int | None) -> None:
    command = commands_of("train.sh", text)[-1]
    number = command.number_at(command.words.index("--num_workers") + 1)
    assert (None if number is None else number.value) == value


def test_a_makefile_may_set_a_variable_below() -> None:
    (command,) = commands_of("Makefile", "train:\n\tpython train.py --num_workers $(NW)\nNW := 64\n")
    number = command.number_at(3)
    assert number is not None
    assert number.value == 64


@pytest.mark.parametrize(
    ("name", "text", "numbers"),
    [
        ("train.sh", 'ARGS="--seed 1 --num_workers 8"\npython train.py $ARGS\n', [(1, 30)]),
        ("train.sh", 'ARGS="--seed 1 --num_workers 8"; python train.py $ARGS\n', [(1, 30)]),
        ("train.sh", 'ARGS=(\n  --seed 1  # one\n  --num_workers 8\n)\npython train.py "${ARGS[@]}"\n', [(3, 17)]),
        ("train.sh", "SCRIPT=./train.py\npython $SCRIPT --num_workers 8\n", [(2, 30)]),
        ("train.sh", "for w in 0 8; do\n  python train.py --num_workers $w\ndone\n", [(1, 12)]),
        ("train.sh", 'sbatch --cpus-per-task=2 --wrap "python train.py --num_workers 8"\n', [(1, 64)]),
        ("train.sh", "cat > job.sh <<EOF\npython train.py --num_workers 8\nEOF\nsbatch job.sh\n", [(2, 31)]),
        ("train.sh", 'echo "python train.py --num_workers 8" | sbatch\n', [(1, 37)]),
        ("Makefile", "train: W=8\ntrain:\n\tpython train.py --num_workers $(W)\n", [(1, 10)]),
        ("Makefile", "ARGS := --seed 1 --num_workers 8  # many\ntrain:\n\tpython train.py $(ARGS)\n", [(1, 32)]),
        ("train.sh", 'ARGS="--seed 1 --num_workers 8"\npython train.py "$ARGS"\n', []),
        ("train.sh", 'ARGS=(--num_workers 8)\nARGS+=(--num_workers 0)\npython train.py "${ARGS[@]}"\n', []),
        ("train.sh", "echo python train.py --num_workers 8\n", []),
        ("train.sh", 'echo "python train.py --num_workers 8" | tee log\n', []),
        ("train.sh", "usage() {\n  cat <<EOF\npython train.py --num_workers 8\nEOF\n}\n", []),
        ("train.sh", "python train.py --num-workers 8\n", []),
        ("Makefile", "train: W=8\ntrain:\n\techo no\nother:\n\tpython train.py --num_workers $(W)\n", []),
        ("Makefile", "train:\n\t@echo python train.py --num_workers 8\n", []),
    ],
)
def test_what_a_command_line_gives_is_what_the_shell_gives(name: str, text: str, numbers: list[tuple[int, int]], project: Path) -> None:
    write(project, name, text)
    assert [(item.place.row, item.place.column) for item in check(project).findings] == numbers


def test_click_has_the_spelling_that_is_written_and_a_field_both(project: Path) -> None:
    head = "from dataclasses import dataclass\n\nimport click\nimport torch\nfrom transformers import HfArgumentParser\n"
    head += "from torch.utils.data import DataLoader, TensorDataset\n\n\n"
    body = 'TensorDataset(torch.load("features.pt"), torch.load("labels.pt"))'
    command = (
        f'@click.command()\n@click.option("--num_workers", type=int, default=0)\ndef main(num_workers):\n    DataLoader({body}, num_workers=num_workers)\n'
    )
    fields = "@dataclass\nclass Given:\n    num_workers: int = 0\n\n\n(given,) = HfArgumentParser(Given).parse_args_into_dataclasses()\n"
    for line, clicked, filled in (("--num-workers 8", 0, 1), ("--num_workers 8", 1, 1)):
        write(project, "train.sh", f"python train.py {line}\n")
        write(project, "train.py", head + command)
        assert len(told(check(project), project)) == clicked
        write(project, "train.py", head + fields + f"DataLoader({body}, num_workers=given.num_workers)\n")
        assert len(told(check(project), project)) == filled


def test_a_fact_names_the_number_and_the_option(project: Path) -> None:
    write(project, "train.sh", SCRIPT)
    (item,) = check(project).findings
    (count,) = next(fact.workers for fact in item.facts if isinstance(fact, LoaderFact))
    assert [(os.path.relpath(place.path, project), place.row) for place in (count.place, count.option) if place] == [("train.sh", 2), ("train.py", 7)]


def test_what_workers_copy_is_told_where_their_loader_is(project: Path) -> None:
    rows = """
class Rows(Dataset):
    def __init__(self, path):
        self.rows = [float(line) for line in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

"""
    loader = 'DataLoader(Rows("rows.txt"), num_workers=parser.parse_args().num_workers)\n'
    head = "import argparse\nfrom torch.utils.data import DataLoader, Dataset\n" + rows
    write(project, "train.sh", SCRIPT)
    write(project, "train.py", f'{head}parser = argparse.ArgumentParser()\nparser.add_argument("--num_workers", type=int)\n{loader}')
    (item,) = check(project, select=["OOM110"], severity=Severity.NOTE).findings
    assert os.path.basename(item.place.path) == "train.py"


def test_a_job_that_a_line_submits_has_the_processors_of_the_line(project: Path) -> None:
    write(project, "train.sh", 'sbatch --cpus-per-task=2 --wrap "python train.py --num_workers 8"\n')
    assert [item.code for item in check(project, select=["OOM151"], severity=Severity.NOTE).findings] == ["OOM151"]


# -- the editor --------------------------------------------------------------------------------------------------------


def test_the_editor_shows_what_a_script_causes(project: Path) -> None:
    from oomlint.lsp.open_project import OpenProject  # noqa: PLC0415 - an extra

    write(project, "train.sh", SCRIPT)
    settings, _ = load_settings(None, True, project)  # noqa: FBT003
    script, code = str(project / "train.sh"), str(project / "train.py")
    opened = OpenProject(settings.with_overrides(select=["OOM114"]), str(project), code)
    contents = {script: SCRIPT.encode()}
    assert opened.findings(script, contents) == ()
    (item,) = opened.caused(script, contents, opened.causes(script, contents))
    assert (item.place.path, item.place.row) == (script, 2)
    (item,) = opened.findings(code, {code: TRAIN.encode()})
    assert (item.place.path, item.place.row) == (code, LOADER_ROW)
    changed = {script: SCRIPT.replace("8", "0").encode()}
    assert opened.caused(script, changed, opened.causes(script, changed)) == ()


# -- what must not be edited -------------------------------------------------------------------------------------------


def test_a_number_of_a_settings_file_is_edited_where_nothing_else_reads_it(project: Path) -> None:
    head = "import torch\nfrom omegaconf import OmegaConf\nfrom torch.utils.data import DataLoader, Dataset, TensorDataset\n\n"
    body = 'cfg = OmegaConf.load("config.yaml")\nloader = DataLoader(TensorDataset(torch.load("x.pt")), num_workers=cfg.num_workers)\n'
    other = "\n\nclass Clips(Dataset):\n    def __getitem__(self, i):\n        return torch.load(str(i))\n\n\nsecond = DataLoader(Clips(), num_workers={})\n"
    write(project, "config.yaml", "num_workers: 8\n")
    for text, after in (
        (body, "num_workers: 0\n"),
        (body + other.format("cfg.num_workers"), "num_workers: 8\n"),
        (body + other.format('cfg["num_workers"]'), "num_workers: 8\n"),
        (body.replace("cfg.num", 'cfg["num').replace("workers)", 'workers"])'), "num_workers: 8\n"),
    ):
        write(project, "config.yaml", "num_workers: 8\n")
        write(project, "train.py", head + text)
        report = check(project, fix=True)
        assert (project / "config.yaml").read_text() == after
        assert [os.path.basename(item.place.path) for item in (*report.findings, *report.fixed)] == ["config.yaml"]
