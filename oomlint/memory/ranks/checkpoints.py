"""Checkpoints that every rank reads into its own host memory, and what keeps them there while the training runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.finding import Fix, Safety
from oomlint.memory.arrays.torch_load import is_section, loaded
from oomlint.memory.datasets.serving import Serving
from oomlint.memory.ranks.checkpoint_devices import goes_to_host
from oomlint.memory.ranks.ranks import ranks_of
from oomlint.memory.shared.qualified_names import library_name
from oomlint.model import arguments, names
from oomlint.model.reach import terminates
from oomlint.model.uses import NameUses
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import constant_key, descend, names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.ranks.ranks import Ranks
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

LOADS: Final = frozenset({"torch.load", "torch.serialization.load"})
_TAKES: Final = frozenset({"get", "pop"})
_SAME: Final = frozenset({"items", "values", "copy"})
_WHOLES: Final = frozenset({"dict", "OrderedDict", "list"})


class KeptCheckpoint(Struct, frozen=True, eq=False):
    """A checkpoint that names keep, whole or in parts, while something trains."""

    module: Module
    scope: Scope
    call: cst.Call
    keepers: tuple[str, ...]
    training: cst.CSTNode

    @property
    def words(self) -> str:
        """Who keeps it, and how long."""
        kept = " and ".join(f"`{name}`" for name in self.keepers)
        return f"{kept} {'keeps' if len(self.keepers) == 1 else 'keep'} it for as long as the training runs"


class Weights(Struct, frozen=True, eq=False):
    """A checkpoint that every rank reads."""

    call: cst.Call
    ranks: Ranks
    kept: KeptCheckpoint | None


def weights(module: Module, project: Project) -> Iterator[Weights]:
    """The checkpoints that a module has every rank read into host memory."""
    for call, scope in module.walk.calls:
        if names.last_name(call.func) != "load" and "load" not in names.dotted(call.func):
            continue
        if arguments.has_stars(call) or arguments.has(call, "mmap") or not goes_to_host(module, scope, call, project):
            continue
        if library_name(project, call.func, module, scope) not in LOADS or not loaded(module, scope, call).checkpoint:
            continue
        ranks = ranks_of(project).at(module, scope, call)
        if ranks is not None and not ranks_of(project).names_rank(module, scope, call.args[0].value):
            kept = kept_while_training(module, scope, call, project)
            if kept is None and not ranks.shards and _Life(module, scope, call, project).is_deleted():
                continue  # somebody has thought of it
            yield Weights(call, ranks, kept)


class _Life:
    """How long a function keeps what it has read."""

    def __init__(self, module: Module, scope: Scope, call: cst.Call, project: Project) -> None:
        self.module = module
        self.scope = scope
        self.call = call
        self.project = project
        self.statement = module.walk.statement_of(call)

    def kept(self) -> tuple[tuple[str, ...], cst.CSTNode | None]:
        """The names that keep it while something trains, and what trains."""
        held = self.holders()
        training = self._training() if held else None
        kept = [name for name in held if training is not None and not self._let_go(name, held, training)]
        return (tuple(kept), training) if kept and training is not None and not self._is_needed(kept, training) else ((), None)

    def _is_needed(self, kept: list[str], training: cst.CSTNode) -> bool:
        """Whether something reads it once the training has begun, or may: a function inside."""
        begun, held = self._row(training), self.holders()
        for name in kept:
            inner = (node for node in self.scope.named(name) if not self.module.walk.is_word(node))
            if any(not self._is_before(node) and self.module.walk.scope_at(node) is not self.scope for node in inner):
                return True
            uses = NameUses(self.module.walk, self.scope, name)
            if any(self._row(use) > begun for effect in self._givers(name, held) for use in uses.reached(effect.statement)):
                return True
        return False

    def _givers(self, name: str, held: dict[str, int]) -> list[Effect]:
        """What gives the name the checkpoint, or a section of it."""
        bound = (effect for effect in self.scope.effects.get(name, ()) if effect.kind == "assign" and not effect.path and effect.value is not None)
        return [one for one in bound if not self._is_before(one.node) and one.value is not None and self._depth(one.value, held) is not None]

    def is_deleted(self) -> bool:
        """Whether a name that it is bound to is deleted further down."""
        return any(effect.kind == "delete" and not effect.path for name in self.holders() for effect in self.scope.effects.get(name, ()))

    def holders(self) -> dict[str, int]:
        """Names that the checkpoint, or a section of it, is bound to, each with how deep inside it that is."""
        found: dict[str, int] = {}
        if isinstance(self.statement, cst.Assign) and (depth := self._depth(self.statement.value, found)) is not None:
            found = {t.target.value: depth for t in self.statement.targets if isinstance(t.target, cst.Name)}
        known = 0
        while found and known != len(found):
            known = len(found)
            for name in self.scope.effects:
                depths = [depth for e in self._givers(name, found) if e.value is not None and (depth := self._depth(e.value, found)) is not None]
                if name not in found and depths:
                    found[name] = min(depths)
        return found

    def _depth(self, node: cst.BaseExpression, held: dict[str, int]) -> int | None:
        """How deep inside the checkpoint an expression is; ``None`` where it is nothing of it, or one tensor or number of it."""
        if node is self.call:
            return 0
        if isinstance(node, cst.Name):
            return held.get(node.value)
        if isinstance(node, cst.IfExp | cst.BooleanOperation):
            sides = (node.body, node.orelse) if isinstance(node, cst.IfExp) else (node.left, node.right)
            return min((depth for side in sides if (depth := self._depth(side, held)) is not None), default=None)
        if isinstance(node, cst.Subscript):
            key = node.slice[0].slice.value if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index) else None
            return self._section(node.value, key, held)
        if isinstance(node, cst.DictComp):
            given = names_in(node.for_in.target)
            keeps = uses_name(node.value, given)
            return self._depth(node.for_in.iter, held) if keeps else None
        if not isinstance(node, cst.Call):
            return None
        if isinstance(node.func, cst.Attribute):
            method = node.func.attr.value
            if method in _SAME:
                return self._depth(node.func.value, held)
            if method in _TAKES and node.args:
                return self._section(node.func.value, node.args[0].value, held)
        return self._depth(node.args[0].value, held) if names.last_name(node.func) in _WHOLES and len(node.args) == 1 else None

    def _section(self, whole: cst.BaseExpression, key: cst.BaseExpression | None, held: dict[str, int]) -> int | None:
        depth = self._depth(whole, held)
        if depth is None or key is None:
            return None
        known = constant_key(key)
        return depth + 1 if is_section(known) or (depth == 0 and not isinstance(known, str)) else None

    def _let_go(self, name: str, held: dict[str, int], training: cst.CSTNode) -> bool:
        """Whether the name goes, or gets something else, before the training begins, and not for some processes only."""
        calls = [(e, e.value) for e in self.scope.effects.get(name, ()) if isinstance(e.value, cst.Call)]
        made = [e for e, call in calls if any(self._depth(arg.value, held) is not None for arg in call.args)]  # of it, by something that may keep it
        return NameUses(self.module.walk, self.scope, name).bindings(training).isdisjoint([*self._givers(name, held), *made])

    def _is_before(self, node: cst.CSTNode) -> bool:
        return self._row(node) < self._row(self.statement)

    def _row(self, node: cst.CSTNode) -> tuple[int, int]:
        place = self.module.place(node)
        return place.row, place.column

    def _training(self) -> cst.CSTNode | None:
        """What trains after the file was read, in the function that read it."""
        serving = self.project.shared(Serving)
        for loop in self.scope.loops:
            if self._comes_to(loop) and serving.trains(self.module, loop):
                return loop
        for call in self.scope.calls:
            if self._comes_to(call) and serving.call_trains(self.module, self.scope, call):
                return call
        return None

    def _comes_to(self, node: cst.CSTNode) -> bool:
        """Whether the code at ``node`` may run after the file was read."""
        if self._is_before(node) or self.statement in (around := set(self.module.walk.ancestors(node))):
            return False
        for here in self.module.walk.ancestors(self.statement):
            if here in around:
                return not isinstance(here, cst.If | cst.Try)
            if isinstance(here, cst.IndentedBlock) and terminates(here):
                return False
        return True


def kept_while_training(module: Module, scope: Scope, call: cst.Call, project: Project) -> KeptCheckpoint | None:
    """A checkpoint that names keep while something trains, wherever its tensors are sent to."""
    keepers, training = _Life(module, scope, call, project).kept()
    return KeptCheckpoint(module, scope, call, keepers, training) if training is not None else None


def released(found: KeptCheckpoint, project: Project) -> Fix | None:
    """The fix that lets go of a checkpoint once it was used last: ``del checkpoint``."""
    life = _Life(found.module, found.scope, found.call, project)
    walk = found.module.walk
    line = walk.parents.get(life.statement)
    block = walk.parents.get(line) if line is not None else None
    if not isinstance(block, cst.IndentedBlock | cst.Module) or found.module.source.cells:
        return None
    if any(isinstance(call.func, cst.Name) and call.func.value in {"locals", "vars", "eval", "exec"} for call in found.scope.calls):
        return None  # what reads every name there is
    lines = list(block.body)
    inside = set(descend(block))
    own = {node for item in lines if isinstance(item, cst.SimpleStatementLine) for node in item.body}
    for name in found.keepers:
        bound = [e.statement for e in found.scope.effects.get(name, ()) if e.kind == "assign" and not e.path]
        if not any(statement in own for statement in bound) or name in walk.shared:
            return None  # it may have no value there
    uses = [node for name in found.keepers for node in found.scope.named(name) if not walk.is_word(node)]
    if any(isinstance(a, cst.For | cst.While) for a in walk.ancestors(life.statement)):
        return None  # the next round may read it first
    if any(use not in inside and not life._is_before(use) for use in uses):  # noqa: SLF001 - of this module
        return None
    last = max((n for n, item in enumerate(lines) if any(use in set(descend(item)) for use in uses)), default=None)
    if last is None or any(node is found.training for node in descend(lines[last])):
        return None
    text = Text(found.module.tree)
    end = text.span(lines[last])[1]
    stop = end + len(re.match(r"[^\r\n]*", text.text[end:]).group())  # type: ignore[union-attr] # it matches nothing, too
    row = text.starts[text.spot(text.span(lines[0])[0])[0] - 1]
    indent = re.match(r"[ \t]*", text.text[row:]).group()  # type: ignore[union-attr] # it matches nothing, too
    safety = Safety.UNSAFE if isinstance(block, cst.Module) else Safety.SAFE
    return Fix(safety, "delete it after its last use", (text.replaced(stop, stop, f"\n{indent}del {', '.join(found.keepers)}"),))
