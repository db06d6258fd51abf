"""Whether all that a loop collects is what its function is called for: embeddings, predictions. Whoever asks for them holds them anyway."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, FACTS, STACKS, WRITES
from oomlint.memory.buffers.buffer_readers import AVERAGES
from oomlint.model import names
from oomlint.model.arguments import parameter_of
from oomlint.model.values import ClassRef, FunctionRef
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

# Calls whose result is all of what they are given.
_JOINS: Final = STACKS | AS_ARRAY | {"list", "tuple", "dict", "DataFrame", "normalize"}
# Methods whose result is all of their object.
_KEEPS: Final = frozenset(
    "numpy cpu detach clone copy squeeze flatten reshape view float half to astype contiguous transpose permute tolist items values".split(),
)
_REDUCES: Final = AVERAGES | {"cov", "corrcoef", "sum", "max", "min"}
_LOOKS: Final = FACTS | {"len", "print"}
_STEPS: Final = 3  # assignments that are followed
_MOST_SITES: Final = 4


def is_result(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether a function gives back all that its loop collects, and somebody needs all of it at once, or nobody knows who calls."""
    scope = loop.scope
    root = store.path[0]
    name = root[1] if isinstance(root, tuple) else root
    if not isinstance(scope.node, cst.FunctionDef) or not isinstance(name, str) or name == names.self_name(scope):
        return False
    frame = evaluator.calls.plain_frame(loop.module, scope)
    words = _followed(scope, {name}, frame, evaluator)
    given = [item.value for item in scope.returns if item.value is not None and _whole(item.value, words, frame, evaluator)]
    if not given:
        return False
    sites = evaluator.calls.sites(loop.module, scope, most=_MOST_SITES)
    places = _places(given[-1], words, frame, evaluator)
    return not sites or not all(_is_parted(site.call, site.module, site.scope, evaluator, set(), places) for site in sites)


def _places(node: cst.BaseExpression, words: set[str], frame: Frame, evaluator: Evaluator) -> set[int]:
    """Where in a tuple that is given back it stands; nothing where it is no tuple."""
    elements = node.elements if isinstance(node, cst.Tuple) else ()
    return {n for n, element in enumerate(elements) if _whole(element.value, words, frame, evaluator)}


def _followed(scope: Scope, words: set[str], frame: Frame, evaluator: Evaluator) -> set[str]:
    for _ in range(_STEPS):
        fresh = {
            target
            for target, effects in scope.effects.items()
            for effect in effects
            if effect.kind == "assign" and effect.value is not None and not effect.index and _whole(effect.value, words, frame, evaluator)
        }
        if fresh <= words:
            break
        words = words | fresh
    return words


def _whole(node: cst.BaseExpression, words: set[str], frame: Frame, evaluator: Evaluator) -> bool:
    """Whether all of what has one of several names is in a value, in whatever form."""
    if isinstance(node, cst.Name):
        return node.value in words
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        return any(_whole(element.value, words, frame, evaluator) for element in node.elements)
    if isinstance(node, cst.Subscript):
        return _whole(node.value, words, frame, evaluator)
    if isinstance(node, cst.ListComp | cst.DictComp | cst.GeneratorExp):
        calls = [part for part in descend(node) if isinstance(part, cst.Call)]
        return _whole(node.for_in.iter, words, frame, evaluator) and not any(_called(call, frame, evaluator) in _REDUCES for call in calls)
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPS and _whole(node.func.value, words, frame, evaluator):
        return True
    given = any(_whole(arg.value, words, frame, evaluator) for arg in node.args)
    return given and (_called(node, frame, evaluator) in _JOINS or any(isinstance(alt.value, ClassRef) for alt in evaluator.values(node.func, frame)[:1]))


def _called(call: cst.Call, frame: Frame, evaluator: Evaluator) -> str:
    """The last name of a function of a library; empty where it is one of the project, whatever it is called."""
    own = any(isinstance(alt.value, FunctionRef | ClassRef) for alt in evaluator.values(call.func, frame)[:1])
    return "" if own else names.last_name(call.func)


def _is_parted(
    node: cst.CSTNode,
    module: Module,
    scope: Scope,
    evaluator: Evaluator,
    seen: set[tuple[Scope, str]],
    places: Collection[int] = (),
    depth: int = 0,
) -> bool:
    """Whether only means of a value are taken along all samples, or it is written to a file, or nobody reads it: all can be done batch by batch."""
    parents = module.walk.parents
    above = parents.get(node)
    while isinstance(above, cst.Attribute) and isinstance(call := parents.get(above), cst.Call) and call.func is above and above.attr.value in _KEEPS:
        node, above = call, parents.get(call)
    if isinstance(above, cst.Assign):
        target = above.targets[0].target
        targets = [element.value for n, element in enumerate(target.elements) if n in places] if isinstance(target, cst.Tuple) and places else [target]
        found = [path_of(one) for one in targets]
        return all(path is not None and not path[1] and _reads_parted(path[0], above, module, scope, evaluator, seen, depth) for path in found)
    if isinstance(above, cst.Expr):
        return scope.is_function or not module.place(node).cell  # a notebook shows and keeps the last expression of a cell
    if isinstance(above, cst.Attribute):
        return above.attr.value in _LOOKS or (above.attr.value in _REDUCES | WRITES and isinstance(parents.get(above), cst.Call))
    row = _row_of(above, module) if isinstance(above, cst.Element) else None
    if row is not None:
        return _reads_parted(row[0], row[1], module, scope, evaluator, seen, depth)
    call = parents.get(above) if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(above, cst.Arg):
        return False
    frame = evaluator.calls.plain_frame(module, scope)
    name = _called(call, frame, evaluator)
    if name in _REDUCES | WRITES | _LOOKS:
        return True
    if name in _JOINS:
        return _is_parted(call, module, scope, evaluator, seen, (), depth)
    if depth >= _STEPS:
        return False
    functions = [alt.value for alt in evaluator.values(call.func, frame)[:1] if isinstance(alt.value, FunctionRef)]
    given = [(one, param) for one in functions if (param := parameter_of(one, call, above)) is not None]
    return bool(given) and all(_reads_parted(param, None, one.module, one.scope, evaluator, seen, depth + 1) for one, param in given)


def _reads_parted(
    name: str,
    made: cst.CSTNode | None,
    module: Module,
    scope: Scope,
    evaluator: Evaluator,
    seen: set[tuple[Scope, str]],
    depth: int,
) -> bool:
    """The same of all reads of a name in its function. A name is asked once: one read that needs the whole decides for all."""
    if (scope, name) in seen:
        return True
    seen.add((scope, name))
    used = [node for node in scope.nodes(inner=True) if isinstance(node, cst.Name) and node.value == name]
    reads = [
        node
        for node in used
        if not isinstance(module.walk.parents.get(node), cst.AssignTarget | cst.Param | cst.Del | cst.Attribute) or _is_object(node, module)
    ]
    reads = [node for node in reads if made is None or all(here is not made for here in module.walk.ancestors(node))]
    unread = not reads and (not scope.is_function or name in module.walk.shared)  # other code may read it
    return not unread and all(_is_parted(node, module, scope, evaluator, seen, (), depth) for node in reads)


def _row_of(element: cst.Element, module: Module) -> tuple[str, cst.CSTNode] | None:
    """The name that a loop gives what stands in a row of a table which is written there: ``for name, rows in (("a", a), ("b", b)):``."""
    row, cell, table, loop = islice(module.walk.ancestors(element), 4)
    if not isinstance(row, cst.Tuple | cst.List) or not isinstance(cell, cst.Element):
        return None
    if not isinstance(loop, cst.For) or loop.iter is not table or not isinstance(loop.target, cst.Tuple):
        return None
    place = list(row.elements).index(element)
    target = loop.target.elements[place].value if place < len(loop.target.elements) else None
    return (target.value, loop.target) if isinstance(target, cst.Name) else None


def _is_object(node: cst.Name, module: Module) -> bool:
    above = module.walk.parents.get(node)
    return isinstance(above, cst.Attribute) and above.value is node
