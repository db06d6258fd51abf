"""Containers that keep many files open: one for each file of a dataset, filled when it is made or while samples are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import COLLECTIONS, H5PY, ITERATORS
from oomlint.finding import in_own_rows
from oomlint.memory.buffers.caches import bounded_global, bounded_here, bounded_in, by_process
from oomlint.memory.buffers.functools_caches import unbounded
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.handles.file_containers import Holder, container_of, lasting
from oomlint.memory.handles.h5_api import Grip
from oomlint.memory.handles.objects_with_files import objects_with
from oomlint.memory.handles.openings import Opening, Opens, opened_by, openings_of
from oomlint.memory.handles.resource_flow import trail_from, trail_of
from oomlint.memory.handles.resource_names import COMPREHENSIONS
from oomlint.memory.handles.resource_state import End, ResourceStore
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.attribute_names import few_by_name
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.lifetime import is_capped
from oomlint.model.values import ClassRef, Const, External, Instance
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

MANY: Final = 100  # files: fewer are no harm
_MOST_CLASSES: Final = 4  # that derive from one, and make its objects
LAZY_FILES: Final = frozenset({Opens.NPZ, Opens.MEMMAP, Opens.FILE, Opens.IMAGE, Opens.ARCHIVE, Opens.VIDEO, Opens.RASTER, Opens.SLIDE})
# What is opened is no file of the disk.
_STREAM = re.compile(r"BytesIO|StringIO|urlopen|requests|response|\.raw\b|extractfile|frombuffer|fileobj|buffer", re.IGNORECASE)
_MANY_CALLS = frozenset("glob iglob rglob listdir scandir walk iterdir iterrows itertuples".split())


class OpenFileCollection(Struct, frozen=True, eq=False):
    """A container of open files."""

    opening: Opening
    words: str  # the container, as it is written
    store: ResourceStore
    per_item: bool  # filled while samples are read
    objects: bool  # it keeps datasets of the files, not the files
    count: int | None
    name: str = ""  # of the attribute or the variable
    owner: ClassRef | None = None  # whose attribute it is
    by: tuple[ResourceStore, ...] = ()  # where the objects that it keeps get a file each

    def places(self) -> list[Place]:
        """Where it is kept, and by which objects, apart from the row that opens it."""
        place = self.opening.module.place(self.opening.call)
        spots = [self.store.module.place(self.store.node, "kept here")]
        spots += [one.module.place(one.node, "each object keeps its own") for one in self.by]
        return in_own_rows(place, spots)

    @property
    def doubt(self) -> int:
        """How much is assumed: an unknown number of files counts as many."""
        return 0 if self.count is not None else 1


def kept_files(module: Module, project: Project, kinds: frozenset[Opens]) -> Iterator[OpenFileCollection]:
    """Containers of open files of these kinds, by the calls of the module that open them."""
    for opening in (*openings_of(project).of(module), *_mapped(module, project)):
        if opening.kind not in kinds or (opening.kind is Opens.H5 and opening.name not in H5PY):
            continue
        if opening.kind is Opens.SLIDE and any(names.last_name(call.func) == "set_cache" for call, _ in module.walk.calls):
            continue  # all of them have one cache
        if opening.path is not None and _STREAM.search(module.code(opening.path)):
            continue
        known = project.memo.get(("kept", opening.call))
        if known is None:
            known = project.memo["kept", opening.call] = tuple(_kept(opening, project))
        yield from known  # type: ignore[misc]


def _mapped(module: Module, project: Project) -> Iterator[Opening]:
    """``map(Image.open, paths)``."""
    evaluator = evaluator_of(project)
    for call, scope in module.walk.calls:
        if isinstance(call.func, cst.Name) and call.func.value == "map" and len(call.args) == 2:  # noqa: PLR2004 - the function and one iterable
            for alt in evaluator.plainly(call.args[0].value, module, scope)[:2]:
                kind = opened_by(alt.value.name) if isinstance(alt.value, External) else None
                if kind is not None and isinstance(alt.value, External):
                    yield Opening(kind, alt.value.name, module, scope, call, None, "r")


def keeps_many(opening: Opening, project: Project) -> bool:
    """Whether the call opens one of many files that a container keeps."""
    return any(one.opening is opening for one in kept_files(opening.module, project, frozenset({opening.kind})))


def _kept(opening: Opening, project: Project) -> Iterator[OpenFileCollection]:
    walk = opening.module.walk
    if isinstance(walk.parents.get(opening.call), cst.WithItem):
        return
    cached = _cached(opening, project)
    if cached is not None:
        yield cached
        return
    for store, by in (*((one, ()) for one in _stores(opening, project)), *_of_objects(opening, project)):
        found = _judged(opening, store, project, by)
        if found is not None:
            yield found
            return


def _cached(opening: Opening, project: Project) -> OpenFileCollection | None:
    """A function that opens a file and returns it, under ``functools.cache``."""
    scope, module = opening.scope, opening.module
    if not isinstance(scope.node, cst.FunctionDef) or scope.parent is None or not scope.node.decorators or not names.parameters(scope):
        return None
    evaluator = evaluator_of(project)
    outside = evaluator.calls.plain_frame(module, scope.parent)
    ends = trail_of(opening, project).ends
    if not {End.RETURNED, End.HANDED_OUT} & ends.keys() or not any(unbounded(one.decorator, outside, evaluator) for one in scope.node.decorators):
        return None
    if not readers(project, module, scope):
        return None
    store = ResourceStore(module, scope, scope.node.decorators[0], Grip.FILE)
    return OpenFileCollection(opening, f"The cache of `{scope.name}`", store, per_item=True, objects=End.RETURNED not in ends, count=None)


def _stores(opening: Opening, project: Project) -> Iterator[ResourceStore]:
    """Where the file is put, in the function that opens it and in those that it is returned to."""
    if names.last_name(opening.call.func) == "map":
        yield ResourceStore(opening.module, opening.scope, opening.call, Grip.FILE)
        return
    trail = trail_of(opening, project)
    if End.CLOSED in trail.ends:
        return
    yield from trail.stores
    if End.RETURNED not in trail.ends or not opening.scope.is_function:
        return
    for site in evaluator_of(project).calls.sites(opening.module, opening.scope, most=6):
        further = trail_from(site.call, site.module, site.scope, opening.kind, project)
        if End.CLOSED not in further.ends:
            yield from further.stores


def _of_objects(opening: Opening, project: Project) -> Iterator[tuple[ResourceStore, tuple[ResourceStore, ...]]]:
    """Where objects that keep the file are put. Images are closed when they are decoded."""
    return iter(()) if opening.kind is Opens.IMAGE else objects_with(opening, project)


def _judged(opening: Opening, store: ResourceStore, project: Project, by: tuple[ResourceStore, ...]) -> OpenFileCollection | None:
    module, scope = store.module, store.scope
    if store.grip not in {Grip.FILE, Grip.OBJECT} or _closes(scope):
        return None
    base = container_of(store)
    if base is None:
        return None
    found = lasting(base, store, project)
    if found is None:
        return None
    if found.owner is not None and opening.kind is not Opens.H5 and _of_fields(found.owner, found.name, project):
        return None  # what matters of a file of HDF5 is not that there are many
    objects = store.grip is Grip.OBJECT
    inside = [store] if _loop(store) is not None else list(_called_in_loops(store, found.owner, project)) if found.owner is not None else []
    if inside:
        of_module = found.owner is None and scope.parent is None
        if not (of_module or found.joins) and (found.owner is None or not datasets_of(project).is_dataset(found.owner)):
            return None
        count = next((count for few, count in (_count(here, project) for here in inside) if not few), 0)
        sure = of_module or found.joins or by
        if count == 0 or (sure and count is None and not any(_from_folder(here, project) for here in inside)):
            return None
        return OpenFileCollection(opening, found.words, store, per_item=False, objects=objects, count=count, name=found.name, owner=found.owner, by=by)
    if scope.parent is None or scope.name in {"__init__", "__setstate__"} or not isinstance(store.node, cst.Subscript | cst.Call):
        return None
    if opening.kind in {Opens.IMAGE, Opens.VIDEO}:
        return None  # a cache of images or frames, not of files
    if not readers(project, module, scope) or _is_bounded(store, found, project) or _few_keys(store):
        return None
    return OpenFileCollection(opening, found.words, store, per_item=True, objects=objects, count=None, name=found.name, owner=found.owner)


def _of_fields(owner: ClassRef, name: str, project: Project) -> bool:
    """Whether each sample takes a part of each file, or always of the same: they are its fields, and no files of samples.

    ``{key: rows[index] for key, rows in self.maps.items()}``, ``self.files[0][key]``.
    """
    fixed: list[bool] = []
    for method in owner.scope.children:
        this = names.self_name(method)
        if this is None or method.name == "__len__" or not constructions_of(project).per_item(owner.module, method):
            continue
        for node in method.nodes():
            if isinstance(node, COMPREHENSIONS) and not node.for_in.ifs and _is_of(_held_in(node.for_in.iter), this, name):
                bound = names_in(node.for_in.target)
                made = node.value if isinstance(node, cst.DictComp) else node.elt
                if any(isinstance(part, cst.Subscript) and names.dotted(part.value) in bound for part in descend(made)):
                    return True
            elif isinstance(node, cst.Subscript) and _is_of(node.value, this, name):
                index = node.slice[0].slice
                fixed.append(isinstance(index, cst.Index) and constant_key(index.value) not in {None, UNKNOWN_KEY})
    return bool(fixed) and all(fixed)


def _is_of(node: cst.BaseExpression, this: str, name: str) -> bool:
    return is_attribute_of(node, this) and names.last_name(node) == name


def _called_in_loops(store: ResourceStore, owner: ClassRef, project: Project) -> Iterator[ResourceStore]:
    """Calls, in loops of the code that makes such an object, of the method that stores, or of one that leads to it."""
    evaluator = evaluator_of(project)
    classes = [owner, *evaluator.calls.subclasses(owner)[:_MOST_CLASSES]]
    making = {frame.scope for cls in classes for frame in datasets_of(project).building_frames(Instance(cls, None))}
    queue = [(store.module, store.scope)] if store.scope in making else []
    seen: set[Scope] = set()
    while queue:
        module, scope = queue.pop(0)
        seen.add(scope)
        for site in evaluator.calls.sites(module, scope, most=6):
            here = ResourceStore(site.module, site.scope, site.call, store.grip)
            if site.scope in making and _loop(here) is not None:
                yield here
            elif site.scope in making - seen:
                queue.append((site.module, site.scope))


def _is_bounded(store: ResourceStore, holder: Holder, project: Project) -> bool:
    effect = _effect(store)
    evaluator = evaluator_of(project)
    if effect is None or by_process(effect, store.module) or bounded_here(effect, store.module, store.scope, evaluator):
        return True
    if holder.owner is None:
        found = evaluator.resolve(holder.name, (), evaluator.module_frame(store.module), None)
        bounded = bounded_global(holder.name, store.module, evaluator)
    else:
        found = evaluator.attribute(Instance(holder.owner, None), holder.name, ())
        bounded = bounded_in(holder.owner, holder.name, evaluator)
    return bounded or any(is_capped(alt.value) for alt in found)


def _effect(store: ResourceStore) -> Effect | None:
    for effects in store.scope.effects.values():
        for effect in effects:
            if effect.node is store.node or effect.call is store.node:
                return effect
    return None


def _few_keys(store: ResourceStore) -> bool:
    """Whether the key says that there are a handful: each name in it does, of which nobody knows more."""
    return isinstance(store.node, cst.Subscript) and _all_few(store.node.slice[0])


def _closes(scope: Scope) -> bool:
    """Whether the function, or an exit stack in it, closes files."""
    return any(names.last_name(call.func) in {"close", "enter_context", "ExitStack", "closing"} for call in scope.calls)


# -- how many ------------------------------------------------------------------------------------------------------------


def _loop(store: ResourceStore) -> tuple[cst.BaseExpression, cst.CSTNode] | None:
    """What the innermost loop that stores in each round goes through, and its target."""
    if isinstance(store.node, COMPREHENSIONS):
        return store.node.for_in.iter, store.node.for_in.target
    if isinstance(store.node, cst.Call) and names.last_name(store.node.func) == "map":
        return store.node.args[1].value, store.node.args[0].value
    return next(((here.iter, here.target) for here in store.module.walk.between(store.node, store.scope.node) if isinstance(here, cst.For)), None)


def _count(store: ResourceStore, project: Project) -> tuple[bool, int | None]:
    """Whether the loop that stores has few rounds, and how many they are where that is known."""
    loop = _loop(store)
    if loop is None:
        return True, None
    frame = evaluator_of(project).calls.plain_frame(store.module, store.scope)
    count = datasets_of(project).contents.containers.count(loop[0], frame)
    if count is not None:
        return count <= MANY, count
    if _from_folder(store, project):
        return False, None
    said = few_by_name(names.last_name(_held_in(loop[0]))) or _all_few(loop[1])
    return said or any(isinstance(a.value, Const) for a in evaluator_of(project).values(loop[0], frame)), None


def _held_in(node: cst.BaseExpression) -> cst.BaseExpression:
    """The container that a loop goes through: ``views`` in ``enumerate(views.items())``."""
    while isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute) and not node.args:
            node = node.func.value
        elif node.args and names.last_name(node.func) in ITERATORS | COLLECTIONS:
            node = node.args[0].value
        else:
            break
    return node


def _all_few(node: cst.CSTNode) -> bool:
    """Whether each name in an expression is one of what comes in a handful."""
    parts = [node, *descend(node)]
    led = [part.value for part in parts if isinstance(part, cst.Attribute | cst.Subscript)] + [part.attr for part in parts if isinstance(part, cst.Attribute)]
    skipped = {id(part) for part in (*led, *(part.func for part in parts if isinstance(part, cst.Call)))}
    said = [names.last_name(part) for part in parts if isinstance(part, cst.Name | cst.Attribute) and id(part) not in skipped]
    return bool(said) and all(few_by_name(name) for name in said)


def _from_folder(store: ResourceStore, project: Project) -> bool:
    """Whether the loop that stores goes through the files of a folder."""
    loop = _loop(store)
    if loop is None:
        return False
    if any(isinstance(node, cst.Call) and names.last_name(node.func) in _MANY_CALLS for node in descend(loop[0])):
        return True
    frame = evaluator_of(project).calls.plain_frame(store.module, store.scope)
    return datasets_of(project).contents.of(loop[0], frame).kind is PayloadKind.PATHS
