"""Worker memory over stand-in data of the kind that a finding names."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import AttributeFact, ContentKind, DatasetFact, LoaderFact
from oomlint.measurement import CallCheck
from oomlint.verify.case import Outcome, Part, QuantityReading, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.call_sites import WORKERS
from oomlint.verify.strategies.call_verdict import cause
from oomlint.verify.strategies.changed_statements import of_case
from oomlint.verify.thresholds import human, worker_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.verify.session import Session
    from oomlint.verify.thresholds import Saving

SIZE: Final = 8 * 2**20  # bytes of stand-in data; 2 MiB would still be told from noise
_SECONDS: Final = 60.0
_MEMORY: Final = 4096 * 2**20  # bytes: spawned workers import torch
_SAMPLES: Final = 8192  # of an empty dataset
_MANY: Final = 400  # tensors: forkserver refuses about 250
_CLEAR: Final = 3  # times the threshold: no spread of repeated measurements reaches that far
_DESCRIPTORS: Final = 1024
_DRAWS: Final = re.compile(r"\brandom\b|\brand\w*\(|\bnp\.random|\brng\b|shuffle\(|\bchoice\(|augment|RandomCrop|transform", re.IGNORECASE)
_KINDS: Final = {
    ContentKind.OBJECTS: "lists",
    ContentKind.OBJECT_ARRAY: "objects",
    ContentKind.PATHS: "strings",
    ContentKind.BLOB: "dicts",
    ContentKind.ARRAY: "array",
    ContentKind.ARRAYS: "arrays",
    ContentKind.TENSOR: "tensor",
    ContentKind.TENSORS: "tensors",
    ContentKind.FRAME: "array",
    ContentKind.MEMMAP: "array",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """One measurement."""

    kind: str
    workers: int
    method: str
    expression: str = ""
    path: str = ""
    count: int = 0


def judge(session: Session) -> Verdict:
    """Measure what the workers of a loader copy."""
    finding = session.case.finding
    held, loader = next(iter(finding.of_noun(AttributeFact)), None), next(iter(finding.of_noun(LoaderFact)), None)
    if held is None or loader is None:
        raise Stopped("the finding does not say what the dataset holds")
    kind = _kind(held)
    said = f"stand-in data: {human(SIZE)} of {kind} for `{held.name}`, {WORKERS} workers, shuffled, two epochs"
    wanted = session.case.plan.call
    if wanted is CallCheck.FEWER_WORKERS:
        judged = _fewer(session, loader, kind)
    elif wanted is CallCheck.DESCRIPTORS:
        judged = _descriptors(session, loader)
    else:
        judged = _copies(session, loader, kind)
    return replace(judged, assumptions=(said, *judged.assumptions))


def _kind(held: AttributeFact) -> str:
    """What stands in for the data, as the child calls it."""
    if held.holds is ContentKind.OBJECT_ARRAY:
        return "objects"
    return held.items or _KINDS.get(held.holds, "lists")


# -- measuring -------------------------------------------------------------------------------------------------------------


def _measured(session: Session, part: Part, asked: _Asked, repeat: int = 1) -> list[dict[str, Any]]:
    """Answers, the baseline of an empty dataset taken off."""
    found = []
    for _ in range(repeat):
        arguments = {"kind": asked.kind, "size": SIZE, "workers": asked.workers, "method": asked.method, "count": asked.count, "expression": asked.expression}
        if asked.expression:
            arguments |= {"path": session.path(part, asked.path), "root": session.folder(part)}
        answer = session.answer(part, "driving.call_memory:measure", arguments, seconds=_SECONDS, memory=_MEMORY)
        # Nothing is copied where it is less than without data: workers share more pages with some processes than with others.
        found.append(answer | {"added": max(0.0, answer["added"] - _base(session, asked.workers, asked.method))})
    return found


def worker_bytes(session: Session, method: str) -> float:
    """What one worker takes without any data, in bytes. An empty method is the usual one."""
    some, none = _alone(session, method)
    return max(0.0, some - none) / WORKERS


def _alone(session: Session, method: str) -> tuple[float, float]:
    """What a loader takes without any data, with workers and without."""
    # A job shares pages with the server that it is forked from, and more processes take a larger share of them: not with an interpreter of its own.
    return _base(session, WORKERS, method, fresh=True), _base(session, 0, method, fresh=True)


def _base(session: Session, workers: int, method: str, *, fresh: bool = False) -> float:
    """What workers over an empty dataset add: once for all findings of a run."""
    key = ("calls: empty workers", method if workers else "", workers, fresh)
    known = session.project.memo.get(key)
    if known is None:
        arguments = {"kind": "nothing", "size": 0, "workers": workers, "method": method, "count": _SAMPLES}
        done = session.run(Part.BEFORE, "driving.call_memory:measure", arguments, seconds=_SECONDS, fresh=fresh, memory=_MEMORY)
        if not isinstance(done.answer, dict) or done.answer["error"]:
            raise Stopped("a loader with workers cannot be run here")
        known = session.project.memo[key] = float(done.answer["added"])
    return known  # type: ignore[return-value]  # the memo holds objects of all rooms


def _methods(loader: LoaderFact) -> list[str]:
    """The start methods that the finding speaks of, the usual one first."""
    named: list[str] = [method for method in ("fork", "spawn", "forkserver") if method in loader.start_methods]
    if loader.start_method_known and named:
        return named[:1]
    return [method for method in named if method != "forkserver"] or ["fork"]


# -- what is held becomes something that is shared ----------------------------------------------------------


def _copies(session: Session, loader: LoaderFact, kind: str) -> Verdict:
    methods = _methods(loader)
    if session.case.plan.call is CallCheck.COPIES_SPAWNED:
        methods = [method for method in methods if method != "fork"] or ["spawn"]
    elif "fork" in methods:
        methods = ["fork"]
    expression, path = "", ""
    if session.case.has_fix:
        expression, path = _wrapped(session)
    readings: list[QuantityReading] = []
    judged = Verdict(Outcome.INCONCLUSIVE, "nothing was measured")
    for method in methods:
        judged = _compared(session, _Asked(kind, WORKERS, method), _Asked(kind, WORKERS, method, expression, path), readings)
        if judged.outcome in {Outcome.CONFIRMED, Outcome.REGRESSED, Outcome.SHOWN, Outcome.INCONCLUSIVE}:
            break
    return replace(judged, readings=tuple(readings))


def _compared(session: Session, old: _Asked, new: _Asked, readings: list[QuantityReading]) -> Verdict:
    asked = list(zip(session.case.parts, (old, new), strict=False))
    found: list[list[dict[str, Any]]] = []
    for part, one in asked:
        found.append(_measured(session, part, one))
        failed = found[-1][0]["error"]
        if failed and part is Part.BEFORE:
            return Verdict(Outcome.INCONCLUSIVE, f"stand-in data of this kind cannot be sent: {cause(failed)}")
        if failed:
            return Verdict(Outcome.REGRESSED, f"the loader worked before and fails after: {cause(failed)}")
    size = human(found[0][0]["size"])
    more = session.options.repeat - 1 if old.method == "fork" else 0
    if more and not _plain_to_see(_saved(found)):
        found = [answers + _measured(session, part, one, more) for answers, (part, one) in zip(found, asked, strict=True)]
    saving = _saved(found)
    under = f"{old.workers} workers, {old.method}, over {size} of {old.kind}"
    added = [tuple(item["added"] for item in answers) for answers in found]
    readings.append(QuantityReading("copied by the workers", "bytes", added[0], added[1] if session.case.has_fix else (), under))
    if not session.case.has_fix:
        outcome = Outcome.SHOWN if saving.enough else Outcome.NOT_SHOWN
        return Verdict(outcome, f"{old.workers} workers copy {human(saving.before)} of {size} of {old.kind} under {old.method}")
    batches = [{item["batches"] for item in answers} for answers in found]
    if batches[0] != batches[1]:
        return Verdict(Outcome.REGRESSED, "the batches differ between before and after")
    words = f"{human(saving.before)} copied by the workers before, {human(saving.after)} after, of {size} under {old.method}"
    if saving.enough:
        return Verdict(Outcome.CONFIRMED, f"{words}; the batches of two epochs are the same")
    if saving.more:
        return Verdict(Outcome.REGRESSED, f"{words}: more than before")
    return Verdict(Outcome.NO_EFFECT, words)


def _saved(found: Sequence[Sequence[dict[str, Any]]]) -> Saving:
    """What workers copy before and after; without a fix against nothing."""
    before, *after = ([item["added"] for item in answers] for answers in found)
    return worker_memory(before, after[0] if after else [0.0], found[0][0]["size"], WORKERS)


def _plain_to_see(saving: Saving) -> bool:
    """Whether one measurement will do: far more than noise, or far less."""
    return abs(saving.saved) >= _CLEAR * saving.needed or abs(saving.saved) <= saving.needed / _CLEAR


def _wrapped(session: Session) -> tuple[str, str]:
    """What the fix makes of the value, as an expression over ``__data__``, and the file that it is in."""
    changes = {path: of_case(session.case, path, script=True) for path in session.case.changes}
    several = session.case.by_hand and sum(len(come) for _, come in changes.values()) > 1  # one of several changes is not the fix
    for path, (gone, come) in () if several else changes.items():
        for old, new in product((item.node for item in gone), (item.node for item in come)):
            if not isinstance(old, (ast.Assign, ast.AnnAssign)) or not isinstance(new, (ast.Assign, ast.AnnAssign)) or not isinstance(new.value, ast.Call):
                continue
            call = new.value
            if call.args and old.value is not None and ast.dump(call.args[0]) == ast.dump(old.value):
                others = [ast.unparse(item) for item in (*call.args[1:], *call.keywords)]
                return f"{ast.unparse(call.func)}({', '.join(['__data__', *others])})", path
    raise Stopped("the fix changes the dataset's class, which needs the user's own data to run")


# -- too many descriptors ---------------------------------------------------------------------------------------------


def _descriptors(session: Session, loader: LoaderFact) -> Verdict:
    spawned = loader.start_method_known and loader.start_methods == ("spawn",)
    method, count = ("spawn", _DESCRIPTORS + 276) if spawned else ("forkserver", _MANY)
    fixed = session.case.has_fix
    asked = [_Asked("tensors", 1, method, *found, count) for found in (("", ""), *([_wrapped(session)] if fixed else []))]
    pairs = list(zip(session.case.parts, asked, strict=True))
    errors = [_measured(session, part, one)[0]["error"] for part, one in pairs]
    failed, later = errors[0], errors[1] if fixed else None
    batches = {_measured(session, part, replace(one, workers=0))[0]["batches"] for part, one in pairs} if fixed and not later else {0}
    reading = QuantityReading(
        "loaders that cannot start", "loaders", (float(bool(failed)),), tuple(float(bool(error)) for error in errors[1:]), f"1 worker, {method}"
    )
    under = f"with {count} tensors under {method}"
    words = f"{cause(failed)} {under}" if failed else f"the worker starts {under}"
    if not fixed:
        outcome = Outcome.SHOWN if failed else Outcome.NOT_SHOWN
    elif later:
        outcome, words = Outcome.INCONCLUSIVE if failed else Outcome.REGRESSED, f"the loader fails after the fix: {cause(later)}"
    elif len(batches) > 1:
        outcome, words = Outcome.REGRESSED, "the batches differ between before and after"
    elif failed:
        outcome, words = Outcome.CONFIRMED, f"{cause(failed)} before {under}, none after; the samples are the same"
    else:
        outcome, words = Outcome.NO_EFFECT, f"{words} before as well"
    return Verdict(outcome, words, readings=(reading,), assumptions=(f"{count} tensors, under {method}",))


# -- no workers ----------------------------------------------------------------------------------------------------------


def _fewer(session: Session, loader: LoaderFact, kind: str) -> Verdict:
    if session.case.has_fix and (drawn := _random(session)):
        return Verdict(Outcome.INCONCLUSIVE, f"{drawn} draws random numbers: without workers its samples differ, and whether they are as good is not measured")
    readings: list[QuantityReading] = []
    last = Verdict(Outcome.INCONCLUSIVE, "nothing was measured")
    quiet: list[str] = []
    for method in _methods(loader):
        last = _compared(session, _Asked(kind, WORKERS, method), _Asked(kind, 0, method), readings)
        if last.outcome in {Outcome.INCONCLUSIVE, Outcome.REGRESSED}:
            return replace(last, readings=tuple(readings))
        if last.outcome in {Outcome.CONFIRMED, Outcome.SHOWN}:
            only = f"; under {' and '.join(quiet)} the data is shared" if quiet else ""
            return replace(last, reason=f"{last.reason}{only}", readings=tuple(reversed(readings)), assumptions=_equal(session))
        quiet.append(method)
    return replace(_own(session, quiet[0], readings), readings=tuple(reversed(readings)), assumptions=_equal(session))


def _own(session: Session, method: str, readings: list[QuantityReading]) -> Verdict:
    """Where the data is shared: what the workers themselves take."""
    base, less = _alone(session, method)
    saving = worker_memory([base], [less], 0, WORKERS)
    fixed = session.case.has_fix
    readings.append(QuantityReading("taken by the workers themselves", "bytes", (base,), (less,) if fixed else (), f"{WORKERS} workers, {method}, no data"))
    words = f"the data is shared under {method}; {WORKERS} workers themselves take {human(base)}"
    if not saving.enough:
        return Verdict(Outcome.NO_EFFECT if fixed else Outcome.NOT_SHOWN, words)
    if fixed:
        return Verdict(Outcome.CONFIRMED, f"{words} before, {human(less)} without them; the batches of two epochs are the same")
    return Verdict(Outcome.SHOWN, words)


def _equal(session: Session) -> tuple[str, ...]:
    return ("equal up to worker RNG: the order of the samples is the same, random numbers drawn in a sample would differ",) if session.case.has_fix else ()


def _random(session: Session) -> str:
    """The method of the dataset that draws random numbers, empty where none does by its text."""
    for fact in session.case.finding.of_noun(DatasetFact):
        module = session.project.find(fact.place.path)
        for scope in module.walk.scopes if module is not None else ():
            inside = scope.parent is not None and scope.parent.is_class and scope.parent.qualname == fact.name
            if module is not None and inside and scope.name == "__getitem__" and _DRAWS.search(module.code(scope.node)):
                return f"`__getitem__` of `{fact.name.rpartition('.')[2]}`"
    return ""
