"""Objects that hold what is used now, and no more: what comes next is written over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def written_over(keeper: Keeper) -> bool:
    """Whether an object holds under each key only what was last put there of each source."""
    cls = keeper.module.walk.scope_at(keeper.node).parent
    if cls is None or not cls.is_class or not keeper.attribute:
        return False
    return _has_latest(keeper.module, cls, keeper.attribute)


def _has_latest(module: Module, cls: Scope, attribute: str) -> bool:
    """Whether the rounds of a loop set an element of it again and again, under a key that none of them changes."""
    for method in cls.children:
        this = names.self_name(method) or ""
        for loop in method.loops:
            for node in descend(loop.body):
                for target in _elements_set(node, this, attribute):
                    key = target.slice[0].slice
                    around = [here for here in module.walk.ancestors(node) if isinstance(here, cst.For | cst.While)]
                    if isinstance(key, cst.Index) and isinstance(key.value, cst.Name) and not any(key.value.value in _bound(here) for here in around):
                        return True
    return False


def _elements_set(node: cst.CSTNode, this: str, attribute: str) -> Iterator[cst.Subscript]:
    """``self.rows[key]`` of a statement that sets it to something else than what is made of the attribute."""
    if isinstance(node, cst.Assign) and not any(is_attribute_of(part, this) and part.attr.value == attribute for part in descend(node.value)):
        for target in node.targets:
            for part in descend(target):
                if isinstance(part, cst.Subscript) and is_attribute_of(part.value, this) and part.value.attr.value == attribute:
                    yield part


def _bound(loop: cst.For | cst.While) -> set[str]:
    """Names that a loop binds in its rounds."""
    own = [loop.target] if isinstance(loop, cst.For) else []
    targets = [*own, *(node.target for node in descend(loop) if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.For))]
    return {name for target in targets if not isinstance(target, cst.Subscript | cst.Attribute) for name in names_in(target)}
