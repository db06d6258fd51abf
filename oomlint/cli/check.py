"""``oomlint check``."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oomlint import plugins
from oomlint.cli.ending import ending_in_order
from oomlint.cli.options import Color, choice, flag, several, text, words
from oomlint.config import ConfigError, OutputFormat, Settings, Sort
from oomlint.finding import Confidence, Severity
from oomlint.output.view import View, visible
from oomlint.registry import catalogue, chosen, codes, idle, is_known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.checking import Failure
    from oomlint.cli import verify
    from oomlint.config import Local
    from oomlint.engine import CheckReport


_FIXES, _RULES, _OUTPUT, _KNOWN, _FILES = "Fixes", "Rules", "Output", "Known findings", "Files and settings"


CONFIG = "The settings file instead of the nearest one; or a setting, such as `worker-limit = 8` or `verify.time-limit = '2s'`, that takes precedence over it."


class Verify(StrEnum):
    """What becomes of fixes that are not confirmed."""

    CONFIRMED = "confirmed"  # they are not applied
    STRICT = "strict"  # the run fails, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Check files for memory bugs. None of their code is executed, unless --verify or the setting `local-rules` asks for it.

    The exit status is 0 where all is clean or fixed, 1 for findings and for files that cannot be read, 2 for wrong options or settings and for errors of
    oomlint itself.
    """

    paths: tuple[str, ...] = words("Files and folders to check, or `-` for standard input. The current folder by default.", "PATHS")

    fix: bool = flag("Apply safe fixes.", _FIXES)
    no_fix: bool = flag("Apply no fixes, whatever the settings say.", _FIXES)
    fix_only: bool = flag("Apply safe fixes, and report nothing that is left.", _FIXES)
    unsafe_fixes: bool = flag("With --fix or --diff, apply unsafe fixes too: numerics, order or memory layout may change.", _FIXES)
    no_unsafe_fixes: bool = flag("Apply no unsafe fixes, whatever the settings say.", _FIXES)
    diff: bool = flag("Show what --fix would change, and write nothing.", _FIXES)
    show_fixes: bool = flag("List what was fixed.", _FIXES)
    fixable: tuple[str, ...] = several("Rules whose fixes may be applied, in place of those in the settings.", _FIXES, "CODES")
    extend_fixable: tuple[str, ...] = several("Rules whose fixes may be applied beside the others.", _FIXES, "CODES")
    unfixable: tuple[str, ...] = several("Rules whose fixes are shown and not applied.", _FIXES, "CODES")
    verify: Verify | None = choice(
        "With --fix or --diff, run the code before and after each fix and apply only what is confirmed; `--verify=strict` exits with 1 for the rest.",
        _FIXES,
        Verify,
        metavar="[=strict]",
        bare=Verify.CONFIRMED,
    )
    trust: bool = flag("With --verify, let the project's settings and its virtual environment name what is run.", _FIXES)

    select: tuple[str, ...] = several("Codes, prefixes and names of the rules to check, in place of those in the settings.", _RULES, "CODES")
    ignore: tuple[str, ...] = several("Codes, prefixes and names of rules to leave out.", _RULES, "CODES")
    extend_select: tuple[str, ...] = several("Codes, prefixes and names of rules to check beside the others.", _RULES, "CODES")
    preview: bool = flag("Check also the rules that are in preview.", _RULES, variable="OOMLINT_PREVIEW")
    no_preview: bool = flag("Leave out the rules that are in preview, whatever the settings say.", _RULES)
    per_file_ignores: tuple[str, ...] = several("Rules to leave out in files that match a pattern, in place of those in the settings.", _RULES, "PATTERN:CODES")
    extend_per_file_ignores: tuple[str, ...] = several("The same, beside those in the settings.", _RULES, "PATTERN:CODES")
    no_local_rules: bool = flag("Load no rules from files of the project, whatever the settings say.", _RULES)
    severity: Severity | None = choice("The lowest severity to show; `warning` unless the settings say otherwise.", _RULES, Severity)
    min_confidence: Confidence | None = choice("The lowest confidence to show; `medium` unless the settings say otherwise.", _RULES, Confidence)

    output_format: OutputFormat | None = choice(
        "How findings are written; `full` unless the settings say otherwise.", _OUTPUT, OutputFormat, variable="OOMLINT_OUTPUT_FORMAT"
    )
    sort: Sort | None = choice(
        "The order of findings: `place`, or `weight`, the gravest and heaviest first; `place` unless the settings say otherwise.", _OUTPUT, Sort
    )
    limit: str | None = text("Show at most so many findings; the number left out is shown.", _OUTPUT, "N")
    output_file: str | None = text("Write the report to a file.", _OUTPUT, "FILE", variable="OOMLINT_OUTPUT_FILE", short="-o")
    statistics: bool = flag("Show how often each rule fires, instead of the findings.", _OUTPUT)
    watch: bool = flag("Check again whenever a file has changed; needs the extra `watch`.", _OUTPUT, "-w")
    color: Color = choice("When to colour the output.", _OUTPUT, Color, Color.AUTO)
    quiet: bool = flag("Show findings and errors, without the summary and hints.", _OUTPUT, "-q")
    verbose: bool = flag("Say which settings, rules and files a run has, and how long it takes; show all related places and all rows of a fix.", _OUTPUT, "-v")
    exit_zero: bool = flag("Exit with 0 even where there are findings.", _OUTPUT, "-e")
    exit_non_zero_on_fix: bool = flag("Exit with 1 where something was fixed, even if nothing is left.", _OUTPUT)

    baseline: str | None = text("The file of findings that are known: they are neither shown nor fixed.", _KNOWN, "FILE")
    write_baseline: bool = flag(
        "Write all findings to the baseline: to `oomlint-baseline.json` in the project's root, unless --baseline or the settings name another.", _KNOWN
    )
    no_baseline: bool = flag("Show what the baseline of the settings knows, too.", _KNOWN)
    ignore_noqa: bool = flag("Show also what comments silence.", _KNOWN)
    add_ignore: str | None = text(
        "Silence all findings by comments beside them; `--add-ignore=REASON` puts words behind the codes.", _KNOWN, "[=REASON]", bare=""
    )

    config: tuple[str, ...] = several(CONFIG, _FILES, "FILE|KEY=VALUE")
    isolated: bool = flag("Ignore all settings files.", _FILES)
    exclude: tuple[str, ...] = several("Files and folders to leave out, in place of those in the settings.", _FILES, "PATTERNS")
    extend_exclude: tuple[str, ...] = several("Files and folders to leave out beside the others.", _FILES, "PATTERNS")
    force_exclude: bool = flag("Apply excludes also to the paths given.", _FILES)
    no_respect_gitignore: bool = flag("Check also what .gitignore files leave out.", _FILES)
    show_files: bool = flag("List the files that would be checked, and check none.", _FILES)
    show_settings: bool = flag("Show the settings in effect, and check nothing.", _FILES)
    stdin_filename: str | None = text("The name of what comes from standard input.", _FILES, "NAME")
    cache_dir: str | None = text("The folder of the cache, in place of that of the settings.", _FILES, "DIR", variable="OOMLINT_CACHE_DIR")
    no_cache: bool = flag("Neither read nor write the cache.", _FILES, "-n", variable="OOMLINT_NO_CACHE")


def perform(arguments: Arguments) -> int:
    """Check, report, and return the exit status."""
    from oomlint.cli.checking import check  # noqa: PLC0415 - it asks for what stands here

    with ending_in_order():
        return ended(lambda: check(arguments))


def ended(run: Callable[[], int], *mistakes: type[Exception]) -> int:
    """The exit status of a command: 2 where something is wrong with the settings, or where it makes one of some other ``mistakes``."""
    gc.set_threshold(50_000, 20, 50)  # syntax trees are many objects and no garbage: looking for it less often saves a tenth of the time
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no name of a file and no encoding of a terminal may end the run
    expected: tuple[type[Exception], ...] = (ConfigError, *mistakes)
    try:
        return run()
    except expected as error:
        say(f"error: {error}")
        return 2


def whole_number(option: str, given: str | None) -> int | None:
    """A number that an option gives, from 1 on. Raises ConfigError."""
    if given is not None and not (given.isascii() and given.isdecimal() and int(given) > 0):
        raise ConfigError(f"{option}: {given!r} is not a whole number from 1 on")
    return None if given is None else int(given)


def start_of(paths: Sequence[str], folder: str) -> str:
    """The folder from which settings are looked for: the one that holds all paths. Where that is the whole disk, the current one."""
    places = [path if os.path.isdir(path) else os.path.dirname(path) for path in map(os.path.abspath, paths)]
    try:
        common = os.path.commonpath(places)
    except ValueError:  # on several drives
        return folder
    return folder if os.path.dirname(common) == common else common


def configuration(given: Sequence[str]) -> tuple[str | None, list[str]]:
    """What `--config` names: a file, and settings. Raises ConfigError."""
    files = [each for each in given if "=" not in each or os.path.lexists(each)]
    if len(files) > 1:
        raise ConfigError(f"--config: two files are named: {files[0]} and {files[1]}")
    return (files[0] if files else None), [each for each in given if each not in files]


def overridden(settings: Settings, arguments: Arguments | verify.Arguments) -> Settings:
    """The settings with the options in place. --select starts again; --ignore and --extend-select change what the settings select."""
    ignores = getattr(arguments, "per_file_ignores", ()) or None
    rest = settings.with_overrides(
        per_file_ignores=ignores,
        severity=arguments.severity or (Severity.NOTE if _is_exact(arguments.select) and settings.severity is Severity.WARNING else None),
        min_confidence=arguments.min_confidence,
        sort=getattr(arguments, "sort", None),
        preview=_previews(settings, arguments),
    )
    if not (arguments.select or arguments.ignore or arguments.extend_select):
        return rest
    asked = Settings().with_overrides(select=arguments.select, ignore=arguments.ignore, extend_select=arguments.extend_select)
    asked.check_codes(code for code, _ in catalogue())
    base = () if arguments.select else codes(settings.select, settings.ignore, settings.extend_select)
    wanted = rest.having(select=codes(asked.select, asked.ignore, asked.extend_select, base), ignore=(), extend_select=())
    return wanted.having(select=chosen(wanted))


def _is_exact(selectors: Sequence[str]) -> bool:
    """Whether rules are selected one by one: who does that wants to see what they say, be it a note."""
    words = [word.strip() for each in selectors for word in each.split(",") if word.strip()]
    return bool(words) and all(map(is_known, words))


def _previews(settings: Settings, arguments: Arguments | verify.Arguments) -> bool:
    """Whether rules in preview run. The option that turns them off has the last word."""
    return (arguments.preview or settings.preview) and not arguments.no_preview


def tell_idle(settings: Settings, arguments: Arguments | verify.Arguments) -> None:
    """Say which of the selectors that hold name rules in preview alone, where those do not run."""
    if arguments.quiet or _previews(settings, arguments):
        return
    asked = Settings().with_overrides(select=arguments.select, extend_select=arguments.extend_select)
    own = () if arguments.select else (*settings.select, *settings.extend_select)
    for selector in idle((*own, *asked.select, *asked.extend_select)):
        say(f"warning: Selection `{selector}` has no effect because preview is not enabled.")


# -- what comes out ----------------------------------------------------------------------------------------------


def tell_failures(report: CheckReport, view: View) -> None:
    """Rules that failed and what was not done, on standard error: also where only findings are asked for."""
    alike: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in report.failures:
        alike.setdefault((failure.code, failure.origin, failure.cause), []).append(failure)
    for (code, origin, cause), (first, *others) in alike.items():
        more = f" and {len(others)} more file{'s' if len(others) > 1 else ''}" if others else ""
        say(f"{origin or 'internal error'}: {code} failed on {view.name(first.path)}{more}: {cause} (OOMLINT_DEBUG=1 shows where)")
        if os.environ.get("OOMLINT_DEBUG"):
            sys.stderr.write(first.trace)
    for notice in report.notices:
        say(f"{view.name(notice.path)}{f':{notice.row}' if notice.row else ''}: {notice.message}")


def with_plugins(*, local: bool) -> Local | None:
    """Load the rules of installed packages; with ``local``, return what loads those of the project as well. What cannot be loaded is told."""
    plugins.use(plugins.RuleSources(installed=True))
    if not local:
        _tell_problems()
        return None

    def load(paths: Sequence[str]) -> tuple[list[str], bool]:
        plugins.use(plugins.RuleSources(installed=True, local=tuple(paths)))
        _tell_problems()
        return [code for code, _ in catalogue()], plugins.whole()

    return load


def _tell_problems() -> None:
    for problem in plugins.problems():
        say(problem)


def say(message: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"oomlint: {visible(message)}\n")
