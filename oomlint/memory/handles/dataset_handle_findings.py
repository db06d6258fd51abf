"""What is said of a handle that a dataset keeps: where, how gravely, how surely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Message, Severity, Told, in_own_rows
from oomlint.memory.facts import handle_facts
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.first_use import touched
from oomlint.memory.handles.h5_options import driver_chosen, in_core
from oomlint.memory.handles.openings import Opens
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.model.values import is_usual

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Place
    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.model.project import Module, Project


class HandleCase(Told, frozen=True, kw_only=True):
    """What is told of a handle."""

    handle: Handle


def opened_in_init(module: Module, project: Project, kind: Opens) -> Iterator[HandleCase]:
    """Handles of a kind that a dataset has from the time it is made, and that its workers inherit or cannot be sent."""
    for handle in handles_of(project).of(module):
        if handle.opening.kind is not kind or handle.spared or not handle.at_first or handle.readers.alone or in_core(handle.opening, project):
            continue
        if driver_chosen(handle.opening, project):
            continue
        readers = handle.readers
        pickled = readers.pickled
        lmdb = kind is Opens.LMDB
        if readers.certain:
            how = f"it cannot be pickled, so workers fail to start under {pickled}"
        elif pickled:
            forked = "; LMDB forbids sharing under fork" if lmdb else " and share one handle under fork"
            start = "workers fail" if lmdb else "workers fail to start"
            how = f"{start} under spawn or forkserver{forked}"
        elif lmdb:
            how = "forked workers share it, which LMDB forbids"
        else:
            continue
        told = _told(handle, project, Message(f"{_who(handle)} holds {_what(handle)} since `__init__`", how))
        if told is not None:
            yield told


def lazy_but_touched(module: Module, project: Project) -> Iterator[HandleCase]:
    """Handles that are opened on first use, where the main process makes that use before the dataset is pickled."""
    for handle in handles_of(project).of(module):
        readers = handle.readers
        if handle.at_first or handle.spared or readers.alone or not readers.pickled or not handle.direct:
            continue
        touch = touched(handle, project)
        if touch is None:
            continue
        how = f"without `__getstate__`, workers then fail to start under {readers.pickled if readers.certain else 'spawn or forkserver'}"
        message = Message(f"{touch.words} opens {_who(handle)} in the main process", how)
        told = _told(handle, project, message, first=touch.places)
        if told is not None:
            yield told


def _told(handle: Handle, project: Project, message: Message, first: Iterable[Place] = ()) -> HandleCase | None:
    module = handle.opening.module
    likely = _likely(handle, project)
    if likely is None:
        return None
    place = module.place(handle.opening.call)
    doubt = handle.doubt + likely + (0 if handle.readers.helped is not None else 1)
    severity = Severity.ERROR if handle.readers.certain else Severity.WARNING
    related = related_places(handle, place, first)
    return HandleCase(place, message, severity, confidence_of(doubt), related, facts=handle_facts(handle), handle=handle)


def related_places(handle: Handle, place: Place, first: Iterable[Place] = ()) -> tuple[Place, ...]:
    """Where the attribute is set, and the loaders."""
    spots = list(first)
    if handle.effect is not None:
        spots.append(handle.module.place(handle.effect.node, f"`{handle.attribute}` keeps it"))
    if not handle.direct:
        spots.append(handle.owner.module.place(handle.owner.scope.node, f"`{handle.owner.scope.name}` is kept by `{handle.dataset.scope.name}`"))
    return tuple(in_own_rows(place, (*spots, *handle.readers.places()))[:6])


def _likely(handle: Handle, project: Project) -> int | None:
    """Assumptions that it takes to get to the opening: none, one where only an option brings it about, ``None`` where nothing does."""
    opening = handle.opening
    evaluator = handles_of(project).evaluator
    frame = evaluator.calls.plain_frame(opening.module, opening.scope)
    ways = evaluator.where(opening.call, frame)
    if not ways:
        return None
    return 0 if any(is_usual(picks) for picks in ways) else 1


def _who(handle: Handle) -> str:
    name = handle.dataset.scope.name
    if handle.direct:
        return f"`{name}.{handle.attribute}`"
    return f"`{handle.owner.scope.name}.{handle.attribute}`, part of `{name}`,"


def _what(handle: Handle) -> str:
    if handle.opening.kind is Opens.LMDB:
        return "an LMDB object" if handle.part else "an LMDB environment"
    return "an open HDF5 object" if handle.part else "an open HDF5 file"
