"""``oomlint verify``: its options. What it does with them is in :mod:`oomlint.cli.verifying`."""

from __future__ import annotations

from dataclasses import dataclass

from oomlint.cli.check import CONFIG, ended
from oomlint.cli.options import Color, choice, flag, several, text, with_environment, words
from oomlint.config import OutputFormat
from oomlint.finding import Confidence, Severity

_RUN, _RULES, _OUTPUT, _FILES = "How code is run", "Rules", "Output", "Files and settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Run the code before and after each fix in a sandbox, measure both, and say whether the fix helps.

    The exit status is 0 where no fix makes anything worse, 1 where one does (with --strict also where nothing could be found out) or a file could not be
    checked, 2 for wrong options or settings, for a line without a finding, and for errors of oomlint itself. Nothing of the project is changed.
    """

    paths: tuple[str, ...] = words(
        "Files and folders, or single findings as `PATH:LINE`, `PATH:LINE-LINE` and `NOTEBOOK:CELL:LINE`. The current folder by default.", "PATH[:LINE]"
    )

    python: str | None = text("The interpreter to run code under; that of the project's virtual environment by default.", _RUN, "PATH")
    command: str | None = text(
        "Run this command of yours, such as `python train.py --epochs 1`, in a copy of the project's root, before and after each fix.", _RUN, "COMMAND"
    )
    factory: str | None = text("Take the dataset that this function of yours makes.", _RUN, "MODULE:FUNCTION")
    after: str | None = text("Judge this edited file, or the edited files below this folder, in place of oomlint's own fixes.", _RUN, "PATH")
    time_limit: str | None = text("The time that one run may take, such as `500ms`, `5s` or `2m`; `5s` by default.", _RUN, "TIME")
    memory_cap: str | None = text("The memory that one run and all its processes may take, such as `2GiB`, the default.", _RUN, "SIZE")
    disk_cap: str | None = text("What one run may write to disk, such as `2GiB`, the default.", _RUN, "SIZE")
    repeat: str | None = text("How often to repeat what is measured with noise; 3 by default.", _RUN, "N")
    keep: str | None = text("Keep the copies of the project, in a temporary folder or in DIR: `--keep=DIR`.", _RUN, "[DIR]", bare="")
    trust: bool = flag("Let the project's settings and its virtual environment name what is run and let through.", _RUN)
    pass_env: tuple[str, ...] = several("Give the code this environment variable too; `WANDB_*` stands for all that begin so.", _RUN, "NAME")
    read: tuple[str, ...] = several("Let the code read this file or folder too, such as data that lie elsewhere.", _RUN, "PATH")
    unsandboxed: bool = flag("Run code also where the system has no sandbox.", _RUN)
    explain_sandbox: bool = flag("Show what of this machine is closed to the code that is run, and by what, and run nothing.", _RUN)

    select: tuple[str, ...] = several("Codes and prefixes of the rules to verify, in place of those in the settings.", _RULES, "CODES")
    ignore: tuple[str, ...] = several("Codes and prefixes of rules to leave out.", _RULES, "CODES")
    extend_select: tuple[str, ...] = several("Codes and prefixes of rules to verify beside the others.", _RULES, "CODES")
    preview: bool = flag("Verify also what rules in preview find.", _RULES, variable="OOMLINT_PREVIEW")
    no_preview: bool = flag("Leave out the rules that are in preview, whatever the settings say.", _RULES)
    severity: Severity | None = choice("The lowest severity to verify; `warning` unless the settings say otherwise.", _RULES, Severity)
    min_confidence: Confidence | None = choice("The lowest confidence to verify; `medium` unless the settings say otherwise.", _RULES, Confidence)

    output_format: OutputFormat = choice("How verdicts are written.", _OUTPUT, OutputFormat, OutputFormat.FULL)
    output_file: str | None = text("Write the report to a file.", _OUTPUT, "FILE", short="-o")
    html: str | None = text("Write a page with charts to a file, beside the report.", _OUTPUT, "FILE")
    strict: bool = flag("Exit with 1 also where something is inconclusive.", _OUTPUT)
    color: Color = choice("When to colour the output.", _OUTPUT, Color, Color.AUTO)
    quiet: bool = flag("Show verdicts and nothing else.", _OUTPUT, "-q")

    config: tuple[str, ...] = several(CONFIG, _FILES, "FILE|KEY=VALUE")
    isolated: bool = flag("Ignore all settings files.", _FILES)
    no_baseline: bool = flag("Verify what a baseline knows, too: this is done with and without it.", _FILES)
    force_exclude: bool = flag("Apply excludes also to the paths given.", _FILES)
    no_cache: bool = flag("Neither read nor write the cache.", _FILES)


def perform(arguments: Arguments) -> int:
    """Verify, report, and return the exit status."""
    from oomlint.cli import verifying  # noqa: PLC0415 - brings the parser, which help does not need
    from oomlint.verify.jobs import SandboxError  # noqa: PLC0415

    return ended(lambda: verifying.verify(with_environment(arguments)), SandboxError)
