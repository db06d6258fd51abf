"""Growth is told from what looks like it: on series whose answer is known, with noise, for several seeds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from oomlint.trace.growth import LEAST_BYTES, Course, Shape, judge, noise_of, tau, theil_sen, with_allocators

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.trace.timeline import Points

MB: Final = 1e6


def series(shape: Callable[[float], float], count: int = 100, every: float = 0.2, noise: float = 0.2, seed: int = 0) -> Points:
    """A level of 100 MB, and what the shape adds at each share of the run, in MB."""
    chance = random.Random(seed)
    return tuple((number * every, MB * (100 + shape(number / count) + chance.gauss(0, noise))) for number in range(count))


def evaluations(at: float) -> float:
    """Three evaluations that keep their outputs until they end."""
    return 100.0 * (0.3 < at < 0.4 or 0.6 < at < 0.7 or 0.85 < at < 0.95)


SHAPES: Final[dict[str, tuple[Shape, Callable[[float], float], dict[str, float]]]] = {
    "nothing": (Shape.FLAT, lambda _: 0, {}),
    "loud nothing": (Shape.FLAT, lambda _: 0, {"noise": 3}),
    "a fall": (Shape.FLAT, lambda at: -50 * at, {}),
    "a moment": (Shape.FLAT, lambda at: 300.0 * (0.5 < at < 0.55), {}),
    "each step": (Shape.STEADY, lambda at: 50 * at, {}),
    "each step, little": (Shape.STEADY, lambda at: 10 * at, {}),
    "each step, loud": (Shape.STEADY, lambda at: 60 * at, {"noise": 4}),
    "each step, few readings": (Shape.STEADY, lambda at: 50 * at, {"count": 16}),
    "each step, many readings": (Shape.STEADY, lambda at: 50 * at, {"count": 3000}),
    "each step, with evaluations": (Shape.STEADY, lambda at: 80 * at + 100 * (at * 8 % 1), {}),
    "each step, then the end": (Shape.STEADY, lambda at: 400 * at if at < 0.97 else 0, {}),
    "each step, then a short end": (Shape.STEADY, lambda at: 60 * min(at / 0.85, 1), {}),
    "each step, then a long end": (Shape.SETTLED, lambda at: 60 * min(at / 0.7, 1), {}),
    "five stairs": (Shape.STAIRS, lambda at: 20 * int(at * 5), {}),
    "two stairs": (Shape.STAIRS, lambda at: 20 * ((at > 0.5) + (at > 0.85)), {}),
    "ten stairs": (Shape.STAIRS, lambda at: 20 * int(at * 10), {}),
    "read at first": (Shape.FLAT, lambda at: 300 * min(at / 0.1, 1), {}),
    "read for half of the run": (Shape.SETTLED, lambda at: 300 * min(at / 0.5, 1), {}),
    "read for most of the run": (Shape.SETTLED, lambda at: 300 * min(at / 0.75, 1), {}),
    "evaluations": (Shape.WAVES, evaluations, {}),
    "a saw": (Shape.WAVES, lambda at: 100 * (at * 5 % 1), {}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_told(name: str) -> None:
    wanted, shape, more = SHAPES[name]
    found = [judge(series(shape, int(more.get("count", 100)), noise=more.get("noise", 0.2), seed=seed)).shape for seed in range(10)]
    assert found.count(wanted) >= 9, found


def test_amounts_are_right() -> None:
    points = series(lambda at: 60 * at)  # 60 MB in 20 s
    steps = tuple((number * 0.1, float(number)) for number in range(200))
    trend = judge(points, Course((0, 5, 10, 15), steps))
    assert trend.a_minute == pytest.approx(180 * MB, rel=0.05)
    assert trend.a_step == pytest.approx(0.3 * MB, rel=0.05)
    assert trend.an_epoch == pytest.approx(15 * MB, rel=0.1)


def test_stairs_at_epochs_are_epochs() -> None:
    trend = judge(series(lambda at: 20 * int(at * 5)), Course((0, 4, 8, 12, 16)))
    assert trend.shape is Shape.EPOCHS
    assert trend.an_epoch == pytest.approx(20 * MB, rel=0.05)
    assert judge(series(lambda at: 20 * int(at * 20), 400), Course((0, 20, 40, 60))).shape is Shape.STAIRS


def test_the_first_epoch_is_no_growth() -> None:
    assert judge(series(lambda at: 300 * min(at / 0.24, 1)), Course((0, 5, 10, 15))).shape is Shape.FLAT


def test_what_comes_before_the_first_workers_is_no_growth() -> None:
    """An import that takes most of a run of 20 s on a slow machine."""
    ramp = series(lambda at: 300 * min(at / 0.6, 1))
    assert judge(ramp).shape is Shape.SETTLED
    assert judge(ramp, Course(begun=12.5)).shape is Shape.FLAT
    assert judge(series(lambda at: 300 * at), Course(begun=18.5)).shape is Shape.SHORT
    assert judge(series(lambda at: 300 * at), Course(begun=10)).shape is Shape.STEADY
    hours = series(lambda at: 300 * min(at / 0.9, 1), every=36.0)  # trained without workers, evaluated with some
    assert judge(hours, Course(begun=0.9 * 3600)).shape is judge(hours).shape


def test_what_comes_after_the_work_is_no_verdict() -> None:
    ends = series(lambda at: 60 * min(at / 0.6, 1))
    assert judge(ends).shape is Shape.SETTLED
    assert judge(ends, Course(over=12.0)).shape is Shape.STEADY
    assert judge(series(lambda _: 0), Course(over=12.0)).shape is Shape.FLAT


def test_a_run_of_a_second_says_nothing() -> None:
    brief = series(lambda at: 50 * at, every=0.02)
    assert judge(brief).shape is Shape.SHORT
    assert judge(brief, Course(steps=tuple((number * 0.1, float(number)) for number in range(20)))).shape is Shape.STEADY


def test_few_readings_say_nothing() -> None:
    assert judge(()).shape is Shape.SHORT
    assert judge(series(lambda at: 50 * at, 5)).shape is Shape.SHORT
    assert judge(((0.0, 5.0),) * 20).shape in {Shape.SHORT, Shape.FLAT}


def test_less_than_counts_is_flat() -> None:
    assert judge(series(lambda at: 0.4 * LEAST_BYTES / MB * at, noise=0)).shape is Shape.FLAT
    descriptors = tuple((float(number), float(number // 4)) for number in range(100))
    assert judge(descriptors).shape is Shape.FLAT
    assert judge(descriptors, least=8).shape is Shape.STEADY


def test_statistics() -> None:
    line = tuple((float(number), 2.0 * number) for number in range(20))
    spoilt = (*line[:5], (5.0, 1e6), (6.0, -1e6), *line[7:])
    assert theil_sen(line) == theil_sen(spoilt) == 2.0
    assert tau(line) == 1.0
    assert tau(tuple((at, -value) for at, value in line)) == -1.0
    assert tau(((0.0, 1.0), (1.0, 1.0))) == theil_sen(()) == noise_of(()) == 0.0
    assert noise_of(series(lambda at: 50 * at, 1000, noise=2)) == pytest.approx(2 * MB, rel=0.2)
    assert noise_of(series(lambda at: 20 * int(at * 10), 1000, noise=2)) == pytest.approx(2 * MB, rel=0.2)


def test_what_the_allocator_keeps_is_told() -> None:
    points = series(lambda at: 100 * min(at / 0.5, 1))
    kept = with_allocators(judge(points), points, ((0.0, 0.0), (15.0, 90 * MB), (20.0, 90 * MB)))
    assert (kept.shape, kept.freed) == (Shape.KEPT, 90 * MB)
    assert with_allocators(judge(points), points, ((20.0, 1 * MB),)).shape is Shape.SETTLED
    grows = series(lambda at: 100 * at)
    assert with_allocators(judge(grows), grows, ((0.0, 5 * MB), (20.0, 6 * MB))).shape is Shape.STEADY


def test_what_each_epoch_frees_and_takes_again_is_not_kept() -> None:
    points = series(lambda at: 400 * min(at / 0.1, 1))
    free = tuple((float(at), MB * (400 if at % 4 == 0 else 100 - 25 * (at % 4))) for at in range(21))
    assert with_allocators(judge(points), points, free).shape is Shape.FLAT
