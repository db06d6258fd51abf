"""Lists that a module fills in its forward pass, or a Lightning module in its steps, and whether anything empties them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.frameworks import BATCH_HOOK, HUGGING_FACE_TRAINERS, STAGES, START_HOOKS, TRAINING_STEP
from oomlint.memory.buffers.bounds import counted
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.displays import is_new
from oomlint.model.events import Store
from oomlint.model.lifetime import endings_from_outside, endings_of, is_first_only, runs_once
from oomlint.model.reach import path_conditions
from oomlint.model.tensor_state import Graph, Mode, SampleSize, ValueKind
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.nodes import is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.events import Record
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


class StepList(Struct, frozen=True):
    """A list of an object that every batch adds to and nothing empties."""

    name: str
    store: Store
    record: Record
    cls: ClassRef
    stage: str  # "train", "validation", "test", "predict", or "forward": whatever runs the module
    step: Scope
    graph: bool
    others: tuple[StepList, ...] = ()  # further lists that the same method fills


def _is_lightning(project: Project, cls: ClassRef) -> bool:
    """Whether a class is a Lightning module."""
    evaluator = runs_of(project).evaluator
    return any(
        isinstance(base, External) and (base.name.endswith("LightningModule") or (base.name.endswith("Callback") and "lightning" in base.name))
        for base in evaluator.lineage(cls)
    )


def steps_of(project: Project, module: Module) -> Iterator[tuple[ClassRef, Scope]]:
    """Methods that Lightning calls for each batch."""
    for scope in module.walk.scopes:
        if scope.is_class and any(BATCH_HOOK.match(child.name) for child in scope.children):
            cls = ClassRef(module, scope)
            if _is_lightning(project, cls):
                for child in scope.children:
                    if BATCH_HOOK.match(child.name) and isinstance(child.node, cst.FunctionDef):
                        yield cls, child


def _forwards_of(project: Project, module: Module) -> Iterator[tuple[ClassRef, Scope]]:
    """Forward passes that put something into a list of the module itself."""
    evaluator = runs_of(project).evaluator
    for scope in module.walk.scopes:
        forward = scope.child("forward") if scope.is_class else None
        this = names.self_name(forward) if forward is not None else None
        if forward is None or not any(effect.kind in ADDS and effect.path for effect in forward.effects.get(this or "", ())):
            continue
        cls = ClassRef(module, scope)
        if isinstance(forward.node, cst.FunctionDef) and evaluator.derives(cls, "torch.nn.Module") and not _is_lightning(project, cls):
            yield cls, forward


def step_records(project: Project, module: Module) -> Iterator[Record]:
    """What each step of a module's classes does, with what it returns as a store where a hook is handed the outputs of the epoch."""
    runs = runs_of(project)
    for cls, step in steps_of(project, module):
        record = runs.step(module, step)
        yield record
        handed = _handed_outputs(project, cls, step, record)
        if handed is not None:
            yield replace(record, stores=[handed])
    for loss in _trainer_steps(project, module, "compute_loss"):
        yield runs.step(module, loss, position=2)
    for step in _trainer_steps(project, module, TRAINING_STEP):
        record = runs.step(module, step, position=2, differentiated=False)
        # The trainer adds what a step returns, by whichever way, to the loss that it logs.
        path = (("outputs", TRAINING_STEP),)
        added = [
            Store(statement, module, step, (record.loops[0],), (), Mode.ON, (), "augment", path, held, statement.value)
            for statement, held in record.returns.items()
            if statement.value is not None and record.loops
        ]
        yield replace(record, stores=added)


def _trainer_steps(project: Project, module: Module, name: str) -> Iterator[Scope]:
    """Methods of a class that derives from the trainer of transformers, which take over what its own does for each batch of the training."""
    for scope in module.walk.scopes:
        step = scope.child(name) if scope.is_class else None
        if step is not None and isinstance(step.node, cst.FunctionDef):
            cls = ClassRef(module, scope)
            if any(isinstance(base, External) and base.name in HUGGING_FACE_TRAINERS for base in runs_of(project).evaluator.lineage(cls)):
                yield step


def _handed_outputs(project: Project, cls: ClassRef, step: Scope, record: Record) -> Store | None:
    """What a step returns, where Lightning (before 2.0) collects it for a hook of the class, or of one above or below it, that reads it."""
    stage = step.name.removesuffix("_step")
    returned = next((statement for statement in step.returns if statement.value is not None), None)
    hook = f"{stage}_epoch_end"
    if stage not in {"training", "validation", "test"} or returned is None or not _reads_outputs(project, cls, hook):
        return None
    if _gives_other(project, cls, f"{stage}_step_end"):
        return None
    value = record.returned.unrecorded() if stage == "training" else record.returned  # what the epoch keeps of a training step is detached
    loop = record.loops[0]
    return Store(returned, cls.module, step, (loop,), (), Mode.OFF, (), "append", (("outputs", hook),), value, returned.value)


def _reads_outputs(project: Project, cls: ClassRef, hook: str) -> bool:
    """Whether a hook of the class, or of one above or below it, reads the outputs that it is handed."""
    for one in runs_of(project).evaluator.line(cls):
        for method in one.scope.children:
            params = names.parameter_names(method) if method.name == hook and method.is_function else []
            if len(params) > 1 and method.named(params[1]):
                return True
    return False


def _gives_other(project: Project, cls: ClassRef, hook: str) -> bool:
    """Whether a hook of the class, or of one above or below it, puts something else in the place of what a step returns."""
    for one in runs_of(project).evaluator.line(cls):
        method = one.scope.child(hook)
        params = names.parameter_names(method) if method is not None and method.is_function else []
        if method is not None and len(params) > 1:
            given = [statement.value for statement in method.returns]
            return not any(isinstance(value, cst.Name) and value.value == params[1] for value in given)
    return False


def step_lists(project: Project, module: Module) -> list[StepList]:
    """Lists that the steps of a module's classes fill and nobody empties; what stands in for a network in a test keeps what it is asked."""
    if holds_tests(module):
        return []
    runs = runs_of(project)
    found: dict[tuple[Scope, str], StepList] = {}
    for cls, step in (*steps_of(project, module), *_forwards_of(project, module)):
        record = runs.step(module, step)
        for store in record.stores:
            if store.kind not in ADDS or len(store.path) < 2 or store.module is not module:  # noqa: PLR2004 - self and an attribute
                continue
            root, name = store.path[0], store.path[1]
            if root != (0, names.self_name(step)) or not isinstance(name, str):
                continue
            if store.before.moved == "bounded" or not _matters(store) or (cls.scope, name) in found or counted(store):
                continue
            forward = step.name == "forward"
            if (forward and (_asked_for(store, step) or not _made_once(cls, name))) or emptied(project, cls, name):
                continue
            match = BATCH_HOOK.match(step.name)
            stage = STAGES[next(group for group in match.groups() if group in STAGES)] if match else "forward" if forward else "train"
            if stage in {"test", "predict"}:
                continue  # one pass, and the run is over
            graph = store.value.carries is Graph.YES and store.mode is not Mode.OFF
            found[cls.scope, name] = StepList(name, store, record, cls, stage, step, graph)
    first: dict[Scope, StepList] = {}
    for one in found.values():
        known = first.get(one.step)
        first[one.step] = one if known is None else replace(known, others=(*known.others, one))
    return list(first.values())


def _asked_for(store: Store, step: Scope) -> bool:
    """Whether a setting may say that the forward pass keeps it: a test that looks at nothing that the pass itself makes."""
    params = set(names.parameter_names(step))
    for test, _ in path_conditions(store.module.walk, store.scope, store.node):
        used = names_in(test)
        if not any(step.sets(name) and name not in params for name in used):
            return True
    return store.scope is not step


def _made_once(cls: ClassRef, name: str) -> bool:
    """Whether the class makes the attribute as an empty list when it is built: what it is given belongs to somebody else."""
    built = cls.scope.child("__init__")
    effects = built.effects.get(names.self_name(built) or "", ()) if built is not None else ()
    made = [effect.value for effect in effects if effect.kind == "assign" and effect.path == (("attr", name),)]
    return bool(made) and all(is_new(value) for value in made)


def _matters(store: Store) -> bool:
    """Whether what is added is more than a number."""
    return any(
        leaf.tensorlike and (leaf.size is not SampleSize.SCALAR or leaf.graph is Graph.YES or leaf.kind is ValueKind.TENSOR) for leaf in store.value.leaves()
    )


def emptied(project: Project, cls: ClassRef, name: str) -> bool:
    """Whether some method of the class, or of one above or below it, makes the attribute again or empties it."""
    evaluator = runs_of(project).evaluator
    for ending in endings_of(cls, name, evaluator):
        method = ending.scope
        again = method.parent is not None and not runs_once(method, ClassRef(ending.module, method.parent), project)
        if again and not is_first_only(ending, (names.self_name(method) or "", (("attr", name),)), method.node):
            return True
    methods = (method for one in evaluator.line(cls) for method in one.scope.children if method.is_function and method.name not in START_HOOKS)
    return any(_aliased(method, name) for method in methods) or any(True for _ in endings_from_outside(name, project, cls.module.path))


def _aliased(method: Scope, name: str) -> bool:
    """Whether a method goes through several lists, this one among them, and empties what it goes through."""
    empties = any(
        isinstance(call.func, cst.Attribute) and call.func.attr.value in {"clear", "pop"} and not is_attribute_of(call.func.value, "self")
        for call in method.calls
    )
    if not empties and not any(names.last_name(call.func) in {"setattr", "delattr"} for call in method.calls):
        return False
    words = {node.attr.value for node in method.nodes() if isinstance(node, cst.Attribute)}
    texts = {node.raw_value for node in method.nodes() if isinstance(node, cst.SimpleString)}
    return name in words or name in texts
