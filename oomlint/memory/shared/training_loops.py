"""Loops that training code goes through: what they go over, and how often."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import RANGES, SAMPLES, WRAPPERS
from oomlint.frameworks import BACKWARDS, STEPPED
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import is_epoch_loop, loops_around
from oomlint.model import arguments, names
from oomlint.model.tensor_shapes import measured_axis
from oomlint.model.values import Const, Display, Element, ExternalCall
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.lifetime import Loop
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

SHORT = 10  # rounds that are few enough
_MOST_FRAMES = 4  # calls of a function


def rounds(project: Project, loop: Loop | cst.CompFor, module: Module, scope: Scope, frame: Frame | None = None) -> int | None:
    """How often a loop goes round at most, where the function is called as the frame says; ``None`` where nobody knows."""
    if isinstance(loop, cst.While):
        return None
    containers, plain = datasets_of(project).contents.containers, evaluator_of(project).calls.plain_frame(module, scope)
    counted = containers.count(loop.iter, frame or plain)
    stopped = containers.stopped_at(loop, plain) if isinstance(loop, cst.For) else None
    return counted if stopped is None else min(stopped, counted if counted is not None else stopped)


def usual_rounds(project: Project, loop: cst.For | cst.CompFor, module: Module, scope: Scope) -> int | None:
    """How often a loop goes round where nobody asks for more: by the defaults of options and parameters, and by what all settings beside the code say."""
    evaluator, node = evaluator_of(project), names.iterated(loop.iter, WRAPPERS)
    if isinstance(node, cst.Subscript) and all(isinstance(part.slice, cst.Slice) for part in node.slice):
        node = node.value  # a part of it goes round no more often
    counted = names.last_name(node.func) in RANGES if isinstance(node, cst.Call) else False
    asked = node.args[:2][-1].value if counted and isinstance(node, cst.Call) and node.args else node
    counts: list[int] = []
    for frame in evaluator.calls.frames(module, scope, most=_MOST_FRAMES):
        told = [count for alt in evaluator.values(asked, frame) for count in _told(evaluator, alt.value, counted=counted)]
        if not told and frame.bound is not None:
            return None  # this call may ask for more, however few another one asks for
        counts.extend(told)
    return max(counts, default=None)


def _told(evaluator: Evaluator, value: Value, *, counted: bool) -> Iterator[int]:
    """How many rounds a value tells: the number that is ``counted`` to, or how much there is to go over."""
    if counted and isinstance(value, Const) and isinstance(value.value, int):
        yield value.value
    elif counted and isinstance(value, Element):
        yield from (one.const for one in evaluator.settings.anywhere(value) if isinstance(one.const, int))
    elif not counted and isinstance(value, ExternalCall):
        yield from _drawn(evaluator, value)
    elif not counted and isinstance(value, Display) and isinstance(value.node, cst.List | cst.Tuple) and value.node.elements:
        yield len(value.node.elements)


def _drawn(evaluator: Evaluator, value: ExternalCall) -> Iterator[int]:
    """How many a call draws, where it is told: ``random.sample(names, count)``."""
    asked = arguments.argument_for(value.call, SAMPLES[value.name], place=1) if value.name in SAMPLES else None
    found = evaluator.values(asked, value.frame) if asked is not None else []
    yield from (one.const for one in found if isinstance(one.const, int))


def few_rounds_around(project: Project, node: cst.CSTNode, module: Module, scope: Scope) -> bool:
    """Whether all the rounds of the loops around code in its function are few together, where nobody asks for more."""
    counts = [usual_rounds(project, loop, module, scope) if isinstance(loop, cst.For) else None for loop in loops_around(node, module, scope)]
    return bool(counts) and prod(SHORT + 1 if count is None else count for count in counts) <= SHORT


def along_axis(loop: Loop) -> bool:
    """Whether a loop counts along an axis behind the first of an array, as its channels: ``range(x.shape[1])``, ``range(x.size(1))``."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call) or names.last_name(loop.iter.func) != "range" or len(loop.iter.args) != 1:
        return False
    axis = measured_axis(loop.iter.args[0].value)
    return isinstance(axis, int) and axis > 0


def is_backward(call: cst.Call, module: Module) -> bool:
    """Whether a call is a backward pass or a step of an optimizer."""
    if not isinstance(call.func, cst.Attribute):
        return False
    name = call.func.attr.value
    return name in BACKWARDS or (name == "step" and STEPPED.search(module.code(call.func.value)) is not None)


def trains(loop: Loop, module: Module, *, itself: bool = False) -> bool:
    """Whether a loop's rounds make steps of an optimizer: not those of an epoch loop inside it, which trains a model a round.

    ``itself`` asks for steps in the loop's own body, in no loop inside it.
    """
    for call in descend(loop.body, into_scopes=False):
        if isinstance(call, cst.Call) and is_backward(call, module):
            between = [n for n in module.walk.between(call, loop) if isinstance(n, cst.For | cst.While)]
            if not between or (not itself and not any(is_epoch_loop(inner, module) for inner in between)):
                return True
    return False
