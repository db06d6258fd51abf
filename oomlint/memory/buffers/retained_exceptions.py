"""What keeps tensors alive without being named after them: a stored exception, the ``Out`` of a notebook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.amounts import readable
from oomlint.finding import Confidence, Message, StoreFact, Told
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.qualified_names import MODULES
from oomlint.memory.shared.training_loops import rounds
from oomlint.model import names
from oomlint.model.lifetime import ended_in
from oomlint.model.torch_tables import MODULE_NAME
from oomlint.model.values import ExternalCall, FunctionRef, Instance
from oomlint.scout.forms import KEEPS
from oomlint.source import FileKind as Source
from oomlint.syntax.nodes import block_of, descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

_BIG = 16 << 20  # bytes
_FEW = 16  # rounds of a loop that can keep no more exceptions than that
_RERAISED = re.compile(r"\b(ExceptionGroup|BaseExceptionGroup)\(")


# -- exceptions ----------------------------------------------------------------------------------------------------------


def kept_exceptions(module: Module, project: Project) -> Iterator[Told]:
    """Exceptions that a loop stores whole, raised by code that runs a model."""
    tries = [(scope, node) for scope in module.walk.scopes if not scope.is_class and scope.loops for node in scope.tries]
    if not tries or _RERAISED.search(module.source.text):
        return
    for scope, node in tries:
        yield from _in_try(module, project, scope, node)


def _in_try(module: Module, project: Project, scope: Scope, node: cst.Try) -> Iterator[Told]:
    loop = next(iter(loops_around(node, module, scope)), None) if any(handler.name is not None for handler in node.handlers) else None
    if loop is None or _is_short(module, project, scope, loop):
        return
    outermost = [loop, *loops_around(loop, module, scope)][-1]
    for handler in node.handlers:
        caught = handler.name.name if handler.name is not None else None
        if not isinstance(caught, cst.Name) or not _goes_on(handler) or _is_cleared(module, handler, caught.value):
            continue
        for statement in block_of(handler.body):
            holder = _stored(statement, caught.value)
            path = path_of(holder) if holder is not None else None
            if holder is None or path is None or ended_in(path, outermost, module, scope) or _is_raised(module, scope, container := module.code(holder)):
                continue
            raiser = _runs_a_model(module, project, scope, node.body)
            if raiser is not None:
                spot = statement.value if isinstance(statement, cst.Expr) else statement
                frames = f"its traceback keeps all tensors alive in the frames that `{caught.value}` came through"
                message = Message(f"`{container}` keeps an exception object", frames, "store `repr(...)` of the exception instead")
                place, related = module.place(spot), (module.place(raiser, "the frames are of this call"),)
                yield Told(place, message, confidence=Confidence.MEDIUM, related=related, facts=(StoreFact(place, container),))


def _is_short(module: Module, project: Project, scope: Scope, loop: cst.For | cst.While) -> bool:
    """Whether the loop has a handful of rounds: attempts, not samples."""
    if isinstance(loop, cst.While) or re.search(r"attempt|retr(y|ies)|trial", module.code(loop.target)):
        return True
    count = rounds(project, loop, module, scope)
    return count is not None and count <= _FEW


def _goes_on(handler: cst.ExceptHandler) -> bool:
    return not any(isinstance(s, cst.Raise | cst.Return | cst.Break) for s in block_of(handler.body))


def _is_cleared(module: Module, handler: cst.ExceptHandler, name: str) -> bool:
    """Whether the handler takes the frames off the exception."""
    text = module.code(handler.body)
    return f"{name}.__traceback__" in text or "clear_frames" in text or f"{name} = " in text


def _stored(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """The container that a statement puts the exception into."""
    value: cst.BaseExpression | None = None
    holder: cst.BaseExpression | None = None
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call) and isinstance(statement.value.func, cst.Attribute):
        method = statement.value.func
        if method.attr.value in KEEPS and len(statement.value.args) == 1:
            value, holder = statement.value.args[0].value, method.value
    elif isinstance(statement, cst.Assign) and isinstance(statement.targets[0].target, cst.Subscript):
        value, holder = statement.value, statement.targets[0].target.value
    if value is None:
        return None
    parts = [e.value for e in value.elements] if isinstance(value, cst.Tuple | cst.List | cst.Dict) else [value]
    return holder if any(isinstance(part, cst.Name) and part.value == name for part in parts) else None


def _is_raised(module: Module, scope: Scope, container: str) -> bool:
    return any(isinstance(n, cst.Raise) and n.exc is not None and container in module.code(n.exc) for n in scope.nodes())


def _runs_a_model(module: Module, project: Project, scope: Scope, body: cst.BaseSuite) -> cst.Call | None:
    """A call whose frames hold activations: a model, or a function of the project that runs one."""
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    for node in descend(body, into_scopes=False):
        if not isinstance(node, cst.Call):
            continue
        if _is_torch(module) and isinstance(node.func, cst.Name | cst.Attribute) and MODULE_NAME.search(names.last_name(node.func)):
            return node
        for alt in evaluator.values(node.func, frame)[:4]:
            value = alt.value
            if isinstance(value, Instance) and evaluator.derives(value.cls, *MODULES):
                return node
            if isinstance(value, FunctionRef) and _is_torch(value.module) and _function_runs_a_model(project, value):
                return node
    return None


def _function_runs_a_model(project: Project, function: FunctionRef) -> bool:
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(function.module, function.scope)
    return any(
        MODULE_NAME.search(names.last_name(call.func)) is not None
        or (isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward")
        or any(isinstance(a.value, Instance) and evaluator.derives(a.value.cls, *MODULES) for a in evaluator.values(call.func, frame)[:4])
        for call in function.scope.calls
    )


def _is_torch(module: Module) -> bool:
    return re.search(r"^\s*(import|from) torch\b", module.source.text, re.MULTILINE) is not None


# -- the Out of a notebook -----------------------------------------------------------------------------------------------


def shown_and_kept(module: Module, project: Project) -> Iterator[Told]:
    """Last expressions of cells whose big value stays in ``Out`` when nothing else names it."""
    if module.source.kind is not Source.NOTEBOOK:
        return
    lines = module.tree.module.body
    cells = [module.place(line).cell for line in lines]
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and cells[number + 1] == cells[number]:
            continue
        last = line.body[-1] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(last, cst.Expr) or isinstance(last.semicolon, cst.Semicolon):
            continue
        found = _shown(module, project, last.value)
        if found is not None:
            yield found


def _shown(module: Module, project: Project, node: cst.BaseExpression) -> Told | None:
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, module.root)
    content = datasets_of(project).contents.of(node, frame)
    big = content.size.exact is not None and content.size.exact >= _BIG
    size = readable(content.size.exact) if content.size.exact is not None else content.words
    if isinstance(node, cst.Name):
        if content.kind not in {PayloadKind.TENSOR, PayloadKind.ARRAY, PayloadKind.TENSORS, PayloadKind.ARRAYS} or (content.size.exact is not None and not big):
            return None
        later = _deleted(module, node)
        return _kept(module, node, f"`del {node.value}` does not free it ({size})", later) if later is not None else None
    if not isinstance(node, cst.Call):
        return None
    if big and content.kind in {PayloadKind.TENSOR, PayloadKind.ARRAY}:
        return _kept(module, node, f"IPython keeps this {'tensor' if content.kind is PayloadKind.TENSOR else 'array'} ({size}) until the kernel ends")
    if any(_is_model(project, alt.value) for alt in evaluator.values(node.func, frame)):
        return _kept(module, node, "IPython keeps it with the graph and the activations of the forward pass")
    return None


def _kept(module: Module, node: cst.BaseExpression, why: str, later: cst.CSTNode | None = None) -> Told:
    message = Message("The last expression of the cell stays in `Out`", why, "assign the value to a name, or end the line with a semicolon")
    related = (module.place(later, "deleted here"),) if later is not None else ()
    return Told(module.place(node), message, confidence=Confidence.MEDIUM, related=related)


def _is_model(project: Project, value: Value) -> bool:
    if isinstance(value, Instance):
        return evaluator_of(project).derives(value.cls, *MODULES)
    return isinstance(value, ExternalCall) and re.search(r"^torchvision\.models\.|^timm\.create_model$", value.name) is not None


def _deleted(module: Module, node: cst.Name) -> cst.CSTNode | None:
    """Where a later statement of the notebook deletes the name."""
    row = module.tree.span(node)[0]
    for effect in module.root.effects.get(node.value, ()):
        if effect.kind == "delete" and not effect.path and module.tree.span(effect.node)[0] > row:
            return effect.node
    return None
