"""Bytes of arrays: shape times element size, where constants reach."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.amounts import readable
from oomlint.api_names import ALLOCATORS
from oomlint.model import arguments, names
from oomlint.model.values import Const, Display

if TYPE_CHECKING:
    from oomlint.model.questions import Questions
    from oomlint.model.values import Frame

# Bytes of one element, by the name that numpy or torch gives the type.
ITEM_BYTES = {
    "bool": 1, "bool_": 1, "uint8": 1, "int8": 1, "byte": 1, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "uint16": 2,
    "float32": 4, "float": 4, "int32": 4, "int": 4, "uint32": 4, "single": 4, "float64": 8, "double": 8, "int64": 8, "long": 8, "uint64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of something: exact, at least so many, or a formula; all ``None`` and empty where unknown."""

    exact: int | None = None
    formula: str = ""

    @property
    def known(self) -> bool:
        """Whether the exact number of bytes is known."""
        return self.exact is not None

    def words(self) -> str:
        """For a message: ``1.3 GiB``, ``N * 3 * 640 * 480 * 1 B`` or nothing."""
        if self.exact is not None:
            return readable(self.exact)
        return self.formula


def item_bytes(node: cst.BaseExpression | None, default: int) -> int | None:
    """Bytes of one element of a dtype as it is written; ``None`` where the dtype is unknown."""
    if node is None:
        return default
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        word = value if isinstance(value, str) else ""
        return {"f4": 4, "f8": 8, "f2": 2, "u1": 1, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "<f4": 4, "<f8": 8}.get(word, ITEM_BYTES.get(word))
    name = names.last_name(node)
    if name in {"float", "int"} and not (isinstance(node, cst.Attribute) and names.last_name(node.value) == "torch"):
        return 8  # of Python, or the same under the name that NumPy had for it until 1.24
    return ITEM_BYTES.get(name)


def shape_of(nodes: list[cst.BaseExpression], evaluator: Questions, frame: Frame) -> list[int] | None:
    """A shape of constants: ``(1449, 3, 640, 480)`` or the same as separate arguments."""
    if len(nodes) == 1:
        for alt in evaluator.values(nodes[0], frame):
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.Tuple | cst.List):
                inner = [e.value for e in alt.value.node.elements]
                return _numbers(inner, evaluator, alt.value.frame)
    return _numbers(nodes, evaluator, frame)


def _numbers(nodes: list[cst.BaseExpression], evaluator: Questions, frame: Frame) -> list[int] | None:
    found: list[int] = []
    for node in nodes:
        alternatives = evaluator.values(node, frame)
        constants = {a.value.value for a in alternatives if isinstance(a.value, Const)}
        if len(alternatives) != 1 or len(constants) != 1:
            return None
        number = constants.pop()
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        found.append(number)
    return found


def allocated(name: str, call: cst.Call, evaluator: Questions, frame: Frame) -> Size:
    """Bytes of ``np.zeros((n, m), dtype)``, ``torch.randn(n, m)`` and their like."""
    library, _, maker = name.rpartition(".")
    default = 8 if library.startswith("numpy") else 4
    if maker in {"randint", "arange", "randperm"}:
        default = 8
    positional = arguments.plain(call)
    keywords = arguments.by_name(call)
    dtype = keywords.get("dtype")
    if maker in ALLOCATORS and library == "numpy":
        shape_nodes = positional[:1] or [keywords[k] for k in ("shape",) if k in keywords]
        if dtype is None and len(positional) > (2 if maker == "full" else 1):
            dtype = positional[2 if maker == "full" else 1]
    elif maker == "randint":
        size = keywords.get("size", positional[2] if len(positional) > 2 else None)  # noqa: PLR2004 - low, high, size
        if size is None:
            return Size()
        shape_nodes = [size]
    elif maker in {"normal", "uniform"} and "size" in keywords:
        shape_nodes = [keywords["size"]]
    elif maker == "full":
        shape_nodes = positional[:1]
    else:
        shape_nodes = positional
    if not shape_nodes:
        return Size()
    shape = shape_of(shape_nodes, evaluator, frame)
    each = item_bytes(dtype, default)
    if shape is None or each is None:
        return Size()
    return Size(prod(shape) * each)
