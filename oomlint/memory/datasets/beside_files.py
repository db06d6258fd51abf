"""Whether a sample is read from a file whenever it uses an attribute: what that holds says something of the samples, or lies beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.sample_body import reads_file
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, FunctionRef, Instance
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.reach import Condition

_DEEPEST: Final = 3  # functions between the method that reads a sample and what reads the file
_OPEN: Final = frozenset({PayloadKind.H5, PayloadKind.HANDLE})


class _Part(Struct, frozen=True):
    """What an expression of a function does, or what the function does that it calls."""

    node: cst.CSTNode
    uses: bool = False  # the attribute
    reads: bool = False  # a file
    both: bool = False  # it never uses the attribute without reading a file


class BesideFiles:
    """Answers for attributes. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.datasets = datasets_of(project)
        self.evaluator = self.datasets.evaluator
        self.constructions = constructions_of(project)
        self._known: AnswerMemory[tuple[ClassRef, str], bool] = AnswerMemory(project.readings)

    def lies_beside(self, cls: ClassRef, attribute: str) -> bool:
        """Whether no method of an object that is built uses the attribute without reading a file for the same sample."""
        return self._known.answer((cls, attribute), lambda: self._judge(Instance(cls, None), attribute))

    def round_reads(self, module: Module, use: cst.CSTNode) -> bool:
        """Whether the rounds of the innermost loop around an expression read a file whenever they come to it."""
        walk, scope = module.walk, module.walk.scope_at(use)
        loop = next((here for here in walk.ancestors(use) if isinstance(here, cst.For | cst.While | cst.FunctionDef)), None)
        if not isinstance(loop, cst.For | cst.While):
            return False
        wanted = {*path_conditions(walk, scope, use)}
        reads = (part.node for part in self._parts(FunctionRef(module, scope), "", 0) if part.reads)
        return any(loop in walk.ancestors(read) and {*path_conditions(walk, scope, read)} <= wanted for read in reads)

    def _judge(self, this: Instance, attribute: str) -> bool:
        building = self.constructions.building(this.cls)
        of_samples = self.constructions.is_dataset(this.cls)
        found = []
        for base in self.evaluator.lineage(this.cls):
            if not isinstance(base, ClassRef):
                continue
            for method in base.scope.children:
                if names.self_name(method) is None or method in building or (of_samples and not self.constructions.per_item(base.module, method)):
                    continue
                found.append(self._of_function(FunctionRef(base.module, method, this), attribute, 0))
        using = [one for one in found if one.uses]
        return bool(using) and all(one.both for one in using)

    def _of_function(self, function: FunctionRef, attribute: str, depth: int) -> _Part:
        scope, walk = function.scope, function.module.walk
        parts = list(self._parts(function, attribute, depth))
        reads = [(part.node, {one for one in path_conditions(walk, scope, part.node) if not _opens_first(one, attribute)}) for part in parts if part.reads]
        reads += list(_on_both_sides(reads))
        alone = [part for part in parts if part.uses and not part.both]
        needs = [(part.node, {*path_conditions(walk, scope, part.node)}) for part in alone]
        both = all(any(read is not node and when <= wanted for read, when in reads) for node, wanted in needs)
        return _Part(scope.node, any(part.uses for part in parts), bool(reads), both)

    def _parts(self, function: FunctionRef, attribute: str, depth: int) -> Iterator[_Part]:
        this = names.self_name(function.scope)
        frame = self.evaluator.calls.plain_frame(function.module, function.scope)
        for node in function.scope.nodes():
            if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == this and function.this is not None:
                if (
                    node.attr.value == attribute
                    and not isinstance(function.module.walk.parents.get(node), cst.AssignTarget)
                    and not _is_counted(function, node)
                ):
                    yield _Part(node, uses=True)
                elif isinstance(function.module.walk.parents.get(node), cst.Subscript) and self._is_open(function.this, node.attr.value):
                    yield _Part(node, reads=True)
            elif isinstance(node, cst.Call):
                called = [alt.value for alt in self.evaluator.values(node.func, frame)[:2]] if depth < _DEEPEST else []
                own = [one for one in called if isinstance(one, FunctionRef) and one.scope is not function.scope]
                if isinstance(node.func, cst.Attribute) and names.dotted(node.func.value) == this and function.this is not None and depth < _DEEPEST:
                    method = self.evaluator.method(function.this, node.func.attr.value)
                    own = [method] if method is not None and method.scope is not function.scope else own
                for one in own[:1]:
                    inner = self._of_function(one, attribute, depth + 1)
                    yield _Part(node, inner.uses, inner.reads, inner.both)
                if not own and reads_file(node, frame, self.evaluator) and not self._of_attribute(node, this, attribute):
                    yield _Part(node, reads=True)

    @staticmethod
    def _of_attribute(node: cst.Call, this: str | None, attribute: str) -> bool:
        """Whether what a call is made on is the attribute itself."""
        return isinstance(node.func, cst.Attribute) and any(
            names.dotted(part) == f"{this}.{attribute}" for part in descend(node.func) if isinstance(part, cst.Attribute)
        )

    def _is_open(self, this: Instance, attribute: str) -> bool:
        """Whether an attribute is an open file, or an array that is still in one."""
        found = self.datasets.of_value(this)
        return found is not None and any(one.name == attribute and one.content.kind in _OPEN for one in found.holdings)


def _is_counted(function: FunctionRef, node: cst.CSTNode) -> bool:
    """Whether an expression only asks how many elements there are."""
    parents = function.module.walk.parents
    call = parents.get(argument) if isinstance(argument := parents.get(node), cst.Arg) else None
    return isinstance(call, cst.Call) and names.dotted(call.func) == "len"


def _on_both_sides(reads: list[tuple[cst.CSTNode, set[Condition]]]) -> Iterator[tuple[cst.CSTNode, set[Condition]]]:
    """What is read whichever way a test goes: one read stands on the one side of it, one on the other."""
    for node, when in reads:
        for test, wanted in when:
            rest = when - {(test, wanted)}
            if wanted and any((test, False) in other and other - {(test, False)} <= rest for _, other in reads):
                yield node, rest


def _opens_first(condition: Condition, attribute: str) -> bool:
    """Whether a test asks for nothing but whether something is there yet, which is opened where it is not: that is another attribute."""
    test, wanted = condition
    asked = [test.left, test.right] if isinstance(test, cst.BooleanOperation) else [test]
    missing = all(
        isinstance(one, cst.Comparison) and isinstance(one.comparisons[0].operator, cst.Is) and names.dotted(one.comparisons[0].comparator) == "None"
        for one in asked
    )
    return wanted and missing and not any(isinstance(part, cst.Attribute) and part.attr.value == attribute for part in descend(test))
