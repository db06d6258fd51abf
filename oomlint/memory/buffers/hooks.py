"""Hooks of modules and tensors: where they are registered, what they run, and what they put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import LOOKS, PUTS_IN, REDUCTIONS, SCALARS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.seen_axes import SAME_AXES
from oomlint.model import arguments, names
from oomlint.model.events import Hooked
from oomlint.model.readings import AnswerMemory
from oomlint.model.torch_tables import PLAIN_ATTRIBUTES, PLAIN_METHODS
from oomlint.model.values import Bound, FunctionRef, Partial
from oomlint.syntax.nodes import names_in, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

REGISTERS: Final = frozenset(
    "register_forward_hook register_forward_pre_hook register_backward_hook register_full_backward_hook register_full_backward_pre_hook register_hook "
    "register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook register_post_accumulate_grad_hook".split(),
)
_SMALL_CALLS: Final = PLAIN_METHODS | {"type", "memory_allocated", "time", "perf_counter"}
_PASSES_ON: Final = SAME_AXES | {"abs", "data", "square", "pow", "sqrt"}
_DEEPEST: Final = 6
_FORWARD: Final = "register_forward_hook"
_DEEPEST_PLACE: Final = 2  # attributes on the way to a container


class Hook(Struct, frozen=True):
    """A function that a registration installs."""

    module: Module
    scope: Scope
    made_by: cst.Call | None = None  # the call of the factory that returned it


class HookStore(Struct, frozen=True):
    """A statement of a hook that puts something into a container from outside."""

    hook: Hook
    node: cst.CSTNode  # the call, or the augmented assignment
    value: cst.BaseExpression
    root: str
    path: tuple[Accessor, ...]  # without the keys behind the container

    @property
    def attribute(self) -> str:
        """The name of the attribute that holds the container; empty where a name does."""
        return str(self.path[-1][1]) if self.path else ""


def registrations(module: Module) -> Iterator[tuple[cst.Call, Scope, cst.BaseExpression]]:
    """Calls that register a hook, with what they are given."""
    for call, scope in module.walk.calls:
        word = names.last_name(call.func)
        if word not in REGISTERS or not (isinstance(call.func, cst.Attribute) or word.startswith("register_module_")):
            continue
        given = arguments.argument_for(call, "hook", place=0)
        if given is not None:
            yield call, scope, given


def hooks_of(given: cst.BaseExpression, module: Module, scope: Scope, project: Project) -> list[Hook]:
    """The functions that an argument stands for: a lambda, a function, a method, what a factory returns."""
    if isinstance(given, cst.Lambda):
        return [Hook(module, module.walk.scope_of[given])]
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    found = [Hook(f.module, f.scope) for f in map(_function, (a.value for a in evaluator.values(given, frame)[:3])) if f is not None]
    if not isinstance(given, cst.Call):
        return found
    for factory in [f for f in map(_function, (a.value for a in evaluator.values(given.func, frame)[:3])) if f is not None]:
        for inner in factory.scope.children:
            returned = any(r.value is inner.node or (isinstance(r.value, cst.Name) and r.value.value == inner.name) for r in factory.scope.returns)
            if returned and inner.is_function:
                found = [hook for hook in found if hook.scope is not inner]
                found.append(Hook(factory.module, inner, given))
    return found


class Hooks:
    """The containers that the forward hooks of a file fill. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._filled: AnswerMemory[str, tuple[Hooked, ...]] = AnswerMemory(project.readings)

    def of(self, module: Module) -> tuple[Hooked, ...]:
        """What a pass of a module puts aside by the hooks of a file."""
        return self._filled.answer(module.path, lambda: tuple(self._find(module)) if _FORWARD in module.source.text else ())

    def _find(self, module: Module) -> Iterator[Hooked]:
        for call, scope, given in registrations(module):
            for hook in hooks_of(given, module, scope, self.project) if names.last_name(call.func) == _FORWARD else ():
                for stored in stored_by(hook, keys=True):
                    home = _home(hook.scope, stored.root)
                    words = names_in(stored.value)
                    if hook.module is module and home is not None and home.is_class == bool(stored.path) and len(stored.path) < _DEEPEST_PLACE:
                        name = stored.attribute or stored.root
                        yield Hooked(home, name, detached=bool(words & {"detach", "data"}), on_host=bool(words & {"cpu", "numpy"}))


def _home(hook: Scope, root: str) -> Scope | None:
    """The function, or file, that a name of a hook belongs to; the class, where it is the object."""
    here: Scope | None = hook
    while here is not None:
        if names.self_name(here) == root:
            return here.parent
        if here is not hook and here.sets(root):
            return here
        here = here.parent
    return None


def _function(value: Value) -> FunctionRef | None:
    if isinstance(value, Partial):
        return _function(value.func)
    return value if isinstance(value, FunctionRef) else None


def stored_by(hook: Hook, *, keys: bool = False) -> Iterator[HookStore]:
    """What the hook appends to containers that are not its own, or puts there under ``keys``, where it may be a tensor."""
    scope = hook.scope
    for node in scope.nodes(inner=False):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in PUTS_IN and node.args:
            target, value = node.func.value, node.args[-1].value
        elif isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign) and isinstance(node.value, cst.List) and node.value.elements:
            target, value = node.target, node.value.elements[0].value
        elif keys and isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Subscript):
            target, value = node.targets[0].target.value, node.value
        else:
            continue
        path = path_of(target)
        if path is None or not _is_outside(path[0], scope) or is_small(value, scope) or not _is_of_hook(value, scope):
            continue
        attributes = tuple(step for step in path[1] if step[0] == "attr")
        yield HookStore(hook, node, value, path[0], attributes)


def _data(scope: Scope) -> set[str]:
    """Parameters that carry tensors: all but the object and the module."""
    params = names.parameter_names(scope)
    own = names.self_name(scope)
    rest = [p for p in params if p != own]
    return set(rest[1:] if len(rest) > 1 else rest)


def _is_outside(root: str, scope: Scope) -> bool:
    """Whether the name is not a local of the hook: the object, the module, or of a scope around."""
    if root in scope.outer | scope.enclosing or root == names.self_name(scope):
        return True
    params = names.parameter_names(scope)
    return not scope.sets(root) and root not in params


def _is_of_hook(node: cst.BaseExpression, scope: Scope, depth: int = 0) -> bool:
    """Whether the value comes from what the hook is given."""
    used = names_in(node)
    if used & _data(scope):
        return True
    if depth >= _DEEPEST:
        return False
    return any(
        e.value is not None and _is_of_hook(e.value, scope, depth + 1)
        for name in used
        for e in scope.effects.get(name, ())
        if not e.path and e.kind == "assign"
    )


def is_small(node: cst.BaseExpression, scope: Scope, depth: int = 0) -> bool:
    """Whether a value is a number, a shape or a tensor of one element."""
    if isinstance(node, cst.Name):
        values = [e.value for e in scope.effects.get(node.value, ()) if e.kind == "assign" and not e.path and e.value is not None]
        return bool(values) and depth < _DEEPEST and all(is_small(value, scope, depth + 1) for value in values)
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString | cst.FormattedString | cst.Comparison | cst.BooleanOperation):
        return True
    if isinstance(node, cst.Attribute):
        return node.attr.value in PLAIN_ATTRIBUTES or (node.attr.value in _PASSES_ON and is_small(node.value, scope, depth))
    if isinstance(node, cst.Subscript):
        return is_small(node.value, scope, depth)
    if isinstance(node, cst.BinaryOperation):
        return is_small(node.left, scope, depth) and is_small(node.right, scope, depth)
    if isinstance(node, cst.Tuple | cst.List):
        return all(is_small(e.value, scope, depth) for e in node.elements)
    if isinstance(node, cst.Dict):
        return all(is_small(e.value, scope, depth) for e in node.elements)
    if not isinstance(node, cst.Call):
        return False
    word = names.last_name(node.func)
    if isinstance(node.func, cst.Name):
        return word in SCALARS | LOOKS
    if word in _SMALL_CALLS:
        return True
    owner = node.func.value if isinstance(node.func, cst.Attribute) else None
    if word in REDUCTIONS:
        library = isinstance(owner, cst.Name) and owner.value in {"torch", "np", "numpy", "F"}
        return len(node.args) <= 1 if library else not node.args
    return word in _PASSES_ON and owner is not None and is_small(owner, scope, depth)


def container_of(stored: HookStore, module: Module, scope: Scope, project: Project) -> tuple[Scope, str] | None:
    """Scope and name of a container that a name holds, through the factory's parameter where the hook has it from there."""
    root, hook = stored.root, stored.hook
    if hook.made_by is not None and hook.scope.parent is not None:
        maker = hook.scope.parent
        if root in names.takes(maker):
            bound = (Bound(tuple(hook.made_by.args), evaluator_of(project).calls.plain_frame(module, scope), hook.made_by),)
            given = arguments.given_to(maker, root, bound)
            node = given.node.value if given is not None else None
            while isinstance(node, cst.Subscript):
                node = node.value
            if not isinstance(node, cst.Name):
                return None
            return _bound_at(node.value, scope)
    return _bound_at(root, hook.scope.parent) if hook.module is module else None


def _bound_at(name: str, scope: Scope | None) -> tuple[Scope, str] | None:
    """The scope, from the inside out, that binds the name to a value of its own."""
    while scope is not None:
        if not scope.is_class and scope.sets(name) and name not in scope.outer:
            return scope, name
        if name in names.takes(scope):
            return None  # somebody else's container
        scope = scope.parent
    return None
