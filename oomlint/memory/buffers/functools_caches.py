"""Functions whose results an unbounded cache of `functools` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.buffers.cached_payload import Heavy, heavy
from oomlint.memory.buffers.caches import SampleCache
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.known_libraries import uses_torch
from oomlint.model import arguments, names
from oomlint.model.values import Const, External, FunctionRef
from oomlint.scout.forms import SMALL_RETURNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope


def cached_functions(module: Module, project: Project) -> Iterator[SampleCache]:
    """Functions of a module with an unbounded cache, that run for each sample or read files."""
    if "cache" not in module.source.text:
        return
    evaluator = evaluator_of(project)
    for scope in module.walk.scopes:
        if isinstance(scope.node, cst.FunctionDef) and scope.parent is not None:
            outside = evaluator.calls.plain_frame(module, scope.parent)
            for decorator in scope.node.decorators:
                if unbounded(decorator.decorator, outside, evaluator):
                    found = _function(project, module, scope, decorator)
                    if found is not None:
                        yield found
    for call, scope in module.walk.calls:
        if len(call.args) == 1 and not call.args[0].star and "cache" in module.code(call.func):
            frame = evaluator.calls.plain_frame(module, scope)
            if not unbounded(call.func, frame, evaluator):
                continue
            for alt in evaluator.values(call.args[0].value, frame)[:6]:
                if isinstance(alt.value, FunctionRef):
                    found = _function(project, alt.value.module, alt.value.scope, call)
                    if found is not None:
                        yield found
                    break


def unbounded(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a decorator is ``functools.cache`` or ``lru_cache(maxsize=None)``."""
    if isinstance(node, cst.Call):
        if names.last_name(node.func) != "lru_cache" or not _is_external(node.func, "functools.lru_cache", frame, evaluator):
            return False
        given = arguments.argument_for(node, "maxsize", place=0)
        found = evaluator.values(given, frame) if given is not None else []
        return bool(found) and all(isinstance(a.value, Const) and a.value.value is None for a in found)
    return names.last_name(node) in {"cache", "memoize"} and _is_external(node, "functools.cache", frame, evaluator)


def _is_external(node: cst.BaseExpression, wanted: str, frame: Frame, evaluator: Evaluator) -> bool:
    return any(isinstance(a.value, External) and a.value.name == wanted for a in evaluator.values(node, frame)[:2])


def _function(project: Project, home: Module, scope: Scope, place: cst.CSTNode) -> SampleCache | None:
    """A cached function that gives an array, a tensor or a sample for each of many arguments."""
    node = scope.node
    if not isinstance(node, cst.FunctionDef) or names.is_property(scope):
        return None
    own = [p for p in names.parameters(scope) if p.name.value != names.self_name(scope)]
    if not own or (node.returns is not None and names.last_name(node.returns.annotation) in SMALL_RETURNS):
        return None
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(home, scope)
    what = next((h for r in scope.returns if r.value is not None and (h := heavy(r.value, frame, project)) is not None), None)
    if what is None:
        return None
    found = readers(project, home, scope)
    if found and all(one.without_workers for one in found):
        return None
    if not found and (not what.read or what.text or not uses_torch(home)):
        return None
    words = f"The cache of `{scope.name}`"
    kept = Heavy(f"{what.words} and the object itself" if names.is_method(scope) else what.words, what.doubt, read=what.read)
    return SampleCache(place, words, kept, None, tuple(found), what.doubt + (not found), home, scope.name)
