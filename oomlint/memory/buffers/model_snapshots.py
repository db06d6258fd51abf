"""Copies of a model's parameters that a training loop puts into a container: ``snaps.append(copy.deepcopy(model.state_dict()))``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import JOINS
from oomlint.frameworks import LIGHTNING_MODULE
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import conditional_in, loops_around
from oomlint.memory.shared.training_loops import SHORT, rounds, trains, usual_rounds
from oomlint.model import names
from oomlint.model.flow_methods import APPENDS
from oomlint.model.lifetime import ended_in, is_capped, length_tests
from oomlint.model.loops import set_in
from oomlint.model.torch_tables import MODULE_NAME, OF_NUMBERS
from oomlint.model.values import Const, External, ExternalCall, Instance
from oomlint.patterns import pattern
from oomlint.syntax.nodes import descend, names_in, path_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.lifetime import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_COPIES = frozenset({"clone", "copy", "deepcopy", "cpu", "numpy"})
_CYCLES = pattern(r"cycle|//|swa|ensemble|milestone|checkpoint_epochs|save_epochs", re.IGNORECASE)
_DEEPEST = 3
_COUNTS = frozenset({"range", "trange", "count", "tqdm", "track"})
_MEMBERS = pattern(r"task|fold|client|user|member|seed|run|trial|ensemble|worker|agent|subject|split", re.IGNORECASE)
_ORDERS = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)


class Snapshot(Struct, frozen=True, eq=False):
    """A statement that keeps one more copy of a model in each round of a loop."""

    place: cst.CSTNode
    written: str  # what is copied
    container: str
    loop: Loop
    per: str  # what a round is called
    doubt: int
    improves: bool  # only rounds that are better than all before keep one


def snapshots(module: Module, project: Project) -> Iterator[Snapshot]:
    """Snapshots that a module keeps in training loops."""
    if not re.search(r"deepcopy|clone|\.copy\(|\.cpu\(|parameters_to_vector", module.source.text):
        return
    for scope in module.walk.scopes:
        if isinstance(scope.node, cst.Lambda | cst.ClassDef):
            continue
        for effects in list(scope.effects.values()):
            for effect in effects:
                found = _snapshot(module, project, effect, scope)
                if found is not None:
                    yield found


def _snapshot(module: Module, project: Project, effect: Effect, scope: Scope) -> Snapshot | None:
    kept = _kept(effect)
    if kept is None or next(loops_around(effect.statement, module, scope), None) is None:
        return None
    stored, path = kept
    finder = _Copies(module, project, scope)
    copied = finder.of(stored, 0)
    if copied is None:
        return None
    where = _loop(module, project, effect, path, copied, scope)
    if where is None:
        return None
    loop, per = where
    place = effect.call if effect.call is not None and isinstance(effect.statement, cst.Expr) else effect.statement
    container = module.code(effect.call.func.value if effect.call is not None and isinstance(effect.call.func, cst.Attribute) else _base(effect.node, module))
    doubt = finder.doubt + conditional_in(effect.statement, loop, module)
    return Snapshot(place, module.code(copied).strip(), container.strip(), loop, per, doubt, _improves(effect, loop, module))


def _base(node: cst.CSTNode, module: Module) -> cst.CSTNode:
    del module
    if isinstance(node, cst.AugAssign):
        return node.target
    return node.value if isinstance(node, cst.Subscript) else node


def _kept(effect: Effect) -> tuple[cst.BaseExpression, Path] | None:
    """What an effect puts into a container, and the container."""
    if effect.value is None:
        return None
    if effect.kind == "append" and effect.call is not None and names.last_name(effect.call.func) in APPENDS:
        return effect.value, (effect.root, effect.path)
    if effect.kind == "augment" and isinstance(effect.value, cst.List) and isinstance(effect.node, cst.AugAssign):
        return effect.value, (effect.root, effect.path)
    if effect.kind == "assign" and effect.path and effect.path[-1][0] == "item" and isinstance(effect.node, cst.Subscript) and not effect.index:
        if isinstance(effect.path[-1][1], str | int):
            return None  # one key: the next replaces it
        return effect.value, (effect.root, effect.path[:-1])
    return None


class _Copies:
    """Finds the copy of a model inside an expression."""

    def __init__(self, module: Module, project: Project, scope: Scope) -> None:
        self.module = module
        self.scope = scope
        self.evaluator = evaluator_of(project)
        self.frame = self.evaluator.calls.plain_frame(module, scope)
        self.doubt = 0

    def of(self, node: cst.BaseExpression, depth: int) -> cst.BaseExpression | None:
        """The model, or the ``state_dict()`` of it, that ``node`` is or holds a copy of."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, cst.Tuple | cst.List | cst.Dict):
            inner = (self.of(e.value, depth + 1) for e in node.elements if isinstance(e, cst.Element | cst.DictElement))
            return next((one for one in inner if one is not None), None)
        if isinstance(node, cst.DictComp):
            return self._state(node.for_in.iter) if self._copies(node.value) else None
        if isinstance(node, cst.ListComp):
            return self._state(node.for_in.iter) if self._copies(node.elt, only=frozenset({"clone", "deepcopy", "copy"})) else None
        if isinstance(node, cst.Call):
            return self._call(node, depth)
        if isinstance(node, cst.Name):
            found = [e.value for e in self.scope.effects.get(node.value, ()) if e.kind == "assign" and not e.path and not e.index and e.value is not None]
            return self.of(found[-1], depth + 1) if len(found) == 1 else None
        return None

    def _call(self, node: cst.Call, depth: int) -> cst.BaseExpression | None:
        name = names.last_name(node.func)
        if name == "deepcopy" and node.args and self._is("copy.deepcopy", node.func):
            inner = node.args[0].value
            return inner if self._is_model(inner) else self._state(inner)
        if name in {"dict", "OrderedDict"} and node.args and not node.args[0].star:
            return self.of(node.args[0].value, depth + 1) if isinstance(node.args[0].value, cst.DictComp) else None
        if name == "parameters_to_vector" and node.args and self._is("torch.nn.utils.parameters_to_vector", node.func):
            return self._state(node.args[0].value)
        rows = node.args[0].value if name in JOINS and node.args else None
        if isinstance(rows, cst.ListComp):
            return self._state(rows.for_in.iter)  # all of the parameters in one vector
        if name in {"cpu", "to", "eval", "half", "clone", "detach", "numpy"} and isinstance(node.func, cst.Attribute):
            return self.of(node.func.value, depth + 1)  # a copy that is moved
        return None

    def _is(self, wanted: str, func: cst.BaseExpression) -> bool:
        return any(isinstance(a.value, External) and a.value.name == wanted for a in self.evaluator.values(func, self.frame)[:3])

    def _copies(self, node: cst.BaseExpression, only: frozenset[str] = _COPIES) -> bool:
        return any(isinstance(n, cst.Call) and names.last_name(n.func) in only for n in descend(node))

    def _state(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """``m`` of ``m.state_dict().items()``, ``m.parameters()`` and their like, where it is a model or an optimizer."""
        while isinstance(node, cst.Call) and names.last_name(node.func) in {"items", "list", "values", "dict", "OrderedDict", "enumerate"}:
            node = node.args[0].value if node.args else node.func.value if isinstance(node.func, cst.Attribute) else node
            if isinstance(node, cst.Call) and not node.args and not isinstance(node.func, cst.Attribute):
                return None
        if isinstance(node, cst.Name):
            found = [e.value for e in self.scope.effects.get(node.value, ()) if e.kind == "assign" and not e.path and not e.index and e.value is not None]
            return self._state(found[0]) if len(found) == 1 and isinstance(found[0], cst.Call) else None
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return None
        name = node.func.attr.value
        if name == "state_dict" and not OF_NUMBERS.search(self.module.code(node.func.value)):
            return node
        if name in {"parameters", "named_parameters"} and self._is_model(node.func.value):
            return node
        return None

    def _is_model(self, node: cst.BaseExpression) -> bool:
        known = unknown = False
        for alt in self.evaluator.values(node, self.frame)[:4]:
            value = alt.value
            if isinstance(value, Instance):
                known = known or self.evaluator.derives(value.cls, "torch.nn.Module", LIGHTNING_MODULE)
            elif isinstance(value, ExternalCall):
                known = known or value.name.startswith(("torch.nn.", "torchvision.models.", "timm."))
                unknown = unknown or not value.name.startswith("builtins.")
            elif not isinstance(value, Const):
                unknown = True
        if known:
            return True
        word = names.last_name(node) if isinstance(node, cst.Name | cst.Attribute) else ""
        while isinstance(node, cst.Attribute) and word == "module":
            node = node.value
            word = names.last_name(node)
        if unknown and (MODULE_NAME.search(word) or self._has_parameters(node)):
            self.doubt = 1
            return True
        return False

    def _has_parameters(self, node: cst.BaseExpression) -> bool:
        """Whether the same scope asks the thing for its parameters."""
        code = self.module.code(node).strip()
        return any(
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value in {"parameters", "named_parameters", "load_state_dict", "state_dict"}
            and self.module.code(call.func.value).strip() == code
            for call in self.scope.calls
        )


def _loop(module: Module, project: Project, effect: Effect, path: Path, copied: cst.BaseExpression, scope: Scope) -> tuple[Loop, str] | None:
    """The training loop whose rounds each add a copy, and what a round is called."""
    for loop in loops_around(effect.statement, module, scope):
        # A population has a model of its own in each round.
        if (
            ended_in(path, loop, module, scope, {effect.statement})
            or _limited(path, loop, module, scope, evaluator_of(project))
            or _another_model(copied, loop, module, scope)
        ):
            return None
        most = rounds(project, loop, module, scope)
        usual = usual_rounds(project, loop, module, scope) if most is None and isinstance(loop, cst.For) else most
        if usual is not None and usual <= SHORT:
            continue  # `for phase in ("train", "val")`, or for three folds where nobody asks for more
        per = _per(module, project, loop, scope)
        if per is None or _rare(effect, loop, module, most) or not _key_changes(effect, loop, module, scope):
            return None
        return loop, per
    return None


def _per(module: Module, project: Project, loop: Loop, scope: Scope) -> str | None:
    """What a round of a training loop is called; ``None`` for loops over folds, clients, tasks."""
    if runs_of(project).epochs(loop, module, scope):
        return "epoch"
    if not trains(loop, module):
        return None
    if runs_of(project).over_batches(loop, module, scope):
        return "batch"
    counted = isinstance(loop, cst.While) or (
        names.last_name(loop.iter.func if isinstance(loop.iter, cst.Call) else loop.iter) in _COUNTS and not _MEMBERS.search(module.code(loop.target))
    )
    return "step" if counted else None


def _limited(path: Path, loop: Loop, module: Module, scope: Scope, evaluator: Evaluator) -> bool:
    """Whether the container itself has an end, ``deque(maxlen=5)``, or a round tests its length."""
    held = evaluator.resolve(path[0], path[1], evaluator.calls.plain_frame(module, scope), loop)
    return any(is_capped(alt.value) for alt in held) or any(names.within(test, loop, module) for test in length_tests(path, module, scope))


def _another_model(copied: cst.BaseExpression, loop: Loop, module: Module, scope: Scope) -> bool:
    for node in descend(copied):
        found = path_of(node) if isinstance(node, cst.Name | cst.Attribute | cst.Subscript) else None
        if found is None:
            continue
        for effect in scope.effects.get(found[0], ()):
            if effect.kind in {"assign", "for", "with"} and effect.path == found[1][: len(effect.path)] and names.within(effect.statement, loop, module):
                return True
    return False


def _rare(effect: Effect, loop: Loop, module: Module, most: int | None) -> bool:
    """Whether a test lets only a few of the rounds through."""
    child: cst.CSTNode = effect.statement
    for here in module.walk.ancestors(effect.statement):
        if here is loop:
            return False
        if isinstance(here, cst.If) and child is here.body:
            code = module.code(here.test)
            if _CYCLES.search(code):
                return True
            for node in descend(here.test):
                if isinstance(node, cst.Comparison) and any(isinstance(c.operator, cst.In) for c in node.comparisons):
                    return True
                if isinstance(node, cst.Comparison) and _in_one_round(node, loop):
                    return True
                if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo) and isinstance(node.right, cst.Integer):
                    every = int(node.right.evaluated_value)
                    if most is not None and every and most // every <= SHORT:
                        return True
        child = here
    return False


def _improves(effect: Effect, loop: Loop, module: Module) -> bool:
    """Whether a test lets only rounds through that beat a record, which the same branch sets: ``if score > best: best = score``."""
    scope = module.walk.scope_at(loop)
    child: cst.CSTNode = effect.statement
    for here in module.walk.ancestors(effect.statement):
        if here is loop:
            return False
        if isinstance(here, cst.If) and child is here.body:
            for test in descend(here.test):
                if not isinstance(test, cst.Comparison) or not isinstance(test.comparisons[0].operator, _ORDERS):
                    continue
                for record, score in ((test.left, test.comparisons[0].comparator), (test.comparisons[0].comparator, test.left)):
                    found = path_of(record)
                    sets = scope.effects.get(found[0], ()) if found is not None else ()
                    if any(
                        one.kind == "assign"
                        and one.path == found[1]
                        and one.value is not None
                        and one.value.deep_equals(score)
                        and names.within(one.statement, here.body, module)
                        for one in sets
                        if found is not None
                    ):
                        return True
        child = here
    return False


def _in_one_round(test: cst.Comparison, loop: Loop) -> bool:
    targets = names_in(loop.target) if isinstance(loop, cst.For) else set()
    equal = any(isinstance(c.operator, cst.Equal) for c in test.comparisons)
    modulo = any(isinstance(n, cst.BinaryOperation) and isinstance(n.operator, cst.Modulo) for n in descend(test.left))
    return equal and not modulo and uses_name(test, targets)


def _key_changes(effect: Effect, loop: Loop, module: Module, scope: Scope) -> bool:
    """Whether each round has a key of its own, where the container is a dictionary."""
    if effect.kind != "assign" or not isinstance(effect.node, cst.Subscript):
        return True
    return not set_in(loop, module.walk, scope).isdisjoint(names_in(effect.node.slice[0]))
