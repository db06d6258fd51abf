"""OOM507 whole-split-on-device."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import ON_DEVICE
from oomlint.memory.datasets.device_splits import beside, in_one_batch, moved, rooms
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class WholeSplitOnDevice(Rule):
    """A whole dataset goes to the accelerator at once.

    ## What it does

    Checks for data that is read from a file, moved with `.to(device)`, `.cuda()` or a `device=` and only then given to a dataset or trained on, as a
    whole or file by file into a container, for loaders whose batch size is the length of their dataset, as that of the part that
    `random_split` was asked for, and for arrays on the accelerator with a row for what
    a model gives of every sample: `torch.zeros(len(dataset), width).cuda()`, which a loop over a loader fills.

    The same for the targets of a split that go there as a whole, to be compared with all outputs, while a loader gives them by batches.

    It is silent for what is moved sample by sample or batch by batch, for the host (`.to("cpu")`), for weights, statistics and other small
    arrays, and where the number of bytes is known to be small.

    ## Why is this bad

    The memory of an accelerator holds the model, its gradients, the optimizer's state and the activations of one batch; the whole of a dataset beside
    them is there for as long as the run. It works on the first, small dataset, and ends with `CUDA out of memory` on the next. With the whole
    dataset as one batch the activations grow with it, too: for an image of 3 x 224 x 224 they are a hundred times the image and more in a ResNet.

    For a small dataset this is fast, as nothing is copied between steps: then `# oomlint: ignore[OOM507]` says that you mean it.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, TensorDataset


    def loader_of(path, device):
        arrays = np.load(path)
        images = torch.from_numpy(arrays["images"]).to(device)
        return DataLoader(TensorDataset(images), batch_size=32, shuffle=True)


    train = loader_of("train.npz", torch.device("cuda"))
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, TensorDataset


    def loader_of(path):
        arrays = np.load(path)
        images = torch.from_numpy(arrays["images"])
        return DataLoader(TensorDataset(images), batch_size=32, shuffle=True, pin_memory=True)


    device = torch.device("cuda")
    for (images,) in loader_of("train.npz"):
        images = images.to(device, non_blocking=True)
    ```

    ## Fix safety

    There is no fix: the loops that use the batches have to move them.

    ## References

    - [torch.Tensor.to](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html)
    - [torch.utils.data: memory pinning](https://docs.pytorch.org/docs/stable/data.html#memory-pinning)
    """

    code = "OOM507"
    slug = "whole-split-on-device"
    severity = Severity.WARNING
    fixable = None
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)
    measured_as = ON_DEVICE

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the places where all of the data goes to the accelerator."""
        yield from map(self.tell, chain(moved(module, project), beside(module, project), rooms(module, project), in_one_batch(module, project)))
