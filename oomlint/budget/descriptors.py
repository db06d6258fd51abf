"""Open files: what datasets keep open, pipes to workers, and tensors on their way; each process may have as many as `ulimit -n` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.nouns import Certainty, Moment, Opened
from oomlint.budget.row import FILES, Row, active
from oomlint.budget.sizes import Name, SizeProduct, Sum
from oomlint.budget.values import PREFETCH, TENSORS
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.shared.content_kinds import PayloadKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.nouns import BudgetDataset, Program
    from oomlint.budget.row import Setup
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.project import Module, Project

# Counted in /proc/PID/fd with torch 2.13, Python 3.11 and Linux: 1 and 4 workers, 1 and 3 tensors a batch, 2 and 8 batches ahead.
_PROCESS: Final = 6  # of an interpreter that has imported torch
_LOADER: Final = 2
_WORKER: Final = 4  # beside one for each tensor of a batch that waits
_KINDS: Final = frozenset({PayloadKind.HANDLE, PayloadKind.H5, PayloadKind.MEMMAP})  # a mapped file keeps a descriptor, too
_ALWAYS: Final = frozenset(Moment)


def opened(project: Project, dataset: Dataset) -> Iterator[Opened]:
    """What a dataset keeps open: what its constructor opens, and what the first sample does."""
    seen: set[object] = set()
    for holding in dataset.every():
        content, one = holding.content, holding.content.element or holding.content
        if one.kind in _KINDS and content.node is not None and (content.element is not None or content.node not in seen):
            seen.add(content.node)  # objects of an open file are no more files
            count = 1 if content.element is None else content.count or Name(f"len({holding.name})", dataset.words.strip("`"))
            yield Opened(holding.name, count, holding.module.place(holding.effect.node if holding.effect is not None else content.node))
    for handle in handles_of(project).of(dataset.module):
        if not handle.at_first and dataset.instance is not None and handle.dataset == dataset.instance.cls:
            yield Opened(handle.attribute, 1, handle.opening.module.place(handle.opening.call), lazy=True)


def by_name(reached: Sequence[Module]) -> bool:
    """Whether tensors go to another process by the name of a file: then none of them keeps one open."""
    calls = (call for module in reached for call, _ in module.calls_of(("set_sharing_strategy",)))
    return any(isinstance(arg.value, cst.SimpleString) and arg.value.evaluated_value == "file_system" for call in calls for arg in call.args[:1])


def rows(program: Program, setup: Setup) -> Iterator[Row]:
    """Descriptors of the main process, and what a worker opens beside those: one that is forked has nearly all of them."""
    yield Row(FILES, "interpreter and torch", SizeProduct((_PROCESS,)), Certainty.ABOUT, None, _ALWAYS)
    for source in program.sources:
        yield from (_kept(one, source, _ALWAYS, -1) for one in source.opened if not one.lazy)
    given = setup.values.setting(TENSORS)
    each = 0 if program.by_name else 1 if given is None else given
    known = Certainty.ABOUT if given is not None or program.by_name else Certainty.AT_LEAST
    for number, loader in enumerate(program.loaders):
        workers, ahead = setup.workers_of(loader), setup.setting(PREFETCH, loader.prefetch)
        alive = active(loader, program)
        yield from (_kept(one, source, alive - {Moment.START}, number) for source in loader.sources for one in source.opened if one.lazy)
        if workers != 0:
            count = (ahead * workers + 1) * each + _LOADER + _WORKER * workers if isinstance(workers, int) and isinstance(ahead, int) else None
            text = f"({_LOADER} + {_WORKER} * {workers} + ({ahead} * {workers} + 1) * {each})"
            size = SizeProduct((Sum(text, count, tuple(one for one in (workers, ahead) if isinstance(one, Name))),))
            what = f"pipes and batches in flight of `{loader.name}`"
            yield Row(FILES, what, size, known, loader.place, alive | {Moment.START}, number)


def _kept(one: Opened, source: BudgetDataset, moments: frozenset[Moment], number: int) -> Row:
    return Row(FILES, f"`{one.name}` of {source.name}", SizeProduct((one.count,)), Certainty.EXACT, one.place, moments, number)
