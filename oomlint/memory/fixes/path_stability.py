"""Whether what a class opens can be opened later, and again: the same file, by its name, with nobody waiting for the error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import SAME_PATH
from oomlint.memory.fixes.class_family import SETTINGS, awaited, built_by_itself
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, Const, ExternalCall, Frame, FunctionRef, ParsedOptions, SettingsNode, SourceExpression, Value
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.fixes.class_family import Family
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

PATH_CALLS: Final = SAME_PATH | {"join", "joinpath", "format", "with_suffix"}
# What else gives a name of a file, when a caller asks it.
_NAMES: Final = PATH_CALLS | frozenset(
    "encode decode fsencode fsdecode with_name with_stem as_posix strip rstrip lstrip lower replace removesuffix removeprefix dirname basename getenv get pop "
    "getcwd normpath cwd home hf_hub_download snapshot_download cached_path glob iglob listdir rglob iterdir sorted walk enumerate zip range reversed".split()
)
# What takes a file away, gives it another name, or puts another in its place.
_MOVES: Final = re.compile(
    rb"\b(?:TemporaryDirectory|NamedTemporaryFile|TemporaryFile|SpooledTemporaryFile|mkdtemp|mkstemp|tmp_path|tmpdir|symlink|unlink|rmtree|removedirs"
    rb"|(?:os|shutil)\s*\.\s*(?:remove|replace|rename|renames|move)|from\s+(?:os|shutil)\s+import\b[^\n]*\b(?:remove|replace|renames?|move)\b)\b"
)
_BUFFERS: Final = frozenset("BytesIO StringIO open fdopen memoryview urlopen TemporaryFile NamedTemporaryFile SpooledTemporaryFile GzipFile".split())
_ALL_ATTRIBUTES: Final = re.compile(rb"\bvars\(\s*(\w+)|(\w+)\.__dict__\b")  # of which some get another name
_DEEPEST: Final = 4
_MOST: Final = 40  # names of functions that lead to a construction


def in_doubt(family: Family, method: Scope, path: cst.BaseExpression | None) -> bool:
    """Whether the file that ``path`` names in this method may not be there later, may be no file, or its absence is waited for."""
    texts = [family.project.raw(module.path) for module in family.makers()]
    if any(_MOVES.search(text) or _lists_attributes(text) for text in texts) or _awaited_later(family):
        return True
    return path is not None and (
        any(_is_other(value) for value in _given(family, method, path)) or _no_name(family, method, path) or _handed_on(family, method, path)
    )


def no_file(family: Family, method: Scope, path: cst.BaseExpression) -> bool:
    """Whether some caller is known to hand over what is no name of a file: a buffer, an open file."""
    return any(isinstance(value, ExternalCall) and value.name.rpartition(".")[2] in _BUFFERS for value in _given(family, method, path))


def _given(family: Family, method: Scope, path: cst.BaseExpression) -> Iterator[Value]:
    """What the path can be, whoever calls."""
    for frame in family.evaluator.calls.frames(family.module, method):
        yield from (alt.value for alt in family.evaluator.values(path, frame))


def _lists_attributes(text: bytes) -> bool:
    return any(not SETTINGS.search((match[1] or match[2]).decode()) for match in _ALL_ATTRIBUTES.finditer(text))


def _awaited_later(family: Family) -> bool:
    """Whether a function that leads to a construction is called where an exception is waited for."""
    seen: set[str] = set()
    todo = [(cls.scope.name, cls.module.path, "") for cls in family.own()]
    while todo:
        name, near, owner = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if len(seen) > _MOST:
            return True
        for module in family.project.callers(name, near, owner):
            for call, _ in module.walk.calls:
                if names.last_name(call.func) == name:
                    if awaited(module, call):
                        return True
                    todo += _around(module, call)
        if not owner:
            todo += _by_itself(family, name)
    return False


def _around(module: Module, call: cst.CSTNode) -> Iterator[tuple[str, str, str]]:
    """The function that a call stands in; for what builds an object, its class."""
    scope: Scope | None = module.walk.scope_at(call)
    while scope is not None and scope.parent is not None:
        parent = scope.parent
        if scope.is_function and scope.name:
            if parent.is_class and scope.name in {"__init__", "__post_init__", "__new__"}:
                yield parent.name, module.path, ""
            elif not scope.name.startswith("__"):
                yield scope.name, module.path, parent.name if parent.is_class else ""
        scope = parent


def _by_itself(family: Family, name: str) -> Iterator[tuple[str, str, str]]:
    """The methods of a class that build objects of it by another name than its own: ``cls(...)``, ``type(self)(...)``."""
    for cls in family.members:
        if cls.scope.name == name:
            for call in built_by_itself(cls):
                yield from _around(cls.module, call)


def _no_name(family: Family, method: Scope, path: cst.BaseExpression) -> bool:
    """Whether the path may be a buffer or an open file, because callers hand over what some function has given."""
    wanted = _parameters(family, method, path)
    if wanted is None:
        return True
    for module, call, init in _constructions(family):
        params = [param.name.value for param in init.params.params[1:]] if init is not None else []
        positional = arguments.positionals(call)
        given = list(zip(params, positional, strict=False)) if params else [("", arg) for arg in positional]
        given += [(arg.keyword.value, arg) for arg in call.args if arg.keyword is not None]
        scope = module.walk.scope_at(call)
        if any((not name or name in wanted) and not _is_name(family, module, scope, arg.value, 0) for name, arg in given):
            return True
    return False


def _is_other(value: Value) -> bool:
    return isinstance(value, ExternalCall) and not _is_name_call(value)


def _is_name_call(value: Value) -> bool:
    return isinstance(value, ExternalCall) and value.name.rpartition(".")[2] in _NAMES


def _parameters(family: Family, method: Scope, path: cst.BaseExpression) -> set[str] | None:
    """The parameters of ``__init__`` that come to be the path; ``None`` where a call of an unknown function does."""
    found: set[str] = set()
    todo: list[tuple[cst.CSTNode, Scope]] = [(path, method)]
    seen: set[cst.CSTNode] = set()
    while todo:
        node, scope = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        match node:
            case cst.Name(value=name):
                values = [effect.value for effect in scope.effects.get(name, ()) if not effect.path and effect.value is not None]
                todo += [(value, scope) for value in values]
                found.add(name)
            case cst.Attribute(value=cst.Name(value=this), attr=cst.Name(value=name)) if this == names.self_name(scope):
                found.add(name)  # a field of a dataclass
                for cls in family.members:
                    for child in cls.scope.children:
                        effects = child.effects.get(names.self_name(child) or "", ())
                        todo += [(effect.value, child) for effect in effects if effect.path == (("attr", name),) and effect.value is not None]
            case cst.IfExp(body=one, orelse=two) | cst.BooleanOperation(left=one, right=two):
                todo += [(one, scope), (two, scope)]
            case cst.Call(func=func) if names.last_name(func) not in _NAMES and not _gives_names(family, node, Frame(family.module, scope)):
                return None
    return found


def _gives_names(family: Family, node: cst.BaseExpression, frame: Frame) -> bool:
    """Whether a call is known to give the name of a file."""
    found = [alt.value for alt in family.evaluator.values(node, frame)]
    return bool(found) and all(
        isinstance(value, SettingsNode | ParsedOptions)
        or (isinstance(value, Const) and isinstance(value.value, str | bytes))
        or (isinstance(value, SourceExpression) and isinstance(value.node, cst.FormattedString | cst.BinaryOperation))
        or _is_name_call(value)
        for value in found
    )


def _constructions(family: Family) -> Iterator[tuple[Module, cst.Call, cst.FunctionDef | None]]:
    """Calls that build an object of the class, or hand arguments on to its ``__init__``."""
    for cls in family.own():
        init = next((own.node for base in family.evaluator.lineage(cls) if isinstance(base, ClassRef) and (own := base.scope.child("__init__"))), None)
        built = init if isinstance(init, cst.FunctionDef) else None
        for module in family.project.callers(cls.scope.name, cls.module.path):
            yield from ((module, call, built) for call, _ in module.walk.calls if names.last_name(call.func) == cls.scope.name)
        yield from ((cls.module, call, built) for call in built_by_itself(cls))
        for node in descend(cls.scope.node):
            if isinstance(node, cst.Call) and names.dotted(node.func).endswith("__init__"):
                yield cls.module, node, built


def _is_name(family: Family, module: Module, scope: Scope, node: cst.BaseExpression, depth: int) -> bool:
    """Whether an argument may pass for the name of a file: nothing that an unknown function gives."""
    if depth > _DEEPEST:
        return False
    match node:
        case cst.Call():
            return names.last_name(node.func) in _NAMES or _gives_names(family, node, family.evaluator.calls.plain_frame(module, scope))
        case cst.Name():
            owner: Scope | None = scope
            while owner is not None and node.value not in owner.effects:
                owner = owner.parent
            effects = owner.effects[node.value] if owner is not None else []
            values = [effect.value for effect in effects if not effect.path and not effect.index and effect.value is not None]
            return all(_is_name(family, module, owner or scope, value, depth + 1) for value in values)
        case cst.IfExp():
            return _is_name(family, module, scope, node.body, depth + 1) and _is_name(family, module, scope, node.orelse, depth + 1)
        case cst.BooleanOperation():
            return _is_name(family, module, scope, node.left, depth + 1) and _is_name(family, module, scope, node.right, depth + 1)
        case _:
            return True


def _handed_on(family: Family, method: Scope, path: cst.BaseExpression) -> bool:
    """Whether a method that builds hands the path to another function of the project, which may do anything with the file."""
    code = family.module.code(path)
    words = {code} | {node.value for node in descend(path) if isinstance(node, cst.Name) and node.value != names.self_name(method)}
    for scope in {method, family.owner.child("__init__") or method}:
        frame = family.evaluator.calls.plain_frame(family.module, scope)
        for call in scope.calls:
            root = names.dotted(call.func).partition(".")[0]
            if root == names.self_name(scope) or not any(family.module.code(arg.value) in words for arg in call.args):
                continue
            if any(isinstance(alt.value, FunctionRef) for alt in family.evaluator.values(call.func, frame)):
                return True
    return False
