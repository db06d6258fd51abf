"""`oomlint trace` on real programs: what they allocate is known, and so is how they end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from commands import runs

from oomlint import engine
from oomlint.config import Settings
from oomlint.trace import deepening
from oomlint.trace.explaining import fits
from oomlint.trace.growth import Shape, Trend
from oomlint.trace.growth_verdicts import GrowthVerdict, JudgedSubject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from commands import Done

    from oomlint.finding import Finding

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="figures are those of /proc")

ROOT: Final = Path(__file__).parent.parent
SCHEMA: Final = json.loads((ROOT / "docs" / "trace.schema.json").read_text(encoding="utf-8"))
MB: Final = 1e6
START: Final = (
    "import os, sys, time\nfrom oomlint.trace import watch\ndef pages(size): return bytearray(b'x') * size\n"
    "def wait(seconds):\n    end = time.monotonic() + seconds\n    while time.monotonic() < end: time.sleep(0.01)\n"
)
PROGRAMS: Final = {
    "flat": "held = pages(60_000_000)\nwith watch() as marks:\n    for _ in marks.steps(range(60)): wait(0.05)\n",
    "steps": "held = []\nwith watch() as marks:\n    for _ in marks.steps(range(60)): held.append(pages(1_000_000)); wait(0.05)\n",
    "unmarked": "held = []\nfor _ in range(60): held.append(pages(1_000_000)); wait(0.05)\n",
    "epochs": "held = []\nwith watch() as marks:\n    for _ in marks.epochs(range(6)):\n        held.append(pages(20_000_000))\n"
    "        for _ in marks.steps(range(10)): wait(0.12)\n",
    "evaluations": "for _ in range(4):\n    wait(0.4); held = pages(60_000_000); wait(0.4); del held\nwait(0.3)\n",
    "allocator": "with watch() as marks:\n    blocks = [pages(100_000) for _ in range(800)]\n    marks.step(); wait(1)\n    last = blocks[-1]; del blocks\n"
    "    for _ in marks.steps(range(40)): wait(0.05)\n",
    "descriptors": "held = []\nfor _ in range(60): held.append(os.open(os.devnull, os.O_RDONLY)); wait(0.05)\n",
    "worker": "import multiprocessing\ndef work():\n    held = []\n    for _ in range(60): held.append(pages(1_000_000)); wait(0.05)\n"
    "if __name__ == '__main__':\n    worker = multiprocessing.get_context(sys.argv[1]).Process(target=work); worker.start(); worker.join()\n",
    "copies": "import multiprocessing\nheld = [(number, str(number)) for number in range(600_000)]\ndef work():\n    wait(0.5)\n"
    "    for pair in held: text = pair[1]\n    wait(2)\n"
    "if __name__ == '__main__':\n    workers = [multiprocessing.get_context('fork').Process(target=work) for _ in range(2)]\n"
    "    for worker in workers: worker.start()\n    for worker in workers: worker.join()\n",
    "shared": "import mmap\nheld = []\nfor _ in range(60): held.append(mmap.mmap(-1, 1_000_000)); held[-1].write(b'x' * 1_000_000); wait(0.05)\n",
}
ASKED: Final = ("flat", "steps", "unmarked", "epochs", "evaluations", "allocator", "descriptors", "worker fork", "worker spawn", "copies", "shared")


@pytest.fixture(autouse=True, scope="module")
def interruptible() -> Iterator[None]:
    """Who is started in the background of a script ignores interrupts, and so would all that is started here."""
    known = signal.getsignal(signal.SIGINT)
    if known is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, known)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "oomlint", "trace", *words]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}


def traced(folder: Path, *words: str, interval: str = "0.05", **more: Any) -> subprocess.Popen[str]:
    """A trace that has been started. Its page and its report go to files beside the program."""
    line = command("--interval", interval, "--output-format", "json", "--output-file", "report.json", "--html", "page.html", "--isolated", "--", *words)
    return subprocess.Popen(line, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All programs at a time: most of them wait most of the time."""
    started = {}
    for name in ASKED:
        script, *arguments = name.split()
        folder = tmp_path_factory.mktemp(name.replace(" ", "_"))
        (folder / "train.py").write_text(START + PROGRAMS[script])
        started[name] = (folder, traced(folder, sys.executable, "train.py", *arguments))
    found = {}
    for name, (folder, process) in started.items():
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, ""), name
        found[name] = json.loads((folder / "report.json").read_text())
        found[name]["folder"] = folder
    return found


def about(report: dict[str, Any], subject: JudgedSubject) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in report["growth"] if each["subject"] == subject.value]
    assert found, [(each["who"], each["message"]) for each in report["growth"]]
    return found[0]


@pytest.mark.parametrize("name", ASKED)
def test_a_report_is_as_its_schema_says(reports: dict[str, Any], name: str) -> None:
    known = {key: value for key, value in reports[name].items() if key != "folder"}
    jsonschema.validate(known, SCHEMA)
    assert known["readings"]["share_of_a_core"] < 0.04  # 0.02 is what it keeps to, but for the last reading
    assert known["status"] == 0
    assert any(note.startswith("what lasts less than") for note in known["notes"])


def test_nothing_grows(reports: dict[str, Any]) -> None:
    main = about(reports["flat"], JudgedSubject.MAIN)
    assert main["shape"] == Shape.FLAT
    assert not any(each["grows"] for each in reports["flat"]["growth"])
    assert reports["flat"]["peak"]["total"] == pytest.approx(60 * MB + 8 * MB, rel=0.2)
    assert not reports["flat"]["next"]


def test_each_step_grows(reports: dict[str, Any]) -> None:
    main = about(reports["steps"], JudgedSubject.MAIN)
    assert main["shape"] == Shape.STEADY
    assert main["a_step"] == pytest.approx(1 * MB, rel=0.2)
    assert reports["steps"]["unexplained"] == [{"subject": "main process", "who": "main process"}]
    assert "--deep" in reports["steps"]["next"][0]
    unmarked = about(reports["unmarked"], JudgedSubject.MAIN)
    assert unmarked["grows"]
    assert unmarked["a_step"] is None


def test_each_epoch_grows(reports: dict[str, Any]) -> None:
    main = about(reports["epochs"], JudgedSubject.MAIN)
    assert main["shape"] == Shape.EPOCHS
    assert main["an_epoch"] == pytest.approx(20 * MB, rel=0.2)
    assert [mark["number"] for mark in reports["epochs"]["marks"] if mark["kind"] == "epoch"] == list(range(6))


def test_evaluations_rise_and_fall(reports: dict[str, Any]) -> None:
    assert about(reports["evaluations"], JudgedSubject.MAIN)["shape"] == Shape.WAVES


def test_memory_that_the_allocator_keeps(reports: dict[str, Any]) -> None:
    main = about(reports["allocator"], JudgedSubject.MAIN)
    assert main["shape"] == Shape.KEPT
    assert main["freed"] == pytest.approx(80 * MB, rel=0.2)


def test_descriptors_grow(reports: dict[str, Any]) -> None:
    found = about(reports["descriptors"], JudgedSubject.DESCRIPTORS)
    assert found["grows"]
    assert found["held"] >= 55
    assert about(reports["descriptors"], JudgedSubject.MAIN)["shape"] == Shape.FLAT
    assert any("/proc/PID/fd" in step for step in reports["descriptors"]["next"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_grows(reports: dict[str, Any], method: str) -> None:
    report = reports[f"worker {method}"]
    found = about(report, JudgedSubject.WORKERS)
    assert found["shape"] == Shape.STEADY
    assert about(report, JudgedSubject.MAIN)["shape"] == Shape.FLAT
    worker = report["processes"][found["processes"][0]]
    assert (worker["role"], worker["start_method"], worker["name"]) == ("worker", method, "worker 0")
    peak = next(each for each in report["peak"]["processes"] if each["process"] == found["processes"][0])
    assert peak["dirty"] == pytest.approx(60 * MB + (8 * MB if method == "spawn" else 0), rel=0.25)
    assert [mark["number"] for mark in report["marks"] if mark["kind"] == "pass"] == [0]


def test_workers_copy_what_they_read(reports: dict[str, Any]) -> None:
    found = about(reports["copies"], JudgedSubject.COPIES)
    assert len(found["processes"]) == 2
    objects = 600_000 * (56 + 56 + 32)  # a tuple of two, a string, an integer
    assert found["held"] == pytest.approx(2 * objects, rel=0.3)


def test_shared_memory_grows(reports: dict[str, Any]) -> None:
    assert about(reports["shared"], JudgedSubject.SHARED)["grows"]
    assert not about(reports["shared"], JudgedSubject.MAIN)["grows"]


# -- how it ends -------------------------------------------------------------------------------------------------------


def finished(folder: Path, program: str, *words: str) -> tuple[int, dict[str, Any]]:
    (folder / "train.py").write_text(START + program)
    process = traced(folder, *(words or (sys.executable, "train.py")))
    process.communicate(timeout=60)
    return process.returncode, json.loads((folder / "report.json").read_text())


def test_the_status_is_the_commands(tmp_path: Path) -> None:
    status, report = finished(tmp_path, "sys.exit(37)")
    assert (status, report["status"], report["signal"]) == (37, 37, 0)


def test_a_command_that_is_killed(tmp_path: Path) -> None:
    status, report = finished(tmp_path, "held = pages(40_000_000); wait(0.6); os.kill(os.getpid(), 9)")
    assert (status, report["status"], report["signal"]) == (137, 137, 9)
    assert report["kills"] == []
    assert any("SIGKILL came from elsewhere" in note for note in report["notes"])
    assert report["peak"]["total"] > 40 * MB


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Its parent takes its status late, as one does that computes."""
    program = "pid = os.fork()\nif not pid: wait(0.5); os.kill(os.getpid(), 9)\nwait(3)\nassert os.waitpid(pid, 0)[1] == 9\nsys.exit(3)"
    status, report = finished(tmp_path, program)
    assert status == 3
    assert any(note.startswith("SIGKILL has ended worker 0 (pid ") for note in report["notes"])
    assert [each["role"] for each in report["processes"]] == ["main process", "worker"]


def test_an_interrupt_is_passed_on(tmp_path: Path) -> None:
    program = "try: print('ready', flush=True); wait(30)\nexcept KeyboardInterrupt: print('interrupted', flush=True); sys.exit(7)"
    (tmp_path / "train.py").write_text(START + program)
    process = traced(tmp_path, sys.executable, "train.py")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (out, process.returncode, report["interrupted"]) == ("interrupted\n", 7, signal.SIGINT)


COUNTS: Final = """
import signal
came = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: came.append(number))
print('ready', flush=True)
while not came: wait(0.02)
wait(1); print(len(came), flush=True)
"""


def to_group(pid: int, number: int) -> None:
    """To all of a group, of which one is slow to take it."""
    os.kill(pid, signal.SIGSTOP)
    os.killpg(pid, number)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("words", [[], ["setsid"]], ids=["in the group", "in a group of its own"])
@pytest.mark.parametrize(
    ("number", "sent"),
    [
        (signal.SIGINT, [os.kill]),
        (signal.SIGINT, [to_group]),
        (signal.SIGTERM, [to_group]),
        (signal.SIGINT, [os.kill, os.killpg]),
        (signal.SIGINT, [os.killpg, os.kill]),
    ],
    ids=["to the trace", "to the group", "another one", "to both", "the other way round"],
)
def test_a_signal_comes_to_the_command_once(tmp_path: Path, number: int, sent: list[Callable[[int, int], None]], words: list[str]) -> None:
    if words and shutil.which(words[0]) is None:
        pytest.skip("there is no setsid")
    (tmp_path / "train.py").write_text(START + COUNTS)
    process = traced(tmp_path, *words, sys.executable, "train.py", start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    for send in sent:
        send(process.pid, number)
    out, _ = process.communicate(timeout=30)
    report = json.loads((tmp_path / "report.json").read_text())
    apart = bool(words) and len(sent) > 1  # what is sent to the trace twice comes as one, or one after the other
    assert (process.returncode, report["interrupted"]) == (0, number)
    assert out in ({"1\n", "2\n"} if apart else {"1\n"})
    assert [one["role"] for one in report["processes"]] == ["main process"]


def test_a_request_to_end_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + "print('ready', flush=True); wait(30)")
    process = traced(tmp_path, sys.executable, "train.py")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert json.loads((tmp_path / "report.json").read_text())["interrupted"] == signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize("sent", [os.kill, os.killpg], ids=["to the trace", "to the group"])
def test_what_tells_a_command_to_save_its_state_is_passed_on(tmp_path: Path, number: int, sent: Callable[[int, int], None]) -> None:
    """As SLURM does before time is up: ``--signal=USR1@60``. The run goes on."""
    (tmp_path / "train.py").write_text(START + COUNTS.replace("signal.SIGINT, signal.SIGTERM", "signal.SIGUSR1, signal.SIGUSR2"))
    process = traced(tmp_path, sys.executable, "train.py", start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    sent(process.pid, number)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("1\n", 0)
    assert json.loads((tmp_path / "report.json").read_text())["interrupted"] == 0


def test_a_terminal_shows_a_line_and_interrupts_once(tmp_path: Path) -> None:
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    program = "import signal\ncame = []\nsignal.signal(signal.SIGINT, lambda *_: came.append(1))\nprint('ready', flush=True)\n"
    program += "while not came: wait(0.05)\nwait(0.7); print('came', len(came), flush=True)"
    (tmp_path / "train.py").write_text(START + program)
    mine, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))

    def in_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    line = command("--interval", "0.05", "--", sys.executable, "train.py")
    with subprocess.Popen(
        line,
        cwd=tmp_path,
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=in_terminal,  # noqa: PLW1509 - no threads are here
    ) as process:
        os.close(theirs)
        shown, end, sent = b"", time.monotonic() + 60, False
        while time.monotonic() < end:
            if select.select([mine], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    shown += os.read(mine, 65536)
            if not sent and b"ready" in shown and b"process" in shown:
                os.write(mine, b"\x03")
                sent = True
            if process.poll() is not None and not select.select([mine], [], [], 0.2)[0]:
                break
            if process.poll() is not None:
                with contextlib.suppress(OSError):
                    shown += os.read(mine, 65536)
                break
        os.close(mine)
    text = shown.decode(errors="replace")
    assert process.returncode == 0, text
    assert "came 1" in text
    assert "\x1b[1;23r" in text  # the last row is kept out of the scrolling
    assert "\x1b[r" in text  # and given back
    assert re.search(r"oomlint trace  \d+\.\d s  [\d.]+ MiB \(at most", text)
    assert "interrupted by SIGINT" in text


def test_a_command_that_daemonises(tmp_path: Path) -> None:
    line = f"(setsid {sys.executable} train.py >/dev/null 2>&1 &); exit 4"
    status, report = finished(tmp_path, "held = pages(40_000_000); wait(4)", "sh", "-c", line)
    assert status == 4
    assert report["peak"]["total"] > 38 * MB  # of what it has left
    assert len(report["left"]) == 1
    assert any("left 1 process running" in note for note in report["notes"])


def test_what_is_left_behind_is_followed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + "held = pages(40_000_000); wait(2)")
    line = command("--follow", "--output-file", "-", "--", "sh", "-c", f"(setsid {sys.executable} train.py >/dev/null 2>&1 &); exit 4")
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    found = re.search(r"memory \(PSS\), at most ([\d.]+) MiB", done.stdout)
    assert found
    assert float(found[1]) > 38


@contextlib.contextmanager
def cgroup(limit: int) -> Iterator[Path]:
    """A memory cgroup of this test, where the machine allows making one."""
    if os.path.isfile("/sys/fs/cgroup/cgroup.controllers"):
        folder, name = Path("/sys/fs/cgroup"), "memory.max"
    else:
        folder, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    folder /= f"oomlint-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        try:
            (folder / name).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no limit can be set here: {error.strerror}")
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def test_a_kill_in_a_real_cgroup_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + "held = []\nwhile True: held.append(pages(2_000_000)); wait(0.02)")
    with cgroup(150_000_000) as folder:
        done = traced(tmp_path, "sh", "-c", f"echo $$ > {folder}/cgroup.procs && exec {sys.executable} train.py")
        _, err = done.communicate(timeout=60)
    assert done.returncode == 137, err
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(kill["by"], kill["count"]) for kill in report["kills"]] == [("cgroup", 1)]
    assert report["limit"]["cgroup"] == pytest.approx(150_000_000, rel=0.01)
    assert 50 * MB < sum(each["dirty"] for each in report["kills"][0]["before"]["processes"]) <= 150 * MB
    assert any(note.startswith("the OOM killer of the cgroup") and "main process" in note for note in report["notes"])


# -- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--", "nosuchcommand"], 127, "nosuchcommand: No such file or directory"),
        (["--", "python train.py | tee log"], 127, "A line for a shell is run by one: `oomlint trace -- sh -c 'python train.py | tee log'`"),
        (["--", "echo a && echo b"], 127, "A line for a shell"),
        (["--", "OMP_NUM_THREADS=1", "python"], 127, "Variables are set by env: `oomlint trace -- env OMP_NUM_THREADS=1 ...`"),
        (["--", "train.py"], 127, "train.py: there is no such program, but a file here: `oomlint trace -- python train.py`"),
        (["--", "./broken.sh"], 127, "./broken.sh cannot be run: the interpreter that its first line names is not there"),
        (["--", "/"], 126, "/ cannot be run: Permission denied"),
        (["--interval", "soon", "--", "true"], 2, "--interval: 'soon' is not a time"),
        (["--interval", "0", "--", "true"], 2, "--interval: '0' is not a time"),
        (["--interval", "2h", "--", "true"], 2, "--interval: '2h' is not between 10ms and 1h"),
        (["--overhead", "much", "--", "true"], 2, "--overhead: 'much' is not a number of percent such as '10%'"),
        (["--overhead", "0", "--", "true"], 2, "--overhead: '0' is not between 0.1% and 100%"),
        (["--html", "a.txt", "--output-file", "./a.txt", "--", "true"], 2, "--html and --output-file name the same file"),
        (["--overhead", "nan", "--", "true"], 2, "--overhead: 'nan' is not between 0.1% and 100%"),
        ([], 2, "name the command to watch"),
        (["--", ""], 2, "name the command to watch"),
        (["--html", "-", "--", "true"], 2, "--html: the page goes to a file"),
        (["--html", "gone/x.html", "--", "true"], 2, "gone/x.html: No such file or directory"),
    ],
)
def test_wrong_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], status: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n")
    Path("broken.sh").write_text("#!/gone/sh\n")
    Path("broken.sh").chmod(0o755)
    trace: Callable[..., Done] = runs(capsys, "trace")
    done = trace(*words)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("oomlint: error: ")
    assert done.err.count("\n") == 1
    assert says in done.err


def test_options_of_the_command_are_its_own(tmp_path: Path) -> None:
    for words in (["--", "echo", "--html", "x"], ["echo", "--html", "x"], ["--quiet", "echo", "--html", "x"], ["--color=never", "echo", "--html", "x"]):
        done = subprocess.run(command(*words), cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (0, "--html x\n"), words
        assert done.stderr.startswith("echo --html x: status 0 after")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--output-format", "json"), ("--output-format", "json", "--output-file", "-"), ("--output-file", "-")], ids=" ".join)
def test_a_report_on_standard_output_is_there_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    line = command(*words, "--", "echo", "from the command")
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "from the command\n")
    assert json.loads(done.stdout)["status"] == 0 if "json" in words else done.stdout.startswith("echo 'from the command': status 0 after")


# -- the page ----------------------------------------------------------------------------------------------------------

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")


def test_the_page_stands_alone(reports: dict[str, Any]) -> None:
    page = (reports["epochs"]["folder"] / "page.html").read_text()
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.findall(r"https?://|<script|<img|<link|url\(", page)
    assert f'data-bytes="{reports["epochs"]["peak"]["total"]}"' in page


def test_a_browser_reads_the_figures(reports: dict[str, Any], tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here (Debian: apt-get install chromium)")
    report = reports["epochs"]
    line = [browser, "--headless", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}", "--dump-dom"]
    done = subprocess.run([*line, (report["folder"] / "page.html").as_uri()], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r'id="peak" data-bytes="(\d+)">([\d.]+ MiB)</strong>', done.stdout)
    assert int(re.findall(r'id="peak" data-bytes="(\d+)"', done.stdout)[0]) == report["peak"]["total"]
    rows = dict(re.findall(r'<td>([^<]+)</td><td class="outcome \w+" data-shape="([^"]+)"', done.stdout))
    assert rows["main process"] == about(report, JudgedSubject.MAIN)["shape"]  # which shape it is depends on the machine's load: a test above says it
    assert len(re.findall(r'class="epoch"', done.stdout)) >= 6
    assert "<polygon" in done.stdout


# -- which findings explain it -----------------------------------------------------------------------------------------

GROWS: Final = Trend(Shape.STEADY, 1e9, 1e9)
STAYS: Final = Trend(Shape.FLAT)


@pytest.mark.parametrize(
    ("code", "subject", "trend"),
    [
        ("OOM201", JudgedSubject.MAIN, GROWS),
        ("OOM202", JudgedSubject.MAIN, GROWS),
        ("OOM206", JudgedSubject.MAIN, GROWS),
        ("OOM219", JudgedSubject.MAIN, Trend(Shape.WAVES, 1e9, times=3)),
        ("OOM402", JudgedSubject.MAIN, STAYS),
        ("OOM110", JudgedSubject.COPIES, Trend(Shape.SETTLED, 1e9)),
        ("OOM214", JudgedSubject.WORKERS, GROWS),
        ("OOM306", JudgedSubject.DESCRIPTORS, GROWS),
        ("OOM307", JudgedSubject.DESCRIPTORS, GROWS),
        ("OOM207", JudgedSubject.DESCRIPTORS, GROWS),
        ("OOM207", JudgedSubject.SHARED, GROWS),
        ("OOM121", JudgedSubject.SHARED, STAYS),
        ("OOM220", JudgedSubject.DEVICE, GROWS),
    ],
)
def test_findings_fit_what_they_cause(code: str, subject: JudgedSubject, trend: Trend) -> None:
    findings = [item for item in found_in(code) if item.code == code]
    assert findings
    fitting = [item for item in findings if fits(GrowthVerdict(subject, "x", trend, 1e9, methods=("fork",)), item, alone=False)]
    assert fitting, [(item.weight, item.facts) for item in findings]


@pytest.mark.parametrize(
    ("code", "subject", "trend"),
    [
        ("OOM101", JudgedSubject.MAIN, GROWS),
        ("OOM110", JudgedSubject.MAIN, GROWS),
        ("OOM110", JudgedSubject.DESCRIPTORS, GROWS),
        ("OOM201", JudgedSubject.WORKERS, GROWS),
        ("OOM202", JudgedSubject.MAIN, STAYS),
        ("OOM202", JudgedSubject.COPIES, GROWS),
        ("OOM214", JudgedSubject.MAIN, GROWS),
        ("OOM304", JudgedSubject.MAIN, GROWS),
        ("OOM306", JudgedSubject.MAIN, GROWS),
        ("OOM402", JudgedSubject.MAIN, GROWS),
        ("OOM402", JudgedSubject.WORKERS, GROWS),
        ("OOM120", JudgedSubject.MAIN, STAYS),
    ],
)
def test_findings_fit_nothing_else(code: str, subject: JudgedSubject, trend: Trend) -> None:
    for item in found_in(code):
        if item.code == code:
            assert not fits(GrowthVerdict(subject, "x", trend, 1e9, methods=("fork",)), item, alone=False), (item.weight, item.facts)


@cache
def found_in(code: str) -> tuple[Finding, ...]:
    """What is found in the first fixtures of a rule."""
    folder = ROOT / "fixtures" / "rules" / code
    paths = [str(path) for path in sorted(folder.glob("bad*.py"))[:4]] or [str(folder)]
    return engine.run(paths, Settings(), folder, engine.RunOptions(cache=False, processes=1, causes=False)).findings


def test_what_starts_the_command_is_no_memory_of_it(tmp_path: Path) -> None:
    line = command("--output-format", "json", "--isolated", "--", "sh", "-c", "sleep 0.3; exit 7")
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 7
    assert not json.loads(done.stdout)["overlooked"]


def test_who_allows_more_of_a_core_gets_closer_readings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + "held = pages(400_000_000)\nwait(1.5)")
    full = {}
    for most in ("2%", "100 %"):
        line = command("--interval", "0.05", "--overhead", most, "--output-format", "json", "--isolated", "--", sys.executable, "train.py")
        done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True, timeout=120)
        readings = json.loads(done.stdout)["readings"]
        full[most] = readings["full"] / readings["count"]
    assert full["2%"] < 0.5 < full["100 %"], full


def test_what_a_budget_predicts_stands_beside_what_was_seen(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.zeros(100_000, 500))\n"
        "for (x,) in DataLoader(data, batch_size=4000):\n    x.sum()\n"
    )
    process = traced(tmp_path, sys.executable, "train.py")
    assert process.communicate(timeout=120)[1] == ""
    told = json.loads((tmp_path / "report.json").read_text())["predicted"]
    assert 200 * MB < told["bytes"] < 400 * MB  # 200 MB of data, and what Python and torch take
    assert (told["moment"], told["complete"]) == ("first epoch", True)
    assert re.search(rf'<p id="predicted" data-bytes="{told["bytes"]}"><code>oomlint budget</code> predicts ', (tmp_path / "page.html").read_text())


def test_a_training_is_explained(tmp_path: Path) -> None:
    """The whole way: a list that keeps the graph of every step."""
    pytest.importorskip("torch")
    program = """
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(1000, 1000)
losses = []
for _ in range(2):
    for x in DataLoader(torch.ones(80, 1000), batch_size=2):
        y = net(x.repeat(125, 1))
        losses.append(y)
        wait(0.03)
"""
    (tmp_path / "train.py").write_text(START + program)
    done = subprocess.run(
        command("--interval", "0.05", "--", sys.executable, "train.py"),
        cwd=tmp_path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "main process: grows steadily" in done.stderr
    assert re.search(r"train\.py:\d+:\d+: OOM202 error .*\n +fits the growth of the main process", done.stderr), done.stderr


def test_deep_names_the_line(tmp_path: Path) -> None:
    program = "import library\nheld = []\nfor number in range(60):\n    held.append(library.pages(1_000_000))\n    wait(0.05)\n"
    (tmp_path / "train.py").write_text(START + program)
    row = (START + program).splitlines().index("    held.append(library.pages(1_000_000))") + 1
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    installed = tmp_path / "site-packages"  # whose lines say nothing to who wrote the program
    installed.mkdir()
    (installed / "library.py").write_text("def pages(size):\n    return bytearray(b'x') * size\n")
    done = subprocess.run(
        command("--deep", "--interval", "0.05", "--", sys.executable, "train.py"),
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join(map(str, (tmp_path, installed, ROOT)))),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "mine\n" in done.stdout  # the user's own is run, too
    assert re.search(rf"  train\.py:{row}: holds [\d.]+ MiB in \d+ blocks", done.stderr), done.stderr
    assert "the lines that grow say where" in done.stderr
    assert "none of Python's objects" not in done.stderr


def test_deep_waits_until_libraries_are_imported(tmp_path: Path) -> None:
    """To trace what imports take makes those of torch twenty times slower."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    slow = "import time, tracemalloc\ndef load():\n    time.sleep(1)\n    return tracemalloc.is_tracing()\ntraced = load()\n"
    (installed / "library.py").write_text(slow)
    (tmp_path / "helper.py").write_text(slow)  # what a program's own module does when it is imported may be the training
    waits = "end = time.monotonic() + 20\nwhile not tracemalloc.is_tracing() and time.monotonic() < end: time.sleep(0.01)\n"
    told = "print(library.traced, tracemalloc.is_tracing(), helper.traced)\n"
    (tmp_path / "train.py").write_text(f"import time, tracemalloc\nimport library\n{waits}import helper\n{told}")
    (tmp_path / "other.py").write_text("import library\nimport helper\nprint(helper.traced)\n")
    path = os.pathsep.join(map(str, (deepening.BOOTSTRAP, installed, ROOT)))
    said = []
    for name in ("train.py", "other.py"):
        done = subprocess.run(
            [sys.executable, name], cwd=tmp_path, env=environment(PYTHONPATH=path, OOMLINT_TRACE_DEEP=str(tmp_path)), capture_output=True, text=True, check=True
        )
        said.append(done.stdout.strip())
    assert said == ["False True True", "True"]
