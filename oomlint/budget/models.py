"""The models that a program trains: their parameters, as far as the sizes of their layers are constants, and what their optimizer keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.api_names import CASTS_MODEL, SAME_MODEL
from oomlint.budget.costs import FLOAT
from oomlint.budget.layers import MORE_STATES, STATES, kept_beside, numbers_of
from oomlint.budget.nouns import Counted, Trained
from oomlint.budget.sizes import Name
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_shapes import allocation
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, Const, Display, External, ExternalCall, Frame, Instance, Unknown, Written
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 12
_MOST: Final = 400  # layers
_MOST_WAYS: Final = 4
_SAME: Final = SAME_MODEL - CASTS_MODEL  # give the model back; after a cast its numbers have other bytes
_PARAMETERS: Final = frozenset({"parameters", "named_parameters"})
_WRAPPERS: Final = frozenset({"DataParallel", "DistributedDataParallel", "compile", "DDP", "convert_sync_batchnorm"})
_LISTS: Final = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "OrderedDict"})
_ADDS: Final = frozenset({"append", "extend", "insert", "add_module", "register_module", "register_parameter", "setattr"})
_CHANGES: Final = frozenset({"half", "double", "bfloat16", "requires_grad_"})
_COPIES: Final = frozenset({"deepcopy", "AveragedModel"})
_ON_DEVICE: Final = (b"cuda", b"'mps'", b'"mps"', b"accelerat", b"ightning", b"Trainer(")


class Models:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._counted = 0
        self._seen: set[object] = set()

    def of(self, reached: Sequence[Module], runs: Any) -> Iterator[Trained]:
        """The models whose parameters an optimizer of ``torch.optim`` is given."""
        device = any(mark in self.project.raw(module.path) for module in reached for mark in _ON_DEVICE)
        seen: set[object] = set()
        for module in reached:
            if b"optim" not in module.source.data:
                continue
            for call, scope in module.walk.calls:
                given = arguments.argument_for(call, "params", place=0)
                if given is None or not names.last_name(call.func)[:1].isupper() or not runs(module.place(call)):
                    continue
                frame = next(iter(self.evaluator.calls.frames(module, scope)), None) or self.evaluator.calls.plain_frame(module, scope)
                optimizer = self._optimizer(call, frame)
                if not optimizer or not self.evaluator.where(call, frame):
                    continue  # nobody chooses it
                for node in self._models(given) or [given]:
                    name = " ".join(module.code(node).split())
                    self._counted, self._seen = 0, set()
                    counted = self._of(node, frame, 0) if node is not given and not _chosen(given) and not self._cast(reached, name) else Counted()
                    if counted == Counted():
                        counted = _unknown(name)
                    key = (name, counted)
                    if key not in seen:
                        seen.add(key)
                        copies = sum(self._copies(other, name) for other in reached)
                        yield Trained(name, counted, optimizer, self._state(optimizer, call, frame), copies, device, module.place(call))

    def _optimizer(self, call: cst.Call, frame: Frame) -> str:
        for alt in self.evaluator.values(call, frame)[:2]:
            if isinstance(alt.value, ExternalCall):
                library, _, name = names.canonical(alt.value.name).rpartition(".")
                if library.startswith("torch.optim") and "lr_scheduler" not in library and "swa" not in library:
                    return name
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
        calls = (call for module in reached for call, _ in module.walk.calls if names.last_name(call.func) in _CHANGES)
        return any(names.dotted(call.func).rpartition(".")[0] == name for call in calls)

    def _copies(self, module: Module, name: str) -> int:
        """How often a whole copy of the model is kept: an average of its weights, a teacher."""
        calls = (call for call, _ in module.walk.calls if names.last_name(call.func) in _COPIES and call.args)
        return sum(module.code(call.args[0].value).strip() == name for call in calls)

    # -- counting ----------------------------------------------------------------------------------------------------------

    def _of(self, node: cst.BaseExpression, frame: Frame, depth: int) -> Counted:
        """What an expression holds: a layer, a list of them, an instance of a class of the project."""
        self._counted += 1
        if depth > _DEEPEST or self._counted > _MOST:
            return _unknown(frame.module.code(node))
        if isinstance(node, cst.List | cst.Tuple | cst.Dict):
            return self._sum([part.value for part in node.elements], frame, depth)
        if isinstance(node, cst.ListComp | cst.GeneratorExp):
            return self._repeated(node, frame, depth)
        if isinstance(node, cst.Call):
            known = self._of_call(node, frame, depth)
            if known is not None:
                return known
        counted = (self._of_value(alt.value, node, frame, depth) for alt in self.evaluator.values(node, frame)[:_MOST_WAYS])
        return next((one for one in counted if one != Counted()), Counted())

    def _of_call(self, node: cst.Call, frame: Frame, depth: int) -> Counted | None:
        """Calls that give a model back, and those that put several together."""
        word = names.last_name(node.func)
        inner = node.args[0].value if node.args else None
        if word in _SAME and isinstance(node.func, cst.Attribute) and (not names.dotted(node.func.value).startswith("torch") or inner is None):
            if word == "to" and any(item_bytes(arg.value, FLOAT) not in {None, FLOAT} for arg in node.args):
                return _unknown(frame.module.code(node))
            return self._of(node.func.value, frame, depth + 1)
        if word in _WRAPPERS and inner is not None:
            return self._of(inner, frame, depth + 1)
        if word == "deepcopy" and inner is not None:
            seen, self._seen = self._seen, set()
            counted, self._seen = self._of(inner, frame, depth + 1), seen
            return counted
        if word in _LISTS:
            return self._listed(node, frame, depth)
        if word == "Parameter" and isinstance(inner, cst.Call):
            made = allocation(f"torch.{names.last_name(inner.func)}", inner, self.evaluator, frame)
            return Counted(made.elements) if made is not None and made.elements is not None else _unknown(frame.module.code(node))
        return None

    def _of_value(self, value: Value, node: cst.BaseExpression, frame: Frame, depth: int) -> Counted:
        if isinstance(value, Instance):
            key = (value.call, value.at)
            if not isinstance(node, cst.Call) and key in self._seen:
                return Counted()  # one object under two names
            self._seen.add(key)
            return self._of_instance(value, depth)
        if isinstance(value, ExternalCall):
            counted, key = self._of_layer(value, depth), (value.call, value.frame)
            if counted == Counted():
                return counted
            if not isinstance(node, cst.Call) and key in self._seen:
                return _unknown(frame.module.code(node))  # the same layer under two names
            self._seen.add(key)
            return counted
        if isinstance(value, Written) and value.node is not None and value.node is not node and value.frame is not None:
            return self._of(value.node, value.frame, depth + 1)
        module = isinstance(value, Unknown) and depth == 0
        return (
            _unknown(frame.module.code(node))
            if module or (isinstance(node, cst.Call) and isinstance(value, Unknown) and names.last_name(node.func)[:1].isupper())
            else Counted()
        )

    def _of_layer(self, value: ExternalCall, depth: int) -> Counted:
        name = names.canonical(value.name)
        library, _, layer = name.rpartition(".")
        if not library.startswith("torch.nn"):
            return _unknown(name) if library.startswith(("torchvision", "timm", "transformers", "segmentation_models", "monai")) else Counted()
        if layer in _LISTS:
            return self._listed(value.call, value.frame, depth)
        if layer in _WRAPPERS and value.call.args:
            return self._of(value.call.args[0].value, value.frame, depth + 1)
        if layer == "Parameter" or library.startswith(("torch.nn.init", "torch.nn.functional", "torch.nn.utils")):
            return Counted()
        if layer in {"TransformerEncoder", "TransformerDecoder"} and len(value.call.args) > 1:
            one, times = self._of(value.call.args[0].value, value.frame, depth + 1), self._constant(value.call.args[1].value, value.frame)
            return one.times(times) if isinstance(times, int) else _unknown(value.frame.module.code(value.call))
        plain = [self._constant(arg.value, value.frame) for arg in value.call.args if arg.keyword is None]
        named = {arg.keyword.value: self._constant(arg.value, value.frame) for arg in value.call.args if arg.keyword is not None}
        count = numbers_of(layer, plain, named) if "dtype" not in named and not arguments.has_stars(value.call) else None
        return Counted(count, kept=kept_beside(layer, plain, named)) if count is not None else _unknown(value.frame.module.code(value.call))

    def _of_instance(self, value: Instance, depth: int) -> Counted:
        """What ``__init__`` puts on the object, of the class and of those that it derives from."""
        total = Counted()
        init = self.evaluator.method(value, "__init__")
        if init is None or not any(not isinstance(base, type(value.cls)) for base in self.evaluator.lineage(value.cls)):
            return total
        frame = Frame(init.module, init.scope, value.bound, value)
        for base in self.evaluator.lineage(value.cls):
            if isinstance(base, External) and base.name.startswith("torch.nn.") and (told := _super_call(init.scope)) is not None:
                total = total.plus(self._of_layer(ExternalCall(base.name, told, frame), depth))
        own = names.self_name(init.scope)
        if any(len(effect.path) > 1 and effect.path[-1] == ("attr", "weight") for effect in init.scope.effects.get(own or "", ())):
            return _unknown(value.cls.scope.name)  # one weight under two names
        for base in self.evaluator.lineage(value.cls):
            inherited = self._own(base, "__init__") if not isinstance(base, External) else None
            if isinstance(base, ClassRef) and inherited is not None and inherited is not init.scope and self._sets(base.module, inherited, value, depth):
                total = total.plus(_unknown(base.scope.name))
        for call in init.scope.calls:
            method = names.last_name(call.func)
            helper = self.evaluator.method(value, method) if own and names.dotted(call.func) == f"{own}.{method}" else None
            adds = method in _ADDS and (names.dotted(call.func).startswith(f"{own}.") or method == "setattr")
            if adds or (helper is not None and helper.scope is not init.scope and self._sets(helper.module, helper.scope, value, depth)):
                total = total.plus(_unknown(init.module.code(call)))
        for effect in init.scope.effects.get(own, ()) if own else ():
            if effect.kind == "assign" and effect.value is not None and len(effect.path) == 1 and self.evaluator.where(effect.value, frame):
                inside = any(isinstance(one, cst.For | cst.While) for one in init.module.walk.ancestors(effect.value) if one is not init.scope.node)
                counted = self._of(effect.value, frame, depth + 1)
                total = total.plus(_unknown(init.module.code(effect.value)) if inside and counted != Counted() else counted)
        return total

    def _own(self, cls: ClassRef, name: str) -> Scope | None:
        return next((scope for scope in cls.scope.children if scope.is_function and scope.name == name), None)

    def _sets(self, module: Module, scope: Scope, value: Instance, depth: int) -> bool:
        """Whether another method puts layers on the object."""
        own, seen = names.self_name(scope), self._seen
        frame, self._seen = Frame(module, scope, None, value), set()
        effects = [one for one in scope.effects.get(own, ()) if one.kind == "assign" and one.value is not None] if own else []
        found = any(self._of(one.value, frame, depth + 1) != Counted() for one in effects if one.value is not None)
        self._seen = seen
        return found

    def _listed(self, call: cst.Call, frame: Frame, depth: int) -> Counted:
        """Layers that are put together; of a list that stands elsewhere, nobody knows what it has by then."""
        total = Counted()
        for arg in call.args:
            if arg.keyword is not None:
                continue
            written = isinstance(arg.value, cst.List | cst.Tuple | cst.ListComp | cst.GeneratorExp)
            elsewhere = isinstance(arg.value, cst.Name | cst.Attribute) and any(isinstance(a.value, Display) for a in self.evaluator.values(arg.value, frame))
            total = total.plus(_unknown(frame.module.code(call)) if elsewhere or (arg.star and not written) else self._of(arg.value, frame, depth + 1))
        return total

    def _sum(self, nodes: Sequence[cst.BaseExpression], frame: Frame, depth: int) -> Counted:
        total = Counted()
        for one in nodes:
            total = total.plus(self._of(one, frame, depth + 1))
        return total

    def _repeated(self, node: cst.ListComp | cst.GeneratorExp, frame: Frame, depth: int) -> Counted:
        """A layer for each of a known number of rounds."""
        over = node.for_in.iter
        rounds = (
            self._constant(over.args[0].value, frame) if isinstance(over, cst.Call) and names.last_name(over.func) == "range" and len(over.args) == 1 else None
        )
        one = self._of(node.elt, frame, depth + 1)
        return one.times(rounds) if isinstance(rounds, int) and not one.missing else _unknown(frame.module.code(node))

    def _constant(self, node: cst.BaseExpression, frame: Frame) -> Any:
        """A number, a truth value, or a tuple of numbers; None where it is not one."""
        if isinstance(node, cst.Tuple | cst.List):
            return tuple(self._constant(part.value, frame) for part in node.elements)
        if isinstance(node, cst.BinaryOperation):
            left, right = self._constant(node.left, frame), self._constant(node.right, frame)
            if isinstance(left, int) and isinstance(right, int):
                return _computed(node.operator, left, right)
        found = [alt for alt in self.evaluator.values(node, frame) if not alt.reach]
        return found[0].value.value if found and isinstance(found[0].value, Const) else None


def _chosen(given: cst.BaseExpression) -> bool:
    """Whether an optimizer is given some of the parameters only."""
    nodes = [given, *descend(given)]
    return any(isinstance(one, cst.CompFor) and one.ifs for one in nodes) or any(
        isinstance(one, cst.Call) and names.last_name(one.func) == "filter" for one in nodes
    )


def _super_call(scope: Scope) -> cst.Call | None:
    """The call of the constructor that a layer is derived from."""
    return next((call for call in scope.calls if isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__"), None)


def _computed(operator: cst.BaseBinaryOp, left: int, right: int) -> int | None:
    match operator:
        case cst.Add():
            return left + right
        case cst.Subtract():
            return left - right
        case cst.Multiply():
            return left * right
        case cst.FloorDivide():
            return left // right if right else None
        case cst.Power():
            return left**right if abs(left) < 2**16 and 0 <= right < 9 else None  # noqa: PLR2004 - what a size may be
    return None


def _unknown(code: str) -> Counted:
    return Counted(0, missing=(Name(f"numbers of {' '.join(code.split())[:40]}"),))
