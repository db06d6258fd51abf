"""Larger rewrites that several rules offer: an import, a lambda as a function, a value wrapped in a call, an endless pass over a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Edit, Fix, Safety
from oomlint.memory.fixes.notebook_imports import import_in_cell, is_bound_before
from oomlint.model import names
from oomlint.rows import ROW_END
from oomlint.syntax.edits import Text, replace
from oomlint.syntax.nodes import descend, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def imported_as(module: Module, qualified: str) -> str | None:
    """The name under which a module (``numpy``, ``torch``, ``os``) can be written at the top of a file, or ``None``."""
    for name, effects in module.root.effects.items():
        for effect in effects:
            if effect.kind != "import" or not isinstance(effect.node, cst.ImportAlias) or only_for_types(module, effect.statement):
                continue
            dotted = names.dotted(effect.node.name)
            if dotted == qualified:
                return name if effect.node.asname is not None or "." not in qualified else None
            if effect.node.asname is None and dotted.partition(".")[0] == qualified:
                return name  # `import os.path` binds `os`
    return None


def only_for_types(module: Module, statement: cst.CSTNode) -> bool:
    """Whether a statement stands under ``if TYPE_CHECKING:``."""
    return any(isinstance(here, cst.If) and names.last_name(here.test) == "TYPE_CHECKING" for here in module.walk.ancestors(statement))


def import_edit(module: Module, statement: str, user: cst.CSTNode | None = None) -> Edit:
    """The edit that adds an import, in front of the first one, or after the docstring and ``__future__`` imports.

    In a notebook, where cells run one by one, it has to stand above ``user``, the code that needs it.
    """
    if module.source.cells:
        return import_in_cell(module, statement, user)
    text = Text(module.tree)
    for item in module.tree.module.body:
        if isinstance(item, cst.SimpleStatementLine):
            first = item.body[0]
            if isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString):
                continue
            if isinstance(first, cst.ImportFrom) and names.dotted(first.module) == "__future__":
                continue
            if isinstance(first, cst.Import | cst.ImportFrom):
                start = text.span(first)[0]
                return text.replaced(start, start, f"{statement}\n")
        start = _statement_start(text, item)
        return text.replaced(start, start, f"{statement}\n\n")
    end = len(text.text)
    return text.replaced(end, end, f"{statement}\n")


def _statement_start(text: Text, item: cst.CSTNode) -> int:
    """Offset of a statement's first line: its decorators count, comments above it do not."""
    nodes: list[cst.CSTNode] = [item]
    if isinstance(item, cst.FunctionDef | cst.ClassDef):
        nodes.extend(item.decorators)
    start = min(text.span(node)[0] for node in nodes)
    row, _ = text.spot(start)
    return text.starts[row - 1]


def lambda_to_function(module: Module, node: cst.Lambda, wanted: str) -> Fix | None:
    """Make a lambda a function of the module, above the statement that uses it; ``None`` where it needs its surroundings."""
    params = node.params
    if params.kwonly_params or params.star_kwarg or isinstance(params.star_arg, cst.Param) or any(p.default is not None for p in params.params):
        return None
    own = {p.name.value for p in (*params.posonly_params, *params.params)}
    inner: set[str] = set()
    for child in descend(node.body):
        if isinstance(child, cst.CompFor):
            inner |= names_in(child.target)
        elif isinstance(child, cst.Lambda):
            inner |= {p.name.value for p in child.params.params}
        elif isinstance(child, cst.NamedExpr | cst.Yield | cst.Await):
            return None
    used = {n.value for n in descend(node.body) if isinstance(n, cst.Name) and not module.walk.is_word(n)} - own
    if used - inner - set(module.root.effects) - names.BUILTINS or used & _bound_around(module, node):
        return None
    top: cst.CSTNode = node
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.Module):
            break
        top = here
    # A name that the module binds only after the function is fine: it is looked up when the function runs.
    # Several lambdas of a file are fixed at once: each gets a name of its own.
    before_it = [n for n in module.walk.root.nodes() if isinstance(n, cst.Lambda)].index(node)
    name = _free_name(module, wanted if before_it == 0 else f"{wanted}_{before_it + 1}")
    text = Text(module.tree)
    code = module.code(node.body)
    body = f"({code})" if "\n" in code else code
    signature = ", ".join(p.name.value for p in (*params.posonly_params, *params.params))
    indent = module.tree.module.default_indent
    start = _with_comments(text, _statement_start(text, top), top)
    lead = _blank_rows(text, start)
    content = f"{lead}def {name}({signature}):\n{indent}return {body}\n\n\n"
    return Fix(Safety.SAFE, f"move the lambda to a module-level function, `{name}`", (text.replaced(start, start, content), replace(module.tree, node, name)))


def _blank_rows(text: Text, start: int) -> str:
    """What a function needs in front of it for two blank rows; nothing at the top of a file or a notebook's cell."""
    before = text.text[text.starts[_first_row(text, start) - 1] : start]
    tail = before[len(before.rstrip()) :]
    return "\n" * max(0, 3 - len(ROW_END.findall(tail))) if before.strip() else ""


def _first_row(text: Text, offset: int) -> int:
    """The row of the program that begins the file, or the notebook's cell."""
    cell = text.tree.source.cell_at(text.spot(offset)[0])
    return cell.start if cell is not None else 1


def _with_comments(text: Text, start: int, item: cst.CSTNode) -> int:
    """Where the comment lines that stand right above a statement begin."""
    row, _ = text.spot(start)
    first = _first_row(text, start)
    lines = item.leading_lines if isinstance(item, cst.SimpleStatementLine | cst.BaseCompoundStatement) else ()
    for line in reversed(list(lines)):
        if line.comment is None or row == first or line.comment.value.lstrip("# ").startswith("@"):  # `#@title` heads a cell of Colab
            break
        row -= 1
    return text.starts[row - 1]


def _bound_around(module: Module, node: cst.Lambda) -> set[str]:
    """Names that functions, comprehensions and patterns around the lambda bind: it would lose them."""
    found: set[str] = set()
    scope: Scope | None = module.walk.scope_of[node].parent
    while scope is not None and scope.parent is not None:
        found |= set(scope.effects)
        if isinstance(scope.node, cst.FunctionDef | cst.Lambda):
            found |= {n.name.value for n in descend(scope.node.params) if isinstance(n, cst.Param)}
        found |= {n.name.value for n in descend(scope.node) if isinstance(n, cst.MatchAs | cst.MatchStar) and n.name is not None}
        found |= {n.rest.value for n in descend(scope.node) if isinstance(n, cst.MatchMapping) and n.rest is not None}
        scope = scope.parent
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.BaseComp):
            found |= {name for loop in descend(here.for_in) if isinstance(loop, cst.CompFor) for name in names_in(loop.target)}
    return found


def _free_name(module: Module, wanted: str) -> str:
    taken = {n.value for n in module.walk.root.nodes() if isinstance(n, cst.Name)}
    name, number = wanted, 2
    while name in taken:
        name = f"{wanted}_{number}"
        number += 1
    return name


_USUAL = {"numpy": ("np", "import numpy as np"), "torch": ("torch", "import torch")}


def wrap(module: Module, node: cst.BaseExpression, library: str, function: str, message: str) -> Fix | None:
    """``value`` → ``library.function(value)``; the library is imported where it is not yet, unless its usual name is taken."""
    alias = imported_as(module, library)
    edits: tuple[Edit, ...] = ()
    if alias is None:
        alias, statement = _USUAL[library]
        if alias in module.root.effects:
            return None
        edits = (import_edit(module, statement, node),)
    elif not is_bound_before(module, alias, node):
        return None
    return Fix(Safety.UNSAFE, message, (*edits, replace(module.tree, node, f"{alias}.{function}({module.code(node)})")))


_ENDLESS = """def {name}(loader):
{i}while True:
{i}{i}batch = None
{i}{i}for batch in loader:
{i}{i}{i}yield batch
{i}{i}if batch is None:
{i}{i}{i}return


"""


def endless(module: Module, call: cst.Call) -> Fix | None:
    """``itertools.cycle(x)`` → ``_cycle(x)``, with the generator above the statement that uses it."""
    text = Text(module.tree)
    top: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.Module):
            break
        top = here
    for scope in module.walk.root.children:
        if scope.name == "_cycle" and "for batch in loader" in module.code(scope.node) and len(names.parameters(scope)) == 1:
            return Fix(Safety.UNSAFE, "start a new pass over the loader each time it ends", (replace(module.tree, call.func, "_cycle"),))
    name = _free_name(module, "_cycle")
    start = _with_comments(text, _statement_start(text, top), top)
    lead = _blank_rows(text, start)
    content = lead + _ENDLESS.format(name=name, i=module.tree.module.default_indent)
    edits = (text.replaced(start, start, content), replace(module.tree, call.func, name))
    return Fix(Safety.UNSAFE, "start a new pass over the loader each time it ends", edits)


def moved_right(nodes: Iterable[cst.CSTNode], first: int, last: int, unit: str, text: Text) -> Iterator[Edit]:
    """Rows that move one step to the right. Those that begin inside of a string of one of the nodes stay where they are."""
    strings = (text.span(part) for node in nodes for part in descend(node) if isinstance(part, cst.SimpleString | cst.FormattedString))
    inside = {row for begin, end in strings for row in range(text.spot(begin)[0] + 1, text.spot(max(begin, end - 1))[0] + 1)}
    for row in range(first, last + 1):
        begin = text.starts[row - 1]
        end = text.starts[row] if row < len(text.starts) else len(text.text)
        if row not in inside and text.text[begin:end].strip():
            yield text.replaced(begin, begin, unit)
