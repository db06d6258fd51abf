"""Options of ``h5py.File`` that decide how much of the file is kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.memory.handles.openings import Opens
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model.values import Absent, Const, is_usual

if TYPE_CHECKING:
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Project
    from oomlint.model.values import Alternative, Frame

DEFAULT_CACHE: Final = 8 << 20  # bytes, of HDF5 2.0 by `get_access_plist().get_chunk_cache()`; earlier versions have 1 MiB
LARGE_CACHE: Final = 64_000_000  # bytes


def _given(opening: Opening, project: Project, name: str, frame: Frame) -> list[Alternative]:
    """What a keyword of the opening call may be, by itself or in what is spread into the call."""
    evaluator = evaluator_of(project)
    found: list[Alternative] = []
    for arg in opening.call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return evaluator.values(arg.value, frame)
        if arg.star == "**":
            found = evaluator.access(arg.value, (("item", name),), frame)
    return found


def in_core(opening: Opening, project: Project) -> bool:
    """Whether the whole file is read into memory when it is opened: always, or where options have their defaults."""
    if opening.kind is not Opens.H5 or not opening.reads_only:
        return False
    return any(alt.const == "core" and is_usual(alt.picks) for alt in _drivers(opening, project))


def _drivers(opening: Opening, project: Project) -> list[Alternative]:
    """What the driver may be, by all who call the code that opens the file."""
    if opening.kind is not Opens.H5:
        return []
    frames = evaluator_of(project).calls.frames(opening.module, opening.scope)
    return [alt for frame in frames for alt in _given(opening, project, "driver", frame)]


def driver_chosen(opening: Opening, project: Project) -> bool:
    """Whether the driver comes from elsewhere and may be the one that reads the whole file: who chooses that has thought of workers."""
    return any(alt.const == "core" for alt in _drivers(opening, project))


def chunk_cache(opening: Opening, project: Project) -> int | None:
    """Bytes of the chunk cache of each object of the file, where they are given and large."""
    given = cache_given(opening, project)
    return given if given is not None and given >= LARGE_CACHE else None


def cache_given(opening: Opening, project: Project) -> int | None:
    """Bytes that a chunk cache of the file may have: those that the call gives, else the default; ``None`` where nobody knows what it gives."""
    if opening.kind is not Opens.H5:
        return None
    frame = evaluator_of(project).calls.plain_frame(opening.module, opening.scope)
    found = _given(opening, project, "rdcc_nbytes", frame)
    known = {alt.const for alt in found if isinstance(alt.const, str | int)}
    if known:
        given = known.pop()
        return given if not known and isinstance(given, int) and given >= 0 else None
    return DEFAULT_CACHE if all(isinstance(alt.value, Absent) or (isinstance(alt.value, Const) and alt.const is None) for alt in found) else None
