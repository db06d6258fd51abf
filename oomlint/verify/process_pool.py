"""Processes that verify cases side by side, each with runners of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final

from oomlint.config import ConfigError
from oomlint.verify import signals
from oomlint.verify.jobs import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from types import FrameType

    from oomlint.verify.case import Case, Verdict

    Make = Callable[[ExitStack], Callable[[Case], Verdict]]

_END_SECONDS: Final = 20.0  # a process that has not put its things away by then is killed; the servers end by themselves when it is gone


def possible() -> bool:
    """Whether this process may be forked: it has one thread, and the system has forks."""
    return sys.platform == "linux" and threading.active_count() == 1


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(cases: Sequence[Case], make: Make, number: int, begin: Callable[[Case], None]) -> Iterator[tuple[int, Verdict]]:
    """The verdicts on cases with their indices, as they come, from ``number`` processes.

    ``make`` is called in each process, and gives what verifies a case; what it enters into the stack is left at the end. Raises SandboxError.
    """
    context = multiprocessing.get_context("fork")
    members: dict[Connection, multiprocessing.process.BaseProcess] = {}
    waiting = iter(range(len(cases)))
    try:
        for index in waiting:
            ours, theirs = context.Pipe()
            process = context.Process(target=_member, args=(cases, make, theirs, [ours, *members], os.getpid()))
            with signals.blocked():  # until it has handlers of its own, and we know of it
                process.start()
                theirs.close()
                members[ours] = process
            begin(cases[index])
            ours.send(index)
            if len(members) == number:
                break
        busy = set(members)
        while busy:
            for pipe in [each for each in wait(list(busy)) if isinstance(each, Connection)]:
                done, verdict = _answer(pipe)
                following = next(waiting, None)
                if following is None:
                    busy.discard(pipe)
                else:
                    begin(cases[following])
                    pipe.send(following)
                yield done, verdict
    finally:
        with signals.held():
            _dismiss(members)


def _answer(pipe: Connection) -> tuple[int, Verdict]:
    try:
        answer: tuple[int, Verdict] | str = pipe.recv()
    except (EOFError, OSError):
        raise SandboxError("a process that verifies fixes has ended before its time") from None
    if isinstance(answer, str):
        raise SandboxError(answer)
    return answer


def _dismiss(members: dict[Connection, multiprocessing.process.BaseProcess]) -> None:
    """End the processes: those that wait for work by the end of their pipe, the others by a signal."""
    for pipe, process in members.items():
        with contextlib.suppress(OSError):
            pipe.close()
        process.terminate()
    for process in members.values():
        process.join(_END_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _member(cases: Sequence[Case], make: Make, pipe: Connection, others: list[Connection], parent: int) -> None:
    """What a process does: verify the cases that it is told to, and put its things away."""
    for number in signals.ENDING:
        signal.signal(number, _leave if number == signal.SIGTERM else signal.SIG_IGN)  # the parent speaks for all, and ends all
    signals.welcome()
    signals.end_with(parent)
    for other in others:
        other.close()  # else no one would see the end of it
    with contextlib.ExitStack() as stack:
        try:
            verify = make(stack)
            while True:
                index = pipe.recv()
                pipe.send((index, verify(cases[index])))
        except (ConfigError, SandboxError) as error:
            with contextlib.suppress(OSError):
                pipe.send(str(error))
        except (EOFError, OSError):
            pass  # the parent needs no more
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is put away now must not be left half done


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
