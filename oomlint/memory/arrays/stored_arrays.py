"""Arrays that stay in a file: HDF5 datasets, zarr arrays, memory maps. Which expressions are such an array, whoever opened the file."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import H5_FILES, SHARES
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.archives import maps_file
from oomlint.memory.shared.attribute_names import few_by_name
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory, finder
from oomlint.model.values import Bound, Const, Display, Each, Element, ExternalCall, FunctionRef, SourceExpression, Unknown
from oomlint.syntax.nodes import UNKNOWN_KEY, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Frame
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope


class ArrayPlace(Enum):
    """Where the array stays, in the words of a message."""

    H5 = "HDF5 dataset"
    ZARR = "zarr array"
    MEMMAP = "memory map"


class H5Object(Struct, frozen=True):
    """A file, a group or an array of one, as it is named at ``node``."""

    store: ArrayPlace
    call: cst.Call  # opens the file
    module: Module  # of ``call``
    opened_in: Scope  # whose code ``call`` is part of
    path: cst.BaseExpression | None  # what ``call`` opens
    keys: tuple[str | None, ...]  # from the file to here; ``None`` for a key that nobody knows
    node: cst.BaseExpression
    frame: Frame  # where ``node`` stands
    doubt: int = 0

    @property
    def key(self) -> str:
        """The last key, empty where it is not known."""
        return next((key.rpartition("/")[2] for key in reversed(self.keys[-1:]) if key), "")

    @property
    def words(self) -> str:
        """The expression in a message."""
        code = " ".join(self.frame.module.code(self.node).split())
        return f"`{code}`" if len(code) <= _LONGEST else f"the {self.store.value}"

    @property
    def is_array(self) -> bool:
        """Whether it can be read whole: an HDF5 file itself cannot."""
        return self.store is not ArrayPlace.H5 or bool(self.keys)


_LONGEST: Final = 60
_DEEPEST: Final = 12
_WHOLE: Final = re.compile(rb"\[(:|\(\)|\.\.\.)\]")
_CLASS: Final = re.compile(rb"^class ", re.MULTILINE)
_BUDGET: Final = 300  # questions for one outermost question
_MOST: Final = 6
_OPENERS: Final = {
    name: store
    for store, listed in (
        (ArrayPlace.H5, " ".join(H5_FILES | {"z5py.File"})),
        (ArrayPlace.ZARR, "zarr.open zarr.open_array zarr.open_group zarr.open_consolidated zarr.convenience.open zarr.Group zarr.Array zarr.group"),
        (ArrayPlace.MEMMAP, "numpy.memmap numpy.lib.format.open_memmap numpy.load"),
    )
    for name in listed.split()
}
# What a text has to say before anything in it can be one of these.
_SIGNS: Final = {
    ArrayPlace.H5: (b"h5py", b"h5pickle", b"tables", b"netCDF4", b"z5py"),
    ArrayPlace.ZARR: (b"zarr",),
    ArrayPlace.MEMMAP: (b"mmap_mode", b"memmap"),
}
_AROUND: Final = frozenset({"root", "variables", "_v_children"})  # attributes on the way into a file
_MAKES_LISTS: Final = frozenset({"list", "tuple", "sorted", "set", "reversed", "iter", "int", "str", "float"})
_VIEWS: Final = frozenset({"asstr", "fields"})  # what gives the same dataset, read in another form


def is_full(node: cst.Subscript) -> bool:
    """Whether a subscript takes everything: ``[:]``, ``[...]``, ``[()]``, ``[:, :]``, ``[0:]``."""
    return all(_takes_all(element.slice) for element in node.slice)


def _takes_all(part: cst.BaseSlice) -> bool:
    if isinstance(part, cst.Slice):
        lower_free = part.lower is None or (isinstance(part.lower, cst.Integer) and part.lower.value == "0")
        step_free = part.step is None or (isinstance(part.step, cst.Integer) and part.step.value == "1")
        return lower_free and step_free and part.upper is None
    inner = part.value if isinstance(part, cst.Index) else None
    return isinstance(inner, cst.Ellipsis) or (isinstance(inner, cst.Tuple) and not inner.elements)


class StoredArrays:
    """Answers what stays in a file. It remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator: Evaluator = evaluator_of(project)
        self._objects: AnswerMemory[tuple[cst.CSTNode, Frame], H5Object | None] = AnswerMemory(project.readings)
        self._active: set[tuple[str, cst.CSTNode, Frame]] = set()
        self._spent = 0  # questions since the outermost one
        self._cuts = 0  # questions that were not answered

    def dataset(self, node: cst.BaseExpression, frame: Frame) -> H5Object | None:
        """The array in a file that an expression is; ``None`` for what is read from one, for a file, and where nobody knows."""
        found = self.stored(node, frame)
        return found if found is not None and found.is_array else None

    def stored(self, node: cst.BaseExpression, frame: Frame) -> H5Object | None:
        """The same for files and groups too."""
        key = (node, frame)
        if key in self._objects:
            return self._objects[key]
        mark = ("object", node, frame)
        if not self._active:
            self._spent = 0
        self._spent += 1
        if mark in self._active or len(self._active) > _DEEPEST or self._spent > _BUDGET:
            self._cuts += 1
            self._objects.give_up()
            return None
        self._active.add(mark)
        cuts = self._cuts
        try:
            found = self._stored(node, frame)
        finally:
            self._active.discard(mark)
        if found is not None:
            found = replace(found, node=node, frame=frame)
        # What rests on a question that was cut short is not kept.
        if found is not None or not self._active or cuts == self._cuts:
            self._objects[key] = found
        return found

    def _stored(self, node: cst.BaseExpression, frame: Frame) -> H5Object | None:
        if isinstance(node, cst.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, cst.Attribute) and node.attr.value in _AROUND:
            inner = self.stored(node.value, frame)
            if inner is not None:
                return inner
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            inner = self._method(node, node.func, frame)
            if inner is not None:
                return inner
        if isinstance(node, cst.Call) and names.last_name(node.func) in SHARES:
            # Of a memory map these give the map again, or a tensor of it, unless they are told to convert it.
            inner = self.stored(node.args[0].value, frame) if len(node.args) == 1 and not node.args[0].star else None
            return inner if inner is not None and inner.store is ArrayPlace.MEMMAP else None
        if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.IfExp | cst.NamedExpr) or self._is_list(node, frame):
            return None
        return self._named(node, frame)

    def _is_list(self, node: cst.BaseExpression, frame: Frame) -> bool:
        """Whether it is, or a name of it holds, what ``list(d)`` gives: the model takes that for ``d`` itself."""
        if isinstance(node, cst.Call):
            return names.last_name(node.func) in _MAKES_LISTS
        return any(isinstance(one, cst.Call) and names.last_name(one.func) in _MAKES_LISTS for one, _ in self.definitions(node, frame))

    def _named(self, node: cst.BaseExpression, frame: Frame) -> H5Object | None:
        found = self.evaluator.values(node, frame)
        hazy = False
        for alt in found[:_MOST]:
            inner = self._of_value(alt, frame)
            if inner is not None:
                return replace(inner, doubt=inner.doubt + alt.doubt)
            hazy = hazy or isinstance(alt.value, Element | Unknown)
        if not hazy:
            return None
        for definition, where in self.definitions(node, frame):
            inner = self.stored(definition, where)
            if inner is not None:
                return inner
        return self._through_callers(node, frame)

    def _of_value(self, alt: Alternative, frame: Frame) -> H5Object | None:
        value = alt.value
        if isinstance(value, ExternalCall):
            return self._opened(value)
        if isinstance(value, Element):
            inner = self._opened(value.whole)
            return None if inner is None or inner.store is ArrayPlace.MEMMAP else self._deeper(inner, value.accessors)
        if isinstance(value, Each):
            return self._each(value.iterable, value.index, value.frame)
        if isinstance(value, SourceExpression) and isinstance(value.node, cst.Subscript | cst.Call):
            return self.stored(value.node, value.frame)
        del frame
        return None

    def _opened(self, value: ExternalCall) -> H5Object | None:
        store = _OPENERS.get(value.name)
        module, call = value.frame.module, value.call
        if store is None or (value.name == "numpy.load" and not maps_file(call, value.frame, self.evaluator)):
            return None
        path = next(iter(arguments.plain(call)), None)
        return H5Object(store, call, module, value.frame.scope, path, (), call, value.frame)

    @staticmethod
    def _deeper(inner: H5Object, accessors: tuple[Accessor, ...]) -> H5Object | None:
        """Into the file by keys; ``None`` where it ends in data, or in what may be data."""
        keys: list[str | None] = []
        for kind, name in accessors:
            if kind == "attr":
                if name in _AROUND:
                    continue
                if not any(key == "root" for _, key in accessors):  # PyTables: file.root.group.array
                    return None
                keys.append(str(name))
            elif isinstance(name, str):
                keys.append(name)
            elif name is UNKNOWN_KEY and not keys and inner.store is ArrayPlace.H5:
                keys.append(None)
            else:
                return None
        return replace(inner, keys=(*inner.keys, *keys))

    def _subscript(self, node: cst.Subscript, frame: Frame) -> H5Object | None:
        inner = self.stored(node.value, frame)
        if inner is not None and inner.store is ArrayPlace.MEMMAP:
            return inner if is_full(node) else None  # slices of a map are maps; only the whole one counts
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        key = node.slice[0].slice.value
        if inner is None:
            inner = self._group(node.value, frame) if isinstance(node.value, cst.Subscript) else None
            if inner is None or self._as_key(key, frame)[1] is None:
                return None
        text, doubt = self._as_key(key, frame)
        if doubt is None:
            if inner.keys or inner.store is ArrayPlace.ZARR or isinstance(key, cst.Integer | cst.Ellipsis | cst.Tuple):
                return None  # a row, as far as anybody knows
            doubt = 0
        if not inner.keys and inner.store is ArrayPlace.H5:
            doubt = 0  # a file takes nothing but names
        return replace(inner, keys=(*inner.keys, text), doubt=inner.doubt + doubt)

    def _group(self, node: cst.Subscript, frame: Frame) -> H5Object | None:
        """What ``group[key]`` is where a name is looked up in it: another group, whatever is known of ``key``."""
        inner = self.stored(node.value, frame) or (self._group(node.value, frame) if isinstance(node.value, cst.Subscript) else None)
        if inner is None or inner.store is ArrayPlace.MEMMAP or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        return replace(inner, keys=(*inner.keys, None))

    def _as_key(self, node: cst.BaseExpression, frame: Frame) -> tuple[str | None, int | None]:
        """The text of a key, and how much is assumed to call it one; ``None`` for that where it may be a number."""
        if isinstance(node, cst.FormattedString | cst.SimpleString | cst.ConcatenatedString):
            return (str(node.evaluated_value) if isinstance(node, cst.SimpleString) else None), 0
        if isinstance(node, cst.BinaryOperation):
            return None, self._as_sum(node, frame)
        if isinstance(node, cst.Call):
            name = names.last_name(node.func)
            return None, 0 if name in {"str", "format", "join", "decode", "repr", "zfill", "basename", "splitext", "replace", "lower"} else None
        for alt in self.evaluator.values(node, frame)[:_MOST]:
            value = alt.value
            if isinstance(value, Const):
                return (value.value, alt.doubt) if isinstance(value.value, str) else (None, None)
            if isinstance(value, Each) and self._gives_keys(value.iterable, value.index, value.frame):
                return None, 0
            if isinstance(value, SourceExpression) and isinstance(value.node, cst.FormattedString | cst.Call | cst.BinaryOperation):
                return None, self._as_key(value.node, value.frame)[1]
        if isinstance(node, cst.Subscript) and self._gives_keys(node.value, (), frame):
            return None, 0
        return None, 1 if few_by_name(names.last_name(node)) else None

    def _as_sum(self, node: cst.BinaryOperation, frame: Frame) -> int | None:
        """The same for what an operator gives, ``"part" + name`` and ``"%d" % n``: other arithmetic is of numbers, and so is a sum of itself."""
        mark = ("key", node, frame)
        if not isinstance(node.operator, cst.Add | cst.Modulo) or mark in self._active:
            return None
        self._active.add(mark)
        try:
            return self._as_key(node.left, frame)[1]
        finally:
            self._active.discard(mark)

    def _gives_keys(self, iterable: cst.BaseExpression, index: tuple[int, ...], frame: Frame) -> bool:
        """Whether its elements, or what stands at that place in each, are names."""
        if isinstance(iterable, cst.Call) and isinstance(iterable.func, cst.Attribute) and iterable.func.attr.value in {"keys", "items"}:
            return iterable.func.attr.value == "keys" or index == (0,)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) == "enumerate" and iterable.args:
            return index[:1] == (1,) and self._gives_keys(iterable.args[0].value, index[1:], frame)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) in {"sorted", "list", "tqdm"} and iterable.args:
            return self._gives_keys(iterable.args[0].value, index, frame)
        for alt in self.evaluator.values(iterable, frame)[:_MOST]:
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple | cst.Set):
                first = alt.value.node.elements[0].value if alt.value.node.elements else None
                return isinstance(first, cst.SimpleString)
        mark = ("names", iterable, frame)
        if mark in self._active or self.stored(iterable, frame) is not None:
            return mark not in self._active
        self._active.add(mark)
        try:
            return any(self._gives_keys(node, index, where) for node, where in self.definitions(iterable, frame) if node is not iterable)
        finally:
            self._active.discard(mark)

    def _each(self, iterable: cst.BaseExpression, index: tuple[int, ...], frame: Frame) -> H5Object | None:
        """A member of a group that a loop goes through: ``for k, d in f.items()``."""
        if not isinstance(iterable, cst.Call) or not isinstance(iterable.func, cst.Attribute):
            return None
        if (iterable.func.attr.value, index) not in {("items", (1,)), ("values", ())}:
            return None
        inner = self.stored(iterable.func.value, frame)
        return replace(inner, keys=(*inner.keys, None)) if inner is not None and inner.store is not ArrayPlace.MEMMAP else None

    def _method(self, node: cst.Call, func: cst.Attribute, frame: Frame) -> H5Object | None:
        """``group.get(key)``, ``file.get_node(key)``, and what gives the same dataset in another form."""
        name = func.attr.value
        if name in {"get", "get_node"} and node.args and node.args[0].keyword is None:
            inner = self.stored(func.value, frame)
            if inner is None or inner.store is ArrayPlace.MEMMAP:
                return None
            return replace(inner, keys=(*inner.keys, self._as_key(node.args[0].value, frame)[0]))
        if name in _VIEWS or name == "astype":
            inner = self.stored(func.value, frame)
            return inner if inner is not None and inner.store is ArrayPlace.H5 and inner.keys else None
        return None

    def definitions(self, node: cst.BaseExpression, frame: Frame) -> Iterator[tuple[cst.BaseExpression, Frame]]:
        """The expressions that a name or an attribute of ``self`` is set to, and what a function of the project returns."""
        if isinstance(node, cst.Call):
            for alt in self.evaluator.values(node.func, frame)[:2]:
                if isinstance(alt.value, FunctionRef) and not alt.value.scope.yields:
                    inner = self.evaluator.calls.plain_frame(alt.value.module, alt.value.scope)
                    yield from ((one.value, inner) for one in alt.value.scope.returns[:_MOST] if one.value is not None)
            return
        path = path_of(node)
        if path is None:
            return
        root, accessors = path
        scope: Scope | None = frame.scope
        if not accessors:
            while scope is not None and not (scope.sets(root) and not scope.is_class):
                scope = scope.parent
            scopes = [scope] if scope is not None else []
        elif root == names.self_name(frame.scope) and frame.scope.parent is not None and len(accessors) == 1:
            scopes = [child for child in frame.scope.parent.children if child.is_function]
        else:
            return
        for one in scopes:
            wanted = root if not accessors else names.self_name(one)
            where = frame if one is frame.scope else self.evaluator.calls.plain_frame(frame.module, one)
            for effect in one.effects.get(wanted or "", ())[:_MOST]:
                if effect.kind == "assign" and effect.path == accessors and effect.value is not None and not effect.index:
                    yield effect.value, where

    def _through_callers(self, node: cst.BaseExpression, frame: Frame) -> H5Object | None:
        """What callers pass for a parameter, where the frame knows none of them."""
        scope = frame.scope
        if frame.bound is not None or not isinstance(node, cst.Name) or node.value == names.self_name(scope):
            return None
        if node.value not in names.takes(scope) or not self._signs(frame.module):
            return None
        calls = self.evaluator.calls
        for site in calls.sites(frame.module, scope, most=_MOST):
            if not self._signs(site.module):
                continue
            outer = calls.plain_frame(site.module, site.scope)
            given = arguments.given_to(scope, node.value, (Bound(site.args, outer, site.call),))
            if given is not None and (found := self.stored(given.node.value, outer)) is not None:
                return found
        return None

    def speaks_of(self, module: Module) -> frozenset[ArrayPlace]:
        """What kinds of files the code of a module may read: those that its text speaks of, or a class of it may get from a neighbour."""
        text = self.project.raw(module.path)
        return self._signs(module) if _WHOLE.search(text) and _CLASS.search(text) else _spoken_of(text)

    def speaks_of_maps(self, module: Module) -> bool:
        """Whether the text of the module itself speaks of memory maps."""
        return ArrayPlace.MEMMAP in _spoken_of(self.project.raw(module.path))

    def _signs(self, module: Module) -> frozenset[ArrayPlace]:
        """What kinds of files a text of the project speaks of: nobody else can hand the module an array."""
        told = self.project.search(_speaks_of_files, (), module.path)
        return _spoken_of(self.project.raw(module.path)).union(ArrayPlace[name] for said in told.values() for name in said.split())


@lru_cache(maxsize=1024)  # many files ask the same of their neighbours
def _spoken_of(text: bytes) -> frozenset[ArrayPlace]:
    return frozenset(store for store, signs in _SIGNS.items() if any(sign in text for sign in signs))


@finder
def _speaks_of_files(path: str, data: bytes) -> str:
    """What kinds of files a text speaks of."""
    del path
    return " ".join(sorted(store.name for store in _spoken_of(data)))
