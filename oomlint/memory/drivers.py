"""Code that does not train: a test suite, and what a library's module runs when it is started by itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Severity
from oomlint.memory.suites import holds_tests
from oomlint.model import names
from oomlint.model.readings import FOUND, finder

if TYPE_CHECKING:
    from oomlint.finding import Finding
    from oomlint.model.project import Module

_LOWER: Final = {Severity.ERROR: Severity.WARNING, Severity.WARNING: Severity.NOTE, Severity.NOTE: Severity.NOTE}


def weighed(finding: Finding, module: Module) -> Finding:
    """A finding with its severity, one step lower where it stands in code that does not train."""
    if finding.severity is Severity.NOTE or not (holds_tests(module) or _in_driver(finding, module)):
        return finding
    return replace(finding, severity=_LOWER[finding.severity])


def _in_driver(finding: Finding, module: Module) -> bool:
    """Whether it stands under ``if __name__ == "__main__"`` in a file that others import."""
    for statement in module.tree.module.body:
        if isinstance(statement, cst.If) and _is_main(statement.test):
            place = module.place(statement)
            if place.cell == finding.place.cell and place.row <= finding.place.row <= place.end_row:
                return _is_imported(module)
    return False


def _is_main(test: cst.BaseExpression) -> bool:
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not isinstance(test.comparisons[0].operator, cst.Equal):
        return False
    sides = (test.left, test.comparisons[0].comparator)
    return any(names.dotted(side) == "__name__" for side in sides) and any(
        isinstance(side, cst.SimpleString) and side.evaluated_value == "__main__" for side in sides
    )


def _is_imported(module: Module) -> bool:
    """Whether another file of the project imports this one, as far as its name tells."""
    stem = module.path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    return any(path != module.path for path in module.project.search(_imports, (stem,), module.path))


@finder
def _imports(path: str, data: bytes, stem: str) -> str:
    """Whether a file imports a module of that name."""
    del path
    word = re.escape(stem.encode())
    return FOUND if stem.encode() in data and re.search(rb"^\s*(?:import\s|from\s)[^#\n]*(?<!\w)" + word + rb"(?!\w)", data, re.MULTILINE) else ""
