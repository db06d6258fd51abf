"""Whether an expression is an array, a tensor or a table, as far as its making or its annotation says."""

from __future__ import annotations

import re
from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.computed import Computed, computed
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Bound
    from oomlint.syntax.scopes import Scope

_ANNOTATED: Final = (
    (re.compile(r"\b(ndarray|NDArray)\b"), PayloadKind.ARRAY),
    (re.compile(r"\bTensor\b"), PayloadKind.TENSOR),
    (re.compile(r"\bDataFrame\b"), PayloadKind.FRAME),
)
_REDUCING: Final = frozenset(
    "sum mean std max min argmax argmin unique prod median var all any percentile quantile load linspace arange random default_rng".split()
)
_DEEPEST: Final = 6
_MOST_CALLERS: Final = 4
_MANY: Final = re.compile(r"\b([Ll]ist|[Ss]equence|[Dd]ict|[Tt]uple|Iterable)\b")


def operand(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> Content | None:
    """What an array, tensor or table holds; ``None`` for what is not known to be one."""
    evaluator = evaluator_of(project)
    content = datasets_of(project).contents.of(node, evaluator.calls.plain_frame(module, scope))
    reached = (frame for frame in evaluator.calls.frames(module, scope, most=_MOST_CALLERS) if all(map(_is_reached, frame.bound or (), repeat(evaluator))))
    for frame in (None, *islice(reached, 2)):
        if frame is not None:
            content = datasets_of(project).contents.of(node, frame)
        if content.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.FRAME}:
            return content
    kind = annotated(module, scope, node) if content.kind not in {PayloadKind.SMALL, PayloadKind.SCALAR} else None
    if kind is None:
        return None
    return replace(content, kind=kind, words="a parameter")


def _is_reached(bound: Bound, evaluator: Evaluator) -> bool:
    """Whether control comes to a call: not where a test around it is known to fail."""
    return bool(evaluator.where(bound.call, bound.frame))


def annotated(module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> PayloadKind | None:
    """What the annotation of a parameter says, also where an attribute of ``self`` is set to it, or it is sliced."""
    if depth > _DEEPEST:
        return None  # a name may be set to an array of itself
    column = False
    while isinstance(node, cst.Subscript):
        column = column or (isinstance(node.slice[0].slice, cst.Index) and isinstance(node.slice[0].slice.value, cst.SimpleString))
        node = node.value
    if column:
        return None  # one column of a table
    if isinstance(node, cst.Call):
        dotted = names.dotted(node.func)
        return PayloadKind.ARRAY if dotted.startswith(("np.", "numpy.")) and dotted.rpartition(".")[2] not in _REDUCING else None
    if isinstance(node, cst.Name):
        for param in names.parameters(scope):
            if param.name.value == node.value and param.annotation is not None:
                return _of(module.code(param.annotation.annotation))
        effects = [e for e in scope.effects.get(node.value, ()) if not e.path and e.kind == "assign" and e.value is not None and not e.index]
        if len(effects) == 1 and isinstance(effects[0].value, cst.Call | cst.Subscript) and not _same(effects[0].value, node.value):
            value = effects[0].value
            inner = value.args[0].value if isinstance(value, cst.Call) and value.args and _is_as_large(value) else None
            inner = value if isinstance(value, cst.Subscript) else inner
            return annotated(module, scope, inner, depth + 1) if inner is not None else _returned(module, value)
        return None
    owner = scope.parent
    if is_attribute_of(node, names.self_name(scope)) and owner is not None:
        init = owner.child("__init__")
        for effect in init.effects.get(names.self_name(init) or "", ()) if init is not None else ():
            if effect.path == (("attr", node.attr.value),) and isinstance(effect.value, cst.Name) and init is not None:
                return annotated(module, init, effect.value, depth + 1)
    return None


def _is_as_large(call: cst.Call) -> bool:
    """Whether a function of NumPy or torch gives an array of an array: not its smallest values, of each column or of all."""
    dotted = names.dotted(call.func)
    return dotted.startswith(("np.", "numpy.", "torch.")) and computed(dotted.rpartition(".")[2], call, before=1) is Computed.ARRAY


def _same(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value == name


def _returned(module: Module, call: cst.BaseExpression) -> PayloadKind | None:
    """What the annotation of a function of the module says that it returns."""
    found = module.root.child(call.func.value) if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) else None
    if found is None or not isinstance(found.node, cst.FunctionDef) or found.node.returns is None:
        return None
    return _of(module.code(found.node.returns.annotation))


def _of(code: str) -> PayloadKind | None:
    if _MANY.search(code):
        return None
    return next((kind for pattern, kind in _ANNOTATED if pattern.search(code)), None)


def made_by_numpy(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether an expression is an array of NumPy by its making, which an annotation does not prove, and no view that runs backward: torch takes none."""
    content = datasets_of(project).contents.of(node, evaluator_of(project).calls.plain_frame(module, scope))
    slices = [part for one in (node, content.node) if one is not None for part in descend(one) if isinstance(part, cst.Slice)]
    backward = any(part.step is not None and not isinstance(part.step, cst.Integer) for part in slices)
    return content.kind is PayloadKind.ARRAY and not content.doubt and not backward
