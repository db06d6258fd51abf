"""What methods and functions of NumPy, torch and OpenCV make of arrays: shapes and types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import AS_ARRAY, REDUCTIONS, SELECTS, SHARES, STACKS, TENSOR_TYPES
from oomlint.memory.shared.byte_size import ITEM_BYTES, allocates
from oomlint.memory.shared.shaped import MOVES, NUMBER, ShapedArray, certain, combined, concatenated, group, moved, nested, stacked
from oomlint.model import arguments, names
from oomlint.model.values import Const, External, ExternalCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.shaped import Part, Shape
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Alternative, Frame, Value

_ALIASES: Final = {"double": "float64", "half": "float16", "long": "int64", "short": "int16", "byte": "uint8", "char": "int8", "single": "float32"}
_CASTS: Final = {**_ALIASES, "float": "float32", "bfloat16": "bfloat16", "int": "int32", "bool": "bool"}  # of torch
_PYTHON: Final = {**_ALIASES, "float": "float64", "int": "int64"}
_CODES: Final = {"f": "float", "u": "uint", "i": "int"}
_SAME: Final = frozenset(
    "copy clone contiguous detach cpu cuda share_memory_ pin_memory requires_grad_ zero_ fill_ normal_ uniform_ random_ clip clamp clamp_ neg round flip "
    "flipud fliplr roll mul_ div_ add_ sub_ nan_to_num zeros_like ones_like empty_like rand_like randn_like GaussianBlur masked_fill".split()
)  # what leaves both the shape and the type
_REAL: Final = frozenset({"abs", "absolute", "real", "imag"})  # what leaves the shape, and gives real numbers
_FLOATING: Final = frozenset("exp log log2 log10 log1p sqrt sin cos tanh sigmoid softmax log_softmax".split())
_LIBRARIES: Final = ("torch.", "numpy.", "cupy.", "cv2.")
_RANGES: Final = frozenset({"arange", "randperm", "permutation", "linspace"})
_SHAPES: Final = frozenset("shape newshape size dim axis axes repeats".split())
CHANNELS: Final = {"1": 1, "L": 1, "P": 1, "I": 1, "F": 1, "GRAY": 1, "RGB": 3, "BGR": 3, "HSV": 3, "YCbCr": 3, "LAB": 3, "RGBA": 4, "CMYK": 4}


class ArrayCalls(ABC):
    """What calls make of arrays; what stands in the calls is asked of whoever derives from it."""

    evaluator: Evaluator
    contents: Contents
    doubt: int  # how much the answer assumes
    active: set[object]  # what is being asked: whoever asks it again runs in a circle

    def assume(self, count: int = 1) -> None:
        """Note that an answer rests on so much that is not certain: of several reasons, which may be one, the most counts."""
        self.doubt = max(self.doubt, count)

    @abstractmethod
    def of(self, node: cst.BaseExpression, frame: Frame) -> Part:
        """What an expression is."""

    @abstractmethod
    def number(self, node: cst.BaseExpression, frame: Frame) -> int | str:
        """A number, or how it is written."""

    @abstractmethod
    def shape(self, nodes: Sequence[cst.BaseExpression], frame: Frame) -> Shape | None:
        """The dimensions that a call is given: one by one, or in a tuple."""

    @abstractmethod
    def usual(self, node: cst.BaseExpression, frame: Frame) -> list[Alternative]:
        """The values that an expression has in a plain run."""

    def whole(self, node: cst.BaseExpression | None, frame: Frame, default: int) -> int | None:
        """A number that is given, else the default; ``None`` where nobody knows."""
        found = self.number(node, frame) if node is not None else default
        return found if isinstance(found, int) else None

    # -- types -------------------------------------------------------------------------------------------------------------

    def dtype(self, node: cst.BaseExpression | None, frame: Frame, default: str = "") -> str:
        """The type that an argument names; empty where nobody knows."""
        if node is None:
            return default
        if isinstance(node, cst.Attribute) and node.attr.value == "dtype":
            one = self.of(node.value, frame)
            return one.dtype if isinstance(one, ShapedArray) else ""
        found = {_dtype(alt.value, names.dotted(node)) for alt in self.usual(node, frame)}
        return found.pop() if len(found) == 1 else ""

    # -- methods -----------------------------------------------------------------------------------------------------------

    def method(self, name: str, base: ShapedArray, call: cst.Call, frame: Frame, first: int = 0) -> Part:
        """What a method of an array gives; ``first`` is the place of its first argument where it is called as a function."""
        plain = arguments.plain(call)[first:]
        if name in _REAL:
            return base.real()
        if name in _SAME:
            return base
        if name == "numpy":
            return replace(base, of="numpy")
        if name in _FLOATING:
            return combined(base, ShapedArray((), "float64", "python"))
        if name in _CASTS and not first:
            return base.cast(_CASTS[name])
        if name in {"astype", "to", "type"}:
            given = [*filter(None, [arguments.named(call, "dtype")]), *plain]
            known = next((found for node in given if (found := self.dtype(node, frame))), "")
            moves = name == "to" and not known and given and all(self._is_device(node, frame) for node in given)
            return base if moves else base.cast(known)
        if name in REDUCTIONS | {"argmax", "argmin"}:
            return self._reduced(name, base, call, frame, plain)
        if name == "item":
            return NUMBER
        if base.shape is None or name not in MOVES:
            return base if name in MOVES else None
        wanted = self.shape(plain or [value for word, value in arguments.by_name(call).items() if word in _SHAPES], frame)
        shape = moved(name, base, wanted, self.whole(arguments.argument_for(call, "axis", place=first + 1), frame, 0)) if wanted is not None else None
        return replace(base, shape=shape)

    def _is_device(self, node: cst.BaseExpression, frame: Frame) -> bool:
        found = [alt.value for alt in self.usual(node, frame)]
        return all(isinstance(one, Const) or (isinstance(one, ExternalCall) and one.name == "torch.device") for one in found)

    def _reduced(self, name: str, base: ShapedArray, call: cst.Call, frame: Frame, plain: Sequence[cst.BaseExpression]) -> Part:
        """A sum, a mean, a largest value: of all of it, or along axes."""
        kept = names.dotted(arguments.named(call, "keepdim", "keepdims")) == "True"
        dtype = "int64" if name.startswith("arg") else "bool" if name in {"any", "all"} else base.dtype
        if base.dtype and "float" not in base.dtype and "complex" not in base.dtype and name in {"mean", "std", "var", "norm", "sum", "prod"}:
            dtype = "int64" if name in {"sum", "prod"} else "float64" if base.of == "numpy" else ""
        nodes = [*filter(None, [arguments.named(call, "dim", "axis")]), *plain][:1]
        axes = self.shape(nodes, frame) if nodes else tuple(range(len(base.shape or ())))
        if axes is None or not base.shape or len(certain(axes)) < len(axes):
            return ShapedArray(() if not nodes else None, dtype, base.of)
        gone = {one % len(base.shape) for one in certain(axes)}
        found = replace(base, shape=tuple(1 if n in gone else one for n, one in enumerate(base.shape) if kept or n not in gone), dtype=dtype)
        return group([found, found.cast("int64")]) if name in SELECTS and base.of == "torch" and nodes else found

    # -- functions ---------------------------------------------------------------------------------------------------------

    def function(self, name: str, call: cst.Call, frame: Frame) -> Part:
        """What a function of a library makes."""
        last, plain = name.rpartition(".")[2], arguments.plain(call)
        if not name.startswith(_LIBRARIES) or arguments.has_stars(call):
            return None
        made = self._made(name, last, call, frame, plain)
        if made is not None or not plain:
            return made
        of = "torch" if name.startswith("torch.") else "numpy"
        base = self.of(plain[0], frame)
        if last in STACKS:
            axis = self.whole(arguments.argument_for(call, "dim", "axis", place=1), frame, {"hstack": 1, "dstack": 2}.get(last, 0))
            found = None if axis is None else stacked(base, axis) if last == "stack" else concatenated(base, axis)
            return found or ShapedArray(None, "", of)
        if of == "numpy" and _PYTHON.get(last, last) in ITEM_BYTES:  # `np.float32(x)`
            return base.cast(_PYTHON.get(last, last), of) if isinstance(base, ShapedArray) else None
        if last in AS_ARRAY | TENSOR_TYPES:
            return self._as_array(last, base, call, frame, of)
        if not isinstance(base, ShapedArray) or base.shape is None:
            return base if isinstance(base, ShapedArray) else None
        if last == "cvtColor" and len(plain) > 1:
            channels = CHANNELS.get(names.last_name(plain[1]).rpartition("2")[2], "...")
            return base.shaped(*base.shape[:2], *((channels,) if channels != 1 else ()))
        if name in {"cv2.resize", "torch.nn.functional.interpolate"}:
            size = self.shape([given], frame) if (given := arguments.argument_for(call, "size", "dsize", place=1)) is not None else None
            if size is None:
                return replace(base, shape=None)
            spatial = len(base.shape) - 2
            return base.shaped(*reversed(size), *base.shape[2:]) if last == "resize" else base.shaped(*base.shape[:2], *(size * spatial)[:spatial])
        return self.method(last, base, call, frame, 1)

    def _made(self, name: str, last: str, call: cst.Call, frame: Frame, plain: Sequence[cst.BaseExpression]) -> Part:
        """An array that is made anew."""
        of = "torch" if name.startswith("torch.") else "numpy"
        kind = arguments.named(call, "dtype")
        nodes, dtype, default = allocates(name, call)
        if nodes:
            filled = arguments.argument_for(call, "fill_value", place=1) if last == "full" and dtype is None else None
            value = self.of(filled, frame) if filled is not None else None
            default = default if filled is None else "" if not isinstance(value, ShapedArray) else value.dtype.replace("float64", default)
            return ShapedArray(self.shape(nodes, frame), self.dtype(dtype, frame, default), of)
        if last in TENSOR_TYPES and len(plain) > 1:
            return ShapedArray(self.shape(plain, frame), _typed(last), of)
        if last in _RANGES and plain:
            sides = [self.number(one, frame) for one in plain[:3]]
            steps = arguments.argument_for(call, "num", "steps", place=2)
            known = [one for one in sides if isinstance(one, int)]
            length = self.number(steps, frame) if steps is not None and last == "linspace" else sides[0] if len(sides) == 1 else "..."
            if last == "arange" and len(known) == len(sides) and 0 not in known[2:]:
                length = len(range(*known))
            default = "int64" if last != "linspace" and len(known) == len(sides) else "" if last == "arange" else "float32" if of == "torch" else "float64"
            return ShapedArray((length,), self.dtype(kind, frame, default), of)
        if last in {"memmap", "open_memmap"}:
            shape = arguments.named(call, "shape")
            given = self.dtype(arguments.argument_for(call, "dtype", place=1), frame, "uint8")
            return ShapedArray(self.shape([shape], frame) if shape is not None else None, given, of)
        if last in {"frombuffer", "fromfile"}:
            return ShapedArray(("...",), self.dtype(arguments.argument_for(call, "dtype", place=1), frame, "float64"), of)
        return ShapedArray(("height", "width", 3), "uint8", of) if name == "cv2.imread" and len(plain) == 1 else None

    def _as_array(self, last: str, base: Part, call: cst.Call, frame: Frame, of: str) -> Part:
        """An array of an array, of a picture, of numbers, or of a list of them."""
        base = nested(base)
        given = arguments.argument_for(call, "dtype", place=1)
        if not isinstance(base, ShapedArray):
            return ShapedArray(None, _typed(last) if last in TENSOR_TYPES else self.dtype(given, frame), of)
        shape = base.shape
        if base.of == "picture" and shape is not None:  # one of one colour has no axis for it
            shape = shape[:2] if shape[2] == 1 else shape if isinstance(shape[2], int) else None
        default = "float32" if of == "torch" and base.of == "python" and base.dtype == "float64" and last not in SHARES - {"as_tensor"} else base.dtype
        return replace(base, shape=shape, dtype=_typed(last) if last in TENSOR_TYPES else self.dtype(given, frame, default), of=of)


def _typed(last: str) -> str:
    """The type of a class of tensors: ``LongTensor``."""
    return _CASTS.get(last.removesuffix("Tensor").lower() or "float", "")


def _dtype(value: Value, dotted: str) -> str:
    """The type that a value names, or a name of a type."""
    name = value.name if isinstance(value, External) else dotted
    if isinstance(value, Const) and isinstance(value.value, str):
        name = value.value.lstrip("<>=|")
        width = name[1:]
        name = f"{_CODES[name[0]]}{8 * int(width)}" if width.isdigit() and name[0] in _CODES else name
    library, _, word = name.rpartition(".")
    if word in TENSOR_TYPES:
        return _typed(word)
    word = (_CASTS if library in {"torch", "th"} else _PYTHON).get(word.rstrip("_"), word.rstrip("_"))
    return word if word in ITEM_BYTES else ""
