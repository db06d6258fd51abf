"""OOM409 sparse-made-dense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.sparse_to_dense import made_dense
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class SparseMadeDense(Rule):
    """A sparse matrix of all samples is made dense as a whole.

    ## What it does

    Checks for `toarray()`, `todense()` and `to_dense()` of a whole sparse matrix: one of SciPy or PyTorch that a dataset, a loader or a training loop
    then keeps, and what a vectorizer of scikit-learn makes of the texts, in code that a script runs once.

    It is silent for one row or a part of the rows (`matrix[index].toarray()`), in `__getitem__` and in loops, and where the matrix is not kept: an
    adjacency that a model is given once is as large as the model wants it.

    ## Why is this bad

    A sparse matrix takes memory for what is there, a dense one for every pair of a row and a column: 100,000 users times 20,000 items are 15 GiB of
    `float64`, where 10 million ratings are 114 MiB. SciPy's matrices are `float64` unless one says otherwise, and the tensor that is made of them is a
    second copy.

    ## Example

    ```python
    import torch
    from torch.utils.data import Dataset


    class Ratings(Dataset):
        def __init__(self):
            pairs = torch.arange(4_000)
            rows = torch.sparse_coo_tensor(torch.stack([pairs, pairs % 2_000]), torch.ones(4_000), (4_000, 2_000))
            self.rows = rows.to_dense()

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import Dataset


    class Ratings(Dataset):
        def __init__(self):
            pairs = torch.arange(4_000)
            self.rows = torch.sparse_coo_tensor(torch.stack([pairs, pairs % 2_000]), torch.ones(4_000), (4_000, 2_000)).coalesce()

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index].to_dense()
    ```

    ## Fix safety

    There is none: who reads the matrix has to take its rows. A SciPy matrix in the form `csr` gives one quickly: `matrix[index].toarray()[0]`.

    ## References

    - [scipy.sparse.csr_array](https://docs.scipy.org/doc/scipy/reference/generated/scipy.sparse.csr_array.html)
    - [torch.sparse](https://docs.pytorch.org/docs/stable/sparse.html)
    """

    code = "OOM409"
    slug = "sparse-made-dense"
    severity = Severity.WARNING
    fixable = None
    help = "make one batch of rows dense at a time"
    weighs = Weighs(Consequence.ONCE, Resource.ARRAYS)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,), function=FunctionSign.MEMORY, command=(CommandSign.PROCESS_MEMORY,), traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that make a whole sparse matrix dense."""
        yield from map(self.tell, made_dense(module, project))
