"""When a difference between two runs counts: pure functions on what was measured. The thresholds are those that told leaks from controls.

Counts of live storages and autograd nodes are exact: they repeat from run to run, and are 0 a step where nothing is kept. Bytes of Python objects and
of process trees are not; they have a threshold.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from oomlint.amounts import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST: Final = 80  # characters of a line that is told
_HEAD: Final = 20  # of them at its beginning
_LEAD: Final = 30  # of them before the place at which two lines part
_DIGEST: Final = re.compile(r":? [0-9a-f]{16}(?= |$)")  # says nothing to a reader
WARM_UP: Final = 3  # steps that fill caches and make optimizer states
LEAST: Final = 5  # deltas; with 3 of them one control in five looked like a leak
OFTEN: Final = 3  # times that something is kept at intervals before it is growth
BENIGN: Final = 64  # bytes a step of Python objects: a list of numbers takes 24
MEGABYTE: Final = 1_000_000
SPREADS: Final = 3  # times the noise
SHARE: Final = 0.1  # of the data, for each worker
CLOSE: Final = 1e-5  # relative: what another kernel may give for the same numbers
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
human: Final = readable  # bytes, for people


def amount(count: float, unit: str) -> str:
    """A quantity with its unit; bytes for people, counts as numbers."""
    return human(count) if unit == "bytes" else f"{count:g}"


# -- growth ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something grows."""

    a_step: float  # the median; where it grows at intervals only, the mean
    enough: bool  # whether there were steps enough to tell
    spread: bool = False  # it grows at intervals, not in each step
    hints: bool = False  # it grew twice, too seldom to call it growth

    @property
    def grows(self) -> bool:
        """Whether it does."""
        return self.enough and self.a_step > 0


def rate(deltas: Sequence[float], warm_up: int = WARM_UP) -> Rate:
    """Growth a step once the first steps are over.

    Something that is kept every few steps has a median of 0. It is growth as well where it comes three times or more and nothing ever goes. What goes again,
    as where two steps take turns or a list is emptied now and then, is none.
    """
    settled = list(deltas[warm_up:])
    if len(settled) < LEAST:
        return Rate(median(settled) if settled else 0.0, enough=False)
    middle = float(median(settled))
    times = sum(1 for item in settled if item > 0)
    if middle <= 0 and min(settled) >= 0 and times >= OFTEN:
        return Rate(sum(settled) / len(settled), enough=True, spread=True)
    if middle > 0 and 2 * (sum(settled) - min(settled)) < middle * (len(settled) - 1):  # all but one: at the end of a pass the workers go
        return Rate(0.0, enough=True)
    return Rate(middle, enough=True, hints=middle <= 0 and times >= OFTEN - 1 and sum(settled) > 0)


def slope(values: Sequence[float]) -> Rate:
    """By how much a quantity of each step is more than that of the step before: a copy of all so far grows, one of the batch does not."""
    return rate(differences(values[WARM_UP:]), 0)


# -- worker memory -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saving:
    """Memory of a process tree, before and after, in bytes."""

    before: float
    after: float
    needed: float  # less than that is noise

    @property
    def saved(self) -> float:
        """Bytes that the fix frees."""
        return self.before - self.after

    @property
    def enough(self) -> bool:
        """Whether it is more than noise."""
        return self.saved >= self.needed

    @property
    def more(self) -> bool:
        """Whether the fix takes more memory, beyond noise."""
        return -self.saved >= self.needed

    @property
    def words(self) -> str:
        """For example: workers add 41.4 MiB before, 23.4 MiB after."""
        return f"workers add {human(self.before)} before, {human(self.after)} after"


def spread(values: Sequence[float]) -> float:
    """Highest minus lowest."""
    return max(values) - min(values) if values else 0.0


def worker_memory(before: Sequence[float], after: Sequence[float], size: float, workers: int) -> Saving:
    """Compare what workers add to the memory. All in bytes, the empty baseline taken off; ``size`` is that of the data that they share."""
    noise = max(spread(before), spread(after))
    return Saving(median(before), median(after), max(SPREADS * noise, MEGABYTE, SHARE * size * workers))


# -- the price ---------------------------------------------------------------------------------------------------------

# What a run takes beside what its finding is about. Measured over three runs of the same program, on the examples of all rules, the memory that a dataset
# holds differs by 8 KB, its growth a sample by 35 B, its reads for a sample by 5 B, the growth of a loop a step by 48 B and its peak by 20 KB: the margins
# are some times that. The shares leave room for fixes that trade: one that copies what it holds once takes twice as much for a moment.
LITTLE: Final = 2**16  # bytes that nobody misses
SOME: Final = 128  # bytes a step or a sample
READ: Final = 2**11  # bytes that a step of a loop reads
CHUNKS: Final = 2**19  # bytes: HDF5 reads whole chunks, often of 64 KiB, for a single row of each array
PLENTY: Final = 2**25  # bytes of all processes of a command, which are sampled
HELD: Final = 1.5  # times as much
PEAK: Final = 2.5
TWICE: Final = 2.0
TOTAL: Final = 1.25  # of all processes of a command, most of which is Python and torch


@dataclass(frozen=True, slots=True)
class Price:
    """Bytes that a program takes, before and after a fix, whatever the fix is about."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    share: float  # times what it was
    least: float  # and so many bytes more

    @property
    def dearer(self) -> bool:
        """Whether the program after takes substantially more, beyond what two runs of one program differ by."""
        if not self.before or not self.after:
            return False
        noise = SPREADS * max(spread(self.before), spread(self.after))
        return min(self.after) > max(self.share * max(self.before), max(self.before) + max(self.least, noise))

    @property
    def words(self) -> str:
        """For example: memory held once samples were read: 12.1 KiB before, 1.0 MiB after."""
        return f"{self.name}: {human(median(self.before))} before, {human(median(self.after))} after"


def differences(values: Sequence[float]) -> list[float]:
    """From each value to the next."""
    return [later - earlier for earlier, later in pairwise(values)]


# -- equivalence -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sameness:
    """Whether two programs did the same."""

    same: bool | None  # ``None`` where the first does not even repeat itself
    words: str = ""  # the first difference, or what does not repeat
    left_out: tuple[str, ...] = ()  # what was not compared


def same(first: Sequence[str], second: Sequence[str], after: Sequence[str], what: str = "the result") -> Sameness:
    """Compare digests. ``first`` and ``second`` are two runs of the program before: unless they agree nothing can be said of the third."""
    if list(first) != list(second):
        return Sameness(None, f"{what} differs between two runs of the same program: {first_difference(first, second, when=('in one', 'in the other'))}")
    difference = first_difference(first, after)
    return Sameness(difference is None, "" if difference is None else f"{what} differs: {difference}")


def first_difference(before: Sequence[str], after: Sequence[str], *, when: tuple[str, str] = ("before", "after")) -> str | None:
    """Where two lists of lines part, in words."""
    start, end = when
    for old, new in zip(before, after, strict=False):
        if old != new:
            one, two = _apart(*(" ".join(_DIGEST.sub("", line).split()) for line in (old, new)))
            return f"`{one}` {start}, `{two}` {end}" if one != two else f"`{one}` {start} and {end}, with other values"
    if len(before) != len(after):
        return f"{len(before)} parts {start}, {len(after)} {end}"
    return None


def close(before: Sequence[float | None], after: Sequence[float | None], tolerance: float = CLOSE) -> bool:
    """Whether numbers agree but for rounding. ``None`` stands for what is not finite."""
    if len(before) != len(after):
        return False
    scale = max((abs(item) for item in before if item is not None), default=0.0)
    return all(
        old == new or (old is not None and new is not None and math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance * min(1.0, scale)))
        for old, new in zip(before, after, strict=True)
    )


def close_text(before: str, after: str, tolerance: float = CLOSE) -> bool:
    """Whether two texts are the same but for rounding in their numbers, also that of the last digit shown."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    return all(
        math.isclose(float(old), float(new), rel_tol=tolerance, abs_tol=1.01 * max(_last_digit(old), _last_digit(new)))
        for old, new in zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True)
        if old != new
    )


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.lower().partition("e")
    _, point, decimals = mantissa.partition(".")
    return float(10 ** ((int(exponent) if exponent else 0) - len(decimals))) if point else 0.0


def _apart(*lines: str) -> list[str]:
    """Lines as long as a reader bears; where they are cut, what is left holds the place at which they part."""
    parted = next((place for place, pair in enumerate(zip(*lines, strict=False)) if len(set(pair)) > 1), min(map(len, lines)))
    start = parted - _LEAD if max(map(len, lines)) > _LONGEST else 0
    cut = [f"{line[:_HEAD]}...{line[start:]}" if start > _HEAD else line for line in lines]
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..." for line in cut]
