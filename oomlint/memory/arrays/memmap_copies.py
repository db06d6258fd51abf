"""Memory maps that are copied into memory as a whole, and the datasets that keep the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays.full_reads import ArrayPlace, whole_reads_of
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.reads_per_sample import ItemReads
from oomlint.memory.arrays.said_small import said_small
from oomlint.memory.arrays.small_files import small_file
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import known_size
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.full_reads import WholeRead
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project

_SMALL: Final = 16 << 20  # bytes: nothing below is worth a word


def map_copies(module: Module, project: Project) -> Iterator[tuple[WholeRead, Keeper]]:
    """Those that are written in a module."""
    reads, kept, built = whole_reads_of(project), kept_of(project), constructions_of(project)
    for scope in module.walk.scopes:
        if scope.is_class or built.per_item(module, scope):
            continue
        for read in reads.in_scope(module, scope):
            if read.what.store is not ArrayPlace.MEMMAP or _is_made_here(read) or _is_small(read, project):
                continue
            keepers = [k for k in kept.of(module, read.node) if not said_small(project, k)]
            if keepers and not any(one.read.node is read.node for one in project.shared(ItemReads).of(module)):
                yield read, keepers[0]


def _is_made_here(read: WholeRead) -> bool:
    """Whether the map is a new file that is being written."""
    return any(isinstance(arg.value, cst.SimpleString) and arg.value.evaluated_value == "w+" for arg in read.what.call.args)


def _is_small(read: WholeRead, project: Project) -> bool:
    """Whether the file is small, by its name or by the shape that the call gives."""
    call = read.what.call
    if small_file(read.what.module, read.what.path):
        return True
    given = arguments.named(call, "shape")
    if given is None:
        return False
    shape = call.with_changes(args=[cst.Arg(given), *filter(None, [arguments.named_arg(call, "dtype")])])
    evaluator = evaluator_of(project)
    size = known_size("numpy.empty", shape, evaluator, evaluator.calls.plain_frame(read.what.module, read.what.opened_in))
    return size.exact is not None and size.exact < _SMALL
