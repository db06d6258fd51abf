"""Matrices with a number for every pair of samples: products and distances of what an evaluation has gathered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import TURNS
from oomlint.memory.arrays.filled import rows_of_loaders
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.arrays.small_files import of_small_file
from oomlint.memory.buffers.bounds import bounded
from oomlint.memory.buffers.growing_loops import growing_loops, is_flushed
from oomlint.memory.buffers.joined_behind import joins_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.known_reads import KnownRead
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.model import arguments, names
from oomlint.model.tensor_shapes import is_flat
from oomlint.model.tensor_state import Graph
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import External
from oomlint.syntax.nodes import descend, names_in, uses_name
from oomlint.syntax.scopes import LENGTHENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.arrays.kept_state import Met
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module, Project

_PRODUCTS: Final = frozenset({"torch.mm", "torch.matmul", "torch.addmm", "numpy.dot", "numpy.matmul"})
_PRODUCT_METHODS: Final = frozenset({"mm", "matmul", "dot", "addmm", "addmm_"})
_DISTANCES: Final = frozenset(
    {
        "torch.cdist", "scipy.spatial.distance.cdist", "sklearn.metrics.pairwise_distances",
        *(f"sklearn.metrics.pairwise.{name}" for name in (
            "pairwise_distances", "euclidean_distances", "manhattan_distances", "cosine_similarity", "cosine_distances", "linear_kernel", "rbf_kernel",
        )),
    }
)  # fmt: skip
_ALONE: Final = "sklearn."  # where one argument is enough: it meets itself
_LAST: Final = _PRODUCT_METHODS | {name.rpartition(".")[2] for name in (*_PRODUCTS, *_DISTANCES)}
# What makes another array, as large as the one that it is given or larger: of a matrix of all pairs, for a moment or for good.
_AGAIN: Final = frozenset(
    "concatenate cat stack vstack hstack power pow exp sqrt square clip clamp argsort sort argpartition partition astype copy clone array tensor "
    "ascontiguousarray zeros_like ones_like empty_like full_like".split()
)
_SAME_AXES: Final = frozenset("detach cpu cuda to numpy float double half clone copy astype".split())
_END_TO_END: Final = frozenset("cat concat concatenate hstack".split())
_SORTS: Final = frozenset({"argsort", "argpartition", "sort"})
_COMPUTES: Final = cst.Add | cst.Subtract | cst.Multiply | cst.Divide | cst.Power
_SAYS: Final = re.compile(r"\.t\(\)|\.m?T\b|transpose|cdist|pairwise|cosine_similarity|_distances")
_MOST_RELATED: Final = 5
_FROM: Final = {False: "all of them are gathered here", True: "all of them are read here"}


class Pairs(Struct, frozen=True):
    """An operation that makes a number for every pair of samples."""

    node: cst.Call | cst.BinaryOperation
    name: str
    gathered: tuple[cst.Call, ...]  # the calls that make the arrays of all samples
    related: tuple[Place, ...]
    made: cst.Call | cst.BinaryOperation  # the operation itself, perhaps in another file
    read: bool = False  # whether they are read from a file, perhaps two arrays of one file


def all_pairs(module: Module, project: Project) -> Iterator[Pairs]:
    """Operations on what the module has gathered of all samples: one for each function and what it is made of.

    One of another file that is told there already, for what that file gathers, is not told again.
    """
    for found, made in _pairs(module, project):
        if made is module or not any(other is made and one.node is found.made for one, other in _pairs(made, project)):
            yield found


def _pairs(module: Module, project: Project) -> Iterator[tuple[Pairs, Module]]:
    """The same, each with the file that it stands in."""
    if holds_tests(module):
        return
    kept = kept_of(project)
    read = frozenset(_read(module, project))
    sides: dict[cst.CSTNode, dict[int, tuple[cst.Call, Met]]] = {}
    for start in dict.fromkeys((*_gathered(module, project), *read)):
        for met in kept.met(module, start):
            for side in _sides(project, met):
                sides.setdefault(met.node, {}).setdefault(side, (start, met))
    told: set[object] = set()
    for found in sides.values():
        if len(found) < 2 or any(_block_by_block(start, met) for start, met in found.values()):  # noqa: PLR2004 - two sides
            continue
        (left, met), (right, _) = found[0], found[1]
        scope = met.module.walk.scope_at(met.node)
        if (scope, left, right) in told:
            continue
        told.add((scope, left, right))
        starts = tuple(dict.fromkeys((left, right)))
        again = _again(project, met)
        if not read.isdisjoint(starts) and not any(again.values()):
            continue  # a rotation and its points may lie in a file, too: who ranks the pairs says that they are samples
        related = [*sorted(again, key=lambda place: not again[place]), *(module.place(start, _FROM[start in read]) for start in starts)]
        node: cst.Call | cst.BinaryOperation | None = met.node if met.module is module else None
        entered = met.going.entered
        while node is None and entered is not None:
            node = entered.call if entered.module is module else None
            entered = entered.outer
        if node is None:
            node = left
            related = [one for one in related if one.row != module.place(left).row or one.path != module.path]
        if node is not met.node:
            related.insert(0, met.module.place(met.node, "a number for each pair is made here"))
        yield Pairs(node, _words(met.module, met.node), starts, tuple(related[:_MOST_RELATED]), met.node, not read.isdisjoint(starts)), met.module


def _gathered(module: Module, project: Project) -> Iterator[cst.Call]:
    """Calls that make one array of what a loop over batches has kept of each, and arrays with a row for every sample that a loop over a loader fills."""
    stores: dict[Loop, list[Store]] = {}
    for record in runs_of(project).of(module):
        for store in record.stores:
            growing = growing_loops(store, record) if store.kind in LENGTHENS and store.value.carries is Graph.NO else ()
            if growing and growing[-1].batches and not bounded(store, growing[-1]) and not is_flushed(store, record, growing):
                stores.setdefault(growing[-1], []).append(store)
    each = ((store, loop) for loop, found in stores.items() for store in found)
    joined = (call for store, loop in each for call in joins_of([store], loop) if not _is_one_row(project, call, store))
    yield from (call for call in dict.fromkeys((*joined, *(call for call, _ in rows_of_loaders(module, project)))) if not _each_round(module, call, project))


def _is_one_row(project: Project, join: cst.Call, store: Store) -> bool:
    """Whether what is stored has one axis, and a call puts it end to end: the product of two such rows is a number."""
    return names.last_name(join.func) in _END_TO_END and store.expression is not None and _is_flat(project, store, store.expression)


def _is_flat(project: Project, store: Store, node: cst.BaseExpression) -> bool:
    """Whether an expression lays all numbers in one row, or puts such rows end to end: the gradients of all parameters."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME_AXES:
        node = node.func.value
    if isinstance(node, cst.Name):
        bound = [effect for effect in store.scope.effects.get(node.value, ()) if not effect.path]
        value = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index else None
        return isinstance(value, cst.Call) and _is_flat(project, store, value)
    if not isinstance(node, cst.Call):
        return False
    word, first = names.last_name(node.func), node.args[0].value if node.args else None
    if word in _END_TO_END and isinstance(first, cst.BaseSimpleComp):
        return _is_flat(project, store, first.elt)
    function = any(isinstance(alt.value, External) for alt in evaluator_of(project).plainly(node.func, store.module, store.scope))
    return is_flat(word, node, 1 if function else 0)


def _read(module: Module, project: Project) -> Iterator[cst.Call]:
    """Calls that read an array with a row for each sample from a file, where the module multiplies rows by rows."""
    if _SAYS.search(module.source.text) is None:
        return
    reads, built = read_calls_of(project), constructions_of(project)
    for scope in module.walk.scopes:
        if scope.is_class or built.per_item(module, scope):
            continue
        for read in reads.in_scope(module, scope):
            large = read.kind in {KnownRead.ARRAY, KnownRead.ARCHIVE} and not of_small_file(read)
            if isinstance(read.node, cst.Call) and large and not _each_round(module, read.node, project):
                yield read.node


def _again(project: Project, met: Met) -> dict[Place, bool]:
    """Where more matrices of the size are made of the one that an operation gives: a place for each statement, and whether that sorts it."""
    found: dict[Place, bool] = {}
    for one in kept_of(project).met(met.module, met.node):
        last = names.last_name(one.node.func) if isinstance(one.node, cst.Call) else ""
        if last in _AGAIN or (isinstance(one.node, cst.BinaryOperation) and isinstance(one.node.operator, _COMPUTES)):
            statement = one.module.walk.statement_of(one.node)
            place = one.module.place(statement, f"another matrix of the size is made here{', with eight bytes a number' if last.startswith('arg') else ''}")
            found[place] = found.get(place, False) or last in _SORTS
    return found


def _each_round(module: Module, call: cst.Call, project: Project) -> bool:
    """Whether a loop makes the array again for what its rounds go through: of one video, one task; those of epochs have all samples each."""
    scope = module.walk.scope_at(call)
    return any(not runs_of(project).epochs(loop, module, scope) for loop in loops_around(call, module, scope))


def _sides(project: Project, met: Met) -> tuple[int, ...]:
    """Which side of a product or of a distance an operand is: 0, 1 or both; none where it is neither, or is turned so that other axes meet."""
    node, module = met.node, met.module
    if isinstance(node, cst.BinaryOperation):
        if not isinstance(node.operator, cst.MatrixMultiply):
            return ()
        return _of_product(node.left, node.right, met.operand)
    last = names.last_name(node.func)
    if last not in _LAST:
        return ()
    plain = arguments.plain(node)
    evaluator = evaluator_of(project)
    called = evaluator.plainly(node.func, module, module.walk.scope_at(node))[:2]
    name = next((names.canonical(alt.value.name) for alt in called if isinstance(alt.value, External)), "")
    operand = met.operand.value if isinstance(met.operand, cst.Arg) else met.operand
    if name in _PRODUCTS:
        return _of_product(plain[-2], plain[-1], operand) if len(plain) > 1 else ()
    if name in _DISTANCES:
        if len(plain) == 1 and name.startswith(_ALONE) and not arguments.has(node, "Y"):
            return (0, 1) if operand is plain[0] else ()
        return tuple(side for side, one in enumerate(plain[:2]) if one is operand)
    if not name and last in _PRODUCT_METHODS and isinstance(node.func, cst.Attribute) and plain:
        if last.startswith("addmm"):
            return _of_product(plain[-2], plain[-1], operand) if len(plain) > 1 else ()
        return _of_product(node.func.value, plain[0], node.func.value if operand is node.func else operand)
    return ()


def _block_by_block(start: cst.Call, met: Met) -> bool:
    """Whether a loop that begins behind the gathering makes the operation again and again, of what its rounds set: then each takes some of the samples."""
    places = [(met.module, met.node)]
    entered = met.going.entered
    while entered is not None:
        places.append((entered.module, entered.call))
        entered = entered.outer
    for module, node in places:
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.For | cst.While | cst.ListComp | cst.GeneratorExp) and start not in descend(here) and _takes_of_round(node, here):
                return True
            if isinstance(here, cst.FunctionDef):
                break
    return False


def _takes_of_round(node: cst.BaseExpression, loop: cst.CSTNode) -> bool:
    """Whether an operation, or a call that leads to it, is given something that the rounds of a loop set: not where they run one judge after the other."""
    given: list[cst.CSTNode] = [node]
    if isinstance(node, cst.Call):
        method = isinstance(node.func, cst.Attribute) and node.func.attr.value in _PRODUCT_METHODS
        given = [*(arg.value for arg in node.args), *([node.func] if method else [])]
    set_here = {
        name
        for one in descend(loop)
        if isinstance(one, cst.For | cst.CompFor | cst.AssignTarget | cst.AugAssign | cst.NamedExpr | cst.AnnAssign)
        for name in names_in(one.target)
    }
    return any(uses_name(one, set_here) for one in given)


def _of_product(left: cst.BaseExpression, right: cst.BaseExpression, operand: cst.CSTNode) -> tuple[int, ...]:
    """``x @ y.t()``: rows meet rows; of ``x.t() @ y`` columns meet columns, which is small."""
    if _turned(left) or not _turned(right):
        return ()
    return (0,) if operand is left else (1,) if operand is right else ()


def _turned(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in TURNS or (isinstance(node.func, cst.Attribute) and _turned(node.func.value))
    return isinstance(node, cst.Attribute) and node.attr.value in TURNS


def _words(module: Module, node: cst.Call | cst.BinaryOperation) -> str:
    return f"`{names.dotted(node.func)}`" if isinstance(node, cst.Call) else f"`{' '.join(module.code(node).split())}`"
