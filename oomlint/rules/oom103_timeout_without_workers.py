"""OOM103 timeout-without-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.loaders.loader_calls import is_positive
from oomlint.memory.loaders.worker_conflicts import WorkerGuard, told
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

GUARD = WorkerGuard("timeout", lambda given, count, literal: f"{given} if {count} > 0 else 0", raises="raises AssertionError at `iter()`")  # noqa: ARG005


class TimeoutWithoutWorkers(Rule):
    """A timeout is given to a loader that has no workers.

    ## What it does

    Checks for a `DataLoader` with a `timeout` above 0 whose number of workers is 0 or can be 0.

    The number is followed to where it comes from, as in OOM101.

    ## Why is this bad

    The constructor accepts the pair. The first `iter(loader)` raises `AssertionError: _SingleProcessDataLoaderIter requires timeout == 0`
    (measured with torch 2.13.0). The crash comes late and far from the call: a validation loader fails after the first training epoch.

    It is often said that the constructor checks this. It checks only that `timeout` is not negative. In older versions the check in the
    iterator is a bare `assert`, which vanishes under `python -O`.

    It is an error where the number is always 0, and a warning where 0 is one of the values it can take.

    ## Example

    ```python
    import os
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    workers = 0 if os.name == "nt" else 4
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=workers, timeout=120)
    ```

    ## Use instead

    ```python
    import os
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    workers = 0 if os.name == "nt" else 4
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=workers, timeout=120 if workers > 0 else 0)
    ```

    ## Fix safety

    Where the number is missing or written as 0 in the call, the argument is deleted. Else `T` becomes `T if <workers> > 0 else 0`. Both are
    safe: only loaders that could not be iterated change. The guard is written only where the worker expression is a name, an attribute or a
    constant subscript, because it is then evaluated twice.

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    """

    code = "OOM103"
    slug = "timeout-without-workers"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(call=CallCheck.OPTION, option="timeout", error="timeout", traits=frozenset({Trait.RAISES_FIRST, Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders that set a timeout and have, or can have, no workers."""
        yield from map(self.tell, told(module, project, GUARD, is_positive))
