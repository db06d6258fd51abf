"""The weight of a finding: what its rule declares, filled in from its facts. Nothing else derives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.amounts import readable
from oomlint.finding import (
    AllocationFact,
    AttributeFact,
    ByteSize,
    Consequence,
    ContentKind,
    Factor,
    HandleFact,
    LoaderFact,
    LoopFact,
    LoopKind,
    Multiplier,
    RanksFact,
    ReadFact,
    Resource,
    Weight,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Fact, Weighs

HELD: Final = {
    ContentKind.PATHS: Resource.NAMES,
    ContentKind.TEXT: Resource.RECORDS,
    ContentKind.OBJECTS: Resource.RECORDS,
    ContentKind.BLOB: Resource.RECORDS,
    ContentKind.OBJECT_ARRAY: Resource.RECORDS,
    ContentKind.ARRAY: Resource.ARRAYS,
    ContentKind.ARRAYS: Resource.ARRAYS,
    ContentKind.MEMMAP: Resource.ARRAYS,
    ContentKind.FRAME: Resource.ARRAYS,
    ContentKind.TENSOR: Resource.TENSORS,
    ContentKind.TENSORS: Resource.TENSORS,
    ContentKind.HANDLE: Resource.HANDLE,
    ContentKind.H5: Resource.HANDLE,
}


def weight_of(weighs: Weighs, facts: Sequence[Fact]) -> Weight:
    """The weight that the facts of a finding give to what its rule declares."""
    of = weighs.of if weighs.of is not Resource.UNKNOWN else _resource(facts)
    size = weighs.bytes if weighs.bytes is not None else max(_sizes(facts), key=_rank, default=ByteSize())
    return Weight(weighs.consequence, of, size, tuple(one if isinstance(one, Factor) else _factor(one, facts) for one in weighs.by))


def in_each(weight: Weight, ranks: RanksFact) -> Weight:
    """The weight of what each of several ranks holds, given that in one of them."""
    consequence = Consequence.MULTIPLIED if weight.consequence is Consequence.ONCE else weight.consequence
    return replace(weight, consequence=consequence, factors=(*weight.factors, Factor(Multiplier.RANKS, ranks.count)))


def words(size: ByteSize) -> str:
    """Bytes for a message, ``about 2.1 GiB``; empty where they are not known."""
    if size.exact is not None:
        return f"about {readable(size.exact)}"
    formula = f"`{size.formula}` bytes" if size.formula else ""
    if size.least is None:
        return formula
    return f"at least {readable(size.least)}" + (f" ({formula})" if formula else "")


def _resource(facts: Iterable[Fact]) -> Resource:
    """What is held: what is read says more of it than the array that it is put into."""
    made = Resource.UNKNOWN
    for fact in facts:
        found = Resource.UNKNOWN
        if isinstance(fact, ReadFact):
            found = fact.gives
        elif isinstance(fact, AttributeFact):
            found = HELD.get(fact.holds, Resource.UNKNOWN)
        elif isinstance(fact, AllocationFact):
            made = Resource.ARRAYS
        if found is not Resource.UNKNOWN:
            return found
    return made


def _sizes(facts: Iterable[Fact]) -> Iterator[ByteSize]:
    for fact in facts:
        if isinstance(fact, AllocationFact | ReadFact | AttributeFact):
            yield fact.bytes
        elif isinstance(fact, HandleFact) and fact.cache_bytes is not None:
            yield fact.cache_bytes


def _rank(size: ByteSize) -> tuple[int, bool]:
    return size.known or 0, bool(size.formula)


def _factor(by: Multiplier, facts: Sequence[Fact]) -> Factor:
    """What multiplies, with the number that the facts have for it: the largest where they have several."""
    if by is Multiplier.WORKERS:
        counts = [one.count for fact in facts if isinstance(fact, LoaderFact) for one in fact.workers]
    elif by is Multiplier.FILES:
        counts = [fact.count for fact in facts if isinstance(fact, AttributeFact)]
    elif by is Multiplier.RANKS:
        counts = [fact.count for fact in facts if isinstance(fact, RanksFact)]
    else:
        counts = []
        if by is Multiplier.STEPS and any(isinstance(fact, LoopFact) and fact.kind is LoopKind.EPOCH for fact in facts):
            by = Multiplier.EPOCHS
    return Factor(by, max((count for count in counts if count), default=None))
