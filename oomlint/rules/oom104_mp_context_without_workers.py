"""OOM104 mp-context-without-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.loaders.loader_calls import is_given
from oomlint.memory.loaders.worker_conflicts import WorkerGuard, told
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

GUARD = WorkerGuard("multiprocessing_context", lambda given, count, literal: f"{given} if {count} > 0 else None")  # noqa: ARG005


class MpContextWithoutWorkers(Rule):
    """A multiprocessing context is given to a loader that has no workers.

    ## What it does

    Checks for a `DataLoader` with a `multiprocessing_context` other than `None` whose number of workers is 0 or can be 0.

    The number is followed to where it comes from, as in OOM101.

    ## Why is this bad

    The constructor raises `ValueError: multiprocessing_context can only be used with multi-process loading (num_workers > 0)` (measured with
    torch 2.13.0). The name itself is not looked at: without workers, a start method that does not exist raises the same error.

    It is an error where the number is always 0, and a warning where 0 is one of the values it can take.

    ## Example

    ```python
    from dataclasses import dataclass
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    @dataclass
    class Config:
        root: Path = Path("clips")
        num_workers: int = 0


    class Clips(Dataset):
        def __init__(self, root):
            self.root = root

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    cfg = Config()
    loader = DataLoader(Clips(cfg.root), batch_size=8, num_workers=cfg.num_workers, multiprocessing_context="spawn")
    ```

    ## Use instead

    ```python
    from dataclasses import dataclass
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    @dataclass
    class Config:
        root: Path = Path("clips")
        num_workers: int = 0


    class Clips(Dataset):
        def __init__(self, root):
            self.root = root

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    cfg = Config()
    loader = DataLoader(Clips(cfg.root), batch_size=8, num_workers=cfg.num_workers, multiprocessing_context="spawn" if cfg.num_workers > 0 else None)
    ```

    ## Fix safety

    Where the number is missing or written as 0 in the call, the argument is deleted. Else `C` becomes `C if <workers> > 0 else None`. Both
    are safe: only calls that raised before change. The guard is written only where the worker expression is a name, an attribute or a
    constant subscript, because it is then evaluated twice.

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    """

    code = "OOM104"
    slug = "mp-context-without-workers"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(
        call=CallCheck.OPTION, option="multiprocessing_context", error="multiprocessing_context", traits=frozenset({Trait.RAISES_FIRST, Trait.OF_LOADER})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders that name a start method and have, or can have, no workers."""
        yield from map(self.tell, told(module, project, GUARD, is_given))
