"""What a fix changes beside a call or an expression that is cut out of the program: of that the run says nothing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from oomlint.api_names import NEEDS_WORKERS
from oomlint.memory.loaders.loader_calls import PARAMETERS
from oomlint.verify.ast_names import callee, head, loaded, scopes
from oomlint.verify.case import Part
from oomlint.verify.strategies.changed_statements import of_case
from oomlint.verify.strategies.slicing import changed, cut, sites

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.changed_statements import Statement
    from oomlint.verify.strategies.slicing import Cut

WORKERS: Final = NEEDS_WORKERS | {"num_workers"}


def of_expression(session: Session, source: str) -> str:
    """A statement that the fix changes and that is no part of the expression that is run; empty where there is none."""
    names = {callee(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)} - {"__loader__"}
    for part, item in _changed(session):
        if part is Part.BEFORE:
            continue
        called = {callee(node) for node in ast.walk(item.node) if isinstance(node, ast.Call)}
        if not called & names and item.function.rpartition(".")[2] not in names and getattr(item.node, "name", "") not in names:
            return f"{item.words}, which the fix changes, was not run: only the expression was"
    return ""


def of_calls(session: Session, pieces: dict[Part, list[Cut]]) -> tuple[str, list[str]]:
    """Something that the fix changes beside the workers of the calls that are run, so that nothing is known of them; empty where there is nothing.

    Also what it changes in functions that the calls do not lead to: that is only told.
    """
    aside = []
    for old, new in zip(pieces[Part.BEFORE], pieces[Part.AFTER], strict=False):
        before, after = _arguments(old), _arguments(new)
        name = next((name for name in {**before, **after} if name not in WORKERS and before.get(name) != after.get(name)), "")
        if name:
            words = f"`{name}` of the call" if name.isidentifier() else "what the call unpacks"
            return f"the fix changes {words} as well, and what that does to the batches was not compared", []
        if old.head != new.head:
            return "the fix changes the parameters of the function as well, and its callers were not run", []
        if old.takers != new.takers:
            return "the fix hands the loader to another call, which was not run", []
    for part, item in _changed(session):
        text, cuts = ast.unparse(item.node), pieces[part]
        if item.name or any(text in map(ast.unparse, cut.around) for cut in cuts):
            continue
        around = {getattr(outer, "name", "") for piece in cuts for outer in piece.around}
        if item.function and not (around | _led_to(session, part, cuts, session.case.changes)) & set(item.function.split(".")):
            aside += [f"{item.words}: the fix changes it as well, and it was not run"] if part is Part.AFTER else []
            continue
        if not any(text in map(ast.unparse, cut.kept) for cut in cuts):
            return f"{item.words}, which the fix changes, was not run: only the call was, and what it is given", []
        if any(_feeds(item.node, cut) for cut in cuts) and not any(_items(item.node, name) for cut in cuts for name in _unpacked(cut)):
            return f"{item.words}, which the fix changes, is about more than the workers, and what that does to the batches was not compared", []
    return "", aside


def of_construction(session: Session, name: str) -> str:
    """A changed statement that has a share in what a class is given, so that the same on both sides shows nothing; empty where there is none."""
    cls = name.rpartition(".")[2]
    files = [path for path in session.project.files() if path.endswith(".py") and cls.encode() in session.project.raw(path)]
    paths = list(dict.fromkeys((*session.case.changes, *files)))
    made = {}
    for part in Part:
        every = [site for path in paths for site in sites(session.case.tree(part, path) or ast.Module([], [])) if callee(site.call) == cls]
        made[part] = [cut(site, frozenset(), plain=True) for site in every]
    old, new = ({ast.unparse(value) for one in made[part] for value in (*one.call.args, *(item.value for item in one.call.keywords))} for part in Part)
    led = {part: _led_to(session, part, made[part], paths, cls) for part in Part}
    for part, item in _changed(session):
        if item.function.partition(".")[0] == cls or item.name:
            continue
        fed = set(item.function.split(".")) & led[part]
        text = ast.unparse(item.node)
        given = part is Part.BEFORE and any(gone in text for gone in old - new)
        if given or fed or any(text == ast.unparse(one) for piece in made[part] for one in piece.kept):
            return f"{item.words}: `{cls}` is given something else after, and such data could not be made up for it"
    return ""


def _led_to(session: Session, part: Part, cuts: list[Cut], paths: Iterable[str], but: str = "") -> set[str]:
    """Names in the pieces, and in all of some files that is defined under one of them, save ``but`` one."""
    found = {name for piece in cuts for name in _names(ast.parse(piece.source))} - {but}
    waiting = [(node.name, node) for path in paths for _, node in scopes(session.case.tree(part, path) or ast.Module([], [])) if node.name != but]
    while new := [node for name, node in waiting if name in found]:
        waiting = [pair for pair in waiting if pair[1] not in new]
        found |= {name for node in new for name in _names(node)}
    return found


def _names(tree: ast.AST) -> set[str]:
    return {node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute))}


def _arguments(cut: Cut) -> dict[str, str]:
    """The arguments of a call as they are written, those too that lie in mappings that are made before it."""
    found = {PARAMETERS[place] if place < len(PARAMETERS) else f"argument {place + 1}": ast.unparse(value) for place, value in enumerate(cut.call.args)}
    for name in _unpacked(cut):
        found |= {key: text for item in cut.kept for key, text in (_items(item, name) or {}).items()}
    return found | {item.arg: ast.unparse(item.value) for item in cut.call.keywords if item.arg is not None}


def _unpacked(cut: Cut) -> list[str]:
    """The mappings that a call unpacks."""
    return [ast.unparse(item.value) for item in cut.call.keywords if item.arg is None]


def _items(node: ast.stmt, name: str) -> dict[str, str] | None:
    """The items of the mapping that a statement binds to a name, if it does."""
    match node:
        case ast.Assign([ast.Name(bound)], ast.Dict(keys, values)) if bound == name:
            named = [ast.unparse(key).strip("'") if key is not None else f"**{place}" for place, key in enumerate(keys)]
            return {key: ast.unparse(value) for key, value in zip(named, values, strict=True)}
        case ast.Assign([ast.Name(bound)], ast.Call(ast.Name("dict"), [], keywords)) if bound == name:
            return {item.arg or f"**{place}": ast.unparse(item.value) for place, item in enumerate(keywords)}
        case _:
            return None


def _feeds(node: ast.stmt, cut: Cut) -> bool:
    """Whether a statement has a share in an argument that is not about workers."""
    if _of_workers(node, _unpacked(cut)):
        return False
    given = [*(item.value for item in cut.call.keywords if item.arg not in WORKERS), *cut.call.args[1:]]
    wanted = {name for value in given for name in loaded(value)}
    for _ in cut.kept:
        wanted |= {name for item in cut.kept if changed(item) & wanted for name in loaded(item)}
    return bool(changed(node) & wanted)


def _of_workers(node: ast.stmt, mappings: list[str]) -> bool:
    """Whether a statement only sets options of workers in a mapping that the call unpacks: ``options["timeout"] = 60``, ``options.update(timeout=60)``."""
    match node:
        case ast.If():
            return all(_of_workers(item, mappings) for item in (*node.body, *node.orelse))
        case ast.Assign([ast.Subscript(mapping, ast.Constant(key))]):
            return ast.unparse(mapping) in mappings and key in WORKERS
        case ast.Expr(ast.Call(ast.Attribute(mapping, "update"), [], keywords)):
            return ast.unparse(mapping) in mappings and all(item.arg in WORKERS for item in keywords)
        case ast.Delete([ast.Subscript(mapping, ast.Constant(key))]) | ast.Expr(ast.Call(ast.Attribute(mapping, "pop"), [ast.Constant(key), *_])):
            return ast.unparse(mapping) in mappings and key in WORKERS
        case _:
            return False


def _changed(session: Session) -> Iterator[tuple[Part, Statement]]:
    """The statements that a fix changes; those that it only moves are left out."""
    for path in session.case.changes:
        trees = [session.case.tree(part, path) or ast.Module([], []) for part in Part]
        written = [{head(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)} for tree in trees]
        for part, items, other in zip(Part, of_case(session.case, path, script=False), reversed(written), strict=True):
            yield from ((part, item) for item in items if head(item.node) not in other)
