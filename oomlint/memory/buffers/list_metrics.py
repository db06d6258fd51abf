"""Metrics that keep all that they are given, and what they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Edit, Fix, Message, Safety, StoreFact, StoreKind, Told
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import kept
from oomlint.memory.facts import growth_facts
from oomlint.memory.fixes.growth_fixes import suffixed
from oomlint.model.tensor_state import Graph, TensorState, ValueKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project


def fed_with_graph(project: Project, module: Module) -> Iterator[Told]:
    """Calls of a module that hand such metrics tensors with their graph, in loops over batches."""
    for growth in buffers_of(project).told_as("OOM213", module):
        for store in growth.stores:
            call = store.node
            if not isinstance(call, cst.Call) or store.module is not module:
                continue
            func = call.func.value if isinstance(call.func, cst.Attribute) and call.func.attr.value in {"update", "forward"} else call.func
            name, place = module.code(func).strip(), module.place(call)
            message = Message(f"`{name}` stores every tensor it gets, here with its graph", kept(growth))
            facts = (StoreFact(place, name, StoreKind.METRIC), *growth_facts(growth)[:1])
            yield Told(place, message, confidence=growth.confidence, fix=_fix(call, store.value, module), facts=facts)


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
