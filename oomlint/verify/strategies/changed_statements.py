"""The statements that a fix changes: a comparison of two syntax trees, for a run to be asked whether it has come to each of them.

A statement is told by its head and by the head of what it stands in: what is only moved into another block has changed too. Imports, heads of functions
and classes, docstrings and what cannot be reached are nothing that runs; for a changed head of a function any statement in it stands.
"""

from __future__ import annotations

import ast
import copy
import os
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

from oomlint.source import SourceError
from oomlint.verify.ast_names import FILLING, defaults, heads_of, is_main, quoted
from oomlint.verify.case import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.verify.case import Case

    Function = ast.FunctionDef | ast.AsyncFunctionDef

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SILENT: Final = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass, ast.Try)
_ENDS: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_BLOCKS: Final = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
_LOADED: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign)  # of a module that is imported


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a program, as it is compared with others."""

    node: ast.stmt = field(compare=False)
    key: str  # two statements with the same key are the same
    function: str = ""  # the innermost one around it, dotted
    tests: tuple[tuple[ast.If, bool], ...] = field(default=(), compare=False)  # branches around it, and whether it stands in their body
    beside: int = -1  # column, where it stands in the row of its own head: the row alone does not tell whether it was run
    silent: bool = False  # nothing of it can be seen to run
    file: str = ""  # where it is another than that of the finding

    @property
    def asked(self) -> list[int]:
        """First and last row, and the column from which on it is; -1 for all of the row. One row in it is enough."""
        node = self.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = [item for item in node.body if not _documents(item)] or node.body
            return [body[0].lineno, node.end_lineno or node.lineno, -1]
        return [node.lineno, _last(node), self.beside]

    @property
    def name(self) -> str:
        """Of a function, dotted; empty for other statements."""
        own = self.node.name if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""
        return f"{self.function}.{own}" if self.function and own else own

    @property
    def row(self) -> int:
        """The row to tell."""
        return self.node.lineno

    def walk(self) -> Iterator[ast.AST]:
        """The expressions of it, and all in them; of a compound one those of its head."""
        return (inner for part in heads_of(self.node) for inner in ast.walk(part))

    @property
    def words(self) -> str:
        """For example: line 12, `total += loss`; line 3 of data.py, `return row`."""
        node = self.node
        text = f"def {node.name}" if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ast.unparse(node)
        return f"line {self.row}{self.file and f' of {self.file}'}, {quoted(text)}"


def of_case(case: Case, path: str, *, script: bool) -> tuple[list[Statement], list[Statement]]:
    """What the changes of a case do to a file, but for those that are nearer to another finding. Nothing where it is no program: settings, or data."""
    try:
        source, after = (case.source(part, path) for part in Part)
        own, *others = (source.program_row(place) if place.path == path else 0 for place in (case.finding.place, *case.others))
        gone, come = changed(source.text, after.text, script=script, own=own, others=others)
    except (SourceError, SyntaxError, ValueError, RecursionError):
        return [], []
    file = "" if path == case.finding.place.path else os.path.basename(path)
    return [replace(item, file=file) for item in gone], [replace(item, file=file) for item in come]


def changed(before: str, after: str, *, script: bool, own: int = 0, others: Sequence[int] = ()) -> tuple[list[Statement], list[Statement]]:
    """Statements that only the program before has, and those that only the one after has. ``script``: the top level itself is what is run.

    ``own`` and ``others`` are the rows of findings in the program before, 0 for one that is elsewhere: what is changed nearer to one of the others is left out.
    Raises SyntaxError and ValueError.
    """
    old, new = (list(statements(ast.parse(text), script=script)) for text in (before, after))
    gone: list[Statement] = []
    come: list[Statement] = []
    for kind, start, end, first, last in SequenceMatcher(None, [item.key for item in old], [item.key for item in new], autojunk=False).get_opcodes():
        pairs = [(old[start:end], new[first:last])]
        if end - start == last - first:
            pairs = [([one], [other]) for one, other in zip(*pairs[0], strict=True)]
        for left, right in pairs if kind != "equal" else ():
            if all(_nearness(old, [*left, *right], row) <= _nearness(old, [*left, *right], own) for row in others):
                gone.extend(item for item in left if not item.silent)
                come.extend(item for item in right if not item.silent)
    return gone, come


def _nearness(program: Sequence[Statement], edit: Sequence[Statement], row: int) -> int:
    """How near an edit is to a row of the program before: 3 for the very statement, 2 for its function, 1 for its file, 0 where the row is elsewhere."""
    here = next((item for item in reversed(program) if item.node.lineno <= row <= (item.node.end_lineno or 0)), None)
    if here is None:
        return int(row > 0)
    return 3 if here in edit else 2 if any(here.function == item.function for item in edit) else 1


def readers(text: str, found: Iterable[Statement], *, script: bool) -> list[Statement]:
    """Statements of the functions of the changed ones that read what those set."""
    found = list(found)
    by_function: dict[str, set[str]] = {}
    for item in found:
        by_function.setdefault(item.function, set()).update(_written(item.node))
    keys = {item.key for item in found}
    return [
        item
        for item in statements(ast.parse(text), script=script)
        if not item.silent and item.key not in keys and not isinstance(item.node, _DEFINITIONS) and _read(item.node) & by_function.get(item.function, set())
    ]


def heads(text: str, functions: set[str]) -> list[Statement]:
    """The heads of some functions; that one was run means that it was entered."""
    return [
        item for item in statements(ast.parse(text), script=True) if isinstance(item.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name in functions
    ]


def statements(tree: ast.Module, *, script: bool) -> Iterator[Statement]:
    """All statements of a program, in the order of the text."""
    yield from _block(tree.body, "", "", (), loaded=not script, row=0)


def _block(
    block: list[ast.stmt], where: str, function: str, tests: tuple[tuple[ast.If, bool], ...], *, loaded: bool, row: int, dead: bool = False
) -> Iterator[Statement]:
    for node in block:
        key = f"{where} > {_head(node)}"
        silent = dead or isinstance(node, (*_SILENT, ast.ClassDef)) or _documents(node) or (loaded and isinstance(node, _LOADED))
        silent |= isinstance(node, ast.AnnAssign) and node.value is None
        yield Statement(node, key, function, tests, node.col_offset if node.lineno <= row else -1, silent)
        if isinstance(node, _DEFINITIONS):
            name = f"{function}.{node.name}" if function else node.name
            yield from _block(node.body, f"{where}/{node.name}", name, (), loaded=isinstance(node, ast.ClassDef), row=node.lineno, dead=dead)
        else:
            yield from _below(node, function, tests, loaded=loaded and not _main(node), dead=dead)
        dead |= isinstance(node, _ENDS)


def _below(node: ast.stmt, function: str, tests: tuple[tuple[ast.If, bool], ...], *, loaded: bool, dead: bool) -> Iterator[Statement]:
    head = _head(node)
    never = isinstance(node, ast.If) and _never(node.test)
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
            more = ((node, name == "body"),) if isinstance(node, ast.If) else ()
            yield from _block(inner, f"{head}.{name}", function, (*tests, *more), loaded=loaded, row=_ended(node), dead=dead or (never and name == "body"))
    for handler in getattr(node, "handlers", ()):
        caught = ast.dump(handler.type) if handler.type else ""
        yield from _block(handler.body, f"except {caught}", function, tests, loaded=loaded, row=handler.lineno, dead=dead)
    for case in getattr(node, "cases", ()):
        yield from _block(case.body, f"case {ast.dump(case.pattern)}", function, tests, loaded=loaded, row=0, dead=dead)


def _head(node: ast.stmt) -> str:
    """A statement without its blocks; of functions with their decorators."""
    bare = copy.copy(node)
    for name in _BLOCKS & set(node._fields):
        setattr(bare, name, [])
    return ast.dump(bare)


def _last(node: ast.stmt) -> int:
    """The last row of a statement; of a compound one of its head."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not isinstance(body, list) or not body:
        return node.end_lineno or node.lineno
    first = body[0].lineno if isinstance(body[0], ast.stmt) else body[0].pattern.lineno
    return max(node.lineno, min(first - 1, _ended(node)))


def _ended(node: ast.stmt) -> int:
    """The last row of what a head is made of."""
    return max((item.end_lineno or 0 for part in heads_of(node) for item in ast.walk(part) if isinstance(item, ast.expr)), default=node.lineno)


def _documents(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _never(test: ast.expr) -> bool:
    return (isinstance(test, ast.Constant) and not test.value) or ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING"


def _main(node: ast.stmt) -> bool:
    """What an import does not run."""
    return isinstance(node, (ast.For, ast.AsyncFor, ast.While)) or (isinstance(node, ast.If) and is_main(node.test))


# -- names -------------------------------------------------------------------------------------------------------------


def _name(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) and node.id != "self" else ""


def ends(text: str, found: Iterable[Statement]) -> bool:
    """Whether some statements have to do with when a ``while`` loop ends: its test, what that reads, a ``break``."""
    loops = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.While)]
    for item in found:
        for loop in (each for each in loops if each.lineno <= item.node.lineno <= (each.end_lineno or each.lineno)):
            read = {_name(node) for node in ast.walk(loop.test) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))}
            if item.node.lineno == loop.lineno or isinstance(item.node, ast.Break) or _written(item.node) & read:
                return True
    return False


def _written(node: ast.stmt) -> set[str]:
    """Names that a statement sets or fills."""
    found: set[str] = set()
    for part in heads_of(node):
        for item in ast.walk(part):
            if isinstance(item, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(item.ctx, ast.Store):
                found.add(_name(item))
            elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in FILLING:
                found.add(_name(item.func.value))
    return found - {""}


def _read(node: ast.stmt) -> set[str]:
    """Names that a statement reads."""
    return {
        _name(item) for part in heads_of(node) for item in ast.walk(part) if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load)
    } - {""}


def parameters(function: Function) -> dict[str, Any]:
    """The parameters that a branch may depend on, with their defaults: flags, and what is left out by default."""
    own = defaults(function.args).items()
    positional = [*function.args.posonlyargs, *function.args.args]
    found = {name: value.value for name, value in own if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))}
    return found | {item.arg: False for item in positional if isinstance(item.annotation, ast.Name) and item.annotation.id == "bool" and item.arg not in found}


def tested(items: Iterable[Statement], function: Function) -> list[str]:
    """Names in the conditions that statements depend on: of branches around them, and of those before them that leave the function or the turn."""
    names: dict[str, None] = {}
    for item in items:
        for test, _ in item.tests:
            names.update(dict.fromkeys(part.id for part in ast.walk(test.test) if isinstance(part, ast.Name)))
        for node in ast.walk(function):
            if isinstance(node, ast.If) and node.lineno < item.row and any(isinstance(part, _ENDS) for part in ast.walk(node)):
                names.update(dict.fromkeys(part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)))
    return list(names)
