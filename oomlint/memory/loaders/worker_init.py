"""Datasets that only their ``worker_init_fn`` makes ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import AttributeFact, Message, Severity, Told
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.facts import dataset_facts, loader_fact
from oomlint.memory.loaders.loader_calls import confidence_of, is_zero, loaders_of, story_places
from oomlint.model import names
from oomlint.model.values import FunctionRef, assumptions
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame


def needs_worker_init(module: Module, project: Project) -> Iterator[Told]:
    """Loaders of the module that have, or can have, no workers, and a dataset that only a worker opens."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        for use in loaders.uses(loader):
            case = _case(project, loader, use.frame)
            if case is not None:
                yield case
                break


def _case(project: Project, loader: Loader, frame: Frame) -> Told | None:
    loaders = loaders_of(project)
    workers = list(loaders.workers(loader, frame))
    zero = next((a for a in sorted(workers, key=lambda a: (a.reach, a.doubt)) if is_zero(a.value)), None)
    if zero is None:
        return None
    function = next((a.value for a in loaders.argument(loader, "worker_init_fn", frame) if isinstance(a.value, FunctionRef)), None)
    if function is None:
        return None
    sets = _set_on_dataset(function)
    if not sets:
        return None
    for dataset in datasets_of(project).of(loaders, loader, frame):
        for name, node in sets.items():
            use = _unguarded_use(project, dataset, name)
            if use is None:
                continue
            place = loader.module.place(loader.call)
            related = [function.module.place(node, f"sets `{name}`"), use, *story_places(place, zero)]
            definite = all(is_zero(a.value) for a in workers if not a.reach)
            severity = Severity.ERROR if definite and not zero.reach else Severity.WARNING
            origin = "there are no workers" if severity is Severity.ERROR else "the worker count can be 0"
            confidence = confidence_of(assumptions(zero) + (1 if zero.reach else 0))
            attribute = AttributeFact(name, place=function.module.place(node))
            facts: tuple[Fact, ...] = (loader_fact(loader, [zero], "worker_init_fn"), *dataset_facts(dataset), attribute)
            message = Message(
                f"Only `worker_init_fn` sets `{name}`, and it needs workers",
                f"{origin}, so `__getitem__` of {dataset.words} would use None",
                f"set `{name}` on first use in `__getitem__`, which works with and without workers",
            )
            return Told(place, message, severity, confidence, tuple(related), facts=facts)
    return None


def _set_on_dataset(function: FunctionRef) -> dict[str, cst.CSTNode]:
    """Attributes of a dataset that a worker function sets."""
    found: dict[str, cst.CSTNode] = {}
    for node in function.scope.nodes():
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Attribute) and _is_dataset(function, target.target.value):
                    found[target.target.attr.value] = node
    return found


def _is_dataset(function: FunctionRef, node: cst.BaseExpression) -> bool:
    if "dataset" in function.module.code(node):
        return True
    if not isinstance(node, cst.Name):
        return False
    bound = [e.value for e in function.scope.effects.get(node.value, ()) if e.kind == "assign" and e.value is not None]
    return any("dataset" in function.module.code(value) for value in bound)


def _unguarded_use(project: Project, dataset: Dataset, name: str) -> Place | None:
    """Where ``__getitem__`` uses the attribute as if it were always set; ``None`` where it asks first, or something else sets it."""
    if dataset.instance is None:
        return None
    evaluator = loaders_of(project).evaluator
    item = evaluator.method(dataset.instance, "__getitem__")
    init = evaluator.init_frame(dataset.instance)
    if item is None or not _left_none(init, name):
        return None
    this = names.self_name(item.scope)
    for scope in [item.scope]:
        if any(e.path[:1] == (("attr", name),) and e.kind == "assign" for e in scope.effects.get(this or "", ())):
            return None
    uses: list[cst.CSTNode] = []
    for node in item.scope.nodes():
        if not (is_attribute_of(node, this) and node.attr.value == name):
            continue
        holder = item.module.walk.parents.get(node)
        if isinstance(holder, cst.Comparison | cst.UnaryOperation | cst.If | cst.IfExp | cst.BooleanOperation):
            return None
        uses.append(node)
    # Methods of the object may open it: `self._open()` before the use.
    for call in item.scope.calls:
        if is_attribute_of(call.func, this):
            return None
    return item.module.place(uses[0], "used as if it were set") if uses else None


def _left_none(init: Frame | None, name: str) -> bool:
    if init is None:
        return True
    this = names.self_name(init.scope)
    effects = [e for e in init.scope.effects.get(this or "", ()) if e.path == (("attr", name),) and e.kind == "assign"]
    return all(isinstance(e.value, cst.Name) and e.value.value == "None" for e in effects)
