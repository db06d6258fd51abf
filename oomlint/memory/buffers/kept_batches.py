"""Loops over a loader that keep each batch, or the same part of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.memory.buffers.bounds import bounded, stops
from oomlint.memory.buffers.collated import is_whole, parts_given
from oomlint.memory.buffers.growing_loops import growing_loops, is_flushed
from oomlint.memory.buffers.growth import OF_OUTPUTS, buffers_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.memory.shared.seen_axes import of_same
from oomlint.memory.shared.shaped import ShapedArray
from oomlint.model import arguments, names
from oomlint.model.tensor_state import MAP, Device, Storage
from oomlint.model.test_suites import holds_tests
from oomlint.syntax.scopes import LENGTHENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Loop, Record, Store
    from oomlint.model.project import Module, Project


class KeptBatches(Struct, frozen=True):
    """What a loop keeps of each batch."""

    store: Store
    loop: Loop
    like: LoaderLike
    whole: bool

    @property
    def place(self) -> cst.CSTNode:
        """The loop, where it keeps all, or the statement that keeps a part."""
        return self.loop.node if self.whole else self.store.node

    @property
    def on_device(self) -> bool:
        """Whether it is kept in the memory of an accelerator."""
        return any(leaf.device is Device.ACCELERATOR for leaf in self.store.value.leaves())

    @property
    def shared(self) -> bool:
        """Whether it may lie in the shared memory of workers."""
        return not self.like.without_workers and not collates_itself(self.like) and any(leaf.storage is Storage.LOADER for leaf in self.store.value.leaves())

    @property
    def as_numbers(self) -> bool:
        """Whether it is kept as numbers of Python, each an object."""
        stored = self.store.expression
        return isinstance(stored, cst.Call) and names.last_name(stored.func) == "tolist"


def collates_itself(like: LoaderLike) -> bool:
    """Whether a loader is given a function of its own that makes its batches: of arrays, which come from workers through a pipe, or of tensors."""
    given = arguments.named(like.loader.call, "collate_fn") if like.loader is not None else None
    return given is not None and names.dotted(given) != "None"


def kept_batches(module: Module, project: Project) -> Iterator[KeptBatches]:
    """Stores of a module that keep whole batches, or an array of rows and columns for each sample; those that no rule on growth tells."""
    if holds_tests(module):
        return  # what a test keeps lives as long as the test
    growths = buffers_of(project).of(module)
    seen = {store.node for growth in growths for store in growth.stores}
    outputs = {growth.loop.node for growth in growths if growth.code in OF_OUTPUTS}
    for record in runs_of(project).of(module):
        for store in record.stores:
            loop = _loop_of(store, record) if store.module is module and store.kind in LENGTHENS | {"item"} and store.node not in seen else None
            if loop is None or store.expression is None or not isinstance(loop.loader, LoaderLike):
                continue
            whole = is_whole(loop, store.expression)
            if whole and isinstance(loop.node, cst.CompFor):
                continue  # told by what stands there, whatever becomes of it
            if whole or (loop.node not in outputs and _has_maps(project, store, loop)):
                seen.add(store.node)
                yield KeptBatches(store, loop, loop.loader, whole)


def _loop_of(store: Store, record: Record) -> Loop | None:
    """The loop over batches in which each round adds to what is kept to its end."""
    growing = growing_loops(store, record)
    loop = next((one for one in reversed(growing) if isinstance(one.loader, LoaderLike)), None)
    if loop is None or loop.module is not store.module or bounded(store, loop) or stops(loop) or is_flushed(store, record, growing):
        return None
    sometimes = any(loop.node in store.module.walk.ancestors(test) for test in store.tests)
    return None if sometimes else loop


def _has_maps(project: Project, store: Store, loop: Loop) -> bool:
    """Whether what is kept has an array of two axes or more for each sample."""
    expression = store.expression
    if expression is None:
        return False
    given = [leaf for leaf in store.value.leaves() if leaf.storage is Storage.LOADER]
    if given and (any(leaf.dims >= MAP for leaf in given) or of_same(store.module, store.scope, expression).least >= MAP):
        return True
    inside = store.loops[store.loops.index(loop) :]
    return any(ways and all(map(_is_map, ways)) for ways in parts_given(project, inside, expression))


def _is_map(part: object) -> bool:
    return isinstance(part, ShapedArray) and part.shape is not None and len(part.shape) >= MAP
