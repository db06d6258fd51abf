"""What the statements at the top level of a program are for the tolerant loader."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import types
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.ast_names import is_main, root, stored
from oomlint.verify.child.loading import stubs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def fill(module: types.ModuleType, tree: ast.Module, attempts: Callable[[], Callable[[ast.stmt], object]]) -> list[str]:
    """Run the simple statements of the main block that set globals which functions need. Gives the names that are set.

    ``attempts`` gives for each block what runs a statement of it, whatever that raises.
    """
    missing = {name for name in _read(tree) if name not in module.__dict__ and not hasattr(builtins, name)}
    set_now: list[str] = []
    for block in _blocks(tree, missing):
        attempt = attempts()
        for statement in _slice(block, missing):
            attempt(statement)
        found = sorted(name for name in missing if name in module.__dict__)
        set_now += found
        missing -= set(found)
    return list(dict.fromkeys(set_now))


def _read(tree: ast.Module) -> set[str]:
    """Names that functions read and do not set themselves."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = list(ast.walk(node))
            shared = {name for item in inner if isinstance(item, ast.Global) for name in item.names}
            own = {item.id for item in inner if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)} - shared
            own |= {item.arg for item in inner if isinstance(item, ast.arg)}
            own |= {item.name for item in inner if isinstance(item, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) and item.name}
            own |= {alias.asname or alias.name.partition(".")[0] for item in inner if isinstance(item, (ast.Import, ast.ImportFrom)) for alias in item.names}
            names |= {item.id for item in inner if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)} - own
    return names


def _blocks(tree: ast.Module, missing: set[str]) -> Iterator[list[ast.stmt]]:
    """The main block, and the bodies of functions that set a global which is missing."""
    for node in tree.body:
        if isinstance(node, ast.If) and is_main(node.test):
            yield node.body
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(isinstance(item, ast.Global) and missing & set(item.names) for item in ast.walk(node)):
            yield node.body


def _assigned(statement: ast.stmt) -> list[str]:
    simple = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.If, ast.With, ast.Try))
    return stored(statement) if simple else []


def _slice(block: list[ast.stmt], missing: set[str]) -> list[ast.stmt]:
    """The statements that the missing names come from, in their order."""
    wanted = set(missing)
    kept: list[ast.stmt] = []
    for statement in reversed(block):
        stores = set(_assigned(statement))
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            stores = {root(statement.value, calls=True)}
        elif isinstance(statement, ast.Assign) and not stores:
            stores = {root(target, calls=True) for target in statement.targets}  # `args.cuda = ...`
        if stores & wanted:
            kept.append(statement)
            wanted |= {item.id for item in ast.walk(statement) if isinstance(item, ast.Name)}
    return kept[::-1]
