"""What a loop repeats: the batches of a dataset, other steps that go backward, or something that does not matter here.

A loop is one over batches where each round runs a module's forward on something that comes from the round: from the loop's target, from what the target picks
out of something, or from what the body draws again (``next(it)``, ``sample()``, fresh noise). What the iterated thing is called does not matter; a name decides
only where no module is run in sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model.loops_over_modules import calls_target
from oomlint.model.rounds import body_of, is_chained, takes
from oomlint.syntax.nodes import block_of, descend, names_in

if TYPE_CHECKING:
    from oomlint.model.events import Loop, Record
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

FEW: Final = 10  # rounds that are few enough


def decide(record: Record) -> None:
    """Say of all loops of a run what they repeat."""
    passes = frozenset(node for event in record.forwards for node in (event.node, *(via.call for via in event.via)))
    for loop in record.loops:
        loop.passes = passes
    # A loop whose steps are one chain, or which calls what it goes over: layers of one pass.
    chains = {loop for event in record.forwards for loop in event.loops if is_chained(loop, event) or (not loop.named and calls_target(loop, event))}
    for event in record.forwards:
        # The outermost loop whose round the module's input comes from, but not through what an inner loop goes over: the loops inside run within that round.
        loaders = [number for number, loop in enumerate(event.loops) if loop.named]
        for loop in event.loops[loaders[0] if loaders else 0 :]:
            if loop.proven or (not loop.short and loop not in chains and not ends_at_once(loop.node) and takes(loop, event)):
                loop.proven = True
                break
    for loop in sorted(record.loops, key=lambda loop: -len(loop.around)):  # the inner ones first
        if ends_at_once(loop.node):
            continue
        inner = [other for other in record.loops if loop in other.around and other.batches]
        if not loop.short:
            loop.batches = loop.proven or (loop.named and not inner)
            loop.holds = bool(inner) and _hands_on(loop, record)
            loop.steps = not any(other.proven for other in loop.around) and _goes_backward(loop, record)
        within = [event.loops[event.loops.index(loop) + 1 :] for event in record.backwards if event.known and loop in event.loops and not loop.batches]
        inside = [loops for loops in within if any(other in inner for other in loops)]
        loop.trains = bool(inside)
        again = any(not any(other.epochs for other in loops) for loops in inside) and (loop.counts or isinstance(loop.node, cst.While))
        again = again and not loop.of_parts  # a pass for each layer, say
        loop.epochs = again and not (_hands_on(loop, record) or _builds_anew(loop, record))


def _builds_anew(loop: Loop, record: Record) -> bool:
    """Whether each round makes a module: it trains another one each time, for a fold, a seed or a client."""
    for reset in record.resets:
        if reset.network and loop in reset.loops and not any(other.batches for other in reset.loops[reset.loops.index(loop) + 1 :]):
            return True
    return False


def _hands_on(loop: Loop, record: Record) -> bool:
    """Whether a loop over batches inside goes over something that comes from the round."""
    here = body_of(loop).spread(())
    within = (other.node for other in record.loops if other.batches and loop in other.around and other.scope is loop.scope)
    return any(isinstance(node, cst.For | cst.CompFor) and here.gives(node.iter) for node in within)


def _goes_backward(loop: Loop, record: Record) -> bool:
    """Whether each round goes backward through a forward pass of its own."""
    forwards = {id(event.node): event for event in record.forwards}
    for event in record.backwards:
        if loop in event.loops and event.known and not any(other.batches or other.steps for other in event.loops[event.loops.index(loop) + 1 :]):
            made = [forwards[source] for source in event.sources if source in forwards]
            if any(loop in forward.loops for forward in made):
                return True
    return False


def set_in(loop: cst.CSTNode, walk: Walk, scope: Scope) -> frozenset[str]:
    """Names that the rounds of a loop or of a comprehension set."""
    if isinstance(loop, cst.BaseComp):
        return frozenset(name for row in descend(loop.for_in) if isinstance(row, cst.CompFor) for name in names_in(row.target))
    held = ((name, effects) for name, effects in scope.effects.items() if loop in scope.containing[name])
    inside = ((name, effect) for name, effects in held for effect in effects if not effect.path)
    return frozenset(name for name, effect in inside if effect.statement is loop or loop in walk.ancestors(effect.statement))


def ends_at_once(node: cst.CSTNode) -> bool:
    """Whether a loop is left in its first round."""
    return isinstance(node, cst.For | cst.While) and way_out(node.body) is not None


def way_out(block: cst.BaseSuite) -> cst.Break | cst.Return | None:
    """The statement at the end of a block that leaves the loop around it, where nothing goes on to the next round before."""
    body = block_of(block)
    last = body[-1] if body else None
    if not isinstance(last, cst.Break | cst.Return) or any(isinstance(part, cst.Continue) for part in descend(block, into_scopes=False)):
        return None
    return last
