"""OOM102 prefetch-without-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.loaders.loader_calls import is_given
from oomlint.memory.loaders.worker_conflicts import WorkerGuard, told
from oomlint.model.torch_versions import PREFETCH_NONE, torch_versions
from oomlint.model.values import Const
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value

GUARD = WorkerGuard("prefetch_factor", lambda given, count, literal: f"{given} if {count} > 0 else None", PREFETCH_NONE)  # noqa: ARG005
_DEFAULT = 2  # before torch 2.0, with and without workers


class PrefetchWithoutWorkers(Rule):
    """A prefetch factor is given to a loader that has no workers.

    ## What it does

    Checks for a `DataLoader` with a `prefetch_factor` other than `None` whose number of workers is 0 or can be 0.

    The number is followed to where it comes from, as in OOM101.

    ## Why is this bad

    The constructor raises `ValueError: prefetch_factor option could only be specified in multiprocessing` (measured with torch 2.13.0). Any
    integer raises, 2 as well: nothing is prefetched without workers, so there is nothing to set.

    This changed in torch 2.0. From 1.7 to 1.13 the default was 2, and `prefetch_factor=2` without workers was accepted: code that ran then
    breaks on upgrade. Conversely `prefetch_factor=None` is right from 2.0 on, and raises before.

    It is an error where the number is always 0, and a warning where 0 is one of the values it can take.

    ## Example

    ```python
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


    def make_loader(root, num_workers=0):
        return DataLoader(Clips(root), batch_size=8, num_workers=num_workers, prefetch_factor=4)
    ```

    ## Use instead

    ```python
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


    def make_loader(root, num_workers=0):
        return DataLoader(Clips(root), batch_size=8, num_workers=num_workers, prefetch_factor=4 if num_workers > 0 else None)
    ```

    ## Fix safety

    Where the number is missing or written as 0 in the call, the argument is deleted. Else `N` becomes `N if <workers> > 0 else None`. Both
    are safe with torch 2.0 or later: only calls that raised before change, and `prefetch_factor` does not change the batches (measured with
    torch 2.13.0). The guard is written only where the worker expression is a name, an attribute or a constant subscript, because it is then
    evaluated twice.

    Before torch 2.0, `None` raises. Where the requirements of the project (`requirements*.txt`, `environment.yml`, `setup.py`,
    `pyproject.toml`) allow 1.x, the fix passes the argument only when there are workers:
    `**({"prefetch_factor": 4} if num_workers > 0 else {})`. Where they allow nothing else, `prefetch_factor=2` is no finding.

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    - [pytorch/pytorch#68576](https://github.com/pytorch/pytorch/issues/68576)
    """

    code = "OOM102"
    slug = "prefetch-without-workers"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(call=CallCheck.OPTION, option="prefetch_factor", error="prefetch_factor", traits=frozenset({Trait.RAISES_FIRST, Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders that set a prefetch factor and have, or can have, no workers."""
        old = torch_versions(project, module).all_lack(PREFETCH_NONE)
        yield from map(self.tell, told(module, project, GUARD, _is_refused_before if old else is_given))


def _is_refused_before(value: Value) -> bool:
    """Whether a torch before 2.0 refuses a prefetch factor without workers."""
    return is_given(value) and not (isinstance(value, Const) and value.value == _DEFAULT)
