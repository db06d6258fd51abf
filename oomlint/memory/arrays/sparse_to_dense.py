"""Sparse matrices of all samples that are made dense as a whole: a number for each pair that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Message, Told
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import names
from oomlint.model.test_suites import holds_tests
from oomlint.model.torch_tables import REDUCTIONS
from oomlint.model.values import Element, ExternalCall, FunctionRef, Instance, SourceExpression
from oomlint.scout.telling_names import DENSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

_SPARSE: Final = ("scipy.sparse.", "torch.sparse")
_DOCUMENTS: Final = "sklearn.feature_extraction."
_FITS: Final = frozenset({"fit_transform", "transform"})
_ONE_TYPE: Final = frozenset({"toarray", "todense"})  # methods of sparse matrices alone
_DEEPEST: Final = 4


def made_dense(module: Module, project: Project) -> Iterator[Told]:
    """Calls of the module that make a whole sparse matrix dense: one for each function, the others related."""
    if holds_tests(module):
        return
    for scope in module.walk.scopes:
        if scope.is_class or constructions_of(project).per_item(module, scope):
            continue
        found: list[tuple[cst.Call, cst.BaseExpression, Keeper | None]] = []
        for call in scope.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in DENSE and not kept_of(project).repeats(module, call):
                matrix = call.func.value
                kind = _kind(project, module, scope, matrix, call.func.attr.value)
                keeper = next((one for one in kept_of(project).of(module, call) if not one.hazy), None) if kind else None
                if keeper is not None or (kind is _DOCUMENTS and _by_a_script(project, module, call)):
                    found.append((call, matrix, keeper))
        if found:
            yield _told(module, found)


def _told(module: Module, found: list[tuple[cst.Call, cst.BaseExpression, Keeper | None]]) -> Told:
    (call, matrix, keeper), *others = found
    what = " ".join(module.code(matrix).split())
    goes = f"; it stays in {keeper.words}" if keeper is not None and not keeper.saver else ""
    name = names.last_name(call.func)
    message = Message(f"`{name}` makes all of the sparse `{what}` dense", f"zeros then take as much memory as the stored values{goes}")
    related = [module.place(other, "the same happens here") for other, _, _ in others]
    if keeper is not None and not keeper.saver:
        related.append(keeper.module.place(keeper.node, f"{keeper.words} keeps it"))
    facts = (allocation_fact(module, call), *(keeper_facts(keeper) if keeper is not None else ()))
    return Told(module.place(call), message, confidence=Confidence.MEDIUM, related=tuple(related), facts=facts)


def _by_a_script(project: Project, module: Module, call: cst.Call) -> bool:
    kept = kept_of(project)
    return kept.serving.project_trains(module) and kept.runs_once(module, call)


def _kind(project: Project, module: Module, scope: Scope, node: cst.BaseExpression, method: str, depth: int = 0) -> str:
    """Which library's sparse matrix of many rows it is; empty where it is a row, something else, or not known."""
    if depth > _DEEPEST or isinstance(node, cst.Subscript):
        return ""
    frame = evaluator_of(project).calls.plain_frame(module, scope)
    known = False
    for alt in evaluator_of(project).values(node, frame)[:3]:
        found = _of_value(project, alt.value)
        if found:
            return found
        known = known or isinstance(alt.value, Instance | FunctionRef | ExternalCall)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return _of_call(project, node, frame) or _kind(project, module, scope, node.func.value, "", depth + 1)
    if isinstance(node, cst.BinaryOperation):
        return _kind(project, module, scope, node.left, "", depth + 1)
    return _SPARSE[0] if method in _ONE_TYPE and not known and isinstance(node, cst.Name | cst.Attribute) else ""


def _of_value(project: Project, value: Value) -> str:
    name = value.name if isinstance(value, ExternalCall) else value.whole.name if isinstance(value, Element) else ""
    if name.startswith(_SPARSE):
        return "" if name.rpartition(".")[2] in REDUCTIONS else _SPARSE[0]
    if isinstance(value, SourceExpression) and isinstance(value.node, cst.Call):
        return _of_call(project, value.node, value.frame)
    return ""


def _of_call(project: Project, call: cst.Call, frame: Frame) -> str:
    """``vectorizer.fit_transform(texts)``, ``matrix.tocsr()``."""
    if not isinstance(call.func, cst.Attribute):
        return ""
    for alt in evaluator_of(project).values(call.func.value, frame)[:3]:
        name = alt.value.name if isinstance(alt.value, ExternalCall) else ""
        if name.startswith(_DOCUMENTS) and call.func.attr.value in _FITS:
            return _DOCUMENTS
        if name.startswith(_SPARSE) and call.func.attr.value.startswith("to"):
            return _SPARSE[0]
    return ""
