"""OOM121 inflight-batches-too-big."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.amounts import readable
from oomlint.finding import Consequence, Factor, Message, Multiplier, Resource, Role, Severity, Weighs
from oomlint.measurement import Measurement, Trait, WorkerCheck
from oomlint.memory.loaders.in_flight import inflight
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.loaders.in_flight import Inflight
    from oomlint.model.project import Module, Project


class InflightBatchesTooBig(Rule):
    """The batches that wait between workers and training take too much memory.

    ## What it does

    Checks for a `DataLoader` whose batches in flight, `(prefetch_factor * num_workers + 1)` times the bytes of a batch, exceed a budget (4
    GiB; a setting). The bytes of a batch follow from what makes a sample: arrays and tensors, also those that a method fills, their rows
    and slices, casts, arithmetic and stacks; pictures that PIL, OpenCV or torchvision give a size; a row of each tensor of a
    `TensorDataset`; and from what a `collate_fn` makes of samples. Sizes may be constants, arguments, options or settings. What nobody
    knows counts as nothing, so the batch takes so much at least; where `__len__` gives a number, no more samples wait. The rule is silent
    where nothing of a batch is known.

    ## Why is this bad

    Each worker fetches ahead, by default two batches, and the finished batches wait in `/dev/shm`: up to `prefetch_factor * num_workers + 1`
    of them (measured with torch 2.13.0). With `pin_memory=True` there is a pinned copy of each as well. So the batch size does matter for the
    host's memory, multiplied.

    Docker gives `/dev/shm` 64 MiB unless told otherwise; what does not fit ends in a bus error.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Scans(Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            scan = torch.zeros(4, 160, 192, 160, dtype=torch.float32)
            scan.random_(generator=torch.Generator().manual_seed(index))
            return scan


    loader = DataLoader(Scans(), batch_size=8, num_workers=8, prefetch_factor=4)
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Scans(Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            scan = torch.zeros(4, 160, 192, 160, dtype=torch.float32)
            scan.random_(generator=torch.Generator().manual_seed(index))
            return scan


    loader = DataLoader(Scans(), batch_size=2, num_workers=4, prefetch_factor=1)
    ```

    ## Fix safety

    There is no fix. A lower `prefetch_factor` leaves the batches as they are, and so does a lower number of workers for a deterministic
    dataset (measured with torch 2.13.0).

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    - [pytorch/pytorch#5040](https://github.com/pytorch/pytorch/issues/5040)
    """

    code = "OOM121"
    slug = "inflight-batches-too-big"
    severity = Severity.WARNING
    fixable = None
    help = "lower `num_workers`, `prefetch_factor` or `batch_size`"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.PREFETCH,))
    per_rank = True
    measured_as = Measurement(workers=WorkerCheck.IN_FLIGHT, traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose batches in flight exceed the budget."""
        groups: dict[tuple[object, ...], list[Inflight]] = {}
        for case in inflight(module, project):
            groups.setdefault((case.workers, case.batches, case.batch_bytes, case.least, case.beside), []).append(case)
        for case, *others in groups.values():
            again = (other.place.saying("here, too", Role.AGAIN) for other in others if other.place != case.place)
            prefetch, least = "s prefetch" if case.workers != 1 else " prefetches", "at least " if case.least else ""
            message = Message(
                f"{case.workers} worker{prefetch} up to {case.batches} batches of {least}{readable(case.batch_bytes)}",
                f"together they take {least}{readable(case.batches * case.batch_bytes)} of shared memory",
            )
            weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Factor(Multiplier.PREFETCH, case.batches),))
            yield self.finding(
                case.place, message, confidence=case.confidence, related=(*case.related, *again), facts=case.facts, weighs=weighs, given=case.beside
            )
