"""A trace as one JSON object, for other programs, and the schema of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from oomlint.output import json_array, trace_words
from oomlint.output.json_schema import array_of, object_of
from oomlint.output.json_schema import schema as findings_schema
from oomlint.trace.growth import Shape
from oomlint.trace.growth_verdicts import JudgedSubject, gaps, overlooked
from oomlint.trace.timeline import MarkKind, ProcessFigures, ProcessRole

if TYPE_CHECKING:
    from oomlint.output.view import View
    from oomlint.trace.growth_verdicts import GrowthVerdict
    from oomlint.trace.report import TraceReport
    from oomlint.trace.timeline import TimelineSample, Trace


def text(report: TraceReport, view: View) -> str:
    """The object, in ASCII, so that any encoding of the stream holds it."""
    return json.dumps(entry(report, view), indent=2) + "\n"


def entry(report: TraceReport, view: View) -> dict[str, Any]:
    """The report as plain values. Times are seconds since the start, sizes are bytes."""
    trace = report.trace
    end, pace, told = trace.ending, trace.pace, report.predicted
    return {
        "command": list(trace.command),
        "status": end.status if end else None,
        "signal": end.signal if end else 0,
        "interrupted": end.interrupted if end else 0,
        "seconds": round(pace.seconds, 3),
        "measure": trace.measure,
        "readings": {
            "count": pace.readings,
            "full": pace.full,
            "asked": pace.asked,
            "mean": round(pace.mean, 4),
            "longest": round(gaps(trace), 4),
            "cost": round(pace.cost, 4),
            "share_of_a_core": round(pace.share, 5),
        },
        "peak": {**_sample(trace.peak), "total": trace.peak.total} if trace.peak else None,
        "predicted": asdict(told) if told else None,
        "limit": {"cgroup": trace.group_limit, "cgroup_peak": trace.group_peak, "machine": trace.machine},
        "device": trace.device or None,
        "processes": [
            {
                "pid": each.pid,
                "parent": each.parent,
                "name": trace.name(index),
                "role": each.role.value,
                "start_method": each.start_method or None,
                "rank": each.rank,
                "command": list(each.words),
                "since": round(each.since, 3),
                "until": round(each.until, 3),
                "highest_resident": each.highest,
            }
            for index, each in enumerate(trace.processes)
        ],
        "samples": [_sample(sample) for sample in trace.samples],
        "marks": [
            {"at": round(mark.at, 3), "kind": mark.kind.value, "number": mark.number, "name": mark.name, "until": mark.until and round(mark.until, 3)}
            for mark in trace.marks
        ],
        "kills": [
            {"at": round(kill.at, 3), "by": kill.by, "count": kill.count, "gone": list(kill.gone), "before": _sample(kill.before)} for kill in trace.kills
        ],
        "overlooked": [{"process": index, "seen": seen, "highest": highest} for index, seen, highest in overlooked(trace)],
        "growth": [_growth(growth, trace) for growth in report.growths],
        "explained": [
            {"finding": json_array.entry(each.finding, view), "of": [{"subject": one.subject.value, "who": one.who} for one in each.growths]}
            for each in report.explanation.explained
        ],
        "unexplained": [{"subject": growth.subject.value, "who": growth.who} for growth in report.explanation.open],
        "checked": [view.name(path) for path in report.explanation.files],
        "lines": [
            {"filename": view.name(line.path), "row": line.row, "who": line.who, "first": line.first, "last": line.last, "a_minute": round(line.a_minute)}
            for line in report.lines
        ],
        "left": list(end.left) if end else [],
        "notes": [*trace_words.deaths(trace), *trace_words.notes(report)],
        "next": list(report.next),
    }


def _sample(sample: TimelineSample) -> dict[str, Any]:
    return {
        "at": round(sample.at, 3),
        "processes": [{"process": index, **figures._asdict()} for index, figures in sample.processes.items()],
        "cgroup": sample.group,
        "shm": sample.shm,
        "device": sample.device,
        "light": sample.light,
    }


def _growth(growth: GrowthVerdict, trace: Trace) -> dict[str, Any]:
    known = growth.trend
    return {
        "subject": growth.subject.value,
        "who": growth.who,
        "unit": growth.subject.unit,
        "shape": known.shape.value,
        "grows": known.shape.grows,
        "held": round(growth.held),
        "rise": round(known.rise),
        "a_minute": round(known.a_minute),
        "a_step": None if known.a_step is None else round(known.a_step, 1),
        "an_epoch": None if known.an_epoch is None else round(known.an_epoch, 1),
        "since": round(known.since, 3),
        "times": known.times,
        "freed": round(known.freed),
        "processes": list(growth.processes),
        "message": trace_words.trend(growth, trace),
    }


# -- the schema --------------------------------------------------------------------------------------------------------

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_WHOLES: Final = {"type": "array", "items": _WHOLE}


def schema() -> dict[str, Any]:
    """A JSON Schema of the object."""
    findings = findings_schema()
    subject, place = {"enum": [each.value for each in JudgedSubject]}, {**_WHOLE, "description": "a place in `processes`, from 0"}
    figures = {"process": place, **dict.fromkeys(ProcessFigures._fields, _WHOLE)}
    sample = {
        "at": _NUMBER,
        "processes": array_of(object_of(figures)),
        "cgroup": {**_or_null(_WHOLE), "description": "bytes that the cgroup is charged with, page cache included"},
        "shm": {**_or_null(_WHOLE), "description": "bytes in /dev/shm that came since the start"},
        "device": _or_null(_WHOLE),
        "light": {"type": "boolean", "description": "whether shares are told from the reading before and from what is resident since"},
    }
    growth = {
        "subject": subject,
        "who": _TEXT,
        "unit": {"enum": ["bytes", "descriptors"]},
        "shape": {"enum": [each.value for each in Shape]},
        "grows": {"type": "boolean"},
        **dict.fromkeys(("held", "rise", "a_minute"), _WHOLE),
        **dict.fromkeys(("a_step", "an_epoch"), _or_null(_NUMBER)),
        "since": _NUMBER,
        "times": _WHOLE,
        "freed": {**_WHOLE, "description": "bytes that the allocator keeps, where the script says it"},
        "processes": _WHOLES,
        "message": {**_TEXT, "description": "for people: it changes from version to version"},
    }
    process = {
        "pid": _WHOLE,
        "parent": _WHOLE,
        "name": _TEXT,
        "role": {"enum": [each.value for each in ProcessRole]},
        "start_method": _or_null(_TEXT),
        "rank": _or_null(_WHOLE),
        "command": _TEXTS,
        "since": _NUMBER,
        "until": _NUMBER,
        "highest_resident": _WHOLE,
    }
    whole = {
        "command": _TEXTS,
        "status": {**_or_null(_WHOLE), "description": "as a shell has it: 128 and the number of a signal that ended it"},
        "signal": _WHOLE,
        "interrupted": {**_WHOLE, "description": "the signal that was sent to the command while it ran, or 0"},
        "seconds": _NUMBER,
        "measure": {"enum": ["PSS", "USS"]},
        "readings": object_of({"count": _WHOLE, "full": _WHOLE, **dict.fromkeys(("asked", "mean", "longest", "cost", "share_of_a_core"), _NUMBER)}),
        "peak": _or_null(object_of({**sample, "total": _WHOLE})),
        "predicted": {
            **_or_null(object_of({"bytes": _WHOLE, "moment": _TEXT, "complete": {"type": "boolean"}, "given": _TEXTS, "advice": _TEXTS})),
            "description": "what `oomlint budget` says of the command: its peak; `complete` where nothing is left out, `given` what was seen and told to it, "
            "`advice` whether it fits and what would, where the OOM killer has ended something",
        },
        "limit": object_of(dict.fromkeys(("cgroup", "cgroup_peak", "machine"), _or_null(_WHOLE))),
        "device": _or_null(_TEXT),
        "processes": array_of(object_of(process)),
        "samples": array_of({"$ref": "#/$defs/sample"}),
        "marks": array_of(
            object_of({"at": _NUMBER, "kind": {"enum": [each.value for each in MarkKind]}, "number": _WHOLE, "name": _TEXT, "until": _or_null(_NUMBER)})
        ),
        "kills": array_of(
            object_of({"at": _NUMBER, "by": {"enum": ["cgroup", "machine"]}, "count": _WHOLE, "gone": _WHOLES, "before": {"$ref": "#/$defs/sample"}})
        ),
        "overlooked": array_of(object_of({"process": place, "seen": _WHOLE, "highest": _WHOLE})),
        "growth": array_of(object_of(growth)),
        "explained": array_of(object_of({"finding": {"$ref": "#/$defs/finding"}, "of": array_of(object_of({"subject": subject, "who": _TEXT}))})),
        "unexplained": array_of(object_of({"subject": subject, "who": _TEXT})),
        "checked": _TEXTS,
        "lines": array_of(object_of({"filename": _TEXT, "row": _WHOLE, "who": _TEXT, "first": _WHOLE, "last": _WHOLE, "a_minute": _WHOLE})),
        "left": _WHOLES,
        "notes": _TEXTS,
        "next": _TEXTS,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oomlint trace",
        **object_of(whole),
        "$defs": {**findings["$defs"], "sample": object_of(sample)},
    }


def _or_null(known: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [known, {"type": "null"}]}
