"""OOM122 persistent-on-every-loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import ByteSize, Consequence, Message, Multiplier, Resource, Severity, Weighs
from oomlint.measurement import Measurement, Trait, WorkerCheck
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.loader_calls import is_true, loaders_of
from oomlint.memory.shared.start_methods import FORKED
from oomlint.model.values import meet
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project


class PersistentOnEveryLoader(Rule):
    """Every loader of a script keeps its workers.

    ## What it does

    Checks for two or more `DataLoader`s with workers and `persistent_workers=True` in one function, class or module.

    ## Why is this bad

    Persistent workers live until the loader is dropped. With a training and a validation loader of three workers each, six processes live at
    the same time instead of three (measured with torch 2.13.0), each with its copies, its caches and its batches in flight, although only one
    of the loaders is in use.

    It is a note: under spawn, where a worker takes seconds to start, it can be what one wants.

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


    train_loader = DataLoader(Clips("train"), batch_size=8, num_workers=3, persistent_workers=True)
    val_loader = DataLoader(Clips("val"), batch_size=8, num_workers=3, persistent_workers=True)
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


    train_loader = DataLoader(Clips("train"), batch_size=8, num_workers=3, persistent_workers=True)
    val_loader = DataLoader(Clips("val"), batch_size=8, num_workers=3)
    ```

    ## Fix safety

    There is no fix. Dropping `persistent_workers` from a shuffled loader changes its batches from the second epoch on (measured with torch
    2.13.0).

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    """

    code = "OOM122"
    slug = "persistent-on-every-loader"
    severity = Severity.NOTE
    fixable = None
    help = "set `persistent_workers=True` on the training loader only"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.WORKERS,), ByteSize(least=FORKED))
    measured_as = Measurement(workers=WorkerCheck.TOGETHER, traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the second and further loaders with persistent workers of one scope."""
        loaders = loaders_of(project)
        groups: dict[object, list[Loader]] = {}
        for loader in loaders.of(module):
            if self._keeps_workers(loaders, loader):
                scope = loader.scope
                owner = scope.parent if scope.parent is not None and scope.parent.is_class else scope
                groups.setdefault(owner, []).append(loader)
        for group in groups.values():
            first = group[0]
            for loader in group[1:]:
                if self._exclusive(loaders, first, loader):
                    continue
                message = Message(
                    "A second loader keeps its workers between epochs", "all workers stay alive together, each with its copies and batches in flight"
                )
                facts = [loader_fact(one, option="persistent_workers") for one in (first, loader)]
                yield self.finding(module.place(loader.call), message, related=[module.place(first.call, "the first one")], facts=facts)

    @staticmethod
    def _keeps_workers(loaders: Loaders, loader: Loader) -> bool:
        for use in loaders.uses(loader):
            for given in loaders.argument(loader, "persistent_workers", use.frame):
                if given.reach or not is_true(given.value):
                    continue
                for workers in loaders.workers(loader, use.frame):
                    if isinstance(workers.const, int) and workers.const > 0 and not workers.reach and workers.under(given.picks) is not None:
                        return True
        return False

    @staticmethod
    def _exclusive(loaders: Loaders, first: Loader, second: Loader) -> bool:
        """Whether only one of the two is made: the tests around them contradict each other."""
        if first.scope is not second.scope:
            return False
        frame = loaders.evaluator.calls.plain_frame(first.module, first.scope)
        ways = [loaders.evaluator.where(loader.call, frame) for loader in (first, second)]
        return not any(meet(one, other) is not None for one in ways[0] for other in ways[1])
