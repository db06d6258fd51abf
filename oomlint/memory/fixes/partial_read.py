"""Reading only the part that is used, in the place of a read of everything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.arrays.full_reads import ArrayPlace, FullReadForm, whole_reads_of
from oomlint.memory.arrays.reads_per_sample import ItemReads, entries_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.values import ExternalCall
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.memory.arrays.reads_per_sample import ItemRead
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Effect, Scope

_CONVERT: Final = frozenset({"float32", "float64", "asfortranarray"})  # the array has another type or order than the dataset
_DEEPEST: Final = 8


def partial_read(case: ItemRead, project: Project) -> Fix | None:
    """The fix that moves the index to the read, or ``None`` where it would not answer the same."""
    read, where = case.read, case.where
    if where.scope is not case.context.scope or read.what.store is ArrayPlace.MEMMAP:
        return None
    if not isinstance(read.source, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
        return None  # an index behind it would take a part of it
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
        if not direct:
            safety = Safety.UNSAFE  # by then the file may be closed, and parts of one array share their memory
        words = "take the shape from the dataset itself" if case.only_measured else "read only the part that is used"
        return Fix(safety, words, (text.replaced(start, end, code),))
    return _moved(case, text, code)


def _safety(case: ItemRead, project: Project) -> Safety | None:
    """How sure it is that the file answers an index as the array would; ``None`` where it is known not to."""
    source = _of_source(case, project)
    if source is None or not _can_be_left_out(case):
        return None
    whole_object = case.read.form is FullReadForm.VALUE or _takes_the_object(case.read.node)
    if whole_object and any(isinstance(m, cst.Call) for m in case.uses.measured):
        return None  # a scalar that is a string has a length, its dataset has none
    # The elements of a dataset can be arrays: these axes are in its array, and neither in its shape nor for its index.
    shaped = any(isinstance(m, cst.Attribute) for m in case.uses.measured)
    found: set[Safety | None] = {source, Safety.UNSAFE if whole_object or shaped else Safety.SAFE}
    for subscript, _ in case.uses.parts:
        entries = entries_of(subscript)
        found |= {Safety.UNSAFE if len(entries) > 1 else Safety.SAFE, *(_of_entry(entry, case, project) for entry in entries)}
    if None in found:
        return None
    return Safety.UNSAFE if Safety.UNSAFE in found else Safety.SAFE


def _can_be_left_out(case: ItemRead) -> bool:
    """Whether the read does no more than read, so that what is asked of the array can be asked of the dataset."""
    read, attributes = case.read, [m.attr.value for m in case.uses.measured if isinstance(m, cst.Attribute)]
    called = names.last_name(read.node.func) if isinstance(read.node, cst.Call) else ""
    if called in _CONVERT or read.form is FullReadForm.TENSOR or (called and read.form is FullReadForm.VALUE):  # read_direct, __array__
        return False
    if read.form is FullReadForm.ARRAY and (not isinstance(read.node, cst.Call) or len(read.node.args) != 1):
        return False
    if read.form is FullReadForm.LIST and (not called or attributes):
        return False
    if any(name not in {"shape", "ndim", "size"} for name in attributes):
        return False
    viewed = isinstance(read.source, cst.Call) and names.last_name(read.source.func) in {"astype", "asstr", "fields"}
    return not (viewed and case.uses.measured)  # these have no shape


def _takes_the_object(node: cst.BaseExpression) -> bool:
    """Whether it is ``d[()]``, which of a dataset without dimensions gives its one value."""
    if not isinstance(node, cst.Subscript):
        return False
    return any(isinstance(e.slice, cst.Index) and isinstance(e.slice.value, cst.Tuple) for e in node.slice)


def _of_entry(entry: cst.BaseSlice, case: ItemRead, project: Project) -> Safety | None:
    """How sure it is for the index of one axis."""
    reads = project.shared(ItemReads)
    if isinstance(entry, cst.Slice):
        stepped = entry.step is not None and not (isinstance(entry.step, cst.Integer) and entry.step.value != "0")
        return None if stepped or case.read.form is FullReadForm.LIST else Safety.SAFE
    inner = entry.value if isinstance(entry, cst.Index) else None
    if inner is None or names.adds_axis(inner):
        return None
    if isinstance(inner, cst.Ellipsis):
        return Safety.SAFE
    if reads.is_many(inner, case.where):
        return None
    if reads.is_integer(inner, case.where):
        return Safety.SAFE
    # What a loader or another iterable gives may be many numbers; so may the index of a sample, that anybody can ask for.
    return None if case.where.root.loop is not None else Safety.UNSAFE


def _of_source(case: ItemRead, project: Project) -> Safety | None:
    """How sure it is that what is read is a dataset in a file; ``None`` where it can be something else as well."""
    if case.read.doubt > 0:
        return None
    found = _stays(case.read.source, case.read.frame, project, 0)
    return Safety.UNSAFE if found is Safety.SAFE and case.read.what.store is not ArrayPlace.H5 else found


def _stays(node: cst.BaseExpression, frame: Frame, project: Project, depth: int) -> Safety | None:
    reads = whole_reads_of(project)
    if depth > _DEEPEST or reads.stored(node, frame) is None:
        return None
    if isinstance(node, cst.Subscript):
        return _stays(node.value, frame, project, depth + 1)
    if isinstance(node, cst.Call):
        return _made(node, frame, project, depth)
    if isinstance(node, cst.Attribute) and names.self_name(frame.scope) != names.dotted(node.value):
        return _stays(node.value, frame, project, depth + 1) and Safety.UNSAFE
    if not isinstance(node, cst.Name | cst.Attribute):
        return None
    given, effects = list(reads.definitions(node, frame)), _effects(node, frame)
    if isinstance(node, cst.Name):
        if any(node.value in names.takes(scope) for scope in _around(frame.scope)):
            return None if effects else Safety.UNSAFE
        if len(effects) == 1 and not given:
            opened = effects[0].value if effects[0].kind == "with" and node.value in frame.scope.effects else None
            return _stays(opened, frame, project, depth + 1) if opened is not None else Safety.UNSAFE
    if len(given) != len(effects):
        return None
    given = [(value, where) for value, where in given if not (isinstance(value, cst.Name) and value.value == "None")]
    if len(given) != 1:
        return None if given else Safety.UNSAFE
    found = _stays(*given[0], project, depth + 1)
    return Safety.UNSAFE if found is Safety.SAFE and isinstance(node, cst.Attribute) and _set_elsewhere(node, frame) else found


def _around(scope: Scope | None) -> Iterator[Scope]:
    while scope is not None:
        yield scope
        scope = scope.parent


def _effects(node: cst.Name | cst.Attribute, frame: Frame) -> list[Effect]:
    """All that gives a name, or an attribute of the object, a value."""
    if isinstance(node, cst.Name):
        bound = (scope.effects[node.value] for scope in _around(frame.scope) if node.value in scope.effects and not scope.is_class)
        return [effect for effect in next(bound, []) if not effect.path]
    methods = [scope for scope in frame.scope.parent.children if scope.is_function] if frame.scope.parent is not None else []
    path = (("attr", node.attr.value),)
    return [effect for scope in methods for effect in scope.effects.get(names.self_name(scope) or "", ()) if effect.path == path]


def _set_elsewhere(node: cst.Attribute, frame: Frame) -> bool:
    """Whether a subclass, or code outside the class, may give the attribute another value."""
    text, cls = frame.module.tree.source.text, frame.scope.parent
    outside = rf"\b(?!{names.self_name(frame.scope)}\b)\w+\.{node.attr.value}\s*=(?!=)"
    subclass = rf"^\s*class \w+\([^)]*\b{re.escape(cls.name)}\b" if cls is not None else outside
    return re.search(outside, text) is not None or re.search(subclass, text, re.MULTILINE) is not None


def _made(node: cst.Call, frame: Frame, project: Project, depth: int) -> Safety | None:
    """The same for what a call gives: a file that is opened, a member of one, a dataset in another form."""
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in {"get", "astype", "asstr", "fields"}:
        if node.func.attr.value == "get" and len(node.args) > 1:
            return None  # something else is given where the key is missing
        return _stays(node.func.value, frame, project, depth + 1)
    known = [alt.value for alt in evaluator_of(project).values(node, frame)]
    if len(known) == 1 and isinstance(known[0], ExternalCall):
        return Safety.SAFE if known[0].call is node and known[0].name.startswith("h5py.") else Safety.UNSAFE
    return None if len(known) > 1 else Safety.UNSAFE


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
    if len(case.uses.parts) != 1 or case.uses.measured or case.read.form is FullReadForm.LIST:
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
    return Fix(Safety.UNSAFE, "read only the part that is used", edits)
