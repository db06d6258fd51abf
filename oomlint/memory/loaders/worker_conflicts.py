"""What a loader without workers cannot have: the findings of OOM101 to OOM104 and their guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import EXPECTS
from oomlint.finding import Fix, Message, Safety, Severity, Told, in_own_rows
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.loader_calls import Conflict, Loader, apart, given_beside, loaders_of, story_places
from oomlint.model import names
from oomlint.model.torch_versions import torch_versions
from oomlint.model.values import Const, assumptions
from oomlint.syntax.edits import Text, delete_argument, is_cheap_path, replace, wrapped
from oomlint.syntax.nodes import UNKNOWN_KEY, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Edit, Fact, Place
    from oomlint.model.project import Module, Project
    from oomlint.model.torch_versions import Version
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Effect


_MOST_RELATED = 12  # more places tell no story


class WorkerGuard(Struct, frozen=True):
    """How an argument is made to depend on the worker count.

    ``make`` gets the argument's code and the worker count's, both ready to be operands, and whether the argument is literally ``True``. What it makes is
    allowed ``since`` a version of torch; before, the argument has to be left out where there are no workers.
    """

    argument: str
    make: Callable[[str, str, bool], str]
    since: Version = ()
    raises: str = "raises ValueError"  # what a loader does that gets it without workers

    def left_out(self, given: str, count: str) -> str:
        """A mapping for the call, with the argument where there are workers."""
        return f'**({{"{self.argument}": {given}}} if {count} > 0 else {{}})'


def told(module: Module, project: Project, guard: WorkerGuard, harmful: Callable[[Value], bool]) -> Iterator[Told]:
    """Every place of ``module`` at which a loader without workers gets an argument that needs them."""
    loaders = loaders_of(project)
    groups: dict[cst.Call, list[Conflict]] = {}
    for loader in (*loaders.of(module), *loaders.reached_from(module)):
        if is_expected(loader.module, loader.call):
            continue
        for conflict in loaders.conflicts(loader, guard.argument, harmful):
            where, call = conflict.primary()
            if where is module and not is_expected(module, call):
                groups.setdefault(call, []).append(conflict)
    for call, conflicts in groups.items():
        for group in apart(conflicts, lambda one: one.given):
            yield _tell(module, call, group, guard)


_CAUGHT = frozenset({"ValueError", "AssertionError"})
_CAUGHT_WITH_ALL = frozenset({"Exception", "BaseException"})


def is_expected(module: Module, call: cst.Call) -> bool:
    """Whether the code around a call counts on its failing: a handler for the exception, ``pytest.raises``."""
    child: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.FunctionDef | cst.ClassDef):
            return False
        if isinstance(here, cst.Try) and child is here.body:
            for handler in here.handlers:
                kinds = [handler.type] if handler.type is not None else []
                if isinstance(handler.type, cst.Tuple):
                    kinds = [element.value for element in handler.type.elements]
                if any(names.last_name(kind) in _CAUGHT for kind in kinds):
                    return True
                # Who catches everything counts on this failure only where the handler makes another loader.
                everything = not kinds or any(names.last_name(kind) in _CAUGHT_WITH_ALL for kind in kinds)
                if everything and names.last_name(call.func) in module.code(handler.body):
                    return True
        if isinstance(here, cst.With):
            for item in here.items:
                if isinstance(item.item, cst.Call) and names.last_name(item.item.func) in EXPECTS:
                    return True
        child = here
    return False


def _tell(module: Module, call: cst.Call, conflicts: list[Conflict], guard: WorkerGuard) -> Told:
    place = module.place(call)
    conflicts.sort(key=lambda c: (c.reachable, assumptions(c.workers, c.given)))
    best = conflicts[0]
    spots: list[Place] = []
    for conflict in conflicts[:6]:
        if conflict.loader.call is not call:
            words = f"`{conflict.loader.written}` gets `{guard.argument}` and no workers here"
            spots.append(conflict.loader.module.place(conflict.loader.call, words))
        spots += story_places(place, conflict.workers, conflict.given, *conflict.ways)
    # Definite on this way is definite; where other ways to the loader are fine, it is still certain that this one fails.
    severity = Severity.WARNING if best.reachable else Severity.ERROR
    edits: list[Edit] = []
    message = ""
    whole = True
    for loader in dict.fromkeys(c.loader for c in conflicts):
        mine = [c for c in conflicts if c.loader is loader]
        made = _guarded(mine, guard)
        if made is None:
            whole = False
            break
        edit, message = made
        if edit not in edits:
            edits.append(edit)
    fix = Fix(Safety.SAFE, message, tuple(edits)) if whole and edits else _advice(guard, module)
    beside = given_beside(*([one.given] for one in conflicts))  # a file may well say that there are no workers: the call has no guard then
    shown = tuple(in_own_rows(place, spots)[:_MOST_RELATED])
    said = Message(f"{_given(best)} requires `num_workers > 0`", f"{_origin(best)}; `{best.loader.written}` {guard.raises}")
    return Told(place, said, severity, best.confidence, shown, fix, _facts(conflicts), given=beside)


def _facts(conflicts: list[Conflict]) -> tuple[Fact, ...]:
    """Each loader once, with the ways in which it has no workers."""
    found: dict[Loader, list[Conflict]] = {}
    for conflict in conflicts:
        found.setdefault(conflict.loader, []).append(conflict)
    return tuple(loader_fact(loader, [one.workers for one in ways], ways[0].argument) for loader, ways in found.items())


def _advice(guard: WorkerGuard, module: Module) -> Fix:
    literal = False
    made = f"{guard.argument}={guard.make('<value>', '<workers>', literal)}"
    if _is_older(module, guard):
        made = guard.left_out("<value>", "<workers>")
    return Fix(Safety.DISPLAY, f"store the worker count in a variable and guard the argument: `{made}`")


def _is_older(module: Module, guard: WorkerGuard) -> bool:
    """Whether the project runs with a torch that does not allow what the guard makes."""
    return torch_versions(module.project, module).lacks(guard.since)


def _given(conflict: Conflict) -> str:
    """The argument, with a number or a truth value as it reads where it comes from."""
    value = conflict.given.value
    written = f"={value.value!r}" if isinstance(value, Const) and not isinstance(value.value, str) else ""
    return f"`{conflict.argument}{written}`"


def _origin(conflict: Conflict) -> str:
    """Where the 0 comes from, shortly; the related places tell the rest."""
    story = conflict.workers.story
    if not story or story[-1].kind == "missing":
        return "`num_workers` is not given, so it is 0"
    telling = next((s for kind in ("shell", "branch", "settings", "default", "option") for s in story if s.kind == kind), None)
    site = conflict.brought_by()
    if site is not None and telling is None:
        return "this call passes 0 workers"
    if telling is None:
        return "`num_workers` is 0"
    return f"`num_workers` {'can be' if conflict.reachable else 'is'} 0 ({telling.text})"


# -- the guard ----------------------------------------------------------------------------------------------------------


def _guarded(conflicts: list[Conflict], guard: WorkerGuard) -> tuple[Edit, str] | None:
    """The edit that makes the argument of one loader depend on its workers, with a word about it."""
    loader = conflicts[0].loader
    arg = loader.explicit(guard.argument)
    if arg is not None:
        return _guard_in_call(loader, arg, guard)
    return _guard_in_mapping(conflicts[0], guard)


def _guard_in_call(loader: Loader, arg: cst.Arg, guard: WorkerGuard) -> tuple[Edit, str] | None:
    tree = loader.module.tree
    workers = loader.explicit("num_workers")
    if loader.layers:
        return None
    if workers is None and not loader.stars:
        edit = delete_argument(tree, loader.call, arg)
        return (edit, f"remove `{guard.argument}`: this loader has no workers") if edit is not None else None
    if workers is not None:
        node: cst.BaseExpression = workers.value
        if isinstance(node, cst.Integer) and node.evaluated_value == 0:
            edit = delete_argument(tree, loader.call, arg)
            return (edit, f"remove `{guard.argument}`: this loader has no workers") if edit is not None else None
        if not is_cheap_path(node):
            return None
        count = wrapped(tree.code(node), node)
    else:
        star = loader.stars[-1].value
        if len(loader.stars) != 1 or not is_cheap_path(star):
            return None
        count = f'{tree.code(star)}.get("num_workers", 0)'
    return _replaced(loader, arg.value, count, guard)


def _replaced(loader: Loader, node: cst.BaseExpression, count: str, guard: WorkerGuard) -> tuple[Edit, str] | None:
    tree = loader.module.tree
    if _is_older(loader.module, guard):
        return _left_out(loader.module, node, count, guard)
    literal = isinstance(node, cst.Name) and node.value == "True"
    content = guard.make(wrapped(tree.code(node), node), count, literal)
    return replace(tree, node, content), f"set it only when there are workers: `{guard.argument}={content}`"


def _left_out(module: Module, node: cst.BaseExpression, count: str, guard: WorkerGuard) -> tuple[Edit, str] | None:
    """The edit that gives the argument only where there are workers, in a call that may take a mapping there."""
    arg = module.walk.parents.get(node)
    call = module.walk.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call) or arg.keyword is None or node.lpar:
        return None
    if any(each.keyword is None and each.star != "**" for each in call.args[call.args.index(arg) :] if each is not arg):
        return None
    text = Text(module.tree)
    content = guard.left_out(module.code(node), count)
    return text.replaced(text.span(arg.keyword)[0], text.span(node)[1], content), f"give it only when there are workers: `{content}`"


def _guard_in_mapping(conflict: Conflict, guard: WorkerGuard) -> tuple[Edit, str] | None:
    """Guard the argument where a keyword dictionary gives it: in the literal, in ``dict(...)``, in an item's assignment."""
    loader = conflict.loader
    last = conflict.given.story[-1] if conflict.given.story else None
    if last is None or last.module is not loader.module or not isinstance(last.node, cst.BaseExpression):
        return None
    walk = loader.module.walk
    if walk.scope_at(last.node) is not loader.scope:
        return None
    node = last.node
    holder = walk.parents.get(node)
    if holder is None or not _settled(loader, holder):
        return None
    count = _workers_of_mapping(loader, holder)
    if count is None:
        return None
    return _replaced(loader, node, count, guard)


def _settled(loader: Loader, holder: cst.CSTNode) -> bool:
    """Whether the mapping holds, where the argument is put into it, the worker count that this loader and no other gets."""
    walk = loader.module.walk
    if len(loader.stars) != 1:
        return False
    star = loader.stars[0].value
    if isinstance(star, cst.Dict):
        return not any(isinstance(element, cst.StarredDictElement) for element in star.elements)
    path = path_of(star)
    if path is None or loader.module.code(loader.scope.node).count(f"**{loader.module.code(star)}") != 1:
        return False
    statement = walk.statement_of(holder)
    effects = loader.scope.effects.get(path[0], [])
    place = max((n for n, effect in enumerate(effects) if effect.statement is statement), default=None)
    if place is None:
        return False
    return not any(_changes_workers(effect, len(path[1])) for effect in effects[place + 1 :])


def _changes_workers(effect: Effect, depth: int) -> bool:
    if effect.kind in {"append", "extend", "option"}:
        return False
    deeper = effect.path[depth:]
    return effect.kind != "assign" or not deeper or deeper[0][1] in {"num_workers", UNKNOWN_KEY}


def _workers_of_mapping(loader: Loader, holder: cst.CSTNode | None) -> str | None:
    """The code of the worker count as it can be written beside the argument."""
    tree, walk = loader.module.tree, loader.module.walk
    explicit = loader.explicit("num_workers")
    if explicit is not None:
        return _stable(loader, explicit.value)
    if isinstance(holder, cst.DictElement):
        mapping = walk.parents.get(holder)
        if isinstance(mapping, cst.Dict):
            for element in mapping.elements:
                if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString) and element.key.evaluated_value == "num_workers":
                    return wrapped(tree.code(element.value), element.value) if is_cheap_path(element.value) else None
    if isinstance(holder, cst.Arg):
        call = walk.parents.get(holder)
        if isinstance(call, cst.Call):
            for arg in call.args:
                if arg.keyword is not None and arg.keyword.value == "num_workers":
                    return wrapped(tree.code(arg.value), arg.value) if is_cheap_path(arg.value) else None
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "update" and is_cheap_path(call.func.value):
                return f'{tree.code(call.func.value)}.get("num_workers", 0)'
    if isinstance(holder, cst.Assign):
        target = holder.targets[0].target
        if isinstance(target, cst.Subscript) and is_cheap_path(target.value):
            return f'{tree.code(target.value)}.get("num_workers", 0)'
    return None


def _stable(loader: Loader, node: cst.BaseExpression) -> str | None:
    """The worker expression of the call, where it means the same at an earlier statement: a parameter or an attribute of one."""
    if not is_cheap_path(node):
        return None
    root: cst.CSTNode = node
    while isinstance(root, cst.Attribute | cst.Subscript):
        root = root.value
    if not isinstance(root, cst.Name):
        return None
    rebound = [e for e in loader.scope.effects.get(root.value, ()) if e.kind not in {"import", "from"}]
    is_parameter = root.value in names.takes(loader.scope)
    return loader.module.tree.code(node) if is_parameter and not rebound else None
