"""Buffers: what grows with the batches that a loop goes through, what is put in, and whether it is ever emptied."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.api_names import JOINS
from oomlint.finding import Confidence, Severity
from oomlint.frameworks import DIFFERENTIATES, TRAINING_STEP
from oomlint.memory.buffers.bounds import (
    bounded,
    chunks_of_one,
    few_samples,
    one_batch,
    parts_of_batch,
    parts_of_one,
    picked_samples,
    pieces_of_one,
    rows_on_device,
    stops,
)
from oomlint.memory.buffers.buffer_readers import (
    averaged,
    axes_once_joined,
    class_scores,
    feeds_metric,
    joined_later,
    last_alone,
    needed_again,
    read_on_host,
    thrown_away,
    used_as_tensor,
    used_on_device,
)
from oomlint.memory.buffers.carried import MANY, keeps_each_state, states_kept
from oomlint.memory.buffers.collated import gives_tensor
from oomlint.memory.buffers.growing_loops import accumulates, growing_loops, handing_call, has_new_key, into_array, is_flushed, unrenewed_epochs
from oomlint.memory.buffers.metric_resets import never_reset, unseen_reset
from oomlint.memory.buffers.metric_states import grows, list_metric, on_host
from oomlint.memory.buffers.outside_readers import escapes, runs_of_callers, written_as_json
from oomlint.memory.buffers.step_lists import step_lists, step_records
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.little_networks import keeps_little
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.memory.shared.loop_phases import has_backward, is_evaluation, learns_nothing
from oomlint.memory.shared.seen_axes import NONE, of_same
from oomlint.memory.shared.training_loops import rounds, usual_rounds
from oomlint.model import names
from oomlint.model.readings import AnswerMemory
from oomlint.model.rounds import dependents
from oomlint.model.tensor_state import MAP, Device, Graph, Mode, SampleSize, Storage, TensorState, ValueKind
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Absent, Const
from oomlint.patterns import pattern
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.scopes import LENGTHENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.model.events import Loop, Record, Store, Via
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

OF_OUTPUTS: Final = frozenset({"OOM219", "OOM220"})  # what a loop keeps of each batch, whatever else that is
_FEW_ROUNDS: Final = 16
_CALLERS: Final = 2  # calls that are followed from a method outwards
_MAY_TRAIN: Final = pattern(r"train|step|optim|update|learn|backward|loss|fit|grad|scaler|engine|reduce", re.IGNORECASE)


class Growth(Struct, frozen=True, eq=False):
    """One thing that grows: which rule it belongs to, how grave, and all statements that feed it in the same loop."""

    code: str
    severity: Severity
    confidence: Confidence
    node: cst.CSTNode
    loop: Loop
    stores: tuple[Store, ...]
    record: Record
    freed: bool = False  # a backward pass frees the activations; the nodes stay
    others: tuple[cst.CSTNode, ...] = ()  # where the other stores are told, each as the first one is
    facts: dict[str, object] = field(default_factory=dict)  # "given" to a meter, kept "beside", in an "evaluation"

    @property
    def store(self) -> Store:
        """The first statement."""
        return self.stores[0]


class Buffers:
    """Judges what the records of a module's functions hold."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.runs = runs_of(project)
        self._found: AnswerMemory[str, list[Growth]] = AnswerMemory(project.readings)

    def of(self, module: Module) -> list[Growth]:
        """All that grows in a module, one entry for each loop and rule."""
        return self._found.answer(module.path, lambda: [] if holds_tests(module) else list(self._judge_all(module)))

    def told_as(self, code: str, module: Module) -> Iterator[Growth]:
        """What grows in a module and belongs to one rule."""
        return (growth for growth in self.of(module) if growth.code == code)

    def _judge_all(self, module: Module) -> Iterator[Growth]:
        best: dict[tuple[cst.CSTNode, cst.CSTNode], Growth] = {}  # by where it is told and what stores it: a meter may keep several things
        numbers: set[cst.CSTNode] = set()  # statements that also store what has no graph: a float under another key
        beside: dict[cst.CSTNode, dict[cst.CSTNode, Store]] = {}  # what else a loop collects for each sample, too small to be told of alone
        never = {store.node for one in step_lists(self.project, module) for store in (one.store, *(other.store for other in one.others))}  # OOM206
        records = (*self.runs.of(module), *step_records(self.project, module))
        learnt = frozenset(tag for record in records for event in record.backwards for tag in event.tags)  # what one of the runs differentiates
        for record in records:
            for store in record.stores:
                if store.node in never:
                    continue
                if store.value.carries is Graph.NO and store.mode is not Mode.OFF:
                    numbers.add(store.node)
                growth = self._judge(store, record, module) if id(store.node) not in learnt or store.value.carries is Graph.NO else None
                if growth is not None and written_as_json(store, record, self.runs):
                    continue
                if growth is None:
                    number = all(leaf.size is SampleSize.SCALAR for leaf in store.value.leaves())
                    if store.kind in ADDS and store.module is module and not store.via:
                        for loop in growing_loops(store, record)[-1:]:
                            if not number or store.loops[-1] is not loop:  # one of a batch is none of a sample
                                beside.setdefault(loop.node, {})[store.node] = store
                    continue
                key = (growth.node, store.node if store.via else growth.node)
                known = best.get(key)
                if known is None or (growth.code, growth.severity.rank) < (known.code, known.severity.rank):
                    best[key] = growth
        groups: dict[tuple[str, Severity, cst.CSTNode], list[Growth]] = {}
        grave = {(growth.code, growth.loop.node) for growth in best.values() if growth.code in OF_OUTPUTS and growth.severity is Severity.WARNING}
        for key, growth in list(best.items()):
            lighter = growth.severity is Severity.NOTE and (growth.code, growth.loop.node) in grave
            anywhere = growth.code == "OOM219" and not growth.facts.get("host") and ("OOM220", growth.loop.node) in grave
            if lighter or anywhere:
                del best[key]  # told with what weighs more
                if growth.store.module is module and not growth.store.via:
                    beside.setdefault(growth.loop.node, {})[growth.store.node] = growth.store
                continue
            groups.setdefault((growth.code, growth.severity, growth.loop.node), []).append(growth)
        for group in groups.values():
            group.sort(key=lambda growth: module.tree.span(growth.node))
            first = group[0]
            if first.code in OF_OUTPUTS:
                others = [store for node, store in beside.get(first.loop.node, {}).items() if (node, node) not in best]
                first.facts["beside"] = sorted(others, key=lambda store: module.tree.span(store.node))
            if any(g.store.node in numbers for g in group):
                first.facts["mixed"] = True
            yield replace(first, stores=tuple(g.store for g in group), others=tuple(g.node for g in group[1:]))

    # -- one store -----------------------------------------------------------------------------------------------------

    def _judge(self, store: Store, record: Record, module: Module) -> Growth | None:
        node, meter = self._spot(store, module)
        if node is None:
            return None
        growing = growing_loops(store, record)
        if not growing:
            return self._each_state(store, record, node)
        loop = growing[-1]
        if any(reset.bound and loop in reset.loops and reset.path == store.path[: len(reset.path)] for reset in record.resets):
            return None
        if loop.module is not module:
            return None  # told where the loop stands
        if store.kind == "item" and not has_new_key(store, loop):
            return None
        if store.kind == "metric":
            return self._metric(store, record, loop)
        carries = store.value.carries
        if bounded(store, loop):
            return None
        if carries is Graph.NO and stops(loop):
            return None
        if carries is Graph.YES and store.mode is not Mode.OFF:
            return self._graph(store, record, node, loop, meter=meter)
        if carries is not Graph.NO:
            return None
        if is_flushed(store, record, growing):
            return None
        return self._kept(store, record, node, growing)

    @staticmethod
    def _spot(store: Store, module: Module) -> tuple[cst.CSTNode | None, Via | None]:
        """The node in this module that a finding stands at, and the call of a meter that the store belongs to."""
        meter: Via | None = None
        for via in store.via:
            # A method of another object than the caller's own: a meter, a buffer class.
            if via.this and store.path[: len(via.this)] == via.this and not _is_self(via):
                meter = via
                break
        if meter is not None:
            return (meter.call, meter) if meter.module is module else (None, None)
        handed = handing_call(store)
        if handed is not None and handed.module is module:
            return handed.call, None
        if store.module is module:
            return store.node, None
        for via in reversed(store.via):
            if via.module is module:
                return via.call, None
        return None, None

    # -- a graph is kept -----------------------------------------------------------------------------------------------

    def _graph(self, store: Store, record: Record, node: cst.CSTNode, loop: Loop, *, meter: Via | None) -> Growth | None:
        sources = store.value.all_sources
        tag = id(store.node)
        if any(tag in event.tags for event in record.backwards):
            return None  # the sum or the list is what gets differentiated
        made = [event for event in record.forwards if id(event.node) in sources]
        if made and not any(loop in event.loops for event in made):
            return None  # one pass in front of the loop made the graph: rounds take parts of it
        passes = [event for event in record.backwards if event.sources & sources and loop in event.loops]
        # What the same round differentiates cannot be differentiated once more, whoever is given the list.
        later = store.kind in LENGTHENS | {"item"} and all(event.retain for event in passes)
        if later and any(tag in use.value.all_tags and _may_train(use.what) for use in record.uses):
            return None
        evaluation = is_evaluation(record, loop)
        if meter is None and (_goes_backward_by_attribute(store) or (not evaluation and self._differentiated_elsewhere(store, record))):
            return None
        handed = [use for use in record.uses if loop in use.loops and use.value.all_sources & sources and _may_train(use.what)]
        freed = bool(passes or handed) and not any(event.retain for event in passes)
        seen = evaluation or record.backwards or handed or loop.evaluating
        if not seen and (tag in record.returned.all_tags or not loop.batches or escapes(store, loop)):
            return None  # neither an evaluation nor a backward pass in sight: whoever calls this may differentiate the result
        if store.kind == "augment" or (store.kind == "concat" and store.value.size is SampleSize.SCALAR):
            code = "OOM201"
        elif store.kind == "concat":
            return None
        else:
            code = "OOM205" if any(leaf.graph is Graph.YES and leaf.moved.endswith(")") for leaf in store.value.leaves()) else "OOM202"
        if meter is not None:
            code = "OOM203"
        if freed and accumulates(store, record, loop):
            return None  # the nodes of a few steps, which is what such a sum is for
        severity = Severity.WARNING if freed else Severity.ERROR
        if code == "OOM202" and not freed and loop.loader is None and made and all(keeps_little(self.project, event) for event in made):
            severity = Severity.NOTE  # one sample a round through a few narrow layers
        confidence = Confidence.HIGH if loop.loader is not None and any(f.known for f in record.forwards if id(f.node) in sources) else Confidence.MEDIUM
        facts: dict[str, object] = {"given": dict(meter.given)} if meter is not None else {}
        return Growth(code, severity, confidence, node, loop, (store,), record, freed, facts=facts)

    def _metric(self, store: Store, record: Record, loop: Loop) -> Growth | None:
        if not list_metric(store) or store.value.carries is not Graph.YES or store.mode is Mode.OFF:
            epochs = unrenewed_epochs(store, record) if grows(store.before.value) else None
            if epochs is not None and unseen_reset(store, epochs, self.project):
                return None
            if epochs is None and isinstance(loop.node, cst.FunctionDef) and grows(store.before.value) and never_reset(store, self.project):
                epochs = loop
            if epochs is not None:
                return Growth("OOM223", Severity.ERROR, Confidence.MEDIUM, store.node, epochs, (store,), record)
            return self._maps_in_metric(store, record, loop)
        if any(id(store.node) in event.tags for event in record.backwards):
            return None
        freed = any(event.sources & store.value.all_sources and loop in event.loops for event in record.backwards)
        return Growth("OOM213", Severity.ERROR, Confidence.HIGH if loop.loader else Confidence.MEDIUM, store.node, loop, (store,), record, freed)

    @staticmethod
    def _maps_in_metric(store: Store, record: Record, loop: Loop) -> Growth | None:
        """What a metric keeps of each sample until the loop is through: a map has a score for each pixel, other samples have one or a few."""
        maps = [leaf for leaf in store.value.leaves() if leaf.size is SampleSize.DENSE and leaf.dims >= MAP]
        if not maps or not loop.batches or not grows(store.before.value):
            return None
        code = "OOM220" if any(leaf.device is Device.ACCELERATOR for leaf in maps) and not on_host(store.before.value) else "OOM219"
        return Growth(code, Severity.WARNING, Confidence.MEDIUM, store.node, loop, (store,), record, facts={"host": code == "OOM219", "metric": True})

    def _differentiated_elsewhere(self, store: Store, record: Record) -> bool:
        """Whether a caller, or another method of the object, may compute gradients of what is collected."""
        if any(id(store.node) in event.tags for other in runs_of_callers(store, record, self.runs) for event in other.backwards):
            return True
        if not store.attributes:
            return False
        attribute = store.attributes[0]
        for scope in store.module.walk.scopes:
            if scope is store.scope or not isinstance(scope.node, cst.FunctionDef) or scope.name == "__init__":
                continue
            read = any(isinstance(part, cst.Attribute) and part.attr.value == attribute and not self._is_called(part, store.module) for part in scope.nodes())
            if read and self._learns(store.module, scope):
                return True
        return False

    def _learns(self, module: Module, scope: Scope, depth: int = 0) -> bool:
        """Whether a function goes backward, or who calls it does: a method makes a loss of what others collected, and its caller differentiates it."""
        if scope.name == TRAINING_STEP or any(names.last_name(call.func) in DIFFERENTIATES for call in scope.calls):
            return True
        return depth < _CALLERS and any(self._learns(site.module, site.scope, depth + 1) for site in self.runs.evaluator.calls.sites(module, scope, most=4))

    @staticmethod
    def _is_called(node: cst.Attribute, module: Module) -> bool:
        above = module.walk.parents.get(node)
        return isinstance(above, cst.Call) and above.func is node

    # -- no graph, but kept --------------------------------------------------------------------------------------------

    def _kept(self, store: Store, record: Record, node: cst.CSTNode, growing: Sequence[Loop]) -> Growth | None:
        loop = growing[-1]
        if store.kind in {"augment", "concat"}:
            return None
        leaves = [leaf for leaf in store.value.leaves() if leaf.weighs]
        if not leaves and loop.batches and joined_later(store, loop, self.runs.evaluator):
            leaves = [leaf for leaf in store.value.leaves() if leaf.kind is ValueKind.UNKNOWN and leaf.size is SampleSize.DENSE]  # tensors, as it turns out
        if not leaves:
            return None
        if _loaded_here(store, self.project):
            leaves = [leaf.having(storage=Storage.OWN) if leaf.storage is Storage.LOADER else leaf for leaf in leaves]
        owned = [leaf for leaf in leaves if leaf.storage is Storage.LOADER and leaf.device is not Device.ACCELERATOR]
        if owned:
            found = self._loader_owned(store, record, node, owned)
            if found is not None:
                return found
        if _goes_on(store, record, loop) or not any(one.batches for one in growing):
            return None
        if store.kind == "append" and has_backward(record, loop) and (latest := last_alone(store)) and self._has_axes(store, leaves, latest):
            return Growth("OOM206", Severity.WARNING, Confidence.MEDIUM, node, loop, (store,), record, facts={"latest": latest})
        off = store.mode is Mode.OFF or any(loop in event.loops and event.mode is Mode.OFF for event in record.forwards)
        evaluation = is_evaluation(record, loop) or (off and not has_backward(record, loop)) or learns_nothing(record, loop)
        dense = [leaf for leaf in leaves if leaf.size is SampleSize.DENSE and (leaf.storage is not Storage.LOADER or leaf.device is Device.ACCELERATOR)]
        one_sample = loop.loader is None and any(outer.holds and not outer.epochs for outer in loop.around)
        one_sample = one_sample or (len(growing) == 1 and parts_of_batch(loop, self.runs.evaluator))
        of_batch = dense and not store.attributes and store.loops[0] is loop and one_batch(loop, self.project)
        of_batch = of_batch or (len(growing) == 1 and rows_on_device(loop, self.runs.evaluator))
        shown = of_same(store.module, store.scope, store.expression) if store.expression is not None else NONE
        if shown.is_number or one_sample or of_batch or parts_of_one(loop) or few_samples(loop, self.runs.evaluator) or self._few_rounds(loop):
            dense = []  # few, the parts of one sample at a time, or the samples of one batch
        device = any(leaf.device is Device.ACCELERATOR for leaf in dense)
        maps = any(leaf.dims >= MAP for leaf in dense)  # a metric can take these batch by batch: by a histogram of the scores, by counts
        spared = bool(dense) and ((not maps and feeds_metric(store, loop, self.runs.evaluator)) or averaged(store, loop, self.runs.evaluator))
        few = bool(dense) and not maps and class_scores(store, loop, self.runs.evaluator)  # for each sample as many numbers as there are classes
        returned = id(store.node) in record.returned.all_tags
        few = few or (chunks_of_one(loop) and (returned or joined_later(store, loop, self.runs.evaluator))) or all(map(self._usually_few, growing))
        few = few or (not store.attributes and (pieces_of_one(loop, self.runs.evaluator) or needed_again(store, loop, self.runs.evaluator)))
        # One row of numbers a sample weighs little: what has two axes or more, a map or a sequence, is told of.
        large = maps or (bool(dense) and max(shown.least, axes_once_joined(store, loop, self.runs.evaluator)) >= MAP)
        severity = Severity.WARNING if large and not few else Severity.NOTE
        if dense and device and not spared and (evaluation or has_backward(record, loop)) and self._may_go(store, record, loop, dense):
            if thrown_away(store, loop) is not None:
                severity = Severity.WARNING  # whoever wrote the copy believes that the host has it
            return Growth("OOM220", severity, Confidence.MEDIUM, node, loop, (store,), record, facts={"evaluation": evaluation})
        if evaluation and dense and not device and not spared:
            host = all(leaf.device is Device.HOST for leaf in dense)
            return Growth("OOM219", severity, Confidence.MEDIUM, node, loop, (store,), record, facts={"host": host})
        views = [leaf for leaf in leaves if leaf.view and leaf.sure and leaf.size is not SampleSize.SCALAR]
        if views and not feeds_metric(store, loop, self.runs.evaluator) and not into_array(store, self.project):
            return Growth("OOM208", Severity.WARNING, Confidence.MEDIUM, node, loop, (store,), record)
        return None

    def _has_axes(self, store: Store, leaves: list[TensorState], latest: list[cst.Subscript]) -> bool:
        """Whether the entries of a list are known to be more than a number each: numbers cannot be concatenated."""
        if any(leaf.size is SampleSize.DENSE for leaf in leaves):
            return True
        arguments_of = (store.module.walk.parents.get(read) for read in latest)
        calls = (store.module.walk.parents.get(arg) for arg in arguments_of if isinstance(arg, cst.Arg))
        return any(isinstance(call, cst.Call) and names.last_name(call.func) in JOINS for call in calls)

    def _each_state(self, store: Store, record: Record, node: cst.CSTNode) -> Growth | None:
        """What a loop keeps that carries a state from round to round, by the number of its rounds."""
        loop = keeps_each_state(store, record)
        count = states_kept(self.project, loop) if loop is not None else None
        if loop is None or loop.module is not store.module or (count is not None and count < MANY):
            return None
        severity = Severity.WARNING if count is not None else Severity.NOTE
        return Growth("OOM220", severity, Confidence.MEDIUM, node, loop, (store,), record, facts={"rounds": count, "carried": True})

    def _few_rounds(self, loop: Loop) -> bool:
        """Whether the code says how often the loop goes round: for each of a few classes, for some batches to look at."""
        if not isinstance(loop.node, cst.For | cst.CompFor):
            return False
        count = rounds(self.project, loop.node, loop.module, loop.scope)
        return count is not None and (count <= _FEW_ROUNDS or constructions_of(self.project).is_written_out(loop.module, loop.node.iter))

    def _usually_few(self, loop: Loop) -> bool:
        """Whether a loop goes round a few times unless somebody asks for more: as often as an option says whose default is small."""
        if not isinstance(loop.node, cst.For | cst.CompFor) or loop.loader is not None:
            return False
        count = usual_rounds(self.project, loop.node, loop.module, loop.scope)
        return count is not None and count <= _FEW_ROUNDS

    def _may_go(self, store: Store, record: Record, loop: Loop, dense: list[TensorState]) -> bool:
        """Whether what is kept need not be there: it ends on the host, or maps of all samples wait until the end for what each step could do."""
        evaluator = self.runs.evaluator
        if read_on_host(store, loop, evaluator):
            return True
        maps = any(leaf.dims >= MAP for leaf in dense)  # the classes of a sample are few numbers
        return maps and joined_later(store, loop, evaluator) and not used_on_device(store, record, loop, evaluator)

    def _loader_owned(self, store: Store, record: Record, node: cst.CSTNode, owned: list[TensorState]) -> Growth | None:
        loop = next((loop for loop in reversed(store.loops) if isinstance(loop.loader, LoaderLike)), None)
        if loop is None:
            return None
        tensor = any(leaf.sure for leaf in owned) or used_as_tensor(store, record, loop, self.runs.evaluator)
        inside = store.loops[store.loops.index(loop) :]
        if not tensor and not (store.expression is not None and gives_tensor(self.project, inside, store.expression)):
            return None
        like = loop.loader
        if not isinstance(like, LoaderLike) or few_samples(loop, self.runs.evaluator) or self._few_rounds(loop):
            return None
        counted = like.known and bool(like.workers) and all(isinstance(alt.value, Const) and alt.value.value not in {0, None} for alt in like.workers)
        known = counted and not picked_samples(loop, self.runs.evaluator)  # of as few as may be, descriptors need not run out
        severity = Severity.ERROR if known else Severity.WARNING
        return Growth("OOM207", severity, Confidence.HIGH if known else Confidence.MEDIUM, node, loop, (store,), record)


def _goes_backward_by_attribute(store: Store) -> bool:
    """Whether what is stored goes on into an attribute that goes backward.

    A method adds up ``self.loss``, and whoever trains calls ``self.loss.backward()``.
    """
    target = names.dotted(store.target) if isinstance(store.target, cst.Name | cst.Attribute) else ""
    given = dependents(store.scope, [target]) if target else frozenset()
    attributes = {name.rpartition(".")[2] for name in given if "." in name}
    calls = (call.func for scope in store.module.walk.scopes for call in scope.calls) if attributes else ()
    receivers = (func.value for func in calls if isinstance(func, cst.Attribute) and func.attr.value == "backward")
    return any(isinstance(one, cst.Attribute) and one.attr.value in attributes for one in receivers)


def _goes_on(store: Store, record: Record, loop: Loop) -> bool:
    """Whether a loop around runs a module on all that was kept: the parts of one sample, which another part of the network joins."""
    return any(id(store.node) in event.tags and loop not in event.loops and event.loops and event.loops[-1] in loop.around for event in record.forwards)


def _loaded_here(store: Store, project: Project) -> bool:
    """Whether the loader gives tensors of this process: it has no workers, or copies what they made."""
    likes = [loop.loader for loop in store.loops if isinstance(loop.loader, LoaderLike)]
    return bool(likes) and (likes[-1].without_workers or (likes[-1].known and _pins(likes[-1], project)))


def _is_self(via: Via) -> bool:
    """Whether a call is of the caller's own object: `self.step(batch)`."""
    func = via.call.func
    return isinstance(func, cst.Attribute) and (
        (isinstance(func.value, cst.Name) and func.value.value in {"self", "cls"})
        or (isinstance(func.value, cst.Call) and names.last_name(func.value.func) == "super")
    )


def _may_train(what: str) -> bool:
    """Whether the function that a value was given to may differentiate it."""
    return what.startswith("given to") and _MAY_TRAIN.search(what.rpartition(" ")[2]) is not None


def _pins(like: LoaderLike, project: Project) -> bool:
    """Whether a loader hands over copies in pinned memory, or may."""
    given = loaders_of(project).argument(like.loader, "pin_memory", like.frame) if like.loader is not None else []
    return any(not isinstance(alt.value, Absent) and alt.value != Const(value=False) for alt in given)


def buffers_of(project: Project) -> Buffers:
    """The buffers of a project."""
    return project.shared(Buffers)
