"""Which files are tests: what they do with data is small, and done on purpose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_RUNNERS: Final = re.compile(rb"^[ \t]*(?:import|from)[ \t]+(?:pytest|unittest|numpy\.testing|torch\.testing|absl\.testing|hypothesis)\b", re.MULTILINE)
_COLLECTED: Final = re.compile(r"(^|[/\\\\])(test_[^/\\\\]*|[^/\\\\]*_test)\.py$")  # files that pytest looks into
_MAY_TEST: Final = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+test_", re.MULTILINE)


def holds_tests(module: Module) -> bool:
    """Whether a file is one of a test suite, by what it imports and defines: research code has `test_*.py` and `test_epoch` for its evaluations."""
    key = ("tests", module.path)
    known = module.project.memo.get(key)
    if known is None:
        raw = module.project.raw(module.path)
        known = module.project.memo[key] = _RUNNERS.search(raw) is not None or (_MAY_TEST.search(raw) is not None and _has_case(module))
    return bool(known)


def _has_case(module: Module) -> bool:
    """Whether there is a function that pytest would run: it states what has to hold, or runs without an argument; both of these if it is called here."""
    collected = _COLLECTED.search(module.path) is not None
    return any(_is_case(module, scope, runs=collected and not names.parameters(scope)) for scope in _cases(module.root))


def _is_case(module: Module, scope: Scope, *, runs: bool) -> bool:
    return (runs and _states(scope)) if scope.name in module.called else (runs or _states(scope))


def _cases(root: Scope) -> list[Scope]:
    """Functions that pytest collects: of the module, and of classes without an `__init__` that are named for tests."""
    classes = [one for one in root.children if one.is_class and one.name.startswith("Test") and one.child("__init__") is None]
    return [one for home in (root, *classes) for one in home.children if one.is_function and one.name.startswith("test_")]


def _states(scope: Scope) -> bool:
    return any(isinstance(node, cst.Assert) or (isinstance(node, cst.Call) and names.last_name(node.func).startswith("assert")) for node in scope.nodes())
