"""Autograd's search for anomalies, where it is left on for all of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Fix, Message, Safety, Told
from oomlint.frameworks import BACKWARDS
from oomlint.memory.buffers.retained_graph import leads_backward
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import Const, External, is_usual
from oomlint.syntax.edits import replace
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_SWITCHES: Final = frozenset({"torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly"})
_BLOCKS: Final = frozenset({"torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly"})
_OF_LIGHTNING: Final = "detect_anomaly"  # the option of its ``Trainer``
_CALLED: Final = frozenset(name.rpartition(".")[2] for name in _SWITCHES | _BLOCKS) | {"Trainer"}
_STEPS: Final = (b"backward(", b".fit(")  # of a program that makes graphs and goes back through them


def left_on(module: Module, project: Project) -> Iterator[Told]:
    """Calls that switch it on for all that follows, or around what goes backward, whatever the options say; one for a file."""
    found = [call for call, scope in module.calls_of(_CALLED) if _switches_on(call, scope, module, project)]
    if not found or not any(project.holding([word]) for word in _STEPS) or _switched_off(project):
        return
    first, *others = found
    cost = "each node of every graph keeps the lines of code that made it, and each backward looks for NaN"
    message = Message("Anomaly detection is left on for the whole training", cost, "switch it on only while you look for a NaN")
    edits = [replace(module.tree, on, "False") for call in found if (on := _written_on(call)) is not None]
    fix = Fix(Safety.UNSAFE, "switch it off", tuple(edits)) if len(edits) == len(found) else None
    yield Told(module.place(first), message, confidence=Confidence.HIGH, related=tuple(module.place(one, "also here") for one in others), fix=fix)


def _switches_on(call: cst.Call, scope: Scope, module: Module, project: Project) -> bool:
    evaluator = evaluator_of(project)
    called = (alt.value for alt in evaluator.plainly(call.func, module, scope))
    name = next((names.canonical(value.name) for value in called if isinstance(value, External)), "")
    given = _option(call, name)
    if given is None and name not in _BLOCKS:
        return False
    frame = evaluator.calls.plain_frame(module, scope)
    if frozenset() not in evaluator.where(call, frame) or not _lasts(call, name, module, project):
        return False
    values = evaluator.plainly(given, module, scope) if given is not None else []
    usual = [alt for alt in values if is_usual(alt.picks)]
    return given is None or (bool(usual) and all(isinstance(alt.value, Const) and alt.value.value is True for alt in usual))


def _option(call: cst.Call, name: str) -> cst.BaseExpression | None:
    """What a call is given that says whether it switches on."""
    if name in _SWITCHES:
        return arguments.argument_for(call, "mode", place=0)
    lightning = name.rpartition(".")[2] == "Trainer" and "lightning" in name
    return arguments.by_name(call).get(_OF_LIGHTNING) if lightning else None


def _lasts(call: cst.Call, name: str, module: Module, project: Project) -> bool:
    """Whether a switch stays on for what follows, or a block has a backward in it."""
    around = module.walk.parents.get(call)
    if name not in _SWITCHES | _BLOCKS or isinstance(around, cst.Expr):
        return name not in _BLOCKS  # a block that nobody enters does nothing
    block = module.walk.parents.get(around) if isinstance(around, cst.WithItem) else None
    calls = [node for node in descend(block.body) if isinstance(node, cst.Call)] if isinstance(block, cst.With) else []
    scope = module.walk.scope_at(call)
    return any(names.last_name(one.func) in BACKWARDS or leads_backward(one.func, module, scope, project) for one in calls)


def _switched_off(project: Project) -> bool:
    """Whether the program switches it off again somewhere."""
    modules = map(project.find, project.holding([b"set_detect_anomaly(", b"False"]))
    calls = (call for module in modules if module is not None for call, _ in module.calls_of({"set_detect_anomaly"}))
    given = (arguments.argument_for(call, "mode", place=0) for call in calls)
    return any(isinstance(value, cst.Name) and value.value == "False" for value in given)


def _written_on(call: cst.Call) -> cst.Name | None:
    """The ``True`` of a call, where it is written there."""
    return next((arg.value for arg in call.args if isinstance(arg.value, cst.Name) and arg.value.value == "True"), None)
