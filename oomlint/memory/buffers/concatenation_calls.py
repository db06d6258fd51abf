"""Growth by copying in a method that a loop calls: ``add`` of an object that keeps what it is given in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.model import arguments, names
from oomlint.model.lifetime import ended_in, endings, endings_of, is_first_only
from oomlint.model.values import Bound, ClassRef
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.calls import CallSite
    from oomlint.model.lifetime import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


def calling_loops(project: Project, path: Path, growing: set[cst.CSTNode], module: Module, scope: Scope) -> Iterator[tuple[CallSite, Loop]]:
    """Calls of a method in loops, where its object lives longer than a round and is not made to start again in it."""
    cls = scope.parent
    if cls is None or names.self_name(scope) != path[0] or len(path[1]) != 1 or _starts_anew(scope, path, growing, module):
        return
    attribute = path[1]
    ended = endings_of(ClassRef(module, cls), str(attribute[0][1]), evaluator_of(project))
    restarts = {ending.scope.name for ending in ended if ending.scope is not scope and ending.scope.name != "__init__"}
    if any(isinstance(call.func, cst.Attribute) and call.func.attr.value in restarts for call in scope.calls):
        return  # each call cuts it, or lets go of it, as well
    for site in evaluator_of(project).calls.sites(module, scope):
        owner = path_of(site.call.func.value) if isinstance(site.call.func, cst.Attribute) else None
        if owner is None:
            continue
        for loop in loops_around(site.call, site.module, site.scope):
            if ended_in(owner, loop, site.module, site.scope) or _asks(loop, str(attribute[0][1]), restarts):
                break
            yield site, loop


def given_at(project: Project, site: CallSite, node: cst.BaseExpression, scope: Scope) -> cst.BaseExpression:
    """What a call gives for a parameter of the method; another expression is itself."""
    if isinstance(node, cst.Name):
        frame = evaluator_of(project).calls.plain_frame(site.module, site.scope)
        found = arguments.given_to(scope, node.value, (Bound(site.args, frame, site.call),))
        if found is not None:
            return found.node.value
    return node


def _starts_anew(scope: Scope, path: Path, growing: set[cst.CSTNode], module: Module) -> bool:
    """Whether the method sets the attribute otherwise, too, or uses what it has grown."""
    if any(one.statement not in growing and not is_first_only(one, path, scope.node) for one in endings(path, module, scope)):
        return True
    read = [node for node in descend(scope.node) if isinstance(node, cst.Attribute) and path_of(node) == path]
    return any(isinstance(module.walk.statement_of(node), cst.Return | cst.Expr) for node in read)


def _asks(loop: Loop, attribute: str, restarts: set[str]) -> bool:
    """Whether a round reads what has grown, or calls what makes it start again."""
    for node in descend(loop.body, into_scopes=False):
        if isinstance(node, cst.Attribute) and (node.attr.value == attribute or node.attr.value in restarts):
            return True
    return False
