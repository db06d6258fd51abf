"""Loops that set all entries of a mapping, one by one: ``for name, value in read.items(): setattr(args, name, value)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import COLLECTIONS
from oomlint.model import names
from oomlint.syntax.nodes import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.syntax.scopes import Effect
    from oomlint.syntax.walk import Walk

_SETTER: Final = 3  # arguments of `setattr`


def entries_of(effect: Effect, walk: Walk) -> tuple[cst.BaseExpression, ...] | None:
    """The mapping whose entries a binding under an unknown key sets, each under its own key.

    Where the mappings that are gone through are the values of another one, that follows.
    """
    key, value = _set_by(effect)
    if not isinstance(key, cst.Name) or value is None:
        return None
    loops = list(_loops_around(effect, walk))
    for loop in loops:
        mapping, word, entry = _gone_over(loop)
        if mapping is not None and word == key.value and (_is_name(value, entry) or _is_entry(value, mapping, word)):
            return next(((mapping, outer) for outer in _outer(mapping, loops)), (mapping,))
    return None


def asks_for_entry(test: cst.BaseExpression, root: str, walk: Walk) -> bool | None:
    """How a test in such a loop comes out where what is filled has the entry already: ``hasattr(args, name)``, ``name not in vars(args)``.

    ``None`` where it asks for something else.
    """
    verdict = True
    while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, verdict = test.expression, not verdict
    match test:
        case cst.Call(func=cst.Name(value="hasattr"), args=[cst.Arg(value=whole), cst.Arg(value=cst.Name(value=word))]):
            pass
        case cst.Comparison(left=cst.Name(value=word), comparisons=[cst.ComparisonTarget(operator=cst.In() | cst.NotIn() as operator, comparator=whole)]):
            verdict = verdict is isinstance(operator, cst.In)
        case _:
            return None
    match whole:
        case cst.Call(func=cst.Name(value="vars"), args=[cst.Arg(value=inner)]) | cst.Attribute(value=inner, attr=cst.Name(value="__dict__")):
            whole = inner
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value="keys")), args=[]):
            whole = inner
    loops = (above for above in walk.ancestors(test) if isinstance(above, cst.For))
    return verdict if _is_name(whole, root) and any(_gone_over(loop)[1] == word for loop in loops) else None


def _set_by(effect: Effect) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """The key and the value of ``d[key] = value`` and ``setattr(d, key, value)``."""
    node = effect.node
    if isinstance(node, cst.Call) and len(node.args) == _SETTER:
        return node.args[1].value, node.args[2].value
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        return node.slice[0].slice.value, effect.value
    return None, None


def _loops_around(effect: Effect, walk: Walk) -> Iterator[cst.For]:
    for above in walk.ancestors(effect.statement):
        if isinstance(above, cst.FunctionDef | cst.ClassDef):
            return
        if isinstance(above, cst.For):
            yield above


def _gone_over(loop: cst.For) -> tuple[cst.BaseExpression | None, str, str]:
    """The mapping that a loop goes over, and its names for a key and a value; empty where it has none."""
    over, target = names.gone_through(loop)
    over = names.iterated(over, COLLECTIONS)
    method = over.func.attr.value if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and not over.args else ""
    mapping = over.func.value if method in {"items", "keys", "values"} and isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) else over
    if isinstance(target, cst.Tuple) and method == "items":
        words = [element.value.value if isinstance(element.value, cst.Name) else "" for element in target.elements]
        return (mapping, words[0], words[1]) if len(words) == 2 else (None, "", "")  # noqa: PLR2004 - a key and a value
    if isinstance(target, cst.Name) and method != "items":
        return (mapping, "", target.value) if method == "values" else (mapping, target.value, "")
    return None, "", ""


def _outer(mapping: cst.BaseExpression, loops: list[cst.For]) -> Iterator[cst.BaseExpression]:
    """The mapping that another loop goes over, where one of its values is gone through."""
    for loop in loops:
        outer, word, entry = _gone_over(loop)
        if outer is not None and (_is_name(mapping, entry) or _is_entry(mapping, outer, word)):
            yield outer


def _is_name(node: cst.BaseExpression, word: str) -> bool:
    return isinstance(node, cst.Name) and node.value == word


def _is_entry(node: cst.BaseExpression, mapping: cst.BaseExpression, word: str) -> bool:
    """Whether an expression is ``mapping[word]``."""
    index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    if not (isinstance(node, cst.Subscript) and isinstance(index, cst.Index) and word and _is_name(index.value, word)):
        return False
    return path_of(node.value) is not None and path_of(node.value) == path_of(mapping)
