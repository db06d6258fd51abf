"""Loops that carry a state from round to round and keep each: the images of a diffusion at all its steps, the frames of a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.buffers.bounds import bounded, stops
from oomlint.memory.buffers.growing_loops import is_flushed, is_renewed
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.training_loops import rounds
from oomlint.model.rounds import is_chained
from oomlint.model.tensor_state import MAP, Device, Graph, Mode, SampleSize
from oomlint.scout.telling_names import ADDS

if TYPE_CHECKING:
    from oomlint.model.events import Loop, Record, Store
    from oomlint.model.project import Project

_MOST_FRAMES: Final = 4
MANY: Final = 64  # rounds of which somebody would rather keep the last, or some


def keeps_each_state(store: Store, record: Record) -> Loop | None:
    """The loop in which a statement keeps the state of each round on the device; it records no graph, and a module makes each state of the one before."""
    loop = store.loops[-1]
    if not isinstance(loop.node, cst.For) or loop.batches or store.kind not in ADDS or store.mode is not Mode.OFF:
        return None
    large = [
        leaf for leaf in store.value.leaves() if leaf.tensorlike and leaf.device is Device.ACCELERATOR and leaf.size is SampleSize.DENSE and leaf.dims >= MAP
    ]
    if not large or store.value.carries is not Graph.NO or is_renewed(store, record, loop):
        return None
    chained = any(loop in event.loops and is_chained(loop, event) for event in record.forwards)
    return None if not chained or bounded(store, loop) or stops(loop) or is_flushed(store, record, [loop]) else loop


def states_kept(project: Project, loop: Loop) -> int | None:
    """How often such a loop goes round at most, by all who call its function; ``None`` where nobody knows."""
    if not isinstance(loop.node, cst.For):
        return None
    frames = evaluator_of(project).calls.frames(loop.module, loop.scope, most=_MOST_FRAMES)
    counts = [rounds(project, loop.node, loop.module, loop.scope, frame) for frame in frames]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None
