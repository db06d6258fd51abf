"""Tells whether a signal was sent to this process alone, or to all of its process group, as a terminal and `kill -- -GROUP` do.

A process that is sent a signal is not told which. So one more process of the group keeps the signals and does nothing else: what it has got as well, everybody
in the group has got.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_MEANWHILE: Final = 0.05  # seconds in which a signal that was sent to all, or to all as well, has come to all
_PATIENCE: Final = 2.0  # seconds for its answer
_ONE: Final = 1.0  # seconds: who sends to the group may send to this process, too, as `timeout` does, and means one signal


class Bystander:
    """A process that is there to be asked which signals it has got."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = frozenset(numbers)
        self._shared: dict[int, float] = {}  # when the group has got a signal
        self.pid = 0

    def __enter__(self) -> Self:
        if not hasattr(os, "fork") or not hasattr(signal, "sigpending"):
            return self
        (theirs, self._ask), (self._answer, mine) = os.pipe(), os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        self.pid = os.fork()
        if not self.pid:
            os.close(self._ask)
            os.close(self._answer)
            _stand_by(theirs, mine, self._numbers)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(theirs)
        os.close(mine)
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.close(self._ask)  # at which it ends
            os.close(self._answer)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)

    def shares(self, number: int, pid: int) -> bool:
        """Whether a signal that this process has got was sent to the group of a process, and so to that one as well."""
        if not self.pid:
            return sys.stdin is not None and sys.stdin.isatty()  # as a terminal sends them, most likely
        time.sleep(_MEANWHILE)
        now = time.monotonic()
        self._shared |= dict.fromkeys(self._asked(), now)
        with suppress(ProcessLookupError):
            return os.getpgid(pid) == os.getpgrp() and now - self._shared.get(number, now - 2 * _ONE) < _ONE
        return False

    def _asked(self) -> bytes:
        """The signals that it has got since it was asked last."""
        try:
            os.write(self._ask, b"?")
            ready, _, _ = select.select([self._answer], [], [], _PATIENCE)
            return os.read(self._answer, 256)[1:] if ready else b""
        except OSError:
            return b""  # somebody has ended it


def _stand_by(asked: int, answer: int, numbers: frozenset[int]) -> None:
    """What the process does, until the one that asks is gone."""
    try:
        while os.read(asked, 1):
            got = signal.sigpending() & numbers
            for number in got:
                signal.sigwait({number})
            os.write(answer, bytes([0, *got]))
    finally:
        os._exit(0)
