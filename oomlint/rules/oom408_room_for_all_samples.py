"""OOM408 room-for-all-samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.filled import filled_arrays
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class RoomForAllSamples(Rule):
    """One array has a row for every sample, and a loop fills all of it before any of it is used.

    ## What it does

    Checks for `np.zeros`, `np.empty`, `torch.zeros` and the like with a first dimension that nobody bounds, where a loop puts something into one row
    after the other:

    - the windows or patches of an array, along any axis (`rows[i] = series[i : i + width]`), which a dataset, a loop that trains or evaluates, or an object
      that hands out batches keeps, or that are written once all are there. What overlaps is in memory as often as it does;
    - what is read from a file in each round, or the samples of a dataset, where all of it is written by one call, or where a script makes it once, with
      a megabyte or more for each of a list, whatever becomes of it; what a function makes of a sample, if that has two dimensions or more;
    - an image or a map of each sample that a model gives (two dimensions a sample or more), until the loop over the loader is through.

    And for lists of such windows of which one call then makes an array: `np.stack([series[i : i + width] for i in ...])`, also in a script that runs
    once.

    It is silent for a few numbers a sample, for parts that have nothing in common, for what a function makes of each window, for what is made of a
    single sample, for arrays of shorter rows that are neither kept nor written, and where OOM401, OOM402 or OOM407 speak of the same data.

    ## Why is this bad

    The memory grows with the dataset, although one row at a time would do. Windows of 168 rows that begin at every row are 168 times the series
    that they are cut from. For 512 windows of 64 x 512 numbers (measured with NumPy 2.4):

    | code | memory after |
    |---|---|
    | `rows[i] = series[i : i + 64]` for every `i` | +64 MiB |
    | the series, sliced in `__getitem__` | +1 MiB |

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Windows(Dataset):
        def __init__(self, series, width):
            count = len(series) - width
            self.rows = np.zeros((count, width, series.shape[1]), dtype=series.dtype)
            for i in range(count):
                self.rows[i] = series[i : i + width]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return torch.from_numpy(self.rows[index])
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import Dataset


    class Windows(Dataset):
        def __init__(self, series, width):
            self.series, self.width = series, width

        def __len__(self):
            return len(self.series) - self.width

        def __getitem__(self, index):
            return torch.from_numpy(self.series[index : index + self.width])
    ```

    ## Fix safety

    There is none: what to do depends on what the rows are for. Windows can be cut when they are asked for
    (`numpy.lib.stride_tricks.sliding_window_view` makes a view of all of them for nothing); what is written can be written row by row, into a file
    that is mapped (`np.lib.format.open_memmap`) or into HDF5; of what a model gives, a metric can be taken batch by batch.

    ## References

    - [numpy.lib.stride_tricks.sliding_window_view](https://numpy.org/doc/stable/reference/generated/numpy.lib.stride_tricks.sliding_window_view.html)
    - [numpy.lib.format.open_memmap](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.open_memmap.html)
    """

    code = "OOM408"
    slug = "room-for-all-samples"
    severity = Severity.WARNING
    fixable = None
    help = "make each row in `__getitem__`, or write the rows to a file one after the other"
    weighs = Weighs(Consequence.ONCE, Resource.ARRAYS)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,), function=FunctionSign.MEMORY, command=(CommandSign.PROCESS_MEMORY,), traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the arrays that a loop fills with a row for every sample."""
        yield from map(self.tell, filled_arrays(module, project))
