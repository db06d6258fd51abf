"""Edits of the original text, from nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.rows import starts_of
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.finding import Edit, Place
    from oomlint.syntax.tree import Tree


class Text:
    """The program text of a tree, addressed by row and column or by offset."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.text = tree.source.text
        self.starts = starts_of(self.text)

    def offset(self, row: int, column: int) -> int:
        """Offset of a 1-based row and column."""
        return self.starts[row - 1] + column - 1

    def spot(self, offset: int) -> tuple[int, int]:
        """Row and column of an offset."""
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self.starts[middle] <= offset:
                low = middle
            else:
                high = middle
        return low + 1, offset - self.starts[low] + 1

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Start and end offset of a node, without the parentheses around it."""
        row, column, end_row, end_column = self.tree.span(node)
        return self.offset(row, column), self.offset(end_row, end_column)

    def place(self, start: int, end: int) -> Place:
        """The place between two offsets."""
        return self.tree.source.place(*self.spot(start), *self.spot(end))

    def replaced(self, start: int, end: int, content: str) -> Edit:
        """The edit that puts ``content`` between two offsets."""
        return self.tree.source.edit(*self.spot(start), *self.spot(end), content)


def replace(tree: Tree, node: cst.CSTNode, content: str) -> Edit:
    """Put ``content`` in the place of a node (its parentheses stay)."""
    return tree.source.edit(*tree.span(node), content)


def delete_argument(tree: Tree, call: cst.Call, arg: cst.Arg) -> Edit | None:
    """Take an argument out of a call with its comma, or ``None`` where a comment or another argument's place would be lost."""
    later = call.args[next(n for n, a in enumerate(call.args) if a is arg) + 1 :]
    if arg.keyword is None and any(a.keyword is None for a in later):
        return None  # those behind it would move up
    if _does_more(arg.value):
        return None
    text = Text(tree)
    start, end = text.span(arg)
    index = next(n for n, a in enumerate(call.args) if a is arg)
    source = text.text
    if index + 1 < len(call.args):
        stop = text.span(call.args[index + 1])[0]
        # What stands before the next argument belongs to that argument's line.
        gone = source[end:stop]
        if "#" in gone:
            return None
        return text.replaced(start, stop, "")
    tail = re.compile(r"[ \t]*,").match(source, end)
    if index == 0:
        stop = tail.end() if tail else end
        return text.replaced(start, stop, "")
    before = text.span(call.args[index - 1])[1]
    gone = source[before:start]
    if "#" in gone:
        return None
    if tail:  # the last argument keeps its trailing comma style: the comma before takes its place
        return text.replaced(before + gone.index(","), tail.end() - 1, "") if "," in gone else None
    return text.replaced(before, end, "")


def _does_more(node: cst.CSTNode) -> bool:
    """Whether evaluating the expression binds a name or waits for something."""
    return any(isinstance(n, cst.NamedExpr | cst.Await | cst.Yield) for n in descend(node))


def wrapped(code: str, node: cst.CSTNode) -> str:
    """The code of an expression as an operand of ``and``, ``>`` or ``if``: in parentheses where it needs them."""
    if isinstance(node, cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.Integer | cst.Float | cst.SimpleString | cst.List | cst.Dict | cst.Tuple):
        return code
    return code if code.startswith("(") and code.endswith(")") and _one_group(code) else f"({code})"


def _one_group(code: str) -> bool:
    depth = 0
    for number, letter in enumerate(code):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and number < len(code) - 1:
            return False
    return True


def is_cheap_path(node: cst.CSTNode) -> bool:
    """A name, an attribute of one or a subscript with a constant: what can be written twice without a second look."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Attribute):
        return is_cheap_path(node.value)
    if isinstance(node, cst.Subscript):
        return is_cheap_path(node.value) and all(
            isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.SimpleString | cst.Integer) for e in node.slice
        )
    return False
