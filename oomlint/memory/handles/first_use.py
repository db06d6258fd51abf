"""The main process makes the first use of a handle that is meant for the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import READS_SAMPLES
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.lazy_open import closes
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, FunctionRef, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.datasets.dataset_readers import DatasetReader
    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


class FirstUse(Struct, frozen=True):
    """A first use outside the workers: in words, and where it is."""

    words: str
    places: tuple[Place, ...]


def touched(handle: Handle, project: Project) -> FirstUse | None:
    """The first use that the main process is seen to make; ``None`` where it makes none, or where samples are read without the handle."""
    same = [one.scope for one in handles_in(handle, project)]
    if not any(scope.name in READS_SAMPLES for scope in _opening_methods(handle, project, same)):
        return None
    opening = _opening_methods(handle, project, [handle.scope])
    ending = _ending_methods(handle, opening)
    opening = [scope for scope in opening if scope not in ending]
    made = _while_it_is_made(handle, project, opening, ending)
    if made is not None:
        return made
    for reading in sorted(handle.readers.busy, key=lambda one: one.helped is None):
        found = _near_the_loader(handle, project, reading, opening, ending)
        if found is not None:
            return found
    length = next((scope for scope in opening if scope.name == "__len__"), None)
    if length is not None and not any(s.name == "__iter__" for s in opening):
        return FirstUse("`__len__`", (handle.module.place(length.node, "opens it"),) if length in handle.module.walk.scopes else ())
    return None


def handles_in(handle: Handle, project: Project) -> list[Handle]:
    """Openings for the same attribute of the same class, in the same file."""
    found = handles_of(project).of(handle.opening.module)
    return [one for one in found if one.owner == handle.owner and one.attribute == handle.attribute]


def _opening_methods(handle: Handle, project: Project, start: list[Scope]) -> list[Scope]:
    """Methods that open it, by themselves or through others."""
    evaluator = evaluator_of(project)
    lines = [evaluator.lineage(cls) for cls in _classes(handle)]
    methods = [scope for line in lines for cls in line if isinstance(cls, ClassRef) for scope in cls.scope.children if names.is_method(scope)]
    found = dict.fromkeys(start)
    grown = True
    while grown:
        grown = False
        uses = _Uses(list(found))
        for scope in methods:
            if scope not in found and next(uses.of_self(scope), None) is not None:
                found[scope] = None
                grown = True
    return list(found)


def _ending_methods(handle: Handle, opening: list[Scope]) -> set[Scope]:
    """Methods that close the handle and forget it, by themselves or through others, after they may have opened it."""
    found: set[Scope] = set()
    uses = _Uses(opening)
    every = [scope for cls in dict.fromkeys(s.parent for s in opening if s.parent is not None) for scope in cls.children if names.is_method(scope)]
    span = handle.module.tree.span
    for _ in range(3):
        for scope in every:
            if scope in found or scope.name in {"__init__", "__del__"} or scope not in handle.module.walk.scopes:
                continue
            this = names.self_name(scope) or ""
            ends: list[cst.CSTNode] = [
                e.statement for e in scope.effects.get(this, ()) if e.path == (("attr", handle.attribute),) and _is_empty(e.value, e.kind)
            ]
            ends += [
                c for c in scope.calls if isinstance(c.func, cst.Attribute) and _is_name(c.func.value, this) and c.func.attr.value in {s.name for s in found}
            ]
            starts = [span(node)[:2] for node in uses.of_self(scope)]
            if scope is handle.scope and handle.effect is not None:
                starts.append(span(handle.effect.statement)[:2])
            if ends and (not starts or max(span(node)[:2] for node in ends) > min(starts)):
                found.add(scope)
    return found


def _is_empty(value: cst.BaseExpression | None, kind: str) -> bool:
    return kind == "delete" or (kind == "assign" and isinstance(value, cst.Name) and value.value == "None")


class _Uses:
    """Where these methods of an object are called, and those that are properties are read."""

    def __init__(self, methods: list[Scope]) -> None:
        self.read = {scope.name for scope in methods if names.is_property(scope)}
        self.called = {scope.name for scope in methods} - self.read

    def of_self(self, scope: Scope) -> Iterator[cst.CSTNode]:
        """In a method, on its own object."""
        this = names.self_name(scope)
        for call in scope.calls:
            func = call.func
            if isinstance(func, cst.Attribute):
                if _is_name(func.value, this) and func.attr.value in self.called:
                    yield call
            elif isinstance(func, cst.Name) and func.value == "len" and "__len__" in self.called and len(call.args) == 1 and _is_name(call.args[0].value, this):
                yield call
        for node in scope.nodes():
            read = isinstance(node, cst.Attribute) and node.attr.value in self.read and _is_name(node.value, this)
            if read or (isinstance(node, cst.Subscript) and "__getitem__" in self.called and _is_name(node.value, this)):
                yield node

    def of_others(self, module: Module, scope: Scope) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
        """In any function, on whatever it has: the node, the object, the words for it."""
        iterated = bool(self.called & {"__getitem__", "__iter__"})
        for node in scope.nodes(inner=False):
            if isinstance(node, cst.Subscript) and "__getitem__" in self.called and isinstance(node.value, cst.Name | cst.Attribute):
                if not isinstance(module.walk.parents.get(node), cst.AssignTarget):
                    yield node, node.value, module.code(node)
            elif isinstance(node, cst.Attribute) and node.attr.value in self.read:
                yield node, node.value, module.code(node)
            elif isinstance(node, cst.For) and iterated and isinstance(node.iter, cst.Name | cst.Attribute):
                yield node.iter, node.iter, f"for ... in {module.code(node.iter)}"
            elif isinstance(node, cst.Call) and node.args and isinstance(node.func, cst.Name):
                first = node.args[0].value
                if (node.func.value == "len" and "__len__" in self.called) or (node.func.value in {"iter", "enumerate", "list"} and iterated):
                    yield node, first, module.code(node)
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in self.called:
                yield node, node.func.value, module.code(node)


def _classes(handle: Handle) -> list[ClassRef]:
    """The class that keeps it, and those that derive from it whose objects a loader reads."""
    return list(dict.fromkeys((handle.owner, *(one.instance.cls for one in handle.readers.busy))))


def _is_name(node: cst.CSTNode, name: str | None) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _while_it_is_made(handle: Handle, project: Project, opening: list[Scope], ending: set[Scope]) -> FirstUse | None:
    """A use in ``__init__``, or in what it calls, after which the object keeps the handle."""
    uses = _Uses(opening)
    for cls in _classes(handle):
        made: FirstUse | None = None
        for frame in datasets_of(project).building_frames(Instance(cls, None)):
            scope, module = frame.scope, frame.module
            this = names.self_name(scope)
            if scope.name != "__init__" or this is None:
                continue
            last = max(uses.of_self(scope), key=lambda node: module.tree.span(node)[:2], default=None)
            if _let_go(handle, module, scope, last or scope.node, this, ending) or closes(module, scope, handle.attribute):
                return None
            if last is not None:
                made = made or FirstUse("`__init__`", (module.place(last, "used here when the object is made"),))
        if made is not None:
            return made
    return None


# -- around the loader -----------------------------------------------------------------------------------------------


def _near_the_loader(handle: Handle, project: Project, reading: DatasetReader, opening: list[Scope], ending: set[Scope]) -> FirstUse | None:
    """A use of the very object that a loader reads, in the function that makes the one or the other, before the loader itself is used."""
    loader, made = reading.loader, reading.instance
    evaluator = evaluator_of(project)
    scopes = [(loader.module, loader.scope)]
    if made.at is not None and made.at.scope is not loader.scope:
        scopes.append((made.at.module, made.at.scope))
    for module, scope in scopes:
        if scope.is_class or (scope.parent is not None and scope.parent.is_class and scope.parent is handle.owner.scope):
            continue
        stop = _first_use(module, scope, loader.call) if module is loader.module and scope is loader.scope else None
        frame = evaluator.calls.plain_frame(module, scope)
        for node, base, words in (*_Uses(opening).of_others(module, scope), *_handed_on(module, scope, opening, project)):
            if stop is not None and module.tree.span(node)[:2] >= stop:
                continue
            values = [alt.value for alt in evaluator.values(base, frame)]
            the_one = any(isinstance(value, Instance) and value.cls == made.cls and value.call is made.call for value in values)
            if the_one and not _let_go(handle, module, scope, node, module.code(base), ending):
                return FirstUse(f"`{words}`", (module.place(node, "used here, before the workers start"),))
    return None


def _handed_on(module: Module, scope: Scope, opening: list[Scope], project: Project) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, str]]:
    """Calls of functions of the project that use what they are given."""
    evaluator, uses = evaluator_of(project), _Uses(opening)
    frame = evaluator.calls.plain_frame(module, scope)
    for call in scope.calls:
        for arg in call.args:
            if arg.star or not isinstance(arg.value, cst.Name | cst.Attribute):
                continue
            for alt in evaluator.values(call.func, frame)[:2]:
                function = alt.value
                if not isinstance(function, FunctionRef) or function.this is not None or _makes_loader(function.scope):
                    continue
                name = arguments.parameter_of(function, call, arg)
                if name is not None and any(_is_name(base, name) for _, base, _ in uses.of_others(function.module, function.scope)):
                    yield call, arg.value, module.code(call)


def _makes_loader(scope: Scope) -> bool:
    return any(names.last_name(call.func).endswith("Loader") for call in scope.calls)


def _let_go(handle: Handle, module: Module, scope: Scope, node: cst.CSTNode, said: str, ending: set[Scope]) -> bool:
    """Whether the function makes the object forget the handle after that use: by a method that does, or by setting the attribute."""
    after = module.tree.span(node)[:2] if node is scope.node else module.tree.span(node)[2:]
    methods = {one.name for one in ending}
    for call in scope.calls:
        func = call.func
        if isinstance(func, cst.Attribute) and func.attr.value in methods and module.code(func.value) == said and module.tree.span(call)[:2] >= after:
            return True
    if node is scope.node:
        return False  # nothing was used that could be forgotten
    later = (e for e in scope.effects.get(said, ()) if module.tree.span(e.statement)[:2] >= after)
    return any(e.path == (("attr", handle.attribute),) and _is_empty(e.value, e.kind) for e in later)


def _first_use(module: Module, scope: Scope, call: cst.Call) -> tuple[int, int] | None:
    """Where a loader is first handed on or looped over: at once, where it has no name."""
    bound = {name for name, path in module.walk.bound_to(call) if not path}
    made = module.tree.span(call)[2:]
    if not bound:
        return made
    later = [
        module.tree.span(node)[:2]
        for node in scope.nodes(inner=False)
        if isinstance(node, cst.Name) and node.value in bound and module.tree.span(node)[:2] > made
    ]
    return min(later, default=None)
