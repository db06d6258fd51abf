"""What a test of its type says of a name: ``isinstance(x, float)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import PLAIN_TYPES
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator


def plain_names(test: cst.BaseExpression, *, came_out: bool) -> Iterator[str]:
    """Names that hold a number or a text where a test has come out so."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from plain_names(test.expression, came_out=not came_out)
    elif isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And if came_out else cst.Or):
        yield from plain_names(test.left, came_out=came_out)
        yield from plain_names(test.right, came_out=came_out)
    elif came_out and isinstance(test, cst.Call) and names.dotted(test.func) == "isinstance" and len(test.args) == 2:  # noqa: PLR2004 - what, and of which type
        told, types = (arg.value for arg in test.args)
        wanted = {names.dotted(part.value) for part in types.elements} if isinstance(types, cst.Tuple) else {names.dotted(types)}
        if isinstance(told, cst.Name) and wanted <= PLAIN_TYPES:
            yield told.value
