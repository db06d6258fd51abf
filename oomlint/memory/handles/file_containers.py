"""Containers of open files: what the list or dictionary is that gets one, and what keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import COLLECTIONS, CONTAINERS
from oomlint.memory.datasets.dataset_classes import JOINED
from oomlint.memory.handles.h5_api import Grip
from oomlint.memory.handles.resource_names import COMPREHENSIONS
from oomlint.memory.handles.resource_state import ResourceStore
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

LISTING: Final = COLLECTIONS | CONTAINERS
_DEEPEST: Final = 3  # functions that return it to one another


class Holder(Struct, frozen=True):
    """What a container hangs on: an attribute of a class; without ``owner`` a name of the module, or a dataset of torch that joins what it is given."""

    name: str
    words: str
    owner: ClassRef | None
    joins: bool = False


def container_of(store: ResourceStore) -> cst.BaseExpression | None:
    """The list or dictionary that gets the file: the base of a subscript or of ``append``, or the comprehension itself."""
    node = store.node
    if isinstance(node, cst.Call):
        return node.func.value if isinstance(node.func, cst.Attribute) else node
    if isinstance(node, cst.Subscript):
        return node.value
    return node if isinstance(node, cst.BaseComp | cst.BaseExpression) and isinstance(node, COMPREHENSIONS) else None


def lasting(base: cst.BaseExpression, store: ResourceStore, project: Project, depth: int = 0) -> Holder | None:
    """What the container is, or becomes; ``None`` where it goes with the function."""
    module, scope = store.module, store.scope
    if isinstance(base, cst.Call | cst.GeneratorExp | cst.ListComp | cst.DictComp | cst.SetComp):
        return _put(base, module, scope, project, depth, lazily=isinstance(base, cst.GeneratorExp | cst.Call))
    while isinstance(base, cst.Subscript):
        base = base.value
    direct = _attribute(base, module, scope)
    if direct is not None or not isinstance(base, cst.Name):
        return direct
    local = scope.is_function and scope.sets(base.value) and base.value not in scope.outer
    if not local:
        bound = base.value in names.takes(scope)
        return None if bound else Holder(base.value, f"`{base.value}`", None)
    this = names.self_name(scope)
    for effect in scope.effects.get(this or "", ()):
        if effect.kind == "assign" and len(effect.path) == 1 and isinstance(effect.value, cst.Name) and effect.value.value == base.value:
            return _attribute(effect.node, module, scope)
    for call in scope.calls:
        if any(isinstance(arg.value, cst.Name) and arg.value.value == base.value for arg in call.args):
            joined = _joined(call, module, scope, project)
            if joined is not None:
                return joined
    if any(isinstance(one.value, cst.Name) and one.value.value == base.value for one in scope.returns):
        return _of_callers(module, scope, project, depth)
    return None


def _put(node: cst.BaseExpression, module: Module, scope: Scope, project: Project, depth: int, *, lazily: bool = False) -> Holder | None:
    """Where a container that one expression makes is put; a ``lazy`` one only once something goes through it."""
    walk = module.walk
    above = walk.parents.get(node)
    while isinstance(above, cst.Arg):
        call = walk.parents.get(above)
        if isinstance(call, cst.Call) and names.last_name(call.func) not in LISTING:
            return _joined(call, module, scope, project)
        if not isinstance(call, cst.Call):
            return None
        above, lazily = walk.parents.get(call), False
    if lazily:
        return None
    if isinstance(above, cst.Return):
        return _of_callers(module, scope, project, depth)
    if not isinstance(above, cst.Assign) or len(above.targets) != 1:
        return None
    target = above.targets[0].target
    if not isinstance(target, cst.Name | cst.Attribute | cst.Subscript):
        return None
    return lasting(target, ResourceStore(module, scope, target, Grip.FILE), project, depth)


def _attribute(node: cst.CSTNode, module: Module, scope: Scope) -> Holder | None:
    while isinstance(node, cst.Subscript):
        node = node.value
    this = names.self_name(scope)
    if is_attribute_of(node, this) and scope.parent is not None:
        return Holder(node.attr.value, f"`{module.code(node)}`", ClassRef(module, scope.parent))
    return None


def _joined(call: cst.Call, module: Module, scope: Scope, project: Project) -> Holder | None:
    """The dataset of torch that a call makes of others, or a class of the project that derives from it and is given them."""
    evaluator = evaluator_of(project)
    own = scope.parent
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__" and own is not None and own.is_class:
        found = [ClassRef(module, own)]
    else:
        values = [alt.value for alt in evaluator.plainly(call.func, module, scope)[:2]]
        if any(isinstance(value, External) and names.canonical(value.name) in JOINED for value in values):
            return Holder("datasets", f"`{names.last_name(call.func)}`", None, joins=True)
        found = [value for value in values if isinstance(value, ClassRef)]
    cls = next((one for one in found if evaluator.derives(one, *JOINED)), None)
    return Holder("datasets", f"`{cls.scope.name}`", cls, joins=True) if cls is not None else None


def _of_callers(module: Module, scope: Scope, project: Project, depth: int) -> Holder | None:
    """Where a caller of the function puts its result."""
    if depth >= _DEEPEST:
        return None
    ways = (_put(site.call, site.module, site.scope, project, depth + 1) for site in evaluator_of(project).calls.sites(module, scope, most=6))
    return next((found for found in ways if found is not None), None)
