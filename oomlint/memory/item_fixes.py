"""Reading only the part that is used, in the place of a read of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.item_reads import entries_of, item_reads_of
from oomlint.memory.loaders import loaders_of
from oomlint.memory.whole_reads import Form, Store
from oomlint.model import names
from oomlint.model.values import Absent, Const, Instance
from oomlint.syntax.edits import Text
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.memory.item_contexts import Context
    from oomlint.memory.item_reads import ItemRead
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_MOST_MODULES = 12


def partial_read(case: ItemRead, project: Project) -> Fix | None:
    """The fix that moves the index to the read, or ``None`` where it would not answer the same."""
    read, where = case.read, case.where
    if where.scope is not case.context.scope or read.what.store is Store.MEMMAP:
        return None
    safety = _safety(case, project)
    if safety is None:
        return None
    node, source = read.node, read.source
    text = Text(where.module.tree)
    start, end = text.span(node)
    code = where.module.code(source)
    if "#" in text.text[start:end]:
        return None
    direct = all(base is node for _, base in case.uses.parts) and all(_is_measure_of(m, node) for m in case.uses.measured)
    by_name = (
        not case.uses.converted and all(isinstance(base, cst.Name) for _, base in case.uses.parts) and all(_is_measure_of_name(m) for m in case.uses.measured)
    )
    if direct or (by_name and _assigned_plainly(where.module, node) and _still_open(case, text)):
        if case.only_measured:
            return Fix(safety, "ask the dataset itself", (text.replaced(start, end, code),))
        return Fix(safety, "read only what is used", (text.replaced(start, end, code),))
    return _moved(case, text, code)


def _safety(case: ItemRead, project: Project) -> Safety | None:
    """How sure it is that the file answers an index as the array would; ``None`` where it is known not to."""
    read, reads = case.read, item_reads_of(project)
    plain = isinstance(read.node, cst.Call) and read.form is Form.ARRAY and len(read.node.args) == 1
    if read.form in {Form.ARRAY, Form.LIST, Form.TENSOR} and not plain and not (read.form is Form.LIST and isinstance(read.node, cst.Call)):
        return None
    if read.form is Form.VALUE and isinstance(read.node, cst.Call):
        return None  # read_direct, __array__
    if any(isinstance(m, cst.Attribute) and m.attr.value not in {"shape", "ndim", "size"} for m in case.uses.measured):
        return None
    if case.uses.measured and isinstance(read.source, cst.Call) and names.last_name(read.source.func) in {"astype", "asstr", "fields"}:
        return None  # these have no shape
    safety = Safety.SAFE if read.what.store is Store.H5 else Safety.UNSAFE
    if read.form is Form.LIST and case.uses.measured and any(isinstance(m, cst.Attribute) for m in case.uses.measured):
        return None
    for subscript, _ in case.uses.parts:
        for entry in entries_of(subscript):
            if isinstance(entry, cst.Slice):
                if read.form is Form.LIST or (entry.step is not None and not (isinstance(entry.step, cst.Integer) and entry.step.value != "0")):
                    return None
                continue
            inner = entry.value if isinstance(entry, cst.Index) else None
            if inner is None or (isinstance(inner, cst.Name) and inner.value == "None") or names.last_name(inner) == "newaxis":
                return None
            if isinstance(inner, cst.Ellipsis):
                continue
            if reads.is_many(inner, case.where):
                return None
            if reads.is_integer(inner, case.where) or _is_sample_number(inner, case.where, project):
                continue
            if case.where.root.loop is not None:
                return None  # what a loader or another iterable gives may be many numbers
            safety = Safety.UNSAFE
    return safety


def _is_measure_of(measured: cst.BaseExpression, node: cst.BaseExpression) -> bool:
    """Whether ``len(x)`` or ``x.shape`` is written of this very expression."""
    if isinstance(measured, cst.Attribute):
        return measured.value is node
    return isinstance(measured, cst.Call) and measured.args[0].value is node


def _is_measure_of_name(measured: cst.BaseExpression) -> bool:
    inner = measured.value if isinstance(measured, cst.Attribute) else measured.args[0].value if isinstance(measured, cst.Call) else None
    return isinstance(inner, cst.Name)


def _assigned_plainly(module: Module, node: cst.BaseExpression) -> bool:
    return isinstance(module.walk.parents.get(node), cst.Assign)


def _still_open(case: ItemRead, text: Text) -> bool:
    """Whether the file is open wherever the array is used: in every ``with`` that holds the read, and before anything is closed."""
    walk, scope = case.where.module.walk, case.where.scope
    used: Sequence[cst.CSTNode] = [*(s for s, _ in case.uses.parts), *case.uses.measured]
    for here in walk.ancestors(case.read.node):
        if here is scope.node:
            break
        if isinstance(here, cst.With) and not all(here in set(walk.ancestors(use)) for use in used):
            return False
    closed = [text.span(call)[0] for call in scope.calls if names.last_name(call.func) in {"close", "__exit__"}]
    return all(text.span(use)[1] <= spot for use in used for spot in closed)


def _moved(case: ItemRead, text: Text, code: str) -> Fix | None:
    """``f(d[:])[i]`` → ``f(d[i])``, and ``x = d[:]`` … ``x[i]`` → ``x = d[i]`` … ``x``, where there is one use and its index is known in time."""
    if len(case.uses.parts) != 1 or case.uses.measured or case.read.form is Form.LIST:
        return None
    subscript, base = case.uses.parts[0]
    module, scope = case.where.module, case.where.scope
    start, end = text.span(case.read.node)
    sub_start, sub_end = text.span(subscript)
    base_end = text.span(base)[1]
    index = text.text[base_end:sub_end]
    if "#" in index or "\n" in index or not index.lstrip().startswith("["):
        return None
    for node in descend(subscript):
        if node is base or not isinstance(node, cst.Name):
            continue
        if any(text.span(effect.statement)[0] >= start for effect in scope.effects.get(node.value, ()) if effect.kind != "for"):
            return None
    inside = start >= sub_start and end <= sub_end
    holder = module.walk.parents.get(subscript)
    if not inside:
        target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
        if isinstance(target, cst.Name) and isinstance(base, cst.Name) and target.value == base.value:
            return None  # would leave `x = x`
        if any(isinstance(n, cst.Call | cst.Attribute) for entry in subscript.slice for n in descend(entry)):
            return None
    edits = (text.replaced(start, end, f"{code}{index.strip()}"), text.replaced(base_end, sub_end, ""))
    return Fix(Safety.UNSAFE, "read only what is used", edits)


def _is_sample_number(node: cst.BaseExpression, where: Context, project: Project) -> bool:
    """Whether it is the index that a DataLoader with its own samplers asks for: one integer at a time."""
    scope = where.scope
    own = names.parameters(scope)
    if scope.name != "__getitem__" or len(own) != 2 or not isinstance(node, cst.Name) or node.value != own[1].name.value:  # noqa: PLR2004 - self and the index
        return False
    if scope.parent is None or node.value in names_bound(scope):
        return False
    return _loaded_one_by_one(where.module, scope.parent, project)


def names_bound(scope: Scope) -> set[str]:
    """Names that a scope gives another value."""
    return {root for root, effects in scope.effects.items() if any(not effect.path for effect in effects)}


def _loaded_one_by_one(module: Module, cls: Scope, project: Project) -> bool:
    """Whether the project gives objects of the class to loaders, and all of them take samples by one integer."""
    loaders, found = loaders_of(project), False
    seen = 0
    for other in project.mentioning((b"DataLoader", cls.name.encode()), module.path):
        seen += 1
        if seen > _MOST_MODULES:
            return False
        for loader in loaders.of(other):
            for use in loaders.uses(loader):
                values = [alt.value for alt in loaders.argument(loader, "dataset", use.frame)]
                if not any(isinstance(value, Instance) and value.cls.scope is cls for value in values):
                    continue
                for name in ("batch_sampler", "sampler"):
                    given = [alt.value for alt in loaders.argument(loader, name, use.frame)]
                    if any(not isinstance(v, Absent) and not (isinstance(v, Const) and v.value is None) for v in given):
                        return False
                sizes = [alt.value for alt in loaders.argument(loader, "batch_size", use.frame)]
                if any(isinstance(size, Const) and size.value is None for size in sizes):
                    return False
                found = True
    return found
