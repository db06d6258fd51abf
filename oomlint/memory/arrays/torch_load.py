"""Checkpoints: what becomes of the result of ``torch.load``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.torch_tables import OF_NUMBERS
from oomlint.model.values import External
from oomlint.patterns import pattern
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend, names_in, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.loads import Load
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_SECTIONS = pattern(r"(^|_)(state_?dict|model|net|network|generator|discriminator|optim(izer)?|opt|ema|weights|params|encoder|decoder|backbone)(_|\d|$)")
_OF_GRAPHS = ("networkx.", "igraph.", "rdkit.")  # libraries whose objects are no tensors
_TAKES_NUMBERS = frozenset({"torch.tensor", "torch.LongTensor", "torch.FloatTensor", "torch.IntTensor", "torch.Tensor"})
_NUMBERS = pattern(
    r"^(\w+_)?(epochs?|steps?|iter(ation)?s?|global_step|args|config|cfg|hparams|hyper_parameters|options|best_epoch|lr_?sched\w*|scheduler\w*|scaler)$",
)


class LoadedCheckpoint(Struct, frozen=True):
    """What becomes of a loaded checkpoint."""

    checkpoint: bool = False  # a part of it goes to ``load_state_dict``, or is taken by a name that checkpoints have
    only_states: bool = True  # all tensors of it go to ``load_state_dict`` and nowhere else
    restores: bool = False  # a part of it is seen to go to ``load_state_dict``


def is_section(key: object) -> bool:
    """Whether an entry of a checkpoint holds the state of a model or an optimizer, by its key."""
    return isinstance(key, str) and _SECTIONS.search(key.lower()) is not None and not (_NUMBERS.match(key) and not re.search(r"optim", key))


def loaded(module: Module, scope: Scope, call: cst.Call) -> LoadedCheckpoint:
    """What becomes of the result of a ``torch.load``."""
    return _followed(module, scope, call, 0)


def _followed(module: Module, scope: Scope, node: cst.BaseExpression, depth: int) -> LoadedCheckpoint:
    """What becomes of an expression: handed to ``load_state_dict``, a part taken out, bound to a name, or anything else."""
    parents = module.walk.parents
    holder = parents.get(node)
    if isinstance(holder, cst.Arg):
        outer = parents.get(holder)
        if isinstance(outer, cst.Call):
            return _handed(module, outer, holder)
    if isinstance(holder, cst.Subscript) and holder.value is node:
        return _part(module, scope, holder, _key(holder), depth)
    if isinstance(holder, cst.Attribute) and holder.value is node:
        outer = parents.get(holder)
        if isinstance(outer, cst.Call) and outer.func is holder:
            if holder.attr.value in {"get", "pop"} and outer.args:
                return _part(module, scope, outer, constant_key(outer.args[0].value), depth)
            if holder.attr.value == "keys":
                return LoadedCheckpoint()
            if holder.attr.value in {"items", "values"}:
                return LoadedCheckpoint(_feeds_states(module, scope, node), only_states=False)
        return LoadedCheckpoint(only_states=False)
    if isinstance(holder, cst.ComparisonTarget | cst.Comparison):
        return LoadedCheckpoint(_names_section(holder))
    if isinstance(holder, cst.Assign | cst.AnnAssign | cst.NamedExpr):
        bound = [path_of(holder.target)] if not isinstance(holder, cst.Assign) else [path_of(t.target) for t in holder.targets]
        return _bound(module, scope, holder, bound, depth)
    if isinstance(holder, cst.Del | cst.Expr):
        return LoadedCheckpoint()
    return LoadedCheckpoint(only_states=False)


def _handed(module: Module, call: cst.Call, arg: cst.Arg) -> LoadedCheckpoint:
    written = names.last_name(call.func)
    if written.endswith("load_state_dict"):
        if isinstance(call.func, cst.Attribute) and OF_NUMBERS.search(names.last_name(call.func.value)):
            return LoadedCheckpoint()
        keeps = arguments.has(call, "assign")
        return LoadedCheckpoint(checkpoint=True, only_states=not keeps and not arg.star, restores=True)
    if written in {"len", "type", "isinstance", "print", "list", "sorted", "hasattr"}:
        return LoadedCheckpoint(only_states=written != "print")
    # `model.load_state_dict(renamed(torch.load(path)))`
    above = module.walk.parents.get(module.walk.parents.get(call, call))
    inside = isinstance(above, cst.Call) and names.last_name(above.func).endswith("load_state_dict")
    return LoadedCheckpoint(checkpoint=inside, only_states=False, restores=inside)


def _feeds_states(module: Module, scope: Scope, node: cst.CSTNode) -> bool:
    """Whether what goes through the entries is a ``load_state_dict`` call, or a mapping that is handed to one."""
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.Call) and names.last_name(here.func).endswith("load_state_dict"):
            return True
        if isinstance(here, cst.For):
            return any(names.last_name(c.func).endswith("load_state_dict") for c in scope.calls)
        if isinstance(here, cst.Assign):
            path = path_of(here.targets[0].target)
            return path is not None and any(
                names.last_name(c.func).endswith("load_state_dict") and any(path_of(a.value) == path for a in c.args) for c in scope.calls
            )
        if isinstance(here, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return False
    return False


def _key(node: cst.Subscript) -> object:
    return constant_key(node.slice[0].slice.value) if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index) else UNKNOWN_KEY


def _part(module: Module, scope: Scope, node: cst.BaseExpression, key: object, depth: int) -> LoadedCheckpoint:
    """What becomes of one entry of the checkpoint."""
    if isinstance(key, str) and _NUMBERS.match(key) and not re.search(r"optim", key):
        return LoadedCheckpoint()
    section = isinstance(key, str) and _SECTIONS.search(key.lower()) is not None
    if isinstance(module.walk.parents.get(node), cst.Subscript | cst.Attribute) and not section:
        return LoadedCheckpoint(only_states=False)
    further = _followed(module, scope, node, depth + 1)
    return LoadedCheckpoint(section or further.checkpoint, further.only_states, further.restores)


def _names_section(holder: cst.CSTNode) -> bool:
    return any(isinstance(n, cst.SimpleString) and isinstance(n.evaluated_value, str) and _SECTIONS.search(n.evaluated_value.lower()) for n in descend(holder))


def _bound(module: Module, scope: Scope, holder: cst.CSTNode, bound: list[tuple[str, tuple[tuple[str, object], ...]] | None], depth: int) -> LoadedCheckpoint:
    """What becomes of the names that the value is bound to, each of them used anywhere in its scope."""
    if depth > 3 or any(path is None for path in bound):  # noqa: PLR2004
        return LoadedCheckpoint(only_states=False)
    checkpoint, only, restores = False, True, False
    for path in bound:
        if path is None or (path[1] and path[0] in {"self", "cls"}):
            only = False
        uses = list(_uses(module, scope, holder, path)) if path is not None else []
        for use in uses:
            one = _followed(module, scope, use, depth + 1)
            checkpoint = checkpoint or one.checkpoint
            only = only and one.only_states
            restores = restores or one.restores
    return LoadedCheckpoint(checkpoint, only, restores)


def _uses(module: Module, scope: Scope, holder: cst.CSTNode, path: tuple[str, tuple[tuple[str, object], ...]]) -> Iterator[cst.BaseExpression]:
    """Places of the scope that read the path, outside of the statement that binds it."""
    parents = module.walk.parents
    for node in scope.nodes():
        if not isinstance(node, cst.Name | cst.Attribute) or path_of(node) != path:
            continue
        above = parents.get(node)
        if isinstance(above, cst.AssignTarget) or module.walk.is_word(node):
            continue
        if isinstance(above, cst.AnnAssign | cst.NamedExpr) and above.target is node:
            continue
        if holder in module.walk.ancestors(node) and isinstance(node, cst.Name) and parents.get(node) is holder:
            continue
        yield node


def holds_objects(load: Load, project: Project) -> bool:
    """Whether a loop over what is read shows that the file holds no tensors.

    Each part of an element that a loop of its dataset uses is handed to a library for graphs, or compared with text, or the function that reads it makes
    tensors of their parts: `torch.tensor([row.words for row in rows])` takes numbers and lists of them.
    """
    if made_into_tensors(load, project):
        return True
    owner, module = load.keeper.owner, load.keeper.module
    for scope in owner.scope.children if owner is not None else ():
        rows = f"{names.self_name(scope)}.{load.keeper.attribute}"
        for loop in (node for node in scope.nodes() if isinstance(node, cst.For | cst.CompFor) and names.dotted(node.iter) == rows):
            parts = _parts(module, loop)
            if parts and all(any(_is_no_tensor(module, use, project) for use in uses) for uses in parts):
                return True
    return False


def made_into_tensors(load: Load, project: Project) -> bool:
    """Whether the function that reads a file makes tensors of parts of its elements, and does nothing else with them one by one."""
    module, walk = load.module, load.module.walk
    holder = walk.parents.get(load.node)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    if not isinstance(target, cst.Name):
        return False
    loops = [node for node in load.scope.nodes() if isinstance(node, cst.For | cst.CompFor) and names.dotted(node.iter) == target.value]
    return bool(loops) and all(isinstance(loop, cst.CompFor) and _fills_tensor(module, walk.parents.get(loop), project) for loop in loops)


def _fills_tensor(module: Module, rows: cst.CSTNode | None, project: Project) -> bool:
    """Whether a list is what ``torch.tensor`` is given: of tensors with more than one element it raises `ValueError`."""
    above = module.walk.parents.get(rows) if isinstance(rows, cst.ListComp) else None
    call = module.walk.parents.get(above) if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or call.args[0] is not above:
        return False
    found = evaluator_of(project).plainly(call.func, module, module.walk.scope_at(call))
    return bool(found) and all(isinstance(alt.value, External) and alt.value.name in _TAKES_NUMBERS for alt in found)


def _parts(module: Module, loop: cst.For | cst.CompFor) -> list[list[cst.Name]]:
    """Reads of each name that a loop gives to an element, or to what an assignment takes out of that."""
    body = loop.body if isinstance(loop, cst.For) else module.walk.parents[loop]
    taken = names_in(loop.target)
    unpacked = [node for node in descend(body) if isinstance(node, cst.Assign) and isinstance(node.value, cst.Name) and node.value.value in taken]
    targets = [loop.target, *(target.target for node in unpacked for target in node.targets)]
    taken.update(name for target in targets for name in names_in(target))
    bound = {part for target in targets for part in descend(target)} | {node.value for node in unpacked}
    uses: dict[str, list[cst.Name]] = {}
    for node in descend(body):
        if isinstance(node, cst.Name) and node.value in taken and node not in bound:
            uses.setdefault(node.value, []).append(node)
    return list(uses.values())


def _is_no_tensor(module: Module, node: cst.Name, project: Project) -> bool:
    holder = module.walk.parents.get(node)
    if isinstance(holder, cst.Comparison):
        return holder.left is node and any(isinstance(one.comparator, cst.SimpleString) for one in holder.comparisons)
    call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return False
    evaluator = evaluator_of(project)
    found = evaluator.plainly(call.func, module, module.walk.scope_at(call))
    return any(isinstance(alt.value, External) and alt.value.name.startswith(_OF_GRAPHS) for alt in found)


def chosen_by_device(module: Module, node: cst.CSTNode) -> bool:
    """Whether a test for the accelerator stands around the call, and the other way loads with ``map_location``."""
    child = node
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.If | cst.IfExp) and child is not here.test and re.search(r"cuda|gpu|cpu|device", module.code(here.test), re.IGNORECASE):
            return "map_location" in module.code(here)
        child = here
    return False


def falls_back(module: Module, call: cst.Call) -> bool:
    """Whether the call stands where another that says ``map_location`` has failed with the same file."""
    walk = module.walk
    for here in walk.ancestors(call):
        if isinstance(here, cst.FunctionDef | cst.ClassDef):
            return False
        tried = walk.parents.get(here)
        if isinstance(here, cst.ExceptHandler) and isinstance(tried, cst.Try):
            first = [node for node in descend(tried.body) if isinstance(node, cst.Call) and names.last_name(node.func) == names.last_name(call.func)]
            same = (node for node in first if node.args and node.args[0].value.deep_equals(call.args[0].value))
            return any(arguments.has(node, "map_location") for node in same)
    return False
