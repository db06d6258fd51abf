"""Whether a round of a loop adds samples to what it grows: what a file gave, or an array made for the round with a row for each of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocation
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_reads import KnownRead
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.training_loops import SHORT, rounds
from oomlint.model import names
from oomlint.model.lifetime import ended_in
from oomlint.model.loops import set_in
from oomlint.model.torch_tables import PAIRS, PLAIN_ATTRIBUTES, PLAIN_METHODS, REDUCTIONS, SMALL_METHODS
from oomlint.model.values import External, FunctionRef
from oomlint.syntax.nodes import descend, uses_name
from oomlint.syntax.scopes import REBINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.lifetime import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 6  # names between what is added and what was read
_AXES: Final = 3  # of an array in which each sample is more than a row of numbers
_REDUCED: Final = REDUCTIONS | PAIRS | PLAIN_METHODS | (SMALL_METHODS - {"long", "short", "byte"}) | {"len", "str", "average", "percentile"}
_ARRAYS: Final = frozenset(KnownRead) - {KnownRead.TEXT, KnownRead.RECORDS, KnownRead.OBJECT}
_OFTEN: Final = 1000  # rounds that are many where each adds a part of what is there


class _Round:
    """What the names of a loop's body hold."""

    def __init__(self, project: Project, loop: Loop, scope: Scope, module: Module) -> None:
        self.project, self.loop, self.scope, self.module = project, loop, scope, module
        most = rounds(project, loop, module, scope)
        self.often = most is None or most >= _OFTEN
        around = [one for one in loops_around(loop, module, scope) if one is not loop]
        self.per_sample = bool(around) and constructions_of(project).per_item(module, scope)  # rounds of rounds are many; a round for each class is not
        self.calls = read_calls_of(project)
        self.evaluator = evaluator_of(project)
        self.frame = self.evaluator.calls.plain_frame(module, scope)
        self.reads = {read.node for read in self.calls.in_scope(module, scope) if read.kind in _ARRAYS and names.within(read.node, loop, module)}

    def samples(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """Whether an expression holds samples of the round, as far as is known."""
        if isinstance(node, cst.Name):
            return self._in_turn(node) or (depth < _DEEPEST and any(self.samples(value, depth + 1) for value in self._bound(node.value)))
        if isinstance(node, cst.Call):
            return self._called(node, depth)
        if isinstance(node, cst.Attribute):
            return node.attr.value not in PLAIN_ATTRIBUTES and self.samples(node.value, depth)
        if isinstance(node, cst.Subscript):
            return self._window(node) or self._picked(node) or self._from_hdf5(node) or self._looked_up(node) or self.samples(node.value, depth)
        if isinstance(node, cst.BinaryOperation):
            return self.samples(node.left, depth) or self.samples(node.right, depth)
        if isinstance(node, cst.List | cst.Tuple):
            return any(self.samples(element.value, depth) for element in node.elements)
        return False

    def _called(self, node: cst.Call, depth: int) -> bool:
        if node in self.reads:
            return True
        if names.last_name(node.func) in _REDUCED:
            return False
        inner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
        given = (*inner, *(arg.value for arg in node.args))
        return self._made(node, given) or any(self.samples(part, depth) for part in given)

    def _made(self, node: cst.Call, given: Iterable[cst.BaseExpression]) -> bool:
        """Whether a call makes an array of several axes, the first of which is as long as the round says; or is of a function that reads for the round."""
        for alt in self.evaluator.values(node.func, self.frame)[:2]:
            if isinstance(alt.value, FunctionRef):
                read = (one.kind for one in self.calls.in_scope(alt.value.module, alt.value.scope))
                return any(kind in _ARRAYS for kind in read) and any(self._varies(part) for part in given)
            made = allocation(alt.value.name, node, self.evaluator, self.frame) if isinstance(alt.value, External) else None
            if self.often and made is not None and len(made.dimensions) >= _AXES and isinstance(made.dimensions[0], str):
                first = node.args[0].value if node.args else None
                first = first.elements[0].value if isinstance(first, cst.Tuple | cst.List) and first.elements else first
                return first is not None and self._varies(first)
        return False

    def _window(self, node: cst.Subscript) -> bool:
        """Whether both ends of a slice along the first axis are what the round says: ``x[i : i + width]``. Of what the round made, it leaves out the ends."""
        rows = node.slice[0].slice
        ends = (rows.lower, rows.upper) if self.often and isinstance(rows, cst.Slice) and not self._varies(node.value) else ()
        return bool(ends) and all(end is not None and self._varies(end) for end in ends)

    def _picked(self, node: cst.Subscript) -> bool:
        """Whether the rows are taken that an array of the round picks, ``points[inside]``, and that for each sample anew; a script may do it for one file."""
        rows = node.slice[0].slice
        index = rows.value if self.often and self.per_sample and isinstance(rows, cst.Index) else None
        arrays = datasets_of(self.project).contents
        return index is not None and self._varies(index) and arrays.of(index, self.frame).kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}

    def _from_hdf5(self, node: cst.Subscript) -> bool:
        """Whether it is read from a file that the round opens: ``f["x"][:]``."""
        contents = datasets_of(self.project).contents
        return contents.of(node.value, self.frame).kind is PayloadKind.H5 and contents.of(node, self.frame).kind is PayloadKind.ARRAY

    def _in_turn(self, node: cst.Name) -> bool:
        """Whether the loop goes over what was read of files, and the name is that of one of them."""
        if not isinstance(self.loop, cst.For) or not uses_name(self.loop.target, (node.value,)):
            return False
        over, _ = names.gone_through(self.loop)
        if isinstance(over, cst.Call) and isinstance(over.func, cst.Attribute) and over.func.attr.value in {"items", "values"} and not over.args:
            over = over.func.value
        return self._holds_files(over) and self._is_array(node)

    def _looked_up(self, node: cst.Subscript) -> bool:
        """Whether it is one of what was read of files before, which the round says: ``rows[name]``."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        return isinstance(index, cst.Index) and self._varies(index.value) and self._holds_files(node.value) and self._is_array(node)

    def _is_array(self, node: cst.BaseExpression) -> bool:
        return datasets_of(self.project).contents.of(node, self.frame).kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}

    def _holds_files(self, node: cst.BaseExpression) -> bool:
        """Whether a container has an array of each of many files."""
        content = datasets_of(self.project).contents.of(node, self.frame)
        module, one = (content.element.module, content.element.node) if content.element is not None else (None, None)
        if content.kind not in {PayloadKind.ARRAYS, PayloadKind.TENSORS} or content.count is not None or module is None or one is None:
            return False
        read = {read.node for read in self.calls.in_scope(module, module.walk.scope_at(one)) if read.kind in _ARRAYS}
        return not read.isdisjoint((one, *descend(one)))

    def _varies(self, node: cst.BaseExpression) -> bool:
        """Whether an expression names what the loop sets in each round."""
        return uses_name(node, set_in(self.loop, self.module.walk, self.scope))

    def _bound(self, name: str) -> Iterator[cst.BaseExpression]:
        """What the loop's body binds a name to."""
        bound = (effect for effect in self.scope.effects.get(name, ()) if effect.kind in REBINDS and not effect.path and effect.value is not None)
        return (effect.value for effect in bound if self.loop in self.module.walk.ancestors(effect.statement) and effect.value is not None)


def adds_samples(project: Project, added: Iterable[cst.BaseExpression], loop: Loop, scope: Scope, module: Module) -> bool:
    """Whether a round adds what it read, or made, sample by sample."""
    here = _Round(project, loop, scope, module)
    return any(here.samples(node) for node in added)


def in_groups(project: Project, path: Path, loop: Loop, growing: set[cst.CSTNode], scope: Scope, module: Module) -> bool:
    """Whether a loop around makes again what grows, so that it ends with one group of many: the objects of a room, the slices of a patient."""
    for outer in loops_around(loop, module, scope):
        most = rounds(project, outer, module, scope)
        if (most is None or most > SHORT) and ended_in(path, outer, module, scope, growing):
            return True
    return False
