"""OOM201 loss-accumulates-graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Consequence, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import kept, loop_of, target_of, told, what_of
from oomlint.memory.fixes.growth_fixes import detach_fix
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class LossAccumulatesGraph(Rule):
    """A sum over batches keeps the graph of every batch.

    ## What it does

    Checks for `total += loss`, `total = total + loss`, `average = 0.9 * average + 0.1 * loss` and `sums["loss"] += loss` in a loop over batches,
    for `history = torch.cat([history, loss.view(1)])`, and for dictionaries and lists that are created again with each entry added to
    (`{k: sums[k] + v for k, v in parts.items()}`), where `loss` still carries
    its graph and the sum is set up outside the loop. So it is with what a `training_step` of a `transformers.Trainer` returns, which the trainer adds
    to the loss that it logs.

    A sum that reaches `backward()` says nothing: the parts of one loss, gradient accumulation, the tasks of a meta-learning step. Neither do
    numbers (`loss.item()`), what is computed under `torch.no_grad()`, and sums that are set up again for each batch. A sum of losses that went
    backward says nothing either where it starts again with each step of the optimizer: gradient accumulation has the nodes of a few batches.

    ## Why is this bad

    The sum is a tensor with a graph, and that graph holds the graphs of all batches before it.

    It is an error where no `backward()` frees those graphs: an evaluation in grad mode, a second loss that is only looked at,
    `retain_graph=True`. Each step then keeps its activations: 3.9 MiB a step for an MLP of five layers and batches of 256.

    It is a warning where `backward()` has run. It frees the saved activations, so only the nodes stay: 11.4 KiB a step for the same model, in
    proportion to the number of operations (both measured with torch 2.13.0). That is host memory, and it grows until the sum is dropped.

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        for epoch in range(epochs):
            total = 0.0
            for images, labels in loader:
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss
            print(f"epoch {epoch}: {total / len(loader):.4f}")
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        for epoch in range(epochs):
            total = 0.0
            for images, labels in loader:
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch}: {total / len(loader):.4f}")
    ```

    ## Fix safety

    `.detach()` is added to what is summed, in parentheses where it is more than a name or a call. This is safe: the sum has the same value and
    dtype and is still a tensor, so `.item()`, `.cpu()` and formats work as before, and nothing waits for the device. It is unsafe where the
    value might be no tensor, because a number has no `.detach()`, and where the sum is printed as a tensor, which no longer shows a `grad_fn`.

    `.item()` is not what the fix writes. It waits for the device in each step, makes a Python float of the sum, and adds up in double precision.

    ## References

    - [PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)
    - [pytorch/pytorch#5251](https://github.com/pytorch/pytorch/pull/5251)
    - [pai4451/ML2021#2](https://github.com/pai4451/ML2021/issues/2)
    - [alexhernandezgarcia/gflownet#133](https://github.com/alexhernandezgarcia/gflownet/pull/133)
    """

    code = "OOM201"
    slug = "loss-accumulates-graph"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "detach the value before it is summed, or sum `.item()`"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.NUMBERS, Trait.RECORDS_GRAPH, Trait.KEEPS_GRAPH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the sums over batches that keep the graph of every batch."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            target = "The trainer" if isinstance(store.node, cst.Return) else f"`{target_of(store)}`"
            does = "joins" if store.kind == "concat" else "sums"
            message = Message(f"{target} {does} `{what_of(store)}` with its graph in {loop_of(growth)}", kept(growth))
            patch = detach_fix(growth, module, project, "detach the value before it is summed")
            yield self.tell(told(growth, module, message), patch)
