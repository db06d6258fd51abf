"""Who runs a function for every sample, and in how many worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import READS_ONE
from oomlint.memory.datasets.dataset_classes import Dataset, datasets_of
from oomlint.memory.loaders.loader_calls import Loader, evaluator_of, is_zero, loaders_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Alternative, ClassRef, Const, FunctionRef, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEEPEST = 4
_MOST_SITES = 8


class SampleReader(Struct, frozen=True):
    """A dataset whose samples run the function, with the loader that reads it where one is known."""

    module: Module
    scope: Scope  # the class
    loader: Loader | None = None
    workers: tuple[Alternative, ...] = ()

    @property
    def without_workers(self) -> bool:
        """Whether its loader is known to have none."""
        return bool(self.workers) and all(is_zero(alt.value) for alt in self.workers)

    @property
    def most(self) -> Alternative | None:
        """The highest worker count that is known."""
        known = [alt for alt in self.workers if isinstance(alt.value, Const) and isinstance(alt.value.value, int) and alt.value.value > 0]
        return max(known, key=lambda alt: (int(str(int(alt.const))), -alt.doubt) if isinstance(alt.const, int) else (0, 0), default=None)


def readers(project: Project, module: Module, scope: Scope) -> list[SampleReader]:
    """Datasets that run the function for each sample; empty where it is not known to be so."""
    key = ("per item", scope)
    known = project.memo.get(key)
    if known is None:
        found = {one.scope: one for one in _sets(project, module, scope, 0, set())}
        known = project.memo[key] = [reader for one in found.values() for reader in with_loaders(project, one)]
    return known  # type: ignore[return-value]


def _sets(project: Project, module: Module, scope: Scope, depth: int, seen: set[Scope]) -> Iterator[SampleReader]:
    """Classes of datasets from whose ``__getitem__`` calls lead to the function."""
    if scope in seen or depth > _DEEPEST:
        return
    seen.add(scope)
    owner = scope.parent
    evaluator = evaluator_of(project)
    if owner is not None and owner.is_class and (scope.name in READS_ONE or constructions_of(project).per_item(module, scope)):
        # A method that the `__getitem__` of a base calls on the object is found in the class alone.
        if datasets_of(project).is_dataset(ClassRef(module, owner)):
            yield SampleReader(module, owner)
        if scope.name in READS_ONE:
            return
    if owner is not None and owner.is_class and scope.name == "__iter__":
        if evaluator.derives(ClassRef(module, owner), "torch.utils.data.IterableDataset"):
            yield SampleReader(module, owner)
        return
    if owner is not None and owner.is_function:
        yield from _sets(project, module, owner, depth, seen)
        return
    yield from _collating(project, module).get(scope, ())
    for site in evaluator.calls.sites(module, scope, most=_MOST_SITES):
        if site.scope.is_function and site.scope.name != "__init__":
            yield from _sets(project, site.module, site.scope, depth + 1, seen)


def _collating(project: Project, module: Module) -> dict[Scope, list[SampleReader]]:
    """Functions that loaders put their batches together with, which workers run, and the datasets of these loaders."""
    key = ("collating", module.path)
    known = project.memo.get(key)
    if known is not None:
        return known  # type: ignore[return-value]
    loaders, datasets = loaders_of(project), datasets_of(project)
    found: dict[Scope, list[SampleReader]] = {}
    project.memo[key] = found
    for caller in project.callers("DataLoader", module.path):
        for loader in loaders.of(caller) if not holds_tests(caller) else ():
            given = loader.explicit("collate_fn")
            for use in loaders.uses(loader) if given is not None else ():
                functions = [alt.value for alt in loaders.argument(loader, "collate_fn", use.frame) if isinstance(alt.value, FunctionRef)]
                made = [one.instance.cls for one in datasets.of(loaders, loader, use.frame) if isinstance(one.instance, Instance)] if functions else []
                for function in functions:
                    found.setdefault(function.scope, []).extend(SampleReader(cls.module, cls.scope) for cls in made)
    return found


def with_loaders(project: Project, reader: SampleReader) -> list[SampleReader]:
    """The same with the loaders that read objects of the class."""
    loaders, datasets = loaders_of(project), datasets_of(project)
    found: list[SampleReader] = []
    for module in project.callers("DataLoader", reader.module.path):
        if holds_tests(module):
            continue  # what a test reads in its own process says nothing of a training
        for loader in loaders.of(module):
            workers: list[Alternative] = []
            for use in loaders.uses(loader):
                if any(_reads(one, reader.scope, project) for one in datasets.of(loaders, loader, use.frame)):
                    workers.extend(alt for alt in loaders.workers(loader, use.frame) if alt not in workers)
            if workers:
                found.append(replace(reader, loader=loader, workers=tuple(workers)))
    return found or [reader]


def _reads(dataset: Dataset, cls: Scope, project: Project) -> bool:
    if dataset.instance is not None and isinstance(dataset.instance, Instance):
        line = evaluator_of(project).lineage(dataset.instance.cls)
        if any(isinstance(base, ClassRef) and base.scope is cls for base in line):
            return True
    return any(_reads(one, cls, project) for one in dataset.inner)
