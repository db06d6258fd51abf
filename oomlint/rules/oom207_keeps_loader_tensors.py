"""OOM207 keeps-loader-tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import target_of, told, what_of
from oomlint.memory.fixes.growth_fixes import copied, fix, safe_if_sure, written_later
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class KeepsLoaderTensors(Rule):
    """Tensors that came from a worker are kept, and with each one its shared memory and its file descriptor.

    ## What it does

    Checks for a loop over a `DataLoader` with workers that stores a batch, a part of it or a view of it beyond the step: `labels.append(y)`,
    `y.numpy()`, `y.cpu()`, `y.detach().cpu()`, `y[0]`, `batch["label"].view(-1)`, `np.asarray(y)`.

    It is an error where the loader has workers, and a warning where their number is not known, or where it reads a `Subset` of samples that are
    picked by indices. What makes a copy says nothing: `y.to(device)` on another device, `pin_memory=True`, `.clone()`, `.tolist()`, `.item()`,
    `np.array(y)`. Nor does a loader without workers, or one of a few samples.

    ## Why is this bad

    A worker hands each tensor over in a segment of shared memory of its own, which the main process holds by one file descriptor. A view keeps
    the whole segment. With `ulimit -n 1024`, appending the labels of each batch ended in `RuntimeError: Too many open files` at batch 1009
    (measured with torch 2.13.0), and what has been kept fills `/dev/shm` until then.

    The usual advice does not help: for a tensor that is on the CPU already, `.detach().cpu()` makes no copy, and neither does `.numpy()`.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader


    def evaluate(model, dataset, device):
        loader = DataLoader(dataset, batch_size=32, num_workers=4)
        model.eval()
        hits, labels = 0, []
        with torch.no_grad():
            for images, targets in loader:
                predicted = model(images.to(device)).argmax(dim=1).cpu()
                hits += (predicted == targets).sum().item()
                labels.append(targets.numpy())
        return hits, np.bincount(np.concatenate(labels))
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader


    def evaluate(model, dataset, device):
        loader = DataLoader(dataset, batch_size=32, num_workers=4)
        model.eval()
        hits, labels = 0, []
        with torch.no_grad():
            for images, targets in loader:
                predicted = model(images.to(device)).argmax(dim=1).cpu()
                hits += (predicted == targets).sum().item()
                labels.append(targets.numpy().copy())
        return hits, np.bincount(np.concatenate(labels))
    ```

    ## Fix safety

    Safe: `.clone()` is added to a tensor and `.copy()` to an array, so the same values are kept in memory of the process's own. It is not
    offered where the batch may be written to after it has been stored, or where the stored object may be neither a tensor nor an array.

    `np.array(y)` would copy too, but warns; `.float()` on a float32 tensor gives back the same storage.

    ## References

    - [pytorch/pytorch#11201](https://github.com/pytorch/pytorch/issues/11201)
    - [pytorch/pytorch#973](https://github.com/pytorch/pytorch/issues/973)
    - [pytorch/pytorch#165532](https://github.com/pytorch/pytorch/issues/165532)
    """

    code = "OOM207"
    slug = "keeps-loader-tensors"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "store a copy: `.clone()` of a tensor, `.copy()` of an array"
    weighs = Weighs(Consequence.GROWS, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.DESCRIPTORS,), also=(Quantity.STORAGES, Quantity.TENSOR_BYTES), workers=2), traits=frozenset({Trait.STARTS_WORKERS})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that keep tensors of the workers."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            holds = "each holds `/dev/shm` memory and a file descriptor (often limited to 1024)"
            message = Message(f"`{target_of(store)}` collects `{what_of(store)}` of worker batches without a copy", holds)
            patch = None if written_later(growth) else fix(growth, module, self.help, copied(module), safe_if_sure)
            yield self.tell(told(growth, module, message), patch)
