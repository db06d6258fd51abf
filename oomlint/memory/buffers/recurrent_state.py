"""Recurrent states: calls that take a state and give it back, and who lets go of its graph."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import SAME_MODEL
from oomlint.frameworks import LIGHTNING_MODULE
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.torch_tables import MODULE_NAME
from oomlint.model.values import ExternalCall, FunctionRef, Instance, SourceExpression, Unknown
from oomlint.syntax.nodes import descend, is_attribute_of, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

_PAIRS: Final = frozenset({"torch.nn.LSTM", "torch.nn.LSTMCell"})
_CELLS: Final = frozenset({"torch.nn.RNNCell", "torch.nn.GRUCell", "torch.nn.LSTMCell"})
_RECURRENT: Final = _PAIRS | _CELLS | {"torch.nn.RNN", "torch.nn.GRU"}
_MODULES: Final = ("torch.nn.Module", LIGHTNING_MODULE, "torch.nn.modules.module.Module")
# How a state is called; `state` alone is many things, so it counts only where the module that takes it is known.
_STATE: Final = re.compile(r"^_?([hc]|[hc]x|[hc]_?[0tn]|hc|hid|hidden\w*|\w+_hidden|hiddens|(rnn|lstm|gru)_states?|mems?|memory|memories|cell_state)$")
_ANY_STATE: Final = re.compile(rf"{_STATE.pattern}|^_?(prev_|last_)?states?$|_states?$|^cells?$")
_WRAPPERS: Final = frozenset({"compile", "DataParallel", "DistributedDataParallel", "script"})
_DEEPEST: Final = 4
_RELEASES: Final = frozenset({"detach", "detach_", "data", "no_grad", "inference_mode", "repackage_hidden", "stop_gradient"})


class RecurrentStep(Struct, frozen=True):
    """A call that takes a state and gives the next one: ``out, h = rnn(x, h)``."""

    statement: cst.Assign
    call: cst.Call
    states: tuple[str, ...]  # as they are written: ``h``, ``self.hidden``
    paths: tuple[tuple[str, tuple[Accessor, ...]], ...]
    shape: str  # "tensor", "tuple", "names" for several written one by one; empty where nobody knows
    known: bool  # whether the recurrent module was found


def steps_of(module: Module, scope: Scope, project: Project, matters: Callable[[cst.Assign, Iterable[str]], bool]) -> list[RecurrentStep]:
    """The recurrent calls of a scope, in order, where the statement and the states that it sets matter: what is called may be far away."""
    found: list[RecurrentStep] = []
    for call in scope.calls:
        statement = module.walk.parents.get(call)
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or len(call.args) < 2:  # noqa: PLR2004 - an input and a state
            continue
        states = _shared(statement, call, module)
        if not states or not matters(statement, states):
            continue
        step = _step(statement, call, states, module, scope, project)
        if step is not None:
            found.append(step)
    return found


def _shared(statement: cst.Assign, call: cst.Call, module: Module) -> dict[str, cst.BaseExpression]:
    """Names that the call takes, not as its input, and that the assignment sets; what a method of the class binds later to such an attribute counts too."""
    given: dict[str, cst.BaseExpression] = {}
    for number, arg in enumerate(call.args):
        if (number > 0 or arg.keyword is not None) and not arg.star:
            given.update((module.code(node), node) for node in _rows(arg.value) if _settable(node))
    target = statement.targets[0].target
    taken = {module.code(node): node for node in _rows(target) if _settable(node)}
    return {code: node for code, node in given.items() if code in taken}


def _settable(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name))


def _rows(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The names of a tuple or list, nested ones included; the node itself where it is none."""
    if isinstance(node, cst.Tuple | cst.List):
        return [inner for element in node.elements for inner in _rows(element.value)]
    return [node]


def _step(statement: cst.Assign, call: cst.Call, states: dict[str, cst.BaseExpression], module: Module, scope: Scope, project: Project) -> RecurrentStep | None:
    several = isinstance(statement.targets[0].target, cst.Tuple | cst.List)
    words = [path_of(node)[1][-1][1] if isinstance(node, cst.Attribute) else module.code(node) for node in states.values()]  # type: ignore[index]
    paths = tuple(path for node in states.values() if (path := path_of(node)) is not None)
    codes = tuple(states)
    for value in callees(call.func, module, scope, project):
        if isinstance(value, ExternalCall):
            kind = names.canonical(value.name)
            if not kind.startswith("torch.nn."):
                continue  # loaded or made by somebody else: judged by its name
            if kind not in _RECURRENT or (not several and kind not in _CELLS):
                return None
            return RecurrentStep(statement, call, codes, paths, "names" if len(codes) > 1 else "tuple" if kind in _PAIRS else "tensor", known=True)
        method = forward_of(value, project)
        if method is not None:
            taken = set(names.parameter_names(method.scope))
            like = any(_ANY_STATE.search(str(word)) for word in words) or any(_ANY_STATE.search(name) for name in taken)
            if not like or _lets_go(method, project):
                return None
            inside = _inside(method, project)
            if not several and not inside:
                return None
            return RecurrentStep(statement, call, codes, paths, "names" if len(codes) > 1 else inside, known=True)
        if not isinstance(value, Unknown):
            return None
    plain = isinstance(call.func, cst.Name) or (isinstance(call.func, cst.Attribute) and names.dotted(call.func).startswith("self."))
    if not several or not plain or not MODULE_NAME.search(names.last_name(call.func)) or not all(_STATE.search(str(word)) for word in words):
        return None
    return RecurrentStep(statement, call, codes, paths, "names" if len(codes) > 1 else "", known=False)


def callees(node: cst.BaseExpression, module: Module, scope: Scope, project: Project) -> list[Value]:
    """What a call may run, asked of the callers too where the function has it as a parameter."""
    calls = evaluator_of(project).calls
    found = modules_of(node, calls.plain_frame(module, scope), project)
    if not any(isinstance(value, Unknown) for value in found):
        return found
    return [value for frame in calls.frames(module, scope, most=4) for value in modules_of(node, frame, project)] or found


def modules_of(node: cst.BaseExpression, frame: Frame, project: Project, depth: int = 0) -> list[Value]:
    """What a callee can be, without what moves or wraps a module: ``.to(device)``, ``DataParallel(...)``, ``torch.compile(...)``."""
    found: list[Value] = []
    evaluator = evaluator_of(project)
    for alt in evaluator.values(node, frame)[:3]:
        value = alt.value
        inner: cst.BaseExpression | None = None
        where = value.frame if isinstance(value, ExternalCall | SourceExpression) else None
        if isinstance(value, ExternalCall) and value.call.args and value.name.rpartition(".")[2] in _WRAPPERS:
            inner = value.call.args[0].value
        elif isinstance(value, SourceExpression) and isinstance(value.node, cst.Call) and isinstance(value.node.func, cst.Attribute):
            inner = value.node.func.value if value.node.func.attr.value in SAME_MODEL else None
        if inner is not None and where is not None and depth < _DEEPEST:
            found.extend(modules_of(inner, where, project, depth + 1))
        else:
            found.append(value)
    return found


def forward_of(value: object, project: Project) -> FunctionRef | None:
    """The method of an own module that a call runs."""
    evaluator = evaluator_of(project)
    if isinstance(value, Instance) and evaluator.derives(value.cls, *_MODULES):
        return evaluator.method(value, "forward")
    if isinstance(value, FunctionRef) and value.this is not None and evaluator.derives(value.this.cls, *_MODULES):
        return value
    return None


def bodies_of(method: FunctionRef, project: Project) -> list[FunctionRef]:
    """The method and the methods of the same object that it calls."""
    evaluator = evaluator_of(project)
    found = [method]
    for place in range(8):
        if place >= len(found):
            break
        here = found[place]
        own = names.self_name(here.scope)
        for call in here.scope.calls:
            if is_attribute_of(call.func, own) and method.this is not None:
                other = evaluator.method(method.this, call.func.attr.value)
                if other is not None and all(other.scope is not known.scope for known in found):
                    found.append(other)
    return found


def _lets_go(method: FunctionRef, project: Project) -> bool:
    """Whether the module cuts the graph itself."""
    for body in bodies_of(method, project):
        for node in descend(body.scope.node):
            if isinstance(node, cst.Attribute | cst.Call | cst.Decorator) and _word(node) in _RELEASES and body.scope.name not in {"init_hidden", "initHidden"}:
                return True
    return False


def _word(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    if isinstance(node, cst.Decorator):
        return names.last_name(node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator)
    return names.last_name(node.func) if isinstance(node, cst.Call) else ""


def _inside(method: FunctionRef, project: Project) -> str:
    """What the state of an own module is, by the recurrent module that it runs."""
    evaluator = evaluator_of(project)
    kinds: set[str] = set()
    for body in bodies_of(method, project):
        frame = evaluator.calls.plain_frame(body.module, body.scope)
        for call in body.scope.calls:
            for value in modules_of(call.func, frame, project):
                if isinstance(value, ExternalCall) and (kind := names.canonical(value.name)) in _RECURRENT:
                    kinds.add("tuple" if kind in _PAIRS else "tensor")
    return kinds.pop() if len(kinds) == 1 else ""
