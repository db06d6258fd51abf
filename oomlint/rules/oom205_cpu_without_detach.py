"""OOM205 cpu-without-detach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import target_of, told, what_of
from oomlint.memory.fixes.growth_fixes import detach_fix
from oomlint.model.tensor_state import Graph
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class CpuWithoutDetach(Rule):
    """A copy on the host keeps the activations on the device.

    ## What it does

    Checks for `outputs.append(output.cpu())`, `.to("cpu")`, `.float()`, `.double()` and their like in a loop over batches, where `output` still
    carries its graph and the container outlives the loop.

    `output.detach().cpu()` and `output.cpu().detach()` say nothing, and neither does what is computed under `torch.no_grad()`, turned into
    numbers, or handed to `.numpy()`, which refuses a tensor with a graph.

    ## Why is this bad

    `.cpu()` is an operation like any other: its result carries a graph that leads back to the tensor on the device and to all that made it. The
    line looks as if it freed the device, and frees nothing.

    It is an error where no `backward()` frees the graph: each step kept 3.9 MiB for an MLP of five layers and batches of 256, more than
    without the copy (measured with torch 2.13.0, another dtype standing for the other device). It is a warning where `backward()` has run: only
    the nodes stay.

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        margins = []
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(images.cuda())
            loss = criterion(logits, labels.cuda())
            loss.backward()
            optimizer.step()
            margins.append(logits.logsumexp(dim=1).mean().cpu())
        return [margin.item() for margin in margins]
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        margins = []
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(images.cuda())
            loss = criterion(logits, labels.cuda())
            loss.backward()
            optimizer.step()
            margins.append(logits.logsumexp(dim=1).mean().detach().cpu())
        return [margin.item() for margin in margins]
    ```

    ## Fix safety

    `.detach()` is put before the copy. This is safe: the values, the dtype and the place are the same, and no `backward()` reads the
    container. It is unsafe where the value might be no tensor.

    ## References

    - [PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)
    - [sktime/pytorch-forecasting#1924](https://github.com/sktime/pytorch-forecasting/pull/1924)
    """

    code = "OOM205"
    slug = "cpu-without-detach"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "detach the tensor before it is stored, or store `.item()`"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.NUMBERS, Trait.RECORDS_GRAPH, Trait.KEEPS_GRAPH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that keep tensors with their graph."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            graph = "graph nodes" if growth.freed else "activations"
            calls = {leaf.moved for leaf in store.value.leaves() if leaf.graph is Graph.YES and leaf.moved.endswith(")")}
            moved = any(call.startswith(("cpu", "to")) for call in calls)
            message = Message(
                f"`{target_of(store)}` collects `{what_of(store)}` {'on the CPU' if moved else f'of `{min(calls)}`'} without `.detach()`",
                f"{'the copy' if moved else 'what it gives'} keeps its graph, so the {graph} of every step stay on the device",
            )
            patch = detach_fix(growth, module, project, "detach the tensor before it is stored")
            yield self.tell(told(growth, module, message), patch)
