"""Whether an expression is an array, a tensor or a table, as far as its making or its annotation says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.arrays.full_reads import whole_reads_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.computed import Computed, computed
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.values import External
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module, Project
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
_MANY: Final = re.compile(r"\b([Ll]ist|[Ss]equence|[Dd]ict|[Tt]uple|Iterable)\b")


def operand(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> Content | None:
    """What an array, tensor or table holds; ``None`` for what is not known to be one."""
    calls = evaluator_of(project).calls
    content = datasets_of(project).contents.of(node, calls.plain_frame(module, scope))
    for frame in (None, *calls.frames(module, scope, most=2)):
        if frame is not None:
            content = datasets_of(project).contents.of(node, frame)
        if content.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.FRAME}:
            return content
    kind = annotated(module, scope, node) if content.kind not in {PayloadKind.SMALL, PayloadKind.SCALAR} else None
    if kind is None:
        return None
    return replace(content, kind=kind, words="a parameter")


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


_MAKERS: Final = frozenset(
    "array asarray ascontiguousarray copy zeros ones empty full zeros_like ones_like empty_like full_like arange linspace load loadtxt genfromtxt fromfile "
    "concatenate stack vstack hstack dstack column_stack tile repeat eye rand randn".split(),
)
_KEEPING: Final = frozenset({"astype", "reshape", "copy", "transpose", "to_numpy"})  # methods that give an array of an array


def made_by_numpy(project: Project, module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression is an array of NumPy by its making: a call that makes one, or a read. An annotation proves nothing."""
    frame = evaluator_of(project).calls.plain_frame(module, scope)
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Subscript):
        read = whole_reads_of(project).written(node, frame)
        if read is not None:
            return not any(isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.Tuple) for e in node.slice)  # `[()]` may give one value
        forward = all(isinstance(e.slice, cst.Slice) and (e.slice.step is None or isinstance(e.slice.step, cst.Integer)) for e in node.slice)
        return forward and made_by_numpy(project, module, scope, node.value, depth + 1)
    if isinstance(node, cst.Attribute):
        return node.attr.value == "T" and made_by_numpy(project, module, scope, node.value, depth + 1)
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPING and made_by_numpy(project, module, scope, node.func.value, depth + 1):
            return True
        return bool(node.args) and any(
            isinstance(alt.value, External) and alt.value.name.startswith("numpy.") and alt.value.name.rpartition(".")[2] in _MAKERS
            for alt in evaluator_of(project).values(node.func, frame)[:1]
        )
    if not isinstance(node, cst.Name) or node.value in names.takes(scope):
        return False
    effects = [effect for effect in scope.effects.get(node.value, ()) if not effect.path]
    return bool(effects) and all(
        effect.kind == "assign" and not effect.index and effect.value is not None and made_by_numpy(project, module, scope, effect.value, depth + 1)
        for effect in effects
    )
