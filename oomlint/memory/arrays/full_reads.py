"""Expressions that read all of an array that stays in a file: ``d[:]``, ``np.array(d)``, ``mm.copy()``."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import OF_LISTS, STACKS
from oomlint.memory.arrays.stored_arrays import ArrayPlace, H5Object, StoredArrays, is_full
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import Display, Element, External, ExternalCall, SourceExpression, Unknown
from oomlint.syntax.nodes import children_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope


class FullReadForm(Enum):
    """How everything is read."""

    SLICE = "a slice over everything"  # d[:], d[...], d[()], d[:, :]
    VALUE = ".value"  # d.value, d.__array__(), d.read_direct(a), d.read()
    ARRAY = "an array of it"  # np.array(d), np.asarray(d)
    TENSOR = "a tensor of it"  # torch.tensor(d): element by element for HDF5
    LIST = "a list of it"  # list(d), d.tolist(), [x for x in d]
    COPY = "a copy of it"  # of a memory map: mm.copy(), mm.astype(t), mm[:].copy()


class WholeRead(Struct, frozen=True):
    """An expression that reads all of an array."""

    what: H5Object
    node: cst.BaseExpression  # `f["x"][:]`
    source: cst.BaseExpression  # `f["x"]`
    form: FullReadForm
    frame: Frame  # where ``node`` stands

    @property
    def module(self) -> Module:
        """The module of ``node``."""
        return self.frame.module

    @property
    def doubt(self) -> int:
        """How much is assumed."""
        return self.what.doubt


_MOST: Final = 6
_DEEPEST: Final = 12
_ARRAYS: Final = frozenset(
    "numpy.array numpy.asarray numpy.asanyarray numpy.ascontiguousarray numpy.asfortranarray numpy.copy numpy.float32 numpy.float64".split()
)
_TENSORS: Final = frozenset(
    "torch.tensor torch.as_tensor torch.asarray torch.Tensor torch.FloatTensor torch.DoubleTensor torch.HalfTensor torch.LongTensor torch.IntTensor "
    "torch.ShortTensor torch.CharTensor torch.ByteTensor torch.BoolTensor".split(),
)
_LISTS: Final = frozenset({"builtins.list", "builtins.tuple"})
_CALLED: Final = frozenset(name.rpartition(".")[2] for name in (*_ARRAYS, *_TENSORS, *_LISTS))
_OF_MAPS: Final = frozenset({"tolist", "copy", "astype", "clone"})  # methods that read a memory map
_METHODS: Final = frozenset({"__array__", "read", "read_direct"}) | _OF_MAPS


class WholeReads(StoredArrays):
    """Answers what stays in a file and what reads it whole. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._reads: AnswerMemory[tuple[cst.CSTNode, Frame], WholeRead | None] = AnswerMemory(project.readings)
        self._scopes: AnswerMemory[Scope, list[WholeRead]] = AnswerMemory(project.readings)

    def whole(self, node: cst.BaseExpression, frame: Frame) -> WholeRead | None:
        """The read of a whole array that an expression is, or that a name or attribute holds."""
        key = (node, frame)
        if key in self._reads:
            return self._reads[key]
        mark = ("read", node, frame)
        if mark in self._active or len(self._active) > _DEEPEST:
            self._reads.give_up()
            return None
        self._active.add(mark)
        try:
            found = self.written(node, frame) or self._held(node, frame)
        finally:
            self._active.discard(mark)
        if found is not None or not self._active:
            self._reads[key] = found
        return found

    def written(self, node: cst.BaseExpression, frame: Frame) -> WholeRead | None:
        """The read that an expression is as it is written."""
        if isinstance(node, cst.Subscript):
            if not is_full(node) or frame.module.walk.is_target(node):
                return None
            what = self.dataset(node.value, frame)
            return WholeRead(what, node, node.value, FullReadForm.SLICE, frame) if what is not None and what.store is not ArrayPlace.MEMMAP else None
        if isinstance(node, cst.Attribute):
            what = self.dataset(node.value, frame) if node.attr.value == "value" else None
            return WholeRead(what, node, node.value, FullReadForm.VALUE, frame) if what is not None and what.store is ArrayPlace.H5 else None
        if isinstance(node, cst.ListComp) and node.for_in.inner_for_in is None and not node.for_in.ifs:
            what = self.dataset(node.for_in.iter, frame)
            if what is None or what.store is ArrayPlace.MEMMAP or not self._lists_rows(what, node, frame):
                return None
            return WholeRead(what, node, node.for_in.iter, FullReadForm.LIST, frame)
        if isinstance(node, cst.BinaryOperation):
            return self._computed(node, frame)
        if not isinstance(node, cst.Call):
            return None
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _METHODS:
            return self._read_method(node, node.func, frame)
        if names.last_name(node.func) in STACKS:
            return self._joined(node, frame)
        if names.last_name(node.func) not in _CALLED or not node.args or node.args[0].star or node.args[0].keyword is not None:
            return None
        form = self._form(node, frame)
        what = self.dataset(node.args[0].value, frame) if form is not None else None
        if form is None or what is None or (what.store is ArrayPlace.MEMMAP and not _copies(node, form)):
            return None
        if form is FullReadForm.LIST and not self._lists_rows(what, node, frame):
            return None
        return WholeRead(what, node, node.args[0].value, form, frame)

    @staticmethod
    def _lists_rows(what: H5Object, node: cst.BaseExpression, frame: Frame) -> bool:
        """Whether a list is one of rows: of a group it would be one of names."""
        module = frame.module
        holder = module.walk.parents.get(node)
        call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
        if isinstance(call, cst.Call) and names.last_name(call.func) in OF_LISTS:
            return True
        key = what.keys[-1] or "" if what.keys else ""
        return bool(key) and re.search(rf"""\[["']{re.escape(key)}["']\](\.(shape|dtype|ndim|value)\b|\[[:.(\d-])""", module.tree.source.text) is not None

    def _form(self, node: cst.Call, frame: Frame) -> FullReadForm | None:
        for alt in self.evaluator.values(node.func, frame)[:2]:
            if isinstance(alt.value, External):
                name = names.canonical(alt.value.name)
                return next(
                    (form for form, known in ((FullReadForm.ARRAY, _ARRAYS), (FullReadForm.TENSOR, _TENSORS), (FullReadForm.LIST, _LISTS)) if name in known),
                    None,
                )
        return None

    def _joined(self, node: cst.Call, frame: Frame) -> WholeRead | None:
        """Memory maps that are copied into one array: ``np.concatenate([np.memmap(p) for p in paths])``."""
        for element in _elements(node):
            what = self.dataset(element, frame)
            if what is not None and what.store is ArrayPlace.MEMMAP:
                return WholeRead(what, node, element, FullReadForm.ARRAY, frame)
        return None

    def _computed(self, node: cst.BinaryOperation, frame: Frame) -> WholeRead | None:
        """Arithmetic on a whole memory map: ``mm / 255``."""
        if not isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply | cst.Divide):
            return None
        for side in (node.left, node.right):
            if isinstance(side, cst.Name | cst.Attribute) or (isinstance(side, cst.Subscript) and is_full(side)):
                what = self.dataset(side, frame)
                if what is not None and what.store is ArrayPlace.MEMMAP:
                    return WholeRead(what, node, side, FullReadForm.COPY, frame)
        return None

    def _read_method(self, node: cst.Call, func: cst.Attribute, frame: Frame) -> WholeRead | None:
        name = func.attr.value
        what = self.dataset(func.value, frame)
        if what is None:
            return None
        if what.store is ArrayPlace.MEMMAP:
            form = (FullReadForm.LIST if name == "tolist" else FullReadForm.COPY) if name in _OF_MAPS else None
            if name == "astype" and arguments.has(node, "copy"):
                return None
        elif name == "read":
            form = FullReadForm.VALUE if not node.args else None
        elif name == "read_direct":
            form = FullReadForm.VALUE if len(node.args) == 1 else None  # more arguments select a part
        else:
            form = FullReadForm.VALUE if name == "__array__" else None
        return WholeRead(what, node, func.value, form, frame) if form is not None else None

    def _held(self, node: cst.BaseExpression, frame: Frame) -> WholeRead | None:
        """The read behind a name, an attribute or a call of the project's own function."""
        if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.NamedExpr):
            return None
        hazy = False
        for alt in self.evaluator.values(node, frame)[:_MOST]:
            value = alt.value
            inner: WholeRead | None = None
            if isinstance(value, ExternalCall) and value.call is not node:
                inner = self.written(value.call, value.frame)
            elif isinstance(value, SourceExpression) and value.node is not node:
                inner = self.written(value.node, value.frame)
            if inner is not None:
                return inner
            hazy = hazy or isinstance(value, Element | Unknown | Display)
        if not hazy:
            return None
        for definition, where in self.definitions(node, frame):
            found = self.whole(definition, where)
            if found is not None:
                return found
        return None

    def in_scope(self, module: Module, scope: Scope) -> list[WholeRead]:
        """All reads of whole arrays that are written in the code of a scope, in the order of the text."""
        known = self._scopes.get(scope)
        if known is None:
            signs = self.speaks_of(module)
            known = self._scopes[scope] = list(self._in_scope(module, scope, signs)) if signs else []
        return known

    def _in_scope(self, module: Module, scope: Scope, signs: frozenset[ArrayPlace]) -> Iterator[WholeRead]:
        frame = self.evaluator.calls.plain_frame(module, scope)
        # Nearly everything can copy a map: that is asked only where the module itself speaks of maps.
        maps = ArrayPlace.MEMMAP in signs and self.speaks_of_maps(module)
        forms = cst.Subscript | cst.Attribute | cst.Call | cst.ListComp
        if maps:
            forms |= cst.BinaryOperation
        for node in own_code(scope):
            if not isinstance(node, forms) or (not maps and isinstance(node, cst.Call) and names.last_name(node.func) in _OF_MAPS):
                continue
            if (found := self.written(node, frame)) is not None:
                yield found
            elif isinstance(node, cst.Call) and names.last_name(node.func) in STACKS:
                # Each dataset is read whole where it is put together with others.
                for element in _elements(node):
                    what = self.dataset(element, frame)
                    if what is not None:
                        yield WholeRead(what, element, element, FullReadForm.ARRAY, frame)


def _elements(node: cst.Call) -> list[cst.BaseExpression]:
    """The arrays that a call puts together, as they are written."""
    first = node.args[0].value if node.args and not node.args[0].star else None
    if isinstance(first, cst.ListComp | cst.GeneratorExp):
        return [first.elt]
    if isinstance(first, cst.List | cst.Tuple):
        return [element.value for element in first.elements if isinstance(element, cst.Element)]
    return []


def _copies(node: cst.Call, form: FullReadForm) -> bool:
    """Whether a call reads a memory map into memory: ``np.asarray(mm)`` gives the map again."""
    if form is FullReadForm.TENSOR:
        return names.last_name(node.func) not in {"as_tensor", "asarray", "from_numpy"}
    if form is FullReadForm.LIST:
        return False  # a list of maps
    given = set(arguments.by_name(node))
    if names.last_name(node.func) in {"array", "copy"}:
        return "copy" not in given
    return names.last_name(node.func) in {"float32", "float64"}


def own_code(scope: Scope) -> Iterator[cst.CSTNode]:
    """Nodes of a scope's code, in the order of the text, without those of functions, classes and lambdas inside it."""
    stack: list[cst.CSTNode] = [scope.suite]
    while stack:
        here = stack.pop()
        yield here
        if isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda) and here is not scope.node:
            continue
        stack.extend(reversed(list(children_of(here))))


def whole_reads_of(project: Project) -> WholeReads:
    """The project's reads of whole arrays."""
    return project.shared(WholeReads)


__all__ = ["ArrayPlace", "FullReadForm", "H5Object", "WholeRead", "WholeReads", "is_full", "own_code", "whole_reads_of"]
