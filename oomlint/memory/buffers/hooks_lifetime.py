"""How long hooks and their containers live: who clears, who removes, and how often the hook runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, STACKS
from oomlint.frameworks import LIGHTNING_MODULE
from oomlint.memory.buffers.hooks import container_of
from oomlint.memory.buffers.step_lists import emptied
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import records_graph, runs_of
from oomlint.memory.shared.loop_kinds import changes_in, conditional_in, loops_around
from oomlint.memory.shared.training_loops import trains
from oomlint.model import arguments, names
from oomlint.model.lifetime import How, endings_by_name, is_capped
from oomlint.model.values import Bound, ClassRef, Instance
from oomlint.syntax.nodes import names_in, path_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.buffers.hooks import HookStore
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

Loop = cst.For | cst.While

_JOINS: Final = STACKS | AS_ARRAY | {"save", "dump", "DataFrame"}
_HOOK_TABLES: Final = re.compile(r"\._(forward|backward|forward_pre)_hooks\b|remove_(all_)?hooks|remove_handles|clear_hooks")


def removed(call: cst.Call, module: Module) -> bool:
    """Whether somebody may take the hook away: its handle is kept and a ``remove()`` is called, handed out, or managed by ``with``."""
    holder = module.walk.parents.get(call)
    if isinstance(holder, cst.WithItem | cst.Return):
        return True
    if _HOOK_TABLES.search(module.source.text):
        return True
    if isinstance(holder, cst.Expr) or (isinstance(holder, cst.Lambda) and holder.body is call):
        return False
    target = _kept_as(call, module)
    if isinstance(target, cst.Name) and target.value == "_":
        return False
    if any(names.last_name(other.func) in {"remove", "close", "enter_context", "callback"} and not _is_list_remove(other) for other, _ in module.walk.calls):
        return True
    # A handle that leaves the function may be removed by whoever gets it.
    scope = module.walk.scope_at(call)
    name = target.value if isinstance(target, cst.Name) else None
    return name is None or any(r.value is not None and name in names_in(r.value) for r in scope.returns) or scope.yields


def _kept_as(call: cst.Call, module: Module) -> cst.CSTNode | None:
    statement = module.walk.statement_of(call)
    return statement.targets[0].target if isinstance(statement, cst.Assign) and statement.value is call else None


def _is_list_remove(call: cst.Call) -> bool:
    return names.last_name(call.func) == "remove" and bool(call.args)


def is_round(loop: cst.CSTNode, module: Module, scope: Scope, project: Project) -> bool:
    """Whether a loop runs the model again and again: epochs, batches of a loader, steps of an optimizer."""
    if not isinstance(loop, cst.For | cst.While):
        return False
    runs = runs_of(project)
    return runs.epochs(loop, module, scope) or trains(loop, module) or runs.over_batches(loop, module, scope)


def loops_in(scope: Scope) -> Iterator[Loop]:
    """Loops of a scope, nested ones after those around them."""
    for node in scope.nodes(inner=False):
        if isinstance(node, cst.For | cst.While):
            yield node


# -- containers --------------------------------------------------------------------------------------------------------------


def grows(stored: HookStore, call: cst.Call, module: Module, scope: Scope, project: Project) -> cst.CSTNode | None:
    """The loop (or class) over which the container grows; ``None`` where it is bounded, or nobody knows."""
    if isinstance(stored.node, cst.Call) and names.last_name(stored.node.func) == "update":
        return None  # the same keys in each pass
    if stored.attribute:
        return _attribute_grows(stored, call, module, scope, project)
    found = container_of(stored, module, scope, project)
    if found is None:
        return None
    owner, name = found
    born = [e for e in owner.effects.get(name, ()) if e.kind == "assign" and not e.path]
    evaluator = evaluator_of(project)
    if any(is_capped(alt.value) for e in born if e.value is not None and not e.index for alt in evaluator.plainly(e.value, module, owner)):
        return None
    row = module.tree.span(call)[0]
    for where in {owner, scope}:
        for loop in loops_in(where):
            after = module.tree.span(loop)[0] > row or loop in module.walk.ancestors(call)
            if not after or not is_round(loop, module, where, project) or any(names.within(e.statement, loop, module) for e in born):
                continue
            if _cleared(name, owner, born, module, project):
                return None
            if _collected(stored, name, loop, where, module, project):
                return None
            return loop
    return None


def _cleared(name: str, owner: Scope, born: list[Effect], module: Module, project: Project) -> bool:
    """Whether anybody empties or replaces the container, or what it holds; a key that is set up once ends nothing."""
    for ending in endings_by_name(name, owner, module, evaluator_of(project)):
        again = ending.how is not How.PART or any(isinstance(here, Loop) for here in ending.module.walk.ancestors(ending.statement))
        if again and not any(ending.statement is effect.statement for effect in born[:1]):
            return True
    return False


def _collected(stored: HookStore, name: str, loop: Loop, scope: Scope, module: Module, project: Project) -> bool:
    """Whether the container is meant to hold the whole pass, without graph, and is put together behind the loop."""
    code = stored.hook.module.code(stored.hook.scope.node)
    free = re.search(r"detach|\.data\b|numpy|no_grad", code) is not None or not records_graph(loop.body, module, scope, project)
    if not free:
        return False
    end = module.tree.span(loop)[2]
    for call in scope.calls:
        if module.tree.span(call)[0] > end and names.last_name(call.func) in _JOINS and name in {name for a in call.args for name in names_in(a.value)}:
            return True
    return any(r.value is not None and name in names_in(r.value) for r in scope.returns)


def _attribute_grows(stored: HookStore, call: cst.Call, module: Module, scope: Scope, project: Project) -> cst.CSTNode | None:
    """The loop over which a list on ``self`` grows: where the object is made, or inside its methods."""
    cls = _class_of(stored)
    if cls is None or stored.hook.module is not module or len(stored.path) != 1:
        return None
    evaluator = evaluator_of(project)
    made_as = evaluator.attribute(Instance(ClassRef(module, cls), None), stored.attribute, ())
    if emptied(project, ClassRef(module, cls), stored.attribute) or any(is_capped(alt.value) for alt in made_as):
        return None
    for method in cls.children:
        for loop in loops_in(method):
            if is_round(loop, module, method, project) and not names.within(call, loop, module):
                return loop
    if scope.parent is not cls:
        return None
    for this in evaluator.calls.instances(module, cls)[:6]:
        if this.call is None or this.at is None:
            continue
        made, place = this.at.module, this.at.scope
        for loop in loops_in(place):
            if made.tree.span(loop)[0] > made.tree.span(this.call)[0] and is_round(loop, made, place, project):
                return loop if made is module else cls.node
    runs = evaluator.derives(ClassRef(module, cls), "torch.nn.Module", LIGHTNING_MODULE) and cls.child("forward") is not None
    return cls.node if runs else None


def _class_of(stored: HookStore) -> Scope | None:
    """The class whose object holds the container: the hook is its method, or a function inside one."""
    scope: Scope | None = stored.hook.scope
    while scope is not None:
        if names.self_name(scope) == stored.root:
            return scope.parent
        scope = scope.parent
    return None


# -- registrations -----------------------------------------------------------------------------------------------------------


def registered_again(call: cst.Call, module: Module, scope: Scope, project: Project) -> Loop | None:
    """The loop that registers the same hook on the same module once more in each round."""
    if not isinstance(call.func, cst.Attribute):
        return None
    receiver: list[cst.BaseExpression] = [call.func.value]
    for loop in loops_around(call, module, scope):
        if isinstance(loop, cst.For):
            targets = names_in(loop.target)
            if any(uses_name(node, targets) for node in receiver):
                if is_round(loop, module, scope, project):
                    return None  # a tensor or module of this very round
                receiver = [loop.iter]
                continue
        if is_round(loop, module, scope, project) and not conditional_in(call, loop, module) and not changes_in(receiver, loop, module, scope):
            return loop
    return None


def registered_by_calls(call: cst.Call, module: Module, scope: Scope, project: Project) -> tuple[Module, cst.Call] | None:
    """The call in a loop of a function that registers a hook on a module which the loop does not change."""
    if not isinstance(call.func, cst.Attribute) or not isinstance(scope.node, cst.FunctionDef) or scope.name == "__init__":
        return None
    path = path_of(call.func.value)
    if path is None or conditional_in(call, scope.node, module) or any(loops_around(call, module, scope)):
        return None
    own = names.self_name(scope)
    params = set(names.parameter_names(scope))
    if path[0] not in params or scope.sets(path[0]):
        return None
    evaluator = evaluator_of(project)
    for site in evaluator.calls.sites(module, scope, most=6):
        if path[0] == own:
            given = site.call.func.value if isinstance(site.call.func, cst.Attribute) else None
        else:
            bound = (Bound(site.args, evaluator.calls.plain_frame(site.module, site.scope), site.call),)
            argument = arguments.given_to(scope, path[0], bound)
            given = argument.node.value if argument is not None else None
        loop = next(iter(loops_around(site.call, site.module, site.scope)), None)
        if loop is None or given is None or conditional_in(site.call, loop, site.module):
            continue
        if not changes_in([given], loop, site.module, site.scope):
            return site.module, site.call
    return None
