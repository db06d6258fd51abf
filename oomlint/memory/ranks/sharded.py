"""Datasets that every rank holds whole, although a sampler gives each a part of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.held_weight import as_used, is_light, is_small, owner_of, wholly_held
from oomlint.memory.datasets.sample_uses import has_arrays
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.ranks.ranks import SPAWN, ranks_of
from oomlint.memory.shared.content_kinds import PAYLOAD, PayloadKind
from oomlint.memory.shared.qualified_names import library_name, project_function
from oomlint.model import arguments, names
from oomlint.model.values import ExternalCall, Instance
from oomlint.syntax.nodes import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.loaders.loader_calls import Loader, LoaderUse
    from oomlint.memory.ranks.ranks import Ranks
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_SAMPLERS: Final = ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler")


class Sharded(Struct, frozen=True, eq=False):
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


def _of_use(loader: Loader, use: LoaderUse, project: Project) -> Iterator[Sharded]:
    loaders, datasets = loaders_of(project), datasets_of(project)
    sampler = _sampler(loader, use, project)
    if sampler is None:
        return
    for dataset in datasets.of(loaders, loader, use.frame):
        if dataset.alternative is not None and dataset.alternative.reach:
            continue
        held = [used for used in (as_used(h, dataset, loader) for h in dataset.every()) if not is_small(used.content, project.settings)]
        heavy = [h for h in wholly_held(dataset, held) if _is_heavy(h, dataset, loader) and not _is_its_own(h, dataset, loader)]
        if dataset.unknown:  # a container may be a table of what is read elsewhere
            heavy = [h for h in heavy if h.content.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}]
        if heavy:
            holding = min(heavy, key=lambda h: h.content.doubt)
            yield Sharded(loader, dataset, holding, sampler, ranks_of(project).at(loader.module, loader.scope))


def _sampler(loader: Loader, use: LoaderUse, project: Project) -> tuple[Module, cst.CSTNode] | None:
    """Where the sampler is made that deals out the indices among the ranks."""
    evaluator = loaders_of(project).evaluator
    for alt in loaders_of(project).argument(loader, "sampler", use.frame):
        value = alt.value
        if isinstance(value, ExternalCall) and names.canonical(value.name) in _SAMPLERS:
            return (value.frame.module, value.call) if _deals_out(value, evaluator) else None
        if isinstance(value, Instance) and value.call is not None and value.at is not None and evaluator.derives(value.cls, *_SAMPLERS):
            return value.at.module, value.call
    return None


def _deals_out(sampler: ExternalCall, evaluator: Evaluator) -> bool:
    """Whether the indices go to several ranks: not where the sampler is told that there is one."""
    given = arguments.argument_for(sampler.call, "num_replicas", place=1)
    return given is None or any(a.const != 1 for a in evaluator.values(given, sampler.frame))


def _is_its_own(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether each rank holds something else, for the rank goes into what is read, or all share it, for `torch.multiprocessing` moves what it sends."""
    project, owner, content = loader.module.project, owner_of(dataset, holding), holding.content
    ranks, tensors = ranks_of(project), content.kind in {PayloadKind.TENSOR, PayloadKind.TENSORS}
    made = [(content.module, content.node)]
    if owner.instance is not None and owner.instance.at is not None:
        made.append((owner.instance.at.module, owner.instance.call))
    for module, node in made:
        if module is None or not isinstance(node, cst.Call):
            continue
        scope = module.walk.scope_at(node)
        given = [arg.value for arg in node.args if arg.keyword is None or arg.keyword.value not in {"map_location", "transform"}]
        if any(ranks.names_rank(module, scope, value) and not ranks.is_rank(module, scope, value) for value in given):
            return True  # the rank alone may be the device
        if tensors and any(_is_sent(project, module, scope, value) for value in given):
            return True
    return False


def _is_sent(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether `torch.multiprocessing.spawn` hands it to the function that it starts: tensors are moved into memory that all processes share."""
    path = path_of(node)
    if path is None or path[0] not in names.takes(scope):
        return False
    return any(
        names.last_name(call.func) == "spawn"
        and bool(call.args)
        and library_name(project, call.func, module, inner) == SPAWN
        and (function := project_function(project, call.args[0].value, module, inner)) is not None
        and function.scope is scope
        for call, inner in module.walk.calls
    )


def _is_heavy(holding: Holding, dataset: Dataset, loader: Loader) -> bool:
    """Whether it is the data themselves, not a record of each sample."""
    owner = owner_of(dataset, holding)
    if is_light(holding, owner, loader) or is_small(holding.content, loader.module.project.settings):
        return False
    if holding.content.kind in PAYLOAD | {PayloadKind.BLOB}:
        return True
    return holding.content.kind is PayloadKind.OBJECTS and has_arrays(owner, holding.name, datasets_of(loader.module.project).evaluator)
