"""What ``oomlint trace`` does: runs the command, and reports."""

from __future__ import annotations

import io
import os
import shlex
import sys
import tempfile
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from oomlint import amounts
from oomlint.budget import table
from oomlint.budget.mistakes import BudgetError
from oomlint.cli import budget
from oomlint.cli.budgeting import budgets
from oomlint.cli.check import say
from oomlint.cli.files import current_folder, refuse_unwritable, write_report
from oomlint.cli.options import STANDARD
from oomlint.cli.trace import TraceFormat
from oomlint.config import ConfigError, Settings
from oomlint.output import trace_html, trace_json, trace_text
from oomlint.output.printer import Printer, wants_color
from oomlint.output.trace_live import Live
from oomlint.output.view import View
from oomlint.trace import deepening, running
from oomlint.trace.growth_verdicts import setup_seen
from oomlint.trace.report import Predicted, TraceReport, report
from oomlint.trace.timeline import OVERHEAD, Pace
from oomlint.verify.process_tree import NotHere
from oomlint.writing import give_up

if TYPE_CHECKING:
    from oomlint.cli.trace import Arguments
    from oomlint.trace.timeline import Trace

_INTERVAL: Final = 0.2  # seconds
_SHORTEST, _LONGEST = 0.01, 3600.0
_LEAST_SHARE: Final = 0.001  # of one core


def trace(arguments: Arguments) -> int:
    """Run, report, and return the command's exit status. Raises ConfigError."""
    view = View(current_folder())
    pace = Pace(_interval(arguments.interval), _overhead(arguments.overhead))
    if not arguments.command or not arguments.command[0].strip():
        raise ConfigError("name the command to watch, as in `oomlint trace -- python train.py`")
    if arguments.html == STANDARD:
        raise ConfigError("--html: the page goes to a file, and `-` is none")
    for option, path in (("--html", arguments.html), ("--output-file", arguments.output_file)):
        refuse_unwritable(option, path, (), Settings(), view.folder, force_exclude=False)
    if arguments.html and arguments.output_file and os.path.realpath(arguments.html) == os.path.realpath(arguments.output_file):
        raise ConfigError("--html and --output-file name the same file")
    try:
        found = _watched(arguments, pace)
    except running.StartError as error:
        say(f"error: {error}")
        return error.status
    except NotHere as error:
        raise ConfigError(str(error)) from None
    try:
        _write(found, arguments, view)
        sys.stdout.flush()
        sys.stderr.flush()
    except (ConfigError, OSError) as error:  # the command has been run, and how it ended is what whoever started it asks for
        give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # what reads the report has had enough
            with suppress(OSError):
                say(f"error: the report is not written: {error if isinstance(error, ConfigError) else error.strerror or error}")
        give_up(sys.stderr)
    return found.trace.ending.status if found.trace.ending else 0


def _interval(text: str | None) -> float:
    if text is None:
        return _INTERVAL
    try:
        seconds = amounts.seconds(text)
    except ValueError as error:
        raise ConfigError(f"--interval: {error}") from None
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ConfigError(f"--interval: {text!r} is not between 10ms and 1h")
    return seconds


def _overhead(text: str | None) -> float:
    if text is None:
        return OVERHEAD
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise ConfigError(f"--overhead: {text!r} is not a number of percent such as '10%'") from None
    if not _LEAST_SHARE <= share <= 1:
        raise ConfigError(f"--overhead: {text!r} is not between 0.1% and 100%")
    return share


def _watched(arguments: Arguments, pace: Pace) -> TraceReport:
    live = Live(sys.stderr) if sys.stderr.isatty() and not arguments.quiet else None
    with tempfile.TemporaryDirectory(prefix="oomlint-trace-") if arguments.deep else nullcontext("") as folder:
        extra = deepening.variables(folder) if arguments.deep else None
        with closing(live) if live else nullcontext():
            known = running.run(arguments.command, pace, live or (lambda _: None), follow=arguments.follow, extra=extra, aside=_alone(arguments))
        lines = deepening.read(folder, known) if arguments.deep else ()
        return msgspec.structs.replace(report(known, lines, deep=arguments.deep, isolated=arguments.isolated), predicted=predicted(arguments, known))


def predicted(arguments: Arguments, trace: Trace) -> Predicted | None:
    """What a budget of the command says under the start method, the ranks and the workers that were seen.

    It is ``None`` where a budget says nothing: no script, no loader, shell syntax.
    """
    method, workers, ranks = setup_seen(trace)
    asked = budget.Arguments(paths=(shlex.join(arguments.command),), isolated=arguments.isolated)
    limit = trace.group_limit if any(kill.by == "cgroup" for kill in trace.kills) else None  # whatever this process may have itself
    asked = replace(asked, start_method=budget.StartMethod(method) if method else None, ranks=str(ranks) if ranks else None, ram=f"{limit}B" if limit else None)
    given = [f"start method {method}"] if method else []
    given += [f"{ranks} ranks"] if ranks else []
    try:
        found = budgets(asked, View(current_folder()))
        if workers and any(None in one.workers for one in found):  # only what the code does not say
            found = budgets(replace(asked, set=(f"num_workers={workers}",)), View(current_folder()))
            given.append(f"{workers} workers")
    except (BudgetError, ConfigError):
        return None
    if len(found) != 1:
        return None
    told = found[0].verdict
    advice = tuple(table.advice(found[0])) if trace.kills else ()
    return Predicted(told.peak.bytes, str(told.peak.moment), told.host_complete, tuple(given), advice)


def _alone(arguments: Arguments) -> bool:
    """Whether the report goes to standard output, where another program may read it: what the command writes there must not come between."""
    return arguments.output_file == STANDARD or (arguments.output_file is None and arguments.output_format is TraceFormat.JSON)


def _write(found: TraceReport, arguments: Arguments, view: View) -> None:
    """The report: text goes to standard error, since standard output is the command's where nothing else is asked for."""
    path = None if arguments.output_file == STANDARD else arguments.output_file
    as_json = arguments.output_format is TraceFormat.JSON
    if path is not None:
        if as_json:
            text = trace_json.text(found, view)
        else:
            stream = io.StringIO()
            Printer(stream, color=arguments.color == "always").lines(trace_text.lines(found, view))
            text = stream.getvalue()
        write_report(path, text)
    elif as_json:
        sys.stdout.write(trace_json.text(found, view))
    else:
        stream_of_text = sys.stdout if _alone(arguments) else sys.stderr
        printer = Printer(stream_of_text, color=wants_color(arguments.color, stream_of_text))
        printer.lines(trace_text.lines(found, view, plain=not trace_text.holds(stream_of_text.encoding)))
    if arguments.html is not None:
        write_report(arguments.html, trace_html.text(found, view))
