"""What a loop over batches is for: training, an evaluation, or an evaluation that needs gradients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from oomlint.patterns import pattern

if TYPE_CHECKING:
    from oomlint.model.events import Loop, Record
    from oomlint.model.project import Module

# Names of functions, classes and loaders that evaluate, in snake_case and in CamelCase.
_EVALUATION: Final = pattern(
    r"(^|_)(val|valid|validate|validation|validating|eval|evaluate|evaluation|evaluator|evaluating|test|testing|tester|infer|inference|predict|prediction|predictions|dev)(_|$|\d)"
    r"|(^|[a-z])(Val|Valid|Validate|Validation|Validator|Eval|Evaluate|Evaluation|Evaluator|Test|Tester|Infer|Inference|Predict|Predictor)([A-Z]|$)"
    r"|(^|_)(test|val|valid|validation|eval|dev)_?(data_?)?(loader|set|iter|dl|gen)",
)
_HIDDEN: Final = pattern(r"backward|_hook\b")  # who may differentiate what a model gives, or keep it, out of sight
_TRAINING: Final = pattern(r"(^|_)(train|training|trn|fit)(_|$|\d)", re.IGNORECASE)


def _words_around(record: Record, loop: Loop) -> list[str]:
    """Names that tell what a loop is for: its loader, its function, the functions that lead to it, with their classes."""
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


def named_evaluation(record: Record, loop: Loop) -> bool:
    """Whether a name around a loop says that it evaluates."""
    return any(_EVALUATION.search(word) for word in _words_around(record, loop))


def has_backward(record: Record, loop: Loop) -> bool:
    """Whether gradients are computed in a loop."""
    return any(loop in event.loops for event in record.backwards)


def is_evaluation(record: Record, loop: Loop) -> bool:
    """Whether a loop only looks at what a model gives."""
    if has_backward(record, loop) or loop.begins_training or any(use.what == "step" and loop in use.loops for use in record.uses):
        return False
    states = {event.evaluating for event in record.forwards if loop in event.loops and event.trainable}
    if len(states) == 1 and None not in states:
        return True in states
    if loop.evaluating is not None:
        return loop.evaluating
    if _TRAINING.search(loop.name) or (_TRAINING.search(loop.scope.name) and not _EVALUATION.search(loop.name)):
        return False
    return named_evaluation(record, loop) or _only_looked_at(record, loop)


def learns_nothing(record: Record, loop: Loop) -> bool:
    """Whether a loop differentiates nothing of what a model gives, though that is in the mode for training: it takes features, or statistics of batches."""
    if has_backward(record, loop) or loop.begins_training or any(use.what == "step" and loop in use.loops for use in record.uses):
        return False
    return not (_TRAINING.search(loop.name) or _TRAINING.search(loop.scope.name)) and _only_looked_at(record, loop)


def _only_looked_at(record: Record, loop: Loop) -> bool:
    """Whether what a model gives in a loop is proven to go nowhere that could differentiate it."""
    frame = record.frame
    if not loop.proven or frame is None or frame.scope.yields or loop.scope.yields or not record.complete:
        return False
    if any(_hides(module, record) for module in {frame.module, *(event.module for event in record.forwards)}):
        return False
    sources = {id(event.node) for event in record.forwards if loop in event.loops and event.network}
    if record.backwards and not loop.named:
        return False  # beside a training, steps of one sample may look like batches
    presumed = {id(event.node) for event in record.forwards if event.presumed}
    if any(event.sources <= presumed or event.sources & sources for event in record.backwards):
        return False
    kept = [record.returned, *(store.value for store in record.stores), *(use.value for use in record.uses)]
    return bool(sources) and not any(held.carries and held.all_sources & sources for held in kept)


def _hides(module: Module, record: Record) -> bool:
    """Whether a file speaks of backward passes or hooks beside the passes that were seen."""
    seen = {event.node for event in record.backwards if event.module is module}
    return len(_HIDDEN.findall(module.source.text)) > len(seen)


def wants_gradients(record: Record, loop: Loop) -> bool:
    """Whether an evaluation asks for gradients, or hands a model to somebody who may: an attack, a saliency map, adaptation at test time."""
    return any(use.what in {"gradients", "model given"} and loop in use.loops for use in record.uses)
