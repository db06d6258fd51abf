"""What an expression holds in memory: in which kind of container, how much of it, and made where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.shared.containers import Containers
from oomlint.memory.shared.content_by_syntax import WrittenForms
from oomlint.memory.shared.content_kinds import CELL, DEEPEST, FIELD, NOTHING, ROW, Content, Form, PayloadKind, worst
from oomlint.memory.shared.known_libraries import Libraries
from oomlint.model import names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import (
    Alternative,
    Augmented,
    Const,
    Display,
    Each,
    Element,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    PartOfEach,
    SettingsNode,
    SourceExpression,
    Value,
)

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator


# What gives the rows of a table, by where the row stands in what it gives for each.
_ROWS: Final[dict[tuple[int, ...], Form]] = {(): Form.ROWS, (1,): Form.NUMBERED_ROWS}
_OF_ROWS: Final = frozenset("values array index name iloc loc at iat T".split())  # attributes of a row that are no column
_COUNTS: Final = frozenset({"arange", "linspace", "logspace", "randperm"})  # what makes numbers along one axis
_READ: Final = frozenset({PayloadKind.BLOB, PayloadKind.OBJECTS})  # an entry of a file may be anything


class Contents:
    """Classifies expressions. One for a run; it remembers."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.active: set[object] = set()  # questions that are being answered
        self.depth = 0
        self.containers = Containers(self)
        self.libraries = Libraries(self)
        self.forms = WrittenForms(self)
        self._memo: AnswerMemory[tuple[cst.CSTNode, Frame], Content] = AnswerMemory(evaluator.project.readings)

    def of(self, node: cst.BaseExpression, frame: Frame) -> Content:
        """What ``node`` holds: the gravest of its alternatives."""
        key = (node, frame)
        known = self._memo.get(key)
        if known is not None:
            return known
        if key in self.active or self.depth > DEEPEST:
            self._memo.give_up()
            return NOTHING
        self.active.add(key)
        self.depth += 1
        try:
            found = worst([self.of_value(alt.value, alt) for alt in self.evaluator.values(node, frame)[:12]])
            if found.kind in _READ and _has_plain_default(node, frame):
                found = Content(PayloadKind.SCALAR, "what its default is")
        finally:
            self.depth -= 1
            self.active.discard(key)
        self._memo[key] = found
        return found

    def of_value(self, value: Value, alt: Alternative | None = None) -> Content:
        """What a value holds."""
        doubt = alt.doubt if alt is not None else 0
        found = self._of_value(value)
        return replace(found, doubt=found.doubt + doubt) if doubt and found is not NOTHING else found

    def _of_value(self, value: Value) -> Content:
        if isinstance(value, Const):
            literal = value.value
            if literal is None:
                return NOTHING  # what is put in its place later counts
            kind = PayloadKind.TEXT if isinstance(literal, str | bytes) else PayloadKind.SCALAR
            return Content(kind, "a constant", strings=isinstance(literal, str), numbers=isinstance(literal, int | float))
        if isinstance(value, Display):
            return self.containers.display(value)
        if isinstance(value, ExternalCall):
            return self.libraries.external(value)
        if isinstance(value, Element):
            return self.libraries.element(value)
        if isinstance(value, Instance):
            return Content(PayloadKind.DATASET, f"`{value.cls.scope.name}`", dataset=value, module=value.cls.module, node=value.call)
        if isinstance(value, FunctionRef):
            return self._function(value)
        if isinstance(value, SettingsNode | Merged):
            return Content(PayloadKind.SMALL, "settings")
        if isinstance(value, Each):
            pairs = value.iterable.func if isinstance(value.iterable, cst.Call) and names.last_name(value.iterable.func) == "items" else None
            if isinstance(pairs, cst.Attribute) and value.index == (1,):  # the values of a dictionary
                return self.of(pairs.value, value.frame).element or NOTHING
            return self._one_of(self.of(value.iterable, value.frame), value.index)
        if isinstance(value, PartOfEach) and len(value.accessors) == 1:
            how, name = value.accessors[0]
            whole = self._of_value(value.whole)
            if how == "item" and whole.form is Form.RECORDS:
                return FIELD
            if how == "attr" and whole.kind is PayloadKind.PATHS:
                return whole  # `path.stem`, `path.parent`: a name or a path again
            cell = isinstance(name, str) and (how == "item" or name not in _OF_ROWS)
            return CELL if cell and whole.form is Form.ROW else NOTHING
        if isinstance(value, SourceExpression):
            return self.forms.written(value.node, value.frame)
        if isinstance(value, Augmented):
            return self.forms.augmented(value.node, value.frame)
        return NOTHING

    @staticmethod
    def _one_of(whole: Content, index: tuple[int, ...]) -> Content:
        """An element of what a loop goes through."""
        if whole.form is not None and _ROWS.get(index) is whole.form:
            return ROW
        if index:
            return NOTHING
        if whole.kind is PayloadKind.PATHS:
            return whole.element if whole.element is not None else replace(whole, count=None)
        if whole.form is Form.RANGE or (isinstance(whole.node, cst.Call) and names.last_name(whole.node.func) in _COUNTS):
            return Content(PayloadKind.SCALAR, "a number", numbers=True)
        if whole.kind is PayloadKind.HANDLE:
            return Content(PayloadKind.TEXT, "a line of a file", whole.module, whole.node, strings=True)
        if whole.kind is PayloadKind.OBJECTS:
            if whole.strings:
                return Content(PayloadKind.TEXT, "a string", whole.module, whole.node, strings=True)
            if whole.numbers:
                return Content(PayloadKind.SCALAR, "a number", numbers=True)
            return whole.element if whole.element is not None else replace(whole, count=None, doubt=whole.doubt + 1)
        if whole.kind in {PayloadKind.ARRAYS, PayloadKind.TENSORS} and whole.element is not None:
            return whole.element
        return NOTHING

    @staticmethod
    def _function(value: FunctionRef) -> Content:
        scope = value.scope
        if isinstance(scope.node, cst.Lambda):
            return Content(PayloadKind.FUNCTION, "a lambda", value.module, scope.node)
        if scope.parent is not None and scope.parent.is_function:
            return Content(PayloadKind.FUNCTION, "a local function", value.module, scope.node)
        return Content(PayloadKind.SCALAR, "a function")


def _has_plain_default(node: cst.BaseExpression, frame: Frame) -> bool:
    """Whether a name is a parameter that is a number or a text where nobody gives it: ``count=1024``. What an entry of a file is read for is one, too."""
    own = names.parameters(frame.scope) if isinstance(node, cst.Name) else []
    default = next((one.default for one in own if isinstance(node, cst.Name) and one.name.value == node.value), None)
    return isinstance(default, cst.Integer | cst.Float | cst.SimpleString)
