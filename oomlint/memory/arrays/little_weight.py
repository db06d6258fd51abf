"""Whether what is read weighs little, however large it may be: how many files there are, what uses it, what lies beside it. A finding on it is a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays.let_go import LetGo
from oomlint.memory.arrays.said_small import axes_of, owner_of
from oomlint.memory.arrays.told_columns import columns_of
from oomlint.memory.datasets.beside_files import BesideFiles
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.datasets.sample_uses import one_a_sample
from oomlint.memory.datasets.torchvision_data import torchvision_data
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.known_reads import ALL_AT_ONCE, PICTURES, WHOLE, KnownRead
from oomlint.memory.shared.plain_data import holds_plain_data
from oomlint.memory.shared.written_files import written_files_of
from oomlint.model.loops import FEW
from oomlint.model.tensor_state import ROWS
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept_state import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.project import Module

_DEEPEST: Final = 3  # calls around a read
_COLUMNS: Final = 64  # a million rows of so many numbers take 256 MiB
_PICTURES: Final = 100  # of some 150 KiB each as a network takes them: small in all


def weighs_little(load: Load) -> bool:
    """Whether it is little beside what the project reads or holds in any case."""
    answers = (_lies_beside, _serves_no_sample, _is_of_library, _picks_samples, _is_of_few_files, _is_written_plain, _has_few_columns)
    return any(answer(load) for answer in answers)


def _has_few_columns(load: Load) -> bool:
    """Whether one table is read whose columns are told where it is read, and few: a series of what some sensors measure."""
    count = None if load.many else columns_of(load.module, load.scope, load.node)
    return count is not None and count <= _COLUMNS


def _is_written_plain(load: Load) -> bool:
    """Whether the project writes the objects of the file itself, and all of them are words and numbers: names, places, columns of tables of text."""
    read = load.read
    if read is None or load.many or read.kind not in {KnownRead.OBJECT, KnownRead.TORCH}:
        return False
    written = written_files_of(load.module.project).of(load.module, load.scope, read.path)
    return bool(written) and all(holds_plain_data(load.module.project, one.node, one.frame) for one in written)


def _lies_beside(load: Load) -> bool:
    """Whether the samples are read from files, and what is kept is used beside them: not pictures, nor what a sample is cut out of as well."""
    project, keeper = load.module.project, load.keeper
    if load.read is not None and load.read.kind is KnownRead.SAMPLE:
        return False
    seen, owner, files = axes_of(project, keeper), owner_of(keeper), project.shared(BesideFiles)
    if seen.windows or seen.least > ROWS or (load.many and load.read is not None and _is_one_a_sample(keeper) and not _is_of_several(load)):
        return False  # each sample has a file of its own: that may be a map of its picture
    if keeper.attribute:
        return owner is not None and files.lies_beside(owner, keeper.attribute)
    return keeper.live and not keeper.saver and files.round_reads(keeper.module, keeper.node)


def _serves_no_sample(load: Load) -> bool:
    """Whether no sample is read from any attribute that keeps it."""
    let_go = load.module.project.shared(LetGo)
    return all(let_go.serves_no_sample(keeper) and not let_go.is_for_building(keeper) for keeper in load.keepers)


def _is_one_a_sample(keeper: Keeper) -> bool:
    dataset = dataset_of(keeper)
    return dataset is not None and one_a_sample(dataset, keeper.attribute, evaluator_of(keeper.module.project))


def _is_of_several(load: Load) -> bool:
    """Whether the rounds of a loop give to several samples what was read once before that loop: a file says something of a group of them."""
    module, put = load.keeper.put or (load.module, None)
    if put is None or module is not load.module:
        return False
    inner = next((here for here in module.walk.ancestors(put) if isinstance(here, cst.For | cst.While)), None)
    return inner is not None and inner not in module.walk.ancestors(load.node)


def dataset_of(keeper: Keeper) -> Dataset | None:
    """The dataset that keeps it, where one does."""
    return datasets_of(keeper.module.project).of_value(Instance(keeper.owner, None)) if keeper.owner is not None else None


def _is_of_library(load: Load) -> bool:
    """Whether the class derives from a dataset of torchvision that holds all of its pictures itself: they are known to be small and few."""
    owner = owner_of(load.keeper)
    bases = evaluator_of(load.module.project).lineage(owner) if owner is not None else ()
    known = [torchvision_data(base.name) for base in bases if isinstance(base, External)]
    return any(one is not None and one.kept is not None for one in known)


def _picks_samples(load: Load) -> bool:
    """Whether it is what a sampler goes through."""
    keeper = load.keeper
    home = keeper.module.walk.scope_at(keeper.node).parent
    return home is not None and home.is_class and readers_of(load.module.project).draws_for(ClassRef(keeper.module, home))


def _is_of_few_files(load: Load) -> bool:
    """Whether it is known how many files are read by the calls in sight, and that they are a handful: recordings of three subjects, a hundred pictures.

    Not of files that may each hold a whole dataset, and of which a part could be read.
    """
    if not load.many or load.read is None or (load.read.kind in WHOLE and load.read.origin not in ALL_AT_ONCE):
        return False
    heads = list(_heads_around(load.module, load.node, 0))
    most = _PICTURES if load.read.origin in PICTURES else FEW
    return bool(heads) and all(_is_handful(*head, most) for head in heads)


def _heads_around(module: Module, node: cst.CSTNode, depth: int) -> Iterator[tuple[Module, cst.BaseExpression | None]]:
    """What the loops around an expression, and around the calls that lead to it, go through; ``None`` where a condition ends their rounds."""
    for site in evaluator_of(module.project).calls.sites(module, module.walk.scope_at(node)) if depth < _DEEPEST else ():
        if not holds_tests(site.module):
            yield from _heads_around(site.module, site.call, depth + 1)
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.For | cst.While):
            yield module, here.iter if isinstance(here, cst.For) else None
        elif isinstance(here, cst.BaseComp):
            yield module, here.for_in.iter if here.for_in.inner_for_in is None else None
        elif isinstance(here, cst.FunctionDef):
            return


def _is_handful(module: Module, iterable: cst.BaseExpression | None, most: int) -> bool:
    count = constructions_of(module.project).count_by_callers(module, iterable) if iterable is not None else None
    return count is not None and count <= most
