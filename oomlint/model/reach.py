"""Which definitions reach a use, and under which conditions.

The search goes backward from the use through the block structure, so that both halves of an ``if`` stay apart and a later
assignment hides an earlier one. Conditions are kept as the tests themselves; the evaluator decides which of them can hold together.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.setattr_loops import entries_of
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.values import Alternatives
    from oomlint.syntax.scopes import Effect, Scope
    from oomlint.syntax.walk import Walk

    # What the asker makes of an effect: alternatives, or how to get them once the conditions are known to hold together.
    Payload = Alternatives | Callable[[], Alternatives]
    # What it says of an effect: None = has nothing to do with it; (payload, whether it settles the question).
    Judge = Callable[[Effect], tuple[Payload, bool] | None]

Condition = tuple[cst.BaseExpression, bool]
Conditions = tuple[Condition, ...]
Found = tuple["Effect", "Payload", Conditions]
_MOST_PATHS = 16
_EXITS = frozenset({"exit", "quit", "_exit", "abort", "error", "exit_with_error"})
_LEAVES: frozenset[type] = frozenset({cst.Return, cst.Raise, cst.Continue, cst.Break})
_PLAIN: frozenset[type] = frozenset({cst.Assign, cst.AugAssign, cst.AnnAssign, cst.Pass, cst.For, cst.While, cst.Try, cst.FunctionDef, cst.ClassDef})
_SIMPLE: frozenset[type] = frozenset(
    {*_LEAVES, cst.Assign, cst.AugAssign, cst.AnnAssign, cst.Expr, cst.Del, cst.Import, cst.ImportFrom, cst.FunctionDef, cst.ClassDef}
)


def terminates(body: object) -> bool:
    """Whether control never runs off the end of the block."""
    statements = block_of(body)
    if not statements:
        return False
    last = statements[-1]
    kind = last.__class__  # asked so often that ``isinstance`` with its look at abstract classes takes too long
    if kind in _LEAVES:
        return True
    if kind in _PLAIN:
        return False
    if isinstance(last, cst.Expr) and isinstance(last.value, cst.Call):
        return names.last_name(last.value.func) in _EXITS
    if isinstance(last, cst.If):
        return _chain_terminates(last)
    if isinstance(last, cst.With):
        return terminates(last.body)
    return False


def _chain_terminates(node: cst.If) -> bool:
    if not terminates(node.body) or node.orelse is None:
        return False
    rest = node.orelse
    return terminates(rest.body) if isinstance(rest, cst.Else) else _chain_terminates(rest)


class Reach:
    """The search for one root name in one scope."""

    def __init__(self, walk: Walk, scope: Scope, root: str, judge: Judge, calls: Sequence[Effect] = ()) -> None:
        self.walk = walk
        self.scope = scope
        self.judge = judge
        # With what functions do that are called there, where somebody knows of them.
        self.holders, self.by_statement, self.by_block = walk.held_with(scope, root, calls) if calls else walk.held(scope, root)

    def search(self, use: cst.CSTNode | None) -> tuple[list[Found], list[Conditions]]:
        """Definitions that reach ``use`` (``None``: the end of the scope), and the conditions under which none does."""
        if not self.holders:
            return [], [()]
        if use is None:
            return self._effects(self.walk.statement_of(self.scope.node)) if isinstance(self.scope.node, cst.Lambda) else self._block(self.scope.suite)
        return self._before(self.walk.statement_of(use))

    # -- backward from a statement ----------------------------------------------------------------------------------

    def _before(self, statement: cst.CSTNode) -> tuple[list[Found], list[Conditions]]:
        found: list[Found] = []
        falls: list[Conditions] = [()]
        here = statement
        parents = self.walk.parents
        while falls:
            holder = parents.get(here)
            if isinstance(holder, cst.SimpleStatementLine):
                holder = parents.get(holder)
            if holder is None:
                break
            if isinstance(holder, cst.IndentedBlock | cst.SimpleStatementSuite | cst.Module):
                self._extend(found, falls, self._block(holder, before=here))
                if holder is self.scope.node:
                    break
                here = holder
                continue
            # `here` is the suite or branch of a compound statement.
            if holder is self.scope.node:
                break
            if isinstance(holder, cst.For | cst.While):
                self._around_loop(holder, here, found, falls)
            elif isinstance(holder, cst.With | cst.If):
                self._own(holder, found, falls)  # what the head binds
            elif isinstance(holder, cst.Try | cst.TryStar) and here is not holder.body:
                outs, _ = self._block(holder.body)
                found.extend(outs)
            here = holder
        return found, falls

    def _around_loop(self, loop: cst.For | cst.While, here: cst.CSTNode, found: list[Found], falls: list[Conditions]) -> None:
        if here is not loop.body:
            return
        # What an earlier round of the loop left behind may reach the use, too.
        if loop in self.holders:
            outs, _ = self._block(loop.body)
            known = {id(f[0]) for f in found}
            found.extend(o for o in outs if id(o[0]) not in known)
        self._own(loop, found, falls)

    def _own(self, statement: cst.CSTNode, found: list[Found], falls: list[Conditions]) -> None:
        self._extend(found, falls, self._effects(statement))

    def _extend(self, found: list[Found], falls: list[Conditions], result: tuple[list[Found], list[Conditions]]) -> None:
        outs, more = result
        if not outs and len(more) == 1 and not more[0]:
            return  # as most statements do, it leaves all as it was
        for before in falls:
            found.extend((effect, payload, (*before, *conditions)) for effect, payload, conditions in outs)
        falls[:] = [(*before, *conditions) for before in falls for conditions in more][:_MOST_PATHS]

    # -- through blocks and statements ---------------------------------------------------------------------------------

    def _block(self, *bodies: cst.CSTNode, before: cst.CSTNode | None = None) -> tuple[list[Found], list[Conditions]]:
        """Through the statements of blocks that follow each other, as far as they have to do with the name; in the last one, those before a statement."""
        found: list[Found] = []
        falls: list[Conditions] = [()]
        for body in reversed(bodies):
            numbers = self.by_block.get(body)
            if not numbers:
                continue
            statements, places = self.walk.block(body)
            last = bisect_left(numbers, places.get(before, len(statements))) if before is not None else len(numbers)
            for index in range(last - 1, -1, -1):
                self._extend(found, falls, self._statement(statements[numbers[index]]))
                if not falls:
                    return found, falls
        return found, falls

    def _effects(self, statement: cst.CSTNode) -> tuple[list[Found], list[Conditions]]:
        found: list[Found] = []
        for effect in reversed(self.by_statement.get(statement, ())):
            verdict = self.judge(effect)
            if verdict is None:
                continue
            payload, certain = verdict
            found.append((effect, payload, ()))
            if certain:
                return found, []
        return found, [()]

    def _statement(self, node: cst.CSTNode) -> tuple[list[Found], list[Conditions]]:
        if node.__class__ in _SIMPLE:
            return self._effects(node)
        if isinstance(node, cst.If):
            return self._if(node)
        if isinstance(node, cst.For | cst.While):
            outs, more = self._block(node.body)
            own, _ = self._effects(node)
            outs, falls = self._entry(node, outs, more) or (outs, [()])
            return [*outs, *own], falls
        if isinstance(node, cst.With):
            found, falls = self._block(node.body)
            self._own(node, found, falls)
            return found, falls
        if isinstance(node, cst.Try | cst.TryStar):
            return self._try(node)
        if isinstance(node, cst.Match):
            found = []
            for case in node.cases:
                found.extend(self._block(case.body)[0])
            return found, [()]
        return self._effects(node)

    def _entry(self, loop: cst.For | cst.While, found: list[Found], falls: list[Conditions]) -> tuple[list[Found], list[Conditions]] | None:
        """The same of a loop that sets each entry of a mapping under its own key: it has a round for what is asked for. ``None`` of other loops."""
        if len(found) != 1 or entries_of(found[0][0], self.walk) is None:
            return None
        effect, payload, conditions = found[0]
        inside = path_conditions(self.walk, self.scope, effect.statement)
        inside = inside[: len(inside) - len(path_conditions(self.walk, self.scope, loop))]
        # Where a round ends before, `if name in given: continue`, nothing is set.
        before = [one for one in inside if one not in conditions]
        return [(effect, payload, (*conditions, *before))], [*falls, *(((test, not wanted),) for test, wanted in before)]

    def _if(self, node: cst.If) -> tuple[list[Found], list[Conditions]]:
        own, own_falls = self._effects(node)  # a walrus in the test
        then = ([], []) if terminates(node.body) else self._block(node.body)
        rest = node.orelse
        if rest is None:
            other: tuple[list[Found], list[Conditions]] = ([], [()])
        elif isinstance(rest, cst.If):
            other = self._if(rest)
        else:
            other = ([], []) if terminates(rest.body) else self._block(rest.body)
        if not then[0] and not other[0] and then[1] and other[1]:
            return own, own_falls
        yes, no = ((node.test, True),), ((node.test, False),)
        found = [(e, p, (*yes, *c)) for e, p, c in then[0]] + [(e, p, (*no, *c)) for e, p, c in other[0]]
        falls = [(*yes, *c) for c in then[1]] + [(*no, *c) for c in other[1]]
        return [*found, *own], falls if own_falls else []

    def _try(self, node: cst.Try | cst.TryStar) -> tuple[list[Found], list[Conditions]]:
        found, falls = self._block(node.body, *((node.orelse.body,) if node.orelse else ()))
        for handler in node.handlers:
            if terminates(handler.body):
                continue
            outs, more = self._block(handler.body)
            found = [*found, *outs]
            falls = [*falls, *(m for m in more if m not in falls)]
        if node.finalbody is not None:
            last, through = self._block(node.finalbody.body)
            if not through:
                return last, []
            found = [*last, *found]
        return found, falls


def path_conditions(walk: Walk, scope: Scope, use: cst.CSTNode) -> Conditions:
    """Tests that must have come out as stated for control to reach ``use`` within its scope."""
    conditions: list[Condition] = []
    here = use
    while here is not scope.node:
        holder = walk.parents.get(here)
        if holder is None:
            break
        if isinstance(holder, cst.BaseComp) and here is not holder.for_in:
            loop: cst.CompFor | None = holder.for_in
            while loop is not None:
                conditions.extend((condition.test, True) for condition in loop.ifs)
                loop = loop.inner_for_in
        if isinstance(holder, cst.IfExp):
            if here is holder.body:
                conditions.append((holder.test, True))
            elif here is holder.orelse:
                conditions.append((holder.test, False))
        elif isinstance(holder, cst.BooleanOperation) and here is holder.right:
            conditions.append((holder.left, isinstance(holder.operator, cst.And)))
        elif isinstance(holder, cst.If):
            if here is holder.body:
                conditions.append((holder.test, True))
            elif here is holder.orelse:
                conditions.append((holder.test, False))
        elif isinstance(holder, cst.While) and here is holder.body:
            conditions.append((holder.test, True))
        elif isinstance(holder, cst.IndentedBlock | cst.SimpleStatementSuite | cst.Module):
            number = walk.block(holder)[1].get(here)
            for place, test, wanted in _left_behind_in(holder, walk):
                if number is not None and place >= number:
                    break
                conditions.append((test, wanted))
        here = holder
    return tuple(conditions)


def _left_behind_in(holder: cst.CSTNode, walk: Walk) -> list[tuple[int, cst.BaseExpression, bool]]:
    """What holds behind the statements of a block, each with the number of its statement."""
    known = walk.left_behind.get(holder)
    if known is None:
        statements = walk.block(holder)[0]
        known = walk.left_behind[holder] = [(number, *passed) for number, statement in enumerate(statements) for passed in _left_behind(statement)]
    return known


def _left_behind(statement: cst.CSTNode) -> list[Condition]:
    if isinstance(statement, cst.Assert):
        return [(statement.test, True)]
    passed: list[Condition] = []
    node: object = statement
    while isinstance(node, cst.If):
        if not terminates(node.body):
            rest = node.orelse
            if isinstance(rest, cst.Else) and terminates(rest.body) and not passed:
                return [(node.test, True)]
            return passed
        passed.append((node.test, False))
        node = node.orelse
    return passed
