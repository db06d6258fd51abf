"""Handles that are opened on first use: the test that guards the opening, and who makes that first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.lifetime import is_about
from oomlint.model.reach import path_conditions

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def cached(scope: Scope) -> bool:
    """Whether the object keeps what the function returns."""
    return isinstance(scope.node, cst.FunctionDef) and any(names.last_name(d.decorator) == "cached_property" for d in scope.node.decorators)


def asks_first(module: Module, scope: Scope, statement: cst.CSTNode, name: str) -> bool:
    """Whether control reaches the statement only where the attribute is not set yet: by a test, or because reading it failed."""
    this = names.self_name(scope)
    if this is None:
        return False
    walk = module.walk
    beside = {name}
    if scope.name != "__init__":  # a flag that is set together with the attribute
        block = walk.parents.get(walk.parents.get(statement, statement))
        together = (e for e in scope.effects.get(this, ()) if e.kind == "assign" and len(e.path) == 1)
        beside |= {str(e.path[0][1]) for e in together if walk.parents.get(walk.parents.get(e.statement, e.statement)) is block}
    asked: list[cst.CSTNode] = [test for test, _ in path_conditions(walk, scope, statement)]
    failed = (walk.parents.get(holder) for holder in walk.between(statement, scope.node) if isinstance(holder, cst.ExceptHandler))
    asked += [tried.body for tried in failed if isinstance(tried, cst.Try)]
    value = getattr(statement, "value", None)  # self.file = self.file or h5py.File(path)
    asked += [value] if isinstance(value, cst.BooleanOperation | cst.IfExp) else []
    return any(is_about(one, (this, (("attr", word),))) for one in asked for word in beside)


def closes(module: Module, scope: Scope, name: str) -> bool:
    """Whether the function closes what the attribute holds."""
    wanted = f"{names.self_name(scope)}.{name}.close"
    return any(module.code(call.func) == wanted and not on_error(module, call) for call in scope.calls)


def on_error(module: Module, node: cst.CSTNode) -> bool:
    """Whether control reaches a node only after an exception."""
    return any(isinstance(holder, cst.ExceptHandler) for holder in module.walk.ancestors(node))


def forgets(module: Module, scope: Scope, helper: str, name: str) -> bool:
    """Whether the function sets the attribute to something else, or deletes it, after it has called the helper that opens."""
    this = names.self_name(scope)
    called = [module.tree.span(c)[:2] for c in scope.calls if names.last_name(c.func) == helper]
    if this is None or not called:
        return False
    for effect in scope.effects.get(this, ()):
        if effect.path == (("attr", name),) and effect.kind in {"assign", "delete"} and module.tree.span(effect.statement)[:2] > min(called):
            return True
    return False
