"""Loaders: every ``DataLoader`` call, what its arguments can be, and which of them cannot go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import libcst as cst
from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.api_names import LOADERS
from oomlint.finding import Confidence, Place, in_own_rows, is_inside
from oomlint.model import arguments, names
from oomlint.model.evaluate import Evaluator
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import (
    ABSENT,
    Absent,
    Alternative,
    Bound,
    ClassRef,
    Const,
    Element,
    External,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Partial,
    ProvenanceStep,
    Unknown,
    assumptions,
    meet,
    truth_of,
)
from oomlint.scout.telling_names import is_worker_word
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Picks, Value
    from oomlint.syntax.scopes import Effect, Scope

# `webdataset.WebLoader` makes a DataLoader of what it is given.
# Classes of libraries that derive from PyTorch's loader and hand its keyword arguments on: how many they take by position as it does, and what they take
# and throw away. Read in `torch_geometric/loader/` (before 2.0 `torch_geometric/data/dataloader.py`) and `monai/data/dataloader.py`.
_OF_GRAPHS = (3, frozenset({"collate_fn"}))
_DERIVED = {
    **{f"torch_geometric.{room}.{name}": _OF_GRAPHS for room in ("loader", "data") for name in ("DataLoader", "DataListLoader", "DenseDataLoader")},
    "monai.data.DataLoader": (1, frozenset()),
}
LOADER_CLASSES = LOADERS | {"webdataset.WebLoader", *_DERIVED}
# Positions of torch 2.13's DataLoader.__init__; what comes after `generator` is keyword-only.
PARAMETERS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout",
    "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip
_DEEPEST_FACTORY = 3
_LEAST = {"num_workers": 0, "batch_size": 1}
_FIXED = frozenset("batch_size batch_sampler sampler drop_last dataset persistent_workers".split())  # that no assignment may change (`DataLoader.__setattr__`)
_Way = TypeVar("_Way")


def evaluator_of(project: Project) -> Evaluator:
    """The project's evaluator."""
    return project.shared(Evaluator)


class Loader(Struct, frozen=True, eq=False):
    """One call that makes a DataLoader.

    ``layers`` holds the arguments that a ``functools.partial`` gave before the call itself.
    """

    module: Module
    scope: Scope
    call: cst.Call
    layers: tuple[Bound, ...] = ()
    written: str = "DataLoader"
    ignores: frozenset[str] = frozenset()  # arguments that its class throws away
    own: int = 0  # arguments before those of the loader: the object itself in `DataLoader.__init__(self, dataset)`

    def bound(self, frame: Frame) -> tuple[Bound, ...]:
        """All arguments, evaluated in ``frame``."""
        return (*self.layers, Bound(tuple(self.call.args[self.own :]), frame, self.call))

    def explicit(self, name: str) -> cst.Arg | None:
        """The argument as it is written in the call itself, by keyword or position."""
        if name in self.ignores:
            return None
        return arguments.arg_for(self.call, name, place=self.own + PARAMETERS.index(name) if name in PARAMETERS and not self.layers else -1)

    @property
    def inherited(self) -> bool:
        """Whether it is the ``super().__init__(...)`` of a class of loaders."""
        return names.last_name(self.call.func) == "__init__"

    def made_at(self, frame: Frame) -> tuple[Module, cst.Call]:
        """Where it is made in a frame: a class of loaders is made where it is called, not where it hands its arguments on."""
        maker = frame.bound[-1] if self.inherited and frame.bound else None
        return (maker.frame.module, maker.call) if maker is not None else (self.module, self.call)

    @property
    def stars(self) -> list[cst.Arg]:
        """The ``**mapping`` arguments."""
        return [arg for arg in self.call.args if arg.star == "**"]


class LoaderUse(Struct, frozen=True):
    """A loader in one frame, on one way that leads there."""

    loader: Loader
    frame: Frame
    picks: Picks


class Loaders:
    """Finds the loaders of a module and answers what their arguments can be."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._found: AnswerMemory[str, list[Loader]] = AnswerMemory(project.readings)
        self._reached: AnswerMemory[str, list[Loader]] = AnswerMemory(project.readings)
        self._arguments: AnswerMemory[object, list[Alternative]] = AnswerMemory(project.readings)

    # -- finding -------------------------------------------------------------------------------------------------------

    def of(self, module: Module) -> list[Loader]:
        """Loaders that the module itself makes, in source order."""
        known = self._found.get(module.path)
        if known is None:
            known = []
            self._found.assume(module.path, known)
            for call, scope in module.walk.calls:
                loader = self._loader(module, call, scope)
                if loader is not None:
                    known.append(loader)
            self._found[module.path] = known
        return known

    def _loader(self, module: Module, call: cst.Call, scope: Scope) -> Loader | None:
        written = names.last_name(call.func)
        if written == "__init__":
            return self._super_call(module, call, scope)
        if not self._may_be_loader(module, written, call):
            return None
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(call.func, frame):
            value = alt.value
            layers: tuple[Bound, ...] = ()
            while isinstance(value, Partial):
                layers = (value.bound, *layers)
                value = value.func
            if isinstance(value, External) and names.canonical(value.name) in LOADER_CLASSES:
                places, ignores = _DERIVED.get(names.canonical(value.name), (len(PARAMETERS), frozenset()))
                if len(arguments.positionals(call)) <= places:
                    return Loader(module, scope, call, layers, value.name.rpartition(".")[2], ignores)
            if (
                isinstance(value, ClassRef)
                and self.evaluator.derives(value, *LOADER_CLASSES)
                and self.evaluator.method(Instance(value, None), "__init__") is None
            ):
                return Loader(module, scope, call, layers, value.scope.name)
        return None

    def _super_call(self, module: Module, call: cst.Call, scope: Scope) -> Loader | None:
        """``super().__init__(...)`` in a class that derives from DataLoader, or ``DataLoader.__init__(self, ...)``."""
        if scope.name != "__init__" or scope.parent is None or not scope.parent.is_class:
            return None
        cls = ClassRef(module, scope.parent)
        line = self.evaluator.lineage(cls)
        if not any(isinstance(base, External) and base.name in LOADER_CLASSES for base in line):
            return None
        # A base class of the project with its own __init__ is where the call really goes.
        if any(isinstance(base, ClassRef) and base.scope is not cls.scope and base.scope.child("__init__") is not None for base in line):
            return None
        func = call.func
        if isinstance(func, cst.Attribute) and isinstance(func.value, cst.Call) and names.last_name(func.value.func) == "super":
            return Loader(module, scope, call, (), cls.scope.name)
        if isinstance(func, cst.Attribute) and call.args and names.dotted(call.args[0].value) == names.self_name(scope):
            named = [alt.value for alt in self.evaluator.values(func.value, self.evaluator.calls.plain_frame(module, scope))]
            if len(named) == 1 and named[0] in line:
                return Loader(module, scope, call, (), cls.scope.name, own=1)
        return None

    @staticmethod
    def _may_be_loader(module: Module, written: str, call: cst.Call) -> bool:
        if written.endswith("Loader") or written in {"DL", "loader_class", "loader_cls"}:
            return True
        if any(
            a.star == "**"
            or (a.keyword is not None and a.keyword.value in {"num_workers", "batch_size", "collate_fn", "persistent_workers", "prefetch_factor"})
            for a in call.args
        ):
            return True
        for effect in module.root.effects.get(written, ()):
            if effect.kind == "from" and isinstance(effect.node, cst.ImportAlias) and names.dotted(effect.node.name).endswith("Loader"):
                return True
            if effect.kind == "assign":
                return True
        return False

    def reached_from(self, module: Module) -> list[Loader]:
        """Loaders of other modules that a call of this one configures (``get_loaders(num_workers=0)``)."""
        return self._reached.answer(module.path, lambda: self._reached_from(module))

    def _reached_from(self, module: Module) -> list[Loader]:
        found: dict[int, Loader] = {}
        for call, scope in module.walk.calls:
            if not any(a.keyword is not None and is_worker_word(a.keyword.value) for a in call.args):
                continue
            for alt in self.evaluator.values(call.func, self.evaluator.calls.plain_frame(module, scope)):
                self._follow(alt.value, found, set(), 0)
        return [loader for loader in found.values() if loader.module is not module]

    def _follow(self, value: Value, found: dict[int, Loader], seen: set[Scope], depth: int) -> None:
        while isinstance(value, Partial):
            value = value.func
        scopes: list[Scope] = []
        if isinstance(value, FunctionRef):
            scopes, module = [value.scope], value.module
        elif isinstance(value, ClassRef):
            scopes, module = [s for s in value.scope.children if s.is_function], value.module
        else:
            return
        for scope in scopes:
            if scope in seen or depth > _DEEPEST_FACTORY:
                continue
            seen.add(scope)
            inside = {id(c) for c in scope.calls}
            for loader in self.of(module):
                if id(loader.call) in inside:
                    found[id(loader.call)] = loader
            frame = self.evaluator.calls.plain_frame(module, scope)
            for call in scope.calls:
                for alt in self.evaluator.values(call.func, frame)[:2]:
                    if isinstance(alt.value, FunctionRef | ClassRef):
                        self._follow(alt.value, found, seen, depth + 1)

    def presumed(self, module: Module) -> list[Loader]:
        """Calls of classes out of sight that are called loaders and are given what a DataLoader is given: its workers and its batches."""
        found = []
        for call, scope in module.walk.calls:
            given = set(arguments.by_name(call))
            if not names.last_name(call.func).endswith("DataLoader") or "num_workers" not in given or given.isdisjoint({"batch_size", "batch_sampler"}):
                continue
            values = [alt.value for alt in self.evaluator.values(call.func, self.evaluator.calls.plain_frame(module, scope))]
            if values and all(
                names.canonical(one.name) not in LOADER_CLASSES if isinstance(one, External) else isinstance(one, Unknown) and is_imported(module, call.func)
                for one in values
            ):
                found.append(Loader(module, scope, call, (), names.last_name(call.func)))
        return found

    # -- asking --------------------------------------------------------------------------------------------------------

    def uses(self, loader: Loader) -> Iterator[LoaderUse]:
        """The loader in every frame and on every way that leads to its call."""
        for frame in self.evaluator.calls.frames(loader.module, loader.scope):
            for picks in self._ways(loader.call, frame)[:8]:
                yield LoaderUse(loader, frame, picks)

    def _ways(self, node: cst.CSTNode, frame: Frame) -> list[Picks]:
        """Picks under which control reaches ``node``, on through the calls that lead to its function."""
        here = self.evaluator.where(node, frame)
        if not frame.bound:
            return here
        last = frame.bound[-1]
        above = self._ways(last.call, last.frame)[:4]
        return [both for one in here for other in above if (both := meet(one, other)) is not None]

    def argument(self, loader: Loader, name: str, frame: Frame) -> list[Alternative]:
        """What an argument can be in a frame; ``ABSENT`` where it is left out, unknown where nobody can tell."""
        return self._arguments.answer((loader.call, name, frame), lambda: self._argument(loader, name, frame))

    def _argument(self, loader: Loader, name: str, frame: Frame) -> list[Alternative]:
        if name in loader.ignores:
            return [Alternative(ABSENT)]
        bound = loader.bound(frame)
        given = arguments.given(bound, name, PARAMETERS)
        if given is not None:
            found = self.evaluator.values(given.node.value, given.bound.frame)
            # What is written is given: where nobody sees who sets `cfg.workers`, it is unknown, not left out.
            return [alt for alt in found if not isinstance(alt.value, Absent)] or [Alternative(Unknown("set out of sight"))]
        out: list[Alternative] = []
        for star in arguments.starred(bound):
            absent: list[Alternative] = []
            for alt in self.evaluator.access(star.node.value, (("item", name),), star.bound.frame):
                (absent if isinstance(alt.value, Absent) else out).append(alt)
            if not absent:
                return out
        if arguments.hides_positionals(bound) and name in PARAMETERS:
            return [*out, Alternative(Unknown("*args"))]
        if out:
            # The mapping has the key on some ways only: on the others the argument is left out.
            stars = arguments.starred(bound)
            rest = [a for star in stars for a in self.evaluator.access(star.node.value, (("item", name),), star.bound.frame) if isinstance(a.value, Absent)]
            return [*out, *rest]
        return [Alternative(ABSENT)]

    def once_set(self, loader: Loader, name: str, frame: Frame, given: list[Alternative]) -> list[Alternative]:
        """What the loader has for an argument once the code that made it has set it: ``loader.num_workers = 4``; what it was ``given`` where none does."""
        for effect in self._set_later(loader, frame):
            if effect.path[-1][1] == name:
                found = self.evaluator.resolve(effect.root, effect.path, frame, None)
                unset = [alt for alt in found if isinstance(alt.value, Element) and alt.value.whole.call is loader.made_at(frame)[1]]
                both = [merged for alt in unset for one in given if (merged := one.under(alt.picks)) is not None]
                return [*(alt for alt in found if alt not in unset), *both]
        return given

    def refused(self, loader: Loader, frame: Frame) -> Iterator[tuple[str, Place]]:
        """What torch refuses of a loader, as a sentence has it, and where: numbers that are too small, and ``loader.batch_size = 8`` once it is made."""
        for name, least in _LEAST.items():
            given = [alt.const for alt in self.argument(loader, name, frame)]
            if given and all(isinstance(one, int) and one < least for one in given):
                yield f"`{name}={given[0]}`", loader.module.place(loader.call)
        for one in self._set_later(loader, frame):
            if one.kind == "assign" and one.path[-1][1] in _FIXED:
                yield f"to set `{one.path[-1][1]}` of a DataLoader", loader.module.place(one.node)

    @staticmethod
    def _set_later(loader: Loader, frame: Frame) -> Iterator[Effect]:
        """Where the code that made a loader sets an attribute of it."""
        module, call = loader.made_at(frame)
        scope = module.walk.scope_at(call)
        for root, path in module.walk.bound_to(call) if module is loader.module and scope is frame.scope else ():
            yield from (one for one in scope.effects.get(root, ()) if one.path and one.path[:-1] == path and one.path[-1][0] == "attr")

    def workers(self, loader: Loader, frame: Frame) -> list[Alternative]:
        """The worker count; a missing one is 0."""
        found = []
        for alt in self.argument(loader, "num_workers", frame):
            if isinstance(alt.value, Absent):
                step = ProvenanceStep(loader.module, loader.call, "`num_workers` is not given, so it is 0", kind="missing")
                found.append(replace(alt, value=Const(0), story=(step,)))
            else:
                found.append(alt)
        return found

    # -- contradictions ------------------------------------------------------------------------------------------------

    def conflicts(self, loader: Loader, argument: str, harmful: Callable[[Value], bool]) -> list[Conflict]:
        """Ways on which the loader has no workers and an argument that needs them."""
        found: list[Conflict] = []
        for use in self.uses(loader):
            wanted = self.argument(loader, argument, use.frame)
            if not any(harmful(p.value) for p in wanted):
                continue
            hits: list[tuple[Alternative, Alternative]] = []
            definite = True
            for worker in self.workers(loader, use.frame):
                first = meet(use.picks, worker.picks)
                if first is None:
                    continue
                for given in wanted:
                    if meet(first, given.picks) is None:
                        continue
                    if is_zero(worker.value) and harmful(given.value):
                        hits.append((worker, given))
                    elif not (worker.reach or given.reach):
                        definite = False
            if hits and not self._is_guarded(loader, argument, use.frame, harmful):
                worker, given = min(hits, key=lambda hit: (hit[0].reach or hit[1].reach, assumptions(*hit)))
                ways = tuple(dict.fromkeys(hit[0] for hit in hits))
                found.append(Conflict(loader, use.frame, argument, worker, given, definite=definite, ways=ways))
        return found

    def _is_guarded(self, loader: Loader, argument: str, frame: Frame, harmful: Callable[[Value], bool]) -> bool:
        """Whether an argument that is written with the number of workers, such as ``True if n > 0 else False``, does no harm where that is 0.

        The conditions of the ways say so mostly, but a way that nobody can see to has none.
        """
        given, workers = loader.explicit(argument), loader.explicit("num_workers")
        if given is None or workers is None:
            return False
        without = _with_zero(given.value, workers.value)
        return without is not given.value and not any(harmful(alt.value) for alt in self.evaluator.values(without, frame))


def _with_zero(node: cst.BaseExpression, count: cst.BaseExpression) -> cst.BaseExpression:
    """A condition with 0 in place of a number; what else it is made of stays the same, so that it is known where that stands."""
    if node.deep_equals(count):
        return cst.Integer("0")
    if not any(isinstance(part, cst.BaseExpression) and part.deep_equals(count) for part in descend(node)):
        return node
    match node:
        case cst.IfExp(test=test, body=body, orelse=orelse):
            return node.with_changes(test=_with_zero(test, count), body=_with_zero(body, count), orelse=_with_zero(orelse, count))
        case cst.BooleanOperation(left=left, right=right):
            return node.with_changes(left=_with_zero(left, count), right=_with_zero(right, count))
        case cst.UnaryOperation(expression=expression):
            return node.with_changes(expression=_with_zero(expression, count))
        case cst.Comparison(left=left, comparisons=comparisons):
            others = [target.with_changes(comparator=_with_zero(target.comparator, count)) for target in comparisons]
            return node.with_changes(left=_with_zero(left, count), comparisons=others)
        case cst.Call(args=[cst.Arg(value=value, star="", keyword=None) as arg]):  # `bool(n)`
            return node.with_changes(args=[arg.with_changes(value=_with_zero(value, count))])
    return node


def is_zero(value: Value) -> bool:
    """Whether a worker count is 0 (``False`` counts as 0 for torch)."""
    return isinstance(value, Const) and isinstance(value.value, int) and value.value == 0


def is_given(value: Value) -> bool:
    """Whether an argument is known to be something other than ``None``."""
    if isinstance(value, Const):
        return value.value is not None
    return isinstance(value, ExternalCall | Instance | External)


def is_true(value: Value) -> bool:
    """Whether an argument is known to be true."""
    return truth_of(value) is True and not isinstance(value, External)


class Conflict(Struct, frozen=True, eq=False):
    """No workers, and an argument that needs them, on one way to a loader."""

    loader: Loader
    frame: Frame
    argument: str
    workers: Alternative
    given: Alternative
    definite: bool
    ways: tuple[Alternative, ...] = field(default=())  # all the ways in which there are no workers

    @property
    def reachable(self) -> bool:
        """Whether it takes more than a plain run to get there."""
        return self.workers.reach or self.given.reach or not self.definite

    @property
    def confidence(self) -> Confidence:
        """High where everything follows from constants; medium with one assumption."""
        return confidence_of(assumptions(self.workers, self.given) + (1 if self.workers.reach or self.given.reach else 0))

    def brought_by(self) -> tuple[Module, cst.Call] | None:
        """The call of a factory whose literal keyword makes the conflict, if that is where it comes from."""
        for alt in (self.workers, self.given):
            site = literal_site(alt, self.loader.module)
            if site is not None:
                return site
        return None

    def primary(self) -> tuple[Module, cst.Call]:
        """Where the conflict is told: the call that brings the bad value, else the loader."""
        return self.brought_by() or (self.loader.module, self.loader.call)


def confidence_of(doubt: int) -> Confidence:
    """Assumptions as a confidence."""
    return (Confidence.HIGH, Confidence.MEDIUM)[doubt] if doubt < 2 else Confidence.LOW  # noqa: PLR2004 - two levels have names


def is_imported(module: Module, function: cst.BaseExpression) -> bool:
    """Whether a name comes from another file, and from nowhere else."""
    effects = module.root.effects.get(function.value, ()) if isinstance(function, cst.Name) else ()
    return bool(effects) and all(effect.kind == "from" for effect in effects)


def literal_site(alt: Alternative, home: Module) -> tuple[Module, cst.Call] | None:
    """The call in which a literal was passed: anywhere in the loader's own module, elsewhere as a keyword that speaks of workers."""
    story = alt.story
    if len(story) < 2 or story[-1].kind != "constant" or story[-2].kind != "argument":  # noqa: PLR2004 - the literal and the argument
        return None
    step = story[-2]
    if step.module is None or not isinstance(step.node, cst.Arg) or step.node.value is not story[-1].node:
        return None
    if step.module is not home and (step.node.keyword is None or not is_worker_word(step.node.keyword.value)):
        return None
    call = step.module.walk.parents.get(step.node)
    return (step.module, call) if isinstance(call, cst.Call) else None


def story_places(primary: Place, *alternatives: Alternative) -> list[Place]:
    """The places of stories, without what the primary place shows already."""
    told = (step.place() for alt in alternatives for step in alt.story if step.kind != "missing")
    beyond = (place for place in told if place is not None and not (is_inside(place, primary) and place.end_row <= primary.end_row))
    return in_own_rows(primary, beyond)


def given_beside(*ways: Iterable[Alternative]) -> tuple[Place, ...]:
    """Where files beside the code give what each of these ways takes; nothing where code itself gives all that one of them takes."""
    found: list[Place] = []
    for way in ways:
        place = next((step.at for alt in way for step in alt.story if step.at is not None), None)
        if place is None:
            return ()
        found.append(place)
    return tuple(dict.fromkeys(found))


def apart(ways: Iterable[_Way], number: Callable[[_Way], Alternative]) -> list[list[_Way]]:
    """The ways by where files beside the code give their number, since each of these is to be told of its own; all as one where code itself gives one."""
    groups: dict[tuple[Place, ...], list[_Way]] = {}
    for way in ways:
        groups.setdefault(given_beside([number(way)]), []).append(way)
    return list(groups.values()) if () not in groups else [[way for group in groups.values() for way in group]]


def loaders_of(project: Project) -> Loaders:
    """The project's loaders."""
    return project.shared(Loaders)


def is_positive(value: Value) -> bool:
    """Whether an argument is known to be a number above 0."""
    return isinstance(value, Const) and isinstance(value.value, int | float) and value.value > 0
