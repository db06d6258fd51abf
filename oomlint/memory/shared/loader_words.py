"""Whether an expression may be a loader, by its words alone: what it is can take long to find out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model.names import dotted, last_name, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_SPEAKS = re.compile(rb"[Ll]oader|(?:\b|_)dls?\d*(?:\b|_)")
_NAMED = re.compile(r"loader|dls?\d*$", re.IGNORECASE)
# Methods and attributes that give parts of something, and functions of Python that make another thing of what they get.
_PARTS = frozenset("keys values items parameters named_parameters modules children split shape size sizes dims strides spacing columns index".split())
_OTHERS = frozenset("range zip map filter enumerate dict set product chain glob listdir str bytes tolist".split())
_LITERALS = frozenset({"None", "True", "False"})
_SAME = frozenset({"list", "tuple", "sorted", "iter", "tqdm", "reversed", "track"})


def may_be_loader(node: cst.BaseExpression, module: Module, scope: Scope) -> bool:
    """Whether an expression may be a loader, by its form, by what sets it and by what the files say."""
    while isinstance(node, cst.Subscript):
        node = node.value
    word = last_name(node.func if isinstance(node, cst.Call) else node)
    if _NAMED.search(word):
        return True
    if word in _PARTS and not isinstance(node, cst.Name):
        return False
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Name) and node.args and word in _SAME:
            return may_be_loader(node.args[0].value, module, scope)
        return word not in _OTHERS and (_speaks(module) or _comes_from_one_that_speaks(node.func, module))
    if isinstance(node, cst.Name):
        return _is_set(node.value, scope) and (_speaks(module) or any(_comes_from_one_that_speaks(value, module) for value in _calls_behind(node.value, scope)))
    return isinstance(node, cst.Attribute | cst.IfExp | cst.NamedExpr | cst.BooleanOperation | cst.Await) and _speaks(module)


def _speaks(module: Module) -> bool:
    """Whether the code of a file, not its comments alone, names a loader."""
    key = ("speaks of loaders", module.path)
    known = module.project.memo.get(key)
    if not isinstance(known, bool):
        known = _SPEAKS.search(module.project.raw(module.path)) is not None and any(map(_NAMED.search, _words(module)))
        module.project.memo[key] = known
    return known


def _words(module: Module) -> Iterator[str]:
    for scope in module.walk.scopes:
        yield from (p.name.value for p in parameters(scope))
        yield from (last_name(call.func) for call in scope.calls)
        for root, effects in scope.effects.items():
            yield from (root for effect in effects if effect.kind != "def")
            yield from (str(key) for effect in effects for _, key in effect.path)


def _is_set(name: str, scope: Scope) -> bool:
    """Whether anything but a caller gives the name its value: whoever is not asked for the callers knows nothing of a parameter."""
    if name in scope.effects:
        return True
    given = next((p for p in parameters(scope) if p.name.value == name), None)
    return given is None or isinstance(given.default, cst.Call) or (isinstance(given.default, cst.Name) and given.default.value not in _LITERALS)


def _calls_behind(name: str, scope: Scope) -> Iterator[cst.BaseExpression]:
    """Functions whose results are bound to the name."""
    for effect in scope.effects.get(name, ()):
        if effect.kind != "for" and not effect.path and isinstance(effect.value, cst.Call):
            yield effect.value.func


def _comes_from_one_that_speaks(node: cst.BaseExpression, module: Module) -> bool:
    """Whether a function is imported from a file of the project that speaks of loaders."""
    root = dotted(node).partition(".")[0]
    for effect in module.root.effects.get(root, ()):
        if isinstance(effect.statement, cst.ImportFrom):
            statement = effect.statement
            path = module.project.locate(module.path, dotted(statement.module), len(statement.relative))
        elif isinstance(effect.statement, cst.Import) and isinstance(effect.node, cst.ImportAlias):
            path = module.project.locate(module.path, dotted(effect.node.name))
        else:
            continue
        if path is not None and (path.endswith("/") or _SPEAKS.search(module.project.raw(path))):
            return True
    return False
