"""Registries: dictionaries of a module that a decorator fills with classes, and those of fvcore."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import Alternative, Alternatives, ClassRef, ExternalCall
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.model.values import Display
    from oomlint.syntax.scopes import Scope

REGISTRIES = frozenset({"fvcore.common.registry.Registry", "detectron2.utils.registry.Registry"})
_MOST_FILES = 24
_MOST = 12  # classes that are looked at for one key


def registered(value: Display | ExternalCall, key: object) -> Alternatives:
    """Classes that stand in a registry under ``key`` (any class where the key is not known); empty where it is no registry."""
    frame, node = value.frame, value.call if isinstance(value, ExternalCall) else value.node
    if frame.scope is not frame.module.root:
        return []
    found: Alternatives = []
    for root, path in frame.module.walk.bound_to(node):
        if path:
            continue
        for decorator in [f"{root}.register"] if isinstance(value, ExternalCall) else _decorators(frame.module, root):
            for name, cls in _decorated(frame.module, decorator):
                if key is UNKNOWN_KEY or name is UNKNOWN_KEY or name == key:
                    pick = frozenset({(("registry", node), cls.scope.qualname)})
                    found.append(Alternative(cls, (), pick if key is UNKNOWN_KEY else frozenset()))
    return found[:_MOST]


def _decorators(module: Module, root: str) -> Iterator[str]:
    """Names of functions that put what they decorate into the dictionary."""
    for scope in module.walk.scopes:
        taken = set(names.parameter_names(scope))
        for effect in scope.effects.get(root, ()):
            stores = effect.kind == "assign" and len(effect.path) == 1 and effect.path[0][0] == "item"
            if stores and isinstance(effect.value, cst.Name) and effect.value.value in taken:
                outer = scope.parent
                yield outer.name if outer is not None and outer.is_function else scope.name


def _decorated(module: Module, decorator: str) -> Iterator[tuple[object, ClassRef]]:
    """Classes of the project under the decorator, with the key that it is given (the class's own name where it is given none)."""
    for dotted in (False, True):
        hits = sorted(
            module.project.search(_decorates, (decorator, "." if dotted else ""), module.path, decorator),
            key=lambda path: (path != module.path, -len(os.path.commonpath([path, module.path])), path),
        )
        for path in hits[:_MOST_FILES]:
            other = module.project.find(path)
            if other is not None:
                yield from _in(other, decorator, dotted=dotted)


@finder
def _decorates(path: str, data: bytes, name: str, dot: str) -> str:
    """Whether a file may have a class under a decorator of that name."""
    del path
    word = name.encode()
    return FOUND if word in data and b"class " in data and re.search(rb"@[^\n]*" + re.escape(dot.encode() + word) + rb"\b", data) else ""


def _in(module: Module, decorator: str, *, dotted: bool) -> Iterator[tuple[object, ClassRef]]:
    for scope in module.walk.scopes:
        if isinstance(scope.node, cst.ClassDef):
            yield from ((key, ClassRef(module, scope)) for key in _keys(scope, scope.node, decorator, dotted=dotted))


def _keys(scope: Scope, node: cst.ClassDef, decorator: str, *, dotted: bool) -> Iterator[object]:
    for mark in node.decorators:
        written = mark.decorator
        func = written.func if isinstance(written, cst.Call) else written
        path = names.dotted(func)
        if path.endswith(f".{decorator}") if dotted else path == decorator:
            yield constant_key(written.args[0].value) if isinstance(written, cst.Call) and written.args else scope.name
