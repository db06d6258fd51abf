"""Whether it fits: at each moment, and with how many workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget.nouns import Certainty, Moment
from oomlint.budget.row import DEVICE, FILES, HOST, IN_WORKERS, SHARED, Row
from oomlint.budget.rows import at, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.budget.limits import JobResources
    from oomlint.budget.nouns import Program
    from oomlint.budget.row import Setup
    from oomlint.budget.sizes import Name

MOST_WORKERS: Final = 64
METHODS: Final = ("fork", "spawn")  # forkserver holds what spawn does


class Total(Struct, frozen=True):
    """All rows of one moment."""

    moment: Moment
    bytes: int  # of the rows that are known
    shared: int  # of these, in shared memory
    missing: tuple[Name, ...]  # what the total leaves out
    device: int = 0  # of one device
    device_missing: tuple[Name, ...] = ()
    workers: int = 0  # of the bytes, in workers
    files: int = 0  # that a process has open, at most


class Fit(Struct, frozen=True):
    """How many workers fit under a start method; ``None`` where not even none does."""

    method: str
    workers: int | None
    bound: bool  # whether one more does not fit; else there is room for ``MOST_WORKERS``


class BudgetVerdict(Struct, frozen=True):
    """What becomes of the limits."""

    totals: tuple[Total, ...]
    fits: bool
    moment: Moment | None  # the first at which it does not fit
    by: str  # what is short: "memory", "shm", "device" or "descriptors"
    workers: tuple[Fit, ...]
    least: frozenset[str] = frozenset()  # the holders of which a row is known at least only
    perhaps: int = 0  # bytes, at most, of what the totals do without, where it may not fit with them

    @property
    def peak(self) -> Total:
        """The moment with the most."""
        return max(self.totals, key=lambda one: one.bytes)

    @property
    def every_missing(self) -> tuple[Name, ...]:
        """What they leave out, on the device too."""
        return tuple(dict.fromkeys((*self.missing, *(name for one in self.totals for name in one.device_missing))))

    @property
    def complete(self) -> bool:
        """Whether the totals are all that there is: nothing is left out, and no row says `at least`."""
        return not self.every_missing and not self.least

    @property
    def host_complete(self) -> bool:
        """The same of the host alone."""
        return not self.missing and self.least <= {DEVICE}

    @property
    def missing(self) -> tuple[Name, ...]:
        """What the totals leave out."""
        return tuple(dict.fromkeys(name for one in self.totals for name in one.missing))


def totals(found: Sequence[Row], *, perhaps: bool = False) -> tuple[Total, ...]:
    """The moments, in order. One that holds just what the construction does is left out, but for the first epoch.

    What may take next to nothing counts only where that is asked for.
    """
    result: list[Total] = []
    for moment in Moment:
        own = any(moment in row.moments and len(row.moments) < len(Moment) for row in found)
        if not own and moment not in {Moment.CONSTRUCTION, Moment.TRAINING}:
            continue
        here = at(moment, [row for row in found if perhaps or not row.perhaps])
        open_rows = [row for row in found if moment in row.moments and row.bytes is None]  # of a loader that takes its turn, too: it may be the heaviest
        host, device = [row for row in here if row.group in HOST], [row for row in here if row.group == DEVICE]
        missing = _missing([row for row in open_rows if row.group in HOST]), _missing([row for row in open_rows if row.group == DEVICE])
        shared = sum(row.bytes or 0 for row in host if row.group == SHARED)
        workers = _sum([row for row in host if row.group == IN_WORKERS])
        result.append(Total(moment, _sum(host), shared, missing[0], _sum(device), missing[1], workers, _sum([row for row in here if row.group == FILES])))
    return tuple(result)


def _sum(found: Sequence[Row]) -> int:
    return sum(row.bytes or 0 for row in found)


def _missing(found: Sequence[Row]) -> tuple[Name, ...]:
    return tuple(dict.fromkeys(name for row in found for name in row.size.missing))


def judge(program: Program, setup: Setup, limits: JobResources) -> BudgetVerdict:
    """The totals against the limits, and the largest number of workers that fits under each start method."""
    every = rows(program, setup)
    found = totals(every)
    short = short_of(found, limits)
    least = frozenset(row.group for row in every if row.known is Certainty.AT_LEAST) - {FILES} | ({"start method"} if setup.method_open else frozenset())
    fits = [_most(program, setup.under(method), limits) for method in dict.fromkeys((setup.method, *METHODS))] if has_workers(program, setup) else []
    return BudgetVerdict(
        found, short is None, short[0] if short else None, short[1] if short else "", tuple(fits), least, 0 if short else _perhaps(every, limits)
    )


def _perhaps(every: Sequence[Row], limits: JobResources) -> int:
    """Bytes of what totals do without, at the first moment at which it does not fit with them."""
    short = short_of(totals(every, perhaps=True), limits)
    return _sum([row for row in at(short[0], every) if row.perhaps]) if short is not None else 0


def has_workers(program: Program, setup: Setup) -> bool:
    """Whether a loader has workers, or may have."""
    given = setup.values.setting("num_workers")
    return any((one.workers if given is None else given) != 0 for one in program.loaders)


def _most(program: Program, setup: Setup, limits: JobResources) -> Fit:
    """More workers never take less, so that the search may halve. Workers change nothing on the device."""
    host = replace(limits, vram=None)
    most = largest(lambda count: short_of(totals(rows(program, setup.with_workers(count))), host) is None, MOST_WORKERS)
    return Fit(setup.method, most if most >= 0 else None, most < MOST_WORKERS)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 0 to ``most`` that fits, where a larger one never does so alone; -1 for none."""
    low, high = -1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def short_of(found: Sequence[Total], limits: JobResources) -> tuple[Moment, str] | None:
    """The first moment at which it does not fit, and what is short."""
    for one in found:
        for limit, took, name in (
            (limits.ram, one.bytes, "memory"),
            (limits.shm, one.shared, "shm"),
            (limits.vram, one.device, "device"),
            (limits.files, one.files, "descriptors"),
        ):
            if limit is not None and limit.size is not None and took > limit.size:
                return one.moment, name
    return None
