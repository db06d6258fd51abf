"""The fix for a list that no epoch empties: `self.<list>.clear()` at the end of the epoch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Edit, Fix, Safety
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.displays import is_empty_list
from oomlint.model.values import ClassRef, External
from oomlint.rows import ROW_END
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.memory.buffers.step_lists import StepList
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


def clearing(found: StepList, module: Module, project: Project) -> Fix | None:
    """The edit that empties the list at the end of the epoch; ``None`` where there is no plain place for it."""
    owner = found.cls.scope
    hook = f"on_{found.stage}_epoch_end"
    own = owner.child(hook)
    lists = [found, *found.others]
    if not all(_is_list(one) for one in lists):
        return None
    statements = [f"self.{one.name}.clear()" for one in lists]
    evaluator = runs_of(project).evaluator
    above = [base for base in evaluator.lineage(found.cls)[1:] if isinstance(base, ClassRef)]
    safety = Safety.SAFE
    if own is None:
        if any(base.scope.child(hook) is not None for base in above):
            return None
        edit = _new_hook(owner, module, hook, statements)
    else:
        if names.self_name(own) != "self":
            return None
        if not all(_only_reduced(own, module, one.name, project) for one in lists):
            return None
        edit = _last_statement(own, module, statements)
    if edit is None:
        return None
    if any(_read_elsewhere(one, hook, project) for one in lists):
        safety = Safety.UNSAFE
    return Fix(safety, f"clear it at the end of each {found.stage} epoch", (edit,))


def _is_list(found: StepList) -> bool:
    """Whether the attribute is made as an empty list: `clear` leaves it as it was at the start."""
    for method in found.cls.scope.children:
        if method.name not in {"__init__", "setup", "on_fit_start"}:
            continue
        for effect in method.effects.get("self", ()):
            if effect.path == (("attr", found.name),) and effect.kind == "assign":
                return is_empty_list(effect.value)
    return False


def _last_statement(own: Scope, module: Module, statements: list[str]) -> Edit | None:
    node = own.node
    if not isinstance(node, cst.FunctionDef) or not isinstance(node.body, cst.IndentedBlock):
        return None
    if any(isinstance(part, cst.Return) for part in descend(node.body, into_scopes=False)):
        return None
    text = Text(module.tree)
    last = node.body.body[-1]
    end = text.span(last)[1]
    start = text.span(node.body.body[0])[0]
    row, column = text.spot(start)
    indent = text.text[text.starts[row - 1] : text.starts[row - 1] + column - 1]
    stop = _line_end(text, end)
    return text.replaced(stop, stop, "".join(f"\n{indent}{statement}" for statement in statements))


def _new_hook(owner: Scope, module: Module, hook: str, statements: list[str]) -> Edit | None:
    node = owner.node
    if not isinstance(node, cst.ClassDef) or not isinstance(node.body, cst.IndentedBlock):
        return None
    text = Text(module.tree)
    first, last = node.body.body[0], node.body.body[-1]
    rows = [text.span(item)[0] for item in (first.decorators if isinstance(first, cst.FunctionDef | cst.ClassDef) else ())]
    row, column = text.spot(min([text.span(first)[0], *rows]))
    indent = text.text[text.starts[row - 1] : text.starts[row - 1] + column - 1]
    if indent.strip():
        return None
    deeper = indent + module.tree.module.default_indent
    stop = _line_end(text, text.span(last)[1])
    body = "".join(f"\n{deeper}{statement}" for statement in statements)
    return text.replaced(stop, stop, f"\n\n{indent}def {hook}(self):{body}")


def _only_reduced(own: Scope, module: Module, name: str, project: Project) -> bool:
    """Whether the hook only reads the list: nothing of it keeps the list itself."""
    evaluator = runs_of(project).evaluator
    frame = evaluator.calls.plain_frame(module, own)
    for node in own.nodes():
        if not (isinstance(node, cst.Attribute) and node.attr.value == name):
            continue
        above = module.walk.parents.get(node)
        if isinstance(above, cst.Attribute | cst.Subscript | cst.For | cst.CompFor | cst.Comparison | cst.BooleanOperation | cst.UnaryOperation | cst.If):
            continue
        call = module.walk.parents.get(above) if isinstance(above, cst.Arg) else None
        if not isinstance(call, cst.Call):
            return False
        found = [alt.value.name for alt in evaluator.values(call.func, frame)[:1] if isinstance(alt.value, External)]
        if not found or not found[0].startswith(
            ("torch.", "numpy.", "builtins.len", "builtins.sum", "builtins.zip", "builtins.enumerate", "builtins.max", "builtins.min", "sklearn.")
        ):
            return False
    return True


def _line_end(text: Text, offset: int) -> int:
    """The end of the line that an offset stands in, its comment included."""
    match = ROW_END.search(text.text, offset)
    return match.start() if match else len(text.text)


def _read_elsewhere(found: StepList, hook: str, project: Project) -> bool:
    """Whether something reads the list after the hook: another method, another file."""
    allowed = {hook, found.step.name, "__init__", "setup", "on_fit_start"}
    evaluator = runs_of(project).evaluator
    line = [base for base in evaluator.lineage(found.cls) if isinstance(base, ClassRef)] + evaluator.calls.subclasses(found.cls)
    for cls in line:
        for method in cls.scope.children:
            if method.is_function and any(names.last_name(call.func) in {"getattr", "vars", "__getattribute__"} for call in method.calls):
                return True
            if method.is_function and (method.name not in allowed or (cls is not line[0] and method.name == hook)):
                for node in method.nodes():
                    if isinstance(node, cst.Attribute) and node.attr.value == found.name:
                        return True
    pattern = re.compile(rf"(?<!self)\.{re.escape(found.name)}\b|[\"']{re.escape(found.name)}[\"']")
    return any(pattern.search(module.source.text) for module in project.mentioning((found.name.encode(),), found.cls.module.path))
