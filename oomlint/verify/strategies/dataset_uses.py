"""What the rest of the program does with a dataset besides reading its samples: what it reads off it, and what it passes to its constructor."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.ast_names import FILLING, callee, defaults, named, scopes, stored
from oomlint.verify.case import Part
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import locate_subject
from oomlint.verify.strategies.dataset_runs import Broken, DatasetRuns
from oomlint.verify.thresholds import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.locate_subject import Subject


MOST: Final = 300  # files that are looked at
MOST_METHODS: Final = 6  # that are called: each on a dataset of its own
ROUNDS: Final = 3  # of following a dataset into the functions that it is passed to
USUAL: Final = frozenset({"ds", "dataset", "data_set", "trainset", "testset", "valset", "train_ds", "val_ds", "test_ds", "train_set", "val_set", "test_set"})
USUAL_ENDS: Final = ("dataset", "_ds", "_dataset")

Key = tuple[str, str]  # a file and the dotted name of a function of it, empty for the module


@dataclass(slots=True)
class Face:
    """Names that are read off a dataset elsewhere. Of ``certain`` ones it is known that it is this class that they are read off."""

    attributes: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    certain: set[str] = field(default_factory=set)


def difference(runs: DatasetRuns) -> str:
    """In which way another part of the program finds something else there after the fix; empty where it does not. Raises Stopped where it may."""
    subject = runs.subject or next(iter(locate_subject.datasets(runs.session)), None)
    face = read_off(runs.session, subject.name) if subject is not None else Face()
    if not face.attributes and not face.methods:
        return ""
    named: dict[str, Any] = {"attributes": face.attributes, "methods": face.methods}
    try:
        before = runs.ask(Part.BEFORE, "face", **named)
    except (Broken, Stopped) as error:
        runs.left_out.append(f"what the program reads off the dataset besides samples: {error}")
        return ""
    after = runs.ask(Part.AFTER, "face", **named)
    doubt = ""
    for kind in ("attributes", "methods"):
        for name, old in before[kind].items():
            words = _changed(f"`{name}{'()' if kind == 'methods' else ''}`", old, after[kind][name])
            if not words or old["digest"] != runs.ask(Part.BEFORE, "face", 1, **named)[kind][name].get("digest"):
                continue
            if name in face.certain and not after[kind][name].get("lazy"):
                return words
            doubt = doubt or words
    if doubt:
        raise Stopped(doubt)
    return ""


def _changed(title: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """What is another; empty for what failed before, and for what cannot be compared."""
    if old["error"]:
        return ""
    if new["error"]:
        return f"{title} of the dataset is read elsewhere and fails after: {new['error']}"
    if old["digest"] and new["digest"] and old["digest"] != new["digest"]:
        return f"{title} of the dataset, which is read elsewhere, differs: {first_difference(old['shown'], new['shown']) or 'in its later parts'}"
    if not old["digest"] and new["none"]:
        new["lazy"] = True  # it may be made by whoever needs it
        return f"{title} of the dataset is read elsewhere and is `None` after, until a sample is read"
    return ""


# -- what is read off it -----------------------------------------------------------------------------------------------


def read_off(session: Session, cls: str) -> Face:
    """Names that the program reads off objects of a class, outside of the class."""
    every = dict(trees(session))
    places = {path: list(_nodes(tree, cls)) for path, tree in every.items()}
    held = _held(every, places, cls.rpartition(".")[2])
    face = Face()
    for path, nodes in places.items():
        called = {id(node.func) for _, node in nodes if isinstance(node, ast.Call) and not node.args and not node.keywords}
        for function, node in nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
                continue
            certain = _is_held(node.value, held, path, function, cls.rpartition(".")[2])
            if not certain and not _usual(node.value):
                continue
            into = face.methods if id(node) in called else face.attributes
            if node.attr not in into:
                into.append(node.attr)
            if certain:
                face.certain.add(node.attr)
    face.methods = face.methods[:MOST_METHODS]
    return face


def trees(session: Session) -> Iterator[tuple[str, ast.Module]]:
    """The files of the project, as they are before."""
    for path in [name for name in session.project.files() if name.endswith(".py")][:MOST]:
        tree = session.case.tree(Part.BEFORE, path)
        if tree is not None:
            yield path, tree


def _nodes(tree: ast.Module, cls: str) -> Iterator[tuple[str, ast.AST]]:
    """Everything outside of the class, with the function that it stands in."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}" if name else child.name
                if inner == cls:
                    continue
            yield inner, child
            waiting.append((inner, child))


def _held(every: dict[str, ast.Module], places: dict[str, list[tuple[str, ast.AST]]], cls: str) -> dict[Key, set[str]]:
    """Names that hold objects of the class, by function: those that one is assigned to, and parameters that such a name is passed for."""
    held: dict[Key, set[str]] = {}
    for path, nodes in places.items():
        for function, node in nodes:
            if isinstance(node, ast.Assign) and _makes(node.value, cls):
                held.setdefault((path, function), set()).update(ast.unparse(one) for one in node.targets)
    functions: dict[str, list[tuple[Key, list[str]]]] = {}
    for path, tree in every.items():
        for dotted, scope in scopes(tree):
            if not isinstance(scope, ast.ClassDef):
                names = [item.arg for item in (*scope.args.posonlyargs, *scope.args.args)]
                functions.setdefault(scope.name, []).append(((path, dotted), names))
    for _ in range(ROUNDS):
        for path, nodes in places.items():
            for function, node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(functions.get(node.func.id, ())) == 1:
                    key, names = functions[node.func.id][0]
                    given = [*zip(names, node.args, strict=False), *((item.arg, item.value) for item in node.keywords)]
                    new = {name for name, value in given if name and _is_held(value, held, path, function, cls)}
                    held.setdefault(key, set()).update(new)
    return held


def _makes(node: ast.expr, cls: str) -> bool:
    return isinstance(node, ast.Call) and callee(node) == cls


def _is_held(node: ast.expr, held: dict[Key, set[str]], path: str, function: str, cls: str) -> bool:
    if _makes(node, cls):
        return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    text = ast.unparse(node)
    return text in held.get((path, function), ()) or text in held.get((path, ""), ())


def _usual(node: ast.expr) -> bool:
    """Whether it is called as a dataset is: `train_ds`, `loader.dataset`."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in USUAL or name.endswith(USUAL_ENDS)


STATES: Final = frozenset({"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"})
WRITES: Final = FILLING | {"__setitem__"}


def give(runs: DatasetRuns) -> None:
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


def check_states(runs: DatasetRuns) -> None:
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
    optional = defaults(init.args)
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


def kept_globally(runs: DatasetRuns) -> str:
    """A name outside of the object that the class writes to after a fix and not before: all objects of the class share it. Empty where there is none."""
    if runs.subject is None or not runs.session.case.has_fix:
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
    return {name for item in body if isinstance(item, (ast.Assign, ast.AnnAssign)) for name in stored(item)}


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
