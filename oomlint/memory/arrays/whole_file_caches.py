"""Files that a dataset reads whole when the first sample asks for them, and keeps: in each worker process again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.arrays.first_asked import filled_when_asked, set_by, ways_to_ask
from oomlint.memory.arrays.full_reads import whole_reads_of
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.load_messages import proven_small
from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.arrays.small_files import of_small_file
from oomlint.memory.arrays.stored_arrays import ArrayPlace
from oomlint.memory.buffers.cached_payload import Heavy
from oomlint.memory.buffers.caches import SampleCache
from oomlint.memory.datasets.sample_callers import SampleReader, readers, with_loaders
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.attribute_names import small_key, small_name
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.known_reads import WHOLE
from oomlint.model import names
from oomlint.model.lifetime import is_about, says_first
from oomlint.model.reach import path_conditions
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept_state import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


def whole_caches(module: Module, project: Project) -> Iterator[SampleCache]:
    """Whole reads of the module that an attribute of a dataset keeps from the first sample on."""
    seen: set[tuple[Scope, str]] = set()
    for node, words, index in _whole(module, project):
        if proven_small(module, node):
            continue
        for keeper in kept_of(project).late(module, node, index):
            home = keeper.module.walk.scope_at(keeper.node)
            if (
                keeper.owner is None
                or keeper.hazy
                or keeper.many
                or small_name(keeper.attribute)
                or (home, keeper.attribute) in seen
                or not _first_use(keeper, project)
            ):
                continue
            seen.add((home, keeper.attribute))
            found = readers(project, keeper.module, home)
            if found and not all(one.without_workers for one in found):
                doubt = 0 if any(one.most is not None for one in found) else 1
                heavy = Heavy(f"all of {words}", doubt, read=True)
                yield SampleCache(node, f"`{keeper.attribute}`", heavy, (keeper.module, keeper.node), tuple(found), doubt, module, keeper.attribute, whole=True)


def each_filled(module: Module, project: Project) -> Iterator[SampleCache]:
    """What the objects that a dataset holds read when its samples ask for it, each its own, and keep."""
    for scope in module.walk.scopes:
        if not scope.is_function or not set_by(scope):
            continue
        for read in read_calls_of(project).in_scope(module, scope):
            attribute = filled_when_asked(project, module, scope, read.node) if not (of_small_file(read) or small_name(read.name)) else ""
            keepers = [k for place in read.places for k in kept_of(project).of(module, read.node, place)] if attribute and not small_name(attribute) else []
            keeper = next((k for k in keepers if k.owner is not None and not k.hazy and _asks(k.owner, scope, project)), None)
            if keeper is None or keeper.owner is None:
                continue
            found = with_loaders(project, SampleReader(keeper.owner.module, keeper.owner.scope))
            doubt = 0 if any(one.most is not None for one in found) else 1
            held = (keeper.module, keeper.node)
            heavy = Heavy(f"what `{read.name}` reads", doubt, read=True)
            of = scope.parent.name if scope.parent is not None else ""
            yield SampleCache(read.node, f"`{of}`", heavy, held, tuple(found), doubt, module, attribute, each=True)
            break


def _asks(owner: ClassRef, scope: Scope, project: Project) -> bool:
    """Whether code of a dataset that runs for a sample names a method, or one that leads to it."""
    asked = ways_to_ask(scope)
    for cls in evaluator_of(project).lineage(owner):
        for method in cls.scope.children if isinstance(cls, ClassRef) else ():
            if constructions_of(project).per_item(owner.module, method) and any(
                isinstance(node, cst.Attribute) and node.attr.value in asked for node in method.nodes()
            ):
                return True
    return False


def _whole(module: Module, project: Project) -> Iterator[tuple[cst.BaseExpression, str, int | None]]:
    """What code that runs for samples reads whole, how it is called, and where it stands in a tuple."""
    for scope in module.walk.scopes:
        if not scope.is_function or not constructions_of(project).per_item(module, scope):
            continue
        for one in whole_reads_of(project).in_scope(module, scope):
            if one.what.store is not ArrayPlace.MEMMAP and not small_key(one.what.key):
                yield one.node, one.what.words, None
        for read in read_calls_of(project).in_scope(module, scope):
            if read.kind in WHOLE and not of_small_file(read) and not small_name(read.name):
                for place in read.places:
                    yield read.node, f"what `{read.name}` reads", place


def _first_use(keeper: Keeper, project: Project) -> bool:
    """Whether the attribute is set where it is not there yet, for a sample."""
    module, scope = keeper.module, keeper.module.walk.scope_at(keeper.node)
    this = names.self_name(scope)
    statement = keeper.node
    if this is None or not isinstance(statement, cst.Assign) or not constructions_of(project).per_item(module, scope):
        return False
    if not any(isinstance(target.target, cst.Attribute) for target in statement.targets):
        return False  # one of many, under a key
    path = (this, (("attr", keeper.attribute),))
    tests = (test for test, _ in path_conditions(module.walk, scope, keeper.node) if is_about(test, path))
    return any(says_first(test, path, module) and not _asks_for_key(test) for test in tests)


def _asks_for_key(test: cst.BaseExpression) -> bool:
    """Whether a test asks if what is kept is that of this sample: the next sample replaces it."""
    if not isinstance(test, cst.Comparison) or isinstance(test.left, cst.BaseString):
        return False
    return any(isinstance(part.operator, cst.In | cst.NotIn) for part in test.comparisons)
