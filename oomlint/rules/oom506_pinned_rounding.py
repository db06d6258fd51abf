"""OOM506 pinned-rounding."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import ON_DEVICE
from oomlint.memory.loaders.pinned_memory import rounded_arrays, rounded_batches
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class PinnedRounding(Rule):
    """Pinned memory is rounded up to a power of two, and much of it holds nothing.

    ## What it does

    Checks for loaders with `pin_memory=True`, for `.pin_memory()` and for `torch.empty(..., pin_memory=True)` where the bytes are known and
    rounding each tensor up to the next power of two takes 16 MiB or more for nothing, and a quarter of what is pinned. The bytes of a batch
    come from the shape and type of a sample and the batch size. The rule is silent where they are not known.

    ## Why is this bad

    PyTorch pins host memory in blocks whose size is a power of two, and keeps them as long as the process lives, to use them again. A batch of
    33 MiB takes 64 MiB, and there is such a block for each batch in flight: with workers up to `prefetch_factor * num_workers + 1` of them
    (measured with torch 2.13.0). Pinned memory is never swapped out.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Scans(Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            scan = torch.zeros(1, 160, 160, 96, dtype=torch.float32)
            scan.random_(generator=torch.Generator().manual_seed(index))
            return scan


    loader = DataLoader(Scans(), batch_size=8, num_workers=4, pin_memory=True)
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Scans(Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            scan = torch.zeros(1, 160, 160, 96, dtype=torch.float32)
            scan.random_(generator=torch.Generator().manual_seed(index))
            return scan


    loader = DataLoader(Scans(), batch_size=6, num_workers=4, pin_memory=True)
    ```

    ## Fix safety

    There is no fix. Another batch size may fill its blocks better, and so may fewer batches in flight: a lower `prefetch_factor` leaves the
    batches as they are. Recent versions of PyTorch can be told not to round above a size, by `pinned_max_round_threshold_mb` in
    `PYTORCH_ALLOC_CONF`.

    ## References

    - [pytorch/pytorch#95823](https://github.com/pytorch/pytorch/issues/95823)
    - [pytorch/pytorch#150517](https://github.com/pytorch/pytorch/issues/150517)
    - [pytorch/pytorch#171662](https://github.com/pytorch/pytorch/pull/171662)
    """

    code = "OOM506"
    slug = "pinned-rounding"
    severity = Severity.NOTE
    fixable = None
    help = "choose sizes just below a power of two, or leave out pinning"
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)
    measured_as = ON_DEVICE

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the pinned batches and arrays that rounding makes much larger."""
        yield from map(self.tell, chain(rounded_batches(module, project), rounded_arrays(module, project)))
