"""Loops and loaders: which expressions are loaders, which loops are epochs, what stays the same in a loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import WRAPPERS
from oomlint.memory.loaders.loader_calls import LOADER_CLASSES, Loader, Loaders, evaluator_of, loaders_of
from oomlint.model import names
from oomlint.model.values import Alternative, Const, ExternalCall, Instance, Unknown
from oomlint.scout.telling_names import LOADER_NAME
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Effect, Scope

_EPOCH = re.compile(r"(?<!per_)epoch", re.IGNORECASE)
_MOST_CALLERS = 4


class LoaderLike(Struct, frozen=True):
    """An expression that is a loader: known (its call was found) or by its name."""

    name: str
    known: bool
    loader: Loader | None
    frame: Frame
    workers: tuple[Alternative, ...]

    def __str__(self) -> str:
        """Its name and the place of its call: what tells two of them apart."""
        if self.loader is None:
            return self.name
        place = self.loader.module.place(self.loader.call, "")
        return f"{self.name} {place.path}:{place.cell}:{place.row}:{place.column}"

    @property
    def without_workers(self) -> bool:
        """Whether it is known to have none."""
        return bool(self.workers) and all(isinstance(a.value, Const) and a.value.value == 0 for a in self.workers if not a.reach)


def loader_like(project: Project, node: cst.BaseExpression, module: Module, scope: Scope) -> LoaderLike | None:
    """The loader that an expression stands for, or ``None`` where it is something else or nobody knows."""
    loaders = loaders_of(project)
    evaluator = loaders.evaluator
    code = _plain_name(node)
    named = LOADER_NAME.search(code) is not None
    # Who calls the function matters only where the name lets one think of a loader; to look for callers is not cheap.
    frames = evaluator.calls.frames(module, scope, most=_MOST_CALLERS) if named else [evaluator.calls.plain_frame(module, scope)]
    for frame in frames:
        unknown = False
        for alt in evaluator.values(node, frame):
            value = alt.value
            if isinstance(value, ExternalCall) and names.canonical(value.name) in LOADER_CLASSES:
                loader = next((x for x in loaders.of(value.frame.module) if x.call is value.call), None)
                workers = _workers(loaders, loader, value.frame) if loader is not None else ()
                return LoaderLike(code, known=True, loader=loader, frame=value.frame, workers=workers)
            if isinstance(value, Instance) and evaluator.derives(value.cls, *LOADER_CLASSES):
                return LoaderLike(code, known=True, loader=None, frame=frame, workers=())
            if isinstance(value, ExternalCall):
                unknown = unknown or "oader" in value.name
            elif isinstance(value, Unknown):
                unknown = True
        if unknown and named:
            return LoaderLike(code, known=False, loader=None, frame=frame, workers=())
    return None


def _workers(loaders: Loaders, loader: Loader, frame: Frame) -> tuple[Alternative, ...]:
    """How many workers a loader has; where a parameter says it, all that the callers give."""
    found = loaders.workers(loader, frame)
    if frame.bound is None and any(isinstance(alt.value, Unknown) for alt in found):
        frames = loaders.evaluator.calls.frames(frame.module, frame.scope, most=_MOST_CALLERS)
        found = [alt for outer in frames for alt in loaders.workers(loader, outer)]
    return tuple(found)


def _plain_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Subscript):
        return _plain_name(node.value)
    return names.last_name(node)


def is_epoch_loop(node: cst.CSTNode, module: Module) -> bool:
    """Whether a loop counts epochs, by the names that it uses."""
    if isinstance(node, cst.While):
        return _EPOCH.search(module.code(node.test)) is not None
    if not isinstance(node, cst.For):
        return False
    words = f"{module.code(node.target)} {module.code(node.iter)}"
    return _EPOCH.search(words) is not None and _counts(node.iter)


def _counts(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Call):
        name = names.last_name(node.func)
        if name in {"range", "trange", "count"}:
            return True
        if name in WRAPPERS and node.args:
            return _counts(node.args[0].value)
    return isinstance(node, cst.Name | cst.Attribute) and _EPOCH.search(names.last_name(node)) is not None


def batch_loader(project: Project, node: cst.BaseExpression, module: Module, scope: Scope, depth: int = 0) -> LoaderLike | None:
    """The loader that a loop goes over, taken out of ``tqdm``, ``enumerate``, ``zip`` and their like."""
    if isinstance(node, cst.Call):
        name = names.last_name(node.func)
        if name in WRAPPERS and node.args:
            return batch_loader(project, node.args[0].value, module, scope, depth)
        if name in {"zip", "zip_longest"}:
            found = (batch_loader(project, arg.value, module, scope, depth) for arg in node.args)
            return next((one for one in found if one is not None), None)
        last = node.args[-1].value if name in {"range", "trange"} and node.args else None
        if isinstance(last, cst.Call) and names.last_name(last.func) == "len" and len(last.args) == 1:
            return batch_loader(project, last.args[0].value, module, scope, depth)  # the body takes `next(iterator)`
    like = loader_like(project, node, module, scope)
    if like is not None or depth or not isinstance(node, cst.Name):
        return like
    # A progress bar around a loader, bound to a name.
    evaluator = evaluator_of(project)
    for alt in evaluator.plainly(node, module, scope)[:4]:
        value = alt.value
        if isinstance(value, ExternalCall) and value.name.rpartition(".")[2] in WRAPPERS and value.call.args and value.frame.module is module:
            return batch_loader(project, value.call.args[0].value, module, value.frame.scope, depth + 1)
    return None


def goes_often(project: Project, node: cst.CSTNode, module: Module, scope: Scope) -> bool:
    """Whether a loop may make many rounds: over a loader, a counted loop, a ``while``."""
    if isinstance(node, cst.While):
        return True
    if not isinstance(node, cst.For):
        return False
    return _counts(node.iter) or _is_counted(project, node.iter, module, scope) or batch_loader(project, node.iter, module, scope) is not None


def _is_counted(project: Project, node: cst.BaseExpression, module: Module, scope: Scope) -> bool:
    """Whether a variable holds what counts: ``bar = tqdm(range(steps))``."""
    found = evaluator_of(project).plainly(node, module, scope)[:2] if isinstance(node, cst.Name) else []
    return any(isinstance(alt.value, ExternalCall) and _counts(alt.value.call) for alt in found)


def loops_around(node: cst.CSTNode, module: Module, scope: Scope) -> Iterator[cst.For | cst.While]:
    """Loops of the same scope whose body holds the node, innermost first."""
    child = node
    for here in module.walk.ancestors(node):
        if here is scope.node:
            return
        if isinstance(here, cst.For | cst.While) and child is here.body:
            yield here
        child = here


def conditional_in(node: cst.CSTNode, loop: cst.CSTNode, module: Module, but: Callable[[cst.BaseExpression], bool] | None = None) -> bool:
    """Whether a test inside the loop decides if the node runs; ``but`` says which tests do not count."""
    for here in module.walk.ancestors(node):
        if here is loop:
            return False
        if isinstance(here, cst.If | cst.IfExp | cst.Try) and not (but is not None and isinstance(here, cst.If) and but(here.test)):
            return True
    return False


def is_nth(test: cst.BaseExpression) -> bool:
    """Whether a test lets every n-th round through: ``step % 10 == 0``."""
    return any(isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo) for node in descend(test))


def changes_in(
    nodes: Sequence[cst.BaseExpression],
    loop: cst.For | cst.While,
    module: Module,
    scope: Scope,
    alike: Callable[[cst.Call], bool] | None = None,
    asked: frozenset[str] = frozenset(),
) -> bool:
    """Whether one of the expressions depends on something that the loop sets.

    ``alike`` says which calls give the same in each round; where it is given, an object is not the same any more once a method has changed it.
    """
    roots = {name for node in nodes for name in _names_in(node, module)}
    for root in roots:
        for effect in scope.effects.get(root, ()):
            inside = effect.statement is loop or loop in module.walk.ancestors(effect.statement)
            if (
                inside
                and effect.kind not in {"import", "from"}
                and (alike is None or root in asked or not _made_again(effect, loop, module, scope, alike, asked))
            ):
                return True
    return alike is not None and _acts_on(nodes, loop)


def _acts_on(nodes: Sequence[cst.BaseExpression], loop: cst.For | cst.While) -> bool:
    """Whether a method of what the expressions read is called in the loop for what it does, not for what it gives: ``dataset.set_epoch(epoch)``."""
    read = {path for node in nodes for part in descend(node) if isinstance(part, cst.Name | cst.Attribute) and (path := path_of(part)) is not None}
    for node in descend(loop.body, into_scopes=False):
        call = node.value if isinstance(node, cst.Expr) else None
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and path_of(call.func.value) in read:
            return True
    return False


def _made_again(effect: Effect, loop: cst.For | cst.While, module: Module, scope: Scope, alike: Callable[[cst.Call], bool], asked: frozenset[str]) -> bool:
    """Whether each round of a loop makes the same of a name as the round before, out of nothing that the loop changes."""
    if effect.statement is loop or effect.value is None or effect.kind not in {"assign", "for"} or conditional_in(effect.statement, loop, module):
        return False
    if any(isinstance(node, cst.Call) and not alike(node) for node in descend(effect.value)):
        return False
    keys = [part.slice[0].slice.value for part in descend(effect.node) if isinstance(part, cst.Subscript) and isinstance(part.slice[0].slice, cst.Index)]
    return not changes_in([effect.value, *keys], loop, module, scope, alike, asked | {effect.root})


def _names_in(node: cst.CSTNode, module: Module) -> Iterator[str]:
    """Names that an expression reads: neither its attributes nor the keywords of its calls."""
    for part in descend(node):
        if isinstance(part, cst.Name) and (part is node or not module.walk.is_word(part)):
            yield part.value
