"""What is done with a buffer after its loop: joined, moved to the host, given to a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import OF_LISTS, STACKS, WRITES
from oomlint.memory.shared.seen_axes import of_use
from oomlint.model import arguments, names
from oomlint.model.tensor_shapes import goes_along_first
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef
from oomlint.syntax.nodes import constant_key, descend, names_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Record, Store
    from oomlint.model.project import Module
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

_METRICS: Final = ("sklearn.", "pyhealth.metrics.", "torcheval.metrics.", "scipy.stats", "scipy.spatial", "torchmetrics.", "pandas.")
# Functions that take arrays of the host.
_ADDS_AXIS: Final = frozenset({"stack"})
AVERAGES: Final = frozenset({"mean", "std", "var", "median", "nanmean"})
_TAKES_ARRAYS: Final = WRITES | {"array", "asarray", "concatenate"}
_PRODUCTS: Final = frozenset({"matmul", "mm", "bmm", "einsum", "cdist"})
_CROSS_ENTROPY: Final = frozenset({"torch.nn.CrossEntropyLoss", "torch.nn.functional.cross_entropy"})
_TO_NUMBERS: Final = frozenset({"cpu", "numpy", "tolist", "item"})


def used_as_tensor(store: Store, record: Record, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the element of a batch is used elsewhere as only a tensor can be: a string or a list of numbers would say nothing here."""
    if store.expression is None:
        return False
    spots: list[cst.BaseExpression] = [store.expression]
    while spots:
        node = spots.pop()
        if isinstance(node, cst.Tuple | cst.List | cst.Dict):
            spots.extend(element.value for element in node.elements)
        elif (store.scope, store.module.code(node).strip()) in record.proven:
            return True
        elif isinstance(node, cst.Subscript):
            spots.append(node.value)
    return joined_later(store, loop, evaluator)


def joined_later(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the buffer, or a part of each of its elements, goes to ``torch.cat`` or ``torch.stack``."""
    for scope, module, words in _readers(store, loop, evaluator):
        for call in scope.calls:
            if names.last_name(call.func) in STACKS and call.args and mentions(call.args[0].value, words):
                frame = evaluator.calls.plain_frame(module, scope)
                if any(isinstance(alt.value, External) and alt.value.name.startswith("torch.") for alt in evaluator.values(call.func, frame)[:1]):
                    return True
    return False


def axes_once_joined(store: Store, loop: Loop, evaluator: Evaluator) -> int:
    """How many axes each of what is collected has at least, by what is done with the array that it is joined to."""
    least = 0
    for scope, module, words in _readers(store, loop, evaluator, 0):
        for call in scope.calls:
            word = names.last_name(call.func)
            given = call.args[0].value if word in STACKS and call.args else None
            while isinstance(given, cst.Subscript):
                given = given.value
            if isinstance(given, cst.Name | cst.Attribute) and mentions(given, words):
                least = max(least, of_use(module, scope, call).least - (word in _ADDS_AXIS))
    return least


def used_on_device(store: Store, record: Record, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether what is collected is a bank that later steps compute with: in the rounds of another loop that does not only count, in a product of matrices."""
    passed_by: set[cst.CSTNode] = {other.node for other in record.loops if other.counts and not other.batches and not other.steps and not other.holds}
    passed_by.update(loop.module.walk.ancestors(loop.node))
    for scope, _, words in _readers(store, loop, evaluator):
        for node in scope.nodes(inner=False):
            if isinstance(node, cst.For | cst.While) and node is not loop.node and node not in passed_by and mentions(node.body, words):
                return True
            if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply) and mentions(node, words):
                return True
            if isinstance(node, cst.Call) and names.last_name(node.func) in _PRODUCTS and any(mentions(arg.value, words) for arg in node.args):
                return True
    return False


def needed_again(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether each round of a loop behind this one hands all that is collected to a function: it has to be there until the last of them."""
    words, around = _names_of(store, loop, 0), set(loop.module.walk.ancestors(loop.node))
    for call in loop.scope.calls if store.scope is loop.scope else ():
        above = set(loop.module.walk.ancestors(call))
        behind = any(isinstance(node, cst.For | cst.While) and node not in around for node in above) and loop.node not in above
        if behind and names.dotted(call.func) not in names.BUILTINS and any(isinstance(arg.value, cst.Name) and arg.value.value in words for arg in call.args):
            frame = evaluator.calls.plain_frame(loop.module, loop.scope)
            if any(isinstance(alt.value, FunctionRef) for alt in evaluator.values(call.func, frame)[:1]):
                return True
    return False


def read_on_host(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether what is collected ends on the host: as arrays, numbers, in a file, or with whoever called; or was meant to."""
    if thrown_away(store, loop) is not None:
        return True
    for scope, module, words in _readers(store, loop, evaluator, 1):
        frame, derived = evaluator.calls.plain_frame(module, scope), _spread(scope, words, 2)
        for call in scope.calls:
            word = names.last_name(call.func)
            if isinstance(call.func, cst.Attribute) and word in _TO_NUMBERS - {"item"} and mentions(call.func.value, words):
                return True
            if word in _TAKES_ARRAYS and any(mentions(arg.value, words) for arg in call.args):
                return True
            if any(mentions(arg.value, derived) for arg in call.args) and _makes_numbers(call, frame, evaluator):
                return True
        if any(node.value is not None and mentions(node.value, words) for node in scope.returns if node is not store.node):
            return True
    return False


def last_alone(store: Store) -> list[cst.Subscript]:
    """Where the last entries of a list are read, if nothing else of it ever is: ``codes[-100:]``; empty where anything else is done with it."""
    func = store.node.func if isinstance(store.node, cst.Call) else None
    name = func.value if isinstance(func, cst.Attribute) else None
    if not isinstance(name, cst.Name) or name.value in store.scope.outer:
        return []
    walk, found = store.module.walk, []
    for node in store.scope.nodes():
        if not isinstance(node, cst.Name) or node.value != name.value or walk.is_word(node):
            continue
        above = walk.parents.get(node)
        if isinstance(above, cst.Subscript) and above.value is node and len(above.slice) == 1 and _is_from_behind(above.slice[0].slice):
            found.append(above)
        elif not (walk.is_target(node) or (isinstance(above, cst.Attribute) and above.attr.value == "append") or _is_counted(above, walk)):
            return []
    return found


def _is_from_behind(part: cst.BaseSlice) -> bool:
    """Whether an index counts from the end, to the end."""
    first = part.lower if isinstance(part, cst.Slice) and part.upper is None and part.step is None else part.value if isinstance(part, cst.Index) else None
    return isinstance(first, cst.UnaryOperation) and isinstance(first.operator, cst.Minus)


def _is_counted(above: cst.CSTNode | None, walk: Walk) -> bool:
    call = walk.parents.get(above) if isinstance(above, cst.Arg) else None
    return isinstance(call, cst.Call) and names.dotted(call.func) == "len"


def thrown_away(store: Store, loop: Loop) -> cst.Call | None:
    """A call in the loop that copies what is stored to the host, and whose result nobody takes: ``scores.cpu()``."""
    stored = store.expression
    for node in descend(loop.repeated, into_scopes=False) if isinstance(stored, cst.Name) and store.scope is loop.scope else ():
        call = node.value if isinstance(node, cst.Expr) else None
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or not isinstance(call.func.value, cst.Name):
            continue
        where = call.args[0].value if len(call.args) == 1 else None
        to_host = call.func.attr.value == "cpu" or (call.func.attr.value == "to" and isinstance(where, cst.SimpleString) and where.evaluated_value == "cpu")
        if to_host and isinstance(stored, cst.Name) and call.func.value.value == stored.value:
            return call
    return None


def _makes_numbers(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a function of the project that is called takes what it makes to the host."""
    functions = [alt.value for alt in evaluator.values(call.func, frame)[:2] if isinstance(alt.value, FunctionRef)]
    return any(names.last_name(inner.func) in _TO_NUMBERS for function in functions for inner in function.scope.calls)


def feeds_metric(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether what is collected goes to a metric that needs all of it at once."""
    for scope, module, words in _readers(store, loop, evaluator):
        frame = evaluator.calls.plain_frame(module, scope)
        for call in scope.calls:
            if not any(mentions(arg.value, words) for arg in call.args):
                continue
            word = names.last_name(call.func)
            if word.startswith("top_k"):
                continue
            if _is_metric(call.func, frame, evaluator):
                return True
    return False


def class_scores(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the function of the loop tells that scores of classes are collected: it brings them to a scale, takes the best, or their cross-entropy."""
    if store.scope is not loop.scope or store.expression is None:
        return False
    stored = names_in(store.expression)
    made = [effect.value for name in stored for effect in loop.scope.effects.get(name, ()) if effect.value is not None and effect.kind == "assign"]
    if any(map(_is_scaled, (store.expression, *made))):
        return True
    words = {*(name for name in stored if loop.scope.sets(name)), *_names_of(store, loop, 1)}
    frame = evaluator.calls.plain_frame(loop.module, loop.scope)
    for call in loop.scope.calls:
        if _scales(call) or names.last_name(call.func) in {"max", "argmax"}:
            function = _is_function(call, frame, evaluator)
            if (_scales(call) or _takes_best(call, loop.module, function=function)) and _operand_root(call, function=function) in words:
                return True
        if call.args and isinstance(call.args[0].value, cst.Name) and call.args[0].value.value in words and _is_cross_entropy(call, frame, evaluator):
            return True
    return False


def _is_cross_entropy(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a call compares scores of classes with the right one: the function, or an object that is made for it."""
    return any(isinstance(alt.value, External | ExternalCall) and alt.value.name in _CROSS_ENTROPY for alt in evaluator.values(call.func, frame))


def _is_scaled(node: cst.BaseExpression) -> bool:
    """Whether an expression is what a softmax gives, or asks that for something that leaves it whole: ``softmax(x, 1).cpu().numpy()``."""
    while isinstance(node, cst.Attribute | cst.Call):
        if isinstance(node, cst.Call) and _scales(node):
            return True
        node = node.value if isinstance(node, cst.Attribute) else node.func
    return False


def _scales(call: cst.Call) -> bool:
    """Whether a call brings something to a scale, as it is done with the scores of classes."""
    return names.last_name(call.func) in {"softmax", "log_softmax"}


def _takes_best(call: cst.Call, module: Module, *, function: bool) -> bool:
    """Whether a call takes the best of the classes of each sample: ``scores.argmax(1)``, ``_, best = torch.max(scores, 1)``."""
    axis = arguments.argument_for(call, "dim", "axis", place=function)
    if axis is None or (isinstance(axis, cst.Integer) and axis.value == "0"):
        return False
    holder = module.walk.parents.get(call)
    part = holder.slice[0].slice if isinstance(holder, cst.Subscript) else None
    second = isinstance(part, cst.Index) and constant_key(part.value) == 1
    indices = second or (isinstance(holder, cst.Attribute) and holder.attr.value == "indices")
    both = isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Tuple)
    return names.last_name(call.func) == "argmax" or indices or both


def _is_function(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a function is called, and not a method of an array."""
    return isinstance(call.func, cst.Name) or any(isinstance(alt.value, External | FunctionRef) for alt in evaluator.values(call.func, frame)[:1])


def _operand_root(call: cst.Call, *, function: bool) -> str:
    """The name of the array that a function or method works on, or of one that leaves it whole: ``scores.data.cpu()``; empty where it is something else."""
    node: cst.BaseExpression = call.func
    if function:
        if not call.args:
            return ""
        node = call.args[0].value
    while isinstance(node, cst.Attribute | cst.Call):
        node = node.value if isinstance(node, cst.Attribute) else node.func
    return node.value if isinstance(node, cst.Name) else ""


def averaged(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the rounds are put side by side and averaged: each gives the same again, with other noise, and there are as many as somebody asked for."""
    if not loop.counts or loop.loader is not None:
        return False
    for scope, _, words in _readers(store, loop, evaluator):
        stacked = [call for call in scope.calls if names.last_name(call.func) in OF_LISTS and any(mentions(arg.value, words) for arg in call.args)]
        if not stacked:
            continue
        derived = _spread(scope, words, 2)
        for call in scope.calls:
            if names.last_name(call.func) in AVERAGES and _along_first(call) and any(mentions(part, derived) for part in (call.func, *call.args)):
                return True
    return False


def _along_first(call: cst.Call) -> bool:
    """Whether a reduction goes along the first axis."""
    own = 0 if isinstance(call.func, cst.Attribute) and names.dotted(call.func.value) not in {"np", "numpy", "torch"} else 1
    return goes_along_first(call, own)


def _is_metric(func: cst.BaseExpression, frame: Frame, evaluator: Evaluator, depth: int = 0) -> bool:
    """Whether what is called is a metric of a library, or a function of the project that calls one."""
    found = [alt.value for alt in evaluator.values(func, frame)[:2]]
    if any(isinstance(value, External | ExternalCall) and value.name.startswith(_METRICS) for value in found):
        return True
    functions = [value for value in found if isinstance(value, FunctionRef)] if depth < 1 else []
    inner = [(call, evaluator.calls.plain_frame(function.module, function.scope)) for function in functions for call in function.scope.calls]
    return any(_is_metric(call.func, where, evaluator, depth + 1) for call, where in inner)


def _readers(store: Store, loop: Loop, evaluator: Evaluator, steps: int = 3) -> Iterator[tuple[Scope, Module, set[object]]]:
    """Functions that may read a buffer, with its names there: that of the loop, and for what an object keeps, the methods of its class."""
    root = store.path[0]
    yield loop.scope, loop.module, _names_of(store, loop, steps)
    kept_by = store.scope.parent
    if kept_by is not None and kept_by.is_class and kept_by is not loop.scope.parent and store.attributes:
        for method in kept_by.children:
            if method is not store.scope and method.is_function:
                yield method, store.module, _spread(method, set(store.attributes), steps)
    cls = loop.scope.parent
    handed = root[1] if isinstance(root, tuple) and root[0] == "outputs" else ""
    if cls is None or not cls.is_class or not (store.attributes or handed):
        return
    for one in evaluator.line(ClassRef(loop.module, cls)):
        for method in one.scope.children:
            if method is loop.scope or not method.is_function or (handed and method.name != handed):
                continue
            start: set[object] = {param.name.value for param in names.parameters(method)[1:2]} if handed else set(store.attributes)
            yield method, one.module, _spread(method, start, steps)


def _names_of(store: Store, loop: Loop, steps: int = 3) -> set[object]:
    """Names and attributes that the buffer goes by in the function of the loop; ``steps`` assignments are followed."""
    root = store.path[0]
    name = root[1] if isinstance(root, tuple) else root
    return _spread(loop.scope, {name, *store.attributes} - {"self"}, steps)


def _spread(scope: Scope, grown: set[object], steps: int) -> set[object]:
    """Names of a function that hold one of several, and their own."""
    comprehensions = [node for node in scope.nodes(inner=False) if isinstance(node, cst.CompFor)]
    for _ in range(steps):
        fresh: set[object] = set()
        for root_name, effects in scope.effects.items():
            for effect in effects:
                if effect.value is not None and effect.kind in {"assign", "for"} and mentions(effect.value, grown):
                    if root_name != "self":
                        fresh.add(root_name)
                    fresh.update(str(part[1]) for part in effect.path if part[0] == "attr")
        for comprehension in comprehensions:
            if mentions(comprehension.iter, grown):
                fresh.update(names_in(comprehension.target))
        grown = grown | fresh
    return grown


def mentions(node: cst.CSTNode, words: Collection[object]) -> bool:
    """Whether one of several names or attributes stands in a piece of code."""
    return any((isinstance(part, cst.Name) and part.value in words) or (isinstance(part, cst.Attribute) and part.attr.value in words) for part in descend(node))
