"""Containers that keep many files open: one for each file of a dataset, filled when it is made or while samples are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import COLLECTIONS, CONTAINERS, H5PY
from oomlint.memory.buffers.caches import bounded_global, bounded_here, bounded_in, by_process
from oomlint.memory.buffers.functools_caches import unbounded
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.handles.h5_api import Grip
from oomlint.memory.handles.openings import Opening, Opens, opened_by, openings_of
from oomlint.memory.handles.resource_flow import trail_from, trail_of
from oomlint.memory.handles.resource_state import End, Store
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model import names
from oomlint.model.values import ClassRef, Const, External, ExternalCall, Instance
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Effect, Scope

MANY: Final = 100  # files: fewer are no harm
LAZY_FILES: Final = frozenset({Opens.NPZ, Opens.MEMMAP, Opens.FILE, Opens.IMAGE, Opens.ARCHIVE, Opens.VIDEO, Opens.RASTER, Opens.SLIDE})
_COMPREHENSIONS = (cst.ListComp, cst.DictComp, cst.SetComp, cst.GeneratorExp)
_LISTING = COLLECTIONS | CONTAINERS
# What comes in a handful, whatever it is a handful of.
_FEW = re.compile(
    r"(?<![a-z])(splits?|modal\w*|subsets?|domains?|cameras?|cams?|views?|tasks?|phases?|stages?|folds?|feat|feats|features?|channels?|levels?|sources?|args?|"
    r"config|cfg|options?|modes?|keys?|kinds?|types?|exts?|suffix\w*|ranks?|workers?|gpus?|devices?|logs?|langs?|languages?|corp\w+|pairs?|sides?)(?![a-z])",
    re.IGNORECASE,
)
# What is opened is no file of the disk.
_STREAM = re.compile(r"BytesIO|StringIO|urlopen|requests|response|\.raw\b|extractfile|frombuffer|fileobj|buffer", re.IGNORECASE)
_MANY_CALLS = frozenset("glob iglob rglob listdir scandir walk iterdir".split())


class Kept(Struct, frozen=True, eq=False):
    """A container of open files."""

    opening: Opening
    words: str  # the container, as it is written
    store: Store
    per_item: bool  # filled while samples are read
    objects: bool  # it keeps datasets of the files, not the files
    count: int | None
    name: str = ""  # of the attribute or the variable
    owner: ClassRef | None = None  # whose attribute it is

    @property
    def doubt(self) -> int:
        """How much is assumed: an unknown number of files counts as many."""
        return 0 if self.count is not None else 1


def kept_files(module: Module, project: Project, kinds: frozenset[Opens]) -> Iterator[Kept]:
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
            for alt in evaluator.values(call.args[0].value, evaluator.calls.plain_frame(module, scope))[:2]:
                kind = opened_by(alt.value.name) if isinstance(alt.value, External) else None
                if kind is not None and isinstance(alt.value, External):
                    yield Opening(kind, alt.value.name, module, scope, call, None, "r")


def keeps_many(opening: Opening, project: Project) -> bool:
    """Whether the call opens one of many files that a container keeps."""
    return any(one.opening is opening for one in kept_files(opening.module, project, frozenset({opening.kind})))


def _kept(opening: Opening, project: Project) -> Iterator[Kept]:
    walk = opening.module.walk
    if isinstance(walk.parents.get(opening.call), cst.WithItem):
        return
    cached = _cached(opening, project)
    if cached is not None:
        yield cached
        return
    for store in _stores(opening, project):
        found = _judged(opening, store, project)
        if found is not None:
            yield found
            return


def _cached(opening: Opening, project: Project) -> Kept | None:
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
    store = Store(module, scope, scope.node.decorators[0], Grip.FILE)
    return Kept(opening, f"The cache of `{scope.name}`", store, per_item=True, objects=End.RETURNED not in ends, count=None)


def _stores(opening: Opening, project: Project) -> Iterator[Store]:
    """Where the file is put, in the function that opens it and in those that it is returned to."""
    if names.last_name(opening.call.func) == "map":
        yield Store(opening.module, opening.scope, opening.call, Grip.FILE)
        return
    trail = trail_of(opening, project)
    if End.CLOSED in trail.ends:
        return
    yield from trail.stores
    if End.RETURNED not in trail.ends or not opening.scope.is_function:
        return
    for site in evaluator_of(project).calls.sites(opening.module, opening.scope)[:6]:
        further = trail_from(site.call, site.module, site.scope, opening.kind, project)
        if End.CLOSED not in further.ends:
            yield from further.stores


def _judged(opening: Opening, store: Store, project: Project) -> Kept | None:
    module, scope = store.module, store.scope
    if store.grip not in {Grip.FILE, Grip.OBJECT} or _closes(scope):
        return None
    base = _container(store)
    if base is None:
        return None
    found = _lasting(base, store, project)
    if found is None:
        return None
    loop = _loop(store)
    objects = store.grip is Grip.OBJECT
    if loop is not None:
        of_module = found.owner is None and scope.parent is None
        if not of_module and (found.owner is None or not _is_dataset(found.owner, project)):
            return None
        few, count = _count(loop, store, project)
        if few or (of_module and count is None and not _from_folder(loop, store, project)):
            return None
        return Kept(opening, found.words, store, per_item=False, objects=objects, count=count, name=found.name, owner=found.owner)
    if scope.parent is None or scope.name in {"__init__", "__setstate__"} or not isinstance(store.node, cst.Subscript | cst.Call):
        return None
    if opening.kind in {Opens.IMAGE, Opens.VIDEO}:
        return None  # a cache of images or frames, not of files
    if not readers(project, module, scope) or _is_bounded(store, found, project) or _few_keys(store):
        return None
    return Kept(opening, found.words, store, per_item=True, objects=objects, count=None, name=found.name, owner=found.owner)


def _is_dataset(cls: ClassRef, project: Project) -> bool:
    """Whether samples are read from it: also where a library calls its own method for them, as torch_geometric does."""
    line = evaluator_of(project).lineage(cls)
    return datasets_of(project).is_dataset(cls) or any(isinstance(base, External) and base.name.endswith("Dataset") for base in line)


# -- the container -------------------------------------------------------------------------------------------------------


class _Holder(Struct, frozen=True):
    """What a container hangs on: an attribute of a class, or a name of the module where there is no ``owner``."""

    name: str
    words: str
    owner: ClassRef | None


def _container(store: Store) -> cst.BaseExpression | None:
    """The list or dictionary that gets the file: the base of a subscript or of ``append``, or the comprehension itself."""
    node = store.node
    if isinstance(node, cst.Call):
        return node.func.value if isinstance(node.func, cst.Attribute) else node
    if isinstance(node, cst.Subscript):
        return node.value
    return node if isinstance(node, cst.BaseComp | cst.BaseExpression) and isinstance(node, _COMPREHENSIONS) else None


def _lasting(base: cst.BaseExpression, store: Store, project: Project) -> _Holder | None:
    """What the container is, or becomes; ``None`` where it goes with the function."""
    module, scope = store.module, store.scope
    if isinstance(base, cst.Call | cst.GeneratorExp | cst.ListComp | cst.DictComp | cst.SetComp):
        return _made(base, module, scope, project)
    while isinstance(base, cst.Subscript):
        base = base.value
    direct = _attribute(base, module, scope)
    if direct is not None or not isinstance(base, cst.Name):
        return direct
    local = scope.is_function and scope.sets(base.value) and base.value not in scope.outer
    if not local:
        bound = any(p.name.value == base.value for p in names.parameters(scope))
        return None if bound else _Holder(base.value, f"`{base.value}`", None)
    this = names.self_name(scope)
    for effect in scope.effects.get(this or "", ()):
        if effect.kind == "assign" and len(effect.path) == 1 and isinstance(effect.value, cst.Name) and effect.value.value == base.value:
            return _attribute(effect.node, module, scope)
    if any(isinstance(one.value, cst.Name) and one.value.value == base.value for one in scope.returns):
        return _of_callers(module, scope, project)
    return None


def _made(node: cst.BaseExpression, module: Module, scope: Scope, project: Project) -> _Holder | None:
    """Where a container that one expression makes is put."""
    walk = module.walk
    above = walk.parents.get(node)
    lazily = isinstance(node, cst.GeneratorExp | cst.Call)
    while isinstance(above, cst.Arg):
        call = walk.parents.get(above)
        if not (isinstance(call, cst.Call) and names.last_name(call.func) in _LISTING):
            return None
        above, lazily = walk.parents.get(call), False
    if lazily:
        return None
    if isinstance(above, cst.Return):
        return _of_callers(module, scope, project)
    if not isinstance(above, cst.Assign) or len(above.targets) != 1:
        return None
    target = above.targets[0].target
    return _lasting(target, Store(module, scope, target, Grip.FILE), project) if isinstance(target, cst.Name | cst.Attribute | cst.Subscript) else None


def _attribute(node: cst.CSTNode, module: Module, scope: Scope) -> _Holder | None:
    while isinstance(node, cst.Subscript):
        node = node.value
    this = names.self_name(scope)
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == this and scope.parent is not None:
        return _Holder(node.attr.value, f"`{module.code(node)}`", ClassRef(module, scope.parent))
    return None


def _of_callers(module: Module, scope: Scope, project: Project) -> _Holder | None:
    """The attribute that a caller of the function puts its result into."""
    for site in evaluator_of(project).calls.sites(module, scope, most=6):
        above = site.module.walk.parents.get(site.call)
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            found = _attribute(above.targets[0].target, site.module, site.scope)
            if found is not None:
                return found
    return None


def _is_bounded(store: Store, holder: _Holder, project: Project) -> bool:
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
    return bounded or any(_limits(alt.value) for alt in found)


def _limits(value: Value) -> bool:
    """Whether it is an object, such as an LRU cache, that decides itself what it keeps."""
    return isinstance(value, Instance) or (isinstance(value, ExternalCall) and value.name.rpartition(".")[2] not in {*_LISTING, "defaultdict"})


def _effect(store: Store) -> Effect | None:
    for effects in store.scope.effects.values():
        for effect in effects:
            if effect.node is store.node or effect.call is store.node:
                return effect
    return None


def _few_keys(store: Store) -> bool:
    """Whether the key says that there are a handful."""
    return isinstance(store.node, cst.Subscript) and _FEW.search(store.module.code(store.node.slice[0])) is not None


def _closes(scope: Scope) -> bool:
    """Whether the function, or an exit stack in it, closes files."""
    return any(names.last_name(call.func) in {"close", "enter_context", "ExitStack", "closing"} for call in scope.calls)


# -- how many ------------------------------------------------------------------------------------------------------------


def _loop(store: Store) -> tuple[cst.BaseExpression, cst.CSTNode] | None:
    """What the innermost loop that stores in each round goes through, and its target."""
    if isinstance(store.node, _COMPREHENSIONS):
        return store.node.for_in.iter, store.node.for_in.target
    if isinstance(store.node, cst.Call) and names.last_name(store.node.func) == "map":
        return store.node.args[1].value, store.node.args[0].value
    for here in store.module.walk.ancestors(store.node):
        if here is store.scope.node:
            return None
        if isinstance(here, cst.For):
            return here.iter, here.target
    return None


def _count(loop: tuple[cst.BaseExpression, cst.CSTNode], store: Store, project: Project) -> tuple[bool, int | None]:
    """Whether the loop has few rounds, and how many they are where that is known."""
    frame = evaluator_of(project).calls.plain_frame(store.module, store.scope)
    count = datasets_of(project).contents.count(loop[0], frame)
    if count is not None:
        return count <= MANY, count
    written = f"{store.module.code(loop[0])} {store.module.code(loop[1])}"
    return _FEW.search(written) is not None or any(isinstance(a.value, Const) for a in evaluator_of(project).values(loop[0], frame)), None


def _from_folder(loop: tuple[cst.BaseExpression, cst.CSTNode], store: Store, project: Project) -> bool:
    """Whether the loop goes through the files of a folder."""
    if any(isinstance(node, cst.Call) and names.last_name(node.func) in _MANY_CALLS for node in descend(loop[0])):
        return True
    frame = evaluator_of(project).calls.plain_frame(store.module, store.scope)
    return datasets_of(project).contents.of(loop[0], frame).kind is Kind.PATHS
