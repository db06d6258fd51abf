"""``oomlint budget``: its options. What it does with them is in :mod:`oomlint.cli.budgeting`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oomlint.cli.check import ended
from oomlint.cli.options import choice, flag, several, text, words


class BudgetFormat(StrEnum):
    """How a budget is written."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


class StartMethod(StrEnum):
    """How worker processes start."""

    FORK = "fork"
    SPAWN = "spawn"
    FORKSERVER = "forkserver"


_RUN, _LIMITS, _OUTPUT = "What is run", "Limits", "Output and settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Add up before a training runs how much memory each part of it will hold, and say whether that fits. None of its code is executed.

    The exit status is 0 where it fits as far as is known, 1 where it does not, 2 for what cannot be read, for wrong options or settings, and for errors of
    oomlint itself.
    """

    paths: tuple[str, ...] = words(
        'A script or notebook, a folder, a command in quotes such as "torchrun --nproc_per_node 8 train.py --num_workers 4", or a file that holds commands: '
        "a shell or batch script, a Makefile or Dockerfile, a compose file, a manifest of Kubernetes. The current folder by default.",
        "SCRIPT|DIR|FILE|COMMAND",
    )

    set: tuple[str, ...] = several("The number or size that a name of a formula, or a setting such as `num_workers`, stands for.", _RUN, "NAME=VALUE")
    data: tuple[str, ...] = several(
        "A data file (.h5, .npy, .npz, .pt, .safetensors, .parquet), whose header says the shapes of what is read from it, or a folder.", _RUN, "FILE"
    )
    ranks: str | None = text("The number of processes that train together on the machine, in place of what the command or the code says.", _RUN, "N")
    start_method: StartMethod | None = choice("How workers start, in place of what the code or the system says.", _RUN, StartMethod)

    ram: str | None = text("The memory of the machine, such as `12GiB` or `12GB`; by default that of the control group, or of this one.", _LIMITS, "SIZE")
    shm: str | None = text("The size of /dev/shm, such as `64MiB`; by default that of this machine.", _LIMITS, "SIZE")

    descriptors: str | None = text("The files that a process may have open; by default what `ulimit -n` says.", _LIMITS, "N")
    vram: str | None = text("The memory of one device, such as `40GiB`; without it nothing is said of whether it fits there.", _LIMITS, "SIZE")
    profile: str | None = text("A machine that many train on, such as `colab-free`, in place of this one; docs/budget.md lists them.", _LIMITS, "NAME")

    diff: bool = flag("Print the change that would make it fit, where the code writes the number of workers, prefetched batches or the batch size.", _OUTPUT)
    output_format: BudgetFormat = choice(
        "How it is written: `table`, `json`, or `html`, a page that stands alone.", _OUTPUT, BudgetFormat, BudgetFormat.TABLE, "FORMAT"
    )
    output_file: str | None = text("Write the report to a file.", _OUTPUT, "FILE", short="-o")
    config: str | None = text("The settings file, in place of the nearest one.", _OUTPUT, "FILE")
    isolated: bool = flag("Ignore all settings files.", _OUTPUT)


def perform(arguments: Arguments) -> int:
    """Add up, report, and return the exit status."""
    from oomlint.budget.mistakes import BudgetError  # noqa: PLC0415 - help does not need it
    from oomlint.cli.budgeting import budget  # noqa: PLC0415 - brings the parser

    return ended(lambda: budget(arguments), BudgetError)
