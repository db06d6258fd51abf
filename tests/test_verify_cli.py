"""``oomlint verify`` and ``oomlint check --verify``: what a user asks for and gets. Verdicts are made up here; nothing is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from commands import Done
from jsonschema import Draft202012Validator

from oomlint import amounts
from oomlint.__main__ import main
from oomlint.cli import app, verification, verify
from oomlint.cli.options import read
from oomlint.config import ConfigError, OutputFormat
from oomlint.output.json_schema import schema
from oomlint.verify import patches
from oomlint.verify import run as run_module
from oomlint.verify.case import Fidelity, Outcome, Part, QuantityReading, Verdict
from oomlint.verify.jobs import Limits, SandboxError
from oomlint.verify.session import Session, VerifyOptions, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.verify.case import Case
    from oomlint.verify.session import Surroundings

HEAD = "from torch.utils.data import DataLoader\n"
BAD = "DataLoader({}, num_workers=0, persistent_workers=True)\n"
FIXED = BAD.replace(", persistent_workers=True", "")
APPLY = "To apply what is confirmed: oomlint check --fix --verify --select=OOM101 a.py\n"
CYCLE = """\
from itertools import cycle

from torch.utils.data import DataLoader

batches = cycle(DataLoader(dataset, batch_size=8))
"""


class Judge:
    """In place of the verifier: a verdict by the name of the dataset, and a record of what was asked."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome | BaseException] = {}
        self.default = Outcome.CONFIRMED
        self.fidelity = Fidelity.SYNTHETIC
        self.reason = "it was seen"
        self.cases: list[Case] = []
        self.around: Surroundings | None = None

    def __call__(self, cases: Iterable[Case], around: Surroundings, store: Any, begin: Callable[[Case], None]) -> Iterator[tuple[Case, Verdict]]:
        self.around = around
        for case in cases:
            begin(case)
            known = store.get(case)
            if known is None:
                self.cases.append(case)
                known = self.judge(case)
                store.put(case, known)
            yield case, known

    def judge(self, case: Case) -> Verdict:
        row = Path(case.finding.place.path).read_text().splitlines()[case.finding.place.row - 1]
        found = re.search(r"DataLoader\((\w+)", row)
        outcome = self.outcomes.get(found[1] if found else "", self.default)
        if isinstance(outcome, BaseException):
            raise outcome
        if not case.has_fix:
            outcome = Outcome.SHOWN
        return Verdict(outcome, self.reason, self.fidelity, (QuantityReading("failures", "calls", (1.0,), (0.0,)),), (), (), (), 0.5)

    @property
    def rows(self) -> list[int]:
        return [case.finding.place.row for case in self.cases]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge()
    monkeypatch.setattr(verification, "verdicts", made)
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a project with three findings in one file."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM001", "OOM101"]\n')
    (root / "a.py").write_text(HEAD + "".join(map(BAD.format, ("one", "two", "three"))))
    monkeypatch.chdir(root)
    for name in ("NO_COLOR", "FORCE_COLOR", "OOMLINT_DEBUG", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    settle(root)
    return root


def settle(root: Path) -> None:
    """Files that are just written are not taken for settled; these are."""
    for path in root.rglob("*"):
        if ".oomlint_cache" not in path.parts:
            os.utime(path, (time.time() - 60,) * 2)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], judge: Judge) -> Callable[..., Done]:  # noqa: ARG001 - nothing is run for true
    def call(*words: str) -> Done:
        status = main(words)
        return Done(status, *capsys.readouterr())

    return call


# -- exit status ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status", "strict"),
    [
        (Outcome.CONFIRMED, 0, 0),
        (Outcome.NO_EFFECT, 0, 0),
        (Outcome.REGRESSED, 1, 1),
        (Outcome.INCONCLUSIVE, 0, 1),
    ],
)
def test_the_status(run: Callable[..., Done], judge: Judge, outcome: Outcome, status: int, strict: int) -> None:
    judge.outcomes["two"] = outcome
    done = run("verify")
    assert (done.status, done.err) == (status, "")
    assert f"a.py:3:1: OOM101 {outcome.value}: `persistent_workers=True`" in done.out
    assert run("verify", "--strict").status == strict


def test_a_clean_project_and_an_empty_one(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(HEAD)
    assert run("verify") == (0, "Nothing to verify: no findings in 1 file.\n", "")
    assert run("verify", "--output-format", "json").out == "[]\n"
    (folder / "a.py").unlink()
    assert run("verify") == (0, "", "oomlint: warning: no Python files under .\n")


def test_a_file_that_cannot_be_parsed_is_told_and_the_others_are_verified(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "broken.py").write_text("num_workers = (\n")
    done = run("verify", "--output-format", "concise", "-q")
    assert (done.status, done.out.count("confirmed")) == (1, 3)
    assert run("verify", "--output-format", "concise").out.endswith("\n1 file could not be checked.\n")
    assert re.fullmatch(r"broken\.py:1:\d+: cannot check: .*\n", done.err)


def test_no_job_can_be_run(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["one"] = SandboxError("/usr/bin/python3 has no torch")
    assert run("verify") == (2, "", "oomlint: error: /usr/bin/python3 has no torch\n")
    assert run("check", "--fix", "--verify") == (2, "", "oomlint: error: /usr/bin/python3 has no torch\n")


def test_an_interruption_keeps_what_was_reported(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = KeyboardInterrupt()
    done = run("verify", "--output-format", "concise")
    assert (done.status, done.err) == (130, "")
    assert done.out.startswith("a.py:2:1: OOM101 confirmed")


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("gone.py",), "gone.py: No such file or directory"),
        (("gone.py:3",), "gone.py: No such file or directory"),
        ((".:3",), ".:3: . is a folder, and has no lines"),
        (("-",), "standard input (`-`) cannot be verified"),
        (("a.py:1",), "a.py:1: no finding on this line; the file has some at 2, 3, 4"),
        (("a.py:5-9",), "a.py:5-9: no finding on these lines; the file has some at 2, 3, 4"),
        (("a.py", "a.py:1"), "a.py:1: no finding on this line"),
        (("a.py:0",), "a.py:0: lines and cells are counted from 1"),
        (("a.py:4-2",), "a range must not end before it begins"),
        (("--time-limit", "5x"), "--time-limit: '5x' is not a time such as '5s', '500ms' or '2m'"),
        (("--memory-cap", "3"), "--memory-cap: '3' is 3 bytes, too small for anything to run in; a size is written with its unit, such as '2GiB'"),
        (("--memory-cap", "lots"), "--memory-cap: 'lots' is not a size such as '2GiB', '512MiB' or '1.5GB'"),
        (("--repeat", "0"), "--repeat: '0' is not a whole number from 1 on"),
        (("--factory", "data"), "--factory: 'data' is not of the form 'package.module:function'"),
        (("--python", "gone/python"), "--python: 'gone/python' is not a program"),
        (("--html", "gone/x.html"), "gone/x.html: No such file or directory"),
        (("--html", "-"), "--html: the page goes to a file, and `-` is none"),
        (("--output-file", "gone/x.txt"), "gone/x.txt: No such file or directory"),
        (("--keep=copies",), "--keep: copies is in the project, and would be copied with it"),
        (("--python", ""), "--python: it is empty"),
        (("--command", " "), "--command: it is empty"),
        (("--command", "python 'a.py"), "--command: `python 'a.py`: no closing quotation"),
        (("--command", "nonsense-of-mine a.py"), "--command: there is no program 'nonsense-of-mine'"),
        (("--command", "./run.sh"), "--command: there is no program './run.sh'"),
        (("--command", "A=1 python gone.py"), "--command: there is no file 'gone.py' in ."),
        (("--html", "."), ".: Is a directory"),
        (("--output-file", "/proc/report.txt"), "/proc/report.txt: No such file or directory"),
        (("--keep=..",), "--keep: .. is not empty"),
        (("--keep=/dev/null",), "--keep: /dev/null: File exists"),
        (("--after", "gone.py"), "--after: gone.py: No such file or directory"),
        (("--after", "a.py"), "--after: a.py changes nothing: it is the same as in the project"),
        (("--select", "OOM9"), "select: unknown rule or prefix 'OOM9'"),
        (("--config", "pyproject.toml", "--isolated"), "exclude each other"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_options_are_one_line(run: Callable[..., Done], judge: Judge, words: tuple[str, ...], cause: str) -> None:
    status, out, err = run("verify", *words)
    assert (status, out, judge.cases) == (2, "", [])
    assert err.startswith("oomlint: error: ")
    assert cause in err
    assert err.count("\n") == 1


# -- what is verified -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ((), [2, 3, 4]),
        (("a.py",), [2, 3, 4]),
        (("a.py:3",), [3]),
        (("a.py:3:1",), [3]),
        (("a.py:3-9",), [3, 4]),
        (("a.py:2", "./a.py:4"), [2, 4]),
        (("--ignore", "OOM101"), []),
        (("a.py", "--force-exclude"), [2, 3, 4]),
        (("a.py", "--no-baseline"), [2, 3, 4]),
    ],
)
def test_lines(run: Callable[..., Done], judge: Judge, words: tuple[str, ...], rows: list[int]) -> None:
    assert run("verify", *words).status == 0
    assert judge.rows == rows


def test_a_finding_is_on_every_line_that_it_covers(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder / "a.py").write_text(HEAD + "DataLoader(\n    one,\n    persistent_workers=True,\n)\n")
    for line in (2, 3, 5):
        assert run("verify", f"a.py:{line}", "--no-cache").status == 0
    assert judge.rows == [2, 2, 2]


def test_a_file_whose_name_looks_like_a_line(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder / "a.py:3").write_text(HEAD + BAD.format("four"))
    assert run("verify", "a.py:3").status == 0
    assert [Path(case.finding.place.path).name for case in judge.cases] == ["a.py:3"]


@pytest.mark.parametrize("word", ["a.ipynb:2:2", "a.ipynb:cell 2:2", "a.ipynb:cell 2:2:1", "a.ipynb:2", "a.ipynb:2:1-2"])
def test_lines_of_a_notebook(folder: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    cells = [{"cell_type": "code", "source": HEAD + BAD.format("one")}, {"cell_type": "code", "source": "x = 1\n" + BAD.format("two")}]
    (folder / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    monkeypatch.setattr(judge, "judge", lambda _: Verdict(Outcome.CONFIRMED, "seen"))
    assert run("verify", word).status == 0
    assert [(case.finding.place.cell, case.finding.place.row) for case in judge.cases] == [(2, 2)]
    assert "no finding in this cell; the file has some at 1:2, 2:2" in run("verify", "a.ipynb:9").err


def test_a_case_holds_the_fix(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    run("verify", "a.py:3")
    ((before, after),) = judge.cases[0].changes.values()
    assert before == (folder / "a.py").read_bytes()
    assert after == before.replace(BAD.format("two").encode(), FIXED.format("two").encode())
    assert judge.cases[0].root == str(folder)


def test_a_mend_by_hand(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder.parent / "mine.py").write_text(HEAD + "pass\n")
    assert run("verify", "a.py:3", "--after", "../mine.py").status == 0
    assert judge.cases[0].changes == {str(folder / "a.py"): ((folder / "a.py").read_bytes(), (HEAD + "pass\n").encode())}
    (folder / "b.py").write_text(HEAD + BAD.format("four"))
    assert "is one file, and the findings are in 2" in run("verify", "--after", "../mine.py").err


def test_fixed_files_in_a_folder(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    mine = folder.parent / "mine"
    (mine / "src").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("x = 1\n")
    for name, text in (("a.py", HEAD), ("src/b.py", "x = 1\n"), ("src/new.py", "y = 1\n"), ("notes.txt", "new\n")):
        (mine / name).write_text(text)
    assert run("verify", "a.py", "--after", "../mine").status == 0
    assert {os.path.relpath(path, folder): after for path, (_, after) in judge.cases[0].changes.items()} == {"a.py": HEAD.encode(), "src/new.py": b"y = 1\n"}
    assert len(judge.cases) == 3
    (mine / "a.py").rename(mine / "z.py")
    (mine / "src" / "b.py").unlink()
    assert "no file below ../mine has the name of one below" in run("verify", "a.py", "--after", "../mine").err


@pytest.fixture
def mine(folder: Path) -> Path:
    """A folder of fixes, beside the project, which has a second file with a finding."""
    (folder / "b.py").write_text(HEAD + BAD.format("four"))
    made = folder.parent / "mine"
    made.mkdir()
    return made


def test_a_finding_whose_file_the_fixed_folder_lacks_is_not_run(folder: Path, mine: Path, run: Callable[..., Done], judge: Judge) -> None:
    (mine / "a.py").write_text(HEAD)
    assert run("verify", "--after", "../mine").status == 0
    assert [(case.has_fix, case.not_fixed) for case in judge.cases] == [(True, "")] * 3 + [(False, "../mine holds no `b.py`")]
    ((case, verdict),) = run_module.verdicts(judge.cases[-1:], judge.around)  # type: ignore[arg-type]
    assert (case, verdict.outcome, verdict.reason) == (judge.cases[-1], Outcome.INCONCLUSIVE, "../mine holds no `b.py`")
    assert run("verify", "b.py", "--after", "../mine") == (2, "", "oomlint: error: --after: ../mine holds no file that has a finding, such as b.py\n")
    (mine / "a.py").write_bytes((folder / "a.py").read_bytes())
    assert "--after: ../mine changes nothing: its files are the same as in the project" in run("verify", "--after", "../mine").err


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("a.py", "x = 1\ny = (\n", "a.py:2:5: '(' was never closed"),
        ("a.py", "if x:\ny = 1\n", "a.py:2:1: expected an indented block after 'if' statement on line 1"),
        ("new.py", "x = = 1\n", "new.py:1:5: invalid syntax"),
        ("a.ipynb", "{}", "a.ipynb:1:1: not a notebook: no list of cells"),
    ],
)
def test_a_mend_that_is_no_program(folder: Path, mine: Path, run: Callable[..., Done], judge: Judge, name: str, text: str, cause: str) -> None:
    (mine / "b.py").write_text(HEAD)
    (mine / name).write_text(text)
    if name != "a.py":
        (folder / name).write_text('{"cells": []}')
    assert run("verify", "b.py", "--after", "../mine") == (2, "", f"oomlint: error: --after: ../mine/{cause}\n")
    if name == "a.py":
        assert run("verify", "b.py", "--after", "../mine/a.py") == (2, "", f"oomlint: error: --after: ../mine/{cause}\n")
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nverify.patches = "../mine"\n')
    for words in (("verify", "b.py"), ("verify", "--config", "pyproject.toml")):
        assert run(*words) == (2, "", f"oomlint: error: verify.patches: ../mine/{cause}\n")
    assert judge.cases == []


def test_fixes_of_the_settings_lead_to_no_other_files(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    for path in ("project/a.py", "project/notes.txt", "project/fixed/a.py", "home/notes.txt", "home/a.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(f"x = {path!r}\n")
    (project / "fixed" / "notes.txt").symlink_to(home / "notes.txt")
    assert set(patches.of_setting(str(project), "fixed")) == {str(project / "a.py")}
    assert set(patches.of_setting(str(project), "../home")) == {str(project / "a.py")}
    (project / "fixed" / "a.py").unlink()
    os.mkfifo(project / "fixed" / "a.py")
    with pytest.raises(ConfigError):
        patches.of_setting(str(project), "./fixed")


@pytest.mark.usefixtures("mine")
def test_fixes_that_the_settings_name(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder / "a.py").write_text(CYCLE)
    settings = '[tool.oomlint]\nselect = ["OOM101", "OOM130"]\nverify.patches = "{}"\n'
    for name, cause in (
        ("gone", "gone: No such file or directory"),
        ("a.py", "a.py is not a folder"),
        ("../mine", "../mine holds no program that has the name"),
    ):
        (folder / "pyproject.toml").write_text(settings.format(name))
        nearest.cache_clear()
        assert run("verify").err.startswith(f"oomlint: error: verify.patches: {cause}")
        assert run("check", "--fix", "--verify").err.startswith(f"oomlint: error: verify.patches: {cause}")
    (folder / "fixes").mkdir()
    (folder / "fixes" / "b.py").write_text(HEAD + BAD.format("five"))
    (folder / "pyproject.toml").write_text(settings.format("fixes"))
    nearest.cache_clear()
    assert run("verify").status == 0
    assert [os.path.relpath(case.finding.place.path) for case in judge.cases] == ["a.py", "b.py"], "the fixes are not what is to be verified"


# -- how it is run ----------------------------------------------------------------------------------------------------


def test_how_to_apply_what_is_confirmed_is_told(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    assert run("verify", "a.py:2").out.endswith(f"\n{APPLY}")
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\nbaseline = "known.json"\n')
    run("baseline")
    said = run("verify").out
    assert said.endswith("\nTo apply what is confirmed: oomlint check --fix --verify --no-baseline --select=OOM101 a.py\n")
    words = said.split("oomlint ")[-1].split()
    assert "Fixed 3 findings in 1 file.\n" in run(*words).out
    judge.default = Outcome.REGRESSED
    (folder / "a.py").write_text(HEAD + BAD.format("new"))
    assert "To apply" not in run("verify").out


def test_what_is_confirmed_is_applied_as_it_was_run(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    """Without the interpreter, the limit and the command of the line, nothing might be confirmed."""
    (folder / "more").mkdir()
    line = ("--python", os.path.relpath(sys.executable), "--time-limit", "20s", "--command", "python a.py --epochs '1'", "--repeat", "2", "--read", "more")
    said = run("verify", "a.py:2", *line, "--pass-env", "HOME_OF_DATA", "--config", "worker-limit = 9").out
    words = shlex.split(said.split("To apply what is confirmed: oomlint ")[1])
    asked = judge.around
    judge.around = None
    assert "Fixed 3 findings in 1 file.\n" in run(*words).out
    again: Surroundings | None = judge.around
    assert asked is not None
    assert again is not None
    assert (os.path.realpath(again.python), again.options) == (os.path.realpath(asked.python), asked.options)
    assert (again.read, again.pass_env) == (asked.read, asked.pass_env)
    assert again.settings.worker_limit == asked.settings.worker_limit == 9


def test_options_win_over_settings(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.oomlint]\nselect = ["OOM101"]\n[tool.oomlint.verify]\ntime-limit = "1m"\nmemory-cap = "1GB"\n'
        'repeat = 7\nfactory = "a.b:make"\ncommand = "python -V"\n'
    )
    assert run("verify", "--trust").status == 0
    assert judge.around is not None
    options = judge.around.options
    assert (options.limits.seconds, options.limits.memory, options.repeat, options.factory, options.command) == (60, 10**9, 7, "a.b:make", "python -V")
    words = ("--time-limit", "500ms", "--memory-cap=512MiB", "--repeat", "2", "--factory", "c:make", "--command", "python -m train", "--unsandboxed")
    assert run("verify", *words).status == 0
    options = judge.around.options
    assert (options.limits.seconds, options.limits.memory, options.repeat, options.factory, options.command) == (0.5, 2**29, 2, "c:make", "python -m train")
    assert judge.around.unsandboxed
    lines = ("--config", "verify.time-limit = '2s'", "--config", "verify.command = 'python -c pass'", "--config", "verify.factory = 'd:make'")
    for asked in (("verify", *lines), ("check", "--diff", "--verify", *lines)):
        done = run(*asked)
        assert "ignored" not in done.err, "what the line says is the user's own"
        options = judge.around.options
        assert (options.limits.seconds, options.limits.memory, options.factory, options.command) == (2, 10**9, "d:make", "python -c pass")


@pytest.mark.parametrize(
    ("limit", "own", "most"), [(5.0, None, 5.0), (5.0, 20.0, 20.0), (1.0, 20.0, 4.0), (1.0, None, 1.0), (60.0, 20.0, 60.0), (60.0, 90.0, 90.0)]
)
def test_a_limit_holds_for_every_run(limit: float, own: float | None, most: float) -> None:
    job = run_with(Limits(seconds=limit), seconds=own)
    assert (job.limits.seconds, job.arguments["seconds"]) == (most, min(limit, 5.0) * 2)


@pytest.mark.parametrize(("cap", "own", "most"), [(2**31, 2**33, 2**33), (2**32, 2**33, 2**33), (2**28, 2**33, 2**28), (2**28, 2**27, 2**27)])
def test_a_lower_cap_holds_for_every_run(cap: int, own: int, most: int) -> None:
    assert run_with(Limits(memory=cap), memory=own).limits.memory == most


def run_with(limits: Limits, **own: Any) -> Any:
    """The job that a strategy's run becomes."""
    jobs: list[Any] = []
    runner: Any = SimpleNamespace(run=jobs.append)
    trees: Any = SimpleNamespace(folder=lambda _: "")
    nothing: Any = None
    Session(nothing, nothing, nothing, VerifyOptions(limits), runner, trees).run(Part.BEFORE, "a:b", {"seconds": 10.0}, **own)
    return jobs[0]


def environment(folder: Path, *, torch: bool) -> Path:
    program = folder / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if torch:
        (folder / "lib" / "python3.11" / "site-packages" / "torch").mkdir(parents=True)
    return program


def test_the_interpreter(folder: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(*words: str) -> str:
        assert run("verify", "--trust", *words).status == 0
        assert judge.around is not None
        return judge.around.python

    environment(folder / "venv", torch=False)
    other = environment(folder.parent / "other", torch=True)
    assert chosen() != str(folder / "venv" / "bin" / "python"), "it has no torch"
    monkeypatch.setenv("VIRTUAL_ENV", str(folder.parent / "other"))
    assert chosen() == str(other)
    own = environment(folder / ".venv", torch=True)
    assert chosen() == str(own)
    assert ".venv/bin/python, 500 ms" in run("verify", "--trust", "a.py:2").out
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\nverify.python = "venv/bin/python"\n')
    assert chosen() == str(folder / "venv" / "bin" / "python")
    assert chosen("--python", "../other/bin/python") == str(folder / "../other/bin/python")
    assert chosen("--python", sys.executable) == sys.executable


def test_the_copies_stay_where_they_are_asked_for(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    done = run("verify", "a.py:2", "--keep=../copies")
    assert done.err == "oomlint: the copies of the project are in ../copies\n"
    (folder.parent / "copies" / "raw").mkdir()
    assert run("verify", "a.py:2", "--keep=../copies").err == "oomlint: error: --keep: ../copies is not empty\n"
    assert judge.around is not None
    assert judge.around.keep == str(folder.parent / "copies")
    run("verify", "--keep", "a.py:2")
    assert judge.rows == [2, 2], "PATH is no folder for copies, and a cached verdict leaves none"
    assert Path(judge.around.keep).is_dir()
    Path(judge.around.keep).rmdir()


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("5s", 5), (" 1.5 S", 1.5), ("500ms", 0.5), ("2m", 120), ("2min", 120), (".5h", 1800)])
def test_times(text: str, value: float) -> None:
    assert amounts.seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("1024", 1024), ("2GiB", 2**31), ("512mib", 2**29), ("1.5GB", 1_500_000_000), ("2G", 2**31), ("64 k", 65536), ("7B", 7)]
)
def test_sizes(text: str, value: int) -> None:
    assert amounts.size(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "0s", "1e3", "5 5", "inf", "nan", "1y", "9999999h", "5\n5", "٣"])
def test_what_is_no_amount(text: str) -> None:
    for parse in (amounts.seconds, amounts.size):
        with pytest.raises(ValueError, match="is not a") as caught:
            parse(text)
        assert "\n" not in str(caught.value)


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_formats(folder: Path, run: Callable[..., Done]) -> None:
    full = run("verify", "a.py:2").out
    assert full.startswith("a.py:2:1: OOM101 confirmed: ")
    assert "    before ████████████████████████████████ 1 call\n    after  ▏ 0 calls\n" in full
    assert full.endswith(f"\n1 fix verified: 1 confirmed.\n{APPLY}")
    assert run("verify", "a.py:2", "-q", "--output-format", "concise").out == "a.py:2:1: OOM101 confirmed (cached): it was seen\n"
    (entry,) = json.loads(run("verify", "a.py:2", "--output-format", "json").out)
    assert (entry["code"], entry["verdict"]["outcome"], entry["verdict"]["cached"]) == ("OOM101", "confirmed", True)
    assert run("verify", "a.py:2", "--output-format", "github").out.startswith("::error title=oomlint (OOM101)%3A fix confirmed,file=a.py,line=2,")
    assert "\x1b[1;32mOOM101 confirmed\x1b[0m" in run("verify", "a.py:2", "--color", "always").out
    assert run("verify", "a.py:2", "-q", "--output-format", "concise", "--output-file", "-").out == "a.py:2:1: OOM101 confirmed (cached): it was seen\n"
    assert run("verify", "a.py:2", "--output-file", "report.txt") == (0, "", "")
    assert (folder / "report.txt").read_text(encoding="utf-8") == full.replace("OOM101 confirmed:", "OOM101 confirmed (cached):").replace(
        "1 confirmed.", "1 confirmed (1 cached)."
    )


def test_a_page_beside_the_report(folder: Path, run: Callable[..., Done]) -> None:
    done = run("verify", "--html", "report.html", "--output-format", "concise")
    assert done.out.endswith(f"3 fixes verified: 3 confirmed.\n{APPLY}")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<section") == 3
    assert "3 fixes verified: 3 confirmed." in page
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022) or 0o022)
    assert not list(folder.glob(".oomlint-*"))


def test_there_is_no_bar_without_a_terminal(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("verify").err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    seen = run("verify", "--no-cache").err
    assert "1/3 OOM101 a.py:2" in seen
    assert "3/3 OOM101 a.py:4" in seen
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run("verify", "--no-cache", "-q").err == ""


# -- verdicts of earlier runs -----------------------------------------------------------------------------------------


def test_verdicts_are_kept(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    assert "(cached)" not in run("verify").out
    done = run("verify")
    assert done.out.count("(cached): ") == 3
    assert done.out.endswith(f"3 fixes verified: 3 confirmed (3 cached).\n{APPLY}")
    assert len(judge.cases) == 3
    run("verify", "--no-cache")
    run("verify", "--repeat", "5")
    run("verify", "--python", "sh")
    assert len(judge.cases) == 12, "what depends on options is not mixed up"
    (folder / "b.py").write_text("x = 1\n")
    settle(folder)
    run("verify")
    assert len(judge.cases) == 15, "a module may have come between"
    (folder / "train.h5").write_bytes(b"data")
    run("verify")
    assert len(judge.cases) == 18, "data may have come, and be better than made-up ones"
    (folder / ".oomlint_cache" / "fixes.json").write_bytes(b"0\n{")
    run("verify")
    assert len(judge.cases) == 21, "what is broken is empty"


@pytest.mark.parametrize(
    ("outcome", "fidelity", "reason", "kept"),
    [
        (Outcome.INCONCLUSIVE, Fidelity.SYNTHETIC, "no dataset can be made", True),
        (Outcome.INCONCLUSIVE, Fidelity.SYNTHETIC, "it took more than 5 s", False),
        (Outcome.INCONCLUSIVE, Fidelity.SYNTHETIC, "the run was out of time", False),
        (Outcome.CONFIRMED, Fidelity.SLICED, "it took 5 s before", True),
        (Outcome.CONFIRMED, Fidelity.COMMAND, "seen", False),
        (Outcome.CONFIRMED, Fidelity.DATA, "seen", False),
    ],
)
def test_what_another_run_may_see_otherwise_is_not_kept(
    run: Callable[..., Done], judge: Judge, outcome: Outcome, fidelity: Fidelity, reason: str, *, kept: bool
) -> None:
    judge.default, judge.fidelity, judge.reason = outcome, fidelity, reason
    run("verify", "a.py:2")
    run("verify", "a.py:2")
    assert len(judge.cases) == 2 - kept


# -- oomlint check --fix --verify -------------------------------------------------------------------------------------


def test_only_confirmed_fixes_are_applied(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes |= {"two": Outcome.REGRESSED, "three": Outcome.NO_EFFECT}
    done = run("check", "--fix", "--verify", "--output-format", "concise")
    assert (folder / "a.py").read_text() == HEAD + FIXED.format("one") + BAD.format("two") + BAD.format("three")
    assert done.status == 1
    assert done.err == (
        "oomlint: a.py:3:1: the fix of OOM101 is not applied: regressed: it was seen\n"
        "oomlint: a.py:4:1: the fix of OOM101 is not applied: no effect: it was seen\n"
    )
    assert "3 fixes verified: 1 confirmed, 1 no effect, 1 regressed.\nFixed 1 finding in 1 file.\nFound 2 errors in 1 file.\n" in done.out


def test_json_keeps_what_was_fixed_with_its_verdict(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = Outcome.REGRESSED
    entries = json.loads(run("check", "--fix", "--verify", "--output-format", "json").out)
    Draft202012Validator(schema()).validate(entries)
    assert [(entry["location"]["row"], entry.get("fixed", False), entry["verdict"]["outcome"]) for entry in entries] == [
        (3, False, "regressed"),
        (2, True, "confirmed"),
        (4, True, "confirmed"),
    ]


def test_verdicts_as_sarif_and_as_rows(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = Outcome.REGRESSED
    (log,) = json.loads(run("verify", "--output-format", "sarif").out)["runs"]
    said = [(each["ruleId"], each["properties"]["verdict"]["outcome"]) for each in log["results"]]
    assert said == [("OOM101", "confirmed"), ("OOM101", "regressed"), ("OOM101", "confirmed")]
    assert [json.loads(row)["verdict"]["outcome"] for row in run("verify", "--output-format", "json-lines").out.splitlines()] == [each[1] for each in said]


@pytest.mark.parametrize("form", OutputFormat)
def test_every_format_tells_every_verdict(run: Callable[..., Done], judge: Judge, form: OutputFormat) -> None:
    judge.outcomes |= {"two": Outcome.REGRESSED, "three": Outcome.INCONCLUSIVE}
    out = run("verify", "--output-format", form).out
    assert [outcome in out for outcome in ("confirmed", "regressed", "inconclusive")] == [True] * 3, out
    assert out.count("OOM101") >= 3


@pytest.mark.parametrize("form", OutputFormat)
def test_every_format_tells_what_was_fixed(run: Callable[..., Done], form: OutputFormat) -> None:
    done = run("check", "--fix", "--verify", "--output-format", form)
    assert done.status == 0
    assert "3 fixes verified: 3 confirmed." in done.out + done.err
    if form not in {OutputFormat.FULL, OutputFormat.CONCISE, OutputFormat.GROUPED}:
        assert "confirmed" in done.out
        assert "a.py:2:1: the fix of OOM101 is confirmed: it was seen" in done.err


def test_the_page_of_a_step_tells_verdicts(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "page.md"))
    run("verify", "--output-format", "github")
    run("check", "--fix", "--verify", "--output-format", "github")
    first, second = (folder / "page.md").read_text().split("## oomlint\n")[1:]
    assert "3 errors in 1 file.\n\n3 fixes verified: 3 confirmed.\n" in first
    assert first.count("(fix confirmed)") == 3
    assert "No findings in 1 file.\n\n3 fixes verified: 3 confirmed" in second
    assert second.count("(fixed, fix confirmed)") == 3


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)])
def test_findings_that_are_alike_are_told_apart(
    folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, judge: Judge, *, wanted: tuple[bool, ...]
) -> None:
    (folder / "a.py").write_text(HEAD + BAD.format("same") * 3)
    verdicts = iter(wanted)
    monkeypatch.setattr(judge, "judge", lambda _: Verdict(Outcome.CONFIRMED if next(verdicts) else Outcome.REGRESSED, "seen"))
    run("check", "--fix", "--verify")
    assert [row == FIXED.format("same") for row in (folder / "a.py").read_text().splitlines(keepends=True)[1:]] == list(wanted)


def test_a_fix_is_known_again_after_lines_have_moved(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text(HEAD + "DataLoader(\n    one,\n    num_workers=0,\n    persistent_workers=True,\n)\n" + BAD.format("two"))
    assert run("check", "--fix", "--verify").status == 0
    assert "persistent_workers" not in (folder / "a.py").read_text()


def test_strict_fails_where_a_fix_is_not_confirmed(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = Outcome.INCONCLUSIVE
    assert run("check", "--diff", "--verify=strict").status == 1
    assert run("check", "--fix", "--verify=strict", "--exit-zero").status == 0
    judge.outcomes.clear()
    assert run("check", "--fix", "--verify=strict", "--no-cache").status == 0


def test_unsafe_fixes_are_verified_where_they_are_asked_for(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    (folder / "a.py").write_text(CYCLE)
    run("check", "--fix", "--verify", "--select", "OOM130")
    assert judge.cases == []
    run("check", "--fix", "--verify", "--unsafe-fixes", "--select", "OOM130")
    assert len(judge.cases) == 1


def test_a_diff_of_confirmed_fixes(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = Outcome.INCONCLUSIVE
    before = (folder / "a.py").read_text()
    done = run("check", "--diff", "--verify")
    assert done.out.count("\n-DataLoader") == 2
    assert "two" not in "".join(row for row in done.out.splitlines() if row.startswith("-"))
    assert "oomlint: would fix 2 findings in 1 file\noomlint: a.py:2:1: the fix of OOM101 is confirmed: it was seen\n" in done.err
    assert done.err.endswith("oomlint: 3 fixes verified: 2 confirmed, 1 inconclusive.\n")
    assert (folder / "a.py").read_text() == before


def test_machines_are_told_the_verdict(run: Callable[..., Done], judge: Judge) -> None:
    judge.outcomes["two"] = Outcome.INCONCLUSIVE
    entry, *_ = json.loads(run("check", "--fix", "--verify", "--output-format", "json").out)
    assert (entry["location"]["row"], entry["verdict"]["outcome"]) == (3, "inconclusive")
    out = run("check", "--fix", "--verify", "--output-format", "github", "--no-cache").out
    assert out.startswith("::error title=oomlint (OOM101)%3A fix inconclusive,file=a.py,line=3,")
    assert "verdict" not in json.loads(run("check", "--output-format", "json").out)[0]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--verify",), "--verify goes with --fix or --diff; `oomlint verify` verifies fixes and applies none"),
        (("--fix", "--verify", "--stdin-filename", "a.py"), "--verify needs files"),
    ],
)
def test_verify_where_it_means_nothing(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], cause: str) -> None:
    with Path("a.py").open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        status, out, err = run("check", *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"oomlint: error: {cause}")


# -- both readers of the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["a.py:3", "--keep", "b.py", "--time-limit", "5s", "-q"],
        ["--keep=../x", "--repeat=2", "--select", "OOM1", "--html", "x.html"],
        ["--unsandboxed", "--strict", "--output-format", "github", "--color=never"],
    ],
    ids=" ".join,
)
def test_both_readers_agree(words: list[str]) -> None:
    parsed: Any = app.parse(["verify", *words])
    assert parsed.args == (read(verify.Arguments, words),)
    assert parsed.func == verify.perform


def test_an_option_that_may_go_without_a_value(run: Callable[..., Done]) -> None:
    for words in (["--fix", "--verify", "a.py"], ["--fix", "--verify=strict", "a.py"]):
        arguments: Any = app.parse(["check", *words])
        assert arguments.args[0].paths == ("a.py",)
        assert arguments.args[0].verify == words[1].partition("=")[2] or "confirmed"
    done = run("check", "--fix", "--verify=maybe")
    assert done.status == 2
    assert done.err == "oomlint: error: --verify: 'maybe' is not one of confirmed, strict\n"
