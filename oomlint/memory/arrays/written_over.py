"""Objects that hold what is used now, and no more: what comes next is written over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope


def written_over(keeper: Keeper, read: FileRead) -> bool:
    """Whether an object holds under each key only what was last put there: the latest of each source, or the parts of one sample."""
    cls = keeper.module.walk.scope_at(keeper.node).parent
    if cls is None or not cls.is_class or not keeper.attribute:
        return False
    return _has_latest(keeper.module, cls, keeper.attribute) or (read.scope.parent is cls and _is_of_one_row(cls, keeper, read))


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


def _is_of_one_row(cls: Scope, keeper: Keeper, read: FileRead) -> bool:
    """Whether all rounds read something of one row, which the object moves on from elsewhere: ``self.parts[key] = load(key, self.rows[self.at])``."""
    this, statement = names.self_name(read.scope), keeper.node
    if this is None or not isinstance(statement, cst.Assign) or not isinstance(statement.targets[0].target, cst.Subscript):
        return False
    moved = {str(effect.path[0][1]): method for method in cls.children for effect in method.effects.get(names.self_name(method) or "", ()) if _steps(effect)}
    rows = [part.slice[0].slice.value for part in descend(read.node) if isinstance(part, cst.Subscript) and isinstance(part.slice[0].slice, cst.Index)]
    at = {index.attr.value for index in rows if is_attribute_of(index, this)} & moved.keys()
    called = {names.last_name(call.func) for call in read.scope.calls}
    return any(moved[one] is not read.scope and moved[one].name not in called and one not in names_in(statement.targets[0]) for one in at)


def _steps(effect: Effect) -> bool:
    """Whether a statement counts an attribute of the object on: ``self.at += 1``."""
    return effect.kind == "augment" and len(effect.path) == 1 and effect.path[0][0] == "attr"
