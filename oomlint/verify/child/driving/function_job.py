"""Calls a function of the user with made-up arguments: what it gives back, writes, prints, reads and leaves open.

A subject is as in :mod:`oomlint.verify.child.driving.dataset_job`, for a function that was found by search.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import process_tree
from oomlint.verify.child.driving.dataset_job import Failed, folder, size_of, told
from oomlint.verify.child.driving.trial import YIELDED, Target
from oomlint.verify.child.measuring import handles, written_files
from oomlint.verify.child.measuring.dataset_memory import LiveBytes
from oomlint.verify.child.measuring.digests import digest, generators, write
from oomlint.verify.child.server.exceptions import seed
from oomlint.verify.child.synthesis import file_specs, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final = 20


def caller(subject: dict[str, Any], size: int = 0, *, passing: bool = False) -> Callable[[], Any]:
    """A call of the function, the generators set again. It raises Failed where the function raises.

    A generator is run, as the loop would that it is made for; ``passing`` lets go of each value when the next one comes.
    """
    scaled = sizes.scale_to(subject["state"], size) if size else subject["state"]
    file_specs.materialise(scaled)
    target = Target(subject["path"], subject["root"], subject["name"], dataset=False)

    def call() -> Any:
        try:
            file_specs.materialise(scaled)
            made = target.make(scaled)
            seed()
            result = made()
            return (type(result).__name__, *deque(itertools.islice(result, YIELDED), 1 if passing else None)) if hasattr(result, "__next__") else result
        except (Exception, SystemExit) as error:
            raise Failed("the call", error) from error

    return call


@told
def measure(subject: dict[str, Any], size: int = 0, rows: list[int] | None = None) -> dict[str, Any]:
    """Digests of what it gives back, prints and writes, bytes read, and handles left open."""
    call = caller(subject, size)
    run = handles.rows_run(call, subject["path"], rows) if rows else []  # it also imports all that is imported on first use
    gc.collect()
    tops = (os.getcwd(), folder())
    before, start = written_files.files(tops), handles.opened()
    me = os.getpid()
    before_call = process_tree.read_bytes(me)
    gc.disable()
    printed = io.StringIO()
    with handles.reads() as reads, contextlib.redirect_stdout(printed):
        result = call()
    read = process_tree.read_bytes(me) - before_call
    random = generators()
    try:
        settled = handles.settled(result, folder())
        written = write(settled)
        answer = {"result": written.hash, "loose": digest(handles.settled(settled, folder(), loose=True)), "shown": written.told}
    except Exception as error:
        raise Failed("reading what it gives back", error) from error
    del result, settled
    left = handles.since(start)
    gc.enable()
    return {
        **answer, "printed": handles.placeless(printed.getvalue(), folder())[-4096:], "files": written_files.written(before, tops, folder()),
        "generators": random, "bytes_read": read, "reads": reads[0], "left": left, "rows": run,
    }  # fmt: skip


@told
def repeated(subject: dict[str, Any], *, keep: bool = False) -> dict[str, Any]:
    """Handles open after each of 20 calls. ``keep`` holds on to all that the calls give back."""
    call = caller(subject, passing=not keep)
    kept = []
    now = []
    with contextlib.redirect_stdout(io.StringIO()):
        call()
        gc.collect()
        gc.disable()
        for _ in range(CALLS):
            result = call()
            if keep:
                kept.append(result)
            del result
            now.append(handles.opened())
    return {name: [one[name] for one in now] for name in now[0]}


@told
def memory(subject: dict[str, Any], size: int = 0) -> dict[str, Any]:
    """The most bytes while it runs, and those that what it gives back holds."""
    call = caller(subject, size, passing=True)
    with contextlib.redirect_stdout(io.StringIO()):
        call()
        with LiveBytes() as held:
            result = call()
            answer = {"peak": held.peak, "held": held.live}
            del result
    return {**answer, "data": size_of(subject["state"])}


@told
def interrupted(subject: dict[str, Any]) -> dict[str, Any]:
    """What an exception in the middle leaves open, as long as it is kept."""
    call = caller(subject)

    def silent() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return call()

    silent()
    return handles.interrupted(silent, subject["path"], subject["name"].rpartition(".")[2])
