"""Where data goes after it was read: forward, from the expression that reads it to the dataset that keeps it.

A value is followed through names, containers, arithmetic, the functions of the project and their callers, until an attribute of a dataset takes it, or a
loader. What makes it small on the way (a length, a mean, a shape, one element) ends the search.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.attribute_names import may_be_data, small_by_name
from oomlint.memory.construction import constructions_of
from oomlint.memory.loaders import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External, FunctionRef, Instance
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope, Walk

_DEEPEST: Final = 12  # functions on the way
_MOST_SITES: Final = 6
_STEPS: Final = 4_000  # for one read
# Attributes, methods and functions whose result is small whatever they are asked of.
_SMALL_ATTRIBUTES: Final = frozenset("shape size ndim dtype nbytes columns index device itemsize name names".split())
_SMALL_METHODS: Final = frozenset(
    "mean std sum max min any all item argmax argmin nunique unique keys count index close var prod median nonzero dim numel size tell "
    "decode startswith endswith find isdigit load_state_dict eval train info describe head __len__ quantile nanmean group groups apply_ is_cuda".split(),
)
_SMALL_FUNCTIONS: Final = frozenset(
    "len sum max min print range isinstance type any all hash repr mean std var median unique count_nonzero bincount Counter amax amin argmax argmin "
    "nanmean nanstd percentile quantile id show plot imshow save savez savez_compressed dump dumps savetxt to_csv imsave imwrite write log info debug "
    "warning warn error allclose array_equal isnan isfinite isinf histogram where argwhere nonzero searchsorted ndim shape size format summary hasattr "
    "getattr set linspace".split(),
)
_REDUCES: Final = frozenset({"mean", "std", "sum", "max", "min", "amax", "amin", "median"})  # of one sample they may be arrays
_DATA_WORDS: Final = re.compile(rb"data_?set|data_?loader|__getitem__|data_?module", re.IGNORECASE)
_FILES: Final = re.compile(r"path|file|glob|listdir|walk|iterdir|\bfn|fname|json|scandir")
_JOINS: Final = frozenset("stack array concatenate vstack hstack dstack column_stack row_stack asarray cat concat tensor".split())
_SCALARS: Final = frozenset({"int", "float", "bool", "str"})  # of a part they are the part
_SAME_ATTRIBUTES: Final = frozenset({"T", "mT", "values", "array", "iloc", "loc", "at", "flat", "real", "imag"})
_LOOKS_UP: Final = frozenset({"get", "pop", "index", "lookup", "load_state_dict", "count", "join", "startswith", "isin"})
_INTO: Final = frozenset({"append", "extend", "add", "insert", "update", "appendleft", "put", "push", "setdefault"})
_DATASETS: Final = frozenset({"DataLoader", "TensorDataset", "Subset", "ConcatDataset", "random_split", "StackDataset"})


class Does(Enum):
    """What is done with the data on its way."""

    JOINS = "a list of it becomes one array"
    SCALES = "bytes become floating-point numbers"
    LISTS = "numbers become Python objects"
    COPIES = "it is copied"


@dataclass(frozen=True, slots=True)
class Passed:
    """One thing that is done with the data on its way."""

    does: Does
    module: Module
    node: cst.BaseExpression


@dataclass(frozen=True, slots=True)
class Keeper:
    """Who keeps the data: an attribute of a dataset, or a call that makes a dataset of it."""

    module: Module
    node: cst.CSTNode  # the statement or call
    attribute: str  # empty for a call
    owner: ClassRef | None  # the dataset's class
    words: str  # for a message: ```data` of `Clips```
    many: bool  # read again and again, in a loop without a small bound
    collected: bool  # its elements went into another container
    names: tuple[str, ...]  # of variables and keys on the way, the last one last
    passed: tuple[Passed, ...] = ()  # what was done with it on the way
    given: bool = False  # the dataset did not make it: it was handed over as an argument


@dataclass(frozen=True, slots=True)
class _Going:
    """What is known of the value on its way."""

    many: bool = False
    collected: bool = False
    index: int | None = None  # its place in a tuple that a function returns
    names: tuple[str, ...] = ()
    part: bool = False  # an element of it
    inside: str = ""  # the attribute of an object that holds it
    listed: bool = False  # it is in a list, not yet in an array
    given: bool = False  # it was handed to a dataset
    rebuilt: bool = False  # its elements are in another container than they were read into
    passed: tuple[Passed, ...] = ()
    depth: int = 0

    def doing(self, does: Does, module: Module, node: cst.BaseExpression) -> _Going:
        """The same after something was done with it."""
        done = Passed(does, module, node)
        return self if done in self.passed else replace(self, passed=(*self.passed, done))

    def named(self, name: str) -> _Going:
        """The same under another name."""
        return replace(self, names=(*self.names, name)) if name not in self.names[-1:] else self


@dataclass(slots=True)
class _Search:
    """One search: what it has found and what it has seen."""

    found: list[Keeper] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)
    steps: int = 0
    todo: deque[tuple[Module, cst.CSTNode, _Going]] = field(default_factory=deque)
    inside: Scope | None = None  # the one function that is looked at, where it is not all of them
    parts: bool = False  # a container of its parts counts too
    returns: set[int | None] = field(default_factory=set)  # where it gives back the value


class Kept:
    """Follows values forward. One for a run."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.constructions = constructions_of(project)
        self._uses: dict[Scope, dict[str, list[tuple[int, cst.Name]]]] = {}
        self._order: dict[Scope, dict[cst.CSTNode, int]] = {}
        self._spoken: dict[str, bool] = {}
        self._passes: dict[tuple[Scope, str], frozenset[int | None]] = {}
        self._memo: dict[tuple[cst.CSTNode, int | None], tuple[Keeper, ...]] = {}

    def of(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Who keeps the value of an expression (or what stands at ``index`` in it), nearest first; nobody where it is not known to be kept."""
        key = (node, index)
        known = self._memo.get(key)
        if known is None:
            search = _Search()
            mapped = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "map"
            going = _Going(many=self.repeats(module, node), index=index, listed=mapped)
            if isinstance(node, cst.Call) and names.last_name(node.func) == "read_direct" and node.args:
                self._target(search, module, node, node.args[0].value, going)  # it fills what it is given
            else:
                self._climb(search, module, node, going)
            self._run(search)
            known = self._memo[key] = tuple(search.found)
        return known

    def returned(self, module: Module, node: cst.BaseExpression, *, collected: bool = False) -> frozenset[int | None]:
        """Where a function returns or yields the value of an expression in it: as it is, or also what it has ``collected`` of its parts.

        Positions in the tuple that it returns; ``None`` is the whole. Empty where the value stays inside.
        """
        search = _Search(inside=module.walk.scope_at(node), parts=collected)
        self._climb(search, module, node, _Going())
        self._run(search)
        return frozenset(search.returns)

    # -- upwards through an expression ---------------------------------------------------------------------------------

    @staticmethod
    def _climb(search: _Search, module: Module, node: cst.CSTNode, going: _Going) -> None:
        """Follow the value of ``node`` next."""
        search.todo.append((module, node, going))

    def _run(self, search: _Search) -> None:
        while search.todo and search.steps <= _STEPS:
            self._follow(search, *search.todo.popleft())

    def _follow(self, search: _Search, module: Module, node: cst.CSTNode, going: _Going) -> None:
        """Follow the value of ``node`` to the statement that it is part of, and on from there."""
        walk = module.walk
        while True:
            search.steps += 1
            if search.steps > _STEPS:
                return
            parent = walk.parents.get(node)
            match parent:
                case None:
                    return
                case cst.Attribute():
                    onto = self._attribute_of(walk, parent, going)
                    if onto is None:
                        return
                    going = onto
                case cst.Call():  # a method of the value, or what an argument gives
                    if isinstance(node, cst.Attribute) and node.attr.value in {"tolist", "to_dict"}:
                        going = going.doing(Does.LISTS, module, parent)
                    if going.inside or (isinstance(node, cst.Attribute) and node.attr.value in _SMALL_METHODS):
                        return
                case cst.Arg():
                    call = walk.parents[parent]
                    if not isinstance(call, cst.Call):
                        return
                    onward = self._argument(search, module, call, parent, going)
                    if onward is None:
                        return
                    going = onward
                    node = call
                    continue
                case cst.Subscript():
                    if node is not parent.value:
                        return
                    inner = self._subscript(module, parent, going)
                    if inner is None or going.inside:
                        return
                    going = inner
                case cst.Element() | cst.StarredElement() | cst.DictElement() | cst.StarredDictElement():
                    holder = walk.parents[parent]
                    if (
                        isinstance(holder, cst.Tuple)
                        and isinstance(parent, cst.Element)
                        and isinstance(walk.parents.get(holder), cst.Return | cst.Yield | cst.Assign)
                    ):
                        going = replace(going, index=list(holder.elements).index(parent))
                    if isinstance(parent, cst.DictElement):
                        if node is parent.key:
                            return
                        if isinstance(parent.key, cst.SimpleString):
                            going = going.named(str(parent.key.evaluated_value))
                    if isinstance(holder, cst.List) or (isinstance(holder, cst.Tuple) and isinstance(walk.parents.get(holder), cst.Arg)):
                        going = replace(going, listed=True)
                    node = holder
                    continue
                case cst.BinaryOperation():
                    if isinstance(parent.operator, cst.Divide) and node is parent.left and byte_range(parent.right):
                        going = going.doing(Does.SCALES, module, parent)
                case cst.Comparison() | cst.FormattedStringExpression() | cst.Assert() | cst.Del() | cst.Index() | cst.Slice() | cst.While():
                    return
                case cst.IfExp():
                    if node is parent.test:
                        return
                case cst.If():
                    return
                case cst.Lambda() | cst.FunctionDef() | cst.ClassDef():
                    return
                case cst.ListComp() | cst.SetComp() | cst.GeneratorExp() | cst.DictComp():
                    if isinstance(parent, cst.DictComp) and node is parent.key:
                        return
                    going = replace(going, collected=going.collected or going.part, part=False, listed=going.listed or isinstance(parent, cst.ListComp))
                case cst.CompFor():
                    if node is not parent.iter:
                        return
                    self._comprehension(search, module, parent, going)
                    return
                case cst.For():
                    if node is parent.iter:
                        scope = walk.scope_at(parent)
                        for name in _names_of(parent.target):
                            self._name(search, module, scope, name, parent.target, replace(going.named(name), part=True))
                    return
                case cst.WithItem():
                    if parent.asname is not None and isinstance(parent.asname.name, cst.Name):
                        self._name(search, module, walk.scope_at(parent), parent.asname.name.value, parent, going)
                    return
                case cst.Assign():
                    for target in parent.targets:
                        self._target(search, module, parent, target.target, going)
                    return
                case cst.AnnAssign() | cst.AugAssign() | cst.NamedExpr():
                    self._target(search, module, parent, parent.target, going)
                    if not isinstance(parent, cst.NamedExpr):
                        return
                case cst.Return():
                    self._returned(search, module, walk.scope_at(parent), going)
                    return
                case cst.Yield():
                    self._returned(search, module, walk.scope_at(parent), replace(going, index=None, many=going.many))
                    return
                case cst.BaseExpression() | cst.From():
                    pass
                case _:
                    return
            node = parent

    @staticmethod
    def _attribute_of(walk: Walk, node: cst.Attribute, going: _Going) -> _Going | None:
        """What an attribute of the value holds of it; ``None`` where that is something else."""
        name = node.attr.value
        if going.inside:
            return replace(going, inside="") if name == going.inside else None
        if name in _SMALL_ATTRIBUTES:
            return None
        called = walk.parents.get(node)
        if (isinstance(called, cst.Call) and called.func is node) or name in _SAME_ATTRIBUTES or may_be_data(name):
            return going
        return None

    def _subscript(self, module: Module, node: cst.Subscript, going: _Going) -> _Going | None:
        """What an index leaves of the value; ``None`` where that is one element of many."""
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return replace(going, index=None)
        key = node.slice[0].slice.value
        if isinstance(key, cst.SimpleString | cst.ConcatenatedString):
            return replace(going.named(str(key.evaluated_value)), index=None)
        if isinstance(key, cst.Integer):
            place = int(key.evaluated_value)
            return None if going.index is not None and going.index != place else replace(going, index=None)
        if isinstance(key, cst.Ellipsis | cst.Tuple):
            return going
        if isinstance(key, cst.Name) and self._counts(module, node, key.value):
            return replace(going, part=True)
        return replace(going, index=None)

    def _counts(self, module: Module, node: cst.CSTNode, name: str) -> bool:
        """Whether a name is the variable of a loop around the node: what it picks is an element."""
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.For) and name in _names_of(here.target):
                return True
            if isinstance(here, cst.ListComp | cst.DictComp | cst.GeneratorExp | cst.SetComp) and name in _names_of(here.for_in.target):
                return True
            if isinstance(here, cst.FunctionDef):
                return False
        return False

    def _comprehension(self, search: _Search, module: Module, loop: cst.CompFor, going: _Going) -> None:
        """``[f(x) for x in value]``: what is made of the elements is a whole again."""
        holder: cst.CSTNode = loop
        while isinstance(holder, cst.CompFor):
            holder = module.walk.parents[holder]
        wanted = set(_names_of(loop.target))
        made = [holder.elt] if isinstance(holder, cst.ListComp | cst.SetComp | cst.GeneratorExp) else [holder.value] if isinstance(holder, cst.DictComp) else []
        for root in made:
            for use in descend(root):
                if isinstance(use, cst.Name) and use.value in wanted and self._reaches(module, use, root):
                    self._climb(search, module, holder, replace(going, part=False, collected=going.collected or use is not root, rebuilt=True))
                    return

    @staticmethod
    def _reaches(module: Module, use: cst.CSTNode, root: cst.CSTNode) -> bool:
        """Whether the value of ``use`` is part of ``root``, by the form of the expression alone."""
        node = use
        while node is not root:
            parent = module.walk.parents[node]
            if isinstance(parent, cst.Attribute):
                if node is parent.attr or parent.attr.value in _SMALL_ATTRIBUTES | (_SMALL_METHODS - _REDUCES):
                    return False
            elif isinstance(parent, cst.Call) and node is not parent.func and names.last_name(parent.func) in _SMALL_FUNCTIONS - _REDUCES:
                return False
            elif isinstance(parent, cst.Arg):
                call = module.walk.parents[parent]
                if isinstance(call, cst.Call) and names.last_name(call.func) in _SMALL_FUNCTIONS - _REDUCES:
                    return False
            elif isinstance(parent, cst.Subscript) and isinstance(parent.slice[0].slice, cst.Index):
                key = parent.slice[0].slice.value
                if isinstance(key, cst.SimpleString) and constant_small(str(key.evaluated_value)):
                    return False
            elif isinstance(parent, cst.Comparison | cst.Index | cst.FormattedStringExpression):
                return False
            node = parent
        return True

    # -- into calls ----------------------------------------------------------------------------------------------------

    def _argument(self, search: _Search, module: Module, call: cst.Call, arg: cst.Arg, going: _Going) -> _Going | None:
        """Follow the value into what is called; what holds for the result of the call, or ``None`` where the value ends there."""
        last = names.last_name(call.func)
        walk = module.walk
        if isinstance(call.func, cst.Attribute) and last in _INTO:
            position = 0 if last not in {"insert", "setdefault"} else 1
            if arg.keyword is None and list(call.args).index(arg) != position:
                return None
            self._target(
                search,
                module,
                call,
                call.func.value,
                replace(
                    going,
                    collected=going.collected or (going.part and not isinstance(arg.value, cst.Name)),
                    rebuilt=going.rebuilt or going.part,
                    part=False,
                    listed=last == "append",
                ),
            )
            return None
        if last in _SMALL_FUNCTIONS or (isinstance(call.func, cst.Attribute) and last in _LOOKS_UP):
            return None
        if last in _SCALARS and not going.part:
            return None
        if last in {"register_buffer", "setattr"} and isinstance(call.func, cst.Name | cst.Attribute):
            name = next((str(a.value.evaluated_value) for a in call.args if isinstance(a.value, cst.SimpleString)), "")
            self._attribute(search, module, call, walk.scope_at(call), name, going)
            return None
        if arg.keyword is not None and isinstance(call.func, cst.Name) and call.func.value == "dict":
            going = going.named(arg.keyword.value)
        if last in _JOINS and going.listed and call.args and call.args[0] is arg and not names.dotted(call.func).startswith(("pd.", "pandas.")):
            going = replace(going.doing(Does.JOINS, module, call), listed=False)
        elif last in {"tensor", "array"} and not going.listed and call.args[0] is arg:
            going = going.doing(Does.COPIES, module, call)
        if search.inside is not None:  # an object is something else than what it was made of
            return None if last[:1].isupper() and last not in {"Tensor", "FloatTensor"} else replace(going, index=None)
        scope = walk.scope_at(call)
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(call.func, frame)[:3]:
            value = alt.value
            if isinstance(value, FunctionRef) and not isinstance(value.scope.node, cst.Lambda):
                return self._into(search, value, call, arg, going)
            if isinstance(value, ClassRef):
                return self._made(search, value, call, arg, going)
            if isinstance(value, External) and value.name.rpartition(".")[2] in _DATASETS and value.name.startswith("torch"):
                if not going.part:
                    words = f"a `{value.name.rpartition('.')[2]}`"
                    search.found.append(Keeper(module, call, "", None, words, going.many, going.collected, going.names, going.passed, going.given))
                return None
        return replace(going, index=None)

    def _into(self, search: _Search, function: FunctionRef, call: cst.Call, arg: cst.Arg, going: _Going) -> _Going | None:
        """Follow an argument into a function of the project; what holds for its result, or ``None`` where that does not hold the value."""
        name = _parameter(function, call, arg)
        if name is None or going.depth >= _DEEPEST:
            return replace(going, index=None)
        key = ("into", function.scope, name)
        if key not in search.seen:
            search.seen.add(key)
            self._name(search, function.module, function.scope, name, None, replace(going, depth=going.depth + 1, index=None))
        places = self._passed(function, name)
        if not places:
            return None
        return replace(going, index=next(iter(places)) if len(places) == 1 else None)

    def _passed(self, function: FunctionRef, name: str) -> frozenset[int | None]:
        """Where a function returns what it is given as ``name``, or what it makes of that."""
        key = (function.scope, name)
        known = self._passes.get(key)
        if known is None:
            self._passes[key] = frozenset({None})  # a function that calls itself
            search = _Search(inside=function.scope, parts=True)
            self._name(search, function.module, function.scope, name, None, _Going())
            self._run(search)
            known = self._passes[key] = frozenset({None}) if function.scope.yields else frozenset(search.returns)
        return known

    def _made(self, search: _Search, cls: ClassRef, call: cst.Call, arg: cst.Arg, going: _Going) -> _Going | None:
        """Follow an argument into a class: a dataset keeps it, any other object is followed itself."""
        found = self.evaluator.method(_instance(cls), "__init__")
        if found is None or going.part:
            return None if self.constructions.is_dataset(cls) else going
        if not self.constructions.is_dataset(cls):
            return going
        name = _parameter(found, call, arg)
        key = ("made", found.scope, name)
        if name is None or key in search.seen or going.depth >= _DEEPEST:
            return None
        search.seen.add(key)
        self._name(search, found.module, found.scope, name, None, replace(going, depth=going.depth + 1, index=None, given=True))
        return None

    # -- names and attributes ------------------------------------------------------------------------------------------

    def _target(self, search: _Search, module: Module, statement: cst.CSTNode, target: cst.CSTNode, going: _Going) -> None:
        """The value is put into ``target``."""
        walk = module.walk
        scope = walk.scope_at(statement)
        if isinstance(target, cst.Tuple | cst.List):
            for number, element in enumerate(target.elements):
                if going.index is None or number == going.index:
                    self._target(search, module, statement, element.value, replace(going, index=None))
            return
        into = False
        while isinstance(target, cst.Subscript):
            into = True
            target = target.value
        if into:
            going = replace(going, collected=going.collected or going.part, part=False)
        if isinstance(target, cst.Name):
            self._name(search, module, scope, target.value, statement, going.named(target.value))
        elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
            this = names.self_name(scope)
            if this is not None and target.value.value == this:
                self._attribute(search, module, statement, scope, target.attr.value, going)

    def _attribute(self, search: _Search, module: Module, statement: cst.CSTNode, scope: Scope, name: str, going: _Going) -> None:
        """The value is kept on ``self``."""
        owner = scope.parent
        if owner is None or not owner.is_class or going.part or search.inside is not None:
            return
        cls = ClassRef(module, owner)
        key = ("attribute", owner, name, going.passed)
        if key in search.seen:
            return
        search.seen.add(key)
        if not self.constructions.builds(cls, scope):
            return
        going = going.named(name)
        datasets = self.constructions.datasets(cls)
        if datasets:
            words = f"`{name}` of `{datasets[0].scope.name}`"
            search.found.append(Keeper(module, statement, name, datasets[0], words, going.many, going.collected, going.names, going.passed, going.given))
            # What is done with it while the object is built: `self.data = np.concatenate(self.data)`.
            for use in self._attributes(module, scope, names.self_name(scope) or "", name):
                self._climb(search, module, use, replace(going, index=None))
            return
        if going.depth >= _DEEPEST:
            return
        # Another class: what its methods do with the attribute, and where its objects go.
        deeper = replace(going, depth=going.depth + 1, index=None)
        for method in owner.children:
            this = names.self_name(method)
            if this is None:
                continue
            for use in self._attributes(module, method, this, name):
                self._climb(search, module, use, deeper)
        init = owner.child("__init__")
        if init is not None:
            self._sites(search, module, init, replace(deeper, inside=name))

    @staticmethod
    def _attributes(module: Module, method: Scope, this: str, name: str) -> Iterator[cst.Attribute]:
        for node in descend(method.suite):
            if isinstance(node, cst.Attribute) and node.attr.value == name and isinstance(node.value, cst.Name) and node.value.value == this:
                holder = module.walk.parents.get(node)
                if not isinstance(holder, cst.AssignTarget):
                    yield node

    def _name(self, search: _Search, module: Module, scope: Scope, name: str, definition: cst.CSTNode | None, going: _Going) -> None:
        """Follow every use of a name that its definition reaches."""
        key = (scope, name, definition, going.part)
        if key in search.seen:
            return
        search.seen.add(key)
        order = self._ordered(scope)
        first = self._end(order, definition) if definition is not None else -1
        stops = [
            self._end(order, effect.statement)
            for effect in scope.effects.get(name, ())
            if not effect.path
            and effect.kind in {"assign", "for", "with"}
            and effect.statement is not definition
            and order.get(effect.statement, -1) > first
            and self._covers(module, effect.statement, definition, scope)
        ]
        last = min(stops, default=None)
        for number, use in self._uses_of(scope).get(name, ()):
            if number <= first or (last is not None and number > last) or self._excluded(module, definition, use) or _shadowed(module, use):
                continue
            if search.steps > _STEPS:
                return
            self._climb(search, module, use, going)

    def _ordered(self, scope: Scope) -> dict[cst.CSTNode, int]:
        known = self._order.get(scope)
        if known is None:
            known = self._order[scope] = {node: number for number, node in enumerate(descend(scope.suite, into_scopes=False))}
        return known

    def _uses_of(self, scope: Scope) -> dict[str, list[tuple[int, cst.Name]]]:
        known = self._uses.get(scope)
        if known is None:
            known = self._uses[scope] = {}
            for node, number in self._ordered(scope).items():
                if isinstance(node, cst.Name):
                    known.setdefault(node.value, []).append((number, node))
        return known

    def _end(self, order: dict[cst.CSTNode, int], node: cst.CSTNode) -> int:
        """The number of the last node inside a simple statement; of the header alone, where it is a block."""
        number = order.get(node, -1)
        if isinstance(node, cst.BaseCompoundStatement):
            return number
        return max((order.get(inner, number) for inner in descend(node, into_scopes=False)), default=number)

    @staticmethod
    def _covers(module: Module, later: cst.CSTNode, definition: cst.CSTNode | None, scope: Scope) -> bool:
        """Whether control that passes the definition always passes the later statement too."""
        block = module.walk.parents.get(later)
        if isinstance(block, cst.SimpleStatementLine):
            block = module.walk.parents.get(block)
        if definition is None:
            return block is scope.suite or block is scope.node
        return any(here is block for here in module.walk.ancestors(definition))

    @staticmethod
    def _excluded(module: Module, definition: cst.CSTNode | None, use: cst.CSTNode) -> bool:
        """Whether definition and use stand in different branches of one ``if``."""
        if definition is None:
            return False
        chain = set(module.walk.ancestors(definition))
        previous: cst.CSTNode = use
        for here in module.walk.ancestors(use):
            if isinstance(here, cst.If) and here in chain and here.orelse is previous and here.body in chain:
                return True
            previous = here
        return False

    # -- out of functions ----------------------------------------------------------------------------------------------

    def _returned(self, search: _Search, module: Module, scope: Scope, going: _Going) -> None:
        if search.inside is not None:
            if scope is search.inside and not going.part and (search.parts or not (going.collected or going.rebuilt)):
                search.returns.add(going.index)
            return
        if not isinstance(scope.node, cst.FunctionDef) or going.part or going.depth >= _DEEPEST or self.constructions.per_item(module, scope):
            return
        self._sites(search, module, scope, replace(going, depth=going.depth + 1))

    def _sites(self, search: _Search, module: Module, scope: Scope, going: _Going) -> None:
        key = ("sites", scope, going.index)
        if key in search.seen:
            return
        search.seen.add(key)
        if not self._used_for_data(module, scope):
            return
        for site in self.evaluator.calls.sites(module, scope)[:_MOST_SITES]:
            if not self.constructions.per_item(site.module, site.scope):
                self._climb(search, site.module, site.call, replace(going, many=going.many or self.repeats(site.module, site.call)))

    def _used_for_data(self, module: Module, scope: Scope) -> bool:
        """Whether some file that names the function speaks of data sets or loaders: a look at the text, before anything is parsed."""
        name = scope.parent.name if scope.name == "__init__" and scope.parent is not None else scope.name
        known = self._spoken.get(name)
        if known is None:
            project, word = self.project, name.encode()
            paths = {*project.files(), module.path}
            known = self._spoken[name] = any(word in project.raw(path) and _DATA_WORDS.search(project.raw(path)) for path in paths)
        return known

    # -- loops ---------------------------------------------------------------------------------------------------------

    def repeats(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether an expression is evaluated many times, as far as anybody knows."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "map":
            return True
        below: cst.CSTNode = node
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.For) and below is here.body and self._unbounded(module, here.iter):
                return True
            if isinstance(here, cst.While) and below is here.body:
                return True
            if (
                isinstance(here, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp)
                and below is not here.for_in
                and self._unbounded(module, here.for_in.iter)
            ):
                return True
            if isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda):
                return False
            below = here
        return False

    @staticmethod
    def over_files(module: Module, node: cst.CSTNode) -> bool:
        """Whether the innermost loop around a node goes, by the words of its header, through files."""
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.For):
                return _FILES.search(module.code(here.iter) + " " + module.code(here.target)) is not None
            if isinstance(here, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
                return _FILES.search(module.code(here.for_in)) is not None
            if isinstance(here, cst.FunctionDef):
                return False
        return False

    def _unbounded(self, module: Module, iterable: cst.BaseExpression) -> bool:
        """Whether an iterable may have more than a handful of elements."""
        return self.constructions.count(module, iterable) is None


def byte_range(node: cst.BaseExpression) -> bool:
    """Whether a number is the one that bytes are divided by."""
    if isinstance(node, cst.Call) and node.args:  # np.float32(255)
        node = node.args[0].value
    return isinstance(node, cst.Integer | cst.Float) and float(node.evaluated_value) in {255.0, 256.0, 127.5, 128.0}


def constant_small(key: str) -> bool:
    """Whether a key names one small value a sample."""
    return small_by_name(key)


def _shadowed(module: Module, use: cst.Name) -> bool:
    """Whether the name is that of a comprehension's own variable."""
    for here in module.walk.ancestors(use):
        if isinstance(here, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
            loop: cst.CompFor | None = here.for_in
            while loop is not None:
                if use.value in _names_of(loop.target):
                    return True
                loop = loop.inner_for_in
        elif isinstance(here, cst.BaseStatement):
            return False
    return False


def _names_of(target: cst.CSTNode) -> list[str]:
    return [n.value for n in descend(target) if isinstance(n, cst.Name)]


def _instance(cls: ClassRef) -> Instance:
    return Instance(cls, None)


def _parameter(function: FunctionRef, call: cst.Call, arg: cst.Arg) -> str | None:
    """The parameter that takes an argument."""
    params = names.parameters(function.scope)
    if arg.keyword is not None:
        return arg.keyword.value if any(p.name.value == arg.keyword.value for p in params) else None
    if arg.star:
        return None
    place = list(call.args).index(arg)
    plain = [p.name.value for p in params]
    if names.is_method(function.scope) and (function.this is not None or function.scope.name == "__init__"):
        plain = plain[1:]
    return plain[place] if place < len(plain) else None


def kept_of(project: Project) -> Kept:
    """Follows the data of a project."""
    known = project.memo.get("kept")
    if known is None:
        known = project.memo["kept"] = Kept(project)
    return known  # type: ignore[return-value]
