"""Functions that read or write files: they are called before and after a fix with arguments that a search has found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import Safety
from oomlint.measurement import FunctionSign
from oomlint.verify import thresholds
from oomlint.verify.case import Fidelity, Outcome, Part, Reading, Timeline, Verdict
from oomlint.verify.strategies import locate_subject, prices
from oomlint.verify.strategies.candidates import candidates, evidence, first
from oomlint.verify.strategies.dataset_metrics import HALF, LEAST, PART, TWICE, Sign, falls, too_small
from oomlint.verify.strategies.dataset_runs import SCALED, SECONDS, TRIALS, Broken, Stopped, TooSmall, listed
from oomlint.verify.thresholds import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject

NONE: Final = "it stands in no function that can be called"
CLOSED: Final = "CPython closes the file when the last reference to it goes: nothing is open after the call"
CALLED: Final = 20


@dataclass(slots=True)
class _Runs:
    session: Session
    subject: Subject
    state: Any
    fidelity: Fidelity
    assumed: list[str]
    left_out: list[str]
    size: int = 0
    small: bool = False  # whether the data turned out to be too few to tell
    known: dict[str, Any] = field(default_factory=dict)

    def ask(self, part: Part, call: str, repetition: int = 0, **named: Any) -> dict[str, Any]:
        """Call it, and measure. Raises Broken where the user's code raises, Stopped where there is no answer."""
        if self.size and call in {"measure", "memory"}:
            named["size"] = self.size
        key = json.dumps([part, call, repetition, named], sort_keys=True)
        if key not in self.known:
            session = self.session
            arguments = {
                "path": session.path(part, self.subject.path),
                "root": session.folder(part),
                "function": self.subject.name,
                "state": self.state,
                **named,
            }
            done = session.run(part, f"driving.function_job:{call}", arguments, seconds=max(20.0, session.options.limits.seconds))
            self.known[key] = done.answer if done.answer is not None else Stopped(done.failure)
        answer: dict[str, Any] | Stopped = self.known[key]
        if isinstance(answer, Stopped):
            raise answer
        if answer["failed"]:
            raise Broken(part, answer["failed"])
        return answer

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part.BEFORE, Part.AFTER) if self.session.case.mended else (Part.BEFORE,)


def verify(session: Session) -> Verdict:
    """Call the function that the finding stands in, and judge."""
    every = candidates(session, locate_subject.functions(session), lambda subject: _found(session, subject))
    return first(every, _judged, _again, NONE)


def _again(runs: _Runs, _: Broken) -> None:
    for repetition in (0, 1):
        runs.ask(Part.BEFORE, "measure", repetition)


def _found(session: Session, subject: Subject) -> _Runs | str:
    reason = ""
    place = session.case.finding.place
    rows = locate_subject.statement(session, place) if place.path == subject.path else []
    for known in [listed(subject.known), {}] if subject.known else [{}]:
        arguments = {
            "path": session.path(Part.BEFORE, subject.path),
            "root": session.folder(Part.BEFORE),
            "function": subject.name,
            "known": known,
            "seconds": SECONDS,
            "trials": TRIALS,
            "rows": rows,
        }
        done = session.run(Part.BEFORE, "search.find_inputs:function", arguments, seconds=2 * SECONDS + 5)
        answer = done.answer
        if answer and answer.get("found"):
            fidelity = Fidelity.DATA if answer.get("fidelity") == "data" else Fidelity.SYNTHETIC
            left_out = [*answer.get("skipped", ()), *(f"{name}: stood in for" for name in answer.get("stubbed", ()))]
            return _Runs(session, subject, answer["state"], fidelity, list(answer.get("assumed", ())), left_out)
        reason = reason or (str(answer.get("reason", "")) if answer else done.failure)
    return f"{subject.title} could not be run: {reason}"


def _judged(runs: _Runs) -> Verdict:
    session = runs.session
    handles = session.case.plan.function is FunctionSign.HANDLES
    rows = locate_subject.statement(session, session.case.finding.place) if session.case.finding.place.path == runs.subject.path else []
    if not handles:
        _scale(runs)
    if rows and not runs.ask(Part.BEFORE, "measure", rows=rows)["rows"]:
        raise Stopped(f"row {session.case.finding.place.row} is not run with the arguments that were found")
    if session.case.mended:
        difference = _difference(runs)
        if difference:
            return evidence(runs, Outcome.REGRESSED, difference)
    signs = _handles(runs) if handles else _memory(runs)
    verdict = _weighed(runs, signs)
    if session.case.mended and verdict.outcome is not Outcome.REGRESSED:
        verdict = replace(verdict, left_out=(*verdict.left_out, *_priced(runs)))
    return verdict


def _priced(runs: _Runs) -> Iterator[str]:
    """Find out what a call takes before and after, or why that is not known."""
    if not runs.size:
        _scale(runs)
    try:
        runs.session.prices += prices.of_call(*([runs.ask(part, call) for part in Part] for call in ("measure", "memory")))
    except (Broken, Stopped) as error:
        yield f"what a call takes with more data: {error}"


def _scale(runs: _Runs) -> None:
    for size in (SCALED, SCALED // 8, 0):
        runs.size = size
        try:
            runs.ask(Part.BEFORE, "measure")
        except (Broken, Stopped):
            continue
        return


def _difference(runs: _Runs) -> str:
    """In which way it behaves otherwise after the fix; empty where it does not."""
    first, second = runs.ask(Part.BEFORE, "measure"), runs.ask(Part.BEFORE, "measure", 1)
    after = runs.ask(Part.AFTER, "measure")
    for key, words in (
        ("result", "what it gives back"),
        ("files", "what it writes"),
        ("printed", "what it prints"),
        ("generators", "the state of the generators afterwards"),
    ):
        if first[key] != second[key]:
            raise Stopped(f"{words} differs between two runs of the same program")
        if first[key] == after[key]:
            continue
        fix = runs.session.case.finding.fix
        if key == "result" and fix is not None and fix.safety is Safety.UNSAFE and first["loose"] == after["loose"]:
            runs.assumed.append(f"the type of what it gives back differs, its values do not: {first['shown']} before, {after['shown']} after")
            continue
        return f"{words} differs: {_short(first, key)} before, {_short(after, key)} after"
    return ""


def _short(answer: dict[str, Any], key: str) -> str:
    if key == "files":
        return ", ".join(f"`{name}` {digest[:8]}" for name, digest in list(answer["files"].items())[:3]) or "nothing"
    return str(answer["shown" if key == "result" else key])[:80]


# -- the symptoms ------------------------------------------------------------------------------------------------------


def _handles(runs: _Runs) -> list[Sign]:
    """What is open after the call, after 20 of them whose results are kept, and after an exception in the middle."""
    signs = []
    end = "when the script ends" if runs.subject.name == locate_subject.SCRIPT else "after the call"
    singles = [runs.ask(part, "measure") for part in runs.parts]
    for key, name in (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors")):
        values = [float(item["left"][key]) for item in singles]
        signs.append(_sign(f"{name} open {end}", name, values, shown=values[0] > 0, gone=len(values) > 1 and values[1] <= 0, strict=True))
    for keep, under in ((False, "20 calls"), (True, "20 calls, all that they give back is kept")):
        if runs.subject.name == locate_subject.SCRIPT:
            break  # nobody runs a script twenty times in one process
        answers = [runs.ask(part, "repeated", keep=keep) for part in runs.parts]
        for key, name in (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors")):
            found = thresholds.handles(name, answers[0][key], answers[1][key] if len(answers) > 1 else None)
            rates = [found.before.a_step, *([found.after.a_step] if found.after else [])]
            reading = Reading(f"{name} that a call leaves open", name, (rates[0],), tuple(rates[1:]), under)
            line = Timeline(f"{name} open, {under}", name, "step", *(tuple(enumerate(map(float, answer[key]))) for answer in answers))
            signs.append(
                Sign(found.shown, found.ended, f"{found.words}, {under}", reading, line, strict=True, worse=len(rates) > 1 and rates[1] > max(rates[0], 0))
            )
    answers = [runs.ask(part, "interrupted") for part in runs.parts]
    if answers[0]["raised"]:
        counts = [float(item["ids"]) for item in answers]
        words = "HDF5 identifiers that an exception in the middle leaves open as long as it is kept"
        signs.append(_sign(words, "HDF5 identifiers", counts, shown=counts[0] > 0, gone=falls(counts, 0, 1)))
    return signs


def _memory(runs: _Runs) -> list[Sign]:
    """Bytes read, the most memory while it runs, and what its result holds."""
    wanted = runs.session.case.plan.function
    singles = [runs.ask(part, "measure") for part in runs.parts]
    memories = [runs.ask(part, "memory") for part in runs.parts]
    data = float(memories[0]["data"])
    signs = []
    sizes = [float(item["bytes_read"]) for item in singles]
    peaks = [float(item["peak"]) for item in memories]
    helds = [float(item["held"]) for item in memories]
    calls = [float(item["reads"]) for item in singles]
    if wanted is FunctionSign.READS:
        signs.append(_sign("bytes read by a call", "bytes", sizes, shown=falls(sizes, PART) or sizes[0] >= max(LEAST, HALF * data), gone=falls(sizes, PART)))
        signs.append(_sign("reads of HDF5 datasets by a call", "reads", calls, shown=falls(calls, least=2), gone=falls(calls, least=2)))
    twice = wanted is FunctionSign.COPIES and peaks[0] >= max(LEAST, TWICE * helds[0]) and helds[0] >= HALF * LEAST
    whole = wanted is FunctionSign.MEMORY and peaks[0] >= max(LEAST, HALF * data)
    signs.append(_sign("most memory during a call", "bytes", peaks, shown=twice or whole or falls(peaks, PART), gone=falls(peaks, PART)))
    signs.append(_sign("memory held by what it gives back", "bytes", helds, shown=falls(helds), gone=falls(helds)))
    return signs


def _sign(name: str, unit: str, values: list[float], *, shown: bool, gone: bool, strict: bool = False) -> Sign:
    words = f"{name}: {amount(values[0], unit)}" + (f" before, {amount(values[1], unit)} after" if len(values) > 1 else "")
    worse = strict and len(values) > 1 and values[1] > max(values[0], 0)
    return Sign(shown, gone, words, Reading(name, unit, (values[0],), tuple(values[1:])), strict=strict, worse=worse)


# -- the verdict -------------------------------------------------------------------------------------------------------


def _weighed(runs: _Runs, signs: list[Sign]) -> Verdict:
    case = runs.session.case
    seen = [item for item in signs if item.shown]
    handles = case.plan.function is FunctionSign.HANDLES
    if not handles and not any(item.shown and item.gone for item in signs):
        memory = runs.ask(Part.BEFORE, "memory")
        small = too_small(max(int(memory["data"]), int(memory["peak"])), 4 * LEAST)
        if small:
            raise TooSmall(small)
    plain = CLOSED if handles else f"not seen: {signs[0].words}"
    if not case.mended:
        return evidence(runs, Outcome.SHOWN if seen else Outcome.NOT_SHOWN, seen[0].words if seen else plain, signs)
    failing = next((item for item in signs if item.strict and item.worse), None)
    if failing is not None:
        return evidence(runs, Outcome.REGRESSED, failing.words, signs)
    gone = [item for item in seen if item.gone]
    if gone and not any(item.strict and not item.gone for item in seen):
        return evidence(runs, Outcome.CONFIRMED, f"{gone[0].words}; results, files and output are the same", signs, gone)
    if seen:
        rest = next((item for item in seen if item.strict and not item.gone), seen[0])
        return evidence(runs, Outcome.INCONCLUSIVE, f"the fix does not end it here: {rest.words}", signs)
    return evidence(runs, Outcome.NO_EFFECT, f"{plain}; results, files and output are the same", signs)
