"""Runs `main()` of training programs and tells what each has come to, in words that two runs can be compared by.

A server for tests/conftest.py: it imports torch once. A line of standard input is a JSON object: ``programs``, a list of pairs of a folder and a file
in it, which run at the same time, and ``limit``, seconds for each. The answer is a line with a list of objects, one for each program:

    error    what stopped it, null if nothing did
    result   what `main()` returned: a list of lines, one for each leaf, exact to the last bit
    printed  its standard output
    random   where the generators of torch, numpy and random stand afterwards

Every program has a process of its own, one thread, the same seeds, a clock that ticks when it is read, its folder as current folder, and no network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import itertools
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import PurePath
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import torch

SEED = 20
SHOWN = 4  # elements of a tensor or an array, for the reader of a failure


# -- what a value is, line by line -------------------------------------------------------------------------------------


def lines(value: object, path: str = "", around: tuple[int, ...] = ()) -> Iterator[str]:
    """One line for each leaf of a value: where it is, what it is. Two values are the same to the last bit if and only if their lines are.

    A set comes in the order of its lines. What a tensor would tell a backward pass is left out: a safe fix is there to end it. Raises TypeError for what
    cannot be compared.
    """
    if id(value) in around:
        raise TypeError(f"{path or 'the result'} holds itself")
    around = (*around, id(value))
    kind = type(value).__name__
    match value:
        case None | bool() | int() | str() | bytes() | range() | slice() | PurePath() | torch.dtype() | torch.device():
            yield f"{path}: {kind} {value!r}"
        case float():
            yield f"{path}: {kind} {number(value)}"
        case complex():
            yield f"{path}: {kind} {number(value.real)} {number(value.imag)}"
        case torch.Tensor():
            yield f"{path}: tensor {tensor(value)}"
        case np.ndarray() if value.dtype == object:
            yield f"{path}: {kind} object {value.shape}"
            yield from inside(enumerate(value.ravel().tolist()), path, around)
        case np.ndarray() | np.generic():
            yield f"{path}: {kind} {value.dtype} {value.shape} {digest(value.tobytes())} {value.ravel()[:SHOWN]}"
        case Mapping():
            yield f"{path}: {kind} of {len(value)}"
            yield from inside(((" ".join(lines(key)), item) for key, item in value.items()), path, around)
        case AbstractSet():
            yield f"{path}: {kind} of {len(value)}"
            yield from sorted(itertools.chain.from_iterable(lines(item, f"{path}{{}}", around) for item in value))
        case list() | tuple() | deque():
            yield f"{path}: {kind} of {len(value)}"
            yield from inside(enumerate(value), path, around)
        case torch.nn.Module():
            yield f"{path}: {kind} {'training' if value.training else 'evaluating'}"
            yield from inside(value.state_dict().items(), path, around)
        case _ if isinstance(value, ModuleType) or callable(value):
            raise TypeError(f"{path or 'the result'} is {value!r}, which cannot be compared")
        case _ if dataclasses.is_dataclass(value):
            yield f"{path}: {kind}"
            yield from inside(((field.name, getattr(value, field.name)) for field in dataclasses.fields(value)), path, around)
        case object(__dict__=attributes):
            yield f"{path}: {kind}"
            yield from inside(attributes.items(), path, around)
        case _:
            raise TypeError(f"{path or 'the result'} is {value!r}, which cannot be compared")


def inside(items: Iterable[tuple[object, object]], path: str, around: tuple[int, ...]) -> Iterator[str]:
    return itertools.chain.from_iterable(lines(item, f"{path}[{name}]", around) for name, item in items)


def number(value: float) -> str:
    """A float to the last bit. All not-a-numbers are one; zero has its sign."""
    return "nan" if value != value else value.hex()  # noqa: PLR0124 - a nan is what differs from itself


def tensor(value: Any) -> str:
    """Element type, shape, device and bytes; not whether it requires a gradient, nor its strides."""
    kind = f"{value.dtype} {tuple(value.shape)} {value.device}"
    if value.is_meta:
        return kind
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return f"{kind} {digest(plain.view(torch.uint8).numpy().tobytes())} {plain[:SHOWN].tolist()}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def generators() -> list[str]:
    """Where the generators of random numbers stand."""
    states = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}  # noqa: NPY002 - the one that programs share
    return [f"{name} {digest(' '.join(lines(state)).encode())}" for name, state in states.items()]


# -- one program -------------------------------------------------------------------------------------------------------


def refuse_network(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook. What is left are sockets between the processes of one machine: the workers of a loader speak through them."""
    if event == "socket.getaddrinfo" or (event in {"socket.connect", "socket.sendto"} and args[0].family != socket.AF_UNIX):
        raise PermissionError(f"no network here: {event} {args[1:]}")


def run(folder: str, file: str) -> dict[str, object]:
    """Run `main()` of a program in this process and say what it has come to."""
    path = os.path.join(folder, file)
    os.chdir(folder)
    sys.path[:0] = [os.path.dirname(path), folder]
    sys.argv = [path]
    sys.dont_write_bytecode = True
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the one that programs share
    torch.manual_seed(SEED)
    clock = map(float, itertools.count())
    time.time = time.perf_counter = lambda: next(clock)  # how long a step took is printed, and no two runs take the same time
    try:
        # A module by its own name, so that worker processes find its classes, however they are started.
        program = importlib.import_module(os.path.basename(file).removesuffix(".py"))
        result = list(lines(program.main()))
    except BaseException:  # noqa: BLE001 - sys.exit, too, is something that it can come to
        return {"error": traceback.format_exc(), "result": [], "random": []}
    return {"error": None, "result": result, "random": generators()}


class Run:
    """A piece of work in a process of its own."""

    def __init__(self, work: Callable[[], dict[str, object]], limit: float) -> None:
        self._end = time.monotonic() + limit
        self._limit = limit
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - likewise
        self._child = os.fork()
        if self._child == 0:
            self._do(work)

    def _do(self, work: Callable[[], dict[str, object]]) -> NoReturn:
        """What the process does."""
        status = 1
        try:
            os.setpgid(0, 0)  # so that its workers end with it
            os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
            os.dup2(self._printed.fileno(), sys.stdout.fileno())
            self._answer.write(json.dumps(work()).encode())
            self._answer.flush()
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)  # nothing of the server goes on here, and what it has open is not closed

    def outcome(self) -> dict[str, object]:
        """Wait for the end of the work, or end it when its time is over."""
        status = None
        while status is None and time.monotonic() < self._end:
            child, ended = os.waitpid(self._child, os.WNOHANG)
            status = ended if child else None
            if status is None:
                time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)  # itself, or workers that it has left
        if status is None:
            os.waitpid(self._child, 0)
        text = self._read(self._answer)
        cause = f"not done after {self._limit:g} s" if status is None else f"ended with status {os.waitstatus_to_exitcode(status)}"
        answer: dict[str, object] = json.loads(text) if text else {"error": cause, "result": [], "random": []}
        return {**answer, "printed": self._read(self._printed)}

    @staticmethod
    def _read(file: Any) -> str:
        with file:
            file.seek(0)
            return str(file.read().decode(errors="replace"))


def serve() -> None:
    torch.set_num_threads(1)  # before any fork: a process that has started threads must not be copied
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first optimizer imports torch's compiler: once, not in every program
    sys.addaudithook(refuse_network)
    for line in sys.stdin:
        wanted = json.loads(line)
        runs = [Run(partial(run, folder, file), wanted["limit"]) for folder, file in wanted["programs"]]
        print(json.dumps([each.outcome() for each in runs]), flush=True)  # noqa: T201 - how it answers


if __name__ == "__main__":
    serve()
