"""Finds the loop of a finding in the program before, and again in the program after; and whether a run has come to what the finding speaks of."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from oomlint.finding import LoopFact, StoreFact
from oomlint.measurement import Trait
from oomlint.verify.ast_names import around, heads_of, named, quoted, spot
from oomlint.verify.case import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from oomlint.verify.case import Case

    Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class LoopTarget:
    """A row of a program, and the outermost function that it stands in; empty for the module itself."""

    function: str
    row: int


def target_of(case: Case, part: Part) -> LoopTarget | None:
    """Where the loop of the finding is. ``None`` where the program after has no such loop. Raises SourceError, SyntaxError and ValueError."""
    source = case.source(Part.BEFORE)
    row = source.program_row(case.finding.place)
    tree = ast.parse(source.text)
    place = spot(tree, row)
    if Trait.OF_CONTEXT in case.plan.traits:
        return LoopTarget(place.cls, row) if place.cls else None
    target = LoopTarget(place.function, row)
    if part is Part.AFTER:
        return followed(source.text, case.source(Part.AFTER).text, _shown(case, source.text, target))
    return _shown(case, source.text, target)


def _shown(case: Case, text: str, target: LoopTarget) -> LoopTarget:
    """The loop in which a finding shows: of a hook that is registered beside loops the next one."""
    if Trait.BESIDE_LOOP not in case.plan.traits:
        return target
    loops = _Loops(text, spot(ast.parse(text), target.row).inner)
    later = [loop.lineno for loop in loops.loops if loop.lineno > target.row]
    return LoopTarget(target.function, later[0]) if loops.number(target.row) is None and later else target


def followed(before: str, after: str, target: LoopTarget) -> LoopTarget | None:
    """The same place in a changed program: the same function by name, the same loop in it, and in that the same line or what stands for it now."""
    scope = spot(ast.parse(before), target.row).inner
    old, new = _Loops(before, scope), _Loops(after, scope)
    if not new.there:
        return None
    number = old.number(target.row)
    same = None if number is None else new.like(old.loops[number], number)
    if number is not None and same is None:
        return None
    row = moved(before, after, target.row)
    if spot(new.tree, row).inner == scope and new.number(row) == same:
        return LoopTarget(target.function, row)
    if same is None:
        return None
    return LoopTarget(target.function, new.loops[same].lineno)


def moved(before: str, after: str, row: int) -> int:
    """The row of ``after`` that a row of ``before`` has become. Indentation does not count."""
    old, new = [[line.strip() for line in text.splitlines()] for text in (before, after)]
    index = row - 1
    for _, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start <= index < end:
            return min(first + index - start, max(first, last - 1)) + 1
    return row


class _Loops:
    """The loops of a function or of the module, those of functions inside of it left out, in the order of the text."""

    def __init__(self, text: str, function: str) -> None:
        self.tree = ast.parse(text)
        holder: ast.AST | None = named(self.tree, function) if function else self.tree
        self.there = holder is not None
        self.loops: list[Loop] = sorted(_loops(holder) if holder else (), key=lambda node: (node.lineno, node.col_offset))

    def number(self, row: int) -> int | None:
        """Which one is the innermost around a row."""
        around = [index for index, loop in enumerate(self.loops) if loop.lineno <= row <= (loop.end_lineno or loop.lineno)]
        return around[-1] if around else None

    def like(self, loop: Loop, number: int) -> int | None:
        """Which one a loop of another program is, where it is the one of that number: by its head, else by its number."""
        heads = [_head(item) for item in self.loops]
        head = _head(loop)
        if number < len(heads) and heads[number] == head:
            return number
        if heads.count(head) == 1:
            return heads.index(head)
        return number if number < len(heads) else None


def _loops(node: ast.AST) -> Iterator[Loop]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            if isinstance(child, (ast.For, ast.AsyncFor, ast.While)):
                yield child
            yield from _loops(child)


def _head(loop: Loop) -> str:
    return ast.unparse(loop.test) if isinstance(loop, ast.While) else f"{ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


# -- what a row reads --------------------------------------------------------------------------------------------------


def read_at(text: str, row: int) -> tuple[str, ...]:
    """Names that the statement at a row reads or stores into, attributes by their path: ``losses``, ``self.losses``. Of a compound one its head."""
    names = (dotted(node) for innermost in around(ast.parse(text), row)[-1:] for head in heads_of(innermost) for node in ast.walk(head))
    return tuple(dict.fromkeys(name for name in names if name))


def dotted(node: ast.AST) -> str:
    """A name, or an attribute by its path; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def stood_in(names: Iterable[str], state: Any, kinds: Collection[str] = ("object",)) -> str:
    """The shortest of the names that stands for something of these kinds, such as an object of which nothing is known but its use; empty without one."""
    specs = state.get("specs", {}) if isinstance(state, dict) else {}
    return min((name for name in names if (spec := specs.get(name, {})).get("kind") in kinds and not spec.get("config")), key=len, default="")


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
    for node, outer in _simple(scope, ()):
        if node in asked and (node.lineno in passed or not omitted.isdisjoint(outer)):
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
