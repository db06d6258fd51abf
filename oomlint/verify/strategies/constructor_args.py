"""What the program passes to a dataset's constructor that is no constant, and what its class keeps in globals: two ways for a fix to go wrong unseen."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_location import callee, named
from oomlint.verify.ast_names import FILLING
from oomlint.verify.case import Part
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.dataset_runs import Broken, Runs
from oomlint.verify.strategies.public_api import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject

STATES: Final = frozenset({"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"})
WRITES: Final = FILLING | {"__setitem__"}


def give(runs: Runs) -> None:
    """Pass what the program passes for optional parameters, where it can be worked out and the program before works with it."""
    if runs.subject is None or runs.state is None:
        return
    for name, (text, known) in _passed(runs.session, runs.subject).items():
        spec = runs.state.get("arguments", {}).get(name, {"is": "default"})
        if spec["is"] != "default" and not (spec["is"] == "json" and spec.get("value") is None):
            continue
        old = runs.state
        if known:
            new = copy.deepcopy(old)
            new["arguments"][name] = {"is": "expression", "text": text}
            runs.grow(new)
            try:
                if runs.look(Part.BEFORE)["samples"]:
                    runs.assumed.append(f"`{name}` is `{text}`, as the program passes it")
                    continue
            except (Broken, Stopped):
                pass
            runs.grow(old)
        runs.withheld.append(name)


def check_states(runs: Runs) -> None:
    """Raise Stopped where a copy in a worker may lack what the program passes and this run could not."""
    if runs.subject is None or not runs.withheld:
        return
    cls = _class(runs.session, Part.AFTER, runs.subject)
    before = _class(runs.session, Part.BEFORE, runs.subject)
    old = {ast.dump(item) for item in before.body} if before is not None else set()
    for item in cls.body if cls is not None else ():
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name in STATES and ast.dump(item) not in old:
            text = ast.unparse(item)
            for name in runs.withheld:
                if "__dict__" not in text or name in text:
                    raise Stopped(f"`{name}` is given by callers and was not here, and `{item.name}` decides whether workers have it")


def _class(session: Session, part: Part, subject: Subject) -> ast.ClassDef | None:
    tree = session.case.tree(part, subject.path)
    found = named(tree, subject.name) if tree is not None else None
    return found if isinstance(found, ast.ClassDef) else None


def _passed(session: Session, subject: Subject) -> dict[str, tuple[str, bool]]:
    """Optional parameters of the constructor that callers pass something else than a constant for: the expression, and whether it can be worked out."""
    cls = _class(session, Part.BEFORE, subject)
    init = next((item for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None) if cls is not None else None
    if init is None:
        return {}
    positions = [item.arg for item in (*init.args.posonlyargs, *init.args.args)]
    optional = set(positions[len(positions) - len(init.args.defaults) :]) if init.args.defaults else set()
    optional |= {item.arg for item, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True) if default is not None}
    found: dict[str, tuple[str, bool]] = {}
    every = list(trees(session))
    defined = {item.name for _, tree in every for item in tree.body if isinstance(item, (ast.FunctionDef, ast.ClassDef))}
    for _, tree in every:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and callee(node) == subject.name.rpartition(".")[2]:
                pairs: list[tuple[str | None, ast.expr]] = [*zip(positions[1:], node.args, strict=False), *((item.arg, item.value) for item in node.keywords)]
                for name, value in pairs:
                    if name in optional and not isinstance(value, (ast.Constant, ast.Starred)) and not found.get(name, ("", False))[1]:
                        found[name] = (ast.unparse(value), _known(value, defined))
    return found


def _known(node: ast.expr, defined: set[str]) -> bool:
    """Whether it is made of constants by functions and classes of the project, or is one of them."""
    if isinstance(node, ast.Name):
        return node.id in defined
    if isinstance(node, ast.Call):
        return _known(node.func, defined) and all(_known(item, defined) for item in (*node.args, *(word.value for word in node.keywords)))
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(_known(item, defined) for item in node.elts)
    return isinstance(node, (ast.Constant, ast.UnaryOp))


# -- globals -----------------------------------------------------------------------------------------------------------


def kept_globally(runs: Runs) -> str:
    """A name outside of the object that the class writes to after a fix and not before: all objects of the class share it. Empty where there is none."""
    if runs.subject is None or not runs.session.case.mended:
        return ""
    found = [set(_globals(runs.session, part, runs.subject)) for part in Part]
    return min(found[1] - found[0], default="")


def _globals(session: Session, part: Part, subject: Subject) -> Iterator[str]:
    cls, tree = _class(session, part, subject), session.case.tree(part, subject.path)
    if cls is None or tree is None:
        return
    outer = {cls.name, *_stored(tree.body)}
    own = _stored(cls.body) - _set_on_self(cls)
    for node in ast.walk(cls):
        if isinstance(node, ast.Global):
            yield from node.names
        for target in _written(node):
            name = _root(target)
            if name in outer or (name in own and "self" in ast.unparse(target)):
                yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(item) for item in node.decorator_list):
            yield node.name


def _set_on_self(cls: ast.ClassDef) -> set[str]:
    """Attributes that methods set again on the object."""
    stores = [node for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in stores if isinstance(node.value, ast.Name) and node.value.id == "self"}


def _stored(body: list[ast.stmt]) -> set[str]:
    """Names that statements assign to."""
    made = [
        target for item in body if isinstance(item, (ast.Assign, ast.AnnAssign)) for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
    ]
    return {target.id for target in made if isinstance(target, ast.Name)}


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """What a node changes in place."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
        yield node.func.value


def _root(node: ast.expr) -> str:
    """The name that an expression begins with; of `self.x` and `type(self).x` it is `x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "cls", "type(self)", "self.__class__"}:
            return node.attr
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
