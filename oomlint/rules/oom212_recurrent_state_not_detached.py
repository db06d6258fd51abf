"""OOM212 recurrent-state-not-detached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Consequence, LoopKind, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.recurrent_loops import carried_in, cut_at_the_end
from oomlint.memory.facts import loop_fact
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project


class RecurrentStateNotDetached(Rule):
    """A recurrent state drags the graph of all batches before into the next one.

    ## What it does

    Checks for `out, h = rnn(x, h)` in a loop over batches where nothing cuts the graph of `h` between two of them: no `h = h.detach()`, no
    `repackage_hidden(h)`, no new start. It knows `nn.RNN`, `nn.LSTM`, `nn.GRU`, their cells, and modules of the project that take a state and
    give it back; and states kept on `self` from one call to the next.

    A loop over the time steps of one sequence must keep the graph and says nothing. Nor does a loop under `torch.no_grad()`, where there is no
    graph to keep.

    ## Why is this bad

    `h` holds the graph of the batch that made it, that graph holds the `h` before, and so on to the first batch. In an evaluation loop in
    gradient mode 1.88 MiB stayed with each step, against 0.10 MiB with `detach()` (measured with torch 2.13.0). In a training loop the second
    `backward()` raises, because it runs into the graph that the first one freed; with `retain_graph=True` it does not raise, and each step goes
    back through all steps before it.

    `h.detach()` on a line of its own does nothing: it returns the tensor without the graph, and leaves `h` as it is.

    ## Example

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    def train(dataset, optimizer, criterion):
        rnn = nn.GRU(64, 128, batch_first=True)
        head = nn.Linear(128, 10)
        hidden = torch.zeros(1, 16, 128)
        for x, y in DataLoader(dataset, batch_size=16, drop_last=True):
            optimizer.zero_grad()
            out, hidden = rnn(x, hidden)
            loss = criterion(head(out[:, -1]), y)
            loss.backward()
            optimizer.step()
    ```

    ## Use instead

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    def train(dataset, optimizer, criterion):
        rnn = nn.GRU(64, 128, batch_first=True)
        head = nn.Linear(128, 10)
        hidden = torch.zeros(1, 16, 128)
        for x, y in DataLoader(dataset, batch_size=16, drop_last=True):
            optimizer.zero_grad()
            out, hidden = rnn(x, hidden)
            loss = criterion(head(out[:, -1]), y)
            loss.backward()
            optimizer.step()
            hidden = hidden.detach()
    ```

    ## Fix safety

    The fix detaches the state as the last statement of the loop. It is unsafe: gradients no longer flow from one batch into the one before,
    which is nearly always what is meant. A state of unknown form, a loop with `continue` and a state on `self` get advice only.

    ## References

    - [pytorch/pytorch#2198](https://github.com/pytorch/pytorch/issues/2198)
    """

    code = "OOM212"
    slug = "recurrent-state-not-detached"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    help = "detach the state once per batch"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(
        loop=GRAPH,
        error="backward through the graph a second time",
        traits=frozenset({Trait.RAISES, Trait.MODEL_HIDES, Trait.LEARNS, Trait.RECORDS_GRAPH, Trait.MEANT}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls whose state goes on into the next batch with its graph."""
        for carried in carried_in(module, project):
            step, loop = carried.step, carried.loop
            state = " and ".join(f"`{name}`" for name in step.states)
            carries = "carries" if len(step.states) == 1 else "carry"
            if carried.trains:
                how = "the second `backward()` raises RuntimeError, or with `retain_graph` runs through all of them"
            elif loop is None:
                how = "nothing detaches or resets it between calls, so memory grows with every call"
            else:
                how = "memory grows with every batch"
            message = Message(f"{state} {carries} the graph of all earlier {'calls' if loop is None and not carried.trains else 'batches'}", how)
            related = []
            if loop is not None:
                head = loop.target if isinstance(loop, cst.For) else loop.test
                related = [module.place(head, "one batch for each round of this loop")]
            confidence = Confidence.HIGH if step.known and (loop is not None or carried.trains) else Confidence.MEDIUM
            facts: list[Fact] = [StoreFact(module.place(step.statement), name, StoreKind.ASSIGN) for name in step.states]
            facts += [loop_fact(module, loop, LoopKind.BATCH)] if loop is not None else []
            fix = cut_at_the_end(carried, module)
            weighs = Weighs(Consequence.CRASHES, Resource.GRAPH) if carried.trains else None
            yield self.finding(module.place(step.statement), message, confidence=confidence, related=related, fix=fix, facts=facts, weighs=weighs)
