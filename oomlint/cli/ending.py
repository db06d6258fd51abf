"""A process that is asked to end does so in order: what it has started, and what it was writing, is removed first."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from oomlint.plugins import Terminated

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise SystemExit with the status that shells give them, unless somebody else has spoken for them."""

    def end(number: int, _: object) -> NoReturn:
        raise Terminated(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    known = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if known[number] is signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in known.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)
