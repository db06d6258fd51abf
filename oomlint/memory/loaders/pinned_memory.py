"""Pinned memory: blocks come in powers of two, and what is pinned stays with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.amounts import readable
from oomlint.finding import AllocationFact, ByteSize, Consequence, Factor, Message, Multiplier, Resource, Told, Weighs
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.samples import batches_of
from oomlint.memory.facts import allocation_fact, dataset_facts, loader_fact
from oomlint.memory.loaders.in_flight import PREFETCHED, number_under
from oomlint.memory.loaders.loader_calls import confidence_of, loaders_of, story_places
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import arguments, names
from oomlint.model.values import Absent, Alternative, Const, ExternalCall, Frame, assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module, Project

_LEAST_WASTE = 16 << 20  # bytes of one batch
_THRESHOLD = "pinned_max_round_threshold_mb"  # an option of PyTorch's allocator that ends the rounding


def block(count: int) -> int:
    """Bytes that are pinned for so many bytes."""
    return 1 << max(count - 1, 0).bit_length() if count else 0


def is_wasteful(wanted: int, pinned: int) -> bool:
    """Whether a quarter of what is pinned, and no less than 16 MiB, holds nothing."""
    return pinned - wanted >= _LEAST_WASTE and (pinned - wanted) * 4 >= pinned


def rounded_batches(module: Module, project: Project) -> Iterator[Told]:
    """Loaders with pinned memory whose batches, as far as their bytes are known, are rounded up by much."""
    loaders = loaders_of(project)
    if _THRESHOLD in module.source.text:
        return
    for loader in loaders.of(module):
        for use in loaders.uses(loader):
            case = _batch(project, loader, use.frame)
            if case is not None:
                yield case
                break


def _batch(project: Project, loader: Loader, frame: Frame) -> Told | None:
    loaders = loaders_of(project)
    pinned = _pins(loaders.argument(loader, "pin_memory", frame))
    batch = number_under(loaders.argument(loader, "batch_size", frame), 1)
    workers = number_under(loaders.workers(loader, frame), 0)
    ahead = number_under(loaders.argument(loader, "prefetch_factor", frame), PREFETCHED)
    sampled = any(not isinstance(alt.value, Absent) and alt.value != Const(None) for alt in loaders.argument(loader, "batch_sampler", frame))
    if pinned is None or batch is None or not isinstance(batch.const, int) or sampled:
        return None
    for dataset, ways in batches_of(project, loader, frame, batch.const):
        known = [([leaf.exact for leaf in way.arrays if leaf is not None and leaf.exact is not None], way.doubt) for way in ways]
        parts, doubt = min(known, key=lambda one: sum(one[0]), default=([], 0))
        if not parts or dataset is None:
            continue
        wanted, taken = sum(parts), sum(block(part) for part in parts)
        if not is_wasteful(wanted, taken):
            return None
        times = 1
        if workers is not None and ahead is not None and isinstance(workers.const, int) and isinstance(ahead.const, int) and workers.const > 0:
            times = ahead.const * workers.const + 1
        place = loader.module.place(loader.call)
        facts: tuple[Fact, ...] = (loader_fact(loader, option="pin_memory"), AllocationFact(place, ByteSize(wanted)), *dataset_facts(dataset))
        confidence, related = confidence_of(max(assumptions(pinned, batch), doubt)), tuple(story_places(place, pinned, batch))
        much, weighs = "", None
        if times > 1:
            much = f", in each of up to {times} batches in flight"
            weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Factor(Multiplier.PREFETCH, times),), ByteSize(taken - wanted))
        return Told(place, _message("A batch", wanted, taken, much), confidence=confidence, related=related, facts=facts, weighs=weighs)
    return None


def _pins(found: list[Alternative]) -> Alternative | None:
    """Where the memory is pinned: by the word, or wherever there is CUDA."""
    for alt in found:
        value = alt.value
        if not alt.reach and (
            (isinstance(value, Const) and value.value is True) or (isinstance(value, ExternalCall) and value.name == "torch.cuda.is_available")
        ):
            return alt
    return None


def rounded_arrays(module: Module, project: Project) -> Iterator[Told]:
    """Tensors of known bytes that are pinned by hand."""
    evaluator = loaders_of(project).evaluator
    contents = datasets_of(project).contents
    if _THRESHOLD in module.source.text:
        return
    for call, scope in module.walk.calls:
        frame = evaluator.calls.plain_frame(module, scope)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "pin_memory" and not call.args:
            content = contents.of(call.func.value, frame)
        elif names.dotted(arguments.named(call, "pin_memory")) == "True":
            content = contents.of(call, frame)
        else:
            continue
        exact = content.size.exact
        if content.kind is PayloadKind.TENSOR and exact is not None and is_wasteful(exact, block(exact)):
            facts = (allocation_fact(module, call, ByteSize(exact)),)
            yield Told(module.place(call), _message("An array", exact, block(exact)), confidence=confidence_of(content.doubt), facts=facts)


def _message(what: str, wanted: int, taken: int, much: str = "") -> Message:
    empty = f"pinned memory comes in powers of two, so {readable(taken - wanted)} hold nothing{much}"
    return Message(f"{what} of {readable(wanted)} takes {readable(taken)} of pinned memory", empty)
