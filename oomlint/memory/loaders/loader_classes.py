"""Classes of loaders: a project's own that derive from a DataLoader, and the calls in other modules that make objects of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.loaders.loader_calls import LOADER_CLASSES
from oomlint.model import names
from oomlint.model.readings import finder
from oomlint.model.values import ClassRef, FunctionRef, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


def made_by_classes(loaders: Loaders, module: Module) -> list[Loader]:
    """The ``super().__init__(...)`` of classes of loaders in other modules that calls of this one lead to: of a class, or of one that it derives from."""
    found: dict[int, Loader] = {}
    for call, scope in module.walk.calls:
        for built in _initializers(loaders, module, call, scope):
            if built.module is not module:
                found |= {id(loader.call): loader for loader in loaders.of(built.module) if loader.inherited and loader.scope is built.scope}
    return list(found.values())


def _initializers(loaders: Loaders, module: Module, call: cst.Call, scope: Scope) -> Iterator[FunctionRef]:
    """The ``__init__`` of the project's classes of loaders that a call runs."""
    evaluator = loaders.evaluator
    written = names.last_name(call.func)
    if written == "__init__" and scope.name == written and scope.parent is not None and scope.parent.is_class:
        cls = ClassRef(module, scope.parent)
        if evaluator.derives(cls, *LOADER_CLASSES):
            above = (base for base in evaluator.lineage(cls) if isinstance(base, ClassRef) and base.scope is not cls.scope)
            yield from (FunctionRef(base.module, built) for base in above if (built := base.scope.child("__init__")) is not None)
        return
    known = {name for found in loaders.project.search(_loader_classes, (), module.path, "DataLoader").values() for name in found.split()}
    imported = (effect.node for effect in module.root.effects.get(written, ()) if effect.kind == "from")
    if known.isdisjoint({written, *(names.dotted(node.name) for node in imported if isinstance(node, cst.ImportAlias))}):
        return
    for alt in evaluator.plainly(call.func, module, scope):
        if isinstance(alt.value, ClassRef) and evaluator.derives(alt.value, *LOADER_CLASSES):
            built_by = evaluator.method(Instance(alt.value, None), "__init__")
            if built_by is not None:
                yield built_by


@finder
def _loader_classes(path: str, data: bytes) -> str:
    """Classes of a file that derive from a DataLoader, or from something whose name ends like that."""
    del path
    return " ".join(name.decode() for name in re.findall(rb"\bclass\s+(\w+)\s*\([^)]*DataLoader\b", data))
