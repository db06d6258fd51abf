"""Fixes for handles on a data set: opened on first use in each process, or dropped when it is pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.lazy_classes import Family
from oomlint.memory.lazy_edits import before, end_of
from oomlint.memory.lazy_opening import lazily_opened
from oomlint.model import names
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from oomlint.memory.handles import Handle
    from oomlint.model.project import Module
    from oomlint.syntax.walk import Effect


@dataclass(frozen=True, slots=True)
class _Held:
    name: str
    effect: Effect | None
    module: Module


def opened_lazily(handle: Handle) -> Fix | None:
    """Keep the path, open the file or environment on first use in each process; ``None`` where that may not be the same."""
    if handle.owner.module is not handle.opening.module or handle.module is not handle.opening.module:
        return None
    return lazily_opened(_Held(handle.attribute, handle.effect, handle.module), handle.module)


def dropped_when_pickled(handle: Handle) -> Fix | None:
    """A ``__getstate__`` that leaves the handle out, below ``__init__``; ``None`` where the class may not open it again by itself."""
    module, owner = handle.owner.module, handle.owner.scope
    init = owner.child("__init__")
    if module is not handle.opening.module or handle.effect is None or handle.part or handle.others or not handle.alone or init is None:
        return None
    family = Family(module, owner)
    if not handle.opening.reads_only or not family.can_change() or family.keeps_open(frozenset({handle.attribute})) or not _none_at_first(handle, init.name):
        return None
    text = Text(module.tree)
    outer = before(text, init.node)
    if outer.strip():
        return None
    unit = module.tree.module.default_indent
    end = end_of(text, init, outer)
    method = f'{outer}def __getstate__(self):\n{outer}{unit}return {{**self.__dict__, "{handle.attribute}": None}}'
    return Fix(Safety.SAFE, f"leave `{handle.attribute}` out of what is pickled", (text.replaced(end, end, f"\n\n{method}"),))


def _none_at_first(handle: Handle, init: str) -> bool:
    """Whether ``__init__`` sets the attribute to ``None``, the opening asks for that, and nothing else sets it."""
    this = names.self_name(handle.scope)
    empty = False
    for scope in handle.owner.scope.children:
        for effect in scope.effects.get(names.self_name(scope) or "", ()):
            if effect.path[:1] != (("attr", handle.attribute),) or effect is handle.effect:
                continue
            if not (effect.kind == "assign" and isinstance(effect.value, cst.Name) and effect.value.value == "None"):
                return False
            empty = empty or scope.name == init
    return empty and this is not None and _asks_for_none(handle, this)


def _asks_for_none(handle: Handle, this: str) -> bool:
    """Whether the opening stands in the body of ``if self.file is None`` or ``if not self.file``, alone or with other tests by ``or``."""
    if handle.effect is None:
        return False
    attribute = f"{this}.{handle.attribute}"
    wanted = {
        f"{attribute} is None",
        f"not {attribute}",
        f'getattr({this}, "{handle.attribute}", None) is None',
        f"getattr({this}, '{handle.attribute}', None) is None",
    }
    child: cst.CSTNode = handle.effect.statement
    for holder in handle.module.walk.ancestors(handle.effect.statement):
        if isinstance(holder, cst.If) and child is holder.body:
            tests = [holder.test]
            while tests:
                test = tests.pop()
                if handle.module.code(test).strip("() ") in wanted:
                    return True
                if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
                    tests += [test.left, test.right]
            return False
        if holder is handle.scope.node:
            break
        child = holder
    return False
