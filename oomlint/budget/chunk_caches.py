"""Chunk caches: each object of an HDF5 file that a dataset keeps has its own, in each process that reads samples through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import H5PY
from oomlint.budget.descriptors import files_of, frame_of
from oomlint.budget.nouns import ChunkCache
from oomlint.budget.sizes import Name, SizeProduct
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.h5_api import Grip, after_subscript
from oomlint.memory.handles.h5_options import cache_given
from oomlint.memory.handles.open_file_collections import kept_files
from oomlint.memory.handles.openings import Opens
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.budget.containers import HeaderContainers
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Project


def chunk_caches(project: Project, dataset: Dataset, files: HeaderContainers) -> Iterator[ChunkCache]:
    """Those of the objects that a dataset keeps, one for each attribute. A file alone has none: an object that is looked up for a read takes it along."""
    if dataset.instance is None:
        return
    counts = {one.name: one.content.count for one in dataset.every() if one.content.element is not None}
    owner, seen = dataset.words.strip("`"), set[str]()
    for opening, name, several in _kept(project, dataset):
        if opening.name in H5PY and name not in seen:
            seen.add(name)
            each, count = cache_given(opening, project), counts.get(name, 0 if several else 1)
            size = SizeProduct((each if each is not None else Name("rdcc_nbytes", owner),))
            size = size if count == 1 else size.times(count or Name(f"len({name})", owner))
            bound = _bound(project, dataset, files, opening, name, each, one=count == 1)
            if bound is not None and (size.value is None or bound < size.value):
                size = SizeProduct((bound,))
            yield ChunkCache(name, size, opening.module.place(opening.call))


def _bound(project: Project, dataset: Dataset, files: HeaderContainers, opening: Opening, name: str, each: int | None, *, one: bool) -> int | None:
    """Bytes of the chunks that there are of what an attribute keeps; None where no header says so, or where it keeps objects of several files."""
    holding = next((held for held in dataset.holdings if held.name == name and held.content.node is not None), None)
    apart = holding is not None and holding.content.element is not None and len(files_of(project, dataset, holding.content) or ()) != 1
    if opening.path is None or apart or (holding is None and not one):
        return None
    path = files.evaluator.settings.path_text(opening.path, frame_of(project, dataset, opening.module, opening.call))
    key = files.key(holding) if holding is not None and one else None
    file, _ = files.file(("h5",), path, key)
    arrays = [part for part in file.arrays if key is None or f"/{part.key}".endswith("/" + key.strip("/"))] if file is not None else []
    found = [part.chunks if each is None else min(each, part.chunks) for part in arrays if part.chunks is not None]
    return None if not found or len(found) < len(arrays) else max(found) if one else sum(found)


def _kept(project: Project, dataset: Dataset) -> Iterator[tuple[Opening, str, bool]]:
    """Openings with the attributes that keep objects of their files, and whether that is a container which keeps many."""
    cls = dataset.instance.cls if dataset.instance is not None else None
    for many in kept_files(dataset.module, project, frozenset({Opens.H5})):
        if many.objects and many.owner == cls:
            yield many.opening, many.name, True
    for handle in handles_of(project).of(dataset.module):
        if handle.dataset == cls:
            yield from ((handle.opening, name, False) for name in handle.objects if not _is_group(project, handle, name))


def _is_group(project: Project, handle: Handle, attribute: str) -> bool:
    """Whether an object of a file is asked for another one by its name: of what a group leads to, an object is made at each read."""
    evaluator, module = evaluator_of(project), handle.owner.module
    for scope in (one for one in handle.owner.scope.children if names.is_method(one)):
        frame, this = evaluator.calls.plain_frame(module, scope), names.self_name(scope)
        for node in descend(scope.node):
            if not isinstance(node, cst.Subscript) or not is_attribute_of(node.value, this) or node.value.attr.value != attribute:
                continue
            if after_subscript(node, Grip.OBJECT, frame, evaluator) is Grip.OBJECT:
                return True
    return False
