"""What a dataset keeps in memory, with its size: from constants, from the author's comment, from the header of a data file."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import SAME_PATH
from oomlint.budget.casts import AS_MADE, UNCOUNTED, bytes_of, item_of, origin
from oomlint.budget.costs import COUNTED, least_of_one
from oomlint.budget.joining import joined
from oomlint.budget.nouns import Certainty, Container
from oomlint.budget.sizes import Name, Size, named
from oomlint.finding import ContentKind
from oomlint.memory.arrays.full_reads import whole_reads_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.worker_copies import owner_of
from oomlint.memory.facts import holding_fact
from oomlint.memory.shared.array_shapes import allocation, commented
from oomlint.memory.shared.content_kinds import IN_MEMORY, Kind
from oomlint.model import names
from oomlint.model.values import ExternalCall
from oomlint.syntax.nodes import constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomlint.budget.headers import Array, DataFile
    from oomlint.budget.sizes import Factor
    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.shared.array_shapes import Bytes
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame

_NAME: Final = 120  # bytes: a string of 60 characters, with its place in a list
_READERS: Final = {"load": ("npy", "npz", "pt"), "load_file": ("safetensors",), "read_parquet": ("parquet",), "memmap": ("npy",), "open_memmap": ("npy",)}
_COUNT: Final = re.compile(r"len\(self\.(\w+)\)|self\.(\w+)\.(?:shape\[0\]|size\(0\))")
_READS: Final = frozenset({"read", "read_bytes", "read_text"})
_BYTES: Final = frozenset({"builtins.bytes", "builtins.bytearray"})
_MANY: Final = 10_000  # of which one may be large
_SMALL: Final = 1 << 20  # bytes
_NUMPY: Final = frozenset({"npy", "npz"})
_ONE_PATH: Final = SAME_PATH | {"join", "basename", "dirname"}


class Containers:
    """Answers for a project and some data files."""

    def __init__(self, project: Project, files: Sequence[DataFile]) -> None:
        self.project = project
        self.files = files
        self.datasets = datasets_of(project)
        self.evaluator = self.datasets.evaluator

    def of(self, dataset: Dataset) -> Iterator[Container]:
        """The containers of a dataset and of those that it wraps."""
        found: list[tuple[Holding, Container]] = []
        repeated = Counter(holding.name for holding in dataset.holdings)
        for holding in dataset.every():
            one = self._of(holding, owner_of(dataset, holding))
            inner = list(self._arrays_in(holding, one, owner_of(dataset, holding))) if one is not None else []
            if one is not None and (inner or not _is_light(holding, one)):
                found += [(holding, one), *((holding, part) for part in inner)]
        found = [(holding, _told_apart(one, place)) if repeated[holding.name] > 1 else (holding, one) for place, (holding, one) in enumerate(found)]
        first = {(one.owner, one.name): one.size.factors[0] for _, one in found if len(one.size.factors) > 1}
        for holding, one in found:
            factors = (self._same(part, holding, one.owner, first) if isinstance(part, Name) else part for part in one.size.factors)
            yield replace(one, size=Size(tuple(factors)))

    def _same(self, part: Name, holding: Holding, owner: str, first: Mapping[tuple[str, str], Factor]) -> Factor:
        """The first dimension of another container, where a name stands for it: ``n = self.images.shape[0]``."""
        scope = holding.module.walk.scope_at(holding.effect.node) if holding.effect is not None else None
        effects = scope.effects.get(part.text, ()) if scope is not None else ()
        written = [part.text, *(holding.module.code(effect.value) for effect in effects if effect.kind == "assign" and effect.value is not None)]
        for code in written:
            found = _COUNT.fullmatch(code.strip())
            if found:
                return first.get((owner, found[1] or found[2]), part)
        return part

    def _is_one_path(self, holding: Holding, owner: Dataset) -> bool:
        """Whether what is kept is one path, and no row of them: ``os.path.join(root, "data.h5")``."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        if holding.content.kind is not Kind.PATHS or value is None:
            return False
        found = [alt.value for alt in self.evaluator.values(value, self._frame_of(owner, holding.module, value))[:4]]
        made = [names.canonical(one.name) if isinstance(one, ExternalCall) else "" for one in found]
        return bool(made) and all(name.startswith(("os.path.", "pathlib.")) and name.rpartition(".")[2] in _ONE_PATH for name in made)

    def _of(self, holding: Holding, owner: Dataset) -> Container | None:
        if self._is_one_path(holding, owner):
            return None
        fact = holding_fact(holding, owner)
        if fact.holds not in COUNTED:
            unknown = Size((Name(fact.name, fact.owner),))
            return (
                Container(fact.name, fact.owner, fact.holds, "", unknown, Certainty.EXACT, fact.place, holding.read)
                if self._unrecognized(holding, owner)
                else None
            )
        asked = self._asked(holding, owner)
        filed = self._matched(holding, owner, *asked) if asked is not None and self.files else None
        size, certainty, file = filed if filed is not None else (*self._sized(holding, owner, fact.owner, fact.items), "")
        named = "" if asked is None or filed is not None else asked[1] or ""
        pieces = self._joined(holding, owner)
        before = size if pieces is not None else self._before_cast(size, holding, owner, file)
        same = self._value(holding, owner)
        mapped = holding.content.element is not None and holding.content.element.kind is Kind.MEMMAP
        holds = ContentKind.MEMMAP if mapped else fact.holds
        return Container(
            fact.name, fact.owner, holds, fact.items, size, certainty, fact.place, holding.read, file, named, before, same, joined=pieces is not None
        )

    def _unrecognized(self, holding: Holding, owner: Dataset) -> bool:
        """Whether what is kept has a size that nobody counts: the text of a file, an array of ``np.eye``, many of something unknown."""
        value = holding.effect.value if holding.effect is not None else None
        if value is None or holding.content.kind not in {Kind.TEXT, Kind.UNKNOWN, Kind.SMALL} or holding.content.size.exact is not None:
            return False
        if (holding.content.count or 0) >= _MANY:
            return True
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _READS:
            return True
        frame = self._frame_of(owner, holding.module, value)
        if any(self.datasets.contents.of(one, frame).kind in IN_MEMORY for one in _taken(value)):
            return True
        made = (alt.value for alt in self.evaluator.values(value, frame)[:4])
        parts = (names.canonical(one.name).split(".") for one in made if isinstance(one, ExternalCall))
        return any((part[0] in {"numpy", "torch"} and part[-1] in UNCOUNTED) or ".".join(part) in _BYTES for part in parts)

    def _arrays_in(self, holding: Holding, one: Container, owner: Dataset) -> Iterator[Container]:
        """The arrays of known size in the records of a list: workers that are forked do not copy them, as they do the records."""
        record = holding.content.element
        if one.kind is not ContentKind.OBJECTS or record is None or record.module is None or not isinstance(record.node, cst.Dict | cst.Tuple):
            return
        frame = self._frame_of(owner, record.module, record.node)
        values = (part.value for part in record.node.elements if isinstance(part, cst.DictElement | cst.Element))
        contents = [(value, self.datasets.contents.of(value, frame)) for value in values]
        sizes = [bytes_of(each, value, frame, self.evaluator) for value, each in contents if each.kind in {Kind.ARRAY, Kind.TENSOR}]
        arrays: int | Name = sum(size or 0 for size in sizes)
        if not arrays and sizes and one.size.value is not None:
            arrays = Name(f"arrays in one of {one.name}", one.owner)
        if arrays:
            count = holding.content.count if holding.content.count is not None else Name(f"len({one.name})", one.owner)
            yield replace(one, name=f"arrays in {one.name}", kind=ContentKind.ARRAYS, items="", size=Size((count, arrays)), certainty=Certainty.AT_LEAST)

    def _sized(self, holding: Holding, dataset: Dataset, owner: str, items: str) -> tuple[Size, Certainty]:
        content = holding.content
        item, made = self._item(holding, dataset), self._allocated(holding, dataset)
        if made is not None and item != AS_MADE:
            made = replace(made, item=item)
        if content.size.exact is not None and item != AS_MADE:
            exact = made.exact if made is not None else None
            content = replace(content, size=replace(content.size, exact=exact))
        if content.size.exact is not None:
            whole = Size((*self._dimensions(made, owner), made.item)) if made is not None and made.item is not None else Size()
            return whole if whole.value == content.size.exact else Size((content.size.exact,)), Certainty.EXACT
        shape = commented(holding.module, holding.effect.node) if holding.effect is not None else None
        if shape is None or shape.item is None:
            shape = made or shape
        if shape is not None and shape.item is not None:
            return Size((*self._dimensions(shape, owner), shape.item)), Certainty.EXACT
        if content.kind is Kind.PATHS:
            return Size((content.count if content.count is not None else Name(f"len({holding.name})", owner), _NAME)), Certainty.ABOUT
        pieces = self._joined(holding, dataset)
        if pieces is not None:
            return Size(pieces), Certainty.EXACT
        least = least_of_one(items) if content.kind is Kind.OBJECTS else None
        if least is not None and (content.count is not None or items != "dicts"):
            return Size((content.count if content.count is not None else Name(f"len({holding.name})", owner), least)), Certainty.AT_LEAST
        return Size((Name(holding.name, owner),)), Certainty.EXACT

    def _item(self, holding: Holding, dataset: Dataset) -> int | None:
        """Bytes of an element of an array, where they are not those that it is made with; None where nobody knows what has become of it."""
        value = holding.effect.value if holding.effect is not None else None
        if holding.content.kind not in {Kind.ARRAY, Kind.TENSOR} or value is None:
            return AS_MADE
        content = holding.content
        if self.files and self._asked(holding, dataset) is not None:
            content = replace(content, node=self._origin(holding, dataset))
            if value is content.node or self._key(holding) is not None:
                return AS_MADE
        return item_of(value, self._frame_of(dataset, holding.module, value), content, self.evaluator)

    def _origin(self, holding: Holding, owner: Dataset) -> cst.BaseExpression:
        """The expression that has read or made what is kept."""
        value, node = holding.effect.value if holding.effect is not None and not holding.effect.index else None, holding.content.node
        found = origin(value, self._frame_of(owner, holding.module, value), self.evaluator) if value is not None else None
        reads = isinstance(found, cst.Call) and names.last_name(found.func) in _READERS
        return found if found is not None and (reads or not isinstance(node, cst.BaseExpression)) else node  # type: ignore[return-value]

    def _joined(self, holding: Holding, dataset: Dataset) -> tuple[int, ...] | None:
        """The shape of an array that is joined of pieces."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        return joined(value, self._frame_of(dataset, holding.module, value), self.datasets.contents) if value is not None else None

    def _allocated(self, holding: Holding, owner: Dataset) -> Bytes | None:
        """The shape that an array is made in."""
        content = holding.content
        if content.module is None or not isinstance(content.node, cst.Call):
            return None
        frame = self._frame_of(owner, content.module, content.node)
        for alt in self.evaluator.values(content.node, frame)[:2]:
            if isinstance(alt.value, ExternalCall):
                return allocation(names.canonical(alt.value.name), alt.value.call, self.evaluator, alt.value.frame)
        return None

    def _dimensions(self, shape: Bytes, owner: str) -> tuple[int | Name, ...]:
        return tuple(one for one in named(shape.dimensions, owner) if isinstance(one, int | Name))

    # -- data files --------------------------------------------------------------------------------------------------------

    def _asked(self, holding: Holding, owner: Dataset) -> tuple[Sequence[str], str | None, str | None] | None:
        """The formats, the path and the entry that what is kept may be read with; None where it is not read from a data file."""
        if holding.content.module is None or not isinstance(holding.content.node, cst.BaseExpression):
            return None
        module, node = holding.content.module, self._origin(holding, owner)
        frame = self._frame_of(owner, module, node)
        read = whole_reads_of(self.project).whole(node, frame)
        if read is not None and read.what.path is not None:
            path = self.evaluator.settings.path_text(read.what.path, self._frame_of(owner, read.what.module, read.what.call))
            return ("h5", "npy"), path, read.what.keys[-1] if read.what.keys else None
        if isinstance(node, cst.Subscript):
            node = node.value
        if not isinstance(node, cst.Call) or not node.args or names.last_name(node.func) not in _READERS:
            return None
        forms = _READERS[names.last_name(node.func)]
        path = self.evaluator.settings.path_text(node.args[0].value, frame)
        torch = any(isinstance(a.value, ExternalCall) and a.value.name.startswith("torch") for a in self.evaluator.values(node, frame))
        forms = tuple(form for form in forms if len(forms) == 1 or (form not in _NUMPY) is torch)
        return forms, path, self._key(holding)

    @staticmethod
    def _key(holding: Holding) -> str | None:
        """The entry of an archive that a statement takes: ``self.x = data["x"]``."""
        value = holding.effect.value if holding.effect is not None else None
        if isinstance(value, cst.Subscript) and len(value.slice) == 1 and isinstance(value.slice[0].slice, cst.Index):
            key = constant_key(value.slice[0].slice.value)
            return key if isinstance(key, str) else None
        return None

    def _matched(self, holding: Holding, owner: Dataset, forms: Sequence[str], path: str | None, key: str | None) -> tuple[Size, Certainty, str] | None:
        file, array = self._file(forms, path, key)
        if file is None:
            return None
        item = self._item(holding, owner)
        if array is not None and array.item is not None:
            return (Size((*array.shape, item or array.item)), Certainty.EXACT, file.path) if item is not None else None
        if array is None and not file.arrays and file.held is not None:
            part = holding.effect is not None and (bool(holding.effect.index) or isinstance(holding.effect.value, cst.Subscript))
            certainty = Certainty.AT_MOST if part else Certainty.EXACT if file.format == "pt" else Certainty.AT_LEAST
            return Size((file.held,)), certainty, file.path
        return None

    def _file(self, forms: Sequence[str], path: str | None, key: str | None) -> tuple[DataFile | None, Array | None]:
        """The data file that is read, and the array of it."""
        wanted = [one for one in self.files if one.format in forms]
        if path is not None and os.path.splitext(path)[1]:
            wanted = [one for one in wanted if os.path.basename(one.path) == os.path.basename(path)] or (wanted if len(wanted) == 1 and key else [])
        return (wanted[0], wanted[0].array(key)) if len(wanted) == 1 else (None, None)

    def _before_cast(self, size: Size, holding: Holding, owner: Dataset, file: str) -> Size | None:
        """An array that a file was read into, where it becomes one of another type."""
        asked = self._asked(holding, owner) if file else None
        array = self._file(*asked)[1] if asked is not None else None
        changed = array is not None and array.item is not None and size.factors[-1:] != (array.item,)
        return Size((*array.shape, array.item)) if changed and array is not None and array.item is not None else None

    def _value(self, holding: Holding, owner: Dataset) -> object:
        """What stands for the memory that an attribute keeps, however many names it has: what made it, and in which frame; None where nobody knows."""
        node = holding.effect.value if holding.effect is not None and not holding.effect.index else holding.content.node
        while isinstance(node, cst.Subscript) and any(isinstance(part.slice, cst.Slice) for part in node.slice):
            node = node.value  # a view keeps all of it
        if not isinstance(node, cst.BaseExpression) or node is owner.node:
            return None
        found = self.evaluator.values(node, self._frame_of(owner, holding.module, node))
        value = found[0].value if len(found) == 1 else None
        # A function that nobody knows the caller of may be called more than once.
        return value if isinstance(value, ExternalCall) and (value.frame.scope.parent is None or value.frame.bound) else None

    def _frame_of(self, owner: Dataset, module: Module, node: cst.CSTNode) -> Frame:
        """The frame in which the object is built, where the node stands in its code; else one with nothing known of its callers."""
        scope = module.walk.scope_at(node)
        made = owner.alternative.value if owner.alternative is not None else None
        frames = self.datasets.building_frames(owner.instance) if owner.instance is not None else [made.frame] if isinstance(made, ExternalCall) else []
        return next((frame for frame in frames if frame.scope is scope), None) or self.evaluator.calls.plain_frame(module, scope)


def _is_light(holding: Holding, one: Container) -> bool:
    """Whether it is a container of a few objects, which are not worth a row."""
    counted = one.kind in {ContentKind.OBJECTS, ContentKind.PATHS} and not one.file and holding.content.size.exact is None
    return counted and one.size.value is not None and one.size.value < _SMALL


def _taken(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a method, a function of a module or a comprehension makes its value of."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        yield from (node.func.value, *(arg.value for arg in node.args[:1] if not isinstance(arg.value, cst.List | cst.Tuple)))
    elif isinstance(node, cst.BaseComp):
        yield node.for_in.iter


def _told_apart(one: Container, place: int) -> Container:
    """A container whose name others of its dataset have, too: the tensors of a ``TensorDataset``."""
    name = f"{one.name}[{place}]"
    return replace(one, name=name, size=Size(tuple(replace(part, text=name) if part == Name(one.name, one.owner) else part for part in one.size.factors)))
