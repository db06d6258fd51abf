"""Calls a function of the user with made-up arguments: what it gives back, writes, prints, reads and leaves open."""

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
from oomlint.verify.child.measuring import handles, written_files
from oomlint.verify.child.measuring.digests import digest, generators, write
from oomlint.verify.child.server.exceptions import seed

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final = 20


def caller(path: str, root: str, function: str, state: Any, size: int = 0, *, passing: bool = False) -> Callable[[], Any]:
    """A call of the function, the generators set again. It raises Failed where the function raises.

    A generator is run, as the loop would that it is made for; ``passing`` lets go of each value when the next one comes.
    """
    from oomlint.verify.child.driving.trial import YIELDED, Target  # noqa: PLC0415
    from oomlint.verify.child.synthesis import file_specs, scale  # noqa: PLC0415 -- they import much

    scaled = scale.scale_to(state, size) if size else state
    file_specs.materialise(scaled)
    target = Target(path, root, function, dataset=False)

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


def measure(path: str, root: str, function: str, state: Any, size: int = 0, rows: list[int] | None = None, watched: str = "") -> dict[str, Any]:
    """Digests of what it gives back, prints and writes, bytes read, and handles left open."""
    return told(lambda: _measure(caller(path, root, function, state, size), rows or [], watched or path))


def _measure(call: Callable[[], Any], rows: list[int], watched: str) -> dict[str, Any]:
    run = handles.rows_run(call, watched, rows) if rows else []  # it also imports all that is imported on first use
    gc.collect()
    tops = (os.getcwd(), folder())
    before, start = written_files.files(tops), handles.opened()
    me = os.getpid()
    size = process_tree.read_bytes(me)
    gc.disable()
    printed = io.StringIO()
    with handles.reads() as reads, contextlib.redirect_stdout(printed):
        result = call()
    size = process_tree.read_bytes(me) - size
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
        "generators": random, "bytes_read": size, "reads": reads[0], "left": left, "rows": run,
    }  # fmt: skip


def repeated(path: str, root: str, function: str, state: Any, keep: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 -- a JSON keyword
    """Handles open after each of 20 calls. ``keep`` holds on to all that the calls give back."""
    return told(lambda: _repeated(caller(path, root, function, state, passing=not keep), keep=keep))


def _repeated(call: Callable[[], Any], *, keep: bool) -> dict[str, Any]:
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


def memory(path: str, root: str, function: str, state: Any, size: int = 0) -> dict[str, Any]:
    """The most bytes while it runs, and those that what it gives back holds."""
    return told(lambda: _memory(caller(path, root, function, state, size, passing=True), state))


def _memory(call: Callable[[], Any], state: Any) -> dict[str, Any]:
    from oomlint.verify.child.measuring.object_size import Held  # noqa: PLC0415 -- it imports a good part of torch

    with contextlib.redirect_stdout(io.StringIO()):
        call()
        with Held() as held:
            result = call()
            answer = {"peak": held.peak, "held": held.live}
            del result
    return {**answer, "data": size_of(state)}


def interrupted(path: str, root: str, function: str, state: Any) -> dict[str, Any]:
    """What an exception in the middle leaves open, as long as it is kept."""
    call = caller(path, root, function, state)

    def silent() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return call()

    silent()
    return told(lambda: handles.interrupted(silent, path, function.rpartition(".")[2]))
