"""Large arrays and tables that become lists of Python objects: ten times the bytes, and nothing that workers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Consequence, Message, Resource, Severity, Weighs
from oomlint.memory.arrays.inflation import TENSORS, Inflation, building, keeper_of, may_be_large, of_numbers
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.datasets.name_uses import names_files
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import Kind
from oomlint.memory.shared.operand_kinds import operand
from oomlint.model import names
from oomlint.model.values import Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_NAMES: Final = Weighs(Consequence.ONCE, Resource.NAMES)
_COUNTS: Final = frozenset({"arange", "permutation", "randperm"})
_LONGEST: Final = 4  # names on the way of a list
_OF_LISTS: Final = frozenset("array asarray fromiter tensor as_tensor Tensor LongTensor IntTensor concatenate stack cumsum".split()) | TENSORS


def listed(module: Module, project: Project) -> Iterator[Inflation]:
    """Arrays and tables that a dataset keeps as lists of Python objects."""
    for scope in building(module, project):
        yield from _numbered(module, project, scope)
        for call in scope.calls:
            what = _list_of(module, call)
            keeper = keeper_of(module, project, call) if what is not None else None
            if keeper is None or what is None or keeper.collected or len(keeper.names) > _LONGEST or _into_array(module, call):
                continue
            content = operand(project, module, scope, what)
            if content is None or (content.kind is Kind.FRAME and names.last_name(call.func) == "list"):
                continue  # a list of a table has the names of its columns
            if _counts_samples(content.node):
                continue
            if isinstance(content.node, cst.BinaryOperation) and content.size.exact is None and content.count is None:
                continue  # what is computed of something that nobody knows: a shape, a scale
            if "column" not in content.words and may_be_large(project, content):
                times = f"for {keeper.words}, they take 8 to 19 times the bytes, and workers copy them as they read"
                message = Message(f"`{_short(module, call)}` turns all data into Python objects", times)
                own, there = module.place(call), keeper.module.place(keeper.node, f"{keeper.words} keeps it")
                facts = (allocation_fact(module, call), *keeper_facts(keeper))
                related = () if (own.path, own.row) == (there.path, there.row) else (there,)
                of_names = keeper.owner is not None and names_files(Instance(keeper.owner, None), keeper.attribute, evaluator_of(project))
                severity, weighs = (Severity.NOTE, _NAMES) if of_names and content.size.exact is None and content.count is None else (None, None)
                yield Inflation(call, message, related, None, facts, severity, weighs)


def _numbered(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``list(range(1, count + 1))`` for each of many samples that a dataset keeps: what a range says in 48 bytes takes 8 and more for each number."""
    kept = kept_of(project)
    for call in scope.calls:
        what = _list_of(module, call) if names.last_name(call.func) == "list" else None
        if not isinstance(what, cst.Call) or names.dotted(what.func) != "range" or kept.gathering(module, call) is None or kept.bounded(module, what):
            continue
        keeper = next((one for one in kept.of(module, call) if one.owner is not None and not one.hazy and one.put is not None), None)
        if keeper is not None:
            cost = f"for each sample in {keeper.words}, a number takes 8 to 36 bytes; a `range` takes 48 in all"
            message = Message(f"`{_short(module, call)}` lists numbers one by one", cost, "keep the `range` itself")
            yield Inflation(call, message, (keeper.module.place(keeper.node, f"{keeper.words} keeps it"),), None, (allocation_fact(module, call),))


def _counts_samples(node: cst.CSTNode | None) -> bool:
    """Whether an array has the numbers of the samples, and none of their data: ``np.arange(len(paths))``."""
    if not isinstance(node, cst.Call) or names.last_name(node.func) not in _COUNTS or not node.args:
        return False
    return isinstance(node.args[0].value, cst.Call) and names.last_name(node.args[0].value.func) == "len"


def _into_array(module: Module, call: cst.Call) -> bool:
    """Whether an array is made of the list where it stands: ``np.array([0] + list(sizes))``."""
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.BaseCompoundStatement | cst.SimpleStatementLine):
            return False
        if isinstance(here, cst.Call) and here.func is not call.func and names.last_name(here.func) in _OF_LISTS:
            return True
    return False


def _list_of(module: Module, call: cst.Call) -> cst.BaseExpression | None:
    """What a call makes a list of."""
    if isinstance(call.func, cst.Attribute):
        if call.func.attr.value == "tolist" and not call.args:
            return None if of_numbers(call.func.value) else call.func.value
        if call.func.attr.value == "to_dict" and any("records" in module.code(a.value) for a in call.args):
            return call.func.value
    if isinstance(call.func, cst.Name) and call.func.value == "list" and len(call.args) == 1 and not call.args[0].star:
        return call.args[0].value
    return None


def _short(module: Module, node: cst.Call) -> str:
    code = " ".join(module.code(node).split())
    return code if len(code) < 50 else f"….{names.last_name(node.func)}()"  # noqa: PLR2004 - a line's share
