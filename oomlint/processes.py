"""Spreads work over processes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from oomlint import plugins
from oomlint.checking import Checker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.checking import CheckJob

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_checker: Checker | None = None  # in a child process


def each(
    checker: Checker,
    method: Callable[[Checker, _Item], _Result],
    items: Sequence[_Item],
    worth: float,
    processes: int | None,
    together: Callable[[_Item], object] = lambda _: None,
) -> list[_Result]:
    """The results for all items, in their order, from as many processes as the work is worth; ``checker`` is the one of this process.

    Neighbours that belong ``together`` go to one process, which learns what they share once, where they are no more than its part of all.
    """
    number = processes or min(_processors(), round(worth))
    results: list[_Result] = []
    if number > 1 and len(items) > 1:
        # The system may allow no processes, or one is killed, for want of memory most likely: one at a time takes less.
        with suppress(ImportError, OSError, RuntimeError):
            _spread(checker.job, method, _bundles(items, number, together), number, results)
    results += [method(checker, item) for item in items[len(results) :]]
    return results


def _bundles(items: Sequence[_Item], number: int, together: Callable[[_Item], object]) -> Iterator[Sequence[_Item]]:
    """What is handed out at once, in order."""
    for _, group in groupby(items, together):
        found = [*group]
        size = len(found) if len(found) * number <= len(items) else max(1, len(items) // (4 * number))
        yield from (found[start : start + size] for start in range(0, len(found), size))


def _spread(job: CheckJob, method: Callable[[Checker, _Item], _Result], bundles: Iterable[Sequence[_Item]], number: int, results: list[_Result]) -> None:
    import multiprocessing  # noqa: PLC0415 - most runs need none of it
    import threading  # noqa: PLC0415
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

    # A fork is cheap and shares what is imported, and is sound only while there is one thread.
    fork = sys.platform == "linux" and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if fork else "spawn")
    with ProcessPoolExecutor(number, context, _begin, (job,)) as pool:
        try:
            for found in pool.map(partial(_in_child, method), bundles):
                results += found  # what has come before a failure is kept
        except (KeyboardInterrupt, SystemExit):
            for child in multiprocessing.active_children():
                child.terminate()  # else the pool waits until their work is done
            raise


def _begin(job: CheckJob) -> None:
    import gc  # noqa: PLC0415
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    global _checker  # noqa: PLW0603 - a process of the pool has no other place for it
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they end it at once; the parent speaks for all
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    gc.disable()  # as in the process that asks
    if plugins.used() != job.sources:  # no fork
        plugins.use(job.sources)
    _checker = Checker(job)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells nobody, and this process would wait for work for ever."""
    import multiprocessing  # noqa: PLC0415

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_child(method: Callable[[Checker, _Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    if _checker is None:
        raise RuntimeError("this process was not made to check files")
    return [method(_checker, item) for item in items]


def _processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
