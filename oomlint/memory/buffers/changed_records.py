"""Records and lists that a dataset holds, and that reading a sample writes into: what was decoded stays in them, lists get longer with each access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.buffers.cached_payload import Heavy, heavy
from oomlint.memory.buffers.caches import SampleCache, bounded_here
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_callers import readers
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.lifetime import How, endings
from oomlint.model.values import Display, ExternalCall
from oomlint.scout.forms import FILLERS
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.nodes import UNKNOWN_KEY, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Effect, Scope

_RECORDS: Final = frozenset({PayloadKind.OBJECTS, PayloadKind.PATHS, PayloadKind.BLOB})  # containers whose elements are Python objects, or files' names
_WRITES: Final = frozenset({"update", "setdefault"})  # entries of a dictionary
_LISTS: Final = frozenset({"builtins.list", "builtins.sorted", "glob.glob"})


def written_records(module: Module, project: Project) -> Iterator[SampleCache]:
    """Statements of a module that leave in a dataset's own records what a sample needed, one for each attribute and method."""
    for scope in module.walk.scopes:
        own = names.self_name(scope) if isinstance(scope.node, cst.FunctionDef) and names.is_method(scope) and scope.name not in FILLERS else None
        seen: set[str] = set()
        for root, effects in list(scope.effects.items()) if own is not None else ():
            for effect in effects:
                held = _held(effect, root, own or "", scope)
                if held is not None and held[0] not in seen:
                    found = _written(effect, held, module, scope, project)
                    if found is not None:
                        seen.add(held[0])
                        yield found


def _held(effect: Effect, root: str, own: str, scope: Scope) -> tuple[str, cst.BaseExpression, bool] | None:
    """The attribute of which an effect changes an element, as an expression, and whether the element is a container that is written into."""
    if effect.value is None or effect.index:
        return None
    if effect.kind == "assign" and isinstance(effect.node, cst.Subscript) and effect.path:
        # `self.rows[i] = x`, `self.rows[i]["image"] = x`, `row["image"] = x`
        if root == own and effect.path[0][0] == "attr" and effect.path[1:2] == (("item", UNKNOWN_KEY),) and all(kind == "item" for kind, _ in effect.path[1:]):
            base = effect.node
            for _ in effect.path[2:]:
                base = base.value if isinstance(base.value, cst.Subscript) else base
            return str(effect.path[0][1]), base.value, len(effect.path) > 2  # noqa: PLR2004 - the attribute and the element
        element = _alias(root, own, scope) if len(effect.path) == 1 and effect.path[0][0] == "item" else None
        return (element.value.attr.value, element.value, True) if element is not None and isinstance(element.value, cst.Attribute) else None
    call = effect.call
    if effect.kind in ADDS | _WRITES and call is not None and isinstance(call.func, cst.Attribute):
        # `self.rows[i].extend(x)`, `row.append(x)`, `row.update({"image": x})`
        element = call.func.value if isinstance(call.func.value, cst.Subscript) else _alias(root, own, scope) if not effect.path else None
        if element is not None and _is_element(element, own) and isinstance(element.value, cst.Attribute):
            return element.value.attr.value, element.value, True
    return None


def _is_element(node: cst.BaseExpression, own: str) -> bool:
    """Whether an expression is one element, at an index that is computed, of an attribute of the object."""
    return (
        isinstance(node, cst.Subscript)
        and is_attribute_of(node.value, own)
        and len(node.slice) == 1
        and isinstance(node.slice[0].slice, cst.Index)
        and not isinstance(node.slice[0].slice.value, cst.BaseString | cst.BaseNumber)
    )


def _alias(root: str, own: str, scope: Scope) -> cst.Subscript | None:
    """The element of an attribute that a name stands for, where it stands for nothing else."""
    bound = [effect for effect in scope.effects.get(root, ()) if not effect.path and effect.kind not in ADDS | _WRITES]
    value = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index else None
    return value if isinstance(value, cst.Subscript) and _is_element(value, own) else None


def _written(effect: Effect, held: tuple[str, cst.BaseExpression, bool], module: Module, scope: Scope, project: Project) -> SampleCache | None:
    _, container, inside = held
    evaluator = evaluator_of(project)
    path = (effect.root, effect.path[:1] if effect.path[:1] and effect.path[0][0] == "attr" else ())
    ended = any(one.how is not How.BOUND for one in endings(path, module, scope))  # the method takes something out of it again
    if effect.value is None or ended or bounded_here(effect, module, scope, evaluator):
        return None
    frame = evaluator.calls.plain_frame(module, scope)
    content = datasets_of(project).contents.of(container, frame)
    longer = effect.kind in ADDS
    known = content.kind in _RECORDS and not (content.kind is PayloadKind.PATHS and inside) and not content.doubt
    if not known and (not _is_list(container, frame, project) or (inside and not longer)):
        return None
    what = heavy(effect.value, frame, project) or (Heavy("more elements") if longer else None)
    found = readers(project, module, scope) if what is not None else []
    if what is None or not found:
        return None
    made = (content.module, content.node) if content.module is not None and content.node is not None else None
    words = module.code(container).strip()
    place = effect.call if effect.call is not None else effect.statement
    return SampleCache(place, f"`{words}`", what, made, tuple(found), what.doubt, module, words, adds=longer)


def _is_list(node: cst.BaseExpression, frame: Frame, project: Project) -> bool:
    """Whether a container is a list, whatever is in it."""
    values = [alt.value for alt in evaluator_of(project).values(node, frame)[:4]]
    return bool(values) and all(
        (isinstance(value, Display) and isinstance(value.node, cst.List | cst.ListComp)) or (isinstance(value, ExternalCall) and value.name in _LISTS)
        for value in values
    )
