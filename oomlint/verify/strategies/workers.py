"""Workers beyond need, and without effect. The loader's call is cut out and run; its numbers are read, not started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import LoaderFact
from oomlint.measurement import WorkerCheck
from oomlint.verify.case import Fidelity, Outcome, Part, QuantityReading, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import locate_subject
from oomlint.verify.strategies.call_sites import LOST, WORKERS, after_fix, domain, measured, planned, targets
from oomlint.verify.strategies.call_verdict import cause, pairs
from oomlint.verify.strategies.dataset_metrics import MANY
from oomlint.verify.strategies.dataset_runs import Broken, DatasetRuns, found, listed
from oomlint.verify.thresholds import human

if TYPE_CHECKING:
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.call_sites import Domain, LoaderTarget
    from oomlint.verify.strategies.locate_subject import Subject

HOST: Final = 64  # processors of the machine that the program is taken to run on
ALLOWED: Final = 4  # of them that it may use
_PREFETCH: Final = 2  # torch's default
_SECONDS: Final = 30.0
_BYTES: Final = 4096 * 2**20
_SMALL: Final = (2, 2)
_LARGE: Final = (HOST, ALLOWED)
_NODE: Final = f"a machine of {HOST} processors of which the job may use {ALLOWED}"
_STAND_IN: Final = "a stand-in dataset that returns its indices"

Run = dict[str, Any]


@dataclass(slots=True)
class _Told:
    """What goes with every verdict."""

    assumptions: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def verdict(self, outcome: Outcome, reason: str, *readings: QuantityReading, fidelity: Fidelity = Fidelity.SLICED) -> Verdict:
        """The verdict, with each assumption once."""
        return Verdict(outcome, reason, fidelity, readings, (), tuple(dict.fromkeys(self.assumptions)), tuple(dict.fromkeys(self.left_out)))

    def fewer(self, counts: list[int], words: str, *readings: QuantityReading, excess: bool, same: str = "") -> Verdict:
        """The verdict on a number of each part. ``excess`` says that it was too high before, ``same`` what else is the same after."""
        if len(counts) == 1:
            return self.verdict(Outcome.SHOWN if excess else Outcome.NOT_SHOWN, words, *readings)
        if counts[1] > counts[0]:
            return self.verdict(Outcome.REGRESSED, f"{words}: more than before", *readings)
        if not excess or counts[1] == counts[0]:
            return self.verdict(Outcome.NO_EFFECT, words, *readings)
        return self.verdict(Outcome.CONFIRMED, f"{words}; {same}", *readings)


def verify(session: Session) -> Verdict:
    """Verify one finding about workers."""
    told = _Told()
    wanted = session.case.plan.workers
    if wanted is None:
        return told.verdict(Outcome.INCONCLUSIVE, "nothing of the workers is asked")
    try:
        return _CHECKS[wanted](session, told)
    except Stopped as stop:
        return told.verdict(Outcome.INCONCLUSIVE, str(stop))


# -- the call -----------------------------------------------------------------------------------------------------------


def _target(session: Session) -> LoaderTarget:
    loaders = targets(session, (session.case.finding.place,))
    if not loaders:
        raise Stopped(LOST)
    return loaders[0]


def _runs(
    session: Session, part: Part, target: LoaderTarget, values: Domain, told: _Told, *, own: str, counts: list[int], processors: tuple[int, int]
) -> list[Run]:
    """The runs that get to the call and work."""
    answer = measured(session, part, target, values, own=own, counts=counts, processors=processors)
    told.left_out += [*answer["skipped"], *session.stood_in(target.path, target.site.function, answer)]
    reached = [run for run in answer["runs"] if run["reached"]]
    working = [run for run in reached if not run.get("error") or run.get("calls")]
    if not working:
        error = next((run["error"] for run in reached if run.get("error")), None)
        raise Stopped(f"the cut-out call cannot be run: {cause(error)}" if error else "the call could not be reached")
    # That two workers stand for many is how it is run; the numbers of interest are those that were asked for.
    told.assumptions += [note for run in working for note in run.get("notes", ()) if not note.startswith("num_workers: ")]
    return working


def _settled(values: Domain, runs: list[Run], name: str) -> None:
    """Raise where the number of workers comes of something that nobody knows."""
    for run in runs:
        for text, value in run["values"].items():
            if text not in values.leaves and value == repr(run.get("given", {}).get(name)):
                raise Stopped(f"`{text}` is not known, and with it the {name.replace('num_', 'number of ')}")


# -- a function for workers, without workers --------------------------------------------------------------------


def _ignored(session: Session, told: _Told) -> Verdict:
    target = _target(session)
    told.assumptions += [_STAND_IN]
    called = [_called(session, Part.BEFORE, target, told)]
    if called[0] != 0:
        raise Stopped("the loader could not be made with `worker_init_fn` and without workers")
    if session.case.has_fix:
        called.append(_called(session, Part.AFTER, target, told))
    words = "`worker_init_fn` is not called in an epoch without workers"
    later = called[1] if session.case.has_fix else 0
    reading = QuantityReading.of("worker functions that are ignored", "functions", [count == 0 for count in called], "two epochs without workers")
    for subject in locate_subject.datasets(session)[:1] if later <= 0 else ():  # else it may well need its workers
        verdict = _dataset_alone(session, subject, told, words, reading)
        if verdict is not None:
            return verdict
    if not session.case.has_fix:
        told.assumptions.append("that samples cannot be read without it is what the finding says; the dataset itself was not run")
        return told.verdict(Outcome.SHOWN, words, reading)
    if later > 0:
        return told.verdict(Outcome.CONFIRMED, f"{words} before; after the fix it is called by the workers", reading)
    raise Stopped("whether the dataset can be read without `worker_init_fn` could not be shown, since no data was found that it reads")


def _called(session: Session, part: Part, target: LoaderTarget, told: _Told) -> int:
    """How often the worker function is called; -1 where the loader has none."""
    known = domain(target)
    none: list[dict[str, object]] = [{text: value if isinstance(value, dict) else 0 for text, value in row.items()} for row in known.values]
    values = replace(known, values=[row for number, row in enumerate(none) if row not in none[:number]])
    runs = _runs(session, part, target, values, told, own="worker_init_fn", counts=[0], processors=_SMALL)
    runs = [run for run in runs if "worker_init_fn" in run.get("functions", {}) and (part is Part.AFTER or run["settings"]["num_workers"] == 0)]
    return min((run["calls"] for run in runs), default=-1)


def _dataset_alone(session: Session, subject: Subject, told: _Told, words: str, reading: QuantityReading) -> Verdict | None:
    """The user's own dataset, read without workers. ``None`` where no data can be found for it."""
    if not session.case.has_fix:
        runs = found(session, subject, at_row=False)
        if isinstance(runs, str):
            if "NoneType" not in runs:
                return None
            _, _, failure = runs.partition(" reads: ")
            return told.verdict(Outcome.SHOWN, f"{words}, and a sample of `{subject.name}` cannot be read: `{failure or runs}`", reading)
        told.assumptions += runs.assumed
        failed = _failure(runs, Part.BEFORE)
        if failed is None:
            return told.verdict(Outcome.NOT_SHOWN, f"{words}, but `{subject.name}` reads its samples without it", reading, fidelity=runs.fidelity)
        return told.verdict(Outcome.SHOWN, f"{words}, and a sample of `{subject.name}` cannot be read: `{failed}`", reading, fidelity=runs.fidelity)
    after = found(session, subject, at_row=False, part=Part.AFTER)  # that before reads none
    if isinstance(after, str):
        return None
    told.assumptions += after.assumed
    told.left_out += after.left_out
    broken, failed = _failure(after, Part.AFTER), _failure(after, Part.BEFORE)
    if broken is not None:
        return None
    if failed is None:
        reason = f"{words}, but `{subject.name}` reads its samples without it before the fix as well"
        return told.verdict(Outcome.NO_EFFECT, reason, reading, fidelity=after.fidelity)
    reason = f"{words}, and a sample of `{subject.name}` cannot be read: `{failed}`; after the fix the samples are read"
    return told.verdict(Outcome.CONFIRMED, reason, reading, fidelity=after.fidelity)


def _failure(runs: DatasetRuns, part: Part) -> str | None:
    """What reading raises. Raises Stopped where that cannot be told."""
    try:
        runs.ask(part, "measuring.worker_epochs:compared", workers=0)
    except Broken as error:
        return str(error.told["error"])
    return None


# -- more workers than processors -------------------------------------------------------------------------------


def _oversized(session: Session, told: _Told) -> Verdict:
    target = _target(session)
    told.assumptions += [f"the program runs on {_NODE}", _STAND_IN, f"the order of the batches is compared with {WORKERS} workers"]
    runs: list[list[Run]] = []
    asked: list[int] = []
    for part in session.case.parts:
        values = domain(target if part is Part.BEFORE else after_fix(session, target), processors=HOST)
        runs.append(_runs(session, part, target, values, told, own="", counts=[WORKERS, 0], processors=_LARGE))
        asked.append(max(run["given"].get("num_workers", 0) for run in runs[-1]))
        if part is Part.AFTER or asked[0] <= ALLOWED:
            _settled(values, runs[-1], "num_workers")
    one = _worker_bytes(session, runs[0][0]["settings"]["multiprocessing_context"] or "")
    taken = f"a worker takes {human(one)} without any data"
    excess = asked[0] > ALLOWED
    reading = QuantityReading.of("workers", "workers", asked, f"{_NODE}; {taken}")
    if not session.case.has_fix:
        words = f"{asked[0]} workers are asked for on {_NODE}"
        return told.fewer(asked, f"{words}; {taken}, all of them {human(one * asked[0])}" if excess else words, reading, excess=excess)
    total = [one * count for count in asked]
    readings = reading, QuantityReading.of("memory of all workers", "bytes", total, "the number of workers times what one takes without any data")
    if any(old["epochs"] != new["epochs"] for old, new in pairs(*runs) or [(runs[0][0], runs[1][0])]):
        return told.verdict(Outcome.REGRESSED, "the batches differ between before and after", *readings)
    words = f"{asked[0]} workers before, {asked[1]} after, on {_NODE}: {human(total[0])} before, {human(total[1])} after"
    return told.fewer(asked, words, *readings, excess=excess, same="the order of the batches is the same")


def _worker_bytes(session: Session, method: str) -> float:
    """What one worker takes without any data, in bytes, once for all findings of a run. An empty method is the usual one."""
    key = ("workers without data", method)
    if key not in session.project.memo:
        runs = DatasetRuns(session, None)
        named: dict[str, Any] = {"alone": True, "fresh": True, "method": method, "size": MANY, "seconds": 60}
        some, none = (runs.ask(Part.BEFORE, "measuring.worker_epochs:tree", workers=number, **named)["empty"][0] for number in (WORKERS, 0))
        session.project.memo[key] = max(0.0, some - none) / WORKERS
    return session.project.memo[key]  # type: ignore[return-value]  # the memo holds objects of all rooms


# -- batches in flight ------------------------------------------------------------------------------------------


def _in_flight(session: Session, told: _Told) -> Verdict:
    target = _target(session)
    reasons: list[str] = []
    runs = DatasetRuns(session, None, fidelity=Fidelity.FACTORY) if session.options.factory else None
    for subject in locate_subject.datasets(session)[:2] if runs is None else ():
        made = _plain(session, subject) or found(session, subject, at_row=False)
        if isinstance(made, DatasetRuns):
            runs = made
            break
        reasons.append(made)
    if runs is None:
        raise Stopped("; ".join(reasons) or "no dataset could be told from the finding")
    told.assumptions += [*runs.assumed, "all samples are as large as the first"]
    told.left_out += runs.left_out
    budget = session.settings.inflight_bytes
    first, said = _flying(session, Part.BEFORE, target, runs, told)
    words = f"up to {human(first)} wait between the workers and the training ({said})"
    if not session.case.has_fix:
        reading = QuantityReading.of("batches in flight", "bytes", [first], said)
        return told.verdict(Outcome.SHOWN if first > budget else Outcome.NOT_SHOWN, words, reading, fidelity=runs.fidelity)
    last, then = _flying(session, Part.AFTER, target, runs, told)
    reading = QuantityReading.of("batches in flight", "bytes", [first, last], f"{said} before, {then} after")
    words = f"{words} before, {human(last)} after ({then})"
    if first <= budget:
        outcome = Outcome.NO_EFFECT if last <= first else Outcome.REGRESSED
        return told.verdict(outcome, f"{words}: before the fix that is below {human(budget)} as well", reading, fidelity=runs.fidelity)
    if last >= first:
        return told.verdict(Outcome.NO_EFFECT, f"{words}: no less than before", reading, fidelity=runs.fidelity)
    told.assumptions.append("another batch size or number of workers is what the fix is for: the batches are not compared")
    return told.verdict(Outcome.CONFIRMED, words, reading, fidelity=runs.fidelity)


def _plain(session: Session, subject: Subject) -> DatasetRuns | None:
    """A dataset that needs nothing made up. Its samples are large: a search would take too long over them."""
    arguments = {"path": session.path(Part.BEFORE, subject.path), "root": session.folder(Part.BEFORE), "cls": subject.name, "known": listed(subject.known)}
    answer = session.run(Part.BEFORE, "driving.call_job:plain", arguments, seconds=_SECONDS).answer
    return DatasetRuns(session, subject, answer["state"], Fidelity.DATA) if answer and not answer["failed"] and answer["bytes"] else None


def _flying(session: Session, part: Part, target: LoaderTarget, runs: DatasetRuns, told: _Told) -> tuple[float, str]:
    """The most bytes that wait, and how they come about."""
    here = target if part is Part.BEFORE else after_fix(session, target)
    values = domain(here, "batch_size", "prefetch_factor", processors=HOST)
    working = _runs(session, part, target, values, told, own="", counts=[WORKERS], processors=_LARGE)
    try:
        weight = runs.ask(part, "driving.call_job:sample", seconds=_SECONDS)["bytes"]
    except (Broken, Stopped) as error:
        raise Stopped(f"a sample could not be read: {error}") from None
    most, said = 0.0, ""
    for run in working:
        given = run["given"]
        _settled(values, [run], "num_workers")
        _settled(values, [run], "batch_size")
        batch = given.get("batch_size", 1)
        if given.get("batch_sampler") is not None or not isinstance(batch, int):
            raise Stopped("how many samples a batch has could not be found out")
        workers = given.get("num_workers", 0)
        ahead = given.get("prefetch_factor")
        number = workers * (_PREFETCH if ahead is None else ahead) + 1
        total = float(number * batch * weight)
        if total >= most:
            batches = "1 batch" if number == 1 else f"{number} batches"
            most, said = total, f"{batches} of {batch} {'sample' if batch == 1 else 'samples'}, {human(weight)} each"
    return most, said


# -- workers of several loaders at once --------------------------------------------------------------------------


def _together(session: Session, told: _Told) -> Verdict:
    finding = session.case.finding
    places = tuple(fact.place for fact in finding.of_noun(LoaderFact)) or (finding.place,)
    chosen = [one for place in places for one in targets(session, (place,))[:1]]
    if len({(one.path, one.site.call.lineno, one.site.call.col_offset) for one in chosen}) < 2 or len({one.path for one in chosen}) > 1:  # noqa: PLR2004 -- one alone is no case
        raise Stopped("the loaders were not found in the program")
    told.assumptions += [_STAND_IN, f"each loader has {WORKERS} workers", "the loaders are used one after the other, and none is dropped in between"]
    domains = [domain(one, "persistent_workers", least=1) for one in chosen]
    before = _alive(session, Part.BEFORE, chosen, domains)
    counts = [before["processes"]]
    words = f"{counts[0]} {'worker is' if counts[0] == 1 else 'workers are'} alive after an epoch of each of {len(chosen)} loaders"
    different = ""
    if session.case.has_fix:
        ways = [
            _way(domain(after_fix(session, one), "persistent_workers", least=1), loader["values"])
            for one, loader in zip(chosen, before["loaders"], strict=True)
        ]
        after = _alive(session, Part.AFTER, chosen, ways)
        counts.append(after["processes"])
        words = f"{words} before, {counts[1]} after"
        for number, (old, new) in enumerate(zip(before["loaders"], after["loaders"], strict=True), 1):
            epoch = next((epoch for epoch, pair in enumerate(zip(old["epochs"], new["epochs"], strict=True), 1) if pair[0] != pair[1]), 0)
            different = different or (f"the batches of loader {number} differ from epoch {epoch} on; {words}" if epoch else "")
    reading = QuantityReading.of("workers alive at once", "workers", counts, f"after an epoch of each of {len(chosen)} loaders, {WORKERS} workers each")
    if different:
        return told.verdict(Outcome.REGRESSED, different, reading)
    return told.fewer(counts, words, reading, excess=counts[0] > WORKERS, same="the batches of two epochs of each are the same")


def _way(values: Domain, chosen: dict[str, object]) -> Domain:
    """The configuration that was run before, as far as the fix has left its values as they were."""
    rows = [{**chosen, **row} for row in values.values]
    return replace(values, values=[chosen] if chosen in rows else rows)


def _alive(session: Session, part: Part, chosen: list[LoaderTarget], domains: list[Domain]) -> dict[str, Any]:
    plans = [planned(session, part, one, values) for one, values in zip(chosen, domains, strict=True)]
    arguments = {"path": session.path(part, chosen[0].path), "root": session.folder(part), "plans": plans}
    answer = session.answer(part, "driving.call_job:alive", arguments, seconds=_SECONDS, memory=_BYTES)
    failed = next((loader["error"] for loader in answer["loaders"] if loader["error"]), None)
    if failed is not None:
        said = cause(failed) if failed["type"] else failed["message"]
        raise Stopped(f"{'' if part is Part.BEFORE else 'after the fix '}the cut-out calls cannot be run: {said}")
    return answer


_CHECKS: Final = {
    WorkerCheck.INITIALISED: _ignored,
    WorkerCheck.OVERSIZED: _oversized,
    WorkerCheck.IN_FLIGHT: _in_flight,
    WorkerCheck.TOGETHER: _together,
}
