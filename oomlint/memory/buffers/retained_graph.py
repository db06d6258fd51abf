"""Backward passes that keep their graph, and who else goes back through it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Message, Told
from oomlint.frameworks import BACKWARDS
from oomlint.memory.buffers.backward_regions import flag, loss_of, regions_of
from oomlint.memory.buffers.graph_provenance import made_in
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External, FunctionRef, Instance
from oomlint.syntax.nodes import descend, names_in
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.buffers.backward_regions import Region
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_GRADS: Final = frozenset({"grad", "jacobian", "hessian", "vjp", "jvp", "vhp", "hvp", "jacrev", "jacfwd", "autograd"})
# What is given a loss after the backward and surely does not go back through it.
_HARMLESS: Final = re.compile(
    r"^(print|len|float|int|str|format|append|update|add\w*|log\w*|write\w*|item|is\w+|accuracy\w*|topk|argmax|max|min|abs|round|set_\w+|mean|sum|detach|cpu|numpy"
    r"|save\w*|debug|info|record\w*|\w+_like|average|\w*reduce\w*|extend|setdefault|to|tolist|range|zip|enumerate|dict|list|tuple|\w*metric\w*|\w*acc)$",
)


def retaining(module: Module, project: Project) -> Iterator[Told]:
    """Calls with ``retain_graph=True`` in a loop whose graph is made in that loop and used by no other backward."""
    for call, scope in module.walk.calls:
        loss = loss_of(call)
        if loss is None or not flag(call, "retain_graph") or flag(call, "create_graph"):
            continue
        regions = regions_of(call, module, scope, project)
        if not regions or any(_used_again(region, project) for region in regions):
            continue
        verdict = made_in(loss, regions[0], project)
        if verdict is None or _handed_on(loss, call, regions[0], project):
            continue
        longer = "its activations stay longer, which raises the memory peak of every step"
        message = Message("`retain_graph=True` keeps a graph that no other backward uses", longer)
        sure = Confidence.HIGH if verdict else Confidence.MEDIUM  # whether all modules and functions on the way were found
        yield Told(module.place(call), message, confidence=sure)


def _used_again(region: Region, project: Project) -> bool:
    """Whether another backward may go through a graph of this region."""
    for node in descend(region.whole):
        if not isinstance(node, cst.Call) or node is region.call:
            continue
        word = names.last_name(node.func)
        if word in BACKWARDS | _GRADS or (word == "step" and any(_is_closure(arg, region.module) for arg in node.args)):
            return True
        if _HARMLESS.match(word) and isinstance(node.func, cst.Attribute | cst.Name) and word not in {"log_prob", "update"}:
            continue
        scope = region.module.walk.scope_at(node)
        if leads_backward(node.func, region.module, scope, project, region.call):
            return True
    return _later(region)


def leads_backward(func: cst.BaseExpression, module: Module, scope: Scope, project: Project, own: cst.Call | None = None) -> bool:
    """Whether a call of this goes backward in what it calls, other than by the call ``own``."""
    return any(_goes_back(alt.value, project, own, set()) for alt in evaluator_of(project).plainly(func, module, scope)[:2])


def _is_closure(arg: cst.Arg, module: Module) -> bool:
    if isinstance(arg.value, cst.Lambda):
        return True
    return isinstance(arg.value, cst.Name) and any(e.kind == "def" for scope in module.walk.scopes for e in scope.effects.get(arg.value.value, ()))


def _goes_back(value: object, project: Project, own: cst.Call | None, seen: set[Scope]) -> bool:
    """Whether calling a value runs a backward of its own."""
    evaluator = evaluator_of(project)
    if isinstance(value, External):
        return value.name.rpartition(".")[2] in _GRADS and value.name.startswith(("torch.autograd", "torch.func"))
    targets: list[FunctionRef] = []
    if isinstance(value, FunctionRef):
        targets = [value]
    elif isinstance(value, Instance):
        targets = [m for name in ("forward", "__call__") if (m := evaluator.method(value, name)) is not None]
    elif isinstance(value, ClassRef):
        init = evaluator.method(Instance(value, None), "__init__")
        targets = [init] if init is not None else []
    for target in targets:
        if target.scope in seen or len(seen) > 24:  # noqa: PLR2004 - enough to know a step
            continue
        seen.add(target.scope)
        for node in descend(target.scope.node):
            if isinstance(node, cst.Call) and node is not own and names.last_name(node.func) in BACKWARDS | _GRADS:
                return True
        for call in target.scope.calls:
            frame = evaluator.calls.plain_frame(target.module, target.scope)
            if call is not own and any(_goes_back(alt.value, project, own, seen) for alt in evaluator.values(call.func, frame)[:2]):
                return True
    return False


def _later(region: Region) -> bool:
    """Whether a backward behind the loop starts from something that the loop left."""
    module, scope = region.module, region.scope
    if region.whole is scope.node:
        return False
    end = module.tree.span(region.whole)[2]
    for call in scope.calls:
        if names.last_name(call.func) not in BACKWARDS | _GRADS or module.tree.span(call)[0] <= end:
            continue
        row = module.tree.span(call)[0]
        used = names_in(call)
        for name in used:
            rows = [module.tree.span(e.statement)[0] for e in scope.effects.get(name, ()) if e.kind not in DEFINES]
            fresh = any(end < other <= row for other in rows)
            if not fresh and any(region.holds(e.statement) for e in scope.effects.get(name, ())):
                return True
    return False


def _handed_on(loss: cst.BaseExpression, call: cst.Call, region: Region, project: Project) -> bool:
    """Whether the loss goes to somebody unknown after the backward, or leaves the function."""
    module, scope = region.module, region.scope
    roots = names_in(loss) & {name for name in scope.effects if not any(e.kind in {"import", "from"} for e in scope.effects[name])}
    row = module.tree.span(call)[0]
    evaluator = evaluator_of(project)
    within = set(descend(call))
    for other in scope.calls:
        if other in within or module.tree.span(other)[0] < row or not region.holds(other) or _HARMLESS.match(names.last_name(other.func)):
            continue
        if not any(isinstance(arg.value, cst.Name) and arg.value.value in roots for arg in other.args):
            continue
        known = [alt.value for alt in evaluator.plainly(other.func, module, scope)]
        if not known or not all(isinstance(value, FunctionRef | External) for value in known):
            return True
    return False


# -- create_graph ----------------------------------------------------------------------------------------------------------


def cycles(module: Module, project: Project) -> Iterator[tuple[cst.Call, str]]:
    """Calls of ``backward(create_graph=True)`` in a loop, with the name whose gradient nobody resets (empty: those of the parameters)."""
    for call, scope in module.walk.calls:
        if loss_of(call) is None or not flag(call, "create_graph"):
            continue
        regions = regions_of(call, module, scope, project)
        if not regions:
            continue
        code = [region.module.code(region.whole) for region in regions]
        if any(re.search(r"\.grad\s*=\s*None|\.grad\.detach_|\bdel \w+\.grad", text) for text in code):
            continue
        leaf = _leaf(regions[0])
        if leaf:
            yield call, leaf
        elif not any(re.search(r"zero_grad|\.grad\s*=|first_step|second_step|reset", text) for text in code) and not _resets(regions, project):
            yield call, ""


def _leaf(region: Region) -> str:
    """A tensor that the loop makes a leaf and whose gradient it reads."""
    code = region.module.code(region.whole)
    made = set(re.findall(r"(?<![\w.])(\w+)\.requires_grad_\(", code)) | set(re.findall(r"(?<![\w.])(\w+)\.requires_grad\s*=\s*True", code))
    made |= set(re.findall(r"(?<![\w.])(\w+)\s*=[^=\n]*requires_grad(?:_\(\)|_\(True\)|=True)", code))
    for name in sorted(made):
        bound = any(region.holds(effect.statement) for effect in region.scope.effects.get(name, ()) if not effect.path)
        if bound and re.search(rf"(?<![\w.]){re.escape(name)}\.grad\b(?!\.zero_|\s*=[^=])", code):
            return str(name)
    return ""


def _resets(regions: list[Region], project: Project) -> bool:
    """Whether a function that the loop calls sets gradients to zero or to ``None``."""
    evaluator = evaluator_of(project)
    for region in regions:
        for node in descend(region.whole):
            if not isinstance(node, cst.Call):
                continue
            for alt in evaluator.plainly(node.func, region.module, region.module.walk.scope_at(node))[:2]:
                if isinstance(alt.value, FunctionRef) and re.search(r"zero_grad|\.grad\s*=", alt.value.module.code(alt.value.scope.node)):
                    return True
    return False
