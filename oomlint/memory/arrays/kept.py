"""Where data goes after it was read: forward, from the expression that reads it to the dataset that keeps it.

A value is followed through names, containers, arithmetic, the functions of the project and their callers, until an attribute of a dataset takes it, or a
loader. What makes it small on the way (a length, a mean, a shape, one element) ends the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import FACTS, ITERATORS, PUTS_IN, TAKES_OUT, VIEW_ATTRIBUTES, WRAPPERS
from oomlint.memory.arrays.kept_calls import KEEPS, keeps_axes
from oomlint.memory.arrays.kept_forms import byte_range, has_bounds, is_object, unpickles, works_on
from oomlint.memory.arrays.kept_indexes import KeptIndexes
from oomlint.memory.arrays.kept_state import DEEPEST, EACH, STEPS, DataTransform, Going, Keeper, KeptSearch, Met, across, ends_of, one_of_zipped
from oomlint.memory.datasets.serving import EVALUATION, picks_some
from oomlint.memory.shared.attribute_names import may_be_data
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.calls import JOBS
from oomlint.model.counters import numbered
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import FunctionRef
from oomlint.scout.telling_names import MAPS
from oomlint.syntax.nodes import descend, names_in

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Walk

# Attributes and methods whose result is small whatever they are asked of.
_SMALL_ATTRIBUTES: Final = FACTS | frozenset("columns index device name names".split())
_SMALL_METHODS: Final = frozenset(
    "mean std sum max min any all item argmax argmin nunique unique keys count index close var prod median nonzero dim numel size tell "
    "decode startswith endswith find isdigit load_state_dict eval train info describe head __len__ quantile nanmean group groups apply_ is_cuda "
    "GetSpacing GetOrigin GetDirection GetSize".split(),
)
_SAME_ATTRIBUTES: Final = VIEW_ATTRIBUTES | frozenset("values array iloc loc at flat".split())


_SAME_ROWS: Final = frozenset({"t", "detach"})  # methods that give the rows as they are, or as columns

# Methods that read what xarray, rasterio, GDAL, decord, pyedflib, nibabel or MNE have only opened.
READING: Final = frozenset("load compute to_numpy read ReadAsArray get_batch asnumpy readSignal get_fdata get_data load_data to_data_frame".split())

OF_CONTAINERS: Final = frozenset("copy get items pop popitem popleft values".split())  # methods that give all elements of a container, or some
_ARITHMETIC: Final = cst.Add | cst.Subtract | cst.Multiply | cst.Divide | cst.Power


class Kept(KeptIndexes):
    """Follows values forward. One for a run."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._given: AnswerMemory[cst.CSTNode, bool] = AnswerMemory(project.readings)
        self._memo: AnswerMemory[tuple[cst.CSTNode, int | None, bool], tuple[tuple[Keeper, ...], ...]] = AnswerMemory(project.readings)

    def of(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Who keeps the value of an expression (or what stands at ``index`` in it), nearest first; nobody where it is not known to be kept."""
        return self._ends(module, node, index)[0]

    def objects(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Objects of the project, of classes that are no modules, that the value stays in, in a project that trains."""
        return self._ends(module, node, index)[1] if self.serving.project_trains(module) else ()

    def joined(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Calls that make one array of a list of many such values, in code that runs once, in a project that trains."""
        return self._ends(module, node, index)[2] if self.serving.project_trains(module) else ()

    def pooled(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """The container that a loop puts every such value into, in code that runs once, in a project that trains: what is done with them need not be seen."""
        if not self.repeats(module, node) or not self.serving.project_trains(module):
            return ()
        search = KeptSearch(inside=module.walk.scope_at(node), sure=True, pools=True)
        self._start(search, module, node, Going(many=True, index=index, since=node))
        self.run(search)
        return tuple(search.found)

    def _start(self, search: KeptSearch, module: Module, node: cst.BaseExpression, going: Going) -> None:
        """Follow an expression, or what the variable of a loop stands for in the rounds."""
        loop = self.loop_of(module, node)
        if loop is None or not isinstance(node, cst.Name):
            self.climb(search, module, node, going)
        elif isinstance(loop, cst.For):
            self.follow_name(search, module, module.walk.scope_at(loop), node.value, loop.target, going.named(node.value))
        else:
            holder = module.walk.parents[loop]
            for use in descend(holder):
                if isinstance(use, cst.Name) and use.value == node.value and loop not in module.walk.ancestors(use):
                    self.climb(search, module, use, going)

    def moved(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Calls that put all of the value on an accelerator, whoever keeps it."""
        return self._ends(module, node, index)[3]

    def filled(self, module: Module, node: cst.BaseExpression) -> tuple[Keeper, ...]:
        """Who keeps or writes an array of what many rounds put into it: datasets, other objects, scripts that made it of a list."""
        found, objects, joined, _ = self._ends(module, node, None, all_of_it=True)
        return (*found, *objects, *joined) if self.serving.project_trains(module) else found

    def _ends(self, module: Module, node: cst.BaseExpression, index: int | None, *, all_of_it: bool = False) -> tuple[tuple[Keeper, ...], ...]:
        key = (node, index, all_of_it)
        known = self._memo.get(key)
        if known is None:
            search = KeptSearch(origin=(module, node), pickled=unpickles(node))
            mapped = self.mapped(module, node) is not None
            many = all_of_it or self.repeats(module, node)
            going = Going(many=many, index=index, listed=mapped, since=node, gathered=node if mapped or all_of_it else None)
            if isinstance(node, cst.Call) and names.last_name(node.func) == "read_direct" and node.args:
                self.follow_target(search, module, node, node.args[0].value, going)  # it fills what it is given
            else:
                self._start(search, module, node, going)
            self.run(search)
            ends = (search.found, search.objects, search.joined, search.moves)
            known = self._memo[key] = tuple(tuple(self.of_rounds(module, node, keeper) for keeper in found) for found in ends)
        return known

    def late(self, module: Module, node: cst.BaseExpression, index: int | None = None) -> tuple[Keeper, ...]:
        """Datasets that keep the value of an expression, those included that take it when a sample asks for it first."""
        search = KeptSearch(origin=(module, node), late=True)
        self.climb(search, module, node, Going(index=index, since=node))
        self.run(search)
        return tuple(search.found)

    def met(self, module: Module, node: cst.BaseExpression) -> tuple[Met, ...]:
        """Operations that take all of the value of an expression."""
        search = KeptSearch(meets=[])
        self.climb(search, module, node, Going(since=node))
        self.run(search)
        return tuple(search.meets or ())

    @staticmethod
    def _met(search: KeptSearch, module: Module, node: cst.Call | cst.BinaryOperation, operand: cst.CSTNode, going: Going) -> None:
        if search.meets is not None and not (going.part or going.some or going.fields or going.hazy):
            search.meets.append(Met(module, node, operand, going))

    def returned(
        self, module: Module, node: cst.BaseExpression, index: int | None = None, *, collected: bool = False, sure: bool = False
    ) -> frozenset[int | None]:
        """Where a function returns or yields the value of an expression in it, or what stands at ``index`` of that.

        As it is, or also what it has ``collected`` of its parts; where it must be ``sure``, nothing that came through a call that nobody knows. Positions
        in the tuple that it returns; ``None`` is the whole. Empty where the value stays inside.
        """
        search = KeptSearch(inside=module.walk.scope_at(node), parts=collected, sure=sure, origin=(module, node))
        self.climb(search, module, node, Going(index=index))
        self.run(search)
        return frozenset(search.returns)

    # -- upwards through an expression ---------------------------------------------------------------------------------

    def run(self, search: KeptSearch) -> None:
        """Follow what is still to be followed."""
        while search.todo and search.steps <= STEPS:
            self._follow(search, *search.todo.popleft())

    def _follow(self, search: KeptSearch, module: Module, node: cst.CSTNode, going: Going) -> None:
        """Follow the value of ``node`` to the statement that it is part of, and on from there."""
        step: tuple[cst.CSTNode, Going] | None = (node, going)
        while step is not None:
            search.steps += 1
            parent = module.walk.parents.get(step[0])
            if search.steps > STEPS or parent is None:
                return
            step = self._step(search, module, *step, parent)

    def _step(self, search: KeptSearch, module: Module, node: cst.CSTNode, going: Going, parent: cst.CSTNode) -> tuple[cst.CSTNode, Going] | None:
        """The expression around ``node`` that has its value, and how; ``None`` where the value ends, or is followed elsewhere."""
        match parent:
            case cst.Attribute():
                onto = self._attribute_of(module.walk, parent, going)
                if onto is None:
                    return None
                return parent, replace(onto.doing(DataTransform.READS, module, parent) if parent.attr.value == "values" else onto, keys=())
            case cst.Call():
                return self._call_of(search, module, node, going, parent)
            case cst.Arg():
                return self._argument_of(search, module, going, parent)
            case cst.Subscript() if node is parent.value:
                return self._subscript_of(search, module, going, parent)
            case cst.Element() | cst.StarredElement() | cst.DictElement() | cst.StarredDictElement():
                return self._display_of(module, node, going, parent)
            case cst.BinaryOperation():
                self._met(search, module, parent, node, going)
                if isinstance(parent.operator, cst.Divide) and node is parent.left and byte_range(parent.right) and not going.retyped:
                    going = going.doing(DataTransform.SCALES, module, parent)
                return parent, _computed(module, parent, node, going)
            case cst.IfExp():
                return (parent, going) if node is not parent.test else None
            case cst.ListComp() | cst.SetComp() | cst.GeneratorExp() | cst.DictComp():
                return self._comprehension_of(module, node, going, parent) if not (isinstance(parent, cst.DictComp) and node is parent.key) else None
            case cst.Subscript() | cst.Comparison() | cst.FormattedStringExpression() | cst.Lambda():
                if isinstance(parent, cst.Lambda) and node is parent.body:
                    self._out_of_lambda(search, module, parent, going)
                return None
            case cst.NamedExpr():
                self.follow_target(search, module, parent, parent.target, going)
                return parent, going
            case cst.Yield():
                alone = going.gathered is None and not going.fields  # else it gives part by part what it holds
                self.follow_out(search, module, module.walk.scope_at(parent), replace(going, index=None, drawn=alone).held_by(EACH))
                return None
            case cst.BaseExpression() | cst.From():
                return parent, going
            case _:
                self._into_statement(search, module, node, going, parent)
                return None

    def _call_of(self, search: KeptSearch, module: Module, node: cst.CSTNode, going: Going, call: cst.Call) -> tuple[cst.CSTNode, Going] | None:
        """A method of the value, or what an argument gives."""
        if going.fields:
            inner = self._of_holder(search, module, call, node, going)
            return (call, inner) if inner is not None else None
        going = replace(going, opened=False)  # whatever a method gives of a picture, that is decoded
        self._met(search, module, call, node, going)
        method = node.attr.value if isinstance(node, cst.Attribute) else None
        if method == "astype" and call.args and item_bytes(call.args[0].value, 0) == 1:
            going = going.as_bytes()
        if method in OF_CONTAINERS & TAKES_OUT and going.listed and not going.part:
            self.picked(search, module, call, going)  # the list is there until all of them are taken out
            going = replace(going, part=True)
        if method in {"tolist", "to_dict"}:
            going = going.doing(DataTransform.LISTS, module, call)
        if method in READING:
            going = going.doing(DataTransform.READS, module, call)
        if method is not None and not going.part and self.moves(module, call):
            going = self.moved_by(search, module, call, going)
        keeps = method in KEEPS or (search.meets is not None and method in _SAME_ROWS)
        if method is not None and not keeps and not (method == "get" and not call.args):
            going = replace(going, hazy=True)
        if not keeps and search.origin is not None and is_object(search.origin[1]) and works_on(call):
            return None  # an object from a file, say a network, gives something of what it is handed
        small = method in _SMALL_METHODS and not (going.part and keeps_axes(call, of=0))
        return (call, going) if not small or (search.pickled and not going.part and method == "item") else None

    def _argument_of(self, search: KeptSearch, module: Module, going: Going, arg: cst.Arg) -> tuple[cst.CSTNode, Going] | None:
        call = module.walk.parents[arg]
        if not isinstance(call, cst.Call):
            return None
        self._met(search, module, call, arg, going)
        going = replace(going, drawn=going.drawn and names.last_name(call.func) in ITERATORS)
        onward = self.follow_argument(search, module, call, arg, going)
        if onward is None:
            return None
        if (one := one_of_zipped(module.walk, call, arg)) is not None:
            self._rounds(search, module, *one, onward)
            return None
        return call, onward

    def _subscript_of(self, search: KeptSearch, module: Module, going: Going, node: cst.Subscript) -> tuple[cst.CSTNode, Going] | None:
        if self.picks_number(search, module, node) or self.picks_line(search, node, going):
            return None
        if picks_some(node) and not module.walk.is_target(node):
            self.picked(search, module, node, going)
        inner = self._subscript(module, node, going)
        if inner is None or going.in_object or self.leaves_few(search, module, node.slice[0].slice, going):
            return None
        return node, self._element(going, inner) if isinstance(node.slice[0].slice, cst.Index) else inner

    def _display_of(
        self,
        module: Module,
        node: cst.CSTNode,
        going: Going,
        element: cst.Element | cst.StarredElement | cst.DictElement | cst.StarredDictElement,
    ) -> tuple[cst.CSTNode, Going] | None:
        """The tuple, list, set or dictionary that is written around the value."""
        parents = module.walk.parents
        holder = parents[element]
        if isinstance(holder, cst.Tuple) and isinstance(element, cst.Element) and isinstance(parents.get(holder), cst.Return | cst.Yield | cst.Assign):
            going = replace(going, index=list(holder.elements).index(element))
        else:
            going = going.held_by(EACH)
            if isinstance(holder, cst.Tuple | cst.List) and isinstance(parents.get(holder), cst.Arg | cst.For | cst.CompFor):
                number = next(number for number, one in enumerate(holder.elements) if one is element)
                going = replace(going, place=(number, len(holder.elements)))
        if isinstance(element, cst.DictElement):
            if node is element.key:
                return None
            going = going.under(element.key)
            if isinstance(element.key, cst.SimpleString):
                going = going.named(str(element.key.evaluated_value))
        if isinstance(holder, cst.List) or (isinstance(holder, cst.Tuple) and isinstance(parents.get(holder), cst.Arg)):
            going = replace(going, listed=True, mixed=going.mixed or self.is_mixed(module, holder, element))
        # What has no name of its own has that of the list, unless something else of many values stands beside it.
        if (
            going.own is None
            and isinstance(parents.get(holder), cst.Arg)
            and _is_record(module, holder)
            and (going.names or self.has_beside(module, holder, element))
        ):
            going = replace(going, own=len(going.names))
        return holder, going

    def _comprehension_of(self, module: Module, node: cst.CSTNode, going: Going, parent: cst.BaseComp) -> tuple[cst.CSTNode, Going]:
        gathered = replace(
            going,
            collected=going.collected or (going.part and not self.as_it_is(module, node)),
            part=False,
            listed=going.listed or isinstance(parent, cst.ListComp),
        ).gathered_by(self.gathering(module, node), module, parent, part=going.part)
        return parent, replace(gathered.held_by(EACH), drawn=isinstance(parent, cst.GeneratorExp) and gathered.gathered is parent)

    def _into_statement(self, search: KeptSearch, module: Module, node: cst.CSTNode, going: Going, parent: cst.CSTNode) -> None:
        """Follow the value from the statement that it is part of."""
        walk = module.walk
        match parent:
            case cst.CompFor() | cst.For() if node is parent.iter:
                self._rounds(search, module, parent, parent.target, going)
            case cst.WithItem() if parent.asname is not None and isinstance(parent.asname.name, cst.Name):
                self.follow_name(search, module, walk.scope_at(parent), parent.asname.name.value, parent, going)
            case cst.Assign():
                for target in parent.targets:
                    self.follow_target(search, module, parent, target.target, going)
            case cst.AugAssign() if self._sums(module, parent):
                pass  # as large as one of them
            case cst.AnnAssign() | cst.AugAssign():
                if isinstance(parent, cst.AugAssign) and isinstance(parent.operator, cst.AddAssign):  # `rows += more`
                    going = going.gathered_by(self.gathering(module, parent), module, parent, part=going.part)
                self.follow_target(search, module, parent, parent.target, going)
            case cst.Return():
                self.follow_out(search, module, walk.scope_at(parent), going)

    def _sums(self, module: Module, node: cst.AugAssign) -> bool:
        """Whether numbers are added up, and no list gets longer: what is added to begins as a number, or is an array."""
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(node))
        if self.constructions.contents.of(node.target, frame).kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}:
            return True
        return any(isinstance(alt.const, int | float) for alt in self.evaluator.values(node.target, frame))

    def _out_of_lambda(self, search: KeptSearch, module: Module, node: cst.Lambda, going: Going) -> None:
        """What a function without a name gives: to its calls by the name that it is bound to, or to the call that maps it."""
        holder = module.walk.parents.get(node)
        if search.inside is not None or going.depth >= DEEPEST:
            return
        deeper = replace(going, depth=going.depth + 1, entered=None, into=None)
        if isinstance(holder, cst.Arg):
            call = module.walk.parents.get(holder)
            if isinstance(call, cst.Call) and names.last_name(call.func) in MAPS | JOBS and call.args[0] is holder:
                self.climb(search, module, call, replace(deeper, many=True, listed=True, gathered=call).held_by(EACH))
        elif isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Name):
            name = holder.targets[0].target.value
            for call, scope in module.walk.calls:
                if isinstance(call.func, cst.Name) and call.func.value == name:
                    called = self.evaluator.values(call.func, self.evaluator.calls.plain_frame(module, scope))[:3]
                    if any(isinstance(alt.value, FunctionRef) and alt.value.scope.node is node for alt in called):
                        self.climb(search, module, call, replace(deeper, since=call).once_more(repeats=self.repeats(module, call)))

    def picked(self, search: KeptSearch, module: Module, node: cst.Subscript | cst.Call, going: Going) -> None:
        """Parts of the value are taken again and again, as long as the training runs: then so long it is there."""
        if search.inside is not None or going.part or going.in_object or (going.many and going.gathered is None):
            return  # what each round reads again is not all of it; nor is what an object gives, but one of many objects is a part
        if going.into is not None:
            search.picks.setdefault(going.into, []).append((module, node, going))
        if who := self.serving.reader(module, node, going.since, going.entered, self._gives_back):
            if isinstance(node, cst.Call):
                taken = node.func.value if isinstance(node.func, cst.Attribute) and node.func.attr.value in OF_CONTAINERS else node.args[0].value
            else:
                taken = node.value
            self._lives(search, module, taken, going, f"which {who} indexes", evaluated=who == EVALUATION)

    def _gives_back(self, module: Module, node: cst.BaseExpression) -> bool:
        """Whether a function gives back the value of an expression in it, or what it has collected of such values; each is asked once."""
        known = self._given.get(node)
        if known is None:
            self._given.assume(node, False)  # noqa: FBT003 - a function that calls itself
            known = self._given[node] = bool(self.returned(module, node, collected=True, sure=True))
        return known

    def _rounds(self, search: KeptSearch, module: Module, loop: cst.For | cst.CompFor, target: cst.BaseExpression, going: Going) -> None:
        """A loop goes through the value: each round, ``target`` is an element of it."""
        if isinstance(loop, cst.CompFor):
            self._comprehension(search, module, loop, target, going)
            return
        self._gone_through(search, module, loop, going)
        scope = module.walk.scope_at(loop)
        mixed = going.mixed and not isinstance(target, cst.Tuple | cst.List)
        for name in _elements(loop, target):
            one = replace(going.named(name).element(), part=True, mixed=mixed, keys=(), drawn=False, own=None)
            self.follow_name(search, module, scope, name, loop.target, one)

    def _gone_through(self, search: KeptSearch, module: Module, loop: cst.For, going: Going) -> None:
        """A loop that runs a model goes through the value."""
        each = going.many and going.gathered is None  # what each round reads again is not all of it
        alone = search.inside is not None or going.part or going.in_object or going.drawn or each
        who = "" if alone else self.serving.loop_with_model(module, loop)
        if who:
            self._lives(search, module, names.iterated(loop.iter, WRAPPERS), going, f"which {who} goes through", evaluated=who == EVALUATION)

    @staticmethod
    def _lives(search: KeptSearch, module: Module, node: cst.BaseExpression, going: Going, why: str, *, evaluated: bool) -> None:
        words = f"`{' '.join(module.code(node).split())}`, {why}"
        if not any(one.live and (one.evaluated, one.opened) == (evaluated, going.opened) and one.passed == going.passed for one in search.found):
            search.found.append(replace(going.kept_by(module, node, words, live=True), evaluated=evaluated))

    @staticmethod
    def _attribute_of(walk: Walk, node: cst.Attribute, going: Going) -> Going | None:
        """What an attribute of the value holds of it; ``None`` where that is something else."""
        name = node.attr.value
        if going.in_object:
            return replace(going, fields=going.fields[:-1]) if name == going.fields[-1] else None
        if going.fields:
            return going if name in OF_CONTAINERS else None
        if name in _SMALL_ATTRIBUTES:
            return None
        called = walk.parents.get(node)
        if (isinstance(called, cst.Call) and called.func is node) or name in _SAME_ATTRIBUTES or may_be_data(name):
            return going
        return None

    def _of_holder(self, search: KeptSearch, module: Module, call: cst.Call, node: cst.CSTNode, going: Going) -> Going | None:
        """What a method gives of a container whose elements hold the value: all of them, or one that it takes out."""
        method = node.attr.value if isinstance(node, cst.Attribute) else ""
        if method not in OF_CONTAINERS or going.in_object:
            return None
        self.picked(search, module, call, going)  # the container is there as long as the loop that asks for it
        return self._element(going, replace(going, index=None)) if method in TAKES_OUT | {"get"} else going

    @staticmethod
    def _element(going: Going, taken: Going) -> Going:
        """What is taken out of a container whose elements hold the value: one of them, unless its elements are containers again."""
        if not going.fields:
            return taken
        inner = taken.element()
        return replace(inner, part=going.part or EACH not in inner.fields, cut=going.cut)

    def _subscript(self, module: Module, node: cst.Subscript, going: Going) -> Going | None:
        """What an index leaves of the value; ``None`` where that is one element of many."""
        first = node.slice[0].slice
        if not isinstance(first, cst.Index):
            some = going.some or self.is_short(module, first) or _picks_of_rows(node)
            return replace(going, index=None, some=some, cut=going.cut or has_bounds(first))
        key = first.value
        if len(node.slice) != 1:  # `rows[i, 0]` is of one row
            return replace(
                going,
                index=None,
                cut=going.cut or not isinstance(key, cst.Ellipsis),
                part=going.part or (isinstance(key, cst.Name) and self.counts(module, node, key.value)),
            )
        if isinstance(key, cst.SimpleString | cst.ConcatenatedString):
            taken = going.taken(str(key.evaluated_value))
            return replace(taken.named(str(key.evaluated_value)), index=None, own=None) if taken is not None else None
        constant = isinstance(key, cst.Integer | cst.Ellipsis | cst.Tuple)
        going = replace(going, keys=going.keys[:-1], cut=going.cut or not (going.keys or constant or any(ends_of(key))))
        if isinstance(key, cst.Integer):
            place = int(key.evaluated_value)
            one = replace(going, index=None, mixed=False, own=None, cut=going.cut or going.index is None)
            return None if going.index is not None and going.index != place else one
        if isinstance(key, cst.Ellipsis | cst.Tuple):
            return going
        if isinstance(key, cst.Name) and self.counts(module, node, key.value):
            return replace(going, part=True)
        if not going.part and self.permutes(module, key):
            going = going.doing(DataTransform.COPIES, module, node)
        return replace(going, index=None, some=going.some or self.draws(module, key) or self.lists(module, key, going))

    def _comprehension(self, search: KeptSearch, module: Module, loop: cst.CompFor, target: cst.BaseExpression, going: Going) -> None:
        """``[f(x) for x in value]``: each element goes where its name goes."""
        holder: cst.CSTNode = loop
        while isinstance(holder, cst.CompFor):
            holder = module.walk.parents[holder]
        wanted = set(_elements(loop, target))
        part = not across(loop.iter)  # otherwise it is all of one field
        mixed = going.mixed and part and not isinstance(target, cst.Tuple | cst.List)
        made = [holder.elt] if isinstance(holder, cst.ListComp | cst.SetComp | cst.GeneratorExp) else [holder.value] if isinstance(holder, cst.DictComp) else []
        for root in made:
            for use in descend(root):
                if isinstance(use, cst.Name) and use.value in wanted:
                    self.climb(search, module, use, replace(going.element(), part=part, listed=True, rebuilt=True, mixed=mixed, keys=(), own=None))


def _is_record(module: Module, holder: cst.CSTNode) -> bool:
    """Whether several things stand together in what a container is given, ``rows.append((picture, label))``: its name is not that of one of them."""
    call = module.walk.parents.get(module.walk.parents[holder])
    several = isinstance(holder, cst.Tuple | cst.Dict) and len(holder.elements) > 1
    return several and isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in PUTS_IN


def _picks_of_rows(node: cst.Subscript) -> bool:
    """Whether an index takes one place of each row: ``rows[:, 0]``."""
    return any(isinstance(part.slice, cst.Index) and isinstance(part.slice.value, cst.Integer) for part in node.slice[1:])


def _elements(loop: cst.For | cst.CompFor, target: cst.BaseExpression) -> list[str]:
    """The names of a target that stand for an element, or a part of one, and not for the number of the round or for a key."""
    others = numbered(loop) | _keys(loop)
    return [part.value for part in descend(target) if isinstance(part, cst.Name) and part.value not in others]


def _keys(loop: cst.For | cst.CompFor) -> set[str]:
    """The names that a loop over the entries of a dictionary gives to a key: it holds nothing of what stands under it."""
    iterated, target = names.gone_through(loop)
    pairs = isinstance(iterated, cst.Call) and not iterated.args and names.last_name(iterated.func) == "items"
    return names_in(target.elements[0].value) if pairs and isinstance(target, cst.Tuple) else set()


def _computed(module: Module, node: cst.BinaryOperation, operand: cst.CSTNode, going: Going) -> Going:
    """The value after an operation whose result goes into the next one, while the array that has a name is still there."""
    if not isinstance(operand, cst.Name | cst.Attribute) or not going.whole:
        return going
    outer = node
    while isinstance(outer.operator, _ARITHMETIC) and isinstance(above := module.walk.parents.get(outer), cst.BinaryOperation):
        outer = above
    return going.doing(DataTransform.COMPUTES, module, outer) if outer is not node and isinstance(outer.operator, _ARITHMETIC) else going


def kept_of(project: Project) -> Kept:
    """Follows the data of a project."""
    return project.shared(Kept)


__all__ = ["DataTransform", "Keeper", "Kept", "kept_of"]
