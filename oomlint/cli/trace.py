"""``oomlint trace``: its options. What it does with them is in :mod:`oomlint.cli.tracing`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oomlint.cli.check import ended
from oomlint.cli.options import Color, choice, flag, rest, text


class TraceFormat(StrEnum):
    """How the report is written."""

    FULL = "full"
    JSON = "json"


_RUN, _OUTPUT, _FILES = "How the command is run", "Output", "Files and settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Run a command of yours, watch the memory of all its processes, and say what grows and which findings explain it.

    The command runs in place, unlimited and not in a sandbox: `oomlint trace -- python train.py`. The exit status is the command's, 128 and the number of the
    signal where one has ended it; 127 and 126 for a command that cannot be started, 2 for wrong options.
    """

    command: tuple[str, ...] = rest("The command, with its own options; `--` before it where it begins with `-`.", "COMMAND...")

    interval: str | None = text("The time between two readings, such as `0.2` or `500ms`; `0.2` by default, more where reading takes long.", _RUN, "TIME")
    overhead: str | None = text("How much of one core reading may take, such as `10%`; `2%` by default.", _RUN, "PERCENT")
    deep: bool = flag("Have tracemalloc watch which lines take the memory that grows. It makes Python slower.", _RUN)
    follow: bool = flag("Watch what the command leaves running, too, until it ends or Ctrl-C is pressed.", _RUN)

    html: str | None = text("Write a page with charts to a file, beside the report.", _OUTPUT, "FILE")
    output_format: TraceFormat = choice(
        "How the report is written: `full`, to standard error, or `json`, to standard output; what the command writes there goes to standard error then.",
        _OUTPUT,
        TraceFormat,
        TraceFormat.FULL,
        "FORMAT",
    )
    output_file: str | None = text("Write the report to a file; `-` is standard output.", _OUTPUT, "FILE", short="-o")
    color: Color = choice("When to colour the output.", _OUTPUT, Color, Color.AUTO)
    quiet: bool = flag("Show no line while the command runs.", _OUTPUT, "-q")

    isolated: bool = flag("Ignore all settings files.", _FILES)


def perform(arguments: Arguments) -> int:
    """Run, watch, report, and return the command's exit status."""
    from oomlint.cli import tracing  # noqa: PLC0415 - brings the rules, which help does not need

    return ended(lambda: tracing.trace(arguments))
