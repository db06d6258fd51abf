"""Batches in flight: how many, and how large where shapes are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.finding import AllocationFact, ByteSize
from oomlint.memory.datasets.sample_values import launch_of
from oomlint.memory.datasets.samples import batches_of, length_of
from oomlint.memory.facts import dataset_facts, loader_fact
from oomlint.memory.loaders.dropped_loaders import is_dropped
from oomlint.memory.loaders.loader_calls import confidence_of, given_beside, loaders_of, story_places
from oomlint.model.values import Absent, Alternative, Const, assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Confidence, Fact, Place
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame

PREFETCHED = 2  # torch's default with workers


class Inflight(Struct, frozen=True):
    """What waits between the workers of one loader and the training; bytes of one batch."""

    place: Place
    workers: int
    batches: int
    batch_bytes: int
    confidence: Confidence
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]
    beside: tuple[Place, ...] = ()  # where files beside the code give the numbers
    least: bool = False  # whether a batch may be larger

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.batches * self.batch_bytes


def inflight(module: Module, project: Project) -> Iterator[Inflight]:
    """Loaders of the module whose batches in flight exceed the budget; silent where a number is not known."""
    loaders = loaders_of(project)
    for loader in (one for one in loaders.of(module) if not is_dropped(one)):
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
    workers, batch = workers_under(loaders, loader, frame, launch), number_under(loaders.argument(loader, "batch_size", frame), 1, launch)
    ahead = number_under(loaders.argument(loader, "prefetch_factor", frame), PREFETCHED, launch)
    if workers is None or batch is None or ahead is None or not isinstance(workers.const, int) or workers.const < 1:
        return None
    if not isinstance(batch.const, int) or not isinstance(ahead.const, int):
        return None
    for dataset, ways in batches_of(project, loader, frame, batch.const, launch):
        least = min(ways, key=lambda way: way.at_least, default=None)
        if least is None or not least.at_least:
            continue
        waiting, size = ahead.const * workers.const + 1, least.at_least
        length = length_of(project, dataset, launch) if dataset is not None else None
        if length is not None:  # an epoch has no more batches, and they have no more samples
            waiting, size = min(waiting, -(-length // max(batch.const, 1))), size * min(length, batch.const) // max(batch.const, 1)
        place = loader.module.place(loader.call)
        facts: tuple[Fact, ...] = (
            loader_fact(loader, [workers]),
            AllocationFact(place, ByteSize(size) if least.exact else ByteSize(least=size)),
            *(dataset_facts(dataset) if dataset is not None else ()),
        )
        confidence = confidence_of(max(assumptions(workers, batch, ahead), least.doubt))
        related = tuple(story_places(place, workers, batch, ahead))
        beside = given_beside([workers, batch, ahead])
        return Inflight(place, workers.const, waiting, size, confidence, related, facts, beside, not least.exact)
    return None


def workers_under(loaders: Loaders, loader: Loader, frame: Frame, launch: object) -> Alternative | None:
    """How many workers a loader has in a frame, under a command line; ``None`` where nobody knows."""
    return number_under(loaders.workers(loader, frame), 0, launch)


def number_under(found: list[Alternative], default: int, launch: object = None) -> Alternative | None:
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
