"""Models by their path: whose parameters an optimizer gets, and whether a loop makes another model of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from oomlint.model import arguments
from oomlint.model.names import is_method, last_name, parameters, self_name
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

# What is done to a model that starts over, or of which other parameters are trained from now on.
_STARTS_OVER = re.compile(
    r"^(load_state_dict|reset\w*|apply|init\w*|re_?init\w*|(un)?freeze\w*|requires_grad_|deepcopy|prune\w*|restore\w*|load\w*|grow\w*|build\w*|make\w*|create\w*)$",
)


class ModelPath(NamedTuple):
    """Where a model is found: a name, or an attribute of one."""

    root: str
    accessors: tuple[Accessor, ...]


def optimized(call: cst.Call) -> ModelPath | None:
    """Whose parameters the optimizer gets: the ``model`` of ``model.parameters()``, of one model only."""
    given = arguments.arg_for(call, "params", place=0)
    if given is None or given.star:
        return None
    found: set[ModelPath] = set()
    for node in descend(given.value):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in {"parameters", "named_parameters"}:
            path = path_of(node.func.value)
            if path is None:
                return None
            found.add(ModelPath(*path))
    return next(iter(found)) if len({p.root for p in found}) == 1 else None


def renewed(model: ModelPath, loop: cst.For | cst.While, module: Module, scope: Scope) -> bool:
    """Whether the loop builds, loads, resets or unfreezes the model, or hands it over to be changed."""
    for effect in scope.effects.get(model.root, ()):
        inside = effect.statement is loop or loop in module.walk.ancestors(effect.statement)
        shared = min(len(effect.path), len(model.accessors))
        if inside and effect.kind not in {"import", "from"} and effect.path[:shared] == model.accessors[:shared]:
            return True
    for node in descend(loop.body, into_scopes=False):
        if isinstance(node, cst.Call):
            if _STARTS_OVER.match(last_name(node.func)):
                path = path_of(node.func.value) if isinstance(node.func, cst.Attribute) else None
                near = path is not None and path[0] == model.root and all(a == b for a, b in zip(path[1], model.accessors, strict=False))
                given = any((p := path_of(a.value)) is not None and p[0] == model.root for a in node.args)
                if near or given:
                    return True
        elif isinstance(node, cst.Attribute) and node.attr.value == "requires_grad" and isinstance(module.walk.parents.get(node), cst.AssignTarget):
            return True
    return False


def in_the_callers_words(call: cst.Call, scope: Scope, model: ModelPath) -> ModelPath | None:
    """The model in the words of the caller."""
    if model.root == self_name(scope):
        path = path_of(call.func.value) if isinstance(call.func, cst.Attribute) else None
        return ModelPath(path[0], (*path[1], *model.accessors)) if path is not None else None
    place = [p.name.value for p in parameters(scope)].index(model.root) - is_method(scope)
    given = arguments.argument_for(call, model.root, place=place)
    path = path_of(given) if given is not None else None
    return ModelPath(path[0], (*path[1], *model.accessors)) if path is not None else None


def renewed_in_function(model: ModelPath, module: Module, scope: Scope) -> bool:
    """Whether the function itself binds the model, or starts it over."""
    if any(e.kind == "assign" and e.path == model.accessors for e in scope.effects.get(model.root, ())):
        return True
    return any(_STARTS_OVER.match(last_name(c.func)) and isinstance(c.func, cst.Attribute) and model.root in module.code(c.func.value) for c in scope.calls)
