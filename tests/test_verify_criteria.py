"""The thresholds between growth and noise, on numbers as they were measured."""

from __future__ import annotations

import pytest

from oomlint.verify import thresholds
from oomlint.verify.strategies.growth_metrics import MetricKind, Signal, measured

NODES = Signal("nodes", "autograd nodes", "nodes")

# -- growth ------------------------------------------------------------------------------------------------------------


def test_what_grows_in_each_step_grows() -> None:
    found = measured(NODES, [40, 9, 5, 5, 5, 5, 5, 5, 5], [12, 0, 0, 0, 0, 0, 0, 0, 0])
    assert found.shown
    assert found.ended
    assert found.words == "autograd nodes grow by 5 a step before, by 0 after"


def test_the_first_steps_do_not_count() -> None:
    assert not thresholds.rate([3, 3, 3, 0, 0, 0, 0, 0]).grows


def test_too_few_steps_tell_nothing() -> None:
    rate = thresholds.rate([0, 0, 0, 5, 5, 5, 5])
    assert not rate.enough
    assert not rate.grows
    assert "too few steps" in measured(NODES, [1, 1], [0, 0]).words


@pytest.mark.parametrize(
    ("deltas", "grows"),
    [
        pytest.param([0] * 4 + [1, 0, 0, 1, 0, 0, 1, 0, 0], True, id="kept in every third step"),
        pytest.param([0] * 4 + [1, 0, 0, -1, 0, 1, 0, -1, 1], False, id="comes and goes"),
        pytest.param([0] * 4 + [7, 0, 0, 0, 0, 0, 0, 0], False, id="once"),
        pytest.param([0] * 4 + [-1, -1, -1, -1, -1], False, id="shrinks"),
    ],
)
def test_growth_at_intervals(deltas: list[int], *, grows: bool) -> None:
    assert thresholds.rate(deltas).grows is grows


def test_a_copy_of_all_so_far_takes_more_in_each_step() -> None:
    assert thresholds.slope([100 * step for step in range(12)]).a_step == 100
    assert not thresholds.slope([100] * 12).grows


def test_handles_are_counted_after_each_step() -> None:
    found = measured(Signal("descriptors", "open descriptors", "descriptors", MetricKind.LEVEL), [10 + 2 * step for step in range(12)], [10] * 12)
    assert found.shown
    assert found.ended


# -- worker memory -----------------------------------------------------------------------------------------------------


def test_less_memory_counts_beyond_three_spreads() -> None:
    lists, arrays = [43.4e6, 42.9e6, 44.0e6], [24.5e6, 24.4e6, 24.6e6]
    found = thresholds.worker_memory(lists, arrays, size=8e6, workers=2)
    assert found.enough
    assert found.words == "workers add 41.4 MiB before, 23.4 MiB after"
    assert thresholds.worker_memory(arrays, lists, size=8e6, workers=2).more
    assert not thresholds.worker_memory([43e6, 50e6, 38e6], [24e6] * 3, size=8e6, workers=2).enough


def test_less_memory_counts_beyond_a_megabyte_and_a_tenth_of_the_data() -> None:
    assert not thresholds.worker_memory([1.9e6] * 3, [1e6] * 3, size=1e6, workers=2).enough
    assert thresholds.worker_memory([2.1e6] * 3, [1e6] * 3, size=1e6, workers=2).enough
    assert not thresholds.worker_memory([12e6] * 3, [1e6] * 3, size=64e6, workers=2).enough


# -- equivalence -------------------------------------------------------------------------------------------------------


def test_what_does_not_repeat_cannot_be_compared() -> None:
    found = thresholds.same(["total: 1 (float)"], ["total: 2 (float)"], ["total: 1 (float)"])
    assert found.same is None
    assert found.words == "the result differs between two runs of the same program: `total: 1 (float)` in one, `total: 2 (float)` in the other"


def test_the_first_difference_is_said() -> None:
    assert thresholds.same(["a", "b"], ["a", "b"], ["a", "b"]).same
    found = thresholds.same(["a", "b"], ["a", "b"], ["a", "c"])
    assert found.same is False
    assert found.words == "the result differs: `b` before, `c` after"
    assert "1 parts before, 2 after" in thresholds.same(["a"], ["a"], ["a", "b"]).words


def test_a_difference_is_shown_where_two_lines_part() -> None:
    start = "['text'] str 'a description that is far too long to be told in one line, and says at its end: "
    words = thresholds.first_difference([start + "7'"], [start + "8'"])
    assert words == "`['text'] str 'a desc...ne line, and says at its end: 7'` before, `['text'] str 'a desc...ne line, and says at its end: 8'` after"
    same = f"x: {'0' * 16} (float32 (4, 8))"
    assert thresholds.first_difference([same], [same.replace("0", "1")]) == "`x (float32 (4, 8))` before and after, with other values"


@pytest.mark.parametrize(
    ("before", "after", "close"),
    [
        pytest.param([1.0, 2.0], [1.0000001, 2.0], True, id="last bits"),
        pytest.param([1.0, 2.0], [1.001, 2.0], False, id="a thousandth"),
        pytest.param([0.0, 2.0], [1e-7, 2.0], True, id="next to nothing"),
        pytest.param([None], [None], True, id="not finite"),
        pytest.param([None], [1.0], False, id="not finite before"),
        pytest.param([1.0], [1.0, 2.0], False, id="other length"),
    ],
)
def test_rounding(before: list[float | None], after: list[float | None], *, close: bool) -> None:
    assert thresholds.close(before, after) is close


@pytest.mark.parametrize(
    ("before", "after", "close"),
    [
        pytest.param("loss 0.1234", "loss 0.1235", True, id="last digit shown"),
        pytest.param("loss 0.1234", "loss 0.1334", False, id="another number"),
        pytest.param("loss -20.74716655", "loss -20.7472", True, id="fewer digits after"),
        pytest.param("epoch 1", "epoch 2", False, id="a count"),
        pytest.param("loss 0.1", "cost 0.1", False, id="another word"),
    ],
)
def test_rounding_in_printed_text(before: str, after: str, *, close: bool) -> None:
    assert thresholds.close_text(before, after) is close


def test_bytes_for_people() -> None:
    assert [thresholds.human(item) for item in (0, 160, 1120, 4_132_000, 2.1e9)] == ["0 B", "160 B", "1.1 KiB", "3.9 MiB", "2.0 GiB"]
