"""Objects that hold what is used now, and no more: what comes next is written over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.arrays.windows import changing
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.model import names
from oomlint.syntax.nodes import descend, is_attribute_of, names_in

if TYPE_CHECKING:
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
        for effect in method.effects.get(names.self_name(method) or "", ()):
            key = _key(effect, attribute)
            loop = next(loops_around(effect.statement, module, method), None)
            if key is not None and loop is not None and key.value not in changing(module, method, loop):
                return True
    return False


def _key(effect: Effect, attribute: str) -> cst.Name | None:
    """``key`` of a statement that sets ``self.rows[key]`` to something else than what is made of the attribute."""
    target = effect.node
    while isinstance(target, cst.Subscript) and not isinstance(target.value, cst.Attribute):
        target = target.value
    if effect.kind != "assign" or effect.path[:1] != (("attr", attribute),) or not isinstance(target, cst.Subscript) or effect.value is None:
        return None
    index = target.slice[0].slice
    again = any(is_attribute_of(part, effect.root) and part.attr.value == attribute for part in descend(effect.value))
    return index.value if isinstance(index, cst.Index) and isinstance(index.value, cst.Name) and not again else None


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
