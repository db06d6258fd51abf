"""OOM208 view-keeps-base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import loop_of, target_of, told, what_of
from oomlint.memory.fixes.growth_fixes import copied, fix
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project
    from oomlint.model.tensor_state import TensorState


class ViewKeepsBase(Rule):
    """A small part of each step's tensor is kept, and with it the whole tensor.

    ## What it does

    Checks for a batch loop that stores a slice of a larger tensor or array beyond the step: `features.append(hidden[:, 0])`,
    `maps.append(attention[0].detach())`, `rows.append(array[0])`.

    Such a slice is a view. What copies says nothing: a mask or a list of indices, `.clone()`, `.copy()`, `.cpu()` of a slice that lies on the
    GPU, a computation. Nor does a view of the whole, such as `x[:]` or `x.view(-1)`.

    ## Why is this bad

    A view shares the storage of its base, and the storage is freed only as a whole. Keeping `b[0].detach()` of a tensor of 3.8 MiB kept 3.8 MiB a
    step, though the `nbytes` of the view say 3.9 KiB; with `.clone()` it was 3.9 KiB. A row of an array kept 7.6 MiB a step, its `.copy()` 7.8 KiB
    (measured with torch 2.13.0).

    ## Example

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        maps = []
        for _ in range(epochs):
            for tokens, targets in loader:
                loss, attention = model(tokens, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                maps.append(attention[0, 0].detach())
        return maps
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, epochs):
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        maps = []
        for _ in range(epochs):
            for tokens, targets in loader:
                loss, attention = model(tokens, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                maps.append(attention[0, 0].detach().clone())
        return maps
    ```

    ## Fix safety

    `.clone()` is added to a tensor and `.copy()` to an array. Unsafe: where the base is written to later, also by the module that made it, a copy
    is another thing than a view.

    ## References

    - [Tensor views](https://docs.pytorch.org/docs/stable/tensor_view.html)
    """

    code = "OOM208"
    slug = "view-keeps-base"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    preview = True
    help = "store a copy of the part"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=LoopPlan(eases=(Quantity.TENSOR_BYTES, Quantity.ARRAY_BYTES)))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that keep a small part of something large."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            whole = f"each view keeps its whole tensor in memory, for every step of {loop_of(growth)}"
            message = Message(f"`{target_of(store)}` collects `{what_of(store)}`, a view of a larger tensor", whole)
            patch = fix(growth, module, self.help, copied(module), _never)
            yield self.tell(told(growth, module, message), patch)


def _never(_: TensorState) -> Safety:
    """Where the base is written to later, a copy is another thing than a view."""
    return Safety.UNSAFE
