"""Whether a series of readings grows, how fast, and in which way: pure functions on points.

A slope is the median of the slopes between all pairs of points (Theil and Sen), so a third of the readings may be off without moving it. The noise is the
median jump from one reading to the next, which steps do not touch. What a program takes to start, and what it takes once, is no growth: only what still
grows in the last part of the run is.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.trace.timeline import Points

LEAST_BYTES: Final = 4 * 2**20
LEAST_DESCRIPTORS: Final = 8
_BINS: Final = 120
_ENOUGH: Final = 8  # readings
_WARM_UP: Final = 0.2  # of a run, where nothing better is known
_NOISE: Final = 4.0  # times the noise
_LEVEL: Final = 0.01  # of what is held: what comes and goes in any program
_TAIL: Final = 0.25  # of what is judged, in which growth must go on
_TAIL_OF_STAIRS: Final = 0.4  # the same, with room for one of several
_GOES_ON: Final = 0.25  # of the speed before
_EVEN: Final = 0.3  # of a rise that a straight line has, or it was one jump
_JUMPS: Final = 0.75  # of the rise that stairs account for
_FEW: Final = 0.34  # of the parts of the run that stairs may be in
_ORDERED: Final = 0.5  # Kendall's tau
_DEEP: Final = 0.05  # of the level, that waves move
_WAVES: Final = 2
_LEAST_EPOCHS: Final = 3
_END: Final = 0.1  # of the run
_LEAVING: Final = 5.0  # seconds that an interpreter with large libraries takes to end
_LEAVING_SHARE: Final = 0.3  # of the run, at most
_STARTING: Final = 60.0  # seconds until the first workers of a program: what comes later is a part of its work
_LEAST_WORK: Final = 2.0  # seconds that tell of growth where no steps are counted
_STILL: Final = 0.8  # of the most: who holds less is on the way out
_FEWEST: Final = 3  # readings that tell a level
_KEPT: Final = 0.5  # of the rise that freed memory accounts for
_MOSTLY: Final = 0.4  # of what is held
_LATE: Final = 1 / 3  # of the run, in which freed memory is not taken again
_MAD: Final = 1.4826  # makes the median deviation of a normal distribution its standard deviation


class Shape(StrEnum):
    """In which way a series moves."""

    SHORT = "too short to judge"
    FLAT = "flat"
    SETTLED = "rises, then flat"
    WAVES = "rises and falls"
    STAIRS = "in steps"
    EPOCHS = "steps per epoch"
    STEADY = "steady growth"
    KEPT = "allocator keeps freed memory"

    @property
    def grows(self) -> bool:
        """Whether it would go on."""
        return self in {Shape.STAIRS, Shape.EPOCHS, Shape.STEADY}


class Trend(Struct, frozen=True):
    """What is said of a series. Amounts are in the unit of the series."""

    shape: Shape
    rise: float = 0.0  # from the end of the warm-up to the end; of waves, from trough to crest
    a_minute: float = 0.0
    a_step: float | None = None  # where steps are marked
    an_epoch: float | None = None  # where epochs are marked, or told from the passes over loaders
    since: float = 0.0  # seconds: the end of the warm-up; of what has settled, since when it is flat
    times: int = 0  # stairs, or waves
    noise: float = 0.0
    freed: float = 0.0  # bytes that the allocator keeps


class Course(Struct, frozen=True):
    """What is known of a run beside its figures: what is judged lies between its start and its end."""

    epochs: Sequence[float] = ()  # when they begin
    steps: Points = ()  # that were done by a time
    begun: float | None = None  # seconds: the first workers are there, so what comes before is the start
    over: float | None = None  # seconds: it is told to end, or the last workers are gone, so what comes after is the end


_NOTHING_TOLD: Final = Course()


def judge(points: Points, course: Course = _NOTHING_TOLD, *, least: float = LEAST_BYTES) -> Trend:
    """The trend of a series. ``least`` is what counts as a rise at all."""
    epochs, steps = course.epochs, course.steps
    last = steps[-1][0] if len(steps) >= _ENOUGH else course.over
    points = _without_fall(points if last is None else tuple(point for point in points if point[0] <= last))
    points = points if last is not None else _without_flat_end(points, least)
    if len(points) < _ENOUGH:
        return Trend(Shape.SHORT)
    begin = _after_warm_up(points, course)
    rest = tuple(point for point in points if point[0] >= begin)
    if len(rest) < _ENOUGH - 2 or (len(steps) < _ENOUGH and rest[-1][0] - begin < _LEAST_WORK):
        return Trend(Shape.SHORT)
    bins = _binned(rest)
    noise = noise_of(bins)
    level = max(median(value for _, value in bins), 0.0)
    threshold = max(least, _NOISE * noise, _LEVEL * level)
    rise = _rise(bins)
    slope = theil_sen(bins)
    known = Trend(Shape.FLAT, rise, 60 * slope, since=begin, noise=noise)
    inner = tuple(at for at in epochs if at >= begin)
    waves = _waves(bins, max(threshold, _DEEP * level))
    if waves >= _WAVES:
        troughs = _envelope(bins, waves)
        if _rise(troughs) < threshold:
            return Trend(Shape.WAVES, _quantile(bins, 0.95) - _quantile(bins, 0.05), since=begin, times=waves, noise=noise)
        bins, rise, slope = troughs, _rise(troughs), theil_sen(troughs)
    if rise < threshold:
        return known
    times, share = _stairs(bins, noise, least)
    stairs = waves < _WAVES <= times and share >= _JUMPS
    even = stairs or slope * (bins[-1][0] - bins[0][0]) >= _EVEN * rise
    if not even or not _goes_on(bins, rise, stairs=stairs):
        return Trend(Shape.SETTLED, rise, since=_settled(bins, threshold), noise=noise)
    if tau(bins) < _ORDERED:
        return known
    shape = Shape.STEADY
    if stairs:
        shape = Shape.EPOCHS if len(inner) + 1 >= _LEAST_EPOCHS and times <= len(inner) + 1 else Shape.STAIRS
    return Trend(shape, rise, 60 * slope, _a_step(rest, steps), _an_epoch(points, epochs), begin, times if stairs else 0, noise)


def with_allocators(trend: Trend, points: Points, free: Points) -> Trend:
    """The trend of a process whose allocator says what it keeps: ``free`` are bytes that the program has given back."""
    if not free or not points:
        return trend
    held = points[-1][1]
    # What is free at one moment and taken again at the next, each epoch, is not kept for nothing.
    late = free[0][0] + (1 - _LATE) * (free[-1][0] - free[0][0])
    last = min(value for at, value in free if at >= late)
    low = min(value for _, value in points)
    if last < LEAST_BYTES or last < _LEVEL * held:
        return trend
    grown = trend.rise if trend.shape.grows or trend.shape is Shape.SETTLED else held - low
    more = last - min(value for _, value in free) if trend.shape.grows else last
    much = trend.shape.grows or last >= _MOSTLY * held
    if more >= _KEPT * max(grown, LEAST_BYTES) and much and trend.shape is not Shape.SHORT:
        return Trend(Shape.KEPT, trend.rise, trend.a_minute, trend.a_step, trend.an_epoch, trend.since, trend.times, trend.noise, last)
    return trend


# -- statistics --------------------------------------------------------------------------------------------------------


def theil_sen(points: Points) -> float:
    """The median of the slopes between all pairs of points."""
    slopes = [(later - earlier) / (end - start) for number, (start, earlier) in enumerate(points) for end, later in points[number + 1 :] if end > start]
    return median(slopes) if slopes else 0.0


def tau(points: Points) -> float:
    """How far the order of the values is that of the times, from -1 to 1 (Kendall). Equal values are neither in order nor out of it."""
    signs = [(later > earlier) - (later < earlier) for number, (_, earlier) in enumerate(points) for _, later in points[number + 1 :]]
    told = sum(map(abs, signs))
    return sum(signs) / told if told else 0.0


def noise_of(points: Points) -> float:
    """The standard deviation of a value about its trend, from the jumps between neighbours: half of them may be real."""
    jumps = [later - earlier for (_, earlier), (_, later) in pairwise(points)]
    if not jumps:
        return 0.0
    middle = median(jumps)
    return _MAD * median(abs(jump - middle) for jump in jumps) / 2**0.5


# -- parts -------------------------------------------------------------------------------------------------------------


def _after_warm_up(points: Points, course: Course) -> float:
    """When the warm-up is over: with the first epoch where there are several, after the first tenth of the steps, else after a fifth of the run."""
    start, end = points[0][0], points[-1][0]
    steps = course.steps
    inside = [at for at in course.epochs if start <= at < end]
    if len(inside) >= _LEAST_EPOCHS:
        return inside[1]
    if len(steps) >= _ENOUGH:
        first, last = max(steps[0][0], start), min(steps[-1][0], end)
        if last > first:
            return first + (last - first) / 10
    fifth = start + _WARM_UP * (end - start)
    return max(fifth, course.begun) if course.begun is not None and course.begun <= max(fifth, start + _STARTING) else fifth


def _without_fall(points: Points) -> Points:
    """The points without the fall at the end: a program that ends gives back what it has, and that is no part of its run."""
    most = max((value for _, value in points[len(points) // 2 :]), default=0.0)
    last = max((place for place, (_, value) in enumerate(points) if value >= _STILL * most), default=len(points) - 1)
    if len(points) - 1 - last <= max(len(points) * _END, _FEWEST):
        return points[: last + 1]
    spent = points[-1][0] - points[last][0]
    return points[: last + 1] if spent <= min(_LEAVING, _LEAVING_SHARE * (points[-1][0] - points[0][0])) else points


def _without_flat_end(points: Points, least: float) -> Points:
    """The points with only the beginning of an end in which nothing more is taken: it is as long as a warm-up may be, and as little a part of the work."""
    if not points:
        return points
    threshold = max(least / 4, _NOISE * noise_of(_binned(points)), _LEVEL * median(value for _, value in points[-_FEWEST:]))
    flat = tuple(point for point in points if point[0] >= _settled(points, threshold))
    spent, whole = flat[-1][0] - flat[0][0], points[-1][0] - points[0][0]
    if spent > min(_LEAVING, _WARM_UP * whole) or theil_sen(_binned(flat)) * spent >= threshold / 2:
        return points
    return points[: len(points) - len(flat) + len(points) // 20 + _FEWEST]


def _binned(points: Points) -> Points:
    """At most so many points, each the median of a part of the time."""
    if len(points) <= _BINS:
        return points
    start, end = points[0][0], points[-1][0]
    parts: dict[int, list[tuple[float, float]]] = {}
    for at, value in points:
        parts.setdefault(min(int((at - start) / (end - start) * _BINS), _BINS - 1), []).append((at, value))
    return tuple((median(at for at, _ in part), median(value for _, value in part)) for _, part in sorted(parts.items()))


def _rise(points: Points) -> float:
    """From the level at the beginning to that at the end; each is the median of a tenth, or of three readings."""
    tenth = max(len(points) // 10, min(_FEWEST, len(points) // 2))
    return median(value for _, value in points[-tenth:]) - median(value for _, value in points[:tenth])


def _goes_on(points: Points, rise: float, *, stairs: bool) -> bool:
    """Whether the last part still grows, at a fair share of the speed of all. Where it grows in stairs, one has to be in that part."""
    start, end = points[0][0], points[-1][0]
    share = _TAIL_OF_STAIRS if stairs else _TAIL
    tail = tuple(point for point in points if point[0] >= end - share * (end - start))
    found = _rise(tail) if stairs else theil_sen(tail) * (tail[-1][0] - tail[0][0])
    return found >= _GOES_ON * share * rise


def _settled(points: Points, threshold: float) -> float:
    """Since when the values stay within reach of the last level."""
    tenth = max(len(points) // 10, min(_FEWEST, len(points)))
    last = median(value for _, value in points[-tenth:])
    since = points[-1][0]
    for at, value in reversed(points):
        if abs(value - last) > threshold:
            break
        since = at
    return since


def _stairs(points: Points, noise: float, least: float) -> tuple[int, float]:
    """How many stairs a rise has, and which share of it they account for; 0 where what rises is in too many places to be stairs."""
    jumps = [later - earlier for (_, earlier), (_, later) in pairwise(points)]
    rising = sum(jump for jump in jumps if jump > 0)
    bound = max(_NOISE * noise, least / 4, max(jumps) / 4)
    large = [number for number, jump in enumerate(jumps) if jump > bound]
    groups = [number for place, number in enumerate(large) if not place or number - large[place - 1] > 1]
    if not rising or len(large) > _FEW * len(jumps):
        return 0, 0.0
    return len(groups), sum(jumps[number] for number in large) / rising


def _waves(points: Points, depth: float) -> int:
    """How often a series rises by ``depth`` and falls by as much again."""
    count, low, high, up = 0, points[0][1], points[0][1], False
    for _, value in points:
        low, high = min(low, value), max(high, value)
        if not up and value - low >= depth:
            up, high = True, value
        elif up and high - value >= depth:
            up, low = False, value
            count += 1
    return count


def _envelope(points: Points, waves: int) -> Points:
    """What is held in the troughs: the least of each stretch that is as long as a wave."""
    width = min(max(len(points) // waves, 2), len(points) // 2)
    values = [value for _, value in points]
    return tuple((points[place][0], min(values[place - width + 1 : place + 1])) for place in range(width - 1, len(values)))


def _quantile(points: Points, share: float) -> float:
    values = sorted(value for _, value in points)
    return values[min(int(share * len(values)), len(values) - 1)]


def _a_step(points: Points, steps: Points) -> float | None:
    """The slope over steps in place of time."""
    if len(steps) < _ENOUGH // 2:
        return None
    times = [at for at, _ in steps]
    placed = tuple((_done(steps, times, at), value) for at, value in points if times[0] <= at <= times[-1])
    binned = _binned(placed) if placed and placed[-1][0] > placed[0][0] else ()
    return theil_sen(binned) if len(binned) >= _ENOUGH // 2 else None


def _done(steps: Points, times: Sequence[float], at: float) -> float:
    """Steps that were done by a time, those under way in part."""
    place = bisect_right(times, at)
    if place == 0 or place == len(steps):
        return steps[min(place, len(steps) - 1)][1]
    (before, done), (after, more) = steps[place - 1], steps[place]
    return done + (more - done) * (at - before) / (after - before) if after > before else more


def _an_epoch(points: Points, epochs: Sequence[float]) -> float | None:
    """The slope over epochs, each with the median of its readings; the first is warm-up."""
    if len(epochs) < _LEAST_EPOCHS:
        return None
    levels = []
    for number, (start, end) in enumerate(pairwise([*epochs, float("inf")])):
        values = [value for at, value in points if start <= at < end]
        if number and values:
            levels.append((float(number), median(values)))
    return theil_sen(tuple(levels)) if len(levels) > 1 else None
