"""Matrices with a number for every pair of samples: products and distances of what an evaluation has gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays.filled import rows_of_loaders
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.buffers.bounds import bounded
from oomlint.memory.buffers.growing_loops import growing_loops, is_flushed
from oomlint.memory.buffers.joined_behind import joins_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.test_suites import holds_tests
from oomlint.model import names
from oomlint.model.held import Graph
from oomlint.model.values import External
from oomlint.syntax.walk import descend

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
_TURNS: Final = frozenset({"t", "T", "mT", "transpose", "permute", "swapaxes"})
_ADDS: Final = frozenset({"append", "extend", "augment"})
_MOST_RELATED: Final = 3


@dataclass(frozen=True, slots=True)
class Pairs:
    """An operation that makes a number for every pair of samples."""

    node: cst.Call | cst.BinaryOperation
    name: str
    gathered: tuple[cst.Call, ...]  # the calls that make the arrays of all samples
    related: tuple[Place, ...]


def all_pairs(module: Module, project: Project) -> Iterator[Pairs]:
    """Operations on what the module has gathered of all samples: one for each function and what it is made of."""
    if holds_tests(module):
        return
    kept = kept_of(project)
    sides: dict[cst.CSTNode, dict[int, tuple[cst.Call, Met]]] = {}
    for start in _gathered(module, project):
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
        related = [module.place(start, "all of them are gathered here") for start in starts]
        node: cst.Call | cst.BinaryOperation | None = met.node if met.module is module else None
        entered = met.going.entered
        while node is None and entered is not None:
            node = entered.call if entered.module is module else None
            entered = entered.outer
        if node is None:
            node, related = left, related[1:]
        if node is not met.node:
            related.insert(0, met.module.place(met.node, "a number for each pair is made here"))
        yield Pairs(node, _words(met.module, met.node), starts, tuple(related[:_MOST_RELATED]))


def _gathered(module: Module, project: Project) -> Iterator[cst.Call]:
    """Calls that make one array of what a loop over batches has kept of each, and arrays with a row for every sample that a loop over a loader fills."""
    stores: dict[Loop, list[Store]] = {}
    for record in runs_of(project).of(module):
        for store in record.stores:
            growing = growing_loops(store, record) if store.kind in _ADDS and store.value.carries is Graph.NO else ()
            if growing and growing[-1].batches and not bounded(store, growing[-1]) and not is_flushed(store, record, growing):
                stores.setdefault(growing[-1], []).append(store)
    joined = (call for loop, found in stores.items() for call in joins_of(found, loop))
    yield from (call for call in dict.fromkeys((*joined, *(call for call, _ in rows_of_loaders(module, project)))) if not _each_round(module, call, project))


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
    plain = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
    evaluator = evaluator_of(project)
    called = evaluator.values(node.func, evaluator.calls.plain_frame(module, module.walk.scope_at(node)))[:2]
    name = next((names.canonical(alt.value.name) for alt in called if isinstance(alt.value, External)), "")
    operand = met.operand.value if isinstance(met.operand, cst.Arg) else met.operand
    if name in _PRODUCTS:
        return _of_product(plain[-2], plain[-1], operand) if len(plain) > 1 else ()
    if name in _DISTANCES:
        if len(plain) == 1 and name.startswith(_ALONE) and not any(a.keyword is not None and a.keyword.value == "Y" for a in node.args):
            return (0, 1) if operand is plain[0] else ()
        return tuple(side for side, one in enumerate(plain[:2]) if one is operand)
    if not name and last in _PRODUCT_METHODS and isinstance(node.func, cst.Attribute) and plain:
        if last.startswith("addmm"):
            return _of_product(plain[-2], plain[-1], operand) if len(plain) > 1 else ()
        return _of_product(node.func.value, plain[0], node.func.value if operand is node.func else operand)
    return ()


def _block_by_block(start: cst.Call, met: Met) -> bool:
    """Whether a loop that begins behind the gathering makes the operation again and again: then each round takes some of the samples."""
    places = [(met.module, met.node)]
    entered = met.going.entered
    while entered is not None:
        places.append((entered.module, entered.call))
        entered = entered.outer
    for module, node in places:
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.For | cst.While | cst.ListComp | cst.GeneratorExp) and start not in descend(here):
                return True
            if isinstance(here, cst.FunctionDef):
                break
    return False


def _of_product(left: cst.BaseExpression, right: cst.BaseExpression, operand: cst.CSTNode) -> tuple[int, ...]:
    """``x @ y.t()``: rows meet rows; of ``x.t() @ y`` columns meet columns, which is small."""
    if _turned(left) or not _turned(right):
        return ()
    return (0,) if operand is left else (1,) if operand is right else ()


def _turned(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in _TURNS or (isinstance(node.func, cst.Attribute) and _turned(node.func.value))
    return isinstance(node, cst.Attribute) and node.attr.value in _TURNS


def _words(module: Module, node: cst.Call | cst.BinaryOperation) -> str:
    return f"`{names.dotted(node.func)}`" if isinstance(node, cst.Call) else f"`{' '.join(module.code(node).split())}`"
