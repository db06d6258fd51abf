"""Data that goes to the accelerator as a whole: moved before the first step, or in one batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Message
from oomlint.memory.arrays.filled import rows_of_all, rows_of_loaders
from oomlint.memory.arrays.inflation import passed
from oomlint.memory.arrays.kept import Does, kept_of
from oomlint.memory.facts import allocation_fact, keeper_facts, loader_fact
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.shared.array_shapes import Bytes
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_MOST_RELATED: Final = 4


@dataclass(frozen=True, slots=True)
class Split:
    """Where the whole of a dataset goes to the accelerator."""

    node: cst.BaseExpression
    message: Message
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]


def moved(module: Module, project: Project) -> Iterator[Split]:
    """What is read for a dataset and moved before anybody takes a sample: one for a function."""
    groups: dict[Scope, list[tuple[cst.BaseExpression, Keeper]]] = {}
    for node, load, keeper in passed(module, project, Does.MOVES):
        # What each round moves is all of it where the rounds put it into a container.
        if keeper.put is not None or (not load.many and not kept_of(project).repeats(module, node)):
            groups.setdefault(module.walk.scope_at(node), []).append((node, keeper))
    for group in groups.values():
        (node, keeper), *others = sorted(group, key=lambda one: (module.place(one[0]).row, module.place(one[0]).column))
        message = Message(
            "All data moves to the device at once", f"it stays there beside the model, for {keeper.words}", "move each batch in the training loop"
        )
        related = [module.place(other, "so does this") for other, _ in others[:_MOST_RELATED]]
        yield Split(node, message, tuple(related), keeper_facts(keeper))


def rooms(module: Module, project: Project) -> Iterator[Split]:
    """Arrays on the accelerator with a row for what a model gives of every sample, which a loop over a loader fills: one for a function."""
    kept = kept_of(project)
    groups: dict[Scope, list[tuple[cst.Call, Bytes]]] = {}
    for call, size in rows_of_loaders(module, project):
        if not rows_of_all(project, size):
            continue
        around = (here for here in module.walk.ancestors(call) if isinstance(here, cst.Call | cst.BaseStatement | cst.BaseSmallStatement))
        wrapping = itertools.takewhile(lambda here: isinstance(here, cst.Call), around)
        if any(kept.moves(module, one) for one in (call, *wrapping) if isinstance(one, cst.Call)):
            groups.setdefault(module.walk.scope_at(call), []).append((call, size))
    for (first, size), *others in groups.values():
        much = f"the results of the model take {size.words()} there, beside the model"
        message = Message(f"`{names.dotted(first.func)}` allocates a row per sample on the device", much, "allocate it in host memory")
        related = tuple(module.place(one, "so does this") for one, _ in others[:_MOST_RELATED])
        yield Split(first, message, related, (allocation_fact(module, first, size),))


def in_one_batch(module: Module, project: Project) -> Iterator[Split]:
    """Loaders whose one batch is the whole dataset: ``batch_size=len(dataset)``."""
    for loader in loaders_of(project).of(module):
        size, dataset = loader.explicit("batch_size"), loader.explicit("dataset")
        if size is None or dataset is None or not isinstance(size.value, cst.Call | cst.Name):
            continue
        asked = size.value
        if isinstance(asked, cst.Name):
            bound = [effect.value for effect in loader.scope.effects.get(asked.value, ()) if not effect.path]
            if len(bound) != 1 or not isinstance(bound[0], cst.Call):
                continue
            asked = bound[0]
        if names.dotted(asked.func) != "len" or len(asked.args) != 1 or not asked.args[0].value.deep_equals(dataset.value):
            continue
        whole = "all samples are collated, moved to the device and run through the model at once"
        message = Message(f"One batch holds all of `{module.code(dataset.value)}`", whole, "choose a smaller `batch_size`")
        yield Split(loader.call, message, (), (loader_fact(loader, option="batch_size"),))
