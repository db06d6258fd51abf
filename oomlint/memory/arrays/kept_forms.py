"""How the code is written that data goes through: what one statement or expression says by its form alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import PUTS_IN
from oomlint.model import arguments, names
from oomlint.model.displays import is_new, unpacked
from oomlint.scout.telling_names import MAKERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

_BY_KEY: Final = frozenset({"get", "pop", "setdefault"})
_PICKLES: Final = re.compile(r"(^|\.)(c?[Pp]ickle|_pickle|pickle5|cloudpickle|dill|joblib)\.load$")


def method_with(scope: Scope, name: str) -> Scope | None:
    """The method whose object, or class, a name is: its own, or that of the method around a function."""
    here: Scope | None = scope
    while here is not None and not here.is_class:
        owner = here.parent
        if names.self_name(here) == name or (owner is not None and owner.is_class and owner.name == name):
            return here
        if here.sets(name) or name in names.takes(here):
            return None
        here = owner
    return None


def is_container(effect: Effect) -> bool:
    """Whether an assignment gives its name a list or a dictionary that is made there."""
    value = unpacked(effect.value, effect.index)
    return is_new(value) or isinstance(value, cst.ListComp | cst.DictComp)


def in_main(module: Module, node: cst.CSTNode) -> bool:
    """Whether a node stands in what a file does only when it is started: ``if __name__ == "__main__"``."""
    return any(isinstance(here, cst.If) and names.is_main(here.test) for here in module.walk.ancestors(node))


def block_around(module: Module, statement: cst.CSTNode) -> cst.CSTNode | None:
    """The block that a simple statement stands in."""
    line = module.walk.parents.get(statement)
    return module.walk.parents.get(line) if isinstance(line, cst.SimpleStatementLine) else None


def is_key(node: cst.Subscript) -> bool:
    """Whether an index is a string: then it is one of a dictionary or a table."""
    index = node.slice[0].slice
    return isinstance(index, cst.Index) and isinstance(index.value, cst.BaseString)


def functions_using(scope: Scope, name: str) -> Iterator[Scope]:
    """Functions inside a scope that use its name: those that have no such name of their own."""
    for child in scope.children:
        own = not child.is_class and (name in names.takes(child) or (child.sets(name) and name not in child.outer | child.enclosing))
        if not own and not isinstance(child.node, cst.Lambda):
            if not child.is_class:
                yield child
            yield from functions_using(child, name)


def locals_by_name(scope: Scope, name: str) -> Iterator[cst.Subscript]:
    """``locals()["x_" + part]``: every local whose name the constant parts of the key fit."""
    for node in scope.nodes(inner=False):
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Call) and names.dotted(node.value.func) == "locals":
            key = node.slice[0].slice.value if isinstance(node.slice[0].slice, cst.Index) else None
            sides = (key.left, key.right) if isinstance(key, cst.BinaryOperation) else (key, key)
            start, end = (str(side.evaluated_value) if isinstance(side, cst.SimpleString) else "" for side in sides)
            if (start or end) and name.startswith(start) and name.endswith(end):
                yield node


def branches_beside(module: Module, definition: cst.CSTNode) -> Collection[cst.CSTNode]:
    """The branches of ``if`` that are not run where a definition is."""
    around = set(module.walk.ancestors(definition))
    return [here.orelse for here in around if isinstance(here, cst.If) and here.orelse is not None and here.body in around]


def stands_in(module: Module, use: cst.CSTNode, branches: Collection[cst.CSTNode]) -> bool:
    """Whether a use stands in one of these branches."""
    return bool(branches) and (use in branches or any(here in branches for here in module.walk.ancestors(use)))


def has_bounds(rows: cst.BaseSlice) -> bool:
    """Whether a slice goes from one number that is computed to another."""
    bounds = (rows.lower, rows.upper) if isinstance(rows, cst.Slice) else ()
    return bool(bounds) and not any(bound is None or isinstance(bound, cst.BaseNumber | cst.UnaryOperation) for bound in bounds)


def byte_range(node: cst.BaseExpression) -> bool:
    """Whether a number is the one that bytes are divided by."""
    if isinstance(node, cst.Call) and node.args:  # np.float32(255)
        node = node.args[0].value
    return isinstance(node, cst.Integer | cst.Float) and float(node.evaluated_value) in {255.0, 256.0, 127.5, 128.0}


def unpickles(node: cst.CSTNode) -> bool:
    """Whether a read gives an array that was saved with pickle: ``item`` takes the object out of it."""
    return isinstance(node, cst.Call) and arguments.has(node, "allow_pickle")


def makes_array(node: cst.CSTNode | None) -> bool:
    """Whether a call makes an array, by its name: ``np.zeros(shape)``."""
    return isinstance(node, cst.Call) and names.last_name(node.func) in MAKERS


def is_object(node: cst.CSTNode) -> bool:
    """Whether a read gives whatever object was pickled."""
    return isinstance(node, cst.Call) and _PICKLES.search(names.dotted(node.func)) is not None


def works_on(call: cst.Call) -> bool:
    """Whether a call is handed more than settings, or a key: something that is no literal, as its first argument."""
    first = call.args[0] if call.args and names.last_name(call.func) not in _BY_KEY else None
    return first is not None and first.keyword is None and isinstance(first.value, cst.Name | cst.Attribute | cst.Subscript | cst.Call)


def adds(node: cst.CSTNode) -> bool:
    """Whether a statement puts something beside what a container holds: under a key, or at its end."""
    if isinstance(node, cst.Assign):
        return any(isinstance(target.target, cst.Subscript) for target in node.targets)
    return isinstance(node, cst.Call) and names.last_name(node.func) in PUTS_IN
