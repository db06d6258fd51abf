"""Evaluation loops that record a graph that nobody will use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import PUTS_IN
from oomlint.finding import Confidence
from oomlint.memory.buffers.growing_loops import is_flushed
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.little_networks import keeps_little, keeps_one_sample
from oomlint.memory.shared.loop_kinds import LoaderLike, is_nth, loops_around
from oomlint.memory.shared.loop_phases import is_evaluation, wants_gradients
from oomlint.memory.shared.one_sample import steps_environment
from oomlint.model import names
from oomlint.model.events import AS_ARRAY
from oomlint.model.tensor_state import Graph, Mode
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import is_typed
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.nodes import descend, parts_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.buffers.growth import Growth
    from oomlint.model.events import Forward, Loop, Record
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_MOST_SITES: Final = 4


class GradEvaluation(Struct, frozen=True):
    """A loop that runs a module in grad mode for nothing."""

    loop: Loop
    record: Record
    forwards: tuple[Forward, ...]
    confidence: Confidence
    growths: tuple[Growth, ...] = ()  # what keeps the graph of its steps
    few: bool = False  # its passes are known to keep little, or it goes over a few things, each for itself: what somebody types, the best of a list

    @property
    def keeps_graph(self) -> bool:
        """Whether the graph of its steps is kept as well."""
        return bool(self.growths)


class Pass(Struct, frozen=True):
    """A network that a function evaluates at once, in grad mode, each time that a loop calls the function."""

    forward: Forward
    call: Place | None  # of the function, in the loop
    caller: Module  # where the loop is
    loop: cst.For | cst.While
    confidence: Confidence
    training: bool = False  # the rounds train with what other passes give, while the graph of this one is alive
    others: tuple[Forward, ...] = ()  # passes of the same module that the same call put into evaluation
    few: bool = False  # it is of one sample


class Evaluations:
    """Finds them, module by module."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.runs = runs_of(project)

    def of(self, module: Module) -> list[GradEvaluation]:
        """Evaluation loops of a module that record a graph."""
        if holds_tests(module):
            return []
        judged: dict[cst.CSTNode, GradEvaluation | None] = {}
        for record in self.runs.of(module):
            for loop in record.loops:
                if loop.module is not module or not loop.batches:
                    continue
                found = self._judge(loop, record)
                if loop.node not in judged or found is not None:
                    judged[loop.node] = found
        growths = buffers_of(self.project).of(module)
        out = []
        inside = [found for found in judged.values() if found is not None]
        for found in inside:
            above = set(module.walk.ancestors(found.loop.node))
            if any(other is not found and (other.loop.node in above or _runs(other, found)) for other in inside):
                continue
            kept = tuple(g for g in growths if g.loop.node is found.loop.node and g.code in {"OOM201", "OOM202", "OOM203", "OOM205"})
            out.append(replace(found, growths=kept))
        return out

    def at_once(self, module: Module) -> Iterator[Pass]:
        """Networks that functions put into evaluation and run in grad mode outside of loops: on a whole split, or a graph."""
        if holds_tests(module):
            return
        for scope in module.walk.scopes:
            if scope.is_class or not isinstance(scope.node, cst.FunctionDef) or not _puts_into_evaluation(scope):
                continue
            call = self._called_in_loop(module, scope)
            records = self.runs.records(module, scope) if call is not None else []
            found = [self._unused(record, module) or self._beside_training(record, module) for record in records]
            if call is not None and found and all(one is not None for one in found):
                first = next(one for one in found if one is not None)
                yield Pass(first, *call, Confidence.HIGH if first.known else Confidence.MEDIUM)

    def between_steps(self, module: Module) -> Iterator[Pass]:
        """Passes of a network that a training loop puts into evaluation now and then, with nothing of them differentiated."""
        if holds_tests(module):
            return
        seen: set[cst.CSTNode] = set()
        told: dict[tuple[cst.CSTNode, str], Pass] = {}
        for record in self.runs.of(module):
            used = _needed(record)
            for event in record.forwards:
                loop = event.loops[-1] if event.loops else None
                if loop is None or event.via or event.module is not module or event.node in seen or id(event.node) in used or not record.complete:
                    continue
                trains = any(backward.known and loop in backward.loops for backward in record.backwards)
                if isinstance(loop.node, cst.FunctionDef | cst.CompFor):
                    continue
                turned = _turned(loop.node, event) if trains and _records(event) else None
                if turned is not None and not self._caller_switches_off(record):
                    seen.add(event.node)
                    confidence = Confidence.HIGH if event.known else Confidence.MEDIUM
                    few = self._weighs_little(event, loop, None)
                    one = Pass(event, module.place(turned, "put into evaluation here"), module, loop.node, confidence, few=few)
                    before = told.setdefault((turned, event.name), one)
                    if before is not one:
                        told[turned, event.name] = replace(before, others=(*before.others, event), few=before.few and one.few)
        yield from told.values()

    def beside_steps(self, module: Module) -> Iterator[Pass]:
        """Passes whose graph a training loop keeps under a name, and of which it only ever uses numbers: pseudo-labels, the output of a teacher."""
        if holds_tests(module):
            return
        seen: set[cst.CSTNode] = set()
        for record in self.runs.of(module):
            kept = frozenset().union(*(store.value.all_sources for store in (*record.stores, *record.writes)))
            used = _needed(record) | record.returned.all_sources | kept | record.handed
            for event in record.forwards:
                loop = event.loops[-1] if event.loops else None
                here = loop is not None and loop.batches and not event.via and event.module is module and event.node not in seen
                trains = here and any(backward.known and loop in backward.loops for backward in record.backwards)
                if loop is None or not trains or not record.complete or not isinstance(loop.node, cst.For | cst.While):
                    continue
                idle = id(event.node) in record.recorded - used and event.trainable and event.network and event.mode is Mode.ON and _is_named(event, module)
                idle = idle and not any(is_nth(above.test) for above in module.walk.ancestors(event.node) if isinstance(above, cst.If))  # a sample now and then
                trained = any(id(other.node) in used for other in record.forwards if loop in other.loops)
                if idle and trained and _turned(loop.node, event) is None and not self._caller_switches_off(record):
                    seen.add(event.node)
                    confidence, few = Confidence.HIGH if event.known else Confidence.MEDIUM, self._weighs_little(event, loop, None)
                    yield Pass(event, None, module, loop.node, confidence, training=True, few=few)

    def _unused(self, record: Record, module: Module) -> Forward | None:
        """A forward pass of which nothing in its function, nor what that gives back, can need the graph."""
        inside = [event for event in record.forwards if event.trainable and event.evaluating]
        asked = any(use.what in {"gradients", "model given", "step"} or _trains(use.what) for use in record.uses)
        if not inside or asked or record.backwards or not record.complete or record.returned.carries is not Graph.NO or self._caller_switches_off(record):
            return None
        if any(event.mode is not Mode.ON for event in inside):
            return None  # the author has thought of it
        return next((event for event in inside if event.module is module and not event.via and not event.loops), None)

    def _beside_training(self, record: Record, module: Module) -> Forward | None:
        """A pass of a network that a function trains first and puts into evaluation then, with nothing of the second pass differentiated or given back."""
        trains = any(event.known and not event.loops for event in record.backwards)
        if not trains or record.frame is None or not record.complete or self._caller_switches_off(record):
            return None
        scope = record.frame.scope
        elsewhere = PUTS_IN | {"requires_grad_"}  # what is put into a container may be differentiated by whoever has that
        if scope.yields or scope.children or any(names.last_name(call.func) in elsewhere for call in scope.calls):
            return None
        kept = frozenset().union(*(store.value.all_sources for store in (*record.stores, *record.writes)))
        used = _needed(record) | record.returned.all_sources | kept
        trained = {_called(event, module) for event in record.forwards if id(event.node) in used}
        for event in record.forwards:
            here = event.module is module and not event.via and not event.loops and id(event.node) not in used and _stays(event, scope, module)
            if here and _records(event) and _called(event, module) in trained and _turned(scope.node, event) is not None:
                return event
        return None

    def _called_in_loop(self, module: Module, scope: Scope) -> tuple[Place, Module, cst.For | cst.While] | None:
        """Where a loop calls the function again and again; not one over batches, which is an evaluation itself."""
        found: tuple[Place, Module, cst.For | cst.While] | None = None
        for site in self.runs.evaluator.calls.sites(module, scope, most=_MOST_SITES):
            for here in loops_around(site.call, site.module, site.scope):
                repeats = self.runs.loop(here, site.module, site.scope)
                if repeats is not None and repeats.batches and site.scope in self.runs.roots(site.module):
                    return None
                found = found or (site.module.place(site.call, "called in each round"), site.module, here)
        return found

    def _judge(self, loop: Loop, record: Record) -> GradEvaluation | None:
        inside = [event for event in record.forwards if loop in event.loops and event.trainable]
        # Beside a network, a layer weighs nothing: what it saves is what it was given.
        inside = [event for event in inside if event.network] or inside
        live = [event for event in inside if event.mode is Mode.ON]
        if not live or not is_evaluation(record, loop) or not record.complete:
            return None
        # A callee or a block that switches gradients off for the model's own call says that the author has thought of it.
        first = inside[0]
        if any(event.mode is not Mode.ON for event in inside) and first.mode is not Mode.ON:
            return None
        live = [event for event in live if not any(via.call in {f.node for f in inside if f.mode is not Mode.ON} for via in event.via)]
        if not live or wants_gradients(record, loop) or _goes_backward(record, loop, live) or self._caller_switches_off(record):
            return None
        if any(_trains(use.what) and loop in use.loops for use in record.uses) or _would_raise(record, live):
            return None
        sure = loop.proven and all(event.evaluating for event in live)
        known = isinstance(loop.loader, LoaderLike) and any(event.known for event in live)
        confidence = Confidence.HIGH if sure and known else Confidence.MEDIUM
        loader = loop.loader if isinstance(loop.loader, LoaderLike) else None
        few = self._is_typed(loop, record) or _is_cut(loop, record)
        few = few or all(self._weighs_little(event, loop, loader) for event in live)
        return GradEvaluation(loop, record, tuple(live), confidence, few=few)

    def _weighs_little(self, event: Forward, loop: Loop, loader: LoaderLike | None) -> bool:
        """Whether what a pass keeps is little, or goes with the one sample that it is of."""
        known = (keeps_little, keeps_one_sample)
        return steps_environment(event, loop) or any(answer(self.project, event, loader) for answer in known)

    def _is_typed(self, loop: Loop, record: Record) -> bool:
        """Whether a loop goes over what an option of the command line gives."""
        if not isinstance(loop.node, cst.For) or record.frame is None:
            return False
        evaluator, scope = self.runs.evaluator, loop.scope
        frames = (
            [record.frame] if record.frame.scope is scope and record.frame.bound is not None else evaluator.calls.frames(loop.module, scope, most=_MOST_SITES)
        )
        return any(is_typed(evaluator.values(names.iterated(loop.node.iter), frame)) for frame in frames)

    def _caller_switches_off(self, record: Record) -> bool:
        """Whether some call of the function stands where nothing is recorded."""
        frame = record.frame
        if frame is None or frame.scope.parent is None:
            return False
        modes = [*self.runs.gradients.callers(frame.module, frame.scope)]
        return Mode.OFF in modes or (bool(modes) and Mode.ON not in modes)  # a call that nobody knows says nothing of the others


def _is_cut(loop: Loop, record: Record) -> bool:
    """Whether a loop goes over a list that is cut, or made shorter, in the rounds that fill it: the five best."""
    over = names.iterated(loop.node.iter) if isinstance(loop.node, cst.For) else None
    name = over.value if isinstance(over, cst.Name) else ""
    roots = ((store, store.path[0]) for store in record.stores if name and len(store.path) == 1 and store.kind in ADDS)
    filled = [store for store, root in roots if isinstance(root, tuple) and root[1] == name and loop not in store.loops]
    apart = all(set(loop.around).isdisjoint(store.loops) for store in filled)  # else it goes over each of many such lists
    return bool(filled) and apart and all(is_flushed(store, record, list(store.loops)) for store in filled)


def _runs(other: GradEvaluation, found: GradEvaluation) -> bool:
    """Whether each pass of an evaluation is one that the rounds of another lead to by a call of its function."""
    ways = ((event, event.via[len(other.loop.via) :]) for event in other.forwards)
    called = {event.node for event, way in ways if any(via.callee is found.loop.scope for via in way)}
    return other.loop.scope is not found.loop.scope and all(event.node in called for event in found.forwards)


def _goes_backward(record: Record, loop: Loop, live: list[Forward]) -> bool:
    """Whether what a loop's passes give is differentiated after the loop: a part that is kept in evaluation, for its statistics, and trained."""
    sources = {id(event.node) for event in live}
    after = (backward for backward in record.backwards if backward.known and all(outer in loop.around for outer in backward.loops))
    return any(sources & backward.sources for backward in after)


def _would_raise(record: Record, live: list[Forward]) -> bool:
    """Whether what each pass gives is made an array as it is, which raises an error where a graph hangs on it: somebody has switched gradients off.

    What stands under a key in the dictionary that a network gives may be what it was given in there.
    """
    made = [use for use in record.uses if use.what == AS_ARRAY and not _is_entry(use.node)]
    return all(any(id(event.node) in use.value.sources and set(use.tests) <= set(event.tests) for use in made) for event in live)


def _is_entry(node: cst.CSTNode) -> bool:
    """Whether an array is made of what stands under a key: ``batch["labels"].cpu().numpy()``."""
    while isinstance(node, cst.Call | cst.Attribute):
        node = node.func if isinstance(node, cst.Call) else node.value
    path = path_of(node)
    return path is not None and path[1][-1:] != () and path[1][-1][0] == "item" and isinstance(path[1][-1][1], str)


def _records(event: Forward) -> bool:
    """Whether a pass in evaluation records a graph."""
    return event.evaluating is True and event.trainable and event.mode is Mode.ON


def _called(event: Forward, module: Module) -> str:
    """The network that a pass runs, as it is written."""
    return module.code(event.node.func) if isinstance(event.node, cst.Call) else ""


def _is_named(event: Forward, module: Module) -> bool:
    """Whether what a call of a network gives, or a part of it, gets a local name as it is, with its graph."""
    statement = module.walk.statement_of(event.node)
    value = statement.value if isinstance(statement, cst.Assign) else None
    while isinstance(value, cst.Subscript | cst.Attribute):
        value = value.value
    return value is event.node and _stays(event, module.walk.scope_at(event.node), module)


def _stays(event: Forward, scope: Scope, module: Module) -> bool:
    """Whether what a call of a network gives is bound to local names, or used up where it stands."""
    statement = module.walk.statement_of(event.node)
    targets = [target.target for target in statement.targets] if isinstance(statement, cst.Assign) else []
    parts = [part for target in targets for part in parts_of(target)]
    bound = [part.value if isinstance(part, cst.BaseElement) else part for part in parts]
    return all(isinstance(part, cst.Name) and part.value not in scope.outer for part in bound)


def _needed(record: Record) -> frozenset[int]:
    """The passes whose graph is differentiated, or handed to somebody who may."""
    return frozenset().union(*(event.sources for event in record.backwards), *(use.value.all_sources for use in record.uses))


def _turned(around: cst.CSTNode, event: Forward) -> cst.Call | None:
    """The call in the own body of a loop or a function that puts the module of a pass into evaluation, or what holds it; not one that puts another there."""
    func = path_of(event.node.func) if isinstance(event.node, cst.Call) else None
    if func is None:
        return None
    body = around.body if isinstance(around, cst.For | cst.While | cst.FunctionDef) else around
    for node in descend(body, into_scopes=False):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and _is_eval(node):
            module = path_of(node.func.value)
            if module is not None and module[0] == func[0] and func[1][: len(module[1])] == module[1]:
                return node
    return None


def _puts_into_evaluation(scope: Scope) -> bool:
    return any(map(_is_eval, scope.calls))


def _is_eval(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "eval" and not call.args


def _trains(what: str) -> bool:
    """Whether the function that a value was given to trains by its name."""
    word = what.rpartition(" ")[2].lower()
    return what.startswith("given to") and any(part in word for part in ("backward", "optim", "train", "update_param"))
