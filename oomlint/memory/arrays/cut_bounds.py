"""Whether what the rounds of a loop cut out of an array has nothing in common, by where each part begins and ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

# A sum of products: how often each product is in it, by its factors as they are written; none for a number.
Sum = Counter[tuple[str, ...]]


def ends_before_next(module: Module, scope: Scope, part: cst.Slice, rounds: cst.For | cst.While | cst.ListComp) -> bool:
    """Whether a part ends where the next round's begins, or before: ``a[first:last]`` with ``first, last = i * n, (i + 1) * n``."""
    around = rounds.for_in if isinstance(rounds, cst.ListComp) else rounds
    if isinstance(around, cst.While) or part.lower is None or part.upper is None:
        return False
    target: cst.CSTNode = around.target
    over = around.iter
    while isinstance(over, cst.Call) and over.args and names.last_name(over.func) in {"tqdm", "list", "enumerate"}:
        if names.last_name(over.func) == "enumerate":
            target = target.elements[-1].value if isinstance(target, cst.Tuple) else target
        over = over.args[0].value
    if not isinstance(target, cst.Name) or not isinstance(over, cst.Call) or names.dotted(over.func) not in {"range", "trange"} or not over.args:
        return False
    bounds = _Bounds(module, scope, rounds, part)
    step = bounds.sum_of(over.args[2].value) if over.args[2:] else Sum({(): 1})
    left = _moved(bounds.sum_of(part.lower), target.value, step)
    left.subtract(bounds.sum_of(part.upper))
    return all(count >= 0 for count in left.values())


class _Bounds:
    """Writes bounds as sums, with the variables that a round sets put in."""

    def __init__(self, module: Module, scope: Scope, rounds: cst.CSTNode, part: cst.Slice) -> None:
        self.module, self.scope, self.rounds = module, scope, rounds
        self.start, self.around = module.tree.span(part), set(module.walk.ancestors(part))

    def sum_of(self, node: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> Sum:
        """The sum that an expression is; what is no sum or product stands for itself."""
        match node:
            case cst.Integer():
                return Sum({(): node.evaluated_value})
            case cst.Name() if node.value not in seen and (value := self._set_to(node.value)) is not None:
                return self.sum_of(value, seen | {node.value})
            case cst.Call(func=cst.Name(value="int"), args=[cst.Arg(value=inner)]):
                return self.sum_of(inner, seen)
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Multiply()):
                left, right = self.sum_of(node.left, seen), self.sum_of(node.right, seen)
                if isinstance(node.operator, cst.Multiply):
                    return _product(left, right)
                total = Sum(left)
                (total.update if isinstance(node.operator, cst.Add) else total.subtract)(right)
                return total
        return Sum({(self.module.code(node).strip(),): 1})

    def _set_to(self, name: str) -> cst.BaseExpression | None:
        """What the one statement of a round that sets a name gives it, ahead of the part and in every round."""
        own = [e for e in self.scope.effects.get(name, ()) if not e.path and self.rounds in self.module.walk.ancestors(e.statement)]
        if len(own) != 1 or own[0].kind != "assign" or own[0].value is None:
            return None
        parents = self.module.walk.parents
        if self.module.tree.span(own[0].statement) > self.start or parents.get(parents[own[0].statement]) not in self.around:
            return None
        value, index = own[0].value, own[0].index
        if not index:
            return value
        return value.elements[index[0]].value if isinstance(value, cst.Tuple) and len(index) == 1 and index[0] < len(value.elements) else None


def _product(left: Sum, right: Sum) -> Sum:
    made = Sum()
    for some, count in left.items():
        for more, times in right.items():
            made[tuple(sorted((*some, *more)))] += count * times
    return made


def _moved(total: Sum, name: str, step: Sum) -> Sum:
    """A sum in the next round, where a name in it is greater by a step."""
    later = Sum({(name,): 1})
    later.update(step)
    made = Sum()
    for factors, count in total.items():
        product = Sum({(): count})
        for factor in factors:
            product = _product(product, later if factor == name else Sum({(factor,): 1}))
        made.update(product)
    return made
