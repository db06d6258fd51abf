"""What becomes of an array between its allocation and where it is kept: the same bytes, another type, or nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY
from oomlint.memory.shared.array_shapes import allocation
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model import arguments, names
from oomlint.model.values import Const, ExternalCall, Written

if TYPE_CHECKING:
    from oomlint.memory.shared.array_shapes import Bytes
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.questions import Questions
    from oomlint.model.values import Frame

AS_MADE: Final = 0  # the type is that of the allocation
_CASTS: Final = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1, "bool": 1}
_SAME: Final = frozenset(
    "copy clone reshape view transpose squeeze unsqueeze flatten ravel swapaxes permute t contiguous detach cpu cuda numpy share_memory_ pin_memory "
    "requires_grad_ zero_ fill_ normal_ uniform_ random_".split()
)
_TYPED: Final = frozenset({"astype", "to", "type"})
UNCOUNTED: Final = frozenset({"eye", "identity", "tri", "linspace", "logspace", "geomspace", "fromiter", "frombuffer"})  # arrays of sizes that are not counted
_DEEPEST: Final = 12
_MOST_WAYS: Final = 4


def item_of(node: cst.BaseExpression, frame: Frame, content: Content, evaluator: Questions, depth: int = 0) -> int | None:
    """Bytes of one element of an array that still has the shape of its allocation, or ``AS_MADE``; None where something unknown happens to it on the way."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method, base = node.func.attr.value, node.func.value
        if method in AS_ARRAY and len(node.args) == 1:
            return item_of(node.args[0].value, frame, content, evaluator, depth + 1)
        known = _SAME | _CASTS.keys() | _TYPED
        if node is not content.node or method == "numpy":
            if method not in known:
                return _of_values(node, frame, content, evaluator, depth)
            before = item_of(base, frame, content, evaluator, depth + 1)
            after = _after(node, method)
            return before if before is None or after == AS_MADE else after
    if node is content.node:
        return _made(node, frame, evaluator) if isinstance(node, cst.Call) else None  # an operation: its type and its shape may be others
    return _of_values(node, frame, content, evaluator, depth) if isinstance(node, cst.Call | cst.Name | cst.Attribute) else None


def origin(node: cst.BaseExpression, frame: Frame, evaluator: Questions) -> cst.BaseExpression:
    """What an array was before it was cast, handed on and named: an expression with as many elements."""
    for _ in range(_DEEPEST):
        before = _before(node, frame, evaluator)
        if before is None:
            break
        node = before
    return node


def _before(node: cst.BaseExpression, frame: Frame, evaluator: Questions) -> cst.BaseExpression | None:
    if isinstance(node, cst.Name):
        found = evaluator.values(node, frame)
        value = found[0].value if len(found) == 1 else None
        if isinstance(value, Written):
            return value.node if value.node is not node and value.frame == frame else None
        return value.call if isinstance(value, ExternalCall) and value.frame == frame else None
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    method = node.func.attr.value
    if method in AS_ARRAY and len(node.args) == 1:
        return node.args[0].value
    return node.func.value if method in _SAME | _CASTS.keys() | _TYPED else None


def _of_values(node: cst.BaseExpression, frame: Frame, content: Content, evaluator: Questions, depth: int) -> int | None:
    """The same of what a name or a call of the project stands for; of several ways, where all agree."""
    found: set[int | None] = set()
    for alt in evaluator.values(node, frame)[:_MOST_WAYS]:
        value = alt.value
        if isinstance(value, Written) and value.node is not None and value.node is not node and value.frame is not None:
            found.add(item_of(value.node, value.frame, content, evaluator, depth + 1))
        elif isinstance(value, ExternalCall) and value.call is not node:
            found.add(item_of(value.call, value.frame, content, evaluator, depth + 1))
        elif isinstance(value, ExternalCall) and allocation(names.canonical(value.name), value.call, evaluator, value.frame) is not None:
            found.add(_made(value.call, value.frame, evaluator))
        elif not (isinstance(value, Const) and value.value is None):
            found.add(None)
    return found.pop() if len(found) == 1 else None


def _after(node: cst.Call, method: str) -> int | None:
    """The type that a method gives: another one, the one before, or nobody knows."""
    if method in _SAME:
        return AS_MADE
    if method in _CASTS:
        return _CASTS[method]
    given = [*arguments.plain(node), *filter(None, [arguments.named(node, "dtype")])]
    if method == "to" and len(given) == 1 and isinstance(given[0], cst.SimpleString):
        return AS_MADE  # a device
    return next((item for one in given if (item := item_bytes(one, AS_MADE))), None)


def _made(node: cst.Call, frame: Frame, evaluator: Questions) -> int | None:
    """What is made may have the type of what it is filled with: ``torch.full((3, 4), 0)``."""
    maker = names.last_name(node.func)
    if maker in UNCOUNTED or (maker == "arange" and sum(arg.keyword is None for arg in node.args) != 1):
        return None  # its arguments are no shape
    if maker != "full" or arguments.has(node, "dtype") or len(node.args) > 2:  # noqa: PLR2004 - a shape, a value
        return AS_MADE
    filled = arguments.argument_for(node, "fill_value", place=1)
    values = [alt.value.value for alt in evaluator.values(filled, frame) if isinstance(alt.value, Const)] if filled is not None else []
    kinds = {type(value) for value in values}
    return {bool: 1, int: 8, float: AS_MADE}.get(kinds.pop()) if len(kinds) == 1 else None


def bytes_of(content: Content, node: cst.BaseExpression, frame: Frame, evaluator: Questions) -> int | None:
    """Bytes of an array as it is where ``node`` stands; None where they are not known."""
    if content.size.exact is None:
        return None
    item = item_of(node, frame, content, evaluator) if content.kind in {Kind.ARRAY, Kind.TENSOR} else AS_MADE
    if not item:
        return content.size.exact if item == AS_MADE else None
    made = made_as(content, frame, evaluator)
    return made.elements * item if made is not None and made.elements is not None else None


def made_as(content: Content, frame: Frame, evaluator: Questions) -> Bytes | None:
    """The shape that an array is made in."""
    if content.module is None or not isinstance(content.node, cst.Call):
        return None
    scope = content.module.walk.scope_at(content.node)
    here = frame if frame.scope is scope else evaluator.calls.plain_frame(content.module, scope)
    for alt in evaluator.values(content.node, here)[:2]:
        if isinstance(alt.value, ExternalCall):
            return allocation(names.canonical(alt.value.name), alt.value.call, evaluator, alt.value.frame)
    return None
