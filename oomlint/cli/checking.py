"""What ``oomlint check`` does: checks, leaves out what is known, fixes, and reports."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint import plugins
from oomlint.cli import baseline_file
from oomlint.cli.check import configuration, overridden, say, start_of, tell_failures, tell_idle, whole_number, with_plugins
from oomlint.cli.files import current_folder, refuse_unwritable
from oomlint.cli.formats import PLAIN
from oomlint.cli.options import STANDARD, with_environment
from oomlint.cli.reporting import Result, refuse_statistics
from oomlint.cli.showing import show_files, show_settings
from oomlint.config import ConfigError, load_settings, settings_file
from oomlint.discovery import SUFFIXES
from oomlint.engine import RunOptions, run
from oomlint.finding import Safety
from oomlint.output import summary
from oomlint.output.view import View
from oomlint.registry import catalogue, chosen, codes
from oomlint.settings import BASELINE, OutputFormat, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from oomlint.cli.approval import Approval
    from oomlint.cli.baseline_file import Baseline, BaselineScope
    from oomlint.cli.check import Arguments
    from oomlint.engine import CheckReport
    from oomlint.finding import Finding

_SHOWN = 2  # files that a line names which is about several
_ROW: Final = re.compile(r"(?::\d+)+$")  # as other commands take it behind a path
# As Python it would be a dictionary that nobody uses.
_NOTEBOOK: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{(?=\s*").*"(?:cells|nbformat|worksheets)"\s*:', re.DOTALL)


def check(arguments: Arguments) -> int:
    """Check, report, and return the exit status. Raises ConfigError."""
    try:
        asked = with_environment(arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if asked.watch and not (asked.show_settings or asked.show_files):
        from oomlint.cli.watching import watch  # noqa: PLC0415 - it never ends

        if STANDARD in asked.paths or asked.stdin_filename:
            raise ConfigError("--watch needs files: standard input is none")
        watch(asked.paths or (".",), lambda: _Check(asked).perform())
    run = _Check(asked)
    if asked.show_settings:
        show_settings(run.settings, run.settings_file(), run.root)
        return 0
    if asked.show_files:
        return show_files(run.paths, run.settings, run.root, View(run.folder), force_exclude=asked.force_exclude)
    return run.perform()


def _refuse_together(arguments: Arguments, form: OutputFormat, *, fix: bool, overlay: bool) -> None:
    """Raise ConfigError for options that make no sense with each other. ``fix`` says whether fixes are applied, ``overlay`` whether there is no file."""
    if arguments.statistics:
        refuse_statistics(form)
    if arguments.verify and not (fix or arguments.diff):
        raise ConfigError("--verify goes with --fix or --diff; `oomlint verify` verifies fixes and applies none")
    if arguments.trust and not arguments.verify:
        raise ConfigError("--trust goes with --verify: nothing else runs code")
    if arguments.add_ignore is not None and (fix or arguments.diff or arguments.write_baseline):
        raise ConfigError("--add-ignore goes without --fix, --diff and --write-baseline: one after the other")
    if arguments.add_ignore is not None:
        _refuse_mixed_up(arguments.add_ignore.strip(), arguments.paths)
    if arguments.write_baseline and fix:
        raise ConfigError("--write-baseline goes without --fix: one after the other")
    if arguments.write_baseline and arguments.diff:
        raise ConfigError("--write-baseline writes a file, and --diff writes nothing")
    if arguments.no_baseline and (arguments.baseline is not None or arguments.write_baseline):
        raise ConfigError("--no-baseline goes without --baseline and --write-baseline")
    for path in arguments.paths if arguments.write_baseline else ():
        if path != STANDARD and not os.path.lexists(path):
            raise ConfigError(f"--write-baseline: {path}: No such file or directory; --baseline names the file that is written")
    if overlay and arguments.verify:
        raise ConfigError("--verify needs files: standard input is part of no project that could be run")
    for option, given in (("--add-ignore", arguments.add_ignore is not None), ("--write-baseline", arguments.write_baseline)):
        if overlay and given:
            raise ConfigError(f"{option} needs files: standard input is none")


def _refuse_mixed_up(reason: str, paths: Sequence[str]) -> None:
    """Raise ConfigError where what ``--add-ignore`` is given as a reason looks like a path, or the other way round: comments would stand in the wrong files."""
    if not reason.isprintable():
        raise ConfigError("--add-ignore: the reason has to stand on a line")
    if _is_like_path(reason) or os.path.lexists(reason):
        raise ConfigError(f"--add-ignore={reason}: that is a path, and no reason; write `--add-ignore {reason}`")
    for path in paths:
        if path == STANDARD or os.path.lexists(path):
            continue
        if reason or not path or _is_like_path(path):
            raise ConfigError(f"--add-ignore: {path or 'the empty path'}: No such file or directory")
        raise ConfigError(f'--add-ignore: there is no file "{path}"; a reason stands behind `=`: --add-ignore="{path}"')


def _is_like_path(text: str) -> bool:
    text = _ROW.sub("", text)
    return " " not in text.strip() and (text.endswith((*SUFFIXES, "/", os.sep)) or text in {".", ".."})


@dataclass(slots=True, init=False)
class _Check:
    """One run: what it is asked for, and what that comes to."""

    arguments: Arguments
    folder: str
    paths: tuple[str, ...]
    overlay: dict[str, bytes]
    start: str  # the folder from which settings are looked for
    config: str | None  # the settings file that the line names
    lines: Sequence[str]  # settings that go over those of files
    settings: Settings
    root: Path
    fix: bool
    baseline: Baseline | None
    approved: Approval | None
    found: CheckReport | None  # before what is known is left out

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.folder = current_folder()
        self.paths, self.overlay = _inputs(arguments)
        self.start = start_of(self.paths, self.folder)
        self.config, self.lines = configuration(arguments.config)
        local = with_plugins(local=not (arguments.isolated or arguments.no_local_rules))
        known = [code for code, _ in catalogue()]
        settings, self.root = load_settings(Path(self.config) if self.config else None, arguments.isolated, Path(self.start), known, self.lines, local)
        self.settings = _overridden(settings, arguments)
        self.settings.check_codes(code for code, _ in catalogue())
        tell_idle(settings, arguments)
        asked = arguments.fix or arguments.fix_only
        self.fix = not arguments.no_fix and (asked or (self.settings.fix and arguments.add_ignore is None and not arguments.write_baseline))
        self.baseline = None
        self.approved = None
        self.found = None

    def settings_file(self) -> Path | None:
        """The file that the settings come from."""
        found = None if self.arguments.isolated else settings_file(Path(self.config) if self.config else None, Path(self.start))
        return found[0] if found else None

    def perform(self) -> int:
        """Check, report, and return the exit status."""
        begin = time.perf_counter()
        limit = whole_number("--limit", self.arguments.limit)
        _refuse_together(self.arguments, self.settings.output_format, fix=self.fix, overlay=bool(self.overlay))
        self._refuse_unwritable("--output-file", self.arguments.output_file)
        self.baseline = self._baseline()
        options = self._options()
        self._tell_start()
        # Trees that are let go of are collected where that is done. Looking for more takes a tenth of the time and has freed nothing, measured.
        gc.disable()
        try:
            report = run(self.paths, self.settings, self.root, options)
        finally:
            gc.freeze()  # the process ends soon, and takes all with it
            gc.enable()
        if self.baseline is not None and self.arguments.write_baseline and self.found is not None:
            report = self._write_baseline(self.baseline, report, self.found)
        if self.arguments.add_ignore is not None:
            report = self._silence(report, self.arguments.add_ignore.strip())
        if self.arguments.fix_only:
            report = replace(report, findings=tuple(item for item in report.findings if item.code is None))
        changed = {change.path: change.after for change in report.changes if self.arguments.diff or change.path in self.overlay}
        view = View(self.folder, {**self.overlay, **changed})
        self._tell(report, view)
        if self.arguments.verbose:
            say(f"checked {summary.count(report.files, 'file')} in {time.perf_counter() - begin:.2f} s")
        fixed_input = self.overlay and self.fix and not self.arguments.diff
        if fixed_input:
            sys.stdout.buffer.write(next((change.after for change in report.changes), *self.overlay.values()))
        known = 0 if self.baseline is None else report.told if self.arguments.write_baseline else report.known
        fixable = (Safety.SAFE, Safety.UNSAFE) if self.settings.unsafe_fixes else (Safety.SAFE,)
        shown, tried = ((), fixable) if self.fix else (fixable, ())
        result = Result(
            report,
            self.arguments,
            self.settings.output_format,
            view,
            self.approved,
            known,
            fixable=shown,
            tried=tried,
            whole=plugins.whole(),
            limit=limit,
        )
        result.write(sys.stderr if fixed_input else sys.stdout)
        if self.arguments.diff and not report.changes and not self.arguments.quiet:
            self._say_undone(report)
        return result.status()

    def _say_undone(self, report: CheckReport) -> None:
        """Say of findings that no diff shows that they are there."""
        left = [item for item in report.findings if item.code is not None]
        unsafe = sum(item.fix is not None and item.fix.safety is Safety.UNSAFE for item in left)
        more = f" (up to {unsafe} fixable with --unsafe-fixes)" if unsafe and not self.settings.unsafe_fixes else ""
        if left:
            say(f"no fix to show for {summary.count(len(left), 'finding')}{more}")

    # -- what goes in --------------------------------------------------------------------------------------------

    def _options(self) -> RunOptions:
        arguments = self.arguments
        shown = not arguments.write_baseline and arguments.add_ignore is None
        options = RunOptions(
            fix=self.fix or arguments.diff,
            unsafe_fixes=self.settings.unsafe_fixes,
            write=not arguments.diff,
            force_exclude=arguments.force_exclude,
            cache=not arguments.no_cache,
            cache_folder=os.path.abspath(arguments.cache_dir) if arguments.cache_dir else None,
            overlay=self.overlay,
            suppress=not arguments.ignore_noqa,
            # What is left out because it says the same as something else would be said once that is silent, or gone.
            once=shown,
        )
        options = replace(options, finish=self._finished)
        if arguments.verify:
            from oomlint.cli.approval import approval  # noqa: PLC0415 - nothing of the verifier is loaded unless it is asked for

            self.approved = approval(self.settings, str(self.root), options, View(self.folder), arguments, (self.config, self.lines), self.start)
        return replace(options, approve=_all_of(self._may_fix(), self.approved))

    def _fixable(self) -> Collection[str] | None:
        """The codes whose fixes may be applied; ``None`` for all."""
        found = codes(self.settings.fixable, self.settings.unfixable)
        return None if len(found) == len(catalogue()) else found

    def _may_fix(self) -> Callable[[Finding], bool] | None:
        """What is known is left as it is, and what the settings exempt."""
        baseline = None if self.arguments.write_baseline else self.baseline
        fixable = self._fixable()
        if baseline is None and fixable is None:
            return None
        return lambda finding: (fixable is None or finding.code in fixable) and not (baseline is not None and baseline.knows(finding))

    def _finished(self, report: CheckReport) -> CheckReport:
        """The report without what is known, and with fixes that must not be applied as advice."""
        self.found = report
        if self.baseline is not None and not self.arguments.write_baseline:
            report = self.baseline.filtered(report)
        fixable = self._fixable()
        if fixable is None:
            return report
        findings = (
            item if item.fix is None or item.code in fixable else replace(item, fix=replace(item.fix, safety=Safety.DISPLAY)) for item in report.findings
        )
        return replace(report, findings=tuple(findings))

    def _baseline(self) -> Baseline | None:
        arguments, setting = self.arguments, self.settings.baseline
        if arguments.no_baseline or (arguments.baseline is None and setting is None and not arguments.write_baseline):
            return None

        if arguments.baseline is None:
            option, path = "baseline", os.path.relpath(os.path.join(self.root, setting or BASELINE), self.folder)
        else:
            option, path = "--baseline", arguments.baseline
        if arguments.write_baseline:
            self._refuse_unwritable(option, path)
        return baseline_file.read(path, option, self.folder, self.overlay, new=arguments.write_baseline)

    def _refuse_unwritable(self, option: str, path: str | None) -> None:
        refuse_unwritable(option, path, self.paths, self.settings, self.root, force_exclude=self.arguments.force_exclude)

    # -- what comes out ------------------------------------------------------------------------------------------

    def _scope(self) -> BaselineScope:
        from oomlint.cli.baseline_file import BaselineScope  # noqa: PLC0415 - see above

        return BaselineScope(self.settings, str(self.root), chosen(self.settings), self.paths, usual=not self.lines)

    def _write_baseline(self, baseline: Baseline, report: CheckReport, found: CheckReport) -> CheckReport:
        """Write all that was ``found``, wherever it is told: who checks other files finds it there."""
        if report.failures or not plugins.whole():
            say(f"{baseline.path} is not written: nobody knows what a rule that failed would have found")
            return report
        places = baseline.write(found, self._scope())
        if not self.arguments.quiet:
            used = self.arguments.baseline is not None or self.settings.baseline is not None
            named = os.path.relpath(os.path.join(self.folder, baseline.path), self.root)
            how = "" if used else f'; with `baseline = "{named}"` in oomlint.toml or [tool.oomlint], runs and hooks leave these findings out'
            more = f" at {places} places" if places > report.told else ""
            say(f"wrote {summary.count(report.told, 'finding')}{more} to {baseline.path}{how}")
        return replace(report, findings=tuple(item for item in report.findings if item.code is None))

    def _silence(self, report: CheckReport, reason: str) -> CheckReport:
        from oomlint.cli.ignoring import silence  # noqa: PLC0415 - few runs do

        done = silence(report, reason, self.paths, str(self.root))
        if not self.arguments.quiet:
            # What a report says once of several places is silenced at each of them.
            places = len(done.findings)
            whole = report.told if not any(item.code for item in done.report.findings) else places
            more = f" at {places} places" if places > whole else ""
            say(f"silenced {summary.count(whole, 'finding')}{more} by comments in {summary.count(done.files, 'file')}")
        return done.report

    def _tell_start(self) -> None:
        if self.arguments.verbose:
            for origin, added in plugins.by_origin():
                say(f"{origin}: {', '.join(added)}")
            say(f"settings: {self.settings_file() or 'none'}; root: {self.root}; {summary.count(len(chosen(self.settings)), 'rule')}")

    def _tell(self, report: CheckReport, view: View) -> None:
        """What is no finding goes to standard error, a line each."""
        tell_failures(report, view)
        if self.arguments.quiet:
            return
        for refused in self.approved.notices(view) if self.approved else ():
            say(refused)
        if report.old:
            say(_of_python_2([view.name(path) for path in report.old]))
        elif not report.files and not report.findings:
            say(f"warning: no Python files under {', '.join(self.arguments.paths or ('.',))}")
        if report.known and self.settings.output_format not in PLAIN:
            shown = "; --no-baseline shows them" if self.arguments.baseline is None else ""
            say(f"{summary.count(report.known, 'known finding')} not shown{shown}")
        gone = self.baseline.gone(report, self._scope()) if self.baseline and not self.arguments.write_baseline else 0
        if self.baseline and gone:
            is_gone, it = ("is gone", "it") if gone == 1 else ("are gone", "them")
            say(f"{summary.count(gone, 'finding')} of {self.baseline.path} {is_gone}; --write-baseline takes {it} out")


def _all_of(*questions: Callable[[Finding], bool] | None) -> Callable[[Finding], bool] | None:
    """Whether all say yes; ``None`` where nobody asks."""
    asked = [question for question in questions if question is not None]
    return (lambda finding: all(question(finding) for question in asked)) if asked else None


def _overridden(settings: Settings, arguments: Arguments) -> Settings:
    """The settings with all options in place."""
    beside = _patterns(arguments.extend_exclude)
    found = overridden(settings, arguments)
    ignores = Settings().with_overrides(per_file_ignores=arguments.extend_per_file_ignores).per_file_ignores
    return found.with_overrides(
        per_file_ignores={key: (*found.per_file_ignores.get(key, ()), *ignores.get(key, ())) for key in (*found.per_file_ignores, *ignores)},
        exclude=_patterns(arguments.exclude) or None,
        extend_exclude=(*settings.extend_exclude, *beside) if beside else None,
        fixable=(*(arguments.fixable or found.fixable), *arguments.extend_fixable),
        unfixable=arguments.unfixable or None,
        unsafe_fixes=False if arguments.no_unsafe_fixes else arguments.unsafe_fixes or None,
        respect_gitignore=False if arguments.no_respect_gitignore else None,
        output_format=arguments.output_format,
    )


def _patterns(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(pattern for each in given for pattern in each.split(",") if pattern.strip())


def _inputs(arguments: Arguments) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The paths to check, and the content of standard input by the path that it goes under."""
    if STANDARD not in arguments.paths and (arguments.stdin_filename is None or arguments.paths):
        if arguments.stdin_filename is not None:
            raise ConfigError("--stdin-filename names standard input, which is checked where the path is `-`")
        return arguments.paths or (".",), {}
    if len(arguments.paths) > 1:
        raise ConfigError("standard input (`-`) is checked alone, without other paths")
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    data = sys.stdin.buffer.read()
    name = arguments.stdin_filename or (f"{STANDARD}.ipynb" if _NOTEBOOK.match(data) else STANDARD)
    return (name,), {os.path.abspath(name): data}


def _of_python_2(files: Sequence[str]) -> str:
    if len(files) == 1:
        return f"{files[0]} is Python 2 and was not checked"
    shown, rest = files[:_SHOWN], len(files) - _SHOWN
    listed = f"{', '.join(shown)} and {summary.count(rest, 'other')}" if rest > 0 else " and ".join(shown)
    return f"{len(files)} files are Python 2 and were not checked: {listed}"
