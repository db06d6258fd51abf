"""The line that shows a trace while it runs, on the last row of the terminal: what the command writes scrolls above it."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from oomlint.output import trace_words
from oomlint.output.summary import count
from oomlint.output.view import visible
from oomlint.trace.timeline import MarkKind, ProcessRole

if TYPE_CHECKING:
    from oomlint.trace.timeline import Trace

_BETWEEN: Final = 0.5  # seconds between two drawings
_LEAST_ROWS: Final = 5


def line(trace: Trace) -> str:
    """What holds now."""
    if not trace.samples or trace.peak is None:
        return "starting"
    now = trace.samples[-1]
    parts = [f"{trace_words.moment(now.at)}  {trace_words.size(now.total)} (at most {trace_words.size(trace.peak.total)})"]
    workers = [index for index in now.processes if trace.processes[index].role is ProcessRole.WORKER]
    if workers:
        held = sum(now.processes[index].held for index in workers)
        parts.append(f"{count(len(workers), 'worker')} {trace_words.size(held)}")
    else:
        parts.append(count(len(now.processes), "process", "processes"))
    if trace.group_limit is not None and now.group is not None:
        parts.append(f"cgroup {trace_words.size(now.group)} of {trace_words.size(trace.group_limit)}")
    if now.device:
        parts.append(f"device {trace_words.size(now.device)}")
    parts.append(f"{max(figures.descriptors for figures in now.processes.values())} descriptors" if now.processes else "")
    parts += [f"{kind.value} {found[-1].number}" for kind in (MarkKind.EPOCH, MarkKind.STEP) if (found := trace.of_kind(kind))]
    return "  ".join(filter(None, parts))


class Live:
    """Draws the line. The rows above it are a scrolling region of their own, as long as this is open."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows = 0
        self._next = 0.0

    def __call__(self, trace: Trace) -> None:
        """Draw it, unless that was done just now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _BETWEEN
        columns, rows = _size(self._stream)
        if rows < _LEAST_ROWS:
            return
        text = visible(f"oomlint trace  {line(trace)}")[: columns - 1]
        # Make room below what is there; then keep the last row out of the scrolling, put the cursor back, and draw.
        opening = f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A" if rows != self._rows else ""
        self._rows = rows
        self._write(f"{opening}\x1b7\x1b[{rows};1H\x1b[7m{text}\x1b[0m\x1b[K\x1b8")

    def close(self) -> None:
        """Give the row back."""
        if self._rows:
            self._write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[K\x1b8")
            self._rows = 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _size(stream: TextIO) -> os.terminal_size:
    """Columns and rows."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno())
    return shutil.get_terminal_size()
