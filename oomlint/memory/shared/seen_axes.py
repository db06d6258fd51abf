"""How many axes an array has by what is done with it (``x[i, :-1]``, ``n, rows, columns = x.size()``), or that its rows are numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import JOINS, PICTURE_OF_ARRAY
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.tensor_shapes import POOLS, axes_of, is_rest, pooled
from oomlint.model.tensor_state import ROWS
from oomlint.model.torch_tables import PAIRS, PICKS, REDUCTIONS
from oomlint.model.uses import NameUses
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_DEEPEST: Final = 3  # names of a part of a part
SAME_AXES: Final = frozenset("float long int double half byte to cpu cuda numpy clone copy detach contiguous astype".split())
_MOVES_AXES: Final = frozenset({"permute", "transpose", "swapaxes"})
_VIEWS: Final = frozenset({"view", "reshape"})
_TAKES_ONE: Final = frozenset({"squeeze", "select", "diagonal"})
_FLATTENS: Final = frozenset({"flatten", "ravel"})
_ALL: Final = 9  # axes: more than any tensor has
_PADS: Final = frozenset({"pad", "pad_sequence"})
_ONE: Final = frozenset({"int", "float"})
_COUNTS: Final = frozenset({"range"})
_MAKES_PICTURE: Final = PICTURE_OF_ARRAY.rpartition(".")[2]


class Axes(Struct, frozen=True):
    """What the uses of an array show."""

    least: int = 0  # axes, at least
    single: bool = False  # an element of it is one number
    windows: bool = False  # what is taken of it lies between two bounds
    is_number: bool = False  # all of it is one number, with no axis

    def joined(self, other: Axes) -> Axes:
        """What two uses show together."""
        return Axes(max(self.least, other.least), self.single or other.single, self.windows or other.windows, self.is_number or other.is_number)

    @property
    def has_rows(self) -> bool:
        """Whether there is more than one number for each sample."""
        return self.least >= ROWS

    @property
    def one_number(self) -> bool:
        """Whether there is one number for each sample."""
        return self.single and not self.windows and not self.has_rows

    @property
    def outer(self) -> Axes:
        """What its being a row shows of the array."""
        return Axes(self.least + 1) if self.least else Axes()


NONE: Final = Axes()


class SeenAxes:
    """Answers for attributes of classes and for local names. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self._classes: AnswerMemory[Scope, dict[str, Axes]] = AnswerMemory(project.readings)

    def of_attribute(self, lineage: Iterable[object], attribute: str) -> Axes:
        """What the methods of a class and of its bases show of an attribute."""
        found = NONE
        for cls in lineage:
            if not isinstance(cls, ClassRef):
                continue
            known = self._classes.get(cls.scope)
            if known is None:
                known = self._classes[cls.scope] = _of_class(cls)
            found = found.joined(known.get(attribute, NONE))
        return found


def _of_class(cls: ClassRef) -> dict[str, Axes]:
    found: dict[str, Axes] = {}
    for method in cls.scope.children:
        this = names.self_name(method)
        for node in method.nodes() if this is not None else ():
            if is_attribute_of(node, this):
                seen = of_use(cls.module, method, node)
                if seen != NONE:
                    found[node.attr.value] = found.get(node.attr.value, NONE).joined(seen)
    return found


def of_same(module: Module, scope: Scope, node: cst.BaseExpression) -> Axes:
    """What a function shows of a value that is one of its variables, on whatever device and of whatever type."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in SAME_AXES:
        node = node.func.value
    return of_name(module, scope, node.value, node) if isinstance(node, cst.Name) else NONE


def of_name(module: Module, scope: Scope, name: str, at: cst.CSTNode, depth: int = 0) -> Axes:
    """What a function shows of a variable where it has what a statement or its target gives it, or else what it holds there."""
    uses = NameUses(module.walk, scope, name)
    return _of_bindings(module, scope, uses, uses.made(at) or uses.bindings(at), depth)


def _of_bindings(module: Module, scope: Scope, uses: NameUses, held: set[Effect | None], depth: int) -> Axes:
    """What is shown of a variable where it has these values, and of what they were made of where that was its own."""
    found = NONE
    for node in scope.named(uses.name):
        if not held.isdisjoint(uses.bindings(node)):
            found = found.joined(of_use(module, scope, node, depth))
    for effect in held if depth < _DEEPEST else ():
        value = effect.value if effect is not None and effect.kind == "assign" else None
        own = next((part for part in descend(value) if isinstance(part, cst.Name) and part.value == uses.name), None) if value is not None else None
        if own is not None and (taken := _axes_taken(module, own, value)) is not None:
            before = _of_bindings(module, scope, uses, uses.bindings(own) - held, depth + 1)
            found = found.joined(replace(before, least=max(before.least - taken, 0)))
    return found


def _axes_taken(module: Module, own: cst.Name, value: cst.BaseExpression | None) -> int | None:
    """How many axes of a variable an expression that is made of it takes away: ``x.squeeze(1)``, ``x.max(dim=1)``. ``None`` where it takes others, or all."""
    taken, inner = 0, cast("cst.CSTNode", own)
    for here in module.walk.ancestors(own):
        if isinstance(here, cst.Subscript) and inner is here.value:
            taken += sum(isinstance(part := one.slice, cst.Index) and not _adds_axis(part.value) for one in here.slice)
        if isinstance(here, cst.Call):
            last, before = names.last_name(here.func), int(inner is not here.func)
            fewer: int | None = 0
            if last in _TAKES_ONE:
                fewer = 1
            elif last in REDUCTIONS | PICKS | PAIRS:
                fewer = axes_of(here, before)
            elif last in _VIEWS | _FLATTENS or (POOLS.fullmatch(last) and pooled(here, _ALL) < _ALL):
                return None
            if fewer is None:
                return None
            taken += fewer
        if here is value:
            break
        inner = here
    return taken


def of_use(module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> Axes:
    """What one use of an array shows: where its name stands, or an expression that has as many axes."""
    parent = module.walk.parents.get(node)
    match parent:
        case cst.Subscript(value=value) if value is node:
            return _indexed(module, scope, parent, depth)
        case cst.Attribute(value=value) if value is node:
            return _asked(module, scope, parent, depth)
        case cst.Arg():
            return _passed(module, parent)
        case cst.Element():
            return _in_list(module, parent)
        case cst.Assign(value=value) if value is node and depth < _DEEPEST:
            if isinstance(node, cst.Subscript | cst.Call):
                return _of_target(module, scope, parent.targets[0].target, depth + 1)
    return NONE


def _of_target(module: Module, scope: Scope, target: cst.BaseExpression, depth: int) -> Axes:
    """What a function shows of what it puts under a name, or in a place that it writes in the same way where it reads: ``parts[i] = torch.cat(parts[i])``."""
    if isinstance(target, cst.Name):
        return of_name(module, scope, target.value, target, depth)
    found = NONE
    if isinstance(target, cst.Subscript | cst.Attribute):
        code = module.code(target)
        for node in scope.nodes():
            if type(node) is type(target) and node is not target and module.code(node) == code:
                found = found.joined(of_use(module, scope, node, depth))
    return found


def _indexed(module: Module, scope: Scope, node: cst.Subscript, depth: int) -> Axes:
    """An index of two parts counts axes where it cuts one that is no table's column: at a bound that is computed, or from the end."""
    parts = [one.slice for one in node.slice if not (isinstance(one.slice, cst.Index) and _adds_axis(one.slice.value))]
    if len(parts) == ROWS and isinstance(parts[0], cst.Slice) and not _cuts(parts[0]) and _unpacks_numbers(module, scope, node):
        return Axes(single=True)  # `rows, columns = x[:, i]`: a few numbers for each
    if len(parts) > 1:
        cut = any(isinstance(part, cst.Slice) and _cuts(part) for part in parts[1:])
        return Axes(len(parts)) if cut or len(parts) > ROWS else NONE
    if not parts:
        return NONE
    first = parts[0]
    if isinstance(first, cst.Slice):
        part = of_use(module, scope, node, depth)
        return part.joined(Axes(1, windows=True)) if _cuts(first) else part
    if not isinstance(first, cst.Index) or isinstance(first.value, cst.BaseNumber | cst.BaseString | cst.Tuple):
        return NONE
    row = of_use(module, scope, node, depth)
    return Axes(single=True) if _is_number(module, scope, node) else row.outer


def _adds_axis(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Ellipsis) or names.adds_axis(node)


def _cuts(part: cst.Slice) -> bool:
    bounds = [bound for bound in (part.lower, part.upper) if bound is not None]
    return any(not isinstance(bound, cst.BaseNumber) for bound in bounds)


def _is_number(module: Module, scope: Scope, node: cst.Subscript) -> bool:
    """Whether a row is taken for one number: ``x[i].item()``, ``int(x[i])``, ``count = x[i]`` and ``y[:count]`` then."""
    parent = module.walk.parents.get(node)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "item"
    if isinstance(parent, cst.Assign) and parent.value is node and isinstance(parent.targets[0].target, cst.Name):
        return _counts_with(module, scope, parent.targets[0].target)
    return _is_given(module, node, _ONE) or _is_count(module, node)


def _unpacks_numbers(module: Module, scope: Scope, node: cst.Subscript) -> bool:
    """Whether the parts of a value get names of their own, one of which is taken for a number."""
    parent = module.walk.parents.get(node)
    target = parent.targets[0].target if isinstance(parent, cst.Assign) and parent.value is node else None
    found = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else []
    return all(isinstance(one, cst.Name) for one in found) and any(isinstance(one, cst.Name) and _counts_with(module, scope, one) for one in found)


def _counts_with(module: Module, scope: Scope, name: cst.Name) -> bool:
    """Whether a name that is bound once stands where only a number can."""
    bound = [effect for effect in scope.effects.get(name.value, ()) if not effect.path]
    return len(bound) == 1 and any(_is_count(module, node) for node in scope.named(name.value))


def _is_count(module: Module, node: cst.BaseExpression) -> bool:
    """Whether an expression is a bound of a slice, or what ``range`` is given: of an array, that is one number, and of a list no text."""
    return isinstance(module.walk.parents.get(node), cst.Slice) or _is_given(module, node, _COUNTS)


def _is_given(module: Module, node: cst.BaseExpression, functions: frozenset[str]) -> bool:
    parent = module.walk.parents.get(node)
    call = module.walk.parents.get(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in functions and len(call.args) == 1


def _asked(module: Module, scope: Scope, node: cst.Attribute, depth: int) -> Axes:
    """``x.shape[2]``, ``n, rows, columns = x.size()``, ``x.permute(0, 2, 1)``, ``x.float()[i]``."""
    name, parent = node.attr.value, module.walk.parents.get(node)
    call = parent if isinstance(parent, cst.Call) and parent.func is node else None
    if name == "shape" and call is None:
        if isinstance(parent, cst.Subscript) and len(parent.slice) == 1 and isinstance(parent.slice[0].slice, cst.Index):
            return _measured(_counted([parent.slice[0].slice.value]))
        return _unpacked(module, node)
    if call is None:
        return NONE
    if name == "item" and not call.args:
        return Axes(is_number=True)
    if name == "size":
        return _measured(_counted([arg.value for arg in call.args])) if call.args else _unpacked(module, call)
    if name in _MOVES_AXES:
        return _counted([arg.value for arg in call.args])
    if name in _VIEWS and len(call.args) == ROWS and is_rest(call.args[0].value) and not isinstance(call.args[1].value, cst.Integer):
        return Axes(ROWS + 1)  # rows of samples are laid below each other; so many columns as are written may be parts of a row
    return of_use(module, scope, call, depth) if name in SAME_AXES else NONE


def _counted(axes: list[cst.BaseExpression]) -> Axes:
    """The axes that there are where those of these numbers are."""
    return Axes(max((int(one.evaluated_value) + 1 for one in axes if isinstance(one, cst.Integer)), default=0))


def _unpacked(module: Module, node: cst.BaseExpression) -> Axes:
    holder = module.walk.parents.get(node)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and holder.value is node else None
    shown = isinstance(target, cst.Tuple) and all(isinstance(one, cst.Element) for one in target.elements)
    return _measured(Axes(len(target.elements))) if shown and isinstance(target, cst.Tuple) else NONE


def _measured(axes: Axes) -> Axes:
    """What a length shows: the second of two may be a number of classes."""
    return Axes(1) if axes.least == ROWS else axes


def _in_list(module: Module, node: cst.Element) -> Axes:
    """``torch.cat((head, x), dim=1)``."""
    parents = module.walk.parents
    above = parents.get(parents[node])
    call = parents.get(above) if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or names.last_name(call.func) not in JOINS or call.args[0] is not above:
        return NONE
    axis = next((one for key in ("dim", "axis") if (one := arguments.named(call, key)) is not None), call.args[1].value if len(call.args) > 1 else None)
    return _counted([axis]) if axis is not None else NONE


def _passed(module: Module, node: cst.Arg) -> Axes:
    """A row that is padded has a length of its own; what a picture is made of has rows and columns."""
    call = module.walk.parents.get(node)
    if not isinstance(call, cst.Call) or call.args[0] is not node:
        return NONE
    if names.last_name(call.func) in _PADS:
        return Axes(1)
    return Axes(ROWS) if _makes_picture(module, call) else NONE


def _makes_picture(module: Module, call: cst.Call) -> bool:
    if names.last_name(call.func) != _MAKES_PICTURE:
        return False
    found = evaluator_of(module.project).plainly(call.func, module, module.walk.scope_at(call))
    return any(isinstance(alt.value, External) and names.canonical(alt.value.name) == PICTURE_OF_ARRAY for alt in found)
