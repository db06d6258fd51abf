"""What a trace is told in, whatever the format: amounts, moments, and a sentence for each thing that is said."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING, Final

from oomlint.output.summary import count
from oomlint.output.verdicts_numbers import amount
from oomlint.output.view import one_line
from oomlint.trace.growth import Shape
from oomlint.trace.growth_verdicts import JudgedSubject, gaps, in_files, overlooked, sends
from oomlint.trace.timeline import MarkKind, ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.trace.explaining import Explained
    from oomlint.trace.growth_verdicts import GrowthVerdict
    from oomlint.trace.report import TraceReport
    from oomlint.trace.timeline import Kill, TimelineSample, Trace

_MINUTE, _HOUR = 60, 3600
_SHOWN: Final = 4  # processes that a sentence names
_CLOSE: Final = 0.95  # of a limit
_MUCH: Final = 0.1  # of a limit
_SIGKILL: Final = 9
_ELSEWHERE: Final = "no kill by the kernel's OOM killer was counted (a job scheduler, or a daemon such as earlyoom, sends it, too)"


def command(trace: Trace) -> str:
    """The command as it could be typed."""
    return one_line(shlex.join(trace.command))


def moment(seconds: float) -> str:
    """A time since the start: ``9.0 s``, ``12:34``, ``1:02:03``."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}:{whole % _MINUTE:02}"
    return f"{whole // _HOUR}:{whole % _HOUR // _MINUTE:02}:{whole % _MINUTE:02}"


def size(value: float) -> str:
    """Bytes for people."""
    return amount(value, "bytes")


def ending(trace: Trace) -> str:
    """How the command ended."""
    if trace.ending is None:
        return "it still runs"
    after = f"after {moment(trace.pace.seconds)}"
    by = "the OOM killer" if trace.ending.signal == _SIGKILL and trace.kills else _signal(trace.ending.signal)
    said = f"killed by {by}" if trace.ending.signal else f"status {trace.ending.status}"
    return f"{said} {after}" + (f", interrupted by {_signal(trace.ending.interrupted)}" if trace.ending.interrupted else "")


def readings(trace: Trace) -> str:
    """How often it was read, and what that took."""
    pace = trace.pace
    full = "" if pace.full == pace.readings or trace.measure != "PSS" else f", {pace.full} of them with proportional shares"
    return f"{count(pace.readings, 'reading')}, one every {pace.mean:.2f} s on average{full}; they took {100 * pace.share:.1f} % of one core"


def place(trace: Trace, at: float) -> str:
    """Where in the run a moment is: after how many seconds, in which epoch and step."""
    parts = [f"after {moment(at)}"]
    for kind in (MarkKind.EPOCH, MarkKind.STEP):
        found = [mark for mark in trace.of_kind(kind) if mark.at <= at]
        if found:
            parts.append(f"{kind.value} {found[-1].number}")
    phase = next((mark for mark in trace.of_kind(MarkKind.PHASE) if mark.at <= at and (mark.until is None or at <= mark.until)), None)
    return ", ".join([*parts, *([one_line(phase.name)] if phase else [])])


def holders(trace: Trace, sample: TimelineSample) -> list[tuple[str, int, int, int, int]]:
    """Who held what at a reading, the largest first: name, anonymous, shared, private dirty, descriptors. Workers of a kind come as one row each."""
    rows = []
    for index, figures in sample.processes.items():
        process = trace.processes[index]
        about = f" ({process.start_method})" if process.role is ProcessRole.WORKER else ""
        rows.append((f"{trace.name(index)}{about}, pid {process.pid}", figures.anonymous, figures.shared, figures.dirty, figures.descriptors))
    return sorted(rows, key=lambda row: -(row[1] + row[2]))


def trend(growth: GrowthVerdict, trace: Trace) -> str:
    """What is said of a growth, after who it is of."""
    known = growth.trend

    def much(value: float) -> str:
        return amount(value, growth.subject.unit)

    if growth.subject is JudgedSubject.COPIES:
        each = f", {much(growth.held / max(len(growth.processes), 1))} in each" if len(growth.processes) > 1 else ""
        said = f"have copied {much(growth.held)} of what they inherited{each}: writing to a page copies it, and reading a Python object writes to its count"
        return said + (f"; {_speed(growth, trace)}" if known.shape.grows else "")
    match known.shape:
        case Shape.SHORT:
            return "too short to judge"
        case Shape.FLAT if growth.subject is JudgedSubject.WORKERS:
            return f"flat, with {much(growth.held)} of their own at the peak"
        case Shape.FLAT:
            return f"flat, at {much(growth.held)}{_whole(growth, trace)}" if growth.held else "flat"
        case Shape.SETTLED:
            asked = "" if trace.allocators else ", or freed memory that the allocator keeps (`oomlint.trace.watch()` in the script tells)"
            return f"rises by {much(known.rise)} until {moment(known.since)}, then flat: what the program holds{asked}"
        case Shape.KEPT:
            return f"the allocator keeps {much(known.freed)} that the program has freed"
        case Shape.WAVES:
            sent = ": workers that are not forked are sent the dataset, and it is pickled first" if sends(growth, trace) else ""
            return f"rises by {much(known.rise)} and falls again, {known.times} times{sent}"
        case Shape.STAIRS:
            return f"grows in steps, {known.times} of about {much(known.rise / known.times)}: {_speed(growth, trace)}"
        case Shape.EPOCHS:
            return f"grows with each {_epoch(trace)}: {_speed(growth, trace)}"
        case _:
            return f"grows steadily: {_speed(growth, trace)}"


def _whole(growth: GrowthVerdict, trace: Trace) -> str:
    """Why what one process holds is more than its proportional share, where it is."""
    shares = [figures for index, figures in trace.peak.processes.items() if growth.processes == (index,)] if trace.peak else []
    return ", counting whole what others share" if any(each.anonymous < _CLOSE * each.mapped for each in shares) else ""


def _speed(growth: GrowthVerdict, trace: Trace) -> str:
    known, unit = growth.trend, growth.subject.unit
    parts = [f"{amount(known.a_minute, unit)} a minute"]
    if known.a_step is not None:
        parts.append(f"{amount(known.a_step, unit)} a step")
    if known.an_epoch is not None:
        parts.append(f"{amount(known.an_epoch, unit)} {'an' if _epoch(trace) == 'epoch' else 'a'} {_epoch(trace)}")
    return ", ".join(parts)


def _epoch(trace: Trace) -> str:
    return "epoch" if trace.of_kind(MarkKind.EPOCH) else "pass over a loader"


def predicted(report: TraceReport) -> str:
    """What was predicted of the peak; empty where nothing was."""
    told = report.predicted
    if told is None:
        return ""
    given = f", for what was seen: {', '.join(told.given)}" if told.given else ""
    return f"`oomlint budget` predicts {size(told.bytes)}{'' if told.complete else ' at least'}, at the moment `{told.moment}`{given}"


def advice(report: TraceReport) -> str:
    """What would have fitted, where the OOM killer has ended something; else empty."""
    told, trace = report.predicted, report.trace
    if told is None or not told.advice:
        return ""
    where, limit = ("with the cgroup's limit", trace.group_limit) if trace.group_limit else ("on this machine", trace.machine)
    others = (trace.group_most or 0) - (trace.peak.total if trace.peak is not None else 0)
    beside = f" Beside the command, {size(others)} of it were taken, page cache included." if trace.group_limit and others >= _MUCH * trace.group_limit else ""
    open_end = " So what it knows of does not explain the kill." if limit and told.bytes <= limit else ""
    return f"{where} it says: {' '.join(told.advice)}{open_end}{beside}"


def deaths(trace: Trace) -> Iterator[str]:
    """Who was killed, by whom as far as that is known, and what all held just before: nothing else that is said matters more."""
    yield from (_kill(trace, kill) for kill in trace.kills)
    if trace.kills:
        return
    killed = [f"{trace.name(index)} (pid {each.pid})" for index, each in enumerate(trace.processes) if each.signal == _SIGKILL]
    if killed:
        more = f" and {len(killed) - _SHOWN} more" if len(killed) > _SHOWN else ""
        yield f"SIGKILL has ended {', '.join(killed[:_SHOWN])}{more}; {_ELSEWHERE}"
    elif trace.ending is not None and trace.ending.signal == _SIGKILL:
        yield f"SIGKILL came from elsewhere: {_ELSEWHERE}"


def notes(report: TraceReport) -> Iterator[str]:
    """What else has to be said: limits, what may be missed, what is left."""
    trace = report.trace
    if trace.group_limit is not None and trace.group_most:
        close = ", close to what it may have" if trace.group_most >= _CLOSE * trace.group_limit else ""
        yield f"the cgroup may have {size(trace.group_limit)}; it had {size(trace.group_most)} at a reading, page cache included{close}"
    for index, seen, highest in overlooked(trace):
        yield f"{trace.name(index)} was larger between two readings: resident {size(highest)} by the kernel's account, {size(seen)} at most when it was read"
    if in_files(trace):
        yield f"the file system of shared memory got fuller by {size(in_files(trace))}, by batches on their way or by other programs"
    if trace.samples:
        yield f"what lasts less than {max(trace.pace.asked, gaps(trace)):.2f} s may be missed"
    if trace.pace.mean > 2 * trace.pace.asked and trace.pace.share > trace.pace.most / 2:
        yield f"readings were further apart than {trace.pace.asked:g} s, so that they take no more than {100 * trace.pace.most:g} % of one core"
    if trace.pace.readings > 2 * trace.pace.full:
        said = "what processes take is seen at each reading, what they copy of each other at those with proportional shares"
        yield f"{said}, at most {gaps(trace, full=True):.1f} s apart, so that reading takes no more than {100 * trace.pace.most:g} % of one core"
    if trace.ending is not None and trace.ending.left:
        left = ", ".join(f"{trace.name(index)} (pid {trace.processes[index].pid})" for index in trace.ending.left[:_SHOWN])
        yield f"the command has ended and left {count(len(trace.ending.left), 'process', 'processes')} running: {left}; `--follow` watches until they end, too"
    if trace.measure != "PSS":
        yield "this system tells no proportional shares: figures are unique set sizes, and what processes share is in none of them"
    yield from trace.notes
    if report.explanation.trouble:
        yield f"not checked: {report.explanation.trouble}"


def _kill(trace: Trace, kill: Kill) -> str:
    main = trace.ending is not None and trace.ending.signal == _SIGKILL  # it is what was killed, whoever else went with it
    gone = sorted(kill.gone, key=lambda index: (not (main and trace.processes[index].role is ProcessRole.MAIN), -kill.before.processes[index].held))
    who = ", ".join(f"{trace.name(index)} ({size(kill.before.processes[index].held)})" for index in gone[:_SHOWN])
    who += f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
    limit = f" of the cgroup, which may have {size(trace.group_limit or 0)}," if kill.by == "cgroup" else " of the machine"
    seen = moment(kill.before.at)
    one = "one of " if kill.count < len(kill.gone) else ""
    return f"the OOM killer{limit} ended {one}{who} after {seen}; all processes held {size(kill.before.total)} at the reading before"


def explains(each: Explained) -> str:
    """What a finding explains, for the end of a sentence."""
    names = dict.fromkeys(_name(growth) for growth in each.growths if growth.trend.shape.grows or not each.grows)
    *first, last = names
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"fits {'the growth of' if each.grows else 'what is held by'} {listed}"


def _name(growth: GrowthVerdict) -> str:
    """Who it is of, and what of it where that is not memory."""
    return (
        f"the descriptors of the {growth.who}"
        if growth.subject is JudgedSubject.DESCRIPTORS
        else f"the {growth.who}"
        if growth.who[:1].islower()
        else growth.who
    )


def unexplained(report: TraceReport) -> Iterator[str]:
    """What nothing that a check finds explains."""
    if not report.explanation.files:
        return
    files = count(len(report.explanation.files), "file")
    for growth in report.explanation.open:
        yield f"nothing that a check finds in the {files} of the command explains the growth of {_name(growth)}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
