"""Fixes for what grows: a value is stored without its graph, as a copy of its own, or on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Edit, Fix, Safety
from oomlint.frameworks import DIFFERENTIATES
from oomlint.memory.buffers.outside_readers import escapes
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.rounds import dependents
from oomlint.model.tensor_state import Device, Graph, Storage, TensorState, ValueKind
from oomlint.model.torch_tables import CASTS
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import constant_key, descend, names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.memory.buffers.growth import Growth
    from oomlint.model.events import Store
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

    # An element that is stored, with what it holds, to the edits that fix it; None where it cannot be fixed.
    Rewrite = Callable[[cst.BaseExpression, TensorState], list[Edit] | None]

_READS_GRAPH = frozenset({"grad_fn", "requires_grad", "is_leaf", "retain_grad", "register_hook"})
_CONVERSIONS = CASTS | {"cpu", "cuda", "to"}


def parts(expression: cst.BaseExpression, held: TensorState) -> Iterator[tuple[cst.BaseExpression, TensorState]]:
    """The elements of a display with what each holds; any other expression is its own only element."""
    if isinstance(expression, cst.Tuple | cst.List) and held.kind is ValueKind.PACK:
        for number, element in enumerate(expression.elements):
            item = held.item(number)
            if isinstance(element, cst.Element) and item is not None:
                yield from parts(element.value, item)
        return
    if isinstance(expression, cst.Dict) and held.kind is ValueKind.PACK:
        for pair in expression.elements:
            item = held.item(constant_key(pair.key)) if isinstance(pair, cst.DictElement) else None
            if item is not None:
                yield from parts(pair.value, item)
        return
    if isinstance(expression, cst.List) and len(expression.elements) == 1 and isinstance(expression.elements[0], cst.Element):
        yield from parts(expression.elements[0].value, held)
        return
    yield expression, held


def suffixed(module: Module, node: cst.BaseExpression, suffix: str) -> list[Edit]:
    """``node`` followed by ``suffix``, in parentheses where it needs them."""
    text = Text(module.tree)
    start, end = text.span(node)
    if isinstance(node, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
        return [text.replaced(end, end, suffix)]
    return [text.replaced(start, start, "("), text.replaced(end, end, f"){suffix}")]


def detached(module: Module) -> Rewrite:
    """The same without its graph."""

    def rewrite(node: cst.BaseExpression, held: TensorState) -> list[Edit] | None:
        if held.carries is not Graph.YES:
            return []
        if held.kind not in {ValueKind.TENSOR, ValueKind.OPAQUE}:
            return None
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "get" and len(node.args) > 1:
            return None  # the default may be a number
        if isinstance(node, cst.DictComp | cst.ListComp | cst.SetComp | cst.GeneratorExp):  # each of its elements
            return rewrite(node.value if isinstance(node, cst.DictComp) else node.elt, held)
        # In front of the conversion: what is copied is then the value alone.
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _CONVERSIONS:
            receiver = node.func.value
            if isinstance(receiver, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
                return suffixed(module, receiver, ".detach()")
        return suffixed(module, node, ".detach()")

    return rewrite


def copied(module: Module) -> Rewrite:
    """The same in storage of its own."""

    def rewrite(node: cst.BaseExpression, held: TensorState) -> list[Edit] | None:
        if held.storage is not Storage.LOADER and not held.view:
            return []
        if held.kind is ValueKind.ARRAY:
            return suffixed(module, node, ".copy()")
        return suffixed(module, node, ".clone()") if held.kind is ValueKind.TENSOR else None

    return rewrite


def on_host(module: Module) -> Rewrite:
    """The same on the host."""

    def rewrite(node: cst.BaseExpression, held: TensorState) -> list[Edit] | None:
        if held.device is not Device.ACCELERATOR:
            return []
        return suffixed(module, node, ".cpu()") if held.kind in {ValueKind.TENSOR, ValueKind.OPAQUE} else None

    return rewrite


def stays_detached(growth: Growth, project: Project) -> bool:
    """Whether nothing that computes can tell what is stored from the same without its graph: nobody asks for the graph, or differentiates the result."""
    if _reads_graph(growth.stores) or growth.facts.get("mixed") or any(store.scope.yields for store in growth.stores):
        return False
    # What a backward pass has freed cannot be differentiated a second time, whoever holds it.
    if not growth.freed and any(escapes(store, growth.loop) for store in growth.stores):
        return False
    for store in growth.stores:
        for loop in store.loops:
            if result_differentiated(loop.scope, loop.module, project):
                return False
    return not any(
        via.call in {event_via.call for event in growth.record.backwards for event_via in event.via}
        for store in growth.stores
        for via in store.via
        if via.module is store.module and via.this
    )


def _shown(store: Store) -> bool:
    """Whether the sum itself, or what is worked out from it, is printed: a tensor shows its history."""
    target = store.node.target if isinstance(store.node, cst.AugAssign) else store.node.targets[0].target if isinstance(store.node, cst.Assign) else None
    if not isinstance(target, cst.Name):
        return False
    scope = store.module.walk.scope_at(store.node)
    tensors = {target.value}
    while True:
        effects = ((name, effect) for name, known in scope.effects.items() if name not in tensors for effect in known)
        more = {name for name, effect in effects if effect.kind == "assign" and not effect.path and effect.value is not None and _is_of(effect.value, tensors)}
        if not more:
            break
        tensors |= more
    shown = [arg.value for call in scope.calls if names.last_name(call.func) in {"print", "str", "repr", "info", "write"} for arg in call.args]
    parts = [part for text in shown if isinstance(text, cst.FormattedString) for part in text.parts]
    shown += [part.expression for part in parts if isinstance(part, cst.FormattedStringExpression) and part.format_spec is None]
    return any(_is_of(node, tensors) for node in shown)


def _is_of(node: cst.BaseExpression, tensors: set[str]) -> bool:
    """Whether an expression is one of the tensors, or arithmetic with one."""
    if isinstance(node, cst.BinaryOperation):
        text = node.left.evaluated_value if isinstance(node.operator, cst.Modulo) and isinstance(node.left, cst.SimpleString) else None
        if isinstance(text, str) and "%s" not in text and "%r" not in text:
            return False  # a number is written without its history
        return _is_of(node.left, tensors) or _is_of(node.right, tensors)
    if isinstance(node, cst.UnaryOperation):
        return _is_of(node.expression, tensors)
    if isinstance(node, cst.Tuple):  # of a text with `%`
        return any(_is_of(element.value, tensors) for element in node.elements)
    return isinstance(node, cst.Name) and node.value in tensors


def result_differentiated(scope: Scope, module: Module, project: Project) -> bool:
    """Whether a caller computes gradients of something that it makes of the function's result."""
    if scope.parent is None:
        return False
    if scope.name == "__call__" or runs_of(project).gradients.handed_on(scope, module):
        return True  # whoever calls it is out of sight
    for site in runs_of(project).evaluator.calls.sites(module, scope, most=8):
        walk = site.module.walk
        for above in walk.ancestors(site.call):
            if isinstance(above, cst.Call) and names.last_name(above.func) in DIFFERENTIATES:
                return True
            if isinstance(above, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                break
        statement = walk.statement_of(site.call)
        grown: set[str] = set()
        if isinstance(statement, cst.Assign):
            grown = {name for target in statement.targets for name in names_in(target.target)}
        elif isinstance(statement, cst.AugAssign):
            grown = names_in(statement.target)
        grown.discard("self")
        made = dependents(site.scope, grown)
        if any(names.last_name(call.func) in DIFFERENTIATES and uses_name(call, made) for call in site.scope.calls):
            return True
        if (
            isinstance(statement, cst.Return)
            and site.scope is not scope
            and site.scope.parent is not None
            and _differentiated_above(site.scope, site.module, project)
        ):
            return True
    return False


def _differentiated_above(scope: Scope, module: Module, project: Project) -> bool:
    """Whether a function that calls this one computes gradients."""
    sites = runs_of(project).evaluator.calls.sites(module, scope, most=4)
    return any(names.last_name(call.func) in DIFFERENTIATES for site in sites for call in site.scope.calls)


def fix(growth: Growth, module: Module, message: str, rewrite: Rewrite, safety: Callable[[TensorState], Safety]) -> Fix | None:
    """The fix that fixes every statement of a growth; ``None`` where one of them cannot be fixed in place."""
    return _fixed(growth.stores, module, message, rewrite, safety)


def _begins_with_graph(store: Store, module: Module) -> bool:
    """Whether a sum begins as what is added, ``loss if mean is None else 0.9 * mean + 0.1 * loss``: then it has a graph to which each step adds a node."""
    inner: cst.CSTNode | None = store.expression
    for above in module.walk.ancestors(inner) if inner is not None and store.kind == "augment" else ():
        if above is store.node:
            break
        if isinstance(above, cst.IfExp) and inner is not above.test:
            other = above.orelse if inner is above.body else above.body
            if not isinstance(other, cst.BaseNumber) and (store.target is None or module.code(other) != module.code(store.target)):
                return True
        inner = above
    return False


def detach_fix(growth: Growth, module: Module, project: Project, message: str) -> Fix | None:
    """The fix that stores everything without its graph; ``None`` where the program could tell. A tensor that is printed shows its graph: then it is unsafe."""
    if _begins_with_graph(growth.store, module) or not stays_detached(growth, project):
        return None
    printed = any(isinstance(store.node, cst.AugAssign | cst.Assign) and _shown(store) for store in growth.stores)
    return fix(growth, module, message, detached(module), (lambda _: Safety.UNSAFE) if printed else safe_if_sure)


def safe_if_sure(held: TensorState) -> Safety:
    """A method is safe to add to what is a tensor or array for certain."""
    return Safety.SAFE if held.sure else Safety.UNSAFE


def _fixed(stores: Iterable[Store], module: Module, message: str, rewrite: Rewrite, safety: Callable[[TensorState], Safety]) -> Fix | None:
    edits: list[Edit] = []
    worst = Safety.SAFE
    for store in stores:
        if store.module is not module or store.via or store.kind == "extend" or store.expression is None or isinstance(store.node, cst.Return):
            return None
        fresh: list[Edit] = []
        for node, held in parts(store.expression, store.value):
            found = rewrite(node, held)
            if found is None:
                return None
            if found and safety(held) is Safety.UNSAFE:
                worst = Safety.UNSAFE
            fresh += found
        if not fresh:
            return None
        edits += fresh
    return Fix(worst, message, tuple(edits)) if edits else None


def meter_fix(growth: Growth, module: Module, message: str) -> Fix | None:
    """What a meter is given, without its graph."""
    edits: list[Edit] = []
    for store in growth.stores:
        via = next((via for via in store.via if via.module is module), None)
        if via is None or "given" not in growth.facts:
            return None
        given = dict(via.given)
        for arg in via.call.args:
            held = given.get(arg)
            if held is None or held.carries is not Graph.YES:
                continue
            if held.kind is not ValueKind.TENSOR or not held.sure or arg.star:
                return None
            edits += suffixed(module, arg.value, ".detach()")
    return Fix(Safety.SAFE, message, tuple(edits)) if edits else None


def _reads_graph(stores: Iterable[Store]) -> bool:
    """Whether something in the functions asks for the graph itself: then a value without it is another value."""
    for store in stores:
        for scope in {store.scope, *(loop.scope for loop in store.loops)}:
            for node in descend(scope.node):
                if isinstance(node, cst.Attribute) and node.attr.value in _READS_GRAPH and names.dotted(node.value) != "self":
                    above = store.module.walk.parents.get(node)
                    if not isinstance(above, cst.AssignTarget):
                        return True
    return False


def written_later(growth: Growth) -> bool:
    """Whether what is stored, or what it is a view of, may be changed in place in the loop after that."""
    for store in growth.stores:
        expression = store.expression
        if expression is None:
            return True
        roots = names_in(expression)
        roots |= {root[1] for root in store.path[:1] if isinstance(root, tuple) and root[1] != "self"}
        if any(_writes(node, roots) for node in descend(growth.loop.repeated)):
            return True
    return False


def _writes(node: cst.CSTNode, roots: set[str]) -> bool:
    """Whether a node changes what one of several names stands for in place."""
    if isinstance(node, cst.AugAssign):
        return uses_name(node.target, roots)
    if isinstance(node, cst.AssignTarget):
        return isinstance(node.target, cst.Subscript) and uses_name(node.target.value, roots)
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value == "out" and uses_name(node.value, roots | {"out"})
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        word = node.func.attr.value
        return word.endswith("_") and not word.startswith("_") and uses_name(node.func.value, roots)
    return False
