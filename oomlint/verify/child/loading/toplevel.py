"""What the statements at the top level of a program are for the tolerant loader."""

from __future__ import annotations

import ast
import importlib
import re
import types
from typing import Any, Final

from oomlint.verify.ast_names import root
from oomlint.verify.child.loading import stubs

HARMLESS: Final = (list, dict, set, types.ModuleType, stubs.Stub)  # a bare call of a method of these is run: `sys.path.append`, `NAMES.extend`
STARTING: Final = frozenset("system exit main run spawn launch show fit init_process_group sleep Fire popen call check_call Popen savefig".split())


def flags(tree: ast.Module) -> int:
    """The flags that the `__future__` imports of a program set for the compiler."""
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            future = importlib.import_module("__future__")
            for alias in node.names:
                flags |= getattr(getattr(future, alias.name, None), "compiler_flag", 0)
    return flags


def provided(tree: ast.Module) -> set[int]:
    """Rows of imports in a `try` that has something else to offer where they fail."""
    rows: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try):
            continue
        offers = any(
            isinstance(inner, (ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
            for handler in node.handlers
            if handler.type is None or re.search(r"\b(ImportError|ModuleNotFoundError|Exception)\b", ast.unparse(handler.type))
            for item in handler.body
            for inner in ast.walk(item)
        )
        if offers:
            rows.update(inner.lineno for item in node.body for inner in ast.walk(item) if isinstance(inner, (ast.Import, ast.ImportFrom)))
    return rows


def harmless(call: ast.Call, scope: dict[str, Any]) -> bool:
    """Whether a bare call at top level only prepares something."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr in STARTING:
        return False
    value = scope.get(root(call, calls=True))
    origin = type(value).__module__.partition(".")[0]
    return isinstance(value, HARMLESS) or origin in ("argparse", "logging")
