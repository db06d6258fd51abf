"""What stands for a finding from one run to the next: its rule, file, definition and statement, without rows, columns or the way the code is laid out."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.patterns import pattern
from oomlint.rows import ROW_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Finding
    from oomlint.output.view import View
    from oomlint.source import Source

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_STRING_OR_COMMENT: Final = pattern(
    r"""(?:(?<!\w)[rbuft]{1,2})?(?P<quote>\'{3}|"{3}|['"])(?P<content>(?:\\.|(?!(?P=quote)).)*)(?P=quote)|\#[^\n]*""", re.DOTALL | re.IGNORECASE
)
# A formatter may write these in another way, and nothing depends on it here: two statements that differ in nothing else are told apart by their order.
_WHOLE: Final = pattern(r"(?<![\w.])(\d+)\.(?![\d.a-df-z_])", re.IGNORECASE)
_PART: Final = pattern(r"(?<![\w.)\]])\.(?=\d)")
_LAYOUT: Final = pattern(r"""[\s()'",;\\{}]+""")


class FindingSpot(NamedTuple):
    """Where a finding stands, in words that last."""

    definition: str  # dotted: "Trainer.fit"; empty at the top of a file
    statement: str  # its tokens without layout


class Fingerprints:
    """The fingerprints of the findings of a run."""

    def __init__(self, view: View, folder: str) -> None:
        """Names of files are relative to ``folder``."""
        self._view = view
        self._folder = folder
        self._statements: dict[str, _Statements] = {}

    def of(self, findings: Sequence[Finding]) -> list[str]:
        """One for each, all different: those that are alike are counted in the order of their places."""
        alike: Counter[str] = Counter()
        found: dict[int, str] = {}
        for index in sorted(range(len(findings)), key=lambda index: findings[index].sort_key):
            text = "\0".join((findings[index].code or findings[index].name, self.file(findings[index]), *self.spot(findings[index])))
            alike[text] += 1
            found[index] = hashlib.blake2b(f"{text}\0{alike[text]}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
        return [found[index] for index in range(len(findings))]

    def file(self, finding: Finding) -> str:
        """The name of the file, with ``/``."""
        return relative(finding.place.path, self._folder)

    def spot(self, finding: Finding) -> FindingSpot:
        """Where the finding stands. For a file that cannot be read it is the cause."""
        path = finding.place.path
        source = self._view.source(path) if finding.code is not None else None
        if source is None:
            return FindingSpot("", finding.message)
        if path not in self._statements:
            self._statements[path] = _Statements(source)
        return self._statements[path].at(source.program_row(finding.place), finding.place.column)


def relative(path: str, folder: str) -> str:
    """The name of a file from a folder, with ``/``; on another drive of Windows it stays absolute."""
    try:
        name = os.path.relpath(path, folder)
    except ValueError:
        name = path
    return name.replace(os.sep, "/")


class _Statements:
    """The statements of a file, of compound ones the header."""

    def __init__(self, source: Source) -> None:
        self._rows = ROW_END.split(source.text)
        try:
            self._tree: ast.Module | None = ast.parse("\n".join(self._rows))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._tree = None

    def at(self, row: int, column: int) -> FindingSpot:
        """The statement that holds a place of the program; its row where the program is none for this Python."""
        names, found = [], None
        for statement in self._around(row, column):
            if isinstance(found, _DEFINITIONS):
                names.append(found.name)
            found = statement
        if found is None:
            return FindingSpot("", normal(self._rows[row - 1] if row <= len(self._rows) else ""))
        return FindingSpot(".".join(names), normal(self._text(found)))

    def _around(self, row: int, column: int) -> Iterator[ast.stmt]:
        """The statements around a place, the outermost first."""
        here: ast.AST | None = self._tree
        spot = (row, len(self._rows[row - 1][: column - 1].encode(errors="surrogatepass")) if row <= len(self._rows) else 0)
        while here is not None:
            here = next((each for each in _inside(here) if _start(each) <= spot < (each.end_lineno or 0, each.end_col_offset or 0)), None)
            if isinstance(here, ast.stmt):
                yield here

    def _text(self, statement: ast.stmt) -> str:
        """A statement as it is written; of a compound one what stands before its body."""
        body: list[ast.stmt] = getattr(statement, "body", None) or [case.body[0] for case in getattr(statement, "cases", ())[:1]]
        end_row, end = min(map(_start, body)) if body else (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
        rows = self._rows[statement.lineno - 1 : end_row]
        rows[-1] = rows[-1].encode(errors="surrogatepass")[:end].decode(errors="surrogatepass")
        rows[0] = rows[0].encode(errors="surrogatepass")[statement.col_offset :].decode(errors="surrogatepass")
        return "\n".join(rows)


def _inside(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements right below a node, and what holds some."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.match_case | ast.ExceptHandler):
            yield from each.body
        elif isinstance(each, ast.stmt):
            yield each


def _start(statement: ast.stmt) -> tuple[int, int]:
    """Row and byte where a statement begins, with its decorators."""
    first = min([statement, *getattr(statement, "decorator_list", ())], key=lambda node: (node.lineno, node.col_offset))
    return first.lineno, first.col_offset - (first is not statement)


def normal(text: str) -> str:
    """Code without what a formatter may change: comments, blanks, brackets, commas, quotes, capitals of prefixes and numbers."""
    parts: list[str] = []
    index = 0
    for match in _STRING_OR_COMMENT.finditer(text):
        parts += (_numbers(text[index : match.start()]), match["content"] or "")
        index = match.end()
    return _LAYOUT.sub("", "".join([*parts, _numbers(text[index:])]).casefold())


def _numbers(code: str) -> str:
    """The code with all digits that a number may go without."""
    return _PART.sub("0.", _WHOLE.sub(r"\1.0", code))


def numbered(findings: Iterable[Finding], view: View, folder: str) -> list[tuple[Finding, str]]:
    """Each finding with its fingerprint."""
    items = list(findings)
    return list(zip(items, Fingerprints(view, folder).of(items), strict=True))
