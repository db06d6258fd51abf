"""Signals that end a process, and the steps that they must not cut in two: what is half started is not known to be removed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36


@contextmanager
def held() -> Iterator[None]:
    """Let the signals wait until the block is done. Those that end the process at once, or are ignored, are left as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, Any]] = []
    known = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in known:
        signal.signal(number, lambda *arrived: waiting.append(arrived))
    try:
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)
        for number, frame in waiting:
            known[number](number, frame)


@contextmanager
def blocked() -> Iterator[None]:
    """Keep the signals from this process, and from those that are forked in the block until they ask for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def welcome() -> None:
    """Take the signals that were kept from a forked process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def end_with(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Be asked to end, or be ended, when the parent has ended, whatever has ended it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(128 + signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can still be found below this process."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
