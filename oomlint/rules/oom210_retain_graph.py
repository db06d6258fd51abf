"""OOM210 retain-graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity
from oomlint.memory.buffers.retained_graph import cycles, retaining
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_CYCLES = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
_PLAIN = Fix(Safety.DISPLAY, "call `backward()` without `retain_graph=True`")
_GRAD = Fix(Safety.DISPLAY, "take the gradient with `torch.autograd.grad(..., create_graph=True)`, or set `.grad` to `None` after use")


class RetainGraph(Rule):
    """Backward keeps a graph that nobody uses again.

    ## What it does

    Checks for `backward(retain_graph=True)` in a training loop where the whole graph is made in the same step and no other backward, and no
    `torch.autograd.grad`, goes through it; and for `backward(create_graph=True)` in a loop that never resets the gradients.

    It says nothing where there is a second backward in the loop or in a function that the loop calls (GANs, several losses, meta-learning,
    GradNorm), where the value of `retain_graph` is not the constant `True`, and where the graph comes from before the step.

    ## Why is this bad

    Backward frees what a node has saved as soon as the node is done. With `retain_graph=True` all of it stays until the last reference to the
    loss goes. Where nothing is kept that does not grow from step to step, but the peak was 13 MiB instead of 2 MiB. Where a loss is kept too, as in
    `total += loss`, all activations of every step stay: 3.9 MiB a step instead of 11 KiB (measured with torch 2.13.0).

    With `create_graph=True` the gradient has a graph of its own, which leads to the tensor that holds the gradient: a reference cycle that even
    the garbage collector does not free. 44 MiB were left after five steps.

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward(retain_graph=True)
            optimizer.step()
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
    ```

    ## Fix safety

    Advice only. If a module keeps a state from step to step, backward raises without `retain_graph=True`, and the state is what has to be
    detached.

    ## References

    - [pytorch/pytorch#40005](https://github.com/pytorch/pytorch/issues/40005)
    - [pytorch/pytorch#82528](https://github.com/pytorch/pytorch/issues/82528)
    """

    code = "OOM210"
    slug = "retain-graph"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.ONCE, Resource.GRAPH)
    measured_as = Measurement(loop=LoopPlan(ends=(Quantity.LEFT_BYTES,), against=True))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the backward calls that keep a graph for nobody."""
        yield from (self.tell(one, _PLAIN) for one in retaining(module, project))
        for call, leaf in cycles(module, project):
            held = f"`{leaf}.grad`" if leaf else "the parameters' gradients"
            message = Message(
                f"`backward(create_graph=True)` creates a reference cycle through {held}", "nothing resets it, so the graph of every step stays in memory"
            )
            yield self.finding(module.place(call), message, fix=_GRAD, weighs=_CYCLES)
