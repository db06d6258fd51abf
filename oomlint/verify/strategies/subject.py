"""What a finding speaks of, and whether it was run: what stand-ins for it do says nothing of the user's program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomlint.finding import LoopFact, StoreFact
from oomlint.verify.ast_location import named, quoted
from oomlint.verify.case import Part
from oomlint.verify.strategies.locate_loop import dotted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from oomlint.verify.case import Case


def left_out(case: Case, function: str, answer: Mapping[str, Any]) -> str:
    """The first statement that a finding is about and that a run of the program before left out, or that failed; empty where all of them were run.

    They are those that the finding points to, and those that compute, in the loop around them, what these read. A loop is none: a stand-in may give its items.
    """
    passed, omitted = ({int(row) for row in answer.get(name) or ()} for name in ("passed", "omitted"))
    if not passed:
        return ""
    source = case.source(Part.BEFORE)
    tree = ast.parse(source.text)
    scope = (named(tree, function) if function else None) or tree
    finding = case.finding
    about = (finding.place, *(fact.place for fact in finding.of_noun(StoreFact)), *(run for fact in finding.of_noun(LoopFact) for run in fact.runs))
    rows = {source.program_row(place) for place in about if place.path == finding.place.path}
    asked = {node for node, _ in _simple(scope, ()) if any(node.lineno <= row <= (node.end_lineno or node.lineno) for row in rows)}
    asked |= {node for row in rows for node in _feeding(scope, row)}
    for node, around in _simple(scope, ()):
        if node in asked and (node.lineno in passed or not omitted.isdisjoint(around)):
            return f"line {node.lineno}: {quoted(ast.unparse(node))}"
    return ""


def _simple(node: ast.AST, around: Collection[int]) -> Iterator[tuple[ast.stmt, Collection[int]]]:
    """Statements without a body, each with the rows of the compound ones that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not isinstance(child, ast.Match) and not hasattr(child, "body"):
            yield child, around
        else:
            yield from _simple(child, (*around, child.lineno) if isinstance(child, ast.stmt) else around)


def _feeding(scope: ast.AST, row: int) -> Iterator[ast.stmt]:
    """Statements of the innermost loop around a row that bind what the row reads; none where the row is that of a loop."""
    loops = [node for node in ast.walk(scope) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno < row <= (node.end_lineno or 0)]
    if not loops:
        return
    own = [node for node, _ in _simple(max(loops, key=lambda loop: loop.lineno), ())]
    read = {dotted(part) for node in own if node.lineno <= row <= (node.end_lineno or node.lineno) for part in ast.walk(node)}
    yield from (node for node in own if _stored(node) & read)


def _stored(node: ast.stmt) -> set[str]:
    """Names and attributes that an assignment binds anew."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name for target in targets for inner in ast.walk(target) if isinstance(getattr(inner, "ctx", None), ast.Store) and (name := dotted(inner))}
