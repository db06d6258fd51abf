"""Loops that training code goes through: what they go over, how often, and what they make again each round."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import WRAPPERS
from oomlint.frameworks import BACKWARDS, STEPPED
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import is_epoch_loop
from oomlint.model import names
from oomlint.model.values import Display, greatest
from oomlint.syntax.nodes import descend, is_attribute_of, names_in, uses_name

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

Loop = cst.For | cst.While
Path = tuple[str, tuple["Accessor", ...]]

_SETS = frozenset({"assign", "for", "with", "unknown", "import", "from", "clear", "pop", "delete"})
_ONLY_AT_FIRST = re.compile(r"first|initial|start|empty|_init", re.IGNORECASE)
SHORT = 10  # rounds that are few enough
RANGES = frozenset({"range", "trange"})
_MOST_FRAMES = 4  # calls of a function


def rounds(project: Project, loop: Loop | cst.CompFor, module: Module, scope: Scope, frame: Frame | None = None) -> int | None:
    """How often a loop goes round at most, where the function is called as the frame says; ``None`` where nobody knows."""
    if isinstance(loop, cst.While):
        return None
    counted = datasets_of(project).contents.containers.count(loop.iter, frame or evaluator_of(project).calls.plain_frame(module, scope))
    stopped = _stops_at(loop, module, scope, project) if isinstance(loop, cst.For) else None
    return counted if stopped is None else min(stopped, counted if counted is not None else stopped)


def usual_rounds(project: Project, loop: cst.For | cst.CompFor, module: Module, scope: Scope) -> int | None:
    """How often a loop goes round where nobody asks for more: by the defaults of options and parameters; ``None`` where there is none."""
    evaluator, node = evaluator_of(project), names.iterated(loop.iter, WRAPPERS)
    if isinstance(node, cst.Subscript) and all(isinstance(part.slice, cst.Slice) for part in node.slice):
        node = node.value  # a part of it goes round no more often
    counted = names.last_name(node.func) in RANGES if isinstance(node, cst.Call) else False
    asked = node.args[:2][-1].value if counted and isinstance(node, cst.Call) and node.args else node
    counts: list[int] = []
    for frame in evaluator.calls.frames(module, scope, most=_MOST_FRAMES):
        for alt in evaluator.values(asked, frame):
            if counted and isinstance(alt.const, int):
                counts.append(alt.const)
            elif not counted and isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple):
                counts.append(len(alt.value.node.elements))
    return max(counts, default=None)


def along_axis(loop: Loop) -> bool:
    """Whether a loop counts along an axis behind the first of an array, as its channels: ``range(x.shape[1])``, ``range(x.size(1))``."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call) or names.last_name(loop.iter.func) != "range" or len(loop.iter.args) != 1:
        return False
    node = loop.iter.args[0].value
    axis: cst.BaseExpression | None = None
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        sizes = node.value.func if isinstance(node.value, cst.Call) and not node.value.args else node.value
        if isinstance(sizes, cst.Attribute) and sizes.attr.value == ("size" if sizes is not node.value else "shape"):
            axis = node.slice[0].slice.value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "size" and len(node.args) == 1:
        axis = node.args[0].value
    return isinstance(axis, cst.Integer) and int(axis.value, 0) > 0


def _stops_at(loop: cst.For, module: Module, scope: Scope, project: Project) -> int | None:
    """The round in which ``if i == 5: break`` ends the loop."""
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    targets = names_in(loop.target)
    for node in loop.body.body:
        if not isinstance(node, cst.If) or not any(isinstance(n, cst.Break) for n in descend(node.body, into_scopes=False)):
            continue
        test = node.test
        if isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name) and test.left.value in targets and len(test.comparisons) == 1:
            limit = greatest(evaluator.values(test.comparisons[0].comparator, frame))
            if limit is not None:
                return limit + 1
    return None


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


def within(node: cst.CSTNode, holder: cst.CSTNode, module: Module) -> bool:
    """Whether ``node`` stands inside ``holder``."""
    return node is holder or any(here is holder for here in module.walk.ancestors(node))


def made_anew(path: Path, loop: Loop, module: Module, scope: Scope, growing: set[cst.CSTNode]) -> bool:
    """Whether a round of the loop empties, cuts or replaces what ``path`` names, other than by the ``growing`` statements and on its first round."""
    root, accessors = path
    for effect in scope.effects.get(root, ()):
        if effect.kind not in _SETS or effect.statement in growing:
            continue
        cut = effect.kind == "delete" and effect.path[: len(accessors)] == accessors  # `del x[0]`
        if not cut and effect.path != accessors[: len(effect.path)]:
            continue
        if effect.statement is not loop and not within(effect.statement, loop, module):
            continue
        if not sets_at_first(effect, loop, path, module):
            return True
    return accessors[:1] != () and accessors[0][0] == "attr" and _reset_by_method(path, loop, scope)


def _reset_by_method(path: Path, loop: Loop, scope: Scope) -> bool:
    """Whether a method of the same object that the loop calls sets the attribute."""
    owner = scope.parent
    if owner is None or not owner.is_class or path[0] != names.self_name(scope):
        return False
    for call in descend(loop.body, into_scopes=False):
        if isinstance(call, cst.Call) and is_attribute_of(call.func, path[0]):
            method = owner.child(call.func.attr.value)
            this = names.self_name(method) if method is not None else None
            if method is not None and this is not None and any(e.path == path[1][:1] and e.kind in _SETS for e in method.effects.get(this, ())):
                return True
    return False


def sets_at_first(effect: Effect, loop: cst.CSTNode, path: Path, module: Module) -> bool:
    """Whether a statement in a loop, or a function, sets the thing only where there is none yet: ``if x is None: x = y``."""
    child: cst.CSTNode = effect.statement
    for here in module.walk.ancestors(effect.statement):
        if here is loop:
            return False
        if isinstance(here, cst.If) and (child is here.body or child is here.orelse) and says_first(here.test, path, module):
            if child is here.body and _says_later(here.test):
                child = here
                continue
            return not _settled(here.test, loop, path, module)
        if isinstance(here, cst.ExceptHandler):
            return True
        child = here
    return False


def _settled(test: cst.BaseExpression, loop: cst.CSTNode, path: Path, module: Module) -> bool:
    """Whether a test compares a name with ``None`` that a loop does not bind: what it says is the same in each round."""
    if not isinstance(loop, cst.For | cst.While) or not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name) or test.left.value == path[0]:
        return False
    bound = module.walk.scope_at(loop).effects.get(test.left.value, ())
    return isinstance(test.comparisons[0].operator, cst.Is | cst.IsNot) and not any(within(effect.statement, loop, module) for effect in bound)


def _says_later(test: cst.BaseExpression) -> bool:
    """Whether a test holds only after the first round: ``i > 0``, also beside other tests."""
    if isinstance(test, cst.BooleanOperation):
        return isinstance(test.operator, cst.And) and (_says_later(test.left) or _says_later(test.right))
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    counts = isinstance(other, cst.Integer) and other.evaluated_value == (1 if isinstance(operator, cst.GreaterThanEqual) else 0)
    return counts and isinstance(test.left, cst.Name) and isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual | cst.NotEqual)


def says_first(test: cst.BaseExpression, path: Path, module: Module) -> bool:
    """Whether a test asks for the first round, or for something empty."""
    if isinstance(test, cst.UnaryOperation):
        return says_first(test.expression, path, module)
    if isinstance(test, cst.BooleanOperation):
        return says_first(test.left, path, module) or says_first(test.right, path, module)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.Is | cst.IsNot):
            return True
        if isinstance(operator, cst.In | cst.NotIn):
            return path[0] in module.code(other) or "locals()" in module.code(other) or "globals()" in module.code(other)
        if isinstance(other, cst.Integer) and other.evaluated_value in {0, 1}:
            return isinstance(test.left, cst.Name | cst.Attribute) or uses_name(test.left, (path[0],))
        return False
    if isinstance(test, cst.Name | cst.Attribute | cst.Call):
        code = module.code(test)
        return uses_name(test, (path[0],)) or _ONLY_AT_FIRST.search(code) is not None
    return False
