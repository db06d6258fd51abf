"""Which files are tests: what they do with data is small, and done on purpose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oomlint.model.project import Module

_TESTS: Final = re.compile(rb"^\s*(async )?def test_|^import (pytest|unittest)|^from (pytest|unittest)|unittest\.TestCase", re.MULTILINE)


def is_test(module: Module) -> bool:
    """Whether a file belongs to a test suite, by its name and folder."""
    parts = module.path.split("/")
    return parts[-1].startswith(("test_", "conftest")) or parts[-1].endswith("_test.py") or "tests" in parts[-3:-1]


def holds_tests(module: Module) -> bool:
    """Whether a file is one of a test suite, by what it holds: research code calls its evaluations `test_*.py`."""
    key = ("tests", module.path)
    known = module.project.memo.get(key)
    if known is None:
        known = module.project.memo[key] = _TESTS.search(module.project.raw(module.path)) is not None
    return bool(known)
