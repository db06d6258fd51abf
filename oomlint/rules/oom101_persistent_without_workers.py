"""OOM101 persistent-without-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.loaders.loader_calls import is_true
from oomlint.memory.loaders.worker_conflicts import WorkerGuard, told
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

GUARD = WorkerGuard("persistent_workers", lambda given, count, literal: f"{count} > 0" if literal else f"{given} and {count} > 0")


class PersistentWithoutWorkers(Rule):
    """Persistent workers are asked of a loader that has none.

    ## What it does

    Checks for a `DataLoader` with `persistent_workers=True` whose number of workers is 0 or can be 0.

    The number is followed to where it comes from: variables, parameters and their call sites, keyword dictionaries, command-line options,
    config classes, YAML files. Those places are shown with the finding. Where a call of a factory brings the 0, the finding is at that call.

    ## Why is this bad

    The constructor raises `ValueError: persistent_workers option needs num_workers > 0` (measured with torch 2.13.0; so since 1.7.0, which
    brought the argument).

    `num_workers` is 0 by default, and 0 is what one sets to debug a loader or when memory is short: the run meant to help then dies at once.
    An option with `type=int` takes 0 whatever its default is.

    It is an error where the number is always 0, and a warning where 0 is one of the values it can take. `persistent_workers=False` raises
    nothing, with any number of workers, and needs no guard.

    ## Example

    ```python
    import argparse
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


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    args = parser.parse_args()
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=args.num_workers, persistent_workers=True)
    ```

    ## Use instead

    ```python
    import argparse
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


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    args = parser.parse_args()
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    ```

    ## Fix safety

    Where the number is missing or written as 0 in the call, the argument is deleted. Else `True` becomes `<workers> > 0`. Both are safe: only
    calls that raised before change. The guard is written only where the worker expression is a name, an attribute or a constant subscript,
    because it is then evaluated twice.

    Turning `persistent_workers` on or off on a loader that works is another matter, and no part of this fix: from the second epoch on the
    batches of a shuffled loader differ, because a kept iterator draws no new base seed (measured with torch 2.13.0).

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    - [mllam/neural-lam#298](https://github.com/mllam/neural-lam/issues/298)
    """

    code = "OOM101"
    slug = "persistent-without-workers"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(
        call=CallCheck.OPTION, option="persistent_workers", error="persistent_workers", traits=frozenset({Trait.RAISES_FIRST, Trait.OF_LOADER})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders that ask for persistent workers and have, or can have, none."""
        yield from map(self.tell, told(module, project, GUARD, is_true))
