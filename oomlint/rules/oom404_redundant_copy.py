"""OOM404 redundant-copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.redundant_copies import copies
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class RedundantCopy(Rule):
    """A large array is copied although nothing needs the copy.

    ## What it does

    Checks where datasets are made for copies of a whole array: `torch.tensor(array)`, `np.array(array)`, `.astype(...)` to the type that the
    array has already, and `(a - a.mean()) / a.std()`, which makes two more arrays of the same size, also in a function that is given all that was read
    from a file. `np.concatenate([array, rest])` of all of the data needs as much memory again, at a moment when all of it is there.

    What is there twice for a moment alone is a note. It is a warning where it is known to be large: by its bytes (the setting `array-bytes`), or since
    each sample is seen to have two axes or more. `copy.deepcopy` of a dataset that holds its data is a warning.

    It is silent where one operation is alone or changes the array in place (`a -= mean`), where the array is proven small, for labels and the
    like, for a single sample, for lists (`torch.tensor([1, 2, 3])` has to copy), where the original is written to afterwards, and for a dataset
    whose class says what a copy of it holds (`__deepcopy__`, `__getstate__`).

    ## Why is this bad

    For a moment, or for good where the original is kept as well, the data are in memory twice. For 125 MiB of `float32` (measured with NumPy 2.4
    and torch 2.13.0):

    | code | memory after | at its peak |
    |---|---|---|
    | `torch.tensor(a)` | +125 MiB | +125 MiB |
    | `torch.from_numpy(a)`, `torch.as_tensor(a)` | +0 | +0 |
    | `a.astype(np.float32)` | +125 MiB | +125 MiB |
    | `a.astype(np.float32, copy=False)` | +0 | +0 |
    | `(a - a.mean()) / a.std()` | +125 MiB | +250 MiB |
    | `a -= a.mean()` and `a /= a.std()` | +0 | +125 MiB |

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Pairs(Dataset):
        def __init__(self, series):
            pairs = np.stack([series[:-1], series[1:]], axis=1)
            self.pairs = torch.tensor(pairs)

        def __len__(self):
            return len(self.pairs)

        def __getitem__(self, index):
            return self.pairs[index]
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Pairs(Dataset):
        def __init__(self, series):
            pairs = np.stack([series[:-1], series[1:]], axis=1)
            self.pairs = torch.from_numpy(pairs)

        def __len__(self):
            return len(self.pairs)

        def __getitem__(self, index):
            return self.pairs[index]
    ```

    ## Fix safety

    `torch.tensor(a)` becomes `torch.from_numpy(a)` where `a` is made by a call of NumPy or a read (an annotation does not keep a list out, which
    `from_numpy` refuses). With a `dtype` it becomes `torch.as_tensor(a, dtype=...)`, and `.astype(x)` becomes
    `.astype(x, copy=False)`: unsafe. Both names then stand for the same memory, so that what is written to one is seen in the other, and
    `from_numpy` of a read-only array warns. There is no fix where the array is used again after its copy is made, or has another name.

    ## References

    - [torch.tensor](https://docs.pytorch.org/docs/stable/generated/torch.tensor.html)
    - [torch.from_numpy](https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html)
    - [numpy.ndarray.astype](https://numpy.org/doc/stable/reference/generated/numpy.ndarray.astype.html)
    """

    code = "OOM404"
    slug = "redundant-copy"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.ONCE)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.COPIES,
        command=(CommandSign.PROCESS_MEMORY,),
        scale=4,
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.DOUBLES, Trait.PASSING}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield copies of whole arrays that nothing needs."""
        yield from map(self.tell, copies(module, project))
