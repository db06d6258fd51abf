"""What a process tree holds is read right, and who has ended counts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from oomlint.verify import process_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")

MEBIBYTE = 2**20
FORK = "if os.fork() == 0: sys.stdin.read(); os._exit(0)"


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready, and waits for the end of its input."""
    text = f"import os, sys, time\n{program}\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-S", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_descendants_are_found_and_zombies_are_not() -> None:
    program = """
reading, writing = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(writing, b"x")
    sys.stdin.read()
    os._exit(0)
if os.fork() == 0:
    os._exit(0)
os.read(reading, 1)
time.sleep(0.2)
"""
    with started(program) as process:
        pids = process_tree.tree(process.pid)
        assert pids[0] == process.pid
        assert len(pids) == 3
        assert sorted(process_tree.family(process.pid)) == sorted(pids)
        assert process.pid in process_tree.tree(os.getpid())
    assert process_tree.tree(process.pid) == []


def test_memory_that_is_shared_counts_once() -> None:
    size = 64 * MEBIBYTE
    with started("") as process:
        empty = process_tree.memory(process.pid)
    with started(f"held = bytes([1]) * {size}\n{FORK}") as process:
        pids = process_tree.tree(process.pid)
        each = [process_tree.memory(pid) for pid in pids]
        assert len(each) == 2
        assert all(size // 2 < memory.anonymous < size * 3 // 4 for memory in each)
        assert all(memory.resident > size for memory in each)
        assert all(memory.private < size // 2 for memory in each)
        assert size < process_tree.total(pids) - empty.anonymous < size + 16 * MEBIBYTE
        assert process_tree.resident(pids) > 2 * size


def test_shared_memory_is_told_apart() -> None:
    with started(f"import mmap\nheld = mmap.mmap(-1, {16 * MEBIBYTE})\nheld.write(b'x' * {16 * MEBIBYTE})\n{FORK}") as process:
        each = [process_tree.memory(pid) for pid in process_tree.tree(process.pid)]
        assert len(each) == 2
        assert sum(memory.shared for memory in each) == 16 * MEBIBYTE
        assert sum(memory.anonymous for memory in each) < 16 * MEBIBYTE


def test_descriptors_and_bytes_read(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "data")
    with open(path, "wb") as file:
        file.write(b"x" * MEBIBYTE)
    with started("") as process:
        before, read = process_tree.descriptors(process.pid), process_tree.read_bytes(process.pid)
    with started(f"held = [open({path!r}, 'rb') for n in range(20)]\nfor file in held: file.read()") as process:
        assert process_tree.descriptors(process.pid) - before == 20
        assert 20 * MEBIBYTE <= process_tree.read_bytes(process.pid) - read < 21 * MEBIBYTE


def test_waiting_for_a_processor_is_counted() -> None:
    with started("") as process:
        assert 0 <= process_tree.delayed([process.pid]) < 60


def test_a_process_that_is_gone_says_so() -> None:
    with started("") as process:
        pass
    for read in (process_tree.memory, process_tree.descriptors, process_tree.read_bytes):
        with pytest.raises(ProcessLookupError):
            read(process.pid)
    assert process_tree.total([process.pid]) == process_tree.resident([process.pid]) == process_tree.delayed([process.pid]) == 0


def test_a_process_is_found_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_TEST_MARK", "a-mark-of-this-test")
    with started("") as process:
        assert process_tree.marked("a-mark-of-this-test") == [process.pid]
    assert process_tree.marked("a-mark-of-this-test") == []


def test_where_nothing_can_be_read_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(process_tree.NotHere, match="Linux is needed"):
        process_tree.memory(2**22 + 1)
