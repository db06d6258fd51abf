"""Which modules are frozen: none of their parameters asks for gradients, so that nothing that only goes through them has a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.values import ClassRef
from oomlint.syntax.nodes import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

ALL = ""  # in place of an attribute's name: the whole object


def switches_gradients(node: cst.CSTNode, *, on: bool = False) -> bool:
    """Whether gradients are switched off here, or on, of a module or of a parameter."""
    wanted = "True" if on else "False"
    if isinstance(node, cst.Assign):
        return names.last_name(node.targets[0].target) == "requires_grad" and names.dotted(node.value) == wanted
    if not isinstance(node, cst.Call) or names.last_name(node.func) != "requires_grad_":
        return False
    return names.dotted(node.args[0].value) == wanted if node.args else on


def frozen_by(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The module that a loop over its parameters, ``for p in model.parameters(): p.requires_grad = False``, or a call freezes."""
    if isinstance(node, cst.For) and isinstance(node.iter, cst.Call) and isinstance(node.iter.func, cst.Attribute):
        asked = node.iter.func.attr.value in {"parameters", "named_parameters"}
        all_of_them = not any(isinstance(one, cst.BaseCompoundStatement) for one in block_of(node.body))  # a test picks some
        return node.iter.func.value if asked and all_of_them and any(map(switches_gradients, descend(node.body))) else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and switches_gradients(node):
        return node.func.value
    return None


def frozen_parts(cls: ClassRef, evaluator: Evaluator) -> frozenset[str]:
    """The attributes whose modules a constructor freezes whatever happens, ``ALL`` for those of the whole object; none where a method lets them learn again."""
    found: set[str] = set()
    for base in evaluator.lineage(cls):
        if not isinstance(base, ClassRef):
            continue
        text = base.module.source.text
        if "requires_grad" not in text:
            continue
        for scope, call in _constructors(base):
            found.update(_frozen_in(base.module, scope, call, evaluator))
        if found and any(switches_gradients(node, on=True) for scope in base.scope.children for node in scope.nodes()):
            return frozenset()
    return frozenset(found)


def _constructors(cls: ClassRef) -> Iterator[tuple[Scope, cst.Call | None]]:
    """``__init__``, and the methods that it calls, with these calls."""
    init = next((scope for scope in cls.scope.children if scope.name == "__init__"), None)
    if init is None:
        return
    yield init, None
    this = names.self_name(init)
    for call in init.calls:
        if isinstance(call.func, cst.Attribute) and names.dotted(call.func.value) == this:
            yield from ((scope, call) for scope in cls.scope.children if scope.name == call.func.attr.value)


def _frozen_in(module: Module, scope: Scope, call: cst.Call | None, evaluator: Evaluator) -> Iterator[str]:
    this = names.self_name(scope)
    for node in scope.nodes():
        frozen = frozen_by(node)
        if frozen is None:
            continue
        if names.dotted(frozen) == this:
            name = ALL
        elif isinstance(frozen, cst.Attribute) and names.dotted(frozen.value) == this:
            name = frozen.attr.value
        else:
            continue
        if not all(_always_runs(module, step, evaluator) for step in (node, call) if step is not None):
            continue
        # What is made afterwards learns, also a part of what is frozen: `self.net.fc = nn.Linear(512, 10)`.
        at = call or node
        around, start = module.walk.scope_at(at), module.tree.span(at)
        stored = [effect for effect in around.effects.get(names.self_name(around) or "", ()) if effect.kind == "assign" and effect.path]
        later = {str(effect.path[0][1]) for effect in stored if module.tree.span(effect.node) > start and _makes_something(effect)}
        if name != ALL:
            yield from {name} - later
            continue
        yield from {str(effect.path[0][1]) for effect in stored} - later
        if not later:
            yield ALL


def _makes_something(effect: Effect) -> bool:
    """Whether what is stored may be a new module: a setting that is handed over is none."""
    return effect.value is not None and any(isinstance(part, cst.Call) for part in descend(effect.value))


def _always_runs(module: Module, node: cst.CSTNode, evaluator: Evaluator) -> bool:
    """Whether each test around a statement can come out in one way only, by its constants and defaults, and that way leads to it."""
    scope, inner = module.walk.scope_at(node), node
    for above in module.walk.ancestors(node):
        if above is scope.node:
            return True
        if isinstance(above, cst.If):
            came_out = above.orelse is not inner
            frames = evaluator.calls.frames(module, scope)
            if {verdict for frame in frames for verdict, _, _ in evaluator.truth(above.test, frame)} != {came_out}:
                return False
        elif isinstance(above, cst.For | cst.While | cst.Try | cst.Match):
            return False
        inner = above
    return True
