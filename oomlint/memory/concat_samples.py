"""Whether a round of a loop adds samples to what it grows: what a file gave, or an array made for the round with a row for each of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.concat_loops import within
from oomlint.memory.loaders import evaluator_of
from oomlint.memory.reads import Reads, read_calls_of
from oomlint.memory.shapes import allocation
from oomlint.model import names
from oomlint.model.torch_tables import PAIRS, PLAIN_ATTRIBUTES, PLAIN_METHODS, REDUCTIONS
from oomlint.model.values import External
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.memory.concat_loops import Loop
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_DEEPEST: Final = 6  # names between what is added and what was read
_AXES: Final = 3  # of an array in which each sample is more than a row of numbers
_REDUCED: Final = REDUCTIONS | PAIRS | PLAIN_METHODS | frozenset({"len", "int", "float", "str", "bool", "average", "percentile", "argmax", "argmin", "unique"})
_TEXTS: Final = frozenset({Reads.TEXT, Reads.RECORDS})


class _Round:
    """What the names of a loop's body hold."""

    def __init__(self, project: Project, loop: Loop, scope: Scope, module: Module) -> None:
        self.loop, self.scope, self.module = loop, scope, module
        self.evaluator = evaluator_of(project)
        self.frame = self.evaluator.calls.plain_frame(module, scope)
        self.reads = {read.node for read in read_calls_of(project).in_scope(module, scope) if read.kind not in _TEXTS and within(read.node, loop, module)}

    def samples(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """Whether an expression holds samples of the round, as far as is known."""
        if isinstance(node, cst.Name):
            return depth < _DEEPEST and any(self.samples(value, depth + 1) for value in self._bound(node.value))
        if isinstance(node, cst.Call):
            return self._called(node, depth)
        if isinstance(node, cst.Attribute):
            return node.attr.value not in PLAIN_ATTRIBUTES and self.samples(node.value, depth)
        if isinstance(node, cst.Subscript):
            return self.samples(node.value, depth)
        if isinstance(node, cst.BinaryOperation):
            return self.samples(node.left, depth) or self.samples(node.right, depth)
        return False

    def _called(self, node: cst.Call, depth: int) -> bool:
        if node in self.reads:
            return True
        if names.last_name(node.func) in _REDUCED:
            return False
        if self._rows(node):
            return True
        inner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
        return any(self.samples(part, depth) for part in (*inner, *(arg.value for arg in node.args)))

    def _rows(self, node: cst.Call) -> bool:
        """Whether a call makes an array of several axes, the first of which is as long as the round says."""
        for alt in self.evaluator.values(node.func, self.frame)[:2]:
            made = allocation(alt.value.name, node, self.evaluator, self.frame) if isinstance(alt.value, External) else None
            if made is not None and len(made.dimensions) >= _AXES and isinstance(made.dimensions[0], str):
                first = node.args[0].value if node.args else None
                first = first.elements[0].value if isinstance(first, cst.Tuple | cst.List) and first.elements else first
                return first is not None and any(isinstance(part, cst.Name) and any(True for _ in self._bound(part.value)) for part in descend(first))
        return False

    def _bound(self, name: str) -> Iterable[cst.BaseExpression]:
        """What the loop's body binds a name to."""
        for effect in self.scope.effects.get(name, ()):
            if effect.kind not in {"assign", "for", "with"} or effect.path or effect.value is None or effect.statement is self.loop:
                continue
            if within(effect.statement, self.loop, self.module):
                yield effect.value


def adds_samples(project: Project, added: Iterable[cst.BaseExpression], loop: Loop, scope: Scope, module: Module) -> bool:
    """Whether a round adds what it read, or made, sample by sample."""
    here = _Round(project, loop, scope, module)
    return any(here.samples(node) for node in added)
