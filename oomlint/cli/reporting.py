"""What a check says at its end: the report in the format that is asked for, and the exit status."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from oomlint.cli.check import Verify, say
from oomlint.cli.files import write_report
from oomlint.cli.formats import machine, summarise_step
from oomlint.cli.options import STANDARD
from oomlint.config import ConfigError, OutputFormat
from oomlint.finding import Safety
from oomlint.output import summary
from oomlint.output.printer import Printer, wants_color

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from oomlint.cli.approval import Approval
    from oomlint.cli.check import Arguments
    from oomlint.engine import CheckReport
    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.view import Line, View

_UNCOUNTED: Final = frozenset({OutputFormat.GITLAB, OutputFormat.JUNIT, OutputFormat.PYLINT, OutputFormat.SARIF})  # formats that have no place for statistics


def refuse_statistics(form: OutputFormat) -> None:
    """Raise ConfigError where a format cannot hold statistics."""
    if form in _UNCOUNTED:
        raise ConfigError(f"--statistics are not findings, and cannot be written as {form.value}")


@dataclass(frozen=True, slots=True)
class Result:
    """What a run has come to, and how it is to be told."""

    report: CheckReport
    arguments: Arguments
    form: OutputFormat
    view: View
    approved: Approval | None = None
    known: int = 0  # findings that the baseline has left out
    fixable: Collection[Safety] = (Safety.SAFE,)  # which fixes would be applied
    tried: Collection[Safety] = ()  # which were, where they could be
    whole: bool = True  # whether no plugin is missing
    limit: int | None = None  # findings that are shown

    # -- the report ----------------------------------------------------------------------------------------------

    def write(self, stream: TextIO) -> None:
        """Write it to the stream, or to the file that the line names. Raises ConfigError where that cannot be written."""
        path = self.arguments.output_file
        if path in {None, STANDARD}:
            self._write(stream)
        else:
            kept = io.BytesIO()
            text = io.TextIOWrapper(kept, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)
            self._write(text)
            write_report(path, kept.getvalue())
        if self.form is OutputFormat.GITHUB and not self.arguments.diff:
            summarise_step(self._told(), self.report.files, self.view, self._remark, self.approved.summary() if self.approved else "")

    def _write(self, stream: TextIO) -> None:
        if self.arguments.diff:
            self._differences(stream)
            return
        report = self._machine()
        if report is not None:
            stream.write(report)
            if self._left_out():
                say(f"{summary.count(self._left_out(), 'finding')} left out (--limit)")
            if self.approved and not self.arguments.statistics:
                self._say_verdicts()
            return
        printer = Printer(stream, color=wants_color(self.arguments.color, stream))
        printer.lines(self._text())
        self._closing(printer)

    def _closing(self, printer: Printer) -> None:
        report, arguments = self.report, self.arguments
        if arguments.show_fixes and report.fixed:
            printer.lines(summary.fixed_lines(report.fixed, self.view))
        if self.approved and not arguments.quiet and self.approved.summary():
            printer.line((self.approved.summary(), ""))
        if arguments.write_baseline and not report.findings:
            return  # what was written is told already
        if not arguments.quiet and (report.files or report.findings):
            if self.form is OutputFormat.FULL and not arguments.statistics:
                printer.lines(summary.heaviest(report.findings, self.view))
            if arguments.fix_only and not (report.findings or report.fixed):
                printer.line((f"Nothing to fix in {summary.count(report.files, 'file')}.", ""))  # what is left is not told
            else:
                printer.lines(summary.lines(report.findings, report.files, fixed=report.fixed, tried=self.tried, left_out=report.left_out))
            if self.form is OutputFormat.FULL and not arguments.statistics:
                printer.lines(summary.explained(report.findings))
            if self._left_out() and not arguments.statistics:
                printer.line((f"{summary.count(self._left_out(), 'finding')} left out (--limit).", ""))
            if self.known:
                # Where the line names the baseline, it is to be left out of it.
                hint = "" if arguments.baseline is not None or arguments.write_baseline else " (--no-baseline)"
                printer.line((f"{summary.count(self.known, 'known finding')} {'neither shown nor fixed' if self.tried else 'not shown'}{hint}.", ""))
            if report.hidden and not arguments.fix_only:
                printer.lines(summary.hidden(report.hidden))

    def _differences(self, stream: TextIO) -> None:
        from oomlint.output import diff  # noqa: PLC0415 - as all formats: only the one that is asked for

        report, arguments = self.report, self.arguments
        if stream.isatty() or wants_color(arguments.color, stream):
            Printer(stream, color=wants_color(arguments.color, stream)).lines(diff.lines(report.changes, self.view))
        else:  # whatever encoding the stream has
            stream.flush()
            stream.buffer.write(diff.patch(report.changes, self.view))
        if report.fixed and not arguments.quiet:
            say(f"would fix {summary.count(len(report.fixed), 'finding')} in {summary.count(len(report.changes), 'file')}{summary.leaving(report.left_out)}")
        self._say_verdicts()
        unread = [item for item in report.findings if item.code is None]
        if unread:
            from oomlint.output import concise  # noqa: PLC0415

            Printer(sys.stderr, color=wants_color(arguments.color, sys.stderr)).lines(concise.lines(unread, self.view))

    def _machine(self) -> str | None:
        """The report for another program; ``None`` where a text is asked for."""
        findings, view = self.report.findings, self.view
        if self.arguments.statistics:
            if self.form not in {OutputFormat.JSON, OutputFormat.JSON_LINES}:
                return None
            from oomlint.output import statistics  # noqa: PLC0415

            return statistics.text(findings, rows=self.form is OutputFormat.JSON_LINES)
        return machine(self.form, self._told(), view, self._more, self._remark)

    def _told(self) -> Sequence[Finding]:
        """The findings to show, and those that were fixed where verdicts have led to that."""
        return ((*self.report.findings, *self.report.fixed) if self.approved else self.report.findings)[: self.limit]

    def _left_out(self) -> int:
        """How many findings the limit leaves out."""
        return len(self.report.findings) - len(self.report.findings[: self.limit])

    def _text(self) -> Iterator[Line]:
        findings, view = self.report.findings, self.view
        if self.arguments.statistics:
            from oomlint.output import statistics  # noqa: PLC0415

            return statistics.lines(findings)
        findings = findings[: self.limit]
        if self.form is OutputFormat.CONCISE:
            from oomlint.output import concise  # noqa: PLC0415

            return concise.lines(findings, view, self.fixable)
        if self.form is OutputFormat.GROUPED:
            from oomlint.output import grouped  # noqa: PLC0415

            return grouped.lines(findings, view, self.fixable)
        from oomlint.output import full  # noqa: PLC0415

        return full.lines(findings, view, every_place=self.arguments.verbose)

    def _say_verdicts(self) -> None:
        """What the verdicts come to, on standard error: where a diff or a report for a program goes to standard output."""
        if self.approved and not self.arguments.quiet:
            for line in (*self.approved.confirmed(self.view), self.approved.summary()):
                if line:
                    say(line)

    def _more(self, finding: Finding) -> dict[str, object]:
        told = self._told()
        left_out: dict[str, object] = {"left_out": self._left_out()} if self._left_out() and finding is told[-1] else {}
        if not self.approved:
            return left_out
        fixed = self._is_fixed(finding)
        return {**self.approved.entry(finding, fixed=fixed), **({"fixed": True} if fixed else {}), **left_out}

    def _remark(self, finding: Finding) -> Remark | None:
        return self.approved.remark(finding, fixed=self._is_fixed(finding)) if self.approved else None

    def _is_fixed(self, finding: Finding) -> bool:
        return any(finding is each for each in self.report.fixed)  # what is left may look the same by now

    # -- the exit status -----------------------------------------------------------------------------------------

    def status(self) -> int:
        """0 clean, 1 findings, 2 for an error of oomlint itself, or of a plugin."""
        report, arguments = self.report, self.arguments
        if report.failures or not self.whole:
            return 2
        if arguments.exit_zero:
            return 0
        if self.approved and arguments.verify is Verify.STRICT and not self.approved.complete:
            return 1
        if arguments.diff:
            return int(bool(report.changes) or any(item.code is None for item in report.findings))
        return int(bool(report.findings) or (arguments.exit_non_zero_on_fix and bool(report.fixed)))
