"""One file that holds all samples, and that is read whole for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.datasets.per_sample_code import ItemContexts, mentions
from oomlint.memory.shared.known_reads import WHOLE, KnownRead
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.memory.datasets.per_sample_code import Context
    from oomlint.model.project import Module

_KINDS: Final = WHOLE | {KnownRead.NUMBERS, KnownRead.RECORDS}
_ROWS: Final = frozenset({"iloc", "loc", "iat", "at", "values"})  # what comes between a table and the index of a row
_PICKS: Final = frozenset({"get", "item", "query", "take", "select", "index_select"})
_PASSES: Final = 6


class ItemFile(Struct, frozen=True, eq=False):
    """A file that is read whole for each sample, and what of it the sample picks."""

    read: FileRead
    module: Module  # of the part
    part: cst.BaseExpression


class ItemFiles(ItemContexts):
    """Finds them. One for a run; it remembers."""

    def of(self, module: Module) -> Iterator[ItemFile]:
        """The reads that are written in a module."""
        calls = read_calls_of(self.project)
        for scope in module.walk.scopes:
            if not isinstance(scope.node, cst.FunctionDef):
                continue
            for read in calls.calls_in(module, scope):
                found = self._judge(read) if read.kind in _KINDS and read.path is not None and _is_local(read) else None
                if found is not None:
                    yield found

    def _judge(self, read: FileRead) -> ItemFile | None:
        for context in self.contexts(read.module, read.scope):
            if context.root.scope.name == "__len__" or context.root.loop is not None or read.path is None:
                continue
            known, this = self.closure(context), names.self_name(context.scope)
            if mentions(read.path, known, this):
                continue  # a file of the sample's own
            found = self._part(read, context, read.node)
            if found is not None:
                return found
        return None

    def _part(self, read: FileRead, context: Context, node: cst.BaseExpression) -> ItemFile | None:
        """What the sample picks of a value, in the function itself or in the one that it is given back to."""
        here: Context | None = context
        while here is not None:
            # What holds the whole file depends on no sample: the name of the part does.
            whole = _holding(here, node)
            known, this = self.closure(here, frozenset(whole)), names.self_name(here.scope)
            given_back = any(one.value is not None and _is(one.value, node, whole) for one in here.scope.returns)
            for part in here.scope.nodes(inner=False) if not given_back else ():
                index, base = _picked(part)
                if isinstance(here.module.walk.parents.get(part), cst.AssignTarget):
                    continue  # it is written there
                if base is not None and _is(base, node, whole) and any(mentions(one, known, this) for one in index):
                    return ItemFile(read, here.module, part)  # type: ignore[arg-type]
            if not given_back or here.call is None or here.outer is None:
                return None
            node, here = here.call, here.outer
        return None


def _is_local(read: FileRead) -> bool:
    """Whether nothing keeps what is read beyond the sample, and no test has it read only once."""
    module = read.module
    for here in module.walk.ancestors(read.node):
        if isinstance(here, cst.If | cst.IfExp | cst.Try | cst.While):
            return False
        if isinstance(here, cst.Assign) and not all(isinstance(target.target, cst.Name | cst.Tuple) for target in here.targets):
            return False
        if isinstance(here, cst.FunctionDef):
            break
    return not any(isinstance(first, cst.If) for first in module.walk.body(read.scope)[:1])  # `if self.rows is not None: return self.rows`


def _holding(context: Context, node: cst.BaseExpression) -> set[str]:
    """Names that hold all of a value, or all of it in another form."""
    found: set[str] = set()
    for _ in range(_PASSES):
        before = len(found)
        for name, effects in context.scope.effects.items():
            if any(not e.path and e.kind == "assign" and not e.index and e.value is not None and _is(e.value, node, found) for e in effects):
                found.add(name)
        if len(found) == before:
            break
    return found


def _is(expression: cst.BaseExpression, node: cst.BaseExpression, names_of_it: set[str]) -> bool:
    """Whether an expression is the value, one of its fields, or what a method or function makes of the whole."""
    here: cst.BaseExpression = expression
    while True:
        if here is node or (isinstance(here, cst.Name) and here.value in names_of_it):
            return True
        if isinstance(here, cst.Attribute) or (
            isinstance(here, cst.Subscript)
            and all(isinstance(one.slice, cst.Index) and isinstance(one.slice.value, cst.SimpleString | cst.Integer) for one in here.slice)
        ):
            here = here.value
        elif isinstance(here, cst.Call) and isinstance(here.func, cst.Attribute) and names.dotted(here.func).partition(".")[0] not in {"np", "torch", "numpy"}:
            here = here.func.value
        elif isinstance(here, cst.Call) and here.args:
            here = here.args[0].value
        else:
            return False


def _picked(node: cst.CSTNode) -> tuple[list[cst.BaseExpression], cst.BaseExpression | None]:
    """The index of a part and what it is a part of; nothing for other expressions."""
    if isinstance(node, cst.Subscript):
        index = [one.slice.value for one in node.slice if isinstance(one.slice, cst.Index)]
        base = node.value
        return index, base.value if isinstance(base, cst.Attribute) and base.attr.value in _ROWS else base
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _PICKS:
        return [arg.value for arg in node.args], node.func.value
    return [], None
