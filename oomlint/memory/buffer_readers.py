"""What is done with a buffer after its loop: joined, moved to the host, given to a metric."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.values import External
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Collection

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Record, Store

_METRICS: Final = ("sklearn.", "scipy.stats", "scipy.spatial", "torchmetrics.", "pandas.")
_METRIC_NAME: Final = re.compile(
    r"^(?!top_k).*_score$|(^|_)auc|roc_|confusion|classification_report|(^|_)f1|accuracy|precision_recall|(^|_)map(_|$)|ndcg|pearson|spearman|kendall|(^|_)eer(_|$)"
)


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
    return _joined_later(store, loop, evaluator)


def _joined_later(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the buffer goes to ``torch.cat`` or ``torch.stack``."""
    grown, scope, module = _names_of(store, loop), loop.scope, loop.module
    for call in scope.calls:
        if names.last_name(call.func) in {"cat", "stack", "vstack", "concat", "hstack"} and call.args and mentions(call.args[0].value, grown):
            frame = evaluator.calls.plain_frame(module, scope)
            return any(isinstance(alt.value, External) and alt.value.name.startswith("torch.") for alt in evaluator.values(call.func, frame)[:1])
    return False


def read_on_host(store: Store, loop: Loop) -> bool:
    """Whether what is collected ends on the host: as arrays, numbers, in a file, or with whoever called."""
    grown, scope = _names_of(store, loop, 1), loop.scope
    attributes = store.attributes
    scopes = [scope]
    if attributes:
        scopes += [other for other in store.module.walk.scopes if other is not scope]
    for one in scopes:
        words = grown if one is scope else attributes
        for call in one.calls:
            word = names.last_name(call.func)
            given = any(mentions(arg.value, words) for arg in call.args)
            if isinstance(call.func, cst.Attribute) and word in {"cpu", "numpy", "tolist"} and mentions(call.func.value, words):
                return True
            if given and word in {"save", "savez", "savez_compressed", "dump", "array", "asarray", "to_csv", "savemat", "concatenate", "create_dataset"}:
                return True
        if any(node.value is not None and mentions(node.value, words) for node in one.returns):
            return True
    return False


def feeds_metric(store: Store, loop: Loop, evaluator: Evaluator) -> bool:
    """Whether what is collected goes to a metric that needs all of it at once."""
    grown, scope, module = _names_of(store, loop), loop.scope, loop.module
    frame = evaluator.calls.plain_frame(module, scope)
    for call in scope.calls:
        if not any(mentions(arg.value, grown) for arg in call.args):
            continue
        word = names.last_name(call.func)
        if word.startswith("top_k"):
            continue
        if _METRIC_NAME.search(word):
            return True
        for alt in evaluator.values(call.func, frame)[:2]:
            if isinstance(alt.value, External) and alt.value.name.startswith(_METRICS):
                return True
    return False


def _names_of(store: Store, loop: Loop, steps: int = 3) -> set[object]:
    """Names and attributes that the buffer goes by in the function of the loop; ``steps`` assignments are followed."""
    root = store.path[0]
    name = root[1] if isinstance(root, tuple) else root
    grown: set[object] = {name, *store.attributes} - {"self"}
    scope = loop.scope
    comprehensions = [node for node in descend(scope.suite, into_scopes=False) if isinstance(node, cst.CompFor)]
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
                fresh.update(node.value for node in descend(comprehension.target) if isinstance(node, cst.Name))
        grown |= fresh
    return grown


def mentions(node: cst.CSTNode, words: Collection[object]) -> bool:
    """Whether one of several names or attributes stands in a piece of code."""
    return any((isinstance(part, cst.Name) and part.value in words) or (isinstance(part, cst.Attribute) and part.attr.value in words) for part in descend(node))
