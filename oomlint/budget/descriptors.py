"""Open files: what datasets keep open, pipes to workers, and tensors on their way; each process may have as many as `ulimit -n` says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.nouns import Certainty, Moment, Opened
from oomlint.budget.row import FILES, Row, active
from oomlint.budget.sizes import Name, SizeProduct, Sum
from oomlint.budget.values import PREFETCH, TENSORS
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.memory.handles.resource_names import COMPREHENSIONS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.nouns import BudgetDataset, Program
    from oomlint.budget.row import Setup
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

# Counted in /proc/PID/fd with torch 2.13, Python 3.11 and Linux: 1 and 4 workers, 1 and 3 tensors a batch, 2 and 8 batches ahead.
_PROCESS: Final = 6  # of an interpreter that has imported torch
_LOADER: Final = 2
_WORKER: Final = 4  # beside one for each tensor of a batch that waits
_KINDS: Final = frozenset({PayloadKind.HANDLE, PayloadKind.H5, PayloadKind.MEMMAP})  # a mapped file keeps a descriptor, too
_ALWAYS: Final = frozenset(Moment)


def opened(project: Project, dataset: Dataset) -> Iterator[Opened]:
    """What a dataset keeps open: what its constructor opens, and what the first sample does. Objects of one file have one descriptor, however many."""
    seen: set[object] = set()
    for owner, holding in dataset.owned():
        content, one = holding.content, holding.content.element or holding.content
        if one.kind not in _KINDS or content.node is None:
            continue
        files = files_of(project, owner, content)
        if files is None and content.element is not None:
            count: int | Name = content.count or Name(f"len({holding.name})", dataset.words.strip("`"))
        else:
            count = len((files or {content.node}) - seen)
            seen |= files or {content.node}
        if count:
            yield Opened(holding.name, count, holding.module.place(holding.effect.node if holding.effect is not None else content.node))
    for handle in handles_of(project).of(dataset.module):
        if not handle.at_first and dataset.instance is not None and handle.dataset == dataset.instance.cls:
            yield Opened(handle.attribute, 1, handle.opening.module.place(handle.opening.call), lazy=True)


def files_of(project: Project, owner: Dataset, content: Content) -> set[object] | None:
    """What stands for each file that is open for what is kept; None where nobody knows, or where each element has one of its own."""
    if content.element is None:
        file = _file(project, owner, content, None)
        return None if file is None else {file}
    parts = [content.element]
    if isinstance(content.node, cst.List | cst.Tuple | cst.Set | cst.Dict) and content.module is not None:
        frame, contents = frame_of(project, owner, content.module, content.node), datasets_of(project).contents
        parts = [contents.of(one.value, frame) for one in content.node.elements]
    made = content.node if isinstance(content.node, (cst.List, cst.Tuple, cst.Set, cst.Dict, *COMPREHENSIONS)) else None  # not by `append`
    within = content.module.walk.scope_at(made) if content.module is not None and made is not None else None
    found = [_file(project, owner, one, within) for one in parts]
    return None if None in found else set(found)


def _file(project: Project, owner: Dataset, one: Content, within: Scope | None) -> object:
    """What is equal for all that one call opens, and of HDF5, which opens a file once, for all of one path; None where a call opens one or another file."""
    opening = openings_of(project).at(one.module, one.node) if one.module is not None and isinstance(one.node, cst.Call) else None
    if opening is None or opening.path is None:
        return None
    module, scope, path = opening.module, opening.scope, opening.path
    loops = [node for node in module.walk.between(opening.call, scope.node) if isinstance(node, (cst.For, cst.While, *COMPREHENSIONS))]
    if loops and (opening.kind is not Opens.H5 or names_in(path) & {name for loop in loops for name in _bound_in(loop)}):
        return None
    once = scope is within or scope.name == "__init__" or scope.parent is None or isinstance(path, cst.SimpleString)
    if not once and not is_attribute_of(path, names.self_name(scope)):
        return None  # of a function that each element may be a call of
    text = evaluator_of(project).settings.path_text(path, frame_of(project, owner, module, opening.call))
    if text is not None and opening.kind is Opens.H5:
        return os.path.normpath(text)
    if loops and any(isinstance(node, cst.Call) for node in descend(path)):
        return None  # `files.pop()`
    return opening.call


def _bound_in(loop: cst.CSTNode) -> Iterator[str]:
    """The names, of attributes too, that have another value in each round of a loop."""
    for node in descend(loop):
        target = node.target if isinstance(node, cst.For | cst.CompFor | cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr) else None
        if isinstance(target, cst.Attribute):
            yield target.attr.value
        elif target is not None and not isinstance(target, cst.Subscript):
            yield from names_in(target)


def frame_of(project: Project, owner: Dataset, module: Module, node: cst.CSTNode) -> Frame:
    """The frame in which a dataset is built, where the node stands in its code; else one with nothing known of its callers."""
    scope = module.walk.scope_at(node)
    frames = datasets_of(project).building_frames(owner.instance) if owner.instance is not None else []
    return next((frame for frame in frames if frame.scope is scope), None) or evaluator_of(project).calls.plain_frame(module, scope)


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
