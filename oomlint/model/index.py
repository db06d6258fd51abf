"""What a file binds and imports: read by CPython's parser, ten times as fast as libcst.

A question that leads into another file asks here first, so that libcst reads only the files in which there is an answer. An index may say that a file
binds a name that it does not bind, never the other way round.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from oomlint.ast_trees import tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_MOST_KEPT: Final = 4096  # indexes; that of a file takes about as much as its imports


class Imported(NamedTuple):
    """What one name of an import stands for."""

    bound: str  # what the file calls it from then on; "*" for all that there is
    module: str
    level: int  # dots before it
    name: str  # what is taken of the module; empty for the module itself


class Index(Struct, frozen=True):
    """The top level of a file."""

    names: frozenset[str]  # all that a statement outside of functions and classes speaks of
    stars: tuple[tuple[str, int], ...]  # modules of which everything is imported, each with how many dots stood before it
    taken: frozenset[str]  # names that are imported anywhere by themselves: what stands behind `from ... import`, and all parts of `import a.b`
    imported: frozenset[str]  # names that are imported anywhere, the parts of dotted ones too, and what they are called from then on
    imports: tuple[Imported, ...]  # all that is imported, wherever that is done


@lru_cache(maxsize=_MOST_KEPT)
def index_of(text: bytes) -> Index | None:
    """The index of a program. ``None`` where CPython cannot parse it."""
    try:
        tree = tree_of(text)
        names: set[str] = set()
        imported: set[str] = set()
        taken: set[str] = set()
        imports: list[Imported] = []
        for one in _imports(tree):
            taken.update(part for alias in one.names for part in (*alias.name.split("."), alias.asname or ""))
            if isinstance(one, ast.Import):
                imports += (Imported(alias.asname or alias.name.partition(".")[0], alias.name, 0, "") for alias in one.names)
            else:
                imported.update((one.module or "").split("."))
                imports += (Imported(alias.asname or alias.name, one.module or "", one.level, alias.name) for alias in one.names)
        stars: list[tuple[str, int]] = []
        for node in _top(tree.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Import):
                names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                if node.names[0].name == "*":
                    stars.append((node.module or "", node.level))
                names.update(alias.asname or alias.name for alias in node.names)
            else:
                names.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Index(frozenset(names), tuple(stars), frozenset(taken - {""}), frozenset((imported | taken) - {""}), tuple(imports))


def imports_of(text: bytes) -> tuple[Imported, ...]:
    """All that a program imports, wherever it does so; nothing where CPython cannot parse it."""
    index = index_of(text)
    return index.imports if index is not None else ()


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a program, block by block from the outermost. Expressions, which are most of it, hold none."""
    blocks: list[list[ast.stmt]] = [tree.body]
    for block in blocks:  # it gets longer meanwhile
        for node in block:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
                continue
            for holder in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                blocks += (inner for name in ("body", "orelse", "finalbody") if (inner := getattr(holder, name, None)))


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Statements and their headers, without the bodies of functions and classes."""
    for node in body:
        blocks = [part for name in ("body", "orelse", "finalbody") if isinstance(part := getattr(node, name, None), list)]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or not blocks:
            yield node
            continue
        for name in node._fields:
            part = getattr(node, name)
            if isinstance(part, ast.AST):
                yield part
            elif isinstance(part, list) and part not in blocks:
                yield from (item for item in part if isinstance(item, ast.AST) and not isinstance(item, ast.ExceptHandler | ast.match_case))
        for block in blocks:
            yield from _top(block)
        for clause in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            if isinstance(clause, ast.match_case):
                yield clause.pattern
            yield from _top(clause.body)
