"""Fixes for an evaluation in grad mode: a decorator on its function, or a `with` around its loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Edit, Fix, Safety
from oomlint.memory.fixes.growth_fixes import result_differentiated
from oomlint.memory.fixes.notebook_imports import is_bound_before
from oomlint.memory.fixes.rewrites import import_edit, imported_as, moved_right
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_phases import has_backward, is_evaluation
from oomlint.model import names
from oomlint.model.events import HOOKED
from oomlint.model.tensor_state import Mode
from oomlint.model.values import FunctionRef, Instance
from oomlint.patterns import pattern
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.memory.buffers.evaluation import GradEvaluation
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_UNHOOKED: Final = Fix(Safety.DISPLAY, "test `requires_grad` before the model puts hooks on a tensor, and run the loop under `torch.no_grad()`")
_DEEPEST = 3  # calls between a loop and a backward pass
_MOST = 3  # functions that one call may be
_CALLBACK = pattern(r"^on_|^fire|callback|^notify|^emit|^trigger|^hooks?$|^dispatch|^getattr$|^globals$|^eval$|^exec$", re.IGNORECASE)
_HARMLESS = pattern(
    r"update|add|append|extend|log|eval|metric|score|compute|print|write|save|plot|draw|iou|dice|acc|format|set_|isnan|mean|sum|cat|stack|decode|softmax|argmax|numpy|to_|item|len",
    re.IGNORECASE,
)


def without_gradients(found: GradEvaluation, module: Module, project: Project) -> Fix | None:
    """Put the evaluation under ``torch.no_grad()``; ``None`` where that could change more than the memory."""
    runs = runs_of(project)
    loop, record = found.loop, found.record
    scope = loop.scope
    records = runs.records(module, scope) if record.frame is not None and scope is record.frame.scope else [record]
    if any(has_backward(other, inner) for other in records for inner in other.loops if inner.node is loop.node):
        return None  # the same loop trains where it is called another way
    if any(use.what == HOOKED and loop in use.loops for use in record.uses):
        return _UNHOOKED
    if _differentiated(found, project) or result_differentiated(scope, module, project) or _reads_mode(loop.scope.node):
        return None
    name = imported_as(module, "torch")
    edits: list[Edit] = []
    if name is None:
        if "torch" in module.root.effects:
            return None
        edits.append(import_edit(module, "import torch", loop.node))
        name = "torch"
    elif any(name in inner.effects for inner in _functions_around(scope)) or not is_bound_before(module, name, loop.node):
        return None  # another thing of that name, or none yet
    known = all(event.known and event.plain for event in record.forwards if loop in event.loops)
    strange = [
        use
        for use in record.uses
        if loop in use.loops and (use.what.startswith("module.") or (use.what.startswith("given to") and not _HARMLESS.search(use.what)))
    ]
    safety = Safety.SAFE if known and not strange and not _reaches_out(scope, module) else Safety.UNSAFE
    node = scope.node
    whole = (
        isinstance(node, cst.FunctionDef)
        and not scope.yields
        and node.asynchronous is None
        and all(is_evaluation(other, inner) for other in records for inner in other.loops if inner.scope is scope and inner.batches)
        and not any(other.backwards or any(use.what in {"gradients", "step"} for use in other.uses) for other in records)
        and all(event.mode is not Mode.ON or any(inner.scope is scope for inner in event.loops) for other in records for event in other.forwards)
    )
    text = Text(module.tree)
    if any(_goes_backward(call, module, scope, project) for call in descend(loop.repeated) if isinstance(call, cst.Call)):
        wrapped = [_wrapped(statement, module, text, f"with {name}.no_grad():") for statement in _passes(found, module)]
        within = tuple(edit for one in wrapped for edit in one)
        return Fix(Safety.UNSAFE, f"run the forward pass under `{name}.no_grad()`", (*edits, *within)) if wrapped and all(wrapped) else None
    if whole and isinstance(node, cst.FunctionDef):
        start = text.span(node)[0]
        row, _ = text.spot(start)
        line = text.starts[row - 1]
        lead = re.compile(r"[ \t]*").match(text.text, line)
        indent = lead.group() if lead else ""
        if text.text[line + len(indent) :].startswith("def "):
            edits.append(text.replaced(line, line, f"{indent}@{name}.no_grad()\n"))
            return Fix(safety, f"decorate the function with `@{name}.no_grad()`", tuple(edits))
    if node is not module.tree.module and scope.yields:
        return None
    inner = _wrapped(loop.node, module, text, f"with {name}.no_grad():")
    return Fix(safety, f"run the loop under `{name}.no_grad()`", (*edits, *inner)) if inner else None


def _goes_backward(call: cst.Call, module: Module, scope: Scope, project: Project, depth: int = 0) -> bool:
    """Whether a call computes gradients, itself or in a function of the project that it leads to: a saliency map beside an evaluation."""
    if names.last_name(call.func) == "backward" or names.dotted(call.func).endswith("autograd.grad"):
        return True
    evaluator = runs_of(project).evaluator
    for alt in evaluator.plainly(call.func, module, scope)[:_MOST] if depth < _DEEPEST else ():
        called = evaluator.method(alt.value, "__call__") if isinstance(alt.value, Instance) else alt.value
        if isinstance(called, FunctionRef) and any(_goes_backward(one, called.module, called.scope, project, depth + 1) for one in called.scope.calls):
            return True
    return False


def _passes(found: GradEvaluation, module: Module) -> list[cst.CSTNode]:
    """The statements of a loop that lead to its forward passes."""
    ways = ((event.node, *(via.call for via in event.via[len(found.loop.via) :])) for event in found.forwards)
    return list(dict.fromkeys(module.walk.statement_of(calls[1] if calls[1:] else calls[0]) for calls in ways))


def _reads_mode(node: cst.CSTNode) -> bool:
    """Whether code asks whether gradients are recorded."""
    return any(isinstance(part, cst.Attribute) and part.attr.value in {"requires_grad", "grad_fn", "is_grad_enabled", "is_leaf"} for part in descend(node))


def _reaches_out(scope: Scope, module: Module) -> bool:
    """Whether the function keeps something on objects that outlive it, calls what nobody can name, or hooks look at what its model does."""
    if scope.parent is not None:
        outside = set(names.parameter_names(scope)) | {"self"}
        for name, effects in scope.effects.items():
            if name in outside and any(effect.path and effect.kind in {"assign", "append", "extend", "update", "setdefault"} for effect in effects):
                return True
            if name in scope.outer or name in scope.enclosing:
                return True
    if any(isinstance(call.func, cst.Call | cst.Subscript) or (_CALLBACK.search(names.last_name(call.func)) and call.args) for call in scope.calls):
        return True
    return any("hook" in names.last_name(call.func) for call, _ in module.walk.calls)


def _functions_around(scope: Scope) -> list[Scope]:
    """A scope and those around it, without the module's."""
    found: list[Scope] = []
    here: Scope | None = scope
    while here is not None and here.parent is not None:
        found.append(here)
        here = here.parent
    return found


def _differentiated(found: GradEvaluation, project: Project) -> bool:
    """Whether a caller computes gradients of what the function returns."""
    runs = runs_of(project)
    frame = found.record.frame
    sources = {id(event.node) for event in found.forwards}
    if frame is None or frame.scope.parent is None:
        return any(event.sources & sources for event in found.record.backwards)
    for site in runs.evaluator.calls.sites(frame.module, frame.scope, most=6):
        for other in runs.records(site.module, site.scope):
            if any(event.sources & sources for event in other.backwards):
                return True
    return False


def _step(node: cst.CSTNode, lead: str, module: Module) -> str:
    """One step of indentation: that of the statement's own block where the statement stands so, which may differ from the one of most of the file."""
    body = next((part for part in descend(node) if isinstance(part, cst.IndentedBlock)), None)
    own = body.indent if body is not None else None
    return module.tree.module.default_indent if own is None or lead.replace(own, "") else own


def _wrapped(node: cst.CSTNode, module: Module, text: Text, header: str) -> list[Edit]:
    """The statement one level deeper, under a header. Lines inside of strings stay where they are."""
    start, end = text.span(node)
    first, _ = text.spot(start)
    last, _ = text.spot(max(start, end - 1))
    line = text.starts[first - 1]
    lead = text.text[line:start]
    unit = _step(node, lead, module)
    if lead.strip() or (lead and lead.replace(unit, "")):
        return []
    return [text.replaced(line, line, f"{lead}{header}\n{unit}"), *moved_right([node], first + 1, last, unit, text)]
