"""Metrics that keep all that they are given, and what they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.finding import Confidence, Edit, Fix, Safety
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import kept
from oomlint.memory.facts import growth_facts
from oomlint.memory.fixes.growth_fixes import suffixed
from oomlint.model.tensor_state import Graph, TensorState, ValueKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact
    from oomlint.model.events import Store
    from oomlint.model.project import Module, Project


class Fed(Struct, frozen=True):
    """A call that hands such a metric a tensor with its graph."""

    node: cst.Call
    name: str
    kept: str
    confidence: Confidence
    fix: Fix | None
    facts: tuple[Fact, ...] = ()  # the loop


def fed_with_graph(project: Project, module: Module) -> Iterator[Fed]:
    """Calls of a module that hand such metrics tensors with their graph, in loops over batches."""
    for growth in buffers_of(project).told_as("OOM213", module):
        for store in growth.stores:
            found = _fed(store, module, kept(growth), growth.confidence, growth_facts(growth)[:1])
            if found is not None:
                yield found


def _fed(store: Store, module: Module, words: str, confidence: Confidence, facts: tuple[Fact, ...] = ()) -> Fed | None:
    call = store.node
    if not isinstance(call, cst.Call) or store.module is not module:
        return None
    func = call.func.value if isinstance(call.func, cst.Attribute) and call.func.attr.value in {"update", "forward"} else call.func
    return Fed(call, module.code(func).strip(), words, confidence, _fix(call, store.value, module), facts)


def _fix(call: cst.Call, value: TensorState, module: Module) -> Fix | None:
    """``.detach()`` on each argument that carries a graph."""
    held = [value] if len(call.args) == 1 else [item for _, item in value.items]
    if len(held) != len(call.args):
        return None
    edits: list[Edit] = []
    safety = Safety.SAFE
    for arg, one in zip(call.args, held, strict=True):
        if one.carries is not Graph.YES:
            continue
        if one.kind not in {ValueKind.TENSOR, ValueKind.OPAQUE} or arg.star:
            return None
        if not one.sure:
            safety = Safety.UNSAFE
        edits += suffixed(module, arg.value, ".detach()")
    return Fix(safety, "detach the tensor before it is passed", tuple(edits)) if edits else None
