"""Uses of an open HDF5 file that are plain: what they give are arrays, numbers and names, which outlive the file.

The list is short on purpose. A safe fix closes the file earlier than before; whatever is not on the list may still need it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import COLLECTIONS, FACTS, H5_FACTS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_FACTS: Final = FACTS | H5_FACTS
_WHOLE: Final = frozenset({"array", "asarray", "len", "float", "int"})  # of a dataset they give a copy, or a number
_NAMES: Final = COLLECTIONS | {"len"}  # of the keys they give names
_WRITES: Final = frozenset({"create_dataset", "create_group", "require_group", "require_dataset", "flush"})
_HARMLESS: Final = frozenset({"len", "int", "float", "list", "tuple", "str", "bool", "sorted"})
_OF_ARRAYS: Final = frozenset({"astype", "get", "keys", "copy", "float", "long"})
_LIBRARIES: Final = ("np.", "numpy.", "torch.")


def read_plainly(opening: Opening, region: Sequence[cst.CSTNode], name: str | None) -> bool:
    """Whether all uses of the file in the statements of the region are plain; ``name`` is its name, ``None`` where it has none."""
    module = opening.module
    if name is None:
        return _plain(opening, opening.call, region, set()) and _alone(opening)
    return (
        _named(opening, name, region, set()) and not any(isinstance(n, cst.Yield | cst.Await) for item in region for n in descend(item)) and module is not None
    )


def _named(opening: Opening, name: str, region: Sequence[cst.CSTNode], seen: set[str]) -> bool:
    """Whether every use of a name in the scope lies in the region and is plain."""
    if name in seen:
        return True
    seen.add(name)
    module = opening.module
    inside = {node for item in region for node in descend(item)}
    for node in opening.scope.nodes():
        if not isinstance(node, cst.Name) or node.value != name or module.walk.is_word(node):
            continue
        if isinstance(module.walk.parents.get(node), cst.AssignTarget):
            if node in inside and sum(1 for e in opening.scope.effects.get(name, ()) if not e.path) == 1:
                continue
            return False
        if node not in inside or module.walk.scope_at(node) is not opening.scope or not _plain(opening, node, region, seen):
            return False
    return True


def _plain(opening: Opening, node: cst.CSTNode, region: Sequence[cst.CSTNode], seen: set[str]) -> bool:
    """Whether what is done with an object of the file is plain."""
    module = opening.module
    walk = module.walk
    holder = walk.parents.get(node)
    match holder:
        case cst.Subscript() if holder.value is node:
            if isinstance(walk.parents.get(holder), cst.AssignTarget):
                return True
            if _is_key(holder):
                return _plain(opening, holder, region, seen)
            return _is_data(opening, holder) or (_of_sample(opening, holder) and _is_array(opening, node))
        case cst.Attribute():
            return _attribute(opening, holder, region, seen)
        case cst.Arg():
            call = walk.parents[holder]
            if not isinstance(call, cst.Call) or call.args[0] is not holder:
                return False
            dotted = names.dotted(call.func)
            return (dotted.startswith(("np.", "numpy.")) or "." not in dotted) and dotted.rpartition(".")[2] in _WHOLE
        case cst.Comparison() | cst.ComparisonTarget():  # `"x" in file`
            outer = holder if isinstance(holder, cst.Comparison) else walk.parents[holder]
            return isinstance(outer, cst.Comparison) and all(isinstance(c.operator, cst.In | cst.NotIn) for c in outer.comparisons) and outer.left is not node
        case cst.For():
            return holder.iter is node and isinstance(node, cst.Name) and _named_file(opening, node)
        case cst.Assign():
            targets = [t.target for t in holder.targets]
            return (
                holder.value is node
                and node is not opening.call
                and len(targets) == 1
                and isinstance(targets[0], cst.Name)
                and _named(opening, targets[0].value, region, seen)
            )
        case _:
            return False


def _named_file(opening: Opening, node: cst.Name) -> bool:
    """Whether a name is that of the file itself, not of a dataset in it: a loop over it goes through names."""
    statement = opening.module.walk.statement_of(opening.call)
    return isinstance(statement, cst.Assign) and isinstance(statement.targets[0].target, cst.Name) and statement.targets[0].target.value == node.value


def _attribute(opening: Opening, node: cst.Attribute, region: Sequence[cst.CSTNode], seen: set[str]) -> bool:
    walk = opening.module.walk
    name, holder = node.attr.value, walk.parents.get(node)
    if name in _FACTS:
        return True
    if name == "attrs":
        return isinstance(holder, cst.Subscript) and holder.value is node
    if not isinstance(holder, cst.Call) or holder.func is not node:
        return False
    outer = walk.parents.get(holder)
    if name in _WRITES:
        return isinstance(outer, cst.Expr)
    if name == "get":
        return len(holder.args) == 1 and isinstance(holder.args[0].value, cst.SimpleString) and _plain(opening, holder, region, seen)
    if name == "keys":
        if isinstance(outer, cst.Arg):
            call = walk.parents[outer]
            return isinstance(call, cst.Call) and names.dotted(call.func) in _NAMES and len(call.args) == 1
        return isinstance(outer, cst.For) and outer.iter is holder
    return False


def _is_key(node: cst.Subscript) -> bool:
    """Whether a subscript is proven to be a key: the text stands there."""
    key = node.slice[0].slice.value if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index) else None
    return isinstance(key, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString)


def _is_data(opening: Opening, node: cst.Subscript) -> bool:
    """Whether a subscript is proven to read data: a slice, a number, the index of a dataset's sample."""
    for element in node.slice:
        part = element.slice
        if isinstance(part, cst.Slice):
            continue
        value = part.value if isinstance(part, cst.Index) else None
        if isinstance(value, cst.Ellipsis | cst.Integer) or (isinstance(value, cst.Tuple) and not value.elements):
            continue
        if len(node.slice) > 1 and isinstance(value, cst.Name | cst.Attribute | cst.BinaryOperation):
            continue  # `[i, j]`: no key is a tuple
        if not _is_number(opening, value):
            return False
    return True


def _of_sample(opening: Opening, node: cst.Subscript) -> bool:
    """Whether the subscript is the index of a sample."""
    value = node.slice[0].slice.value if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index) else None
    return isinstance(value, cst.Name) and _is_sample_index(opening.module, opening.scope, value.value)


def _is_array(opening: Opening, node: cst.CSTNode) -> bool:
    """Whether the class uses what stands under this key as an array elsewhere: a group could be asked for a member by the same index."""
    if not isinstance(node, cst.Subscript) or opening.scope.parent is None:
        return False
    key = re.escape(opening.module.code(node.slice[0]))
    used = rf"\[\s*{key}\s*\]\s*(\.(shape|dtype|ndim|chunks)\b|\[[^\]\n]*:)"
    return re.search(used, opening.module.code(opening.scope.parent.node)) is not None


def _is_number(opening: Opening, value: cst.BaseExpression | None) -> bool:
    scope = opening.scope
    if isinstance(value, cst.Call):
        return names.dotted(value.func) in {"int", "slice", "np.sort", "np.s_", "sorted", "len"}
    if isinstance(value, cst.UnaryOperation):
        return _is_number(opening, value.expression)
    if isinstance(value, cst.BinaryOperation):
        return isinstance(value.operator, cst.Subtract | cst.Multiply | cst.FloorDivide)
    if not isinstance(value, cst.Name):
        return isinstance(value, cst.Integer)
    effects = [e for e in scope.effects.get(value.value, ()) if not e.path]
    if effects:
        return all(
            _counted(e.kind, e.value, e.index) or (e.kind == "assign" and not e.index and _is_number(opening, e.value) and e.value is not value)
            for e in effects
        )
    return False


def _counted(kind: str, value: cst.BaseExpression | None, index: tuple[int, ...]) -> bool:
    """Whether a loop counts: over ``range``, or as the first of ``enumerate``."""
    if kind != "for" or not isinstance(value, cst.Call):
        return False
    last = names.last_name(value.func)
    if last in {"tqdm", "trange"} and value.args and last == "tqdm" and isinstance(value.args[0].value, cst.Call):
        return _counted(kind, value.args[0].value, index)
    return last in {"range", "trange"} or (last == "enumerate" and index == (0,))


def _is_sample_index(module: Module, scope: Scope, name: str) -> bool:
    """Whether a name is the index that a loader gives to the ``__getitem__`` of a torch dataset with a length."""
    params = names.parameters(scope)
    if scope.name != "__getitem__" or scope.parent is None or len(params) != 2 or params[1].name.value != name:  # noqa: PLR2004 - the object and the index
        return False
    evaluator = evaluator_of(module.project)
    lineage = evaluator.lineage(ClassRef(module, scope.parent))
    return scope.parent.child("__len__") is not None and any(isinstance(b, External) and b.name == "torch.utils.data.Dataset" for b in lineage)


def _alone(opening: Opening) -> bool:
    """Whether nothing else happens in the statement of a file without a name: before, it was closed at once."""
    module = opening.module
    statement = module.walk.statement_of(opening.call)
    value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign | cst.Return) else None
    if value is None:
        return False
    own = set(descend(opening.call))
    for node in descend(value):
        if isinstance(node, cst.BinaryOperation | cst.BooleanOperation | cst.Comparison) and node not in own:
            return False
        if isinstance(node, cst.Call) and node is not opening.call and node not in own:
            dotted = names.dotted(node.func)
            method = node.func.attr.value if isinstance(node.func, cst.Attribute) and not dotted else ""
            if dotted not in _HARMLESS and not dotted.startswith(_LIBRARIES) and method not in _OF_ARRAYS:
                return False
    return True
