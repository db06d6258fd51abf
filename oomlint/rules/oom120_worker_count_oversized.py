"""OOM120 worker-count-oversized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import ByteSize, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import Measurement, Trait, WorkerCheck
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.asked_processors import are_asked_for
from oomlint.memory.loaders.dropped_loaders import is_dropped
from oomlint.memory.loaders.loader_calls import apart, confidence_of, given_beside, loaders_of, story_places
from oomlint.memory.shared.start_methods import FORKED, FORKED_MIB, SPAWNED_MIB
from oomlint.model.questions import is_cpu_count
from oomlint.model.values import Const, ExternalCall, assumptions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.finding import Finding, Place
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative

_ADVICE = Fix(Safety.DISPLAY, "start with `min(4, len(os.sched_getaffinity(0)))`, and raise it while data loading is the bottleneck")


class WorkerCountOversized(Rule):
    """A loader starts very many workers, or one for each processor of the host.

    ## What it does

    Checks for a `DataLoader` with 16 workers or more (a setting), and for `os.cpu_count()` or `multiprocessing.cpu_count()` taken as the
    number of workers, a multiple of it, or what is left of it (`cpu_count() - 1`, `cpu_count() // 2`); once for all loaders that take the same
    number from the same place. A number that the code states is a note, not shown by default: who wrote it knew it. From 32 on (the setting
    `worker-cap`), which is a whole node for one loader, it is a warning, unless a job of the project asks for as many processors
    (`--cpus-per-task`).

    ## Why is this bad

    Each worker costs at least 10 MiB under fork and 139 MiB under spawn and forkserver (measured with torch 2.13.0, CPU), plus
    `prefetch_factor` batches, plus what it copies of the dataset (OOM110, OOM112). Each rank starts its own.

    `cpu_count()` is the number of processors of the *host*. In a container with a quota (`docker --cpus 4`) it still says 64, and so does
    `os.sched_getaffinity`: neither knows the quota. torch only warns, from 1.8.0 on, and compares with the affinity.

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


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=os.cpu_count())
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


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=min(4, len(os.sched_getaffinity(0))))
    ```

    ## Fix safety

    Advice only: the right number depends on the machine, and a large node with slow storage can use many. Start from `min(4,
    len(os.sched_getaffinity(0)))` and raise it while the loader is what one waits for. (`os.sched_getaffinity` exists on Linux only.)

    ## References

    - [Multi-process data loading](https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading)
    - [os.sched_getaffinity](https://docs.python.org/3/library/os.html#os.sched_getaffinity)
    """

    code = "OOM120"
    slug = "worker-count-oversized"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.WORKERS,), ByteSize(least=FORKED))
    measured_as = Measurement(workers=WorkerCheck.OVERSIZED, traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with very many workers."""
        loaders = loaders_of(project)
        for loader in (one for one in loaders.of(module) if not is_dropped(one)):
            for (maker, call), ways in self._oversized(loaders, loader, project.settings.worker_limit).items():
                for group in apart(ways, lambda way: way):
                    yield self._told(loader, maker.place(call), group, project)

    def _told(self, loader: Loader, place: Place, ways: list[Alternative], project: Project) -> Finding:
        found = ways[0]
        if isinstance(found.value, Const):
            count = int(str(found.value.value))
            known = count < project.settings.worker_cap or are_asked_for(count, place.path, project)
            severity = Severity.NOTE if known else Severity.WARNING
            each = f"each takes at least {FORKED_MIB} MiB under fork, {SPAWNED_MIB} MiB under spawn and forkserver, plus its batches in flight"
            message = Message(f"`{loader.written}` starts {found.value.value} workers", each)
            confidence = confidence_of(assumptions(found))
        else:
            severity = Severity.WARNING
            each = f"it ignores the CPU quota of a container, and each worker takes at least {FORKED_MIB} MiB plus its batches in flight"
            many = "starts one worker per CPU of the host" if isinstance(found.value, ExternalCall) else "scales workers with the host's CPUs"
            message = Message(f"`{loader.written}` {many}", each)
            confidence = confidence_of(max(1, assumptions(found)))
        facts = [loader_fact(loader, [found])]
        related, beside = story_places(place, found), given_beside(*([way] for way in ways))
        return self.finding(place, message, severity=severity, confidence=confidence, related=related, fix=_ADVICE, facts=facts, given=beside)

    @staticmethod
    def _oversized(loaders: Loaders, loader: Loader, limit: int) -> dict[tuple[Module, cst.Call], list[Alternative]]:
        """Such numbers of each place that makes the loader."""
        out: dict[tuple[Module, cst.Call], list[Alternative]] = {}
        for use in loaders.uses(loader):
            for alt in loaders.workers(loader, use.frame):
                if alt.reach or any(step.kind == "bound" for step in alt.story) or alt.under(use.picks) is None:
                    continue
                if (isinstance(alt.value, Const) and isinstance(alt.value.value, int) and alt.value.value >= limit) or is_cpu_count(alt.value):
                    out.setdefault(loader.made_at(use.frame), []).append(alt)
        return out
