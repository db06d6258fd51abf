"""Finds the loop of a finding in the program before, and again in the program after."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from oomlint.verify.case import Part
from oomlint.verify.targets import named, rows, spot

if TYPE_CHECKING:
    from oomlint.verify.case import Case

    Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Target:
    """A row of a program, and the outermost function that it stands in; empty for the module itself."""

    function: str
    row: int


def target_of(case: Case, part: Part) -> Target | None:
    """Where the loop of the finding is. ``None`` where the program after has no such loop. Raises SourceError, SyntaxError and ValueError."""
    source = case.source(Part.BEFORE)
    row = source.program_row(case.finding.place)
    tree = ast.parse(source.text)
    function = spot(tree, row).function
    if part is Part.BEFORE:
        return Target(function, row)
    return followed(source.text, case.source(Part.AFTER).text, Target(function, row))


def followed(before: str, after: str, target: Target) -> Target | None:
    """The same place in a changed program: the same function by name, the same loop by number, and in it the same line or what stands for it now."""
    old, new = _Loops(before, target.function), _Loops(after, target.function)
    if not new.there:
        return None
    number = old.number(target.row)
    row = moved(before, after, target.row)
    if spot(new.tree, row).function == target.function and new.number(row) == number:
        return Target(target.function, row)
    if number is None or number >= len(new.loops):
        return None
    return Target(target.function, new.loops[number].body[0].lineno)


def moved(before: str, after: str, row: int) -> int:
    """The row of ``after`` that a row of ``before`` has become. Indentation does not count."""
    old, new = [[line.strip() for line in text.splitlines()] for text in (before, after)]
    index = row - 1
    for _, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start <= index < end:
            return min(first + index - start, max(first, last - 1)) + 1
    return row


class _Loops:
    """The loops of a function, in the order of the text."""

    def __init__(self, text: str, function: str) -> None:
        self.tree = ast.parse(text)
        holder: ast.AST | None = named(self.tree, function) if function else self.tree
        self.there = holder is not None
        found = [node for node in ast.walk(holder) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))] if holder else []
        self.loops: list[Loop] = sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def number(self, row: int) -> int | None:
        """Which one is the innermost around a row."""
        around = [index for index, loop in enumerate(self.loops) if loop.lineno <= row <= (loop.end_lineno or loop.lineno)]
        return around[-1] if around else None


def span_of(text: str, function: str) -> tuple[int, int]:
    """First and last row of a function, or of the whole program."""
    found = named(ast.parse(text), function) if function else None
    return rows(found) if found else (1, text.count("\n") + 1)
