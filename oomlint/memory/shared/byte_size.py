"""Bytes of arrays: shape times element size, where constants reach."""

from __future__ import annotations

from typing import Final

import libcst as cst
from msgspec import Struct

from oomlint.model import arguments, names
from oomlint.scout.telling_names import MAKERS

# Bytes of one element, by the name that numpy or torch gives the type.
ITEM_BYTES = {
    "bool": 1, "bool_": 1, "uint8": 1, "int8": 1, "byte": 1, "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "uint16": 2,
    "float32": 4, "float": 4, "int32": 4, "int": 4, "uint32": 4, "single": 4, "float64": 8, "double": 8, "int64": 8, "long": 8, "uint64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip

_SIZED: Final = frozenset({"normal", "uniform"})
_ONE_SHAPE: Final = frozenset({"zeros", "ones", "empty", "full", "random", "random_sample", "standard_normal"})


class Size(Struct, frozen=True):
    """Bytes of something; ``None`` where unknown."""

    exact: int | None = None

    @property
    def known(self) -> bool:
        """Whether the exact number of bytes is known."""
        return self.exact is not None


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


def allocates(name: str, call: cst.Call) -> tuple[list[cst.BaseExpression], cst.BaseExpression | None, str]:
    """The shape that such a call is given, which is empty for other calls, the type, and the type that it has where none is given."""
    library, _, maker = name.rpartition(".")
    numpy = library.startswith("numpy")
    default = "int64" if maker in {"randint", "integers"} else "float64" if numpy else "float32"
    if maker not in MAKERS or not (numpy or library in {"torch", "cupy"}):
        return [], None, default
    plain = arguments.plain(call)
    keywords = arguments.by_name(call)
    dtype = keywords.get("dtype")
    if maker in {"randint", "integers"}:
        size = keywords.get("size", plain[2] if len(plain) > 2 else plain[1] if len(plain) > 1 and not numpy else None)  # noqa: PLR2004 - low, high, size
        shape = [size] if size is not None else []
    elif maker in _SIZED and "size" in keywords:
        shape = [keywords["size"]]
    elif maker in _SIZED:
        shape = plain[2:3] if maker in {"normal", "uniform"} else []
    elif maker in _ONE_SHAPE and numpy:
        shape = plain[:1] or [keywords[k] for k in ("shape", "size") if k in keywords]
        place = 2 if maker == "full" else 1
        if dtype is None and len(plain) > place and maker != "random":
            dtype = plain[place]
    elif maker == "full":
        shape = plain[:1] or [keywords[k] for k in ("size",) if k in keywords]
    else:
        shape = plain or [keywords[k] for k in ("size",) if k in keywords]
    return shape, dtype, default
