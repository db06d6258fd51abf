"""What jobs see: the project without its secrets, the data that its code and the user name, and the variables that the user lets through."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from oomlint.verify import leftovers
from oomlint.verify.folders import remove
from oomlint.verify.jobs import Job, Limits
from oomlint.verify.project_copy import Base
from oomlint.verify.sandbox.secrets import is_secret
from oomlint.verify.sandbox.view import SandboxView, of_interpreter, of_project
from oomlint.verify.sandbox_runner import SandboxRunner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="jobs need torch, and these tests Linux")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that no job sees of itself."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(dir=Path.cwd().parent if os.access(Path.cwd().parent, os.W_OK) else None, prefix="seen-")))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def project(place: Path) -> Path:
    files = {
        "elsewhere/named/data.bin": "data",
        "elsewhere/named/.env": "secret",
        "elsewhere/other/data.bin": "data",
        "elsewhere/given.bin": "data",
        "project/train.py": f"DATA = {str(place / 'elsewhere/named')!r}\n",
        "project/.env": "secret",
        "project/.env.local": "secret",
        "project/keys/server.pem": "secret",
        "project/config/credentials.json": "secret",
        "project/secrets.py": "value = 1\n",
        "project/data/vocabulary/tokens.txt": "data",
        "project/data/large.bin": "data" * 2**19,
        "project/conf/pyvenv.cfg": "",
        "project/conf/secrets.yaml": "secret",
        "me/.ssh/id_rsa": "secret",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place / "project"


def readable(runner: SandboxRunner, folder: str, paths: Sequence[str]) -> list[str]:
    """Which of some files a job can read."""
    with open(os.path.join(folder, "look.py"), "w", encoding="utf-8") as file:
        file.write(
            dedent(f"""
            for path in {list(map(str, paths))!r}:
                try:
                    open(path, "rb").read(1) and print(path)
                except OSError:
                    pass
            """)
        )
    done = runner.run(Job("loading.run_script:run", {"path": os.path.join(folder, "look.py")}, folder, Limits(seconds=60)))
    assert done.failure == ""
    return done.printed.splitlines()


@pytest.mark.parametrize("off", ["", "namespaces"], ids=["namespaces", "Landlock alone"])
def test_data_that_is_named_is_seen_and_nothing_else(project: Path, off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_NO_SANDBOX", off)
    elsewhere = project.parent / "elsewhere"
    view = of_project(str(project), [str(elsewhere / "given.bin")])
    with SandboxRunner(view=view) as runner, Base(str(project), within=runner.place) as base:
        seen = ["data/large.bin", "data/vocabulary/tokens.txt", "secrets.py", str(elsewhere / "named/data.bin"), str(elsewhere / "given.bin")]
        (project / "way").symlink_to("../me/.ssh")
        unseen = [".env", ".env.local", "keys/server.pem", "config/credentials.json", "conf/secrets.yaml", "way/id_rsa", "/dev/tty", "/dev/pts/0"]
        hidden = [*unseen, *(str(project / name) for name in unseen if name[0] != "/"), str(elsewhere / "named/.env"), str(elsewhere / "other/data.bin")]
        assert readable(runner, base.folder, [*hidden, *seen]) == seen
        assert os.path.islink(os.path.join(base.folder, "data/large.bin"))


def test_a_command_of_the_users_names_data_too(project: Path) -> None:
    other = project.parent / "elsewhere" / "other"
    assert str(other) in of_project(str(project), words=f"python train.py --data {other}").readable
    assert str(other) not in of_project(str(project)).readable


def test_code_names_no_home_and_nothing_hidden(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = project.parent / "me"
    for folder in (".ssh", "data", "x/.cache"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    named = [home, home.parent, home / ".ssh", home / "x" / ".cache", home / "data", "/etc/ssl", "/proc/1", "/", "/tmp", "/home"]
    (project / "paths.py").write_text("\n".join(f"open({str(path)!r})" for path in named))
    assert set(of_project(str(project)).readable) & set(map(str, named)) == {str(home / "data")}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (".env", True), (".env.production", True), ("prod.env", True), ("id_ed25519", True), ("server.key", True), (".netrc", True), (".aws", True),
        ("client_secret_1.json", True), ("aws_credentials.csv", True), ("secrets.yaml", True), ("service-account.json", True), ("hf_token.txt", True),
        (".env~", True), ("key.pem.bak", True), ("deploy_rsa", True), ("token.txt", True), ("passwords.txt", True), (".python_history", True),
        ("environment.yml", False), ("tokens.txt", False), ("tokenizer.json", False), ("keys.json", False), ("key.py", False), ("secrets.py", False),
        ("env.py", False), ("data.env.csv", False), ("credentials.md", False),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(name: str, secret: bool) -> None:  # noqa: FBT001
    assert is_secret(f"/project/{name}") is secret


def test_an_environment_may_be_called_like_a_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert is_secret(str(tmp_path / ".env"))
    (tmp_path / ".env" / "pyvenv.cfg").touch()
    assert not is_secret(str(tmp_path / ".env"))


def test_odd_files_of_a_project_stop_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "terminal.yaml").symlink_to("/dev/tty")
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("deep")
            os.chdir("deep")
    finally:
        os.chdir(here)
    view = of_project(str(tmp_path))
    assert str(tmp_path / "pipe.yaml") in view.hidden
    remove(str(tmp_path / "deep"))
    assert not (tmp_path / "deep").exists()


def test_an_interpreter_brings_what_it_is_made_of(tmp_path: Path) -> None:
    environment, base, mine, theirs = (tmp_path / name for name in ("env", "base", "mine", "theirs"))
    packages = environment / "lib" / "python3.11" / "site-packages"
    for folder in (packages, environment / "bin", base / "bin", mine, theirs):
        folder.mkdir(parents=True)
    (base / "bin" / "python3").touch(0o755)
    (environment / "bin" / "python").symlink_to(base / "bin" / "python3")
    (environment / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    (packages / "mine.pth").write_text(f"{mine}\nimport nothing\n")
    (packages / "__editable___theirs_finder.py").write_text(f"MAPPING: dict[str, str] = {{'theirs': {str(theirs / 'theirs')!r}}}\n")
    assert {str(each) for each in (environment, base, mine, theirs)} <= set(of_interpreter(str(environment / "bin" / "python")))


def test_variables_stay_out_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_TOKEN", "MY_CHOICE", "OTHER_ONE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "here")
    program = tmp_path / "program.py"
    program.write_text("import os\nprint(sorted(name for name, value in os.environ.items() if value == 'here'))\n")
    for named, seen in (((), ["CUDA_VISIBLE_DEVICES"]), (("MY_C*", "OTHER_ONE"), ["CUDA_VISIBLE_DEVICES", "MY_CHOICE", "OTHER_ONE"])):
        with SandboxRunner(unsandboxed=True, view=SandboxView(writable=(str(tmp_path),)), pass_env=named) as runner:
            assert runner.run(Job("loading.run_script:run", {"path": str(program)}, str(tmp_path))).printed == f"{seen}\n"


def test_a_killed_run_is_cleaned_up_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "import os, signal\nfrom oomlint.verify import leftovers\nprint(leftovers.own_folder()[0], flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    killed = done.stdout.strip()
    living, handle = leftovers.own_folder()
    (tmp_path / "oomlint-somebody").mkdir()  # without the mark of a run
    old = time.time() - 3600
    for path in (killed, living, str(tmp_path / "oomlint-somebody")):
        os.utime(path, (old, old))
    (tmp_path / "oomlint-verify-kept").mkdir()
    leftovers.remove()
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(living), "oomlint-somebody", "oomlint-verify-kept"])
    os.close(handle)
