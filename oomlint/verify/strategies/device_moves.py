"""What a fix changes that has no effect on the CPU: where tensors are, and mixed precision. Equal results say nothing of it there."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_location import callee

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOVES: Final = frozenset({"to", "cpu", "cuda"})
_PRECISION: Final = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
_COPYING: Final = frozenset({"deepcopy", "clone", "copy", "save", "dumps"})
_SCALING: Final = frozenset({"scale", "unscale_"})  # of an object that is called a scaler


def precision(before: str, after: str) -> str:
    """What of mixed precision a fix adds or takes out; empty where it does neither."""
    old, new = (Counter(_precise(ast.parse(text))) for text in (before, after))
    return next((name for name in (*old, *new) if old[name] != new[name]), "")


def copied(before: str, after: str) -> str:
    """A way of copying of which a fix leaves none; empty where there is none, or another one."""
    old, new = ([callee(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and callee(node) in _COPYING] for text in (before, after))
    return old[0] if old and not new else ""


def moves(before: str, after: str) -> str:
    """A way of moving tensors that a fix adds or takes out, as in ".cpu()"; empty where there is none."""
    old, new = (Counter(_moved(ast.parse(text))) for text in (before, after))
    return next((name for name in (*new, *old) if old[name] != new[name]), "")


def _precise(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = callee(node)
            scaler = isinstance(node.func, ast.Attribute) and "scaler" in ast.unparse(node.func.value).lower()
            if name in _PRECISION or (scaler and name in _SCALING):
                yield name


def _moved(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = callee(node)
            if isinstance(node.func, ast.Attribute) and name in _MOVES:
                yield f".{name}({', '.join(ast.unparse(item) for item in node.args)})"
            yield from ("non_blocking" for item in node.keywords if item.arg == "non_blocking")
