"""Attributes of networks that the project only ever sets to certain texts: a test for another text never comes out true."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.ast_trees import tree_of
from oomlint.model.readings import finder
from oomlint.syntax.nodes import constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_ANYTHING: Final = "?"


def never_so(module: Module, project: Project, test: cst.BaseExpression, scope: Scope) -> bool:
    """Whether a test waits for what is called here to have a text in an attribute that no code of the project gives it: ``if model.name == "gone"``."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return any(never_so(module, project, side, scope) for side in (test.left, test.right))
    asked = _asked(test)
    if asked is None or not _is_called(asked[0], scope):
        return False
    _, attribute, wanted = asked
    said = project.search(_sets, (attribute,), module.path, attribute)
    given = {text for found in said.values() for text in found.splitlines()}
    return bool(given) and _ANYTHING not in given and given.isdisjoint(repr(text) for text in wanted)


def _asked(test: cst.BaseExpression) -> tuple[str, str, list[str]] | None:
    """The name, the attribute and the texts of a test: ``model.name == "a"``, ``model.name in ("a", "b")``."""
    match test:
        case cst.Comparison(left=cst.Attribute(value=cst.Name(value=root), attr=cst.Name(value=attribute)), comparisons=[cst.ComparisonTarget() as one]):
            texts: list[object] = []
            if isinstance(one.operator, cst.Equal):
                texts = [constant_key(one.comparator)]
            elif isinstance(one.operator, cst.In) and isinstance(one.comparator, cst.Tuple | cst.List | cst.Set):
                texts = [constant_key(element.value) for element in one.comparator.elements]
            found = [text for text in texts if isinstance(text, str)]
            return (root, attribute, found) if texts and len(found) == len(texts) else None
    return None


def _is_called(name: str, scope: Scope) -> bool:
    """Whether a function calls a name itself, as one calls a network."""
    return any(isinstance(call.func, cst.Name) and call.func.value == name for call in scope.calls)


@finder
def _sets(path: str, data: bytes, attribute: str) -> str:
    """The texts that a file sets an attribute to, each as it is written; ``?`` where it is something else, or a method makes it."""
    del path
    try:
        tree = tree_of(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _ANYTHING
    return "\n".join(dict.fromkeys(_set_in(tree, attribute)))


def _set_in(tree: ast.Module, attribute: str) -> Iterator[str]:
    of_class: set[ast.AST] = set()
    for node in ast.walk(tree):  # a class comes before what stands in it
        if isinstance(node, ast.ClassDef):
            yield from (_ANYTHING for one in node.body if isinstance(one, ast.FunctionDef) and one.name == attribute)
            of_class.update(one for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign))
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
        parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])]
        own = [part for part in parts if isinstance(part, ast.Attribute) and part.attr == attribute]
        if own or (node in of_class and any(isinstance(one, ast.Name) and one.id == attribute for one in parts)):
            value = getattr(node, "value", None)
            yield repr(value.value) if isinstance(value, ast.Constant) and len(parts) == 1 and not isinstance(node, ast.AugAssign) else _ANYTHING
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            word = node.args[1] if len(node.args) > 1 else None
            if not isinstance(word, ast.Constant) or word.value == attribute:
                yield _ANYTHING
