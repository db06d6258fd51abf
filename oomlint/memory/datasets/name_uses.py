"""Whether what a dataset reads from a container names a file or an entry: what a sample is made from, and not what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.datasets.sample_body import item_of, reads_file
from oomlint.memory.shared.known_reads import PATH_ARGUMENTS
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, External, Frame, FunctionRef
from oomlint.syntax.nodes import constant_key, is_attribute_of, uses_name

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Instance
    from oomlint.syntax.scopes import Scope

_OF_PATHS: Final = ("os.", "posixpath.", "pathlib.", "builtins.open", "io.open", "shutil.", "zipfile.", "gzip.open")
_SAME: Final = frozenset({"int", "str"})  # the name in another form
_TEXT: Final = frozenset({"format", "strip", "rstrip", "lstrip", "replace", "split", "lower", "upper", "removesuffix", "removeprefix", "zfill", "decode"})
_DEEPEST: Final = 3


def names_files(instance: Instance | None, attribute: str, evaluator: Evaluator, *, records: bool = False) -> bool:
    """Whether an element of a dataset's attribute becomes part of a path, or a key, where a sample is read; of ``records``, whether a part of one is a path."""
    item = item_of(instance, evaluator) if instance is not None else None
    return instance is not None and item is not None and _Reader(evaluator, instance, attribute, records=records).names(item, frozenset(), 0)


def only_names_files(instance: Instance | None, attribute: str, evaluator: Evaluator) -> bool:
    """Whether all that a sample takes of a dataset's attribute, a part of an element or one drawn of it, becomes part of a path."""
    item = item_of(instance, evaluator) if instance is not None else None
    return instance is not None and item is not None and _Reader(evaluator, instance, attribute, records=True, every=True).only_names(item)


def loads_itself(record: Instance, evaluator: Evaluator) -> bool:
    """Whether an object of a plain class knows where its data is: one of its methods reads a file."""
    scopes = ((cls.module, scope) for cls in evaluator.lineage(record.cls) if isinstance(cls, ClassRef) for scope in cls.scope.children if scope.is_function)
    frames = ((evaluator.calls.plain_frame(module, scope), scope) for module, scope in scopes)
    return any(reads_file(node, frame, evaluator) for frame, scope in frames for node in scope.nodes() if isinstance(node, cst.Call))


class _Reader:
    """Follows an element through the functions that make a sample."""

    def __init__(self, evaluator: Evaluator, instance: Instance, attribute: str, *, records: bool, every: bool = False) -> None:
        self.evaluator = evaluator
        self.instance = instance
        self.attribute = attribute
        self.records = records
        self.every = every
        self.seen: set[tuple[Scope, frozenset[str]]] = set()

    def names(self, function: FunctionRef, given: frozenset[str], depth: int) -> bool:
        """Whether a function uses an element as a name, its own reads included; ``given`` are the parameters that are one."""
        scope = function.scope
        if depth > _DEEPEST or (scope, given) in self.seen:
            return False
        self.seen.add((scope, given))
        found = self._elements(function, given)
        if any(self._is_name(node, function, depth) for node in found):
            return True
        return any(self.names(method, frozenset(), depth + 1) for method in self._methods(function))

    def only_names(self, function: FunctionRef) -> bool:
        """Whether a function does nothing else with elements and their parts than to name files; the object's methods that it calls take none themselves."""
        if any(self._elements(method, frozenset()) for method in self._methods(function)):
            return False
        walk = function.module.walk
        found = [node for node in self._elements(function, frozenset()) if not isinstance(walk.parents.get(node), cst.AssignTarget) and not walk.is_word(node)]
        whole = [node for node in found if walk.parents.get(node) not in found]  # `row` of `row[0]` is no use of its own
        named = [self._is_name(node, function, 0) for node in whole if not self._bound(node, function.module)]
        return any(named) and all(named)

    def _methods(self, function: FunctionRef) -> list[FunctionRef]:
        """The methods that a function calls on the object."""
        this = names.self_name(function.scope)
        called = [node.func.attr.value for node in function.scope.nodes() if isinstance(node, cst.Call) and is_attribute_of(node.func, this)]
        found = (self.evaluator.method(self.instance, name) for name in called)
        return [method for method in found if method is not None]

    def _elements(self, function: FunctionRef, given: frozenset[str]) -> list[cst.CSTNode]:
        """What stands for an element in a function, or for a text that is made of one."""
        this = names.self_name(function.scope)
        known = set(given)
        nodes = list(function.scope.nodes())
        whole = {
            one.target.value
            for node in nodes
            if isinstance(node, cst.Assign) and self._is_whole(node.value, this)
            for one in node.targets
            if isinstance(one.target, cst.Name)
        }
        while True:
            found = [node for node in nodes if self._is_element(node, this, known, whole)]
            more = {name for node in found for name in self._bound(node, function.module)} - known
            if not more:
                return found
            known |= more

    def _is_whole(self, node: cst.CSTNode, this: str | None) -> bool:
        """Whether an expression is the attribute, on one way at least."""
        if isinstance(node, cst.IfExp):
            return self._is_whole(node.body, this) or self._is_whole(node.orelse, this)
        return is_attribute_of(node, this) and node.attr.value == self.attribute

    def _is_element(self, node: cst.CSTNode, this: str | None, known: set[str], whole: set[str]) -> bool:
        if isinstance(node, cst.Name):
            return node.value in known
        held = node.value if isinstance(node, cst.Subscript) and isinstance(node.slice[0].slice, cst.Index) else None
        part = node.value if isinstance(node, cst.Attribute) else held
        if self.every and (held is None or isinstance(node.slice[0].slice.value, cst.SimpleString)):  # type: ignore[attr-defined] # what else is in a record?
            return False
        if self.records and part is not None and self._is_element(part, this, known, whole):
            return True
        return held is not None and (self._is_whole(held, this) or (isinstance(held, cst.Name) and held.value in whole))

    def _bound(self, node: cst.CSTNode, module: Module) -> list[str]:
        """The names that an element, its parts, or a text made of it, are assigned to."""
        holder = module.walk.parents.get(node)
        while holder is not None and self._carries(node, holder, module):
            node, holder = holder, module.walk.parents.get(holder)
        place: int | None = None
        if isinstance(holder, cst.Tuple) and isinstance(node, cst.Element):  # `path, text = row[0], row[1]`
            place, node, holder = holder.elements.index(node), holder, module.walk.parents.get(holder)
        if not isinstance(holder, cst.Assign) or holder.value is not node:
            return []
        target = holder.targets[0].target
        if place is not None:
            parts = target.elements if isinstance(target, cst.Tuple) else ()
            return [part.value for part in (one.value for one in parts[place : place + 1]) if isinstance(part, cst.Name)]
        if isinstance(target, cst.Tuple) and self.records:
            return [one.value.value for one in target.elements if isinstance(one.value, cst.Name)]
        return [target.value] if isinstance(target, cst.Name) else []

    def _carries(self, node: cst.CSTNode, holder: cst.CSTNode, module: Module) -> bool:
        """Whether what is around an expression is a text that is made of it, or the same in another form; where every use counts, what is drawn of it, too."""
        if isinstance(holder, cst.Arg):
            call = module.walk.parents.get(holder)
            return isinstance(call, cst.Call) and names.last_name(call.func) in (_SAME | {"format", "choice"} if self.every else _SAME | {"format"})
        if isinstance(holder, cst.Call):
            return isinstance(node, cst.Arg) or names.last_name(holder.func) in _TEXT
        if isinstance(holder, cst.Attribute):
            return holder.attr.value in _TEXT
        if isinstance(holder, cst.BinaryOperation):
            return isinstance(holder.operator, cst.Add | cst.Modulo)
        return isinstance(holder, cst.FormattedStringExpression | cst.FormattedString | cst.Tuple | cst.Element) and (
            not isinstance(holder, cst.Tuple) or isinstance(module.walk.parents.get(holder), cst.BinaryOperation)
        )

    def _is_name(self, node: cst.CSTNode, function: FunctionRef, depth: int) -> bool:
        """Whether an element is used as a path or as a key there."""
        module, parents = function.module, function.module.walk.parents
        holder = parents.get(node)
        while holder is not None and self._carries(node, holder, module):
            node, holder = holder, parents.get(holder)
        if isinstance(holder, cst.BinaryOperation):
            return isinstance(holder.operator, cst.Divide)
        if isinstance(holder, cst.Index):
            return not self.records
        if isinstance(holder, cst.DictElement):
            return constant_key(holder.key) in PATH_ARGUMENTS and self._reads_with(parents.get(holder), function)
        call = parents.get(holder) if isinstance(holder, cst.Arg) else None
        return isinstance(call, cst.Call) and isinstance(holder, cst.Arg) and self._takes_name(call, holder, function, depth)

    def _reads_with(self, given: cst.CSTNode | None, function: FunctionRef) -> bool:
        """Whether a call that reads a file is given the entries of a dictionary as its arguments: ``read(**told)``."""
        holder = function.module.walk.parents.get(given) if given is not None else None
        target = holder.targets[0].target if isinstance(holder, cst.Assign) and holder.value is given else None
        frame = self.evaluator.calls.plain_frame(function.module, function.scope)
        calls = (call for call in function.scope.calls for arg in call.args if arg.star == "**" and (arg.value is given or _is_same(arg.value, target)))
        return any(reads_file(call, frame, self.evaluator) for call in calls)

    def _takes_name(self, call: cst.Call, arg: cst.Arg, function: FunctionRef, depth: int) -> bool:
        base = call.func.value if isinstance(call.func, cst.Attribute) else None
        frame = self.evaluator.calls.plain_frame(function.module, function.scope)
        callee = None
        own = isinstance(base, cst.Name) and base.value == names.self_name(function.scope)
        if own:
            callee = self.evaluator.method(self.instance, names.last_name(call.func))
            frame = Frame(function.module, function.scope, None, self.instance)  # a function may be an attribute: `self.loader(path)`
        if callee is None:
            for alt in self.evaluator.values(call.func, frame)[:2]:
                if isinstance(alt.value, External) and alt.value.name.startswith(_OF_PATHS):
                    return True
                callee = alt.value if isinstance(alt.value, FunctionRef) else callee
        if callee is None:
            return reads_file(call, frame, self.evaluator)
        given = arguments.parameter_of(callee, call, arg)
        if given is None:
            return False
        return self.names(callee, frozenset({given}), depth + 1) or (_gives_back(callee, given) and self._is_name(call, function, depth))


def _is_same(node: cst.BaseExpression, target: cst.BaseExpression | None) -> bool:
    return isinstance(node, cst.Name) and isinstance(target, cst.Name) and node.value == target.value


def _gives_back(callee: FunctionRef, given: str) -> bool:
    """Whether a function returns a text that is made of a parameter."""
    rows = [statement.value for statement in callee.scope.returns if statement.value is not None]
    return any(uses_name(row, (given,)) for row in rows)
