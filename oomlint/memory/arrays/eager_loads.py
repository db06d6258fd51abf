"""Which loads the rules speak of, and at which place: one finding for what one function reads for one class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.frameworks import IN_MEMORY_DATASETS
from oomlint.memory.arrays.joins import joined
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.little_weight import weighs_little
from oomlint.memory.arrays.load_messages import proven_small
from oomlint.memory.arrays.loads import Load, arrays_of
from oomlint.memory.arrays.padded import padded
from oomlint.memory.arrays.torch_load import loaded
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import commented
from oomlint.memory.shared.attribute_names import small_key
from oomlint.memory.shared.known_reads import DECODERS, KnownRead
from oomlint.memory.shared.written_files import written_files_of
from oomlint.model import names
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project


def eager_loads(module: Module, project: Project) -> Iterator[Load]:
    """Loads of the module that bring a whole dataset into memory; not those of HDF5 files, nor files of tensors.

    What one function reads for one class comes as one load, with the other reads beside it.
    """
    groups: dict[object, list[Load]] = {}
    for load in arrays_of(project).files(module):
        if load.read is None or (load.read.kind is KnownRead.TORCH and not load.many) or joined(load) or proven_small(module, load.node):
            continue
        groups.setdefault(told_with(load), []).append(load)
    for group in groups.values():
        first, *others = _gravest_first(group)
        name = first.read.name if first.read is not None else ""
        words = f"`{name}` reads all of its file" if name else "Every line of the file becomes Python objects"
        if first.many:
            each = "reads every record" if first.read is not None and first.read.origin in DECODERS else "reads every file"
            words = f"`{name}` {each}"
        entries = [node for load in (first, *others) for node in _entries(load, project)]
        yield replace(
            first, words=words, beside=(*(load.node for load in others), *entries), read_beside=tuple(load.read for load in others if load.read is not None)
        )
    yield from padded(module, project)


def told_with(load: Load) -> tuple[object, ...]:
    """Loads for which this is equal are one finding: read by one function for one dataset, for another object, into one list, or for one call."""
    owner = load.keeper.owner
    if owner is not None:
        return load.scope, owner.scope
    return load.scope, None if load.of_object else load.keeper.words if load.pooled else load.keeper.node


def _gravest_first(group: list[Load]) -> list[Load]:
    """Reads of many files before those of one, and what weighs little behind all others."""
    return sorted(group, key=lambda load: (weighs_little(load), not load.many)) if len(group) > 1 else group


def eager_h5_loads(module: Module, project: Project) -> Iterator[Load]:
    """Whole reads of HDF5 datasets: what one function reads for one class comes as one load, with the other reads beside it.

    One whose bytes a comment tells is told by itself. Columns that a call puts together to one array come last.
    """
    groups: dict[tuple[object, ...], list[Load]] = {}
    for load in arrays_of(project).h5(module):
        if not (load.joined or proven_small(module, load.node)):
            sized = commented(load.module, load.node) is not None
            groups.setdefault((load.node,) if sized else told_with(load), []).append(load)
    for group in groups.values():
        first, *others = sorted(_gravest_first(group), key=_is_column)
        yield replace(first, beside=tuple(other.node for other in others))


def _is_column(load: Load) -> bool:
    """Whether it is one of several that a call puts together to one array."""
    parents = load.module.walk.parents
    listed = parents.get(element) if isinstance(element := parents.get(load.node), cst.Element) else None
    return listed is not None and isinstance(parents.get(listed), cst.Arg)


def _entries(load: Load, project: Project) -> Iterator[cst.Subscript]:
    """Where the entries of an archive that go to those who keep it are read: ``arrays["x"]``, which is when `.npz` reads an array."""
    kept, module = kept_of(project), load.module
    holder = module.walk.parents.get(load.node)
    if load.read is None or load.read.kind is not KnownRead.ARCHIVE or not isinstance(holder, cst.Assign) or not isinstance(holder.targets[0].target, cst.Name):
        return
    name = holder.targets[0].target.value
    for node in load.scope.nodes(inner=False):
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value == name:
            key = node.slice[0].slice.value if isinstance(node.slice[0].slice, cst.Index) else None
            if isinstance(key, cst.SimpleString) and not small_key(str(key.evaluated_value)) and kept.of(module, node):
                yield node


def torch_loads(module: Module, project: Project) -> Iterator[Load]:
    """Single files of tensors that the module reads for a dataset."""
    for load in arrays_of(project).files(module):
        if load.read is not None and load.read.kind is KnownRead.TORCH and not load.many and not (_restores(load, project) or proven_small(module, load.node)):
            yield load


def chosen_by_base(load: Load, project: Project) -> bool:
    """Whether the class that reads it derives from the one of torch_geometric whose data is in memory by definition."""
    cls = load.scope.parent
    return cls is not None and cls.is_class and evaluator_of(project).derives(ClassRef(load.module, cls), *IN_MEMORY_DATASETS)


def _restores(load: Load, project: Project) -> bool:
    """Whether the file is a checkpoint: a part of it goes to ``load_state_dict``, and what else it has is the state of a training.

    The parts are taken where it is read, or where a function that gives all of it is called.
    """
    if not isinstance(load.node, cst.Call):
        return False
    if loaded(load.module, load.scope, load.node).restores or _is_state(load, project):
        return True
    if None not in kept_of(project).returned(load.module, load.node):
        return False
    return any(loaded(site.module, site.scope, site.call).restores for site in evaluator_of(project).calls.sites(load.module, load.scope))


def _is_state(load: Load, project: Project) -> bool:
    """Whether the project writes the file itself, and puts nothing there but the state of modules."""
    path = load.read.path if load.read is not None else None
    written = written_files_of(project).of(load.module, load.scope, path)
    return bool(written) and all(isinstance(one.node, cst.Call) and names.last_name(one.node.func) == "state_dict" for one in written)
