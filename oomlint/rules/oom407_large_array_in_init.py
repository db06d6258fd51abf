"""OOM407 large-array-in-init."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.allocations import allocations
from oomlint.memory.arrays.filled import filled_arrays
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class LargeArrayInInit(Rule):
    """A large array is made in `__init__`, whether it is needed or not.

    ## What it does

    Checks for allocations in the `__init__` of a `Dataset`, a module or a data module, and in the methods and functions that it calls: `torch.zeros`,
    `torch.randn`, `torch.full`, `np.zeros`, `np.ones`, `np.random.rand` and the like. It speaks where the array is known to have at least 256 MiB (a
    setting), or where its first dimension is the number of samples and each sample is more than a few numbers. The shape can show that, or the
    dataset: its `__len__` gives the length of the array, or its `__getitem__` takes the element at the index from it. The message gives the bytes, or
    the formula. So it is with arrays that are made one for each sample and all kept: labels of each frame of a video, embeddings of the words of a
    text. A row that is known to be so short that 65,536 of them are still below the setting is a note. An array that is known to have 1 GiB and more
    counts wherever it is kept: a replay buffer, a script.

    It is silent below that, for one number a sample, for positional encodings and the other buffers of a model of usual size, on the `meta`
    device, for files that are mapped, and where what is kept is what a function that nobody follows has made of the array.

    ## Why is this bad

    The memory is gone before the first step, in every process that makes the object. When it is gone differs (measured with torch 2.13.0 and
    NumPy 2.4, 128 MiB):

    | code | memory after |
    |---|---|
    | `torch.zeros`, `torch.ones`, `torch.full`, `torch.randn` | +128 MiB, at once |
    | `np.ones`, `np.full`, random numbers | +128 MiB, at once |
    | `np.zeros`, `np.empty`, `torch.empty` | +0, then as it is filled |

    What NumPy and PyTorch make without a `dtype` differs too: 8 bytes an element against 4.

    ## Example

    ```python
    import torch
    from torch.utils.data import Dataset


    class BlankImages(Dataset):
        def __init__(self):
            self.images = torch.zeros(1_000, 3, 224, 224)

        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            return self.images[index], index % 10
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import Dataset


    class BlankImages(Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            return torch.zeros(3, 224, 224), index % 10
    ```

    ## Fix safety

    There is none: what to do depends on what the array is for. Samples can be made or read one by one; a cache can have a bound, or lie in a file
    that is mapped (`np.lib.format.open_memmap`); a table can have a smaller type.

    ## References

    - [torch.zeros](https://docs.pytorch.org/docs/stable/generated/torch.zeros.html)
    - [numpy.zeros](https://numpy.org/doc/stable/reference/generated/numpy.zeros.html)
    """

    code = "OOM407"
    slug = "large-array-in-init"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "allocate it when it is needed, use a smaller dtype, or map a file with `np.memmap`"
    weighs = Weighs(Consequence.ONCE)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,), function=FunctionSign.MEMORY, command=(CommandSign.PROCESS_MEMORY,), traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the large arrays that are made while a dataset, a module or a data module is built."""
        found = list(allocations(module, project))
        filled = {one.node for one in filled_arrays(module, project)} if any(one.by_use for one in found) else set()
        yield from (self.tell(one) for one in found if not (one.by_use and one.node in filled))  # else what fills it is told
