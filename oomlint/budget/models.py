"""The models that a program trains: their parameters, as far as the sizes of their layers are constants, and what their optimizer keeps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import CASTS_MODEL, PARAMETERS
from oomlint.budget import trainers
from oomlint.budget.copies import Copies
from oomlint.budget.costs import FLOAT
from oomlint.budget.layers import MORE_STATES, STATES
from oomlint.budget.nouns import ALL_OF_IT, LayerNumbers, Trained
from oomlint.budget.parts import Layer, Made, Missing, counted, lacking
from oomlint.budget.sizes import Name
from oomlint.budget.walking import Walking, started
from oomlint.budget.zero import Zero
from oomlint.memory.shared.byte_size import ITEM_BYTES
from oomlint.model import arguments, names
from oomlint.model.values import Const, ExternalCall, Instance, SourceExpression, Unknown
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_MOST_CHOSEN: Final = 4  # optimizers, one of which a setting takes
_MOST_NAMED: Final = 4  # layers; who has to fill in more of them counts the model
_TRAINS: Final = (b"optim", b"deepspeed", b"parameters(", b"Trainer")
_MOVES: Final = frozenset({"cuda", "to"})
_DEFAULTS: Final = frozenset({"set_default_dtype", "set_default_tensor_type"})
_FREEZES: Final = re.compile(r"requires_grad_?\s*[=(]\s*False")
_ON_DEVICE: Final = (b"cuda", b"'mps'", b'"mps"', b"accelerat", b"deepspeed", b"ightning", b"Trainer")


class Models:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._building = Walking(project)
        self.evaluator = self._building.evaluator

    def of(self, reached: Sequence[Module], runs: Callable[[Place], bool]) -> Iterator[Trained]:
        """The models whose parameters an optimizer is given; without an optimizer, all that are made or moved to a device."""
        self._copies = Copies(self.evaluator, reached, runs)
        self._zero = Zero(self.project, self._building, reached, runs)
        self._by_trainer: dict[cst.Call, str] = {}  # the optimizers that trainers make
        device = any(mark in self.project.raw(module.path) for module in reached for mark in _ON_DEVICE)
        found = sorted(self._trained(reached, runs, device), key=lambda one: one.optimizer not in STATES)
        known: dict[object, Trained] = {}
        frozen = any(_FREEZES.search(module.source.text) for module in reached)
        saved = any(runs(module.place(call)) for module in reached for call, _ in module.calls_of(("save_on_cpu",)))
        for one in found or self._untrained(reached, runs, device):
            known.setdefault((one.name, one.counted), self._zero.spread(replace(one, frozen=frozen or one.frozen, saved_on_host=saved)))
        yield from known.values()

    def _trained(self, reached: Sequence[Module], runs: Callable[[Place], bool], device: bool) -> Iterator[Trained]:  # noqa: FBT001 - one fact of the program
        seen: dict[int, Any] = {}
        inside: set[cst.Call] = set()  # what functions make of parameters that they are handed: told where they are called
        for module in reached:
            if not any(mark in module.source.data for mark in _TRAINS):
                continue
            found: dict[Scope, list[tuple[cst.Call, cst.BaseExpression]]] = {}
            for call, scope in module.walk.calls:
                given = arguments.argument_for(call, "params", place=0)
                trained = trainers.model_of(call, module, scope, self.evaluator)
                if trained is not None:
                    given, self._by_trainer[call] = trained, self._zero.optimizer(call) or trainers.optimizer_of(call, self._zero.words)
                elif self._zero.optimizer(call):
                    given = arguments.argument_for(call, "model", place=1)
                elif not names.last_name(call.func)[:1].isupper() and (given is None or not self._models(given)):
                    continue  # no class, and no `build(name)(model.parameters())`
                if given is not None and runs(module.place(call)):
                    found.setdefault(scope, []).append((call, given))
                    made = self.evaluator.plainly(call, module, scope)[:_MOST_CHOSEN] if self._models(given) else []
                    inside |= {alt.value.call for alt in made if isinstance(alt.value, ExternalCall) and alt.value.call is not call}
            for scope, calls in found.items():
                yield from self._in_scope(module, scope, [one for one in calls if one[0] not in inside], reached, device, seen)

    def _in_scope(
        self,
        module: Module,
        scope: Scope,
        calls: list[tuple[cst.Call, cst.BaseExpression]],
        reached: Sequence[Module],
        device: bool,  # noqa: FBT001 - one fact of the program
        seen: dict[int, Any],
    ) -> Iterator[Trained]:
        """The models of the optimizers that one scope makes, which the walk comes to one after the other."""
        frames = [one for one in self.evaluator.calls.frames(module, scope) if started(one).module in reached]
        frame = next(iter(frames), None) or self.evaluator.calls.plain_frame(module, scope)
        asked: list[tuple[cst.Call, str, cst.BaseExpression | None, cst.BaseExpression]] = []
        for call, given in calls:
            by_settings = self._by_trainer.get(call) or self._zero.optimizer(call)
            models = [given] if by_settings else self._models(given)
            optimizer = by_settings or self._optimizer(call, frame, whole=bool(models))
            if optimizer and self.evaluator.where(call, frame):  # else nobody chooses it
                asked += [(call, optimizer, node, given) for node in models] or [(call, optimizer, None, given)]
        nodes = [node for _, _, node, _ in asked if node is not None]
        above = [whole for node in nodes for whole in _above(node)]
        values = dict(zip([*above, *nodes], self._building.values([*above, *nodes], frame), strict=True)) if nodes else {}
        for call, optimizer, node, given in asked:
            name = " ".join(module.code(node or given).split())
            count = LayerNumbers()
            made = values[node] if node is not None else None
            item, shards = (made.item, made.shards) if isinstance(made, Layer | Made) else (FLOAT, "")
            if node is not None and (item != FLOAT or not self._cast(reached, name)):
                count = self._of(node, made, frame, seen)
                if count == LayerNumbers() and isinstance(values[node], Layer | Made):
                    continue  # another one has them
            rest = [one for one in above if node is nodes[-1] and counted(values[one], seen.copy()) != LayerNumbers() and not isinstance(values[one], Missing)]
            if rest:
                count = count.plus(lacking(f"the rest of {module.code(rest[0])}"))
            if len(frames) > 1 and not count.missing:
                count = count.plus(lacking(name))
            copies, on_host, certain = self._copies.of(node, frame) if node is not None else (0, 0, True)
            state, few = self._state(optimizer, call, frame), _chosen(given)
            counted_as = _short(count, name)
            yield Trained(
                name,
                counted_as,
                optimizer,
                state,
                copies,
                device,
                module.place(call),
                frozen=few,
                host_copies=on_host,
                copied=certain,
                sharded=ALL_OF_IT if shards else frozenset(),
                on_host=ALL_OF_IT if shards == "host" else frozenset(),
                item=item,
            )

    def _untrained(self, reached: Sequence[Module], runs: Callable[[Place], bool], device: bool) -> Iterator[Trained]:  # noqa: FBT001 - as above
        """Models that nobody sees trained: those that are moved to a device, and those that the started file makes."""
        seen: dict[int, Any] = {}
        for module in reached:
            asked: dict[Scope, dict[cst.BaseExpression, cst.Call]] = {}
            for call, scope in module.walk.calls:
                moves = isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVES
                if device and moves and runs(module.place(call)):
                    asked.setdefault(scope, {})[cst.ensure_type(call.func, cst.Attribute).value] = call
                elif (
                    module is reached[0]
                    and any(not path for _, path in module.walk.bound_to(call))
                    and self._is_module(call, module, scope)
                    and runs(module.place(call))
                ):
                    asked.setdefault(scope, {})[call] = call
            for scope, calls in asked.items():
                frame = next(iter(self.evaluator.calls.frames(module, scope)), None) or self.evaluator.calls.plain_frame(module, scope)
                found = list(zip(calls, self._building.values(list(calls), frame), strict=True))
                for node, value in sorted(found, key=lambda one: one[0] is calls[one[0]]):  # what is moved first
                    count = counted(value, seen) if isinstance(value, Layer) or (isinstance(value, Made) and value.module) else LayerNumbers()
                    if count != LayerNumbers():
                        bound = [root for root, path in module.walk.bound_to(calls[node]) if not path]
                        name = bound[0] if bound else " ".join(module.code(node).split())
                        yield Trained(name, _short(count, name), "", 0, 0, node is not calls[node], module.place(calls[node]), item=value.item)

    def _is_module(self, call: cst.Call, module: Module, scope: Scope) -> bool:
        """Whether what a call makes is a module, or may be."""
        for alt in self.evaluator.plainly(call, module, scope)[:2]:
            if isinstance(alt.value, Instance):
                return self.evaluator.derives(alt.value.cls, "torch.nn.Module", "torch.nn.modules.module.Module")
            if isinstance(alt.value, ExternalCall):
                return names.canonical(alt.value.name).startswith("torch.nn.")
            if isinstance(alt.value, SourceExpression):
                return any(isinstance(one, cst.Call) and one is not call and self._is_module(one, module, scope) for one in _inner(call))
        return False

    def _optimizer(self, call: cst.Call, frame: Frame, *, whole: bool) -> str:
        """The class of an optimizer. One that torch does not have is one by its name and by what it is given: the parameters of a ``whole`` model."""
        found: set[str] = set()
        made = self.evaluator.values(call, frame)[:_MOST_CHOSEN]
        if whole and all(isinstance(alt.value, Unknown) for alt in made) and _steps(call, frame.module):
            return trainers.UNTOLD
        for alt in made:
            if isinstance(alt.value, ExternalCall):
                library, _, name = names.canonical(alt.value.name).rpartition(".")
                if library.startswith("torch.optim") and ("lr_scheduler" in library or "swa" in library):
                    return ""
                if library.startswith("torch.optim") or (whole and "optim" in library.lower()):
                    found.add(name)
            if isinstance(alt.value, Instance) and whole and self.evaluator.derives(alt.value.cls, "torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"):
                found.add(alt.value.cls.scope.name)
        return " or ".join(sorted(found))

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
        return [one.func.value for one in calls if isinstance(one.func, cst.Attribute) and one.func.attr.value in PARAMETERS]

    @staticmethod
    def _cast(reached: Sequence[Module], name: str) -> bool:
        """Whether a statement gives a model another type: ``model.half()``."""
        for call, _ in (one for module in reached for one in module.walk.calls):
            method = names.last_name(call.func)
            if method in _DEFAULTS:
                return True
            typed = method in {"to", "type"} and any(ITEM_BYTES.get(names.last_name(arg.value), FLOAT) != FLOAT for arg in call.args)
            if (method in CASTS_MODEL or typed) and names.dotted(call.func).rpartition(".")[0] == name:
                return True
        return False

    # -- counting ----------------------------------------------------------------------------------------------------------

    def _of(self, node: cst.BaseExpression, value: Any, frame: Frame, seen: dict[int, Any]) -> LayerNumbers:
        """The numbers of a model that are not in ``seen``. Where nobody can run what makes it, at least those that the whole program shows."""
        if not isinstance(value, Missing):
            return counted(value, seen)
        found = [counted(one) for one in self._building.alternatives(node, frame)]
        least = min(found, key=lambda one: one.numbers)
        rest = lacking(frame.module.code(node))
        return least.plus(rest) if least.numbers or least.kept else rest

    def _constant(self, node: cst.BaseExpression, frame: Frame) -> object:
        """A constant of a plain run; None where it is none."""
        found = [alt for alt in self.evaluator.values(node, frame) if not alt.reach]
        return found[0].value.value if found and isinstance(found[0].value, Const) else None


def _steps(call: cst.Call, module: Module) -> bool:
    """Whether what a call makes is told to make steps, as optimizers are: ``x = make(model.parameters())`` and ``x.step()``."""
    bound = {root + "".join(f".{key}" for _, key in path) for root, path in module.walk.bound_to(call)}
    return any(isinstance(one.func, cst.Attribute) and names.dotted(one.func.value) in bound for one, _ in module.calls_of(("step",)))


def _inner(call: cst.Call) -> list[cst.BaseExpression]:
    """What the methods in a chain are called on: ``Net()`` of ``Net().eval()``."""
    return [call.func.value] if isinstance(call.func, cst.Attribute) else []


def _short(count: LayerNumbers, name: str) -> LayerNumbers:
    """What a model has, with one name for what is missing where that is much, or all of it."""
    if count == LayerNumbers():
        return lacking(name)
    return replace(count, missing=lacking(f"the rest of {name}").missing) if len(count.missing) > _MOST_NAMED else count


def _above(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What the parts of something are parts of: of ``model.encoder.layers``, ``model`` and ``model.encoder``."""
    found: list[cst.BaseExpression] = []
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
        found.insert(0, node)
    return found


def _chosen(given: cst.BaseExpression) -> bool:
    """Whether an optimizer is given some of the parameters only."""
    nodes = [given, *descend(given)]
    return any(isinstance(one, cst.CompFor) and one.ifs for one in nodes) or any(
        isinstance(one, cst.Call) and names.last_name(one.func) == "filter" for one in nodes
    )
