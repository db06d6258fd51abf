"""Fixes for handles on a dataset: opened on first use in each process, or dropped when it is pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.finding import Fix, Safety
from oomlint.memory.fixes.class_family import Family
from oomlint.memory.fixes.lazy_property import lazily_opened
from oomlint.memory.fixes.path_stability import in_doubt
from oomlint.memory.fixes.property_writer import before, end_of
from oomlint.memory.handles.openings import Opens
from oomlint.model import names
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.handles.dataset_handles import Handle
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect


class _Held(Struct, frozen=True):
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
    if family.set_outside(handle.attribute) or _has_a_flag(handle, family):
        return None
    text = Text(module.tree)
    outer = before(text, init.node)
    if outer.strip():
        return None
    unit = module.tree.module.default_indent
    end = end_of(text, init, outer)
    sure = handle.opening.kind is not Opens.LMDB and not in_doubt(family, handle.scope, handle.opening.path)
    method = f'{outer}def __getstate__(self):\n{outer}{unit}return {{**self.__dict__, "{handle.attribute}": None}}'
    return Fix(Safety.SAFE if sure else Safety.UNSAFE, f"drop `{handle.attribute}` in `__getstate__`", (text.replaced(end, end, f"\n\n{method}"),))


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
    """Whether the opening stands in the body of ``if self.file is None`` or ``if not self.file``."""
    if handle.effect is None:
        return False
    tests = list(_tests_around(handle.module, handle.effect.statement))
    return bool(tests) and all(_asks(handle, this, test) for test in tests)


def _asks(handle: Handle, this: str, test: cst.BaseExpression | None) -> bool:
    """Whether a test asks for the handle and nothing else: a flag beside it would be sent to the workers as it is."""
    attribute = f"{this}.{handle.attribute}"
    wanted = {f"{attribute} is None", f"not {attribute}", *(f"getattr({this}, {q}{handle.attribute}{q}, None) is None" for q in "\"'")}
    return test is not None and handle.module.code(test).strip("() ") in {each.strip("() ") for each in wanted}


def _tests_around(module: Module, node: cst.CSTNode) -> Iterator[cst.BaseExpression | None]:
    """The tests that decide in its function whether a node runs; ``None`` for what is no plain ``if``."""
    child = node
    for holder in module.walk.ancestors(node):
        if isinstance(holder, cst.FunctionDef | cst.Lambda):
            return
        match holder:
            case cst.If() if child is holder.body:
                yield holder.test
            case cst.If() if child is holder.orelse:
                yield None
            case cst.IfExp() | cst.BooleanOperation() | cst.ExceptHandler() | cst.MatchCase():
                yield None
        child = holder


def _has_a_flag(handle: Handle, family: Family) -> bool:
    """Whether something else than the handle decides if it is opened: around the calls of the method that opens, or before it opens."""
    opener = handle.scope
    if not opener.name.startswith("__") and not names.is_property(opener):
        for cls in family.members:
            for scope in cls.scope.children:
                this = names.self_name(scope) or ""
                calls = [call for call in scope.calls if names.dotted(call.func) == f"{this}.{opener.name}"]
                if any(not _asks(handle, this, test) for call in calls for test in _tests_around(cls.module, call)):
                    return True
    this = names.self_name(opener) or ""
    reads = f"{this}.{handle.attribute}"
    for node in opener.nodes():
        if isinstance(node, cst.If) and any(isinstance(here, cst.Return) for here in descend(node.body)):
            code = handle.module.code(node.body)
            test = handle.module.code(node.test)
            if reads not in test and (reads in code or not opener.name.startswith("__")):
                return True
    return False
