"""The sentences that the rules of growing state share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

import libcst as cst

from oomlint.memory.facts import growth_facts
from oomlint.model.flow import iterated
from oomlint.model.questions import short

if TYPE_CHECKING:
    from oomlint.finding import Confidence, Fact, Place, Severity
    from oomlint.memory.buffers import Growth
    from oomlint.model.events import Loop, Store
    from oomlint.model.project import Module

_LONGEST: Final = 50  # characters of what is iterated


def loop_of(growth: Growth) -> str:
    """How the loop is called: by what it goes through."""
    node = growth.loop.node
    if isinstance(node, cst.FunctionDef):
        return f"the loop that runs `{node.name.value}`"
    return f"the loop over `{over(growth.loop)}`" if isinstance(node, cst.For) else "the loop"


def over(loop: Loop) -> str:
    """What a loop goes through, without progress bars and the like around it; the test of a ``while``."""
    node = loop.node
    if isinstance(node, cst.FunctionDef):
        return loop.name
    return short(loop.module.code(iterated(node.iter)[1] if isinstance(node, cst.For) else node.test), _LONGEST)


def target_of(store: Store) -> str:
    """What is added to, as it is written."""
    node = store.node
    if isinstance(node, cst.AugAssign):
        return short(store.module.code(node.target).strip())
    if isinstance(node, cst.Assign):
        target = node.targets[0].target
        return short(store.module.code(target.value if isinstance(target, cst.Subscript) and store.kind == "item" else target).strip())
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return short(store.module.code(node.func.value).strip())
    root = store.path[0]
    return str(root[1]) if isinstance(node, cst.Return) and isinstance(root, tuple) else "it"


def what_of(store: Store) -> str:
    """What is added, as it is written."""
    return short(store.module.code(store.expression).strip(), 50) if store.expression is not None else "what is added"


def kept(growth: Growth) -> str:
    """What stays of each step's graph."""
    if growth.freed:
        return "backward frees the activations, the autograd nodes of every step stay"
    return "no backward frees it, so every step keeps its activations"


def related(growth: Growth, module: Module) -> list[Place]:
    """The loop's other statements of the same rule, and what it keeps besides."""
    found = [module.place(node, "here, too") for node in growth.others]
    beside = growth.facts.get("beside")
    if isinstance(beside, list):
        found += [module.place(store.node, "kept as well") for store in beside]
    return found


class Told(TypedDict):
    """What the findings of all rules on growth say in the same way."""

    place: Place
    severity: Severity | None
    confidence: Confidence
    related: list[Place]
    facts: list[Fact]


def told(growth: Growth, module: Module) -> Told:
    """Where a growth is, how grave and how sure that is, what belongs to it, and what is known of it."""
    return Told(
        place=module.place(growth.node),
        severity=growth.severity,
        confidence=growth.confidence,
        related=related(growth, module),
        facts=list(growth_facts(growth)),
    )
