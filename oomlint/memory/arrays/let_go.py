"""Attributes that an object has, or needs, only while it is built."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst

from oomlint.api_names import OF_DICTS, PUTS_IN, WRAPPERS
from oomlint.memory.arrays.kept_forms import block_around
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import names
from oomlint.model.lifetime import How, endings
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, Instance, Unknown
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend, is_attribute_of, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_GOES_THROUGH: Final = WRAPPERS | {"zip", "range", "len"}
_MOST_FRAMES: Final = 6
_MOST_NAMES: Final = 4  # that a value goes by, one after the other


class Reader(Enum):
    """Whose code reads an attribute."""

    BUILDING = "a method that runs while the object is built"
    METHOD = "another method of the class"
    OTHERS = "code around it, of whatever object"


class Use(NamedTuple):
    """An attribute where it is read."""

    module: Module
    scope: Scope
    node: cst.Attribute
    by: Reader


class LetGo:
    """Answers for what a class keeps. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.constructions = constructions_of(project)
        self._building: AnswerMemory[tuple[Scope, str], bool] = AnswerMemory(project.readings)
        self._idle: AnswerMemory[tuple[Scope, str], bool] = AnswerMemory(project.readings)

    def is_let_go(self, keeper: Keeper, keepers: Iterable[Keeper]) -> bool:
        """Whether the object has lost it once it is built: ``del self.rows``, ``self.rows.clear()`` or something else in its place, behind what keeps it.

        What is put there may be made of it, and keep it as well: then it is one of the ``keepers``.
        """
        if keeper.owner is None or not keeper.attribute:
            return False
        kept = keeper.module.walk.scope_at(keeper.node)
        for module, method, this in self._building_methods(keeper.owner):
            for ending in endings((this, (("attr", keeper.attribute),)), module, method):
                # What another method makes of it is not looked for.
                again = method is not kept or any(one.node is ending.statement and one.attribute == keeper.attribute for one in keepers)
                bound = ending.statement.value if ending.how is How.BOUND and isinstance(ending.statement, cst.Assign) and not again else None
                replaced = bound is not None and not _may_hold(bound, method, keeper.attribute)
                always = (ending.lets_go or replaced) and block_around(module, ending.statement) is method.suite
                if always and _runs_behind(module, method, ending.statement, keeper.module, kept, keeper.node):
                    return True
        return False

    def is_for_building(self, keeper: Keeper) -> bool:
        """Whether nothing but the code that builds the object reads the attribute."""
        if keeper.owner is None or not keeper.attribute:
            return False
        owner = keeper.owner
        return self._building.answer((owner.scope, keeper.attribute), lambda: self._read_by_building(owner, keeper.attribute))

    def _read_by_building(self, owner: ClassRef, attribute: str) -> bool:
        if self.evaluator.extends_dataset(owner):
            return False  # the library's own methods may read it: `slices` of torch_geometric
        read = False
        for use in self._uses(owner, attribute):
            if use.by is Reader.BUILDING and not _hands_on(use.module, use.scope, use.node):
                read = True
            elif use.by is not Reader.OTHERS or self._may_be(use.node.value, use.module, use.scope, owner):
                return False  # its elements stay in something else, or somebody reads it later
        return read

    def serves_no_sample(self, keeper: Keeper) -> bool:
        """Whether no method reads the attribute of a dataset once that is built, and building only reckons with it.

        The mean of each channel that is taken off what is read, the edges of a graph that a model is given as a whole.
        """
        if keeper.owner is None or not keeper.attribute or self.evaluator.extends_dataset(keeper.owner):
            return False
        owner = keeper.owner
        return self._idle.answer((owner.scope, keeper.attribute), lambda: self._is_idle(owner, keeper.attribute))

    def _is_idle(self, owner: ClassRef, attribute: str) -> bool:
        if self.evaluator.method(Instance(owner, None), "__getitem__") is None:
            return False
        for use in self._uses(owner, attribute):
            if use.by is Reader.BUILDING and _only_reckons(use.module, use.node):
                continue
            taken = use.by is not Reader.OTHERS or (_takes_elements(use.module, use.node) and self._may_be(use.node.value, use.module, use.scope, owner))
            if taken:
                return False
        return True

    def _uses(self, owner: ClassRef, attribute: str) -> Iterator[Use]:
        """Where anything reads an attribute of that name, and whether that is code of the class."""
        building = {method for _, method, _ in self._building_methods(owner)}
        family = self._family(owner)
        for module in self.project.mentioning([f".{attribute}".encode()], owner.module.path):
            for scope in module.walk.scopes:
                this = names.self_name(scope)
                for node in scope.nodes(inner=False):
                    if not isinstance(node, cst.Attribute) or node.attr.value != attribute:
                        continue
                    if module.walk.is_target(node) and not isinstance(module.walk.parents.get(node), cst.AugAssign):
                        continue
                    own = this is not None and names.dotted(node.value) == this
                    if own and scope in building:
                        yield Use(module, scope, node, Reader.BUILDING)
                    elif not own or scope.parent in family:
                        yield Use(module, scope, node, Reader.METHOD if own else Reader.OTHERS)

    def _family(self, owner: ClassRef) -> set[Scope]:
        """The classes that share its methods."""
        return {base.scope for base in (*self.evaluator.lineage(owner), *self.evaluator.calls.subclasses(owner)) if isinstance(base, ClassRef)}

    def _may_be(self, node: cst.BaseExpression, module: Module, scope: Scope, owner: ClassRef) -> bool:
        """Whether an expression may be an object of a class, or of one that shares its methods."""
        family = self._family(owner)
        frames = self.evaluator.calls.frames(module, scope)[:_MOST_FRAMES]
        found = [alt.value for frame in frames for alt in self.evaluator.values(node, frame)]
        return not found or any(isinstance(one, Unknown) or (isinstance(one, Instance) and one.cls.scope in family) for one in found)

    def _building_methods(self, owner: ClassRef) -> Iterator[tuple[Module, Scope, str]]:
        """Methods that build an object of the class, and what each calls that object."""
        for cls in self.evaluator.lineage(owner):
            if isinstance(cls, ClassRef):
                for method in cls.scope.children:
                    if (this := names.self_name(method)) is not None and method in self.constructions.building(owner):
                        yield cls.module, method, this


def _may_hold(value: cst.BaseExpression, method: Scope, attribute: str) -> bool:
    """Whether a value may hold what an attribute does without anybody having seen it: an object of a class, what another method reads, rows of rows."""
    for node in descend(value):
        if isinstance(node, cst.CompFor) and node.inner_for_in is not None:
            return True
        name = names.last_name(node.func) if isinstance(node, cst.Call) else ""
        own = (
            method.parent.child(name)
            if method.parent is not None and isinstance(node, cst.Call) and is_attribute_of(node.func, names.self_name(method))
            else None
        )
        if name[:1].isupper() or (own is not None and any(is_attribute_of(one, names.self_name(own)) and one.attr.value == attribute for one in own.nodes())):
            return True
    return False


def _only_reckons(module: Module, node: cst.CSTNode) -> bool:
    """Whether an expression is an operand beside other values, or compared or counted: what that gives is as large as those are."""
    above = module.walk.parents.get(node)
    if isinstance(above, cst.BinaryOperation | cst.Comparison | cst.ComparisonTarget):
        return True
    call = module.walk.parents.get(above) if isinstance(above, cst.Arg) else None
    return isinstance(call, cst.Call) and names.dotted(call.func) in {"len", "print"}


def _takes_elements(module: Module, node: cst.CSTNode) -> bool:
    """Whether elements of a value are taken: by an index, or by a loop."""
    above = module.walk.parents.get(node)
    return isinstance(above, cst.Subscript) or (isinstance(above, cst.For | cst.CompFor) and above.iter is node)


def _hands_on(module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether elements of a value, or what an index takes of them, are put into something else as they are, or may be."""
    parents = module.walk.parents
    here: cst.CSTNode = node
    while True:
        above = parents.get(here)
        if isinstance(above, cst.Subscript) and above.value is here:
            here = above
            continue
        call = parents.get(above) if isinstance(above, cst.Arg | cst.Attribute) else None
        words = _GOES_THROUGH if isinstance(above, cst.Arg) else OF_DICTS
        if not isinstance(call, cst.Call) or names.last_name(call.func) not in words:
            break
        here = call
    if isinstance(above, cst.For | cst.CompFor) and above.iter is here:
        taken = names_in(above.target)
    elif isinstance(above, cst.Assign):
        taken = {name for target in above.targets for name in names_in(target.target)}
    else:
        return _is_put(module, here)
    for _ in range(_MOST_NAMES):
        uses = [use for use in scope.nodes(inner=False) if isinstance(use, cst.Name) and use.value in taken]
        if any(_is_put(module, use) for use in uses):
            return True
        more = {name for use in uses for name in _given(module, use)} - taken
        if not more:
            return False
        taken |= more
    return True


def _displayed(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    """What a value stands in: itself, an index of it, a tuple, list or dictionary that is written around it."""
    parents = module.walk.parents
    while isinstance(above := parents.get(node), cst.Subscript | cst.Element | cst.DictElement | cst.StarredElement | cst.Tuple | cst.List | cst.Dict):
        if isinstance(above, cst.Subscript) and above.value is not node:
            break
        node = above
    return node


def _is_put(module: Module, node: cst.CSTNode) -> bool:
    """Whether a value goes into a container, an attribute or to the caller."""
    node = _displayed(module, node)
    above = module.walk.parents.get(node)
    if isinstance(above, cst.Arg):
        call = module.walk.parents.get(above)
        return isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in PUTS_IN
    if isinstance(above, cst.Assign):
        return any(isinstance(target.target, cst.Attribute | cst.Subscript) for target in above.targets)
    return isinstance(above, cst.Return | cst.Yield | cst.AugAssign | cst.BaseComp)


def _given(module: Module, node: cst.Name) -> Iterator[str]:
    """The names that an assignment gives to a value, or to what stands around it."""
    shown = _displayed(module, node)
    above = module.walk.parents.get(shown)
    if isinstance(above, cst.Assign) and above.value is shown:
        yield from (name for target in above.targets for name in names_in(target.target))


def _call_of(method: Scope, name: str) -> cst.Call | None:
    """Where a method calls another one of its object."""
    this = names.self_name(method)
    return next((call for call in method.calls if names.dotted(call.func) == f"{this}.{name}"), None)


def _runs_behind(module: Module, method: Scope, later: cst.CSTNode, first: Module, kept: Scope, sooner: cst.CSTNode) -> bool:
    """Whether a statement of a method runs behind one of the same method, of one that it calls, or of one that calls it."""
    first_here = sooner if method is kept else _call_of(method, kept.name)
    if first_here is not None:
        return _stands_behind(module, later, first_here) and not _may_leave(module, method, first_here, later)
    call = _call_of(kept, method.name)
    return call is not None and _stands_behind(first, call, sooner)


def _may_leave(module: Module, method: Scope, sooner: cst.CSTNode, later: cst.CSTNode) -> bool:
    """Whether the method may be left between two statements: ``if found: self.rows = load(path); return``."""
    ends = (node for node in method.nodes(inner=False) if isinstance(node, cst.Return))
    return any(_stands_behind(module, one, sooner) and _stands_behind(module, later, one) for one in ends)


def _stands_behind(module: Module, later: cst.CSTNode, sooner: cst.CSTNode) -> bool:
    text = Text(module.tree)
    return text.span(later)[0] > text.span(sooner)[0]
