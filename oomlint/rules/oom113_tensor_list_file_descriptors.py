"""OOM113 tensor-list-file-descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, DatasetSign, Measurement, Trait
from oomlint.memory.datasets.worker_copies import cases
from oomlint.memory.fixes.worker_copy_fixes import stacked
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class TensorListFileDescriptors(Rule):
    """A list of tensors takes one file descriptor for each tensor when it is sent to a worker.

    ## What it does

    Checks for a dataset that keeps a list of separate CPU tensors on `self`, more than 200 of them or of unknown number, and reaches a
    `DataLoader` with workers that may be started by spawn or forkserver.

    ## Why is this bad

    Each tensor storage is sent to a worker as one file descriptor. Measured with torch 2.13.0:

    - forkserver refuses more than about 246 of them: `ValueError: too many fds` (245 work, 250 fail);
    - spawn fails at the limit of open files (`ulimit -n`): with 1024, 900 work and 1100 raise `Too many open files`.

    Under fork it works. So a dataset that runs on Linux with Python 3.13 crashes with Python 3.14, whose default is forkserver. It is an
    error where the start method is known to be forkserver, and a warning else. Where nobody says how many there are, and they are not one for
    each sample, it is a note, and so it is where the project starts itself on Linux and pins a Python before 3.14 or a torch before 2.9.

    Under fork such a list costs as well: 27 % of 93 MiB were copied into a worker, because the tensors' headers lie between their data.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Rows(Dataset):
        def __init__(self, path):
            self.rows = [torch.from_numpy(row) for row in np.loadtxt(path)]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]


    if __name__ == "__main__":
        loader = DataLoader(Rows("train.txt"), batch_size=8, num_workers=2, multiprocessing_context="forkserver")
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Rows(Dataset):
        def __init__(self, path):
            self.rows = torch.stack([torch.from_numpy(row) for row in np.loadtxt(path)])

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]


    if __name__ == "__main__":
        loader = DataLoader(Rows("train.txt"), batch_size=8, num_workers=2, multiprocessing_context="forkserver")
    ```

    ## Fix safety

    The list becomes one tensor by `torch.stack(...)`: unsafe. Building it takes twice the memory for a moment, and an element is then a view.
    The fix is made where all tensors have one shape, because they are made so or because the default `collate_fn` has to stack them, and where
    all uses of the list are known to take a tensor as well; a slice becomes a list again. Elsewhere it is advice. Tensors of different
    lengths go into one tensor by `torch.cat` with an array of offsets, by hand.

    ## References

    - [pytorch/vision#1694](https://github.com/pytorch/vision/issues/1694)
    - [multiprocessing: contexts and start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
    """

    code = "OOM113"
    slug = "tensor-list-file-descriptors"
    severity = Severity.ERROR
    lower = (Severity.WARNING, Severity.NOTE)
    fixable = Safety.UNSAFE
    preview = True
    help = "store one tensor: `torch.stack` for equal shapes, else `torch.cat` with an array of offsets"
    weighs = Weighs(Consequence.CRASHES, Resource.HANDLE, (Multiplier.SAMPLES,))
    measured_as = Measurement(
        dataset=(DatasetSign.SENT,),
        call=CallCheck.HELD,
        error="Too many open files|ancdata|unable to open shared memory|unable to mmap",
        traits=frozenset({Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose dataset keeps a long list of separate tensors."""
        for case in cases(module, project, self.code):
            yield self.tell(case, stacked(case))
