"""What an expression holds by the way it is written: operators, subscripts, methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import COLLECTIONS, DRAWS, REDUCTIONS
from oomlint.memory.shared.array_bytes import known_size
from oomlint.memory.shared.byte_size import Size
from oomlint.memory.shared.computed import Computed, computed
from oomlint.memory.shared.content_kinds import NOTHING, Content, Form, PayloadKind, whole_hdf5, worst
from oomlint.memory.shared.known_libraries import GENERATORS
from oomlint.model import arguments
from oomlint.model.values import External, ExternalCall, Frame, is_typed

if TYPE_CHECKING:
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.model.project import Module

_ARRAY_METHODS = frozenset(
    "astype reshape copy transpose squeeze flatten ravel swapaxes view T repeat clip round to_numpy values numpy cumsum take".split(),
)
_VIEWS = frozenset("detach permute reshape view transpose squeeze unsqueeze t share_memory_ expand flatten narrow".split())  # no copy
_TRANSFORMS = ("torchvision.transforms.", "torchaudio.transforms.")  # objects that make a picture of a picture, a signal of a signal
_STRING_METHODS = frozenset("strip rstrip lstrip lower upper replace format decode join encode title".split())
_DRAWS = DRAWS | {"choice", "permutation"}

_COMPUTING = frozenset({PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.FRAME})  # the operators of these take what stands beside them for numbers
_FEW = 16  # numbers
_TYPED = 64  # parts of what somebody types behind an option, at most
_CONTAINERS = frozenset({PayloadKind.OBJECTS, PayloadKind.PATHS, PayloadKind.ARRAYS, PayloadKind.TENSORS})


# Methods whose name says what they return, whatever they are called on.
_TELLING: dict[str, Content] = {
    **dict.fromkeys(("readlines", "splitlines"), Content(PayloadKind.OBJECTS, "a list of lines", strings=True, form=Form.LIST)),
    **dict.fromkeys(("glob", "rglob", "iterdir"), Content(PayloadKind.PATHS, "file names")),
    **dict.fromkeys(("loadAnns", "loadImgs", "loadCats"), Content(PayloadKind.OBJECTS, "a list of dicts", form=Form.LIST)),
}


_ROWS: Final = {"itertuples": Form.ROWS, "iterrows": Form.NUMBERED_ROWS}


# What a plain value becomes.
_CONVERTED: dict[str, tuple[PayloadKind, str]] = {
    "builtins.str": (PayloadKind.TEXT, "a string"),
    **dict.fromkeys(("builtins.int", "builtins.float"), (PayloadKind.SCALAR, "a number")),
}


class WrittenForms:
    """Classifies what nothing reduces further."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.evaluator = contents.evaluator

    def written(self, node: cst.BaseExpression, frame: Frame) -> Content:
        """What can be said of an expression by the way it is written."""
        module = frame.module
        if isinstance(node, cst.FormattedString):
            return Content(PayloadKind.TEXT, "a string", module, node, strings=True)
        if isinstance(node, cst.BinaryOperation):
            return self._operation(node, frame)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, cst.Call):
            return self._method(node, frame)
        return NOTHING

    def augmented(self, node: cst.AugAssign, frame: Frame) -> Content:
        """What ``x += y`` leaves: an array that computes in place is what it was."""
        before = self.contents.of(node.target, frame)
        return before if before.kind in _COMPUTING else NOTHING

    def _operation(self, node: cst.BinaryOperation, frame: Frame) -> Content:
        sides = [self.contents.of(node.left, frame), self.contents.of(node.right, frame)]
        if isinstance(node.operator, cst.Modulo) and sides[0].kind is PayloadKind.TEXT:
            return Content(PayloadKind.TEXT, "a string", frame.module, node, strings=True)
        best = worst(_results(node.operator, sides))
        repeated = [side for side in (node.left, node.right) if isinstance(side, cst.List) and len(side.elements) == 1]
        if isinstance(node.operator, cst.Multiply) and repeated:
            element = self.contents.of(repeated[0].elements[0].value, frame)
            return Content(PayloadKind.SMALL, "a list of one value", frame.module, node, element)  # one object, however long the list
        if best.kind in {
            PayloadKind.ARRAY,
            PayloadKind.TENSOR,
            PayloadKind.OBJECTS,
            PayloadKind.PATHS,
            PayloadKind.ARRAYS,
            PayloadKind.TENSORS,
            PayloadKind.FRAME,
        }:
            counts = [s.count for s in sides]
            known = counts[0] + counts[1] if isinstance(node.operator, cst.Add) and counts[0] is not None and counts[1] is not None else None
            return replace(best, module=frame.module, node=node, count=known)
        return best

    def _subscript(self, node: cst.Subscript, frame: Frame) -> Content:
        base = self.contents.of(node.value, frame)
        if base.kind is PayloadKind.H5:
            return whole_hdf5(frame.module, node)
        if base.kind in {PayloadKind.MEMMAP, PayloadKind.SHARED}:
            return base
        if base.kind in {PayloadKind.OBJECTS, PayloadKind.PATHS, PayloadKind.ARRAYS, PayloadKind.TENSORS}:
            one = isinstance(node.slice[0].slice, cst.Index) and base.element is not None and base.element.kind is not PayloadKind.UNKNOWN
            return base.element if one and base.element is not None else replace(base, count=self.contents.containers.sliced(node, frame))
        if base.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.FRAME, PayloadKind.BLOB}:
            return replace(base, size=Size())
        return base if base.kind is PayloadKind.TEXT else NOTHING

    def _method(self, node: cst.Call, frame: Frame) -> Content:
        func = node.func
        module = frame.module
        if not isinstance(func, cst.Attribute):
            return self._called(node, frame)
        name = func.attr.value
        if name in _DRAWS and any(isinstance(a.value, ExternalCall) and a.value.name in GENERATORS for a in self.evaluator.values(func.value, frame)):
            return Content(PayloadKind.ARRAY, "a NumPy array", module, node, size=known_size(f"numpy.random.{name}", node, self.evaluator, frame))
        if name in _TELLING:
            return replace(_TELLING[name], module=module, node=node)
        base = self.contents.of(func.value, frame)
        if name == "split":
            return Content(PayloadKind.OBJECTS, "a list of strings", module, node, count=self._typed(func.value, frame), strings=True, form=Form.LIST)
        if name in _STRING_METHODS and (base.kind in {PayloadKind.TEXT, PayloadKind.UNKNOWN} or isinstance(func.value, cst.SimpleString)):
            return Content(PayloadKind.TEXT, "a string", module, node, strings=True)
        if name == "read" and base.kind is PayloadKind.HANDLE:
            return Content(PayloadKind.TEXT, "the text of a file", module, node, form=Form.TEXT_OF_FILE)
        if base.kind is PayloadKind.H5:
            return _of_h5(name, module, node)
        if name in {"fit_transform", "transform", "inverse_transform"} and (made := self._made_by("sklearn.", func.value, frame)):
            few = name != "inverse_transform" and all(self._has_few_columns(one) for one in made)
            return Content(PayloadKind.SMALL, "a few numbers for each row", module, node) if few else Content(PayloadKind.ARRAY, "a NumPy array", module, node)
        known = _of_array(name, base, module, node) or _of_any(name, base, module, node)
        return known if known.kind is not PayloadKind.UNKNOWN else self._called(node, frame)  # an attribute may hold an object that is called

    def _typed(self, text: cst.BaseExpression, frame: Frame) -> int | None:
        """How many parts a text has that an option of the command line is given; ``None`` for any other text."""
        return _TYPED if is_typed(self.evaluator.values(text, frame)) else None

    def _called(self, node: cst.Call, frame: Frame) -> Content:
        """What a call makes, by what is called."""
        func, module = node.func, frame.module
        if isinstance(func, cst.Name) and func.value in COLLECTIONS and node.args:
            inner = node.args[0].value
            word = "list" if func.value == "sorted" else func.value
            containers = self.contents.containers
            if isinstance(inner, cst.GeneratorExp):
                return containers.container(word, self.contents.of(inner.elt, frame), containers.count(inner, frame), module, node)
            if self.contents.of(inner, frame).form is Form.RANGE:
                number = Content(PayloadKind.SCALAR, "a number", numbers=True)
                return containers.container(word, number, containers.count(inner, frame), module, node)
        called = [alt.value for alt in self.evaluator.values(func, frame)]
        plain = [_CONVERTED.get(one.name) if isinstance(one, External) else None for one in called]
        if plain and plain[0] is not None and len(set(plain)) == 1:
            kind, words = plain[0]
            return Content(kind, words, module, node, strings=kind is PayloadKind.TEXT, numbers=kind is PayloadKind.SCALAR)
        made = [one.name for one in called if isinstance(one, ExternalCall)]
        if any(name.endswith((".ToTensor", ".PILToTensor")) for name in made):
            return Content(PayloadKind.TENSOR, "a tensor", module, node)
        if node.args and any(name.startswith(_TRANSFORMS) for name in made):
            base = self.contents.of(node.args[0].value, frame)
            return replace(base, size=Size()) if base.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR} else NOTHING
        return Content(PayloadKind.OBJECTS, "a tuple", module, node, count=len(node.args)) if "collections.namedtuple" in made else NOTHING

    def _made_by(self, library: str, node: cst.BaseExpression, frame: Frame) -> list[ExternalCall]:
        """The calls of a library that make the object which an expression is."""
        found = (alt.value for alt in self.evaluator.values(node, frame)[:3])
        return [one for one in found if isinstance(one, ExternalCall) and one.name.startswith(library)]

    def _has_few_columns(self, made: ExternalCall) -> bool:
        """Whether an object of scikit-learn is told to leave a few numbers of each row: ``TSNE(n_components=2)``."""
        given = arguments.named(made.call, "n_components")
        found = self.evaluator.values(given, made.frame) if given is not None else []
        return bool(found) and all(isinstance(alt.const, int) and alt.const <= _FEW for alt in found)


def _results(operator: cst.BaseBinaryOp, sides: list[Content]) -> list[Content]:
    """The sides that say what an operation gives: beside an array a container is taken for its numbers, and few operators take containers at all."""
    arrays = [side for side in sides if side.kind in _COMPUTING]
    if arrays:
        return arrays
    if isinstance(operator, cst.Add | cst.Multiply):
        return sides
    sets = isinstance(operator, cst.Subtract | cst.BitAnd | cst.BitOr | cst.BitXor)
    return [side for side in sides if side.kind not in _CONTAINERS or (sets and side.form is not Form.LIST)]


def _of_h5(method: str, module: Module, node: cst.Call) -> Content:
    """What a method of something in an open HDF5 file returns."""
    if method == "get":
        return Content(PayloadKind.H5, "an open `h5py.Dataset`", module, node)
    if method in {"keys", "attrs", "items"}:
        return Content(PayloadKind.PATHS, "the keys of a file", module, node)
    return whole_hdf5(module, node)


def _of_array(method: str, base: Content, module: Module, node: cst.Call) -> Content | None:
    """What a method of an array, a tensor or a table returns; ``None`` where neither the method nor the value says that it is one."""
    if method == "unique" or (method in {"tolist", "copy", "astype"} and base.kind is PayloadKind.SMALL):
        return Content(PayloadKind.SMALL, "the distinct values", module, node)
    if method == "tolist":
        label = base.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.FRAME, PayloadKind.UNKNOWN}
        return Content(PayloadKind.OBJECTS, "a list of `tolist()`", module, node, doubt=0 if label else 1, size=base.size, form=Form.LIST)
    if method in {"to_dict", "iterrows", "itertuples", "to_records"}:
        return Content(PayloadKind.OBJECTS, f"what `{method}` makes of a DataFrame", module, node, form=_ROWS.get(method))
    if base.kind is PayloadKind.FRAME:
        if method == "to_numpy":
            return Content(PayloadKind.ARRAY, "the values of a DataFrame", module, node, doubt=1)
        reduced = _worked_out(base, method, node) if method in REDUCTIONS else base  # of a column a number, of a table one for each column
        return reduced if reduced.kind is PayloadKind.SCALAR else replace(base, module=module, node=node)
    if base.kind in {PayloadKind.ARRAY, PayloadKind.ARRAYS} and method in _ARRAY_METHODS:
        return base
    if base.kind is PayloadKind.ARRAY and method in REDUCTIONS:
        return _worked_out(base, method, node)
    if base.kind is PayloadKind.SHARED and method in _VIEWS:
        return base
    if base.kind is PayloadKind.TENSOR and method != "item":
        if method == "numpy":
            return Content(PayloadKind.ARRAY, "a NumPy array", module, node, size=base.size)
        return _worked_out(base, method, node)
    return None


def _worked_out(base: Content, method: str, node: cst.Call) -> Content:
    """What a method computes of an array."""
    match computed(method, node, before=0):
        case Computed.ARRAY:
            return base
        case Computed.NUMBER:
            return Content(PayloadKind.SCALAR, "a number", numbers=True)
    return NOTHING


def _of_any(method: str, base: Content, module: Module, node: cst.Call) -> Content:
    """What a method returns, whatever it is called on."""
    if method == "item":
        return Content(PayloadKind.SCALAR, "a number", numbers=True)
    if method == "read" or method.startswith("read_") or method == "get":
        return base.element if base.element is not None else NOTHING
    if method in {"values", "keys", "items", "copy", "union", "difference"} and base.kind in {
        PayloadKind.OBJECTS,
        PayloadKind.PATHS,
        PayloadKind.ARRAYS,
        PayloadKind.TENSORS,
        PayloadKind.BLOB,
    }:
        return base
    if method in {"convert", "resize", "crop"}:
        return Content(PayloadKind.ARRAY, "a decoded image", module, node, doubt=1)
    return NOTHING
