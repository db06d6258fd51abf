"""OOM114 workers-over-in-memory-dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, CommandSign, DatasetSign, Measurement, Trait
from oomlint.memory.datasets.worker_copies import cases
from oomlint.memory.fixes.worker_copy_fixes import FEWER, no_workers
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class WorkersOverInMemoryDataset(Rule):
    """Many workers serve a dataset that is already in memory.

    ## What it does

    Checks for a `DataLoader` with four workers or more (a setting) over a dataset that lies wholly in memory, such as a `TensorDataset` or a
    class that reads all arrays in `__init__`, where no sharper rule (OOM110, OOM112, OOM113) speaks.

    Where the workers share the data, fewer than eight of them are a note: they cost no more than their processes.

    So are fewer than sixteen (the setting `worker-limit`) that transform, tokenise or decode what they index, where fork counts: they have work to do,
    and share the data. It stays a warning where the data are an array that is read whole from HDF5, or proven large (the setting `array-bytes`), which
    each worker copies under spawn and forkserver.

    So are fewer than that over arrays where the project starts itself on Linux, by shell scripts or in containers, and pins a Python before 3.14 or a
    torch before 2.9: it forks, and shares them.

    Where reading a sample changes the array itself (`np.random.shuffle(points)`, `row -= mean`, `clip[:, :3] = ...`, by a helper, too), an index or a
    slice having given a view of it, the workers do not share it, however few they are: it is a warning for every number of them where fork counts.

    It is silent where the data are proven small, also by the length of a dataset of torchvision or the default of an option, and where
    `__getitem__` does real work (decodes, transforms at random, tokenises) on data that all counted start methods share.

    ## Why is this bad

    There is nothing to read, so the workers' work is to index, to transform and to send. What it costs depends on the start method (measured with torch
    2.13.0, CPU):

    - fork: the arrays themselves cost nothing, although it is often said that each worker copies them. A worker costs about 10 MiB, and the batches
      in flight up to `prefetch_factor * num_workers + 1` batches in shared memory;
      What a worker writes into is its own from then on, page by page, and the data stay changed for as long as it lives;
    - spawn and forkserver: a worker costs 139 MiB, and a copy of each NumPy array of the dataset. Tensors are moved to shared memory once.

    Eight workers over an array of 400 MiB took 88 MiB of private memory together under fork, although each showed 567 MiB of resident memory, which
    counts shared pages too; under spawn and forkserver they took 4.3 GiB.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    features = torch.load("features.pt")
    labels = torch.load("labels.pt")
    dataset = TensorDataset(features, labels)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=8)

    for x, y in loader:
        print(x.mean(), y.float().mean())
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    features = torch.load("features.pt")
    labels = torch.load("labels.pt")
    dataset = TensorDataset(features, labels)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=0)

    for x, y in loader:
        print(x.mean(), y.float().mean())
    ```

    ## Fix safety

    The number of workers, or the default it comes from, becomes 0: unsafe. The batches of a deterministic dataset stay the same, but random
    numbers drawn in `__getitem__` differ, and speed may change either way: measure it.

    ## References

    - [Multi-process data loading](https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading)
    """

    code = "OOM114"
    slug = "workers-over-in-memory-dataset"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    help = FEWER
    weighs = Weighs(Consequence.MULTIPLIED, by=(Multiplier.WORKERS,))
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.WORKERS,),
        call=CallCheck.HELD,
        command=(CommandSign.WORKER_MEMORY,),
        traits=frozenset({Trait.OWN_SIZE, Trait.MORE_DATA, Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with many workers over a dataset that lies wholly in memory."""
        for case in cases(module, project, self.code):
            yield self.tell(case, None if case.changed is not None else no_workers(case))
