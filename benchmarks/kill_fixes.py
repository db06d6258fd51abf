"""Kills `oomlint check --fix` at random moments and looks at what is left.

    python benchmarks/kill_fixes.py --kills 100 --seed 0

Each run fixes a folder of 40 files. It is ended by SIGKILL, SIGTERM, SIGHUP and SIGINT in turn: every other time anywhere in the run, else after the first
file has been written. Then every file must be the old or the new one, no process may be left, and the next run must finish the work and leave no other file.
The last line says how many files were torn, how many temporary files a kill has left, and how many of those outlived the next run. The exit status is 1 where
a file was torn, a leftover or process stayed, or a signal other than SIGKILL left anything.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FILES = 40
ROWS = 8
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
STATUS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
IMPORT = "from torch.utils.data import DataLoader\n"
CALL = "DataLoader(range({number}), num_workers=0, persistent_workers=True)\n"
FIXED = "DataLoader(range({number}), num_workers=0)\n"
COMMAND = [sys.executable, "-m", "oomlint", "check", "--fix", "--isolated", "--quiet", "."]
SETTLED = 5.0  # seconds that a killed run's own children may take to end


def program(call: str, file: int) -> bytes:
    """The text of a file."""
    return (IMPORT + "".join(f"a{row} = {call.format(number=file * row)}" for row in range(ROWS))).encode()


def fill(folder: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Write the files; their bytes before and after."""
    old = {f"file_{number:02}.py": program(CALL, number) for number in range(FILES)}
    new = {f"file_{number:02}.py": program(FIXED, number) for number in range(FILES)}
    for name, data in old.items():
        (folder / name).write_bytes(data)
    return old, new


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A run in a session of its own."""
    root = str(Path(__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": root}
    return subprocess.Popen(COMMAND, cwd=folder, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def leftovers(folder: Path) -> list[str]:
    """What is neither a file of ours nor of the cache."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix == ".tmp"]


def lingers(group: int) -> bool:
    """Whether processes of a run are still there after a while."""
    end = time.monotonic() + SETTLED
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    return True


def measure() -> tuple[float, float]:
    """The seconds that a run takes, and those of them in which it writes."""
    with tempfile.TemporaryDirectory(prefix="oomlint-kill-") as name:
        folder = Path(name)
        old, _ = fill(folder)
        began = time.monotonic()
        with start(folder) as child:
            wait_for(folder / min(old), old, child)
            first = time.monotonic()
            wait_for(folder / max(old), old, child)
            writing = time.monotonic() - first
            child.wait()
        return time.monotonic() - began, writing


def wait_for(path: Path, old: dict[str, bytes], child: subprocess.Popen[bytes]) -> None:
    """Wait until a file has been fixed, or the run has ended."""
    while child.poll() is None and path.read_bytes() == old[path.name]:
        time.sleep(0.0005)


def kill_one(seed: random.Random, number: int, length: float, writing: float, found: Counter[str]) -> None:
    """One run, its end, and the run after it."""
    with tempfile.TemporaryDirectory(prefix="oomlint-kill-") as name:
        folder = Path(name)
        old, new = fill(folder)
        sign = SIGNALS[number % len(SIGNALS)]
        with start(folder) as child:
            if number // len(SIGNALS) % 2:
                wait_for(folder / min(old), old, child)
                time.sleep(seed.random() * writing)
            else:
                time.sleep(seed.random() * length)
            ended = child.poll() is not None
            child.send_signal(sign)
        written = {each: (folder / each).read_bytes() for each in old}
        found["torn"] += sum(data not in {old[each], new[each]} for each, data in written.items())
        found["in the midst of writing"] += 0 < sum(data == new[each] for each, data in written.items()) < FILES
        # Between our look and the signal, or while the interpreter takes itself down, all has been done already, and nothing is left to end.
        ended = ended or (child.returncode == 0 and written == new)
        found["after the end"] += ended
        # Before Python has come to our lines, and after it has left them, a signal ends the process as it does by default.
        found["with another status"] += not ended and child.returncode not in {STATUS[sign], -sign}
        left = leftovers(folder)
        found["left by the kill"] += len(left)
        found["left by another signal"] += len(left) if sign is not signal.SIGKILL else 0
        found["processes left"] += lingers(child.pid)
        with start(folder) as child:
            child.wait()
        found["unfinished"] += child.returncode != 0 or any((folder / each).read_bytes() != data for each, data in new.items())
        found["left by the next run"] += len(leftovers(folder))


def main() -> int:
    """Kill, count and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would its children
    length, writing = measure()
    seed = random.Random(arguments.seed)  # noqa: S311 - no secret
    found: Counter[str] = Counter()
    for number in range(arguments.kills):
        kill_one(seed, number, length, writing, found)
    counts = ", ".join(f"{name} {count}" for name, count in found.items())
    print(f"{arguments.kills} kills, seed {arguments.seed}, a run takes {length:.1f} s and writes for {writing * 1000:.0f} ms: {counts}")
    return int(any(found[name] for name in ("torn", "left by another signal", "processes left", "with another status", "unfinished", "left by the next run")))


if __name__ == "__main__":
    sys.exit(main())
