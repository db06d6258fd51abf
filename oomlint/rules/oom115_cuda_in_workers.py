"""OOM115 cuda-in-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Consequence, Fix, Resource, Safety, Severity, Weighs
from oomlint.measurement import ON_DEVICE
from oomlint.memory.loaders.worker_devices import touches
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_ADVICE: Final = Fix(Safety.DISPLAY, "return CPU tensors, set `pin_memory=True`, and move each batch in the training loop")


class CudaInWorkers(Rule):
    """Worker processes put samples on the GPU.

    ## What it does

    Checks for a `DataLoader` with workers whose dataset or `collate_fn` moves what it gives to a CUDA device (`.cuda()`, `.to(device)`,
    `device=device`), itself or in what it calls of the project, such as a transform that it is given, or takes samples from a tensor that its
    constructor has put there.

    It is silent without workers, where a test guards the call, and where the device is unknown.

    ## Why is this bad

    A forked process cannot use CUDA once its parent does: the first sample raises `RuntimeError: Cannot re-initialize CUDA in forked
    subprocess` (`torch/cuda/__init__.py`, torch 2.13.0). The advice that it gives, the start method spawn, lets the code run, but then each
    worker makes a CUDA context of its own on the device, keeps its part of the memory allocator's cache there, and has to keep each tensor
    alive until the training process has let go of it.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return torch.load(self.paths[index]).to("cuda")


    def train(paths, model, optimizer):
        model.to("cuda")
        for clips in DataLoader(Clips(paths), batch_size=8, num_workers=4):
            loss = model(clips).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return torch.load(self.paths[index])


    def train(paths, model, optimizer):
        model.to("cuda")
        for clips in DataLoader(Clips(paths), batch_size=8, num_workers=4, pin_memory=True):
            loss = model(clips.to("cuda", non_blocking=True)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ```

    ## Fix safety

    There is no fix: the loops that use the batches have to move them.

    ## References

    - [Multiprocessing: CUDA in multiprocessing](https://docs.pytorch.org/docs/stable/notes/multiprocessing.html)
    - [torch.utils.data: memory pinning](https://docs.pytorch.org/docs/stable/data.html#memory-pinning)
    """

    code = "OOM115"
    slug = "cuda-in-workers"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = ON_DEVICE

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose workers use CUDA."""
        yield from (self.tell(one, _ADVICE) for one in touches(module, project))
