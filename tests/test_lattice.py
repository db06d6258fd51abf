"""The abstract values form a lattice: the order in which ways come together, and how they are grouped, decides nothing."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oomlint.model.questions import MOST, trim
from oomlint.model.tensor_state import SOME_LOADER, Device, Graph, Mode, SampleSize, Storage, TensorState, ValueKind, join
from oomlint.model.values import FREE, Alternative, Const, External, Unknown, meet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.model.values import Picks

HOMES = st.sampled_from([(), (1, "model"), (2, "model"), (1, "self", "buffers")])
IDS = st.frozensets(st.integers(1, 3))
KINDS = [kind for kind in ValueKind if kind is not ValueKind.PLAIN]


def plain(sure: bool, tags: frozenset[int], home: tuple[object, ...]) -> TensorState:  # noqa: FBT001 - drawn
    """A number or string: what there is of it for each sample does not matter."""
    return TensorState(ValueKind.PLAIN, device=Device.HOST, size=SampleSize.SCALAR, sure=sure, tags=tags, home=home)


def held(**fields: Any) -> TensorState:
    """Any value. Given the class itself, hypothesis would look up the types of all fields, some of which only type checkers import."""
    return TensorState(**fields)


FLAT = st.one_of(
    st.builds(plain, st.booleans(), IDS, HOMES),
    st.builds(
        held,
        kind=st.sampled_from(KINDS),
        graph=st.sampled_from(Graph),
        device=st.sampled_from(Device),
        storage=st.sampled_from(Storage),
        size=st.sampled_from(SampleSize),
        sure=st.booleans(),
        view=st.booleans(),
        moved=st.sampled_from(["", "cpu()", "float()"]),
        sources=IDS,
        tags=IDS,
        home=HOMES,
        loader=st.sampled_from([None, SOME_LOADER, "train", "val"]),
        frozen=st.booleans(),
        dims=st.integers(0, 4),
    ),
)


def packed(elements: Mapping[object, TensorState], inside: TensorState | None, each: TensorState | None, exact: bool, home: tuple[object, ...]) -> TensorState:  # noqa: FBT001 - drawn
    """A container with these elements."""
    return TensorState(ValueKind.PACK, items=tuple(elements.items()), inside=inside, each=each, exact=exact, home=home)


HELD = st.recursive(
    FLAT,
    lambda inner: st.builds(
        packed, st.dictionaries(st.sampled_from([0, 1, 2, "loss", "logits"]), inner, max_size=4), st.none() | inner, st.none() | inner, st.booleans(), HOMES
    ),
    max_leaves=6,
)


@given(HELD)
def test_joining_a_value_with_itself_changes_nothing(held: TensorState) -> None:
    assert join(held, held) == held


@given(HELD, HELD)
def test_which_way_came_first_decides_nothing(first: TensorState, second: TensorState) -> None:
    assert join(first, second) == join(second, first)


@settings(max_examples=400)
@given(HELD, HELD, HELD)
def test_how_ways_are_grouped_decides_nothing(first: TensorState, second: TensorState, third: TensorState) -> None:
    assert join(join(first, second), third) == join(first, join(second, third))


@given(HELD, HELD)
def test_what_came_together_is_stable(first: TensorState, second: TensorState) -> None:
    both = join(first, second)
    assert join(both, first) == both


@given(st.lists(st.tuples(st.integers(0, 60), FLAT), min_size=30, max_size=60, unique_by=lambda item: item[0]))
def test_no_element_of_a_large_container_is_forgotten(items: list[tuple[int, TensorState]]) -> None:
    half = len(items) // 2
    both = join(packed(dict(items[:half]), None, None, False, ()), packed(dict(items[half:]), None, None, False, ()))  # noqa: FBT003
    assert both.all_tags == frozenset().union(*(held.tags for _, held in items))


def test_the_modes_of_gradients_form_a_lattice() -> None:
    for first, second, third in product(Mode, repeat=3):
        assert first.joined(first) is first
        assert first.joined(second) is second.joined(first)
        assert first.joined(second).joined(third) is first.joined(second.joined(third))


PICKS = st.dictionaries(st.sampled_from("abc"), st.booleans(), max_size=3).map(lambda picks: frozenset[tuple[object, object]](picks.items()))


def both(first: Picks | None, second: Picks | None) -> Picks | None:
    """What holds under both; ``None`` is what cannot hold."""
    return None if first is None or second is None else meet(first, second)


@given(PICKS, PICKS, PICKS)
def test_conditions_that_hold_together_do_so_in_any_order(first: Picks, second: Picks, third: Picks) -> None:
    assert meet(first, first) == first
    assert meet(first, FREE) == first
    assert meet(first, second) == meet(second, first)
    assert both(both(first, second), third) == both(first, both(second, third))


@given(PICKS, PICKS)
def test_conditions_that_contradict_each_other_cannot_hold_together(first: Picks, second: Picks) -> None:
    contradict = any(dict(first)[key] != dict(second)[key] for key in dict(first).keys() & dict(second).keys())
    assert (meet(first, second) is None) == contradict


def test_what_two_ways_agree_on_is_known_and_nothing_else() -> None:
    one, other = (TensorState(ValueKind.OBJECT, value=External(name)) for name in ("library.One", "library.Other"))
    assert join(one, one).value == External("library.One")
    assert join(one, other).value is None


def test_too_many_ways_lose_conditions_and_no_value() -> None:
    """A guard such as ``n > 0`` has to hold where there are many ways to ``n``: what tells the ways on which it is true from the others stays."""
    option = ("option", "--workers")
    ways = [Alternative(Const(value=True), (), frozenset({(option, "given"), (("test", one % 9), True), (("branch", one), one)})) for one in range(200)]
    zero = Alternative(Const(value=False), (), frozenset({(option, "zero")}))
    for found in (trim([*ways, zero]), trim([zero, *reversed(ways)])):
        assert len(found) <= MOST
        assert {alt.const for alt in found} == {True, False}
        assert all(meet(alt.picks, zero.picks) is None for alt in found if alt.const is True)


def test_more_values_than_are_kept_leave_the_rest_unknown() -> None:
    found = trim(Alternative(Const(number)) for number in range(2 * MOST))
    assert len(found) <= MOST
    assert isinstance(found[-1].value, Unknown)
