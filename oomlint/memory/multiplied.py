"""What makes more of the data than there is, and keeps it: windows over a series that overlap, texts that are padded to the longest of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays import Load
from oomlint.memory.construction import constructions_of
from oomlint.memory.kept import Does, kept_of
from oomlint.memory.loaders import evaluator_of
from oomlint.memory.suites import holds_tests
from oomlint.model import names
from oomlint.model.values import Const, ExternalCall, FunctionRef
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_THROUGH: Final = frozenset({"tqdm", "trange"})
_PADS: Final = frozenset({"padding", "pad_to_max_length"})
_CODES: Final = frozenset({"truncation", "max_length", "return_tensors", "add_special_tokens", "return_attention_mask"})
_SHORT: Final = 128  # tokens: so few of each text are no harm
_NO: Final = frozenset({"False", "'do_not_pad'", '"do_not_pad"'})


def multiplied(module: Module, project: Project) -> Iterator[Load]:
    """Windows and padded texts that the module makes of all of the data, and that somebody keeps."""
    if holds_tests(module):
        return
    constructions = constructions_of(project)
    for scope in module.walk.scopes:
        if scope.is_class or constructions.per_item(module, scope):
            continue
        for loop in (*scope.loops, *scope.rows):
            yield from _windows(module, project, scope, loop)
        for call in scope.calls:
            yield from _padded(module, project, scope, call)


def _windows(module: Module, project: Project, scope: Scope, loop: cst.CSTNode) -> Iterator[Load]:
    """``for i in range(n): x.append(series[i : i + length, :])`` and ``np.stack(x)``: each row as often as a window is long."""
    if not isinstance(loop, cst.For | cst.ListComp):
        return
    head = loop if isinstance(loop, cst.For) else loop.for_in
    target, iterated = head.target, head.iter
    body: cst.CSTNode = loop.body if isinstance(loop, cst.For) else loop.elt
    while isinstance(iterated, cst.Call) and names.last_name(iterated.func) in _THROUGH and iterated.args:
        iterated = iterated.args[0].value
    # With a step nobody knows whether they overlap.
    if not (isinstance(iterated, cst.Call) and names.last_name(iterated.func) == "range" and len(iterated.args) < 3 and isinstance(target, cst.Name)):  # noqa: PLR2004
        return
    kept, found = kept_of(project), []
    for node in descend(body):
        if isinstance(node, cst.Subscript) and len(node.slice) > 1 and _is_window(module, node, target.value):
            fancy = isinstance(node.slice[0].slice, cst.Index)
            keepers = tuple(k for k in kept.of(module, node) if k.many and (fancy or any(done.does is Does.JOINS for done in k.passed)))
            if keepers:
                found.append((node, keepers))
    if found:
        (first, keepers), *others = found
        words = "Every window over the series is copied (each row as often as a window is long)"
        yield Load(module, scope, first, words, keepers, many=True, beside=tuple(node for node, _ in others))


def _is_window(module: Module, node: cst.Subscript, counter: str) -> bool:
    """Whether an index takes several rows from the one that a loop has come to: `[i : i + length, :]`, `[i + offsets, ...]`."""
    first = node.slice[0].slice
    if isinstance(first, cst.Slice):
        lower, upper = first.lower, first.upper
        if lower is None or upper is None or not _has(lower, counter) or not _has(upper, counter) or _scaled(lower):
            return False
        return "".join(module.code(upper).split()) != "".join(module.code(lower).split()) + "+1"
    if isinstance(first, cst.Index) and isinstance(first.value, cst.BinaryOperation) and isinstance(first.value.operator, cst.Add):
        sides = (first.value.left, first.value.right)
        other = next((side for side in sides if not _has(side, counter)), None)
        return other is not None and any(_has(side, counter) for side in sides) and _is_array(module, other)
    return False


def _scaled(node: cst.BaseExpression) -> bool:
    """Whether a number is a multiple: from round to round it changes by more than one."""
    return any(isinstance(one, cst.BinaryOperation) and not isinstance(one.operator, cst.Add | cst.Subtract) for one in descend(node))


def _has(node: cst.BaseExpression, name: str) -> bool:
    return any(isinstance(one, cst.Name) and one.value == name for one in descend(node))


def _is_array(module: Module, node: cst.BaseExpression) -> bool:
    """Whether an offset is known to be an array, by a caller if need be."""
    evaluator = evaluator_of(module.project)
    scope = module.walk.scope_at(node)
    frames = (evaluator.calls.plain_frame(module, scope), *evaluator.calls.frames(module, scope, most=4))
    return any(isinstance(alt.value, ExternalCall) and alt.value.name.startswith("numpy.") for frame in frames for alt in evaluator.values(node, frame)[:4])


def _padded(module: Module, project: Project, scope: Scope, call: cst.Call) -> Iterator[Load]:
    """``tokenizer(texts, padding=True)``: each text as long as the longest one."""
    given = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    pads = next((given[name] for name in _PADS if name in given), None)
    if pads is None or _CODES.isdisjoint(given) or not call.args or module.code(pads) in _NO:
        return
    kept, evaluator = kept_of(project), evaluator_of(project)
    if kept.repeats(module, call):  # one text, or a batch of them
        return
    frame = evaluator.calls.plain_frame(module, scope)
    if any(isinstance(alt.value, FunctionRef) for alt in evaluator.values(call.func, frame)[:2]):
        return
    if "max_length" in given:
        frames = evaluator.calls.frames(module, scope, most=4)
        lengths = [alt.value for one in frames for alt in evaluator.values(given["max_length"], one)[:4]]
        if any(isinstance(one, Const) and isinstance(one.value, int) and one.value <= _SHORT for one in lengths):
            return
    keepers = tuple(k for k in kept.of(module, call) if k.owner is not None)
    if keepers:
        words = f"`{names.dotted(call.func) or names.last_name(call.func)}` makes every text as long as the longest of all"
        yield Load(module, scope, call, words, keepers, many=False)
