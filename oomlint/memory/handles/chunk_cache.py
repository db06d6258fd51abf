"""HDF5 files that are opened whole into memory, or with a large cache of which workers each have their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.amounts import readable
from oomlint.finding import Consequence, Message, Resource, Told, Weighs
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.facts import class_fact, handle_facts, loader_fact, opening_fact
from oomlint.memory.handles.dataset_handle_findings import related_places
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.h5_options import chunk_cache, in_core
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.memory.shared.array_bytes import commented
from oomlint.model import names
from oomlint.model.values import ClassRef, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact
    from oomlint.memory.datasets.dataset_readers import Readers
    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module, Project

_CORE: Final = '`driver="core"` reads the whole HDF5 file into memory'
_ONCE: Final = Weighs(Consequence.ONCE, Resource.HANDLE)
_PLAIN: Final = 'open the file without `driver="core"`, and read each sample from disk'


def held_in_memory(module: Module, project: Project) -> Iterator[Told]:
    """Openings of the module with the core driver, in a dataset, or a large chunk cache, in one that may have workers.

    Files that one function opens for one class, each with the core driver, are one finding.
    """
    whole: dict[object, Told] = {}
    for key, cache in _openings(module, project):
        if key is None:
            yield cache
        elif key not in whole:
            whole[key] = cache
        else:
            first = whole[key]
            others = (cache.place.saying("read whole, too"), *(one for one in cache.related if one not in first.related))
            whole[key] = replace(first, related=(*first.related, *others), facts=tuple(dict.fromkeys((*first.facts, *cache.facts))))
    yield from whole.values()


def _openings(module: Module, project: Project) -> Iterator[tuple[object, Told]]:
    """Each of them, with what those of one finding have in common, if there may be others."""
    kept = {handle.opening.call: handle for handle in handles_of(project).of(module)}
    for opening in openings_of(project).of(module):
        if opening.kind is not Opens.H5:
            continue
        core, size = in_core(opening, project) and not _said_small(opening, project), chunk_cache(opening, project)
        if not core and size is None:
            continue
        handle = kept.get(opening.call)
        if handle is None:
            started = _in_worker_init(opening, project)
            if started is not None and not started[0].alone and (core or started[1]):
                message = _for_workers(started[0], core=core, size=size or 0)
                loaders = [loader_fact(one.loader, methods=one.methods) for one in started[0].busy]
                facts: tuple[Fact, ...] = (opening_fact(opening, size, in_core=core), *dict.fromkeys(loaders))
                confidence = confidence_of(0 if started[0].helped is not None else 1)
                yield None, Told(module.place(opening.call), message, confidence=confidence, related=tuple(started[0].places()), facts=facts)
                continue
            cls = _read_for_samples(opening, project) if core else None
            if cls is not None:
                message = Message(_CORE, f"it does so for each sample of `{cls.scope.name}`", _PLAIN)
                facts = (opening_fact(opening, size, in_core=core), class_fact(cls))
                yield None, Told(module.place(opening.call), message, facts=facts)
            continue
        if not core and (handle.readers.alone or not handle.objects):
            continue
        message = _whole(handle) if core or size is None else _cache(handle, size)
        place = module.place(opening.call)
        confidence = confidence_of(handle.doubt + (0 if handle.readers.helped is not None else 1))
        key = (opening.scope, handle.owner) if core else None
        weighs = _ONCE if handle.readers.alone else None
        facts = handle_facts(handle, size, in_core=core)
        yield key, Told(place, message, confidence=confidence, related=related_places(handle, place), facts=facts, weighs=weighs)


def _said_small(opening: Opening, project: Project) -> bool:
    """Whether the comment behind it says that what the file holds is too small to speak of."""
    size = commented(opening.module, opening.call)
    return size is not None and size.exact is not None and size.exact < project.settings.small_bytes


def _whole(handle: Handle) -> Message:
    who = f"`{handle.owner.scope.name}.{handle.attribute}`"
    pickled = handle.readers.pickled
    if handle.readers.alone:
        how = f"{who} keeps all of it for as long as the dataset is there"
    elif not handle.at_first:
        how = f"each of {handle.readers.workers} opens it, and {who} keeps it"
    elif handle.spared or not pickled:
        how = f"{who} keeps it in every process that opens the file"
    else:
        under = pickled if handle.readers.certain else "spawn or forkserver"
        how = f"{who} keeps it; it cannot be pickled, so workers fail to start under {under}"
    return Message(_CORE, how, _PLAIN)


def _cache(handle: Handle, size: int) -> Message:
    reading = handle.readers.helped
    count = reading.helped.const if reading is not None and reading.helped is not None else None
    total = f", {readable(size * count)} in all" if isinstance(count, int) and count > 1 else ""
    return _cached(size, f"`{handle.owner.scope.name}` keeps one in each of {handle.readers.workers}{total}")


def _for_workers(readers: Readers, *, core: bool, size: int) -> Message:
    who = f"each of {readers.workers}"
    return Message(_CORE, f"{who} opens it", _PLAIN) if core else _cached(size, f"{who} keeps one")


def _cached(size: int, how: str) -> Message:
    return Message(
        f"`rdcc_nbytes` allows a chunk cache of {readable(size)} per open object", how, "lower `rdcc_nbytes`, or keep the file open without its datasets"
    )


def _in_worker_init(opening: Opening, project: Project) -> tuple[Readers, bool] | None:
    """The loader whose ``worker_init_fn`` opens the file and gives it to an object, and whether it gives an object of the file."""
    given = readers_of(project).given(opening.module, opening.scope) if opening.scope.is_function else None
    if given is None or given[0] != "worker_init_fn":
        return None
    handles = handles_of(project)
    frame = handles.evaluator.calls.plain_frame(opening.module, opening.scope)
    for effects in opening.scope.effects.values():
        for effect in effects:
            if effect.kind == "assign" and effect.path and effect.value is not None:
                for origin in handles.origins(handles.evaluator.values(effect.value, frame)):
                    if origin.call is opening.call:
                        return given[1], origin.part
    return None


def _read_for_samples(opening: Opening, project: Project) -> ClassRef | None:
    """The dataset whose samples the opening is read for, not only when the object is made."""
    scope = opening.scope
    if scope.parent is None or not scope.parent.is_class or not names.is_method(scope) or scope.name == "__init__":
        return None
    cls = ClassRef(opening.module, scope.parent)
    readers = readers_of(project)
    if not readers.is_dataset(cls) or readers.of(cls).alone:
        return None
    if scope in {frame.scope for frame in datasets_of(project).building_frames(Instance(cls, None))}:
        return None
    called = {names.last_name(call.func) for one in scope.parent.children if one.name in {"__getitem__", "__iter__"} for call in one.calls}
    return cls if scope.name in {"__getitem__", "__iter__"} or scope.name in called else None
