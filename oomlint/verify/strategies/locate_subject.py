"""Which dataset or function of the program a finding is about, and what the program is known to pass to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import AttributeFact, ReadFact, StoreFact
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of, loaders_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import names
from oomlint.model.values import ClassRef, Const, Instance, is_usual
from oomlint.source import SourceError
from oomlint.verify.ast_names import statement_rows
from oomlint.verify.case import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Finding, Place
    from oomlint.model.project import Module
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope
    from oomlint.verify.session import Session

MOST: Final = 4  # datasets that are tried
SCRIPT: Final = "<module>"  # in place of a name, as Python calls the code of a file itself
PLAIN: Final = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Subject:
    """A class or a function of a file. ``known`` holds arguments that the program is known to pass."""

    path: str
    name: str  # dotted
    known: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return "the script" if self.name == SCRIPT else f"`{self.name}`"


def datasets(session: Session) -> list[Subject]:
    """Datasets that a finding can be about, the likeliest first."""
    found: dict[tuple[str, str], Subject] = {}
    for one in _classes(session):
        ref = one.cls if isinstance(one, Instance) else one
        key = (ref.module.path, ref.scope.qualname)
        if key not in found and "<" not in key[1] and not _local(ref.scope):
            found[key] = Subject(*key, known_of(session, ref, one if isinstance(one, Instance) else None))
        if len(found) >= MOST:
            break
    return list(found.values())


def functions(session: Session, *, every: bool = False) -> list[Subject]:
    """Functions that a finding stands in, the innermost first that can be called from outside; ``every``: also those that a dataset runs of itself.

    What stands in none is run with the whole file, as a script.
    """
    found: dict[tuple[str, str], Subject] = {}
    for place in _places(session, facts=False):
        for module, scope in _around(session, place):
            if scope.is_function and scope.name and not _local(scope) and (every or not _of_dataset(session, module, scope)):
                key = (module.path, scope.qualname)
                found.setdefault(key, Subject(*key, _passed(session, scope, evaluator_of(session.project).calls.frames(module, scope))))
        if not place.cell and not _around(session, place):
            found.setdefault((place.path, SCRIPT), Subject(place.path, SCRIPT))
    return list(found.values())


def _of_dataset(session: Session, module: Module, scope: Scope) -> bool:
    """Whether it runs when a dataset is made or read: that is looked at as a whole."""
    return (
        scope.name.startswith("__")
        and scope.parent is not None
        and scope.parent.is_class
        and constructions_of(session.project).is_dataset(ClassRef(module, scope.parent))
    )


# -- places ------------------------------------------------------------------------------------------------------------


def _places(session: Session, *, facts: bool = True) -> Iterator[Place]:
    finding = session.case.finding
    yield finding.place
    if finding.fix:
        for edit in finding.fix.edits:
            yield edit.place
    if facts:
        yield from finding.places[1:]


def _around(session: Session, place: Place) -> list[tuple[Module, Scope]]:
    """Classes and functions around a place, the innermost first."""
    try:
        module = session.project.module(place.path)
    except SourceError:
        return []
    found = []
    for scope in module.walk.scopes:
        if scope.parent is None:
            continue
        span = module.place(scope.node)
        if span.cell == place.cell and span.row <= place.row <= span.end_row:
            found.append((span.row, module, scope))
    return [(module, scope) for _, module, scope in sorted(found, key=lambda item: -item[0])]


def _classes(session: Session) -> Iterator[ClassRef | Instance]:
    """Classes of datasets, where it is known the very one. The first way that leads to any decides: a class that only may be meant is no witness."""
    own = list(_places(session, facts=False))
    every = list(_places(session))
    ways: tuple[Callable[[], Iterator[ClassRef | Instance]], ...] = (
        lambda: _standing(session, own[:1]),
        lambda: (ref for place in own[:1] for ref in _loaded(session, place)),
        lambda: _standing(session, own),
        lambda: (ref for place in own for module, scope in _around(session, place) if scope.is_function for ref in _users(session, module, scope, 2)),
        lambda: _standing(session, every),
        lambda: (ref for place in every for ref in _loaded(session, place)),
    )
    for way in ways:
        found = list(way())
        if found:
            yield from found
            return


def _standing(session: Session, places: list[Place]) -> Iterator[ClassRef]:
    """Datasets around places."""
    constructions = constructions_of(session.project)
    for place in places:
        for module, scope in _around(session, place):
            if scope.is_class:
                yield from constructions.datasets(ClassRef(module, scope))


def _loaded(session: Session, place: Place) -> Iterator[Instance]:
    """Datasets of the loader that is made at a place."""
    try:
        module = session.project.module(place.path)
    except SourceError:
        return
    loaders, datasets = loaders_of(session.project), datasets_of(session.project)
    for loader in loaders.of(module):
        span = module.place(loader.call)
        if span.cell != place.cell or not span.row <= place.row <= span.end_row:
            continue
        for use in loaders.uses(loader):
            waiting = datasets.of(loaders, loader, use.frame)
            while waiting:
                one = waiting.pop(0)
                if one.instance is not None and not one.inner:
                    yield one.instance
                waiting.extend(one.inner)


def _users(session: Session, module: Module, scope: Scope, depth: int) -> Iterator[ClassRef]:
    """Datasets that call a function, directly or through others, or that are made by it or from what it returns."""
    constructions = constructions_of(session.project)
    for site in evaluator_of(session.project).calls.sites(module, scope):
        here: Scope | None = site.scope
        inside = False
        while here is not None:
            if here.is_class:
                inside = True
                yield from constructions.datasets(ClassRef(site.module, here))
            here = here.parent
        if not inside:
            yield from _made_in(session, site.module, site.scope)
            if depth and site.scope.is_function:
                yield from _users(session, site.module, site.scope, depth - 1)
    yield from _made_in(session, module, scope)


def _made_in(session: Session, module: Module, scope: Scope) -> Iterator[ClassRef]:
    """Datasets that a function makes."""
    evaluator, constructions = evaluator_of(session.project), constructions_of(session.project)
    for call in scope.calls:
        if names.last_name(call.func)[:1].isupper():
            for alternative in evaluator.plainly(call.func, module, scope)[:2]:
                if isinstance(alternative.value, ClassRef) and constructions.is_dataset(alternative.value):
                    yield alternative.value


def _local(scope: Scope) -> bool:
    here = scope.parent
    while here is not None:
        if here.is_function:
            return True
        here = here.parent
    return False


# -- arguments ---------------------------------------------------------------------------------------------------------


def known_of(session: Session, ref: ClassRef, own: Instance | None = None) -> dict[str, Any]:
    """Arguments of the constructor that the program is known to pass: to ``own`` before all, else where all that is known agrees or one is usual."""
    evaluator = evaluator_of(session.project)
    init = evaluator.method(Instance(ref, None), "__init__")
    if init is None:
        return {}
    frames = []
    for instance in (*([own] if own is not None else ()), *evaluator.calls.instances(ref.module, ref.scope)):
        frame = evaluator.init_frame(instance) if instance.cls.scope is ref.scope else None
        if frame is not None:
            frames.append(frame)
    return _passed(session, init.scope, frames)


def _passed(session: Session, scope: Scope, frames: list[Frame]) -> dict[str, Any]:
    evaluator = evaluator_of(session.project)
    skipped = 1 if names.is_method(scope) else 0
    known: dict[str, Any] = {}
    for parameter in names.parameters(scope)[skipped:]:
        for frame in frames[:4]:
            if frame.bound is None:
                continue
            values = [
                one for one in evaluator.parameter(parameter.name.value, (), frame) if isinstance(one.value, Const) and not one.reach and is_usual(one.picks)
            ]
            value = values[0].value.value if values and isinstance(values[0].value, Const) else None
            # `None` and texts with it come of options that somebody has to give.
            if value is not None and isinstance(value, PLAIN) and "None" not in str(value):
                known.setdefault(parameter.name.value, value)
                break
    return known


# -- rows --------------------------------------------------------------------------------------------------------------


def witness(session: Session, subject: Subject | None, *, at_row: bool) -> Place | None:
    """The place that has to be run before anything can be said: the finding's own, or for one at a loader where the class sets or reads what is held."""
    finding = session.case.finding
    if at_row or subject is None:
        return finding.place if at_row else None
    if (finding.place.path, finding.place.cell) == (subject.path, 0) and _inside(session, finding.place, subject):
        return finding.place
    return next((place for place in _held(finding) if place.path == subject.path and _inside(session, place, subject)), None)


def concerns(session: Session, subject: Subject | None) -> bool:
    """Whether a fix, or a finding without one, touches the class itself."""
    finding = session.case.finding
    places = [edit.place for edit in finding.fix.edits] if session.case.has_fix and finding.fix else [finding.place, *_held(finding)]
    return subject is None or any(place.path == subject.path and _inside(session, place, subject) for place in places)


def _held(finding: Finding) -> list[Place]:
    """Where what it speaks of is set, stored or read."""
    places = [fact.place for fact in finding.facts if isinstance(fact, AttributeFact | ReadFact | StoreFact)]
    return [place for place in places if place is not None]


def _inside(session: Session, place: Place, subject: Subject) -> bool:
    return any(scope.is_class and scope.qualname == subject.name for _, scope in _around(session, place))


def statement(session: Session, place: Place) -> list[int]:
    """Rows of the innermost statement at a place: of one with a body, those before it. Empty in a notebook, whose rows are its cells'."""
    tree = session.case.tree(Part.BEFORE, place.path) if not place.cell else None
    rows = statement_rows(tree, place.row) if tree is not None else None
    return list(range(rows[0], rows[1] + 1)) if rows is not None else []
