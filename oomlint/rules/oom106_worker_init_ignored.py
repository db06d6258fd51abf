"""OOM106 worker-init-ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import Measurement, Trait, WorkerCheck
from oomlint.memory.loaders.worker_init import needs_worker_init
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class WorkerInitIgnored(Rule):
    """What the worker function opens is needed where no worker runs.

    ## What it does

    Checks for a `DataLoader` with a `worker_init_fn` that sets an attribute of the dataset (`get_worker_info().dataset.file = ...`), where
    `__getitem__` uses that attribute without a check for `None` and the number of workers is 0 or can be 0.

    A `worker_init_fn` that only seeds random generators says nothing here.

    ## Why is this bad

    Without workers, `worker_init_fn` is never called, and nothing says so: not even `worker_init_fn=123` raises (measured with torch 2.13.0).
    The attribute keeps its first value, and the first sample fails with a `TypeError` on `None`, far from the cause.

    It is an error where the number is always 0, and a warning where 0 is one of the values it can take.

    ## Example

    ```python
    from torch.utils.data import DataLoader, Dataset, get_worker_info


    class Records(Dataset):
        def __init__(self, path, size):
            self.path = path
            self.size = size
            self.file = None

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            self.file.seek(index * 512)
            return self.file.read(512)


    def open_file(worker_id):
        dataset = get_worker_info().dataset
        dataset.file = open(dataset.path, "rb")


    loader = DataLoader(Records("train.bin", 10_000), batch_size=32, worker_init_fn=open_file)
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader, Dataset


    class Records(Dataset):
        def __init__(self, path, size):
            self.path = path
            self.size = size
            self.file = None

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            if self.file is None:
                self.file = open(self.path, "rb")
            self.file.seek(index * 512)
            return self.file.read(512)

        def __getstate__(self):
            return {**self.__dict__, "file": None}


    loader = DataLoader(Records("train.bin", 10_000), batch_size=32)
    ```

    ## Fix safety

    There is no fix: the dataset has to open the file itself, on first use, and drop it in `__getstate__` so that it can be sent to a worker.

    ## References

    - [torch.utils.data.get_worker_info](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.get_worker_info)
    """

    code = "OOM106"
    slug = "worker-init-ignored"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = None
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(workers=WorkerCheck.INITIALISED, traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders without workers whose dataset is opened by their worker function alone."""
        yield from map(self.tell, needs_worker_init(module, project))
