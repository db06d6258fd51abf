"""Calls that make one array of a list that holds all of the data, while the list is still there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import AS_ARRAY, DRAWS, PUTS_IN
from oomlint.finding import Role
from oomlint.memory.arrays.inflation import building, keeper_of, may_be_large
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.kept_calls import MAKES
from oomlint.memory.arrays.little_weight import weighs_little
from oomlint.memory.arrays.load_messages import proven_small
from oomlint.memory.arrays.loads import Load, arrays_of
from oomlint.memory.arrays.read_calls import runs_models
from oomlint.memory.arrays.windows import gathered
from oomlint.memory.datasets.samples import made_bytes
from oomlint.memory.facts import allocation_fact, keeper_facts, load_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocated
from oomlint.memory.shared.attribute_names import small_arrays, small_name
from oomlint.memory.shared.computed import gives_places
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_reads import KnownRead, known_read
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.model import arguments, names
from oomlint.model.loops import set_in
from oomlint.model.test_suites import holds_tests
from oomlint.model.torch_tables import VIEWS
from oomlint.model.values import ClassRef, Display, External, ExternalCall, FunctionRef
from oomlint.scout.telling_names import MAKERS
from oomlint.syntax.nodes import descend, names_in
from oomlint.syntax.scopes import LENGTHENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import ByteSize, Fact, Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_MOST_RELATED: Final = 4
_MOST_FRAMES: Final = 4
_LONGEST_WAY: Final = 8  # names and calls between what is added and the row that it is taken out of
_WRITES: Final = re.compile(r"\b(?:save\w*|dump)\s*\(")
_LISTS: Final = frozenset({PayloadKind.ARRAYS, PayloadKind.TENSORS})
_NUMBERS: Final = frozenset({"range", "arange", "linspace"})
_SAMPLERS: Final = ("torch.utils.data.Sampler", "torch.utils.data.sampler.Sampler", "torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler")
_COMPUTING: Final = ("numpy.", "torch.", "math.", "builtins.")
_FEW: Final = frozenset({PayloadKind.SCALAR, PayloadKind.TEXT, PayloadKind.SMALL, PayloadKind.PATHS})  # a number or a name for each sample


class Join(Struct, frozen=True, eq=False):
    """A call that makes one array of a list of what was read."""

    node: cst.BaseExpression
    name: str
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]
    little: bool = False  # what is read weighs little


def joins(module: Module, project: Project) -> Iterator[Join]:
    """Calls of the module that copy a list of loads into one array which a dataset keeps."""
    for join in _joins(module, project):
        size = made_bytes(project, module, join.node)
        if not _is_small(project, size):
            yield replace(join, facts=(allocation_fact(module, join.node, size), *join.facts[1:])) if size.known else join


def _joins(module: Module, project: Project) -> Iterator[Join]:
    arrays = arrays_of(project)
    h5 = [load.node for load in arrays.h5(module)]
    found: dict[cst.CSTNode, list[Load]] = {}
    for load in (*arrays.h5(module), *arrays.files(module)):
        for keeper in load.keepers:
            for done in keeper.passed:
                if done.does is DataTransform.JOINS and done.module is module and load not in found.setdefault(done.node, []):
                    found[done.node].append(load)
    groups: dict[object, list[tuple[cst.Call, list[Load]]]] = {}
    for node, loads in found.items():
        if (
            not isinstance(node, cst.Call)
            or proven_small(module, node)
            or kept_of(project).repeats(module, node)
            or any(_within(module, one, [node]) for one in h5)
            or _is_small(project, made_bytes(project, module, node))
            or _takes_rows_apart(module, node)
        ):
            continue
        scope = module.walk.scope_at(node)
        near = [load for load in loads if load.scope is scope] or loads  # a helper of theirs may give back what others read
        groups.setdefault(scope if scope.is_function else frozenset(_round_of(module, load) for load in near), []).append((node, near))
    for group in groups.values():
        (node, loads), *others = sorted(group, key=lambda one: all(map(weighs_little, one[1]))) if len(group) > 1 else group
        spots = [module.place(load.node, "read here") for load in loads[:1]]
        beside = [module.place(other).saying("the same happens here", Role.AGAIN) for other, _ in others]
        first = loads[0].keeper
        put = [first.put[0].place(first.put[1], "added to the others here")] if first.put is not None and first.put[1] is not node else []
        kept = [first.module.place(first.node, f"{first.words} keeps it")] if first.node is not node else []
        spots += [*(module.place(load.node, "read here") for load in loads[1:]), *beside, *put, *kept]
        facts = (allocation_fact(module, node), *dict.fromkeys(fact for load in loads for fact in load_facts(load)))
        yield Join(node, module.function_of(node), tuple(spots[:_MOST_RELATED]), facts, all(_passes(load) or weighs_little(load) for load in loads))
    rows = [row for row in _rows(module, project) if row.node not in found]
    yield from rows
    yield from _gathered(module, project, {module.walk.scope_at(node) for node in (*found, *(row.node for row in rows))})


def _passes(load: Load) -> bool:
    """Whether a script joins arrays that it read, for a moment: nothing says that they are many or large, as decoded pictures are."""
    return load.all_at_once and not load.keeper.saver and (load.read is None or load.read.kind is not KnownRead.SAMPLE)


def _is_small(project: Project, size: ByteSize) -> bool:
    """Whether shapes tell that an array is small."""
    return size.exact is not None and size.exact < project.settings.small_bytes


def _round_of(module: Module, load: Load) -> cst.CSTNode:
    """The loop whose rounds read it, else the read itself: what one loop reads for several lists is told once."""
    if load.module is not module:
        return load.node
    return next(loops_around(load.node, module, load.scope), load.node)


def _rows(module: Module, project: Project) -> Iterator[Join]:
    """``torch.tensor([one.ids for one in features])``, which a dataset keeps, while the objects that it is made of are still there."""
    contents = constructions_of(project).contents
    evaluator = evaluator_of(project)
    for scope in building(module, project):
        found: list[tuple[cst.Call, Keeper]] = []
        for call in scope.calls:
            rows = call.args[0].value if call.args and kept_of(project).joins(module, call) else None
            if not isinstance(rows, cst.ListComp) or not _is_there(rows.elt) or kept_of(project).repeats(module, call):
                continue
            if kept_of(project).gathering(module, rows.elt) is not rows or small_name(names.last_name(rows.elt)):
                continue
            element = contents.of(rows.elt, evaluator.calls.plain_frame(module, scope))
            if isinstance(rows.elt, cst.Name | cst.Subscript) and element.kind is PayloadKind.UNKNOWN:
                continue  # some of what is there, of whatever kind
            keeper = keeper_of(module, project, call) if element.kind not in _FEW else None
            if keeper is None or (keeper.hazy and element.kind is PayloadKind.UNKNOWN):
                continue
            if not keeper.many:  # else it is one of many, and what is copied is as small as one
                found.append((call, keeper))
        if found:
            (node, keeper), *others = found
            made_of = dict.fromkeys(place for call, _ in found for place in _origins(project, module, scope, call))
            spots = [*made_of, *(module.place(call).saying("the same happens here", Role.AGAIN) for call, _ in others)]
            kept = keeper.module.place(keeper.node, f"{keeper.words} keeps it")
            yield Join(node, module.function_of(node), (*spots[: _MOST_RELATED - 1], kept), (allocation_fact(module, node), *keeper_facts(keeper)))


def _gathered(module: Module, project: Project, told: set[Scope]) -> Iterator[Join]:
    """Arrays that a loop has made and put into a list, of which a dataset keeps the one array that they become, or a script writes it."""
    kept, contents, evaluator = kept_of(project), constructions_of(project).contents, evaluator_of(project)
    running = runs_models(project, module)
    for scope in _may_write(module, project) if _WRITES.search(module.source.text) else building(module, project):
        found: list[tuple[cst.Call, Keeper]] = []
        for call in scope.calls if scope not in told and not _deals_out(project, module, scope) else ():
            rows = call.args[0].value if call.args and kept_of(project).joins(module, call) else None
            loops = [kept.gathering(module, put.node) for put in _puts(module, scope, call)] if isinstance(rows, cst.Name) else []
            if not isinstance(rows, cst.Name) or not loops or kept.repeats(module, call):
                continue
            if any(not running.isdisjoint(module.walk.ancestors(put.node)) for put in _puts(module, scope, call)):
                continue  # what a loop keeps of what a model gives is told with that loop
            held = contents.of(rows, evaluator.calls.plain_frame(module, scope))
            if held.kind not in _LISTS or not may_be_large(project, held) or (held.element is not None and gives_places(held.element.node)):
                continue
            if _draws_numbers(project, held) or kept.makes_short_rows(module, call):
                continue
            if _takes_rows_apart(module, call):
                continue
            size = _size_of_each(project, held, loops)
            if size is None and (names.last_name(call.func) in MAKES or all(_counts_only(project, module, loop) for loop in loops)):
                continue  # of arrays that differ in length `np.array` makes references
            keeper = keeper_of(module, project, call, arrays=True) or next((one for one in kept.filled(module, call) if one.saver and not one.hazy), None)
            if keeper is None or keeper.put is not None or (keeper.many and not keeper.saver):
                continue  # what a loop puts into a list in its turn is one of many
            if (size is not None and len(size.dimensions) > 1) or not any(small_arrays(name) for name in (rows.value, *keeper.names[-1:])):
                found.append((call, keeper))
        if found and scope not in {module.walk.scope_at(window) for _, window, _ in gathered(module, project)}:  # windows are told as such
            (node, keeper), *others = found
            put = [module.place(effect.statement, "added to the others here") for call, _ in found for effect in _puts(module, scope, call)]
            beside = [module.place(call).saying("the same happens here", Role.AGAIN) for call, _ in others]
            where = f"`{keeper.saver}` writes all of it" if keeper.saver else f"{keeper.words} keeps it"
            kept_at = [keeper.module.place(keeper.node, where)] if keeper.node is not node else []
            spots = list(dict.fromkeys((*put[:1], *beside, *put[1:])))[: _MOST_RELATED - 1]
            yield Join(node, module.function_of(node), (*spots, *kept_at), (allocation_fact(module, node), *keeper_facts(keeper)))


def _deals_out(project: Project, module: Module, scope: Scope) -> bool:
    """Whether code is a method of a sampler: what that gathers are numbers of samples."""
    owner = scope.parent
    return owner is not None and owner.is_class and evaluator_of(project).derives(ClassRef(module, owner), *_SAMPLERS)


def _size_of_each(project: Project, held: Content, loops: list[cst.CSTNode | None]) -> Bytes | None:
    """Bytes of each array of a list, where an allocation makes it of a shape that the rounds of the loops do not change."""
    made, module = held.element.node if held.element is not None else None, held.element.module if held.element is not None else None
    if module is None or not isinstance(made, cst.Call):
        return None
    scope = module.walk.scope_at(made)
    size = allocated(made, evaluator_of(project), evaluator_of(project).calls.plain_frame(module, scope))
    used = {name for arg in made.args for name in names_in(arg.value)} if size is not None else set()
    inside = (effect.statement for name in used for effect in scope.effects.get(name, ()))
    return size if not any(not set(loops).isdisjoint(module.walk.ancestors(statement)) for statement in inside) else None


def _draws_numbers(project: Project, held: Content) -> bool:
    """Whether each array of a list has random numbers along one axis, of which nobody says that they are many: steps of a schedule, and no data."""
    made, module = (held.element.node, held.element.module) if held.element is not None else (None, None)
    if module is None or not isinstance(made, cst.Call) or names.last_name(made.func) not in DRAWS:
        return False
    size = allocated(made, evaluator_of(project), evaluator_of(project).calls.plain_frame(module, module.walk.scope_at(made)))
    return size is not None and len(size.dimensions) == 1 and (size.exact is None or size.exact < project.settings.small_bytes)


def _takes_rows_apart(module: Module, call: cst.Call) -> bool:
    """Whether a call joins what rounds have taken out of an array that is in memory, each out of its own row: that array is as large as all of them."""
    scope = module.walk.scope_at(call)
    puts = list(_puts(module, scope, call)) if call.args else []
    return bool(puts) and all(_of_one_row(module.project, module, scope, put) for put in puts)


def _of_one_row(project: Project, module: Module, scope: Scope, put: Effect) -> bool:
    """Whether what a round adds is taken out of its own row of an array that is in memory: ``torch.tensor(rows[i]).flatten()[valid]``."""
    loop, *others = loops_around(put.node, module, scope)
    node, changing = put.value, set_in(loop, module.walk, scope)
    for _ in range(_LONGEST_WAY if not others else 0):
        match node:
            case cst.Name() if node.value in changing:
                bound = [effect for effect in scope.effects.get(node.value, ()) if not effect.path]
                node = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index else None
            case cst.Subscript(value=cst.Name() | cst.Attribute(), slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Name(value=number)))]) if (
                names.dotted(node.value).partition(".")[0] not in changing
            ):
                frame = evaluator_of(project).calls.plain_frame(module, scope)
                of_array = constructions_of(project).contents.of(node.value, frame).kind in {PayloadKind.ARRAY, PayloadKind.TENSOR}
                return of_array and isinstance(loop, cst.For) and number in names_in(loop.target)
            case cst.Subscript():
                node = node.value
            case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=method))) if method in VIEWS:
                node = inner
            case cst.Call() if names.last_name(node.func) in AS_ARRAY and node.args:
                node = node.args[0].value
            case _:
                return False
    return False


def _counts_only(project: Project, module: Module, loop: cst.CSTNode | None) -> bool:
    """Whether a loop goes through numbers, and its rounds make what they make of numbers: nothing large comes in."""
    header = loop.iter if isinstance(loop, cst.For) else loop.for_in.iter if isinstance(loop, cst.BaseComp) else None
    while isinstance(header, cst.Subscript):
        header = header.value
    if loop is None or not isinstance(header, cst.Call) or names.last_name(header.func) not in _NUMBERS:
        return False
    taken = names_in(loop.target if isinstance(loop, cst.For) else loop.for_in.target) if isinstance(loop, cst.For | cst.BaseComp) else set()
    picks = (node for node in descend(loop) if isinstance(node, cst.Subscript))
    if any(isinstance(name, cst.Name) and name.value in taken for node in picks for entry in node.slice for name in descend(entry)):
        return False
    return _computes(project, module, (node for node in descend(loop) if isinstance(node, cst.Call) and names.last_name(node.func) not in PUTS_IN), 0)


def _computes(project: Project, module: Module, calls: Iterable[cst.Call], depth: int) -> bool:
    """Whether calls only compute: functions of libraries for numbers that make no arrays by their shape, and of the project that do the same."""
    evaluator = evaluator_of(project)
    for call in calls:
        found = [alt.value for alt in evaluator.plainly(call.func, module, module.walk.scope_at(call))]
        for one in found:
            if isinstance(one, FunctionRef) and depth < _MOST_FRAMES:
                if not _computes(project, one.module, one.scope.calls, depth + 1):
                    return False
            elif not isinstance(one, External) or not one.name.startswith(_COMPUTING) or one.name.rpartition(".")[2] in MAKERS or known_read(one.name):
                return False
        if not found:
            return False
    return True


def _may_write(module: Module, project: Project) -> Iterator[Scope]:
    """Code that may write what it has made, whether the file speaks of datasets or not."""
    if not holds_tests(module):
        yield from (scope for scope in module.walk.scopes if not scope.is_class and not constructions_of(project).per_item(module, scope))


def _puts(module: Module, scope: Scope, call: cst.Call) -> Iterator[Effect]:
    """What rounds of a loop put into the list that a call joins."""
    rows = call.args[0].value
    for effect in scope.effects.get(rows.value, ()) if isinstance(rows, cst.Name) else ():
        if effect.kind in LENGTHENS and not effect.path and kept_of(module.project).gathering(module, effect.node) is not None:
            yield effect


def _origins(project: Project, module: Module, scope: Scope, call: cst.Call) -> Iterator[Place]:
    """Where the objects that rows are taken from are put into their list, or read from a file, and what else holds that list meanwhile."""
    evaluator = evaluator_of(project)
    rows = call.args[0].value
    if not isinstance(rows, cst.ListComp):
        return
    iterated = rows.for_in.iter
    frames = evaluator.calls.frames(module, scope, most=_MOST_FRAMES)
    for alt in (alt for frame in frames for alt in evaluator.values(iterated, frame)[:_MOST_FRAMES]):
        value = alt.value
        if isinstance(value, Display):
            yield from _filled(value)
        elif isinstance(value, ExternalCall) and known_read(value.name) is not None:
            yield value.frame.module.place(value.call, "all of them are read here")
    for frame in frames:
        given = arguments.given_to(scope, iterated.value, frame.bound or ()) if isinstance(iterated, cst.Name) else None
        if given is None or not isinstance(given.node.value, cst.Name):
            continue
        outer, name = given.bound.frame, given.node.value.value
        for effect in outer.scope.effects.get(name, ()):
            if outer.scope.is_function and effect.kind == "assign" and not effect.path:
                yield outer.module.place(effect.statement, f"`{name}` of `{outer.scope.name}` holds the list for as long as that runs")


def _filled(value: Display) -> Iterator[Place]:
    """The statements that put something into a list, which is as it is written empty, or the comprehension that makes it."""
    module, scope = value.frame.module, value.frame.scope
    if not isinstance(value.node, cst.List):
        yield module.place(value.node, "all of them are made here")
        return
    holder = module.walk.parents.get(value.node)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
    for effect in scope.effects.get(target.value, ()) if isinstance(target, cst.Name) else ():
        if effect.kind == "append" and not effect.path and kept_of(module.project).gathering(module, effect.node) is not None:
            yield module.place(effect.statement, "each of them is put into the list here")


def _is_there(element: cst.BaseExpression) -> bool:
    """Whether an element is one that something else holds, too: a call makes it again, and a slice is a view."""
    if isinstance(element, cst.Subscript):
        return all(isinstance(one.slice, cst.Index) for one in element.slice)
    return isinstance(element, cst.Attribute | cst.Name)


def joined(load: Load) -> bool:
    """Whether a list of it becomes one array in the same module: that is where the finding is, or what a round reads is gone with it."""
    walk = load.module.walk
    joins = (one.node for keeper in load.keepers for one in keeper.passed if one.does is DataTransform.JOINS and one.module is load.module)
    done = [node for node in joins if not (isinstance(node, cst.Call) and _takes_rows_apart(load.module, node))]
    own = [node for node in done if walk.scope_at(node) is load.scope]
    return any(not _column_by_column(load, node) for node in own) if own else bool(done)


def _column_by_column(load: Load, join: cst.CSTNode) -> bool:
    """Whether the rounds of a loop behind the one that reads make one array each: of one of the lists that hold all that was read."""
    loop = kept_of(load.module.project).gathering(load.module, join)
    return loop is not None and loop not in load.module.walk.ancestors(load.node)


def _within(module: Module, node: cst.CSTNode, outer: list[cst.BaseExpression]) -> bool:
    return bool(outer) and any(here in outer for here in module.walk.ancestors(node))
