"""What a command gives to the program that it starts: memory, shared memory, processors, open files, by SLURM, Docker, compose and the shell."""

from __future__ import annotations

import os
import re
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final

from oomlint import amounts
from oomlint.budget.command import nodes, options_of
from oomlint.budget.limits import JobResources, Limit
from oomlint.budget.mistakes import BudgetError
from oomlint.memory.loaders import job_limits
from oomlint.model.yaml_nodes import member

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.finding import Place
    from oomlint.model.commands import Command

    Named = Callable[[str], str]

TYPED: Final = "command.sh"  # a command of the command line is read as a script of one line
_COUNT: Final = re.compile(r"[1-9]\d{0,8}")
_MEMORY: Final = re.compile(r"(\d{1,12}(?:\.\d+)?)([KMGT]?)B?", re.IGNORECASE)
_ULIMIT: Final = re.compile(r"(?:^|[;&|({'\"])[ \t]*ulimit[ \t]+-[SH]*n[ \t]+(\d+)", re.MULTILINE)
_PROGRAMS: Final = ("python", "torchrun", "accelerate", "deepspeed")
_STARTS_JOBS: Final = frozenset({"srun", "sbatch", "salloc"})


def given(one: Command, name: Named) -> JobResources:
    """All of it; None where nobody says. Raises BudgetError for memory that is no size."""
    broken = job_limits.broken_size(one)
    if broken is not None:
        raise BudgetError(f"{spot(broken[0], name)}: {broken[1]!r} is no size of memory, such as 2g")
    ram, shm, cores = _slurm_memory(one, name) or _limit(job_limits.memory(one), name), job_limits.shared_memory(one), job_limits.processors(one)
    return JobResources(ram, _limit(shm, name), cores.amount if cores is not None else None, files=_files(one, name))


def tasks(one: Command) -> int | None:
    """The processes that ``srun`` starts on one machine."""
    found = job_limits.tasks(one)
    job, step = _batch(one), slurm(one)
    if found is None or any(option == "--ntasks-per-node" for option in (*step, *(() if {"-n", "--ntasks"} & step.keys() else job))):
        return found
    return max(1, found // nodes({**job, **step}))


def slurm(one: Command) -> dict[str, str]:
    """The options of ``srun`` and ``sbatch`` in front of the program."""
    words = [word.text for word in (*one.outer, *one.parts)]
    start = next((number for number, word in enumerate(words) if word in _STARTS_JOBS), len(words))
    return options_of(list(takewhile(lambda word: not os.path.basename(word).startswith(_PROGRAMS) and not word.endswith(".py"), words[start:])))


def memory_of(options: dict[str, str]) -> int | None:
    """Bytes that options of SLURM give a job on one machine."""
    for option, times in (("--mem", 1), ("--mem-per-gpu", _devices(options))):
        found = _MEMORY.fullmatch(options.get(option, ""))
        if found is not None and times and float(found[1]):
            return amounts.size(f"{found[1]}{found[2] or 'M'}") * times  # Slurm counts in units of 1024
    return None


def _devices(options: dict[str, str]) -> int:
    """The devices of a job on one machine; 0 where nobody says."""
    texts = (options.get(option, "").rpartition(":")[2] for option in ("--gpus-per-node", "--gres"))
    return next((int(text) for text in texts if _COUNT.fullmatch(text)), 0)


def _batch(one: Command) -> dict[str, str]:
    return {option: word.text for option, word in one.text.batch_options}


def _slurm_memory(one: Command, name: Named) -> Limit | None:
    """What the step asks for, or the job by its devices."""
    step = slurm(one)
    size = memory_of(step)
    if size is not None:
        return Limit(size, spot(one.place, name))
    word = next((word for option, word in one.text.batch_options if option == "--mem-per-gpu"), None)
    size = memory_of(_batch(one) | step) if word is not None else None
    return Limit(size, spot(one.text.place(word.start, word.end), name)) if size is not None and word is not None else None


def _files(one: Command, name: Named) -> Limit | None:
    """The descriptors that a process may have: by the service, by the container, by ``ulimit -n`` in front of the command."""
    if one.service is not None:
        node = member(member(one.service.node, "ulimits"), "nofile")
        node = member(node, "soft") or node
        text = str(getattr(node, "value", ""))
        return Limit(int(text), spot(one.service.place_of(node), name), text) if _COUNT.fullmatch(text) else None
    words = [word.text for word in (*one.outer, *one.parts)]
    found = [after if word == "--ulimit" else word.partition("=")[2] for word, after in pairwise([*words, ""]) if word.startswith("--ulimit")]
    soft = next((text.partition("=")[2].partition(":")[0] for text in found if text.startswith("nofile=")), "")
    written = _ULIMIT.findall(one.text.content[: one.parts[0].start])
    text = soft or (written[-1] if written else "")
    return Limit(int(text), spot(one.place, name), text) if _COUNT.fullmatch(text) else None


def _limit(found: job_limits.JobLimit | None, name: Named) -> Limit | None:
    if found is None:
        return None
    where = spot(found.place, name)
    untold = "what a container has that is told nothing"
    return Limit(int(found.amount), (untold if found.place.path == TYPED else f"{untold}, {where}") if found.default else where)


def spot(place: Place, name: Named) -> str:
    """Where a limit is written."""
    return "the command" if place.path == TYPED else f"{name(place.path)}:{f'{place.cell}:' if place.cell else ''}{place.row}"
