"""Large arrays that are made while a dataset, a module or a data module is built."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.amounts import readable
from oomlint.api_names import STACKS
from oomlint.finding import Confidence, Message, Severity, Told, in_own_rows
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.said_small import said_small
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_uses import is_room, one_a_sample
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import SHORT_ROW, allocation, counts_samples
from oomlint.memory.shared.construction import constructions_of, speaks_of_data
from oomlint.model import arguments, names
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External, Instance
from oomlint.scout.telling_names import BUILDERS, LARGE_NUMBER, MAKERS
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_BASES: Final = ("torch.nn.Module", "lightning", "pytorch_lightning", "torch.nn.modules.module.Module")
_LAZY: Final = frozenset({"numpy.zeros", "numpy.empty", "torch.empty"})  # pages come as they are written
_FEW: Final = 64  # numbers of one sample that are not worth a word
_SAMPLE: Final = 1 << 14  # bytes of one sample
_CLASSES: Final = re.compile(r"class|label|target|categor", re.IGNORECASE)
_COUNTS: Final = frozenset({"range", "len", "sorted", "list", "items"})
_MOST_FRAMES: Final = 4
_MANY: Final = 1 << 16  # samples of a large data set
_ENORMOUS: Final = 1 << 30  # bytes that are too many for one array, whoever keeps it


class Allocation(Told, frozen=True, kw_only=True):
    """A call that makes a large array."""

    node: cst.Call
    by_use: bool = False  # that it has a row for each sample is known by what the dataset does with it, not by its shape


def allocations(module: Module, project: Project) -> Iterator[Allocation]:
    """Large allocations of the module that a dataset, a module or a data module keeps."""
    if holds_tests(module):
        return
    speaks = speaks_of_data(module)
    constructions = constructions_of(project)
    for scope in module.walk.scopes:
        # What an array is made of is asked last: a shape may come from far away.
        if scope.is_class or not (speaks or _builds(module, scope) or _speaks_large(module)) or constructions.per_item(module, scope):
            continue
        for call in scope.calls:
            if names.last_name(call.func) in MAKERS:
                one = _judge(project, module, scope, call, speaks=speaks)
                if one is not None:
                    yield one


def _judge(project: Project, module: Module, scope: Scope, call: cst.Call, *, speaks: bool) -> Allocation | None:
    evaluator = evaluator_of(project)
    plain = evaluator.calls.plain_frame(module, scope)
    made = next((a.value.name for a in evaluator.values(call.func, plain) if isinstance(a.value, External)), "")
    size = allocation(made, call, evaluator, plain)
    if size is None or ((device := arguments.named(call, "device")) is not None and "meta" in module.code(device)):
        return None
    large, each, by_use, one_of_many = _is_large(project, size), False, False, False
    keeper: Keeper | None = None
    related: tuple[Place, ...] = ()
    sample = not large and _is_sample(size)
    if speaks and (large or sample or any(isinstance(number, str) for number in size.dimensions)):
        keeper = _keeper(project, module, scope, call, named=not sample)
    if keeper is not None and _is_prefix(size, keeper):
        return None
    if keeper is not None:
        frames = evaluator.calls.frames(module, scope, most=_MOST_FRAMES)
        sizes = [size, *(one for frame in frames if (one := allocation(made, call, evaluator, frame)) is not None)]
        size = max(sizes, key=lambda one: one.least)
        large = _is_large(project, size)
        by_use = not (size.dimensions and (counts_samples(size.dimensions[0]) or _of_shape(module, scope, call)))
        each = (
            not large
            and not keeper.many
            and (not by_use or (_bound_to(module, call) == keeper.attribute and _has_each(project, keeper, keeper.attribute)))
            and _each_sample(module, size)
            and not _is_room(project, keeper)
        )
        one_of_many = sample and not large and _is_sample(size) and _one_a_sample(project, module, scope, call, keeper)
        owner: str | None = keeper.words if large or each or one_of_many else None
        own, there = module.place(call), keeper.module.place(keeper.node, f"{keeper.words} keeps it")
        related = tuple(in_own_rows(own, (there,)))
    else:
        owner = _owner(project, module, scope, call) if large else None
        if owner is None:
            size, owner = _huge(project, module, scope, call, made, size)
    if owner is None:
        return None
    when = "resident as it is filled" if made in _LAZY else "all at once"
    count = size.words() if size.exact is not None or not large else f"at least {readable(size.least)} ({size.words()})"
    function = module.function_of(call)
    headline = f"`{function}` allocates {owner} before the first {'sample' if keeper is not None else 'step'}"
    message = Message(headline, f"it takes {count}, {when}{', with one row per sample' if each else ''}")
    if one_of_many:
        message = Message(f"`{function}` makes an array for each sample before the first one", f"all of them stay in {owner}, each {count}")
    facts = (allocation_fact(module, call, size), *(keeper_facts(keeper) if keeper is not None else ()))
    confidence = Confidence.HIGH if size.exact is not None else Confidence.MEDIUM
    severity = Severity.NOTE if each and (_has_short_rows(project, size) or (keeper is not None and _is_written_in_turn(keeper))) else None
    place = module.place(call)
    return Allocation(place, message, severity=severity, confidence=confidence, related=related, facts=facts, node=call, by_use=by_use and each)


def _has_short_rows(project: Project, size: Bytes) -> bool:
    """Whether so few bytes are known to be there for each sample that it takes very many samples to make a large array of them."""
    number, *row = size.dimensions
    known = [one for one in row if isinstance(one, int)]
    told = len(known) == len(row) and not isinstance(number, int) and size.item is not None
    return told and prod(known) * (size.item or 1) * _MANY < project.settings.array_bytes


def _is_written_in_turn(keeper: Keeper) -> bool:
    """Whether a method that runs later writes each row at a place that the object counts, ``self.seen[self.place] = seen``: room for what is to come."""
    for method in keeper.owner.scope.children if keeper.owner is not None and keeper.attribute else ():
        this = names.self_name(method)
        for node in method.nodes() if this is not None and method.name not in BUILDERS else ():
            target = node.targets[0].target if isinstance(node, cst.Assign) else None
            index = target.slice[0].slice if isinstance(target, cst.Subscript) and len(target.slice) == 1 else None
            own = isinstance(target, cst.Subscript) and is_attribute_of(target.value, this) and target.value.attr.value == keeper.attribute
            if own and isinstance(index, cst.Index) and is_attribute_of(index.value, this):
                return True
    return False


def _huge(project: Project, module: Module, scope: Scope, call: cst.Call, made: str, size: Bytes) -> tuple[Bytes, str | None]:
    """An array of known and enormous size, and what any object or script keeps it as: a buffer of transitions, room for the features of a corpus."""
    name = _bound_to(module, call)
    if name is None or kept_of(project).repeats(module, call):
        return size, None
    evaluator = evaluator_of(project)
    if size.exact is None and scope.parent is not None and scope.parent.is_class and scope.name in BUILDERS:
        frames = evaluator.calls.frames(module, scope, most=_MOST_FRAMES)
        known = [one for frame in frames if (one := allocation(made, call, evaluator, frame)) is not None and one.exact is not None]
        size = max(known, key=lambda one: one.least, default=size)
    if size.exact is None or size.exact < _ENORMOUS:
        return size, None
    owner = scope.parent
    return size, f"`{name}` of `{owner.name}`" if owner is not None and owner.is_class and "." not in name else f"`{name}`"


def _bound_to(module: Module, call: cst.Call) -> str | None:
    """The name or attribute that an array is bound to as it is."""
    above = module.walk.parents.get(call)
    target = above.targets[0].target if isinstance(above, cst.Assign) and above.value is call else None
    if isinstance(target, cst.Attribute):
        return target.attr.value
    return target.value if isinstance(target, cst.Name) else None


def _is_large(project: Project, size: Bytes) -> bool:
    return size.item is not None and size.least >= project.settings.array_bytes


def _keeper(project: Project, module: Module, scope: Scope, call: cst.Call, *, named: bool) -> Keeper | None:
    """The dataset that keeps the array, which it made itself, or one for each sample that its caller made.

    Where the size says too little, its name may say that it is small.
    """
    for one in kept_of(project).of(module, call):
        made = not one.hazy and (not one.given or (one.many and not named)) and (one.owner is not None or _in_data_module(project, module, scope))
        if made and not (named and said_small(project, one)):
            return one
    return None


def _is_prefix(size: Bytes, keeper: Keeper) -> bool:
    """Whether the array is one row or column that is put beside something else: ``torch.cat((torch.ones(n, 1, width), rows), dim=1)``."""
    joins = (done.node for done in keeper.passed if done.does in {DataTransform.COPIES, DataTransform.JOINS})
    return 1 in size.dimensions and any(isinstance(node, cst.Call) and names.last_name(node.func) in STACKS for node in joins)


def _speaks_large(module: Module) -> bool:
    """Whether the module has a number that could make an array large: the same question that the scout asks."""
    numbers = (node for node in module.walk.root.nodes() if isinstance(node, cst.Integer))
    return bool(module.project.memo.answer(("large number", module.path), lambda: any(int(node.evaluated_value) > LARGE_NUMBER for node in numbers)))


def _each_sample(module: Module, size: Bytes) -> bool:
    """Whether each row of an array is more than a few numbers."""
    if len(size.dimensions) < 2:  # noqa: PLR2004 - samples, and what each has
        return False
    rest = size.dimensions[1:]
    known = prod(number for number in rest if isinstance(number, int))
    if all(isinstance(number, int) for number in rest):
        return known >= _FEW and (size.exact is None or size.exact >= module.project.settings.small_bytes)
    return not any(isinstance(number, str) and _CLASSES.search(number) for number in rest)


def _one_a_sample(project: Project, module: Module, scope: Scope, call: cst.Call, keeper: Keeper) -> bool:
    """Whether one such array is made for each sample, and all of them are kept; not what files are read into, which is told there."""
    if not keeper.many or keeper.hazy or _is_read_into(project, keeper):
        return False
    if _has_each(project, keeper, keeper.attribute):
        return True
    loop = kept_of(project).gathering(module, call)
    over = _counted(loop.iter if isinstance(loop, cst.For) else loop.for_in.iter) if isinstance(loop, cst.For | cst.BaseComp) else None
    if names.dotted(over) == names.self_name(scope):
        return True  # `range(len(self))`
    if isinstance(over, cst.Attribute):
        return _has_each(project, keeper, over.attr.value)
    stored = scope.effects.get(names.self_name(scope) or "", ()) if isinstance(over, cst.Name) else ()
    same = (str(e.path[0][1]) for e in stored if len(e.path) == 1 and e.value is not None and names.dotted(e.value) == names.dotted(over))
    return any(_has_each(project, keeper, name) for name in same)


def _counted(node: cst.BaseExpression) -> cst.BaseExpression:
    """What a loop has a round for each element of: ``paths`` of ``range(len(paths))``, ``sorted(paths)``, ``paths.items()``."""
    here = names.iterated(node)
    while isinstance(here, cst.Call) and names.last_name(here.func) in _COUNTS:
        if here.args:
            here = here.args[0].value
        elif isinstance(here.func, cst.Attribute):
            here = here.func.value
        else:
            break
    return here


def _is_read_into(project: Project, keeper: Keeper) -> bool:
    """Whether files are read into the same container, which is told there."""
    loads = arrays_of(project).files(keeper.module)
    return any((one.owner, one.attribute) == (keeper.owner, keeper.attribute) for load in loads for one in load.keepers)


def _is_sample(size: Bytes) -> bool:
    """Whether an array that there is one of for each sample is more than a few numbers, such as boxes or a pose."""
    known = prod(number for number in size.dimensions if isinstance(number, int)) * (size.item or 1)
    unknown = sum(isinstance(number, str) for number in size.dimensions)
    return len(size.dimensions) > 1 and (unknown > 1 or known >= (SHORT_ROW if unknown else _SAMPLE))


def _is_room(project: Project, keeper: Keeper) -> bool:
    """Whether samples are put together in the array, one after the other."""
    dataset = datasets_of(project).of_value(Instance(keeper.owner, None)) if keeper.owner is not None and keeper.attribute else None
    return dataset is not None and is_room(dataset, keeper.attribute, evaluator_of(project))


def _has_each(project: Project, keeper: Keeper, attribute: str) -> bool:
    """Whether an attribute of the dataset that keeps an array has an element for each sample."""
    dataset = datasets_of(project).of_value(Instance(keeper.owner, None)) if keeper.owner is not None and attribute else None
    return dataset is not None and one_a_sample(dataset, attribute, evaluator_of(project))


def _of_shape(module: Module, method: Scope, call: cst.Call) -> bool:
    """Whether the first dimension is the first one of an array that is there: ``shape[0]``."""
    first: cst.CSTNode | None = call.args[0].value if call.args else None
    while isinstance(first, cst.Tuple | cst.List) and first.elements:
        first = first.elements[0].value
    while isinstance(first, cst.BinaryOperation):
        first = first.left
    if not isinstance(first, cst.Subscript) or len(first.slice) != 1 or not isinstance(first.slice[0].slice, cst.Index):
        return False
    if module.code(first.slice[0].slice.value) != "0":
        return False
    if isinstance(first.value, cst.Attribute):
        return first.value.attr.value == "shape"
    if isinstance(first.value, cst.Name):
        effects = method.effects.get(first.value.value, ())
        return any(isinstance(e.value, cst.Attribute) and e.value.attr.value == "shape" for e in effects)
    return False


def _in_data_module(project: Project, module: Module, scope: Scope) -> bool:
    """Whether the code is a method of a data module."""
    owner = scope.parent
    if owner is None or not owner.is_class:
        return False
    return any(isinstance(b, External) and b.name.endswith("DataModule") for b in evaluator_of(project).lineage(ClassRef(module, owner)))


def _builds(module: Module, scope: Scope) -> bool:
    """Whether code is where a model makes what it keeps, in a module with a number that could make an array large."""
    return scope.parent is not None and scope.parent.is_class and scope.name in BUILDERS and _speaks_large(module)


def _owner(project: Project, module: Module, method: Scope, call: cst.Call) -> str | None:
    """The attribute or buffer of a module or data module that keeps the array, in words."""
    owner = method.parent
    if owner is None or not _builds(module, method):
        return None
    cls = ClassRef(module, owner)
    if not any(isinstance(b, External) and b.name.startswith(_BASES) for b in evaluator_of(project).lineage(cls)) or not constructions_of(project).builds(
        cls, method
    ):
        return None
    this = names.self_name(method)
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.Call) and names.last_name(here.func) == "Parameter":
            return None
        if isinstance(here, cst.Call) and names.last_name(here.func) == "register_buffer":
            return f"a buffer of `{owner.name}`"
        if isinstance(here, cst.Assign | cst.AnnAssign):
            targets = [t.target for t in here.targets] if isinstance(here, cst.Assign) else [here.target]
            for target in targets:
                if is_attribute_of(target, this):
                    return f"`{target.attr.value}` of `{owner.name}`"
            return None
        if isinstance(here, cst.BaseStatement):
            return None
    return None
