"""Large arrays and tables that become lists of Python objects: ten times the bytes, and nothing that workers share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, OF_LISTS
from oomlint.finding import Consequence, Message, Resource, Severity, Weighs, in_own_rows
from oomlint.memory.arrays.inflation import Inflation, building, keeper_of, may_be_large, of_numbers
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.name_uses import names_files
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.attribute_names import small_name
from oomlint.memory.shared.computed import gives_places
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import Form, PayloadKind
from oomlint.memory.shared.operand_kinds import operand
from oomlint.model import arguments, names
from oomlint.model.loops import set_in
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ExternalCall, Instance
from oomlint.syntax.nodes import descend, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_NAMES: Final = Weighs(Consequence.ONCE, Resource.NAMES)
_HUGGING_FACE: Final = re.compile(r"^\s*(?:from|import)\s+datasets\b|concatenate_datasets|load_dataset", re.MULTILINE)
_TO_ROWS: Final = frozenset({"to_list", "to_dict"})
_SAME_ROWS: Final = frozenset("map filter shuffle sort rename_column rename_columns remove_columns cast cast_column with_format flatten add_column".split())
_FROM_MEMORY: Final = frozenset({"from_dict", "from_list", "from_pandas", "from_buffer"})
_DEEPEST: Final = 3
_SHORT: Final = 60
_LONGEST: Final = 4  # names on the way of a list
_OF_LISTS: Final = OF_LISTS | {"fromiter", "cumsum"}


def listed(module: Module, project: Project) -> Iterator[Inflation]:
    """Arrays and tables that a dataset keeps as lists of Python objects."""
    yield from _taken_off_the_disk(module, project)
    told = {load.node for load in arrays_of(project).files(module)}  # what reads all files is told where it does: `table["path"].apply(np.load).tolist()`
    for scope in building(module, project):
        yield from _numbered(module, project, scope)
        for call in scope.calls:
            what = _list_of(module, call)
            keeper = keeper_of(module, project, call) if what is not None else None
            if keeper is None or what is None or keeper.collected or len(keeper.names) > _LONGEST or _into_array(module, call):
                continue
            if keeper.own == 0 and small_name(_name_of(what)):
                continue  # it goes into a record, unnamed, and is small by the name of what it is made of
            if told and not told.isdisjoint((what, *descend(what))):
                continue
            content = operand(project, module, scope, what)
            if content is None or (content.kind is PayloadKind.FRAME and names.last_name(call.func) == "list"):
                continue  # a list of a table has the names of its columns
            if gives_places(content.node) or content.form is Form.PICKLED:  # what was pickled are objects already
                continue
            if isinstance(content.node, cst.Call) and _was_a_list(module, project, scope, content.node):
                continue
            if isinstance(content.node, cst.BinaryOperation) and content.size.exact is None and content.count is None:
                continue  # what is computed of something that nobody knows: a shape, a scale
            if content.form is not Form.COLUMN and may_be_large(project, content):
                times = f"for {keeper.words}, they take 8 to 19 times the bytes, and workers copy them as they read"
                message = Message(f"`{_short(module, call)}` turns all data into Python objects", times)
                own, there = module.place(call), keeper.module.place(keeper.node, f"{keeper.words} keeps it")
                facts = (allocation_fact(module, call), *keeper_facts(keeper))
                related = tuple(in_own_rows(own, (there,)))
                of_names = keeper.owner is not None and (
                    names_files(Instance(keeper.owner, None), keeper.attribute, evaluator_of(project)) or datasets_of(project).opens_files(keeper.owner)
                )
                severity, weighs = (Severity.NOTE, _NAMES) if of_names and content.size.exact is None and content.count is None else (None, None)
                yield Inflation(module.place(call), message, severity, related=related, facts=facts, weighs=weighs, node=call)


def _name_of(node: cst.BaseExpression) -> str:
    """The name of what an array is made of, the last key of it where there is one."""
    while isinstance(node, cst.Call | cst.Subscript):
        if isinstance(node, cst.Call):
            if not node.args:
                break
            node = node.args[0].value
        elif isinstance(index := node.slice[0].slice, cst.Index) and isinstance(index.value, cst.SimpleString):
            return str(index.value.evaluated_value)
        else:
            node = node.value
    return names.last_name(node)


def _numbered(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``list(range(1, count + 1))`` for each of many samples that a dataset keeps: what a range says in 48 bytes takes 8 and more for each number."""
    kept = kept_of(project)
    for call in scope.calls:
        what = _list_of(module, call) if names.last_name(call.func) == "list" else None
        loop = kept.gathering(module, call) if isinstance(what, cst.Call) and names.dotted(what.func) == "range" else None
        # How many numbers it has is another question in each round: else all samples have the same few.
        if (
            what is None
            or loop is None
            or kept.bounded(module, what)
            or not uses_name(what, set_in(loop, module.walk, scope))
            or _is_shuffled(module, scope, call)
            or _into_array(module, call)
            or isinstance(module.walk.parents.get(call), cst.BinaryOperation)  # `[0] + list(range(1, n))` is no range
        ):
            continue
        keeper = next((one for one in kept.of(module, call) if one.owner is not None and not one.hazy and one.put is not None), None)
        if keeper is not None and not _is_added(keeper):
            cost = f"for each sample in {keeper.words}, a number takes 8 to 36 bytes; a `range` takes 48 in all"
            message = Message(f"`{_short(module, call)}` lists numbers one by one", cost, "keep the `range` itself")
            there = (keeper.module.place(keeper.node, f"{keeper.words} keeps it"),)
            facts = (allocation_fact(module, call), *keeper_facts(keeper))
            yield Inflation(module.place(call), message, related=there, facts=facts, node=call)


def _is_added(keeper: Keeper) -> bool:
    """Whether a list that is kept is joined with another one, ``self.seen[i] + self.asked[i]``, as no range can be."""
    owner = keeper.owner
    for node in owner.scope.nodes() if owner is not None else ():
        sides = (node.left, node.right) if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add) else ()
        rows = [side.value for side in sides if isinstance(side, cst.Subscript)]
        if any(isinstance(row, cst.Attribute) and row.attr.value == keeper.attribute for row in rows):
            return True
    return False


def _is_shuffled(module: Module, scope: Scope, call: cst.Call) -> bool:
    """Whether the list is put into another order, which no range can be."""
    statement = module.walk.statement_of(call)
    name = names.dotted(statement.targets[0].target) if isinstance(statement, cst.Assign) and statement.value is call else ""
    shuffles = (one for one in scope.calls if names.last_name(one.func) == "shuffle" and one.args)
    return bool(name) and any(names.dotted(one.args[0].value) == name for one in shuffles)


def _taken_off_the_disk(module: Module, project: Project) -> Iterator[Inflation]:
    """All rows of a dataset of Hugging Face, which is a map of a file, as Python objects: ``list(rows)``, ``rows[:]``, ``pd.DataFrame(rows)``."""
    if _HUGGING_FACE.search(module.source.text) is None or holds_tests(module):
        return
    for scope in module.walk.scopes:
        if scope.is_class or constructions_of(project).per_item(module, scope):
            continue
        for node in scope.nodes(inner=False):
            rows = _all_rows(node) if isinstance(node, cst.Call | cst.Subscript) else None
            if rows is not None and isinstance(node, cst.BaseExpression) and _is_mapped(project, module, scope, rows):
                what = " ".join(module.code(node).split())
                what = f"`{what}`" if len(what) < _SHORT else "This"
                cost = "three to four times the bytes of the file, which the dataset only maps"
                message = Message(f"{what} turns all rows of a dataset into Python objects", cost, "go through the dataset row by row, or in batches")
                yield Inflation(module.place(node), message, facts=(allocation_fact(module, node),), node=node)


def _all_rows(node: cst.Call | cst.Subscript) -> cst.BaseExpression | None:
    """What an expression takes all rows of."""
    if isinstance(node, cst.Subscript):
        part = node.slice[0].slice
        return node.value if isinstance(part, cst.Slice) and part.lower is None and part.upper is None and part.step is None else None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in _TO_ROWS and not node.args:
        return node.func.value
    takes = names.dotted(node.func) in {"list", "pd.DataFrame", "pandas.DataFrame"} and len(node.args) == 1 and not node.args[0].star
    return node.args[0].value if takes else None


def _is_mapped(project: Project, module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression is a dataset of Hugging Face with all rows of a split, of which nobody says that it is there to evaluate."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME_ROWS:
        node = node.func.value
    evaluator = evaluator_of(project)
    for alt in evaluator.plainly(node, module, scope)[:3]:
        if isinstance(alt.value, ExternalCall) and alt.value.name.startswith("datasets."):
            last = alt.value.name.rpartition(".")[2]
            split = arguments.named(alt.value.call, "split")
            trains = isinstance(split, cst.SimpleString) and str(split.evaluated_value) == "train"
            return trains if last == "load_dataset" else last == "concatenate_datasets" or (last.startswith("from_") and last not in _FROM_MEMORY)
    if isinstance(node, cst.Name) and depth < _DEEPEST:
        around, start = set(module.walk.ancestors(node)), module.tree.span(node)
        given = [one for one in scope.effects.get(node.value, ()) if not one.path and module.tree.span(one.statement) < start and one.statement not in around]
        if given and given[-1].kind == "assign" and not given[-1].index and given[-1].value is not None:
            block = module.walk.parents.get(module.walk.parents.get(given[-1].statement) or node)
            return block in around and _is_mapped(project, module, scope, given[-1].value, depth + 1)
    return False


def _was_a_list(module: Module, project: Project, scope: Scope, made: cst.Call) -> bool:
    """Whether an array is made of what is not known to be one: a list that becomes an array and a list again is as large as it was."""
    given = made.args[0].value if made.args and not made.args[0].star else None
    here = module.walk.scope_at(made) if made in module.walk.parents else None
    return names.last_name(made.func) in AS_ARRAY and isinstance(given, cst.Name) and here is scope and operand(project, module, scope, given) is None


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
