"""Handles: what stays open because an object of a class keeps it, which class that is, and whether a worker would get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.handles.lazy_open import asks_first, cached, closes, forgets, on_error
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, Display, Element, ExternalCall, Frame, Instance, SourceExpression
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.memory.datasets.dataset_readers import Readers
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative
    from oomlint.syntax.scopes import Effect, Scope

KEPT: Final = frozenset({Opens.H5, Opens.LMDB})
# Methods of a handle that give another object of it.
_PARTS: Final = frozenset("get require_group require_dataset begin cursor open_db get_node".split())
_SENDS_ITSELF: Final = ("__getstate__", "__reduce__", "__reduce_ex__", "__enter__")  # a context manager is closed by whoever opened it
_DEEPEST = 4
_MOST = 8


class Origin(Struct, frozen=True):
    """An opening call behind a value: the handle itself or an object of it, with how much has to be assumed."""

    call: cst.Call
    part: bool = False
    doubt: int = 0


class Handle(Struct, frozen=True, eq=False):
    """An opening whose result an object of a dataset's class keeps.

    ``dataset`` is the class that a loader reads, ``owner`` the one whose objects have the attribute: the same, or that of a helper object that the dataset
    keeps. ``others`` are further attributes with objects of the same file.
    """

    opening: Opening
    dataset: ClassRef
    owner: ClassRef
    attribute: str
    part: bool
    effect: Effect | None  # ``None``: a cached property
    module: Module  # where it is set
    scope: Scope  # the function that sets it
    at_first: bool  # whether making the object opens it, not its first use
    doubt: int
    readers: Readers
    others: tuple[str, ...] = ()
    alone: bool = True  # whether the owner keeps nothing else that is open
    objects: tuple[str, ...] = ()  # the attributes that hold objects of the file, not the file
    spared: bool = False  # whether the class says itself how it is pickled, or is a context manager

    @property
    def direct(self) -> bool:
        """Whether the class that opens it is the one that keeps it."""
        return self.owner == self.dataset


class _Set(Struct, frozen=True, eq=False):
    """One statement that puts a handle into an attribute."""

    name: str
    effect: Effect | None
    frame: Frame
    origin: Origin
    building: bool  # whether the object has it when it is made
    lazy: bool = False  # whether the statement asks first if it is there


class Handles:
    """Finds what keeps openings. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.openings = openings_of(project)
        self.readers = readers_of(project)
        self.datasets = datasets_of(project)
        self._memo: AnswerMemory[Module, tuple[Handle, ...]] = AnswerMemory(project.readings)
        self._sets: AnswerMemory[Instance, list[_Set]] = AnswerMemory(project.readings)

    def of(self, module: Module) -> tuple[Handle, ...]:
        """Openings of a module that the object of a dataset keeps: one for each, in the order of the text."""
        known = self._memo.get(module)
        if known is None:
            wanted = (o for o in self.openings.of(module) if o.kind in KEPT and not o.name.startswith("h5pickle."))
            known = self._memo[module] = tuple(h for o in wanted if (h := self._kept(o)) is not None)
        return known

    # -- whose attribute ------------------------------------------------------------------------------------------------

    def _kept(self, opening: Opening) -> Handle | None:
        if in_with(opening.module, opening.call):
            return None
        for made in self._candidates(opening)[:_MOST]:
            for dataset, owner in self._owners(made):
                found = [one for one in self._stored(owner) if one.origin.call is opening.call]
                if not found:
                    continue
                return self._handle(opening, dataset, owner, found)
        return None

    def _handle(self, opening: Opening, dataset: ClassRef, owner: Instance, found: list[_Set]) -> Handle:
        first = min(found, key=lambda one: (not one.building, one.origin.part))
        others = tuple(dict.fromkeys(one.name for one in found if one.name != first.name))
        alone = all(one.origin.call is opening.call for one in self._stored(owner))
        spared = any(self.evaluator.method(Instance(cls, None), name) is not None for cls in (dataset, owner.cls) for name in _SENDS_ITSELF)
        return Handle(
            opening, dataset, owner.cls, first.name, first.origin.part, first.effect, first.frame.module, first.frame.scope,
            first.building and not first.lazy, first.origin.doubt, self.readers.of(dataset), others, alone,
            tuple(dict.fromkeys(one.name for one in found if one.origin.part)), spared,
        )  # fmt: skip

    def _candidates(self, opening: Opening) -> list[Instance]:
        """Objects whose attributes the handle may end in: of the class around the call, around a call of the function that returns it, or that is given it."""
        found: list[Instance] = []
        queue: list[tuple[Module, Scope, int]] = [(opening.module, opening.scope, 0)]
        seen: set[Scope] = set()
        while queue:
            module, scope, depth = queue.pop(0)
            cls = _class_around(scope)
            if cls is not None:
                found.append(Instance(ClassRef(module, cls), None))
            if scope in seen:
                continue
            seen.add(scope)
            if cls is None:
                found.extend(self._given(module, scope, opening.call))
            if depth < _DEEPEST and scope.returns:
                queue.extend((site.module, site.scope, depth + 1) for site in self.evaluator.calls.sites(module, scope, most=_MOST))
        return list(dict.fromkeys(found))

    def _given(self, module: Module, scope: Scope, opening: cst.Call) -> Iterator[Instance]:
        """Objects that a scope makes and hands the handle."""
        frame = self.evaluator.calls.plain_frame(module, scope)
        for call in scope.calls:
            plain = [a.value for a in call.args if isinstance(a.value, cst.Name | cst.Subscript | cst.Attribute) or a.value is opening]
            if not plain or call is opening:
                continue
            made = [a.value for a in self.evaluator.values(call, frame)[:2] if isinstance(a.value, Instance)]
            if made and any(origin.call is opening for node in plain for origin in self.origins(self.evaluator.values(node, frame))):
                yield from made

    def _owners(self, made: Instance) -> Iterator[tuple[ClassRef, Instance]]:
        """Datasets that such an object is, is the base of, or is kept by."""
        if self.readers.is_dataset(made.cls):
            yield made.cls, made
            return
        derived = [cls for cls in self.evaluator.calls.subclasses(made.cls) if self.readers.is_dataset(cls)]
        for cls in derived[:_MOST]:
            yield cls, Instance(cls, None)
        if not derived:
            for one in self.evaluator.calls.instances(made.cls.module, made.cls.scope)[:_MOST]:
                around = _class_around(one.at.scope) if one.at is not None else None
                if around is None or one.at is None:
                    continue
                cls = ClassRef(one.at.module, around)
                if cls.scope is not made.cls.scope and self.readers.is_dataset(cls) and self._keeps(Instance(cls, None), made.cls):
                    yield cls, made

    def _keeps(self, owner: Instance, helper: ClassRef) -> bool:
        """Whether making the object puts one of the other class into an attribute."""
        for frame in self.datasets.building_frames(owner):
            for effect in frame.scope.effects.get(names.self_name(frame.scope) or "", ()):
                if effect.kind == "assign" and len(effect.path) == 1 and effect.value is not None and not effect.index:
                    values = [a.value for a in self.evaluator.values(effect.value, frame)[:4]]
                    if any(isinstance(value, Instance) and helper in self.evaluator.lineage(value.cls) for value in values):
                        return True
        return False

    # -- what its attributes hold ---------------------------------------------------------------------------------------

    def _stored(self, owner: Instance) -> list[_Set]:
        """Handles that are in an object's attributes when it is made, or from their first use on."""
        known = self._sets.get(owner)
        if known is None:
            known = []
            self._sets.assume(owner, known)
            building = self.datasets.building_frames(owner)
            scopes = {frame.scope for frame in building}
            for frame in building:
                for one in self._in(frame, building=True):
                    if not self._dropped(one, building):
                        known.append(one)
                    elif frame.scope.name != "__init__":
                        known.append(replace(one, building=False, lazy=True))
            for cls in self.evaluator.lineage(owner.cls):
                if isinstance(cls, ClassRef):
                    for scope in cls.scope.children:
                        if scope not in scopes and names.is_method(scope):
                            known.extend(self._in(Frame(cls.module, scope, None, owner), building=False))
            self._sets[owner] = known
        return known

    def _in(self, frame: Frame, *, building: bool) -> Iterator[_Set]:
        scope = frame.scope
        this = names.self_name(scope)
        if cached(scope):
            for statement in scope.returns:
                if statement.value is not None:
                    for origin in self.origins(self.evaluator.values(statement.value, frame)):
                        yield _Set(scope.name, None, frame, origin, building=False)
        if this is None:
            return
        for effect in scope.effects.get(this, ()):
            if effect.kind != "assign" or len(effect.path) != 1 or effect.path[0][0] != "attr" or effect.value is None:
                continue
            into = tuple(("item", i) for i in effect.index)
            found = self.evaluator.access(effect.value, into, frame) if into else self.evaluator.values(effect.value, frame)
            name = str(effect.path[0][1])
            for origin in self.origins(found):
                lazy = asks_first(frame.module, scope, effect.statement, name)
                yield _Set(name, effect, frame, origin, building, lazy)

    def _dropped(self, one: _Set, building: list[Frame]) -> bool:
        """Whether the object does not have it any more when ``__init__`` is over."""
        if any(closes(frame.module, frame.scope, name) for frame in building for name in self._files(one)):
            return True
        scope, this = one.frame.scope, names.self_name(one.frame.scope)
        if one.effect is None or this is None:
            return False
        if isinstance(one.effect.value, cst.Name | cst.Subscript) and self._closed_local(one):
            return True
        last = self.evaluator.resolve(this, (("attr", one.name),), one.frame, None)
        if not any(origin.call is one.origin.call for origin in self.origins(last)):
            return True
        return any(
            forgets(frame.module, frame.scope, scope.name, one.name)
            for frame in building
            if frame.scope is not scope and names.self_name(frame.scope) is not None
        )

    def _files(self, one: _Set) -> set[str]:
        """The attribute, and those through which its function got at the object: closing the file ends them all."""
        names_of = {one.name}
        if one.effect is not None and one.effect.value is not None:
            this = names.self_name(one.frame.scope)
            for node in descend(one.effect.value):
                if is_attribute_of(node, this):
                    names_of.add(node.attr.value)
        return names_of

    def _closed_local(self, one: _Set) -> bool:
        """Whether the local file whose object goes to the attribute is closed in the same function."""
        for call in one.frame.scope.calls:
            func = call.func
            if not isinstance(func, cst.Attribute) or func.attr.value != "close" or not isinstance(func.value, cst.Name):
                continue
            closed = self.origins(self.evaluator.values(func.value, one.frame))
            if any(origin.call is one.origin.call and not origin.part for origin in closed) and not on_error(one.frame.module, call):
                return True
        return False

    # -- where a value was opened ---------------------------------------------------------------------------------------

    def origins(self, found: Iterable[Alternative], depth: int = 0) -> list[Origin]:
        """The opening calls whose handle, or an object of it, is in one of these values."""
        out: dict[cst.Call, Origin] = {}
        for alt in found:
            for origin in self._origin(alt, depth):
                out.setdefault(origin.call, Origin(origin.call, origin.part, origin.doubt + alt.doubt + (1 if alt.reach else 0)))
        return list(out.values())

    def _origin(self, alt: Alternative, depth: int) -> list[Origin]:
        value = alt.value
        if isinstance(value, ExternalCall):
            opening = self.openings.at(value.frame.module, value.call)
            known = opening is not None and opening.kind in KEPT and not in_with(opening.module, opening.call)
            return [Origin(value.call)] if known else []
        if isinstance(value, Element):
            opening = self.openings.at(value.whole.frame.module, value.whole.call)
            if opening is None or opening.kind not in KEPT or in_with(opening.module, opening.call):
                return []
            if opening.kind is Opens.H5 and self.datasets.contents.libraries.element(value).kind is not PayloadKind.H5:
                return []
            return [Origin(value.whole.call, part=True)] if opening.kind is Opens.H5 else []
        if isinstance(value, SourceExpression) and isinstance(value.node, cst.Call) and depth < _DEEPEST:
            func = value.node.func
            if isinstance(func, cst.Attribute) and func.attr.value in _PARTS:
                inner = self.origins(self.evaluator.values(func.value, value.frame), depth + 1)
                return [Origin(one.call, part=True, doubt=one.doubt) for one in inner]
        if isinstance(value, Display) and depth < _DEEPEST:
            return [o for node in _elements(value.node) for o in self.origins(self.evaluator.values(node, value.frame), depth + 1)]
        return []


def _elements(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a list, tuple or dictionary holds that is written element by element."""
    if isinstance(node, cst.List | cst.Tuple | cst.Set):
        return [e.value for e in node.elements if isinstance(e, cst.Element)][:_MOST]
    if isinstance(node, cst.Dict):
        return [e.value for e in node.elements if isinstance(e, cst.DictElement)][:_MOST]
    return []


def _class_around(scope: Scope | None) -> Scope | None:
    while scope is not None and not scope.is_class:
        scope = scope.parent
    return scope


def in_with(module: Module, call: cst.Call) -> bool:
    """Whether a ``with`` statement closes what the call opens."""
    holder = module.walk.parents.get(call)
    while isinstance(holder, cst.Arg | cst.Call):  # closing(...), enter_context(...)
        if isinstance(holder, cst.Call) and names.last_name(holder.func) not in {"closing", "enter_context"}:
            return False
        holder = module.walk.parents.get(holder)
        if isinstance(holder, cst.Expr | cst.Assign):
            return True
    return isinstance(holder, cst.WithItem)


def handles_of(project: Project) -> Handles:
    """The project's handles."""
    return project.shared(Handles)
