"""Jobs come to an end whatever they do, write nowhere but to their own folders, reach nothing, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.verify import process_tree
from oomlint.verify.jobs import MEBIBYTE, Done, Job, JobEnd, Limits, SandboxError
from oomlint.verify.sandbox.view import SandboxView
from oomlint.verify.sandbox_runner import SandboxRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="jobs need torch, and these tests Linux")

ROOT = Path(__file__).parent.parent
BOOTSTRAP = ROOT / "oomlint" / "verify" / "child" / "bootstrap"
PATIENCE = 60.0  # seconds: other tests may run beside


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxRunner]:
    with SandboxRunner(unsandboxed=True, view=SandboxView(writable=(str(tmp_path_factory.getbasetemp()),))) as made:
        yield made
    assert not os.path.exists(made.place)
    assert not process_tree.marked(made.place)


@pytest.fixture(autouse=True)
def nothing_is_left(runner: SandboxRunner) -> Iterator[None]:
    yield
    assert len(process_tree.marked(runner.place)) == 1, "only the server is to be left"


def do(
    runner: SandboxRunner, folder: Path, program: str, *, fresh: bool = False, timeline: bool = False, arguments: tuple[str, ...] = (), **limits: Any
) -> Done:
    """Run a file of a user."""
    path = folder / "program.py"
    path.write_text(dedent(program), encoding="utf-8")
    job = Job(
        "loading.run_script:run",
        {"path": str(path), "arguments": arguments},
        str(folder),
        Limits(**{"seconds": PATIENCE, **limits}),
        fresh=fresh,
        timeline=timeline,
    )
    return runner.run(job)


def need_sandbox(runner: SandboxRunner) -> None:
    if not runner.sandbox.held:
        pytest.skip("no sandbox here")


# -- what comes back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])
def test_a_job_answers_and_its_output_is_kept(runner: SandboxRunner, tmp_path: Path, fresh: bool) -> None:  # noqa: FBT001
    program = """
        import os, random, sys, tempfile
        import numpy, torch
        print(sys.argv[1:], random.random(), numpy.random.rand(), torch.rand(1).item(), torch.get_num_threads(), "oomlint" in sys.path[0])
        print(tempfile.gettempdir() == os.environ["TMPDIR"], os.listdir(os.environ["TMPDIR"]), os.path.expanduser("~") == os.environ["HOME"])
        sys.stderr.write("careful")
        """
    done = do(runner, tmp_path, program, fresh=fresh, arguments=("--lr", "1"))
    assert done.failure == ""
    assert (done.ended, done.status, done.answer, done.left) == (JobEnd.EXIT, 0, {"status": 0}, 0)
    assert done.errors == "careful"
    drawn, folders = done.printed.splitlines()
    assert drawn == "['--lr', '1'] 0.8444218515250481 0.5488135039273248 0.49625658988952637 1 False"
    assert folders == "True [] True"


@pytest.mark.parametrize(
    ("program", "ended", "status", "failure"),
    [
        ("x = [1]\n\nx[3]\n", JobEnd.EXIT, 0, "IndexError: list index out of range (program.py:3)"),
        ("import torch\ntorch.zeros(2) @ torch.zeros(3)\n", JobEnd.EXIT, 0, "RuntimeError: inconsistent tensor size"),
        ("raise KeyboardInterrupt\n", JobEnd.EXIT, 0, "KeyboardInterrupt (program.py:1)"),
        ("input()\n", JobEnd.EXIT, 0, "EOFError: EOF when reading a line (program.py:1)"),
        ("import os\nos._exit(3)\n", JobEnd.EXIT, 3, "the process ended itself with status 3"),
        ("import ctypes\nctypes.string_at(0)\n", JobEnd.SIGNAL, -signal.SIGSEGV, "killed by SIGSEGV"),
        ("import os\nos.kill(os.getpid(), 9)\n", JobEnd.SIGNAL, -signal.SIGKILL, "killed by SIGKILL"),
        ("def f(): f()\nf()\n", JobEnd.EXIT, 0, "RecursionError: maximum recursion depth exceeded"),
        ("def f(:\n", JobEnd.EXIT, 0, "SyntaxError: invalid syntax"),
    ],
)
def test_a_job_that_fails_says_why_in_one_line(runner: SandboxRunner, tmp_path: Path, program: str, ended: JobEnd, status: int, failure: str) -> None:
    done = do(runner, tmp_path, program)
    assert (done.answer, done.ended, done.status) == (None, ended, status)
    assert done.failure.startswith(failure)
    assert "\n" not in done.failure


def test_an_exit_status_is_an_answer(runner: SandboxRunner, tmp_path: Path) -> None:
    assert do(runner, tmp_path, "raise SystemExit(4)").answer == {"status": 4}
    done = do(runner, tmp_path, "import sys; sys.exit('no data')")
    assert (done.answer, done.errors) == ({"status": 1}, "no data\n")


def test_a_call_that_is_not_there_is_a_failure(runner: SandboxRunner, tmp_path: Path) -> None:
    assert runner.run(Job("loading.run_script:walk", {}, str(tmp_path))).failure.startswith("AttributeError: ")
    assert runner.run(Job("nowhere:run", {}, str(tmp_path))).failure.startswith("ModuleNotFoundError: ")
    assert runner.run(Job("loading.run_script:run", {"path": "x.py"}, str(tmp_path / "gone"))).failure.startswith(
        "the job could not be started: FileNotFoundError: "
    )


def test_of_a_flood_of_output_the_end_is_kept(runner: SandboxRunner, tmp_path: Path) -> None:
    done = do(runner, tmp_path, "for n in range(400000): print('a line of no use to anybody ' * 3, n)")
    assert done.printed.endswith("anybody  399999\n")
    assert len(done.printed) == 64 * 1024


def test_the_memory_is_read_all_the_while_on_demand(runner: SandboxRunner, tmp_path: Path) -> None:
    done = do(runner, tmp_path, "import time\nheld = bytearray(64 * 2**20)\ntime.sleep(0.5)", timeline=True)
    assert done.peak == max(memory for _, memory in done.timeline) > 64 * MEBIBYTE
    assert list(done.timeline) == sorted(done.timeline)


# -- limits ---------------------------------------------------------------------------------------------------------------


def test_an_infinite_loop_is_ended(runner: SandboxRunner, tmp_path: Path) -> None:
    done = do(runner, tmp_path, "while True: pass", seconds=0.4)
    assert (done.ended, done.answer, done.failure) == (JobEnd.TIME, None, "not at its end after 0.4 s")
    assert done.seconds < 5


def test_a_job_that_ignores_signals_is_ended(runner: SandboxRunner, tmp_path: Path) -> None:
    program = (
        "import signal\nfor n in (1, 2, 3, 14, 15): signal.signal(n, signal.SIG_IGN)\nwhile True:\n    try: signal.pause()\n    except BaseException: pass"
    )
    assert do(runner, tmp_path, program, seconds=0.3).ended is JobEnd.TIME


def test_a_fork_bomb_is_ended(runner: SandboxRunner, tmp_path: Path) -> None:
    program = """
        import os, time
        from multiprocessing import Value
        made = Value("i", 0)
        while True:
            with made.get_lock():
                made.value += 1
                if made.value > 200:
                    break
            os.fork()
        time.sleep(60)
        """
    done = do(runner, tmp_path, program, processes=40)
    assert (done.ended, done.failure) == (JobEnd.PROCESSES, "more than 40 processes")


@pytest.mark.parametrize("start", ["held = grow()", "import os; pid = os.fork() or grow(); os.waitpid(pid, 0)"], ids=["job", "worker"])
def test_memory_over_the_cap_ends_the_job(runner: SandboxRunner, tmp_path: Path, start: str) -> None:
    program = f"""
        import time
        def grow():
            held = []
            for n in range(300):
                held.append(bytes([n % 255 + 1]) * 4 * 2**20)
                time.sleep(0.005)
        {start}
        """
    done = do(runner, tmp_path, program, memory=400 * MEBIBYTE)
    assert (done.ended, done.failure) == (JobEnd.MEMORY, "more than 400 MiB of memory")
    assert 400 * MEBIBYTE < done.peak < 700 * MEBIBYTE


def test_descriptors_are_limited(runner: SandboxRunner, tmp_path: Path) -> None:
    done = do(runner, tmp_path, "held = [open('/dev/null') for n in range(300)]", descriptors=128)
    assert done.failure == "OSError: [Errno 24] Too many open files: '/dev/null' (program.py:1)"


def test_daemons_are_found_and_ended(runner: SandboxRunner, tmp_path: Path) -> None:
    program = """
        import os, time
        for n in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
            os.wait()
        print("away")
        """
    done = do(runner, tmp_path, program)
    assert (done.ended, done.answer, done.printed, done.left) == (JobEnd.EXIT, {"status": 0}, "away\n", 3)


# -- the sandbox ----------------------------------------------------------------------------------------------------------


def test_writes_go_to_the_jobs_own_folders_only(runner: SandboxRunner, tmp_path: Path) -> None:
    need_sandbox(runner)
    copy, original = tmp_path / "copy", tmp_path / "original"
    for folder in (copy, original):
        folder.mkdir()
    data = original / "data.bin"
    data.write_bytes(b"precious")
    (copy / "data.bin").symlink_to(data)
    (copy / "folder").symlink_to(original)
    home = os.path.expanduser("~")
    program = f"""
        import os, shutil, tempfile
        def attempt(name, act):
            try:
                act()
            except OSError as error:
                print(name, "refused" if error.errno in (1, 2, 13, 30) else error)
            else:
                print(name, "done")
        print(open("data.bin").read())
        attempt("write", lambda: open("data.bin", "r+").write("x"))
        attempt("truncate", lambda: os.truncate("data.bin", 0))
        attempt("remove", lambda: os.remove({str(data)!r}))
        attempt("move", lambda: os.rename({str(data)!r}, "mine"))
        attempt("link", lambda: os.link({str(data)!r}, "mine"))
        attempt("make", lambda: open("folder/new", "w"))
        attempt("folder", lambda: os.mkdir({str(original / "new")!r}))
        attempt("home", lambda: open({os.path.join(home, ".oomlint-test")!r}, "w"))
        attempt("device", lambda: os.mknod({str(original / "device")!r}))
        attempt("own", lambda: open("new", "w").write("x"))
        attempt("own home", lambda: open(os.path.expanduser("~/.settings"), "w").write("x"))
        attempt("temporary", lambda: tempfile.NamedTemporaryFile().write(b"x"))
        attempt("shared", lambda: open("/dev/shm/oomlint-test", "w").write("x"))
        attempt("nothing", lambda: open("/dev/null", "w").write("x"))
        """
    done = do(runner, copy, program)
    assert done.failure == ""
    first, *lines = done.printed.splitlines()
    assert first == "precious"
    told = dict(line.rsplit(maxsplit=1) for line in lines)
    allowed = {"own", "own home", "temporary", "shared", "nothing"}
    assert {name for name, result in told.items() if result == "done"} == allowed
    assert len(told) == 14
    assert data.read_bytes() == b"precious"
    assert os.listdir(original) == ["data.bin"]
    assert not os.path.exists(os.path.join(home, ".oomlint-test"))


def connected(runner: SandboxRunner, folder: Path) -> tuple[Done, list[str]]:
    """A job that talks to a listener of ours; and who has come."""
    came: list[str] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        over = threading.Event()

        def wait() -> None:
            while not over.is_set():
                try:
                    came.append(listener.accept()[1][0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            done = do(runner, folder, f"import socket\nsocket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), timeout=5)")
        finally:
            over.set()
            thread.join()
    return done, came


def test_no_network_is_reached(runner: SandboxRunner, tmp_path: Path) -> None:
    if not runner.sandbox.network:
        pytest.skip("no namespaces here")
    done, came = connected(runner, tmp_path)
    assert done.failure.startswith("ConnectionRefusedError: ")
    assert came == []


def test_no_other_process_can_be_ended(runner: SandboxRunner, tmp_path: Path) -> None:
    program = f"import os\nos.kill({os.getpid()}, 0)\nos.kill(os.getppid(), 0)"
    done = do(runner, tmp_path, program)
    if done.failure == "":
        pytest.skip("signals are not confined by this kernel")
    assert done.failure.startswith(("PermissionError", "ProcessLookupError"))
    assert done.failure.endswith("(program.py:2)")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loaders_with_workers_run(runner: SandboxRunner, tmp_path: Path, method: str) -> None:
    program = f"""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Numbers(Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): return torch.full((2**16,), float(index))
        if __name__ == "__main__":
            loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context={method!r})
            print([batch.mean().item() for batch in loader])
        """
    done = do(runner, tmp_path, program)
    assert (done.failure, done.printed, done.left) == ("", "[0.5, 2.5, 4.5, 6.5]\n", 0)


# -- the way the code is found ----------------------------------------------------------------------------------------------


def test_a_project_that_is_on_the_path_is_taken_from_the_copy(runner: SandboxRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, copy = tmp_path / "project", tmp_path / "place" / "project"
    for folder, value in ((original, "original"), (copy, "copy")):
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "package_of_mine.py").write_text(f"value = {value!r}\n")
    (copy.parent / "origin").write_text(str(original))
    monkeypatch.setenv("PYTHONPATH", str(original / "src"))
    done = do(runner, copy, "import sys\nsys.path += __import__('os').environ['PYTHONPATH'].split(':')\nimport package_of_mine\nprint(package_of_mine.value)")
    assert (done.failure, done.printed) == ("", "copy\n")


def test_workers_find_the_harness_and_the_users_own_start_file(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.was_here = True\n")
    program = "import sys, sitecustomize, oomlint.verify.child.server.landlock as x; print(sys.was_here, x.__file__, sitecustomize.__file__, sys.path[1:3])"
    environment = {"PYTHONPATH": f"{BOOTSTRAP}:{tmp_path}", "OOMLINT_PACKAGE": str(ROOT / "oomlint")}
    done = subprocess.run([sys.executable, "-S", "-c", f"import site; site.main(); {program}"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[:3] == ["True", str(ROOT / "oomlint/verify/child/server/landlock.py"), str(tmp_path / "sitecustomize.py")], done.stderr
    assert str(ROOT) not in done.stdout.split("[")[1].split("'")


def test_a_server_that_dies_is_replaced(runner: SandboxRunner, tmp_path: Path) -> None:
    assert runner._server is not None
    killer = threading.Timer(0.5, runner._server._process.kill)
    killer.start()
    done = do(runner, tmp_path, "import os, time\nos.fork()\nos.setsid() if os.fork() == 0 else None\ntime.sleep(60)")
    killer.join()
    assert (done.ended, done.answer, done.failure) == (JobEnd.SIGNAL, None, "the server of jobs has died with it")
    assert do(runner, tmp_path, "print(2)").printed == "2\n"


# -- with less of a sandbox ----------------------------------------------------------------------------------------------


def test_without_a_sandbox_nothing_is_run_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_NO_SANDBOX", "1")
    with pytest.raises(SandboxError) as caught:
        SandboxRunner()
    assert str(caught.value) == "the sandbox is not available here (neither namespaces nor Landlock): nothing is run without --unsandboxed"
    with SandboxRunner(unsandboxed=True) as open_one:
        assert str(open_one.sandbox) == ""
        assert do(open_one, tmp_path, "print(1)").printed == "1\n"


def test_without_namespaces_the_network_is_refused_all_the_same(runner: SandboxRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_sandbox(runner)
    monkeypatch.setenv("OOMLINT_NO_SANDBOX", "namespaces")
    with SandboxRunner(view=SandboxView(writable=(str(tmp_path),))) as other:
        assert not other.sandbox.network
        done, came = connected(other, tmp_path)
    assert done.failure == "PermissionError: [Errno 13] Permission denied (program.py:2)"
    assert came == []


# -- what a job does to the files that we read --------------------------------------------------------------------------


def test_links_in_place_of_a_jobs_own_files_lead_nowhere(runner: SandboxRunner, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"secret" * 2**23)  # more than a flood of output
    program = f"""
        import os, time
        for name in ("out", "err", "answer"):
            path = os.path.join(os.path.dirname(os.environ["HOME"]), name)
            if os.path.exists(path):
                os.remove(path)
            os.symlink({str(precious)!r}, path)
        time.sleep(1)
        os._exit(0)
        """
    done = do(runner, tmp_path, program)
    assert "secret" not in done.printed + done.errors
    assert (done.answer, precious.stat().st_size) == (None, 6 * 2**23)


@pytest.mark.parametrize("text", ['{"answer": {}, "failure": 5}', '{"answer": {"status": 0}, "failure": "both"}', "[" * 10**5, "5"])
def test_an_answer_of_the_jobs_own_making_is_none(runner: SandboxRunner, tmp_path: Path, text: str) -> None:
    program = f"""
        import os
        open(os.path.join(os.path.dirname(os.environ["HOME"]), "answer"), "w").write({text!r})
        os._exit(0)
        """
    assert do(runner, tmp_path, program).answer is None


def test_deep_folders_and_closed_ones_are_removed(runner: SandboxRunner, tmp_path: Path) -> None:
    program = """
        import os
        os.chdir(os.environ["TMPDIR"])
        for _ in range(3000):
            os.mkdir("deep"); os.chdir("deep")
        os.mkdir(os.path.join(os.environ["TMPDIR"], "closed")); os.chmod(os.path.join(os.environ["TMPDIR"], "closed"), 0)
        """
    assert do(runner, tmp_path, program).failure == ""
    assert not [name for name in os.listdir(runner.place) if name.isdecimal()]


def test_a_hostile_interpreter_gets_nothing_written_elsewhere(tmp_path: Path) -> None:
    """It may write to all that jobs may write to, and we write and read on outside of the sandbox."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncd "$OOMLINT_PLACE"\nfor name in server.err request.json lock 1 1/out ../server.err ../request.json; do ln -sf {precious} $name; done\n'
        f'mkdir 1; ln -sf {precious} 1/out; ln -sf {precious} 1/answer; exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    try:
        with SandboxRunner(str(python), unsandboxed=True, view=SandboxView(writable=(str(tmp_path / "jobs"),))) as hostile:
            hostile.run(Job("loading.run_script:run", {"path": "none.py"}, hostile.place, Limits(seconds=10)))
    except (SandboxError, OSError):
        pass
    assert precious.read_text() == "mine"


def test_an_interpreter_is_not_started_again_in_less_of_a_sandbox(tmp_path: Path) -> None:
    started = tmp_path / "started"
    started.touch()
    python = tmp_path / "python"
    for status in (1, 97, 126):
        python.write_text(f"#!/bin/sh\necho once >> {started}\nexit {status}\n")
        python.chmod(0o755)
        with pytest.raises(SandboxError):
            SandboxRunner(str(python), unsandboxed=True, view=SandboxView(writable=(str(tmp_path),)))
    assert started.read_text() == "once\n" * 3


def test_a_pipe_in_place_of_an_answer_blocks_nobody(runner: SandboxRunner, tmp_path: Path) -> None:
    program = """
        import os
        os.mkfifo(os.path.join(os.path.dirname(os.environ["HOME"]), "answer"))
        os._exit(0)
        """
    assert do(runner, tmp_path, program).answer is None
