"""Files that are written whole or not at all, and what kills leave behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomlint import cache, engine, writing
from oomlint.config import Settings
from oomlint.engine import RunOptions
from oomlint.verify.store import VerdictStore
from oomlint.writing import LEFTOVER, sweep, write_whole

ROOT = Path(__file__).parent.parent
GONE = 2**22 + 7  # above the largest process number that Linux gives
FIXABLE = "from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n"


def check(folder: Path, **options: bool) -> engine.CheckReport:
    return engine.run([str(folder)], Settings(), folder, RunOptions(processes=1, **options))  # type: ignore[arg-type]


def killed(folder: Path, name: str, seconds: float = 0) -> Path:
    """What a killed run has left so many seconds ago."""
    path = folder / name
    path.write_text("half")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


@pytest.mark.parametrize("unnamed", [writing._UNNAMED, 0], ids=["without a name", "under another name"])
def test_a_file_is_put_in_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: int) -> None:
    monkeypatch.setattr(writing, "_UNNAMED", unnamed)
    path = tmp_path / "a"
    path.write_text("old")
    write_whole(str(path), b"new", mode=0o640, durable=True)
    assert (path.read_text(), path.stat().st_mode & 0o777, os.listdir(tmp_path)) == ("new", 0o640, ["a"])


@pytest.mark.skipif(not writing._UNNAMED, reason="this system has no files without a name")
@pytest.mark.parametrize("refused", ["open", "link"])
def test_where_there_are_no_files_without_a_name_there_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    known = getattr(os, refused)

    def refuse(*args: object, **rest: object) -> object:
        if refused == "link" or (isinstance(args[1], int) and args[1] & os.O_TMPFILE == os.O_TMPFILE):
            raise OSError(95, "Operation not supported")
        return known(*args, **rest)

    monkeypatch.setattr(os, refused, refuse)
    write_whole(str(tmp_path / "a"), b"new")
    monkeypatch.undo()
    assert ((tmp_path / "a").read_text(), os.listdir(tmp_path)) == ("new", ["a"])


@pytest.mark.skipif(not writing._UNNAMED, reason="this system has no files without a name")
def test_a_file_has_no_name_while_it_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(os.listdir(tmp_path)))
    write_whole(str(tmp_path / "a"), b"new", durable=True)
    assert seen == [[], ["a"]]


def test_leftovers_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    gone = {f".oomlint-{GONE}-0123abcd.tmp": 0, f".oomlint-{os.getpid()}-0123abcd.tmp": 90, ".oomlint-a1_b2c3d.tmp": 90}
    kept = {f".oomlint-{os.getpid()}-89abcdef.tmp": 0, ".oomlint-aaaaaaaa.tmp": 0, "oomlint-1-0123abcd.tmp": 90, ".oomlint-0123abcd.tmp.py": 90, "a.tmp": 90}
    for name, seconds in (gone | kept).items():
        killed(tmp_path, name, seconds)
    (tmp_path / ".oomlint-bbbbbbbb.tmp").symlink_to("a.tmp")
    (tmp_path / f".oomlint-{GONE}-cccccccc.tmp").mkdir()
    sweep(str(tmp_path))
    assert set(os.listdir(tmp_path)) == {*kept, ".oomlint-bbbbbbbb.tmp", f".oomlint-{GONE}-cccccccc.tmp"}


def test_what_is_written_has_a_name_that_is_known_as_a_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(os, "replace", lambda old, _: names.append(os.path.basename(old)))
    write_whole(str(tmp_path / "a"), b"")
    assert [match["process"] for name in names if (match := LEFTOVER.fullmatch(name))] == [str(os.getpid())]


def test_a_run_that_fixes_clears_the_folders_that_it_checks(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.py").write_text("import os\n")
    (tmp_path / "other").mkdir()
    left = killed(tmp_path / "deep", f".oomlint-{GONE}-0123abcd.tmp")
    other = killed(tmp_path / "other", f".oomlint-{GONE}-0123abcd.tmp")
    assert check(tmp_path).findings == ()
    assert left.exists(), "nothing is to be written"
    check(tmp_path, fix=True, write=False)
    assert left.exists(), "nothing is to be written"
    check(tmp_path, fix=True)
    assert (left.exists(), other.exists()) == (False, True)


def test_a_run_clears_its_cache(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FIXABLE)
    check(tmp_path)
    folder = tmp_path / ".oomlint_cache"
    names = {"findings-abcd1234.tmp", "verdicts-abcd1234.tmp", "fixes-abcd1234.tmp", f".oomlint-{GONE}-0123abcd.tmp"}
    for name in names:
        killed(folder, name, 90)
    check(tmp_path)
    assert not names & set(os.listdir(folder))


# -- the folder of the cache ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prepare", "cause"),
    [
        pytest.param(lambda root, away: (root / ".oomlint_cache").symlink_to(away), "it is a symbolic link", id="a link"),
        pytest.param(lambda root, away: (root / "tmp").symlink_to(away), "tmp is a symbolic link", id="a link on the way"),
        pytest.param(lambda root, _: (root / ".oomlint_cache").write_text(""), "it is not a folder", id="a file"),
    ],
)
def test_no_cache_is_kept_where_a_link_leads(tmp_path: Path, prepare: object, cause: str) -> None:
    root, away = tmp_path / "project", tmp_path / "away"
    root.mkdir()
    away.mkdir()
    (root / "a.py").write_text(FIXABLE)
    prepare(root, away)  # type: ignore[operator]
    settings = Settings(cache_dir="tmp/cache" if cause.startswith("tmp") else ".oomlint_cache")
    report = engine.run([str(root)], settings, root)
    assert [notice.message for notice in report.notices] == [f"no cache is kept: {cause}"]
    assert len(report.findings) == 1
    assert os.listdir(away) == []


def test_a_cache_outside_of_the_project_or_of_another_user_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    assert cache.refusal(str(tmp_path / "cache"), str(tmp_path)) is None
    assert cache.refusal(str(tmp_path / "cache" / "new"), str(tmp_path)) is None
    assert cache.refusal(str(tmp_path / "elsewhere"), str(tmp_path / "cache")) == "it is not below the project's root"
    if hasattr(os, "geteuid"):
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert cache.refusal(str(tmp_path / "cache"), str(tmp_path)) == "it belongs to another user"


def test_links_in_the_cache_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text(FIXABLE)
    check(root)
    folder, away = root / ".oomlint_cache", tmp_path / "away.json"
    os.rename(folder / "verdicts.json", away)
    before = away.read_bytes()
    (folder / "verdicts.json").symlink_to(away)
    assert cache.Cache(str(folder)).verdicts == {}
    (root / "b.py").write_text(FIXABLE + "\n")
    check(root)
    assert away.read_bytes() == before
    assert not (folder / "verdicts.json").is_symlink()


def test_the_line_about_the_cache_comes_once_and_also_where_little_is_said(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".oomlint_cache").symlink_to(tmp_path)
    (tmp_path / "project" / "a.py").write_text("import torch\n")
    for command in ("check", "verify"):
        words = [sys.executable, "-m", "oomlint", command, "-q", "--isolated", "."]
        done = subprocess.run(words, cwd=tmp_path / "project", env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=-1, check=False)
        assert done.stderr.decode() == "oomlint: .oomlint_cache: no cache is kept: it is a symbolic link\n"
    assert os.listdir(tmp_path) == ["project"]


def test_the_store_of_verdicts_follows_no_link(tmp_path: Path) -> None:
    from oomlint.cli.verification import VerifyRequest, surroundings  # noqa: PLC0415

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".oomlint_cache").symlink_to(tmp_path)
    around = surroundings(Settings(), str(tmp_path / "project"), VerifyRequest())
    assert VerdictStore(str(tmp_path / "project" / ".oomlint_cache"), around)._path is None


# -- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has not these signals")
def test_a_run_that_is_killed_leaves_whole_files_and_the_next_one_clears_up() -> None:
    script = ROOT / "benchmarks" / "kill_fixes.py"
    if not script.exists():
        pytest.skip("the benchmarks are not part of this distribution")
    done = subprocess.run([sys.executable, str(script), "--kills", "8"], capture_output=True, text=True, check=False)
    assert re.search(r"^8 kills.*: torn 0, ", done.stdout), done.stdout + done.stderr
    assert done.returncode == 0, done.stdout


POOL = """
import os
import time
from oomlint import checking, engine
from oomlint.cli.ending import ending_in_order
from oomlint.config import Settings
def look(self, path):
    os.write(1, b"ready\\n")  # in one piece: two processes say it
    time.sleep(600)
checking.Checker.look = look
with ending_in_order():
    engine.run(["."], Settings(), ".", engine.RunOptions(cache=False, processes=2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked, and know nothing of the change made here")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_processes_of_a_run_end_with_it(tmp_path: Path, sign: signal.Signals) -> None:
    for number in range(2):
        (tmp_path / f"{number}.py").write_text(FIXABLE)
    with subprocess.Popen([sys.executable, "-c", POOL], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        child.send_signal(sign)
        child.communicate(timeout=100)  # standard output ends with the last process that has it, long before its work does


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has not these signals")
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_asked_to_end_does_so_in_order(tmp_path: Path, sign: signal.Signals, status: int) -> None:
    """The file is still to be named when the signal comes, and its folder is on a system that has no files without a name."""
    (tmp_path / "a.py").write_text(FIXABLE)
    program = (
        "import os, sys, time\nfrom oomlint import writing\nfrom oomlint.__main__ import main\nwriting._UNNAMED = 0\n"
        "os.replace = lambda *_: (print('ready', flush=True), time.sleep(60))\nsys.exit(main(['check', '--fix', '--no-cache', '.']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert any(LEFTOVER.fullmatch(name) for name in os.listdir(tmp_path))
        child.send_signal(sign)
        assert child.wait(30) == status
    assert os.listdir(tmp_path) == ["a.py"]
    assert (tmp_path / "a.py").read_text() == FIXABLE
