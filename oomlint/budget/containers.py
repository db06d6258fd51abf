"""What a dataset keeps in memory, with its size: from constants, from the author's comment, from the header of a data file."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import ALLOCATORS, AS_ARRAY, DRAWS, SAME_PATH, SHARES, SIZES, STACKS
from oomlint.budget.costs import COUNTED, least_of_one
from oomlint.budget.file_parts import DataReads, FileGroup, FileParts, StoredArray
from oomlint.budget.nouns import Certainty, Container
from oomlint.budget.python_objects import VIEW, PythonObjects
from oomlint.budget.sizes import Name, SizeProduct, named
from oomlint.finding import ContentKind
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_values import Parts
from oomlint.memory.facts import holding_fact
from oomlint.memory.shared.array_bytes import commented
from oomlint.memory.shared.content_kinds import IN_MEMORY, PayloadKind
from oomlint.memory.shared.shaped import Least, Many, ShapedArray, ShapedGroup, certain, leaves
from oomlint.model import arguments, names
from oomlint.model.torch_tables import REDUCTIONS
from oomlint.model.values import (
    Absent,
    ClassRef,
    Const,
    Display,
    Element,
    External,
    ExternalCall,
    FilledObject,
    FunctionRef,
    Instance,
    Merged,
    Namespace,
    ParsedOptions,
    Partial,
    SettingsNode,
    SourceExpression,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomlint.budget.headers import DataFile
    from oomlint.budget.headers import HeaderArray as FileArray
    from oomlint.budget.sizes import Factor
    from oomlint.finding import Place
    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.shaped import Part
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

_NAME: Final = 120  # bytes: a string of 60 characters, with its place in a list
_READERS: Final = {"load": ("npy", "npz", "pt"), "load_file": ("safetensors",), "read_parquet": ("parquet",), "memmap": ("npy",), "open_memmap": ("npy",)}
_COUNT: Final = re.compile(r"len\(self\.(\w+)\)|self\.(\w+)\.(?:shape\[0\]|size\(0\))")
_READS: Final = frozenset({"read", "read_bytes", "read_text", "decode", "join"})
_BYTES: Final = frozenset({"builtins.bytes", "builtins.bytearray"})
_MANY: Final = 10_000  # of which one may be large
_SMALL: Final = 1 << 20  # bytes
_NUMPY: Final = frozenset({"npy", "npz"})
_ARRAYS: Final = frozenset({PayloadKind.ARRAY, PayloadKind.TENSOR})
_LISTS: Final = frozenset({PayloadKind.ARRAYS, PayloadKind.TENSORS})
UNCOUNTED: Final = frozenset({"eye", "identity", "tri", "linspace", "logspace", "geomspace", "fromiter", "frombuffer"})  # arrays of sizes that are not counted
_STEPS: Final = 12
_VIEWS: Final = frozenset("expand expand_as detach permute transpose swapaxes t view squeeze unsqueeze".split())
_SHARES: Final = SHARES - {"ascontiguousarray"}  # that copies what is turned
_OF_SHAPE: Final = ALLOCATORS | DRAWS  # they refuse a length below zero
_ONE_PATH: Final = SAME_PATH | {"join", "basename", "dirname"}


class HeaderContainers:
    """Answers for a project and some data files."""

    def __init__(self, project: Project, files: Sequence[DataFile]) -> None:
        self.project = project
        self.files = files
        self.datasets = datasets_of(project)
        self.evaluator = self.datasets.evaluator
        self.reads = DataReads(files)
        self.refused: dict[Place, str] = {}  # arrays that nobody can make, and their shapes

    def parts(self, evaluator: Evaluator, contents: Contents, known: Mapping[str, ShapedArray] | None = None, launch: object = None) -> FileParts:
        """What expressions are, by the headers of the data files."""
        return FileParts(evaluator, contents, known, launch, reads=self.reads)

    def of(self, dataset: Dataset) -> Iterator[tuple[Dataset, Container]]:
        """The containers of a dataset and of those that it wraps, each with the one that has it."""
        found: list[tuple[Dataset, Holding, Container]] = []
        repeated = Counter(holding.name for holding in dataset.holdings)
        for owner, given in dataset.owned():
            holding = _as_given(given, owner)
            one = self._of(holding, owner)
            inner = list(self._arrays_in(holding, one, owner)) if one is not None else []
            if one is not None and (inner or not _is_light(holding, one)):
                found += [(owner, holding, one), *((owner, holding, part) for part in inner)]
        found = [(owner, holding, _told_apart(one, place) if repeated[holding.name] > 1 else one) for place, (owner, holding, one) in enumerate(found)]
        found = self._each_array_once(found)
        first = {(id(owner), one.name): one.size.factors[0] for owner, _, one in found if len(one.size.factors) > 1}
        for owner, holding, one in found:
            factors = (self._same(part, holding, id(owner), first) if isinstance(part, Name) else part for part in one.size.factors)
            yield owner, replace(one, size=SizeProduct(tuple(factors)))

    def _each_array_once(self, found: list[tuple[Dataset, Holding, Container]]) -> list[tuple[Dataset, Holding, Container]]:
        """The same; of lists that hold arrays which another attribute keeps, or one array several times, only what is theirs."""
        kept: set[object] = {one.same for _, _, one in found if one.same is not None}
        out = []
        for owner, holding, one in found:
            refs = self._references(holding, owner) if one.size.value is not None else None
            own = {value: size for value, size in (refs or {}).items() if value not in kept}
            if refs is not None and (len(own) < len(refs) or sum(refs.values()) < (one.size.value or 0)):
                kept.update(own)
                out.append((owner, holding, replace(one, size=SizeProduct((sum(own.values()),)), certainty=Certainty.ABOUT)))
            else:
                out.append((owner, holding, one))
        return out

    def _references(self, holding: Holding, owner: Dataset) -> dict[Value, int] | None:
        """The arrays that a list holds by their names."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        objects = PythonObjects(self.parts(self.evaluator, self.datasets.contents))
        return objects.references(value, self._frame_of(owner, holding.module, value)) if value is not None else None

    def _same(self, part: Name, holding: Holding, owner: int, first: Mapping[tuple[int, str], Factor]) -> Factor:
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
        if holding.content.kind is not PayloadKind.PATHS or value is None:
            return False
        found = [alt.value for alt in self.evaluator.values(value, self._frame_of(owner, holding.module, value))[:4]]
        made = [names.canonical(one.name) if isinstance(one, ExternalCall) else "" for one in found]
        return bool(made) and all(name.startswith(("os.path.", "pathlib.")) and name.rpartition(".")[2] in _ONE_PATH for name in made)

    def _of(self, holding: Holding, owner: Dataset) -> Container | None:
        if self._is_one_path(holding, owner):
            return None
        made = self._made(holding, owner)
        if made is not None and not holding.unsure:
            # One object, or a list of one, is read without a write: a forked worker copies nothing of it.
            kind = holding.content.kind if holding.content.kind in {PayloadKind.TEXT, PayloadKind.SMALL} else PayloadKind.OBJECTS
            fact = holding_fact(replace(holding, content=replace(holding.content, kind=kind)), owner)
            return Container(fact.name, fact.owner, fact.holds, "numbers", *made, fact.place, holding.read, same=self._value(holding, owner))
        holding = self._recognized(holding, owner)
        fact = holding_fact(holding, owner)
        if fact.holds not in COUNTED:
            if not self._unrecognized(holding, owner):
                return None
            unknown = SizeProduct((Name(fact.name, fact.owner),))
            return Container(fact.name, fact.owner, fact.holds, "", unknown, Certainty.EXACT, fact.place, holding.read, same=self._value(holding, owner))
        self.reads.clear()
        written = self._written(holding, owner)
        part = self._shown(holding, *written) if written is not None else None
        size, certainty = self._sized(holding, owner, fact.owner, fact.items)
        found, missed, read = list(dict.fromkeys(self.reads.found)), self.reads.missed, list(dict.fromkeys(self.reads.arrays))
        if size.value is None and len(found) == 1:
            whole = written is not None and self._is_table(*written)
            size, certainty = (_all_of(found[0], part) if whole or found[0].format != "parquet" else None) or (size, certainty)
        file = found[0].path if found and size.value is not None else ""
        named = missed[0] if missed and not found else ""
        pieces = self._pieces(holding, owner)
        cast = len(read) == 1 and read[0].exact is not None and size.value is not None and size.factors[-1:] != (read[0].item,)
        before = SizeProduct((pieces,)) if pieces not in {None, size.value} else size if pieces is not None else _size(read[0]) if cast else None
        same = self._value(holding, owner)
        mapped = holding.content.element is not None and holding.content.element.kind is PayloadKind.MEMMAP
        holds = ContentKind.MEMMAP if mapped else fact.holds
        return Container(
            fact.name,
            fact.owner,
            holds,
            fact.items,
            size,
            certainty,
            fact.place,
            holding.read,
            file,
            named,
            before,
            same,
            joined=pieces is not None,
            within=self._within(*written) if written is not None else None,
            shown=self._view(holding, owner),
        )

    def _made(self, holding: Holding, owner: Dataset) -> tuple[SizeProduct, Certainty] | None:
        """Lists, dictionaries and strings that are made of so many numbers, or of one value many times."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        if value is None:
            return None
        owned = holding_fact(holding, owner).owner
        name, length = Name(holding.name, owned), Name(f"len({holding.name})", owned)
        return PythonObjects(Parts(self.evaluator, self.datasets.contents)).of(value, self._frame_of(owner, holding.module, value), name, length)

    def _recognized(self, holding: Holding, owner: Dataset) -> Holding:
        """The same; what nothing is known of by its kind is an array where its shape is known, ``x.T``; so is what a header says to be one."""
        known, written = holding.content.kind not in {PayloadKind.UNKNOWN, PayloadKind.SMALL}, self._written(holding, owner)
        if holding.effect is None or written is None or holding.content.kind in _ARRAYS or (known and not self.files):
            return holding
        self.reads.clear()
        part = self._shown(holding, *written)
        array = _array(part)
        inner = list(leaves(part)) if isinstance(part, ShapedGroup | Many) and not known else []
        if inner and all(_array(one) is not None for one in inner):
            kind = PayloadKind.TENSORS if any(isinstance(one, ShapedArray) and one.of == "torch" for one in inner) else PayloadKind.ARRAYS
            return replace(holding, content=replace(holding.content, kind=kind, module=holding.module, node=written[0]))
        if array is None or not array.shape or array.of == "picture" or isinstance(array, StoredArray) or (known and not self.reads.found):
            return holding
        kind = PayloadKind.TENSOR if array.of == "torch" else PayloadKind.ARRAY
        return replace(holding, content=replace(holding.content, kind=kind, module=holding.module, node=written[0]))

    def _shown(self, holding: Holding, node: cst.BaseExpression, frame: Frame) -> Part:
        """What is kept: of several values that are unpacked the one that it is."""
        part = self.parts(self.evaluator, self.datasets.contents).of(node, frame)
        for place in holding.effect.index if holding.effect is not None else ():
            part = part.at(place) if isinstance(part, ShapedGroup) else None
        return part

    def _unrecognized(self, holding: Holding, owner: Dataset) -> bool:
        """Whether what is kept has a size that nobody counts: the text of a file, an array of ``np.eye``, what the class takes parts of."""
        value = holding.effect.value if holding.effect is not None else None
        if value is None or holding.content.kind not in {PayloadKind.TEXT, PayloadKind.UNKNOWN, PayloadKind.SMALL} or holding.content.size.exact is not None:
            return False
        if (holding.content.count or 0) >= _MANY:
            return True
        frame = self._frame_of(owner, holding.module, value)
        found = [alt.value for alt in self.evaluator.values(value, frame)]
        known = bool(found) and all(isinstance(one, Const) for one in found)
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _READS and not known:
            return True
        if any(self.datasets.contents.of(one, frame).kind in IN_MEMORY for one in _taken(value)):
            return True
        if holding.content.kind is not PayloadKind.TEXT and not all(map(_is_written, found)) and self._gives_parts(holding.name, owner):
            return True
        made = found[:4]
        parts = (names.canonical(one.name).split(".") for one in made if isinstance(one, ExternalCall))
        return any((part[0] in {"numpy", "torch"} and part[-1] in UNCOUNTED) or ".".join(part) in _BYTES for part in parts)

    def _gives_parts(self, name: str, owner: Dataset) -> bool:
        """Whether the class takes parts of an attribute, goes through it, or asks how many it has: whatever it is, it holds data."""
        lineage = self.evaluator.lineage(owner.instance.cls) if owner.instance is not None else ()
        nodes = (node for cls in lineage if isinstance(cls, ClassRef) for node in descend(cls.scope.node))
        return any(_is_attribute(part, name) for node in nodes for part in _taken_apart(node))

    def _arrays_in(self, holding: Holding, one: Container, owner: Dataset) -> Iterator[Container]:
        """The arrays of known size in the records of a list: workers that are forked do not copy them, as they do the records."""
        record = holding.content.element
        if one.kind is not ContentKind.OBJECTS or record is None or record.module is None or not isinstance(record.node, cst.Dict | cst.Tuple):
            return
        frame = self._frame_of(owner, record.module, record.node)
        values = (part.value for part in record.node.elements if isinstance(part, cst.DictElement | cst.Element))
        contents = [(value, self.datasets.contents.of(value, frame)) for value in values]
        sizes = [_exact(self._array(value, frame)) for value, each in contents if each.kind in _ARRAYS]
        arrays: int | Name = sum(size or 0 for size in sizes)
        if not arrays and sizes and one.size.value is not None:
            arrays = Name(f"arrays in one of {one.name}", one.owner)
        if arrays:
            count = holding.content.count if holding.content.count is not None else Name(f"len({one.name})", one.owner)
            name, same = f"arrays in {one.name}", (one.same, "arrays") if one.same is not None else None
            yield replace(one, name=name, kind=ContentKind.ARRAYS, items="", size=SizeProduct((count, arrays)), certainty=Certainty.AT_LEAST, same=same)

    def _sized(self, holding: Holding, dataset: Dataset, owner: str, items: str) -> tuple[SizeProduct, Certainty]:
        content = holding.content
        if holding.unsure:
            return SizeProduct((Name(holding.name, owner),)), Certainty.EXACT
        array = self._kept(holding, dataset)
        if array is not None and array.exact is not None:
            return _size(array), Certainty.EXACT
        if content.kind in _LISTS:
            return self._listed(holding, dataset, owner)
        if content.size.exact is not None and content.kind not in _ARRAYS:
            return SizeProduct((content.size.exact,)), Certainty.EXACT
        shape = commented(holding.module, holding.effect.node) if holding.effect is not None else None
        if shape is not None and shape.item is not None:
            return SizeProduct((*named(shape.dimensions, owner), shape.item)), Certainty.EXACT
        if array is not None and array.shape and array.item is not None and "..." not in array.shape:
            return SizeProduct((*named(array.shape, owner), array.item)), Certainty.AT_LEAST if any(
                isinstance(one, Least) for one in array.shape
            ) else Certainty.EXACT
        if content.kind is PayloadKind.PATHS:
            return SizeProduct((content.count if content.count is not None else Name(f"len({holding.name})", owner), _NAME)), Certainty.ABOUT
        least = least_of_one(items) if content.kind is PayloadKind.OBJECTS else None
        if least is not None and (content.count is not None or items != "dicts"):
            return SizeProduct((content.count if content.count is not None else Name(f"len({holding.name})", owner), least)), Certainty.AT_LEAST
        return SizeProduct((Name(holding.name, owner),)), Certainty.EXACT

    def _listed(self, holding: Holding, dataset: Dataset, owner: str) -> tuple[SizeProduct, Certainty]:
        """Bytes of a list or a dictionary of arrays, each with its header."""
        written = self._written(holding, dataset)
        found = list(leaves(self._shown(holding, *written))) if written is not None and not holding.unsure else []
        arrays = [one for one in found if _array(one) is not None and isinstance(one, ShapedArray) and one.exact is not None]
        if not found or len(arrays) < len(found):
            return SizeProduct((Name(holding.name, owner),)), Certainty.EXACT
        return SizeProduct((sum((one.exact or 0) + VIEW["torch" if one.of == "torch" else "numpy"] for one in arrays),)), Certainty.ABOUT

    def _pieces(self, holding: Holding, owner: Dataset) -> int | None:
        """Bytes of the pieces that an array is joined of: ``np.concatenate([a, b])``."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        if holding.content.kind not in _ARRAYS or value is None:
            return None
        while isinstance(value, cst.Call) and names.last_name(value.func) in AS_ARRAY and len(value.args) == 1:
            value = value.args[0].value
        found = [alt.value for alt in self.evaluator.values(value, self._frame_of(owner, holding.module, value))]
        made = found[0] if len(found) == 1 else None
        if not isinstance(made, ExternalCall) or names.last_name(made.call.func) not in STACKS or not made.call.args:
            return None
        parts = list(leaves(self.parts(self.evaluator, self.datasets.contents).of(made.call.args[0].value, made.frame)))
        sizes = [_exact(one) if isinstance(one, ShapedArray) else None for one in parts]
        return sum(one or 0 for one in sizes) if sizes and None not in sizes else None

    def _kept(self, holding: Holding, owner: Dataset) -> ShapedArray | None:
        """The array that is kept, as it is where it is kept."""
        written = self._written(holding, owner) if holding.content.kind in _ARRAYS else None
        if written is None:
            return None
        if holding.effect is not None and holding.effect.index:
            return _array(self._shown(holding, *written))
        return self._array(*self._whole(*written))

    def _written(self, holding: Holding, owner: Dataset) -> tuple[cst.BaseExpression, Frame] | None:
        """The expression of what is kept, and where it stands."""
        value = holding.effect.value if holding.effect is not None else holding.content.node
        module = holding.module if holding.effect is not None else holding.content.module
        return (value, self._frame_of(owner, module, value)) if isinstance(value, cst.BaseExpression) and module is not None else None

    def _view(self, holding: Holding, owner: Dataset) -> ShapedArray | None:
        """What is kept, where it shows an array in another shape, or a part of each of its numbers."""
        value = holding.effect.value if holding.effect is not None and not holding.effect.index else None
        kept = self._kept(holding, owner) if value is not None else None
        seen = self._array(value, self._frame_of(owner, holding.module, value)) if kept is not None and value is not None else None
        return seen if kept is not None and seen is not None and (kept.shape, kept.dtype) != (seen.shape, seen.dtype) else None

    def _array(self, node: cst.BaseExpression, frame: Frame) -> ShapedArray | None:
        found = self.parts(self.evaluator, self.datasets.contents).of(node, frame)
        if isinstance(found, ShapedArray) and min(certain(found.shape or ()), default=0) < 0:
            made = [alt.value for alt in self.evaluator.values(node, frame)]
            if len(made) == 1 and isinstance(made[0], ExternalCall) and made[0].name.rpartition(".")[2] in _OF_SHAPE:
                self.refused[frame.module.place(node)] = f"({', '.join(map(str, found.shape or ()))})"
        return _array(found)

    def _before(self, node: cst.BaseExpression, frame: Frame) -> tuple[cst.BaseExpression, Frame] | None:
        """What a name or a call of the project stands for."""
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        one = found[0] if len(found) == 1 else None
        made = one.node if isinstance(one, SourceExpression) else one.call if isinstance(one, ExternalCall) else None
        return (made, one.frame) if isinstance(one, SourceExpression | ExternalCall) and made is not None and made is not node else None

    def _whole(self, node: cst.BaseExpression, frame: Frame) -> tuple[cst.BaseExpression, Frame]:
        """The array that a view is one of: it keeps all of it."""
        for _ in range(_STEPS):
            before = self._before(node, frame) if isinstance(node, cst.Name | cst.Call) else None
            if (before is None or isinstance(node, cst.Call)) and (shown := self._viewed(node, frame)) is not None:
                before = (shown, frame)
            if before is None:
                break
            node, frame = before
        return node, frame

    def _is_table(self, node: cst.BaseExpression, frame: Frame) -> bool:
        """Whether it is all that was read from a file of tables, and no selection of it."""
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        one = found[0] if len(found) == 1 else None
        return isinstance(one, ExternalCall) and names.last_name(one.call.func) == "read_parquet" and len(one.call.args) == 1

    def _is_in_memory(self, node: cst.BaseExpression, frame: Frame) -> bool:
        """Whether an index of it gives a view."""
        while isinstance(node, cst.Attribute | cst.Call) and (shown := self._viewed(node, frame)) is not None:
            node = shown
        if self.datasets.contents.of(node, frame).kind not in _ARRAYS:
            return False
        found = self.parts(self.evaluator, self.datasets.contents).of(node, frame)
        return not isinstance(found, StoredArray) or found.mapped

    def _viewed(self, node: cst.BaseExpression, frame: Frame) -> cst.BaseExpression | None:
        """What an expression shows without a copy: ``x`` of ``x[..., 0]``, ``x.expand(n, 3)``, ``x.T``, ``np.transpose(x)`` and ``torch.from_numpy(x)``."""
        match node:
            case cst.Subscript(value=base) if self._is_in_memory(base, frame):
                indices = [part.slice for part in node.slice]
                return base if self.parts(self.evaluator, self.datasets.contents).shows(indices, frame) else None
            case cst.Call(func=cst.Attribute(value=base, attr=cst.Name(value=word)), args=args) if word in _VIEWS | {"broadcast_to"}:
                function = any(isinstance(alt.value, External) for alt in self.evaluator.values(base, frame))
                return base if not function else args[0].value if args else None
            case cst.Call(func=cst.Attribute(value=base, attr=cst.Name(value="astype"))) if names.dotted(arguments.named(node, "copy")) == "False":
                return base if self._is_of_one_type(node, base, frame) else None
            case cst.Call(args=[cst.Arg(value=base), *_]) if names.last_name(node.func) in _SHARES and not arguments.has(node, "device"):
                return base if self._is_of_one_type(node, base, frame) else None
            case cst.Attribute(value=base, attr=cst.Name(value="T" | "mT" | "real" | "imag")):
                return base
        return None

    def _is_of_one_type(self, made: cst.BaseExpression, of: cst.BaseExpression, frame: Frame) -> bool:
        """Whether an array has the type of the one that it is made of."""
        one, other = self._array(made, frame), self._array(of, frame)
        return one is not None and other is not None and other.of != "picture" and one.dtype == other.dtype != ""

    # -- data files --------------------------------------------------------------------------------------------------------

    @staticmethod
    def key(holding: Holding) -> str | None:
        """The entry of an archive that a statement takes: ``self.x = data["x"]``."""
        value = holding.effect.value if holding.effect is not None else None
        if isinstance(value, cst.Subscript) and len(value.slice) == 1 and isinstance(value.slice[0].slice, cst.Index):
            key = constant_key(value.slice[0].slice.value)
            return key if isinstance(key, str) else None
        return None

    def file(self, forms: Sequence[str], path: str | None, key: str | None) -> tuple[DataFile | None, FileArray | None]:
        """The data file that is read, and the array of it."""
        found = self.reads.file(forms, path, key)
        return found, found.array(key) if found is not None else None

    def _value(self, holding: Holding, owner: Dataset) -> object:
        """What stands for the memory that an attribute keeps, however many names it has: what made it, and in which frame; None where nobody knows."""
        node = holding.effect.value if holding.effect is not None and not holding.effect.index else holding.content.node
        if not isinstance(node, cst.BaseExpression) or node is owner.node:
            return None
        frame = self._frame_of(owner, holding.module, node)
        for _ in range(_STEPS):  # a view keeps all of it
            sliced = isinstance(node, cst.Subscript) and any(isinstance(part.slice, cst.Slice) for part in node.slice)
            shown = node.value if sliced and isinstance(node, cst.Subscript) else self._viewed(node, frame)
            if shown is None:
                break
            node = shown
        found = self.evaluator.values(node, frame)
        value = found[0].value if len(found) == 1 else None
        if holding.effect is not None and holding.effect.path[-1:] and holding.effect.path[-1][1] is UNKNOWN_KEY:
            return None  # one of many
        # A function that nobody knows the caller of may be called more than once.
        if isinstance(value, ExternalCall | Display) and (_runs_once(value.frame.scope) or value.frame.bound):
            return (value, holding.effect.index) if holding.effect is not None and holding.effect.index else value
        made = owner.instance
        once = made is not None and made.at is not None and (made.at.scope.parent is None or made.at.bound)
        return (made, holding.name, holding.effect) if once else None

    def _within(self, node: cst.BaseExpression, frame: Frame) -> object:
        """What stands for the whole of which this is a part; None where it is none, or nobody knows."""
        found = self.evaluator.values(*self._whole(node, frame))
        return found[0].value.whole if len(found) == 1 and isinstance(found[0].value, Element) else None

    def _frame_of(self, owner: Dataset, module: Module, node: cst.CSTNode) -> Frame:
        """The frame in which the object is built, where the node stands in its code; else one with nothing known of its callers."""
        scope = module.walk.scope_at(node)
        made = owner.alternative.value if owner.alternative is not None else None
        frames = self.datasets.building_frames(owner.instance) if owner.instance is not None else [made.frame] if isinstance(made, ExternalCall) else []
        frames += [owner.instance.at] if owner.instance is not None and owner.instance.at is not None else []
        return next((frame for frame in frames if frame.scope is scope), None) or self.evaluator.calls.plain_frame(module, scope)


def _runs_once(scope: Scope) -> bool:
    """Whether the code of a scope runs once: of a module, and of a class in one."""
    return scope.parent is None or (scope.is_class and scope.parent.parent is None)


def _as_given(holding: Holding, owner: Dataset) -> Holding:
    """The same; a tensor of a ``TensorDataset`` of which nothing is seen is what the call is given at its place."""
    content, call = holding.content, owner.node
    if content.node is not call or not isinstance(call, cst.Call) or holding.effect is not None or owner.instance is not None:
        return holding
    place = next((number for number, one in enumerate(owner.holdings) if one is holding), len(call.args))
    if place >= len(call.args) or call.args[place].star:
        return holding
    return replace(holding, content=replace(content, node=call.args[place].value))


def _all_of(file: DataFile, part: Part) -> tuple[SizeProduct, Certainty] | None:
    """What is kept of a file, where no more is known than how much is in it."""
    if isinstance(part, FileGroup):
        return (SizeProduct((part.bytes,)), Certainty.EXACT) if part.bytes is not None else None
    if file.held is None or file.format not in {"pt", "parquet"}:
        return None
    return SizeProduct((file.held,)), Certainty.AT_MOST if file.format == "pt" else Certainty.AT_LEAST


def _array(part: Part) -> ShapedArray | None:
    """An array in memory, or a map of one."""
    known = isinstance(part, ShapedArray) and part.of != "python" and all(length >= 0 for length in certain(part.shape or ()))
    in_file = isinstance(part, StoredArray) and not part.mapped
    return part if known and not in_file and isinstance(part, ShapedArray) else None  # nothing has a length below zero


def _size(array: ShapedArray) -> SizeProduct:
    return SizeProduct((*named(array.shape or (), ""), array.item or 0))


def _exact(array: ShapedArray | None) -> int | None:
    return array.exact if array is not None else None


def _is_light(holding: Holding, one: Container) -> bool:
    """Whether it is a container of a few objects, which are not worth a row."""
    counted = one.kind in {ContentKind.OBJECTS, ContentKind.PATHS} and not one.file and holding.content.size.exact is None
    return counted and one.size.value is not None and one.size.value < _SMALL


def _taken(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a method, a function of a module or a comprehension makes its value of."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method = node.func.attr.value
        if method in SIZES or (method in REDUCTIONS and not node.args):
            return  # one number
        yield from (node.func.value, *(arg.value for arg in node.args[:1] if not isinstance(arg.value, cst.List | cst.Tuple)))
    elif isinstance(node, cst.BaseComp):
        yield node.for_in.iter


def _is_written(value: Value) -> bool:
    """Whether the code writes all of a value, or it is no data."""
    if isinstance(value, Display):
        return isinstance(value.node, cst.List | cst.Tuple | cst.Dict | cst.Set)
    if isinstance(value, SourceExpression):
        return isinstance(value.node, cst.Call) and names.last_name(value.node.func) == "len"
    return isinstance(value, Const | FunctionRef | ClassRef | Partial | ParsedOptions | SettingsNode | Merged | Namespace | FilledObject | Absent | Instance)


def _taken_apart(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What a node takes parts of."""
    match node:
        case cst.Subscript(value=whole) | cst.For(iter=whole) | cst.CompFor(iter=whole):
            yield whole
        case cst.Call(func=cst.Name(value="len" | "enumerate" | "zip" | "iter" | "sorted" | "list")):
            yield from (arg.value for arg in node.args)
        case cst.Call(func=cst.Attribute(value=whole, attr=cst.Name(value="get" | "items" | "keys" | "values"))):
            yield whole


def _is_attribute(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.attr.value == name


def _told_apart(one: Container, place: int) -> Container:
    """A container whose name others of its dataset have, too: the tensors of a ``TensorDataset``."""
    name = f"{one.name}[{place}]"
    return replace(
        one, name=name, size=SizeProduct(tuple(replace(part, text=name) if part == Name(one.name, one.owner) else part for part in one.size.factors))
    )
