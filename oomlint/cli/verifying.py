"""What ``oomlint verify`` does: checks, picks findings, has them verified, and reports."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from oomlint import amounts, engine
from oomlint.cli import edited_cases, picks
from oomlint.cli.check import configuration, overridden, say, start_of, tell_failures, tell_idle, whole_number, with_plugins
from oomlint.cli.files import current_folder, refuse_unwritable, write_report
from oomlint.cli.formats import PLAIN, machine, summarise_step
from oomlint.cli.options import STANDARD
from oomlint.cli.verification import VerifyRequest, shown_python, surroundings, verified
from oomlint.config import FACTORY, ConfigError, OutputFormat, load_settings, of_lines
from oomlint.finding import Safety
from oomlint.output import concise, summary, verdicts_html, verdicts_json, verdicts_text
from oomlint.output.printer import Printer, wants_color
from oomlint.output.verdicts_numbers import total
from oomlint.output.verdicts_remark import remark
from oomlint.output.view import View
from oomlint.registry import catalogue
from oomlint.verify import patches
from oomlint.verify.case import Outcome
from oomlint.verify.run import cases_of
from oomlint.verify.sandbox.report import text as explained
from oomlint.verify.sandbox_runner import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.cli.verify import Arguments
    from oomlint.engine import CheckReport
    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.verdicts_numbers import Item
    from oomlint.verify.case import Case
    from oomlint.verify.session import Surroundings

_WRITABLE_BLOCKS: Final = "█▏▁±"
_Number = TypeVar("_Number", int, float)


def verify(arguments: Arguments) -> int:
    """Verify, report, and return the exit status. Raises ConfigError and SandboxError."""
    if arguments.explain_sandbox:
        sys.stdout.write(explained(inspect()))
        return 0
    view = View(current_folder())
    chosen = picks.read(arguments.paths or (".",))
    paths = list(picks.paths_of(chosen))
    start = start_of(paths, view.folder)
    with_plugins(local=False)  # nothing of theirs is measured, and what a project runs has to be allowed
    config, lines = configuration(arguments.config)
    settings, folder = load_settings(Path(config) if config else None, arguments.isolated, Path(start), [code for code, _ in catalogue()], lines)
    root = _root(str(folder), paths, start)
    given, settings = settings, overridden(settings, arguments)
    tell_idle(given, arguments)
    asked = _asked(arguments, root, start, config, lines)
    around = surroundings(settings, root, asked)
    if arguments.html == STANDARD:
        raise ConfigError("--html: the page goes to a file, and `-` is none")
    for option, path in (("--html", arguments.html), ("--output-file", arguments.output_file)):
        refuse_unwritable(option, path, paths, settings, folder, force_exclude=arguments.force_exclude)
    report = engine.run(paths, settings, folder, engine.RunOptions(force_exclude=arguments.force_exclude, cache=asked.cache))
    _tell(report, arguments, view)
    known, picked = ([item.as_found for item in items] for items in (report.findings, picks.picked(report.findings, chosen)))
    cases = _cases(known, picked, arguments, around, paths, nested=config is None and not arguments.isolated)
    python = shown_python(around.python, view)
    printed = _Printed(arguments, view, python, baseline=settings.baseline is not None)
    items: list[Item] = []
    with closing(verified(cases, around, view, cache=asked.cache, bar=not arguments.quiet, tell=printed.each)) as found:
        items.extend(found)
    printed.end(items, report.files, sum(item.code is None for item in report.findings))
    if arguments.html is not None:
        write_report(arguments.html, verdicts_html.text(items, view, python))
    if asked.keep is not None and items and not arguments.quiet:
        name = view.name(asked.keep)
        say(f"the copies of the project are in {asked.keep if name.startswith('../..') else name}")
    return _status(report, items, arguments)


# -- what goes in ------------------------------------------------------------------------------------------------


def _root(root: str, paths: Sequence[str], start: str) -> str:
    """The project's root, which holds all that is run: that of the settings, unless they are somebody else's."""
    if all(os.path.abspath(path).startswith(os.path.join(root, "")) or os.path.abspath(path) == root for path in paths):
        return root
    return str(load_settings(None, True, Path(start))[1])  # noqa: FBT003


def _settings(arguments: Arguments) -> Iterator[str]:
    """The settings that a line of ``oomlint verify`` gives, as ``oomlint check`` takes them: without them it would run something else, or nothing."""
    for line in arguments.config:
        yield from ("--config", line)
    if arguments.isolated:
        yield "--isolated"
    for name in ("python", "command", "factory", "time_limit", "memory_cap", "disk_cap", "repeat", "pass_env", "read"):
        value = getattr(arguments, name)
        if value in {None, ()}:
            continue
        if name == "python" and os.sep in value:  # a setting is relative to the project's root, an option to the current folder
            value = os.path.abspath(value)
        elif name == "read":
            value = [os.path.abspath(path) for path in value]
        yield from ("--config", f"verify.{name.replace('_', '-')} = {value if name == 'repeat' else json.dumps(value)}")


def _asked(arguments: Arguments, root: str, start: str, config: str | None, lines: Sequence[str]) -> VerifyRequest:
    for option, value in (("--python", arguments.python), ("--command", arguments.command), ("--after", arguments.after)):
        if value is not None and not value.strip():
            raise ConfigError(f"{option}: it is empty")
    if arguments.factory is not None and not FACTORY.fullmatch(arguments.factory):
        raise ConfigError(f"--factory: {arguments.factory!r} is not of the form 'package.module:function'")
    return VerifyRequest(
        python=arguments.python,
        time_limit=_amount("--time-limit", amounts.seconds, arguments.time_limit),
        memory_cap=_amount("--memory-cap", amounts.cap, arguments.memory_cap),
        disk_cap=_amount("--disk-cap", amounts.cap, arguments.disk_cap),
        repeat=whole_number("--repeat", arguments.repeat),
        command=arguments.command,
        factory=arguments.factory,
        pass_env=arguments.pass_env,
        read=arguments.read,
        unsandboxed=arguments.unsandboxed,
        keep=_kept(arguments.keep, root),
        cache=not arguments.no_cache and arguments.keep is None,  # a verdict from the cache leaves no copies
        config=config,
        over=of_lines(lines),
        start=start,
        isolated=arguments.isolated,
        trust=arguments.trust,
    )


def _amount(option: str, parse: Callable[[str], _Number], text: str | None) -> _Number | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def _kept(folder: str | None, root: str) -> str | None:
    """The folder that copies stay in. It has to be empty: what is in the way of a copy would be removed."""
    if not folder:
        return None if folder is None else tempfile.mkdtemp(prefix="oomlint-verify-")
    path = os.path.abspath(folder)
    if os.path.join(os.path.realpath(path), "").startswith(os.path.join(os.path.realpath(root), "")):
        raise ConfigError(f"--keep: {folder} is in the project, and would be copied with it")
    try:
        os.makedirs(path, exist_ok=True)
        taken = bool(os.listdir(path))
    except OSError as error:
        raise ConfigError(f"--keep: {folder}: {error.strerror or error}") from None
    if taken:
        raise ConfigError(f"--keep: {folder} is not empty")
    return path


def _cases(
    findings: Sequence[Finding], chosen: Sequence[Finding], arguments: Arguments, around: Surroundings, paths: Sequence[str], *, nested: bool
) -> list[Case]:
    if around.settings.verify.patches:
        patches.of_setting(around.root, around.settings.verify.patches)  # wrong settings are told also where they would not be used
        chosen = _besides(chosen, os.path.join(around.root, around.settings.verify.patches))
    if arguments.after is None:
        return [case for case in cases_of(findings, around.root, around.settings, nested=nested) if case.finding in chosen]
    folders = [os.path.abspath(path) for path in paths if os.path.isdir(path)]
    tops = list(dict.fromkeys([*folders[:1], around.root, os.getcwd()]))
    return edited_cases.cases(arguments.after, _besides(chosen, arguments.after), findings, around.root, tops)


def _besides(findings: Sequence[Finding], folder: str) -> Sequence[Finding]:
    """The findings that do not stand in a folder of fixes, unless all do: then they are meant."""
    top = os.path.join(os.path.abspath(folder), "")
    return [finding for finding in findings if not finding.place.path.startswith(top)] or findings


# -- what comes out ----------------------------------------------------------------------------------------------


def _tell(report: CheckReport, arguments: Arguments, view: View) -> None:
    """What is no verdict goes to standard error, a line each."""
    tell_failures(report, view)
    unread = [item for item in report.findings if item.code is None]
    Printer(sys.stderr, color=wants_color(arguments.color, sys.stderr)).lines(concise.lines(unread, view))
    if not report.files and not unread and not arguments.quiet:
        say(f"warning: no Python files under {', '.join(arguments.paths or ('.',))}")


class _Printed:
    """The report. Text goes to the terminal verdict by verdict; a file, and what is for a program, is written when all is known."""

    def __init__(self, arguments: Arguments, view: View, python: str, *, baseline: bool) -> None:
        """``baseline`` says that there are known findings, which a check does not fix."""
        self._arguments = arguments
        self._view = view
        self._python = python
        self._baseline = baseline
        self._text = arguments.output_format in PLAIN
        self._path = None if arguments.output_file == STANDARD else arguments.output_file
        self._at_once = self._text and self._path is None and arguments.output_format is not OutputFormat.GROUPED

    def each(self, item: Item) -> None:
        """Report a verdict, where that may be done at once."""
        if self._at_once:
            self._lines(sys.stdout, [item])
            sys.stdout.flush()

    def end(self, items: Sequence[Item], files: int, unread: int) -> None:
        """Report the rest. ``unread`` files could not be checked."""
        path = self._path
        if path is None:
            self._rest(sys.stdout, items, files, unread)
            return
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            self._rest(stream, items, files, unread)
            stream.seek(0)
            write_report(path, stream.read())

    def _lines(self, stream: TextIO, items: Sequence[Item]) -> None:
        printer = Printer(stream, color=wants_color(self._arguments.color, stream))
        if self._arguments.output_format is OutputFormat.CONCISE:
            printer.lines(verdicts_text.concise(items, self._view))
        elif self._arguments.output_format is OutputFormat.GROUPED:
            printer.lines(verdicts_text.grouped(items, self._view))
        else:
            printer.lines(verdicts_text.full(items, self._view, self._python, plain=not _holds_blocks(stream)))

    def _rest(self, stream: TextIO, items: Sequence[Item], files: int, unread: int) -> None:
        if self._text and not self._at_once:
            self._lines(stream, items)
        report = self._machine(items, files)
        if report is not None:
            stream.write(report)
        elif not self._arguments.quiet and (items or files):
            nothing = ((f"Nothing to verify: no findings in {summary.count(files, 'file')}.", ""),)
            printer = Printer(stream, color=wants_color(self._arguments.color, stream))
            printer.line(*(verdicts_text.summary(items) if items else nothing))
            if applying := self._applying(items):
                printer.line((applying, ""))
            if unread:
                printer.line((f"{summary.count(unread, 'file')} could not be checked.", ""))

    def _applying(self, items: Sequence[Item]) -> str:
        """How what is confirmed is applied; empty where there is nothing to apply."""
        confirmed = [case for case, verdict in items if verdict.outcome is Outcome.CONFIRMED and not case.by_hand]
        if not confirmed:
            return ""
        unsafe = any(case.finding.fix is not None and case.finding.fix.safety is Safety.UNSAFE for case in confirmed)
        asked = (("--unsafe-fixes", unsafe), ("--trust", self._arguments.trust), ("--no-baseline", self._baseline))
        codes, files = ({*each} for each in zip(*((f"--select={case.code}", self._view.name(case.finding.place.path)) for case in confirmed), strict=True))
        words = [*(option for option, given in asked if given), *_settings(self._arguments), *sorted(codes), *sorted(files)]
        return f"To apply what is confirmed: oomlint check --fix --verify {shlex.join(words)}"

    def _machine(self, items: Sequence[Item], files: int) -> str | None:
        """The report for another program; ``None`` where a text is asked for."""
        of = {item[0].finding: item for item in items}

        def more(finding: Finding) -> dict[str, object]:
            return {"verdict": verdicts_json.verdict_entry(of[finding], self._python)}

        def said(finding: Finding) -> Remark:
            return remark(of[finding])

        if self._arguments.output_format is OutputFormat.GITHUB:
            summarise_step(list(of), files, self._view, said, total(items) if items else "")
        return machine(self._arguments.output_format, list(of), self._view, more, said)


def _holds_blocks(stream: TextIO) -> bool:
    with suppress(UnicodeEncodeError, LookupError):
        _WRITABLE_BLOCKS.encode(stream.encoding or "ascii")
        return True
    return False


def _status(report: CheckReport, items: Sequence[Item], arguments: Arguments) -> int:
    """0 where nothing is worse, 1 where something is or a file could not be checked, 2 for an error of oomlint itself."""
    if report.failures:
        return 2
    if any(item.code is None for item in report.findings):
        return 1
    bad = {Outcome.REGRESSED, Outcome.INCONCLUSIVE} if arguments.strict else {Outcome.REGRESSED}
    return int(any(verdict.outcome in bad for _, verdict in items))
