"""Bytes of an element before and after all of an array is divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.datasets.sample_values import Parts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.shaped import ShapedArray

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project

_WIDE: Final = 8  # bytes of a float64
_HALF: Final = 4  # bytes of a float32, which torch makes of bytes
_CASTS: Final = frozenset({"astype", "float", "half", "double"})


def element_bytes(project: Project, module: Module, node: cst.BinaryOperation) -> tuple[int, int]:
    """Bytes of an element before a division, and a conversion in front of it, and after; what nobody knows the type of is taken for bytes, and for NumPy's."""
    parts = Parts(evaluator_of(project), constructions_of(project).contents)
    frame = parts.evaluator.calls.plain_frame(module, module.walk.scope_at(node))
    source, made = node.left, parts.of(node, frame)
    after = made.item if isinstance(made, ShapedArray) else None
    while isinstance(source, cst.Call) and isinstance(source.func, cst.Attribute) and source.func.attr.value in _CASTS:
        name, base = source.func.attr.value, parts.of(source.func.value, frame)
        cast = parts.method(name, base if isinstance(base, ShapedArray) else ShapedArray(), source, frame)
        after = after or (cast.item if isinstance(cast, ShapedArray) else None)
        source = source.func.value
    one = parts.of(source, frame)
    before = one.item if isinstance(one, ShapedArray) and one.of != "python" else None
    return before or 1, after or (_HALF if isinstance(one, ShapedArray) and one.of == "torch" else _WIDE)
