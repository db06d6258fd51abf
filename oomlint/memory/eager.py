"""Which loads the rules speak of, and at which place: one finding for what is read, one for the list that becomes an array."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays import Load, arrays_of
from oomlint.memory.attribute_names import small_name
from oomlint.memory.construction import constructions_of
from oomlint.memory.content import Kind
from oomlint.memory.facts import allocation_fact, keeper_facts, load_facts
from oomlint.memory.inflation import building, keeper_of
from oomlint.memory.kept import Does, kept_of
from oomlint.memory.kept_calls import JOINS
from oomlint.memory.load_words import proven_small
from oomlint.memory.loaders import evaluator_of
from oomlint.memory.reads import Reads
from oomlint.model import names
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import ClassRef, ExternalCall, FunctionRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_CORPUS: Final = re.compile(r"corpus|corpora|sentences|documents|raw_text|text_file|dialog", re.IGNORECASE)
_FILES: Final = re.compile(rb"h5py|zarr|h5pickle|netCDF4|tables")
_THROUGH: Final = frozenset({"tqdm", "enumerate", "readlines", "splitlines", "iter", "list", "islice", "trange"})
_MOST_RELATED: Final = 4
_FEW: Final = frozenset({Kind.SCALAR, Kind.TEXT, Kind.SMALL, Kind.PATHS})  # a number or a name for each sample


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A call that makes one array of a list of what was read."""

    node: cst.BaseExpression
    name: str
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]


def eager_loads(module: Module, project: Project) -> Iterator[Load]:
    """Loads of the module that bring a whole data set into memory; not those of HDF5 files, nor files of tensors.

    What one function reads for one class comes as one load, with the other reads beside it.
    """
    groups: dict[object, list[Load]] = {}
    for load in arrays_of(project).files(module):
        if load.read is None or (load.read.kind is Reads.TORCH and not load.many) or _joined(load) or proven_small(module, load.node):
            continue
        owner = load.keeper.owner
        one = owner.scope if owner is not None else load.keeper.node if load.keeper.live else load.node
        groups.setdefault((load.scope, one), []).append(load)
    for first, *others in groups.values():
        name = first.read.name if first.read is not None else ""
        words = f"`{name}` reads every file" if first.many else f"`{name}` reads all of its file"
        yield replace(first, words=words, beside=tuple(load.node for load in others))
    yield from _helpers(module, project)
    yield from _corpora(module, project)


def torch_loads(module: Module, project: Project) -> Iterator[Load]:
    """Single files of tensors that the module reads for a dataset."""
    for load in arrays_of(project).files(module):
        if load.read is not None and load.read.kind is Reads.TORCH and not load.many:
            yield load


def joins(module: Module, project: Project) -> Iterator[Join]:
    """Calls of the module that copy a list of loads into one array which a dataset keeps."""
    arrays = arrays_of(project)
    h5 = [load.node for load in arrays.h5(module)]
    found: dict[cst.CSTNode, list[Load]] = {}
    for load in (*arrays.h5(module), *arrays.files(module)):
        for keeper in load.keepers:
            for done in keeper.passed:
                if done.does is Does.JOINS and done.module is module and load not in found.setdefault(done.node, []):
                    found[done.node].append(load)
    groups: dict[object, list[tuple[cst.Call, list[Load]]]] = {}
    for node, loads in found.items():
        if (
            not isinstance(node, cst.Call)
            or proven_small(module, node)
            or kept_of(project).repeats(module, node)
            or any(_within(module, one, [node]) for one in h5)
        ):
            continue
        scope = module.walk.scope_at(node)
        near = [load for load in loads if load.scope is scope] or loads  # a helper of theirs may give back what others read
        groups.setdefault((scope, frozenset(load.node for load in near)), []).append((node, near))
    for (node, loads), *others in groups.values():
        spots = [module.place(load.node, "read here") for load in loads[:1]]
        beside = [module.place(other, "so does this") for other, _ in others]
        first = loads[0].keeper
        put = [first.put[0].place(first.put[1], "put with the others here")] if first.put is not None and first.put[1] is not node else []
        kept = [first.module.place(first.node, f"{first.words} keeps it")] if first.node is not node else []
        spots += [*(module.place(load.node, "read here") for load in loads[1:]), *beside, *put, *kept]
        facts = (allocation_fact(module, node), *dict.fromkeys(fact for load in loads for fact in load_facts(load)))
        yield Join(node, names.dotted(node.func), tuple(spots[:_MOST_RELATED]), facts)
    yield from (row for row in _rows(module, project) if row.node not in found)


def _rows(module: Module, project: Project) -> Iterator[Join]:
    """``torch.tensor([one.ids for one in features])``, which a dataset keeps, while the objects that it is made of are still there."""
    contents = constructions_of(project).contents
    evaluator = evaluator_of(project)
    for scope in building(module, project):
        found: list[tuple[cst.Call, Keeper]] = []
        for call in scope.calls:
            rows = call.args[0].value if call.args and names.last_name(call.func) in JOINS else None
            if not isinstance(rows, cst.ListComp) or not _is_there(rows.elt):
                continue
            if kept_of(project).gathering(module, rows.elt) is not rows or small_name(names.last_name(rows.elt)):
                continue
            element = contents.of(rows.elt, evaluator.calls.plain_frame(module, scope))
            keeper = keeper_of(module, project, call) if element.kind not in _FEW else None
            if keeper is not None:
                found.append((call, keeper))
        if found:
            (node, keeper), *others = found
            spots = [module.place(call, "so does this") for call, _ in others]
            kept = keeper.module.place(keeper.node, f"{keeper.words} keeps it")
            yield Join(node, names.dotted(node.func), (*spots[: _MOST_RELATED - 1], kept), (allocation_fact(module, node), *keeper_facts(keeper)))


def _is_there(element: cst.BaseExpression) -> bool:
    """Whether an element is one that something else holds, too: a call makes it anew, and a slice is a view."""
    if isinstance(element, cst.Subscript):
        return all(isinstance(one.slice, cst.Index) for one in element.slice)
    return isinstance(element, cst.Attribute | cst.Name)


def _joined(load: Load) -> bool:
    """Whether a list of it becomes one array in the same module: that is where the finding is."""
    return any(done.does is Does.JOINS and done.module is load.module for keeper in load.keepers for done in keeper.passed)


def _within(module: Module, node: cst.CSTNode, outer: list[cst.BaseExpression]) -> bool:
    return bool(outer) and any(here in outer for here in module.walk.ancestors(node))


def _helpers(module: Module, project: Project) -> Iterator[Load]:
    """Datasets that keep what a function outside of their class reads whole from HDF5 files."""
    if not _has_files(project, module):
        return
    evaluator = evaluator_of(project)
    constructions = constructions_of(project)
    for cls in module.walk.scopes:
        if not cls.is_class or not constructions.is_dataset(ClassRef(module, cls)):
            continue
        for method in cls.children:
            if not constructions.builds(ClassRef(module, cls), method):
                continue
            frame = evaluator.calls.plain_frame(module, method)
            for call in method.calls:
                for alt in evaluator.values(call.func, frame)[:2]:
                    if isinstance(alt.value, FunctionRef) and alt.value.this is None and _FILES.search(project.raw(alt.value.module.path)):
                        load = _load_of(project, alt.value, module, method, call)
                        if load is not None:
                            yield load


def _has_files(project: Project, module: Module) -> bool:
    """Whether a file of the project speaks of HDF5 at all."""
    return bool(project.search(_speaks_of_files, (), module.path))


@finder
def _speaks_of_files(path: str, data: bytes) -> str:
    """Whether a file speaks of HDF5."""
    del path
    return FOUND if _FILES.search(data) else ""


def _load_of(project: Project, function: FunctionRef, module: Module, method: Scope, call: cst.Call) -> Load | None:
    for load in arrays_of(project).h5(function.module):
        if load.scope is not function.scope or load.many or _joined(load) or proven_small(load.module, load.node):
            continue
        keepers = tuple(k for k in load.keepers if k.module is module and (k.node is call or any(here is k.node for here in module.walk.ancestors(call))))
        if keepers:
            return Load(module, method, call, f"`{function.scope.name}` reads all of {load.words}", keepers, load.many)
    return None


def _corpora(module: Module, project: Project) -> Iterator[Load]:
    """Text corpora that a dataset keeps line by line."""
    if _CORPUS.search(module.source.text) is None:
        return
    evaluator = evaluator_of(project)
    kept = kept_of(project)
    for scope in module.walk.scopes:
        if not scope.is_function or constructions_of(project).per_item(module, scope):
            continue
        frame = evaluator.calls.plain_frame(module, scope)
        for loop in (*scope.loops, *scope.rows):
            if isinstance(loop, cst.While):
                continue
            iterated = loop.iter if isinstance(loop, cst.For) else loop.for_in.iter
            inner: cst.BaseExpression = iterated
            while isinstance(inner, cst.Call) and names.last_name(inner.func) in _THROUGH:
                if isinstance(inner.func, cst.Attribute) and names.last_name(inner.func) in {"readlines", "splitlines"}:
                    inner = inner.func.value
                elif inner.args:
                    inner = inner.args[0].value
                else:
                    break
            opened = next((a.value for a in evaluator.values(inner, frame) if isinstance(a.value, ExternalCall) and a.value.name.endswith("open")), None)
            if opened is None or not opened.call.args or not _CORPUS.search(opened.frame.module.code(opened.call.args[0].value)):
                continue
            keepers = tuple(k for k in kept.of(module, iterated) if k.owner is not None)
            if keepers:
                node = loop if isinstance(loop, cst.ListComp) else iterated
                yield Load(module, scope, node, "Every line of the corpus is read into Python objects", keepers, many=False)
