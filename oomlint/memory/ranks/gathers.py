"""Gathers of what an evaluation has collected, from all ranks to all ranks, where one of them reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.finding import Fix, Safety
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.ranks.ranks import ranks_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.qualified_names import library_name
from oomlint.model import arguments, names
from oomlint.model.displays import unpacked
from oomlint.model.tensor_state import SampleSize, ValueKind
from oomlint.model.values import FunctionRef
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend, names_in, path_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Edit
    from oomlint.memory.ranks.ranks import Ranks
    from oomlint.model.project import Module, Project
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

    Path = tuple[str, tuple[Accessor, ...]]

GATHER: Final = "all_gather_object"
_GATHERS: Final = frozenset({"torch.distributed.all_gather_object", "torch.distributed.distributed_c10d.all_gather_object"})
_TENSORS: Final = "torch.distributed.all_gather"
_FILLS: Final = frozenset({"append", "update", "augment", "assign", "extend"})
_SCALARS: Final = frozenset({"item", "float", "int", "len", "sum", "mean", "time"})
_ONLY_LOOKS: Final = frozenset({"len", "zip", "enumerate", "list", "chain", "from_iterable", "sorted", "sum", "cat", "concatenate", "stack", "vstack", "tqdm"})
_JOINS: Final = frozenset({"append", "extend", "update"})
_MOST_SITES: Final = 6
_DEEPEST: Final = 2  # functions between where it is filled and where it is gathered


class Gather(Struct, frozen=True, eq=False):
    """What every rank is sent of all others, for one to read."""

    module: Module
    scope: Scope
    node: cst.Call  # what gathers, or calls the function that does
    collected: str  # what is gathered, as it is written
    filled: tuple[Module, cst.CSTNode]  # where it grows
    read: tuple[Module, cst.CSTNode]  # where one rank reads it
    ranks: Ranks | None = None
    primitive: tuple[Module, cst.Call] | None = None  # in a function of the project
    others_look: bool = False  # the other ranks go through it, too
    first: bool = False  # the one that reads it is proven to be rank 0


class RankReads(Struct, frozen=True):
    """Who reads something: where one rank does, whether others put it together first."""

    first: cst.CSTNode
    others_look: bool


class Gathers:
    """Finds them in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.ranks = ranks_of(project)

    def of(self, module: Module) -> Iterator[Gather]:
        """Gathers whose call stands in the module: the library's own, or one of a function of the project."""
        for call, scope in module.walk.calls:
            if names.last_name(call.func) == GATHER and library_name(self.project, call.func, module, scope) in _GATHERS:
                yield from self._direct(module, scope, call)
            else:
                yield from self._through(module, scope, call)

    def _direct(self, module: Module, scope: Scope, call: cst.Call) -> Iterator[Gather]:
        given = _arguments(call)
        if given is None or self.ranks.on_one(module, scope, call):
            return
        out, what = given
        filled = self.filled(module, scope, what, 0)
        path = path_of(out)
        reads = self.reads(module, scope, module.walk.statement_of(call), path[0]) if filled is not None and path is not None and not path[1] else None
        if filled is not None and reads is not None:
            ranks = self.ranks.at(module, scope, call)
            first = self.ranks.on_first(module, module.walk.scope_at(reads.first), reads.first)
            yield Gather(module, scope, call, module.code(what).strip(), filled, (module, reads.first), ranks, None, reads.others_look, first)

    def _through(self, module: Module, scope: Scope, call: cst.Call) -> Iterator[Gather]:
        """A call of a function that gathers what it is given, and returns all of it."""
        if names.last_name(call.func) not in self._wrappers(module) or not call.args or self.ranks.on_one(module, scope, call):
            return
        frame = self.evaluator.calls.plain_frame(module, scope)
        function = next((a.value for a in self.evaluator.values(call.func, frame) if isinstance(a.value, FunctionRef)), None)
        inner = _gathers_argument(function) if function is not None else None
        if function is None or inner is None or library_name(self.project, inner.func, function.module, function.scope) not in _GATHERS | {_TENSORS}:
            return
        what = call.args[0].value
        filled = self.filled(module, scope, what, 0)
        statement = module.walk.statement_of(call)
        target = statement.targets[0].target if isinstance(statement, cst.Assign) and statement.value is call else None
        if filled is None or not isinstance(target, cst.Name):
            return
        reads = self.reads(module, scope, statement, target.value)
        if reads is not None:
            ranks = self.ranks.at(module, scope, call)
            yield Gather(module, scope, call, module.code(what).strip(), filled, (module, reads.first), ranks, (function.module, inner), reads.others_look)

    def _wrappers(self, module: Module) -> frozenset[str]:
        """Names of functions of the project in which objects are gathered, and those that imports of the module give them."""
        key = ("gathering functions", module.path)
        known = self.project.memo.get(key)
        if not isinstance(known, frozenset):
            found: set[str] = set()
            for text in (GATHER, "pickle.loads("):
                for other in self.project.mentioning([text.encode(), b"all_gather"], module.path):
                    found.update(s.name for s in other.walk.scopes if s.is_function and any(names.last_name(c.func) in {GATHER, "all_gather"} for c in s.calls))
            for effects in module.root.effects.values():
                for effect in effects:
                    if effect.kind == "from" and isinstance(effect.node, cst.ImportAlias) and names.dotted(effect.node.name) in found:
                        found.add(effect.root)
            known = self.project.memo[key] = frozenset(found)
        return known

    # -- what is gathered --------------------------------------------------------------------------------------------------

    def filled(self, module: Module, scope: Scope, node: cst.BaseExpression, depth: int) -> tuple[Module, cst.CSTNode] | None:
        """Where a container that an evaluation fills batch by batch grows."""
        path = path_of(node)
        if path is None or depth > _DEEPEST:
            return None
        here = next((e.node for e in scope.effects.get(path[0], ()) if self._grows(module, scope, e, path)), None)
        if here is not None:
            return module, here
        if path[1] and names.self_name(scope) == path[0] and scope.parent is not None:
            return self._of_object(module, scope.parent, path[1])
        if path[1]:
            return None
        return self._returned(module, scope, path[0], depth) or self._given(module, scope, path[0], depth)

    def _given(self, module: Module, scope: Scope, name: str, depth: int) -> tuple[Module, cst.CSTNode] | None:
        """Where a caller fills what it hands over."""
        params = names.parameter_names(scope)
        if name not in params:
            return None
        place = params.index(name) - (1 if names.self_name(scope) is not None else 0)
        for site in self.evaluator.calls.sites(module, scope, most=_MOST_SITES):
            given = arguments.argument_for(site, name, place=place)
            found = self.filled(site.module, site.scope, given, depth + 1) if given is not None else None
            if found is not None:
                return found
        return None

    def _of_object(self, module: Module, owner: Scope, path: tuple[Accessor, ...]) -> tuple[Module, cst.CSTNode] | None:
        """Where methods that are called for each batch fill an attribute: not those that make the object."""
        for method in owner.children:
            this = names.self_name(method) if method.is_function else None
            for effect in method.effects.get(this, ()) if this is not None and method.name != "__init__" else ():
                if effect.kind in ADDS and effect.path == path and effect.value is not None and not _is_scalar(effect.value):
                    return module, effect.node
        return None

    def _returned(self, module: Module, scope: Scope, name: str, depth: int) -> tuple[Module, cst.CSTNode] | None:
        """Where a function that returns it fills it."""
        for effect in scope.effects.get(name, ()):
            if effect.kind != "assign" or effect.path or not isinstance(effect.value, cst.Call):
                continue
            for alt in self.evaluator.plainly(effect.value.func, module, scope):
                function = alt.value
                if isinstance(function, FunctionRef):
                    for item in function.scope.returns:
                        value = unpacked(item.value, effect.index)
                        found = self.filled(function.module, function.scope, value, depth + 1) if value is not None else None
                        if found is not None:
                            return found
        return None

    def _grows(self, module: Module, scope: Scope, effect: Effect, path: Path) -> bool:
        deeper = effect.path[len(path[1]) :]
        if effect.kind not in _FILLS or effect.path[: len(path[1])] != path[1] or (effect.kind == "assign" and not deeper):
            return False
        if effect.value is None or _is_scalar(effect.value):
            return False
        loops = [a for a in module.walk.ancestors(effect.statement) if isinstance(a, cst.For | cst.While)]
        return any(runs_of(self.project).over_batches(loop, module, scope) for loop in loops) and not self._is_number(module, scope, effect)

    def _is_number(self, module: Module, scope: Scope, effect: Effect) -> bool:
        """Whether a number, or one for each sample, is put in, for all that the flow tells."""
        puts = [store for record in runs_of(self.project).records(module, scope) for store in record.stores if store.expression is effect.value]
        leaves = [leaf for store in puts for leaf in store.value.leaves()]
        return bool(leaves) and all(leaf.size <= SampleSize.SMALL or leaf.kind is ValueKind.PLAIN for leaf in leaves)

    # -- who reads it ------------------------------------------------------------------------------------------------------

    def reads(self, module: Module, scope: Scope, statement: cst.CSTNode, name: str) -> RankReads | None:
        """Where one rank alone reads what a statement gave a name; ``None`` where others need it, or nobody is seen to read it."""
        gathered = {name}
        first: cst.CSTNode | None = None
        looked = False
        since, own = _row(module, statement), set(descend(statement))
        known = 0
        while known != len(gathered):
            known = len(gathered)
            for node in scope.nodes(inner=False):
                if not isinstance(node, cst.Name) or node.value not in gathered or _row(module, node) <= since or node in own or _is_written(module, node):
                    continue
                if self.ranks.on_one(module, scope, node):
                    first = first or node
                    continue
                if not self._only_put_together(module, node, gathered):
                    return None
                looked = True
        return RankReads(first, looked) if first is not None else None

    def _only_put_together(self, module: Module, node: cst.Name, gathered: set[str]) -> bool:
        """Whether a use makes another form of the same, which is a part of what was gathered then."""
        parents = module.walk.parents
        here: cst.CSTNode = node
        while (above := parents.get(here)) is not None:
            if isinstance(above, cst.Call) and here in above.args:
                if names.last_name(above.func) in _JOINS and isinstance(above.func, cst.Attribute) and (path := path_of(above.func.value)) is not None:
                    gathered.add(path[0])
                    return not path[1]
                if names.last_name(above.func) not in _ONLY_LOOKS:
                    return False
            elif isinstance(above, cst.Assign):
                target = above.targets[0].target
                if not isinstance(target, cst.Name):
                    return False
                gathered.add(target.value)
                return True
            elif isinstance(above, cst.AugAssign):
                if not isinstance(above.target, cst.Name):
                    return False
                gathered.add(above.target.value)
                return True
            elif isinstance(above, cst.For):
                if here is not above.iter:
                    return False
                gathered.update(names_in(above.target))
                return True
            elif isinstance(above, cst.Del):
                return True
            elif not isinstance(
                above,
                cst.Arg | cst.ListComp | cst.GeneratorExp | cst.CompFor | cst.Subscript | cst.Attribute | cst.SubscriptElement | cst.Index | cst.StarredElement,
            ):
                return False
            here = above
        return False


def _arguments(call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The list for the results, and the object, of ``all_gather_object``."""
    out = arguments.argument_for(call, "object_list", place=0)
    what = arguments.argument_for(call, "obj", place=1)
    return (out, what) if out is not None and what is not None else None


def _gathers_argument(function: FunctionRef) -> cst.Call | None:
    """The call by which a function gathers its first argument into what it returns: as an object, or as the bytes of its pickle."""
    scope = function.scope
    params = [p.name.value for p in names.parameters(scope) if p.name.value != names.self_name(scope)]
    if not params:
        return None
    for call in scope.calls:
        last = names.last_name(call.func)
        given = _arguments(call) if last == GATHER else None
        if given is not None and isinstance(given[0], cst.Name) and isinstance(given[1], cst.Name) and given[1].value == params[0]:
            out = given[0].value
            if any(item.value is not None and uses_name(item.value, (out,)) for item in scope.returns):
                return call
        if last == "all_gather" and _pickles(scope, params[0]):
            return call
    return None


def _pickles(scope: Scope, name: str) -> bool:
    """Whether a function pickles its argument, and makes objects of pickles that it returns."""
    given = (a.value for c in scope.calls if names.dotted(c.func) == "pickle.dumps" for a in c.args)
    packs = any(isinstance(value, cst.Name) and value.value == name for value in given)
    return packs and any(names.dotted(c.func) == "pickle.loads" for c in scope.calls) and any(item.value is not None for item in scope.returns)


def _is_scalar(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in _SCALARS
    return isinstance(node, cst.BaseNumber) or (isinstance(node, cst.BinaryOperation) and _is_scalar(node.left))


def _row(module: Module, node: cst.CSTNode) -> tuple[int, int]:
    place = module.place(node)
    return place.row, place.column


def _is_written(module: Module, node: cst.Name) -> bool:
    walk = module.walk
    above = walk.parents.get(node)
    joins = isinstance(above, cst.Attribute) and above.attr.value in _JOINS and isinstance(call := walk.parents.get(above), cst.Call) and call.func is above
    return joins or walk.is_word(node) or walk.is_target(node)


def to_one(gathers: tuple[Gather, ...]) -> Fix:
    """``dist.all_gather_object(out, a)`` → ``dist.gather_object(a, out if dist.get_rank() == 0 else None)``."""
    message = "gather it on one rank: `gather_object`, with a result list on that rank only"
    edits = [_to_one(one) for one in gathers]
    known = tuple(edit for edit in edits if edit is not None)
    return Fix(Safety.UNSAFE, message, known) if len(known) == len(edits) else Fix(Safety.DISPLAY, message)


def _to_one(found: Gather) -> Edit | None:
    given = _arguments(found.node)
    if not found.first or found.others_look or found.primitive is not None or given is None:
        return None
    if not isinstance(found.node.func, cst.Attribute) or len(found.node.args) > 2:  # noqa: PLR2004
        return None
    code = found.module.code
    library = code(found.node.func.value).strip()
    out, what = code(given[0]).strip(), code(given[1]).strip()
    text = Text(found.module.tree)
    return text.replaced(*text.span(found.node), f"{library}.gather_object({what}, {out} if {library}.get_rank() == 0 else None)")
