"""Marks that a training script sets on the timeline: epochs, steps, phases, and what the allocators say from inside.

Imported by the script itself, so the standard library is all it takes. A mark is a line of JSON, appended to the file that `oomlint trace` names in the
environment; without that name nothing happens.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

VARIABLE: Final = "OOMLINT_TRACE"  # of the environment: the file that marks go to
_BETWEEN: Final = 0.1  # seconds, at least, between two lines about steps
_BETWEEN_LOOKS: Final = 1.0  # seconds between two looks at the allocators: theirs are lists that may be long
_Item = TypeVar("_Item")


def watch() -> Marks:
    """Marks for the process that calls it.

    >>> with oomlint.trace.watch() as marks:
    ...     for epoch in marks.epochs(range(10)):
    ...         for batch in marks.steps(loader):
    ...             train(batch)
    """
    return Marks(os.environ.get(VARIABLE, ""))


class Marks:
    """Sets marks. Every method is safe to call where nobody traces."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._epoch = -1
        self._step = 0
        self._said = 0  # the last step that was written
        self._next = 0.0
        self._look_at = 0.0

    def __enter__(self) -> Marks:  # noqa: PYI034 - typing.Self is not there under 3.10
        self._allocators()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def epoch(self, number: int | None = None) -> None:
        """An epoch begins; without a number, the next one."""
        self._epoch = self._epoch + 1 if number is None else number
        if self._path:
            self._flush()
            self._write({"mark": "epoch", "number": self._epoch})
            self._allocators()

    def step(self, count: int = 1) -> None:
        """One step is done, or several."""
        self._step += count
        if self._path and time.monotonic() >= self._next:
            self._flush()

    def epochs(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, each of them an epoch."""
        for item in items:
            self.epoch()
            yield item

    def steps(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, a step done after each of them."""
        for item in items:
            yield item
            self.step()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of the run, such as an evaluation."""
        self._write({"mark": "begin", "name": name})
        try:
            yield
        finally:
            self._write({"mark": "end", "name": name})
            self._allocators()

    def close(self) -> None:
        """Write what is still to be written."""
        self._flush()
        self._allocators(now=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _flush(self) -> None:
        if self._step != self._said:
            self._write({"mark": "step", "number": self._step})
            self._said = self._step
            self._next = time.monotonic() + _BETWEEN
            self._allocators()

    def _allocators(self, *, now: bool = False) -> None:
        """What the allocators hold that the program has given back: from outside it looks like memory in use."""
        if self._path and (now or time.monotonic() >= self._look_at):
            self._write({"mark": "allocators", **allocators()})
            self._look_at = time.monotonic() + _BETWEEN_LOOKS

    def _write(self, what: dict[str, Any]) -> None:
        if not self._path:
            return
        # A file that is full or gone must not end a training.
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            os.write(self._file, (json.dumps({"at": time.monotonic(), "pid": os.getpid(), **what}) + "\n").encode())


class _Mallinfo2(ctypes.Structure):
    """What glibc's ``mallinfo2`` gives."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split())


def allocators() -> dict[str, int]:
    """Bytes that glibc keeps free, blocks that Python's allocator has given out, and bytes that torch's allocator of the device uses and has."""
    found = {"blocks": sys.getallocatedblocks()}
    ask = _mallinfo2()
    if ask is not None:
        found["free"] = ask().fordblks
    # Never imported here: a script without torch has no such allocator.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found["device_used"], found["device_reserved"] = int(cuda.memory_allocated()), int(cuda.memory_reserved())
    return found


def _mallinfo2() -> Callable[[], Any] | None:
    """The function of glibc since 2.33; None elsewhere."""
    if sys.platform != "linux":
        return None
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    ask.restype = _Mallinfo2
    known: Callable[[], Any] = ask
    return known
