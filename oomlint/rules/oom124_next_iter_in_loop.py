"""OOM124 next-iter-in-loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import ByteSize, Confidence, Consequence, LoopKind, Message, Multiplier, Resource, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.facts import like_facts, loop_fact
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import conditional_in, goes_often, is_nth, loader_like, loops_around
from oomlint.memory.shared.start_methods import FORKED
from oomlint.memory.shared.training_loops import few_rounds_around
from oomlint.model.names import last_name
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class NextIterInLoop(Rule):
    """Each step starts all workers again to take one batch.

    ## What it does

    Checks for `next(iter(loader))` inside a loop, where `loader` is a `DataLoader` that has workers or whose number of workers is not known.

    A single `next(iter(loader))` outside a loop, to look at a batch, says nothing.

    ## Why is this bad

    `iter(loader)` starts all workers, fills the batches in flight, and throws everything away after one batch. With two workers a step took
    126 ms, against 9 ms in a plain loop; with persistent workers 25 ms (measured with torch 2.13.0). And each step sees the first batch of a
    pass, never the rest.

    ## Example

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, steps):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        for step in range(steps):
            model.step(next(iter(loader)))
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader


    def endless(loader):
        while True:
            yield from loader


    def train(model, dataset, steps):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        for _, batch in zip(range(steps), endless(loader)):
            model.step(batch)
    ```

    ## Fix safety

    There is no fix: other batches are seen, which is the point.

    ## References

    - [pytorch/pytorch#1917](https://github.com/pytorch/pytorch/issues/1917)
    """

    code = "OOM124"
    slug = "next-iter-in-loop"
    severity = Severity.WARNING
    fixable = None
    help = "create the iterator once before the loop, or loop over the loader itself"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.STEPS, Multiplier.WORKERS), ByteSize(least=FORKED))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.PROCESSES,), also=(Quantity.ITERATORS,), steps=10, workers=2),
        traits=frozenset({Trait.LEARNS, Trait.STARTS_WORKERS, Trait.FEWER_PASSES, Trait.NOT_BY_COMMAND, Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loops that make a new iterator over a loader in each step."""
        for call, scope in module.walk.calls:
            inner = self._iterator(call)
            iterated = self._iterated(inner) if isinstance(inner, cst.Call) else None
            if not isinstance(inner, cst.Call) or iterated is None:
                continue
            loop = next(iter(loops_around(call, module, scope)), None)
            if loop is None or not goes_often(project, loop, module, scope) or conditional_in(call, loop, module, but=is_nth):
                continue
            if runs_of(project).epochs(loop, module, scope):
                continue  # a look at a batch in each epoch
            like = loader_like(project, iterated, module, scope)
            if like is None or like.without_workers:
                continue
            made = f"{like.name}.__iter__()" if last_name(inner.func) == "__iter__" else f"{last_name(inner.func)}({like.name})"
            message = Message(
                f"`next({made})` in a loop restarts all workers for each batch", "each restart prefetches several batches and uses only the first"
            )
            related = [module.place(like.loader.call, "the loader")] if like.loader is not None and like.loader.module is module else []
            confidence = Confidence.HIGH if like.known and like.workers else Confidence.MEDIUM
            severity = Severity.NOTE if few_rounds_around(project, call, module, scope) else self.severity
            yield self.finding(
                module.place(call),
                message,
                severity=severity,
                confidence=confidence,
                related=related,
                facts=[*like_facts(like), loop_fact(module, loop, LoopKind.BATCH)],
            )

    @staticmethod
    def _iterated(iterator: cst.Call) -> cst.BaseExpression | None:
        """What ``iter(...)``, ``enumerate(...)`` or ``(...).__iter__()`` goes through."""
        if isinstance(iterator.func, cst.Attribute) and iterator.func.attr.value == "__iter__":
            return iterator.func.value
        return iterator.args[0].value if last_name(iterator.func) in {"iter", "enumerate"} and iterator.args else None

    @staticmethod
    def _iterator(call: cst.Call) -> cst.BaseExpression | None:
        """What ``next(...)`` or ``(...).__next__()`` takes one element of."""
        if last_name(call.func) == "next" and call.args:
            return call.args[0].value
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in {"__next__", "next"}:
            return call.func.value
        return None
