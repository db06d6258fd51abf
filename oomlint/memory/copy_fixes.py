"""Fixes for what workers copy: each changes what the dataset holds, so that it can be shared, or takes the workers away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.content import Kind
from oomlint.memory.lazy_opening import lazily_opened
from oomlint.memory.rewrites import wrap
from oomlint.syntax.edits import is_cheap_path, replace

if TYPE_CHECKING:
    from oomlint.memory.copies import Case

_PACK = Fix(Safety.DISPLAY, "pack the records into one buffer with offsets: see the page of this rule")
_NEEDS_WORKERS = ("persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context")


def _value(case: Case) -> cst.BaseExpression | None:
    """The expression that is put on the dataset, where it is the whole container and not an empty one that is filled later."""
    effect = case.holding.effect
    if effect is None or effect.kind != "assign" or effect.index or not isinstance(effect.value, cst.Call | cst.ListComp):
        return None
    return effect.value


def as_array(case: Case) -> Fix | None:
    """OOM110: a list proven to hold numbers or strings becomes one array."""
    content = case.holding.content
    if content.kind is Kind.PATHS:
        return None
    value = _value(case)
    if value is None or not (content.strings or content.numbers) or not content.words.startswith("a list"):
        return _PACK
    # With many workers over what is then one array in memory, the next thing to say would be OOM114.
    few = isinstance(case.workers.const, int) and case.workers.const < case.loader.module.project.settings.workers_over_memory
    if not few and not case.dataset.opens_files:
        return _PACK
    function = "asarray" if content.numbers else "array"
    return wrap(case.holding.module, value, "numpy", function, "one array instead of a list: shared by the workers") or _PACK


def mapped_or_tensor(case: Case) -> Fix | None:
    """OOM112: a memory map is opened in each process; an array becomes a tensor, which goes to shared memory once."""
    if case.holding.content.kind is Kind.MEMMAP:
        copied = [h for h in case.dataset.every() if h.content.kind in {Kind.ARRAY, Kind.ARRAYS}]
        return lazily_opened(case.holding, case.holding.module) if not copied else None  # with a `__getstate__`, nobody would see what is still copied
    value = _value(case)
    if value is None or case.holding.content.kind is not Kind.ARRAY:
        return None
    return wrap(case.holding.module, value, "torch", "from_numpy", "a tensor is moved to shared memory once, an array is copied")


def stacked(case: Case) -> Fix | None:
    """OOM113: the list becomes one tensor, with one file descriptor."""
    value = _value(case)
    if value is None or not isinstance(value, cst.ListComp):
        return None
    return wrap(case.holding.module, value, "torch", "stack", "one tensor has one file descriptor")


def no_workers(case: Case) -> Fix | None:
    """OOM114: the literal that the worker count comes from becomes 0."""
    written = case.loader.explicit("num_workers")
    last = case.workers.story[-1] if case.workers.story else None
    if written is not None and not is_cheap_path(written.value):
        module, node = case.loader.module, written.value  # a literal, or something worked out on the spot
    elif last is not None and last.module is not None and isinstance(last.node, cst.Integer) and last.node.evaluated_value == case.workers.const:
        module, node = last.module, last.node
    else:
        return None
    if case.loader.stars or any(case.loader.explicit(name) is not None for name in _NEEDS_WORKERS):
        return Fix(Safety.DISPLAY, "take the workers away, and with them the arguments that need them")
    return Fix(Safety.UNSAFE, "no workers: the samples are in memory already", (replace(module.tree, node, "0"),))
