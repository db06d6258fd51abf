"""Tensors that the ``forward`` of an autograd function puts on its context instead of saving them for backward."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import COLLECTIONS, REDUCTIONS, SCALARS, VIEW_ATTRIBUTES
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.displays import unpacked
from oomlint.model.lifetime import endings
from oomlint.model.torch_tables import PLAIN_ATTRIBUTES, PLAIN_METHODS
from oomlint.model.values import ClassRef, External
from oomlint.patterns import pattern
from oomlint.syntax.nodes import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

FUNCTIONS: Final = ("torch.autograd.Function", "torch.autograd.function.Function", "torch.autograd.function.InplaceFunction")

# What only tensors are asked for. What arrays, modules and images share with them says nothing.
_EVIDENCE: Final = frozenset(
    "clone detach contiguous is_cuda requires_grad unsqueeze expand expand_as type_as view view_as permute new_zeros new_ones new_empty new_full new_tensor "
    "is_contiguous masked_fill masked_fill_ scatter scatter_ scatter_add_ index_select gather clamp clamp_ dim numel zero_ mul_ add_ div_ sigmoid softmax "
    "shape dtype ndim".split(),
)
_CALLED_EVIDENCE: Final = frozenset({"size"})
_REDUCTIONS: Final = REDUCTIONS | {"argmax", "argmin", "count_nonzero", "logsumexp"}
_NOT_TENSORS: Final = PLAIN_METHODS | PLAIN_ATTRIBUTES | {"numpy", "type", "is_complex"}
_CREATED: Final = frozenset("empty zeros ones full new_empty new_zeros new_ones new_full tensor new_tensor scalar_tensor".split())
# What they are given first is a size, a bound, or data of any kind; the empty name is no function of torch that gives a tensor.
_OF_NUMBERS: Final = {""} | frozenset(
    "arange as_tensor empty eye full hamming_window hann_window linspace logspace ones rand randint randn randperm range tensor zeros".split(),
)
_TORCH_OTHERS: Final = pattern(
    r"torch\.(is_|set_|get_|Size$|device$|numel$|finfo|iinfo|[A-Z]|no_grad|enable_grad|load$|save$|manual_seed|broadcast_shapes|compile$)"
)
_TORCH: Final = pattern(r"torch\.(nn\.functional\.|special\.|linalg\.|fft\.)?[a-z_]\w*$")
# Parameters and statistics of a module live with it, whoever else refers to them.
_LONG_LIVED: Final = pattern(r"^(w|b|weights?|bias|running_\w+|codebook|\w*_(weight|bias)|scale|gamma|beta)$")

_NUMBER: Final = pattern(r"step|size|stride|eps|dim|num|count|kernel|axis|factor|threshold|alpha|beta|lambd", re.IGNORECASE)


class Is(Enum):
    """What an expression of ``forward`` is."""

    TENSOR = auto()
    SMALL = auto()  # a tensor of one element, or of none
    OTHER = auto()


class ContextTensor(Struct, frozen=True):
    """A tensor on the context."""

    statement: cst.CSTNode
    attribute: str
    node: cst.BaseExpression
    role: str  # "input", "output", "intermediate"
    constant: bool = False  # an input that backward gives no gradient for: an index, a mask


def functions_of(module: Module, project: Project) -> Iterator[Scope]:
    """Classes of the module that derive from ``torch.autograd.Function``."""
    evaluator = evaluator_of(project)
    for scope in module.walk.scopes:
        if scope.is_class and isinstance(scope.node, cst.ClassDef) and scope.node.bases and evaluator.derives(ClassRef(module, scope), *FUNCTIONS):
            yield scope


def kept_by(module: Module, cls: Scope, project: Project) -> list[ContextTensor]:
    """What the class keeps as attributes of ``ctx`` until the graph is gone, one for each statement."""
    setup = cls.child("setup_context")
    scope = setup or cls.child("forward")
    params = names.parameters(scope) if scope is not None else []
    if scope is None or not params or not names.is_static(scope):
        return []
    ctx = params[0].name.value
    reader = _Reader(module, scope, project, ctx)
    given_back = _outputs(cls, params if setup is not None else [])
    found: dict[cst.CSTNode, ContextTensor] = {}
    for effect in scope.effects.get(ctx, ()):
        if effect.kind != "assign" or len(effect.path) != 1 or effect.value is None or effect.statement in found:
            continue
        attribute = str(effect.path[0][1])
        node = reader.tensor_in(effect)
        if node is None or _released(module, cls, attribute):
            continue
        role = "intermediate"
        if isinstance(node, cst.Name):
            if node.value in given_back:
                role = "output"
            elif any(p.name.value == node.value for p in params) or reader.from_inputs(node.value):
                role = "input"
        if role == "input" and isinstance(node, cst.Name) and _LONG_LIVED.match(node.value):
            continue
        constant = role == "input" and isinstance(node, cst.Name) and node.value in reader.constants
        found[effect.statement] = ContextTensor(effect.statement, attribute, node, role, constant)
    return list(found.values())


def _outputs(cls: Scope, setup_params: list[cst.Param]) -> set[str]:
    """Names of what ``forward`` returns."""
    if setup_params:
        return {p.name.value for p in setup_params[2:3]}
    forward = cls.child("forward")
    found: set[str] = set()
    for statement in forward.returns if forward is not None else ():
        found |= {row.value for row in parts_of(statement.value) if isinstance(row, cst.Name)} if statement.value is not None else set()
    return found


def _released(module: Module, cls: Scope, attribute: str) -> bool:
    """Whether backward lets go of the attribute: ``del ctx.x``, ``ctx.x = None``."""
    others = [(scope, params[0]) for scope in cls.children if scope.name not in {"forward", "setup_context"} and (params := names.parameter_names(scope))]
    return any(ending.lets_go for scope, ctx in others for ending in endings((ctx, (("attr", attribute),)), module, scope))


def _is_none(node: cst.BaseExpression, scope: Scope) -> bool:
    """Whether an expression is ``None``, or a name that nothing else is assigned to."""
    if not isinstance(node, cst.Name):
        return False
    given = [e.value for e in scope.effects.get(node.value, ()) if not e.path]
    return node.value == "None" or (bool(given) and all(isinstance(value, cst.Name) and value.value == "None" for value in given))


class _Reader:
    """Tells tensors from the rest in one ``forward``."""

    def __init__(self, module: Module, scope: Scope, project: Project, ctx: str) -> None:
        self.module = module
        self.scope = scope
        self.ctx = ctx
        self.evaluator = evaluator_of(project)
        self.frame = self.evaluator.calls.plain_frame(module, scope)
        self.params = set(names.parameter_names(scope)) - {ctx}
        self.seen: set[str] = set()
        self.constants: set[str] = set()  # inputs that backward gives no gradient for
        self.shown = self._shown()

    def _shown(self) -> set[str]:
        """Names that the body uses as tensors."""
        found: set[str] = set()
        parents = self.module.walk.parents
        for node in self.scope.nodes():
            if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
                name, asked = node.value.value, node.attr.value
                called = isinstance(holder := parents.get(node), cst.Call) and holder.func is node
                if asked in _EVIDENCE or (called and asked in _CALLED_EVIDENCE):
                    found.add(name)
            elif isinstance(node, cst.Call):
                saves = names.dotted(node.func) == f"{self.ctx}.save_for_backward"
                if saves or self._torch(node).rpartition(".")[2] not in _OF_NUMBERS:
                    found |= {
                        a.value.value for a in node.args if isinstance(a.value, cst.Name) and a.keyword is None and not a.star and (saves or a is node.args[0])
                    }
        for param in names.parameters(self.scope):
            typed = param.annotation is not None and names.last_name(param.annotation.annotation) == "Tensor"
            if typed and not _NUMBER.search(param.name.value):  # numbers are annotated as tensors more often than one would think
                found.add(param.name.value)
        return (found | self._with_gradient()) - {self.ctx}

    def _with_gradient(self) -> set[str]:
        """Inputs that backward gives a gradient for: it must give ``None`` for what is no tensor."""
        cls = self.scope.parent
        forward, backward = (cls.child("forward"), cls.child("backward")) if cls is not None else (None, None)
        if forward is None or backward is None:
            return set()
        params = names.parameter_names(forward)[0 if forward is not self.scope else 1 :]
        single = len(params) == 1 and isinstance(forward.node, cst.FunctionDef) and not isinstance(forward.node.params.star_arg, cst.Param)
        found: set[str] = set()
        for statement in backward.returns:
            value = statement.value
            if isinstance(value, cst.BinaryOperation) and isinstance(value.left, cst.Tuple):
                value = value.left  # `(None, *) + gradients`: those of the first inputs
            rows = parts_of(value) if value is not None and (single or isinstance(value, cst.Tuple)) else []
            if isinstance(value, cst.Tuple) and any(isinstance(e, cst.StarredElement) for e in value.elements):
                continue
            found |= {name for name, row in zip(params, rows, strict=False) if not _is_none(row, backward)}
            self.constants |= {name for name, row in zip(params, rows, strict=False) if _is_none(row, backward)}
        self.constants -= found
        return found

    def _torch(self, call: cst.Call) -> str:
        """The name of the torch function that is called, where its result is a tensor."""
        for alt in self.evaluator.values(call.func, self.frame)[:2]:
            if isinstance(alt.value, External) and _TORCH.match(alt.value.name) and not _TORCH_OTHERS.match(alt.value.name):
                return alt.value.name
        return ""

    def tensor_in(self, effect: Effect) -> cst.BaseExpression | None:
        """The tensor that the assignment stores, alone or as an element of a tuple or list."""
        value = unpacked(effect.value, effect.index)
        return next((row for row in parts_of(value) if self.kind(row) is Is.TENSOR), None) if value is not None else None

    def from_inputs(self, name: str) -> bool:
        """Whether ``setup_context`` took the name out of its ``inputs``."""
        second = next(iter(names.parameter_names(self.scope)[1:2]), "")
        return any(isinstance(e.value, cst.Name) and e.value.value == second for e in self.scope.effects.get(name, ()))

    def kind(self, node: cst.BaseExpression) -> Is | None:
        """What an expression is; ``None`` where nobody knows."""
        if isinstance(node, cst.Name):
            return self._name(node.value)
        if isinstance(node, cst.IfExp):
            return self._either(node.body, node.orelse)
        if isinstance(node, cst.BinaryOperation):
            return self._either(node.left, node.right)
        if isinstance(node, cst.Comparison) and isinstance(
            node.comparisons[0].operator, cst.GreaterThan | cst.LessThan | cst.GreaterThanEqual | cst.LessThanEqual
        ):
            return self.kind(node.left)
        if isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.Not):
            return self.kind(node.expression)
        if isinstance(node, cst.Subscript):
            whole = all(isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.Integer) for e in node.slice)
            return self.kind(node.value) if not whole else None
        if isinstance(node, cst.Attribute):
            owner = self.kind(node.value)
            return owner if owner in {Is.TENSOR, Is.SMALL} and node.attr.value in VIEW_ATTRIBUTES | {"data", "grad"} else None
        return self._call(node) if isinstance(node, cst.Call) else None

    def _name(self, name: str) -> Is | None:
        if name in self.seen:
            return None
        self.seen.add(name)
        try:
            given = [e for e in self.scope.effects.get(name, ()) if e.kind != "augment" and not e.path]
            kinds = [self.kind(e.value) if e.kind == "assign" and e.value is not None and len(e.index) < 2 else None for e in given]  # noqa: PLR2004
        finally:
            self.seen.discard(name)
        if any(kind in {Is.OTHER, Is.SMALL} for kind in kinds):
            return Is.SMALL if name not in self.params and all(kind is not Is.TENSOR for kind in kinds) else None
        if name in self.shown or (kinds and all(kind is Is.TENSOR for kind in kinds) and name not in self.params):
            return Is.TENSOR
        return None

    def _either(self, left: cst.BaseExpression, right: cst.BaseExpression) -> Is | None:
        kinds = {self.kind(left), self.kind(right)}
        return Is.TENSOR if Is.TENSOR in kinds else Is.SMALL if Is.SMALL in kinds else None

    def _call(self, node: cst.Call) -> Is | None:
        made = self._torch(node)
        word = names.last_name(node.func)
        if not made:
            if isinstance(node.func, cst.Name) and word in SCALARS | COLLECTIONS | {"len", "dict"}:
                return Is.OTHER
            owner = self.kind(node.func.value) if isinstance(node.func, cst.Attribute) else None
            if owner is None or owner is Is.OTHER:
                return None
            if word in _NOT_TENSORS:
                return Is.OTHER
            if owner is Is.SMALL or (word in _REDUCTIONS and not node.args):
                return Is.SMALL
        elif word in _REDUCTIONS and len(node.args) == 1:
            return Is.SMALL
        if word in _CREATED and all(isinstance(a.value, cst.Integer | cst.Float | cst.List) for a in node.args[:1]):
            return Is.SMALL
        return Is.TENSOR
