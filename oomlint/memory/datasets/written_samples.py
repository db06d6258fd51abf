"""Where reading a sample writes into the array that a dataset holds.

An index gives a view of an array, so what is done to that in place is done to the data: a forked worker gets pages of its own for what it writes, and
whoever reads the sample next reads what is left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.datasets.constant_flags import Flags
from oomlint.memory.datasets.sample_uses import is_attribute_named, is_number, same_numbers, sample_ways
from oomlint.model import names
from oomlint.model.arguments import parameter_of
from oomlint.model.torch_tables import AXIS_ORDERS
from oomlint.model.values import External, FunctionRef
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Instance

_TURNED: Final = AXIS_ORDERS | {"T", "t", "numpy", "view"}  # the same numbers in another order
_SAME: Final = frozenset({"torch.from_numpy", "numpy.asarray"})  # share the memory of the one array that they are given
_SHUFFLES: Final = frozenset({"numpy.random.shuffle", "random.shuffle"})
_FILLS: Final = frozenset({"fill", "sort"})
_ABOUT_AXES: Final = frozenset({"squeeze_", "unsqueeze_", "transpose_", "t_", "requires_grad_", "detach_", "share_memory_", "resize_", "swapaxes_"})
_DEEPEST: Final = 3


class WrittenSample(Struct, frozen=True):
    """A statement or call that changes data of the dataset while it reads a sample."""

    module: Module
    node: cst.CSTNode
    words: str


def written_sample(instance: Instance, attribute: str, evaluator: Evaluator) -> WrittenSample | None:
    """Where code that reads a sample writes into an element of an attribute that is an array, in place; ``None`` where nothing is known to."""
    for way in sample_ways(instance, evaluator):
        found = _Writes(way.function, instance, attribute, same_numbers(way), evaluator).first()
        if found is not None:
            return found
    return None


class _Writes:
    """Goes through one function in the order of its text, and knows which names are views of the data there."""

    def __init__(
        self,
        function: FunctionRef,
        instance: Instance,
        attribute: str,
        numbers: set[str],
        evaluator: Evaluator,
        views: frozenset[str] = frozenset(),
        depth: int = 0,
    ) -> None:
        self.function = function
        self.instance = instance
        self.attribute = attribute
        self.numbers = numbers
        self.evaluator = evaluator
        self.views = dict.fromkeys(views, False)  # with whether it is known to be an array of more than one number
        self.depth = depth
        self.this = names.self_name(function.scope)
        self.flags = evaluator.project.shared(Flags)

    def first(self) -> WrittenSample | None:
        """The first place that writes."""
        for node in self.function.scope.nodes(inner=False):
            found = self._written(node)
            if found is not None and not self.flags.rule_out(node, self.function, self.instance):
                return found
        return None

    def _written(self, node: cst.CSTNode) -> WrittenSample | None:
        match node:
            case cst.Assign():
                for one in node.targets:
                    if isinstance(one.target, cst.Subscript) and self._is_view(one.target.value):
                        return self._at(node, f"setting `{self.function.module.code(one.target)}`")
                # What the value does with the old view comes before the name has another one.
                found = next((hit for call in descend(node.value) if isinstance(call, cst.Call) and (hit := self._called(call)) is not None), None)
                for one in node.targets:
                    self._bind(one.target, node.value)
                return found
            case cst.AugAssign():
                inside = isinstance(node.target, cst.Subscript) and self._is_view(node.target.value)
                whole = isinstance(node.target, cst.Name) and self.views.get(node.target.value, False)
                return self._at(node, f"setting `{self.function.module.code(node.target)}`") if inside or whole else None
            case cst.Call():
                return self._called(node)
        return None

    def _at(self, node: cst.CSTNode, words: str) -> WrittenSample:
        return WrittenSample(self.function.module, node, words)

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """A name gets a value: it is a view then, or no longer one."""
        for part in descend(target):
            if isinstance(part, cst.Name):
                if isinstance(target, cst.Name) and self._is_view(value):
                    self.views[part.value] = self._is_array(value)
                else:
                    self.views.pop(part.value, None)

    def _called(self, call: cst.Call) -> WrittenSample | None:
        """What a call changes: a method of the view, or a function that is given it."""
        word = names.last_name(call.func)
        method = isinstance(call.func, cst.Attribute) and self._is_view(call.func.value)
        in_place = word in _FILLS or (word.endswith("_") and not word.endswith("__") and word not in _ABOUT_AXES)
        if method and in_place:
            return self._at(call, f"`{word}`")
        given = [arg for arg in call.args if not arg.star and self._is_view(arg.value)]
        if not given:
            return None
        if any(arg.keyword is not None and arg.keyword.value == "out" for arg in given):
            return self._at(call, f"`{word}`")
        frame = self.evaluator.calls.plain_frame(self.function.module, self.function.scope)
        for alt in self.evaluator.values(call.func, frame)[:2]:
            if isinstance(alt.value, External) and names.canonical(alt.value.name) in _SHUFFLES:
                return self._at(call, f"`{names.dotted(call.func)}`")
            if isinstance(alt.value, FunctionRef) and self.depth < _DEEPEST and not isinstance(alt.value.scope.node, cst.Lambda):
                inner = {parameter_of(alt.value, call, arg): self._is_array(arg.value) for arg in given}
                below = _Writes(alt.value, self.instance, "", set(), self.evaluator, depth=self.depth + 1)
                below.views = {name: known for name, known in inner.items() if name is not None}
                if below.first() is not None:
                    return self._at(call, f"`{word}`")
        return None

    def _is_view(self, node: cst.BaseExpression) -> bool:
        """Whether an expression gives memory of the data: an element by the sample's number, a slice, what is only turned."""
        match node:
            case cst.Name():
                return node.value in self.views
            case cst.Subscript():
                whole = bool(self.attribute) and is_attribute_named(node.value, self.this, self.attribute)
                return (whole or self._is_view(node.value)) and all(self._is_plain(one.slice) for one in node.slice)
            case cst.Attribute():
                return node.attr.value == "T" and self._is_view(node.value)
            case cst.Call(func=cst.Attribute()) if names.last_name(node.func) in _TURNED:
                return self._is_view(node.func.value)  # type: ignore[attr-defined]
            case cst.Call() if len(node.args) == 1 and self._is_view(node.args[0].value):
                frame = self.evaluator.calls.plain_frame(self.function.module, self.function.scope)
                found = self.evaluator.values(node.func, frame)[:2]
                return bool(found) and all(isinstance(alt.value, External) and names.canonical(alt.value.name) in _SAME for alt in found)
        return False

    def _is_plain(self, part: cst.BaseSlice) -> bool:
        """Whether an index gives a view: bounds, a number; not a list of places or a mask, which copy."""
        if isinstance(part, cst.Slice):
            return True
        value = part.value if isinstance(part, cst.Index) else None
        return isinstance(value, cst.Integer | cst.UnaryOperation | cst.Ellipsis) or (value is not None and is_number(value, self.numbers))

    def _is_array(self, node: cst.BaseExpression) -> bool:
        """Whether a view is known to be an array, and not one number of a row: bounds are taken of it, or a tensor is made of it."""
        match node:
            case cst.Name():
                return self.views.get(node.value, False)
            case cst.Subscript():
                return any(isinstance(one.slice, cst.Slice) for one in node.slice) or self._is_array(node.value)
            case cst.Call():
                return True
        return False
