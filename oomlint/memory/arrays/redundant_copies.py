"""Whole arrays of which a second copy is made while the first is still there."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import libcst as cst
import msgspec

from oomlint.api_names import FACTS
from oomlint.finding import AllocationFact, Fix, Message, Role, Safety, Severity
from oomlint.memory.arrays.inflation import Inflation, allocated, building, held_facts, is_large, keeper_of, may_be_large, of_numbers, passed, weighed
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.said_small import axes_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.operand_kinds import made_by_numpy, operand
from oomlint.model import arguments, names
from oomlint.model.tensor_state import ROWS
from oomlint.model.values import External, Instance
from oomlint.syntax.edits import Text, replace
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_IN_PLACE: Final = r"(?!_)\w+(?<!_)_|sort|fill|put|partition|resize|setfield"
_SAY_WHAT_IS_COPIED: Final = ("__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")


def copies(module: Module, project: Project) -> Iterator[Inflation]:
    """Copies of whole arrays. What a function joins in the same way several times is told once, with what has the most axes."""
    groups: dict[object, list[Inflation]] = {}
    for one in weighed(project, module, _copies(module, project)):
        key = (module.walk.scope_at(one.node), one.message.headline) if one.joins else one.node
        groups.setdefault(key, []).append(msgspec.structs.replace(one, severity=_severity(project, one)))
    for group in groups.values():
        first, *others = sorted(group, key=lambda one: -(one.axes or 0))
        again = tuple(module.place(one.node).saying("the same happens here", Role.AGAIN) for one in others)
        yield msgspec.structs.replace(first, related=(*again, *first.related)) if again else first


def _severity(project: Project, one: Inflation) -> Severity | None:
    """A copy that is gone at once weighs where it is known to be large: by its bytes, or since each sample has two axes or more."""
    if one.axes is None:
        return one.severity
    size = one.facts[0].bytes.known if isinstance(one.facts[0], AllocationFact) else None
    large = size >= project.settings.array_bytes if size is not None else one.axes > ROWS
    return Severity.WARNING if large else Severity.NOTE


def _copies(module: Module, project: Project) -> Iterator[Inflation]:
    seen: set[cst.CSTNode] = set()
    seen.update(_joined(module, project))
    scaled = {node for node, _, _ in passed(module, project, DataTransform.SCALES)}
    for node, load, kept in passed(module, project, DataTransform.COMPUTES):
        if not kept.many and kept_of(project).gathering(module, node) is None and scaled.isdisjoint(descend(node)):
            seen.add(node)
            yield _recomputed(project, module, node, kept, (load.module.place(load.node, "read here"),))
    for node, load, kept in passed(module, project, DataTransform.COPIES):
        if load.node is node or load.many or kept_of(project).gathering(module, node) is not None:
            continue  # what a loop copies round after round is told by another rule
        read = load.module.place(load.node, "read here")
        if isinstance(node, cst.Subscript):
            yield _permuted(project, module, node, kept, read)
        elif isinstance(node, cst.Call) and not _written(kept):
            seen.add(node)
            yield _copied(project, module, node, kept, (read,))
    evaluator = evaluator_of(project)
    for scope in building(module, project):
        for call in scope.calls:
            if call in seen or not call.args or names.last_name(call.func) not in {"tensor", "array"} or call.args[0].star:
                continue
            frame = evaluator.calls.plain_frame(module, scope)
            if not any(isinstance(a.value, External) and a.value.name in {"torch.tensor", "numpy.array"} for a in evaluator.values(call.func, frame)):
                continue
            keeper = keeper_of(module, project, call)
            if keeper is None or _written(keeper) or of_numbers(call.args[0].value) or kept_of(project).gathering(module, call) is not None:
                continue  # of what one round has read, the copy is gone by the next one
            what = operand(project, module, scope, call.args[0].value)
            # What a round copies is one part of the data, and its copy is what stays.
            if what is not None and what.kind is PayloadKind.ARRAY and may_be_large(project, what) and kept_of(project).gathering(module, call) is None:
                yield _copied(project, module, call, keeper, ())
        yield from _casts(module, project, scope)
        yield from _duplicated(module, project, scope)
        yield from (one for one in _standardised(module, project, scope) if one.node not in seen)


def _joined(module: Module, project: Project) -> set[cst.CSTNode]:
    """Copies of what a list became: the list is what counts."""
    arrays = arrays_of(project)
    loads = (*arrays.h5(module), *arrays.files(module))
    every = [keeper.passed for load in loads for keeper in load.keepers]
    return {done.node for passed in every if any(one.does is DataTransform.JOINS for one in passed) for done in passed if done.does is DataTransform.COPIES}


def _written(keeper: Keeper) -> bool:
    """Whether the copy is written to: then it is one for a reason."""
    name = re.escape(keeper.attribute or (keeper.names[-1] if keeper.names else ""))
    node: cst.CSTNode = keeper.owner.scope.node if keeper.owner is not None else keeper.module.walk.scope_at(keeper.node).node
    return _changed(name, keeper.module.source.text) and _changed(name, keeper.module.code(node))  # to write out a class takes long


def _changed(name: str, code: str) -> bool:
    """Whether code changes what goes by a name in place."""
    changed = rf"\b{name}\s*(\[[^\]]*\]\s*)?([-+*/|&]|//|\*\*)=|\b{name}\s*\[[^\]]*\]\s*=(?!=)|\b{name}\s*(\[[^\]]*\])?\.({_IN_PLACE})\("
    return bool(name) and re.search(changed, code) is not None


def _shares(module: Module, source: cst.BaseExpression, node: cst.BaseExpression) -> bool:
    """Whether the array goes on beside its copy, so that what is written to one would be seen in the other: it has a name that is read later or kept."""
    scope = module.walk.scope_at(node)
    while isinstance(source, cst.Subscript):
        source = source.value
    if isinstance(source, cst.Attribute):
        owner = scope.parent if scope.parent is not None and scope.parent.is_class else scope
        return _changed(re.escape(source.attr.value), module.code(owner.node))
    if not isinstance(source, cst.Name):
        return False
    if any(isinstance(here, cst.For | cst.While) for here in module.walk.between(node, scope.node)):
        return True
    text = Text(module.tree)
    end = text.span(node)[1]
    for one in scope.nodes():
        if not isinstance(one, cst.Name) or one.value != source.value:
            continue
        holder = module.walk.parents.get(one)
        if isinstance(holder, cst.Assign | cst.NamedExpr) and holder.value is one:
            return True
        if text.span(one)[0] < end or isinstance(holder, cst.AssignTarget | cst.Del):
            continue
        if isinstance(holder, cst.Attribute) and (holder.attr is one or holder.attr.value in FACTS):
            continue
        call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
        if not (isinstance(call, cst.Call) and names.dotted(call.func) == "len"):
            return True
    return False


def _casts(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``.astype`` to the type that the array has."""
    for call in scope.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "astype" or len(call.args) != 1:
            continue
        keeper = keeper_of(module, project, call)
        made = allocated(module, project, scope, call.func.value) if keeper is not None else None
        if keeper is None or made is None or not is_large(project, made[1]):
            continue
        dtype = arguments.named(made[2], "dtype")
        given = module.code(dtype) if dtype is not None else ""
        if given and given == module.code(call.args[0].value):
            text = Text(module.tree)
            last = text.span(call.args[0].value)[1]
            shared = _shares(module, call.func.value, call)
            fix = None if shared else Fix(Safety.UNSAFE, "copy only if the dtype differs", (text.replaced(last, last, ", copy=False"),))
            yield Inflation(
                module.place(call),
                Message(
                    "`.astype` copies all data, which already has that dtype",
                    f"the array and its copy, for {keeper.words}, are in memory at once",
                    "pass `copy=False`, which copies only if the dtype differs",
                ),
                Severity.NOTE,
                fix=fix,
                facts=held_facts(module, call, keeper),
                node=call,
            )


def _duplicated(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``copy.deepcopy(dataset)`` of one that holds all of its data."""
    evaluator, arrays = evaluator_of(project), arrays_of(project)
    for call in scope.calls:
        if names.last_name(call.func) != "deepcopy" or not call.args:
            continue
        frame = evaluator.calls.plain_frame(module, scope)
        if not any(isinstance(alt.value, External) and names.canonical(alt.value.name) == "copy.deepcopy" for alt in evaluator.values(call.func, frame)[:2]):
            continue
        for alt in evaluator.values(call.args[0].value, frame)[:3]:
            cls = alt.value.cls if isinstance(alt.value, Instance) and not any(evaluator.method(alt.value, name) for name in _SAY_WHAT_IS_COPIED) else None
            loads = (*arrays.h5(cls.module), *arrays.files(cls.module)) if cls is not None else ()
            owned = (
                (load, keeper) for load in loads for keeper in load.keepers if keeper.owner is not None and cls is not None and keeper.owner.scope is cls.scope
            )
            for load, keeper in islice(owned, 1):
                message = Message("`deepcopy` copies all data of the dataset", f"{keeper.words} is in memory twice", "use `copy.copy`, which shares the data")
                read = (load.module.place(load.node, "read here"),)
                yield Inflation(module.place(call), message, Severity.WARNING, related=read, facts=held_facts(module, call, keeper), node=call)


def _standardised(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``(a - a.mean()) / a.std()``: two more arrays."""
    for node in scope.nodes(inner=False):
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Divide) or not isinstance(node.left, cst.BinaryOperation):
            continue
        left = node.left
        name = module.code(left.left).strip()
        if not isinstance(left.operator, cst.Subtract) or not re.search(rf"\b{re.escape(name)}\.mean\(|mean\({re.escape(name)}\b", module.code(left.right)):
            continue
        keeper = keeper_of(module, project, node)
        what = operand(project, module, scope, left.left) if keeper is not None else None
        if keeper is not None and what is not None and may_be_large(project, what):
            yield msgspec.structs.replace(_recomputed(project, module, node, keeper, ()), axes=None)  # it may be the pixels of one file


def _recomputed(project: Project, module: Module, node: cst.BaseExpression, keeper: Keeper, spots: tuple[Place, ...]) -> Inflation:
    three = f"for {keeper.words}, three arrays are in memory at once"
    message = Message("Each operation creates a copy of all data", three, "use `-=` and `/=`, which change the array in place")
    facts, axes = held_facts(module, node, keeper), axes_of(project, keeper).least
    return Inflation(module.place(node), message, Severity.NOTE, related=spots, facts=facts, node=node, axes=axes)


def _permuted(project: Project, module: Module, node: cst.Subscript, keeper: Keeper, read: Place) -> Inflation:
    code = " ".join(module.code(node).split())
    both = f"the old and the new array, for {keeper.words}, are in memory at once"
    message = Message(f"`{code}` copies all data into another order", both, "permute the indices, not the data")
    facts, axes = held_facts(module, node, keeper), axes_of(project, keeper).least
    return Inflation(module.place(node), message, related=(read,), facts=facts, node=node, axes=axes)


def _copied(project: Project, module: Module, node: cst.Call, keeper: Keeper, spots: tuple[Place, ...]) -> Inflation:
    both = f"the array and its copy, for {keeper.words}, are in memory at once"
    fix = None
    if names.last_name(node.func) == "tensor" and isinstance(node.func, cst.Attribute) and not _shares(module, node.args[0].value, node):
        given = [a.keyword.value for a in node.args[1:] if a.keyword is not None]
        if len(node.args) == 1 and made_by_numpy(project, module, module.walk.scope_at(node), node.args[0].value):
            fix = Fix(Safety.UNSAFE, "use `from_numpy`, which makes no copy", (replace(module.tree, node.func.attr, "from_numpy"),))
        elif given == ["dtype"] and len(node.args) == 2:  # noqa: PLR2004 - the array and its type
            fix = Fix(Safety.UNSAFE, "copy only if the dtype differs", (replace(module.tree, node.func.attr, "as_tensor"),))
    joins = names.last_name(node.func) not in {"tensor", "array"}  # with something else, into an array that is all of it again
    remedy = "allocate the result once, and fill it" if joins else "use `as_tensor` or `asarray`, which copy only if needed"
    message = Message(f"`{module.function_of(node)}` copies all data", both, remedy)
    facts = held_facts(module, node, keeper)
    axes = axes_of(project, keeper).least if joins else None
    return Inflation(module.place(node), message, Severity.NOTE, related=spots, fix=fix, facts=facts, node=node, axes=axes, joins=joins)
