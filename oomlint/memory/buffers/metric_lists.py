"""Metrics of the project (classes that derive from `torchmetrics.Metric`) that keep maps on the device until `compute` brings them to the host one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.torch_tables import DENSE_NAME
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_METRICS: Final = frozenset({"torchmetrics.Metric", "torchmetrics.metric.Metric"})


class KeptByMetric(Struct, frozen=True):
    """A state of a metric to which each update adds what it is given, as it is."""

    state: str
    node: cst.Call  # that adds to it
    given: cst.BaseExpression
    read: cst.Call  # where it is brought to the host
    others: tuple[cst.Call, ...]  # further states of the same class that are as large, or small ones beside it


def kept_by_metrics(module: Module, project: Project) -> Iterator[KeptByMetric]:
    """Metrics of a module, each by the first large state that it keeps on the device for no need."""
    evaluator = evaluator_of(project)
    for scope in module.walk.scopes:
        update, compute = (scope.child("update"), scope.child("compute")) if scope.is_class else (None, None)
        states = _list_states(scope) if update is not None and compute is not None else set()
        if update is None or compute is None or not states or _on_host(scope, module, project):
            continue
        if not any(isinstance(base, External) and base.name in _METRICS for base in evaluator.lineage(ClassRef(module, scope))):
            continue
        read = _read_on_host(compute, states)
        added = [(state, call) for state, call in _added(update, states) if state in read]
        # What is unknown but for its name is large where that says so.
        large = [(state, call) for state, call in added if DENSE_NAME.search(names.last_name(call.args[0].value)) or DENSE_NAME.search(state)]
        if large:
            state, node = large[0]
            yield KeptByMetric(state, node, node.args[0].value, read[state], tuple(call for _, call in added if call is not node))


def _list_states(cls: Scope) -> set[str]:
    """Names of the states that start as an empty list: `self.add_state("maps", default=[])`."""
    built = cls.child("__init__")
    found: set[str] = set()
    for call in built.calls if built is not None else ():
        if names.last_name(call.func) != "add_state" or not call.args:
            continue
        name, default = arguments.argument_for(call, "name", place=0), arguments.argument_for(call, "default", place=1)
        if isinstance(name, cst.SimpleString) and isinstance(default, cst.List) and not default.elements:
            found.add(name.raw_value)
    return found


def _on_host(cls: Scope, module: Module, project: Project) -> bool:
    """Whether the metric, or somebody who makes one, asks for states on the host: `compute_on_cpu=True`."""
    built = cls.child("__init__")
    sites = evaluator_of(project).calls.sites(module, built) if built is not None else []
    calls = [*(site.call for site in sites), *(built.calls if built is not None else ())]
    return any(arguments.has(call, "compute_on_cpu") for call in calls)


def _added(update: Scope, states: set[str]) -> Iterator[tuple[str, cst.Call]]:
    """Parameters that a method adds to lists of its object, as they were given."""
    own, params = names.self_name(update), set(names.parameter_names(update))
    for effect in update.effects.get(own or "", ()):
        call = effect.call
        if effect.kind != "append" or call is None or len(effect.path) != 1 or len(call.args) != 1 or effect.path[0][1] not in states:
            continue
        given = call.args[0].value
        if isinstance(given, cst.Name) and given.value in params and not any(e.kind == "assign" for e in update.effects.get(given.value, ())):
            yield str(effect.path[0][1]), call


def _read_on_host(compute: Scope, states: set[str]) -> dict[str, cst.Call]:
    """States whose elements a method brings to the host: `self.maps[i].cpu()`, `for one in self.maps: one.cpu()`."""
    own = names.self_name(compute)
    targets: dict[str, str] = {}
    for loop in compute.loops:
        if isinstance(loop, cst.For) and isinstance(loop.target, cst.Name) and (state := _state_of(loop.iter, own, states)):
            targets[loop.target.value] = state
        elif isinstance(loop, cst.For) and isinstance(loop.target, cst.Tuple) and isinstance(loop.iter, cst.Call) and names.last_name(loop.iter.func) == "zip":
            for element, arg in zip(loop.target.elements, loop.iter.args, strict=False):
                if isinstance(element.value, cst.Name) and (state := _state_of(arg.value, own, states)):
                    targets[element.value.value] = state
    found: dict[str, cst.Call] = {}
    for node in compute.nodes():
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "cpu":
            part = node.func.value
            state = _state_of(part.value, own, states) if isinstance(part, cst.Subscript) else targets.get(part.value, "") if isinstance(part, cst.Name) else ""
            if state:
                found.setdefault(state, node)
    return found


def _state_of(node: cst.BaseExpression, own: str | None, states: set[str]) -> str:
    """The state that an expression is; empty for anything else."""
    if is_attribute_of(node, own) and node.attr.value in states:
        return node.attr.value
    return ""
