# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Runs trials in processes of their own, and climbs from trial to trial."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.server.exceptions import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT: Final = 2.0  # seconds for one trial
HOPELESS: Final = 16  # trials after which a library that is missing decides
STALLED: Final = 3  # steps in a row to a new message that bring a trial no further

State = dict[str, Any]
Result = dict[str, Any]


def forked(function: Callable[[], Any], seconds: float = LIMIT, processor: float = 0.0) -> Any:
    """Run a function in a process of its own, and give back its JSON or how it failed, as :class:`TrialProcess` does."""
    process = TrialProcess(lambda _: function(), seconds, 1, processor)
    answer = process({})
    process.close()
    return answer


class TrialProcess:
    """A forked process that runs trials one after the other: a fork takes ten times as long as a trial. It is renewed after a few, and after a crash.

    A trial that raises gives ``{"crash": words}``; one that takes longer than ``seconds``, or more of a ``processor``, or that ends the process also ``late``.
    """

    def __init__(self, function: Callable[[State], Result], seconds: float = LIMIT, most: int = 24, processor: float = 0.0) -> None:
        self.function, self.seconds, self.most, self.processor = function, seconds, most, processor
        self.child = self.left = 0
        self.ask = self.hear = -1

    def __call__(self, state: State) -> Result:
        if not self.left:
            self.close()
            self._begin()
        self.left -= 1
        data = json.dumps(state).encode() + b"\n"
        received = b""
        late = False
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.ask, data) :]
            until = time.monotonic() + self.seconds
            while not received.endswith(b"\n"):
                late = not select.select([self.hear], [], [], max(0.0, until - time.monotonic()))[0]
                block = b"" if late else os.read(self.hear, 1 << 16)
                if not block:
                    break
                received += block
        if received.endswith(b"\n"):
            answer: Result = json.loads(received)
            return answer
        status = self.close()
        late = late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF)
        return {"crash": f"a trial took more than {self.seconds:g} s" if late else f"the process ended with status {status}", "late": late}

    def _begin(self) -> None:
        questions, self.ask = os.pipe()
        self.hear, answers = os.pipe()
        self.left = self.most
        self.child = os.fork()
        if self.child == 0:
            os.close(self.ask)
            os.close(self.hear)
            self._serve(questions, answers)
        os.close(questions)
        os.close(answers)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(self.child, self.child)

    def close(self) -> int:
        """End its processes. Gives the status of the first one."""
        if not self.child:
            return 0
        os.close(self.ask)
        os.close(self.hear)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        self.child = self.left = 0
        return status

    def _serve(self, questions: int, answers: int) -> None:
        try:
            os.setpgid(0, 0)
            if self.processor:
                signal.signal(signal.SIGPROF, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_PROF, self.processor)
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            with os.fdopen(questions, "rb") as stream:
                for line in stream:
                    try:
                        answer = self.function(json.loads(line))
                    except BaseException as error:  # noqa: BLE001 -- the user's code raises what it likes
                        answer = {"crash": words(error)}
                    data = json.dumps(answer, default=str).encode() + b"\n"
                    while data:
                        data = data[os.write(answers, data) :]
        finally:
            os._exit(0)


@dataclass(slots=True)
class ClimbResult:
    """The best state of a climb."""

    state: State
    result: Result
    works: bool
    seconds: float


def score(result: Result) -> tuple[int, int, int]:
    """How far a trial came: stage, rows of the user's that ran, items read."""
    return (-1, 0, 0) if "crash" in result else (result["stage"], result["lines"], result.get("items", 0))


def climb(
    trial: Callable[[State], Result],
    state: State,
    moves: Callable[[State, Result], Iterator[tuple[State, bool]]],
    seconds: float,
    trials: int,
    done: Callable[[Result], bool] = lambda result: bool(result.get("works")),
) -> ClimbResult:
    """Take the first move that brings a trial further, again and again. The same state gives the same climb, but for the seconds."""
    start = time.monotonic()
    count, stalled = 1, 0
    first = json.dumps(state, sort_keys=True)
    best = trial(state)
    state = best.get("state", state)
    messages, exact = {_message(best)}, {str(best.get("error"))}
    tried = {first}

    def spent() -> bool:
        return count >= trials or time.monotonic() - start > seconds or bool(best.get("missing") and count > HOPELESS)

    while not done(best) and not spent():
        aside: tuple[State, Result] | None = None
        for other, sure in moves(state, best):
            text = json.dumps(other, sort_keys=True)
            if text in tried:
                continue
            tried.add(text)
            if spent():
                break
            result = trial(other)
            count += 1
            if score(result) > score(best) or done(result):
                state, best, stalled = result.get("state", other), result, 0
                break
            if sure and score(result) == score(best) and result.get("error") not in exact:
                state, best = result.get("state", other), result
                break
            if aside is None and score(result) == score(best) and _message(result) not in messages:
                aside = (result.get("state", other), result)
        else:
            if aside is None or stalled >= STALLED:
                break
            state, best = aside
            stalled += 1
        messages.add(_message(best))
        exact.add(str(best.get("error")))
    return ClimbResult(state, best, bool(best.get("works")), time.monotonic() - start)


def _message(result: Result) -> str:
    return re.sub(r"\d+", "#", str(result.get("error") or result.get("crash") or ""))


def inventory(folder: str) -> set[str]:
    """Every path in a folder."""
    return {os.path.join(above, name) for above, inner, names in os.walk(folder) for name in (*inner, *names)}


def restore(folder: str, before: set[str]) -> None:
    """Remove what was not there before."""
    for path in sorted(inventory(folder) - before):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
