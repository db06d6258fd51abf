"""OOM222 state-keeps-graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.module_state import written_states
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class StateKeepsGraph(Rule):
    """The forward pass writes into a buffer of the module with a graph.

    ## What it does

    Checks for tensors that a `torch.nn.Module` makes when it is built (`register_buffer`, `self.x = torch.zeros(...)`) and that its forward pass,
    or a method that it calls, changes with gradients on: `self.x[:] = y`, `self.x.copy_(y)`, `self.x.mul_(m).add_(y)`, `self.x += y`,
    `self.x = m * self.x + y`, where `y` comes from a layer or a parameter.

    It is silent under `torch.no_grad()`, for `self.x.data` and `y.detach()`, where somebody makes the tensor again or cuts it off, where a test
    lets it happen the first time only, for `self.x = y`, which releases the graph before, where the modules that `y` comes from are frozen
    (`requires_grad_(False)`), and where nothing in the project trains anything.

    ## Why is this bad

    A tensor that is changed in place becomes a part of the graph, with what it was before and what is written. Each pass adds to that chain, and
    nothing ever frees it, since no loss is computed of it. Where one is, the second backward pass raises `RuntimeError: Trying to backward
    through the graph a second time`.

    Measured with torch 2.13.0 for a buffer of 512 numbers, `y` the mean of what a layer of 512 units gives for a batch of 256, over 990 steps of
    training, in which the backward pass of the loss frees the layer's activations:

    | statement | memory |
    |---|---|
    | `self.x = 0.9 * self.x + 0.1 * y` | +466 MiB |
    | `self.x.mul_(0.9).add_(0.1 * y)` | +222 MiB |
    | `self.x += y` | +13 MiB |
    | `self.x[:] = y` | +7 MiB |
    | `self.x.copy_(y)` | +8 MiB |
    | `self.x = y` | none |
    | `self.x[:] = y.detach()`, `self.x.data[:] = y` | none |

    ## Example

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.register_buffer("center", torch.zeros(32))

        def forward(self, x):
            codes = self.layer(x)
            if self.training:
                self.center = 0.9 * self.center + 0.1 * codes.mean(0)
            return codes


    def train(dataset, optimizer, criterion):
        model = Encoder()
        for x, y in DataLoader(dataset, batch_size=32):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    ```

    ## Use instead

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.register_buffer("center", torch.zeros(32))

        def forward(self, x):
            codes = self.layer(x)
            if self.training:
                self.center = (0.9 * self.center + 0.1 * codes.mean(0)).detach()
            return codes


    def train(dataset, optimizer, criterion):
        model = Encoder()
        for x, y in DataLoader(dataset, batch_size=32):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    ```

    ## Fix safety

    Unsafe: `.detach()` is written behind what is stored, where nothing reads the buffer behind it. Where the same pass returns the buffer, or computes
    its output of it, the loss may need the gradient of what was written, and the fix is only described: `0.9 * self.x.detach() + 0.1 * y`.

    ## References

    - [pytorch/pytorch#20275](https://github.com/pytorch/pytorch/issues/20275)
    - [torch.nn.Module.register_buffer](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer)
    """

    code = "OOM222"
    slug = "state-keeps-graph"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    help = "detach the value before it is written"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.BESIDE_LOOP}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that make the graph of a buffer longer."""
        yield from map(self.tell, written_states(module, project))
