"""Caches that reading samples fills and nothing empties: where they are, what they keep, how many processes have one."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.finding import DatasetFact, StoreFact, StoreKind
from oomlint.memory.buffers.cached_payload import Heavy, heavy
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import SampleReader, readers
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import arguments, names
from oomlint.model.lifetime import How, endings, is_first_only, length_tests, runs_once, says_first
from oomlint.model.reach import path_conditions
from oomlint.model.values import Bound, ClassRef, Const, Display, External, ExternalCall, FunctionRef, Instance
from oomlint.scout.forms import FILLERS
from oomlint.syntax.nodes import UNKNOWN_KEY, descend, orders
from oomlint.syntax.scopes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Fact
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.lifetime import Path
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Effect, Scope

_DICTS = frozenset({"builtins.dict", "collections.OrderedDict", "collections.defaultdict"})
_PROCESS = re.compile(r"getpid|worker_id|get_worker_info|\bpid\b|get_ident|device|rank", re.IGNORECASE)
_SMALL = frozenset({PayloadKind.SCALAR, PayloadKind.TEXT, PayloadKind.PATHS, PayloadKind.SMALL, PayloadKind.HANDLE, PayloadKind.H5})
_NO_LIMIT = 10_000  # what a file was decoded into, so many times, is most of a dataset
_PLACEHOLDERS = ("[None]", "[[]]", "[()]", "[{}]")


class SampleCache(Struct, frozen=True, eq=False):
    """Something that keeps what each sample needs, without an end."""

    place: cst.CSTNode
    words: str  # how it is called in a message
    what: Heavy
    made: tuple[Module, cst.CSTNode] | None
    readers: tuple[SampleReader, ...]
    doubt: int
    module: Module  # of ``place``
    name: str  # what keeps it, as it is written
    whole: bool = False  # it keeps one thing: all of a file
    each: bool = False  # each of the objects that a dataset holds keeps what it reads
    adds: bool = False  # it is a list that gets longer
    limit: int = 0  # how many it keeps at most, where that bounds nothing


def facts_of(cache: SampleCache) -> tuple[Fact, ...]:
    """The store, the datasets whose samples fill it, and their loaders."""
    found: list[Fact] = [StoreFact(cache.module.place(cache.place), cache.name, StoreKind.ITEM)]
    for one in cache.readers:
        found.append(DatasetFact(one.module.place(one.scope.node), one.scope.qualname))
        found += [loader_fact(one.loader, one.workers)] if one.loader is not None else []
    return tuple(dict.fromkeys(found))


def caches(module: Module, project: Project) -> Iterator[SampleCache]:
    """Unbounded caches that a module fills while samples are read."""
    for scope in module.walk.scopes:
        if isinstance(scope.node, cst.FunctionDef) and scope.name not in FILLERS:
            yield from _stores(module, project, scope)


# -- dictionaries and lists -----------------------------------------------------------------------------------------------


def _stores(module: Module, project: Project, scope: Scope) -> Iterator[SampleCache]:
    seen: set[tuple[object, ...]] = set()
    for root, effects in list(scope.effects.items()):
        for effect in effects:
            holder = _holder(effect, scope, root)
            if holder is None and ("", root) not in seen and (handed := _handed(module, project, scope, effect)) is not None:
                seen.add(("", root))
                yield handed
            if holder is None or (root, holder) in seen:
                continue
            found = _store(module, project, scope, effect, holder)
            if found is not None:
                seen.add((root, holder))
                yield found


def _holder(effect: Effect, scope: Scope, root: str) -> str | None:
    """The attribute that an effect fills; empty for a global name."""
    if effect.value is None:
        return None
    setting = effect.kind == "assign" and effect.path[-1:] == (("item", UNKNOWN_KEY),) and isinstance(effect.node, cst.Subscript)
    calling = effect.kind == "setdefault" and effect.call is not None and len(effect.call.args) > 1
    if setting and isinstance(effect.node, cst.Subscript) and not isinstance(effect.node.slice[0].slice, cst.Index):
        return None
    adding = effect.kind == "append" and effect.call is not None
    if not setting and not calling and not adding:
        return None
    path = effect.path if setting else (*effect.path, ("item", UNKNOWN_KEY))
    if path[0][0] == "attr" and all(kind == "item" for kind, _ in path[1:]):
        return str(path[0][1])
    bound_here = any(not e.path and e.kind not in CHANGES for e in scope.effects.get(root, ())) or root in names.takes(scope)
    return "" if all(kind == "item" for kind, _ in path) and (not bound_here or root in scope.outer) else None


def _store(module: Module, project: Project, scope: Scope, effect: Effect, holder: str) -> SampleCache | None:
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    adds = effect.kind == "append"
    made = _container(effect, holder, frame, evaluator, empty=adds)
    if made is None or effect.value is None or by_process(effect, module) or bounded_here(effect, module, scope, evaluator):
        return None
    owner = _owner(effect, frame, evaluator)
    if holder and (owner is None or bounded_in(owner, holder, evaluator)):
        return None
    if not holder and bounded_global(effect.root, module, evaluator):
        return None
    value = _stored(effect)
    what = (heavy(value, frame, project) if value is not None else None) or _sample(effect, module, scope, project)
    if what is None:
        return None
    found = readers(project, module, scope)
    if not found or not _reachable(effect, module, scope, evaluator):
        return None
    words = module.code(_base(effect)).strip()
    doubt = what.doubt + _by_flag(effect, module, scope)
    limit = max((_lets_in(test, module, evaluator) for test in _size_tests(effect, module, scope) if _measures(test, words, module)), default=0)
    return SampleCache(_place(effect), f"`{words}`", what, made, tuple(found), doubt, module, words, adds=adds, limit=limit)


def _handed(module: Module, project: Project, scope: Scope, effect: Effect) -> SampleCache | None:
    """A method that fills what it is handed, where that is an attribute of the object: ``self.load(path, self.cache)``."""
    filled = effect.kind == "assign" and effect.path == (("item", UNKNOWN_KEY),) and isinstance(effect.node, cst.Subscript)
    if not filled or effect.value is None or not names.is_method(scope) or all(p.name.value != effect.root for p in names.parameters(scope)):
        return None
    evaluator = evaluator_of(project)
    if by_process(effect, module) or bounded_here(effect, module, scope, evaluator):
        return None
    for site in evaluator.calls.sites(module, scope, most=4):
        frame = evaluator.calls.plain_frame(site.module, site.scope)
        given = arguments.given_to(scope, effect.root, (Bound(site.args, frame, site.call),))
        node, this = given.node.value if given is not None else None, names.self_name(site.scope)
        if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name) or node.value.value != this or frame.this is None:
            continue
        attribute = node.attr.value
        made = _made([alt.value for alt in evaluator.resolve(this, (("attr", attribute),), frame, None)])
        if made is None or bounded_in(frame.this.cls, attribute, evaluator):
            continue
        what = heavy(effect.value, evaluator.calls.plain_frame(module, scope), project)
        found = readers(project, module, scope) if what is not None else []
        if what is not None and found and not all(one.without_workers for one in found):
            return SampleCache(_place(effect), f"`{this}.{attribute}`", what, made, tuple(found), what.doubt, module, f"{this}.{attribute}")
    return None


def _stored(effect: Effect) -> cst.BaseExpression | None:
    """The value itself: of ``a[i], b[i] = x, y`` the part that belongs to the target."""
    if not effect.index:
        return effect.value
    if len(effect.index) == 1 and isinstance(effect.value, cst.Tuple | cst.List) and 0 <= effect.index[0] < len(effect.value.elements):
        return effect.value.elements[effect.index[0]].value
    return None


def _by_flag(effect: Effect, module: Module, scope: Scope) -> bool:
    """Whether an option says if there is a cache at all."""
    tests = [test for test, wanted in path_conditions(module.walk, scope, effect.statement) if wanted]
    return any(isinstance(node, cst.Name | cst.Attribute) for test in tests for node in _operands(test))


def _operands(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(test, cst.BooleanOperation):
        yield from _operands(test.left)
        yield from _operands(test.right)
    else:
        yield test


def _base(effect: Effect) -> cst.CSTNode:
    if effect.call is not None and isinstance(effect.call.func, cst.Attribute):
        return effect.call.func.value
    return effect.node.value if isinstance(effect.node, cst.Subscript) else effect.node


def _place(effect: Effect) -> cst.CSTNode:
    if effect.call is not None:
        return effect.call
    return effect.statement


def _container(effect: Effect, holder: str, frame: Frame, evaluator: Evaluator, *, empty: bool) -> tuple[Module, cst.CSTNode] | None:
    """Where the dictionary, the list of placeholders, or an ``empty`` list is made; ``None`` for anything else."""
    found: list[Value] = []
    if holder:
        found = [a.value for a in evaluator.resolve(effect.root, (("attr", holder),), frame, effect.statement)]
    else:
        found = [a.value for a in evaluator.resolve(effect.root, (), evaluator.module_frame(frame.module), None)]
    if empty:
        lists = (value for value in found if isinstance(value, Display) and isinstance(value.node, cst.List) and not value.node.elements)
        return next(((value.frame.module, value.node) for value in lists), None)
    return _made(found)


def _made(found: Iterable[Value]) -> tuple[Module, cst.CSTNode] | None:
    """The dictionary, or the list of placeholders, among some values."""
    for value in found:
        if isinstance(value, Display) and isinstance(value.node, cst.Dict) and not value.node.elements:
            return value.frame.module, value.node
        if isinstance(value, Display) and isinstance(value.node, cst.ListComp) and _is_placeholder(value.node.elt):
            return value.frame.module, value.node
        if isinstance(value, ExternalCall) and value.name in _DICTS and not any(_is_filled(a) for a in value.call.args):
            return value.frame.module, value.call
        node = getattr(value, "node", None)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply) and value.frame is not None:  # type: ignore[attr-defined]
            where: Frame = value.frame  # type: ignore[attr-defined]
            if where.module.code(node.left).strip() in _PLACEHOLDERS:
                return where.module, node
    return None


def _is_placeholder(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Name):
        return node.value == "None"
    return isinstance(node, cst.List | cst.Tuple | cst.Dict) and not node.elements


def _is_filled(arg: cst.Arg) -> bool:
    return not isinstance(arg.value, cst.Name)  # `defaultdict(list)` starts empty


def _owner(effect: Effect, frame: Frame, evaluator: Evaluator) -> ClassRef | None:
    """The class whose objects, or which itself, the cache hangs on."""
    if frame.this is not None and effect.root == names.self_name(frame.scope):
        return frame.this.cls
    for alt in evaluator.resolve(effect.root, (), frame, effect.statement):
        if isinstance(alt.value, ClassRef):
            return alt.value
    return None


def by_process(effect: Effect, module: Module) -> bool:
    """Whether the key says the process, of which there are few."""
    return isinstance(effect.node, cst.Subscript) and _PROCESS.search(module.code(effect.node.slice[0])) is not None


# -- bounds ----------------------------------------------------------------------------------------------------------------


def bounded_here(effect: Effect, module: Module, scope: Scope, evaluator: Evaluator) -> bool:
    """Whether a test of a size decides if the thing is kept."""
    held = module.code(_base(effect)).strip()
    return any(not _measures(test, held, module) or not _lets_in(test, module, evaluator) for test in _size_tests(effect, module, scope))


def _size_tests(effect: Effect, module: Module, scope: Scope) -> Iterator[cst.Comparison]:
    """Tests on the way to a statement that compare something with more than nothing: a size, a number of the round, the memory that is left."""
    for test, _ in path_conditions(module.walk, scope, effect.statement):
        for node in descend(test):
            if orders(node) and not says_first(node, (effect.root, effect.path), module):
                yield node


def _measures(test: cst.Comparison, held: str, module: Module) -> bool:
    """Whether a test compares the length of what is ``held``."""
    sides = (test.left, *(one.comparator for one in test.comparisons))
    return any(module.code(side).replace(" ", "") == f"len({held})" for side in sides)


def _lets_in(test: cst.Comparison, module: Module, evaluator: Evaluator) -> int:
    """The limit of a test of a length that lets in so many that it bounds nothing; zero for any other."""
    sides = (test.left, *(one.comparator for one in test.comparisons))
    frames = evaluator.calls.frames(module, module.walk.scope_at(test), most=4)
    for side in sides:
        found = [alt.value for frame in frames for alt in evaluator.values(side, frame)]
        limits = [value.value for value in found if isinstance(value, Const) and isinstance(value.value, int)]
        if limits and len(limits) == len(found) and min(limits) >= _NO_LIMIT:
            return min(limits)
    return 0


def bounded_in(owner: ClassRef, attribute: str, evaluator: Evaluator) -> bool:
    """Whether a method of the class, its bases or the classes derived from it takes something out, measures it, starts again or fills it at the start."""
    return any(True for _ in _emptying(owner, attribute, evaluator))


def emptied_by_round(owner: ClassRef, attribute: str, module: Module, node: cst.CSTNode, evaluator: Evaluator) -> bool:
    """Whether a loop around ``node`` calls a method of the object that empties the attribute: what one round put there is gone in the next."""
    loops = [here for here in module.walk.ancestors(node) if isinstance(here, cst.For | cst.While)]
    if not loops:
        return False
    methods = {method.name: method for method in _emptying(owner, attribute, evaluator)}
    frame = evaluator.calls.plain_frame(module, module.walk.scope_at(node))
    for call in descend(loops[-1].body):
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and (method := methods.get(call.func.attr.value)) is not None:
            found = evaluator.values(call.func, frame)[:3]
            if any(isinstance(alt.value, FunctionRef) and alt.value.scope is method for alt in found):
                return True
    return False


def _emptying(owner: ClassRef, attribute: str, evaluator: Evaluator) -> Iterator[Scope]:
    """Methods of the class, its bases and the classes derived from it that empty an attribute."""
    for cls in evaluator.line(owner):
        for method in cls.scope.children:
            this = names.self_name(method)
            if this is not None:
                building = runs_once(method, cls, evaluator.project)
                if _empties((this, (("attr", attribute),)), cls.module, method, evaluator, building=building) and _called(cls, method, evaluator):
                    yield method


def _called(cls: ClassRef, method: Scope, evaluator: Evaluator) -> bool:
    """Whether somebody may call a method. A class that derives from nothing, whose method nobody of the project names, has it for others."""
    if method.name.startswith("_") or any(isinstance(base, External) and base.name != "builtins.object" for base in evaluator.lineage(cls)):
        return True  # a framework may
    stem = PurePath(cls.module.path).stem
    for module in evaluator.project.callers(method.name, cls.module.path, cls.scope.name):
        speaks = module is cls.module or cls.scope.name in module.source.text or stem in module.source.text
        for node in descend(module.root.node) if speaks else ():
            if isinstance(node, cst.Attribute) and node.attr.value == method.name and not names.within(node, method.node, module):
                frame = evaluator.calls.plain_frame(module, module.walk.scope_at(node))
                found = evaluator.values(node.value, frame)
                if not found or any(not isinstance(alt.value, Display | ExternalCall | Const) and not _is_another(alt.value, cls) for alt in found):
                    return True
    return False


def _is_another(value: Value, cls: ClassRef) -> bool:
    """Whether it is an object of a class that has nothing to do with the one."""
    return isinstance(value, Instance) and value.cls.scope is not cls.scope


def bounded_global(name: str, module: Module, evaluator: Evaluator) -> bool:
    """Whether code of the module takes something out of its container, measures it, starts it again or fills it at the start."""
    return any(_empties((name, ()), module, scope, evaluator, building=scope is module.root) for scope in module.walk.scopes)


def _empties(path: Path, module: Module, scope: Scope, evaluator: Evaluator, *, building: bool) -> bool:
    """Whether code takes something out of a container, measures it, starts it again, or fills it at the start, so that what a sample adds is an exception."""
    root, accessors = path
    if building and any(e.kind == "assign" and len(e.path) > len(accessors) and e.path[: len(accessors)] == accessors for e in scope.effects.get(root, ())):
        return True
    for ending in endings(path, module, scope):
        anew = ending.how is How.BOUND and (building or is_first_only(ending, path, scope.node))
        if not anew and (ending.how is not How.PART or ending.value is None):  # a container for a key is what a sample adds
            return True
    return any(not _lets_in(test, module, evaluator) for test in length_tests(path, module, scope))


def _reachable(effect: Effect, module: Module, scope: Scope, evaluator: Evaluator) -> bool:
    """Whether some run gets there: the flag before it is not known to be off."""
    return any(evaluator.where(effect.statement, frame) for frame in evaluator.calls.frames(module, scope, most=8))


def _sample(effect: Effect, module: Module, scope: Scope, project: Project) -> Heavy | None:
    """The sample itself, where ``__getitem__`` keeps what it returns."""
    if scope.name != "__getitem__" or effect.index or not isinstance(effect.value, cst.Name | cst.Tuple | cst.Dict):
        return None
    if datasets_of(project).contents.of(effect.value, evaluator_of(project).calls.plain_frame(module, scope)).kind in _SMALL:
        return None
    end = scope.returns[-1].value if scope.returns else None
    if isinstance(effect.value, cst.Tuple) and isinstance(end, cst.Tuple) and len(effect.value.elements) != len(end.elements):
        return None  # a sample has other parts: what ends early says which one failed
    kept = module.code(effect.value).strip()
    stored = module.code(effect.node).strip()
    if any(r.value is not None and module.code(r.value).strip().strip("()") in {kept.strip("()"), stored} for r in scope.returns):
        return Heavy("the sample", 1)
    return None
