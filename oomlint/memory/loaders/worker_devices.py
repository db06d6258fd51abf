"""What worker processes do with an accelerator: samples that are moved there, or taken from there, by a dataset or a collate function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import READS_SAMPLES
from oomlint.finding import Consequence, Message, Multiplier, Resource, Told, Weighs
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.facts import dataset_facts, loader_fact
from oomlint.memory.loaders.loader_calls import confidence_of, evaluator_of, loaders_of, story_places
from oomlint.memory.shared.start_methods import start_methods
from oomlint.model import arguments, names
from oomlint.model.reach import path_conditions
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Bound, Const, ExternalCall, Frame, FunctionRef, Instance, SourceExpression, assumptions
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import LoaderUse
    from oomlint.memory.shared.start_methods import StartMethods
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Value
    from oomlint.syntax.scopes import Scope

_CONTEXTS: Final = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.WORKERS,))  # of CUDA
_DEEPEST: Final = 3  # calls from a method that reads a sample to one that moves it
_MOST_RELATED: Final = 5


def touches(module: Module, project: Project) -> Iterator[Told]:
    """Loaders of the module with workers whose dataset or collate function uses CUDA; one case a loader."""
    loaders = loaders_of(project)
    for loader in loaders.of(module) if not holds_tests(module) else ():
        found = next((touch for use in loaders.uses(loader) for touch in _of_use(use, project)), None)
        if found is not None:
            yield found


def _of_use(use: LoaderUse, project: Project) -> Iterator[Told]:
    loaders, evaluator, loader, frame = loaders_of(project), evaluator_of(project), use.loader, use.frame
    numbers = [alt for alt in loaders.workers(loader, frame) if isinstance(alt.value, Const) and _positive(alt.value.value)]
    workers = min((alt for alt in numbers if alt.under(use.picks) is not None), key=lambda alt: alt.reach, default=None)
    if workers is None:
        return
    place, methods = loader.module.place(loader.call), start_methods(loaders, loader, frame)
    for alt in loaders.argument(loader, "collate_fn", frame):
        called = _called(alt.value, evaluator)
        spot = _in_function(called, evaluator) if called is not None else None
        if spot is not None and called is not None:
            related = (spot, *story_places(place, workers, alt))[:_MOST_RELATED]
            facts: list[Fact] = [loader_fact(loader, [workers], "collate_fn", methods)]
            by = called.this.cls.scope.name if called.this is not None else called.scope.name
            yield _touch(place, f"`{by}`", workers, methods, related, facts)
    for dataset in datasets_of(project).of(loaders, loader, frame):
        by, spot = _in_dataset(dataset, evaluator)
        if spot is not None:
            related = (spot, *story_places(place, workers))[:_MOST_RELATED]
            facts = [loader_fact(loader, [workers], "", methods), *dataset_facts(dataset)]
            yield _touch(place, by, workers, methods, related, facts)


def _touch(place: Place, by: str, workers: Alternative, methods: StartMethods, related: tuple[Place, ...], facts: list[Fact]) -> Told:
    raises = "a forked worker raises RuntimeError at its first sample"
    if methods.only_pickles:
        how = "each worker creates its own CUDA context on the device"
    elif "fork" in methods.counted and not methods.pickles:
        how = raises
    else:
        how = f"{raises}, and a spawned one creates its own CUDA context"
    message, confidence = Message(f"{by} uses CUDA in worker processes", how), confidence_of(assumptions(workers) + workers.reach)
    weighs = _CONTEXTS if methods.only_pickles else None
    return Told(place, message, confidence=confidence, related=related, facts=tuple(facts), weighs=weighs)


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _in_dataset(dataset: Dataset, evaluator: Evaluator) -> tuple[str, Place | None]:
    """Who uses CUDA for a sample, and where; what a wrapper reads counts, too."""
    for inner in dataset.inner:
        by, spot = _in_dataset(inner, evaluator)
        if spot is not None:
            return by, spot
    instance = dataset.instance
    for name in sorted(READS_SAMPLES) if instance is not None else ():
        method = evaluator.method(instance, name) if instance is not None else None
        spot = _in_function(method, evaluator) if method is not None else None
        if spot is not None and instance is not None:
            return f"`{instance.cls.scope.name}.{name}`", spot
    return "", None


def _called(value: Value, evaluator: Evaluator) -> FunctionRef | None:
    """The function of the project that a call of a value runs: of an object, its `__call__`."""
    if isinstance(value, Instance):
        return evaluator.method(value, "__call__")
    return value if isinstance(value, FunctionRef) else None


def _in_function(function: FunctionRef, evaluator: Evaluator, bound: tuple[Bound, ...] | None = None, seen: frozenset[Scope] = frozenset()) -> Place | None:
    """Where a function, or what it calls of the project, an object of one's own included, uses CUDA whatever it is given."""
    scope, module, this = function.scope, function.module, function.this
    if scope in seen or len(seen) >= _DEEPEST:
        return None
    frame = Frame(module, scope, bound, this)
    own = names.self_name(scope)
    for call in scope.calls:
        if any(True for _ in path_conditions(module.walk, scope, call)):
            continue  # a test may say that there are no workers, or no accelerator
        if _uses_cuda(call, frame, evaluator):
            return module.place(call, "CUDA is used here, in a worker")
        for alt in evaluator.callees(call, frame)[:1]:
            called = _called(alt.value, evaluator)
            spot = _in_function(called, evaluator, (Bound(tuple(call.args), frame, call),), seen | {scope}) if called is not None else None
            if spot is not None:
                return spot
    moved = _moved(this, evaluator) if this is not None else {}
    for node in scope.nodes() if moved else ():
        held = node.value if isinstance(node, cst.Subscript) else None
        if is_attribute_of(held, own) and held.attr.value in moved:
            return moved[held.attr.value]
    return None


def _moved(this: Instance, evaluator: Evaluator) -> dict[str, Place]:
    """Attributes that the constructor puts on an accelerator."""
    built = evaluator.method(this, "__init__")
    own = names.self_name(built.scope) if built is not None else None
    if built is None or own is None:
        return {}
    frame = evaluator.init_frame(this) or Frame(built.module, built.scope, None, this)
    found: dict[str, Place] = {}
    for effect in built.scope.effects.get(own, ()):
        if effect.kind == "assign" and len(effect.path) == 1 and effect.path[0][0] == "attr" and isinstance(effect.value, cst.Call):
            always = not any(True for _ in path_conditions(built.module.walk, built.scope, effect.value))
            if always and _uses_cuda(effect.value, frame, evaluator):
                found[str(effect.path[0][1])] = built.module.place(effect.value, "this lies on the accelerator, and workers take samples from it")
    return found


def _uses_cuda(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a call puts a tensor on a CUDA device: `.cuda()`, `.to(device)`, `torch.zeros(..., device=device)`."""
    if isinstance(call.func, cst.Attribute):
        word = call.func.attr.value
        if word == "cuda":
            return True
        if word == "to":
            return any(_is_cuda(arg.value, frame, evaluator) for arg in call.args if arg.keyword is None or arg.keyword.value == "device")
    if names.dotted(call.func).startswith("torch."):
        return (given := arguments.named(call, "device", "map_location")) is not None and _is_cuda(given, frame, evaluator)
    return False


def _is_cuda(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator, depth: int = 0) -> bool:
    """Whether an expression may be a CUDA device."""
    for alt in evaluator.values(node, frame)[:4]:
        value = alt.value
        if isinstance(value, Const) and isinstance(value.value, str) and value.value.startswith("cuda"):
            return True
        if isinstance(value, SourceExpression) and _begins(value.node).startswith("cuda"):
            return True
        if isinstance(value, ExternalCall) and value.name == "torch.device" and value.call.args and depth < _DEEPEST:
            return _is_cuda(value.call.args[0].value, value.frame, evaluator, depth + 1)
    return False


def _begins(node: cst.CSTNode) -> str:
    """The text that a string begins with, of whatever it ends in: ``f"cuda:{rank}"``, ``"cuda:" + number``."""
    while isinstance(node, cst.BinaryOperation):
        node = node.left
    if isinstance(node, cst.FormattedString):
        return node.parts[0].value if node.parts and isinstance(node.parts[0], cst.FormattedStringText) else ""
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return text if isinstance(text, str) else ""
