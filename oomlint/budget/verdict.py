"""Whether it fits: at each moment, and with how many workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oomlint.budget.nouns import Moment
from oomlint.budget.rows import SHARED, Row, at, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.limits import Limit
    from oomlint.budget.nouns import Program
    from oomlint.budget.rows import Setup
    from oomlint.budget.sizes import Name

MOST_WORKERS: Final = 64
METHODS: Final = ("fork", "spawn")  # forkserver holds what spawn does


@dataclass(frozen=True, slots=True)
class Total:
    """All rows of one moment."""

    moment: Moment
    bytes: int  # of the rows that are known
    shared: int  # of these, in shared memory
    missing: tuple[Name, ...]  # what the total leaves out


@dataclass(frozen=True, slots=True)
class Fit:
    """How many workers fit under a start method; ``None`` where not even none does."""

    method: str
    workers: int | None
    bound: bool  # whether one more does not fit; else there is room for ``MOST_WORKERS``


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the limits."""

    totals: tuple[Total, ...]
    fits: bool
    moment: Moment | None  # the first at which it does not fit
    by: str  # what is short: "memory" or "shm"
    workers: tuple[Fit, ...]

    @property
    def peak(self) -> Total:
        """The moment with the most."""
        return max(self.totals, key=lambda one: one.bytes)

    @property
    def missing(self) -> tuple[Name, ...]:
        """What the totals leave out."""
        return tuple(dict.fromkeys(name for one in self.totals for name in one.missing))


def totals(found: Sequence[Row]) -> tuple[Total, ...]:
    """The moments, in order. One that holds just what the construction does is left out, but for the first epoch."""
    result: list[Total] = []
    for moment in Moment:
        own = any(moment in row.moments and len(row.moments) < len(Moment) for row in found)
        if not own and moment not in {Moment.CONSTRUCTION, Moment.TRAINING}:
            continue
        here = at(moment, found)
        known = sum(row.bytes or 0 for row in here)
        shared = sum(row.bytes or 0 for row in here if row.group == SHARED)
        missing = dict.fromkeys(name for row in here for name in row.size.missing)
        result.append(Total(moment, known, shared, tuple(missing)))
    return tuple(result)


def judge(program: Program, setup: Setup, ram: Limit, shm: Limit) -> Verdict:
    """The totals against the limits, and the largest number of workers that fits under each start method."""
    found = totals(rows(program, setup))
    short = _short(found, ram, shm)
    fits = [_most(program, setup.under(method), ram, shm) for method in dict.fromkeys((setup.method, *METHODS))] if has_workers(program, setup) else []
    return Verdict(found, short is None, short[0] if short else None, short[1] if short else "", tuple(fits))


def has_workers(program: Program, setup: Setup) -> bool:
    """Whether a loader has workers, or may have."""
    given = setup.values.setting("num_workers")
    return any((one.workers if given is None else given) != 0 for one in program.loaders)


def _most(program: Program, setup: Setup, ram: Limit, shm: Limit) -> Fit:
    """More workers never take less, so that the search may halve."""
    low, high = -1, MOST_WORKERS + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _short(totals(rows(program, setup.with_workers(middle))), ram, shm) is None:
            low = middle
        else:
            high = middle
    return Fit(setup.method, low if low >= 0 else None, low < MOST_WORKERS)


def _short(found: Sequence[Total], ram: Limit, shm: Limit) -> tuple[Moment, str] | None:
    for one in found:
        if ram.size is not None and one.bytes > ram.size:
            return one.moment, "memory"
        if shm.size is not None and one.shared > shm.size:
            return one.moment, "shm"
    return None
