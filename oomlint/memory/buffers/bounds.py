"""Whether what a statement stores is bounded: by a size test, by a counter, by a loop that stops, by a dataset that is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import RANGES
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.model import names
from oomlint.model.arguments import parameter_of
from oomlint.model.counters import TestSpot, counts, spots_of, switched
from oomlint.model.reach import path_conditions
from oomlint.model.tensor_shapes import measured_axis, rows_of, shape_of
from oomlint.model.torch_tables import TO_DEVICE
from oomlint.model.values import Const, Element, ExternalCall, Instance, SourceExpression, Unknown
from oomlint.syntax.nodes import block_of, descend, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Frame
    from oomlint.syntax.scopes import Effect, Scope

_TURNED: Final[dict[type[cst.BaseCompOp], type[cst.BaseCompOp]]] = {
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
_MOST_CALLERS: Final = 4
_SUBSET: Final = "torch.utils.data.Subset"
_FEW: Final = 256  # samples


def bounded(store: Store, loop: Loop) -> bool:
    """Whether tests around the statement, or around a call that led to it, keep the number of what it stores small."""
    return any(map(limited, spots_of(store, loop.node)))


def counted(store: Store) -> bool:
    """Whether a test around a statement of a method that is called for each batch says that it is done a few times only."""
    return any(map(limited, spots_of(store)))


def limited(spot: TestSpot) -> bool:
    """Whether a test on the way to a spot, from the loop whose rounds matter, says that a count is small."""
    walk = spot.module.walk
    for test, wanted in path_conditions(walk, spot.scope, spot.node):
        inside = spot.loop is None or spot.loop in walk.ancestors(test)
        if inside and not isinstance(walk.parents.get(test), cst.While) and _limits(test, spot, wanted=wanted):
            return True
    return False


def stops(loop: Loop) -> bool:
    """Whether the loop ends itself after a few rounds. One that trains ends where the whole training does."""
    node = loop.node
    over = loop.iterable
    if over is not None and any(isinstance(part, cst.Call) and names.last_name(part.func) == "islice" for part in descend(over)):
        return True
    if loop.steps or isinstance(node, cst.FunctionDef | cst.CompFor):
        return False
    return ends_itself(loop.module, loop.scope, node)


def ends_itself(module: Module, scope: Scope, loop: cst.For | cst.While, *, stated: bool = False) -> bool:
    """Whether a loop is left once it has counted a few rounds: ``if i == 1: break``; with ``stated`` only where the code says how many."""
    spot = TestSpot(module, scope, loop, loop)
    ends = (part.test for part in block_of(loop.body) if isinstance(part, cst.If) and any(isinstance(end, cst.Break) for end in block_of(part.body)))
    return any(_limits(test, spot, wanted=False, ends=True) and (not stated or _states_few(test)) for test in ends)


def _states_few(test: cst.BaseExpression) -> bool:
    sides = (test.left, *(one.comparator for one in test.comparisons)) if isinstance(test, cst.Comparison) else ()
    return any(isinstance(side, cst.Integer) and side.evaluated_value <= _FEW for side in sides)


def _limits(test: cst.BaseExpression, spot: TestSpot, *, wanted: bool, ends: bool = False) -> bool:
    """Whether a test that came out as ``wanted`` says that a count is small; where it is what ``ends`` the loop, all rounds before count as well."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        if wanted and isinstance(test.expression, cst.Name | cst.Attribute):
            return switched(test.expression, spot)
        return _limits(test.expression, spot, wanted=not wanted, ends=ends)
    if isinstance(test, cst.BooleanOperation):
        joined = isinstance(test.operator, cst.And)
        return joined is wanted and any(_limits(side, spot, wanted=wanted, ends=ends) for side in (test.left, test.right))
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    if isinstance(operator, cst.Is) and wanted and names.dotted(right) == "None":
        return True
    if not counts(test.left, spot):
        if not counts(right, spot):
            return False
        operator = _TURNED.get(type(operator), type(operator))()
    if wanted:
        return isinstance(operator, cst.LessThan | cst.LessThanEqual | cst.Equal | cst.In)
    if not ends and isinstance(operator, cst.Equal) and isinstance(right, cst.Integer) and right.evaluated_value in {0, 1}:
        return False  # all rounds but the first
    return isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual | cst.NotEqual | cst.Equal)


def few_samples(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the loader's dataset is known to be small: tensors of a known, small number of rows, or the first few of an order."""
    like = loop.loader
    if not isinstance(like, LoaderLike) or like.loader is None:
        return False
    arg = like.loader.explicit("dataset")
    if arg is None:
        return False
    for alt in evaluator.values(arg.value, like.frame)[:2]:
        value = alt.value
        if isinstance(value, ExternalCall) and names.canonical(value.name) == _SUBSET and len(value.call.args) > 1:
            return _picks_few(value.call.args[1].value, value.frame, evaluator)
        if isinstance(value, ExternalCall) and value.name.endswith("TensorDataset") and value.call.args:
            for inner in evaluator.values(value.call.args[0].value, value.frame)[:2]:
                rows = _rows(inner.value, evaluator)
                if rows is not None:
                    return rows <= _FEW and value.frame.scope is loop.scope
    return False


def picked_samples(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the loader reads a part of a dataset that somebody has picked by indices, of which nobody knows how many there are."""
    like = loop.loader
    given = like.loader.explicit("dataset") if isinstance(like, LoaderLike) and like.loader is not None else None
    if given is None or not isinstance(like, LoaderLike):
        return False
    frames = [like.frame] if like.frame.bound is not None else evaluator.calls.frames(like.frame.module, like.frame.scope, most=_MOST_CALLERS)
    found = [alt for frame in frames for alt in evaluator.values(given.value, frame)]
    return bool(found) and all(isinstance(alt.value, ExternalCall) and names.canonical(alt.value.name) == _SUBSET for alt in found)


def _picks_few(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether indices are the first few of some, or few that are written out: ``order[:28]``, ``[4, 27, 1905]``."""
    count = datasets_of(evaluator.project).contents.containers.count(node, frame)
    return count is not None and 0 < count <= _FEW


def one_batch(loop: Loop, project: Project) -> bool:
    """Whether a loop counts to the batch size of a loader: a round for each sample of one batch, however many samples there are."""
    counts = _counted(loop)
    if len(counts) != 1:
        return False
    loaders = loaders_of(project)
    calls = loaders.evaluator.calls
    found = [alt for frame in calls.frames(loop.module, loop.scope, most=4) for alt in loaders.evaluator.values(counts[0].value, frame)]
    origins = _origins(found)
    if not origins:
        return False
    for module in project.mentioning([b"batch_size"], loop.module.path):
        for loader in loaders.of(module):
            for frame in calls.frames(module, loader.scope, most=4):
                if origins & _origins(loaders.argument(loader, "batch_size", frame)):
                    return True
    return False


def rows_on_device(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether a loop counts to the length of what is moved to the device as a whole: what its rounds keep there is as much again, and no more."""
    counts = _counted(loop)
    count = counts[0].value if len(counts) == 1 else None
    bound = loop.scope.effects.get(count.value, ()) if isinstance(count, cst.Name) else ()
    if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index and not bound[0].path:
        count = bound[0].value
    whole = rows_of(count)
    held = [alt.value for alt in evaluator.values(whole, evaluator.calls.plain_frame(loop.module, loop.scope))] if whole is not None else []
    return bool(held) and all(isinstance(value, SourceExpression) and _is_moved(value.node) for value in held)


def _is_moved(node: cst.BaseExpression | None) -> bool:
    """Whether an expression ends in a move to the device: ``batch["x"].float().cuda()``."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    # What is no element type of torch is a device.
    return node.func.attr.value in TO_DEVICE or (node.func.attr.value == "to" and bool(node.args) and not names.dotted(node.args[0].value).startswith("torch."))


def parts_of_batch(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether a loop goes over what ``next(batches)`` gave: the parts of one batch."""
    if loop.iterable is None or loop.loader is not None:
        return False
    found = [alt.value for alt in evaluator.values(names.iterated(loop.iterable), evaluator.calls.plain_frame(loop.module, loop.scope))]
    wholes = [value.whole if isinstance(value, Element) else value for value in found]
    return bool(wholes) and all(isinstance(whole, ExternalCall) and whole.name == "builtins.next" for whole in wholes)


def parts_of_one(loop: Loop) -> bool:
    """Whether a loop counts to the length of an axis behind the second: its rounds are windows of one thing, not samples, nor parts of one long text.

    So are the steps of one batch, which its number picks along an axis behind the first: ``states[:, step]``.
    """
    return any(_is_later_axis(part) for arg in _counted(loop) for part in descend(arg.value)) or _picks_steps(loop)


def _picks_steps(loop: Loop) -> bool:
    """Whether the number of the round is an index of later axes alone, each time behind a whole one."""
    number = loop.node.target if _counted(loop) and isinstance(loop.node, cst.For) else None
    places = [
        place if isinstance(node.slice[0].slice, cst.Slice) else 0
        for node in (descend(loop.repeated) if isinstance(number, cst.Name) else ())
        if isinstance(node, cst.Subscript)
        for place, part in enumerate(node.slice)
        if isinstance(part.slice, cst.Index) and names.dotted(part.slice.value) == names.dotted(number)
    ]
    return bool(places) and all(places)


def chunks_of_one(loop: Loop) -> bool:
    """Whether the rounds take slices of an argument of the function, one after the other: parts of what somebody has handed over as one.

    The loop counts itself, in steps or one by one, or goes over a list of such slices: ``[texts[i : i + size] for i in range(0, len(texts), size)]``.
    Slices of a later axis are such parts, too: ``volume[:, i - 1 : i + 2]``.
    """
    given = _handed_over(loop.scope)
    over = names.iterated(loop.iterable) if loop.iterable is not None else None
    if isinstance(over, cst.Name) and loop.loader is None:
        made = [effect.value for effect in loop.scope.effects.get(over.value, ())]
        return len(made) == 1 and isinstance(made[0], cst.ListComp) and _takes_slices(made[0].elt, made[0].for_in.target, given)
    number = _number_of(loop)
    if number is None or not isinstance(loop.node, cst.For | cst.While):
        return False
    # Of what it counts to the length of, it may slice what it has made of all of it.
    cut = set(loop.scope.effects) if _counted(loop) and given & _lengths_of(loop) else given
    return _takes_slices(loop.node.body, number, cut)


def _number_of(loop: Loop) -> cst.BaseExpression | None:
    """What a loop counts: the target of one over ``range``, or what the rounds of a ``while`` add to until it is too large."""
    node = loop.node
    if isinstance(node, cst.For):
        return node.target if _counted(loop) else None
    number = node.test.left if isinstance(node, cst.While) and isinstance(node.test, cst.Comparison) else None
    if not isinstance(node, cst.While) or not isinstance(number, cst.Name):
        return None
    added = (part.target for part in descend(node.body) if isinstance(part, cst.AugAssign) and isinstance(part.operator, cst.AddAssign))
    return number if any(names.dotted(target) == number.value for target in added) else None


def _lengths_of(loop: Loop) -> set[str]:
    """The arrays whose first axis a loop counts to the end of: ``range(0, n, size)`` behind ``n, rows, columns = frames.shape``."""
    count = _counted(loop)[:2][-1].value
    found: list[cst.BaseExpression | None] = [count]
    for effect in loop.scope.effects.get(count.value, ()) if isinstance(count, cst.Name) else ():
        found += [rows_of(effect.value), shape_of(effect.value) if effect.index == (0,) else None]
    return {node.value for node in found if isinstance(node, cst.Name)}


def pieces_of_one(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the loader reads a dataset that the function makes of an array that it is handed: the pieces of one track, one volume."""
    like = loop.loader
    given = like.loader.explicit("dataset") if isinstance(like, LoaderLike) and like.loader is not None and like.frame.scope is loop.scope else None
    found = evaluator.plainly(given.value, loop.module, loop.scope)[:2] if given is not None else []
    return bool(found) and all(isinstance(alt.value, Instance) and _takes_array(alt.value, loop.scope, evaluator) for alt in found)


def _takes_array(dataset: Instance, scope: Scope, evaluator: Evaluator) -> bool:
    """Whether a dataset is made of an argument of a function whose axes its constructor asks for."""
    call, built = dataset.call, evaluator.method(dataset, "__init__")
    if call is None or built is None or call not in scope.calls:
        return False
    handed = [arg for arg in call.args if isinstance(arg.value, cst.Name) and arg.value.value in _handed_over(scope)]
    taken = {parameter_of(built, call, arg) for arg in handed}
    return any(isinstance(node, cst.Attribute) and node.attr.value == "shape" and names.dotted(node.value) in taken for node in built.scope.nodes())


def _handed_over(scope: Scope) -> set[str]:
    """Arguments of a function that it leaves as they are or only makes anew of themselves, and lists of what it makes of each part of one."""
    given = {name for name in names.parameter_names(scope) if all(_is_of_itself(effect, name) for effect in scope.effects.get(name, ()))}
    for name, effects in scope.effects.items():
        made = effects[0].value if len(effects) == 1 else None
        if isinstance(made, cst.ListComp) and isinstance(made.for_in.iter, cst.Name) and made.for_in.iter.value in given:
            given.add(name)
    return given


def _is_of_itself(effect: Effect, name: str) -> bool:
    """Whether what a name gets is made of what it had: ``x = x.view(-1, 1)``, ``x = torch.cat([x[:1], x])``."""
    return effect.kind == "assign" and not effect.index and not effect.path and effect.value is not None and name in names_in(effect.value)


def _takes_slices(body: cst.CSTNode, target: cst.BaseExpression, given: set[str]) -> bool:
    """Whether code cuts something at the number that a loop counts, or beside it."""
    for node in descend(body) if isinstance(target, cst.Name) else ():
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value in given:
            starts = (part.slice.lower for part in node.slice if isinstance(part.slice, cst.Slice) and part.slice.lower is not None)
            if any(names.dotted(target) in names_in(start) for start in starts):
                return True
    return False


def _counted(loop: Loop) -> Sequence[cst.Arg]:
    """What the numbers are that a loop counts through: the arguments of ``range``."""
    count = loop.node.iter if isinstance(loop.node, cst.For | cst.CompFor) and loop.loader is None else None
    while isinstance(count, cst.Call) and names.last_name(count.func) not in RANGES and count.args:
        count = count.args[0].value
    return count.args if isinstance(count, cst.Call) and names.last_name(count.func) in RANGES else ()


def _is_later_axis(node: cst.CSTNode) -> bool:
    """Whether an expression is the length of an axis behind the second: ``x.shape[2]``, ``x.size(3)``."""
    axis = measured_axis(node)
    return isinstance(axis, int) and axis > 1


def _origins(found: Iterable[Alternative]) -> set[cst.CSTNode]:
    """Where the numbers come from that an expression can be: the literal, the option of the command line; nothing where one of them is worked out."""
    known = list(found)
    if any(isinstance(alt.value, SourceExpression) or not isinstance(alt.value, Const | Unknown) for alt in known):
        return set()
    ends = (alt.story[-1].node for alt in known if alt.story and isinstance(alt.value, Const))
    return {node for node in ends if node is not None}


def _rows(value: object, evaluator: Evaluator) -> int | None:
    """The length of a tensor that a library makes, where its shape is known."""
    if not isinstance(value, ExternalCall) or not value.name.startswith("torch.") or not value.call.args:
        return None
    first = value.call.args[0].value
    if value.name.rpartition(".")[2] == "randint":
        sizes = [node for node in descend(value.call) if isinstance(node, cst.Tuple)]
        first = sizes[0].elements[0].value if sizes and sizes[0].elements else first
    if isinstance(first, cst.Tuple | cst.List) and first.elements:
        first = first.elements[0].value
    found = [alt.value.value for alt in evaluator.values(first, value.frame) if isinstance(alt.value, Const)]
    return found[0] if len(found) == 1 and isinstance(found[0], int) else None
