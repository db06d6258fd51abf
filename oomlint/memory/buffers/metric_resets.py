"""Whether the metric of a Lightning module is reset between epochs: by the module itself, or by Lightning, which resets the metrics that it is given to log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import LOOKS
from oomlint.frameworks import FIT_HOOK
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance
from oomlint.syntax.nodes import descend, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_UPDATES: Final = frozenset({"update", "forward", "compute", "to", "cpu", "cuda"})


def never_reset(store: Store, project: Project) -> bool:
    """Whether a step hands an attribute of its module a batch that nobody resets, in any epoch."""
    step = next((scope for scope in store.loops[-1].module.walk.scopes if scope.node is store.loops[-1].node), None)
    owner = step.parent if step is not None and step.parent is not None and step.parent.is_class and FIT_HOOK.match(step.name) else None
    name = store.path[1] if len(store.path) == 2 and store.path[0] == (0, names.self_name(step) if step is not None else None) else None  # noqa: PLR2004
    if owner is None or not isinstance(name, str):
        return False
    evaluator, cls = evaluator_of(project), ClassRef(store.loops[-1].module, owner)
    lightning = any(isinstance(base, External) and base.name.endswith("LightningModule") for base in evaluator.lineage(cls))
    if not lightning or any(_may_reset(method, one.module, name) for one in evaluator.line(cls) for method in one.scope.children if method.is_function):
        return False
    pattern = re.compile(rb"\.%s\.reset\(" % re.escape(name.encode()))
    return not any(pattern.search(module.source.text.encode()) for module in project.mentioning((name.encode(),), cls.module.path))


def _may_reset(method: Scope, module: Module, name: str) -> bool:
    """Whether a method resets the metric, hands it on, or resets what it does not name."""
    for node in method.nodes():
        above = module.walk.parents.get(node)
        if isinstance(node, cst.Attribute) and node.attr.value == name and isinstance(node.value, cst.Name):
            updates = isinstance(above, cst.Attribute) and above.attr.value in _UPDATES
            called = isinstance(above, cst.Call) and above.func is node
            if not updates and not called and not isinstance(above, cst.AssignTarget):
                return True
        own = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Attribute)
        if isinstance(node, cst.Call) and names.last_name(node.func) == "reset" and not own:
            return True  # `for metric in self.modules(): metric.reset()`
    return False


def unseen_reset(store: Store, epochs: Loop, project: Project) -> bool:
    """Whether a metric may be reset where nobody can see that it is this one: in a container, by a call that takes it, by a name that is computed."""
    metric = store.before.value
    near = [store.module, epochs.module, *([metric.frame.module] if isinstance(metric, ExternalCall) else [])]
    name = _name(store.node)
    modules = {module.path: module for module in near}
    for use, module in [(use, one) for one in modules.values() for use in _handed_on(name, one)]:
        if isinstance(use, cst.Call) and names.dotted(use.func) not in LOOKS:
            scope = module.walk.scope_at(use)
            found = evaluator_of(project).plainly(use.func, module, scope)
            if not found or not all(isinstance(alt.value, FunctionRef | ClassRef) for alt in found):
                return True  # a library has it
        modules |= {module.path: module for module in project.mentioning((b".reset",), store.module.path)}
    return any(_resets_unnamed(name, module, project) for module in list(modules.values()))


def _name(update: cst.CSTNode) -> str:
    """The name that a metric is updated by, without the objects that it belongs to."""
    func = update.func if isinstance(update, cst.Call) else None
    if isinstance(func, cst.Attribute) and func.attr.value in _UPDATES:
        func = func.value
    return names.last_name(func) if isinstance(func, cst.Attribute | cst.Name) else ""


def _handed_on(name: str, module: Module) -> Iterator[cst.CSTNode]:
    """Containers that a metric is put into, calls that it is given to, and what else it is used as a whole in."""
    parents = module.walk.parents
    for node in descend(module.walk.module):
        if not isinstance(node, cst.Name) or node.value != name:
            continue
        whole: cst.CSTNode = node
        above = parents.get(whole)
        if isinstance(above, cst.Attribute) and above.attr is node:
            whole, above = above, parents.get(above)
        elif isinstance(above, cst.Attribute):
            continue  # a method of it
        while isinstance(above, cst.Element | cst.DictElement | cst.StarredElement | cst.List | cst.Tuple | cst.Dict | cst.Set):
            whole, above = above, parents.get(above)
        if isinstance(above, cst.Arg) and above.keyword is not node:
            yield parents[above]
        elif whole is not node and not isinstance(whole, cst.Attribute) and not isinstance(above, cst.AssignTarget):
            yield whole


def _resets_unnamed(name: str, module: Module, project: Project) -> bool:
    """Whether something is reset in a module of which nobody knows what it is, or the reset of the metric is handed on."""
    evaluator, walk = evaluator_of(project), module.walk
    for node in descend(module.walk.module) if ".reset" in module.source.text else ():
        if not isinstance(node, cst.Attribute) or node.attr.value != "reset":
            continue
        above = walk.parents.get(node)
        if not isinstance(above, cst.Call) or above.func is not node:
            if names.last_name(node.value) == name:
                return True
            continue
        root = names.dotted(node.value).partition(".")[0]
        targets = [one.target for one in walk.ancestors(node) if isinstance(one, cst.For)]
        rows = [one for one in walk.ancestors(node) if isinstance(one, cst.BaseComp)]
        targets += [part.target for row in rows for part in descend(row) if isinstance(part, cst.CompFor)]
        if not root or any(uses_name(target, (root,)) for target in targets):
            return True  # an element of something
        found = evaluator.plainly(node.value, module, walk.scope_at(node))
        if not found or not all(isinstance(alt.value, Instance) or (isinstance(alt.value, ExternalCall) and _of_library(alt.value)) for alt in found):
            return True
    return False


def _of_library(made: ExternalCall) -> bool:
    """Whether a library made a thing, and no built-in function looked it up."""
    return "." in made.name and not made.name.startswith("builtins.")
