"""The models that a program trains: their parameters, as far as the sizes of their layers are constants, and what their optimizer keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.building import Building
from oomlint.budget.costs import FLOAT
from oomlint.budget.layers import MORE_STATES, STATES
from oomlint.budget.nouns import Counted, Trained
from oomlint.budget.parts import Layer, Made, all_parts, counted, lacking
from oomlint.budget.sizes import Name
from oomlint.memory.shared.byte_size import ITEM_BYTES
from oomlint.model import arguments, names
from oomlint.model.values import Const, ExternalCall, Instance
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_MOST_NAMED: Final = 4  # layers; who has to fill in more of them counts the model
_PARAMETERS: Final = frozenset({"parameters", "named_parameters"})
_CHANGES: Final = frozenset({"half", "double", "bfloat16", "requires_grad_"})
_MOVES: Final = frozenset({"cuda", "to"})
_FILLS: Final = frozenset({"append", "extend", "insert", "add_module", "register_module", "register_parameter", "pop"})
_DEFAULTS: Final = frozenset({"set_default_dtype", "set_default_tensor_type"})
_COPIES: Final = frozenset({"deepcopy", "AveragedModel"})
_ON_DEVICE: Final = (b"cuda", b"'mps'", b'"mps"', b"accelerat", b"ightning", b"Trainer(")


class Models:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._building = Building(project)
        self.evaluator = self._building.evaluator

    def of(self, reached: Sequence[Module], runs: Callable[[Place], bool]) -> Iterator[Trained]:
        """The models whose parameters an optimizer is given; without an optimizer, those that are moved to a device."""
        device = any(mark in self.project.raw(module.path) for module in reached for mark in _ON_DEVICE)
        found = sorted(self._trained(reached, runs, device), key=lambda one: one.optimizer not in STATES)
        known: dict[object, Trained] = {}
        for one in found or (self._moved(reached, runs) if device else ()):
            known.setdefault((one.name, one.counted), one)
        yield from known.values()

    def _trained(self, reached: Sequence[Module], runs: Callable[[Place], bool], device: bool) -> Iterator[Trained]:  # noqa: FBT001 - one fact of the program
        for module in reached:
            if b"optim" not in module.source.data:
                continue
            for call, scope in module.walk.calls:
                given = arguments.argument_for(call, "params", place=0)
                if given is None or not names.last_name(call.func)[:1].isupper() or not runs(module.place(call)):
                    continue
                frame = self._frame(module, scope)
                models = self._models(given)
                optimizer = self._optimizer(call, frame, whole=bool(models))
                if not optimizer or not self.evaluator.where(call, frame):
                    continue  # nobody chooses it
                for node in models or [given]:
                    name = " ".join(module.code(node).split())
                    whole = node is not given and not _chosen(given) and not self._cast(reached, name)
                    count = self._of(node, frame, reached) if whole else Counted()
                    copies = sum(self._copies(other, name) for other in reached)
                    yield Trained(name, _short(count, name), optimizer, self._state(optimizer, call, frame), copies, device, module.place(call))

    def _moved(self, reached: Sequence[Module], runs: Callable[[Place], bool]) -> Iterator[Trained]:
        """Models that are moved to a device, where nobody sees them trained."""
        for module in reached:
            for call, scope in module.walk.calls:
                func = call.func
                if not isinstance(func, cst.Attribute) or func.attr.value not in _MOVES or not runs(module.place(call)):
                    continue
                frame = self._frame(module, scope)
                value = self._building.values(func.value, frame)[0]
                if (isinstance(value, Layer) or (isinstance(value, Made) and value.module)) and counted(value) != Counted():
                    name = " ".join(module.code(func.value).split())
                    yield Trained(name, _short(self._of(func.value, frame, reached), name), "", 0, 0, on_device=True, place=module.place(call))

    def _frame(self, module: Module, scope: Scope) -> Frame:
        return next(iter(self.evaluator.calls.frames(module, scope)), None) or self.evaluator.calls.plain_frame(module, scope)

    def _optimizer(self, call: cst.Call, frame: Frame, *, whole: bool) -> str:
        """The class of an optimizer. One that torch does not have is one by its name and by what it is given: the parameters of a ``whole`` model."""
        for alt in self.evaluator.values(call, frame)[:2]:
            if isinstance(alt.value, ExternalCall):
                library, _, name = names.canonical(alt.value.name).rpartition(".")
                if library.startswith("torch.optim"):
                    return name if "lr_scheduler" not in library and "swa" not in library else ""
                if whole and "optim" in library.lower():
                    return name
            if isinstance(alt.value, Instance) and whole and self.evaluator.derives(alt.value.cls, "torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"):
                return alt.value.cls.scope.name
        return ""

    def _state(self, optimizer: str, call: cst.Call, frame: Frame) -> int | Name:
        least = STATES.get(optimizer)
        if least is None:
            return Name(f"state of {optimizer}")
        options = {arg.keyword.value: self._constant(arg.value, frame) for arg in call.args if arg.keyword is not None}
        if any(word in options and options[word] is None for word in MORE_STATES):
            return Name(f"state of {optimizer}")
        return least + sum(more for word, more in MORE_STATES.items() if options.get(word))

    @staticmethod
    def _models(given: cst.BaseExpression) -> list[cst.BaseExpression]:
        """The ``model`` of each ``model.parameters()``; of several parts of one, each."""
        calls = [node for node in descend(given) if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)]
        return [one.func.value for one in calls if isinstance(one.func, cst.Attribute) and one.func.attr.value in _PARAMETERS]

    @staticmethod
    def _cast(reached: Sequence[Module], name: str) -> bool:
        """Whether a statement gives a model another type, or freezes it: ``model.half()``."""
        for call, _ in (one for module in reached for one in module.walk.calls):
            method = names.last_name(call.func)
            if method in _DEFAULTS:
                return True
            typed = method in {"to", "type"} and any(ITEM_BYTES.get(names.last_name(arg.value), FLOAT) != FLOAT for arg in call.args)
            if (method in _CHANGES or typed) and names.dotted(call.func).rpartition(".")[0] == name:
                return True
        return False

    def _copies(self, module: Module, name: str) -> int:
        """How often a whole copy of the model is kept: an average of its weights, a teacher."""
        calls = (call for call, _ in module.walk.calls if names.last_name(call.func) in _COPIES and call.args)
        return sum(module.code(call.args[0].value).strip() == name for call in calls)

    # -- counting ----------------------------------------------------------------------------------------------------------

    def _of(self, node: cst.BaseExpression, frame: Frame, reached: Sequence[Module]) -> Counted:
        """The numbers of a model. Where nobody knows which of several it is, those that the smallest has."""
        values = self._building.values(node, frame)
        found = [counted(value) for value in values]
        least = min(found, key=lambda one: one.numbers)
        unsure = any(one != least for one in found) or _replaced(values, reached, names.dotted(node).partition(".")[0])
        return least.plus(lacking(frame.module.code(node))) if unsure else least

    def _constant(self, node: cst.BaseExpression, frame: Frame) -> object:
        """A constant of a plain run; None where it is none."""
        found = [alt for alt in self.evaluator.values(node, frame) if not alt.reach]
        return found[0].value.value if found and isinstance(found[0].value, Const) else None


def _short(count: Counted, name: str) -> Counted:
    """What a model has, with one name for what is missing where that is much, or all of it."""
    if count == Counted():
        return lacking(name)
    return replace(count, missing=lacking(f"the rest of {name}").missing) if len(count.missing) > _MOST_NAMED else count


def _replaced(values: Sequence[object], reached: Sequence[Module], root_of_model: str) -> bool:
    """Whether a model is changed from outside of its class: ``model.fc = nn.Linear(512, 10)``, ``del model.fc``, ``model.append(layer)``."""
    for module in reached:
        for call, _ in module.walk.calls:
            root, _, method = names.dotted(call.func).partition(".")
            if root == root_of_model and root != "self" and method.rpartition(".")[2] in _FILLS:
                return True
        for effect in (one for scope in module.walk.scopes if names.self_name(scope) != root_of_model for one in scope.effects.get(root_of_model, ())):
            if effect.path and effect.kind in {"assign", "delete"} and effect.path[-1][1] not in {"training", "requires_grad", "grad"}:
                return True
    parts = {word for value in values for one in all_parts(value) if isinstance(one, Made) for word in one.attributes}
    for module in reached:
        for scope in module.walk.scopes:
            own = names.self_name(scope)
            for one in (effect for root, effects in scope.effects.items() if root != own for effect in effects):
                last = one.path[-1] if one.path else ("", "")
                if one.kind == "assign" and last[0] == "attr" and last[1] in parts and isinstance(one.value, cst.Call):
                    return True
    return False


def _chosen(given: cst.BaseExpression) -> bool:
    """Whether an optimizer is given some of the parameters only."""
    nodes = [given, *descend(given)]
    return any(isinstance(one, cst.CompFor) and one.ifs for one in nodes) or any(
        isinstance(one, cst.Call) and names.last_name(one.func) == "filter" for one in nodes
    )
