"""Tensors and arrays that are made of an HDF5 dataset row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import AS_ARRAY, OF_LISTS
from oomlint.finding import Fix, Safety
from oomlint.memory.arrays.full_reads import ArrayPlace, FullReadForm, whole_reads_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.reads_per_sample import ItemReads
from oomlint.memory.fixes.rewrites import imported_as
from oomlint.memory.shared.attribute_names import small_key, small_name
from oomlint.model import names
from oomlint.syntax.edits import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.full_reads import WholeRead
    from oomlint.model.project import Module, Project

_SAME_ROW: Final = AS_ARRAY | {"float32"}
# What a tensor class converts to.
_TO: Final = {
    "FloatTensor": ".float()", "Tensor": ".float()", "DoubleTensor": ".double()", "HalfTensor": ".half()", "LongTensor": ".long()", "IntTensor": ".int()",
    "ShortTensor": ".short()", "CharTensor": ".char()", "ByteTensor": ".byte()", "BoolTensor": ".bool()",
}  # fmt: skip


class RowRead(Struct, frozen=True, eq=False):
    """A dataset that is read row by row, and the expression that makes one array or tensor of the rows."""

    read: WholeRead
    node: cst.Call


def row_reads(module: Module, project: Project) -> Iterator[RowRead]:
    """Those of a module; what another rule tells with more reason is left out."""
    reads = whole_reads_of(project)
    told: set[cst.CSTNode] | None = None
    for scope in module.walk.scopes:
        if scope.is_class:
            continue
        for read in reads.in_scope(module, scope):
            case = _case(module, read)
            if case is None or read.what.store is not ArrayPlace.H5 or _is_small(read) or _is_small_target(module, case.node):
                continue
            if told is None:
                told = {one.read.node for one in project.shared(ItemReads).of(module)} | {load.node for load in arrays_of(project).h5(module)}
            if read.node not in told:
                yield case


def _case(module: Module, read: WholeRead) -> RowRead | None:
    if read.form is FullReadForm.TENSOR and isinstance(read.node, cst.Call):
        return RowRead(read, read.node)
    if read.form is not FullReadForm.LIST or (isinstance(read.node, cst.ListComp) and not _gives_rows(read.node)):
        return None
    holder = module.walk.parents.get(read.node)
    call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
    if isinstance(call, cst.Call) and call.args[0] is holder and names.last_name(call.func) in OF_LISTS:
        return RowRead(read, call)
    return None


def _gives_rows(node: cst.ListComp) -> bool:
    """Whether the elements of a comprehension are the rows themselves, or arrays and tensors of them."""
    inner: cst.BaseExpression = node.elt
    while isinstance(inner, cst.Call) and len(inner.args) == 1 and names.last_name(inner.func) in _SAME_ROW:
        inner = inner.args[0].value
    return isinstance(inner, cst.Name) and isinstance(node.for_in.target, cst.Name) and inner.value == node.for_in.target.value


def _is_small(read: WholeRead) -> bool:
    """Whether a key says that it is small: one value a sample, an axis of the grid."""
    return any(small_key(part) for key in read.what.keys if key for part in key.split("/"))


def _is_small_target(module: Module, node: cst.BaseExpression) -> bool:
    """Whether the value goes to a name that says it is small."""
    here: cst.CSTNode | None = module.walk.parents.get(node)
    while isinstance(here, cst.Attribute | cst.Call | cst.Subscript):
        here = module.walk.parents.get(here)
    if not isinstance(here, cst.Assign):
        return False
    return any(isinstance(t.target, cst.Name | cst.Attribute) and small_name(names.last_name(t.target)) for t in here.targets)


def read_at_once(case: RowRead) -> Fix | None:
    """The fix that reads the dataset with one slice; ``None`` where the call asks for more than it can say."""
    module, node = case.read.module, case.node
    source = module.code(case.read.source)
    if not isinstance(case.read.source, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
        return None  # `[:]` behind it would take a part of it
    if "#" in module.code(node) or "\n" in module.code(node):
        return None
    if case.read.form is FullReadForm.LIST:
        library = module.code(node.func).rpartition(".")[0]
        made = {*(n.value for n in [node.func.value] if isinstance(n, cst.Name))} if isinstance(node.func, cst.Attribute) else set()
        numpy = imported_as(module, "numpy")
        if len(node.args) != 1 or numpy is None or numpy not in made or library != numpy or names.last_name(node.func) not in {"stack", "array", "asarray"}:
            return None
        return Fix(Safety.UNSAFE, "read it at once with `[:]`", (replace(module.tree, node, f"{source}[:]"),))
    torch = imported_as(module, "torch")
    if torch is None:
        return None
    last = names.last_name(node.func)
    given = [(arg.keyword.value, module.code(arg.value)) for arg in node.args[1:] if arg.keyword is not None]
    if len(given) != len(node.args) - 1 or any(name not in {"dtype", "device"} for name, _ in given):
        return None
    tail = _TO.get(last, "")
    if given and tail:
        return None
    if given:
        tail = f".to({', '.join(value if name == 'dtype' and len(given) == 1 else f'{name}={value}' for name, value in given)})"
    return Fix(Safety.UNSAFE, "read it at once with `[:]`", (replace(module.tree, node, f"{torch}.from_numpy({source}[:]){tail}"),))
