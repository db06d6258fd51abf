"""Which uses of a name mean one binding of it: in the scope itself, and in functions inside it that have no such name of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.reach import Reach
from oomlint.syntax.nodes import descend, names_in
from oomlint.syntax.scopes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.reach import Conditions
    from oomlint.syntax.scopes import Effect, Scope
    from oomlint.syntax.walk import Walk


class NameUses:
    """The uses of a name of a scope."""

    def __init__(self, walk: Walk, scope: Scope, name: str) -> None:
        self.walk = walk
        self.scope = scope
        self.name = name
        self._reach = Reach(walk, scope, name, lambda effect: None if effect.path or effect.kind in CHANGES - {"clear"} else ([], True))
        self._known: dict[cst.CSTNode | None, set[Effect | None]] = {}  # by the statement that it was asked of
        self._others: dict[cst.Name, bool] = {}  # uses, and whether they mean something else

    def bindings(self, at: cst.CSTNode | None) -> set[Effect | None]:
        """Bindings that hold at a place, or at the end of the scope; ``None`` stands for what the caller gave."""
        statement = self.walk.statement_of(at) if at is not None else None
        known = self._known.get(statement)
        if known is None:
            found, falls = self._reach.search(at)
            ways = [(effect, conditions) for effect, _, conditions in found] + [(None, conditions) for conditions in falls]
            known = self._known[statement] = {effect for effect, conditions in ways if self._may_hold(effect, conditions)}
        return known

    def _may_hold(self, effect: Effect | None, conditions: Conditions) -> bool:
        """Whether a way is one: no test has to come out both ways, and what a call gives is not said to be nothing."""
        if any(wanted and not other and test.deep_equals(again) for test, wanted in conditions for again, other in conditions):
            return False
        return effect is None or not isinstance(effect.value, cst.Call) or not any(self._says_none(test, wanted=wanted) for test, wanted in conditions)

    def _says_none(self, test: cst.BaseExpression, *, wanted: bool) -> bool:
        """Whether the name stands for nothing where a test comes out as wanted: ``if not x``, ``if x is None``."""
        match test:
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                return self._says_none(inner, wanted=not wanted)
            case cst.Comparison(left=cst.Name(value=name), comparisons=[cst.ComparisonTarget(operator, cst.Name(value="None"))]) if name == self.name:
                return isinstance(operator, cst.Is) is wanted
        return isinstance(test, cst.Name) and test.value == self.name and not wanted

    def made(self, definition: cst.CSTNode | None) -> set[Effect | None]:
        """What a statement, or its target, binds the name to; ``None`` is what the caller gave. Nothing where it only changes what the name holds."""
        if definition is None:
            return {None}
        plain = [one for one in self.scope.effects.get(self.name, ()) if not one.path and one.kind not in CHANGES]
        return {one for one in plain if definition is one.statement or definition is one.node or definition in self.walk.ancestors(one.node)}

    def reached(self, definition: cst.CSTNode | None) -> Iterator[cst.Name]:
        """Uses behind a statement, in the scope's own code, of what it gives the name, or of what that holds where it changes that."""
        made = self.made(definition)
        given = made or self.bindings(definition)
        within = set(descend(definition)) if definition is not None else set()
        first = self.scope.places.get(definition, -1) if definition is not None else -1
        beside = self.walk.statement_of(definition) if isinstance(definition, cst.NamedExpr) else None  # its own statement reads it, too
        for number, use in self.scope.mentions(self.name):
            if use in within or self._is_another(use) or isinstance(self.walk.parents.get(use), cst.AssignTarget | cst.Del):
                continue
            if self.walk.statement_of(use) is beside or (number > first and not given.isdisjoint(self.bindings(use))):
                yield use

    def is_over(self, definition: cst.CSTNode, behind: cst.CSTNode) -> bool:
        """Whether a statement behind it is where the name holds nothing any more that this one gives it."""
        places = self.scope.places
        later = definition in places and places.get(behind, -1) > places[definition]
        return later and (self.made(definition) or self.bindings(definition)).isdisjoint(self.bindings(behind))

    def lasts(self, definition: cst.CSTNode) -> bool:
        """Whether the name may hold what a statement gives it at the end of the scope."""
        return not (self.made(definition) or self.bindings(definition)).isdisjoint(self.bindings(None))

    def inside(self, inner: Scope) -> Iterator[cst.Name]:
        """Uses in the code of a function inside that has no such name of its own."""
        return (use for _, use in inner.mentions(self.name) if not self._is_another(use))

    def of(self, effect: Effect | None) -> Iterator[cst.Name]:
        """Uses that may mean a binding, in the order of the text."""
        bound_at = {one.node for one in self.scope.effects.get(self.name, ()) if not one.path}
        for node in self.scope.named(self.name):
            if node not in bound_at and not self._is_another(node) and effect in self.bindings(node):
                yield node

    def _is_another(self, node: cst.Name) -> bool:
        """Whether the name means something else there: it is a word, or belongs to a comprehension or to a function inside."""
        known = self._others.get(node)
        if known is None:
            known = self._others[node] = self._belongs_to_another(node)
        return known

    def _belongs_to_another(self, node: cst.Name) -> bool:
        above = self.walk.parents.get(node)
        if self.walk.is_word(node) or (isinstance(above, cst.Param) and above.name is node) or shadowed(self.walk, node):
            return True
        inner: Scope | None = self.walk.scope_at(node)
        while inner is not None and inner is not self.scope:
            if node.value in names.takes(inner) or (inner.sets(node.value) and node.value not in inner.enclosing):
                return True
            inner = inner.parent
        return False


def shadowed(walk: Walk, use: cst.Name) -> bool:
    """Whether a name is that of a comprehension's own variable; what the first loop of one goes through is evaluated outside."""
    for here in walk.ancestors(use):
        if isinstance(here, cst.BaseStatement):
            return False
        loop = here.for_in if isinstance(here, cst.BaseComp) else None
        if loop is None or any(part is use for part in descend(loop.iter)):
            continue
        while loop is not None:
            if use.value in names_in(loop.target):
                return True
            loop = loop.inner_for_in
    return False
