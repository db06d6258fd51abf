"""Batches in flight: how many, and how large where shapes are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import AllocationFact, ByteSize
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.facts import dataset_facts, loader_fact
from oomlint.memory.loaders.loader_calls import confidence_of, loaders_of, story_places
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model.values import Absent, Alternative, Const, Frame, assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Confidence, Fact, Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module, Project

_PREFETCHED = 2  # torch's default with workers


@dataclass(frozen=True, slots=True)
class Inflight:
    """What waits between the workers of one loader and the training; bytes of one batch."""

    place: Place
    workers: int
    batches: int
    batch_bytes: int
    confidence: Confidence
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]


def inflight(module: Module, project: Project) -> Iterator[Inflight]:
    """Loaders of the module whose batches in flight exceed the budget; silent where a number is not known."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        worst: Inflight | None = None
        for use in loaders.uses(loader):
            case = _case(project, loader, use.frame)
            if case is not None and (worst is None or case.batches * case.batch_bytes > worst.batches * worst.batch_bytes):
                worst = case
        if worst is not None and worst.batches * worst.batch_bytes > project.settings.inflight_bytes:
            yield worst


def _number(found: list[Alternative], default: int) -> Alternative | None:
    for alt in found:
        if alt.reach:
            continue
        if isinstance(alt.value, Absent) or (isinstance(alt.value, Const) and alt.value.value is None):
            return Alternative(Const(default))
        if isinstance(alt.value, Const) and isinstance(alt.value.value, int):
            return alt
    return None


def _case(project: Project, loader: Loader, frame: Frame) -> Inflight | None:
    loaders = loaders_of(project)
    workers = _number(loaders.workers(loader, frame), 0)
    batch = _number(loaders.argument(loader, "batch_size", frame), 1)
    ahead = _number(loaders.argument(loader, "prefetch_factor", frame), _PREFETCHED)
    if workers is None or batch is None or ahead is None or not isinstance(workers.const, int) or workers.const < 1:
        return None
    if not isinstance(batch.const, int) or not isinstance(ahead.const, int):
        return None
    for dataset in datasets_of(project).of(loaders, loader, frame):
        sample = sample_bytes(project, dataset)
        if sample is None:
            continue
        place = loader.module.place(loader.call)
        doubt = assumptions(workers, batch, ahead)
        related = tuple(story_places(place, workers, batch, ahead))
        batches, size = ahead.const * workers.const + 1, batch.const * sample
        facts: tuple[Fact, ...] = (loader_fact(loader, [workers]), AllocationFact(place, ByteSize(size)), *dataset_facts(dataset))
        return Inflight(place, workers.const, batches, size, confidence_of(doubt), related, facts)
    return None


def sample_bytes(project: Project, dataset: Dataset) -> int | None:
    """Bytes of the arrays and tensors that ``__getitem__`` returns, where their shapes are constants."""
    if dataset.instance is None:
        return None
    evaluator = loaders_of(project).evaluator
    item = evaluator.method(dataset.instance, "__getitem__")
    if item is None or not item.scope.returns:
        return None
    frame = Frame(item.module, item.scope, None, dataset.instance)
    contents = datasets_of(project).contents
    least: int | None = None
    for statement in item.scope.returns:
        if statement.value is None:
            return None
        parts = [statement.value]
        if isinstance(statement.value, cst.Tuple | cst.List | cst.Dict):
            parts = [e.value for e in statement.value.elements]
        total = 0
        for part in parts:
            content = contents.of(part, frame)
            if content.kind in {Kind.TENSOR, Kind.ARRAY} and content.size.exact is not None:
                total += content.size.exact
        if total == 0:
            return None
        least = total if least is None else min(least, total)
    return least
