"""Whether what a statement stores is bounded: by a size test, by a counter, by a loop that stops, by a dataset that is small."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.loop_kinds import LoaderLike
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.values import Const, ExternalCall, Unknown, Written
from oomlint.syntax.walk import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative

_COUNTER: Final = re.compile(
    r"(^|_)(i|j|k|n|it|iter|idx|index|step|steps|batch|batch_idx|batch_i|batch_id|batch_num|count|counter|num|seen|shown|saved|total|kept|done|cnt|iteration"
    r"|have|got|collected|num_\w+|n_\w+)(_|\d|$)"
)
_TOTAL: Final = re.compile(r"(max|total|num|n)_?(train_|training_)?(steps?|iters?|iterations?|updates)|^steps$|epoch", re.IGNORECASE)
_FEW: Final = 256  # samples


def bounded(store: Store, loop: Loop) -> bool:
    """Whether tests around the statement, or the end of the loop, keep the number of what it stores small."""
    for module, node in _spots(store):
        scope = module.walk.scope_at(node)
        inside = set(module.walk.ancestors(loop.node)) | {loop.node} if module is loop.module and scope is loop.scope else set()
        for test, wanted in path_conditions(module.walk, scope, node):
            if inside and loop.node not in set(module.walk.ancestors(test)):
                continue
            if not isinstance(module.walk.parents.get(test), cst.While) and _limits(test, wanted=wanted):
                return True
    return False


def _spots(store: Store) -> list[tuple[Module, cst.CSTNode]]:
    """The statement, and the calls that led to it."""
    return [(store.module, store.node), *((via.module, via.call) for via in store.via)]


def counted(store: Store) -> bool:
    """Whether a test around a statement of a method that is called for each batch says that it is done a few times only."""
    tests = [found for module, node in _spots(store) for found in path_conditions(module.walk, module.walk.scope_at(node), node)]
    return any(_limits(test, wanted=wanted) for test, wanted in tests)


def stops(loop: cst.For | cst.While | cst.FunctionDef) -> bool:
    """Whether the loop ends itself after a few rounds."""
    if isinstance(loop, cst.For) and any(isinstance(node, cst.Call) and names.last_name(node.func) == "islice" for node in descend(loop.iter)):
        return True
    for node in block_of(loop.body) if not isinstance(loop, cst.FunctionDef) else ():
        if (
            isinstance(node, cst.If)
            and any(isinstance(part, cst.Break) for part in block_of(node.body))
            and _limits(node.test, wanted=False)
            and not any(isinstance(part, cst.Name) and _TOTAL.search(part.value) for part in descend(node.test))
        ):
            return True
    return False


def _limits(test: cst.BaseExpression, *, wanted: bool) -> bool:
    """Whether a test that came out as ``wanted`` says that a count is small."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        inner = test.expression
        if wanted and isinstance(inner, cst.Name | cst.Attribute):
            return not names.last_name(inner).startswith(("is_", "no_", "skip", "train", "use_", "do_", "save", "return", "args", "disable"))
        return _limits(inner, wanted=not wanted)
    if isinstance(test, cst.BooleanOperation):
        joined = isinstance(test.operator, cst.And)
        if joined is wanted:
            return _limits(test.left, wanted=wanted) or _limits(test.right, wanted=wanted)
        return False
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    left = test.left
    if isinstance(operator, cst.Is) and wanted and names.dotted(right) == "None":
        return True
    if _counts(right) and not _counts(left):
        left, right = right, left
        operator = {
            cst.LessThan: cst.GreaterThan(),
            cst.LessThanEqual: cst.GreaterThanEqual(),
            cst.GreaterThan: cst.LessThan(),
            cst.GreaterThanEqual: cst.LessThanEqual(),
        }.get(type(operator), operator)
    if not _counts(left):
        return False
    if wanted:
        return isinstance(operator, cst.LessThan | cst.LessThanEqual | cst.Equal | cst.In)
    return isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual | cst.NotEqual | cst.Equal)


def _counts(node: cst.BaseExpression) -> bool:
    """Whether an expression is a count: a length, a counter."""
    if isinstance(node, cst.Call):
        return names.last_name(node.func) == "len"
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, cst.Add | cst.Multiply) and _counts(node.left)
    return isinstance(node, cst.Name | cst.Attribute) and _COUNTER.search(names.last_name(node)) is not None


def few_samples(loop: Loop, evaluator: Evaluator) -> bool:
    """Whether the loader's dataset is known to be small: tensors of a known, small number of rows."""
    like = loop.loader
    if not isinstance(like, LoaderLike) or like.loader is None:
        return False
    arg = like.loader.explicit("dataset")
    if arg is None:
        return False
    for alt in evaluator.values(arg.value, like.frame)[:2]:
        value = alt.value
        if isinstance(value, ExternalCall) and value.name.endswith("TensorDataset") and value.call.args:
            for inner in evaluator.values(value.call.args[0].value, value.frame)[:2]:
                rows = _rows(inner.value, evaluator)
                if rows is not None:
                    return rows <= _FEW and value.frame.scope is loop.scope
    return False


def one_batch(loop: Loop, project: Project) -> bool:
    """Whether a loop counts to the batch size of a loader: a round for each sample of one batch, however many samples there are."""
    count = loop.node.iter if isinstance(loop.node, cst.For) else None
    while isinstance(count, cst.Call) and names.last_name(count.func) != "range" and count.args:
        count = count.args[0].value
    if not isinstance(count, cst.Call) or len(count.args) != 1:
        return False
    loaders = loaders_of(project)
    calls = loaders.evaluator.calls
    found = [alt for frame in calls.frames(loop.module, loop.scope, most=4) for alt in loaders.evaluator.values(count.args[0].value, frame)]
    origins = _origins(found)
    if not origins:
        return False
    for module in project.mentioning([b"batch_size"], loop.module.path):
        for loader in loaders.of(module):
            for frame in calls.frames(module, loader.scope, most=4):
                if origins & _origins(loaders.argument(loader, "batch_size", frame)):
                    return True
    return False


def _origins(found: Iterable[Alternative]) -> set[cst.CSTNode]:
    """Where the numbers come from that an expression can be: the literal, the option of the command line; nothing where one of them is worked out."""
    known = list(found)
    if any(isinstance(alt.value, Written) or not isinstance(alt.value, Const | Unknown) for alt in known):
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
