"""Where the lists that a loop has filled become one array: until the lists are gone, all of it is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.arrays.kept_calls import JOINS
from oomlint.model import arguments, names
from oomlint.model.values import FunctionRef
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def joins_of(stores: Iterable[Store], loop: Loop) -> list[cst.Call]:
    """The first call behind the loop that joins what the stores have added to, for each of their containers, in the order of the code."""
    module = loop.module
    found: dict[cst.Call, None] = {}
    for store in stores:
        target = _container(store)
        call = next(_joining(module, loop, target), None) if target is not None and store.module is module else None
        if call is not None:
            found.setdefault(call)
    return sorted(found, key=module.tree.span)


def joins_before_emptied(store: Store, loop: Loop, evaluator: Evaluator) -> Iterator[tuple[cst.Call, Module]]:
    """Calls inside of a loop, or in a function that is handed the container there, that join what a store has added to one which is emptied in time."""
    target = _container(store)
    path = path_of(target) if target is not None and store.scope is loop.scope else None
    for call in loop.scope.calls if path is not None else ():
        if loop.node not in loop.module.walk.ancestors(call):
            continue
        if names.last_name(call.func) in JOINS and call.args and path_of(call.args[0].value) == path:
            yield call, loop.module
        for arg in call.args:
            if path_of(arg.value) != path or names.last_name(call.func) in JOINS:
                continue
            for alt in evaluator.values(call.func, evaluator.calls.plain_frame(loop.module, loop.scope))[:1]:
                function = alt.value
                word = arguments.parameter_of(function, call, arg) if isinstance(function, FunctionRef) else None
                if isinstance(function, FunctionRef) and word is not None:
                    joins = (one for one in function.scope.calls if names.last_name(one.func) in JOINS and one.args)
                    yield from ((one, function.module) for one in joins if path_of(one.args[0].value) == (word, ()))


def _container(store: Store) -> cst.BaseExpression | None:
    """What a store adds to, as it is written."""
    node = store.node
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.value
    if isinstance(node, cst.AugAssign):
        return node.target
    return node.targets[0].target if isinstance(node, cst.Assign) and not isinstance(node.targets[0].target, cst.Subscript) else None


def _joining(module: Module, loop: Loop, target: cst.BaseExpression) -> Iterator[cst.Call]:
    path = path_of(target)
    if path is None or not all(isinstance(part, cst.Name | cst.Attribute) or _is_literal(part) for part in _steps(target)):
        return  # of one entry of many
    around = set(module.walk.ancestors(loop.node))
    here = module.walk.scope_at(loop.node)
    for scope in _readers(module, loop, path[0]):
        for call in scope.calls:
            if names.last_name(call.func) not in JOINS or not call.args or loop.node in module.walk.ancestors(call):
                continue
            if scope is here and module.place(call).row < module.place(loop.node).row:
                continue
            if any(isinstance(one, cst.For | cst.While) and one not in around for one in module.walk.ancestors(call)):
                continue  # round after round of another loop
            given = call.args[0].value
            if path_of(given) == path or any(path_of(one) == path for one in _elements(module, call, given)):
                yield call


def _steps(target: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """An expression and what it is an attribute or an element of."""
    here: cst.BaseExpression = target
    while isinstance(here, cst.Attribute | cst.Subscript):
        yield here
        here = here.value
    yield here


def _is_literal(node: cst.CSTNode) -> bool:
    """Whether an element is picked by a literal: ``results["logits"]``."""
    index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    return isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString | cst.Integer)


def _readers(module: Module, loop: Loop, root: str) -> list[Scope]:
    """Functions that may read what the loop has filled: its own, and for an attribute the other methods of the object."""
    here = module.walk.scope_at(loop.node) if not isinstance(loop.node, cst.FunctionDef) else loop.scope
    owner = here.parent
    if owner is not None and owner.is_class and names.self_name(here) == root:
        return [here, *(method for method in owner.children if method is not here and names.self_name(method) == root)]
    return [here]


def _elements(module: Module, call: cst.Call, given: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a name stands for in a comprehension over a display: ``[np.concatenate(one) for one in (a, b)]``."""
    if not isinstance(given, cst.Name):
        return
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.ListComp | cst.GeneratorExp) and isinstance(here.for_in.target, cst.Name) and here.for_in.target.value == given.value:
            iterated = here.for_in.iter
            yield from (one.value for one in iterated.elements) if isinstance(iterated, cst.List | cst.Tuple) else ()
            return
        if isinstance(here, cst.BaseStatement) or any(part is here for part in descend(given)):
            return
