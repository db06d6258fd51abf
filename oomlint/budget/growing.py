"""What a program keeps beside its datasets where no rule has a word for it: arrays with a name, what loops put together, buffers and caches with a bound."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.budget.nouns import RUNNING, Certainty, Holdings, Moment
from oomlint.budget.samples import samples_in
from oomlint.budget.sizes import Factor, Name, SizeProduct, Sum, named
from oomlint.memory.buffers.bounds import bounded, stops
from oomlint.memory.buffers.growing_loops import growing_loops
from oomlint.memory.buffers.joined_behind import joins_before_emptied, joins_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.datasets.samples import length_of
from oomlint.memory.shared.array_bytes import allocation
from oomlint.memory.shared.content_kinds import PAYLOAD
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import LoaderLike, loops_around
from oomlint.memory.shared.training_loops import rounds
from oomlint.model import arguments, names
from oomlint.model.reach import path_conditions
from oomlint.model.tensor_state import Device, Storage
from oomlint.model.tensor_state import SampleSize as Much
from oomlint.model.values import ClassRef, Const, ExternalCall, Frame, is_tested
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.budget.nouns import LoaderNoun, Program
    from oomlint.finding import Place
    from oomlint.model.events import Loop, Record, Store
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_KINDS: Final = frozenset({"append", "extend", "item"})
_EMPTIES: Final = frozenset({"clear", "pop", "popleft", "popitem"})
_CACHED: Final = 128  # what `lru_cache` keeps where it is told nothing
_LARGE: Final = 1 << 20  # bytes
_AT_WORK: Final = RUNNING - {Moment.START}


class Growing:
    """Answers for the files that a program reaches."""

    def __init__(self, project: Project, reached: Sequence[Module], runs: Callable[[Place], bool]) -> None:
        self.project = project
        self.datasets = datasets_of(project)
        self.evaluator = self.datasets.evaluator
        self.reached = reached
        self._runs = runs
        self._stores: dict[Place, tuple[Store, Record]] = {}
        for module in reached:
            for record in runs_of(project).of(module):
                for store in record.stores:
                    if store.kind in _KINDS and store.loops:
                        self._stores.setdefault(store.module.place(store.node), (store, record))

    # -- loops ---------------------------------------------------------------------------------------------------------------

    def often(self, place: Place, program: Program) -> tuple[Factor, ...] | None:
        """How many there are at most of what the statement at a place stores; None where no loop over batches is seen around it."""
        found = self._stores.get(place)
        return self._often(*found, program) if found is not None else None

    def _often(self, store: Store, record: Record, program: Program) -> tuple[Factor, ...] | None:
        growing = growing_loops(store, record)
        if not growing:
            return None
        word = _target(store)
        bound = self._bound(word, store.node, store.module, store.scope)
        if bound is None and _new_keys(store, word):
            bound = Name(f"len({word})")
        if bound is not None:
            return (bound,)
        if bounded(store, growing[-1]) or stops(growing[-1]):
            return None
        root = store.path[0]
        made = record.made.get(root[0], ()) if isinstance(root, tuple) and isinstance(root[0], int) else ()
        again = {id(reset.loops[-1]) for reset in record.resets if reset.loops and not reset.bound and reset.path == store.path[: len(reset.path)]}
        loops = list(store.loops)
        last = max((number for number, loop in enumerate(loops) if loop in made or id(loop) in again), default=-1)
        step = loops.index(growing[-1])
        counts = [(self._rounds(loop, program), number) for number, loop in enumerate(loops) if number > last]
        # What nobody knows of the loops inside of a step is part of what it stores.
        return tuple(count for count, number in counts if count != 1 and (number <= step or not isinstance(count, Name))) or (1,)

    def _rounds(self, loop: Loop, program: Program) -> Factor:
        noun = _noun_of(loop, program)
        if noun is not None:
            samples, batch = samples_in(noun.sources) if noun.samples is None else noun.samples, noun.batch
            if isinstance(samples, int) and isinstance(batch, int):
                written = f"({samples} / {batch})"
                return Sum(written if samples % batch == 0 else f"ceil{written}", ceil(samples / batch))
            return Name("steps")
        known = rounds(self.project, loop.node, loop.module, loop.scope) if isinstance(loop.node, cst.For | cst.CompFor) else None
        return known if known is not None else Name("steps" if loop.batches else "epochs")

    def of(self, program: Program, told: Sequence[Holdings], counted: set[Place]) -> Iterator[Holdings]:
        """The rows. ``told`` is what the rules say is held, ``counted`` where they say it is stored."""
        seen = {one.what.split("`")[1] for one in told if "`" in one.what}
        joined: list[tuple[Holdings, cst.CSTNode]] = []
        for place, (store, record) in self._stores.items():
            word = _target(store)
            if place in counted or word in seen or not self._runs(place) or store.expression is None:
                continue
            leaves = [leaf for leaf in store.value.leaves() if leaf.tensorlike and leaf.size is not Much.SCALAR]
            often = self._often(store, record, program) if leaves else None
            if often is None:
                continue
            seen.add(word)
            loop = growing_loops(store, record)[-1]
            size, certainty = self._each(store, loop, program, word)
            moment = Moment.EVALUATION if runs_of(self.project).looks(record, loop) else Moment.TRAINING
            device = all(leaf.device is Device.ACCELERATOR for leaf in leaves)
            held = Holdings(f"what `{word}` keeps of the steps", size.times(*often), certainty, place, frozenset({moment}), with_model=device)
            yield held
            again = self._joined(store, loop)
            if again is not None:
                call, module = again
                made = replace(held, what=f"`{word}`, once more where it is joined", place=module.place(call))
                joined.append((made, module.walk.statement_of(call)))
        for made, statement in joined:
            apart = any(other is not statement and one.with_model == made.with_model for one, other in joined)  # one after another, perhaps
            yield replace(made, certainty=Certainty.AT_MOST) if apart else made
        yield from self._in_samples(seen, counted)
        yield from self._beside(program, seen)

    def _joined(self, store: Store, loop: Loop) -> tuple[cst.Call, Module] | None:
        """Where what was kept becomes one array: behind the loop, or where it is emptied in time, before that."""
        behind = [(call, loop.module) for call in joins_of([store], loop)]
        if not behind and self._bound(_target(store), store.node, store.module, store.scope) is not None:
            behind = list(joins_before_emptied(store, loop, self.evaluator))
        return next(iter(behind), None)

    def _each(self, store: Store, loop: Loop, program: Program, word: str) -> tuple[SizeProduct, Certainty]:
        """Bytes of what is stored once."""
        if store.expression is not None:
            exact = self.datasets.contents.of(store.expression, self.evaluator.calls.plain_frame(store.module, store.scope)).size.exact
            if exact is not None:
                return SizeProduct((exact,)), Certainty.EXACT
        noun = _noun_of(loop, program)
        if noun is not None and all(leaf.storage is Storage.LOADER for leaf in store.value.leaves()):
            return noun.sample.times(noun.batch), Certainty.AT_MOST  # it may be a part of the batch
        return SizeProduct((Name(f"{word} a step"),)), Certainty.EXACT

    # -- what reading samples keeps ------------------------------------------------------------------------------------------

    def _in_samples(self, seen: set[str], counted: set[Place]) -> Iterator[Holdings]:
        for module in self.reached:
            for scope in module.walk.scopes:
                owner = scope.parent
                if not isinstance(scope.node, cst.FunctionDef) or not self._runs(module.place(scope.node)):
                    continue
                if "cache" in module.source.text:
                    yield from self._cached(module, scope)
                if owner is not None and owner.is_class and scope.name != "__init__" and self.datasets.is_dataset(ClassRef(module, owner)):
                    yield from self._bounded(module, scope, seen, counted)

    def _bounded(self, module: Module, scope: Scope, seen: set[str], counted: set[Place]) -> Iterator[Holdings]:
        """Buffers and caches of a dataset that a test of their length bounds: a shuffle buffer, a cache of so many entries."""
        for node in scope.nodes(inner=False):
            target = value = None
            if isinstance(node, cst.Call) and _appends(node):
                target, value = cst.ensure_type(node.func, cst.Attribute).value, node.args[0].value
            elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Subscript):
                target, value = node.targets[0].target.value, node.value
            word = names.dotted(target) if target is not None else ""
            lasts = scope.name == "__iter__" or "." in word  # a name of another method ends with its call
            if value is None or not word or not lasts or word in seen or module.place(node) in counted:
                continue
            bound = self._bound(word, node, module, scope)
            content = self.datasets.contents.of(value, self._frame(module, scope))
            if bound is not None and (content.kind in PAYLOAD or scope.name == "__iter__"):
                seen.add(word)
                each = content.size.exact if content.size.exact is not None else Name(f"one of {word}")
                yield Holdings(
                    f"what `{word}` keeps of the samples", SizeProduct((bound, each)), Certainty.AT_MOST, module.place(node), _AT_WORK, in_workers=True
                )

    def filled(self, place: Place) -> SizeProduct | None:
        """What a cache holds once each sample of its dataset was read: so many of what the statement at a place stores; None where that is not known."""
        for module in self.reached:
            for scope in module.walk.scopes if module.path == place.path else ():
                node = next((one for one in scope.nodes(inner=False) if isinstance(one, cst.Assign) and module.place(one) == place), None)
                if node is not None and scope.parent is not None and scope.parent.is_class:
                    each = self.datasets.contents.of(node.value, self._frame(module, scope)).size.exact
                    count = self._length(module, scope.parent)
                    return SizeProduct((count, each)) if each is not None and count is not None else None
        return None

    def _length(self, module: Module, owner: Scope) -> int | None:
        """What ``__len__`` of a class gives."""
        made = (self.datasets.of_value(one) for one in self.evaluator.calls.instances(module, owner, most=1))
        return next((length_of(self.project, one) for one in made if one is not None), None)

    def _cached(self, module: Module, scope: Scope) -> Iterator[Holdings]:
        """What ``lru_cache`` keeps of the results of a function, where it has a bound."""
        node = cst.ensure_type(scope.node, cst.FunctionDef)
        for decorator in (one.decorator for one in node.decorators):
            if names.last_name(decorator.func if isinstance(decorator, cst.Call) else decorator) != "lru_cache":
                continue
            most: object = _CACHED
            if isinstance(decorator, cst.Call):
                given = arguments.argument_for(decorator, "maxsize", place=0)
                most = self._number(given, module, scope.parent or scope) if given is not None else most
            contents = [self.datasets.contents.of(one.value, self._frame(module, scope)) for one in scope.returns if one.value is not None]
            large = next((one for one in contents if one.kind in PAYLOAD), None)
            if isinstance(most, int) and most and large is not None:
                each = large.size.exact if large.size.exact is not None else Name(f"one of {scope.name}")
                in_workers = bool(readers(self.project, module, scope))
                what = f"results of `{scope.name}` that are cached"
                yield Holdings(what, SizeProduct((most, each)), Certainty.AT_MOST, module.place(scope.node), _AT_WORK, in_workers=in_workers)

    # -- the script itself ---------------------------------------------------------------------------------------------------

    def _beside(self, program: Program, seen: set[str]) -> Iterator[Holdings]:
        """Arrays that the script's own code, or a function that it calls, gives a name or puts into a list."""
        entry = self.reached[0]
        counted = {one.same for source in program.sources for one in source.containers if one.same is not None}
        called = [one for one in entry.root.children if one.is_function and any(site.scope is entry.root for site in self.evaluator.calls.sites(entry, one))]
        frames = [self.evaluator.module_frame(entry), *(frame for scope in called for frame in self.evaluator.calls.frames(entry, scope)[:1])]
        for call, frame in ((call, one) for one in frames for call in one.scope.calls):
            ways = self.evaluator.where(call, frame)
            if not ways:
                continue  # under a test that this command fails
            certainty = Certainty.AT_MOST if all(map(is_tested, ways)) else Certainty.EXACT
            bound = [root for root, path in entry.walk.bound_to(call) if not path]
            if bound and not arguments.has(call, "device"):
                found = self.evaluator.values(call, frame)
                value = found[0].value if len(found) == 1 else None
                made = allocation(names.canonical(value.name), call, self.evaluator, frame) if isinstance(value, ExternalCall) else None
                if made is not None and made.item is not None and value not in counted and (made.exact is None or made.exact >= _LARGE):
                    size = SizeProduct((*named(made.dimensions, ""), made.item))
                    yield Holdings(f"`{bound[0]}`", size, certainty, entry.place(call), frozenset(Moment))
                continue
            loops = list(loops_around(call, entry, frame.scope)) if _appends(call) else []
            word = names.dotted(cst.ensure_type(call.func, cst.Attribute).value) if loops else ""
            content = self.datasets.contents.of(call.args[0].value, frame) if word and word not in seen else None
            if content is not None and content.kind in PAYLOAD:
                counts = [rounds(self.project, loop, entry, frame.scope) for loop in loops]
                many = (Name(f"len({word})"),) if None in counts else tuple(one for one in counts if one is not None)
                size = SizeProduct((*many, content.size.exact)) if content.size.exact is not None else SizeProduct((Name(word),))
                yield Holdings(f"what a loop puts into `{word}`", size, certainty, entry.place(call), _AT_WORK)

    # -- bounds --------------------------------------------------------------------------------------------------------------

    def _bound(self, word: str, store: cst.CSTNode, module: Module, scope: Scope) -> int | Name | None:
        """How many a container comes to hold, where a test empties it in time, or lets no more in; a name where nobody knows the number."""
        above = set(module.walk.ancestors(store))
        for node in scope.nodes(inner=False):
            if not isinstance(node, cst.If | cst.While):
                continue
            inside = node.body in above
            if inside or any(_empties(one, word) for one in descend(node.body)):
                tests = (one for one in (node.test, *descend(node.test)) if isinstance(one, cst.Comparison | cst.UnaryOperation))
                limit = next((one for test in tests if (one := self._limit(test, word, module, scope, lets_in=inside)) is not None), None)
                if limit is not None:
                    return limit
        return None

    def _limit(self, test: cst.BaseExpression, word: str, module: Module, scope: Scope, *, lets_in: bool) -> int | Name | None:
        """The number in ``len(buffer) >= 20`` and ``step % 20 == 0``."""
        modulo = test.expression if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) else None
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
            if isinstance(test.left, cst.Call) and names.last_name(test.left.func) == "len" and names.dotted(test.left.args[0].value) == word:
                wanted = (cst.LessThan, cst.LessThanEqual) if lets_in else (cst.GreaterThan, cst.GreaterThanEqual, cst.Equal)
                known = self._number(right, module, scope) if isinstance(operator, wanted) else None
                more = isinstance(operator, cst.GreaterThan | cst.LessThanEqual)
                return known + more if isinstance(known, int) else Name(f"len({word})") if isinstance(operator, wanted) else None
            modulo = test.left if isinstance(operator, cst.Equal) else None
        if lets_in or not isinstance(modulo, cst.BinaryOperation) or not isinstance(modulo.operator, cst.Modulo):
            return None
        known = self._number(modulo.right, module, scope)
        return known if isinstance(known, int) else Name(f"len({word})")

    def _number(self, node: cst.BaseExpression, module: Module, scope: Scope) -> object:
        found = [alt.value for alt in self.evaluator.values(node, self._frame(module, scope)) if not alt.reach]
        return found[0].value if found and isinstance(found[0], Const) else None

    def _frame(self, module: Module, scope: Scope) -> Frame:
        return next(iter(self.evaluator.calls.frames(module, scope)), None) or self.evaluator.calls.plain_frame(module, scope)


def _appends(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "append" and len(call.args) == 1


def _new_keys(store: Store, word: str) -> bool:
    """Whether a statement only stores under keys that are not there yet: as many as there are keys, however often it runs."""
    tests = (test for test, wanted in path_conditions(store.module.walk, store.scope, store.node) if wanted and isinstance(test, cst.Comparison))
    return any(isinstance(part.operator, cst.NotIn) and names.dotted(part.comparator) == word for test in tests for part in test.comparisons)


def _empties(node: cst.CSTNode, word: str) -> bool:
    """Whether a statement empties a container, takes something out, or makes it again."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr.value in _EMPTIES and names.dotted(node.func.value) == word
    if isinstance(node, cst.Assign):
        return names.dotted(node.targets[0].target) == word
    return isinstance(node, cst.Del) and isinstance(node.target, cst.Subscript) and names.dotted(node.target.value) == word


def _target(store: Store) -> str:
    """What a statement stores into, as it is written."""
    return " ".join(store.module.code(store.target).split()) if isinstance(store.target, cst.BaseExpression) else ""


def _noun_of(loop: Loop, program: Program) -> LoaderNoun | None:
    """The loader that a loop goes through."""
    like = loop.loader
    if not isinstance(like, LoaderLike) or like.loader is None:
        return None
    place = like.loader.module.place(like.loader.call)
    return next((one for one in program.loaders if one.place == place), None)
