"""How many columns a table has, where that is told behind the call that reads it: ``.reshape((-1, 25))``, ``[["time", "load"]]``, ``usecols=[0, 3]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.tensor_shapes import is_rest
from oomlint.model.tensor_state import ROWS
from oomlint.model.values import greatest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_LAYS: Final = frozenset({"reshape", "view"})


def columns_of(module: Module, scope: Scope, node: cst.BaseExpression) -> int | None:
    """So many columns at most that are taken of what an expression reads; ``None`` where that is not told."""
    asked = arguments.named(node, "usecols") if isinstance(node, cst.Call) else None
    if isinstance(asked, cst.List | cst.Tuple):
        return len(asked.elements)
    here: cst.CSTNode = node
    for above in module.walk.ancestors(node):
        found = None
        if isinstance(above, cst.Call):
            if above.func is not here:
                return None
            if names.last_name(above.func) in _LAYS:
                found = _laid_out(module, scope, arguments.plain(above))
        elif isinstance(above, cst.Subscript):
            if above.value is not here:
                return None
            found = _taken(module, scope, above)
        elif not isinstance(above, cst.Attribute):
            return None
        if found is not None:
            return found
        here = above
    return None


def _laid_out(module: Module, scope: Scope, sizes: Sequence[cst.BaseExpression]) -> int | None:
    """The columns of rows that are laid below each other, however many."""
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [one.value for one in sizes[0].elements]
    return _number(module, scope, sizes[1]) if len(sizes) == ROWS and is_rest(sizes[0]) else None


def _taken(module: Module, scope: Scope, node: cst.Subscript) -> int | None:
    """The columns that an index takes of all rows."""
    parts = [one.slice for one in node.slice]
    if len(parts) == 1 and isinstance(parts[0], cst.Index) and isinstance(parts[0].value, cst.List):
        words = parts[0].value.elements
        return len(words) if all(isinstance(one.value, cst.SimpleString) for one in words) else None
    last = parts[-1]
    if len(parts) != ROWS:
        return None
    if isinstance(last, cst.Index):
        return len(last.value.elements) if isinstance(last.value, cst.List) else 1 if isinstance(last.value, cst.Integer) else None
    if isinstance(last, cst.Slice) and last.upper is not None:
        upper = _number(module, scope, last.upper)
        return upper if upper is not None and upper > 0 else None
    return None


def _number(module: Module, scope: Scope, node: cst.BaseExpression) -> int | None:
    evaluator = evaluator_of(module.project)
    found = evaluator.plainly(node, module, scope)
    if any(step.kind == "option" for alt in found for step in alt.story):
        return None
    return greatest(found)
