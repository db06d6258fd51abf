"""The edit that several notes offer: one more argument of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    import libcst as cst

    from oomlint.finding import Edit
    from oomlint.model.project import Module


def added_argument(module: Module, call: cst.Call, argument: str) -> Edit:
    """Put an argument behind the last one of a call that has some, on a row of its own where the last one has its own."""
    text = Text(module.tree)
    start, end = text.span(call.args[-1])
    before = text.text[text.starts[text.spot(start)[0] - 1] : start]
    alone = not before.strip() and text.spot(start)[0] > text.spot(text.span(call)[0])[0]
    return text.replaced(end, end, f",\n{before}{argument}" if alone else f", {argument}")
