"""Buffers: what grows with the batches that a loop goes through, what is put in, and whether it is ever emptied."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Severity
from oomlint.memory.bounds import bounded, few_samples, stops
from oomlint.memory.iteration import LoaderLike, is_epoch_loop, is_test
from oomlint.memory.runs import runs_of
from oomlint.model import names
from oomlint.model.held import Device, Graph, Held, Kind, Mode, Size, Storage
from oomlint.model.values import Const, External, ExternalCall
from oomlint.syntax.walk import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.events import Event, Loop, Record, Reset, Store, Via
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

EVALUATION: Final = re.compile(
    r"(^|_)(val|valid|validate|validation|validating|eval|evaluate|evaluation|evaluator|evaluating|test|testing|tester|infer|inference|predict|prediction|predictions|dev)(_|$|\d)"
    r"|(^|[a-z])(Val|Valid|Validate|Validation|Validator|Eval|Evaluate|Evaluation|Evaluator|Test|Tester|Infer|Inference|Predict|Predictor)([A-Z]|$)",
)
_TRAINING: Final = re.compile(r"(^|_)(train|training|trn|fit)(_|$|\d)", re.IGNORECASE)
_ATTACKS: Final = re.compile(
    r"attack|adversar|perturb|grad_?cam|saliency|attribut|explain|captum|(^|_)(fgsm|pgd|tta|tent|cw|ig)(_|$)|influence|adapt|fine_?tune|meta", re.IGNORECASE
)
_METRICS: Final = ("sklearn.", "scipy.stats", "scipy.spatial", "torchmetrics.", "pandas.")
_METRIC_NAME: Final = re.compile(
    r"^(?!top_k).*_score$|(^|_)auc|roc_|confusion|classification_report|(^|_)f1|accuracy|precision_recall|(^|_)map(_|$)|ndcg|pearson|spearman|kendall|(^|_)eer(_|$)"
)


@dataclass(frozen=True, slots=True)
class Growth:
    """One thing that grows: which rule it belongs to, how grave, and all statements that feed it in the same loop."""

    code: str
    severity: Severity
    confidence: Confidence
    node: cst.CSTNode
    loop: Loop
    stores: tuple[Store, ...]
    record: Record
    freed: bool = False  # a backward pass frees the activations; the nodes stay
    facts: dict[str, object] = field(default_factory=dict, compare=False)

    @property
    def store(self) -> Store:
        """The first statement."""
        return self.stores[0]

    @property
    def evaluation(self) -> bool:
        """Whether the loop evaluates."""
        return is_evaluation(self.record, self.loop)


def words_around(record: Record, loop: Loop) -> list[str]:
    """Names that tell what a loop is for: its function, its loader, its callers."""
    found = [loop.name, loop.scope.name]
    frame = record.frame
    for _ in range(3):
        if frame is None:
            break
        found.append(frame.scope.name)
        if frame.scope.parent is not None and frame.scope.parent.is_class:
            found.append(frame.scope.parent.name)
        frame = frame.bound[-1].frame if frame.bound else None
    return found


def has_backward(record: Record, loop: Loop) -> bool:
    """Whether gradients are computed in a loop."""
    return any(loop in event.loops for event in record.backwards)


def is_evaluation(record: Record, loop: Loop) -> bool:
    """Whether a loop only looks at what a model gives."""
    if has_backward(record, loop) or any(use.what == "step" and loop in use.loops for use in record.uses):
        return False
    if loop.evaluating is not None:
        return loop.evaluating
    words = words_around(record, loop)
    if _TRAINING.search(loop.name) or (_TRAINING.search(loop.scope.name) and not EVALUATION.search(loop.name)):
        return False
    return any(EVALUATION.search(word) for word in words)


def wants_gradients(record: Record, loop: Loop) -> bool:
    """Whether an evaluation needs gradients: an attack, a saliency map, adaptation at test time."""
    if any(use.what == "gradients" and loop in use.loops for use in record.uses):
        return True
    if any(_ATTACKS.search(word) for word in words_around(record, loop)):
        return True
    return any(isinstance(node, cst.Call) and _ATTACKS.search(names.last_name(node.func)) for node in descend(loop.node.body))


class Buffers:
    """Judges what the records of a module's functions hold."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.runs = runs_of(project)
        self._found: dict[str, list[Growth]] = {}

    def of(self, module: Module) -> list[Growth]:
        """All that grows in a module, one entry for each loop and rule."""
        known = self._found.get(module.path)
        if known is None:
            known = self._found[module.path] = [] if is_test(module) else list(self._judge_all(module))
        return known

    def _judge_all(self, module: Module) -> Iterator[Growth]:
        best: dict[cst.CSTNode, Growth] = {}
        beside: dict[cst.CSTNode, dict[cst.CSTNode, Store]] = {}  # what else a loop collects, too small to be told of alone
        for record in self.runs.of(module):
            for store in record.stores:
                growth = self._judge(store, record, module)
                if growth is None:
                    if store.kind in {"append", "extend"} and store.module is module and not store.via:
                        for loop in self._growing(store, record)[-1:]:
                            beside.setdefault(loop.node, {})[store.node] = store
                    continue
                known = best.get(growth.node)
                if known is None or (growth.code, growth.severity.rank) < (known.code, known.severity.rank):
                    best[growth.node] = growth
        groups: dict[tuple[str, Severity, cst.CSTNode], list[Growth]] = {}
        for growth in best.values():
            groups.setdefault((growth.code, growth.severity, growth.loop.node), []).append(growth)
        for group in groups.values():
            group.sort(key=lambda growth: module.tree.span(growth.node))
            first = group[0]
            if first.code in {"OOM219", "OOM220"}:
                others = [store for node, store in beside.get(first.loop.node, {}).items() if node not in best]
                first.facts["beside"] = sorted(others, key=lambda store: module.tree.span(store.node))
            yield Growth(
                first.code,
                first.severity,
                first.confidence,
                first.node,
                first.loop,
                tuple(g.store for g in group),
                first.record,
                first.freed,
                dict(first.facts),
            )

    # -- one store -----------------------------------------------------------------------------------------------------

    def _judge(self, store: Store, record: Record, module: Module) -> Growth | None:
        node, meter = self._spot(store, module)
        if node is None:
            return None
        growing = self._growing(store, record)
        if not growing:
            return None
        loop = growing[-1]
        if any(reset.bound and loop in reset.loops and reset.path == store.path[: len(reset.path)] for reset in record.resets):
            return None
        if loop.module is not module:
            return None  # told where the loop stands
        if store.kind == "item" and not self._new_key(store, loop):
            return None
        if store.kind == "metric":
            return self._metric(store, record, loop)
        carries = store.value.carries
        if bounded(store, loop):
            return None
        if carries is Graph.NO and stops(loop.node):
            return None
        if carries is Graph.YES and store.mode is not Mode.OFF:
            return self._graph(store, record, node, loop, meter=meter)
        if carries is not Graph.NO or meter:
            return None
        if self._flushed(store, record, growing):
            return None
        return self._kept(store, record, node, loop)

    @staticmethod
    def _spot(store: Store, module: Module) -> tuple[cst.CSTNode | None, Via | None]:
        """The node in this module that a finding stands at, and the call of a meter that the store belongs to."""
        meter: Via | None = None
        for via in store.via:
            # A method of another object than the caller's own: a meter, a buffer class.
            if via.this and len(via.this) >= 1 and store.path[: len(via.this)] == via.this and not _is_self(via):
                meter = via
                break
        if meter is not None:
            return (meter.call, meter) if meter.module is module else (None, None)
        if store.module is module:
            return store.node, None
        for via in reversed(store.via):
            if via.module is module:
                return via.call, None
        return None, None

    def _growing(self, store: Store, record: Record) -> list[Loop]:
        """The loops over batches during which the target is not made anew, the outermost first."""
        root = store.path[0]
        made = record.made.get(root[0], ()) if isinstance(root, tuple) and isinstance(root[0], int) else ()
        found: list[Loop] = []
        for loop in store.loops:
            if loop in made or not self._is_batches(loop, record):
                continue
            if any(self._renews(reset, store, loop) for reset in record.resets):
                continue
            found.append(loop)
        return found

    @staticmethod
    def _renews(reset: Reset, store: Store, loop: Loop) -> bool:
        if loop not in reset.loops or reset.once > reset.loops.index(loop) or reset.bound or reset.tests:
            return False
        if reset.node is store.node:
            return False
        inner = reset.loops[reset.loops.index(loop) + 1 :]
        if any(other.named for other in inner):
            return False
        return reset.path == store.path[: len(reset.path)]

    @staticmethod
    def _flushed(store: Store, record: Record, growing: list[Loop]) -> bool:
        """Whether the target is emptied or cut now and then."""
        return any(
            (reset.path == store.path[: len(reset.path)] or store.path == reset.path[: len(store.path)])
            and any(loop in reset.loops and reset.once <= reset.loops.index(loop) for loop in growing)
            and reset.node is not store.node
            for reset in record.resets
        )

    def _is_batches(self, loop: Loop, record: Record) -> bool:
        if loop.named:
            return True
        if isinstance(loop.node, cst.For) and not is_step_like(loop):
            return False
        if is_epoch_loop(loop.node, loop.module) and any(
            other.named and other is not loop and loop.node in other.module.walk.ancestors(other.node) for other in record.loops
        ):
            return False
        inner = [other for other in record.loops if other is not loop and loop.node in set(other.module.walk.ancestors(other.node))]
        forwards = {id(event.node): event for event in record.forwards}
        for event in record.backwards:
            if loop not in event.loops or not event.known:
                continue
            if any(other in event.loops and (other.named or is_step_like(other)) for other in inner):
                return False
            made = [forwards[source] for source in event.sources if source in forwards]
            if made and any(loop in forward.loops for forward in made):
                return True
        return False

    def _new_key(self, store: Store, loop: Loop) -> bool:
        """Whether the key of ``d[k] = v`` differs from batch to batch."""
        statement = store.node
        if not isinstance(statement, cst.Assign):
            return False
        target = statement.targets[0].target
        if not isinstance(target, cst.Subscript) or not isinstance(target.slice[0].slice, cst.Index):
            return False
        if store.before.kind is not Kind.PACK or store.before.moved == "list":
            return False
        roots = {node.value for node in descend(target.slice[0].slice.value) if isinstance(node, cst.Name)}
        derived = _bound_by(loop.node)
        walk, scope = store.module.walk, store.scope
        if scope is not loop.scope:
            return bool(roots)
        if roots & derived:
            return True
        for _ in range(3):
            for name, effects in scope.effects.items():
                if name != "self" and any(
                    e.value is not None
                    and not e.path
                    and e.kind in {"assign", "for"}
                    and _mentions(e.value, derived)
                    and loop.node in walk.ancestors(e.statement)
                    for e in effects
                ):
                    derived.add(name)
        for name in roots:
            for effect in scope.effects.get(name, ()):
                if loop.node not in walk.ancestors(effect.statement):
                    continue
                if effect.kind == "augment":
                    return True
                if effect.kind == "for" and effect.value is not None:
                    written = effect.value
                    if not _mentions(written, derived):
                        continue
                    if isinstance(written, cst.Call):
                        word = names.last_name(written.func)
                        if word in {"items", "keys", "range"} or (word == "enumerate" and effect.index[:1] == (0,)):
                            continue
                    return True
                if effect.kind == "assign" and effect.value is not None and _mentions(effect.value, derived):
                    return True
        return False

    # -- a graph is kept -----------------------------------------------------------------------------------------------

    def _graph(self, store: Store, record: Record, node: cst.CSTNode, loop: Loop, *, meter: Via | None) -> Growth | None:
        sources = store.value.all_sources
        tag = id(store.node)
        if any(tag in event.tags for event in record.backwards):
            return None  # the sum or the list is what gets differentiated
        if store.kind in {"append", "extend", "item", "augment"} and any(
            tag in use.value.all_tags and use.what.startswith("given to") and _may_train(use.what) for use in record.uses
        ):
            return None
        evaluation = is_evaluation(record, loop)
        if not evaluation and meter is None and self._differentiated_elsewhere(store, record):
            return None
        passes = [event for event in record.backwards if event.sources & sources and loop in event.loops]
        handed = [
            use for use in record.uses if loop in use.loops and use.what.startswith("given to") and use.value.all_sources & sources and _may_train(use.what)
        ]
        freed = bool(passes or handed) and not any(event.retain for event in passes)
        if not passes and not evaluation and not record.backwards and not handed and loop.evaluating is not True:
            # Neither an evaluation nor a backward pass in sight: whoever calls this may differentiate the result.
            if _returns(store, record) or not loop.named:
                return None
        if store.kind == "augment" or (store.kind == "concat" and store.value.size is Size.SCALAR):
            code = "OOM201"
        elif store.kind == "concat":
            return None
        else:
            code = "OOM205" if any(leaf.graph is Graph.YES and leaf.moved.endswith(")") for leaf in store.value.leaves()) else "OOM202"
        if meter is not None:
            code = "OOM203"
        severity = Severity.WARNING if freed else Severity.ERROR
        confidence = Confidence.HIGH if loop.loader is not None and any(f.known for f in record.forwards if id(f.node) in sources) else Confidence.MEDIUM
        facts: dict[str, object] = {"given": dict(meter.given)} if meter is not None else {}
        return Growth(code, severity, confidence, node, loop, (store,), record, freed, facts)

    @staticmethod
    def _metric(store: Store, record: Record, loop: Loop) -> Growth | None:
        if not list_metric(store) or store.value.carries is not Graph.YES or store.mode is Mode.OFF:
            return None
        if any(id(store.node) in event.tags for event in record.backwards):
            return None
        freed = any(event.sources & store.value.all_sources and loop in event.loops for event in record.backwards)
        return Growth("OOM213", Severity.ERROR, Confidence.HIGH if loop.loader else Confidence.MEDIUM, store.node, loop, (store,), record, freed)

    def _differentiated_elsewhere(self, store: Store, record: Record) -> bool:
        """Whether a caller, or another method of the object, may compute gradients of what is collected."""
        tag = id(store.node)
        frame = record.frame
        if frame is not None and tag in record.returned.all_tags:
            for site in self.runs.evaluator.calls.sites(frame.module, frame.scope)[:4]:
                for other in self.runs.records(site.module, site.scope):
                    if any(tag in event.tags for event in other.backwards):
                        return True
        attribute = next((part for part in store.path[1:] if isinstance(part, str) and part != "*"), None)
        if attribute is None:
            return False
        for scope in store.module.walk.scopes:
            if scope is store.scope or not isinstance(scope.node, cst.FunctionDef) or scope.name == "__init__":
                continue
            learns = re.search(r"loss|learn|optimi|finish|backward|reinforce|policy|^update", scope.name, re.IGNORECASE)
            if not learns and not any(names.last_name(call.func) in {"backward", "grad", "manual_backward"} for call in scope.calls):
                continue
            if any(
                isinstance(part, cst.Attribute) and part.attr.value == attribute and not self._is_called(part, store.module) for part in descend(scope.suite)
            ):
                return True
        return False

    @staticmethod
    def _is_called(node: cst.Attribute, module: Module) -> bool:
        above = module.walk.parents.get(node)
        return isinstance(above, cst.Call) and above.func is node

    # -- no graph, but kept --------------------------------------------------------------------------------------------

    def _kept(self, store: Store, record: Record, node: cst.CSTNode, loop: Loop) -> Growth | None:
        if store.kind in {"augment", "concat"}:
            return None
        leaves = [leaf for leaf in store.value.leaves() if leaf.tensorlike]
        if not leaves:
            return None
        owned = [leaf for leaf in leaves if leaf.storage is Storage.LOADER and leaf.device is not Device.ACCELERATOR]
        if owned:
            found = self._loader_owned(store, record, node, owned)
            if found is not None:
                return found
        if not loop.named and not any(other.named for other in store.loops):
            return None
        off = store.mode is Mode.OFF or any(loop in event.loops and event.mode is Mode.OFF for event in record.forwards)
        evaluation = is_evaluation(record, loop) or (off and not has_backward(record, loop))
        dense = [leaf for leaf in leaves if leaf.size is Size.DENSE and (leaf.storage is not Storage.LOADER or leaf.device is Device.ACCELERATOR)]
        if few_samples(loop, self.runs.evaluator):
            dense = []
        device = any(leaf.device is Device.ACCELERATOR for leaf in dense)
        if dense and device and (evaluation or has_backward(record, loop)) and not self._feeds_metric(store, loop) and self._read_on_host(store, loop):
            return Growth("OOM220", Severity.WARNING, Confidence.MEDIUM, node, loop, (store,), record, facts={"evaluation": evaluation})
        if evaluation and dense and not device and not self._feeds_metric(store, loop):
            return Growth("OOM219", Severity.WARNING, Confidence.MEDIUM, node, loop, (store,), record)
        views = [leaf for leaf in leaves if leaf.view and leaf.sure and leaf.size is not Size.SCALAR]
        if views and not self._feeds_metric(store, loop):
            return Growth("OOM208", Severity.WARNING, Confidence.MEDIUM, node, loop, (store,), record)
        return None

    def _loader_owned(self, store: Store, record: Record, node: cst.CSTNode, owned: list[Held]) -> Growth | None:
        loops = [loop for loop in store.loops if isinstance(loop.loader, LoaderLike)]
        if not loops or not (any(leaf.sure for leaf in owned) or self._used_as_tensor(store, record, loops[-1])):
            return None
        loop = loops[-1]
        like = loop.loader
        if not isinstance(like, LoaderLike):
            return None
        if like.known and like.loader is not None and _pins(self.runs.evaluator, like):
            return None
        if like.without_workers:
            return None
        known = like.known and bool(like.workers) and all(isinstance(alt.value, Const) and alt.value.value not in {0, None} for alt in like.workers)
        severity = Severity.ERROR if known else Severity.WARNING
        return Growth("OOM207", severity, Confidence.HIGH if known else Confidence.MEDIUM, node, loop, (store,), record)

    def _used_as_tensor(self, store: Store, record: Record, loop: Loop) -> bool:
        """Whether the element of a batch is used elsewhere as only a tensor can be: a string or a list of numbers would say nothing here."""
        if store.expression is None:
            return False
        spots: list[cst.BaseExpression] = [store.expression]
        while spots:
            node = spots.pop()
            if isinstance(node, cst.Tuple | cst.List):
                spots.extend(element.value for element in node.elements)
            elif isinstance(node, cst.Dict):
                spots.extend(element.value for element in node.elements)
            elif (store.scope, store.module.code(node).strip()) in record.proven:
                return True
            elif isinstance(node, cst.Subscript):
                spots.append(node.value)
        return self._joined_later(store, loop)

    def _joined_later(self, store: Store, loop: Loop) -> bool:
        """Whether the buffer goes to ``torch.cat`` or ``torch.stack``."""
        grown, scope, module = self._names_of(store, loop)
        evaluator = self.runs.evaluator
        for call in scope.calls:
            if names.last_name(call.func) in {"cat", "stack", "vstack", "concat", "hstack"} and call.args and _mentions(call.args[0].value, grown):
                frame = evaluator.calls.plain_frame(module, scope)
                return any(isinstance(alt.value, External) and alt.value.name.startswith("torch.") for alt in evaluator.values(call.func, frame)[:1])
        return False

    @staticmethod
    def _names_of(store: Store, loop: Loop, steps: int = 3) -> tuple[set[object], Scope, Module]:
        """Names and attributes that the buffer goes by after the loop, the function they stand in."""
        root = store.path[0]
        name = root[1] if isinstance(root, tuple) else root
        grown: set[object] = {name, *(part for part in store.path[1:] if isinstance(part, str) and part != "*")} - {"self"}
        scope, module = loop.scope, loop.module
        comprehensions = [node for node in descend(scope.suite, into_scopes=False) if isinstance(node, cst.CompFor)]
        for _ in range(steps):
            fresh: set[object] = set()
            for root_name, effects in scope.effects.items():
                for effect in effects:
                    if effect.value is not None and effect.kind in {"assign", "for"} and _mentions(effect.value, grown):
                        if root_name != "self":
                            fresh.add(root_name)
                        fresh.update(str(part[1]) for part in effect.path if part[0] == "attr")
            for comprehension in comprehensions:
                if _mentions(comprehension.iter, grown):
                    fresh.update(node.value for node in descend(comprehension.target) if isinstance(node, cst.Name))
            grown |= fresh
        return grown, scope, module

    def _read_on_host(self, store: Store, loop: Loop) -> bool:
        """Whether what is collected ends on the host: as arrays, numbers, in a file, or with whoever called."""
        grown, scope, _ = self._names_of(store, loop, 1)
        attributes = {part for part in store.path[1:] if isinstance(part, str) and part != "*"}
        scopes = [scope]
        if attributes:
            scopes += [other for other in store.module.walk.scopes if other is not scope]
        for one in scopes:
            words = grown if one is scope else attributes
            for call in one.calls:
                word = names.last_name(call.func)
                given = any(_mentions(arg.value, words) for arg in call.args)
                if isinstance(call.func, cst.Attribute) and word in {"cpu", "numpy", "tolist"} and _mentions(call.func.value, words):
                    return True
                if given and word in {"save", "savez", "savez_compressed", "dump", "array", "asarray", "to_csv", "savemat", "concatenate", "create_dataset"}:
                    return True
            if any(node.value is not None and _mentions(node.value, words) for node in one.returns):
                return True
        return False

    def _feeds_metric(self, store: Store, loop: Loop) -> bool:
        """Whether what is collected goes to a metric that needs all of it at once."""
        grown, scope, module = self._names_of(store, loop)
        evaluator = self.runs.evaluator
        frame = evaluator.calls.plain_frame(module, scope)
        for call in scope.calls:
            if not any(_mentions(arg.value, grown) for arg in call.args):
                continue
            word = names.last_name(call.func)
            if word.startswith("top_k"):
                continue
            if _METRIC_NAME.search(word):
                return True
            for alt in evaluator.values(call.func, frame)[:2]:
                if isinstance(alt.value, External) and alt.value.name.startswith(_METRICS):
                    return True
        return False


# Metrics that store the very tensors that they are given (torchmetrics 1.9, run): the others count, or change their input under no_grad first.
_LIST_METRICS: Final = re.compile(r"^(CatMetric|SpearmanCorrCoef|CosineSimilarity|CalibrationError|BinaryCalibrationError|MeanAveragePrecision|Retrieval\w+)$")
# Curves store what they are given only for two classes, and only probabilities: logits are made into some under no_grad.
_CURVES: Final = re.compile(
    r"^(Binary)?(AUROC|AveragePrecision|ROC|PrecisionRecallCurve|PrecisionAtFixedRecall|RecallAtFixedPrecision|SpecificityAtSensitivity)$"
)


_UNIT_NAME: Final = re.compile(r"prob|score|sigmoid|softmax|confiden", re.IGNORECASE)


def list_metric(store: Store) -> bool:
    """Whether a torchmetrics object keeps what it is handed here."""
    value = store.before.value
    if not isinstance(value, ExternalCall):
        return False
    unit = any(leaf.moved == "unit" for leaf in store.value.leaves())
    if isinstance(store.node, cst.Call) and store.node.args:
        unit = unit or _UNIT_NAME.search(store.module.code(store.node.args[0].value)) is not None
    return _keeps_all(value.name, value.call, unit=unit)


def _keeps_all(name: str, call: cst.Call, *, unit: bool) -> bool:
    last = name.rpartition(".")[2]
    if last == "MetricCollection":
        inner = [node for arg in call.args for node in descend(arg.value) if isinstance(node, cst.Call)]
        return any(_keeps_all(names.last_name(node.func), node, unit=unit) for node in inner)
    curve = _CURVES.match(last)
    if not curve and not _LIST_METRICS.match(last):
        return False
    given = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    positional = [arg.value for arg in call.args if arg.keyword is None]
    for word in ("thresholds", "compute_on_cpu"):
        if word in given and names.dotted(given[word]) not in {"None", "False"}:
            return False
    if not curve:
        return True
    if not curve.group(1):
        task = given.get("task", positional[0] if positional else None)
        if not isinstance(task, cst.SimpleString) or task.raw_value != "binary":
            return False
    elif positional and curve.group(2) in {"AveragePrecision", "ROC", "PrecisionRecallCurve"}:
        return False  # thresholds come first
    return unit


def is_step_like(loop: Loop) -> bool:
    """Whether a loop counts steps by its code."""
    return isinstance(loop.node, cst.For) and names.last_name(loop.node.iter.func if isinstance(loop.node.iter, cst.Call) else loop.node.iter) in {
        "range",
        "trange",
    }


def _is_self(via: Via) -> bool:
    """Whether a call is of the caller's own object: `self.step(batch)`."""
    func = via.call.func
    return isinstance(func, cst.Attribute) and (
        (isinstance(func.value, cst.Name) and func.value.value in {"self", "cls"})
        or (isinstance(func.value, cst.Call) and names.last_name(func.value.func) == "super")
    )


def _bound_by(loop: cst.For | cst.While) -> set[str]:
    if not isinstance(loop, cst.For):
        return set()
    return {node.value for node in descend(loop.target) if isinstance(node, cst.Name)}


def _may_train(what: str) -> bool:
    word = what.rpartition(" ")[2]
    return re.search(r"train|step|optim|update|learn|backward|loss|fit|grad|scaler|engine|reduce", word, re.IGNORECASE) is not None


def _returns(store: Store, record: Record) -> bool:
    return id(store.node) in record.returned.all_tags


def _mentions(node: cst.CSTNode, words: set[str] | set[object]) -> bool:
    return any((isinstance(part, cst.Name) and part.value in words) or (isinstance(part, cst.Attribute) and part.attr.value in words) for part in descend(node))


def _pins(evaluator: object, like: LoaderLike) -> bool:
    loader = like.loader
    if loader is None:
        return False
    arg = loader.explicit("pin_memory")
    del evaluator
    return arg is not None and names.dotted(arg.value) != "False"


def events_in(events: Iterable[Event], loop: Loop) -> list[Event]:
    """Events inside a loop."""
    return [event for event in events if loop in event.loops]


def buffers_of(project: Project) -> Buffers:
    """The buffers of a project."""
    known = project.memo.get("buffers")
    if known is None:
        known = project.memo["buffers"] = Buffers(project)
    return known  # type: ignore[return-value]


__all__ = ["Buffers", "Growth", "buffers_of", "path_of"]
