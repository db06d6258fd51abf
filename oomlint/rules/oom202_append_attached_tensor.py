"""OOM202 append-attached-tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class AppendAttachedTensor(Rule):
    """A list keeps tensors together with the graphs that made them.

    ## What it does

    Checks for `outputs.append(output)`, `outputs += [output]`, `outputs.extend(...)`, `outputs[key] = output` and
    `outputs.setdefault(key, []).append(output)` in a loop over batches, where `output` still carries its graph and the container outlives the
    loop.

    A container that reaches `backward()` says nothing: losses of tasks that are stacked and summed, log-probabilities of an episode, the steps
    of a truncated sequence. Neither do numbers, classes (`argmax`), comparisons, what is computed under `torch.no_grad()`, and containers that
    are emptied for each batch.

    ## Why is this bad

    A tensor holds the graph that it came from, and the graph holds the activations that a `backward()` would need.

    It is an error where no `backward()` frees them: an evaluation in grad mode, or a branch of the model that is not in the loss. Each element
    then keeps 3.9 MiB for an MLP of five layers and batches of 256, be it a loss of four bytes.

    It is a warning where `backward()` has run. Only the nodes stay, and the tensor itself: 11.4 KiB a step for a loss, against 360 B for
    `loss.detach()` (all measured with torch 2.13.0).

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        criterion = nn.MSELoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        history = []
        for epoch in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                history.append(loss)
        return [loss.item() for loss in history]
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        criterion = nn.MSELoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        history = []
        for epoch in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                history.append(loss.detach())
        return [loss.item() for loss in history]
    ```

    ## Fix safety

    `.detach()` is added to each element that carries a graph, also inside a tuple, a list or a dictionary that is stored. This is safe: the
    values are the same, and no `backward()` reads the container. It is unsafe where an element might be no tensor. What is handed to
    `extend` is left alone.

    Detached tensors of a model on the GPU stay on the GPU. `.detach().cpu()` moves them, and `.cpu()` alone keeps the graph (see OOM205).

    ## References

    - [PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)
    - [TRI-ML/packnet-sfm#51](https://github.com/TRI-ML/packnet-sfm/pull/51)
    - [sktime/pytorch-forecasting#1924](https://github.com/sktime/pytorch-forecasting/pull/1924)
    - [pnnl/neuromancer#292](https://github.com/pnnl/neuromancer/pull/292)
    - [huggingface/transformers#2595](https://github.com/huggingface/transformers/issues/2595)
    """

    code = "OOM202"
    slug = "append-attached-tensor"
    severity = Severity.ERROR
    lower = (Severity.WARNING, Severity.NOTE)
    fixable = Safety.SAFE
    help = "detach the tensor before it is stored, or store `.item()`"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.NUMBERS, Trait.RECORDS_GRAPH, Trait.KEEPS_GRAPH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that keep tensors with their graph."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            message = Message(f"`{target_of(store)}` collects `{what_of(store)}` with its graph in {loop_of(growth)}", kept(growth))
            patch = detach_fix(growth, module, project, "detach the tensor before it is stored")
            yield self.tell(told(growth, module, message), patch)
