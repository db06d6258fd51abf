"""Arrays with room for every sample that a loop fills, one row after the other, before any of it is used."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import ALLOCATORS
from oomlint.finding import Confidence, Message, Told
from oomlint.memory.arrays.allocations import allocations
from oomlint.memory.arrays.joins import joins
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.arrays.windows import changing, gathered, is_window, parts
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocated
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Instance
from oomlint.syntax.nodes import names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

Loop = cst.For | cst.While
_Fill = cst.Assign | cst.AugAssign
_SAME: Final = frozenset({"float", "half", "double", "long", "int", "cuda", "to", "float32", "float16", "astype", "Variable", "type", "pin_memory"})
_FEW: Final = 64  # numbers of one sample that are not worth a word
_COORDINATES: Final = 4  # of a point, with how sure it is
_DENSE: Final = 3  # samples, and at least two dimensions of each: an image, a map
_LARGE_ROW: Final = 1 << 20  # bytes of one sample: some hundreds of them are told of, whatever becomes of the array
_MOST_SITES: Final = 2


class FilledArray(Told, frozen=True, kw_only=True):
    """An array that a loop fills."""

    confidence: Confidence = Confidence.MEDIUM
    node: cst.Call
    loop: cst.CSTNode


def filled_arrays(module: Module, project: Project) -> Iterator[FilledArray]:
    """Arrays of the module with a row for every sample, that a loop fills and that are kept, or written once all of it is there."""
    if holds_tests(module):
        return
    told: set[cst.CSTNode] | None = None
    for scope in module.walk.scopes:
        if scope.is_class or not scope.loops or constructions_of(project).per_item(module, scope):
            continue
        found: dict[cst.CSTNode, list[FilledArray]] = {}
        rooms = [call for call in scope.calls if names.last_name(call.func) in ALLOCATORS]
        every = _fills(project, module, scope) if rooms else {}
        for call in rooms if every else ():
            one = _judge(project, module, scope, call, every)
            if one is not None:
                told = {known.node for known in allocations(module, project) if not known.by_use} if told is None else told
                if call not in told:
                    found.setdefault(one.loop, []).append(one)
        for first, *others in found.values():
            beside = tuple(module.place(other.node, "the same happens here") for other in others)
            yield replace(first, related=(*first.related[:1], *beside, *first.related[1:]))
    yield from _of_lists(module, project)


def rows_of_loaders(module: Module, project: Project) -> Iterator[tuple[cst.Call, Bytes]]:
    """Calls that make an array with some numbers for every sample, which a loop over a loader fills, and its size."""
    evaluator = evaluator_of(project)
    for scope in runs_of(project).roots(module):  # what a network does in its forward pass it does for one batch
        rooms = [call for call in scope.calls if names.last_name(call.func) in ALLOCATORS] if scope.loops else []
        every = _fills(project, module, scope) if rooms else {}
        for call in rooms if every else ():
            loops = [loop for _, loop in _of_call(module, call, every) if isinstance(loop, cst.For)]
            if any(runs_of(project).over_batches(loop, module, scope) for loop in loops):
                plain = evaluator.calls.plain_frame(module, scope)
                size = allocated(call, evaluator, plain)
                if size is not None and len(size.dimensions) > 1 and isinstance(size.dimensions[0], str):
                    yield call, size


def _of_lists(module: Module, project: Project) -> Iterator[FilledArray]:
    """The same by a list of windows, which one call then joins; what the reads of files are joined by is told by another rule."""
    found: dict[Scope, list[tuple[cst.Call, cst.Subscript, Keeper]]] = {}
    for one in sorted(gathered(module, project), key=lambda one: module.place(one[0]).row):
        found.setdefault(module.walk.scope_at(one[0]), []).append(one)
    told = {module.walk.scope_at(join.node) for join in joins(module, project)} if found else set()
    for scope, ((call, window, keeper), *others) in found.items():
        if scope in told:
            continue
        base = " ".join(module.code(window.value).split())
        repeats = f"overlapping parts are stored many times; {_until(keeper, call)}"
        message = Message(f"`{module.function_of(call)}` makes one array of all windows of `{base}`", repeats, "cut each window in `__getitem__`")
        beside = dict.fromkeys(module.place(other, "the same happens here") for other, _, _ in others)
        related = [module.place(window, "sliced here"), *(place for place in beside if place.row != module.place(call).row)]
        related += [keeper.module.place(keeper.node, f"{keeper.words} keeps it")] if not keeper.saver and keeper.node is not call else []
        facts = (allocation_fact(module, call), *keeper_facts(keeper))
        yield FilledArray(module.place(call), message, related=tuple(related), facts=facts, node=call, loop=scope.node)


def _until(keeper: Keeper | None, call: cst.Call) -> str:
    if keeper is None or keeper.node is call:
        return "all of it is in memory " + ("until the loop ends" if keeper is None else "at once")
    if keeper.evaluated:
        return "it stays until the evaluation ends"
    return f"it stays until `{keeper.saver}` writes it" if keeper.saver else f"it stays in {keeper.words}"


def _judge(project: Project, module: Module, scope: Scope, call: cst.Call, every: dict[str, list[tuple[_Fill, Loop]]]) -> FilledArray | None:
    fills = list(_of_call(module, call, every))
    told = next(((fill, loop, source) for fill, loop in fills if (source := _source(project, module, scope, fill, loop)) is not None), None)
    if told is None:
        return _made_and_written(project, module, scope, call, fills)
    evaluator = evaluator_of(project)
    plain = evaluator.calls.plain_frame(module, scope)
    size = allocated(call, evaluator, plain)
    if size is None or not rows_of_all(project, size):
        return None
    fill, loop, (why, dense) = told
    keeper = next((one for one in kept_of(project).filled(module, call) if not one.hazy), None)
    if (len(size.dimensions) < _DENSE or _of_points(size)) if dense else (keeper is None and not _of_large_rows(project, module, call, size)):
        return None
    return _filled(project, module, scope, call, loop, size, fill, why, keeper)


def _of_call(module: Module, call: cst.Call, every: dict[str, list[tuple[_Fill, Loop]]]) -> Iterator[tuple[_Fill, Loop]]:
    """What fills the array that a call makes: what a round makes for itself is gone with it, and another loop fills another one of that name."""
    around = [here for here in module.walk.ancestors(call) if isinstance(here, cst.For | cst.While)]
    for fill, loop in every.get(_name_of(module, call), ()):
        if loop not in around and set(around) <= set(module.walk.ancestors(fill)):
            yield fill, loop


def _made_and_written(project: Project, module: Module, scope: Scope, call: cst.Call, fills: list[tuple[_Fill, Loop]]) -> FilledArray | None:
    """An array of which each round makes a row of two dimensions and more, whatever that is made of, and which one call writes once all rows are there."""
    rows = ((fill, loop) for fill, loop in fills if isinstance(fill, cst.Assign) and not isinstance(fill.value, cst.Name | cst.BaseNumber))
    made = next(((fill, loop) for fill, loop in rows if isinstance(fill.value, cst.Call) and _is_row(_target_of(fill))), None)
    evaluator = evaluator_of(project)
    plain = evaluator.calls.plain_frame(module, scope)
    size = allocated(call, evaluator, plain) if made is not None else None
    if made is None or size is None or len(size.dimensions) < _DENSE or not isinstance(size.dimensions[0], str) or not rows_of_all(project, size):
        return None
    keeper = next((one for one in kept_of(project).filled(module, call) if one.saver and not one.hazy), None)
    if keeper is None:
        return None
    fill, loop = made
    return _filled(project, module, scope, call, loop, size, fill, "what it makes of one sample", keeper)


def _is_row(target: cst.CSTNode | None) -> bool:
    return isinstance(target, cst.Subscript) and len(target.slice) == 1 and isinstance(target.slice[0].slice, cst.Index)


def _filled(
    project: Project, module: Module, scope: Scope, call: cst.Call, loop: Loop, size: Bytes, fill: _Fill, why: str, keeper: Keeper | None
) -> FilledArray:
    headline = f"`{module.function_of(call)}` allocates one array for all samples"
    message = Message(headline, f"a loop fills {size.words()} with {why}; {_until(keeper, call)}")
    related = [module.place(fill, "filled here")]
    if keeper is not None and not keeper.saver:
        related.append(keeper.module.place(keeper.node, f"{keeper.words} keeps it"))
    sites = evaluator_of(project).calls.sites(module, scope) if scope.is_function else []
    related += [site.module.place(site.call, "all of the data comes from here") for site in sites[:_MOST_SITES]]
    facts = (allocation_fact(module, call, size), *(keeper_facts(keeper) if keeper is not None else ()))
    return FilledArray(module.place(call), message, related=tuple(related), facts=facts, node=call, loop=loop)


# -- the array -----------------------------------------------------------------------------------------------------------------------


def _name_of(module: Module, call: cst.Call) -> str:
    """The name, or the attribute of ``self``, that the array goes by."""
    node: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.Assign):
            target = here.targets[0].target
            return module.code(target).strip() if isinstance(target, cst.Name | cst.Attribute) and len(here.targets) == 1 else ""
        if isinstance(here, cst.Call) and names.last_name(here.func) not in _SAME:
            return ""
        if not isinstance(here, cst.Attribute | cst.Call | cst.Arg) or (isinstance(here, cst.Arg) and here is node):
            return ""
        node = here
    return ""


def rows_of_all(project: Project, size: Bytes) -> bool:
    """Whether the array has an unknown number of rows of more than a few numbers, or is known to be large."""
    first, *rest = size.dimensions
    if not isinstance(first, str):
        return size.item is not None and size.least >= project.settings.array_bytes
    known = prod(number for number in rest if isinstance(number, int))
    return bool(rest) and (known >= _FEW or any(isinstance(number, str) for number in rest))


def _of_large_rows(project: Project, module: Module, call: cst.Call, size: Bytes) -> bool:
    """Whether an array that a script makes once has a large row for each of a list: it need not be kept, nor written, to be told of."""
    first, *rest = size.dimensions
    row = prod(number for number in rest if isinstance(number, int)) * (size.item or 1)
    return isinstance(first, str) and first.startswith("len(") and row >= _LARGE_ROW and kept_of(project).runs_once(module, call)


def _of_points(size: Bytes) -> bool:
    """Whether a sample is a table of points, as the key points of a pose are: a few numbers each."""
    rest = size.dimensions[1:]
    known = [number for number in rest if isinstance(number, int)]
    return isinstance(rest[-1], int) and rest[-1] <= _COORDINATES and len(rest) - len(known) <= 1 and prod(known) < _FEW


def _fills(project: Project, module: Module, scope: Scope) -> dict[str, list[tuple[_Fill, Loop]]]:
    """Statements in loops that put something into other rows of an array in each round, by the name of the array."""
    found: dict[str, list[tuple[_Fill, Loop]]] = {}
    for node in scope.nodes(inner=False):
        target = _target_of(node)
        if isinstance(node, _Fill) and isinstance(target, cst.Subscript):
            loop = kept_of(project).gathering(module, node)
            if isinstance(loop, Loop) and _moves(scope, loop, module, target):
                found.setdefault(module.code(target.value).strip(), []).append((node, loop))
    return found


def _target_of(node: cst.CSTNode) -> cst.CSTNode | None:
    """What a statement puts something into, or adds it to; of several, the row that is filled: ``rows[i], rate = read(path)``."""
    if isinstance(node, cst.AugAssign):
        return node.target
    target = node.targets[0].target if isinstance(node, cst.Assign) and len(node.targets) == 1 else None
    return next((one.value for one in target.elements if isinstance(one.value, cst.Subscript)), None) if isinstance(target, cst.Tuple) else target


def _moves(scope: Scope, loop: Loop, module: Module, target: cst.Subscript) -> bool:
    """Whether the first index is another one in each round."""
    moving = changing(module, scope, loop)
    return uses_name(target.slice[0], moving)


# -- what it is filled with ----------------------------------------------------------------------------------------------------------


def _source(project: Project, module: Module, scope: Scope, fill: _Fill, loop: Loop) -> tuple[str, bool] | None:
    """What a round puts into its row, in words, and whether it is what a model gives; ``None`` where that need not be data."""
    target = _target_of(fill)
    row = isinstance(target, cst.Subscript) and isinstance(target.slice[0].slice, cst.Index)
    reads = {read.node for read in read_calls_of(project).in_scope(module, scope)}
    of_loader = isinstance(loop, cst.For) and runs_of(project).over_batches(loop, module, scope)
    drawn = names_in(loop.target) if isinstance(loop, cst.For) else set()
    for node, other in parts(module, scope, fill.value, loop):
        if node in reads:
            known = {load.node for load in (*arrays_of(project).files(module), *arrays_of(project).h5(module))}
            return None if node in known else ("data from files", False)
        if isinstance(node, cst.Subscript):
            part = node.slice[0].slice
            if row and not other and is_window(project, module, scope, node, loop):
                return f"overlapping windows of `{' '.join(module.code(node.value).split())}`", False
            if isinstance(part, cst.Index) and _is_dataset(project, module, scope, node.value):
                return f"samples of `{module.code(node.value).strip()}`", False
        if of_loader and isinstance(node, cst.Name) and node.value in drawn:
            return "results of each batch", True
    return None


def _is_dataset(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    """Whether an object is a dataset of the project."""
    evaluator, constructions = evaluator_of(project), constructions_of(project)
    return any(isinstance(alt.value, Instance) and constructions.is_dataset(alt.value.cls) for alt in evaluator.plainly(node, module, scope)[:2])
