"""What the program after takes more of than the one before, in memory or reads, whatever the finding is about."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from oomlint.verify.case import Outcome, QuantityReading
from oomlint.verify.thresholds import CHUNKS, HELD, LITTLE, PEAK, READ, SOME, TWICE, WARM_UP, Price, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oomlint.verify.case import Verdict
    from oomlint.verify.session import Session

    Answer = Mapping[str, Any]


def judged(session: Session, verdict: Verdict) -> Verdict:
    """The verdict, unless the patch is paid for with more memory or more reads: that is a regression, even where it ends its symptom."""
    dearer = next((price for price in session.prices if price.dearer), None)
    if dearer is None or verdict.outcome is Outcome.REGRESSED:
        return verdict
    reading = QuantityReading(dearer.name, "bytes", dearer.before, dearer.after)
    return replace(verdict, outcome=Outcome.REGRESSED, reason=f"the patch takes more: {dearer.words}", readings=(reading, *verdict.readings))


def of_dataset(sides: Sequence[Answer]) -> list[Price]:
    """From what `dataset_memory:taken` says of both."""
    data = float(sides[0]["data"])
    part = max(LITTLE, data / 2)
    prices = [
        _price("memory held once samples were read", sides, "held", HELD, part),
        _price("most memory while it is built and read", sides, "peak", PEAK, part),
        _price("memory kept for each sample that is read", sides, "grown", HELD, SOME),
    ]
    # What was held may be read part by part after: that is dear only where a whole pass reads more than there is.
    reads = [float(median(answer["reads"] or [0])) for answer in sides]
    passes = [answer["read"] + read * (answer["length"] or len(answer["reads"])) for answer, read in zip(sides, reads, strict=True)]
    if passes[1] > TWICE * max(passes[0], data):
        prices.append(Price("bytes read for a sample", (reads[0],), (reads[1],), TWICE, max(CHUNKS, data / 2)))
    return prices


def eased(found: Sequence[Price]) -> bool:
    """Whether memory that is held falls clearly, and nothing is paid for it."""
    held = found[0]
    return not any(price.dearer for price in found) and max(held.after) < min(held.before) / HELD


def _price(name: str, sides: Sequence[Answer], key: str, share: float, least: float) -> Price:
    old, new = (float(round(answer[key])) for answer in sides)
    return Price(name, (old,), (new,), share, least)


def of_call(sides: Sequence[Answer], memories: Sequence[Answer]) -> list[Price]:
    """From what `functions:measure` and `functions:memory` say of both: what a call reads, takes and gives back."""
    part = max(LITTLE, float(memories[0]["data"]) / 2)
    return [
        _price("memory held by what it gives back", memories, "held", HELD, part),
        _price("most memory during a call", memories, "peak", PEAK, part),
        _price("bytes read by a call", sides, "bytes_read", TWICE, part),
    ]


def of_loop(before: Sequence[Answer], after: Answer) -> list[Price]:
    """From what `loops:measure` says: bytes that a step keeps and reads, and the most at a time."""

    def price(name: str, read: Callable[[Answer], float | None], share: float, least: float) -> Price:
        old, new = (tuple(found for one in side if (found := read(one)) is not None) for side in (before, (after,)))
        return Price(name, old, new, share, least)

    kept, keeps = (tuple(found for one in side if (found := _kept(one, sure=sure)) is not None) for side, sure in ((before, False), ((after,), True)))
    return [
        Price("memory kept by each step", kept, keeps, TWICE, SOME),
        price("most memory in a step", _most, HELD, LITTLE),
        price("bytes read in each step", _read, TWICE, READ),
    ]


def _kept(answer: Answer, *, sure: bool) -> float | None:
    """Bytes of tensors and of Python objects that a step keeps; None where the steps are too few.

    Where workers come and go, some kilobytes are freed in one step and taken again in the next, and the middle of a few such steps is off by thousands.
    ``sure`` asks for what all steps but one keep at the least; otherwise it is the larger of their middle and their average.
    """
    total = 0.0
    for name in ("storage_bytes", "python_bytes"):
        deltas = answer["deltas"].get(name) or ()
        settled, found = sorted(deltas[WARM_UP:]), rate(deltas)
        if not found.enough:
            return None
        kept = min(found.a_step, settled[1]) if sure and not found.spread else max(found.a_step, mean(settled))
        total += max(kept, 0.0)
    return total


def _most(answer: Answer) -> float | None:
    peaks = [sum(pair) for pair in zip(answer["peak_bytes"], answer["python_peak_bytes"], strict=True)][WARM_UP:]
    return float(max(peaks)) if peaks else None


def _read(answer: Answer) -> float | None:
    reads = [new - old for old, new in pairwise(answer["read"])][WARM_UP:]
    return float(median(reads)) if reads else None
