"""Whole arrays that are read from a file for each sample, although only a part of each is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field

from oomlint.api_names import AS_ARRAY, FACTS, TENSOR_TYPES
from oomlint.memory.arrays.full_reads import is_full
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.per_sample_code import Context, ItemContexts, mentions
from oomlint.memory.shared.attribute_names import small_key, small_name
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.seen_axes import SAME_AXES, of_use
from oomlint.model import names
from oomlint.model.counters import counts_rounds
from oomlint.model.loops import set_in
from oomlint.model.uses import NameUses
from oomlint.model.values import Display
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.full_reads import WholeRead
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

# Calls and methods whose result has the same elements: an index behind them is an index of what they were given.
_SAME_CALLS: Final = AS_ARRAY | TENSOR_TYPES | {"float32", "float64"}
_DEEPEST: Final = 3
_MOST: Final = 8


class Uses(Struct):
    """What becomes of an array after it was read."""

    parts: list[tuple[cst.Subscript, cst.BaseExpression]] = field(default_factory=list)  # the subscript, and what it is a subscript of
    measured: list[cst.BaseExpression] = field(default_factory=list)
    returned: bool = False
    converted: bool = False  # it went through a call that makes another array or tensor of it
    names: set[str] = field(default_factory=set)  # what the array is called on the way
    other: bool = False  # more of it may be needed

    @property
    def some(self) -> bool:
        """Whether it is used, and only in ways that need a part of it."""
        return not self.other and bool(self.parts or self.measured or self.returned)


class ItemRead(Struct, frozen=True, eq=False):
    """A whole array read for each sample."""

    read: WholeRead
    context: Context
    uses: Uses
    where: Context  # the code that the uses stand in
    certain: bool  # the same array is read each time

    @property
    def only_measured(self) -> bool:
        """Whether nothing but its shape is used."""
        return not self.uses.parts

    @property
    def of_length(self) -> bool:
        """Whether it runs for ``len(dataset)``, not for a sample."""
        return self.context.root.loop is None and self.context.root.scope.name == "__len__"


class ItemReads(ItemContexts):
    """Finds them. One for a run; it remembers."""

    def of(self, module: Module) -> Iterator[ItemRead]:
        """The reads that are written in a module."""
        for scope in module.walk.scopes:
            if scope.is_class:
                continue
            for read in self.whole.in_scope(module, scope):
                case = self._case(module, scope, read)
                if case is not None:
                    yield case

    def _case(self, module: Module, scope: Scope, read: WholeRead) -> ItemRead | None:
        for context in [*self.loops(module, scope, read.node, frozenset()), *self.contexts(module, scope)][:_MOST]:
            case = self._judge(read, context)
            if case is not None:
                return case
        return None

    def _judge(self, read: WholeRead, context: Context) -> ItemRead | None:
        this = names.self_name(context.scope)
        same = not mentions(read.source, self.closure(context), this)
        where, node = context, read.node  # what is followed, and in which code
        uses = self._uses(node, where, read)
        while uses.returned and not uses.other:
            if where.outer is None or where.call is None or uses.parts or uses.measured:
                return None
            node, where = where.call, where.outer
            uses = self._uses(node, where, read)
        if not uses.some or (_said_small(read, uses) and not any(of_use(where.module, where.scope, whole).has_rows for _, whole in uses.parts)):
            return None
        if uses.parts and not self._is_part(uses, where, read, same=same):
            return None
        if context.root.scope.name == "__len__" and context.root.loop is None and (uses.parts or not same):
            return None  # whoever asks for the length reads no samples
        if context.root.loop is not None and not uses.parts and not same:
            return None  # the shapes of many arrays, each read once
        return ItemRead(read, context, uses, where, same)

    def _is_part(self, uses: Uses, where: Context, read: WholeRead, *, same: bool) -> bool:
        """Whether the subscripts take parts: of the same array in every round, or one that the sample alone says."""
        blocked = frozenset(uses.names) | (frozenset() if same else frozenset(names_in(read.source)))
        known = self.closure(where, blocked)
        this = names.self_name(where.scope)
        in_loop = where.root.loop is not None
        told = False
        for subscript, _ in uses.parts:
            entries = entries_of(subscript)
            chosen = [entry for entry in entries if mentions(entry, known, this) and not self.is_many(entry, where)]
            if same:
                told = told or bool(chosen)
                if not chosen and (in_loop or not self._is_fixed(entries[0], where)):
                    return False
                if not chosen and _takes_most(entries):
                    return False
                continue
            picked = [entry for entry in chosen if not isinstance(entry, cst.Slice) or (entry.lower is not None and mentions(entry.lower, known, this))]
            if not picked:
                return False
        return told or not in_loop

    def is_many(self, entry: cst.BaseSlice | cst.BaseExpression, where: Context) -> bool:
        """Whether an index is many: then all may be wanted."""
        inner = entry.value if isinstance(entry, cst.Index) else entry
        if isinstance(inner, cst.Slice) or not isinstance(inner, cst.BaseExpression):
            return False
        if isinstance(inner, cst.List | cst.ListComp | cst.Comparison):
            return True
        frame = self.evaluator.calls.plain_frame(where.module, where.scope)
        if any(isinstance(alt.value, Display) for alt in self.evaluator.values(inner, frame)[:4]):
            return True
        return datasets_of(self.project).contents.of(inner, frame).kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}

    def _is_fixed(self, entry: cst.BaseSlice, where: Context) -> bool:
        """Whether an index takes one element or a stretch with two ends, whichever the sample."""
        if isinstance(entry, cst.Slice):
            return entry.lower is not None and entry.upper is not None
        return isinstance(entry, cst.Index) and self.is_integer(entry.value, where)

    def is_integer(self, node: cst.BaseExpression, where: Context, depth: int = 0) -> bool:
        """Whether an expression is proven to be one integer."""
        if isinstance(node, cst.Integer):
            return True
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Minus) and self.is_integer(node.expression, where, depth)
        if isinstance(node, cst.BinaryOperation):
            whole = isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide | cst.Modulo)
            return whole and self.is_integer(node.left, where, depth) and self.is_integer(node.right, where, depth)
        if isinstance(node, cst.Call):
            name = names.last_name(node.func)
            if name in {"int", "len"} and isinstance(node.func, cst.Name):
                return not where.scope.sets(name) and name not in where.module.root.effects
            return names.dotted(node.func) in {"random.randint", "random.randrange"}
        if not isinstance(node, cst.Name) or depth > _DEEPEST:
            return False
        for here in where.module.walk.ancestors(node):
            if here is where.scope.node:
                break
            loop = here.for_in if isinstance(here, cst.BaseComp) else None
            while loop is not None:
                if node.value in names_in(loop.target):
                    return counts_rounds(loop, node.value)
                loop = loop.inner_for_in
        effects = [effect for effect in where.scope.effects.get(node.value, ()) if not effect.path]
        if node.value in names.takes(where.scope) and not self._set_before(node, effects, where):
            return False
        return bool(effects) and all(
            (effect.kind == "for" and counts_rounds(effect.statement, node.value))
            or (effect.kind == "assign" and not effect.index and effect.value is not None and self.is_integer(effect.value, where, depth + 1))
            for effect in effects
        )

    @staticmethod
    def _set_before(node: cst.Name, effects: list[Effect], where: Context) -> bool:
        """Whether every way to the node first gives a parameter another value: ``index = int(index)``."""
        text, body = Text(where.module.tree), set(where.module.walk.body(where.scope))
        start = text.span(node)[0]
        return any(effect.statement in body and text.span(effect.statement)[1] <= start for effect in effects)

    def _uses(self, node: cst.BaseExpression, where: Context, read: WholeRead) -> Uses:
        uses = Uses()
        self._follow(node, where, uses, read, 0)
        return uses

    def _follow(self, node: cst.BaseExpression, where: Context, uses: Uses, read: WholeRead, depth: int) -> None:
        """Note what the code around an expression that is the array does with it."""
        walk = where.module.walk
        holder = walk.parents.get(node)
        if depth > _MOST or holder is None:
            uses.other = True
        elif isinstance(holder, cst.Subscript) and holder.value is node:
            if is_full(holder):
                self._follow(holder, where, uses, read, depth + 1)
            elif isinstance(walk.parents.get(holder), cst.AssignTarget | cst.AugAssign | cst.Del) or self._in_inner_loop(node, holder, where, read):
                uses.other = True
            else:
                uses.parts.append((holder, node))
        elif isinstance(holder, cst.Attribute):
            self._attribute(holder, where, uses, read, depth)
        elif isinstance(holder, cst.Arg):
            self._argument(holder, where, uses, read, depth)
        elif isinstance(holder, cst.Assign) and len(holder.targets) == 1 and isinstance(holder.targets[0].target, cst.Name):
            self._named(holder.targets[0].target, where, uses, read, depth)
        elif isinstance(holder, cst.NamedExpr) and isinstance(holder.target, cst.Name):
            self._named(holder.target, where, uses, read, depth)
            self._follow(holder, where, uses, read, depth + 1)
        elif isinstance(holder, cst.Return):
            uses.returned = True
        elif isinstance(holder, cst.Expr):
            pass  # read for nothing
        else:
            uses.other = True

    def _attribute(self, holder: cst.Attribute, where: Context, uses: Uses, read: WholeRead, depth: int) -> None:
        call = where.module.walk.parents.get(holder)
        if holder.attr.value in FACTS:
            uses.measured.append(holder)
        elif holder.attr.value in SAME_AXES and isinstance(call, cst.Call) and call.func is holder:
            uses.converted = True
            self._follow(call, where, uses, read, depth + 1)
        else:
            uses.other = True

    def _argument(self, holder: cst.Arg, where: Context, uses: Uses, read: WholeRead, depth: int) -> None:
        call = where.module.walk.parents.get(holder)
        if not isinstance(call, cst.Call) or call.args[0] is not holder or holder.star or holder.keyword is not None:
            uses.other = True
        elif isinstance(call.func, cst.Name) and call.func.value == "len" and len(call.args) == 1:
            uses.measured.append(call)
        elif names.last_name(call.func) in _SAME_CALLS:
            uses.converted = True
            self._follow(call, where, uses, read, depth + 1)
        else:
            uses.other = True

    def _named(self, target: cst.Name, where: Context, uses: Uses, read: WholeRead, depth: int) -> None:
        """All reads of a local name that may hold the array."""
        scope, name = where.scope, target.value
        if scope.parent is None and where.loop is None:
            uses.other = True
            return
        if name in scope.outer or name in scope.enclosing or any(effect.path or effect.kind == "augment" for effect in scope.effects.get(name, ())):
            uses.other = True
            return
        uses.names.add(name)
        text, walk = Text(where.module.tree), where.module.walk
        effect = next((one for one in scope.effects.get(name, ()) if one.node is target), None)
        found = False
        for node in NameUses(walk, scope, name).of(effect):
            if isinstance(walk.parents.get(node), cst.Del):
                continue
            if text.span(node)[0] < text.span(target)[0]:  # in the next round of a loop
                uses.other = uses.other or where.loop is None
                continue
            if walk.scope_at(node) is not scope:
                uses.other = True
                return
            found = True
            self._follow(node, where, uses, read, depth + 1)
        uses.other = uses.other or not found

    def _in_inner_loop(self, node: cst.BaseExpression, subscript: cst.Subscript, where: Context, read: WholeRead) -> bool:
        """Whether a loop that the read itself is not part of goes through the elements one by one."""
        walk = where.module.walk
        start = read.node if read.frame.scope is where.scope else (where.call or node)
        outside = set(walk.ancestors(read.node)) | set(walk.ancestors(start))
        known = {name for entry in entries_of(subscript) for name in names_in(entry)}
        for here in walk.ancestors(subscript):
            if here is where.scope.node:
                return False
            if here in outside:
                continue
            if isinstance(here, cst.For | cst.While | cst.BaseComp) and known & set_in(here, walk, where.scope):
                return True
        return False


def _said_small(read: WholeRead, uses: Uses) -> bool:
    """Whether the key or a name on the way is that of one small value a sample."""
    return small_key(read.what.key) or any(small_name(name) for name in uses.names)


def entries_of(subscript: cst.Subscript) -> list[cst.BaseSlice]:
    """The index of each axis."""
    if len(subscript.slice) == 1 and isinstance(subscript.slice[0].slice, cst.Index) and isinstance(subscript.slice[0].slice.value, cst.Tuple):
        inner = subscript.slice[0].slice.value
        return [cst.Index(element.value) for element in inner.elements] or [subscript.slice[0].slice]
    return [element.slice for element in subscript.slice]


def _takes_most(entries: list[cst.BaseSlice]) -> bool:
    """Whether a subscript takes whole rows or columns of everything: ``[:, 0]``, ``[..., :3]``, ``[1:]``."""
    first = entries[0]
    if isinstance(first, cst.Slice):
        return first.lower is None or first.upper is None
    return isinstance(first, cst.Index) and isinstance(first.value, cst.Ellipsis)
