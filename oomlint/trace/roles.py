"""What a process of a training is there for: told from its command line, its environment and what it calls itself."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.trace.timeline import ProcessRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What the standard library and torch write into the command lines and names of the processes that they start.
_SPAWN, _SERVER, _TRACKER = "multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker"
LOADER_WORKER: Final = "pt_data_worker"
_RANKS: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*t?(?:\.exe)?")


class About(NamedTuple):
    """What the system tells of a process."""

    words: tuple[str, ...] = ()
    thread: str = ""
    variables: Mapping[str, str] = {}
    folder: str = ""


def start_method(words: Sequence[str], parent: Sequence[str]) -> str:
    """How multiprocessing has started a process; empty where it has not, or where it is a server of its own."""
    text = " ".join(words)
    if _SPAWN in text:
        return "spawn"
    if _SERVER in text:
        return "forkserver" if tuple(words) == tuple(parent) else ""
    if words and tuple(words) == tuple(parent) and is_python(words):
        return "fork"
    return ""


def role_of(process: About, parent: About) -> tuple[ProcessRole, str, int | None]:
    """The role of a process, how it was started where it is a worker, and its rank where it has one of its own."""
    method = start_method(process.words, parent.words)
    if method or process.thread == LOADER_WORKER:
        return ProcessRole.WORKER, method or "fork", None
    text = " ".join(process.words)
    if _TRACKER in text or _SERVER in text:
        return ProcessRole.HELPER, "", None
    mine = rank_of(process.variables)
    if mine is not None and mine != rank_of(parent.variables) and is_python(process.words):
        return ProcessRole.RANK, "", mine
    return ProcessRole.OTHER, "", None


def rank_of(variables: Mapping[str, str]) -> int | None:
    """The rank that a launcher gives to a process."""
    return next((int(variables[name]) for name in _RANKS if variables.get(name, "").isdecimal()), None)


def is_python(words: Sequence[str]) -> bool:
    """Whether a command line runs Python."""
    return bool(words) and _PYTHON.fullmatch(os.path.basename(words[0])) is not None


def script_of(words: Sequence[str]) -> tuple[str, str]:
    """The script, or the module, that a command line runs under Python: a path and nothing, or nothing and a dotted name."""
    waiting = list(words[1:]) if is_python(words) else []
    while waiting:
        word = waiting.pop(0)
        if word == "-m":
            return "", waiting[0] if waiting else ""
        if word == "-c":
            return "", ""
        if word in {"-X", "-W", "--check-hash-based-pycs"}:
            del waiting[:1]
        elif not word.startswith("-") and word:
            return word, ""
    return "", ""
