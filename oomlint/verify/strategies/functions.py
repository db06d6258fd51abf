"""Functions that read or write files: they are called before and after a fix with arguments that a search has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from oomlint.finding import Safety
from oomlint.measurement import FunctionSign
from oomlint.verify.case import Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import locate_subject, new_costs
from oomlint.verify.strategies.dataset_metrics import HALF, LEAST, PART, TWICE, exception_path, falls, too_small
from oomlint.verify.strategies.dataset_runs import (
    HANDLES,
    SCALED,
    Broken,
    DatasetRuns,
    TooSmall,
    candidates,
    concluded,
    first,
    left_open,
    quantity,
    searched,
    weighed,
)
from oomlint.verify.thresholds import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.dataset_runs import Sign
    from oomlint.verify.strategies.locate_subject import Subject
    from oomlint.verify.thresholds import Price

NONE: Final = "it stands in no function that can be called"
CLOSED: Final = "CPython closes the file when the last reference to it goes: nothing is open after the call"


@dataclass(slots=True)
class _Runs(DatasetRuns):
    """A function that was found, and what its calls have come to."""

    job: ClassVar[str] = "driving.function_job"
    size: int = 0  # bytes of data

    def call(self, part: Part, call: str = "measure", repetition: int = 0, **named: Any) -> dict[str, Any]:
        """Call it, and measure. Raises Broken where the user's code raises, Stopped where there is no answer."""
        sized: dict[str, Any] = {"size": self.size} if self.size and call in {"measure", "memory"} else {}
        return self.ask(part, call, repetition, seconds=max(20.0, self.session.options.limits.seconds), **sized, **named)


def verify(session: Session) -> Verdict:
    """Call the function that the finding stands in, and judge."""
    every = candidates(session, locate_subject.functions(session), lambda subject: _found(session, subject))
    return first(every, _judged, _again, NONE)


def _again(runs: _Runs, _: Broken) -> None:
    for repetition in (0, 1):
        runs.call(Part.BEFORE, repetition=repetition)


def _found(session: Session, subject: Subject) -> _Runs | str:
    place = session.case.finding.place
    answer = searched(session, subject, "function", locate_subject.statement(session, place) if place.path == subject.path else [])
    return f"{subject.title} could not be run: {answer}" if isinstance(answer, str) else _Runs.of(session, subject, answer)


def _judged(runs: _Runs) -> Verdict:
    session = runs.session
    handles = session.case.plan.function is FunctionSign.HANDLES
    rows = (
        locate_subject.statement(session, session.case.finding.place)
        if runs.subject is not None and session.case.finding.place.path == runs.subject.path
        else []
    )
    if not handles:
        _scale(runs)
    if rows and not runs.call(Part.BEFORE, rows=rows)["rows"]:
        raise Stopped(f"row {session.case.finding.place.row} is not run with the arguments that were found")
    signs = _handles if handles else _memory
    return concluded(runs, lambda: _difference(runs), lambda: _weighed(runs, list(signs(runs))), lambda: _prices(runs), "a call takes with more data")


def _prices(runs: _Runs) -> list[Price]:
    """What a call takes before and after."""
    if not runs.size:
        _scale(runs)
    return new_costs.of_call(*([runs.call(part, call) for part in Part] for call in ("measure", "memory")))


def _scale(runs: _Runs) -> None:
    for size in (SCALED, SCALED // 8, 0):
        runs.size = size
        try:
            runs.call(Part.BEFORE)
        except (Broken, Stopped):
            continue
        return


def _difference(runs: _Runs) -> str:
    """In which way it behaves otherwise after the fix; empty where it does not."""
    first, second = runs.call(Part.BEFORE), runs.call(Part.BEFORE, repetition=1)
    after = runs.call(Part.AFTER)
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
            runs.assumed.append(f"the type of what it gives back differs, its values do not: {first_difference(first['shown'], after['shown'])}")
            continue
        difference = first_difference(_lines(first, key), _lines(after, key))
        return f"{words} differs: {difference}" if difference else f"{words} differs"
    return ""


def _lines(answer: dict[str, Any], key: str) -> list[str]:
    """What differs, line by line."""
    match key:
        case "result":
            return list(answer["shown"])
        case "printed":
            return str(answer["printed"]).splitlines()
        case "files":
            return [f"{name}: {digest}" for name, digest in sorted(answer["files"].items())]
        case _:
            return []


# -- the symptoms ------------------------------------------------------------------------------------------------------


def _handles(runs: _Runs) -> Iterator[Sign]:
    """What is open after the call, after 20 of them whose results are kept, and after an exception in the middle."""
    script = runs.subject is not None and runs.subject.name == locate_subject.SCRIPT
    singles = [runs.call(part) for part in runs.parts]
    for key, name in HANDLES:
        values = [float(item["left"][key]) for item in singles]
        title = f"{name} open {'when the script ends' if script else 'after the call'}"
        yield quantity(title, values, unit=name, shown=values[0] > 0, gone=len(values) > 1 and values[1] <= 0, strict=True)
    for keep, under in ((False, "20 calls"), (True, "20 calls, all that they give back is kept")):
        if not script:  # nobody runs one twenty times in one process
            yield from left_open([runs.call(part, "repeated", keep=keep) for part in runs.parts], "call", under, f", {under}")
    yield from exception_path([runs.call(part, "interrupted") for part in runs.parts])


def _memory(runs: _Runs) -> Iterator[Sign]:
    """Bytes read, the most memory while it runs, and what its result holds."""
    wanted = runs.session.case.plan.function
    singles = [runs.call(part) for part in runs.parts]
    memories = [runs.call(part, "memory") for part in runs.parts]
    data = float(memories[0]["data"])
    sizes, calls = ([float(item[key]) for item in singles] for key in ("bytes_read", "reads"))
    peaks, helds = ([float(item[key]) for item in memories] for key in ("peak", "held"))
    if wanted is FunctionSign.READS:
        yield quantity("bytes read by a call", sizes, shown=falls(sizes, PART) or sizes[0] >= max(LEAST, HALF * data), gone=falls(sizes, PART))
        yield quantity("reads of HDF5 datasets by a call", calls, unit="reads", shown=falls(calls, least=2), gone=falls(calls, least=2))
    twice = wanted is FunctionSign.COPIES and peaks[0] >= max(LEAST, TWICE * helds[0]) and helds[0] >= HALF * LEAST
    whole = wanted is FunctionSign.MEMORY and peaks[0] >= max(LEAST, HALF * data)
    yield quantity("most memory during a call", peaks, shown=twice or whole or falls(peaks, PART), gone=falls(peaks, PART))
    yield quantity("memory held by what it gives back", helds, shown=falls(helds), gone=falls(helds))


# -- the verdict -------------------------------------------------------------------------------------------------------


def _weighed(runs: _Runs, signs: list[Sign]) -> Verdict:
    handles = runs.session.case.plan.function is FunctionSign.HANDLES
    if not handles and not any(item.shown and item.gone for item in signs):
        memory = runs.call(Part.BEFORE, "memory")
        small = too_small(max(int(memory["data"]), int(memory["peak"])), 4 * LEAST)
        if small:
            raise TooSmall(small)
    return weighed(runs, signs, CLOSED if handles else f"not seen: {signs[0].words}", "results, files and output are the same")
