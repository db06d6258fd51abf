"""Tensors that a module keeps from pass to pass, and that its forward pass writes with the graph of what it computes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import AttributeFact, Confidence, Fix, Message, Role, Safety, StoreFact, StoreKind, Told
from oomlint.memory.buffers.recurrent_state import bodies_of
from oomlint.memory.datasets.serving import Serving
from oomlint.memory.fixes.growth_fixes import suffixed
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.freezing import frozen_by, switches_gradients
from oomlint.model.tensor_state import Graph, Mode, ValueKind
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance
from oomlint.scout.telling_names import IN_PLACE, STATES
from oomlint.syntax.nodes import descend, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Record, Store
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_ONCE: Final = frozenset({"__init__", "__setstate__"})
_ANY: Final = "*"  # an attribute whose name is computed
_CUTS: Final = frozenset({"detach_", "set_"})


def written_states(module: Module, project: Project) -> Iterator[Told]:
    """Statements of a module that write such a tensor; one case a statement, with those of the same function behind the first."""
    if holds_tests(module):
        return
    told: dict[Scope, list[tuple[str, Store, ClassRef]]] = {}
    for cls, forward in _forwards(module, project):
        for name, store in _stores(cls, forward, project):
            cases = told.setdefault(store.scope, [])
            if store.module is module and all(store.node is not other.node for _, other, _ in cases):
                cases.append((name, store, cls))
    for cases in told.values():
        cases.sort(key=lambda case: module.tree.span(case[1].node))
        if cases:
            name, store, cls = cases[0]
            name = "" if name == _ANY else name
            what, place = f"`self.{name}`" if name else "a buffer", module.place(store.node)
            message = Message(f"Each forward pass writes {what} without detaching", "it keeps the graphs of all earlier passes")
            facts = (StoreFact(place, f"self.{name}", StoreKind.ASSIGN), AttributeFact(name, cls.scope.name, place=place))
            related = tuple(module.place(other.node).saying("also here", Role.AGAIN) for _, other, _ in cases[1:])
            yield Told(place, message, confidence=Confidence.MEDIUM, related=related, fix=_fix(cases, module, project), facts=facts)


def _forwards(module: Module, project: Project) -> Iterator[tuple[ClassRef, Scope]]:
    """Forward passes of a module's classes of networks that, or whose classes, may write something of the object in place."""
    evaluator = evaluator_of(project)
    for scope in module.walk.scopes:
        forward = scope.child("forward") if scope.is_class else None
        if forward is None or not isinstance(forward.node, cst.FunctionDef):
            continue
        cls = ClassRef(module, scope)
        makers = [one.scope for one in evaluator.line(cls) if _makes_some(one.scope)]
        methods = [method for one in makers for method in one.children if method.is_function and method.name not in _ONCE]
        reached = {body.scope for body in bodies_of(FunctionRef(module, forward, Instance(cls, None)), project)}
        if any(_may_write(method) for method in methods if method in reached) and any(
            isinstance(base, External) and base.name.startswith("torch.nn.") for base in evaluator.lineage(cls)
        ):
            yield cls, forward


def _makes_some(cls: Scope) -> bool:
    """Whether a class itself makes a tensor that it may keep."""
    for method in cls.children:
        if any(names.last_name(call.func) == "register_buffer" for call in method.calls):
            return True
        own = names.self_name(method) if method.is_function and method.name in _ONCE else None
        if any(isinstance(e.value, cst.Call) and names.last_name(e.value.func) in STATES for e in method.effects.get(own or "", ())):
            return True
    return False


def _may_write(method: Scope) -> bool:
    """Whether a method writes into what its object holds."""
    own = names.self_name(method) or ""
    if any(effect.path and (effect.kind == "augment" or effect.path[-1][0] == "item" or _adds(effect)) for effect in method.effects.get(own, ())):
        return True
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in IN_PLACE and _root(call.func) == own for call in method.calls)


def _adds(effect: Effect) -> bool:
    """Whether an attribute is set to something that is computed of itself."""
    parts = descend(effect.value) if effect.kind == "assign" and effect.value is not None and effect.path else ()
    return any(isinstance(part, cst.Attribute) and part.attr.value == effect.path[0][1] for part in parts)


def _detaches(effect: Effect) -> bool:
    """Whether what an attribute is set to was cut off."""
    return effect.value is not None and "detach" in _words(effect.value)


def _root(node: cst.BaseExpression) -> str:
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def _stores(cls: ClassRef, forward: Scope, project: Project) -> Iterator[tuple[str, Store]]:
    """Writes of a forward pass into tensors that the class makes once, each with a graph that nothing cuts."""
    record = runs_of(project).step(cls.module, forward)
    own = (0, names.self_name(forward))
    for store in (*(one for one in record.stores if one.kind == "augment"), *record.writes):
        if store.mode is Mode.OFF or store.value.carries is not Graph.YES or store.before.kind is ValueKind.PACK or store.path[:1] != (own,):
            continue
        name = store.path[1] if len(store.path) > 1 else None
        if (
            isinstance(name, str)
            and not _spared(store)
            and (store.tests or project.shared(Serving).project_trains(cls.module))
            and _is_state(store, name, project)
            and not _cut(cls, name, project)
            and not _of_frozen(cls, store, record, project)
        ):
            yield name, store


def _of_frozen(cls: ClassRef, store: Store, record: Record, project: Project) -> bool:
    """Whether all the modules that gave what is written may be frozen: none of their parameters asks for gradients, so there is no graph."""
    sources = store.value.all_sources
    passed = {names.last_name(e.node.func) for e in record.forwards if id(e.node) in sources and isinstance(e.node, cst.Call)}
    if not passed:
        return False
    for module in project.mentioning((b"requires_grad",), cls.module.path):
        frozen = set(_frozen(module.walk.module))
        if not frozen:
            continue
        for one in evaluator_of(project).line(cls):
            for method in one.scope.children:
                effects = method.effects.get(names.self_name(method) or "", ()) if method.is_function else ()
                for effect in effects:
                    if effect.kind == "assign" and len(effect.path) == 1 and effect.value is not None and (one.module is module):
                        words = names_in(effect.value)
                        if words & frozen or any(switches_gradients(part) for part in descend(effect.value)):
                            frozen.add(str(effect.path[0][1]))
        passed -= frozen
    return not passed


def _frozen(tree: cst.Module) -> Iterator[str]:
    """Last names of what is frozen in a file: by `x.requires_grad_(False)`, or in a loop over `x.parameters()`."""
    for node in descend(tree):
        frozen = frozen_by(node)
        if frozen is not None:
            yield names.last_name(frozen)


def _spared(store: Store) -> bool:
    """Whether the write goes past autograd (`x.data[:] = y`), or a test other than that of the mode of training may leave it out."""
    if store.way is not None and any(isinstance(part, cst.Attribute) and part.attr.value in {"data", "detach"} for part in descend(store.way)):
        return True
    return any(not _of_training(branch, store.module) for branch in store.tests)


def _of_training(branch: cst.CSTNode, module: Module) -> bool:
    """Whether a branch is the first one of `if self.training:`."""
    above = module.walk.parents.get(branch)
    return isinstance(above, cst.If) and above.body is branch and isinstance(above.test, cst.Attribute) and above.test.attr.value == "training"


def _is_state(store: Store, name: str, project: Project) -> bool:
    """Whether an attribute is a tensor that the class of the method which writes it makes when it is built: a buffer, or what a function of torch gives."""
    evaluator = evaluator_of(project)
    for method in store.scope.parent.children if store.scope.parent is not None and store.scope.parent.is_class else ():
        own = names.self_name(method) if method.is_function else None
        for call in method.calls if own else ():
            if names.last_name(call.func) == "register_buffer" and call.args and _root(call.func) == own and _called(call.args[0].value, name):
                return True
        for effect in method.effects.get(own or "", ()) if method.name in _ONCE else ():
            if effect.kind == "assign" and effect.path == (("attr", name),) and effect.value is not None:
                found = evaluator.plainly(effect.value, store.module, method)
                if found and all(isinstance(alt.value, ExternalCall) and _makes_state(alt.value.name) for alt in found):
                    return True
    return False


def _makes_state(function: str) -> bool:
    return function.startswith("torch.") and function.removeprefix("torch.") in STATES


def _called(given: cst.BaseExpression, name: str) -> bool:
    """Whether a buffer is registered under a name; any computed one may be it where the attribute is computed as well."""
    if isinstance(given, cst.SimpleString):
        return given.raw_value == name
    return name == _ANY


def _cut(cls: ClassRef, name: str, project: Project) -> bool:
    """Whether somebody makes the attribute again, or cuts its graph off, after the class was built."""
    if name == _ANY:
        return False
    for one in evaluator_of(project).line(cls):
        for method in one.scope.children:
            own = names.self_name(method) if method.is_function and method.name not in _ONCE else None
            if own is None:
                continue
            if any(e.kind in {"assign", "delete"} and e.path == (("attr", name),) and (not _adds(e) or _detaches(e)) for e in method.effects.get(own, ())):
                return True
            if any(names.last_name(call.func) in _CUTS and name in _words(call.func) for call in method.calls):
                return True
    if any(_cuts_buffers(module.walk.module) for module in project.mentioning((b"buffers(", b"detach_("), cls.module.path)):
        return True
    pattern = re.compile(rb"(?<!self)\.%s(\.(%s)\(|\s*=(?!=))" % (re.escape(name.encode()), b"|".join(sorted(word.encode() for word in _CUTS))))
    return any(pattern.search(module.source.text.encode()) for module in project.mentioning((name.encode(),), cls.module.path))


def _cuts_buffers(tree: cst.Module) -> bool:
    """Whether a file cuts off all buffers of a module: `for buffer in model.buffers(): buffer.detach_()`."""
    return any(
        isinstance(node, cst.For)
        and any(isinstance(part, cst.Attribute) and part.attr.value in {"buffers", "named_buffers"} for part in descend(node.iter))
        and any(isinstance(part, cst.Call) and names.last_name(part.func) in _CUTS for part in descend(node.body))
        for node in descend(tree)
    )


def _words(node: cst.BaseExpression) -> set[str]:
    return {part.attr.value for part in descend(node) if isinstance(part, cst.Attribute)}


def _fix(cases: list[tuple[str, Store, ClassRef]], module: Module, project: Project) -> Fix | None:
    """What is written loses its graph first; ``None`` where that cannot be told from the arguments of a method, only told where the pass may use the graph."""
    edits = []
    for _, store, _ in cases:
        node = store.node
        if isinstance(node, cst.Assign | cst.AugAssign):
            edits += suffixed(module, node.value, ".detach()")
        elif isinstance(node, cst.Call) and len(node.args) == 1:
            edits += suffixed(module, node.args[0].value, ".detach()")
        else:
            return None
    if any(_used_later(name, store, [other.node for _, other, _ in cases], project) for name, store, _ in cases):
        return Fix(Safety.DISPLAY, "detach the old value, and keep the graph of what this pass adds")
    return Fix(Safety.UNSAFE, "detach the value before it is written", tuple(edits))


def _used_later(name: str, store: Store, writes: list[cst.CSTNode], project: Project) -> bool:
    """Whether the gradient of the loss may go through what is written: the value of the statement is used, or the attribute is read behind it."""
    walk = store.module.walk
    if name == _ANY or (isinstance(store.node, cst.Assign) and len(store.node.targets) > 1):
        return True
    above = walk.parents.get(store.node)
    while isinstance(above, cst.Attribute | cst.Call):
        above = walk.parents.get(above)
    if not isinstance(above, cst.Expr | cst.SimpleStatementLine | cst.IndentedBlock):
        return True
    for module in project.mentioning((name.encode(),), store.module.path):
        for node in descend(module.walk.module):
            if not isinstance(node, cst.Attribute) or node.attr.value != name or isinstance(module.walk.parents.get(node), cst.AssignTarget):
                continue
            ancestors = list(module.walk.ancestors(node))
            if any(one in writes for one in ancestors) or any(one in ancestors for write in writes for one in _chain(write, module)):
                continue
            scope = module.walk.scope_at(node)
            ahead = scope is store.scope and module.tree.span(node) < module.tree.span(store.node) and not _repeated(store, module)
            if not ahead and scope.name not in _ONCE:
                return True
    return False


def _chain(write: cst.CSTNode, module: Module) -> list[cst.CSTNode]:
    """The calls that a call is chained to: `self.x.mul_(m).add_(y)`."""
    above = module.walk.parents.get(write)
    found: list[cst.CSTNode] = []
    while isinstance(above, cst.Attribute | cst.Call):
        found.append(above)
        above = module.walk.parents.get(above)
    return found


def _repeated(store: Store, module: Module) -> bool:
    return any(isinstance(one, cst.For | cst.While) for one in module.walk.ancestors(store.node))
