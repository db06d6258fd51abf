"""A project's settings and its virtual environment start nothing that the user has not allowed."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from commands import Done

from oomlint.__main__ import main
from oomlint.cli import verification
from oomlint.cli.user_config import Own
from oomlint.verify import run as run_module
from oomlint.verify.case import Fidelity, Outcome, Verdict
from oomlint.verify.session import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.verify.case import Case
    from oomlint.verify.session import Surroundings
    from oomlint.verify.store import VerdictStore

pytestmark = pytest.mark.skipif(sys.platform != "linux" or shutil.which("git") is None, reason="the verifier needs Linux, and these tests git")

ROOT = Path(__file__).parent.parent
BAD = "from torch.utils.data import DataLoader\nDataLoader({}, num_workers=0, persistent_workers=True)\n"
TABLE = '[tool.oomlint]\nselect = ["OOM101"]\n[tool.oomlint.verify]\n'
PATIENCE = 60.0  # seconds: other tests may run beside
VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "CI", "PYTHONPATH")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a program of the project's touches when it is started."""
    return tmp_path / "started"


@pytest.fixture
def folder(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a project with a finding, and a program that pretends to be Python."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text(BAD)
    (root / "pyproject.toml").write_text(TABLE)
    program(root / "evilpy", marker)
    monkeypatch.chdir(root)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    nearest.cache_clear()
    return root


def program(path: Path, marker: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {marker}\n")
    path.chmod(0o755)


def environment(folder: Path, marker: Path) -> Path:
    program(folder / "bin" / "python", marker)
    (folder / "lib" / "python3.12" / "site-packages" / "torch").mkdir(parents=True, exist_ok=True)
    return folder


def repository(root: Path, *files: str) -> None:
    """A repository that tracks the files given, all by default."""
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "-C", root, "add", "--force", "--", *(files or ("."))], check=True)


def started(*words: str, cwd: Path, **variables: str) -> Done:
    """A run of oomlint as a process of its own: what it starts is started for true."""
    line = [sys.executable, "-m", "oomlint", *words]
    done = subprocess.run(
        line, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    return Done(done.returncode, done.stdout, done.stderr)


def tried(said: str) -> str:
    """The interpreter that was started: those of these tests are none, and are told to be."""
    found = re.search(r"error: (\S+) (?:is no Python that jobs can be run with|cannot be started)", said)
    return found[1] if found else ""


class Judge:
    """In place of the verifier: what was asked, and a verdict."""

    def __init__(self) -> None:
        self.arounds: dict[str, Surroundings] = {}

    def __call__(self, cases: Iterable[Case], around: Surroundings, store: object, begin: Callable[[Case], None]) -> Iterator[tuple[Case, Verdict]]:  # noqa: ARG002
        for case in cases:
            self.arounds[case.root] = around if case.root == around.root or not around.elsewhere else around.elsewhere(nearest(case.root)[0], case.root)
            yield case, Verdict(Outcome.CONFIRMED, "it was seen", Fidelity.SYNTHETIC)

    @property
    def around(self) -> Surroundings:
        (only,) = self.arounds.values()
        return only


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made = Judge()
    monkeypatch.setattr(verification, "verdicts", made)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], judge: Judge) -> Callable[..., Done]:
    def call(*words: str) -> Done:
        judge.arounds.clear()
        nearest.cache_clear()
        status = main([words[0], "--no-cache", *words[1:]])
        return Done(status, *capsys.readouterr())

    return call


def left_out(file: str, *keys: str) -> str:
    names = ", ".join(f"verify.{key}" for key in keys)
    why = "settings of a project may not name what is run or let through, unless you allow it; `--trust` does for this run"
    return f"oomlint: {file}: {names} are ignored: {why}\n"


# -- what is started for true -----------------------------------------------------------------------------------------


def by_python(root: Path, marker: Path) -> str:  # noqa: ARG001
    (root / "pyproject.toml").write_text(TABLE + 'python = "./evilpy"\n')
    return left_out("pyproject.toml", "python")


def by_own_file(root: Path, marker: Path) -> str:  # noqa: ARG001
    (root / ".oomlint.toml").write_text('verify.python = "./evilpy"\n')
    return left_out(".oomlint.toml", "python")


def by_parent(root: Path, marker: Path) -> str:
    program(root.parent / "evilpy", marker)
    (root / "pyproject.toml").unlink()
    (root.parent / "oomlint.toml").write_text('verify.python = "./evilpy"\n')
    return left_out("../oomlint.toml", "python")


def by_nested(root: Path, marker: Path) -> str:
    environment(root / "part" / "venv", marker)
    program(root / "part" / "evilpy", marker)
    (root / "part" / "oomlint.toml").write_text('verify.python = "./evilpy"\n')
    (root / "a.py").rename(root / "part" / "a.py")
    return left_out("part/oomlint.toml", "python")


def by_commands(root: Path, marker: Path) -> str:
    (root / "data.py").write_text(f"open({str(marker)!r}, 'w')\ndef make(): pass\n")
    (root / "pyproject.toml").write_text(TABLE + 'command = "./evilpy"\nprepare = "./evilpy"\nfactory = "data:make"\n')
    return left_out("pyproject.toml", "command", "prepare", "factory")


def by_environment(root: Path, marker: Path) -> str:
    environment(root / ".venv", marker)
    return "oomlint: .venv is not used: it came with the project, or may have"


def by_linked_environment(root: Path, marker: Path) -> str:
    environment(root / "tools", marker)
    (root / "venv").symlink_to("tools")
    return "oomlint: venv is not used: it came with the project, or may have"


def by_program_in_environment(root: Path, marker: Path) -> str:
    environment(root / ".venv", marker)
    (root / ".gitignore").write_text(".venv/*\n!.venv/bin\n.venv/lib\n")
    return "oomlint: .venv is not used: it came with the project, or may have"


ATTACKS = (by_python, by_own_file, by_parent, by_nested, by_commands, by_environment, by_linked_environment, by_program_in_environment)


@pytest.mark.parametrize("known", [True, False], ids=["in git", "not in git"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_of_the_project_is_started(folder: Path, marker: Path, attack: Callable[[Path, Path], str], known: bool) -> None:  # noqa: FBT001
    said = attack(folder, marker)
    if known:
        repository(folder)
    mine = environment(folder.parent / "mine", folder.parent / "mine-started")
    for words in (("verify",), ("check", "--fix", "--unsafe-fixes", "--verify")):
        done = started(*words, cwd=folder, VIRTUAL_ENV=str(mine))
        assert said in done.err
        assert tried(done.err) == f"{mine}/bin/python", "the run goes on with what is the user's"
    assert not marker.exists()


@pytest.mark.parametrize("attack", [by_python, by_nested, by_environment], ids=lambda attack: attack.__name__)
def test_what_is_trusted_is_started(folder: Path, marker: Path, attack: Callable[[Path, Path], str]) -> None:
    attack(folder, marker)
    repository(folder)
    for words in (("verify", "--trust"), ("check", "--diff", "--unsafe-fixes", "--verify", "--trust")):
        err = started(*words, cwd=folder).err
        assert "--trust" not in err
        assert tried(err).startswith(f"{folder}/")


def test_a_name_on_the_line_is_no_file_of_the_project(folder: Path, marker: Path) -> None:
    for name in ("python3", "python3.99"):
        program(folder / name, marker)
    environment(folder / "python3.98", marker)
    mine = environment(folder.parent / "mine", folder.parent / "mine-started")
    program(mine / "bin" / "python3", folder.parent / "mine-started")
    assert tried(started("verify", "--python", "python3", cwd=folder, PATH=f"{mine}/bin:{os.environ['PATH']}").err) == f"{mine}/bin/python3"
    for name in ("python3.99", "python3.98"):
        assert f"--python: {name!r} is not a program" in started("verify", "--python", name, cwd=folder).err
    assert not marker.exists()
    assert tried(started("verify", "--python", "./evilpy", cwd=folder).err) == f"{folder}/evilpy", "a path is"


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_that_name_something_are_left_out(folder: Path, run: Callable[..., Done], judge: Judge) -> None:
    table = 'python = "./evilpy"\ncommand = "./evilpy"\nprepare = "./evilpy"\nfactory = "a:make"\npass-env = ["SECRET"]\nread = ["~/.ssh"]\n'
    (folder / "pyproject.toml").write_text(TABLE + table + 'time-limit = "9s"\nrepeat = 7\ndisk-cap = "1MiB"\n')
    assert run("verify").err == left_out("pyproject.toml", "python", "command", "prepare", "factory", "pass-env", "read")
    around = judge.around
    assert (around.python, around.pass_env, around.read) == (sys.executable, (), ())
    assert (around.options.command, around.options.prepare, around.options.factory) == (None, None, None)
    assert (around.options.limits.seconds, around.options.limits.disk, around.options.repeat) == (9, 2**20, 7), "limits harm nobody"
    assert run("verify", "--quiet").err, "whoever wants to see less still learns of it"
    words = ("--python", sys.executable, "--command", "python a.py", "--factory", "a:b")
    assert run("verify", *words).err == left_out("pyproject.toml", "prepare", "pass-env", "read"), "what the line says is the user's word"
    assert (judge.around.options.command, judge.around.options.factory) == ("python a.py", "a:b")
    assert run("verify", "--isolated").err == ""
    assert run("verify", "--trust").err == ""
    around = judge.around
    assert (around.python, around.pass_env, around.read) == (f"{folder}/./evilpy", ("SECRET",), ())
    assert (around.options.command, around.options.prepare, around.options.factory) == ("./evilpy", "./evilpy", "a:make")


def test_a_settings_file_that_the_line_names(folder: Path, run: Callable[..., Done], judge: Judge, tmp_path: Path) -> None:
    (folder / "conf").mkdir()
    for place in (folder / "conf" / "x.toml", tmp_path / "y.toml", tmp_path / "other" / "y.toml"):
        place.parent.mkdir(exist_ok=True)
        place.write_text('select = ["OOM101"]\nverify.prepare = "./evilpy"\n')
    (folder / "link.toml").symlink_to("../other/y.toml")
    (tmp_path / "other" / "link.toml").symlink_to("../project/conf/x.toml")
    for name in ("conf/x.toml", "link.toml", "../other/link.toml", str(folder / "conf" / ".." / "conf" / "x.toml")):
        assert run("verify", "--config", name, ".").err == left_out(os.path.relpath(name), "prepare")
        assert judge.around.options.prepare is None
        assert run("check", "--diff", "--verify", "--config", name, ".").err.startswith(left_out(os.path.relpath(name), "prepare"))
    assert run("verify", "--config", "../other/y.toml").err == ""
    assert judge.around.options.prepare == "./evilpy", "it is none of the project's"
    (folder / "part").mkdir()
    (folder / "a.py").rename(folder / "part" / "a.py")
    (folder / "part" / "setup.py").touch()
    assert run("verify", "--config", "conf/x.toml", "part").err == ""
    repository(folder)
    assert run("verify", "--config", "conf/x.toml", "part").err == left_out("conf/x.toml", "prepare"), "it is part of the same repository"


@pytest.mark.usefixtures("folder")
def test_trust_without_anything_to_trust(run: Callable[..., Done]) -> None:
    assert run("check", "--trust") == (2, "", "oomlint: error: --trust goes with --verify: nothing else runs code\n")


# -- environments -----------------------------------------------------------------------------------------------------


def chosen(run: Callable[..., Done], judge: Judge, *words: str) -> tuple[str, str]:
    err = run("verify", *words).err
    return os.path.relpath(judge.around.python), err


def test_an_environment_is_used_where_it_is_the_users_own(
    folder: Path, marker: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(folder)
    environment(folder / ".venv", marker)
    assert chosen(run, judge) == (".venv/bin/python", "")
    (folder / ".venv" / ".git").touch()
    assert chosen(run, judge)[0] != ".venv/bin/python", "a repository of its own came from somewhere"
    (folder / ".venv" / ".git").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "it belongs to another user" in chosen(run, judge)[1]
    subprocess.run(["git", "-C", folder, "add", "--force", ".venv/lib/python3.12/site-packages/torch", ".venv/bin"], check=True)
    assert "it came with the project" in chosen(run, judge)[1]
    assert chosen(run, judge, "--trust") == (".venv/bin/python", "")
    assert chosen(run, judge, "--python", ".venv") == (".venv/bin/python", "")


def test_an_environment_that_is_linked(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge) -> None:
    repository(folder)
    environment(folder.parent / "mine", marker)
    (folder / "venv").symlink_to("../mine")
    assert chosen(run, judge) == ("venv/bin/python", ""), "a link of the user's own"
    subprocess.run(["git", "-C", folder, "add", "venv"], check=True)
    assert chosen(run, judge)[0] != "venv/bin/python"
    (folder / "venv").unlink()
    subprocess.run(["git", "-C", folder, "rm", "--quiet", "--cached", "venv"], check=True)
    environment(folder / "tools", marker)
    subprocess.run(["git", "-C", folder, "add", "tools"], check=True)
    (folder / "venv").symlink_to("tools")
    assert chosen(run, judge)[0] != "venv/bin/python", "what it leads to came with the project"


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(environment(folder / "tools" / "env", marker)))
    assert chosen(run, judge) == ("tools/env/bin/python", ""), "whoever activates it means it"
    environment(folder / ".venv", marker)
    monkeypatch.setenv(variable, str(folder / ".venv"))
    assert chosen(run, judge) == (".venv/bin/python", "")
    repository(folder)
    python, err = chosen(run, judge)
    assert (python != ".venv/bin/python", err.count(".venv is not used")) == (True, 1)


def test_a_repository_that_cannot_be_asked(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(folder / ".venv", marker)
    repository(folder, "a.py")
    assert chosen(run, judge)[0] == ".venv/bin/python"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(folder.parent))
        assert chosen(run, judge)[0] != ".venv/bin/python", "there is no git"
    (folder / ".git").rename(folder / "shipped")
    for aim in ("shipped", "../project/shipped", str(folder / "shipped"), "nowhere"):
        (folder / ".git").write_text(f"gitdir: {aim}\n")
        assert chosen(run, judge)[0] != ".venv/bin/python", "it may say what it likes"
    (folder / ".git").unlink()
    (folder / ".git").symlink_to("shipped")
    assert chosen(run, judge)[0] != ".venv/bin/python"


def test_a_repository_around_it_is_no_witness(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge) -> None:
    environment(folder / ".venv", marker)
    repository(folder.parent, "project/a.py")
    assert chosen(run, judge) == (".venv/bin/python", "")
    subprocess.run(["git", "-C", folder.parent, "rm", "--quiet", "--cached", "project/a.py"], check=True)
    python, err = chosen(run, judge)
    assert (python != ".venv/bin/python", "git has no history of the project" in err) == (True, True), "it was unpacked there"


def test_a_worktree(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(folder)
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", "-C", folder, *identity, "commit", "--quiet", "-m", "all"], check=True)
    subprocess.run(["git", "-C", folder, "worktree", "add", "--quiet", "../tree"], check=True, capture_output=True)
    monkeypatch.chdir("../tree")
    assert Path(".git").is_file()
    environment(Path(".venv"), marker)
    assert chosen(run, judge) == (".venv/bin/python", "")
    subprocess.run(["git", "add", "--force", ".venv"], check=True)
    assert chosen(run, judge)[0] != ".venv/bin/python"


def test_asking_the_repository_starts_nothing(folder: Path, marker: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(folder)
    environment(folder / ".venv", marker)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "pager.ls-files", "alias.ls-files", "diff.external"):
        subprocess.run(["git", "-C", folder, "config", key, str(folder / "evilpy")], check=True)
    for hook in ("post-index-change", "fsmonitor-watchman"):
        shutil.copy(folder / "evilpy", folder / ".git" / "hooks" / hook)
    monkeypatch.setenv("GIT_DIR", str(folder.parent / "nowhere"))
    assert chosen(run, judge) == (".venv/bin/python", ""), "variables of a hook speak of another work"
    assert not marker.exists()


# -- the question -----------------------------------------------------------------------------------------------------


def asked(answer: str, *words: str, cwd: Path, **variables: str) -> str:
    """What a terminal shows of a run that is answered."""
    ours, theirs = os.openpty()
    line = [sys.executable, "-m", "oomlint", *words]
    mine = environment(cwd.parent / "mine", cwd.parent / "mine-started")
    own = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "dumb", "VIRTUAL_ENV": str(mine), **variables}
    with subprocess.Popen(line, cwd=cwd, env=own, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown, answered, end = b"", False, time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
            if not answered and b"Enter = no: " in shown:
                os.write(ours, f"{answer}\n".encode())
                answered = True
        process.kill()
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


QUESTION = "Allow it? y = in this run, a = always, as long as it stays as it is, Enter = no: "


@pytest.mark.parametrize(("answer", "allowed"), [("", False), ("n", False), ("yes please", False), ("y", True), ("Y", True), ("a", True)])
def test_the_answer_decides(folder: Path, marker: Path, answer: str, allowed: bool) -> None:  # noqa: FBT001
    by_python(folder, marker)
    shown = asked(answer, "verify", cwd=folder)
    assert shown.startswith(
        f"oomlint: pyproject.toml, which is part of the project, asks to run or to let through:\n  verify.python = './evilpy' ({folder}/evilpy)\n{QUESTION}"
    )
    assert tried(shown) == (f"{folder}/evilpy" if allowed else f"{folder.parent}/mine/bin/python")
    assert allowed or not marker.exists()
    assert (left_out("pyproject.toml", "python") in shown) != allowed
    assert (QUESTION in asked("", "check", "--fix", "--verify", cwd=folder)) == (answer != "a"), "only `a` is remembered"


def test_nobody_is_asked_without_a_terminal_and_in_ci(folder: Path, marker: Path) -> None:
    by_python(folder, marker)
    shown = asked("y", "verify", cwd=folder, CI="true")
    assert QUESTION not in shown
    assert left_out("pyproject.toml", "python") in shown
    assert not marker.exists()


def test_a_question_hides_nothing(folder: Path, marker: Path, tmp_path: Path) -> None:
    (folder / "data").symlink_to("/etc")
    values = 'command = "./evilpy \\u001b[2K\\u001b[1A\\rls\\n\\u007f\\u009b\\u202e\\u200b"\nread = ["data", "b\\u001bc"]\n'
    home = tmp_path / "a\x1b[1Ab\u202ec"
    folder.rename(home)
    (home / "pyproject.toml").write_text(TABLE + values)
    shown = asked("n", "verify", "--config", str(home / "pyproject.toml"), str(home), cwd=tmp_path)
    question = shown[: shown.index(QUESTION)].splitlines()
    assert question == [
        r"oomlint: a\x1b[1Ab\u202ec/pyproject.toml, which is part of the project, asks to run or to let through:",
        r"  verify.command = './evilpy \x1b[2K\x1b[1A\rls\n\x7f\x9b\u202e\u200b'",
        rf"  verify.read = ['data', 'b\x1bc'] (/etc, {tmp_path}/a\x1b[1Ab\u202ec/b\x1bc)",
    ]
    assert not any(sign in shown for sign in "\x1b\x7f\x9b\u202e\u200b")
    assert not marker.exists()


def test_a_nested_project_asks_too(folder: Path, marker: Path) -> None:
    by_nested(folder, marker)
    shown = asked("y", "verify", cwd=folder)
    assert (
        f"oomlint: part/oomlint.toml, which is part of the project, asks to run or to let through:\n  verify.python = './evilpy' ({folder}/part/evilpy)\n"
        in shown
    )
    assert shown.count(QUESTION) == 1
    assert tried(shown) == f"{folder}/part/evilpy"


# -- what is remembered -----------------------------------------------------------------------------------------------


@pytest.fixture
def always(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Allow the settings of the project for good, and tell where that is written."""

    def call(table: str) -> Path:
        (folder / "pyproject.toml").write_text(TABLE + table)
        with monkeypatch.context() as patch:
            patch.setattr("oomlint.cli.trust._somebody_is_there", lambda: True)
            patch.setattr("oomlint.cli.trust._answer", lambda *_: "a")
            main(["verify", "--no-cache"])
        return folder.parent / "config" / "oomlint" / "trust.json"

    return call


def test_what_is_remembered_is_the_users_alone(run: Callable[..., Done], folder: Path, always: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    kept = always('prepare = "./evilpy"\n')
    assert capsys.readouterr().err == ""
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert list(json.loads(kept.read_text())["trusted"]) == [str(folder / "pyproject.toml")]
    assert os.listdir(kept.parent) == ["trust.json"]
    assert run("verify").err == ""
    kept.chmod(0o620)
    assert run("verify").err == f"oomlint: {kept} is not read: others than you may write to it\n" + left_out("pyproject.toml", "prepare")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"trusted": 3}', '{"trusted": {"F": 3}}', '{"trusted": {"F": {"verify.prepare": 3}}}', "[" * 100_000, "\udcff"]
)
def test_a_damaged_list_allows_nothing_and_is_fixed(
    run: Callable[..., Done], folder: Path, always: Callable[..., Path], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    kept = always('prepare = "./evilpy"\n')
    kept.write_text(text.replace("F", str(folder / "pyproject.toml")), errors="surrogateescape")
    assert run("verify").err == left_out("pyproject.toml", "prepare")
    always('prepare = "./evilpy"\n')
    assert capsys.readouterr().err == ""
    assert run("verify").err == ""


def lead(path: Path, aim: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(aim)


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the value": ('prepare = "./evilpy"', lambda root: (root / "pyproject.toml").write_text(TABLE + 'prepare = "./evilpy; ls"\n')),
    "the program": ('prepare = "./evilpy"', lambda root: (root / "evilpy").write_text("#!/bin/sh\nrm -r ~\n")),
    "a program in quotes": ("prepare = \"sh -c './evilpy>log'\"", lambda root: (root / "evilpy").write_text("#!/bin/sh\nrm -r ~\n")),
    "a program in pieces": ('prepare = "./ev\\"\\"il\\\\py"', lambda root: (root / "evilpy").write_text("#!/bin/sh\nrm -r ~\n")),
    "a program in a folder": ('prepare = "cd src/tools && python make.py"', lambda root: (root / "src" / "tools" / "make.py").write_text("import os\n")),
    "a script": ('command = "A=1 python a.py --fast"', lambda root: (root / "a.py").write_text(BAD + "\n")),
    "a module": ('prepare = "python -m tools.make"', lambda root: (root / "tools" / "make.py").write_text("import os\n")),
    "a package": ('prepare = "python -m tools"', lambda root: (root / "tools" / "__main__.py").write_text("import os\n")),
    "the module of a function": ('factory = "tools.make:data"', lambda root: (root / "src" / "tools" / "make.py").write_text("import os\n")),
    "the interpreter": ('python = "./evilpy"', lambda root: (root / "evilpy").write_text("#!/bin/sh\nrm -r ~\n")),
    "the environment": ('python = "tools"', lambda root: (root / "tools" / "bin" / "python").write_text("#!/bin/sh\nrm -r ~\n")),
    "where data lie": ('read = ["data"]', lambda root: lead(root / "data", "/etc")),
    "a link": ('prepare = "./link"', lambda root: lead(root / "link", "evilpy")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_asked_anew(folder: Path, marker: Path, run: Callable[..., Done], always: Callable[..., Path], name: str) -> None:
    table, change = CHANGES[name]
    for path in ("tools/make.py", "src/tools/make.py"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text("pass\n")
    environment(folder / "tools", marker)
    (folder / "data").symlink_to("/usr")
    (folder / "link").symlink_to("tools/bin/python")
    always(f"{table}\n")
    (folder / "b.py").write_text(BAD)
    assert run("verify").err == "", "what is not named may change"
    change(folder)
    assert run("verify").err == left_out("pyproject.toml", table.split()[0])


def test_a_program_of_the_same_repository_that_has_changed(folder: Path, run: Callable[..., Done], always: Callable[..., Path]) -> None:
    (folder.parent / "tool.sh").write_text("true\n")
    repository(folder.parent)
    always('prepare = "sh ../tool.sh"\n')
    assert run("verify").err == ""
    (folder.parent / "tool.sh").write_text("rm -r ~\n")
    assert run("verify").err == left_out("pyproject.toml", "prepare")


def test_a_key_that_is_added_is_asked_for_alone(folder: Path, run: Callable[..., Done], judge: Judge, always: Callable[..., Path]) -> None:
    always('prepare = "./evilpy"\n')
    (folder / "pyproject.toml").write_text(TABLE + 'prepare = "./evilpy"\npython = "./evilpy"\n')
    assert run("verify").err == left_out("pyproject.toml", "python")
    assert (judge.around.options.prepare, judge.around.python) == ("./evilpy", sys.executable)
    shutil.copytree(folder, folder.parent / "copy")
    assert run("verify", "../copy").err == left_out("../copy/pyproject.toml", "python", "prepare"), "another file is not the one that was allowed"


# -- the user's own settings ------------------------------------------------------------------------------------------


@pytest.fixture
def own(folder: Path) -> Path:
    path = folder.parent / "config" / "oomlint" / "oomlint.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_users_own_settings(folder: Path, marker: Path, own: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    program(own.parent / "py", marker)
    (own.parent / "data").mkdir()
    (folder / "data").mkdir()
    monkeypatch.setenv("HOME", str(folder.parent))
    own.write_text('[verify]\npython = "py"\nprepare = "true"\ntime-limit = "8s"\nrepeat = 7\npass-env = ["A", "B_*"]\nread = ["data", "~/config", "gone"]\n')
    (folder / "pyproject.toml").write_text(TABLE + 'time-limit = "5s"\npass-env = ["C", "A"]\nread = ["data"]\n')
    assert run("verify", "--trust", "--pass-env", "D", "--read", "/usr", "--read", "a.py", "--disk-cap", "1MiB").err == ""
    around = judge.around
    assert (around.python, around.options.prepare) == (str(own.parent / "py"), "true")
    assert (around.options.limits.seconds, around.options.repeat) == (5, 7), "the project wins, also with what is the default"
    assert around.pass_env == ("A", "B_*", "C", "D")
    assert around.read == (str(own.parent / "data"), str(own.parent.parent), str(folder / "data"), "/usr", str(folder / "a.py"))
    assert around.options.limits.disk == 2**20
    assert run("verify").err == left_out("pyproject.toml", "pass-env", "read")
    assert (judge.around.pass_env, judge.around.read) == (("A", "B_*"), (str(own.parent / "data"), str(own.parent.parent)))
    assert run("check", "--diff", "--verify").err.startswith(left_out("pyproject.toml", "pass-env", "read"))
    assert judge.around.python == str(own.parent / "py")
    run("verify", "--isolated")
    assert (judge.around.python, judge.around.pass_env, judge.around.options.repeat) == (sys.executable, (), 3)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("select = []", "unknown key 'select': the user's own settings hold the table `verify` and nothing else"),
        ("verify.repeat = 0", "verify.repeat: 0 is less than 1"),
        ("verify", "not valid TOML"),
    ],
)
def test_own_settings_that_cannot_be_used(own: Path, run: Callable[..., Done], text: str, cause: str) -> None:
    own.write_text(text)
    assert run("check").status == 1, "only the verifier reads them"
    assert run("verify").err.startswith(f"oomlint: error: {own}: {cause}")


def test_what_one_project_is_given_is_not_anothers(folder: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, table in (("b", 'pass-env = ["TOKEN"]'), ("c", 'read = ["/usr"]'), ("d", "repeat = 1")):
        (folder / name).mkdir()
        (folder / name / "a.py").write_text(BAD)
        (folder / name / "oomlint.toml").write_text(f"[verify]\n{table}\n")
    run("verify", "--trust")
    made: list[tuple[Sequence[str], Sequence[str]]] = []

    def runner(_: str, **given: Any) -> ExitStack:
        made.append((given["pass_env"], given["view"].readable))
        return ExitStack()

    monkeypatch.setattr(run_module, "SandboxRunner", runner)
    monkeypatch.setattr(ExitStack, "place", "", raising=False)
    monkeypatch.setattr(run_module, "Base", lambda *_: ExitStack())
    monkeypatch.setattr(run_module, "_Project", lambda *_: None)
    with ExitStack() as stack:
        projects = run_module._Projects(judge.arounds[str(folder)], stack)
        for name in (".", "b", "c", "d"):
            case: Any = SimpleNamespace(root=os.path.normpath(folder / name))
            projects.of(case)
    assert [(list(names), "/usr" in readable) for names, readable in made] == [([], False), (["TOKEN"], False), ([], True)]


def test_own_settings_that_others_may_have_written(own: Path, folder: Path, run: Callable[..., Done], judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    own.write_text("[verify]\nrepeat = 7\n")
    own.chmod(0o664)
    assert run("verify").err == f"oomlint: {own} is not read: others than you may write to it\n"
    own.chmod(0o644)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "is not read" in run("verify").err
    shutil.copytree(own.parent.parent, folder / "config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    assert run("verify").err == f"oomlint: {folder}/config/oomlint is not read: it is part of the project\n"
    assert judge.around.options.repeat == 3
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(folder.parent / "home"))
    assert run("verify").err == "", "a relative folder is none, says the standard"
    shutil.copytree(own.parent, folder.parent / "home" / ".config" / "oomlint")
    run("verify")
    assert judge.around.options.repeat == 7


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--pass-env", "A B"), "--pass-env: 'A B' is not the name of an environment variable"),
        (("--pass-env", "*"), "--pass-env: '*' is not the name of an environment variable"),
        (("--read", "gone"), "--read: gone: No such file or directory"),
        (("--disk-cap", "all"), "--disk-cap: 'all' is not a size such as '2GiB', '512MiB' or '1.5GB'"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_options(run: Callable[..., Done], words: tuple[str, ...], cause: str) -> None:
    assert run("verify", *words) == (2, "", f"oomlint: error: {cause}\n")


def test_a_verdict_is_kept_for_what_the_code_is_given(folder: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []

    def verdicts(cases: Iterable[Case], around: Surroundings, store: VerdictStore, begin: Callable[[Case], None]) -> Iterator[tuple[Case, Verdict]]:
        for case, verdict in judge(cases, around, store, begin):
            keys.append(store._key(case))
            yield case, verdict

    monkeypatch.setattr(verification, "verdicts", verdicts)
    for path in folder.iterdir():
        os.utime(path, (time.time() - 60,) * 2)
    (folder.parent / "data").mkdir()
    monkeypatch.setenv("TOKEN_A", "1")
    for words in ((), (), ("--pass-env", "TOKEN_*"), ("--read", "../data"), ("--disk-cap", "1MiB")):
        main(["verify", *words])
    monkeypatch.setenv("TOKEN_A", "2")
    main(["verify", "--pass-env", "TOKEN_*"])
    (folder.parent / "data" / "rows.csv").touch()
    main(["verify", "--read", "../data"])
    assert keys[0] == keys[1]
    assert len(set(keys)) == 6


def test_what_is_allowed_is_written_as_all_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "config" / "oomlint"
    folder.mkdir(parents=True)
    left = folder / ".oomlint-4194311-0123abcd.tmp"  # of a killed run
    left.write_text("half")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    own = Own(str(tmp_path / "project"))
    own.trust("/a/pyproject.toml", {"verify.python": "digest"})
    assert own.trusted("/a/pyproject.toml") == {"verify.python": "digest"}
    assert os.listdir(folder) == ["trust.json"]
    assert stat.S_IMODE((folder / "trust.json").stat().st_mode) == 0o600
