"""Datasets that every rank holds whole, although a sampler gives each a part of the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oomlint.memory.content import Kind
from oomlint.memory.copies import as_used, is_light, is_small, owner_of, wholly_held
from oomlint.memory.datasets import datasets_of
from oomlint.memory.loaders import loaders_of
from oomlint.memory.ranks import ranks_of
from oomlint.memory.sample_uses import has_arrays
from oomlint.model import names
from oomlint.model.values import ExternalCall, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.memory.datasets import Dataset, Holding
    from oomlint.memory.loaders import Loader, Use
    from oomlint.memory.ranks import Ranks
    from oomlint.model.project import Module, Project

_SAMPLERS: Final = ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler")
_PAYLOAD: Final = frozenset({Kind.ARRAY, Kind.ARRAYS, Kind.TENSOR, Kind.TENSORS, Kind.BLOB})


@dataclass(frozen=True, slots=True, eq=False)
class Sharded:
    """A loader that reads a part of a dataset which is wholly in memory."""

    loader: Loader
    dataset: Dataset
    holding: Holding
    sampler: tuple[Module, cst.CSTNode]
    ranks: Ranks | None

    @property
    def key(self) -> object:
        """One for each attribute of a class."""
        owner = owner_of(self.dataset, self.holding)
        return (owner.instance.cls.scope if owner.instance is not None else owner.node, self.holding.name)


def sharded(module: Module, project: Project) -> Iterator[Sharded]:
    """The loaders of a module that have such a dataset."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        found = next((one for use in loaders.uses(loader) for one in _of_use(loader, use, project)), None)
        if found is not None:
            yield found


def _of_use(loader: Loader, use: Use, project: Project) -> Iterator[Sharded]:
    loaders, datasets = loaders_of(project), datasets_of(project)
    sampler = _sampler(loader, use, project)
    if sampler is None:
        return
    for dataset in datasets.of(loaders, loader, use.frame):
        if dataset.alternative is not None and dataset.alternative.reach:
            continue
        held = [as_used(h, dataset, loader) for h in dataset.every() if not is_small(h.content, project.settings)]
        heavy = [h for h in wholly_held(dataset, held) if _is_heavy(h, dataset, loader)]
        if dataset.unknown:  # a container may be a table of what is read elsewhere
            heavy = [h for h in heavy if h.content.kind in {Kind.ARRAY, Kind.TENSOR}]
        if heavy:
            holding = min(heavy, key=lambda h: h.content.doubt)
            yield Sharded(loader, dataset, holding, sampler, ranks_of(project).at(loader.module, loader.scope))


def _sampler(loader: Loader, use: Use, project: Project) -> tuple[Module, cst.CSTNode] | None:
    """Where the sampler is made that deals out the indices among the ranks."""
    evaluator = loaders_of(project).evaluator
    for alt in loaders_of(project).argument(loader, "sampler", use.frame):
        value = alt.value
        if isinstance(value, ExternalCall) and names.canonical(value.name) in _SAMPLERS:
            return value.frame.module, value.call
        if isinstance(value, Instance) and value.call is not None and value.at is not None and evaluator.derives(value.cls, *_SAMPLERS):
            return value.at.module, value.call
    return None


def _is_heavy(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether it is the data themselves, not a record of each sample."""
    owner = owner_of(dataset, holding)
    if is_light(holding, owner, loader):
        return False
    if holding.content.kind in _PAYLOAD:
        return True
    return holding.content.kind is Kind.OBJECTS and has_arrays(owner, holding.name, datasets_of(loader.module.project).evaluator)
