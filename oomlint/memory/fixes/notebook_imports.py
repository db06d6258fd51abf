"""Where in a notebook a new import goes: to the imports that have run before it is needed, behind what installs the library."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.rows import row_of
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from oomlint.finding import Edit
    from oomlint.model.project import Module

_INSTALLS = re.compile(r"\b(?:pip3?|conda|mamba|uv)\b.*\binstall\b")

_Spot = tuple[int, int]  # cell and row


def import_in_cell(module: Module, statement: str, user: cst.CSTNode | None) -> Edit:
    """The edit that adds an import to a notebook: beside imports of that library, else beside others, else in the cell that needs it."""
    text = Text(module.tree)
    body = module.tree.module.body
    top = _top(module, user)
    need = _spot(module, top) if top is not None else (len(module.source.text), 0)
    installed = max((spot for spot in _installs(module) if spot < need), default=(0, 0))
    imports = [item for item in body if _is_import(item) and _spot(module, item) < need and _seen_from(module, item, top)]
    package = statement.split()[1].partition(".")[0]
    near = [item for item in imports if package in _packages(item)] or [item for item in imports if _spot(module, item) > installed]
    if near:
        start = _row_start(text, near[0])
        return text.replaced(start, start, f"{statement}\n")
    own = [item for item in body if (top is None or _spot(module, item)[0] == need[0]) and _takes_import(module, item) and _spot(module, item) > installed]
    start = _row_start(text, next(iter([*own, *([top] if top is not None else []), *body])))
    return text.replaced(start, start, f"{statement}\n\n")


def _top(module: Module, node: cst.CSTNode | None) -> cst.CSTNode | None:
    """The statement of the program that holds a node."""
    for above in module.walk.ancestors(node) if node is not None else ():
        if isinstance(above, cst.Module):
            break
        node = above
    return node


def _spot(module: Module, item: cst.CSTNode) -> _Spot:
    place = module.place(item)
    return place.cell, place.row


def _installs(module: Module) -> list[_Spot]:
    """The lines that install a library."""
    found = [(line.cell, line.row) for line in module.source.shell if _INSTALLS.search(line.text)]
    magics = [(cell, mask.row) for cell in module.source.cells for mask in cell.masks]
    return found + [(cell.number, row) for cell, row in magics if _INSTALLS.search(row_of(cell.source, row))]


def _is_import(item: cst.CSTNode) -> bool:
    first = item.body[0] if isinstance(item, cst.SimpleStatementLine) else None
    return isinstance(first, cst.Import | cst.ImportFrom) and not _is_future(first)


def _is_future(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.ImportFrom) and names.dotted(node.module) == "__future__"


def _packages(item: cst.CSTNode) -> set[str]:
    """The libraries that an import brings."""
    first = item.body[0] if isinstance(item, cst.SimpleStatementLine) else None
    if isinstance(first, cst.ImportFrom):
        return {names.dotted(first.module).partition(".")[0]} if not first.relative else set()
    return {names.dotted(alias.name).partition(".")[0] for alias in first.names} if isinstance(first, cst.Import) else set()


def _seen_from(module: Module, item: cst.CSTNode, top: cst.CSTNode | None) -> bool:
    """Whether what a statement binds is there where it is needed: some cells keep their names to themselves, and see no others."""
    cell = module.source.cell_at(module.tree.span(item)[0])
    other = module.source.cell_at(module.tree.span(top)[0]) if top is not None else None
    return cell is not None and (cell is other or not cell.apart) and (other is None or cell is other or not other.apart)


def _takes_import(module: Module, item: cst.CSTNode) -> bool:
    """Whether an import may stand in front of a statement: none that is IPython's, no docstring, nothing of ``__future__``."""
    row = module.tree.span(item)[0]
    cell = module.source.cell_at(row)
    if cell is None or any(mask.row == row - cell.start + 1 for mask in cell.masks):
        return False
    first = item.body[0] if isinstance(item, cst.SimpleStatementLine) else item
    return not _is_future(first) and not (isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString))


def _row_start(text: Text, item: cst.CSTNode) -> int:
    """Offset of a statement's first row, its decorators included."""
    decorators = item.decorators if isinstance(item, cst.FunctionDef | cst.ClassDef) else ()
    return text.starts[min(text.spot(text.span(node)[0])[0] for node in (item, *decorators)) - 1]


def is_bound_before(module: Module, name: str, user: cst.CSTNode) -> bool:
    """Whether an import has bound a name when code at the top of the file, or of a cell, gets to run; what a function needs it needs later."""
    if module.walk.scope_at(user) is not module.root:
        return True
    row = module.tree.span(user)[0]
    statements = [effect.statement for effect in module.root.effects.get(name, ()) if effect.kind == "import"]
    seen = [item for item in statements if not module.source.cells or _seen_from(module, item, user)]
    return any(module.tree.span(item)[0] < row for item in seen)
