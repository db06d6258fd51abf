"""Batches in flight: how many, and how large where shapes are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import AllocationFact, ByteSize
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.facts import dataset_facts, loader_fact
from oomlint.memory.loaders.loader_calls import confidence_of, given_beside, loaders_of, story_places
from oomlint.memory.loaders.sample_rows import Row, indexed_row, tensor_rows
from oomlint.memory.loaders.transforms import picture_bytes, transformed_bytes
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model.values import Absent, Alternative, Const, Frame, assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Confidence, Fact, Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project

_MOST = 6
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
    beside: tuple[Place, ...] = ()  # where files beside the code give the numbers

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.batches * self.batch_bytes


def inflight(module: Module, project: Project) -> Iterator[Inflight]:
    """Loaders of the module whose batches in flight exceed the budget; silent where a number is not known."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        found = [case for case in cases(project, loader) if case.bytes > project.settings.inflight_bytes]
        if found:
            by_place: dict[tuple[Place, ...], list[Inflight]] = {}
            for case in found:
                by_place.setdefault(case.beside, []).append(case)
            yield from (max(group, key=lambda case: case.bytes) for group in ([by_place[()]] if () in by_place else by_place.values()))


def cases(project: Project, loader: Loader) -> Iterator[Inflight]:
    """What waits for one loader, in each frame and under each command line; silent where a number is not known."""
    loaders = loaders_of(project)
    for use in loaders.uses(loader):
        given = [loaders.workers(loader, use.frame), *(loaders.argument(loader, name, use.frame) for name in ("batch_size", "prefetch_factor"))]
        for launch in (None, *dict.fromkeys(found for alts in given for alt in alts if (found := launch_of(alt)) is not None)):
            case = case_under(project, loader, use.frame, launch)
            if case is not None:
                yield case


def case_under(project: Project, loader: Loader, frame: Frame, launch: object) -> Inflight | None:
    """The same in one frame, under one command line."""
    loaders = loaders_of(project)
    workers, batch = workers_under(loaders, loader, frame, launch), _number(loaders.argument(loader, "batch_size", frame), 1, launch)
    return _case(project, loader, frame, workers, batch, _number(loaders.argument(loader, "prefetch_factor", frame), _PREFETCHED, launch))


def workers_under(loaders: Loaders, loader: Loader, frame: Frame, launch: object) -> Alternative | None:
    """How many workers a loader has in a frame, under a command line; ``None`` where nobody knows."""
    return _number(loaders.workers(loader, frame), 0, launch)


def launch_of(alt: Alternative) -> object:
    """The command line that a value holds under; ``None`` for none."""
    return next((pick for _, pick in alt.picks if isinstance(pick, tuple) and pick[:1] == ("launch",)), None)


def _number(found: list[Alternative], default: int, launch: object) -> Alternative | None:
    """What an argument is under a command line: what that gives, else what it is without any."""
    told = [alt for alt in found if launch is not None and launch_of(alt) == launch]
    for alt in told or [alt for alt in found if launch_of(alt) is None]:
        if alt.reach:
            continue
        if isinstance(alt.value, Absent) or (isinstance(alt.value, Const) and alt.value.value is None):
            return Alternative(Const(default))
        if isinstance(alt.value, Const) and isinstance(alt.value.value, int):
            return alt
    return None


def _case(project: Project, loader: Loader, frame: Frame, workers: Alternative | None, batch: Alternative | None, ahead: Alternative | None) -> Inflight | None:
    if workers is None or batch is None or ahead is None or not isinstance(workers.const, int) or workers.const < 1:
        return None
    if not isinstance(batch.const, int) or not isinstance(ahead.const, int):
        return None
    for sample, about, ways in (*_samples(project, loader, frame), *_pictures(project, loader, frame)):
        place = loader.module.place(loader.call)
        doubt = max(assumptions(workers, batch, ahead), ways)
        related = tuple(story_places(place, workers, batch, ahead))
        batches, size = ahead.const * workers.const + 1, batch.const * sample
        facts: tuple[Fact, ...] = (loader_fact(loader, [workers]), AllocationFact(place, ByteSize(size)), *about)
        beside = given_beside([workers, batch, ahead])
        return Inflight(place, workers.const, batches, size, confidence_of(doubt), related, facts, beside)
    return None


def _samples(project: Project, loader: Loader, frame: Frame) -> Iterator[tuple[int, tuple[Fact, ...], int]]:
    """Bytes of a sample of each dataset that the loader can read, where they are known, and what had to be assumed."""
    for dataset in datasets_of(project).of(loaders_of(project), loader, frame):
        row = sample_row(project, dataset)
        if row is None and dataset.instance is not None:
            size = transformed_bytes(project, dataset.instance)
            row = Row(size, 1) if size is not None else None
        if row is not None:
            yield row.bytes, dataset_facts(dataset), row.ways


def _pictures(project: Project, loader: Loader, frame: Frame) -> Iterator[tuple[int, tuple[Fact, ...], int]]:
    """The same of a library's folders of pictures."""
    for alt in loaders_of(project).argument(loader, "dataset", frame)[:_MOST]:
        size = picture_bytes(project, alt.value)
        if size is not None:
            yield size, (), 1


def sample_row(project: Project, dataset: Dataset) -> Row | None:
    """Bytes of the arrays and tensors that ``__getitem__`` returns, where their shapes are constants, and of rows of tensors whose shape is known."""
    if dataset.instance is None:
        return tensor_rows(project, dataset.alternative.value) if dataset.alternative is not None else None
    evaluator = loaders_of(project).evaluator
    item = evaluator.method(dataset.instance, "__getitem__")
    if item is None or not item.scope.returns:
        return None
    frame = Frame(item.module, item.scope, None, dataset.instance)
    contents = datasets_of(project).contents
    least: Row | None = None
    for statement in item.scope.returns:
        if statement.value is None:
            return None
        parts = [statement.value]
        if isinstance(statement.value, cst.Tuple | cst.List | cst.Dict):
            parts = [e.value for e in statement.value.elements]
        total = Row(0, 0)
        for part in parts:
            row = indexed_row(part, frame, evaluator)
            content = contents.of(part, frame)
            if row is None and content.kind in {Kind.TENSOR, Kind.ARRAY} and content.size.exact is not None:
                row = Row(content.size.exact, 0)
            if row is not None:
                total = Row(total.bytes + row.bytes, max(total.ways, row.ways))
        if total.bytes == 0:
            return None
        least = total if least is None else min(least, total)
    return least
