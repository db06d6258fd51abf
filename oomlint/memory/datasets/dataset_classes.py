"""Datasets: what a loader reads, what it holds in memory, what its ``__getitem__`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.memory.datasets.sample_body import SampleBody, item_of
from oomlint.memory.datasets.sample_uses import gives_records
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.attribute_names import paths_by_name, small_by_name
from oomlint.memory.shared.content_classifier import Contents
from oomlint.memory.shared.content_kinds import IN_MEMORY, NOTHING, Content, Form, PayloadKind, worst
from oomlint.memory.shared.known_libraries import COCO_DATASETS, COCO_INDEX
from oomlint.memory.shared.seen_axes import SeenAxes
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import (
    Absent,
    Alternative,
    Bound,
    ClassRef,
    Const,
    Display,
    Element,
    External,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    SourceExpression,
    is_usual,
)
from oomlint.syntax.nodes import is_attribute_of
from oomlint.syntax.scopes import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

DATASET_BASES = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.Subset",
        "torch.utils.data.ConcatDataset",
    },
)
_PIPES = frozenset({"torch.utils.data.IterDataPipe", "torch.utils.data.MapDataPipe", "torchdata.datapipes.iter.IterDataPipe"})
_OTHER_LIBRARIES = frozenset("h5py netCDF4 tensorflow tf datasets pyarrow xarray ray lance keras pandas".split())  # with a `Dataset` of another kind
_SUBSET, _SPLIT = "torch.utils.data.Subset", "torch.utils.data.random_split"
JOINED = frozenset({"torch.utils.data.ConcatDataset", "torch.utils.data.ChainDataset"})
_DEEPEST = 4
_MOST = 6


def has_samples(base: str) -> bool:
    """Whether a class of a library is one of datasets, whose samples a loader reads."""
    library, _, name = base.rpartition(".")
    named = name.endswith("Dataset") and library.partition(".")[0] not in _OTHER_LIBRARIES
    return named or base in _PIPES or (library.startswith("torchvision.datasets") and not library.endswith("utils"))


class Holding(Struct, frozen=True):
    """An attribute of a dataset and what it holds."""

    name: str
    content: Content
    effect: Effect | None
    module: Module
    read: bool  # whether __getitem__ reads it
    outside: bool = False  # whether code outside of the class sets it
    unsure: bool = False  # whether it may be replaced by something of which nothing is known


class Dataset(Struct, frozen=True, eq=False):
    """What a loader reads.

    ``holdings`` are the attributes; a library's wrapper has none and ``inner`` instead. ``story`` leads from the loader to it.
    """

    words: str
    module: Module
    node: cst.CSTNode
    instance: Instance | None
    holdings: tuple[Holding, ...]
    inner: tuple[Dataset, ...]
    iterable: bool = False
    reads_files: bool = False
    works: bool = False
    draws: bool = False
    unknown: bool = False  # __getitem__ calls what nobody can look into
    picklable: bool = False  # a __getstate__ or __reduce__ of its own
    local: bool = False  # a class inside a function
    alternative: Alternative | None = None
    frame: Frame | None = None  # where a library's is made, or a list

    def owned(self) -> Iterator[tuple[Dataset, Holding]]:
        """Holdings of the dataset and of those that it wraps, each with the dataset that has it."""
        yield from ((self, one) for one in self.holdings)
        for one in self.inner:
            yield from one.owned()

    def every(self) -> list[Holding]:
        """Holdings of the dataset and of those that it wraps."""
        return [holding for _, holding in self.owned()]

    @property
    def opens_files(self) -> bool:
        """Whether reading a sample reads a file."""
        return self.reads_files or any(one.opens_files for one in self.inner)

    @property
    def does_work(self) -> bool:
        """Whether a sample is made of what is read for it: transformed, tokenised, decoded."""
        return self.works or any(one.does_work for one in self.inner)

    @property
    def draws_numbers(self) -> bool:
        """Whether reading a sample draws random numbers."""
        return self.draws or any(one.draws_numbers for one in self.inner)


class Datasets:
    """Resolves the first argument of loaders."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator: Evaluator = evaluator_of(project)
        self.contents = Contents(self.evaluator)
        self.seen = project.shared(SeenAxes)
        self._memo: AnswerMemory[object, Dataset | None] = AnswerMemory(project.readings)
        self._active: set[object] = set()
        self._by_loaders: dict[Module, list[tuple[Scope, Effect]]] = {}

    def of(self, loaders: Loaders, loader: Loader, frame: Frame) -> list[Dataset]:
        """The datasets that a loader can read in a frame."""
        found: list[Dataset] = []
        given = loaders.argument(loader, "dataset", frame)
        few = list(dict.fromkeys(alt.value for alt in given))[:_MOST]  # one may come in several ways
        for alt in given:
            one = self.of_value(alt.value) if alt.value in few else None
            if one is not None:
                found.append(replace(one, alternative=alt))
        return found

    def opens_files(self, cls: ClassRef) -> bool:
        """Whether objects of a class read a file for each sample."""
        one = self.of_value(Instance(cls, None))
        return one is not None and one.opens_files

    def of_value(self, value: Value, depth: int = 0) -> Dataset | None:
        """The dataset behind a value, or ``None`` where it is not known."""
        if depth > _DEEPEST:
            return None
        if isinstance(value, Instance):
            return self._of_instance(value, depth)
        if isinstance(value, ExternalCall):
            return self._of_library(value, depth)
        if isinstance(value, Element) and value.whole.name == _SPLIT:
            return self._wrapper(value.whole, depth)
        if isinstance(value, Display) and isinstance(value.node, cst.List | cst.Tuple | cst.ListComp):
            return self._plain(value, value.frame, value.node)
        if isinstance(value, SourceExpression) and isinstance(value.node, cst.BinaryOperation) and isinstance(value.node.operator, cst.Add):
            return self._joined([value.node.left, value.node.right], value.frame, value.node, depth)
        return None

    # -- library datasets ----------------------------------------------------------------------------------------------

    def _of_library(self, value: ExternalCall, depth: int) -> Dataset | None:
        name = names.canonical(value.name)
        if name in {_SUBSET, _SPLIT}:
            return self._wrapper(value, depth)
        if name in JOINED:
            first = value.call.args[0].value if value.call.args else None
            if first is None:
                return None
            inner = self._listed(first, value.frame, depth)
            return Dataset("`ConcatDataset`", value.frame.module, value.call, None, (), tuple(inner[:_MOST])) if inner else None
        if name == "torch.utils.data.TensorDataset":
            holdings = []
            for arg in value.call.args:
                content = self.contents.of(arg.value, value.frame)
                if content.kind not in {PayloadKind.TENSOR, PayloadKind.SHARED}:
                    content = Content(PayloadKind.TENSOR, "a tensor", value.frame.module, value.call)
                holdings.append(Holding("tensors", content, None, value.frame.module, read=True))
            return Dataset("`TensorDataset`", value.frame.module, value.call, None, tuple(holdings), (), frame=value.frame)
        if name in COCO_DATASETS:
            held = self._coco(value.frame.module, value.call)
            return Dataset(f"`{name.rpartition('.')[2]}`", value.frame.module, value.call, None, (held,), (), reads_files=True, works=True)
        if name == "builtins.zip" or name.endswith(("json.load", "json.loads")):
            return self._plain(value, value.frame, value.call)  # `list(zip(sources, targets))`
        return None

    def _keeps_coco(self, value: Instance, item: FunctionRef | None, body: SampleBody) -> bool:
        """Whether a class derived from one of torchvision's has its index of annotations when samples are read, and reads it for them."""
        reads = item is None or not body.attributes.isdisjoint({"coco", "_load_image", "_load_target"}) or _calls(item.scope, "__getitem__")
        own = [frame for frame in self.building_frames(value) if frame.scope.name == "__init__"]
        made = not own or any(_calls(frame.scope, "__init__") for frame in own)
        path = (("attr", "coco"),)
        gone = any(effect.path == path for frame in own for effect in frame.scope.effects.get(names.self_name(frame.scope) or "", ()))
        return reads and made and not gone

    @staticmethod
    def _coco(module: Module, node: cst.CSTNode) -> Holding:
        """The index of all annotations that the class of torchvision keeps as its attribute ``coco``."""
        return Holding("coco", Content(PayloadKind.OBJECTS, COCO_INDEX, module, node, form=Form.ANNOTATIONS), None, module, read=True)

    def _wrapper(self, value: ExternalCall, depth: int) -> Dataset | None:
        """The dataset that a subset of it is made of."""
        if not value.call.args:
            return None
        inner = [d for alt in self.evaluator.values(value.call.args[0].value, value.frame) if (d := self.of_value(alt.value, depth + 1)) is not None]
        return Dataset(inner[0].words, inner[0].module, inner[0].node, inner[0].instance, (), tuple(inner[:1])) if inner else None

    def _listed(self, first: cst.BaseExpression, frame: Frame, depth: int) -> list[Dataset]:
        """Datasets in what is a list of them; where a list is added to it, those in all that its name is given."""
        found = [one for alt in self.evaluator.values(first, frame) for one in self._members(alt.value, depth)]
        if found or not isinstance(first, cst.Name):
            return found
        for effect in frame.scope.effects.get(first.value, ()):
            if effect.kind in {"assign", "append", "extend", "augment"} and not effect.path and not effect.index and effect.value is not None:
                values = [alt.value for alt in self.evaluator.values(effect.value, frame)[:3]]
                single = (one for value in values if effect.kind == "append" and (one := self.of_value(value, depth + 1)) is not None)
                found += single if effect.kind == "append" else [one for value in values for one in self._members(value, depth)]
        return found

    def _members(self, value: Value, depth: int) -> list[Dataset]:
        """Datasets in a list, appended ones included, and in what is made of lists: ``[first] * 100 + rest``."""
        if isinstance(value, SourceExpression) and isinstance(value.node, cst.BinaryOperation) and isinstance(value.node.operator, cst.Add | cst.Multiply):
            frame, sides = value.frame, (value.node.left, value.node.right)
            return [one for side in sides for alt in self.evaluator.values(side, frame)[:2] for one in self._members(alt.value, depth)]
        if not isinstance(value, Display):
            return []
        nodes: list[tuple[cst.BaseExpression, Frame]] = []
        if isinstance(value.node, cst.List | cst.Tuple):
            nodes.extend((e.value, value.frame) for e in value.node.elements if isinstance(e, cst.Element))
        elif isinstance(value.node, cst.ListComp):
            nodes.append((value.node.elt, value.frame))
        holder = value.frame.module.walk.parents.get(value.node)
        if isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Name):
            effects = value.frame.scope.effects.get(holder.targets[0].target.value, ())
            nodes.extend((e.value, value.frame) for e in effects if e.kind == "append" and not e.path and e.value is not None)
        found = []
        for node, frame in nodes[: 2 * _MOST]:
            for alt in self.evaluator.values(node, frame)[:3]:
                one = self.of_value(alt.value, depth + 1)
                if one is not None:
                    found.append(one)
        return found

    def _joined(self, nodes: list[cst.BaseExpression], frame: Frame, node: cst.CSTNode, depth: int) -> Dataset | None:
        inner = [d for n in nodes for a in self.evaluator.values(n, frame)[:2] if (d := self.of_value(a.value, depth + 1)) is not None]
        return Dataset("a sum of datasets", frame.module, node, None, (), tuple(inner)) if inner else None

    def _plain(self, value: Value, frame: Frame, node: cst.CSTNode) -> Dataset | None:
        content = self.contents.of_value(value)
        if content.kind not in IN_MEMORY:
            return None
        return Dataset("a list", frame.module, node, None, (Holding("list", content, None, frame.module, read=True),), (), frame=frame)

    # -- classes of the project ----------------------------------------------------------------------------------------

    def is_dataset(self, cls: ClassRef) -> bool:
        """Whether a class can be read by a loader."""
        if any(isinstance(base, External) and has_samples(base.name) for base in self.evaluator.lineage(cls)):
            return True
        return item_of(Instance(cls, None), self.evaluator) is not None

    def _of_instance(self, value: Instance, depth: int) -> Dataset | None:
        if not self.is_dataset(value.cls):
            return None
        key = (value.cls, value.call, value.bound)
        if key in self._memo:
            return self._memo[key]
        if key in self._active:
            self._memo.give_up()
            return None
        self._active.add(key)
        try:
            found = self._read(value, depth)
        finally:
            self._active.discard(key)
        self._memo[key] = found
        return found

    def _read(self, value: Instance, depth: int) -> Dataset:
        cls = value.cls
        item = item_of(value, self.evaluator)
        iterator = self.evaluator.method(value, "__iter__")
        iterable = self.evaluator.derives(cls, "torch.utils.data.IterableDataset") or (item is None and iterator is not None)
        body = SampleBody(self.evaluator, value, item or iterator)
        inherits = self._library_base(cls)
        holdings = tuple(self._holdings(value, body))
        if self.evaluator.derives(cls, *COCO_DATASETS) and self._keeps_coco(value, item, body):
            holdings = (*holdings, self._coco(cls.module, cls.scope.node))
        inner: list[Dataset] = []
        for holding in holdings:
            if (
                holding.read
                and holding.content.kind is PayloadKind.DATASET
                and holding.content.dataset is not None
                and holding.content.dataset.cls.scope is not cls.scope
            ):
                one = self.of_value(holding.content.dataset, depth + 1)
                if one is not None:
                    inner.append(one)
        inner += self._wrapped(value, holdings, depth)
        picklable = any(self.evaluator.method(value, name) is not None for name in ("__getstate__", "__reduce__", "__reduce_ex__"))
        local = cls.scope.parent is not None and cls.scope.parent.is_function
        reads = body.reads_files or any(h.read and h.content.kind in {PayloadKind.H5, PayloadKind.HANDLE} for h in holdings)
        return Dataset(
            f"`{cls.scope.name}`", cls.module, cls.scope.node, value, holdings, tuple(inner), iterable,
            reads or inherits == "library", body.works or inherits == "library", body.draws, body.unknown, picklable, local,
        )  # fmt: skip

    def _wrapped(self, value: Instance, holdings: tuple[Holding, ...], depth: int) -> list[Dataset]:
        """Datasets in those of torch that hold others: as attributes, or given to the class of torch that it derives from."""
        names_read = [one.name for one in holdings if one.read and one.content.kind is not PayloadKind.DATASET]
        kept = (alt.value for name in names_read for alt in self.evaluator.attribute(value, name, ())[:3])
        found = [one for part in kept if _holds_others(part) and (one := self.of_value(part, depth + 1)) is not None]
        wrapper = self.evaluator.derives(value.cls, _SUBSET)
        if not wrapper and not self.evaluator.derives(value.cls, *JOINED):
            return found
        for first, frame in self._given_to_base(value):
            alone = (one for alt in self.evaluator.values(first, frame)[:3] if (one := self.of_value(alt.value, depth + 1)) is not None)
            found += alone if wrapper else self._listed(first, frame, depth)
        return found

    def _given_to_base(self, value: Instance) -> Iterator[tuple[cst.BaseExpression, Frame]]:
        """The first argument of the class of torch that a class derives from."""
        built = [frame for frame in self.building_frames(value) if frame.scope.name == "__init__"]
        for frame, call in ((one, call) for one in built for call in one.scope.calls):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "__init__" and isinstance(func.value, cst.Call) and call.args:
                yield call.args[0].value, frame
        bound = value.bound[-1] if not built and value.bound else None
        if bound is not None and bound.args:
            yield bound.args[0].value, bound.frame

    def _library_base(self, cls: ClassRef) -> str:
        """``"library"`` where samples come from a class of a library that nobody can look into."""
        for base in self.evaluator.lineage(cls):
            if isinstance(base, ClassRef):
                if base.scope.child("__getitem__") is not None or base.scope.child("__iter__") is not None:
                    return ""
            elif base.name not in DATASET_BASES and not base.name.startswith(("builtins.", "abc.", "typing.", "collections.abc.")):
                return "library"
        return ""

    def _holdings(self, value: Instance, body: SampleBody) -> list[Holding]:
        """Attributes that ``__init__``, the methods that it calls, the base classes and who uses the object set before samples are read."""
        found: dict[str, Holding] = {}
        for name, effect, frame, outside in self._set(value, body):
            content = self._content(effect, frame)
            if content is None:
                continue
            content = self._conventional(value, name, content)
            if content.kind in IN_MEMORY:
                likely = self._likely(effect, frame)
                if likely is None:
                    continue
                content = replace(content, doubt=content.doubt + likely)
            known = found.get(name)
            one = Holding(name, content, effect, frame.module, read=name in body.attributes, outside=outside)
            if known is not None and self._open_or_read(known, one, frame):
                one = replace(one, content=NOTHING)
            # A later assignment replaces what an earlier one held, unless nothing is known of it; one that may not be reached only where it is graver.
            elif known is not None and (content.kind in {PayloadKind.UNKNOWN, PayloadKind.SCALAR} or self._is_lighter(content, known, effect, frame)):
                found[name] = replace(known, unsure=known.unsure or content.kind is PayloadKind.UNKNOWN)
                continue
            found[name] = one
        return [one for one in found.values() if one.content.kind not in IN_MEMORY or not self._is_gone(value, one.name)]

    def _set(self, value: Instance, body: SampleBody) -> Iterator[tuple[str, Effect, Frame, bool]]:
        """Statements that set attributes of an object, in the order in which they are run, and whether they stand outside of its class."""
        for effect, frame, outside in self._statements(value, body):
            key = effect.path[-1][1]
            if isinstance(key, str):
                yield key, effect, frame, outside
            elif outside and isinstance(effect.node, cst.Call):  # `setattr(data, name, ...)`
                found = self.evaluator.values(effect.node.args[1].value, frame)
                yield from ((alt.const, effect, frame, outside) for alt in found if isinstance(alt.const, str))

    def _statements(self, value: Instance, body: SampleBody) -> Iterator[tuple[Effect, Frame, bool]]:
        built = self.building_frames(value)
        yield from ((effect, frame, False) for effect, frame in _in_order(built[0], built) if _sets(effect)) if built else ()
        for frame in self._from_outside(value, body, {frame.scope for frame in built}):
            yield from ((effect, frame, False) for effect in frame.scope.effects.get(names.self_name(frame.scope) or "", ()) if _sets(effect))
        at, call = value.at, value.call
        for root, path in at.module.walk.bound_to(call) if at is not None and call is not None else ():
            yield from ((effect, frame, True) for effect, frame in self._set_by_others(root, path, at, call) if _sets(effect, path))
        yield from ((effect, frame, True) for effect, frame in self._set_by_loaders(value))

    def _set_by_loaders(self, value: Instance) -> Iterator[tuple[Effect, Frame]]:
        """What is done to an object through a loader that reads it, where that is made or gone through: ``loader.dataset.weights = np.ones(n)``."""
        frames: list[Frame] = []
        here = value.at
        while here is not None:
            frames.append(here)
            here = here.bound[-1].frame if here.bound else None
        for module in dict.fromkeys(frame.module for frame in frames):
            for scope, effect in self._through_loaders(module):
                known = [frame for frame in frames if frame.scope is scope] or self.evaluator.calls.frames(module, scope)
                for frame in known[:_MOST]:
                    if [alt.value for alt in self.evaluator.resolve(effect.root, effect.path[:-1], frame, effect.statement)] == [value]:
                        yield effect, frame

    def _through_loaders(self, module: Module) -> list[tuple[Scope, Effect]]:
        """Where a module sets an attribute of what a loader reads."""
        known = self._by_loaders.get(module)
        if known is None:
            known = self._by_loaders[module] = []
            for scope in module.walk.scopes if "dataset" in module.words else ():
                for found in scope.effects.values():
                    named = any(one.kind == "assign" and isinstance(one.value, cst.Attribute) and one.value.attr.value == "dataset" for one in found)
                    known += ((scope, one) for one in found if one.path and _sets(one, one.path[:-1]) and (named or one.path[-2:-1] == (("attr", "dataset"),)))
        return known

    def _set_by_others(self, root: str, path: tuple[Accessor, ...], at: Frame | None, call: cst.Call | None) -> Iterator[tuple[Effect, Frame]]:
        """What is done to an object by the code that made it, and by the functions that this hands it to: ``data.weights = np.ones(n)``."""
        made = False
        for effect in at.scope.effects.get(root, ()) if at is not None else ():
            made = effect.value is call if effect.path == path and effect.kind == "assign" else made
            if made and at is not None:
                yield effect, at
        for frame, name in self.evaluator.handed(root, path, at) if at is not None else ():
            yield from ((_under(path, effect), frame) for effect in frame.scope.effects.get(name, ()))

    def _is_gone(self, value: Instance, name: str) -> bool:
        """Whether an attribute is taken away again, or set to ``None``, before samples are read."""
        method = next((one for word in ("__getitem__", "__iter__", "__len__") if (one := self.evaluator.method(value, word)) is not None), None)
        this = names.self_name(method.scope) if method is not None else None
        if method is None or this is None:
            return False
        left = self.evaluator.resolve(this, (("attr", name),), Frame(method.module, method.scope, None, value), None)
        return bool(left) and all(isinstance(alt.value, Absent) or alt.value == Const(None) for alt in left)

    def _from_outside(self, value: Instance, body: SampleBody, built: set[Scope]) -> Iterator[Frame]:
        """Methods that are called on the object once it is built, and set what samples are read from: ``dataset.reset(epoch)``."""
        for base in [base for base in self.evaluator.lineage(value.cls) if isinstance(base, ClassRef)]:
            for method in base.scope.children:
                this = names.self_name(method)
                if this is None or method in built or method in body.scopes or method.name == "__init__":
                    continue  # the constructor of a base is called for other objects
                given = {str(effect.path[0][1]) for effect in method.effects.get(this, ()) if effect.kind == "assign" and len(effect.path) == 1}
                if not given.isdisjoint(body.attributes) and self.evaluator.calls.sites(base.module, method, 1):
                    yield Frame(base.module, method, None, value)

    @staticmethod
    def _is_lighter(content: Content, known: Holding, effect: Effect, frame: Frame) -> bool:
        """Whether an assignment that may not be reached gives what weighs less than what is there."""
        if (content.gravity, content.doubt) <= (known.content.gravity, known.content.doubt):
            return False
        walk, scope = frame.module.walk, frame.scope
        if known.effect is None or known.module.walk.scope_at(known.effect.node) is not scope:
            return True
        return not {*path_conditions(walk, scope, effect.statement)} <= {*path_conditions(walk, scope, known.effect.statement)}

    def _likely(self, effect: Effect, frame: Frame) -> int | None:
        """Assumptions that it takes to reach a statement: none, two where only an option brings it about, ``None`` where nothing does."""
        ways = self.evaluator.where(effect.statement, frame)
        if not ways:
            return None
        return 0 if any(is_usual(picks) for picks in ways) else 2

    def _open_or_read(self, first: Holding, second: Holding, frame: Frame) -> bool:
        """Whether an attribute is a dataset of an open HDF5 file or all that is in it, and nobody can tell which."""
        loaded = [one.effect for one in (first, second) if one.content.kind in IN_MEMORY and one.effect is not None]
        if len(loaded) != 1 or PayloadKind.H5 not in {first.content.kind, second.content.kind}:
            return False
        tests = path_conditions(frame.module.walk, frame.scope, loaded[0].statement)
        return any({verdict for verdict, picks, _ in self.evaluator.truth(test, frame) if is_usual(picks)} != {wanted} for test, wanted in tests)

    def _content(self, effect: Effect, frame: Frame) -> Content | None:
        if effect.value is None:
            return None
        if effect.index:
            found = self.evaluator.access(effect.value, tuple(("item", i) for i in effect.index), frame)
            return worst([self.contents.of_value(a.value, a) for a in found[:8]])
        return self.contents.of(effect.value, frame)

    def _conventional(self, value: Instance, name: str, content: Content) -> Content:
        """The same, or what is small where it is one number a sample, or where nothing is seen of it and its name says so."""
        if content.size.known or content.count is not None:
            return content
        if content.kind in {
            PayloadKind.OBJECTS,
            PayloadKind.OBJECT_ARRAY,
            PayloadKind.BLOB,
            PayloadKind.ARRAY,
            PayloadKind.ARRAYS,
            PayloadKind.TENSOR,
            PayloadKind.TENSORS,
            PayloadKind.FRAME,
        }:
            seen = self.seen.of_attribute(self.evaluator.lineage(value.cls), name)
            if seen.one_number or (small_by_name(name) and not seen.has_rows and not gives_records(value, name, self.evaluator)):
                return replace(content, kind=PayloadKind.SMALL)
            if paths_by_name(name) and content.kind in {PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY, PayloadKind.BLOB}:
                return replace(content, kind=PayloadKind.PATHS)
        return content

    def building_frames(self, value: Instance) -> list[Frame]:
        """``__init__`` of the class and its bases, and the methods that these call on the object."""
        frames: list[Frame] = []
        start = self.evaluator.init_frame(value)
        queue = [start] if start is not None else []
        seen: set[Scope] = set()
        while queue and len(frames) < 16:  # noqa: PLR2004 - more would be another class
            frame = queue.pop(0)
            if frame.scope in seen:
                continue
            seen.add(frame.scope)
            frames.append(frame)
            this = names.self_name(frame.scope)
            for call in frame.scope.calls:
                parent = self.evaluator.super_init(call, frame)
                if parent is not None:
                    queue.append(parent)
                    continue
                func = call.func
                if is_attribute_of(func, this):
                    method = self.evaluator.method(value, func.attr.value)
                    if method is not None:
                        queue.append(Frame(method.module, method.scope, (Bound(tuple(call.args), frame, call),), value))
        return frames


def _sets(effect: Effect, path: tuple[Accessor, ...] = ()) -> bool:
    """Whether an effect sets an attribute of an object to which a path leads."""
    own = len(effect.path) == len(path) + 1 and effect.path[:-1] == path
    return effect.kind in {"assign", "with"} and own and effect.path[-1][0] == "attr"


def _under(path: tuple[Accessor, ...], effect: Effect) -> Effect:
    """The effect, as the caller writes it."""
    return replace(effect, path=(*path, *effect.path)) if path else effect


def _in_order(frame: Frame, frames: list[Frame]) -> Iterator[tuple[Effect, Frame]]:
    """What a method does to its object, and those among some frames that it calls on it, in source order."""
    walk, span = frame.module.walk, frame.module.tree.span
    effects = frame.scope.effects.get(names.self_name(frame.scope) or "", ())
    called = [one for one in frames if one is not frame and one.bound and one.bound[-1].frame is frame]
    if not called:
        yield from ((effect, frame) for effect in effects)
        return
    steps: list[tuple[tuple[int, int], bool, Effect | Frame]] = [(span(effect.statement)[:2], True, effect) for effect in effects]
    steps += [(span(walk.statement_of(one.bound[-1].call))[:2], False, one) for one in called if one.bound]
    for _, _, step in sorted(steps, key=lambda one: one[:2]):
        yield from ((step, frame),) if isinstance(step, Effect) else _in_order(step, frames)


def _holds_others(value: Value) -> bool:
    """Whether a value is a dataset of torch that is made of other datasets."""
    whole = value.whole if isinstance(value, Element) else value
    return isinstance(whole, ExternalCall) and names.canonical(whole.name) in {_SUBSET, _SPLIT, *JOINED}


def _calls(scope: Scope, name: str) -> bool:
    return any(names.last_name(call.func) == name for call in scope.calls)


def datasets_of(project: Project) -> Datasets:
    """The project's datasets."""
    return project.shared(Datasets)
