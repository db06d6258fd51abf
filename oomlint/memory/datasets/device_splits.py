"""Data that goes to the accelerator as a whole: moved before the first step, or in one batch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Message, Told
from oomlint.memory.arrays.eager_loads import chosen_by_base
from oomlint.memory.arrays.filled import rows_of_all, rows_of_loaders
from oomlint.memory.arrays.inflation import passed
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.facts import allocation_fact, keeper_facts, loader_fact
from oomlint.memory.loaders.loader_calls import evaluator_of, loaders_of
from oomlint.memory.shared.attribute_names import small_name
from oomlint.memory.shared.known_reads import KnownRead
from oomlint.memory.shared.seen_axes import of_use
from oomlint.model import arguments, names
from oomlint.model.tensor_state import MAP
from oomlint.model.values import Element, SourceExpression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_MOST_RELATED: Final = 4


def _split(module: Module, node: cst.CSTNode, message: Message, related: Iterable[Place], facts: tuple[Fact, ...]) -> Told:
    """Where the whole of a dataset goes to the accelerator."""
    return Told(module.place(node), message, confidence=Confidence.MEDIUM, related=tuple(related), facts=facts)


def moved(module: Module, project: Project) -> Iterator[Told]:
    """What is read for a dataset and moved before anybody takes a sample: one for a function."""
    groups: dict[Scope, list[tuple[cst.BaseExpression, Keeper]]] = {}
    for node, load, keeper in passed(module, project, DataTransform.MOVES):
        if keeper.hazy:
            continue  # what is kept is what a network made of it
        # What each round moves is all of it where the rounds put it into a container.
        if keeper.put is not None or (not load.many and not kept_of(project).repeats(module, node)):
            groups.setdefault(module.walk.scope_at(node), []).append((node, keeper))
    for group in groups.values():
        (node, keeper), *others = sorted(group, key=lambda one: (module.place(one[0]).row, module.place(one[0]).column))
        message = Message(
            "All data moves to the device at once", f"it stays there beside the model, for {keeper.words}", "move each batch in the training loop"
        )
        related = [module.place(other, "so does this") for other, _ in others[:_MOST_RELATED]]
        yield _split(module, node, message, related, keeper_facts(keeper))


def beside(module: Module, project: Project) -> Iterator[Told]:
    """What is moved whole beside the loader that gives the same by batches: the targets of a split, to compare all outputs with. One for a function."""
    arrays, kept = arrays_of(project), kept_of(project)
    told: set[cst.CSTNode] = {node for node, _, _ in passed(module, project, DataTransform.MOVES)}
    groups: dict[Scope, list[tuple[Keeper, Load, Keeper]]] = {}
    for load in arrays.files(module):
        for place in load.read.places if load.read is not None and not (load.many or chosen_by_base(load, project)) else ():
            for spot in kept.moved(module, load.node, place):
                keeper = _serving(load, spot, (*kept.of(module, load.node, place), *kept.objects(module, load.node, place)))
                if keeper is not None and spot.node not in told and not kept.repeats(spot.module, spot.node):
                    told.add(spot.node)
                    groups.setdefault(spot.module.walk.scope_at(spot.node), []).append((spot, load, keeper))
    for (spot, load, keeper), *others in groups.values():
        cost = f"it stays there beside the model, for {keeper.words}"
        message = Message(f"{spot.words} moves a whole split to the device", cost, "move what each batch needs")
        related = [load.module.place(load.node, "read here"), *(spot.module.place(other.node, "so does this") for other, _, _ in others[:_MOST_RELATED])]
        yield _split(spot.module, spot.node, message, related, keeper_facts(keeper))


def _serving(load: Load, spot: Keeper, keepers: tuple[Keeper, ...]) -> Keeper | None:
    """Who keeps, to give it by batches, the same that is moved: of a file with several arrays the same one."""
    module = spot.module
    if not isinstance(spot.node, cst.Call):
        return None
    if any(map(small_name, spot.names)) and of_use(module, module.walk.scope_at(spot.node), spot.node).least < MAP:
        return None
    same = 1 if load.read is not None and load.read.kind in {KnownRead.ARRAY, KnownRead.NUMBERS, KnownRead.SAMPLE} else 2
    return next((one for one in keepers if not one.saver and one.names[:same] == spot.names[:same]), None)


def rooms(module: Module, project: Project) -> Iterator[Told]:
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
        message = Message(f"`{module.function_of(first)}` allocates a row per sample on the device", much, "allocate it in host memory")
        related = [module.place(one, "so does this") for one, _ in others[:_MOST_RELATED]]
        yield _split(module, first, message, related, (allocation_fact(module, first, size),))


def in_one_batch(module: Module, project: Project) -> Iterator[Told]:
    """Loaders whose one batch is the whole dataset: ``batch_size=len(dataset)``, or the length that a part of a split was given."""
    for loader in loaders_of(project).of(module):
        size, dataset = loader.explicit("batch_size"), loader.explicit("dataset")
        if size is None or dataset is None or not _holds_all(project, loader, size.value, dataset.value):
            continue
        whole = "all samples are collated, and run through the model, at once"
        message = Message(f"One batch holds all of `{module.code(dataset.value)}`", whole, "choose a smaller `batch_size`")
        yield _split(module, loader.call, message, (), (loader_fact(loader, option="batch_size"),))


def _holds_all(project: Project, loader: Loader, size: cst.BaseExpression, dataset: cst.BaseExpression) -> bool:
    """Whether a batch is as long as the dataset."""
    if isinstance(size, cst.Call):
        return _is_length(size, dataset)
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(loader.module, loader.scope)
    asked = [alt.value for alt in evaluator.values(size, frame)] if isinstance(size, cst.Name) else []
    written = [value.node for value in asked if isinstance(value, SourceExpression) and value.frame.scope is loader.scope]
    if not asked or len(written) < len(asked):
        return False
    return all(_is_length(node, dataset) for node in written) or written == _length_of_part(evaluator, dataset, frame)


def _is_length(node: cst.CSTNode, dataset: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and names.dotted(node.func) == "len" and len(node.args) == 1 and node.args[0].value.deep_equals(dataset)


def _length_of_part(evaluator: Evaluator, dataset: cst.BaseExpression, frame: Frame) -> list[cst.BaseExpression]:
    """How ``random_split(data, [first, second])`` was told the length of the part that a dataset is."""
    found = [alt.value for alt in evaluator.values(dataset, frame)]
    if len(found) != 1 or not isinstance(found[0], Element) or names.canonical(found[0].whole.name) != "torch.utils.data.random_split":
        return []
    whole, number = found[0].whole, found[0].accessors[0][1]
    lengths = arguments.argument_for(whole.call, "lengths", place=1)
    if not isinstance(lengths, cst.List | cst.Tuple) or not isinstance(number, int) or not 0 <= number < len(lengths.elements):
        return []
    told = evaluator.values(lengths.elements[number].value, whole.frame)
    return [alt.value.node for alt in told if isinstance(alt.value, SourceExpression)]
