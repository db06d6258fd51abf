"""The fix for a file that nobody closes: a ``with`` around the statements that use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.fixes.rewrites import moved_right
from oomlint.memory.handles.resource_state import End
from oomlint.model import names
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend, uses_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.finding import Edit
    from oomlint.memory.handles.openings import Opening
    from oomlint.memory.handles.resource_state import Trail
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_NAMES: Final = ("f", "h5", "h5_file", "h5_opened")
_ADVICE: Final = "open it in a `with` block, and read what is needed (`[...]`, `[()]`) inside it"
# Between the statement and the call, these decide whether, or how often, the call runs at all.
_DECIDES: Final = (cst.IfExp, cst.BooleanOperation, cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.NamedExpr, cst.Await)
# What may stand beside a file without a name: it takes no time, and touches nothing else.
_HARMLESS: Final = frozenset({"len", "int", "float", "list", "tuple", "str", "bool", "sorted"})
_OF_ARRAYS: Final = frozenset({"astype", "get", "keys", "copy", "float", "long"})
_LIBRARIES: Final = ("np.", "numpy.", "torch.")


def under_with(opening: Opening, trail: Trail) -> Fix:
    """Put the file under ``with``, up to its last use; advice alone where an object of the file has to outlive that, or the uses stand apart."""
    edits: list[Edit] | None = None
    if not trail.captured and not {End.HANDED_OUT, End.MAYBE_KEPT, End.CLOSED} & trail.ends.keys():
        edits = _edits(opening, trail)
    if not edits:
        return Fix(Safety.DISPLAY, _ADVICE)
    safe = not {End.MAYBE_OUT, End.UNKNOWN} & trail.ends.keys() and _plain(opening, trail)
    return Fix(Safety.SAFE if safe else Safety.UNSAFE, "open it in a `with` block", tuple(edits))


def _plain(opening: Opening, trail: Trail) -> bool:
    """Whether nothing that the file is used for can need it after the last use."""
    module = opening.module
    statement = module.walk.statement_of(opening.call)
    line = module.walk.parents.get(statement) if isinstance(statement, cst.BaseSmallStatement) else statement
    block = module.walk.parents.get(line) if line is not None else None
    if line is None or not isinstance(block, cst.IndentedBlock | cst.Module):
        return False
    region = _region(line, block.body, trail, module)
    if region is None or any(isinstance(node, cst.Yield | cst.Await) for item in region for node in descend(item)):
        return False
    return _plain_name(statement, opening.call) is not None or _alone(opening)


def _alone(opening: Opening) -> bool:
    """Whether nothing else happens in the statement of a file without a name: before, it was closed at once."""
    module = opening.module
    statement = module.walk.statement_of(opening.call)
    value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign | cst.Return) else None
    if value is None:
        return False
    own = set(descend(opening.call))
    for node in descend(value):
        if isinstance(node, cst.BinaryOperation | cst.BooleanOperation | cst.Comparison) and node not in own:
            return False
        if isinstance(node, cst.Call) and node is not opening.call and node not in own:
            dotted = names.dotted(node.func)
            method = node.func.attr.value if isinstance(node.func, cst.Attribute) and not dotted else ""
            if dotted not in _HARMLESS and not dotted.startswith(_LIBRARIES) and method not in _OF_ARRAYS:
                return False
    return True


def _edits(opening: Opening, trail: Trail) -> list[Edit] | None:
    module, walk = opening.module, opening.module.walk
    call = opening.call
    statement = walk.statement_of(call)
    line = walk.parents.get(statement) if isinstance(statement, cst.BaseSmallStatement) else statement
    block = walk.parents.get(line) if line is not None else None
    if call.lpar or line is None or not isinstance(block, cst.IndentedBlock | cst.Module):
        return None
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) != 1:
        return None
    region = _region(line, block.body, trail, module)
    if region is None:
        return None
    text = Text(module.tree)
    assigned = _plain_name(statement, call)
    if assigned is not None:
        if len(region) < 2:  # noqa: PLR2004 - nothing behind the opening uses it
            return None
        start, at = text.span(statement)[0], text.span(call)[0]
        edits = [text.replaced(start, at, "with "), text.replaced(*_twice(text.span(call)[1]), f" as {assigned}:")]
        stop = text.span(statement)[1]
        if text.text[text.span(call)[1] : stop].strip():
            return None
        return _deeper(region[1:], line, text, edits, after=stop)
    if not _runs_always(call, statement, module):
        return None
    name = next((n for n in _NAMES if not _taken(n, opening.scope)), None)
    lead = _lead(line, text)
    if name is None or lead is None or "\n" in (code := module.code(call)):
        return None
    start = text.span(line)[0]
    edits = [text.replaced(start, start, f"with {code} as {name}:\n{lead[0]}{lead[1]}"), text.replaced(*text.span(call), name)]
    return _deeper(region, line, text, edits, after=start)


def _twice(offset: int) -> tuple[int, int]:
    return offset, offset


def _plain_name(statement: cst.CSTNode, call: cst.Call) -> str | None:
    """The one name that the statement gives the file."""
    if isinstance(statement, cst.Assign) and statement.value is call and len(statement.targets) == 1 and isinstance(statement.targets[0].target, cst.Name):
        return statement.targets[0].target.value
    return None


def _region(line: cst.CSTNode, body: Sequence[cst.CSTNode], trail: Trail, module: Module) -> list[cst.CSTNode] | None:
    """The statements of the block from the opening to the last use; ``None`` where a use stands elsewhere."""
    place = next((n for n, item in enumerate(body) if item is line), None)
    if place is None:
        return None
    home = {item: n for n, item in enumerate(body)}
    last = place
    for use in trail.uses:
        here: cst.CSTNode | None = use
        while here is not None and here not in home:
            here = module.walk.parents.get(here)
        if here is None or home[here] < place:
            return None
        last = max(last, home[here])
    return list(body[place : last + 1])


def _runs_always(call: cst.Call, statement: cst.CSTNode, module: Module) -> bool:
    """Whether the call is the first thing that the statement does, once."""
    if isinstance(statement, cst.For):
        root: cst.CSTNode = statement.iter
    elif isinstance(statement, cst.Assign | cst.AnnAssign | cst.Return | cst.Expr) and statement.value is not None:
        root = statement.value
    else:
        return False
    inside = set(descend(root))
    if call not in inside or any(here in inside and isinstance(here, _DECIDES) for here in module.walk.ancestors(call)):
        return False
    # Calls are made from the inside out and from left to right: those that hold this one come after it.
    holders = set(module.walk.ancestors(call))
    own = set(descend(call))
    first = next((n for n in descend(root) if isinstance(n, cst.Call | cst.Yield) and n not in holders), None)
    return (first is call or first in own) and not any(isinstance(n, cst.Yield) for n in inside)


def _taken(name: str, scope: Scope) -> bool:
    return uses_name(scope.node, (name,))


def _lead(line: cst.CSTNode, text: Text) -> tuple[str, str] | None:
    """The blanks before a statement, and one step of indentation in its style; ``None`` where it does not start its line."""
    start = text.span(line)[0]
    lead = text.text[text.starts[text.spot(start)[0] - 1] : start]
    if lead.strip():
        return None
    unit = "\t" if lead and not lead.strip("\t") else text.tree.module.default_indent
    return (lead, unit) if not lead.replace(unit, "") else (lead, "    ") if not lead.strip(" ") else None


def _deeper(region: Sequence[cst.CSTNode], line: cst.CSTNode, text: Text, edits: list[Edit], *, after: int) -> list[Edit] | None:
    """Move the lines of the region one step to the right; lines inside of strings stay."""
    style = _lead(line, text)
    if style is None:
        return None
    lead, unit = style
    first = text.spot(after)[0] + 1
    end = text.span(region[-1])[1]
    last = text.spot(max(end - 1, 0))[0]
    # Comments behind the last statement that stand deeper than the block belong to it.
    while last < len(text.starts) and re.match(rf"{re.escape(lead)}[ \t]+#", text.text[text.starts[last] :]):
        last += 1
    return [*edits, *moved_right(region, first, last, unit, text)]
