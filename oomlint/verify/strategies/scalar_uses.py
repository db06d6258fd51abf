"""Whether a program asks of a value what only tensors have, where a fix makes a number of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_location import callee, named, spot
from oomlint.verify.case import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.case import Case

_TENSOR: Final = frozenset(
    "item cpu detach numpy backward tolist clone to cuda dim size shape dtype device mean sum sqrt exp log view reshape unsqueeze requires_grad grad_fn".split()
)
_TAKING: Final = frozenset({"stack", "cat", "isnan", "isfinite", "isinf", "all_reduce", "exp", "sqrt", "log"})  # functions of torch that take tensors only


def asked_of(case: Case, names: str) -> str:
    """What the file after the fix asks of those parts ("returned, self.total") and a number has not; empty where nothing."""
    tree, before = case.tree(Part.AFTER), case.tree(Part.BEFORE)
    if tree is None or before is None:
        return "its uses cannot be looked at"
    where = spot(before, case.source(Part.BEFORE).program_row(case.finding.place))
    wanted = {name.removeprefix("self.").strip("`") for name in names.split(", ")}
    function = where.function.rpartition(".")[2]
    held = set(_results(tree, function)) if "returned" in wanted else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _TENSOR and _is(node.value, held, wanted, function):
            return f"line {node.lineno} asks it for `.{node.attr}`"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _TAKING
            and ast.unparse(node.func.value).startswith("torch")
        ):
            inside = [item for part in node.args for item in (part.elts if isinstance(part, (ast.List, ast.Tuple)) else [part])]
            if any(_is(item, held, wanted, function) for item in inside):
                return f"line {node.lineno} gives it to `{ast.unparse(node.func)}`"
    return ""


def own(case: Case) -> set[str]:
    """Variables of the function of the finding that nothing outside of it has given."""
    tree = case.tree(Part.BEFORE)
    function = named(tree, spot(tree, case.source(Part.BEFORE).program_row(case.finding.place)).function) if tree is not None else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    outer = {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
    outer |= {name for item in ast.walk(function) if isinstance(item, (ast.Global, ast.Nonlocal)) for name in item.names}
    made = {
        target.id
        for item in ast.walk(function)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    return made - outer


def _is(node: ast.expr, held: set[str], wanted: set[str], function: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr in wanted - {"returned"}
    if isinstance(node, ast.Call):
        return "returned" in wanted and callee(node) == function
    return isinstance(node, ast.Name) and (node.id in held or node.id in wanted - {"returned"})


def _results(tree: ast.AST, function: str) -> Iterator[str]:
    """Names that hold what the function gives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(item, ast.Call) and callee(item) == function for item in ast.walk(node.value)):
            yield from (item.id for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name))
