"""Which uses of a name mean one binding of it: in the scope itself, and in functions inside it that have no such name of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.reach import Reach
from oomlint.syntax.nodes import descend, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.syntax.scopes import Effect, Scope
    from oomlint.syntax.walk import Walk


class NameUses:
    """The uses of a name of a scope."""

    def __init__(self, walk: Walk, scope: Scope, name: str) -> None:
        self.walk = walk
        self.scope = scope
        self.name = name
        self._reach = Reach(walk, scope, name, lambda effect: None if effect.path or effect.kind == "augment" else ([], True))

    def bindings(self, at: cst.CSTNode) -> set[Effect | None]:
        """Bindings that hold at a place; ``None`` stands for what the caller gave."""
        found, falls = self._reach.search(at)
        return {effect for effect, _, _ in found} | ({None} if falls else set())

    def of(self, effect: Effect | None) -> Iterator[cst.Name]:
        """Uses that may mean a binding, in the order of the text."""
        bound_at = {one.node for one in self.scope.effects.get(self.name, ()) if not one.path}
        for node in self.scope.nodes():
            if isinstance(node, cst.Name) and node.value == self.name and node not in bound_at and not self._is_another(node) and effect in self.bindings(node):
                yield node

    def _is_another(self, node: cst.Name) -> bool:
        """Whether the name means something else there: it is a word, or belongs to a comprehension or to a function inside."""
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
        loop = here.for_in if isinstance(here, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp) else None
        if loop is None or any(part is use for part in descend(loop.iter)):
            continue
        while loop is not None:
            if use.value in names_in(loop.target):
                return True
            loop = loop.inner_for_in
    return False
