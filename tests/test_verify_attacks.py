"""What a hostile project tries, as root and as a user, with all of the sandbox and with parts of it missing: each attack fails, or is said to be open."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import pytest

from oomlint.verify.jobs import Sandbox
from oomlint.verify.sandbox import report

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="jobs need torch, and these tests Linux")

TESTS: Final = Path(__file__).parent
NOBODY: Final = 65534
SECRET: Final = "swordfish"
MISSING: Final = ("", "landlock", "processes", "namespaces")
Outcome = tuple[str, "Scene", Sandbox, dict[str, Any]]
# What nothing keeps a job from where a mechanism is missing; the report says so.
OPEN: Final = {
    "namespaces": {"sockets by path", "names of other processes", "shared memory"},
    "processes": {"names of other processes"},
}

# Each prints what it could do. Where it prints nothing, it has failed. `attempt` swallows the refusal.
HEAD: Final = """
    import os, socket, sys, ctypes, time, signal
    libc = ctypes.CDLL(None, use_errno=True)
    def attempt(name, act):
        try:
            result = act()
        except Exception:
            return
        print(name, result)
    def read(path):
        attempt(path, lambda: open(path, "rb").read(100))
    def call(name, *arguments):
        if getattr(libc, name)(*arguments) >= 0:
            print(name, "was taken")
"""
ATTACKS: Final = {
    "write": """
        for path in (OUTSIDE + "/file", PROJECT + "/data.bin"):
            attempt("append", lambda: open(path, "ab").write(b"x"))
            attempt("overwrite", lambda: open(path, "r+b").write(b"x"))
            attempt("truncate", lambda: os.truncate(path, 0))
            attempt("remove", lambda: os.remove(path))
            attempt("move", lambda: os.rename(path, path + ".moved"))
            attempt("steal", lambda: os.rename(path, "mine"))
            attempt("link", lambda: os.link(path, "mine"))
            attempt("make", lambda: open(path + ".new", "w"))
            attempt("folder", lambda: os.mkdir(path + ".folder"))
        for folder in ("/", "/tmp", "/var/tmp", "/usr/lib", "/etc", "/dev", "/run", HOME):
            attempt("make in " + folder, lambda: open(folder + "/oomlint-was-here", "w"))
        os.symlink(OUTSIDE, "way"); os.symlink(PROJECT, "project")
        attempt("through a link", lambda: open("way/new", "w"))
        attempt("through a link", lambda: open("project/new", "w"))
    """,
    "attributes": """
        for path in (OUTSIDE + "/file", PROJECT + "/data.bin", PROJECT, "/etc/hostname"):
            attempt("mode", lambda: os.chmod(path, 0o777))
            attempt("owner", lambda: os.chown(path, 12345, 12345))
            attempt("times", lambda: os.utime(path, (1, 1)))
            attempt("attribute", lambda: os.setxattr(path, "user.oomlint", b"x"))
    """,
    "reading": """
        for path in (OUTSIDE + "/file", HOME + "/notes.txt", HOME + "/.ssh/id_rsa", "/etc/shadow", "/dev/mem", "/dev/vda", "/dev/sda"):
            read(path)
        os.symlink(HOME, "home")
        read("home/notes.txt")
        read("/proc/self/cwd/home/.ssh/id_rsa")
    """,
    "secrets of the project": """
        for name in (".env", ".env.local", "server.pem", ".aws/credentials", ".git/config", "conf/secrets.yaml", "data/.netrc"):
            read(PROJECT + "/" + name)
    """,
    "environment": """
        def environments():
            for name in ("self", "1", str(os.getppid()), PARENT, *filter(str.isdigit, os.listdir("/proc"))):
                try:
                    yield open("/proc/" + name + "/environ", "rb").read()
                except OSError:
                    pass
        if any(SECRET.encode() in text for text in environments()) or SECRET in repr(os.environ):
            print("seen")
    """,
    "sockets by path": """
        for path in (OUTSIDE + "/socket", PROJECT + "/socket"):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                attempt(path, lambda: socket.socket(socket.AF_UNIX, kind).connect(path))
    """,
    "shared memory": """
        attempt("read", lambda: open(SHARED).read())
        attempt("remove", lambda: os.remove(SHARED))
    """,
    "abstract sockets": """
        attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(ABSTRACT))
    """,
    "network": """
        attempt("tcp", lambda: socket.create_connection(("127.0.0.1", PORT), timeout=3).send(b"x"))
        try:
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))  # on a network of its own it goes nowhere
        except OSError:
            pass
        for family in (17, 31, 38, 40):  # packets, Bluetooth, the kernel's cryptography, the host of a virtual machine
            for kind in (socket.SOCK_STREAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                attempt("family %d" % family, lambda: socket.socket(family, kind))
    """,
    "names of other processes": """
        named = [line.split() for line in open("/proc/self/status") if line.startswith(("Tgid", "Pid", "PPid", "TracerPid", "NS"))]
        if any(VICTIM in words for words in named) or os.path.exists("/proc/" + VICTIM) and VICTIM_NAME in open("/proc/" + VICTIM + "/cmdline").read():
            print("seen")
    """,
    "signals": """
        for pid in (int(VICTIM), int(PARENT)):
            attempt("signal", lambda: os.kill(pid, signal.SIGTERM))
        os.kill(os.getppid(), 0) if os.getppid() == 0 else None
    """,
    "other processes": """
        call("ptrace", 16, int(VICTIM), 0, 0)
        call("ptrace", 16, os.getppid(), 0, 0)
        for pid in (VICTIM, PARENT):
            for name in ("mem", "maps", "environ", "root/etc/hostname", "cwd/file", "fd/0", "fd/2"):
                read("/proc/" + pid + "/" + name)
    """,
    "kernel": """
        call("mount", b"none", b"/tmp", b"tmpfs", 0, None)
        call("umount2", b"/dev/shm", 2)
        call("chroot", b".")
        for flags in (0x10000000, 0x20000, 0x40000000, 0x20000000):
            call("unshare", flags)
        call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0)
        call("syscall", 250, 0, -3, 1, 0) if os.uname().machine == "x86_64" else None  # keyctl
        call("syscall", 321, 0, 0, 0) if os.uname().machine == "x86_64" else None  # bpf
        call("syscall", 425, 8, ctypes.create_string_buffer(200))  # io_uring
        call("setuid", 0) if os.getuid() else None
        call("setuid", 12345)
        call("sethostname", b"mine", 4)
        attempt("device", lambda: os.mknod("device", 0o600 | 0o060000, os.makedev(254, 0)))
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger", "/sys/power/state", "/sys/kernel/profiling"):
            attempt(path, lambda: open(path, "w").write("1"))
        attempt("groups", lambda: os.setgroups([0, 1, 2]))
    """,
}
FLOODS: Final = {
    "the disk": """
        for number in range(100):
            open("file%d" % number, "wb").write(bytes(2**20)); time.sleep(0.01)
    """,
    "the disk, by a file without a name": """
        file = open("file", "wb"); os.remove("file")
        while True:
            file.write(bytes(2**20)); file.flush(); time.sleep(0.01)
    """,
}


@dataclass
class Scene:
    """What lies outside, and who listens there."""

    top: Path
    came: list[str] = field(default_factory=list)

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def home(self) -> Path:
        return self.top / "home"

    def state(self) -> list[tuple[object, ...]]:
        """All that a job might change."""
        found: list[tuple[object, ...]] = []
        for path in sorted([self.top, *self.top.rglob("*")]):
            about = path.lstat()
            content, time = (path.read_bytes(), about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else (b"", 0)
            found.append((str(path), about.st_mode, about.st_uid, time, content, tuple(os.listxattr(path, follow_symlinks=False))))
        return found


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    folder = Path(os.path.realpath(tempfile.mkdtemp(dir="/var/tmp", prefix="attacked-")))  # not where other tests have their folders
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["root", "user"], scope="module")
def attacker(request: pytest.FixtureRequest) -> str:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    return str(request.param)


@pytest.fixture(params=MISSING, ids=lambda missing: f"without {missing}" if missing else "whole", scope="module")
def outcome(request: pytest.FixtureRequest, attacker: str, top: Path) -> Outcome:
    """What came of all attacks: what is missing, the scene, the sandbox, and what each attack printed."""
    scene = Scene(top / f"{attacker}-{request.param}")
    furnish(scene)
    as_user = attacker == "user" and os.geteuid() == 0
    if as_user:
        for path in (scene.top, *scene.top.rglob("*")):
            os.lchown(path, NOBODY, NOBODY)
    before = scene.state()
    sandbox, results = attacked(scene, ATTACKS | FLOODS, request.param, as_user=as_user)
    if request.param != "namespaces" and not sandbox.files:
        pytest.skip("no namespaces here")
    assert scene.state() == before
    return request.param, scene, sandbox, results


def attacked(scene: Scene, attacks: dict[str, str], off: str, *, as_user: bool = False) -> tuple[Sandbox, dict[str, Any]]:
    """Try attacks while others listen and a process of ours runs beside. ``off`` is what of the sandbox is turned off."""
    shared = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="oomlint-test-", delete=False)  # noqa: SIM115
    if as_user:
        os.chown(shared.name, NOBODY, NOBODY)
    with shared, listening(scene) as (port, abstract), subprocess.Popen(["/bin/sleep", "600"], user=NOBODY if as_user else None) as victim:
        names = {
            "OUTSIDE": str(scene.outside), "PROJECT": str(scene.project), "HOME": str(scene.home), "PORT": port, "ABSTRACT": abstract,
            "SHARED": shared.name, "PARENT": str(os.getpid()), "VICTIM": str(victim.pid), "VICTIM_NAME": "sleep",
        }  # fmt: skip
        start = dedent(HEAD) + "".join(f"{name} = {value!r}\n" for name, value in names.items()) + f"SECRET = {SECRET[::-1]!r}[::-1]\n"
        asked = scene.top.with_suffix(".json")
        programs = {name: start + dedent(text) for name, text in attacks.items()}
        asked.write_text(json.dumps({"project": str(scene.project), "attacks": programs, "unsandboxed": off == "all"}))
        words = [sys.executable, *([str(TESTS / "run_as_user.py")] if as_user else []), str(TESTS / "run_attacks.py"), str(asked)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(scene.home), "OOMLINT_NO_SANDBOX": off, "MY_TOKEN": SECRET}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=scene.outside)
        lives = victim.poll() is None
        victim.kill()
    Path(shared.name).unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    assert lives, "it was ended by a job"
    said = json.loads(done.stdout)
    return Sandbox(**said["sandbox"]), said["results"]


def furnish(scene: Scene) -> None:
    for folder in (scene.outside, scene.project, scene.home):
        folder.mkdir(parents=True)
    scene.top.chmod(0o755)
    (scene.outside / "file").write_text(SECRET)
    (scene.home / "notes.txt").write_text(SECRET)
    (scene.project / "data.bin").write_bytes(b"precious")
    for name in ("home/.ssh/id_rsa", *(f"project/{each}" for each in (".env", ".env.local", "server.pem", ".aws/credentials", ".git/config"))):
        (scene.top / name).parent.mkdir(exist_ok=True)
        (scene.top / name).write_text(SECRET)
    for name in ("conf/secrets.yaml", "data/.netrc"):
        (scene.project / name).parent.mkdir(exist_ok=True)
        (scene.project / name).write_text(SECRET)


class listening:  # noqa: N801 -- used like a function
    """Listeners on the network, on an abstract socket and on sockets by path, which note who comes."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.sockets = [socket.socket(socket.AF_INET), socket.socket(socket.AF_INET, socket.SOCK_DGRAM), *(socket.socket(socket.AF_UNIX) for _ in range(3))]
        self.over = threading.Event()

    def __enter__(self) -> tuple[int, str]:
        tcp, udp, abstract, outside, project = self.sockets
        tcp.bind(("127.0.0.1", 0))
        port = int(tcp.getsockname()[1])
        udp.bind(("127.0.0.1", port))
        name = f"\0oomlint-test-{os.getpid()}-{self.scene.top.name}"
        abstract.bind(name)
        here = os.getcwd()
        for each, folder in ((outside, self.scene.outside), (project, self.scene.project)):
            os.chdir(folder)  # the name of a socket must be short
            (folder / "socket").unlink(missing_ok=True)
            each.bind("socket")
            (folder / "socket").chmod(0o777)
        os.chdir(here)
        self.threads = [
            threading.Thread(target=self.wait, args=(each, kind)) for each, kind in zip(self.sockets, ("tcp", "udp", "abstract", "path", "path"), strict=True)
        ]
        for thread in self.threads:
            thread.start()
        return port, name

    def wait(self, each: socket.socket, kind: str) -> None:
        each.settimeout(0.2)
        if kind != "udp":
            each.listen()
        while not self.over.is_set():
            try:
                each.recv(10) if kind == "udp" else each.accept()[0].close()
                self.scene.came.append(kind)
            except TimeoutError:
                continue

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        for each in self.sockets:
            each.close()
        for folder in (self.scene.outside, self.scene.project):
            (folder / "socket").unlink()


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails(attack: str, outcome: Outcome) -> None:
    missing, _, sandbox, results = outcome
    result = results[attack]
    assert result["failure"] == "", "the attack itself is broken"
    if attack in OPEN.get(missing, ()):
        assert report.still_open(sandbox)
        return
    done = [line for line in result["printed"].splitlines() if not (attack == "attributes" and missing == "namespaces")]  # taken, and not done
    assert done == []


def test_the_attacks_are_real(top: Path) -> None:
    """Without any sandbox they succeed; those that do harm are not tried."""
    scene = Scene(top / "open")
    furnish(scene)
    harmless = ("reading", "secrets of the project", "sockets by path", "abstract sockets", "network", "names of other processes")
    sandbox, results = attacked(scene, {name: ATTACKS[name] for name in harmless}, "all")
    assert str(sandbox) == ""
    assert [name for name in harmless if not results[name]["printed"]] == []
    assert set(scene.came) == {"tcp", "udp", "abstract", "path"}


def test_nobody_has_come(outcome: Outcome) -> None:
    missing, scene, _, _ = outcome
    assert set(scene.came) <= ({"path"} if missing == "namespaces" else set())


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_ended(flood: str, outcome: Outcome) -> None:
    result = outcome[3][flood]
    assert (result["ended"], result["failure"]) == ("disk", "more than 32 MiB on the disk") or "File too large" in result["failure"]


def test_what_is_open_is_said(outcome: Outcome) -> None:
    missing, _, sandbox, _ = outcome
    told = set(report.still_open(sandbox))
    assert (
        told
        == {
            "": set(),
            "landlock": set(),
            "processes": {"see that other processes run"},
            "namespaces": {
                "talk to sockets of other programs by path (docker, ssh-agent)",
                "see that other processes run",
                "reach the shared memory of other programs (/dev/shm)",
            },
        }[missing]
    )
